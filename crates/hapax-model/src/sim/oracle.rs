//! The judge: what a `read_committed` reader sees, read out of the logs, against what the input makes it.
//!
//! Knows batches, markers and the input; nothing of chains, epochs, positions, or what a job says of itself.

use super::cluster::Cluster;
use bytes::Bytes;
use kafka_protocol::records;
use std::collections::{BTreeMap, BTreeSet};

/// Key and value: what must come out.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) key: Bytes,
    pub(super) value: Bytes,
}

impl Record {
    pub(super) fn new(key: impl Into<Bytes>, value: impl Into<Bytes>) -> Self {
        Self { key: key.into(), value: value.into() }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.value).into_owned()
    }
}

/// What stands in each partition of a topic.
pub(super) type Content = BTreeMap<(String, i32), Vec<Record>>;

/// What a `read_committed` reader gets of a partition that it reads from the first record on: it stops at the first record
/// of a transaction without an end.
pub(super) fn committed(cluster: &Cluster, topic: &str, partition: i32) -> Vec<Record> {
    read_committed(&cluster.log(topic, partition))
}

fn read_committed(log: &[records::Record]) -> Vec<Record> {
    // Which transaction each record belongs to: those of a producer, one after the other.
    let mut open: BTreeMap<i64, Vec<usize>> = BTreeMap::new();
    let mut fates: BTreeMap<usize, bool> = BTreeMap::new();
    for (at, record) in log.iter().enumerate() {
        match (record.control, record.transactional) {
            (true, _) => {
                let commit = record.key.as_ref().is_some_and(|key| key.get(2..4) == Some([0, 1].as_slice()));
                for at in open.remove(&record.producer_id).unwrap_or_default() {
                    fates.insert(at, commit);
                }
            }
            (false, true) => open.entry(record.producer_id).or_default().push(at),
            (false, false) => drop(fates.insert(at, true)),
        }
    }
    let stable = open.values().flatten().min().copied().unwrap_or(log.len());
    let seen = fates.into_iter().filter(|(at, commit)| *commit && *at < stable);
    seen.map(|(at, _)| {
        Record::new(log[at].key.clone().unwrap_or_default(), log[at].value.clone().unwrap_or_default())
    })
    .collect()
}

/// How far what is there has come.
pub(super) struct Standing {
    /// Records that are still to come.
    pub(super) missing: usize,
}

/// Holds every output partition against what is expected there: once, in order, nothing else.
///
/// # Errors
/// What is there is no beginning of what is expected.
pub(super) fn judge(cluster: &Cluster, expected: &Content) -> Result<Standing, String> {
    let mut missing = 0;
    for ((topic, partition), wanted) in expected {
        let found = committed(cluster, topic, *partition);
        is_beginning(&found, wanted).map_err(|why| format!("partition {partition} of {topic}: {why}"))?;
        missing += wanted.len() - found.len();
    }
    Ok(Standing { missing })
}

/// Is the one a beginning of the other?
fn is_beginning(found: &[Record], wanted: &[Record]) -> Result<(), String> {
    let Some(at) = (0..found.len()).find(|&at| found.get(at) != wanted.get(at)) else { return Ok(()) };
    let (is, should) = (found[at].text(), wanted.get(at).map(Record::text));
    let before: BTreeSet<&[u8]> = found[..at].iter().map(|record| &*record.value).collect();
    let how = match (&should, before.contains(&*found[at].value)) {
        (_, true) => "comes a second time",
        (Some(_), false) if wanted.contains(&found[at]) => {
            "comes too early, so something is lost or out of order"
        }
        (_, false) => "was never to come",
    };
    Err(format!("record {at} is {is:?}, which {how}; {should:?} should be there"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use kafka_protocol::{indexmap::IndexMap, records::TimestampType};

    fn record(producer: i64, value: &str) -> records::Record {
        records::Record {
            transactional: producer >= 0,
            control: false,
            delete_horizon: false,
            partition_leader_epoch: 0,
            producer_id: producer,
            producer_epoch: 0,
            timestamp_type: TimestampType::Creation,
            offset: 0,
            sequence: 0,
            timestamp: 0,
            key: None,
            value: Some(Bytes::from(value.to_owned())),
            headers: IndexMap::new(),
        }
    }

    fn marker(producer: i64, commit: bool) -> records::Record {
        let key = Bytes::copy_from_slice(&[0, 0, 0, u8::from(commit)]);
        records::Record { control: true, transactional: true, key: Some(key), ..record(producer, "") }
    }

    fn seen(log: &[records::Record]) -> Vec<String> {
        read_committed(log).iter().map(Record::text).collect()
    }

    #[test]
    fn a_reader_gets_what_is_committed_before_the_first_open_transaction() {
        let mut log =
            vec![record(-1, "plain"), record(1, "a"), record(2, "b"), marker(2, false), record(2, "c")];
        assert_eq!(seen(&log), ["plain"], "the transactions of 1 and 2 are open");
        log.extend([marker(1, true), record(3, "d")]);
        assert_eq!(seen(&log), ["plain", "a"], "what 2 wrote first was aborted");
        log.push(marker(3, true));
        assert_eq!(seen(&log), ["plain", "a"], "3 stands behind the open one of 2");
        log.push(marker(2, true));
        assert_eq!(seen(&log), ["plain", "a", "c", "d"]);
    }

    #[test]
    fn whatever_is_no_beginning_is_told_for_what_it_is() {
        let records = |values: &[&str]| -> Vec<Record> {
            values.iter().map(|value| Record::new("", Bytes::from((*value).to_owned()))).collect()
        };
        let wanted = records(&["a", "b", "c"]);
        for beginning in [&[][..], &["a"], &["a", "b", "c"]] {
            assert_eq!(is_beginning(&records(beginning), &wanted), Ok(()));
        }
        for (found, how) in [
            (&["b"][..], "too early"),
            (&["a", "a"], "second time"),
            (&["a", "b", "c", "c"], "second time"),
            (&["a", "x"], "never to come"),
            (&["a", "b", "c", "d"], "never to come"),
        ] {
            let why = is_beginning(&records(found), &wanted).unwrap_err();
            assert!(why.contains(how), "{why}");
        }
    }
}
