//! The way into a job of decider `transaction`, to write.

use super::{Diagram, EDGE, Node};
use hapax_commit::{
    Identity, Name, ProducerEpoch, ProducerId, TakeOver, TransactionalId,
    present::Ids,
    takeover::{Cleared, Effect, Goal, Input, Sought},
};

fn ids() -> Ids {
    Ids::of(&Name::new("orders").unwrap(), &Name::new("main").unwrap(), 1)
}

fn cleared(ids: &[TransactionalId]) -> Cleared {
    let identity = Identity { producer_id: ProducerId(1), producer_epoch: ProducerEpoch(0) };
    ids.iter().map(|id| (id.clone(), identity)).collect()
}

/// What is asked for, and every answer that there is to it.
fn answers(effect: &Effect, phase: Phase) -> (Node, Vec<(&'static str, Input)>) {
    let in_genesis = phase != Phase::Start;
    let (node, answer) = match effect {
        Effect::Look { .. } if in_genesis => (Node(7, "LookingAtFormerIds"), Input::Looked),
        Effect::Look { .. } => (Node(1, "Looking"), Input::Looked),
        Effect::AskBegun => {
            let answers = vec![("begun", Input::AskedBegun(true)), ("new", Input::AskedBegun(false))];
            let node = match phase {
                Phase::Start => Node(2, "AskingWhetherBegun"),
                Phase::Genesis => Node(5, "AskingAgain"),
                Phase::Beyond => Node(12, "AskingOnceMore"),
            };
            return (node, answers);
        }
        Effect::JudgePast => (Node(3, "JudgingThePast"), Input::MayBegin),
        Effect::Clear { ids: which } => {
            let node = match (which == &[ids().lock], in_genesis) {
                (true, true) => Node(4, "TakingTheLock"),
                (false, true) => Node(8, "ClearingFormerIds"),
                (false, false) => Node(16, "ClearingAllOthers"),
                (true, false) => Node(17, "ClearingTheLock"),
            };
            (node, Input::Cleared(cleared(which)))
        }
        Effect::FindFormerIds => (Node(6, "FindingFormerIds"), Input::FormerIds(ids())),
        Effect::EndLeftOpen { .. } => (Node(9, "EndingWhatIsLeftOpen"), Input::LeftOpenEnded),
        Effect::ReadProgress { .. } => (Node(18, "ReadingProgress"), Input::ProgressRead),
        Effect::AwaitStable { .. } => (Node(10, "AwaitingStableOffsets"), Input::Stable),
        Effect::SeekGenesis { .. } => {
            let answers = vec![
                ("there is none", Input::Sought(Sought::Nothing)),
                ("there is one", Input::Sought(Sought::Genesis)),
                ("it has run", Input::Sought(Sought::Beyond)),
            ];
            return (Node(11, "SeekingGenesis"), answers);
        }
        Effect::Refuse => return (Node(13, "Refused"), Vec::new()),
        Effect::CommitGenesis { .. } => (Node(14, "CommittingGenesis"), Input::GenesisCommitted),
        Effect::Record => (Node(15, "RecordingGenesis"), Input::Recorded),
        Effect::Done { .. } => return (Node(19, "TakenOver"), Vec::new()),
    };
    (node, vec![("", answer)])
}

/// Which part of the order an effect belongs to, where one may come in several.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Start,
    Genesis,
    /// There are offsets beyond genesis.
    Beyond,
}

fn walk(mut machine: TakeOver, from: (Node, &'static str), phase: Phase, anew: bool, diagram: &mut Diagram) {
    machine.check().unwrap();
    let effect = machine.poll_effect().unwrap();
    let phase = if effect == Effect::JudgePast { Phase::Genesis } else { phase };
    let (node, answers) = answers(&effect, phase);
    diagram.arrow(from.0, node, from.1);
    for (label, input) in answers {
        let next = match input {
            Input::AskedBegun(true) | Input::Recorded => Phase::Start,
            Input::Sought(Sought::Beyond) => Phase::Beyond,
            _ => phase,
        };
        let label =
            if (label, anew, phase) == ("new", true, Phase::Genesis) { "to be begun anew" } else { label };
        let mut after = machine.clone();
        after.step(input);
        walk(after, (node, label), next, anew, diagram);
    }
}

#[test]
fn a_take_over_is_as_the_page_draws_it() {
    let mut diagram = Diagram::default();
    for anew in [false, true] {
        let machine = TakeOver::new(Goal::Write, anew, ids());
        walk(machine, (EDGE, ""), Phase::Start, anew, &mut diagram);
    }
    diagram.is_on_page("a take-over");
}
