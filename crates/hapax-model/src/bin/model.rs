//! Explores the worlds whose names contain the argument, or all. The last line is JSON.
//!
//! Exit code 0: every one of them was explored in whole and keeps every promise; 1: one is broken, and its trace is
//! printed; 2: one was cut, does not reach what it is there for, or there is none of that name.

use hapax_model::check::{
    search::{Found, explore},
    world::{PROMISES, World},
    worlds,
};
use serde_json::json;
use std::process::ExitCode;

/// More states than this do not fit into the memory of a small machine: about a kilobyte each while they are new.
const MOST_STATES: usize = 20_000_000;

fn main() -> ExitCode {
    // A machine that panics is told with its trace.
    std::panic::set_hook(Box::new(|_| {}));
    let only = std::env::args().nth(1).unwrap_or_default();
    let (mut worlds, mut states, mut steps) = (0_u32, 0_usize, 0_usize);
    for config in worlds::named(&only) {
        let (name, reaches) = (config.name, config.reaches);
        let found = explore(World::new(config), MOST_STATES);
        tell(name, &found);
        if found.broken.is_some() {
            return ExitCode::from(1);
        }
        if found.cut {
            return ExitCode::from(2);
        }
        if let Some(never) = reaches.iter().find(|what| !found.reached.contains_key(*what)) {
            println!("  NEVER REACHED: {never}");
            return ExitCode::from(2);
        }
        worlds += 1;
        states += found.states;
        steps += found.steps;
    }
    println!(
        "{}",
        json!({ "worlds": worlds, "states": states, "steps": steps, "properties": PROMISES.len() })
    );
    if worlds == 0 { ExitCode::from(2) } else { ExitCode::SUCCESS }
}

fn tell(name: &str, found: &Found) {
    let Found { states, steps, depth, at_rest, reached, cut, broken } = found;
    println!(
        "{name}: {states} states, {steps} steps, {depth} deep, {at_rest} at rest{}",
        if *cut { ", CUT: not explored in whole" } else { "" }
    );
    for (what, count) in reached {
        println!("  reached {what}: {count}");
    }
    if let Some(broken) = broken {
        println!("  broken: {}: {}", broken.violation.property, broken.violation.what);
        broken.trace.iter().enumerate().for_each(|(at, step)| println!("  {}. {step}", at + 1));
        println!("{}", broken.story);
    }
}
