//! What must be there, what is there, and what of it is wrong: a ledger for each partition, kept while both grow.
//!
//! Knows of the job only what its users are told: orders above 100 are passed on as id, customer and amount, keyed as
//! they were, into the partition of the same number, in order. What should come out is worked out here from what
//! went in, by no code that the job runs.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::{HashMap, VecDeque};

/// Counts of all partitions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Tally {
    /// Records in the input.
    pub(crate) input: u64,
    /// Of them, those whose id came before: their writer writes at least once, and the job passes each of them on.
    pub(crate) repeated: u64,
    /// Records that must come out.
    pub(crate) expected: u64,
    /// Records that are out, whatever they are.
    pub(crate) output: u64,
    /// Expected records that are not there although a later one of their partition is.
    pub(crate) missing: u64,
    /// Expected records behind the last of their partition that is there: still to come.
    pub(crate) pending: u64,
    /// Records that came again, more often than they went in.
    pub(crate) duplicated: u64,
    /// Records that came behind a later one.
    pub(crate) reordered: u64,
    /// Records that nobody expects, or not as they are.
    pub(crate) foreign: u64,
    /// Both topics were read to their ends, so what is not there is lost.
    pub(crate) complete: bool,
}

/// A record, as far as it counts.
pub(super) struct Record<'a> {
    pub(super) key: Option<&'a [u8]>,
    pub(super) value: Option<&'a [u8]>,
}

/// What is expected of one record.
struct Expected {
    key: Option<Vec<u8>>,
    value: Value,
    seen: bool,
}

/// One partition of the input and of the output.
#[derive(Default)]
pub(super) struct Ledger {
    tally: Tally,
    expected: Vec<Expected>,
    /// Ids of the input with the places of what is expected of them: none for a small order, several for one that was
    /// written again.
    places: HashMap<u64, Vec<usize>>,
    /// What has come more often than it is expected so far. It may be that its input is not read yet.
    surplus: HashMap<u64, u64>,
    /// Expected records up to the last that has come: one behind it.
    reach: usize,
    /// Of those, how many have come.
    found: usize,
    /// Output whose input is not read yet.
    early: VecDeque<(Option<Vec<u8>>, Option<Value>)>,
}

impl Ledger {
    /// A record of the input.
    pub(super) fn input(&mut self, record: &Record<'_>) {
        self.tally.input += 1;
        let order: Option<Value> = record.value.and_then(|value| serde_json::from_slice(value).ok());
        let Some((id, order)) = order.and_then(|order| Some((order["id"].as_u64()?, order))) else {
            self.tally.foreign += 1;
            return;
        };
        let at = self.expected.len();
        let is_large = order["amount"].as_f64().is_some_and(|amount| amount > 100.0);
        self.tally.repeated += u64::from(self.places.contains_key(&id));
        let places = self.places.entry(id).or_default();
        if is_large {
            places.push(at);
            let value = json!({ "id": id, "customer": order["customer"], "amount": order["amount"] });
            self.expected.push(Expected { key: record.key.map(<[u8]>::to_vec), value, seen: false });
            self.tally.expected += 1;
            if let Some(surplus) = self.surplus.get_mut(&id).filter(|surplus| **surplus > 0) {
                *surplus -= 1;
                self.tally.duplicated -= 1;
                self.found_at(at);
            }
        }
        while let Some((key, value)) = self.early.pop_front() {
            if self.places_of(value.as_ref()).is_none() {
                self.early.push_front((key, value));
                break;
            }
            self.settle(key.as_deref(), value.as_ref());
        }
    }

    /// A record of the output.
    pub(super) fn output(&mut self, record: &Record<'_>) {
        self.tally.output += 1;
        let value: Option<Value> = record.value.and_then(|value| serde_json::from_slice(value).ok());
        if self.early.is_empty() && self.places_of(value.as_ref()).is_some() {
            self.settle(record.key, value.as_ref());
        } else {
            self.early.push_back((record.key.map(<[u8]>::to_vec), value));
        }
    }

