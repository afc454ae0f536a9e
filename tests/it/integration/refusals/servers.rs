//! Servers that are unreachable, refuse us, are too old, or evict jobs.

use crate::support::{PATIENCE, Proxy, TestRedis, Warnings, checks_rights};
use heartline::testing::RedisServer;
use heartline::{App, Context, Error, JobError, StopReason, TaskOptions};
use std::time::{Duration, Instant};

/// The errors of an App that cannot be built, and of a task of an App that was built lazily.
async fn both_ways(url: &str) -> [Error; 2] {
    let built = App::builder().redis(url).build().await.unwrap_err();
    let lazy = App::builder().redis(url).lazy().build().await.unwrap();
    let dispatched = lazy.task_ref::<(), ()>("t").unwrap().dispatch(()).await.unwrap_err();
    [built, dispatched]
}

#[tokio::test]
async fn a_bad_url_is_a_config_error_that_shows_no_password() {
    for url in ["", "nonsense", "http://127.0.0.1/", "redis://127.0.0.1:port/", "x://user:secret@127.0.0.1/"] {
        for builder in [App::builder().redis(url), App::builder().redis(url).lazy()] {
            match builder.build().await.unwrap_err() {
                Error::Config(faults) => {
                    assert_eq!(faults.len(), 1);
                    assert_eq!(faults.iter().next().unwrap().field, "redis");
                    assert!(!format!("{faults} {faults:?}").contains("secret"), "{faults}");
                }
                other => panic!("{url}: {other}"),
            }
        }
    }
}

#[tokio::test]
async fn a_server_without_a_required_command_is_named_as_such() {
    for command in ["EVALSHA", "SCRIPT", "TIME", "RENAME", "INFO"] {
        let server = RedisServer::builder().arg("--rename-command").arg(command).arg("").start().unwrap();
        let app = App::builder().redis(server.url()).lazy().build().await.unwrap();
        if command == "RENAME" {
            let client = redis::Client::open(server.url()).unwrap();
            // It is found by the check of the rights, or by the first sweep.
            if !checks_rights(&mut client.get_multiplexed_async_connection().await.unwrap()).await {
                continue;
            }
        }
        app.task("t", TaskOptions::new(), |_: Context, (): ()| async { Ok::<_, JobError>(()) }).unwrap();
        let started = tokio::time::timeout(PATIENCE, app.worker().run()).await.expect("it starts");
        assert!(
            matches!(&started, Err(Error::Unsupported { what }) if what.contains(&format!("no {command}"))),
            "{command}: {started:?}"
        );
    }
}

#[tokio::test]
async fn a_missing_database_is_an_error_at_once() {
    let redis = TestRedis::start();
    let url = format!("{}/99", redis.url().trim_end_matches('/'));
    for error in both_ways(&url).await {
        assert!(matches!(&error, Error::Connect { .. }) && !error.is_retryable(), "{error:?}");
        assert!(format!("{error:?}").contains("DB index is out of range"), "{error:?}");
    }
}

#[tokio::test]
async fn a_wrong_password_is_an_error_at_once_and_not_retryable() {
    let server = RedisServer::builder().arg("--requirepass").arg("right").start().unwrap();
    for user in ["", ":wrong@", "nobody:right@"] {
        let url = format!("redis://{user}127.0.0.1:{}/", server.port());
        let began = Instant::now();
        for error in both_ways(&url).await {
            assert!(matches!(error, Error::Connect { .. }) && !error.is_retryable(), "{user:?}: {error:?}");
            let place = format!("redis at redis://127.0.0.1:{}/0", server.port());
            let text = format!("{:#}", anyhow::Error::new(error));
            assert!(text.contains(&place) && !text.contains("wrong@"), "{text}");
        }
        assert!(began.elapsed() < Duration::from_secs(5), "{user:?} took {:?}", began.elapsed());
    }
    let url = format!("redis://:right@127.0.0.1:{}/", server.port());
    let app = App::builder().redis(&url).build().await.unwrap();
    app.task_ref::<(), ()>("t").unwrap().dispatch(()).await.unwrap();
}

