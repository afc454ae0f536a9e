//! Redis goes away in every possible way and returns: work continues without help.

use std::time::Duration;

use heartline::testing::RedisServer;
use heartline::{JobHandle, TaskRef};
use redis::AsyncCommands;

use crate::faults::ground::{alone, proxied};
use crate::support::task::{TestTask, options};
use crate::support::{PATIENCE, Proxy, TestRedis, Warnings, eventually};

/// Long enough that a busy machine is not taken for a frozen process.
const INTERVAL: Duration = Duration::from_secs(3);
const TWO_INTERVALS: Duration = Duration::from_secs(7);

/// Two workers with long jobs meet a fault. Half of the jobs ends during it, at the gate `during`. A fault may
/// dispatch jobs of its own, and returns them.
async fn survives(mut redis: TestRedis, fault: impl AsyncFnOnce(&mut TestRedis, &TestTask) -> Vec<JobHandle<u64>>) {
    let test = TestTask::on(&redis);
    let (one, two) = (test.start_worker(options(INTERVAL)).await, test.start_worker(options(INTERVAL)).await);
    let mut jobs = dispatch(&one.jobs, &["during", "after", "during", "after", "during", "after"]).await;
    test.started(&jobs).await;
    let held = |id: &str| test.journal.runs().iter().filter(|run| run.worker == id).count();
    assert!(held(&one.id) > 0 && held(&two.id) > 0, "one worker has all jobs: {:?}", test.journal.runs());

    let more = fault(&mut redis, &test).await;
    jobs.extend(more);
    test.journal.open("during");

    // Jobs that stayed silent through the fault would be found now.
    test.epochs_pass(2).await;
    jobs.extend(dispatch(&two.jobs, &["during", "during"]).await);
    test.started(&jobs).await;
    test.journal.open("after");
    test.each_ran_once(&jobs).await;
    one.stop().await;
    two.stop().await;
    test.nothing_is_left_but(jobs.len()).await;
}

