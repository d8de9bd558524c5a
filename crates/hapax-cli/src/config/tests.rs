//! Each rule of the pipeline file, by the message that its breach gives.

use super::{ConfigError, Embedded, Pipeline, pipeline};
use hapax::{Code, Job};

const PIPELINE: &str = r#"
job = "orders"

[checkpoint]
store = "memory://"

[cluster.main]
brokers = "kafka-1:9092,kafka-2:9092"

[[source]]
cluster = "main"
topics = ["orders"]

[[operator]]
jq = 'select(.amount > 100) | {id, amount}'

[[sink]]
cluster = "main"
topic = "orders-large"
"#;

fn parse(text: &str) -> Result<Job, String> {
    pipeline(text, &[], &|_| None).map(|pipeline| pipeline.job).map_err(|error| error.to_string())
}

fn with(argument: &str) -> Result<Job, String> {
    pipeline(PIPELINE, &[argument.to_owned()], &|_| None)
        .map(|pipeline| pipeline.job)
        .map_err(|error| error.to_string())
}

/// The error of the pipeline with one line more in a section, without the line's number.
fn wrong(section: &str, line: &str) -> String {
    let text = PIPELINE.replace(&format!("{section}\n"), &format!("{section}\n{line}\n"));
    assert_ne!(text, PIPELINE, "{section} is in the pipeline");
    let error = parse(&text).err().unwrap_or_else(|| panic!("{line} is an error"));
    let number = 1 + text.lines().position(|found| found == line).unwrap();
    let place = format!("line {number}: ");
    error.strip_prefix(&place).unwrap_or_else(|| panic!("{error} is at {place}")).to_owned()
}

fn replaced(from: &str, to: &str) -> String {
    let text = PIPELINE.replace(from, to);
    assert_ne!(text, PIPELINE, "{from} is in the pipeline");
    parse(&text).err().unwrap_or_else(|| panic!("{to} is an error"))
}

#[test]
fn the_pipeline_of_the_documentation_is_legal() {
    parse(PIPELINE).unwrap().plan().unwrap();
}

#[test]
fn the_examples_are_legal() {
    for text in [
        include_str!("../../../../examples/orders.toml"),
        include_str!("../../../../examples/generate.toml"),
        include_str!("../../../../examples/route.toml"),
    ] {
        let brokers = |name: &str| (name == "HAPAX_BROKERS").then(|| "localhost:9092".to_owned());
        pipeline(text, &[], &brokers).unwrap().job.plan().unwrap();
    }
}

#[test]
fn every_key_is_accepted() {
    let text = r#"
job = "everything"
decider = "checkpoint"
assignment = "all"
transaction_timeout = "5m"
recovery = ["resume", "rewind"]
[checkpoint]
store = "file:///tmp/x"
interval = "200ms"
keep = 8
incidents = "/tmp/incidents"
[run]
start_timeout = "10s"
stop_budget = "5s"
backoff = "100ms"
backoff_max = "1s"
workers = 2
shards = 3
[cluster.a]
brokers = ["k1:9092", "k2:9092"]
[cluster.b]
brokers = "k3:9092"
[[source]]
name = "one"
cluster = "a"
topics = ["x", "y"]
start = { x = { 0 = 5, 1 = 7 } }
end = "latest"
isolation = "read_uncommitted"
[[source]]
name = "two"
cluster = "b"
topics = "z"
start = "2026-01-01T00:00:00Z"
end = { 0 = 100 }
[[source]]
files = ["/tmp/a.ndjson", "/tmp/b.ndjson"]
format = "text"
on_error = "skip"
follow = false
[[source]]
generator = { count = 10, rate = 1.5, value = '{"id":$id}', partitions = 2, seed = 7 }
[[operator]]
name = "reshape"
jq = "."
key = ".id"
topic = ".topic"
partition = ".partition"
headers = "{}"
on_error = "skip"
[[sink]]
cluster = "a"
partition = "key"
guarantee = "exactly-once"
compression = "zstd"
linger = "0ms"
batch = "16KiB"
buffer = "1MiB"
delivery_timeout = "never"
[[sink]]
cluster = "b"
topic = "copy"
partition = "keep"
on_error = "skip"
guarantee = "at-least-once"
delivery_timeout = "30s"
[[sink]]
file = "/tmp/out.ndjson"
name = "look"
guarantee = "at-least-once"
[[sink]]
file = "-"
"#;
    parse(text).unwrap().plan().unwrap();
}

