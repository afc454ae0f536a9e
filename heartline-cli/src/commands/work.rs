//! `work`: processes the jobs of a task with a program, one process per job.
//!
//! The worker starts `heartline _exec`, which asks the kernel to be killed when the worker dies, and then becomes the program. The program
//! leads a process group, so that the processes it starts can be stopped with it.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, IsTerminal, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{ExitCode, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use heartline::{
    Context, JobError, RetryPolicy, StallOptions, StopReason, TaskOptions, WorkerId, WorkerMonitor, WorkerPhase,
};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, getpid, getppid, kill_process, kill_process_group, waitid};
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinHandle;
use tracing_subscriber::EnvFilter;
use uuid::Uuid;

use super::near;
use crate::args::{Global, Work};
use crate::failure::Failure;
use crate::target::Target;
use heartline::inspect::describe::PROGRAM_NOT_STARTED;
use heartline::inspect::text::shown;

/// The exit status that snoozes the job: EX_TEMPFAIL of sysexits.h.
const SNOOZE: i32 = 75;

/// The exit status of `_exec` if it could not become the program. Programs may use it, too.
const NOT_RUN: i32 = 126;

/// If the program cannot be started: how long the job is snoozed, and at most how long it keeps its slot before that.
const NOT_STARTED: Duration = Duration::from_secs(5);

/// The worker ends if no program could be started for this long, this often, and none is running.
const BROKEN: (Duration, u32) = (Duration::from_secs(20), 3);

/// How much of standard error is kept, from its end.
const ERRORS: usize = 4 * 1024;

/// How much of standard output is read. By default a larger result would be refused.
const RESULT: usize = 16 * 1024 * 1024;

/// How long output is still read after the program has ended.
const LINGER: Duration = Duration::from_secs(1);

/// How often a stopping program is checked for its end.
const LOOK: Duration = Duration::from_millis(20);

/// How often a starting worker is checked.
const START: Duration = Duration::from_millis(100);

/// How long a program may take to end after SIGTERM.
const WIND_DOWN: Duration = Duration::from_secs(5);

/// Runs the worker until Ctrl-C or SIGTERM.
pub(super) async fn work(global: &Global, work: Work) -> Result<(), Failure> {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    // A log line that cannot be written is lost without an error.
    let log = tracing_subscriber::fmt().log_internal_errors(false).with_env_filter(filter).with_writer(io::stderr);
    let _ = log.with_ansi(io::stderr().is_terminal()).try_init();
    check_program(&work.exec[0])?;
    let app = Target::of(global)?.connect(global, true).await?;
    let stall = StallOptions::new().interval(work.interval).max_count(work.max_count);
    let mut options = TaskOptions::new()
        .concurrency(work.concurrency)
        .stall(stall)
        .retry(RetryPolicy::new().attempts(work.attempts))
        .shutdown_grace(work.grace)
        .cancel_grace(WIND_DOWN + 2 * LINGER);
    if let Some(timeout) = work.timeout {
        options = options.timeout(timeout);
    }
    let sign = Uuid::new_v4().to_string();
    let hold = work.timeout.map_or(NOT_STARTED, |timeout| NOT_STARTED.min(timeout / 2));
    let (argv, snooze, shim, failures) = (work.exec, work.snooze, own_program()?, Mutex::default());
    let (concurrency, slots) = (work.concurrency, Arc::new(Semaphore::new(work.concurrency)));
    let is_warned = AtomicBool::new(false);
    let program = Arc::new(Program { argv, snooze, shim, sign, hold, failures, concurrency, slots, is_warned });
    let own = Arc::clone(&program);
    app.task(&work.task, options, move |ctx: Context, input: Box<RawValue>| {
        let program = Arc::clone(&program);
        async move { program.run(ctx, input).await }
    })?;
    // A mistyped name would wait for jobs forever. The check is best effort: the task may be new, the list unreadable.
    if let Ok(names) = app.inspector().task_names().await
        && !names.contains(&work.task)
        && let Some(near) = near(&names, &work.task)
    {
        say!("warning: the task {} is new; did you mean {}?", work.task, shown(near));
    }
    let worker = app.worker();
    let notice = tokio::spawn(say_when_started(worker.id().clone(), worker.monitor(), work.task.clone()));
    let ended = worker.run_until_signal().await;
    notice.abort();
    match ended? {
        StopReason::Shutdown => match own.is_broken() {
            Some(why) => Err(Failure::Failed(format!("the program cannot be started: {why}"))),
            None => Ok(()),
        },
        other => Err(Failure::Failed(other.to_string())),
    }
}

