//! The matrix of the commit phase: strategy x crash point x what became of the transactions x {V1, V2} x {one lane, mixed
//! lanes}, on the broker of this repository. See [`plan`] for the cells and [`scene`] for how one is played.
//!
//! An ordinary run plays a share of the cells in which every pair of strategy and answer, and every crash point,
//! occurs; `cargo xtask soak --matrix` plays all.

mod answer;
mod plan;
mod scene;

use plan::{Cell, Expected};
use scene::{Scene, Unlucky};
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    env,
    io::{self, Write},
    panic::{self, AssertUnwindSafe},
    sync::{Mutex, PoisonError},
    thread,
};
use xtask::judge::Judge;

/// Cells at a time.
const AT_A_TIME: usize = 3;

/// A cell is played again where its first run did not get into the wanted state: a machine that stalls has epochs with
/// too few lanes.
const TRIES: usize = 5;

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
    let (cells, _) = sorted();
    let share = covering(&cells);
    let tally = play(&share);
    tell(&tally, share.len());
    assert!(tally.failed.is_empty(), "{} cells failed:\n{}", tally.failed.len(), tally.failed.join("\n"));
    assert_eq!(tally.passed.len(), share.len());
}

/// For `cargo xtask soak --matrix`.
#[test]
#[ignore = "all cells take an hour: cargo xtask soak --matrix"]
fn at_length() {
    let (cells, none) = sorted();
    let only = env::var("HAPAX_MATRIX_ONLY").unwrap_or_default();
    let cells: Vec<_> = cells.into_iter().filter(|(cell, _)| cell.to_string().contains(&only)).collect();
    let tally = play(&cells);
    tell(&tally, cells.len());
    let mut out = io::stdout().lock();
    let mut reasons: BTreeMap<&str, Vec<Cell>> = BTreeMap::new();
    none.iter().for_each(|(cell, reason)| reasons.entry(reason).or_default().push(*cell));
    for (reason, cells) in &reasons {
        writeln!(out, "not applicable: {reason}").unwrap();
        cells.iter().for_each(|cell| writeln!(out, "  {cell}").unwrap());
    }
    let report = serde_json::json!({
        "cells": cells.len() + none.len(),
        "passed": tally.passed.len(),
        "failed": tally.failed.len(),
        "not_applicable": none.len(),
    });
    writeln!(out, "{report}").unwrap();
    drop(out);
    assert!(tally.failed.is_empty(), "{} cells failed:\n{}", tally.failed.len(), tally.failed.join("\n"));
}

/// The cells that there are, and those that are none with the reason.
fn sorted() -> (Vec<(Cell, Expected)>, Vec<(Cell, &'static str)>) {
    let (mut cells, mut none) = (Vec::new(), Vec::new());
    for cell in Cell::all() {
        match cell.expected() {
            Ok(expected) => cells.push((cell, expected)),
            Err(reason) => none.push((cell, reason)),
        }
    }
    (cells, none)
}

/// Cells in which every pair of strategy and answer, of crash point and lanes, and of protocol and answer occurs that
/// occurs at all: taken one by one, each time the one with the most pairs that are missing.
fn covering(cells: &[(Cell, Expected)]) -> Vec<(Cell, Expected)> {
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

/// What a cell shows, as pairs of names.
fn pairs(cell: Cell) -> impl Iterator<Item = (String, String)> {
    let Cell { with, point, answer, lanes, protocol } = cell;
    [
        (with.name().to_owned(), format!("{}, {}", answer.name(), lanes.name())),
        (point.to_string(), format!("{}, {protocol:?}", lanes.name())),
        (format!("{protocol:?}"), answer.name().to_owned()),
        (with.name().to_owned(), point.to_string()),
    ]
    .into_iter()
}

fn play(cells: &[(Cell, Expected)]) -> Tally {
    let queue: Mutex<VecDeque<_>> = Mutex::new(cells.iter().copied().collect());
    let tally = Mutex::new(Tally::default());
    let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
    thread::scope(|scope| {
        for _ in 0..AT_A_TIME {
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
                }
            });
        }
    });
    tally.into_inner().unwrap()
}

/// A cell's end; a panic in it is its failure, not the matrix's.
fn play_one(cell: Cell, expected: Expected, judge: &Judge, tally: &Mutex<Tally>) -> Result<(), String> {
    let name = cell.to_string().replace(' ', "-");
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

fn tell(tally: &Tally, cells: usize) {
    let _ = writeln!(
        io::stderr().lock(),
        "commit phase: {} of {cells} cells passed, {} first runs repeated",
        tally.passed.len(),
        tally.unlucky
    );
}
