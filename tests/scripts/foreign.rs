//! A key of another type under each name in turn: the call is refused with WRONGTYPE before its first write, or it does
//! all of its work without that key.

use crate::call::{Task, code_of, timeless, without};

/// Keys that a script writes by pcall, last: what goes wrong there must not undo the transition.
const ANNOUNCEMENTS: [&str; 3] = ["events", "stalls", "wake"];

/// A task with a job in every place, so that each script has something to do with each key.
async fn busy() -> Task {
    let mut task = Task::new().await;
    task.hset("meta", &[("epoch", "5"), ("interval", "1000"), ("ask", "1000")]).await;
    task.running("w", &[("lost", 5), ("stalled", 6), ("to-cancel", 7), ("to-fail", 8)]).await;
    task.hset("cancelling", &[("to-cancel", "why")]).await;
    task.running("w", &[("requeued", 9)]).await;
    task.hset("maxCount", &[("to-fail", "0")]).await;
    task.snapshot().await;
    let jobs = [("run-1", 1), ("run-2", 2), ("run-3", 3), ("run-4", 4)];
    task.running("w", &jobs).await;
    task.running("w", &[("ahead-1", 10), ("ahead-2", 11)]).await;
    task.hset("claimed", &[("requeued", "9"), ("ahead-1", "10"), ("ahead-2", "11")]).await;
    task.waiting(&["w-1", "w-2"]).await;
    task.hset("payload", &[("h-1", "{}"), ("l-1", "{}"), ("d-1", "{}")]).await;
    task.hset("priority", &[("h-1", "high"), ("l-1", "low"), ("run-4", "low")]).await;
    task.rpush("wait:high", &["h-1"]).await;
    task.rpush("wait:low", &["l-1"]).await;
    task.zadd("delayed", 9e15, "d-1").await;
    for place in ["completed", "failed", "cancelled"] {
        task.zadd(place, 1.0, &format!("old-{place}")).await;
    }
    task.hset("attempt", &[("w-1", "1")]).await;
    task.hset("stalledCount", &[("w-1", "1")]).await;
    for column in ["options", "dispatchedAt", "result", "error"] {
        task.hset(column, &[("w-1", "1"), ("old-completed", "1")]).await;
    }
    // An entry whose job was removed while it waited.
    task.rpush("wait", &["gone"]).await;
    task.hset("ghosts", &[("gone", "1")]).await;
    task.hset("meta", &[("ghosts", "1")]).await;
    task.hset("waitingSince", &[("w-1", "1")]).await;
    task.hset("calls", &[("other", "1\n\n\n1\n0\n")]).await;
    task.hset("meta", &[("maxAgeCompleted", "60000")]).await;
    task.hset("worker", &[("host", "h")]).await;
    task.zadd("workers", 1.0, "w").await;
    task
}

async fn each_key_is_refused_or_not_needed(name: &str, args: &[&str]) {
    each_key_beside(&[("epoch", "5")], name, args).await;
}

/// The same with these fields in `meta`.
async fn each_key_beside(fields: &[(&str, &str)], name: &str, args: &[&str]) {
    let mut healthy = busy().await;
    healthy.hset("meta", fields).await;
    let reply = timeless(&healthy.ok(name, args).await);
    let left = healthy.keys().await;
    for key in healthy.script(name).keys.clone() {
        let mut task = busy().await;
        task.hset("meta", fields).await;
        task.make_foreign(key).await;
        let before = task.exact().await;
        match task.call(name, args).await.map(|answer| timeless(&answer)) {
            Err(error) => {
                assert_eq!(code_of(&error), "WRONGTYPE", "{name} with a foreign {key}: {error}");
                assert_eq!(task.exact().await, before, "{name} wrote something although {key} refused it");
                assert!(!ANNOUNCEMENTS.contains(&key), "{name} was refused by {key}, which only announces");
            }
            Ok(answer) => {
                assert_eq!(answer, reply, "{name} did something else because of a foreign {key}");
                let rest = without(task.keys().await, &[key]);
                assert_eq!(rest, without(left.clone(), &[key]), "{name} did less because of a foreign {key}");
                let foreign = before.iter().find(|(at, _)| *at == task.key(key)).unwrap();
                assert!(task.exact().await.contains(foreign), "{name} changed a foreign {key}");
            }
        }
    }
}

