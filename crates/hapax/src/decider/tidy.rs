//! Takes journals away that nobody needs any more.
//!
//! Owns when a journal may go: its epoch has its outcome in the chain; or a run of an older generation has left it, and
//! this run has a manifest or a proof of its own in the chain, so that everything before it has its outcome. Refuses to hold anything up:
//! what cannot be removed now is removed later, by this run or the next.
//!
//! ```text
//! manifest e stored -> remembered -> e recorded -> due -> removed
//!  └ the first slot of this run: what older runs left -> removed, once
//! ```

use crate::sink::JournalPlace;
use futures::future::BoxFuture;
use hapax_commit::{Epoch, Journal, Manifest, Name};
use std::mem;

/// The journals of a run.
pub(super) struct Tidy {
    job: Name,
    place: JournalPlace,
    /// Of epochs without an outcome in the chain.
    needed: Vec<(Epoch, Vec<Journal>)>,
    /// To be removed.
    due: Vec<Journal>,
    leftovers: Leftovers,
    under_way: Option<BoxFuture<'static, Removed>>,
}

/// What older runs have left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leftovers {
    /// Nothing of this run but its claim is in the chain.
    Untouchable,
    Due,
    Gone,
}

/// What became of a removal.
struct Removed {
    /// To be tried again.
    left: Vec<Journal>,
    leftovers: Leftovers,
}

impl Tidy {
    pub(super) fn new(job: Name, place: JournalPlace) -> Self {
        Self {
            job,
            place,
            needed: Vec::new(),
            due: Vec::new(),
            leftovers: Leftovers::Untouchable,
            under_way: None,
        }
    }

    /// A manifest or a proof of this run is in the chain.
    pub(super) fn stored(&mut self) {
        if self.leftovers == Leftovers::Untouchable {
            self.leftovers = Leftovers::Due;
        }
    }

    /// An epoch is decided: its journals are needed until it has its outcome.
    pub(super) fn decided(&mut self, manifest: &Manifest) {
        if !manifest.journals.is_empty() {
            self.needed.push((manifest.epoch, manifest.journals.clone()));
        }
    }

    /// The outcomes of an epoch and of all before it are in the chain.
    pub(super) fn recorded(&mut self, epoch: Epoch) {
        let (over, needed) = mem::take(&mut self.needed).into_iter().partition(|(of, _)| *of <= epoch);
        self.needed = needed;
        let over: Vec<(Epoch, Vec<Journal>)> = over;
        self.due.extend(over.into_iter().flat_map(|(_, journals)| journals));
        self.begin();
    }

    /// Ends when a removal has ended; pending while there is none.
    pub(super) async fn step(&mut self) {
        let Some(under_way) = &mut self.under_way else { return std::future::pending().await };
        let Removed { left, leftovers } = under_way.await;
        self.under_way = None;
        self.leftovers = leftovers;
        // Tried again with the next epoch: a store that fails is not asked in a loop.
        self.due.extend(left);
    }

    /// Removes all that is due. For a run that ends well; what is not removed then is the next run's.
    pub(super) async fn finish(&mut self) {
        if self.under_way.is_some() {
            self.step().await;
        }
        self.begin();
        if self.under_way.is_some() {
            self.step().await;
        }
    }

    fn begin(&mut self) {
        let nothing = self.due.is_empty() && self.leftovers != Leftovers::Due;
        if self.under_way.is_some() || nothing {
            return;
        }
        let (due, leftovers) = (mem::take(&mut self.due), self.leftovers);
        self.under_way = Some(Box::pin(remove(self.job.clone(), self.place.clone(), due, leftovers)));
    }
}

async fn remove(job: Name, place: JournalPlace, due: Vec<Journal>, leftovers: Leftovers) -> Removed {
    let left = match place.journals.remove(&due).await {
        Ok(()) => Vec::new(),
        Err(error) => {
            tracing::warn!(%job, "removing {} journals: {error}; tried again later", due.len());
            due
        }
    };
    let leftovers = match leftovers {
        Leftovers::Due => match place.journals.remove_older(place.generation).await {
            Ok(0) => Leftovers::Gone,
            Ok(count) => {
                tracing::info!(%job, count, "removed what earlier runs have left of their journals");
                Leftovers::Gone
            }
            Err(error) => {
                tracing::warn!(%job, "removing journals of earlier runs: {error}; tried again later");
                Leftovers::Due
            }
        },
        other @ (Leftovers::Untouchable | Leftovers::Gone) => other,
    };
    Removed { left, leftovers }
}
