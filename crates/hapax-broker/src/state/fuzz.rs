//! The records of the coordinators' topics without a machine, for fuzz targets alone.

pub use super::group::fuzz::{group_rewritten, offset_rewritten, offsets_key};
pub use super::transaction::fuzz::{
    Logged, transaction, transaction_key, transaction_rewritten, transactional_id,
};
