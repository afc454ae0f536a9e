//! The jobs that this process holds: the only data that driver, runner, keeper and context share.
//!
//! The table is keyed by fence: a worker may hold a new run of a job while the old one winds down. Only an answer from
//! Redis removes an entry.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

use super::bells::Bells;
use super::notes::Notes;
use super::waits::Waits;
use crate::backend::note::RunNote;
use crate::clock::{self, Moment};
use crate::error::Interrupted;
use crate::job::id::JobId;
use crate::mutex::Mutex;
use crate::options::resolved::Resolved;
use crate::options::stall::{Heartbeat, OnLockRisk};
use crate::stall::cadence;

/// A set of states of a held job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Flags(u16);

impl Flags {
    /// Redis reported that the worker no longer holds the job.
    pub(crate) const LOST: Flags = Flags(1);
    /// The job must be cancelled.
    pub(crate) const CANCELLED: Flags = Flags(1 << 1);
    /// The shutdown grace is over.
    pub(crate) const SHUTDOWN: Flags = Flags(1 << 2);
    /// The deadline passed before this process could notice that it was near.
    pub(crate) const FROZEN: Flags = Flags(1 << 3);
    /// The deadline is near, or past.
    pub(crate) const AT_RISK: Flags = Flags(1 << 4);
    /// `OnLockRisk::Cancel` applies: the handler must stop before the deadline.
    pub(crate) const GIVE_UP: Flags = Flags(1 << 5);
    /// The worker shuts down; the handler may continue for the grace period.
    pub(crate) const SHUTTING_DOWN: Flags = Flags(1 << 6);
    /// The handler got `Frozen`. If it then returns an error, that is not its fault.
    pub(crate) const GOT_FROZEN: Flags = Flags(1 << 7);
    /// The handler ended; its outcome waits for an answer.
    pub(crate) const FINISHED: Flags = Flags(1 << 8);
    /// The job is lost or cancelled.
    pub(crate) const TAKEN: Flags = Flags(1 | 1 << 1);
    /// The log already says that the handler runs beyond its cancel grace.
    pub(crate) const OVERSTAY_LOGGED: Flags = Flags(1 << 10);
    /// Every reason to end a handler.
    pub(crate) const INTERRUPTED: Flags = Flags(1 | 1 << 1 | 1 << 2 | 1 << 5);
    /// The handler has not begun and cannot show that it is alive: the job is claimed ahead, or its payload is being read.
    pub(crate) const NOT_BEGUN: Flags = Flags(1 << 9);
    /// An adaptive prefetch holds the job. The driver or the keeper takes this flag before it decides about the job.
    pub(crate) const AHEAD: Flags = Flags(1 << 11);
    /// The last heartbeat of the handler told it to stop, although it still holds the job.
    pub(crate) const TOLD_TO_STOP: Flags = Flags(1 << 12);
    /// Before and after the run of the handler, heartbeats extend the lock in every mode.
    pub(crate) const NOT_RUNNING: Flags = Flags(1 << 8 | 1 << 9);
    /// Every reason not to begin a run.
    pub(crate) const NOT_TO_BEGIN: Flags = Flags(Flags::INTERRUPTED.0 | Flags::SHUTTING_DOWN.0);
    /// Every reason to stop work on the job, also for code that outlived its run.
    pub(crate) const STOP: Flags = Flags(Flags::INTERRUPTED.0 | Flags::FINISHED.0);

    pub(crate) fn intersects(self, other: Flags) -> bool {
        self.0 & other.0 != 0
    }
}

/// The options that apply while a job is held.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Guard {
    pub(crate) heartbeat: Heartbeat,
    pub(crate) on_risk: OnLockRisk,
    pub(crate) interval: Duration,
    pub(crate) cancel_grace: Duration,
}

impl From<&Resolved> for Guard {
    fn from(options: &Resolved) -> Guard {
        let Resolved { heartbeat, on_risk, interval, cancel_grace, .. } = *options;
        Guard { heartbeat, on_risk, interval, cancel_grace }
    }
}

