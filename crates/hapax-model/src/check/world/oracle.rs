//! What must hold, whatever happens. Each promise is a function that looks at the broker's logs and at the chain, and at
//! nothing that the machines say of themselves.

use super::{
    super::{
        kafka::Item,
        promise::{
            BY_A_CLAIM, NO_SECOND, NONE_LOST, NONE_TWICE, NOT_NEEDLESSLY, NOT_SILENTLY, NOT_TAKEN_BACK,
            ONLY_DECIDED, ORDER,
        },
        search::Violation,
    },
    World,
    run::{Machine, Run},
    split,
};
use hapax_commit::{
    Handle, Identity, RunNonce, Strategy, TransactionalId,
    evidence::{LaneFate, Marker, PartitionEnd},
    recovery::{Incident, LaneLoss},
};
use std::{collections::BTreeSet, sync::Arc};

fn broken(property: &'static str, what: String) -> Result<(), Violation> {
    Err(Violation { property, what })
}

/// The first lane is committed by a run that has begun with another one aborted.
pub(super) fn closes_the_way_back(handle: &Handle) -> Result<(), Violation> {
    broken(NOT_NEEDLESSLY, format!("{} is to be committed, beside a lane that is aborted", handle.at()))
}

impl World {
    /// After every step.
    pub(super) fn check(&self, before: &Self) -> Result<(), Violation> {
        let has_changed = self.kafka.fingerprint() != before.kafka.fingerprint()
            || self.truth.next_slot() != before.truth.next_slot();
        if !has_changed {
            return Ok(());
        }
        (0..self.config.lanes).try_for_each(|lane| {
            self.check_decided_only(lane)?;
            self.check_output(lane)
        })
    }

    /// What is committed is the input up to the newest settled checkpoint or up to the one in doubt: once, in order,
    /// without what was given up.
    fn check_output(&self, lane: usize) -> Result<(), Violation> {
        let committed = self.kafka.committed(lane);
        let in_doubt = self.truth.unresolved().map(|doubt| doubt.manifest.positions[&split(lane)].next);
        let settled = self.truth.progress().map_or(0, |manifest| manifest.positions[&split(lane)].next);
        let is_left = |value: &u64| !self.given_up[lane].contains(value);
        let up_to = |end: u64| (0..end).filter(is_left);
        if [Some(settled), in_doubt].into_iter().flatten().any(|end| up_to(end).eq(committed.iter().copied()))
        {
            return Ok(());
        }
        let what = format!(
            "partition {lane} has {committed:?} committed, the chain is at {settled}, in doubt is {in_doubt:?}"
        );
        let once: BTreeSet<u64> = committed.iter().copied().collect();
        let property = if once.len() < committed.len() {
            NONE_TWICE
        } else if !committed.is_sorted() {
            ORDER
        } else if up_to(settled).any(|value| !once.contains(&value)) {
            NONE_LOST
        } else {
            ONLY_DECIDED
        };
        broken(property, what)
    }

    /// Everything that is committed was decided by a slot: so nothing of a fenced run, and nothing of a later epoch by the
    /// recovery of an earlier one.
    fn check_decided_only(&self, lane: usize) -> Result<(), Violation> {
        let log = self.kafka.log(lane);
        for (at, item) in log.iter().enumerate() {
            let Item::Control { marker: Marker::Commit, writer, .. } = item else { continue };
            let of_it = |item: &Item| match item {
                Item::Record { writer: by, .. } if by.producer_id == writer.producer_id => Some(*by),
                Item::Record { .. } | Item::Control { .. } => None,
            };
            let ends_before = |item: &Item| matches!(item, Item::Control { writer: by, .. } if by.producer_id == writer.producer_id);
            let begun = log[..at].iter().rposition(ends_before).map_or(0, |end| end + 1);
            for by in log[begun..at].iter().filter_map(of_it) {
                if !self.decided.contains(&by) {
                    return broken(
                        ONLY_DECIDED,
                        format!("partition {lane}: a transaction of {by} is committed, which no slot has"),
                    );
                }
            }
        }
        Ok(())
    }

    /// A record that the owner of the chain writes again has no other copy that a slot has decided and that is committed or
    /// may be: an outcome that is not known never leads to a second one. What another run writes nobody can decide any more.
    pub(super) fn check_produced(&self, by: RunNonce, lane: usize, value: u64) -> Result<(), Violation> {
        if !self.truth.is_newest(by) {
            return Ok(());
        }
        let log = self.kafka.log(lane);
        let mut alive = 0;
        for (at, item) in log.iter().enumerate() {
            let Item::Record { value: found, writer, .. } = item else { continue };
            if *found != value || !self.decided.contains(writer) {
                continue;
            }
            let end = log[at..].iter().find_map(|item| match item {
                Item::Control { marker, writer: by, .. } if by.producer_id == writer.producer_id => {
                    Some(*marker)
                }
                Item::Record { .. } | Item::Control { .. } => None,
            });
            alive += u32::from(end != Some(Marker::Abort));
        }
        match alive {
            0 => Ok(()),
            _ => broken(
                NO_SECOND,
                format!("partition {lane}: record {value} is written, and an earlier copy may be committed"),
            ),
        }
    }