#[tokio::test]
async fn dispatch_writes_nothing_beside_a_foreign_key() {
    let mut args = vec!["1", "1", "4", "a", "{}", "b", "{}", "c", "{}", "d", "{}"];
    for (column, index, value) in [
        ("options", "1", "{}"),
        ("maxCount", "1", "3"),
        ("priority", "1", "high"),
        ("priority", "2", "low"),
        ("dispatchedAt", "3", "7"),
        ("delay", "4", "60000"),
    ] {
        args.extend([column, index, value]);
    }
    each_key_is_refused_or_not_needed("dispatch", &args).await;
}

#[tokio::test]
async fn a_note_writes_nothing_beside_a_foreign_key() {
    each_key_is_refused_or_not_needed("note", &["w", "run-1", "1", "1", "{}", "p", "p"]).await;
}

#[tokio::test]
async fn settle_writes_nothing_beside_a_foreign_key() {
    let mut args = vec!["1", "w", "1000", "4", "1", "1", "run-1", "1", "1", "42"];
    args.extend(["run-2", "2", "failed", "1", "panic", "E", "run-3", "3", "retry", "1", "9000000", "E"]);
    args.extend(["run-4", "4", "requeue", "0", "", "", "lost", "1", "requeue", "0", "", ""]);
    each_key_is_refused_or_not_needed("settle", &args).await;
}

#[tokio::test]
async fn settle_claims_ahead_and_begins_nothing_beside_a_foreign_key() {
    let begins = ["1", "w", "1000", "4 2 1", "0", "0 2", "ahead-1", "ahead-2", "10", "11"];
    let unstart = ["run-1", "1", "unstart", "0", "", ""];
    for args in [
        [&begins[..], &unstart].concat(),
        begins.to_vec(),
        vec!["1", "w", "1000", "4 2 1", "0", "0"],
        vec!["1", "w", "1000", "0", "0", "0 1", "ahead-1", "10"],
        [&["1", "w", "1000", "0", "0", "0"][..], &unstart].concat(),
        vec!["1", "w", "1000", "0", "0", "0 1", "to-cancel", "7"],
    ] {
        // So that the time to the next job that is due is the same in each answer.
        let args = [&args[..], &["run-3", "3", "retry", "1", "9000000", "E"]].concat();
        each_key_is_refused_or_not_needed("settle", &args).await;
        each_key_beside(&[("paused", "1")], "settle", &args).await;
    }
}

#[tokio::test]
async fn extend_locks_writes_nothing_beside_a_foreign_key() {
    let args = ["w", "9000", "2", "2", "stalled", "run-1", "to-cancel", "run-2", "6", "1", "7", "2"];
    each_key_is_refused_or_not_needed("extend_locks", &args).await;
}

#[tokio::test]
async fn sweep_writes_nothing_beside_a_foreign_key() {
    each_key_is_refused_or_not_needed("sweep", &["v", "1000", "5", "1000", "0", "200", "auto", ""]).await;
}

#[tokio::test]
async fn reconcile_writes_nothing_beside_a_foreign_key() {
    each_key_is_refused_or_not_needed("reconcile", &["v", "worker_restarted", "", "0", "500", "w"]).await;
}

#[tokio::test]
async fn cancel_writes_nothing_beside_a_foreign_key() {
    for id in ["w-1", "h-1", "l-1", "d-1", "run-1"] {
        each_key_is_refused_or_not_needed("cancel", &["why", "channel", "anna", id, ""]).await;
    }
    let jobs = ["w-1", "", "h-1", "", "l-1", "", "d-1", "", "run-1", "", "w-2", "", "nobody", ""];
    each_key_is_refused_or_not_needed("cancel", &[&["why", "channel", "anna"], &jobs[..]].concat()).await;
}

#[tokio::test]
async fn retry_remove_and_run_now_write_nothing_beside_a_foreign_key() {
    let jobs = ["w-2", "", "h-1", "", "d-1", "", "run-1", "", "old-failed", "", "old-cancelled", "", "nobody", ""];
    for (name, alone) in [("retry", "old-failed"), ("remove", "w-2"), ("run_now", "d-1")] {
        each_key_is_refused_or_not_needed(name, &[&["anna"], &jobs[..]].concat()).await;
        each_key_is_refused_or_not_needed(name, &["anna", alone, ""]).await;
    }
}

