//! A sweep on request: it watches for an interval as a worker does, then resolves jobs that stayed silent.

use std::time::Duration;

use super::Inspector;
use crate::backend::address::Role;
use crate::backend::classify::classify;
use crate::backend::connection::OwnConnection;
use crate::backend::keys::{Key, TaskKeys};
use crate::backend::overview;
use crate::backend::sweep::{self, Decision, StalledJob, SweepReply};
use crate::clock::{self, Moment};
use crate::error::Error;
use crate::limits::BATCH;
use crate::stall::cadence;
use crate::stall::witness::{DetectorReset, Witness};
use crate::worker_id::WorkerId;

/// How many intervals a watch may take before it gives up.
const MOST_INTERVALS: u32 = 5;

/// The shortest time before a watch gives up.
pub(super) const LEAST_TIME: Duration = Duration::from_secs(30);

/// The error if the server lost the options of the task: without them it cannot decide about jobs.
pub(super) fn undeclared() -> Error {
    let what = "the server has lost the options of the task: start a worker, which declares them";
    Error::Unsupported { what: what.to_owned() }
}

/// The result of a watch.
#[derive(Default)]
pub(super) struct Resolution {
    pub(super) resolved: Vec<StalledJob>,
    pub(super) parked: u64,
    pub(super) swept_by_worker: bool,
    pub(super) is_complete: bool,
}

/// A sweep that a person requests: it watches for an interval as a worker does, then resolves jobs that stayed silent.
pub(super) struct SweepByHand<'a> {
    watch: Watch<'a>,
    own: WorkerId,
    decision: Decision,
    /// Only these jobs; all silent ones if empty.
    ids: Vec<String>,
    found: &'a mut Resolution,
    /// How many jobs earlier calls resolved.
    decided: usize,
    pub(super) witness: Witness,
    epoch: u64,
    interval: Duration,
    /// When the next beat is due.
    due: Moment,
    pub(super) end: Moment,
    cursor: String,
    /// How many batches of `ids` were sent.
    batch: usize,
    may_watch_again: bool,
    pub(super) failure: Option<Error>,
    /// Whether a call got no answer, although it may have been carried out.
    is_unanswered: bool,
}

impl<'a> SweepByHand<'a> {
    pub(super) fn begin(
        watch: Watch<'a>,
        own: WorkerId,
        decision: Decision,
        ids: Vec<String>,
        found: &'a mut Resolution,
        (epoch, interval): (u64, Duration),
    ) -> SweepByHand<'a> {
        let (start, period) = (clock::now(), cadence::beat_period(interval));
        let mut witness = Witness::new(period, start);
        witness.beat_answered(start, start, epoch, interval);
        SweepByHand {
            watch,
            own,
            decision,
            ids,
            decided: found.resolved.len(),
            found,
            witness,
            epoch,
            interval,
            due: start.after(period),
            end: start.after((interval * MOST_INTERVALS).max(LEAST_TIME)),
            cursor: "0".to_owned(),
            batch: 0,
            may_watch_again: true,
            failure: None,
            is_unanswered: false,
        }
    }

    /// Makes one sweep call. Returns whether the sweep is over.
    pub(super) async fn resolve(&mut self, watched: u64, waited: Duration) -> Result<bool, Error> {
        if watched != self.epoch {
            self.found.swept_by_worker = true;
            return Ok(true);
        }
        let batch = self.ids.chunks(BATCH).nth(self.batch).unwrap_or_default();
        let decision = Decision { ids: batch.to_vec(), ..self.decision.clone() };
        let period = cadence::beat_period(self.interval);
        let swept = self.watch.sweep(self.own.as_str(), Some(watched), waited, &self.cursor, &decision, period).await;
        match swept {
            Ok(SweepReply::Swept { epoch, interval, cursor, snapshot, left, resolved, parked }) => {
                self.found.parked += parked;
                // Continue while there is progress.
                if !resolved.is_empty() {
                    self.end = self.end.max(clock::now().after(LEAST_TIME));
                }
                self.found.resolved.extend(resolved);
                self.cursor = cursor;
                let is_idle = self.found.resolved.len() == self.decided && self.found.parked == 0;
                if snapshot && is_idle && std::mem::take(&mut self.may_watch_again) {
                    // Jobs of workers that died since the previous snapshot are silent from this one on.
                    (self.epoch, self.batch) = (epoch, 0);
                    self.witness.sweep_answered(clock::now(), epoch, interval);
                    return Ok(false);
                }
                self.batch += 1;
                let batches = self.ids.len().div_ceil(BATCH);
                Ok(snapshot || if batches == 0 { left == 0 } else { self.batch >= batches })
            }
            Ok(SweepReply::Moved { .. }) => {
                self.found.swept_by_worker = true;
                Ok(true)
            }
            Ok(SweepReply::Early { epoch, interval }) => {
                self.witness.sweep_answered(clock::now(), epoch, interval);
                Ok(false)
            }
            Ok(SweepReply::Undeclared) => Err(undeclared()),
            Err(e) => {
                self.witness.broken(clock::now(), DetectorReset::SweepRefused);
                if !e.is_outage() {
                    return Err(e);
                }
                // If the call was carried out, this process itself has changed the epoch.
                self.is_unanswered = true;
                self.failure = Some(e);
                Ok(false)
            }
        }
    }

    /// Waits until the next beat is due, and reads the epoch. Returns whether the sweep is over.
    pub(super) async fn beat(&mut self) -> Result<bool, Error> {
        let period = cadence::beat_period(self.interval);
        tokio::time::sleep(self.due.since(clock::now())).await;
        match self.watch.epoch(period).await {
            Ok(Some((epoch, interval))) => {
                let now = clock::now();
                self.witness.beat_answered(self.due, now, epoch, interval);
                self.due = self.due.after(period).max(now);
                if epoch == self.epoch {
                    return Ok(false);
                }
                match self.failure.take().filter(|_| self.is_unanswered) {
                    Some(e) => Err(e),
                    None => {
                        self.found.swept_by_worker = true;
                        Ok(true)
                    }
                }
            }
            Ok(None) => Ok(true),
            Err(e) => {
                self.witness.broken(clock::now(), DetectorReset::NoAnswer);
                self.due = clock::now().after(cadence::longest_beat_pause(self.interval));
                self.witness.next_beat_at(self.due);
                if !e.is_outage() {
                    return Err(e);
                }
                self.failure = Some(e);
                Ok(false)
            }
        }
    }
}

