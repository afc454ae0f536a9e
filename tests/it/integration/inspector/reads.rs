//! What the Inspector reports.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use heartline::_internals::Timings;
use heartline::{
    App, Context, DetectorReset, Error, Event, JobError, JobFilter, JobState, JobValues, PauseEvent, Priority,
    RejectedOutcome, RetentionLimit, RetryPolicy, SilentSelection, StallAction, StallOptions, StallReason, TaskEvent,
    TaskReport, WorkerReport, WorkerState,
};
use redis::AsyncCommands;
use serde::Serialize;

use super::{
    a_millisecond_passes, all, counted, history, ids, inspector, is_config, obedient, observed, pages, seed,
    stored_error,
};
use crate::integration::fixtures::shared;
use crate::support::puppet::Puppet;

use crate::support::task::{INTERVAL, TASK, TWO_INTERVALS, TestTask, fast, fast_with, options};
use crate::support::worker::TestWorker;
use crate::support::{Line, PATIENCE, Proxy, TestRedis, eventually, stat};

const MINUTE: Duration = Duration::from_secs(60);

/// The time from which the next job waits, by a report.
fn waits_since(report: &TaskReport) -> SystemTime {
    report.as_of - report.next_waiting_age.expect("a job waits")
}

/// The report of a worker, once it shows the given property. A worker writes its record every 5 s.
async fn worker_shows(
    inspector: &heartline::Inspector,
    id: &str,
    what: &str,
    shows: impl Fn(&WorkerReport) -> bool,
) -> WorkerReport {
    eventually(what, PATIENCE, async || inspector.worker(id).await.unwrap().filter(&shows)).await
}

#[tokio::test]
async fn a_task_has_counts_by_state_and_the_wait_of_its_next_job() {
    let (test, app, inspector) = observed().await;
    let task = obedient(&test, &app, fast().concurrency(1));
    assert_eq!(inspector.task(TASK).await.unwrap().next_waiting_age, None);
    let before = inspector.task(TASK).await.unwrap().as_of;
    task.dispatch("ok".into()).id("first").await.unwrap();
    a_millisecond_passes(&inspector).await;
    let between = inspector.task(TASK).await.unwrap();
    task.dispatch("ok".into()).id("second").await.unwrap();
    task.dispatch("ok".into()).id("later").delay(MINUTE).await.unwrap();
    let report = inspector.task(TASK).await.unwrap();
    assert_eq!((report.counts.waiting, report.counts.delayed, report.dispatched, report.ended), (2, 1, 3, 0));
    // The time of dispatch is of the clock of the producer, which is here that of the server.
    assert!(waits_since(&report) >= before && waits_since(&report) <= between.as_of, "{report:?}");
    let due = report.next_due_at.unwrap();
    assert!(due > report.as_of && due <= report.as_of + MINUTE, "{report:?}");

    let worker = TestWorker::start(app.worker());
    counted(&inspector, JobState::Completed, 2).await;
    task.dispatch("fail own no".into()).id("fails").await.unwrap();
    counted(&inspector, JobState::Failed, 1).await;
    task.dispatch("wait gate".into()).id("runs").await.unwrap();
    test.arrives("runs", "running").await;
    task.handle("later").unwrap().cancel("no more").await.unwrap();
    let report = inspector.task(TASK).await.unwrap();
    let counts = report.counts;
    assert_eq!(
        (counts.waiting, counts.delayed, counts.running, counts.completed, counts.failed, counts.cancelled),
        (0, 0, 1, 2, 1, 1)
    );
    assert_eq!((report.next_waiting_age, report.next_due_at, report.dispatched, report.ended), (None, None, 5, 4));
    test.journal.open("gate");
    worker.stop().await;
}

#[tokio::test]
async fn a_requeued_job_waits_since_its_requeue_not_its_dispatch() {
    let (test, app, inspector) = observed().await;
    let task = obedient(&test, &app, fast().concurrency(1).retry(RetryPolicy::new().attempts(3)));
    let now = async || inspector.task(TASK).await.unwrap().as_of;
    // The age checks below need times that differ.
    let later = async || {
        let start = now().await;
        eventually("some time passes", PATIENCE, async || now().await > start + Duration::from_millis(100)).await;
        now().await
    };

    // Three delayed jobs are due at once for one slot: two go to the list, and wait there since then.
    task.dispatch("wait first".into()).id("blocker").await.unwrap();
    let worker = TestWorker::start(app.worker());
    test.arrives("blocker", "running").await;
    let delay = Duration::from_millis(100);
    for id in ["a", "b", "c"] {
        task.dispatch("wait second".into()).id(id).delay(delay).await.unwrap();
    }
    let due = later().await;
    test.journal.open("first");
    counted(&inspector, JobState::Waiting, 2).await;
    let report = inspector.task(TASK).await.unwrap();
    assert!(waits_since(&report) >= due, "a delayed job: {report:?}");

    // A requeued job: its worker stops and hands it back to the front.
    let running = async || all(&inspector, &JobFilter::new(JobState::Running)).await;
    let held = running().await[0].id.to_string();
    let stops = later().await;
    worker.stop().await;
    let rows = all(&inspector, &JobFilter::new(JobState::Waiting)).await;
    assert_eq!((rows.len(), rows[0].id.as_str()), (3, held.as_str()));
    assert!(rows[0].since.unwrap() >= stops, "a requeued job: {rows:?}");
    assert!(rows[1].since.unwrap() < stops && rows[1].since.unwrap() >= due, "{rows:?}");

    // A failed job that was moved to the front by hand, and one that a person retried.
    inspector.remove(TASK, JobFilter::new(JobState::Waiting)).await.unwrap();
    task.dispatch("again 60000".into()).id("again").await.unwrap();
    task.dispatch("fail own no".into()).id("fails").await.unwrap();
    let worker = TestWorker::start(app.worker());
    test.arrives("again", "delayed").await;
    test.arrives("fails", "failed").await;
    worker.stop().await;
    for id in ["again", "fails"] {
        let start = later().await;
        let act = if id == "again" { inspector.run_now(TASK, id) } else { inspector.retry(TASK, id) };
        assert_eq!(act.await.unwrap().done, 1, "{id}");
        let report = inspector.task(TASK).await.unwrap();
        assert!(waits_since(&report) >= start, "{id}: {report:?}");
        assert_eq!(inspector.remove(TASK, id).await.unwrap().done, 1);
    }
}

#[tokio::test]
async fn two_reports_give_the_rates_of_a_task() {
    let (test, app, inspector) = observed().await;
    let task = obedient(&test, &app, fast());
    let first = inspector.task(TASK).await.unwrap();
    assert_eq!(first.rates_since(&first), None);
    task.dispatch_many(vec!["ok".to_owned(); 30]).await.unwrap();
    task.dispatch("ok".into()).id("late").delay(MINUTE).await.unwrap();
    let worker = TestWorker::start(app.worker());
    counted(&inspector, JobState::Completed, 30).await;
    task.handle("late").unwrap().cancel("").await.unwrap();
    let second = inspector.task(TASK).await.unwrap();
    let rates = second.rates_since(&first).unwrap();
    let jobs = |a_second: f64| (a_second * rates.over.as_secs_f64()).round() as u64;
    assert_eq!((jobs(rates.dispatched), jobs(rates.ended)), (31, 31), "{rates:?}");
    assert_eq!(rates.over, second.as_of.duration_since(first.as_of).unwrap());
    assert_eq!(first.rates_since(&second), None, "times do not decrease");
    worker.stop().await;
}

