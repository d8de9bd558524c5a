//! Positions in an object of the store: its name, its bytes, and which objects may go.

use hapax_commit::{
    CarriedPositions, Epoch, Identity, Name, Position, ProducerEpoch, ProducerId, ShardId, SplitId,
    carried::{ObjectName, check_object, older},
};

/// An object as format 1 wrote it. Never to be changed: every later release reads it.
const POSITIONS_V1: &[u8] = include_bytes!("golden/positions-v1");

fn by(id: i64, epoch: i16) -> Identity {
    Identity { producer_id: ProducerId(id), producer_epoch: ProducerEpoch(epoch) }
}

fn object() -> CarriedPositions {
    let position = Position { next: 50, leader_epoch: None, topic_id: None, file: None, end: Some(100) };
    CarriedPositions {
        job: Name::new("orders").unwrap(),
        shard: ShardId(2),
        epoch: Epoch(17),
        by: by(4_001, 5),
        positions: [(SplitId("made/0".into()), position)].into(),
    }
}

#[test]
fn an_object_of_the_first_format_is_still_read() {
    assert_eq!(object().to_bytes(), POSITIONS_V1, "other bytes are another format");
    assert_eq!(CarriedPositions::from_bytes(POSITIONS_V1), Ok(object()));
    assert!(CarriedPositions::from_bytes(&POSITIONS_V1[..POSITIONS_V1.len() - 1]).is_err());
}

#[test]
fn a_name_is_that_of_one_transaction_one_shard_and_one_epoch_and_is_read_back() {
    let name = object().name();
    assert_eq!(name.to_text(), "4001.5.2.17");
    assert_eq!(ObjectName::parse("4001.5.2.17"), Some(name));
    for foreign in ["", "4001.5.2", "4001.5.2.17.1", "04001.5.2.17", "4001.5.2.+17", "a.5.2.17"] {
        assert_eq!(ObjectName::parse(foreign), None, "{foreign}");
    }
    assert_eq!(check_object(&object(), &object().job, "4001.5.2.17"), Ok(()));
    assert!(check_object(&object(), &object().job, "4001.5.2.18").is_err());
    assert!(check_object(&object(), &Name::new("others").unwrap(), "4001.5.2.17").is_err());
}

/// H5: a zombie, or a run that was taken over, removes nothing that a newer one has put.
#[test]
fn only_objects_of_identities_that_are_known_to_be_older_may_go() {
    let cleared = [(ProducerId(7), by(7, 5)), (ProducerId(8), by(8, 2))].into();
    let names = ["7.4.0.9", "7.5.0.10", "7.6.0.11", "8.1.0.3", "9.0.0.1", "7.4.1.9", "7.4.3.9", "notes.txt"];
    let names: Vec<String> = names.map(str::to_owned).into();
    let is_due = |shard: ShardId| shard == ShardId(0) || shard >= ShardId(3);
    assert_eq!(older(names, is_due, &cleared), ["7.4.0.9", "8.1.0.3", "7.4.3.9"]);
}
