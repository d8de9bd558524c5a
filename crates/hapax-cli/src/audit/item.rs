//! What an audit compares, and how it is encoded so that bytes sort as the values do.

use super::limits::ORDER_TEXT;
use std::hash::{DefaultHasher, Hasher};

/// What makes two records the same: 128 bits of hash, so that a billion records collide with a chance of one in
/// 10^20. Valid inside one process only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Id(pub(crate) u128);

impl Id {
    /// A whole record: key, value, and headers in their order; absent is not empty.
    pub(crate) fn of_record<'a>(
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: impl Iterator<Item = (&'a [u8], Option<&'a [u8]>)>,
    ) -> Self {
        let mut hash = Hash128::new();
        hash.field(key);
        hash.field(value);
        for (name, value) in headers {
            hash.field(Some(name));
            hash.field(value);
        }
        hash.finish()
    }

    /// The value of `--id`, in one canonical text.
    pub(crate) fn of_value(text: &[u8]) -> Self {
        let mut hash = Hash128::new();
        hash.field(Some(text));
        hash.finish()
    }
}

/// Two SipHashes of the same fields that begin differently.
struct Hash128([DefaultHasher; 2]);

impl Hash128 {
    fn new() -> Self {
        Self([0_u8, 1].map(|seed| {
            let mut hasher = DefaultHasher::new();
            hasher.write_u8(seed);
            hasher
        }))
    }

    /// The length goes first, so that no two lists of fields look alike.
    fn field(&mut self, field: Option<&[u8]>) {
        for hasher in &mut self.0 {
            hasher.write_u64(field.map_or(u64::MAX, |field| field.len() as u64));
            hasher.write(field.unwrap_or_default());
        }
    }

    fn finish(self) -> Id {
        let [high, low] = self.0.map(|hasher| u128::from(hasher.finish()));
        Id((high << 64) | low)
    }
}

/// Where a record stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Place {
    /// Number of the partition (or file) among all that the reader of this side reads.
    pub(crate) partition: u32,
    /// Offset in it.
    pub(crate) offset: u64,
}

/// The value of `--order`: numbers sort by size and before texts, texts by their bytes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Order(Vec<u8>);

/// A text that is too long to be an [`Order`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the order value has {0} bytes; at most {ORDER_TEXT} can be compared, so let --order yield less")]
pub(crate) struct OrderTooLong(pub(crate) usize);

impl Order {
    /// An integer, exact.
    pub(crate) fn number_i64(number: i64) -> Self {
        Self::number(number, 0.0)
    }

    /// A number with a fraction. All beyond the 64-bit integers are equal, and NaN is 0.
    pub(crate) fn number_f64(number: f64) -> Self {
        // Saturates at the ends and is 0 for NaN: the two that `as` promises.
        let floor = number.floor() as i64;
        let fraction = number - number.floor();
        Self::number(floor, if fraction.is_finite() { fraction } else { 0.0 })
    }

    /// A text.
    ///
    /// # Errors
    /// Longer than the audit stores.
    pub(crate) fn text(text: &str) -> Result<Self, OrderTooLong> {
        if text.len() > ORDER_TEXT {
            return Err(OrderTooLong(text.len()));
        }
        Ok(Self([&[2], text.as_bytes()].concat()))
    }

    fn number(floor: i64, fraction: f64) -> Self {
        let floor = floor.cast_unsigned() ^ (1 << 63);
        // Bits of floats that are not negative sort as the floats do.
        Self([&[1][..], &floor.to_be_bytes(), &fraction.to_bits().to_be_bytes()].concat())
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// One record of one side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Item {
    /// What makes it the same as a record of the other side.
    pub(crate) id: Id,
    /// Where it stands.
    pub(crate) place: Place,
    /// With [`super::Ordering::Value`]: what it is compared within, such as a hash of its key.
    pub(crate) group: Option<u128>,
    /// With [`super::Ordering::Value`]: its value.
    pub(crate) order: Option<Order>,
}

/// Which side an item is of. The expected side sorts first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Expected,
    Actual,
}

/// An item without its id, as the join holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) place: Place,
    pub(super) group: Option<u128>,
    pub(super) order: Option<Vec<u8>>,
}

const HAS_GROUP: u8 = 1;
const HAS_ORDER: u8 = 2;

