//! One shard of a live run: reads, writes its lane's transaction, and hands an epoch over at its barrier.

use super::{
    super::{
        kafka::{Refused, TOPIC, TOPIC_ID, Told},
        promise::INVARIANT,
        search::Violation,
    },
    World, position,
    run::{Machine, Run, broken_rule},
    split,
};
use hapax_commit::{
    Epoch, HandlePartition, Identity, RunNonce, ShardId, TransactionalId,
    cohort::{self, PreparedHandle, Share},
    handle::LAST_PRODUCER_EPOCH,
    lane::{OpenWith, Written},
};
use std::collections::VecDeque;

/// What a request was answered, and what that breaks.
type Answered<T> = Result<Told<Result<T, Refused>>, Violation>;

#[derive(Clone, Debug, Default, Hash)]
pub(super) struct Shard {
    pub(super) next: u64,
    pub(super) opening: Option<OpenWith>,
    pub(super) writing: Option<(Identity, TransactionalId)>,
    /// First and last offset, and how many.
    pub(super) written: Option<(i64, i64, u64)>,
    pub(super) touched: bool,
    pub(super) barriers: VecDeque<(Epoch, bool)>,
    /// A record of the epoch that is written, on its way.
    pub(super) sent: Option<Sent>,
    /// The epoch before it, of which a record is on its way.
    pub(super) flushing: Option<Flushing>,
}

#[derive(Clone, Debug, Hash)]
pub(super) struct Sent {
    identity: Identity,
    id: TransactionalId,
    value: u64,
}

/// An epoch whose barrier has come, and not every acknowledgement.
#[derive(Clone, Debug, Hash)]
pub(super) struct Flushing {
    epoch: Epoch,
    next: u64,
    written: Option<(i64, i64, u64)>,
    sent: Sent,
}

impl Shard {
    pub(super) fn is_sending(&self) -> bool {
        self.sent.is_some() || self.flushing.is_some()
    }
}

impl World {
    pub(super) fn tick(&mut self, run: &mut Run) -> Result<(), Violation> {
        self.live(run, cohort::Input::Tick)
    }

    /// The epoch that a shard writes: until it meets a barrier, the one before that.
    fn epoch_of(run: &Run, lane: usize) -> Option<Epoch> {
        let Machine::Cohort(machine) = &run.machine else { return None };
        Some(run.shards[lane].barriers.front().map_or(machine.writing(), |(epoch, _)| *epoch))
    }

    /// A shard reads its next record and writes it.
    pub(super) fn work(&mut self, run: &mut Run, lane: usize) -> Result<(), Violation> {
        let Some(epoch) = Self::epoch_of(run, lane) else { return Ok(()) };
        let value = run.shards[lane].next;
        let told = match self.begin(run, lane, epoch)? {
            Told::Definite(Ok((identity, id))) => {
                let mut written = run.shards[lane].written;
                let told = self.write(run.nonce, lane, &mut written, &Sent { identity, id, value })?;
                run.shards[lane].written = written;
                told
            }
            Told::Definite(Err(refused)) => Told::Definite(Err(refused)),
            Told::ComeAgain => Told::ComeAgain,
        };
        match told {
            Told::ComeAgain => Ok(()),
            Told::Definite(Err(refused)) => self.refused(run, refused),
            Told::Definite(Ok(())) => self.has_read(run, lane, epoch),
        }
    }

    /// A shard reads its next record and sends it: nobody has written it yet.
    pub(super) fn send(&mut self, run: &mut Run, lane: usize) -> Result<(), Violation> {
        let Some(epoch) = Self::epoch_of(run, lane) else { return Ok(()) };
        match self.begin(run, lane, epoch)? {
            Told::ComeAgain => Ok(()),
            Told::Definite(Err(refused)) => self.refused(run, refused),
            Told::Definite(Ok((identity, id))) => {
                let shard = &mut run.shards[lane];
                shard.sent = Some(Sent { identity, id, value: shard.next });
                self.has_read(run, lane, epoch)
            }
        }
    }

    /// A shard begins the transaction of its epoch.
    pub(super) fn open(&mut self, run: &mut Run, lane: usize) -> Result<(), Violation> {
        let Some(epoch) = Self::epoch_of(run, lane) else { return Ok(()) };
        match self.begin(run, lane, epoch)? {
            Told::Definite(Ok(_)) => self.reached.push("opened without a record"),
            Told::Definite(Err(refused)) => return self.refused(run, refused),
            Told::ComeAgain => {}
        }
        Ok(())
    }

    /// What was sent is written; an epoch that waited for it is handed over.
    pub(super) fn acknowledge(&mut self, run: &mut Run, lane: usize) -> Result<(), Violation> {
        let shard = &run.shards[lane];
        let (mut written, sent) = match (&shard.flushing, &shard.sent) {
            (Some(flushing), _) => (flushing.written, flushing.sent.clone()),
            (None, Some(sent)) => (shard.written, sent.clone()),
            (None, None) => return Ok(()),
        };
        match self.write(run.nonce, lane, &mut written, &sent)? {
            Told::ComeAgain => return Ok(()),
            Told::Definite(Err(refused)) => return self.refused(run, refused),
            Told::Definite(Ok(())) => {}
        }
        let shard = &mut run.shards[lane];
        if let Some(flushing) = shard.flushing.take() {
            self.reached.push("acknowledged behind a barrier");
            return self.hand_over(run, lane, flushing.epoch, flushing.next, Some(written));
        }
        shard.sent = None;
        shard.written = written;
        Ok(())
    }

