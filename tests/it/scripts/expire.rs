use crate::scripts::call::{LAST_FENCE, Task, assert_keys, assert_rest, assert_text};

const FAILED: &str = "no%20worker%20began%20the%20job%20before%20it%20expired";

/// Waiting jobs, each with its expiry time: `a=5, b=6`.
async fn expiring(times: &str) -> Task {
    let ids: Vec<&str> = times.split(", ").map(|time| time.split_once('=').unwrap().0).collect();
    Task::with(&format!("waits {}; expires {times}; expiresAt {times}", ids.join(" "))).await
}

#[tokio::test]
async fn jobs_that_expired_before_they_began_fail_and_leave_tombstones() {
    let mut task = expiring("a=9000000000000, b=5, c=6").await;
    task.write("payload d=1; delayed d=9000000000000; expires d=7; expiresAt d=7").await;
    assert_eq!(task.ok("expire", "w 200").await, "[expired 3 0]");
    assert_keys!(task, "failed b=NOW, c=NOW, d=NOW; no delayed; tombstones b=1, c=1; expires a=9000000000000");
    assert_keys!(task, "expiresAt a=9000000000000; meta.out=3");
    assert!(task.held("error").await.contains(r#"no worker began the job before it expired"#));
    let told = format!(r#""failed": "b expired {FAILED} - c expired {FAILED} - d expired {FAILED} -""#);
    assert_text!(task.held("events").await, contains(&told), contains(r#""worker": "w""#));
    // A claim takes the job that is in time, and removes the tombstones.
    let reply = task.ok("settle", "1 w 1000 5 0 0").await;
    assert!(reply.starts_with(&format!("[settled '' '' {} a [", LAST_FENCE + 1)), "{reply}");
    assert_keys!(task, "no tombstones, wait, expires, expiresAt");
}

#[tokio::test]
async fn begun_and_replaced_jobs_do_not_expire() {
    let mut task = Task::with("runs w: runs=7; waits anew later; expiresAt later=9000000000000").await;
    task.write("expires runs=5, anew=5, later=5, gone=5").await;
    let before = task.rest("expires").await;
    assert_eq!(task.ok("expire", "w 200").await, "[expired 0 0]");
    assert_rest!(task, "expires", before);
    assert_keys!(task, "no expires");
}

#[tokio::test]
async fn a_job_claimed_ahead_stays_with_its_worker() {
    let mut task = Task::with("runs w: a=7; claimed a=7; expiresAt a=5; expires a=5").await;
    let (before, now) = (task.rest("expires").await, task.now_ms().await);
    assert_eq!(task.ok("expire", "w 200").await, "[expired 0 0]");
    assert_rest!(task, "expires", before);
    let again = task.score("expires", "a").await - now;
    assert!((5_000.0..6_000.0).contains(&again), "{again}");
    // Its worker hands it back: it waits again, and expires.
    task.ok("settle", "1 w 1000 0 0 0 a 7 requeue 0 - -").await;
    task.write("expires a=5").await;
    assert_eq!(task.ok("expire", "w 200").await, "[expired 1 0]");
    assert_keys!(task, "failed a=NOW");
}

#[tokio::test]
async fn a_call_expires_at_most_its_limit_and_reports_more() {
    let mut task = expiring("a=1, b=2, c=3").await;
    task.write("meta keepFailed=0, eventMode=off").await;
    assert_eq!(task.ok("expire", "w 2").await, "[expired 2 1]");
    assert_eq!(task.ok("expire", "w 2").await, "[expired 1 0]");
    assert_eq!(task.ok("expire", "w 2").await, "[expired 0 0]");
    assert_rest!(task, "meta", "");
}

#[tokio::test]
async fn without_options_nothing_expires() {
    let mut task = expiring("a=1").await;
    task.lose_options().await;
    assert_eq!(task.unchanged("expire", "w 2").await, "[undeclared]");
}

#[tokio::test]
async fn a_claim_does_not_begin_expired_jobs() {
    let mut task = expiring("late=5, in-time=9000000000000, odd=5").await;
    task.write("expiresAt odd=soon").await;
    assert_text!(task.ok("settle", "1 w 1000 5 0 0").await, contains(" in-time [{}]"));
    assert_keys!(task, "failed late=NOW, odd=NOW");
    let events = task.held("events").await;
    assert!(events.contains(&format!(r#""failed": "late expired {FAILED} - odd expired {FAILED} -""#)), "{events}");
    assert!(events.contains(r#""started": "in-time""#) && events.contains(r#""total": "3""#), "{events}");
    assert_keys!(task, "no expires, expiresAt, wait; meta.out=2");
    // It may be retried long after its expiry time.
    let fence = LAST_FENCE + 1;
    let error = r#"{"code":"c","message":"m"}"#;
    task.ok("settle", &format!("2 w 1000 5 0 0 in-time {fence} requeue 0 - {error}")).await;
    assert!(task.ok("settle", "3 w 1000 5 0 0").await.contains(" in-time ["));
}

#[tokio::test]
async fn a_dispatch_sets_the_expiry_time() {
    let mut task = Task::new().await;
    let before = task.now_ms().await;
    let args = "1 1 3 a 1 b 2 c 3 expires 1 60000 delay 2 5000 expires 2 6000";
    assert_eq!(task.ok("dispatch", &args).await, "dispatched");
    let (of_first, of_second) = (task.score("expires", "a").await - before, task.score("expires", "b").await - before);
    assert!((60_000.0..61_000.0).contains(&of_first) && (6_000.0..7_000.0).contains(&of_second));
    assert_eq!(task.field("expiresAt", "a").await.parse::<f64>().unwrap() - before, of_first);
    assert!(!task.held("expiresAt").await.contains(r#""c""#));
    // An existing job keeps its own.
    let held = task.held("expires").await;
    assert_eq!(task.ok("dispatch", "1 1 1 a 1 expires 1 9").await, "dispatched 1");
    assert_eq!(task.held("expires").await, held);
    // A retry starts without one.
    task.eval("return redis.call('LREM', KEYS[1], 0, 'a')", &[task.key("wait")], &[]).await.unwrap();
    task.write("failed a=1").await;
    task.ok("retry", "- 0 a -").await;
    assert!(!task.held("expiresAt").await.contains(r#""a""#));
}

#[tokio::test]
async fn expired_nodes_are_in_the_outbox_even_if_none_are_kept() {
    for keep in ["1", "0"] {
        let mut task = expiring("~f/a/0/1=1, own=2").await;
        task.write(&format!("meta keepFailed={keep}")).await;
        assert_eq!(task.ok("expire", "w 200").await, "[expired 2 0]");
        assert_keys!(task, "outbox ~f/a/0/1=NOW");
        let own = if keep == "1" { "own=NOW, " } else { "" };
        assert_keys!(task, format!("failed {own}~f/a/0/1=NOW"));
        assert!(task.field("error", "~f/a/0/1").await.contains("expired"));
    }
}
