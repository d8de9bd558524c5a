//! Whole answers as lines of a transcript: every field of every version, without those that name this cluster, this
//! moment or this wording.
//!
//! Producer ids and ids of 16 bytes are the n-th that the scenario has seen; addresses, messages for people and the
//! broker's own times are left out; the records of a fetch are written as their batches.

use super::world::{World, records};
use bytes::Bytes;
use hapax_broker::wire::{Request, Response};
use std::{
    fmt::Write as _,
    io, thread,
    time::{Duration, Instant},
};

const LIMIT: Duration = Duration::from_secs(120);
const PAUSE: Duration = Duration::from_millis(15);
/// Not yet: a load, a move, markers under way.
const PASSING: [i16; 6] = [14, 15, 16, 5, 6, 51];
/// Larger numbers are times of the wall clock.
const CLOCK: i64 = 1_000_000_000_000;

/// Whom to ask.
#[derive(Clone, Copy, Debug)]
pub(crate) enum At<'a> {
    Any,
    Group(&'a str),
    Transaction(&'a str),
}

impl World {
    /// Asks, waits for what passes, writes the answer down; `None` where the node hung up.
    pub(crate) fn tell(
        &mut self,
        what: &str,
        at: At<'_>,
        version: i16,
        request: impl Into<Request>,
    ) -> Option<Response> {
        self.tell_settled(&PASSING, what, at, version, request)
    }

    pub(crate) fn tell_settled(
        &mut self,
        passing: &[i16],
        what: &str,
        at: At<'_>,
        version: i16,
        request: impl Into<Request>,
    ) -> Option<Response> {
        let request = request.into();
        let begin = Instant::now();
        loop {
            let address = self.address(at);
            let answer = match self.peer().exchange(&address, version, &request) {
                Ok(answer) => answer,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    panic!("{what} v{version}: no answer")
                }
                Err(_) => {
                    self.note(format!("{what} {:?} v{version} -> hung up", request.key()));
                    return None;
                }
            };
            if !has_code(&answer, passing) {
                let line = self.shown(answer.clone());
                self.note(format!("{what} v{version} -> {line}"));
                return Some(answer);
            }
            assert!(begin.elapsed() < LIMIT, "{what} v{version} does not settle: {answer:?}");
            thread::sleep(PAUSE);
        }
    }

    fn address(&mut self, at: At<'_>) -> String {
        match at {
            At::Any => self.peer().bootstrap(),
            At::Group(group) => {
                let name = self.name(group);
                self.coordinator(0, &name)
            }
            At::Transaction(id) => {
                let name = self.name(id);
                self.coordinator(1, &name)
            }
        }
    }

    /// An answer as its line.
    pub(crate) fn shown(&mut self, mut answer: Response) -> String {
        let fetched = take_records(&mut answer);
        self.sort(&mut answer);
        let mut line = format!("{answer:?}").replace(", unknown_tagged_fields: {}", "");
        for field in ["host: ", "port: ", "error_message: ", "cluster_id: "] {
            line = replace_values(&line, field, |_| "_".to_owned());
        }
        line = replace_values(&line, "timestamp: ", |value| match value.parse::<i64>() {
            Ok(time) if time > CLOCK => format!("zero + {}", time - self.zero()),
            _ => value.to_owned(),
        });
        line = replace_values(&line, "_ms: ", |value| match value.parse::<i64>() {
            Ok(time) if time > CLOCK => "then".to_owned(),
            _ => value.to_owned(),
        });
        line = replace_values(&line, "coordinator_epoch: ", |value| {
            if value.starts_with('-') { "none" } else { "some" }.to_owned()
        });
        line = replace_values(&line, "producer_id: ", |value| {
            let digits = value.trim_start_matches("ProducerId(").trim_end_matches(')');
            digits.parse().map_or_else(|_| value.to_owned(), |id| self.label(id))
        });
        line = self.label_ids(&line);
        for batches in fetched {
            let shown = self.batches(batches);
            let _ = write!(line, " records [{shown}]");
        }
        line
    }

    /// Kafka answers some lists in the order of its hash maps, which says nothing.
    fn sort(&mut self, answer: &mut Response) {
        match answer {
            Response::JoinGroup(joined) => {
                joined.members.sort_by_cached_key(|member| self.label_ids(&member.member_id));
            }
            Response::Metadata(metadata) => {
                for topic in &mut metadata.topics {
                    topic.partitions.sort_by_key(|partition| partition.partition_index);
                }
            }
            Response::OffsetCommit(committed) => {
                for topic in &mut committed.topics {
                    topic.partitions.sort_by_key(|partition| partition.partition_index);
                }
            }
            Response::TxnOffsetCommit(committed) => {
                for topic in &mut committed.topics {
                    topic.partitions.sort_by_key(|partition| partition.partition_index);
                }
            }
            Response::AddPartitionsToTxn(added) => {
                let of_batch = added.results_by_transaction.iter_mut().flat_map(|of| &mut of.topic_results);
                for topic in of_batch.chain(&mut added.results_by_topic_v3_and_below) {
                    topic.results_by_partition.sort_by_key(|partition| partition.partition_index);
                }
            }
            Response::OffsetFetch(found) => {
                for topic in &mut found.topics {
                    topic.partitions.sort_by_key(|partition| partition.partition_index);
                }
                for topic in found.groups.iter_mut().flat_map(|group| &mut group.topics) {
                    topic.partitions.sort_by_key(|partition| partition.partition_index);
                }
            }
            _ => {}
        }
    }

    /// Ids of 16 bytes, alone or within a name, as the n-th seen.
    fn label_ids(&mut self, line: &str) -> String {
        let bytes = line.as_bytes();
        let (mut shown, mut at) = (String::new(), 0);
        while at < bytes.len() {
            if bytes.get(at..at + 36).is_some_and(is_id) {
                let label = self.mark(&line[at..at + 36]);
                shown.push_str(&label);
                at += 36;
            } else {
                let next = line[at..].chars().next().expect("the end is not reached");
                shown.push(next);
                at += next.len_utf8();
            }
        }
        shown
    }

    fn batches(&mut self, mut bytes: Bytes) -> String {
        let mut shown = String::new();
        while bytes.len() >= 61 {
            let length = 12 + number(&bytes, 8, 4) as usize;
            if bytes.len() < length {
                let _ = write!(shown, "a part of {length} bytes;");
                break;
            }
            let batch = bytes.split_to(length);
            let attributes = number(&batch, 21, 2);
            let producer = self.label(number(&batch, 43, 8));
            let of = |world: &World, at| match number(&batch, at, 8) {
                time if attributes & 0x20 != 0 || attributes & 8 != 0 => {
                    if time > 0 {
                        "then".to_owned()
                    } else {
                        time.to_string()
                    }
                }
                time if time > CLOCK => format!("zero + {}", time - world.zero()),
                time => time.to_string(),
            };
            let _ = write!(
                shown,
                "@{}+{} leader epoch {} attributes {attributes:#x} from {} to {} {producer}:{} seq {} count {}",
                number(&batch, 0, 8),
                number(&batch, 23, 4),
                number(&batch, 12, 4),
                of(self, 27),
                of(self, 35),
                number(&batch, 51, 2),
                number(&batch, 53, 4),
                number(&batch, 57, 4),
            );
            if attributes & 7 == 0 {
                for record in records(batch) {
                    let _ = match (record.control, record.key) {
                        (true, Some(key)) => write!(shown, " control {:?}", &key[..]),
                        _ => write!(shown, " {:?}", record.value.unwrap_or_default()),
                    };
                }
            }
            shown.push(';');
        }
        shown
    }
}

