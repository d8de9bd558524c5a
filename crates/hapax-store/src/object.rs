//! Objects that are created once: bounded requests, and what an answer means.
//!
//! Owns the three outcomes of a put. Any answer but success is unknown, `AlreadyExists` too: a store may apply a
//! first try, lose the answer, and refuse its own second one; S3 says the same where a delete came in between and
//! nothing is there. So the object is read: our bytes, somebody else's, or none, and then the *same* bytes are
//! offered again.
//!
//! Durability of a local store: an object's bytes are synced before it gets its name, its folder after. Where the
//! second step failed, or another process made the folder and died, the object is visible and not yet durable;
//! [`Objects::sync`] puts a mark beside it, whose own put syncs the same folder.

use crate::{
    error::StoreError,
    layout,
    limits::{LARGEST_OBJECT, Patience},
};
use bytes::Bytes;
use futures::{
    StreamExt, TryStreamExt,
    future::{BoxFuture, Either, select},
    stream,
};
use object_store::{GetOptions, ObjectStore, PutMode, PutOptions, path::Path};
use std::{
    collections::BTreeSet,
    pin::pin,
    sync::{Arc, Mutex},
    time::Duration,
};

/// How to wait: the store has no clock of its own.
pub type Sleep = Arc<dyn Fn(Duration) -> BoxFuture<'static, ()> + Send + Sync>;

/// What became of an offered object.
#[derive(Debug)]
pub(crate) enum Settled {
    /// It is there, with our bytes, durable.
    Stored,
    /// Other bytes are there.
    Other(Bytes),
    /// Neither is known.
    Unknown(StoreError),
}

/// The names in a folder, hidden ones left out.
#[derive(Debug, Default)]
pub(crate) struct Names {
    pub(crate) objects: Vec<String>,
    pub(crate) folders: Vec<String>,
}

pub(crate) struct Objects {
    store: Arc<dyn ObjectStore>,
    /// What messages put before a path.
    name: String,
    patience: Patience,
    sleep: Sleep,
    /// Objects with a request that may still be under way: it could bring them back after their removal. One
    /// entry for each put that had trouble.
    late: Mutex<BTreeSet<Path>>,
}

impl Objects {
    pub(crate) fn new(store: Arc<dyn ObjectStore>, name: String, patience: Patience, sleep: Sleep) -> Self {
        Self { store, name, patience, sleep, late: Mutex::new(BTreeSet::new()) }
    }

    /// A path as messages show it.
    pub(crate) fn label(&self, path: &Path) -> String {
        format!("{}{path}", self.name)
    }

    /// Creates an object, as long as `anchor` (an older object) is there: without it this is not the store that
    /// was opened, and a local file system would make the missing folders and accept.
    pub(crate) async fn offer(&self, path: &Path, bytes: &Bytes, anchor: Option<&Path>) -> Settled {
        let mut tried = 0;
        loop {
            let error = match self.offer_once(path, bytes, anchor).await {
                Ok(settled) => return settled,
                Err(error) => error,
            };
            tried += 1;
            if tried >= self.patience.tries || !error.is_retriable() {
                return Settled::Unknown(error);
            }
            tracing::warn!(
                path = self.label(path),
                tried,
                error = &error as &dyn std::error::Error,
                "put unsettled"
            );
            (self.sleep)(self.patience.wait_after(tried)).await;
        }
    }

    async fn offer_once(
        &self,
        path: &Path,
        bytes: &Bytes,
        anchor: Option<&Path>,
    ) -> Result<Settled, StoreError> {
        if let Some(anchor) = anchor {
            self.require(anchor).await?;
        }
        let Err(error) = self.create(path, bytes).await else {
            return Ok(Settled::Stored);
        };
        self.late.lock().expect("nothing panics while it holds the lock").insert(path.clone());
        match self.get(path).await? {
            Some(found) if found == bytes => {
                self.sync(&parent(path)).await?;
                Ok(Settled::Stored)
            }
            Some(found) => Ok(Settled::Other(found)),
            None => Err(error),
        }
    }

    /// One try to create an object.
    pub(crate) async fn create(&self, path: &Path, bytes: &Bytes) -> Result<(), StoreError> {
        let options = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
        let put = self.store.put_opts(path, bytes.clone().into(), options);
        self.bounded("create", path, put).await?.map_err(|error| self.failed("create", path, error))?;
        Ok(())
    }

