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
    /// Held, and not begun.
    pub claimed: bool,
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
    Failed {
        attempt: u32,
    },
    Retry {
        attempt: u32,
    },
    Requeue,
    /// One that was claimed ahead begins.
    Begin,
    /// It has not begun after all.
    Unstart,
}

impl Said {
    /// Whether the worker holds the job no more.
    pub fn ends_the_hold(self) -> bool {
        !matches!(self, Said::Begin | Said::Unstart)
    }

    /// The order in which a call has them.
    pub fn rank(self) -> u8 {
        match self {
            Said::Completed => 0,
            Said::Begin => 1,
            _ => 2,
        }
    }

    /// Its word in an event.
    pub fn word(self) -> &'static str {
        match self {
            Said::Completed => "completed",
            Said::Failed { .. } => "failed",
            Said::Retry { .. } => "retry",
            Said::Requeue => "requeue",
            Said::Begin => "begin",
            Said::Unstart => "unstart",
        }
    }
}

/// What a settle call answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settled {
    pub lost: Vec<u64>,
    pub taken: Vec<u64>,
    pub first_fence: u64,
    pub claimed: Vec<String>,
    /// How many of them begin.
    pub begin: i64,
}

/// What the task does with a job whose worker died.
#[derive(Clone, Copy, Debug)]
pub struct Crash {
    pub on: &'static str,
    /// Runs that a job gets.
    pub attempts: u32,
    /// Whether the bound of stalls is the task's own.
    pub max_set: bool,
}

impl Crash {
    fn is_final(self, stalls: u32, max: u32, job: &Job) -> bool {
        let is_past = stalls > max;
        match self.on {
            "fail" => true,
            "retry" => is_past && (self.max_set || job.max_count.is_some()) || job.attempt + 1 >= self.attempts,
            _ => is_past,
        }
    }
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
    pub claimed: BTreeMap<String, String>,
    pub ended: [BTreeSet<String>; 3],
    pub payload: BTreeSet<String>,
    pub attempt: BTreeMap<String, u32>,
    pub stalled_count: BTreeMap<String, u32>,
    /// How many entries of an id in the lists are none of a waiting job.
    pub ghosts: BTreeMap<String, usize>,
    /// How many ghosts there are, how many jobs were dispatched, and how many have ended.
    pub totals: [usize; 3],
}

/// A task as it should be.
#[derive(Debug)]
pub struct Model {
    pub jobs: BTreeMap<String, Job>,
    pub epoch: u64,
    /// The start of the worker whose options are in force; 0 when they are lost.
    pub declared_at: u64,
    pub crash: Crash,
    /// Events that the calls since the last look must have written, in order.
    pub events: Vec<String>,
    keep: bool,
    lists: [Vec<String>; 3],
    ghosts: BTreeMap<String, usize>,
    /// No job is claimed.
    pub paused: bool,
    /// How many were dispatched, and how many have ended.
    came: usize,
    went: usize,
    delayed: BTreeSet<String>,
    /// Those of them that are due, the first one first.
    due: Vec<String>,
    ranks: usize,
    active: BTreeSet<String>,
    candidates: BTreeSet<String>,
    interval: u64,
    ask: u64,
    /// Line of calls → number of the last one, and its answer.
    calls: BTreeMap<String, (u64, Settled)>,
}

impl Model {
    pub fn new(keep: bool, crash: Crash) -> Model {
        Model {
            jobs: BTreeMap::new(),
            epoch: 0,
            declared_at: 0,
            crash,
            events: Vec::new(),
            keep,
            lists: Default::default(),
            ghosts: BTreeMap::new(),
            paused: false,
            came: 0,
            went: 0,
            delayed: BTreeSet::new(),
            due: Vec::new(),
            ranks: 0,
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
            let job = Job { place, attempt: 0, stalls: 0, max_count, priority, cancel: false, claimed: false };
            self.jobs.insert(new.id.clone(), job);
            fresh.push(new.id.clone());
        }
        self.came += fresh.len();
        self.events.extend(fresh.into_iter().map(|id| format!("dispatched {id}")));
        existed
    }

