//! Journals in the chain: which belong into a manifest, and who is handed them in recovery.

use crate::fixture::{Slots, handle, lane, manifest, positions};
use hapax_commit::{
    ChainFault, Cohort, CohortConfig, CohortStart, Epoch, Generation, Handle, Journal, JournalPart, Manifest,
    Recovery, ShardId, Slot, SlotBody, SlotNumber, Strategy,
    cohort::{self, PreparedHandle, Share},
    evidence::{Described, LaneLook, TransactionState, Witness},
    recovery::{Effect, Input},
};

/// A slot with a journal as the first release with journals wrote it. Never to be changed: every later one reads it.
const MANIFEST: &[u8] = include_bytes!("golden/manifest-journal-v1");

/// Two parts with the ten records of the lane's handle, by the run of this generation.
fn journal(shard: u32, epoch: u64, generation: u64) -> Journal {
    let parts = vec![
        JournalPart { bytes: 300, crc: 7, records: 6 },
        JournalPart { bytes: 200, crc: u32::MAX, records: 4 },
    ];
    Journal { lane: lane(shard), epoch: Epoch(epoch), generation: Generation(generation), parts }
}

fn with(epoch: u64, handles: Vec<Handle>, journals: Vec<Journal>) -> SlotBody {
    let SlotBody::Manifest(manifest) = manifest(epoch, handles) else { panic!("a manifest") };
    SlotBody::Manifest(Manifest { journals, ..manifest })
}

fn both(epoch: u64) -> Vec<Handle> {
    vec![handle(0, epoch), handle(1, epoch)]
}

#[test]
fn a_manifest_with_a_journal_is_read_as_it_was_written() {
    let slots = Slots::claimed().put(with(1, both(1), vec![journal(1, 1, 1)]));
    let slot = &slots.all[1];
    assert_eq!(Slot::from_bytes(MANIFEST).as_ref(), Ok(slot));
    assert_eq!(slot.to_bytes(), MANIFEST);
}

#[test]
fn a_manifest_without_journals_has_the_bytes_that_it_always_had() {
    let slots = Slots::claimed().decide(1);
    let bytes = slots.all[1].to_bytes();
    assert!(!String::from_utf8_lossy(&bytes).contains("journal"));
    assert_eq!(Slot::from_bytes(&bytes).as_ref(), Ok(&slots.all[1]));
}

/// What names no handle's records, or another run's or epoch's, was written by no run of this protocol.
#[test]
fn a_journal_belongs_to_a_handle_beside_it_and_to_the_run_that_decides() {
    let read = |journals: Vec<Journal>| Slots::claimed().put(with(1, both(1), journals)).read();
    assert_eq!(read(vec![journal(0, 1, 1), journal(1, 1, 1)]).unwrap().last_epoch(), Epoch(1));
    let short = Journal { parts: vec![JournalPart { bytes: 1, crc: 1, records: 9 }], ..journal(0, 1, 1) };
    let empty = Journal { parts: Vec::new(), ..journal(0, 1, 1) };
    let mut hollow = journal(0, 1, 1);
    hollow.parts.push(JournalPart { bytes: 0, crc: 0, records: 0 });
    for stray in [journal(2, 1, 1), journal(0, 2, 1), journal(0, 1, 2), short, empty, hollow] {
        let fault = read(vec![stray.clone()]).unwrap_err();
        assert_eq!(fault, ChainFault::Journal { slot: SlotNumber(2), lane: stray.lane });
    }
}

#[test]
fn the_journals_of_all_shards_are_in_the_manifest() {
    let shards = [ShardId(0), ShardId(1)].into();
    let start = CohortStart {
        last_epoch: Epoch(0),
        settled: Epoch(0),
        positions: positions(0),
        next_slot: SlotNumber(2),
    };
    let mut cohort = Cohort::new(CohortConfig { shards, lifetime_ms: Some(2) }, start);
    cohort.step(0, cohort::Input::Touched { shard: ShardId(0), epoch: Epoch(1) });
    cohort.step(0, cohort::Input::Tick);
    for shard in 0..2 {
        let prepared = PreparedHandle { handle: handle(shard, 1), deadline_ms: 1_000 };
        let share = Share {
            positions: positions(10),
            handles: vec![prepared],
            journals: vec![journal(shard, 1, 1)],
            ..Share::default()
        };
        cohort.step(0, cohort::Input::ShardPrepared { shard: ShardId(shard), epoch: Epoch(1), share });
    }
    let put = std::iter::from_fn(|| cohort.poll_effect()).find_map(|effect| match effect {
        cohort::Effect::PutSlot { body: SlotBody::Manifest(manifest), .. } => Some(manifest),
        _ => None,
    });
    assert_eq!(put.unwrap().journals, [journal(0, 1, 1), journal(1, 1, 1)]);
}

