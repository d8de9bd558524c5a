//! What remembers a job that gains or loses its checkpoint store: bookmarks, ids, the topic of its own, the store's record.
//!
//! Brokers forget bookmarks and ids of a job that is stopped for a week. Whatever is forgotten or missing, a job that has run
//! goes on exactly or is refused, and is never begun again by itself.

use super::{Case, On, PARTITIONS, TOTAL, judges, loss::STORE};
use crate::command_line::Ended;
use hapax_broker::{ApiKey, Rule};
use std::fs;
use xtask::judge::GroupOffset;

/// With the decider that the job has, with another one, and with the default, which a store changes.
const DECIDERS: [(&str, i32, &str); 3] = [
    ("decider = \"transaction\"\n", 4, "E0401"),
    ("decider = \"checkpoint\"\n", 2, "E0205"),
    ("", 2, "E0205"),
];

/// What brokers know of a job: bookmarks, ids with their states, and the end of what it has written.
type Known = (Vec<GroupOffset>, Vec<(String, String)>, Vec<i64>);

impl Case {
    fn known(&self) -> Known {
        let bounds = judges().reader.end_offsets(&self.bootstrap, &self.sink()).unwrap();
        (self.offsets(), self.listed(), bounds.iter().map(|bounds| bounds.end).collect())
    }

    /// Dies behind its first commits, with transactions open.
    fn dies_with_open_transactions(&self) {
        let ended = self.run(&["--crash-at", &format!("K1o:{}", 2 * PARTITIONS + 2)]);
        assert_eq!(ended.code, None, "{}", ended.err);
        assert!(!self.open().is_empty(), "the one whose offsets are sent is open");
    }

    fn set_decider(&self, line: &str) {
        let text = fs::read_to_string(&self.file).unwrap();
        let lines = text.lines().filter(|line| !line.starts_with("decider ="));
        let text: String = lines.map(|line| format!("{line}\n")).collect();
        fs::write(&self.file, line.to_owned() + &text).unwrap();
    }

    /// Given an empty store, it is refused by whatever decider, and neither the brokers' view nor the store has changed.
    fn assert_refused_with_a_store(&self) {
        let before = self.known();
        self.give_store();
        for (line, code, says) in DECIDERS {
            self.set_decider(line);
            let ended = self.run(&[]);
            ended.says(code, says);
            assert_eq!(self.known(), before, "nothing was touched: {}", ended.err);
            assert!(!self.store().join(&self.job).exists(), "{says}: the store has no record");
        }
        self.take_store();
        self.set_decider("decider = \"transaction\"\n");
    }

    fn finishes(&self, when: &str) -> Ended {
        let ended = self.run(&[]);
        assert_eq!(ended.code, Some(0), "{when}: {}", ended.err);
        self.assert_done(when);
        ended
    }
}

#[test]
fn a_job_without_a_store_that_is_given_one_is_refused_and_goes_on_without_it() {
    for version in [0, 2] {
        let case = Case::new(&format!("given v{version}"), On::Ours(version), "");
        let mut feed = case.feed();
        case.dies_with_open_transactions();
        assert_eq!(feed.join().unwrap(), TOTAL);
        case.assert_refused_with_a_store();
        case.finishes("without a store, as before");
        case.assert_refused_with_a_store();
    }
}

/// The topic of its own is all that is left; a store, whose default is decider `checkpoint`, would begin it again.
#[test]
fn a_job_without_a_store_that_brokers_have_forgotten_is_no_first_start_with_one() {
    let case = Case::new("given late", On::Ours(2), "");
    let feed = case.feed();
    case.half_done();
    drop(feed);
    case.let_expire();
    case.assert_refused_with_a_store();
    case.run(&[]).says(4, "E0420");
    case.give_store();
    for (line, ..) in DECIDERS {
        case.set_decider(line);
        case.run(&[]).says(if line.contains("transaction") { 4 } else { 2 }, "--fresh");
    }
}

#[test]
fn a_job_that_loses_its_store_goes_on_without_it_and_with_it_again() {
    for version in [0, 2] {
        let case = Case::new(&format!("lost v{version}"), On::Ours(version), STORE);
        let mut feed = case.feed();
        case.dies_with_open_transactions();
        case.take_store();
        case.dies_with_open_transactions();
        case.give_store();
        case.dies_with_open_transactions();
        case.take_store();
        assert_eq!(feed.join().unwrap(), TOTAL);
        case.finishes("without its store");
        case.give_store();
        let ended = case.finishes("with its store again");
        assert!(ended.err.contains("finished already"), "{}", ended.err);
    }
}

/// Taken out of the file, or another one in its place, and brokers that have forgotten the job meanwhile.
#[test]
fn a_job_that_loses_its_store_when_brokers_have_forgotten_it_is_no_first_start() {
    let case = Case::new("lost late", On::Ours(2), STORE);
    let feed = case.feed();
    case.half_done();
    drop(feed);
    case.let_expire();
    let before = case.known();
    let other = format!("checkpoint.store=file://{}", case.folder.join("other").display());
    case.run(&["--set", &other]).says(4, "E0401");
    case.run(&["--set", &other, "--set", "decider=checkpoint"]).says(2, "E0205");
    case.take_store();
    case.run(&[]).says(4, "E0420");
    assert_eq!(case.known(), before, "nothing was touched");
    case.give_store();
    case.run(&[]).says(4, "E0420");
}

/// Offsets, ids and the topic of its own: with the last one that it is known by gone, nobody can tell.
#[test]
fn a_job_that_nothing_remembers_is_a_first_start() {
    let case = Case::new("forgotten", On::Ours(2), "");
    case.fill();
    case.finishes("the first time");
    case.let_expire();
    case.run(&[]).says(4, "E0420");
    judges().reader.delete_topic(&case.bootstrap, &format!("{}.progress", case.job)).unwrap();
    let ended = case.run(&["--json"]);
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    assert_eq!(ended.summary()["records_out"], TOTAL, "all of it comes a second time");
}

/// A first start dies with its record in the store alone, and the job is begun without a store.
#[test]
fn a_record_of_a_life_that_never_began_begins_no_job_that_has_run_without_it() {
    for lost in ["nothing", "offsets", "all"] {
        let case = Case::new(&format!("unbegun {lost}"), On::Ours(2), STORE);
        let rule = Rule::on(ApiKey::InitProducerId).always().error(53);
        let guard = case.hosted.as_ref().unwrap().broker.faults().guard(rule).unwrap();
        let ended = case.run(&["--set", "run.start_timeout=2s"]);
        assert_eq!(ended.code, Some(3), "{}", ended.err);
        assert!(guard.fired() > 0 && case.store().join(&case.job).exists(), "the record is there");
        drop(guard);
        case.take_store();
        let mut feed = case.feed();
        case.half_done();
        assert_eq!(feed.join().unwrap(), TOTAL);
        case.give_store();
        match lost {
            "offsets" => case.groups(&["--delete-offsets", "--topic", &case.source()]),
            "all" => case.let_expire(),
            _ => {}
        }
        let seen = || (case.offsets(), case.read(&case.sink()));
        let before = seen();
        let ended = case.run(&[]);
        ended.says(4, "--fresh");
        assert_eq!(seen(), before, "nothing was committed: {}", ended.err);
        if lost == "nothing" {
            case.take_store();
            case.finishes("without the store, as before");
        }
    }
}
