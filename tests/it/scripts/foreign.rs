//! A key of another type in place of each key in turn: the call either fails with WRONGTYPE before its first write, or
//! works without that key.

use crate::scripts::call::{Task, code_of, timeless, without};
use crate::scripts::flow;

/// Keys that a script writes last, by pcall: an error there must not undo the transition.
const ANNOUNCEMENTS: [&str; 3] = ["events", "stalls", "wake"];

/// A task with a job in every place, so that each script uses each key.
async fn busy() -> Task {
    let mut task = Task::new().await;
    task.hset("meta", &[("epoch", "5"), ("interval", "1000"), ("ask", "1000")]).await;
    task.running("w", &[("lost", 5), ("stalled", 6), ("to-cancel", 7), ("to-fail", 8)]).await;
    task.hset("cancelling", &[("to-cancel", "why")]).await;
    task.running("w", &[("requeued", 9), ("hook-held", 13)]).await;
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
    for column in ["options", "dispatchedAt", "result", "error", "snoozes", "recovery", "checkpoint", "progress"] {
        task.hset(column, &[("w-1", "1"), ("old-completed", "1")]).await;
    }
    // One that has expired, one that may expire, one whose hook is due, and one whose hook was running.
    task.hset("payload", &[("late", "{}"), ("in-time", "{}"), ("hook-due", "{}")]).await;
    task.rpush("wait:high", &["late", "in-time"]).await;
    for (id, until) in [("late", 5.0), ("in-time", 9e12)] {
        task.hset("expiresAt", &[(id, &until.to_string())]).await;
        task.zadd("expires", until, id).await;
    }
    task.hset("outcome", &[("hook-due", "completed 0 0 -"), ("hook-held", "failed 0 0 5")]).await;
    task.zadd("finalizing", 5.0, "hook-due").await;
    task.hset("parked", &[("run-1", "1 running 1")]).await;
    // An entry whose job was removed while it waited.
    task.rpush("wait", &["gone"]).await;
    task.hset("tombstones", &[("gone", "1")]).await;
    task.hset("meta", &[("tombstones", "1")]).await;
    task.hset("enqueuedAt", &[("w-1", "1")]).await;
    task.hset("replies", &[("other", "1\n\n\n1\n0\n")]).await;
    task.hset("meta", &[("maxAgeCompleted", "60000")]).await;
    task.hset("worker", &[("host", "h")]).await;
    task.zadd("workers", 1.0, "w").await;
    task.running("w", &[("~f/a/0/1", 12)]).await;
    // Ended jobs that are not reported to their workflows yet.
    for id in ["old-completed", "old-failed", "old-cancelled", "gone"] {
        task.zadd("outbox", 6.0, id).await;
    }
    task
}

