//! Offsets that are missing, reset or expired: a person's business, never a first start.

use super::{Case, On, PARTITIONS, TOTAL, judges};
use std::{fs, path::PathBuf, process::Command};
use xtask::{
    judge::GroupOffset,
    kafka::{Version, transactions},
    tools::Tools,
};

const GROUPS: &str = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand";
const EIGHT_DAYS_MS: i64 = 8 * 24 * 60 * 60 * 1_000;

pub(super) const STORE: &str =
    "[checkpoint]\nstore = \"file://PATH/store\"\nincidents = \"PATH/incidents\"\ninterval = \"60ms\"";

impl Case {
    /// Apache Kafka's own tool, at any broker.
    pub(super) fn groups(&self, arguments: &[&str]) {
        let tools = Tools::new(Version::V4_4).unwrap();
        let all = [&["--bootstrap-server", &self.bootstrap, "--group", &self.job][..], arguments].concat();
        let output = tools.run(GROUPS, &all).unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{text}");
    }

    /// Half done: the job has begun and is not finished.
    pub(super) fn half_done(&self) {
        let ended = self.run(&["--crash-at", &format!("K5:{}", 2 * PARTITIONS)]);
        assert_eq!(ended.code, None, "{}", ended.err);
    }

    /// Nobody runs it for as long as brokers keep offsets and ids.
    pub(super) fn let_expire(&self) {
        self.hosted.as_ref().unwrap().broker.jump_clock(EIGHT_DAYS_MS).unwrap();
        let began = std::time::Instant::now();
        while !self.offsets().is_empty() || !transactions(&self.bootstrap).unwrap().is_empty() {
            assert!(began.elapsed() < super::PATIENCE, "offsets and ids expire");
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
    }

    /// From the next start on it has a store, which is empty, or its own again.
    pub(super) fn give_store(&self) {
        let store = format!("[checkpoint]\nstore = \"file://{}\"\n", self.store().display());
        let text = fs::read_to_string(&self.file).unwrap();
        fs::write(&self.file, text.replace("[checkpoint]\n", &store)).unwrap();
    }

    /// From the next start on the file names no store.
    pub(super) fn take_store(&self) {
        let text = fs::read_to_string(&self.file).unwrap();
        let without: Vec<&str> = text.lines().filter(|line| !line.starts_with("store =")).collect();
        fs::write(&self.file, without.join("\n")).unwrap();
    }

    /// A tool that puts back offsets with what stands beside them, which Apache Kafka's own cannot.
    fn put_back(&self, offsets: &[GroupOffset]) {
        let place = |found: &GroupOffset| {
            let GroupOffset { topic, partition, offset, metadata } = found;
            format!("TopicPartition({topic:?}, {partition}): OffsetAndMetadata({offset}, {metadata:?})")
        };
        let places: Vec<String> = offsets.iter().map(place).collect();
        let script = format!(
            "import asyncio\n\
             from aiokafka import AIOKafkaConsumer\n\
             from aiokafka.structs import OffsetAndMetadata, TopicPartition\n\
             places = {{{}}}\n\
             async def put_back():\n    \
                 consumer = AIOKafkaConsumer(bootstrap_servers={:?}, group_id={:?}, enable_auto_commit=False)\n    \
                 consumer.assign(list(places))\n    \
                 await consumer.start()\n    \
                 await consumer.commit(places)\n    \
                 await consumer.stop()\n\
             asyncio.run(put_back())\n",
            places.join(", "),
            self.bootstrap,
            self.job,
        );
        let mut command = Command::new(xtask::judge::python().unwrap());
        assert!(command.args(["-c", &script]).status().unwrap().success());
    }

    pub(super) fn store(&self) -> PathBuf {
        self.folder.join("store")
    }
}

#[test]
fn offsets_that_a_tool_has_reset_stop_the_job_and_fresh_begins_anew() {
    let case = Case::new("reset", On::Ours(2), "");
    let feed = case.feed();
    case.half_done();
    drop(feed);
    case.groups(&[
        "--reset-offsets",
        "--to-earliest",
        "--execute",
        "--topic",
        &format!("{}:1", case.source()),
    ]);
    let ended = case.run(&[]);
    ended.says(4, "E0420");
    ended.says(4, &format!("the committed offset of {}-1: nothing stands beside the offset", case.source()));
    ended.says(4, "--fresh");
}

/// Nothing tells an older set of bookmarks from the newest one, if it is whole.
#[test]
fn offsets_that_are_set_back_with_what_stands_beside_them_are_believed() {
    let case = Case::new("set-back", On::Ours(2), "");
    case.fill();
    assert_eq!(case.run(&["--crash-at", "K0:1"]).code, None);
    let older = case.offsets();
    assert_eq!(case.run(&[]).code, Some(0));
    case.assert_done("before");
    case.put_back(&older);
    assert_eq!(case.offsets(), older);
    let ended = case.run(&["--json"]);
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    assert_eq!(ended.summary()["records_out"], TOTAL, "all of it comes a second time");
}

#[test]
fn an_offset_that_is_missing_among_others_is_named() {
    let case = Case::new("missing", On::Ours(2), "");
    let feed = case.feed();
    case.half_done();
    drop(feed);
    case.groups(&["--delete-offsets", "--topic", &format!("{}:2", case.source())]);
    case.run(&[]).says(4, &format!("without a committed offset: {}-2", case.source()));
}

#[test]
fn offsets_that_are_all_gone_are_no_first_start_while_coordinators_know_the_job() {
    let case = Case::new("all-gone", On::Ours(2), "");
    let feed = case.feed();
    case.half_done();
    drop(feed);
    case.groups(&["--delete-offsets", "--topic", &case.source()]);
    case.run(&[]).says(4, "it has run before: the brokers know");
}

/// After a week brokers have forgotten offsets and ids alike; a store has not, and neither has a topic.
#[test]
fn a_job_that_was_down_for_longer_than_brokers_remember_it_is_no_first_start() {
    for store in ["", STORE] {
        let case = Case::new(&format!("expired {}", store.len()), On::Ours(2), store);
        let feed = case.feed();
        case.half_done();
        drop(feed);
        case.let_expire();
        let ended = case.run(&[]);
        ended.says(4, "E0420");
        ended.says(4, "--fresh");
    }
}

#[test]
fn a_foreign_offset_in_the_group_of_a_new_job_stops_it() {
    let case = Case::new("foreign", On::Ours(2), "");
    case.fill();
    case.groups(&["--reset-offsets", "--to-earliest", "--execute", "--topic", &case.source()]);
    case.run(&[]).says(4, "nothing stands beside the offset");
    let ended = case.run(&["--fresh"]);
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    case.assert_done("begun anew");
    assert_eq!(judges().reader.group_offsets(&case.bootstrap, &case.job).unwrap().len(), PARTITIONS as usize);
}

#[test]
fn a_job_does_not_flip_its_decider() {
    let case = Case::new("flip", On::Ours(2), STORE);
    case.fill();
    assert_eq!(case.run(&[]).code, Some(0));
    let ended = case.run(&["--set", "decider=checkpoint"]);
    ended.says(
        2,
        "created with decider \"transaction\", and it would run with \"checkpoint\", as the file says",
    );
    // Also where the store is another one.
    let other = format!("checkpoint.store=file://{}", case.folder.join("other").display());
    let ended = case.run(&["--set", "decider=checkpoint", "--set", &other]);
    ended.says(2, "say that it runs with decider \"transaction\"");
    case.assert_done("untouched");
}

#[test]
fn a_checkpoint_job_does_not_become_a_transaction_job() {
    let case = Case::new("flip-back", On::Ours(2), STORE);
    case.fill();
    let ended = case.run(&["--set", "decider=checkpoint"]);
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    case.run(&[]).says(2, "created with decider \"checkpoint\", and it would run with \"transaction\"");
    // Without its store there is nothing but the brokers to remember it.
    case.take_store();
    case.run(&[]).says(4, "it has run before");
    case.assert_exact("untouched");
}