    /// A call that was not executed before. ``first_fence` is that of the answer.
    pub fn settle(
        &mut self,
        (worker, number, ask): (&str, u64, u64),
        reports: &[Report],
        (want, begin, at_once): (usize, usize, usize),
        first_fence: u64,
    ) -> Settled {
        let (lost, held): (Vec<_>, Vec<_>) = reports.iter().partition(|report| !self.holds(worker, report));
        let want = if self.paused { 0 } else { want };
        let due = if want > 0 { std::mem::take(&mut self.due) } else { Vec::new() };
        for id in due {
            self.delayed.remove(&id);
            self.job(&id).place = Place::Waiting;
            let list = self.jobs[&id].priority as usize;
            self.lists[list].push(id);
        }
        self.strip();
        let mut heads: Vec<String> = Vec::new();
        for list in &mut self.lists {
            let count = list.len().min(want - heads.len());
            heads.extend(list.drain(..count));
        }
        let (mut claimed, mut seen) = (Vec::new(), BTreeSet::new());
        for id in heads {
            if seen.insert(id.clone()) && self.waits(&id) {
                claimed.push(id);
            } else {
                self.uncount(&id);
            }
        }
        let (cancelled, others): (Vec<_>, Vec<_>) = held.into_iter().partition(|report| self.jobs[&report.id].cancel);
        for report in others.iter().filter(|report| report.said == Said::Unstart) {
            self.job(&report.id).claimed = true;
            self.events.push(format!("claimed {}", report.id));
        }
        lost.iter().filter(|report| report.said.ends_the_hold()).for_each(|report| self.refuse(report));
        for report in others.iter().chain(&cancelled) {
            if report.said.ends_the_hold() || self.jobs[&report.id].cancel {
                self.leave(&report.id);
            }
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
        let begins: Vec<_> = of(|said| said == Said::Begin).collect();
        let requeued: Vec<_> = of(|said| said == Said::Requeue).map(|report| report.id.clone()).collect();
        let taken: Vec<u64> = cancelled.iter().map(|report| report.fence).collect();
        let mut begun: Vec<String> = Vec::new();
        for report in begins {
            if !self.paused {
                self.job(&report.id).claimed = false;
                begun.push(report.id.clone());
            }
        }
        self.events.extend(requeued.iter().map(|id| format!("requeued {id}")));
        self.put_in_front(&requeued);
        for report in &cancelled {
            self.end(&report.id, State::Cancelled);
            self.events.push(format!("cancelled {}", report.id));
        }
        let strict = |id: &String| self.jobs[id].max_count == Some(0) || self.jobs[id].stalls > 0;
        let begin = (0..begin.min(claimed.len())).find(|at| *at >= at_once && strict(&claimed[*at])).unwrap_or(begin);
        let begin = begin.min(claimed.len());
        self.events.extend(claimed[begin..].iter().map(|id| format!("claimed {id}")));
        begun.extend(claimed[..begin].iter().cloned());
        let before = |job: &Job| job.attempt + job.stalls > 0;
        self.events.extend(begun.iter().filter(|id| !before(&self.jobs[*id])).map(|id| format!("started {id}")));
        for id in begun.iter().filter(|id| before(&self.jobs[*id])) {
            self.events.push(format!("restarted {id} {} {}", self.jobs[id].attempt, self.jobs[id].stalls));
        }
        for (at, (id, fence)) in claimed.iter().zip(first_fence..).enumerate() {
            self.job(id).place = Place::Running { worker: worker.to_owned(), fence };
            self.job(id).claimed = at >= begin;
            self.active.insert(id.clone());
        }
        if !claimed.is_empty() {
            self.asked(ask);
        }
        let fences = |reports: Vec<&Report>| reports.into_iter().map(|report| report.fence).collect();
        let settled = Settled {
            lost: fences(lost),
            taken,
            first_fence,
            claimed,
            begin: if self.paused { -1 } else { begin as i64 },
        };
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
        let (mut resolved, mut recovered, mut requeued) = (Vec::new(), Vec::<(u64, String)>::new(), Vec::new());
        let (mut failed, mut retried, mut cancelled) = (Vec::new(), Vec::new(), Vec::new());
        for id in ids {
            assert!(self.candidates.contains(id), "{id} was no candidate");
            let Place::Running { worker, fence } = self.jobs[id].place.clone() else { panic!("{id} did not run") };
            self.leave(id);
            let job = self.jobs.get_mut(id).unwrap();
            if job.claimed && !job.cancel {
                requeued.push((fence, id.clone()));
                let count = job.stalls;
                self.events.push(format!("stalled {id} {count} requeued {worker}"));
                resolved.push(Resolved { id: id.clone(), count, action: "requeued".to_owned(), worker, fence });
                continue;
            }
            job.stalls += 1;
            let (count, max) = (job.stalls, job.max_count.unwrap_or(default_max));
            let action = if job.cancel {
                self.end(id, State::Cancelled);
                cancelled.push(format!("cancelled {id}"));
                "cancelled"
            } else if self.crash.is_final(count, max, job) {
                if self.crash.on == "retry" {
                    job.attempt += 1;
                }
                self.end(id, State::Failed);
                failed.push(format!("failed {id} worker_crashed"));
                "failed"
            } else if self.crash.on == "retry" {
                job.attempt += 1;
                job.place = Place::Delayed;
                retried.push(format!("retrying {id} {} {}", job.attempt, super::FAR));
                self.delayed.insert(id.clone());
                "retrying"
            } else {
                recovered.push((fence, id.clone()));
                "recovered"
            };
            self.events.push(format!("stalled {id} {count} {action} {worker}"));
            resolved.push(Resolved { id: id.clone(), count, action: action.to_owned(), worker, fence });
        }
        self.events.extend(failed.into_iter().chain(retried).chain(cancelled));
        for mut jobs in [requeued, recovered] {
            jobs.sort_unstable();
            self.put_in_front(&jobs.into_iter().map(|(_, id)| id).collect::<Vec<_>>());
        }
        resolved
    }

    pub fn snapshot(&mut self, ask: u64) {
        assert!(self.candidates.is_empty(), "a snapshot over candidates");
        self.candidates = std::mem::take(&mut self.active);
        self.epoch += 1;
        (self.interval, self.ask) = (self.ask.max(ask), ask);
    }

    pub fn cancel(&mut self, id: &str) -> String {
        match self.state(id) {
            "running" => {
                self.job(id).cancel = true;
                return "requested".to_owned();
            }
            "waiting" => *self.ghosts.entry(id.to_owned()).or_default() += 1,
            "delayed" => self.leave_delayed(id),
            other => return other.to_owned(),
        }
        let is_waiting = self.waits(id);
        self.end(id, State::Cancelled);
        if is_waiting {
            self.strip();
        }
        self.events.push(format!("cancelled {id}"));
        "ended".to_owned()
    }

    /// A person lets it run as if it had never run.
    pub fn retry(&mut self, id: &str) -> String {
        let state = self.state(id);
        if !["failed", "cancelled"].contains(&state) {
            return state.to_owned();
        }
        let job = self.job(id);
        (job.place, job.attempt, job.stalls, job.cancel) = (Place::Waiting, 0, 0, false);
        let list = job.priority as usize;
        self.lists[list].push(id.to_owned());
        self.events.push(format!("retried {id}"));
        "retried".to_owned()
    }

    pub fn remove(&mut self, id: &str) -> String {
        match self.state(id) {
            state @ ("running" | "unknown") => return state.to_owned(),
            "waiting" => *self.ghosts.entry(id.to_owned()).or_default() += 1,
            "delayed" => self.leave_delayed(id),
            _ => {}
        }
        let is_waiting = self.waits(id);
        self.jobs.remove(id);
        if is_waiting {
            self.strip();
        }
        self.events.push(format!("removed {id}"));
        "removed".to_owned()
    }

    pub fn run_now(&mut self, id: &str) -> String {
        let state = self.state(id);
        if state != "delayed" {
            return state.to_owned();
        }
        self.leave_delayed(id);
        self.put_in_front(&[id.to_owned()]);
        self.events.push(format!("promoted {id}"));
        "promoted".to_owned()
    }

    /// What is told of an outcome of a job that its worker does not hold.
    pub fn refuse(&mut self, report: &Report) {
        self.events.push(format!("refused {} {} {}", report.id, report.fence, report.said.word()));
    }

    /// The word for where the job is.
    fn state(&self, id: &str) -> &'static str {
        let place = self.jobs.get(id).filter(|_| self.is_there(id)).map(|job| &job.place);
        match place {
            None => "unknown",
            Some(Place::Waiting) => "waiting",
            Some(Place::Delayed) => "delayed",
            Some(Place::Running { .. }) => "running",
            Some(Place::Ended(State::Completed)) => "completed",
            Some(Place::Ended(State::Failed)) => "failed",
            Some(Place::Ended(State::Cancelled)) => "cancelled",
        }
    }

