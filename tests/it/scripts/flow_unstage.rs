use crate::scripts::call::{Task, assert_keys, assert_rest, assert_text, unchanged};
use crate::scripts::flow::{Graph, graph, line, loose};

/// Writes all parts of a start that was abandoned long ago; returns its entry.
async fn given_up(task: &mut Task, graph: &Graph, id: &str) -> String {
    let parts = graph.parts(id, "n", 500, false).0;
    for part in &parts {
        task.ok("flow_stage", part).await;
    }
    let entry = format!("n {} 5 {} {}", parts.len(), graph.digest, graph.len());
    task.hset("staging", &[(id, &entry)]).await;
    entry
}

async fn unstage(task: &mut Task) -> String {
    task.ok("flow_unstage", "60000").await
}

/// As much as the parts of an abandoned start, which is removed in phases.
async fn nothing_is_left(task: &mut Task) {
    assert_rest!(task, "meta, tasks", "");
}

#[tokio::test]
async fn abandoned_starts_are_removed_and_young_or_running_ones_stay() {
    let mut task = Task::new().await;
    task.start(&line().named("e"), "runs").await;
    for part in line().named("f").parts("young", "n", 2, false).0 {
        task.ok("flow_stage", &part).await;
    }
    let before = task.exact().await;
    assert_eq!(unchanged!(task, unstage(&mut task).await), "[unstaged 0 0]");
    given_up(&mut task, &line(), "a").await;
    given_up(&mut task, &line(), "b").await;
    assert_keys!(task, "shapes.d#=2");
    assert_eq!(unstage(&mut task).await, "[unstaged 2 0]");
    assert_eq!(unstage(&mut task).await, "[unstaged 0 0]");
    assert_eq!(task.exact().await, before);
}

#[tokio::test]
async fn a_start_with_a_single_part_is_removed_too() {
    for count in 1..4 {
        let mut task = Task::new().await;
        for part in line().parts("a", "n", 2, false).0.iter().take(count) {
            task.ok("flow_stage", part).await;
        }
        task.hset("staging", &[("a", &format!("n {count} 5 d 3"))]).await;
        assert_eq!(unstage(&mut task).await, "[unstaged 1 0]");
        nothing_is_left(&mut task).await;
    }
}

#[tokio::test]
async fn a_large_start_is_removed_in_pages_and_then_its_shape() {
    let mut task = Task::new().await;
    given_up(&mut task, &loose(1_200), "a").await;
    for cursor in ["n 700", "n 200", "s 700", "s 200"] {
        assert_eq!(unstage(&mut task).await, "[unstaged 0 1]");
        assert_keys!(task, format!("cursor t a={cursor}; staging a=- 0 0 d 1200"));
    }
    assert_eq!(unstage(&mut task).await, "[unstaged 1 0]");
    nothing_is_left(&mut task).await;
}

#[tokio::test]
async fn a_shared_shape_stays_whole() {
    let mut task = Task::new().await;
    task.start_in_parts(&loose(1_200), "runs", "m", 500).await;
    let before = task.exact().await;
    let parts = loose(1_200).parts("a", "n", 500, true).0;
    for part in &parts {
        assert_eq!(task.ok("flow_stage", part).await, "[staged 1]");
    }
    task.write("staging a=n 6 5 d 1200").await;
    for reply in ["[unstaged 0 1]", "[unstaged 0 1]", "[unstaged 1 0]"] {
        assert_eq!(unstage(&mut task).await, reply);
    }
    assert_eq!(task.exact().await, before);
}

#[tokio::test]
async fn a_shape_that_is_sent_again_meanwhile_stays_whole() {
    for calls in 3..5 {
        let mut task = Task::new().await;
        given_up(&mut task, &loose(1_200), "a").await;
        for _ in 0..calls {
            assert_eq!(unstage(&mut task).await, "[unstaged 0 1]");
        }
        // The shape no longer counts as known, so this start sends all its records.
        assert_eq!(task.start_in_parts(&loose(1_200), "b", "m", 500).await, "[started]");
        let shape = task.held("shapes").await;
        assert_eq!(unstage(&mut task).await, "[unstaged 1 0]");
        assert_eq!(task.held("shapes").await, shape);
        assert_keys!(task, "shapes.d#=1");
        assert_eq!(task.trim_whole("b").await, [""; 0]);
    }
}

#[tokio::test]
async fn a_client_that_returns_is_refused_because_its_parts_are_gone() {
    let mut task = Task::new().await;
    given_up(&mut task, &loose(1_200), "a").await;
    let (parts, last) = loose(1_200).parts("a", "n", 500, false);
    for _ in 0..4 {
        assert_eq!(unstage(&mut task).await, "[unstaged 0 1]");
        for part in &parts[1..] {
            assert_eq!(task.unchanged("flow_stage", part).await, "[left]");
        }
        assert_eq!(task.unchanged("flow_start", &last).await, "[parts]");
    }
    assert_eq!(unstage(&mut task).await, "[unstaged 1 0]");
    nothing_is_left(&mut task).await;
}

