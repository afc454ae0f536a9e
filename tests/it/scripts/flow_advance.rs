use crate::scripts::call::{Task, assert_keys, assert_rest, unchanged};
use crate::scripts::flow::{UNREADABLE, fan, graph, line, long_line};

async fn advance(task: &mut Task, ends: &str) -> String {
    task.ok("flow_advance", ends).await
}

#[tokio::test]
async fn the_next_node_opens_with_the_value_of_the_completed_one() {
    let mut task = Task::running_flow(&line()).await;
    task.write("outbox s a/0/1=5").await;
    assert_eq!(advance(&mut task, "a 0 1 c 7").await, "[advanced 0 a 1 1 t '' 0 here 7]");
    assert_rest!(
        task,
        "meta, shapes",
        "input a/0=in-0; instances a=1 0 2 1 d -; nodes a/0=c, a/1=o, a/2=p 1 1; outbox s a/1/1=NOW; running a=NOW; \
         value a/0=7"
    );
    // A node without a value passes none.
    assert_eq!(advance(&mut task, "a 1 1 c -").await, "[advanced 0 a 2 1 t '' 0 here null]");
    assert_eq!(advance(&mut task, "a 2 1 c 9").await, "[advanced 0]");
    assert_rest!(
        task,
        "meta, shapes, input, value",
        "completed a=NOW; instances a=1 1 0 0 d -; nodes a/0=c, a/1=c, a/2=c; output a=9"
    );
}

#[tokio::test]
async fn a_node_that_ends_in_the_call_that_opens_it_is_not_in_the_outbox() {
    let mut task = Task::running_flow(&line()).await;
    advance(&mut task, "a 0 1 c 7 a 1 1 c 8").await;
    assert_keys!(task, "states a=c, c, o; outbox s a/2/1=NOW");
}

#[tokio::test]
async fn nodes_in_the_same_state_count_their_inputs_each_for_itself() {
    let mut task = Task::new().await;
    let joined = "p 0 0, - -, 3 4; p 0 0, - -, 3 4; p 0 0, - -, 3 4; p 3 3, - -; p 3 3, - -";
    task.put(&graph("finish", "-", joined), "a").await;
    assert_eq!(advance(&mut task, "a 0 1 c - a 1 1 c -").await, "[advanced 0]");
    assert_keys!(task, "states a=c, c, o, p 1 1, p 1 1");
    let opened = "a 3 1 t '' 0 here in-3 a 4 1 t '' 0 here in-4";
    assert_eq!(advance(&mut task, "a 2 1 c -").await, format!("[advanced 0 {opened}]"));
    assert_keys!(task, "states a=c, c, c, o, o");
}

