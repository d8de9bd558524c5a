//! What clients see of the coordinator, through the machine.

use super::AppendFault;
use crate::{
    state::{
        Code, Machine, NodeId, Settings, Step,
        catalog::TRANSACTION_STATE,
        probe::{Probe, Produced, name},
    },
    wire::{Request, Response},
};
use bytes::BytesMut;
use kafka_protocol::{
    messages::{
        AddPartitionsToTxnRequest, DescribeTransactionsRequest, EndTxnRequest, FindCoordinatorRequest,
        InitProducerIdRequest, ListTransactionsRequest, TransactionalId, WriteTxnMarkersRequest,
        add_partitions_to_txn_request::{AddPartitionsToTxnTopic, AddPartitionsToTxnTransaction},
        describe_transactions_response::TransactionState,
        write_txn_markers_request::{WritableTxnMarker, WritableTxnMarkerTopic},
    },
    protocol::StrBytes,
};

const NONE: i16 = 0;

fn tid(id: &str) -> TransactionalId {
    TransactionalId(StrBytes::from_string(id.to_owned()))
}

/// Error, producer id and epoch of an answer.
type Told = (i16, i64, i16);

impl Probe {
    /// A topic `t`, and a coordinator that is there.
    fn with_coordinator(settings: Settings) -> Self {
        let mut probe = Self::with(settings);
        probe.topic("t", 2, &[]);
        assert_eq!(probe.find("x"), 15, "the topic of the coordinators is created");
        assert_eq!(probe.find("x"), NONE);
        probe
    }

    fn find(&mut self, id: &str) -> i16 {
        let request = FindCoordinatorRequest::default()
            .with_key_type(1)
            .with_coordinator_keys(vec![StrBytes::from_string(id.to_owned())]);
        let Response::FindCoordinator(response) = self.ask(4, request) else { panic!() };
        response.coordinators[0].error_code
    }

    fn init(&mut self, version: i16, had: Option<(i64, i16)>) -> Told {
        let (id, epoch) = had.unwrap_or((-1, -1));
        let request = InitProducerIdRequest::default()
            .with_transactional_id(Some(tid("x")))
            .with_transaction_timeout_ms(10_000)
            .with_producer_id(id.into())
            .with_producer_epoch(epoch);
        self.init_with(version, request)
    }

    fn init_with(&mut self, version: i16, request: InitProducerIdRequest) -> Told {
        let Response::InitProducerId(response) = self.ask(version, request) else { panic!() };
        (response.error_code, response.producer_id.0, response.producer_epoch)
    }

    fn end(&mut self, version: i16, (id, epoch): (i64, i16), commit: bool) -> Told {
        let request = EndTxnRequest::default()
            .with_transactional_id(tid("x"))
            .with_producer_id(id.into())
            .with_producer_epoch(epoch)
            .with_committed(commit);
        let Response::EndTxn(response) = self.ask(version, request) else { panic!() };
        (response.error_code, response.producer_id.0, response.producer_epoch)
    }

    /// AddPartitionsToTxn 3 for partition 0 of a topic, and of `t`.
    fn add(&mut self, version: i16, (id, epoch): (i64, i16), topics: &[&str]) -> Vec<i16> {
        let topics = topics
            .iter()
            .map(|topic| AddPartitionsToTxnTopic::default().with_name(name(topic)).with_partitions(vec![0]));
        let request = AddPartitionsToTxnRequest::default()
            .with_v3_and_below_transactional_id(tid("x"))
            .with_v3_and_below_producer_id(id.into())
            .with_v3_and_below_producer_epoch(epoch)
            .with_v3_and_below_topics(topics.collect());
        let Response::AddPartitionsToTxn(response) = self.ask(version, request) else { panic!() };
        let codes = response.results_by_topic_v3_and_below.iter();
        codes.map(|topic| topic.results_by_partition[0].partition_error_code).collect()
    }

    fn verify(&mut self, producer: (i64, i16)) -> i16 {
        self.ask_batched(producer, true)
    }

