//! Jobs that the worker holds and does not run yet: claimed ahead, or begun early and waiting for a slot.
//!
//! A settle call begins a job that was claimed ahead. If runs are short compared with a round trip, some jobs begin early, so
//! that a free slot does not wait for that call.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::backend::report::{Disposition, Report};
use crate::backend::settle::Claimed;
use crate::limits::BATCH_BYTES;
use crate::options::resolved::Prefetch;
use crate::runtime::held_jobs::{Flags, HeldJob};
use crate::stall::action::StallReason;
use crate::worker::runner::Own;

/// The most bytes of waiting payloads, per task.
const WAITING_BYTES: usize = 4 * 1024 * 1024;

/// A job that is held and does not run yet.
pub(super) struct NotBegun {
    pub(super) job: Claimed,
    pub(super) own: Own,
    pub(super) held: Arc<HeldJob>,
}

impl NotBegun {
    /// Whether it may begin early. If the worker then crashes, Redis puts the job back without a stall, but only once. So a job
    /// whose worker crashed before does not begin early. A job that may expire begins only when it can run.
    fn may_begin_early(&self) -> bool {
        let has_crashed = self.job.recovery.as_ref().is_some_and(|last| last.reason != StallReason::Requeued);
        self.own.options.max_count > 0 && self.job.stalled_count == 0 && !has_crashed && !self.job.expires
    }
}

/// The most jobs that an adaptive prefetch claims ahead.
pub(super) const MOST_AHEAD: usize = 50;

/// How long these jobs wait at least before an adaptive prefetch hands them back.
const LEAST_WAIT: Duration = Duration::from_millis(2);

/// The jobs that do not run yet, oldest first.
pub(super) struct Ahead {
    is_adaptive: bool,
    claimed: BTreeMap<u64, NotBegun>,
    /// Begun in Redis, waiting for a slot.
    begun: BTreeMap<u64, NotBegun>,
    /// In a call that begins them, or that reverts their begin.
    moving: BTreeMap<u64, NotBegun>,
    /// The size of all payloads.
    bytes: usize,
    pub(super) pace: Pace,
}

impl Ahead {
    pub(super) fn new(prefetch: Prefetch) -> Ahead {
        let is_adaptive = prefetch == Prefetch::Adaptive;
        Ahead {
            is_adaptive,
            claimed: BTreeMap::new(),
            begun: BTreeMap::new(),
            moving: BTreeMap::new(),
            bytes: 0,
            pace: Pace { least_wait: if is_adaptive { LEAST_WAIT } else { Duration::ZERO }, ..Pace::default() },
        }
    }

    pub(super) fn enter(&mut self, waiting: NotBegun) {
        self.bytes += waiting.job.payload.bytes();
        self.offer(&waiting);
        let place = if waiting.job.begins { &mut self.begun } else { &mut self.claimed };
        place.insert(waiting.job.fence, waiting);
    }

    pub(super) fn next(&mut self) -> Option<NotBegun> {
        loop {
            let (_, waiting) = self.begun.pop_first()?;
            self.bytes -= waiting.job.payload.bytes();
            if self.takes(&waiting.held) {
                self.pace.began();
                return Some(waiting);
            }
        }
    }

    /// Lets the keeper hand back the job.
    fn offer(&self, waiting: &NotBegun) {
        if self.is_adaptive {
            waiting.held.set(Flags::AHEAD);
        }
    }

    /// Takes a job before it starts, or before a call decides about it. Returns `false` if the keeper hands it back.
    pub(super) fn takes(&self, held: &HeldJob) -> bool {
        !self.is_adaptive || held.take(Flags::AHEAD)
    }

    /// Drops the jobs that the keeper hands back. Returns how many of them had begun.
    pub(super) fn drop_taken(&mut self) -> usize {
        let (before, bytes) = (self.begun.len(), &mut self.bytes);
        for group in [&mut self.claimed, &mut self.begun] {
            group.retain(|_, waiting| {
                let is_ours = waiting.held.flags().intersects(Flags::AHEAD);
                *bytes -= if is_ours { 0 } else { waiting.job.payload.bytes() };
                is_ours
            });
        }
        before - self.begun.len()
    }

    pub(super) fn claimed(&self) -> usize {
        self.claimed.len()
    }

