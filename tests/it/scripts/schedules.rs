//! Rows of schedules and calls of their scripts, in short.

use crate::scripts::call::{Task, timeless};

/// A schedule that was put at run time, with the digest `d` and the input `7`. Its next tick is at `due`, ms.
pub async fn row(task: &mut Task, name: &str, due: u64) {
    task.write(&format!("schedules:rule {name}=d - put 0 ada {{}}; schedules:input {name}=7; schedules {name}={due}"))
        .await;
    task.write(&format!("schedules:ledger {name}={due} 1 0 0 0 0 0 - - - - - - -")).await;
}

/// The ledger of a schedule, with NOW for current times.
pub async fn ledger(task: &mut Task, name: &str) -> String {
    timeless(&task.field("schedules:ledger", name).await)
}

/// What one call fires of a schedule.
#[derive(Clone)]
pub struct Firing {
    pub name: String,
    pub digest: &'static str,
    pub zone: &'static str,
    pub overlap: &'static str,
    pub due: u64,
    pub through: u64,
    pub next: Option<u64>,
    pub missed: u64,
    pub paused: u64,
    pub at_least: bool,
    pub is_pending: bool,
    pub ticks: Vec<u64>,
}

impl Firing {
    /// These ticks, ms; the first is due. The next one is 10 ms after the last.
    pub fn of(name: &str, ticks: &[u64]) -> Firing {
        let (first, last) = (ticks.first().copied().unwrap_or(5), ticks.last().copied().unwrap_or(5));
        Firing {
            name: name.to_owned(),
            digest: "d",
            zone: "-",
            overlap: "skip",
            due: first,
            through: last,
            next: Some(last + 10),
            missed: 0,
            paused: 0,
            at_least: false,
            is_pending: false,
            ticks: ticks.to_vec(),
        }
    }

    /// The same with another policy.
    pub fn with(name: &str, overlap: &'static str, ticks: &[u64]) -> Firing {
        Firing { overlap, ..Firing::of(name, ticks) }
    }

    /// The tick that waits for the last job.
    pub fn pending(name: &str, tick: u64) -> Firing {
        Firing { is_pending: true, ..Firing::of(name, &[tick]) }
    }

    pub fn args(&self) -> Vec<String> {
        let next = self.next.map_or("-".to_owned(), |next| next.to_string());
        let flag = |is_set: bool| u8::from(is_set).to_string();
        let mut args: Vec<String> = [&*self.name, self.digest, self.zone, self.overlap].map(str::to_owned).into();
        args.extend([self.due.to_string(), self.through.to_string(), next.clone(), next]);
        args.extend([self.missed.to_string(), self.paused.to_string(), flag(self.at_least), flag(self.is_pending)]);
        args.push(self.ticks.len().to_string());
        for tick in &self.ticks {
            let previous = tick.checked_sub(10).map_or("-".to_owned(), |previous| previous.to_string());
            args.extend([tick.to_string(), previous, format!("{}@{tick}", self.name), "{}".to_owned()]);
        }
        args
    }
}

/// Fires, and returns the answers: `done 1 - moved`.
pub async fn fire(task: &mut Task, firings: &[Firing]) -> String {
    let args: Vec<String> = firings.iter().flat_map(Firing::args).collect();
    let reply = task.ok("schedule_fire", &args).await;
    reply.trim_end_matches(']').splitn(5, ' ').nth(4).unwrap().to_owned()
}

/// The same for a call that writes nothing.
pub async fn refused(task: &mut Task, firing: &Firing) -> String {
    let before = task.exact().await;
    let answer = fire(task, std::slice::from_ref(firing)).await;
    assert_eq!(task.exact().await, before, "{answer}");
    answer
}

/// A schedule to write.
#[derive(Clone)]
pub struct New {
    pub source: &'static str,
    pub stamp: u64,
    pub digest: &'static str,
    pub zone: &'static str,
    pub basis: u64,
    pub next: Option<u64>,
    pub replaces: bool,
    pub parts: &'static str,
}

impl New {
    /// Put at run time, with the digest `d`: the next tick is in a minute.
    pub async fn put(task: &mut Task) -> New {
        let basis = task.now_ms().await as u64;
        let next = Some(basis + 60_000);
        New { source: "put", stamp: 0, digest: "d", zone: "-", basis, next, replaces: false, parts: "1" }
    }

    /// Declared by a worker that started at this time.
    pub async fn code(task: &mut Task, stamp: u64) -> New {
        New { source: "code", stamp, ..New::put(task).await }
    }

    pub fn args(&self, name: &str) -> Vec<String> {
        let next = self.next.map_or("-".to_owned(), |next| next.to_string());
        let (stamp, basis) = (self.stamp.to_string(), self.basis.to_string());
        let by = if self.source == "put" { "ada" } else { "w" };
        let replaces = if self.replaces { "1" } else { "0" };
        let words = ["1", name, self.source, &stamp, by, self.digest, self.zone, "{}", "7", &basis, &next, &next];
        words.into_iter().chain([replaces, "channel", self.parts]).map(str::to_owned).collect()
    }
}

/// Writes the schedule `a`, and returns the reply.
pub async fn put(task: &mut Task, new: &New) -> String {
    task.ok("schedule_put", &new.args("a")).await
}

/// The same for a call that writes nothing.
pub async fn put_nothing(task: &mut Task, new: &New) -> String {
    task.unchanged("schedule_put", &new.args("a")).await
}
