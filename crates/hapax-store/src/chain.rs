//! One cohort's chain: numbered create-only slots.
//!
//! Owns: the three outcomes of putting a slot, a reading that is whole or refused, and removal that spares claims
//! and revisions.
//! Refuses: what the slots mean together (`hapax_commit`).
//!
//! Durable when [`PutOutcome::Stored`] is returned, and with it everything that was read before: a successful put
//! syncs the folder that all slots share, a claim's also the folders above it.

use crate::{
    error::StoreError,
    layout,
    limits::{LISTINGS, READS_AT_ONCE},
    object::{Objects, Settled},
};
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, future::BoxFuture, stream};
use hapax_commit::{Slot, SlotBody, SlotNumber};
use object_store::path::Path;
use std::{fmt, sync::Arc};

/// Called with a slot at a crash point.
pub type Hook = Arc<dyn Fn(&Slot) -> BoxFuture<'static, ()> + Send + Sync>;

/// What became of a slot that was put.
#[derive(Debug)]
#[must_use = "a slot that was offered is stored, taken, or must be settled by a claim"]
pub enum PutOutcome {
    /// It is there, with these bytes, durable.
    Stored,
    /// Another slot has that number.
    Taken(Box<Slot>),
    /// Not known, and it may still land later. Only filling the number with a claim settles it.
    Unknown(StoreError),
}

/// A cohort's chain. Cheap to clone.
#[derive(Clone)]
pub struct Chain {
    objects: Arc<Objects>,
    folder: Path,
    /// The job record: without it this is not the store that the chain is in.
    anchor: Path,
    before_put: Option<Hook>,
    after_put: Option<Hook>,
}

impl Chain {
    pub(crate) fn new(objects: Arc<Objects>, folder: Path, anchor: Path) -> Self {
        Self { objects, folder, anchor, before_put: None, after_put: None }
    }

    /// Calls `before_put` right before a slot is first offered, and `after_put` when it is there and nobody has
    /// been told: the two sides of crash point K1b.
    #[must_use]
    pub fn with_hooks(mut self, before_put: Hook, after_put: Hook) -> Self {
        self.before_put = Some(before_put);
        self.after_put = Some(after_put);
        self
    }

    /// All slots, in the order of their numbers.
    ///
    /// # Errors
    /// A damaged, newer or misplaced object (then nothing is returned), a missing job record, or as the store fails.
    pub async fn read(&self) -> Result<Vec<Slot>, StoreError> {
        for _ in 0..LISTINGS {
            self.objects.require(&self.anchor).await?;
            let numbers = self.numbers().await?;
            let wanted = numbers.len();
            let slots: Vec<Slot> = stream::iter(numbers)
                .map(|number| self.get(number))
                .buffered(READS_AT_ONCE)
                .try_filter_map(async |slot| Ok(slot))
                .try_collect()
                .await?;
            // A live run pruned a listed slot: the newer slots that made it superfluous are not in this listing.
            if slots.len() == wanted {
                return Ok(slots);
            }
        }
        Err(StoreError::Moving { path: self.objects.label(&self.folder), listings: LISTINGS })
    }

    /// One slot; `None` where the number is free, or was pruned.
    ///
    /// # Errors
    /// A damaged, newer or misplaced object, or as the store fails.
    pub async fn get(&self, number: SlotNumber) -> Result<Option<Slot>, StoreError> {
        let path = layout::slot(&self.folder, number);
        match self.objects.get(&path).await? {
            Some(bytes) => self.parse(&path, number, &bytes).map(Some),
            None => Ok(None),
        }
    }

    /// The highest number that is taken, by names alone: works also where what the slots say is damaged.
    ///
    /// # Errors
    /// An object that is no slot, or as the store fails.
    pub async fn last_number(&self) -> Result<Option<SlotNumber>, StoreError> {
        Ok(self.numbers().await?.pop())
    }

