//! The audit and the repair: no false finding next to live workers, and each kind of damage is found and repaired.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use heartline::{Context, Error, Finding, Inconsistency, Inspector, JobError, JobState, RetryPolicy};

use tokio_util::sync::CancellationToken;

use super::pause::Monitor;
use super::{counted, inspector, is_config, is_sound, observed};
use crate::integration::fixtures::alone;
use crate::support::puppet::Puppet;
use crate::support::task::{INTERVAL, TASK, TestTask, fast};
use crate::support::worker::TestWorker;
use crate::support::{PATIENCE, Proxy, eventually};

fn found(faults: &[(Inconsistency, &str)]) -> BTreeSet<(Inconsistency, String)> {
    faults.iter().map(|(fault, what)| (*fault, (*what).to_owned())).collect()
}

fn as_set(findings: &[Finding]) -> BTreeSet<(Inconsistency, String)> {
    findings.iter().map(|finding| (finding.fault, finding.what.clone())).collect()
}

#[tokio::test]
async fn an_audit_of_a_busy_task_finds_nothing() {
    let (test, app, inspector) = observed().await;
    let retry = RetryPolicy::new().attempts(1000).fixed(Duration::from_millis(1));
    // Jobs end in every way: completed, failed, snoozed, retried.
    let handler = |ctx: Context, input: u64| async move {
        match input % 10 {
            0 => Err(JobError::new("no".to_owned()).fatal()),
            1 if ctx.snoozed_count() < 5 => Err(JobError::snooze(Duration::from_millis(1))),
            2 if ctx.attempt() < 5 => Err(JobError::new("again".to_owned())),
            _ => Ok(input),
        }
    };
    let task = app.task(TASK, fast().concurrency(20).retry(retry.clone()), handler).unwrap();
    let other = test.app().await;
    other.task(TASK, fast().concurrency(20).retry(retry.clone()), handler).unwrap();
    let workers = [TestWorker::start(app.worker()), TestWorker::start(other.worker())];
    let producing = tokio::spawn(async move {
        let mut cancelled = 0;
        for round in 0..10_u64 {
            let jobs = task.dispatch_many(round * 200..(round + 1) * 200).await.unwrap();
            for job in jobs.iter().step_by(20) {
                cancelled += 1;
                job.cancel("").await.unwrap();
            }
        }
        cancelled
    });
    let mut runs = 0;
    while !producing.is_finished() || runs < 3 {
        is_sound(&inspector).await;
        runs += 1;
    }
    assert_eq!(producing.await.unwrap(), 100);
    let ended = async || {
        let counts = inspector.task(TASK).await.unwrap().counts;
        counts.completed + counts.failed + counts.cancelled == 2000
    };
    eventually("all have ended", PATIENCE * 3, ended).await;
    let report = inspector.audit(TASK).await.unwrap();
    assert!(report.is_clean() && report.parts[0].looked == 2000, "{report:?}");
    for worker in workers {
        worker.stop().await;
    }
}

/// A few jobs run again and again during the whole audit, so they are in another place at each read.
#[tokio::test]
async fn moving_jobs_are_not_findings_and_repairs_count_them_right() {
    let (test, app, inspector) = observed().await;
    let go_on = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(true));
    let restless = go_on.clone();
    let handler = move |_: Context, _: u32| {
        let again = restless.load(std::sync::atomic::Ordering::Relaxed);
        async move {
            tokio::time::sleep(Duration::from_millis(1)).await;
            if again { Err(JobError::snooze(Duration::ZERO)) } else { Ok(()) }
        }
    };
    let task = app.task(TASK, fast().concurrency(40), handler).unwrap();
    task.dispatch_many(0..100).await.unwrap();
    let worker = TestWorker::start(app.worker());
    let mut wrong = Vec::new();
    for _ in 0..20 {
        let report = inspector.audit(TASK).await.unwrap();
        wrong.extend(report.findings().cloned());
        inspector.repair(&report).await.unwrap();
    }
    go_on.store(false, std::sync::atomic::Ordering::Relaxed);
    counted(&inspector, JobState::Completed, 100).await;
    let tombstones: Option<String> = test.dump("tombstones").await;
    worker.stop().await;
    assert!(wrong.is_empty() && tombstones.is_none(), "{wrong:?} {tombstones:?}");
}

