//! Worker processes that are killed at the moment at which they would fire a tick.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use heartline::{Context, JobError, Overlap, Schedule, StallOptions};
use redis::aio::MultiplexedConnection;

use crate::faults::ground::alone;
use crate::integration::schedules::{SECOND, becomes, created, tick_ids};
use crate::support::call_log::{calls_of, log_calls};
use crate::support::task::{built, fast_with};
use crate::support::{Child, PATIENCE, TestRedis, eventually, is_thorough};

/// Some live ones must be left: a killed worker stays in the order for 15 s.
const WORKERS: usize = 5;

/// Four schedules tick each second, this long after one another.
const SCHEDULES: u32 = 4;
const GAP: Duration = Duration::from_millis(250);

/// Workers are killed from this long before a tick until 10 ms after it.
const BEFORE_MS: u64 = 30;
const WINDOW_MS: u64 = 41;

fn names() -> impl Iterator<Item = String> {
    (0..SCHEDULES).map(|at| format!("poll-{at}"))
}

/// The hash in which the handlers count the runs of each tick.
fn runs_of(task: &str) -> String {
    format!("runs:{task}")
}

/// The program of the children.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_is_killed_next_to_a_tick() {
    let Some(role) = Child::role() else { return };
    let (url, name) = role.split_once(' ').unwrap();
    let (conn, key) = (TestRedis::conn_to(url).await, runs_of(name));
    let handler = move |ctx: Context, _: String| {
        let (mut conn, key) = (conn.clone(), key.clone());
        async move {
            let mut count = redis::cmd("HINCRBY");
            count.arg(key).arg(ctx.id().as_str()).arg(1);
            let runs: u64 = count.query_async(&mut conn).await.map_err(JobError::new)?;
            Ok::<_, JobError>(runs)
        }
    };
    let app = built(url, "heartline").await;
    let mut task = app.task(name, fast_with(StallOptions::new().max_count(1000)), handler).unwrap();
    for (at, schedule) in (0..SCHEDULES).zip(names()) {
        let rule = Schedule::every(SECOND).from(UNIX_EPOCH + at * GAP).overlap(Overlap::Allow);
        task = task.schedule(&schedule, rule, "go".to_owned()).unwrap();
    }
    let _ = app.worker().run().await.unwrap();
}

/// The place of the worker that fired last, if it is one of these. `fire` is the script, by its SHA1.
async fn fired_last(conn: &mut MultiplexedConnection, fire: &str, workers: &[Child]) -> Option<usize> {
    let (_, connection) = calls_of(conn, fire).await.into_iter().next()?;
    workers.iter().position(|worker| connection.contains(&format!("-{}-", worker.pid())))
}

/// Waits until this long after the window of a tick has begun. The server has the clock of this machine.
async fn next_to_a_tick(after_ms: u64) {
    let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64;
    let tick_ms = (now_ms + BEFORE_MS).next_multiple_of(GAP.as_millis() as u64);
    tokio::time::sleep(Duration::from_millis(tick_ms - BEFORE_MS + after_ms - now_ms)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workers_killed_as_they_fire_lose_and_double_no_tick() {
    let (redis, test) = alone();
    let (mut conn, fire) = (redis.conn().await, test.sha("schedule_fire").await);
    log_calls(&mut conn).await;
    let role = format!("{} {}", redis.url(), test.name);
    let start = || {
        let mut child = Child::start(module_path!(), "a_worker_that_is_killed_next_to_a_tick", &role);
        child.drain();
        child
    };
    let mut workers: Vec<Child> = (0..WORKERS).map(|_| start()).collect();
    let kills = if is_thorough() { 200 } else { 20 };
    for kill in 0..kills {
        // The worker that fired last fires next, unless the order changes.
        let is_live = async || fired_last(&mut conn, &fire, &workers).await;
        let victim = eventually("a live worker fires", PATIENCE, is_live).await;
        next_to_a_tick(kill * 7 % WINDOW_MS).await;
        drop(workers.remove(victim));
        workers.push(start());
    }

    // After the first paused tick of a schedule, it fires none.
    let (_app, task) = test.producer().await;
    for name in names() {
        assert!(task.schedules().pause(&name, "the test ends").await.unwrap());
    }
    for name in names() {
        becomes(&task, &name, "its ticks are paused", |info| info.paused_ticks >= 1).await;
    }
    eventually("all jobs end", PATIENCE, async || task.counts().await.unwrap().pending_total() == 0).await;
    drop(workers);
    let mut fired = BTreeSet::new();
    for name in names() {
        let info = task.schedules().get(&name).await.unwrap().unwrap();
        let ticks = tick_ids(&info);
        assert_eq!(info.fired + info.paused_ticks, ticks.len() as u64, "{info:?}");
        assert_eq!((info.overlapped, info.missed_ticks, info.pending), (0, 0, None), "{info:?}");
        fired.extend(ticks.into_iter().take(info.fired as usize));
    }
    let jobs = created(&test).await;
    assert!(jobs.keys().eq(&fired), "{jobs:?} {fired:?}");
    for (id, at_ms) in &jobs {
        let (_, due_ms) = id.split_once('@').unwrap();
        assert!(*at_ms >= due_ms.parse::<u64>().unwrap(), "{id} was early, at {at_ms}");
    }
    assert_eq!(test.column("meta", "in").await, Some(jobs.len().to_string()), "a job was created twice");
    assert_eq!(task.counts().await.unwrap().completed, jobs.len() as u64);
    // The job of a killed worker may run twice.
    let runs: BTreeMap<String, u64> = redis::AsyncCommands::hgetall(&mut conn, runs_of(&test.name)).await.unwrap();
    assert!(runs.keys().eq(&fired), "{runs:?} {fired:?}");
}
