//! A chain is read whole or not at all; claims stay.

use crate::{
    fault::FaultyStore,
    sample::{OTHER_RUN, RUN, changed, claim, every_kind, job, manifest, over, record},
};
use hapax_commit::{Epoch, Slot, SlotNumber, chain::ChainView};
use hapax_store::{Chain, Incarnation, PutOutcome, Store, StoreError};
use object_store::{ObjectStore, ObjectStoreExt, memory::InMemory, path::Path};
use std::sync::{Arc, atomic::Ordering};

const SLOTS: &str = "orders/1/chain/0";

async fn filled(store: &Store, slots: &[Slot]) -> Chain {
    store.create_job(&record(&job())).await.unwrap();
    let chain = store.chain(&job(), Incarnation::FIRST, 0);
    for slot in slots {
        assert!(matches!(chain.put(slot).await, PutOutcome::Stored));
    }
    chain
}

#[tokio::test]
async fn what_was_put_is_read_in_order() {
    let store = over(Arc::new(InMemory::new()));
    let mut slots = every_kind();
    let chain = filled(&store, &slots).await;
    assert_eq!(chain.read().await.unwrap(), slots);
    assert_eq!(chain.last_number().await.unwrap(), Some(SlotNumber(13)));
    assert_eq!(chain.get(SlotNumber(5)).await.unwrap().as_ref(), Some(&slots[4]));
    assert_eq!(chain.get(SlotNumber(14)).await.unwrap(), None);
    assert_eq!(chain.remove(&[SlotNumber(2), SlotNumber(5), SlotNumber(4)]).await.unwrap(), 3);
    assert_eq!(chain.remove(&[SlotNumber(2)]).await.unwrap(), 0);
    slots.retain(|slot| ![2, 4, 5].contains(&slot.number.0));
    assert_eq!(chain.read().await.unwrap(), slots);
    let empty = store.chain(&job(), Incarnation::FIRST, 1);
    assert_eq!(empty.read().await.unwrap(), []);
    assert_eq!(empty.last_number().await.unwrap(), None);
}

#[tokio::test]
async fn a_claim_is_never_removed_and_nothing_beside_it() {
    let slots = every_kind();
    let chain = filled(&over(Arc::new(InMemory::new())), &slots).await;
    let refused = chain.remove(&[SlotNumber(2), SlotNumber(7)]).await;
    assert!(matches!(refused, Err(StoreError::ClaimKept { .. })));
    assert_eq!(chain.read().await.unwrap(), slots);
}

/// What a job reads and in how many shards is only there.
#[tokio::test]
async fn a_revision_is_never_removed() {
    let slots = changed();
    let chain = filled(&over(Arc::new(InMemory::new())), &slots).await;
    let refused = chain.remove(&[SlotNumber(2), SlotNumber(5)]).await;
    assert!(matches!(refused, Err(StoreError::ClaimKept { .. })));
    assert_eq!(chain.read().await.unwrap(), slots);
}

#[tokio::test]
async fn a_chain_means_the_same_after_pruning_as_before() {
    let chain = filled(&over(Arc::new(InMemory::new())), &every_kind()).await;
    let whole = ChainView::read(&chain.read().await.unwrap()).unwrap();
    assert!(whole.finished());
    assert_eq!(whole.settled_epoch(), Epoch(5));
    let prunable = whole.prunable(1);
    assert_eq!(prunable, [2, 4, 5, 6, 8, 9, 11].map(SlotNumber));
    assert_eq!(chain.remove(&prunable).await.unwrap(), prunable.len());
    let pruned = ChainView::read(&chain.read().await.unwrap()).unwrap();
    assert_eq!(pruned.progress(), whole.progress());
    assert_eq!(pruned.ids(), whole.ids());
    assert_eq!((pruned.end(), pruned.newest_claim()), (whole.end(), whole.newest_claim()));
    assert_eq!(pruned.prunable(1), []);
}

/// H21: the number that a sleeping run fills next was filled by its successor's claim, however much was pruned.
#[tokio::test]
async fn a_run_that_slept_through_pruning_meets_its_successors_claim() {
    let chain = filled(&over(Arc::new(InMemory::new())), &[claim(1, RUN), manifest(2, 1, RUN, 1)]).await;
    assert!(matches!(chain.put(&claim(3, OTHER_RUN)).await, PutOutcome::Stored));
    for epoch in 2..40 {
        assert!(matches!(chain.put(&manifest(2 + epoch, 3, OTHER_RUN, epoch)).await, PutOutcome::Stored));
    }
    let old: Vec<_> = (4..38).map(SlotNumber).collect();
    assert_eq!(chain.remove(&old).await.unwrap(), old.len());
    let PutOutcome::Taken(other) = chain.put(&manifest(3, 1, RUN, 2)).await else { panic!("slept over") };
    assert_eq!(*other, claim(3, OTHER_RUN));
}

#[tokio::test]
async fn a_damaged_byte_anywhere_is_refused_with_the_path() {
    let memory = Arc::new(InMemory::new());
    let slot = manifest(2, 1, RUN, 1);
    let chain = filled(&over(memory.clone()), &[claim(1, RUN), slot.clone()]).await;
    let path = Path::from(format!("{SLOTS}/00000000000000000002"));
    let bytes = slot.to_bytes();
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1 << (at % 8);
        memory.put(&path, damaged.into()).await.unwrap();
        let error = chain.read().await.expect_err("a damaged byte was not noticed");
        let refused = matches!(error, StoreError::Damaged { .. } | StoreError::Newer { .. });
        assert!(refused && error.to_string().contains("test:///orders/1/chain/0/00000000000000000002"));
        assert!(!error.is_retriable());
    }
    for length in [0, 1, 19, 20, bytes.len() - 1] {
        memory.put(&path, bytes[..length].to_vec().into()).await.unwrap();
        assert!(matches!(chain.read().await, Err(StoreError::Damaged { .. })), "{length}");
    }
    assert_eq!(chain.last_number().await.unwrap(), Some(SlotNumber(2)));
    memory.put(&path, bytes.into()).await.unwrap();
    assert_eq!(chain.read().await.unwrap().len(), 2);
}

