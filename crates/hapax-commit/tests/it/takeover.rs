//! The order in which a job of decider `transaction` is taken over.

use hapax_commit::{
    Identity, Name, ProducerEpoch, ProducerId, TakeOver, TransactionalId,
    present::Ids,
    takeover::{Cleared, Effect, Goal, Input, Sought},
};

fn ids(shards: u32) -> Ids {
    Ids::of(&Name::new("orders").unwrap(), &Name::new("main").unwrap(), shards)
}

fn identity(of: usize) -> Identity {
    Identity { producer_id: ProducerId(of as i64), producer_epoch: ProducerEpoch(0) }
}

/// Clearing number `time` of these.
fn cleared(ids: &[TransactionalId], time: usize) -> Cleared {
    ids.iter().map(|id| (id.clone(), identity(time))).collect()
}

/// Drives a take-over; every effect, in words.
struct Walk {
    machine: TakeOver,
    told: Vec<String>,
    clearings: usize,
    /// Answers to whether the job has begun, in this order.
    begun: Vec<bool>,
    sought: Sought,
    former: Ids,
}

impl Walk {
    fn new(goal: Goal, overwrites: bool, begun: &[bool]) -> Self {
        Self {
            machine: TakeOver::new(goal, overwrites, ids(1)),
            told: Vec::new(),
            clearings: 0,
            begun: begun.iter().rev().copied().collect(),
            sought: Sought::Nothing,
            former: ids(2),
        }
    }

    fn played(mut self) -> Vec<String> {
        loop {
            self.machine.check().unwrap();
            let effect = self.machine.poll_effect().unwrap();
            assert_eq!(self.machine.poll_effect(), None, "one thing at a time");
            let (told, input) = match effect {
                Effect::Look { ids } => (format!("look {}", ids.len()), Input::Looked),
                Effect::JudgePast => ("judge past".into(), Input::MayBegin),
                Effect::Clear { ids: which } => {
                    let is_lock = which == [ids(1).lock];
                    self.clearings += 1;
                    let what = if is_lock { "the lock".into() } else { format!("{} others", which.len()) };
                    (format!("clear {what}"), Input::Cleared(cleared(&which, self.clearings)))
                }
                Effect::AskBegun => ("begun?".into(), Input::AskedBegun(self.begun.pop().unwrap())),
                Effect::FindFormerIds => ("former ids".into(), Input::FormerIds(self.former.clone())),
                Effect::EndLeftOpen { cleared } => {
                    (format!("end left open of {}", cleared.len()), Input::LeftOpenEnded)
                }
                Effect::SeekGenesis { .. } => ("seek genesis".into(), Input::Sought(self.sought)),
                Effect::AwaitStable { .. } => ("await stable".into(), Input::Stable),
                Effect::ReadProgress { .. } => ("read progress".into(), Input::ProgressRead),
                Effect::Refuse => {
                    self.told.push("refuse".into());
                    return self.told;
                }
                Effect::CommitGenesis { identity } => {
                    (format!("genesis by clearing {}", identity.producer_id.0), Input::GenesisCommitted)
                }
                Effect::Record => ("record".into(), Input::Recorded),
                Effect::Done { cleared } => {
                    self.told.push(format!("done with {}", cleared.len()));
                    return self.told;
                }
            };
            self.told.push(told);
            self.machine.step(input);
        }
    }
}

#[test]
fn a_run_clears_the_lock_last_and_reads_behind_it() {
    let told = Walk::new(Goal::Write, false, &[true]).played();
    let wanted = ["look 3", "begun?", "clear 2 others", "clear the lock", "read progress", "done with 3"];
    assert_eq!(told, wanted);
}

#[test]
fn a_change_clears_the_lock_first() {
    let told = Walk::new(Goal::Change, false, &[]).played();
    assert_eq!(told, ["look 3", "clear the lock", "clear 2 others", "read progress", "done with 3"]);
}

#[test]
fn a_new_job_commits_genesis_before_it_touches_another_id() {
    let told = Walk::new(Goal::Write, false, &[false, false]).played();
    let wanted = [
        "look 3",
        "begun?",
        "judge past",
        "clear the lock",
        "begun?",
        "seek genesis",
        "genesis by clearing 1",
        "record",
        "clear 2 others",
        "clear the lock",
        "read progress",
        "done with 3",
    ];
    assert_eq!(told, wanted);
}

#[test]
fn genesis_of_another_start_is_not_committed_again() {
    let mut walk = Walk::new(Goal::Write, false, &[false, false]);
    walk.sought = Sought::Genesis;
    let told = walk.played();
    assert!(!told.iter().any(|told| told.starts_with("genesis")), "{told:?}");
    assert_eq!(told[5..7], ["seek genesis", "record"]);
}

#[test]
fn a_job_that_has_begun_meanwhile_is_gone_on_with() {
    let told = Walk::new(Goal::Write, false, &[false, true]).played();
    assert_eq!(told[3..6], ["clear the lock", "begun?", "clear 2 others"]);
    assert!(!told.iter().any(|told| told.starts_with("genesis")), "{told:?}");
}

#[test]
fn a_job_that_is_begun_anew_fences_its_former_life_before_genesis_and_looks_at_what_it_left() {
    let mut walk = Walk::new(Goal::Write, true, &[false, false]);
    // There are offsets, of the former life: genesis takes their place all the same.
    walk.sought = Sought::Beyond;
    let told = walk.played();
    let wanted = [
        "clear the lock",
        "begun?",
        "former ids",
        "look 5",
        "clear 5 others",
        "end left open of 6",
        "await stable",
        "genesis by clearing 1",
        "record",
        "clear 5 others",
        "clear the lock",
        "read progress",
        "done with 6",
    ];
    assert_eq!(told[3..], wanted);
}

/// Two first starts, with a store: the other one has committed genesis, recorded it and written, while this one waited for
/// offsets to be stable.
#[test]
fn what_is_beyond_genesis_is_gone_on_with_where_it_is_recorded_by_now() {
    let mut walk = Walk::new(Goal::Write, false, &[false, false, true]);
    walk.sought = Sought::Beyond;
    let told = walk.played();
    assert_eq!(told[5..8], ["seek genesis", "begun?", "clear 2 others"]);
    let mut walk = Walk::new(Goal::Write, false, &[false, false, false]);
    walk.sought = Sought::Beyond;
    assert_eq!(walk.played()[5..], ["seek genesis", "begun?", "refuse"]);
}

#[test]
#[should_panic(expected = "answers nothing that was asked")]
fn an_answer_to_nothing_is_a_bug() {
    TakeOver::new(Goal::Write, false, ids(1)).step(Input::Recorded);
}
