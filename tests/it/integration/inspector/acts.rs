//! Actions of the Inspector on jobs and tasks, and what it refuses.

use std::time::Duration;

use heartline::{
    Error, Event, ForgetOutcome, JobFilter, JobSelection, JobState, JobValues, RefusalReason, RetryPolicy, TaskCounts,
};

use super::{
    a_millisecond_passes, all, events_by_job, ids, inspector, is_sound, obedient, observed, seed, stored_error,
};
use crate::integration::fixtures::alone;
use crate::support::puppet::Puppet;
use crate::support::task::{TASK, TestTask, fast};
use crate::support::worker::TestWorker;
use crate::support::{PATIENCE, Proxy, calls, eventually};

const MINUTE: Duration = Duration::from_secs(60);

/// One job in each state, named after it.
async fn one_of_each(test: &TestTask, app: &heartline::App) {
    let task = app.task_ref::<String, u64>(TASK).unwrap();
    let mut puppet = Puppet::of(test).await;
    for id in ["completed", "failed", "running"] {
        task.dispatch(String::new()).id(id).await.unwrap();
        let held = puppet.claim_all(&[id]).await;
        let error = stored_error("own", "no");
        match id {
            "completed" => drop(puppet.settle(&held, &[], 0).await),
            "failed" => drop(puppet.settle(&[], &[(&held[0], "failed", 1, "own no 5", &error)], 0).await),
            _ => {}
        }
    }
    task.dispatch(String::new()).id("cancelled").await.unwrap().cancel("enough").await.unwrap();
    task.dispatch(String::new()).id("delayed").delay(MINUTE).await.unwrap();
    task.dispatch(String::new()).id("waiting").await.unwrap();
}

const STATES: [JobState; 6] = [
    JobState::Waiting,
    JobState::Delayed,
    JobState::Running,
    JobState::Completed,
    JobState::Failed,
    JobState::Cancelled,
];

#[tokio::test]
async fn every_action_takes_jobs_in_its_states_and_explains_the_rest() {
    use JobState::{Cancelled, Completed, Delayed, Failed, Running, Waiting};
    for (act, taken) in [
        ("retry", &[Failed, Cancelled][..]),
        ("run_now", &[Delayed]),
        ("cancel", &[Waiting, Delayed]),
        ("remove", &[Waiting, Delayed, Completed, Failed, Cancelled]),
    ] {
        let (test, app, inspector) = observed().await;
        let inspector = inspector.by("ada");
        one_of_each(&test, &app).await;
        let mut named: Vec<String> = STATES.iter().map(ToString::to_string).collect();
        named.extend(["never", "no id", "", "waiting", "never"].map(str::to_owned));
        let done = match act {
            "retry" => inspector.retry(TASK, named),
            "run_now" => inspector.run_now(TASK, named),
            "cancel" => inspector.cancel(TASK, named, "why"),
            _ => inspector.remove(TASK, named),
        };
        let report = done.await.unwrap();
        assert_eq!(report.done, taken.len() as u64, "{act}: {report:?}");
        assert_eq!(report.requested, u64::from(act == "cancel"), "{act}: {report:?}");
        let mut wanted: Vec<(String, RefusalReason)> = STATES
            .iter()
            .filter(|state| !(taken.contains(state) || act == "cancel" && **state == Running))
            .map(|state| (state.to_string(), RefusalReason::State(*state)))
            .collect();
        wanted.push(("never".to_owned(), RefusalReason::Unknown));
        wanted.extend(["no id", ""].map(|id| (id.to_owned(), RefusalReason::InvalidId)));
        let told: Vec<(String, RefusalReason)> =
            report.refusals.iter().map(|refused| (refused.id.clone(), refused.why)).collect();
        assert_eq!(told, wanted, "{act}");
        assert_eq!((report.refused, report.looked, report.is_complete), (wanted.len() as u64, 11, true), "{act}");
        let texts: Vec<String> = report.refusals.iter().map(|refused| refused.why.to_string()).collect();
        assert!(texts.contains(&"there is no such job".to_owned()), "{texts:?}");

        // Each accepted job is in its new place, and the event names the actor.
        let (place, event) = match act {
            "retry" => (Some("wait"), "task:manually_retried"),
            "run_now" => (Some("wait"), "task:promoted"),
            "cancel" => (Some("cancelled"), "task:cancelled"),
            _ => (None, "task:removed"),
        };
        let told = events_by_job(&inspector).await;
        for state in taken {
            let id = state.as_str();
            let job = inspector.job(TASK, id, JobValues::None).await.unwrap();
            let places: Vec<String> = test.places(id).await.into_iter().collect();
            match place {
                Some("wait") => {
                    assert!(places.iter().all(|place| place == "wait") && !places.is_empty(), "{act} {id}: {places:?}")
                }
                Some(place) => assert!(places.iter().any(|its| its == place), "{act} {id}: {places:?}"),
                None => assert_eq!(job, None, "{act} {id}"),
            }
            let last = told[id].last().unwrap();
            let by = match last {
                Event::ManuallyRetried { by, .. }
                | Event::Promoted { by, .. }
                | Event::Cancelled { by, .. }
                | Event::Removed { by, .. } => by,
                other => panic!("{act} {id}: {other:?}"),
            };
            assert_eq!((last.name(), by.as_deref()), (event, Some("ada")), "{act} {id}");
        }
        is_sound(&inspector).await;
    }
}

