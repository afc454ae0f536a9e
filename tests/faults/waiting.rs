//! Handlers that only wait, so that thousands of them cost little, and looks at all jobs of a task at once.

use std::collections::BTreeSet;
use std::time::Duration;

use heartline::TaskOptions;
use redis::AsyncCommands;
use redis::aio::MultiplexedConnection;

use crate::site::{Employee, Site};
use crate::support::{PATIENCE, eventually};

/// How long a test goes on that could go on for ever: so many seconds as this variable says, or as long as is given.
pub fn soak(otherwise: Duration) -> Duration {
    let seconds = std::env::var("HEARTLINE_SOAK_SECONDS").ok();
    seconds.map_or(otherwise, |seconds| Duration::from_secs(seconds.parse().unwrap()))
}

/// A worker whose handlers wait for their gate. It has not started when this returns.
pub async fn hire_waiting(site: &Site, url: &str, options: TaskOptions) -> Employee {
    let wait = |journal: std::sync::Arc<crate::site::Journal>, ctx: heartline::Context, gate: String| async move {
        journal.begin(&ctx);
        journal.opened(&gate).await;
        Ok(ctx.fence())
    };
    site.hire_for(url, options, wait).await
}

/// A worker that beats and sweeps, and takes no further jobs: the one in its one slot waits for its gate.
pub async fn hire_witness(site: &Site, url: &str, options: TaskOptions, gate: &str) -> Employee {
    let witness = hire_waiting(site, url, options.concurrency(1)).await;
    let job = witness.jobs.dispatch(gate.to_owned()).await.unwrap();
    site.started(&[job]).await;
    witness
}

/// How many stalls were counted.
pub async fn stalls(site: &Site, conn: &mut MultiplexedConnection) -> u64 {
    conn.hget::<_, _, Option<u64>>(site.key("meta"), "stalls").await.unwrap().unwrap_or(0)
}

/// Waits until so many runs have begun, while nothing stalls.
pub async fn begun(site: &Site, runs: usize, deadline: Duration) {
    let mut conn = site.conn().await;
    eventually("every job has begun", deadline, async || {
        let begun = site.journal.runs().len();
        assert_eq!(stalls(site, &mut conn).await, 0, "when {begun} of {runs} runs had begun");
        begun >= runs
    })
    .await;
}

/// Waits until so many jobs have completed. Each of them ran once, and none was ever found stalled.
pub async fn all_ran_once(site: &Site, jobs: usize) {
    let (_app, task) = site.producer().await;
    let mut conn = site.conn().await;
    eventually("every job has completed", PATIENCE * 2, async || {
        assert_eq!(stalls(site, &mut conn).await, 0);
        task.counts().await.is_ok_and(|counts| counts.completed >= jobs as u64)
    })
    .await;
    let runs = site.journal.runs();
    let ids: BTreeSet<&str> = runs.iter().map(|run| run.id.as_str()).collect();
    assert_eq!((runs.len(), ids.len()), (jobs, jobs));
    assert!(runs.iter().all(|run| run.stalled_count == 0));
    site.nothing_is_left_but(jobs).await;
}
