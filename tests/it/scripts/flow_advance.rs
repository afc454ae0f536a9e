use crate::scripts::call::{Task, without};
use crate::scripts::flow::{UNREADABLE, fan, graph, head, line, long_line, place, put, said, start, states};

async fn advance(task: &mut Task, ends: &str) -> String {
    said(task, "flow_advance", ends).await
}

#[tokio::test]
async fn the_next_node_opens_with_the_value_of_the_completed_one() {
    let mut task = Task::new().await;
    put(&mut task, &line(), "a").await;
    task.zadd("outbox", 5.0, "s a/0/1").await;
    assert_eq!(advance(&mut task, "a 0 1 c 7").await, "[advanced 0 a 1 1 t '' 0 here 7]");
    assert_eq!(
        without(task.keys().await, &["meta", "shapes"]),
        [
            r#"input hash {"a/0": "in-0"}"#,
            r#"instances hash {"a": "1 0 2 1 d -"}"#,
            r#"nodes hash {"a/0": "c", "a/1": "o", "a/2": "p 1 1"}"#,
            r#"outbox zset ["s a/1/1": NOW]"#,
            r#"running zset ["a": NOW]"#,
            r#"value hash {"a/0": "7"}"#,
        ]
    );
    // A node without a value passes none.
    assert_eq!(advance(&mut task, "a 1 1 c -").await, "[advanced 0 a 2 1 t '' 0 here null]");
    assert_eq!(advance(&mut task, "a 2 1 c 9").await, "[advanced 0]");
    assert_eq!(
        without(task.keys().await, &["meta", "shapes", "input", "value"]),
        [
            r#"completed zset ["a": NOW]"#,
            r#"instances hash {"a": "1 1 0 0 d -"}"#,
            r#"nodes hash {"a/0": "c", "a/1": "c", "a/2": "c"}"#,
            r#"output hash {"a": "9"}"#,
        ]
    );
}

