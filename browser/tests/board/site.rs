//! Boards on private servers, and workers in separate processes that can be killed.

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use heartline::testing::TestApp;
use heartline::{App, Context, JobError, JobState, RetryPolicy, StallOptions, TaskOptions, TaskRef};
use heartline_board::{BoardOptions, board};
use tokio::sync::Semaphore;

use crate::browser::until;

/// The argument that starts this program as a worker.
pub const WORKER: &str = "_worker";

const PREFIX: &str = "board";

/// Failed jobs, half with one code and half with the other. They ended within the last hour.
const SEED_FAILED: &str = "
local first, last, now, n = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local payloads, errors, attempts, entries = {}, {}, {}, {}
for i = first, last do
  local id, at = string.format('failed-%07d', i), 2 * (i - first)
  local error = i % 2 == 0 and '{\"code\":\"disk\",\"message\":\"no space left on device ' .. (i % 1000) .. '\"}'
    or '{\"code\":\"net\",\"message\":\"connection reset by peer\"}'
  payloads[at + 1], payloads[at + 2] = id, '\"x\"'
  errors[at + 1], errors[at + 2] = id, error
  attempts[at + 1], attempts[at + 2] = id, '1'
  entries[at + 1], entries[at + 2] = string.format('%.0f', now - 3600000 + math.floor(i * 3600000 / n)), id
end
redis.call('HSET', KEYS[1], unpack(payloads))
redis.call('HSET', KEYS[2], unpack(errors))
redis.call('HSET', KEYS[3], unpack(attempts))
redis.call('ZADD', KEYS[4], unpack(entries))
return 1";

/// Waiting jobs, as a dispatch writes them.
const SEED_WAITING: &str = "
local payloads, ids = {}, {}
for i = tonumber(ARGV[1]), tonumber(ARGV[2]) do
  local id = string.format('waiting-%07d', i)
  payloads[#payloads + 1] = id
  payloads[#payloads + 1] = '\"x\"'
  ids[#ids + 1] = id
end
redis.call('HSET', KEYS[1], unpack(payloads))
redis.call('RPUSH', KEYS[2], unpack(ids))
return 1";

/// A server, a task `export`, and its board. Jobs `hold` until the gate opens, `fail` with the code `disk`, and complete otherwise.
pub struct Site {
    test: TestApp,
    pub app: App,
    pub export: TaskRef<String, u64>,
    pub origin: String,
    gate: Arc<Semaphore>,
}

/// The error message of `fail`.
pub const FAILURE: &str = "no space left on device";

fn declare(app: &App, gate: &Arc<Semaphore>) -> TaskRef<String, u64> {
    let gate = Arc::clone(gate);
    let options = TaskOptions::new()
        .stall(StallOptions::new().interval(Duration::from_secs(1)).recover_running(false))
        .retry(RetryPolicy::new().attempts(1));
    let handler = move |_: Context, input: String| {
        let gate = Arc::clone(&gate);
        async move {
            match input.as_str() {
                "hold" => match gate.acquire().await {
                    Ok(permit) => {
                        permit.forget();
                        Ok(1)
                    }
                    Err(e) => Err(JobError::new(e)),
                },
                "fail" => Err(JobError::new(FAILURE.to_owned()).with_code("disk").fatal()),
                text if text.starts_with('<') || text.starts_with('"') || text.len() > 100 => {
                    Err(JobError::new(text.to_owned()).with_code("odd").fatal())
                }
                _ => Ok(2),
            }
        }
    };
    app.task("export", options, handler).unwrap()
}

/// Serves pages on a free port; returns the address.
pub async fn serve(pages: axum::Router) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, pages).await });
    format!("http://{address}")
}

impl Site {
    pub async fn new() -> Site {
        Site::with(BoardOptions::behind_own_auth()).await
    }

    /// A board with these options.
    pub async fn with(options: BoardOptions) -> Site {
        let test = TestApp::start_with(|app| app.prefix(PREFIX)).await.unwrap();
        let app = test.app().clone();
        let gate = Arc::new(Semaphore::new(0));
        let export = declare(&app, &gate);
        let origin = serve(board(app.inspector(), options)).await;
        Site { test, app, export, origin, gate }
    }

    /// A further board on the same server, without caches.
    pub async fn another(&self, options: BoardOptions) -> String {
        serve(board(self.app.inspector(), options)).await
    }

    pub fn at(&self, path: &str) -> String {
        format!("{}{path}", self.origin)
    }

    /// The address of the page of a job.
    pub fn job(&self, id: &str) -> String {
        self.at(&format!("/job?task=export&id={}", encoded(id)))
    }

    /// Lets this many holding jobs continue.
    pub fn open(&self, jobs: usize) {
        self.gate.add_permits(jobs);
    }