    /// AddPartitionsToTxn in its batched form, for partition 0 of `t`.
    fn ask_batched(&mut self, (id, epoch): (i64, i16), only_verify: bool) -> i16 {
        let topic = AddPartitionsToTxnTopic::default().with_name(name("t")).with_partitions(vec![0]);
        let asked = AddPartitionsToTxnTransaction::default()
            .with_transactional_id(tid("x"))
            .with_producer_id(id.into())
            .with_producer_epoch(epoch)
            .with_verify_only(only_verify)
            .with_topics(vec![topic]);
        let request = AddPartitionsToTxnRequest::default().with_transactions(vec![asked]);
        let Response::AddPartitionsToTxn(response) = self.ask(5, request) else { panic!() };
        response.results_by_transaction[0].topic_results[0].results_by_partition[0].partition_error_code
    }

    fn describe(&mut self) -> TransactionState {
        let request = DescribeTransactionsRequest::default().with_transactional_ids(vec![tid("x")]);
        let Response::DescribeTransactions(response) = self.ask(0, request) else { panic!() };
        response.transaction_states[0].clone()
    }

    fn phase(&mut self) -> String {
        self.describe().transaction_state.to_string()
    }

    /// Produces one record of a V2 transaction.
    fn write(&mut self, (id, epoch): (i64, i16), sequence: i32) -> i16 {
        let batch = Produced { transactional: true, ..Produced::idempotent(id, epoch, sequence, 1) };
        self.produce_in(12, "t", "x", batch.bytes()).error_code
    }

    fn committed_end(&mut self) -> i64 {
        self.fetch("t", 0, true).last_stable_offset
    }
}

fn coordinator() -> Probe {
    Probe::with_coordinator(Settings::default())
}

fn at_level(transaction_version: i16) -> Probe {
    Probe::with_coordinator(Settings { transaction_version, ..Settings::default() })
}

#[test]
fn a_coordinator_goes_with_its_topic_and_comes_back_knowing_nothing() {
    let mut probe = coordinator();
    assert_eq!(probe.init(5, None), (NONE, 0, 0));
    assert_eq!(probe.write((0, 0), 0), NONE);
    probe.delete(TRANSACTION_STATE);
    assert_eq!(probe.end(5, (0, 0), true).0, 16);
    assert_eq!(probe.init(5, None).0, 16);
    assert_eq!(probe.add(3, (0, 0), &["t"]), [16]);
    assert_eq!(probe.describe().error_code, 16);
    assert_eq!([probe.find("x"), probe.find("x")], [15, NONE]);
    assert_eq!(probe.end(5, (0, 0), true).0, 49);
    assert_eq!(probe.init(5, None), (NONE, 1, 0), "no producer id is given out twice");
}

#[test]
fn a_commit_of_v2_is_answered_before_its_markers_and_seen_after_them() {
    let mut probe = coordinator();
    assert_eq!(probe.init(5, None), (NONE, 0, 0));
    assert_eq!(probe.write((0, 0), 0), NONE);
    assert_eq!(probe.phase(), "Ongoing");
    assert_eq!(probe.end(5, (0, 0), true), (NONE, 0, 1), "the next epoch comes with the answer");
    assert_eq!(probe.phase(), "PrepareCommit");
    assert_eq!(probe.committed_end(), 0);
    for (producer, commit) in [((0, 0), true), ((0, 0), false), ((9, 7), true)] {
        assert_eq!(probe.end(5, producer, commit), (51, -1, -1), "whoever asks is told to come again");
    }
    assert_eq!(probe.init(5, None).0, 51);
    assert_eq!(probe.add(3, (0, 1), &["t"]), [51]);
    probe.pass(3);
    assert_eq!(probe.phase(), "CompleteCommit");
    assert_eq!(probe.committed_end(), 2);
    assert_eq!(probe.end(5, (0, 0), true), (NONE, 0, 1), "a retry");
    assert_eq!(probe.end(5, (0, 0), false).0, 48);
    assert_eq!(probe.end(5, (0, 1), true).0, 48, "nothing was begun at the next epoch");
}