    /// EndTxn(commit) is sent for what a slot has.
    pub(super) fn check_decided(&self, handle: &Handle) -> Result<(), Violation> {
        if self.decided.contains(&handle.identity) {
            return Ok(());
        }
        broken(ONLY_DECIDED, format!("{} is to be committed, which no slot has", handle.at()))
    }

    /// Each lane is given up, or said to be committed, by what its log says.
    pub(super) fn check_given_up(&self, committed: &[Handle], lost: &[LaneLoss]) -> Result<(), Violation> {
        let fates = committed.iter().map(|handle| (handle, Marker::Commit));
        let fates = fates.chain(lost.iter().map(|lane| (&lane.lane.handle, Marker::Abort)));
        for (handle, wanted) in fates {
            if self.marker(handle) != Some(wanted) {
                return broken(NOT_SILENTLY, format!("{} is not {wanted:?}", handle.at()));
            }
        }
        Ok(())
    }

    /// Has the epoch in doubt a lane that is aborted and none that may be committed, in a job that can go back? Whoever
    /// begins to look now and commits a lane closes the way back.
    pub(super) fn must_go_back(&self) -> bool {
        let handles = self.truth.unresolved().map_or(&[][..], |doubt| &doubt.manifest.handles);
        let ended: Vec<_> = handles.iter().map(|handle| self.marker(handle)).collect();
        let can_go_back = self.config.allowed.contains(&Strategy::Rewind) && self.config.sources_go_back;
        can_go_back && ended.contains(&Some(Marker::Abort)) && !ended.contains(&Some(Marker::Commit))
    }

    /// What ends as fenced is not started again by anybody.
    pub(super) fn check_fenced(&self, run: RunNonce) -> Result<(), Violation> {
        match self.truth.is_newest(run) {
            false => Ok(()),
            true => broken(BY_A_CLAIM, format!("run {} has the newest claim", run.0)),
        }
    }

    /// A live run has got an identity from InitProducerId. A newer one that writes already has cleared all ids.
    pub(super) fn check_identified(&self, run: RunNonce, id: &TransactionalId) -> Result<(), Violation> {
        let is_writing =
            |newer: &&Arc<Run>| newer.nonce.0 > run.0 && matches!(newer.machine, Machine::Cohort(_));
        match self.runs.iter().find(is_writing) {
            None => Ok(()),
            Some(newer) => {
                broken(NOT_TAKEN_BACK, format!("run {} takes {id} back from run {}", run.0, newer.nonce.0))
            }
        }
    }

    /// What the log says of a handle.
    fn marker(&self, handle: &Handle) -> Option<Marker> {
        match self.kafka.first_control(&handle.partitions[0], handle.identity.producer_id) {
            PartitionEnd::Marker { marker, .. } => Some(marker),
            PartitionEnd::NoneYet | PartitionEnd::Gone(_) | PartitionEnd::Unread(_) => None,
        }
    }

    /// A person is called only where the job's strategies leave nothing to do.
    pub(super) fn check_incident(&self, incident: &Incident) -> Result<(), Violation> {
        let allowed = |strategy| self.config.allowed.contains(&strategy);
        let fates: Vec<_> =
            incident.lanes.iter().map(|lane| (&lane.fate, self.marker(&lane.handle))).collect();
        let is_true = |(fate, marker): &(&LaneFate, Option<Marker>)| match fate {
            LaneFate::Committed => *marker == Some(Marker::Commit),
            LaneFate::Aborted => *marker == Some(Marker::Abort),
            // It may have ended since.
            LaneFate::Open => true,
            _ => false,
        };
        let has = |wanted: LaneFate| fates.iter().any(|(fate, _)| **fate == wanted);
        let (has_committed, has_aborted, has_open) =
            (has(LaneFate::Committed), has(LaneFate::Aborted), has(LaneFate::Open));
        let may_rewind = allowed(Strategy::Rewind) && self.config.sources_go_back && !has_committed;
        let may_write = self.config.repairs && (allowed(Strategy::Rewrite) || allowed(Strategy::Replay));
        let gives_up = allowed(Strategy::Abandon) || allowed(Strategy::SetAside);
        let is_stuck = (has_aborted && !may_rewind && !may_write && !gives_up)
            || (has_open && !allowed(Strategy::Resume));
        if fates.iter().all(is_true) && is_stuck {
            return Ok(());
        }
        broken(NOT_NEEDLESSLY, incident.to_string())
    }

    /// The newest run has written and committed all there is, or a person was called for. What an older run has begun
    /// under an id after the newer one had cleared it may be open: the broker ends it when its time is over.
    pub(super) fn rests(&self) -> bool {
        if self.stopped_by.is_some() {
            return true;
        }
        let Some(run) = self.runs.last() else { return false };
        let Machine::Cohort(_) = run.machine else { return false };
        let own: BTreeSet<Identity> =
            run.lanes.iter().flat_map(|lane| lane.states().iter().map(|id| id.identity())).collect();
        let is_left_to_time = |by: &Identity| !own.contains(by) && !self.decided.contains(by);
        let is_done = |lane: usize| {
            let left = (0..self.config.inputs).filter(|value| !self.given_up[lane].contains(value));
            self.kafka.open_in(lane).iter().all(is_left_to_time) && left.eq(self.kafka.committed(lane))
        };
        self.runs.iter().all(|run| run.tasks.is_empty())
            && self.truth.unresolved().is_none()
            && self.truth.is_newest(run.nonce)
            && (0..self.config.lanes).all(is_done)
    }
}
