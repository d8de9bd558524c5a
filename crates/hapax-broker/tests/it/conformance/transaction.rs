//! The coordinator: every state against every request that a client or a recovery sends.

use super::{
    Protocol, Scenario, all,
    answer::At,
    record::topic_name,
    world::{Batch, Identity, World, text},
};
use hapax_broker::wire::Request;
use kafka_protocol::{
    messages::{
        AddOffsetsToTxnRequest, AddPartitionsToTxnRequest, DescribeClusterRequest,
        DescribeTransactionsRequest, EndTxnRequest, FindCoordinatorRequest, InitProducerIdRequest,
        WriteTxnMarkersRequest,
        add_partitions_to_txn_request::{AddPartitionsToTxnTopic, AddPartitionsToTxnTransaction},
        write_txn_markers_request::{WritableTxnMarker, WritableTxnMarkerTopic},
    },
    protocol::StrBytes,
};
use std::thread;

pub(super) fn scenarios() -> Vec<Scenario> {
    all![
        end_in_every_state,
        end_of_strangers,
        end_under_both_protocols,
        begin_in_every_state,
        begin_with_an_identity,
        begin_with_bad_arguments,
        while_markers_are_under_way,
        partitions_that_a_broker_adds,
        markers_of_an_operator,
        coordinators_are_found,
        fencing,
        time_out,
        time_out_of_a_decided_one,
        partitions_of_a_transaction,
        what_readers_see,
        sequences,
        produce_outside_of_a_transaction,
        listing,
    ]
}

/// A transaction that is open and has one batch.
fn open(world: &mut World, protocol: Protocol, id: &str) -> Identity {
    let own = world.init(id, 4, None).unwrap();
    write(world, protocol, id, own, &["a", "b"]);
    own
}

fn write(world: &mut World, protocol: Protocol, id: &str, own: Identity, values: &[&str]) {
    if protocol == Protocol::V1 {
        world.add(id, 3, own, "t", &[0]);
    }
    world.produce(protocol.produce(), &Batch::first("t", id, own, values));
}

/// Puts a fresh id into a state, by name; its identity at the beginning.
fn put(world: &mut World, protocol: Protocol, id: &str, state: &str) -> Identity {
    if state == "Empty" {
        return world.init(id, 4, None).unwrap();
    }
    let own = open(world, protocol, id);
    match state {
        "Ongoing" => {}
        "CompleteCommit" => drop(world.end(id, protocol.end(), own, true)),
        "CompleteAbort" => drop(world.end(id, protocol.end(), own, false)),
        "Initialised" => drop(world.init(id, 4, None)),
        other => panic!("no such state: {other}"),
    }
    world.describe(id);
    own
}

const STATES: [&str; 5] = ["Empty", "Ongoing", "CompleteCommit", "CompleteAbort", "Initialised"];

fn end_in_every_state(world: &mut World, protocol: Protocol) {
    world.create_topic("t", 1, &[]);
    for state in STATES {
        for commit in [true, false] {
            for later in [0, 1, 2] {
                let id = format!("{state}-{commit}-{later}").to_lowercase();
                let own = put(world, protocol, &id, state);
                world.end(&id, protocol.end(), own.later(later), commit);
                world.describe(&id);
                // The same decision again, as after an answer that was lost.
                world.end(&id, protocol.end(), own.later(later), commit);
                world.describe(&id);
            }
        }
    }
    world.fetch("t", 0, 0, false);
}

fn end_of_strangers(world: &mut World, protocol: Protocol) {
    world.create_topic("t", 1, &[]);
    for state in STATES {
        let id = format!("strange-{state}").to_lowercase();
        let own = put(world, protocol, &id, state);
        for version in 0..=protocol.end() {
            world.end(&id, version, own.stranger(), true);
        }
        world.end(&id, protocol.end(), Identity { epoch: own.epoch.saturating_sub(1), ..own }, true);
        world.describe(&id);
    }
    let own = world.init("known", 4, None).unwrap();
    for version in 0..=protocol.end() {
        world.end("never-initialised", version, own, true);
        world.end("known", version, own.later(1), true);
    }
    world.describe("never-initialised");
}

