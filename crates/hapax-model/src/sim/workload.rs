//! What the jobs of a world do, and what must come out of what went in.

use super::{
    cluster::Cluster,
    oracle::{Content, Record},
    scenario::{Scenario, Workload},
};
use hapax::{Job, JobError, Name, Plan, SinkTopic, Strategy, source::KafkaSource};
use hapax_store::ObjectStore;
use std::sync::Arc;

/// The cluster that is read from.
pub(super) const MAIN: &str = "main";

/// The cluster that some jobs write to beside it.
pub(super) const FAR: &str = "far";

/// Where each job has its incidents.
pub(super) const INCIDENTS: &str = "/incidents";

/// The topic that is fed.
pub(super) const INPUT: &str = "in";

/// What a job makes of a record.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Made {
    Copied,
    Transformed,
    Routed,
}

/// One job. It reads from the main cluster.
#[derive(Clone)]
pub(super) struct Stage {
    pub(super) job: &'static str,
    from: &'static str,
    made: Made,
    to: &'static [Output],
}

/// A topic that a job writes.
#[derive(Clone, Copy)]
pub(super) struct Output {
    pub(super) cluster: &'static str,
    pub(super) topic: &'static str,
}

impl Output {
    const fn main(topic: &'static str) -> Self {
        Self { cluster: MAIN, topic }
    }
}

/// What a process is told beside the scenario.
pub(super) struct Wiring<'a> {
    pub(super) clusters: &'a [Cluster],
    pub(super) store: Arc<dyn ObjectStore>,
    pub(super) shards: Option<u32>,
    pub(super) fresh: bool,
    /// What a person allows this start beside the job's list.
    pub(super) once: Vec<Strategy>,
}

impl Stage {
    /// The jobs of a workload, in the order in which records pass them.
    pub(super) fn of(workload: Workload) -> Vec<Self> {
        const OUT: &[Output] = &[Output::main("out")];
        let one = |made, to| vec![Self { job: "sim", from: INPUT, made, to }];
        match workload {
            Workload::Copy | Workload::Rescale | Workload::Recreate | Workload::Moves | Workload::Store => {
                one(Made::Copied, OUT)
            }
            Workload::Transform => one(Made::Transformed, OUT),
            Workload::Route => {
                one(Made::Routed, const { &[Output::main("out-even"), Output::main("out-odd")] })
            }
            Workload::Clusters => {
                one(Made::Copied, const { &[Output::main("out"), Output { cluster: FAR, topic: "far-out" }] })
            }
            Workload::TwoJobs => vec![
                Self { job: "first", from: INPUT, made: Made::Copied, to: const { &[Output::main("mid")] } },
                Self { job: "second", from: "mid", made: Made::Transformed, to: OUT },
            ],
        }
    }

    /// What it writes.
    pub(super) fn outputs(&self) -> impl Iterator<Item = Output> + use<> {
        self.to.iter().copied()
    }

