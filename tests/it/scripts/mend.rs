use crate::scripts::call::{COLUMNS, Task, assert_keys, assert_rest, assert_text, without};
use crate::scripts::look::{BROKEN, fault, faults, sound};

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
        task.write(harms).await;
        let listed = listed(&mut task, id).await;
        let mended = task.ok("mend", &["anna", "9999999999999", id, &listed, known]).await;
        assert_eq!(mended, format!("[mended {known}]"), "{harms}");
        let ids = all_ids(&mut task).await;
        let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
        let left: Vec<String> = faults(&mut task, &ids).await.into_iter().filter(|fault| !fault.is_empty()).collect();
        assert!(left.is_empty(), "{harms}: {left:?}");
        let before = task.exact().await;
        let again = self::listed(&mut task, id).await;
        assert_eq!(task.ok("mend", &["anna", "9999999999999", id, &again, ""]).await, "[mended '']");
        assert_eq!(task.exact().await, before, "a repair without faults changes nothing");
    }
}

#[tokio::test]
async fn a_repair_removes_the_mark_of_an_early_begin() {
    let mut task = sound().await;
    task.write("completed heard=6; early heard=8").await;
    assert_eq!(task.ok("mend", "anna 9999999999999 heard 0 two_places").await, "[mended two_places]");
    assert_keys!(task, "no early");
}

#[tokio::test]
async fn a_job_without_payload_is_removed_with_all_its_data() {
    let mut task = sound().await;
    task.columns(COLUMNS, &["delayed"]).await;
    task.write("no payload.delayed").await;
    assert_eq!(task.ok("mend", "anna 9999999999999 delayed 0 no_payload").await, "[mended no_payload]");
    let left = without(task.keys().await, &["events"]);
    assert!(!left.iter().any(|line| line.contains("\"delayed\"")), "{left:?}");
    assert_keys!(task, "events {by=anna, removed=delayed, total=1, why=no_payload, worker=}");
}

#[tokio::test]
async fn an_entry_without_payload_becomes_a_tombstone_for_the_next_claim() {
    let mut task = Task::with("waits a b").await;
    task.write("no payload.a").await;
    let mended = task.ok("mend", "- 9999999999999 a 1 'no_payload miscounted'").await;
    assert_eq!(mended, "[mended no_payload miscounted]");
    assert_keys!(task, "tombstones a=1");
    assert_text!(task.ok("settle", "1 w 1000 1 0 0").await, contains(" b ["));
    assert_keys!(task, "no tombstones");
    assert_eq!(task.held("events").await.matches("removed").count(), 1);
}

