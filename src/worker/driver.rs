//! The settle loop of one task: outcomes and free slots go out, jobs come in.
//!
//! Settle is group commit: while a call is under way more outcomes gather, so batches grow with load, a lone job costs
//! one round trip, and nothing waits for more work to come. Under load two calls are under way, each on a line of its
//! own: Redis works on one while the other is on its way.
//!
//! | mode | entered when | left when |
//! |---|---|---|
//! | hungry | started, woken, a delayed job is due, or the last claim was filled | a claim came back with less than it asked for |
//! | idle | a claim came back short | the wake marker, a due time, or 5 s have come |
//! | stopping | shutdown began | every held job was answered, or the time for it is over |

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use backon::BackoffBuilder;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::task::JoinSet;

use super::clock::{self, Moment};
use super::held::{Flags, Held};
use super::{TaskRuntime, WorkerShared, runner};
use crate::job::JobId;
use crate::store::RESPONSE_TIMEOUT;
use crate::store::jobs::{self, BATCH, BATCH_BYTES, Claimed, LINES, Outcome, Report, Settled};

/// An idle task looks for work this often even when no marker came: a worker may have died with it.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// How long a shutdown waits for handlers to be dropped.
const DROP_TIME: Duration = Duration::from_secs(1);

/// Outcomes of finished runs, on their way to the driver.
#[derive(Debug, Default)]
pub(crate) struct Outbox(Mutex<Vec<Report>>);

impl Outbox {
    fn push(&self, report: Report) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(report);
    }

    fn take(&self) -> Vec<Report> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn len(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}

/// The driver of one task.
pub(super) struct Driver {
    task: Arc<TaskRuntime>,
    worker: Arc<WorkerShared>,
    runs: JoinSet<()>,
    /// Runs by fence that have not reported yet; each fills a slot.
    busy: HashMap<u64, JobId>,
    /// Outcomes that no call carries yet.
    pending: Vec<Report>,
    lines: [Line; LINES.len()],
    calls: FuturesUnordered<Pin<Box<dyn Future<Output = Answered> + Send>>>,
    hungry: bool,
    /// A place in the queue for a slot of the worker's cap: one of its tasks must not take all of them again and again.
    queued: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    /// A slot that came of it.
    granted: bool,
    /// Runs were spawned since the last wait.
    started: bool,
    look_at: Moment,
    stop: Option<Stop>,
}

/// A line of calls, one at a time and numbered. Of two lines, one call can be on its way while Redis works on the other.
#[derive(Debug)]
struct Line {
    next_call: u64,
    /// Jobs that the call under way asks for.
    wanted: Option<usize>,
}

/// A call that was answered.
struct Answered {
    line: usize,
    number: u64,
    sent: Moment,
    reports: Vec<Report>,
    want: usize,
    /// `want`, or 0 when an old call was repeated.
    asked: usize,
    settled: Settled,
}

/// The times of a shutdown.
struct Stop {
    /// Handlers may go on until here.
    grace: Moment,
    /// Handlers were told to stop; what still runs here is handed back.
    cancel: Moment,
    /// What Redis could not be told by here is left.
    end: Moment,
    told: bool,
}

impl Driver {
    pub(super) fn new(task: Arc<TaskRuntime>, worker: Arc<WorkerShared>) -> Driver {
        Driver {
            task,
            worker,
            runs: JoinSet::new(),
            busy: HashMap::new(),
            pending: Vec::new(),
            lines: LINES.map(|_| Line { next_call: 1, wanted: None }),
            calls: FuturesUnordered::new(),
            hungry: true,
            queued: None,
            granted: false,
            started: false,
            look_at: clock::now(),
            stop: None,
        }
    }

    /// Works until the shutdown is through. Returns the jobs that Redis could not be told about, or, where a claim was not
    /// answered, that there may be some: then the list may be empty. `None`: nothing is left.
    pub(super) async fn run(mut self) -> Option<Vec<JobId>> {
        loop {
            self.collect().await;
            self.begin_stop();
            self.advance_stop().await;
            if let Some(stop) = &self.stop {
                if self.busy.is_empty() && self.pending.is_empty() && self.calls.is_empty() {
                    return None;
                }
                if clock::now() >= stop.end {
                    return Some(self.left());
                }
            }
            while self.send() {}
            self.wait().await;
        }
    }

