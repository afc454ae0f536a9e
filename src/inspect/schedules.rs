//! Schedules of a task: what they are, what became due, and acts on them by name.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde::Serialize;

use super::Inspector;
use crate::backend::keys::TaskKeys;
use crate::backend::schedule_calls::{self, info_of};
use crate::backend::schedules::{self, ScheduleTotals};
use crate::backend::tables::Tables;
use crate::error::Error;
use crate::escape::cut;
use crate::job::id::JobId;
use crate::join::try_join_all;
use crate::limits::MESSAGE_LIMIT;
use crate::schedule::info::ScheduleInfo;
use crate::unix_time::{as_ms, at_ms, ms_of, ms_since_1970, ms_since_1970_where_known};

/// The most schedules of a list, and how many are read at a time.
const MOST_ROWS: usize = 1_000;
const AT_A_TIME: usize = 100;

/// The schedules of a task. See [`Inspector::schedules`].
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ScheduleList {
    /// The schedules, sorted by name.
    pub schedules: Vec<ScheduleInfo>,
    /// Whether the task has more than these.
    pub more: bool,
}

/// The schedules of a task in numbers. See [`Inspector::schedule_totals`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ScheduleCounts {
    /// The task.
    pub task: String,
    /// When this was read.
    #[serde(rename = "as_of_ms", serialize_with = "ms_since_1970")]
    pub as_of: SystemTime,
    /// How many schedules the task has.
    pub schedules: u64,
    /// Ticks that fired since the task was created, also those of schedules that were removed.
    pub fired: u64,
    /// Ticks that created no job, because the last job of their schedule was not done.
    pub overlapped: u64,
    /// Ticks that no worker fired in time. A lower bound after a very long outage.
    pub missed: u64,
    /// Ticks during a pause of their schedule.
    pub paused: u64,
    /// When the next tick fires, including jitter. `None` if no tick follows.
    #[serde(rename = "next_at_ms", serialize_with = "ms_since_1970_where_known")]
    pub next_at: Option<SystemTime>,
    /// How long that tick is overdue. Zero if it is not.
    #[serde(rename = "late_ms", serialize_with = "as_ms")]
    pub late: Duration,
    /// Workers that fire these schedules, heard from within 15 s. Of several partitions with schedules, the fewest.
    pub keepers: u64,
}

impl ScheduleCounts {
    /// Whether the task has, or had, a schedule.
    pub(super) fn is_used(&self) -> bool {
        [self.schedules, self.fired, self.overlapped, self.missed, self.paused].iter().any(|count| *count > 0)
    }
}

impl Inspector {
    /// The schedules of a task, at most 1,000, sorted by name. A schedule that cannot be read has a
    /// [`fault`](ScheduleInfo::fault).
    pub async fn schedules(&self, task: &str) -> Result<ScheduleList, Error> {
        self.schedules_up_to(task, MOST_ROWS).await
    }

    /// [`Inspector::schedules`] with this many schedules at most.
    pub(super) async fn schedules_up_to(&self, task: &str, most: usize) -> Result<ScheduleList, Error> {
        let tables = self.schedule_tables(task)?;
        let (mut schedules, mut next): (Vec<ScheduleInfo>, _) = (Vec::new(), Some((0, 0)));
        while let Some(cursor) = next.filter(|_| schedules.len() < most) {
            let (now_ms, rows, after) = schedule_calls::page(&self.store, &tables, cursor, AT_A_TIME).await?;
            schedules.extend(rows.into_iter().map(|row| info_of(now_ms, row)));
            next = after;
        }
        // A scan may return a name twice.
        schedules.sort_by(|one, other| one.name.cmp(&other.name));
        schedules.dedup_by(|one, other| one.name == other.name);
        let more = next.is_some() || schedules.len() > most;
        schedules.truncate(most);
        Ok(ScheduleList { schedules, more })
    }

    /// One schedule of a task. `None` if there is none of this name.
    pub async fn schedule(&self, task: &str, name: &str) -> Result<Option<ScheduleInfo>, Error> {
        let tables = self.schedule_tables(task)?;
        let found = schedule_calls::get(&self.store, &tables, name).await?;
        Ok(found.map(|(now_ms, row)| info_of(now_ms, row)))
    }

    /// The schedules of a task in numbers, in one small call per partition.
    pub async fn schedule_totals(&self, task: &str) -> Result<ScheduleCounts, Error> {
        let tables = self.tables(task).await?;
        let parts = try_join_all(tables.iter().map(|keys| self.totals_of(keys))).await?;
        Ok(counts_of(task, &parts))
    }

    async fn totals_of(&self, keys: &TaskKeys) -> Result<ScheduleTotals, Error> {
        self.look(async |conn| schedules::totals(conn, keys).await).await
    }

    /// Dispatches a job of a schedule now, next to its ticks. It is counted apart from them, and becomes the last job of the schedule, for
    /// which later ticks wait. `None` if there is no schedule of this name.
    pub async fn run_schedule(&self, task: &str, name: &str) -> Result<Option<JobId>, Error> {
        let tables = self.schedule_tables(task)?;
        schedule_calls::run_now(&self.store, &tables, name, &self.by).await
    }

