//! What stands beside offsets: the durable text, and what bookmarks say together.

use hapax_commit::{
    Bookmark, Epoch, Identity, Name, Position, ProducerEpoch, ProducerId, Reading, ShardId, SplitId, TopicId,
    TransactionVersion, TransactionalId,
    bookmark::{
        FoundOffset, Had, Home, NotABookmark, Past, ProgressFault, ended_before, is_behind, is_taken_over,
        judge_past, read_progress,
    },
    evidence::{Described, TransactionState},
};
use std::collections::BTreeMap;

/// A bookmark as format 1 wrote it. Never to be changed: every later release reads it.
const BOOKMARK_V1: &str = include_str!("golden/bookmark-v1");

fn job() -> Name {
    Name::new("orders").unwrap()
}

fn identity(epoch: i16) -> Identity {
    Identity { producer_id: ProducerId(4_001), producer_epoch: ProducerEpoch(epoch) }
}

/// Of a job with two shards, of which each has two partitions.
fn bookmark(shard: u32, epoch: u64, partition: u32, next: u64) -> Bookmark {
    let position = Position {
        next,
        leader_epoch: Some(3),
        topic_id: Some(TopicId([7; 16])),
        file: None,
        end: Some(100),
    };
    Bookmark {
        job: job(),
        cluster: None,
        layout: 1,
        shards: 2,
        most: 0,
        splits: 4,
        shard: ShardId(shard),
        epoch: Epoch(epoch),
        by: identity(epoch as i16),
        at: Reading::Positions([(SplitId(format!("main/in/{partition}")), position)].into()),
    }
}

fn found(mark: &Bookmark) -> FoundOffset {
    let Reading::Positions(positions) = &mark.at else { panic!("it has positions") };
    let (split, position) = positions.iter().next().unwrap();
    FoundOffset {
        place: split.0.replace("main/in/", "in-"),
        offset: position.next as i64,
        metadata: mark.to_text(),
    }
}

fn whole() -> Vec<FoundOffset> {
    let marks =
        [bookmark(0, 17, 0, 50), bookmark(1, 9, 1, 60), bookmark(0, 17, 2, 70), bookmark(1, 9, 3, 80)];
    marks.iter().map(found).collect()
}

fn judged(found: &[FoundOffset]) -> Result<hapax_commit::bookmark::Progress, ProgressFault> {
    read_progress(&job(), Home::Group, found)
}

#[test]
fn a_bookmark_of_the_first_format_is_still_read() {
    assert_eq!(bookmark(0, 17, 0, 50).to_text(), BOOKMARK_V1.trim_end(), "another text is another format");
    assert_eq!(Bookmark::parse(BOOKMARK_V1.trim_end()), Ok(bookmark(0, 17, 0, 50)));
}

#[test]
fn what_is_not_a_bookmark_is_told_apart() {
    assert_eq!(Bookmark::parse(""), Err(NotABookmark::Empty));
    for foreign in ["metadata", "hapax", "hapax 1", "hapax x {}", "hapax 0 {}"] {
        assert_eq!(Bookmark::parse(foreign), Err(NotABookmark::Foreign), "{foreign}");
    }
    assert_eq!(Bookmark::parse("hapax 2 {}"), Err(NotABookmark::Newer(2)));
    let text = bookmark(0, 1, 0, 5).to_text();
    assert!(matches!(Bookmark::parse(&text[..text.len() - 1]), Err(NotABookmark::Damaged(_))));
}

#[test]
fn a_bookmark_of_the_longest_names_fits_the_brokers_default() {
    let mut mark = bookmark(9_999, u64::MAX, 0, u64::MAX);
    mark.job = Name::new(&"j".repeat(60)).unwrap_or_else(|_| job());
    let position =
        Position { next: u64::MAX, leader_epoch: Some(i32::MAX), topic_id: None, file: None, end: None };
    mark.at = Reading::Positions(
        [(SplitId(format!("{}/{}/999", "s".repeat(60), "t".repeat(249))), position)].into(),
    );
    assert!(mark.to_text().len() < 1_024, "{}", mark.to_text().len());
}