/// Drives a recovery whose lanes were all aborted to the first of these effects.
fn first(slots: &Slots, allowed: &[Strategy], is_it: impl Fn(&Effect) -> bool) -> Vec<Effect> {
    let mut machine = Recovery::new(&slots.view(), slots.run(), &positions(0), allowed);
    let mut found = Vec::new();
    for _ in 0..200 {
        let Some(effect) = machine.poll_effect() else { return found };
        let input = match &effect {
            Effect::Survey { at, .. } => Input::Surveyed {
                at: at.clone(),
                by: Witness::Coordinator,
                described: aborted(),
                beyond: None,
            },
            Effect::ClearId { at } => Input::Cleared { at: at.clone(), identity: handle(0, 1).identity },
            Effect::Look { handle, markers, .. } => {
                let markers = markers.then(Vec::new);
                let level = handle.version;
                let look = LaneLook {
                    by: Witness::Coordinator,
                    described: described(handle),
                    level,
                    markers,
                    records: None,
                };
                Input::Looked { at: handle.at(), look }
            }
            effect if is_it(effect) => {
                found.push(effect.clone());
                continue;
            }
            other => panic!("{other:?}"),
        };
        machine.step(0, input);
    }
    panic!("no end in sight");
}

fn aborted() -> Described {
    described(&handle(0, 1))
}

/// Aborted, as V2's coordinator tells it.
fn described(handle: &Handle) -> Described {
    let mut identity = handle.identity;
    identity.producer_epoch.0 += 1;
    Described::Known { state: TransactionState::CompleteAbort, identity }
}

#[test]
fn whoever_writes_a_lane_again_or_gives_it_up_is_handed_the_journal_of_that_lane() {
    let slots = Slots::claimed().put(with(1, both(1), vec![journal(1, 1, 1)])).claim(2);
    let allowed = [Strategy::Resume, Strategy::Replay];
    let repairs = first(&slots, &allowed, |effect| matches!(effect, Effect::Repair { .. }));
    let mut handed: Vec<_> = repairs
        .into_iter()
        .map(|effect| match effect {
            Effect::Repair { handle, journal, .. } => (handle.lane.shard.0, journal),
            other => panic!("{other:?}"),
        })
        .collect();
    handed.sort_by_key(|(shard, _)| *shard);
    assert_eq!(handed, [(0, None), (1, Some(journal(1, 1, 1)))]);

    let allowed = [Strategy::Resume, Strategy::SetAside];
    let given_up = first(&slots, &allowed, |effect| matches!(effect, Effect::GiveUp { .. }));
    let [Effect::GiveUp { journals, .. }] = &given_up[..] else { panic!("{given_up:?}") };
    assert_eq!(journals, &[journal(1, 1, 1)]);
}

/// The records of an amended handle are those of the epoch, whatever number they were written again under.
#[test]
fn an_amended_lane_still_has_the_journal_of_its_epoch() {
    let decided = Slots::claimed().put(with(1, vec![handle(0, 1)], vec![journal(0, 1, 1)])).claim(2);
    let amend = SlotBody::Amend { epoch: Epoch(1), handles: vec![handle(0, 2)] };
    let slots = decided.put(amend).claim(2);
    let allowed = [Strategy::Resume, Strategy::Replay];
    let repairs = first(&slots, &allowed, |effect| matches!(effect, Effect::Repair { .. }));
    let [Effect::Repair { handle: aborted, journal: handed, .. }] = &repairs[..] else {
        panic!("{repairs:?}")
    };
    assert_eq!((aborted.epoch, handed), (Epoch(2), &Some(journal(0, 1, 1))));
}