#[test]
fn markers_wait_as_long_as_they_are_held() {
    let mut probe = coordinator();
    probe.init(5, None);
    probe.write((0, 0), 0);
    probe.act(Step::HoldMarkers(true));
    assert_eq!(probe.end(5, (0, 0), true).0, NONE);
    probe.pass(60_000);
    assert_eq!(probe.describe().topics[0].partitions, [0], "still to be marked");
    assert_eq!(probe.end(5, (0, 0), true).0, 51);
    probe.act(Step::HoldMarkers(false));
    assert_eq!((probe.phase().as_str(), probe.committed_end()), ("CompleteCommit", 2));
}

#[test]
fn a_partition_that_is_left_out_holds_a_complete_transaction_open() {
    let mut probe = coordinator();
    probe.init(5, None);
    probe.write((0, 0), 0);
    let left_out = |leave_out| Step::LeaveOutMarkers { topic: "t".into(), partition: 0, leave_out };
    probe.act(left_out(true));
    assert_eq!(probe.end(5, (0, 0), true).0, NONE);
    probe.pass(60_000);
    assert_eq!((probe.phase().as_str(), probe.committed_end()), ("CompleteCommit", 0));
    probe.act(left_out(false));
    probe.pass(60_000);
    assert_eq!(probe.committed_end(), 0, "nobody writes it any more");
}

#[test]
fn an_abort_of_v2_needs_no_transaction() {
    let mut probe = coordinator();
    probe.init(5, None);
    assert_eq!(probe.end(5, (0, 0), true).0, 48, "there is nothing to commit");
    assert_eq!(probe.end(5, (0, 0), false), (NONE, 0, 1));
    assert_eq!(probe.phase(), "CompleteAbort");
    assert_eq!(probe.end(5, (0, 0), false), (NONE, 0, 1), "a retry");
    assert_eq!(probe.end(5, (0, 1), false), (NONE, 0, 2), "the next one");
}

#[test]
fn v1_keeps_its_epoch_and_answers_every_old_version() {
    let mut probe = at_level(1);
    assert_eq!(probe.init(0, None), (NONE, 0, 0));
    for version in 0..=4 {
        assert_eq!(probe.add(version.min(3), (0, 0), &["t"]), [NONE]);
        let commit = version % 2 == 0;
        assert_eq!(probe.end(version, (0, 0), commit), (NONE, -1, -1));
        assert_eq!(probe.end(version, (0, 0), commit).0, 51);
        probe.pass(3);
        assert_eq!(probe.end(version, (0, 0), commit).0, NONE);
        assert_eq!(probe.end(version, (0, 0), !commit).0, 48);
    }
}

#[test]
fn fencing_has_the_code_that_the_version_knows() {
    let mut probe = at_level(1);
    probe.init(5, None);
    probe.init(5, None);
    assert_eq!(probe.end(1, (0, 0), true).0, 47);
    assert_eq!(probe.end(2, (0, 0), true).0, 90);
    assert_eq!(probe.add(1, (0, 0), &["t"]), [47]);
    assert_eq!(probe.add(2, (0, 0), &["t"]), [90]);
    assert_eq!(probe.init(3, Some((0, 7))).0, 47);
    assert_eq!(probe.init(4, Some((0, 7))).0, 90);
    assert_eq!(probe.end(4, (7, 1), true).0, 49);
}

#[test]
fn an_unknown_id_has_no_producer_to_match() {
    let mut probe = coordinator();
    assert_eq!(probe.end(5, (0, 0), true).0, 49);
    assert_eq!(probe.add(3, (0, 0), &["t"]), [49]);
    assert_eq!(probe.describe().error_code, 105);
    assert_eq!(probe.init(5, Some((0, -1))).0, 42);
}

#[test]
fn time_outs_out_of_bounds_are_refused() {
    let mut probe = coordinator();
    for (timeout, code) in [(0, 50), (900_001, 50), (900_000, NONE), (1, NONE)] {
        let request = InitProducerIdRequest::default()
            .with_transactional_id(Some(tid("x")))
            .with_transaction_timeout_ms(timeout)
            .with_producer_id((-1).into())
            .with_producer_epoch(-1);
        assert_eq!(probe.init_with(5, request).0, code, "{timeout}");
    }
}

