//! The pipeline file: TOML, `--set` and the environment into a [`hapax::Job`].
//!
//! Owns the names of all settings and the rules that hold inside one section. Rules between sections are the
//! library's ([`hapax::Job::plan`]), except those that only the file can know: which keys were written.
//!
//! Invariants: nothing that was written is passed over (unknown keys are errors); every error names the place; the
//! text that goes into the job record is the file's as it was written, before variables were expanded, so that
//! secrets from the environment are not stored.
//!
//! ```text
//! text -- document: parse, set, expand --> tables -- section: known keys, types --> source, operator, sink, job
//! ```

mod document;
mod embedded;
mod operator;
mod pipeline;
mod section;
mod sink;
mod source;
mod store;
#[cfg(test)]
mod tests;
mod value;

pub(crate) use embedded::Embedded;

use crate::excerpt;
use document::Place;
use hapax::{Code, Host, Job, JobError};
use std::{fmt, path::Path};

/// What a pipeline file says.
pub(crate) struct Pipeline {
    /// The job. A cluster that is embedded has an address that leads nowhere, until its broker is there.
    pub(crate) job: Job,
    /// Clusters that live inside the process.
    pub(crate) embedded: Vec<Embedded>,
}

/// What is wrong with a pipeline file, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConfigError {
    place: Option<Place>,
    code: Code,
    message: String,
}

impl ConfigError {
    fn at(place: &Place, message: String) -> Self {
        Self::new(Some(place.clone()), message)
    }

    fn new(place: Option<Place>, message: String) -> Self {
        Self { place, code: Code::Pipeline, message }
    }

    /// The same, as a contradiction between two settings.
    fn contradiction(self) -> Self {
        Self { code: Code::Contradiction, ..self }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Some(place) => write!(f, "{place}: {}", self.message),
            None => f.write_str(&self.message),
        }
    }
}

/// Reads the pipeline file at `path`, with the `--set` arguments on top of it.
///
/// # Errors
/// [`JobError::Configuration`]: the file cannot be read, or is not a pipeline.
pub(crate) fn load(host: &Host, path: &Path, set: &[String]) -> Result<Pipeline, JobError> {
    let wrong = |code: Code, what: String| JobError::Configuration {
        code,
        message: format!("pipeline file {}: {what}", path.display()),
    };
    let text = host
        .files()
        .read_to_string(path)
        .map_err(|error| wrong(Code::Pipeline, format!("cannot be read: {error}")))?;
    let variable = |name: &str| match name.strip_prefix(document::FILE) {
        Some(path) => {
            let text = host.files().read_to_string(Path::new(path)).ok()?;
            Some(text.trim_end_matches(['\r', '\n']).to_owned())
        }
        None => std::env::var(name).ok(),
    };
    pipeline(&text, set, &variable).map_err(|error| wrong(error.code, excerpt::message(&error.to_string())))
}

/// A pipeline from the text of its file.
pub(crate) fn pipeline(
    text: &str,
    set: &[String],
    variable: &impl Fn(&str) -> Option<String>,
) -> Result<Pipeline, ConfigError> {
    let mut table = document::parse(text)?;
    for argument in set {
        document::set(&mut table, argument)?;
    }
    document::expand(&mut table, variable)?;
    pipeline::pipeline(&table, &record_text(text, set))
}

/// What the job record keeps: the file as it was written, and what was set on top of it.
fn record_text(text: &str, set: &[String]) -> String {
    let mut record = text.to_owned();
    for argument in set {
        if !record.is_empty() && !record.ends_with('\n') {
            record.push('\n');
        }
        record.push_str(&format!("# --set {}\n", argument.replace('\n', " ")));
    }
    record
}
