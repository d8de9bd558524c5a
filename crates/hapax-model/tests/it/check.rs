//! Worlds that are small enough for every test run; `cargo xtask model` explores all.

use hapax_model::check::{search::explore, world::World, worlds};

fn holds(name: &str) {
    let worlds = worlds::named(name);
    let [config] = worlds.as_slice() else { panic!("there is no world {name}") };
    let found = explore(World::new(config.clone()), 5_000_000);
    assert!(!found.cut, "explored in whole");
    if let Some(broken) = found.broken {
        let trace = broken.trace.join("\n");
        panic!("{}: {}\n{trace}\n{}", broken.violation.property, broken.violation.what, broken.story);
    }
    for what in config.reaches {
        assert!(found.reached.contains_key(what), "{name} never reaches {what}: {:?}", found.reached);
    }
    println!("{name}: {} states", found.states);
}

#[test]
fn whatever_dies_every_record_is_committed_once() {
    holds("crash, V2");
}

#[test]
fn behind_a_time_out_late_requests_do_no_harm() {
    holds("late and time-out, V2");
}

#[test]
fn a_run_that_is_fenced_changes_nothing() {
    holds("zombie, V2");
}

#[test]
fn two_lanes_end_one_way() {
    holds("two lanes, crash, V2");
}
