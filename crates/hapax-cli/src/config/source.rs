//! `[[source]]`: Kafka topics, lines of files, a generator.

use super::{
    ConfigError,
    document::{Item, Table, Value},
    pipeline::cluster_of,
    section::{Kind, Section},
    value,
};
use crate::topic;
use hapax::{
    Job, Name,
    source::{BadLine, End, GeneratorSource, KafkaSource, LineFormat, LinesSource, Start, Template},
};
use hapax_kafka::Isolation;
use std::{collections::BTreeMap, path::PathBuf};

/// Splits of a generator at most: each has a position in every checkpoint.
const MOST_SPLITS: u32 = 10_000;

const OF_KAFKA: [&str; 5] = ["cluster", "topics", "start", "end", "isolation"];
const OF_LINES: [&str; 5] = ["file", "files", "format", "follow", "on_error"];

/// Adds the source to the job.
pub(super) fn add<'a>(job: Job, section: &Section<'a>, clusters: &[&'a str]) -> Result<Job, ConfigError> {
    if section.has("generator") {
        section.none_of(&OF_KAFKA, "the source is a generator")?;
        section.none_of(&OF_LINES, "the source is a generator")?;
        return Ok(job.source(generator(section)?));
    }
    if section.has("file") || section.has("files") {
        section.none_of(&OF_KAFKA, "the source reads files")?;
        return Ok(job.source(lines(section)?));
    }
    if !section.has("topics") && !section.has("cluster") {
        return Err(section.error("reads nothing: write topics = [...], file = \"...\" or generator = {...}"));
    }
    section.none_of(&OF_LINES, "the source reads topics")?;
    Ok(job.source(kafka(section, clusters)?))
}

/// The source's name: prefix of its splits in checkpoints, so it must stay the same.
fn name(section: &Section<'_>, default: &str) -> Result<String, ConfigError> {
    let name = section.text("name")?.unwrap_or(default);
    match Name::new(name) {
        Ok(name) => Ok(name.to_string()),
        Err(error) => Err(section.error_at("name", error)),
    }
}

fn kafka<'a>(section: &Section<'a>, clusters: &[&'a str]) -> Result<KafkaSource, ConfigError> {
    let cluster = cluster_of(section, clusters)?;
    let topics = section
        .texts("topics")?
        .ok_or_else(|| section.error("topics is missing: name at least one topic"))?;
    if let Some(twice) = topics.iter().enumerate().find(|(at, topic)| topics[..*at].contains(topic)) {
        return Err(section.error_at("topics", format!("topics names {:?} twice", twice.1)));
    }
    if let Some(why) = topics.iter().find_map(|name| topic::check(name).err()) {
        return Err(section.error_at("topics", format!("topics: {why}")));
    }
    let isolation =
        [("read_committed", Isolation::ReadCommitted), ("read_uncommitted", Isolation::ReadUncommitted)];
    let cluster_name = Name::new(cluster).map_err(|error| section.error_at("cluster", error))?;
    let (start, end) = (start(section, &topics)?, end(section, &topics)?);
    if let (Start::Timestamp(from), End::Timestamp(to)) = (&start, &end)
        && to < from
    {
        return Err(section.error_at("end", "end is before start, so there is nothing to read"));
    }
    Ok(KafkaSource {
        name: name(section, cluster)?,
        start,
        end,
        isolation: section.choice("isolation", &isolation)?.unwrap_or_default(),
        ..KafkaSource::new(cluster_name, topics)
    })
}

fn start(section: &Section<'_>, topics: &[&str]) -> Result<Start, ConfigError> {
    match bound(section, "start", topics)? {
        None => Ok(Start::Earliest),
        Some(Bound::Word("earliest")) => Ok(Start::Earliest),
        Some(Bound::Word("latest")) => Ok(Start::Latest),
        Some(Bound::Word(text)) => {
            moment(section, "start", text, "\"earliest\", \"latest\"").map(Start::Timestamp)
        }
        Some(Bound::Offsets(offsets)) => Ok(Start::Offsets(offsets)),
    }
}

fn end(section: &Section<'_>, topics: &[&str]) -> Result<End, ConfigError> {
    match bound(section, "end", topics)? {
        None => Ok(End::Endless),
        Some(Bound::Word("never")) => Ok(End::Endless),
        Some(Bound::Word("latest")) => Ok(End::Latest),
        Some(Bound::Word(text)) => moment(section, "end", text, "\"never\", \"latest\"").map(End::Timestamp),
        Some(Bound::Offsets(offsets)) => Ok(End::Offsets(offsets)),
    }
}

fn moment(section: &Section<'_>, key: &str, text: &str, words: &str) -> Result<i64, ConfigError> {
    value::moment(text).map_err(|_| {
        let message = format!(
            "{key} = {text:?} is not one of {words}, a point in time like \"2026-01-01T00:00:00Z\", or offsets by \
             partition like {{ 0 = 100, 1 = 90 }}"
        );
        section.error_at(key, message)
    })
}