    /// The topics that it writes.
    fn topics(&self) -> impl Iterator<Item = &'static str> + use<> {
        self.outputs().map(|output| output.topic)
    }

    /// The job, as its user writes it.
    pub(super) fn plan(&self, scenario: &Scenario, wiring: Wiring<'_>) -> Result<Plan, JobError> {
        let by_chain = scenario.decider == hapax_commit::DeciderKind::Checkpoint;
        let mut job = Job::new(self.job);
        for cluster in wiring.clusters {
            job = job.cluster(cluster.name, &cluster.broker.bootstrap())?;
            if scenario.two_phase {
                job = job.two_phase(cluster.name)?;
            }
        }
        if by_chain {
            job = job.store_on("memory://simulated", wiring.store);
        }
        let job = job.settings(|settings| {
            settings.decider = Some(scenario.decider);
            settings.interval = scenario.interval;
            settings.shards = wiring.shards;
            settings.workers = Some(2);
            settings.transaction_timeout = Some(scenario.transaction_timeout);
            settings.fresh = wiring.fresh;
            settings.incidents = Some(format!("{INCIDENTS}/{}", self.job).into());
            settings.recover_once.clone_from(&wiring.once);
            if by_chain {
                settings.recovery.clone_from(&scenario.recovery);
            }
        });
        let main = Name::new(MAIN).expect("a legal name");
        let job = self.operators(job.source(KafkaSource::new(main, [self.from])));
        self.sink(scenario, job).plan()
    }

    fn operators(&self, job: Job) -> Job {
        match self.made {
            Made::Copied => job,
            Made::Transformed => job.flat_map(|record, out| {
                for value in transformed(record.value.unwrap_or_default()) {
                    out.emit(record.with_value(Some(&value)));
                }
                Ok(())
            }),
            Made::Routed => {
                let topics: Vec<Arc<str>> = self.topics().map(Arc::from).collect();
                job.route(move |record| topics.get(way(record.value.unwrap_or_default())).cloned())
            }
        }
    }

    fn sink(&self, scenario: &Scenario, job: Job) -> Job {
        let sink = |output: Output| {
            let mut sink = SinkTopic::new(output.cluster, output.topic).journal(scenario.journal);
            sink.producer.compression = scenario.compression;
            sink
        };
        if self.made == Made::Routed {
            let mut any = sink(self.to[0]);
            any.route.topic = None;
            return job.sink(any);
        }
        self.outputs().fold(job, |job, output| job.sink(sink(output)))
    }

    fn make(&self, record: &Record) -> Vec<(&'static str, Record)> {
        match self.made {
            Made::Copied => self.topics().map(|topic| (topic, record.clone())).collect(),
            Made::Transformed => transformed(&record.value)
                .into_iter()
                .map(|value| (self.to[0].topic, Record::new(record.key.clone(), value)))
                .collect(),
            Made::Routed => vec![(self.to[way(&record.value)].topic, record.clone())],
        }
    }
}

/// The `n`th record of an input partition. The topic that was made again has a generation of its own.
pub(super) fn input(generation: u32, partition: i32, n: u64) -> Record {
    Record::new(format!("k{}", n % 7), format!("g{generation}-p{partition}-{n}"))
}

/// Of which generation a record is.
pub(super) fn is_of(generation: u32, record: &Record) -> bool {
    record.value.starts_with(format!("g{generation}-").as_bytes())
}

fn number(value: &[u8]) -> u64 {
    let digits = value.rsplit(|byte| !byte.is_ascii_digit()).next().unwrap_or_default();
    std::str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok()).unwrap_or(0)
}

fn transformed(value: &[u8]) -> Vec<Vec<u8>> {
    let with = |end: &str| [value, end.as_bytes()].concat();
    match number(value) % 5 {
        0 => Vec::new(),
        1 => vec![with("/a"), with("/b")],
        _ => vec![with("!")],
    }
}

fn way(value: &[u8]) -> usize {
    usize::from(number(value) % 2 == 1)
}

/// What must stand in every output partition, after this input.
pub(super) fn expected(stages: &[Stage], input: &Content) -> Content {
    let mut all = input.clone();
    for stage in stages {
        for ((topic, partition), records) in all.clone() {
            if topic != stage.from {
                continue;
            }
            for to in stage.topics() {
                all.entry((to.to_owned(), partition)).or_default();
            }
            for (to, record) in records.iter().flat_map(|record| stage.make(record)) {
                all.entry((to.to_owned(), partition)).or_default().push(record);
            }
        }
    }
    all.retain(|(topic, _), _| topic != INPUT);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_stage_makes_of_the_input_what_it_says() {
        let records = (0..6).map(|n| input(0, 1, n)).collect();
        let fed = Content::from([((INPUT.to_owned(), 1), records)]);
        let texts = |workload, topic: &str| -> Vec<String> {
            let content = expected(&Stage::of(workload), &fed);
            content[&(topic.to_owned(), 1)]
                .iter()
                .map(|record| String::from_utf8_lossy(&record.value).into_owned())
                .collect()
        };
        assert_eq!(texts(Workload::Route, "out-odd"), ["g0-p1-1", "g0-p1-3", "g0-p1-5"]);
        let made = ["g0-p1-1/a", "g0-p1-1/b", "g0-p1-2!", "g0-p1-3!", "g0-p1-4!"];
        assert_eq!(texts(Workload::Transform, "out"), made);
        assert_eq!(texts(Workload::TwoJobs, "out"), made);
        assert_eq!(texts(Workload::TwoJobs, "mid").len(), 6);
    }
}
