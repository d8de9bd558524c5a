//! `rewrite` of a lane that has several partitions, into topics whose settings are others by now than when the records were
//! written.
//!
//! Apache Kafka alone can change the settings of a topic. Whatever they are, the records come out as they were, or the
//! strategy is passed over with the reason, and nothing is lost by that.

use super::*;
use std::time::{SystemTime, UNIX_EPOCH};

/// Records of an epoch.
const COUNT: u64 = 400;

/// What a reader is shown of a record: key, value, headers, timestamp.
type Seen = (Option<Vec<u8>>, Option<Vec<u8>>, Vec<(String, Option<Vec<u8>>)>, i64);

/// A job of one lane, whose only epoch is decided and whose transaction a person has aborted.
struct Aborted {
    case: Case,
    source: String,
}

impl Aborted {
    fn new(name: &str, on: On, records: &[Record]) -> Self {
        Self::with_topic(name, on, records, &[])
    }

    /// With these settings of the sink's topic while the records are written.
    fn with_topic(name: &str, on: On, records: &[Record], settings: &[(&str, &str)]) -> Self {
        let case = Case::new(&format!("topic-{name}-{}", name_of(on, Left::AllOpen)), on);
        let (judge, bootstrap, source) =
            (Judge::shared(), case.cluster.bootstrap(), format!("{}-in", case.job));
        judge.create_topic(&bootstrap, &source, PARTITIONS as u32, &[]).unwrap();
        judge.produce(&bootstrap, &source, records).unwrap();
        if !settings.is_empty() {
            judge.configure_topic(&bootstrap, &case.topic, settings).unwrap();
        }
        let text = fs::read_to_string(&case.bench.file).unwrap();
        let (head, rest) = text.split_once("[[source]]").unwrap();
        let (_, sink) = rest.split_once("[[sink]]").unwrap();
        // All that there is becomes one epoch, and nothing times out.
        let head = head.replace("\"50ms\"", "\"5s\"").replace(&format!("\"{REAL_TIMEOUT}\""), "\"60s\"");
        let text = format!(
            "{head}[run]\nshards = 1\n[[source]]\ntopics = [\"{source}\"]\nend = \"latest\"\n[[sink]]{sink}"
        );
        fs::write(&case.bench.file, text).unwrap();
        case.die("K2", &[]);
        let ended = hapax(&["txn", "describe", case.bench.file.to_str().unwrap(), "--json"]);
        let all = ended.out.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        let doubt: Vec<_> = all.filter(|one| one["chain"]["in-doubt"].is_object()).collect();
        let [one] = doubt.as_slice() else { panic!("one lane: {doubt:?}") };
        assert_eq!(one["handle"]["partitions"].as_array().unwrap().len() as u64, PARTITIONS, "{one}");
        let id = one["id"].as_str().unwrap();
        let ended = hapax(&["txn", "abort", case.bench.file.to_str().unwrap(), id, "--decided"]);
        assert_eq!(ended.code, Some(0), "{}", ended.err);
        Self { case, source }
    }

    fn configure(&self, settings: &[(&str, &str)]) {
        Judge::shared().configure_topic(&self.case.cluster.bootstrap(), &self.case.topic, settings).unwrap();
    }

    fn is_rewritten(&self) {
        let ended = self.case.run(&["resume", "rewrite"]);
        assert_eq!(ended.code, Some(0), "{}", ended.err);
        assert!(ended.err.contains("written again: "), "{}", ended.err);
    }

    /// The strategy is passed over with a reason, said to a person and in the incident; nothing of the epoch is visible.
    fn is_passed_over(&self, why: &str) {
        let ended = self.case.run(&["resume", "rewrite"]);
        ended.says(4, "E0404");
        ended.says(4, "rewrite: ");
        assert!(ended.err.contains(why), "{}", ended.err);
        let incident = self.case.incidents().pop().unwrap();
        assert!(incident["passed_over"].to_string().contains(why), "{incident}");
        assert!(self.seen(&self.case.topic).iter().all(Vec::is_empty), "nothing is shown");
    }

