//! The specification of the scripts as plain data: no Redis, no clock.

mod hooks;
mod parked;

use std::collections::{BTreeMap, BTreeSet};

pub use hooks::Outcome;
pub use parked::{PLAIN, Verdict, Wait, Waits, text as grace_text};

/// The key of a job, in runs with keys: by its number. Some jobs have none.
pub fn key_of(id: &str) -> Option<String> {
    let number: u32 = id.strip_prefix("job-")?.parse().ok()?;
    (!number.is_multiple_of(4)).then(|| format!("key {}", number % 4))
}

/// The columns and the place of a job.
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
    /// Held, and begun before it had a slot.
    pub early: bool,
    /// A worker crashed that held it begun, since a person last retried it.
    pub crashed: bool,
    /// The outcome, until the hook has run.
    pub outcome: Option<Outcome>,
}

impl Job {
    /// Whether it may begin before it has a slot: a crash is then not counted, once.
    pub fn may_begin_early(&self) -> bool {
        self.max_count != Some(0) && self.stalls == 0 && !self.crashed
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    Waiting,
    Delayed,
    Running {
        worker: String,
        fence: u64,
    },
    /// The hook has to run, now or later.
    Finalizing {
        due: bool,
    },
    Ended(State),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Completed,
    Failed,
    Cancelled,
}

impl State {
    /// All of them, in the order in which a call writes them.
    pub const ALL: [State; 3] = [State::Completed, State::Failed, State::Cancelled];

    pub fn word(self) -> &'static str {
        ["completed", "failed", "cancelled"][self as usize]
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priority {
    High,
    Normal,
    Low,
}

/// A job to dispatch.
#[derive(Clone, Debug)]
pub struct New {
    pub id: String,
    pub delayed: bool,
    pub max_count: Option<u32>,
    pub priority: Priority,
}

/// What a worker reports about a job that it holds, or once held.
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
    /// A job that was claimed ahead begins, with a slot or without one.
    Begin {
        early: bool,
    },
    /// It has not begun after all.
    Unstart,
    /// The hook ran, or failed for good.
    Hooked {
        failed: bool,
    },
    /// The hook failed this often, and runs again later.
    HookRetry {
        failed: u32,
    },
}

impl Said {
    /// Whether the worker then holds the job no longer.
    pub fn ends_the_hold(self) -> bool {
        !matches!(self, Said::Begin { .. } | Said::Unstart)
    }

    /// Their order in a call.
    pub fn rank(self) -> u8 {
        match self {
            Said::Completed => 0,
            Said::Begin { early: false } => 1,
            Said::Begin { early: true } => 2,
            _ => 3,
        }
    }

    /// Its word in an event.
    pub fn word(self) -> &'static str {
        match self {
            Said::Completed => "completed",
            Said::Failed { .. } => "failed",
            Said::Retry { .. } => "retry",
            Said::Requeue => "requeue",
            Said::Begin { .. } => "begin",
            Said::Unstart => "unstart",
            Said::Hooked { .. } => "hooked",
            Said::HookRetry { .. } => "hook_retry",
        }
    }
}

/// The request of a settle call.
#[derive(Clone, Copy, Debug)]
pub struct Want {
    pub jobs: usize,
    /// How many of them may begin, and how many have a slot.
    pub begin: usize,
    pub with_slot: usize,
    /// Whether the worker has the hook.
    pub hooks: bool,
}

/// The reply of a settle call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settled {
    pub lost: Vec<u64>,
    pub taken: Vec<u64>,
    pub first_fence: u64,
    pub claimed: Vec<String>,
    /// Per job: the stored outcome if its hook is to run, else ''.
    pub hooks: Vec<String>,
    /// How many of them begin.
    pub begin: i64,
}

