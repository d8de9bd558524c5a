//! The coordinator: every state against every request that a client or a recovery sends.

use super::{
    Protocol, Scenario, all,
    world::{Batch, Identity, World},
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
    world.list(&[]);
    world.list(&["Ongoing"]);
    world.list(&["CompleteCommit", "Empty"]);
    world.list(&["Nonsense"]);
    world.list(&["Nonsense", "Ongoing"]);
}
