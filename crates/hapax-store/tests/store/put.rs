//! A put has three outcomes, whatever the store answers (H2, H21).

use crate::{
    fault::{FaultyStore, Get, Put},
    sample::{self, OTHER_RUN, RUN, claim, job, manifest, over, record},
};
use hapax_commit::SlotNumber;
use hapax_store::{Chain, Created, Incarnation, Patience, PutOutcome, Store, StoreError};
use object_store::memory::InMemory;
use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

async fn job_on(store: &Store) -> Chain {
    assert_eq!(store.create_job(&record(&job())).await.unwrap(), Created::Mine(Incarnation::FIRST));
    store.chain(&job(), Incarnation::FIRST, 0)
}

async fn faulty(puts: &[Put], gets: &[Get]) -> (Arc<FaultyStore>, Chain) {
    let faults = FaultyStore::new(Arc::new(InMemory::new()), puts, gets);
    let chain = job_on(&over(faults.clone())).await;
    (faults, chain)
}

fn fired(faults: &FaultyStore) -> u32 {
    faults.fired.load(Ordering::SeqCst)
}

fn creates(faults: &FaultyStore) -> u32 {
    faults.creates.load(Ordering::SeqCst)
}

#[tokio::test]
async fn whatever_the_answer_a_slot_that_is_there_with_our_bytes_is_stored() {
    let cases: &[(&[Put], &[Get], u32)] = &[
        (&[Put::ApplyThenFail], &[], 1),
        (&[Put::ApplyThenExists], &[], 1),
        (&[Put::ExistsButEmpty], &[], 2),
        (&[Put::ExistsButEmpty, Put::ApplyThenExists], &[], 2),
        (&[Put::LandSoon], &[], 2),
        (&[Put::ApplyThenFail], &[Get::Fail], 2),
        (&[Put::Full, Put::Full], &[], 3),
        (&[Put::LandSoon, Put::Full, Put::ExistsButEmpty], &[], 2),
    ];
    for (puts, gets, tries) in cases {
        let (faults, chain) = faulty(puts, gets).await;
        let slot = claim(1, RUN);
        assert!(matches!(chain.put(&slot).await, PutOutcome::Stored), "{puts:?}");
        assert_eq!(chain.read().await.unwrap(), [slot], "{puts:?}");
        assert_eq!(creates(&faults), *tries, "{puts:?}");
        assert!(fired(&faults) >= 1, "{puts:?}");
    }
}

#[tokio::test]
async fn a_slot_of_another_run_is_taken_whatever_the_answer() {
    for puts in [&[][..], &[Put::ExistsButEmpty], &[Put::Full], &[Put::LandWhenTold]] {
        let (_, chain) = faulty(&[&[Put::Pass], puts].concat(), &[]).await;
        assert!(matches!(chain.put(&claim(1, OTHER_RUN)).await, PutOutcome::Stored));
        let PutOutcome::Taken(other) = chain.put(&claim(1, RUN)).await else { panic!("{puts:?}") };
        assert_eq!(*other, claim(1, OTHER_RUN));
    }
}

#[tokio::test]
async fn other_bytes_of_the_same_run_are_not_what_was_offered() {
    let (_, chain) = faulty(&[], &[]).await;
    assert!(matches!(chain.put(&claim(1, RUN)).await, PutOutcome::Stored));
    assert!(matches!(chain.put(&manifest(2, 1, RUN, 1)).await, PutOutcome::Stored));
    let PutOutcome::Taken(other) = chain.put(&manifest(2, 1, RUN, 2)).await else { panic!("overwritten") };
    assert_eq!(*other, manifest(2, 1, RUN, 1));
}

#[tokio::test]
async fn a_put_that_never_succeeds_stays_unknown_within_its_tries() {
    let full = [Put::Full; 9];
    let (faults, chain) = faulty(&full, &[]).await;
    let outcome = chain.put(&claim(1, RUN)).await;
    assert!(matches!(&outcome, PutOutcome::Unknown(error @ StoreError::Full { .. }) if error.is_retriable()));
    assert_eq!(creates(&faults), sample::patience().tries);

    let (faults, chain) = faulty(&[Put::ReadOnly; 9], &[]).await;
    let outcome = chain.put(&claim(1, RUN)).await;
    assert!(
        matches!(&outcome, PutOutcome::Unknown(error @ StoreError::ReadOnly { .. }) if !error.is_retriable())
    );
    assert_eq!(creates(&faults), 1);
}