/// The crash option of the task.
#[derive(Clone, Copy, Debug)]
pub struct Crash {
    pub on: &'static str,
    /// The maximal number of runs of a job.
    pub attempts: u32,
    /// Whether max_count is set for the task.
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

/// A decision of a sweep about a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolved {
    pub id: String,
    pub count: u32,
    pub action: String,
    pub worker: String,
    pub fence: u64,
}

/// The data of a task, in the form in which it can be read back from Redis.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    pub lists: [Vec<String>; 3],
    pub delayed: BTreeSet<String>,
    pub active: BTreeSet<String>,
    pub candidates: BTreeSet<String>,
    pub locks: BTreeMap<String, String>,
    pub cancelling: BTreeSet<String>,
    pub claimed: BTreeMap<String, String>,
    pub early: BTreeMap<String, String>,
    pub ended: [BTreeSet<String>; 3],
    pub finalizing: BTreeSet<String>,
    pub outcome: BTreeMap<String, String>,
    pub payload: BTreeSet<String>,
    pub attempt: BTreeMap<String, u32>,
    pub stalled_count: BTreeMap<String, u32>,
    /// The number of tombstones by id.
    pub tombstones: BTreeMap<String, usize>,
    /// The number of tombstones, of dispatched jobs, and of ended jobs.
    pub totals: [usize; 3],
    /// What silent jobs of each phase wait for.
    pub grace: String,
    pub parked: BTreeMap<String, String>,
}

/// The expected state of a task.
#[derive(Debug)]
pub struct Model {
    pub jobs: BTreeMap<String, Job>,
    pub epoch: u64,
    /// The start of the worker whose options are in force; 0 if they are lost.
    pub declared_at: u64,
    pub crash: Crash,
    /// Events that the calls since the last check must have written, in order.
    pub events: Vec<String>,
    keep: bool,
    lists: [Vec<String>; 3],
    tombstones: BTreeMap<String, usize>,
    /// No job is claimed.
    pub paused: bool,
    /// How many jobs may be held, besides those whose hook runs.
    pub max_running: Option<usize>,
    /// How many jobs of a key may be held, if jobs have keys.
    pub per_key: Option<usize>,
    /// Whether a job with a key was dispatched. Before, jobs are claimed as in a task without keys.
    pub keyed: bool,
    /// The task has a hook.
    pub hook: bool,
    /// What silent jobs wait for, by the options in force.
    pub grace: Waits,
    parked: BTreeMap<String, parked::Mark>,
    /// When the last snapshot was taken, ms of the server; values before `began_at` were moved to it, so that waits
    /// end.
    snapshot_at: u64,
    began_at: u64,
    /// The numbers of dispatched and of ended jobs.
    came: usize,
    went: usize,
    delayed: BTreeSet<String>,
    /// The due jobs, the first one first.
    due: Vec<String>,
    ranks: usize,
    active: BTreeSet<String>,
    candidates: BTreeSet<String>,
    interval: u64,
    ask: u64,
    /// Call sequence → the number of its last call, and the reply.
    calls: BTreeMap<String, (u64, Settled)>,
}

impl Model {
    pub fn new(keep: bool, crash: Crash, began_at: u64) -> Model {
        Model {
            jobs: BTreeMap::new(),
            epoch: 0,
            declared_at: 0,
            crash,
            events: Vec::new(),
            keep,
            lists: Default::default(),
            tombstones: BTreeMap::new(),
            paused: false,
            max_running: None,
            per_key: None,
            keyed: false,
            hook: false,
            grace: PLAIN,
            parked: BTreeMap::new(),
            snapshot_at: began_at,
            began_at,
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
            let job = Job {
                place,
                attempt: 0,
                stalls: 0,
                max_count,
                priority,
                cancel: false,
                claimed: false,
                early: false,
                crashed: false,
                outcome: None,
            };
            self.jobs.insert(new.id.clone(), job);
            fresh.push(new.id.clone());
        }
        let has_keys = jobs.iter().any(|job| key_of(&job.id).is_some());
        self.keyed |= self.per_key.is_some() && has_keys && !fresh.is_empty();
        self.came += fresh.len();
        self.events.extend(fresh.into_iter().map(|id| format!("dispatched {id}")));
        existed
    }