#[tokio::test]
async fn a_retried_job_starts_over_under_its_id() {
    let (test, app, inspector) = observed().await;
    let task = obedient(&test, &app, fast().retry(RetryPolicy::new().attempts(2)));
    task.dispatch("again 1".into()).id("fails").await.unwrap();
    let worker = TestWorker::start(app.worker());
    test.arrives("fails", "failed").await;
    assert_eq!(inspector.retry(TASK, "fails").await.unwrap().done, 1);
    eventually("both attempts are made again", PATIENCE, async || test.journal.runs_of("fails").len() == 4).await;
    test.arrives("fails", "failed").await;
    let job = inspector.job(TASK, "fails", JobValues::None).await.unwrap().unwrap();
    assert_eq!((job.failed_attempts, job.stalled_count), (2, 0));
    worker.stop().await;

    // A job that stalled, snoozed and was then cancelled.
    task.dispatch("ok".into()).id("stalls").await.unwrap();
    let mut dead = Puppet::of(&test).await;
    dead.claim_all(&["stalls"]).await;
    task.handle("stalls").unwrap().cancel("enough").await.unwrap();
    for _ in 0..2 {
        dead.sweep(test.epoch().await, "0", 200).await.unwrap();
    }
    test.arrives("stalls", "cancelled").await;
    test.run::<u64>("HSET", "snoozes", &["stalls", "3 0"]).await;
    let job = inspector.job(TASK, "stalls", JobValues::None).await.unwrap().unwrap();
    assert_eq!((job.stalled_count, job.error.unwrap().message.as_str()), (1, "enough"));
    let dispatched_at = job.dispatched_at;
    inspector.retry(TASK, "stalls").await.unwrap();
    let job = inspector.job(TASK, "stalls", JobValues::None).await.unwrap().unwrap();
    assert_eq!((job.state, job.stalled_count, job.failed_attempts, job.snoozed_count), (JobState::Waiting, 0, 0, 0));
    assert_eq!((job.error, job.cancel_requested, job.dispatched_at), (None, None, dispatched_at));
    for column in ["error", "stalledCount", "attempt", "snoozes", "cancelling"] {
        assert_eq!(test.column(column, "stalls").await, None, "{column}");
    }
    let worker = TestWorker::start(app.worker());
    test.arrives("stalls", "completed").await;
    worker.stop().await;
    is_sound(&inspector).await;
}