#[tokio::test]
async fn a_damaged_slot_where_ours_should_be_is_neither_stored_nor_taken() {
    let memory = Arc::new(InMemory::new());
    let chain = filled(&over(memory.clone()), &[]).await;
    let path = Path::from(format!("{SLOTS}/00000000000000000001"));
    memory.put(&path, claim(1, RUN).to_bytes()[..50].to_vec().into()).await.unwrap();
    assert!(matches!(chain.put(&claim(1, RUN)).await, PutOutcome::Unknown(StoreError::Damaged { .. })));
}

#[tokio::test]
async fn a_newer_format_is_refused_by_its_number() {
    let memory = Arc::new(InMemory::new());
    let chain = filled(&over(memory.clone()), &[claim(1, RUN)]).await;
    let mut newer = manifest(2, 1, RUN, 1).to_bytes();
    newer[6..8].copy_from_slice(&9_u16.to_be_bytes());
    memory.put(&Path::from(format!("{SLOTS}/00000000000000000002")), newer.into()).await.unwrap();
    assert!(matches!(chain.read().await, Err(StoreError::Newer { version: 9, .. })));
}

#[tokio::test]
async fn what_does_not_belong_into_a_chain_is_refused_and_hidden_names_are_passed_over() {
    for name in ["00000000000000000001.bak", "notes", "7", "00000000000000000000"] {
        let memory = Arc::new(InMemory::new());
        let chain = filled(&over(memory.clone()), &[claim(1, RUN)]).await;
        memory.put(&Path::from(format!("{SLOTS}/.nfs0001")), "x".into()).await.unwrap();
        assert_eq!(chain.read().await.unwrap().len(), 1);
        memory.put(&Path::from(format!("{SLOTS}/{name}")), "x".into()).await.unwrap();
        let error = chain.read().await.expect_err(name);
        assert!(matches!(&error, StoreError::Misplaced { path, .. } if path.ends_with(name)), "{error}");
    }
    let memory = Arc::new(InMemory::new());
    let chain = filled(&over(memory.clone()), &[claim(1, RUN)]).await;
    memory.put(&Path::from(format!("{SLOTS}/sub/x")), "x".into()).await.unwrap();
    assert!(matches!(chain.read().await, Err(StoreError::Misplaced { .. })));
}

#[tokio::test]
async fn a_slot_under_the_name_of_another_is_refused() {
    let memory = Arc::new(InMemory::new());
    let chain = filled(&over(memory.clone()), &[claim(1, RUN)]).await;
    let from = Path::from(format!("{SLOTS}/00000000000000000001"));
    memory.copy(&from, &Path::from(format!("{SLOTS}/00000000000000000004"))).await.unwrap();
    let error = chain.read().await.expect_err("a copy is not a slot");
    assert!(error.to_string().contains("slot 1 under the name of slot 4"), "{error}");
}

const READINGS: u32 = 20;

#[tokio::test]
async fn a_reading_under_a_live_runs_pruning_is_whole() {
    let memory = Arc::new(InMemory::new());
    let faults = FaultyStore::new(memory.clone(), &[], &[]);
    let chain = filled(&over(memory), &[claim(1, RUN)]).await;
    let other = over(faults.clone()).chain(&job(), Incarnation::FIRST, 0);
    let live = async {
        for epoch in 1..200_u64 {
            assert!(matches!(chain.put(&manifest(1 + epoch, 1, RUN, epoch)).await, PutOutcome::Stored));
            if epoch > 3 {
                chain.remove(&[SlotNumber(epoch - 2)]).await.unwrap();
            }
            tokio::task::yield_now().await;
        }
    };
    let reader = async {
        let mut readings = 0;
        for _ in 0..READINGS {
            match other.read().await {
                Ok(slots) => {
                    assert_eq!(slots[0], claim(1, RUN));
                    let numbers: Vec<_> = slots[1..].iter().map(|slot| slot.number.0).collect();
                    assert!(numbers.windows(2).all(|pair| pair[0] + 1 == pair[1]), "{numbers:?}");
                    readings += 1;
                }
                Err(StoreError::Moving { .. }) => {}
                Err(error) => panic!("{error}"),
            }
            tokio::task::yield_now().await;
        }
        readings
    };
    let ((), readings) = futures::join!(live, reader);
    assert!(readings > 0);
    assert!(faults.lists.load(Ordering::SeqCst) > READINGS, "nothing was pruned under a reading");
}

#[tokio::test]
async fn list_order_does_not_matter() {
    let memory: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    let chain = filled(&over(memory), &[]).await;
    for number in [100, 9, 10, 1, 2] {
        assert!(matches!(chain.put(&claim(number, RUN)).await, PutOutcome::Stored));
    }
    let numbers: Vec<_> = chain.read().await.unwrap().iter().map(|slot| slot.number.0).collect();
    assert_eq!(numbers, [1, 2, 9, 10, 100]);
}
