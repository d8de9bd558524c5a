//! Every bound of the protocol, with its reason.

/// Checkpoints kept, the newest one included. Recovery compares the last handle of each of a lane's three ids with the
/// brokers, and must find them also in a store that has lost its newest slots.
pub const KEEP_CHECKPOINTS: usize = 6;

/// Epochs that are begun and not yet recorded: one written, one prepared, one committing, one per id of a lane.
pub const WINDOW: u64 = crate::id::IDS_PER_LANE;

/// Looks at one lane that contradict themselves before recovery stops for a person: a deposed coordinator may
/// answer once more before it knows, so one contradiction is not yet an incident.
pub const LOOKS_BEFORE_INCIDENT: u32 = 5;

/// Tries to read the control batches back of a commit that was answered, before the coordinator is asked, too, and lanes
/// that are open still are gone on with: markers take milliseconds.
pub const READ_BACKS: u32 = 5;

/// Answers to EndTxn that refuse what the look before it allowed, before recovery stops for a person.
pub const REFUSALS_BEFORE_INCIDENT: u32 = 5;

/// A lane whose deadline is nearer than this is committed although another cluster has not answered yet:
/// milliseconds.
pub const HURRY_MS: i64 = 30_000;