/// Jobs in each place, the running ones held by a puppet, and the puppet.
async fn a_sound_task(test: &TestTask, app: &heartline::App) -> Puppet {
    let task = app.task_ref::<String, u64>(TASK).unwrap();
    let mut puppet = Puppet::of(test).await;
    for id in ["completed", "failed", "held", "held-too"] {
        task.dispatch(String::new()).id(id).await.unwrap();
        let held = puppet.claim_all(&[id]).await;
        let error = super::stored_error("own", "no");
        match id {
            "completed" => drop(puppet.settle(&held, &[], 0).await),
            "failed" => drop(puppet.settle(&[], &[(&held[0], "failed", 1, "own no 5", &error)], 0).await),
            _ => {}
        }
    }
    task.dispatch(String::new()).id("cancelled").await.unwrap().cancel("").await.unwrap();
    task.dispatch(String::new()).id("delayed").delay(PATIENCE * 100).await.unwrap();
    for id in ["waits", "waits-too"] {
        task.dispatch(String::new()).id(id).await.unwrap();
    }
    // The record of a worker is stale when no list has it.
    let workers = format!("{}:workers", test.prefix);
    let () = redis::cmd("ZADD")
        .arg(workers)
        .arg("9e15")
        .arg(&puppet.name)
        .query_async(&mut test.conn().await)
        .await
        .unwrap();
    puppet
}

/// Damages a task, and checks that the damage is found, that a preview changes nothing, and that it is repaired.
async fn is_found_and_mended(test: &TestTask, inspector: &Inspector, wanted: &[(Inconsistency, &str)]) {
    let report = inspector.audit(TASK).await.unwrap();
    let wanted = found(wanted);
    assert_eq!(report.findings().map(|its| (its.fault, its.what.clone())).collect::<BTreeSet<_>>(), wanted);
    assert_eq!((report.parts[0].found, report.is_clean()), (wanted.len() as u64, false));
    let before = test.redis().dump(&test.key("")).await;
    let preview = inspector.preview_repair(&report).await.unwrap();
    assert_eq!((as_set(&preview.mended), preview.gone), (wanted.clone(), vec![]));
    assert_eq!(test.redis().dump(&test.key("")).await, before, "a preview changes nothing");
    let repaired = inspector.repair(&report).await.unwrap();
    assert_eq!((as_set(&repaired.mended), repaired.gone), (wanted.clone(), vec![]));
    is_sound(inspector).await;
    let again = inspector.repair(&report).await.unwrap();
    assert_eq!((again.mended, as_set(&again.gone)), (vec![], wanted), "there is nothing left to repair");
}

/// A sound task with the given damage.
async fn damaged(
    damage: impl AsyncFnOnce(&TestTask, &mut Puppet),
    wanted: &[(Inconsistency, &str)],
) -> (TestTask, Inspector) {
    let (test, app, inspector) = observed().await;
    let inspector = inspector.by("ada");
    let mut puppet = a_sound_task(&test, &app).await;
    is_sound(&inspector).await;
    damage(&test, &mut puppet).await;
    is_found_and_mended(&test, &inspector, wanted).await;
    (test, inspector)
}

/// Columns with data of a job in any state.
const COLUMNS: [&str; 12] = [
    "attempt",
    "stalledCount",
    "result",
    "error",
    "options",
    "maxCount",
    "priority",
    "dispatchedAt",
    "snoozes",
    "enqueuedAt",
    "recovery",
    "expiresAt",
];

#[tokio::test]
async fn jobs_without_payload_are_found_everywhere_and_removed() {
    let damage = async |test: &TestTask, _: &mut Puppet| {
        for id in ["completed", "failed", "cancelled", "delayed", "held"] {
            test.run::<u64>("HDEL", "payload", &[id]).await;
        }
        for column in COLUMNS {
            test.run::<u64>("HSET", column, &[&format!("only-{column}"), "1"]).await;
        }
        test.run::<u64>("SADD", "active", &["only-active"]).await;
        test.run::<u64>("SADD", "candidates", &["only-candidate"]).await;
        test.run::<u64>("HSET", "cancelling", &["only-cancelling", "why"]).await;
        test.run::<u64>("HSET", "locks", &["only-locked", "nobody:1"]).await;
    };
    let columns = COLUMNS.map(|column| format!("only-{column}"));
    // Ended jobs need no lock, and running ones have it.
    let places = ["delayed", "only-active", "only-candidate", "only-cancelling", "only-locked"];
    let mut wanted: Vec<(Inconsistency, &str)> = places.map(|id| (Inconsistency::NoPayload, id)).to_vec();
    wanted.extend(columns.iter().map(|id| (Inconsistency::NoPayload, id.as_str())));
    let (test, inspector) = damaged(damage, &wanted).await;
    for id in places {
        assert_eq!(inspector.job(TASK, id, heartline::JobValues::None).await.unwrap(), None, "{id}");
    }
    let counts = inspector.task(TASK).await.unwrap().counts;
    assert_eq!((counts.waiting, counts.running, counts.completed, counts.failed, counts.delayed), (2, 2, 1, 1, 0));
    assert_eq!(test.places("held").await, ["running"]);
}

