//! The way into a job of decider `transaction`, to write.

use super::{Diagram, EDGE, Node};
use hapax_commit::{
    Identity, Name, ProducerEpoch, ProducerId, TakeOver, TransactionalId,
    present::Ids,
    takeover::{Cleared, Effect, Expected, Goal, Input},
};

fn ids() -> Ids {
    Ids::of(&Name::new("orders").unwrap(), &Name::new("main").unwrap(), 1)
}

fn cleared(ids: &[TransactionalId]) -> Cleared {
    let identity = Identity { producer_id: ProducerId(1), producer_epoch: ProducerEpoch(0) };
    ids.iter().map(|id| (id.clone(), identity)).collect()
}

/// What is asked for, and every answer that there is to it.
fn answers(effect: &Effect, in_genesis: bool) -> (Node, Vec<(&'static str, Input)>) {
    let (node, answer) = match effect {
        Effect::Look { .. } if in_genesis => (Node(7, "LookingAtFormerIds"), Input::Looked),
        Effect::Look { .. } => (Node(1, "Looking"), Input::Looked),
        Effect::AskBegun => {
            let answers = vec![("begun", Input::AskedBegun(true)), ("new", Input::AskedBegun(false))];
            let node = if in_genesis { Node(5, "AskingAgain") } else { Node(2, "AskingWhetherBegun") };
            return (node, answers);
        }
        Effect::JudgePast => (Node(3, "JudgingThePast"), Input::MayBegin),
        Effect::Clear { ids: which } => {
            let node = match (which == &[ids().lock], in_genesis) {
                (true, true) => Node(4, "TakingTheLock"),
                (false, true) => Node(8, "ClearingFormerIds"),
                (false, false) => Node(13, "ClearingAllOthers"),
                (true, false) => Node(14, "ClearingTheLock"),
            };
            (node, Input::Cleared(cleared(which)))
        }
        Effect::FindFormerIds => (Node(6, "FindingFormerIds"), Input::FormerIds(ids())),
        Effect::EndLeftOpen { .. } => (Node(9, "EndingWhatIsLeftOpen"), Input::LeftOpenEnded),
        Effect::Read { expected: Expected::Progress, .. } => {
            (Node(15, "ReadingProgress"), Input::Read { found: true })
        }
        Effect::Read { .. } => {
            let (some, none) = (Input::Read { found: true }, Input::Read { found: false });
            return (Node(10, "ReadingForGenesis"), vec![("there is one", some), ("there is none", none)]);
        }
        Effect::CommitGenesis { .. } => (Node(11, "CommittingGenesis"), Input::GenesisCommitted),
        Effect::Record => (Node(12, "RecordingGenesis"), Input::Recorded),
        Effect::Done { .. } => return (Node(16, "TakenOver"), Vec::new()),
    };
    (node, vec![("", answer)])
}

fn walk(
    mut machine: TakeOver,
    from: (Node, String),
    mut in_genesis: bool,
    anew: bool,
    diagram: &mut Diagram,
) {
    machine.check().unwrap();
    let effect = machine.poll_effect().unwrap();
    in_genesis |= effect == Effect::JudgePast;
    let (node, answers) = answers(&effect, in_genesis);
    diagram.arrow(from.0, node, from.1);
    for (label, input) in answers {
        let is_left = matches!(input, Input::AskedBegun(true) | Input::Recorded);
        let label = match (label, anew, node.1) {
            ("new", true, "AskingAgain") => "to be begun anew".to_owned(),
            (_, true, "ReadingForGenesis") => "whatever there is, to be begun anew".to_owned(),
            (label, ..) => label.to_owned(),
        };
        let mut after = machine.clone();
        after.step(input);
        walk(after, (node, label), in_genesis && !is_left, anew, diagram);
    }
}

#[test]
fn a_take_over_is_as_the_page_draws_it() {
    let mut diagram = Diagram::default();
    for anew in [false, true] {
        let machine = TakeOver::new(Goal::Write, anew, ids());
        walk(machine, (EDGE, String::new()), false, anew, &mut diagram);
    }
    diagram.is_on_page("a take-over");
}