/// Says that the worker processes the task, once it does.
async fn say_when_started(id: WorkerId, monitor: WorkerMonitor, task: String) {
    while monitor.health().phase == WorkerPhase::Starting {
        tokio::time::sleep(START).await;
    }
    if monitor.health().phase == WorkerPhase::Working {
        say!("worker {id} processes {task}; Ctrl-C stops it");
    }
}

/// The path to start this program again. `/proc/self/exe` still works if the file is replaced or removed.
fn own_program() -> io::Result<PathBuf> {
    let kept = Path::new("/proc/self/exe");
    if kept.exists() { Ok(kept.to_owned()) } else { std::env::current_exe() }
}

/// Fails if a shell would not find or run the program, so that a typo is reported before jobs fail.
fn check_program(program: &OsStr) -> Result<(), Failure> {
    let path = Path::new(program);
    let places = std::env::var_os("PATH").unwrap_or_default();
    let candidates: Vec<PathBuf> = match path.components().count() {
        0 | 1 => std::env::split_paths(&places).map(|place| place.join(path)).collect(),
        _ => vec![path.to_owned()],
    };
    let files: Vec<fs::Metadata> =
        candidates.iter().filter_map(|path| fs::metadata(path).ok()).filter(fs::Metadata::is_file).collect();
    let program = program.to_string_lossy();
    if files.is_empty() {
        return Err(Failure::wrong(format!("cannot find the program {program}")));
    }
    if files.iter().all(|file| file.permissions().mode() & 0o111 == 0) {
        return Err(Failure::wrong(format!("{program} is not executable; run `chmod +x` on it")));
    }
    Ok(())
}

/// The program, and what it has in common for all jobs.
struct Program {
    argv: Vec<OsString>,
    snooze: Duration,
    shim: PathBuf,
    /// The prefix of standard error if `_exec` could not become the program.
    sign: String,
    /// How long a job keeps its slot if the program could not be started.
    hold: Duration,
    /// The failed starts since the last successful one.
    failures: Mutex<Option<Failures>>,
    concurrency: usize,
    /// One per program that may run. A program keeps its slot until it ends, even if its run is over.
    slots: Arc<Semaphore>,
    /// Whether the user was warned of output that is not JSON.
    is_warned: AtomicBool,
}

/// Consecutive failed starts.
struct Failures {
    since: Instant,
    count: u32,
    why: String,
    /// Whether this process was signalled to stop. A second signal would end the grace.
    is_told: bool,
}

impl Failures {
    fn is_final(&self) -> bool {
        self.since.elapsed() >= BROKEN.0 && self.count >= BROKEN.1
    }
}

