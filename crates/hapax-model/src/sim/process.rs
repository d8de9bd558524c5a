//! A process: tasks that die together, sleep together, and are run in an order that the seed chooses.
//!
//! ```text
//! runtime polls a task -> gate: dead? it is dropped    asleep? it waits    its turn? often, not always -> the task
//! ```
//!
//! A kill falls between two polls, so at any await of any task, and nothing of the process is polled behind it. What it had
//! handed to a socket or to the store is under way all the same, as with a real one.

use super::{
    signal::Signal,
    trace::{Trace, now},
};
use hapax_host::{Job, Tasks};
use std::{
    collections::BTreeMap,
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
};
use tokio::time::Instant;

/// Polls of one process at one instant of virtual time: beyond it, it computes without an end.
const MOST_POLLS: u64 = 2_000_000;

/// A process of a simulated machine. Cheap to clone; clones are the same process.
#[derive(Clone)]
pub(super) struct Process(Arc<Gate>);

struct Gate {
    number: u32,
    trace: Trace,
    state: Mutex<State>,
    died: Signal,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Life {
    Awake,
    Asleep,
    Dead,
}

/// What is to happen at a poll to come.
#[derive(Clone, Copy)]
struct Due {
    poll: u64,
    then: Life,
}

struct State {
    life: Life,
    due: Option<Due>,
    polls: u64,
    /// Polls at the present instant.
    instant: (Instant, u64),
    next: u64,
    wakers: BTreeMap<u64, Waker>,
    random: fastrand::Rng,
    /// How likely a task must let others go first.
    yields: f64,
}

enum Turn {
    Now,
    Later,
    Asleep,
    Over,
}

impl Process {
    pub(super) fn new(number: u32, trace: Trace, mut random: fastrand::Rng) -> Self {
        let yields = [0.0, 0.1, 0.5][random.usize(..3)];
        let state = State {
            life: Life::Awake,
            due: None,
            polls: 0,
            instant: (now(), 0),
            next: 0,
            wakers: BTreeMap::new(),
            random,
            yields,
        };
        Self(Arc::new(Gate { number, trace, state: Mutex::new(state), died: Signal::default() }))
    }

    /// Which one it is.
    pub(super) fn number(&self) -> u32 {
        self.0.number
    }

    /// Dies within so many polls, or at once where it sleeps.
    pub(super) fn kill(&self, within: u64) {
        self.plan(within, Life::Dead);
    }

    /// Sleeps within so many polls.
    pub(super) fn freeze(&self, within: u64) {
        self.plan(within, Life::Asleep);
    }

    /// Wakes, if it sleeps or is about to.
    pub(super) fn thaw(&self) {
        let mut state = self.state();
        state.due = state.due.filter(|due| due.then == Life::Dead);
        if state.life == Life::Asleep {
            state.life = Life::Awake;
            wake(state);
            self.0.trace.event(format_args!("process {} wakes", self.0.number));
        }
    }

    /// Returns when it is dead.
    pub(super) async fn died(&self) {
        self.0.died.until(|| (self.state().life == Life::Dead).then_some(())).await;
    }

    /// Runs the task that all others come from. One of a simulated thread, so that it need not be for any.
    pub(super) fn run(&self, root: impl Future<Output = ()> + 'static) {
        tokio::task::spawn_local(self.gated(Box::pin(root)));
    }

    fn gated<T>(&self, task: T) -> Gated<T> {
        let mut state = self.state();
        let number = state.next;
        state.next += 1;
        drop(state);
        Gated { process: self.clone(), number, task: Some(task) }
    }

    fn plan(&self, within: u64, then: Life) {
        let mut state = self.state();
        if state.life == Life::Asleep {
            self.live(state, then);
            return;
        }
        let poll = state.polls + state.random.u64(..=within);
        state.due = Some(Due { poll, then });
        // One that waits for a long time is polled now.
        wake(state);
    }

    fn live(&self, mut state: MutexGuard<'_, State>, life: Life) {
        if state.life == Life::Dead || state.life == life {
            return;
        }
        (state.life, state.due) = (life, None);
        let text = match life {
            Life::Awake => "is awake",
            Life::Asleep => "sleeps",
            Life::Dead => "is dead",
        };
        self.0.trace.event(format_args!("process {} {text}", self.0.number));
        if life == Life::Dead {
            wake(state);
            self.0.died.tell();
        }
    }

    fn turn(&self, task: u64, waker: &Waker) -> Turn {
        let before = self.state().wakers.insert(task, waker.clone());
        // Outside of the lock: a task may go with the last that could wake it.
        drop(before);
        let mut state = self.state();
        if state.life == Life::Awake {
            state.polls += 1;
            self.count(&mut state);
            if let Some(due) = state.due.filter(|due| state.polls >= due.poll) {
                self.live(state, due.then);
                state = self.state();
            }
        }
        let goes_first = state.yields == 0.0 || state.random.f64() >= state.yields;
        match (state.life, goes_first) {
            (Life::Dead, _) => Turn::Over,
            (Life::Asleep, _) => Turn::Asleep,
            (Life::Awake, false) => Turn::Later,
            (Life::Awake, true) => Turn::Now,
        }
    }

    fn count(&self, state: &mut State) {
        let at = now();
        match &mut state.instant {
            (last, count) if *last == at => *count += 1,
            instant => *instant = (at, 0),
        }
        if state.instant.1 > MOST_POLLS {
            state.life = Life::Dead;
            self.0.trace.violation(format!("process {} computes while no time passes", self.0.number));
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Has every task polled again.
fn wake(state: MutexGuard<'_, State>) {
    let wakers: Vec<Waker> = state.wakers.values().cloned().collect();
    drop(state);
    wakers.iter().for_each(Waker::wake_by_ref);
}

impl Tasks for Process {
    fn wrap(&self, task: Job) -> Job {
        Box::pin(self.gated(task))
    }
}

/// Runs a task of the world itself, which goes on whatever becomes of processes.
#[allow(clippy::disallowed_methods, reason = "what is no process's is held by no process")]
pub(super) fn spawn(task: impl Future<Output = ()> + Send + 'static) {
    drop(tokio::spawn(task));
}

/// A task behind its process's gate.
struct Gated<T> {
    process: Process,
    number: u64,
    task: Option<T>,
}

impl<T: Future<Output = ()> + Unpin> Future for Gated<T> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        match self.process.turn(self.number, cx.waker()) {
            Turn::Now => {}
            Turn::Later => {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            Turn::Asleep => return Poll::Pending,
            Turn::Over => self.task = None,
        }
        let Some(task) = &mut self.task else { return Poll::Ready(()) };
        let polled = Pin::new(task).poll(cx);
        if polled.is_ready() {
            self.task = None;
        }
        polled
    }
}

impl<T> Drop for Gated<T> {
    fn drop(&mut self) {
        let waker = self.process.state().wakers.remove(&self.number);
        // Outside of the lock: a task may go with the last that could wake it.
        drop(waker);
    }
}
