//! Operators as Rust closures.

use super::{OnError, Operator, OperatorError, Skipped};
use crate::batch::{Batch, BatchBuilder, RecordRef};
use std::sync::Arc;

/// Where a closure puts its output records.
#[derive(Debug)]
pub struct Emit<'a>(&'a mut BatchBuilder);

impl Emit<'_> {
    /// Appends a record.
    pub fn emit(&mut self, record: RecordRef<'_>) {
        self.0.push(record);
    }
}

type Filter = Arc<dyn Fn(RecordRef<'_>) -> Result<bool, String> + Send + Sync>;
type Route = Arc<dyn Fn(RecordRef<'_>) -> Option<Arc<str>> + Send + Sync>;
type FlatMap = Arc<dyn Fn(RecordRef<'_>, &mut Emit<'_>) -> Result<(), String> + Send + Sync>;

enum Kind {
    Filter(Filter),
    Route(Route),
    FlatMap(FlatMap),
}

/// An operator that calls a closure for each record.
pub struct Closure {
    name: String,
    on_error: OnError,
    kind: Kind,
}

impl Closure {
    /// Keeps the records that the closure accepts.
    pub fn filter(
        name: &str,
        on_error: OnError,
        keep: impl Fn(RecordRef<'_>) -> Result<bool, String> + Send + Sync + 'static,
    ) -> impl Fn() -> Box<dyn Operator> + Send + Sync {
        let keep: Filter = Arc::new(keep);
        Self::factory(name, on_error, move || Kind::Filter(keep.clone()))
    }

    /// Sends each record to the topic that the closure names.
    pub fn route(
        name: &str,
        route: impl Fn(RecordRef<'_>) -> Option<Arc<str>> + Send + Sync + 'static,
    ) -> impl Fn() -> Box<dyn Operator> + Send + Sync {
        let route: Route = Arc::new(route);
        Self::factory(name, OnError::Stop, move || Kind::Route(route.clone()))
    }

    /// Turns each record into none, one or several.
    pub fn flat_map(
        name: &str,
        on_error: OnError,
        map: impl Fn(RecordRef<'_>, &mut Emit<'_>) -> Result<(), String> + Send + Sync + 'static,
    ) -> impl Fn() -> Box<dyn Operator> + Send + Sync {
        let map: FlatMap = Arc::new(map);
        Self::factory(name, on_error, move || Kind::FlatMap(map.clone()))
    }

    fn factory(
        name: &str,
        on_error: OnError,
        kind: impl Fn() -> Kind + Send + Sync,
    ) -> impl Fn() -> Box<dyn Operator> + Send + Sync {
        let name = name.to_owned();
        move || Box::new(Self { name: name.clone(), on_error, kind: kind() })
    }

    /// Stops with the record's place, or counts it, as the policy says.
    fn failed(
        &self,
        batch: &Batch,
        offset: i64,
        reason: String,
        skipped: &mut Skipped,
    ) -> Result<(), OperatorError> {
        let error = OperatorError::new(batch.origin(), offset, &self.name, reason);
        match self.on_error {
            OnError::Stop => Err(error),
            OnError::Skip => {
                skipped.record(error);
                Ok(())
            }
        }
    }

    fn filtered(
        &self,
        mut batch: Batch,
        keep: &Filter,
        skipped: &mut Skipped,
    ) -> Result<Batch, OperatorError> {
        let mut failures = Vec::new();
        batch.retain(|record| {
            Ok::<_, OperatorError>(keep(record).unwrap_or_else(|reason| {
                failures.push((record.offset, reason));
                false
            }))
        })?;
        for (offset, reason) in failures {
            self.failed(&batch, offset, reason, skipped)?;
        }
        Ok(batch)
    }

    fn mapped(&self, batch: &Batch, map: &FlatMap, skipped: &mut Skipped) -> Result<Batch, OperatorError> {
        let mut out = Batch::builder(batch.origin().clone());
        for record in batch.iter() {
            let before = out.len();
            if let Err(reason) = map(record, &mut Emit(&mut out)) {
                out.truncate(before);
                self.failed(batch, record.offset, reason, skipped)?;
            }
        }
        Ok(out.build())
    }
}

impl Operator for Closure {
    fn apply(&mut self, mut batch: Batch, skipped: &mut Skipped) -> Result<Batch, OperatorError> {
        match &self.kind {
            Kind::Filter(keep) => self.filtered(batch, &keep.clone(), skipped),
            Kind::Route(route) => {
                batch.route(|record| route(record));
                Ok(batch)
            }
            Kind::FlatMap(map) => self.mapped(&batch, &map.clone(), skipped),
        }
    }
}
