//! Calls about the schedules of a task, for the simulation: it decides when each is made, by whom, and from what it has read.

use redis::aio::ConnectionLike;

use crate::backend::keys::TaskKeys;
use crate::backend::schedule_firing::{cancel_replaced, firing, tick_json};
use crate::backend::schedule_put::{Wanted, put_over};
use crate::backend::schedules::{self, DueRow, Fired, NewSchedule, Ran};
use crate::error::Result;
use crate::schedule::ids::by_hand_id;
use crate::schedule::policy::ScheduleSource;
use crate::schedule::rule::Schedule;
use crate::schedule::stored::{self, StoredRule};

/// What one look found. The ticks to fire follow from it alone, however late they are fired.
#[doc(hidden)]
#[derive(Clone, Debug)]
pub struct SimulatedLook {
    /// The time of the server.
    pub now_ms: u64,
    /// The schedules that cannot be read.
    pub unreadable: Vec<String>,
    rows: Vec<DueRow>,
}

impl SimulatedLook {
    /// The name of each due schedule, its tick, and whether that is the pending one.
    #[must_use]
    pub fn rows(&self) -> Vec<(String, u64, bool)> {
        self.rows.iter().map(|row| (row.name.clone(), row.due_ms, row.pending)).collect()
    }
}

/// The answers to what was fired, one for each row of a look that has a due tick.
#[doc(hidden)]
#[derive(Clone, Debug)]
pub struct SimulatedFired(Vec<(usize, Fired)>);

impl SimulatedFired {
    /// The number of each row, and its answer as text; those that were fired begin with `Done`.
    #[must_use]
    pub fn answers(&self) -> Vec<(usize, String)> {
        self.0.iter().map(|(row, fired)| (*row, format!("{fired:?}"))).collect()
    }
}

/// A process that writes a schedule.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct SimulatedWriter<'a> {
    /// When its worker started, if the schedule is in code.
    pub stamp: Option<u64>,
    /// The name of the schedule.
    pub name: &'a str,
    /// Its rule.
    pub schedule: &'a Schedule,
    /// The payload of its jobs.
    pub input: &'a [u8],
}

/// The schedules of one task.
#[doc(hidden)]
#[derive(Clone, Debug)]
pub struct SimulatedSchedules(TaskKeys);

impl SimulatedSchedules {
    /// Those of the task with these keys.
    #[must_use]
    pub fn new(prefix: &str, task: &str) -> SimulatedSchedules {
        SimulatedSchedules(TaskKeys::new(prefix, task, false))
    }

    /// Finds what is due.
    pub async fn look(&self, conn: &mut impl ConnectionLike) -> Result<SimulatedLook> {
        let look = schedules::look(conn, &self.0, 50, 0).await?;
        Ok(SimulatedLook { now_ms: look.now_ms, unreadable: look.unreadable, rows: look.due })
    }

    /// Fires what was due when it looked, in one call.
    pub async fn fire(&self, conn: &mut impl ConnectionLike, look: &SimulatedLook) -> Result<SimulatedFired> {
        let found = look.rows.iter().map(|row| firing(&self.0, look.now_ms, row).ok().flatten());
        let (rows, firings): (Vec<_>, Vec<_>) =
            found.enumerate().filter_map(|(at, found)| found.map(|(firing, _)| (at, firing))).unzip();
        let fired = schedules::fire(conn, &self.0, &firings).await?.fired;
        Ok(SimulatedFired(rows.into_iter().zip(fired).collect()))
    }

    /// Cancels the jobs that these ticks replace.
    pub async fn cancel(&self, conn: &mut impl ConnectionLike, fired: &SimulatedFired) -> Result<()> {
        let fired: Vec<Fired> = fired.0.iter().map(|(_, fired)| fired.clone()).collect();
        cancel_replaced(conn, &self.0, &fired).await
    }

    /// Writes a schedule as workers and producers do. Returns the answer as text.
    pub async fn put(&self, conn: &mut impl ConnectionLike, writer: SimulatedWriter<'_>) -> Result<String> {
        let SimulatedWriter { stamp, name, schedule, input } = writer;
        let source = source_of(stamp);
        let digest = &stored::digest(schedule, input, None);
        let wanted = Wanted { name, source, stamp: stamp.unwrap_or(0), by: "ada", schedule, digest, input };
        Ok(format!("{:?}", put_over(conn, &self.0, &wanted).await?))
    }

    /// Writes a schedule in one call, from what the process had read earlier.
    pub async fn put_after(
        &self,
        conn: &mut impl ConnectionLike,
        writer: SimulatedWriter<'_>,
        basis_ms: u64,
    ) -> Result<String> {
        let SimulatedWriter { stamp, name, schedule, input } = writer;
        let (digest, json) = (stored::digest(schedule, input, None), StoredRule::to_json(schedule));
        let new = NewSchedule {
            name,
            source: source_of(stamp),
            stamp: stamp.unwrap_or(0),
            by: "ada",
            digest: &digest,
            zone_data: stored::zone_data(schedule),
            json: &json,
            input,
            basis_ms,
            next: schedule.next_after(basis_ms).map(|due_ms| (due_ms, schedule.at(name, due_ms))),
            replaces_unreadable: false,
        };
        Ok(format!("{:?}", schedules::put(conn, &self.0, &new).await?))
    }

    /// Reports the schedules of a worker. Returns those that were removed, and those that are missing.
    pub async fn report_names(
        &self,
        conn: &mut impl ConnectionLike,
        worker: &str,
        names: &[&str],
        may_prune: bool,
    ) -> Result<(Vec<String>, Vec<String>)> {
        let names: Vec<(&str, &str)> = names.iter().map(|name| (*name, "")).collect();
        let names = schedules::report_names(conn, &self.0, worker, &names, may_prune).await?;
        Ok((names.removed, names.missing))
    }

    /// Pauses or resumes a schedule.
    pub async fn pause(&self, conn: &mut impl ConnectionLike, name: &str, pauses: bool) -> Result<Option<bool>> {
        if pauses {
            return schedules::pause(conn, &self.0, name, "ada", "a test").await;
        }
        schedules::resume(conn, &self.0, name).await
    }

    /// Removes a schedule.
    pub async fn remove(&self, conn: &mut impl ConnectionLike, name: &str) -> Result<bool> {
        schedules::remove(conn, &self.0, name).await
    }

    /// Writes a job of a schedule by hand. Returns its id, if the schedule can be read.
    pub async fn run(&self, conn: &mut impl ConnectionLike, name: &str) -> Result<Option<String>> {
        let (now_ms, mut rows) = schedules::read(conn, &self.0, &[name]).await?;
        let Some(row) = rows.pop().flatten() else { return Ok(None) };
        let id = by_hand_id(name, now_ms, now_ms, (0, 1));
        let jobs = [(id.clone(), now_ms, tick_json(name, now_ms, row.ledger.last_ms)?)];
        let ran = schedules::run(conn, &self.0, name, &row.digest, &jobs, true).await?;
        Ok(matches!(ran, Ran::Done { .. }).then(|| String::from(id)))
    }
}

const fn source_of(stamp: Option<u64>) -> ScheduleSource {
    if stamp.is_some() { ScheduleSource::Code } else { ScheduleSource::RunTime }
}
