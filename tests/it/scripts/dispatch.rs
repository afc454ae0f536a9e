use crate::scripts::call::{Task, assert_all, assert_keys, assert_rest, unchanged};

#[tokio::test]
async fn jobs_are_added_to_the_back_of_wait_with_one_event() {
    let mut task = Task::new().await;
    assert_eq!(task.ok("dispatch", "1 1 - a {} b [1]").await, "dispatched");
    assert_eq!(task.ok("dispatch", "1 1 - c 3").await, "dispatched");
    assert_all!(
        task,
        "events {dispatched=a b, total=2, worker=}, {dispatched=c, total=3, worker=}; \
         meta events=3, fence=4000000000000000, largest=1024, wire=1; payload a={}, b=[1], c=3; wait a b c; \
         wake marker=0, spare=1"
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
    assert_rest!(
        task,
        "events, meta, wake",
        "dispatchedAt b=77; maxCount a=3; options a={\"max_count\":3}; payload a=1, b=2, c=3; priority a=high, c=low; \
         wait b; wait:high a; wait:low c"
    );
}

#[tokio::test]
async fn a_job_without_a_priority_has_that_of_the_task() {
    let mut task = Task::with("meta priority=low").await;
    task.ok("dispatch", "1 1 2 a 1 b 2 priority 2 normal").await;
    assert_keys!(task, "wait:low a; wait b; priority a=low");
}

#[tokio::test]
async fn a_delayed_job_wakes_workers_only_if_it_is_the_next_one_due() {
    let mut task = Task::new().await;
    let before = task.now_ms().await;
    task.ok("dispatch", "1 1 1 a 1 delay 1 60000").await;
    let due = task.score("delayed", "a").await;
    let after = task.now_ms().await;
    assert!((before + 60_000.0..=after + 60_000.0).contains(&due), "{due}");
    assert_keys!(task, "wake marker=0, spare=1; no wait");

    task.write("no wake").await;
    task.ok("dispatch", "1 1 1 b 1 delay 1 90000").await;
    assert_keys!(task, "no wake", "b is due after a");
    task.ok("dispatch", "1 1 1 c 1 delay 1 1000").await;
    assert_keys!(task, "wake marker=0, spare=1", "c is due before a");
}

#[tokio::test]
async fn a_batch_of_delayed_and_waiting_jobs_wakes_workers() {
    let mut task = Task::new().await;
    task.ok("dispatch", "1 1 1 a 1 delay 1 1").await;
    task.write("no wake").await;
    task.ok("dispatch", "1 1 2 b 1 c 2 delay 1 90000").await;
    assert_keys!(task, "wake marker=0, spare=1; wait c");
}

#[tokio::test]
async fn an_existing_id_in_any_state_is_left_unchanged() {
    let mut task = Task::with("waits waiting; runs w: running=7; payload delayed={}, completed={}").await;
    task.write("delayed delayed=1").await;
    for place in ["completed", "failed", "cancelled"] {
        task.zadd(place, 1.0, place).await;
    }
    let args = "1 1 6 waiting other running other delayed other completed other failed other cancelled other \
         options 1 {} priority 2 high delay 3 5";
    // Those that had another payload are negative; two of the payloads are gone.
    assert_eq!(task.unchanged("dispatch", args).await, "dispatched -1 -2 -3 -4 5 6");
    assert_eq!(task.unchanged("dispatch", "1 1 - delayed {} completed {}").await, "dispatched 1 2");
}

#[tokio::test]
async fn an_id_that_is_named_twice_is_one_job() {
    let mut task = Task::new().await;
    assert_eq!(task.ok("dispatch", "1 1 - a 1 b 2 a 3").await, "dispatched 3");
    assert_keys!(task, "wait a b; payload a=1, b=2");
}

#[tokio::test]
async fn plain_jobs_need_only_the_first_keys_and_others_ask_for_more() {
    let mut task = Task::new().await;
    let keys = task.script("dispatch").keys[..8].to_vec();
    assert_eq!(task.call_on("dispatch", &keys, "1 1 - a 1 b 2").await.unwrap(), "dispatched");
    assert_keys!(task, "wait a b");
    let delayed = "1 1 1 c 3 delay 1 5";
    assert_eq!(unchanged!(task, task.call_on("dispatch", &keys, delayed).await.unwrap()), "more");
    task.write("meta priority=low").await;
    assert_eq!(unchanged!(task, task.call_on("dispatch", &keys, "1 1 - c 3").await.unwrap()), "more");
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
        task.ok("dispatch", &args).await;
        assert_eq!(task.field("meta", "largest").await, largest, "{bytes:?}");
    }
    // A job that exists is not written and does not count.
    task.ok("dispatch", &["1", "1", "1", "job-1", &"x".repeat(3 << 20)]).await;
    assert_keys!(task, "meta.largest=1048576");
}

