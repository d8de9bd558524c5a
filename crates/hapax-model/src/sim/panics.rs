//! Panics anywhere on a simulated thread: tokio keeps those of a task to itself.

use std::{cell::RefCell, panic, sync::Once};

thread_local! {
    static SEEN: RefCell<Option<Vec<String>>> = const { RefCell::new(None) };
}

/// Gathers the panics of this thread until it is dropped.
pub(super) struct Watch(());

impl Watch {
    pub(super) fn begin() -> Self {
        static HOOK: Once = Once::new();
        HOOK.call_once(|| {
            let before = panic::take_hook();
            panic::set_hook(Box::new(move |info| {
                let kept = SEEN.with_borrow_mut(|seen| {
                    seen.as_mut().map(|seen| seen.push(info.to_string().replace('\n', " "))).is_some()
                });
                if !kept {
                    before(info);
                }
            }));
        });
        SEEN.set(Some(Vec::new()));
        Self(())
    }

    /// The first panic so far.
    pub(super) fn first() -> Option<String> {
        SEEN.with_borrow(|seen| seen.as_ref()?.first().cloned())
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        SEEN.set(None);
    }
}
