//! Operators written in jq, over records whose values are JSON.
//!
//! Owns: which jq programs are legal here, and what becomes of a record under them. The filter turns a value into
//! none, one or several values; `key`, `topic`, `partition` and `headers` are programs over each *output* value.
//! `$key`, `$topic`, `$partition`, `$offset`, `$timestamp` (milliseconds) and `$headers` (a list of `{key, value}`,
//! in order) are those of the input record, in every program.
//!
//! Refuses: whatever could give other records when an epoch is read again (a clock, the environment, further inputs,
//! a time zone) or acts on the outside (`debug`, `halt`), when the program is compiled.
//!
//! Invariants: a record that fails leaves nothing in the output; numbers keep the digits that they came with unless
//! the program computes with them; what is written is JSON as of RFC 8259. A tombstone (a null value) is not JSON
//! and passes as it is, through every program. A program that loops for ever, or recurses without end, stops its
//! shard: that is the program's, and no limit here catches it; one that yields without end is caught.

mod header;
mod json;
mod program;
mod size;

use super::{OnError, Operator, OperatorError, Skipped};
use crate::{
    batch::{Batch, BatchBuilder, Headers, Origin, RecordRef},
    limits,
};
use jaq_json::{Num, Val};
use program::{Program, Variables};
use std::{ops::Range, sync::Arc};

/// A jq operator as the pipeline file describes it.
#[derive(Clone, Debug, Default)]
pub struct JqSettings {
    /// Its name in messages.
    pub name: String,
    /// From the value to the output values; none leaves the value as it is, byte for byte.
    pub filter: Option<String>,
    /// The key: a string gives its bytes, null no key, anything else its JSON text. None keeps the record's.
    pub key: Option<String>,
    /// The topic: a string, or null for the sink's. None keeps what was chosen before.
    pub topic: Option<String>,
    /// The partition: a number from 0, or null for the sink's choice. None keeps what was chosen before.
    pub partition: Option<String>,
    /// The headers: an object of strings and nulls, or a list of `{key, value}`. None keeps the record's.
    pub headers: Option<String>,
    /// What to do with a record that is not JSON, or on which a program fails.
    pub on_error: OnError,
}

/// A jq program that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} = {text:?}: {reason}")]
pub struct JqError {
    /// Which program: `jq`, `key`, `topic`, `partition`, `headers`.
    pub field: &'static str,
    /// The beginning of its text.
    pub text: String,
    /// What is wrong with it.
    pub reason: String,
}

/// One jq program over one record, for those who want values of it and no new records.
#[derive(Debug)]
pub struct JqProgram(Program);

impl JqProgram {
    /// Compiles a program; `field` is its name in messages.
    ///
    /// # Errors
    /// It is not a legal program, or uses what is refused here.
    pub fn compile(field: &'static str, text: &str) -> Result<Self, JqError> {
        compile(field, text).map(Self)
    }

    /// The program's outputs on the record, each as compact JSON text. A tombstone is `null`.
    ///
    /// # Errors
    /// The value is not JSON, or the program fails.
    pub fn values(&self, origin: &Origin, record: RecordRef<'_>) -> Result<Vec<Vec<u8>>, String> {
        let input = record.value.map_or(Ok(Val::Null), json::read)?;
        let variables = Variables::of(origin, record, self.0.uses());
        let mut values = Vec::new();
        for output in self.0.run(&variables, input) {
            let mut text = Vec::new();
            json::write(&output?, &mut text)?;
            values.push(text);
            if values.len() > limits::OPERATOR_OUTPUTS {
                return Err(format!("the program yields more than {} values", limits::OPERATOR_OUTPUTS));
            }
        }
        Ok(values)
    }
}

fn compile(field: &'static str, text: &str) -> Result<Program, JqError> {
    Program::compile(text).map_err(|reason| JqError { field, text: json::shortened(text), reason })
}

/// The programs of an operator, compiled once and shared by its instances.
#[derive(Debug)]
struct Programs {
    name: String,
    on_error: OnError,
    filter: Option<Program>,
    key: Option<Program>,
    topic: Option<Program>,
    partition: Option<Program>,
    headers: Option<Program>,
    uses: program::Uses,
}

