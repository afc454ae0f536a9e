//! Runs the command on a private server.

use std::io::{Read, Write};
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use heartline::testing::{RedisServer, TestApp};
use heartline::{App, Context, JobError, RetryPolicy, RunningWorker, StallOptions, TaskOptions, TaskRef};
use serde_json::Value;
use tokio::sync::Semaphore;

/// The longest wait for anything here.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// A server, and a task `export`. Its jobs `hold` until the gate opens, `fail` with the code `disk`, `again` fails so
/// and retries, `polls` snoozes after a failed run, and others complete.
pub struct Bench {
    test: TestApp,
    pub app: App,
    pub export: TaskRef<String, u64>,
    gate: Arc<Semaphore>,
}

/// The result of a command.
#[derive(Debug)]
pub struct Ran {
    pub status: i32,
    pub out: String,
    pub err: String,
}

impl Ran {
    pub fn of(output: Output) -> Ran {
        Ran {
            status: output.status.code().unwrap_or(-1),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// The standard output of a command that succeeded.
    pub fn ok(self) -> String {
        assert_eq!(self.status, 0, "{self:?}");
        self.out
    }

    /// Its standard output as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }
}

/// The command, without the environment variables that it reads.
pub fn command() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_heartline"));
    for name in ["HEARTLINE_TOKEN", "HEARTLINE_URL", "REDIS_URL", "HEARTLINE_PREFIX", "HEARTLINE_PRODUCTION"] {
        command.env_remove(name);
    }
    command.env("USER", "ada").stdin(Stdio::null());
    command
}

/// Runs a command to its end.
pub async fn ran(mut command: Command) -> Ran {
    tokio::task::spawn_blocking(move || Ran::of(command.output().unwrap())).await.unwrap()
}

/// Runs a command that needs no server.
pub fn alone(args: &[&str]) -> Ran {
    Ran::of(command().args(args).output().unwrap())
}

impl Bench {
    /// A connection of the test's own.
    pub async fn redis(&self) -> redis::aio::MultiplexedConnection {
        let client = redis::Client::open(self.url()).unwrap();
        client.get_multiplexed_async_connection_with_config(&patient()).await.unwrap()
    }

    /// Writes that a worker has declared the options of `export`, which has no hook then.
    pub async fn declared(&self) {
        let mut conn = self.redis().await;
        let mut metas: Vec<String> = redis::cmd("KEYS").arg("cli:{export*}:meta").query_async(&mut conn).await.unwrap();
        metas.push("cli:{export}:meta".to_owned());
        for meta in metas {
            redis::cmd("HSET").arg(meta).arg("declaredAt").arg(1).query_async::<()>(&mut conn).await.unwrap();
        }
    }

    /// With the number of partitions in `HEARTLINE_TEST_PARTITIONS`, if it is set.
    pub async fn new() -> Bench {
        let partitions = std::env::var("HEARTLINE_TEST_PARTITIONS").ok();
        Bench::over(partitions.and_then(|count| count.parse().ok())).await
    }

    /// For a test that reads or changes keys of the task: with one partition.
    pub async fn of_one_table() -> Bench {
        Bench::over(None).await
    }

    async fn over(partitions: Option<u32>) -> Bench {
        crate::turn::with_server();
        let test = TestApp::start_with(|app| app.prefix("cli")).await.unwrap();
        let app = test.app().clone();
        let gate = Arc::new(Semaphore::new(0));
        let export = declare(&app, &gate, partitions);
        Bench { test, app, export, gate }
    }

    pub fn url(&self) -> String {
        self.test.url()
    }

    /// Lets holding jobs continue.
    pub fn open(&self) {
        self.gate.add_permits(1000);
    }

    pub fn worker(&self) -> RunningWorker {
        self.app.worker().spawn()
    }

    /// Runs a command to its end.
    pub async fn run(&self, args: &[&str]) -> Ran {
        self.run_with(args, "").await
    }

    /// The same with a clock that is off by this.
    #[cfg(target_os = "linux")]
    pub async fn run_at(&self, ahead: &str, args: &[&str]) -> Ran {
        let triples = [format!("{}-linux-gnu", std::env::consts::ARCH), String::new()];
        let mut places = ["/usr/lib", "/usr/lib64", "/usr/local/lib"].into_iter().flat_map(|place| {
            let of = |triple: &String| std::path::Path::new(place).join(triple).join("faketime/libfaketime.so.1");
            triples.iter().map(of).collect::<Vec<_>>()
        });
        let library = places.find(|path| path.exists()).expect("libfaketime: `apt-get install libfaketime`");
        let mut command = self.command(args);
        command.env("LD_PRELOAD", library).env("FAKETIME", ahead).env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
        tokio::task::spawn_blocking(move || Ran::of(command.output().unwrap())).await.unwrap()
    }

