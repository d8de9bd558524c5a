//! `hapax verify`: an audit of two sides that knows nothing of any job.

use super::{
    progress::grouped,
    side::{self, Names, Side, Take},
};
use crate::{
    FOUND,
    arguments::VerifyArguments,
    audit::{
        Audit, Config, Example, Finding, Id, Item, Order, OrderTooLong, Ordering, Place, Report, SORT_MEMORY,
        SpillError,
    },
    screen::{Screen, visible},
};
use hapax::{
    Code, Host, JobError, RecordRef,
    batch::Origin,
    operator::{JqError, JqProgram},
};
use hapax_kafka::record::EncodedHeaders;
use serde_json::{Value, json};
use std::path::PathBuf;

/// Runs the audit; answers the exit code.
///
/// # Errors
/// The audit could not be carried out, which says nothing about the records.
pub(crate) async fn verify(host: &Host, screen: &Screen, arguments: VerifyArguments) -> Result<u8, JobError> {
    let expected = parse("--expected", &arguments.expected)?;
    let actual = parse("--actual", &arguments.actual)?;
    let folder = arguments.temp.clone().unwrap_or_else(std::env::temp_dir);
    let (expected_rules, actual_rules) = rules(&arguments, &expected, &actual)?;
    let mut audit = Audit::new(Config {
        ordering: ordering(&arguments),
        memory: SORT_MEMORY,
        folder: folder.clone(),
        host: host.clone(),
    });
    // Both ends are fixed before anything is read.
    let (expected_side, actual_side) = (side::open(host, &expected).await?, side::open(host, &actual).await?);
    let mut feed = Feed { rules: expected_rules, folder: &folder, add: |item: &Item| audit.expected(item) };
    let expected_names = expected_side.read(host, &mut feed).await?;
    let mut feed = Feed { rules: actual_rules, folder: &folder, add: |item: &Item| audit.actual(item) };
    let actual_names = actual_side.read(host, &mut feed).await?;
    let report = audit.finish().map_err(|error| spill(&folder, &error))?;
    let view = View {
        report: &report,
        expected: &expected_names,
        actual: &actual_names,
        unordered: arguments.unordered,
    };
    let text = if arguments.json { view.json().to_string() } else { visible(&view.text()) };
    screen.answer(&text);
    if report.is_clean() {
        return Ok(0);
    }
    screen.line(&format!("{}: {actual} against {expected}: {}", Code::Audit, view.counts()));
    Ok(FOUND)
}

fn parse(field: &str, text: &str) -> Result<Side, JobError> {
    text.parse().map_err(|why| usage(format!("{field}: {why}")))
}

fn usage(message: String) -> JobError {
    JobError::Configuration { code: Code::Usage, message }
}

fn spill(folder: &std::path::Path, error: &SpillError) -> JobError {
    usage(format!("sorting on disk in {}: {error}; choose another folder with --temp", folder.display()))
}

/// Records without an order value have no order: that is how it is not looked at.
fn ordering(arguments: &VerifyArguments) -> Ordering {
    if arguments.order.is_some() || arguments.unordered { Ordering::Value } else { Ordering::SourcePosition }
}

/// What makes an item of a record.
struct Rules {
    id: Option<JqProgram>,
    order: Option<JqProgram>,
    /// Of a whole record only the value counts, because the other side has nothing else.
    values_only: bool,
}

fn rules(arguments: &VerifyArguments, expected: &Side, actual: &Side) -> Result<(Rules, Rules), JobError> {
    let compile = |field: &'static str, text: &Option<String>| {
        let compiled = text.as_deref().map(|text| JqProgram::compile(field, text)).transpose();
        compiled.map_err(|error: JqError| usage(error.to_string()))
    };
    let values_only = [expected, actual].iter().any(|side| matches!(side, Side::File(_)));
    let expected = Rules {
        id: compile("--id", &arguments.id)?,
        order: compile("--order", &arguments.order)?,
        values_only,
    };
    let actual = Rules {
        id: compile("--id-actual", arguments_or(&arguments.id_actual, &arguments.id))?,
        order: compile("--order-actual", arguments_or(&arguments.order_actual, &arguments.order))?,
        values_only,
    };
    Ok((expected, actual))
}

fn arguments_or<'a>(own: &'a Option<String>, both: &'a Option<String>) -> &'a Option<String> {
    if own.is_some() { own } else { both }
}

/// Makes items of records and hands them on.
struct Feed<'a, F> {
    rules: Rules,
    folder: &'a PathBuf,
    add: F,
}

