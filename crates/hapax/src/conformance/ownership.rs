//! Of two runs the older one decides nothing any more.

use super::{CheckpointStore, Promise, Put, dies_after, sample};
use std::collections::BTreeSet;

/// Places on its way where an older run may be overtaken: more than any store has.
const PLACES: usize = 200;

/// Steps that a newer run is given while an older one stands still.
const PATIENCE: usize = 100;

pub(super) async fn a_later_run_has_a_higher_generation<S: CheckpointStore>(open: &impl Fn() -> S) {
    let promise = Promise("a_later_run_has_a_higher_generation");
    let mut before = promise.claim(&open()).await;
    for run in 1..6 {
        let store = open();
        let generation = promise.claim(&store).await;
        promise.holds(generation > before, || format!("run {run}: {generation} after {before}"));
        promise.stored(&store, &sample(generation, run)).await;
        before = generation;
    }
}

pub(super) async fn two_runs_that_begin_at_once_have_two_generations<S: CheckpointStore>(
    open: &impl Fn() -> S,
) {
    let promise = Promise("two_runs_that_begin_at_once_have_two_generations");
    let stores: Vec<S> = (0..8).map(|_| open()).collect();
    let claims = futures::future::join_all(stores.iter().map(|store| promise.claim(store))).await;
    let distinct: BTreeSet<u64> = claims.iter().copied().collect();
    promise.holds(distinct.len() == claims.len(), || format!("{claims:?}"));
}

pub(super) async fn an_older_run_is_refused_from_the_begin_of_a_newer_one_on<S: CheckpointStore>(
    open: &impl Fn() -> S,
) {
    let promise = Promise("an_older_run_is_refused_from_the_begin_of_a_newer_one_on");
    let (older, newer) = (open(), open());
    let old = promise.claim(&older).await;
    promise.stored(&older, &sample(old, 1)).await;
    let new = promise.claim(&newer).await;
    let late = promise.answered(older.put(&sample(old, 2)).await);
    promise.holds(late == Put::Superseded, || format!("an older run's put was answered {late:?}"));
    let found = promise.newest(&newer).await;
    promise.holds(found == Some(sample(old, 1)), || format!("the older run has left {found:?}"));
    promise.stored(&newer, &sample(new, 2)).await;
    let late = promise.answered(older.put(&sample(old, 3)).await);
    promise.holds(late == Put::Superseded, || format!("an older run's put was answered {late:?}"));
    let found = promise.newest(&open()).await;
    promise.holds(found == Some(sample(new, 2)), || format!("the older run has left {found:?}"));
}

/// The older run is stopped at each place of its put, a newer one begins and puts, the older one goes on.
pub(super) async fn an_older_run_that_is_on_its_way_does_not_overwrite_a_newer_one<S, O>(new: &impl Fn() -> O)
where
    S: CheckpointStore,
    O: Fn() -> S,
{
    let promise = Promise("an_older_run_that_is_on_its_way_does_not_overwrite_a_newer_one");
    for place in 0..PLACES {
        let open = new();
        let (older, newer) = (open(), open());
        let old = promise.claim(&older).await;
        let checkpoint = sample(old, 1);
        let mut put = Box::pin(older.put(&checkpoint));
        if dies_after(place, &mut put).await.is_some() {
            return;
        }
        let mut next = Box::pin(async {
            let generation = promise.claim(&newer).await;
            let stands = promise.newest(&newer).await;
            promise.stored(&newer, &sample(generation, 2)).await;
            (generation, stands)
        });
        // A store may keep the newer run out until the older one is done with its put.
        let (late, (generation, stands)) = match dies_after(PATIENCE, &mut next).await {
            Some(done) => (put.await, done),
            None => futures::future::join(put, next).await,
        };
        let late = promise.answered(late);
        let found = promise.newest(&open()).await;
        promise.holds(found == Some(sample(generation, 2)), || {
            format!("stopped after {place} steps, the older run has left {found:?}")
        });
        let was_stored = stands == Some(checkpoint.clone());
        promise.holds(late == Put::Superseded || was_stored, || {
            format!(
                "stopped after {place} steps, the older run's put was answered {late:?}, and was never there"
            )
        });
    }
}
