//! The command line and pipelines that need no broker: exit codes, messages, sources, operators, lines.

use crate::harness::{binary, directory};
use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};
use xtask::process::Supervised;

/// A run of the binary to its end.
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ended {
    pub(crate) fn of(output: &Output) -> Self {
        Self {
            code: output.status.code(),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// Ended with this code, and said this on standard error in a line that begins with a code.
    pub(crate) fn says(&self, code: i32, message: &str) {
        assert_eq!(self.code, Some(code), "{}", self.err);
        let has_code = |line: &&str| {
            let code = line.strip_prefix('E').and_then(|rest| rest.split_once(": ")).map(|(code, _)| code);
            code.is_some_and(|code| code.len() == 4 && code.bytes().all(|byte| byte.is_ascii_digit()))
        };
        let said = self.err.lines().filter(has_code).any(|line| line.contains(message));
        assert!(said, "{message:?} is not said in a line with a code: {}", self.err);
    }

    pub(crate) fn summary(&self) -> serde_json::Value {
        let line = self.out.lines().last().unwrap_or_else(|| panic!("no summary; {}", self.err));
        serde_json::from_str(line).unwrap()
    }
}

/// Longer than anything that ends by itself takes on a busy machine.
const LIMIT: Duration = Duration::from_secs(400);

pub(crate) fn hapax(arguments: &[&str]) -> Ended {
    let mut command = Command::new(binary());
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    let pid = child.id();
    let (ended, end) = mpsc::channel();
    let waiting = thread::spawn(move || {
        let output = child.wait_with_output().unwrap();
        let _ = ended.send(());
        output
    });
    let in_time = end.recv_timeout(LIMIT).is_ok();
    if !in_time {
        Command::new("kill").args(["-9", &pid.to_string()]).status().unwrap();
    }
    let ended = Ended::of(&waiting.join().unwrap());
    assert!(in_time, "{arguments:?} has not ended within {LIMIT:?}: {}", ended.err);
    ended
}

/// A directory with a pipeline file in it.
pub(crate) struct Bench {
    folder: PathBuf,
    pub(crate) file: PathBuf,
}

impl Bench {
    /// `PATH` in the text stands for the directory.
    pub(crate) fn new(name: &str, text: &str) -> Self {
        let folder = directory(&format!("bench-{name}")).unwrap();
        let file = folder.join("pipeline.toml");
        fs::write(&file, text.replace("PATH", folder.to_str().unwrap())).unwrap();
        Self { folder, file }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    pub(crate) fn run(&self, more: &[&str]) -> Ended {
        hapax(&[&["run", self.file.to_str().unwrap()], more].concat())
    }

    pub(crate) fn lines(&self, name: &str) -> Vec<String> {
        fs::read_to_string(self.path(name)).unwrap().lines().map(str::to_owned).collect()
    }
}

const GENERATED: &str = r#"
job = "generated"
[checkpoint]
store = "file://PATH/store"
interval = "50ms"
[[source]]
generator = { count = 5000, partitions = 3, value = '{"id":$id,"amount":$amount}' }
[[operator]]
jq = 'select(.id % 2 == 0) | {id}'
[[sink]]
file = "PATH/out.ndjson"
guarantee = "at-least-once"
"#;

#[test]
fn wrong_usage_is_exit_code_2() {
    hapax(&["run", "x.toml", "--nonsense"]).says(2, "--nonsense");
    hapax(&["rnu"]).says(2, "unrecognized subcommand");
    hapax(&["run", "x.toml", "--crash-at", "K9"]).says(2, "there is no crash point \"K9\"");
    assert_eq!(hapax(&["--help"]).code, Some(0));
    assert!(!hapax(&["run", "--help"]).out.contains("crash-at"), "a hidden argument");
}

#[test]
fn a_pipeline_file_that_is_not_there_is_named() {
    hapax(&["run", "/nowhere/pipeline.toml"]).says(2, "pipeline file /nowhere/pipeline.toml: cannot be read");
}

#[test]
fn an_unknown_key_is_exit_code_2_with_line_and_nearest_key() {
    let bench = Bench::new("unknown-key", &GENERATED.replace("interval", "intervall"));
    bench.run(&[]).says(2, "line 5: [checkpoint] has no key \"intervall\"; did you mean \"interval\"?");
}

#[test]
fn a_contradiction_is_exit_code_2_before_anything_is_touched() {
    let bench = Bench::new("contradiction", GENERATED);
    bench.run(&["--set", "transaction_timeout=100ms"]).says(2, "transaction_timeout 100ms must be at least");
    assert!(!bench.path("store").exists() && !bench.path("out.ndjson").exists());
}

#[test]
fn unreachable_brokers_are_exit_code_3_within_the_start_timeout() {
    let text = "job = \"a\"\n[checkpoint]\nstore = \"file://PATH/store\"\n[cluster.main]\nbrokers = \"127.0.0.1:1\"\n\
                [run]\nstart_timeout = \"2s\"\n[[source]]\ntopics = [\"x\"]\n[[sink]]\ntopic = \"y\"\n";
    let bench = Bench::new("unreachable", text);
    let began = Instant::now();
    bench.run(&[]).says(3, "127.0.0.1:1");
    let took = began.elapsed();
    assert!(took >= Duration::from_secs(1), "it tries again until the timeout: {took:?}");
    assert!(took < Duration::from_secs(20), "{took:?}");
}

#[test]
fn a_store_that_cannot_be_used_is_exit_code_6() {
    let text = GENERATED.replace("file://PATH/store", "file://PATH/no/such/store");
    let bench = Bench::new("no-store", &text);
    bench.run(&["--set", "run.start_timeout=1s"]).says(6, "no/such/store");
}

#[test]
fn a_bounded_job_finishes_and_a_second_run_adds_nothing() {
    let bench = Bench::new("bounded", GENERATED);
    let first = bench.run(&["--json"]);
    assert_eq!(first.code, Some(0), "{}", first.err);
    let summary = first.summary();
    assert_eq!(summary["job"], "generated");
    assert_eq!(summary["finished"], true);
    assert_eq!(summary["records_in"], 5000);
    assert_eq!(summary["records_out"], 2500);
    let mut lines = bench.lines("out.ndjson");
    let mut expected: Vec<String> = (0..5000).step_by(2).map(|id| format!("{{\"id\":{id}}}")).collect();
    lines.sort();
    expected.sort();
    assert_eq!(lines, expected);

    let second = bench.run(&["--json"]);
    assert_eq!(second.code, Some(0), "{}", second.err);
    assert_eq!(second.summary()["records_in"], 0);
    assert_eq!(bench.lines("out.ndjson").len(), 2500);

    let fresh = bench.run(&["--json", "--fresh"]);
    assert_eq!(fresh.code, Some(0), "{}", fresh.err);
    assert_eq!(bench.lines("out.ndjson").len(), 5000);
}

#[test]
fn an_endless_job_drains_and_commits_on_sigterm() {
    let text = GENERATED.replace("count = 5000, partitions = 3", "rate = 500, partitions = 3");
    let bench = Bench::new("sigterm", &text);
    let out = fs::File::create(bench.path("summary.json")).unwrap();
    let err = fs::File::create(bench.path("log")).unwrap();
    let mut command = Command::new(binary());
    command.arg("run").arg(&bench.file).arg("--json").stdin(Stdio::null()).stdout(out).stderr(err);
    let mut process = Supervised::spawn(&mut command).unwrap();
    let began = Instant::now();
    while !bench.path("out.ndjson").exists() || bench.lines("out.ndjson").len() < 100 {
        let log = fs::read_to_string(bench.path("log")).unwrap();
        assert!(process.try_wait().unwrap().is_none(), "it runs on: {log}");
        assert!(began.elapsed() < Duration::from_secs(30), "{log}");
        std::thread::sleep(Duration::from_millis(50));
    }
    process.signal("TERM").unwrap();
    let status = process.wait_for(Duration::from_secs(30)).unwrap().expect("it stops within its budget");
    let log = fs::read_to_string(bench.path("log")).unwrap();
    assert_eq!(status.code(), Some(0), "{log}");
    let summary = fs::read_to_string(bench.path("summary.json")).unwrap();
    let summary: serde_json::Value = serde_json::from_str(summary.trim()).unwrap();
    assert_eq!(summary["finished"], false);
    let written = bench.lines("out.ndjson").len() as u64;
    assert_eq!(summary["records_out"], written, "everything that was written is committed");
}

const LINES: &str = r#"
job = "lines"
[checkpoint]
store = "file://PATH/store"
[[source]]
file = "PATH/in.ndjson"
[[operator]]
jq = '.n + 1'
[[sink]]
file = "PATH/out.ndjson"
guarantee = "at-least-once"
"#;

fn with_input(name: &str, input: &str) -> Bench {
    let bench = Bench::new(name, LINES);
    fs::write(bench.path("in.ndjson"), input).unwrap();
    bench
}

#[test]
fn a_line_that_is_not_json_stops_with_its_place() {
    let bench = with_input("bad-line", "{\"n\":1}\n{oops\n{\"n\":2}\n");
    bench.run(&[]).says(4, "in.ndjson: the line at byte 8: the line is not JSON");
    let skipped = bench.run(&["--json", "--set", "source.0.on_error=skip"]);
    assert_eq!(skipped.code, Some(0), "{}", skipped.err);
    assert_eq!(skipped.summary()["skipped"], 1);
    assert_eq!(bench.lines("out.ndjson"), ["2", "3"]);
}

#[test]
fn a_program_that_fails_stops_with_the_place_of_its_line() {
    let bench = with_input("bad-program", "{\"n\":1}\n{\"n\":\"x\"}\n{\"n\":2}\n");
    bench.run(&[]).says(4, "operator 1 on the line at byte 8 of /");
    bench.run(&[]).says(4, "in.ndjson: the program fails: cannot calculate");
    let skipped = bench.run(&["--json", "--set", "operator.0.on_error=skip"]);
    assert_eq!(skipped.code, Some(0), "{}", skipped.err);
    assert_eq!(skipped.summary()["skipped"], 1);
    assert_eq!(bench.lines("out.ndjson"), ["2", "3"]);
}

#[test]
fn a_value_that_is_not_json_stops_with_the_place_of_its_line() {
    let bench = with_input("bad-value", "1\nword\n");
    let text = ["--set", "source.0.format=text", "--set", "operator.0.jq=."];
    bench.run(&text).says(4, "in.ndjson: the value is not JSON");
    let skipped = bench.run(&[&text[..], &["--json", "--set", "operator.0.on_error=skip"]].concat());
    assert_eq!(
        (skipped.code, &skipped.summary()["skipped"]),
        (Some(0), &serde_json::json!(1)),
        "{}",
        skipped.err
    );
}

#[test]
fn standard_input_flows_to_standard_output() {
    let text =
        "job = \"pipe\"\n[[source]]\nfile = \"-\"\n[[operator]]\njq = '{n: .}'\n[[sink]]\nfile = \"-\"\n";
    let bench = Bench::new("pipe", text);
    let mut child = Command::new(binary())
        .args(["run", bench.file.to_str().unwrap(), "--log", "warn"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"1\n2\n3").unwrap();
    let ended = Ended::of(&child.wait_with_output().unwrap());
    assert_eq!(
        (ended.code, ended.out.as_str()),
        (Some(0), "{\"n\":1}\n{\"n\":2}\n{\"n\":3}\n"),
        "{}",
        ended.err
    );
}

fn verify(folder: &Path, expected: &str, actual: &str, more: &[&str]) -> Ended {
    let (left, right) = (folder.join("left"), folder.join("right"));
    fs::write(&left, expected).unwrap();
    fs::write(&right, actual).unwrap();
    let sides = ["verify", "--expected", left.to_str().unwrap(), "--actual", right.to_str().unwrap()];
    hapax(&[&sides[..], more].concat())
}

#[test]
fn an_audit_of_equal_files_is_exit_code_0() {
    let folder = directory("command-line-verify-equal").unwrap();
    let ended = verify(&folder, "1\n2\n3\n", "1\n2\n3\n", &[]);
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    assert_eq!(
        ended.out.trim(),
        "3 records expected, 3 there: 0 missing, 0 duplicated, 0 unexpected, 0 reordered"
    );
}

#[test]
fn an_audit_that_finds_something_is_exit_code_7() {
    let folder = directory("command-line-verify-found").unwrap();
    for (actual, finding) in [
        ("1\n3\n", "1 missing, 0 duplicated, 0 unexpected, 0 reordered"),
        ("1\n2\n2\n3\n", "0 missing, 1 duplicated, 0 unexpected, 0 reordered"),
        ("1\n2\n3\n4\n", "0 missing, 0 duplicated, 1 unexpected, 0 reordered"),
        ("1\n3\n2\n", "0 missing, 0 duplicated, 0 unexpected, 1 reordered"),
    ] {
        let ended = verify(&folder, "1\n2\n3\n", actual, &[]);
        ended.says(7, finding);
        assert!(ended.out.contains(finding), "{}", ended.out);
    }
    assert_eq!(verify(&folder, "1\n2\n3\n", "1\n3\n2\n", &["--unordered"]).code, Some(0));
}

#[test]
fn an_audit_of_a_transformed_side_compares_ids_and_order() {
    let folder = directory("command-line-verify-ids").unwrap();
    let input = "{\"id\":1,\"amount\":50}\n{\"id\":2,\"amount\":500}\n{\"id\":3,\"amount\":300}\n";
    let output = "{\"key\":2}\n{\"key\":3}\n";
    let programs = [
        "--id",
        "select(.amount > 100) | .id",
        "--id-actual",
        ".key",
        "--order",
        ".id",
        "--order-actual",
        ".key",
    ];
    let ended = verify(&folder, input, output, &[&programs[..], &["--json"]].concat());
    assert_eq!(ended.code, Some(0), "{}{}", ended.out, ended.err);
    assert_eq!((&ended.summary()["expected"], &ended.summary()["clean"]), (&2.into(), &true.into()));
    verify(&folder, input, "{\"key\":3}\n{\"key\":2}\n", &programs).says(7, "1 reordered");
    verify(&folder, input, "{\"key\":3}\n{\"key\":7}\n", &programs)
        .says(7, "1 missing, 0 duplicated, 1 unexpected");
}

#[test]
fn an_audit_that_cannot_be_carried_out_says_why() {
    let folder = directory("command-line-verify-wrong").unwrap();
    verify(&folder, "1\n", "word\n", &["--id", "."]).says(2, "E0200: verify: the record at ");
    verify(&folder, "1\n", "word\n", &["--id", "."]).says(2, "right byte 0: --id: the value is not JSON");
    verify(&folder, "1\n", "1\n", &["--id", "now"]).says(2, "now is not available");
    hapax(&["verify", "--expected", "/nowhere", "--actual", "/nowhere"])
        .says(2, "verify /nowhere: cannot be read");
    hapax(&["verify", "--expected", "kafka://x", "--actual", "/nowhere"])
        .says(2, "is not of the form kafka://");
    hapax(&["verify", "--expected", "kafka://127.0.0.1:1/t", "--actual", "/dev/null"]).says(3, "127.0.0.1:1");
}

/// The process with the arguments, its standard output and error where `shell` sends them, and its exit code last.
fn in_shell(shell: &str, arguments: &[&str]) -> Ended {
    let script = format!("hapax() {{ \"$binary\" \"$@\"; echo \"exit $?\" >&3; }}; exec 3>&1; {shell}");
    let mut command = Command::new("timeout");
    command.args(["30", "bash", "-c", &script, "bash"]).args(arguments).env("binary", binary());
    Ended::of(&command.stdin(Stdio::null()).output().unwrap())
}

#[test]
fn an_audit_of_a_pipe_is_refused_and_never_clean() {
    let folder = directory("command-line-verify-pipe").unwrap();
    fs::write(folder.join("left"), "1\n").unwrap();
    let left = folder.join("left");
    let left = left.to_str().unwrap();
    let pipe = in_shell("hapax verify --expected \"$1\" --actual <(echo 1)", &[left]);
    assert!(
        pipe.out.contains("exit 2") && pipe.err.contains("it is a pipe and not a regular file"),
        "{}",
        pipe.err
    );
    let input = in_shell("echo 1 | hapax verify --expected /dev/stdin --actual \"$1\"", &[left]);
    assert!(input.out.contains("exit 2"), "{}{}", input.out, input.err);
    in_shell("mkfifo \"$1\"", &[folder.join("fifo").to_str().unwrap()]);
    let fifo = folder.join("fifo");
    hapax(&["verify", "--expected", left, "--actual", fifo.to_str().unwrap()]).says(2, "it is a pipe");
    hapax(&["verify", "--expected", left, "--actual", folder.to_str().unwrap()]).says(2, "it is a folder");
}

#[test]
fn a_source_that_is_no_regular_file_is_exit_code_2_and_loses_nothing() {
    let bench = Bench::new("irregular", LINES);
    in_shell("mkfifo \"$1\"", &[bench.path("in.ndjson").to_str().unwrap()]);
    bench.run(&[]).says(2, "in.ndjson is a pipe and not a regular file");
    let set = |path: &str| bench.run(&["--set", &format!("source.0.file={path}")]);
    set("/dev/zero").says(2, "/dev/zero is a device and not a regular file");
    set(bench.path("").to_str().unwrap()).says(2, "is a folder and not a regular file");
    let file = bench.file.to_str().unwrap();
    let input = in_shell("echo 1 | hapax run \"$1\" --set source.0.file=/dev/stdin", &[file]);
    assert!(
        input.out.contains("exit 2") && input.err.contains("is a pipe and not a regular file"),
        "{}",
        input.err
    );
    let sink = bench.run(&["--set", "source.0.file=/etc/passwd", "--set", "sink.0.file=/dev/null"]);
    sink.says(2, "/dev/null is a device and not a regular file, and keeps nothing");
}

#[test]
fn a_lost_reader_of_the_log_does_not_end_the_run() {
    let bench = Bench::new("lost-log", GENERATED);
    let file = bench.file.to_str().unwrap();
    for (number, target) in [">&-", "> >(true)", ">/dev/full"].into_iter().enumerate() {
        let name = format!("job=generated-{number}");
        let store = format!("checkpoint.store=file://{}", bench.path(&number.to_string()).display());
        let shell = format!("hapax run \"$1\" --log trace --set \"$2\" --set \"$3\" 2{target}");
        let ended = in_shell(&shell, &[file, &name, &store]);
        assert!(ended.out.contains("exit 0"), "{target}: {}{}", ended.out, ended.err);
    }
    let wrong = in_shell("hapax run /nowhere 2>/dev/full", &[]);
    assert!(wrong.out.contains("exit 2"), "{}", wrong.out);
}

#[test]
fn a_lost_reader_of_the_answer_leaves_the_exit_code() {
    let folder = directory("command-line-lost-answer").unwrap();
    fs::write(folder.join("left"), "1\n2\n").unwrap();
    fs::write(folder.join("right"), "1\n").unwrap();
    let [left, right] = ["left", "right"].map(|name| folder.join(name).to_str().unwrap().to_owned());
    for (shell, code, said) in [
        (
            "hapax verify --expected \"$1\" --actual \"$1\" --json >/dev/full",
            0,
            "standard output cannot be written",
        ),
        ("hapax verify --expected \"$1\" --actual \"$2\" >/dev/full", 7, "standard output cannot be written"),
        ("hapax verify --expected \"$1\" --actual \"$2\" --json > >(true)", 7, "1 missing"),
    ] {
        let ended = in_shell(shell, &[&left, &right]);
        assert!(ended.out.contains(&format!("exit {code}")), "{shell}: {}{}", ended.out, ended.err);
        assert!(ended.err.contains(said) && !ended.err.contains("E0101"), "{shell}: {}", ended.err);
    }
    let bench = Bench::new("lost-summary", GENERATED);
    let ended = in_shell("hapax run \"$1\" --json >/dev/full", &[bench.file.to_str().unwrap()]);
    assert!(
        ended.out.contains("exit 0") && ended.err.contains("standard output cannot be written"),
        "{}",
        ended.err
    );
}

#[test]
fn a_stop_is_over_within_its_budget_also_while_a_program_computes() {
    let text = GENERATED.replace("select(.id % 2 == 0) | {id}", "last(repeat(.))");
    let bench = Bench::new("stop-busy", &text);
    let err = fs::File::create(bench.path("log")).unwrap();
    let mut command = Command::new(binary());
    command.arg("run").arg(&bench.file).args(["--set", "run.stop_budget=1s"]);
    let mut process =
        Supervised::spawn(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(err)).unwrap();
    std::thread::sleep(Duration::from_secs(2));
    process.signal("TERM").unwrap();
    let status = process.wait_for(Duration::from_secs(6)).unwrap();
    let log = fs::read_to_string(bench.path("log")).unwrap();
    assert_eq!(status.expect("it ends within budget and a second").code(), Some(3), "{log}");
    assert!(log.contains("E0307: ") && log.contains("has not ended within stop_budget"), "{log}");
}

#[test]
fn too_few_open_files_are_the_machine_s_and_no_bug() {
    for number in 5..12 {
        let ended = in_shell(&format!("(ulimit -n {number}; exec \"$binary\" run /nowhere)"), &[]);
        assert!(!ended.err.contains("E0101"), "{number}: {}", ended.err);
        assert!(matches!(ended.code, Some(2 | 3)), "{number}: {}", ended.err);
    }
    let least = in_shell("(ulimit -n 6; exec \"$binary\" run /nowhere)", &[]);
    least.says(3, "E0308: no runtime can be started");
}

#[test]
fn control_characters_of_data_do_not_reach_the_terminal() {
    let bench = Bench::new("control", &LINES.replace(".n + 1", "error(.m)"));
    fs::write(bench.path("in.ndjson"), "{\"m\":\"a\\u0000b\\u001b[2J\\u009b\"}\n").unwrap();
    let ended = bench.run(&[]);
    ended.says(4, "a\\u{0}b\\u{1b}[2J");
    assert!(!ended.err.chars().any(|c| c.is_control() && c != '\n'), "{:?}", ended.err);
    let long = bench.run(&["--set", &format!("job={}", "X".repeat(100_000))]);
    long.says(2, "--set job: the top of the file: job = \"XXX");
    assert!(long.err.len() < 1_000, "{} bytes", long.err.len());
}