#[test]
fn an_open_transaction_is_aborted_for_whoever_initializes() {
    for (level, version) in [(2, 5), (1, 4)] {
        let mut probe = at_level(level);
        probe.init(5, None);
        probe.add(3, (0, 0), &["t"]);
        assert_eq!(probe.init(version, None), (51, -1, -1));
        assert_eq!(probe.phase(), "PrepareAbort");
        assert_eq!(probe.init(version, None).0, 51);
        probe.pass(3);
        assert_eq!(probe.init(version, None), (NONE, 0, 2), "one epoch for the abort, one for the client");
    }
}

#[test]
fn a_stale_client_that_initializes_aborts_the_transaction_of_the_new_one() {
    let mut probe = coordinator();
    probe.init(5, None);
    probe.init(5, None);
    probe.write((0, 1), 0);
    assert_eq!(probe.init(5, Some((0, 0))).0, 51, "the epoch is not compared while a transaction is open");
    assert_eq!(probe.phase(), "PrepareAbort");
}

#[test]
fn after_a_time_out_v2_answers_as_after_a_clients_abort() {
    let mut probe = coordinator();
    probe.init(5, None);
    probe.write((0, 0), 0);
    probe.pass(10_000);
    assert_eq!(probe.phase(), "Ongoing", "not yet more than the time-out");
    probe.pass(200);
    probe.pass(3);
    let described = probe.describe();
    assert_eq!((described.transaction_state.as_str(), described.producer_epoch), ("CompleteAbort", 1));
    assert_eq!(probe.end(5, (0, 0), true).0, 48);
    assert_eq!(probe.end(5, (0, 0), false), (NONE, 0, 1), "and the zombie is let in again");
    assert_eq!(probe.end(4, (0, 0), true).0, 90);
}

#[test]
fn after_a_time_out_v1_fences() {
    let mut probe = at_level(1);
    probe.init(4, None);
    probe.add(3, (0, 0), &["t"]);
    probe.pass(10_400);
    probe.pass(3);
    assert_eq!(probe.describe().producer_epoch, 1);
    assert_eq!(probe.end(4, (0, 0), true).0, 90);
    assert_eq!(probe.init(4, Some((0, 0))).0, 90);
    assert_eq!(probe.init(4, None), (NONE, 0, 2));
}

#[test]
fn who_initializes_under_v1_sees_when_the_last_transaction_began() {
    for (level, remembered) in [(0, true), (1, true), (2, false)] {
        let mut probe = at_level(level);
        probe.init(4, None);
        probe.add(3, (0, 0), &["t"]);
        let began = probe.describe().transaction_start_time_ms;
        probe.end(4, (0, 0), true);
        probe.pass(3);
        probe.init(4, None);
        let seen = if remembered { began } else { -1 };
        assert_eq!(probe.describe().transaction_start_time_ms, seen, "level {level}");
    }
}

#[test]
fn a_machine_that_is_idle_sleeps() {
    let mut probe = coordinator();
    assert_eq!(probe.machine.next_wake(), None);
    probe.init(5, None);
    let expiry = probe.machine.next_wake().unwrap() - probe.now;
    assert!((7 * 24 * 3_600_000..=7 * 24 * 3_600_000 + 1_000).contains(&expiry), "{expiry}");
}

#[test]
fn an_id_that_nobody_uses_is_forgotten() {
    let settings = Settings { id_expiration_ms: 5_000, ..Settings::default() };
    let mut probe = Probe::with_coordinator(settings);
    probe.init(5, None);
    probe.write((0, 0), 0);
    probe.end(5, (0, 0), true);
    probe.pass(3);
    probe.pass(6_100);
    assert_eq!(probe.describe().error_code, 105);
    assert_eq!(probe.end(5, (0, 0), true).0, 49, "the outcome is forgotten with it");
    assert_eq!(probe.init(5, None), (NONE, 1, 0), "as new, under a new producer id");
    probe.write((1, 0), 0);
    probe.act(Step::ExpireTransactionalIds);
    assert_eq!(probe.phase(), "Ongoing", "an open transaction keeps its id");
}