    fn waits(&self, id: &str) -> bool {
        self.jobs.get(id).is_some_and(|job| job.place == Place::Waiting)
    }

    fn leave_delayed(&mut self, id: &str) {
        self.delayed.remove(id);
        self.due.retain(|other| other != id);
    }

    /// One entry of the id that was a ghost is none any more, or is gone.
    fn uncount(&mut self, id: &str) {
        let count = self.ghosts.get_mut(id).unwrap_or_else(|| panic!("{id} has an entry too many"));
        *count -= 1;
        if *count == 0 {
            self.ghosts.remove(id);
        }
    }

    /// The ghosts at the heads of the lists go.
    pub fn strip(&mut self) {
        for list in 0..3 {
            while let Some(id) = self.lists[list].first().cloned() {
                if self.waits(&id) || !self.ghosts.contains_key(&id) {
                    break;
                }
                self.lists[list].remove(0);
                self.uncount(&id);
            }
        }
    }

    /// The jobs that are not terminal.
    pub fn open(&self) -> usize {
        self.jobs.values().filter(|job| !matches!(job.place, Place::Ended(_))).count()
    }

    /// A delayed job that is not due yet, so that its time can come.
    pub fn next_due(&mut self) -> Option<(String, usize)> {
        let id = self.delayed.iter().find(|id| !self.due.contains(id))?.clone();
        self.due.push(id.clone());
        // Others may leave before: no two of them are to have one rank.
        self.ranks += 1;
        Some((id, self.ranks))
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
            ghosts: self.ghosts.clone(),
            totals: [self.ghosts.values().sum(), self.came, self.went],
            ..View::default()
        };
        for (id, job) in &self.jobs {
            match &job.place {
                Place::Running { worker, fence } => {
                    view.locks.insert(id.clone(), format!("{worker}:{fence}"));
                    if job.cancel {
                        view.cancelling.insert(id.clone());
                    }
                    if job.claimed {
                        view.claimed.insert(id.clone(), fence.to_string());
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
        self.went += 1;
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
