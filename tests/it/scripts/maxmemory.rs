//! A server at maxmemory refuses every dispatch whole, and accepts every call that frees memory or keeps a job alive.

use crate::scripts::call::{Task, assert_all, assert_keys, assert_text};
use crate::scripts::flow;
use crate::scripts::schedules::{Firing, New, row};
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

/// The server has room and no data.
async fn clear(task: &mut Task) {
    let () = redis::cmd("CONFIG").arg("SET").arg("maxmemory").arg("0").query_async(&mut task.conn).await.unwrap();
    let () = redis::cmd("FLUSHALL").query_async(&mut task.conn).await.unwrap();
}

#[tokio::test]
async fn a_full_server_refuses_what_only_adds_data() {
    let mut task = task().await;
    task.ok("dispatch", "1 1 - a 1").await;
    task.write("runs w: held=1, ahead=2; claimed ahead=2; unique c=ahead done 0 1").await;
    fill(&mut task).await;
    assert_eq!(task.refused("dispatch_unique", "1 1 u u 1 c replace 0").await, "OOM");
    assert_eq!(task.unchanged("dispatch_unique", "1 1 u u 1 c done 0").await, "[placed existed ahead]");
    assert_eq!(task.refused("dispatch", "1 1 2 b 1 c 2 delay 2 5").await, "OOM");
    assert_eq!(task.refused("dispatch_unique", "1 1 u u 1 k done 0").await, "OOM");
    assert_eq!(task.refused("note", "w held 1 1 {} p p").await, "OOM");
    assert_eq!(task.refused("flow_start", &flow::line().start("a", true)).await, "OOM");
    // A call that writes nothing passes.
    assert_eq!(task.unchanged("dispatch", "1 1 - a 1").await, "dispatched 1");
}

#[tokio::test]
async fn a_call_that_frees_memory_or_keeps_a_job_alive_passes() {
    let mut task = task().await;
    let declared = "meta bornAt=NOW, declaredAt=100, declaredBy=w, lostAt=NOW, maxCount=2, wire=1";
    let old = "payload a=1; completed a=1; meta maxAgeCompleted=60000";
    for (rows, name, args, reply, left) in [
        ("waits a", "settle", "1 w 1000 1 0 0", " a [", "active a"),
        ("payload a=1; delayed a=1", "settle", "1 w 1000 1 0 0", " a [", "active a"),
        ("runs other: a=7", "settle", "1 w 1000 1 1 0 a 6", "[settled 6 '' ", "active a"),
        ("waits a; payload b=1; delayed b=9e15", "cancel", "why c - a - b -", "ended ended", "cancelled a=NOW, b=NOW"),
        ("waits first a", "cancel", "why c anna a -", "[told ended]", "tombstones a=1; wait first a"),
        ("runs w: a=7", "cancel", "why c - a -", "[told requested]", "cancelling a=why"),
        ("waits first a", "remove", "- a -", "[told removed]", "payload first={}; meta.tombstones=1"),
        (old, "trim", "w Completed 60000 200", "[trimmed 1 0]", "no completed"),
        ("wait a", "declare", "1 - w maxCount 2", "[declared 1", "meta.maxCount=2"),
        ("no meta", "declare", "1 100 w maxCount 2", "[declared 100 []]", declared),
        ("no laneOwn", "lane_put", "k limits '1 0 0' ada", "[put 0]", "laneOwn k=1 0 0 1 0 ada"),
        ("laneOf a=k", "trim_lanes", "laneOf - 500", "[trimmed '' 1 1]", "no laneOf"),
        ("uniqueOf a=k; unique k=a done 0 1", "trim_unique", "0 500 0", "[trimmed 0 1 1]", "no unique, uniqueOf"),
    ] {
        clear(&mut task).await;
        task.declared().await;
        task.write(rows).await;
        fill(&mut task).await;
        let answer = task.ok(name, args).await;
        assert!(answer.contains(reply), "{name} with {rows}: {answer}");
        assert_keys!(task, left, "{name} with {rows}");
    }
}

