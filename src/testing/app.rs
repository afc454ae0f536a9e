//! An app with a server of its own.

use std::ffi::OsStr;
use std::ops::Deref;
#[cfg(feature = "schedules")]
use std::time::SystemTime;

use tokio::process::Command;

use crate::app::App;
use crate::app::builder::{AppBuilder, PREFIX, URL};
use crate::error::Error;
use crate::private_server::{RedisServer, StartError};
#[cfg(feature = "schedules")]
use crate::task::handle::JobHandle;
#[cfg(feature = "schedules")]
use crate::workflow::graph::NodeTask;

/// An [`App`] on a private [`RedisServer`], for a test. Dropping it ends the server.
///
/// It needs a Unix-like system, and `redis-server` or `valkey-server` on the `PATH` or the program in `HEARTLINE_REDIS_SERVER`.
///
/// ```no_run
/// use heartline::testing::TestApp;
/// use heartline::{Context, JobError, TaskOptions};
///
/// # #[tokio::main]
/// # async fn main() -> anyhow::Result<()> {
/// let app = TestApp::start().await?;
/// let greet = app.task("greet", TaskOptions::new(), |_ctx: Context, name: String| async move {
///     Ok::<_, JobError>(format!("hello, {name}"))
/// })?;
/// let job = greet.dispatch("world".to_owned()).await?;
/// let drained = app.worker().drain().await?;
/// assert_eq!((drained.completed, job.result().await?.as_str()), (1, "hello, world"));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct TestApp {
    app: App,
    server: RedisServer,
}

/// Why a [`TestApp`] could not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TestAppError {
    /// The server could not be started.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The app could not be built.
    #[error(transparent)]
    Build(#[from] Error),
}

impl TestApp {
    /// Starts a server and builds an app with default options on it.
    ///
    /// # Errors
    /// [`TestAppError`].
    pub async fn start() -> Result<TestApp, TestAppError> {
        TestApp::start_with(|builder| builder).await
    }

    /// Like [`start`](TestApp::start), with settings of your own: data, layers, a prefix. The closure may return the builder of your own
    /// App; only its address is replaced.
    ///
    /// # Errors
    /// [`TestAppError`].
    pub async fn start_with(set: impl FnOnce(AppBuilder) -> AppBuilder) -> Result<TestApp, TestAppError> {
        let server = RedisServer::start()?;
        let app = set(App::builder()).redis(server.url()).build().await?;
        Ok(TestApp { app, server })
    }

    /// The app, which can be cloned.
    #[must_use]
    pub fn app(&self) -> &App {
        &self.app
    }

    /// The URL of its server, to build another app on it.
    #[must_use]
    pub fn url(&self) -> String {
        self.server.url()
    }

    /// A command for a program of your own, such as a worker that the test kills. The program finds the URL and the prefix of this app in its
    /// environment, where [`AppBuilder::env`] reads them. If the test drops the [`Child`](tokio::process::Child), the process is killed.
    ///
    /// ```no_run
    /// # use heartline::testing::TestApp;
    /// # async fn test(app: TestApp, program: &str) -> std::io::Result<()> {
    /// // In a test of your crate: `let program = env!("CARGO_BIN_EXE_worker");`
    /// let mut worker = app.command(program).spawn()?;
    /// worker.kill().await // SIGKILL: a crash
    /// # }
    /// ```
    #[must_use]
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command.env(URL, self.url()).env(PREFIX, self.app.prefix()).kill_on_drop(true);
        command
    }

    /// Dispatches the job of one tick of a schedule that the task declares in this app: with its input, its id, and the tick at `at` in
    /// its [`Context::tick`](crate::Context::tick), without a previous one. No tick is counted.
    ///
    /// # Errors
    /// [`Error::Config`] if the task has no such schedule, and those of a dispatch.
    #[cfg(feature = "schedules")]
    pub async fn fire<I, O>(
        &self,
        task: &impl NodeTask<I, O>,
        name: &str,
        at: SystemTime,
    ) -> Result<JobHandle<O>, Error> {
        self.app.task_ref::<I, O>(task.task_name())?.fire(name, at).await
    }

    /// The server.
    pub fn server(&mut self) -> &mut RedisServer {
        &mut self.server
    }
}

impl Deref for TestApp {
    type Target = App;

    fn deref(&self) -> &App {
        &self.app
    }
}
