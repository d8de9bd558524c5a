//! What a topic may be called: Kafka's rule, known before a broker is asked.

/// Longest name, in characters.
const LONGEST: usize = 249;

/// Checks a name.
///
/// # Errors
/// It is not one; the text says why.
pub(crate) fn check(name: &str) -> Result<(), String> {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    if (1..=LONGEST).contains(&name.len()) && !matches!(name, "." | "..") && name.bytes().all(legal) {
        return Ok(());
    }
    Err(format!(
        "{:?} is not a topic's name: use 1 to {LONGEST} of the characters a-z, A-Z, 0-9, '.', '_' and '-', and not \".\" \
         or \"..\" alone",
        crate::excerpt::shortened(name)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_kafka_s_rule() {
        for name in ["a", "Orders.v2_large-x", "...", &"x".repeat(249)] {
            assert_eq!(check(name), Ok(()), "{name}");
        }
        for name in ["", ".", "..", "a/b", "a b", "a\0", "ü", &"x".repeat(250)] {
            let why = check(name).unwrap_err();
            assert!(why.contains("is not a topic's name: use 1 to 249") && why.len() < 500, "{why}");
        }
    }
}
