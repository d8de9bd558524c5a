//! Where reading of a partition begins and ends, against what its log holds. Pure.

/// What a partition's log holds when a job is created: offsets `first` up to, not including, `last`. Behind `last`, the
/// last stable offset, nothing can be read yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Log {
    pub(super) first: i64,
    pub(super) last: i64,
}

/// An offset, and whether the pipeline names it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Edge {
    pub(super) offset: i64,
    pub(super) named: bool,
}

/// Why reading cannot begin there.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Misfit {
    /// The setting cannot be meant.
    Wrong(String),
    /// The log has no such record any more.
    Gone(String),
}

/// Refuses a named start outside of the log, and an end before the start. A named end may lie behind the log's: the job
/// then waits for records up to it.
pub(super) fn check(log: Log, start: Edge, end: Option<Edge>) -> Result<(), Misfit> {
    let Log { first, last } = log;
    let offset = start.offset;
    if start.named && offset > last {
        return Err(Misfit::Wrong(format!(
            "start = {offset} is behind the log, which has offsets {first} to {last} (exclusive); name one of them, or \
             \"latest\""
        )));
    }
    if start.named && offset < first {
        return Err(Misfit::Gone(format!(
            "start = {offset} is before the log, which has offsets {first} to {last} (exclusive): records were removed by \
             retention or by hand; name a later offset, or \"earliest\""
        )));
    }
    match end {
        // Ends that were only looked up may be older than a start that was looked up after them.
        Some(end) if end.offset < offset && (end.named || start.named) => Err(Misfit::Wrong(format!(
            "end = {} is before the start, {offset}; the log has offsets {first} to {last} (exclusive)",
            end.offset
        ))),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: Log = Log { first: 10, last: 20 };

    fn named(offset: i64) -> Edge {
        Edge { offset, named: true }
    }

    fn found(offset: i64) -> Edge {
        Edge { offset, named: false }
    }

    #[test]
    fn every_offset_of_the_log_and_its_end_is_a_start() {
        for start in [10, 15, 20] {
            assert_eq!(check(LOG, named(start), None), Ok(()), "{start}");
        }
    }

    #[test]
    fn a_start_outside_of_the_log_names_its_bounds() {
        for start in [21, i64::MAX] {
            let Err(Misfit::Wrong(why)) = check(LOG, named(start), None) else { panic!("{start} is legal") };
            assert!(
                why.starts_with(&format!("start = {start} is behind the log, which has offsets 10 to 20"))
            );
        }
        let Err(Misfit::Gone(why)) = check(LOG, named(9), None) else { panic!("9 is legal") };
        assert!(why.starts_with("start = 9 is before the log, which has offsets 10 to 20"), "{why}");
    }

    #[test]
    fn an_end_before_the_start_is_refused() {
        for (start, end) in [(found(20), named(15)), (named(15), named(14)), (found(10), named(5))] {
            let Err(Misfit::Wrong(why)) = check(LOG, start, Some(end)) else { panic!("{end:?} is legal") };
            let (start, end) = (start.offset, end.offset);
            assert!(why.starts_with(&format!("end = {end} is before the start, {start}")), "{why}");
        }
        assert_eq!(check(LOG, named(15), Some(named(15))), Ok(()), "nothing to read is legal");
    }

    #[test]
    fn an_end_may_lie_behind_the_log() {
        assert_eq!(check(LOG, named(15), Some(named(1_000))), Ok(()));
    }

    #[test]
    fn a_start_that_was_looked_up_after_the_end_may_lie_behind_it() {
        assert_eq!(check(LOG, found(25), Some(found(20))), Ok(()));
    }
}
