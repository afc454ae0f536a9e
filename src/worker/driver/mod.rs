//! The settle loop of one task: it sends outcomes and the number of free slots, and receives jobs.
//!
//! Settle is group commit. While a call is under way, more outcomes gather, so batches grow with load. A lone job costs
//! one round trip, and nothing waits for more work to come. Under load two calls are under way, each in its own call
//! sequence: Redis works on one while the other is in transit.
//!
//! | mode | entered when | left when |
//! |---|---|---|
//! | hungry | started, woken, a delayed job is due, or the last claim was filled | a claim came back with less than it asked for |
//! | idle | a claim came back short | the wake marker, a due time, or 5 s have come |
//! | stopping | shutdown began | every held job was answered, or the time for it is over |

mod ahead;
mod call;
mod claim;
mod notes;
mod outcomes;
mod stop;

use std::collections::{HashMap, VecDeque};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::task::JoinSet;
use tokio_util::task::task_tracker::TaskTrackerToken;

use self::ahead::{Ahead, MOST_AHEAD};
use self::call::{Answered, Call, CallState, slots_of};
use self::stop::Stop;
use crate::backend::address::Role;
use crate::backend::report::{Disposition, Report};
use crate::backend::settle::{LARGE_SEQUENCE, SEQUENCES, Want};
use crate::clock::{self, Moment};
use crate::job::id::JobId;
use crate::limits::{BATCH, BATCH_BYTES};
use crate::options::resolved::Prefetch;
use crate::runtime::held_jobs::Flags;
use crate::runtime::note_store::{GraphCache, NoteStore};
use crate::runtime::permits::TaskPermits;
use crate::runtime::shared::WorkerShared;
use crate::runtime::task::TaskRuntime;

/// How often an idle task looks for work without a marker. The worker that took the marker may have died.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// The same for one of `parts` partitions. Together the partitions are checked at most about 4 times a second.
fn look_again(parts: u32) -> Duration {
    LOOK_AGAIN.max(Duration::from_secs(1) * parts / 4)
}

/// After Redis has answered that no job may begin early, none does for this long.
const NONE_EARLY: Duration = Duration::from_secs(30);

/// How long a shutdown waits for handlers to be dropped.
const DROP_TIME: Duration = Duration::from_secs(1);

/// How long an idle worker that stops waits for any answer of Redis.
const ASKED_AT_END: Duration = Duration::from_secs(1);

pub(super) struct Driver {
    task: Arc<TaskRuntime>,
    worker: Arc<WorkerShared>,
    /// Where runs write their notes.
    note_store: Arc<NoteStore>,
    runs: JoinSet<()>,
    /// Runs that have not reported yet, by fence. Each uses a slot.
    busy: HashMap<u64, JobId>,
    /// Jobs that are held and do not run yet.
    ahead: Ahead,
    /// How many of them an adaptive prefetch claims now.
    most_ahead: usize,
    /// Outcomes that are in no call yet.
    pending: Vec<Report>,
    /// Large outcomes that are in no call yet.
    large: VecDeque<Report>,
    sequences: [CallSequence; SEQUENCES.len()],
    calls: FuturesUnordered<Pin<Box<dyn Future<Output = Answered> + Send>>>,
    hungry: bool,
    /// Whether there are due hooks that no worker has claimed, according to the last answer.
    hooks_left: bool,
    /// Until then no job begins early, because a worker that started later allows no stall.
    none_early_until: Moment,
    /// A place in the queue for a slot of the worker's cap. It keeps one task from taking all slots again and again.
    queued: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    /// Whether that place has brought a slot.
    granted: bool,
    /// Slots that calls returned while their node was unreachable, and could not take again when the answer came. The next slots
    /// that become free pay for these first.
    owed: usize,
    /// Whether runs were spawned since the last wait.
    started: bool,
    look_at: Moment,
    /// How many outcomes of handlers that were rate limited are not recorded yet.
    rate_limited: usize,
    /// When the last answer came.
    heard_at: Moment,
    stop: Option<Stop>,
    /// Redis reports that this worker has stopped. Its calls are refused.
    closed: bool,
    /// Declared last, so that it is dropped last.
    _alive: TaskTrackerToken,
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.task.ahead_watch.will_run(None);
        self.task.outbox.put_back(self.pending.drain(..).chain(self.large.drain(..)));
    }
}

/// A sequence of numbered calls, one at a time. With two sequences, one call can be in transit while Redis works on the other.
#[derive(Debug)]
struct CallSequence {
    next_call: u64,
    /// What the call under way asks for.
    wanted: Option<Want>,
    state: Arc<CallState>,
}

impl CallSequence {
    fn begin(next_call: u64) -> CallSequence {
        CallSequence { next_call, wanted: None, state: Arc::default() }
    }
}