impl<F: FnMut(&Item) -> Result<(), SpillError>> Take for Feed<'_, F> {
    fn take(&mut self, origin: &Origin, place: Place, record: RecordRef<'_>) -> Result<(), JobError> {
        let unfit = |reason: String| {
            let at = side::place(origin, place.offset);
            usage(format!(
                "verify: the record at {at}: {reason}; let --id and --order fit every record (select leaves records out)"
            ))
        };
        let ids = self.rules.ids(origin, record).map_err(unfit)?;
        if ids.is_empty() {
            return Ok(());
        }
        let order = self.rules.order(origin, record).map_err(unfit)?;
        for id in ids {
            let item = Item { id, place, group: None, order: order.clone() };
            (self.add)(&item).map_err(|error| spill(self.folder, &error))?;
        }
        Ok(())
    }
}

impl Rules {
    fn ids(&self, origin: &Origin, record: RecordRef<'_>) -> Result<Vec<Id>, String> {
        if let Some(program) = &self.id {
            let values = program.values(origin, record).map_err(|why| format!("--id: {why}"))?;
            return Ok(values.iter().map(|value| Id::of_value(value)).collect());
        }
        if self.values_only {
            return Ok(vec![Id::of_record(None, record.value, std::iter::empty())]);
        }
        let headers = EncodedHeaders::parse(record.headers.count, record.headers.encoded)
            .map_err(|error| error.to_string())?;
        Ok(vec![Id::of_record(record.key, record.value, headers.iter())])
    }

    fn order(&self, origin: &Origin, record: RecordRef<'_>) -> Result<Option<Order>, String> {
        let Some(program) = &self.order else { return Ok(None) };
        let wrong = |why: &str| format!("--order: {why}");
        let values = program.values(origin, record).map_err(|why| wrong(&why))?;
        let [value] = values.as_slice() else {
            return Err(wrong("the program must yield one number or string"));
        };
        let value: Value = serde_json::from_slice(value).map_err(|error| wrong(&error.to_string()))?;
        match value {
            Value::Null => Ok(None),
            Value::String(text) => {
                Order::text(&text).map(Some).map_err(|error: OrderTooLong| wrong(&error.to_string()))
            }
            Value::Number(number) => match (number.as_i64(), number.as_f64()) {
                (Some(whole), _) => Ok(Some(Order::number_i64(whole))),
                (None, Some(number)) => Ok(Some(Order::number_f64(number))),
                (None, None) => Err(wrong("the number is out of range")),
            },
            other => Err(wrong(&format!("the program must yield a number or a string, not {other}"))),
        }
    }
}

/// A report with the names of its places.
struct View<'a> {
    report: &'a Report,
    expected: &'a Names,
    actual: &'a Names,
    /// Order was not to be looked at.
    unordered: bool,
}

impl View<'_> {
    /// Findings with their names, and the side that their examples stand on.
    fn findings(&self) -> [(&'static str, &Finding, &Names); 4] {
        let Report { missing, duplicated, unexpected, reordered, .. } = self.report;
        [
            ("missing", missing, self.expected),
            ("duplicated", duplicated, self.actual),
            ("unexpected", unexpected, self.actual),
            ("reordered", reordered, self.actual),
        ]
    }

    fn counts(&self) -> String {
        self.findings().map(|(name, finding, _)| format!("{} {name}", grouped(finding.count))).join(", ")
    }

    fn text(&self) -> String {
        let Report { expected, actual, order_unchecked, .. } = self.report;
        let mut text =
            format!("{} records expected, {} there: {}", grouped(*expected), grouped(*actual), self.counts());
        for (name, finding, names) in self.findings() {
            for example in &finding.examples {
                text.push_str(&format!("\n  {name}: {}", self.example(name, example, names)));
            }
        }
        if *order_unchecked > 0 && !self.unordered {
            text.push_str(&format!("\n  the order of {} records cannot be told", grouped(*order_unchecked)));
        }
        text
    }

    fn example(&self, name: &str, example: &Example, names: &Names) -> String {
        let at = names.of(example.at);
        match (name, example.other) {
            ("reordered", Some(other)) => format!("{at} stands behind {}", self.actual.of(other)),
            (_, Some(other)) => format!("{at}, expected once at {}", self.expected.of(other)),
            (_, None) => at,
        }
    }

    fn json(&self) -> Value {
        let Report { expected, actual, order_unchecked, .. } = self.report;
        let mut object = json!({
            "expected": expected,
            "actual": actual,
            "order_unchecked": order_unchecked,
            "clean": self.report.is_clean(),
        });
        let mut examples = Vec::new();
        for (name, finding, names) in self.findings() {
            object[name] = finding.count.into();
            let shown = finding.examples.iter();
            examples.extend(shown.map(|example| format!("{name}: {}", self.example(name, example, names))));
        }
        object["examples"] = examples.into();
        object
    }
}
