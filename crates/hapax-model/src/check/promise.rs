//! What the worlds promise, by the names that a trace and `docs/model.md` give it.

use super::search;

/// A record of a settled checkpoint is committed.
pub(super) const NONE_LOST: &str = "none lost";
/// No record is committed twice.
pub(super) const NONE_TWICE: &str = "none twice";
/// Records of a partition are committed in the order of their input.
pub(super) const ORDER: &str = "order";
/// What is committed, a slot has decided: nothing of a fenced run, nothing of a later epoch by an earlier one's recovery.
pub(super) const ONLY_DECIDED: &str = "only what is decided";
/// What may be committed is not written a second time.
pub(super) const NO_SECOND: &str = "no second production";
/// What is given up, an incident names.
pub(super) const NOT_SILENTLY: &str = "none given up silently";
/// A person is called only where nothing is left to do.
pub(super) const NOT_NEEDLESSLY: &str = "no needless incident";
/// A run takes itself for fenced only where the chain has a newer claim: what a broker refuses has other reasons too.
pub(super) const BY_A_CLAIM: &str = "fenced by a claim";
/// A run gets no new identity for an id that a newer one has cleared.
pub(super) const NOT_TAKEN_BACK: &str = "no id taken back";
/// The machines' own rules, and the chain reads back.
pub(super) const INVARIANT: &str = "invariant";

/// All of them; the last two are the checker's own.
pub const PROMISES: [&str; 12] = [
    NONE_LOST,
    NONE_TWICE,
    ORDER,
    ONLY_DECIDED,
    NO_SECOND,
    NOT_SILENTLY,
    NOT_NEEDLESSLY,
    BY_A_CLAIM,
    NOT_TAKEN_BACK,
    INVARIANT,
    search::NO_PANIC,
    search::PROGRESS,
];