#[test]
fn after_the_last_epoch_comes_a_new_producer_id() {
    let mut probe = coordinator();
    // Epoch by epoch, as a client gets there.
    while probe.init(5, None).2 < i16::MAX - 1 {}
    let last = (0, i16::MAX - 1);
    assert_eq!(probe.write(last, 0), NONE);
    assert_eq!(probe.end(5, last, true), (NONE, 1, 0), "told before the markers are written");
    assert_eq!(probe.describe().producer_epoch, i16::MAX);
    probe.pass(3);
    assert_eq!(probe.end(5, last, true), (NONE, 1, 0));
    probe.act(Step::MoveCoordinator { transactional_id: "x".to_owned() });
    assert_eq!(probe.end(5, last, true).0, 14);
    probe.pass(20);
    assert_eq!(probe.end(5, last, true), (NONE, 1, 0), "the producer id before survives (KAFKA-20310)");
    assert_eq!(probe.write((1, 0), 0), NONE);
}

#[test]
fn a_time_out_at_the_last_epoch_changes_the_producer_id_too() {
    let mut probe = coordinator();
    probe.init(5, None);
    probe.machine.stored_mut("x").unwrap().producer.epoch = i16::MAX - 1;
    let last = (0, i16::MAX - 1);
    probe.write(last, 0);
    probe.pass(10_400);
    probe.pass(3);
    assert_eq!(probe.end(5, last, false), (NONE, 1, 0), "KAFKA-20090");
    assert_eq!(probe.init(5, Some(last)), (NONE, 1, 0));
}

#[test]
fn initializing_at_the_last_epoch_changes_the_producer_id() {
    let mut probe = coordinator();
    probe.init(5, None);
    probe.machine.stored_mut("x").unwrap().producer.epoch = i16::MAX - 1;
    let last = (0, i16::MAX - 1);
    assert_eq!(probe.init(5, Some((0, 3))).0, -1, "Kafka throws where it should fence");
    assert_eq!(probe.init(5, Some(last)), (NONE, 1, 0));
    assert_eq!(probe.init(5, Some(last)), (NONE, 1, 0), "a retry");
    assert_eq!(probe.init(5, None), (NONE, 1, 1));
}

#[test]
fn a_coordinator_that_moved_finishes_what_was_decided() {
    let mut probe = Probe::with_coordinator(Settings { nodes: 2, ..Settings::default() });
    let led = |probe: &Probe| probe.machine.shard("x", None).map(|shard| shard.node);
    probe.node = led(&probe).unwrap();
    probe.init(5, None);
    assert_eq!(probe.add(3, (0, 0), &["t"]), [NONE]);
    probe.act(Step::HoldMarkers(true));
    assert_eq!(probe.end(5, (0, 0), true).0, NONE);
    probe.act(Step::MoveCoordinator { transactional_id: "x".to_owned() });
    assert_eq!(probe.end(5, (0, 0), true).0, 16);
    probe.node = NodeId(3 - probe.node.0);
    assert_eq!(probe.end(5, (0, 0), true).0, 14);
    assert_eq!(probe.init(5, None).0, 14);
    probe.pass(20);
    assert_eq!(probe.phase(), "PrepareCommit");
    assert_eq!(probe.end(5, (0, 0), true).0, 51);
    probe.act(Step::HoldMarkers(false));
    probe.pass(3);
    assert_eq!(probe.end(5, (0, 0), true), (NONE, 0, 1));
}

#[test]
fn a_crash_forgets_what_was_in_memory_only() {
    let mut probe = coordinator();
    probe.init(5, None);
    assert_eq!(probe.init(5, Some((0, 0))), (NONE, 0, 1));
    probe.act(Step::Crash);
    probe.pass(20);
    assert_eq!(probe.init(5, Some((0, 0))).0, 90, "the epoch before is not in the record (KAFKA-20357)");
    assert_eq!(probe.init(5, Some((0, 1))), (NONE, 0, 2));
    let fresh = InitProducerIdRequest::default()
        .with_transactional_id(None)
        .with_producer_id((-1).into())
        .with_producer_epoch(-1);
    assert_eq!(probe.init_with(5, fresh), (NONE, 1_000, 0), "the rest of the block of ids is lost");
}

