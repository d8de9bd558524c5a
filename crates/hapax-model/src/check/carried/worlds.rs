//! The worlds of decider `transaction`, each small enough to be explored in whole.

use super::{Config, Faults};
use hapax_commit::TransactionVersion;

const NONE: Faults = Faults { crashes: 0, zombies: 0, changes: 0, time_outs: 0, moves: 0, lost: 0, late: 0 };

/// One shard that reads a record, in a job that has begun and has no store.
fn base(
    name: &'static str,
    version: TransactionVersion,
    faults: Faults,
    reaches: &'static [&'static str],
) -> Config {
    Config {
        name,
        shards: 1,
        inputs: 1,
        version,
        is_new: false,
        store: false,
        recommits: false,
        singly: false,
        faults,
        reaches,
    }
}

/// The same with two records.
fn written(
    name: &'static str,
    version: TransactionVersion,
    faults: Faults,
    reaches: &'static [&'static str],
) -> Config {
    Config { inputs: 2, ..base(name, version, faults, reaches) }
}

/// All of them.
pub fn all() -> Vec<Config> {
    use TransactionVersion::{V1, V2};
    let crash = Faults { crashes: 1, ..NONE };
    let crashes = Faults { crashes: 2, ..NONE };
    let zombie = Faults { zombies: 1, ..NONE };
    let change = Faults { changes: 1, ..NONE };
    let time_out = Faults { crashes: 1, time_outs: 1, ..NONE };
    let late = Faults { crashes: 1, late: 1, ..NONE };
    let lost = Faults { crashes: 1, lost: 1, ..NONE };
    let fenced = &["fenced producer", "goes on", "failed run"];
    let begun_twice = &["genesis", "begins", "goes on"];
    let timed_out = &["time-out", "not committed", "goes on"];
    let asleep = |name, version| Config {
        inputs: 4,
        singly: true,
        ..base(name, version, zombie, &["ids in turn", "fenced producer"])
    };
    let new = |config| Config { is_new: true, ..config };
    let stored = |config| Config { is_new: true, store: true, ..config };
    let recommits = |config| Config { recommits: true, ..config };
    let beyond = &["genesis", "beyond genesis", "goes on"];
    vec![
        base("carried, calm", V2, NONE, &["begins"]),
        Config { inputs: 4, ..written("carried, ids in turn, V1", V1, NONE, &["ids in turn"]) },
        Config { inputs: 4, ..written("carried, ids in turn, V2", V2, NONE, &["ids in turn"]) },
        base("carried, crashes, V1", V1, crashes, &["goes on"]),
        base("carried, crashes, V2", V2, crashes, &["goes on"]),
        written("carried, crash, V1", V1, crash, &["goes on"]),
        written("carried, crash, V2", V2, crash, &["goes on"]),
        base("carried, time-out, V1", V1, time_out, timed_out),
        base("carried, time-out, V2", V2, time_out, timed_out),
        base("carried, late, V1", V1, late, &["late EndTxn", "goes on"]),
        base("carried, late, V2", V2, late, &["late EndTxn", "goes on"]),
        written("carried, late and written, V2", V2, late, &["late EndTxn", "goes on"]),
        base("carried, lost, V1", V1, lost, &["lost answer", "goes on"]),
        base("carried, lost, V2", V2, lost, &["lost answer", "goes on"]),
        base("carried, retried, V1", V1, Faults { late: 1, ..lost }, &["lost answer", "late EndTxn"]),
        base("carried, retried, V2", V2, Faults { late: 1, ..lost }, &["lost answer", "late EndTxn"]),
        base("carried, zombie, V1", V1, zombie, fenced),
        base("carried, zombie, V2", V2, zombie, fenced),
        written("carried, zombie and written, V2", V2, zombie, fenced),
        asleep("carried, zombie that sleeps, V1", V1),
        asleep("carried, zombie that sleeps, V2", V2),
        base("carried, zombie and crash, V2", V2, Faults { crashes: 1, ..zombie }, fenced),
        base(
            "carried, zombie and time-out, V2",
            V2,
            Faults { time_outs: 1, ..zombie },
            &["time-out", "fenced producer"],
        ),
        base("carried, moves, V2", V2, Faults { moves: 1, ..time_out }, &["time-out", "goes on"]),
        recommits(base("carried, recommits and crash, V1", V1, crash, &["goes on"])),
        recommits(base("carried, recommits and crash, V2", V2, crash, &["goes on"])),
        recommits(base("carried, recommits and zombie, V2", V2, zombie, &["fenced producer"])),
        base("carried, change, V1", V1, change, &["changed", "layout changed meanwhile", "fenced producer"]),
        base("carried, change, V2", V2, change, &["changed", "layout changed meanwhile", "fenced producer"]),
        new(base("carried, new, V1", V1, crash, begun_twice)),
        new(base("carried, new, V2", V2, crash, begun_twice)),
        new(base("carried, begun twice, V1", V1, zombie, &["genesis", "begun meanwhile", "goes on"])),
        new(base("carried, begun twice, V2", V2, zombie, &["genesis", "begun meanwhile", "goes on"])),
        stored(base("carried, new with a store, V2", V2, crash, begun_twice)),
        stored(base("carried, begun twice with a store, V1", V1, zombie, beyond)),
        stored(base("carried, begun twice with a store, V2", V2, zombie, beyond)),
        Config { shards: 2, ..base("carried, two shards, V1", V1, crash, &["goes on"]) },
        Config { shards: 2, ..base("carried, two shards, V2", V2, crash, &["goes on"]) },
    ]
}
