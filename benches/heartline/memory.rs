//! What a job takes of the server's memory: waiting, running and completed.

use anyhow::{Result, ensure};

use crate::Bench;
use crate::dispatch::{app, fill, id, payload};
use crate::report::{Row, Stat, progress, shown};
use crate::server::Server;
use crate::settle::Settle;

/// Jobs of one size, and the rows of their states: waiting, the events beside it, running, completed.
struct Kind {
    bytes: usize,
    result: bool,
    rows: [&'static str; 4],
    /// The budget of a waiting job.
    most: f64,
}

/// A kind with results is measured for what becomes of it at the end; what comes before has no row.
const KINDS: [Kind; 3] = [
    Kind {
        bytes: 64,
        result: false,
        rows: ["memory_waiting_64b", "memory_events_per_job_64b", "memory_running_64b", "memory_completed_64b"],
        most: 185.0,
    },
    Kind {
        bytes: 1024,
        result: false,
        rows: ["memory_waiting_1kib", "memory_events_per_job_1kib", "memory_running_1kib", "memory_completed_1kib"],
        most: 1_420.0,
    },
    Kind { bytes: 64, result: true, rows: ["", "", "", "memory_completed_64b_with_result"], most: 185.0 },
];

const TASK: &str = "memory";
/// Jobs a call claims and completes.
const BATCH: usize = 200;
const RESULT: &str = r#"{"status":200,"bytes":1048576,"name":"a.txt"}"#;

/// The rows, by what is measured together.
pub fn parts() -> Vec<Vec<&'static str>> {
    KINDS.iter().map(|kind| kind.rows.into_iter().filter(|row| !row.is_empty()).collect()).collect()
}

pub async fn run(bench: &mut Bench) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for kind in &KINDS {
        if kind.rows.iter().any(|row| !row.is_empty() && bench.wants(row)) {
            rows.extend(measure(bench, kind).await?.into_iter().filter(|row| !row.bench.is_empty()));
        }
    }
    Ok(rows)
}

/// Bytes a job in each state, a run each: with all that the server has for them, and the events stream for itself.
#[derive(Default)]
struct Used {
    all: Vec<f64>,
    events: Vec<f64>,
    raw: Vec<f64>,
}

impl Used {
    fn add(&mut self, server: &mut Server, before: f64, n: usize) -> Result<()> {
        let used = server.used_memory()? - before;
        let stream = server.key(TASK, "events");
        self.all.push(used / n as f64);
        self.events.push(server.memory_of(&stream)? / n as f64);
        Ok(())
    }

    /// Of jobs past their dispatch: the stream, of bounded length, is left out.
    fn row(self, name: &str, note: &str) -> Row {
        let values = self.all.iter().zip(&self.events).map(|(all, events)| all - events).collect();
        Row::new(name, values, "B").raw(self.raw).note(format!("used_memory without the events; raw: {note}"))
    }
}

async fn measure(bench: &mut Bench, kind: &Kind) -> Result<Vec<Row>> {
    let (n, runs) = (bench.size(1_000_000), bench.few_runs(1));
    let [mut waiting, mut running, mut completed]: [Used; 3] = Default::default();
    let result = kind.result.then_some(RESULT);
    for run in 1..=runs {
        let with = if kind.result { " and a result" } else { "" };
        progress(&format!("memory of {n} jobs with {} B{with}, run {run} of {runs}", kind.bytes));
        bench.server.clean()?;
        let task = app(&bench.server).await?.task_ref::<String, ()>(TASK)?;
        let before = bench.server.used_memory()?;
        // In parts, so that the bench does not hold a million payloads.
        for _ in 0..10 {
            fill(&task, n / 10, kind.bytes).await?;
        }
        drop(task);
        let server = &mut bench.server;
        ensure_in(server, "LLEN", "wait", n)?;
        waiting.add(server, before, n)?;

        let mut worker = Settle::new(server, TASK, "bench-host-4242-0a1b2c3d", 30_000)?;
        let mut claimed = Vec::new();
        for _ in 0..n / BATCH {
            claimed.push(worker.claim(server, BATCH)?);
        }
        ensure_in(server, "HLEN", "locks", n)?;
        running.add(server, before, n)?;
        for done in &claimed {
            worker.complete(server, done, result)?;
        }
        ensure_in(server, "ZCARD", "completed", n)?;
        completed.add(server, before, n)?;

        let [waiting_row, _, running_row, completed_row] = kind.rows;
        for (row, used, state) in [
            (waiting_row, &mut waiting, State::Waiting),
            (running_row, &mut running, State::Running),
            (completed_row, &mut completed, State::Completed(result)),
        ] {
            if row.is_empty() {
                continue;
            }
            server.clean()?;
            let before = server.used_memory()?;
            raw_columns(server, n, kind.bytes, state)?;
            used.raw.push((server.used_memory()? - before) / n as f64);
        }
        server.clean()?;
    }
    let columns = Stat::median_of(waiting.all.clone()) - Stat::median_of(waiting.events.clone());
    let [waiting_row, events_row, running_row, completed_row] = kind.rows;
    let results = if kind.result { ", and a hash of results" } else { "" };
    Ok(vec![
        Row::new(waiting_row, waiting.all, "B")
            .raw(waiting.raw)
            .must(format!("≤ {} B", shown(kind.most)), |value, _| value <= kind.most)
            .note(format!("used_memory, {columns:.0} B without the events; raw: a hash of payloads and a list of ids")),
        Row::new(events_row, waiting.events, "B").note("the events stream, in the row above; of bounded length"),
        running.row(running_row, "hashes of payloads and of tokens, and a set of ids"),
        completed.row(completed_row, &format!("a hash of payloads and a sorted set of ids{results}")),
    ])
}

fn ensure_in(server: &mut Server, command: &str, suffix: &str, n: usize) -> Result<()> {
    let key = server.key(TASK, suffix);
    let there: usize = server.ask(&[command, &key])?;
    ensure!(there == n, "{there} jobs are in {suffix}, not {n}");
    Ok(())
}

/// Where jobs are, and what they ended with.
#[derive(Clone, Copy)]
enum State {
    Waiting,
    Running,
    Completed(Option<&'static str>),
}

/// The least set of plain collections that holds the same.
fn raw_columns(server: &mut Server, n: usize, bytes: usize, state: State) -> Result<()> {
    let key = |suffix: &str| server.key("raw", suffix);
    let (payloads, ids, values) = (key("payload"), key("ids"), key("values"));
    for first in (0..n).step_by(1_000) {
        let mut calls = redis::pipe();
        let jobs = || (first..first + 1_000).map(id);
        let with = |value: &str| jobs().map(|id| (id, value.to_owned())).collect::<Vec<_>>();
        calls.hset_multiple(&payloads, &with(&format!("\"{}\"", payload(bytes)))).ignore();
        match state {
            State::Waiting => calls.rpush(&ids, jobs().collect::<Vec<_>>()).ignore(),
            State::Running => calls
                .hset_multiple(&values, &with("bench-host-4242-0a1b2c3d:1700000000000000"))
                .ignore()
                .sadd(&ids, jobs().collect::<Vec<_>>())
                .ignore(),
            State::Completed(result) => {
                if let Some(result) = result {
                    calls.hset_multiple(&values, &with(result)).ignore();
                }
                let times: Vec<_> = jobs().map(|id| (1_700_000_000_000_u64, id)).collect();
                calls.zadd_multiple(&ids, &times).ignore()
            }
        };
        calls.query::<()>(server.conn())?;
    }
    Ok(())
}
