//! A day of work in a process that must not grow: workers that start and stop next to one that stays, jobs of every
//! kind, and a server that restarts. At the end everything rests, and what is left is compared with the start.
//!
//! `HEARTLINE_SOAK_SECONDS=<seconds>` makes it longer, as `make soak` does. The process prints its figures as one line.

mod figures;
mod sizes;
mod work;

use std::time::{Duration, Instant};

use self::figures::Figures;
use crate::support::{Child, PATIENCE, TestRedis};
use heartline::testing::RedisServer;

/// Where the process writes how it went.
const REPORT: &str = "soak:report";

fn length() -> Duration {
    let seconds = std::env::var("HEARTLINE_SOAK_SECONDS").ok().and_then(|seconds| seconds.parse().ok());
    Duration::from_secs(seconds.unwrap_or(12))
}

/// The process that works. Its role is the address of the server.
#[test]
fn the_working_process() {
    let Some(url) = Child::role() else { return };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let figures: Figures = runtime.block_on(work::day(&url, length()));
    let report = figures.fault().unwrap_or_else(|| "well".to_owned());
    runtime.block_on(sizes::write_report(&url, &format!("{report}\n{figures}")));
}

#[tokio::test]
async fn a_day_of_work_leaves_nothing_behind() {
    let mut redis = TestRedis::from_process(RedisServer::builder().persistent().start().unwrap());
    let (begun, url) = (Instant::now(), redis.url());
    let mut child = Child::start(module_path!(), "the_working_process", &url);
    child.drain();
    let mut restarted = Instant::now();
    let report = loop {
        assert!(begun.elapsed() < length() * 2 + PATIENCE * 10, "the day does not end");
        tokio::time::sleep(Duration::from_millis(250)).await;
        if let Some(report) = sizes::report(&url).await {
            break report;
        }
        if !child.lives() {
            let died = || format!("the working process has ended: {}", child.errors());
            break sizes::report(&url).await.unwrap_or_else(died);
        }
        // Before the last third, so that everything is at rest at the end.
        if begun.elapsed() < length() * 2 / 3 && restarted.elapsed() > (length() / 6).min(Duration::from_secs(30)) {
            redis.process().restart().unwrap();
            restarted = Instant::now();
        }
    };
    println!("{report}");
    assert!(report.starts_with("well"), "{report}");
}
