//! `settle_plain` leaves what `settle` leaves, or leaves the call to it. The simulation compares them too.

use crate::scripts::call::{Args, Task, assert_all, timeless};
use crate::support::{plain_args, settle_args};

/// A task whose options are declared. `w` runs a and b and has claimed e and f ahead; it has made one call and asked for
/// 1000 ms. Two jobs wait.
const PLAIN: &str = "meta ask=1000, interval=1000, largest=1024, keepCompleted=1, events=7, out=3; claimed e=7, f=8; \
     replies w=1\n\n\n5\n2\na b; runs w: a=5, b=6, e=7, f=8; waits c d";

/// Reports a and claims one job.
const USUAL: &str = "2 w 1000 1 '1 42' 0 a 5";

/// The arguments of `settle_plain` for those of `settle`, in short.
fn plain(short: &str) -> Vec<String> {
    plain_args(&settle_args(&short.words())).unwrap_or_else(|| panic!("{short}"))
}

async fn plain_task() -> Task {
    Task::with(PLAIN).await
}

#[tokio::test]
async fn a_completed_job_is_recorded_and_another_begins() {
    let mut task = plain_task().await;
    assert_eq!(task.ok("settle_plain", &plain(USUAL)).await, "[settled 4000000000000001 c [{}] '']");
    assert_eq!(task.field("meta", "out").await, "4");
    task.write("no meta.lastCompletedAt, completed").await;
    assert_all!(
        task,
        "active b c e f; claimed e=7, f=8; events {completed=a, ran=42, started=c, total=9, worker=w}; \
         locks b=w:6, c=w:4000000000000001, e=w:7, f=w:8; meta ask=1000, events=9, fence=4000000000000001, interval=1000, \
         keepCompleted=1, largest=1024; payload a={}, b={}, c={}, d={}, e={}, f={}; \
         replies w=2\\n\\n\\n4000000000000001\\n1\\nc; wait d; wake marker=0, spare=1"
    );
}

#[tokio::test]
async fn it_leaves_what_settle_leaves() {
    let now = Task::new().await.now_ms().await;
    let later = format!("delayed late={}", now + 600_000.0);
    for rows in [
        "",
        "meta keepCompleted=0",
        "meta eventMode=off",
        "meta failedSinceCompleted=0, brokenOffSinceCompleted=0",
        "meta failedSinceCompleted=3",
        "meta brokenOffSinceCompleted=1",
        "candidates a; no active.a",
        "completed old=5; failed old-2=5; cancelled old-3=5",
        "result old=1; error a=E; attempt a=1, old=2; enqueuedAt c=5; completed old=5; checkpoint a=1, b=2",
        "meta keepCompleted=0; result old=1; error a=E; attempt a=1; enqueuedAt c=5; progress a=1, old=2",
        "stalledCount a=1, old=1; options a={}; dispatchedAt b=1; maxCount a=3; priority a=high, c=low; snoozes a=1",
        "meta keepCompleted=0; recovery a=silent; options old={}; expiresAt old=1; progress c=2",
        &later,
        "no wait",
        "no wake",
        "wake spare=1",
        "early a=5, z=1",
        "meta keepCompleted=0; early b=6; maxCount old=0",
        "meta events=99999",
        "meta nodes=1",
        "meta nodes=1, keepCompleted=0; checkpoint a=1",
        "dispatchedAt a=1, c=5, e=6",
    ] {
        for call in [
            "1 '1 42' 0 a 5",
            "5 '2 42 43' 2 a b 5 6 1 '\"x\"' 2 9",
            "0 '1 42' 1 a 5 1 9",
            "2 0 0",
            // Begins e, and claims two jobs of which one begins.
            "'2 1 1' '1 42' '0 1' a 5 e 7",
            // The same early for f and one of the two.
            "'2 2 1' '1 42' '1 2 1' a 5 1 9 e f 7 8",
            "'2 0 0' 0 0",
            "0 0 '0 2' e f 7 8",
        ] {
            let short = format!("2 w 1000 {call}");
            let (mut one, mut other) = (plain_task().await, plain_task().await);
            if !rows.is_empty() {
                one.write(rows).await;
                other.write(rows).await;
            }
            let said = one.ok("settle_plain", &plain(&short)).await;
            let expected = other.ok("settle", short.as_str()).await;
            let claimed = said.strip_prefix("[settled ").unwrap().split_once(']').unwrap().0;
            assert!(expected.contains(claimed), "{rows} {short}: {said} {expected}");
            assert_eq!(said.contains("] ''"), !rows.starts_with("delayed"), "{rows} {short}: {said}");
            // How many begin is the last word of `settle`.
            let begun = said.trim_end_matches(']').rsplit_once("] ").unwrap().1.split(' ').nth(1);
            assert!(begun.is_none_or(|begun| expected.ends_with(&format!(" {begun}]"))), "{rows} {short}: {said}");
            let left = [one.exact().await, other.exact().await].map(|keys| timeless(&format!("{keys:#?}")));
            assert_eq!(left[0], left[1].replace(&other.prefix, &one.prefix), "{rows} {short}");
        }
    }
}

