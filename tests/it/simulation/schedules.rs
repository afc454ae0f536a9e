//! Random histories of schedules on the real scripts, next to a plain model: schedulers that act on what they read
//! earlier, die or repeat a call; deploys, pauses, removals, jobs of any length, outages, damaged rows, jumps of the
//! server's clock, and failovers that lose what was written since the last copy.
//!
//! After each step every tick since the start of a schedule must be accounted for exactly once. Nothing waits: scripts
//! read the clock of the history. A failure prints its seed. `HEARTLINE_SIMULATION=<seed>` runs that seed alone.

mod book;
mod clock;
mod deploys;
mod rules;
mod steps;
mod view;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use fastrand::Rng;
use heartline::_internals::{SimulatedLook, SimulatedSchedules};
use redis::Commands;

use self::book::{Book, Removed};
use self::rules::{HOUR, ZONES};
use self::view::{Ledger, Seen, View};
use crate::simulation::task::Task;
use crate::support::is_thorough;

const HISTORIES: u64 = 1_000;
const THOROUGH_HISTORIES: u64 = 20_000;
const STEPS: usize = 25;
const NAMES: [&str; 2] = ["a", "b"];
/// How many looks at most were not acted on yet.
const SCHEDULERS: usize = 3;
/// The most calls that it takes to account for all that was due at the end.
const LAST_ROUNDS: usize = 60;

/// What happened at least once in all histories together.
const SEEN: &str = "fire Done; fire Moved; fire Changed; fire Early; fire Unknown; fire Unreadable; pending Done; \
     pending Moved; put Written; put Same; put Kept; put_after Written; put_after Due; put_after Again; overlapped; \
     missed; paused; pending; removed; returned; pruned; missing; run by hand; a reply was lost; a job ended; damaged; \
     repaired; hidden; the clock went back; a copy; a failover";

/// What is lost by a failover.
#[derive(Clone, Debug, Default)]
struct Known {
    books: BTreeMap<&'static str, Book>,
    /// Those that were removed and may return with their counts.
    gone: BTreeMap<&'static str, Removed>,
    /// When a worker last named each schedule.
    named: BTreeMap<&'static str, u64>,
    /// When each worker last reported its names.
    heard: BTreeMap<String, u64>,
    /// Every job of a tick.
    made: BTreeSet<String>,
    /// The worker's fence of each running job.
    held: BTreeMap<String, u64>,
}

/// A look, with the rules that were in force then.
#[derive(Clone, Debug)]
struct Held {
    look: SimulatedLook,
    rows: Vec<Seen>,
}

struct History {
    rng: Rng,
    zone: usize,
    task: Task,
    schedules: SimulatedSchedules,
    /// The server's clock, ms.
    now: u64,
    /// An earlier time that a process has read.
    read: u64,
    known: Known,
    copy: Known,
    view: View,
    /// What the ledgers must hold after this step.
    expected: BTreeMap<String, Ledger>,
    looks: Vec<Held>,
    sent: Vec<Held>,
    /// Starts of workers.
    starts: u64,
    calls: u64,
    seen: BTreeMap<String, u64>,
    log: String,
}

impl History {
    fn new(seed: u64) -> History {
        let (mut rng, task) = (Rng::with_seed(seed), Task::new());
        let zone = (seed % ZONES.len() as u64) as usize;
        let now = ZONES[zone].change - rng.u64(..36 * HOUR);
        let (prefix, _) = task.prefix().split_once(':').unwrap();
        let mut history = History {
            schedules: SimulatedSchedules::new(prefix, "task"),
            rng,
            zone,
            task,
            now,
            read: now,
            known: Known::default(),
            copy: Known::default(),
            view: View::default(),
            expected: BTreeMap::new(),
            looks: Vec::new(),
            sent: Vec::new(),
            starts: 0,
            calls: 0,
            seen: BTreeMap::new(),
            log: String::new(),
        };
        let keep = if seed.is_multiple_of(4) { "0" } else { "1" };
        let mut args = vec!["1", "", "starter", "maxCount", "1", "onCrash", "recover", "hook", "0"];
        // A cancelled job stays: one call may write a job, and the next one replace it.
        for (name, keep) in [("keepCompleted", keep), ("keepFailed", keep), ("keepCancelled", "1")] {
            args.extend([name, keep]);
        }
        let args: Vec<String> = args.iter().map(ToString::to_string).collect();
        let _: Vec<redis::Value> = history.task.call("declare", &args);
        history.set_clock(now);
        history.task.copy_all();
        history
    }

