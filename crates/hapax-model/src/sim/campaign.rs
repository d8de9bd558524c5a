//! Many seeds, on as many threads as are given: each seed is a world of its own on one of them.

use super::{
    fault::Kind,
    run::{Report, Watched, run},
    scenario::Scenario,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

/// The wall time that one seed may take: thousands of times what one takes.
const HANGS_AFTER: Duration = Duration::from_secs(300);

/// What came of many seeds.
#[derive(Clone, Debug, Default)]
pub struct Campaign {
    /// Seeds that were played.
    pub seeds: u64,
    /// Faults that changed something, by kind.
    pub faults: BTreeMap<Kind, u64>,
    /// Virtual time that passed in all of them.
    pub virtual_time: Duration,
    /// Seeds with what was wrong.
    pub violations: BTreeMap<u64, String>,
}

enum Told {
    Began(u64),
    Ended(Box<Report>),
}

impl Campaign {
    /// Plays seeds; `tell` hears of each that ends. One that never ends is a violation too: then its thread is left to
    /// itself, and the rest of the seeds with it.
    pub fn play(seeds: Range<u64>, threads: usize, mut tell: impl FnMut(&Report)) -> Self {
        let (sender, told) = mpsc::channel();
        let next = Arc::new(AtomicU64::new(seeds.start));
        for number in 0..threads.max(1) {
            play_on_a_thread(number, &next, seeds.end, sender.clone());
        }
        drop(sender);
        let mut campaign = Self::default();
        let mut playing = BTreeSet::new();
        loop {
            match told.recv_timeout(HANGS_AFTER) {
                Ok(Told::Began(seed)) => drop(playing.insert(seed)),
                Ok(Told::Ended(report)) => {
                    playing.remove(&report.seed);
                    campaign.add(&report);
                    tell(&report);
                }
                Err(mpsc::RecvTimeoutError::Disconnected) => break,
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    let what = format!("it has not ended within {HANGS_AFTER:?} of a real clock");
                    campaign.violations.extend(playing.iter().map(|seed| (*seed, what.clone())));
                    return campaign;
                }
            }
        }
        // A panic of the simulator itself ends a thread, and a seed with it.
        campaign.violations.extend(playing.into_iter().map(|seed| (seed, "its thread panicked".to_owned())));
        campaign
    }

    /// Counts a seed in.
    pub fn add(&mut self, report: &Report) {
        self.seeds += 1;
        self.virtual_time += report.virtual_time;
        for (kind, times) in &report.faults {
            *self.faults.entry(*kind).or_default() += times;
        }
        if let Some(violation) = &report.violation {
            self.violations.insert(report.seed, violation.clone());
        }
    }

    /// One line that is JSON.
    pub fn to_json(&self, seconds: f64) -> String {
        let faults: BTreeMap<&str, u64> =
            self.faults.iter().map(|(kind, times)| (kind.name(), *times)).collect();
        let rounded = |value: f64| (value * 100.0).round() / 100.0;
        serde_json::json!({
            "seeds": self.seeds,
            "seeds_per_second": rounded(self.seeds as f64 / seconds.max(0.001)),
            "faults": faults,
            "virtual_hours": rounded(self.virtual_time.as_secs_f64() / 3_600.0),
            "violations": self.violations.len(),
        })
        .to_string()
    }
}

/// The line that plays a seed again, and what was wrong with it.
pub fn line_of(seed: u64, violation: &str) -> String {
    format!("cargo xtask sim --seeds 1 --seed {seed}  # {violation}")
}

#[allow(clippy::disallowed_methods, reason = "each world has a thread to itself, and none knows of another")]
fn play_on_a_thread(number: usize, next: &Arc<AtomicU64>, end: u64, tell: mpsc::Sender<Told>) {
    let next = Arc::clone(next);
    let play = move || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= end || tell.send(Told::Began(seed)).is_err() {
                return;
            }
            let report = run(&Scenario::of(seed), Watched::default());
            if tell.send(Told::Ended(Box::new(report))).is_err() {
                return;
            }
        }
    };
    let thread = thread::Builder::new().name(format!("sim-{number}")).spawn(play);
    thread.expect("the machine has a thread more");
}