#[tokio::test]
async fn a_worker_waits_for_a_server_at_its_client_limit() {
    for password in ["", "right"] {
        let server = RedisServer::builder().arg("--requirepass").arg(password).start().unwrap();
        let user = if password.is_empty() { String::new() } else { format!(":{password}@") };
        let url = format!("redis://{user}127.0.0.1:{}/", server.port());
        let mut admin = redis::Client::open(url.as_str())
            .unwrap()
            .get_multiplexed_async_connection_with_config(&crate::support::TestRedis::patient())
            .await
            .unwrap();
        let mut tell = async |words: &str| {
            let mut words = words.split(' ');
            let mut cmd = redis::cmd(words.next().unwrap());
            cmd.arg(words.collect::<Vec<_>>()).query_async::<redis::Value>(&mut admin).await.unwrap();
        };
        let app = App::builder().redis(&url).lazy().build().await.unwrap();
        let task = app.task("t", TaskOptions::new(), |_: Context, (): ()| async { Ok::<_, JobError>(()) }).unwrap();
        tell("CONFIG SET maxclients 1").await;
        let error = App::builder().redis(&url).build().await.unwrap_err();
        assert!(matches!(error, Error::Connect { .. }) && error.is_retryable(), "{password:?}: {error:?}");
        let worker = app.worker().spawn();
        let mut job = std::pin::pin!(async { task.dispatch(()).await.unwrap().result().await.unwrap() });
        assert!(tokio::time::timeout(Duration::from_secs(1), &mut job).await.is_err());
        tell("CONFIG SET maxclients 1000").await;
        tokio::time::timeout(PATIENCE, job).await.unwrap();

        // The same if connections are lost while there is no room for new ones.
        tell("CONFIG SET maxclients 1").await;
        tell("CLIENT KILL TYPE normal SKIPME yes").await;
        let mut job = std::pin::pin!(async { task.dispatch(()).await.unwrap().result().await.unwrap() });
        assert!(tokio::time::timeout(Duration::from_secs(1), &mut job).await.is_err());
        tell("CONFIG SET maxclients 1000").await;
        tokio::time::timeout(PATIENCE, job).await.unwrap();
        assert_eq!(worker.stop().await.unwrap(), StopReason::Shutdown);
    }
}

#[tokio::test]
async fn an_unreachable_server_is_a_retryable_error_with_its_address() {
    let mut server = RedisServer::start().unwrap();
    server.stop();
    let url = format!("redis://:secret@127.0.0.1:{}/3", server.port());
    let error = App::builder().redis(url).build().await.unwrap_err();
    assert!(matches!(error, Error::Connect { .. }) && error.is_retryable(), "{error:?}");
    let wanted =
        format!("cannot reach redis at redis://127.0.0.1:{}/3: Connection refused (os error 111)", server.port());
    assert_eq!(format!("{:#}", anyhow::Error::new(error)), wanted);
}

#[tokio::test]
async fn a_server_that_is_not_redis_is_named_and_not_retryable() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let place = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            tokio::spawn(async move {
                let answer = "HTTP/1.1 400 Bad Request\r\nconnection: close\r\n\r\n";
                let _ = tokio::io::AsyncWriteExt::write_all(&mut socket, answer.as_bytes()).await;
                let _ = tokio::io::copy(&mut socket, &mut tokio::io::sink()).await;
            });
        }
    });
    for error in both_ways(&format!("redis://{place}/")).await {
        assert!(!error.is_retryable(), "{error:?}");
        let text = format!("{:#}", anyhow::Error::new(error));
        assert_eq!(text, format!("cannot reach redis at redis://{place}/0: the server at this address is not Redis"));
    }
}

#[tokio::test]
async fn a_starting_worker_waits_only_for_temporary_errors() {
    let mut server = RedisServer::builder().persistent().start().unwrap();
    let url = server.url();
    server.stop();
    let app = App::builder().redis(&url).lazy().build().await.unwrap();
    let task = app
        .task("t", heartline::TaskOptions::new(), async |_: heartline::Context, n: u8| Ok::<_, heartline::JobError>(n))
        .unwrap();
    let warnings = Warnings::capture();
    let worker = app.worker();
    let id = worker.id().to_string();
    let worker = worker.spawn();
    warnings.wait_for(&["WARN", &id, "waits for redis"], PATIENCE).await;
    // Another worker is asked to stop while it waits.
    let stopped = tokio::time::timeout(PATIENCE, app.worker().spawn().stop()).await.unwrap().unwrap();
    assert_eq!(stopped, heartline::StopReason::Shutdown);
    server.restart().unwrap();
    warnings
        .wait_for(&["INFO", &id, "working", "t (concurrency 10, interval 30s)", "redis://127.0.0.1"], PATIENCE)
        .await;
    assert_eq!(task.dispatch(7).await.unwrap().result().await.unwrap(), 7);
    assert_eq!(worker.stop().await.unwrap(), heartline::StopReason::Shutdown);
    let waits = warnings.lines().iter().filter(|line| line.contains(&id) && line.contains("waits for redis")).count();
    assert_eq!(waits, 1);

    let closed = RedisServer::builder().arg("--requirepass").arg("right").start().unwrap();
    let lazy = App::builder().redis(closed.url()).lazy().build().await.unwrap();
    lazy.task(
        "t",
        heartline::TaskOptions::new(),
        async |_: heartline::Context, _: u8| Ok::<_, heartline::JobError>(()),
    )
    .unwrap();
    let error = tokio::time::timeout(PATIENCE, lazy.worker().run()).await.unwrap().unwrap_err();
    assert!(matches!(error, Error::Connect { .. }) && !error.is_retryable(), "{error:?}");
}