#[tokio::test]
async fn a_task_shows_its_options_and_the_worker_that_declared_them() {
    let (test, _app, inspector) = observed().await;
    let one = test.start_worker(fast_with(StallOptions::new().max_count(4)).concurrency(7)).await;
    let report = inspector.task(TASK).await.unwrap();
    let value = |report: &TaskReport, name: &str| report.options.values.get(name).cloned().unwrap_or_default();
    assert_eq!((value(&report, "maxCount").as_str(), value(&report, "concurrency").as_str()), ("4", "7"));
    assert_eq!(report.options.declared_by.as_ref().unwrap().as_str(), one.id);
    let other = test.start_worker(fast_with(StallOptions::new().max_count(5))).await;
    let later = inspector.task(TASK).await.unwrap();
    assert_eq!(value(&later, "maxCount"), "5");
    assert_eq!(later.options.declared_by.as_ref().unwrap().as_str(), other.id);
    assert!(later.options.declared_at > report.options.declared_at, "{later:?}");
    for worker in [one, other] {
        worker.stop().await;
    }
}

#[tokio::test]
async fn a_task_shows_its_epoch_its_snapshot_and_its_interval() {
    let (test, app, inspector) = observed().await;
    let part = async || inspector.task(TASK).await.unwrap().parts.remove(0);
    let before = part().await;
    assert_eq!((before.epoch, before.epoch_at, before.interval, before.asker), (0, None, None, None));
    let quick = test.start_worker(fast()).await;
    test.epochs_pass(2).await;
    let seen = part().await;
    assert!(seen.epoch >= 2 && seen.epoch == test.epoch().await, "{seen:?}");
    assert_eq!((seen.interval, seen.asker.as_ref().unwrap().as_str()), (Some(INTERVAL), &*quick.id));
    let now = inspector.task(TASK).await.unwrap().as_of;
    let age = now.duration_since(seen.epoch_at.unwrap()).unwrap();
    assert!(age < PATIENCE && seen.snapshot_at == seen.epoch_at, "{seen:?}");

    // The longest requested interval applies at once, with the worker that requested it.
    let slow = test.start_worker(options(INTERVAL * 3)).await;
    let task = app.task_ref::<String, u64>(TASK).unwrap();
    eventually("the slower worker requests it", PATIENCE, async || part().await.interval == Some(INTERVAL * 3)).await;
    assert_eq!(part().await.asker.unwrap().as_str(), slow.id);
    // For held jobs it reports how many sent a heartbeat.
    task.dispatch("gate".into()).await.unwrap();
    eventually("the job is held", PATIENCE, async || part().await.heard + part().await.candidates == 1).await;
    test.journal.open("gate");
    for worker in [quick, slow] {
        worker.stop().await;
    }
}

#[tokio::test]
async fn a_dispatch_or_a_worker_start_lists_a_task() {
    let (test, app, inspector) = observed().await;
    assert_eq!(inspector.tasks().await.unwrap(), []);
    // It is so large that it is written on a connection of its own.
    app.task_ref::<String, ()>("only-dispatched").unwrap().dispatch("x".repeat(600 * 1024)).await.unwrap();
    // A reference or a read lists no task.
    let _asked = app.task_ref::<u32, ()>("only-asked").unwrap().counts().await.unwrap();
    inspector.task("only-looked-at").await.unwrap();
    let works = test.app().await;
    works.task("only-worked", fast().concurrency(3), |_, _: u32| async { Ok::<_, JobError>(()) }).unwrap();
    let worker = TestWorker::start(works.worker());
    worker.working().await;
    let listed = async || inspector.tasks().await.unwrap();
    eventually("both are listed", PATIENCE, async || listed().await.len() == 2).await;
    assert_eq!(inspector.task_names().await.unwrap(), ["only-dispatched", "only-worked"]);
    eventually("the worker has written its record", PATIENCE, async || listed().await[1].slots == 3).await;
    let reports = listed().await;
    assert_eq!((reports[0].task.as_str(), reports[0].live_workers, reports[0].slots), ("only-dispatched", 0, 0));
    assert_eq!(reports[0].counts.waiting, 1, "it waits for no worker");
    assert_eq!((reports[1].task.as_str(), reports[1].live_workers), ("only-worked", 1));
    assert_eq!(inspector.task("only-worked").await.unwrap().live_workers, 1);
    worker.stop().await;
    let reports = listed().await;
    assert_eq!((reports.len(), reports[1].live_workers, reports[1].slots), (2, 0, 0));
}

#[tokio::test]
async fn a_worker_shows_its_identity_its_jobs_and_its_heartbeats() {
    let test = TestTask::plain();
    let (app, inspector) = inspector(&test).await;
    let line = Line::start(test.redis().address()).await;
    let one_way = Duration::from_millis(30);
    let worker = test.start_worker_at(&line.url(), options(INTERVAL * 3)).await;
    worker.working().await;
    line.delay(one_way);
    let begun = inspector.task(TASK).await.unwrap().as_of;
    let task = app.task_ref::<String, u64>(TASK).unwrap();
    for _ in 0..2 {
        task.dispatch("gate".into()).await.unwrap();
    }
    counted(&inspector, JobState::Running, 2).await;
    let told = worker_shows(&inspector, &worker.id, "a heartbeat of both jobs is reported", |seen| {
        seen.tasks.iter().any(|task| task.held == 2 && !task.beat_took.is_zero())
    })
    .await;
    assert_eq!((told.worker.as_str(), told.state), (&*worker.id, WorkerState::Live));
    assert_eq!((told.pid, told.version.as_str()), (Some(std::process::id()), env!("CARGO_PKG_VERSION")));
    assert_eq!(told.wire, Some(1));
    assert!(worker.id.starts_with(&told.host) || !told.host.is_empty(), "{told:?}");
    let now = inspector.task(TASK).await.unwrap().as_of;
    assert!(told.started_at.unwrap() < now && told.last_seen_at > begun && told.last_seen_at <= now, "{told:?}");
    assert_eq!((told.stopped_at, told.runtime_blocked), (None, None));
    let its = &told.tasks[0];
    assert_eq!((its.task.as_str(), its.held, its.slots), (TASK, 2, 4));
    assert!(its.beat_took >= 2 * one_way && its.beat_took < INTERVAL * 3, "{its:?}");
    assert!(its.last_beat_at.unwrap() > begun && its.last_beat_at.unwrap() <= now, "{its:?}");
    let watch = &its.watches[0];
    assert_eq!((watch.part, watch.interval), (0, INTERVAL * 3));
    assert_eq!(watch.may_resolve_at(), watch.since + watch.interval);
    assert_eq!(inspector.workers().await.unwrap()[0].worker, told.worker);
    line.delay(Duration::ZERO);
    test.journal.open("gate");
    worker.stop().await;
}

/// By their last signs: those beyond the age or the number are removed, oldest first.
#[tokio::test]
async fn gone_workers_are_listed_for_the_configured_time() {
    let day = Duration::from_secs(86_400);
    for (limit, left) in [
        (None, ["gone-1", "gone-2"].as_slice()),
        (Some(RetentionLimit::forever()), &["gone-1", "gone-2", "gone-8"]),
        (Some(RetentionLimit::count(1)), &["gone-1"]),
        (Some(RetentionLimit::age(day * 3 / 2)), &["gone-1"]),
    ] {
        let test = TestTask::new();
        let mut conn = test.conn().await;
        let gone = format!("{}:workers:dead", test.prefix);
        let (now, _): (u64, u64) = redis::cmd("TIME").query_async(&mut conn).await.unwrap();
        for days in [1, 2, 8] {
            let seen = (now - days * 86_400) * 1000;
            let () = redis::cmd("ZADD")
                .arg(&gone)
                .arg(seen)
                .arg(format!("gone-{days}"))
                .query_async(&mut conn)
                .await
                .unwrap();
            let presence = format!("{}:worker:gone-{days}", test.prefix);
            let () = redis::cmd("HSET").arg(presence).arg("lastSeenAt").arg(seen).query_async(&mut conn).await.unwrap();
        }
        let app = test.app().await;
        let task = test.declare_at(&app, fast());
        let worker = match limit {
            Some(limit) => app.worker().presence_retention(limit),
            None => app.worker(),
        };
        let worker = TestWorker::start(worker);
        test.journal.open("gate");
        task.dispatch("gate".into()).await.unwrap().result().await.unwrap();
        let kept = || async {
            let mut conn = test.conn().await;
            let mut kept: Vec<String> =
                redis::cmd("KEYS").arg(format!("{}:worker:gone-*", test.prefix)).query_async(&mut conn).await.unwrap();
            kept.sort_unstable();
            kept.iter().map(|key| key.rsplit(':').next().unwrap().to_owned()).collect::<Vec<_>>()
        };
        eventually("the others go", PATIENCE, async || kept().await == left).await;
        if left.len() == 3 {
            // Longer than until the next read.
            eventually("the list is trimmed", PATIENCE, async || app.inspector().workers().await.unwrap().len() == 4)
                .await;
            assert_eq!(kept().await, left);
        }
        worker.stop().await;
    }
    let (test, app) = shared().await;
    test.declare_at(&app, fast());
    let error = app.worker().presence_retention(RetentionLimit::age(Duration::from_secs(59))).run().await.unwrap_err();
    assert!(error.to_string().contains("presence_retention") && error.to_string().contains("60 s"), "{error}");
}

