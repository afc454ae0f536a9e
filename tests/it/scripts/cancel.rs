use crate::scripts::call::{Task, assert_keys, assert_rest, unchanged};

/// Arguments: a reason, a channel, no name of a person, and the jobs in any place.
async fn cancel(task: &mut Task, ids: &[&str]) -> String {
    let mut args = vec!["why", "channel", ""];
    args.extend(ids.iter().flat_map(|id| [*id, ""]));
    task.ok("cancel", &args).await
}

#[tokio::test]
async fn a_waiting_job_is_cancelled_and_leaves_a_tombstone() {
    let mut task = Task::with("waits a b c").await;
    assert_eq!(task.ok("cancel", "'no longer needed' channel - b -").await, "[told ended]");
    assert_rest!(
        task,
        "error",
        "cancelled b=NOW; events {cancelled=b, total=1, worker=}; meta events=1, fence=4000000000000000, tombstones=1; \
         payload a={}, b={}, c={}; tombstones b=1; wait a b c"
    );
    let error: serde_json::Value = serde_json::from_str(&task.field("error", "b").await).unwrap();
    assert_eq!(error, serde_json::json!({"code": "cancelled", "message": "no longer needed"}));
}

#[tokio::test]
async fn cancelling_the_first_job_also_removes_the_tombstones_after_it() {
    let mut task = Task::with("waits a b c d").await;
    assert_eq!(cancel(&mut task, &["c"]).await, "[told ended]");
    assert_eq!(cancel(&mut task, &["b"]).await, "[told ended]");
    assert_keys!(task, "tombstones b=1, c=1; meta.tombstones=2");
    assert_eq!(cancel(&mut task, &["a"]).await, "[told ended]");
    assert_keys!(task, "wait d; no tombstones; meta.tombstones=0");
}

#[tokio::test]
async fn a_first_job_is_removed_from_the_list_of_its_priority() {
    for (priority, list) in [("high", "wait:high"), ("low", "wait:low"), ("normal", "wait")] {
        let mut task = Task::with("payload a=1").await;
        task.hset("priority", &[("a", priority)]).await;
        task.rpush(list, &["a"]).await;
        assert_eq!(cancel(&mut task, &["a"]).await, "[told ended]");
        assert_keys!(task, format!("no {list}"), "{priority}");
        assert_keys!(task, "cancelled a=NOW");
    }
}

#[tokio::test]
async fn one_call_removes_at_most_200_tombstones_from_a_list() {
    let mut task = Task::new().await;
    let ids: Vec<String> = (1000..1451).map(|number| number.to_string()).collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    task.waiting(&ids).await;
    // From the second job on: the first one keeps all of them in the list.
    for part in ids[1..450].chunks(200) {
        cancel(&mut task, part).await;
    }
    assert_keys!(task, "meta.tombstones=449");
    cancel(&mut task, &ids[..1]).await;
    assert_keys!(task, "meta.tombstones=250");
    assert_eq!(task.list("wait").await, ids[200..]);
    assert_eq!(task.ok("counts", "").await, "[counted 1 0 0 0 0 0 0 450 0]");
}

#[tokio::test]
async fn a_delayed_job_is_cancelled_at_once() {
    let mut task = Task::with("payload a=1; delayed a=9e12").await;
    assert_eq!(cancel(&mut task, &["a"]).await, "[told ended]");
    assert_keys!(task, "no delayed; cancelled a=NOW");
    assert_keys!(task, "no tombstones", "it was in no list");
}

#[tokio::test]
async fn a_running_job_gets_a_cancel_flag_with_the_first_reason() {
    let mut task = Task::with("runs w: a=7").await;
    assert_eq!(task.ok("cancel", "first channel - a -").await, "[told requested]");
    assert_keys!(task, "cancelling a=first; active a");
    assert_eq!(task.unchanged("cancel", "second channel - a -").await, "[told requested]");
}

