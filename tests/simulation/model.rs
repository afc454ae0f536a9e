//! What the scripts are to do, as plain data: no Redis, no clock.

use std::collections::{BTreeMap, BTreeSet};

/// What stays of a job, and where it is.
#[derive(Clone, Debug)]
pub struct Job {
    pub place: Place,
    pub attempt: u32,
    pub stalls: u32,
    pub max_count: Option<u32>,
    pub priority: Priority,
    cancel: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    Waiting,
    Delayed,
    Running { worker: String, fence: u64 },
    Ended(State),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Completed,
    Failed,
    Cancelled,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priority {
    High,
    Normal,
    Low,
}

/// A job that is to be dispatched.
#[derive(Clone, Debug)]
pub struct New {
    pub id: String,
    pub delayed: bool,
    pub max_count: Option<u32>,
    pub priority: Priority,
}

/// What a worker says of a job that it holds, or once held.
#[derive(Clone, Debug)]
pub struct Report {
    pub id: String,
    pub fence: u64,
    pub said: Said,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Said {
    Completed,
    Failed { attempt: u32 },
    Retry { attempt: u32 },
    Requeue,
}

/// What a settle call answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settled {
    pub lost: Vec<u64>,
    pub cancelled: Vec<u64>,
    pub first_fence: u64,
    pub claimed: Vec<String>,
}

/// What a sweep says of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolved {
    pub id: String,
    pub count: u32,
    pub action: String,
    pub worker: String,
    pub fence: u64,
}

/// All that a task keeps, in the shape in which it can be read back from Redis.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    pub lists: [Vec<String>; 3],
    pub delayed: BTreeSet<String>,
    pub active: BTreeSet<String>,
    pub candidates: BTreeSet<String>,
    pub locks: BTreeMap<String, String>,
    pub cancelling: BTreeSet<String>,
    pub ended: [BTreeSet<String>; 3],
    pub payload: BTreeSet<String>,
    pub attempt: BTreeMap<String, u32>,
    pub stalled_count: BTreeMap<String, u32>,
}

/// A task as it should be.
#[derive(Debug)]
pub struct Model {
    pub jobs: BTreeMap<String, Job>,
    pub epoch: u64,
    /// The start of the worker whose options are in force; 0 when they are lost.
    pub declared_at: u64,
    /// Events that the calls since the last look must have written, in order.
    pub events: Vec<String>,
    keep: bool,
    lists: [Vec<String>; 3],
    delayed: BTreeSet<String>,
    /// Those of them that are due, the first one first.
    due: Vec<String>,
    active: BTreeSet<String>,
    candidates: BTreeSet<String>,
    interval: u64,
    ask: u64,
    /// Line of calls → number of the last one, and its answer.
    calls: BTreeMap<String, (u64, Settled)>,
}

impl Model {
    pub fn new(keep: bool) -> Model {
        Model {
            jobs: BTreeMap::new(),
            epoch: 0,
            declared_at: 0,
            events: Vec::new(),
            keep,
            lists: Default::default(),
            delayed: BTreeSet::new(),
            due: Vec::new(),
            active: BTreeSet::new(),
            candidates: BTreeSet::new(),
            interval: 0,
            ask: 0,
            calls: BTreeMap::new(),
        }
    }

    /// Returns the positions, from 1, of the jobs that existed.
    pub fn dispatch(&mut self, jobs: &[New]) -> Vec<usize> {
        let (mut existed, mut fresh) = (Vec::new(), Vec::new());
        for (at, new) in jobs.iter().enumerate() {
            if self.is_there(&new.id) {
                existed.push(at + 1);
                continue;
            }
            let place = if new.delayed { Place::Delayed } else { Place::Waiting };
            if new.delayed {
                self.delayed.insert(new.id.clone());
            } else {
                self.lists[new.priority as usize].push(new.id.clone());
            }
            let (max_count, priority) = (new.max_count, new.priority);
            let job = Job { place, attempt: 0, stalls: 0, max_count, priority, cancel: false };
            self.jobs.insert(new.id.clone(), job);
            fresh.push(new.id.clone());
        }
        self.events.extend(fresh.into_iter().map(|id| format!("dispatched {id}")));
        existed
    }