/// Crash loops leave many records in the first hour.
#[tokio::test]
async fn too_many_dead_workers_are_forgotten_within_the_hour() {
    let test = TestTask::new();
    let mut conn = test.conn().await;
    let (now, _): (u64, u64) = redis::cmd("TIME").query_async(&mut conn).await.unwrap();
    for minutes in [3, 6, 7, 8] {
        let (worker, seen) = (format!("gone-{minutes}"), (now - minutes * 60) * 1000);
        let () = conn.zadd(format!("{}:workers", test.prefix), &worker, seen).await.unwrap();
        let () = conn.hset(format!("{}:worker:{worker}", test.prefix), "lastSeenAt", seen).await.unwrap();
    }
    let timings = Timings { unseen: Duration::from_millis(1), ..Timings::default() };
    let url = test.redis().app_url();
    let app = App::builder().redis(url).prefix(&test.prefix).timings(timings).build().await.unwrap();
    test.declare_at(&app, fast());
    let worker = TestWorker::start(app.worker().presence_retention(RetentionLimit::count(1)));
    eventually("the oldest go", PATIENCE, async || {
        let mut kept: Vec<String> = conn.keys(format!("{}:worker:gone-*", test.prefix)).await.unwrap();
        kept.sort_unstable();
        kept.iter().map(|key| key.rsplit('-').next().unwrap()).collect::<Vec<_>>() == ["3", "6"]
    })
    .await;
    worker.stop().await;
}

#[tokio::test]
async fn a_worker_is_shown_as_stopping_and_then_as_gone() {
    let (test, app, inspector) = observed().await;
    let patient = options(INTERVAL).shutdown_grace(MINUTE);
    let app_of_worker = test.app().await;
    test.declare_at(&app_of_worker, patient);
    let worker = TestWorker::start(app_of_worker.worker());
    let id = worker.id.clone();
    let task = app.task_ref::<String, u64>(TASK).unwrap();
    task.dispatch("gate".into()).id("last").await.unwrap();
    test.arrives("last", "running").await;
    let stopped = worker.begin_stop();
    let told = worker_shows(&inspector, &id, "it is stopping", |seen| seen.state == WorkerState::Stopping).await;
    assert!(told.state.is_live() && told.stopped_at.is_none(), "{told:?}");
    assert_eq!(inspector.task(TASK).await.unwrap().live_workers, 1);
    test.journal.open("gate");
    assert_eq!(stopped.await.unwrap().unwrap(), heartline::StopReason::Shutdown);
    let gone = inspector.worker(&id).await.unwrap().unwrap();
    assert!(gone.state == WorkerState::Gone && gone.stopped_at.is_some(), "{gone:?}");
    assert!(gone.tasks[0].held == 0 && gone.tasks[0].watches.is_empty(), "it holds nothing: {gone:?}");
    assert_eq!(inspector.task(TASK).await.unwrap().live_workers, 0);
    assert_eq!(inspector.worker("never-was").await.unwrap(), None);
}

#[tokio::test]
async fn a_worker_shows_when_and_why_its_watch_was_last_interrupted() {
    let test = TestTask::plain();
    let (app, inspector) = inspector(&test).await;
    let line = Proxy::start(test.redis().address()).await;
    let worker = test.start_worker_at(&line.url(), fast()).await;
    worker.working().await;
    // A held job gets one heartbeat per period.
    app.task_ref::<String, u64>(TASK).unwrap().dispatch("gate".into()).id("held").await.unwrap();
    test.arrives("held", "running").await;
    test.epochs_pass(1).await;
    let before = inspector.task(TASK).await.unwrap().as_of;
    line.drop_connections();
    let broken = |seen: &WorkerReport| {
        seen.tasks.iter().flat_map(|task| &task.watches).find(|watch| watch.broken_at >= Some(before)).cloned()
    };
    let told = worker_shows(&inspector, &worker.id, "the break is reported", |seen| broken(seen).is_some()).await;
    let watch = broken(&told).unwrap();
    assert_eq!(watch.broken, Some(DetectorReset::ConnectionLost), "{watch:?}");
    let outlook = inspector.recovery_status(TASK).await.unwrap();
    assert_eq!(outlook.watchers[0].watch.broken, Some(DetectorReset::ConnectionLost));
    test.journal.open("gate");
    worker.stop().await;
}

/// Ten jobs in each state, by the usual ways into it.
async fn ten_of_each(test: &TestTask, app: &heartline::App) {
    let task = app.task_ref::<String, u64>(TASK).unwrap();
    let mut puppet = Puppet::of(test).await;
    let names = |what: &str| (0..10).map(|at| format!("{what}-{at}")).collect::<Vec<_>>();
    for what in ["completed", "failed", "running"] {
        for id in names(what) {
            task.dispatch(String::new()).id(id).await.unwrap();
        }
        let held = puppet.claim(10).await;
        for token in held {
            let error = stored_error("own", "no");
            match what {
                "completed" => puppet.settle(&[token], &[], 0).await,
                "failed" => puppet.settle(&[], &[(&token, "failed", 1, "own no 5", &error)], 0).await,
                _ => break,
            };
        }
    }
    for id in names("cancelled") {
        task.dispatch(String::new()).id(&id).await.unwrap().cancel("enough").await.unwrap();
    }
    for (at, id) in (1..).zip(names("delayed")) {
        task.dispatch(String::new()).id(&id).delay(MINUTE * at).await.unwrap();
    }
    for (at, id) in names("waiting").into_iter().enumerate() {
        let priority = [Priority::Low, Priority::Normal, Priority::High][at % 3];
        task.dispatch(String::new()).id(&id).priority(priority).await.unwrap();
    }
}

