//! Tombstones: list entries whose job no longer waits there, and how settle treats them.

use crate::scripts::call::{Task, without};

/// Claims up to `want` jobs in the call with that number, and returns their ids.
async fn claim(task: &mut Task, call: u32, want: usize) -> String {
    let reply = task.ok("settle", &[&call.to_string(), "w", "1000", &want.to_string(), "0", "0"]).await;
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

/// The contents of `tombstones`, and their number in `meta`.
async fn tombstones(task: &mut Task) -> (String, String) {
    (task.held("tombstones").await, task.field("meta", "tombstones").await)
}

fn none() -> (String, String) {
    (String::new(), "0".to_owned())
}

/// Tombstones of cancelled jobs, without a script: `count` of them at the front of the list.
async fn leading(task: &mut Task, list: &str, count: usize) -> Vec<String> {
    let ids: Vec<String> = (0..count).map(|number| format!("{list}-{number:04}")).collect();
    let before = task.field("meta", "tombstones").await.parse::<usize>().unwrap();
    for id in &ids {
        task.hset("payload", &[(id, "{}")]).await;
        task.hset("tombstones", &[(id, "1")]).await;
        task.zadd("cancelled", 1.0, id).await;
    }
    task.rpush(list, &ids.iter().map(String::as_str).collect::<Vec<_>>()).await;
    task.hset("meta", &[("tombstones", &(before + count).to_string())]).await;
    ids
}

#[tokio::test]
async fn a_claim_removes_200_tombstones_and_skips_as_many_as_it_wants() {
    let mut task = Task::new().await;
    task.hset("meta", &[("tombstones", "0")]).await;
    let ids = leading(&mut task, "wait", 450).await;
    task.waiting(&["a", "b"]).await;
    for (call, left) in [(1, 249), (2, 48)] {
        task.del("wake").await;
        assert_eq!(claim(&mut task, call, 1).await, "''", "call {call}");
        assert_eq!(task.list("wait").await[..left], ids[450 - left..]);
        assert_eq!(task.field("meta", "tombstones").await, left.to_string());
        assert_eq!(task.held("tombstones").await.matches(r#": "1""#).count(), left);
        assert_eq!(task.held("wake").await, r#"zset ["marker": 0, "spare": 1]"#, "jobs are left");
        assert_eq!(task.ok("counts", &[]).await, "[counted 2 0 0 0 0 0 0 450 0]");
    }
    assert_eq!(claim(&mut task, 3, 1).await, "a");
    assert_eq!(task.list("wait").await, ["b"]);
    assert_eq!(tombstones(&mut task).await, none());
}

#[tokio::test]
async fn tombstones_of_each_list_are_removed_from_its_own_front() {
    let mut task = Task::new().await;
    task.hset("meta", &[("tombstones", "0")]).await;
    for (list, id) in [("wait:high", "h"), ("wait", "n"), ("wait:low", "l")] {
        leading(&mut task, list, 3).await;
        task.hset("payload", &[(id, "{}")]).await;
        task.rpush(list, &[id]).await;
    }
    // Before a claim fills up from the first list, it clears the fronts of the others too.
    assert_eq!(claim(&mut task, 1, 1).await, "h");
    assert_eq!(task.list("wait").await, ["n"]);
    assert_eq!(task.list("wait:low").await, ["l"]);
    assert_eq!(tombstones(&mut task).await, none());
    assert_eq!(claim(&mut task, 2, 2).await, "n l");
}

#[tokio::test]
async fn tombstones_in_the_middle_are_skipped_and_uncounted() {
    // Payloads are read at once if none can be large, else after their sizes.
    for largest in ["", "1024"] {
        let mut task = Task::new().await;
        task.hset("meta", &[("largest", largest)]).await;
        task.waiting(&["a", "x", "y", "b", "z", "c"]).await;
        for id in ["x", "z"] {
            cancel(&mut task, id).await;
        }
        remove(&mut task, "y").await;
        assert_eq!(tombstones(&mut task).await, (r#"hash {"x": "1", "y": "1", "z": "1"}"#.into(), "3".into()));
        assert_eq!(claim(&mut task, 1, 4).await, "a b");
        assert_eq!(task.list("wait").await, ["z", "c"]);
        assert_eq!(tombstones(&mut task).await, (r#"hash {"z": "1"}"#.into(), "1".into()));
        assert_eq!(claim(&mut task, 2, 4).await, "c");
        assert_eq!(tombstones(&mut task).await, none());
        let events = task.held("events").await;
        assert_eq!(events.matches("removed").count(), 1, "a job that a person removed is not removed again: {events}");
        assert_eq!(task.held("cancelled").await, r#"zset ["x": NOW, "z": NOW]"#);
    }
}

#[tokio::test]
async fn a_call_that_finds_only_tombstones_removes_all_of_them() {
    let mut task = Task::new().await;
    task.waiting(&["first", "x", "y"]).await;
    for id in ["x", "y"] {
        cancel(&mut task, id).await;
    }
    assert_eq!(claim(&mut task, 1, 1).await, "first");
    assert_eq!(task.list("wait").await, ["x", "y"]);
    assert_eq!(claim(&mut task, 2, 1).await, "''");
    assert_eq!(
        without(task.keys().await, &["error", "replies", "events", "locks", "active", "payload", "wake"]).len(),
        2
    );
    assert_eq!(task.held("wait").await, "");
    assert_eq!(tombstones(&mut task).await, none());
}

#[tokio::test]
async fn a_removed_id_that_is_dispatched_again_runs_once_in_its_place() {
    let mut task = Task::new().await;
    task.waiting(&["first", "a", "b"]).await;
    remove(&mut task, "a").await;
    dispatch(&mut task, "a").await;
    assert_eq!(task.list("wait").await, ["first", "a", "b", "a"]);
    assert_eq!(tombstones(&mut task).await, (r#"hash {"a": "1"}"#.into(), "1".into()));
    assert_eq!(task.ok("counts", &[]).await, "[counted 3 0 0 0 0 0 0 0 0]");
    let reply = task.ok("settle", &["1", "w", "1000", "2", "0", "0"]).await;
    assert!(reply.contains(" first a [{} anew] "), "{reply}");
    assert_eq!(
        tombstones(&mut task).await,
        (r#"hash {"a": "1"}"#.into(), "1".into()),
        "one entry is left, and no job waits"
    );
    assert_eq!(claim(&mut task, 2, 5).await, "b");
    assert_eq!(task.held("wait").await, "");
    assert_eq!(tombstones(&mut task).await, none());
    assert_eq!(task.held("locks").await.matches("\"a\"").count(), 1);
}

#[tokio::test]
async fn one_claim_takes_both_entries_of_an_id() {
    let mut task = Task::new().await;
    task.waiting(&["first", "a", "b"]).await;
    remove(&mut task, "a").await;
    dispatch(&mut task, "a").await;
    assert_eq!(claim(&mut task, 1, 9).await, "first a b");
    assert_eq!(task.held("wait").await, "");
    assert_eq!(tombstones(&mut task).await, none());
    let events = task.held("events").await;
    assert!(events.contains(r#"{"started": "first a b", "#) && events.matches("removed").count() == 1, "{events}");
}

#[tokio::test]
async fn an_id_may_leave_many_tombstones() {
    let mut task = Task::new().await;
    task.waiting(&["first"]).await;
    for round in 1..=3 {
        dispatch(&mut task, "a").await;
        remove(&mut task, "a").await;
        assert_eq!(tombstones(&mut task).await, (format!(r#"hash {{"a": "{round}"}}"#), round.to_string()));
    }
    dispatch(&mut task, "a").await;
    assert_eq!(task.list("wait").await, ["first", "a", "a", "a", "a"]);
    assert_eq!(task.ok("counts", &[]).await, "[counted 2 0 0 0 0 0 0 0 0]");
    assert_eq!(claim(&mut task, 1, 3).await, "first a");
    assert_eq!(tombstones(&mut task).await, (r#"hash {"a": "2"}"#.into(), "2".into()));
    assert_eq!(claim(&mut task, 2, 1).await, "''");
    assert_eq!(tombstones(&mut task).await, none());
    assert_eq!(task.held("wait").await, "");
}

#[tokio::test]
async fn an_entry_of_a_running_job_is_a_tombstone_too() {
    let mut task = Task::new().await;
    task.waiting(&["first", "a", "b"]).await;
    remove(&mut task, "a").await;
    dispatch(&mut task, "a").await;
    assert_eq!(claim(&mut task, 1, 3).await, "first a b");
    // Another one after it in the same way, which ends while its entry is in the list.
    let mut task = Task::new().await;
    task.waiting(&["first", "a", "b"]).await;
    remove(&mut task, "a").await;
    dispatch(&mut task, "a").await;
    assert_eq!(claim(&mut task, 1, 2).await, "first a");
    let fence = task.field("locks", "a").await;
    let fence = fence.strip_prefix("w:").unwrap();
    let reply = task.ok("settle", &["2", "w", "1000", "0", "0", "0", "a", fence, "requeue", "0", "", ""]).await;
    assert!(reply.starts_with("[settled '' '' "), "{reply}");
    assert_eq!(task.list("wait").await, ["a", "b", "a"]);
    assert_eq!(tombstones(&mut task).await, (r#"hash {"a": "1"}"#.into(), "1".into()));
    assert_eq!(task.ok("counts", &[]).await, "[counted 2 0 0 1 0 0 0 0 0]");
    assert_eq!(claim(&mut task, 3, 5).await, "a b");
    assert_eq!(tombstones(&mut task).await, none());
}

#[tokio::test]
async fn a_job_that_is_cancelled_and_retried_keeps_its_place() {
    let mut task = Task::new().await;
    task.waiting(&["first", "a", "b"]).await;
    cancel(&mut task, "a").await;
    assert_eq!(task.ok("retry", &["", "a", ""]).await, "[told retried]");
    assert_eq!(task.list("wait").await, ["first", "a", "b", "a"]);
    assert_eq!(tombstones(&mut task).await, (r#"hash {"a": "1"}"#.into(), "1".into()));
    assert_eq!(claim(&mut task, 1, 9).await, "first a b");
    assert_eq!(tombstones(&mut task).await, none());
    assert_eq!(task.held("enqueuedAt").await, "");
}

#[tokio::test]
async fn a_retried_job_without_its_entry_goes_to_the_back() {
    let mut task = Task::new().await;
    task.waiting(&["a", "b"]).await;
    cancel(&mut task, "a").await;
    assert_eq!(task.list("wait").await, ["b"]);
    assert_eq!(task.ok("retry", &["", "a", ""]).await, "[told retried]");
    assert_eq!(task.list("wait").await, ["b", "a"]);
    assert_eq!(claim(&mut task, 1, 9).await, "b a");
}

#[tokio::test]
async fn repeated_cancels_and_retries_leave_as_many_tombstones() {
    let mut task = Task::new().await;
    task.waiting(&["first", "a"]).await;
    for times in 1..=3 {
        cancel(&mut task, "a").await;
        assert_eq!(tombstones(&mut task).await, (format!(r#"hash {{"a": "{times}"}}"#), times.to_string()));
        task.ok("retry", &["", "a", ""]).await;
        assert_eq!(tombstones(&mut task).await, (format!(r#"hash {{"a": "{times}"}}"#), times.to_string()));
    }
    assert_eq!(task.list("wait").await, ["first", "a", "a", "a", "a"]);
    assert_eq!(task.ok("counts", &[]).await, "[counted 2 0 0 0 0 0 0 0 0]");
    cancel(&mut task, "a").await;
    assert_eq!(claim(&mut task, 1, 9).await, "first");
    assert_eq!(tombstones(&mut task).await, none());
}

#[tokio::test]
async fn a_removed_id_that_is_dispatched_delayed_runs_once_when_due() {
    // The old entry is at the front of its list, or in its middle.
    for at_head in [true, false] {
        let mut task = Task::new().await;
        task.waiting(&["first", "a", "b"]).await;
        remove(&mut task, "a").await;
        if at_head {
            assert_eq!(claim(&mut task, 1, 1).await, "first");
        }
        assert_eq!(task.ok("dispatch", &["1", "1", "1", "a", "1", "delay", "1", "9000000"]).await, "dispatched");
        let claimed = claim(&mut task, 2, 9).await;
        assert_eq!(claimed, if at_head { "b" } else { "first b" });
        assert_eq!(task.held("wait").await, "");
        assert_eq!(tombstones(&mut task).await, none());
        assert!(task.held("delayed").await.contains("\"a\""));
        task.zadd("delayed", 1.0, "a").await;
        assert_eq!(claim(&mut task, 3, 9).await, "a");
        assert_eq!(task.held("delayed").await, "");
    }
}

#[tokio::test]
async fn a_job_that_becomes_due_next_to_its_old_entry_runs_once() {
    let mut task = Task::new().await;
    task.waiting(&["first", "a", "b"]).await;
    remove(&mut task, "a").await;
    task.ok("dispatch", &["1", "1", "1", "a", "1", "delay", "1", "9000000"]).await;
    task.zadd("delayed", 1.0, "a").await;
    assert_eq!(claim(&mut task, 1, 9).await, "first a b");
    assert_eq!(task.held("wait").await, "");
    assert_eq!(tombstones(&mut task).await, none());
}

#[tokio::test]
async fn a_cancelled_job_that_was_trimmed_is_not_dropped_by_a_claim() {
    let mut task = Task::new().await;
    task.hset("meta", &[("maxCountCancelled", "0")]).await;
    task.waiting(&["first", "a", "b"]).await;
    cancel(&mut task, "a").await;
    let mut keys = task.script("trim").keys.clone();
    keys[0] = "cancelled";
    assert_eq!(task.call_on("trim", &keys, &["w", "Cancelled", "0", "200"]).await.unwrap(), "[trimmed 1 0]");
    assert_eq!(task.held("payload").await, r#"hash {"b": "{}", "first": "{}"}"#);
    assert_eq!(task.ok("counts", &[]).await, "[counted 2 0 0 0 0 0 0 0 0]");
    assert_eq!(claim(&mut task, 1, 9).await, "first b");
    assert_eq!(tombstones(&mut task).await, none());
    let events = task.held("events").await;
    assert_eq!(events.matches("removed").count(), 1, "{events}");
}

#[tokio::test]
async fn the_next_call_removes_a_trimmed_job_from_the_front() {
    let mut task = Task::new().await;
    task.hset("meta", &[("maxCountCancelled", "0")]).await;
    task.waiting(&["first", "a", "b"]).await;
    cancel(&mut task, "a").await;
    let mut keys = task.script("trim").keys.clone();
    keys[0] = "cancelled";
    task.call_on("trim", &keys, &["w", "Cancelled", "0", "200"]).await.unwrap();
    assert_eq!(claim(&mut task, 1, 1).await, "first");
    assert_eq!(task.list("wait").await, ["a", "b"]);
    assert_eq!(claim(&mut task, 2, 0).await, "''");
    assert_eq!(task.list("wait").await, ["b"], "a call that wants no job removes tombstones too");
    assert_eq!(tombstones(&mut task).await, none());
}

#[tokio::test]
async fn a_waiting_job_at_the_front_stays_though_its_id_has_a_tombstone() {
    let mut task = Task::new().await;
    task.waiting(&["a", "x", "b"]).await;
    cancel(&mut task, "x").await;
    // A second entry of the first job, without a script.
    task.rpush("wait", &["a"]).await;
    task.hset("tombstones", &[("a", "1")]).await;
    task.hset("meta", &[("tombstones", "2")]).await;
    assert_eq!(claim(&mut task, 1, 0).await, "''");
    assert_eq!(task.list("wait").await, ["a", "x", "b", "a"]);
    assert_eq!(claim(&mut task, 2, 9).await, "a b");
    assert_eq!(tombstones(&mut task).await, none());
}

#[tokio::test]
async fn an_uncounted_tombstone_runs_no_ended_job_and_keeps_counts_right() {
    let mut task = Task::new().await;
    task.waiting(&["first", "x", "x", "y", "a"]).await;
    cancel(&mut task, "x").await;
    cancel(&mut task, "y").await;
    assert_eq!(tombstones(&mut task).await, (r#"hash {"x": "1", "y": "1"}"#.into(), "2".into()));
    assert_eq!(claim(&mut task, 1, 3).await, "first");
    assert_eq!(task.list("wait").await, ["y", "a"]);
    assert_eq!(tombstones(&mut task).await, (r#"hash {"y": "1"}"#.into(), "1".into()), "of x one entry was counted");
    assert_eq!(claim(&mut task, 2, 3).await, "a");
    assert_eq!(tombstones(&mut task).await, none());
}

#[tokio::test]
async fn without_their_total_tombstones_are_skipped_too() {
    let mut task = Task::new().await;
    task.waiting(&["first", "a", "b"]).await;
    cancel(&mut task, "a").await;
    task.del("meta").await;
    task.declared().await;
    assert_eq!(claim(&mut task, 1, 9).await, "first b");
    assert_eq!(task.held("wait").await, "");
}

#[tokio::test]
async fn a_call_with_a_key_of_another_type_removes_no_tombstones() {
    for key in ["tombstones", "wait", "wait:high", "locks", "enqueuedAt", "payload"] {
        let mut task = Task::new().await;
        task.waiting(&["first", "a", "b"]).await;
        task.hset("payload", &[("due", "1")]).await;
        cancel(&mut task, "a").await;
        task.zadd("delayed", 1.0, "due").await;
        task.make_foreign(key).await;
        let before = task.exact().await;
        assert_eq!(task.refused("settle", &["1", "w", "1000", "9", "0", "0"]).await, "WRONGTYPE", "{key}");
        assert_eq!(task.exact().await, before, "{key}");
    }
}

#[tokio::test]
async fn a_repeated_call_removes_no_more_tombstones() {
    let mut task = Task::new().await;
    task.waiting(&["first", "a", "b", "c"]).await;
    cancel(&mut task, "a").await;
    let args = ["1", "w", "1000", "1", "0", "0"];
    let reply = task.ok("settle", &args).await;
    let before = task.exact().await;
    assert_eq!(task.ok("settle", &args).await, reply);
    assert_eq!(task.exact().await, before);
}
