//! What a chain means, and what is refused as damage.

use crate::fixture::{Slots, at, finished, handle, identity, job, lane, manifest, positions, proven, void};
use hapax_commit::{ChainFault, Epoch, Generation, Handle, SlotBody, SlotNumber};
use std::collections::BTreeSet;

fn numbers(slots: &[SlotNumber]) -> Vec<u64> {
    slots.iter().map(|number| number.0).collect()
}

#[test]
fn an_empty_chain_goes_on_from_genesis() {
    let view = hapax_commit::ChainView::empty();
    assert_eq!((view.progress(), view.unresolved(), view.newest_claim()), (None, None, None));
    assert_eq!((view.last_epoch(), view.next_slot()), (Epoch::GENESIS, SlotNumber::FIRST));
}

#[test]
fn the_next_manifest_of_the_same_run_proves_the_one_before() {
    let view = Slots::claimed().decide(1).decide(2).view();
    assert_eq!(view.unresolved().unwrap().manifest.epoch, Epoch(2));
    assert_eq!(view.settled_epoch(), Epoch(1));
    assert_eq!(view.progress().unwrap().positions, positions(10));
}

/// H1: with two decided epochs in doubt, the records of the first can only come back behind those of the second.
#[test]
fn no_epoch_is_decided_by_a_later_run_while_one_is_in_doubt() {
    let chain = Slots::claimed().decide(1).claim(2);
    let fault = chain.clone().decide(2).read().unwrap_err();
    assert_eq!(fault, ChainFault::DecidedInDoubt { slot: SlotNumber(4), unresolved: Epoch(1) });
    assert_eq!(chain.put(proven(1)).decide(2).view().settled_epoch(), Epoch(1));
}

/// H6, H37: what was given up must be in the chain, and its number is never used again.
#[test]
fn a_voided_epoch_gives_back_the_one_before_and_its_number_is_spent() {
    let chain = Slots::claimed().decide(1).decide(2).claim(2).put(void(2));
    let view = chain.view();
    assert_eq!((view.settled_epoch(), view.last_epoch(), view.unresolved()), (Epoch(1), Epoch(2), None));
    let fault = chain.clone().decide(2).read().unwrap_err();
    assert_eq!(fault, ChainFault::EpochRepeated { slot: SlotNumber(6), epoch: Epoch(2) });
    assert_eq!(chain.decide(3).view().settled_epoch(), Epoch(1));
}

/// H16: the first epoch can be given up too; then the job record's positions count.
#[test]
fn a_voided_first_epoch_goes_back_to_genesis() {
    let view = Slots::claimed().decide(1).claim(2).put(void(1)).view();
    assert_eq!((view.progress(), view.settled_epoch(), view.last_epoch()), (None, Epoch::GENESIS, Epoch(1)));
}

#[test]
fn a_run_neither_voids_nor_amends_nor_abandons_its_own_epoch() {
    let abandoned = SlotBody::Abandoned { epoch: Epoch(1), incident: "i".into() };
    let amend = SlotBody::Amend { epoch: Epoch(1), handles: vec![handle(0, 2)] };
    for body in [void(1), abandoned, amend] {
        let fault = Slots::claimed().decide(1).put(body).read().unwrap_err();
        assert_eq!(fault, ChainFault::WithoutClaim { slot: SlotNumber(3) });
    }
}

#[test]
fn an_outcome_names_the_epoch_in_doubt_and_no_other() {
    for body in [proven(1), void(1), void(3), proven(3), finished(3)] {
        let fault = Slots::claimed().decide(1).decide(2).claim(2).put(body).read().unwrap_err();
        assert!(matches!(fault, ChainFault::NotInDoubt { slot: SlotNumber(5), .. }), "{fault}");
    }
    let fault = Slots::claimed().put(proven(0)).read().unwrap_err();
    assert!(matches!(fault, ChainFault::NotInDoubt { .. }), "{fault}");
}

#[test]
fn an_abandoned_epoch_is_not_read_again() {
    let body = SlotBody::Abandoned { epoch: Epoch(1), incident: "i".into() };
    let view = Slots::claimed().decide(1).claim(2).put(body).view();
    assert_eq!((view.settled_epoch(), view.unresolved()), (Epoch(1), None));
}

#[test]
fn a_manifest_without_transactions_is_settled_at_once() {
    let view = Slots::claimed().put(manifest(1, Vec::new())).claim(2).decide(2).view();
    assert_eq!((view.settled_epoch(), view.unresolved().unwrap().manifest.epoch), (Epoch(1), Epoch(2)));
}