#[test]
fn a_commit_that_was_told_to_have_failed_may_win_after_a_move() {
    let mut probe = coordinator();
    probe.init(5, None);
    probe.write((0, 0), 0);
    let fail = |written| Step::FailAppend {
        transactional_id: "x".to_owned(),
        fault: AppendFault { written, code: 15 },
    };
    probe.act(fail(false));
    assert_eq!(probe.end(5, (0, 0), true).0, 15);
    probe.act(fail(true));
    assert_eq!(probe.end(5, (0, 0), true), (15, -1, -1));
    assert_eq!(probe.phase(), "Ongoing", "in memory nothing has happened");
    probe.act(Step::MoveCoordinator { transactional_id: "x".to_owned() });
    probe.pass(30);
    assert_eq!(probe.phase(), "CompleteCommit", "the record says otherwise");
    assert_eq!(probe.end(5, (0, 0), true), (NONE, 0, 1));
}

#[test]
fn a_fence_of_v1_that_could_not_be_written_raises_the_epoch_once() {
    let mut probe = at_level(1);
    probe.init(4, None);
    probe.add(3, (0, 0), &["t"]);
    let fault = AppendFault { written: false, code: 15 };
    probe.act(Step::FailAppend { transactional_id: "x".to_owned(), fault });
    assert_eq!(probe.init(4, None).0, 15);
    assert_eq!(probe.end(4, (0, 0), true).0, 90);
    assert_eq!(probe.init(4, None).0, 51);
    probe.pass(3);
    assert_eq!(probe.init(4, None), (NONE, 0, 2));
}

#[test]
fn a_cluster_at_level_0_adds_partitions_in_their_batched_form_too() {
    let mut probe = at_level(0);
    probe.init(4, None);
    assert_eq!(probe.ask_batched((0, 0), false), NONE);
    assert_eq!(probe.verify((0, 0)), NONE);
    assert_eq!(probe.end(4, (0, 0), true).0, NONE);
}

#[test]
fn v2_on_a_cluster_at_level_0_blocks_the_id_until_it_is_loaded_again() {
    let mut probe = at_level(0);
    probe.init(5, None);
    probe.add(3, (0, 0), &["t"]);
    assert_eq!(probe.end(5, (0, 0), true), (35, -1, -1));
    assert_eq!(probe.end(4, (0, 0), true).0, 51);
    assert_eq!(probe.init(5, None).0, 51);
    probe.act(Step::MoveCoordinator { transactional_id: "x".to_owned() });
    probe.pass(20);
    assert_eq!(probe.end(4, (0, 0), true).0, NONE);
}

#[test]
fn one_unusable_partition_keeps_all_others_out() {
    let mut probe = coordinator();
    probe.init(5, None);
    assert_eq!(probe.add(3, (0, 0), &["t", "nowhere"]), [55, 3]);
    assert_eq!(probe.add(3, (0, 0), &["__transaction_state", "t"]), [29, 55]);
    assert_eq!(probe.verify((0, 0)), 120);
    assert_eq!(probe.add(3, (0, 0), &["t"]), [NONE]);
    assert_eq!(probe.verify((0, 0)), NONE);
    assert_eq!(probe.verify((0, 9)), 90);
    assert_eq!(probe.verify((1, 0)), 49);
}

#[test]
fn a_produce_of_v1_is_verified_and_one_of_v2_adds_its_partition() {
    let mut probe = coordinator();
    probe.init(5, None);
    let batch = Produced { transactional: true, ..Produced::idempotent(0, 0, 0, 1) }.bytes();
    assert_eq!(probe.produce_in(10, "t", "x", batch.clone()).error_code, 48);
    assert_eq!(probe.produce_in(11, "t", "x", batch.clone()).error_code, 120);
    assert_eq!(probe.phase(), "Empty");
    assert_eq!(probe.produce_in(12, "t", "x", batch).error_code, NONE);
    assert_eq!(probe.phase(), "Ongoing");
}

