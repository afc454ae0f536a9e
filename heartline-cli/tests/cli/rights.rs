//! What the command reports while a user of the server lacks a right.

use std::time::Duration;

use heartline::{App, Context, Graph, JobError, StallOptions, TaskDef, TaskOptions, WorkerReport, WorkflowOptions};

use crate::run::{Bench, PATIENCE, until};

/// A user with all rights but these; returns the address with that user.
async fn lacks(bench: &Bench, name: &str, commands: &[&str]) -> String {
    let mut user = redis::cmd("ACL");
    user.arg("SETUSER").arg(name).arg("on").arg(">secret").arg("resetkeys").arg("~cli:*").arg("&*").arg("+@all");
    let rights: Vec<String> = commands.iter().map(|command| format!("-{command}")).collect();
    user.arg(rights);
    user.query_async::<()>(&mut bench.redis().await).await.unwrap();
    bench.url().replace("redis://", &format!("redis://{name}:secret@"))
}

/// The address of a user with the rights that docs/acl.md gives a role.
async fn as_role(bench: &Bench, role: &str) -> String {
    let text = include_str!("../../../docs/acl.md");
    let (_, rest) = text.split_once(&format!("ACL SETUSER {role} on >secret ")).unwrap();
    let rule = rest.split_once("```").unwrap().0.replace("heartline:", "cli:");
    let mut user = redis::cmd("ACL");
    user.arg("SETUSER").arg(role).arg("on").arg(">secret").arg(rule.split_whitespace().collect::<Vec<_>>());
    user.query_async::<()>(&mut bench.redis().await).await.unwrap();
    bench.url().replace("redis://", &format!("redis://{role}:secret@"))
}

/// The denials of the server since the last call, from `ACL LOG`.
async fn denied(bench: &Bench) -> Vec<String> {
    let mut conn = bench.redis().await;
    let log: Vec<std::collections::HashMap<String, redis::Value>> =
        redis::cmd("ACL").arg("LOG").query_async(&mut conn).await.unwrap();
    let () = redis::cmd("ACL").arg("LOG").arg("RESET").query_async(&mut conn).await.unwrap();
    let object = |mut entry: std::collections::HashMap<String, redis::Value>| {
        redis::from_redis_value::<String>(entry.remove("object").unwrap()).unwrap()
    };
    log.into_iter().map(object).collect()
}

#[tokio::test]
async fn the_producer_role_suffices_for_its_commands() {
    let bench = Bench::of_one_table().await;
    let url = as_role(&bench, "producer").await;
    let run = async |args: &[&str]| bench.run(&[args, &["--redis", &url]].concat()).await;
    let first = run(&["jobs", "dispatch", "-t", "export", "\"x\"", "--id", "first"]).await;
    assert!(first.status == 0 && first.err.contains("task export is new on "), "{first:?}");
    let again = run(&["jobs", "dispatch", "-t", "export", "\"x\"", "--id", "first"]).await;
    assert!(again.status == 0 && again.err.contains("already exists"), "{again:?}");
    run(&["jobs", "dispatch", "-t", "export", "\"x\"", "--id", "later", "--delay", "1h"]).await.ok();
    run(&["jobs", "cancel", "-t", "export", "later"]).await.ok();
    assert_eq!(denied(&bench).await, [""; 0]);
    // These also report how the task is, if their rights allow it.
    let worker = bench.worker();
    assert_eq!(run(&["jobs", "wait", "-t", "export", "first"]).await.ok(), "completed\n");
    assert_eq!(run(&["jobs", "result", "-t", "export", "first"]).await.ok(), "2\n");
    assert_eq!(run(&["jobs", "dispatch", "-t", "export", "\"x\"", "--wait"]).await.ok(), "2\n");
    run(&["jobs", "dispatch", "-t", "export", "\"hold\"", "--id", "held"]).await.ok();
    until("it runs", async || bench.export.counts().await.unwrap().running == 1).await;
    run(&["jobs", "cancel", "-t", "export", "held"]).await.ok();
    bench.open();
    let _ = worker.stop().await.unwrap();
}