/// Instances of workflows: running, stopping, paused, ended, and others.
async fn busy_workflows() -> Task {
    let mut task = Task::new().await;
    let nodes: [(&str, &str, &[usize]); 4] =
        [("p 0 0", "- -", &[1]), ("p 1 1", "- 0", &[]), ("p 0 0", "- -", &[]), ("p 1 1", "- -", &[])];
    let graph = flow::graph("cancel", "1", &nodes);
    for id in ["f-runs", "f-stops", "f-paused", "f-ended", "f-over", "f-ready", "f-failed"] {
        flow::put(&mut task, &graph, id).await;
    }
    task.hset("instances", &[("f-stops", "1 0 3 1 d 2"), ("f-ended", "1 1 0 0 d -")]).await;
    task.hset("nodes", &[("f-stops/2", "f")]).await;
    task.hset("value", &[("f-stops/2", "E")]).await;
    task.hset("stopping", &[("f-stops", "failed ")]).await;
    task.hset("output", &[("f-ended", "7")]).await;
    task.hset("cursor", &[("f-runs/2/1", "0 c")]).await;
    for id in ["f-paused", "f-ended"] {
        let () = redis::AsyncCommands::zrem(&mut task.conn, task.prefix.clone() + "running", id).await.unwrap();
    }
    task.zadd("paused", 5.0, "f-paused").await;
    task.zadd("completed", 5.0, "f-ended").await;
    // One that was paused before its last node ended, one with a ready node, and one that failed.
    for (id, place) in [("f-over", "paused"), ("f-ready", "running"), ("f-failed", "failed")] {
        flow::take_out(&mut task, "running", id).await;
        task.zadd(place, 5.0, id).await;
        task.hset("nodes", &[(&format!("{id}/0"), "f"), (&format!("{id}/1"), "p 0 0")]).await;
        task.hset("value", &[(&format!("{id}/0"), "E")]).await;
        task.hset("instances", &[(id, if id == "f-ready" { "1 0 2 0 d 0" } else { "1 0 0 0 d 0" })]).await;
    }
    task.hset("error", &[("f-failed", "E")]).await;
    task.zadd("outbox", 5.0, "o f-ready/1").await;
    for entry in ["s f-runs/0/1", "s f-paused/0/1", "s gone/0/1", "v f-runs/2/1", "x f-stops/1"] {
        task.zadd("outbox", 5.0, entry).await;
    }
    // Graphs as nodes: one whose child is to start, one whose child runs, one whose child stops.
    let child = flow::graph("finish", "0", &[("p 0 0", "- -", &[])]).named("e");
    for id in ["f-graph", "f-outer", "f-ends"] {
        flow::put(&mut task, &flow::graph("finish", "0", &[("p 0 0", "g -", &[])]).named("g"), id).await;
    }
    for id in ["f-outer/0.1", "f-ends/0.1", "f-ended/0.1"] {
        flow::put(&mut task, &child, id).await;
        task.zadd("children", 0.0, id).await;
    }
    task.hset("stopping", &[("f-ends/0.1", "cancelled why")]).await;
    task.hset("instances", &[("f-ended/0.1", "1 1 0 0 e - 0 c")]).await;
    flow::take_out(&mut task, "running", "f-ended/0.1").await;
    task.hset("shapes", &[("e#", "4")]).await;
    task.hset("grow", &[("f-ended/0.1/0", "{}"), ("f-given-up/0", "{}")]).await;
    // Starts in parts.
    task.hset("staging", &[("f-comes", "n 2 5 l 3"), ("f-given-up", "m 1 5 e 1")]).await;
    task.hset("nodes", &[("f-given-up/0", "p 0 0")]).await;
    task.hset("value", &[("f-given-up/0", "7")]).await;
    task.zadd("deadlines", 9e15, "f-ended").await;
    task.zadd("tasks", 5.0, "t").await;
    // The script `flow_turn` has another first key than the table.
    task.zadd("workers", 5.0, "f").await;
    task
}

/// What the script has to work on.
async fn busy_for(name: &str, fields: &[(&str, &str)]) -> Task {
    let mut task = if name.starts_with("flow_") { busy_workflows().await } else { busy().await };
    task.hset("meta", fields).await;
    if fields.contains(&("deadline", "passed")) {
        for id in ["f-runs", "f-over", "f-stops", "f-ended", "nobody"] {
            task.zadd("deadlines", 5.0, id).await;
        }
    }
    task
}

async fn each_key_is_refused_or_not_needed(name: &str, args: &[&str]) {
    each_key_with(&[("epoch", "5")], name, args).await;
}

/// The same with these fields in `meta`. Returns the keys that the call worked without.
async fn each_key_with(fields: &[(&str, &str)], name: &str, args: &[&str]) -> Vec<&'static str> {
    let mut without_them = Vec::new();
    let mut healthy = busy_for(name, fields).await;
    let reply = timeless(&healthy.ok(name, args).await);
    let left = healthy.keys().await;
    for key in healthy.script(name).keys.clone() {
        let mut task = busy_for(name, fields).await;
        task.make_foreign(key).await;
        let before = task.exact().await;
        match task.call(name, args).await.map(|answer| timeless(&answer)) {
            Err(error) => {
                assert_eq!(code_of(&error), "WRONGTYPE", "{name} with a foreign {key}: {error}");
                assert_eq!(task.exact().await, before, "{name} wrote something although {key} refused it");
                assert!(!ANNOUNCEMENTS.contains(&key), "{name} was refused by {key}, which only announces");
            }
            Ok(answer) => {
                without_them.push(key);
                assert_eq!(answer, reply, "{name} did something else because of a foreign {key}");
                let rest = without(task.keys().await, &[key]);
                assert_eq!(rest, without(left.clone(), &[key]), "{name} did less because of a foreign {key}");
                let foreign = before.iter().find(|(at, _)| *at == task.key(key)).unwrap();
                assert!(task.exact().await.contains(foreign), "{name} changed a foreign {key}");
            }
        }
    }
    without_them
}

