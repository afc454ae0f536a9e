//! Silent jobs that are parked, because their phase waits for longer or for a person.

use crate::scripts::call::{Task, assert_keys, assert_text, unchanged};
use crate::support::TestRedis;

/// A sweep of the witness `v` by the table, in the current epoch.
async fn sweep(task: &mut Task) -> String {
    let epoch = task.epoch().await.to_string();
    task.ok("sweep", &["v", "1000", &epoch, "1000", "0", "200", "auto", ""]).await
}

/// What a person decides about parked jobs.
async fn decide(task: &mut Task, verdict: &str, ids: &[&str]) -> String {
    task.ok("sweep", &[&["p", "0", "", "0", "0", "200", verdict, "anna"], ids].concat()).await
}

async fn beat(task: &mut Task, id: &str, fence: &str) -> String {
    task.ok("extend_locks", &["w", "1000", "1", "0", id, fence]).await
}

/// Jobs of the worker `w`, one in each phase, all silent since the snapshot: `ahead` is claimed, `runs` has begun, and
/// the hook of `ends` runs.
async fn silent(grace: &str) -> Task {
    let mut task = Task::new().await;
    let snapshot_at = format!("{:.0}", task.now_ms().await - 10_000.0);
    let meta = [("epoch", "5"), ("interval", "1000"), ("ask", "1000"), ("maxCount", "1"), ("hook", "1")];
    task.hset("meta", &meta).await;
    task.hset("meta", &[("grace", grace), ("snapshotAt", &snapshot_at)]).await;
    task.write("runs w: ahead=7, runs=8, ends=9; claimed ahead=7; outcome ends=completed 0 0 5; snapshot").await;
    task
}

#[tokio::test]
async fn only_a_phase_that_is_switched_off_waits_for_a_person() {
    for (off, left, decided) in [
        ("off 0 0", "ahead", ["runs 1 recovered", "ends 1 requeued"]),
        ("0 off 0", "runs", ["ahead 0 requeued", "ends 1 requeued"]),
        ("0 0 off", "ends", ["ahead 0 requeued", "runs 1 recovered"]),
    ] {
        let mut task = silent(off).await;
        let reply = sweep(&mut task).await;
        assert!(reply.starts_with("[swept 6 1000 0 1 0 [") && reply.ends_with("] 1]"), "{reply}");
        assert!(decided.iter().all(|said| reply.contains(said)) && !reply.contains(left), "{reply}");
        // The worker keeps it, and the snapshot has just made it a candidate.
        assert_keys!(task, format!("candidates {left}"));
        assert!(task.held("locks").await.contains(left));
        assert!(task.held("parked").await.contains(left));
        assert!(!task.held("stalls").await.contains(left));
        assert!(!task.held("stalledCount").await.contains(left));
    }
}

#[tokio::test]
async fn a_silent_job_stays_parked_and_keeps_its_mark() {
    let mut task = silent("0 off 0").await;
    sweep(&mut task).await;
    let marked = task.field("parked", "runs").await;
    assert!(marked.starts_with("8 running "), "{marked}");
    for epoch in 7..10 {
        assert_eq!(sweep(&mut task).await, format!("[swept {epoch} 1000 0 1 0 [] 1]"));
        assert_eq!(task.field("parked", "runs").await, marked, "silent since the first snapshot");
    }
}

#[tokio::test]
async fn a_phase_with_its_own_interval_waits_for_exactly_that() {
    // Silent for 10 s by the snapshot.
    let mut task = silent("9000 0 60000").await;
    assert_text!(sweep(&mut task).await, contains("ahead 0 requeued"), ends_with("] 1]"));
    assert_keys!(task, "candidates ends");
    // By its mark it was silent for long enough.
    let since = format!("9 finalizing {:.0}", task.now_ms().await - 60_001.0);
    task.hset("parked", &[("ends", &since)]).await;
    assert_text!(sweep(&mut task).await, contains("ends 1 requeued"));
}

#[tokio::test]
async fn a_mark_of_another_fence_or_phase_is_ignored() {
    for mark in ["6 running 1", "8 claimed 1", "8 running", "", "8 running x"] {
        let mut task = silent("0 60000 0").await;
        task.hset("parked", &[("runs", mark)]).await;
        let reply = sweep(&mut task).await;
        assert!(!reply.contains("runs"), "{mark}: {reply}");
        assert!(decide(&mut task, "recover", &["ahead", "unknown"]).await.ends_with("[]]"), "{mark}");
    }
}

