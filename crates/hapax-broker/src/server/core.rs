//! The machine behind a lock, and what stands around it: its journal, its clock, who waits for which answer.
//!
//! Invariants:
//! - an input that is kept is in the journal before the machine sees it, in the order in which it sees them;
//! - a [`Pending`] that ends without its answer tells the machine that nobody waits any more;
//! - the clock is read under the lock, so times in the journal never go back;
//! - when something happens by itself, the journal says how far time has come before it does: at any clock, and with any
//!   input behind it, a replay comes to the same.

use super::{clock::Clock, crash::Crashes};
use crate::{
    fault::{Faults, Place, Turn},
    journal::{Entry, Journal, JournalError},
    state::{Call, Input, LONGEST_MS, Machine, Millis, NodeId, Outcome, Step, Ticket},
    wire::{Request, Response},
};
use bytes::Bytes;
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};
use tokio::{
    sync::{Notify, oneshot, watch},
    time::{Instant, sleep, sleep_until},
};

/// Why an input is not applied.
#[derive(Debug, thiserror::Error)]
pub enum Halted {
    /// The broker was stopped.
    #[error("the broker has stopped")]
    Stopped,
    /// A step names what is not there, or a jump leads out of time.
    #[error("{0}")]
    Impossible(String),
    /// The broker has crashed since its client connected.
    #[error("the broker crashed after the request had come")]
    Crashed,
    /// The input cannot be kept, so it is not applied either.
    #[error(transparent)]
    Journal(#[from] JournalError),
}

#[derive(Debug)]
pub(crate) struct Core {
    state: Mutex<State>,
    pub(crate) clock: Clock,
    /// Is a version taken that is not advertised?
    pub(crate) unstable: bool,
    pub(crate) faults: Faults,
    timer: Notify,
    pub(crate) crashes: Crashes,
    /// Why nothing can be kept any more, once that is so.
    broken: watch::Sender<Option<String>>,
    stalls: Mutex<BTreeMap<NodeId, Instant>>,
}

#[derive(Debug)]
struct State {
    machine: Machine,
    journal: Option<Journal>,
    waiting: BTreeMap<Ticket, Waiting>,
    /// Of rules that let the next append for an id fail: they have acted when it does.
    failing: BTreeMap<String, Turn>,
    next_ticket: u64,
    /// When the timer task will wake by itself.
    armed: Option<Millis>,
    stopped: bool,
}

#[derive(Debug)]
struct Waiting {
    kept: bool,
    to: oneshot::Sender<Outcome>,
}

/// A request that was handed to the machine.
#[derive(Debug)]
pub(crate) struct Pending {
    core: Arc<Core>,
    ticket: Ticket,
    outcome: oneshot::Receiver<Outcome>,
    done: bool,
}

impl Pending {
    /// Waits for the end of the request; `None` if the broker stops before.
    pub(crate) async fn outcome(&mut self) -> Option<Outcome> {
        let outcome = (&mut self.outcome).await.ok();
        self.done = true;
        outcome
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if !self.done {
            self.core.forget(self.ticket);
        }
    }
}

impl Core {
    pub(crate) fn new(
        machine: Machine,
        journal: Option<Journal>,
        next_ticket: u64,
        clock: Clock,
    ) -> Arc<Self> {
        let unstable = machine.settings().two_phase_commit;
        let state = State {
            machine,
            journal,
            waiting: BTreeMap::new(),
            failing: BTreeMap::new(),
            next_ticket,
            armed: None,
            stopped: false,
        };
        Arc::new(Self {
            state: Mutex::new(state),
            clock,
            unstable,
            faults: Faults::new(Place::Broker),
            timer: Notify::new(),
            crashes: Crashes::default(),
            broken: watch::Sender::new(None),
            stalls: Mutex::default(),
        })
    }

    /// Hands a request to the machine, of a connection that began after as many crashes.
    pub(crate) fn submit(
        self: &Arc<Self>,
        crashes: u64,
        node: NodeId,
        version: i16,
        client_id: Option<String>,
        request: Request,
        body: &Bytes,
    ) -> Result<Pending, Halted> {
        let mut state = self.state();
        if self.crashes.count() != crashes {
            return Err(Halted::Crashed);
        }
        let ticket = state.ticket();
        let call = Call { ticket, node, version, client_id };
        let key = request.key();
        let kept = !state.machine.only_looks(version, &request);
        let entry = kept.then_some(Entry::Request(&call, key, body));
        let now = self.keep(&mut state, entry.as_ref())?;
        let (to, outcome) = oneshot::channel();
        state.waiting.insert(ticket, Waiting { kept, to });
        self.apply(&mut state, now, Input::Request(call, request));
        Ok(Pending { core: Arc::clone(self), ticket, outcome, done: false })
    }

    /// Acts on the machine itself. A crash cuts every connection.
    pub(crate) fn step(&self, step: Step) -> Result<(), Halted> {
        self.act(step, None)
    }

