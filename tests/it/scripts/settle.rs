use crate::scripts::call::{COLUMNS, Task, assert_all, assert_keys, assert_rest, assert_text};
use crate::support::PATIENCE;
use crate::support::eventually;

/// The extras of {position, attempt, stalledCount, options, dispatchedAt} and the rest of a reply that claimed.
const NOTHING: &str = "[settled '' '' 4000000000000001 '' [] [] '' 0]";

#[tokio::test]
async fn waiting_jobs_are_claimed_in_order_with_growing_fences() {
    let mut task = Task::with("waits a b c").await;
    assert_eq!(task.ok("settle", "1 w 1000 2 0 0").await, "[settled '' '' 4000000000000001 a b [{} {}] [] '' 2]");
    assert_all!(
        task,
        "active a b; events {started=a b, total=2, worker=w}; locks a=w:4000000000000001, b=w:4000000000000002; \
         meta ask=1000, askedBy=w, asker=w, events=2, fence=4000000000000002, interval=1000; payload a={}, b={}, c={}; \
         replies w=1\\n\\n\\n4000000000000001\\n2\\na b; wait c; wake marker=0, spare=1"
    );
}

#[tokio::test]
async fn fences_follow_the_clock_if_the_last_one_is_lost() {
    let mut task = Task::with("no meta").await;
    task.declared().await;
    task.write("waits a").await;
    let before = task.now_ms().await * 1000.0;
    task.ok("settle", "1 w 1000 1 0 0").await;
    let after = (task.now_ms().await + 1.0) * 1000.0;
    let token = task.field("locks", "a").await;
    let fence = token.strip_prefix("w:").unwrap().parse::<f64>().unwrap();
    assert!((before..=after).contains(&fence), "{fence}");
}

#[tokio::test]
async fn a_large_claim_writes_only_the_token_of_each_job() {
    let mut task = Task::new().await;
    let ids: Vec<String> = (10..60).map(|number| number.to_string()).collect();
    task.waiting(&ids).await;
    task.ok("settle", "1 w 1000 50 0 0").await;
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
            task.write("no wake").await;
            let args = [number, "w", "1000", "10", "0", "0"];
            let reply = task.ok("settle", &args).await;
            let (claimed, shown) = claimed(&reply);
            assert_eq!((claimed, shown.iter().map(String::as_str).collect::<Vec<_>>()), (ids, payloads.to_vec()));
            assert_eq!(task.list("wait").await, left);
            assert_eq!(task.held("wake").await.is_empty(), left.is_empty(), "the remaining jobs wake another worker");
            assert!(task.ok("settle", &args).await == reply, "call {number} is answered otherwise when it is repeated");
        }
        assert_keys!(task, "no wait:low");
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
        let reply = task.ok("settle", "1 w 1000 200 0 0").await;
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
        task.write(&format!("meta events={total}; waits a b")).await;
        task.ok("settle", &[call, &worker, "1000", "2", "0", "0"]).await;
        task.write("no locks").await;
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
    assert_text!(task.ok("settle", "1 w 1000 2 0 0").await, contains(" high normal ["));
    assert_text!(task.ok("settle", "2 w 1000 2 0 0").await, contains(" low ["));
}