    /// Runs jobs with these ids and inputs to their ends.
    pub async fn run(&self, jobs: &[(&str, &str)]) {
        let worker = self.app.worker().spawn();
        for (id, input) in jobs {
            let _ = self.export.dispatch((*input).to_owned()).id(*id).await.unwrap().result().await;
        }
        let _ = worker.stop().await.unwrap();
    }

    pub async fn state(&self, id: &str) -> JobState {
        self.export.job(id).await.unwrap().state
    }

    /// Whether the job exists.
    pub async fn knows(&self, id: &str) -> bool {
        self.app.inspector().job("export", id, heartline::JobValues::None).await.unwrap().is_some()
    }

    pub async fn until_listed(&self) {
        until("the task is listed", async || {
            self.app.inspector().task_names().await.unwrap().contains(&"export".to_owned())
        })
        .await;
    }

    pub async fn raw(&self) -> redis::aio::MultiplexedConnection {
        redis::Client::open(self.test.url())
            .unwrap()
            .get_multiplexed_async_connection_with_config(&patient())
            .await
            .unwrap()
    }

    /// The name of a key of the task.
    pub fn key(&self, name: &str) -> String {
        format!("{PREFIX}:{{export}}:{name}")
    }

    /// Writes a value into a column of the task.
    pub async fn put(&self, column: &str, id: &str, value: &str) {
        let key = self.key(column);
        let () = redis::cmd("HSET").arg(key).arg(id).arg(value).query_async(&mut self.raw().await).await.unwrap();
    }

    /// Writes a field into the record of a worker.
    pub async fn put_worker(&self, worker: &str, field: &str, value: &str) {
        let key = format!("{PREFIX}:worker:{worker}");
        let () = redis::cmd("HSET").arg(key).arg(field).arg(value).query_async(&mut self.raw().await).await.unwrap();
    }

    /// The number of commands that the server has executed, including those of scripts.
    pub async fn commands(&self) -> u64 {
        let text: String = redis::cmd("INFO").arg("commandstats").query_async(&mut self.raw().await).await.unwrap();
        let calls = text.lines().filter_map(|line| line.split("calls=").nth(1)?.split(',').next()?.parse::<u64>().ok());
        calls.sum()
    }

    /// Creates this many jobs of each state by hand.
    pub async fn seed(&self, waiting: usize, failed: usize) {
        // The first job lists the task.
        let _ = self.export.dispatch("x".into()).delay(Duration::from_secs(3600)).await.unwrap();
        self.until_listed().await;
        let mut conn = self.raw().await;
        let (seconds, _): (u64, u64) = redis::cmd("TIME").query_async(&mut conn).await.unwrap();
        for (script, names, count) in [
            (SEED_WAITING, &["payload", "wait"][..], waiting),
            (SEED_FAILED, &["payload", "error", "attempt", "failed"], failed),
        ] {
            let script = redis::Script::new(script);
            for first in (0..count).step_by(2000) {
                let mut call = script.prepare_invoke();
                for name in names {
                    call.key(self.key(name));
                }
                call.arg(first).arg((first + 2000).min(count) - 1).arg(seconds * 1000).arg(count);
                let _: i64 = call.invoke_async(&mut conn).await.unwrap();
            }
        }
    }

    /// A worker in a process of its own.
    pub fn worker(&self) -> WorkerProcess {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.arg(WORKER).arg(self.test.url()).stdin(Stdio::piped()).stdout(Stdio::null());
        WorkerProcess(command.spawn().unwrap())
    }

    /// The id of the worker with this process, once its record shows this many held jobs.
    pub async fn holder(&self, process: &WorkerProcess, jobs: u64) -> String {
        let mut id = String::new();
        until("the record shows what the worker holds", async || {
            let workers = self.app.inspector().workers().await.unwrap();
            let found = workers.iter().find(|worker| worker.pid == Some(process.0.id()));
            let held = found.map_or(0, |worker| worker.tasks.iter().map(|its| its.held).sum());
            id = found.map_or(String::new(), |worker| worker.worker.to_string());
            held == jobs
        })
        .await;
        id
    }
}

/// A worker that is killed on drop, or earlier.
pub struct WorkerProcess(Child);

impl WorkerProcess {
    /// Sends SIGKILL.
    pub fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for WorkerProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The body of a worker process, until its parent ends.
pub async fn work(url: &str) {
    let app = App::builder().prefix(PREFIX).redis(url).build().await.unwrap();
    declare(&app, &Arc::new(Semaphore::new(0)));
    let worker = app.worker().spawn();
    let _ = tokio::task::spawn_blocking(|| std::io::stdin().lock().read_to_end(&mut Vec::new())).await;
    drop(worker);
}

/// A text encoded for a query.
pub fn encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

/// The connection timeout of tests: the client's half second may be too short on a busy machine.
pub fn patient() -> redis::AsyncConnectionConfig {
    let time = Some(std::time::Duration::from_secs(20));
    redis::AsyncConnectionConfig::new().set_connection_timeout(time).set_response_timeout(time)
}