async fn dispatch(jobs: &TaskRef<String, u64>, gates: &[&str]) -> Vec<JobHandle<u64>> {
    jobs.dispatch_many(gates.iter().map(|gate| (*gate).to_owned())).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_restart_of_two_intervals_costs_no_work() {
    let redis = TestRedis::from_process(RedisServer::builder().persistent().start().unwrap());
    survives(redis, async |redis, test| {
        redis.process().stop();
        test.journal.open("during");
        tokio::time::sleep(TWO_INTERVALS).await;
        redis.process().restart().unwrap();
        Vec::new()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_frozen_for_two_intervals_costs_no_work() {
    let redis = TestRedis::from_process(RedisServer::start().unwrap());
    survives(redis, async |redis, test| {
        redis.process().freeze().unwrap();
        test.journal.open("during");
        tokio::time::sleep(TWO_INTERVALS).await;
        redis.process().thaw().unwrap();
        Vec::new()
    })
    .await;
}

#[tokio::test]
async fn a_client_pause_of_two_intervals_costs_no_work() {
    survives(TestRedis::start(), async |_, test| {
        let mut conn = test.conn().await;
        let pause = TWO_INTERVALS.as_millis() as u64;
        let _: () = redis::cmd("CLIENT").arg("PAUSE").arg(pause).arg("ALL").query_async(&mut conn).await.unwrap();
        test.journal.open("during");
        // The reply comes when the pause is over.
        let _: () = conn.ping().await.unwrap();
        Vec::new()
    })
    .await;
}

#[tokio::test]
async fn repeatedly_killed_connections_cost_no_work() {
    survives(TestRedis::start(), async |_, test| {
        let mut conn = test.conn().await;
        let count = async |conn: &mut redis::aio::MultiplexedConnection| -> usize {
            let list: String =
                redis::cmd("CLIENT").arg("LIST").arg("TYPE").arg("normal").query_async(conn).await.unwrap();
            list.lines().count()
        };
        for round in 0..12 {
            for kind in ["normal", "pubsub"] {
                let killed: usize =
                    redis::cmd("CLIENT").arg("KILL").arg("TYPE").arg(kind).query_async(&mut conn).await.unwrap();
                assert!(kind == "pubsub" || killed >= 2, "round {round}: only {killed} connections to kill");
            }
            if round == 6 {
                test.journal.open("during");
            }
            // Our connection, and a keeper and a driver of each worker: they are back, and can be killed again.
            eventually("the workers connect again", PATIENCE, async || count(&mut conn).await >= 5).await;
        }
        Vec::new()
    })
    .await;
}

#[tokio::test]
async fn a_script_cache_flushed_while_jobs_run_costs_no_work() {
    survives(TestRedis::start(), async |_, test| {
        let (_app, task) = test.producer().await;
        let (mut conn, mut jobs) = (test.conn().await, Vec::new());
        let flush = redis::cmd("SCRIPT").arg("FLUSH").to_owned();
        test.journal.open("during");
        for round in 0..20 {
            // Before the dispatch and the claim; before the outcome or the poll of an idle worker.
            let _: () = flush.query_async(&mut conn).await.unwrap();
            let job = task.dispatch("during".to_owned()).id(format!("round-{round}")).await.unwrap();
            assert_eq!(job.existed(), Some(false));
            let _: () = flush.query_async(&mut conn).await.unwrap();
            test.started(std::slice::from_ref(&job)).await;
            jobs.push(job);
        }
        for _ in 0..2 {
            let _: () = flush.query_async(&mut conn).await.unwrap();
            test.epochs_pass(1).await;
        }
        jobs
    })
    .await;
}

#[tokio::test]
async fn the_last_worker_to_return_from_an_outage_keeps_its_jobs() {
    let (redis, test) = alone();
    let (soon, late) = (Proxy::start(redis.address()).await, Proxy::start(redis.address()).await);
    let (_app, task) = test.producer().await;
    let mut jobs = Vec::new();
    let mut workers = Vec::new();
    for proxy in [&late, &soon] {
        workers.push(test.start_worker_at(&proxy.url(), options(INTERVAL).concurrency(1)).await);
        jobs.extend(dispatch(&task, &["after"]).await);
        test.started(&jobs).await;
    }
    let mut conn = test.conn().await;
    let ids: Vec<String> = jobs.iter().map(|job| job.id().to_string()).collect();
    let mut candidates = async || conn.smismember::<_, _, Vec<bool>>(test.key("candidates"), &ids).await.unwrap();
    // The outage begins between a snapshot and the next heartbeats: both jobs are about to become silent.
    loop {
        eventually("both jobs are candidates", PATIENCE, async || candidates().await == [true, true]).await;
        tokio::join!(late.refuse(), soon.refuse());
        if candidates().await == [true, true] {
            break;
        }
        tokio::join!(late.accept(), soon.accept());
    }
    tokio::time::sleep(TWO_INTERVALS).await;
    soon.accept().await;
    eventually("one worker sends heartbeats again", PATIENCE, async || candidates().await == [true, false]).await;
    // It has not watched a whole interval when the other one is back.
    tokio::time::sleep(INTERVAL / 3).await;
    late.accept().await;
    test.epochs_pass(2).await;
    test.journal.open("after");
    test.each_ran_once(&jobs).await;
    for worker in workers {
        worker.stop().await;
    }
    test.nothing_is_left_but(2).await;
}

/// Makes a server the replica of another one; `NO ONE` makes it a primary.
async fn follow(redis: &TestRedis, host: &str, port: &str) {
    let mut cmd = redis::cmd("REPLICAOF");
    let () = cmd.arg(host).arg(port).query_async(&mut redis.conn().await).await.unwrap();
}

async fn replicates(redis: &TestRedis) {
    let mut conn = redis.conn().await;
    eventually("it follows", PATIENCE, async || {
        let info: redis::InfoDict = redis::cmd("INFO").arg("replication").query_async(&mut conn).await.unwrap();
        info.get::<String>("master_link_status").as_deref() == Some("up")
    })
    .await;
}

/// An address moves from a primary to another one with the same data. `demote` demotes the old one; connections to it
/// stay open. A worker follows, and so do its dispatches and cancels.
async fn the_address_moves(demote: impl AsyncFnOnce(&TestRedis, &TestRedis)) {
    let (old, new) = (TestRedis::start(), TestRedis::start());
    follow(&new, "127.0.0.1", &old.address().port().to_string()).await;
    replicates(&new).await;
    let (test, proxy) = (TestTask::on(&new), Proxy::start(old.address()).await);
    let worker = test.start_worker_at(&proxy.url(), options(INTERVAL)).await;
    let mut jobs = dispatch(&worker.jobs, &["after"; 4]).await;
    test.started(&jobs).await;
    // WAIT waits for the last write of its connection.
    let mut copied = redis::pipe();
    copied.cmd("SET").arg("copied").arg(1).ignore().cmd("WAIT").arg(1).arg(0);
    let copied: (u64,) = copied.query_async(&mut old.conn().await).await.unwrap();
    assert_eq!(copied, (1,));

    follow(&new, "NO", "ONE").await;
    proxy.lead_to(new.address());
    demote(&old, &new).await;
    let witness = test.start_worker(options(INTERVAL)).await;
    jobs.push(worker.jobs.dispatch("after".to_owned()).await.unwrap());
    test.epochs_pass(3).await;
    assert_eq!(test.dump("stalls").await, None);
    test.journal.open("after");
    test.each_ran_once(&jobs).await;
    let late = worker.jobs.dispatch("never".to_owned()).delay(PATIENCE).await.unwrap();
    assert_eq!(late.cancel("").await.unwrap(), heartline::CancelOutcome::Cancelled);
    worker.stop().await;
    witness.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workers_and_producers_follow_an_address_to_a_new_primary() {
    // The old one refuses every write.
    the_address_moves(async |old, new| follow(old, "127.0.0.1", &new.address().port().to_string()).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_leaves_an_unready_primary_for_the_new_one() {
    // The old one waits for a primary that never comes, and replies to nothing else.
    the_address_moves(async |old, _| {
        let mut stale = redis::cmd("CONFIG");
        stale.arg("SET").arg("replica-serve-stale-data").arg("no");
        let () = stale.query_async(&mut old.conn().await).await.unwrap();
        follow(old, "127.0.0.1", "1").await;
    })
    .await;
}

#[tokio::test]
async fn a_dispatch_fails_at_the_call_timeout_of_the_app() {
    let (_redis, test, proxy) = proxied().await;
    let builder = heartline::App::builder().redis(proxy.url()).dispatch_timeout(Duration::from_millis(500));
    let app = builder.build().await.unwrap();
    let jobs = app.task_ref::<String, u64>(&test.name).unwrap();
    let job = jobs.dispatch("go".to_owned()).await.unwrap();
    proxy.refuse().await;
    let started = tokio::time::Instant::now();
    let (dispatched, cancelled) = tokio::join!(jobs.dispatch("go".to_owned()), job.cancel("not wanted"));
    assert!(matches!(dispatched.unwrap_err(), heartline::Error::Connect { .. }));
    assert!(matches!(cancelled.unwrap_err(), heartline::Error::Connect { .. }));
    // The default is ten seconds.
    assert!(
        (Duration::from_millis(500)..Duration::from_secs(5)).contains(&started.elapsed()),
        "{:?}",
        started.elapsed()
    );
    proxy.accept().await;
    assert_eq!(jobs.counts().await.unwrap().waiting, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outage_logs_one_line_at_its_start_and_one_at_its_end() {
    let warnings = Warnings::capture();
    let (_redis, test, proxy) = proxied().await;
    let worker = test.start_worker_at(&proxy.url(), options(INTERVAL)).await;
    let jobs = dispatch(&test.producer().await.1, &["during", "after"]).await;
    test.started(&jobs).await;
    proxy.refuse().await;
    test.journal.open("during");
    tokio::time::sleep(TWO_INTERVALS).await;
    proxy.accept().await;
    let id = worker.id.clone();
    let over = warnings.wait_for(&["INFO", &id, "redis answers again"], PATIENCE).await;
    assert!(over.contains("away_ms="), "{over}");
    test.journal.open("after");
    test.each_ran_once(&jobs).await;
    worker.stop().await;
    let about = |parts: &[&str]| {
        let all = |line: &&String| line.contains(&id) && parts.iter().all(|part| line.contains(part));
        warnings.lines().iter().filter(all).count()
    };
    assert_eq!(about(&["WARN", "redis does not answer"]), 1, "{:#?}", warnings.lines());
    assert_eq!(about(&["redis answers again"]), 1);
    let others =
        warnings.all().into_iter().filter(|line| line.contains(&test.name) && !line.contains("redis does not answer"));
    assert_eq!(others.collect::<Vec<_>>(), [""; 0]);
}
