//! What is put is read back: whole, the newest, or not at all.

use super::{CheckpointStore, Promise, Put, dies_after, sample};
use crate::engine::Handle;

/// A handle as format 1 wrote it; every later release reads it.
const HANDLE_FORMAT_1: &[u8] = include_bytes!("handle-format-1.bin");

/// Places where a put may die: more than any store has.
const DEATHS: usize = 200;

pub(super) async fn an_empty_store_has_no_checkpoint<S: CheckpointStore>(open: &impl Fn() -> S) {
    let promise = Promise("an_empty_store_has_no_checkpoint");
    let store = open();
    let found = promise.newest(&store).await;
    promise.holds(found.is_none(), || format!("{found:?}"));
    promise.claim(&store).await;
    let found = promise.newest(&open()).await;
    promise.holds(found.is_none(), || format!("after a claim: {found:?}"));
}

pub(super) async fn what_was_put_is_read_back_whole_by_another_process<S: CheckpointStore>(
    open: &impl Fn() -> S,
) {
    let promise = Promise("what_was_put_is_read_back_whole_by_another_process");
    let store = open();
    let generation = promise.claim(&store).await;
    for mut checkpoint in [sample(generation, 1), sample(generation, 2)] {
        if checkpoint.epoch == 2 {
            (checkpoint.state, checkpoint.handles) = (vec![0; 1 << 20], Vec::new());
        }
        promise.stored(&store, &checkpoint).await;
        let found = promise.newest(&open()).await;
        promise.holds(found.as_ref() == Some(&checkpoint), || {
            format!("epoch {} was put and {:?} is read", checkpoint.epoch, found.map(|found| found.epoch))
        });
    }
}

pub(super) async fn the_newest_of_several_is_read<S: CheckpointStore>(open: &impl Fn() -> S) {
    let promise = Promise("the_newest_of_several_is_read");
    let (store, reader) = (open(), open());
    let generation = promise.claim(&store).await;
    for epoch in 1..20 {
        let checkpoint = sample(generation, epoch);
        promise.stored(&store, &checkpoint).await;
        let found = promise.newest(&reader).await;
        promise.holds(found.as_ref() == Some(&checkpoint), || {
            format!("epoch {epoch} was put and {:?} is read", found.map(|found| found.epoch))
        });
    }
}

pub(super) async fn handles_of_every_format_are_read_back<S: CheckpointStore>(open: &impl Fn() -> S) {
    let promise = Promise("handles_of_every_format_are_read_back");
    let store = open();
    let generation = promise.claim(&store).await;
    let oldest = Handle::from_bytes(HANDLE_FORMAT_1).expect("every release reads format 1");
    let mut checkpoint = sample(generation, 1);
    checkpoint.handles = vec![HANDLE_FORMAT_1.to_vec(), oldest.to_bytes()];
    promise.stored(&store, &checkpoint).await;
    let found = promise.newest(&open()).await.unwrap_or_default();
    let handles: Vec<_> = found.handles.iter().map(|bytes| Handle::from_bytes(bytes)).collect();
    promise.holds(handles.len() == 2 && handles.iter().all(|handle| handle.as_ref() == Ok(&oldest)), || {
        format!("{handles:?}")
    });
}

pub(super) async fn a_put_that_dies_on_its_way_leaves_the_old_or_the_new<S, O>(new: &impl Fn() -> O)
where
    S: CheckpointStore,
    O: Fn() -> S,
{
    let promise = Promise("a_put_that_dies_on_its_way_leaves_the_old_or_the_new");
    for polls in 0..DEATHS {
        let open = new();
        let store = open();
        let generation = promise.claim(&store).await;
        let (old, dying) = (sample(generation, 1), sample(generation, 2));
        promise.stored(&store, &old).await;
        let answer = dies_after(polls, store.put(&dying)).await;
        drop(store);
        let found = promise.newest(&open()).await;
        let is_one = found.as_ref() == Some(&old) || found.as_ref() == Some(&dying);
        promise.holds(is_one, || format!("after {polls} steps of a put there is {found:?}"));
        if answer.is_some() {
            promise.holds(found.as_ref() == Some(&dying), || "an answered put is not there".to_owned());
            return;
        }
    }
}

pub(super) async fn a_put_whose_answer_was_lost_may_be_repeated<S: CheckpointStore>(open: &impl Fn() -> S) {
    let promise = Promise("a_put_whose_answer_was_lost_may_be_repeated");
    let store = open();
    let generation = promise.claim(&store).await;
    let checkpoint = sample(generation, 1);
    for attempt in 0..3 {
        let put = promise.answered(store.put(&checkpoint).await);
        promise.holds(put == Put::Stored, || format!("try {attempt} was answered {put:?}"));
        let found = promise.newest(&open()).await;
        promise.holds(found.as_ref() == Some(&checkpoint), || format!("try {attempt} left {found:?}"));
    }
    promise.stored(&store, &sample(generation, 2)).await;
}