#[tokio::test]
async fn a_run_receives_the_values_of_its_columns() {
    let mut task = Task::with("waits a b c; attempt b=2; stalledCount c=1; options b=O; dispatchedAt c=77").await;
    task.write("snoozes a=3:0; recovery c=silent w 5").await;
    let reply = task.ok("settle", "1 w 1000 3 0 0").await;
    assert_eq!(
        reply,
        "[settled '' '' 4000000000000001 a b c [{} {} {}] [[1 0 0 '' '' 3:0 '' ''] [2 2 0 O '' '' '' ''] [3 0 1 '' 77 \
         '' silent w 5 '']] '' 3]"
    );
    assert_text!(task.held("events").await, contains(r#""restarted": "a 0 0 b 2 0 c 0 1""#));
}

#[tokio::test]
async fn a_worker_without_jobs_writes_only_its_reply() {
    let mut task = Task::new().await;
    let before = task.rest("replies").await;
    assert_eq!(task.ok("settle", "1 w 1000 10 0 0").await, NOTHING);
    assert_rest!(task, "replies", before);
}

#[tokio::test]
async fn a_late_copy_of_an_empty_call_claims_nothing() {
    let mut task = Task::new().await;
    let args = "1 w 1000 10 0 0";
    assert_eq!(task.ok("settle", &args).await, NOTHING);
    task.write("waits a").await;
    assert_eq!(task.unchanged("settle", &args).await, NOTHING);
}

#[tokio::test]
async fn completed_jobs_end_with_and_without_a_value() {
    let mut task = Task::with("runs w: a=7, b=8, c=9; snapshot").await;
    assert_eq!(task.ok("settle", "1 w 1000 0 2 1 a b 7 8 2 42").await, NOTHING);
    assert_all!(
        task,
        "candidates c; completed a=NOW, b=NOW; events {completed=a b, total=2, worker=w}; locks c=w:9; \
         meta events=2, fence=4000000000000000; payload a={}, b={}, c={}; replies w=1\\n\\n\\n4000000000000001\\n0\\n; \
         result b=42"
    );
}

#[tokio::test]
async fn run_times_are_reported_for_completed_jobs() {
    let mut task = Task::with("runs w: a=7, b=8").await;
    task.ok("settle", "1 w 1000 0 '2 15 90000' 0 a b 7 8").await;
    assert!(task.held("events").await.contains(r#"{"completed": "a b", "ran": "15 90000", "total": "2""#));

    // The first is lost, the third cancelled.
    let mut task = Task::with("runs w: a=7, b=8, c=9, d=10; cancelling c=why").await;
    task.ok("settle", "1 w 1000 0 '4 1 2 3 4' 0 a b c d 6 8 9 10").await;
    let entries = task.held("events").await;
    let told = r#"{"cancelled": "c", "completed": "b d", "outcome_rejected": "a 6 completed", "ran": "2 4", "#;
    assert!(entries.contains(told), "{entries}");

    let mut task = Task::with("runs w: a=7, b=8").await;
    task.ok("settle", "1 w 1000 0 '1 1' 0 a 6 b 8 failed 1 'x y 5' E").await;
    assert_keys!(task, "events {failed=b x y 5, outcome_rejected=a 6 completed, total=2, worker=w}");
}

#[tokio::test]
async fn a_start_reports_since_when_a_job_with_its_own_id_waits() {
    let mut task = Task::new().await;
    let ids = ["plain", "delayed", "mine", "both", "header", "retried", "stalled", "snoozed"];
    task.waiting(&ids).await;
    let delay = r#"{"delay_ms":5000,"attempts":2}"#;
    let header = r#"{"headers":{"delay_ms":"7","x":"{\"delay_ms\":7"}}"#;
    task.hset("options", &[("delayed", delay), ("both", delay), ("header", header), ("retried", delay)]).await;
    task.write("dispatchedAt mine=1700, both=1800, stalled=1900; attempt retried=1; stalledCount stalled=2").await;
    task.write("snoozes snoozed=1:0").await;
    task.ok("settle", "1 w 1000 20 0 0").await;
    let events = task.held("events").await;
    let wanted = "{\"restarted\": \"retried 1 0 stalled 0 2 snoozed 0 0\", \"since\": \"delayed - 5000 mine 1700 0 \
         both 1800 5000\", \"started\": \"plain delayed mine both header\", ";
    assert!(events.contains(wanted), "{events}");
}

#[tokio::test]
async fn a_failed_job_keeps_its_attempt_and_its_error() {
    let mut task = Task::with("runs w: a=7").await;
    assert_eq!(task.ok("settle", "1 w 1000 0 0 0 a 7 failed 3 timeout E").await, NOTHING);
    assert_rest!(
        task,
        "replies, meta",
        "attempt a=3; error a=E; events {failed=a timeout, total=1, worker=w}; failed a=NOW; payload a={}"
    );
}

#[tokio::test]
async fn a_job_to_retry_is_delayed_and_the_worker_receives_the_time() {
    let mut task = Task::with("runs w: a=7").await;
    let before = task.now_ms().await;
    let reply = task.ok("settle", "1 w 1000 0 0 0 a 7 retry 1 60000 E").await;
    let next = reply.trim_end_matches(']').rsplit(' ').nth(1).unwrap().parse::<u64>().unwrap();
    assert!((1..=60_000).contains(&next), "{reply}");
    let due = task.score("delayed", "a").await;
    assert!((before + 60_000.0..=task.now_ms().await + 60_000.0).contains(&due));
    assert_rest!(
        task,
        "replies, meta, delayed",
        "attempt a=1; enqueuedAt a=NOW; error a=E; events {retrying=a 1 60000, total=1, worker=w}; payload a={}"
    );
}

#[tokio::test]
async fn requeued_jobs_go_to_the_front_of_their_lists_in_order() {
    let mut task = Task::with("waits z; runs w: a=7, b=8, h=9; priority h=high").await;
    let mut args = vec!["1", "w", "1000", "0", "0", "0"];
    for (id, fence) in [("a", "7"), ("h", "9"), ("b", "8")] {
        args.extend([id, fence, "requeue", "0", "", ""]);
    }
    assert_eq!(task.ok("settle", &args).await, NOTHING);
    assert_rest!(
        task,
        "replies, meta, payload",
        "enqueuedAt a=NOW, b=NOW, h=NOW; events {requeued=a h b, total=3, worker=w}; priority h=high; wait a b z; \
         wait:high h; wake marker=0, spare=1"
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
    let args = "1 w 1000 0 1 1 a 1 1 42 b 2 failed 1 panic E c 3 retry 1 5 E d 4 requeue 0 - -";
    assert_eq!(task.ok("settle", &args).await, "[settled '' 1 2 3 4 4000000000000001 '' [] [] '' 0]");
    assert_rest!(task, "replies, meta, payload, events, error", "cancelled a=NOW, b=NOW, c=NOW, d=NOW");
    for (id, _) in jobs {
        let error: serde_json::Value = serde_json::from_str(&task.field("error", id).await).unwrap();
        assert_eq!(error, serde_json::json!({"code": "cancelled", "message": "why"}));
    }
}

#[tokio::test]
async fn a_wrong_token_is_lost_and_only_the_refusal_is_recorded() {
    let mut task = Task::with("runs w: a=7, b=8, c=9, d=10").await;
    let before = task.rest("replies, meta, events").await;
    let args = "1 w 1000 0 1 1 a 6 1 42 b 9 failed 1 panic E c 8 retry 1 5 E d 9 requeue 0 - - absent 1 requeue 0 - -";
    assert_eq!(task.ok("settle", &args).await, "[settled 6 9 8 9 1 '' 4000000000000001 '' [] [] '' 0]");
    assert_rest!(task, "replies, meta, events", before);
    assert_keys!(
        task,
        "events {outcome_rejected=a 6 completed b 9 failed c 8 retry d 9 requeue absent 1 requeue, total=5, worker=w}"
    );
    assert_keys!(task, "meta events=5, fence=4000000000000000");
    // The right fences under the name of another worker.
    let args = "1 x 1000 0 1 0 a 7 b 8 failed 1 panic E";
    assert_eq!(task.ok("settle", &args).await, "[settled 7 8 '' 4000000000000001 '' [] [] '' 0]");
    assert_rest!(task, "replies, meta, events", before);
    let events = task.held("events").await;
    assert!(
        events.ends_with(r#"{"outcome_rejected": "a 7 completed b 8 failed", "total": "7", "worker": "x"}]"#),
        "{events}"
    );
    assert_eq!(task.totals().await, ["", ""], "none of them has ended");
}

#[tokio::test]
async fn one_call_reports_and_claims() {
    let mut task = Task::with("runs w: a=7; waits b").await;
    assert_eq!(task.ok("settle", "1 w 1000 1 1 0 a 7").await, "[settled '' '' 4000000000000001 b [{}] [] '' 1]");
    assert_keys!(task, "active b");
    let events = task.held("events").await;
    assert!(events.contains(r#"{"completed": "a", "started": "b", "total": "2", "worker": "w"}"#), "{events}");
}

#[tokio::test]
async fn a_repeated_call_gets_the_same_reply_and_changes_nothing() {
    let mut task = Task::with("runs w: a=7, x=9; cancelling x=why; waits b c; attempt c=1").await;
    let args = "1 w 1000 2 3 0 a gone x 7 8 9";
    let first = task.ok("settle", &args).await;
    assert_eq!(first, "[settled 8 9 4000000000000001 b c [{} {}] [[2 1 0 '' '' '' '' '']] '' 2]");
    for _ in 0..2 {
        assert_eq!(task.unchanged("settle", &args).await, first);
    }
}

#[tokio::test]
async fn a_repeated_call_does_not_hand_out_jobs_lost_since() {
    let mut task = Task::with("waits a b").await;
    let args = "1 w 1000 2 0 0";
    task.ok("settle", &args).await;
    task.write("locks a=other:5").await;
    assert_eq!(task.ok("settle", &args).await, "[settled '' '' 4000000000000001 {} b ['' {}] [] '' 2]");
}

#[tokio::test]
async fn an_older_call_is_stale_and_writes_nothing() {
    let mut task = Task::with("waits a b").await;
    task.ok("settle", "5 w 1000 1 0 0").await;
    assert_eq!(task.unchanged("settle", "4 w 1000 1 0 0").await, "[stale]");
    // Another worker has its own numbers.
    assert!(task.ok("settle", "4 x 1000 1 0 0").await.contains(" b ["));
}

#[tokio::test]
async fn a_closed_call_sequence_returns_closed_and_writes_nothing() {
    let mut task = Task::with("runs w: a=7; waits b; replies w=closed, w/2=closed").await;
    for number in ["1", "7", "7/2"] {
        assert_eq!(task.unchanged("settle", &[number, "w", "1000", "1", "1", "0", "a", "7"]).await, "[closed]");
    }
    // The sequence that was not closed, and another worker.
    assert!(task.ok("settle", "1/3 w 1000 1 0 0").await.contains(" b ["));
    assert_eq!(task.ok("settle", "1 x 1000 1 0 0").await, NOTHING.replace("01 ''", "02 ''"));
}

#[tokio::test]
async fn without_declared_options_nothing_is_recorded_or_claimed() {
    let mut task = Task::with("runs w: a=7; waits b c").await;
    let first = "1 w 1000 1 0 0";
    let answer = task.ok("settle", first).await;
    assert!(answer.contains(" b ["), "{answer}");
    task.lose_options().await;
    let second = "2 w 1000 1 1 0 a 7";
    assert_eq!(task.unchanged("settle", second).await, "[undeclared]");
    assert_eq!(task.unchanged("settle", first).await, answer, "what was done before is answered");
    // The call was not executed, and is repeated with its number.
    task.declared().await;
    assert_text!(task.ok("settle", second).await, starts_with("[settled '' '' "), contains(" c ["));
}

#[tokio::test]
async fn the_call_sequences_of_a_worker_have_separate_numbers() {
    let mut task = Task::with("waits a b c d").await;
    let [one, two, three] = ["1 w 1000 1 0 0", "1/2 w 1000 1 0 0", "1/3 w 1000 1 0 0"];
    let mut first = Vec::new();
    for (line, id) in [(one, " a ["), (two, " b ["), (three, " c [")] {
        first.push(task.ok("settle", line).await);
        assert!(first.last().unwrap().contains(id), "{first:?}");
    }
    for (line, first) in [one, two, three].into_iter().zip(first) {
        assert_eq!(task.ok("settle", line).await, first);
    }
    // All hold their jobs under the worker's id, and each may report the jobs of the others.
    let reply = task.ok("settle", "2/2 w 1000 1 1 0 a 4000000000000001").await;
    assert!(reply.starts_with("[settled '' '' ") && reply.contains(" d ["), "{reply}");
    assert_eq!(task.ok("settle", &two).await, "[stale]");
    assert!(task.ok("settle", &one).await.contains("['']"));
}

#[tokio::test]
async fn a_due_delayed_job_goes_to_the_back_of_its_list() {
    let mut task = Task::with("waits a; payload due=1, high=2, later=3; priority high=high").await;
    task.write("delayed due=1, high=2, later=9e15").await;
    assert_text!(task.ok("settle", "1 w 1000 3 0 0").await, contains(" high a due ["));
    assert_keys!(task, "delayed later=9000000000000000");
}

#[tokio::test]
async fn a_worker_without_free_slots_moves_nothing() {
    let mut task = Task::with("payload due=1; delayed due=1").await;
    let before = task.rest("replies").await;
    assert_eq!(task.ok("settle", "1 w 1000 0 0 0").await, "[settled '' '' 4000000000000001 '' [] [] 0 0]");
    assert_rest!(task, "replies", before);
}

#[tokio::test]
async fn a_job_becomes_due_by_the_servers_clock() {
    let mut task = Task::new().await;
    task.ok("dispatch", "1 1 1 a 1 delay 1 50").await;
    let mut call = 0;
    eventually("the job is due", PATIENCE, async || {
        call += 1;
        task.ok("settle", &format!("{call} w 1000 1 0 0")).await.contains(" a [")
    })
    .await;
}

#[tokio::test]
async fn ids_that_must_not_run_are_skipped_and_removed_from_the_list() {
    // Payloads are read at once if none can be large, else after their sizes.
    for largest in ["", "1024"] {
        let mut task = Task::new().await;
        task.hset("meta", &[("largest", largest)]).await;
        task.write("runs other: held=7; payload done=1, a={}; completed done=1; wait held done a a tombstone").await;
        task.write("attempt tombstone=1").await;
        let reply = task.ok("settle", "1 w 1000 10 0 0").await;
        assert_eq!(reply, "[settled '' '' 4000000000000001 a [{}] [] '' 1 0 tombstone]");
        assert_keys!(task, "no wait");
        assert_keys!(task, "no attempt", "the tombstone is removed");
        assert_keys!(task, "locks a=w:4000000000000001, held=other:7");
        let events = task.held("events").await;
        let entry = r#"{"removed": "tombstone", "started": "a", "total": "2", "why": "no_payload", "worker": "w"}"#;
        assert!(events.contains(entry), "{events}");
        assert!(task.held("meta").await.contains(r#""payloadsLost": "1""#));
    }
}

#[tokio::test]
async fn a_task_that_keeps_nothing_removes_every_column() {
    let mut task = Task::with("meta keepCompleted=0, keepFailed=0, keepCancelled=0; runs w: a=7, b=8, c=9").await;
    task.write("cancelling c=why").await;
    task.columns(COLUMNS, &["a", "b", "c"]).await;
    task.ok("settle", "1 w 1000 0 1 1 a 7 1 42 b 8 failed 1 panic E c 9 requeue 0 - -").await;
    assert_rest!(task, "replies, meta, events", "");
}

#[tokio::test]
async fn snoozed_jobs_are_delayed_and_counted_without_an_attempt() {
    let mut task = Task::with("runs w: a=7, b=8, c=9").await;
    let args = "1 w 1000 0 0 0 a 7 snooze 1:0 60000 - b 8 undecodable 0:3 600000 E c 9 retry 1 '60000 code a%20b' E";
    let reply = task.ok("settle", &args).await;
    let due: u64 = reply.trim_end_matches(']').rsplit(' ').nth(1).unwrap().parse().unwrap();
    assert!((50_000..=60_000).contains(&due), "{reply}");
    assert_keys!(task, "snoozes a=1:0, b=0:3; attempt c=1; error b=E, c=E");
    let delayed = task.held("delayed").await;
    assert!(["a", "b", "c"].iter().all(|id| delayed.contains(&format!("{id:?}"))), "{delayed}");
    let events = task.held("events").await;
    for words in
        [r#""snoozed": "a 1:0 60000""#, r#""undecodable": "b 0:3 600000""#, r#""retrying": "c 1 60000 code a%20b""#]
    {
        assert!(events.contains(words), "{events}");
    }
    assert_keys!(task, "no locks");
}

#[tokio::test]
async fn a_claim_asks_for_the_interval_of_the_worker() {
    let mut task = Task::with("meta interval=5000, ask=1000; waits a b").await;
    task.ok("settle", "1 w 2000 1 0 0").await;
    assert_text!(task.held("meta").await, contains(r#""ask": "2000""#), contains(r#""interval": "5000""#));
    task.ok("settle", "2 w 9000 1 0 0").await;
    assert_text!(task.held("meta").await, contains(r#""ask": "9000""#), contains(r#""interval": "9000""#));
}

#[tokio::test]
async fn without_events_no_entry_is_written() {
    let mut task = Task::with("meta eventMode=off; waits a").await;
    task.ok("settle", "1 w 1000 1 0 0").await;
    assert_keys!(task, "no events");
    // A reader would miss an event that was counted and never written.
    let meta = task.held("meta").await;
    assert!(!meta.contains(r#""events":"#), "{meta}");
}

#[tokio::test]
async fn a_call_that_claims_nothing_uses_no_fence() {
    let mut task = Task::with("no meta").await;
    task.declared().await;
    task.write("runs w: a=7").await;
    task.ok("settle", "1 w 1000 1 1 0 a 7").await;
    assert_keys!(task, "meta events=1");
}

#[tokio::test]
async fn a_counter_that_rust_cannot_read_fails_its_job_and_others_run() {
    for column in ["attempt", "stalledCount"] {
        for count in ["many", "", "1.5", "1e3", "0x10", " 1", "nan", "inf", "-1", "4294967296"] {
            let mut task = Task::with(&format!("waits bad a; {column} bad={count}")).await;
            let reply = task.ok("settle", "1 w 1000 2 0 0").await;
            assert!(reply.contains(" a ["), "{column} {count}: {reply}");
            assert_keys!(task, "failed bad=NOW", "{column} {count}");
            assert!(task.held("error").await.contains("corrupt"), "{column} {count}");
            assert!(task.held("events").await.contains(r#""failed": "bad corrupt a%20counter%20of"#));
        }
    }
}

#[tokio::test]
async fn ended_jobs_are_counted_with_and_without_events() {
    for events in ["on", "off"] {
        let mut task = Task::new().await;
        task.hset("meta", &[("eventMode", events)]).await;
        task.write("runs w: a=1, b=2, c=3, d=4, e=5; cancelling e=why; waits bad; attempt bad=many").await;
        let args = "1 w 1000 0 1 0 a 1 b 2 failed 1 panic E c 3 retry 1 60000 E d 4 requeue 0 - - e 5 requeue 0 - - \
             lost 9 failed 1 panic E";
        task.ok("settle", &args).await;
        assert_eq!(task.totals().await, ["", "3"], "one completed, one failed, one was cancelled");
        task.ok("settle", &args).await;
        assert_eq!(task.totals().await, ["", "3"], "a repeated call counts nothing");
        task.ok("settle", "2 w 1000 2 0 0").await;
        assert_eq!(task.totals().await, ["", "4"], "one with a broken counter fails when it is claimed");
    }
}

#[tokio::test]
async fn a_claim_removes_the_time_since_when_a_job_waits() {
    let mut task = Task::with("runs w: back=1, again=2, late=3, odd=4").await;
    let args = "1 w 1000 0 0 0 back 1 requeue 0 - - again 2 retry 1 0 E late 3 snooze 1:0 9000000 - odd 4 undecodable \
         0:1 9000000 E";
    task.ok("settle", &args).await;
    assert_keys!(task, "enqueuedAt again=NOW, back=NOW, late=NOW, odd=NOW");
    assert_text!(task.ok("settle", "2 w 1000 1 0 0").await, contains(" back ["));
    // The other one became due, and has been in its list since then.
    assert_keys!(task, "enqueuedAt again=NOW, late=NOW, odd=NOW; wait again");
    task.ok("settle", "3 w 1000 1 0 0").await;
    assert_keys!(task, "enqueuedAt late=NOW, odd=NOW");
}

#[tokio::test]
async fn a_due_job_that_does_not_run_loses_that_time_too() {
    for keep in ["1", "0"] {
        let mut task = Task::with(&format!("meta keepFailed={keep}; payload bad=1, good=1; attempt bad=many")).await;
        for id in ["bad", "good", "tombstone"] {
            task.zadd("delayed", 1.0, id).await;
        }
        assert_text!(task.ok("settle", "1 w 1000 9 0 0").await, contains(" good ["));
        assert_keys!(task, "no enqueuedAt", "keep {keep}");
        assert!(task.held("events").await.contains(r#""removed": "tombstone""#));
    }
}

#[tokio::test]
async fn without_events_refusals_are_not_reported() {
    let mut task = Task::with("meta eventMode=off").await;
    let before = task.rest("replies").await;
    assert_eq!(task.ok("settle", "1 w 1000 0 1 0 a 7").await, "[settled 7 '' 4000000000000001 '' [] [] '' 0]");
    assert_rest!(task, "replies", before);
}

/// A node of a workflow and a plain job, both held by `w`, in a task that has workflows.
async fn task_with_a_node() -> Task {
    Task::with("meta nodes=1; runs w: ~f/a/0/1=7, own=8").await
}

#[tokio::test]
async fn a_dropped_node_is_removed_with_all_its_data() {
    let mut task = task_with_a_node().await;
    task.columns(COLUMNS, &["~f/a/0/1"]).await;
    task.write("claimed ~f/a/0/1=7").await;
    let args = "1 w 1000 0 0 0 ~f/a/0/1 7 drop 0 - -";
    assert!(task.ok("settle", &args).await.starts_with("[settled '' '' "));
    assert_rest!(
        task,
        "replies, meta",
        "active own; events {removed=~f/a/0/1, total=1, worker=w}; locks own=w:8; payload own={}"
    );
    task.unchanged("settle", &args).await;
}

#[tokio::test]
async fn a_drop_of_a_lost_job_is_refused_and_a_cancel_comes_first() {
    let mut task = task_with_a_node().await;
    assert_text!(task.ok("settle", "1 w 1000 0 0 0 ~f/a/0/1 6 drop 0 - -").await, starts_with("[settled 6 '' "));
    assert!(task.held("payload").await.contains("~f/a/0/1"));
    assert!(task.held("events").await.contains(r#""outcome_rejected": "~f/a/0/1 6 drop""#));
    task.write("cancelling ~f/a/0/1=why").await;
    assert_text!(task.ok("settle", "2 w 1000 0 0 0 ~f/a/0/1 7 drop 0 - -").await, starts_with("[settled '' 7 "));
    assert_keys!(task, "cancelled ~f/a/0/1=NOW; outbox ~f/a/0/1=NOW");
}

#[tokio::test]
async fn only_ended_nodes_are_in_the_outbox_by_the_same_write() {
    let failed = "1 w 1000 0 0 0 ~f/a/0/1 7 failed 1 'panic %20 5' E own 8 failed 1 'panic %20 5' E";
    for (place, args, how) in [
        ("completed", "1 w 1000 0 2 1 ~f/a/0/1 own 7 8 1 42", "c 42]"),
        ("failed", failed, "f E]"),
        ("cancelled", "1 w 1000 0 2 0 ~f/a/0/1 own 7 8", "x {"),
    ] {
        for keep in ["1", "0"] {
            let mut task = task_with_a_node().await;
            task.write(&format!("meta keepCompleted={keep}, keepFailed={keep}, keepCancelled={keep}")).await;
            if place == "cancelled" {
                task.write("cancelling ~f/a/0/1=why, own=why").await;
            }
            task.ok("settle", &args).await;
            assert_keys!(task, "outbox ~f/a/0/1=NOW", "{place} {keep}");
            // A node that the task does not keep stays until its workflow has recorded it; others are removed.
            let own = if keep == "1" { "own=NOW, " } else { "" };
            assert_keys!(task, format!("{place} {own}~f/a/0/1=NOW"), "{place}");
            assert_eq!(task.held("payload").await.contains("own"), keep == "1");
            let said = task.held(if place == "completed" { "result" } else { "error" }).await;
            assert!(said.contains("~f/a/0/1"), "{place} {keep}: {said}");
            assert_eq!(said.contains("own"), place != "completed" && keep == "1", "{said}");
            assert_text!(task.ok("ended", "0 200").await, starts_with(&format!("[ended 0 ~f/a/0/1 {how}")));
        }
    }
}

#[tokio::test]
async fn nodes_that_expire_or_are_broken_at_a_claim_are_recorded_too() {
    let mut task = Task::with("meta nodes=1, keepFailed=0; waits ~f/a/0/1 ~f/a/1/1 own").await;
    task.write("expiresAt ~f/a/0/1=5, own=5; expires ~f/a/0/1=5; attempt ~f/a/1/1=many").await;
    task.ok("settle", "1 w 1000 5 0 0").await;
    assert_keys!(task, "outbox ~f/a/0/1=NOW, ~f/a/1/1=NOW; failed ~f/a/0/1=NOW, ~f/a/1/1=NOW");
    assert_keys!(task, "payload ~f/a/0/1={}, ~f/a/1/1={}");
}

#[tokio::test]
async fn an_outcome_that_does_not_end_a_node_writes_no_outbox_entry() {
    for (kind, detail) in [("retry", "9000 - 5"), ("requeue", ""), ("snooze", "9000")] {
        let mut task = task_with_a_node().await;
        task.ok("settle", &["1", "w", "1000", "0", "0", "0", "~f/a/0/1", "7", kind, "1", detail, "E"]).await;
        assert_keys!(task, "no outbox", "{kind}");
    }
}

#[tokio::test]
async fn jobs_that_begin_to_fail_are_counted_until_one_completes() {
    let mut task = Task::new().await;
    for number in 1..=9 {
        task.write(&format!("runs w: j-{number}={number}")).await;
    }
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
    for (number, (kind, attempt, detail, error, row)) in (1..).zip(ends) {
        let end = format!("j-{number} {number} {kind} {attempt} '{detail}' '{error}'");
        task.ok("settle", &format!("{number} w 1000 0 0 0 {end}")).await;
        assert_keys!(task, format!("meta.failedSinceCompleted={row}"), "{kind} {attempt}");
    }
    task.ok("settle", "9 w 1000 0 1 0 j-9 9").await;
    assert_keys!(task, "meta.failedSinceCompleted=0");
    // It expired before it began.
    task.write("waits late; expiresAt late=5; expires late=5").await;
    task.ok("expire", "w 200").await;
    assert_keys!(task, "meta.failedSinceCompleted=1");
}

#[tokio::test]
async fn runs_that_are_given_back_are_counted_until_one_completes() {
    let mut task = Task::with("runs w: a=1, b=2, ahead=3, c=4, d=5, e=6; claimed ahead=3").await;
    task.ok("settle", "1 w 1000 0 0 0 a 1 requeue 0 0 - b 2 requeue 0 0 - ahead 3 requeue 0 0 -").await;
    assert_keys!(task, "meta.brokenOffSinceCompleted=2", "one of them had not begun");
    // A failure does not reset the count.
    task.ok("settle", "2 w 1000 0 0 0 c 4 failed 1 'disk - 9' E").await;
    assert_keys!(task, "meta.brokenOffSinceCompleted=2; meta.failedSinceCompleted=1");
    task.ok("settle", "3 w 1000 0 0 0 d 5 requeue 0 0 -").await;
    assert_keys!(task, "meta.brokenOffSinceCompleted=3");
    let now = task.now_ms().await;
    for field in ["lastFailedAt", "lastBrokenOffAt"] {
        let at: f64 = task.field("meta", field).await.parse().unwrap();
        assert!((now - at).abs() < 60_000.0, "{field} {at}");
    }
    task.ok("settle", "4 w 1000 0 1 0 e 6").await;
    assert_keys!(task, "meta.brokenOffSinceCompleted=0; meta.failedSinceCompleted=0");
    let at: f64 = task.field("meta", "lastCompletedAt").await.parse().unwrap();
    assert!((now - at).abs() < 60_000.0, "{at}");
}

#[tokio::test]
async fn a_completed_run_resets_the_counts_before_its_hook_runs() {
    let mut task = Task::with("meta hook=1; runs w: a=1, b=2, c=3").await;
    task.ok("settle", "1 w 1000 0 0 0 a 1 failed 1 'disk - 9' E").await;
    task.ok("settle", "2 w 1000 0 0 0 b 2 requeue 0 0 -").await;
    assert_keys!(task, "meta.brokenOffSinceCompleted=1; meta.failedSinceCompleted=1");
    task.ok("settle", "3 w 1000 0 1 0 c 3").await;
    assert_keys!(task, "meta.brokenOffSinceCompleted=0; meta.failedSinceCompleted=0");
}

#[tokio::test]
async fn fences_stay_below_two_to_the_53_for_any_clock() {
    // A server whose clock was past the year 2255 left this fence.
    for last in ["9007199254740992", "9007199254740991", "1e300", "inf", "nan", "-5", "many"] {
        let mut task = Task::with(&format!("meta fence={last}; waits a b c d")).await;
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
