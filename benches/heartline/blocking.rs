//! How long one call keeps the server from others, by the size of the values that it carries: dispatch, settle and trim
//! through the library, each call timed by the server's own slow log.

use std::time::Duration;

use anyhow::{Context as _, Result};
use heartline::{Context, JobError, Retention, RetentionLimit, TaskOptions};
use redis::Value;
use tokio_util::sync::CancellationToken;

use crate::Bench;
use crate::dispatch::app;
use crate::report::{Row, progress};
use crate::server::{Server, item, items};

const TASK: &str = "blocking";
const SIZES: [(&str, usize, usize); 3] = [("1kib", 1 << 10, 2_000), ("16kib", 16 << 10, 400), ("1mib", 1 << 20, 24)];
const CALLS: [&str; 3] = ["dispatch", "settle", "trim"];

/// The names of the rows: a call, and the size of the payload and the result of each job.
pub fn rows() -> Vec<&'static str> {
    vec![
        "longest_dispatch_1kib",
        "longest_settle_1kib",
        "longest_trim_1kib",
        "longest_dispatch_16kib",
        "longest_settle_16kib",
        "longest_trim_16kib",
        "longest_dispatch_1mib",
        "longest_settle_1mib",
        "longest_trim_1mib",
    ]
}

pub async fn run(bench: &mut Bench) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for (name, bytes, jobs) in SIZES {
        let names = CALLS.map(|call| format!("longest_{call}_{name}"));
        if !names.iter().any(|row| bench.wants(row)) {
            continue;
        }
        progress(&format!("blocking: {jobs} jobs of {name}"));
        let mut longest = [Vec::new(), Vec::new(), Vec::new()];
        for _ in 0..bench.runs() {
            bench.server.clean()?;
            let found = measure(bench, bytes, jobs).await?;
            longest.iter_mut().zip(found).for_each(|(all, us)| all.push(us / 1000.0));
        }
        // A value that is too large to come with others travels alone.
        let most = if bytes > 512 << 10 { 8.0 } else { 5.0 };
        for (row, ms) in names.into_iter().zip(longest) {
            rows.push(Row::new(row, ms, "ms").must(format!("≤ {most} ms"), move |ms, _| ms <= most));
        }
    }
    Ok(rows)
}

/// The longest call of each kind, in µs of the server's time.
async fn measure(bench: &mut Bench, bytes: usize, jobs: usize) -> Result<[f64; 3]> {
    let hashes = CALLS.map(|call| bench.server.script(call, TASK));
    let [dispatch, settle, trim] = hashes;
    let (dispatch, settle, trim) = (dispatch?, settle?, trim?);
    let old = slow_log(&mut bench.server, "0", "100000")?;
    let app = app(&bench.server).await?;
    let retention = Retention::new().completed(RetentionLimit::forever());
    let options = TaskOptions::new().concurrency(100).retention(retention).payload_limit(2 << 20);
    let task = app.task(TASK, options, |_: Context, input: String| async { Ok::<_, JobError>(input) })?;
    let handles = task.dispatch_many((0..jobs).map(|_| "x".repeat(bytes))).await?;
    let stop = CancellationToken::new();
    let stopped = stop.clone();
    let worker = app.worker();
    let worker = tokio::spawn(async move { worker.run_until(async move { stopped.cancelled().await }).await });
    while (task.counts().await?.completed as usize) < handles.len() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    stop.cancel();
    let _ = worker.await??;
    let by_script = |server: &mut Server, sha: &str| -> Result<f64> {
        let entries: Vec<Value> = server.ask(&["SLOWLOG", "GET", "-1"])?;
        let mut longest = 0.0_f64;
        for entry in entries {
            let entry = items(entry)?;
            let args: Vec<String> = item(&entry, 3)?;
            if args.get(1).is_some_and(|arg| arg == sha) {
                longest = longest.max(item::<f64>(&entry, 2)?);
            }
        }
        Ok(longest)
    };
    let dispatched = by_script(&mut bench.server, dispatch.sha())?;
    let settled = by_script(&mut bench.server, settle.sha())?;
    // Trim takes nothing younger than a minute: it is called by hand, as the keeper calls it, for jobs of any age.
    let meta = bench.server.key(TASK, "meta");
    bench.server.ask::<i64>(&["HSET", &meta, "maxAgeCompleted", "0"])?;
    loop {
        let mut call = trim.call();
        call.arg("bench").arg("Completed").arg(0).arg(500);
        let answer: Value = call.query(bench.server.conn()).context("calling trim")?;
        if item::<u64>(&items(answer)?, 2)? == 0 {
            break;
        }
    }
    let trimmed = by_script(&mut bench.server, trim.sha())?;
    slow_log(&mut bench.server, &old.0, &old.1)?;
    Ok([dispatched, settled, trimmed])
}

/// Sets from which time on, in µs, the server logs calls, and how many; gives what was set before.
fn slow_log(server: &mut Server, from: &str, most: &str) -> Result<(String, String)> {
    let before: Vec<String> = server.ask(&["CONFIG", "GET", "slowlog-log-slower-than"])?;
    let length: Vec<String> = server.ask(&["CONFIG", "GET", "slowlog-max-len"])?;
    server.ask::<()>(&["CONFIG", "SET", "slowlog-log-slower-than", from])?;
    server.ask::<()>(&["CONFIG", "SET", "slowlog-max-len", most])?;
    server.ask::<()>(&["SLOWLOG", "RESET"])?;
    Ok((before.into_iter().nth(1).unwrap_or_default(), length.into_iter().nth(1).unwrap_or_default()))
}
