//! The schedules of a task: those that the code declares, and those that a process writes at run time.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;
use std::time::SystemTime;

use serde::Serialize;
use tokio::time::Instant;

use super::dispatch::checked_payload;
use super::handle::JobHandle;
use super::shared::TaskShared;
use super::task_ref::TaskRef;
use crate::backend::repeated::{CallDeadline, repeated};
use crate::backend::schedule_calls::{self, info_of};
use crate::backend::schedules::{self, Put};
use crate::backend::timeouts::RESPONSE_TIMEOUT;
use crate::config_error::{ConfigError, ConfigErrors, Faults};
use crate::error::Error;
use crate::escape::cut;
use crate::limits::MESSAGE_LIMIT;
use crate::runtime::schedules::DeclaredSchedule;
use crate::schedule::ids::check_name;
use crate::schedule::info::ScheduleInfo;
use crate::schedule::policy::ScheduleSource;
use crate::schedule::rule::Schedule;
use crate::schedule::stored::digest;
use crate::unix_time::ms_of;

/// Who wrote or paused a schedule, if a producer did.
const PRODUCER: &str = "producer";

/// How many schedules are read at a time.
const PAGE: usize = 100;

impl<I, O> TaskRef<I, O> {
    /// The schedules of the task, to write, read and control them at run time. See [`Schedules`].
    #[must_use]
    pub fn schedules(&self) -> Schedules<I, O> {
        Schedules { shared: Arc::clone(&self.shared), types: PhantomData }
    }

    /// Dispatches the job of a tick of a schedule that this App declares.
    #[cfg(feature = "testing")]
    pub(crate) async fn fire(&self, name: &str, at: SystemTime) -> Result<JobHandle<O>, Error> {
        use crate::backend::dispatch::NewJob;
        use crate::job::tick::Tick;
        use crate::options::overrides::Overrides;
        use crate::schedule::ids::tick_id;

        let shared = &self.shared;
        let declared = shared.schedules.lock().named(name).cloned();
        let fix = "declare it with TaskRef::schedule; one that was put cannot be fired by a test";
        let declared = declared.ok_or_else(|| unknown(&shared.name, name, fix))?;
        let (keys, due_ms) = (shared.tables.of(name), ms_of(at));
        let tick = Some(Tick::new(name.to_owned(), due_ms, None));
        let id = tick_id(name, due_ms, (keys.part(), keys.parts()));
        let job = NewJob {
            overrides: Overrides { tick, ..Overrides::default() },
            ..super::dispatch::new_job(shared, Some(id), declared.input.to_vec())
        };
        let (id, placed) = shared.dispatcher.dispatch(job, shared.options.durability).await?;
        Ok(JobHandle::placed_as(Arc::clone(shared), id, placed))
    }
}

impl<I: Serialize, O> TaskRef<I, O> {
    /// Declares a schedule in code: the workers of this App dispatch a job with this input at each of its ticks.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # use heartline::{App, Context, JobError, Schedule, TaskOptions};
    /// # fn declare(app: App) -> heartline::Result<()> {
    /// app.task("report", TaskOptions::new(), |_: Context, kind: String| async move { Ok::<_, JobError>(kind.len()) })?
    ///     .schedule("nightly", Schedule::cron("30 2 * * *")?.tz("Europe/Berlin")?, "daily".to_owned())?
    ///     .schedule("poll", Schedule::every(Duration::from_secs(30)), "poll".to_owned())?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// A starting worker writes it to Redis. If several versions of the code run, the worker that started last decides. A schedule that no
    /// live worker names for 10 minutes is removed. Pauses, and rules that were [put](Schedules::put) at run time, take precedence.
    ///
    /// # Errors
    /// - [`Error::Config`] if the name, the rule or one of its options is not valid; it lists all faults. Also if the task has a
    ///   schedule of this name already, has no handler in this App, or a worker was made since ([`App::worker`](crate::App::worker)).
    /// - [`Error::Codec`] or [`Error::TooLarge`] if the input cannot be written as JSON or is too large.
    pub fn schedule(self, name: &str, schedule: Schedule, input: I) -> Result<TaskRef<I, O>, Error> {
        check(name, &schedule)?;
        let (digest, input) = stored_input(&self.shared, &schedule, &input)?;
        let declared = DeclaredSchedule { name: name.to_owned(), schedule, digest, input: input.into() };
        self.shared.schedules.lock().add(&self.shared.name, declared)?;
        Ok(self)
    }
}

