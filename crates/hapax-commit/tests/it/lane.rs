//! One lane's three ids.

use crate::fixture::{handle, identity, named_lane};
use hapax_commit::{
    Epoch, HandlePartition, Identity, Lane, Naming, TransactionVersion,
    handle::LAST_PRODUCER_EPOCH,
    lane::{IdState, NotYet, OpenWith, Outcome, Written},
};

fn new_lane(version: TransactionVersion, epoch: i16) -> Lane {
    named_lane(version, epoch, Naming::Rotating)
}

fn written() -> Option<Written> {
    Some(Written { started_ms: 1, deadline_ms: 2, partitions: handle(0, 1).partitions })
}

fn prepare(lane: &mut Lane, epoch: u64) -> OpenWith {
    let mut open = lane.open(Epoch(epoch)).unwrap();
    if open.init {
        let Identity { producer_id, producer_epoch } = open.identity;
        open = lane.identified(Epoch(epoch), identity(producer_id.0, producer_epoch.0 + 1));
    }
    lane.flushing(Epoch(epoch));
    assert!(lane.flushed(Epoch(epoch), written()).unwrap().is_some());
    lane.check().unwrap();
    open
}

fn commit(lane: &mut Lane, epoch: u64, next: Identity) {
    lane.committing(Epoch(epoch));
    lane.ended(Epoch(epoch), Outcome::Committed { next });
    lane.check().unwrap();
}

/// H9: an id that gets something new before its outcome is in the chain takes the evidence of a healthy job away.
#[test]
fn an_id_gets_nothing_new_before_its_outcome_is_in_the_chain() {
    for version in [TransactionVersion::V1, TransactionVersion::V2] {
        let mut lane = new_lane(version, 0);
        (1..=3).for_each(|epoch| drop(prepare(&mut lane, epoch)));
        assert_eq!(lane.open(Epoch(4)), Err(NotYet::Outcome { epoch: Epoch(1) }));
        lane.committing(Epoch(1));
        assert_eq!(lane.open(Epoch(4)), Err(NotYet::Outcome { epoch: Epoch(1) }));
        lane.ended(Epoch(1), Outcome::Committed { next: identity(101, 1) });
        assert_eq!(lane.open(Epoch(4)), Err(NotYet::Outcome { epoch: Epoch(1) }));
        lane.recorded(Epoch(1));
        assert!(lane.open(Epoch(4)).is_ok());
    }
}

/// H7: two producer ids have no order between them in a partition.
#[test]
fn an_epoch_is_opened_only_behind_the_acknowledged_one_before() {
    let mut lane = new_lane(TransactionVersion::V2, 0);
    lane.open(Epoch(1)).unwrap();
    assert_eq!(lane.open(Epoch(2)), Err(NotYet::Writing { epoch: Epoch(1) }));
    lane.flushing(Epoch(1));
    assert_eq!(lane.open(Epoch(2)), Err(NotYet::Writing { epoch: Epoch(1) }));
    lane.flushed(Epoch(1), written()).unwrap();
    assert!(lane.open(Epoch(2)).is_ok());
}

#[test]
fn on_v2_a_steady_state_needs_no_init_producer_id() {
    let mut lane = new_lane(TransactionVersion::V2, 0);
    for epoch in 1..40_u64 {
        let open = prepare(&mut lane, epoch);
        assert!(!open.init);
        let Identity { producer_id, producer_epoch } = open.identity;
        commit(&mut lane, epoch, identity(producer_id.0, producer_epoch.0 + 1));
        lane.recorded(Epoch(epoch));
    }
    assert!(lane.states().iter().all(|id| id.identity().producer_epoch.0 == 13));
}

/// H3: an InitProducerId without an identity would take the id back from a newer run. On V1 it is also what keeps
/// one producer epoch to one transaction.
#[test]
fn on_v1_a_used_identity_is_renewed_with_itself_before_it_writes_again() {
    let mut lane = new_lane(TransactionVersion::V1, 0);
    let first = prepare(&mut lane, 1);
    assert!(!first.init, "clear has just given it");
    commit(&mut lane, 1, first.identity);
    lane.recorded(Epoch(1));
    let again = lane.open(Epoch(4)).unwrap();
    assert_eq!((again.init, again.identity), (true, first.identity));
    assert_eq!(again.transactional_id, first.transactional_id);
    let open = lane.identified(Epoch(4), identity(101, 1));
    assert_eq!((open.init, open.identity), (false, identity(101, 1)));
}

/// H26: a transaction at the last producer epoch would end on another producer id, which some brokers forget.
#[test]
fn nothing_is_written_at_the_last_producer_epoch() {
    for version in [TransactionVersion::V1, TransactionVersion::V2] {
        let mut lane = new_lane(version, LAST_PRODUCER_EPOCH.0);
        assert!(lane.open(Epoch(1)).unwrap().init);
        let still = lane.identified(Epoch(1), identity(101, LAST_PRODUCER_EPOCH.0));
        assert!(still.init);
        let open = lane.identified(Epoch(1), identity(200, 0));
        assert_eq!((open.init, open.identity), (false, identity(200, 0)));
        lane.check().unwrap();
    }
}

