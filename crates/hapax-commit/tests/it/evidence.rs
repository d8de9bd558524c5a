//! What the brokers' answers mean for a handle, and what may be done about an epoch.

use crate::fixture::{handle, identity};
use hapax_commit::{
    Handle, Identity, ProducerEpoch, Strategy, TransactionVersion,
    decision::{Facts, Judgement, PassReason, Plan, Repair, choose, judge_epoch},
    evidence::{
        Described, LaneFate, LaneLook, Marker, PartitionEnd, PartitionLook, TransactionState as State,
        Witness, judge_described, judge_lane, judge_markers, may_hide_commits,
    },
};

/// Kinds of fate, without their texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Committed,
    Aborted,
    Open,
    InFlight,
    Incomplete,
    Undetermined,
    Unanswered,
    Unknown,
    Contradiction,
    Torn,
    BrokersAhead,
    BrokersBehind,
}

fn kind(fate: &LaneFate) -> Kind {
    match fate {
        LaneFate::Committed => Kind::Committed,
        LaneFate::Aborted => Kind::Aborted,
        LaneFate::Open => Kind::Open,
        LaneFate::Incomplete(_) => Kind::Incomplete,
        LaneFate::InFlight(_) => Kind::InFlight,
        LaneFate::Undetermined(_) => Kind::Undetermined,
        LaneFate::Unanswered(_) => Kind::Unanswered,
        LaneFate::Unknown(_) => Kind::Unknown,
        LaneFate::Contradiction(_) => Kind::Contradiction,
        LaneFate::Torn(_) => Kind::Torn,
        LaneFate::BrokersAhead(_) => Kind::BrokersAhead,
        LaneFate::BrokersBehind(_) => Kind::BrokersBehind,
    }
}

/// A handle at (100, 5).
fn of(version: TransactionVersion) -> Handle {
    Handle { version, ..handle(0, 1) }
}

fn known(state: State, identity: Identity) -> Described {
    Described::Known { state, identity }
}

fn marker(marker: Marker, epoch: i16) -> PartitionEnd {
    PartitionEnd::Marker { marker, producer_epoch: ProducerEpoch(epoch) }
}

fn look(described: Described, ends: Option<Vec<PartitionEnd>>) -> LaneLook {
    let part = |(partition, end)| PartitionLook { topic: "out".into(), partition, end };
    let markers = ends.map(|ends| (0..).zip(ends).map(part).collect());
    LaneLook { by: Witness::Coordinator, described, level: TransactionVersion::V2, markers, records: None }
}

fn judge(described: Described, ends: Vec<PartitionEnd>) -> Kind {
    kind(&judge_lane(&of(TransactionVersion::V2), &look(described, Some(ends))))
}

/// Fact sheet on DescribeTransactions with a saved identity (P, E), each row.
#[test]
fn the_coordinators_state_is_read_by_the_protocol_of_the_handle() {
    use Kind::{Aborted, BrokersAhead, Committed, InFlight, Open, Undetermined};
    let (v1, v2) = (TransactionVersion::V1, TransactionVersion::V2);
    for (version, state, gap, expected) in [
        (v1, State::Ongoing, 0, Open),
        (v1, State::PrepareCommit, 0, InFlight),
        (v1, State::PrepareAbort, 0, InFlight),
        (v1, State::PrepareAbort, 1, InFlight),
        (v1, State::PrepareEpochFence, 1, InFlight),
        (v1, State::CompleteCommit, 0, Committed),
        (v1, State::CompleteAbort, 0, Aborted),
        (v1, State::CompleteAbort, 1, Undetermined),
        (v1, State::CompleteAbort, 2, Undetermined),
        (v1, State::CompleteCommit, 1, BrokersAhead),
        (v1, State::PrepareCommit, 1, BrokersAhead),
        (v1, State::Empty, 0, Undetermined),
        (v1, State::Empty, 1, Undetermined),
        (v1, State::Empty, 2, Undetermined),
        (v1, State::Ongoing, 1, Undetermined),
        (v2, State::Ongoing, 0, Open),
        (v2, State::PrepareCommit, 1, InFlight),
        (v2, State::PrepareAbort, 1, InFlight),
        (v2, State::CompleteCommit, 1, Committed),
        (v2, State::CompleteAbort, 1, Aborted),
        (v2, State::CompleteAbort, 2, Undetermined),
        (v2, State::CompleteCommit, 0, Undetermined),
        (v2, State::CompleteAbort, 0, Undetermined),
        (v2, State::Empty, 0, Undetermined),
        (v2, State::Empty, 2, Undetermined),
        (v2, State::Ongoing, 1, Undetermined),
        (v2, State::CompleteCommit, 3, BrokersAhead),
        (v2, State::PrepareCommit, 2, BrokersAhead),
    ] {
        let fate = judge_described(&of(version), &known(state, identity(100, 5 + gap)));
        assert_eq!(kind(&fate), expected, "{version} {state:?} at E+{gap}");
    }
}