    /// Acts on the machine for a rule, which has acted if anything changed.
    pub(crate) fn step_of(&self, step: Step, turn: &Turn) -> Result<(), Halted> {
        self.act(step, Some(turn))
    }

    fn act(&self, step: Step, turn: Option<&Turn>) -> Result<(), Halted> {
        let crash = matches!(step, Step::Crash);
        let arms = match &step {
            Step::FailAppend { transactional_id, .. } => Some(transactional_id.clone()),
            _ => None,
        };
        let mut state = self.state();
        if let Some(why) = state.machine.objection(&step) {
            return Err(Halted::Impossible(why));
        }
        let now = self.keep(&mut state, Some(&Entry::Step(&step)))?;
        self.apply(&mut state, now, Input::Step(step));
        match (arms, turn) {
            _ if !state.machine.changed() => {
                turn.iter().for_each(|turn| turn.idle("all is as the step would make it"));
            }
            (Some(id), Some(turn)) => drop(state.failing.insert(id, turn.clone())),
            (Some(id), None) => drop(state.failing.remove(&id)),
            (None, turn) => turn.iter().for_each(|turn| turn.acted()),
        }
        if crash {
            self.crashes.add();
        }
        Ok(())
    }

    /// Asks the machine something that changes nothing; `None` where it does not answer at once.
    pub(crate) fn ask(&self, node: NodeId, version: i16, request: Request) -> Option<Response> {
        let mut state = self.state();
        if !state.machine.only_looks(version, &request) {
            return None;
        }
        let now = self.keep(&mut state, None).ok()?;
        let ticket = state.ticket();
        let (to, mut outcome) = oneshot::channel();
        state.waiting.insert(ticket, Waiting { kept: false, to });
        let call = Call { ticket, node, version, client_id: None };
        self.apply(&mut state, now, Input::Request(call, request));
        match outcome.try_recv() {
            Ok(Outcome::Answer(response)) => Some(response),
            Ok(Outcome::Silence | Outcome::HangUp) => None,
            Err(_) => {
                state.waiting.remove(&ticket);
                self.apply(&mut state, now, Input::Gone(vec![ticket]));
                None
            }
        }
    }

    /// Looks at the machine.
    pub(crate) fn look<T>(&self, at: impl FnOnce(&Machine) -> T) -> T {
        at(&self.state().machine)
    }

    /// Tells the machine where its nodes are.
    pub(crate) fn set_addresses(&self, addresses: BTreeMap<NodeId, (String, u16)>) {
        self.state().machine.set_addresses(addresses);
    }

    /// Moves the clock forward; what is due by that has happened when this returns.
    pub(crate) fn jump(&self, by: Millis) -> Result<(), Halted> {
        let mut state = self.state();
        check_jump(by, self.clock.ahead())?;
        let to = self.clock.now().max(state.machine.now()) + by;
        self.keep_at(&mut state, to, Some(&Entry::Time))?;
        self.clock.reach(to);
        self.apply(&mut state, to, Input::Tick);
        self.timer.notify_one();
        Ok(())
    }

    /// Takes no request on a node for a time, and gives no answer.
    pub(crate) fn stall(&self, node: NodeId, wait: Duration) -> Result<(), Halted> {
        let nodes = self.look(|machine| machine.settings().nodes);
        if !(1..=nodes).contains(&node.0) {
            return Err(Halted::Impossible(format!("there is no node {}; there are 1 to {nodes}", node.0)));
        }
        let until = self.clock.after(wait);
        let mut stalls = self.stalls.lock().expect("nothing panics while it holds the lock");
        let stalled = stalls.entry(node).or_insert(until);
        *stalled = until.max(*stalled);
        Ok(())
    }

    /// Waits until a node takes requests.
    pub(crate) async fn awake(&self, node: NodeId) {
        loop {
            let until = {
                let stalls = self.stalls.lock().expect("nothing panics while it holds the lock");
                stalls.get(&node).copied()
            };
            match until {
                Some(until) if self.clock.after(Duration::ZERO) < until => sleep_until(until).await,
                _ => return,
            }
        }
    }

    /// Lets time pass for the machine, until it is dropped.
    pub(crate) async fn keep_time(self: Arc<Self>) {
        loop {
            let wake = {
                let mut state = self.state();
                state.armed = state.machine.next_wake();
                state.armed
            };
            match wake {
                None => self.timer.notified().await,
                // In this order always, so that a simulated run can be repeated.
                Some(at) => tokio::select! {
                    biased;
                    () = self.timer.notified() => {}
                    () = sleep(self.clock.until(at)) => {}
                },
            }
            let mut state = self.state();
            if state.machine.next_wake().is_none_or(|at| at > self.clock.now()) {
                continue;
            }
            match self.keep(&mut state, None) {
                Ok(now) => self.apply(&mut state, now, Input::Tick),
                Err(Halted::Stopped) => return,
                Err(error) => {
                    tracing::error!(%error, "time passes no more: what it does cannot be kept");
                    return;
                }
            }
        }
    }

