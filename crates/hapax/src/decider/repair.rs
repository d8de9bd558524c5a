//! Writes the records of an aborted transaction again, or keeps them aside.
//!
//! Owns the two passes of `rewrite`: first every partition is read to its end and compared with the handle, then the
//! records are read once more and written. What was written is compared with the handle, too, before it is handed out
//! as prepared. Refuses to write a byte of what is not there in whole, and never ends a transaction.
//!
//! ```text
//!  handle (aborted) --> compare all partitions --> read again, write under the fresh number --> compare --> handle
//!                         | a hole, a digest                                                      | differs
//!                         v                                                                       v
//!                       refused, nothing written                                 refused; the id is cleared again
//! ```

use crate::error::{Code, JobError, with_causes};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use hapax_commit::{Epoch, Handle, HandlePartition, Identity, TransactionVersion};
use hapax_host::{Deadline, Host, OpenFile};
use hapax_kafka::{
    Client,
    fetch::{WrittenError, WrittenReader},
    producer::{Destination, LaneProducer, OpenAs, ProduceError, ProducerConfig},
    record::{Headers, RecordRef, RecordView, Records},
    transaction::{self, LeftOpen},
};
use serde_json::{Value, json};
use std::{collections::BTreeMap, io, path::Path, time::Duration};

/// What a strategy came to: what it was to make, or why it never can.
pub(super) type Outcome<T> = Result<Result<T, String>, JobError>;

/// What is written again, and as whom.
pub(super) struct Rewrite<'a> {
    pub(super) host: &'a Host,
    pub(super) client: &'a Client,
    /// The aborted transaction.
    pub(super) handle: &'a Handle,
    /// The number that its records are written under now.
    pub(super) epoch: Epoch,
    /// The identity of the id that belongs to that number.
    pub(super) identity: Identity,
    pub(super) timeout: Duration,
}

