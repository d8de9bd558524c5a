//! Compaction of a log, as the log cleaner does it (`Cleaner.cleanInto`, `CleanedTransactionMetadata`).
//!
//! Cleans all that is before the last stable offset at once, where Kafka spares the newest segment: a test wants to see
//! the effect. Keeps offsets as they are. Keeps markers and tombstones, as Kafka does until `delete.retention.ms` has
//! passed. Drops records without a key, and those of aborted transactions.

use super::{
    Millis,
    log::{Cleaned, Log, Stored},
};
use crate::{
    batch::{Record, Records},
    codec,
};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};

/// What must be known of the whole log before a batch is cleaned.
struct Survey {
    /// Offsets before this are cleaned.
    end: i64,
    /// The last offset of every key that counts.
    newest: BTreeMap<Vec<u8>, i64>,
    /// Batches of aborted transactions, by base offset.
    aborted: BTreeSet<i64>,
    /// The last batch of every producer stays, with or without records: its sequence must be remembered.
    last_of_producer: BTreeSet<i64>,
}

/// Cleans a log; says whether there was anything to clean.
pub(crate) fn clean(log: &mut Log) -> bool {
    let survey = survey(log);
    log.rewrite(|stored| cleaned(stored, &survey))
}

fn survey(log: &Log) -> Survey {
    let end = log.last_stable();
    let aborted_transactions = log.aborted(log.start(), end);
    let mut survey =
        Survey { end, newest: BTreeMap::new(), aborted: BTreeSet::new(), last_of_producer: BTreeSet::new() };
    let mut last = BTreeMap::new();
    for stored in log.batches(log.start()) {
        let header = &stored.batch.header;
        if header.has_producer() {
            last.insert(header.producer_id, stored.base);
        }
        if header.is_control() || stored.last >= end {
            continue;
        }
        let within = |first: i64, marker: i64| (first..marker).contains(&stored.base);
        let is_aborted = header.is_transactional()
            && aborted_transactions.iter().any(|aborted| {
                aborted.producer_id == header.producer_id && within(aborted.first, aborted.last)
            });
        if is_aborted {
            survey.aborted.insert(stored.base);
            continue;
        }
        each_record(stored, |offset, record, _| {
            if let Some(key) = record.key {
                survey.newest.insert(key.to_vec(), offset);
            }
        });
    }
    survey.last_of_producer = last.into_values().collect();
    survey
}

fn each_record(stored: &Stored, mut visit: impl FnMut(i64, &Record<'_>, Millis)) {
    let header = &stored.batch.header;
    let Ok(payload) = codec::payload(&stored.batch.records, header) else { return };
    for record in Records::new(&payload, header.count).map_while(Result::ok) {
        let offset = header.base_offset + i64::from(record.offset_delta);
        let timestamp = match header.is_log_append_time() {
            true => header.max_timestamp,
            false => header.base_timestamp.wrapping_add(record.timestamp_delta),
        };
        visit(offset, &record, timestamp);
    }
}

fn cleaned(stored: &Stored, survey: &Survey) -> Cleaned {
    let header = &stored.batch.header;
    if header.is_control() || stored.last >= survey.end {
        return Cleaned::Same;
    }
    let (mut kept, mut records, mut latest) = (Vec::new(), 0, -1);
    if !survey.aborted.contains(&stored.base) {
        each_record(stored, |offset, record, timestamp| {
            if record.key.is_some_and(|key| survey.newest.get(key) == Some(&offset)) {
                kept.extend_from_slice(record.raw);
                records += 1;
                latest = latest.max(timestamp);
            }
        });
    }
    match records {
        0 if !survey.last_of_producer.contains(&stored.base) => Cleaned::Gone,
        _ if records == header.count => Cleaned::Same,
        _ => Cleaned::Rest(stored.batch.keep(records, Bytes::from(kept), latest)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{
        Step,
        append::Marker,
        probe::{Probe, Produced, headers},
    };
    use bytes::Bytes;

    fn record(key: &'static str, value: Option<&'static str>) -> (Bytes, Option<Bytes>) {
        (Bytes::from(key), value.map(Bytes::from))
    }

    #[test]
    fn only_the_newest_record_of_a_key_stays_at_its_offset() {
        let mut probe = Probe::new();
        probe.topic("t", 1, &[("cleanup.policy", "compact")]);
        let both = [record("a", Some("1")), record("b", Some("1"))];
        probe.produce(9, "t", Produced::plain(2).with(&both));
        probe.produce(9, "t", Produced::plain(1).with(&[record("a", Some("2"))]));
        probe.produce(9, "t", Produced::plain(1).with(&[record("a", None)]));
        probe.act(Step::Compact { topic: "t".to_owned(), partition: 0 });

        let log = &probe.machine.catalog.partition("t", 0).unwrap().log;
        let left: Vec<_> = log.records().map(|(offset, key, _)| (offset, key.unwrap())).collect();
        assert_eq!(left, [(1, Bytes::from("b")), (3, Bytes::from("a"))]);
        let data = probe.fetch("t", 0, false);
        let records = data.records.unwrap();
        let headers = headers(&records);
        assert_eq!(headers.len(), 2);
        assert_eq!((headers[0].base_offset, headers[0].last_offset(), headers[0].count), (0, 1, 1));
        assert_eq!(headers[0].crc, crate::batch::checksum(&records[..headers[0].size]));
        assert_eq!(probe.produce(9, "t", Produced::plain(1).bytes()).base_offset, 4);
    }

    #[test]
    fn aborted_records_go_and_do_not_hide_older_ones() {
        let mut probe = Probe::new();
        probe.topic("t", 1, &[]);
        probe.machine.append_records("t", 0, None, &[record("a", Some("old"))]).unwrap();
        probe.machine.append_records("t", 0, Some((5, 0)), &[record("a", Some("aborted"))]).unwrap();
        let marker = Marker {
            producer_id: 5,
            producer_epoch: 0,
            coordinator_epoch: 0,
            commit: false,
            transaction_version: 0,
        };
        probe.machine.write_marker("t", 0, marker).unwrap();
        probe.machine.append_records("t", 0, Some((6, 0)), &[record("a", Some("open"))]).unwrap();
        probe.act(Step::Compact { topic: "t".to_owned(), partition: 0 });
        let log = &probe.machine.catalog.partition("t", 0).unwrap().log;
        let left: Vec<_> = log.records().map(|(offset, _, _)| offset).collect();
        assert_eq!(left, [0, 3], "an open transaction is not cleaned");
    }

    #[test]
    fn the_last_batch_of_a_producer_stays_without_its_records() {
        let mut probe = Probe::new();
        probe.topic("t", 1, &[("cleanup.policy", "compact")]);
        probe.produce(9, "t", Produced::idempotent(5, 0, 0, 1).with(&[record("a", Some("1"))]));
        probe.produce(9, "t", Produced::plain(1).with(&[record("a", Some("2"))]));
        probe.act(Step::Compact { topic: "t".to_owned(), partition: 0 });
        let headers = headers(&probe.fetch("t", 0, false).records.unwrap());
        assert_eq!(headers.iter().map(|header| header.count).collect::<Vec<_>>(), [0, 1]);
    }
}