#[tokio::test]
async fn a_clock_that_went_back_does_not_lengthen_the_wait() {
    let mut task = silent("0 60000 0").await;
    let ahead = format!("{:.0}", task.now_ms().await + 86_400_000.0);
    task.write(&format!("meta snapshotAt={ahead}; parked runs=8 running {ahead}")).await;
    sweep(&mut task).await;
    let marked: f64 = task.field("parked", "runs").await.rsplit(' ').next().unwrap().parse().unwrap();
    assert!(marked <= task.now_ms().await);
}

#[tokio::test]
async fn a_heartbeat_removes_the_mark() {
    let mut task = silent("0 off 0").await;
    sweep(&mut task).await;
    beat(&mut task, "runs", "8").await;
    assert_keys!(task, "no parked");
    assert_eq!(unchanged!(task, decide(&mut task, "recover", &["runs"]).await), "[swept 6 1000 0 0 0 []]");
}

#[tokio::test]
async fn an_older_fence_or_a_watched_job_does_not_remove_the_mark() {
    let mut task = silent("0 off 0").await;
    sweep(&mut task).await;
    let marked = task.held("parked").await;
    task.ok("extend_locks", "w 1000 0 1 runs 8").await;
    beat(&mut task, "runs", "6").await;
    assert_eq!(task.held("parked").await, marked);
}