/// A handler that yields is dropped within this time after its cancel grace.
const DROP_TIME: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct HeldJob {
    pub(crate) id: JobId,
    pub(crate) fence: u64,
    guard: Guard,
    flags: AtomicU16,
    /// When the last answered heartbeat was sent, ms on the boot-time clock.
    beat_sent: AtomicU64,
    /// Manual mode: whether the handler gave a sign of life since the last call.
    beaten: AtomicBool,
    /// Manual mode: when the handler last gave a sign of life, ms on the boot-time clock.
    handler_beat: AtomicU64,
    /// When this worker learned that the job is lost or cancelled, ms on the boot-time clock; 0 before.
    taken_at: AtomicU64,
    changed: Notify,
    /// Whether the handler waits for another job.
    pub(crate) waits: Arc<Waits>,
    /// Whether the keeper was asked to send a heartbeat for this job before the next regular one.
    rang: AtomicBool,
    /// When the keeper last checked the deadlines, ms on the boot-time clock.
    last_tick: Arc<AtomicU64>,
    /// Signals to the keeper about this task.
    bells: Arc<Bells>,
    news: Arc<News>,
    pub(crate) notes: Notes,
}

/// Held jobs about which the keeper has news. The keeper does not wake their handlers itself: a waker may run the user's code.
#[derive(Debug, Default)]
pub(crate) struct News {
    about: Mutex<Vec<Arc<HeldJob>>>,
    posted: Notify,
}

impl News {
    /// Waits for news. Cancel safe.
    pub(crate) async fn posted(&self) {
        self.posted.notified().await;
    }

    /// Drops the news. It refers to jobs that refer to it, so none of them would be freed.
    pub(crate) fn clear(&self) {
        self.about.lock().clear();
    }

    /// Wakes the handlers of these jobs.
    pub(crate) fn wake_handlers(&self) {
        let about = std::mem::take(&mut *self.about.lock());
        for held in about {
            // A waker that panics must not keep the others from being woken.
            let woken = AssertUnwindSafe(|| held.changed.notify_waiters());
            if std::panic::catch_unwind(woken).is_err() {
                tracing::error!(job_id = %held.id, "a waker that waited for news of the job panicked");
            }
        }
    }
}

impl HeldJob {
    pub(crate) fn new(
        id: JobId,
        fence: u64,
        guard: Guard,
        kept: Moment,
        last_tick: Arc<AtomicU64>,
        bells: Arc<Bells>,
        news: Arc<News>,
    ) -> HeldJob {
        HeldJob {
            id,
            fence,
            guard,
            flags: AtomicU16::new(0),
            beat_sent: AtomicU64::new(kept.as_millis()),
            beaten: AtomicBool::new(false),
            handler_beat: AtomicU64::new(kept.as_millis()),
            taken_at: AtomicU64::new(0),
            changed: Notify::new(),
            waits: Arc::new(Waits::new(Arc::clone(&bells))),
            rang: AtomicBool::new(false),
            last_tick,
            bells,
            news,
            notes: Notes::default(),
        }
    }

    /// The note to write; `None` if Redis has everything. Without checkpoints only the progress.
    pub(crate) fn pending_note(&self, with_checkpoints: bool) -> Option<RunNote> {
        self.notes.pending(&self.id, self.fence, with_checkpoints)
    }

    /// Signals that the handler has written a note. The keeper sends it soon.
    pub(crate) fn noted(&self) {
        self.bells.noted.notify_one();
    }

    pub(crate) fn flags(&self) -> Flags {
        Flags(self.flags.load(Ordering::SeqCst))
    }

    pub(crate) fn set(&self, flags: Flags) {
        if self.adds(flags) {
            self.changed.notify_waiters();
        }
    }

