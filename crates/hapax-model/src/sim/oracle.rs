//! The judge: what a `read_committed` reader sees, read out of the logs, against what the input makes it.
//!
//! Knows batches, markers and the input; nothing of chains, epochs, positions, or what a job says of itself.

use super::{cluster::Cluster, incident::GivenUp};
use bytes::Bytes;
use kafka_protocol::records;
use std::collections::BTreeMap;

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

    pub(super) fn text(&self) -> String {
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

/// Holds every output partition, as a reader of it sees it, against what is expected there: once, in order, nothing else.
///
/// # Errors
/// What is there is no beginning of what is expected.
pub(super) fn judge(
    committed: impl Fn(&str, i32) -> Vec<Record>,
    expected: &Content,
    given_up: &GivenUp,
) -> Result<Standing, String> {
    let mut missing = 0;
    for ((topic, partition), wanted) in expected {
        let found = committed(topic, *partition);
        missing += still_to_come(&found, wanted, |record| given_up.names(topic, record))
            .map_err(|why| format!("partition {partition} of {topic}: {why}"))?;
    }
    Ok(Standing { missing })
}

/// Is the one a beginning of the other, where it may do without some? How many are to come, then.
fn still_to_come(
    found: &[Record],
    wanted: &[Record],
    may_lack: impl Fn(&Record) -> bool,
) -> Result<usize, String> {
    let mut left = wanted;
    for (at, record) in found.iter().enumerate() {
        let lacks = left.iter().take_while(|other| *other != record && may_lack(other)).count();
        left = &left[lacks..];
        match left.split_first() {
            Some((next, rest)) if next == record => left = rest,
            next => return Err(wrong(&found[..at], record, wanted, next.map(|(next, _)| next))),
        }
    }
    Ok(left.iter().filter(|record| !may_lack(record)).count())
}

fn wrong(before: &[Record], is: &Record, wanted: &[Record], should: Option<&Record>) -> String {
    let at = before.len();
    let how = match should {
        _ if before.iter().any(|record| record.value == is.value) => "comes a second time",
        Some(_) if wanted.contains(is) => "comes too early, so something is lost or out of order",
        _ => "was never to come",
    };
    let should = should.map(Record::text);
    format!("record {at} is {:?}, which {how}; {should:?} should be there", is.text())
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
            let missing = still_to_come(&records(beginning), &wanted, |_| false);
            assert_eq!(missing, Ok(3 - beginning.len()));
        }
        for (found, how) in [
            (&["b"][..], "too early"),
            (&["a", "a"], "second time"),
            (&["a", "b", "c", "c"], "second time"),
            (&["a", "x"], "never to come"),
            (&["a", "b", "c", "d"], "never to come"),
        ] {
            let why = still_to_come(&records(found), &wanted, |_| false).unwrap_err();
            assert!(why.contains(how), "{why}");
        }
    }

    #[test]
    fn what_was_given_up_may_be_lacking_and_nothing_else() {
        let records = |values: &[&str]| -> Vec<Record> {
            values.iter().map(|value| Record::new("", Bytes::from((*value).to_owned()))).collect()
        };
        let (wanted, given_up) = (records(&["a", "b", "c", "d"]), records(&["b"]));
        let judged = |found: &[&str]| {
            still_to_come(&records(found), &wanted, |record| given_up.contains(record)).map_err(drop)
        };
        assert_eq!(judged(&["a", "c", "d"]), Ok(0));
        assert_eq!(judged(&["a", "b", "c"]), Ok(1));
        assert_eq!(judged(&["a"]), Ok(2));
        assert_eq!(judged(&["a", "d"]), Err(()));
        assert_eq!(judged(&["a", "c", "b"]), Err(()));
    }
}
