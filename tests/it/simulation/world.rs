//! Workers, their keepers and their faults, on the simulation's own clock.

mod driver;
mod keeper;
mod person;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use fastrand::Rng;
use heartline::_internals::SimulatedWitness;

use crate::simulation::FAR;
use crate::simulation::ledger::Ledger;
use crate::simulation::model::{Crash, Model, New, PLAIN, Priority, Report, State, View, Wait, Waits, Want, key_of};
use crate::simulation::task::Task;

/// Intervals of workers, ms.
const INTERVALS: [u64; 2] = [1_000, 2_000];
/// The longest step of the clock, ms; less than half of the shortest beat period.
const STEP: u64 = 150;
/// `max_count` of the task.
const MAX_COUNT: u32 = 1;
/// Candidates that one sweep call resolves at most.
const SWEEP_LIMIT: usize = 3;
/// Terminal jobs of each state that a trim leaves if they are kept: some, or none, by the seed.
const KEPT: [usize; 2] = [4, 0];
/// Terminal jobs that one call removes at most.
const TRIM_LIMIT: usize = 3;
/// The version of the data that all use.
const WIRE: &str = "1";

/// A settle call as it was sent.
#[derive(Clone, Debug)]
struct Call {
    number: u64,
    want: Want,
    reports: Vec<Report>,
}

/// A heartbeat that was executed and whose reply is still on its way.
#[derive(Clone, Debug)]
struct Answer {
    sent: u64,
    arrives: u64,
    due: u64,
    epoch: u64,
    interval: u64,
}

/// The hooks that the workers of a run declare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hook {
    /// No worker has one.
    Never,
    /// The task has one, but not every worker.
    Always,
    /// Some workers have one, and each declares what it has.
    Mixed,
}

struct Worker {
    name: String,
    /// The stamp of its declaration at the start.
    stamp: u64,
    interval: u64,
    has_hook: bool,
    grace: Waits,
    /// Frozen until then.
    frozen_until: u64,
    /// Disconnected until then.
    away_until: u64,
    held: BTreeMap<u64, String>,
    /// Those of the fences that it received to run a hook.
    hooks: BTreeSet<u64>,
    witness: SimulatedWitness,
    beat_due: u64,
    answer: Option<Answer>,
    number: u64,
    unanswered: Option<Call>,
    old: Vec<Call>,
}

impl Worker {
    fn period(&self) -> u64 {
        self.interval / 3
    }

    /// When its own last trouble ends or ended.
    fn trouble_until(&self) -> u64 {
        self.frozen_until.max(self.away_until)
    }
}

pub struct World {
    rng: Rng,
    now: u64,
    task: Task,
    model: Model,
    ledger: Ledger,
    /// What every worker declares: name, value.
    options: Vec<String>,
    kept: usize,
    hook: Hook,
    /// What silent jobs wait for: by most workers, and by some.
    graces: [Waits; 2],
    workers: Vec<Worker>,
    names: usize,
    /// Calls of a second sequence, which only show wrong tokens.
    wrong_calls: u64,
    /// When the lock of a fence was last extended in Redis, and how long its holder may be silent.
    heard: BTreeMap<u64, (u64, u64)>,
    /// The fences of parked jobs, until their next heartbeat.
    parked: BTreeSet<u64>,
    /// The fences under which a handler ran, of jobs that began early.
    ran: BTreeSet<u64>,
    /// How often a worker crashed that held the begun job, by id.
    crashes: BTreeMap<String, u32>,
    /// Workers that are dead.
    dead: Vec<String>,
    /// How many jobs a person let run again, however often they had stalled.
    by_hand: u32,
    /// No worker reaches the server.
    outage: bool,
    faults: bool,
    /// The transitions that happened.
    pub seen: BTreeSet<String>,
    pub log: String,
}

