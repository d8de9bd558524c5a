//! JSON in and out, strictly: the engine's own reader and writer accept and produce more than JSON.
//!
//! Numbers are kept as they were written (integers of any size, decimals as text). Nesting is bounded, because the
//! engine recurses over values and a record must not be able to overflow a worker's stack.

use crate::limits;
use jaq_json::{Num, Val, read as engine, write};
use serde::de::IgnoredAny;

/// Reads one JSON text.
pub(super) fn read(bytes: &[u8]) -> Result<Val, String> {
    let text = std::str::from_utf8(bytes).map_err(|error| format!("the value is not JSON: {error}"))?;
    if depth(text.as_bytes()) > limits::JSON_DEPTH {
        return Err(format!("the value is nested deeper than {} levels", limits::JSON_DEPTH));
    }
    serde_json::from_str::<IgnoredAny>(text).map_err(|error| format!("the value is not JSON: {error}"))?;
    engine::parse_single(bytes).map_err(|error| format!("the value is not JSON: {error}"))
}

/// Deepest nesting of arrays and objects, if the text is JSON.
fn depth(text: &[u8]) -> usize {
    let (mut depth, mut deepest, mut quoted, mut escaped) = (0_usize, 0, false, false);
    for byte in text {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b'[' | b'{' if !quoted => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b']' | b'}' if !quoted => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

/// Appends a value as compact JSON text; nothing is appended on an error.
pub(super) fn write(value: &Val, out: &mut Vec<u8>) -> Result<(), String> {
    check(value, 0)?;
    write::write(out, &write::Pp::default(), 0, value)
        .map_err(|error| format!("the output cannot be written: {error}"))
}

/// Is the value one that JSON has a text for?
fn check(value: &Val, depth: usize) -> Result<(), String> {
    if depth > limits::JSON_DEPTH {
        return Err(format!("the output is nested deeper than {} levels", limits::JSON_DEPTH));
    }
    let refused = |what: &str| Err(format!("the output has {what}, which JSON has no text for"));
    match value {
        Val::Num(Num::Float(number)) if !number.is_finite() => refused(&format!("the number {number}")),
        Val::Num(Num::Dec(digits)) if serde_json::from_str::<IgnoredAny>(digits).is_err() => {
            refused(&format!("the number {digits}"))
        }
        Val::Null | Val::Bool(_) | Val::Num(_) => Ok(()),
        Val::BStr(_) => refused("a byte string"),
        Val::TStr(text) if std::str::from_utf8(text).is_err() => refused("a string that is not UTF-8"),
        Val::TStr(_) => Ok(()),
        Val::Arr(items) => items.iter().try_for_each(|item| check(item, depth + 1)),
        Val::Obj(fields) => fields.iter().try_for_each(|(key, value)| match key {
            Val::TStr(_) => check(key, depth).and_then(|()| check(value, depth + 1)),
            _ => refused("an object key that is not a string"),
        }),
    }
}

/// A value's beginning, for messages.
pub(super) fn excerpt(value: &Val) -> String {
    shortened(&value.to_string())
}

/// What a program raised: a string as it is, anything else as JSON.
pub(super) fn message(raised: Val) -> String {
    match raised {
        Val::TStr(text) => shortened(&String::from_utf8_lossy(&text)),
        other => excerpt(&other),
    }
}

/// A text's beginning, for messages.
pub(super) fn shortened(text: &str) -> String {
    match text.char_indices().nth(limits::MESSAGE_EXCERPT) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copied(text: &str) -> String {
        let mut out = Vec::new();
        write(&read(text.as_bytes()).unwrap(), &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn numbers_keep_their_digits() {
        let text = r#"[1.10,123456789012345678901234567890,1e400,0.1000000000000000055511151231257827,-7]"#;
        assert_eq!(copied(text), text);
    }

    #[test]
    fn order_of_fields_and_escapes_survive() {
        let text = r#"{"z":"\u0000\n\"ü","a":[],"m":{}}"#;
        assert_eq!(copied(text), text);
    }

    #[test]
    fn what_the_engine_reads_beyond_json_is_refused() {
        for text in [
            "NaN",
            "Infinity",
            "+1",
            "b\"x\"",
            "{1:2}",
            "# comment\n1",
            "1 2",
            "",
            "{\"a\":1,}",
            "01",
            "\"\u{0}\"",
        ] {
            assert!(read(text.as_bytes()).unwrap_err().starts_with("the value is not JSON"), "{text}");
        }
        assert!(read(b"\"\xff\"").unwrap_err().contains("utf-8"));
    }

    #[test]
    fn deep_nesting_cannot_overflow_the_stack() {
        let deep = |levels: usize| "[".repeat(levels) + &"]".repeat(levels);
        assert!(read(deep(limits::JSON_DEPTH).as_bytes()).is_ok());
        assert!(read(deep(limits::JSON_DEPTH + 1).as_bytes()).unwrap_err().contains("deeper than"));
        assert!(read(deep(1_000_000).as_bytes()).unwrap_err().contains("deeper than"));
        assert_eq!(depth(br#"{"[[[\"[[":[]}"#), 2);
    }

    #[test]
    fn what_json_has_no_text_for_is_not_written() {
        for value in [
            Val::from(f64::NAN),
            Val::from(f64::NEG_INFINITY),
            Val::byte_str(b"x".to_vec()),
            Val::utf8_str(b"\xff".to_vec()),
            Val::Num(Num::Dec("+1.5".to_owned().into())),
            [Val::from(f64::INFINITY)].into_iter().collect(),
        ] {
            let mut out = Vec::new();
            assert!(write(&value, &mut out).unwrap_err().contains("JSON has no text for"), "{value}");
            assert!(out.is_empty());
        }
    }
}
