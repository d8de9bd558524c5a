//! What a run has begun and not finished, when its turn is, and how a trace tells it.

use hapax_commit::{Handle, IdAt, Identity, Slot, SlotBody, recovery};

/// What a run has begun and not finished.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Task {
    Recover(recovery::Effect),
    /// The chain was seen to be still this run's; anything may happen before the request arrives.
    Init(IdAt),
    /// `asked`: no answer to it has come.
    Offer {
        slot: Slot,
        asked: bool,
    },
    /// EndTxn(commit) of a live run; `asked`: an answer to it was lost.
    End {
        handle: Handle,
        asked: bool,
    },
    /// Its commit is decided, and counts once its partition was told.
    Complete {
        handle: Handle,
        next: Identity,
    },
    /// An answer that is not heard yet.
    Hear(recovery::Input),
}

/// When a task may be done, among the others of its run.
pub(super) enum Turn {
    Any,
    Read(IdAt),
    Clear(IdAt),
    End(IdAt),
}

impl Task {
    pub(super) fn turn(&self) -> Turn {
        use recovery::Effect;
        match self {
            Self::Recover(Effect::Survey { at, .. }) => Turn::Read(at.clone()),
            Self::Recover(Effect::Look { handle, .. } | Effect::ReadBack { handle, .. }) => {
                Turn::Read(handle.at())
            }
            Self::Recover(Effect::ClearId { at }) | Self::Init(at) => Turn::Clear(at.clone()),
            Self::Recover(Effect::EndTxn { handle, .. }) | Self::End { handle, asked: false } => {
                Turn::End(handle.at())
            }
            Self::Recover(_)
            | Self::Offer { .. }
            | Self::End { .. }
            | Self::Complete { .. }
            | Self::Hear(_) => Turn::Any,
        }
    }

    /// What it does, for a trace.
    pub(super) fn in_words(&self) -> String {
        use recovery::Effect;
        match self {
            Self::Recover(Effect::Survey { at, .. }) => format!("surveys {at}"),
            Self::Recover(Effect::ClearId { at }) => format!("makes sure of its claim, to clear {at}"),
            Self::Recover(Effect::Look { handle, markers, .. }) => {
                format!("looks at {}{}", handle.at(), if *markers { ", with control batches" } else { "" })
            }
            Self::Recover(Effect::EndTxn { handle, commit }) => {
                format!("EndTxn {} {} commit {commit}", handle.at(), handle.identity)
            }
            Self::Recover(Effect::ReadBack { handle, .. }) => format!("reads back {}", handle.at()),
            Self::Recover(Effect::ProbeSources { .. }) => "asks its sources".into(),
            Self::Recover(Effect::Repair { handle, strategy, epoch, .. }) => {
                format!("writes {} again under epoch {epoch}, by {}", handle.at(), strategy.name())
            }
            Self::Recover(Effect::GiveUp { strategy, .. }) => format!("gives up, by {}", strategy.name()),
            Self::Recover(Effect::CheckClaim) => "makes sure of its claim".into(),
            Self::Recover(effect) => format!("{effect:?}"),
            Self::Init(at) => format!("InitProducerId {at}"),
            Self::Offer { slot, .. } => format!("puts slot {}: {}", slot.number, in_words(&slot.body)),
            Self::End { handle, .. } => format!("EndTxn {} {} commit true", handle.at(), handle.identity),
            Self::Complete { handle, .. } => format!("sees that {} is told everywhere", handle.at()),
            Self::Hear(_) => "hears a slow answer".into(),
        }
    }
}

/// A slot, for a trace.
pub(super) fn in_words(body: &SlotBody) -> String {
    match body {
        SlotBody::Claim(_) => "claim".into(),
        SlotBody::Manifest(manifest) => {
            let handles: Vec<String> = manifest
                .handles
                .iter()
                .map(|handle| format!("{} {}", handle.at(), handle.identity))
                .collect();
            let positions: Vec<u64> = manifest.positions.values().map(|at| at.next).collect();
            format!("manifest {} at {positions:?} with {handles:?}", manifest.epoch)
        }
        other => format!("{other:?}"),
    }
}
