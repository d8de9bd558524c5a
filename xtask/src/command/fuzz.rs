//! `cargo xtask fuzz`: every fuzz target for some seconds, from the seeds that are kept.
//!
//! The targets are built apart from everything else, into a folder of their own, by the stable compiler: LLVM's coverage
//! pass is asked for by flags, as cargo-fuzz does, and libFuzzer comes with its crate. AddressSanitizer would need a nightly
//! compiler, and is left out. What a run has learned stays in the target directory and is where the next one begins, beside
//! the seeds. The last line is JSON; exit code 0 only if nothing was found.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use xtask::process::{Supervised, tail};

use super::program;
use super::test::{cargo, demand};
use crate::Failure;
use crate::arguments::Arguments;
use crate::need::{self, Need};

const SECONDS: u64 = 30;

/// An input that takes longer hangs.
const TIMEOUT: &str = "-timeout=10";
const MEMORY: &str = "-rss_limit_mb=2048";

/// Coverage of edges, by counters beside the code, and what comparisons compare with.
const FLAGS: &str = "--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares -Cforce-frame-pointers=yes";

/// What libFuzzer calls inputs that it keeps because of what they did.
const FINDINGS: [&str; 4] = ["crash-", "timeout-", "oom-", "leak-"];

pub(crate) fn run(mut arguments: Arguments) -> Result<(), Failure> {
    let seconds = arguments.parsed("--seconds")?.unwrap_or(SECONDS);
    let targets = chosen(arguments.rest()?)?;
    need::provide(&[Need::Compiler, Need::CppCompiler])?;
    let folder = program::target()?.join("fuzz");
    let programs = build(&targets, &folder)?;
    let mut reports = Vec::new();
    for target in &targets {
        let report = Run { target, seconds, folder: &folder }.play(&programs.join(target))?;
        println!(
            "{target}: {} inputs, {} a second, {} findings",
            report.inputs,
            report.inputs / seconds.max(1),
            report.findings.len()
        );
        reports.push(report);
    }
    let found: Vec<&PathBuf> = reports.iter().flat_map(|report| &report.findings).collect();
    let all: Vec<Value> = reports.iter().map(Report::json).collect();
    let inputs: u64 = reports.iter().map(|report| report.inputs).sum();
    println!("{}", json!({ "seconds": seconds, "targets": all, "inputs": inputs, "findings": found.len() }));
    match found.is_empty() {
        true => Ok(()),
        false => Err(Failure::Failed(format!(
            "the fuzz targets found {}; copy each into fuzz/seeds of its target, where every run of the tests replays it",
            found.iter().map(|file| file.display().to_string()).collect::<Vec<_>>().join(", ")
        ))),
    }
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask is a folder of the workspace")
}

/// The targets that are named, or all.
fn chosen(named: Vec<String>) -> Result<Vec<String>, Failure> {
    let mut all = Vec::new();
    for entry in fs::read_dir(root().join("fuzz/fuzz_targets"))? {
        let path = entry?.path();
        all.extend(path.file_stem().map(|stem| stem.to_string_lossy().into_owned()));
    }
    all.sort();
    match named.iter().find(|name| !all.contains(name)) {
        Some(unknown) => {
            Err(Failure::Usage(format!("there is no fuzz target {unknown:?}; there are {}", all.join(", "))))
        }
        None if named.is_empty() => Ok(all),
        None => Ok(named),
    }
}

/// Builds the programs; the folder that they are in.
fn build(targets: &[String], folder: &Path) -> Result<PathBuf, Failure> {
    let host = host()?;
    // With a target named, flags are not those of build scripts and macros.
    let mut command =
        cargo(&["build", "--package", "hapax-fuzz", "--features", "libfuzzer", "--profile", "fuzz"]);
    command.args(["--target", &host]).arg("--target-dir").arg(folder);
    command.args(targets.iter().flat_map(|target| ["--bin", target]));
    command.env_remove("CARGO_ENCODED_RUSTFLAGS").env("RUSTFLAGS", FLAGS);
    demand("the build of the fuzz targets", &mut command)?;
    Ok(folder.join(host).join("fuzz"))
}

