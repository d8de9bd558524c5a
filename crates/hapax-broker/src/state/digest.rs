//! What a machine keeps, as one number: machines that took the same inputs at the same times have the same one. So a
//! journal can tell whether its replay came to where the writer was.
//!
//! Counts what inputs that are kept, and time, make of the machine: logs, producers, transactions, groups, offsets,
//! timers, and where random choices go on. Does not count readers that wait, whose requests are not kept, the time
//! itself, and addresses.
//!
//! The number is in journals, so what is fed, in which order and how it is mixed is part of their format. Each
//! structure is taken apart whole: a new field is a compile error until it is fed or left out.

use super::{NodeId, Ticket, TopicPartition};
use crate::batch::Batch;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use uuid::Uuid;

/// Odd, with its bits spread: the multiplier of a hash that mixes word by word.
const SPREAD: u64 = 0x517c_c1b7_2722_0a95;

/// Mixes what it is fed.
#[derive(Debug, Default)]
pub(crate) struct Digest(u64);

impl Digest {
    fn word(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(SPREAD);
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.word(bytes.len() as u64);
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.word(u64::from_le_bytes(word));
        }
    }

    pub(crate) fn done(self) -> u64 {
        self.0 ^ (self.0 >> 32)
    }
}

/// What a digest can be fed.
pub(crate) trait Feed {
    fn feed(&self, into: &mut Digest);
}

macro_rules! number {
    ($($number:ty),*) => {
        $(impl Feed for $number {
            fn feed(&self, into: &mut Digest) {
                into.word(*self as u64);
            }
        })*
    };
}

number!(bool, i8, u8, i16, i32, u32, i64, u64, usize);

impl Feed for str {
    fn feed(&self, into: &mut Digest) {
        into.bytes(self.as_bytes());
    }
}

impl Feed for String {
    fn feed(&self, into: &mut Digest) {
        self.as_str().feed(into);
    }
}

impl Feed for Bytes {
    fn feed(&self, into: &mut Digest) {
        into.bytes(self);
    }
}

impl Feed for Uuid {
    fn feed(&self, into: &mut Digest) {
        into.bytes(self.as_bytes());
    }
}

impl Feed for NodeId {
    fn feed(&self, into: &mut Digest) {
        self.0.feed(into);
    }
}

impl Feed for Ticket {
    fn feed(&self, into: &mut Digest) {
        self.0.feed(into);
    }
}

impl<T: Feed> Feed for Option<T> {
    fn feed(&self, into: &mut Digest) {
        self.is_some().feed(into);
        if let Some(value) = self {
            value.feed(into);
        }
    }
}

impl<A: Feed, B: Feed> Feed for (A, B) {
    fn feed(&self, into: &mut Digest) {
        self.0.feed(into);
        self.1.feed(into);
    }
}

macro_rules! series {
    ($($series:ident),*) => {
        $(impl<T: Feed> Feed for $series<T> {
            fn feed(&self, into: &mut Digest) {
                self.len().feed(into);
                self.iter().for_each(|item| item.feed(into));
            }
        })*
    };
}

series!(Vec, VecDeque, BTreeSet);

impl<K: Feed, V: Feed> Feed for BTreeMap<K, V> {
    fn feed(&self, into: &mut Digest) {
        self.len().feed(into);
        for (key, value) in self {
            key.feed(into);
            value.feed(into);
        }
    }
}

/// Feeds the named fields of a structure, and names those that are left out.
macro_rules! feed {
    ($type:ty { $($field:ident),* $(,)? } $(without { $($left:ident),* })?) => {
        impl $crate::state::digest::Feed for $type {
            fn feed(&self, into: &mut $crate::state::digest::Digest) {
                let Self { $($field,)* $($($left: _,)*)? } = self;
                $($crate::state::digest::Feed::feed($field, into);)*
            }
        }
    };
}
pub(crate) use feed;

feed!(TopicPartition { topic, partition });

impl Feed for Batch {
    fn feed(&self, into: &mut Digest) {
        // The head has a checksum of the records.
        let Self { header: _, head, records } = self;
        into.bytes(head);
        records.len().feed(into);
    }
}

impl Feed for fastrand::Rng {
    fn feed(&self, into: &mut Digest) {
        self.get_seed().feed(into);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(of: &impl Feed) -> u64 {
        let mut digest = Digest::default();
        of.feed(&mut digest);
        digest.done()
    }

    #[test]
    fn the_number_is_part_of_the_format() {
        assert_eq!(digest(&7_i64), 4_208_978_898_958_353_937);
        assert_eq!(digest(&"orders".to_owned()), 11_757_321_234_951_297_476);
    }

    #[test]
    fn the_parts_of_a_series_are_told_apart() {
        let texts = |texts: &[&str]| digest(&texts.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>());
        assert_ne!(texts(&["ab", "c"]), texts(&["a", "bc"]));
        assert_ne!(digest(&None::<i32>), digest(&Some(0)));
        assert_ne!(texts(&[]), texts(&[""]));
    }
}
