//! Random histories of unique jobs on a real server: dispatches in every mode, lost replies, claims, ends, dead
//! workers, cancels, removals, retries, and failovers that lose what was written since the last copy.
//!
//! A model keeps the last entry of each key, and says from the state of its job whether the key must block. A failure
//! prints its seed. `HEARTLINE_SIMULATION=<seed>` runs that seed alone.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use fastrand::Rng;
use redis::Value;

use crate::simulation::FAR;
use crate::simulation::task::Task;
use crate::support::{is_thorough, settle_args};

const HISTORIES: u64 = 1_000;
const THOROUGH_HISTORIES: u64 = 20_000;
const STEPS: usize = 40;
const KEYS: [&str; 3] = ["a", "b", "c"];
const MODES: [&str; 6] = ["done", "done", "started", "period", "replace", "debounce"];
/// How many calls an entry keeps.
const CALLS: usize = 8;

/// What the model knows about a key.
#[derive(Clone, Debug, Default)]
struct Entry {
    job: String,
    mode: String,
    /// Whether the period lasts until the end of the history.
    lasts: bool,
    /// Each call that wrote, with its answer and the job.
    calls: Vec<(String, String, String)>,
}

/// A dispatch as it was sent.
#[derive(Clone, Debug)]
struct Sent {
    id: String,
    key: &'static str,
    args: Vec<String>,
}

/// What is lost by a failover.
#[derive(Clone, Debug, Default)]
struct Known {
    entries: BTreeMap<&'static str, Entry>,
    /// The key of each job, unless it runs without it.
    key_of: BTreeMap<String, &'static str>,
    held: BTreeMap<String, Held>,
}

#[derive(Clone, Debug)]
struct Held {
    worker: String,
    fence: u64,
    has_begun: bool,
}

struct History {
    rng: Rng,
    task: Task,
    known: Known,
    copy: Known,
    ids: usize,
    workers: usize,
    /// Calls of settle, one sequence for each worker and life of the server.
    calls: u64,
    sent: Vec<Sent>,
    seen: BTreeMap<String, u64>,
    log: String,
}

impl History {
    fn new(seed: u64) -> History {
        let mut history = History {
            rng: Rng::with_seed(seed),
            task: Task::new(),
            known: Known::default(),
            copy: Known::default(),
            ids: 0,
            workers: 1,
            calls: 0,
            sent: Vec::new(),
            seen: BTreeMap::new(),
            log: String::new(),
        };
        let keep = if seed.is_multiple_of(4) { "0" } else { "1" };
        let hook = if seed.is_multiple_of(3) { "1" } else { "0" };
        let mut args = vec!["1", "", "starter", "maxCount", "1", "onCrash", "recover", "hook", hook];
        for name in ["keepCompleted", "keepFailed", "keepCancelled"] {
            args.extend([name, keep]);
        }
        let _: Vec<Value> = history.call("declare", &args);
        history.task.copy_all();
        history
    }

    fn call<T: redis::FromRedisValue>(&mut self, name: &str, args: &[&str]) -> T {
        let args: Vec<String> = args.iter().map(ToString::to_string).collect();
        writeln!(self.log, "{name} {}", args.join(" ")).unwrap();
        self.task.call(name, &args)
    }

    fn saw(&mut self, what: impl Into<String>) {
        *self.seen.entry(what.into()).or_default() += 1;
    }

    fn state(&mut self, id: &str) -> String {
        let reply: (String, String, Vec<String>, Vec<u64>) = self.task.call("states", &[id.to_owned()]);
        reply.2[0].clone()
    }

    fn step(&mut self) {
        match self.rng.u32(..100) {
            0..40 => self.dispatch(),
            40..48 => self.repeat(),
            48..62 => self.claim(),
            62..76 => self.end(),
            76..80 => self.die(),
            80..85 => self.act("cancel"),
            85..88 => self.act("remove"),
            88..94 => self.retry(),
            94..96 => self.trim(),
            96..98 => {
                self.log.push_str("a copy\n");
                self.task.copy_all();
                self.copy = self.known.clone();
            }
            _ => self.fail_over(),
        }
    }

    fn dispatch(&mut self) {
        let (key, mode) = (KEYS[self.rng.usize(..KEYS.len())], MODES[self.rng.usize(..MODES.len())]);
        self.ids += 1;
        let id = format!("job-{}", self.ids);
        let lasts = mode == "period" && self.rng.u32(..4) == 0;
        let time = if lasts || mode == "debounce" { FAR } else { 0 };
        let mut args = ["1", "1"].map(str::to_owned).to_vec();
        args.extend([id.clone(), id.clone(), format!("[{}]", self.ids), key.to_owned(), mode.to_owned()]);
        args.push(time.to_string());
        if mode == "debounce" || self.rng.u32(..5) == 0 {
            args.extend(["delay".to_owned(), "1".to_owned(), FAR.to_string()]);
        }
        let sent = Sent { id, key, args };
        let expected = self.expected(&sent, mode, lasts);
        self.send(&sent, &expected);
        self.sent.push(sent);
    }

