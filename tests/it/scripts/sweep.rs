use crate::scripts::call::{LAST_FENCE, Task, without};
use std::collections::BTreeSet;

/// Arguments of the witness `v`: interval 1 s, epoch 5, a whole interval waited.
const ARGS: [&str; 8] = ["v", "1000", "5", "1000", "0", "200", "auto", ""];

async fn epoch_five() -> Task {
    let mut task = Task::new().await;
    task.hset("meta", &[("epoch", "5"), ("interval", "1000"), ("ask", "1000"), ("maxCount", "1")]).await;
    task
}

/// A task with one candidate `a` of worker `w`.
async fn one_candidate() -> Task {
    let mut task = epoch_five().await;
    task.running("w", &[("a", 7)]).await;
    task.snapshot().await;
    task
}

#[tokio::test]
async fn without_candidates_running_jobs_become_candidates() {
    let mut task = epoch_five().await;
    task.running("w", &[("a", 7), ("b", 8)]).await;
    assert_eq!(task.ok("sweep", &ARGS).await, "[swept 6 1000 0 1 0 []]");
    assert_eq!(task.held("candidates").await, r#"set {"a", "b"}"#);
    assert_eq!(task.held("active").await, "");
    assert!(task.held("meta").await.contains(r#""epoch": "6""#));
    assert_eq!(task.held("events").await, "");
}

#[tokio::test]
async fn without_running_jobs_only_the_epoch_moves() {
    let mut task = epoch_five().await;
    assert_eq!(task.ok("sweep", &ARGS).await, "[swept 6 1000 0 1 0 []]");
    assert_eq!(task.keys().await.len(), 1);
}

#[tokio::test]
async fn a_new_task_is_swept_in_epoch_zero() {
    let mut task = Task::new().await;
    assert_eq!(task.ok("sweep", &["v", "1000", "0", "1000", "0", "200", "auto", ""]).await, "[swept 1 1000 0 1 0 []]");
}

#[tokio::test]
async fn another_epoch_gets_moved_and_a_short_wait_early() {
    let mut task = one_candidate().await;
    let before = task.exact().await;
    assert_eq!(task.ok("sweep", &["v", "1000", "4", "1000", "0", "200", "auto", ""]).await, "[moved 5 1000]");
    assert_eq!(task.ok("sweep", &["v", "1000", "6", "1000", "0", "200", "auto", ""]).await, "[moved 5 1000]");
    assert_eq!(task.ok("sweep", &["v", "1000", "5", "999", "0", "200", "auto", ""]).await, "[early 5 1000]");
    task.hset("meta", &[("interval", "5000")]).await;
    assert_eq!(task.ok("sweep", &["v", "1000", "5", "4999", "0", "200", "auto", ""]).await, "[early 5 5000]");
    task.hset("meta", &[("interval", "1000")]).await;
    assert_eq!(task.exact().await, before);
}

#[tokio::test]
async fn a_stalled_job_is_requeued_at_the_front_and_counted() {
    let mut task = one_candidate().await;
    task.waiting(&["z"]).await;
    assert_eq!(task.ok("sweep", &ARGS).await, "[swept 6 1000 0 1 0 [a 1 recovered w 7]]");
    let entry = concat!(
        r#"stream [NOW {"reason": "silent", "stalled": "a 1 recovered w", "total": "1", "#,
        r#""watched": "5 1000 1000 - 0", "worker": "v"}]"#
    );
    assert_eq!(
        without(task.keys().await, &["meta", "payload"]),
        [
            r#"enqueuedAt hash {"a": "NOW"}"#.to_owned(),
            format!("events {entry}"),
            r#"recovery hash {"a": "silent w NOW"}"#.to_owned(),
            r#"stalledCount hash {"a": "1"}"#.to_owned(),
            format!("stalls {entry}"),
            r#"wait list ["a", "z"]"#.to_owned(),
            r#"wake zset ["marker": 0, "spare": 1]"#.to_owned(),
        ]
    );
}

#[tokio::test]
async fn a_job_stalls_max_count_times_and_fails_at_the_next() {
    for max in 0..=3_u64 {
        let mut task = epoch_five().await;
        task.hset("meta", &[("maxCount", &max.to_string())]).await;
        task.waiting(&["a"]).await;
        for stall in 1..=max + 1 {
            task.hset("meta", &[("epoch", "5")]).await;
            let call = stall.to_string();
            assert!(task.ok("settle", &[&call, "w", "1000", "1", "0", "0"]).await.contains(" a ["), "run {stall}");
            task.snapshot().await;
            let action = if stall <= max { "recovered" } else { "failed" };
            let reply = task.ok("sweep", &ARGS).await;
            let fence = LAST_FENCE + stall;
            assert!(reply.ends_with(&format!("[a {stall} {action} w {fence}]]")), "max {max}: {reply}");
            assert_eq!(task.held("stalledCount").await, format!(r#"hash {{"a": "{stall}"}}"#));
        }
        assert_eq!(task.held("failed").await, r#"zset ["a": NOW]"#);
        assert_eq!(task.held("wait").await, "");
        assert_eq!(task.held("locks").await, "");
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
    task.running("w", &[("a", 7), ("b", 8), ("c", 9)]).await;
    task.snapshot().await;
    // The largest allowed value.
    let most = u32::MAX.to_string();
    task.hset("maxCount", &[("a", "0"), ("b", "4"), ("c", &most)]).await;
    task.hset("stalledCount", &[("b", "3"), ("c", "999999998")]).await;
    task.ok("sweep", &ARGS).await;
    assert_eq!(task.held("failed").await, r#"zset ["a": NOW]"#);
    let mut waiting = task.list("wait").await;
    waiting.sort();
    assert_eq!(waiting, ["b", "c"]);
}

#[tokio::test]
async fn a_job_without_payload_is_dropped_with_all_its_data() {
    let mut task = one_candidate().await;
    task.del("payload").await;
    for column in [
        "attempt",
        "stalledCount",
        "result",
        "error",
        "options",
        "maxCount",
        "priority",
        "dispatchedAt",
        "snoozes",
        "enqueuedAt",
        "recovery",
        "expiresAt",
        "checkpoint",
        "progress",
    ] {
        task.hset(column, &[("a", "1")]).await;
    }
    task.hset("cancelling", &[("a", "why")]).await;
    assert_eq!(task.ok("sweep", &ARGS).await, "[swept 6 1000 0 1 0 [a 1 dropped w 7]]");
    assert_eq!(without(task.keys().await, &["meta", "events", "stalls"]), [] as [&str; 0]);
}

#[tokio::test]
async fn a_candidate_without_lock_fails_as_corrupt() {
    let mut task = one_candidate().await;
    task.del("locks").await;
    assert_eq!(task.ok("sweep", &ARGS).await, "[swept 6 1000 0 1 0 [a 0 failed - 0]]");
    assert_eq!(task.held("failed").await, r#"zset ["a": NOW]"#);
    assert!(task.held("error").await.contains("corrupt"));
    assert_eq!(task.held("stalledCount").await, "");
}

#[tokio::test]
async fn an_ended_candidate_without_lock_keeps_its_outcome() {
    let mut task = one_candidate().await;
    task.del("locks").await;
    task.zadd("completed", 1.0, "a").await;
    assert_eq!(task.ok("sweep", &ARGS).await, "[swept 6 1000 0 1 0 []]");
    assert_eq!(without(task.keys().await, &["meta", "payload"]), [r#"completed zset ["a": 1]"#]);
}

#[tokio::test]
async fn a_count_that_is_not_a_number_fails_its_job_and_no_other() {
    let mut task = epoch_five().await;
    task.running("w", &[("a", 7), ("bad", 8), ("worse", 9)]).await;
    task.snapshot().await;
    task.hset("stalledCount", &[("bad", "many"), ("worse", "")]).await;
    task.ok("sweep", &ARGS).await;
    assert_eq!(task.held("wait").await, r#"list ["a"]"#);
    assert_eq!(task.held("failed").await, r#"zset ["bad": NOW, "worse": NOW]"#);
    assert!(task.held("error").await.contains("stalledCount is no number"));
}

#[tokio::test]
async fn a_job_with_a_pending_cancel_is_cancelled_with_its_stall() {
    let mut task = one_candidate().await;
    task.hset("cancelling", &[("a", "why")]).await;
    task.hset("stalledCount", &[("a", "9")]).await;
    assert_eq!(task.ok("sweep", &ARGS).await, "[swept 6 1000 0 1 0 [a 10 cancelled w 7]]");
    assert_eq!(task.held("cancelled").await, r#"zset ["a": NOW]"#);
    assert_eq!(task.held("cancelling").await, "");
    assert_eq!(task.held("stalledCount").await, r#"hash {"a": "10"}"#);
    assert!(task.held("error").await.contains("why"));
}

#[tokio::test]
async fn recovered_jobs_go_to_the_list_of_their_priority() {
    let mut task = epoch_five().await;
    task.running("w", &[("h", 7), ("l", 8), ("n", 9)]).await;
    task.hset("priority", &[("h", "high"), ("l", "low")]).await;
    task.snapshot().await;
    task.ok("sweep", &ARGS).await;
    assert_eq!(task.held("wait:high").await, r#"list ["h"]"#);
    assert_eq!(task.held("wait").await, r#"list ["n"]"#);
    assert_eq!(task.held("wait:low").await, r#"list ["l"]"#);
}

#[tokio::test]
async fn a_heartbeat_just_before_saves_its_job() {
    let mut task = epoch_five().await;
    task.running("w", &[("a", 7), ("b", 8)]).await;
    task.snapshot().await;
    task.ok("extend_locks", &["w", "1000", "1", "0", "b", "8"]).await;
    assert_eq!(task.ok("sweep", &ARGS).await, "[swept 6 1000 0 1 0 [a 1 recovered w 7]]");
    assert_eq!(task.held("candidates").await, r#"set {"b"}"#);
}

#[tokio::test]
async fn a_second_sweeper_finds_the_epoch_moved() {
    let mut task = one_candidate().await;
    assert_eq!(task.ok("sweep", &ARGS).await, "[swept 6 1000 0 1 0 [a 1 recovered w 7]]");
    let before = task.exact().await;
    assert_eq!(task.ok("sweep", &["u", "1000", "5", "1000", "0", "200", "auto", ""]).await, "[moved 6 1000]");
    assert_eq!(task.exact().await, before);
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
    task.snapshot().await;
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
    assert_eq!(task.held("candidates").await, "");
    assert_eq!(task.held("locks").await, "");
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
    let before = task.exact().await;
    assert_eq!(task.ok("sweep", &ARGS).await, "[undeclared]");
    // A witness of another epoch, or of a short wait, receives it too.
    assert_eq!(task.ok("sweep", &["v", "1000", "4", "0", "0", "200", "auto", ""]).await, "[undeclared]");
    assert_eq!(task.exact().await, before);
    task.declared().await;
    assert_eq!(task.ok("sweep", &ARGS).await, "[swept 6 1000 0 1 0 [a 1 recovered w 7]]");
}

#[tokio::test]
async fn the_interval_of_an_epoch_is_the_largest_ask_of_the_last_one() {
    let mut task = epoch_five().await;
    task.hset("meta", &[("interval", "5000"), ("ask", "2000")]).await;
    assert_eq!(task.ok("sweep", &["v", "1000", "5", "5000", "0", "200", "auto", ""]).await, "[swept 6 2000 0 1 0 []]");
    // Since then only the witness has asked.
    assert_eq!(task.ok("sweep", &["v", "1000", "6", "2000", "0", "200", "auto", ""]).await, "[swept 7 1000 0 1 0 []]");
    assert_eq!(task.ok("sweep", &["v", "3000", "7", "1000", "0", "200", "auto", ""]).await, "[swept 8 3000 0 1 0 []]");
}

#[tokio::test]
async fn a_manual_task_reports_that_the_handler_was_silent() {
    let mut task = one_candidate().await;
    task.hset("meta", &[("heartbeat", "manual")]).await;
    task.ok("sweep", &ARGS).await;
    assert!(task.held("stalls").await.contains(r#""reason": "handler_silent""#));
}

#[tokio::test]
async fn stalls_are_recorded_even_without_events() {
    let mut task = one_candidate().await;
    task.hset("meta", &[("eventMode", "off")]).await;
    task.ok("sweep", &ARGS).await;
    assert_eq!(task.held("events").await, "");
    assert!(task.held("stalls").await.contains("a 1 recovered w"));
}

#[tokio::test]
async fn a_task_that_keeps_nothing_removes_every_column() {
    let mut task = epoch_five().await;
    task.hset("meta", &[("keepFailed", "0"), ("keepCancelled", "0"), ("maxCount", "0")]).await;
    task.running("w", &[("a", 7), ("b", 8)]).await;
    task.hset("cancelling", &[("b", "why")]).await;
    task.snapshot().await;
    task.ok("sweep", &ARGS).await;
    assert_eq!(without(task.keys().await, &["meta", "events", "stalls"]), [] as [&str; 0]);
}

/// Values that Lua reads as a number and HINCRBY refuses.
const NO_COUNTS: [&str; 8] = ["1.5", "1e3", "0x10", " 1", "nan", "inf", "-1", "9223372036854775807"];

#[tokio::test]
async fn a_count_that_cannot_grow_loses_no_job() {
    for count in NO_COUNTS {
        let mut task = epoch_five().await;
        task.running("w", &[("a", 7), ("bad", 8)]).await;
        task.snapshot().await;
        task.hset("stalledCount", &[("bad", count)]).await;
        let reply = task.call("sweep", &ARGS).await;
        assert!(reply.is_ok(), "{count}: {reply:?}");
        assert_eq!(task.held("wait").await, r#"list ["a"]"#, "{count}");
        assert_eq!(task.held("failed").await, r#"zset ["bad": NOW]"#, "{count}");
    }
}

#[tokio::test]
async fn a_max_count_that_is_not_a_number_falls_back_to_the_task() {
    for max in ["nan", "many", ""] {
        let mut task = one_candidate().await;
        task.hset("stalledCount", &[("a", "1")]).await;
        task.hset("maxCount", &[("a", max)]).await;
        task.ok("sweep", &ARGS).await;
        assert_eq!(task.held("failed").await, r#"zset ["a": NOW]"#, "{max}");
    }
}

#[tokio::test]
async fn a_person_recovers_named_candidates_whatever_their_count() {
    let mut task = epoch_five().await;
    task.running("w", &[("a", 7), ("b", 8), ("c", 9)]).await;
    task.snapshot().await;
    task.hset("stalledCount", &[("a", "4"), ("b", "4")]).await;
    // One id is not a candidate, and `a` is named twice.
    let args = ["v", "0", "5", "1000", "0", "200", "recover", "anna", "a", "nobody", "a"];
    assert_eq!(task.ok("sweep", &args).await, "[swept 5 1000 0 0 2 [a 5 recovered w 7]]");
    assert_eq!(task.list("wait").await, ["a"]);
    assert_eq!(task.held("candidates").await, r#"set {"b", "c"}"#);
    assert_eq!(task.held("stalledCount").await, r#"hash {"a": "5", "b": "4"}"#);
    let entry = concat!(
        r#"stream [NOW {"by": "anna", "reason": "manual", "stalled": "a 5 recovered w", "total": "1", "#,
        r#""watched": "5 1000 1000 - 0", "worker": "v"}]"#
    );
    assert_eq!(task.held("events").await, entry);
    assert_eq!(task.held("stalls").await, entry);
}

#[tokio::test]
async fn a_person_fails_named_candidates_unless_a_cancel_is_pending() {
    let mut task = epoch_five().await;
    task.running("w", &[("a", 7), ("b", 8), ("c", 9)]).await;
    task.hset("cancelling", &[("b", "why")]).await;
    task.snapshot().await;
    let args = ["v", "0", "5", "1000", "0", "200", "fail", "anna", "b", "a"];
    assert_eq!(task.ok("sweep", &args).await, "[swept 5 1000 0 0 1 [b 1 cancelled w 8 a 1 failed w 7]]");
    assert_eq!(task.held("failed").await, r#"zset ["a": NOW]"#);
    assert_eq!(task.held("cancelled").await, r#"zset ["b": NOW]"#);
    let error: serde_json::Value = serde_json::from_str(&task.field("error", "a").await).unwrap();
    let message = "no heartbeat came from worker w for a watched interval, and anna let the job fail";
    assert_eq!(error, serde_json::json!({"code": "worker_crashed", "message": message}));
    assert!(task.held("events").await.contains(r#""by": "anna", "cancelled": "b", "failed": "a worker_crashed no%20"#));
    assert_eq!(task.totals().await, ["", "2"]);
}

#[tokio::test]
async fn the_table_takes_precedence_for_jobs_that_are_not_counted() {
    let mut task = epoch_five().await;
    task.running("w", &[("gone", 7), ("unlocked", 8), ("bad", 9)]).await;
    task.snapshot().await;
    let () = redis::AsyncCommands::hdel(&mut task.conn, task.prefix.clone() + "payload", "gone").await.unwrap();
    let () = redis::AsyncCommands::hdel(&mut task.conn, task.prefix.clone() + "locks", "unlocked").await.unwrap();
    task.hset("stalledCount", &[("bad", "many")]).await;
    let args = ["v", "0", "5", "1000", "0", "200", "recover", "anna", "gone", "unlocked", "bad"];
    let reply = task.ok("sweep", &args).await;
    assert_eq!(reply, "[swept 6 1000 0 1 0 [gone 0 dropped w 7 unlocked 0 failed - 0 bad 0 failed w 9]]");
    assert_eq!(task.held("wait").await, "");
}

#[tokio::test]
async fn a_person_asks_for_no_interval_and_keeps_that_of_the_workers() {
    let mut task = epoch_five().await;
    task.hset("meta", &[("interval", "5000"), ("ask", "5000"), ("asker", "w"), ("askedBy", "w")]).await;
    let args = ["anna", "0", "5", "5000", "0", "200", "auto", ""];
    assert_eq!(task.ok("sweep", &args).await, "[swept 6 5000 0 1 0 []]");
    let meta = task.held("meta").await;
    for field in [r#""ask": "0""#, r#""asker": "w""#, r#""epochAt": "NOW""#, r#""snapshotAt": "NOW""#] {
        assert!(meta.contains(field), "{field} in {meta}");
    }
    // There was no other ask: the interval and its owner stay.
    let args = ["anna", "0", "6", "5000", "0", "200", "auto", ""];
    assert_eq!(task.ok("sweep", &args).await, "[swept 7 5000 0 1 0 []]");
    assert_eq!(task.field("meta", "asker").await, "w");
}

#[tokio::test]
async fn a_stall_is_reported_with_the_facts_that_explain_it() {
    let mut task = one_candidate().await;
    task.hset("meta", &[("asker", "slow-1"), ("snapshotAt", "1700000000001")]).await;
    assert_eq!(
        task.ok("sweep", &["v", "1000", "5", "1234", "0", "200", "auto", ""]).await,
        "[swept 6 1000 0 1 0 [a 1 recovered w 7]]"
    );
    let stalls = task.exact().await.into_iter().find(|(key, _)| key.ends_with(":stalls")).unwrap().1;
    assert!(stalls.contains(r#""watched": "5 1234 1000 slow-1 1700000000001""#), "{stalls}");
}

#[tokio::test]
async fn the_worker_with_the_largest_interval_is_recorded_with_it() {
    let mut task = epoch_five().await;
    // In this epoch the witness `v` asks for 1 s, and w asks for 9 s.
    task.ok("extend_locks", &["w", "9000", "0", "0"]).await;
    assert_eq!([task.field("meta", "asker").await, task.field("meta", "askedBy").await], ["w", "w"]);
    assert_eq!(task.ok("sweep", &["v", "1000", "5", "9000", "0", "200", "auto", ""]).await, "[swept 6 9000 0 1 0 []]");
    assert_eq!([task.field("meta", "asker").await, task.field("meta", "askedBy").await], ["w", "v"]);
    // An ask below the current interval, and above the ask of this epoch.
    task.ok("extend_locks", &["u", "3000", "0", "0"]).await;
    assert_eq!([task.field("meta", "asker").await, task.field("meta", "askedBy").await], ["w", "u"]);
    assert_eq!(task.ok("sweep", &["v", "1000", "6", "9000", "0", "200", "auto", ""]).await, "[swept 7 3000 0 1 0 []]");
    assert_eq!([task.field("meta", "asker").await, task.field("meta", "askedBy").await], ["u", "v"]);
    assert_eq!(task.ok("sweep", &["v", "1000", "7", "3000", "0", "200", "auto", ""]).await, "[swept 8 1000 0 1 0 []]");
    assert_eq!([task.field("meta", "asker").await, task.field("meta", "askedBy").await], ["v", "v"]);
}

#[tokio::test]
async fn jobs_that_a_sweep_ends_are_counted_as_ended() {
    let mut task = epoch_five().await;
    task.running("w", &[("a", 7), ("b", 8), ("c", 9), ("d", 10)]).await;
    task.hset("cancelling", &[("b", "why")]).await;
    task.hset("maxCount", &[("c", "0")]).await;
    let () = redis::AsyncCommands::hdel(&mut task.conn, task.prefix.clone() + "payload", "d").await.unwrap();
    task.snapshot().await;
    task.ok("sweep", &ARGS).await;
    assert_eq!(task.totals().await, ["", "2"], "one is recovered, and one has no payload");
}

/// The action for a job that stalls for the `count`th time after `failed` failed runs, and the place of the job.
async fn crashed(meta: &[(&str, &str)], own: &[(&str, &str)], count: u64, failed: u64) -> (String, String) {
    let mut task = one_candidate().await;
    task.hset("meta", &[&[("heartbeat", "automatic")], meta].concat()).await;
    for (column, value) in own {
        task.hset(column, &[("a", value)]).await;
    }
    if count > 1 {
        task.hset("stalledCount", &[("a", &(count - 1).to_string())]).await;
    }
    if failed > 0 {
        task.hset("attempt", &[("a", &failed.to_string())]).await;
    }
    let reply = task.ok("sweep", &ARGS).await;
    let action = reply.split(' ').nth(8).unwrap().to_owned();
    let mut places = Vec::new();
    for place in ["wait", "delayed", "failed", "cancelled"] {
        if task.held(place).await.contains(r#""a""#) {
            places.push(place);
        }
    }
    assert_eq!(task.held("stalledCount").await, format!(r#"hash {{"a": "{count}"}}"#));
    let attempts = match action.as_str() {
        "retrying" => failed + 1,
        "failed" if meta.contains(&("onCrash", "retry")) => failed + 1,
        _ => failed,
    };
    let attempts = if attempts > 0 { format!(r#"hash {{"a": "{attempts}"}}"#) } else { String::new() };
    assert_eq!(task.held("attempt").await, attempts, "{action}");
    assert_eq!(task.held("locks").await, "");
    (action, places.join(" "))
}

/// The table of `docs/guide/guarantees.md`, row by row.
#[tokio::test]
async fn a_crash_is_handled_by_on_crash_attempts_and_max_count() {
    const RETRY: (&str, &str) = ("onCrash", "retry");
    const THREE: (&str, &str) = ("retry", r#"{"attempts":3,"backoff":{"fixed":{"delay_ms":9000}},"jitter":"none"}"#);
    const SET: (&str, &str) = ("maxCountSet", "1");
    const OWN: (&str, &str) = ("options", r#"{"attempts":2}"#);
    const OWN_POLICY: (&str, &str) = ("options", r#"{"retry":{"attempts":5}}"#);
    type Fields = &'static [(&'static str, &'static str)];
    let rows: [(Fields, Fields, u64, u64, &str); 19] = [
        // Recover: only max_count decides, for any number of attempts.
        (&[], &[], 1, 0, "recovered wait"),
        (&[], &[], 2, 0, "failed failed"),
        (&[("onCrash", "recover"), THREE], &[], 2, 0, "failed failed"),
        (&[THREE], &[], 1, 2, "recovered wait"),
        (&[], &[("maxCount", "5")], 5, 0, "recovered wait"),
        (&[], &[("cancelling", "why")], 1, 0, "cancelled cancelled"),
        // Fail: the first stall ends it.
        (&[("onCrash", "fail"), THREE], &[], 1, 0, "failed failed"),
        (&[("onCrash", "fail")], &[("maxCount", "5")], 1, 0, "failed failed"),
        (&[("onCrash", "fail")], &[("cancelling", "why")], 1, 0, "cancelled cancelled"),
        // Retry: the attempts decide, and a max_count only if it is set for the task or the job.
        (&[RETRY], &[], 1, 0, "failed failed"),
        (&[RETRY, THREE], &[], 1, 0, "retrying delayed"),
        (&[RETRY, THREE], &[], 2, 1, "retrying delayed"),
        (&[RETRY, THREE], &[], 3, 2, "failed failed"),
        (&[RETRY, THREE, SET], &[], 2, 1, "failed failed"),
        (&[RETRY, THREE], &[("maxCount", "1")], 2, 1, "failed failed"),
        (&[RETRY, THREE], &[("maxCount", "0")], 1, 0, "failed failed"),
        (&[RETRY, THREE], &[OWN], 2, 1, "failed failed"),
        (&[RETRY, THREE], &[OWN_POLICY], 4, 3, "retrying delayed"),
        (&[RETRY, THREE], &[("cancelling", "why")], 1, 0, "cancelled cancelled"),
    ];
    for (meta, own, count, failed, becomes) in rows {
        let (action, place) = crashed(meta, own, count, failed).await;
        assert_eq!(format!("{action} {place}"), becomes, "{meta:?} {own:?}, stall {count} after {failed} failed runs");
    }
}

#[tokio::test]
async fn a_retried_crash_waits_by_the_backoff_and_is_reported() {
    let mut task = one_candidate().await;
    let policy = r#"{"attempts":3,"backoff":{"exponential":{"first_ms":4000,"factor":3.0}},"jitter":"none"}"#;
    task.hset("meta", &[("onCrash", "retry"), ("retry", policy)]).await;
    task.hset("attempt", &[("a", "1")]).await;
    let before = task.now_ms().await;
    assert_eq!(task.ok("sweep", &ARGS).await, "[swept 6 1000 0 1 0 [a 1 retrying w 7]]");
    let due = task.score("delayed", "a").await - before;
    assert!((12_000.0..13_000.0).contains(&due), "{due}");
    let entry = task.held("events").await;
    let brief = "no%20heartbeat%20came%20from%20worker%20w%20for%20a%20watched%20interval";
    assert!(entry.contains(&format!(r#""retrying": "a 2 12000 worker_crashed {brief} -""#)), "{entry}");
    assert!(entry.contains(r#""stalled": "a 1 retrying w", "total": "2""#), "{entry}");
    assert!(!task.held("stalls").await.contains("retrying\":"));
    assert!(task.held("error").await.contains("worker_crashed"));
    assert_eq!(task.held("recovery").await, r#"hash {"a": "silent w NOW"}"#);
    assert_eq!(task.held("enqueuedAt").await, r#"hash {"a": "NOW"}"#);
    // Idle workers must know when it is due.
    assert_eq!(task.held("wake").await, r#"zset ["marker": 0, "spare": 1]"#);
}

/// As in `RetryPolicy::delay`; an unreadable policy is the default, 1 s doubled.
#[tokio::test]
async fn the_backoff_of_a_crash_follows_any_retry_policy() {
    let exponential = |first: &str, factor: &str, rest: &str| {
        format!(
            r#"{{"attempts":99,"backoff":{{"exponential":{{"first_ms":{first},"factor":{factor}}}}}{rest},"jitter":"none"}}"#
        )
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
        task.hset("meta", &[("onCrash", "retry"), ("retry", &policy)]).await;
        task.hset("attempt", &[("a", &failed.to_string())]).await;
        task.ok("sweep", &ARGS).await;
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
        let (action, _) = crashed(&[("onCrash", "retry"), ("retry", policy)], &[("options", own)], 1, 0).await;
        assert_eq!(action, "retrying", "{own}");
    }
    let mut task = epoch_five().await;
    task.running("w", &[("a", 7), ("bad", 8)]).await;
    task.snapshot().await;
    task.hset("meta", &[("onCrash", "retry"), ("retry", policy)]).await;
    task.hset("attempt", &[("bad", "many")]).await;
    task.ok("sweep", &ARGS).await;
    assert!(task.held("error").await.contains("attempt is no number"));
    assert!(task.held("failed").await.contains("bad") && task.held("delayed").await.contains(r#""a""#));
}

#[tokio::test]
async fn failed_and_retried_crashes_of_one_call_keep_their_columns() {
    let mut task = epoch_five().await;
    task.running("w", &[("ends", 7), ("again", 8)]).await;
    task.snapshot().await;
    let policy = r#"{"attempts":3,"backoff":{"fixed":{"delay_ms":9000}},"jitter":"none"}"#;
    task.hset("meta", &[("onCrash", "retry"), ("retry", policy), ("keepFailed", "0")]).await;
    task.hset("attempt", &[("ends", "2")]).await;
    task.ok("sweep", &ARGS).await;
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
async fn a_crash_is_not_retried_if_delayed_has_another_type() {
    let mut task = one_candidate().await;
    task.hset("meta", &[("onCrash", "retry"), ("retry", r#"{"attempts":3}"#)]).await;
    task.make_foreign("delayed").await;
    let before = task.exact().await;
    assert!(task.refused("sweep", &ARGS).await.contains("WRONGTYPE"));
    assert_eq!(task.exact().await, before);
}

#[tokio::test]
async fn stalled_nodes_that_end_are_in_the_outbox() {
    for keep in ["1", "0"] {
        let mut task = epoch_five().await;
        task.hset("meta", &[("keepFailed", keep), ("keepCancelled", keep)]).await;
        let jobs = [("~f/a/0/1", 7), ("~f/a/1/1", 8), ("~f/a/2/1", 9), ("~f/a/3/1", 10), ("own", 11)];
        task.running("w", &jobs).await;
        task.hset("stalledCount", &[("~f/a/0/1", "1"), ("own", "1"), ("~f/a/3/1", "many")]).await;
        task.hset("cancelling", &[("~f/a/1/1", "why")]).await;
        task.snapshot().await;
        task.ok("sweep", &ARGS).await;
        assert_eq!(task.list("wait").await, ["~f/a/2/1"]);
        assert_eq!(
            task.held("outbox").await,
            r#"zset ["~f/a/0/1": NOW, "~f/a/1/1": NOW, "~f/a/3/1": NOW]"#,
            "a job that runs again has not ended"
        );
        let own = if keep == "1" { r#""own": NOW, "# } else { "" };
        assert_eq!(task.held("failed").await, format!(r#"zset [{own}"~f/a/0/1": NOW, "~f/a/3/1": NOW]"#));
        assert_eq!(task.held("cancelled").await, r#"zset ["~f/a/1/1": NOW]"#);
        assert!(task.field("error", "~f/a/0/1").await.contains("worker_crashed"));
    }
}

#[tokio::test]
async fn a_second_or_final_stall_counts_as_failing() {
    let mut task = epoch_five().await;
    task.running("w", &[("once", 1), ("again", 2), ("often", 3), ("cancelled", 4)]).await;
    task.hset("stalledCount", &[("again", "1"), ("often", "2"), ("cancelled", "1")]).await;
    task.hset("cancelling", &[("cancelled", "why")]).await;
    task.hset("maxCount", &[("again", "5"), ("often", "2")]).await;
    task.snapshot().await;
    let reply = task.ok("sweep", &ARGS).await;
    for said in ["once 1 recovered", "again 2 recovered", "often 3 failed", "cancelled 2 cancelled"] {
        assert!(reply.contains(said), "{said}: {reply}");
    }
    // A job that runs again broke off and did not fail; a job to be cancelled did neither.
    assert_eq!(task.field("meta", "failedSinceCompleted").await, "1");
    assert_eq!(task.field("meta", "brokenOffSinceCompleted").await, "3");
}
