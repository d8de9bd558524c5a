//! Reads a part, a row group at a time.
//!
//! Refuses what is not a part of ours, with the reason; whether it is the one that was written was compared before, by
//! length and checksum.

use super::{
    rows::{Bytes as BytesColumn, Rows},
    schema::{Column, schema},
};
use bytes::Bytes;
use parquet::{
    column::reader::{ColumnReader, ColumnReaderImpl, get_typed_column_reader},
    data_type::{ByteArrayType, DataType, Int32Type, Int64Type},
    errors::ParquetError,
    file::{
        reader::{FileReader, RowGroupReader},
        serialized_reader::SerializedFileReader,
    },
};

/// A part that is being read.
pub struct PartReader {
    file: SerializedFileReader<Bytes>,
    next: usize,
}

impl PartReader {
    /// Opens the bytes of a part.
    ///
    /// # Errors
    /// They are not the records of a journal.
    pub fn open(bytes: Bytes) -> Result<Self, String> {
        let file = SerializedFileReader::new(bytes).map_err(unreadable)?;
        let ours = schema().map_err(unreadable)?;
        if file.metadata().file_metadata().schema() != &*ours {
            return Err("its columns are not those of a journal".to_owned());
        }
        Ok(Self { file, next: 0 })
    }

    /// The records of the next row group; `None` behind the last.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn next_rows(&mut self) -> Result<Option<Rows>, String> {
        if self.next == self.file.num_row_groups() {
            return Ok(None);
        }
        let group = self.file.get_row_group(self.next).map_err(unreadable)?;
        self.next += 1;
        let rows = read_group(&*group).map_err(unreadable)?;
        rows.check()?;
        Ok(Some(rows))
    }
}

impl std::fmt::Debug for PartReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PartReader").field("next", &self.next).finish_non_exhaustive()
    }
}

fn unreadable(error: ParquetError) -> String {
    error.to_string()
}

fn read_group(group: &dyn RowGroupReader) -> Result<Rows, ParquetError> {
    let count = usize::try_from(group.metadata().num_rows())?;
    let mut rows = Rows::default();
    for (number, column) in Column::ALL.into_iter().enumerate() {
        let reader = group.get_column_reader(number)?;
        match column {
            Column::Topic => {
                rows.topics = read::<ByteArrayType>(reader, count)?.values;
            }
            Column::Partition => rows.partitions = read::<Int32Type>(reader, count)?.values,
            Column::Timestamp => rows.timestamps = read::<Int64Type>(reader, count)?.values,
            Column::Key => rows.keys = read::<ByteArrayType>(reader, count)?.bytes(),
            Column::Value => rows.values = read::<ByteArrayType>(reader, count)?.bytes(),
            Column::HeaderKey => {
                let mut read = read::<ByteArrayType>(reader, count)?;
                rows.repeats = std::mem::take(&mut read.repeats);
                rows.header_keys = read.bytes();
            }
            Column::HeaderValue => rows.header_values = read::<ByteArrayType>(reader, count)?.bytes(),
        }
    }
    Ok(rows)
}

/// What a column holds.
struct Held<T> {
    values: Vec<T>,
    levels: Vec<i16>,
    repeats: Vec<i16>,
}

impl Held<parquet::data_type::ByteArray> {
    fn bytes(self) -> BytesColumn {
        BytesColumn { levels: self.levels, values: self.values }
    }
}

fn read<T: DataType>(reader: ColumnReader, count: usize) -> Result<Held<T::T>, ParquetError> {
    let mut reader: ColumnReaderImpl<T> = get_typed_column_reader(reader);
    let mut held = Held { values: Vec::new(), levels: Vec::new(), repeats: Vec::new() };
    let mut missing = count;
    while missing > 0 {
        let (records, _, _) = reader.read_records(
            missing,
            Some(&mut held.levels),
            Some(&mut held.repeats),
            &mut held.values,
        )?;
        if records == 0 {
            return Err(ParquetError::General(format!("{missing} of {count} rows are missing")));
        }
        missing -= records;
    }
    Ok(held)
}
