//! Explores every state of a world, breadth first, and says what it found.
//!
//! Owns: which states were seen, how each was reached (so that a violation has a shortest trace), and whether the good end
//! stays reachable. Refuses to call a world explored that was cut by the bound on its states.
//!
//! Safety is the world's own: a step that breaks a promise is an error. Liveness is decided here, on the whole graph: from
//! every state some sequence of steps without a fault leads to a state that is at rest. A schedule that is fair to every
//! such step takes it at last, so with it nothing is stuck once faults have stopped.
//!
//! States are told apart by 64 bits: among n states two that differ are taken for one with a chance of about n²/2⁶⁵, which
//! is below one in three hundred thousand for ten million.

use std::{
    collections::{BTreeMap, HashMap, hash_map::Entry},
    fmt,
    hash::{BuildHasherDefault, Hasher},
    panic::{self, AssertUnwindSafe},
};

/// No machine panics.
pub const NO_PANIC: &str = "no panic";
/// From every state, once faults have stopped, everything comes to its end.
pub const PROGRESS: &str = "progress";

/// A world: its states and the steps between them.
pub trait World: Clone {
    /// One thing that may happen.
    type Step: Clone + fmt::Debug;

    /// Everything that may happen now.
    fn steps(&self) -> Vec<Self::Step>;

    /// The world after a step: none where the step would change nothing that counts.
    ///
    /// # Errors
    /// The promise that the step breaks.
    fn after(&self, step: &Self::Step) -> Result<Option<Self>, Violation>;

    /// Is the step a fault? Liveness is asked of what happens without any.
    fn is_fault(step: &Self::Step) -> bool;

    /// Does nothing have to happen any more?
    fn is_at_rest(&self) -> bool;

    /// What is interesting about how this state was reached.
    fn reached(&self) -> &[&'static str];

    /// Tells states apart.
    fn fingerprint(&self) -> u64;

    /// What a step does here, for a trace.
    fn tell(&self, step: &Self::Step) -> String {
        format!("{step:?}")
    }

    /// The state, for a trace.
    fn story(&self) -> String;
}

/// A promise that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which.
    pub property: &'static str,
    /// How it shows.
    pub what: String,
}

/// What was found in a world.
#[derive(Clone, Debug)]
pub struct Found {
    /// States that differ.
    pub states: usize,
    /// Steps between them.
    pub steps: usize,
    /// The longest of the shortest ways to a state.
    pub depth: usize,
    /// States at rest.
    pub at_rest: usize,
    /// How many steps reached what is interesting.
    pub reached: BTreeMap<&'static str, usize>,
    /// The bound on states was met: nothing is proved.
    pub cut: bool,
    /// The first promise that was broken, with the way there.
    pub broken: Option<Broken>,
}

/// A violation with its trace.
#[derive(Clone, Debug)]
pub struct Broken {
    /// What was broken.
    pub violation: Violation,
    /// The steps from the beginning, the last one being the one that broke it.
    pub trace: Vec<String>,
    /// The state before the last step.
    pub story: String,
}

/// Fingerprints are spread already.
#[derive(Default)]
struct AsItIs(u64);

impl Hasher for AsItIs {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _bytes: &[u8]) {
        unreachable!("only fingerprints are hashed")
    }

    fn write_u64(&mut self, fingerprint: u64) {
        self.0 = fingerprint;
    }
}

struct Search<W> {
    first: W,
    /// Number of each state by its fingerprint.
    seen: HashMap<u64, u32, BuildHasherDefault<AsItIs>>,
    /// How each state was reached first: from which one, by which of its steps.
    parents: Vec<(u32, u16)>,
    at_rest: Vec<u32>,
    /// Steps that are no faults, backwards: to, from.
    back: Vec<(u32, u32)>,
    found: Found,
}

/// Explores a world, up to a number of states.
pub fn explore<W: World>(first: W, most_states: usize) -> Found {
    let found = Found {
        states: 0,
        steps: 0,
        depth: 0,
        at_rest: 0,
        reached: BTreeMap::new(),
        cut: false,
        broken: None,
    };
    let mut search = Search {
        first: first.clone(),
        seen: HashMap::default(),
        parents: Vec::new(),
        at_rest: Vec::new(),
        back: Vec::new(),
        found,
    };
    search.number(&first, 0, 0);
    let mut level = vec![(0, first)];
    while !level.is_empty() && search.found.broken.is_none() && !search.found.cut {
        level = search.next_level(&level, most_states);
        search.found.depth += usize::from(!level.is_empty());
    }
    search.found.states = search.parents.len();
    search.found.at_rest = search.at_rest.len();
    if search.found.broken.is_none() && !search.found.cut {
        search.found.broken = search.stuck();
    }
    search.found
}

impl<W: World> Search<W> {
    /// The state's number, and whether it is new.
    fn number(&mut self, world: &W, from: u32, by: u16) -> (u32, bool) {
        let new = u32::try_from(self.parents.len()).expect("fewer states than that");
        match self.seen.entry(world.fingerprint()) {
            Entry::Occupied(known) => (*known.get(), false),
            Entry::Vacant(vacant) => {
                vacant.insert(new);
                self.parents.push((from, by));
                if world.is_at_rest() {
                    self.at_rest.push(new);
                }
                (new, true)
            }
        }
    }

