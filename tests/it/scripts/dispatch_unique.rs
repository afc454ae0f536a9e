use crate::scripts::call::{Task, assert_all, assert_keys, assert_rest, assert_text};

/// A dispatch of this job with the key `k`; `mode` is the mode and its time. The call has the id of the job.
fn call(id: &str, mode: &str) -> String {
    format!("1 1 {id} {id} [{id}] k {mode}")
}

/// A job `a` that got the key.
async fn keyed(mode: &str, rows: &str) -> Task {
    Task::with(&format!("{rows}; unique k=a {mode} 1; uniqueOf a=k")).await
}

#[tokio::test]
async fn a_job_is_written_with_its_key_and_one_event() {
    let mut task = Task::new().await;
    assert_eq!(task.ok("dispatch_unique", &call("a", "done 0")).await, "[placed new a]");
    assert_all!(
        task,
        "events {dispatched=a, total=1, worker=}; meta events=1, fence=4000000000000000, largest=1024, wire=1; \
         payload a=[a]; unique k=a done 0 NOW a new -; uniqueOf a=k; wait a; wake marker=0, spare=1"
    );
    assert_eq!(task.totals().await, ["1", ""]);
}

#[tokio::test]
async fn the_options_of_the_dispatch_are_written_as_by_dispatch() {
    let mut task = Task::new().await;
    let own = "options 1 {} maxCount 1 3 priority 1 high dispatchedAt 1 77 delay 1 60000 expires 1 90000";
    assert_eq!(task.ok("dispatch_unique", &format!("{} {own}", call("a", "period 60000"))).await, "[placed new a]");
    assert_keys!(task, "options a={}; maxCount a=3; priority a=high; dispatchedAt a=77; expiresAt a=NOW; no wait");
    assert_keys!(task, "delayed a=NOW; expires a=NOW; unique k=a period NOW NOW a new -");
}

#[tokio::test]
async fn a_key_is_taken_while_its_job_is_in_a_state_of_its_mode() {
    for (rows, done, started) in [
        ("waits a", true, true),
        ("payload a=1; delayed a=9e12", true, true),
        ("runs w: a=7; claimed a=7", true, true),
        ("runs w: a=7", true, false),
        ("runs w: a=7; claimed a=6", true, false),
        ("payload a=1; outcome a=completed 0 0 -; finalizing a=5", true, false),
        ("runs w: a=7; outcome a=failed 0 0 5", true, false),
        ("payload a=1; completed a=5", false, false),
        ("payload a=1; failed a=5", false, false),
        ("payload a=1; cancelled a=5", false, false),
        ("wait a", false, false),
    ] {
        for (mode, is_taken) in [("done", done), ("started", started)] {
            let mode = format!("{mode} 0");
            let mut task = keyed(&mode, rows).await;
            if is_taken {
                let told = task.unchanged("dispatch_unique", &call("b", "done 0")).await;
                assert_eq!(told, "[placed existed a]", "{mode}: {rows}");
            } else {
                let told = task.ok("dispatch_unique", &call("b", &mode)).await;
                assert_eq!(told, "[placed new b]", "{mode}: {rows}");
                assert_text!(task.held("unique").await, contains(&*format!("b {mode} ")));
            }
        }
    }
}

#[tokio::test]
async fn a_period_lasts_whatever_happens_to_its_job() {
    for rows in ["waits a", "runs w: a=7", "payload a=1; completed a=5", "wait gone"] {
        let mut task = keyed("period 9000000000000", rows).await;
        assert_eq!(task.unchanged("dispatch_unique", &call("b", "done 0")).await, "[placed existed a]", "{rows}");
        let mut task = keyed("period 1", rows).await;
        assert_eq!(task.ok("dispatch_unique", &call("b", "done 0")).await, "[placed new b]", "{rows}");
    }
    // A job that is replaced leaves the period as it is.
    for rows in ["waits a", "runs w: a=7; claimed a=7"] {
        let mut task = keyed("period 9000000000000", rows).await;
        assert_text!(task.ok("dispatch_unique", &call("b", "replace 0")).await, starts_with("[placed replaced "));
        assert_text!(task.held("unique").await, contains(" period 9000000000000 "));
    }
    let mut task = keyed("period 9000000000000", "runs w: a=7").await;
    assert_eq!(task.unchanged("dispatch_unique", &call("b", "replace 0")).await, "[placed existed a]");
}