#[tokio::test]
async fn jobs_of_each_state_are_paged_in_either_order() {
    let (test, app, inspector) = observed().await;
    ten_of_each(&test, &app).await;
    for state in ["delayed", "completed", "failed", "cancelled"] {
        let oldest: Vec<String> = test.run("ZRANGE", state, &["0", "-1"]).await;
        assert_eq!(oldest.len(), 10, "{state}");
        let newest: Vec<String> = oldest.iter().rev().cloned().collect();
        for limit in [1, 3, 10, 1000] {
            let of_state = JobFilter::new(state.parse().unwrap());
            for (filter, wanted) in [(of_state.clone(), &newest), (of_state.oldest_first(), &oldest)] {
                let pages = pages(&inspector, &filter, limit).await;
                assert!(pages.iter().all(|page| page.jobs.len() <= limit), "{state} {limit}");
                let found: Vec<String> =
                    pages.iter().flat_map(|page| &page.jobs).map(|row| row.id.to_string()).collect();
                assert_eq!(found, *wanted, "{state} {limit}");
            }
        }
    }
    let claimed_in = ["2", "5", "8", "1", "4", "7", "0", "3", "6", "9"].map(|at| format!("waiting-{at}"));
    for limit in [1, 3, 10, 1000] {
        for filter in [JobFilter::new(JobState::Waiting), JobFilter::new(JobState::Waiting).oldest_first()] {
            let found = pages(&inspector, &filter, limit).await;
            let found: Vec<String> = found.iter().flat_map(|page| &page.jobs).map(|row| row.id.to_string()).collect();
            assert_eq!(found, claimed_in, "{limit}");
        }
        let found = pages(&inspector, &JobFilter::new(JobState::Running), limit).await;
        let found: BTreeSet<String> = found.iter().flat_map(|page| &page.jobs).map(|row| row.id.to_string()).collect();
        assert_eq!(found.len(), 10, "{limit}: {found:?}");
    }

    let row = |rows: &[heartline::JobRow]| rows[0].clone();
    let failed = row(&all(&inspector, &JobFilter::new(JobState::Failed)).await);
    assert_eq!((failed.code.as_deref(), failed.message.as_deref()), (Some("own"), Some("no")));
    let cancelled = row(&all(&inspector, &JobFilter::new(JobState::Cancelled)).await);
    assert_eq!((cancelled.code.as_deref(), cancelled.message.as_deref()), (Some("cancelled"), Some("enough")));
    let running = row(&all(&inspector, &JobFilter::new(JobState::Running)).await);
    assert!(running.worker.unwrap().as_str().starts_with("puppet-") && running.fence.is_some());
    let delayed = row(&all(&inspector, &JobFilter::new(JobState::Delayed).oldest_first()).await);
    assert!(delayed.due_at > delayed.since && delayed.id.as_str() == "delayed-0", "{delayed:?}");
    let waiting = row(&all(&inspector, &JobFilter::new(JobState::Waiting)).await);
    assert_eq!((waiting.priority, waiting.due_at), (Priority::High, None));
}

#[tokio::test]
async fn filters_match_jobs_by_code_text_and_age() {
    let (test, app, inspector) = observed().await;
    let task = obedient(&test, &app, fast());
    for (id, input) in [
        ("slow", "fail too_slow it took \"ages\" in C:\\dir/sub\n"),
        ("small", "fail too_small é is no size"),
        ("other", "fail too_slow nothing like it"),
    ] {
        task.dispatch(input.into()).id(id).await.unwrap();
    }
    let worker = TestWorker::start(app.worker());
    counted(&inspector, JobState::Failed, 3).await;
    worker.stop().await;
    let found = async |filter: JobFilter| -> BTreeSet<String> {
        all(&inspector, &filter).await.into_iter().map(|row| row.id.to_string()).collect()
    };
    let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
    let failed = || JobFilter::new(JobState::Failed);
    assert_eq!(found(failed().code("too_slow")).await, set(&["slow", "other"]));
    assert_eq!(found(failed().code("too")).await, set(&[]), "a code must match whole");
    for text in ["\"ages\"", "C:\\dir", "dir/sub", "it took"] {
        assert_eq!(found(failed().message_contains(text)).await, set(&["slow"]), "{text}");
    }
    assert_eq!(found(failed().message_contains("é is")).await, set(&["small"]));
    assert_eq!(found(failed().message_contains("No Size")).await, set(&[]), "the text is matched literally");
    assert_eq!(found(failed().code("too_slow").message_contains("nothing")).await, set(&["other"]));

    // Ages count from when a job ended, is due, entered its list, or was claimed.
    let old = test.run::<String>("ZSCORE", "failed", &["slow"]).await.parse::<u64>().unwrap() - 3_600_000;
    test.run::<u64>("ZADD", "failed", &[&old.to_string(), "slow"]).await;
    let hour = MINUTE * 50;
    assert_eq!(found(failed().older_than(hour)).await, set(&["slow"]));
    assert_eq!(found(failed().younger_than(hour)).await, set(&["small", "other"]));
    assert_eq!(found(failed().younger_than(hour).code("too_slow")).await, set(&["other"]));
    assert_eq!(inspector.count(TASK, &failed().older_than(hour)).await.unwrap().jobs, 1);
    for id in ["new", "old"] {
        task.dispatch("ok".into()).id(id).await.unwrap();
    }
    test.run::<u64>("HSET", "dispatchedAt", &["old", &old.to_string()]).await;
    let waiting = || JobFilter::new(JobState::Waiting);
    assert_eq!(found(waiting().older_than(hour)).await, set(&["old"]));
    assert_eq!(found(waiting().younger_than(hour)).await, set(&["new"]));
    Puppet::of(&test).await.claim_all(&["new", "old"]).await;
    let running = || JobFilter::new(JobState::Running);
    assert_eq!(found(running().younger_than(hour)).await, set(&["new", "old"]), "it started now");
    assert_eq!(found(running().older_than(hour)).await, set(&[]));
}

#[tokio::test]
async fn a_filtered_page_scans_at_most_a_thousand_jobs_and_says_so() {
    let (test, _app, inspector) = observed().await;
    let error = |at: u64| stored_error(if at == 0 { "rare" } else { "usual" }, "no");
    seed(&test, "failed", (0..2500).map(|at| (format!("job-{at:04}"), 1_000_000 + at, error(at)))).await;
    let rare = JobFilter::new(JobState::Failed).code("rare");
    let mut looked = Vec::new();
    let (mut cursor, mut found) = (None, Vec::new());
    loop {
        let page = inspector.jobs(TASK, &rare, cursor.as_deref(), 10).await.unwrap();
        looked.push(page.looked);
        found.extend(page.jobs);
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
        assert!(looked.len() < 4, "{looked:?}");
    }
    assert_eq!((looked, ids(&found)), (vec![1000, 1000, 500], vec!["job-0000"]));
    // A page that is full scans no further, and the next one continues after its last job.
    let usual = JobFilter::new(JobState::Failed).code("usual");
    let pages = pages(&inspector, &usual, 100).await;
    assert_eq!(pages[0].jobs.len(), 100);
    assert!(pages[0].looked <= 200, "{}", pages[0].looked);
    assert_eq!(pages.iter().map(|page| page.jobs.len()).sum::<usize>(), 2499);
}

#[tokio::test]
async fn counts_are_exact_by_state_and_age_and_bounded_otherwise() {
    const JOBS: u64 = 12_000;
    let (test, _app, inspector) = observed().await;
    let error = |at: u64| stored_error(if at.is_multiple_of(2) { "even" } else { "odd" }, "no");
    seed(&test, "failed", (0..JOBS).map(|at| (format!("job-{at:05}"), 1_000_000 + at, error(at)))).await;
    let failed = || JobFilter::new(JobState::Failed);
    let count = async |filter: JobFilter| inspector.count(TASK, &filter).await.unwrap();
    let of_state = count(failed()).await;
    assert_eq!((of_state.jobs, of_state.is_exact, of_state.looked), (JOBS, true, 0));
    let of_age = count(failed().older_than(MINUTE)).await;
    assert_eq!((of_age.jobs, of_age.is_exact, of_age.looked), (JOBS, true, 0));
    let of_age = count(failed().younger_than(MINUTE)).await;
    assert_eq!((of_age.jobs, of_age.is_exact), (0, true));
    let of_code = count(failed().code("even")).await;
    assert_eq!((of_code.jobs, of_code.is_exact, of_code.looked), (5000, false, 10_000));
    test.run::<u64>("ZREMRANGEBYRANK", "failed", &["0", "2999"]).await;
    let of_code = count(failed().code("even")).await;
    assert_eq!((of_code.jobs, of_code.is_exact, of_code.looked), (4500, true, 9000));
}

