//! Texts of a pipeline file that stand for durations, sizes and points in time.

use std::time::Duration;
use toml_datetime::{Datetime, Offset};

const DURATIONS: [(&str, u64); 5] =
    [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];

const SIZES: [(&str, u64); 6] =
    [("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30), ("kB", 1_000), ("MB", 1_000_000), ("B", 1)];

/// `500ms`, `1s`, `1.5s`, `2m`, `1h`, `7d`; to the millisecond.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    scaled(text, &DURATIONS)
        .map(Duration::from_millis)
        .ok_or_else(|| format!("{text:?} is not a duration; write 500ms, 1s, 2m, 1h or 7d"))
}

/// `256KiB`, `1MiB`, `1000B`, `2MB`.
pub(super) fn size(text: &str) -> Result<usize, String> {
    scaled(text, &SIZES)
        .and_then(|bytes| usize::try_from(bytes).ok())
        .ok_or_else(|| format!("{text:?} is not a size; write 256KiB, 1MiB, 1GiB or 1000B"))
}

/// A number with a unit, in the smallest unit; fractions only where they come out even.
fn scaled(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let text = text.trim();
    let (digits, scale) =
        units.iter().find_map(|(unit, scale)| Some((text.strip_suffix(unit)?.trim_end(), *scale)))?;
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, "0"));
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number(whole) || !is_number(fraction) {
        return None;
    }
    let tenths = 10_u64.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let part = fraction.parse::<u64>().ok()?.checked_mul(scale)?;
    let even = part.is_multiple_of(tenths).then_some(part / tenths)?;
    whole.parse::<u64>().ok()?.checked_mul(scale)?.checked_add(even)
}

/// Milliseconds since 1970 of `2026-01-01T00:00:00Z`.
pub(super) fn moment(text: &str) -> Result<i64, String> {
    let refused = || format!("{text:?} is not a point in time; write 2026-01-01T00:00:00Z");
    let parsed: Datetime = text.parse().map_err(|_| refused())?;
    let (Some(date), Some(time), Some(offset)) = (parsed.date, parsed.time, parsed.offset) else {
        return Err(refused());
    };
    let minutes = match offset {
        Offset::Z => 0,
        Offset::Custom { minutes } => i64::from(minutes),
    };
    let days = days_since_1970(i64::from(date.year), i64::from(date.month), i64::from(date.day));
    let second = time.second.map_or(0, i64::from);
    let seconds = ((days * 24 + i64::from(time.hour)) * 60 + i64::from(time.minute) - minutes) * 60 + second;
    Ok(seconds * 1_000 + i64::from(time.nanosecond.unwrap_or(0)) / 1_000_000)
}

/// Days of the proleptic Gregorian calendar, counted in years that begin in March, so that a leap day comes last.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let before_month = (153 * month + 2) / 5;
    365 * year + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400) + before_month + day
        - 719_469
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_a_unit() {
        for (text, millis) in [
            ("500ms", 500),
            ("1s", 1_000),
            ("1.5s", 1_500),
            ("2 m", 120_000),
            ("1h", 3_600_000),
            ("7d", 604_800_000),
            ("0ms", 0),
        ] {
            assert_eq!(duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for text in ["5", "", "s", "-1s", "1.0001s", "1.s", "1e3s", "1 year", "99999999999999999999s", "1s1s"]
        {
            assert!(
                duration(text).unwrap_err().ends_with("is not a duration; write 500ms, 1s, 2m, 1h or 7d"),
                "{text}"
            );
        }
    }

    #[test]
    fn sizes_have_a_unit() {
        for (text, bytes) in [
            ("256KiB", 262_144),
            ("1MiB", 1 << 20),
            ("1.5KiB", 1_536),
            ("1000B", 1_000),
            ("2MB", 2_000_000),
            ("1 GiB", 1 << 30),
        ] {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
        for text in ["12", "1KB", "1kb", "x", "0.3B"] {
            assert!(size(text).unwrap_err().contains("is not a size"), "{text}");
        }
    }

    #[test]
    fn moments_are_rfc_3339_with_an_offset() {
        for (text, millis) in [
            ("1970-01-01T00:00:00Z", 0),
            ("2026-01-01T00:00:00Z", 1_767_225_600_000),
            ("2024-02-29T12:34:56.789Z", 1_709_210_096_789),
            ("2026-01-01T01:00:00+01:00", 1_767_225_600_000),
            ("1969-12-31T23:59:59Z", -1_000),
            ("2000-03-01T00:00:00Z", 951_868_800_000),
        ] {
            assert_eq!(moment(text), Ok(millis), "{text}");
        }
        for text in ["yesterday", "2026-01-01", "2026-01-01T00:00:00", "2026-13-01T00:00:00Z"] {
            assert!(moment(text).unwrap_err().contains("is not a point in time"), "{text}");
        }
    }
}
