//! What an outsider knows about the jobs of a task with keys: only what the replies said.

use std::collections::{BTreeMap, BTreeSet};

use crate::simulation::lanes::nouns::{Answer, Hold, Job, Outcome, Own, PerKey, Settle, State, Told};

#[derive(Clone, Debug)]
pub struct Books {
    pub jobs: BTreeMap<String, Job>,
    pub per_key: PerKey,
    /// The keys with settings of their own.
    pub own: BTreeMap<String, Own>,
    /// How many jobs may run; 0: any number.
    pub max_running: usize,
    pub is_paused: bool,
    /// Whether a job with a key was dispatched.
    pub is_keyed: bool,
    /// Redis lost a key about lanes, and no keeper has looked since.
    pub is_broken: bool,
    /// The options are new, and no claim has looked since.
    pub is_declared: bool,
    /// Whether ended jobs are kept, by state.
    keeps: [(&'static str, bool); 3],
    /// When jobs of each key started, us.
    starts: BTreeMap<String, Vec<u64>>,
    /// Until when each key rests, ms; of the empty key: until when the whole task rests. Its handlers asked for that.
    rests: BTreeMap<String, u64>,
    /// Until when the whole task rests at most: even the report of a lost job may let it rest.
    pub longest_rest: u64,
    /// The last call of each worker, and what it claimed under which fences.
    answers: BTreeMap<String, (u64, Answer)>,
    /// The last job with each unique key.
    pub uniques: BTreeMap<String, String>,
    /// How many jobs have ended.
    pub ended: usize,
}

impl Books {
    pub fn new(per_key: PerKey, max_running: usize, kept: [bool; 3]) -> Books {
        Books {
            jobs: BTreeMap::new(),
            per_key,
            own: BTreeMap::new(),
            max_running,
            is_paused: false,
            is_keyed: false,
            is_broken: false,
            is_declared: true,
            keeps: [("completed", kept[0]), ("failed", kept[1]), ("cancelled", kept[2])],
            starts: BTreeMap::new(),
            rests: BTreeMap::new(),
            longest_rest: 0,
            answers: BTreeMap::new(),
            uniques: BTreeMap::new(),
            ended: 0,
        }
    }

    pub fn state(&self, id: &str) -> &State {
        self.jobs.get(id).map_or(&State::Gone, |job| &job.state)
    }

    /// The word of an action on a job that leaves it as it is.
    pub fn word(&self, id: &str) -> &'static str {
        match self.state(id) {
            State::Waiting => "waiting",
            State::Delayed { .. } => "delayed",
            State::Held(_) => "running",
            State::Ended(word) => word,
            State::Gone => "unknown",
        }
    }

    pub fn keeps(&self) -> impl Iterator<Item = (&'static str, bool)> {
        self.keeps.into_iter()
    }

    /// The jobs in one of these states, in order.
    pub fn ids(&self, of: impl Fn(&State) -> bool) -> Vec<String> {
        self.jobs.iter().filter(|(_, job)| of(&job.state)).map(|(id, _)| id.clone()).collect()
    }

    pub fn held(&self) -> impl Iterator<Item = (&String, &Job, &Hold)> {
        self.jobs.iter().filter_map(|(id, job)| match &job.state {
            State::Held(hold) => Some((id, job, hold)),
            _ => None,
        })
    }

    /// How many jobs of the key have one of its slots.
    pub fn slots_of(&self, key: &str) -> usize {
        self.held().filter(|(_, job, hold)| job.key == key && hold.has_slot).count()
    }

    /// The limits of the key.
    pub fn limits_of(&self, key: &str) -> PerKey {
        self.own.get(key).and_then(|own| own.limits).unwrap_or(self.per_key)
    }

    pub fn is_key_paused(&self, key: &str) -> bool {
        self.own.get(key).is_some_and(|own| own.is_paused)
    }

    pub fn has_free_slot(&self, key: &str) -> bool {
        let most = self.limits_of(key).most;
        key.is_empty() || most == 0 || self.slots_of(key) < most
    }

    /// A person changed the settings of a key. Other limits end its rest.
    pub fn put(&mut self, key: &str, own: Own, ends_rest: bool) {
        if ends_rest {
            self.rests.remove(key);
        }
        self.own.insert(key.to_owned(), own);
        self.forget_starts();
    }

    /// Redis counts no starts of keys without a rate.
    fn forget_starts(&mut self) {
        let mut starts = std::mem::take(&mut self.starts);
        starts.retain(|key, _| self.limits_of(key).rate > 0);
        self.starts = starts;
    }

    /// Whether `max_running` jobs run.
    pub fn is_full(&self) -> bool {
        self.max_running > 0 && self.held().count() >= self.max_running
    }

    pub fn add(&mut self, id: &str, mut job: Job) {
        // An id that is used again keeps its unique key.
        let before = self.jobs.get(id).and_then(|before| before.unique.clone());
        job.unique = job.unique.or(before);
        self.jobs.insert(id.to_owned(), job);
    }

    pub fn set(&mut self, id: &str, state: State) {
        self.jobs.get_mut(id).unwrap_or_else(|| panic!("no job {id}")).state = state;
    }

    pub fn end(&mut self, id: &str, word: &str) {
        let (word, kept) = self.keeps.into_iter().find(|(own, _)| *own == word).unwrap();
        self.ended += 1;
        self.set(id, if kept { State::Ended(word) } else { State::Gone });
    }

    pub fn holds(&self, worker: &str, id: &str, fence: u64) -> Option<&Hold> {
        match self.state(id) {
            State::Held(hold) if hold.worker == worker && hold.fence == fence => Some(hold),
            _ => None,
        }
    }

    /// A worker declared other options.
    pub fn declare(&mut self, per_key: PerKey, max_running: usize) {
        (self.per_key, self.max_running, self.is_declared) = (per_key, max_running, true);
        self.forget_starts();
    }

    /// Redis lost `turns`: no key rests.
    pub fn lose_turns(&mut self) {
        self.rests.retain(|key, _| key.is_empty());
        self.is_broken = true;
    }

    /// Redis lost `laneHeld`: the slots of the held jobs are free.
    pub fn lose_slots(&mut self) {
        for job in self.jobs.values_mut() {
            if let State::Held(hold) = &mut job.state {
                hold.has_slot = false;
            }
        }
        self.is_broken = true;
    }

    /// The reply to a repeated call of the worker: jobs that it has lost since are named `{}`. `None`: Redis has no
    /// such call.
    pub fn repeated(&self, worker: &str, number: u64) -> Option<Answer> {
        let (_, mut answer) = self.answers.get(worker).filter(|(last, _)| *last == number)?.clone();
        for (id, fence) in answer.claimed.iter_mut().zip(answer.first_fence..) {
            if self.holds(worker, id, fence).is_none() {
                "{}".clone_into(id);
            }
        }
        Some(answer)
    }

    /// A call that was executed now.
    pub fn settle(&mut self, worker: &str, call: &Settle, answer: &Answer) {
        let (mut lost, mut taken) = (BTreeSet::new(), BTreeSet::new());
        for Told { id, fence, outcome } in &call.told {
            if let Outcome::Requeue(ms @ 1..) = outcome {
                let until = answer.first_fence / 1_000 + ms;
                self.rest(id, until, self.holds(worker, id, *fence).is_some());
            }
            match self.holds(worker, id, *fence).map(|hold| hold.is_cancelled) {
                None => drop(lost.insert(*fence)),
                Some(true) => {
                    taken.insert(*fence);
                    self.end(id, "cancelled");
                }
                Some(false) => self.record(id, *outcome),
            }
        }
        assert_eq!((&lost, &taken), (&answer.lost, &answer.taken), "lost and taken of {call:?}");
        let asks = call.want > 0 || self.is_keyed && call.ahead > 0;
        if asks && !self.is_paused {
            for id in self.ids(|state| *state == State::Delayed { is_due: true }) {
                self.set(&id, State::Waiting);
            }
            self.is_declared &= call.want == 0;
        }
        assert!(answer.claimed.len() <= call.want, "{} of {} wanted jobs", answer.claimed.len(), call.want);
        for (id, fence) in answer.claimed.iter().zip(answer.first_fence..) {
            self.claim(worker, id, fence, answer.first_fence);
        }
        self.answers.insert(worker.to_owned(), (call.number, answer.clone()));
    }

    /// A handler was rate limited.
    fn rest(&mut self, id: &str, until: u64, is_held: bool) {
        let key = self.jobs.get(id).map(|job| job.key.clone()).unwrap_or_default();
        if !is_held || key.is_empty() {
            self.longest_rest = self.longest_rest.max(until);
        }
        if is_held {
            let rest = self.rests.entry(key).or_default();
            *rest = until.max(*rest);
        }
    }

    fn record(&mut self, id: &str, outcome: Outcome) {
        match outcome {
            Outcome::Completed => self.end(id, "completed"),
            Outcome::Failed => self.end(id, "failed"),
            Outcome::Retry | Outcome::Snooze | Outcome::Undecodable => self.set(id, State::Delayed { is_due: false }),
            Outcome::Requeue(_) => self.set(id, State::Waiting),
            Outcome::Begin | Outcome::Unstart => {}
        }
    }

    /// The job waited, and there is a slot for it and a start.
    fn claim(&mut self, worker: &str, id: &str, fence: u64, now_us: u64) {
        assert_eq!(*self.state(id), State::Waiting, "{id} was claimed");
        assert!(!self.is_paused, "{id} was claimed from a paused task");
        assert!(!self.is_full(), "{id} is one job more than the {} that may run", self.max_running);
        let key = self.jobs[id].key.clone();
        assert!(!self.is_key_paused(&key), "{id} was claimed, and {key} is paused");
        let PerKey { most, rate, window_us } = self.limits_of(&key);
        assert!(self.has_free_slot(&key), "{id} is one job more than the {most} of {key}");
        for rests in ["", &key] {
            let until = self.rests.get(rests).copied().unwrap_or(0);
            assert!(now_us / 1_000 >= until, "{id} was claimed, and {rests:?} rests until {until}");
        }
        if rate > 0 && !key.is_empty() {
            let cost = self.jobs[id].cost.min(rate);
            let starts = self.starts.entry(key.clone()).or_default();
            starts.extend(std::iter::repeat_n(now_us, cost));
            let within = starts.iter().filter(|at| **at + window_us > now_us).count();
            assert!(within <= rate, "{id} is start {within} of {key} within {window_us} us, and {rate} are allowed");
        }
        // Settings of a key without limits are limits that allow everything.
        let has_own = self.own.get(&key).is_some_and(|own| own.limits.is_some());
        let has_slot = (has_own || self.per_key.is_set()) && !key.is_empty();
        self.set(id, State::Held(Hold { worker: worker.to_owned(), fence, has_slot, is_cancelled: false }));
    }
}
