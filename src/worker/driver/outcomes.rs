//! How a driver gathers outcomes, and which of them the next call carries.

use super::Driver;
use crate::backend::report::{self, Disposition, Report};
use crate::limits::LARGE;
use crate::runtime::held_jobs::Flags;

impl Driver {
    /// Collects the outcomes that are ready. If they do not fill a batch, first yields to runs that are about to end.
    pub(super) async fn collect(&mut self) {
        let mut seen = 0;
        loop {
            let ready = self.task.outbox.len();
            if ready == seen || ready >= self.batch() {
                break;
            }
            seen = ready;
            self.task.outbox.exchange(&mut self.pending, &mut self.large);
            tokio::task::yield_now().await;
            self.task.outbox.exchange(&mut self.pending, &mut self.large);
        }
        for report in self.task.outbox.take() {
            // The job was requeued because its handler did not stop, so it has been reported already.
            if self.busy.remove(&report.fence).is_none() {
                continue;
            }
            self.give_back(1);
            if !matches!(report.outcome, Disposition::Requeue) {
                self.ahead.pace.ran(report.ran, report.bytes());
            }
            let lost = self.task.held.get(report.fence).is_none_or(|held| held.flags().intersects(Flags::LOST));
            if lost {
                self.task.held.remove(std::iter::once(report.fence));
            } else if report.bytes() > LARGE {
                self.large.push_back(report);
            } else {
                if report.is_rate_limited() {
                    self.rate_limited += 1;
                    self.hand_back_ahead();
                }
                self.pending.push(report);
            }
        }
        while self.runs.try_join_next().is_some() {}
    }

    /// The reports of the next call. Requeues are sent youngest first: each call puts its jobs in front of those requeued before,
    /// so that in the end the oldest is first.
    pub(super) fn next_reports(&mut self) -> Vec<Report> {
        let is_requeued = |report: &Report| matches!(report.outcome, Disposition::Requeue) || report.is_rate_limited();
        if self.stop.is_none() && !self.pending.iter().any(is_requeued) {
            let count = self.fitting(self.pending.iter());
            return self.pending.drain(..count).collect();
        }
        self.pending.sort_unstable_by_key(|report| report.fence);
        self.pending.split_off(self.pending.len() - self.fitting(self.pending.iter().rev()))
    }

    /// How many of the reports fit into one call.
    pub(super) fn fitting<'a>(&self, reports: impl Iterator<Item = &'a Report>) -> usize {
        report::fitting(reports.take(self.batch()))
    }
}
