//! Incidents: files that tell a person what happened, what is in doubt, and what settles it.
//!
//! Written once, never changed, readable by their owner only. A file that cannot be written takes nothing away from
//! the error: its text then stands in the log.

use crate::{
    error::{Code, JobError},
    job::Plan,
};
use hapax_commit::{
    Epoch, Generation, Handle, Strategy,
    chain::Unresolved,
    decision::{PassReason, PassedOver},
    evidence::LaneFate,
    recovery::{Incident, IncidentKind, LaneLoss, LaneReport},
};
use hapax_host::Host;
use serde::Serialize;
use std::{
    io::{self, Write},
    path::{Path, PathBuf},
};

/// What an incident's file says.
#[derive(Debug, Serialize)]
struct Report<'a> {
    code: &'static str,
    job: String,
    run: Option<u64>,
    /// The decided epoch that it is about.
    epoch: Option<u64>,
    written_ms: i64,
    message: String,
    /// Strategies that this start alone was allowed (`--recover`).
    allowed_once: Vec<&'static str>,
    /// What is in doubt or lost: prepared transactions with their records.
    in_doubt: Vec<InDoubt<'a>>,
    /// Strategies that were not taken, and why.
    passed_over: Vec<String>,
    /// What to do.
    next: Vec<String>,
}

#[derive(Debug, Serialize)]
struct InDoubt<'a> {
    lane: String,
    fate: String,
    /// What is known, by whom.
    evidence: &'a [String],
    records: u64,
    handle: &'a Handle,
}

/// What a run's incident is told with.
pub(crate) struct Reporter<'a> {
    pub(crate) host: &'a Host,
    pub(crate) plan: &'a Plan,
    pub(crate) generation: Option<Generation>,
    pub(crate) unresolved: Option<&'a Unresolved>,
}

/// The error of a recovery that cannot go on by itself, with its file.
pub(crate) fn commit_phase(reporter: &Reporter<'_>, incident: &Incident) -> JobError {
    let code = match incident.kind {
        IncidentKind::BrokersAhead => Code::StoreStale,
        IncidentKind::BrokersBehind => Code::BrokersStale,
        IncidentKind::Unresolved(_) => Code::CommitPhase,
    };
    let in_doubt = incident.lanes.iter().map(|lane| InDoubt::of(lane, &lane.handle));
    let next = next_steps(incident, reporter.unresolved);
    let in_words = in_words(&next);
    let report = Report {
        epoch: match incident.kind {
            IncidentKind::Unresolved(epoch) => Some(epoch.0),
            IncidentKind::BrokersAhead | IncidentKind::BrokersBehind => None,
        },
        in_doubt: in_doubt.collect(),
        passed_over: incident.passed_over.iter().map(ToString::to_string).collect(),
        next,
        ..Report::new(reporter, code, incident.to_string())
    };
    let run = reporter.generation.map_or_else(String::new, |run| format!(", run {}", run.0));
    let message = format!("job {}{run}: {incident}; next: {in_words}", reporter.plan.name);
    let incident = write(reporter.host, reporter.plan, &report);
    JobError::NeedsPerson { code, message, incident }
}

/// Where the records of an epoch are set aside.
pub(crate) fn aside(host: &Host, plan: &Plan, epoch: Epoch) -> PathBuf {
    folder(plan).join(format!("{}-{}-epoch-{epoch}.ndjson", plan.name, host.wall_ms()))
}

/// What a run goes on without.
pub(crate) struct Loss<'a> {
    pub(crate) strategy: Strategy,
    /// The decided epoch.
    pub(crate) epoch: Epoch,
    pub(crate) lanes: &'a [LaneLoss],
    /// Where the records were set aside.
    pub(crate) kept_in: Option<&'a Path>,
}