    /// A call that was not executed before. `first_fence` is that of the reply; `finalizing` are the jobs whose hook
    /// waited before, in their order. Which keys have their turn is not modelled: `answered` are the claimed ones.
    pub fn settle(
        &mut self,
        (worker, number, ask): (&str, u64, u64),
        reports: &[Report],
        want: Want,
        (first_fence, answered): (u64, &[String]),
        finalizing: &[String],
    ) -> Settled {
        let (lost, held): (Vec<_>, Vec<_>) = reports.iter().partition(|report| !self.holds(worker, report));
        let (cancelled, others): (Vec<_>, Vec<_>) = held.into_iter().partition(|report| self.jobs[&report.id].cancel);
        let jobs = if self.paused { 0 } else { want.jobs };
        if jobs > 0 {
            self.let_due_ones_wait();
        }
        for report in others.iter().chain(&cancelled) {
            if report.said.ends_the_hold() || self.jobs[&report.id].cancel {
                self.leave(&report.id);
            }
        }
        let hooks = self.finalize(&others, &cancelled, want, finalizing);
        let (mut begin, with_slot) =
            (want.begin.saturating_sub(hooks.len()), want.with_slot.saturating_sub(hooks.len()));
        let mut jobs = jobs.saturating_sub(hooks.len());
        if let Some(most) = self.max_running {
            begin = begin.min(with_slot);
            jobs = jobs.min(with_slot).min(most.saturating_sub(self.running()));
        }
        if self.keyed {
            (begin, jobs) = (begin.min(with_slot), jobs.min(with_slot));
        }
        let claimed = match self.per_key.filter(|_| self.keyed) {
            Some(most) => self.take_turns(jobs, most, answered.get(hooks.len()..).unwrap_or_default()),
            None => self.take_heads(jobs),
        };
        for report in others.iter().filter(|report| report.said == Said::Unstart) {
            (self.job(&report.id).claimed, self.job(&report.id).early) = (true, false);
            self.events.push(format!("claimed {}", report.id));
        }
        lost.iter().filter(|report| report.said.ends_the_hold()).for_each(|report| self.refuse(report));
        if !self.hook {
            self.record_ends(&others, &cancelled);
        }
        let mut begun = self.record_others(&others);
        let strict = |id: &String| !self.jobs[id].may_begin_early();
        let begin = if self.crash.on == "recover" { begin } else { begin.min(with_slot) };
        let begin = begin.min(claimed.len());
        let begin = (with_slot..begin).find(|at| strict(&claimed[*at])).unwrap_or(begin);
        self.events.extend(claimed[begin..].iter().map(|id| format!("claimed {id}")));
        begun.extend(claimed[..begin].iter().cloned());
        self.emit_begun(&begun);
        let (begin, with_slot) = (begin + hooks.len(), with_slot + hooks.len());
        let claimed: Vec<String> = hooks.into_iter().chain(claimed).collect();
        for (at, (id, fence)) in claimed.iter().zip(first_fence..).enumerate() {
            self.job(id).place = Place::Running { worker: worker.to_owned(), fence };
            self.job(id).claimed = at >= begin;
            self.job(id).early = (with_slot..begin).contains(&at);
            self.active.insert(id.clone());
        }
        if !claimed.is_empty() {
            self.asked(ask);
        }
        let fences = |reports: Vec<&Report>| reports.into_iter().map(|report| report.fence).collect();
        let settled = Settled {
            lost: fences(lost),
            taken: fences(cancelled),
            first_fence,
            hooks: claimed.iter().map(|id| self.outcome_text(id)).collect(),
            claimed,
            begin: if self.paused { -1 - begin as i64 } else { begin as i64 },
        };
        self.calls.insert(worker.to_owned(), (number, settled.clone()));
        settled
    }

