//! A table of the pipeline file, read by its known keys.
//!
//! Owns the list of all keys, and what is said of an unknown one: the nearest known key, the section that it belongs
//! to, or why there is no such setting.

use super::{
    ConfigError,
    document::{Item, Place, Table, Value},
    value,
};
use std::{fmt, ops::RangeInclusive, time::Duration};

/// A kind of section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Top,
    Checkpoint,
    Cluster,
    Run,
    Source,
    Generator,
    Operator,
    Sink,
}

impl Kind {
    const ALL: [Self; 8] = [
        Self::Top,
        Self::Checkpoint,
        Self::Cluster,
        Self::Run,
        Self::Source,
        Self::Generator,
        Self::Operator,
        Self::Sink,
    ];

    fn keys(self) -> &'static [&'static str] {
        match self {
            Self::Top => &[
                "job",
                "decider",
                "assignment",
                "naming",
                "transaction_timeout",
                "recovery",
                "checkpoint",
                "cluster",
                "run",
                "source",
                "operator",
                "sink",
            ],
            Self::Checkpoint => &["store", "interval", "keep", "incidents"],
            Self::Cluster => &["brokers", "two_phase"],
            Self::Run => &["start_timeout", "stop_budget", "backoff", "backoff_max", "workers", "shards"],
            Self::Source => &[
                "name",
                "cluster",
                "topics",
                "start",
                "end",
                "isolation",
                "file",
                "files",
                "format",
                "follow",
                "on_error",
                "generator",
            ],
            Self::Generator => &["count", "rate", "value", "partitions", "seed"],
            Self::Operator => &["name", "jq", "key", "topic", "partition", "headers", "on_error"],
            Self::Sink => &[
                "name",
                "cluster",
                "topic",
                "guarantee",
                "partition",
                "on_error",
                "compression",
                "linger",
                "batch",
                "buffer",
                "delivery_timeout",
                "journal",
                "file",
            ],
        }
    }

    fn title(self) -> &'static str {
        match self {
            Self::Top => "the top of the file",
            Self::Checkpoint => "[checkpoint]",
            Self::Cluster => "[cluster.NAME]",
            Self::Run => "[run]",
            Self::Source => "[[source]]",
            Self::Generator => "generator = {...}",
            Self::Operator => "[[operator]]",
            Self::Sink => "[[sink]]",
        }
    }
}

/// Settings that others have and this file does not, and why.
const EXPLAINED: [(&[&str], &str); 6] = [
    (
        &["acks", "required_acks", "request.required.acks"],
        "acks is not a setting: records are always written with acks = all by an idempotent producer, because nothing \
         less can stand behind a guarantee; for best effort set guarantee = \"none\"",
    ),
    (
        &["idempotence", "enable_idempotence", "enable.idempotence", "max_in_flight", "retries"],
        "the producer is always idempotent, keeps order, and tries again until delivery_timeout; there is nothing to set",
    ),
    (
        &["transactional_id", "transactional.id", "transaction_id_prefix"],
        "transactional ids follow from the job's name, so that every run finds those of the one before; set job",
    ),
    (
        &["group", "group_id", "group.id", "consumer_group"],
        "positions are kept in the checkpoint store or, with decider = \"transaction\", as the offsets of the group that is \
         named like the job; set job",
    ),
    (
        &["tls", "ssl", "sasl", "security", "username", "password"],
        "TLS and SASL are not in this release: brokers must have a plaintext listener",
    ),
    (
        &["dead_letters", "dead_letter"],
        "dead letters are not in this release; set on_error = \"skip\" or \"stop\"",
    ),
];

/// A table that has only known keys.
#[derive(Clone, Copy, Debug)]
pub(super) struct Section<'a> {
    kind: Kind,
    table: &'a Table,
    /// Which of several: its number or name, for messages.
    which: Option<Which<'a>>,
    place: Option<&'a Place>,
}

/// Tells a section from others of its kind.
#[derive(Clone, Copy, Debug)]
pub(super) enum Which<'a> {
    Number(usize),
    Name(&'a str),
}

impl fmt::Display for Section<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.which {
            Some(Which::Number(number)) => write!(f, "{} {number}", self.kind.title()),
            Some(Which::Name(name)) => write!(f, "[cluster.{name}]"),
            None => f.write_str(self.kind.title()),
        }
    }
}

