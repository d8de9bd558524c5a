//! The worlds that are explored, each small enough to be explored in whole.

use super::world::{Config, Faults};
use hapax_commit::{Strategy, TransactionVersion};

const NONE: Faults = Faults {
    crashes: 0,
    zombies: 0,
    time_outs: 0,
    moves: 0,
    lost: 0,
    late: 0,
    late_ends: 0,
    slow: 0,
    restarts: 0,
    unacknowledged: 0,
    empty: 0,
};
const CRASH: Faults = Faults { crashes: 1, ..NONE };
const TIME_OUT: Faults = Faults { crashes: 1, time_outs: 1, ..NONE };

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
        sleeps_after: 0,
        singly: false,
        used_up: false,
        faults,
        reaches,
    }
}

/// One lane, one record, one death and one time-out, and what a job with these strategies makes of it.
fn listed(name: &'static str, allowed: &'static [Strategy], reaches: &'static [&'static str]) -> Config {
    Config { inputs: 1, allowed, ..base(name, TransactionVersion::V2, TIME_OUT, reaches) }
}

/// All of them.
pub fn all() -> Vec<Config> {
    [one_lane(), by_strategy(), two_lanes()].concat()
}

fn one_lane() -> Vec<Config> {
    use TransactionVersion::{V1, V2};
    let late = Faults { late: 1, ..CRASH };
    let lost = Faults { lost: 1, ..CRASH };
    let zombie = Faults { zombies: 1, ..NONE };
    let sleeps = Faults { time_outs: 1, ..zombie };
    let late_and_time_out = Faults { late: 1, ..TIME_OUT };
    let restart = Faults { late: 1, restarts: 1, time_outs: 1, ..NONE };
    let resumed = &["resumed", "found committed"];
    let rewound = &["resumed", "found committed", "rewound", "time-out", "fenced producer"];
    let fenced = &["fenced zombie", "fenced producer", "fenced in recovery", "resumed", "pruned"];
    let restarted = &["restart in process", "late put", "rewound", "time-out"];
    vec![
        base("calm", V2, NONE, &["nothing in doubt"]),
        base(
            "not acknowledged, V1",
            V1,
            Faults { unacknowledged: 1, ..NONE },
            &["acknowledged behind a barrier"],
        ),
        base(
            "not acknowledged, V2",
            V2,
            Faults { unacknowledged: 1, ..NONE },
            &["acknowledged behind a barrier"],
        ),
        Config { inputs: 5, ..base("ids in turn, V1", V1, NONE, &["pruned"]) },
        Config { inputs: 5, ..base("ids in turn, V2", V2, NONE, &["pruned"]) },
        Config {
            inputs: 4,
            singly: true,
            ..base("ids in turn and crash, V1", V1, CRASH, &["pruned", "resumed"])
        },
        Config {
            inputs: 4,
            singly: true,
            ..base("ids in turn and crash, V2", V2, CRASH, &["pruned", "resumed"])
        },
        Config {
            inputs: 4,
            singly: true,
            used_up: true,
            ..base("epochs used up, V1", V1, NONE, &["producer epochs used up"])
        },
        Config {
            inputs: 4,
            singly: true,
            used_up: true,
            ..base("epochs used up, V2", V2, NONE, &["producer epochs used up"])
        },
        Config {
            used_up: true,
            ..base("epochs used up and crash, V1", V1, CRASH, &["producer epochs used up", "resumed"])
        },
        Config {
            used_up: true,
            ..base("epochs used up and crash, V2", V2, CRASH, &["producer epochs used up", "resumed"])
        },
        Config {
            inputs: 1,
            used_up: true,
            allowed: &[Strategy::Resume, Strategy::Rewrite],
            ..base(
                "epochs used up and written again, V2",
                V2,
                TIME_OUT,
                &["producer epochs used up", "written again"],
            )
        },
        base("crash, V1", V1, Faults { crashes: 2, ..NONE }, resumed),
        base("crash, V2", V2, Faults { crashes: 2, ..NONE }, resumed),
        base("time-out, V1", V1, TIME_OUT, rewound),
        base("time-out, V2", V2, TIME_OUT, rewound),
        base("late, V1", V1, late, &["late put", "late EndTxn", "resumed"]),
        base("late, V2", V2, late, &["late put", "late EndTxn", "resumed"]),
        base("lost, V1", V1, lost, &["lost answer", "resumed", "found committed"]),
        base("lost, V2", V2, lost, &["lost answer", "resumed", "found committed"]),
        base("zombie, V1", V1, zombie, fenced),
        base("zombie, V2", V2, zombie, fenced),
        Config {
            inputs: 4,
            singly: true,
            sleeps_after: 3,
            ..base("zombie that sleeps, V1", V1, zombie, &["fenced zombie", "fenced producer", "pruned"])
        },
        Config {
            inputs: 4,
            singly: true,
            sleeps_after: 3,
            ..base("zombie that sleeps, V2", V2, zombie, &["fenced zombie", "fenced producer", "pruned"])
        },
        Config {
            inputs: 1,
            ..base("zombie and time-out, V1", V1, sleeps, &["fenced zombie", "rewound", "time-out"])
        },
        Config {
            inputs: 1,
            ..base("zombie and time-out, V2", V2, sleeps, &["fenced zombie", "rewound", "time-out"])
        },
        Config { inputs: 1, ..base("restart in process, V1", V1, restart, restarted) },
        Config { inputs: 1, ..base("restart in process, V2", V2, restart, restarted) },
        Config {
            inputs: 1,
            ..base(
                "late and time-out, V1",
                V1,
                late_and_time_out,
                &["late put", "late EndTxn", "rewound", "time-out"],
            )
        },
        Config {
            inputs: 1,
            ..base(
                "late and time-out, V2",
                V2,
                late_and_time_out,
                &["late put", "late EndTxn", "rewound", "time-out"],
            )
        },
        Config {
            inputs: 1,
            ..base("slow and time-out, V1", V1, Faults { slow: 1, ..TIME_OUT }, &["rewound", "time-out"])
        },
        Config {
            inputs: 1,
            ..base("slow and time-out, V2", V2, Faults { slow: 1, ..TIME_OUT }, &["rewound", "time-out"])
        },
        Config {
            inputs: 1,
            ..base("moves, V1", V1, Faults { moves: 1, ..TIME_OUT }, &["rewound", "resumed"])
        },
        Config {
            inputs: 1,
            ..base("moves, V2", V2, Faults { moves: 1, ..TIME_OUT }, &["rewound", "resumed"])
        },
    ]
}

