//! Every bound of this crate, with its reason.

use std::time::Duration;

/// Longest checkpoint interval: beyond it a transaction would meet any broker's default maximum of 15 minutes.
pub(crate) const MAX_INTERVAL: Duration = Duration::from_secs(300);

/// A transaction must outlive being written, being decided and being committed, each about an interval, with as much
/// again for a restart.
pub(crate) const INTERVALS_PER_TIMEOUT: u32 = 4;

/// Default transaction timeout where the broker allows more.
pub(crate) const TRANSACTION_TIMEOUT: Duration = Duration::from_secs(15 * 60);

/// Shards of a job whose file does not say: more lanes than this cost transactional ids and give nothing on one machine.
pub(crate) const DEFAULT_SHARDS: usize = 16;

/// Commands waiting for a shard: a barrier, a record of an outcome and a stop at most.
pub(crate) const SHARD_COMMANDS: usize = 8;

/// Longest time that one produce request may take: a broker that is slower is asked again on another connection.
pub(crate) const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// Least time that a produce request must have: a loaded broker takes this long to get a batch to its replicas.
pub(crate) const MIN_REQUEST_TIMEOUT: Duration = Duration::from_secs(1);

/// An epoch ends early when its transaction has used this share of its timeout.
pub(crate) const EPOCH_SHARE_OF_TIMEOUT: u32 = 4;

/// An epoch ends early when it holds this many bytes: what a `read_committed` reader must wait for stays bounded.
pub(crate) const EPOCH_BYTES: u64 = 512 * 1024 * 1024;

/// How often an idle run looks whether a newer one has claimed the job.
pub(crate) const IDLE_CHAIN_CHECK: Duration = Duration::from_secs(5);

/// A wait that lasts longer than this is reported, and again after each further such time.
pub(crate) const REPORT_EVERY: Duration = Duration::from_secs(10);

/// How often a start that waits looks whether its process has run. One that it finds out of the running for as long again was
/// stopped: shorter halts are a busy machine's.
pub(crate) const BEAT: Duration = Duration::from_secs(1);

/// A run begins to read without the partitions whose leaders have not said within this time whether they were truncated;
/// others are asked in the turn of one that does not answer within it.
pub(crate) const LEADERS_PATIENCE: Duration = Duration::from_secs(1);

/// Partitions that a reader asks at a time whether they were truncated: readers of one process share a connection to each
/// broker, which takes a thousand requests.
pub(crate) const QUESTIONS: usize = 256;

/// Walks through partitions to a control batch at a time, each of which asks for 4 MiB a step of one connection to a broker.
pub(crate) const WALKS: usize = 8;

/// Times that a claim is tried at the next slot because another run took this one.
pub(crate) const CLAIM_TRIES: u32 = 16;

/// Runs that lose ids to another writer, with no epoch committed in between, before that is a person's: an older run that
/// wakes takes them once and finds itself out, so it needs as many of those at once for this to be wrong.
pub(crate) const TAKEN_RUNS: u32 = 8;

/// Wait before a change of the layout is tried again that a starting run has fenced: a run ends within this time.
pub(crate) const CHANGE_PAUSE: Duration = Duration::from_millis(500);

/// First wait before a transaction without a definite state is looked at again.
pub(crate) const LOOK_PAUSE: Duration = Duration::from_millis(50);

/// How often that wait doubles: 3.2 s at most, so that a coordinator that comes back is met soon.
pub(crate) const LOOK_DOUBLINGS: u32 = 7;

/// The wait before the `attempt`th look at something that had no definite answer.
pub(crate) fn look_pause(attempt: u32) -> Duration {
    let steps = attempt.min(LOOK_DOUBLINGS);
    if attempt == 0 { Duration::ZERO } else { LOOK_PAUSE * 2_u32.pow(steps - 1) }
}

/// How often the data is asked for commits that the store does not know before a start goes on without that: it finds
/// out old copies of a store and must not hold a healthy one up.
pub(crate) const BEYOND_TRIES: u32 = 2;

/// How long one EndTxn of recovery is repeated before the recovery machine is told that the answer is unknown.
pub(crate) const RESUME_PATIENCE: Duration = Duration::from_secs(30);

