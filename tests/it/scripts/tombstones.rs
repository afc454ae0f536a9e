//! Tombstones: list entries whose job no longer waits there, and how settle treats them.

use crate::scripts::call::{Task, assert_keys, assert_text, without};

/// Claims up to `want` jobs in the call with that number, and returns their ids.
async fn claim(task: &mut Task, call: u32, want: usize) -> String {
    let reply = task.ok("settle", &format!("{call} w 1000 {want} 0 0")).await;
    let (_, rest) = reply.strip_prefix("[settled '' '' ").unwrap().split_once(' ').unwrap();
    rest.split_once(" [").unwrap().0.to_owned()
}

async fn cancel(task: &mut Task, id: &str) {
    assert_eq!(task.ok("cancel", &["why", "channel", "", id, ""]).await, "[told ended]");
}

async fn remove(task: &mut Task, id: &str) {
    assert_eq!(task.ok("remove", &["", id, ""]).await, "[told removed]");
}

async fn dispatch(task: &mut Task, id: &str) {
    assert_eq!(task.ok("dispatch", &["1", "1", "1", id, "anew"]).await, "dispatched");
}

/// No tombstone is left.
const NONE: &str = "no tombstones; meta.tombstones=0";

/// Tombstones of cancelled jobs, without a script: `count` of them at the front of the list.
async fn leading(task: &mut Task, list: &str, count: usize) -> Vec<String> {
    let ids: Vec<String> = (0..count).map(|number| format!("{list}-{number:04}")).collect();
    let before = task.field("meta", "tombstones").await.parse::<usize>().unwrap();
    for id in &ids {
        task.hset("payload", &[(id, "{}")]).await;
        task.write(&format!("tombstones {id}=1; cancelled {id}=1")).await;
    }
    task.rpush(list, &ids).await;
    task.hset("meta", &[("tombstones", &(before + count).to_string())]).await;
    ids
}

