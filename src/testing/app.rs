//! An app with a server of its own.

use std::ops::Deref;
#[cfg(feature = "schedules")]
use std::time::SystemTime;

use crate::app::App;
use crate::app::builder::AppBuilder;
use crate::error::Error;
use crate::private_server::{RedisServer, StartError};
#[cfg(feature = "schedules")]
use crate::task::handle::JobHandle;
#[cfg(feature = "schedules")]
use crate::task::task_ref::TaskRef;

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

    /// Like [`start`](TestApp::start), with settings of your own: data, defaults, a prefix.
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

    /// Dispatches the job of one tick of a schedule that the task declares in this app: with its input, its id, and the tick at `at` in
    /// its [`Context::tick`](crate::Context::tick). No tick is counted.
    ///
    /// # Errors
    /// [`Error::Config`] if the task has no such schedule, and those of a dispatch.
    #[cfg(feature = "schedules")]
    pub async fn fire<I, O>(&self, task: &TaskRef<I, O>, name: &str, at: SystemTime) -> Result<JobHandle<O>, Error> {
        task.fire(name, at).await
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
