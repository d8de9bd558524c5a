//! Which partition a record goes to.
//!
//! An explicit partition stays. A record with a key goes where Java's default partitioner puts it, so that keyed
//! records of both meet. Records without a key stick to one partition until a batch of it is sealed, and then to
//! another, drawn at random: whole batches instead of one record for each partition.
//!
//! Source: `BuiltInPartitioner`, `Utils.murmur2` of the Java client; KIP-480.

/// Chooses partitions of one topic.
#[derive(Debug, Clone)]
pub struct Partitioner {
    /// State of a SplitMix64 generator.
    random: u64,
    sticky: Option<i32>,
}

impl Partitioner {
    /// One whose choices for records without a key follow from `seed`.
    pub fn new(seed: u64) -> Self {
        Self { random: seed, sticky: None }
    }

    /// The partition, out of `partitions`, of a record with this key and maybe an explicit partition, which the
    /// caller has checked.
    ///
    /// # Panics
    /// When `partitions` is not positive: a topic has at least one.
    pub fn choose(&mut self, key: Option<&[u8]>, explicit: Option<i32>, partitions: i32) -> i32 {
        assert!(partitions > 0, "a topic has at least one partition, not {partitions}");
        match (explicit, key) {
            (Some(partition), _) => partition,
            (None, Some(key)) => murmur2_partition(key, partitions),
            (None, None) => match self.sticky {
                Some(partition) if partition < partitions => partition,
                _ => self.stick(None, partitions),
            },
        }
    }

    /// A batch of `partition` was sealed: if records without a key stuck to it, they go to another from now on.
    pub fn batch_sealed(&mut self, partition: i32, partitions: i32) {
        if self.sticky == Some(partition) {
            self.stick(Some(partition), partitions);
        }
    }

    /// Draws the partition to stick to, another one than `former` if there is one.
    fn stick(&mut self, former: Option<i32>, partitions: i32) -> i32 {
        let others = if former.is_some() { (partitions - 1).max(1) } else { partitions };
        let drawn = (self.next_random() % others as u64) as i32;
        let chosen = match former {
            Some(former) if partitions > 1 && drawn >= former => drawn + 1,
            _ => drawn,
        };
        self.sticky = Some(chosen);
        chosen
    }

    fn next_random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

/// Where Java's default partitioner puts a record with this key.
///
/// # Panics
/// When `partitions` is not positive.
pub fn murmur2_partition(key: &[u8], partitions: i32) -> i32 {
    to_positive(murmur2(key)) % partitions
}

/// The number without its sign bit: not its absolute value.
pub fn to_positive(number: i32) -> i32 {
    number & i32::MAX
}

/// MurmurHash2, 32 bits, with the seed that Kafka fixed.
pub fn murmur2(bytes: &[u8]) -> i32 {
    const SEED: u32 = 0x9747_b28c;
    const M: u32 = 0x5bd1_e995;
    let (words, tail) = bytes.as_chunks::<4>();
    let mut hash = SEED ^ bytes.len() as u32;
    for word in words {
        let mut mixed = u32::from_le_bytes(*word).wrapping_mul(M);
        mixed ^= mixed >> 24;
        hash = hash.wrapping_mul(M) ^ mixed.wrapping_mul(M);
    }
    if !tail.is_empty() {
        hash ^= tail.iter().rev().fold(0, |word, byte| word << 8 | u32::from(*byte));
        hash = hash.wrapping_mul(M);
    }
    hash ^= hash >> 13;
    hash = hash.wrapping_mul(M);
    (hash ^ (hash >> 15)) as i32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_hash_as_in_java() {
        for (key, hash) in [
            ("21", -973932308),
            ("foobar", -790332482),
            ("a-little-bit-long-string", -985981536),
            ("a-little-bit-longer-string", -1486304829),
            ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
            ("abc", 479470107),
        ] {
            assert_eq!(murmur2(key.as_bytes()), hash, "{key}");
            assert_eq!(murmur2_partition(key.as_bytes(), 7), (hash & 0x7fff_ffff) % 7);
        }
        assert_eq!(to_positive(-1), i32::MAX);
        assert_eq!(to_positive(i32::MIN), 0);
    }

    #[test]
    fn records_without_a_key_stick_until_their_batch_is_sealed() {
        let mut partitioner = Partitioner::new(42);
        let mut seen = [0; 5];
        for _ in 0..500 {
            let chosen = partitioner.choose(None, None, 5);
            assert_eq!(partitioner.choose(Some(b"key"), None, 5), murmur2_partition(b"key", 5));
            assert_eq!(partitioner.choose(Some(b"key"), Some(4), 5), 4);
            partitioner.batch_sealed((chosen + 1) % 5, 5);
            assert_eq!(partitioner.choose(None, None, 5), chosen);
            partitioner.batch_sealed(chosen, 5);
            assert_ne!(partitioner.choose(None, None, 5), chosen);
            seen[chosen as usize] += 1;
        }
        assert!(seen.iter().all(|count| (60..140).contains(count)), "{seen:?}");
    }

    #[test]
    fn one_partition_is_always_the_choice_and_a_seed_repeats() {
        let mut one = Partitioner::new(1);
        for _ in 0..3 {
            assert_eq!(one.choose(None, None, 1), 0);
            one.batch_sealed(0, 1);
        }
        let draw = |seed| {
            let mut partitioner = Partitioner::new(seed);
            (0..20)
                .map(|_| {
                    let chosen = partitioner.choose(None, None, 9);
                    partitioner.batch_sealed(chosen, 9);
                    chosen
                })
                .collect::<Vec<_>>()
        };
        assert_eq!(draw(3), draw(3));
        assert_ne!(draw(3), draw(4));
    }
}
