//! Numbers in Redis that another program has written: each read still ends.

use std::sync::mpsc;
use std::time::Duration;

use heartline::{Graph, Inspector, JobFilter, JobState, JobValues, TaskDef, WorkflowOptions, WorkflowState};
use redis::AsyncCommands;
use redis::aio::MultiplexedConnection;

use crate::support::worker::TestWorker;
use crate::support::{PATIENCE, TestRedis, eventually};
use crate::workflows::world::{WORK, World};

/// The largest number that the type of a read accepts.
const LARGEST: &str = "18446744073709551615";

/// A value whose numbers are all the largest.
fn grown(value: &str) -> String {
    let mut grown = String::new();
    for c in value.chars() {
        match c.is_ascii_digit() {
            true if grown.ends_with(LARGEST) => {}
            true => grown.push_str(LARGEST),
            false => grown.push(c),
        }
    }
    grown
}

/// Jobs in every state, a live worker, and an instance with nodes that run and nodes that wait.
async fn busy(world: &World) -> (TestWorker, String) {
    let (flow, task) = world.producer(WorkflowOptions::new()).await;
    let worker = world.worker().await;
    for (id, what) in [("completes", "value 1"), ("fails", "fail")] {
        let _ = task.dispatch(what.to_owned()).id(id).await.unwrap().result().await;
    }
    let _ = task.dispatch("value 1".to_owned()).id("later").delay(Duration::from_secs(3600)).await.unwrap();
    let _ = task.dispatch("wait".to_owned()).id("runs").await.unwrap();
    let graph = Graph::new();
    let first = graph.node("first", &TaskDef::<String, u64>::new(WORK), "wait".to_owned());
    let last = graph.node("last", &TaskDef::<String, u64>::new(WORK), "sum".to_owned()).after(&first);
    let _ = flow.start(graph.output(&last)).id("one").await.unwrap();
    eventually("both run", PATIENCE, async || task.counts().await.unwrap().running == 2).await;
    let inspector = world.app().await.inspector();
    let id = inspector.workers().await.unwrap()[0].worker.to_string();
    inspector.pause(WORK, "3 reasons").await.unwrap();
    (worker, id)
}

/// Everything that tools read. The test does not check what they find.
async fn look(inspector: &Inspector, worker: &str) {
    let _ = (inspector.tasks().await, inspector.workers().await, inspector.worker(worker).await);
    let _ = (inspector.task(WORK).await, inspector.recovery_status(WORK).await, inspector.lock_holders(WORK).await);
    for state in [JobState::Waiting, JobState::Delayed, JobState::Running, JobState::Completed, JobState::Failed] {
        let _ = inspector.jobs(WORK, &JobFilter::new(state), None, 100).await;
    }
    for id in ["completes", "fails", "later", "runs", "~flow/one/0/1"] {
        let _ = (inspector.job(WORK, id, JobValues::Small).await, inspector.job_events(WORK, id).await);
        let _ = inspector.stall_history(WORK, id).await;
    }
    let _ = (inspector.silent_jobs(WORK, None).await, inspector.stalls(WORK, None).await);
    let _ = (inspector.events(WORK, None).await, inspector.rejected_outcomes(WORK, 10).await);
    let _ = (inspector.workflows().await, inspector.instance("flow", "one", 0).await);
    let _ = inspector.instances("flow", WorkflowState::Running, true, None, 100).await;
}

/// The keys with a hash or a sorted set, with their fields or members.
async fn numbered(world: &World, conn: &mut MultiplexedConnection) -> Vec<(String, bool, Vec<(String, String)>)> {
    let mut found = Vec::new();
    let mut keys: Vec<String> = conn.keys(format!("{}:*", world.prefix)).await.unwrap();
    keys.sort();
    for key in keys {
        let kind: String = redis::cmd("TYPE").arg(&key).query_async(conn).await.unwrap();
        match kind.as_str() {
            "hash" => found.push((key.clone(), true, conn.hgetall(&key).await.unwrap())),
            "zset" => found.push((key.clone(), false, conn.zrange_withscores(&key, 0, -1).await.unwrap())),
            _ => {}
        }
    }
    found
}

/// Copies every key of the world to a server without workers.
async fn copied(world: &World) -> TestRedis {
    let (copy, mut from) = (TestRedis::start(), world.redis.conn().await);
    let mut to = copy.conn().await;
    let keys: Vec<String> = from.keys(format!("{}:*", world.prefix)).await.unwrap();
    for key in keys {
        let dumped: redis::Value = redis::cmd("DUMP").arg(&key).query_async(&mut from).await.unwrap();
        let redis::Value::BulkString(dumped) = dumped else { continue };
        let () = redis::cmd("RESTORE").arg(&key).arg(0).arg(dumped).query_async(&mut to).await.unwrap();
    }
    copy
}

#[tokio::test]
async fn no_stored_number_makes_a_read_fail() {
    let world = World::new();
    let (_worker, id) = busy(&world).await;
    let copy = copied(&world).await;
    let mut conn = copy.conn().await;
    let (changed, changes) = mpsc::channel::<()>();
    let (looked, looks) = mpsc::channel::<()>();
    let (url, prefix, named) = (copy.url(), world.prefix.clone(), id.clone());
    // On a thread of its own: a read that never ends would otherwise block the test.
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let app = heartline::App::builder().redis(&url).prefix(&prefix).lazy().build().await.unwrap();
            let inspector = app.inspector();
            while changes.recv().is_ok() {
                look(&inspector, &named).await;
                looked.send(()).unwrap();
            }
        });
    });
    let ended = |what: &str| {
        changed.send(()).unwrap();
        looks.recv_timeout(3 * PATIENCE).unwrap_or_else(|_| panic!("a read does not end, or panics, with {what}"));
    };
    ended("nothing changed");
    // Only workers of tasks with partitions write it.
    let () = conn.hset(format!("{}:worker:{id}", world.prefix), format!("partitions:{WORK}"), "1").await.unwrap();
    for (key, is_hash, members) in numbered(&world, &mut conn).await {
        for (name, value) in members {
            let large = if is_hash { grown(&value) } else { "inf".to_owned() };
            let set = async |conn: &mut MultiplexedConnection, value: &str| match is_hash {
                true => conn.hset::<_, _, _, ()>(&key, &name, value).await.unwrap(),
                false => {
                    redis::cmd("ZADD").arg(&key).arg(value).arg(&name).query_async::<()>(conn).await.unwrap();
                }
            };
            set(&mut conn, &large).await;
            ended(&format!("{key} {name} {large}"));
            set(&mut conn, &value).await;
        }
    }
}
