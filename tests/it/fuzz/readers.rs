//! What the Inspector says about overwritten data.

use std::time::Duration;

use heartline::{App, Error, Inspector, JobFilter, JobState, JobValues, SeriesSpan};

use super::hostile::{Stranger, declare, dispatch, rounds};
use crate::support::task::built;
use crate::support::worker::TestWorker;
use crate::support::{PATIENCE, TestRedis, eventually};

/// How long a read may take.
const READ: Duration = Duration::from_secs(30);

const STATES: [JobState; 8] = [
    JobState::Waiting,
    JobState::Delayed,
    JobState::Claimed,
    JobState::Running,
    JobState::Finalizing,
    JobState::Completed,
    JobState::Failed,
    JobState::Cancelled,
];

/// A prefix whose worker has stopped.
async fn ground() -> (TestRedis, App, Stranger) {
    let redis = TestRedis::start();
    let app = built(&redis.url(), "fuzz").await;
    let tasks = declare(&app);
    let worker = TestWorker::start(app.worker());
    dispatch(&app, &tasks).await;
    eventually("jobs have ended", PATIENCE, async || tasks.hurt.counts().await.unwrap().completed >= 4).await;
    worker.stop().await;
    dispatch(&app, &tasks).await;
    let mut stranger = Stranger::new(redis.conn().await, "fuzz", &[]);
    stranger.leave_held_jobs().await;
    (redis, app, stranger)
}

/// The error, if it is not about the data.
fn unexpected<T>(answer: Result<T, Error>) -> Option<Error> {
    answer.err().filter(Error::is_retryable)
}

/// Every reader by its number. Returns an error that does not say what is wrong with the data.
async fn read(inspector: &Inspector, which: usize, id: &str) -> Option<Error> {
    let task = if which.is_multiple_of(3) { "keyed" } else { "hurt" };
    match which {
        0 | 1 => unexpected(inspector.tasks().await),
        2 => unexpected(inspector.task(task).await),
        3 => unexpected(inspector.workers().await),
        4 => unexpected(inspector.fleet(None).await.map(|fleet| format!("{fleet:?}"))),
        5 | 6 => unexpected(inspector.job(task, id, JobValues::All).await.map(|job| format!("{job:?}"))),
        7 => unexpected(inspector.stalls(task, None).await),
        8 => unexpected(inspector.events(task, None).await),
        9 => unexpected(inspector.job_events(task, id).await),
        10 => unexpected(inspector.silent_jobs(task, None).await),
        11 => unexpected(inspector.lock_holders(task).await),
        12 => unexpected(inspector.suspects(task).await),
        13 => unexpected(inspector.schedules(task).await.map(|schedules| format!("{schedules:?}"))),
        14 => unexpected(inspector.schedule(task, "often").await),
        15 => unexpected(inspector.workflows().await),
        16 => unexpected(inspector.recovery_status(task).await),
        17 => unexpected(inspector.series(task, SeriesSpan::Day).await),
        18 => unexpected(inspector.unique(task, "order").await),
        19 => unexpected(inspector.diagnose().await.map(|found| format!("{found:?}"))),
        20 => unexpected(inspector.columns(task).await),
        21 => unexpected(inspector.find(id).await),
        22 => unexpected(match inspector.lanes("keyed") {
            Ok(lanes) => lanes.list(None, 100).await.map(drop),
            Err(e) => Err(e),
        }),
        23 => unexpected(inspector.worker("h-1-00000001").await),
        24 => unexpected(inspector.audit("hurt").await.map(|report| format!("{report:?}"))),
        _ => {
            let state = STATES[which % STATES.len()];
            let page = inspector.jobs(task, &JobFilter::new(state), None, 100).await;
            unexpected(page.map(|page| format!("{page:?}")))
        }
    }
}

#[tokio::test]
async fn every_reader_answers_or_says_what_is_wrong() {
    let (_redis, app, mut stranger) = ground().await;
    let (inspector, saved) = (app.inspector(), stranger.dump().await);
    for round in 0..rounds(40) {
        if round % 4 == 0 {
            stranger.restore(&saved).await;
        }
        stranger.overwrite().await;
        for _ in 0..6 {
            let which = stranger.rng().usize(0..33);
            let id = *stranger.rng().choice(&["a", "held", "ahead", "silent", "ended", "later", "short", "x"]).unwrap();
            let answer = tokio::time::timeout(READ, read(&inspector, which, id)).await;
            assert!(matches!(answer, Ok(None)), "reader {which} of {id}: {answer:?} after {:#?}", stranger.log);
        }
    }
}