    /// Puts a slot. Dropping the future leaves its outcome unknown.
    ///
    /// # Panics
    /// The slot breaks an invariant of its own: a bug that must not become durable.
    pub async fn put(&self, slot: &Slot) -> PutOutcome {
        let bytes = Bytes::from(slot.to_bytes());
        assert!(Slot::from_bytes(&bytes).as_ref() == Ok(slot), "slot {} would not be read back", slot.number);
        let is_claim = matches!(slot.body, SlotBody::Claim(_));
        assert!(!is_claim || slot.generation.0 == slot.number.0, "claim {} is of another run", slot.number);
        call(self.before_put.as_ref(), slot).await;
        let path = layout::slot(&self.folder, slot.number);
        match self.objects.offer(&path, &bytes, Some(&self.anchor)).await {
            Settled::Stored => {
                if is_claim && let Err(error) = self.objects.sync_up(&self.folder).await {
                    return PutOutcome::Unknown(error);
                }
                call(self.after_put.as_ref(), slot).await;
                PutOutcome::Stored
            }
            Settled::Other(found) => match self.parse(&path, slot.number, &found) {
                Ok(other) => PutOutcome::Taken(Box::new(other)),
                Err(error) => PutOutcome::Unknown(error),
            },
            Settled::Unknown(error) => PutOutcome::Unknown(error),
        }
    }

    /// Removes slots that the chain no longer needs, the oldest first, and returns how many. A slot whose put had trouble stays for a
    /// later run: a request that is still under way could bring it back behind newer ones.
    ///
    /// # Errors
    /// [`StoreError::ClaimKept`], and then nothing was removed; or as the store fails, and then some were.
    pub async fn remove(&self, numbers: &[SlotNumber]) -> Result<usize, StoreError> {
        let mut removable = Vec::with_capacity(numbers.len());
        let mut numbers = numbers.to_vec();
        numbers.sort_unstable();
        for number in numbers {
            let path = layout::slot(&self.folder, number);
            match self.get(number).await? {
                Some(Slot { body: SlotBody::Claim(_) | SlotBody::Revision(_), .. }) => {
                    return Err(StoreError::ClaimKept { path: self.objects.label(&path) });
                }
                Some(_) if !self.objects.may_land_late(&path) => removable.push(path),
                Some(_) | None => {}
            }
        }
        for path in &removable {
            self.objects.remove(path).await?;
        }
        Ok(removable.len())
    }

    /// The taken numbers, ascending.
    async fn numbers(&self) -> Result<Vec<SlotNumber>, StoreError> {
        let names = self.objects.names(&self.folder).await?;
        let foreign = |name: &String| StoreError::Misplaced {
            path: self.objects.label(&self.folder.clone().join(name.as_str())),
            why: "a chain's folder holds slots only".to_owned(),
        };
        if let Some(folder) = names.folders.first() {
            return Err(foreign(folder));
        }
        let numbers = names.objects.iter().map(|name| layout::slot_number(name).ok_or_else(|| foreign(name)));
        let mut numbers = numbers.collect::<Result<Vec<_>, _>>()?;
        numbers.sort_unstable();
        Ok(numbers)
    }

    fn parse(&self, path: &Path, number: SlotNumber, bytes: &Bytes) -> Result<Slot, StoreError> {
        let slot = Slot::from_bytes(bytes)
            .map_err(|damage| StoreError::from_bytes(self.objects.label(path), damage))?;
        if slot.number == number {
            return Ok(slot);
        }
        let why = format!("slot {} under the name of slot {number}", slot.number);
        Err(StoreError::Misplaced { path: self.objects.label(path), why })
    }
}

async fn call(hook: Option<&Hook>, slot: &Slot) {
    if let Some(hook) = hook {
        hook(slot).await;
    }
}

impl fmt::Debug for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Chain").field("folder", &self.objects.label(&self.folder)).finish_non_exhaustive()
    }
}
