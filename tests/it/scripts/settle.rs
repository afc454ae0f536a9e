use crate::scripts::call::{Task, without};
use crate::support::PATIENCE;
use crate::support::eventually;

/// The extras of {position, attempt, stalledCount, options, dispatchedAt} and the rest of a reply that claimed.
const NOTHING: &str = "[settled '' '' 4000000000000001 '' [] [] '' 0]";

#[tokio::test]
async fn waiting_jobs_are_claimed_in_order_with_growing_fences() {
    let mut task = Task::new().await;
    task.waiting(&["a", "b", "c"]).await;
    let reply = task.ok("settle", &["1", "w", "1000", "2", "0", "0"]).await;
    assert_eq!(reply, "[settled '' '' 4000000000000001 a b [{} {}] [] '' 2]");
    assert_eq!(
        task.keys().await,
        [
            r#"active set {"a", "b"}"#,
            r#"events stream [NOW {"started": "a b", "total": "2", "worker": "w"}]"#,
            r#"locks hash {"a": "w:4000000000000001", "b": "w:4000000000000002"}"#,
            concat!(
                r#"meta hash {"ask": "1000", "askedBy": "w", "asker": "w", "events": "2", "#,
                r#""fence": "4000000000000002", "interval": "1000"}"#
            ),
            r#"payload hash {"a": "{}", "b": "{}", "c": "{}"}"#,
            r#"replies hash {"w": "1\n\n\n4000000000000001\n2\na b"}"#,
            r#"wait list ["c"]"#,
            r#"wake zset ["marker": 0, "spare": 1]"#,
        ]
    );
}

#[tokio::test]
async fn fences_follow_the_clock_if_the_last_one_is_lost() {
    let mut task = Task::new().await;
    task.del("meta").await;
    task.declared().await;
    task.waiting(&["a"]).await;
    let before = task.now_ms().await * 1000.0;
    task.ok("settle", &["1", "w", "1000", "1", "0", "0"]).await;
    let after = (task.now_ms().await + 1.0) * 1000.0;
    let token = task.field("locks", "a").await;
    let fence = token.strip_prefix("w:").unwrap().parse::<f64>().unwrap();
    assert!((before..=after).contains(&fence), "{fence}");
}

