//! Work with keys that continues while servers fail, with an account of each acknowledged job.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use heartline::{Error, JobHandle, JobState, TaskRef};
use tokio::task::JoinHandle;

use crate::limits::children::{Plan, Site, Work, takes, waits};
use crate::limits::log::{Log, Run};
use crate::support::task::built;
use crate::support::{Child, PATIENCE, eventually};

const KEYS: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

/// A producer, three worker processes, and a key whose slot one job has until the end.
pub struct Traffic {
    pub log: Log,
    task: TaskRef<Work, u64>,
    _workers: Vec<Child>,
    long: Run,
    stop: Arc<AtomicBool>,
    dispatching: JoinHandle<Vec<(String, Instant)>>,
}

impl Traffic {
    /// Starts it with one job of a key at a time. `replicas` of them have what is acknowledged.
    pub async fn start(url: String, partitions: Option<u32>, replicas: Option<u32>) -> Traffic {
        let log = Log::new().await;
        let plan = Plan { slots: 5, running: Some(1), partitions, replicas, ..Plan::default() };
        let site = Site { url, prefix: "heartline".to_owned(), log: log.clone() };
        let workers: Vec<Child> = (0..3).map(|_| site.start(&plan)).collect();
        let app = built(&site.url, &site.prefix).await;
        let task = plan.declare(&app, &log);
        let long = task.dispatch(waits("long")).await.unwrap();
        let long = log.has_begun(long.id().as_str(), 1).await;
        let stop = Arc::new(AtomicBool::new(false));
        let dispatching = tokio::spawn(dispatch(task.clone(), Arc::clone(&stop)));
        Traffic { log, task, _workers: workers, long, stop, dispatching }
    }

    /// Waits until each key has started more jobs.
    pub async fn continues(&self) {
        let starts = async || {
            let runs = self.log.runs().await;
            KEYS.map(|key| runs.iter().filter(|run| run.key == key).count())
        };
        let before = starts().await;
        let all = async || starts().await.iter().zip(&before).all(|(now, before)| *now > before + 10);
        eventually("jobs of each key start", PATIENCE, all).await;
    }

    /// Checks that the job that ran all the time still has the slot of its key: the next one starts once it has ended.
    async fn long_has_its_slot(&self) -> JobHandle<u64> {
        let next = self.task.dispatch(takes(1, "long")).await.unwrap();
        self.continues().await;
        let runs: Vec<Run> = self.log.runs().await.into_iter().filter(|run| run.key == "long").collect();
        assert_eq!(runs, std::slice::from_ref(&self.long));
        self.log.open(self.long.pid, &self.long.id).await;
        next
    }

    /// Ends it, and accounts for each acknowledged job. Since the last [`Log::changes`], no key was over its limit.
    /// Returns when the jobs that the server lost were acknowledged.
    pub async fn accounted(self) -> Vec<Instant> {
        let next = self.long_has_its_slot().await;
        self.stop.store(true, Ordering::SeqCst);
        let acknowledged = self.dispatching.await.unwrap();
        tokio::time::timeout(PATIENCE, next.result()).await.unwrap().unwrap();
        eventually("all jobs end", PATIENCE, async || self.task.counts().await.unwrap().pending_total() == 0).await;
        let mut runs: BTreeMap<String, usize> = BTreeMap::new();
        for run in self.log.runs().await {
            *runs.entry(run.id).or_default() += 1;
        }
        assert_eq!(runs[&self.long.id], 1);
        let mut lost = Vec::new();
        for (id, at) in &acknowledged {
            match self.task.job(id).await {
                Ok(job) => assert_eq!(job.state, JobState::Completed, "{id}"),
                Err(Error::JobNotFound { .. }) => lost.push(*at),
                Err(e) => panic!("{id}: {e}"),
            }
        }
        let most = self.log.most_at_a_time().await;
        assert!(most.len() == KEYS.len() + 1 && most.values().all(|most| *most == 1), "{most:?}");
        let twice = runs.values().filter(|count| **count > 1).count();
        println!("{} acknowledged, {} lost by the server, {twice} ran twice", acknowledged.len(), lost.len());
        lost
    }
}

/// Dispatches jobs of each key until it is stopped. Returns what was acknowledged, and when.
async fn dispatch(task: TaskRef<Work, u64>, stopped: Arc<AtomicBool>) -> Vec<(String, Instant)> {
    let mut acknowledged = Vec::new();
    while !stopped.load(Ordering::SeqCst) {
        // The dispatch itself waits for the end of an outage, for 10 s. A failed one acknowledges nothing.
        match task.dispatch_many(KEYS.map(|key| takes(3, key))).await {
            Ok(jobs) => acknowledged.extend(jobs.iter().map(|job| (job.id().to_string(), Instant::now()))),
            Err(e) => assert!(e.is_retryable(), "{e}"),
        }
        tokio::time::sleep(Duration::from_millis(40)).await;
    }
    acknowledged
}
