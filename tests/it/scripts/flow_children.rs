//! Graphs as nodes: an instance `a` whose second node is a graph, or one that a job returned, and the instances that
//! run them.

use crate::scripts::call::{Task, without};
use crate::scripts::flow::{
    Graph, Node, UNREADABLE, graph, head, line, long_line, lose, place, put, said, start, states,
};
use crate::scripts::flow::{start_in_parts, take_out, trim_whole};

const STOPPED: &str = r#"{"code":"cancelled","message":"its workflow was stopped"}"#;
const SKIPPED: &str = r#"{"code":"skipped","message":"its output node did not run"}"#;

/// A job, a graph after it, and a job that takes its value, which is the output.
fn parent(policy: &'static str) -> Graph {
    graph(policy, "2", &[("p 0 0", "- -", &[1]), ("p 1 1", "g -", &[2]), ("p 1 1", "- 1", &[])])
}

/// A single job, which is the output.
fn one() -> Graph {
    graph("finish", "0", &[("p 0 0", "- -", &[])]).named("e")
}

/// A single graph, which is the output.
fn graph_alone() -> Graph {
    graph("finish", "0", &[("p 0 0", "g -", &[])]).named("f")
}

/// An instance `a` of [`parent`] whose graph is to start.
async fn to_start(policy: &'static str) -> Task {
    let mut task = Task::new().await;
    put(&mut task, &parent(policy), "a").await;
    task.hset("shapes", &[("d#", "1")]).await;
    assert_eq!(advance(&mut task, "a 0 1 c 7").await, "[advanced 0 a 1 1 @ '' 0 here in-1]");
    task
}

/// The same with a running child of this graph.
async fn with_child(policy: &'static str, child: &Graph) -> Task {
    let mut task = to_start(policy).await;
    assert!(start(&mut task, child, "a/1.1").await.starts_with("[started a/1.1 0 1 t '' 0 here in-0"));
    task
}

/// An instance `a` of this many independent graphs.
async fn of_graphs(count: usize) -> Task {
    let nodes: Vec<Node> = (0..count).map(|_| ("p 0 0", "g -", &[][..])).collect();
    let mut task = Task::new().await;
    put(&mut task, &graph("finish", "-", &nodes), "a").await;
    task
}

async fn advance(task: &mut Task, ends: &str) -> String {
    said(task, "flow_advance", ends).await
}

/// The job of a node returned this value and this graph.
async fn grow(task: &mut Task, node: &str, value: &str, graph: &str) -> String {
    let result = format!("\u{1}{} {value}{graph}", value.len());
    let mut args: Vec<&str> = node.split(' ').collect();
    args.extend(["c", &result]);
    task.ok("flow_advance", &args).await
}

/// These calls change nothing, whatever they report.
async fn nothing_changes(task: &mut Task, calls: &[(&str, &str)]) {
    for (name, words) in calls {
        let before = task.exact().await;
        said(task, name, words).await;
        assert_eq!(task.exact().await, before, "{name} {words}");
    }
}

