//! The account of an epoch: every record that was written is acknowledged, given up, or under way.

/// Records of the open epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Written: handed over by the caller and taken.
    pub sent: u64,
    /// Acknowledged by the brokers.
    pub acked: u64,
    /// Given up.
    pub failed: u64,
    /// Neither yet: in an open batch, waiting, or on the way.
    pub inflight: u64,
}

impl Counters {
    /// The identity that holds at all times: `sent == acked + failed + inflight`.
    pub fn is_balanced(&self) -> bool {
        self.sent == self.acked + self.failed + self.inflight
    }

    /// The gate: everything that was written is acknowledged.
    pub fn is_settled(&self) -> bool {
        self.inflight == 0 && self.failed == 0 && self.acked == self.sent
    }

    pub(super) fn written(&mut self) {
        self.sent += 1;
        self.inflight += 1;
    }

    pub(super) fn acknowledged(&mut self, records: u64) {
        self.take(records);
        self.acked += records;
    }

    pub(super) fn given_up(&mut self, records: u64) {
        self.take(records);
        self.failed += records;
    }

    fn take(&mut self, records: u64) {
        self.inflight = self.inflight.checked_sub(records).expect("a record ends once, after it was written");
    }
}

impl std::ops::Add for Counters {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            sent: self.sent + other.sent,
            acked: self.acked + other.acked,
            failed: self.failed + other.failed,
            inflight: self.inflight + other.inflight,
        }
    }
}
