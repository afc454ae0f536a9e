//! What a waiting job takes of the server's memory.

use anyhow::{Result, ensure};

use crate::Bench;
use crate::dispatch::{app, fill, id, payload};
use crate::report::{Row, Stat, progress};
use crate::server::Server;

pub const ROWS: &[&str] =
    &["memory_waiting_64b", "memory_waiting_1kib", "memory_events_per_job_64b", "memory_events_per_job_1kib"];

pub async fn run(bench: &mut Bench) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for (bytes, row, events_row, most) in [(64, ROWS[0], ROWS[2], 185.0), (1024, ROWS[1], ROWS[3], 1_420.0)] {
        if bench.wants_any(&[row, events_row]) {
            rows.extend(waiting(bench, bytes, row, events_row, most).await?);
        }
    }
    Ok(rows)
}

async fn waiting(
    bench: &mut Bench,
    bytes: usize,
    row: &'static str,
    events_row: &'static str,
    most: f64,
) -> Result<Vec<Row>> {
    let (n, runs) = (bench.size(1_000_000), bench.big_runs());
    let (mut own, mut raw, mut events) = (Vec::new(), Vec::new(), Vec::new());
    for run in 1..=runs {
        progress(&format!("memory of {n} waiting jobs with {bytes} B, run {run} of {runs}"));
        bench.server.clean()?;
        let task = app(&bench.server).await?.task_ref::<String, ()>("memory")?;
        let before = bench.server.used_memory()?;
        // In parts, so that the bench does not hold a million payloads.
        for _ in 0..10 {
            fill(&task, n / 10, bytes).await?;
        }
        let used = bench.server.used_memory()? - before;
        let wait = bench.server.key("memory", "wait");
        let waiting: usize = bench.server.ask(&["LLEN", &wait])?;
        ensure!(waiting == n, "{waiting} jobs wait, not {n}");
        let stream = bench.server.key("memory", "events");
        let stream = bench.server.memory_of(&stream)?;
        own.push(used / n as f64);
        events.push(stream / n as f64);
        drop(task);
        bench.server.clean()?;

        let before = bench.server.used_memory()?;
        raw_columns(&mut bench.server, n, bytes)?;
        raw.push((bench.server.used_memory()? - before) / n as f64);
        bench.server.clean()?;
    }
    let columns = Stat::of(own.clone()).median - Stat::of(events.clone()).median;
    Ok(vec![
        Row::new(row, own, "B")
            .raw(raw)
            .must(format!("≤ {most:.0} B"), |value, _| value <= most)
            .note(format!("used_memory, {columns:.0} B without the events; raw: a hash of payloads and a list of ids")),
        Row::new(events_row, events, "B").note("the events stream, in the row above; of bounded length"),
    ])
}

/// The least that holds ids and payloads: a list and a hash.
fn raw_columns(server: &mut Server, n: usize, bytes: usize) -> Result<()> {
    let (hash, list) = (server.key("raw", "payload"), server.key("raw", "wait"));
    for first in (0..n).step_by(1_000) {
        let (mut write, mut queue) = (redis::cmd("HSET"), redis::cmd("RPUSH"));
        write.arg(&hash);
        queue.arg(&list);
        for number in first..first + 1_000 {
            write.arg(id(number)).arg(format!("\"{}\"", payload(bytes)));
            queue.arg(id(number));
        }
        write.query::<()>(server.conn())?;
        queue.query::<()>(server.conn())?;
    }
    Ok(())
}
