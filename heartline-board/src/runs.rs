//! Background actions. Each reports its progress and can be stopped.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use tokio::sync::{Notify, watch};
use uuid::Uuid;

/// How many actions are kept, and how many may run at a time.
const KEPT: usize = 100;
const AT_ONCE: usize = 10;

/// How many actions that watch for an interval may run at a time, in addition to the others.
const WATCHES_AT_ONCE: usize = 50;

/// The most lines of a result.
const LINES: usize = 500;

/// The actions that are running or were kept.
#[derive(Default)]
pub(crate) struct Runs(Mutex<BTreeMap<Uuid, Arc<Run>>>);

/// A background action.
pub(crate) struct Run {
    pub(crate) id: Uuid,
    pub(crate) what: String,
    pub(crate) begun: SystemTime,
    /// The page to return to.
    pub(crate) back: String,
    /// The name of the action in [`BoardOptions::allow`](crate::BoardOptions::allow).
    pub(crate) act: String,
    is_stopped: AtomicBool,
    stop: Notify,
    status: watch::Sender<Status>,
}

/// The progress of an action.
#[derive(Clone, Debug, Default)]
pub(crate) struct Status {
    pub(crate) progress: String,
    pub(crate) lines: Vec<String>,
    /// The page of what it made, if it made something.
    pub(crate) leads_to: Option<String>,
    /// The result or the error, once it has ended.
    pub(crate) ended: Option<Result<String, String>>,
}

impl Run {
    /// Sets the progress.
    pub(crate) fn progress(&self, progress: String) {
        self.status.send_modify(|status| status.progress = progress);
    }

    /// Sets the page of what it made.
    pub(crate) fn leads_to(&self, url: String) {
        self.status.send_modify(|status| status.leads_to = Some(url));
    }

    pub(crate) fn lines(&self, lines: Vec<String>) {
        self.status.send_modify(|status| {
            let more = lines.len().saturating_sub(LINES);
            status.lines = lines;
            status.lines.truncate(LINES);
            if more > 0 {
                status.lines.push(format!("and {more} more"));
            }
        });
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Relaxed)
    }

    /// Returns when a person stops the action.
    pub(crate) async fn stopped(&self) {
        // `stop` keeps a permit if this is called later.
        self.stop.notified().await;
    }

    pub(crate) fn stop(&self) {
        self.is_stopped.store(true, Ordering::Relaxed);
        self.stop.notify_one();
    }

    pub(crate) fn status(&self) -> Status {
        self.status.borrow().clone()
    }

    /// Waits for its end for at most `time`, and returns whether it has ended.
    pub(crate) async fn ended_within(&self, time: Duration) -> bool {
        let mut status = self.status.subscribe();
        let ended = tokio::time::timeout(time, status.wait_for(|status| status.ended.is_some())).await;
        matches!(ended, Ok(Ok(_)))
    }
}

/// Records the end of an action that panicked.
struct Ends(Arc<Run>);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.status.send_modify(|status| {
            status.ended.get_or_insert_with(|| Err("the action panicked; see the log".to_owned()));
        });
    }
}

impl Runs {
    fn held(&self) -> MutexGuard<'_, BTreeMap<Uuid, Arc<Run>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn get(&self, id: &str) -> Option<Arc<Run>> {
        self.held().get(&Uuid::parse_str(id).ok()?).cloned()
    }

    /// Starts an action; `None` if too many are running.
    pub(crate) fn begin<F>(
        &self,
        what: String,
        back: String,
        act: String,
        work: impl FnOnce(Arc<Run>) -> F,
    ) -> Option<Arc<Run>>
    where
        F: Future<Output = Result<String, String>> + Send + 'static,
    {
        let mut runs = self.held();
        let is_running_alike =
            |run: &&Arc<Run>| run.status.borrow().ended.is_none() && most_at_once(&run.act) == most_at_once(&act);
        if runs.values().filter(is_running_alike).count() >= most_at_once(&act) {
            return None;
        }
        while runs.len() >= KEPT {
            // Ids grow with time, so the first ended action is the oldest.
            let oldest = runs.iter().find(|(_, run)| run.status.borrow().ended.is_some()).map(|(id, _)| *id)?;
            runs.remove(&oldest);
        }
        let run = Arc::new(Run {
            id: Uuid::now_v7(),
            what,
            begun: SystemTime::now(),
            back,
            act,
            is_stopped: AtomicBool::new(false),
            stop: Notify::new(),
            status: watch::Sender::new(Status::default()),
        });
        runs.insert(run.id, Arc::clone(&run));
        let (work, ends) = (work(Arc::clone(&run)), Ends(Arc::clone(&run)));
        tokio::spawn(async move {
            let ended = work.await;
            ends.0.status.send_modify(|status| status.ended = Some(ended));
        });
        Some(run)
    }
}

/// How many actions of this kind may run at a time. Long ones share one limit, those that watch another. Quick ones always run.
fn most_at_once(act: &str) -> usize {
    match act {
        "pause" | "resume" | "schedule_pause" | "schedule_resume" => KEPT,
        "recover_running" | "fail_running" => WATCHES_AT_ONCE,
        _ => AT_ONCE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panicked_action_has_ended_and_too_many_do_not_start() {
        let runs = Runs::default();
        let broken =
            runs.begin("x".into(), String::new(), String::new(), |_| async { panic!("broken on purpose") }).unwrap();
        assert!(broken.ended_within(Duration::from_secs(30)).await);
        assert!(broken.status().ended.unwrap().is_err());
        let waits = |run: Arc<Run>| async move {
            run.stopped().await;
            Ok("stopped".to_owned())
        };
        let begun: Vec<_> =
            (0..AT_ONCE).map(|_| runs.begin("y".into(), String::new(), String::new(), waits).unwrap()).collect();
        assert!(runs.begin("z".into(), String::new(), String::new(), waits).is_none());
        for act in ["recover_running", "pause"] {
            let other = runs.begin("z".into(), String::new(), act.to_owned(), waits).unwrap();
            other.stop();
            assert!(other.ended_within(Duration::from_secs(30)).await);
        }
        for run in &begun {
            run.stop();
            assert!(run.ended_within(Duration::from_secs(30)).await && run.is_stopped());
        }
        for _ in 0..2 * KEPT {
            let run = runs.begin("y".into(), String::new(), String::new(), |_| async { Ok(String::new()) }).unwrap();
            assert!(run.ended_within(Duration::from_secs(30)).await);
        }
        assert_eq!(runs.held().len(), KEPT);
        assert!(runs.get(&begun[0].id.to_string()).is_none() && runs.get("..").is_none());
    }
}