#[tokio::test]
async fn a_server_that_does_not_reply_gets_five_seconds() {
    let redis = TestRedis::shared();
    let proxy = Proxy::start(redis.address()).await;
    proxy.pause();
    let build = App::builder().redis(proxy.url()).build();
    let error = tokio::time::timeout(PATIENCE, build).await.unwrap().unwrap_err();
    assert!(matches!(error, Error::Connect { .. }) && error.is_retryable(), "{error:?}");
}

async fn with_version(redis: &TestRedis, version: &str) -> Proxy {
    let mut conn = redis.conn().await;
    let info: String = redis::cmd("INFO").arg("server").query_async(&mut conn).await.unwrap();
    let line = info.lines().find(|line| line.starts_with("redis_version:")).unwrap();
    let proxy = Proxy::start(redis.address()).await;
    proxy.rewrite(line, &format!("redis_version:{version}"));
    proxy
}

#[tokio::test]
async fn a_server_before_6_2_is_unsupported_and_unchanged() {
    let redis = TestRedis::start();
    for version in ["6.0.16", "5.0.7", "2.8.0", "", "nonsense"] {
        let proxy = with_version(&redis, version).await;
        for error in both_ways(&proxy.url()).await {
            assert!(matches!(&error, Error::Unsupported { what } if what.contains("6.2")), "{version}: {error:?}");
            assert!(!error.is_retryable());
        }
    }
    assert!(redis.dump("").await.is_empty());
    for version in ["6.2.0", "6.10.1", "7.0.0", "10.0.0"] {
        let proxy = with_version(&redis, version).await;
        App::builder().redis(proxy.url()).build().await.unwrap();
    }
}

#[tokio::test]
async fn an_evicting_server_is_unsupported_unless_it_is_accepted() {
    let redis = TestRedis::start();
    let mut conn = redis.conn().await;
    for policy in ["allkeys-lru", "allkeys-lfu", "allkeys-random"] {
        let () =
            redis::cmd("CONFIG").arg("SET").arg("maxmemory-policy").arg(policy).query_async(&mut conn).await.unwrap();
        for error in both_ways(&redis.url()).await {
            assert!(matches!(&error, Error::Unsupported { what } if what.contains(policy)), "{error:?}");
        }
        let lazy = App::builder().redis(redis.app_url()).lazy().build().await.unwrap();
        lazy.task("t", heartline::TaskOptions::new(), async |_: heartline::Context, (): ()| {
            Ok::<_, heartline::JobError>(())
        })
        .unwrap();
        let error = lazy.worker().run_until(std::future::pending()).await.unwrap_err();
        assert!(matches!(error, Error::Unsupported { .. }), "{error:?}");
        assert!(redis.dump("").await.is_empty());
        App::builder().redis(redis.app_url()).accept_eviction().build().await.unwrap();
    }
    let accepts = App::builder().redis(redis.app_url()).accept_eviction().lazy().build().await.unwrap();
    accepts.task_ref::<(), ()>("t").unwrap().dispatch(()).await.unwrap();
    for policy in ["volatile-lru", "volatile-ttl", "noeviction"] {
        let () =
            redis::cmd("CONFIG").arg("SET").arg("maxmemory-policy").arg(policy).query_async(&mut conn).await.unwrap();
        App::builder().redis(redis.app_url()).build().await.unwrap();
    }
}

#[tokio::test]
async fn a_service_without_optional_commands_works_but_info_is_needed() {
    let without = |commands: &[&str]| {
        let renamed = commands
            .iter()
            .fold(RedisServer::builder(), |server, command| server.arg("--rename-command").arg(*command).arg(""));
        renamed.start().unwrap()
    };
    let server = without(&["CLIENT", "HELLO", "SLOWLOG", "MONITOR", "DEBUG", "ACL"]);
    let app = App::builder().redis(server.url()).build().await.unwrap();
    let handler = |ctx: Context, waits: bool| async move {
        if waits {
            ctx.cancelled().await;
            ctx.heartbeat()?;
        }
        Ok::<_, JobError>(())
    };
    let stall = heartline::StallOptions::new().interval(Duration::from_secs(1));
    let task = app.task("t", TaskOptions::new().stall(stall), handler).unwrap();
    let worker = app.worker().spawn();
    tokio::time::timeout(PATIENCE, task.dispatch(false).await.unwrap().result()).await.unwrap().unwrap();
    let job = task.dispatch(true).await.unwrap();
    crate::support::eventually("it runs", PATIENCE, async || {
        job.state().await.unwrap() == heartline::JobState::Running
    })
    .await;
    job.cancel("enough").await.unwrap();
    let ended = tokio::time::timeout(PATIENCE, job.result()).await.unwrap();
    assert!(matches!(ended, Err(Error::JobCancelled { .. })), "{ended:?}");
    assert_eq!(worker.stop().await.unwrap(), StopReason::Shutdown);

    for error in both_ways(&without(&["INFO"]).url()).await {
        assert!(matches!(&error, Error::Unsupported { what } if what.contains("has no INFO")), "{error:?}");
    }
}
