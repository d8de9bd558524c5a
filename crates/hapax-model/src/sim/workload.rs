//! What the jobs of a world do, and what must come out of what went in.

use super::{
    oracle::{Content, Record},
    scenario::{Scenario, Workload},
};
use hapax::{Compression, Job, JobError, Name, Plan, SinkTopic, source::KafkaSource};
use hapax_store::ObjectStore;
use std::sync::Arc;

/// The topic that is fed.
pub(super) const INPUT: &str = "in";

/// What a job makes of a record.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Made {
    Copied,
    Transformed,
    Routed,
}

/// One job.
#[derive(Clone)]
pub(super) struct Stage {
    pub(super) job: &'static str,
    from: &'static str,
    made: Made,
    to: &'static [&'static str],
}

/// What a process is told beside the scenario.
pub(super) struct Wiring<'a> {
    pub(super) brokers: &'a str,
    pub(super) store: Arc<dyn ObjectStore>,
    pub(super) shards: Option<u32>,
    pub(super) fresh: bool,
}

impl Stage {
    /// The jobs of a workload, in the order in which records pass them.
    pub(super) fn of(workload: Workload) -> Vec<Self> {
        let one = |made, to| vec![Self { job: "sim", from: INPUT, made, to }];
        match workload {
            Workload::Copy | Workload::Rescale | Workload::Recreate | Workload::Moves | Workload::Store => {
                one(Made::Copied, &["out"])
            }
            Workload::Transform => one(Made::Transformed, &["out"]),
            Workload::Route => one(Made::Routed, &["out-even", "out-odd"]),
            Workload::TwoJobs => vec![
                Self { job: "first", from: INPUT, made: Made::Copied, to: &["mid"] },
                Self { job: "second", from: "mid", made: Made::Transformed, to: &["out"] },
            ],
        }
    }

    /// The topics that it writes.
    pub(super) fn topics(&self) -> impl Iterator<Item = &'static str> + use<> {
        self.to.iter().copied()
    }

    /// The job, as its user writes it.
    pub(super) fn plan(&self, scenario: &Scenario, wiring: Wiring<'_>) -> Result<Plan, JobError> {
        let by_chain = scenario.decider == hapax_commit::DeciderKind::Checkpoint;
        let mut job = Job::new(self.job).cluster("main", wiring.brokers)?;
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
            if by_chain {
                settings.recovery.clone_from(&scenario.recovery);
            }
        });
        let main = Name::new("main").expect("a legal name");
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
        let mut sink = SinkTopic::new("main", self.to[0]).journal(scenario.journal);
        sink.producer.compression = Compression::None;
        if self.made == Made::Routed {
            sink.route.topic = None;
        }
        job.sink(sink)
    }

    fn make(&self, record: &Record) -> Vec<(&'static str, Record)> {
        match self.made {
            Made::Copied => vec![(self.to[0], record.clone())],
            Made::Transformed => transformed(&record.value)
                .into_iter()
                .map(|value| (self.to[0], Record::new(record.key.clone(), value)))
                .collect(),
            Made::Routed => vec![(self.to[way(&record.value)], record.clone())],
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
