//! What becomes of prepared transactions while nobody runs: brought about at the broker, and looked at before the next
//! run begins, so that a cell that did not get its answer cannot pass.

use super::{
    plan::{Answer, With},
    scene::{PATIENCE, Scene, Unlucky},
};
use hapax_broker::{ApiKey, Rule, RuleGuard, Step};
use hapax_commit::{Identity, TransactionVersion};
use hapax_host::{Deadline, Host};
use hapax_kafka::{
    Client, ClientConfig,
    transaction::{self, Described, EndMarker, EndTxnAnswer, Lifetime, TransactionState},
};
use std::sync::atomic::AtomicUsize;
use xtask::judge::{Outcome, Record};

/// What lasts of an answer.
#[derive(Default)]
pub(super) struct Brought {
    /// Coordinators tell nothing until it is dropped.
    pub(super) silence: Option<RuleGuard>,
    /// The partition of each torn transaction that readers do not see it in.
    pub(super) torn: Vec<i32>,
}

impl Scene<'_> {
    /// Brings the answer about for these ids.
    pub(super) fn apply(&self, ids: &[String]) -> Result<Brought, Unlucky> {
        let mut brought = Brought::default();
        match self.cell.answer {
            Answer::Open => {}
            Answer::Committed => ids.iter().for_each(|id| self.commit(id)),
            Answer::TimedOut => self.let_time_out(),
            Answer::Expired => {
                self.let_time_out();
                self.place.step(Step::ExpireTransactionalIds);
            }
            Answer::Terminated => ids.iter().for_each(|id| self.terminate(id)),
            Answer::Marked => ids.iter().for_each(|id| self.mark(id)),
            Answer::Torn => brought.torn = ids.iter().map(|id| self.tear(id)).collect::<Result<_, _>>()?,
            Answer::Fenced => self.take(ids),
            Answer::Unknown => {
                let rule = Rule::on(ApiKey::DescribeTransactions).always().error(15);
                let faults = self.place.faults().expect("answers can be kept back here");
                brought.silence = Some(faults.guard(rule).unwrap());
                return Ok(brought);
            }
        }
        self.check(ids);
        Ok(brought)
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
            Answer::Committed | Answer::Terminated | Answer::Torn | Answer::Fenced | Answer::Expired => false,
        };
        for id in ids {
            assert_eq!(open.contains(id), is_open, "{id} of {open:?}");
        }
    }

    fn client<T>(&self, work: impl AsyncFnOnce(&Client) -> T) -> T {
        self.runtime.block_on(async {
            let bootstrap = ClientConfig::parse_bootstrap(&self.place.bootstrap()).unwrap();
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
        self.place.await_ended(&self.job, Some(id));
        assert_eq!(self.described(id).0, TransactionState::CompleteCommit, "{id}");
    }

    fn let_time_out(&self) {
        self.place.pass_timeouts(self.cell);
        if self.cell.with != With::TwoPhase {
            self.place.await_ended(&self.job, None);
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
        for (topic, partitions) in &partitions {
            for &partition in partitions {
                self.write_abort_marker(identity, topic, partition);
            }
        }
    }

    /// The partition that is marked, of several in which the transaction has records.
    fn tear(&self, id: &str) -> Result<i32, Unlucky> {
        let (_, identity, partitions) = self.described(id);
        let of_sink = partitions.into_iter().find(|(topic, _)| *topic == self.topic);
        let written = of_sink.map(|(_, partitions)| partitions).unwrap_or_default();
        let (Some(&marked), true) = (written.iter().max(), written.len() > 1) else {
            return Err(Unlucky(format!("{id} has written in {written:?} and not in several partitions")));
        };
        self.write_abort_marker(identity, &self.topic, marked);
        self.commit(id);
        Ok(marked)
    }

    fn write_abort_marker(&self, identity: Identity, topic: &str, partition: i32) {
        let marker = EndMarker { identity, commit: false, coordinator_epoch: 0 };
        self.client(async |client| {
            let unanswered = AtomicUsize::new(0);
            let written =
                transaction::write_end_marker(client, topic, partition, marker, soon(client), &unanswered);
            written.await.unwrap();
        });
    }

    /// As librdkafka does it that is configured with the ids of the job.
    fn take(&self, ids: &[String]) {
        let (bootstrap, elsewhere) = (self.place.bootstrap(), format!("{}-elsewhere", self.job));
        self.judge.create_topic(&bootstrap, &elsewhere, 1, &[]).unwrap();
        for id in ids {
            let records = [Record::value("foreign")];
            self.judge
                .produce_transactional(&bootstrap, &elsewhere, &records, id, PATIENCE, Outcome::Abort)
                .unwrap();
        }
    }
}

fn soon(client: &Client) -> Deadline {
    Deadline::after(client.host().now(), Some(PATIENCE))
}