    fn next_level(&mut self, level: &[(u32, W)], most_states: usize) -> Vec<(u32, W)> {
        let mut next = Vec::new();
        for (from, world) in level {
            for (index, step) in world.steps().iter().enumerate() {
                let by = u16::try_from(index).expect("fewer steps than that");
                match guarded(world, step) {
                    Ok(None) => {}
                    Ok(Some(after)) => {
                        self.found.steps += 1;
                        for what in after.reached() {
                            *self.found.reached.entry(what).or_default() += 1;
                        }
                        let (to, is_new) = self.number(&after, *from, by);
                        if to != *from && !W::is_fault(step) {
                            self.back.push((to, *from));
                        }
                        if is_new {
                            next.push((to, after));
                        }
                    }
                    Err(violation) => {
                        self.found.broken = Some(self.broken(*from, Some(step), violation));
                        return next;
                    }
                }
            }
            if self.parents.len() > most_states {
                self.found.cut = true;
                return next;
            }
        }
        next
    }

    /// The way to a state, and the step that broke a promise there.
    fn broken(&self, at: u32, step: Option<&W::Step>, violation: Violation) -> Broken {
        let mut way = Vec::new();
        let mut number = at;
        while number != 0 {
            let (from, by) = self.parents[number as usize];
            way.push(by);
            number = from;
        }
        let mut world = self.first.clone();
        let mut trace = Vec::new();
        for by in way.into_iter().rev() {
            let taken = world.steps()[usize::from(by)].clone();
            trace.push(world.tell(&taken));
            world = world.after(&taken).ok().flatten().expect("it was taken before");
        }
        trace.extend(step.map(|step| world.tell(step)));
        Broken { violation, trace, story: world.story() }
    }

    /// A state from which no sequence of steps without a fault leads to one at rest: the last one found, which is nearest to
    /// where it got stuck.
    fn stuck(&mut self) -> Option<Broken> {
        self.back.sort_unstable();
        let mut reaches = vec![false; self.parents.len()];
        let mut open = self.at_rest.clone();
        open.iter().for_each(|at| reaches[*at as usize] = true);
        while let Some(to) = open.pop() {
            let first = self.back.partition_point(|(other, _)| *other < to);
            for (_, from) in self.back[first..].iter().take_while(|(other, _)| *other == to) {
                if !std::mem::replace(&mut reaches[*from as usize], true) {
                    open.push(*from);
                }
            }
        }
        let stuck = reaches.iter().rposition(|reaches| !reaches)?;
        let what = "without another fault nothing leads to an end of it".to_owned();
        let violation = Violation { property: PROGRESS, what };
        Some(self.broken(u32::try_from(stuck).expect("numbered so"), None, violation))
    }
}

/// A machine that panics has broken a promise, too.
fn guarded<W: World>(world: &W, step: &W::Step) -> Result<Option<W>, Violation> {
    let taken = panic::catch_unwind(AssertUnwindSafe(|| world.after(step)));
    taken.unwrap_or_else(|payload| {
        let text = payload.downcast_ref::<String>().cloned();
        let what = text.or_else(|| payload.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        Err(Violation { property: NO_PANIC, what: what.unwrap_or_default() })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts to ten by ones and twos; a fault takes it to a number that has no way on.
    #[derive(Clone, Debug)]
    struct Counter {
        at: u64,
        trap: Option<u64>,
        forbidden: Option<u64>,
    }

    #[derive(Clone, Copy, Debug)]
    enum Count {
        By(u64),
        Fault,
    }

    impl World for Counter {
        type Step = Count;

        fn steps(&self) -> Vec<Count> {
            match self.trap == Some(self.at) {
                true => Vec::new(),
                false => vec![Count::By(1), Count::By(2), Count::Fault],
            }
        }

        fn after(&self, step: &Count) -> Result<Option<Self>, Violation> {
            let at = match (step, self.trap) {
                (Count::By(by), _) => self.at + by,
                (Count::Fault, Some(trap)) => trap,
                (Count::Fault, None) => return Ok(None),
            };
            if self.forbidden == Some(at) {
                return Err(Violation { property: "forbidden", what: at.to_string() });
            }
            Ok((at <= 10 || self.trap == Some(at)).then(|| Self { at, ..self.clone() }))
        }

        fn is_fault(step: &Count) -> bool {
            matches!(step, Count::Fault)
        }

        fn is_at_rest(&self) -> bool {
            self.at == 10
        }

        fn reached(&self) -> &[&'static str] {
            if self.at == 5 { &["half"] } else { &[] }
        }

        fn fingerprint(&self) -> u64 {
            self.at
        }

        fn story(&self) -> String {
            self.at.to_string()
        }
    }

    #[test]
    fn every_state_is_seen_once() {
        let found = explore(Counter { at: 0, trap: None, forbidden: None }, 100);
        assert_eq!((found.states, found.depth, found.at_rest, found.cut), (11, 5, 1, false));
        assert_eq!(found.reached, [("half", 2)].into());
        assert!(found.broken.is_none());
    }

    #[test]
    fn a_broken_promise_has_the_shortest_way_to_it() {
        let found = explore(Counter { at: 0, trap: None, forbidden: Some(7) }, 100);
        let broken = found.broken.unwrap();
        assert_eq!((broken.violation.property, broken.trace.len()), ("forbidden", 4));
        assert_eq!(broken.trace.last().unwrap(), "By(2)");
    }

    #[test]
    fn a_state_without_a_way_to_rest_is_found() {
        let found = explore(Counter { at: 0, trap: Some(100), forbidden: None }, 100);
        let broken = found.broken.unwrap();
        assert_eq!((broken.violation.property, broken.trace), ("progress", vec!["Fault".to_owned()]));
        assert_eq!(broken.story, "100");
    }

    #[test]
    fn a_world_that_was_cut_says_so() {
        assert!(explore(Counter { at: 0, trap: None, forbidden: None }, 5).cut);
    }
}
