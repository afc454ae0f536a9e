use std::time::Duration;

use exports::{EXPORT, Export};
use heartline::testing::TestApp;
use heartline::{Error, JobState};

async fn start() -> anyhow::Result<TestApp> {
    // The settings of both processes, on a Redis of its own.
    let app = TestApp::start_with(|_| exports::app().state(exports::Database)).await?;
    exports::register(&app)?;
    Ok(app)
}

#[tokio::test]
async fn an_export_returns_the_name_of_its_file() -> anyhow::Result<()> {
    let app = start().await?;
    let job = EXPORT.dispatch(&app, Export { customer: "acme".to_owned(), pages: 2 }).await?;
    // Works until nothing waits. Delayed jobs and retries run at once.
    app.worker().drain().await?;
    assert_eq!(job.result().await?, format!("acme-{}.csv", job.id()));
    Ok(())
}

#[tokio::test]
async fn an_empty_export_fails_at_once() -> anyhow::Result<()> {
    let app = start().await?;
    let job = EXPORT.dispatch(&app, Export { customer: "acme".to_owned(), pages: 0 }).await?;
    app.worker().drain().await?;
    let Err(Error::JobFailed(failure)) = job.result().await else { panic!("it did not fail") };
    assert_eq!((failure.code.as_str(), failure.failed_attempts), ("empty", 1));
    Ok(())
}

#[tokio::test]
async fn an_export_survives_the_death_of_its_worker() -> anyhow::Result<()> {
    let app = start().await?;
    let job = EXPORT.dispatch(&app, Export { customer: "acme".to_owned(), pages: 2 }).await?;
    // The program of the worker, in a process of its own, with the Redis of this test.
    let mut worker = app.command(env!("CARGO_BIN_EXE_worker")).spawn()?;
    while job.state().await? != JobState::Running {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    worker.kill().await?; // SIGKILL
    let _next = app.command(env!("CARGO_BIN_EXE_worker")).spawn()?;
    assert_eq!(job.result().await?, format!("acme-{}.csv", job.id()));
    Ok(())
}