#[test]
fn another_producer_id_or_a_forgotten_id_tells_nothing_by_itself() {
    for version in [TransactionVersion::V1, TransactionVersion::V2] {
        for state in [State::Empty, State::Ongoing, State::CompleteAbort, State::PrepareAbort] {
            let fate = judge_described(&of(version), &known(state, identity(999, 5)));
            assert_eq!(kind(&fate), Kind::Undetermined, "{version} {state:?}");
        }
        assert_eq!(kind(&judge_described(&of(version), &Described::Forgotten)), Kind::Undetermined);
    }
}

/// H40 b: every commit under an id of ours was decided by a slot, so a commit that no slot knows shows an old store.
#[test]
fn a_commit_under_another_producer_id_is_ahead_of_the_store() {
    let fate = judge_described(&of(TransactionVersion::V2), &known(State::CompleteCommit, identity(999, 1)));
    assert_eq!(kind(&fate), Kind::BrokersAhead);
    let read = vec![marker(Marker::Commit, 6)];
    assert_eq!(judge(known(State::CompleteCommit, identity(100, 9)), read), Kind::BrokersAhead);
}

/// T2: 90, 49 and 105 follow a commit as well as an abort; the control batch tells.
#[test]
fn an_id_that_has_gone_on_further_than_one_start_may_hide_commits() {
    use TransactionVersion::{V1, V2};
    // One InitProducerId after the handle's end, and an end of what was begun then.
    for (version, state, gap, hides) in [
        (V1, State::Empty, 1, false),
        (V1, State::Ongoing, 1, false),
        (V1, State::CompleteAbort, 1, false),
        (V1, State::Empty, 2, true),
        (V1, State::Ongoing, 2, true),
        (V2, State::Ongoing, 1, false),
        (V2, State::Ongoing, 2, true),
        (V2, State::Empty, 2, false),
        (V2, State::CompleteAbort, 2, false),
        (V2, State::Empty, 3, true),
        (V2, State::CompleteAbort, 3, true),
        (V2, State::CompleteCommit, 3, false),
    ] {
        let described = known(state, identity(100, 5 + gap));
        assert_eq!(may_hide_commits(&of(version), &described), hides, "{version} {state:?} {gap}");
    }
    assert!(may_hide_commits(&of(V2), &known(State::Empty, identity(101, 0))), "another producer id");
    assert!(may_hide_commits(&of(V2), &Described::Forgotten), "the data forgets later than the coordinator");
    assert!(!may_hide_commits(&of(V2), &Described::Unanswered(String::new())), "it is asked again");
}

#[test]
fn the_control_batch_decides_where_the_coordinator_has_gone_on() {
    for described in [
        Described::Forgotten,
        Described::Unanswered("loading".into()),
        known(State::Empty, identity(100, 7)),
        known(State::Ongoing, identity(100, 6)),
        known(State::CompleteAbort, identity(100, 7)),
        known(State::Empty, identity(100, 5)),
        known(State::Empty, identity(999, 0)),
    ] {
        assert_eq!(
            judge(described.clone(), vec![marker(Marker::Commit, 6)]),
            Kind::Committed,
            "{described:?}"
        );
        assert_eq!(judge(described.clone(), vec![marker(Marker::Abort, 6)]), Kind::Aborted, "{described:?}");
    }
}

