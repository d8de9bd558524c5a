//! `[[operator]]`: jq programs.

use super::{ConfigError, section::Section};
use hapax::{
    Job,
    operator::{Jq, JqSettings, OnError},
};

/// Adds the operator, the `number`th of the file, to the job.
pub(super) fn add(job: Job, section: &Section<'_>, number: usize) -> Result<Job, ConfigError> {
    let programs = ["jq", "key", "topic", "partition", "headers"];
    if !programs.iter().any(|key| section.has(key)) {
        return Err(section.error(format!("does nothing: write at least one of {}", programs.join(", "))));
    }
    let on_error = [("stop", OnError::Stop), ("skip", OnError::Skip)];
    let settings = JqSettings {
        name: section.owned("name")?.unwrap_or_else(|| number.to_string()),
        filter: section.owned("jq")?,
        key: section.owned("key")?,
        topic: section.owned("topic")?,
        partition: section.owned("partition")?,
        headers: section.owned("headers")?,
        on_error: section.choice("on_error", &on_error)?.unwrap_or_default(),
    };
    let factory = Jq::factory(&settings).map_err(|error| section.error_at(error.field, &error))?;
    Ok(job.operator(factory))
}
