//! How much memory a step takes.

use peak_alloc::PeakAlloc;

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

/// Does something that may have so many bytes at a time.
pub(crate) fn within<T>(limit: usize, what: &str, work: impl FnOnce() -> T) -> T {
    MEMORY.reset_peak_usage();
    let before = MEMORY.current_usage();
    let done = work();
    let taken = MEMORY.peak_usage().saturating_sub(before);
    assert!(taken <= limit, "{what} took {taken} bytes of memory, and may have {limit}");
    done
}
