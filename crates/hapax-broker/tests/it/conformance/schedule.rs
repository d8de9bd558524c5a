//! Random schedules: several producers on a few ids, their transactions, retries, lost answers, fences and time-outs,
//! with readers between. A seed is a schedule, the same on every cluster.
//!
//! What a schedule does next never depends on an answer, only what a producer then believes does. An act whose result
//! would depend on a race inside of a cluster first waits until markers are written.

use super::{
    Protocol, Scenario, group,
    world::{Batch, Identity, World},
};
use fastrand::Rng;
use std::{collections::BTreeMap, thread, time::Duration};

const TOPIC: &str = "t";
const PARTITIONS: i32 = 2;
const IDS: [&str; 3] = ["one", "two", "three"];
const GROUPS: [&str; 2] = ["g", "h"];
const ACTS: usize = 24;
const MOMENT: Duration = Duration::from_millis(60);

/// The schedules of these seeds.
pub(super) fn scenarios(seeds: std::ops::Range<u64>) -> Vec<Scenario> {
    let one = |seed| Scenario {
        name: format!("schedule-{seed}"),
        play: Box::new(move |world: &mut World, protocol| Schedule::new(seed, protocol).play(world)),
    };
    seeds.map(one).collect()
}

/// A process that writes with an id, and what it believes.
struct Producer {
    id: &'static str,
    own: Option<Identity>,
    /// Identities that it or another one had before.
    past: Vec<Identity>,
    sequences: BTreeMap<i32, i32>,
    /// What V1 has added to the transaction.
    added: Vec<i32>,
}

struct Schedule {
    random: Rng,
    protocol: Protocol,
    producers: Vec<Producer>,
    values: u32,
}

impl Schedule {
    fn new(seed: u64, protocol: Protocol) -> Self {
        // Two processes share the first id.
        let producer =
            |id| Producer { id, own: None, past: Vec::new(), sequences: BTreeMap::new(), added: Vec::new() };
        let producers = vec![producer(IDS[0]), producer(IDS[0]), producer(IDS[1]), producer(IDS[2])];
        Self { random: Rng::with_seed(seed), protocol, producers, values: 0 }
    }

    fn play(mut self, world: &mut World) {
        world.create_topic(TOPIC, PARTITIONS, &[]);
        for _ in 0..ACTS {
            let who = self.random.usize(..self.producers.len());
            self.act(world, who);
        }
        self.look(world);
        for id in IDS {
            world.init(id, 4, None);
            world.describe(id);
        }
        self.look(world);
    }

    /// Draws everything before it acts, so that an answer does not change what is drawn later.
    fn act(&mut self, world: &mut World, who: usize) {
        let (what, choice, odd) = (self.random.u32(0..100), self.random.u64(..), self.random.u32(0..100));
        let mut draw = Rng::with_seed(choice);
        if self.producers[who].own.is_none() && what < 80 {
            return self.begin(world, who, &mut draw);
        }
        match what {
            0..34 => self.write(world, who, odd, &mut draw),
            34..44 => self.offsets(world, who, odd, &mut draw),
            44..66 => self.end(world, who, odd, &mut draw),
            66..74 => self.begin(world, who, &mut draw),
            74..77 => self.let_time_out(world, who, &mut draw),
            77..80 => self.add(world, who, odd, &mut draw),
            80..84 => self.stand_alone(world, &mut draw),
            84..86 => self.trim(world, &mut draw),
            _ => self.read(world, &mut draw),
        }
    }

    fn begin(&mut self, world: &mut World, who: usize, draw: &mut Rng) {
        let version = [0, 1, 3, 4, 4, 4, 5][draw.usize(..7)];
        let version = if self.protocol == Protocol::V1 { version.min(4) } else { version };
        let known = self.identity(who, draw.u32(0..100), draw);
        let known = known.filter(|_| version >= 3 && draw.u32(0..100) < 40);
        let id = self.producers[who].id;
        let given = world.init(id, version, known);
        world.describe(id);
        self.adopt(who, given);
    }

