//! The keeper of a worker ends: its thread panics.

use heartline::{StopReason, WorkerPart};

use crate::faults::ground::alone;
use crate::support::task::{INTERVAL, options};
use crate::support::{PATIENCE, Warnings};

#[tokio::test]
async fn a_worker_whose_keeper_ends_hands_its_jobs_back() {
    let warnings = Warnings::capture();
    let (_redis, test) = alone();
    let mut worker = test.start_worker(options(INTERVAL)).await;
    let job = worker.jobs.dispatch("gate".to_owned()).await.unwrap();
    test.started(std::slice::from_ref(&job)).await;

    heartline::_internals::break_keeper(&worker.id);
    let reason = worker.ends().await.unwrap();
    assert_eq!(reason, StopReason::Broken { part: WorkerPart::Keeper, left: Vec::new() });
    warnings.wait_for(&["ERROR", "the keeper ended"], PATIENCE).await;

    // Its job was requeued at once, with no stall counted.
    let other = test.start_worker(options(INTERVAL)).await;
    test.journal.open("gate");
    let fence = tokio::time::timeout(PATIENCE, job.result()).await.expect("the job does not end").unwrap();
    let runs = test.journal.runs_of(job.id());
    let seen: Vec<_> = runs.iter().map(|run| (run.worker.as_str(), run.stalled_count)).collect();
    assert_eq!(seen, [(worker.id.as_str(), 0), (other.id.as_str(), 0)]);
    assert_eq!(runs[1].fence, fence);
    other.stop().await;
    test.nothing_is_left_but(1).await;
}
