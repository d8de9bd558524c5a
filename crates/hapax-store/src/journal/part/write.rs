//! Writes a part: gathers records, and compresses them a row group at a time.

use super::{
    rows::{Bytes as BytesColumn, Rows},
    schema::{Column, FIELD_THERE, HEADER_THERE, schema},
};
use crate::{
    journal::Row,
    limits::{PART_BYTES, ROW_GROUP_BYTES},
};
use bytes::Bytes;
use parquet::{
    basic::{Compression, Encoding, ZstdLevel},
    data_type::{ByteArray, ByteArrayType, DataType, Int32Type, Int64Type},
    errors::ParquetError,
    file::{
        metadata::KeyValue,
        properties::{EnabledStatistics, WriterProperties, WriterVersion},
        writer::{SerializedColumnWriter, SerializedFileWriter},
    },
    schema::types::ColumnPath,
};
use std::{mem, ops::Range, sync::Arc};

/// What a row costs beside its bytes, so that many records without any are bounded, too.
const ROW_OVERHEAD: usize = 32;

/// A part that is complete.
#[derive(Clone, Debug)]
pub struct FinishedPart {
    /// The file.
    pub bytes: Bytes,
    /// Records in it.
    pub records: u64,
}

/// A part that is being filled.
pub struct PartWriter {
    file: SerializedFileWriter<Vec<u8>>,
    open: OpenRows,
    /// Name of the topic that the last record went to, and what stands for it in rows.
    topic: Option<(String, ByteArray)>,
    records: u64,
}

impl PartWriter {
    /// An empty part; `about` is said in the file, for people.
    pub fn new(about: &[(&str, String)]) -> Self {
        let properties = properties(about);
        let file = schema()
            .and_then(|schema| SerializedFileWriter::new(Vec::new(), schema, Arc::new(properties)))
            .expect("the schema is legal and memory takes what is written");
        Self { file, open: OpenRows::default(), topic: None, records: 0 }
    }

    /// Records in it.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// Adds a record.
    ///
    /// # Errors
    /// The records cannot be encoded: a bug.
    pub fn append(&mut self, row: &Row<'_>) -> Result<(), ParquetError> {
        let topic = match &self.topic {
            Some((name, topic)) if name == row.topic => topic.clone(),
            _ => {
                let topic = ByteArray::from(row.topic);
                self.topic = Some((row.topic.to_owned(), topic.clone()));
                topic
            }
        };
        self.open.push(topic, row);
        self.records += 1;
        if self.open.bytes() >= ROW_GROUP_BYTES { self.flush() } else { Ok(()) }
    }

    /// Is it time to begin the next part?
    pub fn is_full(&self) -> bool {
        self.file.bytes_written() >= PART_BYTES
    }

    /// Ends the part.
    ///
    /// # Errors
    /// The records cannot be encoded: a bug.
    pub fn finish(mut self) -> Result<FinishedPart, ParquetError> {
        self.flush()?;
        Ok(FinishedPart { bytes: self.file.into_inner()?.into(), records: self.records })
    }

    fn flush(&mut self) -> Result<(), ParquetError> {
        let rows = self.open.take();
        if rows.is_empty() {
            return Ok(());
        }
        let mut group = self.file.next_row_group()?;
        let mut columns = Column::ALL.into_iter();
        while let Some(mut writer) = group.next_column()? {
            let column = columns.next().expect("the schema has the columns that are written");
            write_column(&mut writer, column, &rows)?;
            writer.close()?;
        }
        group.close()?;
        Ok(())
    }
}

impl std::fmt::Debug for PartWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PartWriter").field("records", &self.records).finish_non_exhaustive()
    }
}

fn write_column(
    writer: &mut SerializedColumnWriter<'_>,
    column: Column,
    rows: &Rows,
) -> Result<(), ParquetError> {
    match column {
        Column::Topic => write::<ByteArrayType>(writer, &rows.topics, None, None),
        Column::Partition => write::<Int32Type>(writer, &rows.partitions, None, None),
        Column::Timestamp => write::<Int64Type>(writer, &rows.timestamps, None, None),
        Column::Key => write_bytes(writer, &rows.keys, None),
        Column::Value => write_bytes(writer, &rows.values, None),
        Column::HeaderKey => write_bytes(writer, &rows.header_keys, Some(&rows.repeats)),
        Column::HeaderValue => write_bytes(writer, &rows.header_values, Some(&rows.repeats)),
    }
}

