//! Handlers that only wait, so that thousands of them are cheap, and checks of all jobs of a task at once.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use heartline::{Context, TaskOptions};
use redis::AsyncCommands;
use redis::aio::MultiplexedConnection;

use crate::support::journal::Journal;
use crate::support::task::{TaskWorker, TestTask};
use crate::support::{PATIENCE, eventually};

/// How long a test of unlimited length runs: the seconds of this variable, or this default.
pub fn lasting(otherwise: Duration) -> Duration {
    let seconds = std::env::var("HEARTLINE_LINES_SECONDS").ok();
    seconds.map_or(otherwise, |seconds| Duration::from_secs(seconds.parse().unwrap()))
}

/// A worker whose handlers wait for their gate. It may not have started when this returns.
pub async fn start_waiting_worker(test: &TestTask, url: &str, options: TaskOptions) -> TaskWorker {
    let wait = |journal: Arc<Journal>, ctx: Context, gate: String| async move {
        journal.begin(&ctx);
        journal.opened(&gate).await;
        Ok(ctx.fence())
    };
    test.start_worker_with(url, options, wait).await
}

/// A worker that sends heartbeats and sweeps but claims no more jobs: the job in its one slot waits for its gate.
pub async fn start_witness(test: &TestTask, url: &str, options: TaskOptions, gate: &str) -> TaskWorker {
    let witness = start_waiting_worker(test, url, options.concurrency(1)).await;
    let job = witness.jobs.dispatch(gate.to_owned()).await.unwrap();
    test.started(&[job]).await;
    witness
}

/// The number of counted stalls.
pub async fn stalls(test: &TestTask, conn: &mut MultiplexedConnection) -> u64 {
    conn.hget::<_, _, Option<u64>>(test.key("meta"), "stalls").await.unwrap().unwrap_or(0)
}

/// Waits until this many runs have begun, with no stall.
pub async fn begun(test: &TestTask, runs: usize, deadline: Duration) {
    let mut conn = test.conn().await;
    eventually("every job has begun", deadline, async || {
        let begun = test.journal.runs().len();
        assert_eq!(stalls(test, &mut conn).await, 0, "when {begun} of {runs} runs had begun");
        begun >= runs
    })
    .await;
}

/// Waits until this many jobs have completed. Each ran once, and none was found stalled.
pub async fn all_ran_once(test: &TestTask, jobs: usize) {
    let (_app, task) = test.producer().await;
    let mut conn = test.conn().await;
    eventually("every job has completed", PATIENCE * 2, async || {
        assert_eq!(stalls(test, &mut conn).await, 0);
        task.counts().await.is_ok_and(|counts| counts.completed >= jobs as u64)
    })
    .await;
    let runs = test.journal.runs();
    let ids: BTreeSet<&str> = runs.iter().map(|run| run.id.as_str()).collect();
    assert_eq!((runs.len(), ids.len()), (jobs, jobs));
    assert!(runs.iter().all(|run| run.stalled_count == 0));
    test.nothing_is_left_but(jobs).await;
}