#[test]
fn a_partition_that_is_gone_does_not_hide_what_another_tells() {
    let gone = || PartitionEnd::Gone("the log starts at 500".into());
    let ends = vec![gone(), marker(Marker::Commit, 6)];
    assert_eq!(judge(Described::Forgotten, ends), Kind::Committed);
    assert_eq!(judge(Described::Forgotten, vec![gone(), gone()]), Kind::Unknown);
    assert_eq!(judge(known(State::CompleteAbort, identity(100, 6)), vec![gone()]), Kind::Aborted);
}

#[test]
fn what_could_not_be_read_now_is_asked_again_and_not_called_unknown() {
    let unread = || PartitionEnd::Unread("no leader".into());
    assert_eq!(judge(Described::Forgotten, vec![unread(), marker(Marker::Commit, 6)]), Kind::Unanswered);
    assert_eq!(judge(Described::Unanswered("timeout".into()), vec![PartitionEnd::NoneYet]), Kind::Unanswered);
    assert_eq!(judge(known(State::CompleteCommit, identity(100, 6)), vec![unread()]), Kind::Committed);
    assert_eq!(judge(known(State::Ongoing, identity(100, 5)), vec![unread()]), Kind::Open);
}

/// H30: somebody wrote markers by hand, or a deposed coordinator answers.
#[test]
fn facts_that_exclude_each_other_are_a_contradiction() {
    let (commit, abort) = (|| marker(Marker::Commit, 6), || marker(Marker::Abort, 6));
    for (described, ends) in [
        (known(State::Ongoing, identity(100, 5)), vec![abort(), PartitionEnd::NoneYet]),
        (known(State::Ongoing, identity(100, 5)), vec![commit()]),
        (known(State::Ongoing, identity(100, 5)), vec![abort(), commit()]),
        (known(State::PrepareCommit, identity(100, 6)), vec![abort(), commit()]),
        (Described::Unanswered("loading".into()), vec![abort(), commit()]),
        (Described::Forgotten, vec![marker(Marker::Commit, 9)]),
        (Described::Forgotten, vec![marker(Marker::Commit, 4)]),
        (known(State::Empty, identity(100, 5)), vec![PartitionEnd::NoneYet]),
        (Described::Forgotten, vec![PartitionEnd::NoneYet]),
    ] {
        assert_eq!(judge(described.clone(), ends.clone()), Kind::Contradiction, "{described:?} {ends:?}");
    }
}

/// It has ended, so no later look will tell anything else: readers see a part of it, or none.
#[test]
fn what_has_ended_one_way_here_and_the_other_way_there_is_torn() {
    let (commit, abort) = (|| marker(Marker::Commit, 6), || marker(Marker::Abort, 6));
    for (described, ends) in [
        (known(State::CompleteCommit, identity(100, 6)), vec![abort()]),
        (known(State::CompleteAbort, identity(100, 6)), vec![commit()]),
        (known(State::CompleteCommit, identity(100, 6)), vec![commit(), abort()]),
        (known(State::Empty, identity(100, 7)), vec![commit(), abort()]),
        (Described::Forgotten, vec![abort(), commit()]),
    ] {
        assert_eq!(judge(described.clone(), ends.clone()), Kind::Torn, "{described:?} {ends:?}");
    }
}

/// Somebody has marked one partition behind the coordinator's back; what the other partitions tell, or do not, is no matter.
#[test]
fn one_control_batch_against_a_final_state_tears_it_whatever_the_others_tell() {
    let others = || {
        [
            PartitionEnd::NoneYet,
            PartitionEnd::Unread("its leader does not answer".into()),
            PartitionEnd::Gone("retention".into()),
        ]
    };
    for version in [TransactionVersion::V1, TransactionVersion::V2] {
        let ended = i16::from(version == TransactionVersion::V2);
        let finals = [(State::CompleteCommit, Marker::Abort), (State::CompleteAbort, Marker::Commit)];
        for ((state, opposite), other) in
            finals.into_iter().flat_map(|one| others().map(|other| (one, other)))
        {
            let ends = vec![other.clone(), marker(opposite, 5)];
            let look = look(known(state, identity(100, 5 + ended)), Some(ends));
            let fate = judge_lane(&of(version), &look);
            assert_eq!(kind(&fate), Kind::Torn, "{state:?}, {other:?}: {fate}");
            assert!(fate.to_string().contains("out-1"), "{fate}");
        }
    }
}