#[tokio::test]
async fn a_replaced_job_keeps_its_place_and_loses_what_its_runs_left() {
    let mut task = keyed("done 0", "waits first a").await;
    task.columns("attempt stalledCount error snoozes recovery checkpoint progress options maxCount", &["a"]).await;
    task.write("expiresAt a=5; expires a=5; priority a=high; enqueuedAt a=77").await;
    let told = task.ok("dispatch_unique", &format!("{} options 1 {{}}", call("b", "replace 0"))).await;
    assert_eq!(told, "[placed replaced a]");
    assert_rest!(
        task,
        "meta",
        "enqueuedAt a=77; events {replaced=a, total=1, worker=}; expires a=5; options a={}; payload a=[b], first={}; \
         priority a=high; unique k=a done 0 NOW b replaced a; uniqueOf a=k; wait first a"
    );
    assert_eq!(task.totals().await, ["", ""]);
    let told = task.ok("dispatch_unique", &format!("{} maxCount 1 3 expires 1 60000", call("c", "replace 0"))).await;
    assert_eq!(told, "[placed replaced a]");
    assert_keys!(task, "expiresAt a=NOW; expires a=NOW; maxCount a=3; no options");
}

#[tokio::test]
async fn a_claimed_job_ends_as_replaced_and_the_new_one_waits() {
    for (keep, hook) in [("1", "0"), ("0", "0"), ("1", "1")] {
        let mut task = keyed("done 0", "runs w: a=7; claimed a=7; parked a=7 claimed 1; cancelling a=why").await;
        task.write(&format!("meta keepCancelled={keep}, hook={hook}")).await;
        assert_eq!(task.ok("dispatch_unique", &call("b", "replace 0")).await, "[placed replaced b]");
        assert_keys!(task, "no locks, claimed, parked, cancelling, active, candidates; wait b; wake marker=0, spare=1");
        let hooked = ("finalizing", "finalizing a cancelled");
        let (place, event) = if hook == "1" { hooked } else { ("cancelled", "cancelled a") };
        assert_eq!(task.held(place).await.is_empty(), keep == "0", "{keep} {hook}");
        assert_eq!(task.events().await, [format!("2: dispatched b, {event}")]);
        if keep == "1" {
            assert_text!(task.held("error").await, contains("replaced"));
        }
        // Its worker learns that it lost the job.
        assert_text!(task.ok("extend_locks", "w 1000 1 0 a 7").await, contains(" [7] "));
    }
}

#[tokio::test]
async fn a_job_that_runs_is_left_alone_and_the_new_one_waits() {
    for mode in ["replace 0", "debounce 90000"] {
        let mut task = keyed("done 0", "runs w: a=7").await;
        let told = task.ok("dispatch_unique", &format!("{} delay 1 60000", call("b", mode))).await;
        assert_eq!(told, "[placed new b]");
        assert_keys!(task, "locks a=w:7; delayed b=NOW; uniqueOf a=k, b=k");
        assert_eq!(task.ok("dispatch_unique", &call("c", "replace 0")).await, "[placed replaced b]");
        assert_keys!(task, "payload a={}, b=[c]");
    }
}

#[tokio::test]
async fn each_dispatch_postpones_a_debounced_job_up_to_its_limit() {
    let mut task = Task::new().await;
    let debounced = |id: &str, delay: u32| format!("{} delay 1 {delay}", call(id, "debounce 90000"));
    assert_eq!(task.ok("dispatch_unique", &debounced("a", 60_000)).await, "[placed new a]");
    let first = task.score("delayed", "a").await;
    assert_eq!(task.ok("dispatch_unique", &debounced("b", 70_000)).await, "[placed postponed a]");
    let second = task.score("delayed", "a").await;
    assert!(second >= first + 10_000.0, "{first} {second}");
    assert_eq!(task.ok("dispatch_unique", &debounced("c", 200_000)).await, "[placed postponed a]");
    let limit = task.score("delayed", "a").await;
    assert!((first + 29_900.0..first + 31_000.0).contains(&limit), "{first} {limit}");
    assert_eq!(task.ok("dispatch_unique", &debounced("d", 1)).await, "[placed postponed a]");
    assert_eq!(task.score("delayed", "a").await, limit, "it is not due earlier");
    assert_keys!(task, "payload a=[d]");
    // A job that is due waits in its list: it gets the input, and stays there.
    let mut task = keyed("done 5", "waits a").await;
    assert_eq!(task.ok("dispatch_unique", &debounced("b", 60_000)).await, "[placed replaced a]");
    assert_keys!(task, "payload a=[b]; wait a; no delayed");
}

