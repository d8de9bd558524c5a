//! One cell, played: a bounded job that dies at its point in its third epoch, what becomes of its transactions, and the
//! runs that follow, audited by librdkafka.

use super::{
    answer::Brought,
    place::Place,
    plan::{Answer, Brokers, Cell, EPOCH, Expected, Lanes, With, in_doubt},
};
use crate::{
    command_line::{Bench, Ended, hapax},
    harness::unique,
};
use hapax::crash::Point;
use hapax_broker::{Afterwards, ApiKey, Rule, Step};
use std::{
    collections::BTreeSet,
    fs,
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};
use tokio::runtime::{Builder, Runtime};
use xtask::judge::{Isolation, Judge, Read};

/// Everything takes seconds; this covers a machine that is busy with other tests.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// A job that was down for longer than its timeout goes on within this, whatever is wrong with its transactions.
pub(super) const GOES_ON_WITHIN: Duration = Duration::from_secs(30);

/// Written to a socket of this machine.
const REQUEST_ARRIVES_WITHIN: Duration = Duration::from_secs(2);

const RECORDS: u64 = 1_200;

/// So that a transaction can be torn.
const PARTITIONS_OF_A_LANE: u64 = 2;

/// What a cell that cannot be played as wanted is worth: it is played again.
pub(super) struct Unlucky(pub(super) String);

pub(super) struct Scene<'a> {
    pub(super) cell: Cell,
    pub(super) place: Place,
    pub(super) runtime: Runtime,
    pub(super) judge: &'a Judge,
    pub(super) job: String,
    pub(super) topic: String,
    bench: Bench,
}

/// Offset and number of each record, by partition.
type Log = Vec<Vec<(i64, u64)>>;

impl<'a> Scene<'a> {
    /// A broker, its topic, and a job that is not started.
    pub(super) fn new(cell: Cell, name: &str, judge: &'a Judge) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let place = Place::of(cell, &runtime);
        let job = unique(&format!("cell-{}", NEXT.fetch_add(1, Ordering::Relaxed)));
        let topic = format!("{job}-out");
        judge.create_topic(&place.bootstrap(), &topic, partitions(cell) as u32, &[]).unwrap();
        let text = pipeline(cell, &place, &job, &topic);
        Self {
            cell,
            place,
            runtime,
            judge,
            job,
            topic,
            bench: Bench::new(&format!("commit-phase/{name}"), &text),
        }
    }

    /// The cell, from the death of the first run to the audit.
    pub(super) fn play(&self, expected: Expected) -> Result<(), Unlucky> {
        self.lose_ends();
        self.die()?;
        self.await_lost_ends()?;
        let left = self.left()?;
        // What the dead process had sent may be read late: until here, behind many answers to others.
        if let Some(faults) = self.place.faults() {
            faults.clear();
        }
        let written = self.read(Isolation::ReadUncommitted);
        let Brought { silence, torn } = self.apply(&left)?;
        let began = Instant::now();
        match expected {
            Expected::Exact => {
                self.run(&[]).ends_well();
                assert!(began.elapsed() < GOES_ON_WITHIN, "it took {:?}", began.elapsed());
                self.assert_exact();
            }
            Expected::StopsThenExact => {
                self.run(&[]).says(4, "E0404");
                assert!(self.incidents().iter().any(|one| one["code"] == "E0404"), "{:?}", self.incidents());
                self.run(&["--recover", "rewrite"]).ends_well();
                self.assert_exact();
            }
            Expected::ListsMissing => {
                self.run(&[]).ends_well();
                assert!(began.elapsed() < GOES_ON_WITHIN, "it took {:?}", began.elapsed());
                self.assert_missing_are_listed(&written, &torn, self.cell.with == With::SetAside);
            }
            Expected::StopsThenLists => {
                (0..2).for_each(|_| self.run(&[]).says(4, "E0404"));
                self.give_up_torn(&written, &torn);
            }
            Expected::Contradiction => {
                self.run(&[]).says(4, "E0404");
                for id in &left {
                    self.txn(&["abort", id, "--decided"]).ends_well();
                }
                self.run(&["--recover", "rewrite"]).ends_well();
                self.assert_exact();
            }
            Expected::WaitsThenExact => {
                let gives_up = match self.cell.brokers {
                    Brokers::Ours => "run.start_timeout=1500ms",
                    Brokers::Kafka => "run.start_timeout=5s",
                };
                self.run(&["--set", gives_up]).says(3, "E0301");
                drop(silence);
                self.run(&[]).ends_well();
                self.assert_exact();
            }
        }
        Ok(())
    }

