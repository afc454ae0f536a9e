//! The same commands on a cluster, with a task on each of its nodes.

use std::process::{Child, Command, Stdio};

use std::time::{Duration, Instant};

use heartline::testing::RedisCluster;
use heartline::{App, Context, Graph, JobError, TaskOptions, WorkflowOptions};

use crate::run::{Ran, command, patient, until};

/// Tasks with the slots 4,247, 9,909 and 12,682, which three nodes have, by their order.
const TASKS: [&str; 3] = ["mail", "export", "billing"];

/// A name without a task, with a slot of the node that has `mail`.
const NO_TASK: &str = "mil";

struct Cluster(RedisCluster);

impl Cluster {
    fn command(&self, args: &[&str]) -> Command {
        let mut command = command();
        command.env("HEARTLINE_URL", self.0.url()).args(args);
        command
    }

    async fn run(&self, args: &[&str]) -> Ran {
        let mut command = self.command(args);
        tokio::task::spawn_blocking(move || Ran::of(command.output().unwrap())).await.unwrap()
    }

    async fn ok(&self, args: &[&str]) -> String {
        self.run(args).await.ok()
    }
}

/// A program that is killed on drop.
struct Goes(Child);

impl Drop for Goes {
    fn drop(&mut self) {
        let _ = self.0.kill().and_then(|()| self.0.wait());
    }
}

#[tokio::test]
async fn every_command_reads_and_controls_every_node() {
    crate::turn::with_cluster();
    let started = tokio::task::spawn_blocking(RedisCluster::start).await.unwrap();
    let mut cluster = Cluster(started.unwrap());
    let works = |task: &&str| {
        let mut command = cluster.command(&["work", "-t", task, "--interval", "1s", "--exec", "sh", "-c"]);
        Goes(command.arg("read n; [ $n != 7 ] && echo $n").stderr(Stdio::null()).spawn().unwrap())
    };
    let workers: Vec<Goes> = TASKS.iter().map(works).collect();
    for task in TASKS {
        assert_eq!(cluster.ok(&["jobs", "dispatch", "-t", task, "1", "--id", "good", "--wait"]).await.trim(), "1");
        cluster.ok(&["jobs", "dispatch", "-t", task, "7", "--id", "bad"]).await;
        let waited = cluster.run(&["jobs", "wait", "-t", task, "bad"]).await;
        assert_eq!((waited.status, waited.out.trim()), (1, "failed"));
        assert!(cluster.ok(&["jobs", "list", "-t", task, "-s", "failed"]).await.contains("exit_1"));
        let shown = cluster.ok(&["jobs", "show", "-t", task, "bad"]).await;
        assert!(shown.contains("task:dispatched") && shown.contains("task:failed"), "{shown}");
        cluster.ok(&["jobs", "dispatch", "-t", task, "2", "--id", "later", "--delay", "1h"]).await;
        assert!(cluster.ok(&["jobs", "cancel", "-t", task, "later"]).await.contains("1 cancelled"));
        assert!(cluster.ok(&["jobs", "retry", "-t", task, "later"]).await.contains("1 run again"));
        assert!(cluster.ok(&["audit", "-t", task]).await.contains("0 faults"));
        assert!(cluster.ok(&["stalls", "outlook", "-t", task]).await.contains("no job is held"));
        assert!(cluster.ok(&["events", "-t", task]).await.contains("task:completed"));
        cluster.ok(&["task", "pause", task]).await;
        cluster.ok(&["task", "resume", task]).await;
    }
    let tasks = cluster.run(&["tasks", "--json"]).await.json();
    assert_eq!(tasks.as_array().unwrap().len(), 3);
    until("all have ended", async || {
        let tasks = cluster.run(&["tasks", "--json"]).await.json();
        tasks.as_array().unwrap().iter().all(|task| task["counts"]["completed"] == 2 && task["live_workers"] == 1)
    })
    .await;
    assert_eq!(cluster.run(&["workers", "--json"]).await.json().as_array().unwrap().len(), 3);
    let metrics = cluster.ok(&["metrics", "--once"]).await;
    assert!(
        TASKS.iter().all(|task| metrics.contains(&format!("heartline_jobs{{task=\"{task}\",state=\"failed\"}} 1")))
    );
    let doctor = cluster.ok(&["doctor"]).await;
    for node in &cluster.0.nodes[..3] {
        assert!(
            doctor.contains(&format!("127.0.0.1:{}: redis ", node.port())) && doctor.contains(", 1 replica, "),
            "{doctor}"
        );
    }
    drop(workers);

    // A node is away and no replica replaces it: the rest is reported and controlled.
    let away = format!("127.0.0.1:{}: the server does not answer", cluster.0.nodes[1].port());
    cluster.0.nodes[4].kill();
    cluster.0.nodes[1].kill();
    let doctor = cluster.run(&["doctor"]).await;
    assert!(doctor.status == 1 && doctor.out.contains(&away), "{doctor:?}");
    let status = cluster.run(&["status"]).await;
    assert!(status.out.contains("nodes of the cluster do not answer: 1 task: export"), "{status:?}");
    // Its data is not damaged, and no output may claim so.
    assert!(!doctor.out.contains("foreign") && !status.out.contains("foreign"), "{doctor:?} {status:?}");
    let tasks = cluster.run(&["tasks", "--json"]).await;
    let tasks = tasks.json();
    let readable = |task: &&serde_json::Value| task["fault"].is_null();
    let readable: Vec<&str> =
        tasks.as_array().unwrap().iter().filter(readable).map(|task| task["task"].as_str().unwrap()).collect();
    assert_eq!(readable, ["billing", "mail"], "{tasks}");
    assert!(
        tasks.as_array().unwrap().iter().all(|task| task["is_unreachable"] == (task["task"] == "export")),
        "{tasks}"
    );
    cluster.ok(&["jobs", "dispatch", "-t", "mail", "3"]).await;
}

