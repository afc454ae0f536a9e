//! Fires the ticks of schedules. Any worker of a task fires any due tick: the script accepts each once.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::Keeper;
use super::schedule_names::{ScheduleNames, pause_after};
use super::task_monitor::TaskMonitor;
use super::timetable::Timetable;
use crate::backend::connection::OwnConnection;
use crate::backend::keys::Key;
use crate::backend::schedule_firing::{MOST_FIRINGS, cancel_jobs, cancel_replaced, firing_by, in_calls};
use crate::backend::schedules::{self, DueRow, FireReply, Fired, Firing, Look};
use crate::backoff::Pauses;
use crate::clock;
use crate::error::Error;
use crate::escape::Escaped;
use crate::join::join_all;
use crate::mutex::Mutex;
use crate::schedule::policy::Overlap;
use crate::schedule::rule::Schedule;
use crate::schedule::stored::StoredRule;

/// What a producer publishes on the cancel channel of a task when a schedule has changed.
pub(super) const HINT: &str = "~schedule";

/// The least time between two looks that producers ask for: one may write many schedules.
const HINTS_APART: Duration = Duration::from_millis(20);

/// The most rules and faults of schedules that are kept. If there are more, all are dropped, and read or logged again.
const RULES: usize = 200;
const FAULTS: usize = 1_000;

/// The most schedules that are kept, to fire their next tick without a look. It must come within this time.
const KEPT: usize = 1_000;
const KEPT_AHEAD_MS: u64 = 60_000;

/// If a tick is later than this, the first two workers in the order do not fire.
const LATE_MS: u64 = 1_000;

/// Declares and fires until the keeper's runtime ends.
pub(super) async fn run(keeper: Arc<Keeper>, watch: Arc<TaskMonitor>) {
    let timetable = Timetable::new(keeper.worker.id.as_str(), watch.task.keys.get(Key::Schedules), clock::now());
    let timetable = Mutex::new(timetable);
    let names = ScheduleNames::new(&keeper, &watch, &timetable);
    let (kept, rules, unreadable) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
    let ticks = TickLoop { keeper: &keeper, watch: &watch, timetable: &timetable, kept, rules, unreadable };
    tokio::join!(names.run(), ticks.run());
}

/// Records in Redis that this worker fires no ticks any more, if Redis answers soon.
pub(super) async fn leave(keeper: &Keeper) {
    if keeper.worker.incidents.is_unreachable() {
        return;
    }
    let leaves: Vec<_> = keeper.watches.iter().map(|watch| leave_one(keeper, watch)).collect();
    // If this fails, the others take the worker for dead after 15 s.
    let _ = tokio::time::timeout(Duration::from_millis(500), join_all(leaves)).await;
}

async fn leave_one(keeper: &Keeper, watch: &TaskMonitor) -> Result<(), Error> {
    let worker = keeper.worker.id.as_str();
    keeper.housekeeping_call(async |conn| schedules::leave(conn, &watch.task.keys, worker).await).await
}

/// Fires due ticks of one table.
struct TickLoop<'a> {
    keeper: &'a Keeper,
    watch: &'a TaskMonitor,
    timetable: &'a Mutex<Timetable>,
    /// The next ticks of schedules that this worker fired, by name: when each is to be fired, ms, and its row.
    kept: BTreeMap<String, (u64, DueRow)>,
    /// The rules that were read last, by their JSON, or why they cannot be read: many schedules have the same rule.
    rules: BTreeMap<String, Result<Schedule, String>>,
    /// The schedules that could not be read when they were last due, and why. Each is logged once.
    unreadable: BTreeMap<String, String>,
}

