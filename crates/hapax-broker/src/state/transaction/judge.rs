//! What EndTxn is answered: the two tables of Kafka's `TransactionCoordinator.endTransaction`, as pure functions of
//! what is stored and what is asked. Which table holds is decided by the version of the request and not by the level
//! of the cluster: EndTxn 0 to 4 is judged by V1, EndTxn 5 by V2 (KIP-890 part 2).
//!
//! The orders of the checks differ, and show: V1 looks at the producer, then at the epoch, then whether a transition
//! is pending; V2 looks at the pending transition first, so that while markers are written every request is told to
//! come again, whoever asks.

use super::{
    metadata::{Identity, LAST_CLIENT_EPOCH, Transaction},
    phase::Phase,
};
use crate::state::Code;

/// A client's request to end its transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EndRequest {
    pub(crate) producer: Identity,
    pub(crate) commit: bool,
}

/// What becomes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The decision is written now.
    Prepare,
    /// It has been written before: the same answer again, and nothing is written.
    Done,
    /// An error.
    Refuse(Code),
}

/// EndTxn 0 to 4.
pub(crate) fn judge_end_v1(stored: &Transaction, request: EndRequest) -> Verdict {
    let client = stored.client();
    if client.id != request.producer.id {
        return Verdict::Refuse(Code::INVALID_PRODUCER_ID_MAPPING);
    }
    if client.epoch != request.producer.epoch {
        return Verdict::Refuse(Code::PRODUCER_FENCED);
    }
    if stored.pending.is_some() {
        return Verdict::Refuse(Code::CONCURRENT_TRANSACTIONS);
    }
    match (stored.phase, request.commit) {
        (Phase::Ongoing, _) => Verdict::Prepare,
        (Phase::CompleteCommit, true) | (Phase::CompleteAbort, false) => Verdict::Done,
        (Phase::PrepareCommit, true) | (Phase::PrepareAbort, false) => {
            Verdict::Refuse(Code::CONCURRENT_TRANSACTIONS)
        }
        (Phase::Empty, _)
        | (Phase::CompleteCommit | Phase::PrepareCommit, false)
        | (Phase::CompleteAbort | Phase::PrepareAbort, true) => Verdict::Refuse(Code::INVALID_TXN_STATE),
    }
}

/// EndTxn 5.
pub(crate) fn judge_end_v2(stored: &Transaction, request: EndRequest) -> Verdict {
    if stored.pending.is_some() {
        return Verdict::Refuse(Code::CONCURRENT_TRANSACTIONS);
    }
    let standing = Standing::of(stored, request.producer);
    if stored.client().id != request.producer.id && standing != Standing::RetryAfterOverflow {
        return Verdict::Refuse(Code::INVALID_PRODUCER_ID_MAPPING);
    }
    if !standing.is_valid_in(stored.phase) {
        return Verdict::Refuse(Code::PRODUCER_FENCED);
    }
    let retry = standing != Standing::Current;
    match (stored.phase, request.commit) {
        (Phase::Ongoing, _) | (Phase::Empty, false) => Verdict::Prepare,
        (Phase::CompleteCommit, true) | (Phase::CompleteAbort, false) if retry => Verdict::Done,
        (Phase::CompleteCommit | Phase::CompleteAbort, false) if !retry => Verdict::Prepare,
        (Phase::PrepareCommit, true) | (Phase::PrepareAbort, false) => {
            Verdict::Refuse(Code::CONCURRENT_TRANSACTIONS)
        }
        (Phase::Empty | Phase::CompleteCommit | Phase::CompleteAbort, true)
        | (Phase::CompleteCommit | Phase::CompleteAbort | Phase::PrepareCommit, false)
        | (Phase::PrepareAbort, true) => Verdict::Refuse(Code::INVALID_TXN_STATE),
    }
}

/// How the epoch of a request stands to the stored one. Every transaction of V2 has its own epoch, so the stored epoch
/// tells the end of this transaction from a retry of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// The request names the stored epoch.
    Current,
    /// The stored epoch is one further: this end has been decided before.
    RetryAfterBump,
    /// The same, where the bump was a new producer id.
    RetryAfterOverflow,
    /// Anything else.
    Stranger,
}

impl Standing {
    fn of(stored: &Transaction, asked: Identity) -> Self {
        let held = stored.client();
        if stored.previous_id == asked.id && asked.epoch == LAST_CLIENT_EPOCH && held.epoch == 0 {
            Self::RetryAfterOverflow
        } else if i32::from(held.epoch) == i32::from(asked.epoch) + 1 {
            Self::RetryAfterBump
        } else if held.epoch == asked.epoch {
            Self::Current
        } else {
            Self::Stranger
        }
    }