#[tokio::test]
async fn an_unknown_state_counts_as_failed_for_known_nodes_only() {
    let mut task = Task::new().await;
    for (id, damage) in [("word", "q"), ("empty", ""), ("number", "5 o"), ("alike", "garbage")] {
        put(&mut task, &line(), id).await;
        task.hset("nodes", &[(&format!("{id}/0"), damage)]).await;
        assert_eq!(advance(&mut task, &format!("{id} 0 1 c 7")).await, "[advanced 0]");
        assert_eq!(states(&mut task, id, 3).await, "f, s, s");
        let said = task.field("value", &format!("{id}/0")).await;
        assert_eq!(said, r#"{"code":"corrupt","message":"its state cannot be read"}"#);
        assert_eq!(place(&mut task, id).await, "failed");
    }
    // A node that was not open ends alone: the handler of the first still runs.
    put(&mut task, &line(), "waits").await;
    task.hset("nodes", &[("waits/1", "zz")]).await;
    task.hset("stopping", &[("waits", "cancelled why")]).await;
    assert_eq!(advance(&mut task, "waits 1 1 f -").await, "[advanced 0]");
    assert_eq!(head(&mut task, "waits").await, "1 0 2 1 d -");
    assert_eq!(advance(&mut task, "waits 0 1 x -").await, "[advanced 0]");
    assert_eq!(place(&mut task, "waits").await, "cancelled");
    // Several in one call: the instance stops at the second, and none is known to run.
    put(&mut task, &line(), "all").await;
    task.hset("nodes", &[("all/0", "q"), ("all/1", "q"), ("all/2", "q")]).await;
    assert_eq!(advance(&mut task, "all 1 1 f - all 2 1 f -").await, "[advanced 0]");
    assert_eq!(head(&mut task, "all").await, "1 1 1 0 d 1");
    assert_eq!(place(&mut task, "all").await, "failed");
    // A script visits a bounded number of nodes, whatever number is stored.
    put(&mut task, &line(), "endless").await;
    task.hset("nodes", &[("endless/0", "q")]).await;
    task.hset("shapes", &[("d@", "18446744073709551615 finish -")]).await;
    assert_eq!(advance(&mut task, "endless 0 1 c 7").await, "[advanced 0]");
    assert_eq!(place(&mut task, "endless").await, "failed");
    task.hset("shapes", &[("d@", "3 finish 2")]).await;
    put(&mut task, &line(), "b").await;
    let before = task.exact().await;
    assert_eq!(advance(&mut task, "b 7 1 c 7").await, "[advanced 0]");
    assert_eq!(task.exact().await, before);
}

#[tokio::test]
async fn an_instance_with_an_unreadable_size_waits_for_its_open_nodes() {
    let mut task = Task::new().await;
    let two = graph("finish", "-", &[("p 0 0", "- -", &[]), ("p 0 0", "- -", &[])]);
    put(&mut task, &two, "a").await;
    task.hset("nodes", &[("a/0", "garbage")]).await;
    task.hset("shapes", &[(&format!("{}@", two.digest), "20000 finish -")]).await;
    advance(&mut task, "a 0 1 c 7").await;
    assert_eq!(place(&mut task, "a").await, "running");
    assert!(task.field("stopping", "a").await.contains("corrupt"));
}

#[tokio::test]
async fn late_repeated_and_outdated_ends_change_nothing() {
    let mut task = Task::new().await;
    put(&mut task, &line(), "a").await;
    put(&mut task, &line(), "old").await;
    task.hset("instances", &[("old", "2 0 3 1 d -")]).await;
    advance(&mut task, "a 0 1 c 7").await;
    let before = task.exact().await;
    for late in [
        "a 0 1 c 7",
        "a 0 1 f error",
        "a 1 2 c 8",
        "a 1 0 c 8",
        "a 2 1 c pending",
        "a 3 1 c none",
        "a x 1 c none",
        "old 0 1 c 7",
        "nobody 0 1 c 7",
        "a 0 1 c 7 old 0 1 x - nobody 0 1 c 7",
    ] {
        assert_eq!(advance(&mut task, late).await, "[advanced 0]", "{late}");
        assert_eq!(task.exact().await, before, "{late}");
    }
    assert_eq!(task.ok("flow_advance", &[]).await, "[advanced 0]");
    // An ended instance accepts nothing.
    advance(&mut task, "a 1 1 f E").await;
    assert_eq!(place(&mut task, "a").await, "failed");
    task.hset("nodes", &[("a/2", "o")]).await;
    let before = task.exact().await;
    assert_eq!(advance(&mut task, "a 2 1 c 9").await, "[advanced 0]");
    assert_eq!(task.exact().await, before);
}

#[tokio::test]
async fn the_first_of_two_ends_in_one_call_counts() {
    let mut task = Task::new().await;
    put(&mut task, &line(), "a").await;
    assert_eq!(advance(&mut task, "a 0 1 f E a 0 1 c 7").await, "[advanced 0]");
    assert_eq!(states(&mut task, "a", 3).await, "f, s, s");
    assert_eq!(head(&mut task, "a").await, "1 1 0 0 d 0");
    assert_eq!(task.held("value").await, r#"hash {"a/0": "E"}"#);
}

#[tokio::test]
async fn a_failure_skips_all_nodes_that_depend_on_it() {
    for (how, said) in [("f", "E"), ("x", "-")] {
        let mut task = Task::new().await;
        put(&mut task, &line(), "a").await;
        assert_eq!(advance(&mut task, &format!("a 0 1 {how} {said}")).await, "[advanced 0]");
        assert_eq!(states(&mut task, "a", 3).await, format!("{how}, s, s"));
        assert_eq!(head(&mut task, "a").await, "1 1 0 0 d 0");
        assert_eq!(task.held("failed").await, r#"zset ["a": NOW]"#);
        assert_eq!(task.held("running").await + &task.held("outbox").await + &task.held("error").await, "");
    }
}

#[tokio::test]
async fn a_node_that_always_runs_waits_for_all_and_runs_in_any_case() {
    for (ends, last) in [(["c", "c"], "-"), (["f", "c"], "0"), (["c", "x"], "1"), (["f", "f"], "0")] {
        let mut task = Task::new().await;
        let nodes: [(&str, &str, &[usize]); 3] =
            [("p 0 0", "- -", &[2]), ("p 0 0", "- -", &[2]), ("P 2 2", "- -", &[])];
        put(&mut task, &graph("finish", "-", &nodes), "a").await;
        assert_eq!(advance(&mut task, &format!("a 0 1 {} -", ends[0])).await, "[advanced 0]");
        assert_eq!(task.field("nodes", "a/2").await, "P 1 1");
        assert_eq!(advance(&mut task, &format!("a 1 1 {} -", ends[1])).await, "[advanced 0 a 2 1 t '' 0 here in-2]");
        advance(&mut task, "a 2 1 c -").await;
        assert_eq!(head(&mut task, "a").await, format!("1 1 0 0 d {last}"));
        assert_eq!(place(&mut task, "a").await, if last == "-" { "completed" } else { "failed" });
    }
}

#[tokio::test]
async fn a_node_that_always_runs_is_reached_through_skipped_ones() {
    let mut task = Task::new().await;
    let nodes: [(&str, &str, &[usize]); 3] = [("p 0 0", "- -", &[1]), ("p 1 1", "- -", &[2]), ("P 1 1", "- 1", &[])];
    put(&mut task, &graph("finish", "-", &nodes), "a").await;
    assert_eq!(advance(&mut task, "a 0 1 f E").await, "[advanced 0 a 2 1 t '' 0 here null]");
    assert_eq!(states(&mut task, "a", 3).await, "f, s, o");
    assert_eq!(head(&mut task, "a").await, "1 0 1 1 d 0");
}

#[tokio::test]
async fn a_quorum_of_inputs_is_enough_and_else_the_node_is_skipped() {
    let nodes: [(&str, &str, &[usize]); 4] =
        [("p 0 0", "o -", &[3]), ("p 0 0", "o -", &[3]), ("p 0 0", "o -", &[3]), ("p 2 3", "- -", &[])];
    for (ends, states_after) in [
        (["c", "c", "c"], ["p 1 2", "o", "o"]),
        (["c", "c", "f"], ["p 1 2", "o", "o"]),
        (["f", "c", "c"], ["p 2 2", "p 1 1", "o"]),
        (["c", "f", "c"], ["p 1 2", "p 1 1", "o"]),
        (["c", "f", "f"], ["p 1 2", "p 1 1", "s"]),
        (["f", "f", "c"], ["p 2 2", "s", "s"]),
    ] {
        let mut task = Task::new().await;
        put(&mut task, &graph("finish", "-", &nodes), "a").await;
        for node in 0..3 {
            advance(&mut task, &format!("a {node} 1 {} -", ends[node])).await;
            assert_eq!(task.field("nodes", "a/3").await, states_after[node], "{ends:?}");
        }
        // All others are optional, and a skipped node breaks nothing.
        let ended = states_after[2] == "s";
        assert_eq!(head(&mut task, "a").await, if ended { "1 1 0 0 d -" } else { "1 0 1 1 d -" });
        assert_eq!(place(&mut task, "a").await, if ended { "completed" } else { "running" });
    }
}

#[tokio::test]
async fn an_instance_whose_output_did_not_run_has_failed() {
    let mut task = Task::new().await;
    let nodes: [(&str, &str, &[usize]); 2] = [("p 0 0", "o -", &[1]), ("p 1 1", "- 0", &[])];
    put(&mut task, &graph("finish", "1", &nodes), "a").await;
    advance(&mut task, "a 0 1 f E").await;
    assert_eq!(head(&mut task, "a").await, "1 1 0 0 d 1");
    assert_eq!(place(&mut task, "a").await, "failed");
    assert_eq!(task.held("output").await, "");
}

#[tokio::test]
async fn under_the_policy_cancel_the_last_open_node_ends_the_instance() {
    let nodes: [(&str, &str, &[usize]); 4] =
        [("p 0 0", "- -", &[2]), ("p 0 0", "- -", &[3]), ("p 1 1", "- 0", &[]), ("P 1 1", "- -", &[])];
    let mut task = Task::new().await;
    put(&mut task, &graph("cancel", "-", &nodes), "a").await;
    // The caller cancels the open nodes.
    assert_eq!(advance(&mut task, "a 0 1 f E").await, "[advanced 1 x a/1]");
    assert_eq!(states(&mut task, "a", 4).await, "f, o, p 1 1, P 1 1");
    assert_eq!(head(&mut task, "a").await, "1 0 3 1 d 0");
    assert_eq!(task.held("stopping").await, r#"hash {"a": "failed "}"#);
    assert_eq!(task.held("outbox").await, r#"zset ["x a/1": NOW]"#);
    // A node that completes now opens nothing, and a failure does not change the reason.
    assert_eq!(advance(&mut task, "a 1 1 c 7").await, "[advanced 0]");
    assert_eq!(states(&mut task, "a", 4).await, "f, c, p 1 1, P 1 1");
    assert_eq!(head(&mut task, "a").await, "1 1 2 0 d 0");
    assert_eq!(place(&mut task, "a").await, "failed");
    for key in ["stopping", "outbox", "error", "output"] {
        assert_eq!(task.held(key).await, "", "{key}");
    }
    // If nothing else is open, it ends at once; an optional node stops nothing.
    let nodes: [(&str, &str, &[usize]); 2] = [("p 0 0", "o -", &[1]), ("P 1 1", "- -", &[])];
    let mut task = Task::new().await;
    put(&mut task, &graph("cancel", "-", &nodes), "a").await;
    assert_eq!(advance(&mut task, "a 0 1 f E").await, "[advanced 0 a 1 1 t '' 0 here in-1]");
    advance(&mut task, "a 1 1 f E").await;
    assert_eq!((head(&mut task, "a").await.as_str(), place(&mut task, "a").await.as_str()), ("1 1 0 0 d 1", "failed"));
}

#[tokio::test]
async fn nodes_that_the_stopping_call_opened_count_as_open() {
    let nodes: [(&str, &str, &[usize]); 3] = [("p 0 0", "- -", &[2]), ("p 0 0", "- -", &[]), ("p 1 1", "- -", &[])];
    let mut task = Task::new().await;
    put(&mut task, &graph("cancel", "-", &nodes), "a").await;
    assert_eq!(advance(&mut task, "a 0 1 c 7 a 1 1 f E").await, "[advanced 1 x a/1 a 2 1 t '' 0 here in-2]");
    assert_eq!(head(&mut task, "a").await, "1 0 1 1 d 1");
    assert_eq!(task.held("outbox").await, r#"zset ["s a/2/1": NOW, "x a/1": NOW]"#);
    assert_eq!(said(&mut task, "flow_enter", "a 2 1").await, "[entered stale 0]");
    assert_eq!(place(&mut task, "a").await, "failed");
    assert_eq!(task.held("outbox").await, "");
}

#[tokio::test]
async fn ends_of_a_cancelled_instance_end_it_with_the_reason() {
    let mut task = Task::new().await;
    put(&mut task, &line(), "a").await;
    task.hset("stopping", &[("a", "cancelled too late\nfor it")]).await;
    assert_eq!(advance(&mut task, "a 0 1 f E").await, "[advanced 0]");
    assert_eq!(task.field("error", "a").await, "too late\nfor it");
    assert_eq!(head(&mut task, "a").await, "1 1 2 0 d -");
    assert_eq!(place(&mut task, "a").await, "cancelled");
}

#[tokio::test]
async fn a_paused_instance_accepts_ends_and_opens_nothing() {
    let mut task = Task::new().await;
    put(&mut task, &line(), "a").await;
    task.del("running").await;
    task.zadd("paused", 5.0, "a").await;
    assert_eq!(advance(&mut task, "a 0 1 c 7").await, "[advanced 0]");
    assert_eq!(states(&mut task, "a", 3).await, "c, p 0 0, p 1 1");
    assert_eq!(head(&mut task, "a").await, "1 0 2 0 d -");
    assert_eq!(task.held("paused").await, r#"zset ["a": 5]"#);
    assert_eq!(task.held("outbox").await, "");
}

#[tokio::test]
async fn a_call_reports_100_nodes_of_many_instances() {
    let mut task = Task::new().await;
    let mut ends = Vec::new();
    for number in 0..50 {
        put(&mut task, &line(), &number.to_string()).await;
        ends.push(format!("{number} 0 1 c {number} {number} 1 1 c {number}"));
    }
    let reply = advance(&mut task, &ends.join(" ")).await;
    assert_eq!(reply.matches(" 2 1 t '' 0 here ").count(), 50);
    assert!(reply.contains(" 49 1 1 t '' 0 here 49 49 2 1 t '' 0 here 49]"), "{reply}");
    for number in 0..50 {
        assert_eq!(head(&mut task, &number.to_string()).await, "1 0 1 1 d -");
    }
}

#[tokio::test]
async fn a_call_opens_100_nodes_and_stores_its_progress() {
    let mut task = Task::new().await;
    put(&mut task, &fan(400), "a").await;
    let reply = advance(&mut task, "a 0 1 c 7").await;
    assert!(reply.starts_with("[advanced 1 v a/0/1 a 1 1 t '' 0 here in-1 "), "{}", &reply[..60]);
    assert_eq!(reply.matches(" here in-").count(), 100);
    assert_eq!(task.held("cursor").await, r#"hash {"a/0/1": "100 c"}"#);
    assert!(task.held("outbox").await.contains(r#""v a/0/1": NOW"#));
    assert_eq!(head(&mut task, "a").await, "1 0 400 100 d -");
    assert_eq!((task.field("nodes", "a/100").await, task.field("nodes", "a/101").await), ("o".into(), "p 1 1".into()));
    // A copy of the call neither continues nor starts again.
    let before = task.exact().await;
    assert_eq!(advance(&mut task, "a 0 1 c 7").await, "[advanced 0]");
    assert_eq!(task.exact().await, before);
}

#[tokio::test]
async fn all_ends_of_a_call_share_one_budget() {
    let mut task = Task::new().await;
    for id in ["a", "b", "c"] {
        put(&mut task, &fan(60), id).await;
    }
    assert_eq!(advance(&mut task, "a 0 1 f E b 0 1 f E c 0 1 c 7").await, "[advanced 2 v b/0/1 v c/0/1]");
    assert_eq!(place(&mut task, "a").await, "failed");
    assert_eq!(task.held("cursor").await, r#"hash {"b/0/1": "40 -", "c/0/1": "0 c"}"#);
    assert_eq!(head(&mut task, "b").await, "1 0 20 0 d 0");
    assert_eq!(head(&mut task, "c").await, "1 0 60 0 d -");
    assert_eq!(place(&mut task, "c").await, "running");
    // The budget for nodes to be opened is shared too.
    let mut task = Task::new().await;
    for id in ["a", "b", "c"] {
        put(&mut task, &fan(75), id).await;
    }
    let reply = advance(&mut task, "a 0 1 c 7 b 0 1 c 7 c 0 1 f E").await;
    assert!(reply.starts_with("[advanced 2 v b/0/1 v c/0/1 a 1 1 "), "{}", &reply[..60]);
    assert_eq!(reply.matches(" here in-").count(), 100);
    assert_eq!(task.held("cursor").await, r#"hash {"b/0/1": "25 c", "c/0/1": "0 -"}"#);
    assert_eq!(head(&mut task, "b").await, "1 0 75 25 d -");
}

#[tokio::test]
async fn a_chain_of_skipped_nodes_continues_where_the_budget_ended() {
    let mut task = Task::new().await;
    put(&mut task, &long_line(203), "a").await;
    assert_eq!(advance(&mut task, "a 0 1 f E").await, "[advanced 1 v a/100/1]");
    assert_eq!(task.held("cursor").await, r#"hash {"a/100/1": "0 -"}"#);
    assert_eq!(task.held("outbox").await, r#"zset ["v a/100/1": NOW]"#);
    assert_eq!(head(&mut task, "a").await, "1 0 102 0 d 0");
    assert_eq!(said(&mut task, "flow_visit", "a 100 1").await, "[visited 1 v a/200/1]");
    assert_eq!(said(&mut task, "flow_visit", "a 200 1").await, "[visited 0]");
    assert_eq!(head(&mut task, "a").await, "1 1 0 0 d 0");
    assert_eq!(place(&mut task, "a").await, "failed");
    assert_eq!(task.held("cursor").await + &task.held("outbox").await, "");
}

#[tokio::test]
async fn values_over_16_kib_are_not_copied_but_named() {
    let mut task = Task::new().await;
    let nodes: [(&str, &str, &[usize]); 4] =
        [("p 0 0", "- -", &[1, 2, 3]), ("p 1 1", "- -", &[]), ("p 1 1", "- 0", &[]), ("p 1 1", "- -", &[])];
    for (bytes, told) in [
        (16 * 1024 - 8, "here in-1 a 2 1 t '' 0 here VALUE a 3 1 t '' 0 here in-3]"),
        (16 * 1024 - 7, "here in-1 a 2 1 t '' 0 here VALUE a 3 1 t '' 0 input a/3 4]"),
        (16 * 1024 - 3, "here in-1 a 2 1 t '' 0 value a/0 16381 a 3 1 t '' 0 here in-3]"),
        (1024 * 1024, "here in-1 a 2 1 t '' 0 value a/0 1048576 a 3 1 t '' 0 here in-3]"),
    ] {
        put(&mut task, &graph("finish", "-", &nodes), "a").await;
        let value = "v".repeat(bytes);
        let reply = advance(&mut task, &format!("a 0 1 c {value}")).await;
        assert_eq!(reply.replace(&value, "VALUE"), format!("[advanced 0 a 1 1 t '' 0 {told}"), "{bytes}");
    }
}

#[tokio::test]
async fn a_head_that_cannot_be_read_does_not_block_the_batch() {
    for broken in ["", "1 0 3 1 d", "one 0 3 1 d -", "1 0 -3 1 d -", "1 0 3 1 d - more"] {
        let mut task = Task::new().await;
        put(&mut task, &line(), "broken").await;
        put(&mut task, &line(), "a").await;
        task.hset("instances", &[("broken", broken)]).await;
        assert_eq!(
            advance(&mut task, "broken 0 1 c 7 a 0 1 c 7").await,
            "[advanced 0 a 1 1 t '' 0 here 7]",
            "{broken}"
        );
        assert_eq!(task.field("instances", "broken").await, broken);
        assert_eq!(states(&mut task, "broken", 3).await, "o, p 1 1, p 1 1");
    }
}

#[tokio::test]
async fn an_unreadable_instance_fails_and_others_continue() {
    for (key, field, value) in [
        ("shapes", "d/0", ""),
        ("shapes", "d/0", "no record"),
        ("shapes", "d/0", "- - t\n\n3 1"),
        ("shapes", "d/1", "no record"),
        ("shapes", "d/1", "- - \n\n0"),
        ("nodes", "a/1", "no state"),
        ("nodes", "a/1", "p 1"),
        ("nodes", "a/1", "p 1 -1"),
        ("nodes", "a/1", ""),
        ("input", "a/2", ""),
    ] {
        let nodes: [(&str, &str, &[usize]); 4] =
            [("p 0 0", "- -", &[1, 2]), ("p 1 1", "- 0", &[]), ("p 1 1", "- -", &[]), ("p 0 0", "- -", &[])];
        let mut task = Task::new().await;
        put(&mut task, &graph("finish", "-", &nodes), "a").await;
        put(&mut task, &long_line(2), "b").await;
        // The other one has its own shape.
        task.hset("instances", &[("b", "1 0 2 1 e -")]).await;
        for (of, to) in [("d@", "e@"), ("d/0", "e/0"), ("d/1", "e/1")] {
            let record = task.field("shapes", of).await;
            task.hset("shapes", &[(to, &record)]).await;
        }
        put(&mut task, &graph("finish", "-", &nodes), "a").await;
        task.hset(key, &[(field, value)]).await;
        let reply = advance(&mut task, "a 0 1 c 7 b 0 1 c 7").await;
        assert!(reply.contains(" b 1 1 t '' 0 here in-1"), "{key} {field} {value}: {reply}");
        assert_eq!(task.field("stopping", "a").await, format!("failed {UNREADABLE}"), "{key} {field} {value}");
        assert!(task.held("outbox").await.contains(r#""x a/1""#));
        assert!(head(&mut task, "a").await.ends_with(" d -"));
        // All open nodes are cancelled, and it ends.
        for node in 1..4 {
            advance(&mut task, &format!("a {node} 1 x -")).await;
        }
        assert_eq!(place(&mut task, "a").await, "failed", "{key} {field} {value}");
        assert_eq!(task.field("error", "a").await, UNREADABLE);
        assert_eq!(place(&mut task, "b").await, "running");
    }
}

#[tokio::test]
async fn a_missing_page_of_dependents_ends_the_instance() {
    let mut task = Task::new().await;
    put(&mut task, &fan(600), "a").await;
    task.hset("shapes", &[("d/0/1", "")]).await;
    assert_eq!(advance(&mut task, "a 0 1 f E").await, "[advanced 1 v a/0/1]");
    let more = "[visited 1 v a/0/1]";
    for reply in [more, more, more, more, "[visited 0]"] {
        assert_eq!(said(&mut task, "flow_visit", "a 0 1").await, reply);
    }
    assert_eq!(place(&mut task, "a").await, "failed");
    assert_eq!(task.field("error", "a").await, UNREADABLE);
    assert_eq!(head(&mut task, "a").await, "1 1 100 0 d 0");
}

#[tokio::test]
async fn an_unreadable_end_word_fails_the_instance() {
    for word in ["", "cancelled", "soon or never"] {
        let mut task = Task::new().await;
        put(&mut task, &line(), "a").await;
        task.hset("stopping", &[("a", word)]).await;
        advance(&mut task, "a 0 1 c 7").await;
        assert_eq!(place(&mut task, "a").await, "failed", "{word}");
        assert_eq!(task.held("stopping").await, "");
    }
}

#[tokio::test]
async fn an_instance_without_its_shape_ends_as_failed() {
    let mut task = Task::new().await;
    start(&mut task, &line(), "a").await;
    task.del("shapes").await;
    assert_eq!(advance(&mut task, "a 0 1 c 7").await, "[advanced 0]");
    assert_eq!(place(&mut task, "a").await, "failed");
    assert_eq!(task.field("error", "a").await, UNREADABLE);
}
