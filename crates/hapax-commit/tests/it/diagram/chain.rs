//! What a chain is behind each slot, and which slot may follow.

use super::{Diagram, EDGE, Node};
use crate::fixture::{Slots, finished, handle, manifest, positions, proven, record, void};
use hapax_commit::{ChainView, Epoch, Manifest, Revision, SlotBody};

/// Slots behind the first claim: enough for every state to be left in every way.
const LENGTH: usize = 5;

fn node(view: &ChainView) -> Node {
    let Some((_, run)) = view.newest_claim() else { return EDGE };
    match view.unresolved() {
        Some(unresolved) if unresolved.run == run => Node(2, "Decided"),
        Some(_) => Node(3, "InDoubt"),
        None if view.finished() => Node(4, "Finished"),
        None => Node(1, "Settled"),
    }
}

/// Every slot that a run could think of here, by its name.
fn bodies(view: &ChainView) -> Vec<(&'static str, SlotBody)> {
    let (last, settled) = (view.last_epoch().0, view.settled_epoch().0);
    let about = view.unresolved().map_or(settled, |unresolved| unresolved.manifest.epoch.0);
    let next = last + 1;
    let known = view.shape(&record());
    let revision = Revision {
        behind: Epoch(settled),
        shape: known.with_shards(known.layout.shards.len() as u32 % 2 + 1),
        left: Vec::new(),
    };
    let restored =
        Manifest { epoch: Epoch(next), positions: positions(0), handles: Vec::new(), journals: Vec::new() };
    vec![
        ("manifest", manifest(next, vec![handle(0, next)])),
        ("manifest without transactions", manifest(next, Vec::new())),
        ("amend", SlotBody::Amend { epoch: Epoch(about), handles: vec![handle(0, next)] }),
        ("void", void(about)),
        ("abandoned", SlotBody::Abandoned { epoch: Epoch(about), incident: "i".into() }),
        ("proven", proven(about)),
        ("proven and finished", finished(about)),
        ("revision", SlotBody::Revision(revision)),
        ("restored", SlotBody::Restored { from: Epoch::GENESIS, manifest: restored }),
    ]
}

fn walk(chain: &Slots, diagram: &mut Diagram) {
    let view = chain.view();
    let here = node(&view);
    let bodies = bodies(&view).into_iter().map(|(name, body)| (name, chain.clone().put(body)));
    for (name, longer) in bodies.chain([("claim", chain.clone().claim(2))]) {
        let Ok(after) = longer.read() else { continue };
        diagram.arrow(here, node(&after), name);
        if longer.all.len() <= LENGTH {
            walk(&longer, diagram);
        }
    }
}

#[test]
fn a_chain_is_as_the_page_draws_it() {
    let mut diagram = Diagram::default();
    let claimed = Slots::claimed();
    diagram.arrow(EDGE, node(&claimed.view()), "claim");
    for (_, body) in bodies(&ChainView::empty()) {
        assert!(Slots::default().put(body).read().is_err(), "a chain begins with a claim");
    }
    walk(&claimed, &mut diagram);
    diagram.is_on_page("a chain");
}
