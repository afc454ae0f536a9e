//! Schedules when a worker dies before it fires, a reply is lost, the server is empty, all workers are away, or two
//! versions run.

use std::collections::BTreeMap;
use std::time::{Duration, UNIX_EPOCH};

use heartline::{App, Error, Missed, Overlap, Schedule, ScheduleInfo, TaskRef};

use crate::faults::ground::{alone, proxied};
use crate::integration::schedules::{SECOND, accounted_for, becomes, created, declared, tick_ids};
use crate::support::task::{TestTask, fast};
use crate::support::worker::TestWorker;
use crate::support::{PATIENCE, Proxy};

/// A worker at this address with a schedule that fires every second.
async fn worker_at(test: &TestTask, url: &str) -> (App, TestWorker) {
    let app = test.app_at(url).await;
    let every = Schedule::every(SECOND).overlap(Overlap::Allow);
    test.declare_at(&app, fast()).schedule("poll", every, "go".to_owned()).unwrap();
    let worker = TestWorker::start(app.worker());
    worker.working().await;
    (app, worker)
}

#[tokio::test]
async fn a_firing_with_a_lost_reply_makes_one_job() {
    let (_redis, test, proxy) = proxied().await;
    test.journal.open("go");
    let (_app, task) = test.producer().await;
    let fire = test.sha("schedule_fire").await;
    let (_own, worker) = worker_at(&test, &proxy.url()).await;
    for _ in 0..2 {
        proxy.cut_next_reply_to(fire.as_str()).happened().await;
    }
    let fired = task.schedules().get("poll").await.unwrap().unwrap().fired;
    becomes(&task, "poll", "it fires on", |info| info.fired > fired).await;
    worker.stop().await;
    let info = task.schedules().get("poll").await.unwrap().unwrap();
    accounted_for(&info);
    assert_eq!(info.missed_ticks, 0, "{info:?}");
    assert_eq!(jobs(&task).await, info.fired);
}

#[tokio::test]
async fn a_replaced_job_is_cancelled_if_its_cancel_was_lost() {
    let (_redis, test) = alone();
    let (_app, task) = test.producer().await;
    let rule = Schedule::every(3_600 * SECOND).overlap(Overlap::Replace);
    let _ = task.schedules().put("poll", rule, "go".to_owned()).await.unwrap();
    let job = task.schedules().run_now("poll").await.unwrap();
    // A worker has fired the tick at 2 s, and died before it cancelled the job.
    let ledger = test.column("schedules:ledger", "poll").await.unwrap();
    let mut words: Vec<&str> = ledger.split(' ').collect();
    (words[11], words[12]) = ("2000", "1000");
    test.run::<u64>("HSET", "schedules:ledger", &["poll", &words.join(" ")]).await;
    test.run::<u64>("ZADD", "schedules:pending", &["1", "poll"]).await;
    let worker = test.start_worker(fast()).await;
    match job.result_within(PATIENCE).await {
        Err(Error::JobCancelled { reason, .. }) => assert!(reason.contains("tick"), "{reason}"),
        other => panic!("{other:?}"),
    }
    becomes(&task, "poll", "the pending tick fires", |info| info.fired >= 1 && info.pending.is_none()).await;
    worker.stop().await;
}

/// How many jobs the task has.
async fn jobs(task: &TaskRef<String, u64>) -> u64 {
    let counts = task.counts().await.unwrap();
    counts.completed + counts.failed + counts.cancelled + counts.pending_total()
}

#[tokio::test]
async fn others_fire_the_ticks_of_a_worker_that_died() {
    let (redis, test, proxy) = proxied().await;
    test.journal.open("go");
    let (_app, task) = test.producer().await;
    let (_own, mortal) = worker_at(&test, &proxy.url()).await;
    let (_other, worker) = worker_at(&test, &redis.url()).await;
    becomes(&task, "poll", "it fires", |info| info.fired >= 1).await;
    // It decides to fire, and nothing of that arrives.
    proxy.refuse().await;
    mortal.abort();
    let fired = task.schedules().get("poll").await.unwrap().unwrap().fired;
    let info = becomes(&task, "poll", "others fire its ticks", |info| info.fired >= fired + 4).await;
    accounted_for(&info);
    assert_eq!(info.missed_ticks, 0, "{info:?}");
    worker.stop().await;
}

