//! Every bound of this crate: name, value, reason. Configuration may lower or raise some of them by name.

use std::time::Duration;

/// Largest response frame that is read. A fetch is asked for 8 MiB; a batch may exceed what was asked for, up to
/// the largest `max.message.bytes` that is seen in practice. More than this is taken for garbage.
pub const MAX_RESPONSE_FRAME: usize = 100 * 1024 * 1024;

/// Largest batch that is fetched. A broker takes at most `socket.request.max.bytes` (100 MiB) in a request, and a length is
/// outside of a batch's checksum: a larger one is damage, and to ask for as much would get an answer that is not read.
pub const MAX_FETCHED_BATCH: usize = MAX_RESPONSE_FRAME - (64 << 10);

/// Elements of all arrays of an answer together, tagged fields too. The metadata of a thousand topics with a hundred
/// partitions each has less than a million. Once decoded an element has up to about 300 bytes, and as little as one on the
/// wire: without a limit 100 MiB could ask for gigabytes.
pub const MAX_ANSWER_ELEMENTS: usize = 4 << 20;

/// Largest request frame that is sent: brokers close the connection above `socket.request.max.bytes` (100 MiB).
pub const MAX_REQUEST_FRAME: usize = 100 * 1024 * 1024;

/// Requests that wait or are unanswered on one connection. The callers bound themselves far below (five produce
/// requests, two fetches); this catches a caller that does not.
pub const MAX_CONNECTION_REQUESTS: usize = 1024;

/// Chunks that go into one vectored write: the operating system's own limit is 1024, more than this gains nothing.
pub const MAX_WRITE_CHUNKS: usize = 64;

/// What the reader asks of the socket at least: small answers come several at a time.
pub const MIN_READ: usize = 16 * 1024;

/// How long a request of another broker's knowledge (Metadata, FindCoordinator, ApiVersions) may take: any broker
/// answers it from memory, so a slower one is asked less.
pub const LOOKUP_TIMEOUT: Duration = Duration::from_secs(10);

/// One EndTxn request. Far below any transaction timeout: its log append may hang as long as the transaction may
/// live (fact: the coordinator uses the transaction's timeout for the append), so we ask again instead.
pub const END_TXN_REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// One InitProducerId request: like EndTxn it waits for an append to the transaction log.
pub const INIT_PRODUCER_ID_REQUEST_TIMEOUT: Duration = Duration::from_secs(20);

/// How often a call that still waits for a definite answer says so in the log.
pub const STILL_WAITING_REPORT: Duration = Duration::from_secs(30);

/// First wait after `CONCURRENT_TRANSACTIONS`: markers are written in milliseconds.
pub const CONCURRENT_TRANSACTIONS_BACKOFF: Duration = Duration::from_millis(20);

/// Finalized features are asked for again when the newest answer is older than this.
pub const FEATURES_MAX_AGE: Duration = Duration::from_secs(30);

/// Topics in one Metadata request.
pub const MAX_TOPICS_PER_LOOKUP: usize = 1000;

/// Longest wait after `CONCURRENT_TRANSACTIONS`.
pub const CONCURRENT_TRANSACTIONS_BACKOFF_MAX: Duration = Duration::from_millis(100);

/// Produce requests without an answer on one connection, and batches of one partition under way: a partition's leader
/// remembers the last five batches of a producer, so what is resent within them is recognised.
pub const MAX_PRODUCE_IN_FLIGHT: usize = 5;

/// Batches are collected into one produce request up to this size: a broker handles one request of a connection at a
/// time, so a larger one only delays the answer.
pub const MAX_PRODUCE_REQUEST: usize = 8 * 1024 * 1024;

/// How often a producer says which records have waited longer than this for their acknowledgement.
pub const STILL_UNDELIVERED_REPORT: Duration = Duration::from_secs(10);

/// How long a topic that was there may be unknown to brokers before it counts as deleted: metadata reaches a restarted
/// broker within seconds.
pub const UNKNOWN_TOPIC_PATIENCE: Duration = Duration::from_secs(60);

/// How long a topic may be unknown when it is looked up: it takes a moment from its creation to all brokers.
pub const TOPIC_LOOKUP_PATIENCE: Duration = Duration::from_secs(5);

/// Answers of one leader that the fetcher holds: the one that is being read, and one ahead of it.
pub const FETCH_ANSWERS_PER_LEADER: usize = 2;

/// Bytes of fetched answers that are not read yet, over all leaders: some answers of the largest size, so that many
/// leaders share what a few would take anyway.
pub const FETCH_BUFFER_BYTES: usize = 64 << 20;

/// How long brokers must say that a topic or partition is not there, or is another one, until it is believed: a
/// broker says so too while it has not heard of a new topic, which takes it well under a second.
pub const GONE_TOPIC_PATIENCE: Duration = Duration::from_secs(5);

/// How long a high watermark below offsets that were acknowledged is waited for before the records count as lost: a
/// new leader shows an old one until its followers have fetched, or are given up (`replica.lag.time.max.ms`, 30 s).
pub const LAGGING_WATERMARK_PATIENCE: Duration = Duration::from_secs(45);

/// Wait before such a partition is read on.
pub const LAGGING_WATERMARK_PAUSE: Duration = Duration::from_millis(250);

/// How long a partition that cannot be fetched is nobody's concern; then the log says so, again after
/// [`STILL_WAITING_REPORT`].
pub const FETCH_TROUBLE_REPORT: Duration = Duration::from_secs(10);

/// Looks at the last stable offsets of an ended transaction's partitions before each of them is asked by itself:
/// markers are written within milliseconds, and another producer's transaction may hold the offset for minutes.
pub const MARKER_LOOKS: u32 = 6;

/// First wait between two looks for markers; it doubles.
pub const MARKER_PAUSE: Duration = Duration::from_millis(2);

/// Longest wait between two looks for markers.
pub const MARKER_PAUSE_MAX: Duration = Duration::from_millis(500);

/// How long one look for a marker may take, and how long a partition must be said not to be there until it is believed.
pub const MARKER_PATIENCE: Duration = Duration::from_secs(10);

/// Bytes of offsets in one TxnOffsetCommit, in sum about: a quarter of what topics take in a batch by default.
pub(crate) const OFFSETS_REQUEST_BYTES: usize = 256 * 1024;

/// What the record of an offset has beside its topic, group and metadata, about.
pub(crate) const OFFSET_RECORD_BYTES: usize = 128;
