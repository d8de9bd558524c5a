//! Pipelines on real Kafka: the examples, routing, bad records, and what is refused before the first record.

use crate::{
    command_line::{Bench, Ended, hapax},
    harness::{binary, unique},
};
use std::process::{Command, Stdio};
use xtask::{
    judge::{Isolation, Judge, Read, Record},
    kafka::{Version, shared},
};

fn bootstrap() -> &'static str {
    &shared(Version::V4_4).bootstrap
}

fn create(name: &str, partitions: u32, config: &[(&str, &str)]) -> String {
    let topic = unique(name);
    Judge::shared().create_topic(bootstrap(), &topic, partitions, config).unwrap();
    topic
}

fn produce(topic: &str, records: &[Record]) {
    assert_eq!(Judge::shared().produce(bootstrap(), topic, records).unwrap(), records.len() as u64);
}

/// What a `read_committed` reader sees, by partition.
fn read(topic: &str) -> Vec<Vec<Read>> {
    let mut partitions = Judge::shared().read_all(bootstrap(), topic, Isolation::ReadCommitted).unwrap();
    partitions.sort_by_key(|partition| partition.bounds.partition);
    partitions.into_iter().map(|partition| partition.records).collect()
}

fn values(topic: &str) -> Vec<String> {
    read(topic).concat().iter().map(Read::text).collect()
}

/// A copy from one topic to another to the source's end; `more` stands before the sink.
fn copy(name: &str, source: &str, sink: &str, more: &str) -> Bench {
    let text = format!(
        "job = \"{job}\"\n[checkpoint]\nstore = \"file://PATH/store\"\ninterval = \"100ms\"\n[cluster.main]\nbrokers = \"{brokers}\"\n\
         [[source]]\ntopics = [\"{source}\"]\nend = \"latest\"\n{more}\n[[sink]]\ntopic = \"{sink}\"\n",
        job = unique(name),
        brokers = bootstrap(),
    );
    Bench::new(name, &text)
}

fn example(bench: &Bench, file: &str, set: &[String]) -> Ended {
    let mut command = Command::new(binary());
    command.arg("run").arg(format!("{}/../../examples/{file}", env!("CARGO_MANIFEST_DIR"))).arg("--json");
    for argument in set {
        command.args(["--set", argument]);
    }
    command.env("HAPAX_BROKERS", bootstrap());
    command.env("HAPAX_STORE", format!("file://{}", bench.path(file).display()));
    Ended::of(&command.stdin(Stdio::null()).output().unwrap())
}

#[test]
fn the_examples_move_large_orders_exactly_once() {
    let (orders, large) = (create("orders", 4, &[]), create("orders-large", 4, &[]));
    let bench = Bench::new("pipeline-examples", "");
    let generated = example(
        &bench,
        "generate.toml",
        &[
            format!("job={}", unique("generate")),
            format!("sink.0.topic={orders}"),
            "source.0.generator.count=5000".into(),
            "checkpoint.interval=100ms".into(),
        ],
    );
    assert_eq!(generated.code, Some(0), "{}", generated.err);
    assert_eq!(generated.summary()["records_out"], 5000);

    let moved = example(
        &bench,
        "orders.toml",
        &[
            format!("job={}", unique("orders")),
            format!("source.0.topics=[\"{orders}\"]"),
            "source.0.end=latest".into(),
            format!("sink.0.topic={large}"),
            "checkpoint.interval=100ms".into(),
        ],
    );
    assert_eq!(moved.code, Some(0), "{}", moved.err);
    assert_eq!(moved.summary()["finished"], true);

    let fits = |read: &&Read| {
        let order: serde_json::Value = serde_json::from_str(&read.text()).unwrap();
        order["amount"].as_f64().unwrap() > 100.0
    };
    let reshaped = |read: &Read| {
        let order: serde_json::Value = serde_json::from_str(&read.text()).unwrap();
        (read.key.clone(), order["id"].as_u64().unwrap())
    };
    let expected: Vec<Vec<_>> =
        read(&orders).iter().map(|part| part.iter().filter(fits).map(reshaped).collect()).collect();
    let found: Vec<Vec<_>> = read(&large).iter().map(|part| part.iter().map(reshaped).collect()).collect();
    assert!(expected.concat().len() > 1_000, "the input has large orders");
    assert_eq!(found, expected, "partition by partition, in order");
    audit_finds_a_duplicate(&orders, &large);
}

