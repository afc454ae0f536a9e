//! Jobs that fail, are retried, snooze, break off, or cannot be decoded.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use heartline::JobState;
use heartline::inspect::describe::PROGRAM_NOT_STARTED;

use super::*;

impl Scene {
    async fn ended_ago(&self, field: &str, ago: Duration) {
        self.meta(field, ms_ago(ago)).await;
    }

    async fn purge(&self, state: JobState) {
        let _ = self.inspector.purge(TASK, state).await.unwrap();
    }
}

#[tokio::test]
async fn failures_are_a_note_until_a_job_completes() {
    let (scene, worker) = Scene::working().await;
    scene.fails(2).await;
    assert_eq!(scene.kinds().await, ["?jobs_fail"]);
    let facts = scene.facts("jobs_fail").await;
    assert_eq!((&facts["failed_lately"], &facts["kept"]), (&2.into(), &2.into()));
    for id in scene.test.run::<Vec<String>>("ZRANGE", "failed", &["0", "-1"]).await {
        scene.test.run::<u64>("ZADD", "failed", &["XX", &ms_ago(HOUR * 8).to_string(), &id]).await;
    }
    let facts = scene.facts("jobs_fail").await;
    assert_eq!((&facts["failed_lately"], &facts["in_a_row"]), (&0.into(), &2.into()));
    scene.completes(1).await;
    assert_eq!(scene.kinds().await, [""; 0]);
    let _ = worker.stop().await.unwrap();
}

#[tokio::test]
async fn twenty_failures_without_a_completion_are_an_outage() {
    let (scene, worker) = Scene::working().await;
    scene.completes(1).await;
    scene.fails(19).await;
    assert_eq!(scene.kinds().await, ["?jobs_fail"]);
    scene.fails(1).await;
    assert_eq!(scene.kinds().await, ["!jobs_fail"]);
    let facts = scene.facts("jobs_fail").await;
    assert_eq!((&facts["in_a_row"], &facts["completed_lately"]), (&20.into(), &1.into()));
    // It stays an outage if the failures are old, or if failed jobs are not retained.
    scene.purge(JobState::Completed).await;
    scene.meta("keepFailed", 0).await;
    assert_eq!(scene.kinds().await, ["!jobs_fail"]);
    scene.completes(1).await;
    // The worker may have trimmed the failed jobs by now; if not, they are a note.
    let kinds = scene.kinds().await;
    assert!(!kinds.contains(&"!jobs_fail".to_owned()), "the outage is over: {kinds:?}");
    let _ = worker.stop().await.unwrap();
}

#[tokio::test]
async fn removing_failed_jobs_ends_an_outage_unless_others_retry() {
    let (scene, worker) = Scene::working().await;
    scene.fails(25).await;
    assert_eq!(scene.kinds().await, ["!jobs_fail"]);
    let hint = scene.diagnoses().await[0].hint();
    assert!(
        hint.find("jobs retry").unwrap() < hint.find("task purge").unwrap(),
        "what keeps the jobs comes first: {hint}"
    );
    scene.jobs.dispatch("x".into()).id("later").delay(HOUR).await.unwrap();
    scene.purge(JobState::Failed).await;
    assert!(Diagnosis::is_healthy(&scene.diagnoses().await));
    scene.fails(1).await;
    assert_eq!(scene.kinds().await, ["?jobs_fail"]);
    scene.retried(25).await;
    scene.purge(JobState::Failed).await;
    assert!(scene.kinds().await.contains(&"!jobs_retry".to_owned()));
    let _ = worker.stop().await.unwrap();
}

#[tokio::test]
async fn retries_while_none_completes_are_a_note() {
    let (scene, worker) = Scene::working().await;
    scene.retried(1).await;
    scene.jobs.dispatch("x".into()).id("later").delay(HOUR * 2).await.unwrap();
    assert_eq!(scene.kinds().await, ["?jobs_fail", "?jobs_retry"]);
    let facts = scene.facts("jobs_retry").await;
    let found = ["retries", "read", "last_completed_ago_ms"].map(|name| facts[name].clone());
    assert_eq!(found, [1.into(), 2.into(), Value::Null]);
    assert_eq!((&facts["code"], &facts["message"]), (&"disk".into(), &"no space left".into()));
    let _ = worker.stop().await.unwrap();
}

#[tokio::test]
async fn many_retries_in_a_row_are_an_outage() {
    let (scene, worker) = Scene::working().await;
    scene.completes(5).await;
    scene.retried(25).await;
    for at in 0..60 {
        let other = scene.app.task_ref::<String, ()>(&format!("cron-{at}")).unwrap();
        other.dispatch("x".into()).delay(HOUR * 24).await.unwrap();
    }
    let kinds = scene.kinds().await;
    assert!(kinds.contains(&"!jobs_retry".to_owned()), "among many tasks with a job for later: {kinds:?}");
    scene.purge(JobState::Completed).await;
    assert!(scene.kinds().await.contains(&"!jobs_retry".to_owned()), "also when no completed job is kept");
    scene.purge(JobState::Delayed).await;
    assert!(!scene.kinds().await.contains(&"!jobs_retry".to_owned()), "no failed job is left");
    let _ = worker.stop().await.unwrap();
}

#[tokio::test]
async fn retries_next_to_completed_jobs_are_not_an_outage() {
    let (scene, worker) = Scene::working().await;
    scene.retried(22).await;
    scene.completes(60).await;
    assert_eq!(scene.kinds().await, ["?jobs_retry"]);
    scene.ended_ago("lastCompletedAt", Duration::from_secs(3000)).await;
    assert_eq!(scene.kinds().await, ["?jobs_retry"], "long after it, when only those run");
    let _ = worker.stop().await.unwrap();
}

