use crate::scripts::call::{LAST_FENCE, Task, without};

const FAILED: &str = "no%20worker%20began%20the%20job%20before%20it%20expired";

/// Waiting jobs `a`, `b`, `c`, each with its expiry time.
async fn expiring(times: &[(&str, f64)]) -> Task {
    let mut task = Task::new().await;
    for (id, at) in times {
        task.waiting(&[id]).await;
        task.zadd("expires", *at, id).await;
        task.hset("expiresAt", &[(id, &format!("{at}"))]).await;
    }
    task
}

const LATER: f64 = 9e12;

#[tokio::test]
async fn jobs_that_expired_before_they_began_fail_and_leave_tombstones() {
    let mut task = expiring(&[("a", LATER), ("b", 5.0), ("c", 6.0)]).await;
    task.hset("payload", &[("d", "1")]).await;
    task.zadd("delayed", LATER, "d").await;
    task.zadd("expires", 7.0, "d").await;
    task.hset("expiresAt", &[("d", "7")]).await;
    assert_eq!(task.ok("expire", &["w", "200"]).await, "[expired 3 0]");
    assert_eq!(task.held("failed").await, r#"zset ["b": NOW, "c": NOW, "d": NOW]"#);
    assert_eq!(task.held("delayed").await, "");
    assert_eq!(task.held("tombstones").await, r#"hash {"b": "1", "c": "1"}"#);
    assert_eq!(task.held("expires").await, r#"zset ["a": 9000000000000]"#);
    assert_eq!(task.held("expiresAt").await, r#"hash {"a": "9000000000000"}"#);
    assert!(task.held("error").await.contains(r#"no worker began the job before it expired"#));
    let told = format!(r#""failed": "b expired {FAILED} - c expired {FAILED} - d expired {FAILED} -""#);
    let events = task.held("events").await;
    assert!(events.contains(&told) && events.contains(r#""worker": "w""#), "{events}");
    assert_eq!(task.field("meta", "out").await, "3");
    // A claim takes the job that is in time, and removes the tombstones.
    let reply = task.ok("settle", &["1", "w", "1000", "5", "0", "0"]).await;
    assert!(reply.starts_with(&format!("[settled '' '' {} a [", LAST_FENCE + 1)), "{reply}");
    for key in ["tombstones", "wait", "expires", "expiresAt"] {
        assert_eq!(task.held(key).await, "", "{key}");
    }
}

#[tokio::test]
async fn begun_and_replaced_jobs_do_not_expire() {
    let mut task = Task::new().await;
    task.running("w", &[("runs", 7)]).await;
    task.waiting(&["anew", "later"]).await;
    task.hset("expiresAt", &[("later", &format!("{LATER}"))]).await;
    for id in ["runs", "anew", "later", "gone"] {
        task.zadd("expires", 5.0, id).await;
    }
    let before = without(task.keys().await, &["expires"]);
    assert_eq!(task.ok("expire", &["w", "200"]).await, "[expired 0 0]");
    assert_eq!(without(task.keys().await, &["expires"]), before);
    assert_eq!(task.held("expires").await, "");
}

#[tokio::test]
async fn a_job_claimed_ahead_stays_with_its_worker() {
    let mut task = Task::new().await;
    task.running("w", &[("a", 7)]).await;
    task.hset("claimed", &[("a", "7")]).await;
    task.hset("expiresAt", &[("a", "5")]).await;
    task.zadd("expires", 5.0, "a").await;
    let (before, now) = (without(task.keys().await, &["expires"]), task.now_ms().await);
    assert_eq!(task.ok("expire", &["w", "200"]).await, "[expired 0 0]");
    assert_eq!(without(task.keys().await, &["expires"]), before);
    let again = task.score("expires", "a").await - now;
    assert!((5_000.0..6_000.0).contains(&again), "{again}");
    // Its worker hands it back: it waits again, and expires.
    task.ok("settle", &["1", "w", "1000", "0", "0", "0", "a", "7", "requeue", "0", "", ""]).await;
    task.zadd("expires", 5.0, "a").await;
    assert_eq!(task.ok("expire", &["w", "200"]).await, "[expired 1 0]");
    assert_eq!(task.held("failed").await, r#"zset ["a": NOW]"#);
}

#[tokio::test]
async fn a_call_expires_at_most_its_limit_and_reports_more() {
    let mut task = expiring(&[("a", 1.0), ("b", 2.0), ("c", 3.0)]).await;
    task.hset("meta", &[("keepFailed", "0"), ("eventMode", "off")]).await;
    assert_eq!(task.ok("expire", &["w", "2"]).await, "[expired 2 1]");
    assert_eq!(task.ok("expire", &["w", "2"]).await, "[expired 1 0]");
    assert_eq!(task.ok("expire", &["w", "2"]).await, "[expired 0 0]");
    assert_eq!(without(task.keys().await, &["meta"]), [] as [&str; 0]);
}

#[tokio::test]
async fn without_options_nothing_expires() {
    let mut task = expiring(&[("a", 1.0)]).await;
    task.lose_options().await;
    let before = task.exact().await;
    assert_eq!(task.ok("expire", &["w", "2"]).await, "[undeclared]");
    assert_eq!(task.exact().await, before);
}

#[tokio::test]
async fn a_claim_does_not_begin_expired_jobs() {
    let mut task = expiring(&[("late", 5.0), ("in-time", LATER), ("odd", 5.0)]).await;
    task.hset("expiresAt", &[("odd", "soon")]).await;
    let reply = task.ok("settle", &["1", "w", "1000", "5", "0", "0"]).await;
    assert!(reply.contains(" in-time [{}]"), "{reply}");
    assert_eq!(task.held("failed").await, r#"zset ["late": NOW, "odd": NOW]"#);
    let events = task.held("events").await;
    assert!(events.contains(&format!(r#""failed": "late expired {FAILED} - odd expired {FAILED} -""#)), "{events}");
    assert!(events.contains(r#""started": "in-time""#) && events.contains(r#""total": "3""#), "{events}");
    for key in ["expires", "expiresAt", "wait"] {
        assert_eq!(task.held(key).await, "", "{key}");
    }
    assert_eq!(task.field("meta", "out").await, "2");
    // It may be retried long after its expiry time.
    let fence = (LAST_FENCE + 1).to_string();
    let error = r#"{"code":"c","message":"m"}"#;
    let args = ["2", "w", "1000", "5", "0", "0", "in-time", &fence, "requeue", "0", "", error];
    task.ok("settle", &args).await;
    assert!(task.ok("settle", &["3", "w", "1000", "5", "0", "0"]).await.contains(" in-time ["));
}

#[tokio::test]
async fn a_dispatch_sets_the_expiry_time() {
    let mut task = Task::new().await;
    let before = task.now_ms().await;
    let args = [
        "1", "1", "3", "a", "1", "b", "2", "c", "3", "expires", "1", "60000", "delay", "2", "5000", "expires", "2",
        "6000",
    ];
    assert_eq!(task.ok("dispatch", &args).await, "dispatched");
    let (of_first, of_second) = (task.score("expires", "a").await - before, task.score("expires", "b").await - before);
    assert!((60_000.0..61_000.0).contains(&of_first) && (6_000.0..7_000.0).contains(&of_second));
    assert_eq!(task.field("expiresAt", "a").await.parse::<f64>().unwrap() - before, of_first);
    assert!(!task.held("expiresAt").await.contains(r#""c""#));
    // An existing job keeps its own.
    let held = task.held("expires").await;
    assert_eq!(task.ok("dispatch", &["1", "1", "1", "a", "1", "expires", "1", "9"]).await, "dispatched 1");
    assert_eq!(task.held("expires").await, held);
    // A retry starts without one.
    task.eval("return redis.call('LREM', KEYS[1], 0, 'a')", &[task.key("wait")], &[]).await.unwrap();
    task.zadd("failed", 1.0, "a").await;
    task.ok("retry", &["", "a", ""]).await;
    assert!(!task.held("expiresAt").await.contains(r#""a""#));
}

#[tokio::test]
async fn expired_nodes_are_in_the_outbox_even_if_none_are_kept() {
    for keep in ["1", "0"] {
        let mut task = expiring(&[("~f/a/0/1", 1.0), ("own", 2.0)]).await;
        task.hset("meta", &[("keepFailed", keep)]).await;
        assert_eq!(task.ok("expire", &["w", "200"]).await, "[expired 2 0]");
        assert_eq!(task.held("outbox").await, r#"zset ["~f/a/0/1": NOW]"#);
        let own = if keep == "1" { r#""own": NOW, "# } else { "" };
        assert_eq!(task.held("failed").await, format!(r#"zset [{own}"~f/a/0/1": NOW]"#));
        assert!(task.field("error", "~f/a/0/1").await.contains("expired"));
    }
}