    fn seen(&self, topic: &str) -> Vec<Vec<Seen>> {
        let read = Judge::shared().read_all(&self.case.cluster.bootstrap(), topic, Isolation::ReadCommitted);
        let mut read = read.unwrap();
        read.sort_by_key(|partition| partition.bounds.partition);
        let of = |read: Read| (read.key, read.value, read.headers, read.timestamp_ms);
        read.into_iter().map(|partition| partition.records.into_iter().map(of).collect()).collect()
    }

    fn assert_exact(&self) {
        let (wanted, found) = (self.seen(&self.source), self.seen(&self.case.topic));
        assert_eq!(found, wanted);
    }

    /// As it was but for the timestamps, which are the broker's.
    fn assert_exact_but_timestamps(&self, began_ms: i64) {
        let without = |seen: &[Vec<Seen>]| -> Vec<Vec<_>> {
            let of = |(key, value, headers, _): &Seen| (key.clone(), value.clone(), headers.clone());
            seen.iter().map(|partition| partition.iter().map(of).collect()).collect()
        };
        let (wanted, found) = (self.seen(&self.source), self.seen(&self.case.topic));
        assert_eq!(without(&found), without(&wanted));
        assert!(found.iter().flatten().all(|(_, _, _, timestamp)| *timestamp >= began_ms), "the topic's own");
    }
}

fn now_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as i64
}

/// Two days old, so that no broker takes them for records of the future.
fn records(value: impl Fn(u64) -> Option<Vec<u8>>) -> Vec<Record> {
    let then = now_ms() - 48 * 3_600_000;
    let field = |at: u64| match at % 3 {
        0 => None,
        1 => Some(Vec::new()),
        _ => Some(vec![0xfe, at as u8, 0]),
    };
    let record = |at: u64| Record {
        key: field(at),
        value: value(at),
        headers: (0..at % 3).map(|header| ("h".to_owned(), field(at + header))).collect(),
        partition: Some((at % PARTITIONS) as i32),
        timestamp_ms: Some(then - (at as i64) * 7),
    };
    (0..COUNT).map(record).collect()
}

/// Null, empty, or so many bytes that nothing makes fewer.
fn values(bytes: usize) -> impl Fn(u64) -> Option<Vec<u8>> {
    move |at| match at % 7 {
        0 => None,
        1 => Some(Vec::new()),
        _ => {
            let mut seed = at.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
            let mut next = || {
                seed ^= seed << 13;
                seed ^= seed >> 7;
                seed ^= seed << 17;
                seed as u8
            };
            Some((0..bytes).map(|_| next()).collect())
        }
    }
}

/// What a broker says of a batch that is larger than `max.message.bytes`.
const MESSAGE_TOO_LARGE: i16 = 10;

const KAFKAS: [On; 2] = [On::Kafka(Version::V4_4), On::Kafka(Version::V3_9)];

/// All at the same time: they wait for processes.
fn on_each(all: &[On], one: impl Fn(On) + Sync) {
    std::thread::scope(|scope| {
        for on in all {
            scope.spawn(|| one(*on));
        }
    });
}

#[test]
fn a_lane_of_several_partitions_is_written_again_with_all_that_records_hold() {
    on_each(&[On::Ours(0), On::Ours(2), KAFKAS[0], KAFKAS[1]], |on| {
        let aborted = Aborted::new("fields", on, &records(values(100)));
        aborted.is_rewritten();
        aborted.assert_exact();
    });
}