#[tokio::test]
async fn run_now_of_a_delayed_job_wakes_an_idle_worker() {
    let (test, app, inspector) = observed().await;
    let task = obedient(&test, &app, fast());
    let worker = TestWorker::start(app.worker());
    worker.working().await;
    let job = task.dispatch("ok".into()).id("later").delay(MINUTE * 60).await.unwrap();
    assert_eq!(inspector.run_now(TASK, JobFilter::new(JobState::Delayed)).await.unwrap().done, 1);
    let begun = std::time::Instant::now();
    tokio::time::timeout(PATIENCE, job.result()).await.expect("it runs").unwrap();
    // An idle worker would poll only after 5 s.
    assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
    worker.stop().await;
}

#[tokio::test]
async fn a_cancel_of_a_waiting_job_does_not_scan_its_list() {
    let (redis, test) = alone();
    let app = test.app().await;
    let inspector = app.inspector();
    test.declared().await;
    let task = app.task_ref::<u32, ()>(&test.name).unwrap();
    task.dispatch_many(0..5000).await.unwrap();
    task.dispatch(0).id("middle").await.unwrap();
    task.dispatch_many(0..5000).await.unwrap();
    let mut conn = redis.conn().await;
    let before = calls(&mut conn, &["lrem", "lpos"]).await;
    let read = calls(&mut conn, &["lrange"]).await;
    assert_eq!(inspector.cancel(&test.name, "middle", "").await.unwrap().done, 1);
    assert_eq!(calls(&mut conn, &["lrem", "lpos"]).await, before, "the cancel scanned the list");
    // Only the heads of the three lists are read; the lists keep their length.
    assert!(calls(&mut conn, &["lrange"]).await - read <= 3);
    let counts = inspector.task(&test.name).await.unwrap().counts;
    assert_eq!((counts.waiting, counts.cancelled), (10_000, 1));
    assert_eq!(test.run::<u64>("LLEN", "wait", &[]).await, 10_001);
}

#[tokio::test]
async fn a_purge_removes_every_job_of_its_state_without_a_trace() {
    for state in STATES {
        let (test, app, inspector) = observed().await;
        one_of_each(&test, &app).await;
        let report = inspector.purge(TASK, state).await.unwrap();
        if state == JobState::Running {
            assert_eq!(
                (report.done, report.refused, report.refusals[0].why),
                (0, 1, RefusalReason::State(JobState::Running))
            );
            continue;
        }
        assert_eq!((report.done, report.refused), (1, 0), "{state}");
        let counts: TaskCounts = inspector.task(TASK).await.unwrap().counts;
        assert_eq!(STATES.map(|other| counts.count(other)), STATES.map(|other| u64::from(other != state)), "{state}");
        for (key, content) in test.redis().dump(&test.key("")).await {
            // Its tombstone stays in the list until a claim, and its history is kept.
            let tells =
                ["events", "stalls", "replies", "meta", "wait", "tombstones"].iter().any(|name| key.ends_with(name));
            assert!(tells || !content.contains(&format!("\"{state}\"")), "{state}: {key}: {content}");
        }
        is_sound(&inspector).await;
    }
}

#[tokio::test]
async fn only_the_first_thousand_refusals_are_listed() {
    let (_test, _app, inspector) = observed().await;
    let named: Vec<String> = (0..1300).map(|at| format!("never-{at}")).collect();
    let mut act = inspector.retry(TASK, named.clone());
    let mut looked = Vec::new();
    while let Some(so_far) = act.next_batch().await.unwrap() {
        looked.push(so_far.looked);
    }
    assert_eq!(looked, [200, 400, 600, 800, 1000, 1200, 1300]);
    let report = act.report();
    assert_eq!((report.refused, report.refusals.len(), report.is_complete), (1300, 1000, true));
    let told: Vec<&str> = report.refusals.iter().map(|refused| refused.id.as_str()).collect();
    assert_eq!(told, named[..1000]);
}