/// H25: a job that ended well must still know it when the brokers have forgotten.
#[test]
fn a_finished_job_is_finished_for_good() {
    for chain in [Slots::claimed().decide(1).put(finished(1)), Slots::claimed().put(finished(0))] {
        assert!(chain.clone().claim(2).view().finished());
        let fault = chain.claim(2).decide(2).read().unwrap_err();
        assert!(matches!(fault, ChainFault::Finished { .. }), "{fault}");
    }
    assert!(!Slots::claimed().decide(1).put(proven(1)).view().finished());
}

/// H21: an old run's next slot is its successor's claim, so a slot of an old run behind it is damage.
#[test]
fn a_slot_of_an_older_run_behind_a_newer_claim_is_refused() {
    let old = Slots::claimed().decide(1);
    let mut chain = Slots::claimed().claim(2).decide(1);
    let stray = hapax_commit::Slot { number: SlotNumber(4), ..old.all[1].clone() };
    chain.all.push(stray);
    let fault = chain.read().unwrap_err();
    assert!(matches!(fault, ChainFault::Foreign { slot: SlotNumber(4), .. }), "{fault}");
}

#[test]
fn a_chain_begins_with_a_claim_in_slot_one_and_ascends() {
    let chain = Slots::claimed().decide(1).put(proven(1));
    let fault = chain.clone().without(&[1]).read().unwrap_err();
    assert_eq!(fault, ChainFault::NoClaim { found: SlotNumber(2) });
    let mut shuffled = chain.all.clone();
    shuffled.swap(1, 2);
    assert!(hapax_commit::ChainView::read(&shuffled).is_err());
    let twice = chain.all.iter().chain(chain.all.last());
    let fault = hapax_commit::ChainView::read(twice).unwrap_err();
    assert_eq!(fault, ChainFault::Order { end: Some(SlotNumber(3)), found: SlotNumber(3) });
}

/// H17: an id that no claim names would be neither fenced nor cleared by the next run.
#[test]
fn a_handle_on_an_id_that_was_not_claimed_is_refused() {
    let fault = Slots::default().claim(1).decide(1).read().unwrap_err();
    let id = lane(1).transactional_id(&job(), Epoch(1));
    assert_eq!(fault, ChainFault::Handle { slot: SlotNumber(2), id });
    let elsewhere = Handle { cluster_id: "D".into(), ..handle(0, 1) };
    let fault = Slots::claimed().put(manifest(1, vec![elsewhere])).read().unwrap_err();
    assert!(matches!(fault, ChainFault::Handle { .. }), "{fault}");
}

/// H12, H17: cleared is what claims name, shards that are gone and epochs that were never decided included, and
/// nothing else; H9: never an id of the epoch in doubt.
#[test]
fn every_claimed_id_is_cleared_but_those_in_doubt() {
    let view = Slots::default().claim(3).claim(1).put(manifest(4, vec![handle(0, 4)])).claim(2).view();
    let all: BTreeSet<_> = crate::fixture::ids(3).into_iter().map(at).collect();
    let in_doubt = BTreeSet::from([at(lane(0).transactional_id(&job(), Epoch(4)))]);
    assert_eq!(view.ids_in_doubt(), in_doubt);
    assert_eq!(view.ids_to_clear(), all.difference(&in_doubt).cloned().collect());
}

/// H23: the rewritten copy stands under a fresh number, on an id that holds no evidence.
#[test]
fn an_amend_replaces_the_handles_of_its_lanes() {
    let amended = Handle { identity: identity(300, 0), ..handle(1, 3) };
    let amend = |handle: &Handle| SlotBody::Amend { epoch: Epoch(2), handles: vec![handle.clone()] };
    let chain = Slots::claimed().decide(1).decide(2).claim(2);
    let view = chain.clone().put(amend(&amended)).view();
    assert_eq!(view.unresolved().unwrap().manifest.handles, [handle(0, 2), amended.clone()]);
    assert_eq!((view.last_epoch(), view.settled_epoch()), (Epoch(3), Epoch(1)));
    assert!(view.ids_to_clear().contains(&handle(1, 2).at()));
    let same_number = chain.clone().put(amend(&handle(1, 2))).read().unwrap_err();
    assert!(matches!(same_number, ChainFault::Handle { .. }), "{same_number}");
    let proven = chain.put(amend(&amended)).put(proven(2)).decide(4).view();
    assert_eq!(proven.settled_epoch(), Epoch(2));
}

#[test]
fn only_a_prefix_without_its_claims_is_pruned() {
    let mut chain = Slots::claimed().decide(1).decide(2).claim(2).put(proven(2));
    for epoch in 3..7 {
        chain = chain.decide(epoch);
    }
    let view = chain.view();
    assert_eq!(numbers(&view.prunable(3)), [2, 3, 5, 6]);
    assert_eq!(numbers(&view.prunable(5)), [2]);
    assert_eq!(view.prunable(100), []);
}

