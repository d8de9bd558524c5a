//! The store and its script.

use async_trait::async_trait;
use futures::stream::BoxStream;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result, path::Path,
};
use std::{
    collections::VecDeque,
    fmt, io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// Puts that may be under way at once. Each holds its bytes.
const MOST_LATE: usize = 10_000;

/// What happens to a put.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// As asked.
    Pass,
    /// Applied, and the answer is an error: the connection broke.
    AppliedButFailed,
    /// Applied, and the answer is "already exists": a retry inside the client met what its own first try left.
    AppliedButExists,
    /// Not applied, and the answer is an error.
    Failed,
    /// Not applied, and the answer is "already exists" although nothing is there: S3's 409.
    ExistsButEmpty,
    /// A time-out now; applied right before the next put to the same path.
    LandsBeforeNext,
    /// A time-out now; applied when [`FaultyStore::land`] is called.
    LandsWhenTold,
    /// No answer at all; applied when [`FaultyStore::land`] is called.
    Hangs,
    /// Not applied: no space is left.
    Full,
    /// Not applied: the store is read-only.
    ReadOnly,
}

type Selects = dyn Fn(&Path, &PutOptions) -> bool + Send + Sync;

/// An object store that fails as it is told.
pub struct FaultyStore {
    inner: Arc<dyn ObjectStore>,
    selects: Box<Selects>,
    script: Mutex<Script>,
}

#[derive(Debug, Default)]
struct Script {
    next: VecDeque<Outcome>,
    standing: Option<Outcome>,
    late: Vec<Late>,
    seen: u64,
    fired: u64,
}

/// A put that is still under way.
#[derive(Debug)]
struct Late {
    path: Path,
    payload: PutPayload,
    options: PutOptions,
    before_next: bool,
}

impl FaultyStore {
    /// In front of a store; the script is for every put.
    pub fn new(inner: Arc<dyn ObjectStore>) -> Self {
        Self::selecting(inner, |_, _| true)
    }

    /// In front of a store; the script is for the puts that are selected, and the others go through.
    pub fn selecting(
        inner: Arc<dyn ObjectStore>,
        selects: impl Fn(&Path, &PutOptions) -> bool + Send + Sync + 'static,
    ) -> Self {
        Self { inner, selects: Box::new(selects), script: Mutex::default() }
    }

    /// What happens to the next puts, after what was scripted before.
    pub fn script(&self, outcomes: impl IntoIterator<Item = Outcome>) {
        self.state().next.extend(outcomes);
    }

    /// What happens to every put that the script says nothing of; `None` heals the store.
    pub fn always(&self, outcome: Option<Outcome>) {
        self.state().standing = outcome;
    }

    /// Puts that are under way arrive now, in their order. What the inner store answers, nobody hears.
    pub async fn land(&self) {
        let late = std::mem::take(&mut self.state().late);
        self.arrive(late).await;
    }

    /// How many selected puts came.
    pub fn seen(&self) -> u64 {
        self.state().seen
    }

    /// How many did not go as asked.
    pub fn fired(&self) -> u64 {
        self.state().fired
    }

    /// What is scripted and has not happened: a test that ends with some of it has proved less than it says.
    pub fn unfired(&self) -> Vec<Outcome> {
        self.state().next.iter().copied().filter(|outcome| *outcome != Outcome::Pass).collect()
    }

    fn state(&self) -> MutexGuard<'_, Script> {
        self.script.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn outcome(&self) -> Outcome {
        let mut script = self.state();
        script.seen += 1;
        let outcome = script.next.pop_front().or(script.standing).unwrap_or(Outcome::Pass);
        script.fired += u64::from(outcome != Outcome::Pass);
        outcome
    }

    fn hold(&self, path: &Path, payload: PutPayload, options: PutOptions, before_next: bool) {
        let mut script = self.state();
        if script.late.len() < MOST_LATE {
            script.late.push(Late { path: path.clone(), payload, options, before_next });
        }
    }

    async fn arrive(&self, late: Vec<Late>) {
        for Late { path, payload, options, .. } in late {
            let _ = self.inner.put_opts(&path, payload, options).await;
        }
    }

    async fn scripted(&self, path: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        let due = self.state().late.extract_if(.., |late| late.before_next && late.path == *path).collect();
        self.arrive(due).await;
        match self.outcome() {
            Outcome::Pass => self.inner.put_opts(path, payload, options).await,
            Outcome::AppliedButFailed => {
                self.inner.put_opts(path, payload, options).await?;
                Err(failed(io::ErrorKind::ConnectionReset))
            }
            Outcome::AppliedButExists => {
                self.inner.put_opts(path, payload, options).await?;
                Err(exists(path))
            }
            Outcome::Failed => Err(failed(io::ErrorKind::ConnectionReset)),
            Outcome::ExistsButEmpty => Err(exists(path)),
            Outcome::LandsBeforeNext => {
                self.hold(path, payload, options, true);
                Err(failed(io::ErrorKind::TimedOut))
            }
            Outcome::LandsWhenTold => {
                self.hold(path, payload, options, false);
                Err(failed(io::ErrorKind::TimedOut))
            }
            Outcome::Hangs => {
                self.hold(path, payload, options, false);
                std::future::pending().await
            }
            Outcome::Full => Err(failed(io::ErrorKind::StorageFull)),
            Outcome::ReadOnly => Err(failed(io::ErrorKind::ReadOnlyFilesystem)),
        }
    }
}

fn failed(kind: io::ErrorKind) -> Error {
    Error::Generic { store: "faulty", source: Box::new(io::Error::from(kind)) }
}

fn exists(path: &Path) -> Error {
    Error::AlreadyExists { path: path.to_string(), source: "refused".into() }
}

#[async_trait]
impl ObjectStore for FaultyStore {
    async fn put_opts(&self, path: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        if (self.selects)(path, &options) {
            self.scripted(path, payload, options).await
        } else {
            self.inner.put_opts(path, payload, options).await
        }
    }

    async fn put_multipart_opts(
        &self,
        path: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(path, options).await
    }

    async fn get_opts(&self, path: &Path, options: GetOptions) -> Result<GetResult> {
        self.inner.get_opts(path, options).await
    }

    fn delete_stream(&self, paths: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.inner.delete_stream(paths)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}

impl fmt::Debug for FaultyStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FaultyStore").field("inner", &self.inner).field("script", &self.script).finish()
    }
}

impl fmt::Display for FaultyStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "faulty({})", self.inner)
    }
}