/// A big-endian number within bytes.
pub(crate) fn number(bytes: &[u8], at: usize, length: usize) -> i64 {
    let negative = bytes[at] & 0x80 != 0;
    let start = if negative { -1_i64 } else { 0 };
    bytes[at..at + length].iter().fold(start, |value, byte| (value << 8) | i64::from(*byte))
}

/// Every error code that an answer contains, with the name of its field's kind left out.
pub(crate) fn codes(shown: &str) -> Vec<i16> {
    let mut found = Vec::new();
    let mut rest = shown;
    while let Some(at) = rest.find("error_code: ") {
        rest = &rest[at + "error_code: ".len()..];
        let end = rest.find([',', ' ', '}']).unwrap_or(rest.len());
        found.extend(rest[..end].parse::<i16>().ok());
    }
    found
}

fn has_code(answer: &Response, wanted: &[i16]) -> bool {
    codes(&format!("{answer:?}")).iter().any(|code| wanted.contains(code))
}

/// Takes the records out of a fetch's answer, in the order of its partitions.
fn take_records(answer: &mut Response) -> Vec<Bytes> {
    let Response::Fetch(fetch) = answer else { return Vec::new() };
    let partitions = fetch.responses.iter_mut().flat_map(|topic| &mut topic.partitions);
    partitions.filter_map(|partition| partition.records.take()).collect()
}

fn is_id(text: &[u8]) -> bool {
    let dashes = [8, 13, 18, 23];
    text.iter().enumerate().all(|(at, byte)| match dashes.contains(&at) {
        true => *byte == b'-',
        false => byte.is_ascii_hexdigit() && !byte.is_ascii_uppercase(),
    })
}

/// Replaces the value behind every occurrence of a field's name.
fn replace_values(line: &str, field: &str, mut shown: impl FnMut(&str) -> String) -> String {
    let (mut out, mut rest) = (String::new(), line);
    while let Some(at) = rest.find(field) {
        let value = &rest[at + field.len()..];
        let end = end_of_value(value);
        out.push_str(&rest[..at + field.len()]);
        out.push_str(&shown(value[..end].trim_end()));
        rest = &value[end..];
    }
    out.push_str(rest);
    out
}

/// Where the value of a field in Rust's debug form ends.
fn end_of_value(text: &str) -> usize {
    let (mut depth, mut quoted, mut escaped) = (0, false, false);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => quoted = !quoted,
            _ if quoted => {}
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' if depth > 0 => depth -= 1,
            b',' | b'}' => return at,
            _ => {}
        }
    }
    text.len()
}