impl Program {
    async fn run(&self, ctx: Context, input: Box<RawValue>) -> Result<Box<RawValue>, JobError> {
        let mut command = Command::new(&self.shim);
        command.arg("_exec").arg(std::process::id().to_string()).arg(&self.sign).arg("--").args(&self.argv);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        command.env_remove("HEARTLINE_TOKEN");
        command.env("HEARTLINE_JOB_ID", ctx.id().as_str()).env("HEARTLINE_TASK", ctx.task());
        command.env("HEARTLINE_ATTEMPT", ctx.attempt().to_string());
        command.env("HEARTLINE_MAX_ATTEMPTS", ctx.max_attempts().to_string());
        command.env("HEARTLINE_STALLED_COUNT", ctx.stalled_count().to_string());
        command.env("HEARTLINE_FENCE", ctx.fence().to_string()).env("HEARTLINE_WORKER", ctx.worker_id().as_str());
        match ctx.recovery() {
            Some(recovery) => command.env("HEARTLINE_RECOVERY", recovery.reason.to_string()),
            None => command.env_remove("HEARTLINE_RECOVERY"),
        };
        let Ok(slot) = Arc::clone(&self.slots).try_acquire_owned() else {
            return Err(self.not_started(&ctx, "all slots are occupied by programs that this user may not stop").await);
        };
        let mut running = match command.spawn() {
            Ok(child) => Running::of(&ctx, child, slot),
            Err(e) => return Err(self.not_started(&ctx, &e.to_string()).await),
        };
        let began = Instant::now();
        running.begin(input.get().to_owned());
        tokio::select! {
            // If the program has ended, its outcome counts, even if the job was cancelled meanwhile.
            biased;
            ended = running.end() => {
                let finished = running.finished(ended.map_err(JobError::new)?).await;
                match finished.is_not_run(&self.sign) {
                    Some(why) => {
                        drop(running);
                        Err(self.not_started(&ctx, &why).await)
                    }
                    None => {
                        self.was_started(began);
                        self.outcome(finished)
                    }
                }
            }
            () = ctx.cancelled() => {
                // A program that finished anyway has written a result. Status 0 proves nothing: many programs exit with 0 at SIGTERM.
                if let Some(status) = running.wind_down().await.filter(ExitStatus::success) {
                    let finished = running.finished(status).await;
                    if result_of(&finished.output).is_some() {
                        return self.outcome(finished);
                    }
                }
                ctx.heartbeat()?;
                Err(JobError::new("the program was stopped".to_owned()))
            }
        }
    }

    fn failures(&self) -> MutexGuard<'_, Option<Failures>> {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Why no program can be started, if this process was signalled to stop because of it.
    fn is_broken(&self) -> Option<String> {
        self.failures().as_ref().filter(|failures| failures.is_told).map(|failures| failures.why.clone())
    }

    /// Records a successful start at `then`: earlier failures no longer count.
    fn was_started(&self, then: Instant) {
        let mut failures = self.failures();
        if failures.as_ref().is_some_and(|failures| failures.since < then && !failures.is_told) {
            *failures = None;
        }
    }

    /// Snoozes the job, since it has not begun. The slot is kept for a while, so that this worker does not snooze jobs that other workers
    /// could run. If this continues, the worker ends, and a task without workers is reported.
    async fn not_started(&self, ctx: &Context, why: &str) -> JobError {
        let why = shown(why);
        say!("warning: {} of {} is snoozed: the program cannot be started: {why}", ctx.id(), ctx.task());
        let _ = ctx.progress(PROGRAM_NOT_STARTED, format!("the program cannot be started: {why}"));
        let is_final = {
            let mut failures = self.failures();
            let failures = failures.get_or_insert_with(|| Failures {
                since: Instant::now(),
                count: 0,
                why: String::new(),
                is_told: false,
            });
            (failures.count, failures.why) = (failures.count + 1, why);
            let is_final = failures.is_final() && self.slots.available_permits() == self.concurrency;
            is_final && !std::mem::replace(&mut failures.is_told, true)
        };
        if is_final {
            // The usual way to stop, with the grace.
            let _ = kill_process(getpid(), Signal::TERM);
        }
        tokio::select! {
            () = tokio::time::sleep(self.hold) => {}
            () = ctx.cancelled() => {}
        }
        JobError::snooze(NOT_STARTED)
    }

    /// The result `null`. Warns once if the program wrote something.
    fn no_result(&self, output: &[u8]) -> Box<RawValue> {
        if !output.trim_ascii().is_empty() && !self.is_warned.swap(true, Ordering::Relaxed) {
            say!(
                "warning: standard output is not JSON, so the result is null; this is said only once. Write text to standard error"
            );
        }
        RawValue::NULL.to_owned()
    }