    pub(super) fn len(&self) -> usize {
        self.claimed.len() + self.begun()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many have begun, or are in a call that begins them or reverts their begin.
    pub(super) fn begun(&self) -> usize {
        self.begun.len() + self.moving.len()
    }

    pub(super) fn any_begun(&self) -> bool {
        !self.begun.is_empty()
    }

    /// Whether there is room for more payloads, given the number of claims under way.
    pub(super) fn has_room(&self, calls: usize) -> bool {
        self.bytes + calls * BATCH_BYTES < WAITING_BYTES
    }

    /// Begins up to `slots` jobs that have a slot each, then up to `early` jobs that will wait for a slot.
    pub(super) fn begin(&mut self, slots: usize, early: usize) -> Vec<Report> {
        let mut reports = Vec::new();
        while reports.len() < slots + early {
            let Some(next) = self.claimed.first_entry() else { break };
            if reports.len() >= slots && !next.get().may_begin_early() {
                break;
            }
            let (fence, waiting) = next.remove_entry();
            if !self.takes(&waiting.held) {
                self.bytes -= waiting.job.payload.bytes();
                continue;
            }
            let begin = Disposition::Begin { early: reports.len() >= slots };
            reports.push(Report::without_run(waiting.job.id.clone(), fence, begin));
            self.moving.insert(fence, waiting);
        }
        reports
    }

    /// Reverts the begin of jobs that wait for a slot. Hooks stay: they are not claimed ahead.
    pub(super) fn unstart(&mut self) -> Vec<Report> {
        let (hooks, begun) =
            std::mem::take(&mut self.begun).into_iter().partition(|(_, waiting)| waiting.job.outcome.is_some());
        self.begun = hooks;
        let (begun, taken): (BTreeMap<u64, NotBegun>, BTreeMap<u64, NotBegun>) =
            BTreeMap::into_iter(begun).partition(|(_, waiting)| self.takes(&waiting.held));
        self.bytes -= taken.values().map(|waiting| waiting.job.payload.bytes()).sum::<usize>();
        let report = |(fence, waiting): (&u64, &NotBegun)| {
            Report::without_run(waiting.job.id.clone(), *fence, Disposition::Unstart)
        };
        let reports = begun.iter().map(report).collect();
        self.moving.extend(begun);
        reports
    }

    /// Applies the answer to a report that begins a job or reverts its begin. While the task is paused, no job begins. Returns
    /// whether the job should have begun in a slot and did not.
    pub(super) fn moved(&mut self, report: &Report, is_paused: bool) -> bool {
        let Some(waiting) = self.moving.remove(&report.fence) else { return false };
        self.offer(&waiting);
        let was_to_begin = matches!(report.outcome, Disposition::Begin { .. });
        let place = if was_to_begin && !is_paused { &mut self.begun } else { &mut self.claimed };
        place.insert(report.fence, waiting);
        was_to_begin && is_paused
    }

    /// Removes a job that the worker no longer holds. Returns whether it had a slot.
    pub(super) fn lose(&mut self, fence: u64) -> bool {
        let claimed = self.claimed.remove(&fence);
        let had_slot = claimed.is_none();
        let Some(waiting) = claimed.or_else(|| self.begun.remove(&fence)).or_else(|| self.moving.remove(&fence)) else {
            return false;
        };
        self.bytes -= waiting.job.payload.bytes();
        had_slot
    }

    /// The fences of the jobs that match and are in no call.
    pub(super) fn which(&self, is_so: impl Fn(&HeldJob) -> bool) -> Vec<u64> {
        let all = self.claimed.iter().chain(&self.begun);
        all.filter(|(_, waiting)| is_so(&waiting.held)).map(|(fence, _)| *fence).collect()
    }

    /// The fences of the jobs that began last.
    pub(super) fn last_begun(&self, count: usize) -> Vec<u64> {
        self.begun.keys().rev().take(count).copied().collect()
    }

    /// The fences of all jobs that are in no call. Not of hooks: they are not claimed ahead.
    pub(super) fn waiting(&self) -> Vec<u64> {
        let begun = self.begun.iter().filter(|(_, waiting)| waiting.job.outcome.is_none());
        begun.map(|(fence, _)| *fence).chain(self.claimed.keys().copied()).collect()
    }

    /// How long jobs may still wait for a slot. `None` if no job waits that would then be handed back or have its begin reverted.
    pub(super) fn time_left(&self) -> Option<Duration> {
        let waits = self.is_adaptive && !self.claimed.is_empty()
            || self.begun.values().any(|waiting| waiting.job.outcome.is_none());
        waits.then(|| self.pace.time_left())
    }
}

/// How long recent runs and round trips took.
#[derive(Debug, Default)]
pub(super) struct Pace {
    run: Option<Duration>,
    round_trip: Duration,
    /// How many bytes recent outcomes had.
    bytes: usize,
    /// When a run last began or ended.
    moved: Option<Instant>,
    /// How long jobs wait at least.
    least_wait: Duration,
}

impl Pace {
    pub(super) fn began(&mut self) {
        self.moved = Some(Instant::now());
    }

    /// Records how long a run took, and the bytes of its outcome.
    pub(super) fn ran(&mut self, time: Duration, bytes: usize) {
        // A long run counts at once, short ones gradually.
        self.run = Some(match self.run {
            Some(run) if time < run => run - (run - time) / 8,
            Some(run) => (run + time) / 2,
            None => time,
        });
        self.bytes = if bytes < self.bytes { self.bytes - (self.bytes - bytes) / 8 } else { bytes };
        self.moved = Some(Instant::now());
    }

    /// Records how long a call took.
    ///
    /// It is measured on the user's runtime: one that was blocked for a while must not look like a slow server.
    pub(super) fn answered(&mut self, round_trip: Duration) {
        let before = self.round_trip;
        let most = if before.is_zero() { round_trip } else { before * 2 + Duration::from_millis(1) };
        let round_trip = round_trip.min(most);
        self.round_trip = if before.is_zero() { round_trip } else { (before * 7 + round_trip) / 8 };
    }

    /// How many jobs the slots finish in one round trip.
    pub(super) fn finished_in_a_round_trip(&self, slots: usize) -> usize {
        match self.run {
            Some(run) if !self.time_left().is_zero() => {
                let times = self.round_trip.as_nanos() / run.as_nanos().max(1);
                usize::try_from(times).unwrap_or(usize::MAX).saturating_mul(slots)
            }
            _ => 0,
        }
    }

    /// How many outcomes a call can carry besides those of the slots. A job whose outcome has to wait only takes memory.
    pub(super) fn carried(&self, slots: usize) -> usize {
        (BATCH_BYTES / self.bytes.max(1)).saturating_sub(slots)
    }

    /// How long a job may still wait for a slot: two round trips or more from when a run last began or ended.
    fn time_left(&self) -> Duration {
        let since = self.moved.map_or(Duration::ZERO, |moved| moved.elapsed());
        (self.round_trip * 2).max(self.least_wait).saturating_sub(since)
    }
}