#[test]
fn control_batches_under_way_are_waited_for() {
    let ends = || vec![marker(Marker::Commit, 6), PartitionEnd::NoneYet];
    assert_eq!(judge(Described::Forgotten, ends()), Kind::InFlight);
    assert_eq!(judge(known(State::PrepareCommit, identity(100, 6)), ends()), Kind::InFlight);
    assert_eq!(
        judge(known(State::PrepareAbort, identity(100, 6)), vec![PartitionEnd::NoneYet]),
        Kind::InFlight
    );
}

#[test]
fn looking_at_no_partition_proves_nothing() {
    assert_eq!(kind(&judge_markers(&of(TransactionVersion::V2), &[])), Kind::Unknown);
}

/// H42: EndTxn v5 on a cluster whose level was lowered hangs the id, and v4 mixes protocols.
#[test]
fn a_handle_that_the_cluster_cannot_end_any_more_is_not_ended() {
    let open = known(State::Ongoing, identity(100, 5));
    let lowered = |version| LaneLook { level: version, ..look(open.clone(), None) };
    let v2 = judge_lane(&of(TransactionVersion::V2), &lowered(TransactionVersion::V1));
    assert_eq!(kind(&v2), Kind::Unknown);
    let v1 = judge_lane(&of(TransactionVersion::V1), &lowered(TransactionVersion::V2));
    assert_eq!(kind(&v1), Kind::Open, "V1 still works on a raised cluster");
}

#[test]
fn names_of_states_are_kafkas() {
    for name in [
        "Empty",
        "Ongoing",
        "PrepareCommit",
        "PrepareAbort",
        "CompleteCommit",
        "CompleteAbort",
        "PrepareEpochFence",
        "Dead",
    ] {
        assert_eq!(State::parse(name).map(State::name), Some(name));
    }
    assert_eq!(State::parse("ongoing"), None);
}

const COMMITTED: LaneFate = LaneFate::Committed;
const ABORTED: LaneFate = LaneFate::Aborted;
const OPEN: LaneFate = LaneFate::Open;

fn judged(fates: &[LaneFate], hurry: bool) -> Judgement {
    let handles: Vec<_> = (0..).map(|shard| handle(shard, 1)).take(fates.len()).collect();
    judge_epoch(handles.iter().zip(fates), hurry)
}

fn unknown() -> LaneFate {
    LaneFate::Unknown("gone".into())
}

fn silent() -> LaneFate {
    LaneFate::Unanswered("down".into())
}

/// H10: the lanes are judged together, because committing one takes the way back from all.
#[test]
fn an_epoch_is_judged_by_all_its_lanes() {
    let open = |shards: &[u32]| shards.iter().map(|shard| handle(*shard, 1)).collect::<Vec<_>>();
    assert_eq!(judged(&[COMMITTED, COMMITTED], false), Judgement::Committed);
    assert_eq!(judged(&[OPEN, COMMITTED, OPEN], false), Judgement::ResumeAll { open: open(&[0, 2]) });
    assert_eq!(
        judged(&[ABORTED, OPEN], false),
        Judgement::RewindAll { open: open(&[1]), incomplete: vec![], aborted: open(&[0]) }
    );
    assert_eq!(
        judged(&[ABORTED, ABORTED], false),
        Judgement::RewindAll { open: open(&[]), incomplete: vec![], aborted: open(&[0, 1]) }
    );
    assert_eq!(
        judged(&[ABORTED, OPEN, COMMITTED], false),
        Judgement::Mixed { open: open(&[1]), incomplete: vec![], aborted: open(&[0]) }
    );
    assert_eq!(judged(&[ABORTED, OPEN, unknown()], false), Judgement::Stuck { open: open(&[1]) });
    assert_eq!(judged(&[COMMITTED, unknown()], false), Judgement::Stuck { open: open(&[]) });
    assert_eq!(judged(&[OPEN, silent()], false), Judgement::Wait);
    assert_eq!(judged(&[OPEN, silent()], true), Judgement::Hurry { open: open(&[0]) });
    assert_eq!(judged(&[OPEN, silent(), ABORTED], true), Judgement::Wait);
    assert_eq!(judged(&[unknown(), silent()], true), Judgement::Wait);
}

