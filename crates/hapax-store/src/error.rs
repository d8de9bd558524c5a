//! Why the store could not do what it was asked, whose fault that is, and what may have happened all the same.

use hapax_commit::DamagedBytes;
use std::{error::Error, io, time::Duration};

/// A failed operation of the store. `path` is relative to the store's root, or absolute for local files.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The address of the store cannot be used.
    #[error("cannot use {url:?} as a checkpoint store: {why}")]
    Address {
        /// The address as given.
        url: String,
        /// What is wrong with it and what to write instead.
        why: String,
    },
    /// The root folder cannot be made or opened.
    #[error(
        "cannot open the checkpoint store at {path}; create the folder, or mount its volume, and try again"
    )]
    Root {
        /// The folder.
        path: String,
        /// What the file system said.
        #[source]
        source: io::Error,
    },
    /// The store failed in a way that may pass.
    #[error("the checkpoint store failed to {attempt} {path}; see whether it is reachable and healthy")]
    Unreachable {
        /// What was attempted, as a verb.
        attempt: &'static str,
        /// On which object.
        path: String,
        /// What the store said.
        #[source]
        source: object_store::Error,
    },
    /// No answer came in time; the request may still take effect.
    #[error("the checkpoint store did not answer within {limit:?} when asked to {attempt} {path}")]
    NoAnswer {
        /// What was attempted, as a verb.
        attempt: &'static str,
        /// On which object.
        path: String,
        /// How long was waited.
        limit: Duration,
    },
    /// No room: disk or quota.
    #[error("the checkpoint store is full: could not {attempt} {path}; free some space")]
    Full {
        /// What was attempted, as a verb.
        attempt: &'static str,
        /// On which object.
        path: String,
        /// What the store said.
        #[source]
        source: object_store::Error,
    },
    /// Mounted read-only.
    #[error("the checkpoint store is read-only: could not {attempt} {path}; mount it writable")]
    ReadOnly {
        /// What was attempted, as a verb.
        attempt: &'static str,
        /// On which object.
        path: String,
        /// What the store said.
        #[source]
        source: object_store::Error,
    },
    /// The process lacks the right.
    #[error(
        "no permission to {attempt} {path} in the checkpoint store; grant it to the user of this process"
    )]
    Forbidden {
        /// What was attempted, as a verb.
        attempt: &'static str,
        /// On which object.
        path: String,
        /// What the store said.
        #[source]
        source: object_store::Error,
    },
    /// An object is not what we wrote. Nothing of its chain was used.
    #[error(
        "{path} in the checkpoint store is damaged; nothing was used. restore it from a copy, or begin anew with --fresh"
    )]
    Damaged {
        /// Which object.
        path: String,
        /// What is wrong with it.
        #[source]
        source: DamagedBytes,
    },
    /// Whole, but not where it belongs.
    #[error(
        "{path} does not belong into the checkpoint store: {why}; nothing was used. move it away, or restore the folder"
    )]
    Misplaced {
        /// Which object.
        path: String,
        /// What stands there.
        why: String,
    },
    /// Written by a newer release.
    #[error("{path} was written in format {version} by a newer release; nothing was used. run that release")]
    Newer {
        /// Which object.
        path: String,
        /// The format found.
        version: u16,
    },
    /// The job record is not there: the volume is not mounted, or was emptied, or replaced.
    #[error(
        "the job record {path} is gone from the checkpoint store; nothing was written. is the volume still mounted?"
    )]
    Gone {
        /// Where the job record was.
        path: String,
    },
    /// The store writes over existing objects although it was told to create only.
    #[error(
        "the checkpoint store accepts two creates of {path}; it cannot tell two runs apart and is refused. use a store with conditional writes"
    )]
    NotCreateOnly {
        /// The object of the probe.
        path: String,
    },
    /// A live run pruned the chain each time it was read.
    #[error("the chain {path} changed under each of {listings} readings; another run is at work. try again")]
    Moving {
        /// The chain's folder.
        path: String,
        /// How often it was listed.
        listings: u32,
    },
    /// Somebody asked to remove a claim or a revision. A bug.
    #[error(
        "refused to remove {path}: it is a claim, which fences old runs for ever, or a revision; please report this"
    )]
    ClaimKept {
        /// The slot.
        path: String,
    },
}

/// Whose fault an error is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// The given address or folder.
    Configuration,
    /// The store, or what it holds.
    Storage,
    /// Ours.
    Bug,
}

