//! The sweep loop of one task: witness → resolve → the next snapshot.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{join, join_all};

use crate::error::Error;
use crate::shown::Shown;
use crate::store::OwnConnection;
use crate::store::locks::{self, LEAST_SWEEP, MOST_SWEEP, SHRINK_STEP, SweepReply};
use crate::worker::clock;
use crate::worker::keeper::{Keeper, TaskWatch};

/// The most calls that resolve and are under way together. Each removes what it decides, so that the next one finds others.
const TOGETHER: u64 = 5;

/// The most calls that shrink and are under way together.
const MOST_SHRINKS: u64 = 500;

/// How far the sweep of an epoch has come. It outlives beats, which may come in between.
#[derive(Debug, Default)]
pub(crate) struct Pass {
    epoch: u64,
    cursor: String,
    /// The table of the candidates was made small in this epoch.
    shrunk: bool,
    /// Candidates, and running jobs that were heard from, as they were told last.
    candidates: u64,
    active: u64,
    round_trip: Duration,
}

/// One round of calls that go out together.
#[derive(Debug, PartialEq, Eq)]
struct Plan {
    shrinks: u64,
    sweeps: u64,
    limit: usize,
    cursor: String,
}

impl Pass {
    /// A beat told how many candidates and active jobs there are.
    pub(crate) fn heard(&mut self, candidates: u64, active: u64, round_trip: Duration) {
        (self.candidates, self.active, self.round_trip) = (candidates, active, round_trip);
    }

    /// How long the last beat took.
    pub(crate) fn round_trip(&self) -> Duration {
        self.round_trip
    }

    /// What to send next in this epoch.
    fn plan(&mut self, epoch: u64) -> Plan {
        if self.epoch != epoch || self.cursor.is_empty() {
            (self.epoch, self.cursor, self.shrunk) = (epoch, "0".to_owned(), false);
        }
        // A few that are left of very many: see `shrink`.
        let few = !self.shrunk && self.candidates > 0 && self.candidates * 1000 < self.active;
        self.shrunk |= few;
        // Where a round trip takes long a call may too, so that not many of them are needed.
        let limit = (self.round_trip.as_millis() as usize * 12).clamp(LEAST_SWEEP, MOST_SWEEP);
        Plan {
            shrinks: if few { self.active.div_ceil(SHRINK_STEP).min(MOST_SHRINKS) } else { 0 },
            sweeps: self.candidates.div_ceil(limit as u64).clamp(1, TOGETHER),
            limit,
            cursor: self.cursor.clone(),
        }
    }

    fn swept(&mut self, cursor: String, left: u64) {
        (self.cursor, self.candidates) = (cursor, left);
    }
}

/// Sweeps whenever the witness rule allows it, until the keeper's runtime ends.
pub(crate) async fn run(keeper: Arc<Keeper>, watch: Arc<TaskWatch>) {
    loop {
        let at = watch.witness().sweep_at();
        match at {
            None => watch.seen.notified().await,
            Some(at) => {
                let pause = at.since(clock::now());
                if !pause.is_zero() {
                    // The note may move while we sleep; it only ever moves to later, or to another interval.
                    tokio::select! {
                        () = tokio::time::sleep(pause) => {}
                        () = watch.seen.notified() => {}
                    }
                    continue;
                }
                if watch.witness().may_sweep(clock::now()).is_none() {
                    // The watch was broken, or an own beat is due: its answer rings.
                    tokio::select! {
                        () = watch.seen.notified() => {}
                        () = tokio::time::sleep(watch.task.beat_period() / 4) => {}
                    }
                    continue;
                }
                if let Err(e) = run_once(&keeper, &watch).await {
                    watch.witness().broken(clock::now());
                    if !e.is_retryable() {
                        let task = Arc::clone(&watch.task.name);
                        keeper.log.line(move || {
                            tracing::error!(%task, error = %e.chain(), "a sweep was refused; it is tried again");
                        });
                    }
                }
            }
        }
    }
}