#[tokio::test]
async fn a_single_job_is_shown_in_full() {
    let (test, app, inspector) = observed().await;
    let task = obedient(&test, &app, fast().retry(RetryPolicy::new().attempts(2)));
    let job = task.dispatch("wait gate".into()).id("job").priority(Priority::High).delay(Duration::from_millis(100));
    let job = job.attempts(5).max_stalls(3).timeout(MINUTE).header("tenant", "acme");
    job.await.unwrap();
    let one = async |values: JobValues| inspector.job(TASK, "job", values).await.unwrap().unwrap();
    let delayed = one(JobValues::None).await;
    assert_eq!((delayed.state, delayed.priority), (JobState::Delayed, Priority::High));
    assert!(delayed.due_at > delayed.dispatched_at && delayed.enqueued_at == delayed.dispatched_at, "{delayed:?}");
    assert_eq!((delayed.payload, delayed.payload_bytes, delayed.result_bytes), (None, 11, 0));
    let told = &delayed.options;
    assert_eq!((told.delay, told.attempts, told.max_count), (Some(Duration::from_millis(100)), Some(5), Some(3)));
    assert_eq!((told.timeout, told.headers["tenant"].as_str()), (Some(MINUTE), "acme"));

    let worker = TestWorker::start(app.worker());
    test.arrives("job", "running").await;
    let running = one(JobValues::Small).await;
    let run = &test.journal.runs_of("job")[0];
    assert_eq!((running.state, running.payload), (JobState::Running, Some("wait gate".into())));
    assert_eq!((running.worker.unwrap().as_str(), running.fence), (&*worker.id, Some(run.fence)));
    assert!(running.started_at >= delayed.due_at && running.ended_at.is_none() && running.due_at.is_none());
    test.run::<u64>("HSET", "cancelling", &["other", "-"]).await;
    assert_eq!(one(JobValues::None).await.cancel_requested, None);
    test.run::<u64>("DEL", "cancelling", &[]).await;
    test.journal.open("gate");
    test.arrives("job", "completed").await;
    let done = one(JobValues::Small).await;
    assert_eq!((done.state, done.worker.is_none(), done.error.is_none()), (JobState::Completed, true, true));
    assert_eq!((done.result, done.payload), (Some(run.fence.into()), Some("wait gate".into())));
    assert!(
        done.ended_at >= running.started_at && done.result_bytes == run.fence.to_string().len(),
        "{:?}",
        done.ended_at
    );
    let events: Vec<&str> = inspector.job_events(TASK, "job").await.unwrap().iter().map(Event::name).collect();
    assert_eq!(events, ["task:dispatched", "task:started", "task:completed"]);

    // A job that fails twice, and one whose worker becomes silent.
    task.dispatch("again 1".into()).id("fails").await.unwrap();
    test.arrives("fails", "failed").await;
    let failed = inspector.job(TASK, "fails", JobValues::None).await.unwrap().unwrap();
    let failure = failed.error.unwrap();
    assert_eq!(
        (failed.failed_attempts, failure.code.as_str(), failure.message.as_str()),
        (2, "handler_error", "once more")
    );
    assert_eq!((failed.options.attempts, failed.priority), (None, Priority::Normal));
    worker.stop().await;
    task.dispatch("ok".into()).id("stalls").await.unwrap();
    let mut dead = Puppet::of(&test).await;
    dead.claim_all(&["stalls"]).await;
    dead.sweep(0, "0", 200).await;
    let epoch = test.epoch().await;
    dead.sweep(epoch, "0", 200).await;
    eventually("it is silent", PATIENCE, async || {
        dead.sweep(test.epoch().await, "0", 200).await;
        inspector.job(TASK, "stalls", JobValues::None).await.unwrap().unwrap().stalled_count == 1
    })
    .await;
    let stalled = inspector.job(TASK, "stalls", JobValues::None).await.unwrap().unwrap();
    assert_eq!((stalled.state, stalled.failed_attempts), (JobState::Waiting, 0));
    let events: Vec<&str> = inspector.job_events(TASK, "stalls").await.unwrap().iter().map(Event::name).collect();
    assert_eq!(events, ["task:dispatched", "task:started", "task:stalled"]);
    assert_eq!(inspector.job(TASK, "never", JobValues::All).await.unwrap(), None);
    assert_eq!(inspector.job_events(TASK, "never").await.unwrap(), []);
    // The clock of the producer is far ahead.
    test.run::<u64>("HSET", "dispatchedAt", &["stalls", "9000000000000"]).await;
    let events: Vec<&str> = inspector.job_events(TASK, "stalls").await.unwrap().iter().map(Event::name).collect();
    assert_eq!(events, ["task:dispatched", "task:started", "task:stalled"]);
}

#[tokio::test]
async fn a_value_over_512_kib_is_returned_only_on_request() {
    let (_test, app) = shared().await;
    let inspector = app.inspector();
    let task = app.task(TASK, fast(), |_, text: String| async move { Ok::<_, JobError>(text) }).unwrap();
    let large = "x".repeat(600 << 10);
    let job = task.dispatch(large.clone()).id("large").await.unwrap();
    let worker = TestWorker::start(app.worker());
    assert_eq!(job.result().await.unwrap(), large);
    worker.stop().await;
    let job = async |values| inspector.job(TASK, "large", values).await.unwrap().unwrap();
    for values in [JobValues::None, JobValues::Small] {
        let told = job(values).await;
        assert_eq!((told.payload, told.result), (None, None));
        assert_eq!((told.payload_bytes, told.result_bytes), (large.len() + 2, large.len() + 2));
    }
    let told = job(JobValues::All).await;
    assert_eq!((told.payload, told.result), (Some(large.clone().into()), Some(large.into())));
}

#[tokio::test]
async fn a_stall_shows_who_watched_it_and_for_how_long() {
    let (test, app, inspector) = observed().await;
    let task = app.task_ref::<String, u64>(TASK).unwrap();
    test.journal.open("open");
    task.dispatch("open".into()).id("plain").await.unwrap();
    task.dispatch("open".into()).id("own").max_stalls(0).await.unwrap();
    let mut dead = Puppet::of(&test).await;
    dead.claim_all(&["plain", "own"]).await;
    let worker = test.start_worker(fast_with(StallOptions::new().max_count(2))).await;
    test.arrives("own", "failed").await;
    test.arrives("plain", "completed").await;
    let page = inspector.stalls(TASK, None).await.unwrap();
    assert_eq!((page.stalls.len(), &page.next), (2, &None));
    let of = |id: &str| page.stalls.iter().find(|report| report.stall.id.as_str() == id).unwrap();
    let plain = of("plain");
    assert_eq!(
        (plain.stall.action, plain.stall.reason, plain.by.as_deref()),
        (StallAction::Recovered, StallReason::Silent, None)
    );
    assert_eq!((plain.witness.as_str(), plain.interval, plain.max_count), (&*worker.id, Some(INTERVAL), Some(2)));
    assert!(plain.watched.unwrap() >= INTERVAL && plain.epoch.is_some(), "{plain:?}");
    assert!(plain.snapshot_at.unwrap() < plain.stall.at, "{plain:?}");
    let text = plain.to_string();
    let asker = plain.asker.as_ref().unwrap().as_str();
    assert!(asker == worker.id || asker == dead.name, "{text}");
    for part in [
        "job plain of the task work was held by ",
        &dead.name,
        &format!("{} watched for", worker.id),
        "of an interval of 1.0s",
        &format!("which {asker} had requested"),
        "stall 1, max_count 2: recovered",
    ] {
        assert!(text.contains(part), "{part:?} is not in {text:?}");
    }
    assert!(!text.contains('\n') && text.ends_with("recovered"), "the text names no worker: {text}");

    // By its id, with its own max count.
    let own = inspector.stall_history(TASK, "own").await.unwrap();
    assert_eq!((own.len(), own[0].max_count, own[0].stall.action), (1, Some(0), StallAction::Failed));
    assert!(own[0].to_string().ends_with("stall 1, max_count 0: failed"), "{}", own[0]);
    assert_eq!(inspector.stall_history(TASK, "plain").await.unwrap()[0].max_count, Some(2));
    assert_eq!(inspector.stall_history(TASK, "never").await.unwrap(), []);
    worker.stop().await;
}