    fn refused(&mut self, run: &mut Run, Refused(code): Refused) -> Result<(), Violation> {
        self.reached.push("fenced producer");
        self.live(run, cohort::Input::Failed { why: format!("code {code}") })
    }

    fn has_read(&mut self, run: &mut Run, lane: usize, epoch: Epoch) -> Result<(), Violation> {
        let shard = &mut run.shards[lane];
        shard.next += 1;
        if !std::mem::replace(&mut shard.touched, true) {
            return self.live(run, cohort::Input::Touched { shard: shard_id(lane), epoch });
        }
        Ok(())
    }

    /// Begins a transaction, if none is begun: who writes it, and under which id.
    fn begin(&mut self, run: &mut Run, lane: usize, epoch: Epoch) -> Answered<(Identity, TransactionalId)> {
        if run.shards[lane].writing.is_none() {
            if run.shards[lane].opening.is_none() {
                // Not yet is back-pressure.
                let Ok(open) = run.lanes[lane].open(epoch) else { return Ok(Told::ComeAgain) };
                run.shards[lane].opening = Some(open);
            }
            while let Some(open) = run.shards[lane].opening.clone().filter(|open| open.init) {
                self.note_used_up(open.identity);
                let own = (!open.is_fresh).then_some(open.identity);
                match self.kafka().init(&open.transactional_id, own) {
                    Told::ComeAgain => return Ok(Told::ComeAgain),
                    Told::Definite(Err(refused)) => return Ok(Told::Definite(Err(refused))),
                    Told::Definite(Ok(identity)) => {
                        self.check_identified(run.nonce, &open.transactional_id)?;
                        run.shards[lane].opening = Some(run.lanes[lane].identified(epoch, identity));
                    }
                }
            }
            run.lanes[lane].check().map_err(|broken| broken_rule(&broken))?;
            let open = run.shards[lane].opening.take().expect("it was just opened");
            run.shards[lane].writing = Some((open.identity, open.transactional_id));
        }
        Ok(Told::Definite(Ok(run.shards[lane].writing.clone().expect("it was just opened"))))
    }

    /// Produce of a record behind what a transaction has written.
    fn write(
        &mut self,
        by: RunNonce,
        lane: usize,
        written: &mut Option<(i64, i64, u64)>,
        sent: &Sent,
    ) -> Answered<()> {
        let count = written.map_or(0, |(_, _, count)| count);
        let sequence = i32::try_from(count).expect("a few");
        Ok(match self.kafka().produce(&sent.id, sent.identity, sequence, sent.value) {
            Told::ComeAgain => Told::ComeAgain,
            Told::Definite(Err(refused)) => Told::Definite(Err(refused)),
            Told::Definite(Ok(offset)) => {
                *written = Some((written.map_or(offset, |(first, ..)| first), offset, count + 1));
                self.check_produced(by, lane, sent.value)?;
                Told::Definite(Ok(()))
            }
        })
    }

    pub(super) fn note_used_up(&mut self, identity: Identity) {
        if identity.producer_epoch >= LAST_PRODUCER_EPOCH {
            self.reached.push("producer epochs used up");
        }
    }

    /// A barrier reaches a shard, which hands over at once where everything is acknowledged.
    pub(super) fn meet(&mut self, run: &mut Run, lane: usize) -> Result<(), Violation> {
        let shard = &mut run.shards[lane];
        let Some((epoch, _)) = shard.barriers.pop_front() else { return Ok(()) };
        shard.touched = false;
        let (next, written) = (shard.next, shard.written.take());
        let has_begun = shard.writing.take().is_some();
        if has_begun {
            run.lanes[lane].flushing(epoch);
        }
        if let Some(sent) = run.shards[lane].sent.take() {
            run.shards[lane].flushing = Some(Flushing { epoch, next, written, sent });
            return Ok(());
        }
        self.hand_over(run, lane, epoch, next, has_begun.then_some(written))
    }

    /// What a shard has of an epoch; `written`: of a transaction, if one was begun.
    fn hand_over(
        &mut self,
        run: &mut Run,
        lane: usize,
        epoch: Epoch,
        next: u64,
        written: Option<Option<(i64, i64, u64)>>,
    ) -> Result<(), Violation> {
        let mut share = Share { positions: [(split(lane), position(next))].into(), ..Share::default() };
        if let Some(written) = written {
            let partition = |(first_offset, last_offset, count)| HandlePartition {
                topic: TOPIC.into(),
                topic_id: TOPIC_ID,
                partition: i32::try_from(lane).expect("a few"),
                first_offset,
                last_offset,
                count,
                digest: None,
            };
            let written = written.map(|part| Written {
                started_ms: self.kafka.now_ms(),
                deadline_ms: i64::MAX,
                partitions: vec![partition(part)],
            });
            let handle = run.lanes[lane].flushed(epoch, written);
            let handle =
                handle.map_err(|fault| Violation { property: INVARIANT, what: format!("{fault:?}") })?;
            run.lanes[lane].check().map_err(|broken| broken_rule(&broken))?;
            share.handles.extend(handle.map(|handle| PreparedHandle { handle, deadline_ms: u64::MAX }));
        }
        self.live(run, cohort::Input::ShardPrepared { shard: shard_id(lane), epoch, share })
    }
}

pub(super) fn shard_id(lane: usize) -> ShardId {
    ShardId(u32::try_from(lane).expect("a few"))
}
