//! Runs that have lost their jobs and still use slots: a handler that blocks its thread cannot be dropped.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::held_jobs::Flags;
use super::shared::WorkerShared;
use super::task::TaskRuntime;
use crate::clock::Moment;
use crate::stall::cadence;

/// Runs that have lost their jobs and still use slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LostRuns {
    pub(crate) count: usize,
    /// How long ago the last of them lost its job.
    pub(crate) since: Duration,
}

impl LostRuns {
    /// Those of several tasks or partitions; `None` if there are none.
    pub(crate) fn of<'a>(tasks: impl Iterator<Item = &'a Arc<TaskRuntime>>, now: Moment) -> Option<LostRuns> {
        let mut lost: Option<LostRuns> = None;
        for task in tasks {
            task.held.for_each(|held| {
                let since = held.overstays(now).filter(|_| held.flags().intersects(Flags::LOST));
                if let Some(since) = since {
                    let LostRuns { count, since: last } = lost.unwrap_or(LostRuns { count: 0, since });
                    lost = Some(LostRuns { count: count + 1, since: last.min(since) });
                }
            });
        }
        lost
    }
}

/// A task that cannot begin any job: for two intervals such runs have used all of its slots, or all of its worker's.
pub(crate) struct Jam<'a> {
    pub(crate) task: &'a str,
    pub(crate) held_for: Duration,
    /// The number of waiting jobs, at least one.
    pub(crate) waiting: u64,
}

/// The tasks of a worker that have waiting jobs and cannot begin any.
pub(crate) fn jams<'a>(worker: &WorkerShared, tasks: &'a [Arc<TaskRuntime>], now: Moment) -> Vec<Jam<'a>> {
    let Some(all) = LostRuns::of(tasks.iter(), now) else { return Vec::new() };
    let of_worker = worker.slots.most().is_some_and(|most| all.count >= most).then_some(all);
    let jam = |first: &'a Arc<TaskRuntime>| {
        let parts = || tasks.iter().filter(|part| part.name == first.name);
        let own = LostRuns::of(parts(), now).filter(|lost| lost.count >= first.options.concurrency);
        let held_for = own.or(of_worker)?.since;
        let counted = parts().map(|part| &part.counted).filter(|counted| !counted.is_paused.load(Ordering::Relaxed));
        let waiting: u64 = counted.map(|counted| counted.waiting.load(Ordering::Relaxed)).sum();
        let is_jam = waiting > 0 && held_for > cadence::lost_slots(first.options.interval);
        is_jam.then_some(Jam { task: &first.name, held_for, waiting })
    };
    tasks.iter().filter(|task| task.is_first()).filter_map(jam).collect()
}
