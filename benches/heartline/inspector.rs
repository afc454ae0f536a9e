//! What the inspector costs the server beside very many jobs: the longest single call of each read, of each act, and of
//! an audit, by the server's own slow log.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, ensure};
use heartline::{Act, Inspector, JobFilter, JobState, JobValues};
use redis::Value;

use crate::Bench;
use crate::child::{Child, Handler, Spec};
use crate::dispatch::{app, fill, id};
use crate::report::{Row, Stat, percentile, progress, shown};
use crate::server::{Server, item, items};

const TASK: &str = "inspector";
/// A task whose failed jobs have messages as long as they get.
const LONG: &str = "inspector-long";
/// A task whose jobs have large payloads.
const LARGE: &str = "inspector-large";
const WORKER: &str = "bench-host-4242-0a1b2c3d";

/// The budget of one call, µs of the server's time.
const MOST_US: f64 = 5_000.0;
/// From which time on calls are logged, µs. The server logs what scripts call, too, and that would take more of its time than
/// the calls themselves: nearly all of them are shorter than this, and nearly all scripts are longer.
const LOGGED_US: f64 = 20.0;

/// The numbers of the first jobs that are made by hand, by their states.
const FAILED: usize = 10_000_000;
const RUNNING: usize = 20_000_000;
const DELAYED: usize = 30_000_000;
/// Jobs that one call of a seed makes.
const SEEDED: usize = 1_000;
/// Jobs that one act is for.
const BATCH: usize = 200;
/// src/limits.rs.
const MESSAGE_LIMIT: usize = 4096;

const READS: [&str; 26] = [
    "inspector_task",
    "inspector_tasks",
    "inspector_workers",
    "inspector_page_failed_newest",
    "inspector_page_failed_oldest",
    "inspector_page_failed_middle",
    "inspector_page_waiting_first",
    "inspector_page_waiting_middle",
    "inspector_page_running",
    "inspector_page_of_1000",
    "inspector_page_filtered",
    "inspector_page_filtered_4kib",
    "inspector_count_state",
    "inspector_count_age",
    "inspector_count_filter",
    "inspector_job",
    "inspector_events",
    "inspector_job_events",
    "inspector_stalls",
    "inspector_explain",
    "inspector_outlook",
    "inspector_silent",
    "inspector_late_outcomes",
    // After the purge, which comes before it in the order of what is measured.
    "inspector_page_ghosts",
    "inspector_task_ghosts",
    "inspector_job_ghost",
];
/// How long the server was kept from a script that only counts.
const IDLE: &str = "inspector_idle_script";
const ACTS: [&str; 11] = [
    "inspector_cancel_one",
    "inspector_cancel_200",
    "inspector_cancel_200_4kib",
    "inspector_cancel_running_200",
    "inspector_remove_one",
    "inspector_remove_200",
    "inspector_remove_200_1mib",
    "inspector_retry_200",
    "inspector_retry_200_4kib",
    "inspector_run_now_200",
    "inspector_purge_100k",
];
/// What is audited, and the rows of each: the longest call, the time of all, how many there are, and memory of the client.
const AUDITS: [(Audited, [&str; 4]); 4] = [
    (
        Audited::Waiting,
        [
            "inspector_audit_waiting",
            "inspector_audit_waiting_total",
            "inspector_audit_waiting_calls",
            "inspector_audit_waiting_memory",
        ],
    ),
    (
        Audited::Failed,
        [
            "inspector_audit_failed",
            "inspector_audit_failed_total",
            "inspector_audit_failed_calls",
            "inspector_audit_failed_memory",
        ],
    ),
    (
        Audited::Running,
        [
            "inspector_audit_running",
            "inspector_audit_running_total",
            "inspector_audit_running_calls",
            "inspector_audit_running_memory",
        ],
    ),
    (
        Audited::Ghosts,
        [
            "inspector_audit_ghosts",
            "inspector_audit_ghosts_total",
            "inspector_audit_ghosts_calls",
            "inspector_audit_ghosts_memory",
        ],
    ),
];

/// The jobs of a task that is audited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Audited {
    Waiting,
    Failed,
    Running,
    /// Waiting jobs, a tenth of which was removed and has left its entries in the list.
    Ghosts,
}

