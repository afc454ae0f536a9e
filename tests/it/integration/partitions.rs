//! A task with several partitions: one task for producers, workers and readers, and a separate table per partition.

use std::collections::BTreeSet;
use std::time::Duration;

use heartline::{CancelOutcome, Context, Error, Event, JobError, JobState, StallOptions, TaskOptions};

use crate::integration::fixtures::shared;
use crate::support::events::next;
use crate::support::task::{TASK, TestTask, counts, fast};
use crate::support::{PATIENCE, TestRedis, eventually};

/// The tags of the tables of `TASK` with three partitions.
async fn tables(test: &TestTask) -> BTreeSet<String> {
    let mut conn = test.redis().conn().await;
    let keys: Vec<String> =
        redis::cmd("KEYS").arg(format!("{}:*:payload", test.prefix)).query_async(&mut conn).await.unwrap();
    keys.iter().map(|key| key[key.find('{').unwrap()..=key.find('}').unwrap()].to_owned()).collect()
}

#[tokio::test]
async fn jobs_are_spread_by_id_and_found_by_id() {
    let (test, app) = shared().await;
    let task = app.task_ref_for(&heartline::TaskDef::<String, u64>::new(TASK).options(fast().partitions(3))).unwrap();
    let ids: Vec<String> = (0..60).map(|at| format!("job-{at}")).collect();
    for id in &ids[..30] {
        task.dispatch("export".into()).id(id).await.unwrap();
    }
    let many = task.dispatch_many_with_ids(ids.iter().map(|id| (id.clone(), "export".to_owned()))).await.unwrap();
    let existed: Vec<bool> = many.iter().map(|job| job.existed().unwrap()).collect();
    assert_eq!(existed, (0..60).map(|at| at < 30).collect::<Vec<_>>(), "in the order of the inputs");
    assert_eq!(tables(&test).await.len(), 3);
    assert_eq!(task.counts().await.unwrap().waiting, 60);
    // A process that does not know the number.
    let (_other, other) = test.producer().await;
    for id in &ids {
        assert_eq!(other.handle(id).unwrap().state().await.unwrap(), JobState::Waiting, "{id}");
    }
    let (_third, third) = test.producer().await;
    assert!(third.dispatch("export".into()).id(&ids[0]).await.unwrap().existed().unwrap());
    let cancelled = test.producer().await.1.handle("job-7").unwrap().cancel("no").await.unwrap();
    assert_eq!(cancelled, CancelOutcome::Cancelled);

    test.journal.open("export");
    let worker = test.start_worker(fast()).await;
    for job in &many {
        match job.result().await {
            Ok(_) => {}
            Err(Error::JobCancelled { id, .. }) if id.as_str() == "job-7" => {}
            Err(e) => panic!("{e:?}"),
        }
    }
    // A handle that waits without any earlier call.
    assert!(test.producer().await.1.handle("job-8").unwrap().result().await.is_ok());
    assert!(matches!(test.producer().await.1.handle("nobody").unwrap().result().await, Err(Error::JobNotFound { .. })));
    let counts = task.counts().await.unwrap();
    assert_eq!((counts.completed, counts.cancelled, counts.pending_total()), (59, 1, 0));
    worker.stop().await;
}

#[tokio::test]
async fn a_wrong_number_of_partitions_is_refused_and_changes_nothing() {
    let (test, app) = shared().await;
    let with = |count| heartline::TaskDef::<String, u64>::new(TASK).options(fast().partitions(count));
    app.task_ref_for(&with(3)).unwrap().dispatch("export".into()).id("a").await.unwrap();
    let before = test.dump("meta").await;
    let other = test.app().await.task_ref_for(&with(2)).unwrap();
    let told = other.dispatch("export".into()).id("b").await.unwrap_err().to_string();
    assert!(told.contains("partitions") && told.contains("must be 3"), "{told}");
    let app = test.app().await;
    app.task(TASK, fast().partitions(4), async |_: Context, _: String| Ok::<_, JobError>(1)).unwrap();
    let told = app.worker().run().await.unwrap_err().to_string();
    assert!(told.contains("must be 3"), "{told}");
    assert_eq!(test.dump("meta").await, before);
    for count in [0, 65] {
        let told = test.app().await.task_ref_for(&with(count)).unwrap_err().to_string();
        assert!(told.contains("partitions"), "{told}");
    }
    // A task that existed before a number was set has one partition.
    let single = TestTask::new();
    let (_app, plain) = single.producer().await;
    plain.dispatch("export".into()).await.unwrap();
    let told = single.app().await.task_ref_for(&with(2)).unwrap().dispatch("export".into()).await.unwrap_err();
    assert!(told.to_string().contains("must be 1"), "{told}");
}

#[tokio::test]
async fn concurrency_applies_to_all_partitions_and_starves_none() {
    let (test, app) = shared().await;
    let task = app.task_ref_for(&heartline::TaskDef::<String, u64>::new(TASK).options(fast().partitions(3))).unwrap();
    for at in 0..30 {
        task.dispatch("gate".into()).id(format!("job-{at}")).await.unwrap();
    }
    let worker = test.start_worker(fast().concurrency(4)).await;
    counts(&task, 0, 4).await;
    // Longer than the poll interval of a driver.
    test.epochs_pass(3).await;
    assert_eq!(task.counts().await.unwrap().waiting, 26);
    counts(&task, 0, 4).await;
    test.journal.open("gate");
    eventually("all are done", PATIENCE, async || task.counts().await.unwrap().completed == 30).await;
    worker.stop().await;
}

