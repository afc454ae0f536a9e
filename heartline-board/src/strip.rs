//! The stalls of the last 24 hours that are kept. They are read once, then only new ones.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use futures_util::future::join_all;
use heartline::{Inspector, RecentStalls, StalledEvent, TaskReport};
use tokio::time::Instant;

/// How far back stalls are kept.
const DAY: Duration = Duration::from_secs(24 * 3600);

/// How long the stalls are used before new ones are read.
const FRESH: Duration = Duration::from_secs(10);

/// The most pages read per task: as many as the server keeps.
const PAGES: usize = 120;

/// How many tasks are read at a time.
const TOGETHER: usize = 20;

/// How long a page waits for a read before it shows the earlier stalls.
const LONGEST_WAIT: Duration = Duration::from_millis(500);

/// The known stalls. One tokio task at a time reads new ones, and no page waits long for it.
#[derive(Default)]
pub(crate) struct Stalls {
    known: Arc<Mutex<Known>>,
    turn: Arc<tokio::sync::Mutex<()>>,
}

/// The stalls of the last read.
#[derive(Default)]
struct Known {
    log: Arc<StallLog>,
    /// How many actions there were, and how many of them before the read began.
    acts: u64,
    acts_before: u64,
}

impl Known {
    fn is_fresh(&self) -> bool {
        self.acts_before == self.acts && self.log.read.is_some_and(|at| at.elapsed() < FRESH)
    }
}

/// The stalls of each task, by time and job.
#[derive(Default)]
pub(crate) struct StallLog {
    read: Option<Instant>,
    tasks: BTreeMap<String, OfTask>,
}

type OfTask = BTreeMap<(SystemTime, String), StalledEvent>;

impl Stalls {
    /// The known stalls; if they are old, new ones are read first.
    pub(crate) async fn log(&self, inspector: &Inspector, tasks: &[TaskReport]) -> Arc<StallLog> {
        let until = Instant::now() + LONGEST_WAIT;
        // If an action came during a read, another read follows.
        for _ in 0..2 {
            if self.known().is_fresh() {
                break;
            }
            self.begin_read(inspector, tasks);
            if tokio::time::timeout_at(until, self.turn.lock()).await.is_err() {
                break;
            }
        }
        Arc::clone(&self.known().log)
    }

    /// Reads new stalls, unless a read is running.
    fn begin_read(&self, inspector: &Inspector, tasks: &[TaskReport]) {
        if let Ok(turn) = Arc::clone(&self.turn).try_lock_owned() {
            let (log, acts) = {
                let known = self.known();
                (Arc::clone(&known.log), known.acts)
            };
            let readable = tasks.iter().filter(|task| task.fault.is_none());
            let names: Vec<(String, u64)> = readable.map(|task| (task.task.clone(), task.stalled)).collect();
            let (inspector, kept) = (inspector.clone(), Arc::clone(&self.known));
            tokio::spawn(async move {
                let log = Arc::new(StallLog::read(&inspector, &names, &log).await);
                {
                    let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                    (kept.log, kept.acts_before) = (log, acts);
                }
                drop(turn);
            });
        }
    }

    /// Reads new stalls, when the next page needs them.
    pub(crate) fn forget(&self) {
        self.known().acts += 1;
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl StallLog {
    /// Adds new stalls to the known ones. An unreadable task keeps its known ones.
    async fn read(inspector: &Inspector, tasks: &[(String, u64)], known: &StallLog) -> StallLog {
        let from = inspector.now().await.checked_sub(DAY).unwrap_or(SystemTime::UNIX_EPOCH);
        let mut log = StallLog::default();
        for some in tasks.chunks(TOGETHER) {
            let reads = some.iter().map(|(task, stalled)| {
                // If the server counts fewer stalls, it has lost the known ones.
                let known = known.tasks.get(task).filter(|known| known.len() as u64 <= *stalled);
                let known = known.cloned().unwrap_or_default();
                async move { (task.clone(), of_task(inspector, task, known, from).await) }
            });
            log.tasks.extend(join_all(reads).await);
        }
        log.read = Some(Instant::now());
        log
    }

    /// Whether stalls were read at all.
    pub(crate) fn is_read(&self) -> bool {
        self.read.is_some()
    }

    /// All stalls, newest first.
    pub(crate) fn latest(&self) -> Vec<&StalledEvent> {
        let mut stalls: Vec<&StalledEvent> = self.tasks.values().flat_map(BTreeMap::values).collect();
        stalls.sort_by_key(|stall| std::cmp::Reverse(stall.at));
        stalls
    }

    /// All stalls, for a diagnosis.
    pub(crate) fn recent(&self) -> RecentStalls {
        let stalls = self.tasks.values().flat_map(BTreeMap::values).cloned().collect();
        RecentStalls { stalls, ..RecentStalls::default() }
    }

    /// The number of stalls in each of the last 24 hours, oldest first.
    pub(crate) fn hours(&self, now: SystemTime) -> [u64; 24] {
        let mut hours = [0; 24];
        for (at, _) in self.tasks.values().flat_map(BTreeMap::keys) {
            let ago = now.duration_since(*at).unwrap_or_default().as_secs() / 3600;
            if let Some(hour) = usize::try_from(ago).ok().and_then(|ago| hours.iter_mut().rev().nth(ago)) {
                *hour += 1;
            }
        }
        hours
    }
}

/// Reads the stalls of a task page by page, newest first, up to the last known one.
async fn of_task(inspector: &Inspector, task: &str, mut known: OfTask, from: SystemTime) -> OfTask {
    let last = known.last_key_value().map_or(from, |((at, _), _)| *at);
    let mut cursor: Option<String> = None;
    let mut fresh = Vec::new();
    for _ in 0..PAGES {
        // If one page cannot be read, return the known stalls: some of the new ones would leave a gap.
        let Ok((stalls, next)) = inspector.stalled_events(task, cursor.as_deref()).await else { return known };
        let is_over = stalls.last().is_none_or(|stall| stall.at < last);
        // Other stalls of the same millisecond may be new.
        fresh.extend(stalls.into_iter().filter(|stall| stall.at >= last));
        match next {
            Some(next) if !is_over => cursor = Some(next),
            _ => break,
        }
    }
    known.extend(fresh.into_iter().map(|stall| ((stall.at, stall.id.to_string()), stall)));
    known.retain(|(at, _), _| *at >= from);
    known
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_that_began_before_an_action_is_not_fresh() {
        let stalls = Stalls::default();
        let keep = |acts| {
            let log = StallLog { read: Some(Instant::now()), ..StallLog::default() };
            let mut known = stalls.known();
            (known.log, known.acts_before) = (Arc::new(log), acts);
            known.is_fresh()
        };
        assert!(!stalls.known().is_fresh() && keep(0));
        let before = stalls.known().acts;
        stalls.forget();
        assert!(!stalls.known().is_fresh() && !keep(before));
        let after = stalls.known().acts;
        assert!(keep(after));
    }
}
