//! Carries out what the handover machine asks for: clears, looks, commits, writes again.
//!
//! Owns no judgement. Effects do not depend on each other and run at once.

use super::{error::EngineError, owner::Owner, sink::Connected};
use crate::{
    error::{JobError, with_causes},
    limits,
};
use futures::{StreamExt, future::BoxFuture, stream::FuturesUnordered};
use hapax_commit::{
    Epoch, Handle, Identity,
    evidence::{Described, EndTxnAnswer, LaneLook, Witness},
    recovery::handover::{CommitWith, Effect, Handover, Input, Settled, Standing},
};
use hapax_host::{Deadline, Instant};
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// How long brokers are waited for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub(super) patience: Duration,
}

/// Where a handover stops for its caller.
#[derive(Debug)]
pub(super) enum Stop {
    Report(Vec<Settled>),
    Ready(BTreeMap<String, Identity>),
}

/// What an effect is carried out with.
pub(super) struct Resolve<'a> {
    pub(super) connected: &'a Connected,
    pub(super) bounds: Bounds,
    pub(super) owner: &'a Arc<dyn Owner>,
}

type Performing = BoxFuture<'static, Result<Input, EngineError>>;

impl Resolve<'_> {
    /// Runs the machine until it reports or is done.
    pub(super) async fn run(&self, handover: &mut Handover) -> Result<Stop, EngineError> {
        let host = &self.connected.host;
        let mut pending = FuturesUnordered::<Performing>::new();
        let mut until = host.now() + self.bounds.patience;
        loop {
            while let Some(effect) = handover.poll_effect() {
                match effect {
                    Effect::Report(settled) => return Ok(Stop::Report(settled)),
                    Effect::Ready(identities) => return Ok(Stop::Ready(identities)),
                    Effect::Superseded => return Err(self.superseded()),
                    effect => {
                        if begins(&effect) {
                            until = host.now() + self.bounds.patience;
                        }
                        pending.push(self.perform(effect));
                    }
                }
            }
            let input = tokio::select! { biased;
                performed = pending.next() => match performed {
                    Some(performed) => performed?,
                    None => return Err(EngineError::Bug { what: "a handover waits for nothing".into() }),
                },
                () = host.sleep(limits::RECOVERY_TICK) => tick(host.now(), until),
            };
            handover.step(host.wall_ms(), input);
        }
    }

    fn superseded(&self) -> EngineError {
        EngineError::Superseded { job: self.connected.job.clone(), generation: self.owner.generation() }
    }

    fn perform(&self, effect: Effect) -> Performing {
        let connected = self.connected.clone();
        let patience = self.bounds.patience;
        match effect {
            Effect::Clear { id } => clear(connected, self.owner.clone(), id),
            Effect::Look { item, handle, markers, attempt } => {
                look(connected, item, handle, markers, attempt)
            }
            Effect::Describe { item, id, attempt } => Box::pin(async move {
                connected.host.sleep(limits::look_pause(attempt)).await;
                let seen = connected.brokers.seen(&connected.client, &id).await;
                Ok(Input::Described { item, seen })
            }),
            Effect::Commit { item, with } => Box::pin(async move {
                let answer = commit(&connected, with, patience).await?;
                Ok(Input::EndTxnAnswered { item, answer })
            }),
            Effect::ReadBack { item, handle, attempt } => Box::pin(async move {
                connected.host.sleep(limits::look_pause(attempt)).await;
                let partitions = connected.brokers.read_back(&connected.client, &handle).await;
                Ok(Input::ReadBack { item, partitions })
            }),
            Effect::Rewrite { item, handle, epoch, identity } => {
                rewrite(connected, item, handle, epoch, identity)
            }
            Effect::Tell { item, handle } => Box::pin(async move {
                let Connected { brokers, job, client, late_markers, .. } = &connected;
                brokers.complete_noting(job, client, &handle, late_markers).await?;
                Ok(Input::Told { item })
            }),
            Effect::Report(_) | Effect::Ready(_) | Effect::Superseded => {
                unreachable!("the caller ends on these")
            }
        }
    }
}

