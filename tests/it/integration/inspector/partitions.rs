//! Reads and actions of the Inspector on a task with three partitions: the same as on any other task.

use std::collections::BTreeSet;

use heartline::{
    App, Event, ForgetOutcome, Inconsistency, Inspector, JobFilter, JobState, JobValues, SilentSelection, StallAction,
    StallOptions, TaskDef, TaskEvent, TaskOptions, TaskRef,
};

use super::{counted, obedient, observed, pages};
use crate::support::task::{TASK, TestTask, fast};
use crate::support::{PATIENCE, TestRedis, eventually};

fn options() -> TaskOptions {
    fast().partitions(3)
}

fn task(app: &App) -> TaskRef<String, u64> {
    app.task_ref_for(&TaskDef::new(TASK).options(options())).unwrap()
}

fn ids(count: usize) -> Vec<String> {
    (0..count).map(|at| format!("job-{at:02}")).collect()
}

/// Jobs with these ids, each with this input.
async fn dispatched(task: &TaskRef<String, u64>, ids: &[String], input: &str) {
    task.dispatch_many_with_ids(ids.iter().map(|id| (id.clone(), input.to_owned()))).await.unwrap();
}

/// The ids of all pages, with at most this many jobs a page; no id appears twice.
async fn read(inspector: &Inspector, filter: &JobFilter, limit: usize) -> Vec<String> {
    let rows: Vec<String> = pages(inspector, filter, limit)
        .await
        .iter()
        .flat_map(|page| page.jobs.iter().map(|row| row.id.to_string()))
        .collect();
    assert_eq!(rows.iter().collect::<BTreeSet<_>>().len(), rows.len(), "{rows:?}");
    rows
}

fn set(ids: &[String]) -> BTreeSet<String> {
    ids.iter().cloned().collect()
}

#[tokio::test]
async fn jobs_are_counted_listed_and_found_in_all_partitions() {
    let (test, app, inspector) = observed().await;
    let task = task(&app);
    let all = ids(40);
    dispatched(&task, &all, "fail disk full").await;
    let report = inspector.task(TASK).await.unwrap();
    assert_eq!((report.counts.waiting, report.dispatched, report.parts.len()), (40, 40, 3));
    assert_eq!(report.unplaced, 0);
    let waiting = read(&inspector, &JobFilter::new(JobState::Waiting), 7).await;
    assert_eq!(waiting.into_iter().collect::<BTreeSet<_>>(), set(&all));
    assert_eq!(inspector.count(TASK, &JobFilter::new(JobState::Waiting)).await.unwrap().jobs, 40);

    let worker_app = test.app().await;
    let _failing = obedient(&test, &worker_app, options());
    let worker = worker_app.worker().spawn();
    counted(&inspector, JobState::Failed, 40).await;
    let failed = JobFilter::new(JobState::Failed);
    for limit in [1, 7, 40, 100] {
        let rows: Vec<_> = pages(&inspector, &failed, limit).await.into_iter().flat_map(|page| page.jobs).collect();
        assert_eq!(rows.len(), 40);
        assert!(rows.is_sorted_by(|one, other| one.since >= other.since), "the latest come first");
        let found: BTreeSet<String> = rows.iter().map(|row| row.id.to_string()).collect();
        assert_eq!(found, set(&all), "{limit}");
    }
    let oldest = read(&inspector, &failed.clone().oldest_first(), 9).await;
    assert_eq!(oldest.len(), 40);
    assert_eq!(inspector.count(TASK, &failed.clone().code("disk")).await.unwrap().jobs, 40);
    let report = inspector.task(TASK).await.unwrap();
    assert_eq!((report.failed, report.failed_lately, report.live_workers), (40, 40, 1));
    // A worker declares them one after the other.
    assert_eq!((report.data_lost_at, report.options_lost_at), (None, None));
    let listed = inspector.tasks().await.unwrap();
    assert_eq!((listed.len(), listed[0].counts.failed), (1, 40));
    for id in &all {
        let job = inspector.job(TASK, id, JobValues::All).await.unwrap().unwrap();
        assert_eq!((job.state, job.payload.unwrap().as_str()), (JobState::Failed, Some("fail disk full")));
        let told = inspector.job_events(TASK, id).await.unwrap();
        assert!(matches!(told.last(), Some(Event::Failed { .. })), "{told:?}");
    }
    // Events, page by page from the beginning.
    let (mut seen, mut after) = (BTreeSet::new(), None);
    loop {
        let page = inspector.events(TASK, after.as_deref()).await.unwrap();
        let failed = page.events.iter().filter_map(|event| match event {
            TaskEvent::Job(Event::Failed { id, .. }) => Some(id.to_string()),
            _ => None,
        });
        for id in failed {
            assert!(seen.insert(id.clone()), "{id} twice");
        }
        after = Some(page.next);
        if !page.has_more {
            break;
        }
    }
    assert_eq!(seen, set(&all));
    // A point in time applies to every stream.
    let later = inspector.events(TASK, Some("9999999999999-0")).await.unwrap();
    assert!(later.events.is_empty() && !later.has_more);
    assert!(inspector.columns(TASK).await.unwrap().iter().any(|column| column.column == "payload"));
    let _ = worker.stop().await.unwrap();
    let workers = inspector.workers().await.unwrap();
    let its: Vec<_> = workers.iter().flat_map(|worker| &worker.tasks).collect();
    assert_eq!((its.len(), its[0].task.as_str(), its[0].held), (1, TASK, 0), "{workers:?}");
}