#[tokio::test]
async fn schedules_in_code_return_after_a_data_loss() {
    let (redis, test) = alone();
    test.journal.open("go");
    let (_app, task) = test.producer().await;
    let (_own, worker) = worker_at(&test, &redis.url()).await;
    becomes(&task, "poll", "it fires", |info| info.fired >= 1).await;
    let () = redis::cmd("FLUSHALL").query_async(&mut redis.conn().await).await.unwrap();
    let info = becomes(&task, "poll", "it fires again", |info| info.fired >= 2).await;
    accounted_for(&info);
    worker.stop().await;
}

/// The schedule after all workers were away for some ticks, and what it had counted before.
async fn away(missed: Missed) -> (ScheduleInfo, ScheduleInfo) {
    let (redis, test) = alone();
    test.journal.open("go");
    let rule = || Schedule::every(SECOND).overlap(Overlap::Allow).grace(SECOND).missed(missed);
    let (app, task) = declared(&test, "poll", rule()).await;
    let worker = TestWorker::start(app.worker());
    becomes(&task, "poll", "it fires", |info| info.fired >= 1).await;
    worker.stop().await;
    let before = task.schedules().get("poll").await.unwrap().unwrap();
    // No event comes while no worker runs.
    tokio::time::sleep(Duration::from_millis(5_500)).await;
    let (app, task) = declared(&test, "poll", rule()).await;
    let worker = TestWorker::start(app.worker());
    let is_back = |info: &ScheduleInfo| info.last.is_some_and(|last| last > before.last.unwrap() + 4 * SECOND);
    let after = becomes(&task, "poll", "its ticks are accounted for", is_back).await;
    worker.stop().await;
    drop(redis);
    accounted_for(&before);
    accounted_for(&after);
    (before, after)
}

#[tokio::test]
async fn missed_ticks_make_one_job_by_default() {
    let (before, after) = away(Missed::ONCE).await;
    assert!(after.missed_ticks >= 2, "{after:?}");
    assert!(after.fired > before.fired, "{after:?}");
}

#[tokio::test]
async fn missed_ticks_make_no_job_if_they_are_skipped() {
    let (before, after) = away(Missed::Skip).await;
    assert!(after.missed_ticks >= 3, "{after:?}");
    assert!(after.fired >= before.fired, "{after:?}");
}

#[tokio::test]
async fn missed_ticks_make_a_job_each_if_all_are_wanted() {
    let (before, after) = away(Missed::All(100)).await;
    assert_eq!(after.missed_ticks, 0, "{after:?}");
    assert!(after.fired >= before.fired + 5, "{after:?}");
}

/// A worker whose code declares these schedules, with their gaps in seconds.
async fn version(test: &TestTask, schedules: &[(&str, u32)]) -> TestWorker {
    let app = test.app().await;
    let mut task = test.declare_at(&app, fast());
    for (name, gap) in schedules {
        let every = Schedule::every(*gap * SECOND).overlap(Overlap::Allow);
        task = task.schedule(name, every, "go".to_owned()).unwrap();
    }
    let worker = TestWorker::start(app.worker());
    worker.working().await;
    worker
}