/// Failed jobs, as settle leaves them behind; a hundred end in the same millisecond.
const SEED_FAILED: &str = "
local first, last, payload, failure, since = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3], ARGV[4], tonumber(ARGV[5])
local payloads, failures, attempts, entries = {}, {}, {}, {}
for i = first, last do
  local id, at = string.format('bench%017d', i), 2 * (i - first)
  payloads[at + 1], payloads[at + 2] = id, payload
  failures[at + 1], failures[at + 2] = id, failure
  attempts[at + 1], attempts[at + 2] = id, '3'
  entries[at + 1], entries[at + 2] = string.format('%.0f', since + math.floor(i / 100)), id
end
redis.call('HSET', KEYS[1], unpack(payloads))
redis.call('HSET', KEYS[2], unpack(failures))
redis.call('HSET', KEYS[3], unpack(attempts))
redis.call('ZADD', KEYS[4], unpack(entries))
return 1";

/// Running jobs, as settle leaves them behind; every other one was silent since the snapshot.
const SEED_RUNNING: &str = "
local first, last, payload, worker, fence = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3], ARGV[4], tonumber(ARGV[5])
local payloads, locks, sets = {}, {}, { {}, {} }
for i = first, last do
  local id, at, set = string.format('bench%017d', i), 2 * (i - first), sets[1 + i % 2]
  payloads[at + 1], payloads[at + 2] = id, payload
  locks[at + 1], locks[at + 2] = id, string.format('%s:%.0f', worker, fence + i)
  set[#set + 1] = id
end
redis.call('HSET', KEYS[1], unpack(payloads))
redis.call('HSET', KEYS[2], unpack(locks))
redis.call('SADD', KEYS[3], unpack(sets[1]))
redis.call('SADD', KEYS[4], unpack(sets[2]))
return 1";

/// Delayed jobs, as dispatch leaves them behind.
const SEED_DELAYED: &str = "
local first, last, payload, due = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4])
local payloads, entries = {}, {}
for i = first, last do
  local id, at = string.format('bench%017d', i), 2 * (i - first)
  payloads[at + 1], payloads[at + 2] = id, payload
  entries[at + 1], entries[at + 2] = string.format('%.0f', due + i), id
end
redis.call('HSET', KEYS[1], unpack(payloads))
redis.call('ZADD', KEYS[2], unpack(entries))
return 1";

/// Entries of the events as busy workers leave them behind: 500 completed and 200 started jobs in each, and now and then an
/// outcome that came too late. Entries of the stalls as a sweep over long round trips does: 200 each.
const SEED_EVENTS: &str = "
local first, worker = tonumber(ARGV[1]), ARGV[2]
local ids, ran, stalled = {}, {}, {}
for i = 1, 500 do ids[i], ran[i] = string.format('bench%017d', first + i), '12345' end
for i = 1, 200 do stalled[i] = ids[i] .. ' 1 recovered ' .. worker end
local completed, started = table.concat(ids, ' '), table.concat(ids, ' ', 1, 200)
for entry = 1, 250 do
  redis.call('XADD', KEYS[1], '*', 'total', entry * 700, 'worker', worker, 'ran', table.concat(ran, ' '),
    'completed', completed, 'started', started)
  if entry % 25 == 0 then
    redis.call('XADD', KEYS[1], '*', 'total', entry * 700, 'worker', worker, 'refused', ids[entry] .. ' 1 completed')
  end
end
for entry = 1, 600 do
  redis.call('XADD', KEYS[2], '*', 'total', entry * 200, 'worker', worker,
    'watched', '7 30000 30000 ' .. worker .. ' 1700000000000', 'reason', 'silent', 'stalled', table.concat(stalled, ' '))
end
return 1";

/// The rows, by what is measured together.
pub fn parts() -> Vec<Vec<&'static str>> {
    let mut parts = vec![vec![IDLE], [&READS[..], &ACTS].concat()];
    parts.extend(AUDITS.iter().map(|(_, rows)| rows.to_vec()));
    parts
}

pub async fn run(bench: &mut Bench) -> Result<Vec<Row>> {
    let before = slow_log(&mut bench.server, &LOGGED_US.to_string(), "1000000")?;
    let rows = measure(bench).await;
    slow_log(&mut bench.server, &before.0, &before.1)?;
    rows
}

