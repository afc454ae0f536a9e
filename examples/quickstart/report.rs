//! What the demo tells while it runs, and its verdict.

use std::collections::HashMap;
use std::io::{IsTerminal, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use heartline::{Event, RecvError, StallAction, StallReason, Subscription};
use serde::Serialize;
use tokio::sync::Notify;

use crate::crew::Crew;
use crate::tasks::Counted;

/// What the events told so far.
pub struct Tally {
    dispatched: usize,
    seen: Mutex<Seen>,
    ended: Notify,
}

/// What came of the jobs.
pub struct Account {
    pub took: Duration,
    /// Worker processes that died.
    pub deaths: usize,
    /// Jobs in no terminal set.
    pub lost: u64,
    /// When a primary was killed.
    pub failover: Option<SystemTime>,
    /// Jobs of which nothing is known behind that.
    pub forgotten: usize,
    pub totals_match: bool,
    pub found: Counted,
    pub expected: Counted,
}

/// The last line of the demo.
#[derive(Serialize)]
struct Verdict {
    dispatched: usize,
    completed: u64,
    failed: u64,
    cancelled: u64,
    stalled_events: u64,
    recovered: u64,
    /// Jobs in no terminal set, but for those of `lost_by_server`.
    lost: u64,
    /// Of a cluster: jobs, and ends of jobs, that a primary acknowledged and its replica did not have when it was killed.
    #[serde(skip_serializing_if = "Option::is_none")]
    lost_by_server: Option<usize>,
    /// Jobs with two terminal events, of which no server had lost the first.
    double_recorded: usize,
    totals_match: bool,
}

#[derive(Default)]
struct Seen {
    /// When each job had its first terminal event, and how many.
    terminal: HashMap<String, (SystemTime, u32)>,
    completed: u64,
    failed: u64,
    cancelled: u64,
    stalled: u64,
    recovered: u64,
    missed: u64,
}

/// For so long a replica may be behind its primary: what was acknowledged earlier is no loss of the servers.
const BEHIND: Duration = Duration::from_secs(1);

/// Whether what a primary acknowledged then may be lost by the death of that primary.
pub fn may_be_lost(acknowledged: SystemTime, death: SystemTime) -> bool {
    acknowledged <= death && death.duration_since(acknowledged).is_ok_and(|before| before < BEHIND)
}

impl Tally {
    pub fn new(dispatched: usize) -> Tally {
        Tally { dispatched, seen: Mutex::default(), ended: Notify::new() }
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Prints a line above the progress line.
    pub fn say(&self, line: &str) {
        let clear = if std::io::stdout().is_terminal() { "\r\x1b[K" } else { "" };
        println!("{clear}{line}");
    }

    fn take(&self, event: &Event) {
        let mut seen = self.seen();
        match event {
            Event::Completed { .. } => seen.completed += 1,
            Event::Failed { .. } => seen.failed += 1,
            Event::Cancelled { .. } => seen.cancelled += 1,
            Event::Stalled(stalled) => {
                // One that ends its job is followed by the event that says so.
                seen.stalled += 1;
                seen.recovered += u64::from(stalled.action == StallAction::Recovered);
            }
            _ => {}
        }
        if event.is_terminal() {
            seen.terminal.entry(event.id().to_string()).or_insert((event.at(), 0)).1 += 1;
            if seen.terminal.len() >= self.dispatched {
                self.ended.notify_one();
            }
        }
    }

    /// Waits until every job had a terminal event.
    pub async fn all_ended(&self) {
        self.ended.notified().await;
        self.ended.notify_one();
    }

    /// Prints the table and, as the last line, the verdict as JSON. Returns whether all is well.
    pub fn print(&self, account: &Account) -> bool {
        let Account { took, deaths, lost, failover, forgotten, totals_match, found, expected } = account;
        let seen = self.seen();
        let (twice, again): (Vec<SystemTime>, Vec<SystemTime>) = seen
            .terminal
            .values()
            .filter(|(_, count)| *count > 1)
            .map(|(first, _)| *first)
            .partition(|first| failover.is_none_or(|at| !may_be_lost(*first, at)));
        let (twice, lost_by_server) = (twice.len(), forgotten + again.len());
        self.say(&format!("\nall jobs ended after {:.1} s; {deaths} worker processes died\n", took.as_secs_f64()));
        println!("{:<8} {:>14} {:>14}", "", "by jobs", "direct");
        for (name, by_jobs, direct) in [
            ("files", found.files, expected.files),
            ("bytes", found.bytes, expected.bytes),
            ("lines", found.lines, expected.lines),
            ("words", found.words, expected.words),
        ] {
            println!("{name:<8} {by_jobs:>14} {direct:>14}");
        }
        println!("{:<8} {:>14x} {:>14x}\n", "digests", found.digests >> 16, expected.digests >> 16);
        if seen.missed > 0 {
            println!("{} events were missed: what was recorded twice cannot be told for sure", seen.missed);
        }
        let verdict = Verdict {
            dispatched: self.dispatched,
            completed: seen.completed,
            failed: seen.failed,
            cancelled: seen.cancelled,
            stalled_events: seen.stalled,
            recovered: seen.recovered,
            lost: *lost,
            lost_by_server: failover.map(|_| lost_by_server),
            double_recorded: twice,
            totals_match: *totals_match,
        };
        println!("{}", serde_json::to_string(&verdict).unwrap_or_default());
        let ended = seen.terminal.len() + forgotten;
        *lost == 0 && twice == 0 && *totals_match && seen.missed == 0 && ended == self.dispatched
    }
}

/// Jobs of a dead worker that others of its host have taken back: how many, and how long after its death the last one was.
type TakenBack = HashMap<String, (usize, usize, Duration)>;

/// Takes in every event, and prints each `task:stalled` as it comes, and how many jobs of a dead worker were taken back when
/// these are all.
pub async fn follow(mut events: Subscription<Event>, tally: Arc<Tally>, crew: Arc<Crew>) {
    let mut taken = TakenBack::new();
    let mut quiet = tokio::time::interval(Duration::from_millis(300));
    let mut is_news = false;
    loop {
        let event = tokio::select! {
            event = events.recv() => event,
            _ = quiet.tick() => {
                if !std::mem::take(&mut is_news) {
                    for (_, (number, jobs, after)) in taken.drain() {
                        let after = after.as_secs_f64();
                        tally.say(&format!("worker {number} restarted: {jobs} jobs taken back after {after:.1} s"));
                    }
                }
                continue;
            }
        };
        match event {
            Ok(event) => {
                if let Event::Stalled(stalled) = &event {
                    if stalled.reason == StallReason::WorkerRestarted
                        && let Some(worker) = &stalled.worker
                        && let Some((number, after)) = crew.death_of(worker.as_str())
                    {
                        let (_, jobs, last) = taken.entry(worker.to_string()).or_insert((number, 0, after));
                        (*jobs, *last, is_news) = (*jobs + 1, after, true);
                    }
                    tally.say(&format!(
                        "  task:stalled  {}/{}  stall {}  {}  (held by {})",
                        stalled.task,
                        stalled.id,
                        stalled.stalled_count,
                        stalled.action,
                        stalled.worker.as_ref().map_or("nobody", |worker| worker.as_str()),
                    ));
                }
                tally.take(&event);
            }
            Err(RecvError::Lagged(missed)) => tally.seen().missed += missed,
            Err(_) => return,
        }
    }
}

/// Shows how far it is: in place on a terminal, else a line every two seconds.
pub async fn progress(tally: Arc<Tally>) {
    let terminal = std::io::stdout().is_terminal();
    loop {
        tokio::time::sleep(Duration::from_millis(if terminal { 200 } else { 2000 })).await;
        let line = {
            let seen = tally.seen();
            format!(
                "{:>5} of {} ended   {} completed   {} recovered   {} failed   {} cancelled",
                seen.terminal.len(),
                tally.dispatched,
                seen.completed,
                seen.recovered,
                seen.failed,
                seen.cancelled
            )
        };
        if terminal {
            print!("\r\x1b[K{line}");
            let _ = std::io::stdout().flush();
        } else {
            println!("{line}");
        }
    }
}