/// One fault of most other kinds. The tests of the scripts `look` and `mend` have all kinds, and all the ways into each.
#[tokio::test]
async fn damage_of_many_kinds_is_found_and_repaired() {
    let damage = async |test: &TestTask, _: &mut Puppet| {
        test.run::<u64>("LREM", "wait", &["0", "waits-too"]).await;
        test.run::<u64>("ZADD", "failed", &["1", "completed"]).await;
        test.run::<u64>("SADD", "active", &["delayed"]).await;
        test.run::<u64>("SREM", "active", &["held"]).await;
        test.run::<u64>("SADD", "candidates", &["held-too"]).await;
        test.run::<u64>("HSET", "cancelling", &["waits", "why"]).await;
        test.run::<u64>("HSET", "attempt", &["cancelled", "many"]).await;
        test.run::<u64>("HSET", "tombstones", &["failed", "2"]).await;
        test.run::<u64>("HINCRBY", "meta", &["tombstones", "2"]).await;
        test.run::<u64>("HSET", "replies", &["long-gone-1", "closed"]).await;
        test.run::<u64>("HSET", "meta", &["in", "many", "events", "-1", "fence", "9007199254740992"]).await;
    };
    let wanted = [
        (Inconsistency::Unplaced, "waits-too"),
        (Inconsistency::TwoPlaces, "completed"),
        (Inconsistency::Unlocked, "delayed"),
        (Inconsistency::Unwatched, "held"),
        (Inconsistency::BothSets, "held-too"),
        (Inconsistency::StrayCancel, "waits"),
        (Inconsistency::BadCounter, "cancelled"),
        (Inconsistency::Miscounted, "failed"),
        (Inconsistency::StaleRecord, "long-gone-1"),
        (Inconsistency::BadMeta, "in"),
        (Inconsistency::BadMeta, "events"),
        (Inconsistency::BadMeta, "fence"),
    ];
    let (test, inspector) = damaged(damage, &wanted).await;
    assert_eq!(inspector.task(TASK).await.unwrap().dispatched, 0, "it started over");
    let told = super::events_by_job(&inspector).await;
    assert_eq!(told["waits-too"].last().unwrap().name(), "task:requeued");
    // A wrong count would keep a retried job out of its list.
    assert_eq!(inspector.retry(TASK, "failed").await.unwrap().done, 1);
    test.journal.open("");
    let worker = test.start_worker(fast()).await;
    for id in ["waits", "waits-too", "held", "held-too", "completed", "failed"] {
        test.arrives(id, "completed").await;
    }
    worker.stop().await;
}

#[tokio::test]
async fn damage_repaired_meanwhile_is_left_alone() {
    let (test, app, inspector) = observed().await;
    a_sound_task(&test, &app).await;
    test.run::<u64>("HSET", "attempt", &["waits", "many", "delayed", "many"]).await;
    let report = inspector.audit(TASK).await.unwrap();
    test.run::<u64>("HSET", "attempt", &["waits", "2"]).await;
    let repaired = inspector.repair(&report).await.unwrap();
    assert_eq!(as_set(&repaired.mended), found(&[(Inconsistency::BadCounter, "delayed")]));
    assert_eq!(as_set(&repaired.gone), found(&[(Inconsistency::BadCounter, "waits")]));
    assert_eq!(test.column("attempt", "waits").await.as_deref(), Some("2"));
    is_config(inspector.audit("no name").await);
}

