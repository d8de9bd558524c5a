//! Job records and incarnations.

use crate::sample::{OTHER_RUN, RUN, claim, job, manifest, name, over, record};
use hapax_commit::SlotNumber;
use hapax_store::{Created, Incarnation, PutOutcome, StoreError, StoredJob};
use object_store::{ObjectStoreExt, memory::InMemory, path::Path};
use std::sync::Arc;

#[tokio::test]
async fn a_job_record_is_put_once_and_never_changed() {
    let store = over(Arc::new(InMemory::new()));
    assert_eq!(store.job(&job()).await.unwrap(), None);
    assert_eq!(store.create_job(&record(&job())).await.unwrap(), Created::Mine(Incarnation::FIRST));
    assert_eq!(store.create_job(&record(&job())).await.unwrap(), Created::Mine(Incarnation::FIRST));
    let mut other = record(&job());
    other.pipeline.push('#');
    let stored = StoredJob { incarnation: Incarnation::FIRST, record: record(&job()) };
    assert_eq!(store.create_job(&other).await.unwrap(), Created::Existed(Box::new(stored.clone())));
    assert_eq!(store.job(&job()).await.unwrap(), Some(stored));
}

#[tokio::test]
async fn a_survey_names_jobs_and_what_is_not_ours() {
    let memory = Arc::new(InMemory::new());
    let store = over(memory.clone());
    assert!(store.survey().await.unwrap().is_empty());
    store.create_job(&record(&name("payments"))).await.unwrap();
    store.create_job(&record(&job())).await.unwrap();
    for foreign in ["photos/cat", "Notes.txt", ".hidden", "lost+found/x"] {
        memory.put(&Path::from(foreign), "x".into()).await.unwrap();
    }
    let survey = store.survey().await.unwrap();
    assert_eq!(survey.jobs, [job(), name("payments")]);
    assert_eq!(survey.foreign, ["Notes.txt", "photos"]);
}

#[tokio::test]
async fn a_record_in_another_jobs_folder_is_refused() {
    let memory = Arc::new(InMemory::new());
    let store = over(memory.clone());
    store.create_job(&record(&job())).await.unwrap();
    memory.copy(&Path::from("orders/1/job"), &Path::from("copied/1/job")).await.unwrap();
    let error = store.job(&name("copied")).await.expect_err("a copied folder is another job's");
    assert!(error.to_string().contains("the record of job \"orders\""), "{error}");
}

#[tokio::test]
async fn a_damaged_record_is_refused_and_does_not_look_like_a_new_job() {
    let memory = Arc::new(InMemory::new());
    let store = over(memory.clone());
    store.create_job(&record(&job())).await.unwrap();
    let mut bytes = record(&job()).to_bytes();
    *bytes.last_mut().unwrap() ^= 1;
    memory.put(&Path::from("orders/1/job"), bytes.into()).await.unwrap();
    assert!(matches!(store.job(&job()).await, Err(StoreError::Damaged { .. })));
    assert!(matches!(store.create_job(&record(&job())).await, Err(StoreError::Damaged { .. })));
}

/// `--fresh` while a run of the old incarnation sleeps: it meets the claim, and the new chain never sees it.
#[tokio::test]
async fn a_new_incarnation_is_out_of_reach_of_the_old_ones_runs() {
    let store = over(Arc::new(InMemory::new()));
    store.create_job(&record(&job())).await.unwrap();
    let old = store.chain(&job(), Incarnation::FIRST, 0);
    for slot in [claim(1, RUN), manifest(2, 1, RUN, 1)] {
        assert!(matches!(old.put(&slot).await, PutOutcome::Stored));
    }
    let end = old.last_number().await.unwrap().unwrap();
    assert!(matches!(old.put(&claim(end.next().0, OTHER_RUN)).await, PutOutcome::Stored));
    let mut fresh = record(&job());
    fresh.created_ms += 1;
    assert_eq!(store.begin_again(&fresh, Incarnation::FIRST).await.unwrap(), Created::Mine(Incarnation(2)));
    let new = store.chain(&job(), Incarnation(2), 0);
    assert_eq!(new.read().await.unwrap(), []);
    assert!(matches!(new.put(&claim(1, OTHER_RUN)).await, PutOutcome::Stored));
    assert!(matches!(old.put(&manifest(3, 1, RUN, 2)).await, PutOutcome::Taken(_)));
    assert_eq!(new.read().await.unwrap(), [claim(1, OTHER_RUN)]);
    assert_eq!(old.get(SlotNumber(2)).await.unwrap(), Some(manifest(2, 1, RUN, 1)));
    let stored = store.job(&job()).await.unwrap().unwrap();
    assert_eq!((stored.incarnation, stored.record), (Incarnation(2), fresh));
}

#[tokio::test]
async fn of_two_that_begin_again_at_once_one_wins() {
    let store = over(Arc::new(InMemory::new()));
    store.create_job(&record(&job())).await.unwrap();
    let [mut first, mut second] = [record(&job()), record(&job())];
    first.created_ms += 1;
    second.created_ms += 2;
    assert_eq!(store.begin_again(&first, Incarnation::FIRST).await.unwrap(), Created::Mine(Incarnation(2)));
    let existed = StoredJob { incarnation: Incarnation(2), record: first };
    let answer = store.begin_again(&second, Incarnation::FIRST).await.unwrap();
    assert_eq!(answer, Created::Existed(Box::new(existed)));
}