#[test]
fn listing_filters_by_state_producer_duration_and_pattern() {
    let mut probe = coordinator();
    probe.init(5, None);
    probe.write((0, 0), 0);
    probe.pass(50);
    let mut list = |request: ListTransactionsRequest| {
        let Response::ListTransactions(response) = probe.ask(2, request) else { panic!() };
        let unknown: Vec<_> = response.unknown_state_filters.iter().map(ToString::to_string).collect();
        (response.error_code, response.transaction_states.len(), unknown)
    };
    let base = || ListTransactionsRequest::default().with_duration_filter(-1);
    let states =
        |names: &[&'static str]| names.iter().map(|name| StrBytes::from_static_str(name)).collect::<Vec<_>>();
    let pattern = |text: &'static str| Some(StrBytes::from_static_str(text));
    assert_eq!(list(base()), (NONE, 1, vec![]));
    assert_eq!(list(base().with_state_filters(states(&["Ongoing", "Dead"]))), (NONE, 1, vec![]));
    assert_eq!(list(base().with_state_filters(states(&["Empty"]))).1, 0);
    assert_eq!(list(base().with_state_filters(states(&["ongoing"]))), (NONE, 0, vec!["ongoing".to_owned()]));
    assert_eq!(list(base().with_producer_id_filters(vec![7.into()])).1, 0);
    assert_eq!(list(base().with_producer_id_filters(vec![0.into()])).1, 1);
    assert_eq!(list(base().with_duration_filter(49)).1, 1);
    assert_eq!(list(base().with_duration_filter(50)).1, 0);
    assert_eq!(list(base().with_transactional_id_pattern(pattern("x|y"))).1, 1);
    assert_eq!(list(base().with_transactional_id_pattern(pattern("x."))).1, 0);
    assert_eq!(list(base().with_transactional_id_pattern(pattern("("))).0, 128);
}

#[test]
fn a_marker_that_somebody_wrote_by_hand_does_not_tell_the_coordinator() {
    let mut probe = coordinator();
    probe.init(5, None);
    probe.write((0, 0), 0);
    let mark = |epoch: i16, partitions: Vec<i32>| {
        let topic = WritableTxnMarkerTopic::default().with_name(name("t")).with_partition_indexes(partitions);
        let marker = WritableTxnMarker::default()
            .with_producer_id(0.into())
            .with_producer_epoch(epoch)
            .with_transaction_result(false)
            .with_topics(vec![topic]);
        WriteTxnMarkersRequest::default().with_markers(vec![marker])
    };
    for (epoch, expected) in [(-1, [-1, 3]), (0, [NONE, 3])] {
        let Response::WriteTxnMarkers(response) = probe.ask(1, mark(epoch, vec![0, 9])) else { panic!() };
        let codes: Vec<_> = response.markers[0].topics[0].partitions.iter().map(|p| p.error_code).collect();
        assert_eq!(codes, expected);
    }
    assert_eq!((probe.phase().as_str(), probe.committed_end()), ("Ongoing", 2));
}

#[test]
fn a_partition_that_has_seen_a_later_epoch_keeps_the_transaction_prepared() {
    let mut probe = coordinator();
    probe.init(5, None);
    probe.write((0, 0), 0);
    let topic = WritableTxnMarkerTopic::default().with_name(name("t")).with_partition_indexes(vec![0]);
    let later = WritableTxnMarker::default()
        .with_producer_id(0.into())
        .with_producer_epoch(9)
        .with_topics(vec![topic]);
    probe.ask(1, WriteTxnMarkersRequest::default().with_markers(vec![later]));
    assert_eq!(probe.end(5, (0, 0), true).0, NONE);
    probe.pass(60_000);
    assert_eq!((probe.phase().as_str(), probe.end(5, (0, 0), true).0), ("PrepareCommit", 51));
}

#[test]
fn a_partition_that_is_gone_needs_no_marker() {
    let mut probe = coordinator();
    probe.init(5, None);
    probe.write((0, 0), 0);
    probe.machine.catalog.delete("t");
    assert_eq!(probe.end(5, (0, 0), true).0, NONE);
    probe.pass(3);
    assert_eq!(probe.phase(), "CompleteCommit");
}

#[test]
fn two_phase_commit_is_refused_unless_it_is_switched_on() {
    let ask = |enable, keep| {
        InitProducerIdRequest::default()
            .with_transactional_id(Some(tid("x")))
            .with_transaction_timeout_ms(1)
            .with_producer_id((-1).into())
            .with_producer_epoch(-1)
            .with_enable_2_pc(enable)
            .with_keep_prepared_txn(keep)
    };
    let mut probe = coordinator();
    assert_eq!(probe.init_with(6, ask(true, false)).0, 53);
    assert_eq!(probe.init_with(6, ask(false, true)).0, 35);
    let mut probe = Probe::with_coordinator(Settings { two_phase_commit: true, ..Settings::default() });
    assert_eq!(probe.init_with(6, ask(true, false)), (NONE, 0, 0));
    probe.write((0, 0), 0);
    probe.pass(3_600_000);
    assert_eq!(probe.phase(), "Ongoing", "it never times out");
    let Response::InitProducerId(kept) = probe.ask(6, ask(true, true)) else { panic!() };
    assert_eq!((kept.producer_id.0, kept.producer_epoch), (0, 1));
    assert_eq!((kept.ongoing_txn_producer_id.0, kept.ongoing_txn_producer_epoch), (0, 0));
    probe.act(Step::Crash);
    probe.pass(20);
    assert_eq!(probe.end(5, (0, 0), true).0, 90, "the old client is fenced");
    assert_eq!(probe.end(5, (0, 1), true), (NONE, 0, 2));
    probe.pass(3);
    assert_eq!((probe.phase().as_str(), probe.committed_end()), ("CompleteCommit", 2));
    assert_eq!(probe.end(5, (0, 1), true), (NONE, 0, 2));
}

#[test]
fn every_answer_can_be_written_in_the_version_of_its_request() {
    let mut probe = coordinator();
    let find = FindCoordinatorRequest::default()
        .with_key_type(1)
        .with_key(StrBytes::from_static_str("x"))
        .with_coordinator_keys(vec![StrBytes::from_static_str("x")]);
    let init = InitProducerIdRequest::default()
        .with_transactional_id(Some(tid("x")))
        .with_transaction_timeout_ms(1_000)
        .with_producer_id((-1).into())
        .with_producer_epoch(-1);
    let end = EndTxnRequest::default().with_transactional_id(tid("x"));
    let requests: Vec<(Request, i16)> = vec![
        (find.into(), 6),
        (init.into(), 5),
        (AddPartitionsToTxnRequest::default().with_v3_and_below_transactional_id(tid("x")).into(), 5),
        (end.into(), 5),
        (ListTransactionsRequest::default().into(), 2),
        (DescribeTransactionsRequest::default().with_transactional_ids(vec![tid("x")]).into(), 0),
    ];
    for (request, last) in requests {
        for version in 0..=last {
            let response = probe.ask(version, request.clone());
            let mut bytes = BytesMut::new();
            response.encode(version, &mut bytes).unwrap();
            assert!(Response::decode(response.key(), version, &mut bytes.freeze()).unwrap().is_ok());
        }
    }
}

#[test]
fn equal_inputs_give_equal_records() {
    let run = || {
        let mut probe = coordinator();
        probe.init(5, None);
        probe.write((0, 0), 0);
        probe.end(5, (0, 0), true);
        probe.pass(3);
        let partition = |machine: &Machine| machine.state_partition("x");
        let at = partition(&probe.machine);
        let log = &probe.machine.catalog.partition("__transaction_state", at).unwrap().log;
        log.records().collect::<Vec<_>>()
    };
    let records = run();
    assert_eq!(records.len(), 4, "Empty, Ongoing, PrepareCommit, CompleteCommit");
    assert_eq!(records, run());
    assert_eq!(Code::NONE.0, 0);
}
