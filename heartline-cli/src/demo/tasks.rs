//! What the demo works: tasks as people have them, and their workers.

use std::io::Read;
use std::time::Duration;

use heartline::{App, Context, JobError, Priority, RetryPolicy, StallOptions, StopReason, TaskOptions, TaskRef};
use serde_json::{Value, json};

use crate::failure::Failure;

/// The stall interval of the demo: short, so that something is to be seen.
const INTERVAL: Duration = Duration::from_secs(3);

/// How many pages an export has, each about this long.
const PAGES: u64 = 12;
const PAGE: Duration = Duration::from_millis(400);

/// The tasks, with the handlers of a worker.
fn declare(app: &App) -> Result<(), heartline::Error> {
    let stall = || StallOptions::new().interval(INTERVAL).max_count(3);
    let retry = RetryPolicy::new().attempts(3).exponential(Duration::from_secs(2), 2.0);
    let exports = TaskOptions::new().concurrency(4).stall(stall());
    app.task("export", exports, async |ctx: Context, _: Value| {
        // After a crash it goes on behind the last page that was noted.
        let first = ctx.last_checkpoint::<u64>().await?.unwrap_or(0);
        for page in first..PAGES {
            ctx.heartbeat()?;
            tokio::time::sleep(PAGE).await;
            ctx.checkpoint(&(page + 1))?;
            ctx.progress(&(100 * (page + 1) / PAGES), format!("page {} of {PAGES}", page + 1))?;
        }
        Ok::<_, JobError>(json!({ "pages": PAGES }))
    })?;
    app.task(
        "mail",
        TaskOptions::new().concurrency(8).retry(retry).stall(stall()),
        async |ctx: Context, mail: Value| {
            tokio::time::sleep(Duration::from_millis(30)).await;
            match mail["number"].as_u64().unwrap_or_default() {
                number if number % 97 == 0 => {
                    Err(JobError::new("550 no such mailbox".to_owned()).with_code("smtp_550").fatal())
                }
                number if number % 13 == 0 && ctx.attempt() == 1 => {
                    Err(JobError::new("421 try again later".to_owned()).with_code("smtp_421"))
                }
                _ => Ok(Value::Null),
            }
        },
    )?;
    // It takes its process down, each time: the third stall is one too many.
    let poison = TaskOptions::new().concurrency(1).stall(StallOptions::new().interval(INTERVAL).max_count(2));
    app.task("convert", poison, async |_: Context, _: Value| -> Result<Value, JobError> { std::process::abort() })?;
    Ok(())
}

/// Works until its standard input ends: whoever started it holds the other side.
pub(crate) async fn work(app: &App) -> Result<(), Failure> {
    // One that is frozen does not see the end of its input.
    #[cfg(target_os = "linux")]
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))
        .map_err(std::io::Error::from)?;
    declare(app)?;
    let worker = app.worker().spawn();
    let _ = tokio::task::spawn_blocking(|| std::io::stdin().lock().read_to_end(&mut Vec::new())).await;
    match worker.stop().await? {
        StopReason::Shutdown => Ok(()),
        other => Err(Failure::Failed(other.to_string())),
    }
}

/// The same tasks, for the process that dispatches.
pub(super) struct Tasks {
    exports: TaskRef<Value, Value>,
    mails: TaskRef<Value, Value>,
    converts: TaskRef<Value, Value>,
}

impl Tasks {
    pub(super) fn of(app: &App) -> Result<Tasks, heartline::Error> {
        Ok(Tasks { exports: app.task_ref("export")?, mails: app.task_ref("mail")?, converts: app.task_ref("convert")? })
    }

    /// Dispatches what comes in within a round; how many jobs that were.
    pub(super) async fn dispatch(&self, round: u64) -> Result<u64, heartline::Error> {
        let mails = (0..6).map(|at| json!({ "to": format!("user-{at}"), "number": round * 6 + at }));
        let mut dispatched = self.mails.dispatch_many(mails).await?.len() as u64 + 1;
        let priority = if round.is_multiple_of(5) { Priority::High } else { Priority::Normal };
        self.exports.dispatch(json!({ "user": round })).id(format!("export-{round}")).priority(priority).await?;
        if round % 7 == 3 {
            self.mails.dispatch(json!({ "to": "later", "number": 1 })).delay(Duration::from_secs(20)).await?;
            dispatched += 1;
        }
        if round % 60 == 15 {
            self.converts.dispatch(json!({ "video": "broken.mov" })).id(format!("broken-{round}")).await?;
            dispatched += 1;
        }
        Ok(dispatched)
    }
}