#[tokio::test]
async fn an_unknown_state_counts_as_failed_for_known_nodes_only() {
    let mut task = Task::new().await;
    for (id, damage) in [("word", "q"), ("empty", ""), ("number", "5 o"), ("alike", "garbage")] {
        task.put(&line(), id).await;
        task.hset("nodes", &[(&format!("{id}/0"), damage)]).await;
        assert_eq!(advance(&mut task, &format!("{id} 0 1 c 7")).await, "[advanced 0]");
        assert_keys!(task, format!("states {id}=f, s, s"));
        let said = task.field("value", &format!("{id}/0")).await;
        assert_eq!(said, r#"{"code":"corrupt","message":"its state cannot be read"}"#);
        assert_keys!(task, format!("place {id}=failed"));
    }
    // A damaged node that was not open ends alone: the handler of the first node still runs.
    task.put(&line(), "waits").await;
    task.write("nodes waits/1=zz; stopping waits=cancelled why").await;
    assert_eq!(advance(&mut task, "waits 1 1 f -").await, "[advanced 0]");
    assert_keys!(task, "head waits=1 0 2 1 d -");
    assert_eq!(advance(&mut task, "waits 0 1 x -").await, "[advanced 0]");
    assert_keys!(task, "place waits=cancelled");
    // Two damaged nodes in one call: the instance stops at the second, since no node is known to run.
    task.put(&line(), "all").await;
    task.write("nodes all/0=q, all/1=q, all/2=q").await;
    assert_eq!(advance(&mut task, "all 1 1 f - all 2 1 f -").await, "[advanced 0]");
    assert_keys!(task, "head all=1 1 1 0 d 1; place all=failed");
    // A script visits a bounded number of nodes, whatever number is stored.
    task.put(&line(), "endless").await;
    task.write("nodes endless/0=q; shapes d@=18446744073709551615 finish -").await;
    assert_eq!(advance(&mut task, "endless 0 1 c 7").await, "[advanced 0]");
    assert_keys!(task, "place endless=failed");
    task.write("shapes d@=3 finish 2").await;
    task.put(&line(), "b").await;
    assert_eq!(unchanged!(task, advance(&mut task, "b 7 1 c 7").await), "[advanced 0]");
}

#[tokio::test]
async fn an_instance_with_an_unreadable_size_waits_for_its_open_nodes() {
    let mut task = Task::new().await;
    let two = graph("finish", "-", "p 0 0, - -; p 0 0, - -");
    task.put(&two, "a").await;
    task.write("nodes a/0=garbage").await;
    task.hset("shapes", &[(&format!("{}@", two.digest), "20000 finish -")]).await;
    advance(&mut task, "a 0 1 c 7").await;
    assert_keys!(task, "place a=running");
    assert!(task.field("stopping", "a").await.contains("corrupt"));
}

#[tokio::test]
async fn late_repeated_and_outdated_ends_change_nothing() {
    let mut task = Task::running_flow(&line()).await;
    task.put(&line(), "old").await;
    task.write("instances old=2 0 3 1 d -").await;
    advance(&mut task, "a 0 1 c 7").await;
    for late in "a 0 1 c 7; a 0 1 f error; a 1 2 c 8; a 1 0 c 8; a 2 1 c pending; a 3 1 c none; a x 1 c none; \
         old 0 1 c 7; absent 0 1 c 7; a 0 1 c 7 old 0 1 x - absent 0 1 c 7"
        .split("; ")
    {
        assert_eq!(task.unchanged("flow_advance", late).await, "[advanced 0]", "{late}");
    }
    assert_eq!(task.ok("flow_advance", "").await, "[advanced 0]");
    // An ended instance accepts nothing.
    advance(&mut task, "a 1 1 f E").await;
    assert_keys!(task, "place a=failed");
    task.write("nodes a/2=o").await;
    assert_eq!(unchanged!(task, advance(&mut task, "a 2 1 c 9").await), "[advanced 0]");
}

#[tokio::test]
async fn the_first_of_two_ends_in_one_call_counts() {
    let mut task = Task::running_flow(&line()).await;
    assert_eq!(advance(&mut task, "a 0 1 f E a 0 1 c 7").await, "[advanced 0]");
    assert_keys!(task, "states a=f, s, s; head a=1 1 0 0 d 0; value a/0=E");
}

#[tokio::test]
async fn a_failure_skips_all_nodes_that_depend_on_it() {
    for (how, said) in [("f", "E"), ("x", "-")] {
        let mut task = Task::running_flow(&line()).await;
        assert_eq!(advance(&mut task, &format!("a 0 1 {how} {said}")).await, "[advanced 0]");
        assert_keys!(task, format!("states a={how}, s, s"));
        assert_keys!(task, "head a=1 1 0 0 d 0; failed a=NOW; no running, outbox, error");
    }
}

#[tokio::test]
async fn a_node_that_always_runs_waits_for_all_and_runs_in_any_case() {
    for (ends, last) in [(["c", "c"], "-"), (["f", "c"], "0"), (["c", "x"], "1"), (["f", "f"], "0")] {
        let mut task = Task::running_flow(&graph("finish", "-", "p 0 0, - -, 2; p 0 0, - -, 2; P 2 2, - -")).await;
        assert_eq!(advance(&mut task, &format!("a 0 1 {} -", ends[0])).await, "[advanced 0]");
        assert_keys!(task, "nodes.a/2=P 1 1");
        assert_eq!(advance(&mut task, &format!("a 1 1 {} -", ends[1])).await, "[advanced 0 a 2 1 t '' 0 here in-2]");
        advance(&mut task, "a 2 1 c -").await;
        assert_keys!(task, format!("head a=1 1 0 0 d {last}"));
        assert_eq!(task.place("a").await, if last == "-" { "completed" } else { "failed" });
    }
}

#[tokio::test]
async fn a_node_that_always_runs_is_reached_through_skipped_ones() {
    let mut task = Task::running_flow(&graph("finish", "-", "p 0 0, - -, 1; p 1 1, - -, 2; P 1 1, - 1")).await;
    assert_eq!(advance(&mut task, "a 0 1 f E").await, "[advanced 0 a 2 1 t '' 0 here null]");
    assert_keys!(task, "states a=f, s, o; head a=1 0 1 1 d 0");
}

#[tokio::test]
async fn a_quorum_of_inputs_is_enough_and_else_the_node_is_skipped() {
    let nodes = "p 0 0, o -, 3; p 0 0, o -, 3; p 0 0, o -, 3; p 2 3, - -";
    for (ends, states_after) in [
        (["c", "c", "c"], ["p 1 2", "o", "o"]),
        (["c", "c", "f"], ["p 1 2", "o", "o"]),
        (["f", "c", "c"], ["p 2 2", "p 1 1", "o"]),
        (["c", "f", "c"], ["p 1 2", "p 1 1", "o"]),
        (["c", "f", "f"], ["p 1 2", "p 1 1", "s"]),
        (["f", "f", "c"], ["p 2 2", "s", "s"]),
    ] {
        let mut task = Task::running_flow(&graph("finish", "-", nodes)).await;
        for node in 0..3 {
            advance(&mut task, &format!("a {node} 1 {} -", ends[node])).await;
            assert_eq!(task.field("nodes", "a/3").await, states_after[node], "{ends:?}");
        }
        // All others are optional, and a skipped node breaks nothing.
        let ended = states_after[2] == "s";
        assert_eq!(task.head("a").await, if ended { "1 1 0 0 d -" } else { "1 0 1 1 d -" });
        assert_eq!(task.place("a").await, if ended { "completed" } else { "running" });
    }
}

#[tokio::test]
async fn an_instance_whose_output_did_not_run_has_failed() {
    let mut task = Task::running_flow(&graph("finish", "1", "p 0 0, o -, 1; p 1 1, - 0")).await;
    advance(&mut task, "a 0 1 f E").await;
    assert_keys!(task, "head a=1 1 0 0 d 1; place a=failed; no output");
}

#[tokio::test]
async fn under_the_policy_cancel_the_last_open_node_ends_the_instance() {
    let nodes = "p 0 0, - -, 2; p 0 0, - -, 3; p 1 1, - 0; P 1 1, - -";
    let mut task = Task::running_flow(&graph("cancel", "-", nodes)).await;
    // The caller cancels the open nodes.
    assert_eq!(advance(&mut task, "a 0 1 f E").await, "[advanced 1 x a/1]");
    assert_keys!(task, "states a=f, o, p 1 1, P 1 1; head a=1 0 3 1 d 0; stopping a=failed ; outbox x a/1=NOW");
    // A node that completes now opens nothing, and a failure does not change the reason.
    assert_eq!(advance(&mut task, "a 1 1 c 7").await, "[advanced 0]");
    assert_keys!(task, "states a=f, c, p 1 1, P 1 1; head a=1 1 2 0 d 0; place a=failed");
    assert_keys!(task, "no stopping, outbox, error, output");
    // Without other open nodes the instance ends at once; an optional node stops nothing.
    let mut task = Task::running_flow(&graph("cancel", "-", "p 0 0, o -, 1; P 1 1, - -")).await;
    assert_eq!(advance(&mut task, "a 0 1 f E").await, "[advanced 0 a 1 1 t '' 0 here in-1]");
    advance(&mut task, "a 1 1 f E").await;
    assert_eq!((task.head("a").await.as_str(), task.place("a").await.as_str()), ("1 1 0 0 d 1", "failed"));
}

#[tokio::test]
async fn nodes_that_the_stopping_call_opened_count_as_open() {
    let mut task = Task::running_flow(&graph("cancel", "-", "p 0 0, - -, 2; p 0 0, - -; p 1 1, - -")).await;
    assert_eq!(advance(&mut task, "a 0 1 c 7 a 1 1 f E").await, "[advanced 1 x a/1 a 2 1 t '' 0 here in-2]");
    assert_keys!(task, "head a=1 0 1 1 d 1; outbox s a/2/1=NOW, x a/1=NOW");
    assert_eq!(task.ok("flow_enter", "a 2 1").await, "[entered stale 0]");
    assert_keys!(task, "place a=failed; no outbox");
}

#[tokio::test]
async fn ends_of_a_cancelled_instance_end_it_with_the_reason() {
    let mut task = Task::running_flow(&line()).await;
    task.write("stopping a=cancelled too late\nfor it").await;
    assert_eq!(advance(&mut task, "a 0 1 f E").await, "[advanced 0]");
    assert_keys!(task, "error.a=too late\nfor it; head a=1 1 2 0 d -; place a=cancelled");
}

#[tokio::test]
async fn a_paused_instance_accepts_ends_and_opens_nothing() {
    let mut task = Task::running_flow(&line()).await;
    task.write("no running; paused a=5").await;
    assert_eq!(advance(&mut task, "a 0 1 c 7").await, "[advanced 0]");
    assert_keys!(task, "states a=c, p 0 0, p 1 1; head a=1 0 2 0 d -; paused a=5; no outbox");
}

#[tokio::test]
async fn a_call_reports_64_nodes_of_many_instances() {
    let mut task = Task::new().await;
    let mut ends = Vec::new();
    for number in 0..32 {
        task.put(&line(), &number.to_string()).await;
        ends.push(format!("{number} 0 1 c {number} {number} 1 1 c {number}"));
    }
    let reply = advance(&mut task, &ends.join(" ")).await;
    assert_eq!(reply.matches(" 2 1 t '' 0 here ").count(), 32);
    assert!(reply.contains(" 31 1 1 t '' 0 here 31 31 2 1 t '' 0 here 31]"), "{reply}");
    for number in 0..32 {
        assert_eq!(task.head(&number.to_string()).await, "1 0 1 1 d -");
    }
}

#[tokio::test]
async fn a_call_opens_64_nodes_and_stores_its_progress() {
    let mut task = Task::running_flow(&fan(400)).await;
    let reply = advance(&mut task, "a 0 1 c 7").await;
    assert!(reply.starts_with("[advanced 1 v a/0/1 a 1 1 t '' 0 here in-1 "), "{}", &reply[..60]);
    assert_eq!(reply.matches(" here in-").count(), 64);
    assert_keys!(task, "cursor a/0/1=64 c");
    assert!(task.held("outbox").await.contains(r#""v a/0/1": NOW"#));
    assert_keys!(task, "head a=1 0 400 64 d -");
    assert_eq!((task.field("nodes", "a/64").await, task.field("nodes", "a/65").await), ("o".into(), "p 1 1".into()));
    // A copy of the call neither continues nor starts again.
    assert_eq!(unchanged!(task, advance(&mut task, "a 0 1 c 7").await), "[advanced 0]");
}

#[tokio::test]
async fn all_ends_of_a_call_share_one_budget() {
    let mut task = Task::new().await;
    for id in ["a", "b", "c"] {
        task.put(&fan(60), id).await;
    }
    assert_eq!(advance(&mut task, "a 0 1 f E b 0 1 f E c 0 1 c 7").await, "[advanced 2 v b/0/1 v c/0/1]");
    assert_keys!(task, "place a=failed; cursor b/0/1=4 -, c/0/1=0 c; head b=1 0 56 0 d 0; head c=1 0 60 0 d -");
    assert_keys!(task, "place c=running");
    // The budget for nodes to be opened is shared too.
    let mut task = Task::new().await;
    for id in ["a", "b", "c"] {
        task.put(&fan(40), id).await;
    }
    let reply = advance(&mut task, "a 0 1 c 7 b 0 1 c 7 c 0 1 f E").await;
    assert!(reply.starts_with("[advanced 2 v b/0/1 v c/0/1 a 1 1 "), "{}", &reply[..60]);
    assert_eq!(reply.matches(" here in-").count(), 64);
    assert_keys!(task, "cursor b/0/1=24 c, c/0/1=0 -; head b=1 0 40 24 d -");
}

#[tokio::test]
async fn a_chain_of_skipped_nodes_continues_where_the_budget_ended() {
    let mut task = Task::running_flow(&long_line(131)).await;
    assert_eq!(advance(&mut task, "a 0 1 f E").await, "[advanced 1 v a/64/1]");
    assert_keys!(task, "cursor a/64/1=0 -; outbox v a/64/1=NOW; head a=1 0 66 0 d 0");
    assert_eq!(task.ok("flow_visit", "a 64 1").await, "[visited 1 v a/128/1]");
    assert_eq!(task.ok("flow_visit", "a 128 1").await, "[visited 0]");
    assert_keys!(task, "head a=1 1 0 0 d 0; place a=failed; no cursor, outbox");
}

#[tokio::test]
async fn values_over_16_kib_are_not_copied_but_named() {
    let mut task = Task::new().await;
    for (bytes, told) in [
        (16 * 1024 - 8, "here in-1 a 2 1 t '' 0 here VALUE a 3 1 t '' 0 here in-3]"),
        (16 * 1024 - 7, "here in-1 a 2 1 t '' 0 here VALUE a 3 1 t '' 0 input a/3 4]"),
        (16 * 1024 - 3, "here in-1 a 2 1 t '' 0 value a/0 16381 a 3 1 t '' 0 here in-3]"),
        (1024 * 1024, "here in-1 a 2 1 t '' 0 value a/0 1048576 a 3 1 t '' 0 here in-3]"),
    ] {
        task.put(&graph("finish", "-", "p 0 0, - -, 1 2 3; p 1 1, - -; p 1 1, - 0; p 1 1, - -"), "a").await;
        let value = "v".repeat(bytes);
        let reply = advance(&mut task, &format!("a 0 1 c {value}")).await;
        assert_eq!(reply.replace(&value, "VALUE"), format!("[advanced 0 a 1 1 t '' 0 {told}"), "{bytes}");
    }
}

#[tokio::test]
async fn a_head_that_cannot_be_read_does_not_block_the_batch() {
    for broken in ["", "1 0 3 1 d", "one 0 3 1 d -", "1 0 -3 1 d -", "1 0 3 1 d - more"] {
        let mut task = Task::new().await;
        task.put(&line(), "broken").await;
        task.put(&line(), "a").await;
        task.hset("instances", &[("broken", broken)]).await;
        assert_eq!(
            advance(&mut task, "broken 0 1 c 7 a 0 1 c 7").await,
            "[advanced 0 a 1 1 t '' 0 here 7]",
            "{broken}"
        );
        assert_keys!(task, format!("instances.broken={broken}; states broken=o, p 1 1, p 1 1"));
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
        let nodes = "p 0 0, - -, 1 2; p 1 1, - 0; p 1 1, - -; p 0 0, - -";
        let mut task = Task::running_flow(&graph("finish", "-", nodes)).await;
        task.put(&long_line(2), "b").await;
        // The other one has its own shape.
        task.write("instances b=1 0 2 1 e -").await;
        for (of, to) in [("d@", "e@"), ("d/0", "e/0"), ("d/1", "e/1")] {
            let record = task.field("shapes", of).await;
            task.hset("shapes", &[(to, &record)]).await;
        }
        task.put(&graph("finish", "-", nodes), "a").await;
        task.hset(key, &[(field, value)]).await;
        let reply = advance(&mut task, "a 0 1 c 7 b 0 1 c 7").await;
        assert!(reply.contains(" b 1 1 t '' 0 here in-1"), "{key} {field} {value}: {reply}");
        assert_keys!(task, format!("stopping.a=failed {UNREADABLE}"), "{key} {field} {value}");
        assert!(task.held("outbox").await.contains(r#""x a/1""#));
        assert!(task.head("a").await.ends_with(" d -"));
        // All open nodes are cancelled, and it ends.
        for node in 1..4 {
            advance(&mut task, &format!("a {node} 1 x -")).await;
        }
        assert_keys!(task, "place a=failed", "{key} {field} {value}");
        assert_keys!(task, format!("error.a={UNREADABLE}; place b=running"));
    }
}

#[tokio::test]
async fn a_missing_page_of_dependents_ends_the_instance() {
    let mut task = Task::running_flow(&fan(600)).await;
    task.write("shapes d/0/1=").await;
    assert_eq!(advance(&mut task, "a 0 1 f E").await, "[advanced 1 v a/0/1]");
    for _ in 0..6 {
        assert_eq!(task.ok("flow_visit", "a 0 1").await, "[visited 1 v a/0/1]");
    }
    assert_eq!(task.ok("flow_visit", "a 0 1").await, "[visited 0]");
    assert_keys!(task, format!("place a=failed; error.a={UNREADABLE}; head a=1 1 100 0 d 0"));
}

#[tokio::test]
async fn an_unreadable_end_word_fails_the_instance() {
    for word in ["", "cancelled", "soon or never"] {
        let mut task = Task::running_flow(&line()).await;
        task.hset("stopping", &[("a", word)]).await;
        advance(&mut task, "a 0 1 c 7").await;
        assert_keys!(task, "place a=failed", "{word}");
        assert_keys!(task, "no stopping");
    }
}

#[tokio::test]
async fn an_instance_without_its_shape_ends_as_failed() {
    let mut task = Task::new().await;
    task.start(&line(), "a").await;
    task.write("no shapes").await;
    assert_eq!(advance(&mut task, "a 0 1 c 7").await, "[advanced 0]");
    assert_keys!(task, format!("place a=failed; error.a={UNREADABLE}"));
}