/// Writes down which records a run goes on without; the name of the file.
///
/// # Errors
/// The file cannot be written: then nothing is given up.
pub(crate) fn given_up(
    host: &Host,
    plan: &Plan,
    generation: Option<Generation>,
    loss: &Loss<'_>,
) -> Result<String, JobError> {
    let records: u64 = loss.lanes.iter().map(|lane| lane.missing.records()).sum();
    let place = loss.kept_in.map_or_else(
        || "they are lost to readers, and stay in the log until it is cleaned".to_owned(),
        |path| format!("they were written to {}", path.display()),
    );
    let name = loss.strategy.name();
    let by = match plan.settings.recovery.contains(&loss.strategy) {
        true => format!("the job's list allows {name}"),
        false => format!("--recover {name} allowed this start"),
    };
    let reporter = Reporter { host, plan, generation, unresolved: None };
    let message = format!(
        "{records} records of a decided epoch are hidden from readers and could not be written again; {by}, to go on \
         without them: {place}"
    );
    let report = Report {
        epoch: Some(loss.epoch.0),
        in_doubt: loss.lanes.iter().map(|lane| InDoubt::of(&lane.lane, &lane.missing)).collect(),
        next: vec![
            "the handles name topic, partition and offsets of every record that readers do not see".to_owned(),
            "this counts only when the job went on behind it: its log says E0409 and names this file; a run that died \
             in between is followed by one that looks anew"
                .to_owned(),
        ],
        ..Report::new(&reporter, Code::RecordsGivenUp, message)
    };
    for lane in loss.lanes {
        let (lost, epoch) = (lane.missing.records_in_words(), loss.epoch);
        tracing::warn!(job = %plan.name, run = generation.map(|run| run.0), %epoch, "{by}; given up: {lost}; of {}", lane.lane);
    }
    let folder = folder(plan);
    let path = path_of(&folder, &report);
    try_write(host, &folder, &path, &report).map_err(|error| JobError::Run {
        code: Code::Machine,
        message: format!(
            "job {}: records are given up only with an incident that names them, and {} cannot be written: {error}",
            plan.name,
            path.display()
        ),
    })?;
    Ok(path.display().to_string())
}

/// Steps that a log line names; the file names all.
const STEPS_IN_WORDS: usize = 8;

fn in_words(next: &[String]) -> String {
    let said = next.iter().take(STEPS_IN_WORDS).cloned().collect::<Vec<_>>().join("; ");
    match next.len().saturating_sub(STEPS_IN_WORDS) {
        0 => said,
        more => format!("{said}; and {more} more in the incident's file"),
    }
}

fn next_steps(incident: &Incident, unresolved: Option<&Unresolved>) -> Vec<String> {
    let mut steps = match incident.kind {
        IncidentKind::BrokersAhead => vec![
            "mount or restore the newest copy of the checkpoint store, then start the job again".to_owned(),
            "or begin anew with --fresh, knowing that records may be written a second time".to_owned(),
        ],
        IncidentKind::BrokersBehind => vec![
            "bring the newest state of the cluster back (of an embedded broker, its journal), then start the job again"
                .to_owned(),
            "or begin anew with --fresh, knowing that records are missing or may be written a second time".to_owned(),
        ],
        IncidentKind::Unresolved(_) => vec![
            "keep the store and the sink's topics as they are: the handles name every record in doubt"
                .to_owned(),
            "when the cause is mended, start the job again: it looks once more before it does anything"
                .to_owned(),
        ],
    };
    // Nothing goes back behind what readers may have seen.
    let is_seen = |lane: &LaneReport| {
        !matches!(lane.fate, LaneFate::Aborted | LaneFate::Open | LaneFate::Incomplete(_))
    };
    let no_way_back = incident.lanes.iter().any(is_seen);
    let is_not_allowed = |passed: &&PassedOver| {
        passed.why == PassReason::NotAllowed && !(no_way_back && passed.strategy == Strategy::Rewind)
    };
    for passed in incident.passed_over.iter().filter(is_not_allowed) {
        let name = passed.strategy.name();
        steps.push(format!("or allow {name} for one start: hapax run FILE --recover {name}"));
    }
    for lane in unresolved.iter().flat_map(|unresolved| &unresolved.manifest.handles) {
        steps.push(format!("look: hapax txn describe FILE --id {}", lane.transactional_id));
    }
    if let IncidentKind::Unresolved(_) = incident.kind {
        steps.extend(incident.lanes.iter().filter_map(end_by_hand));
    }
    steps
}