    /// The answer that the model demands, which it then records.
    fn expected(&mut self, sent: &Sent, mode: &str, lasts: bool) -> (String, String) {
        let old = self.known.entries.get(sent.key).cloned().unwrap_or_default();
        let state = if old.job.is_empty() { "unknown".to_owned() } else { self.state(&old.job) };
        let is_pending = ["waiting", "delayed", "claimed"].contains(&&*state);
        let runs = ["running", "finalizing"].contains(&&*state);
        let renews = mode == "replace" || mode == "debounce";
        let is_taken = match &*old.mode {
            "period" => old.lasts,
            "started" => is_pending,
            _ => is_pending || runs,
        };
        let stays = if renews { old.lasts && !is_pending } else { is_taken };
        if stays {
            self.saw("existed");
            return ("existed".to_owned(), old.job);
        }
        let word = match (renews && is_pending, &*state, mode) {
            (false, ..) => "new",
            (true, "delayed", "debounce") => "postponed",
            (true, ..) => "replaced",
        };
        self.saw(word);
        let is_written = word == "new" || state == "claimed";
        if is_written {
            self.known.key_of.insert(sent.id.clone(), sent.key);
            if state == "claimed" {
                self.saw("a claimed job ended");
                self.known.held.remove(&old.job);
            }
        }
        let job = if is_written { sent.id.clone() } else { old.job };
        let keeps_period = old.lasts && word != "new";
        let own = if renews { "done" } else { mode };
        let mut calls = old.calls;
        calls.push((sent.id.clone(), word.to_owned(), job.clone()));
        calls.drain(..calls.len().saturating_sub(CALLS));
        let mode = if keeps_period { "period" } else { own }.to_owned();
        let entry = Entry { job: job.clone(), mode, lasts: keeps_period || lasts, calls };
        self.known.entries.insert(sent.key, entry);
        (word.to_owned(), job)
    }

    fn send(&mut self, sent: &Sent, (word, job): &(String, String)) {
        let args: Vec<&str> = sent.args.iter().map(String::as_str).collect();
        let reply: Vec<String> = self.call("dispatch_unique", &args);
        assert_eq!(reply, ["placed".to_owned(), word.clone(), job.clone()], "{sent:?}");
    }

    /// A call whose reply was lost is sent again: while its entry knows it, it gets its first answer.
    fn repeat(&mut self) {
        let Some(sent) = self.rng.choice(&self.sent).cloned() else { return };
        let known = self.known.entries.get(sent.key).map(|entry| entry.calls.clone()).unwrap_or_default();
        if let Some((_, word, job)) = known.into_iter().find(|(call, ..)| *call == sent.id) {
            self.saw("repeated");
            self.send(&sent, &(word, job));
        }
    }

    fn claim(&mut self) {
        let (count, begin) = (self.rng.usize(1..3), self.rng.usize(..2));
        let worker = format!("w{}", self.rng.usize(..self.workers));
        self.settle(&worker, &format!("{count} {begin} {begin}"), &[]);
    }

    /// One settle call in a sequence of its own; the ids that it claimed are held.
    fn settle(&mut self, worker: &str, want: &str, report: &[String]) {
        self.calls += 1;
        let is_end = report.len() == 2;
        let mut short = vec![format!("1/{}", self.calls), worker.to_owned(), "1000".to_owned(), want.to_owned()];
        short.extend([if is_end { "1" } else { "0" }.to_owned(), "0".to_owned()]);
        short.extend(report.iter().cloned());
        writeln!(self.log, "settle {}", short.join(" ")).unwrap();
        let reply: Vec<Value> = self.task.call("settle", &settle_args(&short));
        let text = |at: usize| redis::from_redis_value_ref::<String>(&reply[at]).unwrap_or_default();
        assert_eq!(text(0), "settled");
        let (first, begin): (u64, u64) = (text(3).parse().unwrap_or(0), text(8).parse().unwrap_or(0));
        for (fence, id) in (first..).zip(text(4).split_whitespace()) {
            let held = Held { worker: worker.to_owned(), fence, has_begun: fence < first + begin };
            self.known.held.insert(id.to_owned(), held);
        }
    }

    /// A held job ends, fails, is retried later, or is put back.
    fn end(&mut self) {
        let held: Vec<(String, Held)> = self.known.held.iter().map(|(id, held)| (id.clone(), held.clone())).collect();
        let Some((id, Held { worker, fence, has_begun })) = self.rng.choice(held) else { return };
        let words: &[&str] = match self.rng.u32(..5) {
            0 | 1 if has_begun => &[],
            2 if has_begun => &["failed", "1", "panic - 5", "{}"],
            3 if has_begun => &["retry", "1", "86400000 odd - 5", "{}"],
            _ => &["requeue", "0", "", ""],
        };
        let mut report = vec![id.clone(), fence.to_string()];
        report.extend(words.iter().map(ToString::to_string));
        self.settle(&worker, "0", &report);
        self.known.held.remove(&id);
    }

