//! Parts of a worker that panic: its driver, and single runs. The tracing subscriber is the user's code.

use heartline::{Error, TaskOptions, codes};
use redis::AsyncCommands;

use crate::faults::ground::{alone, proxied};
use crate::support::task::{INTERVAL, TaskWorker, options};
use crate::support::{At, PATIENCE, Warnings, eventually};

/// The stop reason of a worker that stopped because its driver panicked.
async fn breaks(mut worker: TaskWorker) {
    let reason = worker.ends().await.unwrap();
    let told = format!("{reason:?}");
    assert!(told.contains("Broken") && told.contains("Driver"), "{told}");
}

#[tokio::test]
async fn a_driver_panic_on_a_lost_reply_stops_the_worker_loudly() {
    let warnings = Warnings::capture();
    let (_redis, test, proxy) = proxied().await;
    let worker = test.start_worker_at(&proxy.url(), options(INTERVAL)).await;
    let (_app, jobs) = test.producer().await;
    let job = jobs.dispatch("gate".to_owned()).await.unwrap();
    test.started(std::slice::from_ref(&job)).await;
    let healthy = test.start_worker(options(INTERVAL).concurrency(1)).await;

    // The driver warns of a lost reply, and its warning meets a broken subscriber.
    warnings.break_at(&[&test.name, "settle failed; will retry"]);
    let cut = proxy.cut_next_reply_to(test.key("replies"));
    // The healthy worker leaves jobs for the other one.
    let others = jobs.dispatch_many(["gate".to_owned(), "gate".to_owned()]).await.unwrap();
    cut.happened().await;

    let (id, other) = (worker.id.clone(), healthy.id.clone());
    breaks(worker).await;
    warnings.wait_for(&["a part of the worker ended by itself", &id], PATIENCE).await;
    // Its slot is free for the job of the broken worker.
    test.journal.open("gate");
    for job in others.iter().chain([&job]) {
        let fence = tokio::time::timeout(PATIENCE, job.result()).await.expect("the job stays where it is").unwrap();
        let last = test.journal.runs_of(job.id()).pop().unwrap();
        assert_eq!((last.worker.as_str(), last.fence), (other.as_str(), fence));
    }
    assert_eq!(test.journal.runs_of(job.id())[0].worker, id);
    healthy.stop().await;
    test.nothing_is_left_but(3).await;
}

#[tokio::test]
async fn a_driver_panic_on_a_late_outcome_stops_the_worker_loudly() {
    let warnings = Warnings::capture();
    let (_redis, test, proxy) = proxied().await;
    let worker = test.start_worker_at(&proxy.url(), options(INTERVAL * 3)).await;
    worker.working().await;
    let taken = worker.jobs.dispatch("late".to_owned()).await.unwrap();
    let job = worker.jobs.dispatch("gate".to_owned()).await.unwrap();
    test.started(&[taken.clone(), job.clone()]).await;
    let healthy = test.start_worker(options(INTERVAL * 3)).await;
    warnings.break_at(&[&test.name, "an outcome came too late"]);
    // Right after a heartbeat: the next one must not be the first to notice that the lock has another owner.
    let mut hold = proxy.hold_next_reply_to(test.sha("extend_locks").await);
    hold.happened().await;
    let () = test.conn().await.hset(test.key("locks"), taken.id().as_str(), "else-1-0a1b2c3d:1").await.unwrap();
    test.journal.open("late");
    let id = worker.id.clone();
    breaks(worker).await;
    drop(hold);
    warnings.wait_for(&["a part of the worker ended by itself", &id], PATIENCE).await;

    eventually("the job runs again", PATIENCE, async || test.journal.runs_of(job.id()).len() == 2).await;
    test.journal.open("gate");
    let fence = tokio::time::timeout(PATIENCE, job.result()).await.expect("the job does not end").unwrap();
    let runs = test.journal.runs_of(job.id());
    assert_eq!(runs.iter().map(|run| &run.worker).collect::<Vec<_>>(), [&id, &healthy.id]);
    assert_eq!(runs[1].fence, fence);
    healthy.stop().await;
}

/// A worker with one slot: a job whose run meets a broken subscriber fails and frees the slot for the next.
async fn fails_and_frees_its_slot(
    options: TaskOptions,
    gate: &str,
    codes: &[&str],
    break_at: impl FnOnce(&Warnings, &str),
) {
    let warnings = Warnings::capture();
    let (redis, test) = alone();
    let worker = test
        .start_worker_with(&redis.url(), options.concurrency(1), |journal, ctx, gate| async move {
            let _clumsy = Clumsy(gate == "clumsy");
            journal.work(ctx, gate).await
        })
        .await;
    let id = format!("{}-broken", test.name);
    break_at(&warnings, &id);
    let broken = worker.jobs.dispatch(gate.to_owned()).id(&id).await.unwrap();
    let fine = worker.jobs.dispatch("go".to_owned()).await.unwrap();
    match tokio::time::timeout(PATIENCE, broken.result()).await.expect("the broken run is held forever") {
        Err(Error::JobFailed(failure)) => assert!(codes.contains(&failure.code.as_str()), "{failure:?}"),
        other => panic!("{other:?}"),
    }
    test.journal.open("go");
    tokio::time::timeout(PATIENCE, fine.result()).await.expect("the slot is still taken").unwrap();
    assert_eq!(test.dump("stalls").await, None);
    worker.stop().await;
}

/// Panics when it is dropped, if `true`.
struct Clumsy(bool);

impl Drop for Clumsy {
    fn drop(&mut self) {
        assert!(!self.0 || std::thread::panicking(), "dropped");
    }
}

#[tokio::test]
async fn a_tracing_panic_at_a_span_fails_the_run_and_frees_a_slot() {
    for (at, what) in [(At::New, "new"), (At::Enter, "enter"), (At::Exit, "exit")] {
        println!("a panic at this point of the span: {what}");
        fails_and_frees_its_slot(options(INTERVAL), "never", &[codes::PANIC], |warnings, id| {
            warnings.break_at_span(at, &["attempt{", &format!("job_id={id} ")]);
        })
        .await;
    }
}

#[tokio::test]
async fn a_tracing_panic_on_a_warning_fails_the_run_and_frees_a_slot() {
    // The run has timed out; a value that it holds panics on drop, and so does the subscriber that receives that
    // panic.
    let options = options(INTERVAL).timeout(INTERVAL / 2);
    fails_and_frees_its_slot(options, "clumsy", &[codes::PANIC, codes::TIMEOUT], |warnings, id| {
        warnings.break_at(&[&format!("job_id={id} "), "panicked while it was dropped"]);
    })
    .await;
}
