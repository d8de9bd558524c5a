//! One part of a journal: a Parquet file of records, zstd, in row groups of bounded size.
//!
//! Owns the columns and how records become rows and back. Any Parquet reader opens a part: key, value and header are
//! plain columns, null where the record has null.
//!
//! ```text
//! append ─► Rows in memory ─(2 MiB)─► row group, compressed ─(4 MiB)─► part is full ─► finish: bytes
//! bytes ─► row group by row group ─► Rows ─► Row
//! ```

mod read;
mod rows;
mod schema;
mod write;

pub use read::PartReader;
pub use rows::Rows;
pub use write::{FinishedPart, PartWriter};
