use super::*;
use hapax_commit::SplitId;

fn origin() -> Arc<Origin> {
    let split = SplitId("s/orders/3".into());
    Arc::new(Origin { split, topic: "orders".into(), partition: 3, partitions: Some(4) })
}

fn record(value: Option<&[u8]>) -> RecordRef<'_> {
    let key = Some(b"k1".as_slice());
    RecordRef {
        key,
        value,
        headers: Headers::default(),
        timestamp: 1_700,
        offset: 41,
        topic: None,
        partition: None,
    }
}

fn batch(values: &[Option<&str>]) -> Batch {
    let mut builder = Batch::builder(origin());
    for (offset, value) in (41..).zip(values) {
        builder.push(RecordRef { offset, ..record(value.map(str::as_bytes)) });
    }
    builder.build()
}

fn apply(settings: &JqSettings, batch: Batch) -> (Result<Batch, OperatorError>, Skipped) {
    let settings = JqSettings { name: "operator 1".into(), ..settings.clone() };
    let mut skipped = Skipped::default();
    (Jq::factory(&settings).unwrap()().apply(batch, &mut skipped), skipped)
}

fn filter(text: &str) -> JqSettings {
    JqSettings { filter: Some(text.into()), ..JqSettings::default() }
}

fn values(batch: &Batch) -> Vec<String> {
    batch.iter().map(|record| String::from_utf8(record.value.unwrap().to_vec()).unwrap()).collect()
}

/// The outputs of a program on one value.
fn outputs(text: &str, value: &str) -> Vec<String> {
    values(&apply(&filter(text), batch(&[Some(value)])).0.unwrap())
}

fn failure(settings: &JqSettings, value: &str) -> String {
    apply(settings, batch(&[Some(value)])).0.unwrap_err().to_string()
}

fn refusal(text: &str) -> String {
    Jq::factory(&filter(text)).err().expect("refused").to_string()
}

