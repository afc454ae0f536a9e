//! What producers, people and keepers do with the jobs of a history, and what a server can lose.

use super::{History, text};
use crate::simulation::FAR;
use crate::simulation::lanes::nouns::{Hold, Job, Own, PerKey, Place, State};

/// When the first job of a history was dispatched by the clock of its producer, ms: long ago.
const FIRST_MS: u64 = 1_700_000_000_000;

/// A new job, as its producer writes it.
struct New {
    id: String,
    job: Job,
    triples: Vec<[String; 2]>,
}

/// An id that shows when its job was dispatched, ms.
fn generated(dispatched: u64, number: usize) -> String {
    let digits = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    let mut bits = u128::from(dispatched) << 80 | 7 << 76 | number as u128;
    let mut id = [b'0'; 22];
    for digit in id.iter_mut().rev() {
        *digit = digits[(bits % 62) as usize];
        bits /= 62;
    }
    String::from_utf8(id.to_vec()).unwrap()
}

impl History {
    fn new_job(&mut self) -> New {
        self.ids += 1;
        let mut id = format!("job-{:03}", self.ids);
        let key = if self.rng.u32(..8) == 0 { String::new() } else { format!("k{}", self.rng.usize(..self.keys)) };
        let gone = self.books.ids(|state| *state == State::Gone);
        let is_used_again = !gone.is_empty() && self.rng.u32(..6) == 0;
        if is_used_again {
            id.clone_from(&gone[self.rng.usize(..gone.len())]);
        }
        let (rank, dispatched) = ([1, 2, 2, 2, 3][self.rng.usize(..5)], FIRST_MS + self.ids as u64);
        let is_delayed = self.rng.u32(..8) == 0;
        let cost = if self.rng.u32(..6) == 0 { self.rng.usize(2..5) } else { 1 };
        let mut triples = Vec::new();
        let mut set = |column: &str, value: String| triples.push([column.to_owned(), value]);
        if !is_used_again && self.rng.u32(..4) == 0 {
            id = generated(dispatched, self.ids);
        } else {
            set("dispatchedAt", dispatched.to_string());
        }
        // A producer that knows of keys says that a job has none.
        if !key.is_empty() || is_used_again || self.rng.bool() {
            set("laneOf", key.clone());
        }
        if rank != 2 {
            set("priority", ["high", "normal", "low"][usize::from(rank) - 1].to_owned());
        }
        if is_delayed {
            set("delay", FAR.to_string());
        }
        if cost > 1 {
            let delay = if is_delayed { format!(r#""delay_ms":{FAR},"#) } else { String::new() };
            set("options", format!(r#"{{{delay}"cost":{cost}}}"#));
        }
        let state = if is_delayed { State::Delayed { is_due: false } } else { State::Waiting };
        let place = Place { key: key.clone(), rank, exact: 1000 * dispatched, before: 0 };
        New { id, job: Job { key, unique: None, cost, state, place }, triples }
    }

    /// Adds a job that was dispatched before now.
    fn add(&mut self, new: New, now_us: u64) {
        let New { id, mut job, triples } = new;
        let has_lane = triples.iter().any(|[column, _]| column == "laneOf");
        if has_lane && job.state == State::Waiting {
            job.place.before = now_us + 1;
        }
        self.books.is_keyed |= has_lane;
        self.books.add(&id, job);
    }

    fn now_us(&mut self) -> u64 {
        let (seconds, us): (u64, u64) = redis::cmd("TIME").query(self.task.connection()).unwrap();
        1_000_000 * seconds + us
    }

    pub(super) fn dispatch(&mut self) {
        let mut jobs: Vec<New> = Vec::new();
        for _ in 0..self.rng.usize(1..=5) {
            let new = self.new_job();
            if jobs.iter().all(|other| other.id != new.id) {
                jobs.push(new);
            }
        }
        let mut args = vec!["1".to_owned(), "1".to_owned(), jobs.len().to_string()];
        args.extend(jobs.iter().flat_map(|job| [job.id.clone(), "{}".to_owned()]));
        for (job, at) in jobs.iter().zip(1..) {
            args.extend(job.triples.iter().flat_map(|[column, value]| [column.clone(), at.to_string(), value.clone()]));
        }
        self.note(format!("dispatch {}", args[3..].join(" ")));
        let reply: String = self.task.call("dispatch", &args);
        assert_eq!(reply, "dispatched");
        let now_us = self.now_us();
        for new in jobs {
            self.add(new, now_us);
        }
    }

    pub(super) fn dispatch_unique(&mut self) {
        let mut new = self.new_job();
        let (key, mode) = (format!("u{}", self.rng.u32(..3)), ["done", "started", "replace"][self.rng.usize(..3)]);
        new.job.unique = Some(key.clone());
        let call = format!("call-{}", self.steps);
        let mut args = ["1", "1", &call, &new.id, "{}", &key, mode, "0"].map(str::to_owned).to_vec();
        args.extend(new.triples.iter().flat_map(|[column, value]| [column.clone(), "1".to_owned(), value.clone()]));
        let reply: Vec<String> = self.task.call("dispatch_unique", &args);
        self.note(format!("dispatch_unique {}: {reply:?}", args[2..].join(" ")));
        if reply[1] == "replaced" && reply[2] != new.id {
            // It waits, and has the options of this call now.
            self.books.jobs.get_mut(&reply[2]).unwrap().cost = new.job.cost;
        }
        if !["new", "replaced"].contains(&reply[1].as_str()) || reply[2] != new.id {
            return;
        }
        let before = self.books.uniques.insert(key, new.id.clone());
        if reply[1] == "replaced" {
            // It was claimed, and had not begun.
            let before = before.unwrap();
            assert_eq!(self.books.word(&before), "running", "{before}");
            self.books.end(&before, "cancelled");
        }
        let now_us = self.now_us();
        self.add(new, now_us);
    }

    /// Calls a script about one job. Returns the word of the reply.
    fn ask(&mut self, script: &str, first: &[&str], id: &str) -> String {
        let args: Vec<String> = first.iter().chain(&[id, ""]).map(|word| (*word).to_owned()).collect();
        let [_, word]: [String; 2] = self.task.call(script, &args);
        self.note(format!("{script} {id}: {word}"));
        word
    }

    pub(super) fn cancel(&mut self) {
        let is_open = |state: &State| !matches!(state, State::Ended(_) | State::Gone);
        let Some(id) = self.some_id(is_open) else { return };
        let word = self.ask("cancel", &["why", "channel", "anna"], &id);
        let expected = match self.books.state(&id) {
            State::Waiting | State::Delayed { .. } => {
                self.books.end(&id, "cancelled");
                "ended"
            }
            State::Held(hold) => {
                let hold = State::Held(Hold { is_cancelled: true, ..hold.clone() });
                self.books.set(&id, hold);
                "requested"
            }
            _ => self.books.word(&id),
        };
        assert_eq!(word, expected, "cancel {id}");
    }

    pub(super) fn remove(&mut self) {
        let Some(id) = self.some_id(|state| !matches!(state, State::Held(_) | State::Gone)) else { return };
        let word = self.ask("remove", &["anna"], &id);
        let is_free = !matches!(self.books.state(&id), State::Held(_) | State::Gone);
        assert_eq!(word, if is_free { "removed" } else { self.books.word(&id) }, "remove {id}");
        if is_free {
            self.books.ended += 1;
            self.books.set(&id, State::Gone);
        }
    }

    pub(super) fn retry(&mut self) {
        let may_run_again = |state: &State| matches!(state, State::Ended("failed" | "cancelled"));
        let Some(id) = self.some_id(may_run_again) else { return };
        let word = self.ask("retry", &["anna", "0"], &id);
        let is_retried = may_run_again(self.books.state(&id));
        let unique = self.books.jobs[&id].unique.clone();
        if is_retried && unique.is_some() && word.starts_with("duplicate ") {
            return;
        }
        assert_eq!(word, if is_retried { "retried" } else { self.books.word(&id) }, "retry {id}");
        if is_retried {
            self.books.set(&id, State::Waiting);
            unique.map(|key| self.books.uniques.insert(key, id));
        }
    }

    pub(super) fn run_now(&mut self) {
        let is_delayed = |state: &State| matches!(state, State::Delayed { .. });
        let Some(id) = self.some_id(is_delayed) else { return };
        let word = self.ask("run_now", &["anna"], &id);
        let is_promoted = is_delayed(self.books.state(&id));
        assert_eq!(word, if is_promoted { "promoted" } else { self.books.word(&id) }, "run_now {id}");
        if is_promoted {
            self.books.set(&id, State::Waiting);
        }
    }

    /// A delayed job is due.
    pub(super) fn make_due(&mut self) {
        let ids = self.books.ids(|state| *state == State::Delayed { is_due: false });
        if ids.is_empty() {
            return;
        }
        let id = &ids[self.rng.usize(..ids.len())];
        self.note(format!("{id} is due"));
        self.task.make_due(id, 1);
        self.books.set(id, State::Delayed { is_due: true });
    }

    pub(super) fn pause(&mut self, is_paused: bool) {
        let name = if is_paused { "pause" } else { "resume" };
        self.note(name.to_owned());
        let _: Vec<redis::Value> = self.task.call(name, &["anna".to_owned(), "why".to_owned()]);
        self.books.is_paused = is_paused;
    }

    /// A person changes the settings of a key, which may have no jobs.
    pub(super) fn put_lane(&mut self) {
        let key = format!("k{}", self.rng.usize(..self.keys));
        let before = self.books.own.get(&key).copied().unwrap_or_default();
        let limits = super::some_limits(&mut self.rng);
        let (what, value, own) = match self.rng.u32(..8) {
            0..3 => ("limits", stored(limits), Own { limits: Some(limits), ..before }),
            3 => ("limits", "- - -".to_owned(), Own { limits: None, ..before }),
            4 => ("weight", self.rng.u32(1..5).to_string(), before),
            5 => ("pause", String::new(), Own { is_paused: true, ..before }),
            6 => ("resume", String::new(), Own { is_paused: false, ..before }),
            _ => ("reset", String::new(), Own::default()),
        };
        self.put(&key, (what, value), own);
    }

    /// The keys have no settings any more.
    pub(super) fn reset_lanes(&mut self) {
        for key in self.books.own.keys().cloned().collect::<Vec<_>>() {
            self.put(&key, ("reset", String::new()), Own::default());
        }
    }

    fn put(&mut self, key: &str, (what, value): (&str, String), own: Own) {
        self.note(format!("lane_put {key} {what} {value}"));
        let args = [key.to_owned(), what.to_owned(), value, "ada".to_owned()];
        let reply: Vec<redis::Value> = self.task.call("lane_put", &args);
        let was_paused: u8 = redis::from_redis_value_ref(&reply[1]).unwrap();
        assert_eq!(was_paused == 1, self.books.is_key_paused(key), "the pause of {key}");
        self.books.put(key, own, ["limits", "reset"].contains(&what));
    }

    /// A keeper mends the keys about lanes.
    pub(super) fn trim(&mut self) {
        for place in ["laneOf", "laneStarts", "laneHeld", "lanes"] {
            let mut cursor = String::new();
            loop {
                let args = [place.to_owned(), cursor, "500".to_owned()];
                let reply: Vec<redis::Value> = self.task.call("trim_lanes", &args);
                self.note(format!("trim_lanes {place}: {reply:?}"));
                cursor = text(&reply[1]);
                if cursor.is_empty() {
                    break;
                }
            }
        }
        self.books.is_broken = false;
    }

    /// The server loses a key about lanes.
    pub(super) fn lose_a_key(&mut self) {
        let name = if self.rng.bool() { "turns" } else { "laneHeld" };
        self.note(format!("{name} is lost"));
        let key = format!("{}{name}", self.task.prefix());
        let () = redis::cmd("DEL").arg(key).query(self.task.connection()).unwrap();
        if name == "laneHeld" { self.books.lose_slots() } else { self.books.lose_turns() }
    }
}

/// Limits of one key, as they are stored.
fn stored(limits: PerKey) -> String {
    let window_us = if limits.rate > 0 { limits.window_us } else { 0 };
    format!("{} {} {window_us}", limits.most, limits.rate)
}
