//! Whoever keeps a job running: starts its process, starts it again whenever it ends, and harms it as the seed says.
//!
//! ```text
//! none alive -> start     alive: killed, asleep, asleep beside a successor, beside a rival, asked to stop
//! an end -> is it one that this trouble explains? else it is a violation
//! ```
//!
//! Not a part of the product: what a supervisor and an operator do.

use super::{
    cluster::START_MS,
    fault::Kind,
    oracle::Record,
    process::Process,
    scenario::{Scenario, Workload},
    trace::{now, stream, waiting},
    workload::{self, Stage, Wiring},
    world::{Phase, World},
};
use futures::future::select_all;
use hapax::{Code, Host, JobError, RunOptions, Stopper, Strategy, Summary, crash::Undisturbed};
use std::{collections::BTreeMap, future::pending, sync::Arc, time::Duration};
use tokio::{
    sync::oneshot,
    time::{Instant, sleep, sleep_until},
};

/// How long a start may be out of the trouble and still fail for it: `start_timeout`, and the longest wait between two runs.
const FELT_FOR: Duration = Duration::from_secs(180);

/// Polls within which a process meets what it is to meet.
const SOON: u64 = 300;

/// Processes of one job that are alive at once, at most.
const MOST_LIVES: usize = 4;

/// What a keeper does by time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Act {
    Harm(Kind),
    Reshape,
    MakeAgain,
}

type Ending<T> = oneshot::Receiver<Result<T, JobError>>;

/// A process of the job.
struct Life {
    process: Process,
    stopper: Stopper,
    ended: Ending<Summary>,
    is_killed: bool,
    is_stopped: bool,
    /// Another process of the job has been alive beside it.
    has_company: bool,
    thaw_at: Option<Instant>,
    /// It was told to begin the job anew.
    is_fresh: bool,
    /// The shards that it was told.
    shards: Option<u32>,
}

/// Keeps one job.
pub(super) struct Keeper {
    world: World,
    stage: Stage,
    random: fastrand::Rng,
    lives: Vec<Life>,
    acts: BTreeMap<Act, Instant>,
    every: BTreeMap<Act, Duration>,
    /// Shards that the job is told, until they have been changed behind its back.
    shards: Option<u32>,
    /// The next start begins the job anew.
    fresh: bool,
    made_again: bool,
    /// What a person allows the next start.
    once: Vec<Strategy>,
}

impl Keeper {
    pub(super) fn new(world: &World, stage: Stage) -> Self {
        let scenario = world.scenario();
        let mut random = stream(scenario.seed, &format!("keeper of {}", stage.job));
        let every = acts(scenario);
        let acts = every.iter().map(|(act, mean)| (*act, now() + waiting(&mut random, *mean))).collect();
        Self {
            world: world.clone(),
            shards: Some(scenario.shards),
            stage,
            random,
            lives: Vec::new(),
            acts,
            every,
            fresh: false,
            made_again: false,
            once: Vec::new(),
        }
    }

    /// Until the job has been asked to stop and has ended.
    pub(super) async fn keep(mut self) {
        let world = self.world.clone();
        let mut now_in = world.phase();
        loop {
            if self.lives.is_empty() {
                if now_in == Phase::Ending {
                    return;
                }
                self.start();
            }
            let next = if now_in == Phase::Trouble { self.next_act() } else { None };
            let thaw = self.lives.iter().filter_map(|life| life.thaw_at).min();
            tokio::select! {
                biased;
                (at, ended) = ended(&mut self.lives) => self.over(at, ended).await,
                phase = world.leaves(now_in) => {
                    now_in = phase;
                    self.turn_to(phase);
                }
                () = at(thaw) => self.thaw(now()),
                () = at(next.map(|(_, at)| at)) => {
                    let act = next.expect("nothing else wakes it").0;
                    let again = waiting(&mut self.random, self.every[&act]);
                    self.acts.insert(act, now() + again.max(Duration::from_millis(1)));
                    self.act(act).await;
                }
            }
        }
    }

    fn next_act(&self) -> Option<(Act, Instant)> {
        self.acts.iter().map(|(act, at)| (*act, *at)).min_by_key(|(act, at)| (*at, *act))
    }

    fn turn_to(&mut self, phase: Phase) {
        match phase {
            Phase::Trouble => {}
            Phase::Healed => {
                for life in &mut self.lives {
                    life.thaw_at = None;
                    life.process.thaw();
                }
            }
            Phase::Ending => {
                for life in &mut self.lives {
                    life.is_stopped = true;
                    life.stopper.stop();
                }
            }
        }
    }

