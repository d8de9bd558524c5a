//! How many cells there are of each kind, so that none becomes "none", or something easier, in silence.

use super::{
    plan::{Brokers, Expected},
    sorted,
};
use std::collections::BTreeMap;

fn count<T: Ord>(of: impl Iterator<Item = (Brokers, T)>) -> BTreeMap<(Brokers, T), usize> {
    let mut counted = BTreeMap::new();
    of.for_each(|one| *counted.entry(one).or_default() += 1);
    counted
}

#[test]
fn as_many_cells_come_to_each_end_as_are_written_down() {
    let (cells, _) = sorted();
    let found = count(cells.into_iter().map(|(cell, expected)| (cell.brokers, expected)));
    let written = [
        ((Brokers::Ours, Expected::Exact), 718),
        ((Brokers::Ours, Expected::StopsThenExact), 148),
        ((Brokers::Ours, Expected::ListsMissing), 180),
        ((Brokers::Ours, Expected::Contradiction), 126),
        ((Brokers::Ours, Expected::StopsThenLists), 90),
        ((Brokers::Ours, Expected::WaitsThenExact), 140),
        ((Brokers::Kafka, Expected::Exact), 53),
        ((Brokers::Kafka, Expected::StopsThenExact), 9),
        ((Brokers::Kafka, Expected::ListsMissing), 16),
        ((Brokers::Kafka, Expected::Contradiction), 12),
        ((Brokers::Kafka, Expected::StopsThenLists), 8),
        ((Brokers::Kafka, Expected::WaitsThenExact), 12),
    ];
    assert_eq!(found, written.into());
}

#[test]
fn as_many_cells_are_none_for_each_reason_as_are_written_down() {
    let (_, none) = sorted();
    let found = count(none.into_iter().map(|(cell, reason)| (cell.brokers, reason)));
    let untold = "the positions are committed with what readers see, and nobody can tell what they do not";
    let of_ours = [
        ("an id with a transaction open does not expire", 24),
        ("decider transaction has no manifest, so the point is not there", 144),
        ("every lane is committed there", 126),
        ("nothing is decided, so lanes have no fate to share", 108),
        ("nothing is decided, so no request can commit it", 24),
        ("nothing is in doubt, so no strategy is asked", 540),
        ("one lane has nothing between its lanes", 126),
        ("positions are in transactions under decider transaction alone", 252),
        ("the commit is not asked for before K3", 12),
        (untold, 24),
        ("the transaction is committed there", 86),
        ("what is not in doubt is cleared, and nobody asks about it", 12),
    ];
    let of_kafka = [
        ("Apache Kafka cannot keep what is prepared, so two_phase is refused (E0206)", 18),
        ("Apache Kafka forgets an id after seven days, and no clock jumps", 14),
        (untold, 2),
    ];
    let written = of_ours.map(|(reason, cells)| ((Brokers::Ours, reason), cells)).into_iter();
    let written = written.chain(of_kafka.map(|(reason, cells)| ((Brokers::Kafka, reason), cells)));
    assert_eq!(found, written.collect());
}
