//! What every message has in common: it begins with a stable code, names what it is about and says what to do.

use super::*;
use crate::command_line::hapax;

#[test]
fn an_unknown_flag_is_named_with_the_nearest_one() {
    let ended = hapax(&["run", "pipeline.toml", "--fersh"]);
    ended.says(2, "unexpected argument '--fersh' found");
    assert!(ended.err.contains("--fresh"), "{}", ended.err);
    hapax(&["run"]).says(2, "required arguments");
    hapax(&["run", "pipeline.toml", "--log", "loud"]).says(2, "invalid value 'loud'");
}

#[test]
fn an_unknown_key_is_named_with_the_nearest_one_wherever_it_stands() {
    let job = Job::new("message-keys", &generator(1, 1));
    let text = fs::read_to_string(&job.file).unwrap();
    for (key, wrong, parts) in [
        ("interval =", "intervall =", &["line 4", "[checkpoint]", "\"intervall\"", "\"interval\""][..]),
        ("[run]", "[runn]", &["\"runn\"", "\"run\""]),
        ("brokers =", "broker =", &["line 6", "[cluster.main]", "\"broker\"", "\"brokers\""]),
        ("count =", "cuont =", &["\"cuont\"", "\"count\""]),
        ("[run]", "acks = 1\n[run]", &["acks"]),
    ] {
        fs::write(&job.file, text.replacen(key, wrong, 1)).unwrap();
        job.run("file", &[]).says(2, "E0201", parts);
    }
    fs::write(&job.file, &text).unwrap();
    for (set, parts) in [
        ("checkpoint.intervall=1s", &["--set", "\"intervall\"", "\"interval\""][..]),
        ("sink.0.gurantee=none", &["--set", "\"gurantee\"", "\"guarantee\""]),
        ("sink.7.topic=x", &["--set", "sink.7"]),
        ("interval", &["--set", "interval"]),
    ] {
        let ended = job.run("set", &["--set", set]);
        assert_eq!(ended.code, Some(2), "{}", ended.text);
        let message = ended.text.lines().last().unwrap();
        assert!(message.starts_with("E02"), "{message}");
        parts.iter().for_each(|part| assert!(message.contains(part), "{part:?} is not in: {message}"));
    }
    assert!(!job.store.exists() && job.traces().0.is_empty(), "nothing was touched");
}

#[test]
fn a_transaction_timeout_above_the_brokers_maximum_is_refused_before_the_store_is_written() {
    let job = Job::new("message-timeout", &generator(10, 10));
    let refused = job.run("refused", &["--set", "transaction_timeout=16m"]);
    refused.says(
        2,
        "E0204",
        &[&job.name, "960000 ms", "900000 ms", "transaction.max.timeout.ms", "lower the one"],
    );
    assert!(!job.store.join(&job.name).exists() && job.traces().0.is_empty());
}

/// Log lines begin with their time, messages with their code, and standard output has the summary alone.
#[test]
fn every_line_that_tells_of_an_error_has_a_stable_code() {
    let job = Job::new("message-lines", &generator(10, 10));
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let brokers = format!("cluster.main.brokers={}", silent.local_addr().unwrap());
    let ended = job.run("silent", &["--set", &brokers, "--set", "run.start_timeout=2s"]);
    assert_eq!(ended.code, Some(3), "{}", ended.text);
    let has_code = |text: &str| {
        text.split_once('E').is_some_and(|(_, rest)| {
            let code = rest.as_bytes();
            code.len() > 4 && code[..4].iter().all(u8::is_ascii_digit)
        })
    };
    for line in ended.text.lines() {
        let is_message = line.starts_with('E') && has_code(line);
        let is_log = line.starts_with("20") && line.contains('Z');
        assert!(is_message || is_log, "neither a message nor a log line: {line}");
        if let Some((_, text)) = line.split_once(" ERROR ") {
            assert!(has_code(text), "an error without a code: {line}");
        }
    }
}
