//! A server at maxmemory refuses every dispatch whole, and accepts every call that frees memory or keeps a job alive.

use crate::scripts::call::{Task, timeless};
use crate::scripts::flow;
use crate::support::TestRedis;
use std::sync::Arc;

/// A task on a private server. [`fill`] fills it once the test has written what it needs.
async fn task() -> Task {
    Task::on(Arc::new(TestRedis::start()), "").await
}

async fn fill(task: &mut Task) {
    let () = redis::cmd("CONFIG").arg("SET").arg("maxmemory").arg("1").query_async(&mut task.conn).await.unwrap();
    let set: redis::RedisResult<()> = redis::AsyncCommands::set(&mut task.conn, "more", "1").await;
    assert_eq!(set.unwrap_err().code(), Some("OOM"));
}

#[tokio::test]
async fn a_full_server_refuses_dispatch_whole() {
    let mut task = task().await;
    task.ok("dispatch", &["1", "1", "1", "a", "1"]).await;
    fill(&mut task).await;
    let before = task.exact().await;
    assert_eq!(task.refused("dispatch", &["1", "1", "2", "b", "1", "c", "2", "delay", "2", "5"]).await, "OOM");
    assert_eq!(task.exact().await, before);
    // A call that writes nothing passes.
    assert_eq!(task.ok("dispatch", &["1", "1", "1", "a", "1"]).await, "dispatched 1");
}

#[tokio::test]
async fn a_full_server_refuses_a_note_whole() {
    let mut task = task().await;
    task.running("w", &[("a", 1)]).await;
    fill(&mut task).await;
    let before = task.exact().await;
    assert_eq!(task.refused("note", &["w", "a", "1", "1", "{}", "p", "p"]).await, "OOM");
    assert_eq!(task.exact().await, before);
}

