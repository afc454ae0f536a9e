//! How many jobs a driver claims, which of the held ones begin, and how they start.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::Driver;
use super::ahead::{MOST_AHEAD, NotBegun};
use crate::backend::report::{Disposition, Report};
use crate::backend::settle::{Claimed, Payload, Settled, Want};
use crate::backend::workflow::advance::{EndedNode, NodeEnd};
use crate::clock::{self, Moment};
use crate::job::node_id::NodeId;
use crate::options::resolved::Prefetch;
use crate::options::stall::{Heartbeat, OnCrash};
use crate::runtime::held_jobs::{Flags, HeldJob};
use crate::runtime::workflow_queue::Notice;
use crate::worker::runner::{self, Own};

/// How long the worker that took the marker has to claim before the worker with the spare marker checks.
const SPARE_LOOK: Duration = Duration::from_millis(500);

/// How often a driver without a free slot shows the keeper that it runs, while a call claims jobs ahead.
const LOOK_AT_CALLS: Duration = Duration::from_millis(5);

/// After this many requeues in a row, the driver warns that the job never begins.
const REQUEUED_OFTEN: u32 = 3;

impl Driver {
    /// Decides which jobs begin with the next call, and how many jobs it claims. Takes slots of the worker's cap for jobs that begin.
    pub(super) fn plan(&mut self) -> (Vec<Report>, Want) {
        if self.stop.is_some() {
            return (Vec::new(), Want::NONE);
        }
        let woken = self.worker.wake.take_woken(self.task.index);
        if self.worker.wake.take_spare(self.task.index) {
            self.look_at = self.look_at.min(clock::now().after(SPARE_LOOK));
        }
        self.hungry |= woken || clock::now() >= self.look_at;
        // A slot that a call has just returned must not go to the same unreachable node again.
        let is_unreachable = self.is_unreachable();
        let is_ready = self.task.beats_are_fresh() && !is_unreachable && !self.worker.is_quiet();
        let may_claim = is_ready && (self.hungry || !self.pending.is_empty());
        self.most_ahead = self.adapted();
        let looks = may_claim || self.ahead.claimed() > 0 && !is_unreachable;
        let slots = self.take_slots(if looks { self.free_slots().min(self.batch()) } else { 0 });
        let (room, early) = (self.room(), self.early(slots));
        // Waiting hooks take precedence over jobs that were claimed ahead. Otherwise hooks would wait for as long as jobs keep coming.
        let hooks_first = may_claim && self.hooks_left;
        self.hooks_left &= slots == 0;
        let begins = if hooks_first { Vec::new() } else { self.ahead.begin(slots, early) };
        let slots_left = slots.saturating_sub(begins.len());
        let early_left = if hooks_first { 0 } else { (slots + early).saturating_sub(begins.len().max(slots)) };
        let mut want = Want::NONE;
        // Begin jobs that were claimed ahead before claiming others.
        if may_claim && self.task.options.prefetch.kept() > 0 && !hooks_first {
            want.jobs = room.min(self.batch());
            let claiming =
                self.sequences.iter().filter_map(|sequence| sequence.wanted).any(|want| want.jobs > want.begin);
            if self.ahead.claimed() == 0 && !claiming {
                want.with_slot = slots_left.min(want.jobs);
                want.begin = (slots_left + early_left).min(want.jobs);
            }
        } else if may_claim && (self.ahead.claimed() == 0 || hooks_first) {
            // A job that began neither now nor early would wait for another call, as if it were not claimed.
            let jobs = (slots_left + early_left).min(self.batch());
            want = Want { jobs, begin: jobs, with_slot: slots_left.min(jobs), ..Want::NONE };
        }
        let claiming = self.sequences.iter().filter_map(|sequence| sequence.wanted).map(|want| want.jobs).sum();
        want = want.at_most(self.task.can_carry(claiming));
        want.hooks = self.task.hook.is_some();
        self.slots().give_back(slots_left - want.with_slot);
        if woken && want.jobs == 0 {
            self.worker.wake.give_back(self.task.index);
        }
        (begins, want)
    }