#[tokio::test]
async fn pause_and_resume_write_nothing_beside_a_foreign_key() {
    each_key_is_refused_or_not_needed("pause", &["anna", "why"]).await;
    each_key_is_refused_or_not_needed("resume", &["anna"]).await;
    each_key_is_refused_or_not_needed("audited", &["nowhere 2"]).await;
    let paused = [("paused", "9000000000000"), ("pausedBy", "bob"), ("pauseReason", "why")];
    each_key_beside(&paused, "pause", &["anna", "why"]).await;
    each_key_beside(&paused, "resume", &["anna"]).await;
}

#[tokio::test]
async fn a_paused_task_records_nothing_beside_a_foreign_key() {
    let args = ["1", "w", "1000", "4", "1", "1", "run-1", "1", "1", "42", "run-4", "4", "requeue", "0", "", ""];
    each_key_beside(&[("paused", "1")], "settle", &args).await;
}

#[tokio::test]
async fn mend_and_forget_write_nothing_beside_a_foreign_key() {
    let args = [
        "anna",
        "9999999999999",
        "old-completed",
        "0",
        "no_payload",
        "run-1",
        "0",
        "both_sets",
        "old-failed",
        "0",
        "no_payload",
    ];
    each_key_is_refused_or_not_needed("mend", &args).await;
    each_key_is_refused_or_not_needed("forget", &[]).await;
}

#[tokio::test]
async fn overview_jobs_and_look_change_nothing_beside_a_foreign_key() {
    each_key_is_refused_or_not_needed("overview", &[]).await;
    for state in ["waiting", "claimed", "running", "delayed"] {
        each_key_is_refused_or_not_needed("jobs", &[state, "1", "", "100", "-inf", "+inf", "", ""]).await;
    }
    each_key_is_refused_or_not_needed("look", &["9999999999999", "w-1", "1", "gone", "1", "run-1", "0", "nobody", "0"])
        .await;
}

#[tokio::test]
async fn trim_writes_nothing_beside_a_foreign_key() {
    each_key_is_refused_or_not_needed("trim", &["w", "Completed", "60000", "200"]).await;
}

#[tokio::test]
async fn declare_writes_nothing_beside_a_foreign_key() {
    for stamp in ["", "100"] {
        each_key_is_refused_or_not_needed("declare", &["1", stamp, "w", "maxCount", "2"]).await;
    }
}

#[tokio::test]
async fn close_writes_nothing_beside_a_foreign_key() {
    each_key_is_refused_or_not_needed("close", &["w", "w/2", "w/3"]).await;
}

#[tokio::test]
async fn announce_and_enlist_write_nothing_beside_a_foreign_key() {
    each_key_is_refused_or_not_needed("announce", &["host", "h"]).await;
    each_key_is_refused_or_not_needed("enlist", &["w"]).await;
}

#[tokio::test]
async fn shrink_writes_nothing_beside_a_foreign_key() {
    each_key_is_refused_or_not_needed("shrink", &[]).await;
}

#[tokio::test]
async fn states_inspect_and_counts_change_nothing_beside_a_foreign_key() {
    let ids =
        ["w-1", "h-1", "d-1", "run-1", "ahead-1", "stalled", "old-completed", "old-failed", "old-cancelled", "nobody"];
    each_key_is_refused_or_not_needed("states", &ids).await;
    for id in ids {
        each_key_is_refused_or_not_needed("inspect", &[id]).await;
    }
    each_key_is_refused_or_not_needed("counts", &[]).await;
}

#[tokio::test]
async fn dispatch_by_the_tasks_priority_writes_nothing_beside_a_foreign_column() {
    let mut task = Task::new().await;
    task.hset("meta", &[("priority", "high")]).await;
    task.make_foreign("priority").await;
    let before = task.exact().await;
    assert_eq!(task.refused("dispatch", &["1", "1", "1", "a", "1"]).await, "WRONGTYPE");
    assert_eq!(task.exact().await, before);
}

#[tokio::test]
async fn settle_promotes_nothing_beside_foreign_locks() {
    let mut task = Task::new().await;
    task.hset("payload", &[("a", "1")]).await;
    task.zadd("delayed", 1.0, "a").await;
    task.make_foreign("locks").await;
    let before = task.exact().await;
    assert_eq!(task.refused("settle", &["1", "w", "1000", "1", "0", "0"]).await, "WRONGTYPE");
    assert_eq!(task.exact().await, before);
}