#[tokio::test]
async fn a_full_server_writes_no_schedule_and_fires_no_tick() {
    let mut task = task().await;
    row(&mut task, "a", 15).await;
    row(&mut task, "b", 15).await;
    task.write("schedules:ledger b=15 1 1 0 0 0 0 5 j 5 1 - - -; waits j").await;
    let new = New::put(&mut task).await;
    fill(&mut task).await;
    assert_eq!(task.refused("schedule_put", &new.args("new")).await, "OOM");
    assert_eq!(task.refused("schedule_fire", &Firing::of("a", &[15]).args()).await, "OOM");
    assert_eq!(task.refused("schedule_fire", &Firing::of("b", &[15]).args()).await, "OOM", "only counts");
    assert_eq!(task.refused("schedule_run", "a d 1 5 a@5~9 {}").await, "OOM");
    // Calls that write nothing pass.
    assert_eq!(task.unchanged("schedule_put", &new.args("a")).await, "[same 0]");
    assert_text!(task.unchanged("schedule_fire", &Firing::of("a", &[5]).args()).await, ends_with(" - 1 moved]"));
}

#[tokio::test]
async fn workers_stay_listed_and_schedules_are_removed() {
    let mut task = task().await;
    for name in ["a", "old", "damaged"] {
        row(&mut task, name, 15).await;
    }
    task.write("schedules:rule old=d - code 1 w {}, damaged=damaged; schedules:named old=1").await;
    let later = New::code(&mut task, 9).await;
    let now = task.now_ms().await;
    task.zadd("schedules:keepers", now - 30_000.0, "w").await;
    fill(&mut task).await;
    assert_text!(task.ok("schedule_look", "50").await, contains("[damaged] [[a "));
    assert_eq!(task.ok("schedule_put", &later.args("old")).await, "[same 0]");
    assert_eq!(task.ok("schedule_names", "w 1 a").await, "[named [w] [old] [] 1]");
    assert_text!(task.unchanged("schedule_read", "a").await, starts_with("[read "));
    assert_eq!(task.ok("schedule_pause", "a {}").await, "[paused]");
    assert_eq!(task.ok("schedule_pause", "a -").await, "[resumed]");
    assert_eq!(task.ok("schedule_remove", "a").await, "[removed]");
    assert_keys!(task, "schedules:keepers w=NOW; schedules damaged=NOW");
}

#[tokio::test]
async fn settle_records_every_outcome_and_claims() {
    let mut task = task().await;
    task.write("runs w: a=1, b=2, c=3, d=4, e=5; cancelling e=why; waits f").await;
    fill(&mut task).await;
    let args = "1 w 1000 1 1 1 a 1 1 42 b 2 failed 1 panic E c 3 retry 1 60000 E d 4 requeue 0 - - e 5 requeue 0 - -";
    let reply = task.ok("settle", &args).await;
    assert!(reply.starts_with("[settled '' 5 ") && reply.contains(" f ["), "{reply}");
    assert_keys!(task, "wait d; completed a=NOW; failed b=NOW; cancelled e=NOW; active f; delayed c=NOW");
    let again = task.ok("settle", &args).await;
    let words = |reply: &str| reply.rsplit(' ').map(str::to_owned).collect::<Vec<_>>();
    // Except for the time of the next due job.
    let (again, reply) = (words(&again), words(&reply));
    assert_eq!((&again[0], &again[2..]), (&reply[0], &reply[2..]), "the answer was kept");
}