    /// Nothing is applied from now on; the journal's file is free for the next one.
    pub(crate) fn stop(&self) {
        let mut state = self.state();
        let state = &mut *state;
        if let Some(journal) = state.journal.as_mut().filter(|journal| journal.is_ahead()) {
            let digest = Entry::Digest(state.machine.digest());
            if let Err(error) = journal.append(state.machine.now(), &digest) {
                tracing::warn!(%error, "the journal ends without a digest");
            }
        }
        state.stopped = true;
        state.journal = None;
        state.waiting.clear();
        state.failing.clear();
    }

    fn forget(&self, ticket: Ticket) {
        let mut state = self.state();
        let Some(waiting) = state.waiting.remove(&ticket) else { return };
        let tickets = [ticket];
        let entry = waiting.kept.then_some(Entry::Gone(&tickets));
        match self.keep(&mut state, entry.as_ref()) {
            Ok(now) => self.apply(&mut state, now, Input::Gone(tickets.to_vec())),
            Err(Halted::Stopped) => {}
            Err(error) => tracing::error!(%error, "a request that nobody waits for stays"),
        }
    }

    /// Writes down what is kept; says at which time it is to be applied.
    fn keep(&self, state: &mut State, entry: Option<&Entry<'_>>) -> Result<Millis, Halted> {
        let now = self.clock.now().max(state.machine.now());
        self.keep_at(state, now, entry)?;
        Ok(now)
    }

    fn keep_at(&self, state: &mut State, now: Millis, entry: Option<&Entry<'_>>) -> Result<(), Halted> {
        if state.stopped {
            return Err(Halted::Stopped);
        }
        let Some(journal) = &mut state.journal else { return Ok(()) };
        // An input says how far time has come; one that is not kept must not move time on alone.
        let entry = entry.or_else(|| state.machine.changes_by(now).then_some(&Entry::Time));
        let Some(entry) = entry else { return Ok(()) };
        let digest = journal.wants_digest().then(|| Entry::Digest(state.machine.digest()));
        let kept = match &digest {
            Some(digest) => journal.append(state.machine.now(), digest),
            None => Ok(()),
        };
        kept.and_then(|()| journal.append(now, entry)).map_err(|error| {
            self.broken.send_if_modified(|broken| {
                let is_first = broken.is_none();
                broken.get_or_insert_with(|| error.to_string());
                is_first
            });
            error.into()
        })
    }

    /// Ready when the journal cannot be written any more, with the reason.
    pub(crate) fn broken(&self) -> impl Future<Output = String> + Send + use<> {
        let mut broken = self.broken.subscribe();
        async move {
            let reason = broken.wait_for(Option::is_some).await.map(|reason| reason.clone());
            match reason {
                Ok(reason) => reason.unwrap_or_default(),
                Err(_) => std::future::pending().await,
            }
        }
    }

    fn apply(&self, state: &mut State, now: Millis, input: Input) {
        let replies = state.machine.step(now, input);
        state.settle();
        for reply in replies {
            if let Some(waiting) = state.waiting.remove(&reply.ticket) {
                let _ = waiting.to.send(reply.outcome);
            }
        }
        let wake = state.machine.next_wake();
        if wake.is_some_and(|wake| state.armed.is_none_or(|armed| wake < armed)) {
            state.armed = wake;
            self.timer.notify_one();
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("the machine does not panic; where it did, it is in no state to go on")
    }
}

fn check_jump(by: Millis, ahead: Millis) -> Result<(), Halted> {
    if by <= 0 {
        return Err(Halted::Impossible(format!("time cannot jump by {by} ms: it goes forward only")));
    }
    if by > LONGEST_MS - ahead {
        return Err(Halted::Impossible(format!(
            "time cannot jump by {by} ms: it is {ahead} ms ahead, and may be {LONGEST_MS} ms (100 years) in all; begin \
             with an empty folder"
        )));
    }
    Ok(())
}

impl State {
    /// Counts the rules whose append has failed, before anybody is told, and gives up those that a crash has disarmed.
    fn settle(&mut self) {
        let Self { machine, failing, .. } = self;
        failing.retain(|id, turn| {
            let spent = machine.spent.contains(id);
            if spent {
                turn.acted();
            }
            !spent && machine.append_fails(id)
        });
    }

    fn ticket(&mut self) -> Ticket {
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        ticket
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::Settings;
    use kafka_protocol::messages::HeartbeatRequest;

    #[tokio::test]
    async fn a_request_that_came_before_a_crash_is_not_applied_after_it() {
        let clock = Clock::new(Some(1_000_000));
        let core = Core::new(Machine::new(Settings::default(), clock.now()), None, 0, clock);
        let submit = |crashes| {
            core.submit(crashes, NodeId(1), 4, None, HeartbeatRequest::default().into(), &Bytes::new())
        };
        let before = core.crashes.count();
        assert!(submit(before).is_ok());
        core.step(Step::Crash).unwrap();
        assert!(matches!(submit(before), Err(Halted::Crashed)));
        assert!(submit(before + 1).is_ok());
    }
}
