//! What a shard asks of all its writers at once.

use super::{SinkError, SinkWriter};
use crate::source::BoxFuture;
use futures::future::select_all;
use std::sync::{
    OnceLock,
    atomic::{AtomicUsize, Ordering},
};

/// Has every writer do the same, at once, and answers in their order.
///
/// # Errors
/// The first failure of any: also of one that has done its part, while another waits for a broker without end.
pub(crate) async fn each<A: Sync, T>(
    writers: &mut [Box<dyn SinkWriter>],
    with: &A,
    work: impl for<'a> Fn(&'a mut dyn SinkWriter, &'a A) -> BoxFuture<'a, Result<T, SinkError>>,
) -> Result<Vec<T>, SinkError> {
    if writers.is_empty() {
        return Ok(Vec::new());
    }
    let (missing, work) = (&AtomicUsize::new(writers.len()), &work);
    let parts: Vec<_> = writers.iter().map(|_| OnceLock::new()).collect();
    let working = writers.iter_mut().zip(&parts).map(|(writer, part)| {
        Box::pin(async move {
            let _ = part.set(work(writer.as_mut(), with).await?);
            if missing.fetch_sub(1, Ordering::Relaxed) == 1 {
                return Ok(());
            }
            Err(writer.failed().await)
        })
    });
    select_all(working).await.0?;
    Ok(parts.into_iter().map(|part| part.into_inner().expect("the last to be done says so")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{batch::Batch, sink::Prepared};
    use futures::FutureExt;
    use hapax_commit::{Epoch, Identity};
    use std::future;

    /// How a writer flushes, and whether it fails by itself when it has.
    #[derive(Clone, Copy)]
    enum Flush {
        Done,
        ThenFails,
        Waits,
    }

    struct Scripted(Flush, u64);

    impl SinkWriter for Scripted {
        fn begin(&mut self, _: Epoch) {}

        fn write<'a>(&'a mut self, _: &'a Batch) -> BoxFuture<'a, Result<(), SinkError>> {
            Box::pin(future::ready(Ok(())))
        }

        fn prepare(&mut self, _: Epoch) -> BoxFuture<'_, Result<Prepared, SinkError>> {
            match self.0 {
                Flush::Waits => Box::pin(future::pending()),
                Flush::Done | Flush::ThenFails => {
                    Box::pin(future::ready(Ok(Prepared { records: self.1, ..Prepared::default() })))
                }
            }
        }

        fn recorded(&mut self, _: Epoch, _: Option<Identity>) {}

        fn wants_barrier(&self) -> bool {
            false
        }

        fn failed(&mut self) -> BoxFuture<'_, SinkError> {
            match self.0 {
                Flush::ThenFails => Box::pin(future::ready(SinkError::BadRecord {
                    sink: self.1.to_string(),
                    reason: "by itself".to_owned(),
                })),
                Flush::Done | Flush::Waits => Box::pin(future::pending()),
            }
        }
    }

    fn prepare(flushes: &[Flush]) -> Option<Result<Vec<u64>, String>> {
        let writers = flushes.iter().zip(1..);
        let mut writers: Vec<Box<dyn SinkWriter>> =
            writers.map(|(&flush, number)| Box::new(Scripted(flush, number)) as _).collect();
        let prepared =
            each(&mut writers, &Epoch(7), |writer, epoch| writer.prepare(*epoch)).now_or_never()?;
        let prepared = prepared.map_err(|error| error.to_string());
        Some(prepared.map(|prepared| prepared.iter().map(|prepared| prepared.records).collect()))
    }

    #[test]
    fn the_answers_come_in_the_order_of_the_writers_when_the_last_is_done() {
        assert_eq!(prepare(&[]), Some(Ok(vec![])));
        assert_eq!(prepare(&[Flush::Done, Flush::Done, Flush::Done]), Some(Ok(vec![1, 2, 3])));
        assert_eq!(prepare(&[Flush::Done, Flush::Waits]), None);
    }

    #[test]
    fn a_writer_that_waits_does_not_hide_that_another_has_failed() {
        let failed = Some(Err("sink 1: by itself".to_owned()));
        assert_eq!(prepare(&[Flush::ThenFails, Flush::Waits]), failed);
        assert_eq!(prepare(&[Flush::ThenFails, Flush::Done, Flush::Waits]), failed);
    }
}
