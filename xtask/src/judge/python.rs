//! The judge's Python: a virtual environment in the cache with the `confluent-kafka` wheel, and aiokafka, a client of
//! its own that tests of our broker run.

use std::env;
use std::io;
use std::path::PathBuf;
use std::process::Command;

use crate::cache;
use crate::process;

const REQUIREMENTS: &str = include_str!("../../judge/requirements.txt");

/// The environment variable that names a Python which has the judge's packages.
pub const VARIABLE: &str = "HAPAX_JUDGE_PYTHON";

/// The judge's Python: `$HAPAX_JUDGE_PYTHON`, else that of the environment in the cache, made if it is missing.
///
/// # Errors
/// `python3` has no `venv`, or the packages could not be fetched.
pub fn python() -> io::Result<PathBuf> {
    if let Some(named) = env::var_os(VARIABLE).filter(|name| !name.is_empty()) {
        return Ok(PathBuf::from(named));
    }
    let name = format!("judge/{}", cache::fingerprint(REQUIREMENTS));
    let environment = cache::entry(&name, |directory| {
        // A virtual environment knows its own path in its scripts only; the interpreter finds its packages
        // from where it stands, so the rename into place does not hurt it.
        process::run(Command::new("python3").args(["-m", "venv"]).arg(directory.join("venv")))?;
        let requirements = directory.join("requirements.txt");
        std::fs::write(&requirements, REQUIREMENTS)?;
        process::run(
            Command::new(directory.join("venv/bin/python"))
                .args(["-m", "pip", "install", "--quiet", "--only-binary", ":all:", "--requirement"])
                .arg(&requirements),
        )
        .map(drop)
    })?;
    Ok(environment.join("venv/bin/python"))
}