#[tokio::test]
async fn settle_records_every_outcome_and_claims() {
    let mut task = task().await;
    task.running("w", &[("a", 1), ("b", 2), ("c", 3), ("d", 4), ("e", 5)]).await;
    task.hset("cancelling", &[("e", "why")]).await;
    task.waiting(&["f"]).await;
    fill(&mut task).await;
    let mut args = vec!["1", "w", "1000", "1", "1", "1", "a", "1", "1", "42"];
    args.extend(["b", "2", "failed", "1", "panic", "E", "c", "3", "retry", "1", "60000", "E"]);
    args.extend(["d", "4", "requeue", "0", "", "", "e", "5", "requeue", "0", "", ""]);
    let reply = task.ok("settle", &args).await;
    assert!(reply.starts_with("[settled '' 5 ") && reply.contains(" f ["), "{reply}");
    assert_eq!(task.held("wait").await, r#"list ["d"]"#);
    for (place, id) in [("completed", "a"), ("failed", "b"), ("cancelled", "e")] {
        assert_eq!(task.held(place).await, format!(r#"zset ["{id}": NOW]"#));
    }
    assert_eq!(task.held("active").await, r#"set {"f"}"#);
    assert!(task.held("delayed").await.contains(r#""c""#));
    let again = task.ok("settle", &args).await;
    let words = |reply: &str| reply.rsplit(' ').map(str::to_owned).collect::<Vec<_>>();
    // Except for the time of the next due job.
    let (again, reply) = (words(&again), words(&reply));
    assert_eq!((&again[0], &again[2..]), (&reply[0], &reply[2..]), "the answer was kept");
}

#[tokio::test]
async fn settle_claims_without_outcomes() {
    let mut task = task().await;
    task.waiting(&["a"]).await;
    fill(&mut task).await;
    assert!(task.ok("settle", &["1", "w", "1000", "1", "0", "0"]).await.contains(" a ["));
    assert_eq!(task.held("active").await, r#"set {"a"}"#);
}

#[tokio::test]
async fn settle_claims_ahead_and_begins() {
    let mut task = task().await;
    task.running("w", &[("ahead", 7), ("begun", 8)]).await;
    task.hset("claimed", &[("ahead", "7")]).await;
    task.waiting(&["a"]).await;
    fill(&mut task).await;
    let args = ["1", "w", "1000", "1 0 0", "0", "0 1", "ahead", "7", "begun", "8", "unstart", "0", "", ""];
    assert!(task.ok("settle", &args).await.contains(" a ["));
    let claimed = task.held("claimed").await;
    assert!(claimed.starts_with(r#"hash {"a": "#) && claimed.ends_with(r#", "begun": "8"}"#), "{claimed}");
}

#[tokio::test]
async fn settle_promotes_due_jobs() {
    let mut task = task().await;
    task.hset("payload", &[("a", "1")]).await;
    task.zadd("delayed", 1.0, "a").await;
    fill(&mut task).await;
    assert!(task.ok("settle", &["1", "w", "1000", "1", "0", "0"]).await.contains(" a ["));
    assert_eq!(task.held("active").await, r#"set {"a"}"#);
}

#[tokio::test]
async fn extend_locks_passes_also_with_a_larger_interval() {
    let mut task = task().await;
    task.running("w", &[("a", 7), ("b", 8)]).await;
    task.snapshot().await;
    fill(&mut task).await;
    assert_eq!(
        task.ok("extend_locks", &["w", "5000", "1", "1", "a", "b", "7", "8"]).await,
        "[beaten 0 5000 [] [] 1 2 0]"
    );
    assert_eq!(task.held("active").await, r#"set {"a"}"#);
    assert_eq!(task.ok("extend_locks", &["w", "9000", "0", "0"]).await, "[beaten 0 9000 [] [] 1 1 1]");
}

#[tokio::test]
async fn sweep_resolves_and_takes_snapshots() {
    let mut task = task().await;
    task.hset("meta", &[("epoch", "5"), ("interval", "1000"), ("ask", "1000")]).await;
    task.running("w", &[("a", 1), ("b", 2), ("c", 3), ("e", 5)]).await;
    task.hset("cancelling", &[("b", "why")]).await;
    task.hset("maxCount", &[("c", "0")]).await;
    task.hset("claimed", &[("e", "5")]).await;
    task.snapshot().await;
    task.running("w", &[("d", 4)]).await;
    fill(&mut task).await;
    let reply = task.ok("sweep", &["v", "1000", "5", "1000", "0", "200", "auto", ""]).await;
    assert!(reply.starts_with("[swept 6 1000 0 1 "), "{reply}");
    assert_eq!(task.held("wait").await, r#"list ["a", "e"]"#);
    assert_eq!(task.held("cancelled").await, r#"zset ["b": NOW]"#);
    assert_eq!(task.held("failed").await, r#"zset ["c": NOW]"#);
    assert_eq!(task.held("candidates").await, r#"set {"d"}"#);
    assert_eq!(
        task.ok("sweep", &["v", "1000", "6", "1000", "0", "200", "auto", ""]).await,
        "[swept 7 1000 0 1 0 [d 1 recovered w 4]]"
    );
    assert_eq!(task.ok("sweep", &["v", "1000", "7", "1000", "0", "200", "auto", ""]).await, "[swept 8 1000 0 1 0 []]");
}

#[tokio::test]
async fn shrink_passes_and_sweep_finds_the_last_of_very_many() {
    let mut task = task().await;
    task.hset("meta", &[("epoch", "5"), ("interval", "1000"), ("ask", "1000")]).await;
    task.running("w", &[("a", 1)]).await;
    task.snapshot().await;
    let others = (0..2_000).map(|i| format!("job-{i}")).collect::<Vec<_>>();
    task.sadd("active", &others.iter().map(String::as_str).collect::<Vec<_>>()).await;
    fill(&mut task).await;
    let before = task.exact().await;
    assert_eq!(task.ok("shrink", &[]).await, "[shrunk]");
    assert_eq!(task.exact().await, before);
    let reply = task.ok("sweep", &["v", "1000", "5", "1000", "0", "200", "auto", ""]).await;
    assert_eq!(reply, "[swept 6 1000 0 1 0 [a 1 recovered w 1]]");
}

#[tokio::test]
async fn cancel_ends_waiting_jobs() {
    let mut task = task().await;
    task.waiting(&["a"]).await;
    task.hset("payload", &[("b", "1")]).await;
    task.zadd("delayed", 9e15, "b").await;
    fill(&mut task).await;
    assert_eq!(task.ok("cancel", &["why", "channel", "", "a", "", "b", ""]).await, "[told ended ended]");
    assert_eq!(task.held("cancelled").await, r#"zset ["a": NOW, "b": NOW]"#);
}

#[tokio::test]
async fn trim_and_declare_pass() {
    let mut task = task().await;
    task.hset("payload", &[("a", "1")]).await;
    task.zadd("completed", 1.0, "a").await;
    task.hset("meta", &[("maxAgeCompleted", "60000")]).await;
    fill(&mut task).await;
    assert_eq!(task.ok("trim", &["w", "Completed", "60000", "200"]).await, "[trimmed 1 0]");
    assert_eq!(timeless(&task.ok("declare", &["1", "", "w", "maxCount", "2"]).await), "[declared NOW []]");
    task.del("meta").await;
    assert_eq!(task.ok("declare", &["1", "100", "w", "maxCount", "2"]).await, "[declared 100 []]");
    assert_eq!(
        task.held("meta").await,
        r#"hash {"bornAt": "NOW", "declaredAt": "100", "declaredBy": "w", "lostAt": "NOW", "maxCount": "2", "wire": "1"}"#
    );
}

#[tokio::test]
async fn a_worker_announces_itself_and_its_stop() {
    let mut task = task().await;
    fill(&mut task).await;
    assert_eq!(task.ok("enlist", &["w"]).await, "[enlisted]");
    assert_eq!(task.ok("announce", &["host", "h", "pid", "7"]).await, "[announced]");
    assert_eq!(task.ok("close", &["w", "w/2", "w/3"]).await, "[closed]");
    assert_eq!(
        task.keys().await,
        [
            r#"replies hash {"w": "closed", "w/2": "closed", "w/3": "closed"}"#,
            r#"worker hash {"host": "h", "lastSeenAt": "NOW", "pid": "7"}"#,
            r#"workers zset ["w": NOW]"#,
        ]
    );
}

#[tokio::test]
async fn settle_answers_a_worker_that_lost_its_jobs() {
    let mut task = task().await;
    task.running("other", &[("a", 7)]).await;
    fill(&mut task).await;
    let reply = task.ok("settle", &["1", "w", "1000", "1", "1", "0", "a", "6"]).await;
    assert!(reply.starts_with("[settled 6 '' "), "{reply}");
}

#[tokio::test]
async fn cancel_flags_a_running_job_for_its_worker() {
    let mut task = task().await;
    task.running("w", &[("a", 7)]).await;
    fill(&mut task).await;
    assert_eq!(task.ok("cancel", &["why", "channel", "", "a", ""]).await, "[told requested]");
}

#[tokio::test]
async fn cancel_leaves_a_tombstone() {
    let mut task = task().await;
    task.waiting(&["first", "a"]).await;
    fill(&mut task).await;
    assert_eq!(task.ok("cancel", &["why", "channel", "anna", "a", ""]).await, "[told ended]");
    assert_eq!(task.held("tombstones").await, r#"hash {"a": "1"}"#);
    assert!(task.ok("settle", &["1", "w", "1000", "5", "0", "0"]).await.contains(" first ["));
    assert_eq!(task.held("tombstones").await, "");
}

#[tokio::test]
async fn retry_remove_and_run_now_pass() {
    let mut task = task().await;
    task.waiting(&["first", "w"]).await;
    task.hset("payload", &[("f", "1"), ("c", "1"), ("d", "1"), ("e", "1")]).await;
    task.zadd("failed", 1.0, "f").await;
    task.zadd("cancelled", 1.0, "c").await;
    task.zadd("delayed", 9e15, "d").await;
    task.zadd("completed", 1.0, "e").await;
    fill(&mut task).await;
    assert_eq!(task.ok("retry", &["anna", "f", "", "c", ""]).await, "[told retried retried]");
    assert_eq!(task.ok("run_now", &["anna", "d", ""]).await, "[told promoted]");
    assert_eq!(task.list("wait").await, ["d", "first", "w", "f", "c"]);
    assert_eq!(task.ok("remove", &["anna", "w", "", "e", ""]).await, "[told removed removed]");
    assert_eq!(task.held("tombstones").await, r#"hash {"w": "1"}"#);
    assert_eq!(task.held("completed").await, "");
    assert!(task.ok("settle", &["1", "w", "1000", "9", "0", "0"]).await.contains(" d first f c ["));
}

#[tokio::test]
async fn a_lone_waiting_job_is_removed() {
    let mut task = task().await;
    task.waiting(&["first", "a"]).await;
    fill(&mut task).await;
    assert_eq!(task.ok("remove", &["", "a", ""]).await, "[told removed]");
    assert_eq!(task.held("payload").await, r#"hash {"first": "{}"}"#);
    assert_eq!(task.field("meta", "tombstones").await, "1");
}

#[tokio::test]
async fn a_task_is_paused_resumed_and_forgotten() {
    let mut task = task().await;
    fill(&mut task).await;
    assert_eq!(task.ok("pause", &["anna", "why"]).await, "[paused]");
    assert_eq!(task.field("meta", "pausedBy").await, "anna");
    assert!(task.ok("resume", &["anna"]).await.starts_with("[resumed "));
    assert_eq!(task.ok("audited", &["nowhere 2"]).await, "[noted]");
    assert_eq!(task.held("wake").await, r#"zset ["marker": 0, "spare": 1]"#);
    assert!(task.ok("forget", &[]).await.starts_with("[forgotten "));
    assert!(task.exact().await.is_empty());
}

#[tokio::test]
async fn each_single_fault_is_repaired() {
    let mut task = task().await;
    for (id, harms, known) in crate::scripts::look::BROKEN {
        let () = redis::cmd("CONFIG").arg("SET").arg("maxmemory").arg("0").query_async(&mut task.conn).await.unwrap();
        let () = redis::cmd("FLUSHALL").query_async(&mut task.conn).await.unwrap();
        task.running("w", &[("silent", 7)]).await;
        task.snapshot().await;
        task.running("w", &[("heard", 8)]).await;
        task.waiting(&["waiting"]).await;
        for place in ["delayed", "completed", "failed", "cancelled"] {
            task.hset("payload", &[(place, "1")]).await;
            task.zadd(place, 5.0, place).await;
        }
        task.hset("attempt", &[("failed", "3")]).await;
        for line in harms {
            crate::scripts::look::harm(&mut task, line).await;
        }
        let listed = task.list("wait").await.iter().filter(|entry| *entry == id).count().to_string();
        fill(&mut task).await;
        assert_eq!(
            task.ok("mend", &["anna", "9999999999999", id, &listed, known]).await,
            format!("[mended {known}]"),
            "{harms:?}"
        );
        let listed = task.list("wait").await.iter().filter(|entry| *entry == id).count().to_string();
        let left = task.ok("look", &["9999999999999", id, &listed]).await;
        assert!(left == "[looked '']" || known.contains("no_payload"), "{harms:?}: {left}");
    }
}

#[tokio::test]
async fn all_reads_pass() {
    let mut task = task().await;
    task.waiting(&["a"]).await;
    fill(&mut task).await;
    let before = task.exact().await;
    assert!(task.ok("overview", &[]).await.starts_with("[seen "));
    assert!(task.ok("jobs", &["waiting", "1", "", "100", "-inf", "+inf", "", ""]).await.starts_with("[page '' 1 "));
    assert_eq!(task.ok("history", &["a", "0-0", "+", "100"]).await, "[read '' []]");
    assert_eq!(task.ok("scan", &["0", "100"]).await, "[scanned 0 [a]]");
    assert_eq!(task.ok("look", &["9999999999999", "a", "1"]).await, "[looked '']");
    assert!(task.ok("inspect", &["a"]).await.starts_with("[found waiting "));
    assert_eq!(task.ok("counts", &[]).await, "[counted 1 0 0 0 0 0 0 0 0]");
    assert_eq!(task.exact().await, before);
}

#[tokio::test]
async fn a_full_server_refuses_a_workflow_whole() {
    let mut task = task().await;
    fill(&mut task).await;
    let args = flow::line().start("a", true);
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    assert_eq!(task.refused("flow_start", &args).await, "OOM");
    let left: Vec<(String, String)> =
        task.exact().await.into_iter().filter(|(key, _)| !key.ends_with("meta")).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[tokio::test]
async fn workflows_continue_to_their_ends() {
    let mut task = task().await;
    let graph = flow::line();
    for id in ["ends", "stops", "late", "asked"] {
        flow::put(&mut task, &graph, id).await;
    }
    task.hset("stopping", &[("late", "failed ")]).await;
    flow::put(&mut task, &graph, "broken").await;
    task.hset("instances", &[("broken", "1 0 3 1 e -")]).await;
    task.zadd("outbox", 5.0, "s broken/0/1").await;
    task.zadd("outbox", 5.0, "s nobody/0/1").await;
    task.zadd("workflows", 5.0, "w").await;
    fill(&mut task).await;
    flow::said(&mut task, "flow_advance", "ends 0 1 c 7 stops 0 1 f E").await;
    assert_eq!(flow::states(&mut task, "ends", 3).await, "c, o, p 1 1");
    assert_eq!(flow::place(&mut task, "stops").await, "failed");
    flow::said(&mut task, "flow_enter", "late 0 1").await;
    assert_eq!(flow::place(&mut task, "late").await, "failed");
    assert_eq!(task.ok("flow_control", &["asked", "why"]).await, "[stopping 1]");
    assert!(task.ok("flow_look", &["1000", "200"]).await.starts_with("[looked 0 0"));
    assert!(task.held("outbox").await.contains("x broken/1"));
    assert_eq!(task.call_on("flow_turn", &["workflows"], &["1000", "20"]).await.unwrap(), "[taken w]");
    assert!(task.ok("flow_state", &["asked"]).await.starts_with("[state running "));
    assert_eq!(task.ok("flow_nodes", &["asked", "0", "1"]).await, "[nodes 1 3 o]");
}

#[tokio::test]
async fn dependents_are_visited_in_any_number_of_calls() {
    let mut task = task().await;
    flow::put(&mut task, &flow::fan(1_200), "a").await;
    fill(&mut task).await;
    flow::said(&mut task, "flow_advance", "a 0 1 c 7").await;
    while flow::said(&mut task, "flow_visit", "a 0 1").await.starts_with("[visited 1 ") {}
    assert_eq!(flow::head(&mut task, "a").await, "1 0 1200 1200 d -");
}

#[tokio::test]
async fn pause_resume_retry_audit_and_trim_of_workflows_pass() {
    let mut task = task().await;
    for id in ["turns", "lost", "old"] {
        flow::put(&mut task, &flow::line(), id).await;
    }
    flow::take_out(&mut task, "running", "old").await;
    task.zadd("completed", 5.0, "old").await;
    task.hset("shapes", &[("d#", "3")]).await;
    fill(&mut task).await;
    assert_eq!(task.ok("flow_audit", &["60000", "200"]).await, "[taken 0 lost turns]");
    assert_eq!(task.ok("flow_resend", &["lost", "0", "1"]).await, "[resent 0 lost 0 1 t '' 0 here in-0]");
    assert_eq!(task.field("nodes", "lost/0").await, "o1");
    assert_eq!(task.ok("flow_put_off", &["s lost/0/1"]).await, "[put]");
    flow::take_out(&mut task, "running", "lost").await;
    assert_eq!(task.ok("flow_place", &["lost"]).await, "[placed 1]");
    assert_eq!(task.ok("flow_pause", &["turns", "0", "pause"]).await, "[paused]");
    flow::said(&mut task, "flow_advance", "turns 0 1 c 7").await;
    assert_eq!(task.ok("flow_pause", &["turns", "1", "resume"]).await, "[resumed 1]");
    assert_eq!(task.ok("flow_open", &["turns", "1"]).await, "[opened 0 0 turns 1 1 t '' 0 here 7]");
    flow::said(&mut task, "flow_advance", "turns 1 1 f E").await;
    assert_eq!(task.ok("flow_retry", &["turns", "3", "2", "1", "p 0 0", "2", "p 1 1"]).await, "[again 2]");
    assert_eq!(flow::head(&mut task, "turns").await, "2 4 2 0 d -");
    assert_eq!(task.ok("flow_open", &["turns", "2"]).await, "[opened 0 0 turns 1 2 t '' 0 here 7]");
    assert_eq!(task.ok("flow_trim", &["60000", "-", "5000"]).await, "[trimmed 1 0]");
    assert_eq!(task.field("shapes", "d#").await, "2");
}

#[tokio::test]
async fn a_full_server_refuses_a_start_in_parts_whole() {
    let mut task = task().await;
    let (parts, last) = flow::line().parts("a", "n", 2, false);
    for part in &parts[..2] {
        flow::with(&mut task, "flow_stage", part).await;
    }
    flow::start_in_parts(&mut task, &flow::line(), "whole", "n", 2).await;
    for part in flow::line().parts("staged", "n", 2, true).0 {
        flow::with(&mut task, "flow_stage", &part).await;
    }
    flow::put(&mut task, &flow::graph("finish", "0", &[("p 0 0", "g -", &[])]).named("g"), "outer").await;
    fill(&mut task).await;
    let before = task.exact().await;
    let next: Vec<&str> = parts[2].iter().map(String::as_str).collect();
    assert_eq!(task.refused("flow_stage", &next).await, "OOM");
    let first = flow::line().parts("b", "n", 2, true).0.remove(0);
    assert_eq!(task.refused("flow_stage", &first.iter().map(String::as_str).collect::<Vec<_>>()).await, "OOM");
    let ready = ["staged", "d", "3", "n 2", "0", "60000", "90000", "t"];
    assert_eq!(task.refused("flow_start", &ready).await, "OOM");
    let child = flow::line().start("outer/0.1", false);
    assert_eq!(task.refused("flow_start", &child.iter().map(String::as_str).collect::<Vec<_>>()).await, "OOM");
    assert_eq!(task.exact().await, before);
    // A call that writes nothing passes.
    assert_eq!(flow::with(&mut task, "flow_stage", &parts[1]).await, "[staged 1]");
    assert_eq!(flow::with(&mut task, "flow_start", &last).await, "[parts]");
}

#[tokio::test]
async fn children_end_with_their_nodes_and_returned_graphs_are_kept() {
    let mut task = task().await;
    let child = flow::graph("finish", "0", &[("p 0 0", "- -", &[])]).named("e");
    for id in ["ends", "stops", "asked", "grows"] {
        let nodes: [flow::Node; 2] = [("p 0 0", "g -", &[1]), ("p 1 1", "- 0", &[])];
        flow::put(&mut task, &flow::graph("finish", "1", &nodes), id).await;
        flow::start(&mut task, &child, &format!("{id}/0.1")).await;
    }
    task.hset("stopping", &[("stops/0.1", "cancelled why"), ("asked", "cancelled why")]).await;
    flow::take_out(&mut task, "running", "asked/0.1").await;
    flow::start_in_parts(&mut task, &child, "other", "n", 2).await;
    task.zadd("running", 5.0, "asked/0.1").await;
    task.hset("nodes", &[("asked/0.1/0", "p 0 0")]).await;
    task.hset("instances", &[("asked/0.1", "1 0 1 0 e -")]).await;
    fill(&mut task).await;
    let reply = flow::said(&mut task, "flow_advance", "ends/0.1 0 1 c 7").await;
    assert_eq!(reply, "[advanced 0 ends 1 1 t '' 0 here 7]");
    flow::said(&mut task, "flow_enter", "stops/0.1 0 1").await;
    assert_eq!(flow::place(&mut task, "stops").await, "failed");
    assert_eq!(task.ok("flow_control", &["asked/0.1", "why"]).await, "[ended cancelled 0]");
    assert_eq!(flow::place(&mut task, "asked").await, "cancelled");
    let reply = task.ok("flow_advance", &["grows/0.1", "0", "1", "c", "\u{1}2 42{}"]).await;
    assert_eq!(reply, "[advanced 0 grows/0.1 0 1 @ finish 0 here {}]");
    assert_eq!(task.held("grow").await, r#"hash {"grows/0.1/0": "{}"}"#);
    assert_eq!(flow::said(&mut task, "flow_open", "other 1").await, "[opened 0 0 other 0 1 t '' 0 here in-0]");
}

#[tokio::test]
async fn an_instance_past_its_deadline_stops() {
    let mut task = task().await;
    flow::put(&mut task, &flow::line(), "a").await;
    task.zadd("deadlines", 5.0, "a").await;
    fill(&mut task).await;
    assert_eq!(task.ok("flow_look", &["10000", "200"]).await, "[looked 0 1 x a/1]");
}

#[tokio::test]
async fn abandoned_starts_are_removed() {
    let mut task = task().await;
    for part in flow::line().parts("a", "n", 2, false).0 {
        flow::with(&mut task, "flow_stage", &part).await;
    }
    task.hset("staging", &[("a", "n 4 5 d 3")]).await;
    fill(&mut task).await;
    assert_eq!(task.ok("flow_unstage", &["60000"]).await, "[unstaged 1 0]");
}

#[tokio::test]
async fn large_workflows_rerun_in_parts_and_are_removed_in_pages() {
    let mut task = task().await;
    let nodes: Vec<flow::Node> = (0..600).map(|_| ("p 0 0", "- -", &[][..])).collect();
    for (id, place) in [("again", "failed"), ("old", "completed")] {
        flow::put(&mut task, &flow::graph("finish", "-", &nodes), id).await;
        task.hset("instances", &[(id, "1 1 0 0 d 0")]).await;
        flow::take_out(&mut task, "running", id).await;
        task.zadd(place, 5.0, id).await;
    }
    task.hset("shapes", &[("d#", "1")]).await;
    fill(&mut task).await;
    assert_eq!(task.ok("flow_retry", &["again", "1", "-", "0", "p 0 0", "1", "p 0 0"]).await, "[part]");
    assert_eq!(task.ok("flow_retry", &["again", "1", "3", "2", "p 0 0"]).await, "[again 2]");
    for reply in ["[trimmed 0 1]", "[trimmed 0 1]", "[trimmed 1 0]"] {
        assert_eq!(task.ok("flow_trim", &["60000", "-", "5000"]).await, reply);
    }
    assert_eq!(task.held("shapes").await, "");
}

#[tokio::test]
async fn workflows_with_an_unreadable_graph_are_removed() {
    let mut task = task().await;
    flow::put(&mut task, &flow::line(), "a").await;
    flow::take_out(&mut task, "running", "a").await;
    task.zadd("completed", 5.0, "a").await;
    task.hset("shapes", &[("d@", "many finish 2"), ("d#", "2")]).await;
    fill(&mut task).await;
    assert_eq!(task.ok("flow_trim", &["60000", "-", "5000"]).await, "[trimmed 1 0]");
}

#[tokio::test]
async fn ended_nodes_are_recorded_listed_and_dropped() {
    let mut task = task().await;
    task.hset("meta", &[("nodes", "1"), ("keepCompleted", "0")]).await;
    task.running("w", &[("~w/a/0/1", 7), ("~w/a/1/1", 8)]).await;
    fill(&mut task).await;
    let args = ["1", "w", "1000", "0", "1", "1", "~w/a/0/1", "7", "1", "42"];
    let drop = ["~w/a/1/1", "8", "drop", "0", "", ""];
    task.ok("settle", &[&args[..], &drop].concat()).await;
    assert_eq!(task.ok("ended", &["0", "200"]).await, "[ended 0 ~w/a/0/1 c 42]");
    assert_eq!(task.held("payload").await, r#"hash {"~w/a/0/1": "{}"}"#);
}
