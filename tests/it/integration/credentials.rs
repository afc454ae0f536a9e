//! A password that is rotated while jobs are dispatched and run.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use heartline::testing::RedisServer;
use heartline::{App, Context, Credentials, Error, JobError, StopReason, TaskOptions};
use redis::aio::MultiplexedConnection;
use tokio::sync::watch;

use crate::support::{PATIENCE, TestRedis, eventually, stat};

async fn admin(url: &str) -> MultiplexedConnection {
    let client = redis::Client::open(url).unwrap();
    client.get_multiplexed_async_connection_with_config(&TestRedis::patient()).await.unwrap()
}

async fn ask<T: redis::FromRedisValue>(admin: &mut MultiplexedConnection, words: &[&str]) -> T {
    redis::cmd(words[0]).arg(&words[1..]).query_async(admin).await.unwrap()
}

/// How often connections have authenticated since they were opened.
async fn shown(admin: &mut MultiplexedConnection) -> usize {
    let stats: String = ask(admin, &["INFO", "commandstats"]).await;
    let calls = stats.lines().find_map(|line| line.strip_prefix("cmdstat_auth:calls="));
    calls.map_or(0, |calls| calls.split(',').next().unwrap().parse().unwrap())
}

/// The connections of the user, by their ids.
async fn open_now(admin: &mut MultiplexedConnection) -> BTreeSet<String> {
    let open: String = ask(admin, &["CLIENT", "LIST"]).await;
    let own = open.lines().filter(|line| line.contains(" user=app "));
    own.map(|line| line.split(' ').next().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn a_changed_password_reaches_open_and_new_connections() {
    let server = RedisServer::start().unwrap();
    let mut admin = admin(&server.url()).await;
    let () = ask(&mut admin, &["ACL", "SETUSER", "app", "on", ">first", "~*", "&*", "+@all"]).await;
    let (rotated, credentials) = watch::channel(Credentials::new("app", "first"));
    // The user and password of the URL are ignored.
    let url = server.url().replace("redis://", "redis://somebody:else@");
    let app = App::builder().redis(url).credentials(credentials).build().await.unwrap();
    let task = app.task("t", TaskOptions::new(), async |_: Context, n: u8| Ok::<_, JobError>(n + 1)).unwrap();
    let worker = app.worker().spawn();
    assert_eq!(task.dispatch(1).await.unwrap().result().await.unwrap(), 2);

    let open = open_now(&mut admin).await;
    eventually("each has authenticated after its start", PATIENCE, async || shown(&mut admin).await >= open.len())
        .await;
    let before = shown(&mut admin).await;
    let () = ask(&mut admin, &["ACL", "SETUSER", "app", ">second"]).await;
    rotated.send_replace(Credentials::new("app", "second"));
    // Connections that wait for jobs or events authenticate after that wait.
    eventually("each open connection sends the new password", PATIENCE, async || {
        let left = open_now(&mut admin).await.intersection(&open).count();
        assert!(left > 3, "worker, keeper, hints and wait for jobs");
        shown(&mut admin).await >= before + left
    })
    .await;

    let () = ask(&mut admin, &["ACL", "SETUSER", "app", "<first"]).await;
    let killed: usize = ask(&mut admin, &["CLIENT", "KILL", "USER", "app"]).await;
    assert!(killed > 3, "{killed}");
    assert_eq!(tokio::time::timeout(PATIENCE, task.dispatch(2).await.unwrap().result()).await.unwrap().unwrap(), 3);
    let late = App::builder().redis(server.url()).credentials(watch::channel(Credentials::new("app", "first")).1);
    let refused = late.build().await.unwrap_err();
    assert!(matches!(&refused, Error::Connect { .. }) && !refused.is_retryable(), "{refused:?}");
    assert!(!format!("{refused:?} {:?}", Credentials::new("app", "first")).contains("first"));

    // A producer that keeps dispatching does not reconnect on each call.
    let () = ask(&mut admin, &["ACL", "SETUSER", "app", "<second", ">third"]).await;
    let _: usize = ask(&mut admin, &["CLIENT", "KILL", "USER", "app"]).await;
    let (before, begun, mut refused) = (stat(&mut admin, "total_connections_received").await, Instant::now(), 0);
    while begun.elapsed() < Duration::from_secs(2) || refused < 600 {
        refused += usize::from(task.dispatch(0).await.is_err());
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let knocked = stat(&mut admin, "total_connections_received").await - before;
    assert!(refused > 10 * knocked as usize && knocked < 60, "{knocked} connections, {refused} calls refused");
    let () = ask(&mut admin, &["ACL", "SETUSER", "app", "<third", ">second"]).await;
    eventually("jobs are dispatched again", PATIENCE, async || task.dispatch(0).await.is_ok()).await;

    // Now no more passwords arrive.
    drop(rotated);
    let _: usize = ask(&mut admin, &["CLIENT", "KILL", "USER", "app"]).await;
    assert_eq!(tokio::time::timeout(PATIENCE, task.dispatch(3).await.unwrap().result()).await.unwrap().unwrap(), 4);
    assert_eq!(worker.stop().await.unwrap(), StopReason::Shutdown);
}