#[test]
fn an_unknown_key_names_the_nearest_one() {
    assert_eq!(
        wrong("[checkpoint]", "intervall = \"1s\""),
        r#"[checkpoint] has no key "intervall"; did you mean "interval"?"#
    );
    assert_eq!(
        wrong("[[sink]]", "topics = \"x\""),
        r#"[[sink]] 1 has no key "topics"; did you mean "topic"?"#
    );
    assert_eq!(
        wrong("[cluster.main]", "broker = \"x\""),
        r#"[cluster.main] has no key "broker"; did you mean "brokers"?"#
    );
    assert_eq!(
        replaced("job =", "jobb = 1\njob ="),
        r#"line 2: the top of the file has no key "jobb"; did you mean "job"?"#
    );
    let far = wrong("[checkpoint]", "colour = 1");
    assert!(far.starts_with(r#"[checkpoint] has no key "colour"; the nearest is "store" (of store, interval, keep, incidents)"#), "{far}");
}

#[test]
fn a_key_in_the_wrong_section_is_sent_to_its_own() {
    assert_eq!(
        wrong("[checkpoint]", "shards = 2"),
        r#"[checkpoint] has no key "shards"; it belongs to [run]"#
    );
    assert_eq!(
        wrong("[checkpoint]", "transaction_timeout = \"1m\""),
        r#"[checkpoint] has no key "transaction_timeout"; it belongs to the top of the file"#
    );
}

#[test]
fn acks_is_not_a_knob() {
    let error = wrong("[[sink]]", "acks = \"1\"");
    assert!(error.starts_with(r#"[[sink]] 1 has no key "acks": acks is not a setting: records are always written with acks = all"#), "{error}");
}

#[test]
fn what_others_have_is_explained() {
    for (section, line, why) in [
        ("[[source]]", "group = \"g\"", "the offsets of the group that is named like the job"),
        ("[[sink]]", "transactional_id = \"x\"", "follow from the job's name"),
        ("[[sink]]", "retries = 3", "always idempotent"),
        ("[cluster.main]", "tls = true", "TLS and SASL are not in this release"),
        ("[[operator]]", "dead_letters = \"t\"", "dead letters are not in this release"),
    ] {
        let error = wrong(section, line);
        assert!(error.contains(why), "{error}");
    }
}

#[test]
fn types_are_checked_with_their_place() {
    assert_eq!(
        wrong("[checkpoint]", "interval = 5"),
        "[checkpoint]: interval = 5 needs a unit: write \"5s\" or \"5ms\""
    );
    assert_eq!(
        wrong("[checkpoint]", "interval = \"5\""),
        "[checkpoint]: interval = \"5\" is not a duration; write 500ms, 1s, 2m, 1h or 7d"
    );
    assert_eq!(wrong("[checkpoint]", "interval = \"0s\""), "[checkpoint]: interval must be above 0");
    assert_eq!(
        wrong("[checkpoint]", "keep = \"3\""),
        "[checkpoint]: keep must be a whole number, not a text"
    );
    assert_eq!(wrong("[checkpoint]", "keep = 5"), "[checkpoint]: keep = 5 is out of range: the least is 6");
    assert_eq!(
        wrong("[[sink]]", "batch = 16384"),
        "[[sink]] 1: batch = 16384 needs a unit: write \"16384B\" or \"16384KiB\""
    );
    assert_eq!(wrong("[[sink]]", "linger = true"), "[[sink]] 1: linger must be a text, not true or false");
    assert_eq!(
        wrong("[[sink]]", "guarantee = \"atleastonce\""),
        r#"[[sink]] 1: guarantee = "atleastonce" is not one of "none", "at-least-once", "exactly-once""#
    );
    assert_eq!(
        wrong("[[sink]]", "compression = \"brotli\""),
        r#"[[sink]] 1: compression = "brotli" is not one of "none", "gzip", "snappy", "lz4", "zstd""#
    );
    assert_eq!(
        wrong("[[sink]]", "batch = \"64MiB\""),
        "[[sink]] 1: batch (67108864 bytes) must fit into buffer (33554432 bytes)"
    );
}

#[test]
fn a_job_has_a_name_without_dots() {
    assert!(replaced("job = \"orders\"", "").contains("job is missing: a stable name"));
    let error = replaced("job = \"orders\"", "job = \"orders.eu\"");
    assert!(
        error.starts_with("line 2: the top of the file: job = \"orders.eu\" is not a name: use 1 to"),
        "{error}"
    );
    let long = replaced("job = \"orders\"", &format!("job = \"{}\"", "x".repeat(10_000)));
    assert!(long.starts_with("line 2: ") && long.len() < 500, "{long}");
}

#[test]
fn clusters_are_named_and_have_brokers() {
    let cluster = "[cluster.main]\nbrokers = \"kafka-1:9092,kafka-2:9092\"";
    assert!(replaced(cluster, "[cluster.main]").ends_with(
        "[cluster.main]: brokers is missing, and is never chosen for you: write host:port of some of its brokers, or \
         \"embedded\" for a broker inside this process"
    ));
    assert!(
        replaced(cluster, "[cluster]\nbrokers = \"k:1\"")
            .contains("write [cluster.NAME], with a name for each cluster")
    );
    assert!(replaced(cluster, "[cluster.main]\nbrokers = \"k\"").contains("write host:port"));
    assert!(replaced(cluster, "[cluster.Main]\nbrokers = \"k:1\"").contains("\"Main\" is not a name"));
    let other = replaced("[[sink]]\ncluster = \"main\"", "[[sink]]\ncluster = \"mian\"");
    assert!(other.ends_with("[[sink]] 1: there is no [cluster.mian]; there are main"), "{other}");
}

#[test]
fn the_only_cluster_needs_no_naming_and_several_do() {
    parse(&PIPELINE.replace("\ncluster = \"main\"", "")).unwrap().plan().unwrap();
    let two = PIPELINE
        .replace("\ncluster = \"main\"", "")
        .replace("[cluster.main]", "[cluster.other]\nbrokers = \"k:1\"\n[cluster.main]");
    assert!(parse(&two).err().unwrap().contains("[[source]] 1: cluster is missing: name one of main, other"));
}

#[test]
fn a_source_reads_one_kind_of_thing() {
    let source = "[[source]]\ncluster = \"main\"\ntopics = [\"orders\"]";
    let read = |text: &str| replaced(source, &format!("[[source]]\n{text}"));
    assert!(read("").contains("[[source]] 1: reads nothing"));
    assert!(read("cluster = \"main\"").contains("topics is missing"));
    assert!(read("topics = []").contains("topics is empty"));
    assert!(read("topics = [\"a\", \"a\"]").contains("topics names \"a\" twice"));
    assert!(
        read("topics = [\"a\"]\nfile = \"x\"").contains("topics has no meaning here: the source reads files")
    );
    assert!(
        read("topics = [\"a\"]\nformat = \"text\"")
            .contains("format has no meaning here: the source reads topics")
    );
    assert!(
        read("generator = {}\nfile = \"x\"").contains("file has no meaning here: the source is a generator")
    );
    assert!(read("file = \"a\"\nfiles = [\"b\"]").contains("file and files say the same"));
    assert!(read("files = [\"-\", \"b\"]").contains("is read alone"));
    assert!(
        read("generator = { cuont = 3 }")
            .contains("generator = {...} has no key \"cuont\"; did you mean \"count\"?")
    );
    assert!(read("generator = { rate = 0 }").contains("rate = 0 must be above 0"));
    assert!(read("generator = { value = \"$x\" }").contains("value: there is no $x: a template knows $id"));
    assert!(read("generator = {}\nname = \"a/b\"").contains("\"a/b\" is not a name"));
}

#[test]
fn start_and_end_are_words_moments_or_offsets() {
    for bound in [
        "start = \"latest\"",
        "start = 2026-01-01T00:00:00Z",
        "end = \"never\"",
        "end = { 0 = 1, 1 = 2 }",
        "end = { orders = { 0 = 9 } }",
        "end = { offsets = { orders = { 0 = 9 } } }",
    ] {
        let text = PIPELINE.replace("topics = [\"orders\"]", &format!("topics = [\"orders\"]\n{bound}"));
        parse(&text).unwrap();
    }
    assert_eq!(
        wrong("[[source]]", "start = \"yesterday\""),
        "[[source]] 1: start = \"yesterday\" is not one of \"earliest\", \"latest\", a point in time like \
         \"2026-01-01T00:00:00Z\", or offsets by partition like { 0 = 100, 1 = 90 }"
    );
    assert!(wrong("[[source]]", "end = \"earliest\"").contains("is not one of \"never\", \"latest\""));
    assert!(
        wrong("[[source]]", "end = { order = { 0 = 1 } }")
            .ends_with("end: there is no topic \"order\" in topics")
    );
    assert!(
        wrong("[[source]]", "end = { 0 = -1 }").contains("offsets are whole numbers from 0 by partition")
    );
    assert!(wrong("[[source]]", "end = { x = 1 }").contains("offsets are whole numbers from 0 by partition"));
    assert!(wrong("[[source]]", "end = 5").contains("not a whole number"));
}

#[test]
fn a_sink_writes_to_one_kind_of_place() {
    let sink = "[[sink]]\ncluster = \"main\"\ntopic = \"orders-large\"";
    let write = |text: &str| replaced(sink, &format!("[[sink]]\n{text}"));
    assert!(write("").contains("[[sink]] 1: writes nowhere"));
    assert!(
        write("file = \"x\"\nlinger = \"1ms\"").contains("linger has no meaning here: the sink writes lines")
    );
    assert!(
        write("file = \"x\"\nguarantee = \"exactly-once\"")
            .contains("a file cannot take back what was appended")
    );
    assert!(write("file = \"-\"\nguarantee = \"at-least-once\"").contains("standard output is not durable"));
    assert!(
        write("topic = \"x\"\nname = \"y\"").contains("a sink on Kafka is named by its cluster and topic")
    );
    let lossy = write("topic = \"x\"\nguarantee = \"none\"\non_error = \"skip\"");
    assert!(lossy.ends_with("guarantee \"none\" drops and counts what cannot be written"), "{lossy}");
}

#[test]
fn a_topic_is_chosen_once() {
    let error = wrong("[[operator]]", "topic = '.x'");
    assert_eq!(
        error,
        "[[operator]] 1: topic is chosen for each record, and no sink follows it: leave topic out of a [[sink]]"
    );
    let error = replaced("\ntopic = \"orders-large\"", "");
    assert!(
        error.ends_with(
            "[[sink]] 1: topic is missing: name one, or let an [[operator]] choose it with topic = '...' (jq)"
        ),
        "{error}"
    );
    let both = PIPELINE
        .replace("\ntopic = \"orders-large\"", "")
        .replace("[[operator]]", "[[operator]]\ntopic = '.x'");
    parse(&both).unwrap().plan().unwrap();
}

#[test]
fn an_operator_is_a_legal_program() {
    let error = replaced("select(.amount > 100) | {id, amount}", "select(.amount >");
    assert!(
        error.starts_with(
            "line 15: [[operator]] 1: jq = \"select(.amount >\": expected closing parenthesis before the end"
        ),
        "{error}"
    );
    assert!(wrong("[[operator]]", "key = 'now'").contains("now is not available: it reads the clock"));
    assert!(
        replaced("jq = 'select(.amount > 100) | {id, amount}'", "")
            .contains("does nothing: write at least one of jq, key")
    );
}

#[test]
fn recovery_names_known_strategies_once() {
    assert!(with("recovery=[\"resume\"]").is_ok());
    assert_eq!(
        with("recovery=[\"retry\"]").err().unwrap(),
        "--set recovery: the top of the file: recovery: there is no strategy \"retry\"; there are resume, rewind, rewrite, replay, \
         set-aside, abandon"
    );
    assert!(with("recovery=[\"resume\", \"resume\"]").err().unwrap().contains("names \"resume\" twice"));
    assert!(wrong("[[sink]]", "recovery = [\"abandon\"]").contains("recovery"), "a list is a job's");
    assert!(with("recovery=[]").err().unwrap().contains("recovery is empty"));
}

#[test]
fn deciders_and_assignments_that_are_not_built_are_refused() {
    assert!(with("decider=transaction").is_ok());
    let error = with("decider=offsets").err().unwrap();
    assert!(error.contains("decider = \"offsets\" is not one of \"checkpoint\", \"transaction\""), "{error}");
    assert!(with("assignment=static").err().unwrap().contains("is not one of \"all\""));
}

/// What needs checkpoints gets them; from Kafka to one Kafka cluster, transactions are enough.
#[test]
fn the_decider_follows_from_what_a_file_has() {
    let bare = PIPELINE.replace("[checkpoint]\nstore = \"memory://\"\n", "");
    let decider = |text: &str| parse(text).unwrap().plan().map(|plan| plan.decider().name());
    assert_eq!(decider(&bare).unwrap(), "transaction");
    assert_eq!(decider(PIPELINE).unwrap(), "checkpoint", "a store is for checkpoints");
    for line in ["recovery = [\"resume\"]", "naming = \"per-epoch\""] {
        let text = bare.replace("job = \"orders\"\n", &format!("job = \"orders\"\n{line}\n"));
        let error = decider(&text).err().unwrap().to_string();
        assert!(error.contains("needs a checkpoint store"), "{line}: {error}");
    }
    for (from, to) in [
        ("topics = [\"orders\"]", "topics = [\"orders\"]\n[[source]]\nfile = \"/tmp/in.ndjson\""),
        ("topic = \"orders-large\"", "topic = \"orders-large\"\njournal = true"),
        ("topic = \"orders-large\"", "topic = \"orders-large\"\nguarantee = \"at-least-once\""),
    ] {
        let text = bare.replace(from, to);
        assert_ne!(text, bare);
        let error = decider(&text).err().unwrap().to_string();
        assert!(error.contains("needs a checkpoint store"), "{to}: {error}");
    }
}

#[test]
fn a_store_is_a_url() {
    let error = with("checkpoint.store=/var/lib/hapax").err().unwrap();
    assert!(
        error.ends_with("store = \"/var/lib/hapax\" is not a URL; write \"file:///var/lib/hapax\""),
        "{error}"
    );
}

#[test]
fn a_store_that_can_never_be_one_is_an_error_of_its_line() {
    let error = replaced("memory://", "file://relative");
    assert!(
        error.starts_with("line 5: [checkpoint]: store = \"file://relative\" has no absolute path"),
        "{error}"
    );
    assert!(with("checkpoint.store=s3://bucket").err().unwrap().contains("is no kind of store"));
}

#[test]
fn topics_have_names_that_kafka_allows() {
    let error = replaced("topics = [\"orders\"]", "topics = [\"a/b\"]");
    assert!(
        error.starts_with("line 12: [[source]] 1: topics: \"a/b\" is not a topic's name: use 1 to 249"),
        "{error}"
    );
    let error = replaced("topic = \"orders-large\"", "topic = \"\"");
    assert!(error.starts_with("line 19: [[sink]] 1: topic: \"\" is not a topic's name"), "{error}");
}

#[test]
fn a_topic_is_not_read_without_an_end_and_written() {
    let looped = PIPELINE.replace("orders-large", "orders");
    let error = parse(&looped).unwrap().plan().err().unwrap().to_string();
    assert!(
        error.starts_with(
            "E0202: job orders: topic orders of cluster main is read without an end and written"
        ),
        "{error}"
    );
    let other_name = looped
        .replace("[cluster.main]", "[cluster.same]\nbrokers = \"kafka-3:9092, kafka-2:9092\"\n[cluster.main]")
        .replace("[[sink]]\ncluster = \"main\"", "[[sink]]\ncluster = \"same\"");
    assert!(parse(&other_name).unwrap().plan().is_err(), "one cluster under two names");
    parse(&other_name.replace("kafka-2:9092\"\n[cl", "kafka-4:9092\"\n[cl")).unwrap().plan().unwrap();
    parse(&looped.replace("topics =", "end = \"latest\"\ntopics =")).unwrap().plan().unwrap();
}

#[test]
fn an_end_before_the_start_is_refused() {
    let text =
        PIPELINE.replace("topics =", "start = 2026-01-02T00:00:00Z\nend = 2026-01-01T00:00:00Z\ntopics =");
    assert!(
        parse(&text)
            .err()
            .unwrap()
            .ends_with("[[source]] 1: end is before start, so there is nothing to read")
    );
}

#[test]
fn numbers_that_no_machine_could_bear_are_out_of_range() {
    assert!(with("run.shards=10000").is_ok());
    assert!(
        with("run.shards=1000000000")
            .err()
            .unwrap()
            .ends_with("shards = 1000000000 is out of range: it is 1 to 10000")
    );
    let source = "[[source]]\ncluster = \"main\"\ntopics = [\"orders\"]";
    let error = replaced(source, "[[source]]\ngenerator = { partitions = 100000000 }");
    assert!(error.ends_with("partitions = 100000000 is out of range: it is 1 to 10000"), "{error}");
}

#[test]
fn depth_is_bounded_before_it_is_walked() {
    let path = vec!["a"; 100_000].join(".");
    let error = with(&format!("{path}=1")).err().unwrap();
    assert!(error.ends_with("the path has 100000 levels, and may have 64") && error.len() < 500, "{error}");
    let nested = |open: &str, close: &str| {
        let program = format!("{}1{}", open.repeat(10_000), close.repeat(10_000));
        with(&format!("operator.0.jq='''{program}'''")).err().unwrap()
    };
    for error in [nested("(", ")"), nested("[", "]"), nested("{a:", "}")] {
        assert!(error.contains("the program is nested too deeply") && error.len() < 600, "{error}");
    }
    let long = with(&format!("operator.0.jq='''{}.'''", ".|".repeat(100_000))).err().unwrap();
    assert!(long.ends_with("the program has 200001 bytes, and may have 65536"), "{long}");
}

#[test]
fn sections_have_their_shape() {
    assert!(
        parse("job = \"a\"\nsource = 1")
            .err()
            .unwrap()
            .contains("source must be written [[source]], not as a whole number")
    );
    assert!(parse("job = \"a\"\n[source]\nfile = \"x\"").err().unwrap().contains("not as a table"));
    assert!(
        parse("job = \"a\"\ncheckpoint = 1")
            .err()
            .unwrap()
            .contains("checkpoint must be a table: write [checkpoint]")
    );
    assert!(parse("job = \"a\"\nrun = []").err().unwrap().contains("run must be a table"));
}

#[test]
fn rules_between_sections_are_the_library_s() {
    let refused = |text: &str| parse(text).unwrap().plan().err().unwrap().to_string();
    let stdin = PIPELINE.replace("cluster = \"main\"\ntopics = [\"orders\"]", "file = \"-\"");
    assert!(refused(&stdin).contains("cannot be read again after a crash"));
    let storeless = PIPELINE.replace("store = \"memory://\"", "");
    let storeless = storeless.replace("job = \"orders\"", "job = \"orders\"\ndecider = \"checkpoint\"");
    assert!(refused(&storeless).contains("needs a checkpoint store"));
    let hasty = with("transaction_timeout=2s").unwrap().plan().err().unwrap().to_string();
    assert!(
        hasty.starts_with("E0202: job orders: transaction_timeout 2s must be at least 4 times"),
        "{hasty}"
    );
}

#[test]
fn the_job_record_keeps_the_text_without_the_environment() {
    let text = super::record_text("job = \"${NAME}\"", &["a=1".into(), "b=2".into()]);
    assert_eq!(text, "job = \"${NAME}\"\n# --set a=1\n# --set b=2\n");
}

fn embedded(brokers: &str, store: &str) -> Result<Pipeline, ConfigError> {
    let text = format!(
        "job = \"a\"\n{store}\n[cluster.main]\nbrokers = {brokers}\n[cluster.other]\nbrokers = \"k:1\"\n\
         [[source]]\ncluster = \"main\"\ntopics = [\"x\", \"y\"]\n[[source]]\ncluster = \"other\"\ntopics = [\"z\"]\n\
         [[sink]]\ncluster = \"main\"\ntopic = \"out\"\n"
    );
    pipeline(&text, &[], &|_| None)
}

#[test]
fn an_embedded_cluster_keeps_its_data_beside_the_store_and_has_the_topics_that_are_named() {
    let store = "[checkpoint]\nstore = \"file:///var/lib/a/\"";
    let found = embedded("\"embedded\"", store).unwrap().embedded;
    assert_eq!(
        found,
        [Embedded {
            cluster: "main".into(),
            data: Some("/var/lib/a.broker/main".into()),
            topics: vec!["x".into(), "y".into(), "out".into()],
        }]
    );
    for store in ["", "[checkpoint]\nstore = \"memory://\""] {
        assert_eq!(embedded("[\"embedded\"]", store).unwrap().embedded[0].data, None, "{store}");
        assert_eq!(embedded("\"embedded-memory\"", store).unwrap().embedded[0].data, None, "{store}");
    }
    embedded("\"embedded\"", store).unwrap().job.plan().unwrap();
}

#[test]
fn a_store_that_outlives_its_broker_is_a_contradiction() {
    let error = embedded("\"embedded-memory\"", "[checkpoint]\nstore = \"file:///var/lib/a\"").err().unwrap();
    assert_eq!(error.code, Code::Contradiction);
    assert!(
        error.to_string().starts_with("line 5: [cluster.main]: brokers = \"embedded-memory\""),
        "{error}"
    );
    let error = embedded("[\"embedded\", \"k:1\"]", "").err().unwrap();
    assert!(error.to_string().contains("stands alone"), "{error}");
}