    /// How many more jobs of the task the worker may hold.
    pub(super) fn room(&self) -> usize {
        if self.worker.is_quiet() {
            return 0;
        }
        let prefetch = self.task.options.prefetch.kept();
        if prefetch == 0 || self.worker.clogged.load(Ordering::SeqCst) {
            return self.free_slots();
        }
        let claiming = self.sequences.iter().filter_map(|sequence| sequence.wanted);
        let ahead = self.ahead.claimed() + claiming.map(|want| want.jobs - want.begin).sum::<usize>();
        if !self.has_room_for_payloads() {
            return 0;
        }
        (self.task.options.concurrency + prefetch).saturating_sub(self.occupied() + ahead)
    }

    fn has_room_for_payloads(&self) -> bool {
        let calls = self.sequences.iter().filter(|sequence| sequence.wanted.is_some_and(|want| want.jobs > 0)).count();
        self.ahead.has_room(calls)
    }

    /// How many jobs an adaptive prefetch claims ahead now: those that the slots finish in one round trip. None if they could not begin
    /// early, since to begin later takes a call of its own.
    fn adapted(&self) -> usize {
        if self.task.options.prefetch != Prefetch::Adaptive {
            return 0;
        }
        let (pace, slots) = (&self.ahead.pace, self.task.options.concurrency);
        let soon = pace.finished_in_a_round_trip(slots).min(pace.carried(slots)).min(MOST_AHEAD);
        let may = soon > 0 && self.may_begin_early() && self.has_room_for_payloads();
        if may && !self.worker.clogged.load(Ordering::SeqCst) { soon } else { 0 }
    }

    /// How many jobs may begin early, in addition to these slots. After a crash, Redis does not know whether such a job ran. So none
    /// begins early unless pending outcomes show that it will run soon, and both our options and those of the newest worker allow a
    /// further run.
    fn early(&self, slots: usize) -> usize {
        let concurrency = self.task.options.concurrency;
        let soon = match self.task.options.prefetch {
            _ if self.pending.is_empty() => return 0,
            // Its jobs have slots, and must not find them taken by early jobs of a later call.
            _ if self.sequences.iter().filter_map(|sequence| sequence.wanted).any(|want| want.with_slot > 0) => {
                return 0;
            }
            Prefetch::Fixed(0) => return 0,
            Prefetch::Adaptive if self.most_ahead == 0 => return 0,
            Prefetch::Adaptive => self.most_ahead,
            Prefetch::Fixed(_) if !self.may_begin_early() => return 0,
            Prefetch::Fixed(most) => self.ahead.pace.finished_in_a_round_trip(concurrency).min(most),
        };
        // The jobs that the keeper hands back are still held.
        let taken = self.task.ahead_watch.under_way();
        (concurrency + soon).saturating_sub(self.occupied() + slots + taken).min(self.batch())
    }

    /// Whether a job of the task may begin before it has a slot.
    fn may_begin_early(&self) -> bool {
        let options = &self.task.options;
        options.max_count > 0
            && options.on_crash == OnCrash::Recover
            && options.heartbeat != Heartbeat::Manual
            && self.slots().are_unbounded()
            && clock::now() >= self.none_early_until
    }

    pub(super) fn is_full(&self) -> bool {
        self.busy.len() >= self.task.options.concurrency
    }

    /// Takes up to `wanted` slots of the worker's cap. If there is none, takes a place in the queue for one.
    pub(super) fn take_slots(&mut self, wanted: usize) -> usize {
        let granted = usize::from(std::mem::take(&mut self.granted));
        let taken = granted.min(wanted) + self.slots().take(wanted.saturating_sub(granted));
        self.slots().give_back(granted.saturating_sub(wanted));
        if taken > 0 || wanted == 0 {
            self.queued = None;
        } else if self.queued.is_none() {
            self.queued = self.slots().queue().map(|place| Box::pin(place) as _);
        }
        taken
    }

    /// How many slots are free. A run uses a slot, and so does a call under way. So does an outcome that the next call cannot carry,
    /// since it takes as much memory as a run.
    pub(super) fn free_slots(&self) -> usize {
        self.task.options.concurrency.saturating_sub(self.occupied())
    }

    /// Jobs that run or are about to, and outcomes that the next call cannot carry.
    fn occupied(&self) -> usize {
        let wanted: usize = self.sequences.iter().filter_map(|sequence| sequence.wanted).map(|want| want.begin).sum();
        let left_over = self.large.len() + self.pending.len() - self.fitting(self.pending.iter());
        self.busy.len() + self.ahead.begun() + wanted + left_over
    }