/// Every list of strategies that makes a difference.
fn by_strategy() -> Vec<Config> {
    use Strategy::{Abandon, Replay, Resume, Rewind, Rewrite, SetAside};
    use TransactionVersion::{V1, V2};
    let late_and_time_out = Faults { late: 1, ..TIME_OUT };
    let person = &["a person is called", "resumed"];
    let written_again = &["written again", "late EndTxn"];
    let lost = |world| Config { sources_go_back: false, repairs: false, ..world };
    vec![
        listed("nothing allowed, V2", &[], &["a person is called", "found committed"]),
        listed("resume alone, V2", &[Resume], person),
        listed("rewind alone, V2", &[Rewind], &["a person is called", "rewound"]),
        listed("resume and rewind, V2", &[Resume, Rewind], &["resumed", "rewound"]),
        listed("resume and replay, V2", &[Resume, Replay], &["resumed", "written again"]),
        Config {
            sources_go_back: false,
            ..listed(
                "sources that do not go back, V2",
                &Strategy::DEFAULT,
                &["written again", "strategy passed over"],
            )
        },
        lost(listed(
            "given up, V2",
            &[Resume, Rewind, Rewrite, Replay, Abandon],
            &["abandoned", "strategy passed over"],
        )),
        lost(listed(
            "set aside, V2",
            &[Resume, Rewind, Rewrite, SetAside],
            &["abandoned", "strategy passed over"],
        )),
        lost(listed("a person, V2", &Strategy::DEFAULT, person)),
        Config { version: V1, ..lost(listed("a person, V1", &Strategy::DEFAULT, person)) },
        Config {
            inputs: 1,
            allowed: &[Resume, Rewrite],
            ..base("written again, V1", V1, late_and_time_out, written_again)
        },
        Config {
            inputs: 1,
            allowed: &[Resume, Rewrite],
            ..base("written again, V2", V2, late_and_time_out, written_again)
        },
        Config {
            allowed: &[Resume, Rewrite],
            ..base("written again and read on, V2", V2, TIME_OUT, &["written again", "resumed"])
        },
    ]
}

/// Two lanes, which may end in two ways.
fn two_lanes() -> Vec<Config> {
    use Strategy::{Resume, Rewind};
    use TransactionVersion::{V1, V2};
    let two = |world| Config { lanes: 2, inputs: 1, ..world };
    let aged = Faults { time_outs: 1, ..NONE };
    let mixed = &["rewound", "written again", "time-out"];
    let resumed = &["resumed", "found committed"];
    let empty = Faults { empty: 1, ..NONE };
    vec![
        two(base("two lanes, nothing written, V1", V1, empty, &["opened without a record"])),
        two(base("two lanes, nothing written, V2", V2, empty, &["opened without a record"])),
        two(base("two lanes, crash, V1", V1, CRASH, resumed)),
        two(base("two lanes, crash, V2", V2, CRASH, resumed)),
        two(base("two lanes, time-out, V1", V1, aged, mixed)),
        two(base("two lanes, time-out, V2", V2, aged, mixed)),
        Config {
            allowed: &[Resume, Rewind],
            ..two(base("two lanes, no repair, V2", V2, aged, &["rewound", "time-out", "a person is called"]))
        },
        two(base(
            "two lanes, late EndTxn and time-out, V2",
            V2,
            Faults { late_ends: 1, ..aged },
            &["late EndTxn", "rewound", "written again"],
        )),
    ]
}
