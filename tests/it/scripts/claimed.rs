//! Jobs that are claimed ahead: held by a worker, and not begun.

use crate::scripts::call::{Task, assert_keys, assert_rest, assert_text};

const ONE: &str = "4000000000000001";
const TWO: &str = "4000000000000002";

/// A task whose jobs the worker `w` holds and has not begun.
async fn ahead(jobs: &[(&str, u64)]) -> Task {
    let mut task = Task::with("meta epoch=5, interval=1000, ask=1000, maxCount=1").await;
    task.running("w", jobs).await;
    for (id, fence) in jobs {
        task.hset("claimed", &[(id, &fence.to_string())]).await;
    }
    task
}

/// The first call of `w`, which begins these jobs.
async fn begin(task: &mut Task, ids: &[&str], fences: &[&str]) -> String {
    let count = format!("0 {}", ids.len());
    task.ok("settle", &[&["1", "w", "1000", "0", "0", &count], ids, fences].concat()).await
}

/// A report of `w` about the job in its first call.
fn said<'a>(id: &'a str, fence: &'a str, kind: &'a str) -> [&'a str; 12] {
    ["1", "w", "1000", "0", "0", "0", id, fence, kind, "0", "", ""]
}

/// A sweep with the decision of this person, or by the table.
async fn sweep(task: &mut Task, verdict: &str) -> String {
    task.write("meta epoch=5").await;
    let by = if verdict == "auto" { "" } else { "anna" };
    task.ok("sweep", &["v", "1000", "5", "1000", "0", "200", verdict, by]).await
}

/// The reply to a call that claims nothing, with the fences that are taken back.
fn taken(fences: &str) -> String {
    format!("[settled '' {fences} {ONE} '' [] [] '' 0]")
}

#[tokio::test]
async fn only_as_many_claimed_jobs_begin_as_there_are_slots() {
    let mut task = Task::with("waits a b c d").await;
    let args = "1 w 1000 '3 1 1' 0 0";
    let reply = format!("[settled '' '' {ONE} a b c [{{}} {{}} {{}}] [] '' 1]");
    assert_eq!(task.ok("settle", &args).await, reply);
    assert_rest!(
        task,
        "meta, payload",
        "active a b c; claimed b=4000000000000002, c=4000000000000003; \
         events {claimed=b c, started=a, total=3, worker=w}; \
         locks a=w:4000000000000001, b=w:4000000000000002, c=w:4000000000000003; \
         replies w=1\\n\\n\\n4000000000000001\\n1\\na b c; wait d; wake marker=0, spare=1"
    );
    assert_eq!(task.unchanged("settle", &args).await, reply);
}

#[tokio::test]
async fn no_start_is_reported_if_no_job_begins() {
    let mut task = Task::with("waits a b").await;
    assert!(task.ok("settle", "1 w 1000 '5 0 0' 0 0").await.ends_with(" '' 0]"));
    assert_keys!(task, "events {claimed=a b, total=2, worker=w}");
}

#[tokio::test]
async fn a_job_that_begins_has_the_event_of_a_claimed_and_started_job() {
    let mut task = Task::with("waits a b; attempt b=2; dispatchedAt a=77").await;
    task.ok("settle", "1 w 1000 '2 0 0' 0 0").await;
    let held = task.rest("replies, claimed, events, meta, wait, wake").await;
    let args = ["2", "w", "1000", "0", "0", "0 2", "a", "b", ONE, TWO];
    let reply = task.ok("settle", &args).await;
    assert_eq!(reply, "[settled '' '' 4000000000000003 '' [] [] '' 0]");
    assert_rest!(task, "replies, events, meta, wait, wake", held);
    let events = task.held("events").await;
    let told = r#"{"restarted": "b 2 0", "since": "a 77 0", "started": "a", "total": "4", "worker": "w"}]"#;
    assert!(events.ends_with(told), "{events}");
    assert_eq!(task.unchanged("settle", &args).await, reply);
}