/// The schedules of a task, at run time. Made by [`TaskRef::schedules`]. Cheap to clone.
///
/// ```no_run
/// # use heartline::{Schedule, TaskRef};
/// # async fn run(reports: TaskRef<String, ()>) -> heartline::Result<()> {
/// let mondays = Schedule::cron("0 9 * * MON")?.tz("America/New_York")?;
/// let placed = reports.schedules().put("acme", mondays, "acme".to_owned()).await?;
/// if !placed.has_worker {
///     println!("no worker of the task runs, so nothing will happen");
/// }
/// # Ok(())
/// # }
/// ```
///
/// Each call makes one change in one step, whatever workers do meanwhile. The workers of the task fire the ticks; the calling process
/// needs no handler.
///
/// # Errors
/// Those of every call, see [`Error`]. A method lists what it adds.
///
/// # Cancel safety
/// The reads are cancel safe. If another future is dropped, its change may have been made or not. It is safe to repeat, except
/// [`run_now`](Schedules::run_now) and [`backfill`](Schedules::backfill).
pub struct Schedules<I, O> {
    shared: Arc<TaskShared>,
    types: PhantomData<fn(I) -> O>,
}

impl<I: Serialize, O> Schedules<I, O> {
    /// Writes a schedule, or replaces its rule and its input. Ticks that are due under the old rule fire first. It then takes precedence
    /// over a schedule of this name in code, and stays until it is [removed](Schedules::remove). While Redis is unreachable, the call is
    /// repeated for as long as a dispatch.
    ///
    /// # Errors
    /// - [`Error::Config`] if the name, the rule or one of its options is not valid; it lists all faults.
    /// - [`Error::Codec`] or [`Error::TooLarge`] if the input cannot be written as JSON or is too large.
    /// - [`Error::Refused`] if Redis refuses writes.
    pub async fn put(&self, name: &str, schedule: Schedule, input: I) -> Result<Placement, Error> {
        check(name, &schedule)?;
        let (digest, payload) = stored_input(&self.shared, &schedule, &input)?;
        drop(input);
        self.write(name, (&schedule, &digest), &payload).await
    }
}

impl<I, O> Schedules<I, O> {
    async fn write(&self, name: &str, schedule: (&Schedule, &str), input: &[u8]) -> Result<Placement, Error> {
        let TaskShared { store, tables, dispatcher, .. } = &*self.shared;
        dispatcher.agree().await?;
        let deadline = CallDeadline::new(store.dispatch_timeout, Instant::now(), input.len());
        let source = ScheduleSource::RunTime;
        let put = || schedule_calls::put(store, tables, name, source, schedule, input, PRODUCER);
        let put = repeated(deadline, put).await?;
        // Status and lists then show the schedule, although the task was neither declared nor dispatched to.
        store.register_once(&self.shared.name).await;
        match put {
            Put::Written { is_new, has_keeper } => Ok(Placement { is_new, has_worker: has_keeper }),
            Put::Same { has_keeper } => Ok(Placement { is_new: false, has_worker: has_keeper }),
            // A process with newer zone data has written the same rule.
            _ => {
                let keys = &*tables.of(name);
                let call = |mut conn| async move { schedules::totals(&mut conn, keys).await };
                let keepers = store.ask(RESPONSE_TIMEOUT, call).await?.keepers;
                Ok(Placement { is_new: false, has_worker: keepers > 0 })
            }
        }
    }

    /// Pauses a schedule: its ticks are counted as paused and make no jobs. Returns whether it ran before; an earlier pause is kept. The
    /// reason is cut to 4 KiB.
    ///
    /// # Errors
    /// [`Error::Config`] if the task has no such schedule.
    pub async fn pause(&self, name: &str, why: &str) -> Result<bool, Error> {
        let TaskShared { store, tables, .. } = &*self.shared;
        let paused = schedule_calls::pause(store, tables, name, PRODUCER, cut(why, MESSAGE_LIMIT)).await?;
        paused.ok_or_else(|| self.unknown(name))
    }

    /// Ends the pause of a schedule. Returns whether it was paused.
    ///
    /// # Errors
    /// [`Error::Config`] if the task has no such schedule.
    pub async fn resume(&self, name: &str) -> Result<bool, Error> {
        let TaskShared { store, tables, .. } = &*self.shared;
        schedule_calls::resume(store, tables, name).await?.ok_or_else(|| self.unknown(name))
    }

