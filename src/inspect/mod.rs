//! The [`Inspector`]: how people and tools read and change tasks, jobs and workers, by name, without a handler or a type.
//!
//! Reads are bounded: a page costs the same for any number of jobs. Acts check the state of each job in the script that changes it.

pub(crate) mod act_report;
pub(crate) mod acts;
pub(crate) mod audit;
mod audit_lists;
pub(crate) mod audit_report;
pub(crate) mod bulk_action;
pub(crate) mod columns;
#[doc(hidden)]
pub mod describe;
pub mod diagnosis;
pub(crate) mod filter;
pub(crate) mod find;
pub(crate) mod history;
pub(crate) mod holders;
mod instance_view;
pub(crate) mod job;
pub(crate) mod json;
pub(crate) mod lane;
pub(crate) mod lanes;
pub(crate) mod limits;
pub(crate) mod lists;
pub(crate) mod page;
mod parts;
pub(crate) mod person_acts;
pub(crate) mod poison;
pub(crate) mod quiet;
mod read_instance;
mod read_tasks;
pub(crate) mod recover;
pub(crate) mod repair;
#[cfg(feature = "schedules")]
pub(crate) mod schedules;
pub(crate) mod series;
pub(crate) mod server;
pub(crate) mod silent;
pub(crate) mod stalls;
mod sweep_by_hand;
pub(crate) mod tasks;
#[doc(hidden)]
pub mod text;
pub(crate) mod unique;
mod waits;
pub(crate) mod workers;
pub(crate) mod workflow_report;
pub(crate) mod workflows;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use crate::backend::connection::OwnConnection;
use crate::backend::engine::Store;
use crate::backend::keys::TaskKeys;
use crate::backend::streams::{self, server_time_ms};
use crate::backend::timeouts::{RESPONSE_TIMEOUT, response_time};
use crate::error::Error;
use crate::mutex::Mutex;
use crate::options::task::TaskOptions;
use crate::task::shared::TaskShared;
use crate::unix_time::at_ms;

/// About how many bytes the stream entries of one answer may have: some hundred entries with hundreds of jobs each.
const ENTRIES: usize = 2 * 1024 * 1024;

/// Reads, explains and controls tasks, jobs and workers by name. Created by [`App::inspector`](crate::App::inspector). Cheap
/// to clone.
///
/// ```no_run
/// # use heartline::{App, JobFilter, JobState};
/// # async fn run(app: App) -> heartline::Result<()> {
/// let inspector = app.inspector();
/// for task in inspector.tasks().await? {
///     println!("{}: {} wait, {} failed", task.task, task.counts.waiting, task.counts.failed);
/// }
/// let timeouts = JobFilter::new(JobState::Failed).code("timeout");
/// let done = inspector.by("ada").retry("export", timeouts).await?;
/// println!("{} jobs run again", done.done);
/// # Ok(())
/// # }
/// ```
///
/// It needs no handler and no type. Every answer can be serialized as JSON, with times in ms since 1970 and durations in ms
/// (`ran_us` of an event in us). Times come from the clock of the Redis server, except for the time of a dispatch: it comes from the
/// process that dispatched.
///
/// Each act checks the state of each job in the step that changes it, so it is safe while workers run. It reports how many jobs it
/// changed and why it refused others. Most acts write an event with the name set by [`by`](Inspector::by).
///
/// # Errors
/// [`Error::Config`] if a name, an id, a limit or a cursor is not valid, and those of every call, see [`Error`]. A method lists what
/// it adds.
///
/// # Cancel safety
/// A method that only reads is cancel safe. If the future of another is dropped, some of its work may be done. It is safe to repeat.
#[derive(Clone)]
pub struct Inspector {
    pub(super) store: Arc<Store>,
    pub(super) defaults: Arc<TaskOptions>,
    /// The name of the person or tool that acts.
    pub(super) by: Arc<str>,
    /// The tasks whose jobs are dispatched or waited for.
    pub(super) shared: Arc<Mutex<HashMap<String, Arc<TaskShared>>>>,
    /// The last server time, and when it was read.
    clock: Arc<Mutex<Option<(Instant, SystemTime)>>>,
}

/// How long a server time is used before it is read again.
const CLOCK_HOLDS: Duration = Duration::from_secs(60);

impl Inspector {
    pub(crate) fn new(store: Arc<Store>, defaults: TaskOptions) -> Inspector {
        let (by, shared, clock) = ("inspector".into(), Arc::default(), Arc::default());
        Inspector { store, defaults: Arc::new(defaults), by, shared, clock }
    }

