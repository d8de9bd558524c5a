//! Topic configurations: which there are, what they default to, and which values they take (`LogConfig`).

use super::{Millis, Settings, digest::feed};
use std::collections::BTreeMap;

/// How a value is read, with the protocol's number for it (`ConfigDef.Type`, `DescribeConfigsResponse.ConfigType`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Boolean = 1,
    String = 2,
    Int = 3,
    Long = 5,
    Double = 6,
    List = 7,
}

/// A configuration that a topic may have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Definition {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    default: &'static str,
}

const fn define(name: &'static str, kind: Kind, default: &'static str) -> Definition {
    Definition { name, kind, default }
}

const MAX_MESSAGE_BYTES: &str = "max.message.bytes";
const NEVER: &str = "9223372036854775807";

/// By name, as Kafka lists them.
pub(crate) const DEFINITIONS: &[Definition] = &[
    define("cleanup.policy", Kind::List, "delete"),
    define("compression.gzip.level", Kind::Int, "-1"),
    define("compression.lz4.level", Kind::Int, "9"),
    define("compression.type", Kind::String, "producer"),
    define("compression.zstd.level", Kind::Int, "3"),
    define("delete.retention.ms", Kind::Long, "86400000"),
    define("file.delete.delay.ms", Kind::Long, "60000"),
    define("flush.messages", Kind::Long, NEVER),
    define("flush.ms", Kind::Long, NEVER),
    define("follower.replication.throttled.replicas", Kind::List, ""),
    define("index.interval.bytes", Kind::Int, "4096"),
    define("leader.replication.throttled.replicas", Kind::List, ""),
    define("local.retention.bytes", Kind::Long, "-2"),
    define("local.retention.ms", Kind::Long, "-2"),
    define("max.compaction.lag.ms", Kind::Long, NEVER),
    define(MAX_MESSAGE_BYTES, Kind::Int, "1048588"),
    define("message.timestamp.after.max.ms", Kind::Long, "3600000"),
    define("message.timestamp.before.max.ms", Kind::Long, NEVER),
    define("message.timestamp.type", Kind::String, "CreateTime"),
    define("min.cleanable.dirty.ratio", Kind::Double, "0.5"),
    define("min.compaction.lag.ms", Kind::Long, "0"),
    define("min.insync.replicas", Kind::Int, "1"),
    define("preallocate", Kind::Boolean, "false"),
    define("remote.log.copy.disable", Kind::Boolean, "false"),
    define("remote.log.delete.on.disable", Kind::Boolean, "false"),
    define("remote.storage.enable", Kind::Boolean, "false"),
    define("retention.bytes", Kind::Long, "-1"),
    define("retention.ms", Kind::Long, "604800000"),
    define("segment.bytes", Kind::Int, "1073741824"),
    define("segment.index.bytes", Kind::Int, "10485760"),
    define("segment.jitter.ms", Kind::Long, "0"),
    define("segment.ms", Kind::Long, "604800000"),
    define("unclean.leader.election.enable", Kind::Boolean, "false"),
];

/// What a topic was given, and what follows from it for every append.
#[derive(Clone, Debug)]
pub(crate) struct Configs {
    given: BTreeMap<String, String>,
    broker_max_message_bytes: i32,
    pub(crate) max_message_bytes: usize,
    pub(crate) segment_bytes: usize,
    pub(crate) log_append_time: bool,
    pub(crate) compacts: bool,
    pub(crate) deletes: bool,
    pub(crate) after_max: Millis,
    pub(crate) before_max: Millis,
}

// What it was given is all: the rest follows from that and the settings.
feed!(Configs { given } without {
    broker_max_message_bytes, max_message_bytes, segment_bytes, log_append_time, compacts, deletes, after_max, before_max
});