    /// The most jobs a call carries either way: half of the slots, so that one half runs while the other is settled.
    fn batch(&self) -> usize {
        self.task.options.concurrency.div_ceil(2).min(BATCH)
    }

    /// Takes the outcomes that are there. Short of a batch, runs that can end without waiting get to do so first.
    async fn collect(&mut self) {
        let mut seen = 0;
        loop {
            let ready = self.task.outbox.len();
            if ready == seen || ready >= self.batch() {
                break;
            }
            seen = ready;
            tokio::task::yield_now().await;
        }
        for report in self.task.outbox.take() {
            // A job that was handed back while its handler would not stop has been reported already.
            if self.busy.remove(&report.fence).is_none() {
                continue;
            }
            self.worker.return_permits(1);
            let lost = self.task.held.get(report.fence).is_none_or(|held| held.flags().intersects(Flags::LOST));
            if lost {
                self.task.held.remove(std::iter::once(report.fence));
            } else {
                self.pending.push(report);
            }
        }
        while self.runs.try_join_next().is_some() {}
    }

    fn begin_stop(&mut self) {
        if self.stop.is_some() || !self.worker.stopping.is_cancelled() {
            return;
        }
        let options = &self.task.options;
        let grace = if self.worker.is_keeper_gone() { Duration::ZERO } else { options.shutdown_grace };
        let grace = clock::now().after(grace);
        let cancel = grace.after(options.cancel_grace);
        let end = cancel.after(options.interval / 3 * 2);
        self.stop = Some(Stop { grace, cancel, end, told: false });
        self.take_permits(0);
        self.task.held.for_each(|held| held.set(Flags::SHUTTING_DOWN));
    }

    /// Tells the handlers when the grace is over. When the cancel grace is over too, drops them and hands back what is left.
    async fn advance_stop(&mut self) {
        let Some(stop) = &mut self.stop else { return };
        let now = clock::now();
        if now >= stop.grace && !stop.told {
            stop.told = true;
            self.task.held.for_each(|held| held.set(Flags::SHUTDOWN));
        }
        if now >= stop.cancel && !self.busy.is_empty() {
            // A handler that blocks its thread cannot be dropped; its job is handed back all the same.
            let _ = tokio::time::timeout(DROP_TIME, self.runs.shutdown()).await;
            self.collect().await;
            for (fence, id) in self.busy.drain() {
                self.pending.push(Report { id, fence, outcome: Outcome::Release });
            }
        }
    }

    /// The reports of the next call. In a shutdown the youngest go first: each call puts its jobs in front of those
    /// that the call before handed back, so that in the end the oldest is in front.
    fn next_reports(&mut self) -> Vec<Report> {
        if self.stop.is_none() {
            let count = self.fitting(self.pending.iter());
            return self.pending.drain(..count).collect();
        }
        self.pending.sort_unstable_by_key(|report| report.fence);
        self.pending.split_off(self.pending.len() - self.fitting(self.pending.iter().rev()))
    }

