//! `bench`: what a server does at most, and what Heartline does on it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use heartline::{App, Context, JobError, Retention, RunningWorker, TaskOptions};
use redis::aio::MultiplexedConnection;
use redis::{ClientTlsConfig, TlsCertificates};
use serde::Serialize;
use tokio::time::Instant;
use uuid::Uuid;

use crate::args::Global;
use crate::contexts::{Place, Tls};
use crate::failure::Failure;
use crate::output::Output;

/// How long each part is measured.
const PART: Duration = Duration::from_secs(1);

/// How long jobs may take to be worked.
const WORK: Duration = Duration::from_secs(2);

/// How long all of it may take: over a slow line a part takes longer than it measures.
const WHOLE: Duration = Duration::from_secs(30);

/// How many bytes of raw writes there are at most, and of jobs that wait, what Redis takes for each among them, and how many jobs.
const RAW_BYTES: usize = 16 * 1024 * 1024;
const BYTES: usize = 32 * 1024 * 1024;
const A_JOB: usize = 256;
const JOBS: usize = 100_000;

/// What must be free of the memory that the server may take.
const ROOM: u64 = 96 * 1024 * 1024;

/// How many jobs a call dispatches, and how many writes a raw pipeline has.
const CHUNK: usize = 1000;
const PIPELINE: usize = 100;

/// How many raw pipelines are under way.
const ABREAST: usize = 8;

/// How many jobs run at a time.
const CONCURRENCY: usize = 100;

/// What was measured.
#[derive(Debug, Serialize)]
struct Figures {
    payload_bytes: usize,
    round_trip_us: u128,
    /// Plain SETs of as many bytes, in pipelines over one connection.
    raw_writes_a_second: f64,
    dispatched_a_second: f64,
    processed_a_second: f64,
}

pub(super) async fn bench(global: &Global, payload: usize) -> Result<(), Failure> {
    let place = Place::of(global)?;
    if let Some(why) = place.unknown {
        return Err(Failure::wrong(format!("this may be production, and a bench takes what jobs need: {why}")));
    }
    if place.is_production || place.shares_production {
        let name = place.context.filter(|_| place.is_production).unwrap_or_else(|| "its server".to_owned());
        return Err(Failure::wrong(format!("{name} is production: a bench takes what jobs need")));
    }
    if ["-sentinel://", "-cluster://"].iter().any(|scheme| place.url.contains(scheme)) {
        let what =
            "a bench measures one server: name a primary itself, as redis://host:port, which is no node of a cluster";
        return Err(Failure::wrong(what));
    }
    let prefix = format!("heartline-bench-{}", Uuid::now_v7());
    let app = place.app(&prefix).build().await?;
    has_room(&app).await?;
    let raw = match place.tls {
        Tls { ca: None, client: None } => redis::Client::open(place.url.as_str()),
        Tls { ca, client } => {
            let client_tls = client.map(|(client_cert, client_key)| ClientTlsConfig { client_cert, client_key });
            redis::Client::build_with_tls(place.url.as_str(), TlsCertificates { client_tls, root_cert: ca })
        }
    };
    let raw = raw.map_err(|e| Failure::wrong(e.to_string()))?;
    let mut raw = raw.get_multiplexed_async_connection().await.map_err(failed)?;
    say!("measuring for a few seconds, under the prefix {prefix}");
    let mut worker = None;
    let measured = tokio::select! {
        measured = tokio::time::timeout(WHOLE, measure(&app, &mut raw, &prefix, payload, &mut worker)) => {
            let late = || Err(Failure::Failed(format!("it takes longer than {} s: the line is too slow to measure over", WHOLE.as_secs())));
            Some(measured.unwrap_or_else(|_| late()))
        }
        () = told_to_stop() => None,
    };
    let removed = async {
        if let Some(worker) = worker {
            // Behind its end nothing writes any more; what it says of jobs that it left is of no account here.
            let _ = worker.stop().await;
        }
        remove(&mut raw, &prefix).await.map_err(|e| e.to_string())
    };
    // Whatever came of it.
    let removed = tokio::select! {
        removed = removed => removed,
        () = told_to_stop() => Err("broken off".to_owned()),
    };
    let how =
        format!("`redis-cli -u ADDRESS --scan --pattern '{prefix}*' | xargs redis-cli -u ADDRESS unlink` removes them");
    removed.map_err(|e| Failure::Failed(format!("keys under {prefix} are left: {e}; {how}")))?;
    let Some(measured) = measured else { return Err(Failure::Failed("stopped; its keys are removed".to_owned())) };
    let figures = measured?;
    let out = Output::of(global);
    if out.is_json {
        return out.json(&figures);
    }
    let Figures { round_trip_us, raw_writes_a_second: limit, dispatched_a_second, processed_a_second, .. } = figures;
    let row = |what: &str, rate: f64| vec![what.to_owned(), format!("{rate:.0}"), format!("{:.2}", rate / limit)];
    out.table(
        &["WHAT", "A SECOND", "OF RAW"],
        vec![
            row("raw: SET in pipelines, one connection", limit),
            row("dispatch, in bulk", dispatched_a_second),
            row(&format!("process no-op jobs, {CONCURRENCY} at a time"), processed_a_second),
        ],
    )?;
    out.line(format!("a short call takes {round_trip_us} µs"))
}