    /// Records claimed jobs as held. No other worker can take them until an interval has passed since `kept`.
    pub(super) fn enter(&mut self, kept: Moment, claimed: Vec<Claimed>) {
        let stopping = self.worker.stopping.is_cancelled() || self.worker.is_quiet();
        let too_late = clock::now() >= kept.after(self.task.options.interval);
        let mut entered = Vec::with_capacity(claimed.len());
        let mut starting = Vec::with_capacity(claimed.len());
        let free = self.task.options.concurrency.saturating_sub(self.busy.len());
        for job in claimed {
            let runs_at_once = match self.task.options.prefetch {
                Prefetch::Fixed(jobs) => jobs == 0,
                Prefetch::Adaptive => job.begins && self.ahead.is_empty() && starting.len() < free,
            };
            let own = Own::of(&job, &self.task.options);
            let (last_tick, bells) = (Arc::clone(&self.worker.last_tick), Arc::clone(&self.task.bells));
            let news = Arc::clone(&self.worker.news);
            let held =
                Arc::new(HeldJob::new(job.id.clone(), job.fence, (&*own.options).into(), kept, last_tick, bells, news));
            // Its handler begins later: after the payload is read, or after its workflow has answered.
            let waits = matches!(job.payload, Payload::Apart(_)) || NodeId::of(&job.id).is_some();
            if !runs_at_once || waits {
                held.set(Flags::NOT_BEGUN);
            }
            entered.push(Arc::clone(&held));
            if let Some(recovery) = job.recovery.as_ref().filter(|last| last.requeued_count >= REQUEUED_OFTEN) {
                let (task, times) = (&self.task.name, recovery.requeued_count);
                tracing::warn!(%task, job_id = %job.id, times, "the job was claimed ahead repeatedly and never began");
            }
            // A claim that was under way when a handler was rate limited.
            let rests = self.rate_limited > 0 && job.outcome.is_none();
            if stopping || too_late || rests || self.owed > 0 && job.begins {
                held.set(Flags::FINISHED);
                self.give_back(usize::from(job.begins));
                self.pending.push(Report::requeue(job.id, job.fence));
            } else if runs_at_once {
                starting.push(NotBegun { job, own, held });
            } else {
                self.ahead.enter(NotBegun { job, own, held });
            }
        }
        // Record them before they run: a handler may read its own deadline at once.
        self.task.held.insert(&entered);
        if !(starting.is_empty() || self.ahead.is_empty()) {
            self.ahead.pace.began();
        }
        starting.into_iter().for_each(|job| self.spawn(job));
    }

    /// Runs jobs that have begun, as far as slots are free.
    pub(super) fn run_next(&mut self) {
        if self.task.ahead_watch.has_taken() {
            let slots = self.ahead.drop_taken();
            self.give_back(slots);
        }
        if self.ahead.claimed() > 0 {
            // Do not let a cancelled or lost job wait for a long run. A running handler may also wait for the result of one of these jobs.
            let clogged = self.worker.clogged.load(Ordering::SeqCst);
            self.hand_back(|held| clogged || held.flags().intersects(Flags::NOT_TO_BEGIN));
        }
        while !self.is_full()
            && let Some(next) = self.ahead.next()
        {
            self.spawn(next);
        }
        if self.is_full() && self.ahead.time_left().is_some_and(|left| left.is_zero()) {
            // Running jobs take longer than estimated.
            if self.task.options.prefetch == Prefetch::Adaptive {
                self.hand_back_ahead();
            } else {
                self.most_ahead = 0;
                self.pending.extend(self.ahead.unstart());
            }
        }
    }

    /// After which time to look whether jobs that are held ahead, or in a call, get a slot. The keeper looks too, in case the driver does
    /// not run then.
    pub(super) fn look_after_ahead(&self) -> Option<Duration> {
        let left = self.ahead.time_left().filter(|_| self.is_full());
        if self.task.options.prefetch != Prefetch::Adaptive {
            return left;
        }
        let claims_ahead = |want: Want| want.begin > want.with_slot;
        let in_call = || self.sequences.iter().filter_map(|sequence| sequence.wanted).any(claims_ahead);
        // Also while a slot is free: another task may block the runtime.
        let look = left.or_else(|| in_call().then_some(LOOK_AT_CALLS));
        self.task.ahead_watch.will_run(look);
        look
    }