#[tokio::test]
async fn each_key_of_another_type_refuses_a_call_with_every_job() {
    // The table has a job for each key of each script, so a key that a script does not check before it writes is
    // found.
    let fields = [("epoch", "5"), ("hook", "1"), ("nodes", "1"), ("grace", "5 5 5"), ("onCrash", "retry")];
    let settle = [
        ["1", "w", "1000", "5 3 2 hooks", "1", "1 1", "run-1", "1", "1", "42", "ahead-1", "10"].as_slice(),
        &["run-2", "2", "failed", "1", "panic", "E", "run-3", "3", "retry", "1", "9000000", "E"],
        &["run-4", "4", "requeue", "0", "", "", "hook-held", "13", "hooked", "0", "", ""],
    ];
    let acts = ["", "late", "", "d-1", "=delayed@1", "old-failed", "", "w-2", ""];
    for (name, args) in [
        ("settle", settle.concat()),
        ("sweep", vec!["v", "1000", "5", "1000", "0", "200", "auto", ""]),
        ("reconcile", vec!["v", "worker_restarted", "", "0", "500", "w"]),
        ("expire", vec!["w", "200"]),
        ("trim", vec!["w", "Completed", "60000", "200"]),
        ("note", vec!["w", "run-1", "1", "1", "{}", "p", "p"]),
        ("extend_locks", vec!["w", "9000", "2", "0", "stalled", "run-1", "6", "1"]),
        ("cancel", [&["why", "channel"][..], &acts].concat()),
        ("retry", acts.to_vec()),
        ("run_now", acts.to_vec()),
        ("remove", acts.to_vec()),
        ("mend", vec!["anna", "9999999999999", "late", "0", "unplaced", "run-1", "0", "both_sets"]),
    ] {
        let mut without_them = each_key_with(&fields, name, &args).await;
        without_them.retain(|key| !ANNOUNCEMENTS.contains(key));
        assert!(without_them.is_empty(), "{name} does not ask about {without_them:?}");
    }
}

#[tokio::test]
async fn dispatch_writes_nothing_if_a_key_has_another_type() {
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
async fn note_writes_nothing_if_a_key_has_another_type() {
    each_key_is_refused_or_not_needed("note", &["w", "run-1", "1", "1", "{}", "p", "p"]).await;
}

#[tokio::test]
async fn settle_writes_nothing_if_a_key_has_another_type() {
    let mut args = vec!["1", "w", "1000", "4", "1", "1", "run-1", "1", "1", "42"];
    args.extend(["run-2", "2", "failed", "1", "panic", "E", "run-3", "3", "retry", "1", "9000000", "E"]);
    args.extend(["run-4", "4", "requeue", "0", "", "", "lost", "1", "requeue", "0", "", ""]);
    each_key_is_refused_or_not_needed("settle", &args).await;
}

#[tokio::test]
async fn settle_claims_ahead_nothing_if_a_key_has_another_type() {
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
        // The time to the next due job is then the same in each reply.
        let args = [&args[..], &["run-3", "3", "retry", "1", "9000000", "E"]].concat();
        each_key_is_refused_or_not_needed("settle", &args).await;
        each_key_with(&[("paused", "1")], "settle", &args).await;
    }
}

#[tokio::test]
async fn extend_locks_writes_nothing_if_a_key_has_another_type() {
    let args = ["w", "9000", "2", "2", "stalled", "run-1", "to-cancel", "run-2", "6", "1", "7", "2"];
    each_key_is_refused_or_not_needed("extend_locks", &args).await;
}

#[tokio::test]
async fn sweep_writes_nothing_if_a_key_has_another_type() {
    each_key_is_refused_or_not_needed("sweep", &["v", "1000", "5", "1000", "0", "200", "auto", ""]).await;
}

#[tokio::test]
async fn reconcile_writes_nothing_if_a_key_has_another_type() {
    each_key_is_refused_or_not_needed("reconcile", &["v", "worker_restarted", "", "0", "500", "w"]).await;
}