#[tokio::test]
async fn a_repeated_call_gets_its_first_answer_and_writes_nothing() {
    let mut task = Task::new().await;
    let calls = [("a", "done 0", "new a"), ("b", "replace 0", "replaced a"), ("c", "replace 0", "replaced a")];
    for (id, mode, told) in calls {
        assert_eq!(task.ok("dispatch_unique", &call(id, mode)).await, format!("[placed {told}]"));
    }
    for (id, mode, told) in [("b", "replace 0", "replaced a"), ("a", "done 0", "new a")] {
        assert_eq!(task.unchanged("dispatch_unique", &call(id, mode)).await, format!("[placed {told}]"));
    }
    assert_keys!(task, "payload a=[c]");
    // Also after the job has ended, and after another job got the key.
    task.write("no wait; completed a=5").await;
    assert_eq!(task.unchanged("dispatch_unique", &call("c", "replace 0")).await, "[placed replaced a]");
    assert_eq!(task.ok("dispatch_unique", &call("d", "replace 0")).await, "[placed new d]");
    assert_eq!(task.unchanged("dispatch_unique", &call("c", "replace 0")).await, "[placed replaced a]");
    // The entry keeps eight calls.
    for id in ["e", "f", "g", "h", "i", "j"] {
        assert_eq!(task.ok("dispatch_unique", &call(id, "replace 0")).await, "[placed replaced d]");
    }
    assert_eq!(task.unchanged("dispatch_unique", &call("c", "replace 0")).await, "[placed replaced a]");
    assert_eq!(task.ok("dispatch_unique", &call("b", "replace 0")).await, "[placed replaced d]");
}

#[tokio::test]
async fn a_chosen_id_that_exists_is_left_unchanged() {
    let mut task = Task::with("waits a").await;
    assert_eq!(task.unchanged("dispatch_unique", "1 1 call a 2 k done 0").await, "[placed existed a]");
    assert_eq!(task.ok("dispatch_unique", "1 1 call b 2 k done 0").await, "[placed new b]");
    assert_keys!(task, "unique k=b done 0 NOW call new b");
    assert_eq!(task.unchanged("dispatch_unique", "1 1 call b 2 k done 0").await, "[placed new b]");
    assert_eq!(task.unchanged("dispatch_unique", "1 1 later b 2 other done 0").await, "[placed existed b]");
}

#[tokio::test]
async fn the_job_that_takes_a_key_removes_what_a_removed_job_left() {
    let mut task = keyed("done 0", "wait gone").await;
    assert_eq!(task.ok("dispatch_unique", &call("b", "done 0")).await, "[placed new b]");
    assert_keys!(task, "uniqueOf b=k");
    // A job that ended and is kept may still be retried.
    let mut task = keyed("done 0", "payload a=1; failed a=5").await;
    assert_eq!(task.ok("dispatch_unique", &call("b", "done 0")).await, "[placed new b]");
    assert_keys!(task, "uniqueOf a=k, b=k");
}

#[tokio::test]
async fn an_unreadable_entry_blocks_nothing() {
    for damaged in ["", "a", "a done", "a done soon 5", "a DONE 0 5"] {
        let mut task = Task::with("waits a").await;
        task.hset("unique", &[("k", damaged)]).await;
        assert_eq!(task.ok("dispatch_unique", &call("b", "done 0")).await, "[placed new b]", "{damaged}");
        assert_keys!(task, "unique k=b done 0 NOW b new -");
    }
}

#[tokio::test]
async fn another_number_of_partitions_and_newer_data_are_refused() {
    let mut task = Task::with("meta partitions=4, wire=1").await;
    assert_eq!(task.unchanged("dispatch_unique", &call("a", "done 0")).await, "[partitions 4]");
    let mut task = Task::new().await;
    assert_eq!(task.ok("dispatch_unique", "1 4 a a 1 k done 0").await, "[placed new a]");
    assert_keys!(task, "meta.partitions=4; meta.wire=1");
    task.write("meta wire=2").await;
    assert_eq!(task.refused("dispatch_unique", "1 4 b b 1 k done 0").await, "NEWERWIRE");
}

#[tokio::test]
async fn a_paused_task_wakes_no_worker_for_a_unique_job() {
    let mut task = Task::with("meta paused=1, eventMode=off, priority=low").await;
    assert_eq!(task.ok("dispatch_unique", &call("a", "done 0")).await, "[placed new a]");
    assert_keys!(task, "no wake, events; wait:low a; priority a=low");
}