#[tokio::test]
async fn actions_take_the_jobs_of_every_partition_once() {
    let (test, app, inspector) = observed().await;
    let task = task(&app);
    let all = ids(30);
    dispatched(&task, &all, "x").await;
    for id in &all[..6] {
        task.dispatch("x".into()).id(format!("late-{id}")).delay(std::time::Duration::from_secs(3600)).await.unwrap();
    }
    let mut conn = test.redis().conn().await;
    let metas = format!("{}:{{{TASK}*:meta", test.prefix);
    let metas: Vec<String> = redis::cmd("KEYS").arg(metas).query_async(&mut conn).await.unwrap();
    assert_eq!(metas.len(), 3);
    for meta in metas {
        redis::cmd("HSET").arg(meta).arg("declaredAt").arg(1).query_async::<()>(&mut conn).await.unwrap();
    }
    let mut act = inspector.cancel(TASK, all[..10].iter().map(String::as_str).collect::<Vec<_>>(), "no");
    assert_eq!(act.pin().await.unwrap().get(&Some(JobState::Waiting)), Some(&10));
    assert_eq!(act.await.unwrap().done, 10);
    let retried = inspector.retry(TASK, JobFilter::new(JobState::Cancelled)).await.unwrap();
    assert_eq!((retried.done, retried.looked), (10, 10));
    let moved = inspector.run_now(TASK, JobFilter::new(JobState::Delayed)).await.unwrap();
    assert_eq!(moved.done, 6);
    let unknown = inspector.remove(TASK, vec!["nobody", "job-00", "job-01", "job-02"]).await.unwrap();
    assert_eq!((unknown.done, unknown.refused), (3, 1));
    assert_eq!(inspector.purge(TASK, JobState::Waiting).await.unwrap().done, 33);
    let counts = inspector.task(TASK).await.unwrap().counts;
    assert_eq!(counts.pending_total(), 0);
    assert!(inspector.audit(TASK).await.unwrap().is_clean());

    assert_eq!(inspector.forget_task(TASK).await.unwrap(), ForgetOutcome::Forgotten);
    let keys: Vec<String> =
        redis::cmd("KEYS").arg(format!("{}:{{{TASK}*", test.prefix)).query_async(&mut conn).await.unwrap();
    assert_eq!(keys, Vec::<String>::new());
    // A new number from now on, also for producers that knew three.
    let two = test.app().await.task_ref_for(&TaskDef::<String, u64>::new(TASK).options(fast().partitions(2))).unwrap();
    two.dispatch("x".into()).id("anew").await.unwrap();
    assert_eq!(inspector.task(TASK).await.unwrap().parts.len(), 2);
}

#[tokio::test]
async fn a_pause_covers_all_partitions_and_is_reported_once() {
    let (test, app, inspector) = observed().await;
    let task = task(&app);
    dispatched(&task, &ids(1), "x").await;
    assert_eq!(inspector.pause(TASK, "why").await.unwrap(), None);
    assert_eq!(inspector.pause(TASK, "again").await.unwrap().unwrap().reason, "why");
    let worker_app = test.app().await;
    let _works = obedient(&test, &worker_app, options());
    let worker = worker_app.worker().spawn();
    dispatched(&task, &ids(12), "x").await;
    test.epochs_pass(2).await;
    let report = inspector.task(TASK).await.unwrap();
    assert_eq!((report.counts.waiting, report.paused.unwrap().reason.as_str()), (12, "why"));
    assert!(inspector.resume(TASK).await.unwrap().is_some());
    counted(&inspector, JobState::Completed, 12).await;
    let events = inspector.events(TASK, None).await.unwrap().events;
    let pauses = events.iter().filter(|event| matches!(event, TaskEvent::Pause(_))).count();
    assert_eq!(pauses, 2, "one pause, and its end");
    let _ = worker.stop().await.unwrap();
    // A task that was paused before a number was set has one partition: a pause of one would not cover the others.
    let early = TestTask::new();
    let app = early.app().await;
    app.inspector().pause(TASK, "early").await.unwrap();
    let told = self::task(&app).dispatch("x".into()).await.unwrap_err().to_string();
    assert!(told.contains("must be 1"), "{told}");
}

