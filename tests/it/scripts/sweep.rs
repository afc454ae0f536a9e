use crate::scripts::call::{COLUMNS, LAST_FENCE, Task, assert_keys, assert_rest, assert_text};
use std::collections::BTreeSet;

/// Arguments of the witness `v`: interval 1 s, epoch 5, a whole interval waited.
const ARGS: &str = "v 1000 5 1000 0 200 auto -";

async fn epoch_five() -> Task {
    Task::with("meta epoch=5, interval=1000, ask=1000, maxCount=1").await
}

/// A task with one candidate `a` of worker `w`.
async fn one_candidate() -> Task {
    let mut task = epoch_five().await;
    task.write("runs w: a=7; snapshot").await;
    task
}

#[tokio::test]
async fn without_candidates_running_jobs_become_candidates() {
    let mut task = Task::new().await;
    assert_eq!(task.ok("sweep", "v 1000 0 1000 0 200 auto -").await, "[swept 1 1000 0 1 0 []]", "a new task");
    let mut task = epoch_five().await;
    assert_eq!(task.ok("sweep", ARGS).await, "[swept 6 1000 0 1 0 []]");
    assert_eq!(task.keys().await.len(), 1, "without running jobs only the epoch moves");
    task.write("meta epoch=5; runs w: a=7, b=8").await;
    assert_eq!(task.ok("sweep", ARGS).await, "[swept 6 1000 0 1 0 []]");
    assert_keys!(task, "candidates a b; meta.epoch=6; no active, events");
}

#[tokio::test]
async fn another_epoch_gets_moved_and_a_short_wait_early() {
    let mut task = one_candidate().await;
    let before = task.exact().await;
    assert_eq!(task.ok("sweep", "v 1000 4 1000 0 200 auto -").await, "[moved 5 1000]");
    assert_eq!(task.ok("sweep", "v 1000 6 1000 0 200 auto -").await, "[moved 5 1000]");
    assert_eq!(task.ok("sweep", "v 1000 5 999 0 200 auto -").await, "[early 5 1000]");
    task.write("meta interval=5000").await;
    assert_eq!(task.ok("sweep", "v 1000 5 4999 0 200 auto -").await, "[early 5 5000]");
    task.write("meta interval=1000").await;
    assert_eq!(task.exact().await, before);
}

#[tokio::test]
async fn a_stalled_job_is_requeued_at_the_front_and_counted() {
    let mut task = one_candidate().await;
    task.write("waits z").await;
    assert_eq!(task.ok("sweep", ARGS).await, "[swept 6 1000 0 1 0 [a 1 recovered w 7]]");
    let entry = "{reason=silent, stalled=a 1 recovered w, total=1, watched=5 1000 1000 - 0, worker=v}";
    let rows = format!(
        "enqueuedAt a=NOW; events {entry}; recovery a=silent w NOW; stalledCount a=1; stalls {entry}; wait a z; \
         wake marker=0, spare=1"
    );
    assert_rest!(task, "meta, payload", rows);
}

#[tokio::test]
async fn recovered_jobs_wait_in_the_order_of_their_claims() {
    let mut task = epoch_five().await;
    // Seven jobs are rarely in this order by chance.
    task.write("runs w: b=12, g=17, c=13, a=11, f=16, d=14, e=15; snapshot; waits z").await;
    task.ok("sweep", ARGS).await;
    assert_keys!(task, "wait a b c d e f g z");
}

#[tokio::test]
async fn a_job_stalls_max_count_times_and_fails_at_the_next() {
    for max in 0..=3_u64 {
        let mut task = epoch_five().await;
        task.write(&format!("meta maxCount={max}; waits a")).await;
        for stall in 1..=max + 1 {
            task.write("meta epoch=5").await;
            assert!(task.ok("settle", &format!("{stall} w 1000 1 0 0")).await.contains(" a ["), "run {stall}");
            task.write("snapshot").await;
            let action = if stall <= max { "recovered" } else { "failed" };
            let reply = task.ok("sweep", ARGS).await;
            let fence = LAST_FENCE + stall;
            assert!(reply.ends_with(&format!("[a {stall} {action} w {fence}]]")), "max {max}: {reply}");
            assert_keys!(task, format!("stalledCount a={stall}"));
        }
        assert_keys!(task, "failed a=NOW; no wait, locks");
        let error = task.held("error").await;
        assert!(
            error.contains("worker_crashed")
                && error.contains(&format!("stalled {} times, max_count is {max}", max + 1))
        );
    }
}