    /// Mostly what the producer believes; at odds, something that was or never was.
    fn identity(&self, who: usize, odd: u32, draw: &mut Rng) -> Option<Identity> {
        let producer = &self.producers[who];
        let own = producer.own?;
        let pick = draw.usize(..);
        Some(match odd {
            0..86 => own,
            86..93 if !producer.past.is_empty() => producer.past[pick % producer.past.len()],
            93..96 => own.later(1),
            96..98 => own.later(2),
            98..99 => own.stranger(),
            _ => own,
        })
    }

    fn adopt(&mut self, who: usize, given: Option<Identity>) {
        let producer = &mut self.producers[who];
        if let Some(given) = given {
            producer.past.extend(producer.own);
            producer.own = Some(given);
            producer.sequences.clear();
            producer.added.clear();
        }
    }

    fn write(&mut self, world: &mut World, who: usize, odd: u32, draw: &mut Rng) {
        let Some(own) = self.identity(who, odd, draw) else { return };
        let partition = draw.i32(0..PARTITIONS);
        let producer = &mut self.producers[who];
        let id = producer.id;
        let adds =
            self.protocol == Protocol::V1 && !producer.added.contains(&partition) && draw.u32(0..100) < 92;
        if adds && world.add(id, 3, own, TOPIC, &[partition]) == 0 {
            producer.added.push(partition);
        }
        let expected = producer.sequences.get(&partition).copied().unwrap_or(0);
        let sequence = match draw.u32(0..100) {
            0..88 => expected,
            88..94 => (expected - 1).max(0),
            94..97 => expected + 2,
            _ => 0,
        };
        let count = draw.usize(1..3);
        let values: Vec<String> = (0..count)
            .map(|_| {
                self.values += 1;
                format!("v{}", self.values)
            })
            .collect();
        let values: Vec<&str> = values.iter().map(String::as_str).collect();
        let batch = Batch { partition, sequence, ..Batch::first(TOPIC, id, own, &values) };
        let version = match draw.u32(0..100) {
            0..8 => 11,
            8..12 => 9,
            _ => self.protocol.produce(),
        };
        if world.produce(version, &batch) == 0 && sequence == expected {
            producer.sequences.insert(partition, expected + count as i32);
        }
        // A retry of what was answered.
        if draw.u32(0..100) < 12 {
            world.produce(version, &batch);
        }
    }

    fn add(&mut self, world: &mut World, who: usize, odd: u32, draw: &mut Rng) {
        let Some(own) = self.identity(who, odd, draw) else { return };
        let partition = draw.i32(0..PARTITIONS);
        let id = self.producers[who].id;
        let version = draw.i16(0..=3);
        if world.add(id, version, own, TOPIC, &[partition]) == 0 {
            self.producers[who].added.push(partition);
        }
    }

    fn offsets(&mut self, world: &mut World, who: usize, odd: u32, draw: &mut Rng) {
        let Some(own) = self.identity(who, odd, draw) else { return };
        let (id, of) = (self.producers[who].id, GROUPS[draw.usize(..2)]);
        let place = [(TOPIC, draw.i32(0..PARTITIONS), draw.i64(0..1000))];
        match draw.u32(0..100) {
            0..75 => group::put_offsets(world, self.protocol, id, own, of, &place),
            75..85 => group::add_group(world, 3, id, own, of),
            _ => group::commit(world, 8, of, group::NOBODY, &place),
        }
        group::offsets(world, 8, of, None, draw.bool());
    }