impl TickLoop<'_> {
    async fn run(mut self) {
        let (keeper, of) = (self.keeper, self.watch.task.of());
        let mut pauses = Pauses::until_answered();
        let mut must_look = true;
        loop {
            match self.fire_due(must_look).await {
                Ok(()) => {
                    pauses.reset();
                    keeper.answered("schedules", of);
                    let at = self.timetable.lock().next_at(&keeper.worker.store.timings);
                    must_look = tokio::select! {
                        () = tokio::time::sleep(at.since(clock::now())) => self.is_look_due(),
                        () = self.watch.look_now.notified() => {
                            tokio::time::sleep(HINTS_APART).await;
                            true
                        }
                    };
                }
                Err(e) => {
                    keeper.failed_at("schedules", of, &e);
                    tokio::time::sleep(pause_after(&e, &mut pauses)).await;
                }
            }
        }
    }

    fn is_look_due(&self) -> bool {
        self.timetable.lock().regular_look_at(&self.keeper.worker.store.timings) <= clock::now()
    }

    /// Fires due ticks. Looks for them, unless the kept ones were all that were due, and no look is due.
    async fn fire_due(&mut self, must_look: bool) -> Result<(), Error> {
        if !self.fire_kept().await? || must_look {
            self.look_and_fire().await?;
        }
        Ok(())
    }

    /// Fires the due ticks of the schedules that are kept. Returns whether all due ticks have been fired.
    async fn fire_kept(&mut self) -> Result<bool, Error> {
        let (is_first, now_ms) = {
            let (timetable, now) = (self.timetable.lock(), clock::now());
            (timetable.is_first(now), timetable.server_ms(now))
        };
        if !is_first {
            // Another worker fires them next.
            self.kept.clear();
        }
        let is_due = |(at_ms, _): &(u64, DueRow)| *at_ms <= now_ms;
        let names: Vec<String> =
            self.kept.iter().filter(|(_, kept)| is_due(kept)).map(|(name, _)| name.clone()).collect();
        let due: Vec<DueRow> = names.iter().filter_map(|name| self.kept.remove(name)).map(|(_, row)| row).collect();
        if due.is_empty() {
            return Ok(false);
        }
        Ok(self.fire(now_ms, &due).await?.is_all)
    }

    /// Looks for due ticks and fires them, until none is left that this worker can fire.
    async fn look_and_fire(&mut self) -> Result<(), Error> {
        // Due schedules that this worker cannot fire, such as those of a newer version. They must not hide others.
        let mut skipped = 0;
        loop {
            let keys = &self.watch.task.keys;
            let look = async |conn: &mut OwnConnection| schedules::look(conn, keys, MOST_FIRINGS, skipped).await;
            let Look { now_ms, due, unreadable, next_at_ms, more, replaced } =
                self.keeper.housekeeping_call(look).await?;
            self.timetable.lock().looked(clock::now(), now_ms, next_at_ms);
            let has_unreadable = !unreadable.is_empty();
            for name in unreadable {
                self.cannot_read(name, "its data in Redis is damaged".to_owned());
            }
            let FireSummary { has_fired, is_left, .. } = self.fire(now_ms, &due).await?;
            if !replaced.is_empty() {
                // A worker fired the tick, and died before the cancel or did not get the answer.
                self.timetable.lock().has_queue();
                let cancel = async |conn: &mut OwnConnection| cancel_jobs(conn, keys, &replaced).await;
                self.keeper.housekeeping_call(cancel).await?;
            }
            let stay = if has_fired { 0 } else { due.iter().filter(|row| !row.pending).count() };
            let is_stuck = !has_fired && !has_unreadable && stay == 0;
            if is_stuck || !(more || is_left) {
                return Ok(());
            }
            skipped += stay;
        }
    }

    /// Fires what is due in these rows.
    async fn fire(&mut self, now_ms: u64, due: &[DueRow]) -> Result<FireSummary, Error> {
        let task = &self.watch.task;
        let (mut firings, mut late) = (Vec::with_capacity(due.len()), Vec::new());
        for row in due {
            let rule = self.rule(&row.json);
            let found = rule.and_then(|schedule| {
                if !row.pending && schedule.at(&row.name, row.due_ms) + LATE_MS < now_ms {
                    late.push(row.name.as_str());
                }
                firing_by(schedule, &task.keys, now_ms, row)
            });
            match found {
                Ok(found) => {
                    self.unreadable.remove(&row.name);
                    firings.extend(found);
                }
                Err(why) => self.cannot_read(row.name.clone(), why),
            }
            // To count many missed ticks takes time, in which this thread must send heartbeats too.
            tokio::task::yield_now().await;
        }
        let waits = |overlap: Overlap| matches!(overlap, Overlap::Queue | Overlap::Replace);
        if firings.iter().any(|(firing, _)| waits(firing.overlap)) {
            self.timetable.lock().has_queue();
        }
        let is_left = firings.iter().any(|(firing, _)| firing.next.is_some_and(|(_, at_ms)| at_ms <= now_ms));
        let mut done = FireSummary { has_fired: false, is_left, is_all: false };
        for firings in in_calls(firings) {
            let fire = async |conn: &mut OwnConnection| {
                let reply = schedules::fire(conn, &task.keys, &firings).await?;
                cancel_replaced(conn, &task.keys, &reply.fired).await?;
                Ok::<_, Error>(reply)
            };
            let FireReply { now_ms, next_at_ms, more, fired } = self.keeper.housekeeping_call(fire).await?;
            self.timetable.lock().answered(clock::now(), now_ms, next_at_ms);
            done.has_fired |= fired.iter().any(|fired| matches!(fired, Fired::Done { .. } | Fired::Moved));
            done.is_all = !more;
            let accepted = firings.iter().zip(&fired).filter(|(_, fired)| matches!(fired, Fired::Done { .. }));
            for (firing, _) in accepted {
                if late.contains(&firing.name) && !firing.is_pending {
                    self.timetable.lock().stand_in(clock::now());
                }
                let row = due.iter().find(|row| row.name == firing.name && !row.pending);
                self.keep(now_ms, firing, row);
            }
            let (task, calls) = (Arc::clone(&task.name), fired.len());
            self.keeper.log.line(move || tracing::debug!(%task, schedules = calls, "ticks fired"));
        }
        Ok(done)
    }

    /// Keeps the next tick of a row that was fired, if it comes soon.
    fn keep(&mut self, now_ms: u64, firing: &Firing<'_>, row: Option<&DueRow>) {
        let Some((row, (due_ms, at_ms))) = row.zip(firing.next).filter(|_| !firing.is_pending) else { return };
        if self.kept.len() < KEPT && at_ms <= now_ms + KEPT_AHEAD_MS {
            let row = DueRow { due_ms, last_ms: Some(firing.through_ms), ..row.clone() };
            self.kept.insert(row.name.clone(), (at_ms, row));
        }
    }

    /// The rule of this JSON.
    fn rule(&mut self, json: &str) -> Result<&Schedule, String> {
        if self.rules.len() >= RULES && !self.rules.contains_key(json) {
            self.rules.clear();
        }
        let rule = self.rules.entry(json.to_owned()).or_insert_with(|| StoredRule::read(json));
        rule.as_ref().map_err(String::clone)
    }

    /// Logs that a schedule cannot be read, once for each reason.
    fn cannot_read(&mut self, schedule: String, why: String) {
        if self.unreadable.len() >= FAULTS {
            self.unreadable.clear();
        }
        if self.unreadable.insert(schedule.clone(), why.clone()).as_ref() == Some(&why) {
            return;
        }
        let task = Arc::clone(&self.watch.task.name);
        self.keeper.log.line(move || {
            tracing::warn!(%task, schedule = %Escaped(&schedule), why = %Escaped(&why),
                "a schedule cannot be read; its ticks do not fire here");
        });
    }
}

/// The result of firing due rows.
#[derive(Debug)]
struct FireSummary {
    /// Whether this worker or another one fired ticks of these rows.
    has_fired: bool,
    /// Whether more ticks of these rows were due.
    is_left: bool,
    /// Whether no tick of the table was due after the last call.
    is_all: bool,
}
