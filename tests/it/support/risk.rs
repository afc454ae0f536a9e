//! A job that is at risk while its server is away, as its handler sees it.

use std::sync::Arc;
use std::time::Duration;

use heartline::{App, Context, JobError, StallOptions, TaskOptions, TaskRef};

use super::journal::Journal;
use super::worker::TestWorker;
use super::{PATIENCE, eventually};

/// What the handler records.
const AT_RISK: &str = "at risk";
const SAFE: &str = "safe again";

/// How often the handler checks whether it is safe again.
const LOOK: Duration = Duration::from_millis(20);

/// A job that runs until the test ends it.
pub struct Risk {
    journal: Arc<Journal>,
    task: TaskRef<u64, u64>,
    worker: TestWorker,
}

impl Risk {
    /// Starts the job, and waits until several heartbeats were answered.
    pub async fn start(url: &str, task: &str) -> Risk {
        let interval = Duration::from_secs(2);
        let journal = Arc::new(Journal::default());
        let app = App::builder().redis(url).build().await.unwrap();
        let noted = Arc::clone(&journal);
        let handler = move |ctx: Context, input: u64| {
            let journal = Arc::clone(&noted);
            async move {
                journal.begin(&ctx);
                tokio::select! {
                    () = ctx.lock_at_risk() => journal.note(AT_RISK),
                    () = journal.opened("end") => return Err(JobError::new("it was never at risk").fatal()),
                }
                while ctx.is_at_risk() {
                    tokio::time::sleep(LOOK).await;
                }
                journal.note(SAFE);
                journal.opened("end").await;
                ctx.heartbeat()?;
                Ok::<_, JobError>(input + 1)
            }
        };
        let options = TaskOptions::new().stall(StallOptions::new().interval(interval).max_count(9));
        let task = app.task(task, options, handler).unwrap();
        let worker = TestWorker::start(app.worker());
        task.dispatch(1).id("held").await.unwrap();
        eventually("it runs", PATIENCE, async || !journal.runs_of("held").is_empty()).await;
        tokio::time::sleep(interval).await;
        assert!(journal.interruptions().is_empty(), "it is answered all the while");
        Risk { journal, task, worker }
    }

    /// Waits until the handler sees that its job may soon be taken.
    pub async fn is_there(&self) {
        eventually("the job is at risk", PATIENCE, async || self.journal.interruptions() == [AT_RISK]).await;
    }

    /// Waits until that is over, and the job has ended after its only run.
    pub async fn goes_away(self) {
        let is_over = async || self.journal.interruptions() == [AT_RISK, SAFE];
        eventually("the job is not at risk any more", PATIENCE, is_over).await;
        self.journal.open("end");
        let value = self.task.handle("held").unwrap().result_within(PATIENCE).await.unwrap();
        let job = self.task.job("held").await.unwrap();
        assert_eq!((value, self.journal.runs_of("held").len(), job.stalled_count), (2, 1, 0), "{job:?}");
        self.worker.stop().await;
    }
}