/// The platform that the compiler runs on.
fn host() -> Result<String, Failure> {
    let output = Command::new("rustc").arg("-vV").current_dir(root()).output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).ok_or_else(|| Failure::Failed("rustc does not tell its host".to_owned()))
}

/// One target's run.
struct Run<'a> {
    target: &'a str,
    seconds: u64,
    folder: &'a Path,
}

/// What came of it.
struct Report {
    target: String,
    inputs: u64,
    /// Edges of the program that some input has come to.
    edges: u64,
    findings: Vec<PathBuf>,
}

impl Report {
    fn json(&self) -> Value {
        json!({
            "target": self.target,
            "inputs": self.inputs,
            "edges": self.edges,
            "findings": self.findings.iter().map(|file| file.display().to_string()).collect::<Vec<_>>(),
        })
    }
}

impl Run<'_> {
    fn play(&self, program: &Path) -> Result<Report, Failure> {
        let corpus = self.folder.join("corpus").join(self.target);
        let found = self.folder.join("findings").join(self.target);
        fs::create_dir_all(&corpus)?;
        fs::create_dir_all(&found)?;
        let before = files(&found)?;
        let log = found.join("log");
        let mut command = Command::new(program);
        command.args([&corpus, &root().join("fuzz/seeds").join(self.target)]);
        command.arg(format!("-artifact_prefix={}/", found.display()));
        command.arg(format!("-max_total_time={}", self.seconds));
        command.args([TIMEOUT, MEMORY, "-print_final_stats=1"]);
        let words = root().join("fuzz/dictionaries").join(format!("{}.dict", self.target));
        if words.is_file() {
            command.arg(format!("-dict={}", words.display()));
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(fs::File::create(&log)?);
        let status = Supervised::spawn_group(&mut command)?.wait()?;
        let text = String::from_utf8_lossy(&fs::read(&log)?).into_owned();
        let mut findings = files(&found)?;
        findings.retain(|file| !before.contains(file) && is_finding(file));
        if !status.success() {
            eprintln!("{}: {status}\n{}", self.target, tail(&text, 40));
            if findings.is_empty() {
                // Found once before, or not by an input.
                findings.push(log);
            }
        }
        let inputs = number_behind(&text, "stat::number_of_executed_units:");
        let edges = number_behind(&text, " cov: ");
        Ok(Report { target: self.target.to_owned(), inputs, edges, findings })
    }
}

fn files(folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        files.push(entry?.path());
    }
    files.sort();
    Ok(files)
}

fn is_finding(file: &Path) -> bool {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    FINDINGS.iter().any(|kind| name.starts_with(kind))
}

/// The number behind the last of some words; 0 where they are not there.
fn number_behind(text: &str, words: &str) -> u64 {
    let behind = text.rfind(words).map_or("", |at| text[at + words.len()..].trim_start());
    let digits = behind.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(behind.len());
    behind[..digits].parse().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_last_line() {
        let log = "#2 INITED cov: 11 ft: 3\n#9 DONE   cov: 40 ft: 9\nstat::number_of_executed_units: 123456\nstat::x: 1";
        assert_eq!(number_behind(log, " cov: "), 40);
        assert_eq!(number_behind(log, "stat::number_of_executed_units:"), 123_456);
        assert_eq!(number_behind(log, "stat::none:"), 0);
    }

    #[test]
    fn only_inputs_that_did_something_are_findings() {
        assert!(is_finding(Path::new("/f/crash-0a")) && is_finding(Path::new("/f/timeout-1")));
        assert!(!is_finding(Path::new("/f/log")) && !is_finding(Path::new("/f/slow-unit-2")));
    }

    #[test]
    fn a_target_that_is_not_there_is_named() {
        assert_eq!(chosen(vec!["fetch".to_owned()]).ok(), Some(vec!["fetch".to_owned()]));
        assert!(chosen(Vec::new()).is_ok_and(|all| all.len() > 1 && all.is_sorted()));
        let Err(Failure::Usage(text)) = chosen(vec!["fetched".to_owned()]) else { panic!("it is not there") };
        assert!(text.contains("there is no fuzz target \"fetched\"; there are batch_in, "), "{text}");
    }
}
