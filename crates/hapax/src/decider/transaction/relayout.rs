//! Other shards or other splits: one transaction that puts the bookmarks of the layout that follows in the place of those
//! that are there.
//!
//! Owns the order of a change. Every id that the job has ever had and those of the layout that follows are cleared, the lock
//! first (`hapax_commit::takeover`, `hapax_commit::present`); then progress is read and judged, as at any start; and what it
//! proves is told to the partitions, since bookmarks that follow do not name the transactions that those before were
//! committed with.
//!
//! ```text
//! look -> clear, the lock first -> read, judge -> left-open partitions -> bookmarks of the next layout, committed -> told
//!                              R1                                     L0                             K3      L1
//! ```
//!
//! A death before the commit leaves the layout that was, and ids on which nothing was written; behind it there is the one
//! that follows, and its bookmarks tell of every id that the one before had.

use super::{RecordAt, TransactionDecider, beginning::Beginning, home::Home};
use crate::{
    decider::fit,
    error::{Code, JobError},
};
use hapax_commit::{Epoch, Positions, Shape, bookmark::Progress, takeover::Goal};

impl TransactionDecider {
    /// What the job is, as its bookmarks say, or its record where it is new.
    pub(crate) fn shape(&self) -> Shape {
        Shape::of(&self.start.record)
    }

    /// Is there a whole set of bookmarks, which a change could go on from?
    pub(crate) fn is_present(&self) -> bool {
        self.start.present.is_some()
    }

    /// Refuses a pipeline that does not fit the job, before anything is touched.
    pub(crate) fn check_fit(&self, drop: &[String]) -> Result<(), JobError> {
        let shape = self.shape();
        fit::check_shards(&self.start.plan, &shape)?;
        fit::check_splits(&self.start.plan, &shape, drop)
    }

    /// Takes in what the sources have and the job does not know, and gives up what they do not have any more.
    pub(crate) async fn revise(&mut self, mut to: Shape) -> Result<(), JobError> {
        let known = self.shape();
        let planned = Home::planned(&self.start, &to.layout, &self.client).await?;
        if to.layout == known.layout {
            if planned.is_like(&self.home) {
                return Ok(());
            }
            // The same splits, and their offsets stand elsewhere: a source is on another cluster than it was.
            to.layout.number += 1;
        }
        let home = Home::planned(&self.start, &to.layout, &self.client).await?;
        self.change(&to, home).await?;
        self.tell_change(&known, &to);
        Ok(())
    }

    /// Deals the same splits out to another number of shards.
    pub(crate) async fn reshape(&mut self, shards: u32) -> Result<Shape, JobError> {
        let to = self.shape().with_shards(shards);
        let home = self.home.reshaped(&to.layout);
        self.change(&to, home).await?;
        Ok(to)
    }

    fn tell_change(&self, from: &Shape, to: &Shape) {
        let (job, layout) = (&self.start.plan.name, to.layout.number);
        let (added, dropped) = fit::moved(from, to);
        if !added.is_empty() {
            let splits = added.join(", ");
            tracing::info!(%job, layout, "reads from here on, from the first record: {splits}");
        }
        if !dropped.is_empty() {
            let splits = dropped.join(", ");
            tracing::warn!(%job, layout, "does not read any more, and has forgotten the positions of: {splits}");
        }
    }

    async fn change(&mut self, to: &Shape, home: Home) -> Result<(), JobError> {
        to.check().map_err(|broken| JobError::Bug { what: format!("a layout: {broken}") })?;
        let home = home.ever(self.home.shards_ever());
        home.check_room(&to.layout, &to.genesis, self.room, self.start.objects.is_some())?;
        self.home = self.home.clone().ever(home.shards_ever());
        self.carry_out(Goal::Change).await?;
        let cleared = self.cleared.as_ref().expect("a job that was taken over has its ids cleared");
        let identity = cleared.0[&self.ids().lock];
        let positions = positions(to, self.progress());
        self.left_open_ended(&self.committed()).await?;
        self.make_own_topic(&home).await?;
        let given_up = self.given_up(&home).await?;
        let beginning = Beginning { layout: &to.layout, positions: &positions, home: &home, given_up };
        let reach = |point| self.start.crash.reach(point, Epoch::GENESIS);
        self.commit_beginning(identity, beginning, reach, || {}).await?;
        tracing::info!(job = %self.start.plan.name, layout = to.layout.number, "the layout is committed");
        self.goes_on_as(to, positions, home);
        Ok(())
    }

    fn goes_on_as(&mut self, to: &Shape, positions: Positions, home: Home) {
        let record = &mut self.start.record;
        record.layout = to.layout.clone();
        record.topics.clone_from(&to.topics);
        record.genesis = positions;
        if let RecordAt::Offsets { whole } = &mut self.start.record_at {
            *whole = true;
        }
        self.home = home;
        self.looks = Vec::new();
        (self.cleared, self.progress) = (None, None);
    }
}

/// Where the splits of a layout go on: behind what is committed, or at their start.
fn positions(to: &Shape, progress: &Progress) -> Positions {
    let known = progress.positions();
    let at = |split: &hapax_commit::SplitId| {
        let position = known.get(split).or_else(|| to.genesis.get(split))?;
        Some((split.clone(), position.clone()))
    };
    to.splits().filter_map(at).collect()
}

/// The layout has changed under a command that was to change it, in another way.
pub(crate) fn changed_meanwhile(job: &hapax_commit::Name, number: u32) -> JobError {
    JobError::TakenOver {
        job: job.clone(),
        by: format!("somebody else has changed its shards or splits meanwhile: layout {number}"),
    }
}

/// A job that has not begun has no layout to change.
pub(crate) fn not_begun(job: &hapax_commit::Name) -> JobError {
    JobError::Configuration {
        code: Code::Usage,
        message: format!(
            "job {job}: there is no such job: nothing of it is committed in group {job}; what a new one begins with \
             stands in its file (run.shards)"
        ),
    }
}
