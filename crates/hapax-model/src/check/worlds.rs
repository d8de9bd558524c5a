//! The worlds that are explored, each small enough to be explored in whole.

use super::world::{Config, Faults};
use hapax_commit::{Strategy, TransactionVersion};

const NONE: Faults = Faults { crashes: 0, zombies: 0, time_outs: 0, moves: 0, lost: 0, late: 0, slow: 0 };

/// One lane that reads two records, in a job with the default strategies.
fn base(
    name: &'static str,
    version: TransactionVersion,
    faults: Faults,
    reaches: &'static [&'static str],
) -> Config {
    Config {
        name,
        lanes: 1,
        inputs: 2,
        version,
        allowed: &Strategy::DEFAULT,
        sources_go_back: true,
        repairs: true,
        faults,
        reaches,
    }
}

/// The one of this name, or else all whose names contain it.
pub fn named(name: &str) -> Vec<Config> {
    let mut worlds = all();
    let is_exact = worlds.iter().any(|world| world.name == name);
    worlds.retain(|world| if is_exact { world.name == name } else { world.name.contains(name) });
    worlds
}

/// All of them.
pub fn all() -> Vec<Config> {
    use TransactionVersion::{V1, V2};
    let crash = Faults { crashes: 1, ..NONE };
    let time_out = Faults { crashes: 1, time_outs: 1, ..NONE };
    let late = Faults { crashes: 1, late: 1, ..NONE };
    let lost = Faults { crashes: 1, lost: 1, ..NONE };
    let zombie = Faults { zombies: 1, ..NONE };
    let written_again = &[Strategy::Resume, Strategy::Rewrite];
    let resumed = &["resumed", "found committed"];
    let rewound = &["resumed", "found committed", "rewound", "time-out", "fenced producer", "pruned"];
    let fenced = &["fenced zombie", "fenced producer", "fenced in recovery", "resumed", "pruned"];
    vec![
        base("calm", V2, NONE, &["nothing in doubt"]),
        Config { inputs: 5, ..base("ids in turn, V1", V1, NONE, &["pruned"]) },
        Config { inputs: 5, ..base("ids in turn, V2", V2, NONE, &["pruned"]) },
        Config { inputs: 4, ..base("ids in turn and crash, V1", V1, crash, &["pruned", "resumed"]) },
        Config { inputs: 4, ..base("ids in turn and crash, V2", V2, crash, &["pruned", "resumed"]) },
        base("crash, V1", V1, Faults { crashes: 2, ..NONE }, resumed),
        base("crash, V2", V2, Faults { crashes: 2, ..NONE }, resumed),
        base("time-out, V1", V1, time_out, rewound),
        base("time-out, V2", V2, time_out, rewound),
        base("late, V1", V1, late, &["late put", "late EndTxn", "resumed"]),
        base("late, V2", V2, late, &["late put", "late EndTxn", "resumed"]),
        base("lost, V1", V1, lost, &["lost answer", "resumed", "found committed"]),
        base("lost, V2", V2, lost, &["lost answer", "resumed", "found committed"]),
        base("zombie, V1", V1, zombie, fenced),
        base("zombie, V2", V2, zombie, fenced),
        Config {
            inputs: 1,
            ..base(
                "late and time-out, V2",
                V2,
                Faults { late: 1, ..time_out },
                &["late put", "late EndTxn", "rewound", "time-out"],
            )
        },
        Config {
            inputs: 1,
            ..base(
                "zombie and time-out, V2",
                V2,
                Faults { time_outs: 1, ..zombie },
                &["fenced zombie", "rewound", "time-out"],
            )
        },
        Config {
            inputs: 1,
            ..base("slow and time-out, V2", V2, Faults { slow: 1, ..time_out }, &["rewound", "time-out"])
        },
        Config {
            inputs: 1,
            ..base("moves, V2", V2, Faults { moves: 1, ..time_out }, &["rewound", "resumed"])
        },
        Config {
            inputs: 1,
            allowed: written_again,
            ..base("written again, V1", V1, Faults { late: 1, ..time_out }, &["written again", "late EndTxn"])
        },
        Config {
            inputs: 1,
            allowed: written_again,
            ..base("written again, V2", V2, Faults { late: 1, ..time_out }, &["written again", "late EndTxn"])
        },
        Config {
            allowed: written_again,
            ..base("written again and read on, V2", V2, time_out, &["written again", "resumed"])
        },
        Config {
            inputs: 1,
            sources_go_back: false,
            repairs: false,
            allowed: &[Strategy::Resume, Strategy::Rewind, Strategy::Rewrite, Strategy::Abandon],
            ..base("given up, V2", V2, time_out, &["abandoned", "strategy passed over"])
        },
        Config {
            inputs: 1,
            sources_go_back: false,
            allowed: &[Strategy::Resume, Strategy::Rewind],
            ..base("a person, V2", V2, time_out, &["a person is called", "resumed"])
        },
        Config { lanes: 2, inputs: 1, ..base("two lanes, crash, V2", V2, crash, resumed) },
        Config {
            lanes: 2,
            inputs: 1,
            ..base("two lanes, time-out, V2", V2, time_out, &["rewound", "written again", "resumed"])
        },
    ]
}