/// `hapax verify` agrees with the independent reader, and sees what is added behind its back.
fn audit_finds_a_duplicate(orders: &str, large: &str) {
    let side = |topic: &str| format!("kafka://{}/{topic}", bootstrap());
    let verify = || {
        let (expected, actual) = (side(orders), side(large));
        let id = ["--id", "select(.amount > 100) | .id", "--id-actual", ".id"];
        hapax(&[&["verify", "--expected", &expected, "--actual", &actual], &id[..]].concat())
    };
    let clean = verify();
    assert_eq!(clean.code, Some(0), "{}{}", clean.out, clean.err);
    let again = read(large).concat()[0].text();
    produce(large, &[Record::value(again).to_partition(0)]);
    verify().says(7, "0 missing, 1 duplicated, 0 unexpected");
}

#[test]
fn a_copy_keeps_keys_headers_tombstones_and_partitions() {
    let (source, sink) = (create("copy-in", 3, &[]), create("copy-out", 3, &[]));
    let headers = vec![
        ("a".to_owned(), Some(b"1".to_vec())),
        ("a".to_owned(), None),
        ("b".to_owned(), Some(vec![255])),
    ];
    let records: Vec<Record> = (0..300)
        .map(|number| Record {
            value: (number % 10 != 0).then(|| format!("not json {number}").into_bytes()),
            headers: headers.clone(),
            ..Record::new(format!("k{number}"), "").to_partition(number % 3)
        })
        .collect();
    produce(&source, &records);
    for (guarantee, name) in
        [("exactly-once", "copy-eos"), ("at-least-once", "copy-alo"), ("none", "copy-none")]
    {
        let sink = if guarantee == "exactly-once" { sink.clone() } else { create(name, 3, &[]) };
        let ended = copy(&format!("pipeline-{name}"), &source, &sink, "")
            .run(&["--set", &format!("sink.0.guarantee={guarantee}")]);
        assert_eq!(ended.code, Some(0), "{}", ended.err);
        let content = |topic: &str| -> Vec<Vec<_>> {
            let part = |part: &Vec<Read>| {
                part.iter()
                    .map(|r| (r.key.clone(), r.value.clone(), r.headers.clone(), r.timestamp_ms))
                    .collect()
            };
            read(topic).iter().map(part).collect()
        };
        assert_eq!(content(&sink), content(&source), "{guarantee}");
        let side = |topic: &str| format!("kafka://{}/{topic}", bootstrap());
        let audit = hapax(&["verify", "--expected", &side(&source), "--actual", &side(&sink)]);
        assert_eq!(audit.code, Some(0), "{}{}", audit.out, audit.err);
    }
}