    /// How many jobs are held, besides those whose hook runs.
    pub fn running(&self) -> usize {
        self.active.union(&self.candidates).filter(|id| self.jobs[*id].outcome.is_none()).count()
    }

    /// Due delayed jobs move to their lists.
    fn let_due_ones_wait(&mut self) {
        for id in std::mem::take(&mut self.due) {
            self.delayed.remove(&id);
            self.job(&id).place = Place::Waiting;
            let list = self.jobs[&id].priority as usize;
            self.lists[list].push(id);
        }
    }

    /// This many entries leave the fronts of the lists; returns those of waiting jobs.
    fn take_heads(&mut self, want: usize) -> Vec<String> {
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
        claimed
    }

    /// Takes the jobs that the script chose: each waits, and none of its key is held over the limit.
    fn take_turns(&mut self, want: usize, most: usize, answered: &[String]) -> Vec<String> {
        assert!(answered.len() <= want, "{answered:?} of {want}");
        for (at, id) in answered.iter().enumerate() {
            assert!(self.waits(id) && !answered[..at].contains(id), "{id} does not wait");
            let before =
                |key: &str| answered[..at].iter().filter(|other| key_of(other) == Some(key.to_owned())).count();
            let over = key_of(id).filter(|key| self.held_of(key) + before(key) >= most);
            assert_eq!(over, None, "{id} is over the limit of its key");
        }
        answered.to_vec()
    }

    /// How many jobs of a key are held, besides those whose hook runs.
    pub fn held_of(&self, key: &str) -> usize {
        self.held_with_keys().iter().filter(|(own, _)| own == key).count()
    }

    /// The held jobs that have keys, besides those whose hook runs.
    pub fn held_with_keys(&self) -> BTreeSet<(String, String)> {
        let held = self.active.union(&self.candidates).filter(|id| self.jobs[*id].outcome.is_none());
        held.filter_map(|id| Some((key_of(id)?, id.clone()))).collect()
    }

    /// The waiting jobs that may be claimed now.
    pub fn claimable(&self) -> Vec<&String> {
        let full = self.max_running.is_some_and(|most| self.running() >= most);
        let is_free = |id: &str| key_of(id).is_none_or(|key| self.held_of(&key) < self.per_key.unwrap_or(usize::MAX));
        let waiting = self.jobs.iter().filter(|(_, job)| job.place == Place::Waiting).map(|(id, _)| id);
        waiting.filter(|id| !(self.paused || full) && is_free(id)).collect()
    }

    /// Takes over where entries of waiting jobs are, which keys make hard to tell. The jobs that wait must be the same.
    pub fn adopt(&mut self, view: &View) {
        let mut left = view.tombstones.clone();
        let entries = view.lists.iter().flatten();
        let waiting: BTreeSet<&String> = entries
            .filter(|id| match left.get_mut(*id) {
                Some(count) if *count > 0 => {
                    *count -= 1;
                    false
                }
                _ => true,
            })
            .collect();
        let expected = self.jobs.iter().filter(|(_, job)| job.place == Place::Waiting).map(|(id, _)| id);
        assert!(waiting.into_iter().eq(expected), "other jobs wait");
        (self.lists, self.tombstones) = (view.lists.clone(), view.tombstones.clone());
    }

