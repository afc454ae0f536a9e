//! What a handler says about its job passes through every error type that a handler may return.

use std::error::Error as StdError;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use heartline::{App, Context, Error, Failure, JobError, RetryPolicy, TaskRef, codes};

use crate::integration::fixtures::shared;
use crate::support::task::fast;
use crate::support::worker::TestWorker;

type Boxed = Box<dyn StdError + Send + Sync>;
type Handled<E> = Result<(), E>;

fn gone() -> JobError {
    JobError::new("the file is gone").with_code("gone").fatal()
}

fn any() -> anyhow::Result<()> {
    Err(gone())?
}

fn boxed() -> Result<(), Boxed> {
    Err(gone().boxed())?
}

/// The failure of another job.
fn failed(code: &str) -> Result<(), Failure> {
    let json = format!(r#"{{"id":"a","code":"{code}","message":"no","failed_attempts":1,"stalled_count":0}}"#);
    Err(serde_json::from_str(&json).unwrap())
}

#[derive(Debug, thiserror::Error)]
#[error("the export failed")]
struct Export(#[source] Boxed);

/// A task with three attempts whose handler fails in this way.
fn task<E: Into<JobError> + 'static>(app: &App, name: &str, fails: fn() -> Handled<E>) -> TaskRef<(), ()> {
    let options = fast().retry(RetryPolicy::new().attempts(3).fixed(Duration::from_millis(1)));
    app.task(name, options, move |_: Context, ()| async move { fails() }).unwrap()
}

async fn how_it_failed(task: &TaskRef<(), ()>) -> Failure {
    let Error::JobFailed(failure) = task.dispatch(()).await.unwrap().result().await.unwrap_err() else { panic!() };
    failure
}

#[tokio::test]
async fn a_code_and_fatal_pass_through_every_error_type() {
    let (_test, app) = shared().await;
    let tasks = [
        task::<anyhow::Error>(&app, "anyhow", || Err(gone())?),
        task::<anyhow::Error>(&app, "bail", || bail!(gone())),
        task::<anyhow::Error>(&app, "context", || any().context("while exporting").context("at night")),
        task::<anyhow::Error>(&app, "attached", || Err(anyhow!("no such file")).context(gone())),
        task::<anyhow::Error>(&app, "anyhow-boxed", || boxed().map_err(|e| anyhow!(e))),
        task::<anyhow::Error>(&app, "anyhow-own", || Ok(boxed().map_err(Export)?)),
        task::<Boxed>(&app, "boxed", || Err(gone().boxed())),
        task::<Boxed>(&app, "boxed-anyhow", || Ok(any()?)),
        task::<Boxed>(&app, "boxed-context", || Ok(any().context("while exporting")?)),
        task::<Boxed>(&app, "boxed-own", || Ok(boxed().map_err(Export)?)),
        task::<JobError>(&app, "anyhow-here", || Ok(any()?)),
        task::<JobError>(&app, "boxed-here", || Ok(boxed()?)),
        task::<JobError>(&app, "context-here", || Ok(any().context("while exporting")?)),
        task::<JobError>(&app, "new", || Err(JobError::new(any().unwrap_err()))),
        task::<Export>(&app, "own", || boxed().map_err(Export)),
    ];
    let worker = TestWorker::start(app.worker());
    for task in tasks {
        let failure = how_it_failed(&task).await;
        assert_eq!((&*failure.code, failure.failed_attempts), ("gone", 1), "{}: {failure}", task.name());
        assert_eq!(failure.message.matches("the file is gone").count(), 1, "{}: {failure}", task.name());
    }
    worker.stop().await;
}

#[tokio::test]
async fn a_code_passes_out_of_a_blocking_thread() {
    let (_test, app) = shared().await;
    let blocking = || tokio::task::spawn_blocking(|| Err::<(), _>(gone()));
    let tasks = [
        app.task("own", fast(), move |_: Context, ()| async move {
            blocking().await??;
            Ok::<(), JobError>(())
        })
        .unwrap(),
        app.task("any", fast(), move |_: Context, ()| async move { Ok::<(), anyhow::Error>(blocking().await??) })
            .unwrap(),
        app.task("boxed", fast(), move |_: Context, ()| async move {
            blocking().await?.map_err(JobError::boxed)?;
            Ok::<(), Boxed>(())
        })
        .unwrap(),
    ];
    let worker = TestWorker::start(app.worker());
    for task in tasks {
        assert_eq!(how_it_failed(&task).await.code, "gone", "{}", task.name());
    }
    worker.stop().await;
}

#[tokio::test]
async fn a_failure_keeps_its_own_code() {
    let (_test, app) = shared().await;
    let tasks = [
        (task::<JobError>(&app, "failure", || Ok(failed("no_money")?)), "no_money"),
        (task::<anyhow::Error>(&app, "anyhow", || Ok(failed("no_money")?)), "no_money"),
        (task::<anyhow::Error>(&app, "context", || failed("no_money").context("in a part")), "no_money"),
        (task::<Boxed>(&app, "boxed", || Ok(failed("no_money")?)), "no_money"),
        (task::<Failure>(&app, "itself", || failed("no_money")), "no_money"),
        // This job did not time out.
        (task::<JobError>(&app, "ours", || Ok(failed("timeout")?)), codes::HANDLER_ERROR),
    ];
    let worker = TestWorker::start(app.worker());
    for (task, code) in tasks {
        let failure = how_it_failed(&task).await;
        // It is not fatal.
        assert_eq!((&*failure.code, failure.failed_attempts), (code, 3), "{}", task.name());
        assert!(failure.message.contains("job a failed"), "{failure}");
    }
    worker.stop().await;
}

#[tokio::test]
async fn a_snooze_passes_through_every_error_type() {
    fn later() -> JobError {
        JobError::snooze(Duration::from_millis(1))
    }
    /// A handler that snoozes its job once.
    fn once<E: Into<JobError> + 'static>(app: &App, name: &str, says: fn() -> E) -> TaskRef<(), u32> {
        let handler = move |ctx: Context, ()| async move {
            if ctx.snoozed_count() == 0 { Err(says()) } else { Ok(ctx.snoozed_count()) }
        };
        app.task(name, fast(), handler).unwrap()
    }
    let (_test, app) = shared().await;
    let tasks = [
        once::<anyhow::Error>(&app, "anyhow", || later().into()),
        once::<anyhow::Error>(&app, "bail", || anyhow!(later())),
        once::<anyhow::Error>(&app, "context", || anyhow::Error::from(later()).context("the quota is used up")),
        once::<Boxed>(&app, "boxed", || later().boxed()),
        once::<Boxed>(&app, "boxed-anyhow", || anyhow::Error::from(later()).into()),
    ];
    let worker = TestWorker::start(app.worker());
    for task in tasks {
        let job = task.dispatch(()).await.unwrap();
        assert_eq!(job.result().await.unwrap(), 1, "{}", task.name());
    }
    worker.stop().await;
}
