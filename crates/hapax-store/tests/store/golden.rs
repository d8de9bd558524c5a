//! Stored bytes of every format version, committed once and read by every later release.

use crate::sample::{every_kind, job, open, record};
use hapax_commit::{Epoch, chain::ChainView};
use hapax_store::{Incarnation, PutOutcome};
use std::path::PathBuf;

fn golden(version: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(version)
}

#[tokio::test]
async fn format_1_is_read_as_it_was_written() {
    let store = open(&golden("v1"));
    let stored = store.job(&job()).await.unwrap().expect("the golden job record is committed");
    assert_eq!((stored.incarnation, stored.record), (Incarnation::FIRST, record(&job())));
    let slots = store.chain(&job(), Incarnation::FIRST, 0).read().await.unwrap();
    assert_eq!(slots, every_kind());
    assert_eq!(ChainView::read(&slots).unwrap().last_epoch(), Epoch(5));
}

/// While format 1 is the newest, its bytes do not drift by accident: a change of them is a new version.
#[test]
#[allow(clippy::disallowed_methods, reason = "the committed files are compared byte by byte")]
fn format_1_is_written_as_it_was() {
    assert_eq!(hapax_commit::envelope::FORMAT_VERSION, 1, "add golden files of the new format");
    let folder = golden("v1").join("orders/1");
    assert_eq!(std::fs::read(folder.join("job")).unwrap(), record(&job()).to_bytes());
    for slot in every_kind() {
        let path = folder.join(format!("chain/0/{:020}", slot.number.0));
        assert_eq!(std::fs::read(&path).unwrap(), slot.to_bytes(), "{path:?}");
    }
}

#[tokio::test]
#[ignore = "writes the golden files: run by hand, once for each format version"]
async fn write_golden_files_of_the_current_format() {
    let store = open(&golden(&format!("v{}", hapax_commit::envelope::FORMAT_VERSION)));
    store.create_job(&record(&job())).await.unwrap();
    let chain = store.chain(&job(), Incarnation::FIRST, 0);
    for slot in every_kind() {
        assert!(matches!(chain.put(&slot).await, PutOutcome::Stored));
    }
}