/// Resolves every candidate of the epoch in bounded calls, and takes the next snapshot. Returns how many it resolved.
async fn run_once(keeper: &Keeper, watch: &TaskWatch) -> Result<usize, Error> {
    let (task, mut total) = (&watch.task, 0);
    loop {
        // Asked anew before each round: the watch may have been broken since the last one.
        let allowed = watch.witness().may_sweep(clock::now());
        let Some((epoch, waited)) = allowed else { return Ok(total) };
        let plan = watch.pass().plan(epoch);
        let mut answers = Vec::new();
        let round = async |conn: &mut OwnConnection| {
            answers = send(keeper, watch, conn, &plan, epoch, waited).await;
            // What some of the calls decided is told all the same.
            answers.iter().find_map(|answer| answer.as_ref().err()).map_or(Ok(()), |e| Err(e.again()))
        };
        let answered = keeper.call(watch, round).await;
        for answer in answers.into_iter().flatten() {
            match answer {
                SweepReply::Swept { epoch, interval, cursor, snapshot, left, resolved } => {
                    total += resolved.len();
                    for job in resolved {
                        tell(keeper, watch, job);
                    }
                    watch.pass().swept(cursor, left);
                    watch.witness().told(clock::now(), epoch, interval);
                    if snapshot {
                        let task = Arc::clone(&task.name);
                        keeper.log.line(move || tracing::debug!(%task, epoch, resolved = total, "swept"));
                        return Ok(total);
                    }
                }
                SweepReply::Moved { epoch, interval } | SweepReply::Early { epoch, interval } => {
                    watch.witness().told(clock::now(), epoch, interval);
                    return Ok(total);
                }
                SweepReply::Undeclared => {
                    keeper.declare_again(watch).await?;
                    return Ok(total);
                }
            }
        }
        answered?;
    }
}

/// Sends one round of calls together, and gives their answers in the order in which the server made them.
async fn send(
    keeper: &Keeper,
    watch: &TaskWatch,
    conn: &OwnConnection,
    plan: &Plan,
    epoch: u64,
    waited: Duration,
) -> Vec<Result<SweepReply, Error>> {
    let (task, worker) = (&watch.task, keeper.worker.id.as_str());
    let shrinks = (0..plan.shrinks).map(|_| {
        let mut conn = conn.clone();
        async move { locks::shrink(&mut conn, &task.keys).await }
    });
    let sweeps = (0..plan.sweeps).map(|_| {
        let mut conn = conn.clone();
        let ask = task.options.interval;
        async move { locks::sweep(&mut conn, &task.keys, worker, ask, epoch, waited, &plan.cursor, plan.limit).await }
    });
    // A table that was not made smaller costs time, and changes nothing else.
    let (_, answers) = join(join_all(shrinks), join_all(sweeps)).await;
    answers
}

/// Logs what was decided about a job. One of our own, whose handler was silent while we beat, hears of it at once.
fn tell(keeper: &Keeper, watch: &TaskWatch, job: locks::Resolved) {
    if job.worker == keeper.worker.id.as_str()
        && let Some(held) = watch.task.held.get(job.fence)
    {
        keeper.lost(&watch.task, &held);
    }
    let task = Arc::clone(&watch.task.name);
    keeper.log.line(move || {
        let (job_id, worker) = (Shown(&job.id), Shown(&job.worker));
        tracing::warn!(%task, %job_id, action = %job.action, count = job.count, %worker, "stalled");
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::ZERO;

    fn heard(candidates: u64, active: u64, round_trip: Duration) -> Pass {
        let mut pass = Pass::default();
        pass.heard(candidates, active, round_trip);
        pass
    }

    #[test]
    fn a_round_is_as_large_as_what_is_left_and_as_the_round_trip_is_long() {
        let plan = |candidates, ms| heard(candidates, 0, Duration::from_millis(ms)).plan(1);
        let rounds = [plan(0, 0), plan(25, 0), plan(26, 0), plan(1_000, 0), plan(1_000, 5), plan(1_000, 20)];
        let sizes = rounds.map(|plan| (plan.sweeps, plan.limit));
        assert_eq!(sizes, [(1, 25), (1, 25), (2, 25), (5, 25), (5, 60), (5, 200)]);
    }

    #[test]
    fn a_table_that_is_mostly_empty_is_made_small_once_an_epoch() {
        let mut pass = heard(999, 1_000_000, NOW);
        assert_eq!(pass.plan(3).shrinks, 250);
        pass.swept("17".to_owned(), 900);
        // A beat comes in between.
        pass.heard(900, 1_000_000, NOW);
        let next = pass.plan(3);
        assert_eq!((next.shrinks, next.cursor.as_str()), (0, "17"));
        pass.heard(10, 1_000_000, NOW);
        let other = pass.plan(4);
        assert_eq!((other.shrinks, other.cursor.as_str()), (250, "0"));
        assert_eq!(heard(1_000, 1_000_000, NOW).plan(1).shrinks, 0);
    }
}
