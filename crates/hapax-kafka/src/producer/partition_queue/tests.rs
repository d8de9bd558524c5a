//! The queue against a small model of a partition leader: what it appends, what it takes for a duplicate.

use super::*;
use crate::record::{BatchBuilder, Batches, Compression, Decompressor, RecordRef};
use hapax_commit::{ProducerEpoch, ProducerId};
use hapax_host::Host;

const WINDOW: usize = 5;

fn identity(id: i64) -> Identity {
    Identity { producer_id: ProducerId(id), producer_epoch: ProducerEpoch(0) }
}

/// A batch of records whose values are `numbers`.
fn batch(numbers: std::ops::Range<u64>) -> SealedBatch {
    let mut builder = BatchBuilder::new();
    for number in numbers {
        builder.push(&RecordRef { value: Some(&number.to_be_bytes()), ..RecordRef::default() }).unwrap();
    }
    builder.seal(Compression::None, &mut Compressor::new()).unwrap()
}

/// What a leader remembers of one producer, and its log.
#[derive(Default)]
struct Leader {
    log: Vec<u64>,
    producer: Option<(i64, i64)>,
    /// First and last sequence of the last five batches, and where the first record is.
    recent: VecDeque<(i32, i32, i64)>,
    /// Batches of more records are too large.
    most_records: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Said {
    Appended(i64),
    OutOfSequence,
    TooLarge,
}

impl Leader {
    fn new(most_records: u32) -> Self {
        Self { most_records, ..Self::default() }
    }

    fn take(&mut self, batch: &SealedBatch, stamp: Stamp) -> Said {
        if batch.count() > self.most_records {
            return Said::TooLarge;
        }
        let (first, last) = (stamp.base_sequence, sequence_after(stamp.base_sequence, batch.count() - 1));
        if let Some((_, _, offset)) = self.recent.iter().find(|known| (known.0, known.1) == (first, last)) {
            return Said::Appended(*offset);
        }
        let expected = self.recent.back().map_or(0, |known| sequence_after(known.1, 1));
        let is_known = self.producer.is_some_and(|known| known.0 == stamp.producer_id);
        // A producer that it knows nothing of may begin anywhere.
        if is_known && first != expected {
            return Said::OutOfSequence;
        }
        if !is_known {
            self.recent.clear();
        }
        self.producer = Some((stamp.producer_id, 0));
        let offset = self.log.len() as i64;
        let wire = batch.stamp(stamp).to_bytes();
        let raw = Batches::new(wire).next().unwrap().unwrap();
        let records = raw.decode(&mut Decompressor::default()).unwrap();
        let number = |view| u64::from_be_bytes(records.value(view).unwrap().try_into().unwrap());
        self.log.extend(records.views().iter().map(number));
        self.recent.push_back((first, last, offset));
        if self.recent.len() > 5 {
            self.recent.pop_front();
        }
        Said::Appended(offset)
    }
}

/// A queue that is driven by hand, and its account.
struct Bench {
    queue: PartitionQueue,
    compressor: Compressor,
    now: Instant,
    written: u64,
    acknowledged: u64,
}

impl Bench {
    /// The leader has appended something before.
    fn new() -> Self {
        let mut bench = Self::unknown();
        bench.queue.is_known = true;
        bench
    }

    /// The leader knows nothing of the producer.
    fn unknown() -> Self {
        let mut queue = PartitionQueue::new(WINDOW);
        queue.open(identity(1), true);
        Self { queue, compressor: Compressor::new(), now: Host::real().now(), written: 0, acknowledged: 0 }
    }

    fn push(&mut self, records: u64) {
        self.queue.push(batch(self.written..self.written + records), self.now);
        self.written += records;
    }

    fn send(&mut self) -> Option<Sending> {
        self.queue.send(self.now)
    }

    fn answer(&mut self, ticket: Ticket, verdict: Verdict) -> Effect {
        let effect = self.queue.answered(ticket, verdict, &mut self.compressor).unwrap();
        if let Effect::Acknowledged { records, .. } = effect {
            self.acknowledged += u64::from(records);
        }
        assert_eq!(self.written, self.acknowledged + self.queue.records(), "a record is counted once");
        effect
    }

    fn again(&self) -> Verdict {
        Verdict::TryAgain { at: self.now, outcome_unknown: false }
    }

    fn sequences(sent: &[Sending]) -> Vec<i32> {
        sent.iter().map(|sending| sending.stamp.base_sequence).collect()
    }