#[tokio::test]
async fn a_person_recovers_the_silent_jobs_of_every_partition() {
    let redis = TestRedis::start();
    let mut test = TestTask::on(&redis);
    test.name = TASK.to_owned();
    let patient = || options().stall(StallOptions::new().interval(std::time::Duration::from_secs(1)));
    let app = test.app().await;
    let (inspector, task) = (app.inspector().by("ada"), task(&app));
    let all = ids(12);
    dispatched(&task, &all, "gate").await;
    let victim = test.start_mortal_worker(&redis, patient().concurrency(12)).await;
    counted(&inspector, JobState::Running, 12).await;
    let name = victim.id.clone();
    let running = read(&inspector, &JobFilter::new(JobState::Running), 5).await;
    assert_eq!(running.into_iter().collect::<BTreeSet<_>>(), set(&all));
    victim.dies().await;
    let held = inspector.lock_holders(TASK).await.unwrap();
    assert_eq!((held.holders.len(), held.holders[0].jobs, held.is_whole), (1, 12, true));
    let some = SilentSelection::ids(&all[..4]);
    assert_eq!(inspector.recover_running(TASK, some).await.unwrap().done, 4);
    let swept = inspector.sweep_now(TASK).await.unwrap();
    assert!(swept.is_complete && swept.resolved.iter().all(|job| job.action == StallAction::Recovered), "{swept:?}");
    assert_eq!(swept.resolved.len(), 8);
    let stalls = inspector.stalls(TASK, None).await.unwrap().stalls;
    assert_eq!(stalls.iter().map(|report| report.stall.id.to_string()).collect::<BTreeSet<_>>(), set(&all));
    for id in &all {
        let told = inspector.stall_history(TASK, id).await.unwrap();
        assert_eq!((told.len(), told[0].stall.worker.as_ref().unwrap().as_str()), (1, &*name));
    }
    // A person declares the worker dead.
    let victim = test.start_mortal_worker(&redis, patient().concurrency(12)).await;
    counted(&inspector, JobState::Running, 12).await;
    let name = victim.id.clone();
    victim.dies().await;
    let recovered = inspector.recover_worker(&name).await.unwrap().unwrap();
    assert_eq!((recovered.tasks.len(), recovered.tasks[0].resolved.len()), (1, 12));
    assert_eq!(inspector.task(TASK).await.unwrap().counts.held_total(), 0);
    let suspects = inspector.suspects(TASK).await.unwrap();
    assert_eq!((suspects.len(), suspects[0].deaths), (12, 2));
}

#[tokio::test]
async fn damage_is_found_and_repaired_in_each_partition() {
    let (test, app, inspector) = observed().await;
    let task = task(&app);
    let all = ids(12);
    dispatched(&task, &all, "x").await;
    let mut conn = test.redis().conn().await;
    let lists: Vec<String> =
        redis::cmd("KEYS").arg(format!("{}:{{{TASK}:*}}:wait", test.prefix)).query_async(&mut conn).await.unwrap();
    assert_eq!(lists.len(), 2);
    let lost: Vec<String> = redis::cmd("LRANGE").arg(&lists[0]).arg(0).arg(-1).query_async(&mut conn).await.unwrap();
    redis::cmd("DEL").arg(&lists[0]).query_async::<()>(&mut conn).await.unwrap();
    let report = inspector.audit(TASK).await.unwrap();
    assert_eq!((report.parts.len(), report.parts.iter().map(|part| part.looked).sum::<u64>()), (3, 12));
    let found: BTreeSet<String> = report.findings().map(|finding| finding.what.clone()).collect();
    assert_eq!(found, set(&lost));
    assert!(report.findings().all(|finding| finding.fault == Inconsistency::Unplaced));
    let repaired = inspector.repair(&report).await.unwrap();
    assert_eq!((repaired.mended.len(), repaired.gone.len()), (lost.len(), 0));
    assert!(inspector.audit(TASK).await.unwrap().is_clean());
    let waiting = read(&inspector, &JobFilter::new(JobState::Waiting), 5).await;
    assert_eq!(waiting.into_iter().collect::<BTreeSet<_>>(), set(&all));
    let foreign = lists[1].replace(":wait", ":progress");
    redis::cmd("SET").arg(&foreign).arg("x").query_async::<()>(&mut conn).await.unwrap();
    let told = inspector.foreign_keys(TASK).await.unwrap();
    assert_eq!((told.len(), &told[0].key), (1, &foreign));
    redis::cmd("DEL").arg(&foreign).query_async::<()>(&mut conn).await.unwrap();
    eventually("the death is recorded", PATIENCE, async || inspector.note_audit(&report).await.unwrap()).await;
}
