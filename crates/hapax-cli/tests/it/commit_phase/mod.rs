//! The matrix of the commit phase: strategy x crash point x what became of the transactions x {V1, V2} x {one lane, mixed
//! lanes}, on the broker of this repository, and its core on Apache Kafka. See [`plan`] for the cells and [`scene`] for how
//! one is played.
//!
//! An ordinary run plays a share of the cells in which every pair of strategy and answer, and every crash point,
//! occurs, and of the core each strategy and each answer; `cargo xtask soak --matrix` plays all.

mod answer;
mod census;
mod place;
mod plan;
mod scene;

use plan::{Answer, Brokers, Cell, Expected, Lanes, Protocol, With};
use scene::{Scene, Unlucky};
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    env, fs,
    io::{self, Write},
    panic::{self, AssertUnwindSafe},
    path::Path,
    sync::{Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};
use xtask::judge::Judge;

/// Cells at a time beside the other tests.
const AT_A_TIME: usize = 3;

/// Cells at a time where nothing else runs: they wait more than they work.
const AT_A_TIME_ALONE: usize = 7;

/// Cells between two lines that say how far it is.
const TOLD_EVERY: usize = 50;

/// A cell is played again where its first run did not get into the wanted state: a machine that stalls has epochs with
/// too few lanes.
const TRIES: usize = 5;

/// What an ordinary run plays on our brokers takes less, on a machine with two cores.
const SHARE_WITHIN: Duration = Duration::from_secs(6 * 60);

/// A cell and what it must come to.
type Wanted = (Cell, Expected);

/// What was played.
#[derive(Default)]
struct Tally {
    passed: Vec<Cell>,
    failed: Vec<String>,
    /// First runs that had to be repeated.
    unlucky: usize,
}

#[test]
fn whatever_became_of_a_transaction_each_strategy_comes_to_its_end() {
    let took = play_share(Brokers::Ours);
    assert!(took < SHARE_WITHIN, "the share of the matrix took {took:?}");
}

#[test]
fn on_apache_kafka_too_each_strategy_and_each_answer_comes_to_its_end() {
    play_share(Brokers::Kafka);
}

fn play_share(brokers: Brokers) -> Duration {
    let (mut cells, _) = sorted();
    cells.retain(|(cell, _)| cell.brokers == brokers);
    let share = covering(&cells);
    let began = Instant::now();
    let tally = play(&share, AT_A_TIME);
    let took = began.elapsed();
    tell(&tally, share.len(), took);
    assert!(tally.failed.is_empty(), "{} cells failed:\n{}", tally.failed.len(), tally.failed.join("\n"));
    assert_eq!(tally.passed.len(), share.len());
    took
}

/// The table of docs/recovery.md is what is played, word for word.
#[test]
fn the_published_matrix_is_the_one_that_is_played() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/recovery.md");
    let page = fs::read_to_string(page).unwrap();
    let table = table();
    assert!(page.contains(&table), "docs/recovery.md has another table than this one:\n{table}");
}

/// Answers by strategies, for an epoch that is decided and in which nothing is ended, or whose positions are in its
/// transaction.
fn table() -> String {
    let header: Vec<&str> = With::ALL.iter().map(|with| with.name()).collect();
    let mut text = format!("| | {} |\n|{}\n", header.join(" | "), " --- |".repeat(header.len() + 1));
    for answer in Answer::ALL {
        let columns: Vec<String> = With::ALL.iter().map(|with| entry(*with, answer)).collect();
        text.push_str(&format!("| {} | {} |\n", answer.name(), columns.join(" | ")));
    }
    text
}

fn entry(with: With, answer: Answer) -> String {
    let at = |lanes| {
        let point = Cell::main_point(with, answer);
        let cell = Cell { brokers: Brokers::Ours, with, point, answer, lanes, protocol: Protocol::V2 };
        cell.expected().map_or("-", Expected::name)
    };
    match (at(Lanes::One), at(Lanes::Mixed)) {
        (one, mixed) if one == mixed => one.to_owned(),
        (one, mixed) => format!("{one}; mixed: {mixed}"),
    }
}

/// For `cargo xtask soak --matrix`.
#[test]
#[ignore = "all cells take a quarter of an hour: cargo xtask soak --matrix"]
fn at_length() {
    let only = env::var("HAPAX_MATRIX_ONLY").unwrap_or_default();
    let (mut cells, mut none) = sorted();
    cells.retain(|(cell, _)| cell.to_string().contains(&only));
    none.retain(|(cell, _)| cell.to_string().contains(&only));
    let began = Instant::now();
    let tally = play(&cells, AT_A_TIME_ALONE);
    tell(&tally, cells.len(), began.elapsed());
    if let Some(path) = env::var_os("HAPAX_MATRIX_REPORT") {
        fs::write(path, report(&tally, &none)).unwrap();
    }
    assert!(tally.failed.is_empty(), "{} cells failed:\n{}", tally.failed.len(), tally.failed.join("\n"));
    assert_eq!(tally.passed.len(), cells.len());
    assert!(cells.len() + none.len() > 0, "no cell's name contains {only:?}");
}

