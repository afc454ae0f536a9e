//! Fires the ticks of schedules. Any worker of a task fires any due tick: the script accepts each once.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;

use super::Keeper;
use super::schedule_names::{ScheduleNames, pause_after};
use super::task_monitor::TaskMonitor;
use super::timetable::Timetable;
use crate::backend::connection::OwnConnection;
use crate::backend::schedule_firing::{MOST_FIRINGS, cancel_jobs, cancel_replaced, firing_by, in_calls};
use crate::backend::schedules::{self, DueRow, Fired, Look};
use crate::backoff::Pauses;
use crate::clock;
use crate::error::Error;
use crate::escape::Escaped;
use crate::mutex::Mutex;
use crate::schedule::policy::Overlap;
use crate::schedule::rule::Schedule;
use crate::schedule::stored::StoredRule;

/// What a producer publishes on the cancel channel of a task when a schedule has changed.
pub(super) const HINT: &str = "~schedule";

/// The least time between two looks that producers ask for: one may write many schedules.
const HINTS_APART: Duration = Duration::from_millis(20);

/// How many rules, and how many faults of schedules, are kept. Beyond that, all are read or logged again.
const RULES: usize = 200;
const FAULTS: usize = 1_000;

/// Declares and fires until the keeper's runtime ends.
pub(super) async fn run(keeper: Arc<Keeper>, watch: Arc<TaskMonitor>) {
    let timetable = Mutex::new(Timetable::new(keeper.worker.id.as_str(), clock::now()));
    let names = ScheduleNames::new(&keeper, &watch, &timetable);
    let (rules, unreadable) = (BTreeMap::new(), BTreeMap::new());
    let ticks = TickLoop { keeper: &keeper, watch: &watch, timetable: &timetable, rules, unreadable };
    tokio::join!(names.run(), ticks.run());
}

/// Records in Redis that this worker fires no ticks any more, if Redis answers soon.
pub(super) async fn leave(keeper: &Keeper) {
    if keeper.worker.incidents.is_unreachable() {
        return;
    }
    let leaves: Vec<_> = keeper.watches.iter().map(|watch| leave_one(keeper, watch)).collect();
    // Without a sign of life, the others know it after 15 s.
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
    /// The rules that were read last, by their JSON, or why they cannot be read: many schedules have the same rule.
    rules: BTreeMap<String, Result<Schedule, String>>,
    /// The schedules that could not be read when they were last due, and why. Each is logged once.
    unreadable: BTreeMap<String, String>,
}

impl TickLoop<'_> {
    async fn run(mut self) {
        let (keeper, of) = (self.keeper, self.watch.task.of());
        let mut pauses = Pauses::until_answered();
        loop {
            match self.fire_due().await {
                Ok(()) => {
                    pauses.reset();
                    keeper.answered("schedules", of);
                    let at = self.timetable.lock().look_at(&keeper.worker.store.timings);
                    tokio::select! {
                        () = tokio::time::sleep(at.since(clock::now())) => {}
                        () = self.watch.look_now.notified() => tokio::time::sleep(HINTS_APART).await,
                    }
                }
                Err(e) => {
                    keeper.failed_at("schedules", of, &e);
                    tokio::time::sleep(pause_after(&e, &mut pauses)).await;
                }
            }
        }
    }

    /// Looks for due ticks and fires them, until none is left that this worker can fire.
    async fn fire_due(&mut self) -> Result<(), Error> {
        // Due schedules that this worker cannot fire, such as those of a newer version. They must not hide others.
        let mut skipped = 0;
        loop {
            let keys = &self.watch.task.keys;
            let look = async |conn: &mut OwnConnection| schedules::look(conn, keys, MOST_FIRINGS, skipped).await;
            let Look { now_ms, due, unreadable, next_at_ms, more, replaced } =
                self.keeper.housekeeping_call(look).await?;
            self.timetable.lock().answered(clock::now(), now_ms, next_at_ms);
            for name in unreadable {
                self.cannot_read(name, "its data in Redis is damaged".to_owned());
            }
            let (has_fired, is_left) = self.fire(now_ms, &due).await?;
            if !replaced.is_empty() {
                // A worker fired the tick, and died before the cancel or did not get the answer.
                self.timetable.lock().has_queue();
                let cancel = async |conn: &mut OwnConnection| cancel_jobs(conn, keys, &replaced).await;
                self.keeper.housekeeping_call(cancel).await?;
            }
            let stay = if has_fired { 0 } else { due.iter().filter(|row| !row.pending).count() };
            let is_stuck = !has_fired && stay == 0;
            if is_stuck || !(more || is_left) {
                return Ok(());
            }
            skipped += stay;
        }
    }

    /// Fires what is due in these rows. Returns whether ticks were fired, and whether more of these rows are due.
    async fn fire(&mut self, now_ms: u64, due: &[DueRow]) -> Result<(bool, bool), Error> {
        let task = &self.watch.task;
        let mut firings = Vec::with_capacity(due.len());
        for row in due {
            let rule = self.rule(&row.json);
            match rule.and_then(|schedule| firing_by(schedule, &task.keys, now_ms, row)) {
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
        let mut has_fired = false;
        for firings in in_calls(firings) {
            let fire = async |conn: &mut OwnConnection| {
                let fired = schedules::fire(conn, &task.keys, &firings).await?;
                cancel_replaced(conn, &task.keys, &fired.1).await?;
                Ok::<_, Error>(fired)
            };
            let (now_ms, fired, next_at_ms) = self.keeper.housekeeping_call(fire).await?;
            self.timetable.lock().answered(clock::now(), now_ms, next_at_ms);
            has_fired |= fired.iter().any(|fired| matches!(fired, Fired::Done { .. } | Fired::Moved));
            let (task, calls) = (Arc::clone(&task.name), fired.len());
            self.keeper.log.line(move || tracing::debug!(%task, schedules = calls, "ticks fired"));
        }
        Ok((has_fired, is_left))
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