    fn start(&mut self) {
        let process = self.world.process();
        let host = self.host(&process);
        let fresh = std::mem::take(&mut self.fresh);
        self.world.trace().event(format_args!(
            "process {} of job {} starts, shards {:?}, fresh {fresh}",
            process.number(),
            self.stage.job,
            self.shards
        ));
        let once = std::mem::take(&mut self.once);
        let plan = self.plan(&process, fresh, once);
        let (stopper, stop) = Stopper::new();
        let (tell, ended) = oneshot::channel();
        let root = async move {
            let options = RunOptions { stop, ..RunOptions::default() };
            let _ = tell.send(hapax::run(plan, host, options).await);
        };
        process.run(root);
        let company = !self.lives.is_empty();
        self.lives.iter_mut().for_each(|life| life.has_company = true);
        self.lives.push(Life {
            process,
            stopper,
            ended,
            is_killed: false,
            is_stopped: false,
            has_company: company,
            thaw_at: None,
            is_fresh: fresh,
            shards: self.shards,
        });
        self.world.set_live(self.stage.job, self.lives.len());
    }

    fn host(&mut self, process: &Process) -> Host {
        let elapsed = self.world.trace().elapsed().as_millis() as i64;
        // No two machines have the same time.
        let wall = START_MS + elapsed + self.random.i64(-5_000..=5_000);
        let net = self.world.network().sockets_of(process.clone());
        let files = Arc::new(self.world.files().clone());
        Host::seeded(self.random.u64(..), wall, net, files).with_tasks(Arc::new(process.clone()))
    }

    fn plan(&self, process: &Process, fresh: bool, once: Vec<Strategy>) -> hapax::Plan {
        let clusters = self.world.clusters();
        let store = self.world.disk().seen_by(process, self.stage.job);
        let wiring = Wiring { clusters, store, shards: self.shards, fresh, once };
        self.stage.plan(self.world.scenario(), wiring).expect("a scenario makes a plan")
    }

    async fn over(&mut self, at: usize, ended: Option<Result<Summary, JobError>>) {
        let life = self.lives.remove(at);
        self.world.set_live(self.stage.job, self.lives.len());
        let number = life.process.number();
        let told = match &ended {
            None => "is gone".to_owned(),
            Some(Ok(summary)) => format!("ended well, finished {}", summary.finished),
            Some(Err(error)) => format!("ended: {}", error.chain()),
        };
        self.world.trace().event(format_args!("process {number} of job {} {told}", self.stage.job));
        // Whoever has ended is gone with all that it has left behind.
        life.process.kill(0);
        if let Err(why) = self.judge(&life, ended.as_ref()) {
            self.world.trace().violation(format!("process {number} of job {} {told}: {why}", self.stage.job));
        }
        if self.lives.is_empty() && self.world.is_in_trouble(Duration::ZERO) {
            let pause = waiting(&mut self.random, Duration::from_secs(2));
            sleep(pause).await;
        }
    }

    /// May a process of this job end so now?
    fn judge(&mut self, life: &Life, ended: Option<&Result<Summary, JobError>>) -> Result<(), String> {
        let is_felt = self.world.is_in_trouble(FELT_FOR);
        let error = match ended {
            None if life.is_killed => return Ok(()),
            None => return Err("nobody had killed it".into()),
            Some(Ok(_)) if life.is_stopped => return Ok(()),
            Some(Ok(_)) => return Err("nobody had asked it to stop".into()),
            Some(Err(error)) => error,
        };
        let is_newest = self.lives.iter().all(|other| other.process.number() < life.process.number());
        let is_explained = match error.code() {
            Code::Superseded => life.has_company,
            Code::StopUnfinished => life.is_stopped && is_felt,
            Code::Unreachable | Code::Write | Code::Read | Code::EpochGivenUp | Code::Disturbed => is_felt,
            Code::Store => is_felt && self.world.scenario().store_fails(),
            // What a person would answer.
            Code::CommitPhase => {
                self.once = vec![Strategy::Rewrite];
                if self.random.bool() {
                    self.once.insert(0, Strategy::Rewind);
                }
                self.world.scenario().asks()
            }
            // It was started before the number of shards was changed.
            Code::JobChanged => self.shards.is_none() && life.shards.is_some(),
            // With a topic, its brokers forget the offsets that were committed for it.
            Code::SourceGone | Code::TopicChanged | Code::ProgressLost => {
                // Said once: whoever begins a job anew twice gets its output twice.
                let is_done = self.lives.iter().any(|other| other.is_fresh) || self.has_begun_anew();
                self.fresh |= self.made_again && is_newest && !is_done;
                self.made_again
            }
            _ => false,
        };
        if is_explained { Ok(()) } else { Err("nothing that went wrong explains it".into()) }
    }

    fn thaw(&mut self, at: Instant) {
        for life in self.lives.iter_mut().filter(|life| life.thaw_at.is_some_and(|thaw| thaw <= at)) {
            life.thaw_at = None;
            life.process.thaw();
        }
    }

    async fn act(&mut self, act: Act) {
        match act {
            Act::Harm(kind) => self.harm(kind),
            Act::Reshape => self.reshape().await,
            Act::MakeAgain if self.made_again => {}
            Act::MakeAgain => {
                self.made_again = true;
                self.world.trace().event(format_args!("the input is made again"));
                self.world.make_input_again().await;
            }
        }
    }

