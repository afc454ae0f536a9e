//! The least rights of docs/acl.md suffice for everything, and each of them is used.

use crate::support::{PATIENCE, TestRedis, eventually};
use heartline::{
    App, Context, Error, JobError, OnLockRisk, Priority, Retention, RetryPolicy, StallOptions, StopReason, TaskOptions,
};
use std::time::Duration;

/// The words of the rule after the name and the password.
fn rule() -> Vec<String> {
    let text = include_str!("../../../../docs/acl.md");
    let (_, rest) = text.split_once("ACL SETUSER jobs on >secret ").unwrap();
    let (rule, _) = rest.split_once("```").unwrap();
    rule.split_whitespace().map(str::to_owned).collect()
}

async fn set_user(redis: &TestRedis, words: &[String]) {
    let mut acl = redis::cmd("ACL");
    acl.arg("SETUSER").arg("jobs").arg("reset").arg("on").arg(">secret").arg(words);
    let () = acl.query_async(&mut redis.conn().await).await.unwrap();
}

/// What a producer and workers do on a busy day.
async fn a_day(url: &str) {
    let app = App::builder().redis(url).build().await.unwrap();
    let stall = StallOptions::new().interval(Duration::from_secs(1)).on_lock_risk(OnLockRisk::Cancel);
    let retry = RetryPolicy::new().attempts(2).fixed(Duration::from_millis(1));
    let options = TaskOptions::new().stall(stall).retry(retry).payload_limit(2 << 20).retention(Retention::new());
    let task = app
        .task("day", options, |ctx: Context, what: String| async move {
            match what.as_str() {
                "fails" => Err(JobError::new("no")),
                "snoozes" if ctx.snoozed_count() == 0 => Err(JobError::snooze(Duration::from_millis(1))),
                "waits" => {
                    ctx.cancelled().await;
                    Err("cancelled".into())
                }
                _ => Ok(what),
            }
        })
        .unwrap();
    let (mut events, mut stalls) = (app.events(), app.on_stalled());
    let cancelled = task.dispatch("later".to_owned()).delay(Duration::from_secs(60)).await.unwrap();
    cancelled.cancel("no more").await.unwrap();
    let waiting = task.dispatch("soon".to_owned()).priority(Priority::Low).await.unwrap();
    waiting.cancel("no more").await.unwrap();
    let worker = app.worker().spawn();
    let within = async |job: &heartline::JobHandle<String>| tokio::time::timeout(PATIENCE, job.result()).await.unwrap();
    for priority in [Priority::High, Priority::Normal, Priority::Low] {
        let job = task.dispatch("ok".to_owned()).priority(priority).header("k", "v").max_stalls(2).await.unwrap();
        assert_eq!(within(&job).await.unwrap(), "ok");
    }
    for what in ["x".repeat(600_000), "snoozes".to_owned()] {
        assert_eq!(within(&task.dispatch(what.clone()).await.unwrap()).await.unwrap(), what);
    }
    let failed = task.dispatch("fails".to_owned()).await.unwrap();
    assert!(matches!(within(&failed).await, Err(Error::JobFailed(_))));
    assert_eq!(task.job(failed.id()).await.unwrap().failed_attempts, 2);
    let runs = task.dispatch("waits".to_owned()).await.unwrap();
    eventually("it runs", PATIENCE, async || task.counts().await.unwrap().running == 1).await;
    runs.cancel("no more").await.unwrap();
    assert!(matches!(within(&runs).await, Err(Error::JobCancelled { .. })));
    for handle in task.dispatch_many(["a", "b"].map(str::to_owned)).await.unwrap() {
        within(&handle).await.unwrap();
    }
    tokio::time::timeout(PATIENCE, events.recv()).await.unwrap().unwrap();
    assert!(stalls.try_recv().unwrap().is_none());
    // Longer than the intervals of heartbeats, sweeps, presence and retention.
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert_eq!(worker.stop().await.unwrap(), StopReason::Shutdown);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_documented_rights_suffice_and_nothing_is_denied() {
    let redis = TestRedis::start();
    set_user(&redis, &rule()).await;
    a_day(&redis.url().replace("redis://", "redis://jobs:secret@")).await;
    let denied: Vec<redis::Value> = redis::cmd("ACL").arg("LOG").query_async(&mut redis.conn().await).await.unwrap();
    assert!(denied.is_empty(), "{denied:?}");
}

#[tokio::test]
async fn a_missing_right_is_named_and_is_not_an_unreachable_server() {
    let redis = TestRedis::start();
    let words: Vec<String> = rule().into_iter().filter(|word| word != "+info").collect();
    set_user(&redis, &words).await;
    let url = redis.url().replace("redis://", "redis://jobs:secret@");
    let began = std::time::Instant::now();
    let lazy = App::builder().redis(&url).lazy().build().await.unwrap();
    lazy.task("t", TaskOptions::new(), |_: Context, _: u8| async { Ok::<_, JobError>(()) }).unwrap();
    for error in [App::builder().redis(&url).build().await.unwrap_err(), lazy.worker().run().await.unwrap_err()] {
        assert!(matches!(error, Error::Denied { .. }) && !error.is_retryable(), "{error:?}");
        let text = format!("{:#}", anyhow::Error::new(error)).to_lowercase();
        assert!(
            text.contains("info") && text.contains("denied permission") && !text.contains("cannot reach"),
            "{text}"
        );
    }
    assert!(began.elapsed() < Duration::from_secs(5));
}

/// The commands that the sources of the crate use.
#[test]
fn every_documented_right_is_used_by_the_sources() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut sources = String::new();
    for directory in ["lua", "lua/lib", "src/backend", "src/testing", "src"] {
        for file in std::fs::read_dir(root.join(directory)).unwrap().map(|entry| entry.unwrap().path()) {
            if file.is_file() {
                sources += &std::fs::read_to_string(file).unwrap().to_lowercase();
            }
        }
    }
    for right in rule().iter().filter_map(|word| word.strip_prefix('+')) {
        let words: Vec<&str> = right.split('|').collect();
        let used = words.iter().all(|word| {
            [format!("'{word}'"), format!("\"{word}\""), format!(".{word}(")].iter().any(|form| sources.contains(form))
        });
        assert!(used, "nothing uses {right}");
    }
}

/// The reverse: no test may ever send a rare command.
#[test]
fn every_command_of_a_script_is_in_the_documented_rights() {
    let rights = rule();
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut commands = std::collections::BTreeSet::new();
    for directory in ["lua", "lua/lib"] {
        for file in std::fs::read_dir(root.join(directory)).unwrap().map(|entry| entry.unwrap().path()) {
            let text = if file.is_file() { std::fs::read_to_string(&file).unwrap() } else { String::new() };
            let calls = text.split("call('").skip(1).filter_map(|rest| rest.split_once('\''));
            commands.extend(calls.map(|(command, _)| command.to_lowercase()));
        }
    }
    // docs/guide/engines.md lists what a cluster needs in addition.
    commands.remove("spublish");
    assert!(commands.len() > 30, "{commands:?}");
    let missing: Vec<&String> = commands.iter().filter(|command| !rights.contains(&format!("+{command}"))).collect();
    assert!(missing.is_empty(), "{missing:?}");
}