#[tokio::test]
async fn a_job_in_two_places_keeps_its_end_or_its_lock() {
    for (harms, id, place) in [
        ("failed completed=6; cancelled completed=6", "completed", "completed"),
        ("cancelled failed=6; delayed failed=6", "failed", "failed"),
        ("delayed cancelled=6", "cancelled", "cancelled"),
        ("completed heard=6; delayed heard=6", "heard", "completed"),
    ] {
        let mut task = sound().await;
        task.write(harms).await;
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
    task.write("delayed heard=6").await;
    task.ok("mend", "- 9999999999999 heard 0 two_places").await;
    assert_keys!(task, "locks ahead=w:9, heard=w:8, silent=w:7; cancelling heard=why; delayed delayed=5");
}

#[tokio::test]
async fn jobs_in_no_place_wait_at_the_front_and_wake_a_worker() {
    let mut task = Task::with("waits z; payload a=1, b=1, l=1; priority l=low").await;
    let args = "anna 9999999999999 a 0 unplaced b 0 unplaced l 0 unplaced";
    assert_eq!(task.ok("mend", &args).await, "[mended unplaced unplaced unplaced]");
    assert_rest!(
        task,
        "payload, priority",
        "enqueuedAt a=NOW, b=NOW, l=NOW; events {by=anna, requeued=a b l, total=3, worker=}; \
         meta events=3, fence=4000000000000000; wait a b z; wait:low l; wake marker=0, spare=1"
    );
}

#[tokio::test]
async fn an_ended_job_returns_to_its_place_and_does_not_run_again() {
    let mut task = Task::with("payload done=1, broke=1, taken=1, listed=1").await;
    // A job that left a list entry when it ended stays a tombstone.
    task.write(r#"wait listed; tombstones listed=1; meta tombstones=1; error listed={"code":"cancelled"}"#).await;
    task.write(r#"result done=7; error broke={"code":"expired"}, taken={"code":"cancelled"}"#).await;
    let fault = "ended_unplaced";
    let ids = ["done", "0", fault, "broke", "0", fault, "taken", "0", fault, "listed", "1", fault];
    let args = [&["anna", "9999999999999"][..], &ids].concat();
    assert_eq!(task.ok("mend", &args).await, "[mended ended_unplaced ended_unplaced ended_unplaced ended_unplaced]");
    assert_rest!(
        task,
        "payload, result, error",
        "cancelled listed=NOW, taken=NOW; completed done=NOW; failed broke=NOW; \
         meta fence=4000000000000000, tombstones=1; tombstones listed=1; wait listed"
    );
}

#[tokio::test]
async fn a_repair_wakes_no_worker_if_paused_and_writes_events_if_on() {
    let mut task = Task::with("meta paused=1, eventMode=off; payload a=1").await;
    assert_eq!(task.ok("mend", "- 9999999999999 a 0 unplaced").await, "[mended unplaced]");
    assert_keys!(task, "no wake, events");
}

#[tokio::test]
async fn unnamed_and_outdated_faults_are_left_alone() {
    let mut task = sound().await;
    task.write("cancelling waiting=why").await;
    task.write("attempt waiting=many").await;
    assert_eq!(task.unchanged("mend", "- 9999999999999 waiting 1 'unplaced unlocked'").await, "[mended '']");
    assert_eq!(task.unchanged("mend", "- 9999999999999 heard 0 'unwatched both_sets no_payload'").await, "[mended '']");
    assert_eq!(task.ok("mend", "- 9999999999999 waiting 1 bad_counter").await, "[mended bad_counter]");
    assert_eq!(fault(&mut task, "waiting").await, "stray_cancel");
}

#[tokio::test]
async fn tombstones_are_counted_again_up_and_down() {
    let mut task = Task::with("waits a b b b; tombstones a=3; meta tombstones=3").await;
    let args = "- 9999999999999 a 1 miscounted b 3 miscounted";
    assert_eq!(task.ok("mend", &args).await, "[mended miscounted miscounted]");
    assert_keys!(task, "tombstones b=2; meta.tombstones=2");
    assert_eq!(task.ok("counts", "").await, "[counted 2 0 0 0 0 0 0 0 0]");
}

#[tokio::test]
async fn a_retried_job_without_its_entry_waits_and_is_counted_again() {
    let mut task = Task::with("waits first a").await;
    task.ok("cancel", "why channel - a -").await;
    task.write("no wait").await;
    assert_eq!(task.ok("retry", "- 0 a -").await, "[told retried]");
    assert_keys!(task, "wait a", "it waits with any count");
    assert_eq!(fault(&mut task, "a").await, "miscounted");
    task.ok("mend", "- 9999999999999 a 1 miscounted").await;
    assert_eq!(fault(&mut task, "a").await, "");
}

#[tokio::test]
async fn a_node_that_returns_to_a_place_is_in_the_outbox_again() {
    let mut task = sound().await;
    task.write("payload ~f/a/0/1={}; result ~f/a/0/1=7").await;
    let fault = fault(&mut task, "~f/a/0/1").await;
    assert_eq!(task.ok("mend", &["anna", "9999999999999", "~f/a/0/1", "0", &fault]).await, format!("[mended {fault}]"));
    let place = ["completed", "failed", "cancelled"];
    let mut ended = false;
    for place in place {
        ended |= task.held(place).await.contains("~f/a/0/1");
    }
    assert_eq!(task.held("outbox").await.contains("~f/a/0/1"), ended, "{fault}");
    assert!(ended || task.list("wait").await.contains(&"~f/a/0/1".to_owned()), "{fault}");
}
