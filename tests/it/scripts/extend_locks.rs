use crate::scripts::call::{Task, assert_keys};
use crate::support::TestRedis;

#[tokio::test]
async fn a_heartbeat_removes_its_jobs_from_the_candidates() {
    let mut task = Task::with("meta epoch=5, interval=1000, ask=1000; runs w: a=7, b=8; snapshot").await;
    assert_eq!(task.ok("extend_locks", "w 1000 1 0 a 7").await, "[beaten 5 1000 [] [] 1 2 0]");
    assert_keys!(task, "active a; candidates b");
}

#[tokio::test]
async fn a_watched_job_stays_a_candidate() {
    let mut task = Task::with("meta interval=1000, ask=1000; runs w: a=7; snapshot; runs w: b=8").await;
    assert_eq!(task.unchanged("extend_locks", "w 1000 0 2 a b 7 8").await, "[beaten 0 1000 [] [] 1 1 1]");
}

#[tokio::test]
async fn a_heartbeat_restores_the_missing_set_entry_of_a_lock() {
    let mut task = Task::with("payload a=1, b=1; locks a=w:7, b=w:8").await;
    task.ok("extend_locks", "w 1000 1 1 a b 7 8").await;
    assert_keys!(task, "active a b");
}

#[tokio::test]
async fn a_wrong_token_is_lost_and_writes_nothing() {
    let mut task = Task::with("meta interval=1000, ask=1000; runs w: a=7, b=8; snapshot").await;
    // Another fence, another worker, an unknown job; extended and watched ones.
    assert_eq!(task.unchanged("extend_locks", "w 1000 2 1 a absent b 6 9 9").await, "[beaten 0 1000 [6 9 9] [] 1 2 0]");
    assert_eq!(task.unchanged("extend_locks", "x 1000 1 1 a b 7 8").await, "[beaten 0 1000 [7 8] [] 1 2 0]");
}

#[tokio::test]
async fn only_the_holder_receives_a_pending_cancel() {
    let mut task = Task::with("runs w: a=7, b=8; cancelling a=why, b=").await;
    assert_eq!(task.ok("extend_locks", "w 1000 1 1 a b 7 8").await, "[beaten 0 1000 [] [7 8] 1 0 2]");
    assert_eq!(task.ok("extend_locks", "x 1000 1 0 a 7").await, "[beaten 0 1000 [7] [] 1 0 2]");
}

#[tokio::test]
async fn a_larger_ask_raises_the_interval_and_a_smaller_one_waits() {
    let mut task = Task::new().await;
    assert_eq!(task.ok("extend_locks", "w 1000 0 0").await, "[beaten 0 1000 [] [] 1 0 0]");
    assert_eq!(task.ok("extend_locks", "w 5000 0 0").await, "[beaten 0 5000 [] [] 1 0 0]");
    assert_eq!(task.ok("extend_locks", "w 1000 0 0").await, "[beaten 0 5000 [] [] 1 0 0]");
    assert!(task.held("meta").await.contains(r#""ask": "5000""#));
    // A new epoch clears who asked; the next ones ask again.
    task.write("meta ask=1000").await;
    assert_eq!(task.ok("extend_locks", "w 2000 0 0").await, "[beaten 0 5000 [] [] 1 0 0]");
    assert!(task.held("meta").await.contains(r#""ask": "2000""#));
}

#[tokio::test]
async fn a_repeated_heartbeat_changes_nothing() {
    let mut task = Task::with("runs w: a=7; snapshot").await;
    let args = "w 1000 1 0 a 7";
    assert_eq!(task.ok("extend_locks", &args).await, "[beaten 0 1000 [] [] 1 1 0]");
    assert_eq!(task.unchanged("extend_locks", &args).await, "[beaten 0 1000 [] [] 1 0 1]");
}

#[tokio::test]
async fn a_heartbeat_of_active_jobs_still_checks_each_fence() {
    let mut task = Task::with("meta interval=1000, ask=1000; runs w: a=7, b=8; cancelling b=why").await;
    assert_eq!(task.unchanged("extend_locks", "w 1000 2 0 a b 6 8").await, "[beaten 0 1000 [6] [8] 1 0 2]");
    assert_eq!(task.unchanged("extend_locks", "x 1000 2 0 a b 7 8").await, "[beaten 0 1000 [7 8] [] 1 0 2]");
}

#[tokio::test]
async fn an_entry_that_hides_a_missing_one_does_so_for_one_epoch() {
    // Of two active entries for two locks, one is a stranger's.
    let rows = "meta interval=1000, ask=1000; payload a=1, b=1; locks a=w:7, b=w:8; active a stranger";
    let mut task = Task::with(rows).await;
    task.unchanged("extend_locks", "w 1000 2 0 a b 7 8").await;
    task.snapshot().await;
    task.ok("extend_locks", "w 1000 2 0 a b 7 8").await;
    assert_keys!(task, "active a b; candidates stranger");
}

#[tokio::test]
async fn a_heartbeat_returns_the_stamp_and_works_without_options() {
    let mut task = Task::with("runs w: a=7; snapshot; meta declaredAt=1700000000000").await;
    assert_eq!(task.ok("extend_locks", "w 1000 0 1 a 7").await, "[beaten 0 1000 [] [] 1700000000000 1 0]");
    task.lose_options().await;
    assert_eq!(task.ok("extend_locks", "w 1000 1 0 a 7").await, "[beaten 0 1000 [] [] 0 1 0]");
    assert_keys!(task, "active a");
}

#[tokio::test]
async fn a_heartbeat_returns_the_job_counts_from_before_it() {
    let mut task = Task::with("runs other: x=1, y=2; runs w: a=7; snapshot; runs other: z=3").await;
    assert_eq!(task.ok("extend_locks", "w 1000 1 0 a 7").await, "[beaten 0 1000 [] [] 1 3 1]");
    assert_eq!(task.ok("extend_locks", "w 1000 0 0").await, "[beaten 0 1000 [] [] 1 2 2]");
}

#[tokio::test]
async fn five_hundred_jobs_are_extended_in_one_call() {
    let mut task = Task::new().await;
    let jobs = (0..500_u64).map(|i| (format!("job-{i:03}"), 1000 + i)).collect::<Vec<_>>();
    let named = jobs.iter().map(|(id, fence)| (id.as_str(), *fence)).collect::<Vec<_>>();
    task.running("w", &named).await;
    task.write("snapshot").await;
    let fences = jobs.iter().map(|(_, fence)| fence.to_string()).collect::<Vec<_>>();
    let mut args = vec!["w", "1000", "500", "0"];
    args.extend(jobs.iter().map(|(id, _)| id.as_str()));
    args.extend(fences.iter().map(String::as_str));
    assert_eq!(task.ok("extend_locks", &args).await, "[beaten 0 1000 [] [] 1 500 0]");
    assert_keys!(task, "no candidates");
}

#[tokio::test]
async fn without_a_right_jobs_stay_candidates() {
    let mut task = Task::on(TestRedis::start().into(), "").await;
    task.write("meta epoch=5, interval=1000, ask=1000; runs w: a=7; snapshot").await;
    let () = redis::cmd("ACL").arg("SETUSER").arg("default").arg("-sadd").query_async(&mut task.conn).await.unwrap();
    task.call("extend_locks", "w 1000 1 0 a 7").await.unwrap_err();
    assert_keys!(task, "candidates a", "else no sweep would find it");
}