/// The first try of something: it has the whole of the patience, however long took what came before it.
fn begins(effect: &Effect) -> bool {
    match effect {
        Effect::Look { attempt, .. } | Effect::Describe { attempt, .. } => *attempt == 0,
        Effect::Commit { .. } | Effect::Rewrite { .. } | Effect::Tell { .. } => true,
        Effect::Clear { .. }
        | Effect::ReadBack { .. }
        | Effect::Report(_)
        | Effect::Ready(_)
        | Effect::Superseded => false,
    }
}

fn tick(now: Instant, until: Instant) -> Input {
    if now >= until { Input::PatienceOver } else { Input::Tick }
}

/// Asks the owner, then ends and fences.
fn clear(connected: Connected, owner: Arc<dyn Owner>, id: String) -> Performing {
    Box::pin(async move {
        let holds = owner.holds().await.map_err(|error| EngineError::Run {
            code: crate::Code::Store,
            message: format!(
                "clearing {id}: whether run {} is still the newest could not be found out: {}; nothing was done",
                owner.generation(),
                with_causes(&*error)
            ),
        })?;
        if !holds {
            return Ok(Input::ClaimLost);
        }
        let identity = connected.brokers.clear(&connected.client, &id, connected.transaction_timeout).await?;
        Ok(Input::Cleared { id, identity })
    })
}

fn look(connected: Connected, item: usize, handle: Handle, markers: bool, attempt: u32) -> Performing {
    Box::pin(async move {
        connected.host.sleep(limits::look_pause(attempt)).await;
        let look = match connected.brokers.look(&connected.client, &handle, markers).await {
            Ok(look) => look,
            Err(error) if error.is_retriable() => LaneLook {
                by: Witness::Coordinator,
                described: Described::Unanswered(with_causes(&error)),
                level: handle.version,
                markers: None,
                records: None,
            },
            Err(error) => {
                return Err(JobError::kafka(format!("looking at {}", handle.transactional_id), error).into());
            }
        };
        Ok(Input::Looked { item, look })
    })
}

async fn commit(
    connected: &Connected,
    with: CommitWith,
    patience: Duration,
) -> Result<EndTxnAnswer, EngineError> {
    let Connected { host, client, brokers, .. } = connected;
    let deadline = Deadline::after(host.now(), Some(patience));
    match with {
        CommitWith::Handle(handle) => Ok(brokers.end(client, &handle, true, deadline, || {}).await.0),
        CommitWith::Inferred { id, identity } => {
            let attempted = || format!("committing what stands under {id}");
            let version = client.transaction_version().await;
            let version = version.map_err(|error| JobError::kafka(attempted(), error))?;
            tracing::warn!(
                %id, %identity, %version,
                "the checkpoint knows only the id: its transaction is inferred from what stands there"
            );
            Ok(brokers.end_as(client, &id, identity, version, deadline).await)
        }
    }
}

fn rewrite(
    connected: Connected,
    item: usize,
    handle: Handle,
    epoch: Epoch,
    identity: Identity,
) -> Performing {
    Box::pin(async move {
        let Connected { client, brokers, transaction_timeout, producer, .. } = &connected;
        let outcome =
            brokers.rewrite(client, &handle, epoch, identity, *transaction_timeout, producer).await?;
        if let Err(why) = &outcome {
            tracing::warn!(id = %handle.transactional_id, "passed over: rewrite: {why}");
        }
        Ok(Input::Rewritten { item, outcome })
    })
}

/// How one transaction of a live lane stands.
pub(super) async fn resolve_one(
    connected: &Connected,
    bounds: Bounds,
    mut handover: Handover,
) -> Result<Standing, EngineError> {
    let owner: Arc<dyn Owner> = Arc::new(0_u64);
    let resolve = Resolve { connected, bounds, owner: &owner };
    match resolve.run(&mut handover).await? {
        Stop::Report(settled) => match settled.into_iter().next() {
            Some(settled) => Ok(settled.standing),
            None => Err(EngineError::Bug { what: "one transaction has an empty report".into() }),
        },
        Stop::Ready(_) => Err(EngineError::Bug { what: "a handover was ready before its report".into() }),
    }
}
