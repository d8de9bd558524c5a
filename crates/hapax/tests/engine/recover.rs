//! What a run finds of the one before it.

use crate::world::{World, commit, on_each, recover, settle};
use futures::future::BoxFuture;
use hapax::engine::{EngineError, Handle, KafkaSink, Known, Owner, OwnerError, Record, Standing};
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

/// Two decided epochs, in shards 0 and 1, and an undecided one in shard 2; the process is gone.
async fn left_behind(world: &World) -> (KafkaSink, [Handle; 2]) {
    let sink = world.begun().await;
    let mut decided = Vec::new();
    for shard in 0..2 {
        let mut lane = sink.lane(shard).await.unwrap();
        decided.push(world.prepared(&mut lane, 1, u64::from(shard) * 4, 4).await);
    }
    let mut lane = sink.lane(2).await.unwrap();
    let _undecided = world.prepared(&mut lane, 1, 100, 4).await;
    (sink, decided.try_into().unwrap())
}

#[test]
fn what_was_decided_is_committed_by_the_next_run_and_the_rest_aborted() {
    on_each(|world| async move {
        let (_, decided) = left_behind(&world).await;
        let sink = world.sink();
        assert_eq!(settle(&sink, &decided).await, 1);
        assert_eq!(world.seen().await, (0..8).collect::<Vec<_>>());
        let mut lane = sink.lane(2).await.unwrap();
        let handle = world.prepared(&mut lane, 2, 8, 2).await;
        let _proof = commit(&lane, &handle).await;
        assert_eq!(world.seen().await, (0..10).collect::<Vec<_>>());
    });
}

#[test]
fn a_zombie_can_neither_write_nor_end_anything_that_the_next_run_has_cleared() {
    on_each(|world| async move {
        let sink = world.begun().await;
        let mut lane = sink.lane(0).await.unwrap();
        let undecided = world.prepared(&mut lane, 1, 0, 4).await;
        let next = world.begun().await;
        let _lane = next.lane(0).await.unwrap();
        let outcome = lane.commit(&undecided).await.unwrap();
        assert!(!matches!(outcome, hapax::engine::Outcome::Committed(_)), "{outcome:?}");
        let written = lane.write(Record::to("out").value("9")).await;
        let prepared = lane.prepare(2).await;
        assert!(written.is_err() || prepared.is_err(), "a zombie has written");
        assert!(world.seen().await.is_empty());
    });
}

#[test]
fn several_decided_epochs_of_one_lane_are_committed() {
    on_each(|world| async move {
        let sink = world.begun().await;
        let mut lane = sink.lane(0).await.unwrap();
        let first = world.prepared(&mut lane, 1, 0, 4).await;
        let second = world.prepared(&mut lane, 2, 4, 4).await;
        assert_eq!(settle(&world.sink(), &[second, first]).await, 1);
        assert_eq!(world.seen().await, (0..8).collect::<Vec<_>>());
    });
}

#[test]
fn what_timed_out_is_written_again_and_committed_after_the_engine_has_stored_it() {
    on_each(|world| async move {
        let (_, decided) = left_behind(&world).await;
        world.broker().jump_clock(3_600_000).unwrap();
        let sink = world.sink();
        let report = recover(&sink, &decided).await;
        assert!(!report.is_settled() && report.has_way_back());
        assert!(report.transactions().iter().all(|one| matches!(one.standing, Standing::Rewritten(_))));
        assert!(world.seen().await.is_empty());
        let left = report.left();
        let report = recover(&sink, &left).await;
        assert!(report.is_settled(), "{report:?}");
        report.recorded().await.unwrap();
        assert_eq!(world.seen().await, (0..8).collect::<Vec<_>>());
        let mut lane = sink.lane(0).await.unwrap();
        let handle = world.prepared(&mut lane, 2, 8, 2).await;
        let _proof = commit(&lane, &handle).await;
    });
}