#[tokio::test]
async fn jobs_that_begin_and_jobs_that_are_claimed_share_one_event() {
    let mut task = ahead(&[("a", 7), ("b", 8)]).await;
    task.write("waits c d; attempt b=2, c=1").await;
    let reply = task.ok("settle", "1 w 1000 '2 1 1' 0 '0 2' a b 7 8").await;
    assert!(reply.ends_with(" c d [{} {}] [[1 1 0 '' '' '' '' '']] '' 1]"), "{reply}");
    let told = r#"{"claimed": "d", "restarted": "b 2 0 c 1 0", "started": "a", "total": "4", "worker": "w"}"#;
    assert_text!(task.held("events").await, contains(told));
}

#[tokio::test]
async fn a_job_that_allows_no_stall_begins_only_with_a_slot() {
    for option in [("maxCount", "0"), ("onCrash", "fail"), ("onCrash", "retry"), ("heartbeat", "manual")] {
        let mut task = ahead(&[("a", 7), ("b", 8)]).await;
        task.hset("meta", &[option]).await;
        task.write("waits c d").await;
        let args = "1 w 1000 '2 2 1' 0 '0 2 1' a b 7 8";
        let reply = format!("[settled '' 8 {ONE} c d [{{}} {{}}] [] '' 1");
        assert_eq!(task.ok("settle", &args).await, format!("{reply} 2]"), "{option:?}");
        assert_keys!(task, format!("wait b; claimed d={TWO}"), "{option:?}");
        assert_eq!(task.unchanged("settle", &args).await, format!("{reply}]"), "the record has what was taken back");
    }
}

#[tokio::test]
async fn a_begin_of_a_job_that_is_not_held_changes_nothing() {
    for worker in ["w", "x"] {
        let mut task = ahead(&[("a", 7)]).await;
        task.write("runs w: b=8").await;
        let before = task.rest("replies").await;
        let (a, b) = if worker == "w" { ("6", "9") } else { ("7", "8") };
        let args = ["1", worker, "1000", "0", "0", "0 1", "a", a, "b", b, "unstart", "0", "", ""];
        assert_eq!(task.ok("settle", &args).await, format!("[settled {a} {b} '' {ONE} '' [] [] '' 0]"));
        assert_rest!(task, "replies", before);
    }
}

#[tokio::test]
async fn a_pending_cancel_takes_precedence_over_begin_and_unstart() {
    for begins in [true, false] {
        let mut task = ahead(&[("a", 7)]).await;
        task.write("cancelling a=why").await;
        let reply = if begins {
            begin(&mut task, &["a"], &["7"]).await
        } else {
            task.ok("settle", &said("a", "7", "unstart")).await
        };
        assert_eq!(reply, taken("7"));
        assert_rest!(task, "replies, error, meta, payload", "cancelled a=NOW; events {cancelled=a, total=1, worker=w}");
    }
}

