//! The crash matrix: every crash point x {SIGKILL and a new run; SIGSTOP, a new run, SIGCONT} x {V2, V1} x {all
//! shards busy, some idle}. Each cell is a job of its own on the broker that all tests share, see [`cell`].
//!
//! A test is the cells of one protocol version and one mode, two at a time. Each prints a table; all cells run
//! before the test fails.

mod cell;

use crate::harness::{self, Judges};
use cell::{Cell, Load, Mode, Passed};
use hapax::crash::Point;
use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use xtask::kafka::{Version, shared};
use xtask::tools::Tools;

/// Cells at a time in each of the four tests, all of which the test runner may run at once.
const AT_A_TIME: usize = 2;

#[test]
fn killed_runs_are_followed_by_exact_ones_on_v2() {
    play(Version::V4_4, Mode::Kill);
}

#[test]
fn killed_runs_are_followed_by_exact_ones_on_v1() {
    play(Version::V3_9, Mode::Kill);
}

#[test]
fn woken_runs_end_with_code_5_and_change_nothing_on_v2() {
    play(Version::V4_4, Mode::Stop);
}

#[test]
fn woken_runs_end_with_code_5_and_change_nothing_on_v1() {
    play(Version::V3_9, Mode::Stop);
}

/// A cell and how it went.
type Result = (Cell, io::Result<Passed>);

fn play(version: Version, mode: Mode) {
    let began = Instant::now();
    let group = format!("{}-{}", version.number(), mode.name());
    let directory = harness::directory(&format!("matrix/{group}")).unwrap();
    let run = harness::unique("matrix");
    let loads = [Load::Busy, Load::Idle];
    let cells =
        Point::COMMIT.into_iter().flat_map(|point| loads.map(|load| Cell { version, mode, point, load }));
    let queue: Mutex<VecDeque<Cell>> = Mutex::new(cells.collect());
    let results: Mutex<Vec<Result>> = Mutex::default();
    thread::scope(|scope| {
        for _ in 0..AT_A_TIME {
            scope.spawn(|| {
                let judges = Judges::start().unwrap();
                let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
                while let Some(cell) = next() {
                    let result = cell.play(&run, &directory, &judges);
                    results.lock().unwrap_or_else(PoisonError::into_inner).push((cell, result));
                }
            });
        }
    });
    let mut results = results.into_inner().unwrap();
    results.sort_by_key(|(cell, _)| (Point::COMMIT.iter().position(|point| *point == cell.point), cell.load));
    print(&group, &results, began.elapsed());
    let failed: Vec<String> = results
        .iter()
        .filter_map(|(cell, result)| result.as_ref().err().map(|error| format!("{cell}: {error}")))
        .collect();
    assert!(failed.is_empty(), "{} of {} cells failed:\n{}", failed.len(), results.len(), failed.join("\n"));
    assert_eq!(results.len(), Point::COMMIT.len() * loads.len(), "a cell did not run");
    assert_no_open_transaction(version, &run);
}

/// Apache Kafka's own tool lists no transaction of these jobs that a reader would wait for.
fn assert_no_open_transaction(version: Version, run: &str) {
    let listed = Tools::new(version).unwrap().transactions_list(&shared(version).bootstrap).unwrap();
    let ours: Vec<_> = listed.into_iter().filter(|listed| listed.id.starts_with(run)).collect();
    assert!(ours.len() >= Point::COMMIT.len(), "the jobs of this test are not listed: {ours:?}");
    let open: Vec<_> = ours.iter().filter(|listed| listed.is_open()).collect();
    assert!(open.is_empty(), "these transactions are open: {open:?}");
}

/// The table goes to standard error itself, where the test runner does not hold it back.
fn print(group: &str, results: &[Result], took: Duration) {
    let mut text =
        format!("\ncrash matrix {group}: {} cells in {:.1} s\n", results.len(), took.as_secs_f64());
    text.push_str("  point         load  crashed in epoch  kill to first new commit  cell\n");
    for (cell, result) in results {
        let (point, load) = (cell.point.name(), cell.load.name());
        text.push_str(&match result {
            Ok(passed) => format!(
                "  {point:<12}  {load:<4}  {:>16}  {:>22.0} ms  {:>4.1} s\n",
                passed.epoch,
                passed.recovery.as_secs_f64() * 1000.0,
                passed.took.as_secs_f64(),
            ),
            Err(_) => format!("  {point:<12}  {load:<4}  FAILED\n"),
        });
    }
    let mut recoveries: Vec<Duration> =
        results.iter().filter_map(|(_, result)| result.as_ref().ok()).map(|passed| passed.recovery).collect();
    recoveries.sort_unstable();
    if let (Some(median), Some(longest)) = (recoveries.get(recoveries.len() / 2), recoveries.last()) {
        text.push_str(&format!("  kill to first new commit: median {median:.0?}, longest {longest:.0?}\n"));
    }
    io::stderr().lock().write_all(text.as_bytes()).unwrap();
}
