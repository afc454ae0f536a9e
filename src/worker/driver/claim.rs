//! How many jobs a driver claims, and how those that it got start.

use std::sync::Arc;

use super::Driver;
use crate::clock::{self, Moment};
use crate::process::held::{Flags, Held};
use crate::store::report::Report;
use crate::store::settle::{Claimed, Payload};
use crate::worker::runner::{self, Own};

impl Driver {
    /// How many jobs to claim now. Slots of a worker-wide cap are taken for them.
    pub(super) fn want(&mut self) -> usize {
        if self.stop.is_some() {
            return 0;
        }
        let woken = self.worker.wake.take_woken(self.task.index);
        self.hungry |= woken || clock::now() >= self.look_at;
        let may_claim = self.task.beats_are_fresh() && (self.hungry || !self.pending.is_empty());
        let want = self.take_slots(if may_claim { self.free_slots().min(self.batch()) } else { 0 });
        if woken && want == 0 {
            self.worker.wake.give_back(self.task.index);
        }
        want
    }

    /// Takes up to `wanted` slots of the worker's cap, and a place in the queue when there is none.
    pub(super) fn take_slots(&mut self, wanted: usize) -> usize {
        let granted = usize::from(std::mem::take(&mut self.granted));
        let taken = granted.min(wanted) + self.worker.slots.take(wanted.saturating_sub(granted));
        self.worker.slots.give_back(granted.saturating_sub(wanted));
        if taken > 0 || wanted == 0 {
            self.queued = None;
        } else if self.queued.is_none() {
            self.queued = self.worker.slots.queue().map(|place| Box::pin(place) as _);
        }
        taken
    }

    /// Slots that neither a run fills, nor a call under way may fill, nor an outcome that waits behind the next call: it takes
    /// memory as a run does.
    pub(super) fn free_slots(&self) -> usize {
        let wanted: usize = self.lines.iter().filter_map(|line| line.wanted).sum();
        let behind = self.large.len() + self.pending.len() - self.fitting(self.pending.iter());
        self.task.options.concurrency.saturating_sub(self.busy.len() + wanted + behind)
    }

    /// Enters claimed jobs, which nobody can take before an interval has passed since `kept`, and starts them.
    pub(super) fn start(&mut self, kept: Moment, claimed: Vec<Claimed>) {
        let stopping = self.worker.stopping.is_cancelled();
        let too_late = clock::now() >= kept.after(self.task.options.interval);
        let mut entered = Vec::with_capacity(claimed.len());
        let mut starting = Vec::with_capacity(claimed.len());
        for job in claimed {
            let own = Own::of(&job, &self.task.options);
            let (last_tick, rung) = (Arc::clone(&self.worker.last_tick), Arc::clone(&self.task.rung));
            let news = Arc::clone(&self.worker.news);
            let held =
                Arc::new(Held::new(job.id.clone(), job.fence, (&*own.options).into(), kept, last_tick, rung, news));
            if matches!(job.payload, Payload::Apart(_)) {
                held.set(Flags::FETCHING);
            }
            entered.push(Arc::clone(&held));
            if stopping || too_late {
                held.set(Flags::FINISHED);
                self.worker.slots.give_back(1);
                self.pending.push(Report::requeue(job.id, job.fence));
            } else {
                starting.push((held, job, own));
            }
        }
        // In the table before they run: a handler may look at its own deadline at once.
        self.task.held.insert(&entered);
        self.started |= !starting.is_empty();
        for (held, job, own) in starting {
            self.busy.insert(job.fence, job.id.clone());
            let (task, worker) = (Arc::clone(&self.task), Arc::clone(&self.worker));
            let alive = task.alive.token();
            self.runs.spawn(async move {
                let _alive = alive;
                let report = runner::run(Arc::clone(&task), worker, held, job, own).await;
                task.outbox.push(report);
                task.poke.notify_one();
            });
        }
    }
}