fn end_under_both_protocols(world: &mut World, protocol: Protocol) {
    if protocol == Protocol::V1 {
        return;
    }
    world.create_topic("t", 1, &[]);
    for (first, second) in [(4, 5), (5, 4), (3, 5), (0, 0)] {
        let id = format!("both-{first}-{second}");
        let own = open(world, protocol, &id);
        world.end(&id, first, own, true);
        world.describe(&id);
        world.end(&id, second, own, true);
        world.end(&id, second, own.later(1), true);
        world.describe(&id);
    }
}

fn begin_in_every_state(world: &mut World, protocol: Protocol) {
    world.create_topic("t", 1, &[]);
    for state in STATES {
        for version in [0, 1, 3, 4, 5] {
            let id = format!("begin-{state}-{version}").to_lowercase();
            put(world, protocol, &id, state);
            world.init(&id, version, None);
            world.describe(&id);
        }
    }
    world.fetch("t", 0, 0, true);
}

fn begin_with_an_identity(world: &mut World, protocol: Protocol) {
    world.create_topic("t", 1, &[]);
    for state in STATES {
        for version in [3, 4] {
            for later in [0, 1, 2] {
                let id = format!("own-{state}-{version}-{later}").to_lowercase();
                let own = put(world, protocol, &id, state);
                world.init(&id, version, Some(own.later(later)));
                world.describe(&id);
                world.init(&id, version, Some(own.later(later)));
                world.init(&id, version, Some(own.stranger()));
                world.describe(&id);
            }
        }
    }
}

fn begin_with_bad_arguments(world: &mut World, _: Protocol) {
    for timeout in [0, -1, 900_000, 900_001, i32::MAX] {
        for version in [0, 4] {
            world.init_with(&format!("timeout-{timeout}-{version}"), version, None, timeout);
        }
    }
    for half in [Identity { id: 5, epoch: -1 }, Identity { id: -1, epoch: 3 }] {
        world.init("half", 4, Some(half));
    }
}

/// A decision whose markers no partition takes: its own is told of a later epoch first, which the same producer id
/// writes outside of any transaction. So the decision stands for ever, and what is asked meanwhile is not a race.
fn decided(world: &mut World, protocol: Protocol, id: &str, commit: bool) -> Identity {
    let own = world.init(id, 4, None).unwrap();
    world.add(id, 3, own, "t", &[0]);
    world.produce(9, &Batch { own: Some(own.later(9)), sequence: 0, ..Batch::plain("t", &["ahead"]) });
    world.end(id, protocol.end(), own, commit);
    own
}

fn while_markers_are_under_way(world: &mut World, protocol: Protocol) {
    world.create_topic("t", 1, &[]);
    for decision in [true, false] {
        let id = format!("decided-{decision}");
        let own = decided(world, protocol, &id, decision);
        let name: StrBytes = text(&world.name(&id));
        let ask = |world: &mut World, what: &str, version: i16, request: Request| {
            world.tell_settled(&LOADING, what, At::Transaction(&id), version, request);
        };
        for who in [own, own.later(1), own.later(2), own.stranger()] {
            for commit in [true, false] {
                let request = EndTxnRequest::default()
                    .with_transactional_id(name.clone().into())
                    .with_producer_id(who.id.into())
                    .with_producer_epoch(who.epoch)
                    .with_committed(commit);
                for version in 0..=protocol.end() {
                    let label = world.identity(who);
                    ask(world, &format!("end {label} commit {commit}"), version, request.clone().into());
                }
            }
            let label = world.identity(who);
            let request = InitProducerIdRequest::default()
                .with_transactional_id(Some(name.clone().into()))
                .with_transaction_timeout_ms(60_000);
            ask(world, "begin", 4, request.clone().into());
            let request = request.with_producer_id(who.id.into()).with_producer_epoch(who.epoch);
            ask(world, &format!("begin {label}"), 4, request.into());
            let topic =
                AddPartitionsToTxnTopic::default().with_name(topic_name(world, "t")).with_partitions(vec![0]);
            let request = AddPartitionsToTxnRequest::default()
                .with_v3_and_below_transactional_id(name.clone().into())
                .with_v3_and_below_producer_id(who.id.into())
                .with_v3_and_below_producer_epoch(who.epoch)
                .with_v3_and_below_topics(vec![topic]);
            ask(world, &format!("add {label}"), 3, request.into());
            let request = AddOffsetsToTxnRequest::default()
                .with_transactional_id(name.clone().into())
                .with_producer_id(who.id.into())
                .with_producer_epoch(who.epoch)
                .with_group_id(text(&world.name("g")).into());
            ask(world, &format!("add a group {label}"), 3, request.into());
        }
        let request =
            DescribeTransactionsRequest::default().with_transactional_ids(vec![name.clone().into()]);
        ask(world, "describe", 0, request.into());
    }
    world.fetch("t", 0, 0, true);
}

