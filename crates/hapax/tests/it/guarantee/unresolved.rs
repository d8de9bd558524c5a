//! The id of a decided transaction whose outcome is not in the chain: InitProducerId would abort what was decided.

use super::{
    case::Case,
    eventually,
    running::{OnReach, Running, die},
    scripted::Scripted,
    wire::{END_TXN, INIT_PRODUCER_ID, Through, Wire},
};
use hapax::{Guarantee, Host, crash::Point};
use hapax_commit::{Handle, SlotBody};
use hapax_host::RealFiles;
use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{SystemTime, UNIX_EPOCH},
};
use xtask::{
    kafka::{Version, shared},
    tools::Tools,
};

/// A host whose requests go through `wire`.
fn host(wire: &Arc<Wire>) -> Host {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let seed = since.as_nanos() as u64;
    Host::seeded(seed, since.as_millis() as i64, Arc::new(Through(wire.clone())), Arc::new(RealFiles))
}

fn die_decided(case: &Case) -> Handle {
    let crash = OnReach::new(|point, _| {
        if point == Point::K2Decided {
            die();
        }
    });
    assert!(Running::start(case.plan(), crash).ended().is_killed());
    let mut handles = case.manifests().pop().unwrap().handles;
    assert_eq!(handles.len(), 1);
    handles.remove(0)
}

/// The transaction is as its handle says, by Apache Kafka's own tool.
fn assert_untouched(version: Version, case: &Case, handle: &Handle) {
    let id = handle.transactional_id.to_string();
    let described = Tools::new(version).unwrap().describe_transaction(&case.bootstrap, &id).unwrap().unwrap();
    let identity = &handle.identity;
    assert_eq!(
        (described.state.as_str(), described.producer_id, described.producer_epoch),
        ("Ongoing", identity.producer_id.0, i32::from(identity.producer_epoch.0))
    );
}

fn keeps_its_identity(version: Version) {
    let source = Scripted::new(1, 100).steady();
    let case = Case::new("unresolved", &shared(version).bootstrap, Guarantee::ExactlyOnce, source);
    let handle = die_decided(&case);
    let id = handle.transactional_id.to_string();
    let names = |request: &super::wire::Request| request.names(&id);

    let stopped = Wire::holding_back(END_TXN);
    let running = Running::start_on(host(&stopped), case.plan(), OnReach::nothing());
    eventually("recovery is about to end the transaction", || stopped.holds().then_some(()));
    running.kill();
    let inits = stopped.requests(INIT_PRODUCER_ID);
    assert!(!inits.is_empty(), "the other ids were cleared");
    assert!(!inits.iter().any(names), "{id} was cleared before its outcome was known");
    assert!(stopped.requests(END_TXN).is_empty());
    assert_untouched(version, &case, &handle);

    let too_early = Arc::new(AtomicU64::new(0));
    let (early, chain, wanted) = (too_early.clone(), case.clone(), id.clone());
    let proof = SlotBody::Proven { epoch: handle.epoch, finished: false };
    let free = Wire::observed(move |request| {
        let is_init = request.api == INIT_PRODUCER_ID && request.names(&wanted);
        if is_init && !chain.chain().iter().any(|slot| slot.body == proof) {
            early.fetch_add(1, Ordering::SeqCst);
        }
    });
    Running::start_on(host(&free), case.plan(), OnReach::nothing()).ended().finished();
    assert!(free.requests(END_TXN).iter().any(names), "the decided transaction was ended");
    assert!(free.requests(INIT_PRODUCER_ID).iter().any(names), "its id was cleared in its turn");
    assert_eq!(too_early.load(Ordering::SeqCst), 0, "behind the proof");
    case.assert_complete();
}

#[test]
fn an_id_of_an_unresolved_handle_is_not_initialised_before_its_outcome_is_in_the_chain_on_v2() {
    keeps_its_identity(Version::V4_4);
}

#[test]
fn an_id_of_an_unresolved_handle_is_not_initialised_before_its_outcome_is_in_the_chain_on_v1() {
    keeps_its_identity(Version::V3_9);
}
