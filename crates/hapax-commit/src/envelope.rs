//! The frame around durable bytes: magic, kind, format version, length, CRC-32C, then a JSON body that a person
//! can read with `tail -c +21`.
//!
//! ```text
//! 0      4     6        8        16       20
//! | HAPX | kind | version | length | crc32c | body ...
//! ```
//! All numbers big endian. The checksum covers kind, version, length and body.

use crate::handle::HandleFault;
use alloc::vec::Vec;
use core::fmt;
use serde::{Serialize, de::DeserializeOwned};

const MAGIC: [u8; 4] = *b"HAPX";
const HEADER: usize = 20;

/// The format that this release writes; it reads all up to it.
pub const FORMAT_VERSION: u16 = 1;

/// What is inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A [`crate::Handle`].
    Handle,
    /// A [`crate::JobRecord`].
    Job,
    /// A [`crate::Slot`].
    Slot,
    /// [`crate::CarriedPositions`].
    Positions,
}

impl Kind {
    fn code(self) -> u16 {
        match self {
            Self::Handle => 1,
            Self::Job => 2,
            Self::Slot => 3,
            Self::Positions => 4,
        }
    }
}

/// Why durable bytes were refused. Nothing of them was used.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DamagedBytes {
    /// Not ours: no magic, or of another kind.
    NotOurs,
    /// Cut short or too long.
    Length {
        /// What the frame says.
        expected: u64,
        /// What is there.
        found: u64,
    },
    /// The checksum does not fit.
    Checksum,
    /// Written by a newer release.
    Newer {
        /// The version found.
        version: u16,
    },
    /// The frame is whole, the body is not what this release understands.
    Body(alloc::string::String),
    /// A handle breaks an invariant.
    Handle(HandleFault),
}

impl fmt::Display for DamagedBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotOurs => f.write_str("not written by Hapax, or of another kind"),
            Self::Length { expected, found } => {
                write!(f, "damaged: {expected} bytes expected, {found} found")
            }
            Self::Checksum => f.write_str("damaged: the checksum does not fit"),
            Self::Newer { version } => write!(
                f,
                "written in format {version} by a newer release; this one reads up to format {FORMAT_VERSION}"
            ),
            Self::Body(why) => write!(f, "damaged: {why}"),
            Self::Handle(fault) => write!(f, "damaged: the handle breaks the invariant {fault:?}"),
        }
    }
}

impl core::error::Error for DamagedBytes {}

/// CRC-32C (Castagnoli).
pub fn crc32c(parts: [&[u8]; 2]) -> u32 {
    let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
    parts.iter().for_each(|part| digest.update(part));
    u32::try_from(digest.finalize()).expect("a CRC-32 has 32 bits")
}

pub(crate) fn seal<T: Serialize>(kind: Kind, value: &T) -> Vec<u8> {
    let body = serde_json::to_vec(value).expect("our types have string keys and no failing serialiser");
    let mut bytes = Vec::with_capacity(HEADER + body.len());
    bytes.extend_from_slice(&MAGIC);
    bytes.extend_from_slice(&kind.code().to_be_bytes());
    bytes.extend_from_slice(&FORMAT_VERSION.to_be_bytes());
    bytes.extend_from_slice(&(body.len() as u64).to_be_bytes());
    let crc = crc32c([&bytes[4..16], &body]);
    bytes.extend_from_slice(&crc.to_be_bytes());
    bytes.extend_from_slice(&body);
    bytes
}

pub(crate) fn open<T: DeserializeOwned>(kind: Kind, bytes: &[u8]) -> Result<T, DamagedBytes> {
    let Some((header, body)) = bytes.split_at_checked(HEADER) else {
        return Err(DamagedBytes::Length { expected: HEADER as u64, found: bytes.len() as u64 });
    };
    let u16_at = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
    if header[..4] != MAGIC || u16_at(4) != kind.code() {
        return Err(DamagedBytes::NotOurs);
    }
    let version = u16_at(6);
    if version == 0 || version > FORMAT_VERSION {
        return Err(DamagedBytes::Newer { version });
    }
    let length = header[8..16].iter().fold(0_u64, |sum, &byte| (sum << 8) | u64::from(byte));
    if length != body.len() as u64 {
        return Err(DamagedBytes::Length { expected: length, found: body.len() as u64 });
    }
    if crc32c([&header[4..16], body]).to_be_bytes() != header[16..20] {
        return Err(DamagedBytes::Checksum);
    }
    serde_json::from_slice(body).map_err(|error| DamagedBytes::Body(alloc::format!("{error}")))
}