#[tokio::test]
async fn a_person_decides_about_parked_jobs_only() {
    let mut task = silent("off off off").await;
    assert_eq!(sweep(&mut task).await, "[swept 6 1000 0 1 0 [] 3]");
    task.write("runs w: healthy=10; waits waits").await;
    let reply = decide(&mut task, "recover", &["ahead", "runs", "ends", "healthy", "waits", "runs", "unknown"]).await;
    assert!(reply.starts_with("[swept 6 1000 0 0 0 ["), "no snapshot: {reply}");
    for said in ["ahead 0 requeued w 7", "runs 1 recovered w 8", "ends 1 requeued w 9"] {
        assert_eq!(reply.matches(said).count(), 1, "{said}: {reply}");
    }
    assert!(!reply.contains("healthy") && !reply.contains("waits"), "{reply}");
    assert_keys!(task, "wait runs ahead waits; locks healthy=w:10");
    assert_text!(task.held("stalls").await, contains(r#""by": "anna""#), contains(r#""reason": "manual""#));
    assert_keys!(task, "no parked");
    assert_eq!(decide(&mut task, "recover", &["ahead", "runs", "ends"]).await, "[swept 6 1000 0 0 0 []]");
}

#[tokio::test]
async fn a_person_fails_parked_jobs() {
    let mut task = silent("off off off").await;
    task.write("meta hook=0").await;
    sweep(&mut task).await;
    let reply = decide(&mut task, "fail", &["runs", "ends"]).await;
    assert!(reply.contains("runs 1 failed w 8") && reply.contains("ends 1 completed w 9"), "{reply}");
    assert!(task.held("error").await.contains("anna let the job fail"));
}

#[tokio::test]
async fn a_job_with_a_pending_cancel_is_not_parked() {
    let mut task = silent("off off off").await;
    task.write("meta hook=0; cancelling ahead=why, runs=why").await;
    let reply = sweep(&mut task).await;
    assert!(reply.contains("ahead 1 cancelled") && reply.contains("runs 1 cancelled"), "{reply}");
    assert!(!reply.contains("ends"), "its outcome is kept: {reply}");
}

#[tokio::test]
async fn a_damaged_job_is_not_parked() {
    let mut task = silent("off off off").await;
    task.eval(
        "redis.call('HDEL', KEYS[1], 'ahead') redis.call('HDEL', KEYS[2], 'runs')",
        &[task.key("payload"), task.key("locks")],
        &[],
    )
    .await
    .unwrap();
    assert_text!(sweep(&mut task).await, contains("ahead 0 dropped"), contains("runs 0 failed"));
}

#[tokio::test]
async fn a_proven_death_leaves_jobs_that_wait_for_a_person() {
    let mut task = silent("off 60000 off").await;
    let reply = task.ok("reconcile", "v worker_restarted - 0 500 w").await;
    assert!(reply.contains("runs 1 recovered"), "a proof needs no more time: {reply}");
    assert_keys!(task, "locks ahead=w:7, ends=w:9");
    task.write("cancelling ahead=why, ends=why").await;
    let reply = task.ok("reconcile", "v worker_restarted - 0 500 w").await;
    assert!(reply.contains("ahead 1 cancelled") && !reply.contains("ends"), "{reply}");
    assert_text!(task.ok("reconcile", "- manual anna 0 500 w").await, contains("ends 1 requeued"));
    assert_keys!(task, "no locks");
}

#[tokio::test]
async fn jobs_that_wait_for_a_person_leave_room_for_the_others() {
    let mut task = Task::with("meta maxCount=1, grace=off 0 0").await;
    let ids: Vec<String> = (0..1100).map(|at| format!("job-{at:04}")).collect();
    for (id, fence) in ids.iter().zip(1_u64..) {
        task.running("w", &[(id, fence)]).await;
        if fence <= 1099 {
            task.hset("claimed", &[(id, &fence.to_string())]).await;
        }
    }
    let (mut cursor, mut calls, mut found) = ("0".to_owned(), 0, 0);
    loop {
        let reply = task.ok("reconcile", &["v", "worker_restarted", "", &cursor, "500", "w"]).await;
        found += reply.matches("recovered").count();
        let words: Vec<&str> = reply.trim_matches(['[', ']']).split(' ').collect();
        calls += 1;
        assert!(calls < 20, "it does not end");
        if words[1] == "0" && words[2] == "0" {
            break;
        }
        cursor = words[1].to_owned();
    }
    assert_eq!(found, 1);
}

#[tokio::test]
async fn marks_are_removed_when_no_phase_waits() {
    let declare = |grace| ["1", "", "w", "grace", grace, "onCrash", "recover"];
    let mut task = silent("0 off 0").await;
    sweep(&mut task).await;
    task.ok("declare", &declare("0 off 0")).await;
    assert_ne!(task.held("parked").await, "", "the same");
    // Between two such declarations, heartbeats remove marks, so these stay.
    task.ok("declare", &declare("0 60000 0")).await;
    assert_ne!(task.held("parked").await, "");
    task.ok("declare", &declare("")).await;
    assert_keys!(task, "no parked");
    // If no phase waits, no job counts as parked, whatever the key holds.
    task.write("parked runs=8 running 1").await;
    assert!(decide(&mut task, "recover", &["runs"]).await.ends_with("[]]"));
}

#[tokio::test]
async fn hundreds_of_jobs_are_parked_and_resolved_in_one_call() {
    let mut task = Task::with("meta epoch=5, interval=1000, maxCount=1, grace=0 off 0").await;
    let ids: Vec<String> = (0..500).map(|at| format!("job-{at:03}")).collect();
    for (id, fence) in ids.iter().zip(1_u64..) {
        task.running("w", &[(id, fence)]).await;
    }
    task.write("snapshot").await;
    assert_eq!(task.ok("sweep", "v 1000 5 1000 0 500 auto -").await, "[swept 6 1000 0 1 0 [] 500]");
    let named: Vec<&str> = ids.iter().map(String::as_str).collect();
    let reply = decide(&mut task, "recover", &named).await;
    assert_eq!(reply.matches("recovered").count(), 500);
    for _ in 0..5 {
        sweep(&mut task).await;
    }
    assert_keys!(task, "no parked");
}

#[tokio::test]
async fn outdated_marks_are_removed_by_later_snapshots() {
    let mut task = silent("0 off 0").await;
    let marks = [("unknown", "5 running 1"), ("runs", "7 running 1"), ("odd", "no mark"), ("ends", "9 finalizing 1")];
    task.hset("parked", &marks).await;
    // A mark with an earlier token of a job whose worker lives.
    task.write("runs w: lives=11; parked lives=10 running 1").await;
    sweep(&mut task).await;
    let left = task.held("parked").await;
    assert!(["unknown", "odd", "ends", "lives"].iter().all(|id| !left.contains(id)), "{left}");
    assert!(left.contains(r#""runs": "8 running"#), "{left}");
}

#[tokio::test]
async fn resolved_jobs_are_reported_even_if_marks_are_unreadable() {
    let mut task = Task::on(TestRedis::start().into(), "").await;
    for rule in ["+@all", "-hscan"] {
        let () = redis::cmd("ACL").arg("SETUSER").arg("default").arg(rule).query_async(&mut task.conn).await.unwrap();
    }
    task.write("meta epoch=5, interval=1000, maxCount=1, grace=off 0 0; runs w: runs=8; parked old=1 claimed 1").await;
    task.write("snapshot").await;
    assert!(sweep(&mut task).await.contains("runs 1 recovered"));
    assert!(task.held("stalls").await.contains("runs 1 recovered"));
}

#[tokio::test]
async fn a_filter_for_claimed_jobs_returns_only_those() {
    let mut task = silent("off off off").await;
    sweep(&mut task).await;
    assert_text!(decide(&mut task, "requeue", &["ahead", "runs", "ends"]).await, contains("[ahead 0 requeued w 7]"));
    assert_keys!(task, "candidates ends runs");
    // The same after a watched interval.
    let mut task = silent("").await;
    let reply = task.ok("sweep", "p 0 5 1000 0 200 requeue anna ahead runs ends").await;
    assert_eq!(reply, "[swept 5 1000 0 0 2 [ahead 0 requeued w 7]]", "no snapshot while others are silent");
    assert_keys!(task, "locks ends=w:9, runs=w:8");
}