#[tokio::test]
async fn stalls_are_paged_from_the_latest() {
    let (test, app, inspector) = observed().await;
    let task = app.task_ref::<u32, ()>(TASK).unwrap();
    let mut dead = Puppet::of(&test).await;
    // Each sweep writes one entry.
    for at in 0..45 {
        task.dispatch(0).id(format!("job-{at:02}")).max_stalls(0).await.unwrap();
        dead.claim(1).await;
        let epoch = test.epoch().await;
        dead.sweep(epoch, "0", 200).await.unwrap();
        dead.sweep(epoch + 1, "0", 200).await.unwrap();
    }
    let (mut found, mut cursor) = (Vec::new(), None);
    loop {
        let page = inspector.stalls(TASK, cursor.as_deref()).await.unwrap();
        found.extend(page.stalls.into_iter().map(|report| report.stall.id.to_string()));
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(found, (0..45).rev().map(|at| format!("job-{at:02}")).collect::<Vec<_>>());
}

#[tokio::test]
async fn the_outlook_says_who_resolves_silent_jobs_when_or_why_not() {
    let test = TestTask::plain();
    let (app, inspector) = inspector(&test).await;
    let task = app.task_ref::<String, u64>(TASK).unwrap();
    task.dispatch("gate".into()).id("silent").await.unwrap();
    let mut dead = Puppet::of(&test).await;
    dead.claim_all(&["silent"]).await;
    dead.sweep(0, "0", 200).await.unwrap();
    let outlook = inspector.recovery_status(TASK).await.unwrap();
    assert_eq!((outlook.watchers.len(), outlook.next_resolve_at, outlook.parts[0].candidates), (0, None, 1));
    let reasons = outlook.reasons.join("\n");
    assert!(reasons.contains("1 held job is without a heartbeat since the snapshot"), "{reasons}");
    assert!(reasons.contains("no worker watches the task: wait 10 s"), "{reasons}");

    let line = Proxy::start(test.redis().address()).await;
    let long = INTERVAL * 15;
    let worker = test.start_worker_at(&line.url(), options(long)).await;
    let watched = async || {
        let outlook = inspector.recovery_status(TASK).await.unwrap();
        outlook.next_resolve_at.is_some().then_some(outlook)
    };
    let outlook = eventually("somebody watches", PATIENCE, watched).await;
    let first = outlook.next_resolve_at.unwrap();
    assert!(first > outlook.as_of && first <= outlook.as_of + long, "{outlook:?}");
    let reasons = outlook.reasons.join("\n");
    assert!(reasons.contains(&format!("{} may resolve jobs that stay silent in", worker.id)), "{reasons}");
    assert_eq!((outlook.watchers[0].worker.as_str(), outlook.watchers[0].state), (&*worker.id, WorkerState::Live));

    line.drop_connections();
    let broken = async || {
        let outlook = inspector.recovery_status(TASK).await.unwrap();
        outlook.reasons.iter().any(|reason| reason.contains("its watch broke")).then_some(outlook)
    };
    let outlook = eventually("the break is reported", PATIENCE, broken).await;
    assert!(outlook.next_resolve_at.unwrap() > first, "the watch restarts: {outlook:?}");
    let reasons = outlook.reasons.join("\n");
    assert!(reasons.contains("connection_lost"), "{reasons}");
    worker.stop().await;
}

#[tokio::test]
async fn the_outlook_names_a_gone_worker_whose_long_interval_applies() {
    let (test, app, inspector) = observed().await;
    let long = test.start_worker(options(Duration::from_secs(600))).await;
    test.journal.open("go");
    let job = app.task_ref::<String, u64>(TASK).unwrap().dispatch("go".into()).await.unwrap();
    tokio::time::timeout(PATIENCE, job.result()).await.unwrap().unwrap();
    let asker = long.id.clone();
    let told = async || inspector.recovery_status(TASK).await.unwrap().reasons.join("\n");
    let says = format!("the stall interval is 10m 0s, requested by {asker}");
    // It requests the interval with its claim.
    let reasons = eventually("it has requested the interval", PATIENCE, async || {
        Some(told().await).filter(|it| it.contains(&says))
    })
    .await;
    assert!(!reasons.contains("has stopped"), "{reasons}");
    long.stop().await;
    let worker = test.start_worker(options(INTERVAL)).await;
    let reasons = told().await;
    assert!(reasons.contains(&format!("{says}, which has stopped: it shrinks at the second snapshot")), "{reasons}");
    worker.stop().await;
}

#[tokio::test]
async fn a_late_outcome_is_refused_and_shown_with_its_delay() {
    let test = TestTask::plain();
    let (app, inspector) = inspector(&test).await;
    let task = app.task_ref::<String, u64>(TASK).unwrap();
    let line = Proxy::start(test.redis().address()).await;
    // Its handler ignores the stop and returns after the network partition.
    let deaf = |journal: std::sync::Arc<crate::support::journal::Journal>, ctx: Context, gate: String| async move {
        journal.begin(&ctx);
        journal.opened(&gate).await;
        Ok(ctx.fence())
    };
    let cut_off = test.start_worker_with(&line.url(), options(INTERVAL).cancel_grace(MINUTE), deaf).await;
    cut_off.working().await;
    let job = task.dispatch("late".into()).id("job").await.unwrap();
    test.arrives("job", "running").await;
    assert_eq!(inspector.rejected_outcomes(TASK, 10).await.unwrap(), []);
    line.pause();
    let other = test.start_worker(fast()).await;
    eventually("the job runs elsewhere", PATIENCE, async || test.journal.runs_of("job").len() == 2).await;
    tokio::time::sleep(TWO_INTERVALS).await;
    test.journal.open("late");
    let runs = test.journal.runs_of("job");
    assert_eq!(job.result().await.unwrap(), runs[1].fence);
    line.resume();
    let late = async || inspector.rejected_outcomes(TASK, 10).await.unwrap().into_iter().next();
    let late = eventually("it is reported", PATIENCE, late).await;
    assert_eq!((late.id.as_str(), late.worker.as_str(), late.fence), ("job", &*cut_off.id, runs[0].fence));
    assert_eq!(late.outcome, RejectedOutcome::Completed);
    assert!(late.late_by.unwrap() >= TWO_INTERVALS && late.late_by.unwrap() < MINUTE, "{late:?}");
    assert_eq!(job.result().await.unwrap(), runs[1].fence, "it was not recorded");
    let names: Vec<&str> = inspector.job_events(TASK, "job").await.unwrap().iter().map(Event::name).collect();
    assert!(names.contains(&"task:outcome_rejected"), "{names:?}");
    assert_eq!(inspector.rejected_outcomes(TASK, 0).await.unwrap(), []);
    other.stop().await;
    cut_off.stop().await;
}

#[tokio::test]
async fn events_are_read_from_a_given_point_and_include_pauses() {
    let (_test, app, inspector) = observed().await;
    let task = app.task_ref::<u32, ()>(TASK).unwrap();
    let empty = inspector.events(TASK, None).await.unwrap();
    assert!(empty.events.is_empty() && !empty.has_more);
    task.dispatch(0).id("a").await.unwrap();
    let first = inspector.events(TASK, Some(&empty.next)).await.unwrap();
    assert!(matches!(&first.events[..], [TaskEvent::Job(Event::Dispatched { id, .. })] if id.as_str() == "a"));
    assert_eq!(inspector.events(TASK, Some(&first.next)).await.unwrap().events, []);
    let ada = inspector.clone().by("ada");
    ada.pause(TASK, "too much").await.unwrap();
    task.dispatch(0).id("b").await.unwrap();
    ada.clone().by("bob").resume(TASK).await.unwrap();
    let told = inspector.events(TASK, Some(&first.next)).await.unwrap().events;
    let [TaskEvent::Pause(paused), TaskEvent::Job(Event::Dispatched { .. }), TaskEvent::Pause(resumed)] = &told[..]
    else {
        panic!("{told:?}")
    };
    assert!(
        matches!(paused, PauseEvent::Paused { by, reason, task, .. } if (&**by, &**reason, &**task) == ("ada", "too much", TASK))
    );
    assert!(matches!(resumed, PauseEvent::Resumed { by, .. } if by == "bob"));
    // More than a page.
    for _ in 0..250 {
        task.dispatch(0).await.unwrap();
    }
    assert!(inspector.events(TASK, None).await.unwrap().has_more);
    assert_eq!(history(&inspector).await.len(), 254);
}

/// The value as JSON.
fn as_json(answer: &impl Serialize) -> serde_json::Value {
    serde_json::from_str(&serde_json::to_string(answer).unwrap()).unwrap()
}

#[tokio::test]
async fn every_reply_serializes_to_json_with_times_in_milliseconds() {
    let (test, app, inspector) = observed().await;
    ten_of_each(&test, &app).await;
    let mut puppet = Puppet::of(&test).await;
    for epoch in 0..2 {
        puppet.sweep(epoch, "0", 200).await.unwrap();
    }
    let worker = test.start_worker(fast()).await;
    let earlier = inspector.task(TASK).await.unwrap();
    inspector.pause(TASK, "json").await.unwrap();
    let task = inspector.task(TASK).await.unwrap();
    let json = as_json(&task);
    let ms = |at: SystemTime| u64::try_from(at.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis()).unwrap();
    assert_eq!(json["as_of_ms"], ms(task.as_of));
    assert_eq!((&json["task"], &json["paused"]["reason"]), (&TASK.into(), &"json".into()));
    assert!(json["next_waiting_age_ms"].is_u64() && json["parts"][0]["interval_ms"].is_u64(), "{json}");
    eventually("the worker is listed", PATIENCE, async || !inspector.workers().await.unwrap().is_empty()).await;
    as_json(&task.rates_since(&earlier));
    as_json(&inspector.tasks().await.unwrap());
    let json = as_json(&inspector.workers().await.unwrap());
    assert!(json[0]["last_seen_at_ms"].is_u64() && json[0]["state"] == "live", "{json}");
    for state in ["waiting", "delayed", "running", "completed", "failed", "cancelled"] {
        let filter = JobFilter::new(state.parse().unwrap());
        assert_eq!(as_json(&filter)["state"], state);
        let page = inspector.jobs(TASK, &filter, None, 5).await.unwrap();
        let json = as_json(&page);
        assert!(json["jobs"].as_array().unwrap().len() == page.jobs.len() && json["as_of_ms"].is_u64(), "{json}");
        as_json(&inspector.count(TASK, &filter.message_contains("no")).await.unwrap());
    }
    let json = as_json(&inspector.job(TASK, "failed-1", JobValues::All).await.unwrap());
    assert!(json["ended_at_ms"].is_u64() && json["error"]["code"] == "own" && json["options"].is_object(), "{json}");
    let json = as_json(&inspector.stalls(TASK, None).await.unwrap());
    assert!(json["stalls"][0]["witness"].is_string() && json["stalls"][0]["id"].is_string(), "{json}");
    as_json(&inspector.stall_history(TASK, "running-1").await.unwrap());
    let json = as_json(&inspector.recovery_status(TASK).await.unwrap());
    assert!(json["reasons"].is_array() && json["parts"].is_array(), "{json}");
    let json = as_json(&inspector.events(TASK, None).await.unwrap());
    let kinds: BTreeSet<&str> =
        json["events"].as_array().unwrap().iter().filter_map(|event| event["event"].as_str()).collect();
    assert!(kinds.contains("dispatched") && kinds.contains("paused") && kinds.contains("stalled"), "{kinds:?}");
    as_json(&inspector.job_events(TASK, "failed-1").await.unwrap());
    as_json(&inspector.rejected_outcomes(TASK, 5).await.unwrap());
    as_json(&inspector.silent_jobs(TASK, None).await.unwrap());
    let json = as_json(&inspector.retry(TASK, ["completed-1", "failed-1", "!{"]).await.unwrap());
    assert_eq!((&json["done"], &json["refused"], &json["is_complete"]), (&1.into(), &2.into(), &true.into()));
    assert_eq!(json["refusals"][0]["why"]["state"], "completed", "{json}");
    let audit = inspector.audit(TASK).await.unwrap();
    assert_eq!(as_json(&audit)["task"], TASK);
    as_json(&inspector.preview_repair(&audit).await.unwrap());
    as_json(&inspector.forget_task(TASK).await.unwrap());
    as_json(&inspector.resume(TASK).await.unwrap());
    worker.stop().await;
    as_json(&inspector.recover_running(TASK, SilentSelection::ids(["!{"])).await.unwrap());
    as_json(&inspector.workers().await.unwrap());
}

#[tokio::test]
async fn an_inspector_adds_nothing_to_its_app() {
    let (test, app) = shared().await;
    let inspector = app.inspector();
    let before = format!("{app:?}");
    assert!(!before.contains(TASK), "{before}");
    let mut events = app.events();
    let worker = test.start_worker(fast()).await;
    test.journal.open("go");
    inspector.dispatch_json(TASK, "go").unwrap().id("job").await.unwrap();
    inspector.result_json(TASK, "job").await.unwrap();
    assert_eq!(inspector.wait(TASK, "job", PATIENCE).await.unwrap(), JobState::Completed);
    inspector.task(TASK).await.unwrap();
    inspector.jobs(TASK, &JobFilter::new(JobState::Completed), None, 10).await.unwrap();
    inspector.job(TASK, "job", JobValues::All).await.unwrap();
    inspector.events(TASK, None).await.unwrap();
    inspector.retry(TASK, "job").await.unwrap();
    inspector.pause(TASK, "").await.unwrap();
    inspector.resume(TASK).await.unwrap();
    inspector.audit(TASK).await.unwrap();
    assert_eq!(format!("{app:?}"), before);
    // The subscription covers the tasks of the App, which is only this one: its first event is of this task.
    let own = app.task_ref::<u32, ()>("own").unwrap();
    own.dispatch(0).id("own").await.unwrap();
    let first = crate::support::events::next(&mut events).await;
    assert_eq!((first.task(), first.id().as_str()), ("own", "own"), "{first:?}");
    worker.stop().await;
}

#[tokio::test]
async fn an_invalid_name_id_cursor_or_limit_is_an_error_of_the_caller() {
    let (test, app, inspector) = observed().await;
    ten_of_each(&test, &app).await;
    let failed = JobFilter::new(JobState::Failed);
    for name in ["", "a b", "a{b}", "é", "a:b\n", &"x".repeat(200)] {
        is_config(inspector.task(name).await);
        is_config(inspector.jobs(name, &failed, None, 10).await);
        is_config(inspector.count(name, &failed).await);
        is_config(inspector.job(name, "a", JobValues::None).await);
        is_config(inspector.events(name, None).await);
        is_config(inspector.job_events(name, "a").await);
        is_config(inspector.rejected_outcomes(name, 1).await);
        is_config(inspector.stalls(name, None).await);
        is_config(inspector.stall_history(name, "a").await);
        is_config(inspector.recovery_status(name).await);
        is_config(inspector.silent_jobs(name, None).await);
        is_config(inspector.sweep_now(name).await);
        is_config(inspector.recover_running(name, SilentSelection::all()).await);
        is_config(inspector.recover_running(name, SilentSelection::ids(["{"])).await);
        is_config(inspector.fail_running(name, SilentSelection::all()).await);
        is_config(inspector.retry(name, "a").await);
        is_config(inspector.retry(name, "{").await);
        is_config(inspector.run_now(name, failed.clone()).await);
        is_config(inspector.cancel(name, "a", "").await);
        is_config(inspector.remove(name, Vec::<String>::new()).await);
        is_config(inspector.purge(name, JobState::Failed).await);
        is_config(inspector.pause(name, "").await);
        is_config(inspector.resume(name).await);
        is_config(inspector.forget_task(name).await);
        is_config(inspector.audit(name).await);
        is_config(inspector.dispatch_json(name, 1).map(drop));
        is_config(inspector.result_json(name, "a").await);
        is_config(inspector.wait(name, "a", PATIENCE).await);
    }
    for id in ["", "a b", "a{b}", "é", "a\n", &"x".repeat(129)] {
        is_config(inspector.job(TASK, id, JobValues::None).await);
        is_config(inspector.job_events(TASK, id).await);
        is_config(inspector.stall_history(TASK, id).await);
        is_config(inspector.result_json(TASK, id).await);
        is_config(inspector.wait(TASK, id, PATIENCE).await);
    }
    for limit in [0, 1001, usize::MAX] {
        is_config(inspector.jobs(TASK, &failed, None, limit).await);
    }
    let wrong = ["x", " ", "1", "1 2 3", "nan a", "1 a\n", "+1 2", "12 3", "9 1", "0 1", "-1 a b", "1 ", "\u{e9} 1"];
    for state in [JobState::Waiting, JobState::Running, JobState::Failed, JobState::Delayed] {
        for cursor in wrong {
            // Another state has some of them too.
            let is_one_of = match state {
                JobState::Running => cursor == "1",
                JobState::Waiting => false,
                _ => ["12 3", "9 1", "0 1", "+1 2"].contains(&cursor),
            };
            if !is_one_of {
                is_config(inspector.jobs(TASK, &JobFilter::new(state), Some(cursor), 10).await);
            }
        }
    }
    for cursor in ["x", "1-", "-", "1 2", "1-2-3", "(1-0", "+"] {
        is_config(inspector.events(TASK, Some(cursor)).await);
        is_config(inspector.stalls(TASK, Some(cursor)).await);
    }
    for cursor in ["x", "-1", "1 2", "1.5"] {
        is_config(inspector.silent_jobs(TASK, Some(cursor)).await);
    }
    // Cursors of pages are accepted.
    for state in ["waiting", "delayed", "running", "completed", "failed", "cancelled"] {
        let filter = JobFilter::new(state.parse().unwrap());
        pages(&inspector, &filter, 1).await;
    }
}

#[tokio::test]
async fn reads_fail_in_an_outage_and_succeed_after_it() {
    let redis = TestRedis::start();
    let line = Proxy::start(redis.address()).await;
    let inspector = App::builder().redis(line.url()).build().await.unwrap().inspector();
    inspector.task(TASK).await.unwrap();
    line.refuse().await;
    let away = inspector.task(TASK).await.unwrap_err();
    assert!(matches!(away, Error::Connect { .. }), "{away:?}");
    assert!(inspector.tasks().await.is_err() && inspector.workers().await.is_err());
    line.accept().await;
    eventually("reads succeed again", PATIENCE, async || inspector.task(TASK).await.is_ok()).await;
}

#[tokio::test]
async fn a_damaged_task_does_not_hide_the_others() {
    let (test, app, inspector) = observed().await;
    for name in ["good", TASK] {
        app.task_ref::<u64, u64>(name).unwrap().dispatch(1).await.unwrap();
    }
    test.run::<String>("SET", "failed", &["x"]).await;
    let tasks = inspector.tasks().await.unwrap();
    let told: Vec<(&str, u64, bool)> =
        tasks.iter().map(|task| (&*task.task, task.counts.waiting, task.fault.is_some())).collect();
    assert_eq!(told, [("good", 1, false), (TASK, 0, true)]);
    assert!(
        tasks[1].fault.as_deref().is_some_and(|fault| fault.contains("is a string and should be a zset")),
        "{:?}",
        tasks[1].fault
    );
}

#[tokio::test]
async fn waits_for_many_jobs_share_their_connections() {
    // No other client connects to it.
    let redis = TestRedis::start();
    let test = TestTask::new();
    let app = test.app_at(&redis.app_url()).await;
    let (inspector, task) = (app.inspector(), app.task_ref::<String, u64>(TASK).unwrap());
    let mut waits = Vec::new();
    for _ in 0..50 {
        let id = task.dispatch("gate".into()).await.unwrap().id().to_string();
        let inspector = inspector.clone();
        waits.push(tokio::spawn(async move { inspector.wait(TASK, &id, PATIENCE).await }));
    }
    test.journal.open("gate");
    let worker = test.start_worker_at(&redis.app_url(), fast()).await;
    for wait in waits {
        assert_eq!(wait.await.unwrap().unwrap(), JobState::Completed);
    }
    // These include the connections of the worker.
    let connections = stat(&mut redis.conn().await, "total_connections_received").await;
    assert!(connections < 40, "{connections}");
    worker.stop().await;
}

#[tokio::test]
async fn the_server_report_has_its_version_and_its_persistence() {
    let redis = TestRedis::start();
    let mut conn = redis.conn().await;
    for (name, value) in [("maxmemory", "64mb"), ("maxmemory-policy", "noeviction"), ("appendonly", "yes")] {
        let () = redis::cmd("CONFIG").arg("SET").arg(name).arg(value).query_async(&mut conn).await.unwrap();
    }
    let test = TestTask::on(&redis);
    let (_, inspector) = inspector(&test).await;
    let servers = inspector.servers().await.unwrap();
    let [server] = &servers[..] else { panic!("{servers:?}") };
    assert!(redis.url().starts_with(server.place.trim_end_matches("/0")) && server.fault.is_none(), "{server:?}");
    assert!(["redis", "valkey"].contains(&&*server.name) && server.version.contains('.'), "{server:?}");
    assert_eq!((server.is_primary, server.replicas, server.is_saved_well), (true, 0, true), "{server:?}");
    assert_eq!((server.max_memory, &*server.eviction_policy), (64 << 20, "noeviction"), "{server:?}");
    assert!(server.has_append_only_file && server.used_memory > 0 && server.clients > 0, "{server:?}");
    assert!(server.round_trip > Duration::ZERO && server.longest_round_trip >= server.round_trip, "{server:?}");
    let off = server.clock.duration_since(SystemTime::now()).unwrap_or_else(|e| e.duration());
    assert!(off < PATIENCE, "{server:?}");
}

#[tokio::test]
async fn the_size_of_the_columns_is_reported_whatever_they_contain() {
    let (test, app, inspector) = observed().await;
    assert_eq!(inspector.columns(TASK).await.unwrap(), []);
    is_config(inspector.columns("a b").await);
    let task = obedient(&test, &app, fast());
    let one = "x".repeat(4096);
    task.dispatch_many((0..100).map(|_| one.clone())).await.unwrap();
    let columns = inspector.columns(TASK).await.unwrap();
    assert!(columns.is_sorted_by(|a, b| a.bytes >= b.bytes), "{columns:?}");
    let largest = &columns[0];
    assert_eq!((&*largest.task, &*largest.column), (TASK, "payload"), "{columns:?}");
    assert!((400_000..4_000_000).contains(&largest.bytes), "{columns:?}");
    assert!(columns.iter().any(|column| column.column == "meta"), "{columns:?}");
}

#[tokio::test]
async fn dead_workers_are_listed_with_a_full_page_of_live_ones() {
    let (test, _app, inspector) = observed().await;
    let mut conn = test.redis().conn().await;
    let (seconds, _): (u64, u64) = redis::cmd("TIME").query_async(&mut conn).await.unwrap();
    let (now, workers) = (seconds * 1000, format!("{}:workers", test.prefix));
    let mut pipe = redis::pipe();
    for at in 0..1500 {
        pipe.zadd(&workers, format!("live-{at}-00000000"), now + 60_000).ignore();
    }
    for at in 0..3 {
        pipe.zadd(&workers, format!("dead-{at}-00000000"), now - 60_000 - at).ignore();
    }
    let () = pipe.query_async(&mut conn).await.unwrap();
    let listed = inspector.workers().await.unwrap();
    let (live, others) = listed.split_at(1500);
    assert!(live.iter().all(|worker| worker.state == WorkerState::Live));
    let others: Vec<_> = others.iter().map(|worker| (worker.worker.to_string(), worker.state)).collect();
    let silent = |at: u32| (format!("dead-{at}-00000000"), WorkerState::Silent);
    assert_eq!(others, [silent(0), silent(1), silent(2)]);
}