#[tokio::test]
async fn a_large_claim_writes_only_the_token_of_each_job() {
    let mut task = Task::new().await;
    let ids: Vec<String> = (10..60).map(|number| number.to_string()).collect();
    task.waiting(&ids.iter().map(String::as_str).collect::<Vec<_>>()).await;
    task.ok("settle", &["1", "w", "1000", "50", "0", "0"]).await;
    let tokens: Vec<String> =
        (0..50).map(|at| format!(r#""{}": "w:{}""#, ids[at], 4_000_000_000_000_001_u64 + at as u64)).collect();
    assert_eq!(task.held("locks").await, format!("hash {{{}}}", tokens.join(", ")));
    let locks = task.key("locks");
    let encoding: String = redis::cmd("OBJECT").arg("ENCODING").arg(locks).query_async(&mut task.conn).await.unwrap();
    assert_eq!(encoding, "hashtable", "a list would be searched from its front for each of them");
}

/// Jobs with payloads of these sizes in bytes, in this list.
async fn large(task: &mut Task, list: &str, jobs: &[(&str, usize)]) {
    for (id, bytes) in jobs {
        task.hset("payload", &[(id, &"x".repeat(*bytes))]).await;
        task.rpush(list, &[id]).await;
    }
}

/// The ids in the reply, and the length of each payload; for one that is not included its size and `apart`.
fn claimed(reply: &str) -> (&str, Vec<String>) {
    let (_, rest) = reply.strip_prefix("[settled '' '' ").unwrap().split_once(' ').unwrap();
    let (ids, rest) = rest.split_once(" [").unwrap();
    let (payloads, _) = rest.split_once(']').unwrap();
    let shown = payloads.split_whitespace().map(|payload| match payload.parse::<usize>() {
        Ok(bytes) => format!("{bytes} apart"),
        Err(_) => payload.len().to_string(),
    });
    (ids, shown.collect())
}

#[tokio::test]
async fn a_claim_carries_at_most_512_kib_of_payloads() {
    const KIB: usize = 1024;
    // Without a bound, as if it was lost, and with the one that dispatch writes.
    for largest in ["", "8388608"] {
        let mut task = Task::new().await;
        task.hset("meta", &[("largest", largest)]).await;
        large(&mut task, "wait:high", &[("a", 200 * KIB)]).await;
        // Exactly 512 KiB; one byte more; the largest allowed payload; and a larger one.
        large(&mut task, "wait", &[("b", 300 * KIB), ("c", 12 * KIB), ("d", 1)]).await;
        large(&mut task, "wait", &[("e", 512 * KIB), ("f", 512 * KIB + 1), ("g", 1), ("h", 5120 * KIB)]).await;
        large(&mut task, "wait:low", &[("i", 1)]).await;
        for (number, ids, payloads, left) in [
            ("1", "a b c", ["204800", "307200", "12288"].as_slice(), ["d", "e", "f", "g", "h"].as_slice()),
            ("2", "d", &["1"], &["e", "f", "g", "h"]),
            ("3", "e f", &["524288", "524289 apart"], &["g", "h"]),
            ("4", "g h i", &["1", "5242880 apart", "1"], &[]),
        ] {
            task.del("wake").await;
            let args = [number, "w", "1000", "10", "0", "0"];
            let reply = task.ok("settle", &args).await;
            let (claimed, shown) = claimed(&reply);
            assert_eq!((claimed, shown.iter().map(String::as_str).collect::<Vec<_>>()), (ids, payloads.to_vec()));
            assert_eq!(task.list("wait").await, left);
            assert_eq!(task.held("wake").await.is_empty(), left.is_empty(), "the remaining jobs wake another worker");
            assert!(task.ok("settle", &args).await == reply, "call {number} is answered otherwise when it is repeated");
        }
        assert_eq!(task.held("wait:low").await, "");
    }
}

#[tokio::test]
async fn a_claim_of_small_payloads_is_whole_with_and_without_a_bound() {
    for largest in ["", "1024", "2048", "4096"] {
        let mut task = Task::new().await;
        task.hset("meta", &[("largest", largest)]).await;
        let ids: Vec<String> = (100..300).map(|number| number.to_string()).collect();
        let jobs: Vec<(&str, usize)> = ids.iter().enumerate().map(|(at, id)| (id.as_str(), at + 1)).collect();
        large(&mut task, "wait", &jobs).await;
        let reply = task.ok("settle", &["1", "w", "1000", "200", "0", "0"]).await;
        let (claimed, payloads) = claimed(&reply);
        assert_eq!(claimed, ids.join(" "), "{largest}");
        assert_eq!(payloads, (1..=200).map(|bytes| bytes.to_string()).collect::<Vec<_>>(), "{largest}");
    }
}

#[tokio::test]
async fn events_are_bounded_by_number_even_if_an_entry_holds_many() {
    let mut task = Task::new().await;
    // An entry of that size fills a node of the stream, and only whole nodes are trimmed.
    let worker = "w".repeat(5_000);
    let mut entries = Vec::new();
    for (call, total) in [("1", 99_999), ("2", 150_000), ("3", 199_999), ("4", 299_999)] {
        task.hset("meta", &[("events", &total.to_string())]).await;
        task.waiting(&["a", "b"]).await;
        task.ok("settle", &[call, &worker, "1000", "2", "0", "0"]).await;
        task.del("locks").await;
        entries.push(task.held("events").await.matches("started").count());
    }
    // Calls 1, 3 and 4 pass a mark; the last one trims what is older than call 3.
    assert_eq!(entries, [1, 2, 3, 2]);
}

#[tokio::test]
async fn the_lists_are_claimed_from_high_to_low() {
    let mut task = Task::new().await;
    for (list, id) in [("wait:low", "low"), ("wait", "normal"), ("wait:high", "high")] {
        task.hset("payload", &[(id, "1")]).await;
        task.rpush(list, &[id]).await;
    }
    let reply = task.ok("settle", &["1", "w", "1000", "2", "0", "0"]).await;
    assert!(reply.contains(" high normal ["), "{reply}");
    let reply = task.ok("settle", &["2", "w", "1000", "2", "0", "0"]).await;
    assert!(reply.contains(" low ["), "{reply}");
}

#[tokio::test]
async fn a_run_receives_the_values_of_its_columns() {
    let mut task = Task::new().await;
    task.waiting(&["a", "b", "c"]).await;
    task.hset("attempt", &[("b", "2")]).await;
    task.hset("stalledCount", &[("c", "1")]).await;
    task.hset("options", &[("b", "O")]).await;
    task.hset("dispatchedAt", &[("c", "77")]).await;
    task.hset("snoozes", &[("a", "3:0")]).await;
    task.hset("recovery", &[("c", "silent w 5")]).await;
    let reply = task.ok("settle", &["1", "w", "1000", "3", "0", "0"]).await;
    assert_eq!(
        reply,
        "[settled '' '' 4000000000000001 a b c [{} {} {}] [[1 0 0 '' '' 3:0 '' ''] [2 2 0 O '' '' '' ''] [3 0 1 '' 77 '' silent w 5 '']] '' 3]"
    );
    let events = task.held("events").await;
    assert!(events.contains(r#""restarted": "a 0 0 b 2 0 c 0 1""#), "{events}");
}

#[tokio::test]
async fn a_worker_without_jobs_writes_only_its_reply() {
    let mut task = Task::new().await;
    let before = task.keys().await;
    assert_eq!(task.ok("settle", &["1", "w", "1000", "10", "0", "0"]).await, NOTHING);
    assert_eq!(without(task.keys().await, &["replies"]), before);
}

#[tokio::test]
async fn a_late_copy_of_an_empty_call_claims_nothing() {
    let mut task = Task::new().await;
    let args = ["1", "w", "1000", "10", "0", "0"];
    assert_eq!(task.ok("settle", &args).await, NOTHING);
    task.waiting(&["a"]).await;
    let before = task.exact().await;
    assert_eq!(task.ok("settle", &args).await, NOTHING);
    assert_eq!(task.exact().await, before);
}

#[tokio::test]
async fn completed_jobs_end_with_and_without_a_value() {
    let mut task = Task::new().await;
    task.running("w", &[("a", 7), ("b", 8), ("c", 9)]).await;
    task.snapshot().await;
    let reply = task.ok("settle", &["1", "w", "1000", "0", "2", "1", "a", "b", "7", "8", "2", "42"]).await;
    assert_eq!(reply, NOTHING);
    assert_eq!(
        task.keys().await,
        [
            r#"candidates set {"c"}"#,
            r#"completed zset ["a": NOW, "b": NOW]"#,
            r#"events stream [NOW {"completed": "a b", "total": "2", "worker": "w"}]"#,
            r#"locks hash {"c": "w:9"}"#,
            r#"meta hash {"events": "2", "fence": "4000000000000000"}"#,
            r#"payload hash {"a": "{}", "b": "{}", "c": "{}"}"#,
            r#"replies hash {"w": "1\n\n\n4000000000000001\n0\n"}"#,
            r#"result hash {"b": "42"}"#,
        ]
    );
}

#[tokio::test]
async fn run_times_are_reported_for_completed_jobs() {
    let mut task = Task::new().await;
    task.running("w", &[("a", 7), ("b", 8)]).await;
    task.ok("settle", &["1", "w", "1000", "0", "2 15 90000", "0", "a", "b", "7", "8"]).await;
    assert!(task.held("events").await.contains(r#"{"completed": "a b", "ran": "15 90000", "total": "2""#));

    // The first is lost, the third cancelled.
    let mut task = Task::new().await;
    task.running("w", &[("a", 7), ("b", 8), ("c", 9), ("d", 10)]).await;
    task.hset("cancelling", &[("c", "why")]).await;
    task.ok("settle", &["1", "w", "1000", "0", "4 1 2 3 4", "0", "a", "b", "c", "d", "6", "8", "9", "10"]).await;
    let events = task.held("events").await;
    assert!(
        events.contains(
            r#"{"cancelled": "c", "completed": "b d", "outcome_rejected": "a 6 completed", "ran": "2 4", "total": "4""#
        ),
        "{events}"
    );

    let mut task = Task::new().await;
    task.running("w", &[("a", 7), ("b", 8)]).await;
    task.ok("settle", &["1", "w", "1000", "0", "1 1", "0", "a", "6", "b", "8", "failed", "1", "x y 5", "E"]).await;
    let events = task.held("events").await;
    assert!(
        events.contains(r#"[NOW {"failed": "b x y 5", "outcome_rejected": "a 6 completed", "total": "2""#),
        "{events}"
    );
}

#[tokio::test]
async fn a_start_reports_since_when_a_job_with_its_own_id_waits() {
    let mut task = Task::new().await;
    let ids = ["plain", "delayed", "mine", "both", "header", "retried", "stalled", "snoozed"];
    task.waiting(&ids).await;
    let delay = r#"{"delay_ms":5000,"attempts":2}"#;
    let header = r#"{"headers":{"delay_ms":"7","x":"{\"delay_ms\":7"}}"#;
    task.hset("options", &[("delayed", delay), ("both", delay), ("header", header), ("retried", delay)]).await;
    task.hset("dispatchedAt", &[("mine", "1700"), ("both", "1800"), ("stalled", "1900")]).await;
    task.hset("attempt", &[("retried", "1")]).await;
    task.hset("stalledCount", &[("stalled", "2")]).await;
    task.hset("snoozes", &[("snoozed", "1:0")]).await;
    task.ok("settle", &["1", "w", "1000", "20", "0", "0"]).await;
    let events = task.held("events").await;
    let wanted = r#"{"restarted": "retried 1 0 stalled 0 2 snoozed 0 0", "since": "delayed - 5000 mine 1700 0 both 1800 5000", "started": "plain delayed mine both header", "#;
    assert!(events.contains(wanted), "{events}");
}

#[tokio::test]
async fn a_failed_job_keeps_its_attempt_and_its_error() {
    let mut task = Task::new().await;
    task.running("w", &[("a", 7)]).await;
    let args = ["1", "w", "1000", "0", "0", "0", "a", "7", "failed", "3", "timeout", "E"];
    assert_eq!(task.ok("settle", &args).await, NOTHING);
    assert_eq!(
        without(task.keys().await, &["replies", "meta"]),
        [
            r#"attempt hash {"a": "3"}"#,
            r#"error hash {"a": "E"}"#,
            r#"events stream [NOW {"failed": "a timeout", "total": "1", "worker": "w"}]"#,
            r#"failed zset ["a": NOW]"#,
            r#"payload hash {"a": "{}"}"#,
        ]
    );
}

#[tokio::test]
async fn a_job_to_retry_is_delayed_and_the_worker_receives_the_time() {
    let mut task = Task::new().await;
    task.running("w", &[("a", 7)]).await;
    let before = task.now_ms().await;
    let args = ["1", "w", "1000", "0", "0", "0", "a", "7", "retry", "1", "60000", "E"];
    let reply = task.ok("settle", &args).await;
    let next = reply.trim_end_matches(']').rsplit(' ').nth(1).unwrap().parse::<u64>().unwrap();
    assert!((1..=60_000).contains(&next), "{reply}");
    let due = task.score("delayed", "a").await;
    assert!((before + 60_000.0..=task.now_ms().await + 60_000.0).contains(&due));
    assert_eq!(
        without(task.keys().await, &["replies", "meta", "delayed"]),
        [
            r#"attempt hash {"a": "1"}"#,
            r#"enqueuedAt hash {"a": "NOW"}"#,
            r#"error hash {"a": "E"}"#,
            r#"events stream [NOW {"retrying": "a 1 60000", "total": "1", "worker": "w"}]"#,
            r#"payload hash {"a": "{}"}"#,
        ]
    );
}

#[tokio::test]
async fn requeued_jobs_go_to_the_front_of_their_lists_in_order() {
    let mut task = Task::new().await;
    task.waiting(&["z"]).await;
    task.running("w", &[("a", 7), ("b", 8), ("h", 9)]).await;
    task.hset("priority", &[("h", "high")]).await;
    let mut args = vec!["1", "w", "1000", "0", "0", "0"];
    for (id, fence) in [("a", "7"), ("h", "9"), ("b", "8")] {
        args.extend([id, fence, "requeue", "0", "", ""]);
    }
    assert_eq!(task.ok("settle", &args).await, NOTHING);
    assert_eq!(
        without(task.keys().await, &["replies", "meta", "payload"]),
        [
            r#"enqueuedAt hash {"a": "NOW", "b": "NOW", "h": "NOW"}"#,
            r#"events stream [NOW {"requeued": "a h b", "total": "3", "worker": "w"}]"#,
            r#"priority hash {"h": "high"}"#,
            r#"wait list ["a", "b", "z"]"#,
            r#"wait:high list ["h"]"#,
            r#"wake zset ["marker": 0, "spare": 1]"#,
        ]
    );
}

#[tokio::test]
async fn a_pending_cancel_takes_precedence_over_every_outcome() {
    let mut task = Task::new().await;
    let jobs = [("a", 1), ("b", 2), ("c", 3), ("d", 4)];
    task.running("w", &jobs).await;
    for (id, _) in jobs {
        task.hset("cancelling", &[(id, "why")]).await;
    }
    let mut args = vec!["1", "w", "1000", "0", "1", "1", "a", "1", "1", "42"];
    args.extend([
        "b", "2", "failed", "1", "panic", "E", "c", "3", "retry", "1", "5", "E", "d", "4", "requeue", "0", "", "",
    ]);
    let reply = task.ok("settle", &args).await;
    assert_eq!(reply, "[settled '' 1 2 3 4 4000000000000001 '' [] [] '' 0]");
    assert_eq!(
        without(task.keys().await, &["replies", "meta", "payload", "events", "error"]),
        [r#"cancelled zset ["a": NOW, "b": NOW, "c": NOW, "d": NOW]"#]
    );
    for (id, _) in jobs {
        let error: serde_json::Value = serde_json::from_str(&task.field("error", id).await).unwrap();
        assert_eq!(error, serde_json::json!({"code": "cancelled", "message": "why"}));
    }
}

#[tokio::test]
async fn a_wrong_token_is_lost_and_only_the_refusal_is_recorded() {
    let mut task = Task::new().await;
    task.running("w", &[("a", 7), ("b", 8), ("c", 9), ("d", 10)]).await;
    let told = ["replies", "meta", "events"];
    let before = without(task.keys().await, &told);
    let mut args = vec!["1", "w", "1000", "0", "1", "1", "a", "6", "1", "42"];
    args.extend(["b", "9", "failed", "1", "panic", "E", "c", "8", "retry", "1", "5", "E"]);
    args.extend(["d", "9", "requeue", "0", "", "", "nobody", "1", "requeue", "0", "", ""]);
    let reply = task.ok("settle", &args).await;
    assert_eq!(reply, "[settled 6 9 8 9 1 '' 4000000000000001 '' [] [] '' 0]");
    assert_eq!(without(task.keys().await, &told), before);
    assert_eq!(
        task.held("events").await,
        concat!(
            r#"stream [NOW {"outcome_rejected": "a 6 completed b 9 failed c 8 retry d 9 requeue nobody 1 requeue", "#,
            r#""total": "5", "worker": "w"}]"#
        )
    );
    assert_eq!(task.held("meta").await, r#"hash {"events": "5", "fence": "4000000000000000"}"#);
    // The right fences under the name of another worker.
    let args = ["1", "x", "1000", "0", "1", "0", "a", "7", "b", "8", "failed", "1", "panic", "E"];
    assert_eq!(task.ok("settle", &args).await, "[settled 7 8 '' 4000000000000001 '' [] [] '' 0]");
    assert_eq!(without(task.keys().await, &told), before);
    let events = task.held("events").await;
    assert!(
        events.ends_with(r#"{"outcome_rejected": "a 7 completed b 8 failed", "total": "7", "worker": "x"}]"#),
        "{events}"
    );
    assert_eq!(task.totals().await, ["", ""], "none of them has ended");
}

#[tokio::test]
async fn one_call_reports_and_claims() {
    let mut task = Task::new().await;
    task.running("w", &[("a", 7)]).await;
    task.waiting(&["b"]).await;
    let reply = task.ok("settle", &["1", "w", "1000", "1", "1", "0", "a", "7"]).await;
    assert_eq!(reply, "[settled '' '' 4000000000000001 b [{}] [] '' 1]");
    assert_eq!(task.held("active").await, r#"set {"b"}"#);
    let events = task.held("events").await;
    assert!(events.contains(r#"{"completed": "a", "started": "b", "total": "2", "worker": "w"}"#), "{events}");
}

#[tokio::test]
async fn a_repeated_call_gets_the_same_reply_and_changes_nothing() {
    let mut task = Task::new().await;
    task.running("w", &[("a", 7), ("x", 9)]).await;
    task.hset("cancelling", &[("x", "why")]).await;
    task.waiting(&["b", "c"]).await;
    task.hset("attempt", &[("c", "1")]).await;
    let args = ["1", "w", "1000", "2", "3", "0", "a", "gone", "x", "7", "8", "9"];
    let first = task.ok("settle", &args).await;
    assert_eq!(first, "[settled 8 9 4000000000000001 b c [{} {}] [[2 1 0 '' '' '' '' '']] '' 2]");
    let before = task.exact().await;
    for _ in 0..2 {
        assert_eq!(task.ok("settle", &args).await, first);
    }
    assert_eq!(task.exact().await, before);
}

#[tokio::test]
async fn a_repeated_call_does_not_hand_out_jobs_lost_since() {
    let mut task = Task::new().await;
    task.waiting(&["a", "b"]).await;
    let args = ["1", "w", "1000", "2", "0", "0"];
    task.ok("settle", &args).await;
    task.hset("locks", &[("a", "other:5")]).await;
    assert_eq!(task.ok("settle", &args).await, "[settled '' '' 4000000000000001 {} b ['' {}] [] '' 2]");
}

#[tokio::test]
async fn an_older_call_is_stale_and_writes_nothing() {
    let mut task = Task::new().await;
    task.waiting(&["a", "b"]).await;
    task.ok("settle", &["5", "w", "1000", "1", "0", "0"]).await;
    let before = task.exact().await;
    assert_eq!(task.ok("settle", &["4", "w", "1000", "1", "0", "0"]).await, "[stale]");
    assert_eq!(task.exact().await, before);
    // Another worker has its own numbers.
    assert!(task.ok("settle", &["4", "x", "1000", "1", "0", "0"]).await.contains(" b ["));
}

#[tokio::test]
async fn a_closed_call_sequence_returns_closed_and_writes_nothing() {
    let mut task = Task::new().await;
    task.running("w", &[("a", 7)]).await;
    task.waiting(&["b"]).await;
    task.hset("replies", &[("w", "closed"), ("w/2", "closed")]).await;
    let before = task.exact().await;
    for number in ["1", "7", "7/2"] {
        assert_eq!(task.ok("settle", &[number, "w", "1000", "1", "1", "0", "a", "7"]).await, "[closed]");
    }
    assert_eq!(task.exact().await, before);
    // The sequence that was not closed, and another worker.
    assert!(task.ok("settle", &["1/3", "w", "1000", "1", "0", "0"]).await.contains(" b ["));
    assert_eq!(task.ok("settle", &["1", "x", "1000", "1", "0", "0"]).await, NOTHING.replace("01 ''", "02 ''"));
}

#[tokio::test]
async fn without_declared_options_nothing_is_recorded_or_claimed() {
    let mut task = Task::new().await;
    task.running("w", &[("a", 7)]).await;
    task.waiting(&["b", "c"]).await;
    let first = ["1", "w", "1000", "1", "0", "0"];
    let answer = task.ok("settle", &first).await;
    assert!(answer.contains(" b ["), "{answer}");
    task.lose_options().await;
    let before = task.exact().await;
    let second = ["2", "w", "1000", "1", "1", "0", "a", "7"];
    assert_eq!(task.ok("settle", &second).await, "[undeclared]");
    assert_eq!(task.ok("settle", &first).await, answer, "what was done before is answered");
    assert_eq!(task.exact().await, before);
    // The call was not executed, and is repeated with its number.
    task.declared().await;
    let reply = task.ok("settle", &second).await;
    assert!(reply.starts_with("[settled '' '' ") && reply.contains(" c ["), "{reply}");
}

#[tokio::test]
async fn the_call_sequences_of_a_worker_have_separate_numbers() {
    let mut task = Task::new().await;
    task.waiting(&["a", "b", "c", "d"]).await;
    let [one, two, three] = ["1", "1/2", "1/3"].map(|number| [number, "w", "1000", "1", "0", "0"]);
    let mut first = Vec::new();
    for (line, id) in [(&one, " a ["), (&two, " b ["), (&three, " c [")] {
        first.push(task.ok("settle", line).await);
        assert!(first.last().unwrap().contains(id), "{first:?}");
    }
    for (line, first) in [&one, &two, &three].into_iter().zip(first) {
        assert_eq!(task.ok("settle", line).await, first);
    }
    // All hold their jobs under the worker's id, and each may report the jobs of the others.
    let reply = task.ok("settle", &["2/2", "w", "1000", "1", "1", "0", "a", "4000000000000001"]).await;
    assert!(reply.starts_with("[settled '' '' ") && reply.contains(" d ["), "{reply}");
    assert_eq!(task.ok("settle", &two).await, "[stale]");
    assert!(task.ok("settle", &one).await.contains("['']"));
}

#[tokio::test]
async fn a_due_delayed_job_goes_to_the_back_of_its_list() {
    let mut task = Task::new().await;
    task.waiting(&["a"]).await;
    task.hset("payload", &[("due", "1"), ("high", "2"), ("later", "3")]).await;
    task.hset("priority", &[("high", "high")]).await;
    task.zadd("delayed", 1.0, "due").await;
    task.zadd("delayed", 2.0, "high").await;
    task.zadd("delayed", 9e15, "later").await;
    let reply = task.ok("settle", &["1", "w", "1000", "3", "0", "0"]).await;
    assert!(reply.contains(" high a due ["), "{reply}");
    assert_eq!(task.held("delayed").await, r#"zset ["later": 9000000000000000]"#);
}

#[tokio::test]
async fn a_worker_without_free_slots_moves_nothing() {
    let mut task = Task::new().await;
    task.hset("payload", &[("due", "1")]).await;
    task.zadd("delayed", 1.0, "due").await;
    let before = task.keys().await;
    assert_eq!(
        task.ok("settle", &["1", "w", "1000", "0", "0", "0"]).await,
        "[settled '' '' 4000000000000001 '' [] [] 0 0]"
    );
    assert_eq!(without(task.keys().await, &["replies"]), before);
}

#[tokio::test]
async fn a_job_becomes_due_by_the_servers_clock() {
    let mut task = Task::new().await;
    task.ok("dispatch", &["1", "1", "1", "a", "1", "delay", "1", "50"]).await;
    let mut call = 0;
    eventually("the job is due", PATIENCE, async || {
        call += 1;
        task.ok("settle", &[&call.to_string(), "w", "1000", "1", "0", "0"]).await.contains(" a [")
    })
    .await;
}

#[tokio::test]
async fn ids_that_must_not_run_are_skipped_and_removed_from_the_list() {
    // Payloads are read at once if none can be large, else after their sizes.
    for largest in ["", "1024"] {
        let mut task = Task::new().await;
        task.hset("meta", &[("largest", largest)]).await;
        task.running("other", &[("held", 7)]).await;
        task.hset("payload", &[("done", "1"), ("a", "{}")]).await;
        task.zadd("completed", 1.0, "done").await;
        task.rpush("wait", &["held", "done", "a", "a", "tombstone"]).await;
        task.hset("attempt", &[("tombstone", "1")]).await;
        let reply = task.ok("settle", &["1", "w", "1000", "10", "0", "0"]).await;
        assert_eq!(reply, "[settled '' '' 4000000000000001 a [{}] [] '' 1 0 tombstone]");
        assert_eq!(task.held("wait").await, "");
        assert_eq!(task.held("attempt").await, "", "the tombstone is removed");
        assert_eq!(task.held("locks").await, r#"hash {"a": "w:4000000000000001", "held": "other:7"}"#);
        let events = task.held("events").await;
        let entry = r#"{"removed": "tombstone", "started": "a", "total": "2", "why": "no_payload", "worker": "w"}"#;
        assert!(events.contains(entry), "{events}");
        assert!(task.held("meta").await.contains(r#""payloadsLost": "1""#));
    }
}

#[tokio::test]
async fn a_counter_that_is_not_a_number_fails_its_job_and_others_run() {
    let mut task = Task::new().await;
    task.waiting(&["a", "bad", "worse"]).await;
    task.hset("attempt", &[("bad", "many")]).await;
    task.hset("stalledCount", &[("worse", "")]).await;
    let reply = task.ok("settle", &["1", "w", "1000", "3", "0", "0"]).await;
    assert!(reply.contains(" a ["), "{reply}");
    assert_eq!(task.held("failed").await, r#"zset ["bad": NOW, "worse": NOW]"#);
    assert!(task.held("error").await.contains("corrupt"));
    assert!(task.held("events").await.contains(r#""failed": "bad corrupt a%20counter%20of"#));
}

#[tokio::test]
async fn a_task_that_keeps_nothing_removes_every_column() {
    let mut task = Task::new().await;
    task.hset("meta", &[("keepCompleted", "0"), ("keepFailed", "0"), ("keepCancelled", "0")]).await;
    task.running("w", &[("a", 7), ("b", 8), ("c", 9)]).await;
    task.hset("cancelling", &[("c", "why")]).await;
    for column in [
        "stalledCount",
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
        task.hset(column, &[("a", "1"), ("b", "1"), ("c", "1")]).await;
    }
    let mut args = vec!["1", "w", "1000", "0", "1", "1", "a", "7", "1", "42"];
    args.extend(["b", "8", "failed", "1", "panic", "E", "c", "9", "requeue", "0", "", ""]);
    task.ok("settle", &args).await;
    assert_eq!(without(task.keys().await, &["replies", "meta", "events"]), [] as [&str; 0]);
}

#[tokio::test]
async fn snoozed_jobs_are_delayed_and_counted_without_an_attempt() {
    let mut task = Task::new().await;
    task.running("w", &[("a", 7), ("b", 8), ("c", 9)]).await;
    let mut args = vec!["1", "w", "1000", "0", "0", "0"];
    args.extend(["a", "7", "snooze", "1:0", "60000", "", "b", "8", "undecodable", "0:3", "600000", "E"]);
    args.extend(["c", "9", "retry", "1", "60000 code a%20b", "E"]);
    let reply = task.ok("settle", &args).await;
    let due: u64 = reply.trim_end_matches(']').rsplit(' ').nth(1).unwrap().parse().unwrap();
    assert!((50_000..=60_000).contains(&due), "{reply}");
    assert_eq!(task.held("snoozes").await, r#"hash {"a": "1:0", "b": "0:3"}"#);
    assert_eq!(task.held("attempt").await, r#"hash {"c": "1"}"#);
    assert_eq!(task.held("error").await, r#"hash {"b": "E", "c": "E"}"#);
    let delayed = task.held("delayed").await;
    assert!(["a", "b", "c"].iter().all(|id| delayed.contains(&format!("{id:?}"))), "{delayed}");
    let events = task.held("events").await;
    for words in
        [r#""snoozed": "a 1:0 60000""#, r#""undecodable": "b 0:3 600000""#, r#""retrying": "c 1 60000 code a%20b""#]
    {
        assert!(events.contains(words), "{events}");
    }
    assert_eq!(task.held("locks").await, "");
}

#[tokio::test]
async fn a_claim_asks_for_the_interval_of_the_worker() {
    let mut task = Task::new().await;
    task.hset("meta", &[("interval", "5000"), ("ask", "1000")]).await;
    task.waiting(&["a", "b"]).await;
    task.ok("settle", &["1", "w", "2000", "1", "0", "0"]).await;
    let meta = task.held("meta").await;
    assert!(meta.contains(r#""ask": "2000""#) && meta.contains(r#""interval": "5000""#), "{meta}");
    task.ok("settle", &["2", "w", "9000", "1", "0", "0"]).await;
    let meta = task.held("meta").await;
    assert!(meta.contains(r#""ask": "9000""#) && meta.contains(r#""interval": "9000""#), "{meta}");
}

#[tokio::test]
async fn without_events_no_entry_is_written() {
    let mut task = Task::new().await;
    task.hset("meta", &[("eventMode", "off")]).await;
    task.waiting(&["a"]).await;
    task.ok("settle", &["1", "w", "1000", "1", "0", "0"]).await;
    assert_eq!(task.held("events").await, "");
    // A reader would miss an event that was counted and never written.
    let meta = task.held("meta").await;
    assert!(!meta.contains(r#""events":"#), "{meta}");
}

#[tokio::test]
async fn a_call_that_claims_nothing_uses_no_fence() {
    let mut task = Task::new().await;
    task.del("meta").await;
    task.declared().await;
    task.running("w", &[("a", 7)]).await;
    task.ok("settle", &["1", "w", "1000", "1", "1", "0", "a", "7"]).await;
    assert_eq!(task.held("meta").await, r#"hash {"events": "1"}"#);
}

#[tokio::test]
async fn a_counter_that_rust_cannot_read_fails_its_job() {
    for column in ["attempt", "stalledCount"] {
        for count in ["1.5", "1e3", "0x10", " 1", "nan", "inf", "-1", "4294967296"] {
            let mut task = Task::new().await;
            task.waiting(&["bad", "a"]).await;
            task.hset(column, &[("bad", count)]).await;
            let reply = task.ok("settle", &["1", "w", "1000", "2", "0", "0"]).await;
            assert!(reply.contains(" a ["), "{column} {count}: {reply}");
            assert_eq!(task.held("failed").await, r#"zset ["bad": NOW]"#, "{column} {count}");
        }
    }
}

#[tokio::test]
async fn ended_jobs_are_counted_with_and_without_events() {
    for events in ["on", "off"] {
        let mut task = Task::new().await;
        task.hset("meta", &[("eventMode", events)]).await;
        task.running("w", &[("a", 1), ("b", 2), ("c", 3), ("d", 4), ("e", 5)]).await;
        task.hset("cancelling", &[("e", "why")]).await;
        task.waiting(&["bad"]).await;
        task.hset("attempt", &[("bad", "many")]).await;
        let mut args = vec!["1", "w", "1000", "0", "1", "0", "a", "1", "b", "2", "failed", "1", "panic", "E"];
        args.extend(["c", "3", "retry", "1", "60000", "E", "d", "4", "requeue", "0", "", ""]);
        args.extend(["e", "5", "requeue", "0", "", "", "lost", "9", "failed", "1", "panic", "E"]);
        task.ok("settle", &args).await;
        assert_eq!(task.totals().await, ["", "3"], "one completed, one failed, one was cancelled");
        task.ok("settle", &args).await;
        assert_eq!(task.totals().await, ["", "3"], "a repeated call counts nothing");
        task.ok("settle", &["2", "w", "1000", "2", "0", "0"]).await;
        assert_eq!(task.totals().await, ["", "4"], "one with a broken counter fails when it is claimed");
    }
}

#[tokio::test]
async fn a_claim_removes_the_time_since_when_a_job_waits() {
    let mut task = Task::new().await;
    task.running("w", &[("back", 1), ("again", 2), ("late", 3), ("odd", 4)]).await;
    let mut args = vec!["1", "w", "1000", "0", "0", "0", "back", "1", "requeue", "0", "", ""];
    args.extend(["again", "2", "retry", "1", "0", "E", "late", "3", "snooze", "1:0", "9000000", ""]);
    args.extend(["odd", "4", "undecodable", "0:1", "9000000", "E"]);
    task.ok("settle", &args).await;
    let all = r#"hash {"again": "NOW", "back": "NOW", "late": "NOW", "odd": "NOW"}"#;
    assert_eq!(task.held("enqueuedAt").await, all);
    let reply = task.ok("settle", &["2", "w", "1000", "1", "0", "0"]).await;
    assert!(reply.contains(" back ["), "{reply}");
    // The other one became due, and has been in its list since then.
    assert_eq!(task.held("enqueuedAt").await, r#"hash {"again": "NOW", "late": "NOW", "odd": "NOW"}"#);
    assert_eq!(task.list("wait").await, ["again"]);
    task.ok("settle", &["3", "w", "1000", "1", "0", "0"]).await;
    assert_eq!(task.held("enqueuedAt").await, r#"hash {"late": "NOW", "odd": "NOW"}"#);
}

#[tokio::test]
async fn a_due_job_that_does_not_run_loses_that_time_too() {
    for keep in ["1", "0"] {
        let mut task = Task::new().await;
        task.hset("meta", &[("keepFailed", keep)]).await;
        task.hset("payload", &[("bad", "1"), ("good", "1")]).await;
        task.hset("attempt", &[("bad", "many")]).await;
        for id in ["bad", "good", "tombstone"] {
            task.zadd("delayed", 1.0, id).await;
        }
        let reply = task.ok("settle", &["1", "w", "1000", "9", "0", "0"]).await;
        assert!(reply.contains(" good ["), "{reply}");
        assert_eq!(task.held("enqueuedAt").await, "", "keep {keep}");
        assert!(task.held("events").await.contains(r#""removed": "tombstone""#));
    }
}

#[tokio::test]
async fn without_events_refusals_are_not_reported() {
    let mut task = Task::new().await;
    task.hset("meta", &[("eventMode", "off")]).await;
    let before = task.keys().await;
    let reply = task.ok("settle", &["1", "w", "1000", "0", "1", "0", "a", "7"]).await;
    assert_eq!(reply, "[settled 7 '' 4000000000000001 '' [] [] '' 0]");
    assert_eq!(without(task.keys().await, &["replies"]), before);
}

/// A node of a workflow and a plain job, both held by `w`, in a task that has workflows.
async fn task_with_a_node(keep: &[(&str, &str)]) -> Task {
    let mut task = Task::new().await;
    task.hset("meta", &[&[("nodes", "1")], keep].concat()).await;
    task.running("w", &[("~f/a/0/1", 7), ("own", 8)]).await;
    task
}

#[tokio::test]
async fn a_dropped_node_is_removed_with_all_its_data() {
    let mut task = task_with_a_node(&[]).await;
    let columns =
        ["attempt", "stalledCount", "options", "dispatchedAt", "priority", "recovery", "claimed", "checkpoint"];
    for column in columns {
        task.hset(column, &[("~f/a/0/1", "7")]).await;
    }
    let args = ["1", "w", "1000", "0", "0", "0", "~f/a/0/1", "7", "drop", "0", "", ""];
    assert!(task.ok("settle", &args).await.starts_with("[settled '' '' "));
    assert_eq!(
        without(task.keys().await, &["replies", "meta"]),
        [
            r#"active set {"own"}"#,
            r#"events stream [NOW {"removed": "~f/a/0/1", "total": "1", "worker": "w"}]"#,
            r#"locks hash {"own": "w:8"}"#,
            r#"payload hash {"own": "{}"}"#,
        ]
    );
    let before = task.exact().await;
    task.ok("settle", &args).await;
    assert_eq!(task.exact().await, before);
}

#[tokio::test]
async fn a_drop_of_a_lost_job_is_refused_and_a_cancel_comes_first() {
    let mut task = task_with_a_node(&[]).await;
    let reply = task.ok("settle", &["1", "w", "1000", "0", "0", "0", "~f/a/0/1", "6", "drop", "0", "", ""]).await;
    assert!(reply.starts_with("[settled 6 '' "), "{reply}");
    assert!(task.held("payload").await.contains("~f/a/0/1"));
    assert!(task.held("events").await.contains(r#""outcome_rejected": "~f/a/0/1 6 drop""#));
    task.hset("cancelling", &[("~f/a/0/1", "why")]).await;
    let reply = task.ok("settle", &["2", "w", "1000", "0", "0", "0", "~f/a/0/1", "7", "drop", "0", "", ""]).await;
    assert!(reply.starts_with("[settled '' 7 "), "{reply}");
    assert_eq!(task.held("cancelled").await, r#"zset ["~f/a/0/1": NOW]"#);
    assert_eq!(task.held("outbox").await, r#"zset ["~f/a/0/1": NOW]"#);
}

#[tokio::test]
async fn only_ended_nodes_are_in_the_outbox_by_the_same_write() {
    let failed = ["~f/a/0/1", "7", "failed", "1", "panic %20 5", "E", "own", "8", "failed", "1", "panic %20 5", "E"];
    let calls: [(&str, Vec<&str>); 3] = [
        ("completed", ["1", "w", "1000", "0", "2", "1", "~f/a/0/1", "own", "7", "8", "1", "42"].to_vec()),
        ("failed", [&["1", "w", "1000", "0", "0", "0"][..], &failed].concat()),
        ("cancelled", ["1", "w", "1000", "0", "2", "0", "~f/a/0/1", "own", "7", "8"].to_vec()),
    ];
    for (place, args) in calls {
        for keep in ["1", "0"] {
            let mut task =
                task_with_a_node(&[("keepCompleted", keep), ("keepFailed", keep), ("keepCancelled", keep)]).await;
            if place == "cancelled" {
                task.hset("cancelling", &[("~f/a/0/1", "why"), ("own", "why")]).await;
            }
            task.ok("settle", &args).await;
            assert_eq!(task.held("outbox").await, r#"zset ["~f/a/0/1": NOW]"#, "{place} {keep}");
            // A node that the task does not keep stays until its workflow has recorded it; others are removed.
            let own = if keep == "1" { r#""own": NOW, "# } else { "" };
            assert_eq!(task.held(place).await, format!(r#"zset [{own}"~f/a/0/1": NOW]"#), "{place}");
            assert_eq!(task.held("payload").await.contains("own"), keep == "1");
            let said = task.held(if place == "completed" { "result" } else { "error" }).await;
            assert!(said.contains("~f/a/0/1"), "{place} {keep}: {said}");
            assert_eq!(said.contains("own"), place != "completed" && keep == "1", "{said}");
            let how = [("completed", "c 42]"), ("failed", "f E]"), ("cancelled", "x {")];
            let how = how.iter().find(|(name, _)| *name == place).unwrap().1;
            let told = task.ok("ended", &["0", "200"]).await;
            assert!(told.starts_with(&format!("[ended 0 ~f/a/0/1 {how}")), "{told}");
        }
    }
}

#[tokio::test]
async fn nodes_that_expire_or_are_broken_at_a_claim_are_recorded_too() {
    let mut task = Task::new().await;
    task.hset("meta", &[("nodes", "1"), ("keepFailed", "0")]).await;
    task.waiting(&["~f/a/0/1", "~f/a/1/1", "own"]).await;
    task.hset("expiresAt", &[("~f/a/0/1", "5"), ("own", "5")]).await;
    task.zadd("expires", 5.0, "~f/a/0/1").await;
    task.hset("attempt", &[("~f/a/1/1", "many")]).await;
    task.ok("settle", &["1", "w", "1000", "5", "0", "0"]).await;
    assert_eq!(task.held("outbox").await, r#"zset ["~f/a/0/1": NOW, "~f/a/1/1": NOW]"#);
    assert_eq!(task.held("failed").await, r#"zset ["~f/a/0/1": NOW, "~f/a/1/1": NOW]"#);
    assert_eq!(task.held("payload").await, r#"hash {"~f/a/0/1": "{}", "~f/a/1/1": "{}"}"#);
}

#[tokio::test]
async fn an_outcome_that_does_not_end_a_node_writes_no_outbox_entry() {
    for (kind, detail) in [("retry", "9000 - 5"), ("requeue", ""), ("snooze", "9000")] {
        let mut task = task_with_a_node(&[]).await;
        task.ok("settle", &["1", "w", "1000", "0", "0", "0", "~f/a/0/1", "7", kind, "1", detail, "E"]).await;
        assert_eq!(task.held("outbox").await, "", "{kind}");
    }
}

/// The number of jobs that began to fail since one completed.
async fn in_a_row(task: &mut Task) -> String {
    task.field("meta", "failedSinceCompleted").await
}

#[tokio::test]
async fn jobs_that_begin_to_fail_are_counted_until_one_completes() {
    let mut task = Task::new().await;
    let ids: Vec<(String, u64)> = (1..=9).map(|number| (format!("j-{number}"), number)).collect();
    let held: Vec<(&str, u64)> = ids.iter().map(|(id, fence)| (id.as_str(), *fence)).collect();
    task.running("w", &held).await;
    let ends = [
        ("failed", "1", "disk - 9", "E", "1"),
        ("failed", "2", "disk - 9", "E", "1"),
        ("retry", "1", "60000 disk - 9", "E", "2"),
        ("retry", "2", "60000 disk - 9", "E", "2"),
        ("undecodable", "0:1", "60000 codec - 9", "E", "3"),
        ("undecodable", "0:2", "60000 codec - 9", "E", "3"),
        ("requeue", "0", "", "", "3"),
        // It shows that the handler works.
        ("snooze", "1:0", "60000 - 9", "", "0"),
    ];
    for (at, (kind, attempt, detail, error, row)) in ends.into_iter().enumerate() {
        let (number, fence) = ((at + 1).to_string(), (at + 1).to_string());
        task.ok("settle", &[&number, "w", "1000", "0", "0", "0", &ids[at].0, &fence, kind, attempt, detail, error])
            .await;
        assert_eq!(in_a_row(&mut task).await, row, "{kind} {attempt}");
    }
    task.ok("settle", &["9", "w", "1000", "0", "1", "0", "j-9", "9"]).await;
    assert_eq!(in_a_row(&mut task).await, "0");
    // It expired before it began.
    task.waiting(&["late"]).await;
    task.hset("expiresAt", &[("late", "5")]).await;
    task.zadd("expires", 5.0, "late").await;
    task.ok("expire", &["w", "200"]).await;
    assert_eq!(in_a_row(&mut task).await, "1");
}

/// The number of runs that broke off since one completed.
async fn broken_off(task: &mut Task) -> String {
    task.field("meta", "brokenOffSinceCompleted").await
}

#[tokio::test]
async fn runs_that_are_given_back_are_counted_until_one_completes() {
    let mut task = Task::new().await;
    task.running("w", &[("a", 1), ("b", 2), ("ahead", 3), ("c", 4), ("d", 5), ("e", 6)]).await;
    task.hset("claimed", &[("ahead", "3")]).await;
    let back =
        ["a", "1", "requeue", "0", "0", "", "b", "2", "requeue", "0", "0", "", "ahead", "3", "requeue", "0", "0", ""];
    task.ok("settle", &[&["1", "w", "1000", "0", "0", "0"][..], &back].concat()).await;
    assert_eq!(broken_off(&mut task).await, "2", "one of them had not begun");
    // A failure does not reset the count.
    task.ok("settle", &["2", "w", "1000", "0", "0", "0", "c", "4", "failed", "1", "disk - 9", "E"]).await;
    assert_eq!((broken_off(&mut task).await, in_a_row(&mut task).await), ("2".into(), "1".into()));
    task.ok("settle", &["3", "w", "1000", "0", "0", "0", "d", "5", "requeue", "0", "0", ""]).await;
    assert_eq!(broken_off(&mut task).await, "3");
    let now = task.now_ms().await;
    for field in ["lastFailedAt", "lastBrokenOffAt"] {
        let at: f64 = task.field("meta", field).await.parse().unwrap();
        assert!((now - at).abs() < 60_000.0, "{field} {at}");
    }
    task.ok("settle", &["4", "w", "1000", "0", "1", "0", "e", "6"]).await;
    assert_eq!((broken_off(&mut task).await, in_a_row(&mut task).await), ("0".into(), "0".into()));
    let at: f64 = task.field("meta", "lastCompletedAt").await.parse().unwrap();
    assert!((now - at).abs() < 60_000.0, "{at}");
}

#[tokio::test]
async fn a_completed_run_resets_the_counts_before_its_hook_runs() {
    let mut task = Task::new().await;
    task.hset("meta", &[("hook", "1")]).await;
    task.running("w", &[("a", 1), ("b", 2), ("c", 3)]).await;
    task.ok("settle", &["1", "w", "1000", "0", "0", "0", "a", "1", "failed", "1", "disk - 9", "E"]).await;
    task.ok("settle", &["2", "w", "1000", "0", "0", "0", "b", "2", "requeue", "0", "0", ""]).await;
    assert_eq!((in_a_row(&mut task).await, broken_off(&mut task).await), ("1".into(), "1".into()));
    task.ok("settle", &["3", "w", "1000", "0", "1", "0", "c", "3"]).await;
    assert_eq!((in_a_row(&mut task).await, broken_off(&mut task).await), ("0".into(), "0".into()));
}

#[tokio::test]
async fn fences_stay_below_two_to_the_53_for_any_clock() {
    // A server whose clock was past the year 2255 left this fence.
    for last in ["9007199254740992", "9007199254740991", "1e300", "inf", "nan", "-5", "many"] {
        let mut task = Task::new().await;
        task.hset("meta", &[("fence", last)]).await;
        task.waiting(&["a", "b", "c", "d"]).await;
        let before = task.now_ms().await * 1000.0;
        let mut tokens = Vec::new();
        for call in ["1", "2"] {
            task.ok("settle", &[call, "w", "1000", "2", "0", "0"]).await;
        }
        for id in ["a", "b", "c", "d"] {
            let token = task.field("locks", id).await;
            tokens.push(token.strip_prefix("w:").unwrap().parse::<u64>().unwrap());
        }
        assert!(tokens.is_sorted_by(|one, next| one < next), "{last}: {tokens:?}");
        assert!(tokens[0] as f64 >= before && tokens[3] < 8_000_000_000_000_000, "{last}: {tokens:?}");
        assert_eq!(task.field("meta", "fence").await, tokens[3].to_string(), "{last}");
    }
}
