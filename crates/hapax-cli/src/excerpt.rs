//! Texts of unknown length, cut to what a message can hold.

/// Characters of a quoted value.
const VALUE: usize = 200;

/// Characters at each end of a message.
const END: usize = 1_000;

/// The beginning of a value that a message quotes.
pub(crate) fn shortened(value: &str) -> String {
    match value.char_indices().nth(VALUE) {
        Some((end, _)) => format!("{}...", &value[..end]),
        None => value.to_owned(),
    }
}

/// A message without its middle where it is long: its beginning names the place, its end what to do.
pub(crate) fn message(text: &str) -> String {
    let (Some((front, _)), Some((back, _))) =
        (text.char_indices().nth(END), text.char_indices().rev().nth(END - 1))
    else {
        return text.to_owned();
    };
    if front >= back {
        return text.to_owned();
    }
    format!("{} ... ({} bytes left out) ... {}", &text[..front], back - front, &text[back..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_message_keeps_both_its_ends() {
        for short in ["", "x", &"ü".repeat(2_000)] {
            assert_eq!(message(short), short);
        }
        let long = format!("line 1: {}; correct it", "ü".repeat(1 << 20));
        let cut = message(&long);
        assert!(cut.starts_with("line 1: ü") && cut.ends_with("ü; correct it"), "{cut}");
        assert_eq!(cut.chars().count(), 2_000 + " ... (2097179 bytes left out) ... ".len());
    }

    #[test]
    fn a_long_value_keeps_its_beginning() {
        assert_eq!(shortened("short"), "short");
        assert_eq!(shortened(&"ü".repeat(1_000)), format!("{}...", "ü".repeat(200)));
    }
}