#[tokio::test]
async fn the_keeper_of_each_running_job_gets_a_hint() {
    let mut task = Task::with("runs w: a=7, b=8").await;
    let client = redis::Client::open(task.url()).unwrap();
    let mut hints = client.get_async_pubsub().await.unwrap();
    let channel = task.key("cancel");
    hints.subscribe(&channel).await.unwrap();
    let mut hints = hints.into_on_message();
    task.ok("cancel", &["", &channel, "", "a", "", "b", ""]).await;
    for id in ["a", "b"] {
        let hint = tokio::time::timeout(crate::support::PATIENCE, futures_util::StreamExt::next(&mut hints)).await;
        assert_eq!(hint.unwrap().unwrap().get_payload_bytes(), id.as_bytes());
    }
}

#[tokio::test]
async fn a_terminal_job_returns_its_state_and_a_missing_one_unknown() {
    let mut task = Task::new().await;
    for place in ["completed", "failed", "cancelled"] {
        task.write(&format!("{place} {place}=1; payload {place}=1")).await;
    }
    let told = task.unchanged("cancel", "why channel - completed - absent - failed - cancelled -").await;
    assert_eq!(told, "[told completed unknown failed cancelled]");
}

#[tokio::test]
async fn many_jobs_are_returned_in_order_and_share_one_event() {
    let mut task = Task::with("waits first w-1 w-2; runs w: run=7; payload late=1, old=1; delayed late=9e12").await;
    task.write("completed old=1").await;
    let jobs = ["w-2", "", "run", "", "absent", "", "late", "", "old", "", "w-1", ""];
    let args = [&["why", "channel", "anna"], &jobs[..]].concat();
    assert_eq!(task.ok("cancel", &args).await, "[told ended requested unknown ended completed ended]");
    assert_rest!(
        task,
        "error, payload, locks, active",
        "cancelled late=NOW, w-1=NOW, w-2=NOW; cancelling run=why; completed old=1; \
         events {by=anna, cancelled=w-2 late w-1, total=3, worker=}; \
         meta events=3, fence=4000000000000000, tombstones=2; tombstones w-1=1, w-2=1; wait first w-1 w-2"
    );
    assert_eq!(task.totals().await, ["", "3"], "a flagged job has not ended");
}

#[tokio::test]
async fn a_job_with_another_stamp_returns_changed() {
    let mut task = Task::with("waits waiting; runs w: running=7; payload delayed=1; delayed delayed=9e12").await;
    for (id, stamp) in [("running", "w:8"), ("delayed", "9000000000001"), ("waiting", "w:7")] {
        assert_eq!(task.unchanged("cancel", &["why", "channel", "", id, stamp]).await, "[told changed]", "{id}");
    }
    assert_eq!(task.unchanged("cancel", "why channel - absent 5").await, "[told unknown]");
    assert_eq!(task.ok("cancel", "why channel - running w:7 delayed 9000000000000").await, "[told requested ended]");
}