#[tokio::test]
async fn a_few_failures_after_long_runs_are_not_an_outage() {
    let (scene, worker) = Scene::working().await;
    scene.retried(5).await;
    for _ in 0..40 {
        scene.jobs.dispatch("hold".into()).await.unwrap();
    }
    scene.counted("all slots are taken", 1, |counts| counts.running).await;
    assert!(Diagnosis::is_healthy(&scene.diagnoses().await));
    scene.test.journal.open("gate");
    let _ = worker.stop().await.unwrap();
}

#[tokio::test]
async fn failed_jobs_that_wait_again_are_an_outage() {
    let scene = Scene::new().await;
    let ids: Vec<String> = (0..25).map(|at| format!("job-{at}")).collect();
    scene.jobs.dispatch_many_with_ids(ids.iter().map(|id| (id.clone(), "x".to_owned()))).await.unwrap();
    for id in &ids {
        scene.test.run::<u64>("HSET", "attempt", &[id, "1"]).await;
    }
    scene.meta("failedSinceCompleted", 25).await;
    scene.ended_ago("lastFailedAt", Duration::ZERO).await;
    let facts = scene.facts("jobs_retry").await;
    assert_eq!((&facts["retries"], &facts["read"]), (&25.into(), &25.into()));
    assert!(scene.kinds().await.contains(&"!jobs_retry".to_owned()));
}

#[tokio::test]
async fn jobs_that_snooze_after_an_old_failure_are_not_retries() {
    let (scene, worker) = Scene::working().await;
    let ids = (0..25).map(|at| (format!("job-{at}"), "snooze".to_owned()));
    scene.jobs.dispatch_many_with_ids(ids).await.unwrap();
    eventually("all snooze", PATIENCE, async || {
        let reads = (0..25).map(|at| scene.jobs.job(format!("job-{at}")));
        futures_util::future::join_all(reads).await.into_iter().all(|job| job.unwrap().snoozed_count > 0)
    })
    .await;
    scene.ended_ago("lastFailedAt", HOUR).await;
    assert_eq!(scene.kinds().await, [""; 0]);
    for at in 0..25 {
        scene.test.run::<u64>("HSET", "snoozed", &[&format!("job-{at}"), "3"]).await;
    }
    let _ = worker.stop().await.unwrap();
}

#[tokio::test]
async fn payloads_that_no_worker_can_read_are_of_a_newer_producer() {
    let (scene, worker) = Scene::working().await;
    let other = scene.app.task_ref::<u64, u64>(TASK).unwrap();
    other.dispatch_many_with_ids((0..25).map(|at| (format!("job-{at}"), 5))).await.unwrap();
    scene.counted("all are delayed", 25, |counts| counts.delayed).await;
    assert_eq!(scene.kinds().await, ["!newer_producer"], "their failures are not reported again");
    assert_eq!(scene.facts("newer_producer").await, serde_json::json!({ "jobs": 25 }));
    let _ = worker.stop().await.unwrap();
}

#[tokio::test]
async fn a_worker_that_cannot_start_its_program_is_reported() {
    let scene = Scene::new().await;
    let started = Arc::new(AtomicUsize::new(0));
    let handler = move |ctx: Context, input: String| {
        let started = Arc::clone(&started);
        async move {
            if input == "x" {
                return Ok::<(), JobError>(());
            }
            ctx.progress(PROGRAM_NOT_STARTED, "no such file")?;
            let long = if started.fetch_add(1, Ordering::SeqCst) < 3 { Duration::ZERO } else { HOUR };
            Err(JobError::snooze(long))
        }
    };
    let script = scene.app.task("script", TaskOptions::new(), handler).unwrap();
    let worker = scene.app.worker().tasks(["script"]).unwrap().spawn();
    script.dispatch("x".into()).await.unwrap().result().await.unwrap();
    script.dispatch("gone".into()).id("gone").await.unwrap();
    scene.until("?jobs_snooze").await;
    assert!(Diagnosis::is_healthy(&scene.diagnoses().await), "others complete");
    assert_eq!(scene.facts("jobs_snooze").await["program_error"], "no such file");
    let _ = worker.stop().await.unwrap();
}

#[tokio::test]
async fn runs_that_repeatedly_break_off_are_a_risk() {
    let scene = Scene::waiting(&["a"]).await.watched().await;
    scene.ended_ago("lastBrokenOffAt", MINUTE).await;
    for (runs, kinds) in [(2, &[][..]), (3, &["?runs_break_off"][..]), (5, &["!runs_break_off"][..])] {
        scene.meta("brokenOffSinceCompleted", runs).await;
        assert_eq!(scene.kinds().await, kinds, "{runs}");
    }
    scene.ended_ago("lastBrokenOffAt", HOUR * 2).await;
    assert_eq!(scene.kinds().await, [""; 0], "the break-offs are over");
}

#[tokio::test]
async fn hooks_that_fail_are_reported_while_they_do() {
    let scene = Scene::idle().await.watched().await;
    for (hooks, ago, kinds) in
        [(1, MINUTE, &["?hooks_fail"][..]), (20, MINUTE, &["!hooks_fail"][..]), (20, HOUR, &[][..])]
    {
        scene.ended_ago("hookFailedAt", ago).await;
        scene.meta("hooksFailedRow", hooks).await;
        assert_eq!(scene.kinds().await, kinds, "{hooks} {ago:?}");
    }
}