    fn outcome(&self, finished: Finished) -> Result<Box<RawValue>, JobError> {
        match (finished.status.code(), finished.status.signal()) {
            (Some(0), _) if finished.output.len() > RESULT => {
                Err(JobError::new(format!("standard output is larger than {RESULT} bytes"))
                    .with_code("output_too_large")
                    .fatal())
            }
            (Some(0), _) => Ok(result_of(&finished.output).unwrap_or_else(|| self.no_result(&finished.output))),
            (Some(SNOOZE), _) => Err(JobError::snooze(self.snooze)),
            (Some(code), _) => {
                Err(JobError::new(finished.message(&format!("exit status {code}"))).with_code(format!("exit_{code}")))
            }
            (None, signal) => {
                let signal = signal.unwrap_or(0);
                Err(JobError::new(finished.message(&format!("killed by signal {signal}")))
                    .with_code(format!("signal_{signal}")))
            }
        }
    }
}

/// The output, if it is JSON that can be parsed again. A `RawValue` may contain half a surrogate pair, or a number out of range.
fn result_of(output: &[u8]) -> Option<Box<RawValue>> {
    let raw: Box<RawValue> = serde_json::from_slice(output).ok()?;
    serde_json::from_slice::<Value>(output).is_ok().then_some(raw)
}

/// A program and the processes it started. If it is dropped before its end, its run is over and all are killed.
struct Running {
    /// The job, for messages.
    job: String,
    /// `None` if it could not be killed; a tokio task waits for its end then.
    child: Option<(Child, OwnedSemaphorePermit)>,
    /// The process group of the program. `None` once the child was waited for, since its id can be reused.
    group: Option<Pid>,
    output: Captured,
    errors: Captured,
    /// The tokio task that reads both.
    read: Option<JoinHandle<()>>,
}

/// The output read so far.
type Captured = Arc<Mutex<Vec<u8>>>;

fn taken(captured: &Captured) -> Vec<u8> {
    std::mem::take(&mut *captured.lock().unwrap_or_else(PoisonError::into_inner))
}

/// How a program ended.
struct Finished {
    status: ExitStatus,
    output: Vec<u8>,
    errors: Vec<u8>,
}

impl Finished {
    /// Why `_exec` did not become the program, if so.
    fn is_not_run(&self, sign: &str) -> Option<String> {
        let errors = String::from_utf8_lossy(&self.errors);
        let why = errors.strip_prefix(sign).filter(|_| self.status.code() == Some(NOT_RUN))?;
        Some(why.trim().to_owned())
    }

    fn message(&self, how: &str) -> String {
        let errors = String::from_utf8_lossy(&self.errors);
        let errors = errors.trim();
        if errors.is_empty() {
            return how.to_owned();
        }
        // Keep the end, which says why: a message that is too long would lose it.
        let mut from = errors.len().saturating_sub(ERRORS - how.len() - 2);
        while !errors.is_char_boundary(from) {
            from += 1;
        }
        format!("{how}: {}", &errors[from..])
    }
}

impl Running {
    fn of(ctx: &Context, child: Child, slot: OwnedSemaphorePermit) -> Running {
        let pid = child.id().and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
        let job = format!("{} of {}", ctx.id(), ctx.task());
        let child = Some((child, slot));
        Running { job, child, group: pid, output: Captured::default(), errors: Captured::default(), read: None }
    }

    /// Writes the input, and starts to read the output.
    fn begin(&mut self, input: String) {
        let Some((child, ..)) = &mut self.child else { return };
        if let Some(mut stdin) = child.stdin.take() {
            // The program may end without reading all of it.
            tokio::spawn(async move { stdin.write_all(input.as_bytes()).await });
        }
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let (output, errors) = (Arc::clone(&self.output), Arc::clone(&self.errors));
        self.read = Some(tokio::spawn(async move {
            tokio::join!(head_of(stdout, RESULT + 1, &output), tail_of(stderr, ERRORS, &errors));
        }));
    }

    /// Waits for the end. After it the process id can be reused.
    async fn end(&mut self) -> io::Result<ExitStatus> {
        let Some((child, ..)) = &mut self.child else { return Err(io::ErrorKind::NotFound.into()) };
        let status = child.wait().await?;
        self.group = None;
        Ok(status)
    }