    /// By a person who reads the incident. Where a journal is kept it is needed, since the log's cleaner takes aborted
    /// records first.
    fn give_up_torn(&self, written: &Log, torn: &[i32]) {
        if self.cell.with != With::Replay {
            self.run(&["--recover", "abandon"]).ends_well();
            return self.assert_missing_are_listed(written, torn, false);
        }
        let is_cleaned = self.cell.brokers == Brokers::Ours;
        if is_cleaned {
            for partition in 0..partitions(self.cell) as i32 {
                self.place.step(Step::Compact { topic: self.topic.clone(), partition });
            }
        }
        let ended = self.run(&["--recover", "set-aside"]).ends_well();
        let origin =
            if is_cleaned { "records aside, from the journal" } else { "records aside, from the log" };
        assert!(ended.err.contains(origin), "{}", ended.err);
        self.assert_missing_are_listed(written, torn, true);
    }

    /// At K3 the request to end a lane is sent; where its lane is not to be committed, it gets lost on the way. So do those
    /// of lanes that decide for themselves, when one of them is at its end.
    fn lose_ends(&self) {
        let Cell { with, point, answer, lanes, .. } = self.cell;
        let is_sent = match (point, with, lanes) {
            (Point::K3EndTxnSent, _, _) => true,
            (Point::K4Ended | Point::K5Proven, With::Transaction, Lanes::Mixed) => true,
            (_, _, _) => false,
        };
        if !is_sent || answer == Answer::Committed {
            return;
        }
        let lost = match lanes {
            Lanes::One => 0..1,
            Lanes::Mixed => 1..lanes.count(),
        };
        for shard in lost {
            let id = format!("{}.main.{shard}.{}", self.job, EPOCH % 3);
            let rule = Rule::on(ApiKey::EndTxn).transactional_id(id);
            // Under decider `transaction` the first one of shard 0 there is that of genesis.
            let rule = match (with, shard) {
                (With::Transaction, 0) => rule.nth(2),
                // Once: a run that does not die for it goes on.
                (With::Transaction, _) => rule.nth(1),
                (_, _) => rule.always(),
            };
            let faults = self.place.faults().expect("requests can be lost here");
            faults.add(rule.drop_request(Afterwards::Hang)).unwrap();
        }
    }