impl<'a> Section<'a> {
    /// Takes a table; every key in it must be one of its kind.
    pub(super) fn new(
        kind: Kind,
        table: &'a Table,
        which: Option<Which<'a>>,
        place: Option<&'a Place>,
    ) -> Result<Self, ConfigError> {
        let section = Self { kind, table, which, place };
        match table.iter().find(|(key, _)| !kind.keys().contains(&key.as_str())) {
            None => Ok(section),
            Some((key, item)) => Err(ConfigError::at(&item.place, section.unknown(key))),
        }
    }

    fn unknown(&self, key: &str) -> String {
        if let Some((_, why)) = EXPLAINED.iter().find(|(keys, _)| keys.contains(&key)) {
            return format!("{self} has no key {key:?}: {why}");
        }
        let elsewhere = || Kind::ALL.iter().find(|kind| kind.keys().contains(&key));
        let similar = |known: &&&str| strsim::damerau_levenshtein(key, known);
        let (nearest, distance) = self
            .kind
            .keys()
            .iter()
            .min_by_key(similar)
            .map(|known| (*known, strsim::damerau_levenshtein(key, known)))
            .expect("every kind of section has keys");
        if distance <= 2 && distance < key.len() {
            return format!("{self} has no key {key:?}; did you mean {nearest:?}?");
        }
        match elsewhere() {
            Some(kind) => format!("{self} has no key {key:?}; it belongs to {}", kind.title()),
            None => {
                let keys = self.kind.keys().join(", ");
                format!("{self} has no key {key:?}; the nearest is {nearest:?} (of {keys})")
            }
        }
    }

    /// An error about this section.
    pub(super) fn error(&self, message: impl fmt::Display) -> ConfigError {
        ConfigError::new(self.place.cloned(), format!("{self}: {message}"))
    }

    /// An error about a key of it.
    pub(super) fn error_at(&self, key: &str, message: impl fmt::Display) -> ConfigError {
        let place = self.table.get(key).map(|item| &item.place).or(self.place);
        ConfigError::new(place.cloned(), format!("{self}: {message}"))
    }

    pub(super) fn has(&self, key: &str) -> bool {
        self.table.contains_key(key)
    }

