//! The marker that ends a transaction in a partition.
//!
//! Layout: key = version (i16), type (i16); value = version (i16), coordinator epoch (i32). Versions above 0 are read
//! as 0, since later ones only append. Types above 1 are of KRaft's own topics.

/// Decompressed bytes of a control batch at most: a marker takes some twenty, and brokers do not compress them.
pub(super) const MAX_CONTROL_BYTES: usize = 64 << 10;

/// What a control batch says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ControlRecord {
    /// What became of the transaction.
    pub kind: ControlKind,
    /// Version of the key.
    pub version: i16,
    /// Epoch of the coordinator that had the marker written; `None` when the marker is none of a transaction.
    pub coordinator_epoch: Option<i32>,
}

/// The kind of a marker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ControlKind {
    /// The producer's open transaction is aborted in this partition.
    Abort,
    /// The producer's open transaction is committed in this partition.
    Commit,
    /// A marker that says nothing of transactions.
    Other(i16),
}

impl ControlRecord {
    pub(super) fn parse(key: Option<&[u8]>, value: Option<&[u8]>) -> Result<Self, &'static str> {
        let (version, rest) = key.and_then(take_i16).ok_or("the key of its marker is cut")?;
        let (code, _) = take_i16(rest).ok_or("the key of its marker is cut")?;
        if version < 0 {
            return Err("the version of its marker is negative");
        }
        let kind = match code {
            0 => ControlKind::Abort,
            1 => ControlKind::Commit,
            other => {
                return Ok(Self { kind: ControlKind::Other(other), version, coordinator_epoch: None });
            }
        };
        let (value_version, rest) = value.and_then(take_i16).ok_or("the value of its marker is cut")?;
        if value_version < 0 {
            return Err("the version of its marker's value is negative");
        }
        let epoch = rest.first_chunk().ok_or("the value of its marker is cut")?;
        Ok(Self { kind, version, coordinator_epoch: Some(i32::from_be_bytes(*epoch)) })
    }
}

fn take_i16(bytes: &[u8]) -> Option<(i16, &[u8])> {
    let (head, rest) = bytes.split_first_chunk()?;
    Some((i16::from_be_bytes(*head), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markers_of_every_version_are_read_as_the_first() {
        let commit = ControlRecord::parse(Some(&[0, 0, 0, 1]), Some(&[0, 0, 0, 0, 0, 7]));
        let expected = ControlRecord { kind: ControlKind::Commit, version: 0, coordinator_epoch: Some(7) };
        assert_eq!(commit, Ok(expected));
        let later = ControlRecord::parse(Some(&[0, 3, 0, 0, 9, 9]), Some(&[0, 2, 0, 0, 0, 7, 1, 2]));
        let expected = ControlRecord { kind: ControlKind::Abort, version: 3, coordinator_epoch: Some(7) };
        assert_eq!(later, Ok(expected));
        let leader_change = ControlRecord::parse(Some(&[0, 0, 0, 2]), None).unwrap();
        assert_eq!(leader_change.kind, ControlKind::Other(2));
        assert_eq!(leader_change.coordinator_epoch, None);
    }

    #[test]
    fn a_damaged_marker_is_no_outcome() {
        let value: &[u8] = &[0, 0, 0, 0, 0, 7];
        for key in [None, Some(&[][..]), Some(&[0, 0, 0]), Some(&[0xff, 0xff, 0, 1])] {
            assert!(ControlRecord::parse(key, Some(value)).is_err(), "{key:?}");
        }
        for value in [None, Some(&[][..]), Some(&[0, 0, 0, 0, 0]), Some(&[0xff, 0xff, 0, 0, 0, 0])] {
            assert!(ControlRecord::parse(Some(&[0, 0, 0, 1]), value).is_err(), "{value:?}");
        }
    }
}