impl Driver {
    pub(super) fn new(task: Arc<TaskRuntime>, worker: Arc<WorkerShared>) -> Driver {
        let (store, keys, id) = (Arc::clone(&worker.store), Arc::clone(&task.keys), worker.id.clone());
        let ahead = Ahead::new(task.options.prefetch);
        Driver {
            _alive: task.alive.token(),
            note_store: Arc::new(NoteStore { store, keys, worker: id, shapes: GraphCache::default() }),
            task,
            worker,
            runs: JoinSet::new(),
            busy: HashMap::new(),
            ahead,
            most_ahead: 0,
            pending: Vec::new(),
            large: VecDeque::new(),
            sequences: SEQUENCES.map(|_| CallSequence::begin(1)),
            calls: FuturesUnordered::new(),
            hungry: true,
            hooks_left: false,
            none_early_until: Moment::from_millis(0),
            queued: None,
            granted: false,
            owed: 0,
            started: false,
            look_at: clock::now(),
            rate_limited: 0,
            heard_at: clock::now(),
            stop: None,
            closed: false,
        }
    }

    /// Works until the shutdown is complete. Returns `None` if nothing is left, else the jobs that could not be reported. If that
    /// list is empty, a claim without an answer may have claimed jobs.
    pub(super) async fn run(mut self) -> Option<Vec<JobId>> {
        loop {
            self.collect().await;
            self.begin_stop();
            self.keep_quiet();
            self.advance_stop().await;
            self.run_next();
            if self.closed {
                return Some(self.left());
            }
            if let Some(stop) = &self.stop {
                let is_handing_back = self.task.ahead_watch.under_way() > 0;
                let reported =
                    self.pending.is_empty() && self.large.is_empty() && self.calls.is_empty() && !is_handing_back;
                if self.busy.is_empty() && reported {
                    return None;
                }
                let (now, is_idle) = (clock::now(), self.task.held.len() == 0);
                if now >= stop.end || is_idle && now >= stop.idle_end && !self.waits_for_claims().await {
                    return Some(self.left());
                }
            }
            while self.send() {}
            self.wait().await;
        }
    }

    /// Whether to wait for claims without an answer: Redis still answers, and their jobs are requeued when the answer comes. A
    /// claim that is refused has claimed nothing.
    async fn waits_for_claims(&mut self) -> bool {
        if self
            .sequences
            .iter()
            .all(|sequence| sequence.wanted.is_none() || sequence.state.is_refused.load(Ordering::SeqCst))
        {
            return false;
        }
        let answers = self.worker.store.answering(Role::Shared, &self.task.keys);
        let answers = tokio::time::timeout(ASKED_AT_END, answers).await.is_ok_and(|conn| conn.is_ok());
        if let Some(stop) = self.stop.as_mut().filter(|_| answers) {
            stop.idle_end = stop.end;
        }
        answers
    }

