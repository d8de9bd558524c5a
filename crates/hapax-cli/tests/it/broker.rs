//! `hapax broker` as its users meet it: an address on its first line, other people's clients, its ends.

use crate::{
    command_line::hapax,
    harness::{binary, directory},
};
use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    process::{ChildStdout, Command, Stdio},
    time::Duration,
};
use xtask::{
    judge::{Isolation, Judge, Record},
    process::Supervised,
};

const PATIENCE: Duration = Duration::from_secs(90);

/// A running `hapax broker`.
pub(crate) struct Program {
    pub(crate) process: Supervised,
    pub(crate) bootstrap: String,
    pub(crate) line: serde_json::Value,
    out: BufReader<ChildStdout>,
}

impl Program {
    pub(crate) fn start(arguments: &[&str]) -> Self {
        let mut command = Command::new(binary());
        command.arg("broker").args(arguments);
        let streams = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = Supervised::spawn(streams).unwrap();
        let mut out = BufReader::new(process.take_stdout().unwrap());
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        let line: serde_json::Value = serde_json::from_str(&line).unwrap_or_else(|error| {
            let mut log = String::new();
            process.take_stderr().unwrap().read_to_string(&mut log).unwrap();
            panic!("{line:?}: {error}: {log}")
        });
        Self { bootstrap: line["bootstrap"].as_str().unwrap().to_owned(), process, line, out }
    }

    /// What its control port says of it.
    fn state(&self) -> serde_json::Value {
        let control = self.line["control"].as_str().unwrap().strip_prefix("http://").unwrap();
        let mut port = TcpStream::connect(control).unwrap();
        write!(port, "GET /state HTTP/1.0\r\n\r\n").unwrap();
        let mut answer = String::new();
        port.read_to_string(&mut answer).unwrap();
        serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap()
    }

    /// Its exit code, and what it said: the rest of its output, its log.
    fn end(mut self) -> (Option<i32>, String, String) {
        let status = self.process.wait_for(PATIENCE).unwrap().expect("it ends");
        let (mut rest, mut log) = (String::new(), String::new());
        self.out.read_to_string(&mut rest).unwrap();
        self.process.take_stderr().unwrap().read_to_string(&mut log).unwrap();
        (status.code(), rest, log)
    }
}

fn values(bootstrap: &str, topic: &str) -> Vec<String> {
    let partitions = Judge::shared().read_all(bootstrap, topic, Isolation::ReadCommitted).unwrap();
    let mut values: Vec<String> =
        partitions.iter().flat_map(|partition| &partition.records).map(|read| read.text()).collect();
    values.sort();
    values
}

#[test]
fn its_first_line_is_its_address_and_sigterm_ends_it() {
    let mut program = Program::start(&[]);
    assert!(program.bootstrap.starts_with("127.0.0.1:"), "loopback unless told otherwise");
    assert_eq!(program.line["control"], serde_json::Value::Null);
    program.process.signal("TERM").unwrap();
    let (code, rest, log) = program.end();
    assert_eq!((code, rest.as_str()), (Some(0), ""), "{log}");
    assert!(log.contains("not for production"), "{log}");
}

#[test]
fn with_its_parent_it_ends_when_standard_input_closes_and_without_it_goes_on() {
    let mut program = Program::start(&["--with-parent"]);
    drop(program.process.take_stdin());
    assert_eq!(program.end().0, Some(0));

    let mut program = Program::start(&[]);
    drop(program.process.take_stdin());
    assert_eq!(program.process.wait_for(Duration::from_millis(300)).unwrap(), None);
    program.process.signal("INT").unwrap();
    assert_eq!(program.end().0, Some(0));
}

#[test]
fn with_a_folder_it_is_after_sigkill_what_it_was() {
    let folder = directory("broker-data").unwrap();
    let data = folder.join("data");
    let arguments = ["--data", data.to_str().unwrap()];
    let mut program = Program::start(&arguments);
    let judge = Judge::shared();
    judge.create_topic(&program.bootstrap, "kept", 2, &[]).unwrap();
    let records: Vec<Record> = (0..10).map(|n| Record::new("k", n.to_string())).collect();
    judge.produce(&program.bootstrap, "kept", &records).unwrap();
    let before = values(&program.bootstrap, "kept");
    assert_eq!(before.len(), 10);
    hapax(&["broker", "--data", data.to_str().unwrap()]).says(3, "another broker uses it");
    program.process.kill().unwrap();
    let program = Program::start(&arguments);
    assert_eq!(values(&program.bootstrap, "kept"), before);
}