    /// How many of the reports one call carries: one at least, and no more than it may have, in number and in bytes.
    fn fitting<'a>(&self, reports: impl Iterator<Item = &'a Report>) -> usize {
        let mut bytes = 0;
        let fits = |report: &&Report| {
            bytes += report.bytes();
            bytes <= BATCH_BYTES
        };
        reports.take(self.batch()).take_while(fits).count().max(1).min(self.pending.len())
    }

    /// Sends the next call, if there is a free line and something to say. The second line is for load: it opens for half a
    /// batch of outcomes, which would otherwise wait for the answer to the first. A shutdown hands back in order, on one.
    fn send(&mut self) -> bool {
        let Some(line) = self.lines.iter().position(|line| line.wanted.is_none()) else { return false };
        if !self.calls.is_empty() && (self.stop.is_some() || self.pending.len() < self.batch().div_ceil(2)) {
            return false;
        }
        let want = self.want();
        if self.pending.is_empty() && want == 0 {
            return false;
        }
        let reports = self.next_reports();
        if want > 0 {
            // A marker that comes while the call is under way makes it hungry again.
            self.hungry = false;
        }
        let (task, worker) = (Arc::clone(&self.task), Arc::clone(&self.worker));
        let number = self.lines[line].next_call;
        self.lines[line].wanted = Some(want);
        if want > 0 {
            self.task.claims.sent(line, number, clock::now());
        }
        self.calls.push(Box::pin(settle(task, worker, line, number, want, reports)));
        true
    }

    /// How many jobs to claim now. Permits of a worker-wide cap are taken for them.
    fn want(&mut self) -> usize {
        if self.stop.is_some() {
            return 0;
        }
        let woken = self.worker.wake.take_woken(self.task.index);
        self.hungry |= woken || clock::now() >= self.look_at;
        let may_claim = self.task.beats_are_fresh() && (self.hungry || !self.pending.is_empty());
        let want = self.take_permits(if may_claim { self.free_slots().min(self.batch()) } else { 0 });
        if woken && want == 0 {
            self.worker.wake.give_back(self.task.index);
        }
        want
    }

    /// Takes up to `wanted` slots of the worker's cap, and a place in the queue when there is none.
    fn take_permits(&mut self, wanted: usize) -> usize {
        let granted = usize::from(std::mem::take(&mut self.granted));
        let taken = granted.min(wanted) + self.worker.take_permits(wanted.saturating_sub(granted));
        self.worker.return_permits(granted.saturating_sub(wanted));
        if taken > 0 || wanted == 0 {
            self.queued = None;
        } else if self.queued.is_none() {
            self.queued = self.worker.queue_for_permit().map(|place| Box::pin(place) as _);
        }
        taken
    }

    /// Slots that neither a run fills nor a call under way may fill.
    fn free_slots(&self) -> usize {
        let wanted: usize = self.lines.iter().filter_map(|line| line.wanted).sum();
        self.task.options.concurrency.saturating_sub(self.busy.len() + wanted)
    }

    /// Waits for an answer, for an outcome that a call can carry, for work, or for the next step of a shutdown.
    async fn wait(&mut self) {
        let mut until = LOOK_AGAIN;
        let now = clock::now();
        let fresh = self.task.beats_are_fresh();
        if self.calls.is_empty() {
            let idle = self.stop.is_none() && self.free_slots() > 0 && fresh && !self.hungry;
            if idle && std::mem::take(&mut self.started) {
                // What was claimed starts before anybody hears that there are slots left.
                return tokio::task::yield_now().await;
            }
            self.worker.wake.set_idle(self.task.index, idle);
            if idle {
                until = until.min(self.look_at.since(now));
            } else if !fresh {
                // Told through `poke` too, when the next beat is answered.
                until = until.min(self.task.options.interval / 3);
            }
        }
        if let Some(stop) = &self.stop {
            for at in [stop.grace, stop.cancel, stop.end] {
                if at > now {
                    until = until.min(at.since(now));
                }
            }
        }
        let line_free = self.lines.iter().any(|line| line.wanted.is_none());
        let queued = &mut self.queued;
        let granted = async {
            match queued {
                Some(place) => place.await,
                None => std::future::pending().await,
            }
        };
        let answered = tokio::select! {
            // First, or a call that is not on its way yet would wait for the next round.
            biased;
            Some(answered) = self.calls.next() => Some(answered),
            () = granted => {
                (self.queued, self.granted) = (None, true);
                None
            }
            () = self.task.poke.notified(), if line_free => None,
            () = self.worker.stopping.cancelled(), if self.stop.is_none() => None,
            () = tokio::time::sleep(until) => None,
        };
        if let Some(answered) = answered {
            self.apply(answered);
        }
    }

    /// Takes the answer in: outcomes that were recorded leave the table, claimed jobs enter it and start.
    fn apply(&mut self, answered: Answered) {
        let Answered { line, number, sent, reports, want, asked, settled } = answered;
        self.lines[line] = Line { next_call: number + 1, wanted: None };
        for fence in &settled.lost {
            tracing::warn!(task = %self.task.name, fence, "an outcome came too late: the job was taken in the meantime");
        }
        if !settled.cancelled.is_empty() {
            tracing::debug!(task = %self.task.name, jobs = settled.cancelled.len(), "cancelled");
        }
        self.task.held.remove(reports.iter().map(|report| report.fence));
        self.worker.return_permits(want.saturating_sub(settled.claimed.len()));
        if want > 0 {
            // A claim that is cut short in bytes leaves more behind, too.
            let bytes: usize = settled.claimed.iter().map(|job| job.payload.len()).sum();
            self.hungry |= settled.claimed.len() >= asked || bytes > BATCH_BYTES / 2;
            self.look_at = clock::now().after(settled.next_due.map_or(LOOK_AGAIN, |due| due.min(LOOK_AGAIN)));
        }
        self.start(self.task.claims.kept_since(line).unwrap_or(sent), settled.claimed);
        self.task.claims.taken_in(line);
    }

    /// Enters claimed jobs, which nobody can take before an interval has passed since `kept`, and starts them.
    fn start(&mut self, kept: Moment, claimed: Vec<Claimed>) {
        let stopping = self.worker.stopping.is_cancelled();
        let too_late = clock::now() >= kept.after(self.task.options.interval);
        let mut entered = Vec::with_capacity(claimed.len());
        let mut starting = Vec::with_capacity(claimed.len());
        for job in claimed {
            let options = runner::options_of(&self.task.options, &job);
            let (last_tick, beat_now) = (Arc::clone(&self.worker.last_tick), Arc::clone(&self.task.beat_now));
            let held = Arc::new(Held::new(job.id.clone(), job.fence, &options, kept, last_tick, beat_now));
            entered.push(Arc::clone(&held));
            if stopping || too_late {
                held.set(Flags::FINISHED);
                self.worker.return_permits(1);
                self.pending.push(Report { id: job.id, fence: job.fence, outcome: Outcome::Release });
            } else {
                starting.push((held, job, options));
            }
        }
        // In the table before they run: a handler may look at its own deadline at once.
        self.task.held.insert(&entered);
        self.started |= !starting.is_empty();
        for (held, job, options) in starting {
            self.busy.insert(job.fence, job.id.clone());
            let (task, worker) = (Arc::clone(&self.task), self.worker.id.clone());
            self.runs.spawn(async move {
                let (id, fence) = (held.id.clone(), held.fence);
                let outcome = runner::run(Arc::clone(&task), worker, held, job, options).await;
                task.outbox.push(Report { id, fence, outcome });
                task.poke.notify_one();
            });
        }
    }

    /// The jobs that are still held here.
    fn left(&self) -> Vec<JobId> {
        self.task.held.all().into_iter().map(|held| held.id.clone()).collect()
    }
}