impl World {
    pub fn new(seed: u64, keep: bool) -> World {
        let keep_all = if keep { "1" } else { "0" };
        let hook = [Hook::Never, Hook::Always, Hook::Mixed, Hook::Mixed][(seed / 6 % 4) as usize];
        let kept = KEPT[(seed / 3 % 2) as usize];
        let on = ["recover", "retry", "fail"][(seed % 3) as usize];
        let crash = Crash { on, attempts: 3, max_set: seed.is_multiple_of(2) };
        let retry = format!(r#"{{"attempts":3,"backoff":{{"fixed":{{"delay_ms":{}}}}},"jitter":"none"}}"#, super::FAR);
        let mut options = vec!["maxCount".to_owned(), MAX_COUNT.to_string()];
        options.extend(["maxCountSet".to_owned(), u8::from(crash.max_set).to_string()]);
        options.extend(["onCrash".to_owned(), on.to_owned(), "retry".to_owned(), retry]);
        for name in ["Completed", "Failed", "Cancelled"] {
            options.extend([format!("keep{name}"), keep_all.to_owned()]);
            options.extend([format!("maxAge{name}"), String::new()]);
            options.extend([format!("maxCount{name}"), kept.to_string()]);
        }
        let (mut rng, mut task) = (Rng::with_seed(seed), Task::new());
        let graces = some_graces(&mut rng);
        let mut model = Model::new(keep, crash, task.now_ms());
        model.max_running = (seed % 4 == 1).then_some(if seed % 8 == 1 { 3 } else { 2 });
        options.extend(["limits".to_owned(), model.max_running.map_or(String::new(), |most| format!("{most} 0 0"))]);
        model.per_key = (seed % 5 == 2).then_some(if seed.is_multiple_of(2) { 1 } else { 2 });
        options.extend(["perKey".to_owned(), model.per_key.map_or(String::new(), |most| format!("{most} 0 0"))]);
        let mut world = World {
            rng,
            now: 10_000,
            task,
            model,
            ledger: Ledger::new(hook == Hook::Always),
            options,
            kept,
            hook,
            graces,
            workers: Vec::new(),
            names: 0,
            wrong_calls: 0,
            heard: BTreeMap::new(),
            parked: BTreeSet::new(),
            ran: BTreeSet::new(),
            crashes: BTreeMap::new(),
            dead: Vec::new(),
            by_hand: 0,
            outage: false,
            faults: true,
            seen: BTreeSet::new(),
            log: String::new(),
        };
        for _ in 0..3 {
            let has_hook = world.some_hook();
            let worker = world.start(has_hook);
            world.workers.push(worker);
        }
        world
    }

    /// Lets anything happen.
    pub fn run(&mut self, steps: usize) {
        for _ in 0..steps {
            self.pass_time();
            self.act();
        }
    }

    /// Nothing fails any more: the jobs of dead workers are resolved in time, and finally every job is terminal.
    pub fn heal(&mut self) {
        self.faults = false;
        self.pause(false);
        for worker in &mut self.workers {
            (worker.frozen_until, worker.away_until) = (self.now, self.now);
        }
        // The last worker to start declares whether there is a hook; if so, it has it.
        let has_hook = self.hook == Hook::Always || self.some_hook();
        self.die(0, has_hook);
        let longest = INTERVALS[1].max(self.model.interval());
        let in_time = 2 * longest + longest / 3 + 3 * STEP;
        let (by, mut rounds, mut waited) = (self.now + in_time, 0, None);
        while self.model.open() > 0 {
            rounds += 1;
            assert!(rounds < 2_000, "{} jobs do not end", self.model.open());
            self.pass_time();
            while let Some((id, rank)) = self.model.next_due() {
                self.task.make_due(&id, rank);
            }
            while let Some(id) = self.model.next_hook() {
                self.task.make_hook_due(&id);
            }
            let at = self.rng.usize(..self.workers.len());
            self.settle(at, true);
            if self.now > by {
                for id in self.model.held_by(&self.dead) {
                    let waits = self.model.waits_longer(&id) && self.model.is_parked(&id);
                    assert!(waits || waited.is_some(), "{id} of a dead worker was not resolved in time");
                    assert!(waited.is_none_or(|since| self.now <= since + in_time), "{id} never ends");
                }
                if waited.is_none() {
                    waited = Some(self.now);
                    self.end_all_waits();
                }
            }
        }
    }

    /// Whether the next worker that starts has the hook.
    fn some_hook(&mut self) -> bool {
        self.hook != Hook::Never && self.rng.u32(..3) > 0
    }

    fn some_grace(&mut self) -> Waits {
        self.graces[usize::from(self.rng.u32(..4) == 0)]
    }

    /// A process ends, and another one starts in its place.
    fn die(&mut self, at: usize, has_hook: bool) {
        self.note(&format!("{} dies", self.workers[at].name));
        self.dead.push(self.workers[at].name.clone());
        self.workers[at] = self.start(has_hook);
    }

    /// A new process. Its options take precedence over those of all that started earlier.
    fn start(&mut self, has_hook: bool) -> Worker {
        self.names += 1;
        let interval = INTERVALS[self.rng.usize(..INTERVALS.len())];
        let grace = self.some_grace();
        let (word, stamp) = self.declare(String::new(), has_hook, grace);
        assert!(word == "declared" && stamp > self.model.declared_at, "{word} {stamp}");
        self.model.declare_again(stamp, self.declares_hook(has_hook), grace);
        self.note(&format!("worker-{} starts, its hook {has_hook}, that of the task {}", self.names, self.model.hook));
        self.note(&format!("  what silent jobs wait for: {grace:?}"));
        Worker {
            name: format!("worker-{}", self.names),
            stamp,
            interval,
            has_hook,
            grace,
            frozen_until: 0,
            away_until: 0,
            held: BTreeMap::new(),
            hooks: BTreeSet::new(),
            witness: SimulatedWitness::new(interval / 3, self.now),
            beat_due: self.now,
            answer: None,
            number: 0,
            unanswered: None,
            old: Vec::new(),
        }
    }

    /// A process that stops at once and leaves its options: the task has a hook now, or none, and its silent jobs may
    /// wait differently.
    fn start_elsewhere(&mut self) {
        let has_hook = self.hook != Hook::Never && self.rng.bool();
        self.start(has_hook);
        self.check();
    }

    /// Returns the word of the reply, and the stamp in force.
    fn declare(&mut self, stamp: String, has_hook: bool, grace: Waits) -> (String, u64) {
        let mut args = vec![WIRE.to_owned(), stamp, "starter".to_owned()];
        args.extend(self.options.iter().cloned());
        args.extend(["hook".to_owned(), u8::from(self.declares_hook(has_hook)).to_string()]);
        args.extend(["grace".to_owned(), crate::simulation::model::grace_text(grace)]);
        let reply: Vec<redis::Value> = self.task.call("declare", &args);
        let word = redis::from_redis_value_ref(&reply[0]).unwrap();
        (word, redis::from_redis_value_ref(&reply[1]).unwrap())
    }

    /// What a worker declares about the hook of the task.
    fn declares_hook(&self, has_hook: bool) -> bool {
        has_hook || self.hook == Hook::Always
    }

    /// A worker noticed that the options are lost, and others may have too.
    fn declare_again(&mut self, at: usize) {
        let Worker { stamp, has_hook, grace, .. } = self.workers[at];
        self.note(&format!("{} declares again", self.workers[at].name));
        let expected = self.model.declare_again(stamp, self.declares_hook(has_hook), grace).to_owned();
        assert_eq!(self.declare(stamp.to_string(), has_hook, grace), (expected, self.model.declared_at));
        self.check();
    }

    fn note(&mut self, what: &str) {
        writeln!(self.log, "{} {what}", self.now).unwrap();
    }

    fn chance(&mut self, percent: u32) -> bool {
        self.faults && self.rng.u32(..100) < percent
    }

    /// Keepers do what is due, in either order.
    fn pass_time(&mut self) {
        self.now += self.rng.u64(..=STEP);
        for at in 0..self.workers.len() {
            if self.now < self.workers[at].frozen_until {
                continue;
            }
            if self.rng.bool() {
                self.beat(at);
                self.sweep(at);
            } else {
                self.sweep(at);
                self.beat(at);
            }
        }
    }

    /// The next step of a worker, a producer, or a fault.
    fn act(&mut self) {
        let at = self.rng.usize(..self.workers.len());
        match self.rng.u32(..100) {
            18..20 if self.hook == Hook::Mixed => self.start_elsewhere(),
            19 if self.graces != [PLAIN; 2] => self.start_elsewhere(),
            0..20 => self.dispatch(),
            55..58 if self.graces != [PLAIN; 2] => self.decide_by_hand(),
            58 => self.take_back(),
            59 if self.graces != [PLAIN; 2] => self.be_silent_for_long(at),
            20..61 => {
                self.settle(at, false);
                self.decide_by_old_marks();
            }
            61..66 => self.act_by_hand(),
            66 => {
                // A pause is short, so that it does not fill most of a run.
                let paused = !self.model.paused && self.rng.bool();
                self.pause(paused);
            }
            67 => {
                self.note("the options are lost");
                self.model.declared_at = 0;
                self.task.lose_options();
            }
            68..70 => self.trim(at),
            70..75 => self.cancel(),
            75..80 => self.let_time_come(),
            80..84 => self.repeat_an_old_call(at),
            84 => self.sweep_too_early(at),
            85..88 => self.show_a_wrong_token(at),
            88 => {
                self.now += self.rng.u64(..4 * INTERVALS[1]);
                self.note("all stood still until now");
            }
            89 => self.outage(),
            90..93 => {
                self.workers[at].frozen_until = self.now + self.rng.u64(..4 * INTERVALS[1]);
                self.note(&format!("{} freezes until {}", self.workers[at].name, self.workers[at].frozen_until));
            }
            93..97 => {
                self.workers[at].away_until = self.now + self.rng.u64(..4 * INTERVALS[1]);
                self.note(&format!("{} is away until {}", self.workers[at].name, self.workers[at].away_until));
            }
            _ => {
                if self.rng.bool() {
                    self.close(at);
                }
                let has_hook = self.some_hook();
                self.die(at, has_hook);
            }
        }
    }

    /// A delayed job is due, or a hook that is to run later.
    fn let_time_come(&mut self) {
        if let Some((id, rank)) = self.model.next_due() {
            self.note(&format!("{id} is due"));
            self.task.make_due(&id, rank);
        }
        if let Some(id) = self.model.next_hook() {
            self.note(&format!("the hook of {id} is due"));
            self.task.make_hook_due(&id);
        }
        if self.graces != [PLAIN; 2] && self.rng.bool() {
            let by_snapshot = self.rng.bool();
            self.pass_waits(by_snapshot);
        }
    }

    /// The server is away for all, and returns for all at the same time.
    fn outage(&mut self) {
        let end = self.now + self.rng.u64(..4 * INTERVALS[1]);
        self.note(&format!("an outage until {end}"));
        self.outage = true;
        while self.now < end {
            self.pass_time();
        }
        self.outage = false;
    }

    fn dispatch(&mut self) {
        let count = self.rng.usize(1..=4);
        let jobs: Vec<New> = (0..count)
            .map(|_| New {
                id: format!("job-{}", self.rng.u32(..60)),
                delayed: self.rng.u32(..5) == 0,
                max_count: (self.rng.u32(..5) == 0).then(|| self.rng.u32(..3)),
                priority: [Priority::High, Priority::Normal, Priority::Normal, Priority::Low][self.rng.usize(..4)],
            })
            .collect();
        let mut args = vec![WIRE.to_owned(), "1".to_owned(), jobs.len().to_string()];
        args.extend(jobs.iter().flat_map(|job| [job.id.clone(), "{}".to_owned()]));
        for (at, job) in jobs.iter().enumerate() {
            let mut triple = |column: &str, value: String| args.extend([column.into(), (at + 1).to_string(), value]);
            if job.delayed {
                triple("delay", FAR.to_string());
            }
            if let Some(max_count) = job.max_count {
                triple("maxCount", max_count.to_string());
            }
            if let Some(key) = key_of(&job.id).filter(|_| self.model.per_key.is_some()) {
                triple("laneOf", key);
            }
            if job.priority != Priority::Normal {
                triple("priority", format!("{:?}", job.priority).to_lowercase());
            }
        }
        if args.len() == 3 + 2 * jobs.len() {
            args[2].clear();
        }
        self.note(&format!("dispatch {}", args[3..].join(" ")));
        let reply: String = self.task.call("dispatch", &args);
        let mut expected = "dispatched".to_owned();
        self.model.dispatch(&jobs).iter().for_each(|at| write!(expected, " {at}").unwrap());
        assert_eq!(reply, expected);
        self.check();
    }

    /// The oldest ended jobs are removed, except for some.
    fn trim(&mut self, at: usize) {
        let (state, place, name) = [
            (State::Completed, "completed", "Completed"),
            (State::Failed, "failed", "Failed"),
            (State::Cancelled, "cancelled", "Cancelled"),
        ][self.rng.usize(..3)];
        self.note(&format!("{} trims {place}", self.workers[at].name));
        let args = [self.workers[at].name.clone(), name.to_owned(), "0".to_owned(), TRIM_LIMIT.to_string()];
        let reply: Vec<redis::Value> = self.task.call_on(place, "trim", &args);
        let reply: Vec<String> = reply.iter().map(|word| redis::from_redis_value_ref(word).unwrap()).collect();
        if self.model.declared_at == 0 {
            assert_eq!(reply, ["undeclared"]);
            self.check();
            self.declare_again(at);
            return;
        }
        let excess = self.model.ended(state).saturating_sub(self.kept).min(TRIM_LIMIT);
        assert_eq!(reply, ["trimmed".to_owned(), excess.to_string(), u8::from(excess == TRIM_LIMIT).to_string()]);
        let events = self.task.events();
        let ids: Vec<String> = events.iter().map(|event| event.strip_prefix("removed ").unwrap().to_owned()).collect();
        assert_eq!(ids.len(), excess);
        self.model.trim(state, &ids);
        if excess > 0 {
            self.seen.insert("trimmed".to_owned());
        }
        self.check();
    }

    fn cancel(&mut self) {
        let id = format!("job-{}", self.rng.u32(..60));
        let args = ["why".into(), "channel".into(), "anna".into(), id.clone(), String::new()];
        self.told("cancel", &args, |model| model.cancel(&id));
    }

    /// A manual action on one job.
    fn act_by_hand(&mut self) {
        let id = format!("job-{}", self.rng.u32(..60));
        let args = ["anna".to_owned(), id.clone(), String::new()];
        match self.rng.u32(..4) {
            0 | 1 => {
                let args = ["anna".to_owned(), "0".to_owned(), id.clone(), String::new()];
                self.told("retry", &args, |model| model.retry(&id));
            }
            2 => self.told("remove", &args, |model| model.remove(&id)),
            _ => {
                // Mostly one for which it is possible.
                let id = if self.rng.bool() { self.model.a_delayed_one().unwrap_or(id) } else { id };
                let args = ["anna".to_owned(), id.clone(), String::new()];
                self.told("run_now", &args, |model| model.run_now(&id));
            }
        }
    }

    fn told(&mut self, name: &str, args: &[String], expected: impl FnOnce(&mut Model) -> String) {
        self.note(&format!("{name} {}", args.join(" ")));
        let reply: [String; 2] = self.task.call(name, args);
        assert_eq!(reply, ["told".to_owned(), expected(&mut self.model)]);
        if name == "cancel" && reply[1] == "finalizing" {
            self.seen.insert("too late to cancel".to_owned());
        }
        self.check();
    }

    /// The task is paused, or resumed.
    fn pause(&mut self, paused: bool) {
        self.note(if paused { "a pause" } else { "the pause ends" });
        let (name, word) = if paused { ("pause", "paused") } else { ("resume", "resumed") };
        let reply: Vec<String> = self.task.call(name, &["anna".to_owned(), "why".to_owned()]);
        assert_eq!(reply[0], if self.model.paused == paused { "already" } else { word });
        self.model.paused = paused;
        self.seen.insert(word.to_owned());
        self.check();
    }

    /// The slots of keys are those of the held jobs, each key with waiting jobs has a turn or waits for one, and no worker sleeps next
    /// to a job that may be claimed.
    fn check_lanes(&mut self) {
        let held: BTreeSet<(String, String)> = self.task.lane_entries("laneHeld").into_iter().collect();
        assert_eq!(held, self.model.held_with_keys(), "the slots of keys");
        let (turns, lanes) = (self.task.turns(), self.task.lane_entries("lanes"));
        assert!(lanes.iter().all(|(key, _)| turns.contains(key)), "{lanes:?} has a key without a turn: {turns:?}");
        let claimable = self.model.claimable();
        assert!(claimable.is_empty() || self.task.is_marked(), "{claimable:?} can be claimed, and no worker is woken");
    }

    /// Redis holds what the model holds, and reported each transition once and in order.
    fn check(&mut self) {
        let view = self.task.view();
        invariants(&view, 3 + self.by_hand);
        let events = self.task.events();
        self.ledger.look(&events, &view);
        self.seen.extend(self.ledger.seen.iter().map(|what| (*what).to_owned()));
        if self.model.keyed {
            self.model.adopt(&view);
            self.check_lanes();
        }
        assert_eq!(view, self.model.view());
        if self.task.is_full() {
            assert!(
                self.model.max_running.is_some_and(|most| self.model.running() >= most),
                "a slot is free: {view:?}"
            );
        }
        assert_eq!(events, std::mem::take(&mut self.model.events));
        for event in events {
            let words: Vec<&str> = event.split(' ').collect();
            if ["dispatched", "manually_retried"].contains(&words[0]) {
                self.crashes.remove(words[1]);
            }
            let action = if words[0] == "stalled" { words[3] } else { "" };
            self.seen.insert(format!("{} {action}", words[0]).trim_end().to_owned());
        }
    }
}

/// What silent jobs wait for in a run: in some runs only the interval, in others each phase has its own.
fn some_graces(rng: &mut Rng) -> [Waits; 2] {
    let mut some = |percent: u32| {
        let is_set = rng.u32(..100) < percent;
        let waits = [(); 3].map(|()| [Wait::Off, Wait::Off, Wait::Longer, Wait::Plain][rng.usize(..4)]);
        if is_set { waits } else { PLAIN }
    };
    let most = some(75);
    let others = some(75);
    if most == PLAIN { [PLAIN; 2] } else { [most, others] }
}

/// Invariants that need no model.
fn invariants(view: &View, most_stalls: u32) {
    let running = view.active.union(&view.candidates);
    let mut tombstones = view.tombstones.clone();
    // As many entries of an id are tombstones as are counted.
    let mut is_tombstone = |id: &String| {
        tombstones.get_mut(id).filter(|left| **left > 0).is_some_and(|left| {
            *left -= 1;
            true
        })
    };
    let waiting: Vec<&String> = view.lists.iter().flatten().filter(|id| !is_tombstone(id)).collect();
    assert!(tombstones.values().all(|left| *left == 0), "more tombstones than entries: {view:?}");
    let places = waiting
        .into_iter()
        .chain(&view.delayed)
        .chain(&view.finalizing)
        .chain(running)
        .chain(view.ended.iter().flatten());
    let mut places: Vec<&String> = places.collect();
    places.sort();
    assert!(places.into_iter().eq(&view.payload), "not each job is in one place: {view:?}");
    assert!(view.active.is_disjoint(&view.candidates), "running twice: {view:?}");
    assert!(view.locks.keys().eq(view.active.union(&view.candidates)), "locked is not running: {view:?}");
    assert!(view.claimed.keys().all(|id| view.locks.contains_key(id)), "a claimed job is not held");
    let has_outcome = |id: &String| view.outcome.contains_key(id);
    assert!(view.finalizing.iter().all(has_outcome), "finalizing without an outcome: {view:?}");
    let finalizes = |id: &String| view.finalizing.contains(id) || view.locks.contains_key(id);
    assert!(view.outcome.keys().all(finalizes), "an outcome of a job that does not finalize: {view:?}");
    assert!(
        !view.claimed.keys().chain(&view.cancelling).any(has_outcome),
        "a hook that waits or is cancelled: {view:?}"
    );
    assert!(view.cancelling.iter().all(|id| view.locks.contains_key(id)), "a cancel of a job that is not held");
    let most = view.stalled_count.values().max();
    assert!(most.is_none_or(|&count| count <= most_stalls), "stalls past every max_count: {view:?}");
    assert!(view.parked.is_empty() || !view.grace.is_empty(), "marks that no heartbeat removes: {view:?}");
}
