//! The same commands on a cluster, with a task on each of its nodes.

use std::process::{Child, Command, Stdio};

use heartline::testing::RedisCluster;

use crate::run::{Ran, command, until};

/// Tasks with the slots 4,247, 9,909 and 12,682, which three nodes have, by their order.
const TASKS: [&str; 3] = ["mail", "export", "billing"];

struct Cluster(RedisCluster);

impl Cluster {
    fn command(&self, args: &[&str]) -> Command {
        let mut command = command();
        command.env("HEARTLINE_REDIS", self.0.url()).args(args);
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

/// A program that goes on until it is dropped.
struct Goes(Child);

impl Drop for Goes {
    fn drop(&mut self) {
        let _ = self.0.kill().and_then(|()| self.0.wait());
    }
}

#[tokio::test]
async fn every_command_shows_and_steers_what_is_on_any_node() {
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
        assert!(doctor.contains(&format!("127.0.0.1:{}: 1 replicas follow it", node.port())), "{doctor}");
    }
    drop(workers);

    // A node that is away, and no replica takes its place: what is on the others is told of, and steered.
    let away = format!("127.0.0.1:{}: it cannot be asked", cluster.0.nodes[1].port());
    cluster.0.nodes[4].kill();
    cluster.0.nodes[1].kill();
    let doctor = cluster.run(&["doctor"]).await;
    assert!(doctor.status == 1 && doctor.out.contains(&away), "{doctor:?}");
    let status = cluster.run(&["status"]).await;
    assert!(status.out.contains("1 task on nodes of the cluster that cannot be asked: export;"), "{status:?}");
    // Nothing of it is damaged, and nobody may be told so.
    assert!(!doctor.out.contains("foreign") && !status.out.contains("foreign"), "{doctor:?} {status:?}");
    let tasks = cluster.run(&["tasks", "--json"]).await;
    let tasks = tasks.json();
    let readable = |task: &&serde_json::Value| task["fault"].is_null();
    let readable: Vec<&str> =
        tasks.as_array().unwrap().iter().filter(readable).map(|task| task["task"].as_str().unwrap()).collect();
    assert_eq!(readable, ["billing", "mail"], "{tasks}");
    assert!(tasks.as_array().unwrap().iter().all(|task| task["is_away"] == (task["task"] == "export")), "{tasks}");
    cluster.ok(&["jobs", "dispatch", "-t", "mail", "3"]).await;
}
