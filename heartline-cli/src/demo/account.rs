//! Counts the events of a pass, and prints the verdict.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use heartline::{Event, RecvError, StallAction, StallReason, StalledEvent, Subscription};
use serde::Serialize;
use tokio::sync::Notify;

use super::crew::Crew;
use super::files::Counted;
use crate::failure::Failure;
use crate::output::Output;

/// The longest lag of a replica: jobs that were acknowledged earlier must survive a failover.
const LAG: Duration = Duration::from_secs(1);

/// How the jobs of a pass ended.
pub(super) struct Account {
    pub(super) took: Duration,
    /// Worker processes that died.
    pub(super) deaths: usize,
    /// Jobs in no terminal state.
    pub(super) lost: u64,
    /// Inconsistencies that an audit found.
    pub(super) faults: u64,
    /// When a primary was killed.
    pub(super) failover: Option<SystemTime>,
    /// Jobs that the failover lost.
    pub(super) forgotten: usize,
    /// Whether the poison job failed and the patient one was cancelled.
    pub(super) ended_as_meant: bool,
    pub(super) totals_match: bool,
    pub(super) found: Counted,
    pub(super) expected: Counted,
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
    /// Jobs in no terminal state, without those of `lost_by_server`.
    lost: u64,
    /// Of a cluster: jobs, and ends of jobs, that a primary acknowledged before its replica had them.
    #[serde(skip_serializing_if = "Option::is_none")]
    lost_by_server: Option<usize>,
    /// Jobs with two terminal events, unless a server lost the first.
    double_recorded: usize,
    totals_match: bool,
    faults: u64,
    deaths: usize,
}

/// The events of a pass so far.
pub(super) struct Tally {
    dispatched: usize,
    seen: Mutex<Seen>,
    ended: Notify,
}

#[derive(Default)]
struct Seen {
    /// By job: when its first terminal event was, and how many there were.
    terminal: HashMap<String, (SystemTime, u32)>,
    completed: u64,
    failed: u64,
    cancelled: u64,
    stalled: u64,
    recovered: u64,
    missed: u64,
}

/// Whether the death of a primary may lose what it acknowledged at that time.
pub(super) fn may_be_lost(acknowledged: SystemTime, death: SystemTime) -> bool {
    death.duration_since(acknowledged).is_ok_and(|before| before < LAG)
}

impl Tally {
    pub(super) fn new(dispatched: usize) -> Tally {
        Tally { dispatched, seen: Mutex::default(), ended: Notify::new() }
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, event: &Event) {
        let mut seen = self.seen();
        match event {
            Event::Completed { .. } => seen.completed += 1,
            Event::Failed { .. } => seen.failed += 1,
            Event::Cancelled { .. } => seen.cancelled += 1,
            // A stall that ends a job is followed by the event of that end.
            Event::Stalled(stalled) => {
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

    /// Waits until every job has had a terminal event.
    pub(super) async fn all_ended(&self) {
        self.ended.notified().await;
    }

    /// Prints the totals and, as the last line, the verdict as JSON. Returns whether all is well.
    pub(super) fn print(&self, account: &Account, out: Output) -> Result<bool, Failure> {
        let seen = self.seen();
        let (twice, again): (Vec<SystemTime>, Vec<SystemTime>) = seen
            .terminal
            .values()
            .filter(|(_, count)| *count > 1)
            .map(|(first, _)| *first)
            .partition(|first| account.failover.is_none_or(|at| !may_be_lost(*first, at)));
        let Account { lost, faults, deaths, totals_match, .. } = *account;
        let verdict = Verdict {
            dispatched: self.dispatched,
            completed: seen.completed,
            failed: seen.failed,
            cancelled: seen.cancelled,
            stalled_events: seen.stalled,
            recovered: seen.recovered,
            lost,
            lost_by_server: account.failover.map(|_| account.forgotten + again.len()),
            double_recorded: twice.len(),
            totals_match,
            faults,
            deaths,
        };
        if !out.is_json {
            account.print(out)?;
        }
        if seen.missed > 0 {
            say!("{} events were missed, so outcomes recorded twice may be missed too", seen.missed);
        }
        out.json_line(&verdict)?;
        let ended = seen.terminal.len() + account.forgotten == self.dispatched;
        let is_once = twice.is_empty() && seen.missed == 0;
        Ok(lost + faults == 0 && totals_match && is_once && ended && account.ended_as_meant)
    }
}

impl Account {
    fn print(&self, out: Output) -> Result<(), Failure> {
        let Account { took, deaths, found, expected, .. } = self;
        out.line(format!("\nall jobs ended after {:.1} s; {deaths} worker processes died\n", took.as_secs_f64()))?;
        let row =
            |name: &str, by_jobs: u64, direct: u64| vec![name.to_owned(), by_jobs.to_string(), direct.to_string()];
        let rows = vec![
            row("files", found.files, expected.files),
            row("bytes", found.bytes, expected.bytes),
            row("lines", found.lines, expected.lines),
            row("words", found.words, expected.words),
            row("hashes", found.hashes, expected.hashes),
        ];
        out.table(&["", "BY JOBS", "DIRECT"], rows)?;
        out.line("")
    }
}

/// By worker: its index in the crew, how many of its jobs were recovered, and how long after its death.
type TakenBack = HashMap<String, (usize, usize, Duration)>;

/// Counts every event, and reports stalls and the jobs recovered from dead workers of this host.
pub(super) async fn follow(mut events: Subscription<Event>, tally: Arc<Tally>, crew: Arc<Crew>) {
    let mut taken = TakenBack::new();
    let mut quiet = tokio::time::interval(Duration::from_millis(300));
    let mut is_news = false;
    loop {
        let event = tokio::select! {
            event = events.recv() => event,
            _ = quiet.tick() => {
                if !std::mem::take(&mut is_news) {
                    for (_, (index, jobs, after)) in taken.drain() {
                        let (number, after) = (index + 1, after.as_secs_f64());
                        say!("worker {number} restarted: {jobs} jobs recovered after {after:.1} s");
                    }
                }
                continue;
            }
        };
        match event {
            Ok(event) => {
                if let Event::Stalled(stalled) = &event {
                    report(stalled);
                    if stalled.reason == StallReason::WorkerRestarted
                        && let Some(worker) = &stalled.worker
                        && let Some((index, after)) = crew.death_of(worker.as_str())
                    {
                        let (_, jobs, last) = taken.entry(worker.to_string()).or_insert((index, 0, after));
                        (*jobs, *last, is_news) = (*jobs + 1, after, true);
                    }
                }
                tally.take(&event);
            }
            Err(RecvError::Lagged(missed)) => tally.seen().missed += missed,
            Err(_) => return,
        }
    }
}

fn report(stalled: &StalledEvent) {
    let StalledEvent { task, id, stalled_count, action, worker, .. } = stalled;
    let worker = worker.as_ref().map_or("no worker", |worker| worker.as_str());
    say!("  task:stalled  {task}/{id}  stall {stalled_count}  {action}  (held by {worker})");
}

/// Reports every two seconds how many jobs have ended.
pub(super) async fn progress(tally: Arc<Tally>) {
    loop {
        tokio::time::sleep(Duration::from_secs(2)).await;
        let seen = tally.seen();
        let (ended, dispatched) = (seen.terminal.len(), tally.dispatched);
        let Seen { completed, recovered, failed, cancelled, .. } = *seen;
        say!(
            "{ended:>5} of {dispatched} ended   {completed} completed   {recovered} recovered   {failed} failed   {cancelled} cancelled"
        );
    }
}