    /// The output. A process that the program left running may keep it open, so waiting for its end is bounded.
    async fn finished(&mut self, status: ExitStatus) -> Finished {
        if let Some(read) = self.read.take() {
            let stop = read.abort_handle();
            if tokio::time::timeout(LINGER, read).await.is_err() {
                stop.abort();
            }
        }
        Finished { status, output: taken(&self.output), errors: taken(&self.errors) }
    }

    /// Sends SIGTERM, waits, and kills what is left. Returns the status if the program ended in time.
    async fn wind_down(&mut self) -> Option<ExitStatus> {
        let group = self.group?;
        let _ = kill_process_group(group, Signal::TERM);
        // Do not reap it before its group is killed: until then the id cannot be reused.
        let end = async {
            while !has_ended(group) {
                tokio::time::sleep(LOOK).await;
            }
        };
        let is_in_time = tokio::time::timeout(WIND_DOWN, end).await.is_ok();
        self.kill();
        let (child, ..) = self.child.as_mut()?;
        child.wait().await.ok().filter(|_| is_in_time)
    }

    /// Kills the process group. A program of another user may not be killed: it keeps its slot until it ends.
    fn kill(&mut self) {
        let Some(group) = self.group.take() else { return };
        if kill_process_group(group, Signal::KILL) != Err(Errno::PERM) || has_ended(group) {
            return;
        }
        let (job, pid) = (&self.job, group.as_raw_nonzero());
        say!("warning: this user may not stop the program of {job}, process {pid}; it keeps its slot until it ends");
        if let Some((mut child, slot)) = self.child.take() {
            tokio::spawn(async move {
                let _ = child.wait().await;
                drop(slot);
            });
        }
    }
}

/// Whether a child has ended, without reaping it.
fn has_ended(child: Pid) -> bool {
    let look = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
    !matches!(waitid(WaitId::Pid(child), look), Ok(None))
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(read) = &self.read {
            read.abort();
        }
        self.kill();
    }
}

/// Keeps the first `most` bytes, and reads and drops the rest, so that the program does not block.
async fn head_of(from: Option<impl AsyncRead + Unpin>, most: usize, head: &Captured) {
    let mut buffer = vec![0; 16 * 1024];
    let Some(mut from) = from else { return };
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        let mut head = head.lock().unwrap_or_else(PoisonError::into_inner);
        let room = most.saturating_sub(head.len()).min(count);
        head.extend_from_slice(&buffer[..room]);
    }
}

/// Keeps the last `most` bytes.
async fn tail_of(from: Option<impl AsyncRead + Unpin>, most: usize, tail: &Captured) {
    let mut buffer = vec![0; 4 * 1024];
    let Some(mut from) = from else { return };
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        let mut tail = tail.lock().unwrap_or_else(PoisonError::into_inner);
        tail.extend_from_slice(&buffer[..count]);
        let over = tail.len().saturating_sub(most);
        tail.drain(..over);
    }
}

/// Becomes the program, which is killed when `parent` dies (Linux). Returns only on failure, after it has written the sign and the reason.
pub(crate) fn become_program(parent: i32, sign: &str, argv: &[OsString]) -> ExitCode {
    let why = cannot_become(parent, argv);
    let _ = write!(io::stderr(), "{sign} {why}");
    ExitCode::from(NOT_RUN as u8)
}

fn cannot_become(parent: i32, argv: &[OsString]) -> String {
    #[cfg(target_os = "linux")]
    if let Err(e) = rustix::process::set_parent_process_death_signal(Some(Signal::KILL)) {
        return format!("cannot follow the worker: {e}");
    }
    // The worker may have died before the call above.
    if getppid().map(Pid::as_raw_pid) != Some(parent) {
        return "the worker is gone".to_owned();
    }
    let Some((program, args)) = argv.split_first() else { return "no program is given".to_owned() };
    let e = std::process::Command::new(program).args(args).exec();
    format!("{}: {e}", program.display())
}