#[tokio::test]
async fn an_action_by_filter_can_be_stopped_between_its_steps() {
    let (test, _app, inspector) = observed().await;
    let failed = |at: u64| (format!("job-{at:04}"), 1_000_000 + at, stored_error("own", "no"));
    seed(&test, "failed", (0..1100).map(failed)).await;
    let mut act = inspector.retry(TASK, JobFilter::new(JobState::Failed));
    let mut done = Vec::new();
    for _ in 0..3 {
        let so_far = act.next_batch().await.unwrap().unwrap();
        assert!(!so_far.is_complete);
        done.push(so_far.done);
    }
    assert_eq!(done, [200, 400, 600]);
    drop(act);
    let counts = inspector.task(TASK).await.unwrap().counts;
    assert_eq!((counts.waiting, counts.failed), (600, 500), "finished steps are kept");
    let rest = inspector.retry(TASK, JobFilter::new(JobState::Failed)).await.unwrap();
    assert_eq!((rest.done, rest.refused, rest.is_complete), (500, 0, true));
    // A filter on contents scans at most a thousand jobs a step.
    let mut act = inspector.remove(TASK, JobFilter::new(JobState::Waiting).message_contains("nowhere"));
    let mut looked = Vec::new();
    while let Some(so_far) = act.next_batch().await.unwrap() {
        looked.push(so_far.looked);
    }
    assert_eq!((looked, act.report().done), (vec![1000, 1100], 0));
    is_sound(&inspector).await;
}

#[tokio::test]
async fn an_action_by_filter_takes_only_jobs_as_they_were_at_start() {
    let (test, app, inspector) = observed().await;
    let task = app.task_ref::<String, u64>(TASK).unwrap();
    // Failed jobs: others fail, and retried ones fail again, between the steps.
    let failed = |at: u64| (format!("job-{at:04}"), 1_000_000 + at, stored_error("own", "no"));
    seed(&test, "failed", (0..500).map(failed)).await;
    let mut act = inspector.retry(TASK, JobFilter::new(JobState::Failed));
    act.next_batch().await.unwrap();
    a_millisecond_passes(&inspector).await;
    let mut puppet = Puppet::of(&test).await;
    let again = puppet.claim(100).await;
    let error = stored_error("own", "again");
    let said: Vec<_> = again.iter().map(|token| (token, "failed", 1, "own again 5", &*error)).collect();
    puppet.settle(&[], &said, 0).await;
    task.dispatch(String::new()).id("new").await.unwrap();
    let new = puppet.claim(200).await;
    let new = new.iter().find(|token| token.id == "new");
    if let Some(token) = new {
        puppet.settle(&[], &[(token, "failed", 1, "own again 5", &error)], 0).await;
    }
    while act.next_batch().await.unwrap().is_some() {}
    assert_eq!((act.report().done, act.report().refused), (500, 0), "{:?}", act.report());
    let left = all(&inspector, &JobFilter::new(JobState::Failed)).await;
    assert_eq!(left.len(), 100 + usize::from(new.is_some()), "the jobs that failed since then");

    // Waiting and delayed jobs: others are dispatched between the steps.
    let test = TestTask::new();
    let (app, inspector) = super::inspector(&test).await;
    let task = app.task_ref::<u32, ()>(TASK).unwrap();
    for state in [JobState::Waiting, JobState::Delayed] {
        let delay = if state == JobState::Delayed { MINUTE } else { Duration::ZERO };
        for at in 0..450 {
            task.dispatch(0).id(format!("{state}-{at}")).delay(delay).await.unwrap();
        }
        a_millisecond_passes(&inspector).await;
        let mut act = inspector.cancel(TASK, JobFilter::new(state), "");
        act.next_batch().await.unwrap();
        a_millisecond_passes(&inspector).await;
        for at in 0..50 {
            task.dispatch(0).id(format!("{state}-new-{at}")).delay(delay).await.unwrap();
        }
        while act.next_batch().await.unwrap().is_some() {}
        assert_eq!(act.report().done, 450, "{state}: {:?}", act.report());
        let left = all(&inspector, &JobFilter::new(state)).await;
        assert!(left.len() == 50 && ids(&left).iter().all(|id| id.contains("new")), "{state}: {left:?}");
        inspector.purge(TASK, state).await.unwrap();
    }
    is_sound(&inspector).await;
}

