//! The local file system: who wins, what is durable, who may look.

use crate::sample::{Folder, RUN, claim, job, manifest, open, record};
use hapax_commit::RunNonce;
use hapax_store::{Created, Incarnation, PutOutcome, Store, StoreError};

const CREATORS: u128 = 4;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_concurrent_creators_exactly_one_wins() {
    let folder = Folder::new();
    assert_eq!(
        open(folder.path()).create_job(&record(&job())).await.unwrap(),
        Created::Mine(Incarnation::FIRST)
    );
    for round in 1..=100 {
        let creators = (0..CREATORS).map(|creator| {
            // A store each: creators are processes.
            let chain = open(folder.path()).chain(&job(), Incarnation::FIRST, 0);
            let slot = claim(round, RunNonce(creator));
            #[allow(clippy::disallowed_methods, reason = "creators that compete")]
            tokio::spawn(async move { (creator, chain.put(&slot).await) })
        });
        let mut winners = Vec::new();
        let mut seen = Vec::new();
        for creator in creators.collect::<Vec<_>>() {
            match creator.await.unwrap() {
                (creator, PutOutcome::Stored) => winners.push(RunNonce(creator)),
                (_, PutOutcome::Taken(other)) => seen.push(other.run),
                (creator, outcome) => panic!("round {round}, creator {creator}: {outcome:?}"),
            }
        }
        assert_eq!(winners.len(), 1, "round {round}");
        assert!(seen.iter().all(|run| *run == winners[0]), "round {round}");
        assert_eq!(seen.len() as u128, CREATORS - 1, "round {round}");
    }
    let chain = open(folder.path()).chain(&job(), Incarnation::FIRST, 0);
    assert_eq!(chain.read().await.unwrap().len(), 100);
}

#[tokio::test]
async fn another_process_reads_what_was_put() {
    let folder = Folder::new();
    let root = folder.path().join("new");
    let store = open(&root);
    store.probe(RUN).await.unwrap();
    assert!(store.survey().await.unwrap().is_empty());
    store.create_job(&record(&job())).await.unwrap();
    let chain = store.chain(&job(), Incarnation::FIRST, 0);
    for slot in [claim(1, RUN), manifest(2, 1, RUN, 1)] {
        assert!(matches!(chain.put(&slot).await, PutOutcome::Stored));
    }
    let again = open(&root);
    assert_eq!(again.survey().await.unwrap().jobs, [job()]);
    let slots = again.chain(&job(), Incarnation::FIRST, 0).read().await.unwrap();
    assert_eq!(slots, [claim(1, RUN), manifest(2, 1, RUN, 1)]);
}

#[tokio::test]
async fn a_local_store_syncs_what_it_writes() {
    let folder = Folder::new();
    assert!(format!("{:?}", open(folder.path())).contains("fsync: true"));
}

#[cfg(unix)]
#[tokio::test]
async fn a_root_that_we_make_is_private_and_one_that_exists_is_left_alone() {
    use std::os::unix::fs::PermissionsExt;
    let mode = |path: &std::path::Path| path.metadata().unwrap().permissions().mode() & 0o777;
    let folder = Folder::new();
    let before = mode(folder.path());
    open(&folder.path().join("new"));
    assert_eq!(mode(&folder.path().join("new")), 0o700);
    open(folder.path());
    assert_eq!(mode(folder.path()), before);
}

#[test]
#[allow(clippy::disallowed_methods, reason = "the file system is what is tested")]
fn a_root_without_a_parent_or_that_is_a_file_is_refused() {
    let folder = Folder::new();
    std::fs::write(folder.path().join("file"), "x").unwrap();
    for path in ["missing/root", "file"] {
        let url = format!("file://{}", folder.path().join(path).display());
        let error = Store::open(&url, crate::sample::patience(), crate::sample::sleep()).expect_err(path);
        assert!(matches!(&error, StoreError::Root { .. }) && error.to_string().contains(path), "{error}");
    }
}

/// An unmounted or emptied volume is not a place to go on writing.
#[tokio::test]
async fn a_root_that_vanishes_under_a_run_is_noticed_before_the_next_put() {
    let folder = Folder::new();
    let root = folder.path().join("volume");
    let store = open(&root);
    store.create_job(&record(&job())).await.unwrap();
    let chain = store.chain(&job(), Incarnation::FIRST, 0);
    assert!(matches!(chain.put(&claim(1, RUN)).await, PutOutcome::Stored));
    std::fs::remove_dir_all(&root).unwrap();
    let outcome = chain.put(&manifest(2, 1, RUN, 1)).await;
    assert!(matches!(outcome, PutOutcome::Unknown(StoreError::Gone { .. })), "{outcome:?}");
    assert!(!root.exists());
}
