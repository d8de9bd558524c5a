//! The columns of a journal.

use parquet::{
    basic::{LogicalType, Repetition, TimeUnit, Type as Physical},
    errors::ParquetError,
    schema::types::{Type, TypePtr},
};
use std::sync::Arc;

/// The leaf columns, in their order in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Column {
    Topic,
    Partition,
    Timestamp,
    Key,
    Value,
    HeaderKey,
    HeaderValue,
}

impl Column {
    pub(super) const ALL: [Self; 7] = [
        Self::Topic,
        Self::Partition,
        Self::Timestamp,
        Self::Key,
        Self::Value,
        Self::HeaderKey,
        Self::HeaderValue,
    ];

    /// Its path, as properties are set by.
    pub(super) fn path(self) -> Vec<String> {
        let path: &[&str] = match self {
            Self::Topic => &["topic"],
            Self::Partition => &["partition"],
            Self::Timestamp => &["timestamp"],
            Self::Key => &["key"],
            Self::Value => &["value"],
            Self::HeaderKey => &["headers", "list", "element", "key"],
            Self::HeaderValue => &["headers", "list", "element", "value"],
        };
        path.iter().map(|name| (*name).to_owned()).collect()
    }
}

/// Definition level of a header that is there; its value, if it is not null, is one further.
pub(super) const HEADER_THERE: i16 = 1;

/// Definition level of a value that is there in an optional column at the top.
pub(super) const FIELD_THERE: i16 = 1;

/// ```text
/// required binary topic (STRING); required int32 partition; required int64 timestamp (MILLIS, UTC);
/// optional binary key; optional binary value;
/// required group headers (LIST) { repeated group list { required group element {
///     required binary key; optional binary value } } }
/// ```
pub(super) fn schema() -> Result<TypePtr, ParquetError> {
    let leaf = |name: &str, physical: Physical, repetition: Repetition, logical: Option<LogicalType>| {
        let built = Type::primitive_type_builder(name, physical)
            .with_repetition(repetition)
            .with_logical_type(logical)
            .build();
        built.map(Arc::new)
    };
    let group = |name: &str, repetition: Repetition, logical: Option<LogicalType>, fields: Vec<TypePtr>| {
        let built = Type::group_type_builder(name)
            .with_repetition(repetition)
            .with_logical_type(logical)
            .with_fields(fields)
            .build();
        built.map(Arc::new)
    };
    let (required, optional) = (Repetition::REQUIRED, Repetition::OPTIONAL);
    let bytes = Physical::BYTE_ARRAY;
    let time = LogicalType::timestamp(true, TimeUnit::MILLIS);
    let header = vec![leaf("key", bytes, required, None)?, leaf("value", bytes, optional, None)?];
    let element = group("element", required, None, header)?;
    let list = group("list", Repetition::REPEATED, None, vec![element])?;
    let fields = vec![
        leaf("topic", bytes, required, Some(LogicalType::String))?,
        leaf("partition", Physical::INT32, required, None)?,
        leaf("timestamp", Physical::INT64, required, Some(time))?,
        leaf("key", bytes, optional, None)?,
        leaf("value", bytes, optional, None)?,
        group("headers", required, Some(LogicalType::List), vec![list])?,
    ];
    Type::group_type_builder("record").with_fields(fields).build().map(Arc::new)
}