    /// Reads a whole object; `None` where there is none.
    pub(crate) async fn get(&self, path: &Path) -> Result<Option<Bytes>, StoreError> {
        let read = async {
            let found = match self.store.get_opts(path, GetOptions::default()).await {
                Err(object_store::Error::NotFound { .. }) => return Ok(None),
                found => found?,
            };
            let size = found.meta.size;
            if size > LARGEST_OBJECT {
                return Ok(Some(Err(size)));
            }
            found.bytes().await.map(|bytes| Some(Ok(bytes)))
        };
        match self.bounded("read", path, read).await? {
            Ok(Some(Ok(bytes))) => Ok(Some(bytes)),
            Ok(Some(Err(size))) => Err(StoreError::Misplaced {
                path: self.label(path),
                why: format!("{size} bytes, and no object of ours is larger than {LARGEST_OBJECT}"),
            }),
            Ok(None) => Ok(None),
            Err(error) => Err(self.failed("read", path, error)),
        }
    }

    /// Fails with [`StoreError::Gone`] where the object is not there.
    pub(crate) async fn require(&self, path: &Path) -> Result<(), StoreError> {
        let options = GetOptions { head: true, ..GetOptions::default() };
        match self.bounded("look for", path, self.store.get_opts(path, options)).await? {
            Ok(_) => Ok(()),
            Err(object_store::Error::NotFound { .. }) => Err(StoreError::Gone { path: self.label(path) }),
            Err(error) => Err(self.failed("look for", path, error)),
        }
    }

    /// The names in a folder; none where there is no folder.
    pub(crate) async fn names(&self, folder: &Path) -> Result<Names, StoreError> {
        let list = self.store.list_with_delimiter(Some(folder));
        let found =
            self.bounded("list", folder, list).await?.map_err(|error| self.failed("list", folder, error))?;
        let visible = |path: Path| path.filename().filter(|name| !layout::is_hidden(name)).map(str::to_owned);
        Ok(Names {
            objects: found.objects.into_iter().filter_map(|meta| visible(meta.location)).collect(),
            folders: found.common_prefixes.into_iter().filter_map(visible).collect(),
        })
    }

    /// Makes the entries of a folder durable.
    pub(crate) async fn sync(&self, folder: &Path) -> Result<(), StoreError> {
        let mark = layout::sync_mark(folder);
        let put = self.store.put_opts(&mark, Bytes::new().into(), PutOptions::default());
        self.bounded("sync", folder, put).await?.map_err(|error| self.failed("sync", folder, error))?;
        Ok(())
    }

    /// [`Self::sync`] for a folder and all above it, up to the root.
    pub(crate) async fn sync_up(&self, folder: &Path) -> Result<(), StoreError> {
        let mut folder = folder.clone();
        loop {
            self.sync(&folder).await?;
            if folder.is_root() {
                return Ok(());
            }
            folder = parent(&folder);
        }
    }

    /// Could a request that is still under way bring this object back after its removal?
    pub(crate) fn may_land_late(&self, path: &Path) -> bool {
        self.late.lock().expect("nothing panics while it holds the lock").contains(path)
    }

    /// Removes an object; one that is not there is removed already.
    pub(crate) async fn remove(&self, path: &Path) -> Result<(), StoreError> {
        let one = Box::pin(stream::iter([Ok(path.clone())]));
        let removed = self.store.delete_stream(one).try_for_each(|_| async { Ok(()) });
        match self.bounded("remove", path, removed).await? {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(self.failed("remove", path, error)),
        }
    }

    /// Removes objects, as many at once as the store can; those that are not there are removed already.
    pub(crate) async fn remove_all(&self, paths: Vec<Path>) -> Result<(), StoreError> {
        let Some(first) = paths.first().cloned() else { return Ok(()) };
        let paths = Box::pin(stream::iter(paths.into_iter().map(Ok)));
        let gone = |removed: Result<Path, object_store::Error>| match removed {
            Ok(_) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(error),
        };
        let removed = self.store.delete_stream(paths).map(gone).try_for_each(async |()| Ok(()));
        self.bounded("remove", &first, removed).await?.map_err(|error| self.failed("remove", &first, error))
    }

    fn failed(&self, attempt: &'static str, path: &Path, error: object_store::Error) -> StoreError {
        StoreError::from_answer(attempt, self.label(path), error)
    }

    /// One request, for as long as patience allows.
    async fn bounded<T>(
        &self,
        attempt: &'static str,
        path: &Path,
        request: impl Future<Output = T>,
    ) -> Result<T, StoreError> {
        let limit = self.patience.answer_limit;
        match select(pin!(request), (self.sleep)(limit)).await {
            Either::Left((answer, _)) => Ok(answer),
            Either::Right(_) => Err(StoreError::NoAnswer { attempt, path: self.label(path), limit }),
        }
    }
}

impl std::fmt::Debug for Objects {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Objects")
            .field("store", &self.store)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

fn parent(path: &Path) -> Path {
    let mut parts: Vec<_> = path.parts().collect();
    parts.pop();
    parts.into_iter().collect()
}
