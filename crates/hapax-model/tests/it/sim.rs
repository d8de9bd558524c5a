//! The simulator: that it repeats itself, that it sees what is wrong, and that it finds nothing wrong.

use hapax_model::sim::{Campaign, Planted, Scenario, Watched, Workload, line_of, run};
use std::{num::NonZero, thread};

#[test]
fn every_workload_comes_through_where_nothing_goes_wrong() {
    for workload in Workload::ALL {
        let scenario = Scenario::with_workload(7, workload).calm();
        let report = run(&scenario, Watched::default());
        assert_eq!(report.violation, None, "{scenario}");
        assert!(report.faults.is_empty(), "{:?}", report.faults);
    }
}

#[test]
fn the_same_seed_gives_the_same_bytes() {
    for seed in 0..8 {
        let scenario = Scenario::of(seed);
        let (first, second) = (run(&scenario, Watched::default()), run(&scenario, Watched::default()));
        assert_eq!(first, second, "{scenario}");
        assert_ne!(first.digest, run(&Scenario::of(seed + 1_000), Watched::default()).digest);
    }
}

/// A check that cannot fail is none.
#[test]
fn a_wrong_output_is_found() {
    for (planted, why) in [(Planted::Duplicate, "second time"), (Planted::Stranger, "never to come")] {
        let scenario = Scenario::with_workload(3, Workload::Copy).calm();
        let report = run(&scenario, Watched { planted: Some(planted), ..Watched::default() });
        let violation = report.violation.expect("what was planted is found");
        assert!(violation.contains(why), "{violation}");
    }
}

#[test]
fn two_hundred_seeds_find_nothing_wrong() {
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    let campaign = Campaign::play(0..200, threads, |_| {});
    let lines: Vec<String> =
        campaign.violations.iter().map(|(seed, violation)| line_of(*seed, violation)).collect();
    assert!(lines.is_empty(), "\n{}", lines.join("\n"));
    assert_eq!(campaign.seeds, 200);
    let silent: Vec<&str> = hapax_model::sim::Kind::ALL
        .iter()
        .filter(|kind| !campaign.faults.contains_key(kind))
        .map(|kind| kind.name())
        .collect();
    assert!(silent.is_empty(), "never happened: {silent:?}");
}