/// What a person reads: failed cells, cells that are none by reason, and one line of JSON.
fn report(tally: &Tally, none: &[(Cell, &'static str)]) -> String {
    let mut text = String::new();
    tally.failed.iter().for_each(|cell| text.push_str(&format!("failed: {cell}\n")));
    let mut reasons: BTreeMap<&str, Vec<Cell>> = BTreeMap::new();
    none.iter().for_each(|(cell, reason)| reasons.entry(reason).or_default().push(*cell));
    for (reason, cells) in reasons {
        text.push_str(&format!("not applicable, {} cells: {reason}\n", cells.len()));
        cells.iter().for_each(|cell| text.push_str(&format!("  {cell}\n")));
    }
    let on_kafka = tally.passed.iter().filter(|cell| cell.brokers == Brokers::Kafka).count();
    text.push_str(&format!("passed on Apache Kafka: {on_kafka} cells\n"));
    let (passed, failed) = (tally.passed.len(), tally.failed.len());
    let json = serde_json::json!({
        "cells": passed + failed + none.len(),
        "passed": passed,
        "failed": failed,
        "not_applicable": none.len(),
    });
    text.push_str(&format!("{json}\n"));
    text
}

/// The cells that there are, and those that are none with the reason.
fn sorted() -> (Vec<Wanted>, Vec<(Cell, &'static str)>) {
    let (mut cells, mut none) = (Vec::new(), Vec::new());
    for cell in Cell::all() {
        match cell.expected() {
            Ok(expected) => cells.push((cell, expected)),
            Err(reason) => none.push((cell, reason)),
        }
    }
    (cells, none)
}

/// Cells in which everything occurs that occurs at all: taken one by one, each time the one that shows the most that is
/// missing.
fn covering(cells: &[Wanted]) -> Vec<Wanted> {
    let mut missing: BTreeSet<_> = cells.iter().flat_map(|(cell, _)| pairs(*cell)).collect();
    let mut share = Vec::new();
    while !missing.is_empty() {
        let news = |cell: Cell| pairs(cell).filter(|pair| missing.contains(pair)).count();
        let best = cells.iter().rev().max_by_key(|(cell, _)| news(*cell)).expect("there are cells");
        pairs(best.0).for_each(|pair| {
            missing.remove(&pair);
        });
        share.push(*best);
    }
    share
}

/// What a cell shows, as pairs of names: on our brokers every pair of strategy and answer, of strategy and crash point, of
/// crash point and lanes, and of protocol and answer; on Apache Kafka each strategy, each answer, and each release with
/// one lane and with several.
fn pairs(cell: Cell) -> impl Iterator<Item = (String, String)> {
    let Cell { brokers, with, point, answer, lanes, protocol } = cell;
    let protocol = format!("{protocol:?}");
    let pairs = match brokers {
        Brokers::Ours => vec![
            (with.name().to_owned(), format!("{}, {}", answer.name(), lanes.name())),
            (point.to_string(), format!("{}, {protocol}", lanes.name())),
            (protocol, answer.name().to_owned()),
            (with.name().to_owned(), point.to_string()),
        ],
        Brokers::Kafka => vec![
            ("strategy".to_owned(), with.name().to_owned()),
            ("answer".to_owned(), answer.name().to_owned()),
            (protocol, lanes.name().to_owned()),
        ],
    };
    pairs.into_iter()
}

fn play(cells: &[Wanted], at_a_time: usize) -> Tally {
    let queue: Mutex<VecDeque<_>> = Mutex::new(cells.iter().copied().collect());
    let tally = Mutex::new(Tally::default());
    let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
    thread::scope(|scope| {
        for _ in 0..at_a_time {
            scope.spawn(|| {
                let judge = Judge::start().unwrap();
                while let Some((cell, expected)) = next() {
                    let outcome = play_one(cell, expected, &judge, &tally);
                    let mut tally = tally.lock().unwrap_or_else(PoisonError::into_inner);
                    match outcome {
                        Ok(()) => tally.passed.push(cell),
                        Err(why) => {
                            let _ = writeln!(io::stderr().lock(), "FAILED {cell}: {why}");
                            tally.failed.push(format!("{cell}: {why}"));
                        }
                    }
                    let played = tally.passed.len() + tally.failed.len();
                    if played % TOLD_EVERY == 0 {
                        let _ = writeln!(io::stderr().lock(), "{played} of {} cells played", cells.len());
                    }
                }
            });
        }
    });
    tally.into_inner().unwrap()
}

/// A cell's end; a panic in it is its failure, not the matrix's.
fn play_one(cell: Cell, expected: Expected, judge: &Judge, tally: &Mutex<Tally>) -> Result<(), String> {
    let name = cell.to_string().replace([' ', ','], "-");
    for _ in 0..TRIES {
        let played = panic::catch_unwind(AssertUnwindSafe(|| Scene::new(cell, &name, judge).play(expected)));
        match played {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(Unlucky(why))) => {
                let _ = writeln!(io::stderr().lock(), "again: {cell}: {why}");
                tally.lock().unwrap_or_else(PoisonError::into_inner).unlucky += 1;
            }
            Err(panic) => {
                let text = panic.downcast_ref::<String>().cloned();
                return Err(text
                    .or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
                    .unwrap_or_default());
            }
        }
    }
    Err(format!("its first run did not get into the wanted state in {TRIES} tries"))
}

fn tell(tally: &Tally, cells: usize, took: Duration) {
    let _ = writeln!(
        io::stderr().lock(),
        "commit phase: {} of {cells} cells passed in {:.1} s, {} first runs repeated",
        tally.passed.len(),
        took.as_secs_f64(),
        tally.unlucky
    );
}