impl StoreError {
    /// May the same operation succeed later without a person?
    pub fn is_retriable(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::NoAnswer { .. } | Self::Full { .. } | Self::Moving { .. } => {
                true
            }
            Self::Address { .. }
            | Self::Root { .. }
            | Self::ReadOnly { .. }
            | Self::Forbidden { .. }
            | Self::Damaged { .. }
            | Self::Misplaced { .. }
            | Self::Newer { .. }
            | Self::Gone { .. }
            | Self::NotCreateOnly { .. }
            | Self::ClaimKept { .. } => false,
        }
    }

    /// Is something there that is not what we wrote?
    pub fn is_damage(&self) -> bool {
        matches!(self, Self::Damaged { .. } | Self::Misplaced { .. })
    }

    /// May the operation have changed the store all the same, now or later?
    ///
    /// Says nothing about a put: its earlier tries count too, so [`crate::PutOutcome::Unknown`] always may.
    pub fn may_have_had_effect(&self) -> bool {
        match self {
            // A folder's fsync can fail for want of space after the object is in it.
            Self::Unreachable { .. } | Self::NoAnswer { .. } | Self::Full { .. } => true,
            Self::Address { .. }
            | Self::Root { .. }
            | Self::ReadOnly { .. }
            | Self::Forbidden { .. }
            | Self::Damaged { .. }
            | Self::Misplaced { .. }
            | Self::Newer { .. }
            | Self::Gone { .. }
            | Self::NotCreateOnly { .. }
            | Self::Moving { .. }
            | Self::ClaimKept { .. } => false,
        }
    }

    /// Whose fault is it?
    pub fn fault(&self) -> Fault {
        match self {
            Self::Address { .. } => Fault::Configuration,
            Self::Root { .. }
            | Self::Unreachable { .. }
            | Self::NoAnswer { .. }
            | Self::Full { .. }
            | Self::ReadOnly { .. }
            | Self::Forbidden { .. }
            | Self::Damaged { .. }
            | Self::Misplaced { .. }
            | Self::Newer { .. }
            | Self::Gone { .. }
            | Self::NotCreateOnly { .. }
            | Self::Moving { .. } => Fault::Storage,
            Self::ClaimKept { .. } => Fault::Bug,
        }
    }

    /// Sorts what the store said by what a person has to do about it.
    pub(crate) fn from_answer(attempt: &'static str, path: String, source: object_store::Error) -> Self {
        use object_store::Error as Answer;
        if matches!(source, Answer::PermissionDenied { .. } | Answer::Unauthenticated { .. }) {
            return Self::Forbidden { attempt, path, source };
        }
        match io_kind(&source) {
            Some(io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) => {
                Self::Full { attempt, path, source }
            }
            Some(io::ErrorKind::ReadOnlyFilesystem) => Self::ReadOnly { attempt, path, source },
            Some(io::ErrorKind::PermissionDenied) => Self::Forbidden { attempt, path, source },
            _ => Self::Unreachable { attempt, path, source },
        }
    }

    /// Did the store refuse a create because something is there? It may be wrong ([`crate::object`]): good enough
    /// to probe a store, not to settle a put.
    pub(crate) fn says_exists(&self) -> bool {
        use object_store::Error as Answer;
        matches!(
            self,
            Self::Unreachable { source: Answer::AlreadyExists { .. } | Answer::Precondition { .. }, .. }
        )
    }

    pub(crate) fn from_bytes(path: String, source: DamagedBytes) -> Self {
        match source {
            DamagedBytes::Newer { version } => Self::Newer { path, version },
            source => Self::Damaged { path, source },
        }
    }
}

/// The file system's own word, where there is one below what the store said.
fn io_kind(error: &object_store::Error) -> Option<io::ErrorKind> {
    let mut next: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(error) = next {
        if let Some(io) = error.downcast_ref::<io::Error>() {
            return Some(io.kind());
        }
        next = error.source();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn generic(kind: io::ErrorKind) -> StoreError {
        let source = object_store::Error::Generic { store: "test", source: Box::new(io::Error::from(kind)) };
        StoreError::from_answer("create", "orders/1/job".to_owned(), source)
    }

    #[test]
    fn an_answer_is_sorted_by_what_a_person_has_to_do() {
        assert!(matches!(generic(io::ErrorKind::StorageFull), StoreError::Full { .. }));
        assert!(matches!(generic(io::ErrorKind::QuotaExceeded), StoreError::Full { .. }));
        assert!(matches!(generic(io::ErrorKind::ReadOnlyFilesystem), StoreError::ReadOnly { .. }));
        assert!(matches!(generic(io::ErrorKind::PermissionDenied), StoreError::Forbidden { .. }));
        assert!(matches!(generic(io::ErrorKind::TimedOut), StoreError::Unreachable { .. }));
    }

    #[test]
    fn a_source_is_chained_and_not_printed_twice() {
        let error = generic(io::ErrorKind::StorageFull);
        assert_eq!(
            error.to_string(),
            "the checkpoint store is full: could not create orders/1/job; free some space"
        );
        assert!(error.source().is_some());
    }
}