enum Bound<'a> {
    Word(&'a str),
    Offsets(BTreeMap<String, BTreeMap<i32, i64>>),
}

fn bound<'a>(section: &Section<'a>, key: &str, topics: &[&str]) -> Result<Option<Bound<'a>>, ConfigError> {
    let wrong = |why: &str| section.error_at(key, format!("{key}: {why}"));
    let table = match section.item(key).map(|item| &item.value) {
        None => return Ok(None),
        Some(Value::Text(text) | Value::Moment(text)) => return Ok(Some(Bound::Word(text))),
        Some(Value::Table(table)) => offsets_of(table, topics),
        Some(other) => {
            return Err(wrong(&format!("must be a word, a point in time or offsets, not {}", other.kind())));
        }
    };
    let mut offsets = BTreeMap::new();
    for (name, item) in table {
        match (&item.value, topics) {
            (Value::Table(partitions), _) if topics.contains(&name.as_str()) => {
                let parts = partitions.iter().map(|(number, item)| partition_offset(number, item));
                let parts: Option<BTreeMap<i32, i64>> = parts.collect();
                offsets.insert(name.clone(), parts.ok_or_else(|| wrong(OFFSETS))?);
            }
            (Value::Table(_), _) => return Err(wrong(&format!("there is no topic {name:?} in topics"))),
            (Value::Integer(_), [topic]) => {
                let (number, offset) = partition_offset(name, item).ok_or_else(|| wrong(OFFSETS))?;
                offsets.entry((*topic).to_owned()).or_insert_with(BTreeMap::new).insert(number, offset);
            }
            (Value::Integer(_), _) => {
                return Err(wrong("there are several topics: write offsets as { topic = { 0 = 100 } }"));
            }
            _ => return Err(wrong(OFFSETS)),
        }
    }
    Ok(Some(Bound::Offsets(offsets)))
}

/// The table of offsets, which may stand in one of that name: `{ offsets = { ... } }`.
fn offsets_of<'a>(table: &'a Table, topics: &[&str]) -> &'a Table {
    match table.get("offsets").map(|item| &item.value) {
        Some(Value::Table(inner)) if table.len() == 1 && !topics.contains(&"offsets") => inner,
        _ => table,
    }
}

const OFFSETS: &str = "offsets are whole numbers from 0 by partition, like { 0 = 100, 1 = 90 }";

fn partition_offset(number: &str, item: &Item) -> Option<(i32, i64)> {
    let partition = number.parse().ok().filter(|number: &i32| *number >= 0)?;
    match item.value {
        Value::Integer(offset) if offset >= 0 => Some((partition, offset)),
        _ => None,
    }
}

fn lines(section: &Section<'_>) -> Result<LinesSource, ConfigError> {
    if section.has("file") && section.has("files") {
        return Err(section.error_at("files", "file and files say the same; keep one of them"));
    }
    let paths = section
        .texts("files")?
        .map_or_else(|| section.required("file", "a path").map(|path| vec![path]), Ok)?;
    if let Some(twice) = paths.iter().enumerate().find(|(at, path)| paths[..*at].contains(path)) {
        return Err(section.error_at("files", format!("files names {:?} twice", twice.1)));
    }
    if paths.contains(&hapax::source::STANDARD_INPUT) && paths.len() > 1 {
        return Err(section.error_at("files", "standard input (\"-\") is read alone, in a source of its own"));
    }
    let format = [("json", LineFormat::Json), ("text", LineFormat::Text)];
    let on_error = [("stop", BadLine::Stop), ("skip", BadLine::Skip)];
    let name = name(section, "lines")?;
    Ok(LinesSource {
        format: section.choice("format", &format)?.unwrap_or_default(),
        bad_line: section.choice("on_error", &on_error)?.unwrap_or_default(),
        follow: section.boolean("follow")?.unwrap_or_default(),
        ..LinesSource::new(&name, paths.into_iter().map(PathBuf::from))
    })
}

fn generator(section: &Section<'_>) -> Result<GeneratorSource, ConfigError> {
    let item = section.item("generator").expect("the caller has found it");
    let Value::Table(table) = &item.value else {
        return Err(section.error_at("generator", "generator must be a table, like { count = 1000 }"));
    };
    let inner = Section::new(Kind::Generator, table, None, Some(&item.place))?;
    let mut generator = GeneratorSource::new(&name(section, "generator")?, inner.count("count", 0)?);
    generator.rate = inner.rate("rate")?;
    if let Some(splits) = inner.count_to("partitions", 1, MOST_SPLITS)? {
        generator.splits = splits;
    }
    if let Some(seed) = inner.count("seed", 0)? {
        generator.seed = seed;
    }
    if let Some(text) = inner.text("value")? {
        generator.value =
            Template::parse(text).map_err(|why| inner.error_at("value", format!("value: {why}")))?;
    }
    Ok(generator)
}