#[tokio::test]
async fn a_step_that_fails_in_an_outage_is_repeated_afterwards() {
    let test = TestTask::plain();
    let (app, inspector_there) = inspector(&test).await;
    let task = app.task_ref::<u32, ()>(TASK).unwrap();
    task.dispatch_many(0..3000).await.unwrap();
    test.run::<u64>("HSET", "attempt", &["never-was", "1"]).await;
    let line = Proxy::start(test.redis().address()).await;
    let inspector = test.app_at(&line.url()).await.inspector();
    let mut audit = inspector.audit(TASK);
    let (mut steps, mut failed) = (0, 0);
    loop {
        // Each step but the first runs in an outage once.
        line.refuse().await;
        match audit.step().await {
            Ok(None) => break,
            Ok(Some(_)) => {}
            Err(e) => {
                assert!(matches!(e, Error::Connect { .. } | Error::TimedOut { .. }), "{e:?}");
                failed += 1;
            }
        }
        line.accept().await;
        let step = eventually("the step is made", PATIENCE, async || audit.step().await.ok()).await;
        let Some(progress) = step else { break };
        assert!(progress.of >= 9000, "{progress:?}");
        steps += 1;
        if steps == 6 {
            break;
        }
    }
    line.accept().await;
    assert!(failed >= 3, "{failed}");
    while audit.step().await.unwrap().is_some() {}
    let report = audit.report();
    let faults: Vec<&Finding> = report.findings().collect();
    assert!(faults.len() == 1 && faults[0].what == "never-was", "{faults:?}");
    assert_eq!(report.parts[0].looked, 3001, "nothing was left out");
    assert_eq!(inspector.repair(report).await.unwrap().mended.len(), 1);
    is_sound(&inspector_there).await;
}

/// The task of a key by its hash tag; any other key is its own slot.
fn slot(key: &str) -> String {
    let tag = key.split_once('{').and_then(|(_, rest)| rest.split_once('}')).map(|(tag, _)| tag);
    tag.filter(|tag| !tag.is_empty()).unwrap_or(key).to_owned()
}

/// The words of a line of MONITOR, without commands of scripts.
fn words(line: &str) -> Option<Vec<String>> {
    let (head, rest) = line.split_once("] ")?;
    if head.ends_with(" lua") {
        return None;
    }
    Some(rest.split('"').skip(1).step_by(2).map(str::to_owned).collect())
}

#[tokio::test]
async fn every_inspector_command_uses_one_slot_and_no_transaction() {
    let (redis, test) = alone();
    let app = test.app().await;
    let task = app.task_ref::<String, u64>(&test.name).unwrap();
    // In an App of its own: with several tasks, the event reader reads all their streams in one command.
    let neighbour = test.app().await;
    let other = neighbour.task_ref::<String, u64>("other").unwrap();
    test.journal.open("open");
    let worker = test.start_worker(fast()).await;
    other.dispatch(String::new()).await.unwrap();
    let done = task.dispatch("open".into()).id("done").await.unwrap();
    done.result().await.unwrap();
    worker.stop().await;
    task.dispatch("open".into()).id("waits").await.unwrap();
    task.dispatch("open".into()).id("delayed").delay(PATIENCE).await.unwrap();

    let looks = test.app().await;
    let inspector = looks.inspector();
    let monitor = Monitor::start(&redis).await;
    let name = &*test.name;
    inspector.tasks().await.unwrap();
    inspector.task(name).await.unwrap();
    inspector.workers().await.unwrap();
    inspector.worker(&name.repeat(2)).await.unwrap();
    for state in ["waiting", "delayed", "running", "completed", "failed", "cancelled"] {
        let filter = heartline::JobFilter::new(state.parse().unwrap());
        inspector.jobs(name, &filter, None, 10).await.unwrap();
        inspector.count(name, &filter.clone().older_than(INTERVAL)).await.unwrap();
        inspector.count(name, &filter.code("x")).await.unwrap();
    }
    inspector.job(name, "done", heartline::JobValues::All).await.unwrap();
    inspector.events(name, None).await.unwrap();
    inspector.job_events(name, "done").await.unwrap();
    inspector.rejected_outcomes(name, 10).await.unwrap();
    inspector.stalls(name, None).await.unwrap();
    inspector.stall_history(name, "done").await.unwrap();
    inspector.recovery_status(name).await.unwrap();
    inspector.silent_jobs(name, None).await.unwrap();
    inspector.sweep_now(name).await.unwrap();
    inspector.recover_running(name, heartline::SilentSelection::all()).await.unwrap();
    inspector.run_now(name, "delayed").await.unwrap();
    inspector.cancel(name, "waits", "").await.unwrap();
    inspector.retry(name, "waits").await.unwrap();
    inspector.pause(name, "").await.unwrap();
    inspector.resume(name).await.unwrap();
    inspector.dispatch_json(name, "x").unwrap().id("json").await.unwrap();
    inspector.result_json(name, "done").await.unwrap();
    inspector.wait(name, "done", PATIENCE).await.unwrap();
    let report = inspector.audit(name).await.unwrap();
    inspector.repair(&report).await.unwrap();
    for state in ["waiting", "delayed", "completed", "cancelled"] {
        inspector.purge(name, state.parse().unwrap()).await.unwrap();
    }
    assert_eq!(inspector.forget_task(name).await.unwrap(), heartline::ForgetOutcome::Forgotten);
    let lines = monitor.stop().await;

    let (mut commands, mut tags) = (BTreeSet::new(), BTreeSet::new());
    for line in &lines {
        let Some(words) = words(line) else { continue };
        let command = words[0].to_lowercase();
        assert!(!["multi", "exec", "watch"].contains(&command.as_str()), "{line}");
        let keys: Vec<&String> = match command.as_str() {
            "evalsha" | "eval" | "evalsha_ro" => words[3..3 + words[2].parse::<usize>().unwrap()].iter().collect(),
            "memory" => words[2..3].iter().collect(),
            "xread" => {
                let streams = words.iter().position(|word| word.eq_ignore_ascii_case("streams")).unwrap() + 1;
                words[streams..streams + (words.len() - streams) / 2].iter().collect()
            }
            "time" | "script" | "client" | "hello" | "info" | "config" | "ping" | "select" | "command" | "acl" => {
                vec![]
            }
            _ => words[1..2].iter().collect(),
        };
        let slots: BTreeSet<String> = keys.iter().map(|key| slot(key)).collect();
        assert!(slots.len() <= 1, "{slots:?}: {line}");
        commands.insert(command);
        tags.extend(slots);
    }
    // This check can fail: commands with several tags were seen, each tag in its own command.
    assert!(commands.contains("evalsha") && tags.contains(name) && tags.contains("other"), "{commands:?} {tags:?}");
}

