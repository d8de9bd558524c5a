//! Zig-zag variable-length integers, as in Protocol Buffers: the numbers inside a record.
//!
//! Reading refuses what no encoder writes (more than 5 or 10 bytes, bits beyond the 32nd or 64th); a number that
//! merely uses more bytes than it needs is accepted.

/// Bytes that `value` takes.
#[inline]
pub(super) fn varint_len(value: i32) -> usize {
    unsigned_len(u64::from(zigzag32(value)))
}

/// Bytes that `value` takes.
#[inline]
pub(super) fn varlong_len(value: i64) -> usize {
    unsigned_len(zigzag64(value))
}

/// Where [`put_varint`] and [`put_varlong`] may write: this many bytes from their position on, whatever they need.
pub(super) const VARINT_SLACK: usize = 16;

/// Writes at `*at` and moves `*at` behind the number.
#[inline]
pub(super) fn put_varint(out: &mut [u8], at: &mut usize, value: i32) {
    put_unsigned(out, at, u64::from(zigzag32(value)));
}

/// Writes at `*at` and moves `*at` behind the number.
#[inline]
pub(super) fn put_varlong(out: &mut [u8], at: &mut usize, value: i64) {
    put_unsigned(out, at, zigzag64(value));
}

/// Reads at `*at` and moves `*at` behind the number; `None` when the bytes are no such number.
#[inline]
pub(super) fn get_varint(bytes: &[u8], at: &mut usize) -> Option<i32> {
    let first = *bytes.get(*at)?;
    if first < 0x80 {
        *at += 1;
        return Some(unzigzag32(u32::from(first)));
    }
    let wide = get_unsigned(bytes, at, 5)?;
    u32::try_from(wide).ok().map(unzigzag32)
}

/// Reads at `*at` and moves `*at` behind the number; `None` when the bytes are no such number.
#[inline]
pub(super) fn get_varlong(bytes: &[u8], at: &mut usize) -> Option<i64> {
    let wide = get_unsigned(bytes, at, 10)?;
    Some(((wide >> 1) as i64) ^ -((wide & 1) as i64))
}

fn zigzag32(value: i32) -> u32 {
    ((value << 1) ^ (value >> 31)) as u32
}

fn zigzag64(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

fn unzigzag32(value: u32) -> i32 {
    ((value >> 1) as i32) ^ -((value & 1) as i32)
}

fn unsigned_len(value: u64) -> usize {
    let bits = 64 - (value | 1).leading_zeros() as usize;
    // the quotient by 7, rounded up, for up to 64 bits and without dividing
    (bits * 9 + 64) / 64
}

/// Collects up to eight bytes in a register and writes them at once.
#[inline]
fn put_unsigned(out: &mut [u8], at: &mut usize, mut value: u64) {
    let mut packed = 0;
    let mut bits = 0;
    while value >= 0x80 {
        packed |= (value & 0x7f | 0x80) << bits;
        value >>= 7;
        bits += 8;
        if bits == 64 {
            put_eight(out, *at, packed);
            *at += 8;
            packed = 0;
            bits = 0;
        }
    }
    put_eight(out, *at, packed | value << bits);
    *at += bits / 8 + 1;
}

#[inline]
fn put_eight(out: &mut [u8], at: usize, packed: u64) {
    out[at..at + 8].copy_from_slice(&packed.to_le_bytes());
}

#[inline]
fn get_unsigned(bytes: &[u8], at: &mut usize, max_bytes: usize) -> Option<u64> {
    let mut value = 0u64;
    for (index, byte) in bytes.get(*at..)?.iter().take(max_bytes).enumerate() {
        let part = u64::from(byte & 0x7f);
        if index == 9 && part > 1 {
            return None;
        }
        value |= part << (7 * index);
        if *byte < 0x80 {
            *at += index + 1;
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written<T>(put: fn(&mut [u8], &mut usize, T), value: T) -> Vec<u8> {
        let mut out = vec![0xee; VARINT_SLACK];
        let mut at = 0;
        put(&mut out, &mut at, value);
        out.truncate(at);
        out
    }

    #[test]
    fn every_width_of_a_number_comes_back() {
        let mut edges = vec![0i64, -1, 1, i64::MIN, i64::MAX, i64::from(i32::MIN), i64::from(i32::MAX)];
        for shift in 0..63 {
            edges.extend([(1i64 << shift) - 1, 1 << shift, -(1i64 << shift), -(1i64 << shift) - 1]);
        }
        for value in edges {
            let out = written(put_varlong, value);
            assert_eq!(out.len(), varlong_len(value), "{value}");
            let mut at = 0;
            assert_eq!(get_varlong(&out, &mut at), Some(value));
            assert_eq!(at, out.len());
            if let Ok(narrow) = i32::try_from(value) {
                let out = written(put_varint, narrow);
                assert_eq!(out.len(), varint_len(narrow), "{narrow}");
                let mut at = 0;
                assert_eq!(get_varint(&out, &mut at), Some(narrow));
                assert_eq!(at, out.len());
            }
        }
    }

    #[test]
    fn numbers_are_those_of_the_format() {
        for (value, bytes) in
            [(0, &[0u8][..]), (-1, &[1]), (1, &[2]), (63, &[126]), (64, &[0x80, 1]), (300, &[0xd8, 4])]
        {
            assert_eq!(written(put_varint, value), bytes);
        }
    }

    #[test]
    fn a_number_that_is_cut_or_too_wide_is_refused() {
        for bytes in
            [&[][..], &[0x80], &[0xff, 0xff], &[0xff; 5], &[0xff, 0xff, 0xff, 0xff, 0x1f], &[0x80; 6]]
        {
            assert_eq!(get_varint(bytes, &mut 0), None, "{bytes:?}");
        }
        for bytes in [&[0x80; 10][..], &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2], &[0xff; 9]]
        {
            assert_eq!(get_varlong(bytes, &mut 0), None, "{bytes:?}");
        }
        assert_eq!(get_varint(&[0], &mut 7), None);
    }
}