/// A cluster that lost acknowledged records would commit the rest.
#[test]
fn an_open_lane_without_all_of_its_records_is_never_among_those_to_commit() {
    let lost = || LaneFate::Incomplete("sequence 4 is missing".into());
    let handles = |shards: &[u32]| shards.iter().map(|shard| handle(*shard, 1)).collect::<Vec<_>>();
    let (open, incomplete) = (handles(&[1]), handles(&[0]));
    let back = Judgement::RewindAll { open: open.clone(), incomplete: incomplete.clone(), aborted: vec![] };
    assert_eq!(judged(&[lost(), OPEN], false), back);
    assert_eq!(judged(&[lost(), OPEN, silent()], true), Judgement::Wait, "no hurry forward");
    assert_eq!(chosen(&[lost(), OPEN], &Strategy::DEFAULT, Some(Ok(()))), Plan::Rewind(handles(&[1, 0])));
    let on = Judgement::Mixed { open, incomplete, aborted: vec![] };
    assert_eq!(judged(&[lost(), OPEN, COMMITTED], false), on);
    assert_eq!(chosen(&[lost(), OPEN, COMMITTED], &Strategy::DEFAULT, None), Plan::Resume(handles(&[1])));
    let all = [Strategy::Resume, Strategy::Abandon];
    assert!(matches!(chosen(&[lost(), COMMITTED], &all, None), Plan::Stop(_)), "it has not ended");
    let look = LaneLook {
        records: Some(Err("sequence 4 is missing".into())),
        ..look(known(State::Ongoing, identity(100, 5)), None)
    };
    assert_eq!(kind(&judge_lane(&of(TransactionVersion::V2), &look)), Kind::Incomplete);
}

#[test]
fn the_nearest_deadline_is_committed_first() {
    let late = Handle { deadline_ms: 9_000, ..handle(0, 1) };
    let soon = Handle { deadline_ms: 1_000, ..handle(1, 1) };
    let judgement = judge_epoch([(&late, &OPEN), (&soon, &OPEN)], false);
    assert_eq!(judgement, Judgement::ResumeAll { open: vec![soon, late] });
}

fn chosen(fates: &[LaneFate], allowed: &[Strategy], sources: Option<Result<(), String>>) -> Plan {
    choose(&judged(fates, false), allowed, &Facts { sources, ..Facts::default() })
}

/// Both strategies have failed on lane 1.
fn both_failed() -> Facts {
    let refused = vec![
        (Strategy::Rewrite, "the log has a hole at 12".to_owned()),
        (Strategy::Replay, "no journal was written".to_owned()),
    ];
    Facts { repairs: [(handle(1, 1).at(), Repair { refused, prepared: None })].into(), ..Facts::default() }
}

#[test]
fn a_strategy_that_is_not_allowed_or_cannot_is_passed_over_with_its_reason() {
    let judgement = judged(&[COMMITTED, ABORTED], false);
    let Plan::Stop(passed) = choose(&judgement, &Strategy::DEFAULT, &both_failed()) else {
        panic!("no stop")
    };
    let text: Vec<_> = passed.iter().map(ToString::to_string).collect();
    let at = handle(1, 1).at();
    assert_eq!(
        text,
        [
            "resume: no lane that it may commit is open".to_owned(),
            "rewind: some lane is committed".to_owned(),
            format!("rewrite: {at}: the log has a hole at 12"),
            format!("replay: {at}: no journal was written"),
            "set-aside: not in the job's list".to_owned(),
            "abandon: not in the job's list".to_owned(),
        ]
    );
    let Plan::Stop(passed) = chosen(&[ABORTED, OPEN], &[Strategy::Resume], Some(Ok(()))) else {
        panic!("no stop")
    };
    assert!(passed.iter().any(|one| one.strategy == Strategy::Rewind && one.why == PassReason::NotAllowed));
}