    /// Requeues as many jobs that have begun as slots are owed, the last ones first.
    pub(super) fn hand_back_owed(&mut self) {
        if self.owed > 0 {
            let last = self.ahead.last_begun(self.owed);
            self.hand_back(|held| last.contains(&held.fence));
        }
    }

    fn spawn(&mut self, NotBegun { job, own, held }: NotBegun) {
        self.started = true;
        self.busy.insert(job.fence, job.id.clone());
        let (task, worker) = (Arc::clone(&self.task), Arc::clone(&self.worker));
        let (alive, note_store) = (task.alive.token(), Arc::clone(&self.note_store));
        self.runs.spawn(async move {
            let _alive = alive;
            let report = runner::run(Arc::clone(&task), worker, note_store, held, job, own).await;
            task.outbox.push(report);
            task.poke.notify_one();
        });
    }

    /// Requeues all jobs that do not run yet.
    pub(super) fn hand_back_ahead(&mut self) {
        self.most_ahead = 0;
        let waiting = self.ahead.waiting();
        self.hand_back(|held| waiting.contains(&held.fence));
    }

    /// Requeues matching jobs that do not run yet.
    pub(super) fn hand_back(&mut self, which: impl Fn(&HeldJob) -> bool) {
        for fence in self.ahead.which(which) {
            let Some(held) = self.task.held.get(fence) else { continue };
            let is_ours = self.ahead.takes(&held);
            let had_slot = self.ahead.lose(fence);
            self.give_back(usize::from(had_slot));
            if !is_ours {
                continue;
            }
            held.set(Flags::FINISHED);
            if held.flags().intersects(Flags::LOST) {
                self.task.held.remove(std::iter::once(fence));
            } else {
                self.pending.push(Report::requeue(held.id.clone(), fence));
            }
        }
    }

    /// Passes the ends of workflow nodes to the workflow runner, so that their workflows advance at once.
    pub(super) fn notify_workflows(&self, reports: &[Report], settled: &Settled) {
        let mut look = false;
        for report in reports.iter().filter(|report| report.id.is_of_workflow() && report.outcome.ends_the_hold()) {
            if settled.lost.contains(&report.fence) {
                continue;
            }
            if settled.taken.contains(&report.fence) || matches!(report.outcome, Disposition::Hooked(_)) {
                look = true;
                continue;
            }
            let (end, said) = match &report.outcome {
                // With a hook, the job has not ended yet.
                _ if self.task.hook.is_some() => continue,
                Disposition::Completed(value) => (NodeEnd::Completed, value.clone().unwrap_or_default()),
                Disposition::Failed { error, .. } => (NodeEnd::Failed, error.to_json().into_bytes()),
                _ => continue,
            };
            if let Some(id) = NodeId::of(&report.id) {
                self.worker
                    .workflow_queue
                    .leave(Notice::Ended(EndedNode { id, end, said }, Arc::clone(&self.task.keys)));
            }
        }
        if look {
            self.worker.workflow_queue.leave(Notice::LookAt(Arc::clone(&self.task.keys)));
        }
    }

    /// Applies the answer to these reports. Removes jobs that are no longer held. Moves jobs that began, or whose begin was reverted.
    pub(super) fn released(&mut self, reports: &[Report], settled: &Settled) {
        if self.task.options.prefetch.kept() == 0 && self.ahead.is_empty() {
            return self.task.held.remove(reports.iter().map(|report| report.fence));
        }
        let gone = |fence| settled.lost.contains(fence) || settled.taken.contains(fence);
        let (kept, ended): (Vec<&Report>, Vec<&Report>) =
            reports.iter().partition(|report| !report.outcome.ends_the_hold() && !gone(&report.fence));
        for report in &ended {
            // The job was about to begin.
            let had_slot = self.ahead.lose(report.fence);
            self.give_back(usize::from(had_slot));
        }
        self.task.held.remove(ended.into_iter().map(|report| report.fence));
        for report in kept {
            let is_free = self.ahead.moved(report, settled.is_paused);
            self.give_back(usize::from(is_free));
        }
        if self.worker.stopping.is_cancelled() || settled.is_paused {
            self.hand_back(|_| true);
        }
    }
}
