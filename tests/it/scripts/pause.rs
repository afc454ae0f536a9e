use crate::scripts::call::{Task, assert_all, assert_keys, assert_rest, timeless};

#[tokio::test]
async fn a_pause_records_the_time_the_person_and_the_reason() {
    let mut task = Task::new().await;
    assert_eq!(task.ok("pause", "anna 'a bad deploy'").await, "[paused]");
    assert_all!(
        task,
        "events {by=anna, paused=a bad deploy, total=0, worker=}; \
         meta events=0, fence=4000000000000000, pauseReason=a bad deploy, paused=NOW, pausedBy=anna"
    );
}

#[tokio::test]
async fn a_paused_task_keeps_its_first_pause() {
    let mut task = Task::new().await;
    task.ok("pause", "anna why").await;
    assert_eq!(timeless(&task.unchanged("pause", "bob other").await), "[already NOW anna why]");
}

#[tokio::test]
async fn a_pause_needs_neither_a_name_nor_a_reason() {
    let mut task = Task::new().await;
    assert_eq!(task.ok("pause", "- -").await, "[paused]");
    assert_eq!(timeless(&task.ok("pause", "- -").await), "[already NOW '' '']");
}

#[tokio::test]
async fn a_pause_adds_an_uncounted_entry_unless_events_are_off() {
    let mut task = Task::with("meta events=41").await;
    task.ok("pause", "- -").await;
    assert_keys!(task, "meta.events=41");
    assert!(task.held("events").await.contains(r#""total": "41""#));
    let mut task = Task::with("meta eventMode=off").await;
    task.ok("pause", "- -").await;
    assert_keys!(task, "no events");
}

/// A paused task with jobs in every open place.
async fn paused() -> Task {
    let mut task = Task::with("waits a b; payload due=1, h=1; wait:high h; delayed due=1").await;
    task.ok("pause", "anna why").await;
    task.write("no events").await;
    task
}

#[tokio::test]
async fn a_paused_task_claims_moves_and_wakes_nothing() {
    let mut task = paused().await;
    let before = task.rest("replies").await;
    for call in ["1", "2"] {
        let reply = task.ok("settle", &[call, "w", "1000", "10", "0", "0"]).await;
        assert_eq!(reply, "[settled '' '' 4000000000000001 '' [] [] '' -1]", "the worker receives no due time");
    }
    assert_rest!(task, "replies", before);
}

#[tokio::test]
async fn a_paused_task_records_every_outcome() {
    let mut task = paused().await;
    task.write("runs w: done=1, bad=2, again=3, back=4, gone=5, snooze=6; cancelling gone=why").await;
    let args = "1 w 1000 10 1 1 done 1 1 42 bad 2 failed 1 panic E again 3 retry 1 60000 E back 4 requeue 0 - - gone 5 \
         requeue 0 - - snooze 6 snooze 1:0 60000 - lost 9 requeue 0 - -";
    assert_eq!(task.ok("settle", &args).await, "[settled 9 5 4000000000000001 '' [] [] '' -1]");
    assert_rest!(
        task,
        "error, payload, replies, delayed, meta",
        "attempt again=1, bad=1; cancelled gone=NOW; completed done=NOW; enqueuedAt again=NOW, back=NOW, snooze=NOW; \
         events {cancelled=gone, completed=done, failed=bad panic, outcome_rejected=lost 9 requeue, requeued=back, \
         retrying=again 1 60000, snoozed=snooze 1:0 60000, total=7, worker=w}; failed bad=NOW; result done=42; \
         snoozes snooze=1:0; wait back a b; wait:high h"
    );
    assert!(task.held("delayed").await.starts_with(r#"zset ["due": 1, "#));
    assert_eq!(task.totals().await, ["", "3"]);
}

#[tokio::test]
async fn a_repeated_call_from_before_the_pause_gets_its_old_reply() {
    let mut task = Task::with("waits a b").await;
    let args = "1 w 1000 1 0 0";
    let reply = task.ok("settle", &args).await;
    task.ok("pause", "- -").await;
    assert_eq!(task.ok("settle", &args).await, reply);
}

#[tokio::test]
async fn jobs_added_to_a_paused_task_wake_no_worker() {
    let mut task = paused().await;
    task.ok("dispatch", "1 1 - x 1 y 1").await;
    task.ok("dispatch", "1 1 1 z 1 delay 1 5").await;
    assert_keys!(task, "wait a b x y; no wake");
}

#[tokio::test]
async fn stalled_jobs_of_a_paused_task_are_recovered_without_a_wake() {
    let mut task = paused().await;
    task.write("meta epoch=5, interval=1000, ask=1000; runs w: silent=7; snapshot").await;
    assert_eq!(task.ok("sweep", "v 1000 5 1000 0 200 auto -").await, "[swept 6 1000 0 1 0 [silent 1 recovered w 7]]");
    assert_keys!(task, "wait silent a b; no wake");
}

#[tokio::test]
async fn a_paused_task_accepts_heartbeats() {
    let mut task = paused().await;
    task.write("runs w: a-run=7; snapshot").await;
    assert_eq!(task.ok("extend_locks", "w 1000 1 0 a-run 7").await, "[beaten 0 1000 [] [] 1 1 0]");
    assert_keys!(task, "active a-run");
}

#[tokio::test]
async fn a_paused_task_removes_tombstones_too() {
    let mut task = paused().await;
    task.ok("cancel", "why channel - b -").await;
    assert_keys!(task, "wait a b");
    task.ok("cancel", "why channel - a -").await;
    assert_keys!(task, "no wait; meta.tombstones=0");
}