    pub(super) fn item(&self, key: &str) -> Option<&'a Item> {
        debug_assert!(self.kind.keys().contains(&key), "{key} is asked for and not a key of {self}");
        self.table.get(key)
    }

    fn wrong(&self, key: &str, item: &Item, wanted: &str) -> ConfigError {
        self.error_at(key, format!("{key} must be {wanted}, not {}", item.value.kind()))
    }

    pub(super) fn text(&self, key: &str) -> Result<Option<&'a str>, ConfigError> {
        match self.item(key) {
            None => Ok(None),
            Some(Item { value: Value::Text(text), .. }) => Ok(Some(text)),
            Some(item) => Err(self.wrong(key, item, "a text")),
        }
    }

    pub(super) fn owned(&self, key: &str) -> Result<Option<String>, ConfigError> {
        Ok(self.text(key)?.map(str::to_owned))
    }

    pub(super) fn required(&self, key: &str, why: &str) -> Result<&'a str, ConfigError> {
        self.text(key)?.ok_or_else(|| self.error(format!("{key} is missing: {why}")))
    }

    /// A list of texts, or one.
    pub(super) fn texts(&self, key: &str) -> Result<Option<Vec<&'a str>>, ConfigError> {
        let Some(item) = self.item(key) else { return Ok(None) };
        let texts = match &item.value {
            Value::Text(text) => vec![text.as_str()],
            Value::List(items) => {
                let text = |item: &'a Item| match &item.value {
                    Value::Text(text) => Ok(text.as_str()),
                    _ => Err(self.wrong(key, item, "a list of texts")),
                };
                items.iter().map(text).collect::<Result<_, _>>()?
            }
            _ => return Err(self.wrong(key, item, "a list of texts")),
        };
        if texts.is_empty() {
            return Err(self.error_at(key, format!("{key} is empty")));
        }
        Ok(Some(texts))
    }

    pub(super) fn boolean(&self, key: &str) -> Result<Option<bool>, ConfigError> {
        match self.item(key) {
            None => Ok(None),
            Some(Item { value: Value::Boolean(value), .. }) => Ok(Some(*value)),
            Some(item) => Err(self.wrong(key, item, "true or false")),
        }
    }

    /// A whole number of at least `least`.
    pub(super) fn count<T: TryFrom<i64>>(&self, key: &str, least: i64) -> Result<Option<T>, ConfigError> {
        self.counted(key, least..=i64::MAX, &format!("the least is {least}"))
    }

    /// A whole number of `least` to `most`.
    pub(super) fn count_to<T: TryFrom<i64>>(
        &self,
        key: &str,
        least: i64,
        most: u32,
    ) -> Result<Option<T>, ConfigError> {
        self.counted(key, least..=i64::from(most), &format!("it is {least} to {most}"))
    }

    fn counted<T: TryFrom<i64>>(
        &self,
        key: &str,
        range: RangeInclusive<i64>,
        bounds: &str,
    ) -> Result<Option<T>, ConfigError> {
        let Some(item) = self.item(key) else { return Ok(None) };
        let Value::Integer(number) = item.value else { return Err(self.wrong(key, item, "a whole number")) };
        let counted = range.contains(&number).then(|| T::try_from(number).ok()).flatten();
        counted
            .map(Some)
            .ok_or_else(|| self.error_at(key, format!("{key} = {number} is out of range: {bounds}")))
    }

    /// A number above 0.
    pub(super) fn rate(&self, key: &str) -> Result<Option<f64>, ConfigError> {
        let number = match self.item(key) {
            None => return Ok(None),
            Some(Item { value: Value::Integer(number), .. }) => *number as f64,
            Some(Item { value: Value::Float(number), .. }) => *number,
            Some(item) => return Err(self.wrong(key, item, "a number")),
        };
        if number.is_finite() && number > 0.0 {
            return Ok(Some(number));
        }
        Err(self.error_at(key, format!("{key} = {number} must be above 0")))
    }

    pub(super) fn duration(&self, key: &str) -> Result<Option<Duration>, ConfigError> {
        match self.item(key) {
            Some(Item { value: Value::Integer(number), .. }) => Err(self.error_at(
                key,
                format!("{key} = {number} needs a unit: write \"{number}s\" or \"{number}ms\""),
            )),
            _ => self.parsed(key, value::duration),
        }
    }

    /// A duration above 0.
    pub(super) fn span(&self, key: &str) -> Result<Option<Duration>, ConfigError> {
        match self.duration(key)? {
            Some(Duration::ZERO) => Err(self.error_at(key, format!("{key} must be above 0"))),
            other => Ok(other),
        }
    }

    pub(super) fn size(&self, key: &str) -> Result<Option<usize>, ConfigError> {
        match self.item(key) {
            Some(Item { value: Value::Integer(number), .. }) => Err(self.error_at(
                key,
                format!("{key} = {number} needs a unit: write \"{number}B\" or \"{number}KiB\""),
            )),
            _ => match self.parsed(key, value::size)? {
                Some(0) => Err(self.error_at(key, format!("{key} must be above 0"))),
                other => Ok(other),
            },
        }
    }

    fn parsed<T>(
        &self,
        key: &str,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Result<Option<T>, ConfigError> {
        let parsed = self.text(key)?.map(parse).transpose();
        parsed.map_err(|why| self.error_at(key, format!("{key} = {why}")))
    }

    /// One of several words.
    pub(super) fn choice<T: Copy>(&self, key: &str, words: &[(&str, T)]) -> Result<Option<T>, ConfigError> {
        let Some(text) = self.text(key)? else { return Ok(None) };
        let found = words.iter().find(|(word, _)| *word == text);
        found.map(|(_, value)| Some(*value)).ok_or_else(|| {
            let known: Vec<String> = words.iter().map(|(word, _)| format!("{word:?}")).collect();
            self.error_at(key, format!("{key} = {text:?} is not one of {}", known.join(", ")))
        })
    }

    /// Refuses the given keys where they stand beside another one that makes them meaningless.
    pub(super) fn none_of(&self, keys: &[&str], why: &str) -> Result<(), ConfigError> {
        match keys.iter().find(|key| self.has(key)) {
            None => Ok(()),
            Some(key) => Err(self.error_at(key, format!("{key} has no meaning here: {why}"))),
        }
    }
}