#[test]
fn a_whole_set_is_progress_of_each_shard() {
    let progress = judged(&whole()).unwrap();
    assert_eq!(
        (progress.count, progress.epoch(ShardId(0)), progress.epoch(ShardId(1))),
        (2, Epoch(17), Epoch(9))
    );
    assert_eq!(progress.shards[&ShardId(0)].positions.len(), 2);
    assert!(progress.committed().contains(&identity(17)));
}

#[test]
fn a_missing_one_is_not_progress() {
    for gone in 0..4 {
        let mut set = whole();
        set.remove(gone);
        assert_eq!(judged(&set), Err(ProgressFault::Missing { wanted: 4, found: 3 }));
    }
    assert!(matches!(judged(&[]), Err(ProgressFault::Missing { found: 0, .. })));
}

#[test]
fn an_offset_that_a_tool_has_set_is_not_progress() {
    let mut reset = whole();
    reset[1].metadata.clear();
    assert!(matches!(judged(&reset), Err(ProgressFault::Unreadable { why: NotABookmark::Empty, .. })));
    let mut moved = whole();
    moved[1].offset += 1;
    assert_eq!(judged(&moved), Err(ProgressFault::OtherOffset { place: "in-1".into(), offset: 61 }));
}

#[test]
fn partitions_of_a_shard_that_are_of_two_transactions_are_not_progress() {
    let mut torn = whole();
    torn[2] = found(&bookmark(0, 16, 2, 70));
    assert!(matches!(judged(&torn), Err(ProgressFault::Torn { .. })));
    let mut other = whole();
    other[0] = found(&Bookmark { layout: 2, ..bookmark(0, 17, 0, 50) });
    assert!(matches!(judged(&other), Err(ProgressFault::Torn { .. })));
    other[0] = found(&Bookmark { job: Name::new("others").unwrap(), ..bookmark(0, 17, 0, 50) });
    assert!(matches!(judged(&other), Err(ProgressFault::OtherJob { .. })));
}

fn id(shard: u32, index: u64) -> TransactionalId {
    let lane = hapax_commit::LaneId { cluster: Name::new("main").unwrap(), shard: ShardId(shard) };
    lane.transactional_id(&job(), Epoch(index))
}

fn known(state: TransactionState, epoch: i16) -> Described {
    Described::Known { state, identity: identity(epoch) }
}

#[test]
fn a_first_start_that_died_is_told_from_offsets_that_are_gone() {
    use TransactionState::{CompleteAbort, CompleteCommit, Empty, Ongoing};
    let past = |looks: &[(TransactionalId, Described)]| judge_past(&id(0, 0), looks);
    let nothing = (id(0, 1), Described::Forgotten);
    assert_eq!(past(&[(id(0, 0), Described::Forgotten), nothing.clone()]), Past::None);
    for state in [Empty, Ongoing, CompleteAbort] {
        assert_eq!(past(&[(id(0, 0), known(state, 0)), nothing.clone()]), Past::Interrupted, "{state:?}");
    }
    assert_eq!(past(&[(id(0, 0), known(CompleteCommit, 1)), nothing]), Past::Known(id(0, 0)));
    let other = (id(1, 2), known(Empty, 0));
    assert_eq!(past(&[(id(0, 0), known(Empty, 0)), other]), Past::Known(id(1, 2)));
    let silent = (id(0, 1), Described::Unanswered("down".into()));
    assert!(matches!(past(&[silent]), Past::Unanswered(..)));
}

#[test]
fn how_a_transaction_ended_is_known_only_of_the_one_that_the_coordinator_speaks_of() {
    use TransactionState::{CompleteAbort, CompleteCommit, Empty, PrepareAbort, PrepareCommit};
    let (v1, v2) = (TransactionVersion::V1, TransactionVersion::V2);
    assert_eq!(ended_before(&known(CompleteCommit, 5), identity(5), v1), Some(true));
    assert_eq!(ended_before(&known(CompleteCommit, 6), identity(5), v2), Some(true));
    assert_eq!(ended_before(&known(CompleteCommit, 5), identity(5), v2), None, "a later one");
    assert_eq!(ended_before(&known(CompleteAbort, 6), identity(5), v1), Some(false), "a time-out bumps");
    assert_eq!(ended_before(&known(CompleteAbort, 9), identity(5), v2), None);
    assert_eq!(ended_before(&known(CompleteAbort, 5), identity(5), v1), Some(false));
    assert_eq!(ended_before(&known(CompleteAbort, 5), identity(5), v2), None, "the one before");
    assert_eq!(
        ended_before(&known(PrepareCommit, 6), identity(5), v2),
        Some(true),
        "done when the id was cleared"
    );
    assert_eq!(ended_before(&known(PrepareAbort, 6), identity(5), v1), Some(false));
    assert_eq!(ended_before(&known(Empty, 6), identity(5), v2), None);
}

