//! The running jobs of all tasks that were held longest.

use std::collections::BTreeMap;

use futures_util::future::join_all;
use heartline::inspect::text::chain;
use heartline::{Error, Inspector, JobFilter, JobRow, JobState};

/// The most jobs on the page.
pub(crate) const LISTED: usize = 100;

/// The most jobs that are read of one task, and of all.
const READ: usize = 500;
const READ_OF_ALL: usize = 4_000;

/// The most jobs that one call reads.
const A_CALL: usize = 200;

/// How many tasks are read at a time.
const TOGETHER: usize = 10;

/// What was read of the running jobs.
#[derive(Debug, Default)]
pub(crate) struct Running {
    /// Jobs with the names of their tasks, those held longest first.
    pub(crate) rows: Vec<(String, JobRow)>,
    /// The tasks of which not all running jobs were read.
    pub(crate) cut: Vec<String>,
    /// The tasks that could not be read, and why.
    pub(crate) faults: Vec<String>,
}

impl Running {
    /// Reads the running jobs of these tasks. An unreadable task does not hide the others.
    pub(crate) async fn look(inspector: &Inspector, names: &[String]) -> Running {
        let (mut found, mut read) = (Running::default(), 0);
        for some in names.chunks(TOGETHER) {
            if read >= READ_OF_ALL {
                found.cut.extend(some.iter().cloned());
                continue;
            }
            let pages = join_all(some.iter().map(|task| of_task(inspector, task))).await;
            for (task, page) in some.iter().zip(pages) {
                match page {
                    Ok((jobs, is_whole)) => {
                        read += jobs.len();
                        found.rows.extend(jobs.into_values().map(|job| (task.clone(), job)));
                        found.cut.extend((!is_whole).then(|| task.clone()));
                    }
                    Err(e) => found.faults.push(format!("{task} ({})", chain(&e))),
                }
            }
        }
        found.rows.sort_by(|(_, one), (_, other)| (one.since, &one.id).cmp(&(other.since, &other.id)));
        found.rows.truncate(LISTED);
        found
    }
}

/// The running jobs of a task by their ids, and whether these are all. A page may repeat jobs.
async fn of_task(inspector: &Inspector, task: &str) -> Result<(BTreeMap<String, JobRow>, bool), Error> {
    let (filter, mut jobs, mut cursor, mut read) = (JobFilter::new(JobState::Running), BTreeMap::new(), None, 0);
    loop {
        let page = inspector.jobs(task, &filter, cursor.as_deref(), A_CALL).await?;
        read += page.looked.max(1);
        jobs.extend(page.jobs.into_iter().map(|job| (job.id.to_string(), job)));
        match page.next {
            None => return Ok((jobs, true)),
            Some(_) if read >= READ => return Ok((jobs, false)),
            next => cursor = next,
        }
    }
}
