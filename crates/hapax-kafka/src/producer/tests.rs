//! The account and the gate, without brokers: what is written, sealed, answered and given up adds up.

use super::{
    config::{OpenAs, ProducerConfig},
    error::{Place, ProduceError},
    partition_queue::{Effect, Sending, Verdict},
    state::{Appended, State},
    topic::{Destination, TopicHandle},
};
use crate::{
    metadata::{PartitionMetadata, TopicMetadata},
    record::{Compression, RecordRef},
};
use hapax_commit::{
    Epoch, Identity, LaneId, Name, ProducerEpoch, ProducerId, ShardId, TopicId, TransactionalId,
};
use hapax_host::{Host, Instant};
use std::time::Duration;

struct Bench {
    state: State,
    topic: TopicHandle,
    now: Instant,
}

fn identity(epoch: i16) -> Identity {
    Identity { producer_id: ProducerId(7), producer_epoch: ProducerEpoch(epoch) }
}

fn transaction(epoch: i16) -> OpenAs {
    let name = |text| Name::new(text).unwrap();
    let lane = LaneId { cluster: name("main"), shard: ShardId(0) };
    let transactional_id = TransactionalId { job: name("job"), lane, index: 0 };
    OpenAs::Transaction { transactional_id, identity: identity(epoch) }
}

impl Bench {
    fn new(change: impl FnOnce(&mut ProducerConfig)) -> Self {
        let mut config = ProducerConfig {
            transactional: true,
            batch_bytes: 300,
            buffer_bytes: 2000,
            compression: Compression::None,
            ..ProducerConfig::default()
        };
        change(&mut config);
        let partition =
            |partition| PartitionMetadata { partition, leader: None, replicas: vec![], in_sync: vec![] };
        let topic = TopicMetadata {
            name: "t".into(),
            id: TopicId([3; 16]),
            error: None,
            partitions: (0..3).map(partition).collect(),
        };
        let mut state = State::new(config, 1);
        let topic = state.intern(&topic, 5);
        Self { state, topic, now: Host::real().now() }
    }

    fn write(&mut self, partition: i32, value: &[u8]) -> Appended {
        let to = Destination { topic: &self.topic, partition: Some(partition) };
        let record = RecordRef { value: Some(value), ..RecordRef::default() };
        let appended = self.state.append(to, &record, || self.now).unwrap();
        assert!(self.state.is_consistent());
        appended
    }

    fn send(&mut self, partition: usize) -> Option<Sending> {
        self.state.partitions[partition].queue.send(self.now)
    }

    fn answer(&mut self, partition: usize, sending: &Sending, verdict: Verdict) -> Effect {
        let effect = self.state.answered(partition, sending.ticket, verdict);
        assert!(self.state.is_consistent());
        effect
    }

    fn deliver(&mut self, partition: usize, mut offset: i64) {
        self.state.seal(partition);
        while let Some(sending) = self.send(partition) {
            self.answer(partition, &sending, Verdict::Appended { base_offset: Some(offset) });
            offset += i64::from(sending.batch.count());
        }
    }

    fn place(&self) -> Place {
        self.state.partitions[0].place()
    }
}

#[test]
fn the_gate_opens_only_when_every_record_is_acknowledged() {
    let mut bench = Bench::new(|_| ());
    bench.state.open(Epoch(1), transaction(1));
    for _ in 0..10 {
        bench.write(0, &[1; 50]);
        bench.write(2, &[2; 50]);
    }
    assert!(bench.state.settle().is_none());
    bench.deliver(0, 100);
    assert!(bench.state.settle().is_none(), "partition 2 is not acknowledged");
    let counters = bench.state.counters();
    assert_eq!((counters.sent, counters.acked, counters.inflight), (20, 10, 10));
    bench.deliver(2, 40);
    let flushed = bench.state.settle().unwrap().unwrap();
    let seen: Vec<_> =
        flushed.partitions.iter().map(|p| (p.partition, p.first_offset, p.last_offset, p.count)).collect();
    assert_eq!(seen, [(0, 100, 109, 10), (2, 40, 49, 10)]);
    assert_eq!(flushed.partitions[0].topic_id, TopicId([3; 16]));
    assert_ne!(flushed.partitions[0].digest, flushed.partitions[1].digest);
}