/// Makes one call, and repeats it under its number until it is answered.
async fn settle(
    task: Arc<TaskRuntime>,
    worker: Arc<WorkerShared>,
    line: usize,
    mut number: u64,
    want: usize,
    reports: Vec<Report>,
) -> Answered {
    let sent = clock::now();
    let (ask, mut asked, mut patience) = (task.options.interval, want, RESPONSE_TIMEOUT);
    // Enough for a line of 100 KiB/s.
    let bytes = reports.iter().map(Report::bytes).sum::<usize>() + BATCH_BYTES.max(task.options.payload_limit);
    let longest = RESPONSE_TIMEOUT + Duration::from_secs(bytes as u64 / (100 << 10));
    // 20 ms, doubled up to a second.
    let mut backoff = backon::ExponentialBuilder::default()
        .with_min_delay(Duration::from_millis(20))
        .with_max_delay(Duration::from_secs(1))
        .with_jitter()
        .without_max_times()
        .build();
    loop {
        let call = async |conn: &mut _| {
            jobs::settle(conn, &task.keys, worker.id.as_str(), (line, number), ask, asked, &reports).await
        };
        match worker.store.shared(patience, call).await {
            Ok(Some(settled)) => return Answered { line, number, sent, reports, want, asked, settled },
            Ok(None) => {
                // Only a second driver under our name could have gone ahead of us.
                tracing::error!(task = %task.name, number, "a settle call was overtaken; it gets a new number");
                number += 1_000;
                if want > 0 {
                    task.claims.sent(line, number, sent);
                }
            }
            Err(e) => {
                if e.is_timeout() {
                    // Large values over a slow line take as long as they take.
                    patience = (patience * 2).min(longest);
                }
                let pause = backoff.next().unwrap_or(Duration::from_secs(1));
                if e.is_retryable() {
                    tracing::warn!(task = %task.name, error = %e.chain(), ?pause, "settle was not answered; it is repeated");
                } else {
                    tracing::error!(task = %task.name, error = %e.chain(), ?pause, "settle was refused; it is repeated");
                }
                tokio::time::sleep(pause).await;
                // The deadline of what it claims counts from the first send: a late repetition claims nothing new.
                if !task.beats_are_fresh() || clock::now().since(sent) >= task.beat_period() {
                    asked = 0;
                }
            }
        }
    }
}