impl Rewrite<'_> {
    /// From the log.
    ///
    /// # Errors
    /// Brokers that do not answer now, or refuse: nothing is known then, and another run may try.
    pub(super) async fn out_of_log(&self) -> Outcome<Handle> {
        if let Err(error) = compare(self.host, self.client, self.handle).await {
            return self.unread(error);
        }
        if let Some(why) = self.end_left_open().await? {
            return Ok(Err(why));
        }
        let version = self.client.transaction_version().await;
        let version = version.map_err(|error| JobError::kafka(self.attempted(), error))?;
        let mut producer = self.producer(version);
        for part in &self.handle.partitions {
            let topic = match producer.topic(&part.topic).await {
                Ok(topic) => topic,
                Err(error) => return self.unwritten(error),
            };
            if topic.topic_id() != part.topic_id {
                return Ok(Err(format!(
                    "topic {} was deleted and made again since: {} then, {} now",
                    part.topic,
                    part.topic_id,
                    topic.topic_id()
                )));
            }
            let to = Destination { topic: &topic, partition: Some(part.partition) };
            let mut reader = self.reader(part);
            loop {
                match reader.next().await {
                    Ok(Some(records)) => {
                        for view in records.views() {
                            if let Err(error) = producer.write(to, as_it_was(&records, view)).await {
                                return self.unwritten(error);
                            }
                        }
                    }
                    Ok(None) => break,
                    Err(error) => return self.unread(error),
                }
            }
        }
        self.prepared(producer, version).await
    }

    /// Before anything is written under the fresh identity, what partitions still hold open of its producer is ended: its
    /// next commit there would make those records visible (KAFKA-20734). A reason, where that may not be done.
    async fn end_left_open(&self) -> Result<Option<String>, JobError> {
        let id = self.handle.lane.transactional_id(&self.handle.transactional_id.job, self.epoch).to_string();
        for part in &self.handle.partitions {
            let own = |producer| (producer == self.identity.producer_id).then(|| id.clone());
            match transaction::end_left_open(self.client, &part.topic, part.partition, own).await {
                Ok(()) => {}
                Err(LeftOpen::Refused(refused)) => return Ok(Some(refused.to_string())),
                Err(LeftOpen::Unanswered(error)) => return Err(JobError::kafka(self.attempted(), error)),
            }
        }
        Ok(None)
    }

    fn reader<'b>(&'b self, part: &'b HandlePartition) -> WrittenReader<'b> {
        reader(self.host, self.client, self.handle, part)
    }

    fn producer(&self, transaction_version: TransactionVersion) -> LaneProducer {
        let config = ProducerConfig {
            delivery_timeout: Some(self.timeout),
            transaction_version,
            transactional: true,
            ..ProducerConfig::default()
        };
        let mut producer = LaneProducer::start(self.client.clone(), config);
        let id = self.handle.lane.transactional_id(&self.handle.transactional_id.job, self.epoch);
        producer.open(self.epoch, OpenAs::Transaction { transactional_id: id, identity: self.identity });
        producer
    }

    /// Waits for every acknowledgement, and compares what was written with what was aborted.
    async fn prepared(&self, mut producer: LaneProducer, version: TransactionVersion) -> Outcome<Handle> {
        let flushed = match producer.flush().await {
            Ok(flushed) => flushed,
            Err(error) => return self.unwritten(error),
        };
        let (started_ms, _) = flushed.started.expect("a handle has records");
        let old: BTreeMap<_, _> = self.handle.partitions.iter().map(|part| (place(part), part)).collect();
        let mut partitions = Vec::new();
        for part in flushed.partitions {
            let part = HandlePartition {
                topic: part.topic,
                topic_id: part.topic_id,
                partition: part.partition,
                first_offset: part.first_offset,
                last_offset: part.last_offset,
                count: part.count,
                digest: Some(part.digest),
            };
            let same = old.get(&place(&part)).is_some_and(|old| {
                old.count == part.count && old.digest.is_none_or(|digest| Some(digest) == part.digest)
            });
            if !same {
                return Ok(Err(format!(
                    "what was written to {}-{} again differs",
                    part.topic, part.partition
                )));
            }
            partitions.push(part);
        }
        if partitions.len() != old.len() {
            return Ok(Err("not every partition was written again".into()));
        }
        let timeout_ms = i64::try_from(self.timeout.as_millis()).unwrap_or(i64::MAX);
        Ok(Ok(Handle {
            transactional_id: self
                .handle
                .lane
                .transactional_id(&self.handle.transactional_id.job, self.epoch),
            identity: self.identity,
            version,
            epoch: self.epoch,
            started_ms,
            deadline_ms: started_ms.saturating_add(timeout_ms),
            partitions,
            ..self.handle.clone()
        }))
    }

    fn attempted(&self) -> String {
        format!("writing {} of epoch {} again", self.handle.transactional_id, self.handle.epoch)
    }

    fn unread(&self, error: WrittenError) -> Outcome<Handle> {
        unread(self.attempted(), error)
    }

    /// What a topic refuses it refuses the next time, too; the rest ends the run.
    fn unwritten(&self, error: ProduceError) -> Outcome<Handle> {
        if error.is_bad_record() || error.is_refusal() || matches!(error, ProduceError::UnknownTopic { .. }) {
            return Ok(Err(with_causes(&error)));
        }
        Err(JobError::writing(error))
    }
}

fn place(part: &HandlePartition) -> (String, i32) {
    (part.topic.clone(), part.partition)
}

fn reader<'a>(
    host: &Host,
    client: &'a Client,
    handle: &Handle,
    part: &'a HandlePartition,
) -> WrittenReader<'a> {
    // A broker that is away has lost nothing: it is waited for, and each wait is told.
    WrittenReader::new(client, handle.identity, part, Deadline::after(host.now(), None))
}

/// Reads everything that a transaction has written, and compares it with its handle.
///
/// # Errors
/// It is not all there, or could not be read now.
pub(super) async fn compare(host: &Host, client: &Client, handle: &Handle) -> Result<(), WrittenError> {
    for part in &handle.partitions {
        let mut reader = reader(host, client, handle, part);
        while reader.next().await?.is_some() {}
    }
    Ok(())
}

