//! What a heartbeat names, and its calls: all are in flight together, and each answer extends its jobs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;

use super::Keeper;
use super::task_monitor::TaskMonitor;
use crate::backend::connection::OwnConnection;
use crate::backend::extend_locks::{self, Beaten};
use crate::backend::settle;
use crate::clock::{self, Moment};
use crate::error::Error;
use crate::limits::BEAT_BATCH;
use crate::mutex::Mutex;
use crate::runtime::held_jobs::{Flags, HeldJob};
use crate::stall::cadence;

/// One call of a heartbeat.
pub(super) enum Part {
    Jobs {
        extend: Vec<Arc<HeldJob>>,
        /// Heartbeat mode Manual: jobs whose handlers were silent.
        asked: Vec<Arc<HeldJob>>,
    },
    /// All jobs that Redis gave out for a claim, according to its record of the call.
    Claim { sequence: usize, number: u64 },
}

/// What the answers report.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Heard {
    pub(super) epoch: u64,
    pub(super) interval: Duration,
    pub(super) declared_at: u64,
    pub(super) candidates: u64,
    pub(super) active: u64,
}

/// The calls of one heartbeat, over any connections.
pub(super) struct HeartbeatRound<'a> {
    keeper: &'a Keeper,
    watch: &'a TaskMonitor,
    parts: Vec<(Part, AtomicBool)>,
    named: AtomicUsize,
    /// When a call was last answered, ms; 0 before the first answer.
    last_answer: AtomicU64,
    pub(super) heard: Mutex<Heard>,
}