#[tokio::test]
async fn the_reader_role_suffices_for_every_read() {
    let bench = Bench::of_one_table().await;
    let url = as_role(&bench, "reader").await;
    crate::schedules::put(&bench, "nightly").await;
    let worker = bench.worker();
    for (id, input) in [("good", "x"), ("bad", "fail")] {
        let _ = bench.export.dispatch(input.into()).id(id).await.unwrap().result().await;
    }
    let looks = [
        "tasks",
        "task show export",
        "workers --all",
        "workers --beats",
        "flows summary",
        "schedules list -t export",
        "schedules show -t export nightly",
        "jobs list -t export",
        "jobs list -t export -s failed",
        "jobs codes -t export",
        "jobs show -t export bad --values",
        "stalls list -t export",
        "stalls outlook -t export",
        "stalls suspects -t export",
        "stalls late -t export",
        "events -t export",
        "audit -t export",
        "repair -t export --dry-run",
        "recover silent -t export",
        "status",
        "health",
        "metrics --once",
    ];
    for look in looks {
        let words: Vec<&str> = look.split(' ').collect();
        let ran = bench.run(&[&words[..], &["--redis", &url]].concat()).await;
        assert!(!ran.err.contains("NOPERM") && !ran.out.contains("NOPERM"), "{look}: {ran:?}");
        // A failed job is a diagnosis, not a failure of the command.
        assert!(ran.status == 0 || ["status", "health"].contains(&look), "{look}: {ran:?}");
    }
    let tried = denied(&bench).await;
    let is_said = |object: &String| ["zrem", "hset", "hdel"].contains(&object.to_lowercase().as_str());
    assert!(tried.iter().all(is_said), "{tried:?}");
    let _ = worker.stop().await.unwrap();
}

#[tokio::test]
async fn the_operator_role_suffices_for_every_action() {
    let bench = Bench::of_one_table().await;
    bench.declared().await;
    let url = as_role(&bench, "operator").await;
    crate::schedules::put(&bench, "nightly").await;
    for id in ["a", "b", "c"] {
        bench.export.dispatch("x".into()).id(id).delay(Duration::from_secs(600)).await.unwrap();
    }
    let acts = [
        "task pause export --reason why",
        "task resume export",
        "schedules pause -t export nightly --reason why",
        "schedules resume -t export nightly",
        "schedules remove -t export nightly",
        "jobs run-now -t export a",
        "jobs cancel -t export b",
        "jobs retry -t export b",
        "jobs remove -t export c",
        "audit -t export",
        "recover sweep -t export",
    ];
    for act in acts {
        let words: Vec<&str> = act.split(' ').collect();
        let ran = bench.run(&[&words[..], &["--yes", "--redis", &url]].concat()).await;
        assert_eq!(ran.status, 0, "{act}: {ran:?}");
    }
    assert_eq!(denied(&bench).await, [""; 0]);
    assert_eq!(bench.export.counts().await.unwrap().waiting, 2);
}

#[tokio::test]
async fn a_worker_without_a_right_is_reported_with_that_right() {
    let bench = Bench::of_one_table().await;
    let app = App::builder().redis(lacks(&bench, "worker", &[]).await).prefix("cli").build().await.unwrap();
    let options = TaskOptions::new().stall(StallOptions::new().interval(Duration::from_secs(3)));
    let quick = async |_: Context, _: String| Ok::<(), JobError>(());
    let jobs = app.task("quick", options, quick).unwrap();
    let worker = app.worker().spawn();
    jobs.dispatch("x".to_owned()).await.unwrap().result().await.unwrap();
    assert_eq!(bench.run(&["health"]).await.status, 0);
    // Heartbeats check this right, and ends of jobs use it.
    lacks(&bench, "worker", &["srem"]).await;
    bench.app.task_ref::<String, ()>("quick").unwrap().dispatch("y".to_owned()).await.unwrap();
    let told = || async { bench.run(&["status"]).await.out };
    let is_told = |out: &str| out.contains("denies the worker") && out.contains("quick") && out.contains("srem");
    until("its right is named", async || is_told(&told().await.to_lowercase())).await;
    assert_eq!(bench.run(&["health"]).await.status, 1);
    lacks(&bench, "worker", &[]).await;
    until("all is done", async || {
        bench.app.task_ref::<String, ()>("quick").unwrap().counts().await.unwrap().completed == 2
    })
    .await;
    let _ = worker.stop().await.unwrap();
}