    fn send_all(&mut self) -> Vec<Sending> {
        std::iter::from_fn(|| self.send()).collect()
    }
}

const APPENDED: Verdict = Verdict::Appended { base_offset: Some(0) };

#[test]
fn no_more_than_the_window_is_sent() {
    let mut bench = Bench::new();
    for _ in 0..8 {
        bench.push(10);
    }
    let sent = bench.send_all();
    assert_eq!(Bench::sequences(&sent), [0, 10, 20, 30, 40]);
    bench.answer(sent[0].ticket, APPENDED);
    assert_eq!(Bench::sequences(&bench.send_all()), [50]);
}

#[test]
fn after_a_failed_attempt_nothing_is_sent_until_all_answers_are_there() {
    let mut bench = Bench::new();
    for _ in 0..4 {
        bench.push(10);
    }
    let sent = bench.send_all();
    bench.push(10);
    assert_eq!(bench.answer(sent[0].ticket, bench.again()), Effect::Again);
    assert!(bench.send().is_none());
    for late in &sent[1..3] {
        let out_of_sequence = Verdict::OutOfSequence { at: bench.now };
        assert_eq!(bench.answer(late.ticket, out_of_sequence), Effect::Again);
        assert!(bench.send().is_none());
    }
    bench.answer(sent[3].ticket, bench.again());
    assert_eq!(Bench::sequences(&bench.send_all()), [0, 10, 20, 30, 40]);
}

#[test]
fn a_retry_waits_for_its_time() {
    let mut bench = Bench::new();
    bench.push(1);
    let sent = bench.send().unwrap();
    let at = bench.now + Duration::from_millis(100);
    bench.answer(sent.ticket, Verdict::TryAgain { at, outcome_unknown: true });
    assert_eq!(bench.queue.sendable_at(bench.now), Some(at));
    assert!(bench.send().is_none());
    bench.now = at;
    assert_eq!(bench.send().unwrap().stamp, sent.stamp);
    assert!(bench.queue.has_unknown_outcome());
}

#[test]
fn a_batch_that_is_acknowledged_early_still_takes_its_place_in_the_window() {
    let mut bench = Bench::new();
    for _ in 0..7 {
        bench.push(1);
    }
    let sent = bench.send_all();
    bench.answer(sent[0].ticket, Verdict::TryAgain { at: bench.now, outcome_unknown: true });
    for later in &sent[1..] {
        bench.answer(later.ticket, APPENDED);
    }
    // Batches 1 to 4 are in the log; a sixth one would push batch 0 out of what the leader remembers.
    let again = bench.send_all();
    assert_eq!(Bench::sequences(&again), [0]);
    bench.answer(again[0].ticket, APPENDED);
    assert_eq!(Bench::sequences(&bench.send_all()), [5, 6]);
}

#[test]
fn out_of_sequence_is_an_error_only_for_the_first_batch() {
    let mut bench = Bench::new();
    bench.push(3);
    bench.push(3);
    let sent = bench.send_all();
    let verdict = Verdict::OutOfSequence { at: bench.now };
    assert_eq!(bench.answer(sent[1].ticket, verdict), Effect::Again);
    assert_eq!(bench.answer(sent[0].ticket, verdict), Effect::OutOfSequence { sequence: 0 });
    assert!(bench.send().is_none(), "nothing goes on under an identity that is spent");
    assert!(bench.queue.needs_identity());
    bench.queue.renew(identity(2));
    let sent = bench.send().unwrap();
    assert_eq!((sent.stamp.base_sequence, sent.stamp.producer_id), (0, 2));
    bench.answer(sent.ticket, APPENDED);
    let sent = bench.send().unwrap();
    assert_eq!((sent.stamp.base_sequence, sent.stamp.producer_id), (3, 2));
}

#[test]
fn nothing_is_sent_behind_the_first_batch_before_it_is_acknowledged() {
    let mut bench = Bench::unknown();
    bench.push(4);
    bench.push(1);
    let mut leader = Leader::new(2);
    let first = bench.send().unwrap();
    assert!(bench.send().is_none(), "the leader would take it for the producer's first");
    assert_eq!(leader.take(&first.batch, first.stamp), Said::TooLarge);
    bench.answer(first.ticket, Verdict::TooLarge);
    for expected in [0, 2, 4] {
        let sent = bench.send().unwrap();
        assert_eq!(sent.stamp.base_sequence, expected);
        assert!(matches!(leader.take(&sent.batch, sent.stamp), Said::Appended(_)));
        bench.answer(sent.ticket, APPENDED);
    }
    assert_eq!(leader.log, [0, 1, 2, 3, 4]);
}

#[test]
fn the_halves_of_a_split_batch_share_its_sequences() {
    let mut bench = Bench::new();
    for _ in 0..3 {
        bench.push(5);
    }
    let sent = bench.send_all();
    bench.answer(sent[0].ticket, APPENDED);
    assert!(matches!(bench.answer(sent[1].ticket, Verdict::TooLarge), Effect::Split { .. }));
    assert!(bench.send().is_none(), "the batch behind it is still on its way");
    bench.answer(sent[2].ticket, Verdict::OutOfSequence { at: bench.now });
    let again = bench.send_all();
    assert_eq!(Bench::sequences(&again), [5, 7, 10]);
    for sending in again {
        bench.answer(sending.ticket, APPENDED);
    }
    assert!(bench.queue.is_empty());
}

#[test]
fn a_single_record_that_is_too_large_is_given_up_and_stops_the_identity() {
    let mut bench = Bench::new();
    bench.push(1);
    bench.push(2);
    let sent = bench.send_all();
    let effect = bench.queue.answered(sent[0].ticket, Verdict::TooLarge, &mut bench.compressor).unwrap();
    assert!(matches!(effect, Effect::GivenUp { records: 1, .. }));
    assert_eq!(bench.queue.records(), 2);
    assert!(!bench.queue.needs_identity(), "a batch is still on its way");
    let verdict = Verdict::OutOfSequence { at: bench.now };
    assert_eq!(bench.queue.answered(sent[1].ticket, verdict, &mut bench.compressor), Ok(Effect::Again));
    assert!(bench.queue.needs_identity());
    assert!(bench.send().is_none());
    bench.queue.renew(identity(2));
    assert_eq!(bench.send().unwrap().stamp.base_sequence, 0);
}

#[test]
fn an_answer_to_what_was_dropped_changes_nothing() {
    let mut bench = Bench::new();
    bench.push(4);
    let sent = bench.send().unwrap();
    assert_eq!(bench.queue.drop_first().map(|(records, _)| records), Some(4));
    assert_eq!(bench.queue.answered(sent.ticket, APPENDED, &mut bench.compressor), Ok(Effect::Stale));
    assert!(bench.queue.is_empty());
    assert_eq!(bench.queue.drop_first(), None);
    bench.queue.open(identity(2), true);
    bench.written = 0;
    bench.push(1);
    let again = bench.send().unwrap();
    assert_ne!(again.ticket, sent.ticket, "tickets are never used twice");
    assert_eq!(again.stamp.base_sequence, 0);
}

#[test]
fn sequences_go_from_the_largest_number_to_zero() {
    assert_eq!(sequence_after(i32::MAX, 1), 0);
    assert_eq!(sequence_after(i32::MAX - 1, 3), 1);
    assert_eq!(sequence_after(0, 5), 5);
}

/// A network that loses answers, and requests that are executed long after they were given up.
struct Network {
    rng: fastrand::Rng,
    leader: Leader,
    /// On their way, in order.
    line: VecDeque<Sending>,
    /// Given up by the client, and maybe executed later.
    zombies: Vec<Sending>,
}

impl Network {
    fn verdict(&mut self, bench: &Bench, said: Said) -> Verdict {
        match said {
            Said::Appended(offset) => Verdict::Appended { base_offset: Some(offset) },
            Said::OutOfSequence => Verdict::OutOfSequence { at: bench.now },
            Said::TooLarge => Verdict::TooLarge,
        }
    }