    /// The one lane's request has got lost. Of several lanes the run may have died before it sent the others'.
    fn await_lost_ends(&self) -> Result<(), Unlucky> {
        let Some(faults) = self.place.faults() else { return Ok(()) };
        let began = Instant::now();
        while self.cell.lanes == Lanes::One && !faults.unfired().is_empty() {
            if began.elapsed() > REQUEST_ARRIVES_WITHIN {
                return Err(Unlucky("the request of K3 did not leave the process".to_owned()));
            }
            thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    fn die(&self) -> Result<(), Unlucky> {
        let lanes = self.cell.lanes.count();
        // How often a point is reached before the third epoch.
        let before = match self.cell.point {
            _ if self.cell.with == With::Transaction => (EPOCH - 1) * lanes,
            Point::K0BeforeFlush | Point::K3EndTxnSent => (EPOCH - 1) * lanes,
            Point::K2bBetweenLanes => (EPOCH - 1) * (lanes - 1),
            _ => EPOCH - 1,
        };
        let at = format!("{}:{}", self.cell.point, before + 1);
        let ended = self.run(&["--crash-at", &at]);
        let died = format!("crash point {} reached in epoch {EPOCH}\n", self.cell.point);
        match ended.0.code {
            None if ended.0.err.contains(&died) => Ok(()),
            None | Some(0) => Err(Unlucky(format!("it did not die in epoch {EPOCH}: {}", ended.0.err))),
            Some(code) => panic!("exit code {code} instead of {at}: {}", ended.0.err),
        }
    }

    /// The ids whose transactions the answer is about.
    fn left(&self) -> Result<Vec<String>, Unlucky> {
        if self.cell.with == With::Transaction {
            return self.carriers();
        }
        let Some(epoch) = in_doubt(self.cell.point) else {
            let open = self.open();
            // The epoch before is decided, and on a slow machine its transactions may be under way.
            let of_former = format!(".{}", (EPOCH - 1) % 3);
            return match open.iter().find(|id| id.ends_with(&of_former)) {
                Some(id) => Err(Unlucky(format!("{id} of the epoch before is not ended yet"))),
                None => Ok(open),
            };
        };
        let lanes = self.cell.lanes.count();
        let mut left = self.in_doubt(epoch);
        if left.len() as u64 != lanes {
            return Err(Unlucky(format!("{left:?} of {lanes} lanes are in doubt in epoch {epoch}")));
        }
        if self.cell.lanes == Lanes::Mixed {
            let open = self.open();
            let ended = left.iter().filter(|id| !open.contains(id)).count();
            // An earlier epoch without records on a lane has fewer places between lanes.
            if self.cell.point == Point::K2bBetweenLanes && ended > 1 {
                return Err(Unlucky(format!("{ended} of {lanes} lanes are ended in epoch {epoch}")));
            }
            self.commit_one(&mut left);
        }
        if self.cell.point == Point::K4Ended {
            let open = self.open();
            assert!(!left.iter().any(|id| open.contains(id)), "K4 is behind the last commit: {open:?}");
        }
        Ok(left)
    }

    /// Under decider `transaction`: the ids that the answer is about, of whichever shards it can be about.
    fn carriers(&self) -> Result<Vec<String>, Unlucky> {
        let began = Instant::now();
        loop {
            let carriers = self.carriers_now();
            if !carriers.is_empty() {
                return Ok(carriers);
            }
            // What the dead process had sent may be read late.
            if self.cell.answer != Answer::Committed || began.elapsed() > REQUEST_ARRIVES_WITHIN {
                return Err(Unlucky("no transaction is in the state that is asked for".to_owned()));
            }
            thread::sleep(Duration::from_millis(20));
        }
    }

    fn carriers_now(&self) -> Vec<String> {
        let Cell { point, answer, lanes, .. } = self.cell;
        let of_epoch = (0..lanes.count()).map(|shard| format!("{}.main.{shard}.{}", self.job, EPOCH % 3));
        let is_over = matches!(point, Point::K4Ended | Point::K5Proven);
        match (answer, lanes) {
            (Answer::Committed, Lanes::One) => of_epoch.collect(),
            (_, Lanes::One) if is_over => of_epoch.collect(),
            (Answer::Committed, Lanes::Mixed) => of_epoch.filter(|id| self.is_committed(id)).collect(),
            _ => self.open(),
        }
    }

    pub(super) fn run(&self, more: &[&str]) -> Checked {
        Checked(self.bench.run(&[&["--json"], more].concat()))
    }

    pub(super) fn txn(&self, arguments: &[&str]) -> Checked {
        let file = self.bench.file.to_str().unwrap();
        Checked(hapax(&[&["txn", arguments[0], file], &arguments[1..]].concat()))
    }

    /// Ids of the job that a coordinator has a transaction open under.
    pub(super) fn open(&self) -> Vec<String> {
        self.place.open(&self.job)
    }

    fn in_doubt(&self, epoch: u64) -> Vec<String> {
        let described = self.txn(&["describe", "--json"]).ends_well();
        let all = described.out.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        let doubt = all.filter(|one| one["chain"]["in-doubt"]["epoch"] == epoch);
        doubt.map(|one| one["id"].as_str().unwrap().to_owned()).collect()
    }

    fn read(&self, isolation: Isolation) -> Log {
        let read = self.judge.read_all(&self.place.bootstrap(), &self.topic, isolation);
        let mut partitions = read.unwrap();
        partitions.sort_by_key(|partition| partition.bounds.partition);
        let id = |read: &Read| {
            let record: serde_json::Value = serde_json::from_str(&read.text()).unwrap();
            (read.offset, record["id"].as_u64().unwrap())
        };
        partitions.iter().map(|partition| partition.records.iter().map(id).collect()).collect()
    }

    /// What partition `first` is to hold.
    fn wanted(&self, first: u64) -> Vec<u64> {
        (first..RECORDS).step_by(partitions(self.cell) as usize).collect()
    }

    /// Every record once and in its order, and nothing open.
    fn assert_exact(&self) {
        let found = self.read(Isolation::ReadCommitted);
        assert_eq!(found.len() as u64, partitions(self.cell));
        for (partition, found) in (0..).zip(found) {
            let found: Vec<u64> = found.into_iter().map(|(_, id)| id).collect();
            assert_eq!(found, self.wanted(partition), "partition {partition}");
        }
        assert_eq!(self.open(), [""; 0]);
    }

    /// Readers see all but the records at the offsets that the incident names, once and in order; of what is torn, it names
    /// the partitions that were marked and no other.
    fn assert_missing_are_listed(&self, written: &Log, torn: &[i32], is_kept: bool) {
        let incidents = self.incidents();
        let given_up: Vec<_> = incidents.iter().filter(|one| one["code"] == "E0409").collect();
        let [incident] = given_up.as_slice() else { panic!("{incidents:?}") };
        let lanes = incident["in_doubt"].as_array().unwrap();
        let parts: Vec<_> =
            lanes.iter().flat_map(|lane| lane["handle"]["partitions"].as_array().unwrap()).collect();
        if self.cell.answer == Answer::Torn {
            let named: BTreeSet<_> = parts.iter().map(|part| part["partition"].as_i64().unwrap()).collect();
            assert_eq!(named, torn.iter().copied().map(i64::from).collect(), "{incident}");
        }
        let mut listed = vec![Vec::new(); written.len()];
        for part in parts {
            assert_eq!(part["topic"], self.topic);
            let partition = part["partition"].as_u64().unwrap() as usize;
            let (first, last) =
                (part["first_offset"].as_i64().unwrap(), part["last_offset"].as_i64().unwrap());
            let named = written[partition].iter().filter(|(offset, _)| (first..=last).contains(offset));
            listed[partition].extend(named.map(|(_, id)| *id));
            assert_eq!(listed[partition].len() as u64, part["count"].as_u64().unwrap());
        }
        assert!(listed.iter().any(|ids| !ids.is_empty()), "{incident}");
        for (partition, found) in (0..).zip(self.read(Isolation::ReadCommitted)) {
            let found: Vec<u64> = found.into_iter().map(|(_, id)| id).collect();
            let missing = &listed[partition as usize];
            let wanted: Vec<u64> =
                self.wanted(partition).into_iter().filter(|id| !missing.contains(id)).collect();
            assert_eq!(found, wanted, "partition {partition}");
        }
        self.assert_set_aside(listed.concat(), is_kept);
        assert_eq!(self.open(), [""; 0]);
    }

    fn assert_set_aside(&self, mut missing: Vec<u64>, is_kept: bool) {
        let kept = self.files("ndjson");
        if !is_kept {
            assert!(kept.is_empty(), "{kept:?}");
            return;
        }
        let [kept] = kept.as_slice() else { panic!("{kept:?}") };
        let id = |line: &str| {
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            let value: serde_json::Value = serde_json::from_str(line["value"].as_str().unwrap()).unwrap();
            value["id"].as_u64().unwrap()
        };
        let mut aside: Vec<u64> = fs::read_to_string(kept).unwrap().lines().map(id).collect();
        aside.sort_unstable();
        missing.sort_unstable();
        assert_eq!(aside, missing, "what was set aside is what is missing");
    }

    fn incidents(&self) -> Vec<serde_json::Value> {
        let files = self.files("json");
        files.iter().map(|file| serde_json::from_slice(&fs::read(file).unwrap()).unwrap()).collect()
    }

    fn files(&self, extension: &str) -> Vec<std::path::PathBuf> {
        let Ok(folder) = fs::read_dir(self.bench.path("store.incidents")) else { return Vec::new() };
        let files = folder.map(|entry| entry.unwrap().path());
        let mut files: Vec<_> =
            files.filter(|path| path.extension().is_some_and(|found| found == extension)).collect();
        files.sort();
        files
    }
}

/// Of the topic that is written.
fn partitions(cell: Cell) -> u64 {
    cell.lanes.count() * PARTITIONS_OF_A_LANE
}

fn pipeline(cell: Cell, place: &Place, job: &str, topic: &str) -> String {
    let list: Vec<String> = cell.with.list().iter().map(|name| format!("{name:?}")).collect();
    let decider = match cell.with {
        With::Transaction => "decider = \"transaction\"".to_owned(),
        _ => format!("recovery = [{}]", list.join(", ")),
    };
    let (rate, interval) = pace(cell);
    // A key of its own in each record, so that compaction leaves every committed one.
    let operator = match (cell.with, cell.answer) {
        (With::Replay, Answer::Torn) => "[[operator]]\njq = \".\"\nkey = \".id | tostring\"\n",
        _ => "",
    };
    format!(
        "job = \"{job}\"\ntransaction_timeout = \"{timeout}ms\"\n{decider}\n\
         [checkpoint]\nstore = \"file://PATH/store\"\ninterval = \"{interval}ms\"\n\
         [cluster.main]\nbrokers = \"{brokers}\"\ntwo_phase = {two_phase}\n\
         [run]\nstart_timeout = \"20s\"\nshards = {shards}\n[[source]]\n\
         generator = {{ count = {RECORDS}, rate = {rate}, partitions = {partitions}, value = '{{\"id\":$id}}' }}\n\
         {operator}[[sink]]\ntopic = \"{topic}\"\npartition = \"keep\"\njournal = {journal}\n",
        timeout = place.timeout_ms(cell),
        brokers = place.bootstrap_of_job(),
        two_phase = cell.with == With::TwoPhase,
        shards = cell.lanes.count(),
        partitions = partitions(cell),
        journal = cell.with == With::Replay,
    )
}

/// Records a second and milliseconds between two checkpoints, so that there are at least five epochs.
fn pace(cell: Cell) -> (u64, u64) {
    match (cell.brokers, cell.answer) {
        // Its first transactions take seconds on a busy machine.
        (Brokers::Kafka, _) => (300, 40),
        // The epoch has records in every partition.
        (Brokers::Ours, Answer::Torn) => (1_500, 100),
        // Each epoch waits for its journal.
        (Brokers::Ours, _) if cell.with == With::Replay => (1_500, 100),
        (Brokers::Ours, _) => (4_000, 40),
    }
}

/// A run of the binary, looked at.
pub(super) struct Checked(Ended);

impl Checked {
    pub(super) fn ends_well(self) -> Ended {
        assert_eq!(self.0.code, Some(0), "{}", self.0.err);
        self.0
    }

    fn says(&self, code: i32, message: &str) {
        self.0.says(code, message);
    }
}
