//! Servers that are not there, do not know us, are too old, or throw jobs away.

use crate::support::{PATIENCE, Proxy, TestRedis};
use heartline::testing::RedisServer;
use heartline::{App, Error};
use std::time::{Duration, Instant};

/// The App that could not be built, and the task of one that was built without looking.
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
async fn an_address_with_tls_says_that_there_is_none() {
    for scheme in ["rediss", "valkeys"] {
        let error = App::builder().redis(format!("{scheme}://127.0.0.1/")).build().await.unwrap_err();
        assert!(matches!(&error, Error::Config(faults) if faults.to_string().contains("without TLS")), "{error}");
    }
}

#[tokio::test]
async fn a_database_that_the_server_does_not_have_is_an_error_at_once() {
    let redis = TestRedis::shared();
    let url = format!("{}/99", redis.url().trim_end_matches('/'));
    for error in both_ways(&url).await {
        assert!(matches!(&error, Error::Connect { .. }) && !error.is_retryable(), "{error:?}");
        assert!(format!("{error:?}").contains("DB index is out of range"), "{error:?}");
    }
}

#[tokio::test]
async fn a_wrong_password_is_an_error_at_once_that_is_not_worth_a_repeat() {
    let server = RedisServer::builder().arg("--requirepass").arg("right").start().unwrap();
    for user in ["", ":wrong@", "nobody:right@"] {
        let url = format!("redis://{user}127.0.0.1:{}/", server.port());
        let began = Instant::now();
        for error in both_ways(&url).await {
            assert!(matches!(error, Error::Connect { .. }) && !error.is_retryable(), "{user:?}: {error:?}");
        }
        assert!(began.elapsed() < Duration::from_secs(5), "{user:?} took {:?}", began.elapsed());
    }
    let url = format!("redis://:right@127.0.0.1:{}/", server.port());
    let app = App::builder().redis(&url).build().await.unwrap();
    app.task_ref::<(), ()>("t").unwrap().dispatch(()).await.unwrap();
}

#[tokio::test]
async fn no_server_is_a_connect_error_that_is_worth_a_repeat() {
    let mut server = RedisServer::start().unwrap();
    server.stop();
    let error = App::builder().redis(server.url()).build().await.unwrap_err();
    assert!(matches!(error, Error::Connect { .. }) && error.is_retryable(), "{error:?}");
}

#[tokio::test]
async fn a_server_that_does_not_answer_is_given_five_seconds() {
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
async fn a_server_before_6_2_is_unsupported_and_nothing_is_written() {
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
        let lazy = App::builder().redis(redis.url()).lazy().build().await.unwrap();
        lazy.task("t", heartline::TaskOptions::new(), async |_: heartline::Context, (): ()| {
            Ok::<_, heartline::JobError>(())
        })
        .unwrap();
        let error = lazy.worker().run_until(std::future::pending()).await.unwrap_err();
        assert!(matches!(error, Error::Unsupported { .. }), "{error:?}");
        assert!(redis.dump("").await.is_empty());
        App::builder().redis(redis.url()).accept_eviction().build().await.unwrap();
    }
    for policy in ["volatile-lru", "volatile-ttl", "noeviction"] {
        let () =
            redis::cmd("CONFIG").arg("SET").arg("maxmemory-policy").arg(policy).query_async(&mut conn).await.unwrap();
        App::builder().redis(redis.url()).build().await.unwrap();
    }
}

#[tokio::test]
async fn an_accepted_evicting_server_takes_jobs() {
    let server = RedisServer::builder().arg("--maxmemory-policy").arg("allkeys-lru").start().unwrap();
    let app = App::builder().redis(server.url()).accept_eviction().lazy().build().await.unwrap();
    let task = app.task_ref::<(), ()>("t").unwrap();
    task.dispatch(()).await.unwrap();
    assert_eq!(task.counts().await.unwrap().waiting, 1);
}