/// Records that an operator may make of one: a program that yields without end is caught here.
#[cfg(feature = "jq")]
pub(crate) const OPERATOR_OUTPUTS: usize = 100_000;

/// Bytes that an operator may make of one record.
#[cfg(feature = "jq")]
pub(crate) const OPERATOR_OUTPUT_BYTES: usize = 64 * 1024 * 1024;

/// Bytes of an operator's output batch: its index counts in 32 bits.
#[cfg(feature = "jq")]
pub(crate) const OPERATOR_BATCH_BYTES: usize = 1024 * 1024 * 1024;

/// Nesting of JSON values: engines recurse over them, and a worker's stack has 2 MiB.
#[cfg(feature = "jq")]
pub(crate) const JSON_DEPTH: usize = 128;

/// Characters of a value or a program that a message quotes.
#[cfg(feature = "jq")]
pub(crate) const MESSAGE_EXCERPT: usize = 200;

/// Bytes of one line of a file: beyond it the file is not one of lines.
pub(crate) const LINE_BYTES: usize = 16 * 1024 * 1024;

/// Bytes that a source of lines reads at a time, and a lines sink gathers before it writes.
pub(crate) const LINE_BUFFER: usize = 256 * 1024;

/// Bytes of a file's head that tell it from another file in its place.
pub(crate) const FILE_HEAD: usize = 1024;

/// How often a followed file is asked for more.
pub(crate) const FOLLOW_INTERVAL: Duration = Duration::from_millis(200);

/// Chunks of standard input that are read ahead.
pub(crate) const STDIN_CHUNKS: usize = 4;

/// Records that a generator makes at a time.
pub(crate) const GENERATOR_BATCH: u64 = 1_000;

/// Shortest wait of a generator with a rate: it makes more at a time instead of waking up more often.
pub(crate) const GENERATOR_PAUSE: Duration = Duration::from_millis(10);

/// Looks for the record of a job that has a folder already, and the wait between two of them: another start of the same
/// job puts it within milliseconds.
pub(crate) const RECORD_LOOKS: u32 = 10;
/// See [`RECORD_LOOKS`].
pub(crate) const RECORD_PAUSE: Duration = Duration::from_millis(200);

/// How often recovery looks at the time while it waits for answers: deadlines are minutes.
pub(crate) const RECOVERY_TICK: Duration = Duration::from_secs(1);

/// How long a topic may be unknown at a start before its name counts as wrong.
pub(crate) const UNKNOWN_TOPIC_PATIENCE: Duration = Duration::from_secs(2);

/// Wait before an unknown topic is asked for again.
pub(crate) const UNKNOWN_TOPIC_PAUSE: Duration = Duration::from_millis(250);

/// Offsets that did not move are committed again after this time: brokers keep them for a week by default, and for a day
/// at the least that people set.
pub(crate) const RECOMMIT_OFFSETS: Duration = Duration::from_secs(12 * 60 * 60);

/// How long offsets that an open transaction may change are waited for before that is said, with the producer.
pub(crate) const UNSTABLE_REPORT: Duration = Duration::from_secs(10);

/// First wait before unstable offsets are read again: markers are written in milliseconds.
pub(crate) const UNSTABLE_PAUSE: Duration = Duration::from_millis(5);

/// Longest wait before that.
pub(crate) const UNSTABLE_PAUSE_MAX: Duration = Duration::from_millis(500);

/// How long a coordinator gets to tell the offsets' partition that a transaction is ended, before that is looked into.
pub(crate) const UNTOLD_OFFSETS: Duration = Duration::from_secs(2);

/// How often that is looked into, [`UNSTABLE_REPORT`] apart, before a person is asked how the transaction ended.
pub(crate) const UNTOLD_TRIES: u32 = 3;

/// Bytes that stand beside an offset at most, where the broker does not tell: its default.
pub(crate) const OFFSET_METADATA_BYTES: usize = 4_096;

/// Identities that are remembered of an id: those of the newest run and of the one before.
pub(crate) const OWN_IDENTITIES: usize = 16;
