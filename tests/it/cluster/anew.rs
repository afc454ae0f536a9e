//! A cluster that is gone for good, and another one at its address.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use heartline::{App, Context, JobError, StopReason, TaskOptions};

use crate::cluster::six::{Six, ask};
use crate::support::{PATIENCE, Proxy, eventually};

async fn epoch(port: u16) -> u64 {
    let info: String = ask(port, &["CLUSTER", "INFO"]).await.unwrap();
    let epoch = info.lines().find_map(|line| line.strip_prefix("cluster_current_epoch:"));
    epoch.unwrap().trim().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_cluster_of_an_older_epoch_is_followed_after_a_while() {
    let (first, second) = tokio::join!(Six::start(), Six::start());
    let (old, new) = (first.ports(), second.ports());
    let place = |port: u16| SocketAddr::from(([127, 0, 0, 1], port));
    let proxy = Proxy::start(place(old[0])).await;
    let app = App::builder().redis(proxy.url().replace("redis://", "redis-cluster://")).build().await.unwrap();
    let task = app.task("t", TaskOptions::new(), async |_: Context, n: u8| Ok::<_, JobError>(n + 1)).unwrap();
    let worker = app.worker().spawn();
    assert_eq!(task.dispatch(1).await.unwrap().result().await.unwrap(), 2);

    eventually("the first has a later epoch, as after some failovers", PATIENCE, async || {
        for node in &old[..3] {
            let _: Option<String> = ask(*node, &["CLUSTER", "BUMPEPOCH"]).await;
        }
        epoch(old[0]).await > epoch(new[0]).await + 5
    })
    .await;
    // The process learns of that within a second.
    tokio::time::sleep(Duration::from_secs(3)).await;
    drop(first);
    proxy.lead_to(place(new[0]));
    // An epoch counts for 30 s after the last reply of a node that knew it.
    let job = eventually("jobs are dispatched to the second", PATIENCE * 3, async || task.dispatch(2).await.ok()).await;
    assert_eq!(tokio::time::timeout(PATIENCE, job.result()).await.unwrap().unwrap(), 3);
    assert_eq!(worker.stop().await.unwrap(), StopReason::Shutdown);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deposed_primary_that_restarts_alone_is_not_followed() {
    let mut six = Six::start().await;
    let app = App::builder().redis(six.cluster.url()).dispatch_timeout(Duration::from_secs(2)).build().await.unwrap();
    let task = app.task_ref::<u8, u8>("export").unwrap();
    task.dispatch(1).await.unwrap();
    let ports = six.ports();
    let deposed = six.primary_of("export", ports[0]).await.unwrap();
    let at = ports.iter().position(|port| *port == deposed).unwrap();
    six.cluster.nodes[at].kill();
    six.another_than(deposed, "export").await;
    eventually("jobs go to the other one", PATIENCE, async || task.dispatch(2).await.is_ok()).await;

    for node in &mut six.cluster.nodes {
        node.kill();
    }
    // For longer than an epoch counts after the last reply of a node that knew it.
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(32) {
        task.dispatch(3).await.unwrap_err();
    }
    six.cluster.nodes[at].restart().unwrap();
    let _: Option<String> = ask(deposed, &["CONFIG", "SET", "cluster-node-timeout", "15000"]).await;
    eventually("it reports a healthy cluster", PATIENCE, async || {
        let info: Option<String> = ask(deposed, &["CLUSTER", "INFO"]).await;
        info.is_some_and(|info| info.contains("cluster_state:ok"))
    })
    .await;
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(5) {
        task.dispatch(4).await.unwrap_err();
    }
    let info: String = ask(deposed, &["CLUSTER", "INFO"]).await.unwrap();
    assert!(info.contains("cluster_state:ok"), "it still reports a healthy cluster: {info}");
}
