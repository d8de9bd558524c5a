//! The store that fails as it is told.

use hapax_broker::store::{FaultyStore, Outcome};
use object_store::{
    Error, ObjectStore, ObjectStoreExt, PutMode, PutOptions, Result, memory::InMemory, path::Path,
};
use std::{sync::Arc, time::Duration};

fn store() -> FaultyStore {
    FaultyStore::new(Arc::new(InMemory::new()))
}

async fn create(store: &FaultyStore, path: &str) -> Result<()> {
    let options = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
    store.put_opts(&Path::from(path), "x".into(), options).await.map(drop)
}

async fn is_there(store: &FaultyStore, path: &str) -> bool {
    store.get(&Path::from(path)).await.is_ok()
}

#[tokio::test]
async fn what_a_put_answers_and_whether_it_is_applied_are_two_things() {
    for (outcome, applied, exists) in [
        (Outcome::AppliedButFailed, true, false),
        (Outcome::AppliedButExists, true, true),
        (Outcome::Failed, false, false),
        (Outcome::ExistsButEmpty, false, true),
        (Outcome::Full, false, false),
        (Outcome::ReadOnly, false, false),
    ] {
        let store = store();
        store.script([outcome]);
        let error = create(&store, "a").await.unwrap_err();
        assert_eq!(matches!(error, Error::AlreadyExists { .. }), exists, "{outcome:?}");
        assert_eq!(is_there(&store, "a").await, applied, "{outcome:?}");
        assert_eq!((store.seen(), store.fired(), store.unfired()), (1, 1, vec![]));
    }
}

#[tokio::test]
async fn a_late_put_lands_before_the_next_or_when_told() {
    let store = store();
    store.script([Outcome::LandsBeforeNext, Outcome::Pass, Outcome::LandsWhenTold, Outcome::Hangs]);
    create(&store, "a").await.unwrap_err();
    assert!(!is_there(&store, "a").await);
    assert!(matches!(create(&store, "a").await, Err(Error::AlreadyExists { .. })), "the first one landed");
    create(&store, "b").await.unwrap_err();
    assert!(tokio::time::timeout(Duration::from_millis(20), create(&store, "c")).await.is_err());
    assert!(!is_there(&store, "b").await && !is_there(&store, "c").await);
    store.land().await;
    assert!(is_there(&store, "b").await && is_there(&store, "c").await);
}

#[tokio::test]
async fn a_standing_fault_lasts_until_it_is_healed_and_others_are_spared() {
    let inner = Arc::new(InMemory::new());
    let store = FaultyStore::selecting(inner, |path, _| path.as_ref().starts_with("chain/"));
    store.always(Some(Outcome::Full));
    store.script([Outcome::Pass]);
    create(&store, "chain/1").await.unwrap();
    create(&store, "chain/2").await.unwrap_err();
    create(&store, "other").await.unwrap();
    store.always(None);
    create(&store, "chain/2").await.unwrap();
    store.script([Outcome::Failed]);
    assert_eq!(store.unfired(), [Outcome::Failed]);
}
