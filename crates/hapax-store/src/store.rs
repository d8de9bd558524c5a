//! A store and its job records.
//!
//! A job record is put before the first record is read and never changes; it anchors every later put, so that an
//! unmounted volume is not taken for an empty one.

use crate::{
    chain::Chain,
    error::StoreError,
    journal::Journals,
    layout::{self, Incarnation},
    limits::Patience,
    local,
    object::{Objects, Settled, Sleep},
    positions::PositionObjects,
};
use bytes::Bytes;
use hapax_commit::{JobRecord, Name, RunNonce};
use object_store::{ObjectStore, path::Path};
use std::sync::Arc;

/// A checkpoint store. Cheap to clone; clones share what they know of requests that are still under way.
#[derive(Clone, Debug)]
pub struct Store {
    objects: Arc<Objects>,
    root: Path,
}

/// A job record as found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredJob {
    /// Which life of the job it begins.
    pub incarnation: Incarnation,
    /// What it says.
    pub record: JobRecord,
}

/// Whose job record is there now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Created {
    /// The one that was offered.
    Mine(Incarnation),
    /// Another.
    Existed(Box<StoredJob>),
}

/// What a store holds at its root.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Survey {
    /// Jobs with a job record, sorted.
    pub jobs: Vec<Name>,
    /// Names that are not ours, sorted.
    pub foreign: Vec<String>,
}

impl Survey {
    /// Is there nothing at all?
    pub fn is_empty(&self) -> bool {
        self.jobs.is_empty() && self.foreign.is_empty()
    }
}

impl Store {
    /// Opens `file:///absolute/path` (the last folder is made where it is missing, readable by its owner only) or
    /// `memory://` (gone with the process: for tests). Touches the disk on the calling thread.
    ///
    /// # Errors
    /// [`StoreError::Address`], [`StoreError::Root`].
    pub fn open(url: &str, patience: Patience, sleep: Sleep) -> Result<Self, StoreError> {
        let (store, name) = local::open(url)?;
        Ok(Self::new(store, name, patience, sleep))
    }

    /// A store over any object store, which must honour `PutMode::Create` ([`Store::probe`]). `name` is put before
    /// paths in messages.
    pub fn from_object_store(
        store: Arc<dyn ObjectStore>,
        name: &str,
        patience: Patience,
        sleep: Sleep,
    ) -> Self {
        Self::new(store, name.to_owned(), patience, sleep)
    }

    fn new(store: Arc<dyn ObjectStore>, name: String, patience: Patience, sleep: Sleep) -> Self {
        Self { objects: Arc::new(Objects::new(store, name, patience, sleep)), root: Path::default() }
    }

    /// Finds out whether the store really creates only: some that speak S3 ignore the condition. To be called
    /// before a job is created, with the nonce of the run.
    ///
    /// # Errors
    /// [`StoreError::NotCreateOnly`], or as the store fails.
    pub async fn probe(&self, run: RunNonce) -> Result<(), StoreError> {
        let path = layout::probe(&self.root, run);
        let [first, second] = ["first", "second"].map(|text| Bytes::from(format!("{text} {run}")));
        if let Settled::Unknown(error) = self.objects.offer(&path, &first, None).await {
            return Err(error);
        }
        let refused = match self.objects.create(&path, &second).await {
            Ok(()) => false,
            Err(error) if error.says_exists() => true,
            Err(error) => return Err(error),
        };
        let kept = self.objects.get(&path).await? == Some(first);
        self.objects.remove(&path).await?;
        if refused && kept {
            Ok(())
        } else {
            Err(StoreError::NotCreateOnly { path: self.objects.label(&path) })
        }
    }

    /// What stands at the root: another job's folder is not for this one, and a folder that was expected to hold
    /// a job and is empty is probably a volume that is not mounted.
    ///
    /// # Errors
    /// As the store fails.
    pub async fn survey(&self) -> Result<Survey, StoreError> {
        let names = self.objects.names(&self.root).await?;
        let mut survey = Survey { jobs: Vec::new(), foreign: names.objects };
        for folder in names.folders {
            match Name::new(&folder) {
                Ok(job) if !self.incarnations(&job).await?.is_empty() => survey.jobs.push(job),
                // ext file systems have one at the root of every volume.
                _ if folder == "lost+found" => {}
                _ => survey.foreign.push(folder),
            }
        }
        survey.jobs.sort();
        survey.foreign.sort();
        Ok(survey)
    }

