//! What takes minutes: an id whose epochs run out.

use super::{
    Protocol, Scenario, all,
    world::{Batch, Identity, World},
};

pub(super) fn scenarios() -> Vec<Scenario> {
    all![epochs_that_run_out]
}

/// The last epoch that a producer is given: at the one behind it stands a fence.
const LAST: i16 = i16::MAX - 1;

fn epochs_that_run_out(world: &mut World, protocol: Protocol) {
    world.create_topic("t", 1, &[]);
    for how in ["commit", "abort", "begin", "begin again"] {
        let id = how.replace(' ', "-");
        let mut own = world.init(&id, 4, None).unwrap();
        let first = own;
        // One below the last, as quickly as there are answers.
        while own.epoch < LAST {
            let begin = |world: &mut World| world.init(&id, 4, None);
            own = world.quietly(begin).expect("a producer begins");
            assert_eq!(own.id, first.id, "the id changed at epoch {}", own.epoch);
        }
        world.describe(&id);
        if protocol == Protocol::V1 {
            world.add(&id, 3, own, "t", &[0]);
        }
        world.produce(protocol.produce(), &Batch::first("t", &id, own, &[how]));
        world.producers("t", 0);
        match how {
            "commit" | "abort" => {
                let commit = how == "commit";
                world.end(&id, protocol.end(), own, commit);
                world.describe(&id);
                world.end(&id, protocol.end(), own, commit);
                world.end(&id, protocol.end(), own, !commit);
            }
            "begin" => drop(world.init(&id, 4, None)),
            _ => drop(world.init(&id, 4, Some(own))),
        }
        let now = world.describe(&id);
        world.producers("t", 0);
        let next = now.unwrap_or(Identity { epoch: 0, ..own });
        if protocol == Protocol::V1 {
            world.add(&id, 3, next, "t", &[0]);
        }
        world.produce(protocol.produce(), &Batch::first("t", &id, next, &["next"]));
        world.end(&id, protocol.end(), next, true);
        world.end(&id, protocol.end(), own, true);
        world.init(&id, 4, Some(own));
        world.init(&id, 4, None);
        world.describe(&id);
        world.fetch("t", 0, 0, true);
    }
}
