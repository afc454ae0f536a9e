//! The demo's tasks, the same for the parent and for its workers.

use std::time::Duration;

use anyhow::Result;
use heartline::{App, Context, JobError, StallOptions, TaskOptions, TaskRef};
use serde::{Deserialize, Serialize};

use crate::{files, flows};

/// What was counted in one file, or in many.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counted {
    pub files: u64,
    pub bytes: u64,
    pub lines: u64,
    pub words: u64,
    /// The first eight bytes of each SHA-256, added up.
    pub digests: u64,
}

impl Counted {
    pub fn add(&mut self, other: &Counted) {
        self.files += other.files;
        self.bytes += other.bytes;
        self.lines += other.lines;
        self.words += other.words;
        self.digests = self.digests.wrapping_add(other.digests);
    }
}

type Tasks = (TaskRef<String, Counted>, TaskRef<(), ()>, TaskRef<(), ()>);

/// Declares the tasks. The innocent may be stalled with their neighbours more often than the poison job itself.
pub fn declare(app: &App) -> Result<Tasks> {
    let stall = StallOptions::new().interval(Duration::from_secs(1)).max_count(10);
    let options = TaskOptions::new()
        .concurrency(16)
        .shutdown_grace(Duration::from_secs(2))
        .cancel_grace(Duration::from_millis(500))
        .stall(stall);
    let index = app.task("index", options.clone(), index)?;
    let poison = app.task("poison", options.clone(), |_: Context, (): ()| async {
        // Takes the whole process down, as a segmentation fault or the OOM killer would.
        std::process::abort();
        #[allow(unreachable_code)]
        Ok::<(), JobError>(())
    })?;
    let patient = app.task("patient", options, |ctx: Context, (): ()| async move {
        loop {
            ctx.heartbeat()?;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        #[allow(unreachable_code)]
        Ok::<(), JobError>(())
    })?;
    Ok((index, poison, patient))
}

/// Reads one file and counts it. The pauses stand for slow input, so that a kill always hits running jobs.
async fn index(ctx: Context, path: String) -> Result<Counted, JobError> {
    let content = tokio::fs::read(&path).await?;
    for _ in 0..5 {
        ctx.heartbeat()?;
        tokio::time::sleep(Duration::from_millis(40)).await;
    }
    Ok(files::count(&content))
}

/// Works until standard input ends: when the parent closes it, or is gone.
pub async fn work(url: &str, prefix: &str) -> Result<()> {
    // Behind the prefix it says whether it is the demo of workflows.
    let (prefix, of_workflows) = prefix.split_once(' ').map_or((prefix, false), |(prefix, _)| (prefix, true));
    let app = App::builder().redis(url).prefix(prefix).build().await?;
    if of_workflows {
        flows::declare(&app, prefix)?;
    } else {
        declare(&app)?;
    }
    let parent_is_gone = async {
        let _ = tokio::task::spawn_blocking(|| std::io::copy(&mut std::io::stdin(), &mut std::io::sink())).await;
    };
    let reason = app.worker().run_until(parent_is_gone).await?;
    anyhow::ensure!(reason == heartline::StopReason::Shutdown, "the worker left jobs behind: {reason}");
    Ok(())
}
