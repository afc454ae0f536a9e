//! Commands that managed services forbid are not needed.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use heartline::{App, Context, Error, JobError, JobState, StallAction, StallOptions, TaskOptions, TaskRef};

use crate::cluster::six::{Six, TASKS, ask};
use crate::support::worker::TestWorker;
use crate::support::{Child, PATIENCE, eventually};

/// A user without the commands that managed services reserve, each a different set: settings, statistics of calls,
/// other connections and users, replicas and slots, snapshots, and commands that read all keys.
const RULE: &str = "reset on >secret ~* &* +@all -@admin -@dangerous -client -command -keys -flushall -flushdb -memory -object -wait \
                    -scan -function -select -swapdb -cluster +cluster|slots +cluster|info +info";

/// Some of the forbidden commands.
const FORBIDDEN: [&[&str]; 15] = [
    &["CONFIG", "GET", "maxmemory"],
    &["SLOWLOG", "GET"],
    &["LATENCY", "LATEST"],
    &["MONITOR"],
    &["ACL", "LIST"],
    &["MODULE", "LIST"],
    &["CLIENT", "LIST"],
    &["CLIENT", "SETNAME", "me"],
    &["CLIENT", "KILL", "TYPE", "pubsub"],
    &["CLUSTER", "NODES"],
    &["CLUSTER", "SHARDS"],
    &["BGSAVE"],
    &["KEYS", "*"],
    &["SCAN", "0"],
    &["ROLE"],
];

async fn app(url: &str) -> (App, Vec<TaskRef<u64, u64>>) {
    let app = App::builder().redis(url).build().await.unwrap();
    let handler = |ctx: Context, input: u64| async move {
        if input == 0 && ctx.stalled_count() == 0 {
            ctx.cancelled().await;
            ctx.heartbeat()?;
        }
        Ok::<_, JobError>(input + 1)
    };
    let options = TaskOptions::new().stall(StallOptions::new().interval(Duration::from_secs(1)));
    let tasks = TASKS.iter().map(|task| app.task(task, options.clone(), handler).unwrap()).collect();
    (app, tasks)
}

/// The program of a child.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_process_with_few_rights() {
    if let Some(url) = Child::role() {
        let _ = app(&url).await.0.worker().run().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_run_and_recover_with_the_rights_of_a_managed_service() {
    let six = Six::start().await;
    for port in six.ports() {
        let words: Vec<&str> = ["ACL", "SETUSER", "jobs"].into_iter().chain(RULE.split_whitespace()).collect();
        assert_eq!(ask::<String>(port, &words).await.as_deref(), Some("OK"));
    }
    let first = six.ports()[0];
    let client = redis::Client::open(format!("redis://jobs:secret@127.0.0.1:{first}")).unwrap();
    let mut conn = client.get_multiplexed_async_connection().await.unwrap();
    for words in FORBIDDEN {
        let told = redis::cmd(words[0]).arg(&words[1..]).query_async::<redis::Value>(&mut conn).await.unwrap_err();
        assert_eq!(told.code(), Some("NOPERM"), "{words:?}: {told}");
    }
    assert_eq!(ask::<String>(first, &["ACL", "LOG", "RESET"]).await.as_deref(), Some("OK"));
    let url = six.cluster.url().replace("://", "://jobs:secret@");
    let frozen = Child::start(module_path!(), "a_worker_process_with_few_rights", &url);
    let (app, tasks) = app(&url).await;
    let mut stalled = Vec::new();
    for task in &tasks {
        stalled.push(task.dispatch(0).await.unwrap());
    }
    for job in &stalled {
        eventually("it runs", PATIENCE, async || job.state().await.unwrap() == JobState::Running).await;
    }
    let mut stalls = app.on_stalled();
    frozen.signal("STOP");
    let worker = TestWorker::start(app.worker());
    // Jobs are dispatched, run, delayed, cancelled, inspected and reported.
    for task in &tasks {
        assert_eq!(task.dispatch(1).await.unwrap().result_within(PATIENCE).await.unwrap(), 2);
        let soon = task.dispatch(2).delay(Duration::from_millis(100)).await.unwrap();
        assert_eq!(soon.result_within(PATIENCE).await.unwrap(), 3);
        let later = task.dispatch(3).delay(Duration::from_secs(60)).await.unwrap();
        later.cancel("enough").await.unwrap();
        assert!(matches!(later.result_within(PATIENCE).await, Err(Error::JobCancelled { .. })));
    }
    for job in &stalled {
        assert_eq!(job.result_within(PATIENCE).await.unwrap(), 1, "it ran again");
        let stall = tokio::time::timeout(PATIENCE, stalls.recv()).await.unwrap().unwrap();
        assert_eq!((stall.action, stall.stalled_count), (StallAction::Recovered, 1), "{stall:?}");
    }
    let inspector = app.inspector();
    let listed = inspector.tasks().await.unwrap();
    assert!(listed.iter().all(|task| task.counts.completed == 3 && task.counts.cancelled == 1), "{listed:?}");
    assert_eq!(inspector.workers().await.unwrap().len(), 2);
    for task in TASKS {
        let audit = inspector.audit(task).await.unwrap();
        assert!(audit.is_clean(), "{audit:?}");
    }
    worker.stop().await;
    // No forbidden command was tried, except for those that docs/acl.md lists with their cost: names of connections,
    // and sizes of columns.
    for port in six.ports() {
        let log: Vec<BTreeMap<String, redis::Value>> = ask(port, &["ACL", "LOG"]).await.unwrap();
        let denied: BTreeSet<String> = log
            .into_iter()
            .map(|mut entry| redis::from_redis_value(entry.remove("object").unwrap()).unwrap())
            .collect();
        assert!(denied.iter().all(|command| ["client|setname", "memory|usage"].contains(&&**command)), "{denied:?}");
    }
}