async fn measure(bench: &mut Bench) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    if bench.wants(IDLE) {
        rows.push(idle(bench)?);
    }
    if bench.wants_any(&READS) || bench.wants_any(&ACTS) {
        rows.extend(reads_and_acts(bench).await?);
    }
    for (audited, names) in AUDITS {
        if bench.wants_any(&names) {
            rows.extend(audit(bench, audited, names).await?);
        }
    }
    Ok(rows)
}

/// A call as the server logged it.
#[derive(Debug)]
struct Call {
    /// The script, or the command.
    name: String,
    is_script: bool,
    us: f64,
}

/// The calls of one row: the longest of each run, and those of scripts.
#[derive(Debug, Default)]
struct Calls {
    longest: Vec<f64>,
    scripts: Vec<f64>,
    /// What the longest of all was.
    slowest: (f64, String),
}

impl Calls {
    fn add(&mut self, calls: Vec<Call>) {
        // What a script calls is never longer than the script.
        self.longest.push(calls.iter().map(|call| call.us).fold(LOGGED_US, f64::max));
        for call in calls {
            self.scripts.extend(call.is_script.then_some(call.us));
            if call.us > self.slowest.0 || call.us == self.slowest.0 && call.is_script {
                self.slowest = (call.us, call.name);
            }
        }
    }

    fn row(self, name: &str) -> Row {
        let (scripts, (_, slowest)) = (self.scripts.len() / self.longest.len().max(1), self.slowest);
        let scripts_of = |percent| shown(percentile(&self.scripts, percent));
        let note = match scripts {
            _ if slowest.is_empty() => "no call is longer".to_owned(),
            0 => slowest,
            1..100 => format!("{slowest}; {scripts} scripts, median {} µs", scripts_of(50)),
            _ => {
                format!("{slowest}; {scripts} scripts, median {} µs, 99 of 100 ≤ {} µs", scripts_of(50), scripts_of(99))
            }
        };
        Row::new(name, self.longest, "µs").must(format!("≤ {} µs", shown(MOST_US)), |us, _| us <= MOST_US).note(note)
    }
}

/// Reads from the slow log what each call took.
struct Log {
    /// Scripts by their hashes.
    scripts: HashMap<String, &'static str>,
    rows: BTreeMap<&'static str, Calls>,
}

impl Log {
    /// Loads every script, so that no call meets a server that does not know it.
    fn new(server: &mut Server) -> Result<Log> {
        let mut scripts = HashMap::new();
        for script in heartline::_internals::scripts() {
            scripts.insert(server.load(script.source)?, script.name);
        }
        Ok(Log { scripts, rows: BTreeMap::new() })
    }

    /// Waits for what is measured, and takes its calls.
    async fn add<T>(
        &mut self,
        server: &mut Server,
        row: &'static str,
        what: impl IntoFuture<Output = heartline::Result<T>>,
    ) -> Result<T> {
        server.ask::<()>(&["SLOWLOG", "RESET"])?;
        let answer = what.await.with_context(|| format!("measuring {row}"))?;
        let calls = self.calls(server)?;
        self.rows.entry(row).or_default().add(calls);
        Ok(answer)
    }