    /// No more comes.
    pub(super) fn close(&mut self) {
        while let Some((key, value)) = self.early.pop_front() {
            self.settle(key.as_deref(), value.as_ref());
        }
        self.tally.complete = true;
    }

    pub(super) fn tally(&self) -> Tally {
        let behind = if self.tally.complete { self.expected.len() } else { self.reach };
        // What came behind a record whose input is not read, or that nobody expects, is out already.
        let is_expected = |value: Option<&Value>| self.places_of(value).is_some_and(|at| !at.is_empty());
        let out = self.early.iter().filter(|(_, value)| is_expected(value.as_ref())).count();
        let pending = (self.expected.len() - behind).saturating_sub(out) as u64;
        Tally { missing: (behind - self.found) as u64, pending, ..self.tally }
    }

    /// The places of an order whose input is read.
    fn places_of(&self, value: Option<&Value>) -> Option<&[usize]> {
        self.places.get(&value?["id"].as_u64()?).map(Vec::as_slice)
    }

    fn settle(&mut self, key: Option<&[u8]>, value: Option<&Value>) {
        let fits = |expected: &Expected| Some(&expected.value) == value && expected.key.as_deref() == key;
        let places = self.places_of(value).into_iter().flatten().copied();
        let fitting: Vec<usize> = places.filter(|at| fits(&self.expected[*at])).collect();
        let Some(first) = fitting.first() else {
            self.tally.foreign += 1;
            return;
        };
        if let Some(at) = fitting.iter().copied().find(|at| !self.expected[*at].seen) {
            self.found_at(at);
        } else if let Some(id) = self.expected[*first].value["id"].as_u64() {
            *self.surplus.entry(id).or_default() += 1;
            self.tally.duplicated += 1;
        }
    }

    fn found_at(&mut self, at: usize) {
        self.expected[at].seen = true;
        self.found += 1;
        self.tally.reordered += u64::from(at < self.reach);
        self.reach = self.reach.max(at + 1);
    }
}

