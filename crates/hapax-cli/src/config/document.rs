//! A pipeline file as a tree whose every part knows where it stands.
//!
//! Owns: TOML into [`Item`]s, `--set` on top of it, and the expansion of `${NAME}` in texts. Refuses any meaning:
//! which keys there are is decided elsewhere.

use super::ConfigError;
use crate::excerpt;
use std::{collections::BTreeMap, fmt};
use toml::de::{DeTable, DeValue};

/// Where something was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// In the file, counted from 1.
    Line(usize),
    /// On the command line.
    Set(String),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Line(line) => write!(f, "line {line}"),
            Self::Set(key) => write!(f, "--set {key}"),
        }
    }
}

/// A value and its place.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Item {
    pub(super) value: Value,
    pub(super) place: Place,
}

/// A value of a pipeline file.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    Text(String),
    Integer(i64),
    Float(f64),
    Boolean(bool),
    /// A date or time without quotes.
    Moment(String),
    List(Vec<Item>),
    Table(Table),
}

/// Items by key; the place of an item is that of its key.
pub(super) type Table = BTreeMap<String, Item>;

impl Value {
    /// What it is, for messages.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Text(_) => "a text",
            Self::Integer(_) => "a whole number",
            Self::Float(_) => "a number",
            Self::Boolean(_) => "true or false",
            Self::Moment(_) => "a date",
            Self::List(_) => "a list",
            Self::Table(_) => "a table",
        }
    }
}

/// Reads a TOML text.
pub(super) fn parse(text: &str) -> Result<Table, ConfigError> {
    let line_of = |at: usize| {
        Place::Line(1 + text.as_bytes()[..at.min(text.len())].iter().filter(|b| **b == b'\n').count())
    };
    let table = DeTable::parse(text).map_err(|error| {
        let place = error.span().map(|span| line_of(span.start));
        ConfigError::new(place, format!("not TOML: {}", error.message().replace('\n', ", ")))
    })?;
    table_of(table.get_ref(), &line_of)
}

fn table_of(table: &DeTable<'_>, line_of: &impl Fn(usize) -> Place) -> Result<Table, ConfigError> {
    let item = |(key, value): (&toml::Spanned<_>, &toml::Spanned<DeValue<'_>>)| {
        let key: &toml::Spanned<std::borrow::Cow<'_, str>> = key;
        let place = line_of(key.span().start);
        Ok((key.get_ref().clone().into_owned(), Item { value: value_of(value, line_of)?, place }))
    };
    table.iter().map(item).collect()
}

fn value_of(
    value: &toml::Spanned<DeValue<'_>>,
    line_of: &impl Fn(usize) -> Place,
) -> Result<Value, ConfigError> {
    let place = || line_of(value.span().start);
    let number =
        |what: &str, digits: &str| ConfigError::at(&place(), format!("the {what} {digits} is out of range"));
    Ok(match value.get_ref() {
        DeValue::String(text) => Value::Text(text.clone().into_owned()),
        DeValue::Boolean(value) => Value::Boolean(*value),
        DeValue::Datetime(moment) => Value::Moment(moment.to_string()),
        DeValue::Integer(integer) => {
            let parsed = i64::from_str_radix(integer.as_str(), integer.radix());
            Value::Integer(parsed.map_err(|_| number("whole number", integer.as_str()))?)
        }
        DeValue::Float(float) => {
            Value::Float(float.as_str().parse().map_err(|_| number("number", float.as_str()))?)
        }
        DeValue::Array(list) => {
            let items = list.iter().map(|value| {
                Ok(Item { value: value_of(value, line_of)?, place: line_of(value.span().start) })
            });
            Value::List(items.collect::<Result<_, ConfigError>>()?)
        }
        DeValue::Table(table) => Value::Table(table_of(table, line_of)?),
    })
}

/// Levels of a path on the command line: no key stands deeper than a few, and tables are walked by recursion.
const SET_LEVELS: usize = 64;