    fn end(&mut self, world: &mut World, who: usize, odd: u32, draw: &mut Rng) {
        let Some(own) = self.identity(who, odd, draw) else { return };
        let commit = draw.u32(0..100) < 65;
        let id = self.producers[who].id;
        let version = match draw.u32(0..100) {
            0..6 => draw.i16(0..=4),
            _ => self.protocol.end(),
        };
        let lost = draw.u32(0..100) < 25;
        let same = draw.u32(0..100) < 80;
        let again = draw.u32(0..100) < 30;
        if lost {
            world.lose_end(id, version, own, commit);
            self.settle(world, id);
        }
        let mut code = world.end(id, version, own, commit);
        if !lost && again {
            code = world.end(id, version, own, commit == same);
        }
        let now = self.settle(world, id);
        let producer = &mut self.producers[who];
        producer.added.clear();
        // The next transaction has the identity that the answer gave: what the coordinator now says.
        if code == 0 && Some(own) == producer.own && now.is_some() && now != producer.own {
            self.adopt(who, now);
        }
    }

    /// Until no markers are under way, and a moment more for the coordinators of groups, which are told nothing of when
    /// they have applied one.
    fn settle(&self, world: &mut World, id: &str) -> Option<Identity> {
        let now = world.describe(id);
        thread::sleep(MOMENT);
        now
    }

    /// A transaction that ends by its time-out, what its producer tries afterwards, and a new beginning.
    fn let_time_out(&mut self, world: &mut World, who: usize, draw: &mut Rng) {
        let id = self.producers[who].id;
        let Some(own) = world.init_short(id) else { return };
        let partition = draw.i32(0..PARTITIONS);
        if self.protocol == Protocol::V1 {
            world.add(id, 3, own, TOPIC, &[partition]);
        }
        let batch = |sequence| Batch { partition, sequence, ..Batch::first(TOPIC, id, own, &["slow"]) };
        world.produce(self.protocol.produce(), &batch(0));
        world.in_time();
        world.ended(id, own);
        self.settle(world, id);
        for _ in 0..draw.u32(1..4) {
            match draw.u32(0..3) {
                0 => drop(world.end(id, self.protocol.end(), own, draw.bool())),
                1 => drop(world.end(id, self.protocol.end(), own.later(1), draw.bool())),
                _ => drop(world.produce(11, &batch(1))),
            }
            world.describe(id);
        }
        let given = world.init(id, 4, None);
        world.describe(id);
        self.adopt(who, given.filter(|_| draw.bool()));
    }

    /// A record of nobody's transaction.
    fn stand_alone(&mut self, world: &mut World, draw: &mut Rng) {
        self.values += 1;
        let value = format!("p{}", self.values);
        let partition = draw.i32(0..PARTITIONS);
        world.produce(9, &Batch { partition, ..Batch::plain(TOPIC, &[&value]) });
    }

    fn trim(&mut self, world: &mut World, draw: &mut Rng) {
        let (partition, offset) = (draw.i32(0..PARTITIONS), draw.i64(-1..6));
        super::record::delete(world, 2, TOPIC, partition, offset);
    }

    fn read(&mut self, world: &mut World, draw: &mut Rng) {
        let (partition, from) = (draw.i32(0..PARTITIONS), draw.i64(0..12));
        match draw.u32(0..6) {
            0 | 1 => world.fetch(TOPIC, partition, from, true),
            2 => world.fetch(TOPIC, partition, 0, draw.bool()),
            3 => world.list_offset(TOPIC, partition, [-1, -2, 0][draw.usize(..3)], draw.bool()),
            4 => world.producers(TOPIC, partition),
            _ => group::offsets(world, 8, GROUPS[draw.usize(..2)], None, draw.bool()),
        }
    }

    fn look(&self, world: &mut World) {
        for partition in 0..PARTITIONS {
            world.fetch(TOPIC, partition, 0, true);
            world.fetch(TOPIC, partition, 0, false);
            world.producers(TOPIC, partition);
        }
        for id in IDS {
            world.describe(id);
        }
        GROUPS.iter().for_each(|of| group::offsets(world, 8, of, None, false));
    }
}