#[test]
fn a_program_filters_reshapes_and_splits() {
    let program = "select(.amount > 100) | {id, amount}";
    assert_eq!(outputs(program, r#"{"id":1,"amount":100,"x":0}"#), [""; 0]);
    assert_eq!(outputs(program, r#"{"x":0,"id":2,"amount":100.50}"#), [r#"{"id":2,"amount":100.50}"#]);
    assert_eq!(
        outputs(".items[] | {sku}", r#"{"items":[{"sku":"a"},{"sku":"b"}]}"#),
        [r#"{"sku":"a"}"#, r#"{"sku":"b"}"#]
    );
}

#[test]
fn outputs_keep_order_offset_key_and_timestamp_of_their_record() {
    let out = apply(&filter(".[]"), batch(&[Some("[1,2]"), Some("[]"), Some("[3]")])).0.unwrap();
    let places: Vec<_> = out.iter().map(|r| (r.offset, r.timestamp, r.key.unwrap().to_vec())).collect();
    assert_eq!(values(&out), ["1", "2", "3"]);
    assert_eq!(places, [41, 41, 43].map(|offset| (offset, 1_700, b"k1".to_vec())));
}

#[test]
fn numbers_that_the_program_does_not_touch_keep_their_digits() {
    let text = r#"{"big":12345678901234567890123,"exact":0.1000000000000000055,"money":1.10}"#;
    assert_eq!(outputs(".", text), [text]);
}

#[test]
fn a_program_sees_the_record_around_its_value() {
    let out = outputs("[$key, $topic, $partition, $offset, $timestamp, $headers]", "0");
    assert_eq!(out, [r#"["k1","orders",3,41,1700,[]]"#]);
}

#[test]
fn key_topic_partition_and_headers_come_from_the_output_value() {
    let settings = JqSettings {
        key: Some(".id".into()),
        topic: Some(r#""orders-" + .region"#.into()),
        partition: Some(".id % 2".into()),
        headers: Some(r#"{source: $topic, none: null}"#.into()),
        ..filter("{id: (.id + 1), region}")
    };
    let out = apply(&settings, batch(&[Some(r#"{"id":6,"region":"eu"}"#)])).0.unwrap();
    let record = out.iter().next().unwrap();
    assert_eq!(record.key, Some(b"7".as_slice()));
    assert_eq!((record.topic, record.partition), (Some("orders-eu"), Some(1)));
    assert_eq!(record.headers.count, 2);
    assert_eq!(record.headers.encoded, b"\x0csource\x0corders\x08none\x01");
}

#[test]
fn a_key_may_be_a_string_null_or_any_json() {
    let key = |program: &str| {
        let settings = JqSettings { key: Some(program.into()), ..JqSettings::default() };
        let out = apply(&settings, batch(&[Some(r#"{"a":"x","b":[1]}"#)])).0.unwrap();
        let key = out.iter().next().unwrap().key.map(<[u8]>::to_vec);
        key.map(|key| String::from_utf8(key).unwrap())
    };
    assert_eq!(key(".a").as_deref(), Some("x"));
    assert_eq!(key(".b").as_deref(), Some("[1]"));
    assert_eq!(key(".c"), None);
    assert_eq!(key("$key").as_deref(), Some("k1"));
}

#[test]
fn without_a_filter_the_value_stays_byte_for_byte() {
    let settings = JqSettings { topic: Some(".t".into()), ..JqSettings::default() };
    let text = "{ \"t\" : \"there\" }";
    let out = apply(&settings, batch(&[Some(text)])).0.unwrap();
    assert_eq!(values(&out), [text]);
    assert_eq!(out.iter().next().unwrap().topic, Some("there"));
}

#[test]
fn headers_survive_a_program_that_passes_them_on() {
    let encoded = b"\x02a\x021\x02a\x01\x02\xff\x02\xfe";
    let mut builder = Batch::builder(origin());
    builder.push(RecordRef { headers: Headers { encoded, count: 3 }, ..record(Some(b"0")) });
    let batch = builder.build();
    let settings = JqSettings { headers: Some("$headers".into()), ..filter(".") };
    let out = apply(&settings, batch.clone()).0.unwrap();
    let headers = out.iter().next().unwrap().headers;
    assert_eq!((headers.count, headers.encoded), (3, encoded.as_slice()));
    let first = apply(&filter("$headers[0] | {key, value}"), batch).0.unwrap();
    assert_eq!(values(&first), [r#"{"key":"a","value":"1"}"#]);
}

#[test]
fn tombstones_pass_through_every_program() {
    let settings = JqSettings { key: Some("\"new\"".into()), ..filter("empty") };
    let (out, skipped) = apply(&settings, batch(&[Some("1"), None]));
    let records: Vec<_> = out.as_ref().unwrap().iter().map(|r| (r.offset, r.value, r.key.unwrap())).collect();
    assert_eq!(records, [(42, None, b"k1".as_slice())]);
    assert_eq!(skipped.count, 0);
}

#[test]
fn a_value_that_is_not_json_stops_with_its_place() {
    let error = failure(&filter("."), "{oops");
    let place = "operator operator 1 on the record at orders-3 offset 41: the value is not JSON: ";
    assert!(error.starts_with(place), "{error}");
}

#[test]
fn a_failing_program_stops_with_its_place_and_reason() {
    let error = failure(&filter(".a + 1"), r#"{"a":"x"}"#);
    assert!(error.contains("orders-3 offset 41: the program fails: cannot calculate"), "{error}");
    assert!(failure(&filter("error(\"no id\")"), "{}").ends_with("the program fails: no id"));
}

#[test]
fn skipped_records_are_counted_and_leave_nothing_behind() {
    let settings =
        JqSettings { on_error: OnError::Skip, ..filter(r#".[] | if . == 0 then error("zero") else . end"#) };
    let (out, skipped) = apply(&settings, batch(&[Some("[1]"), Some("[2,0]"), Some("x"), Some("[3]")]));
    assert_eq!(values(&out.unwrap()), ["1", "3"]);
    assert_eq!(skipped.count, 2);
    assert_eq!(skipped.first.unwrap().offset, 42);
}

#[test]
fn programs_of_key_topic_partition_and_headers_yield_what_they_must() {
    let with = |change: fn(&mut JqSettings)| {
        let mut settings = filter(".");
        change(&mut settings);
        failure(&settings, "{}")
    };
    assert!(
        with(|s| s.topic = Some("1".into()))
            .ends_with("topic: the program must yield a topic's name or null, not 1")
    );
    assert!(with(|s| s.topic = Some("\"\"".into())).contains("a topic's name or null"));
    assert!(with(|s| s.partition = Some("-1".into())).contains("a whole number from 0, or null, not -1"));
    assert!(with(|s| s.partition = Some("1.5".into())).contains("not 1.5"));
    assert!(with(|s| s.headers = Some("{a: 1}".into())).contains("an object of strings and nulls"));
    assert!(with(|s| s.headers = Some("[{value: \"x\"}]".into())).contains("a list of {key, value}"));
    assert!(
        with(|s| s.key = Some("empty".into()))
            .ends_with("key: the program must yield one value, and yields none")
    );
    assert!(with(|s| s.key = Some("1, 2".into())).ends_with("must yield one value, and yields several"));
}

#[test]
fn output_that_is_not_json_is_an_error() {
    assert!(failure(&filter("1 / 0"), "0").contains("which JSON has no text for"));
    assert!(failure(&filter("\"/w==\" | @base64d"), "0").contains("not UTF-8"));
}

#[test]
fn a_program_without_end_is_caught() {
    assert!(failure(&filter("repeat(1)"), "0").contains("yields more than 100000 records"));
}

#[test]
fn what_could_differ_when_an_epoch_is_read_again_is_refused() {
    for program in [
        "now",
        "env",
        "$ENV.HOME",
        "input",
        "[inputs]",
        "localtime",
        "debug",
        "debug(.a)",
        "stderr",
        "halt",
        "1 | halt_error",
    ] {
        let error = refusal(program);
        assert!(error.contains("is not available: ") && error.contains("when it runs again"), "{error}");
        assert!(error.starts_with(&format!("jq = {program:?}: ")), "{error}");
    }
}

#[test]
fn a_program_that_does_not_compile_says_where() {
    assert_eq!(refusal("foo(1)"), r#"jq = "foo(1)": there is no filter foo/1"#);
    assert!(refusal("$value").contains("there is no variable $value; there are $key, $topic, $partition"));
    assert!(refusal("{a").contains("expected"), "{}", refusal("{a"));
    assert!(refusal(". |").contains("expected term before the end"), "{}", refusal(". |"));
    assert!(refusal("import \"a\" as a; .").contains("programs stand alone"));
    let settings = JqSettings { topic: Some("nope".into()), ..JqSettings::default() };
    assert_eq!(
        Jq::factory(&settings).err().unwrap().to_string(),
        r#"topic = "nope": there is no filter nope/0"#
    );
}

#[test]
fn the_library_filters_of_jq_are_there() {
    assert_eq!(
        outputs(r#"[test("^a"), ascii_upcase, (explode | implode), @base64, length]"#, "\"ab\""),
        [r#"[true,"AB","ab","YWI=",2]"#]
    );
    assert_eq!(outputs("to_entries | map(.key)", r#"{"b":1,"a":2}"#), [r#"["b","a"]"#]);
    assert_eq!(outputs("1700000000 | todate", "0"), [r#""2023-11-14T22:13:20Z""#]);
    assert_eq!(outputs("pow(2; 10), (10 | sqrt | floor)", "0"), ["1024.0", "3"]);
}

#[test]
fn a_program_alone_gives_values_for_an_audit() {
    let values = |text: &str, value: Option<&[u8]>| {
        let values = JqProgram::compile("--id", text).unwrap().values(&origin(), record(value)).unwrap();
        values.into_iter().map(|value| String::from_utf8(value).unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(values("[.id, $key]", Some(b"{\"id\": 7}")), [r#"[7,"k1"]"#]);
    assert_eq!(values("select(. > 1)", Some(b"1")), [""; 0]);
    assert_eq!(values(".[]", Some(b"[1, 2]")), ["1", "2"]);
    assert_eq!(values("., $key", None), ["null", r#""k1""#]);
}
