//! The stalls of the last 24 hours, as far as they are kept: read once, and then only what came since.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use futures_util::future::join_all;
use heartline::{Inspector, RecentStalls, StalledEvent, TaskReport};
use tokio::time::Instant;

/// How far back it reaches.
const DAY: Duration = Duration::from_secs(24 * 3600);

/// For how long what was read stands.
const FRESH: Duration = Duration::from_secs(10);

/// How many pages of a task are read at most: as many as are kept.
const PAGES: usize = 120;

/// How many tasks are read at a time.
const TOGETHER: usize = 20;

/// For how long a page waits for what is being read; then it shows what was known before.
const PATIENCE: Duration = Duration::from_millis(500);

/// What is known of stalls, read by one at a time, for whom no page waits for long.
#[derive(Default)]
pub(crate) struct Stalls {
    known: Arc<Mutex<Arc<StallLog>>>,
    turn: Arc<tokio::sync::Mutex<()>>,
}

/// The stalls of each task, by when and which.
#[derive(Clone, Default)]
pub(crate) struct StallLog {
    read: Option<Instant>,
    tasks: BTreeMap<String, OfTask>,
}

type OfTask = BTreeMap<(SystemTime, String), StalledEvent>;

impl Stalls {
    /// What is known, which is read anew where it is old.
    pub(crate) async fn log(&self, inspector: &Inspector, tasks: &[TaskReport]) -> Arc<StallLog> {
        let known = self.known();
        if known.read.is_some_and(|at| at.elapsed() < FRESH) {
            return known;
        }
        if let Ok(turn) = Arc::clone(&self.turn).try_lock_owned() {
            let readable = tasks.iter().filter(|task| task.fault.is_none());
            let names: Vec<(String, u64)> = readable.map(|task| (task.task.clone(), task.stalled)).collect();
            let (inspector, kept) = (inspector.clone(), Arc::clone(&self.known));
            tokio::spawn(async move {
                let log = StallLog::read(&inspector, &names, &known).await;
                *kept.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(log);
                drop(turn);
            });
        }
        let _ = tokio::time::timeout(PATIENCE, self.turn.lock()).await;
        self.known()
    }

    fn known(&self) -> Arc<StallLog> {
        Arc::clone(&self.known.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl StallLog {
    /// What was known, and what came since; a task that cannot be read keeps what was known of it.
    async fn read(inspector: &Inspector, tasks: &[(String, u64)], known: &StallLog) -> StallLog {
        let from = inspector.now().await.checked_sub(DAY).unwrap_or(SystemTime::UNIX_EPOCH);
        let mut log = StallLog::default();
        for some in tasks.chunks(TOGETHER) {
            let reads = some.iter().map(|(task, stalled)| {
                // Where there were fewer by now, the server has lost those that were known.
                let known = known.tasks.get(task).filter(|known| known.len() as u64 <= *stalled);
                let known = known.cloned().unwrap_or_default();
                async move { (task.clone(), of_task(inspector, task, known, from).await) }
            });
            log.tasks.extend(join_all(reads).await);
        }
        log.read = Some(Instant::now());
        log
    }

    /// Whether it was read at all.
    pub(crate) fn is_read(&self) -> bool {
        self.read.is_some()
    }

    /// All of them, the latest first.
    pub(crate) fn latest(&self) -> Vec<&StalledEvent> {
        let mut stalls: Vec<&StalledEvent> = self.tasks.values().flat_map(BTreeMap::values).collect();
        stalls.sort_by_key(|stall| std::cmp::Reverse(stall.at));
        stalls
    }

    /// The same, for a diagnosis.
    pub(crate) fn recent(&self) -> RecentStalls {
        let stalls = self.tasks.values().flat_map(BTreeMap::values).cloned().collect();
        RecentStalls { stalls, ..RecentStalls::default() }
    }

    /// How many there were in each of the last 24 hours, the last one last.
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

/// The stalls of a task: read a page at a time from the latest on, until one is known.
async fn of_task(inspector: &Inspector, task: &str, mut known: OfTask, from: SystemTime) -> OfTask {
    let last = known.last_key_value().map_or(from, |((at, _), _)| *at);
    let mut cursor: Option<String> = None;
    let mut fresh = Vec::new();
    for _ in 0..PAGES {
        // What was known is better than half of what there is.
        let Ok((stalls, next)) = inspector.stalled_events(task, cursor.as_deref()).await else { return known };
        let is_over = stalls.last().is_none_or(|stall| stall.at < last);
        // Of the last millisecond some may be new.
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