#[test]
fn without_rewrite_the_report_names_what_is_lost_and_leaves_the_way_back() {
    on_each(|world| async move {
        let (_, decided) = left_behind(&world).await;
        world.abort(&decided[0]).await;
        let sink = world.builder().rewrite(false).exactly_once().unwrap();
        let report = recover(&sink, &decided).await;
        let standings: Vec<_> = report.transactions().iter().map(|one| &one.standing).collect();
        assert!(matches!(standings[..], [Standing::Aborted(_), Standing::Open(_)]), "{report:?}");
        assert!(report.has_way_back() && !report.is_settled());
        let [lost] = &report.lost()[..] else { panic!("{report:?}") };
        assert_eq!((lost.records(), lost.partitions.len()), (4, 2));
        let error = report.recorded().await.unwrap_err();
        assert!(matches!(error, EngineError::Usage { .. }), "{error}");
        // Back to the checkpoint before: nothing is handed over, and everything is aborted.
        recover::<Known>(&sink, &[]).await.recorded().await.unwrap();
        assert!(world.seen().await.is_empty());
        let mut lane = sink.lane(1).await.unwrap();
        let handle = world.prepared(&mut lane, 1, 0, 8).await;
        let _proof = commit(&lane, &handle).await;
        assert_eq!(world.seen().await, (0..8).collect::<Vec<_>>());
    });
}

/// Written again it would stand behind the later epoch, whose records are in the partitions already.
#[test]
fn an_aborted_epoch_in_front_of_a_decided_one_is_reported_with_the_reason_and_never_written_behind_it() {
    on_each(|world| async move {
        let sink = world.begun().await;
        let mut lane = sink.lane(0).await.unwrap();
        let first = world.prepared(&mut lane, 1, 0, 4).await;
        let second = world.prepared(&mut lane, 2, 4, 4).await;
        world.abort(&first).await;
        for later_is_committed in [false, true] {
            if later_is_committed {
                world.end(&second, true).await;
            }
            let report = recover(&world.sink(), &[first.clone(), second.clone()]).await;
            let standings: Vec<_> = report.transactions().iter().map(|one| &one.standing).collect();
            let [Standing::Aborted(why), later] = standings[..] else { panic!("{report:?}") };
            assert!(why.contains(&second.transactional_id.to_string()) && why.contains("order"), "{why}");
            assert_eq!(why.contains("is committed"), later_is_committed, "{why}");
            assert_eq!(matches!(later, Standing::Committed), later_is_committed, "{report:?}");
            assert_eq!(report.has_way_back(), !later_is_committed);
            let [lost] = &report.lost()[..] else { panic!("{report:?}") };
            assert_eq!((lost.records(), &lost.why), (4, why));
        }
        // Given up on purpose: the rest goes on in its order.
        assert_eq!(settle(&world.sink(), &[second]).await, 1);
        assert_eq!(world.seen().await, (4..8).collect::<Vec<_>>());
    });
}

#[test]
fn with_one_lane_committed_there_is_no_way_back_and_the_lost_records_are_named() {
    on_each(|world| async move {
        let sink = world.begun().await;
        let mut lanes = [sink.lane(0).await.unwrap(), sink.lane(1).await.unwrap()];
        let done = world.prepared(&mut lanes[0], 1, 0, 4).await;
        let lost = world.prepared(&mut lanes[1], 1, 4, 4).await;
        let _proof = commit(&lanes[0], &done).await;
        world.abort(&lost).await;
        let sink = world.builder().rewrite(false).exactly_once().unwrap();
        let report = recover(&sink, &[done, lost.clone()]).await;
        assert!(!report.has_way_back());
        assert_eq!(report.lost().len(), 1);
        assert_eq!(report.left(), [Known::from(lost)]);
        // Given up on purpose: handed over no more.
        recover::<Known>(&sink, &[]).await.recorded().await.unwrap();
        assert_eq!(world.seen().await, (0..4).collect::<Vec<_>>());
    });
}

/// Says for a while that it holds, and counts.
struct Doubtful {
    asked: Arc<AtomicUsize>,
    holds_for: usize,
}

impl Owner for Doubtful {
    fn generation(&self) -> u64 {
        7
    }

    fn holds(&self) -> BoxFuture<'_, Result<bool, OwnerError>> {
        let asked = self.asked.fetch_add(1, Ordering::Relaxed);
        Box::pin(std::future::ready(Ok(asked < self.holds_for)))
    }
}

#[test]
fn a_run_that_is_not_the_newest_ends_before_it_touches_another_id() {
    on_each(|world| async move {
        let (_old, decided) = left_behind(&world).await;
        let sink = world.sink();
        let asked = Arc::new(AtomicUsize::new(0));
        let owner = Doubtful { asked: asked.clone(), holds_for: 0 };
        let error = sink.recover(&decided, &sink.ids(0..3), owner).await.unwrap_err();
        assert!(matches!(error, EngineError::Superseded { generation: 7, .. }), "{error}");
        assert!(asked.load(Ordering::Relaxed) > 0);
        assert!(world.seen().await.is_empty(), "what was decided is still the newer run's to commit");
        assert_eq!(settle(&world.sink(), &decided).await, 1);
    });
}