/// Applies one `--set key=value`: the key is a dotted path, a list's items are numbered from 0. A value that is not
/// TOML is a text, so that `checkpoint.interval=200ms` needs no quotes.
pub(super) fn set(table: &mut Table, argument: &str) -> Result<(), ConfigError> {
    let refused = |message: String| ConfigError::at(&Place::Set(argument.to_owned()), message);
    let Some((path, text)) = argument.split_once('=') else {
        return Err(refused("must be key=value, like checkpoint.interval=200ms".to_owned()));
    };
    let path = path.trim();
    let levels = path.split('.').count();
    if levels > SET_LEVELS {
        let message = format!("the path has {levels} levels, and may have {SET_LEVELS}");
        return Err(ConfigError::at(&Place::Set(excerpt::shortened(path)), message));
    }
    let place = Place::Set(path.to_owned());
    let value = parse(&format!("value = {text}"))
        .ok()
        .filter(|parsed| parsed.len() == 1)
        .and_then(|mut parsed| parsed.remove("value"))
        .map_or_else(|| Value::Text(text.to_owned()), |item| moved(item.value, &place));
    let mut keys = path.split('.').peekable();
    let mut here = table;
    while let Some(key) = keys.next() {
        if key.is_empty() {
            return Err(refused("the path has an empty part".to_owned()));
        }
        if keys.peek().is_none() {
            here.insert(key.to_owned(), Item { value, place });
            return Ok(());
        }
        let fresh = || Item { value: Value::Table(Table::new()), place: place.clone() };
        let item = here.entry(key.to_owned()).or_insert_with(fresh);
        here = match &mut item.value {
            Value::Table(inner) => inner,
            Value::List(items) => {
                let count = items.len();
                let number = keys.next().unwrap_or_default();
                let chosen = number.parse().ok().and_then(|number: usize| items.get_mut(number));
                match (chosen.map(|item| &mut item.value), keys.peek()) {
                    (Some(Value::Table(inner)), Some(_)) => inner,
                    _ => {
                        return Err(refused(format!(
                            "{key} is a list of {count}: write {key}.0.name=value with a number below {count}"
                        )));
                    }
                }
            }
            other => return Err(refused(format!("{key} is {}, and has no parts", other.kind()))),
        };
    }
    Err(refused("the path is empty".to_owned()))
}

/// The value with every place in it changed.
fn moved(value: Value, place: &Place) -> Value {
    let item = |item: Item| Item { value: moved(item.value, place), place: place.clone() };
    match value {
        Value::List(items) => Value::List(items.into_iter().map(item).collect()),
        Value::Table(table) => {
            Value::Table(table.into_iter().map(|(key, inner)| (key, item(inner))).collect())
        }
        other => other,
    }
}

/// Replaces `${NAME}` and `${NAME:-default}` in every text; `$${` stands for `${`.
pub(super) fn expand(
    table: &mut Table,
    variable: &impl Fn(&str) -> Option<String>,
) -> Result<(), ConfigError> {
    table.values_mut().try_for_each(|item| expand_item(item, variable))
}

fn expand_item(item: &mut Item, variable: &impl Fn(&str) -> Option<String>) -> Result<(), ConfigError> {
    match &mut item.value {
        Value::Text(text) => {
            *text = expand_text(text, variable).map_err(|message| ConfigError::at(&item.place, message))?;
            Ok(())
        }
        Value::List(items) => items.iter_mut().try_for_each(|item| expand_item(item, variable)),
        Value::Table(table) => expand(table, variable),
        Value::Integer(_) | Value::Float(_) | Value::Boolean(_) | Value::Moment(_) => Ok(()),
    }
}

/// `${file:PATH}` is the text of a file, without the line end at its end: how a secret comes from a mounted file.
pub(super) const FILE: &str = "file:";

