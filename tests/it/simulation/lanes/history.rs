//! A history: its options, its workers, and which step is next.

mod acts;
mod drain;
mod settle;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fastrand::Rng;

use crate::simulation::FAR;
use crate::simulation::lanes::books::Books;
use crate::simulation::lanes::check::Seen;
use crate::simulation::lanes::nouns::{PerKey, Settle, State};
use crate::simulation::task::Task;
use crate::support::TestRedis;

/// How many jobs a worker asks for at most.
const MOST_WANTED: usize = 10;
/// How many steps there are between two checks.
const BETWEEN_CHECKS: usize = 10;
/// The interval of the workers, ms.
const INTERVAL: &str = "1000";

struct Worker {
    name: String,
    number: u64,
    held: BTreeMap<u64, String>,
    /// The fences of jobs that have not begun after all.
    unstarted: BTreeSet<u64>,
    /// A call whose reply was lost.
    unanswered: Option<Settle>,
}

pub struct History {
    rng: Rng,
    task: Task,
    books: Books,
    /// The books when the replica was up to date.
    copy: Option<Books>,
    workers: Vec<Worker>,
    names: usize,
    ids: usize,
    keys: usize,
    epoch: u64,
    on_crash: &'static str,
    pub steps: usize,
    pub log: Vec<String>,
}

impl History {
    pub fn new(seed: u64, server: &Arc<TestRedis>) -> History {
        let mut rng = Rng::with_seed(seed);
        let per_key = some_limits(&mut rng);
        let max_running = if rng.u32(..4) == 0 { rng.usize(2..6) } else { 0 };
        let kept = [(); 3].map(|()| rng.u32(..5) > 0);
        let keys = [1, 2, 3, 4, 6, 6, 30][rng.usize(..7)];
        let on_crash = ["recover", "recover", "retry", "fail"][rng.usize(..4)];
        let mut history = History {
            rng,
            task: Task::alone_on(server),
            books: Books::new(per_key, max_running, kept),
            copy: None,
            workers: Vec::new(),
            names: 0,
            ids: 0,
            keys,
            epoch: 0,
            on_crash,
            steps: 0,
            log: Vec::new(),
        };
        history.declare(per_key, max_running);
        for _ in 0..3 {
            let worker = history.start();
            history.workers.push(worker);
        }
        history
    }

    /// Lets anything happen, and then lets healthy workers end all jobs.
    pub fn run(&mut self, steps: usize) {
        for step in 1..=steps {
            self.steps += 1;
            self.act();
            if step % BETWEEN_CHECKS == 0 {
                self.check();
            }
        }
        self.drain();
    }

    fn act(&mut self) {
        let at = self.rng.usize(..self.workers.len());
        match self.rng.u32(..200) {
            0..36 => self.dispatch(),
            36..40 => self.put_lane(),
            40..50 => self.dispatch_unique(),
            50..128 => self.settle(at, false),
            128..138 => self.beat(at),
            138..150 => self.sweep(at),
            150..162 => self.cancel(),
            162..168 => self.remove(),
            168..175 => self.retry(),
            175..179 => self.run_now(),
            179..185 => self.make_due(),
            185..188 => {
                let (per_key, max_running) = (some_limits(&mut self.rng), self.books.max_running);
                self.declare(per_key, max_running);
            }
            188 => {
                let max_running = self.rng.usize(..5);
                self.declare(self.books.per_key, max_running);
            }
            189..192 => {
                let is_paused = !self.books.is_paused && self.rng.u32(..3) == 0;
                self.pause(is_paused);
            }
            192..195 => {
                self.note(format!("{} dies", self.workers[at].name));
                self.workers[at] = self.start();
            }
            195 => self.trim(),
            196 => self.lose_a_key(),
            197..199 => self.copy(),
            _ => self.fail_over(),
        }
    }

    fn start(&mut self) -> Worker {
        self.names += 1;
        let (held, unstarted) = (BTreeMap::new(), BTreeSet::new());
        Worker { name: format!("w{}", self.names), number: 0, held, unstarted, unanswered: None }
    }

    fn declare(&mut self, per_key: PerKey, max_running: usize) {
        self.note(format!("declare {per_key:?}, {max_running} may run"));
        let retry = format!(r#"{{"attempts":3,"backoff":{{"fixed":{{"delay_ms":{FAR}}}}},"jitter":"none"}}"#);
        let limits = if max_running > 0 { format!("{max_running} 0 0") } else { String::new() };
        let mut args = ["1", "", "starter", "maxCount", "2", "maxCountSet", "0", "hook", "0", "grace", ""]
            .map(str::to_owned)
            .to_vec();
        args.extend(["eventMode", "off", "key", "", "onCrash", self.on_crash].map(str::to_owned));
        args.extend(["retry".to_owned(), retry, "limits".to_owned(), limits, "perKey".to_owned(), per_key.text()]);
        for (word, kept) in self.books.keeps() {
            let name = word[..1].to_uppercase() + &word[1..];
            args.extend([format!("keep{name}"), u8::from(kept).to_string()]);
        }
        let reply: Vec<redis::Value> = self.task.call("declare", &args);
        assert_eq!(text(&reply[0]), "declared");
        self.books.declare(per_key, max_running);
    }

    /// The server fails, and a replica without its last writes takes its place.
    fn fail_over(&mut self) {
        if let Some(books) = self.copy.take() {
            self.note("a failover".to_owned());
            self.task.restore_all();
            self.books = books;
        }
    }

    fn copy(&mut self) {
        self.note("the replica is up to date".to_owned());
        self.task.copy_all();
        self.copy = Some(self.books.clone());
    }

    fn check(&mut self) {
        self.see().check(&self.books);
    }

    fn see(&mut self) -> Seen {
        let prefix = self.task.prefix().to_owned();
        Seen::read(self.task.connection(), &prefix)
    }

    fn note(&mut self, line: String) {
        self.log.push(line);
    }

    /// One of the jobs in such a state, or of the last ones in any.
    fn some_id(&mut self, is_wanted: impl Fn(&State) -> bool) -> Option<String> {
        let ids = self.books.ids(is_wanted);
        if ids.is_empty() || self.rng.u32(..8) == 0 {
            let all: Vec<&String> = self.books.jobs.keys().collect();
            return (!all.is_empty()).then(|| all[self.rng.usize(..all.len())].clone());
        }
        Some(ids[self.rng.usize(..ids.len())].clone())
    }
}

fn some_limits(rng: &mut Rng) -> PerKey {
    let most = [0, 1, 1, 1, 2, 2][rng.usize(..6)];
    let rate = if rng.u32(..4) == 0 { rng.usize(1..4) } else { 0 };
    PerKey { most, rate, window_us: WINDOW_US }
}

/// The window of a rate, us.
const WINDOW_US: u64 = 6_000;

fn text(value: &redis::Value) -> String {
    redis::from_redis_value_ref(value).unwrap()
}