#[test]
fn the_halves_of_a_split_batch_hold_the_gate() {
    let mut bench = Bench::new(|_| ());
    bench.state.open(Epoch(1), transaction(1));
    for _ in 0..4 {
        bench.write(0, &[1; 10]);
    }
    bench.state.seal(0);
    let whole = bench.send(0).unwrap();
    assert!(matches!(bench.answer(0, &whole, Verdict::TooLarge), Effect::Split { .. }));
    assert!(bench.state.settle().is_none());
    let first = bench.send(0).unwrap();
    assert!(
        bench.send(0).is_none(),
        "nothing goes behind a producer's first batch before it is acknowledged"
    );
    bench.answer(0, &first, Verdict::Appended { base_offset: Some(0) });
    assert!(bench.state.settle().is_none(), "KAFKA-19479: the second half is not acknowledged");
    let second = bench.send(0).unwrap();
    bench.answer(0, &second, Verdict::Appended { base_offset: Some(2) });
    assert_eq!(bench.state.settle().unwrap().unwrap().partitions[0].count, 4);
}

#[test]
fn the_digest_does_not_depend_on_how_records_were_cut_into_batches() {
    let digest = |batch_bytes| {
        let mut bench = Bench::new(|config| config.batch_bytes = batch_bytes);
        bench.state.open(Epoch(1), transaction(1));
        for number in 0..12u8 {
            bench.write(0, &[number; 20]);
        }
        bench.deliver(0, 0);
        bench.state.settle().unwrap().unwrap().partitions[0].digest
    };
    assert_eq!(digest(100), digest(100_000));
}

#[test]
fn the_first_failure_stays_and_is_seen_by_every_later_call() {
    let mut bench = Bench::new(|_| ());
    bench.state.open(Epoch(1), transaction(1));
    bench.write(0, b"a");
    bench.write(1, b"b");
    bench.state.seal(0);
    let sending = bench.send(0).unwrap();
    let Effect::GivenUp { records, .. } = bench.answer(0, &sending, Verdict::Refused) else {
        panic!("a refused batch is given up");
    };
    let first = ProduceError::UnknownTopic { topic: "first".into() };
    bench.state.give_up(u64::from(records), first);
    bench.state.give_up(0, ProduceError::SenderEnded);
    bench.deliver(1, 0);
    for _ in 0..3 {
        let settled = bench.state.settle().unwrap();
        assert!(settled.unwrap_err().to_string().contains("first"), "a success of others does not clear it");
        let to = Destination { topic: &bench.topic, partition: Some(1) };
        assert!(bench.state.append(to, &RecordRef::default(), || bench.now).is_err());
    }
    let counters = bench.state.counters();
    assert_eq!((counters.sent, counters.acked, counters.failed), (2, 1, 1));
    assert!(counters.is_balanced() && !counters.is_settled());
}

#[test]
fn the_buffer_is_bounded_and_an_acknowledgement_makes_room() {
    let mut bench = Bench::new(|_| ());
    bench.state.open(Epoch(1), transaction(1));
    let mut written = 0;
    while bench.write(0, &[1; 100]) != Appended::NoRoom {
        written += 1;
    }
    assert!((10..20).contains(&written), "{written}");
    assert!(bench.state.buffered() <= 2000);
    assert!(bench.state.is_full, "the sender is told to seal what is open");
    assert_eq!(bench.state.counters().sent, written, "a record without room is not counted");
    bench.deliver(0, 0);
    assert_ne!(bench.write(0, &[1; 100]), Appended::NoRoom);
    bench.deliver(0, 0);
    assert_ne!(bench.write(0, &[1; 9000]), Appended::NoRoom, "an empty buffer takes a record of any size");
}

#[test]
fn a_record_that_expires_is_named_with_partition_count_and_age() {
    let mut bench = Bench::new(|config| config.delivery_timeout = Some(Duration::from_secs(3)));
    bench.state.open(Epoch(4), transaction(1));
    bench.write(1, b"a");
    bench.write(1, b"b");
    let later = bench.now + Duration::from_secs(3);
    assert!(bench.state.expired(1, bench.now + Duration::from_millis(2999)).is_none());
    assert!(bench.state.expired(0, later).is_none());
    let error = bench.state.expired(1, later).unwrap();
    let text = error.to_string();
    assert!(text.starts_with("writing 2 records to t-1 in epoch 4: not acknowledged after 3s"), "{text}");
    bench.state.drop_oldest(1, error);
    assert!(bench.state.is_consistent());
    assert!(matches!(bench.state.settle(), Some(Err(ProduceError::Expired { .. }))));
}

