//! Process A writes, prepares and is killed; process B ends its transaction with what A saved.

use crate::support::*;
use hapax_commit::{Identity, ProducerEpoch, ProducerId, TransactionVersion};
use hapax_kafka::transaction::{self, Described, EndTxnAnswer, TransactionState};
use std::{
    io::{BufRead, BufReader},
    process::{Command, Stdio},
    time::Duration,
};
use xtask::process::Supervised;

const WRITER: &str = "other_process::writer_that_is_killed";
const SAVED: &str = "SAVED ";

/// Process A. Started by the tests below as a process of its own; alone it does nothing.
#[test]
#[ignore = "the second process of the tests beside it, which start it themselves"]
fn writer_that_is_killed() {
    let Ok(arguments) = std::env::var("HAPAX_TEST_WRITER") else { return };
    let [bootstrap, topic, id, count] = arguments.split(' ').collect::<Vec<_>>().try_into().unwrap();
    block_on(async {
        let client = connect(bootstrap).await;
        let values = numbered(count.parse().unwrap());
        let prepared = Prepared::begin(&client, id, Duration::from_secs(120), topic, &values).await;
        let Identity { producer_id, producer_epoch } = prepared.identity;
        println!("\n{SAVED}{producer_id} {producer_epoch} {}", prepared.version);
        // Holds its connections open until it is killed.
        std::future::pending::<()>().await;
    });
}

/// Starts A, waits for what it saves, and kills it.
fn write_and_die(bootstrap: &str, topic: &str, id: &str, count: usize) -> Prepared {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args([WRITER, "--exact", "--ignored", "--nocapture"])
        .env("HAPAX_TEST_WRITER", format!("{bootstrap} {topic} {id} {count}"))
        .stdout(Stdio::piped());
    let mut writer = Supervised::spawn(&mut command).unwrap();
    let lines = BufReader::new(writer.take_stdout().unwrap()).lines();
    let saved = lines.map(Result::unwrap).find_map(|line| line.strip_prefix(SAVED).map(str::to_owned));
    writer.kill().unwrap();
    writer.wait().unwrap();
    let saved = saved.expect("the writer ended before it had prepared");
    let fields: Vec<_> = saved.split(' ').collect();
    Prepared {
        transactional_id: id.to_owned(),
        identity: Identity {
            producer_id: ProducerId(fields[0].parse().unwrap()),
            producer_epoch: ProducerEpoch(fields[1].parse().unwrap()),
        },
        version: if fields[2] == "V2" { TransactionVersion::V2 } else { TransactionVersion::V1 },
        first_offset: 0,
    }
}

fn end_from_another_process(version: Version, commit: bool) {
    let bootstrap = &shared(version).bootstrap;
    let (topic, id) = (unique("killed-writer"), unique("killed-writer"));
    Judge::shared().create_topic(bootstrap, &topic, 1, &[]).unwrap();
    let prepared = write_and_die(bootstrap, &topic, &id, 100);
    assert_eq!(prepared.version, protocol(version));
    assert_eq!(judged(bootstrap, &topic, Reading::ReadCommitted), Vec::<String>::new());
    assert_eq!(judged(bootstrap, &topic, Reading::ReadUncommitted), numbered(100));

    block_on(async {
        let client = connect(bootstrap).await;
        let described = transaction::describe_transaction(&client, &id, soon(&client)).await.unwrap();
        let Described::Known { state, identity, partitions, timeout_ms, start_ms } = described else {
            panic!("{id} is unknown")
        };
        assert_eq!((state, identity), (TransactionState::Ongoing, prepared.identity));
        assert_eq!(partitions, [(topic.clone(), vec![0])]);
        assert_eq!(timeout_ms, 120_000);
        assert!(start_ms.is_some());
        let answer = prepared.end(&client, commit).await;
        let as_asked = match answer {
            EndTxnAnswer::Committed { .. } => commit,
            EndTxnAnswer::Aborted { .. } => !commit,
            _ => false,
        };
        assert!(as_asked, "{answer:?}");
        // Visible when the marker is there, a moment after the answer.
        let end = if commit { TransactionState::CompleteCommit } else { TransactionState::CompleteAbort };
        eventually(&client, end.name(), || async {
            let described = transaction::describe_transaction(&client, &id, soon(&client)).await.unwrap();
            matches!(described, Described::Known { state, .. } if state == end).then_some(())
        })
        .await;
    });
    let expected = if commit { numbered(100) } else { Vec::new() };
    assert_eq!(judged(bootstrap, &topic, Reading::ReadCommitted), expected);
}

#[test]
fn a_killed_writers_transaction_is_committed_by_another_process_on_v2() {
    end_from_another_process(Version::V4_4, true);
}

#[test]
fn a_killed_writers_transaction_is_committed_by_another_process_on_v1() {
    end_from_another_process(Version::V3_9, true);
}

#[test]
fn a_killed_writers_transaction_is_aborted_by_another_process_on_v2() {
    end_from_another_process(Version::V4_4, false);
}

#[test]
fn a_killed_writers_transaction_is_aborted_by_another_process_on_v1() {
    end_from_another_process(Version::V3_9, false);
}