#[tokio::test]
async fn a_start_that_restarts_during_its_removal_stays_whole() {
    for calls in 1..5 {
        for nodes in [1_200, 3] {
            let mut task = Task::new().await;
            given_up(&mut task, &loose(1_200), "a").await;
            for _ in 0..calls {
                assert_eq!(unstage(&mut task).await, "[unstaged 0 1]");
            }
            let graph = if nodes == 3 { line().named("e") } else { loose(nodes) };
            assert_eq!(task.start_in_parts(&graph, "a", "m", 500).await, "[started]", "{calls} {nodes}");
            assert_eq!(task.field("shapes", &format!("{}#", graph.digest)).await, "1", "{calls} {nodes}");
            assert_eq!(unstage(&mut task).await, "[unstaged 0 0]");
            assert_eq!(task.trim_whole("a").await, [""; 0], "{calls} {nodes}");
        }
    }
}

#[tokio::test]
async fn a_restart_takes_no_shape_from_a_running_instance() {
    let mut task = Task::new().await;
    given_up(&mut task, &loose(600), "a").await;
    for _ in 0..2 {
        assert_eq!(unstage(&mut task).await, "[unstaged 0 1]");
    }
    assert_keys!(task, "cursor.t a=s 100");
    task.start_in_parts(&loose(600), "a", "m", 500).await;
    task.start_in_parts(&loose(600), "b", "m", 500).await;
    assert!(task.ok("flow_open", "a 1").await.starts_with("[opened 1 0 a 0 1 "));
    task.trim_whole("b").await;
    assert!(task.held("shapes").await.contains(r#""d@": "600 finish -""#), "its shape is gone");
    task.write("outbox o a/1=5").await;
    assert_keys!(task, "cursor.a/1=64");
    for from in (64..600).step_by(64) {
        let more = u8::from(from + 64 < 600);
        assert_text!(task.ok("flow_open", "a 1").await, starts_with(&format!("[opened {more} 0 a {from} 1 ")));
    }
    assert_keys!(task, "head a=1 0 600 600 d -");
}

#[tokio::test]
async fn a_restart_with_another_graph_never_counts_below_zero() {
    let mut task = Task::new().await;
    given_up(&mut task, &loose(600), "a").await;
    for _ in 0..2 {
        assert_eq!(unstage(&mut task).await, "[unstaged 0 1]");
    }
    task.start_in_parts(&line().named("e"), "a", "m", 500).await;
    for id in ["b", "c"] {
        task.start_in_parts(&loose(600), id, "m", 500).await;
    }
    assert_keys!(task, "shapes.d#=2");
}

#[tokio::test]
async fn a_restart_in_one_call_stays_whole_and_is_removed_whole() {
    for calls in 1..5 {
        let mut task = Task::new().await;
        given_up(&mut task, &loose(1_200), "a").await;
        for _ in 0..calls {
            unstage(&mut task).await;
        }
        assert_eq!(task.start(&line().named("e"), "a").await, "[started a 0 1 t '' 0 here in-0]");
        unstage(&mut task).await;
        assert_keys!(task, "place a=running");
        assert_eq!(task.trim_whole("a").await, [""; 0], "{calls}");
    }
}

#[tokio::test]
async fn an_unreadable_entry_is_removed_and_blocks_no_other() {
    for rows in [
        "staging bad=",
        "staging bad=what",
        "staging bad=n 2 5",
        "staging bad=n two 5 d 3",
        "staging bad=n 2 5 d many",
        // It was damaged during its removal.
        "staging bad=what; cursor t bad=s 400",
    ] {
        let mut task = Task::new().await;
        given_up(&mut task, &line(), "good").await;
        task.write(rows).await;
        assert_eq!(unstage(&mut task).await, "[unstaged 2 0]", "{rows}");
        nothing_is_left(&mut task).await;
    }
}

#[tokio::test]
async fn an_impossible_number_in_an_entry_blocks_no_removal() {
    // A time of a clock that went back, a number of nodes, and a cursor.
    for rows in ["staging a=n 1 9000000000000000 d 3", "staging a=n 1 5 d 999999999", "cursor t a=n 999999999"] {
        let mut task = Task::new().await;
        given_up(&mut task, &line(), "a").await;
        task.write(rows).await;
        assert_eq!(unstage(&mut task).await, "[unstaged 1 0]", "{rows}");
        if !rows.contains("d 999999999") {
            nothing_is_left(&mut task).await;
        }
    }
}

#[tokio::test]
async fn an_entry_without_a_shape_count_is_removed_without_its_shape() {
    for count in ["many", "-3", "1.5", ""] {
        let mut task = Task::new().await;
        given_up(&mut task, &line(), "a").await;
        task.hset("shapes", &[("d#", count)]).await;
        assert_eq!(unstage(&mut task).await, "[unstaged 1 0]", "{count}");
        assert_keys!(task, "shapes.d/0=- - t\n\n1 1");
        assert_rest!(task, "meta, shapes", "");
    }
}

#[tokio::test]
async fn a_call_removes_twenty_starts_and_reports_more() {
    let mut task = Task::new().await;
    for number in 0..30 {
        given_up(&mut task, &loose(1), &number.to_string()).await;
    }
    assert_eq!(unstage(&mut task).await, "[unstaged 20 1]");
    assert_eq!(unstage(&mut task).await, "[unstaged 10 0]");
    nothing_is_left(&mut task).await;
}

#[tokio::test]
async fn an_abandoned_child_is_removed_and_its_node_stays_open() {
    let mut task = Task::running_flow(&graph("finish", "0", "p 0 0, g -")).await;
    let before = task.exact().await;
    given_up(&mut task, &line().named("e"), "a/0.1").await;
    assert_eq!(unstage(&mut task).await, "[unstaged 1 0]");
    assert_eq!(task.exact().await, before);
}