/// An epoch without records has no transaction at the broker, and EndTxn for it would be refused.
#[test]
fn an_empty_epoch_has_no_handle_and_frees_its_id_at_once() {
    for version in [TransactionVersion::V1, TransactionVersion::V2] {
        let mut lane = new_lane(version, 0);
        lane.open(Epoch(1)).unwrap();
        lane.flushing(Epoch(1));
        assert_eq!(lane.flushed(Epoch(1), None), Ok(None));
        let open = lane.open(Epoch(4)).unwrap();
        assert_eq!((open.init, open.identity), (false, identity(101, 0)), "the identity is unspent");
    }
}

#[test]
fn a_handle_names_what_wrote_the_epoch() {
    let mut lane = new_lane(TransactionVersion::V1, 3);
    let open = lane.open(Epoch(5)).unwrap();
    lane.flushing(Epoch(5));
    let handle = lane.flushed(Epoch(5), written()).unwrap().unwrap();
    assert_eq!((handle.identity, &handle.transactional_id), (open.identity, &open.transactional_id));
    assert_eq!((handle.version, handle.epoch, handle.deadline_ms), (TransactionVersion::V1, Epoch(5), 2));
    assert_eq!(handle.check(), Ok(()));
}

#[test]
fn an_impossible_acknowledgement_is_not_made_a_handle() {
    let mut lane = new_lane(TransactionVersion::V2, 0);
    lane.open(Epoch(1)).unwrap();
    lane.flushing(Epoch(1));
    let partition = HandlePartition { count: 11, ..handle(0, 1).partitions[0].clone() };
    let written = Written { partitions: vec![partition], ..written().unwrap() };
    assert!(lane.flushed(Epoch(1), Some(written)).is_err());
    assert!(!lane.states().iter().any(|id| matches!(id, IdState::Prepared { .. })));
}

/// Only recovery goes on from an outcome that is not *committed*.
#[test]
fn an_unknown_or_aborted_outcome_blocks_its_id_for_the_run() {
    for outcome in [Outcome::Unknown, Outcome::Aborted] {
        let mut lane = new_lane(TransactionVersion::V2, 0);
        prepare(&mut lane, 1);
        lane.committing(Epoch(1));
        lane.ended(Epoch(1), outcome);
        lane.recorded(Epoch(2));
        assert_eq!(lane.open(Epoch(4)), Err(NotYet::Outcome { epoch: Epoch(1) }));
    }
}

#[test]
#[should_panic(expected = "commit of epoch 1")]
fn nothing_is_committed_that_is_not_prepared() {
    let mut lane = new_lane(TransactionVersion::V2, 0);
    lane.open(Epoch(1)).unwrap();
    lane.committing(Epoch(1));
}

#[test]
#[should_panic(expected = "epochs are opened in order")]
fn no_epoch_is_opened_twice() {
    let mut lane = new_lane(TransactionVersion::V2, 0);
    prepare(&mut lane, 2);
    let _ = lane.open(Epoch(2));
}

#[test]
fn two_ids_with_one_identity_break_an_invariant() {
    let config = new_lane(TransactionVersion::V2, 0).config().clone();
    let shared = Lane::new(config, [identity(100, 0), identity(100, 0), identity(102, 0)]);
    assert!(shared.check().is_err());
}

/// What the start has cleared is used as it is; each id behind it is asked for, and carries nothing of another one.
#[test]
fn per_epoch_each_id_is_asked_for_once_without_an_identity() {
    for version in [TransactionVersion::V1, TransactionVersion::V2] {
        let mut lane = named_lane(version, 0, Naming::PerEpoch);
        for epoch in 1..9 {
            let open = lane.open(Epoch(epoch)).unwrap();
            assert_eq!(open.transactional_id.to_string(), format!("orders.main.0.{epoch}"));
            assert_eq!((open.init, open.is_fresh), (epoch > 3, epoch > 3), "epoch {epoch}");
            if open.init {
                let own = identity(200 + epoch as i64, 0);
                assert_eq!(lane.identified(Epoch(epoch), own).identity, own);
            }
            lane.flushing(Epoch(epoch));
            let handle = lane.flushed(Epoch(epoch), written()).unwrap().unwrap();
            assert_eq!(handle.transactional_id.index, epoch);
            lane.committing(Epoch(epoch));
            lane.ended(Epoch(epoch), Outcome::Committed { next: handle.identity });
            lane.recorded(Epoch(epoch));
            assert_eq!(lane.check(), Ok(()));
        }
    }
}

/// An epoch without records leaves its id alone; the next one in its place has another id.
#[test]
fn per_epoch_an_identity_is_not_taken_along_to_another_id() {
    let mut lane = named_lane(TransactionVersion::V2, 0, Naming::PerEpoch);
    assert!(!lane.open(Epoch(3)).unwrap().init, "cleared, and not used yet");
    lane.flushing(Epoch(3));
    assert_eq!(lane.flushed(Epoch(3), None), Ok(None));
    let open = lane.open(Epoch(4)).unwrap();
    assert!(open.init && open.is_fresh, "the first epoch in this place had another id");
}
