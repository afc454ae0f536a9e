//! The time series of a task: how many jobs ended and failed, and how long runs waited and took.

use std::time::{Duration, SystemTime};

use serde::Serialize;

use super::Inspector;
use crate::backend::keys::TaskKeys;
use crate::backend::series::{self, Durations, HOURS, MINUTES, RowKind, SeriesRow};
use crate::error::Error;
use crate::join::try_join_all;
use crate::log_buckets::{BucketCounts, quantile};
use crate::unix_time::{as_ms, at_ms, ms_of, ms_since_1970};

/// How far back a series reaches, and in what steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum SeriesSpan {
    /// The last hour, by minute.
    Hour,
    /// The last 24 hours, in steps of 5 minutes.
    Day,
    /// The last 30 days, by hour.
    Month,
}

/// What happened to the jobs of a task over time. The keepers of its workers record it every 30 s, so there is none of the time
/// before its first worker, and gaps where no worker ran.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct TaskSeries {
    /// The task.
    pub task: String,
    /// The length of a step.
    #[serde(rename = "step_ms", serialize_with = "as_ms")]
    pub step: Duration,
    /// One for each step, the oldest first. The last step is not over.
    pub points: Vec<SeriesPoint>,
    /// How long the runs that ended in all steps together took. `None` if none ended, or in a [`sparkline`](Inspector::sparkline).
    pub ran: Option<DurationQuantiles>,
}

/// One step of a series.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct SeriesPoint {
    /// When it ends, by the clock of the server.
    #[serde(rename = "at_ms", serialize_with = "ms_since_1970")]
    pub at: SystemTime,
    /// How many jobs were dispatched and ended. `None` if that was not recorded at both ends of the step.
    pub counts: Option<SeriesCounts>,
    /// How long the jobs that began waited, without those that failed, stalled or were postponed before. `None` if none began.
    pub waited: Option<DurationQuantiles>,
    /// How long the runs that ended took. `None` if none ended.
    pub ran: Option<DurationQuantiles>,
}

/// The jobs of one step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct SeriesCounts {
    /// The time between the two records, about as long as the step.
    #[serde(rename = "over_ms", serialize_with = "as_ms")]
    pub over: Duration,
    /// Jobs that were dispatched.
    pub dispatched: u64,
    /// Jobs that ended: completed, failed or were cancelled.
    pub ended: u64,
    /// Jobs that failed.
    pub failed: u64,
}

/// Quantiles of durations. Each is at most a fifth too long or too short.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct DurationQuantiles {
    /// How many durations there are.
    pub count: u64,
    /// The median.
    #[serde(rename = "p50_ms", serialize_with = "as_ms")]
    pub p50: Duration,
    /// 95 % of the durations are at most this long.
    #[serde(rename = "p95_ms", serialize_with = "as_ms")]
    pub p95: Duration,
}

impl Inspector {
    /// The time series of a task. It reads up to 1,440 rows of each partition. An unknown task has a series of gaps.
    ///
    /// # Errors
    /// [`Error::Config`] if the name is not that of a task, and those of every call, see [`Error`].
    pub async fn series(&self, task: &str, span: SeriesSpan) -> Result<TaskSeries, Error> {
        let steps = match span {
            SeriesSpan::Hour => Steps { kind: MINUTES, rows: 1, stride: 1, count: 60 },
            SeriesSpan::Day => Steps { kind: MINUTES, rows: 5, stride: 1, count: 288 },
            SeriesSpan::Month => Steps { kind: HOURS, rows: 1, stride: 1, count: 720 },
        };
        self.series_of(task, steps, true).await
    }

    /// The counts of the last 24 hours of a task in steps of 15 minutes, without durations. It reads 290 short rows of each
    /// partition.
    ///
    /// # Errors
    /// As [`series`](Inspector::series).
    pub async fn sparkline(&self, task: &str) -> Result<TaskSeries, Error> {
        self.series_of(task, Steps { kind: MINUTES, rows: 15, stride: 5, count: 96 }, false).await
    }

    async fn series_of(&self, task: &str, steps: Steps, has_durations: bool) -> Result<TaskSeries, Error> {
        let now_ms = ms_of(self.now().await);
        let numbers = steps.numbers(now_ms);
        let tables = self.tables_if_known(task).await?;
        let read = async |keys: &TaskKeys| {
            self.look(async |conn| series::read(conn, keys, steps.kind, &numbers, has_durations).await).await
        };
        let parts = try_join_all(tables.iter().map(|keys| read(keys))).await?;
        let points = points(steps, now_ms, &parts);
        Ok(TaskSeries { task: task.to_owned(), step: steps.step(), points, ran: ran(steps, now_ms, &parts) })
    }
}

/// The steps of a series: each has some rows, and every `stride`th row is read.
#[derive(Clone, Copy, Debug)]
struct Steps {
    kind: RowKind,
    rows: u64,
    stride: u64,
    count: u64,
}

impl Steps {
    fn step_ms(self) -> u64 {
        self.kind.ms * self.rows
    }

    fn step(self) -> Duration {
        Duration::from_millis(self.step_ms())
    }

    /// The number of the current step since 1970.
    fn last(self, now_ms: u64) -> u64 {
        now_ms / self.step_ms()
    }

