use crate::scripts::call::{Task, assert_all, assert_keys, assert_text};

#[tokio::test]
async fn a_resume_reports_the_length_of_the_pause_and_wakes_a_worker() {
    let mut task = Task::new().await;
    task.ok("pause", "anna why").await;
    let since = task.now_ms().await - 5_000.0;
    task.write(&format!("meta paused={since}; no events")).await;
    let reply = task.ok("resume", "bob").await;
    let ms: u64 = reply.strip_prefix("[resumed ").unwrap().trim_end_matches(']').parse().unwrap();
    assert!((5_000..65_000).contains(&ms), "{reply}");
    assert_all!(
        task,
        "events {by=bob, resumed=, total=0, worker=}; meta events=0, fence=4000000000000000; wake marker=0, spare=1"
    );
}

#[tokio::test]
async fn a_task_that_is_not_paused_reports_it_and_writes_nothing() {
    let mut task = Task::new().await;
    assert_eq!(task.unchanged("resume", "bob").await, "[already]");
    task.ok("pause", "- -").await;
    assert!(task.ok("resume", "bob").await.starts_with("[resumed "));
    assert_eq!(task.unchanged("resume", "bob").await, "[already]");
}

#[tokio::test]
async fn an_unreadable_pause_time_means_now_and_a_future_one_zero() {
    for (paused, lasted) in [("9000000000000", "0"), ("yesterday", "1")] {
        let mut task = Task::new().await;
        task.hset("meta", &[("paused", paused)]).await;
        assert_text!(task.ok("resume", "-").await, starts_with(&format!("[resumed {lasted}")));
    }
}

#[tokio::test]
async fn without_events_no_entry_is_written() {
    let mut task = Task::with("meta eventMode=off, paused=1").await;
    task.ok("resume", "bob").await;
    assert_keys!(task, "no events; wake marker=0, spare=1");
}

#[tokio::test]
async fn jobs_are_claimed_again_and_due_ones_go_to_the_back_first() {
    let mut task = Task::with("waits a; payload due=1, later=1; delayed due=1, later=9e12").await;
    task.ok("pause", "- -").await;
    task.ok("settle", "1 w 1000 9 0 0").await;
    task.ok("resume", "-").await;
    let reply = task.ok("settle", "2 w 1000 9 0 0").await;
    assert!(reply.contains(" a due [{} 1] "), "{reply}");
    assert!(!reply.ends_with(" '']"), "the worker receives the next due time: {reply}");
}