#[tokio::test]
async fn jobs_of_a_paused_task_stay_claimed_and_do_not_begin() {
    let mut task = ahead(&[("a", 7), ("b", 8)]).await;
    task.write("waits z; expiresAt a=9000000000000; expires a=9e12; meta paused=1").await;
    let before = task.rest("replies").await;
    let args = "1 w 1000 '2 1 1' 0 '0 2' a b 7 8";
    let reply = format!("[settled '' '' {ONE} '' [] [] '' -1]");
    for _ in 0..2 {
        assert_eq!(task.ok("settle", &args).await, reply, "a repeated call is answered alike");
        assert_rest!(task, "replies", before);
    }
    // The task is resumed.
    task.ok("resume", "anna").await;
    assert_eq!(task.ok("settle", "2 w 1000 0 0 '0 2' a b 7 8").await, taken("''"));
    assert_keys!(task, "no claimed");
    assert_text!(task.held("events").await, ends_with(r#"{"started": "a b", "total": "2", "worker": "w"}]"#));
}

#[tokio::test]
async fn a_claimed_job_that_has_expired_fails_and_does_not_run() {
    for (keep, paused) in [("1", false), ("0", false), ("1", true)] {
        let mut task = ahead(&[("a", 7), ("odd", 8), ("b", 9)]).await;
        task.write(&format!("meta keepFailed={keep}; expires a=5, odd=5, b=9e12")).await;
        task.write("expiresAt a=5, odd=soon, b=9000000000000").await;
        if paused {
            task.write("meta paused=1").await;
        }
        let reply = taken("7 8");
        let reply = if paused { reply.replace(" 0]", " -1]") } else { reply };
        assert_eq!(begin(&mut task, &["a", "odd"], &["7", "8"]).await, reply);
        assert_keys!(task, if keep == "1" { "failed a=NOW, odd=NOW" } else { "no failed" });
        assert_eq!(task.held("payload").await.contains(r#""a""#), keep == "1");
        assert_keys!(task, "claimed b=9; locks b=w:9; active b; no wait");
        assert_keys!(task, "expiresAt b=9000000000000; expires b=9000000000000");
        let events = task.held("events").await;
        assert!(events.contains(r#"{"failed": "a expired no%20worker"#) && !events.contains("started"), "{events}");
        assert_eq!(task.totals().await, ["", "2"]);
    }
}

#[tokio::test]
async fn a_job_that_was_claimed_ahead_can_expire_until_it_begins() {
    let mut task = Task::with("waits a b").await;
    for id in ["a", "b"] {
        task.write(&format!("expiresAt {id}=9000000000000; expires {id}=9e12")).await;
    }
    task.ok("settle", "1 w 1000 '2 1 1' 0 0").await;
    assert_keys!(task, "expiresAt b=9000000000000; expires b=9000000000000");
    task.ok("settle", &["2", "w", "1000", "0", "0", "0 1", "b", TWO]).await;
    assert_keys!(task, "no expiresAt, expires");
}

#[tokio::test]
async fn a_job_that_allows_no_stall_waits_for_a_slot() {
    for (want, begin, marked) in [
        ("4 4 1", "2", Some("c d")),
        ("4 4 2", "2", Some("c d")),
        ("4 2 1", "2", Some("c d")),
        ("4 4 3", "4", None),
        ("3 3 0", "2", Some("c")),
        ("4", "4", None),
    ] {
        let mut task = Task::with("waits a b c d; maxCount a=5, c=0").await;
        let reply = task.ok("settle", &["1", "w", "1000", want, "0", "0"]).await;
        assert!(reply.ends_with(&format!(" '' {begin}]")), "{want}: {reply}");
        let told = marked.map_or(String::new(), |ids| format!(r#""claimed": "{ids}", "#));
        let events = task.held("events").await;
        assert!(events.starts_with(&format!(r#"stream [NOW {{{told}"started": "a b"#)), "{want}: {events}");
        let held = task.held("claimed").await;
        assert_eq!(held.matches(':').count(), marked.map_or(0, |ids| ids.split(' ').count()), "{want}: {held}");
    }
}

#[tokio::test]
async fn a_job_that_did_not_begin_is_claimed_again() {
    let mut task = Task::with("runs w: a=7").await;
    let held = task.rest("meta").await;
    assert_eq!(task.ok("settle", &said("a", "7", "unstart")).await, taken("''"));
    assert_keys!(task, "claimed a=7; events {claimed=a, total=1, worker=w}");
    assert_rest!(task, "replies, claimed, events, meta", held);
}

#[tokio::test]
async fn a_requeued_job_is_no_longer_claimed() {
    let mut task = ahead(&[("a", 7), ("b", 8)]).await;
    assert_eq!(task.ok("settle", &said("a", "7", "requeue")).await, taken("''"));
    assert_keys!(task, "wait a; claimed b=8; locks b=w:8");
}

#[tokio::test]
async fn a_stalled_job_that_did_not_begin_is_requeued_uncounted() {
    let mut task = ahead(&[("a", 7)]).await;
    task.write("snapshot; waits z; attempt a=2").await;
    assert_eq!(sweep(&mut task, "auto").await, "[swept 6 1000 0 1 0 [a 0 requeued w 7]]");
    let entry = "{reason=silent, stalled=a 0 requeued w, total=1, watched=5 1000 1000 - 0, worker=v}";
    let rows = format!(
        "attempt a=2; enqueuedAt a=NOW; events {entry}; recovery a=requeued w NOW 1; stalls {entry}; wait a z; \
         wake marker=0, spare=1"
    );
    assert_rest!(task, "meta, payload", rows);
    assert_eq!(task.totals().await, ["", ""]);
}

#[tokio::test]
async fn a_recovery_reports_the_number_of_requeues_in_a_row() {
    let mut task = ahead(&[]).await;
    task.write("waits a").await;
    let rows = [("0 0", "requeued w NOW 1"), ("0 0", "requeued w NOW 2"), ("0 0", "requeued w NOW 3")];
    let rows = rows.into_iter().chain([("1 1", "silent w NOW"), ("0 0", "requeued w NOW 1")]);
    for (call, (begin, recovery)) in (1..).zip(rows) {
        assert_text!(task.ok("settle", &format!("{call} w 1000 '1 {begin}' 0 0")).await, contains(" a ["));
        task.write("snapshot").await;
        sweep(&mut task, "auto").await;
        assert_keys!(task, format!("recovery a={recovery}"), "call {call}");
    }
    assert_keys!(task, "stalledCount a=1");
}

#[tokio::test]
async fn a_claimed_job_is_requeued_unless_a_person_fails_it() {
    for choice in ["recover", "fail", "retry"] {
        for (verdict, cancelled, row) in [
            ("auto", false, "a 0 requeued w 7"),
            ("recover", false, "a 0 requeued w 7"),
            ("fail", false, "a 1 failed w 7"),
            ("auto", true, "a 1 cancelled w 7"),
            ("recover", true, "a 1 cancelled w 7"),
        ] {
            let mut task = ahead(&[("a", 7)]).await;
            task.write(&format!("meta onCrash={choice}, maxCount=0; maxCount a=0")).await;
            if cancelled {
                task.write("cancelling a=why").await;
            }
            task.write("snapshot").await;
            assert_eq!(sweep(&mut task, verdict).await, format!("[swept 6 1000 0 1 0 [{row}]]"), "{choice}, {verdict}");
            assert_keys!(task, "no locks, candidates, claimed, cancelling, attempt");
        }
    }
}

#[tokio::test]
async fn a_mark_with_the_fence_of_an_earlier_claim_is_ignored() {
    let mut task = ahead(&[("a", 7)]).await;
    task.write("claimed a=6; snapshot").await;
    assert!(task.ok("counts", "").await.starts_with("[counted 0 0 "));
    assert_eq!(sweep(&mut task, "auto").await, "[swept 6 1000 0 1 0 [a 1 recovered w 7]]");
    assert_keys!(task, "recovery a=silent w NOW; no claimed");
}

#[tokio::test]
async fn jobs_that_a_dead_worker_had_claimed_are_requeued_at_once() {
    let mut task = ahead(&[("a", 7), ("c", 9)]).await;
    task.write("runs w: b=8; priority a=low").await;
    let reply = task.ok("reconcile", "v worker_restarted - 0 500 w").await;
    assert!(reply.contains("a 0 requeued w 7") && reply.contains("b 1 recovered w 8"), "{reply}");
    assert_keys!(task, "recovery a=requeued w NOW 1, b=worker_restarted w NOW, c=requeued w NOW 1; stalledCount b=1");
    assert_keys!(task, "wait b c", "begun jobs are older");
    assert_keys!(task, "wait:low a; no claimed, locks");
}

/// If an event is counted and never written, a reader believes that it missed one.
#[tokio::test]
async fn totals_count_only_reported_events() {
    let mut wrong = Vec::new();
    // A lost begin, a lost unstart and an expired begin, next to a job that completes.
    for (what, args, events) in [
        ("lost begin", &["1", "w", "1000", "0", "1", "0 1", "done", "1", "a", "6"][..], "1"),
        ("lost unstart", &["1", "w", "1000", "0", "1", "0", "done", "1", "a", "6", "unstart", "0", "", ""], "1"),
        ("expired begin", &["1", "w", "1000", "0", "1", "0 1", "done", "1", "late", "8"], "2"),
    ] {
        let mut task = Task::with("runs w: done=1, a=7, late=8; claimed a=7, late=8; expiresAt late=5").await;
        task.ok("settle", args).await;
        let total = task.field("meta", "events").await;
        if total != events {
            wrong.push(format!("{what}: total {total}, told {events}: {}", task.held("events").await));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// A broken lock once counted the stall.
#[tokio::test]
async fn a_broken_token_does_not_count_as_a_claim() {
    let mut task = Task::with("meta epoch=5, interval=1000, ask=1000, maxCount=1; runs w: a=7; locks a=broken").await;
    let page = task.ok("jobs", "running 1 - 100 -inf +inf - -").await;
    let claimed = task.ok("jobs", "claimed 1 - 100 -inf +inf - -").await;
    task.write("snapshot").await;
    let reply = task.ok("sweep", "v 1000 5 1000 0 200 auto -").await;
    assert!(reply.contains("a 1 recovered -") && page.contains("broken"), "{reply}\n{page}\n{claimed}");
}

/// A crash must not count against a job that stalled before, and the time to begin must not pass while others run.
#[tokio::test]
async fn a_stalled_or_expiring_job_begins_only_with_a_slot() {
    let crashed = ("recovery", "silent w 5");
    for (column, value) in [("stalledCount", "1"), crashed, ("expiresAt", "9000000000000"), ("maxCount", "0")] {
        for (at, begin) in [("a", 3), ("b", 1), ("c", 2), ("d", 3)] {
            let mut task = Task::with("waits a b c d").await;
            task.hset(column, &[(at, value)]).await;
            let reply = task.ok("settle", "1 w 1000 '4 3 1' 0 0").await;
            assert!(reply.ends_with(&format!("'' {begin}]")), "{column} of {at}: {reply}");
            if column == "expiresAt" {
                let kept = at != "a";
                assert_eq!(!task.held("expiresAt").await.is_empty(), kept, "{at}");
            }
        }
    }
}

/// A task whose worker `w` holds the job `a`, which began early, under the fence 7.
async fn begun_early() -> Task {
    let mut task = ahead(&[("a", 7)]).await;
    task.ok("settle", "1 w 1000 0 0 '0 1 0' a 7").await;
    assert_keys!(task, "early a=7; no claimed; locks a=w:7");
    task
}

#[tokio::test]
async fn jobs_that_begin_without_a_slot_are_marked() {
    let mut task = ahead(&[("a", 7), ("b", 8)]).await;
    task.write("waits c d e").await;
    let args = "1 w 1000 '3 2 1' 0 '0 2 1' a b 7 8";
    let reply = task.ok("settle", &args).await;
    assert_keys!(task, format!("early b=8, d={TWO}; claimed e=4000000000000003"));
    assert_text!(task.unchanged("settle", &args).await, starts_with(&reply[..20]));
    assert!(task.ok("counts", "").await.starts_with("[counted 0 0 1 4 "), "they count as running");
    assert_eq!(task.ok("states", "a b d e").await.matches("running").count(), 3);
}

#[tokio::test]
async fn the_mark_of_an_early_begin_goes_with_the_job() {
    for (kind, detail) in [
        ("completed", ""),
        ("failed", "e why 5"),
        ("retry", "60000 e why 5"),
        ("snooze", "60000"),
        ("undecodable", "60000"),
        ("requeue", ""),
        ("drop", ""),
        ("unstart", ""),
    ] {
        let mut task = begun_early().await;
        task.write("early other=9").await;
        let args = match kind {
            "completed" => ["2", "w", "1000", "0", "1 5", "0", "a", "7"].to_vec(),
            _ => ["2", "w", "1000", "0", "0", "0", "a", "7", kind, "1", detail, "{}"].to_vec(),
        };
        task.ok("settle", &args).await;
        assert_keys!(task, "early other=9", "{kind}");
    }
    let mut task = begun_early().await;
    task.write("cancelling a=why").await;
    task.ok("settle", &["2", "w", "1000", "0", "1 5", "0", "a", "7"]).await;
    assert_keys!(task, "no early; cancelled a=NOW");
}

/// Its handler may not have run. After the first crash it begins only with a slot, so the second one is certain.
#[tokio::test]
async fn a_job_that_began_early_survives_one_crash_uncounted() {
    let mut task = begun_early().await;
    task.write("snapshot; meta maxCount=1").await;
    assert_eq!(sweep(&mut task, "auto").await, "[swept 6 1000 0 1 0 [a 0 requeued w 7]]");
    assert_keys!(task, "recovery a=silent w NOW; wait a; no early, stalledCount, locks, candidates");
    // A crash before it begins changes nothing.
    task.ok("settle", "2 w 1000 '1 0 0' 0 0").await;
    task.write("snapshot").await;
    assert_text!(sweep(&mut task, "auto").await, contains("a 0 requeued w"));
    assert_keys!(task, "recovery a=silent w NOW; wait a; no claimed");
    assert!(task.ok("settle", "3 w 1000 '1 1 0' 0 0").await.ends_with(" '' 0]"), "it needs a slot");
    task.ok("settle", &format!("4 w 1000 0 0 '0 1 1' a {}", TWO)).await;
    assert_keys!(task, "no early, claimed");
    for (count, action) in [("1", "recovered"), ("2", "failed")] {
        task.write("snapshot").await;
        let reply = sweep(&mut task, "auto").await;
        assert!(reply.contains(&format!("a {count} {action} w")), "{reply}");
        task.ok("settle", &format!("{} w 1000 1 0 0", count.parse::<u32>().unwrap() + 4)).await;
    }
}

/// No worker lets such a job begin early, but a mark may be there.
#[tokio::test]
async fn an_early_mark_does_not_forgive_a_second_crash() {
    let mut task = begun_early().await;
    task.write("snapshot; recovery a=silent v 5").await;
    assert_eq!(sweep(&mut task, "auto").await, "[swept 6 1000 0 1 0 [a 1 recovered w 7]]");
    assert_keys!(task, "recovery a=silent w NOW; stalledCount a=1; no early");
}

#[tokio::test]
async fn an_early_begin_is_put_back_unless_a_person_fails_it() {
    for choice in ["recover", "fail", "retry"] {
        for (verdict, cancelled, row) in [
            ("auto", false, "a 0 requeued w 7"),
            ("recover", false, "a 0 requeued w 7"),
            ("fail", false, "a 1 failed w 7"),
            ("auto", true, "a 1 cancelled w 7"),
        ] {
            let mut task = begun_early().await;
            task.write(&format!("meta onCrash={choice}, maxCount=0; maxCount a=0; snapshot")).await;
            if cancelled {
                task.write("cancelling a=why").await;
            }
            assert_eq!(sweep(&mut task, verdict).await, format!("[swept 6 1000 0 1 0 [{row}]]"), "{choice}, {verdict}");
            assert_keys!(task, "no locks, candidates, early, cancelling, attempt");
        }
    }
}

#[tokio::test]
async fn a_dead_worker_leaves_its_early_begins_in_order() {
    let mut task = begun_early().await;
    task.write("runs w: b=8, c=9; early c=8").await;
    let reply = task.ok("reconcile", "v worker_restarted - 0 500 w").await;
    assert!(reply.contains("a 0 requeued w 7") && reply.contains("c 1 recovered w 9"), "{reply}");
    assert_keys!(task, "stalledCount b=1, c=1; wait a b c; no early");
}