    /// The rows to read: those of all steps and of the one before.
    fn numbers(self, now_ms: u64) -> Vec<u64> {
        let now = now_ms / self.kind.ms;
        let first =
            (self.last(now_ms).saturating_sub(self.count) * self.rows).max(now.saturating_sub(self.kind.rows - 1));
        let mut numbers: Vec<u64> = (first..=now).filter(|number| number % self.stride == 0).collect();
        // The newest counts are those of the current row.
        if numbers.last() != Some(&now) {
            numbers.push(now);
        }
        numbers
    }
}

/// The points from the rows of each partition.
fn points(steps: Steps, now_ms: u64, parts: &[Vec<SeriesRow>]) -> Vec<SeriesPoint> {
    let last = steps.last(now_ms);
    let point = |step: u64| {
        let mut durations = Durations::default();
        parts.iter().flat_map(|rows| of_step(rows, steps, step)).for_each(|row| durations.merge(&row.durations));
        let counts: Option<Vec<SeriesCounts>> = parts.iter().map(|rows| counts(rows, steps, step)).collect();
        SeriesPoint {
            at: at_ms((step + 1) * steps.step_ms()),
            counts: counts.and_then(|counts| counts.into_iter().reduce(sum)),
            waited: quantiles(&durations.waited),
            ran: quantiles(&durations.ran),
        }
    };
    (last.saturating_sub(steps.count - 1)..=last).map(point).collect()
}

/// How long the runs of all steps together took.
fn ran(steps: Steps, now_ms: u64, parts: &[Vec<SeriesRow>]) -> Option<DurationQuantiles> {
    let mut durations = Durations::default();
    let last = steps.last(now_ms);
    for step in last.saturating_sub(steps.count - 1)..=last {
        parts.iter().flat_map(|rows| of_step(rows, steps, step)).for_each(|row| durations.merge(&row.durations));
    }
    quantiles(&durations.ran)
}

fn of_step(rows: &[SeriesRow], steps: Steps, step: u64) -> &[SeriesRow] {
    let is_before = |end: u64| move |row: &SeriesRow| row.at_ms < end;
    let from = rows.partition_point(is_before(step * steps.step_ms()));
    &rows[from..rows.partition_point(is_before((step + 1) * steps.step_ms()))]
}

/// What happened between the last record of the step before and the last one of this step. `None` if one of them is missing, or if
/// the server lost the counters between them.
fn counts(rows: &[SeriesRow], steps: Steps, step: u64) -> Option<SeriesCounts> {
    let before = of_step(rows, steps, step.checked_sub(1)?).last()?;
    let row = of_step(rows, steps, step).last()?;
    Some(SeriesCounts {
        over: Duration::from_millis(row.at_ms - before.at_ms),
        dispatched: row.dispatched.checked_sub(before.dispatched)?,
        ended: row.ended.checked_sub(before.ended)?,
        failed: row.failed.checked_sub(before.failed)?,
    })
}

fn sum(one: SeriesCounts, other: SeriesCounts) -> SeriesCounts {
    SeriesCounts {
        over: one.over.max(other.over),
        dispatched: one.dispatched + other.dispatched,
        ended: one.ended + other.ended,
        failed: one.failed + other.failed,
    }
}

fn quantiles(counts: &BucketCounts) -> Option<DurationQuantiles> {
    let (p50, p95) = (quantile(counts, 0.5)?, quantile(counts, 0.95)?);
    Some(DurationQuantiles { count: counts.iter().sum(), p50, p95 })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: u64 = 60_000;

    fn row(minute: u64, ended: u64) -> SeriesRow {
        SeriesRow {
            at_ms: minute * MINUTE + 40_000,
            dispatched: ended,
            ended,
            failed: 1,
            durations: Durations::default(),
        }
    }

    #[test]
    fn counts_are_those_between_records_and_gaps_are_none() {
        let steps = Steps { kind: MINUTES, rows: 1, stride: 1, count: 5 };
        let now_ms = 104 * MINUTE + 50_000;
        // Nothing was recorded in minute 102, and the server lost the counters in minute 104.
        let rows = vec![row(99, 10), row(100, 14), row(101, 24), row(103, 30), row(104, 3)];
        let ended = |parts: &[Vec<SeriesRow>]| -> Vec<Option<u64>> {
            points(steps, now_ms, parts).iter().map(|point| point.counts.map(|counts| counts.ended)).collect()
        };
        assert_eq!(ended(std::slice::from_ref(&rows)), [Some(4), Some(10), None, None, None]);
        // A gap of one partition is a gap of the task.
        let other = (99..=104).map(|minute| row(minute, minute)).collect();
        assert_eq!(ended(&[rows, other]), [Some(5), Some(11), None, None, None]);
    }

    #[test]
    fn a_step_of_many_rows_counts_from_the_last_record_before() {
        let steps = Steps { kind: MINUTES, rows: 15, stride: 5, count: 2 };
        let now_ms = 47 * MINUTE;
        assert_eq!(steps.numbers(now_ms), [15, 20, 25, 30, 35, 40, 45, 47]);
        let rows = vec![row(20, 1), row(25, 5), row(30, 6), row(40, 9), row(46, 20)];
        let points = points(steps, now_ms, &[rows]);
        assert_eq!(points.iter().map(|point| point.counts.unwrap().ended).collect::<Vec<_>>(), [4, 11]);
        assert_eq!(points[0].at, at_ms(45 * MINUTE));
    }

    #[test]
    fn no_row_is_read_twice() {
        let steps = Steps { kind: MINUTES, rows: 5, stride: 1, count: 288 };
        let numbers = steps.numbers(100_003 * MINUTE);
        assert_eq!((numbers.len(), numbers[1439]), (1440, 100_003));
    }
}