    /// The same with this standard input.
    pub async fn run_with(&self, args: &[&str], input: &str) -> Ran {
        let mut command = self.command(args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let input = input.to_owned();
        tokio::task::spawn_blocking(move || {
            let mut child = command.spawn().unwrap();
            child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
            Ran::of(child.wait_with_output().unwrap())
        })
        .await
        .unwrap()
    }

    /// A command that connects to the server.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = command();
        command.env("HEARTLINE_URL", self.url()).env("HEARTLINE_PREFIX", "cli").args(args);
        command
    }

    /// The server process.
    pub fn server(&mut self) -> &mut RedisServer {
        self.test.server()
    }

    /// A command on a terminal, where it can ask for confirmation.
    pub fn on_terminal(&self, args: &str) -> Terminal {
        let mut command = Command::new("script");
        command.args(["-qfec", &format!("{} {args}", env!("CARGO_BIN_EXE_heartline")), "/dev/null"]);
        command.env("HEARTLINE_URL", self.url()).env("HEARTLINE_PREFIX", "cli").env_remove("HEARTLINE_PRODUCTION");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (shown, mut from) = (Arc::new(Mutex::new(Vec::new())), child.stdout.take().unwrap());
        let told = Arc::clone(&shown);
        std::thread::spawn(move || {
            let mut some = [0; 4096];
            while let Ok(count @ 1..) = from.read(&mut some) {
                told.lock().unwrap().extend_from_slice(&some[..count]);
            }
        });
        Terminal { child, shown }
    }

    /// A command that keeps running, with its output piped.
    pub fn start(&self, args: &[&str]) -> std::process::Child {
        self.command(args).stdout(Stdio::piped()).spawn().unwrap()
    }
}

/// A command on a terminal, and its output.
pub struct Terminal {
    child: std::process::Child,
    shown: Arc<Mutex<Vec<u8>>>,
}

impl Terminal {
    pub fn shown(&self) -> String {
        String::from_utf8_lossy(&self.shown.lock().unwrap()).into_owned()
    }

    pub async fn until(&self, text: &str) {
        until(&format!("{text} stands on the terminal"), async || self.shown().contains(text)).await;
    }

    pub fn say(&mut self, text: &str) {
        self.child.stdin.as_mut().unwrap().write_all(text.as_bytes()).unwrap();
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill().and_then(|()| self.child.wait());
    }
}

fn declare(app: &App, gate: &Arc<Semaphore>, partitions: Option<u32>) -> TaskRef<String, u64> {
    let gate = Arc::clone(gate);
    let mut options = TaskOptions::new()
        .stall(StallOptions::new().interval(Duration::from_secs(1)).recover_running(false))
        .retry(RetryPolicy::new().attempts(1));
    if let Some(count) = partitions {
        options = options.partitions(count);
    }
    let handler = move |ctx: Context, input: String| {
        let gate = Arc::clone(&gate);
        async move {
            match input.as_str() {
                "hold" => gate.acquire().await.map(|_| 1).map_err(JobError::new),
                "fail" => Err(JobError::new("no space \u{1b}[31m left".to_owned()).with_code("disk").fatal()),
                "again" => Err(JobError::new("no space left").with_code("disk")),
                "polls" if ctx.attempt() == 1 => Err(JobError::new("a hiccup")),
                "polls" => Err(JobError::snooze(Duration::from_secs(3600))),
                _ => Ok(2),
            }
        }
    };
    app.task("export", options, handler).unwrap()
}

/// Waits until the condition is true.
pub async fn until(what: &str, mut so: impl AsyncFnMut() -> bool) {
    let begun = Instant::now();
    while !so().await {
        assert!(begun.elapsed() < PATIENCE, "timed out waiting until {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The connection timeout of tests: the client's half second may be too short on a busy machine.
pub fn patient() -> redis::AsyncConnectionConfig {
    let time = Some(std::time::Duration::from_secs(20));
    redis::AsyncConnectionConfig::new().set_connection_timeout(time).set_response_timeout(time)
}
