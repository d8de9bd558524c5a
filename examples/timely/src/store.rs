//! Worker 0's store: a folder of numbered files, each created once. Whoever creates the next one has decided; whoever
//! finds it taken has been superseded.

use hapax::engine::{Handle, Known, Owner};
use serde::{Deserialize, Serialize};
use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

/// All that the engine keeps.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Saved {
    /// The number of the file with which the run began.
    pub generation: u64,
    /// The newest decided epoch; the position follows from it.
    pub epoch: u64,
    /// Bytes of the handles of decided transactions that are not known to be committed.
    pub handles: Vec<Vec<u8>>,
    /// Every transactional id that was ever used.
    pub ids: Vec<String>,
}

/// One run's hold on the folder.
pub struct Store {
    folder: PathBuf,
    /// The newest file, which is this run's.
    number: Arc<AtomicU64>,
    pub saved: Saved,
}

impl Store {
    /// Begins a run behind the newest file, with ids that are known to every later run before one of them is used.
    pub fn begin(folder: &Path, ids: &[String]) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        let newest = newest(folder)?;
        let mut saved = match newest {
            0 => Saved::default(),
            number => serde_json::from_slice(&fs::read(path(folder, number))?)?,
        };
        saved.ids.extend(ids.iter().filter(|id| !saved.ids.contains(id)).cloned().collect::<Vec<_>>());
        saved.generation = newest + 1;
        let number = Arc::new(AtomicU64::new(newest));
        let mut store = Self { folder: folder.to_owned(), number, saved };
        store.put()?;
        Ok(store)
    }

    /// Stores what is known: whole and once, or not at all.
    pub fn put(&mut self) -> io::Result<()> {
        let unborn = self.folder.join(format!("unborn-{}", std::process::id()));
        let file = fs::File::create(&unborn)?;
        serde_json::to_writer(&file, &self.saved)?;
        file.sync_all()?;
        let next = self.number.load(Ordering::SeqCst) + 1;
        let born = fs::hard_link(&unborn, path(&self.folder, next));
        fs::remove_file(&unborn)?;
        born?;
        self.number.store(next, Ordering::SeqCst);
        Ok(())
    }

    /// The decided transactions.
    pub fn decided(&self) -> Vec<Known> {
        let handle = |bytes: &Vec<u8>| Handle::from_bytes(bytes).expect("only handles are stored").into();
        self.saved.handles.iter().map(handle).collect()
    }

    /// This run, as the sink asks after it.
    pub fn run(&self) -> Run {
        Run { folder: self.folder.clone(), number: self.number.clone(), generation: self.saved.generation }
    }
}

fn path(folder: &Path, number: u64) -> PathBuf {
    folder.join(format!("{number:020}"))
}

fn newest(folder: &Path) -> io::Result<u64> {
    let mut newest = 0;
    for entry in fs::read_dir(folder)? {
        let number = entry?.file_name().to_str().and_then(|name| name.parse().ok());
        newest = newest.max(number.unwrap_or(0));
    }
    Ok(newest)
}

/// A run, as long as nobody has created the file behind its newest.
pub struct Run {
    folder: PathBuf,
    /// The run puts files of its own while the sink asks.
    number: Arc<AtomicU64>,
    generation: u64,
}

impl Owner for Run {
    fn generation(&self) -> u64 {
        self.generation
    }

    fn holds(
        &self,
    ) -> std::pin::Pin<Box<dyn Future<Output = Result<bool, hapax::engine::OwnerError>> + Send + '_>> {
        let next = path(&self.folder, self.number.load(Ordering::SeqCst) + 1);
        Box::pin(async move { Ok(!next.try_exists()?) })
    }
}
