//! A job that has read everything, and is started again.
//!
//! Owns that its offsets do not expire as long as somebody starts it: brokers would forget with them that it has
//! finished, and it would have to be begun anew.

use super::{TransactionDecider, object, take_over::AT_ONCE};
use crate::{error::JobError, limits};
use futures::{StreamExt, TryStreamExt, stream};
use hapax_commit::{ShardId, ledger::Carrier};
use hapax_kafka::transaction::EndTxnAnswer;

impl TransactionDecider {
    /// Commits the offsets of every shard again, each in a transaction without records. What cannot be committed is told
    /// and left: a topic that was read to its end may be gone.
    pub(crate) async fn recommit(&self) {
        let (host, job) = (&self.start.host, &self.start.plan.name);
        let shards: Vec<_> = self.shards().filter(|shard| self.has_place(*shard)).collect();
        let recommitted = stream::iter(shards).map(|shard| self.recommitted(shard)).buffer_unordered(AT_ONCE);
        let told = match host.timeout(limits::REPORT_EVERY, recommitted.try_collect::<()>()).await {
            Some(Ok(())) => return,
            Some(Err(error)) => error.chain(),
            None => format!("no answer within {:?}", limits::REPORT_EVERY),
        };
        tracing::warn!(
            %job,
            "the job has finished, and its offsets could not all be committed again: {told}; brokers forget them some time"
        );
    }

    async fn recommitted(&self, shard: ShardId) -> Result<(), JobError> {
        let progress = self.progress.as_ref().expect("a job is known to have finished by its progress");
        let cleared = self.cleared.as_ref().expect("progress is read after every id is cleared");
        let Some(known) = progress.shards.get(&shard) else { return Ok(()) };
        let epoch = known.epoch.next();
        let transactional_id = self.lane(shard).transactional_id(&self.start.plan.name, epoch);
        let identity = cleared.0[&transactional_id];
        let carrier = Carrier { transactional_id, identity, version: self.version, partitions: Vec::new() };
        let ending = self.ending();
        let carried = self.home.offsets(shard, epoch, identity, &known.positions, self.room);
        ending.carry(&carrier, &carried, || {}).await?;
        self.start.own.ending(&carrier.transactional_id, identity, self.version);
        match ending.commit(&carrier, || {}).await {
            EndTxnAnswer::Committed { next } => self.start.own.add(&carrier.transactional_id, next),
            answer => return Err(ending.not_committed(epoch, &carrier, &answer)),
        }
        let places = self.home.places_of(&self.start.record.layout, shard);
        ending.tell(&carrier, &places).await?;
        if let (Some(objects), Some(former), Some(_)) = (&self.start.objects, &known.object, &carried.object)
        {
            object::removed(objects.clone(), vec![former.clone()]).await;
        }
        Ok(())
    }
}