    /// As [`HeldJob::set`], for the keeper's thread: a task on the user's runtime wakes the waiters.
    pub(crate) fn post(self: &Arc<Self>, flags: Flags) {
        if self.adds(flags) {
            self.news.about.lock().push(Arc::clone(self));
            self.news.posted.notify_one();
        }
    }

    /// Sets the flags. Returns whether one of them is new.
    fn adds(&self, flags: Flags) -> bool {
        if flags.intersects(Flags::TAKEN) {
            let now = clock::now().as_millis().max(1);
            // Only the first time counts.
            let _ = self.taken_at.compare_exchange(0, now, Ordering::SeqCst, Ordering::SeqCst);
        }
        let is_new = self.flags.fetch_or(flags.0, Ordering::SeqCst) & flags.0 != flags.0;
        if flags.intersects(Flags::TAKEN) {
            self.bells.check_soon();
        }
        is_new
    }

    /// For how long its handler has run since the job was lost or cancelled; `None` if it was not.
    pub(crate) fn overstays(&self, now: Moment) -> Option<Duration> {
        let taken_at = self.taken_at.load(Ordering::SeqCst);
        let runs_on = taken_at > 0 && !self.flags().intersects(Flags::NOT_RUNNING);
        runs_on.then(|| now.since(Moment::from_millis(taken_at)))
    }

    /// How long the handler has run since then, if that is beyond the cancel grace and not logged yet.
    pub(crate) fn begins_to_overstay(&self, now: Moment) -> Option<Duration> {
        let overstays = self.overstays(now).filter(|time| *time > self.guard.cancel_grace + DROP_TIME)?;
        self.adds(Flags::OVERSTAY_LOGGED).then_some(overstays)
    }

    /// Removes the flag. Returns whether it was set: only one caller gets `true`.
    pub(crate) fn take(&self, flag: Flags) -> bool {
        self.flags.fetch_and(!flag.0, Ordering::SeqCst) & flag.0 != 0
    }

    fn clear(&self, flags: Flags) {
        self.flags.fetch_and(!flags.0, Ordering::SeqCst);
    }

