//! One lane in a live run.

use crate::world::{commit, on_each};
use hapax::{
    Code,
    engine::{EngineError, Outcome, Record},
};
use hapax_broker::{Afterwards, ApiKey, Rule, Step};
use std::{future::Future, time::Duration};

#[test]
fn what_is_prepared_is_seen_when_it_is_committed_and_not_before() {
    on_each(|world| async move {
        let sink = world.begun().await;
        let mut lane = sink.lane(0).await.unwrap();
        let mut seen = 0;
        for epoch in 1..=5 {
            let handle = world.prepared(&mut lane, epoch, seen, 10).await;
            assert_eq!(world.seen().await, (0..seen).collect::<Vec<_>>());
            let proof = commit(&lane, &handle).await;
            lane.recorded(proof);
            seen += 10;
            assert_eq!(world.seen().await, (0..seen).collect::<Vec<_>>());
        }
    });
}

#[test]
fn a_record_arrives_as_it_was_handed_over() {
    on_each(|world| async move {
        let sink = world.begun().await;
        let mut lane = sink.lane(0).await.unwrap();
        let record = Record::to("out").key("k").value("7").header("h", "1").header("h", "2");
        lane.write(record.timestamp(1_700_000_000_000).partition(1)).await.unwrap();
        let handle = lane.prepare(1).await.unwrap().unwrap();
        assert_eq!(handle.partitions.len(), 1);
        assert_eq!(handle.partitions[0].partition, 1);
        let _proof = commit(&lane, &handle).await;
        let read = world.records().await;
        let [record] = &read[..] else { panic!("{read:?}") };
        assert_eq!((record.key.as_deref(), record.text().as_str()), (Some(&b"k"[..]), "7"));
        assert_eq!(record.timestamp_ms, 1_700_000_000_000);
        let header = |value: &[u8]| ("h".to_owned(), Some(value.to_vec()));
        assert_eq!(record.headers, [header(b"1"), header(b"2")]);
    });
}

#[test]
fn an_epoch_without_records_has_no_handle() {
    on_each(|world| async move {
        let sink = world.begun().await;
        let mut lane = sink.lane(0).await.unwrap();
        assert_eq!(lane.prepare(1).await.unwrap(), None);
        let handle = world.prepared(&mut lane, 2, 0, 1).await;
        lane.recorded(commit(&lane, &handle).await);
        assert_eq!(lane.prepare(3).await.unwrap(), None);
        let error = lane.prepare(3).await.unwrap_err();
        assert!(matches!(error, EngineError::Usage { .. }), "{error}");
    });
}

#[test]
fn an_id_gets_nothing_new_before_its_proof_is_recorded() {
    on_each(|world| async move {
        let sink = world.begun().await;
        let mut lane = sink.lane(0).await.unwrap();
        let first = world.prepared(&mut lane, 1, 0, 2).await;
        let second = world.prepared(&mut lane, 2, 2, 2).await;
        let third = world.prepared(&mut lane, 3, 4, 2).await;
        let proof = commit(&lane, &first).await;
        let record = || Record::to("out").value("6");
        let error = lane.write(record()).await.unwrap_err();
        assert!(error.code() == Code::Usage && error.to_string().contains("recorded"), "{error}");
        lane.recorded(proof);
        lane.write(record()).await.unwrap();
        let fourth = lane.prepare(4).await.unwrap().unwrap();
        assert_eq!(fourth.transactional_id, first.transactional_id);
        assert_ne!(fourth.identity, first.identity);
        for handle in [second, third, fourth] {
            let proof = commit(&lane, &handle).await;
            lane.recorded(proof);
        }
        assert_eq!(world.seen().await, (0..7).collect::<Vec<_>>());
    });
}