#[tokio::test]
async fn settle_claims_ahead_and_begins() {
    let mut task = task().await;
    task.write("runs w: ahead=7, begun=8; claimed ahead=7; waits a").await;
    fill(&mut task).await;
    assert!(task.ok("settle", "1 w 1000 '1 0 0' 0 '0 1' ahead 7 begun 8 unstart 0 - -").await.contains(" a ["));
    assert_text!(task.held("claimed").await, starts_with(r#"hash {"a": "#), ends_with(r#", "begun": "8"}"#));
}

#[tokio::test]
async fn extend_locks_passes_also_with_a_larger_interval() {
    let mut task = task().await;
    task.write("runs w: a=7, b=8; snapshot").await;
    fill(&mut task).await;
    assert_eq!(task.ok("extend_locks", "w 5000 1 1 a b 7 8").await, "[beaten 0 5000 [] [] 1 2 0]");
    assert_keys!(task, "active a");
    assert_eq!(task.ok("extend_locks", "w 9000 0 0").await, "[beaten 0 9000 [] [] 1 1 1]");
}

#[tokio::test]
async fn sweep_resolves_and_takes_snapshots() {
    let mut task = task().await;
    task.write("meta epoch=5, interval=1000, ask=1000; runs w: a=1, b=2, c=3, e=5; cancelling b=why").await;
    task.write("maxCount c=0; claimed e=5; snapshot; runs w: d=4").await;
    fill(&mut task).await;
    assert_text!(task.ok("sweep", "v 1000 5 1000 0 200 auto -").await, starts_with("[swept 6 1000 0 1 "));
    assert_keys!(task, "wait a e; cancelled b=NOW; failed c=NOW; candidates d");
    assert_eq!(task.ok("sweep", "v 1000 6 1000 0 200 auto -").await, "[swept 7 1000 0 1 0 [d 1 recovered w 4]]");
    assert_eq!(task.ok("sweep", "v 1000 7 1000 0 200 auto -").await, "[swept 8 1000 0 1 0 []]");
}

#[tokio::test]
async fn shrink_passes_and_sweep_finds_the_last_of_very_many() {
    let mut task = task().await;
    task.write("meta epoch=5, interval=1000, ask=1000; runs w: a=1; snapshot").await;
    let others = (0..2_000).map(|i| format!("job-{i}")).collect::<Vec<_>>();
    task.sadd("active", &others).await;
    fill(&mut task).await;
    assert_eq!(task.unchanged("shrink", "").await, "[shrunk]");
    assert_eq!(task.ok("sweep", "v 1000 5 1000 0 200 auto -").await, "[swept 6 1000 0 1 0 [a 1 recovered w 1]]");
}

#[tokio::test]
async fn a_worker_announces_itself_and_its_stop() {
    let mut task = task().await;
    fill(&mut task).await;
    assert_eq!(task.ok("enlist", "w").await, "[enlisted]");
    assert_eq!(task.ok("announce", "host h pid 7").await, "[announced]");
    assert_eq!(task.ok("close", "w w/2 w/3").await, "[closed]");
    assert_all!(task, "replies w=closed, w/2=closed, w/3=closed; worker host=h, lastSeenAt=NOW, pid=7; workers w=NOW");
}

#[tokio::test]
async fn retry_remove_and_run_now_pass() {
    let mut task = task().await;
    task.write("waits first w; payload f=1, c=1, d=1, e=1; failed f=1; cancelled c=1; delayed d=9e15").await;
    task.write("completed e=1").await;
    fill(&mut task).await;
    assert_eq!(task.ok("retry", "anna 0 f - c -").await, "[told retried retried]");
    assert_eq!(task.ok("run_now", "anna d -").await, "[told promoted]");
    assert_keys!(task, "wait d first w f c");
    assert_eq!(task.ok("remove", "anna w - e -").await, "[told removed removed]");
    assert_keys!(task, "tombstones w=1; no completed");
    assert!(task.ok("settle", "1 w 1000 9 0 0").await.contains(" d first f c ["));
}

#[tokio::test]
async fn a_task_is_paused_resumed_and_forgotten() {
    let mut task = task().await;
    fill(&mut task).await;
    assert_eq!(task.ok("pause", "anna why").await, "[paused]");
    assert_keys!(task, "meta.pausedBy=anna");
    assert!(task.ok("resume", "anna").await.starts_with("[resumed "));
    assert_eq!(task.ok("audited", "'nowhere 2'").await, "[noted]");
    assert_keys!(task, "wake marker=0, spare=1");
    assert!(task.ok("forget", "").await.starts_with("[forgotten "));
    assert!(task.exact().await.is_empty());
}

#[tokio::test]
async fn each_single_fault_is_repaired() {
    let mut task = task().await;
    for (id, harms, known) in crate::scripts::look::BROKEN {
        clear(&mut task).await;
        task.write("runs w: silent=7; snapshot; runs w: heard=8; waits waiting; attempt failed=3").await;
        for place in ["delayed", "completed", "failed", "cancelled"] {
            task.write(&format!("payload {place}=1; {place} {place}=5")).await;
        }
        task.write(harms).await;
        let listed = task.list("wait").await.iter().filter(|entry| *entry == id).count().to_string();
        fill(&mut task).await;
        assert_eq!(
            task.ok("mend", &["anna", "9999999999999", id, &listed, known]).await,
            format!("[mended {known}]"),
            "{harms}"
        );
        let listed = task.list("wait").await.iter().filter(|entry| *entry == id).count().to_string();
        let left = task.ok("look", &["9999999999999", id, &listed]).await;
        assert!(left == "[looked '']" || known.contains("no_payload"), "{harms}: {left}");
    }
}

#[tokio::test]
async fn all_reads_pass() {
    let mut task = task().await;
    task.write("waits a").await;
    fill(&mut task).await;
    assert!(task.unchanged("overview", "").await.starts_with("[seen "));
    assert!(task.unchanged("jobs", "waiting 1 - 100 -inf +inf - -").await.starts_with("[page '' 1 "));
    assert_eq!(task.unchanged("history", "a 0-0 + 100").await, "[read '' []]");
    assert_eq!(task.unchanged("scan", "0 100").await, "[scanned 0 [a]]");
    assert_eq!(task.unchanged("look", "9999999999999 a 1").await, "[looked '']");
    assert!(task.unchanged("inspect", "a").await.starts_with("[found waiting "));
    assert_eq!(task.unchanged("counts", "").await, "[counted 1 0 0 0 0 0 0 0 0]");
}

#[tokio::test]
async fn workflows_continue_to_their_ends() {
    let mut task = task().await;
    let graph = flow::line();
    for id in ["ends", "stops", "late", "asked", "sends"] {
        task.put(&graph, id).await;
    }
    task.write("stopping late=failed ").await;
    task.put(&graph, "broken").await;
    task.write("t:meta wire=1; instances broken=1 0 3 1 e -; outbox s broken/0/1=5, s absent/0/1=5; workflows w=5")
        .await;
    fill(&mut task).await;
    task.ok("flow_advance", "ends 0 1 c 7 stops 0 1 f E").await;
    assert_keys!(task, "states ends=c, o, p 1 1; place stops=failed");
    // A node that the step opens stays in the outbox, as its dispatch would be refused.
    let sent = task.ok_to("flow_advance", "sends 0 1 c 7", 1).await;
    assert!(sent.starts_with("[advanced 0 0 sends 1 1 t"), "{sent}");
    assert_keys!(task, "states sends=c, o, p 1 1; no t:wait, t:payload");
    task.ok("flow_enter", "late 0 1").await;
    assert_keys!(task, "place late=failed");
    assert_eq!(task.ok("flow_control", "asked why").await, "[stopping 1]");
    assert!(task.ok("flow_look", "1000 200").await.starts_with("[looked 0 0"));
    assert!(task.held("outbox").await.contains("x broken/1"));
    assert_eq!(task.ok_at("workflows", "flow_turn", "1000 20").await, "[taken w]");
    assert!(task.ok("flow_state", "asked").await.starts_with("[state running "));
    assert_eq!(task.ok("flow_nodes", "asked 0 1").await, "[nodes 1 3 o]");
}

#[tokio::test]
async fn dependents_are_visited_in_any_number_of_calls() {
    let mut task = task().await;
    task.put(&flow::fan(1_200), "a").await;
    fill(&mut task).await;
    task.ok("flow_advance", "a 0 1 c 7").await;
    while task.ok("flow_visit", "a 0 1").await.starts_with("[visited 1 ") {}
    assert_keys!(task, "head a=1 0 1200 1200 d -");
}

#[tokio::test]
async fn pause_resume_retry_audit_and_trim_of_workflows_pass() {
    let mut task = task().await;
    for id in ["turns", "lost", "old"] {
        task.put(&flow::line(), id).await;
    }
    task.write("no running.old; completed old=5; shapes d#=3").await;
    fill(&mut task).await;
    assert_eq!(task.ok("flow_audit", "60000 200").await, "[taken 0 lost turns]");
    assert_eq!(task.ok("flow_resend", "lost 0 1").await, "[resent 0 lost 0 1 t '' 0 here in-0]");
    assert_keys!(task, "nodes.lost/0=o1");
    assert_eq!(task.ok("flow_put_off", "'s lost/0/1'").await, "[put]");
    task.write("no running.lost").await;
    assert_eq!(task.ok("flow_place", "lost").await, "[placed 1]");
    assert_eq!(task.ok("flow_pause", "turns 0 pause").await, "[paused]");
    task.ok("flow_advance", "turns 0 1 c 7").await;
    assert_eq!(task.ok("flow_pause", "turns 1 resume").await, "[resumed 1]");
    assert_eq!(task.ok("flow_open", "turns 1").await, "[opened 0 0 turns 1 1 t '' 0 here 7]");
    task.ok("flow_advance", "turns 1 1 f E").await;
    assert_eq!(task.ok("flow_retry", "turns 3 2 1 'p 0 0' 2 'p 1 1'").await, "[again 2]");
    assert_keys!(task, "head turns=2 4 2 0 d -");
    assert_eq!(task.ok("flow_open", "turns 2").await, "[opened 0 0 turns 1 2 t '' 0 here 7]");
    assert_eq!(task.ok("flow_trim", "60000 '-' 5000").await, "[trimmed 1 0]");
    assert_keys!(task, "shapes.d#=2");
}

#[tokio::test]
async fn a_full_server_refuses_a_start_in_parts_whole() {
    let mut task = task().await;
    let (parts, last) = flow::line().parts("a", "n", 2, false);
    for part in &parts[..2] {
        task.ok("flow_stage", part).await;
    }
    task.start_in_parts(&flow::line(), "whole", "n", 2).await;
    for part in flow::line().parts("staged", "n", 2, true).0 {
        task.ok("flow_stage", &part).await;
    }
    task.put(&flow::graph("finish", "0", "p 0 0, g -").named("g"), "outer").await;
    fill(&mut task).await;
    assert_eq!(task.refused("flow_stage", &parts[2]).await, "OOM");
    assert_eq!(task.refused("flow_stage", &flow::line().parts("b", "n", 2, true).0[0]).await, "OOM");
    assert_eq!(task.refused("flow_start", "staged d 3 'n 2' 0 60000 90000 t {}").await, "OOM");
    assert_eq!(task.refused("flow_start", &flow::line().start("outer/0.1", false)).await, "OOM");
    // A call that writes nothing passes.
    assert_eq!(task.ok("flow_stage", &parts[1]).await, "[staged 1]");
    assert_eq!(task.ok("flow_start", &last).await, "[parts]");
}

#[tokio::test]
async fn children_end_with_their_nodes_and_returned_graphs_are_kept() {
    let mut task = task().await;
    let child = flow::graph("finish", "0", "p 0 0, - -").named("e");
    for id in ["ends", "stops", "asked", "grows"] {
        task.put(&flow::graph("finish", "1", "p 0 0, g -, 1; p 1 1, - 0"), id).await;
        task.start(&child, &format!("{id}/0.1")).await;
    }
    task.write("stopping stops/0.1=cancelled why, asked=cancelled why; no running.asked/0.1").await;
    task.start_in_parts(&child, "other", "n", 2).await;
    task.write("running asked/0.1=5; nodes asked/0.1/0=p 0 0; instances asked/0.1=1 0 1 0 e -").await;
    fill(&mut task).await;
    assert_eq!(task.ok("flow_advance", "ends/0.1 0 1 c 7").await, "[advanced 0 ends 1 1 t '' 0 here 7]");
    task.ok("flow_enter", "stops/0.1 0 1").await;
    assert_keys!(task, "place stops=failed");
    assert_eq!(task.ok("flow_control", "asked/0.1 why").await, "[ended cancelled 0]");
    assert_keys!(task, "place asked=cancelled");
    let reply = task.ok("flow_advance", &["grows/0.1", "0", "1", "c", "\u{1}2 42{}"]).await;
    assert_eq!(reply, "[advanced 0 grows/0.1 0 1 @ finish 0 here {}]");
    assert_keys!(task, "grow grows/0.1/0={}");
    assert_eq!(task.ok("flow_open", "other 1").await, "[opened 0 0 other 0 1 t '' 0 here in-0]");
}

#[tokio::test]
async fn workflows_that_are_late_abandoned_or_unreadable_are_cleared() {
    let mut task = task().await;
    task.put(&flow::line().named("l"), "late").await;
    for part in flow::line().named("s").parts("abandoned", "n", 2, false).0 {
        task.ok("flow_stage", &part).await;
    }
    task.put(&flow::line(), "old").await;
    task.write("deadlines late=5; staging abandoned=n 4 5 s 3; no running.old; completed old=5").await;
    task.write("shapes d@=many finish 2, d#=2").await;
    fill(&mut task).await;
    assert_eq!(task.ok("flow_look", "10000 200").await, "[looked 0 1 x late/1]");
    assert_eq!(task.ok("flow_unstage", "60000").await, "[unstaged 1 0]");
    assert_eq!(task.ok("flow_trim", "60000 '-' 5000").await, "[trimmed 1 0]");
}

#[tokio::test]
async fn large_workflows_rerun_in_parts_and_are_removed_in_pages() {
    let mut task = task().await;
    for (id, place) in [("again", "failed"), ("old", "completed")] {
        task.put(&flow::loose(600), id).await;
        task.hset("instances", &[(id, "1 1 0 0 d 0")]).await;
        task.lose(&format!("running.{id}")).await;
        task.zadd(place, 5.0, id).await;
    }
    task.write("shapes d#=1").await;
    fill(&mut task).await;
    assert_eq!(task.ok("flow_retry", "again 1 '-' 0 'p 0 0' 1 'p 0 0'").await, "[part]");
    assert_eq!(task.ok("flow_retry", "again 1 3 2 'p 0 0'").await, "[again 2]");
    for reply in ["[trimmed 0 1]", "[trimmed 0 1]", "[trimmed 1 0]"] {
        assert_eq!(task.ok("flow_trim", "60000 '-' 5000").await, reply);
    }
    assert_keys!(task, "no shapes");
}

#[tokio::test]
async fn ended_nodes_are_recorded_listed_and_dropped() {
    let mut task = task().await;
    task.write("meta nodes=1, keepCompleted=0; runs w: ~w/a/0/1=7, ~w/a/1/1=8").await;
    fill(&mut task).await;
    task.ok("settle", "1 w 1000 0 1 1 ~w/a/0/1 7 1 42 ~w/a/1/1 8 drop 0 - -").await;
    assert_eq!(task.ok("ended", "0 200").await, "[ended 0 ~w/a/0/1 c 42]");
    assert_keys!(task, "payload ~w/a/0/1={}");
}