    /// Waits until one of the flags is set. Cancel safe.
    pub(crate) async fn wait_for(&self, flags: Flags) {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if self.flags().intersects(flags) {
                return;
            }
            changed.await;
        }
    }

    /// No worker can take the job before this moment: one interval after the last answered heartbeat was sent.
    pub(crate) fn deadline(&self) -> Moment {
        Moment::from_millis(self.beat_sent.load(Ordering::SeqCst)).after(self.guard.interval)
    }

    /// Whether the next heartbeat extends this lock, or only asks about it.
    pub(crate) fn take_beat(&self) -> bool {
        self.guard.heartbeat == Heartbeat::Automatic
            || self.flags().intersects(Flags::NOT_RUNNING)
            || self.beaten.swap(false, Ordering::SeqCst)
    }

    /// The handler begins: from now on it must show that it is alive.
    pub(crate) fn begins(&self) {
        self.handler_beat.store(clock::now().as_millis(), Ordering::SeqCst);
        self.beaten.store(true, Ordering::SeqCst);
        self.clear(Flags::NOT_BEGUN);
    }

    /// Asks the keeper for a heartbeat for this job soon.
    fn ring(&self) {
        self.rang.store(true, Ordering::SeqCst);
        self.bells.rung.notify_one();
    }

    /// Whether such a heartbeat was requested since the last call.
    pub(crate) fn take_ring(&self) -> bool {
        self.rang.swap(false, Ordering::SeqCst)
    }

    /// A heartbeat that named this job was not answered, so the handler's sign of life must be sent again.
    pub(crate) fn return_beat(&self) {
        self.beaten.store(true, Ordering::SeqCst);
    }

    /// Records that the heartbeat sent at `sent` extended the lock.
    pub(crate) fn extended(&self, sent: Moment) {
        self.beat_sent.fetch_max(sent.as_millis(), Ordering::SeqCst);
        // If this process was frozen while the answer was in transit, the answer says nothing about the present.
        if clock::now() < self.deadline() {
            self.clear(Flags(Flags::FROZEN.0 | Flags::AT_RISK.0));
        }
    }

    /// Whether this process was frozen past the deadline. The keeper checks far more often than every tenth of the
    /// interval. After a longer gap, this process cannot know what happened to the job.
    fn slept_through_deadline(&self, last_tick: Moment, now: Moment) -> bool {
        self.deadline() <= now && now.since(last_tick) > cadence::asleep_after(self.guard.interval)
    }

    /// When the keeper checks this job next: while its run may outlive its cancel grace at each tick, else when the job
    /// is at risk or its handler has waited for an interval.
    pub(crate) fn next_check(&self, now: Moment) -> Moment {
        let flags = self.flags();
        if flags.intersects(Flags::FINISHED) {
            return Moment::from_millis(u64::MAX);
        }
        if flags.intersects(Flags::TAKEN) {
            return now;
        }
        let interval = self.guard.interval;
        let notice = cadence::risk_notice(interval).as_millis() as u64;
        let at_risk = Moment::from_millis(self.deadline().as_millis().saturating_sub(notice));
        self.waits.left(interval).map_or(at_risk, |left| at_risk.min(now.after(left)))
    }

    /// Checks the deadline. `last_tick` is the time of the last check. `beats_answered` says whether the task's
    /// heartbeats were answered in time. Returns whether the job is newly at risk.
    pub(crate) fn tick(self: &Arc<Self>, last_tick: Moment, now: Moment, beats_answered: bool) -> bool {
        let flags = self.flags();
        if flags.intersects(Flags::FINISHED) {
            return false;
        }
        if self.slept_through_deadline(last_tick, now) {
            self.post(Flags::FROZEN);
        }
        if now.after(cadence::risk_notice(self.guard.interval)) >= self.deadline() {
            // In Manual mode the handler may just be silent, and the sweep may take the job. But a sign of life that
            // was not sent yet is not silence: it gets half of the remaining time.
            let is_unsent = self.handler_beat.load(Ordering::SeqCst) > self.beat_sent.load(Ordering::SeqCst)
                && now.after(cadence::unsent_risk_notice(self.guard.interval)) >= self.deadline();
            let silent = self.guard.heartbeat == Heartbeat::Manual && beats_answered && !is_unsent;
            let give_up = self.guard.on_risk == OnLockRisk::Cancel && !silent;
            self.post(if give_up { Flags(Flags::AT_RISK.0 | Flags::GIVE_UP.0) } else { Flags::AT_RISK });
            return !flags.intersects(Flags::AT_RISK);
        }
        false
    }

    /// Implements `ctx.heartbeat()`: a sign of life, and the news. Reads and writes only local state.
    pub(crate) fn heartbeat(&self) -> Result<(), Interrupted> {
        let answer = self.beat();
        // Without a signal to those who wait for news: this is none.
        if matches!(answer, Err(Interrupted::Shutdown | Interrupted::AtRisk)) {
            self.flags.fetch_or(Flags::TOLD_TO_STOP.0, Ordering::SeqCst);
        } else if answer.is_ok() && self.flags().intersects(Flags::TOLD_TO_STOP) {
            self.clear(Flags::TOLD_TO_STOP);
        }
        answer
    }

    fn beat(&self) -> Result<(), Interrupted> {
        let now = clock::now();
        if self.guard.heartbeat == Heartbeat::Manual {
            self.beaten.store(true, Ordering::SeqCst);
            let before = self.handler_beat.swap(now.as_millis(), Ordering::SeqCst);
            if now.since(Moment::from_millis(before)) > cadence::rings_after(self.guard.interval) {
                self.ring();
            }
        }
        let flags = self.flags();
        if flags.intersects(Flags::LOST) {
            return Err(Interrupted::Lost);
        }
        if flags.intersects(Flags::CANCELLED) {
            return Err(Interrupted::Cancelled);
        }
        if flags.intersects(Flags::GIVE_UP) {
            return Err(Interrupted::AtRisk);
        }
        if flags.intersects(Flags::FINISHED) {
            return Err(Interrupted::Ended);
        }
        let last_tick = Moment::from_millis(self.last_tick.load(Ordering::SeqCst));
        if flags.intersects(Flags::FROZEN) || self.slept_through_deadline(last_tick, now) {
            self.set(Flags(Flags::FROZEN.0 | Flags::AT_RISK.0 | Flags::GOT_FROZEN.0));
            self.ring();
            return Err(Interrupted::Frozen);
        }
        // The handler continues after it got `Frozen`, so a later error is its own.
        self.clear(Flags::GOT_FROZEN);
        if flags.intersects(Flags::SHUTDOWN) {
            return Err(Interrupted::Shutdown);
        }
        Ok(())
    }
}