impl Configs {
    /// Checks what was given.
    ///
    /// # Errors
    /// Kafka's sentence on what is wrong.
    pub(crate) fn new(settings: &Settings, given: BTreeMap<String, String>) -> Result<Self, String> {
        for (name, value) in &given {
            let definition = definition(name).ok_or_else(|| format!("Unknown topic config name: {name}"))?;
            check(definition, value)?;
        }
        let mut configs = Self {
            given,
            broker_max_message_bytes: settings.max_message_bytes,
            max_message_bytes: 0,
            segment_bytes: 0,
            log_append_time: false,
            compacts: false,
            deletes: false,
            after_max: 0,
            before_max: 0,
        };
        configs.max_message_bytes = configs.number(MAX_MESSAGE_BYTES) as usize;
        configs.segment_bytes = configs.number("segment.bytes") as usize;
        configs.log_append_time = configs.value("message.timestamp.type").0 == "LogAppendTime";
        configs.after_max = configs.number("message.timestamp.after.max.ms");
        configs.before_max = configs.number("message.timestamp.before.max.ms");
        let policy = configs.value("cleanup.policy").0;
        configs.compacts = policy.split(',').any(|policy| policy.trim() == "compact");
        configs.deletes = policy.split(',').any(|policy| policy.trim() == "delete");
        Ok(configs)
    }

    /// What holds for a name, and whether the topic was given it.
    pub(crate) fn value(&self, name: &str) -> (String, bool) {
        match (self.given.get(name), name) {
            (Some(value), _) => (value.clone(), true),
            (None, MAX_MESSAGE_BYTES) => (self.broker_max_message_bytes.to_string(), false),
            (None, _) => (definition(name).map_or("", |definition| definition.default).to_owned(), false),
        }
    }

    fn number(&self, name: &str) -> i64 {
        self.value(name).0.trim().parse().unwrap_or(0)
    }
}

fn definition(name: &str) -> Option<&'static Definition> {
    DEFINITIONS.iter().find(|definition| definition.name == name)
}

fn check(definition: &Definition, value: &str) -> Result<(), String> {
    let name = definition.name;
    let trimmed = value.trim();
    let not = |what: &str| format!("Invalid value {value} for configuration {name}: {what}");
    match definition.kind {
        Kind::Boolean if !["true", "false"].contains(&trimmed.to_lowercase().as_str()) => {
            Err(not("Expected value to be either true or false"))
        }
        Kind::Int if trimmed.parse::<i32>().is_err() => Err(not("Not a number of type INT")),
        Kind::Long if trimmed.parse::<i64>().is_err() => Err(not("Not a number of type LONG")),
        Kind::Double if trimmed.parse::<f64>().is_err() => Err(not("Not a number of type DOUBLE")),
        _ => check_choice(name, trimmed).ok_or_else(|| not("not one of its values")),
    }
}

fn check_choice(name: &str, value: &str) -> Option<()> {
    let number = || value.parse::<i64>().unwrap_or(-1);
    let good = match name {
        "cleanup.policy" => value.split(',').all(|policy| ["", "compact", "delete"].contains(&policy.trim())),
        "compression.type" => ["uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"].contains(&value),
        "message.timestamp.type" => ["CreateTime", "LogAppendTime"].contains(&value),
        "message.timestamp.after.max.ms" | "message.timestamp.before.max.ms" | MAX_MESSAGE_BYTES => {
            number() >= 0
        }
        "min.insync.replicas" => number() >= 1,
        "segment.bytes" => number() >= 1_048_576,
        _ => true,
    };
    good.then_some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(name: &str, value: &str) -> Result<Configs, String> {
        Configs::new(&Settings::default(), BTreeMap::from([(name.to_owned(), value.to_owned())]))
    }

    #[test]
    fn an_unknown_name_or_a_value_that_it_does_not_take_is_refused() {
        assert!(given("no.such.config", "1").is_err());
        assert!(given("message.timestamp.type", "Never").is_err());
        assert!(given("retention.ms", "a week").is_err());
        assert!(given("cleanup.policy", "compact,delete").unwrap().compacts);
    }
}