    /// Pauses a schedule: its ticks are counted as paused, and create no job. Returns `Some(false)` if it was paused already; that pause
    /// remains. `None` if there is no schedule of this name. The reason is cut to 4 KiB.
    pub async fn pause_schedule(&self, task: &str, name: &str, reason: &str) -> Result<Option<bool>, Error> {
        let (tables, reason) = (self.schedule_tables(task)?, cut(reason, MESSAGE_LIMIT));
        schedule_calls::pause(&self.store, &tables, name, &self.by, reason).await
    }

    /// Ends the pause of a schedule. Returns `Some(false)` if it was not paused, and `None` if there is no schedule of this name.
    pub async fn resume_schedule(&self, task: &str, name: &str) -> Result<Option<bool>, Error> {
        let tables = self.schedule_tables(task)?;
        schedule_calls::resume(&self.store, &tables, name).await
    }

    /// Dispatches a job for each nominal time of a schedule in this range, also if its tick fired. The jobs are counted apart from the
    /// ticks. Returns how many, or `None` if there is no schedule of this name.
    ///
    /// # Errors
    /// [`Error::Config`] if the range is empty, ends after now by the clock of the server, or has more than 10,000 ticks.
    /// [`Error::Unsupported`] if the schedule changes meanwhile or cannot be read.
    pub async fn backfill_schedule(
        &self,
        task: &str,
        name: &str,
        ticks: Range<SystemTime>,
    ) -> Result<Option<u64>, Error> {
        let (tables, from, to) = (self.schedule_tables(task)?, ms_of(ticks.start), ms_of(ticks.end));
        schedule_calls::backfill(&self.store, &tables, name, from, to, false).await
    }

    /// How many jobs [`backfill_schedule`](Inspector::backfill_schedule) would dispatch. It changes nothing.
    ///
    /// # Errors
    /// As for [`backfill_schedule`](Inspector::backfill_schedule).
    pub async fn preview_backfill(
        &self,
        task: &str,
        name: &str,
        ticks: Range<SystemTime>,
    ) -> Result<Option<u64>, Error> {
        let (tables, from, to) = (self.schedule_tables(task)?, ms_of(ticks.start), ms_of(ticks.end));
        schedule_calls::backfill(&self.store, &tables, name, from, to, true).await
    }

    /// Removes a schedule. Its jobs stay. Returns whether there was one. Workers that declare it in code write it again. Its counts and
    /// its pause are kept for 30 days, in case that it comes back.
    pub async fn remove_schedule(&self, task: &str, name: &str) -> Result<bool, Error> {
        let tables = self.schedule_tables(task)?;
        schedule_calls::remove(&self.store, &tables, name).await
    }

    /// The tables of a task. Each call first reads their number, if the known one is old.
    fn schedule_tables(&self, task: &str) -> Result<Arc<Tables>, Error> {
        self.first(task)?;
        Ok(self.store.tables(task))
    }
}

/// The totals of a task from those of its partitions, at least one.
fn counts_of(task: &str, parts: &[ScheduleTotals]) -> ScheduleCounts {
    let sum = |of: fn(&ScheduleTotals) -> u64| parts.iter().map(of).fold(0, u64::saturating_add);
    let late_ms = |part: &ScheduleTotals| Some(part.now_ms.saturating_sub(part.first_at_ms?));
    ScheduleCounts {
        task: task.to_owned(),
        as_of: at_ms(parts.iter().map(|part| part.now_ms).max().unwrap_or_default()),
        schedules: sum(|part| part.schedules),
        fired: sum(|part| part.fired),
        overlapped: sum(|part| part.overlapped),
        missed: sum(|part| part.missed),
        paused: sum(|part| part.paused),
        next_at: parts.iter().filter_map(|part| part.first_at_ms).min().map(at_ms),
        late: Duration::from_millis(parts.iter().filter_map(late_ms).max().unwrap_or_default()),
        keepers: parts.iter().filter(|part| part.schedules > 0).map(|part| part.keepers).min().unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(schedules: u64, first_at_ms: Option<u64>, keepers: u64) -> ScheduleTotals {
        let (fired, overlapped, missed, paused, now_ms) = (5, 1, 2, 0, 10_000);
        ScheduleTotals { schedules, fired, overlapped, missed, paused, first_at_ms, now_ms, keepers }
    }

    #[test]
    fn the_totals_of_partitions_are_added_and_the_latest_tick_counts() {
        let totals = counts_of("export", &[part(2, Some(12_000), 3), part(1, Some(7_000), 1), part(0, None, 0)]);
        assert_eq!((totals.schedules, totals.fired, totals.overlapped, totals.missed), (3, 15, 3, 6));
        assert_eq!((totals.next_at, totals.late), (Some(at_ms(7_000)), Duration::from_secs(3)));
        assert_eq!((totals.keepers, totals.is_used()), (1, true));
        let none = ScheduleTotals { fired: 0, overlapped: 0, missed: 0, ..part(0, None, 0) };
        let none = counts_of("export", &[none]);
        assert_eq!((none.next_at, none.late, none.is_used()), (None, Duration::ZERO, false));
    }
}