#[tokio::test]
async fn a_put_whose_slot_cannot_be_read_is_not_called_stored() {
    let (faults, chain) = faulty(&[Put::ApplyThenFail; 9], &[Get::Fail; 9]).await;
    assert!(matches!(chain.put(&claim(1, RUN)).await, PutOutcome::Unknown(_)));
    assert!(fired(&faults) >= sample::patience().tries);
}

/// H2 (a), first way: the put lands before the new run fills the slot. The epoch is decided, and the run sees it.
#[tokio::test]
async fn a_put_that_lands_before_the_claim_takes_the_number() {
    let (faults, chain) = faulty(&[&[Put::Pass][..], &[Put::LandWhenTold; 4]].concat(), &[]).await;
    assert!(matches!(chain.put(&claim(1, RUN)).await, PutOutcome::Stored));
    assert!(matches!(chain.put(&manifest(2, 1, RUN, 1)).await, PutOutcome::Unknown(_)));
    assert_eq!(fired(&faults), 4);
    faults.land().await;
    let PutOutcome::Taken(found) = chain.put(&claim(2, OTHER_RUN)).await else { panic!("decided unseen") };
    assert_eq!(*found, manifest(2, 1, RUN, 1));
    assert!(matches!(chain.put(&claim(3, OTHER_RUN)).await, PutOutcome::Stored));
    assert_eq!(chain.read().await.unwrap().len(), 3);
}

/// H2 (a), second way: the claim fills the slot, then the put lands. It decides nothing, and its sender is told.
#[tokio::test]
async fn a_put_that_lands_after_the_claim_changes_nothing() {
    let memory = Arc::new(InMemory::new());
    let faults = FaultyStore::new(memory.clone(), &[&[Put::Pass][..], &[Put::LandWhenTold; 4]].concat(), &[]);
    let slow = job_on(&over(faults.clone())).await;
    assert!(matches!(slow.put(&claim(1, RUN)).await, PutOutcome::Stored));
    assert!(matches!(slow.put(&manifest(2, 1, RUN, 1)).await, PutOutcome::Unknown(_)));
    let quick = over(memory).chain(&job(), Incarnation::FIRST, 0);
    assert!(matches!(quick.put(&claim(2, OTHER_RUN)).await, PutOutcome::Stored));
    assert_eq!(fired(&faults), 4);
    faults.land().await;
    assert_eq!(quick.read().await.unwrap(), [claim(1, RUN), claim(2, OTHER_RUN)]);
    assert!(matches!(slow.put(&manifest(2, 1, RUN, 1)).await, PutOutcome::Taken(_)));
}

#[tokio::test(start_paused = true)]
#[allow(clippy::disallowed_methods, reason = "the paused clock is the test's own")]
async fn a_request_without_an_answer_is_given_up_and_settled_by_reading() {
    let faults = FaultyStore::new(Arc::new(InMemory::new()), &[Put::Hang], &[Get::Hang]);
    let patience = Patience { answer_limit: Duration::from_secs(10), ..sample::patience() };
    let store = Store::from_object_store(faults.clone(), "test:///", patience, sample::sleep());
    let chain = job_on(&store).await;
    let begin = tokio::time::Instant::now();
    assert!(matches!(chain.put(&claim(1, RUN)).await, PutOutcome::Stored));
    assert_eq!(fired(&faults), 2);
    let took = begin.elapsed();
    assert!(took >= Duration::from_secs(20) && took < Duration::from_secs(21), "{took:?}");
    assert_eq!(chain.read().await.unwrap(), [claim(1, RUN)]);
}

#[tokio::test]
async fn a_slot_found_after_an_error_counts_only_when_its_folder_is_durable() {
    let (faults, chain) = faulty(&[Put::Pass, Put::ApplyThenFail], &[]).await;
    assert!(matches!(chain.put(&claim(1, RUN)).await, PutOutcome::Stored));
    faults.fail_syncs(u32::MAX);
    assert!(matches!(chain.put(&manifest(2, 1, RUN, 1)).await, PutOutcome::Unknown(_)));
    faults.fail_syncs(1);
    assert!(matches!(chain.put(&manifest(2, 1, RUN, 1)).await, PutOutcome::Stored));
}

