//! The report of a recovery: how each decided transaction stands, what the engine has to store, and what comes then.

use super::{
    commit::{Lost, LostPartition},
    error::EngineError,
    owner::Owner,
    resolve::{Bounds, Resolve, Stop},
    sink::{Connected, KafkaSink},
};
use hapax_commit::recovery::handover::{Handover, Known, Settled, Standing};
use std::{fmt, sync::Arc};

/// What became of the transactions that earlier runs had decided.
///
/// Store [`Recovered::left`] as the transactions of the newest checkpoint, in the place of those that were handed over.
/// Then, if [`Recovered::is_settled`], call [`Recovered::recorded`] and open lanes. If not, and if it is the first time,
/// hand over what is left once more: what was written again is committed then. What stays aborted, open or unknown is for
/// the engine to judge; [`Settled::standing`] says why each one is where it is:
///
/// * go back to the checkpoint before, while [`Recovered::has_way_back`]: hand over no transaction, only ids;
/// * go on without the records in [`Recovered::lost`]: hand over what is left but those, once that is stored;
/// * wait, and recover again.
#[must_use = "what was decided may not be committed yet"]
pub struct Recovered {
    sink: KafkaSink,
    connected: Connected,
    bounds: Bounds,
    owner: Arc<dyn Owner>,
    handover: Handover,
    settled: Vec<Settled>,
}

impl Recovered {
    pub(super) async fn begin(
        sink: KafkaSink,
        connected: Connected,
        bounds: Bounds,
        owner: Arc<dyn Owner>,
        mut handover: Handover,
    ) -> Result<Self, EngineError> {
        let resolve = Resolve { connected: &connected, bounds, owner: &owner };
        match resolve.run(&mut handover).await? {
            Stop::Report(settled) => {
                let recovered = Self { sink, connected, bounds, owner, handover, settled };
                recovered.log();
                Ok(recovered)
            }
            Stop::Ready(_) => Err(EngineError::Bug { what: "a handover was ready before its report".into() }),
        }
    }

    /// Every transaction that was handed over, and how it stands.
    pub fn transactions(&self) -> &[Settled] {
        &self.settled
    }

    /// Is every one committed?
    pub fn is_settled(&self) -> bool {
        self.handover.is_settled()
    }

    /// Is none of them committed, or possibly so? Then the checkpoint before is as good as this one.
    pub fn has_way_back(&self) -> bool {
        let is_out = |settled: &Settled| match settled.standing {
            Standing::Committed | Standing::Unknown(_) => true,
            Standing::Rewritten(_) | Standing::Aborted(_) | Standing::Open(_) | Standing::Incomplete(_) => {
                false
            }
        };
        !self.settled.iter().any(is_out)
    }

    /// What the newest checkpoint has to name from here on: all but what is committed, with what was written again in the
    /// place of what was aborted.
    pub fn left(&self) -> Vec<Known> {
        let left = |settled: &Settled| match &settled.standing {
            Standing::Committed => None,
            Standing::Rewritten(new) => Some(Known::Handle(new.clone())),
            Standing::Aborted(_) | Standing::Open(_) | Standing::Incomplete(_) | Standing::Unknown(_) => {
                Some(settled.known.clone())
            }
        };
        self.settled.iter().filter_map(left).collect()
    }

    /// The transactions whose records readers do not see, and that were not written again.
    pub fn lost(&self) -> Vec<Lost> {
        let lost = |settled: &Settled| match (&settled.standing, &settled.known) {
            (Standing::Aborted(why), Known::Handle(handle)) => Some(Lost::of(handle, why)),
            (Standing::Aborted(why), Known::IdOnly(known)) => Some(Lost {
                transactional_id: known.transactional_id.clone(),
                partitions: Vec::<LostPartition>::new(),
                why: why.clone(),
            }),
            (
                Standing::Committed
                | Standing::Rewritten(_)
                | Standing::Open(_)
                | Standing::Incomplete(_)
                | Standing::Unknown(_),
                _,
            ) => None,
        };
        self.settled.iter().filter_map(lost).collect()
    }

    /// The engine has stored that everything is committed: no checkpoint that it could start from names a transaction
    /// of this report any more. Clears the ids that were in doubt; lanes can be opened then.
    ///
    /// # Errors
    /// [`EngineError::Usage`]: not everything is committed. [`EngineError::Superseded`]: the owner does not hold any more.
    /// [`EngineError::Kafka`]: brokers that do not answer or refuse; recover again, with nothing to hand over.
    pub async fn recorded(mut self) -> Result<(), EngineError> {
        if !self.is_settled() {
            return Err(EngineError::usage(format!(
                "going on after a recovery: not every transaction is committed ({self:?}); store what is left, and hand it \
                 over once more"
            )));
        }
        self.handover.recorded();
        let resolve = Resolve { connected: &self.connected, bounds: self.bounds, owner: &self.owner };
        match resolve.run(&mut self.handover).await? {
            Stop::Ready(identities) => {
                self.sink.have_cleared(identities);
                Ok(())
            }
            Stop::Report(_) => Err(EngineError::Bug { what: "a handover has reported twice".into() }),
        }
    }

    fn log(&self) {
        let generation = self.owner.generation();
        for settled in &self.settled {
            let (id, standing) = (settled.known.transactional_id(), &settled.standing);
            match standing {
                Standing::Committed => {
                    tracing::info!(%id, generation, "the decided transaction is committed")
                }
                Standing::Rewritten(new) => tracing::warn!(
                    %id, generation, again = %new.transactional_id, records = new.records(),
                    "the broker had aborted the decided transaction: its records are prepared again"
                ),
                Standing::Aborted(_) | Standing::Open(_) | Standing::Incomplete(_) | Standing::Unknown(_) => {
                    tracing::error!(%id, generation, "the decided transaction is not committed: {standing:?}");
                }
            }
        }
    }
}

impl fmt::Debug for Recovered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let each = self.settled.iter().map(|settled| (settled.known.transactional_id(), &settled.standing));
        f.debug_map().entries(each).finish()
    }
}
