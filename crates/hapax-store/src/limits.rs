//! Every wait and every bound of the store, with its reason.

use std::time::Duration;

/// How long the store is asked before an answer stays unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// How often one object is offered. At least one.
    pub tries: u32,
    /// Wait before the second try; doubled before each further one.
    pub first_wait: Duration,
    /// Longest wait between two tries.
    pub longest_wait: Duration,
    /// How long one request may take. A request that takes longer may still land later. A store that never
    /// answers costs two of these a try: a caller with a nearer deadline drops the future, which leaves the
    /// outcome as unknown as it is.
    pub answer_limit: Duration,
}

impl Default for Patience {
    /// Eight tries over about five seconds of waiting: outlasts a hiccup, and is over long before a prepared
    /// transaction times out.
    fn default() -> Self {
        Self {
            tries: 8,
            first_wait: Duration::from_millis(50),
            longest_wait: Duration::from_secs(2),
            answer_limit: Duration::from_secs(10),
        }
    }
}

impl Patience {
    /// The wait after try number `tried` (from 1).
    pub(crate) fn wait_after(&self, tried: u32) -> Duration {
        let doublings = tried.saturating_sub(1).min(20);
        self.first_wait.saturating_mul(1 << doublings).min(self.longest_wait)
    }
}

/// Slots fetched side by side when a chain is read: hides the round trips of a remote store, and is far below
/// any limit on open files.
pub(crate) const READS_AT_ONCE: usize = 16;

/// How often a chain is listed anew because a live run pruned it in between. A run prunes once an epoch, so a
/// reader that loses this often is slower than eight epochs.
pub(crate) const LISTINGS: u32 = 8;

/// Largest object that is read: a slot with ten thousand handles stays below a tenth of it. Whatever is larger is
/// not ours and must not fill the memory.
pub(crate) const LARGEST_OBJECT: u64 = 256 << 20;

/// Bytes of records, before compression, that one row group of a journal gathers: what is held in memory at once when
/// it is written and when it is read.
#[cfg(feature = "journal")]
pub(crate) const ROW_GROUP_BYTES: usize = 2 << 20;

/// Bytes at which a part of a journal is full. It is put while the next one fills, so a lane holds two of them.
#[cfg(feature = "journal")]
pub(crate) const PART_BYTES: usize = 4 << 20;

/// Parts of one journal: an epoch ends early at 512 MiB, so far more than it can have.
pub(crate) const MOST_PARTS: usize = 100_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_longest_and_stay_far_below_a_transaction_timeout() {
        let patience = Patience::default();
        assert_eq!(patience.wait_after(1), Duration::from_millis(50));
        assert_eq!(patience.wait_after(3), Duration::from_millis(200));
        assert_eq!(patience.wait_after(u32::MAX), Duration::from_secs(2));
        let total: Duration = (1..patience.tries).map(|tried| patience.wait_after(tried)).sum();
        assert!(total < Duration::from_secs(10), "{total:?}");
    }
}
