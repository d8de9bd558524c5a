//! A store that fails: what it does to the next requests is scripted, and how often it did so is counted.

use async_trait::async_trait;
use futures::stream::BoxStream;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, PutMode,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result, path::Path,
};
use std::{
    collections::VecDeque,
    fmt, io,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
};

/// What happens to a create.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Put {
    /// As asked.
    Pass,
    /// Applied, then an error.
    ApplyThenFail,
    /// Applied, then a retry inside the client is refused by what the first try left.
    ApplyThenExists,
    /// Nothing applied, "already exists" all the same: S3's 409.
    ExistsButEmpty,
    /// An error now; applied right before the next create of the same slot.
    LandSoon,
    /// An error now; applied when [`FaultyStore::land`] is called.
    LandWhenTold,
    /// No answer at all; applied when [`FaultyStore::land`] is called.
    Hang,
    /// Nothing applied: no space.
    Full,
    /// Nothing applied: read-only.
    ReadOnly,
}

/// What happens to a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Get {
    Pass,
    Fail,
    Hang,
}

#[derive(Debug)]
pub(crate) struct FaultyStore {
    inner: Arc<dyn ObjectStore>,
    puts: Mutex<VecDeque<Put>>,
    gets: Mutex<VecDeque<Get>>,
    late: Mutex<Vec<Late>>,
    syncs_that_fail: AtomicU32,
    /// Creates that reached the store.
    pub(crate) creates: AtomicU32,
    /// Faults that happened.
    pub(crate) fired: AtomicU32,
    /// Listings asked for.
    pub(crate) lists: AtomicU32,
}

/// A create that is still under way.
#[derive(Debug)]
struct Late {
    path: Path,
    payload: PutPayload,
    before_next_put: bool,
}

impl FaultyStore {
    /// Faults strike creates and reads of slots only, in the given order; afterwards all is well.
    pub(crate) fn new(inner: Arc<dyn ObjectStore>, puts: &[Put], gets: &[Get]) -> Arc<Self> {
        Arc::new(Self {
            inner,
            puts: Mutex::new(puts.iter().copied().collect()),
            gets: Mutex::new(gets.iter().copied().collect()),
            late: Mutex::default(),
            syncs_that_fail: AtomicU32::new(0),
            creates: AtomicU32::new(0),
            fired: AtomicU32::new(0),
            lists: AtomicU32::new(0),
        })
    }

    pub(crate) fn fail_syncs(&self, count: u32) {
        self.syncs_that_fail.store(count, Ordering::SeqCst);
    }

    /// Requests that were under way arrive now.
    pub(crate) async fn land(&self) {
        let late = self.late.lock().unwrap().drain(..).collect();
        self.apply(late).await;
    }

    async fn apply(&self, late: Vec<Late>) {
        for Late { path, payload, .. } in late {
            let _ = self.inner.put_opts(&path, payload, PutMode::Create.into()).await;
        }
    }

    fn keep(&self, path: &Path, payload: PutPayload, before_next_put: bool) {
        self.late.lock().unwrap().push(Late { path: path.clone(), payload, before_next_put });
    }

    fn next<T>(&self, script: &Mutex<VecDeque<T>>, pass: T) -> T
    where
        T: PartialEq + Copy,
    {
        let next = script.lock().unwrap().pop_front().unwrap_or(pass);
        if next != pass {
            self.fired.fetch_add(1, Ordering::SeqCst);
        }
        next
    }

    fn error(kind: io::ErrorKind) -> Error {
        Error::Generic { store: "faulty", source: Box::new(io::Error::from(kind)) }
    }

    fn exists(path: &Path) -> Error {
        Error::AlreadyExists { path: path.to_string(), source: "refused".into() }
    }

    async fn create(&self, path: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        self.creates.fetch_add(1, Ordering::SeqCst);
        let before: Vec<_> = {
            let mut late = self.late.lock().unwrap();
            late.extract_if(.., |late| late.before_next_put && late.path == *path).collect()
        };
        self.apply(before).await;
        match self.next(&self.puts, Put::Pass) {
            Put::Pass => self.inner.put_opts(path, payload, options).await,
            Put::ApplyThenFail => {
                self.inner.put_opts(path, payload, options).await?;
                Err(Self::error(io::ErrorKind::ConnectionReset))
            }
            Put::ApplyThenExists => {
                self.inner.put_opts(path, payload, options).await?;
                Err(Self::exists(path))
            }
            Put::ExistsButEmpty => Err(Self::exists(path)),
            put @ (Put::LandSoon | Put::LandWhenTold) => {
                self.keep(path, payload, put == Put::LandSoon);
                Err(Self::error(io::ErrorKind::TimedOut))
            }
            Put::Hang => {
                self.keep(path, payload, false);
                std::future::pending().await
            }
            Put::Full => Err(Self::error(io::ErrorKind::StorageFull)),
            Put::ReadOnly => Err(Self::error(io::ErrorKind::ReadOnlyFilesystem)),
        }
    }
}

/// A slot, or a part of a journal.
fn is_slot(path: &Path) -> bool {
    ["/chain/", "/journal/"].iter().any(|folder| path.as_ref().contains(folder))
        && path.filename().is_some_and(|name| !name.starts_with('.'))
}

#[async_trait]
impl ObjectStore for FaultyStore {
    async fn put_opts(&self, path: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        if is_slot(path) && options.mode == PutMode::Create {
            return self.create(path, payload, options).await;
        }
        let due = self.syncs_that_fail.load(Ordering::SeqCst);
        if path.filename() == Some(".sync") && due > 0 {
            self.syncs_that_fail.store(due - 1, Ordering::SeqCst);
            self.fired.fetch_add(1, Ordering::SeqCst);
            return Err(Self::error(io::ErrorKind::Other));
        }
        self.inner.put_opts(path, payload, options).await
    }

    async fn put_multipart_opts(
        &self,
        path: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(path, options).await
    }

    async fn get_opts(&self, path: &Path, options: GetOptions) -> Result<GetResult> {
        if is_slot(path) {
            // Others may come in between any two reads.
            tokio::task::yield_now().await;
            match self.next(&self.gets, Get::Pass) {
                Get::Pass => {}
                Get::Fail => return Err(Self::error(io::ErrorKind::ConnectionReset)),
                Get::Hang => std::future::pending().await,
            }
        }
        self.inner.get_opts(path, options).await
    }

    fn delete_stream(&self, paths: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.inner.delete_stream(paths)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.lists.fetch_add(1, Ordering::SeqCst);
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}

impl fmt::Display for FaultyStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("faulty")
    }
}