#[tokio::test]
async fn the_findings_of_an_audit_can_be_noted_for_later() {
    let (test, app, inspector) = observed().await;
    assert!(!inspector.note_audit(&inspector.audit(TASK).await.unwrap()).await.unwrap(), "nothing is kept of it");
    app.task_ref::<String, u64>(TASK).unwrap().dispatch("x".into()).id("a").await.unwrap();
    assert_eq!(inspector.task(TASK).await.unwrap().audited, None);
    test.run::<u64>("HSET", "payload", &["b", "1"]).await;
    assert!(inspector.note_audit(&inspector.audit(TASK).await.unwrap()).await.unwrap());
    let audited = inspector.task(TASK).await.unwrap().audited.unwrap();
    assert_eq!(audited.found, BTreeMap::from([(Inconsistency::Unplaced, 1)]));
    assert!(audited.at.elapsed().unwrap_or_default() < Duration::from_secs(60));
}

/// Lists of several pages, while jobs are added at both ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn entries_added_at_both_ends_during_an_audit_are_not_damage() {
    let (_test, app, inspector) = observed().await;
    let task = app.task_ref::<String, u64>(TASK).unwrap();
    task.dispatch_many((0..10_000).map(|_| "open".to_owned())).await.unwrap();
    for at in 0..1000 {
        task.dispatch("x".into()).id(format!("late-{at}")).delay(Duration::from_secs(3600)).await.unwrap();
    }
    let done = CancellationToken::new();
    let (steers, producer, stop) = (inspector.clone(), task.clone(), done.clone());
    let moving = tokio::spawn(async move {
        let mut moved = 0;
        while !stop.is_cancelled() && moved < 1000 {
            let front = steers.run_now(TASK, format!("late-{moved}"));
            let (front, behind) = tokio::join!(front, producer.dispatch("open".into()));
            assert_eq!((front.unwrap().done, behind.unwrap().existed()), (1, Some(false)));
            moved += 1;
        }
        moved
    });
    let report = inspector.audit(TASK).await.unwrap();
    done.cancel();
    let moved = moving.await.unwrap();
    assert!(report.is_clean() && moved > 20, "{moved} moved, {:?}", &report.parts[0].findings[..3]);
    let counts = inspector.task(TASK).await.unwrap().counts;
    assert_eq!((counts.waiting, counts.delayed), (10_000 + 2 * moved, 1000 - moved));
}