#[tokio::test]
async fn a_job_that_is_named_twice_is_cancelled_once() {
    let mut task = Task::with("waits first a").await;
    assert_eq!(cancel(&mut task, &["a", "a"]).await, "[told ended changed]");
    assert_keys!(task, "tombstones a=1");
    assert_eq!(task.totals().await, ["", "1"]);
    assert!(task.held("events").await.contains(r#""cancelled": "a", "total": "1""#));
}

#[tokio::test]
async fn a_repeated_cancel_changes_nothing() {
    let mut task = Task::with("waits first a").await;
    assert_eq!(cancel(&mut task, &["a"]).await, "[told ended]");
    assert_eq!(unchanged!(task, cancel(&mut task, &["a"]).await), "[told cancelled]");
}

#[tokio::test]
async fn a_task_that_keeps_no_cancelled_jobs_removes_every_column() {
    let mut task = Task::with("meta keepCancelled=0; waits a").await;
    task.columns("attempt stalledCount result error options maxCount dispatchedAt snoozes enqueuedAt", &["a"]).await;
    assert_eq!(cancel(&mut task, &["a"]).await, "[told ended]");
    assert_rest!(task, "meta, events", "");
}

#[tokio::test]
async fn the_tombstone_of_a_job_that_is_not_kept_stays_until_it_is_first() {
    let mut task = Task::with("meta keepCancelled=0; waits first a b").await;
    assert_eq!(cancel(&mut task, &["a"]).await, "[told ended]");
    assert_keys!(task, "payload b={}, first={}; tombstones a=1");
    assert_eq!(cancel(&mut task, &["first"]).await, "[told ended]");
    assert_keys!(task, "wait b; no tombstones");
}

#[tokio::test]
async fn without_events_a_cancelled_job_is_counted() {
    let mut task = Task::with("meta eventMode=off; waits a").await;
    assert_eq!(cancel(&mut task, &["a"]).await, "[told ended]");
    assert_keys!(task, "no events");
    assert_eq!(task.totals().await, ["", "1"]);
}

#[tokio::test]
async fn a_job_that_was_claimed_ahead_gets_the_flag_as_held() {
    let mut task = Task::with("runs w: a=1, b=2; claimed a=1").await;
    let told = task.ok("cancel", "why channel - a =claimed b =claimed").await;
    assert_eq!(told, "[told requested changed]");
    assert_keys!(task, "cancelling a=why");
}

#[tokio::test]
async fn cancelled_nodes_are_in_the_outbox_even_if_none_are_kept() {
    for keep in ["1", "0"] {
        let mut task = Task::new().await;
        task.hset("meta", &[("keepCancelled", keep)]).await;
        task.write("waits ~f/a/0/1 own; payload ~f/a/1/1={}; delayed ~f/a/1/1=9e15; runs w: ~f/a/2/1=7").await;
        let reply = cancel(&mut task, &["~f/a/0/1", "own", "~f/a/1/1", "~f/a/2/1", "~f/a/3/1"]).await;
        assert_eq!(reply, "[told ended ended ended requested unknown]");
        assert_keys!(task, "outbox ~f/a/0/1=NOW, ~f/a/1/1=NOW");
        let own = if keep == "1" { "own=NOW, " } else { "" };
        assert_keys!(task, format!("cancelled {own}~f/a/0/1=NOW, ~f/a/1/1=NOW"));
        assert_eq!(task.held("payload").await.contains("own"), keep == "1");
        assert!(task.field("error", "~f/a/1/1").await.contains("cancelled"));
    }
}

#[tokio::test]
async fn the_declaration_of_the_task_decides_whether_a_hook_runs() {
    for hook in ["1", "0"] {
        let mut task = Task::new().await;
        task.lose_options().await;
        task.write("waits waits; payload later={}; delayed later=9e15; waits ~f/a/0/1").await;
        assert_eq!(cancel(&mut task, &["waits", "later", "~f/a/0/1"]).await, "[told ended ended ended]");
        assert_keys!(task, "outcome later=cancelled 0 0 -, waits=cancelled 0 0 -");
        // A node ends at once: its instance waits for it.
        assert_keys!(task, "cancelled ~f/a/0/1=NOW");
        assert_eq!((task.held("outbox").await, task.held("wait").await), (task.held("cancelled").await, String::new()));
        task.declared().await;
        task.hset("meta", &[("hook", hook), ("keepCancelled", "1")]).await;
        let want = if hook == "1" { "2 hooks" } else { "2" };
        task.ok("settle", &["1", "w", "1000", want, "0", "0"]).await;
        let (cancelled, locks) = (task.held("cancelled").await, task.held("locks").await);
        match hook {
            "1" => {
                assert!(!cancelled.contains("waits") && locks.contains("later") && locks.contains("waits"), "{locks}")
            }
            _ => assert!(cancelled.contains("later") && cancelled.contains("waits") && locks.is_empty(), "{cancelled}"),
        }
    }
}