#[tokio::test]
async fn a_graph_runs_as_a_child_that_ends_its_node_in_the_same_call() {
    let mut task = to_start("finish").await;
    assert_eq!(states(&mut task, "a", 3).await, "c, g, p 1 1");
    assert_eq!(head(&mut task, "a").await, "1 0 2 1 d -");
    assert_eq!(task.held("outbox").await, r#"zset ["s a/1/1": NOW]"#);
    assert_eq!(start(&mut task, &one(), "a/1.1").await, "[started a/1.1 0 1 t '' 0 here in-0]");
    assert_eq!(
        without(task.keys().await, &["meta", "shapes"]),
        [
            r#"children zset ["a/1.1": 0]"#,
            r#"input hash {"a/0": "in-0", "a/1": "in-1", "a/1.1/0": "in-0"}"#,
            r#"instances hash {"a": "1 0 2 1 d -", "a/1.1": "1 0 1 1 e -"}"#,
            r#"nodes hash {"a/0": "c", "a/1": "g", "a/1.1/0": "o", "a/2": "p 1 1"}"#,
            r#"outbox zset ["s a/1/1": NOW, "s a/1.1/0/1": NOW]"#,
            r#"running zset ["a": NOW, "a/1.1": NOW]"#,
            r#"tasks zset ["t": NOW]"#,
            r#"value hash {"a/0": "7"}"#,
        ]
    );
    assert_eq!(task.ok("flow_state", &["a/1.1"]).await, "[state running 1 1 1 e - '' '' 0 0]");
    assert_eq!(advance(&mut task, "a/1.1 0 1 c 8").await, "[advanced 0 a 2 1 t '' 0 here 8]");
    assert_eq!(
        without(task.keys().await, &["meta", "shapes", "input", "tasks"]),
        [
            r#"children zset ["a/1.1": 0]"#,
            r#"instances hash {"a": "1 0 1 1 d -", "a/1.1": "1 1 0 0 e - 0 c"}"#,
            r#"nodes hash {"a/0": "c", "a/1": "c", "a/1.1/0": "c", "a/2": "o"}"#,
            r#"outbox zset ["s a/2/1": NOW]"#,
            r#"running zset ["a": NOW]"#,
            r#"value hash {"a/0": "7", "a/1": "8", "a/1.1/0": "8"}"#,
        ]
    );
    assert_eq!(task.ok("flow_state", &["a/1.1"]).await, "[state completed 1 0 0 e - '' '' 1 0]");
    assert_eq!(task.ok("flow_nodes", &["a/1.1", "0", "9"]).await, "[nodes 1 1 c]");
    advance(&mut task, "a 2 1 c 9").await;
    assert_eq!(task.ok("flow_state", &["a"]).await, "[state completed 1 0 0 d - '' 9 1 0]");
}

#[tokio::test]
async fn a_first_node_that_is_a_graph_starts_with_the_instance() {
    let mut task = Task::new().await;
    let graphs = graph("finish", "-", &[("p 0 0", "g -", &[]), ("p 0 0", "- -", &[])]);
    assert_eq!(start(&mut task, &graphs, "a").await, "[started a 0 1 @ '' 0 here in-0 a 1 1 t '' 0 here in-1]");
    assert_eq!(states(&mut task, "a", 2).await, "g, o");
    assert_eq!(head(&mut task, "a").await, "1 0 2 2 d -");
    // In parts it opens like the others.
    let mut task = Task::new().await;
    start_in_parts(&mut task, &graphs, "a", "n", 2).await;
    assert_eq!(said(&mut task, "flow_open", "a 1").await, "[opened 0 0 a 0 1 @ '' 0 here in-0 a 1 1 t '' 0 here in-1]");
    assert_eq!(states(&mut task, "a", 2).await, "g, o");
}

#[tokio::test]
async fn a_late_or_repeated_start_starts_no_other_child() {
    let mut task = with_child("finish", &one()).await;
    for _ in 0..2 {
        let before = task.exact().await;
        assert_eq!(start(&mut task, &one(), "a/1.1").await, "[existed]");
        assert_eq!(start(&mut task, &line(), "a/1.1").await, "[existed]");
        assert_eq!(task.exact().await, before);
        advance(&mut task, "a/1.1 0 1 c 8").await;
    }
}

#[tokio::test]
async fn a_start_that_no_node_waits_for_is_stale_and_writes_nothing() {
    for change in ["pending", "job", "ended", "run", "stopping", "gone", "unreadable", "completed", "empty"] {
        let mut task = to_start("finish").await;
        match change {
            "pending" => task.hset("nodes", &[("a/1", "p 0 0")]).await,
            "job" => task.hset("nodes", &[("a/1", "o")]).await,
            "completed" => task.hset("nodes", &[("a/1", "c")]).await,
            "empty" => task.hset("nodes", &[("a/1", "")]).await,
            "ended" => {
                take_out(&mut task, "running", "a").await;
                task.zadd("failed", 5.0, "a").await;
            }
            "run" => task.hset("instances", &[("a", "2 0 2 1 d -")]).await,
            "stopping" => task.hset("stopping", &[("a", "failed ")]).await,
            "gone" => lose(&mut task, "instances", "a").await,
            _ => task.hset("instances", &[("a", "what")]).await,
        }
        let before = task.exact().await;
        for id in ["a/1.1", "a/0.1", "a/9.1", "a/1.0", "a/1.1/0.1", "b/1.1"] {
            assert_eq!(start(&mut task, &one(), id).await, "[stale]", "{change} {id}");
        }
        assert_eq!(task.exact().await, before, "{change}");
    }
    // While the instance is held back as a whole, sent nodes continue.
    let mut task = to_start("finish").await;
    take_out(&mut task, "running", "a").await;
    task.zadd("paused", 5.0, "a").await;
    assert_eq!(start(&mut task, &one(), "a/1.1").await, "[started a/1.1 0 1 t '' 0 here in-0]");
}

#[tokio::test]
async fn eight_levels_end_in_one_call_for_every_outcome() {
    for (how, said, ends, value) in
        [("c", "8", "completed", "8"), ("f", "E", "failed", "E"), ("x", STOPPED, "failed", STOPPED)]
    {
        let mut task = Task::new().await;
        put(&mut task, &graph_alone(), "a").await;
        let mut ids = vec!["a".to_owned()];
        for level in 1..=8 {
            let id = format!("{}/0.1", ids[level - 1]);
            let graph = if level == 8 { one() } else { graph_alone() };
            let task_of = if level == 8 { "t" } else { "@" };
            assert_eq!(start(&mut task, &graph, &id).await, format!("[started {id} 0 1 {task_of} '' 0 here in-0]"));
            ids.push(id);
        }
        assert_eq!(task.ok("flow_advance", &[&ids[8], "0", "1", how, said]).await, "[advanced 0]");
        assert_eq!(place(&mut task, "a").await, ends);
        let bad = if how == "c" { "-" } else { "0" };
        assert_eq!(head(&mut task, "a").await, format!("1 1 0 0 f {bad}"));
        let over = if how == "c" { "c" } else { "f" };
        for (level, id) in ids.iter().enumerate().skip(1) {
            let digest = if level == 8 { "e" } else { "f" };
            assert_eq!(head(&mut task, id).await, format!("1 1 0 0 {digest} {bad} 0 {over}"));
        }
        for (level, id) in ids.iter().enumerate() {
            let own = if level == 8 { how } else { over };
            assert_eq!(task.field("nodes", &format!("{id}/0")).await, own);
            assert_eq!(task.field("value", &format!("{id}/0")).await, value);
        }
        for key in ["running", "outbox", "stopping", "cursor", "error"] {
            assert_eq!(task.held(key).await, "", "{key}");
        }
        assert_eq!(task.held("output").await, if how == "c" { r#"hash {"a": "8"}"# } else { "" });
        nothing_changes(&mut task, &[("flow_advance", &format!("{} 0 1 c 9 {} 0 1 F E", ids[8], ids[7]))]).await;
        task.hset("shapes", &[("f#", "8")]).await;
        assert_eq!(trim_place(&mut task, ends).await, [""; 0]);
    }
}

/// Removes everything in a place; returns what is left.
async fn trim_place(task: &mut Task, place: &str) -> Vec<String> {
    take_out(task, place, "a").await;
    trim_whole(task, "a").await
}

#[tokio::test]
async fn a_cancel_of_eight_levels_ends_all_with_an_unstarted_last_one() {
    let mut task = Task::new().await;
    put(&mut task, &graph_alone(), "a").await;
    let mut id = "a".to_owned();
    for _ in 1..8 {
        id += "/0.1";
        start(&mut task, &graph_alone(), &id).await;
    }
    let mut of = "a".to_owned();
    for _ in 0..8 {
        assert_eq!(task.ok("flow_control", &[&of, "why"]).await, "[stopping 1]");
        of += "/0.1";
    }
    // The last one is not an instance yet.
    assert_eq!(start(&mut task, &one(), &of).await, "[stale]");
    assert_eq!(task.ok("flow_control", &[&of, "why"]).await, "[unknown]");
    assert_eq!(advance(&mut task, &format!("{id} 0 1 X -")).await, "[advanced 0]");
    assert_eq!(place(&mut task, "a").await, "cancelled");
    assert_eq!(head(&mut task, "a").await, "1 1 0 0 f -");
    assert_eq!(head(&mut task, &id).await, "1 1 0 0 f - 0 x");
    assert_eq!(task.held("running").await + &task.held("outbox").await + &task.held("stopping").await, "");
}

#[tokio::test]
async fn a_failed_child_fails_its_node_under_each_policy() {
    let child = || graph("cancel", "1", &[("p 0 0", "- -", &[1]), ("p 1 1", "- 0", &[])]).named("e");
    for (policy, stands, head_after, after) in [
        ("finish", "failed", "1 1 0 0 d 1", "c, f, s"),
        ("cancel", "failed", "1 1 1 0 d 1", "c, f, p 1 1"),
        ("pause", "paused", "1 1 0 0 d 1", "c, f, s"),
    ] {
        let mut task = with_child(policy, &child()).await;
        assert_eq!(advance(&mut task, "a/1.1 0 1 f E").await, "[advanced 0]");
        assert_eq!(place(&mut task, "a").await, stands, "{policy}");
        assert_eq!(head(&mut task, "a").await, head_after, "{policy}");
        assert_eq!(head(&mut task, "a/1.1").await, "1 1 1 0 e 0 0 f");
        assert_eq!(states(&mut task, "a", 3).await, after, "{policy}");
        assert_eq!(task.held("value").await, r#"hash {"a/0": "7", "a/1": "E", "a/1.1/0": "E"}"#);
        assert_eq!(task.ok("flow_state", &["a/1.1"]).await, "[state failed 1 1 0 e 0 E '' 1 0]");
        assert_eq!(task.held("stopping").await + &task.held("error").await, "");
        let again = "a/1.1 0 1 f E a/1.1 0 1 c 7 a 1 1 F E a 1 1 f E";
        nothing_changes(&mut task, &[("flow_advance", again), ("flow_control", "a/1.1 why")]).await;
    }
}

#[tokio::test]
async fn a_child_whose_output_did_not_run_reports_it() {
    let child = graph("finish", "1", &[("p 0 0", "o -", &[1]), ("p 1 1", "- 0", &[])]).named("e");
    let mut task = with_child("finish", &child).await;
    advance(&mut task, "a/1.1 0 1 f E").await;
    assert_eq!(head(&mut task, "a/1.1").await, "1 1 0 0 e 1 0 f");
    assert_eq!(task.field("value", "a/1").await, SKIPPED);
    assert_eq!(place(&mut task, "a").await, "failed");
}

#[tokio::test]
async fn a_child_without_an_output_value_returns_none() {
    for (child, said) in [(graph("finish", "-", &[("p 0 0", "- -", &[])]).named("e"), "8"), (one(), "-")] {
        let mut task = with_child("finish", &child).await;
        let reply = advance(&mut task, &format!("a/1.1 0 1 c {said}")).await;
        assert_eq!(reply, "[advanced 0 a 2 1 t '' 0 here null]");
    }
}

#[tokio::test]
async fn an_optional_graph_that_fails_breaks_nothing() {
    let mut task = Task::new().await;
    put(&mut task, &graph("cancel", "1", &[("p 0 0", "og -", &[1]), ("P 1 1", "- -", &[])]), "a").await;
    start(&mut task, &one(), "a/0.1").await;
    assert_eq!(advance(&mut task, "a/0.1 0 1 f E").await, "[advanced 0 a 1 1 t '' 0 here in-1]");
    assert_eq!(head(&mut task, "a").await, "1 0 1 1 d -");
    advance(&mut task, "a 1 1 c 8").await;
    assert_eq!(place(&mut task, "a").await, "completed");
}

#[tokio::test]
async fn a_cancel_ends_child_and_parent_with_the_last_job() {
    let mut task = with_child("finish", &one()).await;
    assert_eq!(task.ok("flow_control", &["a", "why"]).await, "[stopping 1]");
    assert_eq!(task.ok("flow_control", &["a/1.1", "stopped"]).await, "[stopping 1]");
    let before = task.exact().await;
    assert_eq!(task.ok("flow_control", &["a/1.1", "other"]).await, "[stopping 1]");
    assert_eq!(task.exact().await, before);
    assert_eq!(said(&mut task, "flow_enter", "a/1.1 0 1").await, "[entered stale 0]");
    assert_eq!(
        without(task.keys().await, &["meta", "shapes", "input", "tasks"]),
        [
            r#"cancelled zset ["a": NOW]"#.to_owned(),
            r#"children zset ["a/1.1": 0]"#.to_owned(),
            r#"error hash {"a": "why", "a/1.1": "stopped"}"#.to_owned(),
            r#"instances hash {"a": "1 1 1 0 d -", "a/1.1": "1 1 0 0 e - 0 x"}"#.to_owned(),
            r#"nodes hash {"a/0": "c", "a/1": "x", "a/1.1/0": "x", "a/2": "p 1 1"}"#.to_owned(),
            format!(r#"value hash {{"a/0": "7", "a/1": {STOPPED:?}}}"#),
        ]
    );
    assert_eq!(task.ok("flow_state", &["a/1.1"]).await, "[state cancelled 1 0 0 e - '' stopped 1 0]");
    let late = [
        ("flow_enter", "a/1.1 0 1"),
        ("flow_advance", "a/1.1 0 1 c 8 a 1 1 X -"),
        ("flow_control", "a/1.1 why"),
        ("flow_control", "a why"),
        ("flow_look", "0 200"),
        ("flow_resend", "a 1 1 a/1.1 0 1"),
    ];
    nothing_changes(&mut task, &late).await;
    assert_eq!(start(&mut task, &one(), "a/1.1").await, "[existed]");
}

#[tokio::test]
async fn a_child_that_never_started_is_reported_as_cancelled() {
    let mut task = to_start("finish").await;
    task.ok("flow_control", &["a", "why"]).await;
    let before = task.exact().await;
    assert_eq!(task.ok("flow_control", &["a/1.1", "stopped"]).await, "[unknown]");
    assert_eq!(start(&mut task, &one(), "a/1.1").await, "[stale]");
    assert_eq!(task.exact().await, before);
    assert_eq!(task.ok("flow_advance", &["a", "1", "1", "X", STOPPED]).await, "[advanced 0]");
    assert_eq!(place(&mut task, "a").await, "cancelled");
    assert_eq!(states(&mut task, "a", 3).await, "c, x, p 1 1");
    let before = task.exact().await;
    assert_eq!(start(&mut task, &one(), "a/1.1").await, "[stale]");
    assert_eq!(task.exact().await, before);
}

#[tokio::test]
async fn a_cancelled_child_cancels_its_node_and_the_others_continue() {
    let mut task = of_graphs(2).await;
    for id in ["a/0.1", "a/1.1"] {
        start(&mut task, &line().named("e"), id).await;
    }
    task.ok("flow_control", &["a/0.1", "why"]).await;
    advance(&mut task, "a/0.1 0 1 c 7").await;
    assert_eq!(states(&mut task, "a", 2).await, "x, g");
    assert_eq!(head(&mut task, "a").await, "1 0 1 1 d 0");
    assert_eq!(head(&mut task, "a/0.1").await, "1 1 2 0 e - 0 x");
    assert_eq!(task.field("value", "a/0").await, STOPPED);
    for node in 0..3 {
        advance(&mut task, &format!("a/1.1 {node} 1 c 7")).await;
    }
    assert_eq!(states(&mut task, "a", 2).await, "x, c");
    assert_eq!(place(&mut task, "a").await, "failed");
}

#[tokio::test]
async fn ends_of_jobs_and_of_graphs_count_only_for_their_kind() {
    let mut task = to_start("finish").await;
    let jobs = ["a 1 1 c 7", "a 1 1 f E", "a 1 1 x -", "a 2 1 F E", "a 0 1 F E", "a 1 2 F E", "a 1 0 X -", "a 1 1 q -"];
    for words in jobs {
        nothing_changes(&mut task, &[("flow_advance", words)]).await;
    }
    assert_eq!(said(&mut task, "flow_enter", "a 1 1").await, "[entered stale 0]");
    for (how, after) in [("F", "c, f, s"), ("X", "c, x, s")] {
        let mut task = to_start("finish").await;
        assert_eq!(advance(&mut task, &format!("a 1 1 {how} E")).await, "[advanced 0]");
        assert_eq!(states(&mut task, "a", 3).await, after);
        assert_eq!(head(&mut task, "a").await, "1 1 0 0 d 1");
        assert_eq!(task.field("value", "a/1").await, "E");
        assert_eq!(place(&mut task, "a").await, "failed");
        nothing_changes(&mut task, &[("flow_advance", "a 1 1 F E a 1 1 X E a 1 1 c 7")]).await;
        assert_eq!(start(&mut task, &one(), "a/1.1").await, "[stale]");
    }
    let mut task = Task::new().await;
    put(&mut task, &line(), "a").await;
    nothing_changes(&mut task, &[("flow_advance", "a 0 1 F E"), ("flow_advance", "a 0 1 X -")]).await;
}

#[tokio::test]
async fn a_graph_that_exists_is_not_reported_as_missing() {
    let mut task = with_child("finish", &one()).await;
    nothing_changes(&mut task, &[("flow_advance", "a 1 1 F E")]).await;
    assert_eq!(advance(&mut task, "a/1.1 0 1 c 8").await, "[advanced 0 a 2 1 t '' 0 here 8]");
}

#[tokio::test]
async fn one_call_takes_ends_of_children_and_of_jobs_of_their_parent() {
    let nodes: [Node; 4] =
        [("p 0 0", "g -", &[3]), ("p 0 0", "g -", &[3]), ("p 0 0", "- -", &[3]), ("p 3 3", "- 0", &[])];
    for ends in [
        "a 2 1 c 9 a/0.1 0 1 c 7 a/1.1 0 1 c 8",
        "a/0.1 0 1 c 7 a 2 1 c 9 a/1.1 0 1 c 8",
        "a/1.1 0 1 c 8 a/0.1 0 1 c 7 a/0.1 0 1 f twice a 2 1 c 9",
    ] {
        let mut task = Task::new().await;
        put(&mut task, &graph("finish", "3", &nodes), "a").await;
        for id in ["a/0.1", "a/1.1"] {
            start(&mut task, &one(), id).await;
        }
        assert_eq!(advance(&mut task, ends).await, "[advanced 0 a 3 1 t '' 0 here 7]", "{ends}");
        assert_eq!(head(&mut task, "a").await, "1 0 1 1 d -");
        assert_eq!(states(&mut task, "a", 4).await, "c, c, c, o");
        nothing_changes(&mut task, &[("flow_advance", ends)]).await;
    }
    // Ends of a parent that these end.
    let mut task = of_graphs(3).await;
    for id in ["a/0.1", "a/1.1", "a/2.1"] {
        start(&mut task, &one(), id).await;
    }
    let ends = "a/2.1 0 1 c 7 a/0.1 0 1 f E a/1.1 0 1 c 8";
    assert_eq!(advance(&mut task, ends).await, "[advanced 0]");
    assert_eq!(head(&mut task, "a").await, "1 1 0 0 d 0");
    assert_eq!(task.held("failed").await, r#"zset ["a": NOW]"#);
    nothing_changes(&mut task, &[("flow_advance", ends)]).await;
}

#[tokio::test]
async fn a_child_that_ends_by_a_visit_or_a_look_also_ends_its_node() {
    // Skipped nodes over the budget: another call visits the last one.
    let mut task = with_child("finish", &long_line(103).named("e")).await;
    assert_eq!(advance(&mut task, "a/1.1 0 1 f E").await, "[advanced 1 v a/1.1/100/1]");
    assert_eq!(states(&mut task, "a", 3).await, "c, g, p 1 1");
    assert_eq!(said(&mut task, "flow_visit", "a/1.1 100 1").await, "[visited 0]");
    assert_eq!(states(&mut task, "a", 3).await, "c, f, s");
    assert_eq!(place(&mut task, "a").await, "failed");
    assert_eq!(task.held("outbox").await + &task.held("cursor").await + &task.held("running").await, "");
    nothing_changes(&mut task, &[("flow_visit", "a/1.1 100 1")]).await;
    // An unreadable one ends when its nodes are to be opened.
    let mut task = to_start("finish").await;
    assert_eq!(start_in_parts(&mut task, &one(), "a/1.1", "n", 2).await, "[started]");
    task.hset("nodes", &[("a/1.1/0", "what")]).await;
    assert_eq!(said(&mut task, "flow_open", "a/1.1 1").await, "[opened 0 0]");
    assert_eq!(head(&mut task, "a/1.1").await, "1 1 1 0 e - 0 f");
    assert_eq!(task.field("value", "a/1").await, UNREADABLE);
    assert_eq!(place(&mut task, "a").await, "failed");
    assert_eq!(task.held("outbox").await + &task.held("running").await, "");
}

#[tokio::test]
async fn nodes_that_wait_for_a_graph_are_visited_within_the_budget() {
    let mut task = Task::new().await;
    let dependents: Vec<usize> = (1..=1_100).collect();
    let mut nodes: Vec<Node> = vec![("p 0 0", "g -", &dependents)];
    nodes.extend((0..1_100).map(|_| -> Node { ("p 1 1", "- -", &[]) }));
    put(&mut task, &graph("finish", "-", &nodes), "a").await;
    start(&mut task, &one(), "a/0.1").await;
    let reply = advance(&mut task, "a/0.1 0 1 c 7").await;
    assert!(reply.starts_with("[advanced 1 v a/0/1 a 1 1 t '' 0 here in-1 "), "{}", &reply[..60]);
    assert_eq!(head(&mut task, "a").await, "1 0 1100 100 d -");
    while said(&mut task, "flow_visit", "a 0 1").await.starts_with("[visited 1 ") {}
    assert_eq!(head(&mut task, "a").await, "1 0 1100 1100 d -");
}

#[tokio::test]
async fn a_child_of_a_paused_parent_ends_and_opens_nodes_on_resume() {
    let mut task = with_child("finish", &one()).await;
    assert_eq!(said(&mut task, "flow_pause", "a 0 pause").await, "[paused]");
    assert_eq!(said(&mut task, "flow_enter", "a/1.1 0 1").await, "[entered go 0]");
    assert_eq!(advance(&mut task, "a/1.1 0 1 c 8").await, "[advanced 0]");
    assert_eq!(states(&mut task, "a", 3).await, "c, c, p 0 0");
    assert_eq!(head(&mut task, "a").await, "1 1 1 0 d -");
    assert_eq!(place(&mut task, "a").await, "paused");
    said(&mut task, "flow_pause", "a 1 resume").await;
    assert_eq!(said(&mut task, "flow_open", "a 1").await, "[opened 0 0 a 2 1 t '' 0 here 8]");
}

#[tokio::test]
async fn a_child_is_not_paused_or_rerun_on_its_own() {
    let mut task = with_child("pause", &one()).await;
    let before = task.exact().await;
    assert_eq!(task.ok("flow_pause", &["a/1.1", "0", "pause"]).await, "[unknown]");
    assert_eq!(task.ok("flow_retry", &["a/1.1", "0", "1", "0", "p 0 0"]).await, "[unknown]");
    assert_eq!(task.exact().await, before);
    advance(&mut task, "a/1.1 0 1 f E").await;
    let before = task.exact().await;
    for turn in ["0", "1"] {
        assert_eq!(task.ok("flow_pause", &["a/1.1", turn, "resume"]).await, "[unknown]");
        assert_eq!(task.ok("flow_retry", &["a/1.1", turn, "1", "0", "p 0 0"]).await, "[unknown]");
    }
    assert_eq!(task.exact().await, before);
}

#[tokio::test]
async fn a_new_run_starts_a_new_child_and_ignores_the_first_one() {
    for policy in ["finish", "pause"] {
        let mut task = with_child(policy, &one()).await;
        advance(&mut task, "a/1.1 0 1 f E").await;
        assert_eq!(task.ok("flow_retry", &["a", "1", "2", "1", "p 0 0", "2", "p 1 1"]).await, "[again 2]");
        assert_eq!(task.held("value").await, r#"hash {"a/0": "7", "a/1.1/0": "E"}"#);
        assert_eq!(start(&mut task, &one(), "a/1.2").await, "[stale]");
        assert_eq!(said(&mut task, "flow_open", "a 2").await, "[opened 0 0 a 1 2 @ '' 0 here in-1]");
        // Every call of the first run again.
        let late = [
            ("flow_advance", "a/1.1 0 1 f E a/1.1 0 1 c 7 a 1 1 F E a 1 1 X - a 0 1 c 7"),
            ("flow_enter", "a/1.1 0 1"),
            ("flow_control", "a/1.1 why"),
            ("flow_resend", "a 1 1 a/1.1 0 1"),
            ("flow_visit", "a/1.1 0 1"),
            ("flow_open", "a/1.1 1"),
        ];
        nothing_changes(&mut task, &late).await;
        let before = task.exact().await;
        assert_eq!(start(&mut task, &one(), "a/1.1").await, "[existed]");
        assert_eq!(task.exact().await, before);
        assert_eq!(start(&mut task, &one(), "a/1.2").await, "[started a/1.2 0 1 t '' 0 here in-0]");
        nothing_changes(&mut task, &late).await;
        assert_eq!(advance(&mut task, "a/1.2 0 1 c 8").await, "[advanced 0 a 2 2 t '' 0 here 8]");
        advance(&mut task, "a 2 2 c 9").await;
        assert_eq!(place(&mut task, "a").await, "completed");
        assert_eq!(head(&mut task, "a").await, "2 3 0 0 d -");
        assert_eq!(task.field("shapes", "e#").await, "2");
        assert_eq!(trim_place(&mut task, "completed").await, [""; 0]);
    }
}

#[tokio::test]
async fn a_start_of_the_first_run_is_stale_in_the_second() {
    let mut task = to_start("finish").await;
    advance(&mut task, "a 1 1 F E").await;
    task.ok("flow_retry", &["a", "1", "2", "1", "p 0 0", "2", "p 1 1"]).await;
    said(&mut task, "flow_open", "a 2").await;
    let before = task.exact().await;
    assert_eq!(start(&mut task, &one(), "a/1.1").await, "[stale]");
    assert_eq!(task.exact().await, before);
}

#[tokio::test]
async fn while_a_child_runs_its_parent_is_busy() {
    let mut task = Task::new().await;
    put(&mut task, &graph("pause", "-", &[("p 0 0", "g -", &[]), ("p 0 0", "- -", &[])]), "a").await;
    start(&mut task, &one(), "a/0.1").await;
    advance(&mut task, "a 1 1 f E").await;
    let before = task.exact().await;
    assert_eq!(task.ok("flow_retry", &["a", "1", "2", "0", "p 0 0", "1", "p 0 0"]).await, "[busy 1]");
    assert_eq!(task.exact().await, before);
    advance(&mut task, "a/0.1 0 1 c 8").await;
    assert_eq!(task.ok("flow_retry", &["a", "1", "2", "0", "p 0 0", "1", "p 0 0"]).await, "[moved]");
    assert_eq!(task.ok("flow_retry", &["a", "1", "1", "1", "p 0 0"]).await, "[again 2]");
}

#[tokio::test]
async fn a_graph_is_sent_twice_more_and_then_reported_as_lost() {
    let mut task = to_start("finish").await;
    nothing_changes(&mut task, &[("flow_resend", "a 1 1")]).await;
    for time in 1..=2 {
        task.del("outbox").await;
        assert_eq!(said(&mut task, "flow_resend", "a 1 1").await, "[resent 0 a 1 1 @ '' 0 here in-1]");
        assert_eq!(states(&mut task, "a", 3).await, format!("c, g{time}, p 1 1"));
        assert_eq!(said(&mut task, "flow_resend", "a 1 1").await, "[resent 0]");
        task.zadd("outbox", 5.0, "s a/1/1").await;
        assert_eq!(said(&mut task, "flow_look", "10000 200").await, "[looked 0 0 a 1 1 @ '' 0 here in-1]");
    }
    task.del("outbox").await;
    let before = task.exact().await;
    assert_eq!(said(&mut task, "flow_resend", "a 1 1").await, "[resent 1 a/1/1]");
    assert_eq!(task.exact().await, before);
    // If it starts later, it ends its node like any other.
    assert_eq!(start(&mut task, &one(), "a/1.1").await, "[started a/1.1 0 1 t '' 0 here in-0]");
    assert_eq!(advance(&mut task, "a/1.1 0 1 c 8").await, "[advanced 0 a 2 1 t '' 0 here 8]");
}

#[tokio::test]
async fn an_audit_lists_children_like_other_instances() {
    let mut task = with_child("finish", &one()).await;
    for id in ["a", "a/1.1"] {
        task.zadd("running", 5.0, id).await;
    }
    assert_eq!(said(&mut task, "flow_audit", "60000 200").await, "[taken 0 a a/1.1]");
    advance(&mut task, "a/1.1 0 1 c 8").await;
    task.zadd("running", 5.0, "a").await;
    assert_eq!(said(&mut task, "flow_audit", "60000 200").await, "[taken 0 a]");
}

#[tokio::test]
async fn a_node_whose_job_returned_a_graph_ends_with_that_graph() {
    let mut task = Task::new().await;
    put(&mut task, &line(), "a").await;
    task.hset("shapes", &[("d#", "1")]).await;
    task.zadd("outbox", 5.0, "s a/0/1").await;
    assert_eq!(grow(&mut task, "a 0 1", "42", "{graph}").await, "[advanced 0 a 0 1 @ finish 0 here {graph}]");
    assert_eq!(
        without(task.keys().await, &["meta", "shapes", "input"]),
        [
            r#"grow hash {"a/0": "{graph}"}"#,
            r#"instances hash {"a": "1 0 3 1 d -"}"#,
            r#"nodes hash {"a/0": "g", "a/1": "p 1 1", "a/2": "p 1 1"}"#,
            r#"outbox zset ["s a/0/1": NOW]"#,
            r#"running zset ["a": NOW]"#,
            r#"value hash {"a/0": "42"}"#,
        ]
    );
    // Every report of the job again.
    let before = task.exact().await;
    assert_eq!(grow(&mut task, "a 0 1", "43", "{other}").await, "[advanced 0]");
    assert_eq!(grow(&mut task, "a 0 2", "43", "{other}").await, "[advanced 0]");
    assert_eq!(task.exact().await, before);
    nothing_changes(&mut task, &[("flow_advance", "a 0 1 c 7 a 0 1 f E"), ("flow_enter", "a 0 1")]).await;
    // A child without an output leaves the value of the job.
    let quiet = graph("finish", "-", &[("p 0 0", "- -", &[])]).named("q");
    assert_eq!(start(&mut task, &quiet, "a/0.1").await, "[started a/0.1 0 1 t '' 0 here in-0]");
    assert_eq!(advance(&mut task, "a/0.1 0 1 c 8").await, "[advanced 0 a 1 1 t '' 0 here 42]");
    // A child with an output replaces it.
    assert_eq!(grow(&mut task, "a 1 1", "42", "{graph}").await, "[advanced 0 a 1 1 @ finish 0 here {graph}]");
    start(&mut task, &one(), "a/1.1").await;
    assert_eq!(advance(&mut task, "a/1.1 0 1 c 8").await, "[advanced 0 a 2 1 t '' 0 here 8]");
    // Also if the job had no value; a failed child fails the node.
    assert_eq!(grow(&mut task, "a 2 1", "", "{graph}").await, "[advanced 0 a 2 1 @ finish 0 here {graph}]");
    start(&mut task, &one(), "a/2.1").await;
    assert_eq!(advance(&mut task, "a/2.1 0 1 f E").await, "[advanced 0]");
    assert_eq!(states(&mut task, "a", 3).await, "c, c, f");
    assert_eq!(task.field("value", "a/2").await, "E");
    assert_eq!(place(&mut task, "a").await, "failed");
    assert_eq!(trim_place(&mut task, "failed").await, [""; 0]);
}

#[tokio::test]
async fn a_grown_graph_is_sent_again_like_any_other() {
    let mut task = Task::new().await;
    put(&mut task, &line(), "a").await;
    grow(&mut task, "a 0 1", "42", "{graph}").await;
    task.zadd("outbox", 5.0, "s a/0/1").await;
    assert_eq!(said(&mut task, "flow_look", "10000 200").await, "[looked 0 0 a 0 1 @ finish 0 here {graph}]");
    task.del("outbox").await;
    assert_eq!(said(&mut task, "flow_resend", "a 0 1").await, "[resent 0 a 0 1 @ finish 0 here {graph}]");
    let large = "x".repeat(600 * 1024);
    task.hset("grow", &[("a/0", &large)]).await;
    assert_eq!(said(&mut task, "flow_look", "-1 200").await, "[looked 0 0 a 0 1 @ finish 0 grow a/0 614400]");
    // Without the graph it is lost, and its instance ends.
    task.del("grow").await;
    assert_eq!(said(&mut task, "flow_look", "-1 200").await, "[looked 0 0]");
    assert_eq!(task.field("stopping", "a").await, format!("failed {UNREADABLE}"));
    advance(&mut task, "a 0 1 X -").await;
    assert_eq!(place(&mut task, "a").await, "failed");
    assert_eq!(task.held("error").await, format!(r#"hash {{"a": {UNREADABLE:?}}}"#));
}

#[tokio::test]
async fn a_new_run_drops_the_graph_that_a_job_returned() {
    let mut task = Task::new().await;
    put(&mut task, &line(), "a").await;
    grow(&mut task, "a 0 1", "42", "{graph}").await;
    start(&mut task, &one(), "a/0.1").await;
    advance(&mut task, "a/0.1 0 1 f E").await;
    let reply = task.ok("flow_retry", &["a", "1", "3", "0", "p 0 0", "1", "p 1 1", "2", "p 1 1"]).await;
    assert_eq!(reply, "[again 2]");
    assert_eq!(task.held("grow").await, "");
    assert_eq!(said(&mut task, "flow_open", "a 2").await, "[opened 0 0 a 0 2 t '' 0 here in-0]");
    assert_eq!(grow(&mut task, "a 0 2", "", "{again}").await, "[advanced 0 a 0 2 @ finish 0 here {again}]");
    nothing_changes(&mut task, &[("flow_advance", "a/0.1 0 1 c 7 a 0 1 F E")]).await;
    start(&mut task, &one(), "a/0.2").await;
    assert_eq!(advance(&mut task, "a/0.2 0 1 c 8").await, "[advanced 0 a 1 2 t '' 0 here 8]");
}

#[tokio::test]
async fn a_returned_graph_starts_nothing_in_a_stopping_instance() {
    for (stopping, ends) in [("failed ", "failed"), ("cancelled why", "cancelled")] {
        let mut task = Task::new().await;
        put(&mut task, &line(), "a").await;
        task.hset("stopping", &[("a", stopping)]).await;
        assert_eq!(grow(&mut task, "a 0 1", "42", "{graph}").await, "[advanced 0]");
        assert_eq!(states(&mut task, "a", 3).await, "x, p 1 1, p 1 1");
        assert_eq!(place(&mut task, "a").await, ends);
        assert_eq!(task.field("value", "a/0").await, STOPPED);
        assert_eq!(task.held("grow").await, "");
    }
    // While the instance is paused, returned graphs continue.
    let mut task = Task::new().await;
    put(&mut task, &line(), "a").await;
    said(&mut task, "flow_pause", "a 0 pause").await;
    assert_eq!(grow(&mut task, "a 0 1", "42", "{graph}").await, "[advanced 0 a 0 1 @ finish 0 here {graph}]");
    start(&mut task, &one(), "a/0.1").await;
    advance(&mut task, "a/0.1 0 1 c 8").await;
    assert_eq!(states(&mut task, "a", 3).await, "c, p 0 0, p 1 1");
}

#[tokio::test]
async fn a_result_whose_graph_is_missing_ends_the_instance() {
    for value in ["\u{1}", "\u{1} ", "\u{1}x 42", "\u{1}-2 42", "1 2"] {
        let mut task = Task::new().await;
        put(&mut task, &line(), "a").await;
        task.ok("flow_advance", &["a", "0", "1", "c", value]).await;
        assert_eq!(states(&mut task, "a", 3).await, "c, o, p 1 1", "{value:?}");
        assert_eq!(task.field("value", "a/0").await, value);
    }
    for value in ["\u{1}2 42", "\u{1}99 42", "\u{1}0 "] {
        let mut task = Task::new().await;
        put(&mut task, &line(), "a").await;
        assert_eq!(task.ok("flow_advance", &["a", "0", "1", "c", value]).await, "[advanced 0]");
        said(&mut task, "flow_look", "-1 200").await;
        assert_eq!(task.field("stopping", "a").await, format!("failed {UNREADABLE}"), "{value:?}");
        assert_eq!(task.ok("flow_control", &["a/0.1", "why"]).await, "[unknown]");
        advance(&mut task, "a 0 1 X -").await;
        assert_eq!(place(&mut task, "a").await, "failed");
        assert_eq!(task.held("outbox").await, "");
    }
    // A failure is never a result with a graph.
    let mut task = Task::new().await;
    put(&mut task, &line(), "a").await;
    task.ok("flow_advance", &["a", "0", "1", "f", "\u{1}2 42{}"]).await;
    assert_eq!(states(&mut task, "a", 3).await, "f, s, s");
}

#[tokio::test]
async fn a_child_whose_graph_is_lost_ends_its_node_as_corrupt() {
    for (key, field) in [("shapes", "e/0"), ("nodes", "a/1.1/1")] {
        let mut task = with_child("finish", &line().named("e")).await;
        lose(&mut task, key, field).await;
        assert_eq!(advance(&mut task, "a/1.1 0 1 c 8").await, "[advanced 0]");
        assert_eq!(head(&mut task, "a/1.1").await, "1 1 2 0 e - 0 f", "{field}");
        assert_eq!(task.ok("flow_state", &["a/1.1"]).await, format!("[state failed 1 2 0 e - '' {UNREADABLE} 1 0]"));
        assert_eq!(states(&mut task, "a", 3).await, "c, f, s");
        assert_eq!(task.field("value", "a/1").await, UNREADABLE);
        assert_eq!(task.held("stopping").await + &task.held("outbox").await, "");
    }
}

#[tokio::test]
async fn a_child_also_ends_if_no_node_waits_for_it_any_more() {
    for change in ["gone", "unreadable", "stands nowhere", "run", "ended", "lost"] {
        let mut task = with_child("finish", &one()).await;
        match change {
            "gone" => lose(&mut task, "instances", "a").await,
            "unreadable" => task.hset("instances", &[("a", "what")]).await,
            "stands nowhere" => take_out(&mut task, "running", "a").await,
            "run" => task.hset("instances", &[("a", "2 0 2 1 d -")]).await,
            "ended" => task.hset("nodes", &[("a/1", "f")]).await,
            _ => lose(&mut task, "nodes", "a/1").await,
        }
        let own = without(task.keys().await, &["instances", "nodes", "outbox", "running", "value"]);
        assert_eq!(advance(&mut task, "a/1.1 0 1 c 8").await, "[advanced 0]", "{change}");
        assert_eq!(head(&mut task, "a/1.1").await, "1 1 0 0 e - 0 c");
        assert_eq!(task.held("value").await, r#"hash {"a/0": "7", "a/1.1/0": "8"}"#);
        assert_eq!(without(task.keys().await, &["instances", "nodes", "outbox", "running", "value"]), own);
        assert!(!task.held("running").await.contains("a/1.1"));
    }
}

#[tokio::test]
async fn an_unknown_end_word_makes_a_child_unreadable() {
    for over in ["q", "cc", "c x", "C", "0"] {
        let mut task = with_child("finish", &one()).await;
        task.hset("instances", &[("a/1.1", &format!("1 0 1 1 e - 0 {over}"))]).await;
        let before = task.exact().await;
        assert_eq!(advance(&mut task, "a/1.1 0 1 c 8").await, "[advanced 0]", "{over}");
        assert_eq!(task.exact().await, before);
        assert_eq!(task.ok("flow_state", &["a/1.1"]).await, "[unknown]");
    }
}

#[tokio::test]
async fn the_end_word_of_a_child_is_invalid_for_a_root() {
    let mut task = Task::new().await;
    put(&mut task, &line(), "a").await;
    task.hset("instances", &[("a", "1 1 0 0 d - 0 c")]).await;
    take_out(&mut task, "running", "a").await;
    assert_eq!(task.ok("flow_state", &["a"]).await, "[state unknown 1 0 0 d - '' '' 1 0]");
    assert_eq!(task.ok("flow_control", &["a", "why"]).await, "[unknown]");
}

#[tokio::test]
async fn children_are_removed_with_their_root_and_no_others_are() {
    let mut task = Task::new().await;
    // `a0` and `a-` sort next to the children of `a`.
    for id in ["a", "a0", "a-"] {
        put(&mut task, &graph("finish", "-", &[("p 0 0", "g -", &[]), ("p 0 0", "g -", &[])]), id).await;
        start(&mut task, &graph_alone(), &format!("{id}/0.1")).await;
        start(&mut task, &one(), &format!("{id}/0.1/0.1")).await;
        start(&mut task, &line().named("l"), &format!("{id}/1.1")).await;
    }
    task.hset("shapes", &[("d#", "3")]).await;
    task.hset("error", &[("a/0.1", "why"), ("a0/0.1", "why")]).await;
    task.hset("grow", &[("a/0.1/0", "{}"), ("a0/0.1/0", "{}")]).await;
    for child in ["a/0.1", "a/0.1/0.1", "a/1.1"] {
        take_out(&mut task, "running", child).await;
    }
    let left = trim_whole(&mut task, "a").await;
    assert!(left.iter().all(|key| !key.contains("\"a\"") && !key.contains("\"a/")), "{left:?}");
    assert_eq!(
        task.held("children").await,
        r#"zset ["a-/0.1": 0, "a-/0.1/0.1": 0, "a-/1.1": 0, "a0/0.1": 0, "a0/0.1/0.1": 0, "a0/1.1": 0]"#
    );
    for count in ["d#", "e#", "f#", "l#"] {
        assert_eq!(task.field("shapes", count).await, "2");
    }
    assert_eq!(task.held("grow").await + &task.held("error").await, r#"hash {"a0/0.1/0": "{}"}hash {"a0/0.1": "why"}"#);
}

#[tokio::test]
async fn a_root_with_many_children_is_removed_in_several_calls() {
    let mut task = of_graphs(250).await;
    for node in 0..250 {
        start(&mut task, &one(), &format!("a/{node}.1")).await;
    }
    task.hset("shapes", &[("d#", "1")]).await;
    let ends: String = (0..200).map(|node| format!("a/{node}.1 0 1 c {node} ")).collect();
    advance(&mut task, &ends).await;
    let ends: String = (200..250).map(|node| format!("a/{node}.1 0 1 c {node} ")).collect();
    advance(&mut task, &ends).await;
    assert_eq!(place(&mut task, "a").await, "completed");
    assert_eq!(task.held("running").await + &task.held("outbox").await, "");
    task.zadd("completed", 5.0, "a").await;
    for (reply, left) in [("[trimmed 0 1]", 150), ("[trimmed 0 1]", 50), ("[trimmed 1 0]", 0)] {
        assert_eq!(said(&mut task, "flow_trim", "60000 - 5000").await, reply);
        assert_eq!(task.held("children").await.matches(": 0").count(), left);
    }
    assert_eq!(without(task.keys().await, &["meta", "tasks"]), [""; 0]);
}

#[tokio::test]
async fn a_large_child_is_removed_in_pages_before_its_root() {
    let mut task = of_graphs(1).await;
    let child = long_line(1_200).named("e");
    assert_eq!(start_in_parts(&mut task, &child, "a/0.1", "n", 500).await, "[started]");
    for _ in 0..12 {
        said(&mut task, "flow_open", "a/0.1 1").await;
    }
    advance(&mut task, "a/0.1 0 1 f E").await;
    for node in (100..1_200).step_by(100) {
        said(&mut task, "flow_visit", &format!("a/0.1 {node} 1")).await;
    }
    assert_eq!(place(&mut task, "a").await, "failed");
    task.hset("shapes", &[("d#", "1")]).await;
    take_out(&mut task, "failed", "a").await;
    task.zadd("completed", 5.0, "a").await;
    for cursor in ["n 700", "n 200", "s 700", "s 200"] {
        assert_eq!(said(&mut task, "flow_trim", "60000 - 5000").await, "[trimmed 0 1]");
        assert_eq!(task.held("cursor").await, format!(r#"hash {{"t a/0.1": "{cursor}"}}"#));
        assert_eq!(task.held("stopping").await, r#"hash {"a/0.1": "removed "}"#);
        assert_eq!(head(&mut task, "a").await, "1 1 0 0 d 0");
    }
    assert_eq!(said(&mut task, "flow_trim", "60000 - 5000").await, "[trimmed 1 0]");
    assert_eq!(without(task.keys().await, &["meta", "tasks"]), [""; 0]);
}

/// Fails the first of 600 nodes in a row: all others are skipped.
async fn skip(task: &mut Task, child: &str) {
    advance(task, &format!("{child} 0 1 f E")).await;
    for node in (100..600).step_by(100) {
        said(task, "flow_visit", &format!("{child} {node} 1")).await;
    }
}

#[tokio::test]
async fn a_root_with_a_half_removed_child_can_run_and_be_removed() {
    let mut task = with_child("finish", &long_line(600).named("e")).await;
    skip(&mut task, "a/1.1").await;
    task.hset("shapes", &[("d#", "1")]).await;
    let failed = ["failed"];
    let keys = [&failed[..], &task.script("flow_trim").keys[1..]].concat();
    task.zadd("failed", 5.0, "a").await;
    assert_eq!(task.call_on("flow_trim", &keys, &["60000", "-", "5000"]).await.unwrap(), "[trimmed 0 1]");
    assert_eq!(task.held("cursor").await, r#"hash {"t a/1.1": "n 100"}"#);
    assert_eq!(task.ok("flow_retry", &["a", "1", "2", "1", "p 0 0", "2", "p 1 1"]).await, "[again 2]");
    said(&mut task, "flow_open", "a 2").await;
    assert!(start(&mut task, &long_line(600).named("e"), "a/1.2").await.starts_with("[started a/1.2 0 1 "));
    nothing_changes(&mut task, &[("flow_advance", "a/1.1 599 1 c 7"), ("flow_enter", "a/1.1 0 1")]).await;
    skip(&mut task, "a/1.2").await;
    assert_eq!(place(&mut task, "a").await, "failed");
    assert_eq!(trim_place(&mut task, "failed").await, [""; 0]);
}

#[tokio::test]
async fn an_unreadable_child_is_removed_whole_with_its_root() {
    let mut task = with_child("finish", &one()).await;
    task.hset("instances", &[("a/1.1", "what")]).await;
    advance(&mut task, "a 1 1 F E").await;
    assert_eq!(place(&mut task, "a").await, "failed");
    trim_place(&mut task, "failed").await;
    assert_eq!(task.held("children").await + &task.held("instances").await + &task.held("running").await, "");
}