/// The connection of a watch, which is reopened if it breaks.
pub(super) struct Watch<'a> {
    inspector: &'a Inspector,
    pub(super) keys: &'a TaskKeys,
    /// The connection, and the primary epoch of its primary.
    conn: Option<(OwnConnection, u64)>,
    /// The number of the connection to the node that carried its last call.
    node_connection: Option<u64>,
}

impl<'a> Watch<'a> {
    pub(super) fn begin(inspector: &'a Inspector, keys: &'a TaskKeys) -> Watch<'a> {
        Watch { inspector, keys, conn: None, node_connection: None }
    }

    /// The epoch and the interval in force. `None` before the first. The answer must arrive within `time`.
    pub(super) async fn epoch(&mut self, time: Duration) -> Result<Option<(u64, Duration)>, Error> {
        let keys = self.keys;
        let (epoch, interval) = self.call(time, async |conn| overview::epoch(conn, keys).await).await?;
        Ok(interval.filter(|ms| *ms > 0).map(|ms| (epoch, Duration::from_millis(ms))))
    }

    pub(super) async fn sweep(
        &mut self,
        own: &str,
        epoch: Option<u64>,
        waited: Duration,
        cursor: &str,
        decision: &Decision,
        time: Duration,
    ) -> Result<SweepReply, Error> {
        let keys = self.keys;
        let sweep = async |conn: &mut OwnConnection| {
            sweep::sweep(conn, keys, own, Duration::ZERO, epoch, waited, cursor, BATCH, Some(decision)).await
        };
        self.call(time, sweep).await
    }

    async fn call<T>(
        &mut self,
        time: Duration,
        call: impl AsyncFnOnce(&mut OwnConnection) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let store = &self.inspector.store;
        let answer = async {
            store.ready().await?;
            let primary_epoch = store.primary_epoch();
            let (conn, primary_epoch) = match self.conn.take() {
                Some(open) => open,
                None => (store.dedicated(Role::Shared, None).await?, primary_epoch),
            };
            let key = self.keys.get(Key::Meta);
            let mut node = conn.at(key).await.map_err(|e| classify("watch", e))?;
            let before = std::mem::replace(&mut self.node_connection, node.number_for(key));
            if before.is_some() && before != self.node_connection {
                // The watch so far was with another server.
                self.conn = Some((conn, primary_epoch));
                return Err(Error::primary_changed());
            }
            let answer = store.steady_since(primary_epoch, call(&mut node)).await?;
            self.conn = Some((conn, primary_epoch));
            Ok(answer)
        };
        tokio::time::timeout(time, answer).await.unwrap_or_else(|_| Err(Error::timed_out()))
    }
}