#[test]
fn programs_choose_topic_key_partition_and_headers() {
    let source = create("route-in", 2, &[]);
    let (eu, us) = (create("route-eu", 2, &[]), create("route-us", 2, &[]));
    produce(
        &source,
        &[
            Record::new("x", r#"{"id":1,"to":"eu"}"#).to_partition(1),
            Record::new("x", r#"{"id":2,"to":"us"}"#).to_partition(1),
            Record::new("x", r#"{"id":3,"to":"eu"}"#).to_partition(1),
        ],
    );
    let operator = format!(
        "[[operator]]\njq = '.'\nkey = '\"key-\\(.id)\"'\ntopic = 'if .to == \"eu\" then \"{eu}\" else \"{us}\" end'\n\
         partition = '0'\nheaders = '{{from: \"\\($topic)-\\($partition)\"}}'\n"
    );
    let bench = copy("pipeline-route", &source, "TOPIC", &operator);
    let text = std::fs::read_to_string(&bench.file).unwrap();
    std::fs::write(&bench.file, text.replace("topic = \"TOPIC\"\n", "cluster = \"main\"\n")).unwrap();
    let ended = bench.run(&[]);
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    let found = |topic: &str| -> Vec<(String, String)> {
        let partitions = read(topic);
        assert!(partitions[1].is_empty(), "partition 0 was chosen");
        let from = vec![("from".to_owned(), Some(format!("{source}-1").into_bytes()))];
        assert!(partitions[0].iter().all(|read| read.headers == from));
        let key = |read: &Read| String::from_utf8(read.key.clone().unwrap()).unwrap();
        partitions[0].iter().map(|read| (key(read), read.text())).collect()
    };
    let record = |id: u32, to: &str| (format!("key-{id}"), format!(r#"{{"id":{id},"to":"{to}"}}"#));
    assert_eq!(found(&eu), [record(1, "eu"), record(3, "eu")]);
    assert_eq!(found(&us), [record(2, "us")]);
}

#[test]
fn a_value_that_is_not_json_stops_with_its_place_or_is_counted() {
    let (source, sink) = (create("bad-in", 2, &[]), create("bad-out", 2, &[]));
    produce(
        &source,
        &[
            Record::value("1").to_partition(1),
            Record::value("{oops").to_partition(1),
            Record::value("2").to_partition(1),
        ],
    );
    let bench = copy("pipeline-bad-value", &source, &sink, "[[operator]]\njq = '.'\n");
    bench.run(&[]).says(4, &format!("the record at {source}-1 offset 1: the value is not JSON"));
    let skipped = bench.run(&["--json", "--set", "operator.0.on_error=skip"]);
    assert_eq!(skipped.code, Some(0), "{}", skipped.err);
    assert_eq!(skipped.summary()["skipped"], 1);
    assert_eq!(values(&sink), ["1", "2"], "nothing is lost and nothing is there twice after the stop");
}

#[test]
fn an_unknown_topic_is_exit_code_2() {
    let known = create("known", 1, &[]);
    let missing = unique("missing");
    let sourceless =
        copy("pipeline-no-source", &missing, &known, "").run(&["--set", "run.start_timeout=60s"]);
    sourceless.says(2, &missing);
    copy("pipeline-no-sink", &known, &missing, "").run(&["--set", "run.start_timeout=60s"]).says(2, &missing);
    assert!(values(&known).is_empty());
}

#[test]
fn a_transaction_timeout_above_the_broker_s_maximum_is_refused_with_both_numbers() {
    let (source, sink) = (create("timeout-in", 1, &[]), create("timeout-out", 1, &[]));
    produce(&source, &[Record::value("1")]);
    let ended = copy("pipeline-timeout", &source, &sink, "").run(&["--set", "transaction_timeout=7d"]);
    ended.says(2, "transaction_timeout is 604800000 ms");
    ended.says(2, "allows at most 900000 ms");
    let bounds = Judge::shared().end_offsets(bootstrap(), &sink).unwrap();
    assert!(bounds.iter().all(|bounds| bounds.end == 0), "nothing was written before the refusal");
}

#[test]
fn a_record_larger_than_the_topic_allows_stops_with_its_place_or_is_counted() {
    for guarantee in ["exactly-once", "at-least-once"] {
        let (source, sink) =
            (create("large-in", 1, &[]), create("large-out", 1, &[("max.message.bytes", "2000")]));
        let records = ["small".to_owned(), "x".repeat(5_000), "last".to_owned()];
        produce(&source, &records.map(Record::value));
        let bench = copy("pipeline-large", &source, &sink, "");
        let set = format!("sink.0.guarantee={guarantee}");
        let set = ["--json", "--set", "sink.0.compression=none", "--set", &set];
        let stopped = bench.run(&set);
        stopped.says(4, &format!("the record at {source}-0 offset 1: as a batch of its own it has 50"));
        stopped.says(4, &format!("topic {sink} allows 2000 (max.message.bytes)"));
        let skipped = bench.run(&[&set[..], &["--set", "sink.0.on_error=skip"]].concat());
        assert_eq!(skipped.code, Some(0), "{}", skipped.err);
        assert_eq!(skipped.summary()["skipped"], 1);
        let mut written = values(&sink);
        // At least once: what was acknowledged before the stop is there again.
        written.sort();
        written.dedup();
        assert_eq!(written, ["last", "small"], "{guarantee}");
        if guarantee == "exactly-once" {
            assert_eq!(values(&sink).len(), 2);
        }
    }
}

#[test]
fn a_large_record_that_compresses_well_is_written() {
    let (source, sink) = (create("fits-in", 1, &[]), create("fits-out", 1, &[("max.message.bytes", "2000")]));
    produce(&source, &[Record::value("x".repeat(5_000))]);
    let ended = copy("pipeline-fits", &source, &sink, "").run(&[]);
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    assert_eq!(values(&sink), ["x".repeat(5_000)]);
}

#[test]
fn a_job_begins_where_its_file_says() {
    // Records of 1970 are older than any retention.
    let kept = [("retention.ms", "-1")];
    let source = create("start-in", 1, &kept);
    produce(
        &source,
        &[
            Record { timestamp_ms: Some(1_000), ..Record::value("a") },
            Record { timestamp_ms: Some(2_000), ..Record::value("b") },
            Record { timestamp_ms: Some(3_000), ..Record::value("c") },
        ],
    );
    for (start, expected) in [
        ("earliest", &["a", "b", "c"][..]),
        ("latest", &[]),
        ("1970-01-01T00:00:02Z", &["b", "c"]),
        ("{ 0 = 2 }", &["c"]),
    ] {
        let sink = create("start-out", 1, &kept);
        let ended =
            copy("pipeline-start", &source, &sink, "").run(&["--set", &format!("source.0.start={start}")]);
        assert_eq!(ended.code, Some(0), "{start}: {}", ended.err);
        assert_eq!(values(&sink), expected, "{start}");
    }
}

/// Everything that there is becomes one epoch.
const ONE_EPOCH: &str = "checkpoint.interval=5s";

/// By key, and by the source's partition; a part of the epoch is aborted behind its decision, and written again.
#[test]
fn records_of_a_key_keep_their_order_however_partitions_are_chosen() {
    const KEYS: u32 = 30;
    const OF_EACH: u32 = 100;
    let source = create("key-in", 3, &[]);
    // All records of a key are in one partition, beside those of nine others.
    let record =
        |n: u32| Record::new(format!("k{}", n % KEYS), n.to_string()).to_partition((n % KEYS % 3) as i32);
    produce(&source, &(0..KEYS * OF_EACH).map(record).collect::<Vec<_>>());
    for (partitions, chosen) in [(5, "auto"), (3, "key"), (3, "keep")] {
        let sink = create("key-out", partitions, &[]);
        let bench = copy(&format!("pipeline-key-{chosen}"), &source, &sink, "");
        let chosen = format!("sink.0.partition={chosen}");
        let died = bench.run(&["--set", &chosen, "--set", ONE_EPOCH, "--crash-at", "K2:1"]);
        assert_eq!(died.code, None, "{}", died.err);
        let file = bench.file.to_str().unwrap();
        let described = hapax(&["txn", "describe", file, "--json"]);
        let lines =
            described.out.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        let in_doubt = lines.filter(|one| one["chain"]["in-doubt"].is_object()).collect::<Vec<_>>();
        let ended = hapax(&["txn", "abort", file, in_doubt[0]["id"].as_str().unwrap(), "--decided"]);
        assert_eq!(ended.code, Some(0), "{}", ended.err);
        let list = "recovery=[\"resume\", \"rewrite\"]";
        let ended = bench.run(&["--set", &chosen, "--set", list]);
        assert_eq!(ended.code, Some(0), "{}", ended.err);
        assert!(ended.err.contains("written again"), "{}", ended.err);

        let found = read(&sink);
        for key in 0..KEYS {
            let name = format!("k{key}").into_bytes();
            let of_key = |part: &Vec<Read>| -> Vec<String> {
                part.iter().filter(|read| read.key.as_ref() == Some(&name)).map(Read::text).collect()
            };
            let places: Vec<Vec<String>> = found.iter().map(of_key).filter(|part| !part.is_empty()).collect();
            let wanted: Vec<String> = (0..OF_EACH).map(|n| (n * KEYS + key).to_string()).collect();
            assert_eq!(places, [wanted], "{chosen}: k{key}");
        }
    }
}

/// What it drops is counted, what it repeats is its own, and the other sink is exact; under both deciders.
#[test]
fn a_sink_without_a_guarantee_takes_nothing_from_the_exact_one_beside_it() {
    for decider in ["checkpoint", "transaction"] {
        let (source, exact) = (create("beside-in", 2, &[]), create("beside-exact", 2, &[]));
        let none = create("beside-none", 2, &[("max.message.bytes", "2000")]);
        let record = |n: i32| {
            let padding = if n == 50 { 5_000 } else { 10 };
            Record::value(format!("{n} {}", "x".repeat(padding))).to_partition(n % 2)
        };
        produce(&source, &(0..100).map(record).collect::<Vec<_>>());
        let bench = copy(&format!("pipeline-beside-{decider}"), &source, &exact, "");
        let mut text = std::fs::read_to_string(&bench.file).unwrap();
        text.push_str(&format!(
            "[[sink]]\ntopic = \"{none}\"\nguarantee = \"none\"\ncompression = \"none\"\n"
        ));
        std::fs::write(&bench.file, format!("decider = \"{decider}\"\n{text}")).unwrap();
        let died = bench.run(&["--set", ONE_EPOCH, "--crash-at", "K1:1"]);
        assert_eq!(died.code, None, "{}", died.err);
        let ended = bench.run(&["--json"]);
        assert_eq!(ended.code, Some(0), "{}", ended.err);
        let written = read(&source);
        assert_eq!(
            read(&exact).iter().map(|part| part.iter().map(Read::text).collect()).collect::<Vec<Vec<_>>>(),
            written.iter().map(|part| part.iter().map(Read::text).collect()).collect::<Vec<Vec<_>>>(),
            "{decider}: each once and in order"
        );
        assert!(ended.summary()["dropped"].as_u64() > Some(0), "{}", ended.out);
        let mut found = values(&none);
        let copies = found.len();
        found.sort_unstable();
        found.dedup();
        assert!(!found.iter().any(|text| text.starts_with("50 ")), "the topic does not take it");
        assert_eq!(found.len(), 99, "{decider}: its neighbours are there");
        assert!(copies > found.len(), "{decider}: what lay behind no checkpoint is written again");
    }
}
