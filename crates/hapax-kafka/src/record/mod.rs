//! Record batches, format v2: the bytes that Produce carries and that Fetch returns.
//!
//! Owns the encoding of records into a batch ([`BatchBuilder`], [`SealedBatch`]), the reading of a fetched
//! record set ([`Batches`], [`RawBatch`], [`Records`]), the codecs, and the digest over records.
//! Refuses message formats before v2, and every length that the bytes at hand do not bear out: a batch comes
//! from a broker and is judged before anything is allocated for it.
//!
//! ```text
//!  push, push ... ──► BatchBuilder ──seal──► SealedBatch ──stamp(identity, sequence)──► StampedBatch ──► wire
//!                                                │ split (MESSAGE_TOO_LARGE)
//!                                                └──► two SealedBatches
//!  wire ──► Batches ──► RawBatch ──verify_crc, decode──► Records { slab, views }
//! ```
//!
//! Invariants: a batch is compressed once, whatever happens to its identity afterwards; headers keep their order,
//! their duplicates and their nulls; what the encoder digests and what the decoder digests is the same.
//!
//! Pure: no clock, no IO, no randomness. Sources: `DefaultRecordBatch`, `DefaultRecord`, `ControlRecordType`,
//! `EndTransactionMarker` of the Java client; KIP-98, KIP-82, KIP-534.

mod compression;
mod control;
mod crc;
mod decode;
mod digest;
mod encode;
mod error;
mod header;
mod headers;
mod sealed;
#[cfg(test)]
mod tests;
mod varint;
mod view;

pub use compression::{
    Compression, Compressor, DEFAULT_DECOMPRESSED_LIMIT, Decompressor, UnknownCompression,
};
pub use control::{ControlKind, ControlRecord};
pub use crc::crc32c;
pub use decode::{Batches, RawBatch};
pub use digest::RecordDigest;
pub use encode::{BatchBuilder, MAX_BATCH_BYTES, RecordRef};
pub use error::RecordError;
pub use header::{Attributes, BATCH_HEADER_BYTES, BatchHeader};
pub use headers::{EncodedHeaders, Header, HeaderIter, Headers};
pub use sealed::{SealedBatch, Stamp, StampedBatch};
pub use view::{RecordBody, RecordView, Records};
