use crate::scripts::call::Task;

#[tokio::test]
async fn a_job_is_found_in_its_place_with_its_small_columns() {
    let mut task = Task::with("waits waiting; runs w: running=7").await;
    task.write("payload delayed=1, completed=12, failed=1, cancelled=1; delayed delayed=9e12").await;
    for place in ["completed", "failed", "cancelled"] {
        task.zadd(place, 1.0, place).await;
    }
    task.write("attempt failed=3; stalledCount running=1").await;
    // Results may be large, and are read separately.
    task.write(r#"result completed="42"; error failed=E; snoozes waiting=2:0; options delayed={}"#).await;
    task.write("maxCount delayed=4; priority delayed=low; dispatchedAt waiting=77; enqueuedAt waiting=88").await;
    task.write("recovery running=silent w 5; cancelling running=why").await;
    for (id, reply) in [
        ("waiting", "[found waiting '' '' '' '' 2:0 '' '' '' 77 88 '' '' '' '' '' '' '' 0 2 0 0]"),
        ("delayed", "[found delayed 9000000000000 '' '' '' '' {} 4 low '' '' '' '' '' '' '' '' '' 0 1 0 0]"),
        ("running", "[found running w:7 '' 1 '' '' '' '' '' '' '' silent w 5 '' why '' '' '' '' 0 2 0 0]"),
        ("completed", "[found completed 1 '' '' '' '' '' '' '' '' '' '' '' '' '' '' '' '' 0 2 4 0]"),
        ("failed", "[found failed 1 3 '' E '' '' '' '' '' '' '' '' '' '' '' '' '' 0 1 0 0]"),
        ("cancelled", "[found cancelled 1 '' '' '' '' '' '' '' '' '' '' '' '' '' '' '' '' 0 1 0 0]"),
        ("absent", "[unknown]"),
    ] {
        assert_eq!(task.unchanged("inspect", &[id]).await, reply);
    }
}

#[tokio::test]
async fn a_job_with_a_unique_key_names_it() {
    let mut task = Task::with("waits a; uniqueOf a=order-7").await;
    assert!(task.ok("inspect", "a").await.ends_with(" order-7 '' 0 2 0 0]"));
}

#[tokio::test]
async fn a_job_that_was_claimed_ahead_is_claimed_until_it_begins() {
    let mut task = Task::with("runs w: a=7").await;
    for (mark, state) in [("7", "claimed"), ("6", "running")] {
        task.hset("claimed", &[("a", mark)]).await;
        assert!(task.ok("inspect", "a").await.starts_with(&format!("[found {state} w:7 ")), "{mark}");
    }
}

#[tokio::test]
async fn a_candidate_is_still_running_and_marked_as_candidate() {
    let mut task = Task::with("runs w: a=7; snapshot").await;
    assert_eq!(
        task.ok("inspect", "a").await,
        "[found running w:7 '' '' '' '' '' '' '' '' '' '' '' '' '' '' '' '' 1 2 0 0]"
    );
}