impl Cluster {
    fn place(&self, node: usize) -> String {
        format!("127.0.0.1:{}", self.0.nodes[node].port())
    }

    async fn ask<T: redis::FromRedisValue>(&self, node: usize, words: &[&str]) -> T {
        let client = redis::Client::open(format!("redis://{}", self.place(node))).unwrap();
        let mut conn = client.get_multiplexed_async_connection_with_config(&patient()).await.unwrap();
        let mut ask = redis::cmd(words[0]);
        ask.arg(&words[1..]).query_async(&mut conn).await.unwrap()
    }

    /// The output of a command that must not wait for a frozen node. It is repeated while it reaches no node at all:
    /// on a busy machine the healthy nodes may be late, too.
    async fn soon(&self, args: &[&str]) -> Ran {
        let mut last = None;
        until("the command reaches the cluster", async || {
            let begun = Instant::now();
            let ran = last.insert(self.run(args).await);
            // A few seconds; a call that waits for the node takes 5 s, twice, and there are many calls.
            assert!(begun.elapsed() < Duration::from_secs(20), "{args:?} took {:?}", begun.elapsed());
            !ran.err.contains("no answer in time") || ran.err.contains("does not answer")
        })
        .await;
        last.unwrap()
    }
}

#[tokio::test]
async fn commands_answer_soon_although_a_node_hangs() {
    crate::turn::with_cluster();
    let started = tokio::task::spawn_blocking(RedisCluster::start).await.unwrap();
    let mut cluster = Cluster(started.unwrap());
    for task in TASKS {
        cluster.ok(&["jobs", "dispatch", "-t", task, "1"]).await;
    }
    let app = App::builder().redis(cluster.0.url()).build().await.unwrap();
    let handler = |_: Context, input: u64| async move { Ok::<_, JobError>(input) };
    let parts = app.task("parts", TaskOptions::new().partitions(3), handler).unwrap();
    let worker = app.worker().spawn();
    let ids = ["a", "b", "c", "d", "e", "f"];
    for id in ids {
        parts.dispatch(1).id(id).await.unwrap().result().await.unwrap();
    }

    // The slot of `export` is being migrated.
    let other: String = cluster.ask(2, &["CLUSTER", "MYID"]).await;
    let own: String = cluster.ask(1, &["CLUSTER", "MYID"]).await;
    cluster.ask::<()>(2, &["CLUSTER", "SETSLOT", "9909", "IMPORTING", &own]).await;
    cluster.ask::<()>(1, &["CLUSTER", "SETSLOT", "9909", "MIGRATING", &other]).await;
    let status = cluster.run(&["status"]).await;
    assert!(status.out.contains("slots are moving to another node: 1 task: export"), "{status:?}");
    assert!(!status.out.contains("do not answer") && !status.out.contains("0 live worker"), "{status:?}");
    for node in [1, 2] {
        cluster.ask::<()>(node, &["CLUSTER", "SETSLOT", "9909", "STABLE"]).await;
    }
    // The slot of a workflow.
    let flow = app.workflow::<()>("flow", WorkflowOptions::new()).unwrap();
    let graph = Graph::new();
    graph.node("later", &parts, 1).delay(Duration::from_secs(3600));
    flow.start(graph).await.unwrap();
    let slot: u16 = cluster.ask(0, &["CLUSTER", "KEYSLOT", "heartline:{flow:flow}:instances"]).await;
    let own = usize::from(slot / 5461);
    let other = (own + 1) % 3;
    let (own_id, other_id): (String, String) =
        (cluster.ask(own, &["CLUSTER", "MYID"]).await, cluster.ask(other, &["CLUSTER", "MYID"]).await);
    let slot = slot.to_string();
    cluster.ask::<()>(other, &["CLUSTER", "SETSLOT", &slot, "IMPORTING", &own_id]).await;
    cluster.ask::<()>(own, &["CLUSTER", "SETSLOT", &slot, "MIGRATING", &other_id]).await;
    for command in ["status", "doctor", "health"] {
        let told = cluster.run(&[command]).await;
        let moves = "the slot of the workflow flow is moving to another node";
        assert!(told.status == 1 && told.out.contains(moves), "{told:?}");
    }
    let metrics = cluster.run(&["metrics", "--once"]).await.ok();
    assert!(metrics.contains("heartline_workflow_readable{workflow=\"flow\"} 0"), "{metrics}");
    for node in [own, other] {
        cluster.ask::<()>(node, &["CLUSTER", "SETSLOT", &slot, "STABLE"]).await;
    }

    // This node has the list of workflows.
    for node in [1, 4] {
        cluster.0.nodes[node].freeze().unwrap();
    }
    let away = format!("{}: the server does not answer", cluster.place(1));
    for command in ["status", "doctor", "health"] {
        let ran = cluster.soon(&[command]).await;
        assert!(ran.status == 1 && ran.out.contains(&away) && ran.out.contains("export"), "{ran:?}");
        assert!(ran.out.contains("the list of workflows cannot be read"), "{ran:?}");
    }
    let tasks = cluster.soon(&["tasks", "--json"]).await.json();
    let is_unreachable = |task: &serde_json::Value| task["task"] == "export" || task["task"] == "parts";
    assert!(tasks.as_array().unwrap().iter().all(|task| task["is_unreachable"] == is_unreachable(task)), "{tasks}");
    assert_eq!(cluster.soon(&["workers", "--json"]).await.json().as_array().unwrap().len(), 1);
    let metrics = cluster.soon(&["metrics", "--once"]).await.ok();
    assert!(metrics.contains("heartline_up 1") && metrics.contains("heartline_redis_servers_up 2"), "{metrics}");
    assert!(metrics.contains("heartline_list_readable{list=\"workflows\"} 0"), "{metrics}");
    // Jobs of the other partitions.
    let waits = ids.map(|id| {
        let mut command = cluster.command(&["jobs", "wait", "-t", "parts", id, "--timeout", "1s"]);
        tokio::task::spawn_blocking(move || Ran::of(command.output().unwrap()))
    });
    let mut completed = 0;
    for wait in waits {
        let waited = wait.await.unwrap();
        completed += u32::from(waited.status == 0 && waited.out.trim() == "completed");
    }
    assert!((1..6).contains(&completed), "{completed}");
    cluster.0.nodes[1].thaw().unwrap();
    until("it is back", async || !cluster.run(&["status"]).await.out.contains("not answer")).await;

    // The node with the list of workers.
    for node in [0, 3] {
        cluster.0.nodes[node].freeze().unwrap();
    }
    let away = format!("the node with the list of workers ({}) does not answer", cluster.place(0));
    for command in ["status", "doctor", "health"] {
        let ran = cluster.soon(&[command]).await;
        assert!(ran.status == 1 && ran.out.contains(&away) && ran.out.contains("mail"), "{ran:?}");
        assert!(!ran.out.contains("no live worker") && !ran.out.contains("no worker is live"), "{ran:?}");
    }
    assert!(cluster.soon(&["workers"]).await.err.contains(&away));
    assert!(cluster.soon(&["task", "show", "billing"]).await.ok().contains("0? live"));
    let metrics = cluster.soon(&["metrics", "--once"]).await.ok();
    assert!(metrics.contains("heartline_list_readable{list=\"workers\"} 0"), "{metrics}");
    assert!(metrics.contains("heartline_task_workers_known{task=\"billing\"} 0"), "{metrics}");
    assert!(!metrics.contains("heartline_workers{"), "{metrics}");
    cluster.0.nodes[0].thaw().unwrap();
    until("it is back", async || !cluster.run(&["status"]).await.out.contains("not answer")).await;

    // The node with the list of tasks.
    for node in [5, 2] {
        cluster.0.nodes[node].kill();
    }
    let away = format!("the node with the list of tasks ({}) does not answer", cluster.place(2));
    for command in ["status", "doctor", "health"] {
        let ran = cluster.soon(&[command]).await;
        assert!(ran.status == 1 && ran.out.contains(&away), "{ran:?}");
        assert!(!ran.out.contains("no task under this prefix"), "{ran:?}");
    }
    for command in ["tasks", "audit"] {
        let ran = cluster.soon(&[command]).await;
        assert!(
            ran.status == 1 && ran.err.contains(&away) && ran.err.contains("`heartline task show NAME`"),
            "{ran:?}"
        );
    }
    // The task may exist on the missing node.
    let typo = cluster.soon(&["jobs", "list", "-t", NO_TASK]).await;
    let unknown = format!("the task {NO_TASK} is unknown: {away}");
    assert!(typo.status == 1 && typo.err.contains(&unknown), "{typo:?}");
    assert!(cluster.soon(&["task", "show", "export"]).await.ok().contains("1 waiting"));
    assert!(cluster.soon(&["jobs", "list", "-t", "export", "-s", "waiting"]).await.ok().contains("waiting"));
    cluster.soon(&["jobs", "dispatch", "-t", "export", "2"]).await.ok();
    let metrics = cluster.soon(&["metrics", "--once"]).await.ok();
    for (list, is_readable) in [("tasks", 0), ("workers", 1), ("workflows", 1)] {
        assert!(metrics.contains(&format!("heartline_list_readable{{list=\"{list}\"}} {is_readable}")), "{metrics}");
    }
    // The worker cannot reach every node.
    drop(worker.stop().await);
}
