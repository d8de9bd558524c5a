//! The sections that are there once, and the order in which a job is put together.

use super::{
    ConfigError, Pipeline,
    document::{Item, Table, Value},
    embedded::{self, Brokers},
    operator,
    section::{Kind, Section, Which},
    sink, source, store,
};
use crate::excerpt;
use hapax::{Job, Name, Settings, Strategy, job::MAX_SHARDS};
use hapax_commit::{DeciderKind, Naming, limits::KEEP_CHECKPOINTS};
use std::path::PathBuf;

/// A pipeline from the tables of its file; `text` goes into the job record.
pub(super) fn pipeline(table: &Table, text: &str) -> Result<Pipeline, ConfigError> {
    let top = Section::new(Kind::Top, table, None, None)?;
    let name =
        top.required("job", "a stable name; every id that the job owns on the brokers begins with it")?;
    // A name that is cut for the message is no better than the whole of it.
    Name::new(name)
        .or_else(|_| Name::new(&excerpt::shortened(name)))
        .map_err(|error| top.error_at("job", format!("job = {error}")))?;
    top.choice("assignment", &[("all", ())])?;
    let deciders = [DeciderKind::Checkpoint, DeciderKind::Transaction].map(|kind| (kind.name(), kind));
    let mut settings = Settings { decider: top.choice("decider", &deciders)?, ..Settings::default() };
    if let Some(timeout) = top.span("transaction_timeout")? {
        settings.transaction_timeout = Some(timeout);
    }
    settings.naming = naming(&top)?;
    if let Some(recovery) = recovery(&top)? {
        settings.recovery = recovery;
    }
    checkpoint(&once(&top, Kind::Checkpoint, "checkpoint")?, &mut settings)?;
    run(&once(&top, Kind::Run, "run")?, &mut settings)?;
    let store = settings.store.clone();
    let mut job = Job::new(name).pipeline_text(text).settings(|slot| *slot = settings);
    let clusters = clusters(&top)?;
    let mut embedded = Vec::new();
    for (section, name, brokers) in &clusters {
        if let Some(cluster) = embedded::of(section, name, brokers, store.as_deref())? {
            embedded.push(cluster);
        }
        job = job
            .cluster(name, &brokers.address(name))
            .map_err(|error| top.error_at("cluster", without_code(&error.to_string())))?;
        if section.boolean("two_phase")? == Some(true) {
            job = job
                .two_phase(name)
                .map_err(|error| section.error_at("two_phase", without_code(&error.to_string())))?;
        }
    }
    let known: Vec<&str> = clusters.iter().map(|(_, name, _)| *name).collect();
    let sources = several(&top, Kind::Source, "source")?;
    let operators = several(&top, Kind::Operator, "operator")?;
    let sinks = several(&top, Kind::Sink, "sink")?;
    for section in &sources {
        job = source::add(job, section, &known)?;
    }
    agree_on_topics(&operators, &sinks)?;
    for (number, section) in operators.iter().enumerate() {
        job = operator::add(job, section, number + 1)?;
    }
    for section in &sinks {
        job = sink::add(job, section, &known)?;
    }
    embedded::name_topics(&mut embedded, &sources, &sinks, &known)?;
    Ok(Pipeline { job, embedded })
}

/// A record's topic is chosen either by a sink or by an operator; a choice that nobody reads is a mistake.
fn agree_on_topics(operators: &[Section<'_>], sinks: &[Section<'_>]) -> Result<(), ConfigError> {
    let chooses = operators.iter().find(|operator| operator.has("topic"));
    let follows = sinks.iter().find(|sink| sink.has("cluster") && !sink.has("topic"));
    match (chooses, follows) {
        (Some(operator), None) => Err(operator.error_at(
            "topic",
            "topic is chosen for each record, and no sink follows it: leave topic out of a [[sink]]",
        )),
        (None, Some(sink)) => Err(sink
            .error("topic is missing: name one, or let an [[operator]] choose it with topic = '...' (jq)")),
        _ => Ok(()),
    }
}

/// The text of an error of the library, which gets its code from us.
pub(super) fn without_code(text: &str) -> &str {
    match text.split_once(": ") {
        Some((code, rest)) if code.len() == 5 && code.starts_with('E') => rest,
        _ => text,
    }
}

static EMPTY: Table = Table::new();

/// A section that is there once or not at all.
fn once<'a>(top: &Section<'a>, kind: Kind, key: &str) -> Result<Section<'a>, ConfigError> {
    match top.item(key) {
        None => Section::new(kind, &EMPTY, None, None),
        Some(Item { value: Value::Table(table), place }) => Section::new(kind, table, None, Some(place)),
        Some(item) => {
            Err(top.error_at(key, format!("{key} must be a table: write [{key}], not {}", item.value.kind())))
        }
    }
}

