//! Worlds that are small enough for every test run; `cargo xtask model` explores all.

use hapax_model::check::Small;

fn holds(name: &str) {
    let worlds = Small::named(name);
    let [world] = worlds.as_slice() else { panic!("there is no world {name}") };
    let found = world.explore(5_000_000);
    assert!(!found.cut, "explored in whole");
    if let Some(broken) = found.broken {
        let trace = broken.trace.join("\n");
        panic!("{}: {}\n{trace}\n{}", broken.violation.property, broken.violation.what, broken.story);
    }
    for what in world.reaches() {
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

#[test]
fn positions_that_transactions_carry_are_those_of_what_is_committed() {
    holds("carried, crashes, V2");
}

#[test]
fn a_job_that_is_begun_twice_has_one_genesis() {
    holds("carried, begun twice, V2");
}
