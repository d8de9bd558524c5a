//! Something that is no run of the job and takes its ids (H11): a producer of librdkafka that is configured with them, each
//! time right before a run ends the transaction.

use super::{
    case::{Case, unique},
    running::{OnReach, Running},
    scripted::Scripted,
};
use hapax::{
    Guarantee, Job, JobError, Name, Plan, SinkTopic,
    crash::Point,
    error::Code,
    source::{End, KafkaSource},
};
use hapax_commit::{DeciderKind, Epoch};
use std::{
    fs,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use xtask::{
    judge::{Isolation, Judge, Numbers, Outcome, Record},
    kafka::{Version, shared},
};

/// Runs that lose ids before the job stops.
const RUNS: u64 = 8;

/// Takes an id of lane 0 when a run is at a point, if the epoch's turn has come.
struct Foreigner {
    bootstrap: String,
    job: String,
    elsewhere: String,
    took: Arc<AtomicU64>,
}

impl Foreigner {
    fn new(bootstrap: &str, job: &str) -> Self {
        let elsewhere = unique("elsewhere");
        Judge::shared().create_topic(bootstrap, &elsewhere, 1, &[]).unwrap();
        let (bootstrap, job) = (bootstrap.to_owned(), job.to_owned());
        Self { bootstrap, job, elsewhere, took: Arc::default() }
    }

    /// InitProducerId without an identity, as every producer begins. What it commits would look like a newer store of the
    /// job (E0402).
    fn take(&self, epoch: Epoch) {
        let id = format!("{}.main.0.{}", self.job, epoch.0 % 3);
        let records = [Record::value("foreign")];
        let timeout = Duration::from_secs(30);
        let judge = Judge::shared();
        judge
            .produce_transactional(&self.bootstrap, &self.elsewhere, &records, &id, timeout, Outcome::Abort)
            .unwrap();
        self.took.fetch_add(1, Ordering::SeqCst);
    }

    /// Takes the id of each epoch whose number from the first on, counted at this point, is wanted.
    fn at(self, point: Point, wanted: impl Fn(u64) -> bool + Send + Sync + 'static) -> OnReach {
        let seen = AtomicU64::new(0);
        OnReach::new(move |reached, epoch| {
            if reached == point && wanted(seen.fetch_add(1, Ordering::SeqCst)) {
                self.take(epoch);
            }
        })
    }
}

fn assert_stopped(error: &JobError, job: &str) {
    assert_eq!((error.exit_code(), error.code()), (4, Code::IdsInUse), "{error:?}");
    let JobError::NeedsPerson { message, incident: Some(path), .. } = error else { panic!("{error:?}") };
    let incident = fs::read_to_string(path).unwrap();
    for told in ["another process uses these names", &format!("{job}.main.0."), "E0411"] {
        assert!(incident.contains(told), "{told} is not in {incident}");
    }
    assert!(message.contains("stop it"), "{message}");
}

fn checkpointed(name: &str, version: Version, records: u64) -> Case {
    let source = Scripted::new(1, records).steady();
    Case::new(name, &shared(version).bootstrap, Guarantee::ExactlyOnce, source)
}

fn stops(version: Version) {
    let case = checkpointed("ids-taken", version, 300);
    let foreigner = Foreigner::new(&case.bootstrap, &case.name);
    let took = foreigner.took.clone();
    let error = Running::start(case.plan(), foreigner.at(Point::K2Decided, |_| true)).ended().error();
    assert_stopped(&error, &case.name);
    assert_eq!(took.load(Ordering::SeqCst), RUNS);
    assert!(case.open_transactions().is_empty(), "nothing is left open");
    case.finish();
    case.assert_complete();
}

#[test]
fn a_producer_that_takes_the_ids_again_and_again_stops_the_job_and_is_told_of_on_v2() {
    stops(Version::V4_4);
}

#[test]
fn a_producer_that_takes_the_ids_again_and_again_stops_the_job_and_is_told_of_on_v1() {
    stops(Version::V3_9);
}

/// One less, and the ids are the job's again.
#[test]
fn a_producer_that_takes_the_ids_for_a_while_costs_time() {
    let case = checkpointed("ids-taken-for-a-while", Version::V4_4, 100);
    let foreigner = Foreigner::new(&case.bootstrap, &case.name);
    let took = foreigner.took.clone();
    Running::start(case.plan(), foreigner.at(Point::K2Decided, |seen| seen < RUNS - 1)).ended().finished();
    assert_eq!(took.load(Ordering::SeqCst), RUNS - 1);
    case.assert_complete();
}

/// Each run commits an epoch, loses the next one, and goes on.
#[test]
fn a_job_that_commits_in_between_is_not_stopped() {
    let case = checkpointed("ids-taken-between", Version::V4_4, 600);
    let foreigner = Foreigner::new(&case.bootstrap, &case.name);
    let took = foreigner.took.clone();
    let wanted = |seen: u64| seen % 2 == 1 && seen < 4 * RUNS;
    Running::start(case.plan(), foreigner.at(Point::K2Decided, wanted)).ended().finished();
    assert!(took.load(Ordering::SeqCst) > RUNS, "{took:?}");
    case.assert_complete();
}

/// A job whose transactions carry its positions, over this many records of one partition.
fn carried(name: &str, bootstrap: &str, records: u64) -> (String, Plan) {
    let (job, from) = (unique(name), unique("taken-from"));
    Judge::shared().create_topic(bootstrap, &from, 1, &[]).unwrap();
    Judge::shared().create_topic(bootstrap, &job, 1, &[]).unwrap();
    Judge::shared().produce_numbers(bootstrap, &from, &Numbers::new(1, records)).unwrap();
    let incidents = Path::new(env!("CARGO_TARGET_TMPDIR")).join(&job);
    let source =
        KafkaSource { end: End::Latest, ..KafkaSource::new(Name::new("main").unwrap(), [from.as_str()]) };
    let plan = Job::new(&job)
        .settings(|settings| {
            settings.decider = Some(DeciderKind::Transaction);
            settings.interval = Duration::from_millis(300);
            settings.run_backoff = (Duration::from_millis(100), Duration::from_secs(1));
            settings.incidents = Some(incidents);
        })
        .cluster("main", bootstrap)
        .unwrap()
        .source(source)
        .sink(SinkTopic::new("main", &job))
        .plan()
        .unwrap();
    (job, plan)
}

fn stops_carried(version: Version) {
    let bootstrap = &shared(version).bootstrap;
    let (job, plan) = carried("ids-taken-carried", bootstrap, 100);
    let foreigner = Foreigner::new(bootstrap, &job);
    let took = foreigner.took.clone();
    let error = Running::start(plan, foreigner.at(Point::K1oOffsetsTaken, |_| true)).ended().error();
    assert_stopped(&error, &job);
    assert_eq!(took.load(Ordering::SeqCst), RUNS);
    let out = Judge::shared().read_all(bootstrap, &job, Isolation::ReadCommitted).unwrap();
    assert!(out[0].records.is_empty(), "nothing was committed");
    assert_eq!(out[0].bounds.stable_end, out[0].bounds.end, "nothing is left open");
}

#[test]
fn a_job_that_carries_its_positions_is_stopped_like_any_other_on_v2() {
    stops_carried(Version::V4_4);
}

#[test]
fn a_job_that_carries_its_positions_is_stopped_like_any_other_on_v1() {
    stops_carried(Version::V3_9);
}