#[tokio::test]
async fn cancel_writes_nothing_if_a_key_has_another_type() {
    for id in ["w-1", "h-1", "l-1", "d-1", "run-1"] {
        each_key_is_refused_or_not_needed("cancel", &["why", "channel", "anna", id, ""]).await;
    }
    let jobs = ["w-1", "", "h-1", "", "l-1", "", "d-1", "", "run-1", "", "w-2", "", "nobody", ""];
    each_key_is_refused_or_not_needed("cancel", &[&["why", "channel", "anna"], &jobs[..]].concat()).await;
}

#[tokio::test]
async fn retry_remove_and_run_now_write_nothing_on_a_wrong_type() {
    let jobs = ["w-2", "", "h-1", "", "d-1", "", "run-1", "", "old-failed", "", "old-cancelled", "", "nobody", ""];
    for (name, alone) in [("retry", "old-failed"), ("remove", "w-2"), ("run_now", "d-1")] {
        each_key_is_refused_or_not_needed(name, &[&["anna"], &jobs[..]].concat()).await;
        each_key_is_refused_or_not_needed(name, &["anna", alone, ""]).await;
    }
}

#[tokio::test]
async fn pause_and_resume_write_nothing_if_a_key_has_another_type() {
    each_key_is_refused_or_not_needed("pause", &["anna", "why"]).await;
    each_key_is_refused_or_not_needed("resume", &["anna"]).await;
    each_key_is_refused_or_not_needed("audited", &["nowhere 2"]).await;
    let paused = [("paused", "9000000000000"), ("pausedBy", "bob"), ("pauseReason", "why")];
    each_key_with(&paused, "pause", &["anna", "why"]).await;
    each_key_with(&paused, "resume", &["anna"]).await;
}

#[tokio::test]
async fn a_paused_task_records_nothing_if_a_key_has_another_type() {
    let args = ["1", "w", "1000", "4", "1", "1", "run-1", "1", "1", "42", "run-4", "4", "requeue", "0", "", ""];
    each_key_with(&[("paused", "1")], "settle", &args).await;
}

