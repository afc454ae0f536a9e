//! Schedules that fire each second while another server becomes the primary.

use std::collections::BTreeMap;
use std::time::SystemTime;

use heartline::{App, Context, JobError, Overlap, Schedule, ScheduleInfo, TaskOptions, TaskRef};

use crate::integration::schedules::{SECOND, accounted_for, becomes, tick_ids};
use crate::sentinel::trio::Trio;
use crate::support::sentinel::ask;
use crate::support::worker::TestWorker;
use crate::support::{PATIENCE, eventually};

const TASK: &str = "work";

const NAMES: [&str; 3] = ["export", "mail", "poll"];

async fn worker(trio: &Trio) -> TestWorker {
    let app = App::builder().redis(trio.url()).build().await.unwrap();
    let handler = |_: Context, input: String| async move { Ok::<_, JobError>(input.len() as u64) };
    let mut task = app.task(TASK, TaskOptions::new(), handler).unwrap();
    for name in NAMES {
        let rule = Schedule::every(SECOND).overlap(Overlap::Allow);
        task = task.schedule(name, rule, "go".to_owned()).unwrap();
    }
    let worker = TestWorker::start(app.worker());
    worker.working().await;
    worker
}

async fn producer(trio: &Trio) -> TaskRef<String, u64> {
    // Until the old primary follows the new one, an App may find that another server is the primary.
    let build = async || App::builder().redis(trio.url()).build().await.ok();
    eventually("an App connects", PATIENCE, build).await.task_ref(TASK).unwrap()
}

/// Checks that ticks fire on the new primary, and that each one that it knows has one job.
async fn ticks_fire_after(failover: impl AsyncFnOnce(&mut Trio)) {
    let mut trio = Trio::start().await;
    let workers = [worker(&trio).await, worker(&trio).await];
    let before = producer(&trio).await;
    for name in NAMES {
        becomes(&before, name, "it fires", |info| info.fired >= 2).await;
    }
    let old = trio.servers[0].port();
    failover(&mut trio).await;
    trio.another_than(old).await;
    let promoted = SystemTime::now();
    // A new App asks the sentinels for the primary.
    let task = producer(&trio).await;
    for name in NAMES {
        let is_later = |info: &ScheduleInfo| info.last.is_some_and(|last| last > promoted + 3 * SECOND);
        becomes(&task, name, "it fires on the new primary", is_later).await;
    }
    for worker in workers {
        worker.stop().await;
    }
    let mut fired = Vec::new();
    for name in NAMES {
        let info = task.schedules().get(name).await.unwrap().unwrap();
        accounted_for(&info);
        assert_eq!((info.overlapped, info.missed_ticks), (0, 0), "{info:?}");
        fired.extend(tick_ids(&info));
    }
    // On a busy machine, the sentinels may replace the new primary too.
    let new = trio.another_than(old).await;
    let key = format!("heartline:{{{TASK}}}:dispatchedAt");
    let jobs = async || ask::<BTreeMap<String, u64>>(new, &["HGETALL", key.as_str()]).await;
    let jobs = eventually("the new primary answers", PATIENCE, jobs).await;
    // Both are sorted.
    assert!(jobs.keys().eq(&fired), "{jobs:?} {fired:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ticks_fire_after_the_primary_is_killed() {
    ticks_fire_after(async |trio: &mut Trio| trio.servers[0].kill()).await;
}

/// The old primary accepts writes for some time, and loses them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ticks_fire_after_a_failover_in_order() {
    ticks_fire_after(async |trio: &mut Trio| trio.fail_over().await).await;
}