/// `id 16 | side 1 | partition 4 | offset 8 | flags 1 | group 16, where there is one | order, where there is one`
pub(super) fn encode(side: Side, item: &Item, out: &mut Vec<u8>) {
    out.clear();
    out.extend_from_slice(&item.id.0.to_be_bytes());
    out.push(match side {
        Side::Expected => 0,
        Side::Actual => 1,
    });
    put_place(item.place, out);
    let group = item.group.map_or(0, |_| HAS_GROUP);
    let order = item.order.as_ref().map_or(0, |_| HAS_ORDER);
    out.push(group | order);
    if let Some(group) = item.group {
        out.extend_from_slice(&group.to_be_bytes());
    }
    if let Some(order) = &item.order {
        out.extend_from_slice(order.bytes());
    }
}

/// Reads what [`encode`] wrote.
pub(super) fn decode(record: &[u8]) -> (Id, Side, Entry) {
    let mut rest = record;
    let id = Id(u128::from_be_bytes(take(&mut rest)));
    let [side] = take(&mut rest);
    let side = if side == 0 { Side::Expected } else { Side::Actual };
    let place = take_place(&mut rest);
    let [flags] = take(&mut rest);
    let group = (flags & HAS_GROUP != 0).then(|| u128::from_be_bytes(take(&mut rest)));
    let order = (flags & HAS_ORDER != 0).then(|| rest.to_vec());
    (id, side, Entry { place, group, order })
}

pub(super) fn put_place(place: Place, out: &mut Vec<u8>) {
    out.extend_from_slice(&place.partition.to_be_bytes());
    out.extend_from_slice(&place.offset.to_be_bytes());
}

pub(super) fn take_place(rest: &mut &[u8]) -> Place {
    let partition = u32::from_be_bytes(take(rest));
    Place { partition, offset: u64::from_be_bytes(take(rest)) }
}

/// The next bytes of a record that this process has written.
pub(super) fn take<const N: usize>(rest: &mut &[u8]) -> [u8; N] {
    let (head, tail) = rest.split_first_chunk().expect("records are read as they were written");
    *rest = tail;
    *head
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_values_sort_as_what_they_stand_for() {
        let numbers = [
            Order::number_f64(f64::NEG_INFINITY),
            Order::number_i64(-7),
            Order::number_f64(-6.5),
            Order::number_f64(-6.25),
            Order::number_i64(0),
            Order::number_f64(0.5),
            Order::number_i64(1),
            Order::number_i64(9_007_199_254_740_993),
            Order::number_i64(9_007_199_254_740_994),
            Order::number_f64(1e300),
            Order::text("").unwrap(),
            Order::text("2026-01-01").unwrap(),
            Order::text("2026-01-02").unwrap(),
        ];
        assert!(numbers.is_sorted_by(|a, b| a.bytes() < b.bytes()));
        assert_eq!(Order::number_f64(5.0), Order::number_i64(5));
        assert_eq!(Order::text(&"x".repeat(256)), Err(OrderTooLong(256)));
    }

    #[test]
    fn absent_empty_and_shifted_fields_are_different_records() {
        let none = std::iter::empty;
        let ids = [
            Id::of_record(None, None, none()),
            Id::of_record(Some(b""), None, none()),
            Id::of_record(None, Some(b""), none()),
            Id::of_record(Some(b"a"), Some(b"bc"), none()),
            Id::of_record(Some(b"ab"), Some(b"c"), none()),
            Id::of_record(None, None, [(&b"h"[..], None)].into_iter()),
            Id::of_record(None, None, [(&b"h"[..], Some(&b""[..]))].into_iter()),
            Id::of_record(None, None, [(&b"h"[..], None), (&b"g"[..], None)].into_iter()),
            Id::of_record(None, None, [(&b"g"[..], None), (&b"h"[..], None)].into_iter()),
            Id::of_value(b"a"),
        ];
        for (at, id) in ids.iter().enumerate() {
            assert!(!ids[..at].contains(id), "{at}");
        }
        assert_eq!(Id::of_value(b"a"), Id::of_value(b"a"));
    }

    #[test]
    fn an_item_is_read_back_as_it_was_encoded() {
        for (group, order) in [
            (None, None),
            (Some(7), None),
            (None, Some(Order::number_i64(3))),
            (Some(1), Order::text("").ok()),
        ] {
            let place = Place { partition: 3, offset: u64::MAX };
            let item = Item { id: Id(u128::MAX - 5), place, group, order };
            let mut bytes = Vec::new();
            for side in [Side::Expected, Side::Actual] {
                encode(side, &item, &mut bytes);
                let order = item.order.as_ref().map(|order| order.bytes().to_vec());
                assert_eq!(decode(&bytes), (item.id, side, Entry { place, group, order }));
            }
        }
    }
}