    /// Dispatches a job of the schedule now, apart from its ticks, even if the schedule is paused. For the next tick it is the last job
    /// of the schedule, see [`Overlap`](crate::Overlap).
    ///
    /// # Errors
    /// [`Error::Config`] if the task has no such schedule, [`Error::Unsupported`] if a newer version wrote it.
    pub async fn run_now(&self, name: &str) -> Result<JobHandle<O>, Error> {
        let TaskShared { store, tables, .. } = &*self.shared;
        let id = schedule_calls::run_now(store, tables, name, PRODUCER).await?.ok_or_else(|| self.unknown(name))?;
        Ok(JobHandle::new(Arc::clone(&self.shared), id, Some(false)))
    }

    /// Dispatches a job for each time of the rule in this range, whether a tick fired then or not, apart from the ticks. Returns how
    /// many. A repeated call dispatches them again.
    ///
    /// # Errors
    /// - [`Error::Config`] if the task has no such schedule, or the range is empty, ends after the time of the Redis server, or has over
    ///   10,000 ticks.
    /// - [`Error::Unsupported`] if a newer version wrote the schedule, or it changed meanwhile. Some jobs may be written then.
    pub async fn backfill(&self, name: &str, times: Range<SystemTime>) -> Result<u64, Error> {
        let TaskShared { store, tables, .. } = &*self.shared;
        let (from_ms, to_ms) = (ms_of(times.start), ms_of(times.end));
        let jobs = schedule_calls::backfill(store, tables, name, from_ms, to_ms, false).await?;
        jobs.ok_or_else(|| self.unknown(name))
    }

    /// Removes a schedule. Returns whether there was one. Its jobs stay, and its counts and its pause are kept for 30 days. A worker that
    /// declares it in code writes it again within seconds.
    pub async fn remove(&self, name: &str) -> Result<bool, Error> {
        schedule_calls::remove(&self.shared.store, &self.shared.tables, name).await
    }

    /// One schedule as it is now; `None` if there is none of this name.
    pub async fn get(&self, name: &str) -> Result<Option<ScheduleInfo>, Error> {
        let found = schedule_calls::get(&self.shared.store, &self.shared.tables, name).await?;
        Ok(found.map(|(now_ms, row)| info_of(now_ms, row)))
    }

    /// All schedules of the task, by name. Reads 100 at a time.
    pub async fn list(&self) -> Result<Vec<ScheduleInfo>, Error> {
        let TaskShared { store, tables, .. } = &*self.shared;
        let (mut all, mut next): (Vec<ScheduleInfo>, _) = (Vec::new(), Some((0, 0)));
        while let Some(cursor) = next {
            let (now_ms, rows, after) = schedule_calls::page(store, tables, cursor, PAGE).await?;
            all.extend(rows.into_iter().map(|row| info_of(now_ms, row)));
            next = after;
        }
        // A scan may return a schedule twice.
        all.sort_by(|one, other| one.name.cmp(&other.name));
        all.dedup_by(|one, other| one.name == other.name);
        Ok(all)
    }

    fn unknown(&self, name: &str) -> Error {
        let fix = "put it first, or correct the name; `heartline schedules list` shows all";
        unknown(&self.shared.name, name, fix)
    }
}

impl<I, O> Clone for Schedules<I, O> {
    fn clone(&self) -> Self {
        Schedules { shared: Arc::clone(&self.shared), types: PhantomData }
    }
}

impl<I, O> fmt::Debug for Schedules<I, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Schedules").field("task", &self.shared.name).finish_non_exhaustive()
    }
}

/// What [`Schedules::put`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Placement {
    /// Whether the task had no schedule of this name.
    pub is_new: bool,
    /// Whether a worker of the task was heard from in the last 15 s. Without one, no tick fires.
    pub has_worker: bool,
}

/// Checks everything that can be checked without Redis.
fn check(name: &str, schedule: &Schedule) -> Result<(), Error> {
    let mut faults = Faults::default();
    if let Err(fault) = check_name(name) {
        faults.push(fault);
    }
    faults.gather(schedule.check());
    Ok(faults.finish()?)
}

/// The digest of the schedule with this input, and the input as it is stored.
fn stored_input(task: &TaskShared, schedule: &Schedule, input: &impl Serialize) -> Result<(String, Vec<u8>), Error> {
    let json = serde_json::to_vec(input);
    let encoder = task.store.codecs.encoder();
    let digest = json.as_ref().map(|json| digest(schedule, json, encoder)).unwrap_or_default();
    Ok((digest, checked_payload(task, json)?))
}

fn unknown(task: &str, name: &str, fix: &str) -> Error {
    let rule = format!("must be a schedule of the task {task}");
    Error::Config(ConfigErrors::from(ConfigError::new("schedule", crate::config_error::shown(name), rule, fix)))
}