    /// The broker takes the next request, or refuses it for a passing reason, or its answer is lost.
    fn deliver(&mut self, bench: &mut Bench) {
        let Some(sending) = self.line.pop_front() else { return };
        let verdict = match self.rng.u8(0..10) {
            0..=1 => Verdict::TryAgain { at: bench.now, outcome_unknown: false },
            2 => {
                self.leader.take(&sending.batch, sending.stamp);
                Verdict::TryAgain { at: bench.now, outcome_unknown: true }
            }
            _ => {
                let said = self.leader.take(&sending.batch, sending.stamp);
                self.verdict(bench, said)
            }
        };
        let effect = bench.answer(sending.ticket, verdict);
        assert!(!matches!(effect, Effect::OutOfSequence { .. } | Effect::GivenUp { .. }), "{effect:?}");
    }

    /// The connection is lost with everything on it; the broker may have read some of it.
    fn lose(&mut self, bench: &mut Bench) {
        while let Some(sending) = self.line.pop_front() {
            let verdict = Verdict::TryAgain { at: bench.now, outcome_unknown: true };
            bench.answer(sending.ticket, verdict);
            if self.rng.bool() {
                self.zombies.push(sending);
            }
        }
    }

    /// The broker executes a request whose connection is gone.
    fn haunt(&mut self) {
        if !self.zombies.is_empty() {
            let zombie = self.zombies.swap_remove(self.rng.usize(0..self.zombies.len()));
            self.leader.take(&zombie.batch, zombie.stamp);
        }
    }
}

#[test]
fn every_schedule_of_losses_retries_and_splits_appends_once_and_in_order() {
    for seed in 0..3000 {
        let rng = fastrand::Rng::with_seed(seed);
        let most = if seed % 3 == 0 { 4 } else { 1000 };
        let mut network =
            Network { rng, leader: Leader::new(most), line: VecDeque::new(), zombies: Vec::new() };
        let mut bench = Bench::unknown();
        for _ in 0..200 {
            match network.rng.u8(0..12) {
                0..=2 => bench.push(network.rng.u64(1..9)),
                3..=5 => network.line.extend(bench.send()),
                6..=9 => network.deliver(&mut bench),
                10 => network.lose(&mut bench),
                _ => network.haunt(),
            }
        }
        let mut rounds = 0;
        while !bench.queue.is_empty() {
            network.line.extend(bench.send_all());
            network.deliver(&mut bench);
            rounds += 1;
            assert!(rounds < 10_000, "seed {seed} makes no progress");
        }
        while !network.zombies.is_empty() {
            network.haunt();
        }
        let expected: Vec<u64> = (0..bench.written).collect();
        assert!(network.leader.log == expected, "seed {seed}: {:?}", network.leader.log);
        assert_eq!(bench.acknowledged, bench.written, "seed {seed}");
    }
}
