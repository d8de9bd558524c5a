//! Records of `__consumer_offsets`, as the broker reads and writes them.

use super::record::{self, Key};
use bytes::Bytes;

/// A key read, and written again; none where it is not one that is known.
pub fn offsets_key(key: Bytes) -> Option<Bytes> {
    Some(match record::read_key(key)? {
        Key::Offset { group, at } => record::offset_key(&group, &at),
        Key::Group(group) => record::group_key(&group),
    })
}

/// The value of an offset read, and written again.
pub fn offset_rewritten(value: Bytes) -> Option<Bytes> {
    record::read_offset(value, 0).ok().map(|committed| record::offset_value(&committed))
}

/// The value of a group read, and written again.
pub fn group_rewritten(value: Bytes) -> Option<Bytes> {
    record::read_group(value).ok().map(|group| record::group_value(&group))
}
