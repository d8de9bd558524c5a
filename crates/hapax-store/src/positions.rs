//! Positions that are too long to stand beside a committed offset: objects that are created once, each named by the
//! transaction that carries the pointer to it.
//!
//! Owns that an object is durable before its name is given away, and that it is used only when it is whole. Refuses to
//! remove anything that it is not told by name.

use crate::{
    error::StoreError,
    object::{Objects, Settled},
};
use bytes::Bytes;
use object_store::path::Path;
use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

/// A job's objects with positions. Cheap to clone.
#[derive(Clone)]
pub struct PositionObjects {
    objects: Arc<Objects>,
    folder: Path,
    /// The job record: without it this is not the store that the objects are in.
    anchor: Path,
    /// The folder and all above it are durable.
    is_synced: Arc<AtomicBool>,
}

impl PositionObjects {
    pub(crate) fn new(objects: Arc<Objects>, folder: Path, anchor: Path) -> Self {
        Self { objects, folder, anchor, is_synced: Arc::default() }
    }

    /// Puts an object. Durable when this returns; an unknown answer is read back.
    ///
    /// # Errors
    /// As the store fails; whether the object is there is not known then, and its name is not to be given away.
    pub async fn put(&self, name: &str, bytes: Vec<u8>) -> Result<(), StoreError> {
        let path = self.folder.clone().join(name);
        match self.objects.offer(&path, &Bytes::from(bytes), Some(&self.anchor)).await {
            Settled::Stored => {}
            Settled::Other(_) => {
                let why = "somebody else has written it, and no two transactions have one name".to_owned();
                return Err(StoreError::Misplaced { path: self.objects.label(&path), why });
            }
            Settled::Unknown(error) => return Err(error),
        }
        if !self.is_synced.load(Ordering::Acquire) {
            self.objects.sync_up(&self.folder).await?;
            self.is_synced.store(true, Ordering::Release);
        }
        Ok(())
    }

    /// The bytes of an object; `None` where it is not there.
    ///
    /// # Errors
    /// The store fails, or is not the one that the job was created in: nothing is known of the object then.
    pub async fn get(&self, name: &str) -> Result<Option<Bytes>, StoreError> {
        let found = self.objects.get(&self.folder.clone().join(name)).await?;
        if found.is_none() {
            // A store that is not mounted has lost nothing.
            self.objects.require(&self.anchor).await?;
        }
        Ok(found)
    }

    /// What messages call an object.
    pub fn label(&self, name: &str) -> String {
        self.objects.label(&self.folder.clone().join(name))
    }

    /// The names of all.
    ///
    /// # Errors
    /// As the store fails.
    pub async fn names(&self) -> Result<Vec<String>, StoreError> {
        Ok(self.objects.names(&self.folder).await?.objects)
    }

    /// Removes objects.
    ///
    /// # Errors
    /// As the store fails; a later run removes what is left.
    pub async fn remove(&self, names: &[String]) -> Result<(), StoreError> {
        let path = |name: &String| self.folder.clone().join(name.as_str());
        self.objects.remove_all(names.iter().map(path).collect()).await
    }
}

impl fmt::Debug for PositionObjects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PositionObjects")
            .field("folder", &self.objects.label(&self.folder))
            .finish_non_exhaustive()
    }
}
