//! CRC-32C (Castagnoli), behind one function and one running form.

use crc_fast::{CrcAlgorithm, Digest};

/// CRC-32C of `bytes`.
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}

/// A CRC-32C that is fed piece by piece.
#[derive(Clone, Copy)]
pub(super) struct RunningCrc(Digest);

impl RunningCrc {
    pub(super) fn new() -> Self {
        Self(Digest::new(CrcAlgorithm::Crc32Iscsi))
    }

    pub(super) fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub(super) fn value(&self) -> u32 {
        self.0.finalize() as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_polynomial_is_castagnoli() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(b""), 0);
    }

    #[test]
    fn pieces_give_the_checksum_of_the_whole() {
        let mut rng = fastrand::Rng::with_seed(7);
        let bytes: Vec<u8> = (0..5000).map(|_| rng.u8(..)).collect();
        for _ in 0..200 {
            let mut running = RunningCrc::new();
            let mut at = 0;
            while at < bytes.len() {
                let next = (at + rng.usize(0..700)).min(bytes.len());
                running.update(&bytes[at..next]);
                at = next;
            }
            assert_eq!(running.value(), crc32c(&bytes));
        }
    }
}
