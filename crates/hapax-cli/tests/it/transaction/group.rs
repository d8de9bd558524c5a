//! Others in the job's group: a producer that leaves its offsets undecided, and consumers (H43).

use super::{Case, On, PATIENCE};
use hapax_broker::{ApiKey, Rule};
use hapax_commit::{Identity, TransactionVersion};
use hapax_host::{Deadline, Host};
use hapax_kafka::{
    Client, ClientConfig,
    transaction::{self, CarryingTransaction, EndTxnAnswer, Lifetime, OffsetToCommit},
};
use std::{
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdout, Command, Stdio},
    thread,
    time::Duration,
};
use tokio::runtime::Builder;
use xtask::kafka::Version;

const STRANGER: &str = "somebody-else";

impl Case {
    fn client<T>(&self, work: impl AsyncFnOnce(&Client) -> T) -> T {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        runtime.block_on(async {
            let bootstrap = ClientConfig::parse_bootstrap(&self.bootstrap).unwrap();
            let client = Client::connect(Host::real(), ClientConfig::new(bootstrap)).await.unwrap();
            work(&client).await
        })
    }

    /// A transaction that is not the job's has an offset of one of its partitions, and stays open.
    fn hold_offset(&self, version: TransactionVersion) -> Identity {
        self.client(async |client| {
            let lifetime = Lifetime::Millis(60_000);
            let identity =
                transaction::init_producer_id(client, STRANGER, lifetime, None, soon(client)).await.unwrap();
            let open = CarryingTransaction { transactional_id: STRANGER, identity, version };
            let offset = OffsetToCommit {
                topic: self.source(),
                partition: 1,
                offset: 7,
                leader_epoch: None,
                metadata: "not the job's".to_owned(),
            };
            transaction::commit_offsets(client, open, &self.job, &[offset], soon(client)).await.unwrap();
            identity
        })
    }

    fn release(&self, identity: Identity, version: TransactionVersion) {
        let answer = self.client(async |client| {
            transaction::end_txn(client, STRANGER, identity, version, false, soon(client), || {}).await
        });
        assert!(matches!(answer, EndTxnAnswer::Aborted { .. }), "{answer:?}");
    }

    /// A consumer of the judge's client library that has joined the job's group.
    fn join(&self) -> Member {
        let script = format!(
            "import confluent_kafka, sys, threading\n\
             joined = []\n\
             consumer = confluent_kafka.Consumer({{'bootstrap.servers': {:?}, 'group.id': {:?}, 'enable.auto.commit': False}})\n\
             consumer.subscribe([{topic:?}], on_assign=lambda _, partitions: joined.append(partitions))\n\
             while not joined:\n    consumer.poll(0.1)\n\
             print('joined', flush=True)\n\
             wanted = threading.Event()\n\
             threading.Thread(target=lambda: (sys.stdin.readline(), wanted.set()), daemon=True).start()\n\
             while not wanted.is_set():\n    consumer.poll(0.1)\n\
             consumer.commit(offsets=[confluent_kafka.TopicPartition({topic:?}, 0, 3)], asynchronous=False)\n\
             print('committed', flush=True)\n\
             while True:\n    consumer.poll(0.1)\n",
            self.bootstrap,
            self.job,
            topic = self.source()
        );
        let mut command = Command::new(xtask::judge::python().unwrap());
        command.args(["-c", &script]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let said = BufReader::new(child.stdout.take().unwrap());
        let mut member = Member { child, said };
        member.says("joined");
        member
    }
}

/// Lives until it is dropped.
struct Member {
    child: Child,
    said: BufReader<ChildStdout>,
}

impl Member {
    fn says(&mut self, what: &str) {
        let mut line = String::new();
        self.said.read_line(&mut line).unwrap();
        assert_eq!(line.trim(), what);
    }

    /// Commits an offset of its own.
    fn commit(&mut self) {
        writeln!(self.child.stdin.as_mut().unwrap()).unwrap();
        self.says("committed");
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn soon(client: &Client) -> Deadline {
    Deadline::after(client.host().now(), Some(Duration::from_secs(30)))
}

#[test]
fn a_start_behind_another_producer_names_it_and_goes_on_when_that_one_is_gone() {
    for (level, version) in [(0, TransactionVersion::V1), (2, TransactionVersion::V2)] {
        let case = Case::new(&format!("held v{level}"), On::Ours(level), "");
        let mut feed = case.feed();
        assert_eq!(case.run(&["--crash-at", "K5:6"]).code, None);
        let stranger = case.hold_offset(version);
        let mut run = case.start("behind", &[]);
        let named =
            format!("producer {} epoch {} (not of this job)", stranger.producer_id, stranger.producer_epoch);
        let is_named = |log: &str| log.contains(&named) && log.contains(&format!("{}-1", case.source()));
        run.until("names the producer", PATIENCE, |run| Ok(is_named(&run.output()?))).unwrap();
        case.release(stranger, version);
        assert_eq!(feed.join().unwrap(), super::TOTAL);
        run.demand_exit(0, PATIENCE).unwrap();
        case.assert_done("released");
    }
}

/// Apache Kafka takes the offsets of a transaction also where the group has members, so what they commit is told by what
/// stands beside it.
#[test]
fn a_consumer_in_the_jobs_group_disturbs_nothing_until_it_commits_and_that_stops_the_job() {
    thread::scope(|scope| {
        for version in Version::ALL {
            scope.spawn(move || {
                let case = Case::new(&format!("members {}", version.number()), On::Kafka(version), "");
                case.fill();
                let mut member = case.join();
                let ended = case.run(&[]);
                assert_eq!(ended.code, Some(0), "{}", ended.err);
                case.assert_done("with a member in its group");
                member.commit();
                let ended = case.run(&[]);
                ended.says(4, "E0420");
                ended.says(4, &format!("the committed offset of {}-0", case.source()));
            });
        }
    });
}

#[test]
fn a_broker_that_refuses_offsets_for_the_groups_members_is_an_error_with_its_name() {
    for code in [22, 25] {
        let case = Case::new(&format!("refused {code}"), On::Ours(2), "");
        let hosted = case.hosted.as_ref().unwrap();
        let rule = Rule::on(ApiKey::TxnOffsetCommit).always().error(code);
        let guard = hosted.broker.faults().guard(rule).unwrap();
        let ended = case.run(&["--set", "run.start_timeout=3s"]);
        ended.says(3, "consumers are members of a group of this name");
        ended.says(3, &format!("(group {})", case.job));
        drop(guard);
    }
}
