//! What people and tools may see of tasks, jobs and workers, and do to them: by name, without a handler or a type.
//!
//! Reads are bounded: a page costs the same however many jobs there are. Acts check the state of each job in the script that
//! changes it.

pub(crate) mod acts;
pub(crate) mod audit;
pub(crate) mod columns;
#[doc(hidden)]
pub mod describe;
pub mod diagnosis;
pub(crate) mod filter;
pub(crate) mod flows;
pub(crate) mod history;
pub(crate) mod holders;
pub(crate) mod job;
pub(crate) mod json;
pub(crate) mod lists;
pub(crate) mod page;
mod parts;
pub(crate) mod recover;
pub(crate) mod server;
pub(crate) mod silent;
pub(crate) mod stalls;
pub(crate) mod suspects;
pub(crate) mod tasks;
#[doc(hidden)]
pub mod text;
mod waits;
pub(crate) mod workers;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use crate::error::Error;
use crate::options::task::TaskOptions;
use crate::store::connection::OwnConnection;
use crate::store::engine::Store;
use crate::store::keys::TaskKeys;
use crate::store::patience::{RESPONSE_TIMEOUT, response_time};
use crate::store::streams::{self, server_time_ms};
use crate::task::shared::TaskShared;
use crate::times::at_ms;

/// How many bytes the entries of one answer may have, about: some hundred that each tell of hundreds of jobs.
const ENTRIES: usize = 2 * 1024 * 1024;

/// Sees, explains and steers what runs: tasks, jobs and workers by their names. Made by
/// [`App::inspector`](crate::App::inspector). Cheap to clone.
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
/// It needs no handler and no type, and leaves nothing behind in the App. Every answer can be written as JSON, with times in ms
/// since 1970 and durations in ms (`ran_us` of an event in us). Times are
/// those of the Redis server; the time of a dispatch is that of the process that dispatched.
///
/// What it does to jobs is checked job by job in the step that does it, so it is safe beside live workers. Each act tells how
/// many jobs it took and why it refused others, and most leave an event with the name that [`by`](Inspector::by) gives.
#[derive(Clone)]
pub struct Inspector {
    pub(super) store: Arc<Store>,
    pub(super) defaults: Arc<TaskOptions>,
    /// Who acts.
    pub(super) by: Arc<str>,
    /// The tasks whose jobs are dispatched or waited for.
    pub(super) shared: Arc<Mutex<HashMap<String, Arc<TaskShared>>>>,
    /// When the server was asked for the time, and what it said.
    clock: Arc<Mutex<Option<(Instant, SystemTime)>>>,
}

/// How long what is known of the clock of the server holds.
const CLOCK_HOLDS: Duration = Duration::from_secs(60);

impl Inspector {
    /// An inspector of what is on this store.
    pub(crate) fn new(store: Arc<Store>, defaults: TaskOptions) -> Inspector {
        let (by, shared, clock) = ("inspector".into(), Arc::default(), Arc::default());
        Inspector { store, defaults: Arc::new(defaults), by, shared, clock }
    }

    /// The time by the clock of the Redis server, by which all times are that an inspector tells: how long ago something was is the
    /// difference to this, and not to the clock of this process. The server is asked once a minute at the most; where it does not answer, what
    /// it said last holds, or else the clock of this process.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn now(&self) -> SystemTime {
        let known = *self.clock.lock().unwrap_or_else(PoisonError::into_inner);
        let by_now = |(at, said): (Instant, SystemTime)| said.checked_add(at.elapsed()).unwrap_or(said);
        if let Some(known) = known.filter(|(at, _)| at.elapsed() < CLOCK_HOLDS) {
            return by_now(known);
        }
        let asked = Instant::now();
        match self.server_time().await {
            // One that was long on its way tells nothing exact.
            Ok(said) if asked.elapsed() < CLOCK_HOLDS / 60 => {
                *self.clock.lock().unwrap_or_else(PoisonError::into_inner) = Some((Instant::now(), said));
                said
            }
            _ => known.map_or_else(SystemTime::now, by_now),
        }
    }

    /// The same, acting in this name: it stands in the event of each act. At most 200 bytes are kept. Defaults to `inspector`.
    #[must_use]
    pub fn by(mut self, name: impl AsRef<str>) -> Inspector {
        let name: String = name.as_ref().chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        let name = crate::shown::cut(name.trim(), 200).to_owned();
        self.by = if name.is_empty() { "inspector".into() } else { name.into() };
        self
    }

    /// Where the server is, without any secret: `redis://host:port/db`.
    #[must_use]
    pub fn place(&self) -> &str {
        self.store.place()
    }

    /// Whether the server is a cluster.
    #[must_use]
    pub fn is_cluster(&self) -> bool {
        self.store.is_cluster()
    }

    /// What every key begins with.
    #[must_use]
    pub fn prefix(&self) -> &str {
        self.store.prefix()
    }

    /// Makes a call that moves little; once more where the connection turns out to be broken.
    pub(super) async fn ask<T, F>(&self, call: impl Fn(OwnConnection) -> F) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Error>>,
    {
        self.store.ask(RESPONSE_TIMEOUT, call).await
    }

    /// The same for a call that reads, as one of many about many tasks and workers: in a cluster a node that says nothing is not waited for
    /// each time.
    pub(super) async fn look<T, F>(&self, call: impl Fn(OwnConnection) -> F) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Error>>,
    {
        self.store.look(RESPONSE_TIMEOUT, call).await
    }

    /// [`Inspector::ask`] for a call that must not be repeated by itself.
    pub(super) async fn ask_once<T, F>(&self, call: impl Fn(OwnConnection) -> F) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Error>>,
    {
        self.store.ask_once(RESPONSE_TIMEOUT, call).await
    }

    /// The same for a call about this table whose answer may be large: hundreds of entries of a stream. A node that says nothing is not
    /// waited for as long as those may take.
    pub(super) async fn ask_for_entries<T, F>(
        &self,
        keys: &TaskKeys,
        call: impl Fn(OwnConnection) -> F,
    ) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Error>>,
    {
        if self.store.is_cluster() {
            self.look(|mut conn| async move { streams::answers(&mut conn, keys).await }).await?;
        }
        self.store.ask(response_time(ENTRIES), call).await
    }

    /// The time by the clock of the server, which all times of answers go by.
    ///
    /// # Errors
    /// What every call may give, see [`Error`].
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn server_time(&self) -> Result<SystemTime, Error> {
        self.now_ms().await.map(at_ms)
    }

    /// Whether a look that failed for one of many fails for all of them: of a cluster one node may be away.
    pub(super) fn hides_all(&self, e: &Error) -> bool {
        e.is_outage() && !self.store.is_cluster()
    }

    /// The server's time, ms.
    pub(super) async fn now_ms(&self) -> Result<u64, Error> {
        self.look(|mut conn| async move { server_time_ms(&mut conn).await }).await
    }
}

impl fmt::Debug for Inspector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inspector").field("by", &self.by).finish_non_exhaustive()
    }
}