/// An operator in jq.
#[derive(Debug)]
pub struct Jq {
    programs: Arc<Programs>,
    outputs: Outputs,
}

impl Jq {
    /// Compiles the programs; the result makes an instance for each shard.
    ///
    /// # Errors
    /// A program is not legal, or uses what is refused here.
    pub fn factory(
        settings: &JqSettings,
    ) -> Result<impl Fn() -> Box<dyn Operator> + Send + Sync + 'static + use<>, JqError> {
        let some =
            |field, text: &Option<String>| text.as_deref().map(|text| compile(field, text)).transpose();
        let mut programs = Programs {
            name: settings.name.clone(),
            on_error: settings.on_error,
            filter: some("jq", &settings.filter)?,
            key: some("key", &settings.key)?,
            topic: some("topic", &settings.topic)?,
            partition: some("partition", &settings.partition)?,
            headers: some("headers", &settings.headers)?,
            uses: program::Uses::default(),
        };
        programs.uses = programs.all().fold(program::Uses::default(), |uses, program| uses | program.uses());
        let programs = Arc::new(programs);
        Ok(move || {
            Box::new(Self { programs: programs.clone(), outputs: Outputs::default() }) as Box<dyn Operator>
        })
    }
}

impl Operator for Jq {
    fn apply(&mut self, batch: Batch, skipped: &mut Skipped) -> Result<Batch, OperatorError> {
        let Self { programs, outputs } = self;
        let mut out = Batch::builder(batch.origin().clone());
        for record in batch.iter() {
            let Some(value) = record.value else {
                out.push(record);
                continue;
            };
            outputs.clear();
            let error = match programs.apply(batch.origin(), record, value, outputs) {
                Ok(()) if out.bytes() + outputs.size(record) <= limits::OPERATOR_BATCH_BYTES => {
                    outputs.push_all(record, &mut out);
                    continue;
                }
                Ok(()) => programs.error(
                    batch.origin(),
                    record,
                    format!(
                        "the program turns {} fetched records into more than {} bytes; let it yield less",
                        batch.len(),
                        limits::OPERATOR_BATCH_BYTES
                    ),
                ),
                Err(reason) => programs.error(batch.origin(), record, reason),
            };
            match programs.on_error {
                OnError::Stop => return Err(error),
                OnError::Skip => skipped.record(error),
            }
        }
        Ok(out.build())
    }
}

impl Programs {
    fn all(&self) -> impl Iterator<Item = &Program> {
        [&self.filter, &self.key, &self.topic, &self.partition, &self.headers].into_iter().flatten()
    }

    fn error(&self, origin: &Origin, record: RecordRef<'_>, reason: String) -> OperatorError {
        OperatorError::new(origin, record.offset, &self.name, reason)
    }

    /// Puts what becomes of a record into `outputs`.
    fn apply(
        &self,
        origin: &Origin,
        record: RecordRef<'_>,
        value: &[u8],
        outputs: &mut Outputs,
    ) -> Result<(), String> {
        let input = json::read(value)?;
        let variables = Variables::of(origin, record, self.uses);
        let Some(filter) = &self.filter else {
            return self.output(&variables, &input, Some(value), outputs);
        };
        for output in filter.run(&variables, input) {
            self.output(&variables, &output?, None, outputs)?;
            if outputs.records.len() > limits::OPERATOR_OUTPUTS
                || outputs.bytes.len() > limits::OPERATOR_OUTPUT_BYTES
            {
                return Err(format!(
                    "the program yields more than {} records or {} bytes for this one; bound it with limit(n; ...)",
                    limits::OPERATOR_OUTPUTS,
                    limits::OPERATOR_OUTPUT_BYTES
                ));
            }
        }
        Ok(())
    }