    /// What each call took since the log was reset; those of the bench itself are left out.
    fn calls(&self, server: &mut Server) -> Result<Vec<Call>> {
        let entries: Vec<Value> = server.ask(&["SLOWLOG", "GET", "-1"])?;
        let mut calls = Vec::new();
        for entry in entries {
            let entry = items(entry)?;
            let args: Vec<String> = item(&entry, 3)?;
            let command = args.first().map(|name| name.to_uppercase()).unwrap_or_default();
            if command == "SLOWLOG" || command == "CONFIG" {
                continue;
            }
            let script = args.get(1).filter(|_| command == "EVALSHA").and_then(|sha| self.scripts.get(sha));
            let name = script.map_or(command, |name| format!("{name}.lua"));
            calls.push(Call { name, is_script: script.is_some(), us: item(&entry, 2)? });
        }
        Ok(calls)
    }
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

fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

fn ids(first: usize, n: usize) -> Vec<String> {
    (first..first + n).map(id).collect()
}

/// The `error` column of a job that failed.
fn failure(bytes: usize) -> String {
    serde_json::json!({ "code": "io", "message": "connection reset by peer / ".repeat(1 + bytes / 27)[..bytes] })
        .to_string()
}

/// When the first of the failed jobs ended, ms.
fn first_end() -> u64 {
    now_ms() - 2_000_000
}

/// Makes jobs of one state by hand, in calls of some hundred each.
fn seed(
    server: &mut Server,
    task: &str,
    script: &str,
    suffixes: &[&str],
    (first, n): (usize, usize),
    args: &[&str],
) -> Result<()> {
    let script = server.own_script(script, task, suffixes)?;
    for from in (first..first + n).step_by(SEEDED) {
        let mut call = script.call();
        call.arg(from).arg((from + SEEDED).min(first + n) - 1).arg(args);
        call.query::<()>(server.conn())?;
    }
    Ok(())
}

fn seed_failed(server: &mut Server, task: &str, n: usize, (payload, error): (&str, &str), since: u64) -> Result<()> {
    let suffixes = ["payload", "error", "attempt", "failed"];
    seed(server, task, SEED_FAILED, &suffixes, (FAILED, n), &[payload, error, &since.to_string()])
}

fn seed_running(server: &mut Server, task: &str, n: usize) -> Result<()> {
    let suffixes = ["payload", "locks", "active", "candidates"];
    let fence = (now_ms() * 1_000).to_string();
    seed(server, task, SEED_RUNNING, &suffixes, (RUNNING, n), &[&"x".repeat(64), WORKER, &fence])
}

async fn seed_waiting(server: &Server, task: &str, n: usize) -> Result<()> {
    let task = app(server).await?.task_ref::<String, ()>(task)?;
    // In parts, so that the bench does not hold a million payloads.
    for _ in 0..10 {
        fill(&task, n / 10, 64).await?;
    }
    Ok(())
}

/// What workers and sweeps write beside the jobs: options, presence, events and stalls.
fn seed_rest(server: &mut Server) -> Result<()> {
    for task in [TASK, LONG, LARGE] {
        let meta = server.key(task, "meta");
        let now = now_ms().to_string();
        let fields = format!(
            "wire 1 epoch 7 interval 30000 ask 30000 epochAt {now} snapshotAt {now} declaredAt {now} declaredBy {WORKER} \
             asker {WORKER} maxCount 3 heartbeat automatic eventMode on priority normal keepCompleted 1 keepFailed 1 \
             keepCancelled 1"
        );
        let command: Vec<&str> = ["HSET", meta.as_str()].into_iter().chain(fields.split_whitespace()).collect();
        server.ask::<usize>(&command)?;
    }
    let script = server.own_script(SEED_EVENTS, TASK, &["events", "stalls"])?;
    script.call().arg(RUNNING).arg(WORKER).query::<()>(server.conn())?;
    let (workers, tasks) = (format!("{}:workers", server.prefix), format!("{}:tasks", server.prefix));
    for number in 0..1_000 {
        let (worker, now) = (format!("bench-host-{number}-0a1b2c3d"), now_ms());
        server.ask::<usize>(&["ZADD", &workers, &now.to_string(), &worker])?;
        let key = format!("{}:worker:{worker}", server.prefix);
        let fields = format!(
            "lastSeenAt {now} host bench-host pid {number} version 0.1.0 startedAt {now} phase working runtimeSilent 3 \
             tasks {TASK} held:{TASK} 100 slots:{TASK} 100"
        );
        let mut command: Vec<&str> = ["HSET", key.as_str()].into_iter().chain(fields.split_whitespace()).collect();
        let (beat, watch) = (format!("beat:{TASK}"), format!("watch:{TASK}"));
        command.extend([beat.as_str(), "400 2", watch.as_str(), "7 20000 30000 - 0"]);
        server.ask::<usize>(&command)?;
    }
    for number in 0..200 {
        server.ask::<usize>(&["ZADD", &tasks, "1700000000000", &format!("inspector-{number}")])?;
    }
    Ok(())
}

/// Calls a script that takes about a millisecond wherever nothing keeps the server from it: what its longest call takes beyond
/// that is the machine's, as in all other rows of many calls.
fn idle(bench: &mut Bench) -> Result<Row> {
    progress("inspector: a script that only counts");
    let (server, mut calls) = (&mut bench.server, Calls::default());
    let script = server.own_script("local sum = 0 for i = 1, 100000 do sum = sum + i end return sum", TASK, &[])?;
    let mut log = Log::new(server)?;
    log.scripts.insert(script.sha().to_owned(), "idle");
    for _ in 0..3 {
        server.ask::<()>(&["SLOWLOG", "RESET"])?;
        for _ in 0..2_000 {
            script.call().query::<()>(server.conn())?;
        }
        calls.add(log.calls(server)?);
    }
    Ok(calls.row(IDLE))
}

async fn reads_and_acts(bench: &mut Bench) -> Result<Vec<Row>> {
    let (n, runs) = (bench.size(1_000_000), bench.runs());
    let say = |what: &str| progress(&format!("inspector beside {n} waiting, failed and running jobs each: {what}"));
    say("seeding");
    let server = &mut bench.server;
    server.clean()?;
    let since = first_end();
    seed_waiting(server, TASK, n).await?;
    seed_failed(server, TASK, n, (&"x".repeat(64), &failure(60)), since)?;
    seed_failed(server, LONG, 10 * BATCH * runs, (&"x".repeat(64), &failure(MESSAGE_LIMIT)), since)?;
    seed_running(server, TASK, n)?;
    let due = (now_ms() + 3_600_000).to_string();
    let delayed = BATCH * runs + n / 10;
    seed(server, TASK, SEED_DELAYED, &["payload", "delayed"], (DELAYED, delayed), &[&"x".repeat(64), &due])?;
    seed_rest(server)?;
    let inspector = app(server).await?.inspector().by("bench");
    let mut log = Log::new(server)?;
    for run in 1..=runs {
        say(&format!("reads, run {run} of {runs}"));
        reads(server, &mut log, &inspector, (n, since)).await?;
    }
    for run in 0..runs {
        say(&format!("acts, run {} of {runs}", run + 1));
        acts(server, &mut log, &inspector, (n, run)).await?;
    }
    for run in 1..=runs {
        say(&format!("reads beside ghosts, run {run} of {runs}"));
        beside_ghosts(server, &mut log, &inspector).await?;
    }
    server.clean()?;
    let mut found = log.rows;
    let names = READS.iter().chain(&ACTS);
    Ok(names.filter_map(|name| found.remove(name).map(|calls| calls.row(name))).collect())
}

async fn reads(server: &mut Server, log: &mut Log, inspector: &Inspector, (n, since): (usize, u64)) -> Result<()> {
    let failed = JobFilter::new(JobState::Failed);
    let waiting = JobFilter::new(JobState::Waiting);
    let running = JobFilter::new(JobState::Running);
    let page = |filter: JobFilter, cursor: Option<String>, limit: usize| async move {
        inspector.jobs(TASK, &filter, cursor.as_deref(), limit).await
    };
    log.add(server, "inspector_task", inspector.task(TASK)).await?;
    log.add(server, "inspector_tasks", inspector.tasks()).await?;
    log.add(server, "inspector_workers", inspector.workers()).await?;

    let found = log.add(server, "inspector_page_failed_newest", page(failed.clone(), None, 50)).await?;
    ensure!(found.jobs.len() == 50, "a page has {} jobs", found.jobs.len());
    log.add(server, "inspector_page_failed_oldest", page(failed.clone().oldest_first(), None, 50)).await?;
    let middle = FAILED + n / 2 + 50;
    let cursor = format!("{} {}", since + middle as u64 / 100, id(middle));
    let found = log.add(server, "inspector_page_failed_middle", page(failed.clone(), Some(cursor), 50)).await?;
    ensure!(found.jobs[0].id.as_str() == id(middle - 1), "the page in the middle begins with {}", found.jobs[0].id);
    log.add(server, "inspector_page_waiting_first", page(waiting.clone(), None, 50)).await?;
    let cursor = format!("2 {}", n / 2);
    let found = log.add(server, "inspector_page_waiting_middle", page(waiting.clone(), Some(cursor), 50)).await?;
    ensure!(found.jobs.len() == 50, "a page has {} jobs", found.jobs.len());
    let middle = found.jobs[0].id.to_string();
    log.add(server, "inspector_page_running", page(running.clone(), None, 50)).await?;
    log.add(server, "inspector_page_of_1000", page(failed.clone(), None, 1_000)).await?;
    let none = failed.clone().code("timeout");
    let found = log.add(server, "inspector_page_filtered", page(none.clone(), None, 50)).await?;
    ensure!(found.looked == 1_000 && found.jobs.is_empty(), "a page looked at {} jobs", found.looked);
    let text = failed.clone().text("no such text");
    log.add(server, "inspector_page_filtered_4kib", inspector.jobs(LONG, &text, None, 50)).await?;

    log.add(server, "inspector_count_state", inspector.count(TASK, &waiting)).await?;
    let old = failed.clone().older_than(Duration::from_secs(600));
    log.add(server, "inspector_count_age", inspector.count(TASK, &old)).await?;
    log.add(server, "inspector_count_filter", inspector.count(TASK, &none)).await?;

    let found = log.add(server, "inspector_job", inspector.job(TASK, &middle, JobValues::Small)).await?;
    ensure!(found.is_some_and(|job| job.state == JobState::Waiting), "the job in the middle does not wait");
    log.add(server, "inspector_events", inspector.events(TASK, None)).await?;
    let busy = id(RUNNING + 200);
    let found = log.add(server, "inspector_job_events", inspector.job_events(TASK, &busy)).await?;
    ensure!(found.len() > 500, "{} events of a job were found", found.len());
    log.add(server, "inspector_stalls", inspector.stalls(TASK, None)).await?;
    log.add(server, "inspector_explain", inspector.explain(TASK, &busy)).await?;
    log.add(server, "inspector_outlook", inspector.recovery_outlook(TASK)).await?;
    let found = log.add(server, "inspector_silent", inspector.silent_jobs(TASK, None)).await?;
    ensure!(!found.jobs.is_empty(), "no job was silent");
    let found = log.add(server, "inspector_late_outcomes", inspector.late_outcomes(TASK, 100)).await?;
    ensure!(found.len() == 10, "{} outcomes were late", found.len());
    Ok(())
}

async fn acts(server: &mut Server, log: &mut Log, inspector: &Inspector, (n, run): (usize, usize)) -> Result<()> {
    let waiting = server.key(TASK, "wait");
    let at = |server: &mut Server, first: usize, count: usize| -> Result<Vec<String>> {
        server.ask(&["LRANGE", &waiting, &first.to_string(), &(first + count - 1).to_string()])
    };
    // The middle of what is left, which earlier runs have not touched.
    let middle = n / 4 + 1_000 * run;
    let jobs = at(server, middle, 2)?;
    let done = log.add(server, "inspector_cancel_one", inspector.cancel(TASK, &*jobs[0], "not needed")).await?;
    ensure!(done.done == 1, "one cancel has taken {} jobs", done.done);
    let done = log.add(server, "inspector_remove_one", inspector.remove(TASK, &*jobs[1])).await?;
    ensure!(done.done == 1, "one removal has taken {} jobs", done.done);

    // Those at the head of the list, whose entries go at once, too.
    let jobs = at(server, 0, BATCH)?;
    let done = log.add(server, "inspector_cancel_200", inspector.cancel(TASK, jobs, "not needed")).await?;
    ensure!(done.done == BATCH as u64, "a cancel has taken {} jobs", done.done);
    let (jobs, reason) = (at(server, 0, BATCH)?, "not \"needed\" / ".repeat(MESSAGE_LIMIT / 15));
    let done = log.add(server, "inspector_cancel_200_4kib", inspector.cancel(TASK, jobs, &reason)).await?;
    ensure!(done.done == BATCH as u64, "a cancel has taken {} jobs", done.done);
    let jobs = ids(RUNNING + run * BATCH, BATCH);
    let done = log.add(server, "inspector_cancel_running_200", inspector.cancel(TASK, jobs, "not needed")).await?;
    ensure!(done.requested == BATCH as u64, "a cancel has asked for {} jobs", done.requested);
    let jobs = at(server, 0, BATCH)?;
    let done = log.add(server, "inspector_remove_200", inspector.remove(TASK, jobs)).await?;
    ensure!(done.done == BATCH as u64, "a removal has taken {} jobs", done.done);

    let large = "x".repeat(1 << 20);
    for first in (FAILED..FAILED + BATCH).step_by(20) {
        let (script, suffixes) = (SEED_FAILED, ["payload", "error", "attempt", "failed"]);
        seed(server, LARGE, script, &suffixes, (first, 20), &[&large, &failure(60), &now_ms().to_string()])?;
    }
    let done = log.add(server, "inspector_remove_200_1mib", inspector.remove(LARGE, ids(FAILED, BATCH))).await?;
    ensure!(done.done == BATCH as u64, "a removal has taken {} jobs", done.done);

    let jobs = ids(FAILED + n / 2 + run * BATCH, BATCH);
    let done = log.add(server, "inspector_retry_200", inspector.retry(TASK, jobs)).await?;
    ensure!(done.done == BATCH as u64, "a retry has taken {} jobs", done.done);
    let jobs = ids(FAILED + run * BATCH, BATCH);
    let done = log.add(server, "inspector_retry_200_4kib", inspector.retry(LONG, jobs)).await?;
    ensure!(done.done == BATCH as u64, "a retry has taken {} jobs", done.done);
    let jobs = ids(DELAYED + run * BATCH, BATCH);
    let done = log.add(server, "inspector_run_now_200", inspector.run_now(TASK, jobs)).await?;
    ensure!(done.done == BATCH as u64, "a promotion has taken {} jobs", done.done);

    let most = (n / 10) as u64;
    log.add(server, "inspector_purge_100k", purge(inspector.purge(TASK, JobState::Waiting), most)).await
}

/// Goes on until so many jobs are removed.
async fn purge(mut act: Act, most: u64) -> heartline::Result<()> {
    while act.report().done < most && act.step().await?.is_some() {}
    Ok(())
}

/// Reads where entries of the list are those of jobs that were removed.
async fn beside_ghosts(server: &mut Server, log: &mut Log, inspector: &Inspector) -> Result<()> {
    let waiting = JobFilter::new(JobState::Waiting);
    let wait = server.key(TASK, "wait");
    let entries: usize = server.ask(&["LLEN", &wait])?;
    let removed: Vec<String> = server.ask(&["LRANGE", &wait, "-2000", "-2000"])?;
    let cursor = format!("2 {}", entries - 2_000);
    let page = inspector.jobs(TASK, &waiting, Some(&cursor), 1_000);
    log.add(server, "inspector_page_ghosts", page).await?;
    log.add(server, "inspector_task_ghosts", inspector.task(TASK)).await?;
    log.add(server, "inspector_job_ghost", inspector.job(TASK, &removed[0], JobValues::None)).await?;
    Ok(())
}

async fn audit(bench: &mut Bench, audited: Audited, names: [&'static str; 4]) -> Result<Vec<Row>> {
    let (n, runs) = (bench.size(1_000_000), bench.few_runs(3));
    let (mut calls, mut wall, mut redis, mut counts, mut memory) =
        (Calls::default(), Vec::new(), Vec::new(), Vec::new(), Vec::new());
    bench.server.clean()?;
    progress(&format!("audit of {n} jobs, {audited:?}: seeding"));
    match audited {
        Audited::Waiting => seed_waiting(&bench.server, TASK, n).await?,
        Audited::Failed => {
            seed_failed(&mut bench.server, TASK, n, (&"x".repeat(64), &failure(60)), first_end())?;
        }
        Audited::Running => seed_running(&mut bench.server, TASK, n)?,
        Audited::Ghosts => {
            seed_waiting(&bench.server, TASK, n).await?;
            let inspector = app(&bench.server).await?.inspector();
            purge(inspector.purge(TASK, JobState::Waiting), (n / 10) as u64).await?;
        }
    }
    let log = Log::new(&mut bench.server)?;
    for run in 1..=runs {
        progress(&format!("audit of {n} jobs, {audited:?}: run {run} of {runs}"));
        // A process of its own, whose memory is that of the audit.
        let mut child = Child::start(bench, &Spec { handler: Handler::Audit, ..Spec::new(TASK, 1) }).await?;
        let before = child.memory("VmRSS")?;
        bench.server.ask::<()>(&["SLOWLOG", "RESET"])?;
        let (used, start) = (bench.server.counted()?, Instant::now());
        child.go().await?;
        counts.push(child.hear_number("audited").await?);
        wall.push(start.elapsed().as_secs_f64());
        redis.push(bench.server.counted()?.since(&used).cpu_us() / 1e6);
        memory.push((child.memory("VmHWM")? - before) / 1_048_576.0);
        calls.add(log.calls(&mut bench.server)?);
        child.finish().await?;
    }
    bench.server.clean()?;
    let note = format!("wall time; {} s of the server's processor", shown(Stat::median_of(redis)));
    Ok(vec![
        calls.row(names[0]),
        Row::new(names[1], wall, "s").note(note),
        Row::new(names[2], counts, "calls"),
        Row::new(names[3], memory, "MiB").note("the most that the process had (VmHWM), beyond what it had connected"),
    ])
}