/// A coordinator is new, or not this one.
const LOADING: [i16; 3] = [14, 15, 16];

/// The batched form, with which leaders ask on behalf of their clients.
fn partitions_that_a_broker_adds(world: &mut World, protocol: Protocol) {
    world.create_topic("t", 2, &[]);
    let last = if protocol == Protocol::V2 { 5 } else { 4 };
    for version in 4..=last {
        let id = format!("tx-{version}");
        let own = world.init(&id, 4, None).unwrap();
        for only_verify in [true, false, true] {
            for who in [own, own.later(1), own.stranger()] {
                for partitions in [vec![0], vec![0, 1], vec![7]] {
                    let label = world.identity(who);
                    let what = format!("add {label} {partitions:?} only verify {only_verify}");
                    let topic = AddPartitionsToTxnTopic::default()
                        .with_name(topic_name(world, "t"))
                        .with_partitions(if only_verify { partitions } else { vec![partitions[0]] });
                    let transaction = AddPartitionsToTxnTransaction::default()
                        .with_transactional_id(text(&world.name(&id)).into())
                        .with_producer_id(who.id.into())
                        .with_producer_epoch(who.epoch)
                        .with_verify_only(only_verify)
                        .with_topics(vec![topic]);
                    let request = AddPartitionsToTxnRequest::default().with_transactions(vec![transaction]);
                    world.tell(&what, At::Transaction(&id), version, request);
                }
            }
            world.describe(&id);
        }
        world.end(&id, protocol.end(), own, true);
        world.describe(&id);
    }
}

/// What an operator writes to end a transaction that hangs, without its coordinator.
fn markers_of_an_operator(world: &mut World, protocol: Protocol) {
    world.create_topic("t", 1, &[]);
    for (id, commit) in [("one", false), ("two", true)] {
        let own = open(world, protocol, id);
        for (who, epoch) in
            [(own.later(-1), 0), (own, -1), (own, 0), (own, 0), (own.later(1), 0), (own.stranger(), 0)]
        {
            for topic in ["t", "nowhere"] {
                let marker = WritableTxnMarker::default()
                    .with_producer_id(who.id.into())
                    .with_producer_epoch(who.epoch)
                    .with_coordinator_epoch(epoch)
                    .with_transaction_result(commit)
                    .with_topics(vec![
                        WritableTxnMarkerTopic::default()
                            .with_name(topic_name(world, topic))
                            .with_partition_indexes(vec![0]),
                    ]);
                let request = WriteTxnMarkersRequest::default().with_markers(vec![marker]);
                let label = world.identity(who);
                world.tell(&format!("mark {label} in {topic} commit {commit}"), At::Any, 1, request);
            }
            world.fetch("t", 0, 0, true);
            world.producers("t", 0);
        }
    }
}