#[test]
fn another_run_is_at_work_when_every_id_is_anothers_and_not_when_the_broker_aborted() {
    use TransactionState::{CompleteAbort, CompleteCommit, Empty};
    let had = |epoch| Had { identities: [identity(epoch)].into(), unanswered: false };
    let mut own = [(id(0, 0), had(1)), (id(0, 1), had(2))].into();
    let looks = |first: Described, second: Described| [(id(0, 0), first), (id(0, 1), second)];
    let taken = |own: &BTreeMap<TransactionalId, Had>, looks: &[(TransactionalId, Described)]| {
        is_taken_over(own, looks)
    };
    assert!(taken(&own, &looks(known(Empty, 8), known(CompleteCommit, 9))));
    assert!(!taken(&own, &looks(known(Empty, 8), known(Empty, 2))), "one is still ours");
    assert!(!taken(&own, &looks(known(Empty, 8), known(CompleteAbort, 3))), "a time-out looks like this");
    assert!(!taken(&own, &looks(known(Empty, 8), Described::Unanswered("down".into()))));
    assert!(!is_taken_over(&Default::default(), &looks(known(Empty, 8), known(Empty, 8))), "a first start");
    own.insert(id(0, 2), had(3));
    let most = |third: Described| {
        let [first, second] = looks(known(Empty, 8), known(Empty, 9));
        is_taken_over(&own, &[first, second, (id(0, 2), third)])
    };
    assert!(most(known(CompleteAbort, 4)), "a late request of ours ended what the other one was writing");
    assert!(!most(known(CompleteAbort, 3)), "one is still ours");
    own.remove(&id(0, 2));
    let asked: &mut Had = own.get_mut(&id(0, 1)).unwrap();
    asked.unanswered = true;
    assert!(!taken(&own, &looks(known(Empty, 8), known(Empty, 9))), "an answer that was lost gave this one");
}

/// A run that slept in its start finds a transaction open that a newer run is writing under the same producer.
#[test]
fn only_what_was_open_before_an_id_was_cleared_is_ended_in_a_partition() {
    assert!(is_behind(identity(5), identity(6)));
    assert!(!is_behind(identity(6), identity(6)), "this is what the run itself was given");
    assert!(!is_behind(identity(7), identity(6)), "a newer run has cleared the id since");
    let used_up = Identity { producer_id: ProducerId(identity(6).producer_id.0 + 1), ..identity(0) };
    assert!(
        is_behind(identity(i16::MAX), used_up),
        "the last epochs of a producer are followed by another one"
    );
}

/// A life that is begun anew with fewer partitions takes its bookmarks off the others.
#[test]
fn an_offset_without_a_bookmark_counts_only_where_the_others_are_whole_without_it() {
    let given_up = FoundOffset { place: "in-9".into(), offset: 40, metadata: String::new() };
    let mut fewer = whole();
    fewer.push(given_up.clone());
    assert_eq!(judged(&fewer), judged(&whole()));
    let mut reset = whole();
    reset[1] = FoundOffset { place: "in-1".into(), ..given_up.clone() };
    let fault = ProgressFault::Unreadable { place: "in-1".into(), why: NotABookmark::Empty };
    assert_eq!(judged(&reset), Err(fault), "one that a tool has set is named");
    let former = FoundOffset { metadata: bookmark(1, 30, 9, 40).to_text(), ..given_up };
    let mut both = whole();
    both.push(former);
    assert!(judged(&both).is_err(), "a bookmark of the former life would be in the way");
}
