//! The holders of jobs, by their locks.

use std::time::Duration;

use heartline::JobState;

use super::{counted, observed};
use crate::support::puppet::Puppet;
use crate::support::task::{TASK, fast};

#[tokio::test]
async fn holders_are_found_by_their_locks_whatever_workers_report() {
    let (test, app, inspector) = observed().await;
    let task = app.task_ref::<String, u64>(TASK).unwrap();
    let none = inspector.lock_holders(TASK).await.unwrap();
    assert!(none.holders.is_empty() && none.is_whole && none.task == TASK);
    for id in ["a", "b", "c"] {
        task.dispatch("gate".into()).id(id).await.unwrap();
    }
    let mut dead = Puppet::of(&test).await;
    let held = dead.claim(2).await;
    let worker = test.start_worker(fast()).await;
    counted(&inspector, JobState::Running, 3).await;
    let report = inspector.lock_holders(TASK).await.unwrap();
    let told: Vec<_> = report.holders.iter().map(|holder| (holder.worker.to_string(), holder.jobs)).collect();
    assert_eq!(told, [(dead.name.clone(), 2), (worker.id.clone(), 1)]);
    assert!(report.is_whole);
    let claimed = |fence: u64| std::time::SystemTime::UNIX_EPOCH + Duration::from_millis(fence / 1000);
    let (first, last) = (report.holders[0].first_claimed_at, report.holders[0].last_claimed_at);
    assert_eq!((first, last), (claimed(held[0].fence), claimed(held[1].fence)));

    let outlook = inspector.recovery_status(TASK).await.unwrap();
    assert_eq!(outlook.held_by.holders, report.holders);
    let reasons = outlook.reasons.join("\n");
    assert!(reasons.contains(&format!("2 jobs are held by {}, which is no longer known", dead.name)), "{reasons}");
    assert!(!reasons.contains(&format!("held by {}", worker.id)), "it lives: {reasons}");
    test.journal.open("gate");
    worker.stop().await;
}

#[tokio::test]
async fn only_some_of_thousands_of_held_jobs_are_read() {
    let (test, app, inspector) = observed().await;
    let task = app.task_ref::<u32, ()>(TASK).unwrap();
    task.dispatch_many(0..12_000).await.unwrap();
    let mut holds = Puppet::of(&test).await;
    while holds.claim(200).await.len() == 200 {}
    let report = inspector.lock_holders(TASK).await.unwrap();
    let held = report.holders[0].jobs;
    assert!(!report.is_whole && (10_000..12_000).contains(&held), "{held}");
}
