//! The specification for jobs whose outcome is stored, until their hook has run.

use super::{Model, Place, Report, Said, State, Verdict, Want};
use crate::simulation::FAR;

/// The stored outcome of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    pub state: State,
    /// Set for a failed job.
    code: &'static str,
    /// How often the hook failed, and how often it stalled.
    pub failed: u32,
    stalls: u32,
    /// How long the handler ran, if known.
    ran: String,
}

impl Outcome {
    fn new(state: State, code: &'static str, ran: &str) -> Outcome {
        Outcome { state, code, failed: 0, stalls: 0, ran: ran.to_owned() }
    }

    pub fn failed(code: &'static str, ran: &str) -> Outcome {
        Outcome::new(State::Failed, code, ran)
    }

    pub fn cancelled() -> Outcome {
        Outcome::new(State::Cancelled, "", "-")
    }

    /// Its words in Redis.
    pub fn text(&self) -> String {
        format!("{} {} {} {}", self.state.word(), self.failed, self.stalls, self.ran)
    }
}

impl Model {
    /// What a settle call first does about hooks. Returns those that its worker runs.
    pub(super) fn finalize(
        &mut self,
        others: &[&Report],
        cancelled: &[&Report],
        want: Want,
        order: &[String],
    ) -> Vec<String> {
        let is_due = |id: &String| self.jobs[id].place == Place::Finalizing { due: true };
        assert!(
            order.iter().map(is_due).is_sorted_by(|one, other| one >= other),
            "not in the order of time: {order:?}"
        );
        // To run, or to end if no worker has a hook any more.
        let mut taken: Vec<String> = Vec::new();
        if want.hooks {
            taken.extend(order.iter().filter(|id| is_due(id)).take(want.with_slot).cloned());
        }
        let orphans = if want.hooks || self.hook { &[] } else { order };
        let fresh = if self.hook { self.record_ends(others, cancelled) } else { Vec::new() };
        let back = others.iter().filter(|report| report.said == Said::Requeue);
        for Report { id, .. } in back {
            if self.jobs[id].outcome.is_some() {
                self.job(id).place = Place::Finalizing { due: true };
                self.events.push(format!("requeued {id}"));
            }
        }
        self.record_hooks(others);
        self.end_finalized(orphans);
        if want.hooks {
            let free = want.with_slot - taken.len();
            taken.extend(fresh.into_iter().take(free));
        }
        taken
    }

    /// The events for hooks that ran.
    fn record_hooks(&mut self, others: &[&Report]) {
        for report in others {
            let Said::HookRetry { failed } = report.said else { continue };
            let job = self.job(&report.id);
            job.place = Place::Finalizing { due: false };
            job.outcome.as_mut().unwrap_or_else(|| panic!("{} has no hook", report.id)).failed = failed;
            self.events.push(format!("hook_retrying {} {failed} {FAR}", report.id));
        }
        let hooked = others.iter().filter(|report| matches!(report.said, Said::Hooked { .. }));
        let failed = hooked.clone().filter(|report| report.said == Said::Hooked { failed: true });
        self.events.extend(failed.map(|report| format!("hook_failed {} e", report.id)));
        let ids: Vec<String> = hooked.map(|report| report.id.clone()).collect();
        self.end_finalized(&ids);
    }

    /// Ends jobs by these reports. Returns them in the order of the events.
    pub(super) fn record_ends(&mut self, others: &[&Report], cancelled: &[&Report]) -> Vec<String> {
        let mut ends: Vec<(&Report, Outcome)> = Vec::new();
        let of = |kind: fn(Said) -> bool| others.iter().filter(move |report| kind(report.said));
        for report in of(|said| said == Said::Completed) {
            ends.push((report, Outcome::new(State::Completed, "", &report.fence.to_string())));
        }
        for report in of(|said| matches!(said, Said::Failed { .. })) {
            self.note_attempt(report);
            ends.push((report, Outcome::failed("e", "5")));
        }
        ends.extend(cancelled.iter().map(|report| (*report, Outcome::cancelled())));
        let mut ids = Vec::new();
        for (report, outcome) in ends {
            let told = self.end(&report.id, outcome);
            self.events.push(told);
            ids.push(report.id.clone());
        }
        ids
    }

    /// The job has ended. If the task has a hook, the outcome is stored and the hook runs next. Returns the events.
    pub(super) fn end(&mut self, id: &str, outcome: Outcome) -> String {
        if self.hook { self.store_outcome(id, outcome) } else { self.be_terminal(id, &outcome) }
    }

    /// The hook runs next, or the job ends with the next settle if the task has none.
    pub(super) fn store_outcome(&mut self, id: &str, outcome: Outcome) -> String {
        let told = format!("finalizing {id} {}", outcome.state.word());
        let job = self.job(id);
        (job.place, job.cancel, job.outcome) = (Place::Finalizing { due: true }, false, Some(outcome));
        told
    }

    fn be_terminal(&mut self, id: &str, outcome: &Outcome) -> String {
        self.went += 1;
        let job = self.job(id);
        (job.place, job.cancel, job.outcome) = (Place::Ended(outcome.state), false, None);
        match outcome.state {
            State::Failed => format!("failed {id} {}", outcome.code),
            state => format!("{} {id}", state.word()),
        }
    }

    /// These end with their stored outcome.
    pub(super) fn end_finalized(&mut self, ids: &[String]) {
        for state in State::ALL {
            for id in ids {
                if let Some(outcome) = self.jobs[id].outcome.clone().filter(|outcome| outcome.state == state) {
                    let told = self.be_terminal(id, &outcome);
                    self.events.push(told);
                }
            }
        }
    }

    /// The worker that ran the hook of a job died: returns how often, and the decision; `None` if it ran no hook.
    pub(super) fn stall_hook(&mut self, id: &str, default_max: u32, verdict: Verdict) -> Option<(u32, &'static str)> {
        let job = self.job(id);
        let max = job.max_count.unwrap_or(default_max);
        let outcome = job.outcome.as_mut()?;
        outcome.stalls += 1;
        let (count, state) = (outcome.stalls, outcome.state);
        if verdict == Verdict::Fail || verdict == Verdict::Auto && count > max {
            return Some((count, state.word()));
        }
        job.place = Place::Finalizing { due: true };
        Some((count, "requeued"))
    }

    /// The stored outcome of the job; '' if it has none.
    pub(super) fn outcome_text(&self, id: &str) -> String {
        self.jobs[id].outcome.as_ref().map(Outcome::text).unwrap_or_default()
    }

    /// Makes a hook due that is to run later.
    pub fn next_hook(&mut self) -> Option<String> {
        let (id, job) = self.jobs.iter_mut().find(|(_, job)| job.place == Place::Finalizing { due: false })?;
        job.place = Place::Finalizing { due: true };
        Some(id.clone())
    }

    /// Whether the hook of any job can run now and is not running.
    pub fn has_due_hooks(&self) -> bool {
        self.jobs.values().any(|job| job.place == Place::Finalizing { due: true })
    }
}
