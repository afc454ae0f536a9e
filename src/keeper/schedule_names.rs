//! Declares the schedules of this worker, and reports that it names them: other workers then know that it fires ticks,
//! and no worker removes its schedules.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::Keeper;
use super::task_monitor::TaskMonitor;
use super::timetable::Timetable;
use crate::backend::address::Role;
use crate::backend::connection::OwnConnection;
use crate::backend::schedule_calls::{self, apart, page_over};
use crate::backend::schedule_put::{Wanted, put_over};
use crate::backend::schedules::{self, Put, StoredSchedule};
use crate::backend::tables::part_of;
use crate::backoff::{DENIED_PAUSE, Pauses};
use crate::clock::{self, Moment};
use crate::error::Error;
use crate::escape::Escaped;
use crate::join::join_all;
use crate::limits::LARGE;
use crate::mutex::Mutex;
use crate::runtime::schedules::DeclaredSchedule;
use crate::schedule::policy::{Overlap, ScheduleSource};
use crate::schedule::stored::{self, StoredRule};

/// The most names that one call reports.
const NAMES: usize = 500;

/// How many schedules are declared in one round, and how many at a time. Between rounds the worker reports that it lives.
const DECLARED: usize = 200;
const TOGETHER: usize = 16;

/// A longer gap between two reports counts as a gap in naming, in reports.
const GAP: u32 = 3;

/// Makes a call with this many bytes. A large one has a connection of its own.
async fn sized<T>(
    keeper: &Keeper,
    bytes: usize,
    call: impl AsyncFnOnce(&mut OwnConnection) -> Result<T, Error>,
) -> Result<T, Error> {
    if bytes > LARGE {
        return apart(&keeper.worker.store, Role::Keeper, bytes, call).await;
    }
    keeper.housekeeping_call(call).await
}

/// How long to wait after a failed call.
pub(super) fn pause_after(e: &Error, pauses: &mut Pauses) -> Duration {
    if e.is_lasting() { DENIED_PAUSE } else { pauses.next() }
}

/// The same after a failed report of names: other workers expect a report every `regular`.
fn report_pause(e: &Error, pauses: &mut Pauses, regular: Duration) -> Duration {
    let pause = pause_after(e, pauses);
    if e.is_lasting() { pause } else { pause.min(regular) }
}

/// Declares the schedules of this worker in one table, and reports that the worker names them.
pub(super) struct ScheduleNames<'a> {
    keeper: &'a Keeper,
    watch: &'a TaskMonitor,
    timetable: &'a Mutex<Timetable>,
    own: Vec<DeclaredSchedule>,
    /// Those of `own` that have to be written.
    open: BTreeSet<usize>,
    /// Why those that could not be written were refused, as last logged.
    refused: BTreeMap<usize, String>,
    /// Since when reports were answered without a gap, and when the last one was.
    reported: Option<(Moment, Moment)>,
    /// Where to continue to look for rows with older zone data. `None`: all are checked.
    older: Option<u64>,
}