    /// A call that was not executed before. ``first_fence` is that of the answer.
    pub fn settle(
        &mut self,
        (worker, number, ask): (&str, u64, u64),
        reports: &[Report],
        want: usize,
        first_fence: u64,
    ) -> Settled {
        let (lost, held): (Vec<_>, Vec<_>) = reports.iter().partition(|report| !self.holds(worker, report));
        let due = if want > 0 { std::mem::take(&mut self.due) } else { Vec::new() };
        for id in due {
            self.delayed.remove(&id);
            self.job(&id).place = Place::Waiting;
            let list = self.jobs[&id].priority as usize;
            self.lists[list].push(id);
        }
        let mut claimed: Vec<String> = Vec::new();
        for list in &mut self.lists {
            let count = list.len().min(want - claimed.len());
            claimed.extend(list.drain(..count));
        }
        let (cancelled, others): (Vec<_>, Vec<_>) = held.into_iter().partition(|report| self.jobs[&report.id].cancel);
        for report in others.iter().chain(&cancelled) {
            self.leave(&report.id);
        }
        let of = |kind: fn(Said) -> bool| others.iter().filter(move |report| kind(report.said));
        for report in of(|said| said == Said::Completed) {
            self.end(&report.id, State::Completed);
            self.events.push(format!("completed {}", report.id));
        }
        for report in of(|said| matches!(said, Said::Failed { .. })) {
            self.note_attempt(report);
            self.end(&report.id, State::Failed);
            self.events.push(format!("failed {} e", report.id));
        }
        for report in of(|said| matches!(said, Said::Retry { .. })) {
            self.note_attempt(report);
            self.job(&report.id).place = Place::Delayed;
            self.delayed.insert(report.id.clone());
            self.events.push(format!("retrying {} {} {}", report.id, self.jobs[&report.id].attempt, super::FAR));
        }
        let requeued: Vec<_> = of(|said| said == Said::Requeue).map(|report| report.id.clone()).collect();
        self.events.extend(requeued.iter().map(|id| format!("requeued {id}")));
        self.put_in_front(&requeued);
        for report in &cancelled {
            self.end(&report.id, State::Cancelled);
            self.events.push(format!("cancelled {}", report.id));
        }
        let before = |job: &Job| job.attempt + job.stalls > 0;
        self.events.extend(claimed.iter().filter(|id| !before(&self.jobs[*id])).map(|id| format!("started {id}")));
        for id in claimed.iter().filter(|id| before(&self.jobs[*id])) {
            self.events.push(format!("restarted {id} {} {}", self.jobs[id].attempt, self.jobs[id].stalls));
        }
        for (id, fence) in claimed.iter().zip(first_fence..) {
            self.job(id).place = Place::Running { worker: worker.to_owned(), fence };
            self.active.insert(id.clone());
        }
        if !claimed.is_empty() {
            self.asked(ask);
        }
        let fences = |reports: Vec<&Report>| reports.into_iter().map(|report| report.fence).collect();
        let settled = Settled { lost: fences(lost), cancelled: fences(cancelled), first_fence, claimed };
        self.calls.insert(worker.to_owned(), (number, settled.clone()));
        settled
    }

    /// The number of the last call of a line, and what it answers when it is made again.
    pub fn repeated(&self, worker: &str) -> Option<(u64, Settled)> {
        let (number, mut settled) = self.calls.get(worker)?.clone();
        for (id, fence) in settled.claimed.iter_mut().zip(settled.first_fence..) {
            let report = Report { id: id.clone(), fence, said: Said::Requeue };
            if !self.holds(worker, &report) {
                "{}".clone_into(id);
            }
        }
        Some((number, settled))
    }

    /// Returns the fences that were lost, and those whose cancel was asked for.
    pub fn extend(&mut self, worker: &str, ask: u64, held: &[Report]) -> (Vec<u64>, Vec<u64>) {
        let (mut lost, mut cancelled) = (Vec::new(), Vec::new());
        for report in held {
            if !self.holds(worker, report) {
                lost.push(report.fence);
                continue;
            }
            self.candidates.remove(&report.id);
            self.active.insert(report.id.clone());
            if self.jobs[&report.id].cancel {
                cancelled.push(report.fence);
            }
        }
        self.asked(ask);
        (lost, cancelled)
    }

