//! A job that is changed: revisions and restored checkpoints in a chain, and what a chain has to choose from.

use crate::fixture::{CLUSTER, Slots, finished, handle, manifest, positions, proven, record, void};
use hapax_commit::{
    ChainFault, Epoch, Manifest, Naming, Position, Positions, Revision, Shape, SlotBody, SlotNumber, SplitId,
    history::{Standing, checkpoints},
};
use std::collections::BTreeSet;

fn first() -> Shape {
    Shape::of(&record())
}

fn added() -> Positions {
    let position = Position { next: 5, leader_epoch: None, topic_id: None, file: None, end: None };
    [(SplitId("in/more/0".into()), position)].into()
}

fn revision(behind: u64, shape: Shape) -> SlotBody {
    SlotBody::Revision(Revision { behind: Epoch(behind), shape, left: Vec::new() })
}

fn restored(from: u64, epoch: u64) -> SlotBody {
    let manifest = Manifest {
        epoch: Epoch(epoch),
        positions: positions(10 * from),
        handles: Vec::new(),
        journals: Vec::new(),
    };
    SlotBody::Restored { from: Epoch(from), manifest }
}

fn refused(chain: &Slots) -> &'static str {
    match chain.read() {
        Err(ChainFault::Revision { why, .. }) => why,
        other => panic!("it is not refused: {other:?}"),
    }
}

/// H19: whoever reads the chain sees one layout, the newest.
#[test]
fn the_newest_revision_says_what_the_job_is() {
    let chain = Slots::claimed().decide(1).put(proven(1)).claim(2);
    assert_eq!(chain.view().shape(&record()), first());
    let chain = chain.put(revision(1, first().with_shards(7)));
    assert_eq!(chain.view().shape(&record()).layout.shards.len(), 7);
    let last = first().with_shards(7).with_shards(2);
    let chain = chain.claim(7).put(revision(1, last.clone()));
    assert_eq!(chain.view().shape(&record()), last);
    assert_eq!(chain.view().progress().unwrap().positions, positions(10), "no position has moved");
}

/// What was decided under the old shape is resolved under it, by whichever run.
#[test]
fn a_job_is_not_changed_while_an_epoch_is_in_doubt() {
    for body in [revision(0, first().with_shards(7)), restored(0, 9)] {
        for chain in [Slots::claimed().decide(1), Slots::claimed().decide(1).claim(2)] {
            assert_eq!(refused(&chain.put(body.clone())), "an epoch is in doubt");
        }
    }
}

#[test]
fn a_revision_that_does_not_fit_is_refused() {
    let chain = Slots::claimed().decide(1).put(proven(1)).claim(2);
    assert_eq!(
        refused(&chain.clone().put(revision(2, first().with_shards(3)))),
        "it stands behind another epoch"
    );
    let mut broken = first().with_shards(3);
    broken.genesis.clear();
    assert_eq!(refused(&chain.clone().put(revision(1, broken))), "its splits and their starts do not fit");
    let chain = chain.put(revision(1, first().with_shards(3)));
    let mut other = first().with_shards(5);
    other.layout.number = 2;
    assert_eq!(refused(&chain.put(revision(1, other))), "the layout's number does not rise");
}

/// A topic that is dropped and comes back later begins anew, whether or not a checkpoint came in between.
#[test]
fn a_split_that_was_dropped_has_no_position_any_more() {
    let split = SplitId("in/topic/1".into());
    let without = first().with_splits(&Positions::new(), &BTreeSet::from([split.clone()]));
    let start = [(split.clone(), positions(3)[&split].clone())].into();
    let back = without.with_splits(&start, &BTreeSet::new());
    let chain = Slots::claimed().decide(2).put(proven(2)).claim(2).put(revision(2, without));
    assert!(!chain.view().progress().unwrap().positions.contains_key(&split));
    let view = chain.put(revision(2, back)).view();
    let positions = &view.progress().unwrap().positions;
    assert_eq!((positions[&split].next, positions[&SplitId("in/topic/0".into())].next), (3, 20));
}

