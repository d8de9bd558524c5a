//! What jobs say that they went on without: incidents and set-aside files, read as a person would.

use super::{file::Memory, oracle::Record, workload::INCIDENTS};
use bytes::Bytes;
use hapax_host::Files;
use kafka_protocol::records;
use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

/// The code of an incident about records that were given up.
const CODE: &str = "E0409";

/// Records that incidents name, by topic.
#[derive(Default)]
pub(super) struct GivenUp(BTreeMap<String, BTreeSet<Bytes>>);

impl GivenUp {
    pub(super) fn names(&self, topic: &str, record: &Record) -> bool {
        self.0.get(topic).is_some_and(|values| values.contains(&record.value))
    }
}

/// Every record that an incident says is hidden from readers. A log keeps what was aborted, so its offsets tell which.
pub(super) fn given_up(files: &Memory, log: impl Fn(&str, i32) -> Vec<records::Record>) -> GivenUp {
    let mut all = GivenUp::default();
    for incident in lines(files, ".json").filter(|incident| incident["code"] == CODE) {
        for lane in incident["in_doubt"].as_array().into_iter().flatten() {
            let handle = &lane["handle"];
            let producer = handle["identity"]["producer_id"].as_i64();
            let epoch = handle["identity"]["producer_epoch"].as_i64();
            for part in handle["partitions"].as_array().into_iter().flatten() {
                let number = |name: &str| part[name].as_i64().expect("a handle has numbers");
                let topic = part["topic"].as_str().expect("a handle names topics");
                let range = number("first_offset")..=number("last_offset");
                let is_of = |record: &records::Record| {
                    range.contains(&record.offset)
                        && !record.control
                        && Some(record.producer_id) == producer
                        && Some(i64::from(record.producer_epoch)) == epoch
                };
                let found = log(topic, number("partition") as i32).into_iter().filter(is_of);
                let values = found.map(|record| record.value.unwrap_or_default());
                all.0.entry(topic.to_owned()).or_default().extend(values);
            }
        }
    }
    all
}

/// Is every record that was given up in a file?
///
/// # Errors
/// One is not.
pub(super) fn judge_files(files: &Memory, given_up: &GivenUp) -> Result<(), String> {
    let kept: BTreeSet<(String, String)> = lines(files, ".ndjson")
        .filter_map(|line| Some((line["topic"].as_str()?.to_owned(), line["value"].as_str()?.to_owned())))
        .collect();
    for (topic, values) in &given_up.0 {
        for value in values {
            let value = String::from_utf8_lossy(value).into_owned();
            if !kept.contains(&(topic.clone(), value.clone())) {
                return Err(format!("{value:?} of {topic} was given up, and is in no file"));
            }
        }
    }
    Ok(())
}

/// What stands in files with this ending, a value a line.
fn lines(files: &Memory, ending: &str) -> impl Iterator<Item = Value> {
    let is_wanted = |path: &Path| {
        path.starts_with(INCIDENTS)
            && path.file_name().is_some_and(|name| name.to_string_lossy().ends_with(ending))
    };
    let wanted = files.paths().into_iter().filter(|path| is_wanted(path));
    let texts: Vec<String> = wanted.map(|path| files.read_to_string(&path).expect("it is there")).collect();
    let values = texts.iter().flat_map(|text| text.lines()).map(|line| {
        // One that was cut by a death counts for nothing.
        serde_json::from_str(line).unwrap_or(Value::Null)
    });
    values.collect::<Vec<_>>().into_iter()
}
