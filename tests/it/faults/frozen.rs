//! A process that freezes when its deadline has already passed, because Redis was away before.

use std::time::{Duration, Instant};

use heartline::{App, Context, JobError};
use redis::AsyncCommands;

use crate::faults::ground::{alone, proxied};
use crate::support::task::options;
use crate::support::{Child, PATIENCE, eventually};

const INTERVAL: Duration = Duration::from_secs(3);
const JOBS: usize = 4;

/// How long the process is frozen; far longer than a thread waits on a machine under load.
const FREEZE: Duration = Duration::from_secs(2);

/// Not a test by itself: a worker whose handlers send heartbeats all the time, and write the results to a list on the
/// server.
#[test]
fn a_worker_that_is_going_to_freeze() {
    let Some(role) = Child::role() else { return };
    let words: Vec<&str> = role.split(' ').collect();
    let [url, list_url, task] = words[..] else { panic!("{role}") };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let (client, list) = (redis::Client::open(list_url).unwrap(), format!("{task}:told"));
    runtime.block_on(async {
        let app = App::builder().redis(url).build().await.unwrap();
        app.task(task, options(INTERVAL).concurrency(JOBS), move |ctx: Context, _: String| {
            let (client, list) = (client.clone(), list.clone());
            async move {
                tokio::task::spawn_blocking(move || {
                    let mut conn = client.get_connection().unwrap();
                    watch(&ctx, |told| redis::Commands::rpush(&mut conn, &list, told).unwrap());
                })
                .await?;
                Err::<u64, _>(JobError::from("it has seen enough"))
            }
        })
        .unwrap();
        let _ = app.worker().run().await.unwrap();
    });
}

/// Sends heartbeats in a loop; reports when the deadline has passed, and the result of the first heartbeat after the
/// freeze.
fn watch(ctx: &Context, mut say: impl FnMut(String)) {
    let (mut last, mut at_risk, mut said, mut woken) = (Instant::now(), None, false, false);
    loop {
        std::thread::sleep(Duration::from_millis(1));
        woken |= last.elapsed() > FREEZE / 2;
        let told = ctx.heartbeat();
        if woken {
            say(format!("woke up: {told:?}"));
            return;
        }
        // A freeze during a heartbeat shows in the next one. One reading of the clock, so that no freeze falls between two.
        let now = Instant::now();
        woken = now - last > FREEZE / 2;
        last = now;
        if ctx.is_at_risk() {
            // The deadline is a tenth of the interval after the first moment of risk.
            let since: &Instant = at_risk.get_or_insert(last);
            if !said && since.elapsed() > INTERVAL / 10 + Duration::from_millis(200) {
                said = true;
                say(format!("past its deadline: {told:?}"));
            }
        }
    }
}

#[tokio::test]
async fn a_frozen_process_learns_from_its_first_heartbeat_afterwards() {
    let (redis, test, proxy) = proxied().await;
    let role = format!("{} {} {}", proxy.url(), redis.url(), test.name);
    let mut child = Child::start(module_path!(), "a_worker_that_is_going_to_freeze", &role);
    child.drain();
    let (_app, jobs) = test.producer().await;
    jobs.dispatch_many((0..JOBS).map(|_| "watch".to_owned())).await.unwrap();
    eventually("every job is watched", PATIENCE, async || jobs.counts().await.unwrap().running == JOBS as u64).await;
    let mut conn = test.conn().await;
    let list = format!("{}:told", test.name);
    let mut hear = async |count: usize| {
        eventually(&format!("{count} lines"), PATIENCE, async || {
            let told: Vec<String> = conn.lrange(&list, 0, -1).await.unwrap();
            (told.len() >= count).then_some(told)
        })
        .await
    };

    proxy.pause();
    // It has not been frozen so far, and no worker can take the jobs as long as Redis is away.
    assert_eq!(hear(JOBS).await, ["past its deadline: Ok(())"; JOBS]);
    child.signal("STOP");
    tokio::time::sleep(FREEZE).await;
    child.signal("CONT");
    // During the freeze Redis may have returned, and another worker may have the jobs.
    assert_eq!(hear(2 * JOBS).await[JOBS..], ["woke up: Err(Frozen)"; JOBS]);
}

#[tokio::test]
async fn a_worker_reports_itself_alive_right_after_a_freeze() {
    let (redis, test) = alone();
    let worker = Child::start(
        module_path!(),
        "a_worker_that_is_going_to_freeze",
        &format!("{} {} {}", redis.url(), redis.url(), test.name),
    );
    let inspector = test.app_at(&redis.url()).await.inspector();
    let seen = async || Some(inspector.workers().await.unwrap().first()?.last_seen_at);
    let first = eventually("it is there", PATIENCE, &seen).await;
    // Just after one of its signs, so that the next one is due in five seconds.
    eventually("it writes its record", PATIENCE, async || seen().await.is_some_and(|at| at > first)).await;
    let before = seen().await.unwrap();
    worker.signal("STOP");
    tokio::time::sleep(FREEZE).await;
    worker.signal("CONT");
    let thawed = Instant::now();
    eventually("it writes its record again", PATIENCE, async || seen().await.is_some_and(|at| at > before)).await;
    assert!(thawed.elapsed() < Duration::from_millis(1500), "a person may declare it dead: {:?}", thawed.elapsed());
}

/// The server gives a wake marker to the connection that has waited longest, even if its process is frozen.
#[tokio::test]
async fn a_frozen_idle_worker_does_not_delay_the_next_job() {
    let (_redis, test) = alone();
    let (_app, jobs) = test.producer().await;
    let blocked = async |count: usize| {
        eventually("they wait for work", PATIENCE, async || {
            let info: String = redis::cmd("INFO").arg("clients").query_async(&mut test.conn().await).await.unwrap();
            info.contains(&format!("blocked_clients:{count}\r\n"))
        })
        .await;
    };
    let (mut frozen, wake) = (test.conn().await, test.key("wake"));
    let frozen = tokio::spawn(async move {
        let taken: (String, String, String) =
            redis::cmd("BZPOPMIN").arg(wake).arg(0).query_async(&mut frozen).await.unwrap();
        taken.1
    });
    blocked(1).await;
    let worker = test.start_worker(options(INTERVAL)).await;
    blocked(2).await;
    test.journal.open("go");
    let dispatched = Instant::now();
    let job = jobs.dispatch("go".to_owned()).await.unwrap();
    tokio::time::timeout(PATIENCE, job.result()).await.expect("it is not claimed").unwrap();
    // A worker without the marker polls within 5 s.
    let waited = dispatched.elapsed();
    assert!(waited < Duration::from_secs(3), "{waited:?}");
    assert_eq!(frozen.await.unwrap(), "marker");
    worker.stop().await;
}
