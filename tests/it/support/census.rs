//! The connections of the process of an idle worker.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use heartline::{App, Context, JobError, StallOptions, TaskOptions};
use redis::aio::MultiplexedConnection;

use super::{PATIENCE, TestRedis, eventually};

/// A third of it is shorter than [`LOOKED_AT`], and a tenth is longer than a heartbeat waits on a busy machine: then
/// it would use another connection, too.
const INTERVAL: Duration = Duration::from_secs(12);

/// How long it is observed: meanwhile an idle worker sends heartbeats and checks each of its duties.
const LOOKED_AT: Duration = Duration::from_secs(5);

/// The whole life of a process that works these tasks.
pub async fn works(url: &str, tasks: &[&str]) {
    let app = App::builder().redis(url).build().await.unwrap();
    for task in tasks {
        let options = TaskOptions::new().stall(StallOptions::new().interval(INTERVAL));
        app.task(task, options, |_: Context, input: u64| async move { Ok::<_, JobError>(input) }).unwrap();
    }
    let _ = app.worker().run().await.unwrap();
}

/// The use of each connection to a server, by its name, without those of sentinels and this one.
async fn roles(conn: &mut MultiplexedConnection) -> BTreeMap<String, usize> {
    let own: String = redis::cmd("CLIENT").arg("ID").query_async(conn).await.map(|id: u64| format!("id={id}")).unwrap();
    let mut roles = BTreeMap::new();
    for kind in ["normal", "pubsub"] {
        let list: String = redis::cmd("CLIENT").arg("LIST").arg("TYPE").arg(kind).query_async(conn).await.unwrap();
        for line in list.lines() {
            let words: BTreeMap<&str, &str> = line.split(' ').filter_map(|word| word.split_once('=')).collect();
            let name = words["name"];
            if line.starts_with(&format!("{own} ")) || name.starts_with("sentinel-") {
                continue;
            }
            let role = name.strip_prefix("heartline:").map_or("of no name", |rest| rest.split(':').next().unwrap());
            *roles.entry(role.to_owned()).or_default() += 1;
        }
    }
    roles
}

/// Observes these servers from when a worker subscribes on this many of them, and returns the largest number of
/// simultaneous connections at each.
pub async fn most(ports: &[u16], listens: usize) -> Vec<usize> {
    let mut conns = Vec::new();
    for port in ports {
        let client = redis::Client::open(format!("redis://127.0.0.1:{port}")).unwrap();
        conns.push(client.get_multiplexed_async_connection_with_config(&TestRedis::patient()).await.unwrap());
    }
    let settled = async || {
        let mut ears = [0, 0];
        for conn in &mut conns {
            let roles = roles(conn).await;
            let of = |role: &str| roles.get(role).copied().unwrap_or(0);
            ears = [ears[0] + of("wake"), ears[1] + of("hints")];
        }
        // It subscribes to cancels in one place.
        ears == [listens, 1]
    };
    eventually("the worker is idle", PATIENCE, settled).await;
    let (begun, mut most) = (Instant::now(), vec![0; ports.len()]);
    while begun.elapsed() < LOOKED_AT {
        for (conn, most) in conns.iter_mut().zip(&mut most) {
            let roles = roles(conn).await;
            let sum: usize = roles.values().sum();
            if sum > *most {
                println!("{sum}: {roles:?}");
                *most = sum;
            }
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    most
}
