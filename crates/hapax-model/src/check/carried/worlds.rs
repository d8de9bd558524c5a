//! The worlds of decider `transaction`, each small enough to be explored in whole.

use super::{Config, Faults};
use hapax_commit::TransactionVersion;

const NONE: Faults = Faults { crashes: 0, zombies: 0, time_outs: 0, moves: 0, lost: 0, late: 0 };

/// One shard that reads two records, in a job that has begun.
fn base(
    name: &'static str,
    version: TransactionVersion,
    faults: Faults,
    reaches: &'static [&'static str],
) -> Config {
    Config { name, shards: 1, inputs: 2, version, is_new: false, recommits: false, faults, reaches }
}

/// All of them.
pub fn all() -> Vec<Config> {
    use TransactionVersion::{V1, V2};
    let crash = Faults { crashes: 1, ..NONE };
    let zombie = Faults { zombies: 1, ..NONE };
    let time_out = Faults { crashes: 1, time_outs: 1, ..NONE };
    let late = Faults { crashes: 1, late: 1, ..NONE };
    let lost = Faults { crashes: 1, lost: 1, ..NONE };
    let fenced = &["fenced producer", "goes on", "failed run"];
    let begun_twice = &["genesis", "begins", "goes on"];
    vec![
        base("carried, calm", V2, NONE, &["begins"]),
        Config { inputs: 4, ..base("carried, ids in turn, V1", V1, NONE, &["ids in turn"]) },
        Config { inputs: 4, ..base("carried, ids in turn, V2", V2, NONE, &["ids in turn"]) },
        Config { inputs: 1, ..base("carried, crashes, V1", V1, Faults { crashes: 2, ..NONE }, &["goes on"]) },
        Config { inputs: 1, ..base("carried, crashes, V2", V2, Faults { crashes: 2, ..NONE }, &["goes on"]) },
        base("carried, time-out, V1", V1, time_out, &["time-out", "not committed", "goes on"]),
        base("carried, time-out, V2", V2, time_out, &["time-out", "not committed", "goes on"]),
        base("carried, late, V1", V1, late, &["late EndTxn", "goes on"]),
        base("carried, late, V2", V2, late, &["late EndTxn", "goes on"]),
        base("carried, lost, V1", V1, lost, &["lost answer", "goes on"]),
        base("carried, lost, V2", V2, lost, &["lost answer", "goes on"]),
        base("carried, zombie, V1", V1, zombie, fenced),
        base("carried, zombie, V2", V2, zombie, fenced),
        Config {
            inputs: 1,
            ..base(
                "carried, zombie and time-out, V2",
                V2,
                Faults { time_outs: 1, ..zombie },
                &["time-out", "fenced producer"],
            )
        },
        Config {
            inputs: 1,
            ..base("carried, moves, V2", V2, Faults { moves: 1, ..time_out }, &["time-out", "goes on"])
        },
        Config {
            inputs: 1,
            recommits: true,
            ..base("carried, recommits, V1", V1, zombie, &["fenced producer"])
        },
        Config {
            inputs: 1,
            recommits: true,
            ..base("carried, recommits, V2", V2, zombie, &["fenced producer"])
        },
        Config { inputs: 1, is_new: true, ..base("carried, new, V1", V1, crash, begun_twice) },
        Config { inputs: 1, is_new: true, ..base("carried, new, V2", V2, crash, begun_twice) },
        Config {
            inputs: 1,
            is_new: true,
            ..base("carried, begun twice, V1", V1, zombie, &["genesis", "begun meanwhile", "goes on"])
        },
        Config {
            inputs: 1,
            is_new: true,
            ..base("carried, begun twice, V2", V2, zombie, &["genesis", "begun meanwhile", "goes on"])
        },
        Config { shards: 2, inputs: 1, ..base("carried, two shards, V1", V1, crash, &["goes on"]) },
        Config { shards: 2, inputs: 1, ..base("carried, two shards, V2", V2, crash, &["goes on"]) },
    ]
}
