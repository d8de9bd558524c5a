//! The state diagrams of docs/protocol.md are those of the machines.
//!
//! Owns how a diagram is drawn and where it stands on the page. Each machine is driven through every input that it takes, in
//! every state that a small world brings it into; an arrow is what was seen, with what brought it about. What a machine
//! refuses has no arrow. Refuses to draw what a machine does not show: the page says which diagrams are drawn by hand.

mod chain;
mod cohort;
mod lane;
mod ledger;
mod takeover;

use std::collections::{BTreeMap, BTreeSet};

const PAGE: &str = include_str!("../../../../../docs/protocol.md");

/// A state, as it is named on the page; the number is its place in the reading order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Node(u8, &'static str);

/// Where everything begins, or ends.
const EDGE: Node = Node(0, "[*]");

#[derive(Default)]
struct Diagram {
    arrows: BTreeMap<(Node, Node), BTreeSet<String>>,
}

impl Diagram {
    fn arrow(&mut self, from: Node, to: Node, label: impl Into<String>) {
        self.arrows.entry((from, to)).or_default().insert(label.into());
    }

    /// As Mermaid reads it.
    fn text(&self) -> String {
        let line = |((from, to), labels): (&(Node, Node), &BTreeSet<String>)| {
            let labels: Vec<&str> =
                labels.iter().map(String::as_str).filter(|label| !label.is_empty()).collect();
            let label = if labels.is_empty() { String::new() } else { format!(": {}", labels.join(" or ")) };
            format!("    {} --> {}{label}\n", from.1, to.1)
        };
        let arrows: String = self.arrows.iter().map(line).collect();
        format!("```mermaid\nstateDiagram-v2\n{arrows}```\n")
    }

    /// Compares it with what stands between its marks on the page.
    fn is_on_page(&self, name: &str) {
        let (text, found) = (self.text(), between_marks(PAGE, name));
        assert!(
            found == Some(&text),
            "docs/protocol.md has another diagram of {name} than the machine; in its place belongs:\n\n{text}\n"
        );
    }
}

/// What stands behind `<!-- drawn: NAME -->` and before `<!-- end -->`.
fn between_marks<'a>(page: &'a str, name: &str) -> Option<&'a str> {
    let (_, behind) = page.split_once(&format!("<!-- drawn: {name} -->\n"))?;
    behind.split_once("<!-- end -->").map(|(diagram, _)| diagram)
}

#[test]
fn a_diagram_that_lacks_an_arrow_is_not_taken_for_the_machines() {
    let mut diagram = Diagram::default();
    diagram.arrow(EDGE, Node(1, "Free"), "");
    let page = format!("before\n<!-- drawn: it -->\n{}<!-- end -->\nbehind", diagram.text());
    assert_eq!(between_marks(&page, "it"), Some(&*diagram.text()));
    assert_eq!(between_marks(&page, "other"), None);
    diagram.arrow(Node(1, "Free"), Node(2, "Open"), "open");
    assert_ne!(between_marks(&page, "it"), Some(&*diagram.text()));
}