fn coordinators_are_found(world: &mut World, protocol: Protocol) {
    let last = if protocol == Protocol::V2 { 6 } else { 5 };
    for version in 0..=last {
        for kind in [0, 1, 7] {
            if version == 0 && kind != 0 {
                continue;
            }
            for key in ["one", ""] {
                let key = if key.is_empty() { text("") } else { text(&world.name(key)) };
                let request = match version {
                    4.. => FindCoordinatorRequest::default().with_coordinator_keys(vec![key]),
                    _ => FindCoordinatorRequest::default().with_key(key),
                };
                let request = request.with_key_type(kind);
                world.tell(&format!("find {kind}"), At::Any, version, request);
            }
        }
    }
    for version in 0..=1 {
        world.tell("cluster", At::Any, version, DescribeClusterRequest::default());
    }
}

/// Two processes with one id.
fn fencing(world: &mut World, protocol: Protocol) {
    world.create_topic("t", 1, &[]);
    let old = open(world, protocol, "two");
    let new = world.init("two", 4, None).unwrap();
    world.describe("two");
    // The old one goes on in every way that it can.
    world.produce(protocol.produce(), &Batch { sequence: 2, ..Batch::first("t", "two", old, &["late"]) });
    world.add("two", 3, old, "t", &[0]);
    for commit in [true, false] {
        world.end("two", protocol.end(), old, commit);
        world.end("two", protocol.end(), old.later(1), commit);
    }
    world.init("two", 4, Some(old));
    write(world, protocol, "two", new, &["new"]);
    world.end("two", protocol.end(), old, true);
    world.end("two", protocol.end(), new, true);
    world.describe("two");
    world.fetch("t", 0, 0, true);
    world.producers("t", 0);
}

fn time_out(world: &mut World, protocol: Protocol) {
    world.create_topic("t", 1, &[]);
    for (name, later) in [("commit", 0), ("again", 1), ("further", 2)] {
        let id = format!("slow-{name}");
        let own = world.init_short(&id).unwrap();
        write(world, protocol, &id, own, &["x"]);
        world.in_time();
        world.ended(&id, own);
        world.describe(&id);
        world.end(&id, protocol.end(), own.later(later), true);
        world.end(&id, protocol.end(), own.later(later), false);
        world.produce(protocol.produce(), &Batch { sequence: 1, ..Batch::first("t", &id, own, &["y"]) });
        world.describe(&id);
        world.init(&id, 4, None);
        world.describe(&id);
    }
    world.fetch("t", 0, 0, true);
}

fn time_out_of_a_decided_one(world: &mut World, protocol: Protocol) {
    world.create_topic("t", 1, &[]);
    let own = world.init_short("decided").unwrap();
    write(world, protocol, "decided", own, &["x"]);
    world.end("decided", protocol.end(), own, true);
    world.in_time();
    thread::sleep(world.short() * 3);
    world.describe("decided");
    world.end("decided", protocol.end(), own, true);
    // Nothing was begun: nothing times out.
    let idle = world.init_short("idle").unwrap();
    thread::sleep(world.short() * 3);
    world.describe("idle");
    world.end("idle", protocol.end(), idle, true);
    world.fetch("t", 0, 0, true);
}

fn partitions_of_a_transaction(world: &mut World, protocol: Protocol) {
    world.create_topic("t", 3, &[]);
    let own = world.init("parts", 4, None).unwrap();
    for version in [0, 1, 2, 3] {
        world.add("parts", version, own, "t", &[0, 1]);
    }
    world.add("parts", 3, own, "t", &[2, 7]);
    world.add("parts", 3, own, "nowhere", &[0]);
    world.add("parts", 3, own.stranger(), "t", &[0]);
    world.add("parts", 3, own.later(1), "t", &[0]);
    world.add("parts", 1, own.later(1), "t", &[0]);
    world.add("unknown", 3, own, "t", &[0]);
    world.describe("parts");
    world.produce(11, &Batch { partition: 1, ..Batch::first("t", "parts", own, &["in"]) });
    // Not added: V1 refuses it, V2 adds it.
    world.produce(protocol.produce(), &Batch { partition: 2, ..Batch::first("t", "parts", own, &["out"]) });
    world.describe("parts");
    world.end("parts", protocol.end(), own, true);
    world.describe("parts");
    (0..3).for_each(|partition| world.fetch("t", partition, 0, true));
}