/// A put that had trouble may be under way still: pruned and then landed, it would stand behind newer slots.
#[tokio::test]
async fn a_slot_whose_put_may_land_late_is_not_removed_by_the_run_that_sent_it() {
    let memory = Arc::new(InMemory::new());
    let faults = FaultyStore::new(memory.clone(), &[Put::Pass, Put::ExistsButEmpty], &[]);
    let store = over(faults);
    let chain = job_on(&store).await;
    assert!(matches!(chain.put(&claim(1, RUN)).await, PutOutcome::Stored));
    for epoch in 1..=2 {
        assert!(matches!(chain.put(&manifest(1 + epoch, 1, RUN, epoch)).await, PutOutcome::Stored));
    }
    let again = store.chain(&job(), Incarnation::FIRST, 0);
    assert_eq!(again.remove(&[SlotNumber(2), SlotNumber(3)]).await.unwrap(), 1);
    assert_eq!(again.read().await.unwrap(), [claim(1, RUN), manifest(2, 1, RUN, 1)]);
    let next_run = over(memory).chain(&job(), Incarnation::FIRST, 0);
    assert_eq!(next_run.remove(&[SlotNumber(2)]).await.unwrap(), 1);
}

#[tokio::test]
async fn hooks_stand_on_both_sides_of_the_put() {
    let memory = Arc::new(InMemory::new());
    let before = Arc::new(AtomicU32::new(0));
    let after = Arc::new(AtomicU32::new(0));
    let observer = job_on(&over(memory.clone())).await;
    let hook = |count: &Arc<AtomicU32>, stored: bool| -> hapax_store::Hook {
        let (count, observer) = (count.clone(), observer.clone());
        Arc::new(move |slot| {
            let (count, observer, number) = (count.clone(), observer.clone(), slot.number);
            Box::pin(async move {
                assert_eq!(observer.get(number).await.unwrap().is_some(), stored);
                count.fetch_add(1, Ordering::SeqCst);
            })
        })
    };
    let faults = FaultyStore::new(memory, &[Put::ExistsButEmpty, Put::ApplyThenFail], &[]);
    let chain = over(faults.clone()).chain(&job(), Incarnation::FIRST, 0);
    let chain = chain.with_hooks(hook(&before, false), hook(&after, true));
    assert!(matches!(chain.put(&claim(1, RUN)).await, PutOutcome::Stored));
    assert_eq!((before.load(Ordering::SeqCst), after.load(Ordering::SeqCst)), (1, 1));
    assert_eq!(fired(&faults), 2);
}

#[tokio::test]
async fn nothing_is_put_where_the_job_record_is_not() {
    let chain = over(Arc::new(InMemory::new())).chain(&job(), Incarnation::FIRST, 0);
    assert!(matches!(chain.put(&claim(1, RUN)).await, PutOutcome::Unknown(StoreError::Gone { .. })));
    assert!(matches!(chain.read().await, Err(StoreError::Gone { .. })));
}

#[tokio::test]
async fn a_store_that_overwrites_is_found_out_before_a_job_is_created() {
    #[derive(Debug)]
    struct Careless(InMemory);
    impl std::fmt::Display for Careless {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("careless")
        }
    }
    use object_store::{
        CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
        PutMultipartOptions, PutOptions, PutPayload, PutResult, Result, path::Path,
    };
    #[async_trait::async_trait]
    impl ObjectStore for Careless {
        async fn put_opts(&self, path: &Path, payload: PutPayload, _: PutOptions) -> Result<PutResult> {
            self.0.put_opts(path, payload, PutOptions::default()).await
        }
        async fn put_multipart_opts(
            &self,
            path: &Path,
            options: PutMultipartOptions,
        ) -> Result<Box<dyn MultipartUpload>> {
            self.0.put_multipart_opts(path, options).await
        }
        async fn get_opts(&self, path: &Path, options: GetOptions) -> Result<GetResult> {
            self.0.get_opts(path, options).await
        }
        fn delete_stream(
            &self,
            paths: futures::stream::BoxStream<'static, Result<Path>>,
        ) -> futures::stream::BoxStream<'static, Result<Path>> {
            self.0.delete_stream(paths)
        }
        fn list(&self, prefix: Option<&Path>) -> futures::stream::BoxStream<'static, Result<ObjectMeta>> {
            self.0.list(prefix)
        }
        async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
            self.0.list_with_delimiter(prefix).await
        }
        async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
            self.0.copy_opts(from, to, options).await
        }
    }
    let careless = over(Arc::new(Careless(InMemory::new())));
    assert!(matches!(careless.probe(RUN).await, Err(StoreError::NotCreateOnly { .. })));
    let careful = over(Arc::new(InMemory::new()));
    careful.probe(RUN).await.unwrap();
    careful.probe(RUN).await.unwrap();
    assert!(careful.survey().await.unwrap().is_empty());
}
