use crate::scripts::call::{Task, without};
use crate::scripts::look::{BROKEN, fault, faults, harm, sound};

/// The number of list entries of the id.
async fn listed(task: &mut Task, id: &str) -> String {
    let mut count = 0;
    for list in ["wait:high", "wait", "wait:low"] {
        count += task.list(list).await.iter().filter(|entry| *entry == id).count();
    }
    count.to_string()
}

/// Every id under any key.
async fn all_ids(task: &mut Task) -> Vec<String> {
    let mut ids = std::collections::BTreeSet::new();
    for list in ["wait:high", "wait", "wait:low"] {
        ids.extend(task.list(list).await);
    }
    for (key, _) in task.exact().await {
        let key = key.strip_prefix(&task.prefix).unwrap().to_owned();
        if !["meta", "replies", "wake", "events", "stalls"].contains(&key.as_str()) {
            let reply = task.eval(task.script("scan").source, &[task.key(&key)], &["0", "1000"]).await.unwrap();
            let (_, names) = reply.trim_end_matches(']').rsplit_once('[').unwrap();
            ids.extend(names.split_whitespace().map(str::to_owned));
        }
    }
    ids.into_iter().collect()
}

#[tokio::test]
async fn each_fault_is_repaired_and_a_second_look_finds_none() {
    for (id, harms, known) in BROKEN {
        let mut task = sound().await;
        for line in harms {
            harm(&mut task, line).await;
        }
        let listed = listed(&mut task, id).await;
        let mended = task.ok("mend", &["anna", "9999999999999", id, &listed, known]).await;
        assert_eq!(mended, format!("[mended {known}]"), "{harms:?}");
        let ids = all_ids(&mut task).await;
        let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
        let left: Vec<String> = faults(&mut task, &ids).await.into_iter().filter(|fault| !fault.is_empty()).collect();
        assert!(left.is_empty(), "{harms:?}: {left:?}");
        let before = task.exact().await;
        let again = self::listed(&mut task, id).await;
        assert_eq!(task.ok("mend", &["anna", "9999999999999", id, &again, ""]).await, "[mended '']");
        assert_eq!(task.exact().await, before, "a repair without faults changes nothing");
    }
}

#[tokio::test]
async fn a_job_without_payload_is_removed_with_all_its_data() {
    let mut task = sound().await;
    for column in
        ["attempt", "stalledCount", "result", "error", "options", "maxCount", "priority", "dispatchedAt", "snoozes"]
    {
        task.hset(column, &[("delayed", "1")]).await;
    }
    harm(&mut task, "HDEL payload delayed").await;
    assert_eq!(task.ok("mend", &["anna", "9999999999999", "delayed", "0", "no_payload"]).await, "[mended no_payload]");
    let left = without(task.keys().await, &["events"]);
    assert!(!left.iter().any(|line| line.contains("\"delayed\"")), "{left:?}");
    assert_eq!(
        task.held("events").await,
        r#"stream [NOW {"by": "anna", "removed": "delayed", "total": "1", "why": "no_payload", "worker": ""}]"#
    );
}

