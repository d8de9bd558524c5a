//! GUARANTEES.md: each claim has what it assumes, how it is kept, and a test that would fail were it false, or says that
//! there is none.

use super::{Entry, assert_numbered, entries, named_files, named_tests, page};

pub(super) const PAGE: &str = "GUARANTEES.md";

/// The parts of an entry, in their order; the last one is [`SHOWN`], [`NOT_SHOWN`], or both.
const PARTS: [&str; 3] = ["*Claim:*", "*Assumes:*", "*How:*"];
const SHOWN: &str = "*Shown by:*";
const NOT_SHOWN: &str = "*Not shown:*";

/// What is wrong with the form of an entry.
fn faults(entry: &Entry<'_>) -> Vec<String> {
    let Entry { id, text } = entry;
    let mut faults = Vec::new();
    let mut behind = 0;
    for part in PARTS {
        match text.matches(part).count() {
            1 => {}
            0 => faults.push(format!("{id} lacks {part}")),
            _ => faults.push(format!("{id} has {part} more than once")),
        }
        let at = text.find(part).unwrap_or(behind);
        if at < behind {
            faults.push(format!("{id} has {part} too early"));
        }
        behind = at;
    }
    let shown = text.split(SHOWN).nth(1).unwrap_or_default();
    let has_tests = named_tests(shown).next().is_some();
    if !has_tests && !text.contains(NOT_SHOWN) {
        faults.push(format!("{id} says neither what shows it nor that nothing does"));
    }
    if text.contains(SHOWN) && !has_tests {
        faults.push(format!("{id} names no test behind {SHOWN}"));
    }
    if text.find(SHOWN).or(text.find(NOT_SHOWN)).is_some_and(|at| at < behind) {
        faults.push(format!("{id} is shown before it is said"));
    }
    let how = text.split(PARTS[2]).nth(1).unwrap_or_default();
    if named_files(how).next().is_none() {
        faults.push(format!("{id} has no place in the code"));
    }
    faults
}

#[test]
fn each_claim_has_its_parts_and_a_test_or_says_that_there_is_none() {
    let page = page(PAGE);
    for letter in ['G', 'N'] {
        let entries = entries(&page, letter);
        assert!(entries.len() > 9, "only {} entries {letter} are found", entries.len());
        assert_numbered(&entries, letter);
        let faults: Vec<String> = entries.iter().flat_map(faults).collect();
        assert!(faults.is_empty(), "{}", faults.join("\n"));
    }
}

#[test]
fn an_entry_without_a_part_or_without_a_test_is_told() {
    let whole =
        "*Claim:* so.\n*Assumes:* that.\n*How:* `hapax/src/lib.rs`.\n*Shown by:*\n- `hapax: it::is`\n";
    let of = |text: &str| faults(&Entry { id: "G1", text });
    assert_eq!(of(whole), [""; 0]);
    assert_eq!(of(&whole.replace("*Shown by:*\n- `hapax: it::is`", "*Not shown:* at all.")), [""; 0]);
    assert_eq!(of(&whole.replace("*Assumes:*", "")), ["G1 lacks *Assumes:*"]);
    assert_eq!(of(&whole.replace("`hapax/src/lib.rs`", "by magic")), ["G1 has no place in the code"]);
    assert_eq!(
        of(&whole.replace("- `hapax: it::is`", "- nothing")),
        ["G1 says neither what shows it nor that nothing does", "G1 names no test behind *Shown by:*"]
    );
    let turned = "*Assumes:* that.\n*Claim:* so.\n*How:* `hapax/src/lib.rs`.\n*Not shown:* yet.\n";
    assert_eq!(of(turned), ["G1 has *Assumes:* too early"]);
}