#[derive(Debug, Default)]
pub(crate) struct HeldJobs(Mutex<HashMap<u64, Arc<HeldJob>>>);

impl HeldJobs {
    pub(crate) fn insert(&self, jobs: &[Arc<HeldJob>]) {
        self.0.lock().extend(jobs.iter().map(|held| (held.fence, Arc::clone(held))));
        let now = clock::now();
        jobs.iter().for_each(|held| held.bells.check_by(held.next_check(now)));
    }

    pub(crate) fn remove(&self, fences: impl Iterator<Item = u64>) {
        let mut entries = self.0.lock();
        for fence in fences {
            entries.remove(&fence);
        }
    }

    /// Every entry, lowest fence first.
    pub(crate) fn all(&self) -> Vec<Arc<HeldJob>> {
        let mut all: Vec<_> = self.0.lock().values().cloned().collect();
        all.sort_unstable_by_key(|held| held.fence);
        all
    }

    /// Visits every entry, in any order. Does not hold the lock meanwhile.
    pub(crate) fn for_each(&self, visit: impl FnMut(&Arc<HeldJob>)) {
        let all: Vec<Arc<HeldJob>> = self.0.lock().values().cloned().collect();
        all.iter().for_each(visit);
    }

    pub(crate) fn get(&self, fence: u64) -> Option<Arc<HeldJob>> {
        self.0.lock().get(&fence).cloned()
    }

    /// Asks the keeper for a heartbeat soon for every held run of this job.
    pub(crate) fn ring(&self, id: &str) {
        self.0.lock().values().filter(|held| held.id.as_str() == id).for_each(|held| held.ring());
    }

    /// Removes all entries, marks them lost, and returns their jobs. They get no more heartbeats, and code that
    /// outlives its run learns that the job is lost.
    pub(crate) fn let_go(&self) -> Vec<JobId> {
        let all: Vec<Arc<HeldJob>> = self.0.lock().drain().map(|(_, held)| held).collect();
        all.iter().for_each(|held| held.set(Flags::LOST));
        all.iter().map(|held| held.id.clone()).collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.lock().len()
    }