/// A batch that was taken then is too large now: it goes in parts.
#[test]
fn batches_that_a_topic_takes_no_more_are_written_again_in_parts() {
    on_each(&[On::Ours(0), On::Ours(2)], |on| {
        let aborted = Aborted::new("parts", on, &records(values(900)));
        let Cluster::Ours(hosted) = &aborted.case.cluster else { unreachable!("played on our broker") };
        let refused = Rule::on(ApiKey::Produce).error(MESSAGE_TOO_LARGE).times(2);
        let refused = hosted.broker.faults().guard(refused).unwrap();
        aborted.is_rewritten();
        assert_eq!(refused.fired(), 2);
        drop(refused);
        aborted.assert_exact();
    });
    on_each(&KAFKAS, |on| {
        let aborted = Aborted::new("parts", on, &records(values(900)));
        // One of these records, and no two of them.
        aborted.configure(&[("max.message.bytes", "1500")]);
        let both = Record::value(vec![0xfe; 1_600]).to_partition(0);
        let refused =
            Judge::shared().produce(&aborted.case.cluster.bootstrap(), &aborted.case.topic, &[both]);
        assert!(refused.unwrap_err().to_string().contains("MSG_SIZE_TOO_LARGE"));
        aborted.is_rewritten();
        aborted.assert_exact();
    });
}

#[test]
fn a_record_that_a_topic_takes_no_more_is_a_reason_until_it_takes_it_again() {
    on_each(&KAFKAS, |on| {
        let small = values(100);
        let records = records(|at| if at == COUNT / 2 { values(5_000)(2) } else { small(at) });
        let aborted = Aborted::new("large", on, &records);
        aborted.configure(&[("max.message.bytes", "2000")]);
        for _ in 0..2 {
            aborted.is_passed_over("is larger than the topic allows; raise max.message.bytes of the topic");
        }
        aborted.configure(&[("max.message.bytes", "1048588")]);
        aborted.is_rewritten();
        aborted.assert_exact();
    });
}

/// The broker makes other bytes of the same records, when they were written and when they are written again.
#[test]
fn records_that_the_broker_recompresses_are_written_again_as_they_were() {
    on_each(&KAFKAS, |on| {
        for (then, now) in [("producer", "gzip"), ("zstd", "uncompressed")] {
            let name = format!("compressed-{now}");
            let settings = [("compression.type", then)];
            let aborted = Aborted::with_topic(&name, on, &records(values(100)), &settings);
            aborted.configure(&[("compression.type", now)]);
            aborted.is_rewritten();
            aborted.assert_exact();
        }
    });
}

/// The topic's rule counts for what is written again, too.
#[test]
fn a_topic_that_gives_records_its_own_time_gives_it_to_what_is_written_again() {
    on_each(&KAFKAS, |on| {
        let aborted = Aborted::new("appended", on, &records(values(100)));
        aborted.configure(&[("message.timestamp.type", "LogAppendTime")]);
        let began = now_ms();
        aborted.is_rewritten();
        aborted.assert_exact_but_timestamps(began);
    });
}

/// What was written with the broker's time has that time.
#[test]
fn records_with_a_time_of_the_broker_keep_it_where_the_topic_takes_what_writers_say() {
    on_each(&KAFKAS, |on| {
        let settings = [("message.timestamp.type", "LogAppendTime")];
        let began = now_ms();
        let aborted = Aborted::with_topic("was-appended", on, &records(values(100)), &settings);
        let written = now_ms();
        aborted.configure(&[("message.timestamp.type", "CreateTime")]);
        aborted.is_rewritten();
        aborted.assert_exact_but_timestamps(began);
        let found = aborted.seen(&aborted.case.topic);
        assert!(found.iter().flatten().all(|(_, _, _, timestamp)| *timestamp <= written), "the first time");
    });
}

#[test]
fn a_topic_that_refuses_old_records_is_a_reason_until_it_takes_them_again() {
    on_each(&KAFKAS, |on| {
        let aborted = Aborted::new("old", on, &records(values(100)));
        aborted.configure(&[("message.timestamp.before.max.ms", "3600000")]);
        for _ in 0..2 {
            aborted.is_passed_over("INVALID_TIMESTAMP");
        }
        aborted.configure(&[("message.timestamp.before.max.ms", "9223372036854775807")]);
        aborted.is_rewritten();
        aborted.assert_exact();
    });
}