    fn is_valid_in(self, phase: Phase) -> bool {
        match phase {
            Phase::Ongoing | Phase::Empty => self == Self::Current,
            Phase::PrepareCommit | Phase::PrepareAbort => self == Self::RetryAfterBump,
            Phase::CompleteCommit | Phase::CompleteAbort => self != Self::Stranger,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Phase::{CompleteAbort, CompleteCommit, Empty, Ongoing, PrepareAbort, PrepareCommit};
    use Verdict::{Done, Prepare};

    const P: i64 = 40;
    const E: i16 = 6;

    const CONCURRENT: Verdict = Verdict::Refuse(Code(51));
    const STATE: Verdict = Verdict::Refuse(Code(48));
    const FENCED: Verdict = Verdict::Refuse(Code(90));
    const MAPPING: Verdict = Verdict::Refuse(Code(49));

    fn stored(phase: Phase, epoch: i16) -> Transaction {
        let mut stored = Transaction::new(P, 1_000, 0);
        stored.phase = phase;
        stored.producer.epoch = epoch;
        stored.previous_id = P;
        stored
    }

    fn ask(id: i64, epoch: i16, commit: bool) -> EndRequest {
        EndRequest { producer: Identity { id, epoch }, commit }
    }

    #[test]
    fn v1_answers_each_cell_of_its_table() {
        // phase, commit, abort
        let table = [
            (Ongoing, Prepare, Prepare),
            (PrepareCommit, CONCURRENT, STATE),
            (PrepareAbort, STATE, CONCURRENT),
            (CompleteCommit, Done, STATE),
            (CompleteAbort, STATE, Done),
            (Empty, STATE, STATE),
        ];
        for (phase, commit, abort) in table {
            let stored = stored(phase, E);
            assert_eq!(judge_end_v1(&stored, ask(P, E, true)), commit, "commit in {phase:?}");
            assert_eq!(judge_end_v1(&stored, ask(P, E, false)), abort, "abort in {phase:?}");
            let pending = Transaction { pending: Some(CompleteCommit), ..stored.clone() };
            for commit in [true, false] {
                assert_eq!(judge_end_v1(&pending, ask(P, E, commit)), CONCURRENT, "pending in {phase:?}");
                for other in [&stored, &pending] {
                    assert_eq!(judge_end_v1(other, ask(P + 1, E, commit)), MAPPING, "{phase:?}");
                    assert_eq!(judge_end_v1(other, ask(P, E - 1, commit)), FENCED, "{phase:?}");
                    assert_eq!(judge_end_v1(other, ask(P, E + 1, commit)), FENCED, "{phase:?}");
                }
            }
        }
    }

    #[test]
    fn v2_answers_each_cell_of_its_table() {
        // phase; commit, abort where E+1 is stored (a retry); commit, abort where E is stored
        let table = [
            (Ongoing, FENCED, FENCED, Prepare, Prepare),
            (Empty, FENCED, FENCED, STATE, Prepare),
            (PrepareCommit, CONCURRENT, STATE, FENCED, FENCED),
            (PrepareAbort, STATE, CONCURRENT, FENCED, FENCED),
            (CompleteCommit, Done, STATE, STATE, Prepare),
            (CompleteAbort, STATE, Done, STATE, Prepare),
        ];
        for (phase, retry_commit, retry_abort, commit, abort) in table {
            let bumped = stored(phase, E + 1);
            assert_eq!(judge_end_v2(&bumped, ask(P, E, true)), retry_commit, "commit again in {phase:?}");
            assert_eq!(judge_end_v2(&bumped, ask(P, E, false)), retry_abort, "abort again in {phase:?}");
            let current = stored(phase, E);
            assert_eq!(judge_end_v2(&current, ask(P, E, true)), commit, "commit in {phase:?}");
            assert_eq!(judge_end_v2(&current, ask(P, E, false)), abort, "abort in {phase:?}");
        }
    }

    #[test]
    fn v2_refuses_strangers_in_every_phase() {
        for phase in [Ongoing, Empty, PrepareCommit, PrepareAbort, CompleteCommit, CompleteAbort] {
            let stored = stored(phase, E);
            for commit in [true, false] {
                assert_eq!(judge_end_v2(&stored, ask(P + 1, E, commit)), MAPPING, "{phase:?}");
                assert_eq!(judge_end_v2(&stored, ask(P, E - 2, commit)), FENCED, "two behind in {phase:?}");
                assert_eq!(judge_end_v2(&stored, ask(P, E + 1, commit)), FENCED, "ahead in {phase:?}");
            }
        }
    }

    #[test]
    fn v2_says_come_again_before_it_looks_who_asks() {
        for phase in [Ongoing, Empty, PrepareCommit, PrepareAbort, CompleteCommit, CompleteAbort] {
            let pending = Transaction { pending: Some(CompleteCommit), ..stored(phase, E) };
            for (id, epoch) in [(P, E), (P, E - 1), (P, 0), (P + 9, E)] {
                for commit in [true, false] {
                    assert_eq!(judge_end_v2(&pending, ask(id, epoch, commit)), CONCURRENT, "{phase:?}");
                }
            }
        }
    }

    #[test]
    fn v2_recognises_a_retry_after_the_producer_id_changed() {
        let rotated = |phase| {
            let mut rotated = stored(phase, 0);
            rotated.producer.id = P + 1;
            rotated
        };
        let old = |commit| ask(P, LAST_CLIENT_EPOCH, commit);
        assert_eq!(judge_end_v2(&rotated(CompleteCommit), old(true)), Done);
        assert_eq!(judge_end_v2(&rotated(CompleteCommit), old(false)), STATE);
        assert_eq!(judge_end_v2(&rotated(CompleteAbort), old(false)), Done);
        assert_eq!(judge_end_v2(&rotated(CompleteAbort), old(true)), STATE);
        assert_eq!(judge_end_v2(&rotated(Ongoing), old(true)), FENCED, "the next transaction has begun");
        let mut forgotten = rotated(CompleteCommit);
        forgotten.previous_id = -1;
        assert_eq!(judge_end_v2(&forgotten, old(true)), MAPPING);
        assert_eq!(judge_end_v2(&rotated(CompleteCommit), ask(P, LAST_CLIENT_EPOCH - 1, true)), MAPPING);
    }

    #[test]
    fn a_transaction_that_was_taken_over_is_ended_by_its_new_client_only() {
        let mut kept = stored(Ongoing, E);
        kept.successor = Some(Identity { id: P, epoch: E + 1 });
        assert_eq!(judge_end_v2(&kept, ask(P, E + 1, true)), Prepare);
        assert_eq!(judge_end_v2(&kept, ask(P, E, true)), FENCED);
        assert_eq!(judge_end_v1(&kept, ask(P, E, false)), FENCED);
    }
}