    fn harm(&mut self, kind: Kind) {
        let Some(last) = self.lives.len().checked_sub(1) else { return };
        let chosen = self.random.usize(..=last);
        let soon = self.random.u64(..=SOON);
        let asleep = waiting(&mut self.random, self.world.scenario().transaction_timeout);
        let life = &mut self.lives[chosen];
        match kind {
            Kind::Kill => {
                life.is_killed = true;
                life.process.kill(soon);
            }
            Kind::Freeze | Kind::Zombie => {
                life.thaw_at = Some(now() + asleep);
                life.process.freeze(soon);
            }
            Kind::Stop => {
                life.is_stopped = true;
                life.stopper.stop();
            }
            Kind::Rival => {}
            _ => unreachable!("a keeper harms processes"),
        }
        if matches!(kind, Kind::Zombie | Kind::Rival) {
            if self.lives.len() == MOST_LIVES {
                return;
            }
            self.start();
        }
        let number = self.lives[chosen].process.number();
        self.world.trace().fired(kind, format_args!("process {number} of job {}", self.stage.job));
    }

    /// Changes the number of shards, in a process of its own that may be harmed by whatever else goes wrong.
    async fn reshape(&mut self) {
        let process = self.world.process();
        let host = self.host(&process);
        let shards = self.random.u32(1..=4);
        self.shards = None;
        let plan = self.plan(&process, false, Vec::new());
        let (tell, mut ended) = oneshot::channel();
        let root = async move {
            let _ = tell.send(hapax::layout::reshape(plan, host, shards, Arc::new(Undisturbed)).await);
        };
        let number = process.number();
        self.world.trace().event(format_args!("process {number} gives the job {shards} shards"));
        self.lives.iter_mut().for_each(|life| life.has_company = true);
        process.run(root);
        let patience = waiting(&mut self.random, Duration::from_secs(60));
        let ended = tokio::select! {
            biased;
            ended = &mut ended => ended.ok(),
            () = sleep(patience) => None,
        };
        process.kill(0);
        let told = match &ended {
            None => "is gone".to_owned(),
            Some(Ok(done)) => done.clone(),
            Some(Err(error)) => error.chain(),
        };
        self.world.trace().event(format_args!("process {number}: {told}"));
        let Some(Err(error)) = ended else { return };
        let is_explained = match error.code() {
            Code::Unreachable | Code::Write | Code::Read | Code::EpochGivenUp | Code::Disturbed => true,
            Code::Superseded => true,
            Code::CommitPhase => self.world.scenario().asks(),
            Code::Store => self.world.scenario().store_fails(),
            // The job has not begun yet: there is nothing to change.
            Code::Usage | Code::Pipeline | Code::JobChanged | Code::StoreForeign | Code::ProgressLost => {
                !self.has_come_far()
            }
            _ => false,
        };
        if !is_explained {
            self.world.trace().violation(format!("a change of shards ended: {}", error.chain()));
        }
    }

    /// Something of the job is in the output.
    fn has_come_far(&self) -> bool {
        self.output().next().is_some()
    }

    /// Something of the input that was made again is.
    fn has_begun_anew(&self) -> bool {
        self.output().any(|record| workload::is_of(1, &record))
    }

    fn output(&self) -> impl Iterator<Item = Record> + '_ {
        let partitions = 0..self.world.scenario().partitions;
        let topics = self.stage.outputs().map(|output| output.topic);
        let places = topics.flat_map(move |topic| partitions.clone().map(move |at| (topic, at)));
        places.flat_map(|(topic, at)| self.world.committed(topic, at))
    }
}

fn acts(scenario: &Scenario) -> BTreeMap<Act, Duration> {
    let kinds = [Kind::Kill, Kind::Freeze, Kind::Zombie, Kind::Rival, Kind::Stop];
    let mut acts: BTreeMap<Act, Duration> =
        kinds.into_iter().filter_map(|kind| Some((Act::Harm(kind), scenario.every(kind)?))).collect();
    match scenario.workload {
        Workload::Rescale => drop(acts.insert(Act::Reshape, scenario.trouble / 4)),
        Workload::Recreate => drop(acts.insert(Act::MakeAgain, scenario.trouble / 3)),
        Workload::Copy
        | Workload::Transform
        | Workload::Route
        | Workload::TwoJobs
        | Workload::Moves
        | Workload::Store
        | Workload::Clusters => {}
    }
    acts
}

/// The first that ends, with how: `None` where it is dead.
async fn ended(lives: &mut [Life]) -> (usize, Option<Result<Summary, JobError>>) {
    if lives.is_empty() {
        return pending().await;
    }
    let (ended, at, _) = select_all(lives.iter_mut().map(|life| &mut life.ended)).await;
    (at, ended.ok())
}

async fn at(time: Option<Instant>) {
    match time {
        Some(at) => sleep_until(at).await,
        None => pending().await,
    }
}