#[tokio::test]
async fn the_rule_of_the_newest_start_applies_while_two_versions_run() {
    let (_redis, test) = alone();
    test.journal.open("go");
    let old = version(&test, &[("a", 1), ("b", 1)]).await;
    let (_app, task) = test.producer().await;
    for name in ["a", "b"] {
        becomes(&task, name, "the old version fires it", |info| info.fired >= 2).await;
    }
    let new = version(&test, &[("b", 2), ("c", 1)]).await;
    let changed = becomes(&task, "b", "the new rule applies", |info| info.rule == "every 2s").await;
    becomes(&task, "b", "the old worker reports its rule", |info| info.differing.is_some()).await;
    let fired = task.schedules().get("a").await.unwrap().unwrap().fired;
    becomes(&task, "a", "it fires while an old worker lives", |info| info.fired > fired).await;
    becomes(&task, "b", "the new rule fires", |info| info.fired > changed.fired + 1).await;
    becomes(&task, "c", "the new version fires it", |info| info.fired >= 2).await;
    old.stop().await;
    new.stop().await;

    let jobs = created(&test).await;
    for name in ["a", "c"] {
        let info = task.schedules().get(name).await.unwrap().unwrap();
        accounted_for(&info);
        assert_eq!((info.overlapped, info.missed_ticks), (0, 0), "{info:?}");
        let prefix = format!("{name}@");
        assert!(jobs.keys().filter(|id| id.starts_with(&prefix)).eq(&tick_ids(&info)), "{jobs:?} {info:?}");
    }
    changes_once(&task.schedules().get("b").await.unwrap().unwrap(), &jobs);
    assert_eq!(test.column("meta", "in").await, Some(jobs.len().to_string()), "a job was created twice");
}

/// Checks that b ticked every second and then every other second, and that each tick has a job.
fn changes_once(b: &ScheduleInfo, jobs: &BTreeMap<String, u64>) {
    assert_eq!((b.rule.as_str(), b.missed_ticks, b.overlapped), ("every 2s", 0, 0), "{b:?}");
    let due_ms: Vec<u64> = jobs.keys().filter_map(|id| id.strip_prefix("b@")?.parse().ok()).collect();
    let gaps: Vec<u64> = due_ms.windows(2).map(|two| two[1] - two[0]).collect();
    assert!(gaps.is_sorted() && gaps.iter().all(|gap| [1000, 2000].contains(gap)), "{due_ms:?}");
    let ends = [due_ms[0], due_ms[due_ms.len() - 1]].map(|ms| Some(UNIX_EPOCH + Duration::from_millis(ms)));
    assert_eq!(ends, [Schedule::every(SECOND).preview(b.since).next(), b.last]);
    assert_eq!(b.fired, due_ms.len() as u64, "{b:?}");
}

#[tokio::test]
async fn an_unreadable_schedule_keeps_no_other_from_firing() {
    let (redis, test) = alone();
    test.journal.open("go");
    let (_app, task) = test.producer().await;
    for name in ["damaged", "later"] {
        task.schedules().put(name, Schedule::every(SECOND), "go".to_owned()).await.unwrap();
    }
    test.run::<u64>("HSET", "schedules:ledger", &["damaged", "soon"]).await;
    // A newer version added a field to the rule.
    let rule = test.column("schedules:rule", "later").await.unwrap().replacen('{', "{\"newer\":1,", 1);
    test.run::<u64>("HSET", "schedules:rule", &["later", &rule]).await;
    // More of them are due than one look returns, before all others.
    let ledger = test.column("schedules:ledger", "later").await.unwrap();
    for name in (0..60).map(|number| format!("newer-{number}")) {
        for (key, value) in [("schedules:rule", &*rule), ("schedules:ledger", &*ledger), ("schedules:input", "7")] {
            test.run::<u64>("HSET", key, &[name.as_str(), value]).await;
        }
        test.run::<u64>("ZADD", "schedules", &["1", name.as_str()]).await;
    }
    let line = Proxy::start(redis.address()).await;
    let (_own, worker) = worker_at(&test, &line.url()).await;
    let info = becomes(&task, "poll", "the sound one fires", |info| info.fired >= 2).await;
    accounted_for(&info);
    let list = task.schedules().list().await.unwrap();
    let faulty: Vec<&str> = list.iter().filter(|info| info.fault.is_some()).map(|info| info.name.as_str()).collect();
    assert!(faulty.len() == 62 && faulty.starts_with(&["damaged", "later", "newer-0"]), "{faulty:?}");
    // A put replaces what cannot be read.
    task.schedules().put("damaged", Schedule::every(SECOND), "go".to_owned()).await.unwrap();
    becomes(&task, "damaged", "it fires again", |info| info.fired >= 1 && info.fault.is_none()).await;
    worker.stop().await;
}
