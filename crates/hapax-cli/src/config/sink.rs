//! `[[sink]]`: Kafka topics, lines to a file or to standard output.

use super::{ConfigError, pipeline::cluster_of, section::Section};
use crate::topic;
use hapax::{
    Compression, Guarantee, Job, ProducerSettings, SinkTopic,
    operator::OnError,
    sink::{LinesSink, Partitioning, Route},
};
use std::path::PathBuf;

const OF_KAFKA: [&str; 10] = [
    "cluster",
    "topic",
    "partition",
    "on_error",
    "compression",
    "linger",
    "batch",
    "buffer",
    "delivery_timeout",
    "journal",
];

const GUARANTEES: [(&str, Guarantee); 3] = [
    ("none", Guarantee::None),
    ("at-least-once", Guarantee::AtLeastOnce),
    ("exactly-once", Guarantee::ExactlyOnce),
];

/// Adds the sink to the job.
pub(super) fn add<'a>(job: Job, section: &Section<'a>, clusters: &[&'a str]) -> Result<Job, ConfigError> {
    if section.has("file") {
        section.none_of(&OF_KAFKA, "the sink writes lines")?;
        return Ok(job.other_sink(lines(section)?));
    }
    section.none_of(&["name"], "a sink on Kafka is named by its cluster and topic")?;
    if !section.has("topic") && !section.has("cluster") {
        return Err(section.error("writes nowhere: write topic = \"...\" or file = \"...\""));
    }
    Ok(job.sink(kafka(section, clusters)?))
}

fn lines(section: &Section<'_>) -> Result<LinesSink, ConfigError> {
    let path = section.required("file", "a path, or \"-\" for standard output")?;
    let name = section.text("name")?.unwrap_or(path);
    let guarantee = section.choice("guarantee", &GUARANTEES)?.unwrap_or(Guarantee::None);
    match (path, guarantee) {
        (_, Guarantee::ExactlyOnce) => Err(section.error_at(
            "guarantee",
            "a file cannot take back what was appended, so it can be written at least once at most; set guarantee = \
             \"at-least-once\" or \"none\"",
        )),
        ("-", Guarantee::AtLeastOnce) => Err(section.error_at(
            "guarantee",
            "standard output is not durable; set guarantee = \"none\", or write to a file",
        )),
        ("-", Guarantee::None) => Ok(LinesSink::stdout(name)),
        (path, guarantee) => Ok(LinesSink::file(name, PathBuf::from(path), guarantee == Guarantee::AtLeastOnce)),
    }
}

fn kafka<'a>(section: &Section<'a>, clusters: &[&'a str]) -> Result<SinkTopic, ConfigError> {
    let partitioning =
        [("auto", Partitioning::Auto), ("keep", Partitioning::Keep), ("key", Partitioning::Key)];
    let on_error = [("stop", OnError::Stop), ("skip", OnError::Skip)];
    let route = Route {
        topic: section.owned("topic")?,
        partitioning: section.choice("partition", &partitioning)?.unwrap_or_default(),
        on_error: section.choice("on_error", &on_error)?.unwrap_or_default(),
    };
    if let Some(why) = route.topic.as_deref().and_then(|name| topic::check(name).err()) {
        return Err(section.error_at("topic", format!("topic: {why}")));
    }
    let guarantee = section.choice("guarantee", &GUARANTEES)?.unwrap_or_default();
    if guarantee == Guarantee::None {
        section.none_of(&["on_error"], "guarantee \"none\" drops and counts what cannot be written")?;
    }
    Ok(SinkTopic {
        cluster: cluster_of(section, clusters)?.to_owned(),
        guarantee,
        route,
        producer: producer(section)?,
        journal: section.boolean("journal")?.unwrap_or_default(),
    })
}

fn producer(section: &Section<'_>) -> Result<ProducerSettings, ConfigError> {
    let codecs = Compression::ALL.map(|codec| (codec.name(), codec));
    let mut producer = ProducerSettings::default();
    if let Some(codec) = section.choice("compression", &codecs)? {
        producer.compression = codec;
    }
    if let Some(linger) = section.duration("linger")? {
        producer.linger = linger;
    }
    if let Some(batch) = section.size("batch")? {
        producer.batch = batch;
    }
    if let Some(buffer) = section.size("buffer")? {
        producer.buffer = buffer;
    }
    match section.text("delivery_timeout")? {
        Some("never") => producer.delivery_timeout = None,
        _ => {
            if let Some(timeout) = section.span("delivery_timeout")? {
                producer.delivery_timeout = Some(timeout);
            }
        }
    }
    if producer.batch > producer.buffer {
        let key = if section.has("buffer") { "buffer" } else { "batch" };
        let message =
            format!("batch ({} bytes) must fit into buffer ({} bytes)", producer.batch, producer.buffer);
        return Err(section.error_at(key, message));
    }
    Ok(producer)
}