fn expand_text(text: &str, variable: &impl Fn(&str) -> Option<String>) -> Result<String, String> {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        let (before, found) = rest.split_at(at);
        if let Some(before) = before.strip_suffix('$') {
            out.push_str(before);
            out.push_str("${");
            rest = &found[2..];
            continue;
        }
        out.push_str(before);
        let (inside, after) = found[2..]
            .split_once('}')
            .ok_or_else(|| format!("{found:?} has no closing brace; write $${{ for a ${{"))?;
        let (name, default) =
            inside.split_once(":-").map_or((inside, None), |(name, default)| (name, Some(default)));
        let legal = match name.strip_prefix(FILE) {
            Some(path) => !path.is_empty(),
            None => !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_'),
        };
        if !legal {
            return Err(format!(
                "${{{inside}}} names neither an environment variable nor, as ${{file:PATH}}, a file; write $${{ for a ${{"
            ));
        }
        // As in a shell, the default stands in for an empty value too.
        match (variable(name).filter(|value| default.is_none() || !value.is_empty()), default) {
            (Some(value), _) => out.push_str(&value),
            (None, Some(default)) => out.push_str(default),
            (None, None) if name.starts_with(FILE) => {
                return Err(format!(
                    "{} cannot be read as text; mend the path, or its rights",
                    &name[FILE.len()..]
                ));
            }
            (None, None) => {
                return Err(format!(
                    "the environment variable {name} is not set; set it, or write ${{{name}:-default}}"
                ));
            }
        }
        rest = after;
    }
    out.push_str(rest);
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text<'a>(table: &'a Table, key: &str) -> &'a Value {
        &table[key].value
    }

    #[test]
    fn every_item_knows_its_line() {
        let table = parse("job = \"a\"\n\n[[sink]]\ntopic = \"t\"\n").unwrap();
        assert_eq!(table["job"].place, Place::Line(1));
        let Value::List(sinks) = text(&table, "sink") else { panic!("a list") };
        let Value::Table(sink) = &sinks[0].value else { panic!("a table") };
        assert_eq!(sink["topic"].place, Place::Line(4));
    }

    #[test]
    fn a_syntax_error_names_its_line() {
        let error = parse("job = \"a\"\n[checkpoint\n").unwrap_err().to_string();
        assert!(error.starts_with("line 2: not TOML: "), "{error}");
    }

    #[test]
    fn set_changes_adds_and_reaches_into_lists() {
        let mut table = parse("[checkpoint]\ninterval = \"1s\"\n[[source]]\nstart = \"earliest\"\n").unwrap();
        for argument in [
            "checkpoint.interval=200ms",
            "source.0.start=latest",
            "run.workers=2",
            "job=\"x\"",
            "a.b.c=[1, 2]",
        ] {
            set(&mut table, argument).unwrap();
        }
        let Value::Table(checkpoint) = text(&table, "checkpoint") else { panic!("a table") };
        assert_eq!(checkpoint["interval"].value, Value::Text("200ms".into()));
        assert_eq!(checkpoint["interval"].place.to_string(), "--set checkpoint.interval");
        let Value::List(sources) = text(&table, "source") else { panic!("a list") };
        let Value::Table(source) = &sources[0].value else { panic!("a table") };
        assert_eq!(source["start"].value, Value::Text("latest".into()));
        assert_eq!(*text(&table, "job"), Value::Text("x".into()));
        let Value::Table(run) = text(&table, "run") else { panic!("a table") };
        assert_eq!(run["workers"].value, Value::Integer(2));
    }

    #[test]
    fn set_refuses_what_has_no_place() {
        let mut table = parse("job = \"a\"\n[[source]]\nstart = \"latest\"\n").unwrap();
        let mut refused = |argument| set(&mut table, argument).unwrap_err().to_string();
        assert_eq!(refused("job"), "--set job: must be key=value, like checkpoint.interval=200ms");
        assert_eq!(refused("job.x=1"), "--set job.x=1: job is a text, and has no parts");
        let list = "source is a list of 1: write source.0.name=value with a number below 1";
        assert_eq!(refused("source.start=latest"), format!("--set source.start=latest: {list}"));
        assert_eq!(refused("source.1.start=x"), format!("--set source.1.start=x: {list}"));
        assert_eq!(refused("source.0=x"), format!("--set source.0=x: {list}"));
        assert_eq!(refused("a..b=1"), "--set a..b=1: the path has an empty part");
    }

    #[test]
    fn variables_are_expanded_in_texts_only() {
        let variable = |name: &str| match name {
            "HOST" => Some("h:1".to_owned()),
            "EMPTY" => Some(String::new()),
            _ => None,
        };
        let mut table =
            parse("a = \"<${HOST}>\"\nb = [\"${NO:-x}${EMPTY:-y}${EMPTY}\"]\nc = '$${HOST} $x \"\\(.a)\"'\n")
                .unwrap();
        expand(&mut table, &variable).unwrap();
        assert_eq!(*text(&table, "a"), Value::Text("<h:1>".into()));
        let Value::List(list) = text(&table, "b") else { panic!("a list") };
        assert_eq!(list[0].value, Value::Text("xy".into()));
        assert_eq!(*text(&table, "c"), Value::Text("${HOST} $x \"\\(.a)\"".into()));
    }

    #[test]
    fn an_unset_variable_is_named() {
        let refused = |text: &str| {
            let mut table = parse(&format!("\n{text}")).unwrap();
            expand(&mut table, &|_| None).unwrap_err().to_string()
        };
        assert_eq!(
            refused("a = \"${BROKERS}\""),
            "line 2: the environment variable BROKERS is not set; set it, or write ${BROKERS:-default}"
        );
        assert!(refused("a = \"${BROKERS\"").contains("has no closing brace"));
        assert!(refused("a = \"${A B}\"").contains("names neither an environment variable"));
        assert_eq!(
            refused("a = \"${file:/run/secrets/brokers}\""),
            "line 2: /run/secrets/brokers cannot be read as text; mend the path, or its rights"
        );
    }
}
