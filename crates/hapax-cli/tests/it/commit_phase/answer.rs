//! What becomes of prepared transactions while nobody runs: brought about at the broker, and looked at before the next
//! run begins, so that a cell that did not get its answer cannot pass.

use super::{
    plan::{Answer, With},
    scene::{PATIENCE, Scene, TIMEOUT_MS},
};
use hapax_broker::{ApiKey, Rule, RuleGuard, Step};
use hapax_commit::{Identity, TransactionVersion};
use hapax_host::{Deadline, Host};
use hapax_kafka::{
    Client, ClientConfig,
    transaction::{self, Described, EndMarker, EndTxnAnswer, Lifetime, TransactionState},
};
use std::time::Instant;
use xtask::judge::{Outcome, Record};

/// Longer than any transaction timeout.
const A_MONTH_MS: i64 = 31 * 24 * 3_600 * 1_000;

/// Where another producer writes.
const ELSEWHERE: &str = "elsewhere";

impl Scene<'_> {
    /// Brings the answer about for these ids. Coordinators that tell nothing do so until the guard is dropped.
    pub(super) fn apply(&self, ids: &[String]) -> Option<RuleGuard> {
        match self.cell.answer {
            Answer::Open => {}
            Answer::Committed => ids.iter().for_each(|id| self.commit(id)),
            Answer::TimedOut => self.let_time_out(),
            Answer::Expired => {
                self.let_time_out();
                self.broker.step(Step::ExpireTransactionalIds).unwrap();
            }
            Answer::Terminated => ids.iter().for_each(|id| self.terminate(id)),
            Answer::Marked => ids.iter().for_each(|id| self.mark(id)),
            Answer::Fenced => self.take(ids),
            Answer::Unknown => {
                let rule = Rule::on(ApiKey::DescribeTransactions).always().error(15);
                return Some(self.broker.faults().guard(rule).unwrap());
            }
        }
        self.check(ids);
        None
    }

    /// One of the lanes is committed, if the dead run has not done it; the rest is left.
    pub(super) fn commit_one(&self, left: &mut Vec<String>) {
        let open = self.open();
        let committed = left.iter().position(|id| !open.contains(id)).unwrap_or_else(|| {
            self.commit(&left[0]);
            0
        });
        left.remove(committed);
    }

    /// The state that the answer is about is there.
    fn check(&self, ids: &[String]) {
        let open = self.open();
        let is_open = match self.cell.answer {
            Answer::Open | Answer::Marked | Answer::Unknown => true,
            Answer::TimedOut => self.cell.with == With::TwoPhase,
            Answer::Committed | Answer::Terminated | Answer::Fenced | Answer::Expired => false,
        };
        for id in ids {
            assert_eq!(open.contains(id), is_open, "{id} of {open:?}");
        }
    }

    fn client<T>(&self, work: impl AsyncFnOnce(&Client) -> T) -> T {
        self.runtime.block_on(async {
            let bootstrap = ClientConfig::parse_bootstrap(&self.broker.bootstrap()).unwrap();
            let client = Client::connect(Host::real(), ClientConfig::new(bootstrap)).await.unwrap();
            work(&client).await
        })
    }

    fn described(&self, id: &str) -> (TransactionState, Identity, Vec<(String, Vec<i32>)>) {
        let described = self.client(async |client| {
            transaction::describe_transaction(client, id, soon(client)).await.unwrap()
        });
        let Described::Known { state, identity, partitions, .. } = described else {
            panic!("{id} is unknown")
        };
        (state, identity, partitions)
    }

    pub(super) fn is_committed(&self, id: &str) -> bool {
        self.described(id).0 == TransactionState::CompleteCommit
    }

    /// The dead run's EndTxn, which came late. Where it has come already, nothing is left to do.
    fn commit(&self, id: &str) {
        let (state, identity, _) = self.described(id);
        let version = match self.cell.protocol.level() {
            0 => TransactionVersion::V1,
            _ => TransactionVersion::V2,
        };
        if state == TransactionState::Ongoing {
            let answer = self.client(async |client| {
                transaction::end_txn(client, id, identity, version, true, soon(client), || {}).await
            });
            assert!(matches!(answer, EndTxnAnswer::Committed { .. }), "{id}: {answer:?}");
        }
        let began = Instant::now();
        while self.open().contains(&id.to_owned()) {
            assert!(began.elapsed() < PATIENCE, "{id} does not end");
        }
        assert_eq!(self.described(id).0, TransactionState::CompleteCommit, "{id}");
    }

    fn let_time_out(&self) {
        let lasting = self.cell.with == With::TwoPhase;
        self.broker.jump_clock(if lasting { A_MONTH_MS } else { TIMEOUT_MS + 1_000 }).unwrap();
        let began = Instant::now();
        while !lasting && !self.open().is_empty() {
            assert!(began.elapsed() < PATIENCE, "{:?}", self.open());
        }
    }

    fn terminate(&self, id: &str) {
        self.client(async |client| {
            let lifetime = Lifetime::Millis(60_000);
            transaction::init_producer_id(client, id, lifetime, None, soon(client)).await.unwrap()
        });
    }

    fn mark(&self, id: &str) {
        let (_, identity, partitions) = self.described(id);
        assert!(!partitions.is_empty(), "{id} has written nothing");
        let marker = EndMarker { identity, commit: false, coordinator_epoch: 0 };
        self.client(async |client| {
            for (topic, partitions) in &partitions {
                for &partition in partitions {
                    let written = transaction::write_end_marker(
                        client,
                        topic,
                        partition,
                        marker,
                        soon(client),
                        &std::sync::atomic::AtomicBool::new(false),
                    )
                    .await;
                    written.unwrap();
                }
            }
        });
    }

    /// As librdkafka does it that is configured with the ids of the job.
    fn take(&self, ids: &[String]) {
        let bootstrap = self.broker.bootstrap();
        self.judge.create_topic(&bootstrap, ELSEWHERE, 1, &[]).unwrap();
        for id in ids {
            let records = [Record::value("foreign")];
            self.judge
                .produce_transactional(&bootstrap, ELSEWHERE, &records, id, PATIENCE, Outcome::Abort)
                .unwrap();
        }
    }
}

fn soon(client: &Client) -> Deadline {
    Deadline::after(client.host().now(), Some(PATIENCE))
}
