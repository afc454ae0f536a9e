use std::time::Duration;

use heartline::{App, AppBuilder, Context, JobError, RetryPolicy, Schedule, TaskDef, TaskOptions};
use serde::{Deserialize, Serialize};

/// What the web process sends and the handler receives.
#[derive(Serialize, Deserialize)]
pub struct Export {
    pub customer: String,
    pub pages: u64,
}

/// Returns the name of a file.
pub const EXPORT: TaskDef<Export, String> = TaskDef::new("export").options(
    TaskOptions::new()
        // How many run at a time in each worker process. Defaults to 10.
        .concurrency(4)
        // Of one run. Defaults to none.
        .timeout(Duration::from_secs(600))
        // Runs in total. Defaults to 1: no retry.
        .retry(RetryPolicy::new().attempts(3)),
);

/// Returns how many files it removed.
pub const CLEAN_UP: TaskDef<(), u64> = TaskDef::new("clean-up");

/// What handlers share. In your service, this is a pool such as `sqlx::PgPool`.
pub struct Database;

impl Database {
    async fn rows(&self, customer: &str, page: u64) -> std::io::Result<Vec<String>> {
        tokio::time::sleep(Duration::from_millis(500)).await;
        Ok(vec![format!("row {page} of {customer}")])
    }
}

async fn export(ctx: Context, input: Export) -> Result<String, JobError> {
    if input.pages == 0 {
        return Err(JobError::new("there is nothing to export").with_code("empty").fatal());
    }
    let (db, mut rows) = (ctx.state::<Database>()?, 0);
    for page in 1..=input.pages {
        // Any error fails this run. Another run follows, up to the number of attempts.
        rows += db.rows(&input.customer, page).await?.len();
        // An error here says that the job was cancelled or lost, so return it.
        ctx.progress(&(100 * page / input.pages), format!("{rows} rows"))?;
    }
    Ok(format!("{}-{}.csv", input.customer, ctx.id()))
}

async fn clean_up(ctx: Context, (): ()) -> Result<u64, JobError> {
    println!("cleaning up, attempt {}", ctx.attempt());
    Ok(0)
}

/// How both processes connect. They must use the same prefix.
pub fn app() -> AppBuilder {
    App::builder().prefix("exports").env()
}

/// Gives the tasks their handlers. Only workers and tests need them.
pub fn register(app: &App) -> heartline::Result<()> {
    app.register(EXPORT.handler(export).needs::<Database>())?;
    let nightly = Schedule::cron("30 2 * * *")?.tz("Europe/Berlin")?;
    app.register(CLEAN_UP.handler(clean_up))?.schedule("nightly", nightly, ())?;
    Ok(())
}
