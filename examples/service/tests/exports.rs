use exports::{EXPORT, Export};
use heartline::Error;
use heartline::testing::TestApp;

async fn start() -> anyhow::Result<TestApp> {
    let app = TestApp::start_with(|builder| builder.state(exports::Database)).await?;
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