    /// The job record of the newest incarnation; `None` for a job that the store does not know.
    ///
    /// # Errors
    /// Damaged, newer or another job's record; or as the store fails.
    pub async fn job(&self, job: &Name) -> Result<Option<StoredJob>, StoreError> {
        for incarnation in self.incarnations(job).await? {
            let path = layout::job_record(&self.root, job, incarnation);
            // A folder without a record is what a crash leaves that came before the first put.
            if let Some(bytes) = self.objects.get(&path).await? {
                let record = self.parse(job, &path, &bytes)?;
                return Ok(Some(StoredJob { incarnation, record }));
            }
        }
        Ok(None)
    }

    /// Puts the job record of a job that the store does not know.
    ///
    /// # Errors
    /// As [`Store::job`]; where the outcome stays unknown the same call with the same record settles it.
    pub async fn create_job(&self, record: &JobRecord) -> Result<Created, StoreError> {
        match self.job(&record.job).await? {
            Some(stored) if stored.record == *record => Ok(Created::Mine(stored.incarnation)),
            Some(stored) => Ok(Created::Existed(Box::new(stored))),
            None => self.put_job(record, Incarnation::FIRST).await,
        }
    }

    /// Begins the incarnation after `current` (`--fresh`): new record, empty chains, positions from the record's
    /// genesis. Nothing of `current` is moved or removed. Of two that try at once one wins.
    ///
    /// The caller puts a claim behind the end of every chain of `current` first ([`Chain::last_number`] finds the
    /// end also where slots are damaged): without it a run of `current` that sleeps would go on beside the new one.
    ///
    /// # Errors
    /// As [`Store::create_job`].
    pub async fn begin_again(&self, record: &JobRecord, current: Incarnation) -> Result<Created, StoreError> {
        self.put_job(record, current.next()).await
    }

    /// The newest incarnation that left anything, with or without a record that can be read: the next life of the job
    /// must be a later one, or it would find slots that are not its own.
    ///
    /// # Errors
    /// As the store fails.
    pub async fn newest_incarnation(&self, job: &Name) -> Result<Option<Incarnation>, StoreError> {
        Ok(self.incarnations(job).await?.first().copied())
    }

    /// A cohort's chain. Touches nothing.
    pub fn chain(&self, job: &Name, incarnation: Incarnation, cohort: u32) -> Chain {
        let folder = layout::chain_folder(&self.root, job, incarnation, cohort);
        let anchor = layout::job_record(&self.root, job, incarnation);
        Chain::new(Arc::clone(&self.objects), folder, anchor)
    }

    /// A cohort's journals. Touches nothing.
    pub fn journals(&self, job: &Name, incarnation: Incarnation, cohort: u32) -> Journals {
        let folder = layout::journal_folder(&self.root, job, incarnation, cohort);
        let anchor = layout::job_record(&self.root, job, incarnation);
        Journals::new(Arc::clone(&self.objects), folder, anchor)
    }

    /// A job's objects with positions. Touches nothing.
    pub fn positions(&self, job: &Name, incarnation: Incarnation) -> PositionObjects {
        let folder = layout::positions_folder(&self.root, job, incarnation);
        let anchor = layout::job_record(&self.root, job, incarnation);
        PositionObjects::new(Arc::clone(&self.objects), folder, anchor)
    }

    async fn put_job(&self, record: &JobRecord, incarnation: Incarnation) -> Result<Created, StoreError> {
        let path = layout::job_record(&self.root, &record.job, incarnation);
        let bytes = Bytes::from(record.to_bytes());
        match self.objects.offer(&path, &bytes, None).await {
            Settled::Stored => {
                let folder = layout::job_folder(&self.root, &record.job).join(incarnation.to_string());
                self.objects.sync_up(&folder).await?;
                Ok(Created::Mine(incarnation))
            }
            Settled::Other(found) => {
                let record = self.parse(&record.job, &path, &found)?;
                Ok(Created::Existed(Box::new(StoredJob { incarnation, record })))
            }
            Settled::Unknown(error) => Err(error),
        }
    }

    fn parse(&self, job: &Name, path: &Path, bytes: &Bytes) -> Result<JobRecord, StoreError> {
        let record = JobRecord::from_bytes(bytes)
            .map_err(|damage| StoreError::from_bytes(self.objects.label(path), damage))?;
        if record.job == *job {
            return Ok(record);
        }
        let why =
            format!("it is the record of job {:?} in the folder of {:?}", record.job.as_str(), job.as_str());
        Err(StoreError::Misplaced { path: self.objects.label(path), why })
    }

    /// Incarnations that have a folder, newest first.
    async fn incarnations(&self, job: &Name) -> Result<Vec<Incarnation>, StoreError> {
        let names = self.objects.names(&layout::job_folder(&self.root, job)).await?;
        let mut found: Vec<_> = names.folders.iter().filter_map(|name| layout::incarnation(name)).collect();
        found.sort_unstable_by(|a, b| b.cmp(a));
        Ok(found)
    }
}