#[tokio::test]
async fn an_ended_node_is_reported_to_its_workflow() {
    for keeps in ["1", "0"] {
        let rows = format!(
            "meta ask=1000, interval=1000, largest=1024, keepCompleted={keeps}, nodes=1; replies w=1\n\n\n5\n2\na b; \
             dispatchedAt ~f/a/0/1=5, ~f/a/1/1=6; runs w: ~f/a/0/1=5, own=6; waits ~f/a/1/1 d"
        );
        let call = "2 w 1000 2 '2 42 43' 2 ~f/a/0/1 own 5 6 1 '\"x\"' 2 9";
        let (mut one, mut other) = (Task::with(&rows).await, Task::with(&rows).await);
        // The dispatch time of a claimed node comes with it.
        let said = one.ok("settle_plain", &plain(call)).await;
        assert_eq!(said, "[settled 4000000000000001 ~f/a/1/1 d [{} {}] '' 2 [6 nil]]");
        other.ok("settle", call).await;
        let left = [one.exact().await, other.exact().await].map(|keys| timeless(&format!("{keys:#?}")));
        assert_eq!(left[0], left[1].replace(&other.prefix, &one.prefix), "{keeps}");
        assert!(left[0].contains("outbox") && left[0].contains("since"), "{}", left[0]);
    }
}

#[tokio::test]
async fn rows_that_need_another_rule_leave_the_call_to_settle() {
    let mut task = plain_task().await;
    let due = "delayed due=1";
    for rows in [
        "cancelling z=why",
        "wait:high z",
        "wait:low z",
        "stalledCount c=1",
        "options c={}",
        "snoozes c=1",
        "recovery c=silent",
        "expiresAt c=1",
        "outcome z=completed",
        "tombstones z=1",
        due,
        "attempt c=1",
        "completed c=1",
        "failed c=1",
        "cancelled c=1",
        "locks c=other:1",
        "no payload.c",
        "no locks.a",
        "locks a=other:5",
        "no replies",
        "replies w=closed",
        "replies w=2\n\n\n5\n2\na b",
        "replies w=12\n\n\n5\n2\na b",
        "no meta.declaredAt",
        "no meta.largest",
        "meta largest=600000",
        "meta hook=1",
        "meta paused=1",
        "meta ask=999",
        "no meta.ask",
    ] {
        let mut task = plain_task().await;
        task.write(rows).await;
        let before = task.exact().await;
        assert_eq!(task.ok("settle_plain", &plain(USUAL)).await, "[full]", "{rows}");
        assert_eq!(task.exact().await, before, "{rows}");
    }
    // A head of the list that is there twice.
    task.write("no wait; wait c c").await;
    let twice = plain("2 w 1000 2 '1 42' 0 a 5");
    assert_eq!(task.unchanged("settle_plain", &twice).await, "[full]");
    // A delayed job that is due matters only to a claim.
    task.write(due).await;
    let report = plain("2 w 1000 0 '1 42' 0 a 5");
    assert_eq!(task.ok("settle_plain", &report).await, "[settled 4000000000000001 '' [] 0]");
}

#[tokio::test]
async fn a_job_begins_early_only_if_one_crash_cannot_end_it() {
    for (rows, begins) in [
        ("meta maxCount=0", true),
        ("meta onCrash=fail", true),
        ("meta heartbeat=manual", true),
        ("maxCount c=0", false),
        ("maxCount e=0", true),
        ("attempt e=1", true),
    ] {
        let mut task = plain_task().await;
        task.write(rows).await;
        let early = if begins { "2 w 1000 0 0 '0 1 0' e 7" } else { "2 w 1000 '1 1 0' 0 0" };
        assert_eq!(task.unchanged("settle_plain", &plain(early)).await, "[full]", "{rows}");
    }
}

#[tokio::test]
async fn a_key_of_another_type_is_refused_before_the_first_write() {
    for (key, report) in [
        ("replies", true),
        ("meta", true),
        ("active", true),
        ("locks", true),
        ("wait", true),
        ("completed", true),
        ("payload", true),
        ("candidates", true),
        ("result", true),
        ("enqueuedAt", true),
        ("checkpoint", true),
        ("claimed", true),
        ("early", true),
        ("outbox", true),
        ("dispatchedAt", true),
        ("delayed", true),
        ("completed", false),
        ("payload", false),
    ] {
        let mut task = plain_task().await;
        let rows = "meta nodes=1; result o=1; enqueuedAt o=1; checkpoint o=1; candidates o; completed o=1; early o=1";
        task.write(rows).await;
        task.make_foreign(key).await;
        let call =
            if report { "2 w 1000 '2 1 0' '1 42' '1 2 1' a 5 1 9 e f 7 8" } else { "2 w 1000 0 '1 42' 1 a 5 1 9" };
        assert_eq!(task.refused("settle_plain", &plain(call)).await, "WRONGTYPE", "{key}");
    }
}
