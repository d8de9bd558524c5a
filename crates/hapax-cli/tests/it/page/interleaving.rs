//! docs/interleavings.md: each number has its entry, with a rule and what shows it.

use super::{assert_numbered, entries, named_files, named_tests, page};

pub(super) const PAGE: &str = "docs/interleavings.md";

const COUNT: usize = 43;

#[test]
fn each_number_has_one_entry_with_a_rule_and_what_shows_it() {
    let page = page(PAGE);
    let entries = entries(&page, 'H');
    assert_numbered(&entries, 'H');
    assert_eq!(entries.len(), COUNT);
    for entry in entries {
        let (id, text) = (entry.id, entry.text);
        assert!(text.contains("*Rule:*") || text.contains("*Not there:*"), "{id} has no rule");
        assert!(named_files(text).next().is_some(), "{id} has no place in the code");
        let shown = named_tests(text).next().is_some();
        assert!(
            shown || text.contains("*Not shown:*"),
            "{id} says neither what shows it nor that nothing does"
        );
        assert_eq!(shown, text.contains("*Shown by:*"), "{id}");
    }
}
