//! Jobs of a task with a hook: the outcome is stored, the hook runs, then the job is terminal.

use crate::scripts::call::{Task, assert_keys, assert_rest, assert_text};

/// The first fences of a task.
const ONE: &str = "4000000000000001";
const TWO: &str = "4000000000000002";

/// A task with a hook whose worker `w` runs these jobs.
async fn hooked(jobs: &[(&str, u64)]) -> Task {
    let mut task = Task::with("meta hook=1, epoch=5, interval=1000, ask=1000, maxCount=1").await;
    task.running("w", jobs).await;
    task
}

/// A job whose outcome is stored, held by `w` under the fence 7.
async fn finalizing(outcome: &str) -> Task {
    let mut task = hooked(&[("a", 7)]).await;
    task.hset("outcome", &[("a", outcome)]).await;
    match outcome.split(' ').next() {
        Some("completed") => task.hset("result", &[("a", "42")]).await,
        _ => task.hset("error", &[("a", r#"{"code":"odd","message":"it is odd"}"#)]).await,
    }
    task
}

/// A job that waits for its hook.
async fn due(outcome: &str) -> Task {
    let mut task = finalizing(outcome).await;
    task.write("no locks, active; finalizing a=5").await;
    task
}

/// A report of `w` about the hook of `a` in its first call, which wants no jobs.
fn said<'a>(kind: &'a str, attempt: &'a str, detail: &'a str) -> [&'a str; 12] {
    ["1", "w", "1000", "0", "0", "0", "a", "7", kind, attempt, detail, ""]
}

/// The keys that each of these tasks has.
const OTHERS: &str = "meta, payload, replies, events, stalls";

#[tokio::test]
async fn the_call_that_reports_an_outcome_gives_its_worker_the_hook() {
    let mut task = hooked(&[("a", 7)]).await;
    let args = "1 w 1000 '1 hooks' '1 1500' 1 a 7 1 42";
    let reply = format!("[settled '' '' {ONE} a [42] [[1 0 0 '' '' '' '' '' completed 0 0 1500 2]] '' 1]");
    assert_eq!(task.ok("settle", &args).await, reply);
    assert_rest!(task, OTHERS, "active a; locks a=w:4000000000000001; outcome a=completed 0 0 1500; result a=42");
    assert_keys!(task, "events {finalizing=a completed, total=1, worker=w}");
    assert_eq!(task.totals().await[1], "", "it has not ended");
    assert_eq!(task.unchanged("settle", &args).await, reply, "repeated");
    // The hook has run.
    let args = ["2", "w", "1000", "0", "0", "0", "a", ONE, "hooked", "0", "", ""];
    assert_eq!(task.ok("settle", &args).await, format!("[settled '' '' {TWO} '' [] [] '' 0]"));
    assert_rest!(task, OTHERS, "completed a=NOW; result a=42");
    assert_keys!(
        task,
        "events {finalizing=a completed, total=1, worker=w}, {completed=a, ran=1500, total=2, worker=w}"
    );
    assert_keys!(task, "meta.out=1");
}

#[tokio::test]
async fn a_worker_without_the_hook_leaves_it_to_others() {
    let mut task = hooked(&[("a", 7)]).await;
    assert_eq!(task.ok("settle", "1 w 1000 1 '1 1500' 0 a 7").await, format!("[settled '' '' {ONE} '' [] [] '' 0 1]"));
    assert_rest!(task, OTHERS, "finalizing a=NOW; outcome a=completed 0 0 1500; wake marker=0, spare=1");
    // No worker is woken again: a worker with the hook was woken before.
    task.write("no wake").await;
    assert_eq!(task.ok("settle", "2 w 1000 1 0 0").await, format!("[settled '' '' {ONE} '' [] [] '' 0 1]"));
    assert_keys!(task, "no wake");
    // A worker with the hook takes it. A null value is not stored.
    let reply = task.ok("settle", "1 v 1000 '2 hooks' 0 0").await;
    assert_eq!(reply, format!("[settled '' '' {ONE} a [''] [[1 0 0 '' '' '' '' '' completed 0 0 1500 2]] '' 1]"));
    assert_keys!(task, "no finalizing");
}

#[tokio::test]
async fn jobs_end_as_stored_once_no_worker_has_the_hook() {
    for (outcome, place) in [("completed", "completed"), ("failed", "failed"), ("cancelled", "cancelled")] {
        let mut task = due(&format!("{outcome} 1 1 1500")).await;
        task.write("meta hook=0").await;
        // A worker that still has it runs it.
        assert_eq!(task.ok("settle", "1 v 1000 '0 hooks' 0 0").await, format!("[settled '' '' {ONE} '' [] [] 0 0 1]"));
        task.ok("settle", "1 w 1000 0 0 0").await;
        assert_eq!(task.held(place).await, r#"zset ["a": NOW]"#);
        assert_keys!(task, "no outcome, finalizing");
        let words = if outcome == "failed" { "a odd it%20is%20odd 1500" } else { "a" };
        assert_text!(task.held("events").await, contains(&format!(r#""{outcome}": "{words}""#)));
        assert_keys!(task, "meta.out=1");
    }
}

#[tokio::test]
async fn every_outcome_of_a_run_waits_for_the_hook() {
    let mut task = hooked(&[("f", 7), ("c", 8), ("r", 9), ("n", 10)]).await;
    task.write("cancelling c=why; meta keepFailed=0, keepCompleted=0, keepCancelled=0").await;
    let args = "1 w 1000 0 '1 9' 0 n 10 f 7 failed 2 'odd it%20is 20' '{\"code\":\"odd\",\"message\":\"it is\"}' c 8 \
         requeue 0 - - r 9 retry 1 '5000 odd it%20is 20' '{\"code\":\"odd\",\"message\":\"it is\"}'";
    assert_eq!(task.ok("settle", &args).await, format!("[settled '' 8 {ONE} '' [] [] 5000 0 1]"));
    assert_keys!(task, "outcome c=cancelled 0 0 -, f=failed 0 0 20, n=completed 0 0 9; finalizing c=NOW, f=NOW, n=NOW");
    assert_keys!(task, "delayed r=NOW", "it has no outcome yet");
    assert_keys!(task, "no locks, cancelling, active");
    // An outcome that is not kept stays until the hook has run.
    let reply = task.ok("settle", "1 v 1000 '3 hooks' 0 0").await;
    assert!(reply.contains(" c f n [{") && reply.contains(r#""message":"why""#), "{reply}");
    assert!(reply.contains(r#" {"code":"odd","message":"it is"} ''] "#), "{reply}");
    let mut args = vec!["2", "v", "1000", "0", "0", "0"];
    let fences = [ONE, TWO, "4000000000000003"];
    for (id, fence) in ["c", "f", "n"].into_iter().zip(fences) {
        args.extend([id, fence, "hooked", "0", "", ""]);
    }
    task.ok("settle", &args).await;
    let error = r#"error r={"code":"odd","message":"it is"}"#;
    let rows = format!("attempt r=1; delayed r=NOW; enqueuedAt r=NOW; {error}; payload r={{}}");
    assert_rest!(task, "meta, events, replies, wake", rows);
}

#[tokio::test]
async fn a_failed_hook_runs_again_later_and_finally_the_job_ends() {
    let mut task = finalizing("completed 0 1 1500").await;
    let reply = task.ok("settle", &said("hook_retry", "1", "60000 odd it%20is")).await;
    assert_eq!(reply, format!("[settled '' '' {ONE} '' [] [] '' 0]"), "it has no hook to run then");
    assert_keys!(task, "outcome a=completed 1 1 1500");
    let now = task.now_ms().await;
    let at = task.score("finalizing", "a").await;
    assert!(at > now + 50_000.0 && at <= now + 60_000.0, "{at}");
    assert_keys!(task, "events {hook_retrying=a 1 60000 odd it%20is, total=1, worker=w}");
    // It is not due: the worker receives the time.
    let reply = task.ok("settle", "1 v 1000 '1 hooks' 0 0").await;
    let due_in: f64 = reply.rsplit(' ').nth(1).unwrap().parse().unwrap();
    assert!((50_000.0..=60_000.0).contains(&due_in), "{reply}");
    assert!(reply.ends_with(" 0]"), "{reply}");

    let mut task = finalizing("failed 1 0 1500").await;
    task.ok("settle", &said("hooked", "0", "panic oh")).await;
    assert_keys!(task, "failed a=NOW");
    let events = task.held("events").await;
    let wanted = r#"{"failed": "a odd it%20is%20odd 1500", "hook_failed": "a panic oh", "total": "2", "worker": "w"}"#;
    assert!(events.contains(wanted), "{events}");
}

#[tokio::test]
async fn failed_hooks_are_counted_again_after_15_minutes_without_one() {
    let mut task = finalizing("failed 1 0 1500").await;
    let now = task.now_ms().await;
    for (last, row, since) in [(now - 800_000.0, "8", "5"), (now - 950_000.0, "1", "")] {
        let mut task = finalizing("failed 1 0 1500").await;
        let fields = [("hooksFailed", "7"), ("hooksFailedRow", "7"), ("hooksFailingSince", "5")];
        task.hset("meta", &fields).await;
        task.hset("meta", &[("hookFailedAt", &last.to_string())]).await;
        task.ok("settle", &said("hooked", "0", "panic oh")).await;
        assert_eq!(
            (&*task.field("meta", "hooksFailed").await, &*task.field("meta", "hooksFailedRow").await),
            ("8", row)
        );
        let begun = task.field("meta", "hooksFailingSince").await;
        assert!(if since.is_empty() { begun.parse::<f64>().unwrap() >= now } else { begun == since }, "{begun}");
        assert!(task.field("meta", "hookFailedAt").await.parse::<f64>().unwrap() >= now);
    }
    // A hook that ran does not count.
    task.ok("settle", &said("hooked", "0", "")).await;
    assert!(!task.held("meta").await.contains("hooksFailed"));
}

#[tokio::test]
async fn a_worker_that_lost_the_hook_reports_nothing() {
    let mut task = finalizing("completed 0 0 1500").await;
    let before = task.rest("replies, meta, events").await;
    let lost = task.ok("settle", "1 w 1000 0 0 0 a 6 hooked 0 - -").await;
    assert_eq!(lost, format!("[settled 6 '' {ONE} '' [] [] '' 0]"));
    task.ok("settle", "2 w 1000 0 0 0 a 6 hook_retry 1 '1 odd -' -").await;
    assert_rest!(task, "replies, meta, events", before);
    let rejected = ["a 6 hooked", "a 6 hook_retry"].map(|outcome| format!(r#""outcome_rejected": "{outcome}""#));
    assert_text!(task.held("events").await, contains(&rejected[0]), contains(&rejected[1]));
}

#[tokio::test]
async fn a_hook_that_is_handed_back_runs_again_without_the_handler() {
    for cancelled in [false, true] {
        let mut task = finalizing("completed 0 0 1500").await;
        if cancelled {
            // An older client may request a cancel now.
            task.write("cancelling a=why").await;
        }
        task.ok("settle", &said("requeue", "0", "")).await;
        assert_keys!(task, "outcome a=completed 0 0 1500; finalizing a=NOW; no wait, locks, error");
        assert_keys!(task, "wake marker=0, spare=1", "another worker takes it");
        assert!(task.held("events").await.contains(r#""requeued": "a""#));
    }
}

#[tokio::test]
async fn a_job_with_a_stored_outcome_does_not_run_from_a_list() {
    let mut task = due("completed 0 0 1500").await;
    task.write("wait a").await;
    assert_eq!(task.ok("settle", "1 w 1000 5 0 0").await, format!("[settled '' '' {ONE} '' [] [] '' 0 1]"));
    assert_keys!(task, "no wait; finalizing a=5");
}

#[tokio::test]
async fn hooks_use_slots_and_come_before_jobs() {
    let mut task = due("completed 0 0 1500").await;
    task.write("waits b c d").await;
    let reply = task.ok("settle", "1 w 1000 '3 hooks' 0 0").await;
    assert_eq!(
        reply,
        format!("[settled '' '' {ONE} a b c [42 {{}} {{}}] [[1 0 0 '' '' '' '' '' completed 0 0 1500 2]] '' 3]")
    );
    assert_keys!(task, "locks a=w:4000000000000001, b=w:4000000000000002, c=w:4000000000000003");
    assert!(
        task.held("events").await.contains(r#""started": "b c", "total": "2""#),
        "a hook does not count as a start"
    );
    // If jobs are claimed ahead, a hook begins at once or waits.
    for (want, ids, claimed) in
        [("3 2 1 hooks", "a b c", "c"), ("2 1 0 hooks", "b c", "c"), ("3 1 1 hooks", "a b c", "b c")]
    {
        let mut task = due("completed 0 0 1500").await;
        task.write("waits b c d").await;
        let reply = task.ok("settle", &["1", "w", "1000", want, "0", "0"]).await;
        assert!(reply.contains(&format!(" {ids} [")), "{want}: {reply}");
        assert_eq!(task.held("finalizing").await.is_empty(), ids.contains('a'), "{want}: {reply}");
        let events = task.held("events").await;
        assert!(events.contains(&format!(r#""claimed": "{claimed}""#)), "{want}: {events}");
    }
}

#[tokio::test]
async fn hooks_of_a_paused_task_run() {
    let mut task = due("completed 0 0 1500").await;
    task.write("meta paused=1; waits b").await;
    let args = "1 w 1000 '3 hooks' 0 0";
    let reply = format!("[settled '' '' {ONE} a [42] [[1 0 0 '' '' '' '' '' completed 0 0 1500 2]] '' -2]");
    assert_eq!(task.ok("settle", &args).await, reply);
    assert_eq!(task.ok("settle", &args).await, reply, "repeated");
    assert_keys!(task, "locks a=w:4000000000000001; wait b");
    assert_eq!(task.ok("settle", "2 w 1000 '3 hooks' 0 0").await, format!("[settled '' '' {TWO} '' [] [] '' -1]"));
}

#[tokio::test]
async fn a_stalled_hook_runs_again_until_it_stalled_too_often() {
    for (outcome, place) in [("completed", "completed"), ("failed", "failed"), ("cancelled", "cancelled")] {
        let mut task = finalizing(&format!("{outcome} 2 0 1500")).await;
        task.write("stalledCount a=1; snapshot").await;
        let sweep = ["v", "1000", "5", "1000", "0", "200"];
        assert_eq!(task.ok("sweep", &sweep).await, "[swept 6 1000 0 1 0 [a 1 requeued w 7]]");
        assert_keys!(task, format!("outcome a={outcome} 2 1 1500; finalizing a=NOW; wake marker=0, spare=1"));
        assert_keys!(task, "stalledCount a=1", "the handler has not stalled");
        assert_keys!(task, "recovery a=silent w NOW; no locks, wait");

        let mut task = finalizing(&format!("{outcome} 2 1 1500")).await;
        task.write("snapshot").await;
        assert_eq!(task.ok("sweep", &sweep).await, format!("[swept 6 1000 0 1 0 [a 2 {outcome} w 7]]"));
        assert_eq!(task.held(place).await, r#"zset ["a": NOW]"#);
        assert_keys!(task, "no outcome, finalizing");
        let events = task.held("events").await;
        let failed = r#""hook_failed": "a worker_crashed the%20hook:%20stalled%202%20times,%20max_count%20is%201""#;
        assert!(events.contains(failed) && events.contains(&format!(r#""{outcome}": "a"#)), "{events}");
        assert!(events.contains(r#""total": "3""#), "{events}");
        assert_keys!(task, "meta.out=1");
    }
}

#[tokio::test]
async fn the_crash_option_of_the_task_does_not_apply_to_a_hook() {
    for mode in ["fail", "retry", "recover"] {
        let mut task = finalizing("completed 0 0 1500").await;
        task.hset("meta", &[("onCrash", mode), ("retry", r#"{"attempts":1}"#)]).await;
        task.write("cancelling a=why; snapshot").await;
        assert_eq!(task.ok("sweep", "v 1000 5 1000 0 200").await, "[swept 6 1000 0 1 0 [a 1 requeued w 7]]", "{mode}");
        assert_keys!(task, "no cancelling, attempt");
    }
}

#[tokio::test]
async fn a_person_recovers_a_silent_hook_or_ends_the_job() {
    for (verdict, wanted) in [("recover", "[a 6 requeued w 7]"), ("fail", "[a 6 completed w 7]")] {
        let mut task = finalizing("completed 0 5 1500").await;
        task.write("snapshot").await;
        let reply = task.ok("sweep", &["v", "0", "5", "1000", "0", "200", verdict, "anna", "a"]).await;
        assert!(reply.ends_with(&format!("{wanted}]")), "{reply}");
        assert_eq!(task.held("completed").await.is_empty(), verdict == "recover");
    }
}

#[tokio::test]
async fn the_hook_of_a_dead_worker_runs_again() {
    let mut task = finalizing("failed 0 0 1500").await;
    assert_eq!(task.ok("reconcile", "v worker_restarted - 0 100 w").await, "[reconciled 0 0 [a 1 requeued w 7]]");
    assert_keys!(task, "finalizing a=NOW; recovery a=worker_restarted w NOW");
}

#[tokio::test]
async fn jobs_that_a_sweep_ends_wait_for_the_hook_unless_damaged() {
    let mut task = hooked(&[("crashed", 7), ("stopped", 8), ("broken", 9)]).await;
    task.write("stalledCount crashed=1, broken=x; cancelling stopped=why; payload loose=1; active loose").await;
    task.write("snapshot").await;
    let reply = task.ok("sweep", "v 1000 5 1000 0 200").await;
    for word in ["crashed 2 failed w 7", "stopped 1 cancelled w 8", "broken 0 failed w 9", "loose 0 failed - 0"] {
        assert!(reply.contains(word), "{word}: {reply}");
    }
    assert_keys!(task, "outcome crashed=failed 0 0 -, stopped=cancelled 0 0 -; finalizing crashed=NOW, stopped=NOW");
    assert_keys!(task, "failed broken=NOW, loose=NOW");
    assert_text!(task.held("events").await, contains(r#""finalizing": "crashed failed stopped cancelled""#));
    assert_keys!(task, "meta.out=2", "two have ended");
}

#[tokio::test]
async fn a_job_that_is_cancelled_in_its_place_waits_for_the_hook() {
    let mut task = hooked(&[]).await;
    task.write("waits a b; payload d=1; delayed d=9e12").await;
    assert_eq!(task.ok("cancel", "why channel - a - d -").await, "[told ended ended]");
    assert_keys!(task, "outcome a=cancelled 0 0 -, d=cancelled 0 0 -; finalizing a=NOW, d=NOW; no delayed, cancelled");
    assert_keys!(task, "wake marker=0, spare=1");
    assert!(task.held("events").await.contains(r#""finalizing": "a cancelled d cancelled""#));
    assert_eq!(task.ok("counts", "").await, "[counted 1 0 0 0 2 0 0 0 0]");
    // It is too late for another cancel, and for a retry.
    assert_eq!(task.ok("cancel", "again channel - a -").await, "[told finalizing]");
    assert_eq!(task.ok("retry", "- 0 a -").await, "[told finalizing]");
    assert_eq!(task.ok("run_now", "- d -").await, "[told finalizing]");
    // The tombstone that it left is not a job.
    assert_text!(task.ok("settle", "1 w 1000 '5 hooks' 0 0").await, contains(" a d b ["));
    for (id, state) in [("a", "finalizing"), ("b", "running")] {
        assert!(task.ok("inspect", &[id]).await.starts_with(&format!("[found {state} w:")));
    }
    assert_eq!(task.ok("cancel", "again channel - a -").await, "[told finalizing]");
    assert_keys!(task, "no cancelling");
    assert_eq!(task.ok("counts", "").await, "[counted 0 0 0 1 2 0 0 0 0]");
    assert_eq!(task.ok("states", "a b d").await, "[looked '' [finalizing running finalizing] [0 0 0]]");
}

#[tokio::test]
async fn a_job_that_expires_waits_for_the_hook() {
    for by_claim in [false, true] {
        let mut task = hooked(&[]).await;
        task.write("waits a; expiresAt a=1; expires a=1").await;
        if by_claim {
            task.ok("settle", "1 w 1000 5 0 0").await;
        } else {
            assert_eq!(task.ok("expire", "w 100").await, "[expired 1 0]");
        }
        assert_keys!(task, "outcome a=failed 0 0 -; finalizing a=NOW; no failed, expires, expiresAt");
        assert_keys!(task, "wake marker=0, spare=1");
        assert_eq!(task.totals().await[1], "");
        assert!(task.ok("settle", "2 w 1000 '5 hooks' 0 0").await.contains(" a [{"));
    }
}

#[tokio::test]
async fn a_removed_job_runs_no_hook() {
    let mut task = due("completed 0 0 1500").await;
    assert_eq!(task.ok("remove", "- a -").await, "[told removed]");
    assert_rest!(task, "meta, events", "");
    // A worker that runs the hook keeps the job.
    let mut task = finalizing("completed 0 0 1500").await;
    assert_eq!(task.ok("remove", "- a -").await, "[told finalizing]");
    // It is still where a person saw it.
    assert_eq!(task.ok("remove", "ada a =finalizing").await, "[told finalizing]");
}

#[tokio::test]
async fn jobs_that_wait_for_their_hook_are_listed() {
    let mut task = due("completed 0 0 1500").await;
    task.write("runs w: b=8, c=9; outcome b=failed 0 0 -").await;
    let page =
        async |task: &mut Task, state: &str| task.ok("jobs", &[state, "0", "", "10", "-inf", "+inf", "", ""]).await;
    let found = page(&mut task, "finalizing").await;
    assert!(found.contains("[a 5 ''") && found.contains("[b w:8 ''") && !found.contains("[c "), "{found}");
    let found = page(&mut task, "running").await;
    assert!(found.contains("[c w:9 ''") && !found.contains("[b "), "{found}");
    assert!(task.ok("inspect", "a").await.contains(" completed 0 0 1500 '' '' 0 2 2 0]"));
}

#[tokio::test]
async fn values_for_hooks_are_bounded_in_bytes() {
    let mut task = hooked(&[]).await;
    let large = "x".repeat(600 * 1024);
    let half = "y".repeat(300 * 1024);
    for (at, (id, value)) in [("a", &large), ("b", &half), ("c", &half)].into_iter().enumerate() {
        task.write(&format!("payload {id}=1; outcome {id}=completed 0 0 1; result {id}={value}")).await;
        task.write(&format!("finalizing {id}={at}")).await;
    }
    task.write("waits d").await;
    let reply = task.ok("settle", "1 w 1000 '5 hooks' 0 0").await;
    assert!(reply.starts_with(&format!("[settled '' '' {ONE} a b [614400 {half}] ")), "{}", &reply[..60]);
    assert!(reply.ends_with(" 0 2 1]"), "the third is due at once");
    assert_keys!(task, "finalizing c=2; wake marker=0, spare=1");
}

#[tokio::test]
async fn a_tombstone_is_not_a_job_in_the_call_that_ends_it() {
    let mut task = hooked(&[]).await;
    task.write("waits x a").await;
    task.ok("cancel", "why channel - a -").await;
    task.write("meta hook=0").await;
    assert_text!(task.ok("settle", "1 w 1000 5 0 0").await, contains(" x [{}] "));
    assert_keys!(task, "cancelled a=NOW; locks x=w:4000000000000001");
    assert_eq!(task.ok("counts", "").await, "[counted 0 0 0 1 0 0 0 1 0]");
}

#[tokio::test]
async fn a_cancel_of_a_job_with_a_stored_outcome_is_dropped() {
    for (kind, detail) in [("hooked", ""), ("hook_retry", "1000 odd -"), ("requeue", "")] {
        let mut task = finalizing("completed 0 0 1500").await;
        task.write("cancelling a=why").await;
        task.ok("settle", &said(kind, "1", detail)).await;
        assert_keys!(task, "no cancelling", "{kind}");
    }
}

#[tokio::test]
async fn settle_expires_nothing_if_finalizing_has_another_type() {
    let mut task = hooked(&[]).await;
    task.write("waits a; expiresAt a=1; expires a=1").await;
    task.make_foreign("finalizing").await;
    assert_eq!(task.refused("settle", "1 w 1000 '5 hooks' 0 0").await, "WRONGTYPE");
}

#[tokio::test]
async fn a_job_whose_hook_cannot_run_does_not_block_others() {
    let mut task = due("completed 0 0 1500").await;
    task.write("payload held=1, none=1; outcome held=completed 0 0 1, lost=completed 0 0 1; locks held=v:3").await;
    for (score, id) in ["held", "none", "lost"].into_iter().enumerate() {
        task.zadd("finalizing", score as f64, id).await;
    }
    assert!(task.ok("settle", "1 w 1000 '1 hooks' 0 0").await.ends_with(" '' [] [] 0 0 1]"));
    assert_keys!(task, "finalizing none=1, lost=2, a=5");
    assert!(task.ok("settle", "2 w 1000 '5 hooks' 0 0").await.contains(" a [42] "));
    assert_keys!(task, "no finalizing");
}

#[tokio::test]
async fn a_full_worker_receives_when_the_next_hook_is_due() {
    let mut task = finalizing("completed 0 0 1500").await;
    let mut args = said("hook_retry", "1", "60000 odd -");
    args[3] = "0 hooks";
    let reply = task.ok("settle", &args).await;
    let due_in: f64 = reply.rsplit(' ').nth(1).unwrap().parse().unwrap();
    assert!((50_000.0..=60_000.0).contains(&due_in), "{reply}");
}

#[tokio::test]
async fn one_call_ends_at_most_512_kib_of_orphans() {
    let mut task = hooked(&[]).await;
    let large = "x".repeat(300 * 1024);
    for id in ["a", "b", "c"] {
        task.write(&format!("payload {id}=1; outcome {id}=completed 0 0 1; result {id}={large}")).await;
        task.write(&format!("finalizing {id}=5")).await;
    }
    task.write("meta hook=0").await;
    for (call, left) in [("1", 2), ("2", 1), ("3", 0)] {
        task.ok("settle", &[call, "w", "1000", "0", "0", "0"]).await;
        assert_eq!(task.held("finalizing").await.matches(": 5").count(), left);
        assert_eq!(task.held("wake").await.is_empty(), left == 0, "the next call continues at once");
        task.write("no wake").await;
    }
}

#[tokio::test]
async fn a_job_that_moved_to_its_hook_during_a_look_has_no_fault() {
    let mut task = hooked(&[]).await;
    task.write("waits a").await;
    let began = (task.now_ms().await - 1.0).to_string();
    task.ok("cancel", "why channel - a -").await;
    assert_eq!(task.ok("look", &format!("{began} a 1")).await, "[looked '']");
}

#[tokio::test]
async fn an_unknown_outcome_ends_as_failed() {
    for outcome in ["exploded 0 0 1500", "", "completed", "failed x y z"] {
        let mut task = finalizing(outcome).await;
        task.write("snapshot; meta maxCount=0").await;
        let reply = task.ok("sweep", "v 1000 5 1000 0 200 auto -").await;
        assert!(reply.contains("a 1 failed w 7"), "{outcome}: {reply}");
        assert!(task.held("failed").await.contains(r#""a""#), "{outcome}");
    }
}

#[tokio::test]
async fn a_workflow_gets_the_end_of_a_job_only_after_its_hook_has_run() {
    for keep in ["1", "0"] {
        let mut task = hooked(&[("~f/a/0/1", 7), ("own", 8)]).await;
        task.hset("meta", &[("nodes", "1"), ("keepCompleted", keep)]).await;
        task.ok("settle", "1 w 1000 '0 hooks' '2 15 15' 1 ~f/a/0/1 own 7 8 1 42").await;
        assert_keys!(task, "no outbox");
        let reply = task.ok("settle", "2 w 1000 '2 hooks' 0 0").await;
        assert!(reply.contains(" own ~f/a/0/1 [") || reply.contains(" ~f/a/0/1 own ["), "{reply}");
        let mut args: Vec<String> = ["3", "w", "1000", "0 hooks", "0", "0"].map(str::to_owned).to_vec();
        for id in ["~f/a/0/1", "own"] {
            let token = task.field("locks", id).await;
            let fence = token.strip_prefix("w:").unwrap().to_owned();
            args.extend([id.to_owned(), fence, "hooked".into(), "0".into(), String::new(), String::new()]);
        }
        task.ok("settle", &args).await;
        assert_keys!(task, "outbox ~f/a/0/1=NOW");
        let own = if keep == "1" { r#""own": NOW, "# } else { "" };
        let completed = task.held("completed").await;
        assert!(completed.contains("~f/a/0/1") && completed.contains(own), "{completed}");
        assert_eq!(completed.contains("own"), keep == "1");
        assert_eq!(task.ok("ended", "0 200").await, "[ended 0 ~f/a/0/1 c 42]");
    }
}