/// H16: a run that dies before its first checkpoint of the new shape begins the added split where it was said.
#[test]
fn a_split_that_is_added_begins_at_the_start_that_the_revision_names() {
    let shape = first().with_splits(&added(), &BTreeSet::new());
    let chain = Slots::claimed().put(revision(0, shape.clone()));
    assert_eq!(
        chain.view().shape(&record()).positions(chain.view().progress())[&SplitId("in/more/0".into())].next,
        5
    );
    let chain = Slots::claimed().decide(1).put(proven(1)).put(revision(1, shape));
    let voided = chain.decide(2).claim(2).put(void(2)).view();
    assert_eq!(voided.progress().unwrap().positions[&SplitId("in/more/0".into())].next, 5);
}

/// Without it a job would fall back to the shape of its creation.
#[test]
fn a_revision_outlives_pruning() {
    let mut chain =
        Slots::claimed().decide(1).put(proven(1)).put(revision(1, first().with_shards(7))).claim(7);
    for epoch in 2..12 {
        chain = chain.put(manifest(epoch, vec![handle(0, epoch)]));
    }
    let view = chain.view();
    let pruned = view.prunable(3);
    assert!(pruned.len() > 5 && !pruned.contains(&SlotNumber(4)), "{pruned:?}");
    let left = chain.without(&pruned.iter().map(|number| number.0).collect::<Vec<_>>()).view();
    assert_eq!(left.shape(&record()).layout.number, 2);
    assert_eq!((left.settled_epoch(), left.last_epoch()), (view.settled_epoch(), view.last_epoch()));
}

#[test]
fn clusters_that_were_left_are_not_cleared_again() {
    let chain = Slots::claimed().decide(1).put(proven(1)).claim(2);
    assert!(!chain.view().ids_to_clear().is_empty());
    let left = Revision { behind: Epoch(1), shape: first(), left: vec![CLUSTER.into()] };
    let chain = chain.put(SlotBody::Revision(left));
    assert!(chain.view().ids_to_clear().is_empty());
    assert!(!chain.claim(2).view().ids_to_clear().is_empty(), "whoever writes there again names them again");
}

/// H40: its handles are not those of an epoch in doubt, and its number is a fresh one.
#[test]
fn a_restored_checkpoint_is_where_the_job_goes_on_and_nothing_of_it_is_resolved() {
    let chain = Slots::claimed().decide(1).decide(2).decide(3).put(proven(3)).claim(2).put(restored(1, 4));
    let view = chain.view();
    assert_eq!((view.settled_epoch(), view.last_epoch(), view.unresolved()), (Epoch(4), Epoch(4), None));
    assert_eq!(view.progress().unwrap().positions, positions(10));
    assert!(matches!(chain.clone().decide(4).read(), Err(ChainFault::EpochRepeated { .. })));
    assert_eq!(chain.decide(5).view().unresolved().unwrap().manifest.epoch, Epoch(5));
}

#[test]
fn a_restored_checkpoint_is_younger_than_its_copy_and_has_no_transactions() {
    let chain = Slots::claimed().decide(1).put(proven(1)).claim(2);
    assert_eq!(refused(&chain.clone().put(restored(2, 2))), "it is older than what it copies");
    let with = Manifest {
        epoch: Epoch(2),
        positions: positions(0),
        handles: vec![handle(0, 2)],
        journals: Vec::new(),
    };
    let body = SlotBody::Restored { from: Epoch(1), manifest: with };
    assert_eq!(refused(&chain.put(body)), "what is restored has no transactions");
}

#[test]
fn a_job_that_has_finished_works_again_behind_a_restored_checkpoint() {
    let chain = Slots::claimed().decide(1).put(finished(1)).claim(2);
    assert!(chain.view().finished());
    assert!(!chain.put(restored(0, 2)).view().finished());
}