/// A terabyte of zeros behind the journal's first bytes, as a machine may leave it: reading that takes long.
#[test]
fn a_signal_ends_it_while_it_reads_a_long_journal() {
    let folder = directory("broker-long").unwrap();
    let journal = std::fs::File::create(folder.join("broker.journal")).unwrap();
    (&journal).write_all(b"HAPAXBRJ").unwrap();
    journal.set_len(1 << 40).unwrap();
    let mut command = Command::new(binary());
    command.args(["broker", "--data", folder.to_str().unwrap()]).stdin(Stdio::null()).stderr(Stdio::piped());
    let mut process = Supervised::spawn(&mut command).unwrap();
    // Its first log line comes after it listens to signals.
    let mut line = String::new();
    BufReader::new(process.take_stderr().unwrap()).read_line(&mut line).unwrap();
    process.signal("TERM").unwrap();
    assert_eq!(process.wait_for(PATIENCE).unwrap().expect("it ends").code(), Some(0));
}

#[test]
fn in_front_of_a_cluster_it_hands_on_what_clients_say() {
    let cluster = Program::start(&[]);
    let proxy = Program::start(&["--proxy", &cluster.bootstrap, "--control", "127.0.0.1:0"]);
    assert_ne!(proxy.bootstrap, cluster.bootstrap);
    assert!(proxy.line["control"].as_str().unwrap().starts_with("http://127.0.0.1:"));
    Judge::shared().create_topic(&proxy.bootstrap, "through", 1, &[]).unwrap();
    Judge::shared().produce(&proxy.bootstrap, "through", &[Record::value("a")]).unwrap();
    assert_eq!(values(&cluster.bootstrap, "through"), ["a"]);
}

/// Rules of a file, before a cluster and inside of one.
#[test]
fn rules_of_a_file_act_from_the_start_and_one_that_never_does_is_named_at_the_end() {
    let folder = directory("broker-rules").unwrap();
    let file = folder.join("rules.json");
    let lost =
        r#"{"name": "produced, not told", "when": {"api": "Produce"}, "then": [{"lose_answer": "close"}]}"#;
    let idle = r#"{"name": "idle", "when": {"api": "DeleteTopics"}, "then": [{"drop": "close"}]}"#;
    let cluster = Program::start(&[]);
    let rules = ["--rules", file.to_str().unwrap()];
    let before = ["--proxy", &cluster.bootstrap];
    for (name, more) in [("inside", [].as_slice()), ("before", before.as_slice())] {
        for (list, code) in [(format!("[{lost}]"), 0), (format!("[{lost}, {idle}]"), 7)] {
            std::fs::write(&file, list).unwrap();
            let mut program = Program::start(&[&rules, more].concat());
            let topic = format!("{name}-{code}");
            Judge::shared().create_topic(&program.bootstrap, &topic, 1, &[]).unwrap();
            Judge::shared().produce(&program.bootstrap, &topic, &[Record::value("a")]).unwrap();
            program.process.signal("TERM").unwrap();
            let (ended, _, log) = program.end();
            assert_eq!(ended, Some(code), "{log}");
            assert_eq!(log.contains("E0701: a rule has never acted: idle"), code == 7, "{log}");
        }
    }
}

#[test]
fn rules_that_cannot_be_are_refused_before_anything_listens() {
    let folder = directory("broker-no-rules").unwrap();
    let file = folder.join("rules.json");
    let path = file.to_str().unwrap();
    hapax(&["broker", "--rules", path]).says(2, path);
    for (text, said) in [
        ("{", "a list of rules is wanted"),
        (r#"[{"when": {"api": "EndTransaction"}, "then": []}]"#, "EndTransaction"),
        (r#"[{"then": [{"drop": "close"}, {"drop": "close"}]}]"#, "rule 1 of --rules"),
    ] {
        std::fs::write(&file, text).unwrap();
        hapax(&["broker", "--rules", path]).says(2, said);
    }
    // What only a machine can do.
    std::fs::write(&file, r#"[{"then": ["crash"]}]"#).unwrap();
    hapax(&["broker", "--rules", path, "--proxy", "k:1"]).says(2, "rule 1 of --rules");
}

#[test]
fn a_seed_is_a_cluster_and_a_level_its_transactions() {
    let id = |seed: &str| {
        let level = ["--transaction-version", "0", "--control", "127.0.0.1:0"];
        Program::start(&[["--seed", seed].as_slice(), &level].concat()).state()["cluster_id"].clone()
    };
    assert_eq!(id("7"), id("7"));
    assert_ne!(id("7"), id("8"));
    hapax(&["broker", "--transaction-version", "3"]).says(2, "3");
}

#[test]
fn what_cannot_be_listened_on_is_named() {
    let program = Program::start(&[]);
    hapax(&["broker", "--listen", &program.bootstrap]).says(3, &program.bootstrap);
    hapax(&["broker", "--listen", "nowhere"]).says(2, "nowhere");
    hapax(&["broker", "--nodes", "0"]).says(2, "there are 1 to 1000");
    hapax(&["broker", "--proxy", "k:1", "--data", "x"]).says(2, "cannot be used with");
}