#[tokio::test]
async fn the_max_count_of_a_dispatch_takes_precedence() {
    let mut task = epoch_five().await;
    task.write("runs w: a=7, b=8, c=9; snapshot").await;
    // The largest allowed value.
    let most = u32::MAX.to_string();
    task.write(&format!("maxCount a=0, b=4, c={most}; stalledCount b=3, c=999999998")).await;
    task.ok("sweep", ARGS).await;
    assert_keys!(task, "failed a=NOW");
    let mut waiting = task.list("wait").await;
    waiting.sort();
    assert_eq!(waiting, ["b", "c"]);
}

#[tokio::test]
async fn a_job_without_payload_is_dropped_with_all_its_data() {
    let mut task = one_candidate().await;
    task.write("no payload").await;
    task.columns(COLUMNS, &["a"]).await;
    task.write("cancelling a=why").await;
    assert_eq!(task.ok("sweep", ARGS).await, "[swept 6 1000 0 1 0 [a 1 dropped w 7]]");
    assert_rest!(task, "meta, events, stalls", "");
}

#[tokio::test]
async fn a_candidate_without_lock_fails_as_corrupt_unless_ended() {
    let mut task = one_candidate().await;
    task.write("no locks").await;
    assert_eq!(task.ok("sweep", ARGS).await, "[swept 6 1000 0 1 0 [a 0 failed - 0]]");
    assert_keys!(task, "failed a=NOW; no stalledCount");
    assert!(task.held("error").await.contains("corrupt"));
    let mut task = one_candidate().await;
    task.write("no locks; completed a=1").await;
    assert_eq!(task.ok("sweep", ARGS).await, "[swept 6 1000 0 1 0 []]");
    assert_rest!(task, "meta, payload", "completed a=1");
}

#[tokio::test]
async fn a_job_with_a_pending_cancel_is_cancelled_with_its_stall() {
    let mut task = one_candidate().await;
    task.write("cancelling a=why; stalledCount a=9").await;
    assert_eq!(task.ok("sweep", ARGS).await, "[swept 6 1000 0 1 0 [a 10 cancelled w 7]]");
    assert_keys!(task, "cancelled a=NOW; no cancelling; stalledCount a=10");
    assert!(task.held("error").await.contains("why"));
}

#[tokio::test]
async fn recovered_jobs_go_to_the_list_of_their_priority() {
    let mut task = epoch_five().await;
    task.write("runs w: h=7, l=8, n=9; priority h=high, l=low; snapshot").await;
    task.ok("sweep", ARGS).await;
    assert_keys!(task, "wait:high h; wait n; wait:low l");
}

#[tokio::test]
async fn a_heartbeat_just_before_saves_its_job() {
    let mut task = epoch_five().await;
    task.write("runs w: a=7, b=8; snapshot").await;
    task.ok("extend_locks", "w 1000 1 0 b 8").await;
    assert_eq!(task.ok("sweep", ARGS).await, "[swept 6 1000 0 1 0 [a 1 recovered w 7]]");
    assert_keys!(task, "candidates b");
}

#[tokio::test]
async fn a_second_sweeper_finds_the_epoch_moved() {
    let mut task = one_candidate().await;
    assert_eq!(task.ok("sweep", ARGS).await, "[swept 6 1000 0 1 0 [a 1 recovered w 7]]");
    assert_eq!(task.unchanged("sweep", "u 1000 5 1000 0 200 auto -").await, "[moved 6 1000]");
}

