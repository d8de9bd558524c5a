//! A record of `__transaction_state` without a cluster, for fuzz targets alone.

use super::{LoggedTransaction, StateRecordError, record};

/// The transactional id of a key.
///
/// # Errors
/// It is no key that is known.
pub fn key(bytes: &[u8]) -> Result<&str, StateRecordError> {
    record::read_key(bytes)
}

/// What a value says.
///
/// # Errors
/// It is no value that is known.
pub fn value(bytes: &[u8]) -> Result<LoggedTransaction, StateRecordError> {
    record::read_value(bytes)
}