    /// A worker dies, and its jobs are resolved.
    fn die(&mut self) {
        let worker = format!("w{}", self.rng.usize(..self.workers));
        self.workers += 1;
        let reply: Vec<Value> = self.call("reconcile", &["other", "worker_restarted", "", "0", "500", &worker]);
        assert_eq!(redis::from_redis_value_ref::<String>(&reply[0]).unwrap(), "reconciled");
        self.known.held.retain(|_, held| held.worker != worker);
        self.saw("a worker died");
    }

    fn some_id(&mut self) -> String {
        format!("job-{}", self.rng.usize(..self.ids + 1))
    }

    fn act(&mut self, name: &str) {
        let id = self.some_id();
        let first: &[&str] = if name == "cancel" { &["why", "channel", ""] } else { &["ada"] };
        let [_, word]: [String; 2] = self.call(name, &[first, &[id.as_str(), ""]].concat());
        self.saw(format!("{name} {word}"));
    }

    /// A person retries a job: refused while another job has its key, unless it may run without.
    fn retry(&mut self) {
        let (id, anyway) = (self.some_id(), self.rng.u32(..4) == 0);
        let before = self.state(&id);
        let mut expected = before.replace("claimed", "running");
        if before == "failed" || before == "cancelled" {
            expected = "retried".to_owned();
            if let Some(key) = self.known.key_of.get(&id).copied() {
                expected = self.retaken(&id, key, anyway);
            }
        }
        let word = if anyway { "1" } else { "0" };
        let [_, told]: [String; 2] = self.call("retry", &["ada", word, &id, ""]);
        assert_eq!(told, expected, "{id}");
        self.saw(told.split(' ').next().unwrap_or_default());
    }

    fn retaken(&mut self, id: &str, key: &'static str, anyway: bool) -> String {
        let entry = self.known.entries.get(key).cloned();
        let mut entry = entry.unwrap_or_else(|| Entry { mode: "done".to_owned(), ..Entry::default() });
        let state = if entry.job.is_empty() { "unknown".to_owned() } else { self.state(&entry.job) };
        let is_pending = ["waiting", "delayed", "claimed"].contains(&&*state);
        let is_taken = match &*entry.mode {
            "period" => entry.lasts,
            "started" => is_pending,
            _ => is_pending || ["running", "finalizing"].contains(&&*state),
        };
        if entry.job != id && is_taken {
            if anyway {
                self.known.key_of.remove(id);
                return "retried".to_owned();
            }
            return format!("duplicate {}", entry.job);
        }
        entry.job = id.to_owned();
        self.known.entries.insert(key, entry);
        "retried".to_owned()
    }

    /// Removes entries of removed jobs, however young they are: the model forgets them too.
    fn trim(&mut self) {
        let [word, cursor, _, _]: [String; 4] = self.call("trim_unique", &["0", "500", "0"]);
        assert_eq!((&*word, &*cursor), ("trimmed", "0"));
        let ids: Vec<String> = self.known.key_of.keys().cloned().collect();
        for id in ids {
            if self.state(&id) != "unknown" {
                continue;
            }
            let key = self.known.key_of[&id];
            let is_its = self.known.entries.get(key).is_some_and(|entry| entry.job == id);
            if is_its && self.known.entries[key].lasts {
                continue;
            }
            if is_its {
                self.known.entries.remove(key);
            }
            self.known.key_of.remove(&id);
        }
        assert_eq!(self.task.fields("uniqueOf"), self.known.key_of.keys().cloned().collect::<Vec<_>>());
        let keys: Vec<String> = self.known.entries.keys().map(ToString::to_string).collect();
        assert_eq!(self.task.fields("unique"), keys);
        self.saw("trimmed");
    }

    /// A replica takes over that has not seen what was written since the copy.
    fn fail_over(&mut self) {
        self.log.push_str("a failover\n");
        self.task.restore_all();
        self.known = self.copy.clone();
        // Calls that the server has forgotten are new ones; the test repeats only those that it knows.
        self.saw("a failover");
    }
}

fn seeds() -> Vec<u64> {
    match std::env::var("HEARTLINE_SIMULATION").ok().and_then(|seed| seed.parse().ok()) {
        Some(seed) => vec![seed],
        None => (0..if is_thorough() { THOROUGH_HISTORIES } else { HISTORIES }).collect(),
    }
}

#[test]
fn a_key_blocks_exactly_while_a_job_that_counts_has_it() {
    let mut seen = BTreeMap::<String, u64>::new();
    for seed in seeds() {
        let mut history = History::new(seed);
        let run = catch_unwind(AssertUnwindSafe(|| {
            for _ in 0..STEPS {
                history.step();
            }
            history.trim();
        }));
        history.task.remove_all();
        if let Err(panic) = run {
            eprintln!("seed {seed}:\n{}", history.log);
            resume_unwind(panic);
        }
        for (what, count) in history.seen {
            *seen.entry(what).or_default() += count;
        }
    }
    let all = "new; existed; replaced; postponed; a claimed job ended; repeated; a worker died; retried; duplicate; \
         cancel ended; cancel requested; remove removed; trimmed; a failover";
    for what in all.split("; ") {
        assert!(seen.contains_key(what) || seeds().len() == 1, "no history has {what}: {seen:?}");
    }
}
