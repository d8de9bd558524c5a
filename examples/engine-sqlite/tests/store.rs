//! The example's store keeps what the sink needs of it, by the suite for checkpoint stores.

#![allow(clippy::disallowed_methods, clippy::unwrap_used, missing_docs, reason = "a test")]

#[path = "../src/store.rs"]
#[allow(dead_code, reason = "the engine needs more of it")]
mod store;

use hapax::conformance::{self, Checkpoint, CheckpointStore, Put, StoreError};
use std::{
    path::{Path, PathBuf},
    sync::{
        Mutex,
        atomic::{AtomicU32, Ordering},
    },
};
use store::{Saved, Store};

/// One process that has opened the file.
struct Process {
    path: PathBuf,
    run: Mutex<Option<Store>>,
}

impl CheckpointStore for Process {
    async fn claim(&self) -> Result<u64, StoreError> {
        let run = Store::begin(&self.path)?;
        let generation = run.generation;
        *self.run.lock().unwrap() = Some(run);
        Ok(generation)
    }

    async fn put(&self, checkpoint: &Checkpoint) -> Result<Put, StoreError> {
        let Checkpoint { generation, epoch, state, handles, ids } = checkpoint.clone();
        let mut run = self.run.lock().unwrap();
        let stored = run.as_mut().unwrap().put(&Saved { generation, epoch, state, handles, ids })?;
        Ok(if stored { Put::Stored } else { Put::Superseded })
    }

    async fn newest(&self) -> Result<Option<Checkpoint>, StoreError> {
        let checkpoint = |Saved { generation, epoch, state, handles, ids }| Checkpoint {
            generation,
            epoch,
            state,
            handles,
            ids,
        };
        Ok(Store::newest(&self.path)?.map(checkpoint))
    }
}

#[tokio::test]
async fn the_sqlite_store_keeps_every_promise() {
    let next = AtomicU32::new(0);
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    conformance::check(|| {
        let number = next.fetch_add(1, Ordering::Relaxed);
        let path = folder.join(format!("store-{}-{number}.sqlite", std::process::id()));
        move || Process { path: path.clone(), run: Mutex::new(None) }
    })
    .await;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if name.starts_with(&format!("store-{}-", std::process::id())) {
            std::fs::remove_file(&path).unwrap();
        }
    }
}
