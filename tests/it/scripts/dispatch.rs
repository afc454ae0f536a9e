use crate::scripts::call::{Task, without};

#[tokio::test]
async fn jobs_are_added_to_the_back_of_wait_with_one_event() {
    let mut task = Task::new().await;
    assert_eq!(task.ok("dispatch", &["1", "1", "2", "a", "{}", "b", "[1]"]).await, "dispatched");
    assert_eq!(task.ok("dispatch", &["1", "1", "1", "c", "3"]).await, "dispatched");
    assert_eq!(
        task.keys().await,
        [
            r#"events stream [NOW {"dispatched": "a b", "total": "2", "worker": ""}, NOW {"dispatched": "c", "total": "3", "worker": ""}]"#,
            r#"meta hash {"events": "3", "fence": "4000000000000000", "largest": "1024", "wire": "1"}"#,
            r#"payload hash {"a": "{}", "b": "[1]", "c": "3"}"#,
            r#"wait list ["a", "b", "c"]"#,
            r#"wake zset ["marker": 0, "spare": 1]"#,
        ]
    );
}

#[tokio::test]
async fn only_options_that_differ_from_the_defaults_are_written() {
    let mut task = Task::new().await;
    let columns = ["options", "1", r#"{"max_count":3}"#, "maxCount", "1", "3", "dispatchedAt", "2", "77"];
    let places = ["priority", "1", "high", "priority", "3", "low"];
    let mut args = vec!["1", "1", "3", "a", "1", "b", "2", "c", "3"];
    args.extend(columns);
    args.extend(places);
    assert_eq!(task.ok("dispatch", &args).await, "dispatched");
    assert_eq!(
        without(task.keys().await, &["events", "meta", "wake"]),
        [
            r#"dispatchedAt hash {"b": "77"}"#,
            r#"maxCount hash {"a": "3"}"#,
            r#"options hash {"a": "{\"max_count\":3}"}"#,
            r#"payload hash {"a": "1", "b": "2", "c": "3"}"#,
            r#"priority hash {"a": "high", "c": "low"}"#,
            r#"wait list ["b"]"#,
            r#"wait:high list ["a"]"#,
            r#"wait:low list ["c"]"#,
        ]
    );
}

#[tokio::test]
async fn a_job_without_a_priority_has_that_of_the_task() {
    let mut task = Task::new().await;
    task.hset("meta", &[("priority", "low")]).await;
    task.ok("dispatch", &["1", "1", "2", "a", "1", "b", "2", "priority", "2", "normal"]).await;
    assert_eq!(task.held("wait:low").await, r#"list ["a"]"#);
    assert_eq!(task.held("wait").await, r#"list ["b"]"#);
    assert_eq!(task.held("priority").await, r#"hash {"a": "low"}"#);
}

#[tokio::test]
async fn a_delayed_job_wakes_workers_only_if_it_is_the_next_one_due() {
    let mut task = Task::new().await;
    let before = task.now_ms().await;
    task.ok("dispatch", &["1", "1", "1", "a", "1", "delay", "1", "60000"]).await;
    let due = task.score("delayed", "a").await;
    let after = task.now_ms().await;
    assert!((before + 60_000.0..=after + 60_000.0).contains(&due), "{due}");
    assert_eq!(task.held("wake").await, r#"zset ["marker": 0, "spare": 1]"#);
    assert_eq!(task.held("wait").await, "");

    task.del("wake").await;
    task.ok("dispatch", &["1", "1", "1", "b", "1", "delay", "1", "90000"]).await;
    assert_eq!(task.held("wake").await, "", "b is due after a");
    task.ok("dispatch", &["1", "1", "1", "c", "1", "delay", "1", "1000"]).await;
    assert_eq!(task.held("wake").await, r#"zset ["marker": 0, "spare": 1]"#, "c is due before a");
}

#[tokio::test]
async fn a_batch_of_delayed_and_waiting_jobs_wakes_workers() {
    let mut task = Task::new().await;
    task.ok("dispatch", &["1", "1", "1", "a", "1", "delay", "1", "1"]).await;
    task.del("wake").await;
    task.ok("dispatch", &["1", "1", "2", "b", "1", "c", "2", "delay", "1", "90000"]).await;
    assert_eq!(task.held("wake").await, r#"zset ["marker": 0, "spare": 1]"#);
    assert_eq!(task.held("wait").await, r#"list ["c"]"#);
}

#[tokio::test]
async fn an_existing_id_in_any_state_is_left_unchanged() {
    let mut task = Task::new().await;
    task.waiting(&["waiting"]).await;
    task.running("w", &[("running", 7)]).await;
    task.hset("payload", &[("delayed", "{}"), ("completed", "{}")]).await;
    task.zadd("delayed", 1.0, "delayed").await;
    for place in ["completed", "failed", "cancelled"] {
        task.zadd(place, 1.0, place).await;
    }
    let before = task.exact().await;
    let ids = ["waiting", "running", "delayed", "completed", "failed", "cancelled"];
    let mut args = vec!["1", "1", "6"];
    for id in ids {
        args.extend([id, "other"]);
    }
    args.extend(["options", "1", "{}", "priority", "2", "high", "delay", "3", "5"]);
    assert_eq!(task.ok("dispatch", &args).await, "dispatched 1 2 3 4 5 6");
    assert_eq!(task.exact().await, before);
}

#[tokio::test]
async fn an_id_that_is_named_twice_is_one_job() {
    let mut task = Task::new().await;
    assert_eq!(task.ok("dispatch", &["1", "1", "3", "a", "1", "b", "2", "a", "3"]).await, "dispatched 3");
    assert_eq!(task.held("wait").await, r#"list ["a", "b"]"#);
    assert_eq!(task.held("payload").await, r#"hash {"a": "1", "b": "2"}"#);
}

#[tokio::test]
async fn a_repeated_dispatch_changes_nothing() {
    let mut task = Task::new().await;
    let args = ["1", "1", "2", "a", "1", "b", "2", "delay", "2", "60000", "priority", "1", "high"];
    assert_eq!(task.ok("dispatch", &args).await, "dispatched");
    let before = task.exact().await;
    assert_eq!(task.ok("dispatch", &args).await, "dispatched 1 2");
    assert_eq!(task.exact().await, before);
}

#[tokio::test]
async fn plain_jobs_need_only_the_first_keys_and_others_ask_for_more() {
    let mut task = Task::new().await;
    let keys = task.script("dispatch").keys[..8].to_vec();
    assert_eq!(task.call_on("dispatch", &keys, &["1", "1", "2", "a", "1", "b", "2"]).await.unwrap(), "dispatched");
    assert_eq!(task.list("wait").await, ["a", "b"]);
    let before = task.exact().await;
    let delayed = ["1", "1", "1", "c", "3", "delay", "1", "5"];
    assert_eq!(task.call_on("dispatch", &keys, &delayed).await.unwrap(), "more");
    assert_eq!(task.exact().await, before);
    task.hset("meta", &[("priority", "low")]).await;
    let before = task.exact().await;
    assert_eq!(task.call_on("dispatch", &keys, &["1", "1", "1", "c", "3"]).await.unwrap(), "more");
    assert_eq!(task.exact().await, before);
}

#[tokio::test]
async fn a_larger_payload_raises_the_bound_to_the_next_power_of_two() {
    let mut task = Task::new().await;
    let mut id = 0;
    for (bytes, largest) in [
        (&[1, 1024, 7][..], "1024"),
        (&[1025], "2048"),
        (&[2048, 1], "2048"),
        (&[3], "2048"),
        (&[1, 524_288, 1], "524288"),
        (&[524_289], "1048576"),
        (&[2], "1048576"),
    ] {
        let mut args = vec!["1".to_owned(), "1".to_owned(), bytes.len().to_string()];
        for bytes in bytes {
            id += 1;
            args.extend([format!("job-{id}"), "x".repeat(*bytes)]);
        }
        task.ok("dispatch", &args.iter().map(String::as_str).collect::<Vec<_>>()).await;
        assert_eq!(task.field("meta", "largest").await, largest, "{bytes:?}");
    }
    // A job that exists is not written and does not count.
    task.ok("dispatch", &["1", "1", "1", "job-1", &"x".repeat(3 << 20)]).await;
    assert_eq!(task.field("meta", "largest").await, "1048576");
}

#[tokio::test]
async fn without_events_no_entry_is_written() {
    let mut task = Task::new().await;
    task.hset("meta", &[("eventMode", "off")]).await;
    task.ok("dispatch", &["1", "1", "1", "a", "1"]).await;
    assert_eq!(task.held("events").await, "");
}

#[tokio::test]
async fn data_of_a_newer_wire_version_is_refused() {
    let mut task = Task::new().await;
    task.hset("meta", &[("wire", "2")]).await;
    let before = task.exact().await;
    assert_eq!(task.refused("dispatch", &["1", "1", "1", "a", "1"]).await, "NEWERWIRE");
    assert_eq!(task.exact().await, before);
}

#[tokio::test]
async fn five_hundred_jobs_are_dispatched_in_one_call() {
    let mut task = Task::new().await;
    let ids = (0..500).map(|i| format!("job-{i:03}")).collect::<Vec<_>>();
    let mut args = vec!["1", "1", "500"];
    for id in &ids {
        args.extend([id.as_str(), "{}"]);
    }
    assert_eq!(task.ok("dispatch", &args).await, "dispatched");
    let order = task.list("wait").await;
    assert_eq!(order, ids);
}

#[tokio::test]
async fn jobs_are_counted_as_dispatched_with_and_without_events() {
    for events in ["on", "off"] {
        let mut task = Task::new().await;
        task.hset("meta", &[("eventMode", events)]).await;
        task.ok("dispatch", &["1", "1", "2", "a", "1", "b", "2"]).await;
        assert_eq!(task.totals().await, ["2", ""]);
        // Two exist, one is named twice, and one is new and delayed.
        task.ok("dispatch", &["1", "1", "4", "a", "1", "b", "2", "c", "3", "c", "3", "delay", "3", "5"]).await;
        assert_eq!(task.totals().await, ["3", ""]);
        task.ok("dispatch", &["1", "1", "1", "a", "1"]).await;
        assert_eq!(task.totals().await, ["3", ""]);
    }
}

#[tokio::test]
async fn totals_that_are_not_numbers_start_from_zero() {
    let mut task = Task::new().await;
    task.hset("meta", &[("in", "many"), ("events", "")]).await;
    task.ok("dispatch", &["1", "1", "2", "a", "1", "b", "2"]).await;
    assert_eq!(task.totals().await, ["2", ""]);
    assert_eq!(task.field("meta", "events").await, "2");
}

#[tokio::test]
async fn a_removed_id_is_a_new_job_without_old_columns() {
    let mut task = Task::new().await;
    task.waiting(&["first", "a"]).await;
    for column in ["attempt", "stalledCount", "enqueuedAt", "error"] {
        task.hset(column, &[("a", "1")]).await;
    }
    task.ok("remove", &["", "a", ""]).await;
    assert_eq!(task.ok("dispatch", &["1", "1", "1", "a", "anew"]).await, "dispatched");
    assert_eq!(
        without(task.keys().await, &["events", "meta", "wake"]),
        [
            r#"payload hash {"a": "anew", "first": "{}"}"#,
            r#"tombstones hash {"a": "1"}"#,
            r#"wait list ["first", "a", "a"]"#,
        ]
    );
}

#[tokio::test]
async fn the_first_job_of_a_workflow_sets_the_flag() {
    for parts in ["1", "4"] {
        let mut task = Task::new().await;
        assert_eq!(task.ok("dispatch", &["1", parts, "1", "own", "1"]).await, "dispatched");
        assert!(!task.held("meta").await.contains("nodes"));
        assert_eq!(task.ok("dispatch", &["1", parts, "2", "next", "1", "~f/a/0/1", "1"]).await, "dispatched");
        let meta = task.held("meta").await;
        assert!(meta.contains(r#""nodes": "1""#) && meta.contains(r#""wire": "1""#), "{meta}");
        assert_eq!(meta.contains(&format!(r#""partitions": "{parts}""#)), parts != "1", "{meta}");
        assert_eq!(task.list("wait").await, ["own", "next", "~f/a/0/1"]);
        // The same call again writes nothing.
        let before = task.exact().await;
        assert_eq!(task.ok("dispatch", &["1", parts, "1", "~f/a/0/1", "1"]).await, "dispatched 1");
        assert_eq!(task.exact().await, before);
        // As the first job of a task.
        let mut task = Task::new().await;
        assert_eq!(task.ok("dispatch", &["1", parts, "1", "~f/a/0/1", "1"]).await, "dispatched");
        assert!(task.held("meta").await.contains(r#""nodes": "1""#));
    }
}