/// Parses a `swept` reply: the epoch, the cursor, whether there was a snapshot, how many candidates are left, and the
/// decided ids.
fn swept(reply: &str) -> (u64, String, bool, usize, Vec<String>) {
    let words = reply.trim_matches(['[', ']']).split(' ').collect::<Vec<_>>();
    assert_eq!(words[0], "swept", "{reply}");
    // An empty list leaves an empty word.
    let resolved = if words[6].is_empty() { &[][..] } else { &words[6..] };
    let ids = resolved.chunks(5).map(|job| job[0].trim_start_matches('[').to_owned()).collect();
    (words[1].parse().unwrap(), words[3].to_owned(), words[4] == "1", words[5].parse().unwrap(), ids)
}

/// Candidates `job-000` ... of worker `w`, with their ids.
async fn many_candidates(n: usize) -> (Task, BTreeSet<String>) {
    let mut task = epoch_five().await;
    let ids = (0..n).map(|i| format!("job-{i:03}")).collect::<BTreeSet<_>>();
    let jobs = ids.iter().zip(1_u64..).map(|(id, fence)| (id.as_str(), fence)).collect::<Vec<_>>();
    task.running("w", &jobs).await;
    task.write("snapshot").await;
    (task, ids)
}

#[tokio::test]
async fn one_call_decides_at_most_its_limit_and_the_last_moves_epochs() {
    let (mut task, ids) = many_candidates(450).await;
    let (mut cursor, mut seen, mut calls) = ("0".to_owned(), 0, 0);
    loop {
        calls += 1;
        assert!(calls < 100);
        let reply = task.ok("sweep", &["v", "1000", "5", "1000", &cursor, "100", "auto", ""]).await;
        let (epoch, next, snapshot, left, decided) = swept(&reply);
        assert!(decided.len() <= 100, "{} in one call", decided.len());
        seen += decided.len();
        assert_eq!(left, 450 - seen);
        cursor = next;
        if snapshot {
            assert_eq!(epoch, 6);
            break;
        }
        assert_eq!(epoch, 5);
    }
    assert_eq!(seen, 450);
    assert_keys!(task, "no candidates, locks");
    let waiting = task.list("wait").await;
    assert_eq!(waiting.into_iter().collect::<BTreeSet<_>>(), ids);
}