    /// Reports that end no job: retries, requeues, and begins of jobs claimed ahead, which are returned.
    fn record_others(&mut self, others: &[&Report]) -> Vec<String> {
        let of = |kind: fn(Said) -> bool| others.iter().filter(move |report| kind(report.said));
        for report in of(|said| matches!(said, Said::Retry { .. })) {
            self.note_attempt(report);
            self.job(&report.id).place = Place::Delayed;
            self.delayed.insert(report.id.clone());
            self.events.push(format!("retrying {} {} {}", report.id, self.jobs[&report.id].attempt, super::FAR));
        }
        let mut begun: Vec<String> = Vec::new();
        for report in of(|said| matches!(said, Said::Begin { .. })) {
            if !self.paused {
                self.job(&report.id).claimed = false;
                self.job(&report.id).early = report.said == Said::Begin { early: true };
                begun.push(report.id.clone());
            }
        }
        let requeued = of(|said| said == Said::Requeue).map(|report| report.id.clone());
        let requeued: Vec<_> = requeued.filter(|id| !matches!(self.jobs[id].place, Place::Finalizing { .. })).collect();
        self.events.extend(requeued.iter().map(|id| format!("requeued {id}")));
        self.put_in_front(&requeued);
        begun
    }

    fn emit_begun(&mut self, begun: &[String]) {
        let before = |job: &Job| job.attempt + job.stalls > 0;
        self.events.extend(begun.iter().filter(|id| !before(&self.jobs[*id])).map(|id| format!("started {id}")));
        for id in begun.iter().filter(|id| before(&self.jobs[*id])) {
            self.events.push(format!("restarted {id} {} {}", self.jobs[id].attempt, self.jobs[id].stalls));
        }
    }

    /// The number of the last call of a sequence, and the reply if it is repeated.
    pub fn repeated(&self, worker: &str) -> Option<(u64, Settled)> {
        let (number, mut settled) = self.calls.get(worker)?.clone();
        for ((id, hook), fence) in settled.claimed.iter_mut().zip(&mut settled.hooks).zip(settled.first_fence..) {
            let report = Report { id: id.clone(), fence, said: Said::Requeue };
            if !self.holds(worker, &report) {
                "{}".clone_into(id);
                hook.clear();
            }
        }
        Some((number, settled))
    }

    /// Returns the lost fences, and those with a pending cancel.
    pub fn extend(&mut self, worker: &str, ask: u64, held: &[Report]) -> (Vec<u64>, Vec<u64>) {
        let (mut lost, mut cancelled) = (Vec::new(), Vec::new());
        for report in held {
            if !self.holds(worker, report) {
                lost.push(report.fence);
                continue;
            }
            self.candidates.remove(&report.id);
            self.active.insert(report.id.clone());
            self.hear(&report.id);
            if self.jobs[&report.id].cancel {
                cancelled.push(report.fence);
            }
        }
        self.asked(ask);
        (lost, cancelled)
    }