    /// The time by the clock of the Redis server. All times that an inspector reports use this clock, so compute ages with it and
    /// not with the clock of this process. It asks the server at most once a minute. If the server does not answer, it extrapolates
    /// from the last answer, or uses the clock of this process.
    pub async fn now(&self) -> SystemTime {
        let known = *self.clock.lock();
        let by_now = |(at, said): (Instant, SystemTime)| said.checked_add(at.elapsed()).unwrap_or(said);
        if let Some(known) = known.filter(|(at, _)| at.elapsed() < CLOCK_HOLDS) {
            return by_now(known);
        }
        let asked = Instant::now();
        match self.server_time().await {
            // Do not keep the time of a slow answer: it is not exact.
            Ok(said) if asked.elapsed() < CLOCK_HOLDS / 60 => {
                *self.clock.lock() = Some((Instant::now(), said));
                said
            }
            _ => known.map_or_else(SystemTime::now, by_now),
        }
    }

    /// Sets the name that the events of its acts contain. At most 200 bytes are kept. Defaults to `inspector`.
    #[must_use]
    pub fn by(mut self, name: impl AsRef<str>) -> Inspector {
        let name: String = name.as_ref().chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        let name = crate::escape::cut(name.trim(), 200).to_owned();
        self.by = if name.is_empty() { "inspector".into() } else { name.into() };
        self
    }

    /// The address of the server, without secrets: `redis://host:port/db`.
    #[must_use]
    pub fn server_url(&self) -> &str {
        self.store.place()
    }

    /// Whether the server is a cluster.
    #[must_use]
    pub fn is_cluster(&self) -> bool {
        self.store.is_cluster()
    }

    /// The prefix of every key.
    #[must_use]
    pub fn prefix(&self) -> &str {
        self.store.prefix()
    }

    /// Makes a call with a small answer. Repeats it once if the connection was broken.
    pub(super) async fn ask<T>(
        &self,
        call: impl AsyncFnOnce(&mut OwnConnection) -> Result<T, Error> + Clone,
    ) -> Result<T, Error> {
        self.store
            .ask(RESPONSE_TIMEOUT, |mut conn| {
                let call = call.clone();
                async move { call(&mut conn).await }
            })
            .await
    }

    /// [`Inspector::ask`] for one of many reads. In a cluster, it does not wait again for a node that did not answer before.
    pub(super) async fn look<T>(
        &self,
        call: impl AsyncFnOnce(&mut OwnConnection) -> Result<T, Error> + Clone,
    ) -> Result<T, Error> {
        self.store
            .look(RESPONSE_TIMEOUT, |mut conn| {
                let call = call.clone();
                async move { call(&mut conn).await }
            })
            .await
    }

    /// [`Inspector::ask`] for a call that must not be repeated.
    pub(super) async fn ask_once<T>(
        &self,
        call: impl AsyncFnOnce(&mut OwnConnection) -> Result<T, Error> + Clone,
    ) -> Result<T, Error> {
        self.store
            .ask_once(RESPONSE_TIMEOUT, |mut conn| {
                let call = call.clone();
                async move { call(&mut conn).await }
            })
            .await
    }

    /// [`Inspector::ask`] for hundreds of stream entries of this table. In a cluster, it first makes a small read, so that it
    /// does not wait long for a node that does not answer.
    pub(super) async fn ask_for_entries<T>(
        &self,
        keys: &TaskKeys,
        call: impl AsyncFnOnce(&mut OwnConnection) -> Result<T, Error> + Clone,
    ) -> Result<T, Error> {
        if self.store.is_cluster() {
            self.look(async |conn| streams::answers(conn, keys).await).await?;
        }
        self.store
            .ask(response_time(ENTRIES), |mut conn| {
                let call = call.clone();
                async move { call(&mut conn).await }
            })
            .await
    }

    /// Reads the time from the server. See [`now`](Inspector::now).
    pub async fn server_time(&self) -> Result<SystemTime, Error> {
        self.now_ms().await.map(at_ms)
    }

    /// Whether an error of one of many reads means that all of them fail. In a cluster, only one node may be unreachable.
    pub(super) fn hides_all(&self, e: &Error) -> bool {
        e.is_outage() && !self.store.is_cluster()
    }

    /// The server's time, ms.
    pub(super) async fn now_ms(&self) -> Result<u64, Error> {
        self.look(async |conn| server_time_ms(conn).await).await
    }
}

impl fmt::Debug for Inspector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inspector").field("by", &self.by).finish_non_exhaustive()
    }
}
