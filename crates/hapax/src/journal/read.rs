//! Reads a journal from its first record to its last, a bounded part of it at a time.

use hapax_commit::Journal;
use hapax_store::{
    Journals, StoreError,
    journal::{PartReader, Rows},
};

/// A journal that is being read.
pub(crate) struct JournalReader<'a> {
    journals: &'a Journals,
    journal: &'a Journal,
    part: usize,
    open: Option<PartReader>,
}

impl<'a> JournalReader<'a> {
    pub(crate) fn new(journals: &'a Journals, journal: &'a Journal) -> Self {
        Self { journals, journal, part: 0, open: None }
    }

    /// The next records; `None` behind the last. Or why the journal cannot be used.
    ///
    /// # Errors
    /// The store fails: another run may try.
    pub(crate) async fn next(&mut self) -> Result<Result<Option<Rows>, String>, StoreError> {
        loop {
            if let Some(open) = &mut self.open {
                match open.next_rows() {
                    Ok(Some(rows)) => return Ok(Ok(Some(rows))),
                    Ok(None) => self.open = None,
                    Err(why) => return Ok(Err(self.refused(&why))),
                }
                self.part += 1;
            }
            if self.part == self.journal.parts.len() {
                return Ok(Ok(None));
            }
            let bytes = match self.journals.get(self.journal, self.part).await {
                Ok(Ok(bytes)) => bytes,
                Ok(Err(why)) => return Ok(Err(why)),
                Err(error) if error.is_damage() => return Ok(Err(error.to_string())),
                Err(error) => return Err(error),
            };
            match PartReader::open(bytes) {
                Ok(open) => self.open = Some(open),
                Err(why) => return Ok(Err(self.refused(&why))),
            }
        }
    }

    fn refused(&self, why: &str) -> String {
        format!("part {} of the journal cannot be read: {why}", self.part)
    }
}
