//! The lanes of a task: limits, weights and pauses of single keys, at run time.

use std::fmt;
use std::sync::Arc;

use super::Inspector;
use super::lane::{Lane, LaneDetail, LaneReport, LaneState, detail_of};
use crate::backend::engine::Store;
use crate::backend::lanes::{self, LaneChange};
use crate::backend::streams::server_time_ms;
use crate::backend::tables::Tables;
use crate::backend::timeouts::RESPONSE_TIMEOUT;
use crate::config_error::Faults;
use crate::error::Error;
use crate::options::key::{Limit, check_key};
use crate::task::task_ref::TaskRef;

/// The most lanes that one call returns.
const MOST: u64 = 1_000;

/// The largest weight of a key.
const MOST_WEIGHT: u64 = 100;

/// The most holders of jobs of a key that are read.
pub(super) const HOLDERS: usize = 20;

/// Who changed a lane, if a producer did.
const PRODUCER: &str = "producer";

impl<I, O> TaskRef<I, O> {
    /// The lanes of the task, to read and control its keys at run time. See [`Lanes`].
    #[must_use]
    pub fn lanes(&self) -> Lanes {
        Lanes::new(self.shared.store.clone(), self.shared.tables.clone(), PRODUCER.into())
    }
}

impl Inspector {
    /// The lanes of a task: its keys, their limits, weights and pauses.
    ///
    /// # Errors
    /// [`Error::Config`] if the name is not that of a task.
    pub fn lanes(&self, task: &str) -> Result<Lanes, Error> {
        self.first(task)?;
        Ok(Lanes::new(self.store.clone(), self.store.tables(task), self.by.clone()))
    }
}

/// The lanes of a task with keys: reads them, and changes the limits, the weight or the pause of one key at run time. Made by
/// [`TaskRef::lanes`] and [`Inspector::lanes`](crate::Inspector::lanes). Cheap to clone.
///
/// ```no_run
/// # use heartline::{Limit, TaskRef};
/// # async fn run(webhooks: TaskRef<String, ()>) -> heartline::Result<()> {
/// let lanes = webhooks.lanes();
/// lanes.set("acme", Limit::new().running(10)).await?;
/// lanes.set_weight("acme", 3).await?;
/// lanes.pause("globex").await?;
/// # Ok(())
/// # }
/// ```
///
/// Settings of a key are kept until [`reset`](Lanes::reset), also while it has no jobs. They hold for all workers, from the next claim
/// on. A lower limit ends no running job. Other limits, and [`reset`](Lanes::reset), end a rest that a handler asked for.
///
/// # Errors
/// [`Error::Config`] if a key, a limit or a number is not valid, and those of every call, see [`Error`].
///
/// # Cancel safety
/// The reads are cancel safe. If another future is dropped, its change may have been made or not. It is safe to repeat.
#[derive(Clone)]
pub struct Lanes {
    store: Arc<Store>,
    tables: Arc<Tables>,
    by: Arc<str>,
}

impl Lanes {
    fn new(store: Arc<Store>, tables: Arc<Tables>, by: Arc<str>) -> Lanes {
        Lanes { store, tables, by }
    }

    /// Gives a key limits of its own, instead of those of [`TaskOptions::per_key`](crate::TaskOptions::per_key). `Limit::new()` has no
    /// limit. Jobs that were claimed before the key had any limit are not counted.
    pub async fn set(&self, key: &str, limit: Limit) -> Result<(), Error> {
        self.change(key, LaneChange::Limits(limit.checked()?)).await.map(drop)
    }

    /// Gives a key a weight, 1 to 100: it starts this many jobs while a key of weight 1, the default, starts one.
    pub async fn set_weight(&self, key: &str, weight: u32) -> Result<(), Error> {
        let mut faults = Faults::default();
        faults.number("weight", u64::from(weight), 1, MOST_WEIGHT);
        faults.finish()?;
        self.change(key, LaneChange::Weight(weight)).await.map(drop)
    }

    /// Pauses a key: none of its jobs starts until [`resume`](Lanes::resume). Running jobs continue, and those of other keys are not
    /// affected. Returns whether it ran before; an earlier pause is kept.
    pub async fn pause(&self, key: &str) -> Result<bool, Error> {
        Ok(!self.change(key, LaneChange::Pause).await?)
    }