    fn slots(&self) -> TaskPermits<'_> {
        self.task.slots(&self.worker)
    }

    /// Whether a call has returned its slots and waits for a cluster node that is unreachable.
    fn is_unreachable(&self) -> bool {
        self.sequences.iter().any(|sequence| sequence.state.is_unreachable.load(Ordering::SeqCst))
    }

    /// Returns slots to the cap of the worker. First pays for those that are owed.
    fn give_back(&mut self, slots: usize) {
        let pays = slots.min(self.owed);
        self.owed -= pays;
        self.slots().give_back(slots - pays);
    }

    /// The most jobs of one call in each direction: half of those that may be held, so that one half runs while the other is settled.
    fn batch(&self) -> usize {
        let concurrency = self.task.options.concurrency;
        let ahead = match self.task.options.prefetch {
            Prefetch::Fixed(jobs) => jobs,
            // Those that it may claim, holds, or has held until they ended.
            Prefetch::Adaptive => {
                let ended = self.pending.len().saturating_sub(concurrency);
                self.most_ahead.max(self.ahead.len()).max(ended).min(MOST_AHEAD)
            }
        };
        (concurrency + ahead).div_ceil(2).min(BATCH)
    }

    fn begin_stop(&mut self) {
        if self.stop.is_some() || !self.worker.stopping.is_cancelled() {
            return;
        }
        self.stop = Some(Stop::begin(&self.task.options, clock::now()));
        self.task.held.for_each(|held| held.set(Flags::SHUTTING_DOWN));
        self.hand_back_all();
    }

    /// While the worker is quiet, requeues what does not run yet. When that ends, looks for jobs at once.
    fn keep_quiet(&mut self) {
        if self.stop.is_none() && self.worker.is_quiet() {
            self.hungry = true;
            self.hand_back_all();
        }
    }

    /// Requeues all jobs that do not run yet, and takes no slot.
    fn hand_back_all(&mut self) {
        self.take_slots(0);
        for report in self.pending.iter_mut().filter(|report| matches!(report.outcome, Disposition::Unstart)) {
            report.outcome = Disposition::Requeue;
            self.ahead.lose(report.fence);
        }
        self.hand_back(|_| true);
    }

    /// Cancels the handlers when the grace is over. When the cancel grace is over too, drops them and requeues the rest.
    async fn advance_stop(&mut self) {
        let Some(stop) = &mut self.stop else { return };
        let now = clock::now();
        if self.worker.is_keeper_gone.load(Ordering::SeqCst) || self.worker.hurry.is_cancelled() {
            // The keeper no longer sends heartbeats for these jobs, or the user does not want to wait.
            stop.hurry(now);
        }
        if now >= stop.grace && !stop.has_cancelled {
            stop.has_cancelled = true;
            self.task.held.for_each(|held| held.set(Flags::SHUTDOWN));
        }
        if now >= stop.cancel && !self.busy.is_empty() {
            // A handler that blocks its thread cannot be dropped. Its job is requeued anyway.
            let _ = tokio::time::timeout(DROP_TIME, self.runs.shutdown()).await;
            self.collect().await;
            for (fence, id) in self.busy.drain() {
                self.pending.push(Report::requeue(id, fence));
            }
        }
    }

    /// Sends the next call, if a sequence is free and there is something to send. The second sequence is for load: it needs half a batch
    /// of outcomes, which would otherwise wait for the answer to the first call. A shutdown requeues in order, so it uses one sequence.
    fn send(&mut self) -> bool {
        if self.sequences[LARGE_SEQUENCE].wanted.is_none()
            && let Some(report) = self.large.pop_front()
        {
            let want = Want { hooks: self.task.hook.is_some(), ..Want::NONE };
            self.send_on(LARGE_SEQUENCE, want, vec![report]);
            return true;
        }
        let sequences = &self.sequences[..LARGE_SEQUENCE];
        let Some(sequence) = sequences.iter().position(|sequence| sequence.wanted.is_none()) else { return false };
        let under_way = sequences.iter().any(|sequence| sequence.wanted.is_some());
        let can_begin = self.ahead.claimed() > 0 && self.free_slots() > 0;
        if under_way
            && (self.stop.is_some()
                || self.worker.is_quiet()
                || !can_begin && self.pending.len() < self.batch().div_ceil(2))
        {
            return false;
        }
        let (begins, want) = self.plan();
        // A full worker sends nothing, so without this call it would not learn of a pause.
        let listens = self.ahead.claimed() > 0 && clock::now() >= self.heard_at.after(LOOK_AGAIN);
        if self.pending.is_empty() && begins.is_empty() && want.jobs == 0 && !listens {
            return false;
        }
        let mut reports = self.next_reports();
        reports.extend(begins);
        if want.jobs > 0 {
            // A marker that comes during the call makes the driver hungry again.
            self.hungry = false;
        }
        self.send_on(sequence, want, reports);
        true
    }

    fn send_on(&mut self, sequence: usize, want: Want, reports: Vec<Report>) {
        let (task, worker) = (Arc::clone(&self.task), Arc::clone(&self.worker));
        let number = self.sequences[sequence].next_call;
        let (reports, state) = (Arc::new(reports), Arc::clone(&self.sequences[sequence].state));
        task.outbox.sent(sequence, number, &reports);
        self.sequences[sequence].wanted = Some(want);
        if want.jobs > 0 {
            self.task.claims.sent(sequence, number, clock::now(), want.begin > want.with_slot);
        }
        self.calls.push(Box::pin(Call::new(task, worker, (sequence, number), want, reports, state).answered()));
    }

    /// Waits for an answer, for an outcome to send, for work, or for the next step of a shutdown.
    async fn wait(&mut self) {
        let mut until = LOOK_AGAIN;
        let now = clock::now();
        if self.is_unreachable() {
            // A slot or a place in the queue that this task cannot use now must not keep others waiting.
            self.take_slots(0);
        }
        let fresh = self.task.beats_are_fresh();
        // A large outcome may take long. The task looks for work meanwhile.
        if self.sequences[..LARGE_SEQUENCE].iter().all(|sequence| sequence.wanted.is_none()) {
            let idle = self.stop.is_none() && self.room() > 0 && fresh && !self.hungry;
            if idle && std::mem::take(&mut self.started) {
                // Start claimed jobs before reporting that slots are free.
                return tokio::task::yield_now().await;
            }
            self.worker.wake.set_idle(self.task.index, idle);
            if idle {
                until = until.min(self.look_at.since(now));
            } else if !fresh {
                // The answer to the next heartbeat also wakes this loop, through `poke`.
                until = until.min(self.task.beat_period());
            }
        }
        if let Some(step) = self.stop.as_ref().and_then(|stop| stop.next_step(now)) {
            until = until.min(step);
        }
        let look = self.look_after_ahead();
        until = look.map_or(until, |look| until.min(look));
        let has_free_sequence = self.sequences[..LARGE_SEQUENCE].iter().any(|sequence| sequence.wanted.is_none());
        let queued = &mut self.queued;
        let granted = async {
            match queued {
                Some(place) => place.await,
                None => std::future::pending().await,
            }
        };
        self.task.outbox.exchange(&mut self.pending, &mut self.large);
        let answered = tokio::select! {
            // Handle answers first: they may free a call sequence for the next call.
            biased;
            Some(answered) = self.calls.next() => Some(answered),
            () = granted => {
                (self.queued, self.granted) = (None, true);
                None
            }
            () = self.task.poke.notified(), if has_free_sequence || self.ahead.any_begun() => None,
            () = self.worker.stopping.cancelled(), if self.stop.is_none() => None,
            () = tokio::time::sleep(until) => None,
        };
        self.task.outbox.exchange(&mut self.pending, &mut self.large);
        if let Some(answered) = answered {
            self.apply(answered);
        }
    }

    /// Applies an answer: removes recorded outcomes, records claimed jobs as held, and starts them.
    fn apply(&mut self, answered: Answered) {
        let Answered { call, round_trip, settled } = answered;
        let Call { sequence, number, sent, reports, want, asked, .. } = call;
        let Some(settled) = settled else {
            self.closed = true;
            return;
        };
        let was_away = self.sequences[sequence].state.is_unreachable.load(Ordering::SeqCst);
        self.sequences[sequence] = CallSequence::begin(number + 1);
        if was_away {
            let slots = slots_of(want, &reports);
            self.owed += slots - self.slots().take(slots);
        }
        self.task.outbox.answered(sequence);
        // A driver that was started again may report outcomes of the one before.
        let rate_limited = reports.iter().filter(|report| report.is_rate_limited()).count();
        self.rate_limited = self.rate_limited.saturating_sub(rate_limited);
        self.heard_at = clock::now();
        let is_late = |report: &&Report| settled.lost.contains(&report.fence) && report.outcome.ends_the_hold();
        for Report { id, fence, .. } in reports.iter().filter(is_late) {
            tracing::warn!(task = %self.task.name, job_id = %id, fence,
                "an outcome came too late; this worker had lost the job");
        }
        if !settled.taken.is_empty() {
            tracing::debug!(task = %self.task.name, jobs = settled.taken.len(), "jobs were cancelled, expired or requeued before they began");
        }
        if let Some(first) = settled.lost_payloads.first() {
            tracing::warn!(task = %self.task.name, jobs = settled.lost_payloads.len(), %first,
                "removed jobs without a payload: there was nothing to run");
        }
        self.ahead.pace.answered(round_trip);
        self.hooks_left = settled.hooks_left && self.task.hook.is_some();
        self.released(&reports, &settled);
        self.notify_workflows(&reports, &settled);
        let begun = settled.claimed.iter().filter(|job| job.begins).count();
        self.give_back(want.begin.saturating_sub(begun));
        if want.jobs > 0 {
            // An answer that was cut at its size limit also means that more jobs wait.
            let bytes: usize = settled.claimed.iter().map(|job| job.payload.bytes()).sum();
            self.hungry |= settled.claimed.len() >= asked.jobs || bytes > BATCH_BYTES / 2;
            self.look_at = clock::now().after(look_again(self.task.keys.parts()));
        }
        // Even a call that claims nothing may have delayed a job that is due next.
        if let Some(due) = settled.next_due {
            self.look_at = self.look_at.min(clock::now().after(due));
        }
        // Until now the keeper may have handed back jobs of this claim.
        let (taken, mut claimed) = (self.task.claims.applies(sequence), settled.claimed);
        claimed.retain(|job| !taken.contains(&job.fence));
        self.give_back(begun - claimed.iter().filter(|job| job.begins).count());
        self.enter(self.task.claims.kept_since(sequence).unwrap_or(sent), claimed);
        self.hand_back_owed();
        self.task.claims.recorded(sequence);
        self.run_next();
        if settled.none_early {
            self.none_early_until = clock::now().after(NONE_EARLY);
            self.pending.extend(self.ahead.unstart());
        }
    }

    /// The jobs that are still held here.
    fn left(&self) -> Vec<JobId> {
        self.task.held.all().into_iter().map(|held| held.id.clone()).collect()
    }
}
