//! The time from the dispatch of a job to the start of its handler, in an idle worker.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow};
use heartline::{Context, JobError};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::Bench;
use crate::dispatch::{app, one, options, payload, raw_one};
use crate::report::{Row, Stat, percentile, progress};
use crate::server::Server;

pub const ROWS: &[&str] = &["idle_latency_p50", "idle_latency_p99"];

/// The minimum that a claim has to do. KEYS: payload, wait, events, active, locks.
const BARE_CLAIM: &str = "
local id = redis.call('LPOP', KEYS[2])
local payload = redis.call('HGET', KEYS[1], id)
redis.call('SADD', KEYS[4], id)
redis.call('HSET', KEYS[5], id, ARGV[1])
redis.call('XADD', KEYS[3], 'MAXLEN', '~', 10000, '*', 'total', 1, 'worker', ARGV[1], 'started', id)
return { id, payload }";

/// Long enough for the worker to settle and block again.
const REST: Duration = Duration::from_millis(4);

pub async fn run(bench: &mut Bench) -> Result<Vec<Row>> {
    let (samples, runs) = (bench.size(1_000).max(300), bench.runs());
    let (mut p50, mut p99, mut raw_p50, mut raw_p99, mut bare_p50) = (vec![], vec![], vec![], vec![], vec![]);
    for run in 1..=runs {
        progress(&format!("idle latency: {samples} jobs, run {run} of {runs}"));
        let own = own_samples(bench, samples).await?;
        p50.push(percentile(&own, 50));
        p99.push(percentile(&own, 99));
        bench.server.clean()?;
        let (pops, trips) = tokio::task::block_in_place(|| raw_samples(&mut bench.server, samples))?;
        raw_p50.push(percentile(&pops, 50) + 2.0 * percentile(&trips, 50));
        raw_p99.push(percentile(&pops, 99) + 2.0 * percentile(&trips, 99));
        bench.server.clean()?;
        bare_p50.push(percentile(&tokio::task::block_in_place(|| bare_samples(&mut bench.server, samples))?, 50));
        bench.server.clean()?;
    }
    let bound = Stat::median_of(raw_p50.clone()) + 60.0;
    let note = "raw: ZADD until a blocked BZPOPMIN returns, plus 2 PINGs, blocking clients";
    let bare = Stat::median_of(bare_p50);
    let bare = format!("{note}; two scripts that only write, over the same path: {bare:.0} µs");
    Ok(vec![
        Row::new(ROWS[0], p50, "µs").raw(raw_p50).must("≤ raw + 60 µs", |value, _| value <= bound).note(bare),
        Row::new(ROWS[1], p99, "µs").raw(raw_p99).must("≤ 2,000 µs", |value, _| value <= 2_000.0).note(note),
    ])
}

async fn own_samples(bench: &Bench, samples: usize) -> Result<Vec<f64>> {
    let app = app(&bench.server).await?;
    let (started, mut starts) = mpsc::unbounded_channel();
    let task = app.task("idle", options(), move |_: Context, _: String| {
        let sent = started.send(Instant::now());
        async move { sent.map_err(|_| JobError::new("the bench ended").fatal()) }
    })?;
    let stop = CancellationToken::new();
    let stopped = stop.clone();
    let worker = app.worker();
    let worker = tokio::spawn(async move { worker.run_until(async move { stopped.cancelled().await }).await });
    let mut taken = Vec::with_capacity(samples);
    // During the first jobs, the worker is still starting.
    for sample in 0..samples + 20 {
        tokio::time::sleep(REST).await;
        let before = Instant::now();
        let handle = task.dispatch(payload(64)).await?;
        let wait = tokio::time::timeout(Duration::from_secs(10), starts.recv()).await;
        let start = wait.with_context(|| format!("job {} did not start", handle.id()))?.context("the worker ended")?;
        if sample >= 20 {
            // The handler may start before the reply to the dispatch arrives.
            taken.push(start.duration_since(before).as_secs_f64() * 1e6);
        }
    }
    stop.cancel();
    let _ = worker.await??;
    Ok(taken)
}

/// Blocked pops, and round trips, in µs.
fn raw_samples(server: &mut Server, samples: usize) -> Result<(Vec<f64>, Vec<f64>)> {
    let key = server.key("raw", "wake");
    let mut blocked = server.blocking()?;
    let (popped, pops) = std::sync::mpsc::channel();
    let name = key.clone();
    let popper = std::thread::spawn(move || -> Result<()> {
        for _ in 0..samples {
            redis::cmd("BZPOPMIN").arg(&name).arg(10).query::<redis::Value>(&mut blocked)?;
            popped.send(Instant::now())?;
        }
        Ok(())
    });
    let (mut taken, mut trips) = (Vec::with_capacity(samples), Vec::with_capacity(samples));
    for _ in 0..samples {
        std::thread::sleep(REST);
        let before = Instant::now();
        server.ask::<redis::Value>(&["ZADD", &key, "0", "marker"])?;
        let at = pops.recv_timeout(Duration::from_secs(10)).context("the blocked pop did not return")?;
        taken.push(at.duration_since(before).as_secs_f64() * 1e6);
        let before = Instant::now();
        server.ask::<redis::Value>(&["PING"])?;
        trips.push(before.elapsed().as_secs_f64() * 1e6);
    }
    popper.join().map_err(|_| anyhow!("the popping thread panicked"))??;
    Ok((taken, trips))
}

/// The shortest path of a job through a queue, in µs: a script that writes it and sets the marker, a blocked pop, and a
/// script that claims it. No checks, no replay records, blocking clients.
fn bare_samples(server: &mut Server, samples: usize) -> Result<Vec<f64>> {
    let dispatch = raw_one(server)?;
    let claim = server.own_script(BARE_CLAIM, "raw", &["payload", "wait", "events", "active", "locks"])?;
    let wake = server.key("raw", "wake");
    let (mut blocked, mut conn) = (server.blocking()?, server.blocking()?);
    let (started, starts) = std::sync::mpsc::channel();
    let worker = std::thread::spawn(move || -> Result<()> {
        for _ in 0..samples {
            redis::cmd("BZPOPMIN").arg(&wake).arg(10).query::<redis::Value>(&mut blocked)?;
            claim.call().arg("worker:1").query::<(String, String)>(&mut conn)?;
            started.send(Instant::now())?;
        }
        Ok(())
    });
    let mut taken = Vec::with_capacity(samples);
    for number in 0..samples {
        std::thread::sleep(REST);
        let before = Instant::now();
        one(&dispatch, number).query::<redis::Value>(server.conn())?;
        let at = starts.recv_timeout(Duration::from_secs(10)).context("the job was not claimed")?;
        taken.push(at.duration_since(before).as_secs_f64() * 1e6);
    }
    worker.join().map_err(|_| anyhow!("the claiming thread panicked"))??;
    Ok(taken)
}
