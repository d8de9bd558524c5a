//! Keeps the records of one lane and epoch while they are written.

use super::JournalPlace;
use crate::sink::SinkError;
use hapax_commit::{Epoch, Journal, LaneId};
use hapax_host::Host;
use hapax_kafka::record::RecordRef;
use hapax_store::{
    Journals, StoreError,
    journal::{FinishedPart, PartWriter, Row},
};
use std::mem;
use tokio::{sync::oneshot, task::AbortHandle};

/// The journal of an open epoch.
pub(crate) struct Recorder {
    host: Host,
    journals: Journals,
    lane: LaneId,
    epoch: Epoch,
    part: PartWriter,
    stored: Stored,
}

/// What is stored so far.
enum Stored {
    Known(Journal),
    /// A part is being put.
    Putting(Putting),
    /// A put has failed, which was told.
    Failed,
}

/// A put that ends with its recorder.
struct Putting {
    task: AbortHandle,
    stored: oneshot::Receiver<Result<Journal, StoreError>>,
}

impl Drop for Putting {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Recorder {
    pub(crate) fn begin(host: &Host, place: &JournalPlace, lane: LaneId, epoch: Epoch) -> Self {
        let journal = Journal { lane: lane.clone(), epoch, generation: place.generation, parts: Vec::new() };
        let part = part(&lane, epoch);
        let (host, journals) = (host.clone(), place.journals.clone());
        Self { host, journals, lane, epoch, part, stored: Stored::Known(journal) }
    }

    /// Adds a record as it was appended to its batch. Waits where two parts are full.
    pub(crate) async fn append(
        &mut self,
        topic: &str,
        partition: i32,
        record: &RecordRef<'_>,
    ) -> Result<(), SinkError> {
        let row = Row {
            topic,
            partition,
            timestamp: record.timestamp,
            key: record.key,
            value: record.value,
            headers: record.headers.iter().collect(),
        };
        self.part.append(&row).map_err(|error| self.unencoded(&error))?;
        if !self.part.is_full() {
            return Ok(());
        }
        let mut journal = self.stored().await?;
        let full = mem::replace(&mut self.part, part(&self.lane, self.epoch));
        let FinishedPart { bytes, records } = full.finish().map_err(|error| self.unencoded(&error))?;
        let journals = self.journals.clone();
        let (tell, stored) = oneshot::channel();
        let task = self.host.spawn(async move {
            let put = journals.put(&mut journal, records, bytes).await;
            // Nobody hears it where the recorder has gone.
            let _ = tell.send(put.map(|()| journal));
        });
        self.stored = Stored::Putting(Putting { task, stored });
        Ok(())
    }

    /// Returns when every part is stored.
    pub(crate) async fn finish(mut self) -> Result<Journal, SinkError> {
        let mut journal = self.stored().await?;
        if self.part.records() > 0 {
            let last = mem::replace(&mut self.part, part(&self.lane, self.epoch));
            let FinishedPart { bytes, records } = last.finish().map_err(|error| self.unencoded(&error))?;
            self.journals.put(&mut journal, records, bytes).await.map_err(|error| self.unstored(error))?;
        }
        Ok(journal)
    }

    /// The journal so far, once no part is being put.
    async fn stored(&mut self) -> Result<Journal, SinkError> {
        match mem::replace(&mut self.stored, Stored::Failed) {
            Stored::Known(journal) => Ok(journal),
            Stored::Putting(mut putting) => {
                let stored = (&mut putting.stored).await;
                stored.expect("a put that does not panic tells its end").map_err(|error| self.unstored(error))
            }
            Stored::Failed => unreachable!("a first failure ends the run"),
        }
    }

    fn unstored(&self, source: StoreError) -> SinkError {
        SinkError::Journal { lane: self.lane.to_string(), epoch: self.epoch, source: Box::new(source) }
    }

    fn unencoded(&self, error: &dyn std::error::Error) -> SinkError {
        SinkError::BadRecord {
            sink: self.lane.cluster.to_string(),
            reason: format!("a record of epoch {} cannot be kept in the journal: {error}", self.epoch),
        }
    }
}

fn part(lane: &LaneId, epoch: Epoch) -> PartWriter {
    PartWriter::new(&[("hapax.lane", lane.to_string()), ("hapax.epoch", epoch.to_string())])
}