fn what_readers_see(world: &mut World, protocol: Protocol) {
    world.create_topic("t", 1, &[]);
    world.produce(9, &Batch::plain("t", &["p0"]));
    let (first, second) = (open(world, protocol, "first"), open(world, protocol, "second"));
    world.produce(9, &Batch::plain("t", &["p1"]));
    for committed in [false, true] {
        world.fetch("t", 0, 0, committed);
        for time in [-1, -2, 0, 1] {
            world.list_offset("t", 0, time, committed);
        }
    }
    world.end("second", protocol.end(), second, false);
    world.describe("second");
    world.fetch("t", 0, 0, true);
    world.list_offset("t", 0, -1, true);
    world.end("first", protocol.end(), first, true);
    world.describe("first");
    for from in [0, 1, 2, 4, 6] {
        world.fetch("t", 0, from, true);
    }
    world.fetch("t", 0, 0, false);
    world.fetch("t", 0, 99, true);
    world.fetch("t", 0, -5, true);
    world.producers("t", 0);
    world.list_offset("t", 0, 3_600_000_000, false);
}

fn sequences(world: &mut World, protocol: Protocol) {
    world.create_topic("t", 1, &[]);
    let own = world.init("seq", 4, None).unwrap();
    if protocol == Protocol::V1 {
        world.add("seq", 3, own, "t", &[0]);
    }
    let version = protocol.produce();
    let at = |sequence, values| Batch { sequence, ..Batch::first("t", "seq", own, values) };
    world.produce(version, &at(3, &["gap"]));
    for sequence in [0, 1, 2, 3, 4, 5, 6] {
        world.produce(version, &at(sequence, &["s"]));
    }
    // Duplicates within the last five, before them, and of another length.
    for sequence in [6, 4, 2, 1, 0] {
        world.produce(version, &at(sequence, &["s"]));
    }
    world.produce(version, &at(6, &["s", "s"]));
    world.produce(version, &at(9, &["gap"]));
    world.produce(version, &Batch { own: Some(own.later(1)), ..at(7, &["epoch"]) });
    world.produce(version, &Batch { own: Some(own.stranger()), ..at(0, &["stranger"]) });
    world.produce(version, &Batch { transactional: false, id: None, ..at(7, &["outside"]) });
    world.producers("t", 0);
    world.end("seq", protocol.end(), own, true);
    world.describe("seq");
    world.produce(version, &at(7, &["after"]));
    world.producers("t", 0);
    world.fetch("t", 0, 0, false);
}

fn produce_outside_of_a_transaction(world: &mut World, protocol: Protocol) {
    world.create_topic("t", 1, &[]);
    let own = world.init("out", 4, None).unwrap();
    // Nothing was added under V1; under V2 the produce itself begins the transaction.
    world.produce(protocol.produce(), &Batch::first("t", "out", own, &["x"]));
    world.describe("out");
    world.end("out", protocol.end(), own, true);
    world.describe("out");
    for version in [3, 7, 8, 10, 11] {
        world.produce(version, &Batch::first("t", "out", own.later(1), &["old version"]));
    }
    world.describe("out");
    world.fetch("t", 0, 0, false);
}

fn listing(world: &mut World, protocol: Protocol) {
    world.create_topic("t", 1, &[]);
    for state in STATES {
        put(world, protocol, &format!("l-{state}").to_lowercase(), state);
    }
    let last = if protocol == Protocol::V2 { 2 } else { 1 };
    for version in 0..=last {
        for milliseconds in [-1, 3_600_000] {
            world.list(version, &[], milliseconds);
            world.list(version, &["Ongoing"], milliseconds);
            world.list(version, &["CompleteCommit", "Empty"], milliseconds);
            world.list(version, &["Nonsense"], milliseconds);
            world.list(version, &["Nonsense", "Ongoing"], milliseconds);
        }
    }
}