#[tokio::test]
async fn a_claim_removes_200_tombstones_and_skips_as_many_as_it_wants() {
    let mut task = Task::with("meta tombstones=0").await;
    let ids = leading(&mut task, "wait", 450).await;
    task.write("waits a b").await;
    for (call, left) in [(1, 249), (2, 48)] {
        task.write("no wake").await;
        assert_eq!(claim(&mut task, call, 1).await, "''", "call {call}");
        assert_eq!(task.list("wait").await[..left], ids[450 - left..]);
        assert_eq!(task.field("meta", "tombstones").await, left.to_string());
        assert_eq!(task.held("tombstones").await.matches(r#": "1""#).count(), left);
        assert_keys!(task, "wake marker=0, spare=1", "jobs are left");
        assert_eq!(task.ok("counts", "").await, "[counted 2 0 0 0 0 0 0 450 0]");
    }
    assert_eq!(claim(&mut task, 3, 1).await, "a");
    assert_keys!(task, "wait b");
    assert_keys!(task, NONE);
}

#[tokio::test]
async fn tombstones_of_each_list_are_removed_from_its_own_front() {
    let mut task = Task::with("meta tombstones=0").await;
    for (list, id) in [("wait:high", "h"), ("wait", "n"), ("wait:low", "l")] {
        leading(&mut task, list, 3).await;
        task.hset("payload", &[(id, "{}")]).await;
        task.rpush(list, &[id]).await;
    }
    // Before a claim fills up from the first list, it clears the fronts of the others too.
    assert_eq!(claim(&mut task, 1, 1).await, "h");
    assert_keys!(task, "wait n; wait:low l");
    assert_keys!(task, NONE);
    assert_eq!(claim(&mut task, 2, 2).await, "n l");
}

#[tokio::test]
async fn tombstones_in_the_middle_are_skipped_and_uncounted() {
    // Payloads are read at once if none can be large, else after their sizes.
    for largest in ["", "1024"] {
        let mut task = Task::with(&format!("meta largest={largest}; waits a x y b z c")).await;
        for id in ["x", "z"] {
            cancel(&mut task, id).await;
        }
        remove(&mut task, "y").await;
        assert_keys!(task, "tombstones x=1, y=1, z=1; meta.tombstones=3");
        assert_eq!(claim(&mut task, 1, 4).await, "a b");
        assert_keys!(task, "wait z c; tombstones z=1; meta.tombstones=1");
        assert_eq!(claim(&mut task, 2, 4).await, "c");
        assert_keys!(task, NONE);
        let events = task.held("events").await;
        assert_eq!(events.matches("removed").count(), 1, "a job that a person removed is not removed again: {events}");
        assert_keys!(task, "cancelled x=NOW, z=NOW");
    }
}

#[tokio::test]
async fn a_call_that_finds_only_tombstones_removes_all_of_them() {
    let mut task = Task::with("waits first x y").await;
    for id in ["x", "y"] {
        cancel(&mut task, id).await;
    }
    assert_eq!(claim(&mut task, 1, 1).await, "first");
    assert_keys!(task, "wait x y");
    assert_eq!(claim(&mut task, 2, 1).await, "''");
    assert_eq!(
        without(task.keys().await, &["error", "replies", "events", "locks", "active", "payload", "wake"]).len(),
        2
    );
    assert_keys!(task, "no wait");
    assert_keys!(task, NONE);
}

#[tokio::test]
async fn a_removed_id_that_is_dispatched_again_runs_once_in_its_place() {
    let mut task = Task::with("waits first a b").await;
    remove(&mut task, "a").await;
    dispatch(&mut task, "a").await;
    assert_keys!(task, "wait first a b a; tombstones a=1; meta.tombstones=1");
    assert_eq!(task.ok("counts", "").await, "[counted 3 0 0 0 0 0 0 0 0]");
    assert_text!(task.ok("settle", "1 w 1000 2 0 0").await, contains(" first a [{} anew] "));
    assert_keys!(task, "tombstones a=1; meta.tombstones=1", "one entry is left, and no job waits");
    assert_eq!(claim(&mut task, 2, 5).await, "b");
    assert_keys!(task, "no wait");
    assert_keys!(task, NONE);
    assert_eq!(task.held("locks").await.matches("\"a\"").count(), 1);
}

#[tokio::test]
async fn one_claim_takes_both_entries_of_an_id() {
    let mut task = Task::with("waits first a b").await;
    remove(&mut task, "a").await;
    dispatch(&mut task, "a").await;
    assert_eq!(claim(&mut task, 1, 9).await, "first a b");
    assert_keys!(task, "no wait");
    assert_keys!(task, NONE);
    let events = task.held("events").await;
    assert!(events.contains(r#"{"started": "first a b", "#) && events.matches("removed").count() == 1, "{events}");
}

#[tokio::test]
async fn an_id_may_leave_many_tombstones() {
    let mut task = Task::with("waits first").await;
    for round in 1..=3 {
        dispatch(&mut task, "a").await;
        remove(&mut task, "a").await;
        assert_keys!(task, format!("tombstones a={round}; meta.tombstones={round}"));
    }
    dispatch(&mut task, "a").await;
    assert_keys!(task, "wait first a a a a");
    assert_eq!(task.ok("counts", "").await, "[counted 2 0 0 0 0 0 0 0 0]");
    assert_eq!(claim(&mut task, 1, 3).await, "first a");
    assert_keys!(task, "tombstones a=2; meta.tombstones=2");
    assert_eq!(claim(&mut task, 2, 1).await, "''");
    assert_keys!(task, NONE);
    assert_keys!(task, "no wait");
}

#[tokio::test]
async fn an_entry_of_a_running_job_is_a_tombstone_too() {
    // It ends while its entry is in the list.
    let mut task = Task::with("waits first a b").await;
    remove(&mut task, "a").await;
    dispatch(&mut task, "a").await;
    assert_eq!(claim(&mut task, 1, 2).await, "first a");
    let fence = task.field("locks", "a").await;
    let fence = fence.strip_prefix("w:").unwrap();
    let reply = task.ok("settle", &["2", "w", "1000", "0", "0", "0", "a", fence, "requeue", "0", "", ""]).await;
    assert!(reply.starts_with("[settled '' '' "), "{reply}");
    assert_keys!(task, "wait a b a; tombstones a=1; meta.tombstones=1");
    assert_eq!(task.ok("counts", "").await, "[counted 2 0 0 1 0 0 0 0 0]");
    assert_eq!(claim(&mut task, 3, 5).await, "a b");
    assert_keys!(task, NONE);
}

#[tokio::test]
async fn a_job_that_is_cancelled_and_retried_keeps_its_place() {
    let mut task = Task::with("waits first a b").await;
    cancel(&mut task, "a").await;
    assert_eq!(task.ok("retry", "- 0 a -").await, "[told retried]");
    assert_keys!(task, "wait first a b a; tombstones a=1; meta.tombstones=1");
    assert_eq!(claim(&mut task, 1, 9).await, "first a b");
    assert_keys!(task, NONE);
    assert_keys!(task, "no enqueuedAt");
}

#[tokio::test]
async fn a_retried_job_without_its_entry_goes_to_the_back() {
    let mut task = Task::with("waits a b").await;
    cancel(&mut task, "a").await;
    assert_keys!(task, "wait b");
    assert_eq!(task.ok("retry", "- 0 a -").await, "[told retried]");
    assert_keys!(task, "wait b a");
    assert_eq!(claim(&mut task, 1, 9).await, "b a");
}

#[tokio::test]
async fn repeated_cancels_and_retries_leave_as_many_tombstones() {
    let mut task = Task::with("waits first a").await;
    for times in 1..=3 {
        cancel(&mut task, "a").await;
        assert_keys!(task, format!("tombstones a={times}; meta.tombstones={times}"));
        task.ok("retry", "- 0 a -").await;
        assert_keys!(task, format!("tombstones a={times}; meta.tombstones={times}"));
    }
    assert_keys!(task, "wait first a a a a");
    assert_eq!(task.ok("counts", "").await, "[counted 2 0 0 0 0 0 0 0 0]");
    cancel(&mut task, "a").await;
    assert_eq!(claim(&mut task, 1, 9).await, "first");
    assert_keys!(task, NONE);
}

#[tokio::test]
async fn a_removed_id_that_is_dispatched_delayed_runs_once_when_due() {
    // The old entry is at the front of its list, or in its middle.
    for at_head in [true, false] {
        let mut task = Task::with("waits first a b").await;
        remove(&mut task, "a").await;
        if at_head {
            assert_eq!(claim(&mut task, 1, 1).await, "first");
        }
        assert_eq!(task.ok("dispatch", "1 1 1 a 1 delay 1 9000000").await, "dispatched");
        assert_eq!(claim(&mut task, 2, 9).await, if at_head { "b" } else { "first b" });
        assert_keys!(task, "no wait");
        assert_keys!(task, NONE);
        assert!(task.held("delayed").await.contains("\"a\""));
        task.write("delayed a=1").await;
        assert_eq!(claim(&mut task, 3, 9).await, "a");
        assert_keys!(task, "no delayed");
    }
}

#[tokio::test]
async fn a_job_that_becomes_due_next_to_its_old_entry_runs_once() {
    let mut task = Task::with("waits first a b").await;
    remove(&mut task, "a").await;
    task.ok("dispatch", "1 1 1 a 1 delay 1 9000000").await;
    task.write("delayed a=1").await;
    assert_eq!(claim(&mut task, 1, 9).await, "first a b");
    assert_keys!(task, "no wait");
    assert_keys!(task, NONE);
}

#[tokio::test]
async fn a_cancelled_job_that_was_trimmed_is_not_dropped_by_a_claim() {
    let mut task = Task::with("meta maxCountCancelled=0; waits first a b").await;
    cancel(&mut task, "a").await;
    assert_eq!(task.ok_at("cancelled", "trim", "w Cancelled 0 200").await, "[trimmed 1 0]");
    assert_keys!(task, "payload b={}, first={}");
    assert_eq!(task.ok("counts", "").await, "[counted 2 0 0 0 0 0 0 0 0]");
    assert_eq!(claim(&mut task, 1, 9).await, "first b");
    assert_keys!(task, NONE);
    let events = task.held("events").await;
    assert_eq!(events.matches("removed").count(), 1, "{events}");
}

#[tokio::test]
async fn the_next_call_removes_a_trimmed_job_from_the_front() {
    let mut task = Task::with("meta maxCountCancelled=0; waits first a b").await;
    cancel(&mut task, "a").await;
    task.ok_at("cancelled", "trim", "w Cancelled 0 200").await;
    assert_eq!(claim(&mut task, 1, 1).await, "first");
    assert_keys!(task, "wait a b");
    assert_eq!(claim(&mut task, 2, 0).await, "''");
    assert_keys!(task, "wait b", "a call that wants no job removes tombstones too");
    assert_keys!(task, NONE);
}

#[tokio::test]
async fn a_waiting_job_at_the_front_stays_though_its_id_has_a_tombstone() {
    let mut task = Task::with("waits a x b").await;
    cancel(&mut task, "x").await;
    // A second entry of the first job, without a script.
    task.write("wait a; tombstones a=1; meta tombstones=2").await;
    assert_eq!(claim(&mut task, 1, 0).await, "''");
    assert_keys!(task, "wait a x b a");
    assert_eq!(claim(&mut task, 2, 9).await, "a b");
    assert_keys!(task, NONE);
}

#[tokio::test]
async fn an_uncounted_tombstone_runs_no_ended_job_and_keeps_counts_right() {
    let mut task = Task::with("waits first x x y a").await;
    cancel(&mut task, "x").await;
    cancel(&mut task, "y").await;
    assert_keys!(task, "tombstones x=1, y=1; meta.tombstones=2");
    assert_eq!(claim(&mut task, 1, 3).await, "first");
    assert_keys!(task, "wait y a");
    assert_keys!(task, "tombstones y=1; meta.tombstones=1", "of x one entry was counted");
    assert_eq!(claim(&mut task, 2, 3).await, "a");
    assert_keys!(task, NONE);
}

#[tokio::test]
async fn without_their_total_tombstones_are_skipped_too() {
    let mut task = Task::with("waits first a b").await;
    cancel(&mut task, "a").await;
    task.write("no meta").await;
    task.declared().await;
    assert_eq!(claim(&mut task, 1, 9).await, "first b");
    assert_keys!(task, "no wait");
}

#[tokio::test]
async fn a_call_with_a_key_of_another_type_removes_no_tombstones() {
    for key in ["tombstones", "wait", "wait:high", "locks", "enqueuedAt", "payload"] {
        let mut task = Task::with("waits first a b; payload due=1; delayed due=1").await;
        cancel(&mut task, "a").await;
        task.make_foreign(key).await;
        assert_eq!(task.refused("settle", "1 w 1000 9 0 0").await, "WRONGTYPE", "{key}");
    }
}
