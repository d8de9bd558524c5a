//! Explores the worlds whose names contain the argument, or all. The last line is JSON.
//!
//! Exit code 0: every one of them was explored in whole and keeps every promise; 1: one is broken, and its trace is
//! printed; 2: one was cut, does not reach what it is there for, or there is none of that name.

use hapax_model::check::{Small, promise::PROMISES, search::Found};
use serde_json::json;
use std::{
    collections::BTreeMap,
    num::NonZero,
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
};

/// More states than this are not explored in the time that a world should take.
const MOST_STATES: usize = 6_000_000;

fn main() -> ExitCode {
    // A machine that panics is told with its trace.
    std::panic::set_hook(Box::new(|_| {}));
    let only = std::env::args().nth(1).unwrap_or_default();
    let (mut worlds, mut states, mut steps) = (0_u32, 0_usize, 0_usize);
    for (world, found) in explored(Small::named(&only)) {
        tell(world.name(), &found);
        if found.broken.is_some() {
            return ExitCode::from(1);
        }
        if found.cut {
            return ExitCode::from(2);
        }
        if let Some(never) = world.reaches().iter().find(|what| !found.reached.contains_key(*what)) {
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

/// What was found in each world, in their order. As many are explored at a time as there are processors.
#[expect(
    clippy::disallowed_methods,
    reason = "nothing of this is simulated: the threads are the machine's own"
)]
fn explored(all: Vec<Small>) -> impl Iterator<Item = (Small, Found)> {
    let next = Arc::new(AtomicUsize::new(0));
    let all: Arc<[Small]> = all.into();
    let (told, heard) = mpsc::channel();
    let at_once = std::thread::available_parallelism().map_or(1, NonZero::get);
    for _ in 0..at_once.min(all.len()) {
        let (next, all, told) = (Arc::clone(&next), Arc::clone(&all), told.clone());
        std::thread::spawn(move || {
            loop {
                let at = next.fetch_add(1, Ordering::Relaxed);
                let Some(world) = all.get(at) else { return };
                // Nobody hears what comes behind a world that is broken.
                let _ = told.send((at, world.explore(MOST_STATES)));
            }
        });
    }
    let mut early = BTreeMap::new();
    (0..all.len()).map_while(move |at| {
        while !early.contains_key(&at) {
            let (other, found) = heard.recv().ok()?;
            early.insert(other, found);
        }
        Some((all[at].clone(), early.remove(&at)?))
    })
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