#[test]
fn best_effort_counts_what_it_drops_and_goes_on() {
    let mut bench = Bench::new(|config| {
        config.transactional = false;
        config.best_effort = true;
    });
    bench.state.open(Epoch(1), OpenAs::Idempotent { identity: identity(0) });
    bench.write(0, b"a");
    bench.write(0, b"b");
    bench.state.drop_oldest(0, ProduceError::UnknownTopic { topic: "t".into() });
    assert_eq!(bench.state.dropped(), 2);
    assert!(bench.state.settle().unwrap().unwrap().partitions.is_empty());
    bench.state.open(Epoch(2), OpenAs::Idempotent { identity: identity(0) });
    bench.write(0, b"c");
    bench.deliver(0, 9);
    assert_eq!(bench.state.settle().unwrap().unwrap().partitions[0].count, 1);
}

#[test]
fn a_continued_identity_keeps_its_sequences_and_a_new_one_starts_over() {
    let mut bench = Bench::new(|config| config.transactional = false);
    let mut first_sequence = |epoch: u64, id: i16| {
        bench.state.open(Epoch(epoch), OpenAs::Idempotent { identity: identity(id) });
        bench.write(0, b"a");
        bench.write(0, b"b");
        bench.state.seal(0);
        let sending = bench.send(0).unwrap();
        bench.answer(0, &sending, Verdict::Appended { base_offset: None });
        let flushed = bench.state.settle().unwrap().unwrap();
        assert_eq!((flushed.partitions[0].first_offset, flushed.partitions[0].count), (-1, 2));
        sending.stamp.base_sequence
    };
    assert_eq!([first_sequence(1, 0), first_sequence(2, 0), first_sequence(3, 1)], [0, 2, 0]);
}

#[test]
fn every_transaction_starts_at_sequence_zero_and_has_to_know_its_offsets() {
    let mut bench = Bench::new(|_| ());
    for epoch in 1..3 {
        bench.state.open(Epoch(epoch), transaction(epoch as i16));
        bench.write(0, b"a");
        bench.state.seal(0);
        let sending = bench.send(0).unwrap();
        assert_eq!(sending.stamp.base_sequence, 0);
        bench.answer(0, &sending, Verdict::Appended { base_offset: Some(5) });
        bench.state.settle().unwrap().unwrap();
    }
    bench.state.open(Epoch(3), transaction(3));
    bench.write(0, b"a");
    bench.state.seal(0);
    let sending = bench.send(0).unwrap();
    bench.answer(0, &sending, Verdict::Appended { base_offset: None });
    assert!(matches!(bench.state.settle(), Some(Err(ProduceError::NoOffset { .. }))));
}

#[test]
fn an_epoch_without_records_leaves_nothing_and_a_failed_record_is_no_record() {
    let mut bench = Bench::new(|_| ());
    bench.state.open(Epoch(1), transaction(1));
    let to = Destination { topic: &bench.topic, partition: Some(3) };
    let refused = bench.state.append(to, &RecordRef::default(), || bench.now).unwrap_err();
    assert!(refused.is_bad_record());
    assert_eq!(refused.to_string(), "writing to t-3: the topic has 3 partitions");
    assert_eq!(bench.state.settle().unwrap().unwrap(), super::Flushed::default());
    assert_eq!(bench.place().to_string(), "t-0");
}

#[test]
#[should_panic(expected = "opened before the one before it is flushed")]
fn an_epoch_is_not_opened_over_an_open_one() {
    let mut bench = Bench::new(|_| ());
    bench.state.open(Epoch(1), transaction(1));
    bench.state.open(Epoch(2), transaction(2));
}

#[test]
#[should_panic(expected = "whose sequences were abandoned")]
fn an_abandoned_identity_is_not_used_again() {
    let mut bench = Bench::new(|config| config.transactional = false);
    bench.state.open(Epoch(1), OpenAs::Idempotent { identity: identity(0) });
    bench.write(0, b"a");
    bench.state.abandon();
    assert!(bench.state.is_consistent());
    bench.state.open(Epoch(1), OpenAs::Idempotent { identity: identity(0) });
}

#[test]
fn records_without_a_key_fill_one_batch_after_another() {
    let mut bench = Bench::new(|config| config.buffer_bytes = 100_000);
    bench.state.open(Epoch(1), transaction(1));
    let mut runs = Vec::new();
    for _ in 0..60 {
        let before: Vec<u64> = bench.state.partitions.iter().map(|writer| writer.counters().sent).collect();
        let to = Destination { topic: &bench.topic, partition: None };
        bench
            .state
            .append(to, &RecordRef { value: Some(&[0; 50]), ..RecordRef::default() }, || bench.now)
            .unwrap();
        let chosen = (0..3).find(|&index| bench.state.partitions[index].counters().sent > before[index]);
        if runs.last() != Some(&chosen) {
            runs.push(chosen);
        }
    }
    // Three records fill a batch of 300 bytes.
    assert_eq!(runs.len(), 20, "{runs:?}");
    assert!(bench.state.is_consistent());
}
