//! Schedules of a task with partitions on several nodes.

use std::collections::BTreeSet;
use std::time::Duration;

use heartline::{App, Context, JobError, Schedule, StallOptions, TaskDef, TaskOptions};

use crate::cluster::six::Six;
use crate::integration::schedules::{SECOND, accounted_for, becomes};
use crate::support::worker::TestWorker;

fn options() -> TaskOptions {
    TaskOptions::new().partitions(3).stall(StallOptions::new().interval(Duration::from_secs(2)))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn schedules_fire_in_every_partition() {
    let six = Six::start().await;
    let app = App::builder().redis(six.cluster.url()).build().await.unwrap();
    let names: Vec<String> = (0..12).map(|at| format!("poll-{at}")).collect();
    // The first six are in code; a producer writes the others before any worker runs.
    let producer = App::builder().redis(six.cluster.url()).build().await.unwrap();
    let named = producer.task_ref_for(&TaskDef::<String, u64>::new("export").options(options())).unwrap();
    for name in &names[6..] {
        assert!(named.schedules().put(name, Schedule::every(SECOND), name.clone()).await.unwrap().is_new);
    }
    let handler = |_: Context, input: String| async move { Ok::<_, JobError>(input.len() as u64) };
    let mut task = app.task("export", options(), handler).unwrap();
    for name in &names[..6] {
        task = task.schedule(name, Schedule::every(SECOND), name.clone()).unwrap();
    }
    let worker = TestWorker::start(app.worker());
    let mut jobs = BTreeSet::new();
    for name in &names {
        let info = becomes(&named, name, "it fires", |info| info.fired >= 2).await;
        accounted_for(&info);
        jobs.extend(info.last_job);
    }
    assert_eq!(jobs.len(), names.len());
    // Each job is found by its id, so it is in the partition of its schedule.
    for id in &jobs {
        assert!(named.handle(id).unwrap().state().await.is_ok(), "{id}");
    }
    let listed: BTreeSet<String> = named.schedules().list().await.unwrap().into_iter().map(|info| info.name).collect();
    assert_eq!(listed, names.iter().cloned().collect());
    let placed = named.schedules().put(&names[0], Schedule::every(2 * SECOND), "x".to_owned()).await.unwrap();
    assert_eq!((placed.is_new, placed.has_worker), (false, true));
    worker.stop().await;
}
