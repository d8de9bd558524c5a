//! Does the pipeline still fit what the job is? Asked at a start, before anything is touched, in the same words under
//! both deciders.
//!
//! Owns the refusals. What was added to the pipeline is taken in; what was taken out must be said, and another number of
//! shards is a command of its own.

use crate::{
    error::{Code, JobError},
    job::Plan,
};
use hapax_commit::{Name, Shape, SplitId};
use std::collections::BTreeSet;

/// The number of shards stands with the job; the file alone does not change it.
pub(super) fn check_shards(plan: &Plan, shape: &Shape) -> Result<(), JobError> {
    let known = shape.layout.shards.len();
    match plan.settings.shards {
        Some(wanted) if wanted as usize != known => Err(changed(
            &plan.name,
            &format!(
                "shards = {wanted}, and the job has {known}; stop it and say: hapax job shards FILE {wanted}; or put \
                 shards = {known}"
            ),
        )),
        _ => Ok(()),
    }
}

/// A split that nobody reads any more is dropped only when that was said: a name that is mistyped would lose what comes
/// there.
pub(super) fn check_splits(plan: &Plan, shape: &Shape, drop: &[String]) -> Result<(), JobError> {
    let missing = unread_splits(plan, shape);
    let names: BTreeSet<&str> = missing
        .iter()
        .filter(|split| !drop.iter().any(|name| names_split(name, split)))
        .map(|split| name_of(plan, split))
        .collect();
    if !names.is_empty() {
        let names: Vec<&str> = names.into_iter().collect();
        let why = format!(
            "the job reads {} and the pipeline does not any more; put it back, or say that its positions may be \
             forgotten: hapax run FILE {}",
            names.join(", "),
            names.iter().map(|name| format!("--drop {name}")).collect::<Vec<_>>().join(" ")
        );
        return Err(changed(&plan.name, &why));
    }
    let is_read = |name: &&String| {
        let is_known = shape.splits().any(|split| names_split(name, split));
        is_known && !missing.iter().any(|split| names_split(name, split))
    };
    match drop.iter().find(is_read) {
        Some(name) => Err(changed(
            &plan.name,
            &format!("--drop {name}: the pipeline still reads it; take it out of the file first"),
        )),
        None => Ok(()),
    }
}

/// Splits of the job that no source has.
fn unread_splits(plan: &Plan, shape: &Shape) -> BTreeSet<SplitId> {
    let is_read = |split: &&SplitId| plan.sources.iter().any(|source| source.has(split));
    shape.splits().filter(|split| !is_read(split)).cloned().collect()
}

/// Splits that came, and those that went.
pub(super) fn moved(from: &Shape, to: &Shape) -> (Vec<String>, Vec<String>) {
    let missing = |from: &Shape, other: &Shape| -> Vec<String> {
        let gone = from.genesis.keys().filter(|split| !other.genesis.contains_key(*split));
        gone.map(|split| split.0.clone()).collect()
    };
    (missing(to, from), missing(from, to))
}

/// The pipeline is not that of the job.
pub(super) fn changed(job: &Name, why: &str) -> JobError {
    JobError::Configuration { code: Code::JobChanged, message: format!("job {job}: {why}") }
}

/// What a person calls a split that is not read any more: its source, where that is gone as a whole.
fn name_of<'a>(plan: &Plan, split: &'a SplitId) -> &'a str {
    let source = split.0.split_once('/').map_or(split.0.as_str(), |(source, _)| source);
    let is_there = plan.sources.iter().any(|known| known.name() == source);
    if is_there { place_of(split) } else { source }
}

/// Does a name on the command line mean this split? It may be the split's, its source's, its topic's or its file's.
fn names_split(name: &str, split: &SplitId) -> bool {
    let is_below =
        |text: &str| text == name || text.strip_prefix(name).is_some_and(|rest| rest.starts_with('/'));
    let inside = split.0.split_once('/').map(|(_, inside)| inside);
    is_below(&split.0) || inside.is_some_and(is_below)
}

/// What a person calls a split: its topic or file, without source and partition.
fn place_of(split: &SplitId) -> &str {
    let inside = split.0.split_once('/').map_or(split.0.as_str(), |(_, inside)| inside);
    match inside.rsplit_once('/') {
        Some((topic, partition)) if partition.bytes().all(|byte| byte.is_ascii_digit()) => topic,
        _ => inside,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_means_the_source_the_topic_or_the_file_and_nothing_that_only_begins_so() {
        let split = SplitId("main/orders-old/3".into());
        for name in ["main", "orders-old", "main/orders-old", "main/orders-old/3", "orders-old/3"] {
            assert!(names_split(name, &split), "{name}");
        }
        for name in ["orders", "old", "main/orders", "3", ""] {
            assert!(!names_split(name, &split), "{name}");
        }
        assert!(names_split("/var/in.ndjson", &SplitId("lines//var/in.ndjson".into())));
    }

    #[test]
    fn a_place_is_what_can_be_dropped() {
        for (split, place) in
            [("main/orders-old/3", "orders-old"), ("lines//var/in.ndjson", "/var/in.ndjson"), ("gen/0", "0")]
        {
            let split = SplitId(split.into());
            assert_eq!(place_of(&split), place);
            assert!(names_split(place, &split));
        }
    }
}