/// The command that ends a transaction which its coordinator has open still.
fn end_by_hand(lane: &LaneReport) -> Option<String> {
    let id = &lane.handle.transactional_id;
    match &lane.fate {
        LaneFate::Open => Some(format!("commit it: hapax txn commit FILE {id}")),
        LaneFate::Incomplete(_) | LaneFate::Contradiction(_) => Some(format!(
            "where no partition has committed it, end it without its records being seen: hapax txn abort FILE {id} \
             --decided"
        )),
        LaneFate::Torn(_) => Some(format!(
            "{id} is torn and stays so; where nothing else of the epoch is in doubt, --recover set-aside keeps in a file what \
             readers do not see of it, and goes on; --recover abandon goes on and lists it"
        )),
        LaneFate::Committed
        | LaneFate::Aborted
        | LaneFate::InFlight(_)
        | LaneFate::Undetermined(_)
        | LaneFate::Unanswered(_)
        | LaneFate::Unknown(_)
        | LaneFate::BrokersAhead(_)
        | LaneFate::BrokersBehind(_) => None,
    }
}

impl Report<'_> {
    fn new(reporter: &Reporter<'_>, code: Code, message: String) -> Self {
        let Reporter { host, plan, generation, .. } = reporter;
        Self {
            code: code.as_str(),
            job: plan.name.to_string(),
            run: generation.map(|generation| generation.0),
            epoch: None,
            written_ms: host.wall_ms(),
            message,
            allowed_once: plan.settings.recover_once.iter().map(|strategy| strategy.name()).collect(),
            in_doubt: Vec::new(),
            passed_over: Vec::new(),
            next: Vec::new(),
        }
    }
}

impl<'a> InDoubt<'a> {
    /// Of a lane, or of the part of it that readers do not see.
    fn of(lane: &'a LaneReport, handle: &'a Handle) -> Self {
        Self {
            lane: handle.lane.to_string(),
            fate: lane.fate.to_string(),
            evidence: &lane.evidence,
            records: handle.records(),
            handle,
        }
    }
}

/// Gives an error that needs a person its file, where it has none yet.
pub(crate) fn noted(host: &Host, plan: &Plan, claim: Option<Generation>, error: JobError) -> JobError {
    let JobError::NeedsPerson { code, message, incident: None } = error else {
        return error;
    };
    let reporter = Reporter { host, plan, generation: claim, unresolved: None };
    let report = Report {
        next: vec!["the message says what to do; nothing was lost by stopping".to_owned()],
        ..Report::new(&reporter, code, message.clone())
    };
    let incident = write(host, plan, &report);
    JobError::NeedsPerson { code, message, incident }
}

fn write(host: &Host, plan: &Plan, report: &Report<'_>) -> Option<PathBuf> {
    let folder = folder(plan);
    let path = path_of(&folder, report);
    match try_write(host, &folder, &path, report) {
        Ok(()) => Some(path),
        Err(error) => {
            let text = serde_json::to_string(report).unwrap_or_else(|_| format!("{report:?}"));
            tracing::error!(
                "{}: the incident could not be written to {}: {error}; it says: {text}",
                report.code,
                path.display()
            );
            None
        }
    }
}

fn path_of(folder: &Path, report: &Report<'_>) -> PathBuf {
    folder.join(format!("{}-{}-{}.json", report.job, report.written_ms, report.code))
}

fn try_write(host: &Host, folder: &Path, path: &Path, report: &Report<'_>) -> io::Result<()> {
    host.files().create_dir_all(folder)?;
    let mut file = host.files().create_new(path)?;
    file.write_all(&serde_json::to_vec(report).map_err(io::Error::other)?)?;
    file.write_all(b"\n")?;
    file.sync()?;
    host.files().sync_folder(folder)
}

/// Beside a local store, so that it does not look like a part of it; else where the process runs.
fn folder(plan: &Plan) -> PathBuf {
    let beside = || {
        let store = plan.settings.store.as_deref()?.strip_prefix("file://")?;
        Some(PathBuf::from(format!("{}.incidents", store.trim_end_matches('/'))))
    };
    plan.settings.incidents.clone().or_else(beside).unwrap_or_else(|| PathBuf::from("hapax.incidents"))
}