    pub(crate) fn begun(&self) -> usize {
        self.0.lock().values().filter(|held| !held.flags().intersects(Flags::NOT_BEGUN)).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::stall::StallOptions;
    use crate::options::task::TaskOptions;

    const INTERVAL: Duration = Duration::from_secs(1);

    /// A job whose claim was sent at `sent`.
    fn held(sent: Moment, stall: StallOptions) -> Arc<HeldJob> {
        let options = TaskOptions::new().stall(stall.interval(INTERVAL)).resolve(&TaskOptions::new()).unwrap();
        let last_tick = Arc::new(AtomicU64::new(clock::now().as_millis()));
        Arc::new(HeldJob::new(
            JobId::from_wire("a"),
            1,
            (&options).into(),
            sent,
            last_tick,
            Arc::default(),
            Arc::default(),
        ))
    }

    #[test]
    fn a_reply_from_before_a_freeze_does_not_withdraw_the_warning() {
        let now = clock::now();
        let ago = |seconds: u64| Moment::from_millis(now.as_millis() - seconds * 1000);
        let held = held(ago(6), StallOptions::new());
        held.extended(ago(5));
        held.tick(Moment::from_millis(ago(5).as_millis() + 500), now, false);
        assert_eq!(held.heartbeat(), Err(Interrupted::Frozen));
        // The answer to a heartbeat that was sent before the freeze is read now.
        held.extended(Moment::from_millis(ago(5).as_millis() + 300));
        assert_eq!(held.heartbeat(), Err(Interrupted::Frozen));
        held.extended(now);
        assert_eq!(held.heartbeat(), Ok(()));
    }

    #[test]
    fn a_heartbeat_that_does_not_arrive_is_not_silence() {
        let start = clock::now();
        let options = StallOptions::new().on_lock_risk(OnLockRisk::Cancel).heartbeat(Heartbeat::Manual);
        let at = |ms| start.after(Duration::from_millis(ms));
        let silent = held(start, options.clone());
        let heard = held(start, options);
        heard.handler_beat.store(at(600).as_millis(), Ordering::SeqCst);
        for ms in (0..940).step_by(10) {
            for held in [&silent, &heard] {
                held.tick(at(ms), at(ms + 10), true);
            }
        }
        assert!(!heard.flags().intersects(Flags::GIVE_UP), "it may be on its way");
        for held in [&silent, &heard] {
            held.tick(at(945), at(955), true);
        }
        assert!(heard.flags().intersects(Flags::GIVE_UP), "another worker may take the job in a moment");
        assert!(!silent.flags().intersects(Flags::GIVE_UP) && silent.flags().intersects(Flags::AT_RISK));
    }

    #[test]
    fn a_job_is_checked_when_something_may_happen_to_it() {
        let now = clock::now();
        let held = held(now, StallOptions::new());
        let jobs = HeldJobs::default();
        assert!(held.bells.take_check(now), "the first check is due at once");
        jobs.insert(&[Arc::clone(&held)]);
        let risk = Moment::from_millis(now.as_millis() + 900);
        let before = Moment::from_millis(risk.as_millis() - 1);
        assert!(!held.bells.take_check(before) && held.bells.take_check(risk));
        assert_eq!(held.next_check(now), risk);
        held.bells.check_by(risk);
        held.set(Flags::CANCELLED);
        assert!(held.bells.take_check(now), "its run may outlive its cancel grace");
        assert_eq!(held.next_check(now), now);
        held.set(Flags::FINISHED);
        assert!(held.next_check(now) > risk.after(INTERVAL));
    }

    /// Ticks through an outage that begins right after an answered heartbeat that did not name the job yet.
    fn through_an_outage(held: &Arc<HeldJob>, start: Moment) -> Option<Duration> {
        let last_beat = start.after(Duration::from_millis(5));
        let mut last = start;
        for ms in (0..1_400).step_by(10) {
            let now = start.after(Duration::from_millis(ms));
            held.tick(last, now, now.since(last_beat) < INTERVAL / 10 * 9);
            if held.flags().intersects(Flags::GIVE_UP) {
                return Some(now.since(start));
            }
            last = now;
        }
        None
    }

    #[test]
    fn a_job_at_risk_is_given_up_before_its_deadline() {
        let start = Moment::from_millis(1_000_000);
        let cancel = StallOptions::new().on_lock_risk(OnLockRisk::Cancel);
        assert_eq!(through_an_outage(&held(start, cancel.clone()), start), Some(INTERVAL / 10 * 9));
        let manual = cancel.heartbeat(Heartbeat::Manual);
        assert_eq!(through_an_outage(&held(start, manual), start), Some(Duration::from_millis(910)));
        assert_eq!(through_an_outage(&held(start, StallOptions::new()), start), None);
    }
}
