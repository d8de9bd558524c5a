//! `brokers = "embedded"`: which clusters live inside the process, and what they keep.
//!
//! What a broker keeps must live as long as the checkpoint store, no shorter: a store that outlives its broker names
//! transactions that nobody knows any more.

use super::{ConfigError, pipeline::cluster_of, section::Section};
use std::path::PathBuf;

const EMBEDDED: &str = "embedded";
const IN_MEMORY: &str = "embedded-memory";

/// A cluster inside the process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Embedded {
    /// Its name in the pipeline file.
    pub(crate) cluster: String,
    /// The folder that its broker keeps its journal in; nothing is kept without one.
    pub(crate) data: Option<PathBuf>,
    /// The topics that sources and sinks name.
    pub(crate) topics: Vec<String>,
}

/// Where the brokers of a cluster are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Brokers {
    /// At these addresses.
    At(String),
    /// In this process, with a journal beside a store that outlives it.
    Embedded,
    /// In this process, without one.
    InMemory,
}

impl Brokers {
    pub(super) fn read(section: &Section<'_>) -> Result<Self, ConfigError> {
        let brokers = section.texts("brokers")?.ok_or_else(|| {
            section.error(
                "brokers is missing, and is never chosen for you: write host:port of some of its brokers, or \
                 \"embedded\" for a broker inside this process",
            )
        })?;
        match brokers.as_slice() {
            [EMBEDDED] => Ok(Self::Embedded),
            [IN_MEMORY] => Ok(Self::InMemory),
            several => match several.iter().find(|broker| [EMBEDDED, IN_MEMORY].contains(broker)) {
                Some(alone) => {
                    Err(section.error_at("brokers", format!("{alone:?} stands alone, without addresses")))
                }
                None => Ok(Self::At(several.join(","))),
            },
        }
    }

    /// The addresses; those of an embedded broker lead nowhere, and to no two clusters alike.
    pub(super) fn address(&self, cluster: &str) -> String {
        match self {
            Self::At(addresses) => addresses.clone(),
            Self::Embedded | Self::InMemory => format!("{cluster}.embedded:9092"),
        }
    }
}

/// The cluster, if it is embedded.
pub(super) fn of(
    section: &Section<'_>,
    cluster: &str,
    brokers: &Brokers,
    store: Option<&str>,
) -> Result<Option<Embedded>, ConfigError> {
    let folder = store.and_then(|store| store.strip_prefix("file://"));
    let data = match (brokers, folder) {
        (Brokers::At(_), _) => return Ok(None),
        (Brokers::Embedded, Some(store)) => {
            Some(PathBuf::from(format!("{}.broker", store.trim_end_matches('/'))).join(cluster))
        }
        (Brokers::InMemory, Some(store)) => {
            let message = format!(
                "brokers = \"embedded-memory\" keeps nothing, and the checkpoint store {store} outlives it, so a second \
                 run would look for transactions that nobody knows; write brokers = \"embedded\", or store = \"memory://\""
            );
            return Err(section.error_at("brokers", message).contradiction());
        }
        (Brokers::Embedded | Brokers::InMemory, None) => None,
    };
    Ok(Some(Embedded { cluster: cluster.to_owned(), data, topics: Vec::new() }))
}

/// Collects the topics that sources and sinks name on embedded clusters.
pub(super) fn name_topics(
    embedded: &mut [Embedded],
    sources: &[Section<'_>],
    sinks: &[Section<'_>],
    clusters: &[&str],
) -> Result<(), ConfigError> {
    let mut named = Vec::new();
    for source in sources.iter().filter(|source| source.has("topics")) {
        let cluster = cluster_of(source, clusters)?;
        named.extend(source.texts("topics")?.unwrap_or_default().into_iter().map(|topic| (cluster, topic)));
    }
    for sink in sinks.iter().filter(|sink| sink.has("topic")) {
        let cluster = cluster_of(sink, clusters)?;
        named.extend(sink.text("topic")?.map(|topic| (cluster, topic)));
    }
    for Embedded { cluster, topics, .. } in embedded {
        for (_, topic) in named.iter().filter(|(of, _)| of == cluster) {
            if !topics.iter().any(|known| known == topic) {
                topics.push((*topic).to_owned());
            }
        }
    }
    Ok(())
}
