//! Apache Kafka's own command-line tools against the broker.

use super::hosted::Hosted;
use hapax_broker::Settings;
use std::{
    io::Write,
    process::{Command, Stdio},
    time::Duration,
};
use xtask::{
    judge::{Isolation, Judge, Outcome, Record},
    kafka::{Installation, Version},
    process::Supervised,
    tools::Tools,
};

const LIMIT: Duration = Duration::from_secs(120);

fn words(tools: &Tools, class: &str, arguments: &[&str]) -> String {
    let output = tools.run(&format!("org.apache.kafka.tools.{class}"), arguments).unwrap();
    let out = String::from_utf8_lossy(&output.stdout).into_owned();
    let complaints = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{class} {arguments:?}: {}\n{out}\n{complaints}", output.status);
    out
}

/// Has the console producer send lines.
fn produce_lines(bootstrap: &str, topic: &str, lines: &str) {
    let installation = Installation::provide(Version::V4_4).unwrap();
    let mut command: Command = installation.command("org.apache.kafka.tools.ConsoleProducer", "ERROR");
    command.args(["--bootstrap-server", bootstrap, "--topic", topic]);
    let mut producer = Supervised::spawn(command.stdin(Stdio::piped()).stdout(Stdio::null())).unwrap();
    producer.take_stdin().unwrap().write_all(lines.as_bytes()).unwrap();
    assert!(producer.wait_for(LIMIT).unwrap().expect("an end in time").success());
}

fn value(text: &str) -> Record {
    Record::value(text)
}

#[test]
fn topics_are_made_written_read_and_described_by_kafkas_console_tools() {
    let broker = Hosted::start(Settings { nodes: 2, ..Settings::default() });
    let (at, tools) = (broker.bootstrap(), Tools::new(Version::V4_4).unwrap());
    let server = ["--bootstrap-server", &at];
    let with = |more: &[&'static str]| [server.as_slice(), more].concat();
    words(&tools, "TopicCommand", &with(&["--create", "--topic", "lines", "--partitions", "2"]));
    let described = words(&tools, "TopicCommand", &with(&["--describe", "--topic", "lines"]));
    assert!(described.contains("PartitionCount: 2"), "{described}");
    produce_lines(&at, "lines", "one\ntwo\nthree\n");
    let settle = Duration::from_secs(1);
    for isolation in [Isolation::ReadCommitted, Isolation::ReadUncommitted] {
        let mut lines = tools.console_consume(&at, "lines", isolation, 3, settle).unwrap();
        lines.sort();
        assert_eq!(lines, ["one", "three", "two"]);
    }
    let offsets = words(&tools, "GetOffsetShell", &with(&["--topic", "lines"]));
    let ends = offsets.lines().filter_map(|line| line.rsplit(':').next()?.parse::<i64>().ok());
    assert_eq!(ends.sum::<i64>(), 3, "{offsets}");
}

#[test]
fn transactions_are_listed_described_copied_and_aborted_by_kafkas_tools() {
    let broker = Hosted::start(Settings::default());
    let (at, tools, judge) = (broker.bootstrap(), Tools::new(Version::V4_4).unwrap(), Judge::shared());
    judge.create_topic(&at, "in", 1, &[]).unwrap();
    judge.create_topic(&at, "out", 1, &[]).unwrap();
    let numbers: Vec<Record> = (0..200).map(|number| value(&number.to_string())).collect();
    judge.produce(&at, "in", &numbers).unwrap();

    // Kafka's own exactly-once copier, half of whose transactions abort: offsets go with the commits.
    let class = "TransactionalMessageCopier";
    #[rustfmt::skip]
    let copied = words(&tools, class, &[
        "--broker-list", &at, "--input-topic", "in", "--input-partition", "0", "--output-topic", "out",
        "--max-messages", "200", "--consumer-group", "copiers", "--transaction-size", "20",
        "--transactional-id", "copier", "--enable-random-aborts",
    ]);
    assert!(copied.contains("ShutdownComplete"), "{copied}");
    let expected: Vec<String> = (0..200).map(|number| number.to_string()).collect();
    assert_eq!(
        tools.console_consume(&at, "out", Isolation::ReadCommitted, 200, Duration::from_secs(1)).unwrap(),
        expected
    );
    let group = words(
        &tools,
        "consumer.group.ConsumerGroupCommand",
        &["--bootstrap-server", &at, "--describe", "--group", "copiers", "--offsets"],
    );
    let row = group.lines().find(|line| line.contains("copiers") && line.contains(" in ")).expect(&group);
    assert!(row.split_whitespace().any(|cell| cell == "200"), "{group}");

    judge.produce_transactional(&at, "in", &[value("x")], "open", LIMIT, Outcome::Open).unwrap();
    let listed = tools.transactions_list(&at).unwrap();
    let states: Vec<_> = listed.iter().map(|it| (it.id.as_str(), it.state.as_str())).collect();
    assert_eq!(states.len(), 2, "{listed:?}");
    assert!(states.contains(&("open", "Ongoing")), "{listed:?}");
    let described = tools.describe_transaction(&at, "open").unwrap().expect("it is open");
    assert_eq!(
        (described.state.as_str(), described.partitions.as_slice()),
        ("Ongoing", &["in-0".to_owned()][..])
    );
    let place = ["--topic", "in", "--partition", "0"];
    let transactions = |verb: &str, more: &[&str]| {
        words(&tools, "TransactionsCommand", &[&["--bootstrap-server", &at, verb], &place[..], more].concat())
    };
    let producers = transactions("describe-producers", &[]);
    assert!(producers.contains(&described.producer_id.to_string()), "{producers}");
    let before = judge.end_offsets(&at, "in").unwrap();
    assert!(before[0].stable_end < before[0].end, "{before:?}");
    transactions("abort", &["--start-offset", "200"]);
    let after = judge.end_offsets(&at, "in").unwrap();
    assert_eq!(after[0].stable_end, after[0].end, "{after:?}");
}