#[tokio::test]
async fn events_of_all_partitions_reach_earlier_subscribers_too() {
    let test = TestTask::new();
    let (app, _task) = test.producer().await;
    let mut events = app.events();
    let other = test.app().await;
    let def = heartline::TaskDef::<String, u64>::new(TASK).options(fast().partitions(3));
    let task = other.task_ref_for(&def).unwrap();
    let ids: BTreeSet<String> = (0..20).map(|at| format!("job-{at}")).collect();
    for id in &ids {
        task.dispatch("export".into()).id(id).await.unwrap();
    }
    let (mut seen, mut told) = (BTreeSet::new(), 0);
    while seen.len() < ids.len() {
        if let Event::Dispatched { id, .. } = next(&mut events).await {
            told += 1;
            seen.insert(id.to_string());
        }
    }
    assert_eq!((seen, told), (ids.clone(), ids.len()), "each once");
}

#[tokio::test]
async fn jobs_of_a_dead_worker_are_recovered_in_every_partition() {
    let redis = TestRedis::start();
    let mut test = TestTask::on(&redis);
    test.name = TASK.to_owned();
    let options = || fast().partitions(3).stall(StallOptions::new().interval(Duration::from_secs(1)));
    let app = test.app().await;
    let def = heartline::TaskDef::<String, u64>::new(TASK).options(options());
    let task = app.task_ref_for(&def).unwrap();
    for at in 0..9 {
        task.dispatch("gate".into()).id(format!("job-{at}")).await.unwrap();
    }
    let mut stalls = app.on_stalled();
    let victim = test.start_mortal_worker(&redis, options()).await;
    counts(&task, 0, 9).await;
    victim.dies().await;
    let healer = test.start_worker(options()).await;
    let mut stalled = BTreeSet::new();
    while stalled.len() < 9 {
        stalled.insert(next(&mut stalls).await.id.to_string());
    }
    test.journal.open("gate");
    eventually("all are done", PATIENCE, async || task.counts().await.unwrap().completed == 9).await;
    healer.stop().await;
}

#[tokio::test]
async fn options_that_are_counts_are_divided() {
    let test = TestTask::new();
    let retention = heartline::Retention::new().completed(heartline::RetentionLimit::count(10));
    let options: TaskOptions = fast().partitions(4).prefetch(6).retention(retention);
    let worker = test.start_worker(options).await;
    let count: String = test.column("meta", "maxCountCompleted").await.unwrap();
    let prefetch: String = test.column("meta", "prefetch").await.unwrap();
    assert_eq!((&*count, &*prefetch), ("3", "2"));
    worker.stop().await;
}

#[tokio::test]
async fn a_new_worker_uses_the_current_number_of_partitions() {
    let (test, app) = shared().await;
    let three = heartline::TaskDef::<String, u64>::new(TASK).options(fast().partitions(3));
    let worker_app = test.app().await;
    let task = test.declare_at(&worker_app, fast());
    app.task_ref_for(&three).unwrap().dispatch("export".into()).id("a").await.unwrap();
    test.journal.open("export");
    let worker = worker_app.worker().spawn();
    eventually("it is done", PATIENCE, async || task.counts().await.unwrap().completed == 1).await;
    let _ = worker.stop().await.unwrap();
    // From another process.
    let other = test.app().await.inspector();
    other.purge(TASK, JobState::Completed).await.unwrap();
    assert_eq!(other.forget_task(TASK).await.unwrap(), heartline::ForgetOutcome::Forgotten);
    let worker = worker_app.worker().spawn();
    let producer = test.app().await.task_ref::<String, u64>(TASK).unwrap();
    eventually("the task is declared", PATIENCE, async || test.column("meta", "declaredAt").await.is_some()).await;
    let jobs = (0..20).map(|at| (format!("job-{at}"), "export".to_owned()));
    for job in producer.dispatch_many_with_ids(jobs).await.unwrap() {
        job.result().await.unwrap();
    }
    assert_eq!(test.column("meta", "partitions").await, None);
    let _ = worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_uses_the_number_of_a_producer_that_starts_with_it() {
    let (test, app) = shared().await;
    for round in 0..15 {
        let name = format!("race-{round}");
        let handler = |_: Context, _: String| async { Ok::<u64, JobError>(1) };
        let task = app.task(&name, fast(), handler).unwrap();
        let (_producer, own) = (test.producer().await, test.app().await);
        let spread = TaskOptions::new().partitions(3);
        let spread =
            own.task_ref_for(&heartline::TaskDef::<String, u64>::new(name.clone().leak()).options(spread)).unwrap();
        let (worker, job) = tokio::join!(async { app.worker().tasks([&*name]).unwrap().spawn() }, async {
            spread.dispatch("x".into()).await
        });
        let job = match job {
            Err(Error::Config(_)) => task.dispatch("x".into()).await.expect("the worker was first, and it has one"),
            job => job.unwrap(),
        };
        let done = tokio::time::timeout(PATIENCE, job.result()).await.expect("the worker runs the task").unwrap();
        assert_eq!((done, task.counts().await.unwrap().completed), (1, 1));
        let _ = worker.stop().await.unwrap();
    }
}