#[tokio::test]
async fn an_action_with_a_lost_reply_is_safely_repeated() {
    for (act, state, place, event) in [
        ("retry", "failed", Some("wait"), "task:manually_retried"),
        ("run_now", "delayed", Some("wait"), "task:promoted"),
        ("cancel", "waiting", Some("cancelled"), "task:cancelled"),
        ("remove", "completed", None, "task:removed"),
    ] {
        for by_filter in [false, true] {
            let test = TestTask::plain();
            let (direct, looks) = inspector(&test).await;
            one_of_each(&test, &direct).await;
            let line = Proxy::start(test.redis().address()).await;
            let app = test.app_at(&line.url()).await;
            let inspector = app.inspector();
            // By now the server knows the script, so the call is made by its hash.
            let sha = test.sha(act).await;
            let cut = line.cut_next_reply_to(sha);
            let selection: JobSelection =
                if by_filter { JobFilter::new(state.parse().unwrap()).into() } else { state.into() };
            let mut made = match act {
                "retry" => inspector.retry(TASK, selection),
                "run_now" => inspector.run_now(TASK, selection),
                "cancel" => inspector.cancel(TASK, selection, ""),
                _ => inspector.remove(TASK, selection),
            };
            let first = made.next_batch().await.map(drop);
            cut.happened().await;
            // An id alone may be a different job by now, so the caller decides about a repeat.
            assert_eq!(first.is_ok(), by_filter, "{act}: {first:?}");
            while made.next_batch().await.unwrap().is_some() {}
            let report = made.report();
            // The second call does not find it in its old place and reports that; the action still counts once.
            assert_eq!((report.looked, report.done, report.refused), (1, 0, 1), "{act} {by_filter}: {report:?}");
            let job = looks.job(TASK, state, JobValues::None).await.unwrap();
            let stands = job.map(|job| job.state.to_string().replace("waiting", "wait"));
            assert_eq!(stands.as_deref(), place, "{act} {by_filter}");
            let events = events_by_job(&looks).await;
            assert_eq!(events[state].iter().filter(|its| its.name() == event).count(), 1, "{act} {by_filter}");
            is_sound(&looks).await;
        }
    }
}

#[tokio::test]
async fn a_task_is_forgotten_only_without_workers_and_jobs() {
    let (test, app, inspector) = observed().await;
    let task = obedient(&test, &app, fast());
    let worker = TestWorker::start(app.worker());
    let id = worker.id.clone();
    task.dispatch("ok".into()).id("job").await.unwrap();
    test.arrives("job", "completed").await;
    let refused = async || inspector.forget_task(TASK).await.unwrap();
    eventually("the worker has written its record", PATIENCE, async || {
        matches!(refused().await, ForgetOutcome::Worked(workers) if workers.iter().map(|w| w.as_str()).eq([&*id]))
    })
    .await;
    worker.stop().await;
    assert_eq!(refused().await, ForgetOutcome::HasJobs(1));
    inspector.purge(TASK, JobState::Completed).await.unwrap();
    assert_eq!(refused().await, ForgetOutcome::Forgotten);
    assert_eq!(test.redis().dump(&test.key("")).await.keys().collect::<Vec<_>>(), Vec::<&String>::new());
    assert!(!inspector.task_names().await.unwrap().contains(&TASK.to_owned()));
    assert_eq!(refused().await, ForgetOutcome::Forgotten, "it is safe to repeat");
    // The next dispatch of this process lists it again.
    task.dispatch("ok".into()).id("new").await.unwrap();
    assert_eq!(inspector.task_names().await.unwrap(), [TASK]);
    let worker = TestWorker::start(test_app_with(&test).await.worker());
    test.arrives("new", "completed").await;
    worker.stop().await;
}

/// An App whose worker completes jobs.
async fn test_app_with(test: &TestTask) -> heartline::App {
    let app = test.app().await;
    obedient(test, &app, fast());
    app
}