/// Sections of which there may be several.
fn several<'a>(top: &Section<'a>, kind: Kind, key: &str) -> Result<Vec<Section<'a>>, ConfigError> {
    let wrong = |item: &Item| {
        top.error_at(key, format!("{key} must be written [[{key}]], not as {}", item.value.kind()))
    };
    let Some(item) = top.item(key) else { return Ok(Vec::new()) };
    let Value::List(items) = &item.value else { return Err(wrong(item)) };
    let section = |(number, item): (usize, &'a Item)| match &item.value {
        Value::Table(table) => Section::new(kind, table, Some(Which::Number(number + 1)), Some(&item.place)),
        _ => Err(wrong(item)),
    };
    items.iter().enumerate().map(section).collect()
}

fn naming(top: &Section<'_>) -> Result<Option<Naming>, ConfigError> {
    match top.text("naming")? {
        None => Ok(None),
        Some("rotating") => Ok(Some(Naming::Rotating)),
        Some("per-epoch") => Ok(Some(Naming::PerEpoch)),
        Some(other) => {
            Err(top
                .error_at("naming", format!("naming = {other:?} is neither \"rotating\" nor \"per-epoch\"")))
        }
    }
}

fn recovery(top: &Section<'_>) -> Result<Option<Vec<Strategy>>, ConfigError> {
    let Some(names) = top.texts("recovery")? else { return Ok(None) };
    let mut strategies = Vec::new();
    for name in names {
        let strategy = Strategy::parse(name).ok_or_else(|| {
            let known = Strategy::ALL.map(Strategy::name).join(", ");
            top.error_at("recovery", format!("recovery: there is no strategy {name:?}; there are {known}"))
        })?;
        if strategies.contains(&strategy) {
            return Err(top.error_at("recovery", format!("recovery names {name:?} twice")));
        }
        strategies.push(strategy);
    }
    Ok(Some(strategies))
}

fn checkpoint(section: &Section<'_>, settings: &mut Settings) -> Result<(), ConfigError> {
    if let Some(url) = section.text("store")? {
        store::check(url).map_err(|why| {
            section.error_at("store", format!("store = {:?} {why}", excerpt::shortened(url)))
        })?;
        settings.store = Some(url.to_owned());
    }
    settings.incidents = section.text("incidents")?.map(PathBuf::from);
    if let Some(interval) = section.span("interval")? {
        settings.interval = interval;
    }
    if let Some(keep) = section.count("keep", KEEP_CHECKPOINTS as i64)? {
        settings.keep = keep;
    }
    Ok(())
}

fn run(section: &Section<'_>, settings: &mut Settings) -> Result<(), ConfigError> {
    if let Some(timeout) = section.span("start_timeout")? {
        settings.start_timeout = timeout;
    }
    if let Some(budget) = section.span("stop_budget")? {
        settings.stop_budget = budget;
    }
    let (first, longest) = settings.run_backoff;
    let chosen = section.span("backoff")?;
    let first = chosen.unwrap_or(first);
    let longest = section.span("backoff_max")?.unwrap_or(longest.max(first));
    if longest < first {
        return Err(
            section.error_at("backoff_max", format!("backoff_max {longest:?} is below backoff {first:?}"))
        );
    }
    settings.run_backoff = (first, longest);
    settings.workers = section.count("workers", 1)?;
    settings.shards = section.count_to("shards", 1, MAX_SHARDS)?;
    Ok(())
}

/// Clusters by name, with their brokers.
fn clusters<'a>(top: &Section<'a>) -> Result<Vec<(Section<'a>, &'a str, Brokers)>, ConfigError> {
    let Some(item) = top.item("cluster") else { return Ok(Vec::new()) };
    let Value::Table(named) = &item.value else {
        return Err(top
            .error_at("cluster", "cluster must be written [cluster.NAME], with a name of its own for each"));
    };
    let mut clusters = Vec::new();
    for (name, item) in named {
        let Value::Table(table) = &item.value else {
            let message =
                format!("cluster has no key {name:?}: write [cluster.NAME], with a name for each cluster");
            return Err(ConfigError::at(&item.place, message));
        };
        let section = Section::new(Kind::Cluster, table, Some(Which::Name(name)), Some(&item.place))?;
        let brokers = Brokers::read(&section)?;
        clusters.push((section, name.as_str(), brokers));
    }
    Ok(clusters)
}

/// The cluster that a source or sink names, or the only one.
pub(super) fn cluster_of<'a>(section: &Section<'a>, clusters: &[&'a str]) -> Result<&'a str, ConfigError> {
    match (section.text("cluster")?, clusters) {
        (Some(name), _) if clusters.contains(&name) => Ok(name),
        (Some(name), _) => {
            let known = if clusters.is_empty() {
                "there is none".to_owned()
            } else {
                format!("there are {}", clusters.join(", "))
            };
            Err(section.error_at("cluster", format!("there is no [cluster.{name}]; {known}")))
        }
        (None, [only]) => Ok(only),
        (None, []) => Err(section.error("cluster is missing: add [cluster.NAME] with its brokers")),
        (None, _) => Err(section.error(format!("cluster is missing: name one of {}", clusters.join(", ")))),
    }
}