    /// Options of a worker that started before count for nothing. Returns the word of the answer.
    pub fn declare_again(&mut self, stamp: u64) -> &'static str {
        let newer = stamp > self.declared_at;
        self.declared_at = self.declared_at.max(stamp);
        if newer { "declared" } else { "kept" }
    }

    /// Why a sweep does nothing, if so.
    pub fn refuses_sweep(&self, epoch: u64, waited: u64) -> Option<&'static str> {
        let undeclared = (self.declared_at == 0).then_some("undeclared");
        let moved = (epoch != self.epoch).then_some("moved");
        undeclared.or(moved).or((waited < self.interval).then_some("early"))
    }

    /// Decides about these candidates, by the table in `sweep.lua`; and says what is told of them.
    pub fn resolve(&mut self, ids: &[String], default_max: u32) -> Vec<Resolved> {
        let (mut resolved, mut recovered) = (Vec::new(), Vec::new());
        let (mut failed, mut cancelled) = (Vec::new(), Vec::new());
        for id in ids {
            assert!(self.candidates.contains(id), "{id} was no candidate");
            let Place::Running { worker, fence } = self.jobs[id].place.clone() else { panic!("{id} did not run") };
            self.leave(id);
            let job = self.job(id);
            job.stalls += 1;
            let (count, max) = (job.stalls, job.max_count.unwrap_or(default_max));
            let action = if job.cancel {
                self.end(id, State::Cancelled);
                cancelled.push(format!("cancelled {id}"));
                "cancelled"
            } else if count > max {
                self.end(id, State::Failed);
                failed.push(format!("failed {id} worker_crashed"));
                "failed"
            } else {
                recovered.push(id.clone());
                "recovered"
            };
            self.events.push(format!("stalled {id} {count} {action} {worker}"));
            resolved.push(Resolved { id: id.clone(), count, action: action.to_owned(), worker, fence });
        }
        self.events.extend(failed.into_iter().chain(cancelled));
        self.put_in_front(&recovered);
        resolved
    }

    pub fn snapshot(&mut self, ask: u64) {
        assert!(self.candidates.is_empty(), "a snapshot over candidates");
        self.candidates = std::mem::take(&mut self.active);
        self.epoch += 1;
        (self.interval, self.ask) = (self.ask.max(ask), ask);
    }

    pub fn cancel(&mut self, id: &str) -> String {
        if !self.is_there(id) {
            return "unknown".to_owned();
        }
        let job = self.job(id);
        match job.place {
            Place::Ended(state) => return format!("terminal {}", format!("{state:?}").to_lowercase()),
            Place::Running { .. } => {
                job.cancel = true;
                return "requested".to_owned();
            }
            Place::Waiting | Place::Delayed => {}
        }
        self.lists.iter_mut().chain([&mut self.due]).for_each(|list| list.retain(|other| other != id));
        self.delayed.remove(id);
        self.end(id, State::Cancelled);
        self.events.push(format!("cancelled {id}"));
        "cancelled".to_owned()
    }

    /// The jobs that are not terminal.
    pub fn open(&self) -> usize {
        self.jobs.values().filter(|job| !matches!(job.place, Place::Ended(_))).count()
    }

    /// A delayed job that is not due yet, so that its time can come.
    pub fn next_due(&mut self) -> Option<(String, usize)> {
        let id = self.delayed.iter().find(|id| !self.due.contains(id))?.clone();
        self.due.push(id.clone());
        Some((id, self.due.len()))
    }

    pub fn candidates(&self) -> usize {
        self.candidates.len()
    }

    pub fn active(&self) -> usize {
        self.active.len()
    }

    /// How many jobs of a terminal state are kept.
    pub fn ended(&self, state: State) -> usize {
        if self.keep { self.jobs.values().filter(|job| job.place == Place::Ended(state)).count() } else { 0 }
    }

    /// These are removed, and nothing is left of them.
    pub fn trim(&mut self, state: State, ids: &[String]) {
        for id in ids {
            let job = self.jobs.remove(id).unwrap_or_else(|| panic!("no job {id}"));
            assert_eq!(job.place, Place::Ended(state), "{id} was removed");
        }
    }

    pub fn interval(&self) -> u64 {
        self.interval
    }

    pub fn view(&self) -> View {
        let mut view = View {
            lists: self.lists.clone(),
            delayed: self.delayed.clone(),
            active: self.active.clone(),
            candidates: self.candidates.clone(),
            ..View::default()
        };
        for (id, job) in &self.jobs {
            match &job.place {
                Place::Running { worker, fence } => {
                    view.locks.insert(id.clone(), format!("{worker}:{fence}"));
                    if job.cancel {
                        view.cancelling.insert(id.clone());
                    }
                }
                Place::Ended(_) if !self.keep => continue,
                Place::Ended(state) => {
                    view.ended[*state as usize].insert(id.clone());
                }
                Place::Waiting | Place::Delayed => {}
            }
            view.payload.insert(id.clone());
            if job.attempt > 0 {
                view.attempt.insert(id.clone(), job.attempt);
            }
            if job.stalls > 0 {
                view.stalled_count.insert(id.clone(), job.stalls);
            }
        }
        view
    }

    /// Known to Redis: of a job that is not kept nothing is left when it has ended.
    fn is_there(&self, id: &str) -> bool {
        self.jobs.get(id).is_some_and(|job| self.keep || !matches!(job.place, Place::Ended(_)))
    }

    fn job(&mut self, id: &str) -> &mut Job {
        self.jobs.get_mut(id).unwrap_or_else(|| panic!("no job {id}"))
    }

    fn holds(&self, worker: &str, report: &Report) -> bool {
        let place = Place::Running { worker: worker.to_owned(), fence: report.fence };
        self.jobs.get(&report.id).is_some_and(|job| job.place == place)
    }

    /// Out of the running sets.
    fn leave(&mut self, id: &str) {
        self.active.remove(id);
        self.candidates.remove(id);
    }

    fn end(&mut self, id: &str, state: State) {
        let job = self.job(id);
        (job.place, job.cancel) = (Place::Ended(state), false);
    }

    fn note_attempt(&mut self, report: &Report) {
        if let Said::Failed { attempt } | Said::Retry { attempt } = report.said {
            self.job(&report.id).attempt = attempt;
        }
    }

    /// The first of them is the next of its list.
    fn put_in_front(&mut self, ids: &[String]) {
        for id in ids.iter().rev() {
            let job = self.job(id);
            job.place = Place::Waiting;
            let list = job.priority as usize;
            self.lists[list].insert(0, id.clone());
        }
    }

    fn asked(&mut self, ask: u64) {
        self.interval = self.interval.max(ask);
        self.ask = self.ask.max(ask);
    }
}