#[tokio::test]
async fn mend_and_forget_write_nothing_if_a_key_has_another_type() {
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
async fn overview_jobs_and_look_change_nothing_on_a_wrong_type() {
    each_key_is_refused_or_not_needed("overview", &[]).await;
    for state in ["waiting", "claimed", "running", "delayed"] {
        each_key_is_refused_or_not_needed("jobs", &[state, "1", "", "100", "-inf", "+inf", "", ""]).await;
    }
    each_key_is_refused_or_not_needed("look", &["9999999999999", "w-1", "1", "gone", "1", "run-1", "0", "nobody", "0"])
        .await;
}

#[tokio::test]
async fn trim_writes_nothing_if_a_key_has_another_type() {
    each_key_is_refused_or_not_needed("trim", &["w", "Completed", "60000", "200"]).await;
}

#[tokio::test]
async fn declare_writes_nothing_if_a_key_has_another_type() {
    for stamp in ["", "100"] {
        each_key_is_refused_or_not_needed("declare", &["1", stamp, "w", "maxCount", "2"]).await;
    }
}

#[tokio::test]
async fn close_writes_nothing_if_a_key_has_another_type() {
    each_key_is_refused_or_not_needed("close", &["w", "w/2", "w/3"]).await;
}

#[tokio::test]
async fn announce_and_enlist_write_nothing_on_a_wrong_type() {
    each_key_is_refused_or_not_needed("announce", &["host", "h"]).await;
    each_key_is_refused_or_not_needed("enlist", &["w"]).await;
}

#[tokio::test]
async fn shrink_writes_nothing_if_a_key_has_another_type() {
    each_key_is_refused_or_not_needed("shrink", &[]).await;
}

#[tokio::test]
async fn states_inspect_and_counts_change_nothing_on_a_wrong_type() {
    let ids =
        ["w-1", "h-1", "d-1", "run-1", "ahead-1", "stalled", "old-completed", "old-failed", "old-cancelled", "nobody"];
    each_key_is_refused_or_not_needed("states", &ids).await;
    for id in ids {
        each_key_is_refused_or_not_needed("inspect", &[id]).await;
    }
    each_key_is_refused_or_not_needed("counts", &[]).await;
}

#[tokio::test]
async fn settle_writes_no_outbox_entry_if_a_key_has_another_type() {
    for [id, fence] in [["run-1", "1"], ["~f/a/0/1", "12"]] {
        let args = ["1", "w", "1000", "0", "1", "0", id, fence, "run-2", "2", "drop", "0", "", ""];
        // The time to the next due job is then the same in each reply.
        let args = [&args[..], &["run-3", "3", "retry", "1", "9000000", "E"]].concat();
        each_key_with(&[("nodes", "1"), ("keepCompleted", "0")], "settle", &args).await;
    }
}

#[tokio::test]
async fn flow_start_writes_nothing_if_a_key_has_another_type() {
    let (new, known) = (flow::line().start("new", true), flow::line().start("f-runs", true));
    for args in [new, known] {
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        each_key_is_refused_or_not_needed("flow_start", &args).await;
    }
    let unknown = ["new", "other", "1", "-", "0", "0", "0", "t", "o", "0", "{}"];
    each_key_is_refused_or_not_needed("flow_start", &unknown).await;
    // With a delay and a deadline; and children, the last without a waiting node.
    for id in ["timed", "f-graph/0.1", "nobody/0.1"] {
        let mut args = flow::line().named("l").start(id, true);
        (args[5], args[6]) = ("60000".to_owned(), "90000".to_owned());
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        each_key_is_refused_or_not_needed("flow_start", &args).await;
    }
    for staged in ["n 2", "n 3"] {
        let args = ["f-comes", "l", "3", staged, "1", "60000", "90000", "t", "l@", "3 finish 2"];
        each_key_is_refused_or_not_needed("flow_start", &args).await;
    }
}

#[tokio::test]
async fn parts_of_a_start_stay_unchanged_if_a_key_has_another_type() {
    for (id, nonce, number) in [("new", "n", 0), ("f-comes", "n", 2), ("f-comes", "o", 0), ("f-runs", "n", 0)] {
        let part = flow::line().named("l").parts(id, nonce, 2, false).0.remove(number);
        let args: Vec<&str> = part.iter().map(String::as_str).collect();
        each_key_is_refused_or_not_needed("flow_stage", &args).await;
    }
    each_key_is_refused_or_not_needed("flow_unstage", &["60000"]).await;
}

#[tokio::test]
async fn ends_of_children_write_nothing_if_a_key_has_another_type() {
    for ends in ["f-outer/0.1 0 1 c 7", "f-ends/0.1 0 1 x -", "f-graph 0 1 F E"] {
        let args: Vec<&str> = ends.split(' ').collect();
        each_key_is_refused_or_not_needed("flow_advance", &args).await;
    }
    each_key_is_refused_or_not_needed("flow_advance", &["f-runs", "0", "1", "c", "\u{1}2 42{}"]).await;
    each_key_is_refused_or_not_needed("flow_enter", &["f-ends/0.1", "0", "1", "f-outer/0.1", "0", "1"]).await;
    for id in ["f-outer/0.1", "f-ends/0.1", "f-ended/0.1"] {
        each_key_is_refused_or_not_needed("flow_control", &[id, "why"]).await;
        each_key_is_refused_or_not_needed("flow_state", &[id]).await;
    }
    each_key_is_refused_or_not_needed("flow_resend", &["f-graph", "0", "1", "f-outer", "0", "1"]).await;
}

#[tokio::test]
async fn passed_deadlines_stop_nothing_if_a_key_has_another_type() {
    for grace in ["10000", "9000000000000"] {
        each_key_with(&[("deadline", "passed")], "flow_look", &[grace, "200"]).await;
    }
}

#[tokio::test]
async fn ends_of_nodes_write_nothing_if_a_key_has_another_type() {
    for ends in ["f-runs 0 1 c 7", "f-runs 0 1 f E", "f-stops 0 1 x -", "f-paused 2 1 f E", "f-ended 0 1 c 7"] {
        let args: Vec<&str> = ends.split(' ').collect();
        each_key_is_refused_or_not_needed("flow_advance", &args).await;
    }
    for visit in [["f-runs", "2", "1"], ["f-stops", "2", "1"], ["nobody", "0", "1"]] {
        each_key_is_refused_or_not_needed("flow_visit", &visit).await;
    }
}

#[tokio::test]
async fn flow_enter_and_control_write_nothing_on_a_wrong_type() {
    each_key_is_refused_or_not_needed("flow_enter", &["f-runs", "0", "1", "f-paused", "0", "1", "nobody", "0", "1"])
        .await;
    each_key_is_refused_or_not_needed("flow_enter", &["f-runs", "0", "1", "f-stops", "0", "1"]).await;
    for id in ["f-runs", "f-stops", "f-paused", "f-ended", "nobody"] {
        each_key_is_refused_or_not_needed("flow_control", &[id, "why"]).await;
    }
}

#[tokio::test]
async fn looks_at_workflows_remove_nothing_if_a_key_has_another_type() {
    each_key_is_refused_or_not_needed("flow_look", &["10000", "200"]).await;
    each_key_is_refused_or_not_needed("ended", &["10000", "200"]).await;
    each_key_is_refused_or_not_needed("flow_turn", &["5000", "20"]).await;
}

#[tokio::test]
async fn flow_state_and_flow_nodes_change_nothing_on_a_wrong_type() {
    for id in ["f-runs", "f-stops", "f-paused", "f-ended", "nobody"] {
        each_key_is_refused_or_not_needed("flow_state", &[id]).await;
        each_key_is_refused_or_not_needed("flow_nodes", &[id, "0", "500"]).await;
    }
}

#[tokio::test]
async fn turns_and_new_runs_write_nothing_if_a_key_has_another_type() {
    let turns = ["f-runs 0 pause", "f-paused 0 resume", "f-over 0 resume", "f-stops 0 pause", "f-ended 0 resume"];
    for words in turns.into_iter().chain(["nobody 0 pause"]) {
        each_key_is_refused_or_not_needed("flow_pause", &words.split(' ').collect::<Vec<_>>()).await;
    }
    for [id, run] in [["f-ready", "1"], ["f-runs", "1"], ["f-stops", "1"], ["nobody", "1"]] {
        each_key_is_refused_or_not_needed("flow_open", &[id, run]).await;
    }
    for id in ["f-failed", "f-over", "f-paused", "f-runs", "nobody"] {
        for live in ["2", "-"] {
            each_key_is_refused_or_not_needed("flow_retry", &[id, "0", live, "0", "p 0 0", "1", "p 1 1"]).await;
        }
    }
}

#[tokio::test]
async fn audits_and_trims_write_nothing_if_a_key_has_another_type() {
    each_key_is_refused_or_not_needed("flow_audit", &["60000", "200"]).await;
    each_key_is_refused_or_not_needed("flow_place", &["f-runs", "f-paused", "f-over", "nobody"]).await;
    each_key_is_refused_or_not_needed("flow_put_off", &["x f-runs/1", "nobody"]).await;
    let nodes = ["f-runs", "2", "1", "f-runs", "0", "1", "f-stops", "0", "1", "f-paused", "2", "1", "nobody", "0", "1"];
    each_key_is_refused_or_not_needed("flow_resend", &nodes).await;
    each_key_is_refused_or_not_needed("flow_trim", &["60000", "-", "5000"]).await;
    each_key_is_refused_or_not_needed("flow_trim", &["9000000000000", "0", "5000"]).await;
}

#[tokio::test]
async fn dispatch_by_task_priority_writes_nothing_on_a_wrong_type() {
    let mut task = Task::new().await;
    task.hset("meta", &[("priority", "high")]).await;
    task.make_foreign("priority").await;
    let before = task.exact().await;
    assert_eq!(task.refused("dispatch", &["1", "1", "1", "a", "1"]).await, "WRONGTYPE");
    assert_eq!(task.exact().await, before);
}

#[tokio::test]
async fn settle_promotes_nothing_if_locks_have_another_type() {
    let mut task = Task::new().await;
    task.hset("payload", &[("a", "1")]).await;
    task.zadd("delayed", 1.0, "a").await;
    task.make_foreign("locks").await;
    let before = task.exact().await;
    assert_eq!(task.refused("settle", &["1", "w", "1000", "1", "0", "0"]).await, "WRONGTYPE");
    assert_eq!(task.exact().await, before);
}