/// H37: e-1 is kept until e is proven, however few checkpoints are to be kept.
#[test]
fn the_checkpoint_to_go_back_to_is_kept() {
    let chain = Slots::claimed().decide(1).decide(2).claim(2).put(void(2)).decide(3);
    assert_eq!(chain.view().prunable(1), []);
    assert_eq!(numbers(&chain.decide(4).view().prunable(1)), [2, 3, 5]);
}

/// What was written again: the lane's new handle has the number `under`.
fn amend(epoch: u64, under: u64) -> SlotBody {
    SlotBody::Amend { epoch: Epoch(epoch), handles: vec![handle(1, under)] }
}

#[test]
fn whatever_was_pruned_so_far_the_chain_means_the_same() {
    let abandoned = |epoch| SlotBody::Abandoned { epoch: Epoch(epoch), incident: "i".into() };
    let begun = || Slots::claimed().decide(1).decide(2).claim(2);
    let gone_on = |chain: Slots, next: u64| {
        chain.decide(next).decide(next + 1).claim(2).put(proven(next + 1)).decide(next + 2).claim(2)
    };
    for chain in [
        gone_on(begun().put(void(2)), 3),
        gone_on(begun().put(amend(2, 3)).put(proven(2)), 4),
        gone_on(begun().put(amend(2, 3)).claim(2).put(amend(2, 4)).put(proven(2)), 5),
        gone_on(begun().put(amend(2, 3)).claim(2).put(void(2)), 4),
        gone_on(begun().put(amend(2, 3)).put(abandoned(2)), 4),
    ] {
        let whole = chain.view();
        let prunable = numbers(&whole.prunable(2));
        assert!(prunable.len() >= 4, "{prunable:?}");
        for subset in 0_u32..1 << prunable.len() {
            let gone: Vec<_> =
                prunable.iter().enumerate().filter(|(bit, _)| subset >> bit & 1 == 1).collect();
            let gone: Vec<_> = gone.into_iter().map(|(_, number)| *number).collect();
            let view = chain.clone().without(&gone).read();
            let view = view.unwrap_or_else(|fault| panic!("{gone:?}: {fault}"));
            assert_eq!(view.unresolved(), whole.unresolved(), "{gone:?}");
            assert_eq!(view.progress(), whole.progress(), "{gone:?}");
            assert_eq!(
                (view.last_epoch(), view.next_slot()),
                (whole.last_epoch(), whole.next_slot()),
                "{gone:?}"
            );
            assert_eq!(view.ids(), whole.ids(), "{gone:?}");
        }
    }
}

/// A put's answer is lost, it is sent again and stored, the slot is pruned later, and only then the first copy lands.
#[test]
fn a_late_copy_of_a_pruned_slot_does_not_make_its_handles_the_newest() {
    let mut chain = Slots::claimed();
    for epoch in 1..9 {
        chain = chain.decide(epoch);
    }
    let pruned = numbers(&chain.view().prunable(2));
    assert_eq!(pruned, [2, 3, 4, 5, 6, 7]);
    let newest = chain.clone().without(&pruned).view();
    let late_copy = chain.without(&[3, 4, 5, 6, 7]).view();
    assert_eq!(late_copy.newest_handles().collect::<Vec<_>>(), newest.newest_handles().collect::<Vec<_>>());
}

/// Another start reads the chain, and its put of a claim takes so long that the run at work has filled that number and pruned
/// it. The claim lands in the hole, behind which the run at work goes on.
#[test]
fn a_claim_that_lands_where_a_slot_was_pruned_is_none() {
    let mut chain = Slots::claimed();
    for epoch in 1..9 {
        chain = chain.decide(epoch);
    }
    let pruned = numbers(&chain.view().prunable(2));
    let whole = chain.clone().without(&pruned).view();
    let late = |number: u64| {
        let mut chain = chain.clone().without(&pruned);
        let claim = Slots::claimed().claim(2).all[1].clone();
        let claim =
            hapax_commit::Slot { number: SlotNumber(number), generation: Generation(number), ..claim };
        chain.all.push(claim);
        chain.all.sort_by_key(|slot| slot.number);
        chain
    };
    for &number in &pruned {
        let view = late(number).view();
        assert_eq!(view, whole, "late at {number}");
        // The run at work and whoever comes after it go on.
        let next = late(number).all.iter().map(|slot| slot.number.0).max().unwrap();
        assert_eq!(view.next_slot(), SlotNumber(next + 1));
    }
}

#[test]
fn slots_that_cannot_have_been_pruned_are_missed() {
    let chain = Slots::claimed().decide(1).put(proven(1)).claim(2);
    let fault = chain.clone().without(&[2]).read().unwrap_err();
    assert_eq!(fault, ChainFault::Missing { slot: SlotNumber(2) });
    let fault = chain.without(&[2, 3]).read().unwrap_err();
    assert_eq!(fault, ChainFault::Missing { slot: SlotNumber(2) });
}