    fn note(&mut self, what: &str) {
        writeln!(self.log, "{} {what}", self.now).unwrap();
    }

    fn saw(&mut self, what: impl Into<String>) {
        *self.seen.entry(what.into()).or_default() += 1;
    }

    fn clock(&self) -> String {
        format!("{}clock", self.task.prefix())
    }

    fn set_clock(&mut self, now: u64) {
        self.now = now;
        let (clock, time) = (self.clock(), [("s", now / 1000), ("us", now % 1000 * 1000)]);
        let () = self.task.connection().hset_multiple(clock, &time).unwrap();
    }

    fn some_name(&mut self) -> &'static str {
        NAMES[self.rng.usize(..NAMES.len())]
    }

    fn step(&mut self) {
        let (before, books) = (self.view.clone(), self.known.books.clone());
        self.expected.clear();
        match self.rng.u32(..100) {
            0..24 => self.pass_time(),
            24..44 => {
                let held = self.look();
                self.fire(held);
            }
            44..53 => {
                let held = self.look();
                self.looks.push(held);
                if self.looks.len() > SCHEDULERS {
                    self.looks.remove(0);
                }
            }
            53..62 => self.fire_late(),
            62..66 => self.fire_again(),
            66..75 => self.put(),
            75..79 => self.put_late(),
            79..82 => self.pause(),
            82..84 => self.remove(),
            84..86 => self.run_by_hand(),
            86..92 => self.work(),
            92..94 => self.report_names(),
            94..96 => self.jump(),
            96 => self.damage(),
            97 => self.copy(),
            _ => return self.fail_over(),
        }
        self.look_again();
        self.check(&before, &books);
    }

    fn look_again(&mut self) {
        self.view = View::read(&mut self.task);
    }

    fn copy(&mut self) {
        self.note("a copy");
        self.task.copy_all();
        self.copy = self.known.clone();
        self.saw("a copy");
    }

    /// A replica takes over that has not seen what was written since the copy.
    fn fail_over(&mut self) {
        self.note("a failover");
        self.task.restore_all();
        self.known = self.copy.clone();
        self.look_again();
        // No job is new: those that were lost may be written a second time from now on.
        let (before, books) = (self.view.clone(), self.known.books.clone());
        self.check(&before, &books);
        self.saw("a failover");
    }

    /// Every scheduler is back: all that is due is accounted for.
    fn end(&mut self) {
        let mut rounds = 0;
        loop {
            let (before, books) = (self.view.clone(), self.known.books.clone());
            self.expected.clear();
            let held = self.look();
            if held.rows.is_empty() {
                break;
            }
            self.fire(held);
            self.look_again();
            self.check(&before, &books);
            rounds += 1;
            assert!(rounds < LAST_ROUNDS, "ticks stay due");
        }
        for (name, book) in self.known.books.iter().filter(|(_, book)| book.damage.is_none() && !book.is_hidden) {
            assert!(self.view.at[*name] > self.now, "{name} is due: {book:?}");
        }
    }

    fn forget(&mut self) {
        self.task.remove_all();
        let clock = self.clock();
        let () = self.task.connection().del(clock).unwrap();
    }
}

fn seeds() -> Vec<u64> {
    match std::env::var("HEARTLINE_SIMULATION").ok().and_then(|seed| seed.parse().ok()) {
        Some(seed) => vec![seed],
        None => (0..if is_thorough() { THOROUGH_HISTORIES } else { HISTORIES }).collect(),
    }
}

#[test]
fn every_tick_is_accounted_for_exactly_once() {
    let mut seen = BTreeMap::<String, u64>::new();
    for seed in seeds() {
        let mut history = History::new(seed);
        let run = catch_unwind(AssertUnwindSafe(|| {
            for _ in 0..STEPS {
                history.step();
            }
            history.end();
        }));
        history.forget();
        if let Err(panic) = run {
            eprintln!("seed {seed}:\n{}", history.log);
            resume_unwind(panic);
        }
        for (what, count) in history.seen {
            *seen.entry(what).or_default() += count;
        }
    }
    for what in SEEN.split("; ") {
        assert!(seen.contains_key(what) || seeds().len() == 1, "no history has {what}: {seen:?}");
    }
}