impl<'a> HeartbeatRound<'a> {
    /// A heartbeat for all held jobs, and for the jobs that Redis gave out for claims that were not answered yet.
    pub(super) fn of_all(keeper: &'a Keeper, watch: &'a TaskMonitor) -> HeartbeatRound<'a> {
        let task = &watch.task;
        // Read claims first: the jobs of a claim that is answered by now are in the table.
        let unanswered = task.claims.older_than(cadence::old_claim(task.options.interval));
        let all = task.held.all();
        for held in &all {
            held.take_ring();
        }
        let mut round = HeartbeatRound::new(keeper, watch, all);
        let claims = unanswered.into_iter().map(|(sequence, number)| (Part::Claim { sequence, number }, false.into()));
        round.parts.extend(claims);
        round
    }

    /// A heartbeat for jobs that ring, as many as one call names. The next heartbeat includes the others.
    pub(super) fn of_rung(keeper: &'a Keeper, watch: &'a TaskMonitor) -> HeartbeatRound<'a> {
        let rung = watch.task.held.all().into_iter().filter(|held| held.take_ring()).take(BEAT_BATCH);
        HeartbeatRound::new(keeper, watch, rung.collect())
    }

    fn new(keeper: &'a Keeper, watch: &'a TaskMonitor, jobs: Vec<Arc<HeldJob>>) -> HeartbeatRound<'a> {
        let (extend, asked): (Vec<_>, Vec<_>) = jobs.into_iter().partition(|held| held.take_beat());
        let mut parts: Vec<Part> = Vec::new();
        parts.extend(extend.chunks(BEAT_BATCH).map(|jobs| Part::Jobs { extend: jobs.to_vec(), asked: Vec::new() }));
        parts.extend(asked.chunks(BEAT_BATCH).map(|jobs| Part::Jobs { extend: Vec::new(), asked: jobs.to_vec() }));
        if parts.is_empty() {
            // At least one call, to learn the epoch.
            parts.push(Part::Jobs { extend: Vec::new(), asked: Vec::new() });
        }
        let parts = parts.into_iter().map(|part| (part, false.into())).collect();
        let (named, last_answer) = (AtomicUsize::new(0), AtomicU64::new(0));
        HeartbeatRound { keeper, watch, parts, named, last_answer, heard: Mutex::default() }
    }

    /// How many jobs its answered calls named.
    pub(super) fn named(&self) -> usize {
        self.named.load(Ordering::SeqCst)
    }

    /// Whether a call was answered within this time.
    pub(super) fn is_answered_within(&self, time: Duration) -> bool {
        clock::now().since(Moment::from_millis(self.last_answer.load(Ordering::SeqCst))) < time
    }

    /// Sends all unanswered calls together. Returns when each call has an answer, over this connection or another.
    pub(super) async fn over(&self, conn: &OwnConnection) -> Result<(), Error> {
        let sent = clock::now();
        let open = self.parts.iter().filter(|(_, answered)| !answered.load(Ordering::SeqCst));
        let mut calls: FuturesUnordered<_> = open
            .map(|(part, answered)| async move {
                let named = self.call(conn.clone(), part, sent).await?;
                if !answered.swap(true, Ordering::SeqCst) {
                    self.last_answer.store(clock::now().as_millis(), Ordering::SeqCst);
                    self.named.fetch_add(named, Ordering::SeqCst);
                }
                Ok(())
            })
            .collect();
        let mut failure = None;
        while let Some(answer) = calls.next().await {
            if let Err(e) = answer {
                failure.get_or_insert(e);
            }
            if self.parts.iter().all(|(_, answered)| answered.load(Ordering::SeqCst)) {
                return Ok(());
            }
        }
        failure.map_or(Ok(()), Err)
    }

    /// Returns how many jobs the call named.
    async fn call(&self, mut conn: OwnConnection, part: &Part, sent: Moment) -> Result<usize, Error> {
        let (task, worker) = (&self.watch.task, &self.keeper.worker);
        let named = |jobs: &[Arc<HeldJob>]| jobs.iter().map(|held| (held.id.clone(), held.fence)).collect::<Vec<_>>();
        let (extend, asked) = match part {
            Part::Jobs { extend, asked } => (named(extend), named(asked)),
            Part::Claim { sequence, number } => {
                let call = (*sequence, *number);
                let claimed = match settle::claimed_by(&mut conn, &task.keys, worker.id.as_str(), call).await {
                    Ok(claimed) => claimed,
                    Err(e) if e.ends_connection() => return Err(e),
                    // Settle reports this error. The held jobs still need their heartbeats.
                    Err(_) => return Ok(0),
                };
                if claimed.is_empty() {
                    return Ok(0);
                }
                (claimed, Vec::new())
            }
        };
        let ask = task.options.interval;
        let answer =
            extend_locks::extend_locks(&mut conn, &task.keys, worker.id.as_str(), ask, &extend, &asked).await?;
        self.take_in(part, &answer, sent);
        Ok(extend.len() + asked.len())
    }

    fn take_in(&self, part: &Part, answer: &Beaten, sent: Moment) {
        let task = &self.watch.task;
        match part {
            Part::Jobs { extend, .. } => {
                let kept = extend.iter().filter(|held| !answer.lost.contains(&held.fence));
                kept.for_each(|held| held.extended(sent));
            }
            Part::Claim { sequence, number } if answer.lost.is_empty() => task.claims.beaten(*sequence, *number, sent),
            Part::Claim { .. } => {}
        }
        for fence in &answer.lost {
            if let Some(held) = task.held.get(*fence) {
                self.keeper.lost(task, &held);
            }
        }
        for held in answer.cancelled.iter().filter_map(|fence| task.held.get(*fence)) {
            held.post(Flags::CANCELLED);
            if held.flags().intersects(Flags::NOT_BEGUN) {
                // The driver may be waiting for a long run to end.
                task.poke.notify_one();
            }
        }
        let mut heard = self.heard.lock();
        // Answers may come in any order. The epoch only grows, and candidates only become fewer.
        let candidates =
            if answer.epoch == heard.epoch { heard.candidates.min(answer.candidates) } else { answer.candidates };
        if answer.epoch >= heard.epoch {
            let Beaten { epoch, interval, declared_at, active, .. } = *answer;
            *heard = Heard { epoch, interval, declared_at, candidates, active };
        }
    }

    /// Keeps the signs of life of handlers that were not delivered, so that the next heartbeat sends them.
    pub(super) fn end(&self) {
        for (part, answered) in &self.parts {
            if let (Part::Jobs { extend, .. }, false) = (part, answered.load(Ordering::SeqCst)) {
                extend.iter().for_each(|held| held.return_beat());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::address::ConnectOptions;
    use crate::backend::engine::Store;
    use crate::backend::server::EvictionCheck;
    use crate::job::id::JobId;
    use crate::keeper::log::Log;
    use crate::options::retention::LimitMs;
    use crate::options::task::TaskOptions;
    use crate::runtime::shared::WorkerShared;
    use crate::runtime::task::{Definition, TaskRuntime};
    use crate::stall::witness::DetectorReset;
    use crate::timings::Timings;
    use crate::worker_id::WorkerId;

    /// A keeper of one task, without a server.
    fn keeper() -> Keeper {
        let (access, time) = (ConnectOptions::default(), Duration::from_secs(1));
        let store = Store::open(
            "redis://127.0.0.1:1",
            &access,
            "test",
            "test",
            EvictionCheck::Refuse,
            time,
            Timings::default(),
        )
        .unwrap();
        let definition = Definition {
            name: "t".into(),
            keys: store.tables("t").first(),
            options: Arc::new(TaskOptions::new().resolve(&TaskOptions::new()).unwrap()),
            handler: Arc::new(|_, _| Box::pin(async { Ok(None) })),
            hook: None,
            errors: Arc::new([]),
            needs: Arc::new([]),
            #[cfg(feature = "schedules")]
            schedules: Arc::new([]),
            shared: None,
        };
        let task = Arc::new(TaskRuntime::new(0, definition, 0, &store));
        let watch = Arc::new(TaskMonitor::new(task, clock::now()));
        let keep = LimitMs { max_age_ms: None, max_count: None, remove_at_once: false };
        let id = WorkerId::generate();
        let worker = WorkerShared::new(id, Arc::new(store), Arc::default(), Arc::new([]), None, keep);
        Keeper::new(Arc::new(worker), [watch].into(), Log::start().unwrap())
    }

    #[test]
    fn a_deadline_counts_from_when_the_heartbeat_was_sent() {
        let keeper = keeper();
        let watch = &keeper.watches[0];
        let (task, interval) = (&watch.task, watch.task.options.interval);
        let ago = |seconds: u64| Moment::from_millis(clock::now().as_millis() - seconds * 1000);
        let (id, guard) = (JobId::from_wire("a"), (&*task.options).into());
        let held = Arc::new(HeldJob::new(id, 1, guard, ago(5), Arc::default(), Arc::default(), Arc::default()));
        task.held.insert(&[Arc::clone(&held)]);
        let round = HeartbeatRound::of_all(&keeper, watch);
        let answer = Beaten {
            epoch: 1,
            interval,
            lost: Vec::new(),
            cancelled: Vec::new(),
            declared_at: 1,
            candidates: 0,
            active: 1,
        };
        // The answer took three seconds.
        let sent = ago(3);
        round.take_in(&round.parts[0].0, &answer, sent);
        assert_eq!(held.deadline(), sent.after(interval));
    }

    #[test]
    fn a_new_primary_breaks_the_watch_without_a_connection_too() {
        let keeper = keeper();
        keeper.primary_changed(&[0], &[1]);
        let last_break = keeper.watches[0].witness.lock().last_break(clock::now());
        assert_eq!(last_break.map(|(cause, _)| cause), Some(DetectorReset::PrimaryChanged));
    }
}