#[test]
fn an_older_generation_is_refused_where_a_newer_one_was_seen() {
    on_each(|world| async move {
        let sink = world.sink();
        let none: [Known; 0] = [];
        sink.recover(&none, &sink.ids(0..1), 5).await.unwrap().recorded().await.unwrap();
        let error = sink.recover(&none, &sink.ids(0..1), 4).await.unwrap_err();
        assert!(error.to_string().contains("run 5"), "{error}");
    });
}

#[test]
fn a_lane_is_opened_once_and_only_when_its_ids_are_cleared() {
    on_each(|world| async move {
        let sink = world.sink();
        assert!(matches!(sink.lane(0).await.unwrap_err(), EngineError::Usage { .. }));
        let sink = world.begun().await;
        sink.lane(0).await.unwrap();
        assert!(matches!(sink.lane(0).await.unwrap_err(), EngineError::Usage { .. }));
        assert!(matches!(sink.lane(3).await.unwrap_err(), EngineError::Usage { .. }));
    });
}

#[test]
fn ids_of_any_shape_are_cleared() {
    on_each(|world| async move {
        let foreign = "arroyo-id-job_x-op 7/0".to_owned();
        let config = hapax_kafka::ClientConfig::new(
            hapax_kafka::ClientConfig::parse_bootstrap(&world.bootstrap).unwrap(),
        );
        let host = hapax::Host::real();
        let client = hapax_kafka::Client::connect(host.clone(), config).await.unwrap();
        let deadline = hapax_host::Deadline::after(host.now(), Some(Duration::from_secs(30)));
        let init = || {
            hapax_kafka::transaction::init_producer_id(
                &client,
                &foreign,
                hapax_kafka::transaction::Lifetime::Millis(60_000),
                None,
                deadline,
            )
        };
        let before = init().await.unwrap();
        let sink = world.sink();
        let none: [Known; 0] = [];
        let ids = [sink.ids(0..1), vec![foreign.clone()]].concat();
        sink.recover(&none, &ids, 1).await.unwrap().recorded().await.unwrap();
        let after = init().await.unwrap();
        assert_eq!(after.producer_epoch.0, before.producer_epoch.0 + 2, "it was fenced once between");
    });
}

#[test]
fn handles_of_another_job_are_not_touched() {
    on_each(|mut world| async move {
        let (_old, decided) = left_behind(&world).await;
        world.job = "payments".into();
        let sink = world.sink();
        let error = sink.recover(&decided, &sink.ids(0..3), 1).await.unwrap_err();
        assert!(error.to_string().contains("another job"), "{error}");
        world.job = "orders".into();
        assert_eq!(settle(&world.sink(), &decided).await, 1);
    });
}

/// The engine dies at any moment of its recovery, again and again, with one transaction aborted and one open; what it had
/// stored by then is all that it has.
#[test]
fn a_recovery_that_dies_at_any_moment_ends_in_the_same_place() {
    on_each(|world| async move {
        let (_, decided) = left_behind(&world).await;
        world.abort(&decided[0]).await;
        let mut stored: Vec<Known> = decided.iter().cloned().map(Known::from).collect();
        let mut deaths = 0;
        for patience_ms in (1..).step_by(3) {
            let sink = world.sink();
            let life = async {
                let report = recover(&sink, &stored).await;
                let is_settled = report.is_settled();
                (is_settled, report.left(), report)
            };
            let Ok((is_settled, left, report)) =
                tokio::time::timeout(Duration::from_millis(patience_ms), life).await
            else {
                deaths += 1;
                continue;
            };
            stored = left;
            if is_settled {
                report.recorded().await.unwrap();
                break;
            }
        }
        assert!(deaths > 0, "it never died");
        assert_eq!(world.seen().await, (0..8).collect::<Vec<_>>());
    });
}

#[test]
fn bytes_of_a_handle_are_read_by_the_next_run() {
    on_each(|world| async move {
        let sink = world.begun().await;
        let mut lane = sink.lane(0).await.unwrap();
        let bytes = world.prepared(&mut lane, 1, 0, 4).await.to_bytes();
        drop((lane, sink));
        let handle = Handle::from_bytes(&bytes).unwrap();
        assert_eq!(settle(&world.sink(), &[handle]).await, 1);
        assert_eq!(world.seen().await, (0..4).collect::<Vec<_>>());
    });
}
