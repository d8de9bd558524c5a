//! `cargo xtask soak --matrix`: the whole matrix of the commit phase on the broker of this repository, and its core on
//! Apache Kafka.
//!
//! Runs the one test of the binary that plays all cells, of which an ordinary test run plays a share; prints which cells
//! failed, and which are none and why. The last line is JSON; exit code 0 only if there were cells, every one is accounted
//! for, and each that is one passed.

use std::path::Path;
use std::process::Stdio;
use std::{env, fs, io};

use serde_json::Value;
use xtask::process::Supervised;

use super::test::cargo;
use crate::Failure;
use crate::need::{self, Need};

/// The test that plays them and leaves a report.
const AT_LENGTH: &str = "commit_phase::at_length";

/// Plays the cells whose names contain `only`.
pub(crate) fn run(only: &str) -> Result<(), Failure> {
    need::provide(&[Need::Java, Need::Maven, Need::Python, Need::Compiler])?;
    let report = env::temp_dir().join(format!("hapax-matrix-{}.txt", std::process::id()));
    forget(&report)?;
    let passed = play(only, &report)?;
    let text = fs::read_to_string(&report).map_err(|error| {
        Failure::Failed(format!("{AT_LENGTH} was not played to its end, it left no report: {error}"))
    })?;
    forget(&report)?;
    print!("\n{text}");
    judge(&text, only, passed)
}

/// What an earlier process of this number left is not this one's.
fn forget(report: &Path) -> io::Result<()> {
    match fs::remove_file(report) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// The whole workspace is named, as by the test command, so that nothing is built anew.
fn play(only: &str, report: &Path) -> Result<bool, Failure> {
    let mut command = cargo(&["test", "--workspace", "--test", "it", "--"]);
    command.args(["--ignored", "--exact", "--nocapture", AT_LENGTH]);
    command.env("HAPAX_MATRIX_REPORT", report).env("HAPAX_MATRIX_ONLY", only).stdin(Stdio::null());
    Ok(Supervised::spawn_group(&mut command)?.wait()?.success())
}

/// A report and the end of the test that left it, which must agree.
fn judge(report: &str, only: &str, passed: bool) -> Result<(), Failure> {
    let line = report.lines().last().unwrap_or_default();
    let counts: Value = serde_json::from_str(line).map_err(|error| {
        Failure::Failed(format!("the report ends with {line:?}, which is no JSON: {error}"))
    })?;
    let count = |name: &str| {
        counts[name].as_u64().ok_or_else(|| Failure::Failed(format!("the report has no {name}: {line}")))
    };
    let (cells, failed) = (count("cells")?, count("failed")?);
    if cells == 0 {
        let example = "rewrite K2 timed out mixed lanes V2";
        return Err(Failure::Usage(format!("no cell's name contains {only:?}; one is {example:?}")));
    }
    let counted = count("passed")? + failed + count("not_applicable")?;
    match (counted == cells, failed, passed) {
        (true, 0, true) => Ok(()),
        (true, 1.., _) => Err(Failure::Failed(format!("{failed} cells of the commit phase failed"))),
        (_, _, _) => Err(Failure::Failed(format!(
            "the report does not account for every cell, or {AT_LENGTH} failed although every cell passed: {line}"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL_PASSED: &str = r#"{"cells":5,"passed":3,"failed":0,"not_applicable":2}"#;

    #[test]
    fn a_matrix_passes_only_if_its_report_and_its_test_say_so() {
        assert!(judge(&format!("text\n{ALL_PASSED}\n"), "", true).is_ok());
        assert!(judge(ALL_PASSED, "", false).is_err());
        for line in [
            "",
            "text",
            r#"{"cells":5}"#,
            r#"{"cells":5,"passed":2,"failed":1,"not_applicable":2}"#,
            r#"{"cells":6,"passed":3,"failed":0,"not_applicable":2}"#,
        ] {
            assert!(judge(line, "", true).is_err(), "{line}");
        }
    }

    #[test]
    fn a_filter_that_no_cell_fits_is_wrong_usage() {
        let none = r#"{"cells":0,"passed":0,"failed":0,"not_applicable":0}"#;
        assert!(
            matches!(judge(none, "nowhere", false), Err(Failure::Usage(text)) if text.contains("nowhere"))
        );
    }
}
