//! Work continues without help after each kind of failover. Only writes that the server itself lost are lost.

use std::time::Duration;

use heartline::testing::RedisServer;
use heartline::{App, Context, DetectorReset, Error, JobError, TaskOptions};

use crate::sentinel::trio::Trio;
use crate::support::blocked::Blocked;
use crate::support::load::Load;
use crate::support::sentinel::{SERVICE, Sentinel, ask};
use crate::support::tls::{Ca, terminator_of};
use crate::support::{PATIENCE, checks_rights, eventually};

const TASK: &str = "work";

/// When work must continue after a failover, also on a busy machine. The benches measure how long it takes.
const RESUMES: Duration = Duration::from_secs(30);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_continue_after_the_primary_is_killed() {
    let mut trio = Trio::start().await;
    let load = Load::start(&trio.url(), &[TASK]).await;
    load.goes_on(PATIENCE).await;
    let before = trio.servers[0].port();
    trio.servers[0].kill();
    trio.another_than(before).await;
    load.goes_on(RESUMES).await;
    // Writes that had not reached the replicas.
    let lost = load.accounted().await;
    assert!(lost.over < Duration::from_secs(1), "{:?}", lost.over);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_continue_after_the_primary_freezes_for_good() {
    let trio = Trio::start().await;
    let load = Load::start(&trio.url(), &[TASK]).await;
    load.goes_on(PATIENCE).await;
    trio.servers[0].freeze().unwrap();
    trio.another_than(trio.servers[0].port()).await;
    load.goes_on(RESUMES).await;
    load.accounted().await;
    trio.servers[0].thaw().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replies_of_a_primary_after_its_failover_are_ignored() {
    let trio = Trio::start().await;
    let load = Load::start(&trio.url(), &[TASK]).await;
    load.goes_on(PATIENCE).await;
    let before = trio.servers[0].port();
    trio.servers[0].freeze().unwrap();
    trio.another_than(before).await;
    trio.servers[0].thaw().unwrap();
    load.goes_on(RESUMES).await;
    // What it answers when it wakes up is forgotten when it is demoted.
    let lost = load.accounted().await;
    assert!(lost.over < Duration::from_secs(1), "{:?}", lost.over);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_in_order_is_noticed_before_the_old_primary_stops() {
    let trio = Trio::start().await;
    let load = Load::start(&trio.url(), &[TASK]).await;
    load.goes_on(PATIENCE).await;
    let before = trio.servers[0].port();
    trio.fail_over().await;
    trio.another_than(before).await;
    load.goes_on(RESUMES).await;
    let told = async || load.broken_by(DetectorReset::PrimaryChanged) == [1];
    eventually("the worker reports what broke its watch", PATIENCE, told).await;
    // The old primary accepts writes for 10 s more. The sentinels see the promotion up to a second late, and announce
    // it.
    let lost = load.accounted().await;
    assert!(lost.over < Duration::from_secs(3), "{:?}", lost.over);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_follows_a_failover_while_handlers_block_its_runtime() {
    let trio = Trio::start().await;
    let blocked = Blocked::start(&trio.url(), TASK, Duration::from_secs(10)).await;
    let before = trio.servers[0].port();
    trio.fail_over().await;
    trio.another_than(before).await;
    blocked.end_after_their_only_run().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_first_sentinel_delays_no_failover() {
    let mut trio = Trio::start().await;
    trio.sentinels[0].signal("-STOP");
    let load = Load::start(&trio.url(), &[TASK]).await;
    load.goes_on(PATIENCE).await;
    let before = trio.servers[0].port();
    trio.servers[0].kill();
    trio.another_than(before).await;
    load.goes_on(RESUMES).await;
    load.accounted().await;
    trio.sentinels[0].signal("-CONT");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_primary_that_needs_its_replicas_for_writes_loses_none() {
    let trio = Trio::start().await;
    let primary = trio.servers[0].port();
    for (name, value) in [("min-replicas-to-write", "1"), ("min-replicas-max-lag", "2")] {
        for server in &trio.servers {
            ask::<String>(server.port(), &["CONFIG", "SET", name, value]).await.unwrap();
        }
    }
    let load = Load::start(&trio.url(), &[TASK]).await;
    load.goes_on(PATIENCE).await;
    let replicas = &trio.servers[1..];
    replicas.iter().for_each(|replica| replica.freeze().unwrap());
    // The reply is an error and cannot be read as text.
    let refuses = async || ask::<String>(primary, &["SET", "probe", "x"]).await.is_none();
    eventually("it refuses writes", PATIENCE, refuses).await;
    replicas.iter().for_each(|replica| replica.thaw().unwrap());
    load.goes_on(PATIENCE).await;
    let lost = load.accounted().await;
    assert_eq!(lost.jobs, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sentinels_and_their_primary_are_reached_over_tls() {
    let ca = Ca::new();
    let server = tokio::task::spawn_blocking(|| RedisServer::start().unwrap()).await.unwrap();
    let at = |port: u16| ([127, 0, 0, 1], port).into();
    // The sentinel itself uses no TLS to the primary; the port that it names accepts both.
    let primary = terminator_of(at(server.port()), &ca.sign("127.0.0.1", |_| {}), None, true).await;
    let sentinel = Sentinel::start(primary);
    sentinel.knows().await;
    let port = terminator_of(at(sentinel.port), &ca.sign("localhost", |_| {}), None, false).await;
    let app = |ca: String| {
        let url = format!("rediss-sentinel://localhost:{port}?sentinelServiceName={SERVICE}");
        App::builder().redis(url).tls_ca(ca)
    };
    let own = app(ca.pem()).build().await.unwrap();
    let task = own.task(TASK, TaskOptions::new(), async |_: Context, n: u8| Ok::<_, JobError>(n + 1)).unwrap();
    let worker = own.worker().spawn();
    let job = task.dispatch(1).await.unwrap();
    assert_eq!(tokio::time::timeout(PATIENCE, job.result()).await.unwrap().unwrap(), 2);
    let _ = worker.stop().await.unwrap();
    let e = app(Ca::new().pem()).build().await.unwrap_err();
    assert!(matches!(e, Error::Connect { .. }) && format!("{e:?}").contains("UnknownIssuer"), "{e:?}");
    assert!(!e.is_retryable(), "a retry cannot help: {e:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn addresses_without_a_primary_report_what_is_wrong() {
    let mut trio = Trio::start().await;
    let build = async |url: String| App::builder().redis(url).build().await.unwrap_err();
    let url = trio.url().replace("=main", "=mian");
    let e = build(url).await;
    assert!(matches!(e, Error::Config(_)) && e.to_string().contains("sentinelServiceName"), "{e}");
    let e = build(format!("redis://127.0.0.1:{}", trio.sentinels[0].port)).await;
    assert!(e.to_string().contains("redis-sentinel://"), "{e}");
    let url = trio.url();
    trio.sentinels.clear();
    let e = build(url).await;
    assert!(matches!(e, Error::Connect { .. }) && e.to_string().contains("redis-sentinel://127.0.0.1"), "{e}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_of_the_sentinels_needs_four_commands() {
    let trio = Trio::start().await;
    for sentinel in &trio.sentinels {
        let rule = "reset on resetchannels >s3cret +hello +sentinel|master +sentinel|get-master-addr-by-name +subscribe &+switch-master";
        let words: Vec<&str> = ["ACL", "SETUSER", "jobs"].into_iter().chain(rule.split(' ')).collect();
        assert_eq!(ask::<String>(sentinel.port, &words).await.as_deref(), Some("OK"));
    }
    let url = format!("{}&sentinelUsername=jobs&sentinelPassword=s3cret", trio.url());
    let load = Load::start(&url, &[TASK]).await;
    load.goes_on(PATIENCE).await;
    let before = trio.servers[0].port();
    trio.fail_over().await;
    trio.another_than(before).await;
    load.goes_on(RESUMES).await;
    load.accounted().await;
    let e = App::builder().redis(url.replace("s3cret", "other")).build().await.unwrap_err();
    assert!(e.to_string().contains("redis-sentinel://127.0.0.1") && !e.is_retryable(), "{e}");
}

/// Rights are not replicated: a promoted replica has its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_job_is_lost_if_a_new_primary_grants_fewer_rights() {
    let trio = Trio::start().await;
    let before = trio.servers[0].port();
    for server in &trio.servers {
        let less = if server.port() == before { "" } else { " -hset" };
        let rule = format!("reset on >secret ~* &* +@all{less}");
        let words: Vec<&str> = ["ACL", "SETUSER", "jobs"].into_iter().chain(rule.split(' ')).collect();
        assert_eq!(ask::<String>(server.port(), &words).await.as_deref(), Some("OK"));
    }
    let url = trio.url().replace("redis-sentinel://", "redis-sentinel://jobs:secret@");
    let client = redis::Client::open(trio.servers[0].url()).unwrap();
    if !checks_rights(&mut client.get_multiplexed_async_connection().await.unwrap()).await {
        return;
    }
    let app = App::builder().redis(&url).build().await.unwrap();
    let handler = |ctx: Context, input: u64| async move {
        // The handler ends after the failover.
        ctx.heartbeat()?;
        tokio::time::sleep(Duration::from_secs(3)).await;
        Ok::<_, JobError>(input)
    };
    let task = app.task(TASK, TaskOptions::new().concurrency(20), handler).unwrap();
    let worker = app.worker().spawn();
    let jobs = task.dispatch_many(0..40).await.unwrap();
    eventually("some run", PATIENCE, async || task.counts().await.is_ok_and(|counts| counts.running == 20)).await;
    trio.fail_over().await;
    let now = trio.another_than(before).await;
    // The server refuses their outcomes before any write.
    tokio::time::sleep(Duration::from_secs(5)).await;
    let counts = task.counts().await.unwrap();
    assert_eq!((counts.running, counts.waiting, counts.completed), (20, 20, 0), "{counts:?}");
    let report = app.inspector().task(TASK).await.unwrap();
    assert_eq!((report.unplaced, report.without_payload), (0, 0));
    assert_eq!(ask::<String>(now, &["ACL", "SETUSER", "jobs", "+hset"]).await.as_deref(), Some("OK"));
    for job in jobs {
        tokio::time::timeout(PATIENCE, job.result()).await.unwrap().unwrap();
    }
    assert_eq!(app.inspector().task(TASK).await.unwrap().stalled, 0);
    let _ = worker.stop().await.unwrap();
}