impl Tally {
    /// Both together.
    pub(super) fn and(self, other: Self) -> Self {
        Self {
            input: self.input + other.input,
            repeated: self.repeated + other.repeated,
            expected: self.expected + other.expected,
            output: self.output + other.output,
            missing: self.missing + other.missing,
            pending: self.pending + other.pending,
            duplicated: self.duplicated + other.duplicated,
            reordered: self.reordered + other.reordered,
            foreign: self.foreign + other.foreign,
            complete: self.complete && other.complete,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(id: u64) -> (String, String) {
        let amount = id * 37 % 1_000;
        let input = format!(r#"{{"id":{id},"customer":"c{id}","amount":{amount}.50,"currency":"EUR"}}"#);
        (input, format!(r#"{{"id":{id},"customer":"c{id}","amount":{amount}.5}}"#))
    }

    fn record<'a>(key: Option<&'a [u8]>, text: &'a str) -> Record<'a> {
        Record { key, value: Some(text.as_bytes()) }
    }

    /// Everything goes in, then these come out.
    fn ledger(count: u64, out: &[u64]) -> Ledger {
        let mut ledger = Ledger::default();
        (0..count).for_each(|id| ledger.input(&record(Some(b"k"), &order(id).0)));
        out.iter().for_each(|id| ledger.output(&record(Some(b"k"), &order(*id).1)));
        ledger
    }

    fn counts(mut ledger: Ledger) -> [u64; 4] {
        ledger.close();
        let Tally { missing, duplicated, reordered, foreign, .. } = ledger.tally();
        [missing, duplicated, reordered, foreign]
    }

    #[test]
    fn large_orders_in_order_are_right() {
        let ledger = ledger(6, &[3, 4, 5]);
        assert_eq!((ledger.tally().expected, ledger.tally().pending), (3, 0));
        assert_eq!(counts(ledger), [0, 0, 0, 0]);
    }

    #[test]
    fn what_is_wrong_is_counted_as_what_it_is() {
        assert_eq!(counts(ledger(6, &[3, 5])), [1, 0, 0, 0]);
        assert_eq!(counts(ledger(6, &[3, 4])), [1, 0, 0, 0]);
        assert_eq!(counts(ledger(6, &[3, 4, 3, 5])), [0, 1, 0, 0]);
        assert_eq!(counts(ledger(6, &[3, 5, 4])), [0, 0, 1, 0]);
        assert_eq!(counts(ledger(6, &[3, 4, 5, 1, 9])), [0, 0, 0, 2]);
    }

    #[test]
    fn a_gap_is_seen_while_records_come_and_the_future_is_not_one() {
        assert_eq!(ledger(6, &[3, 5]).tally().missing, 1);
        assert_eq!(ledger(6, &[3]).tally().missing, 0);
        assert_eq!(ledger(6, &[3]).tally().pending, 2);
        assert_eq!(ledger(6, &[3, 5]).tally().pending, 0);
    }

    #[test]
    fn output_that_is_read_before_its_input_waits_for_it() {
        let mut ledger = Ledger::default();
        [3, 4].iter().for_each(|id| ledger.output(&record(None, &order(*id).1)));
        assert_eq!(ledger.tally().foreign, 0);
        (0..6).for_each(|id| ledger.input(&record(None, &order(id).0)));
        ledger.output(&record(None, &order(5).1));
        assert_eq!(counts(ledger), [0, 0, 0, 0]);
    }

    #[test]
    fn a_changed_value_or_key_is_foreign_and_the_record_is_missing() {
        let mut other = ledger(6, &[3, 4]);
        other.output(&record(Some(b"k"), r#"{"id":5,"customer":"c5","amount":1}"#));
        assert_eq!(counts(other), [1, 0, 0, 1]);
        let mut other = ledger(6, &[3, 4]);
        other.output(&record(None, &order(5).1));
        assert_eq!(counts(other), [1, 0, 0, 1]);
    }

    #[test]
    fn what_nobody_expects_keeps_no_one_waiting() {
        let small = ledger(6, &[3, 1, 4, 5]).tally();
        assert_eq!((small.pending, small.foreign), (0, 1));
        assert_eq!(ledger(6, &[3, 9, 4]).tally().pending, 1);
        assert_eq!(ledger(6, &[3, 9, 4, 5]).tally().pending, 0);
        assert_eq!(counts(ledger(6, &[3, 9, 4, 5])), [0, 0, 0, 1]);
    }

    #[test]
    fn what_was_written_again_is_expected_again() {
        let again = |out: &[u64]| {
            let mut ledger = ledger(6, &[]);
            [3, 5].iter().for_each(|id| ledger.input(&record(Some(b"k"), &order(*id).0)));
            assert_eq!((ledger.tally().repeated, ledger.tally().expected), (2, 5));
            out.iter().for_each(|id| ledger.output(&record(Some(b"k"), &order(*id).1)));
            counts(ledger)
        };
        assert_eq!(again(&[3, 4, 5, 3, 5]), [0, 0, 0, 0]);
        assert_eq!(again(&[3, 4, 5]), [2, 0, 0, 0], "the job passes on what it reads");
        assert_eq!(again(&[3, 4, 5, 3, 3, 5]), [0, 1, 0, 0]);
    }

    #[test]
    fn what_was_written_again_may_come_out_before_it_is_read() {
        let mut ledger = ledger(6, &[3, 4, 5, 3]);
        assert_eq!(ledger.tally().duplicated, 1, "so far");
        ledger.input(&record(Some(b"k"), &order(3).0));
        assert_eq!(ledger.tally().pending, 0);
        assert_eq!(counts(ledger), [0, 0, 0, 0]);
    }

    #[test]
    fn all_partitions_together_are_complete_when_each_is() {
        let complete = |complete| Tally { complete, ..Tally::default() };
        assert!(complete(true).and(complete(true)).complete);
        assert!(!complete(true).and(complete(false)).complete);
        assert!(!complete(false).and(complete(true)).complete);
    }
}