#[tokio::test]
async fn repeated_calls_with_one_cursor_decide_different_jobs() {
    // A small set is scanned whole for any cursor, a large one in steps.
    for (n, limit) in [(20, 4), (450, 25)] {
        let (mut task, ids) = many_candidates(n).await;
        let (mut cursor, mut rounds, mut decided) = ("0".to_owned(), 0, Vec::new());
        'epoch: loop {
            rounds += 1;
            assert!(rounds < 100);
            let args = ["v", "1000", "5", "1000", &cursor.clone(), &limit.to_string(), "auto", ""];
            for _ in 0..5 {
                let reply = task.ok("sweep", &args).await;
                if reply == "[moved 6 1000]" {
                    break 'epoch;
                }
                let (_, next, snapshot, left, more) = swept(&reply);
                assert!(more.len() <= limit);
                decided.extend(more);
                assert_eq!(left, n - decided.len());
                assert_eq!(snapshot, left == 0 && next == "0");
                cursor = next;
            }
            if task.epoch().await == 6 {
                break;
            }
        }
        assert_eq!(decided.len(), n, "each job once");
        assert_eq!(decided.into_iter().collect::<BTreeSet<_>>(), ids);
        assert_eq!(task.held("stalledCount").await.matches(r#": "1""#).count(), n);
    }
}

#[tokio::test]
async fn without_declared_options_nothing_is_decided_or_written() {
    let mut task = one_candidate().await;
    task.lose_options().await;
    assert_eq!(task.unchanged("sweep", ARGS).await, "[undeclared]");
    // A witness of another epoch, or of a short wait, receives it too.
    assert_eq!(task.unchanged("sweep", "v 1000 4 0 0 200 auto -").await, "[undeclared]");
    task.declared().await;
    assert_eq!(task.ok("sweep", ARGS).await, "[swept 6 1000 0 1 0 [a 1 recovered w 7]]");
}

#[tokio::test]
async fn the_interval_of_an_epoch_is_the_largest_ask_of_the_last_one() {
    let mut task = epoch_five().await;
    task.write("meta interval=5000, ask=2000").await;
    assert_eq!(task.ok("sweep", "v 1000 5 5000 0 200 auto -").await, "[swept 6 2000 0 1 0 []]");
    // Since then only the witness has asked.
    assert_eq!(task.ok("sweep", "v 1000 6 2000 0 200 auto -").await, "[swept 7 1000 0 1 0 []]");
    assert_eq!(task.ok("sweep", "v 3000 7 1000 0 200 auto -").await, "[swept 8 3000 0 1 0 []]");
}

#[tokio::test]
async fn stalls_are_recorded_with_their_reason_even_without_events() {
    for (heartbeat, reason) in [("automatic", "silent"), ("manual", "handler_silent")] {
        let mut task = one_candidate().await;
        task.write(&format!("meta heartbeat={heartbeat}, eventMode=off")).await;
        task.ok("sweep", ARGS).await;
        assert_keys!(task, "no events");
        let reason = format!(r#""reason": "{reason}", "stalled": "a 1 recovered w""#);
        assert_text!(task.held("stalls").await, contains(&reason));
    }
}

#[tokio::test]
async fn the_failure_says_whether_the_worker_or_the_handler_was_silent() {
    for (heartbeat, who) in [
        ("automatic", "no heartbeat came from worker w"),
        ("manual", "the handler on worker w did not call ctx.heartbeat()"),
    ] {
        let mut task = one_candidate().await;
        task.write(&format!("meta heartbeat={heartbeat}, maxCount=0")).await;
        task.ok("sweep", ARGS).await;
        assert_text!(task.held("error").await, contains(who));
    }
}

#[tokio::test]
async fn a_task_that_keeps_nothing_removes_every_column() {
    let mut task = epoch_five().await;
    task.write("meta keepFailed=0, keepCancelled=0, maxCount=0; runs w: a=7, b=8; cancelling b=why; snapshot").await;
    task.ok("sweep", ARGS).await;
    assert_rest!(task, "meta, events, stalls", "");
}

/// Values that HINCRBY refuses, most of which Lua reads as a number.
const NO_COUNTS: [&str; 10] = ["many", "", "1.5", "1e3", "0x10", " 1", "nan", "inf", "-1", "9223372036854775807"];

#[tokio::test]
async fn a_count_that_cannot_grow_loses_no_job() {
    for count in NO_COUNTS {
        let mut task = epoch_five().await;
        task.write(&format!("runs w: a=7, bad=8; snapshot; stalledCount bad={count}")).await;
        let reply = task.call("sweep", ARGS).await;
        assert!(reply.is_ok(), "{count}: {reply:?}");
        assert_keys!(task, "wait a; failed bad=NOW", "{count}");
        assert!(task.held("error").await.contains("stalledCount is no number"), "{count}");
    }
}

#[tokio::test]
async fn a_max_count_that_is_not_a_number_falls_back_to_the_task() {
    for max in ["nan", "many", ""] {
        let mut task = one_candidate().await;
        task.write(&format!("stalledCount a=1; maxCount a={max}")).await;
        task.ok("sweep", ARGS).await;
        assert_keys!(task, "failed a=NOW", "{max}");
    }
}

#[tokio::test]
async fn a_person_recovers_named_candidates_whatever_their_count() {
    let mut task = epoch_five().await;
    task.write("runs w: a=7, b=8, c=9; snapshot; stalledCount a=4, b=4").await;
    // One id is not a candidate, and `a` is named twice.
    let args = "v 0 5 1000 0 200 recover anna a absent a";
    assert_eq!(task.ok("sweep", &args).await, "[swept 5 1000 0 0 2 [a 5 recovered w 7]]");
    assert_keys!(task, "wait a; candidates b c; stalledCount a=5, b=4");
    let watched = "watched=5 1000 1000 - 0, worker=v";
    let entry = format!("{{by=anna, reason=manual, stalled=a 5 recovered w, total=1, {watched}}}");
    assert_keys!(task, format!("events {entry}; stalls {entry}"));
}

#[tokio::test]
async fn a_person_fails_named_candidates_unless_a_cancel_is_pending() {
    let mut task = epoch_five().await;
    task.write("runs w: a=7, b=8, c=9; cancelling b=why; snapshot").await;
    let args = "v 0 5 1000 0 200 fail anna b a";
    assert_eq!(task.ok("sweep", &args).await, "[swept 5 1000 0 0 1 [b 1 cancelled w 8 a 1 failed w 7]]");
    assert_keys!(task, "failed a=NOW; cancelled b=NOW");
    let error: serde_json::Value = serde_json::from_str(&task.field("error", "a").await).unwrap();
    let message = "no heartbeat came from worker w for a watched interval, and anna let the job fail";
    assert_eq!(error, serde_json::json!({"code": "worker_crashed", "message": message}));
    assert!(task.held("events").await.contains(r#""by": "anna", "cancelled": "b", "failed": "a worker_crashed no%20"#));
    assert_eq!(task.totals().await, ["", "2"]);
}

#[tokio::test]
async fn the_table_takes_precedence_for_jobs_that_are_not_counted() {
    let mut task = epoch_five().await;
    task.write("runs w: gone=7, unlocked=8, bad=9; snapshot; no payload.gone, locks.unlocked").await;
    task.write("stalledCount bad=many").await;
    let reply = task.ok("sweep", "v 0 5 1000 0 200 recover anna gone unlocked bad").await;
    assert_eq!(reply, "[swept 6 1000 0 1 0 [gone 0 dropped w 7 unlocked 0 failed - 0 bad 0 failed w 9]]");
    assert_keys!(task, "no wait");
}

#[tokio::test]
async fn a_person_asks_for_no_interval_and_keeps_that_of_the_workers() {
    let mut task = epoch_five().await;
    task.write("meta interval=5000, ask=5000, asker=w, askedBy=w").await;
    assert_eq!(task.ok("sweep", "anna 0 5 5000 0 200 auto -").await, "[swept 6 5000 0 1 0 []]");
    let meta = task.held("meta").await;
    for field in [r#""ask": "0""#, r#""asker": "w""#, r#""epochAt": "NOW""#, r#""snapshotAt": "NOW""#] {
        assert!(meta.contains(field), "{field} in {meta}");
    }
    // There was no other ask: the interval and its owner stay.
    assert_eq!(task.ok("sweep", "anna 0 6 5000 0 200 auto -").await, "[swept 7 5000 0 1 0 []]");
    assert_keys!(task, "meta.asker=w");
}

#[tokio::test]
async fn a_stall_is_reported_with_the_facts_that_explain_it() {
    let mut task = one_candidate().await;
    task.write("meta asker=slow-1, snapshotAt=1700000000001").await;
    assert_eq!(task.ok("sweep", "v 1000 5 1234 0 200 auto -").await, "[swept 6 1000 0 1 0 [a 1 recovered w 7]]");
    let stalls = task.exact().await.into_iter().find(|(key, _)| key.ends_with(":stalls")).unwrap().1;
    assert!(stalls.contains(r#""watched": "5 1234 1000 slow-1 1700000000001""#), "{stalls}");
}

#[tokio::test]
async fn the_worker_with_the_largest_interval_is_recorded_with_it() {
    let mut task = epoch_five().await;
    // In this epoch the witness `v` asks for 1 s, and w asks for 9 s.
    task.ok("extend_locks", "w 9000 0 0").await;
    assert_keys!(task, "meta.asker=w; meta.askedBy=w");
    assert_eq!(task.ok("sweep", "v 1000 5 9000 0 200 auto -").await, "[swept 6 9000 0 1 0 []]");
    assert_keys!(task, "meta.asker=w; meta.askedBy=v");
    // An ask below the current interval, and above the ask of this epoch.
    task.ok("extend_locks", "u 3000 0 0").await;
    assert_keys!(task, "meta.asker=w; meta.askedBy=u");
    assert_eq!(task.ok("sweep", "v 1000 6 9000 0 200 auto -").await, "[swept 7 3000 0 1 0 []]");
    assert_keys!(task, "meta.asker=u; meta.askedBy=v");
    assert_eq!(task.ok("sweep", "v 1000 7 3000 0 200 auto -").await, "[swept 8 1000 0 1 0 []]");
    assert_keys!(task, "meta.asker=v; meta.askedBy=v");
}

#[tokio::test]
async fn jobs_that_a_sweep_ends_are_counted_as_ended() {
    let mut task = epoch_five().await;
    task.write("runs w: a=7, b=8, c=9, d=10; cancelling b=why; maxCount c=0; no payload.d; snapshot").await;
    task.ok("sweep", ARGS).await;
    assert_eq!(task.totals().await, ["", "2"], "one is recovered, and one has no payload");
}

/// The action for a job that stalls for the `count`th time after `failed` failed runs, and the place of the job.
async fn crashed(meta: &str, own: &str, count: u64, failed: u64) -> (String, String) {
    let mut task = one_candidate().await;
    task.write(&format!("meta heartbeat=automatic{meta}")).await;
    if !own.is_empty() {
        task.write(own).await;
    }
    if count > 1 {
        task.write(&format!("stalledCount a={}", count - 1)).await;
    }
    if failed > 0 {
        task.write(&format!("attempt a={failed}")).await;
    }
    let reply = task.ok("sweep", ARGS).await;
    let action = reply.split(' ').nth(8).unwrap().to_owned();
    let mut places = Vec::new();
    for place in ["wait", "delayed", "failed", "cancelled"] {
        if task.held(place).await.contains(r#""a""#) {
            places.push(place);
        }
    }
    assert_keys!(task, format!("stalledCount a={count}"));
    let attempts = match action.as_str() {
        "retrying" => failed + 1,
        "failed" if meta.contains("onCrash=retry") => failed + 1,
        _ => failed,
    };
    let attempts = if attempts > 0 { format!("attempt a={attempts}") } else { "no attempt".to_owned() };
    assert_keys!(task, format!("{attempts}; no locks"), "{action}");
    (action, places.join(" "))
}

/// The table of `docs/guide/guarantees.md`, row by row.
#[tokio::test]
async fn a_crash_is_handled_by_on_crash_attempts_and_max_count() {
    const THREE: &str = r#"retry={"attempts":3,"backoff":{"fixed":{"delay_ms":9000}},"jitter":"none"}"#;
    for (meta, own, count, failed, becomes) in [
        // Recover: only max_count decides, for any number of attempts.
        ("", "", 1, 0, "recovered wait"),
        ("", "", 2, 0, "failed failed"),
        (", onCrash=recover, THREE", "", 2, 0, "failed failed"),
        (", THREE", "", 1, 2, "recovered wait"),
        ("", "maxCount a=5", 5, 0, "recovered wait"),
        ("", "cancelling a=why", 1, 0, "cancelled cancelled"),
        // Fail: the first stall ends it.
        (", onCrash=fail, THREE", "", 1, 0, "failed failed"),
        (", onCrash=fail", "maxCount a=5", 1, 0, "failed failed"),
        (", onCrash=fail", "cancelling a=why", 1, 0, "cancelled cancelled"),
        // Retry: the attempts decide, and a max_count only if it is set for the task or the job.
        (", onCrash=retry", "", 1, 0, "failed failed"),
        (", onCrash=retry, THREE", "", 1, 0, "retrying delayed"),
        (", onCrash=retry, THREE", "", 2, 1, "retrying delayed"),
        (", onCrash=retry, THREE", "", 3, 2, "failed failed"),
        (", onCrash=retry, THREE, maxCountSet=1", "", 2, 1, "failed failed"),
        (", onCrash=retry, THREE", "maxCount a=1", 2, 1, "failed failed"),
        (", onCrash=retry, THREE", "maxCount a=0", 1, 0, "failed failed"),
        (", onCrash=retry, THREE", r#"options a={"attempts":2}"#, 2, 1, "failed failed"),
        (", onCrash=retry, THREE", r#"options a={"retry":{"attempts":5}}"#, 4, 3, "retrying delayed"),
        (", onCrash=retry, THREE", "cancelling a=why", 1, 0, "cancelled cancelled"),
    ] {
        let (action, place) = crashed(&meta.replace("THREE", THREE), own, count, failed).await;
        assert_eq!(format!("{action} {place}"), becomes, "{meta} {own}, stall {count} after {failed} failed runs");
    }
}

#[tokio::test]
async fn a_retried_crash_waits_by_the_backoff_and_is_reported() {
    let mut task = one_candidate().await;
    let policy = r#"{"attempts":3,"backoff":{"exponential":{"first_ms":4000,"factor":3.0}},"jitter":"none"}"#;
    task.write(&format!("meta onCrash=retry, retry={policy}; attempt a=1")).await;
    let before = task.now_ms().await;
    assert_eq!(task.ok("sweep", ARGS).await, "[swept 6 1000 0 1 0 [a 1 retrying w 7]]");
    let due = task.score("delayed", "a").await - before;
    assert!((12_000.0..13_000.0).contains(&due), "{due}");
    let entry = task.held("events").await;
    let brief = "no%20heartbeat%20came%20from%20worker%20w%20for%20a%20watched%20interval";
    assert!(entry.contains(&format!(r#""retrying": "a 2 12000 worker_crashed {brief} -""#)), "{entry}");
    assert!(entry.contains(r#""stalled": "a 1 retrying w", "total": "2""#), "{entry}");
    assert!(!task.held("stalls").await.contains("retrying\":"));
    assert!(task.held("error").await.contains("worker_crashed"));
    assert_keys!(task, "recovery a=silent w NOW; enqueuedAt a=NOW");
    // Idle workers must know when it is due.
    assert_keys!(task, "wake marker=0, spare=1");
}

/// As in `RetryPolicy::delay`; an unreadable policy is the default, 1 s doubled.
#[tokio::test]
async fn the_backoff_of_a_crash_follows_any_retry_policy() {
    let exponential = |first: &str, factor: &str, rest: &str| {
        let backoff = format!(r#"{{"exponential":{{"first_ms":{first},"factor":{factor}}}}}"#);
        format!(r#"{{"attempts":99,"backoff":{backoff}{rest},"jitter":"none"}}"#)
    };
    let rows = [
        (r#"{"attempts":99,"backoff":{"fixed":{"delay_ms":70}},"jitter":"none"}"#.to_owned(), 5, (70, 70)),
        (r#"{"attempts":99,"backoff":{"fixed":{"delay_ms":7000}}}"#.to_owned(), 5, (7000, 14_000)),
        (exponential("1000", "2", ""), 0, (1000, 1000)),
        (exponential("1000", "2", ""), 3, (8000, 8000)),
        (exponential("1000", "2", ""), 80, (600_000, 600_000)),
        (exponential("0", "2", ""), 80, (0, 0)),
        (exponential("5000", "2", r#","max_delay_ms":6000"#), 2, (6000, 6000)),
        (exponential("900000", "1.5", ""), 1, (900_000, 900_000)),
        (exponential("1e300", "9e99", ""), 50, (315_360_000_000, 315_360_000_000)),
        (exponential("null", "2", ""), 1, (2000, 4000)),
        (exponential("-5", "2", ""), 1, (0, 0)),
        (r#"{"attempts":99,"backoff":7}"#.to_owned(), 0, (1000, 2000)),
        (r#"{"attempts":99,"backoff":{}}"#.to_owned(), 0, (1000, 2000)),
        (r#"{"attempts":99}"#.to_owned(), 1, (2000, 4000)),
    ];
    for (policy, failed, (least, most)) in rows {
        let mut task = one_candidate().await;
        task.write(&format!("meta onCrash=retry, retry={policy}; attempt a={failed}")).await;
        task.ok("sweep", ARGS).await;
        let events = task.held("events").await;
        let words = events.split(r#""retrying": "a "#).nth(1).unwrap_or_else(|| panic!("{policy}: {events}"));
        let delay: u64 = words.split(' ').nth(1).unwrap().parse().unwrap();
        assert!((least..=most).contains(&delay), "{policy} after {failed} failed runs: {delay}");
    }
}

#[tokio::test]
async fn unreadable_options_of_a_job_count_as_those_of_the_task() {
    let policy = r#"{"attempts":3,"backoff":{"fixed":{"delay_ms":9000}},"jitter":"none"}"#;
    for own in ["", "{", "[]", "7", r#"{"retry":7,"attempts":null}"#] {
        let meta = format!(", onCrash=retry, retry={policy}");
        let (action, _) = crashed(&meta, &format!("options a={own}"), 1, 0).await;
        assert_eq!(action, "retrying", "{own}");
    }
    let mut task = epoch_five().await;
    task.write(&format!("runs w: a=7, bad=8; snapshot; meta onCrash=retry, retry={policy}; attempt bad=many")).await;
    task.ok("sweep", ARGS).await;
    assert!(task.held("error").await.contains("attempt is no number"));
    assert!(task.held("failed").await.contains("bad") && task.held("delayed").await.contains(r#""a""#));
}

#[tokio::test]
async fn failed_and_retried_crashes_of_one_call_keep_their_columns() {
    let mut task = epoch_five().await;
    task.write("runs w: ends=7, again=8; snapshot").await;
    let policy = r#"{"attempts":3,"backoff":{"fixed":{"delay_ms":9000}},"jitter":"none"}"#;
    task.write(&format!("meta onCrash=retry, retry={policy}, keepFailed=0; attempt ends=2")).await;
    task.ok("sweep", ARGS).await;
    for column in ["payload", "error", "attempt", "stalledCount", "recovery"] {
        let held = task.held(column).await;
        assert!(held.contains("again") && !held.contains("ends"), "{column}: {held}");
    }
}

#[tokio::test]
async fn a_person_takes_precedence_over_the_crash_option() {
    for (choice, verdict, action) in [
        ("fail", "recover", "recovered"),
        ("retry", "recover", "recovered"),
        ("retry", "fail", "failed"),
        ("recover", "fail", "failed"),
    ] {
        let mut task = one_candidate().await;
        task.hset("meta", &[("onCrash", choice)]).await;
        let reply = task.ok("sweep", &["v", "1000", "5", "1000", "0", "200", verdict, "ada"]).await;
        assert!(reply.contains(&format!(" {action} ")), "{choice} {verdict}: {reply}");
    }
}

#[tokio::test]
async fn stalled_nodes_that_end_are_in_the_outbox() {
    for keep in ["1", "0"] {
        let mut task = epoch_five().await;
        task.hset("meta", &[("keepFailed", keep), ("keepCancelled", keep)]).await;
        let jobs = [("~f/a/0/1", 7), ("~f/a/1/1", 8), ("~f/a/2/1", 9), ("~f/a/3/1", 10), ("own", 11)];
        task.running("w", &jobs).await;
        task.write("stalledCount ~f/a/0/1=1, own=1, ~f/a/3/1=many; cancelling ~f/a/1/1=why; snapshot").await;
        task.ok("sweep", ARGS).await;
        assert_keys!(task, "wait ~f/a/2/1");
        assert_keys!(task, "outbox ~f/a/0/1=NOW, ~f/a/1/1=NOW, ~f/a/3/1=NOW", "a job that runs again has not ended");
        let own = if keep == "1" { "own=NOW, " } else { "" };
        assert_keys!(task, format!("failed {own}~f/a/0/1=NOW, ~f/a/3/1=NOW; cancelled ~f/a/1/1=NOW"));
        assert!(task.field("error", "~f/a/0/1").await.contains("worker_crashed"));
    }
}

#[tokio::test]
async fn a_second_or_final_stall_counts_as_failing() {
    let mut task = epoch_five().await;
    task.write("runs w: once=1, again=2, often=3, cancelled=4; stalledCount again=1, often=2, cancelled=1").await;
    task.write("cancelling cancelled=why; maxCount again=5, often=2; snapshot").await;
    let reply = task.ok("sweep", ARGS).await;
    for said in ["once 1 recovered", "again 2 recovered", "often 3 failed", "cancelled 2 cancelled"] {
        assert!(reply.contains(said), "{said}: {reply}");
    }
    // A job that runs again broke off and did not fail; a job to be cancelled did neither.
    assert_keys!(task, "meta.failedSinceCompleted=1; meta.brokenOffSinceCompleted=3");
}