fn write_bytes(
    writer: &mut SerializedColumnWriter<'_>,
    column: &BytesColumn,
    repeats: Option<&[i16]>,
) -> Result<(), ParquetError> {
    write::<ByteArrayType>(writer, &column.values, Some(&column.levels), repeats)
}

fn write<T: DataType>(
    writer: &mut SerializedColumnWriter<'_>,
    values: &[T::T],
    levels: Option<&[i16]>,
    repeats: Option<&[i16]>,
) -> Result<(), ParquetError> {
    writer.typed::<T>().write_batch(values, levels, repeats).map(|_| ())
}

/// Values differ, so that a dictionary of them only costs; what repeats is named.
fn properties(about: &[(&str, String)]) -> WriterProperties {
    let about = about.iter().map(|(key, value)| KeyValue::new((*key).to_owned(), value.clone()));
    let mut properties = WriterProperties::builder()
        .set_writer_version(WriterVersion::PARQUET_2_0)
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_statistics_enabled(EnabledStatistics::None)
        .set_offset_index_disabled(true)
        .set_dictionary_enabled(false)
        .set_encoding(Encoding::PLAIN)
        .set_key_value_metadata(Some(about.collect()));
    for column in Column::ALL {
        let path = ColumnPath::new(column.path());
        properties = match column {
            Column::Topic | Column::Partition | Column::HeaderKey => {
                properties.set_column_dictionary_enabled(path, true)
            }
            Column::Timestamp => properties.set_column_encoding(path, Encoding::DELTA_BINARY_PACKED),
            Column::Key | Column::Value | Column::HeaderValue => properties,
        };
    }
    properties.build()
}

/// Where a value stands in the bytes of the open rows.
type At = Range<usize>;

/// Records that are not in a row group yet: their bytes one behind the other, so that a record costs no allocation.
#[derive(Default)]
struct OpenRows {
    bytes: Vec<u8>,
    topics: Vec<ByteArray>,
    partitions: Vec<i32>,
    timestamps: Vec<i64>,
    keys: OpenBytes,
    values: OpenBytes,
    header_keys: OpenBytes,
    header_values: OpenBytes,
    repeats: Vec<i16>,
}

#[derive(Default)]
struct OpenBytes {
    levels: Vec<i16>,
    at: Vec<At>,
}

impl OpenBytes {
    /// Adds a place; `there` is the level of a value that is not null.
    fn push(&mut self, bytes: &mut Vec<u8>, value: Option<&[u8]>, there: i16) {
        match value {
            None => self.levels.push(there - 1),
            Some(value) => {
                let start = bytes.len();
                bytes.extend_from_slice(value);
                self.levels.push(there);
                self.at.push(start..bytes.len());
            }
        }
    }

    fn cut(self, bytes: &Bytes) -> BytesColumn {
        let values = self.at.into_iter().map(|at| ByteArray::from(bytes.slice(at))).collect();
        BytesColumn { levels: self.levels, values }
    }
}

impl OpenRows {
    fn bytes(&self) -> usize {
        self.bytes.len() + ROW_OVERHEAD * (self.partitions.len() + self.repeats.len())
    }

    fn push(&mut self, topic: ByteArray, row: &Row<'_>) {
        self.topics.push(topic);
        self.partitions.push(row.partition);
        self.timestamps.push(row.timestamp);
        self.keys.push(&mut self.bytes, row.key, FIELD_THERE);
        self.values.push(&mut self.bytes, row.value, FIELD_THERE);
        if row.headers.is_empty() {
            self.repeats.push(0);
            self.header_keys.levels.push(0);
            self.header_values.levels.push(0);
        }
        for (number, (key, value)) in row.headers.iter().enumerate() {
            self.repeats.push(i16::from(number > 0));
            self.header_keys.push(&mut self.bytes, Some(key), HEADER_THERE);
            self.header_values.push(&mut self.bytes, *value, HEADER_THERE + 1);
        }
    }

    fn take(&mut self) -> Rows {
        let open = mem::take(self);
        let bytes = Bytes::from(open.bytes);
        Rows {
            topics: open.topics,
            partitions: open.partitions,
            timestamps: open.timestamps,
            keys: open.keys.cut(&bytes),
            values: open.values.cut(&bytes),
            header_keys: open.header_keys.cut(&bytes),
            header_values: open.header_values.cut(&bytes),
            repeats: open.repeats,
        }
    }
}
