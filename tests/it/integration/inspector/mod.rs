//! The Inspector: what it reports, what it does to jobs next to live workers, and what it never does.

mod acts;
mod audit;
mod copies;
#[cfg(feature = "schedules")]
mod find;
mod health;
mod holders;
mod large_numbers;
mod partitions;
mod pause;
mod races;
mod reads;
#[cfg(feature = "schedules")]
mod schedules;
mod series;
mod silent;

use std::collections::BTreeMap;
use std::time::Duration;

use heartline::{
    App, Context, Error, Event, Finding, Inconsistency, Inspector, JobError, JobFilter, JobPage, JobRow, JobState,
    TaskEvent, TaskOptions, TaskRef,
};

use crate::support::task::{TASK, TestTask};
use crate::support::{PATIENCE, eventually};

/// A task whose jobs do what their input says: `fail <code> <message>` ends as failed, `again <ms>` fails a run with a
/// retry, `wait <gate>` works until its gate opens, and anything else completes.
fn obedient(test: &TestTask, app: &App, options: TaskOptions) -> TaskRef<String, u64> {
    let journal = test.journal.clone();
    let handler = move |ctx: Context, input: String| {
        let journal = journal.clone();
        async move {
            let words: Vec<&str> = input.splitn(3, ' ').collect();
            match words[..] {
                ["fail", code, message] => {
                    journal.begin(&ctx);
                    Err(JobError::new(message.to_owned()).with_code(code).fatal())
                }
                ["again", ms] => {
                    journal.begin(&ctx);
                    let pause = Duration::from_millis(ms.parse().unwrap());
                    Err(JobError::new("once more".to_owned()).retry_after(pause))
                }
                ["wait", gate] => journal.work(ctx, gate.to_owned()).await,
                _ => {
                    journal.begin(&ctx);
                    Ok(ctx.fence())
                }
            }
        }
    };
    app.task(TASK, options, handler).unwrap()
}

/// An App without a worker, and its Inspector.
async fn inspector(test: &TestTask) -> (App, Inspector) {
    let app = test.app().await;
    let inspector = app.inspector();
    (app, inspector)
}

/// The same with a task.
async fn observed() -> (TestTask, App, Inspector) {
    let test = TestTask::new();
    let (app, inspector) = inspector(&test).await;
    (test, app, inspector)
}

/// Waits until the task has this many jobs in this state.
async fn counted(inspector: &Inspector, state: JobState, jobs: u64) {
    let what = format!("{jobs} jobs are {state}");
    eventually(&what, PATIENCE, async || inspector.task(TASK).await.unwrap().counts.count(state) == jobs).await;
}

/// Waits until the server clock shows another millisecond, so that later events have a later time.
async fn a_millisecond_passes(inspector: &Inspector) {
    let now = inspector.task(TASK).await.unwrap().as_of;
    eventually("the clock advances", PATIENCE, async || inspector.task(TASK).await.unwrap().as_of > now).await;
}

/// Every page of a filter, each with up to `limit` jobs.
async fn pages(inspector: &Inspector, filter: &JobFilter, limit: usize) -> Vec<JobPage> {
    let (mut pages, mut cursor) = (Vec::new(), None);
    loop {
        let page = inspector.jobs(TASK, filter, cursor.as_deref(), limit).await.unwrap();
        cursor.clone_from(&page.next);
        pages.push(page);
        if cursor.is_none() {
            return pages;
        }
        assert!(pages.len() < 10_000, "the pages do not end");
    }
}

/// Every job that matches.
async fn all(inspector: &Inspector, filter: &JobFilter) -> Vec<JobRow> {
    pages(inspector, filter, 1000).await.into_iter().flat_map(|page| page.jobs).collect()
}

/// Their ids.
fn ids(rows: &[JobRow]) -> Vec<&str> {
    rows.iter().map(|row| row.id.as_str()).collect()
}

/// The whole stored history of the task, oldest first.
async fn history(inspector: &Inspector) -> Vec<TaskEvent> {
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let page = inspector.events(TASK, after.as_deref()).await.unwrap();
        found.extend(page.events);
        if !page.has_more {
            return found;
        }
        after = Some(page.next);
    }
}

/// The events of jobs, by job.
async fn events_by_job(inspector: &Inspector) -> BTreeMap<String, Vec<Event>> {
    let mut found: BTreeMap<String, Vec<Event>> = BTreeMap::new();
    for event in history(inspector).await {
        if let TaskEvent::Job(event) = event {
            found.entry(event.id().to_string()).or_default().push(event);
        }
    }
    found
}

/// Checks that the caller made the error.
#[track_caller]
fn is_config<T: std::fmt::Debug>(answer: Result<T, Error>) {
    assert!(matches!(answer, Err(Error::Config(_))), "{answer:?}");
}

/// Writes jobs into a terminal place by hand, more than a test could run: id, time of the end, and error.
async fn seed(test: &TestTask, place: &str, jobs: impl IntoIterator<Item = (String, u64, String)>) {
    let jobs: Vec<_> = jobs.into_iter().collect();
    let mut conn = test.conn().await;
    for some in jobs.chunks(1000) {
        let mut pipe = redis::pipe();
        for (id, at, error) in some {
            pipe.cmd("ZADD").arg(test.key(place)).arg(at).arg(id).ignore();
            pipe.cmd("HSET").arg(test.key("payload")).arg(id).arg("\"\"").ignore();
            pipe.cmd("HSET").arg(test.key("error")).arg(id).arg(error).ignore();
        }
        let () = pipe.query_async(&mut conn).await.unwrap();
    }
}

/// An error as it is stored.
fn stored_error(code: &str, message: &str) -> String {
    serde_json::json!({ "code": code, "message": message }).to_string()
}

/// The audit finds nothing wrong with the task.
async fn is_sound(inspector: &Inspector) {
    let report = inspector.audit(TASK).await.unwrap();
    // A puppet is a worker that is in no list.
    let is_puppet =
        |finding: &&Finding| finding.fault == Inconsistency::StaleRecord && finding.what.starts_with("puppet-");
    let wrong: Vec<&Finding> = report.findings().filter(|finding| !is_puppet(finding)).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
}
