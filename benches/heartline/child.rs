//! Worker processes: the bench starts itself again and passes the task as an argument. Both sides exchange lines of text.
//! A child exits when its input closes, so that none outlives the bench.

use std::process::Stdio;
use std::sync::Once;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use heartline::{App, Context, EventMode, JobError, StallOptions, StopReason, TaskOptions};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{ChildStdin, ChildStdout, Command};

use crate::Bench;
use crate::dispatch::options;

/// The longest time for a step of a child.
const PATIENCE: Duration = Duration::from_secs(120);

/// What a child does with its jobs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Handler {
    /// Completes them at once.
    #[default]
    NoOp,
    /// Holds them until the child is killed.
    Hold,
}

/// The configuration of a worker process. `--work` takes it as JSON.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Spec {
    pub task: String,
    pub concurrency: usize,
    pub handler: Handler,
    pub interval: Option<Duration>,
    pub events_off: bool,
    /// The address of the server; set by [`Child::start`].
    pub url: String,
    pub prefix: String,
}

impl Spec {
    pub fn new(task: &str, concurrency: usize) -> Spec {
        Spec { task: task.to_owned(), concurrency, ..Spec::default() }
    }

    pub fn options(&self) -> TaskOptions {
        let options = options().concurrency(self.concurrency);
        let options = if self.events_off { options.events(EventMode::Off) } else { options };
        match self.interval {
            Some(interval) => options.stall(StallOptions::new().interval(interval)),
            None => options,
        }
    }
}

/// A child process, killed on drop.
#[derive(Debug)]
pub struct Child {
    process: tokio::process::Child,
    stdin: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Child {
    /// Starts a child, which connects and waits.
    pub async fn start(bench: &Bench, spec: &Spec) -> Result<Child> {
        let (url, prefix) = (bench.server.url.clone(), bench.server.prefix.clone());
        let spec = serde_json::to_string(&Spec { url, prefix, ..spec.clone() })?;
        let mut process = Command::new(std::env::current_exe()?)
            .args(["--work", &spec])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let stdin = process.stdin.take().context("the worker process has no input")?;
        let lines = BufReader::new(process.stdout.take().context("the worker process has no output")?).lines();
        let mut child = Child { process, stdin, lines };
        child.wait_for("ready").await?;
        Ok(child)
    }

    /// Lets it start to work.
    pub async fn go(&mut self) -> Result<()> {
        Ok(self.stdin.write_all(b"go\n").await?)
    }

    /// Waits for this line.
    pub async fn wait_for(&mut self, word: &str) -> Result<()> {
        let line = self.line(word).await?;
        ensure!(line == word, "the worker process wrote {line:?} instead of {word:?}");
        Ok(())
    }

    async fn line(&mut self, word: &str) -> Result<String> {
        let line = tokio::time::timeout(PATIENCE, self.lines.next_line()).await;
        let line = line.with_context(|| format!("the worker process did not write {word:?} in time"))??;
        line.with_context(|| format!("the worker process exited before it wrote {word:?}"))
    }

    pub fn start_kill(&mut self) -> Result<()> {
        Ok(self.process.start_kill()?)
    }

    /// Waits for its exit, after [`start_kill`](Child::start_kill).
    pub async fn wait_for_exit(&mut self) -> Result<()> {
        self.process.wait().await?;
        Ok(())
    }

    /// Shuts it down, and checks that it exits successfully.
    pub async fn finish(mut self) -> Result<()> {
        drop(self.stdin);
        let status = tokio::time::timeout(PATIENCE, self.process.wait()).await;
        let status = status.context("the worker process did not exit in time")??;
        ensure!(status.success(), "the worker process ended with {status}");
        Ok(())
    }
}

/// The child's side.
pub async fn work(spec: &str) -> Result<()> {
    let spec: Spec = serde_json::from_str(spec)?;
    let app = App::builder().redis(&spec.url).prefix(&spec.prefix).build().await?;
    match spec.handler {
        Handler::NoOp => {
            app.task(&spec.task, spec.options(), |_: Context, _: String| async { Ok::<(), JobError>(()) })?;
        }
        Handler::Hold => {
            static REPORTED: Once = Once::new();
            app.task(&spec.task, spec.options(), |_: Context, _: String| async {
                REPORTED.call_once(|| println!("held"));
                std::future::pending::<Result<(), JobError>>().await
            })?;
        }
    }
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    println!("ready");
    if lines.next_line().await?.as_deref() != Some("go") {
        return Ok(());
    }
    let worker = app.worker();
    let ended = async move { while let Ok(Some(_)) = lines.next_line().await {} };
    if spec.handler == Handler::Hold {
        // These jobs never end, so exit without a shutdown.
        tokio::select! {
            stopped = worker.run() => bail!("the worker ended with {:?}", stopped?),
            () = ended => return Ok(()),
        }
    }
    let reason = worker.run_until(ended).await?;
    ensure!(matches!(reason, StopReason::Shutdown), "the worker ended with {reason:?}");
    Ok(())
}