    /// Ignores options of a worker that started earlier. Returns the word of the reply.
    pub fn declare_again(&mut self, stamp: u64, hook: bool, grace: Waits) -> &'static str {
        let newer = stamp > self.declared_at;
        self.hook = if newer { hook } else { self.hook };
        if newer {
            self.be_patient(grace);
        }
        self.declared_at = self.declared_at.max(stamp);
        if newer { "declared" } else { "kept" }
    }

    /// Why a sweep does nothing, if so.
    pub fn refuses_sweep(&self, epoch: u64, waited: u64) -> Option<&'static str> {
        let undeclared = (self.declared_at == 0).then_some("undeclared");
        let moved = (epoch != self.epoch).then_some("moved");
        undeclared.or(moved).or((waited < self.interval).then_some("early"))
    }

    /// Decides about these held jobs by the table in `sweep.lua`, and returns the reported decisions.
    pub fn resolve(&mut self, ids: &[String], default_max: u32, verdict: Verdict) -> Vec<Resolved> {
        let (mut resolved, mut recovered, mut requeued) = (Vec::new(), Vec::<(u64, String)>::new(), Vec::new());
        let (mut failed, mut retried, mut cancelled, mut finals) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for id in ids {
            let Place::Running { worker, fence } = self.jobs[id].place.clone() else { panic!("{id} did not run") };
            self.leave(id);
            if let Some((count, action)) = self.stall_hook(id, default_max, verdict) {
                if action != "requeued" {
                    finals.push(id.clone());
                }
                self.events.push(format!("stalled {id} {count} {action} {worker}"));
                resolved.push(Resolved { id: id.clone(), count, action: action.to_owned(), worker, fence });
                continue;
            }
            let job = self.jobs.get_mut(id).unwrap();
            if job.claimed && !job.cancel && verdict != Verdict::Fail {
                requeued.push((fence, id.clone()));
                let count = job.stalls;
                self.events.push(format!("stalled {id} {count} requeued {worker}"));
                resolved.push(Resolved { id: id.clone(), count, action: "requeued".to_owned(), worker, fence });
                continue;
            }
            let has_crashed = std::mem::replace(&mut job.crashed, true);
            if job.early && !has_crashed && !job.cancel && verdict != Verdict::Fail {
                recovered.push((fence, id.clone()));
                let count = job.stalls;
                self.events.push(format!("stalled {id} {count} requeued {worker}"));
                resolved.push(Resolved { id: id.clone(), count, action: "requeued".to_owned(), worker, fence });
                continue;
            }
            job.stalls += 1;
            let (count, max) = (job.stalls, job.max_count.unwrap_or(default_max));
            let action = if job.cancel {
                cancelled.push(self.end(id, Outcome::cancelled()));
                "cancelled"
            } else if verdict == Verdict::Fail {
                failed.push(self.end(id, Outcome::failed("worker_crashed", "-")));
                "failed"
            } else if verdict == Verdict::Recover {
                recovered.push((fence, id.clone()));
                "recovered"
            } else if self.crash.is_final(count, max, job) {
                if self.crash.on == "retry" {
                    job.attempt += 1;
                }
                failed.push(self.end(id, Outcome::failed("worker_crashed", "-")));
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
        // All jobs to be finalized are in one field, at the position of the first.
        if self.hook && !failed.is_empty() {
            failed.append(&mut cancelled);
        }
        self.events.extend(failed.into_iter().chain(retried).chain(cancelled));
        self.events.extend(finals.iter().map(|id| format!("hook_failed {id} worker_crashed")));
        self.end_finalized(&finals);
        for mut jobs in [requeued, recovered] {
            jobs.sort_unstable();
            self.put_in_front(&jobs.into_iter().map(|(_, id)| id).collect::<Vec<_>>());
        }
        resolved
    }

    /// `at` is the time of the snapshot, ms of the server.
    pub fn snapshot(&mut self, ask: u64, at: u64) {
        assert!(self.candidates.is_empty(), "a snapshot over candidates");
        self.snapshot_at = at;
        self.drop_marks();
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
            "waiting" => *self.tombstones.entry(id.to_owned()).or_default() += 1,
            "delayed" => self.leave_delayed(id),
            other => return other.to_owned(),
        }
        let is_waiting = self.waits(id);
        // Whether an undeclared task has a hook is decided by its first settle.
        let is_declared = self.declared_at > 0;
        let told =
            if is_declared { self.end(id, Outcome::cancelled()) } else { self.store_outcome(id, Outcome::cancelled()) };
        if is_waiting {
            self.strip();
        }
        self.events.push(told);
        "ended".to_owned()
    }

    /// A person retries it as if it had never run.
    pub fn retry(&mut self, id: &str) -> String {
        let state = self.state(id);
        if !["failed", "cancelled"].contains(&state) {
            return state.to_owned();
        }
        let job = self.job(id);
        (job.place, job.attempt, job.stalls, job.cancel) = (Place::Waiting, 0, 0, false);
        job.crashed = false;
        let list = job.priority as usize;
        self.lists[list].push(id.to_owned());
        self.events.push(format!("manually_retried {id}"));
        "retried".to_owned()
    }

    pub fn remove(&mut self, id: &str) -> String {
        match self.state(id) {
            // A worker that runs a hook holds the job, too.
            _ if matches!(self.jobs.get(id).map(|job| &job.place), Some(Place::Running { .. }))
                && self.is_there(id) =>
            {
                return self.state(id).to_owned();
            }
            "unknown" => return "unknown".to_owned(),
            "waiting" => *self.tombstones.entry(id.to_owned()).or_default() += 1,
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

    /// The event for an outcome of a job that its worker does not hold.
    pub fn refuse(&mut self, report: &Report) {
        self.events.push(format!("outcome_rejected {} {} {}", report.id, report.fence, report.said.word()));
    }

    /// The word for the place of the job.
    fn state(&self, id: &str) -> &'static str {
        let place = self.jobs.get(id).filter(|_| self.is_there(id)).map(|job| &job.place);
        match place {
            None => "unknown",
            Some(Place::Waiting) => "waiting",
            Some(Place::Delayed) => "delayed",
            Some(Place::Running { .. }) if self.jobs[id].outcome.is_some() => "finalizing",
            Some(Place::Running { .. }) => "running",
            Some(Place::Finalizing { .. }) => "finalizing",
            Some(Place::Ended(state)) => state.word(),
        }
    }

    fn waits(&self, id: &str) -> bool {
        self.jobs.get(id).is_some_and(|job| job.place == Place::Waiting)
    }

    fn leave_delayed(&mut self, id: &str) {
        self.delayed.remove(id);
        self.due.retain(|other| other != id);
    }

    /// One tombstone of the id is an entry again, or is removed.
    fn uncount(&mut self, id: &str) {
        let count = self.tombstones.get_mut(id).unwrap_or_else(|| panic!("{id} has an extra entry"));
        *count -= 1;
        if *count == 0 {
            self.tombstones.remove(id);
        }
    }

    /// Removes the tombstones at the fronts of the lists.
    pub fn strip(&mut self) {
        for list in 0..3 {
            while let Some(id) = self.lists[list].first().cloned() {
                if self.waits(&id) || !self.tombstones.contains_key(&id) {
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

    pub fn a_delayed_one(&self) -> Option<String> {
        self.delayed.first().cloned()
    }

    /// Makes a delayed job due.
    pub fn next_due(&mut self) -> Option<(String, usize)> {
        let id = self.delayed.iter().find(|id| !self.due.contains(id))?.clone();
        self.due.push(id.clone());
        // Others may leave before it: no two may have one rank.
        self.ranks += 1;
        Some((id, self.ranks))
    }

    pub fn candidates(&self) -> &BTreeSet<String> {
        &self.candidates
    }

    pub fn active(&self) -> usize {
        self.active.len()
    }

    /// How many jobs of a terminal state are kept.
    pub fn ended(&self, state: State) -> usize {
        if self.keep { self.jobs.values().filter(|job| job.place == Place::Ended(state)).count() } else { 0 }
    }

    /// Removes these jobs with all their data.
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
            tombstones: self.tombstones.clone(),
            totals: [self.tombstones.values().sum(), self.came, self.went],
            grace: parked::text(self.grace),
            parked: self.parked.iter().map(|(id, mark)| (id.clone(), mark.text())).collect(),
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
                    if job.early {
                        view.early.insert(id.clone(), fence.to_string());
                    }
                }
                Place::Ended(_) if !self.keep => continue,
                Place::Ended(state) => {
                    view.ended[*state as usize].insert(id.clone());
                }
                Place::Finalizing { .. } => {
                    view.finalizing.insert(id.clone());
                }
                Place::Waiting | Place::Delayed => {}
            }
            if let Some(outcome) = &job.outcome {
                view.outcome.insert(id.clone(), outcome.text());
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

    /// Whether Redis knows the job: an ended job that is not kept leaves nothing.
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

    /// Removes it from the running sets.
    fn leave(&mut self, id: &str) {
        self.active.remove(id);
        self.candidates.remove(id);
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