#[tokio::test]
async fn a_job_is_dispatched_and_read_without_its_types() {
    let (test, _app, inspector) = observed().await;
    let app = test_app_with(&test).await;
    let worker = TestWorker::start(app.worker());
    let dispatched = inspector.dispatch_json(TASK, "ok").unwrap().id("ok").header("a", "b").await.unwrap();
    assert_eq!(dispatched.id().as_str(), "ok");
    let value = inspector.result_json(TASK, "ok").await.unwrap();
    assert_eq!(value.get(), test.journal.runs_of("ok")[0].fence.to_string());
    assert_eq!(inspector.wait(TASK, "ok", PATIENCE).await.unwrap(), JobState::Completed);
    inspector.dispatch_json(TASK, "fail own no").unwrap().id("fails").await.unwrap();
    assert_eq!(inspector.wait(TASK, "fails", PATIENCE).await.unwrap(), JobState::Failed);
    assert!(
        matches!(inspector.result_json(TASK, "fails").await, Err(Error::JobFailed(failure)) if failure.code == "own")
    );
    inspector.dispatch_json(TASK, "wait gate").unwrap().id("waits").await.unwrap();
    let late = inspector.wait(TASK, "waits", Duration::from_millis(50)).await.unwrap_err();
    assert!(matches!(late, Error::TimedOut { .. }), "{late:?}");
    inspector.cancel(TASK, "waits", "").await.unwrap();
    assert_eq!(inspector.wait(TASK, "waits", PATIENCE).await.unwrap(), JobState::Cancelled);
    assert!(matches!(inspector.wait(TASK, "never", PATIENCE).await, Err(Error::JobNotFound { .. })));
    worker.stop().await;
}

#[tokio::test]
async fn the_actor_is_in_the_events_escaped_and_truncated() {
    let (test, app, inspector) = observed().await;
    test.declared().await;
    let task = app.task_ref::<u32, ()>(TASK).unwrap();
    for (at, (given, told)) in [
        (String::new(), "inspector".to_owned()),
        ("  \n ".to_owned(), "inspector".to_owned()),
        (" ada\nof the\tnight shift ".to_owned(), "ada of the night shift".to_owned()),
        ("é".repeat(150), "é".repeat(100)),
    ]
    .into_iter()
    .enumerate()
    {
        let id = format!("job-{at}");
        task.dispatch(0).id(&id).await.unwrap();
        inspector.clone().by(&given).cancel(TASK, &*id, "").await.unwrap();
        let events = events_by_job(&inspector).await;
        let last = events[&id].last().unwrap();
        assert!(matches!(last, Event::Cancelled { by: Some(by), .. } if *by == told), "{given:?}: {last:?}");
    }
    // Without an Inspector the event names no actor.
    task.dispatch(0).id("plain").await.unwrap().cancel("").await.unwrap();
    let events = events_by_job(&inspector).await;
    assert!(matches!(events["plain"].last().unwrap(), Event::Cancelled { by: None, .. }));
}

#[tokio::test]
async fn a_purge_misses_no_waiting_job_while_others_are_added() {
    let (_test, app, inspector) = observed().await;
    let task = app.task_ref::<String, u64>(TASK).unwrap();
    let late: Vec<String> = (0..500).map(|at| format!("late-{at}")).collect();
    for id in &late {
        task.dispatch(String::new()).id(id).delay(MINUTE).await.unwrap();
    }
    task.dispatch_many((0..2000).map(|_| String::new())).await.unwrap();
    a_millisecond_passes(&inspector).await;
    let (mut act, mut coming) = (inspector.purge(TASK, JobState::Waiting), late.chunks(50));
    while act.next_batch().await.unwrap().is_some() {
        if let Some(some) = coming.next() {
            assert_eq!(inspector.run_now(TASK, some.to_vec()).await.unwrap().done, 50);
        }
    }
    assert_eq!((act.report().done, act.report().is_complete), (2000, true));
    let counts = inspector.task(TASK).await.unwrap().counts;
    assert_eq!(counts.waiting + counts.delayed, 500);
}