impl<'a> ScheduleNames<'a> {
    pub(super) fn new(
        keeper: &'a Keeper,
        watch: &'a TaskMonitor,
        timetable: &'a Mutex<Timetable>,
    ) -> ScheduleNames<'a> {
        let (keys, parts) = (&watch.task.keys, watch.task.keys.parts() as usize);
        let is_own = |declared: &&DeclaredSchedule| part_of(&declared.name, parts) == keys.part() as usize;
        let own: Vec<_> = watch.task.schedules.iter().filter(is_own).cloned().collect();
        let open = (0..own.len()).collect();
        if own.iter().any(|own| matches!(own.schedule.overlap, Overlap::Queue | Overlap::Replace)) {
            timetable.lock().has_queue();
        }
        let refused = BTreeMap::new();
        ScheduleNames { keeper, watch, timetable, own, open, refused, reported: None, older: Some(0) }
    }

    pub(super) async fn run(mut self) {
        let (keeper, of) = (self.keeper, self.watch.task.of());
        let regular = keeper.worker.store.timings.schedule_look;
        let mut pauses = Pauses::new(Duration::from_millis(100), Duration::from_secs(5));
        loop {
            let pause = match self.round().await {
                Ok(()) => {
                    keeper.answered("schedule names", of);
                    if self.open.is_empty() {
                        pauses.reset();
                        regular
                    } else {
                        pauses.next().min(regular)
                    }
                }
                Err(e) => {
                    keeper.failed_at("schedule names", of, &e);
                    report_pause(&e, &mut pauses, regular)
                }
            };
            tokio::time::sleep(pause).await;
        }
    }

    async fn round(&mut self) -> Result<(), Error> {
        self.report().await?;
        self.declare().await?;
        self.renew_zones().await
    }

    /// Reports which schedules this worker names, and learns which of them are missing.
    async fn report(&mut self) -> Result<(), Error> {
        let (keys, worker) = (&self.watch.task.keys, self.keeper.worker.id.as_str());
        let timings = &self.keeper.worker.store.timings;
        let now = clock::now();
        let (since, last) = self.reported.unwrap_or((now, now));
        let since = if now.since(last) > timings.schedule_look * GAP { now } else { since };
        let may_prune = now.since(since) >= timings.schedule_steady;
        let names: Vec<(&str, &str)> = self.own.iter().map(|own| (own.name.as_str(), own.digest.as_str())).collect();
        let mut chunks: Vec<&[(&str, &str)]> = names.chunks(NAMES).collect();
        if chunks.is_empty() {
            chunks.push(&[]);
        }
        let (mut missing, mut removed, mut is_steady) = (BTreeSet::new(), Vec::new(), true);
        for names in chunks {
            let report =
                async |conn: &mut OwnConnection| schedules::report_names(conn, keys, worker, names, may_prune).await;
            let reported = self.keeper.housekeeping_call(report).await?;
            self.timetable.lock().set_keepers(&reported.keepers);
            missing.extend(reported.missing);
            removed.extend(reported.removed);
            is_steady &= reported.is_steady;
        }
        // After a jump of the server's clock, the other workers get time to name theirs.
        self.reported = Some((if is_steady { since } else { now }, clock::now()));
        let is_missing = |(at, own): (usize, &DeclaredSchedule)| missing.contains(&own.name).then_some(at);
        self.open.extend(self.own.iter().enumerate().filter_map(is_missing));
        for schedule in removed {
            let task = Arc::clone(&self.watch.task.name);
            self.keeper.log.line(move || {
                tracing::info!(%task, schedule = %Escaped(&schedule), "a schedule that no worker names was removed");
            });
        }
        Ok(())
    }

    /// Writes schedules that are not written yet. One that is refused does not keep the others from being written.
    async fn declare(&mut self) -> Result<(), Error> {
        let open = self.open.iter().copied().take(DECLARED);
        // Large inputs are sent one by one, so that they need neither memory nor the line at the same time.
        let is_large = |at: &usize| self.own.get(*at).is_some_and(|own| own.input.len() > LARGE);
        let (large, small): (Vec<usize>, Vec<usize>) = open.partition(is_large);
        for together in small.chunks(TOGETHER).chain(large.chunks(1)) {
            let calls: Vec<_> = together.iter().map(|at| self.put(*at)).collect();
            for (at, put) in together.iter().zip(join_all(calls).await) {
                match put {
                    Ok(put) => self.declared(*at, &put),
                    Err(e) if e.is_outage() => return Err(e),
                    Err(e) => self.refuse(*at, &e.chain().to_string()),
                }
            }
        }
        Ok(())
    }

    async fn put(&self, at: usize) -> Result<Put, Error> {
        let Some(DeclaredSchedule { name, schedule, digest, input }) = self.own.get(at) else { return Ok(Put::Kept) };
        let (task, by, source) = (&self.watch.task, self.keeper.worker.id.as_str(), ScheduleSource::Code);
        let wanted = &Wanted { name, source, stamp: task.stamp, by, schedule, digest, input };
        sized(self.keeper, input.len(), async |conn| put_over(conn, &task.keys, wanted).await).await
    }

    fn declared(&mut self, at: usize, put: &Put) {
        match put {
            // Its ticks are due, it has just changed, or the task gets other partitions: the next round tries again.
            Put::Due | Put::Again | Put::Partitions(_) => return,
            Put::Written { is_new, .. } => {
                self.watch.look_now.notify_one();
                if let Some(own) = self.own.get(at) {
                    let (task, is_new) = (Arc::clone(&self.watch.task.name), *is_new);
                    let (schedule, rule) = (own.name.clone(), own.schedule.to_string());
                    self.keeper.log.line(move || {
                        tracing::info!(%task, %schedule, %rule, is_new, "a schedule changed with this start");
                    });
                }
            }
            Put::Same { .. } | Put::Kept => {}
        }
        self.open.remove(&at);
        self.refused.remove(&at);
    }

    /// Logs why a schedule was refused, once for each reason.
    fn refuse(&mut self, at: usize, why: &str) {
        if self.refused.insert(at, why.to_owned()).as_deref() == Some(why) {
            return;
        }
        let Some(own) = self.own.get(at) else { return };
        let (task, schedule, error) = (Arc::clone(&self.watch.task.name), own.name.clone(), why.to_owned());
        self.keeper.log.line(move || {
            tracing::error!(%task, %schedule, error, "a schedule could not be declared; will retry");
        });
    }

    /// Checks a page of rows, and computes the next tick again of those with older zone data, of any author.
    async fn renew_zones(&mut self) -> Result<(), Error> {
        let Some(from) = self.older else { return Ok(()) };
        let keys = &self.watch.task.keys;
        let page = async |conn: &mut OwnConnection| page_over(conn, keys, from, schedule_calls::ROWS).await;
        let (_, rows, next) = self.keeper.housekeeping_call(page).await?;
        for row in rows.iter().filter(|row| row.is_readable) {
            match self.renew_zone(row).await {
                // One row that is refused must not keep the others from it. The next tick renews it too.
                Err(e) if !e.is_outage() => {}
                renewed => renewed?,
            }
        }
        self.older = Some(next).filter(|next| *next > 0);
        Ok(())
    }

    async fn renew_zone(&self, row: &StoredSchedule) -> Result<(), Error> {
        let Ok(schedule) = StoredRule::read(&row.json) else { return Ok(()) };
        if stored::zone_data(&schedule) <= row.zone_data.as_str() || self.own.iter().any(|own| own.name == row.name) {
            return Ok(());
        }
        let (name, keys) = (row.name.as_str(), &self.watch.task.keys);
        let read = async |conn: &mut OwnConnection| schedules::input(conn, keys, name).await;
        let Some(input) = sized(self.keeper, row.input_bytes, read).await? else { return Ok(()) };
        let (source, stamp, by) = (row.source, row.stamp_ms, row.by.as_str());
        let wanted = &Wanted { name, source, stamp, by, schedule: &schedule, digest: &row.digest, input: &input };
        sized(self.keeper, input.len(), async |conn| put_over(conn, keys, wanted).await).await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_pause_after_a_lasting_error_exceeds_the_regular_one() {
        let regular = Duration::from_millis(50);
        let pause = |e: Error| report_pause(&e, &mut Pauses::until_answered(), regular);
        assert!(pause(Error::timed_out()) <= regular);
        assert_eq!(pause(Error::Unsupported { what: "a right is missing".to_owned() }), DENIED_PAUSE);
    }
}