#[tokio::test]
async fn a_worker_denied_workflow_keys_is_reported_with_the_workflow() {
    let bench = Bench::of_one_table().await;
    let url = lacks(&bench, "worker", &[]).await;
    let grant = async |keys: &[&str]| {
        let mut user = redis::cmd("ACL");
        user.arg("SETUSER").arg("worker").arg("resetkeys").arg(keys);
        user.query_async::<()>(&mut bench.redis().await).await.unwrap();
    };
    let own = ["worker*", "boot:*", "name:*", "tasks", "gone", "{quick}:*"].map(|key| format!("~cli:{key}"));
    grant(&own.each_ref().map(String::as_str)).await;
    let app = App::builder().redis(url).prefix("cli").build().await.unwrap();
    app.task("quick", TaskOptions::new(), async |_: Context, _: String| Ok::<u64, JobError>(1)).unwrap();
    let worker = app.worker().spawn();
    // A worker without nodes needs no such right: it has looked for workflows, and then written its record.
    let is_told = |out: &str| out.contains("denies the worker") && out.contains("calls of a workflow: ");
    until("it has written its record again", async || {
        let workers = bench.app.inspector().workers().await.unwrap();
        let told = |worker: &WorkerReport| worker.last_seen_at.duration_since(worker.started_at?).ok();
        workers.iter().filter_map(told).any(|told| told > Duration::from_secs(7))
    })
    .await;
    let status = bench.run(&["status"]).await;
    assert!(!is_told(&status.out), "{status:?}");
    let graph = Graph::new();
    let only = graph.node("only", &TaskDef::<String, u64>::new("quick"), "x".to_owned());
    let flow = bench.app.workflow::<u64>("nightly", WorkflowOptions::new()).unwrap();
    let handle = flow.start(graph.output(&only)).id("one").await.unwrap();
    until("it is reported", async || is_told(&bench.run(&["status"]).await.out)).await;
    assert_eq!(bench.run(&["health"]).await.status, 1);
    assert!(bench.run(&["metrics", "--once"]).await.ok().contains("heartline_workers_denied 1"));
    grant(&["~cli:*"]).await;
    assert_eq!(tokio::time::timeout(PATIENCE, handle.result()).await.expect("the workflow is stuck").unwrap(), 1);
    let _ = worker.stop().await.unwrap();
}

#[tokio::test]
async fn keys_that_our_user_may_not_read_are_not_damage() {
    let bench = Bench::of_one_table().await;
    let worker = bench.worker();
    bench.export.dispatch("x".into()).await.unwrap().result().await.unwrap();
    for commands in [&["hgetall"][..], &["hlen", "llen", "zcard"]] {
        let url = lacks(&bench, "reader", commands).await;
        for command in [&["status"][..], &["doctor"]] {
            let ran = bench.run(&[command, &["--redis", &url]].concat()).await;
            let out = ran.out.to_lowercase();
            assert!(!out.contains("foreign") && !out.contains("rename or delete"), "without {commands:?}: {ran:?}");
            assert!(out.contains("lacks a right") && out.contains("docs/acl.md"), "without {commands:?}: {ran:?}");
        }
    }
    let _ = worker.stop().await.unwrap();
}

#[tokio::test]
async fn a_denied_action_changes_nothing_and_reports_it() {
    let bench = Bench::of_one_table().await;
    for at in 0..3 {
        let job = bench.export.dispatch("x".into()).id(format!("later-{at}")).delay(Duration::from_secs(600));
        job.await.unwrap();
    }
    let url = lacks(&bench, "producer", &["lpush"]).await;
    let ran = bench.run(&["jobs", "run-now", "-t", "export", "-s", "delayed", "--yes", "--redis", &url]).await;
    assert!(
        ran.status != 0 && !ran.out.contains("repeat the command") && !ran.err.contains("repeat the command"),
        "{ran:?}"
    );
    assert!(ran.err.contains("LPUSH") || ran.out.contains("LPUSH"), "{ran:?}");
    assert_eq!(bench.export.counts().await.unwrap().delayed, 3);
    // A user with the right may do it, on these keys only.
    let url = lacks(&bench, "producer", &[]).await;
    let ran = bench.run(&["jobs", "run-now", "-t", "export", "-s", "delayed", "--yes", "--redis", &url]).await;
    assert!(ran.status == 0 && bench.export.counts().await.unwrap().delayed == 0, "{ran:?}");
}
