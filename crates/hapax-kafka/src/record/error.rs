//! What can be wrong with a record or a batch.

use super::compression::Compression;

/// A record that cannot be encoded, or a batch that cannot be read.
///
/// None of them is cured by trying again with the same bytes; a [`RecordError::CrcMismatch`] may be cured by
/// fetching them again.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// A record does not fit into a batch of its own: the format counts in 32 bits.
    #[error("encoding a record of {bytes} bytes failed: a record batch holds at most {limit}")]
    RecordTooLarge {
        /// Size of the record in bytes.
        bytes: u64,
        /// The most that a batch can hold, in bytes.
        limit: usize,
    },
    /// The batch cannot take this record; seal it and push again.
    #[error("encoding a record of {bytes} bytes failed: the open batch has no room, seal it first")]
    BatchFull {
        /// Size of the record in bytes.
        bytes: u64,
    },
    /// A message format older than v2, which brokers since Kafka 3.0 no longer write.
    #[error("reading the batch at offset {offset} failed: message format v{magic} is not supported, only v2")]
    UnsupportedMagic {
        /// Base offset of the batch.
        offset: i64,
        /// The format's version.
        magic: i8,
    },
    /// The attributes name a codec that does not exist.
    #[error("reading the batch at offset {offset} failed: unknown compression code {code}")]
    UnknownCompression {
        /// Base offset of the batch.
        offset: i64,
        /// The code, 0 to 7.
        code: u8,
    },
    /// The bytes of the batch are not those that were written.
    #[error(
        "checking the batch at offset {offset} failed: CRC-32C is {computed:#010x}, the batch says \
         {stored:#010x}; fetch it again, and if that does not help its replica is damaged"
    )]
    CrcMismatch {
        /// Base offset of the batch.
        offset: i64,
        /// The checksum in the batch.
        stored: u32,
        /// The checksum of its bytes.
        computed: u32,
    },
    /// The batch header contradicts itself or the bytes that follow it.
    #[error("reading the batch at offset {offset} failed: {reason}")]
    MalformedBatch {
        /// Base offset of the batch, as far as it could be read.
        offset: i64,
        /// What is wrong.
        reason: &'static str,
    },
    /// The batch says that it is larger than any that is read.
    #[error(
        "reading the batch at offset {offset} failed: it says that it has {bytes} bytes, the limit is {limit}; fetch it \
         again, and if that does not help its replica is damaged"
    )]
    BatchTooLarge {
        /// Base offset of the batch.
        offset: i64,
        /// Its bytes, as it says.
        bytes: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// A record inside the batch cannot be read.
    #[error("reading record {index} of the batch at offset {offset} failed: {reason}")]
    MalformedRecord {
        /// Base offset of the batch.
        offset: i64,
        /// Position of the record in the batch, from 0.
        index: u32,
        /// What is wrong.
        reason: &'static str,
    },
    /// The compressed records are damaged.
    #[error("decompressing the batch at offset {offset} ({codec}) failed: {reason}")]
    Decompress {
        /// Base offset of the batch.
        offset: i64,
        /// The codec that the batch names.
        codec: Compression,
        /// What is wrong.
        reason: &'static str,
    },
    /// The records need more memory, once decompressed, than the reader allows.
    #[error("decompressing the batch at offset {offset} ({codec}) failed: it holds more than {limit} bytes")]
    DecompressedTooLarge {
        /// Base offset of the batch.
        offset: i64,
        /// The codec that the batch names.
        codec: Compression,
        /// The reader's limit in bytes.
        limit: usize,
    },
    /// Bytes that were given as encoded headers are not the number of headers that they should be.
    #[error("reading encoded headers failed: {reason}")]
    MalformedHeaders {
        /// What is wrong.
        reason: &'static str,
    },
}