#[tokio::test]
async fn without_events_no_entry_is_written() {
    let mut task = Task::with("meta eventMode=off").await;
    task.ok("dispatch", "1 1 - a 1").await;
    assert_keys!(task, "no events");
}

#[tokio::test]
async fn data_of_a_newer_wire_version_is_refused() {
    let mut task = Task::with("meta wire=2").await;
    assert_eq!(task.refused("dispatch", "1 1 - a 1").await, "NEWERWIRE");
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
    assert_eq!(task.list("wait").await, ids);
}

#[tokio::test]
async fn jobs_are_counted_as_dispatched_with_and_without_events() {
    for events in ["on", "off"] {
        let mut task = Task::new().await;
        task.hset("meta", &[("eventMode", events)]).await;
        task.ok("dispatch", "1 1 - a 1 b 2").await;
        assert_eq!(task.totals().await, ["2", ""]);
        // Two exist, one is named twice, and one is new and delayed.
        task.ok("dispatch", "1 1 4 a 1 b 2 c 3 c 3 delay 3 5").await;
        assert_eq!(task.totals().await, ["3", ""]);
        task.ok("dispatch", "1 1 - a 1").await;
        assert_eq!(task.totals().await, ["3", ""]);
    }
}

#[tokio::test]
async fn totals_that_are_not_numbers_start_from_zero() {
    let mut task = Task::with("meta in=many, events=").await;
    task.ok("dispatch", "1 1 - a 1 b 2").await;
    assert_eq!(task.totals().await, ["2", ""]);
    assert_keys!(task, "meta.events=2");
}

#[tokio::test]
async fn a_removed_id_is_a_new_job_without_old_columns() {
    let mut task = Task::with("waits first a").await;
    task.columns("attempt stalledCount enqueuedAt error", &["a"]).await;
    task.ok("remove", "- a -").await;
    assert_eq!(task.ok("dispatch", "1 1 - a anew").await, "dispatched");
    assert_rest!(task, "events, meta, wake", "payload a=anew, first={}; tombstones a=1; wait first a a");
}

#[tokio::test]
async fn the_first_job_of_a_workflow_sets_the_flag() {
    for parts in ["1", "4"] {
        let mut task = Task::new().await;
        assert_eq!(task.ok("dispatch", &["1", parts, "", "own", "1"]).await, "dispatched");
        assert!(!task.held("meta").await.contains("nodes"));
        assert_eq!(task.ok("dispatch", &["1", parts, "", "next", "1", "~f/a/0/1", "1"]).await, "dispatched");
        let meta = task.held("meta").await;
        assert!(meta.contains(r#""nodes": "1""#) && meta.contains(r#""wire": "1""#), "{meta}");
        assert_eq!(meta.contains(&format!(r#""partitions": "{parts}""#)), parts != "1", "{meta}");
        assert_keys!(task, "wait own next ~f/a/0/1");
        // The same call again writes nothing.
        assert_eq!(task.unchanged("dispatch", &["1", parts, "", "~f/a/0/1", "1"]).await, "dispatched 1");
        // As the first job of a task.
        let mut task = Task::new().await;
        assert_eq!(task.ok("dispatch", &["1", parts, "", "~f/a/0/1", "1"]).await, "dispatched");
        assert!(task.held("meta").await.contains(r#""nodes": "1""#));
    }
}

#[tokio::test]
async fn the_stream_of_events_is_trimmed_at_each_100th_event() {
    let mut task = Task::with("meta events=98").await;
    let key = [task.key("events")];
    let fill =
        "for at = 1, 12000 do redis.call('XADD', KEYS[1], '*', 'total', at) end return redis.call('XLEN', KEYS[1])";
    assert_eq!(task.eval(fill, &key, &[]).await.unwrap(), "12000");
    let length = "return redis.call('XLEN', KEYS[1])";
    task.ok("dispatch", "1 1 - a 1").await;
    assert_eq!(task.eval(length, &key, &[]).await.unwrap(), "12001");
    task.ok("dispatch", "1 1 - b 1").await;
    let left: usize = task.eval(length, &key, &[]).await.unwrap().parse().unwrap();
    assert!((10_000..10_200).contains(&left), "{left}");
}
