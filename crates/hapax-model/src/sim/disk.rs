//! The checkpoint store of a world: one that every process reaches over its own unsteady way.
//!
//! A put lands whether or not somebody waits for it still: it is a task of the store, not of the process. A process that
//! sleeps gets its answer when it wakes.

use super::{
    fault::Kind,
    process::{self, Process},
    scenario::DiskTrouble,
    trace::{Trace, now, waiting},
};
use async_trait::async_trait;
use futures::{StreamExt, stream::BoxStream};
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result, memory::InMemory, path::Path,
};
use std::{
    collections::BTreeMap,
    fmt, io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::{
    sync::oneshot,
    time::{Instant, sleep},
};

/// The store behind every way to it. Cheap to clone.
#[derive(Clone)]
pub(super) struct Disk(Arc<Inner>);

struct Inner {
    trace: Trace,
    trouble: DiskTrouble,
    state: Mutex<State>,
}

struct State {
    random: fastrand::Rng,
    /// What each job has put: a store belongs to one.
    jobs: BTreeMap<&'static str, Arc<InMemory>>,
    stormy: bool,
    full_until: Option<Instant>,
}

/// What becomes of a put.
enum Fate {
    Done,
    Failed(io::ErrorKind),
    AnswerLost,
    SaidToExist,
}

impl Disk {
    pub(super) fn new(trace: Trace, trouble: DiskTrouble, random: fastrand::Rng) -> Self {
        let state = State { random, jobs: BTreeMap::new(), stormy: true, full_until: None };
        Self(Arc::new(Inner { trace, trouble, state: Mutex::new(state) }))
    }

    /// No faults from now on.
    pub(super) fn heal(&self) {
        let mut state = self.state();
        (state.stormy, state.full_until) = (false, None);
    }

    /// No room for a while.
    pub(super) fn fill(&self, time: Duration) {
        self.state().full_until = Some(now() + time);
    }

    /// A process's way to what is its job's.
    pub(super) fn seen_by(&self, process: &Process, job: &'static str) -> Arc<dyn ObjectStore> {
        let objects = self.state().jobs.entry(job).or_default().clone();
        Arc::new(Mount { disk: self.clone(), objects, process: process.number() })
    }

    fn late(&self, what: &str, path: Option<&Path>) -> Duration {
        let trouble = &self.0.trouble;
        let mut state = self.state();
        let mut late = waiting(&mut state.random, trouble.latency);
        let is_slow = state.stormy && state.random.f64() < trouble.slow;
        if is_slow {
            late += waiting(&mut state.random, trouble.slow_by);
        }
        drop(state);
        if is_slow {
            let path = path.map_or("", Path::as_ref);
            self.0.trace.fired(Kind::SlowStore, format_args!("{what} {path} by {late:?}"));
        }
        late
    }

    fn fate(&self) -> Fate {
        let trouble = &self.0.trouble;
        let mut state = self.state();
        if state.full_until.is_some_and(|until| now() < until) {
            return Fate::Failed(io::ErrorKind::StorageFull);
        }
        if !state.stormy {
            return Fate::Done;
        }
        let (fails, lost) = (state.random.f64() < trouble.fails, state.random.f64() < trouble.answer_lost);
        match (fails, lost, state.random.bool()) {
            (true, ..) => Fate::Failed(io::ErrorKind::ConnectionReset),
            (_, true, true) => Fate::AnswerLost,
            (_, true, false) => Fate::SaidToExist,
            (false, false, _) => Fate::Done,
        }
    }

    async fn put(
        self,
        objects: Arc<InMemory>,
        process: u32,
        path: Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        let late = self.late("put", Some(&path));
        // The way there and the way back.
        sleep(late / 2).await;
        let trace = &self.0.trace;
        let fate = self.fate();
        let answer = match &fate {
            Fate::Failed(kind) => {
                let of = if *kind == io::ErrorKind::StorageFull { Kind::StoreFull } else { Kind::StoreFails };
                trace.fired(of, format_args!("put {path} of process {process}"));
                return Err(failed(*kind));
            }
            Fate::Done | Fate::AnswerLost | Fate::SaidToExist => {
                let put = objects.put_opts(&path, payload, options).await;
                trace.event(format_args!("put {path} of process {process}: {}", put.is_ok()));
                put?
            }
        };
        sleep(late / 2).await;
        match fate {
            Fate::Done | Fate::Failed(_) => Ok(answer),
            Fate::AnswerLost => {
                trace.fired(Kind::StoreAnswerLost, format_args!("put {path} of process {process}"));
                Err(failed(io::ErrorKind::ConnectionReset))
            }
            Fate::SaidToExist => {
                trace.fired(
                    Kind::StoreAnswerLost,
                    format_args!("put {path} of process {process}, said to exist"),
                );
                Err(Error::AlreadyExists { path: path.to_string(), source: "refused".into() })
            }
        }
    }

    /// Before anything that is no put: it takes its time, and may fail.
    async fn reached(&self, what: &str, path: Option<&Path>) -> Result<()> {
        sleep(self.late(what, path)).await;
        let fails = {
            let mut state = self.state();
            state.stormy && state.random.f64() < self.0.trouble.fails
        };
        if fails {
            let path = path.map_or("", Path::as_ref);
            self.0.trace.fired(Kind::StoreFails, format_args!("{what} {path}"));
            return Err(failed(io::ErrorKind::ConnectionReset));
        }
        Ok(())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn failed(kind: io::ErrorKind) -> Error {
    Error::Generic { store: "simulated", source: Box::new(io::Error::from(kind)) }
}

struct Mount {
    disk: Disk,
    objects: Arc<InMemory>,
    process: u32,
}

#[async_trait]
impl ObjectStore for Mount {
    async fn put_opts(&self, path: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        let (answer, answered) = oneshot::channel();
        let put = self.disk.clone().put(self.objects.clone(), self.process, path.clone(), payload, options);
        process::spawn(async move {
            let _ = answer.send(put.await);
        });
        answered.await.unwrap_or_else(|_| Err(failed(io::ErrorKind::ConnectionAborted)))
    }

    async fn put_multipart_opts(&self, _: &Path, _: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        Err(failed(io::ErrorKind::Unsupported))
    }

    async fn get_opts(&self, path: &Path, options: GetOptions) -> Result<GetResult> {
        self.disk.reached("get", Some(path)).await?;
        self.objects.get_opts(path, options).await
    }

    fn delete_stream(&self, paths: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let (disk, objects) = (self.disk.clone(), self.objects.clone());
        let one = move |path: Result<Path>| {
            let (disk, objects) = (disk.clone(), objects.clone());
            async move {
                let path = path?;
                disk.reached("delete", Some(&path)).await?;
                let one = Box::pin(futures::stream::iter([Ok(path.clone())]));
                let mut gone = objects.delete_stream(one);
                gone.next().await.unwrap_or(Ok(path))
            }
        };
        paths.then(one).boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.objects.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.disk.reached("list", prefix).await?;
        self.objects.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, _: &Path, _: &Path, _: CopyOptions) -> Result<()> {
        Err(failed(io::ErrorKind::Unsupported))
    }
}

impl fmt::Debug for Mount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mount({})", self.process)
    }
}

impl fmt::Display for Mount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("simulated")
    }
}