/// A server that is nearly full would refuse the jobs of others meanwhile.
async fn has_room(app: &App) -> Result<(), Failure> {
    for server in app.inspector().servers().await? {
        let free = server.max_memory.saturating_sub(server.used_memory);
        if server.max_memory > 0 && free < ROOM {
            let mib = |bytes: u64| bytes / 1024 / 1024;
            let what = format!(
                "a bench needs {} MiB to spare, and of its maxmemory the server has {} MiB left",
                mib(ROOM),
                mib(free)
            );
            return Err(Failure::wrong(what));
        }
        if server.max_memory > 0 && server.eviction_policy.starts_with("allkeys-") {
            let what = format!(
                "the server makes room by throwing keys away (maxmemory-policy {}), jobs among them",
                server.eviction_policy
            );
            return Err(Failure::wrong(what));
        }
    }
    Ok(())
}

/// Ctrl-C, SIGTERM, or the end of the terminal: none of them leaves keys behind.
async fn told_to_stop() {
    #[cfg(unix)]
    if let Ok(mut hangup) = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::hangup()) {
        tokio::select! {
            () = heartline::shutdown_signal() => {}
            _ = hangup.recv() => {}
        }
        return;
    }
    heartline::shutdown_signal().await;
}

async fn measure(
    app: &App,
    raw: &mut MultiplexedConnection,
    prefix: &str,
    payload: usize,
    running: &mut Option<RunningWorker>,
) -> Result<Figures, Failure> {
    let round_trip = app.inspector().servers().await?.iter().map(|server| server.round_trip).max().unwrap_or_default();
    let done = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&done);
    let handler = move |_: Context, _: String| {
        counted.fetch_add(1, Ordering::Relaxed);
        async { Ok::<_, JobError>(()) }
    };
    let options = TaskOptions::new().concurrency(CONCURRENCY).retention(Retention::remove_at_once());
    let jobs = app.task("bench", options, handler)?;
    let text = "x".repeat(payload);

    let raw_writes_a_second = writes(raw, prefix, &text).await.map_err(failed)?;
    let (most, mut dispatched, begun) = ((BYTES / (payload + A_JOB)).min(JOBS), 0, Instant::now());
    while dispatched < most && begun.elapsed() < PART {
        let some = CHUNK.min(most - dispatched);
        jobs.dispatch_many((0..some).map(|_| text.clone())).await?;
        dispatched += some;
    }
    let dispatched_a_second = dispatched as f64 / begun.elapsed().as_secs_f64();

    *running = Some(app.worker().spawn());
    let begin = async {
        while done.load(Ordering::Relaxed) == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let begun = tokio::time::timeout(Duration::from_secs(10), begin).await;
    begun.map_err(|_| Failure::Failed("the worker got no job in 10 s".to_owned()))?;
    // What was done by then is not counted.
    let (before, begun) = (done.load(Ordering::Relaxed), Instant::now());
    while (done.load(Ordering::Relaxed) as usize) < dispatched && begun.elapsed() < WORK {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let (after, took) = (done.load(Ordering::Relaxed), begun.elapsed());
    Ok(Figures {
        payload_bytes: payload,
        round_trip_us: round_trip.as_micros(),
        raw_writes_a_second,
        dispatched_a_second,
        processed_a_second: (after - before) as f64 / took.as_secs_f64().max(0.001),
    })
}

/// How many plain writes a second the server takes of one connection.
async fn writes(raw: &MultiplexedConnection, prefix: &str, text: &str) -> redis::RedisResult<f64> {
    let begun = Instant::now();
    let pipelined = (RAW_BYTES / ABREAST / (text.len() + A_JOB)).clamp(1, PIPELINE);
    let abreast = (0..ABREAST).map(|line| {
        let mut raw = raw.clone();
        async move {
            let mut written = 0_u64;
            while begun.elapsed() < PART {
                let mut pipeline = redis::pipe();
                for at in 0..pipelined {
                    pipeline.cmd("SET").arg(format!("{prefix}:raw:{line}:{at}")).arg(text).ignore();
                }
                let () = pipeline.query_async(&mut raw).await?;
                written += pipelined as u64;
            }
            Ok::<_, redis::RedisError>(written)
        }
    });
    let mut written = 0;
    for line in join_all(abreast).await {
        written += line?;
    }
    Ok(written as f64 / begun.elapsed().as_secs_f64())
}

/// Removes every key under the prefix, page by page.
async fn remove(raw: &mut MultiplexedConnection, prefix: &str) -> redis::RedisResult<()> {
    let (mut cursor, mut found) = (0_u64, false);
    loop {
        let mut scan = redis::cmd("SCAN");
        scan.arg(cursor).arg("MATCH").arg(format!("{prefix}*")).arg("COUNT").arg(1000);
        let (next, keys): (u64, Vec<Vec<u8>>) = scan.query_async(raw).await?;
        if !keys.is_empty() {
            found = true;
            let () = redis::cmd("UNLINK").arg(keys).query_async(raw).await?;
        }
        if next == 0 && !found {
            return Ok(());
        }
        // Until a whole pass finds nothing.
        found &= next != 0;
        cursor = next;
    }
}

fn failed(e: redis::RedisError) -> Failure {
    Failure::Failed(e.to_string())
}