/// What is not there for good is a reason to pass a strategy over; the rest ends the run.
fn unread<T>(attempted: String, error: WrittenError) -> Outcome<T> {
    if error.is_final() {
        return Ok(Err(with_causes(&error)));
    }
    match error {
        WrittenError::Fetch(error) => Err(JobError::fetching(error)),
        WrittenError::Gone { .. } | WrittenError::Incomplete { .. } => {
            Err(JobError::Bug { what: format!("{attempted}: {error}") })
        }
    }
}

/// A record as it stands in the log.
fn as_it_was<'a>(records: &'a Records, view: &RecordView) -> RecordRef<'a> {
    RecordRef {
        key: records.key(view),
        value: records.value(view),
        headers: Headers::Encoded(records.encoded_headers(view)),
        timestamp: view.timestamp,
    }
}

/// Writes the records of aborted transactions into a new file, a line of JSON each.
///
/// # Errors
/// Brokers or the file system do not answer now.
pub(super) async fn set_aside(host: &Host, clients: &[(Client, Handle)], path: &Path) -> Outcome<()> {
    for (client, handle) in clients {
        if let Err(error) = compare(host, client, handle).await {
            return unread(format!("setting {} aside", handle.transactional_id), error);
        }
    }
    let failed = |error: io::Error| JobError::Run {
        code: Code::Machine,
        message: format!("setting records aside in {}: {error}", path.display()),
    };
    if let Some(folder) = path.parent() {
        host.files().create_dir_all(folder).map_err(failed)?;
    }
    let mut file = host.files().create_new(path).map_err(failed)?;
    let written = write_lines(host, clients, &mut *file, &failed).await;
    if !matches!(written, Ok(Ok(()))) {
        // A part of the records looks like all of them.
        let _ = host.files().remove(path);
    }
    written
}

async fn write_lines(
    host: &Host,
    clients: &[(Client, Handle)],
    file: &mut dyn OpenFile,
    failed: &(dyn Fn(io::Error) -> JobError + Sync),
) -> Outcome<()> {
    for (client, handle) in clients {
        for part in &handle.partitions {
            let mut reader = reader(host, client, handle, part);
            loop {
                match reader.next().await {
                    Ok(Some(records)) => {
                        let mut text = Vec::new();
                        for view in records.views() {
                            text.extend_from_slice(line(handle, part, &records, view).to_string().as_bytes());
                            text.push(b'\n');
                        }
                        file.write_all(&text).map_err(failed)?;
                    }
                    Ok(None) => break,
                    Err(error) => return unread(format!("setting {} aside", handle.transactional_id), error),
                }
            }
        }
    }
    file.sync().map_err(failed)?;
    Ok(Ok(()))
}

/// One record, with all that is needed to write it again. Bytes that are not UTF-8 stand in Base64 under another name.
fn line(handle: &Handle, part: &HandlePartition, records: &Records, view: &RecordView) -> Value {
    let mut line = json!({
        "cluster_id": handle.cluster_id,
        "epoch": handle.epoch.0,
        "topic": part.topic,
        "partition": part.partition,
        "offset": view.offset,
        "timestamp": view.timestamp,
    });
    put_bytes(&mut line, "key", records.key(view));
    put_bytes(&mut line, "value", records.value(view));
    let header = |(key, value): (&[u8], Option<&[u8]>)| {
        let mut one = json!({});
        put_bytes(&mut one, "key", Some(key));
        put_bytes(&mut one, "value", value);
        one
    };
    line["headers"] = records.headers(view).map(header).collect();
    line
}

fn put_bytes(line: &mut Value, name: &str, bytes: Option<&[u8]>) {
    match bytes.map(|bytes| (bytes, std::str::from_utf8(bytes))) {
        None => line[name] = Value::Null,
        Some((_, Ok(text))) => line[name] = text.into(),
        Some((bytes, Err(_))) => line[format!("{name}_base64")] = STANDARD.encode(bytes).into(),
    }
}