#[test]
fn epochs_of_a_lane_are_committed_in_order() {
    on_each(|world| async move {
        let sink = world.begun().await;
        let mut lane = sink.lane(0).await.unwrap();
        let first = world.prepared(&mut lane, 1, 0, 2).await;
        let second = world.prepared(&mut lane, 2, 2, 2).await;
        let error = lane.commit(&second).await.unwrap_err();
        assert!(error.to_string().contains("in order"), "{error}");
        assert!(world.seen().await.is_empty());
        let committer = lane.committer();
        let of_first = committer.commit(&first).await.unwrap();
        assert!(matches!(of_first, Outcome::Committed(_)));
        let _proof = commit(&lane, &second).await;
        let again = lane.commit(&first).await.unwrap_err();
        assert!(matches!(again, EngineError::Usage { .. }), "{again}");
    });
}

#[test]
fn a_write_that_is_dropped_writes_nothing_and_loses_nothing() {
    on_each(|world| async move {
        let settings = hapax::ProducerSettings { buffer: 4_096, ..hapax::ProducerSettings::default() };
        let sink = world.builder().producer(settings).exactly_once().unwrap();
        crate::world::recover::<hapax::engine::Known>(&sink, &[]).await.recorded().await.unwrap();
        let mut lane = sink.lane(0).await.unwrap();
        let (mut written, mut dropped) = (0_u64, 0);
        // Nothing leaves the buffer before a write had to wait for room in it.
        let not_leader = Rule::on(ApiKey::Produce).always().error(6);
        let mut full = Some(world.broker().faults().guard(not_leader).unwrap());
        while written < 500 {
            let value = written.to_string();
            let padding = "x".repeat(200);
            let write = lane.write(Record::to("out").key(&padding).value(&value).partition(0));
            match tokio::time::timeout(Duration::ZERO, write).await {
                Ok(done) => {
                    done.unwrap();
                    written += 1;
                }
                Err(_) => {
                    dropped += 1;
                    full.take_if(|refused| refused.fired() > 0);
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            }
        }
        assert!(full.is_none() && dropped > 0, "no write had to wait");
        let handle = loop {
            // A dropped prepare is called again.
            let prepare = lane.prepare(1);
            match tokio::time::timeout(Duration::from_micros(100), prepare).await {
                Ok(prepared) => break prepared.unwrap().unwrap(),
                Err(_) => tokio::task::yield_now().await,
            }
        };
        let _proof = commit(&lane, &handle).await;
        assert_eq!(world.seen().await, (0..500).collect::<Vec<_>>());
    });
}

#[test]
fn a_commit_whose_answer_is_lost_is_committed_once() {
    on_each(|world| async move {
        let sink = world.begun().await;
        let mut lane = sink.lane(0).await.unwrap();
        let handle = world.prepared(&mut lane, 1, 0, 4).await;
        let rule = Rule::on(ApiKey::EndTxn).commit(true).lose_answer(Afterwards::Close);
        let lost = world.broker().faults().guard(rule).unwrap();
        let proof = commit(&lane, &handle).await;
        assert_eq!(lost.fired(), 1);
        lane.recorded(proof);
        let next = world.prepared(&mut lane, 2, 4, 4).await;
        let _proof = commit(&lane, &next).await;
        assert_eq!(world.seen().await, (0..8).collect::<Vec<_>>());
    });
}

/// KAFKA-20734, and the answer to the marker that is written in the coordinator's place is lost: it may land once more when
/// the lane's third epoch from here is open under the very producer epoch that the marker has.
#[test]
fn behind_a_marker_without_an_answer_the_lane_is_recovered_before_it_writes_again() {
    on_each(|world| async move {
        let sink = world.begun().await;
        let mut lane = sink.lane(0).await.unwrap();
        let handle = world.prepared(&mut lane, 1, 0, 4).await;
        let step = |leave_out| Step::LeaveOutMarkers { topic: "out".into(), partition: 0, leave_out };
        world.broker().step(step(true)).unwrap();
        let rule = Rule::on(ApiKey::WriteTxnMarkers).lose_answer(Afterwards::Close);
        let lost = world.broker().faults().guard(rule).unwrap();
        for _ in 0..2 {
            let error = lane.commit(&handle).await.unwrap_err();
            assert_eq!(error.code(), Code::Disturbed, "{error}");
        }
        assert_eq!(lost.fired(), 1);
        world.broker().step(step(false)).unwrap();
        let sink = world.sink();
        let recovered = crate::world::recover(&sink, &[handle]).await;
        recovered.recorded().await.unwrap();
        let mut lane = sink.lane(0).await.unwrap();
        for epoch in 2..=5 {
            let handle = world.prepared(&mut lane, epoch, (epoch - 1) * 4, 4).await;
            let proof = commit(&lane, &handle).await;
            lane.recorded(proof);
        }
        assert_eq!(world.seen().await, (0..20).collect::<Vec<_>>());
    });
}

#[test]
fn a_transaction_that_timed_out_is_said_to_be_aborted_with_its_records() {
    on_each(|world| async move {
        let sink = world.begun().await;
        let mut lane = sink.lane(0).await.unwrap();
        let handle = world.prepared(&mut lane, 1, 0, 4).await;
        world.broker().jump_clock(3_600_000).unwrap();
        let outcome = lane.commit(&handle).await.unwrap();
        let Outcome::Aborted(lost) = outcome else { panic!("{outcome:?}") };
        assert_eq!(lost.records(), 4);
        let offsets: Vec<_> = lost
            .partitions
            .iter()
            .map(|part| (part.partition, part.first_offset, part.last_offset))
            .collect();
        assert_eq!(offsets, [(0, 0, 1), (1, 0, 1)]);
        assert!(world.seen().await.is_empty());
    });
}

#[test]
fn a_commit_that_nobody_answers_is_unknown_and_may_be_tried_again() {
    on_each(|world| async move {
        let sink = world.builder().patience(Duration::from_secs(2)).exactly_once().unwrap();
        crate::world::recover::<hapax::engine::Known>(&sink, &[]).await.recorded().await.unwrap();
        let mut lane = sink.lane(0).await.unwrap();
        let handle = world.prepared(&mut lane, 1, 0, 4).await;
        let rule = |api| Rule::on(api).always().drop_request(Afterwards::Close);
        let commits = world.broker().faults().guard(rule(ApiKey::EndTxn)).unwrap();
        let looks = world.broker().faults().guard(rule(ApiKey::DescribeTransactions)).unwrap();
        let outcome = lane.commit(&handle).await.unwrap();
        assert!(matches!(outcome, Outcome::Unknown(_)), "{outcome:?}");
        assert!(commits.fired() > 0 && looks.fired() > 0);
        drop((commits, looks));
        let _proof = commit(&lane, &handle).await;
        assert_eq!(world.seen().await, (0..4).collect::<Vec<_>>());
    });
}

/// An engine moves its futures between threads.
#[test]
fn futures_are_send() {
    fn is_send<T: Send>(_: impl FnOnce() -> T) {}
    fn check(lane: &'static mut hapax::engine::Lane, sink: &'static hapax::engine::KafkaSink) {
        is_send(|| lane.write(Record::to("out")));
        is_send(|| sink.recover::<hapax::engine::Handle>(&[], &[], 1));
        is_send(|| sink.lane(0));
    }
    fn check_ends(
        lane: &'static mut hapax::engine::Lane,
        handle: &'static hapax::engine::Handle,
        report: hapax::engine::Recovered,
    ) {
        is_send(|| lane.committer());
        is_send(|| report.recorded());
        let committer = lane.committer();
        let commit: Box<dyn Future<Output = _> + Send> =
            Box::new(async move { committer.commit(handle).await });
        drop(commit);
        is_send(|| lane.prepare(1));
    }
    let _ = (check as fn(_, _), check_ends as fn(_, _, _));
}
