//! A build without journals: there is none that could be written, and none that could be read.

use super::JournalPlace;
use crate::sink::SinkError;
use hapax_commit::{Epoch, Journal, LaneId};
use hapax_host::Host;
use hapax_kafka::record::RecordRef;
use hapax_store::{Journals, StoreError, journal::Row};

/// Never there: a plan that asks for a journal is refused.
pub(crate) enum Recorder {}

impl Recorder {
    pub(crate) fn begin(_: &Host, _: &JournalPlace, lane: LaneId, _: Epoch) -> Self {
        unreachable!("lane {lane} keeps no journal: the plan was refused")
    }

    pub(crate) async fn append(&mut self, _: &str, _: i32, _: &RecordRef<'_>) -> Result<(), SinkError> {
        match *self {}
    }

    pub(crate) async fn finish(self) -> Result<Journal, SinkError> {
        match self {}
    }
}

/// Records of a journal, of which none can be read.
pub(crate) enum Rows {}

impl Rows {
    pub(crate) fn iter(&self) -> std::iter::Empty<Row<'_>> {
        match *self {}
    }
}

/// Refuses every journal.
pub(crate) struct JournalReader<'a>(&'a Journal);

impl<'a> JournalReader<'a> {
    pub(crate) fn new(_: &'a Journals, journal: &'a Journal) -> Self {
        Self(journal)
    }

    pub(crate) async fn next(&mut self) -> Result<Result<Option<Rows>, String>, StoreError> {
        Ok(Err(format!(
            "this build of hapax cannot read the journal of lane {}: feature `journal`",
            self.0.lane
        )))
    }
}
