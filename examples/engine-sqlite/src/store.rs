//! The engine's checkpoint: one SQLite file, every change one transaction, every change only by the newest run.

use futures::future::BoxFuture;
use hapax::engine::{Owner, OwnerError};
use rusqlite::{Connection, Transaction, TransactionBehavior, params};
use std::{
    path::{Path, PathBuf},
    time::Duration,
};

const TABLES: &str = "
    CREATE TABLE IF NOT EXISTS run (generation INTEGER NOT NULL);
    CREATE TABLE IF NOT EXISTS checkpoint (generation INTEGER NOT NULL, epoch INTEGER NOT NULL, state BLOB NOT NULL);
    CREATE TABLE IF NOT EXISTS handle (bytes BLOB NOT NULL);
    CREATE TABLE IF NOT EXISTS id (id TEXT NOT NULL);
    INSERT INTO run SELECT 0 WHERE NOT EXISTS (SELECT * FROM run);";

/// All that the engine keeps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Saved {
    pub(crate) generation: u64,
    pub(crate) epoch: u64,
    pub(crate) state: Vec<u8>,
    pub(crate) handles: Vec<Vec<u8>>,
    pub(crate) ids: Vec<String>,
}

/// One run's hold on the file.
pub(crate) struct Store {
    path: PathBuf,
    db: Connection,
    pub(crate) generation: u64,
}

fn open(path: &Path) -> rusqlite::Result<Connection> {
    let db = Connection::open(path)?;
    db.busy_timeout(Duration::from_secs(10))?;
    db.execute_batch("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;")?;
    Ok(db)
}

impl Store {
    /// Begins a run, with a higher generation than every one before.
    pub(crate) fn begin(path: &Path) -> Result<Self, OwnerError> {
        let mut db = open(path)?;
        let tx = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
        tx.execute_batch(TABLES)?;
        let raise = "UPDATE run SET generation = generation + 1 RETURNING generation";
        let generation = tx.query_row(raise, [], |row| row.get(0))?;
        tx.commit()?;
        Ok(Self { path: path.to_owned(), db, generation })
    }

    /// The newest checkpoint.
    pub(crate) fn newest(path: &Path) -> Result<Option<Saved>, OwnerError> {
        let mut db = open(path)?;
        let tx = db.transaction()?;
        tx.execute_batch(TABLES)?;
        let column = "SELECT generation, epoch, state FROM checkpoint";
        let mut saved = match tx.query_row(column, [], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))) {
            Ok((generation, epoch, state)) => Saved { generation, epoch, state, ..Saved::default() },
            Err(rusqlite::Error::QueryReturnedNoRows) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        saved.handles = all(&tx, "SELECT bytes FROM handle ORDER BY rowid")?;
        saved.ids = all(&tx, "SELECT id FROM id ORDER BY rowid")?;
        Ok(Some(saved))
    }

    /// The decision: all of a checkpoint or nothing; `false`, and nothing, where a newer run has begun. The handles of the
    /// one before are gone with it, which is the record that they are committed.
    pub(crate) fn put(&mut self, saved: &Saved) -> Result<bool, OwnerError> {
        let tx = self.db.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let newest: u64 = tx.query_row("SELECT generation FROM run", [], |row| row.get(0))?;
        if newest != saved.generation {
            return Ok(false);
        }
        tx.execute_batch("DELETE FROM checkpoint; DELETE FROM handle; DELETE FROM id;")?;
        let Saved { generation, epoch, state, handles, ids } = saved;
        tx.execute("INSERT INTO checkpoint VALUES (?1, ?2, ?3)", params![generation, epoch, state])?;
        for bytes in handles {
            tx.execute("INSERT INTO handle VALUES (?1)", [bytes])?;
        }
        for id in ids {
            tx.execute("INSERT INTO id VALUES (?1)", [id])?;
        }
        tx.commit()?;
        Ok(true)
    }

    /// This run, as the sink asks after it.
    pub(crate) fn run(&self) -> Run {
        Run { path: self.path.clone(), generation: self.generation }
    }
}

fn all<T: rusqlite::types::FromSql>(tx: &Transaction<'_>, select: &str) -> rusqlite::Result<Vec<T>> {
    tx.prepare(select)?.query_map([], |row| row.get(0))?.collect()
}

/// A run, as long as the file knows no newer one.
pub(crate) struct Run {
    path: PathBuf,
    generation: u64,
}

impl Owner for Run {
    fn generation(&self) -> u64 {
        self.generation
    }

    fn holds(&self) -> BoxFuture<'_, Result<bool, OwnerError>> {
        let newest = || open(&self.path)?.query_row("SELECT generation FROM run", [], |row| row.get(0));
        let holds = newest().map(|newest: u64| newest == self.generation).map_err(OwnerError::from);
        Box::pin(std::future::ready(holds))
    }
}