    /// Adds one output value; `untouched` are its bytes where no program made it.
    fn output(
        &self,
        variables: &Variables,
        value: &Val,
        untouched: Option<&[u8]>,
        outputs: &mut Outputs,
    ) -> Result<(), String> {
        let evaluate = |program: &Option<Program>, field: &str| {
            program
                .as_ref()
                .map(|program| program.one(variables, value.clone()).map_err(|why| format!("{field}: {why}")))
                .transpose()
        };
        let key = evaluate(&self.key, "key")?;
        let topic = evaluate(&self.topic, "topic")?.map(topic_of).transpose()?;
        let partition =
            evaluate(&self.partition, "partition")?.map(|value| partition_of(&value)).transpose()?;
        let headers = evaluate(&self.headers, "headers")?;
        let start = outputs.bytes.len();
        match untouched {
            Some(bytes) => outputs.bytes.extend_from_slice(bytes),
            None => json::write(value, &mut outputs.bytes)?,
        }
        let value = start..outputs.bytes.len();
        let key = key.map(|key| outputs.put_key(&key)).transpose()?;
        let headers = headers.map(|headers| outputs.put_headers(&headers)).transpose()?;
        outputs.records.push(Output { value, key, topic, partition, headers });
        Ok(())
    }
}

fn topic_of(value: Val) -> Result<Option<String>, String> {
    match value {
        Val::Null => Ok(None),
        Val::TStr(name) if !name.is_empty() => match std::str::from_utf8(&name) {
            Ok(name) => Ok(Some(name.to_owned())),
            Err(_) => Err("topic: the program's output is not UTF-8".to_owned()),
        },
        other => Err(format!(
            "topic: the program must yield a topic's name or null, not {}",
            json::excerpt(&other)
        )),
    }
}

fn partition_of(value: &Val) -> Result<Option<i32>, String> {
    let number = match value {
        Val::Null => return Ok(None),
        Val::Num(Num::Int(number)) => i32::try_from(*number).ok().filter(|number| *number >= 0),
        _ => None,
    };
    number.map(Some).ok_or_else(|| {
        format!(
            "partition: the program must yield a whole number from 0, or null, not {}",
            json::excerpt(value)
        )
    })
}

/// What one input record became, before it is copied into the batch: all of it or nothing.
#[derive(Debug, Default)]
struct Outputs {
    bytes: Vec<u8>,
    records: Vec<Output>,
}

/// One output record, as ranges of the bytes; an outer none keeps what the input record has.
#[derive(Debug)]
struct Output {
    value: Range<usize>,
    key: Option<Option<Range<usize>>>,
    topic: Option<Option<String>>,
    partition: Option<Option<i32>>,
    headers: Option<(Range<usize>, u32)>,
}

impl Outputs {
    fn clear(&mut self) {
        self.bytes.clear();
        self.records.clear();
    }

    /// An upper bound of what the records add to a slab.
    fn size(&self, input: RecordRef<'_>) -> usize {
        let kept = input.key.map_or(0, <[u8]>::len) + input.headers.encoded.len();
        self.bytes.len() + self.records.len() * kept
    }

    fn put_key(&mut self, key: &Val) -> Result<Option<Range<usize>>, String> {
        let start = self.bytes.len();
        match key {
            Val::Null => return Ok(None),
            Val::TStr(text) => self.bytes.extend_from_slice(text),
            Val::BStr(bytes) => self.bytes.extend_from_slice(bytes),
            other => json::write(other, &mut self.bytes).map_err(|why| format!("key: {why}"))?,
        }
        Ok(Some(start..self.bytes.len()))
    }

    fn put_headers(&mut self, headers: &Val) -> Result<(Range<usize>, u32), String> {
        let start = self.bytes.len();
        let count = header::encode(headers, &mut self.bytes)?;
        Ok((start..self.bytes.len(), count))
    }

    fn push_all(&self, input: RecordRef<'_>, out: &mut BatchBuilder) {
        let bytes = |range: &Range<usize>| &self.bytes[range.clone()];
        for output in &self.records {
            out.push(RecordRef {
                value: Some(bytes(&output.value)),
                key: output.key.as_ref().map_or(input.key, |key| key.as_ref().map(bytes)),
                topic: output.topic.as_ref().map_or(input.topic, Option::as_deref),
                partition: output.partition.unwrap_or(input.partition),
                headers: output
                    .headers
                    .as_ref()
                    .map_or(input.headers, |(range, count)| Headers { encoded: bytes(range), count: *count }),
                ..input
            });
        }
    }
}

#[cfg(test)]
mod tests;