#[test]
fn an_aborted_lane_is_written_again_by_the_first_of_the_list_that_can() {
    let fates = [COMMITTED, ABORTED];
    let by = |strategy| Plan::Repair(vec![(handle(1, 1), strategy)]);
    assert_eq!(chosen(&fates, &Strategy::DEFAULT, None), by(Strategy::Rewrite));
    let other = [Strategy::Resume, Strategy::Replay, Strategy::Rewrite];
    assert_eq!(chosen(&fates, &other, None), by(Strategy::Replay));
    let mut facts = both_failed();
    facts.repairs.values_mut().for_each(|repair| drop(repair.refused.pop()));
    assert_eq!(choose(&judged(&fates, false), &Strategy::DEFAULT, &facts), by(Strategy::Replay));
    facts.repairs.values_mut().for_each(|repair| repair.prepared = Some(handle(1, 2)));
    assert_eq!(choose(&judged(&fates, false), &Strategy::DEFAULT, &facts), Plan::Amend(vec![handle(1, 2)]));
}

/// An operator's last words: only where nothing else can, and keeping the records comes first if it does in the list.
#[test]
fn records_are_given_up_only_when_nothing_can_write_them_again() {
    let all = [Strategy::Resume, Strategy::Rewrite, Strategy::Replay, Strategy::SetAside, Strategy::Abandon];
    let judgement = judged(&[COMMITTED, ABORTED], false);
    assert!(matches!(choose(&judgement, &all, &Facts::default()), Plan::Repair(_)));
    let lanes = || vec![handle(1, 1)];
    assert_eq!(choose(&judgement, &all, &both_failed()), Plan::GiveUp(lanes(), Strategy::SetAside));
    let facts = Facts { not_set_aside: Some("neither log nor journal has them".into()), ..both_failed() };
    assert_eq!(choose(&judgement, &all, &facts), Plan::GiveUp(lanes(), Strategy::Abandon));
    assert!(matches!(choose(&judgement, &all[..4], &facts), Plan::Stop(_)));
    let open = judged(&[OPEN, ABORTED], false);
    assert_eq!(
        choose(&open, &all, &both_failed()),
        Plan::Resume(vec![handle(0, 1)]),
        "the rest is saved first"
    );
    // Nothing is committed as long as there may be a way back: repairs are prepared first, and a person is asked.
    assert!(matches!(choose(&open, &all[..3], &Facts::default()), Plan::Repair(_)));
    assert!(matches!(choose(&open, &all[..3], &both_failed()), Plan::Stop(_)));
    let unknown = judged(&[unknown(), ABORTED], false);
    assert!(matches!(choose(&unknown, &all, &both_failed()), Plan::Stop(_)), "not every lane has ended");
}

/// H37: going back is possible only where every source still has the records.
#[test]
fn sources_are_asked_before_an_epoch_is_given_up() {
    assert_eq!(chosen(&[ABORTED, OPEN], &Strategy::DEFAULT, None), Plan::ProbeSources);
    assert_eq!(chosen(&[ABORTED, OPEN], &Strategy::DEFAULT, Some(Ok(()))), Plan::Rewind(vec![handle(1, 1)]));
    let gone = || Some(Err("in-0 starts at 70, wanted is 50".into()));
    let forward = chosen(&[ABORTED, OPEN], &Strategy::DEFAULT, gone());
    assert_eq!(forward, Plan::Resume(vec![handle(1, 1)]), "what is open can still be saved");
    let Plan::Stop(passed) = chosen(&[ABORTED], &[Strategy::Resume, Strategy::Rewind], gone()) else {
        panic!("no stop")
    };
    assert!(passed.iter().any(|one| matches!(one.why, PassReason::SourceGone(_))));
    let rewrite = Plan::Repair(vec![(handle(0, 1), Strategy::Rewrite)]);
    assert_eq!(chosen(&[ABORTED], &Strategy::DEFAULT, gone()), rewrite);
}

/// H34: nothing is ever given up while a transaction may still be committed.
#[test]
fn an_unknown_lane_is_never_gone_back_on() {
    for fates in
        [vec![unknown(), ABORTED], vec![LaneFate::Contradiction("two".into()), ABORTED], vec![unknown()]]
    {
        assert!(matches!(chosen(&fates, &Strategy::DEFAULT, Some(Ok(()))), Plan::Stop(_)), "{fates:?}");
    }
    let forward = chosen(&[unknown(), ABORTED, OPEN], &Strategy::DEFAULT, Some(Ok(())));
    assert_eq!(forward, Plan::Resume(vec![handle(2, 1)]));
}