#[tokio::test]
async fn an_entry_without_payload_becomes_a_tombstone_for_the_next_claim() {
    let mut task = Task::new().await;
    task.waiting(&["a", "b"]).await;
    harm(&mut task, "HDEL payload a").await;
    let mended = task.ok("mend", &["", "9999999999999", "a", "1", "no_payload miscounted"]).await;
    assert_eq!(mended, "[mended no_payload miscounted]");
    assert_eq!(task.held("tombstones").await, r#"hash {"a": "1"}"#);
    let reply = task.ok("settle", &["1", "w", "1000", "1", "0", "0"]).await;
    assert!(reply.contains(" b ["), "{reply}");
    assert_eq!(task.held("tombstones").await, "");
    assert_eq!(task.held("events").await.matches("removed").count(), 1);
}

#[tokio::test]
async fn the_more_informative_place_wins() {
    for (harms, id, place) in [
        (&["ZADD failed 6 completed", "ZADD cancelled 6 completed"][..], "completed", "completed"),
        (&["ZADD cancelled 6 failed", "ZADD delayed 6 failed"], "failed", "failed"),
        (&["ZADD delayed 6 cancelled"], "cancelled", "cancelled"),
        (&["ZADD completed 6 heard", "ZADD delayed 6 heard"], "heard", "completed"),
    ] {
        let mut task = sound().await;
        for line in harms {
            harm(&mut task, line).await;
        }
        task.ok("mend", &["", "9999999999999", id, "0", "two_places"]).await;
        for other in ["delayed", "completed", "failed", "cancelled"] {
            assert_eq!(task.held(other).await.contains(&format!("{id:?}")), other == place, "{id} in {other}");
        }
        for held in ["locks", "active", "candidates", "cancelling"] {
            assert!(!task.held(held).await.contains(&format!("{id:?}")), "{id} has ended");
        }
    }
    // A worker keeps its job even if `delayed` has an entry.
    let mut task = sound().await;
    harm(&mut task, "ZADD delayed 6 heard").await;
    task.ok("mend", &["", "9999999999999", "heard", "0", "two_places"]).await;
    assert_eq!(task.held("locks").await, r#"hash {"ahead": "w:9", "heard": "w:8", "silent": "w:7"}"#);
    assert_eq!(task.held("cancelling").await, r#"hash {"heard": "why"}"#);
    assert_eq!(task.held("delayed").await, r#"zset ["delayed": 5]"#);
}

#[tokio::test]
async fn jobs_in_no_place_wait_at_the_front_and_wake_a_worker() {
    let mut task = Task::new().await;
    task.waiting(&["z"]).await;
    task.hset("payload", &[("a", "1"), ("b", "1"), ("l", "1")]).await;
    task.hset("priority", &[("l", "low")]).await;
    let args = ["anna", "9999999999999", "a", "0", "unplaced", "b", "0", "unplaced", "l", "0", "unplaced"];
    assert_eq!(task.ok("mend", &args).await, "[mended unplaced unplaced unplaced]");
    assert_eq!(
        without(task.keys().await, &["payload", "priority"]),
        [
            r#"enqueuedAt hash {"a": "NOW", "b": "NOW", "l": "NOW"}"#,
            r#"events stream [NOW {"by": "anna", "requeued": "a b l", "total": "3", "worker": ""}]"#,
            r#"meta hash {"events": "3", "fence": "4000000000000000"}"#,
            r#"wait list ["a", "b", "z"]"#,
            r#"wait:low list ["l"]"#,
            r#"wake zset ["marker": 0, "spare": 1]"#,
        ]
    );
}

#[tokio::test]
async fn an_ended_job_returns_to_its_place_and_does_not_run_again() {
    let mut task = Task::new().await;
    task.hset("payload", &[("done", "1"), ("broke", "1"), ("taken", "1"), ("listed", "1")]).await;
    // A job that left a list entry when it ended stays a tombstone.
    task.rpush("wait", &["listed"]).await;
    task.hset("tombstones", &[("listed", "1")]).await;
    task.hset("meta", &[("tombstones", "1")]).await;
    task.hset("error", &[("listed", r#"{"code":"cancelled"}"#)]).await;
    task.hset("result", &[("done", "7")]).await;
    task.hset("error", &[("broke", r#"{"code":"expired"}"#), ("taken", r#"{"code":"cancelled"}"#)]).await;
    let fault = "ended_unplaced";
    let ids = ["done", "0", fault, "broke", "0", fault, "taken", "0", fault, "listed", "1", fault];
    let args = [&["anna", "9999999999999"][..], &ids].concat();
    assert_eq!(task.ok("mend", &args).await, "[mended ended_unplaced ended_unplaced ended_unplaced ended_unplaced]");
    assert_eq!(
        without(task.keys().await, &["payload", "result", "error"]),
        [
            r#"cancelled zset ["listed": NOW, "taken": NOW]"#,
            r#"completed zset ["done": NOW]"#,
            r#"failed zset ["broke": NOW]"#,
            r#"meta hash {"fence": "4000000000000000", "tombstones": "1"}"#,
            r#"tombstones hash {"listed": "1"}"#,
            r#"wait list ["listed"]"#,
        ]
    );
}

#[tokio::test]
async fn a_repair_wakes_no_worker_if_paused_and_writes_events_if_on() {
    let mut task = Task::new().await;
    task.hset("meta", &[("paused", "1"), ("eventMode", "off")]).await;
    task.hset("payload", &[("a", "1")]).await;
    assert_eq!(task.ok("mend", &["", "9999999999999", "a", "0", "unplaced"]).await, "[mended unplaced]");
    assert_eq!(task.held("wake").await, "");
    assert_eq!(task.held("events").await, "");
}

#[tokio::test]
async fn unnamed_and_outdated_faults_are_left_alone() {
    let mut task = sound().await;
    harm(&mut task, "HSET cancelling waiting why").await;
    harm(&mut task, "HSET attempt waiting many").await;
    let before = task.exact().await;
    assert_eq!(task.ok("mend", &["", "9999999999999", "waiting", "1", "unplaced unlocked"]).await, "[mended '']");
    assert_eq!(
        task.ok("mend", &["", "9999999999999", "heard", "0", "unwatched both_sets no_payload"]).await,
        "[mended '']"
    );
    assert_eq!(task.exact().await, before);
    assert_eq!(task.ok("mend", &["", "9999999999999", "waiting", "1", "bad_counter"]).await, "[mended bad_counter]");
    assert_eq!(fault(&mut task, "waiting").await, "stray_cancel");
}

#[tokio::test]
async fn tombstones_are_counted_again_up_and_down() {
    let mut task = Task::new().await;
    task.waiting(&["a", "b", "b", "b"]).await;
    task.hset("tombstones", &[("a", "3")]).await;
    task.hset("meta", &[("tombstones", "3")]).await;
    let args = ["", "9999999999999", "a", "1", "miscounted", "b", "3", "miscounted"];
    assert_eq!(task.ok("mend", &args).await, "[mended miscounted miscounted]");
    assert_eq!(task.held("tombstones").await, r#"hash {"b": "2"}"#);
    assert_eq!(task.field("meta", "tombstones").await, "2");
    assert_eq!(task.ok("counts", &[]).await, "[counted 2 0 0 0 0 0 0 0 0]");
}

#[tokio::test]
async fn a_retried_job_without_its_entry_waits_and_is_counted_again() {
    let mut task = Task::new().await;
    task.waiting(&["first", "a"]).await;
    task.ok("cancel", &["why", "channel", "", "a", ""]).await;
    task.del("wait").await;
    assert_eq!(task.ok("retry", &["", "a", ""]).await, "[told retried]");
    assert_eq!(task.list("wait").await, ["a"], "it waits with any count");
    assert_eq!(fault(&mut task, "a").await, "miscounted");
    task.ok("mend", &["", "9999999999999", "a", "1", "miscounted"]).await;
    assert_eq!(fault(&mut task, "a").await, "");
}

#[tokio::test]
async fn nothing_is_repaired_if_a_key_has_another_type() {
    for key in ["locks", "wait", "attempt", "enqueuedAt", "meta", "tombstones", "active", "completed", "cancelling"] {
        let mut task = sound().await;
        harm(&mut task, "HDEL payload delayed").await;
        task.make_foreign(key).await;
        let before = task.exact().await;
        assert_eq!(
            task.refused("mend", &["", "9999999999999", "delayed", "0", "no_payload"]).await,
            "WRONGTYPE",
            "{key}"
        );
        assert_eq!(task.exact().await, before, "{key}");
    }
}

#[tokio::test]
async fn a_node_that_returns_to_a_place_is_in_the_outbox_again() {
    let mut task = sound().await;
    task.hset("payload", &[("~f/a/0/1", "{}")]).await;
    task.hset("result", &[("~f/a/0/1", "7")]).await;
    let fault = fault(&mut task, "~f/a/0/1").await;
    let reply = task.ok("mend", &["anna", "9999999999999", "~f/a/0/1", "0", &fault]).await;
    assert_eq!(reply, format!("[mended {fault}]"));
    let place = ["completed", "failed", "cancelled"];
    let mut ended = false;
    for place in place {
        ended |= task.held(place).await.contains("~f/a/0/1");
    }
    assert_eq!(task.held("outbox").await.contains("~f/a/0/1"), ended, "{fault}");
    assert!(ended || task.list("wait").await.contains(&"~f/a/0/1".to_owned()), "{fault}");
}