/// What a person chooses from says what became of each.
#[test]
fn a_history_says_what_became_of_each_checkpoint() {
    let amend = SlotBody::Amend { epoch: Epoch(3), handles: vec![handle(1, 4)] };
    let chain = Slots::claimed()
        .decide(1)
        .decide(2)
        .claim(2)
        .put(void(2))
        .decide(3)
        .claim(2)
        .put(amend)
        .put(proven(3))
        .put(restored(1, 5))
        .decide(6);
    let all = checkpoints(&chain.all);
    let standing: Vec<_> = all.iter().map(|one| (one.manifest.epoch.0, one.standing, one.restored)).collect();
    assert_eq!(
        standing,
        [
            (1, Standing::Proven, None),
            (2, Standing::Void, None),
            (3, Standing::Proven, None),
            (5, Standing::Proven, Some(Epoch(1))),
            (6, Standing::InDoubt, None)
        ]
    );
    assert_eq!(all[2].manifest.handles[1].epoch, Epoch(4), "the amended handle counts");
    assert_eq!(all[2].records(), 20);
    assert_eq!(checkpoints(&chain.claim(2).all).last().unwrap().standing, Standing::InDoubt);
}

/// Which ids may be open follows from the chain's end: a run is two epochs ahead of its newest checkpoint at most.
#[test]
fn per_epoch_the_ids_behind_the_newest_checkpoint_are_cleared() {
    let named = |numbers: std::ops::RangeInclusive<u64>| -> BTreeSet<String> {
        numbers.map(|n| format!("orders.main.0.{n}")).collect()
    };
    let claim = |last: u64| {
        let ids = crate::fixture::lane(0).ids_behind(&record().job, Naming::PerEpoch, Epoch(last));
        SlotBody::Claim(hapax_commit::Claim {
            ids: [(CLUSTER.into(), ids)].into(),
            layout: 1,
            naming: Naming::PerEpoch,
            by: "test".into(),
        })
    };
    let prepared = |epoch: u64| {
        let id = crate::fixture::lane(0).id_of(&record().job, Naming::PerEpoch, Epoch(epoch));
        manifest(epoch, vec![hapax_commit::Handle { transactional_id: id, ..handle(0, epoch) }])
    };
    let to_clear = |chain: &Slots| -> BTreeSet<String> {
        chain.view().ids_to_clear().iter().map(|at| at.id.to_string()).collect()
    };
    let chain = Slots::default().claim_as(claim(0));
    assert_eq!(to_clear(&chain), named(1..=6));
    let mut chain = chain;
    for epoch in 1..20 {
        chain = chain.put(prepared(epoch));
    }
    assert_eq!(to_clear(&chain), named(20..=25), "the one in doubt is 19");
    let chain = chain.claim_as(claim(19));
    assert_eq!(to_clear(&chain), named(20..=25));
    let settled = chain.put(proven(19));
    assert_eq!(to_clear(&settled), named(20..=25), "what has ended is not asked for again");
    // Pruned, the chain names the same ids: of a claim whose past is gone, none that have ended.
    let pruned = settled.view().prunable(3);
    assert!(pruned.len() > 10, "{pruned:?}");
    let left = settled.clone().without(&pruned.iter().map(|number| number.0).collect::<Vec<_>>());
    assert_eq!(to_clear(&left), named(20..=25));
    let foreign = handle(1, 20);
    assert!(settled.put(manifest(20, vec![foreign])).read().is_err(), "another lane's id was not claimed");
}

/// A life of the job before this one had ids under other numbers, which its first claim takes over.
#[test]
fn per_epoch_the_first_claim_takes_over_what_the_life_before_had() {
    let mut ids = crate::fixture::lane(0).ids_behind(&record().job, Naming::PerEpoch, Epoch::GENESIS);
    let former = crate::fixture::lane(3).id_of(&record().job, Naming::PerEpoch, Epoch(400));
    ids.push(former.clone());
    let claim = |ids| {
        SlotBody::Claim(hapax_commit::Claim {
            ids: [(CLUSTER.into(), ids)].into(),
            layout: 1,
            naming: Naming::PerEpoch,
            by: "test".into(),
        })
    };
    let to_clear = Slots::default().claim_as(claim(ids)).view().ids_to_clear();
    assert!(to_clear.iter().any(|at| at.id == former));
    assert_eq!(to_clear.len(), 6 + 1 + 6, "the window of either lane, and the old id");
}