#[tokio::test]
async fn a_cancel_without_a_reason_is_visible() {
    let (test, app, inspector) = observed().await;
    one_of_each(&test, &app).await;
    for reason in ["", "  "] {
        assert_eq!(inspector.cancel(TASK, "running", reason).await.unwrap().requested, 1);
        let job = inspector.job(TASK, "running", JobValues::None).await.unwrap().unwrap();
        assert_eq!(job.cancel_requested.as_deref(), Some("no reason was given"));
    }
}

#[tokio::test]
async fn an_action_for_a_state_refuses_jobs_that_left_it() {
    let (test, app, inspector) = observed().await;
    one_of_each(&test, &app).await;
    inspector.retry(TASK, "cancelled").await.unwrap();
    let report = inspector.remove(TASK, ["cancelled", "failed"]).in_state(JobState::Cancelled).await.unwrap();
    assert_eq!((report.done, report.refused), (0, 2), "{report:?}");
    assert!(report.refusals.iter().all(|refused| refused.why == RefusalReason::Changed), "{report:?}");
    let report = inspector.remove(TASK, "cancelled").in_state(JobState::Waiting).await.unwrap();
    assert_eq!((report.done, report.refused), (1, 0), "{report:?}");
}

#[tokio::test]
async fn an_action_decided_earlier_takes_a_job_only_in_its_old_state() {
    let (test, app, inspector) = observed().await;
    one_of_each(&test, &app).await;
    let mut act = inspector.remove(TASK, ["cancelled", "failed", "nobody"]);
    let stood = act.pin().await.unwrap();
    let expected = [(None, 1), (Some(JobState::Failed), 1), (Some(JobState::Cancelled), 1)];
    assert_eq!(stood.into_iter().collect::<Vec<_>>(), expected);
    inspector.retry(TASK, "cancelled").await.unwrap();
    let report = act.await.unwrap();
    assert_eq!((report.done, report.refused), (1, 2), "{report:?}");
    assert!(report.refusals.iter().any(|refused| refused.id == "cancelled" && refused.why == RefusalReason::Changed));
}

#[tokio::test]
async fn an_action_decided_earlier_skips_a_new_job_with_the_same_id() {
    let (test, app, inspector) = observed().await;
    let task = app.task_ref::<String, u64>(TASK).unwrap();
    for id in ["gone", "stays"] {
        task.dispatch("x".into()).id(id).delay(MINUTE).await.unwrap();
    }
    let ids = || vec!["gone", "stays"];
    let mut acts = [inspector.remove(TASK, ids()), inspector.cancel(TASK, ids(), ""), inspector.run_now(TASK, ids())];
    for act in &mut acts {
        assert_eq!(act.pin().await.unwrap(), [(Some(JobState::Delayed), 2)].into());
    }
    inspector.remove(TASK, "gone").await.unwrap();
    a_millisecond_passes(&inspector).await;
    task.dispatch("other".into()).id("gone").delay(MINUTE).await.unwrap();
    let [remove, cancel, run_now] = acts;
    let report = run_now.await.unwrap();
    assert_eq!((report.done, report.refusals[0].why), (1, RefusalReason::Changed), "{report:?}");
    let report = cancel.await.unwrap();
    assert_eq!((report.done, report.refused), (0, 2), "{report:?}");
    let report = remove.await.unwrap();
    assert_eq!((report.done, report.refused), (0, 2), "{report:?}");
    assert_eq!(test.places("gone").await, ["delayed"]);
    // A generated id contains its time, and no other job gets it.
    let own = task.dispatch("x".into()).await.unwrap().id().to_string();
    let at = inspector.job(TASK, &own, JobValues::None).await.unwrap().unwrap().dispatched_at.unwrap();
    let report = inspector.remove(TASK, own.as_str()).in_state(JobState::Waiting).dispatched_at(at).await.unwrap();
    assert_eq!((report.done, report.refused), (1, 0), "{report:?}");
    is_sound(&inspector).await;
}
