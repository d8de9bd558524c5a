//! Stored bytes of every format version, committed once and read by every later release.

use crate::sample::{changed, every_kind, job, open, record};
use hapax_commit::{Epoch, Slot, chain::ChainView};
use hapax_store::{Incarnation, PutOutcome};
use std::path::PathBuf;

fn golden(version: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(version)
}

/// The folder of each chain, and what it holds.
fn chains() -> [(&'static str, Vec<Slot>); 2] {
    [("v1", every_kind()), ("v1-changed", changed())]
}

#[tokio::test]
async fn format_1_is_read_as_it_was_written() {
    for ((version, expected), last) in chains().into_iter().zip([5, 3]) {
        let store = open(&golden(version));
        let stored = store.job(&job()).await.unwrap().expect("the golden job record is committed");
        assert_eq!((stored.incarnation, stored.record), (Incarnation::FIRST, record(&job())));
        let slots = store.chain(&job(), Incarnation::FIRST, 0).read().await.unwrap();
        assert_eq!(slots, expected);
        assert_eq!(ChainView::read(&slots).unwrap().last_epoch(), Epoch(last));
    }
}

/// A job that was never changed is what its record says.
#[test]
fn a_chain_without_revisions_has_the_shape_of_the_record() {
    let view = ChainView::read(&every_kind()).unwrap();
    assert_eq!(view.shape(&record(&job())), hapax_commit::Shape::of(&record(&job())));
    let view = ChainView::read(&changed()).unwrap();
    assert_eq!(view.shape(&record(&job())).layout.number, 3);
}

/// While format 1 is the newest, its bytes do not drift by accident: a change of them is a new version.
#[test]
#[allow(clippy::disallowed_methods, reason = "the committed files are compared byte by byte")]
fn format_1_is_written_as_it_was() {
    assert_eq!(hapax_commit::envelope::FORMAT_VERSION, 1, "add golden files of the new format");
    for (version, slots) in chains() {
        let folder = golden(version).join("orders/1");
        assert_eq!(std::fs::read(folder.join("job")).unwrap(), record(&job()).to_bytes());
        for slot in slots {
            let path = folder.join(format!("chain/0/{:020}", slot.number.0));
            assert_eq!(std::fs::read(&path).unwrap(), slot.to_bytes(), "{path:?}");
        }
    }
}

#[tokio::test]
#[ignore = "writes the golden files: run by hand, once for each format version or kind of slot"]
async fn write_golden_files_of_the_current_format() {
    for (version, slots) in chains() {
        let store = open(&golden(version));
        store.create_job(&record(&job())).await.unwrap();
        let chain = store.chain(&job(), Incarnation::FIRST, 0);
        for slot in slots {
            assert!(matches!(chain.put(&slot).await, PutOutcome::Stored));
        }
    }
}