    /// Ends the pause of a key. Returns whether it was paused.
    pub async fn resume(&self, key: &str) -> Result<bool, Error> {
        self.change(key, LaneChange::Resume).await
    }

    /// Removes all settings of a key: the limits of the task hold again, its weight is 1, and it is not paused.
    pub async fn reset(&self, key: &str) -> Result<(), Error> {
        self.change(key, LaneChange::Reset).await.map(drop)
    }

    /// Returns whether the key was paused before.
    async fn change(&self, key: &str, change: LaneChange) -> Result<bool, Error> {
        check_key(key)?;
        self.tables.asked(&self.store).await?;
        let keys = &*self.tables.of(key);
        let put = |mut conn| async move { lanes::put(&mut conn, keys, key, change, &self.by).await };
        self.store.ask(RESPONSE_TIMEOUT, put).await
    }

    /// One key: its limits, how many of its jobs wait, and who holds others. A key that is not known has no jobs.
    pub async fn get(&self, key: &str) -> Result<LaneDetail, Error> {
        check_key(key)?;
        self.tables.asked(&self.store).await?;
        let keys = &*self.tables.of(key);
        let read = |mut conn| async move {
            let now_ms = server_time_ms(&mut conn).await?;
            Ok(detail_of(lanes::read(&mut conn, keys, key, HOLDERS).await?, now_ms))
        };
        self.store.look(RESPONSE_TIMEOUT, read).await
    }

    /// The keys of the task whose jobs wait, up to `limit` of them (1 to 1,000): all, or those in one state. Paused keys are among the
    /// full ones.
    ///
    /// Each partition is read at a different moment. A key without waiting jobs is not listed, except for a moment, or while it is paused.
    pub async fn list(&self, state: Option<LaneState>, limit: usize) -> Result<LaneReport, Error> {
        check_limit(limit)?;
        let tables = self.tables.asked(&self.store).await?;
        let now_ms =
            self.store.look(RESPONSE_TIMEOUT, |mut conn| async move { server_time_ms(&mut conn).await }).await?;
        let mut report = LaneReport::new(now_ms);
        for asked in [LaneState::Full, LaneState::Resting, LaneState::Ready] {
            let is_wanted = state.is_none_or(|state| state == asked);
            // Each call counts all states, so the first one is made anyway.
            let counts = asked == LaneState::Full;
            for keys in tables.iter().filter(|_| is_wanted || counts) {
                let left = if is_wanted { limit - report.lanes.len() } else { 0 };
                let list = |mut conn| async move { lanes::list(&mut conn, keys, asked.as_str(), left).await };
                let found = self.store.look(RESPONSE_TIMEOUT, list).await?;
                if counts {
                    report.count(found.counts);
                }
                report.extend(found, now_ms);
            }
        }
        Ok(report)
    }

    /// The keys that have settings of their own, up to about `limit` of them (1 to 1,000), by name.
    pub async fn with_settings(&self, limit: usize) -> Result<Vec<Lane>, Error> {
        check_limit(limit)?;
        let tables = self.tables.asked(&self.store).await?;
        let now_ms =
            self.store.look(RESPONSE_TIMEOUT, |mut conn| async move { server_time_ms(&mut conn).await }).await?;
        let mut report = LaneReport::new(now_ms);
        for keys in tables.iter() {
            let left = limit.saturating_sub(report.lanes.len());
            let list = |mut conn| async move { lanes::list(&mut conn, keys, "own", left).await };
            report.extend(self.store.look(RESPONSE_TIMEOUT, list).await?, now_ms);
        }
        // A scan may return a key twice.
        report.lanes.sort_by(|one, other| one.key.cmp(&other.key));
        report.lanes.dedup_by(|one, other| one.key == other.key);
        Ok(report.lanes)
    }
}

fn check_limit(limit: usize) -> Result<(), Error> {
    let mut faults = Faults::default();
    faults.number("limit", limit as u64, 1, MOST);
    Ok(faults.finish()?)
}

impl fmt::Debug for Lanes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lanes").field("by", &self.by).finish_non_exhaustive()
    }
}
