//! Graphs as nodes: an instance `a` whose second node is a graph, or one that a job returned, and the instances that
//! run them.

use crate::scripts::call::{Task, assert_keys, assert_rest, unchanged};
use crate::scripts::flow::{Graph, UNREADABLE, graph, line, long_line, numbers};

const STOPPED: &str = r#"{"code":"cancelled","message":"its workflow was stopped"}"#;
const SKIPPED: &str = r#"{"code":"skipped","message":"its output node did not run"}"#;

/// A job, a graph after it, and a job that takes its value, which is the output.
fn parent(policy: &'static str) -> Graph {
    graph(policy, "2", "p 0 0, - -, 1; p 1 1, g -, 2; p 1 1, - 1")
}

/// A single job, which is the output.
fn one() -> Graph {
    graph("finish", "0", "p 0 0, - -").named("e")
}

/// A single graph, which is the output.
fn graph_alone() -> Graph {
    graph("finish", "0", "p 0 0, g -").named("f")
}

/// An instance `a` of [`parent`] whose graph is to start.
async fn to_start(policy: &'static str) -> Task {
    let mut task = Task::running_flow(&parent(policy)).await;
    task.write("shapes d#=1").await;
    assert_eq!(advance(&mut task, "a 0 1 c 7").await, "[advanced 0 a 1 1 @ '' 0 here in-1]");
    task
}

/// The same with a running child of this graph.
async fn with_child(policy: &'static str, child: &Graph) -> Task {
    let mut task = to_start(policy).await;
    assert!(task.start(child, "a/1.1").await.starts_with("[started a/1.1 0 1 t '' 0 here in-0"));
    task
}

/// An instance `a` of this many independent graphs.
async fn of_graphs(count: usize) -> Task {
    Task::running_flow(&graph("finish", "-", &vec!["p 0 0, g -"; count].join("; "))).await
}

async fn advance(task: &mut Task, ends: &str) -> String {
    task.ok("flow_advance", ends).await
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
        task.unchanged(name, words).await;
    }
}

#[tokio::test]
async fn a_graph_runs_as_a_child_that_ends_its_node_in_the_same_call() {
    let mut task = to_start("finish").await;
    assert_keys!(task, "states a=c, g, p 1 1; head a=1 0 2 1 d -; outbox s a/1/1=NOW");
    // It is the older one, also if both come in the same millisecond.
    task.zadd("outbox", 1.0, "s a/1/1").await;
    assert_eq!(task.start(&one(), "a/1.1").await, "[started a/1.1 0 1 t '' 0 here in-0]");
    assert_rest!(
        task,
        "meta, shapes",
        "children a/1.1=0; input a/0=in-0, a/1=in-1, a/1.1/0=in-0; instances a=1 0 2 1 d -, a/1.1=1 0 1 1 e -; \
         nodes a/0=c, a/1=g, a/1.1/0=o, a/2=p 1 1; outbox s a/1/1=1, s a/1.1/0/1=NOW; running a=NOW, a/1.1=NOW; \
         tasks t=NOW; value a/0=7"
    );
    assert_eq!(task.ok("flow_state", "a/1.1").await, "[state running 1 1 1 e - '' '' 0 0]");
    assert_eq!(advance(&mut task, "a/1.1 0 1 c 8").await, "[advanced 0 a 2 1 t '' 0 here 8]");
    assert_rest!(
        task,
        "meta, shapes, input, tasks",
        "children a/1.1=0; instances a=1 0 1 1 d -, a/1.1=1 1 0 0 e - 0 c; nodes a/0=c, a/1=c, a/1.1/0=c, a/2=o; \
         outbox s a/2/1=NOW; running a=NOW; value a/0=7, a/1=8, a/1.1/0=8"
    );
    assert_eq!(task.ok("flow_state", "a/1.1").await, "[state completed 1 0 0 e - '' '' 1 0]");
    assert_eq!(task.ok("flow_nodes", "a/1.1 0 9").await, "[nodes 1 1 c]");
    advance(&mut task, "a 2 1 c 9").await;
    assert_eq!(task.ok("flow_state", "a").await, "[state completed 1 0 0 d - '' 9 1 0]");
}

#[tokio::test]
async fn a_first_node_that_is_a_graph_starts_with_the_instance() {
    let mut task = Task::new().await;
    let graphs = graph("finish", "-", "p 0 0, g -; p 0 0, - -");
    assert_eq!(task.start(&graphs, "a").await, "[started a 0 1 @ '' 0 here in-0 a 1 1 t '' 0 here in-1]");
    assert_keys!(task, "states a=g, o; head a=1 0 2 2 d -");
    // In parts it opens like the others.
    let mut task = Task::new().await;
    task.start_in_parts(&graphs, "a", "n", 2).await;
    assert_eq!(task.ok("flow_open", "a 1").await, "[opened 0 0 a 0 1 @ '' 0 here in-0 a 1 1 t '' 0 here in-1]");
    assert_keys!(task, "states a=g, o");
}

#[tokio::test]
async fn a_late_or_repeated_start_starts_no_other_child() {
    let mut task = with_child("finish", &one()).await;
    for _ in 0..2 {
        assert_eq!(unchanged!(task, task.start(&one(), "a/1.1").await), "[existed]");
        assert_eq!(unchanged!(task, task.start(&line(), "a/1.1").await), "[existed]");
        advance(&mut task, "a/1.1 0 1 c 8").await;
    }
}

#[tokio::test]
async fn a_start_that_no_node_waits_for_is_stale_and_writes_nothing() {
    for change in [
        "nodes a/1=p 0 0",
        "nodes a/1=o",
        "nodes a/1=c",
        "nodes a/1=",
        "no running.a; failed a=5",
        "instances a=2 0 2 1 d -",
        "stopping a=failed ",
        "no instances.a",
        "instances a=what",
    ] {
        let mut task = to_start("finish").await;
        task.write(change).await;
        for id in ["a/1.1", "a/0.1", "a/9.1", "a/1.0", "a/1.1/0.1", "b/1.1"] {
            assert_eq!(unchanged!(task, task.start(&one(), id).await), "[stale]", "{change} {id}");
        }
    }
    // While the instance is held back as a whole, sent nodes continue.
    let mut task = to_start("finish").await;
    task.write("no running.a; paused a=5").await;
    assert_eq!(task.start(&one(), "a/1.1").await, "[started a/1.1 0 1 t '' 0 here in-0]");
}

#[tokio::test]
async fn eight_levels_end_in_one_call_for_every_outcome() {
    for (how, said, ends, value) in
        [("c", "8", "completed", "8"), ("f", "E", "failed", "E"), ("x", STOPPED, "failed", STOPPED)]
    {
        let mut task = Task::running_flow(&graph_alone()).await;
        let mut ids = vec!["a".to_owned()];
        for level in 1..=8 {
            let id = format!("{}/0.1", ids[level - 1]);
            let graph = if level == 8 { one() } else { graph_alone() };
            let task_of = if level == 8 { "t" } else { "@" };
            assert_eq!(task.start(&graph, &id).await, format!("[started {id} 0 1 {task_of} '' 0 here in-0]"));
            ids.push(id);
        }
        assert_eq!(task.ok("flow_advance", &[ids[8].as_str(), "0", "1", how, said]).await, "[advanced 0]");
        assert_eq!(task.place("a").await, ends);
        let bad = if how == "c" { "-" } else { "0" };
        assert_keys!(task, format!("head a=1 1 0 0 f {bad}"));
        let over = if how == "c" { "c" } else { "f" };
        for (level, id) in ids.iter().enumerate().skip(1) {
            let digest = if level == 8 { "e" } else { "f" };
            assert_keys!(task, format!("head {id}=1 1 0 0 {digest} {bad} 0 {over}"));
        }
        for (level, id) in ids.iter().enumerate() {
            let own = if level == 8 { how } else { over };
            assert_keys!(task, format!("nodes.{id}/0={own}; value.{id}/0={value}"));
        }
        assert_keys!(task, "no running, outbox, stopping, cursor, error");
        assert_eq!(task.held("output").await, if how == "c" { r#"hash {"a": "8"}"# } else { "" });
        nothing_changes(&mut task, &[("flow_advance", &format!("{} 0 1 c 9 {} 0 1 F E", ids[8], ids[7]))]).await;
        task.write("shapes f#=8").await;
        assert_eq!(trim_place(&mut task, ends).await, [""; 0]);
    }
}

/// Removes everything in a place; returns what is left.
async fn trim_place(task: &mut Task, place: &str) -> Vec<String> {
    task.lose(&format!("{place}.a")).await;
    task.trim_whole("a").await
}

#[tokio::test]
async fn a_cancel_ends_eight_levels_whose_last_never_started() {
    let mut task = Task::running_flow(&graph_alone()).await;
    let mut id = "a".to_owned();
    for _ in 1..8 {
        id += "/0.1";
        task.start(&graph_alone(), &id).await;
    }
    let mut of = "a".to_owned();
    for _ in 0..8 {
        assert_eq!(task.ok("flow_control", &format!("{of} why")).await, "[stopping 1]");
        of += "/0.1";
    }
    // The last one is not an instance yet.
    assert_eq!(task.start(&one(), &of).await, "[stale]");
    assert_eq!(task.ok("flow_control", &format!("{of} why")).await, "[unknown]");
    assert_eq!(advance(&mut task, &format!("{id} 0 1 X -")).await, "[advanced 0]");
    assert_keys!(task, format!("place a=cancelled; head a=1 1 0 0 f -; head {id}=1 1 0 0 f - 0 x"));
    assert_keys!(task, "no running, outbox, stopping");
}

#[tokio::test]
async fn a_failed_child_fails_its_node_under_each_policy() {
    let child = || graph("cancel", "1", "p 0 0, - -, 1; p 1 1, - 0").named("e");
    for (policy, stands, head_after, after) in [
        ("finish", "failed", "1 1 0 0 d 1", "c, f, s"),
        ("cancel", "failed", "1 1 1 0 d 1", "c, f, p 1 1"),
        ("pause", "paused", "1 1 0 0 d 1", "c, f, s"),
    ] {
        let mut task = with_child(policy, &child()).await;
        assert_eq!(advance(&mut task, "a/1.1 0 1 f E").await, "[advanced 0]");
        assert_keys!(task, format!("place a={stands}; head a={head_after}"), "{policy}");
        assert_keys!(task, "head a/1.1=1 1 1 0 e 0 0 f");
        assert_eq!(task.states("a", 3).await, after, "{policy}");
        assert_keys!(task, "value a/0=7, a/1=E, a/1.1/0=E");
        assert_eq!(task.ok("flow_state", "a/1.1").await, "[state failed 1 1 0 e 0 E '' 1 0]");
        assert_keys!(task, "no stopping, error");
        let again = "a/1.1 0 1 f E a/1.1 0 1 c 7 a 1 1 F E a 1 1 f E";
        nothing_changes(&mut task, &[("flow_advance", again), ("flow_control", "a/1.1 why")]).await;
    }
}

#[tokio::test]
async fn a_child_whose_output_did_not_run_reports_it() {
    let child = graph("finish", "1", "p 0 0, o -, 1; p 1 1, - 0").named("e");
    let mut task = with_child("finish", &child).await;
    advance(&mut task, "a/1.1 0 1 f E").await;
    assert_keys!(task, format!("head a/1.1=1 1 0 0 e 1 0 f; value.a/1={SKIPPED}; place a=failed"));
}

#[tokio::test]
async fn a_child_without_an_output_value_returns_none() {
    for (child, said) in [(graph("finish", "-", "p 0 0, - -").named("e"), "8"), (one(), "-")] {
        let mut task = with_child("finish", &child).await;
        assert_eq!(advance(&mut task, &format!("a/1.1 0 1 c {said}")).await, "[advanced 0 a 2 1 t '' 0 here null]");
    }
}

#[tokio::test]
async fn an_optional_graph_that_fails_breaks_nothing() {
    let mut task = Task::running_flow(&graph("cancel", "1", "p 0 0, og -, 1; P 1 1, - -")).await;
    task.start(&one(), "a/0.1").await;
    assert_eq!(advance(&mut task, "a/0.1 0 1 f E").await, "[advanced 0 a 1 1 t '' 0 here in-1]");
    assert_keys!(task, "head a=1 0 1 1 d -");
    advance(&mut task, "a 1 1 c 8").await;
    assert_keys!(task, "place a=completed");
}

#[tokio::test]
async fn a_cancel_ends_child_and_parent_with_the_last_job() {
    let mut task = with_child("finish", &one()).await;
    assert_eq!(task.ok("flow_control", "a why").await, "[stopping 1]");
    assert_eq!(task.ok("flow_control", "a/1.1 stopped").await, "[stopping 1]");
    assert_eq!(task.unchanged("flow_control", "a/1.1 other").await, "[stopping 1]");
    assert_eq!(task.ok("flow_enter", "a/1.1 0 1").await, "[entered stale 0]");
    assert_rest!(
        task,
        "meta, shapes, input, tasks",
        format!(
            "cancelled a=NOW; children a/1.1=0; error a=why, a/1.1=stopped; \
             instances a=1 1 1 0 d -, a/1.1=1 1 0 0 e - 0 x; nodes a/0=c, a/1=x, a/1.1/0=x, a/2=p 1 1; \
             value a/0=7, a/1={STOPPED}"
        )
    );
    assert_eq!(task.ok("flow_state", "a/1.1").await, "[state cancelled 1 0 0 e - '' stopped 1 0]");
    let late = [
        ("flow_enter", "a/1.1 0 1"),
        ("flow_advance", "a/1.1 0 1 c 8 a 1 1 X -"),
        ("flow_control", "a/1.1 why"),
        ("flow_control", "a why"),
        ("flow_look", "0 200"),
        ("flow_resend", "a 1 1 a/1.1 0 1"),
    ];
    nothing_changes(&mut task, &late).await;
    assert_eq!(task.start(&one(), "a/1.1").await, "[existed]");
}

#[tokio::test]
async fn a_child_that_never_started_is_reported_as_cancelled() {
    let mut task = to_start("finish").await;
    task.ok("flow_control", "a why").await;
    assert_eq!(task.unchanged("flow_control", "a/1.1 stopped").await, "[unknown]");
    assert_eq!(unchanged!(task, task.start(&one(), "a/1.1").await), "[stale]");
    assert_eq!(task.ok("flow_advance", &["a", "1", "1", "X", STOPPED]).await, "[advanced 0]");
    assert_keys!(task, "place a=cancelled; states a=c, x, p 1 1");
    assert_eq!(unchanged!(task, task.start(&one(), "a/1.1").await), "[stale]");
}

#[tokio::test]
async fn a_cancelled_child_cancels_its_node_and_the_others_continue() {
    let mut task = of_graphs(2).await;
    for id in ["a/0.1", "a/1.1"] {
        task.start(&line().named("e"), id).await;
    }
    task.ok("flow_control", "a/0.1 why").await;
    advance(&mut task, "a/0.1 0 1 c 7").await;
    assert_keys!(task, format!("states a=x, g; head a=1 0 1 1 d 0; head a/0.1=1 1 2 0 e - 0 x; value.a/0={STOPPED}"));
    for node in 0..3 {
        advance(&mut task, &format!("a/1.1 {node} 1 c 7")).await;
    }
    assert_keys!(task, "states a=x, c; place a=failed");
}

#[tokio::test]
async fn ends_of_jobs_and_of_graphs_count_only_for_their_kind() {
    let mut task = to_start("finish").await;
    let jobs = ["a 1 1 c 7", "a 1 1 f E", "a 1 1 x -", "a 2 1 F E", "a 0 1 F E", "a 1 2 F E", "a 1 0 X -", "a 1 1 q -"];
    for words in jobs {
        nothing_changes(&mut task, &[("flow_advance", words)]).await;
    }
    assert_eq!(task.ok("flow_enter", "a 1 1").await, "[entered stale 0]");
    for (how, after) in [("F", "c, f, s"), ("X", "c, x, s")] {
        let mut task = to_start("finish").await;
        assert_eq!(advance(&mut task, &format!("a 1 1 {how} E")).await, "[advanced 0]");
        assert_eq!(task.states("a", 3).await, after);
        assert_keys!(task, "head a=1 1 0 0 d 1; value.a/1=E; place a=failed");
        nothing_changes(&mut task, &[("flow_advance", "a 1 1 F E a 1 1 X E a 1 1 c 7")]).await;
        assert_eq!(task.start(&one(), "a/1.1").await, "[stale]");
    }
    let mut task = Task::running_flow(&line()).await;
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
    let nodes = "p 0 0, g -, 3; p 0 0, g -, 3; p 0 0, - -, 3; p 3 3, - 0";
    for ends in [
        "a 2 1 c 9 a/0.1 0 1 c 7 a/1.1 0 1 c 8",
        "a/0.1 0 1 c 7 a 2 1 c 9 a/1.1 0 1 c 8",
        "a/1.1 0 1 c 8 a/0.1 0 1 c 7 a/0.1 0 1 f twice a 2 1 c 9",
    ] {
        let mut task = Task::running_flow(&graph("finish", "3", nodes)).await;
        for id in ["a/0.1", "a/1.1"] {
            task.start(&one(), id).await;
        }
        assert_eq!(advance(&mut task, ends).await, "[advanced 0 a 3 1 t '' 0 here 7]", "{ends}");
        assert_keys!(task, "head a=1 0 1 1 d -; states a=c, c, c, o");
        nothing_changes(&mut task, &[("flow_advance", ends)]).await;
    }
    // Ends of a parent that these end.
    let mut task = of_graphs(3).await;
    for id in ["a/0.1", "a/1.1", "a/2.1"] {
        task.start(&one(), id).await;
    }
    let ends = "a/2.1 0 1 c 7 a/0.1 0 1 f E a/1.1 0 1 c 8";
    assert_eq!(advance(&mut task, ends).await, "[advanced 0]");
    assert_keys!(task, "head a=1 1 0 0 d 0; failed a=NOW");
    nothing_changes(&mut task, &[("flow_advance", ends)]).await;
}

#[tokio::test]
async fn a_child_that_ends_by_a_visit_or_a_look_also_ends_its_node() {
    // Skipped nodes over the budget: another call visits the last one.
    let mut task = with_child("finish", &long_line(67).named("e")).await;
    assert_eq!(advance(&mut task, "a/1.1 0 1 f E").await, "[advanced 1 v a/1.1/64/1]");
    assert_keys!(task, "states a=c, g, p 1 1");
    assert_eq!(task.ok("flow_visit", "a/1.1 64 1").await, "[visited 0]");
    assert_keys!(task, "states a=c, f, s; place a=failed; no outbox, cursor, running");
    nothing_changes(&mut task, &[("flow_visit", "a/1.1 64 1")]).await;
    // An unreadable one ends when its nodes are to be opened.
    let mut task = to_start("finish").await;
    assert_eq!(task.start_in_parts(&one(), "a/1.1", "n", 2).await, "[started]");
    task.write("nodes a/1.1/0=what").await;
    assert_eq!(task.ok("flow_open", "a/1.1 1").await, "[opened 0 0]");
    assert_keys!(task, format!("head a/1.1=1 1 1 0 e - 0 f; value.a/1={UNREADABLE}"));
    assert_keys!(task, "place a=failed; no outbox, running");
}

#[tokio::test]
async fn nodes_that_wait_for_a_graph_are_visited_within_the_budget() {
    let nodes = format!("p 0 0, g -, {}{}", numbers(1_100), "; p 1 1, - -".repeat(1_100));
    let mut task = Task::running_flow(&graph("finish", "-", &nodes)).await;
    task.start(&one(), "a/0.1").await;
    let reply = advance(&mut task, "a/0.1 0 1 c 7").await;
    assert!(reply.starts_with("[advanced 1 v a/0/1 a 1 1 t '' 0 here in-1 "), "{}", &reply[..60]);
    assert_keys!(task, "head a=1 0 1100 64 d -");
    while task.ok("flow_visit", "a 0 1").await.starts_with("[visited 1 ") {}
    assert_keys!(task, "head a=1 0 1100 1100 d -");
}

#[tokio::test]
async fn a_child_of_a_paused_parent_ends_and_opens_nodes_on_resume() {
    let mut task = with_child("finish", &one()).await;
    assert_eq!(task.ok("flow_pause", "a 0 pause").await, "[paused]");
    assert_eq!(task.ok("flow_enter", "a/1.1 0 1").await, "[entered go 0]");
    assert_eq!(advance(&mut task, "a/1.1 0 1 c 8").await, "[advanced 0]");
    assert_keys!(task, "states a=c, c, p 0 0; head a=1 1 1 0 d -; place a=paused");
    task.ok("flow_pause", "a 1 resume").await;
    assert_eq!(task.ok("flow_open", "a 1").await, "[opened 0 0 a 2 1 t '' 0 here 8]");
}

#[tokio::test]
async fn a_child_is_not_paused_or_rerun_on_its_own() {
    let mut task = with_child("pause", &one()).await;
    assert_eq!(task.unchanged("flow_pause", "a/1.1 0 pause").await, "[unknown]");
    assert_eq!(task.unchanged("flow_retry", "a/1.1 0 1 0 'p 0 0'").await, "[unknown]");
    advance(&mut task, "a/1.1 0 1 f E").await;
    for turn in ["0", "1"] {
        assert_eq!(task.unchanged("flow_pause", &["a/1.1", turn, "resume"]).await, "[unknown]");
        assert_eq!(task.unchanged("flow_retry", &["a/1.1", turn, "1", "0", "p 0 0"]).await, "[unknown]");
    }
}

#[tokio::test]
async fn a_new_run_starts_a_new_child_and_ignores_the_first_one() {
    for policy in ["finish", "pause"] {
        let mut task = with_child(policy, &one()).await;
        advance(&mut task, "a/1.1 0 1 f E").await;
        assert_eq!(task.ok("flow_retry", "a 1 2 1 'p 0 0' 2 'p 1 1'").await, "[again 2]");
        assert_keys!(task, "value a/0=7, a/1.1/0=E");
        assert_eq!(task.start(&one(), "a/1.2").await, "[stale]");
        assert_eq!(task.ok("flow_open", "a 2").await, "[opened 0 0 a 1 2 @ '' 0 here in-1]");
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
        assert_eq!(unchanged!(task, task.start(&one(), "a/1.1").await), "[existed]");
        assert_eq!(task.start(&one(), "a/1.2").await, "[started a/1.2 0 1 t '' 0 here in-0]");
        nothing_changes(&mut task, &late).await;
        assert_eq!(advance(&mut task, "a/1.2 0 1 c 8").await, "[advanced 0 a 2 2 t '' 0 here 8]");
        advance(&mut task, "a 2 2 c 9").await;
        assert_keys!(task, "place a=completed; head a=2 3 0 0 d -; shapes.e#=2");
        assert_eq!(trim_place(&mut task, "completed").await, [""; 0]);
    }
}

#[tokio::test]
async fn a_start_of_the_first_run_is_stale_in_the_second() {
    let mut task = to_start("finish").await;
    advance(&mut task, "a 1 1 F E").await;
    task.ok("flow_retry", "a 1 2 1 'p 0 0' 2 'p 1 1'").await;
    task.ok("flow_open", "a 2").await;
    assert_eq!(unchanged!(task, task.start(&one(), "a/1.1").await), "[stale]");
}

#[tokio::test]
async fn while_a_child_runs_its_parent_is_busy() {
    let mut task = Task::running_flow(&graph("pause", "-", "p 0 0, g -; p 0 0, - -")).await;
    task.start(&one(), "a/0.1").await;
    advance(&mut task, "a 1 1 f E").await;
    assert_eq!(task.unchanged("flow_retry", "a 1 2 0 'p 0 0' 1 'p 0 0'").await, "[busy 1]");
    advance(&mut task, "a/0.1 0 1 c 8").await;
    assert_eq!(task.ok("flow_retry", "a 1 2 0 'p 0 0' 1 'p 0 0'").await, "[moved]");
    assert_eq!(task.ok("flow_retry", "a 1 1 1 'p 0 0'").await, "[again 2]");
}

#[tokio::test]
async fn a_graph_is_sent_twice_more_and_then_reported_as_lost() {
    let mut task = to_start("finish").await;
    nothing_changes(&mut task, &[("flow_resend", "a 1 1")]).await;
    for time in 1..=2 {
        task.write("no outbox").await;
        assert_eq!(task.ok("flow_resend", "a 1 1").await, "[resent 0 a 1 1 @ '' 0 here in-1]");
        assert_keys!(task, format!("states a=c, g{time}, p 1 1"));
        assert_eq!(task.ok("flow_resend", "a 1 1").await, "[resent 0]");
        task.write("outbox s a/1/1=5").await;
        assert_eq!(task.ok("flow_look", "10000 200").await, "[looked 0 0 a 1 1 @ '' 0 here in-1]");
    }
    task.write("no outbox").await;
    assert_eq!(task.unchanged("flow_resend", "a 1 1").await, "[resent 1 a/1/1]");
    // If it starts later, it ends its node like any other.
    assert_eq!(task.start(&one(), "a/1.1").await, "[started a/1.1 0 1 t '' 0 here in-0]");
    assert_eq!(advance(&mut task, "a/1.1 0 1 c 8").await, "[advanced 0 a 2 1 t '' 0 here 8]");
}

#[tokio::test]
async fn an_audit_lists_children_like_other_instances() {
    let mut task = with_child("finish", &one()).await;
    for id in ["a", "a/1.1"] {
        task.zadd("running", 5.0, id).await;
    }
    assert_eq!(task.ok("flow_audit", "60000 200").await, "[taken 0 a a/1.1]");
    advance(&mut task, "a/1.1 0 1 c 8").await;
    task.write("running a=5").await;
    assert_eq!(task.ok("flow_audit", "60000 200").await, "[taken 0 a]");
}

#[tokio::test]
async fn a_node_whose_job_returned_a_graph_ends_with_that_graph() {
    let mut task = Task::running_flow(&line()).await;
    task.write("shapes d#=1; outbox s a/0/1=5").await;
    assert_eq!(grow(&mut task, "a 0 1", "42", "{graph}").await, "[advanced 0 a 0 1 @ finish 0 here {graph}]");
    assert_rest!(
        task,
        "meta, shapes, input",
        "grow a/0={graph}; instances a=1 0 3 1 d -; nodes a/0=g, a/1=p 1 1, a/2=p 1 1; outbox s a/0/1=NOW; \
         running a=NOW; value a/0=42"
    );
    // Every report of the job again.
    assert_eq!(unchanged!(task, grow(&mut task, "a 0 1", "43", "{other}").await), "[advanced 0]");
    assert_eq!(unchanged!(task, grow(&mut task, "a 0 2", "43", "{other}").await), "[advanced 0]");
    nothing_changes(&mut task, &[("flow_advance", "a 0 1 c 7 a 0 1 f E"), ("flow_enter", "a 0 1")]).await;
    // A child without an output leaves the value of the job.
    let quiet = graph("finish", "-", "p 0 0, - -").named("q");
    assert_eq!(task.start(&quiet, "a/0.1").await, "[started a/0.1 0 1 t '' 0 here in-0]");
    assert_eq!(advance(&mut task, "a/0.1 0 1 c 8").await, "[advanced 0 a 1 1 t '' 0 here 42]");
    // A child with an output replaces it.
    assert_eq!(grow(&mut task, "a 1 1", "42", "{graph}").await, "[advanced 0 a 1 1 @ finish 0 here {graph}]");
    task.start(&one(), "a/1.1").await;
    assert_eq!(advance(&mut task, "a/1.1 0 1 c 8").await, "[advanced 0 a 2 1 t '' 0 here 8]");
    // Also if the job had no value; a failed child fails the node.
    assert_eq!(grow(&mut task, "a 2 1", "", "{graph}").await, "[advanced 0 a 2 1 @ finish 0 here {graph}]");
    task.start(&one(), "a/2.1").await;
    assert_eq!(advance(&mut task, "a/2.1 0 1 f E").await, "[advanced 0]");
    assert_keys!(task, "states a=c, c, f; value.a/2=E; place a=failed");
    assert_eq!(trim_place(&mut task, "failed").await, [""; 0]);
}

#[tokio::test]
async fn a_grown_graph_is_sent_again_like_any_other() {
    let mut task = Task::running_flow(&line()).await;
    grow(&mut task, "a 0 1", "42", "{graph}").await;
    task.write("outbox s a/0/1=5").await;
    assert_eq!(task.ok("flow_look", "10000 200").await, "[looked 0 0 a 0 1 @ finish 0 here {graph}]");
    task.write("no outbox").await;
    assert_eq!(task.ok("flow_resend", "a 0 1").await, "[resent 0 a 0 1 @ finish 0 here {graph}]");
    let large = "x".repeat(600 * 1024);
    task.hset("grow", &[("a/0", &large)]).await;
    assert_eq!(task.ok("flow_look", "-1 200").await, "[looked 0 0 a 0 1 @ finish 0 grow a/0 614400]");
    // Without the graph it is lost, and its instance ends.
    task.write("no grow").await;
    assert_eq!(task.ok("flow_look", "-1 200").await, "[looked 0 0]");
    assert_keys!(task, format!("stopping.a=failed {UNREADABLE}"));
    advance(&mut task, "a 0 1 X -").await;
    assert_keys!(task, format!("place a=failed; error a={UNREADABLE}"));
}

#[tokio::test]
async fn a_new_run_drops_the_graph_that_a_job_returned() {
    let mut task = Task::running_flow(&line()).await;
    grow(&mut task, "a 0 1", "42", "{graph}").await;
    task.start(&one(), "a/0.1").await;
    advance(&mut task, "a/0.1 0 1 f E").await;
    assert_eq!(task.ok("flow_retry", "a 1 3 0 'p 0 0' 1 'p 1 1' 2 'p 1 1'").await, "[again 2]");
    assert_keys!(task, "no grow");
    assert_eq!(task.ok("flow_open", "a 2").await, "[opened 0 0 a 0 2 t '' 0 here in-0]");
    assert_eq!(grow(&mut task, "a 0 2", "", "{again}").await, "[advanced 0 a 0 2 @ finish 0 here {again}]");
    nothing_changes(&mut task, &[("flow_advance", "a/0.1 0 1 c 7 a 0 1 F E")]).await;
    task.start(&one(), "a/0.2").await;
    assert_eq!(advance(&mut task, "a/0.2 0 1 c 8").await, "[advanced 0 a 1 2 t '' 0 here 8]");
}

#[tokio::test]
async fn a_returned_graph_starts_nothing_in_a_stopping_instance() {
    for (stopping, ends) in [("failed ", "failed"), ("cancelled why", "cancelled")] {
        let mut task = Task::running_flow(&line()).await;
        task.hset("stopping", &[("a", stopping)]).await;
        assert_eq!(grow(&mut task, "a 0 1", "42", "{graph}").await, "[advanced 0]");
        assert_keys!(task, format!("states a=x, p 1 1, p 1 1; place a={ends}; value.a/0={STOPPED}; no grow"));
    }
    // While the instance is paused, returned graphs continue.
    let mut task = Task::running_flow(&line()).await;
    task.ok("flow_pause", "a 0 pause").await;
    assert_eq!(grow(&mut task, "a 0 1", "42", "{graph}").await, "[advanced 0 a 0 1 @ finish 0 here {graph}]");
    task.start(&one(), "a/0.1").await;
    advance(&mut task, "a/0.1 0 1 c 8").await;
    assert_keys!(task, "states a=c, p 0 0, p 1 1");
}

#[tokio::test]
async fn a_result_whose_graph_is_missing_ends_the_instance() {
    for value in ["\u{1}", "\u{1} ", "\u{1}x 42", "\u{1}-2 42", "1 2"] {
        let mut task = Task::running_flow(&line()).await;
        task.ok("flow_advance", &["a", "0", "1", "c", value]).await;
        assert_keys!(task, "states a=c, o, p 1 1", "{value:?}");
        assert_eq!(task.field("value", "a/0").await, value);
    }
    for value in ["\u{1}2 42", "\u{1}99 42", "\u{1}0 "] {
        let mut task = Task::running_flow(&line()).await;
        assert_eq!(task.ok("flow_advance", &["a", "0", "1", "c", value]).await, "[advanced 0]");
        task.ok("flow_look", "-1 200").await;
        assert_keys!(task, format!("stopping.a=failed {UNREADABLE}"), "{value:?}");
        assert_eq!(task.ok("flow_control", "a/0.1 why").await, "[unknown]");
        advance(&mut task, "a 0 1 X -").await;
        assert_keys!(task, "place a=failed; no outbox");
    }
    // A failure is never a result with a graph.
    let mut task = Task::running_flow(&line()).await;
    task.ok("flow_advance", &["a", "0", "1", "f", "\u{1}2 42{}"]).await;
    assert_keys!(task, "states a=f, s, s");
}

#[tokio::test]
async fn a_child_whose_graph_is_lost_ends_its_node_as_corrupt() {
    for (key, field) in [("shapes", "e/0"), ("nodes", "a/1.1/1")] {
        let mut task = with_child("finish", &line().named("e")).await;
        task.lose(&format!("{key}.{field}")).await;
        assert_eq!(advance(&mut task, "a/1.1 0 1 c 8").await, "[advanced 0]");
        assert_keys!(task, "head a/1.1=1 1 2 0 e - 0 f", "{field}");
        assert_eq!(task.ok("flow_state", "a/1.1").await, format!("[state failed 1 2 0 e - '' {UNREADABLE} 1 0]"));
        assert_keys!(task, format!("states a=c, f, s; value.a/1={UNREADABLE}; no stopping, outbox"));
    }
}

#[tokio::test]
async fn a_child_also_ends_if_no_node_waits_for_it_any_more() {
    for change in
        "no instances.a; instances a=what; no running.a; instances a=2 0 2 1 d -; nodes a/1=f; no nodes.a/1".split("; ")
    {
        let mut task = with_child("finish", &one()).await;
        task.write(change).await;
        let own = task.rest("instances, nodes, outbox, running, value").await;
        assert_eq!(advance(&mut task, "a/1.1 0 1 c 8").await, "[advanced 0]", "{change}");
        assert_keys!(task, "head a/1.1=1 1 0 0 e - 0 c; value a/0=7, a/1.1/0=8");
        assert_rest!(task, "instances, nodes, outbox, running, value", own);
        assert!(!task.held("running").await.contains("a/1.1"));
    }
}

#[tokio::test]
async fn an_unknown_end_word_makes_a_child_unreadable() {
    for over in ["q", "cc", "c x", "C", "0"] {
        let mut task = with_child("finish", &one()).await;
        task.hset("instances", &[("a/1.1", &format!("1 0 1 1 e - 0 {over}"))]).await;
        assert_eq!(unchanged!(task, advance(&mut task, "a/1.1 0 1 c 8").await), "[advanced 0]", "{over}");
        assert_eq!(task.ok("flow_state", "a/1.1").await, "[unknown]");
    }
}

#[tokio::test]
async fn the_end_word_of_a_child_is_invalid_for_a_root() {
    let mut task = Task::running_flow(&line()).await;
    task.write("instances a=1 1 0 0 d - 0 c; no running.a").await;
    assert_eq!(task.ok("flow_state", "a").await, "[state unknown 1 0 0 d - '' '' 1 0]");
    assert_eq!(task.ok("flow_control", "a why").await, "[unknown]");
}

#[tokio::test]
async fn children_are_removed_with_their_root_and_no_others_are() {
    let mut task = Task::new().await;
    // `a0` and `a-` sort next to the children of `a`.
    for id in ["a", "a0", "a-"] {
        task.put(&graph("finish", "-", "p 0 0, g -; p 0 0, g -"), id).await;
        task.start(&graph_alone(), &format!("{id}/0.1")).await;
        task.start(&one(), &format!("{id}/0.1/0.1")).await;
        task.start(&line().named("l"), &format!("{id}/1.1")).await;
    }
    task.write("shapes d#=3; error a/0.1=why, a0/0.1=why; grow a/0.1/0={}, a0/0.1/0={}").await;
    for child in ["a/0.1", "a/0.1/0.1", "a/1.1"] {
        task.lose(&format!("running.{child}")).await;
    }
    let left = task.trim_whole("a").await;
    assert!(left.iter().all(|key| !key.contains("\"a\"") && !key.contains("\"a/")), "{left:?}");
    assert_keys!(task, "children a-/0.1=0, a-/0.1/0.1=0, a-/1.1=0, a0/0.1=0, a0/0.1/0.1=0, a0/1.1=0");
    for count in ["d#", "e#", "f#", "l#"] {
        assert_eq!(task.field("shapes", count).await, "2");
    }
    assert_eq!(task.held("grow").await + &task.held("error").await, r#"hash {"a0/0.1/0": "{}"}hash {"a0/0.1": "why"}"#);
}

#[tokio::test]
async fn a_root_with_many_children_is_removed_in_several_calls() {
    let mut task = of_graphs(250).await;
    for node in 0..250 {
        task.start(&one(), &format!("a/{node}.1")).await;
    }
    task.write("shapes d#=1").await;
    let ends: String = (0..200).map(|node| format!("a/{node}.1 0 1 c {node} ")).collect();
    advance(&mut task, &ends).await;
    let ends: String = (200..250).map(|node| format!("a/{node}.1 0 1 c {node} ")).collect();
    advance(&mut task, &ends).await;
    assert_keys!(task, "place a=completed; no running, outbox");
    task.write("completed a=5").await;
    for (reply, left) in [("[trimmed 0 1]", 150), ("[trimmed 0 1]", 50), ("[trimmed 1 0]", 0)] {
        assert_eq!(task.ok("flow_trim", "60000 - 5000").await, reply);
        assert_eq!(task.held("children").await.matches(": 0").count(), left);
    }
    assert_rest!(task, "meta, tasks", "");
}

#[tokio::test]
async fn a_large_child_is_removed_in_pages_before_its_root() {
    let mut task = of_graphs(1).await;
    let child = long_line(1_200).named("e");
    assert_eq!(task.start_in_parts(&child, "a/0.1", "n", 500).await, "[started]");
    while task.ok("flow_open", "a/0.1 1").await.starts_with("[opened 1 ") {}
    advance(&mut task, "a/0.1 0 1 f E").await;
    for node in (64..1_200).step_by(64) {
        task.ok("flow_visit", &format!("a/0.1 {node} 1")).await;
    }
    assert_keys!(task, "place a=failed");
    task.write("shapes d#=1; no failed.a; completed a=5").await;
    for cursor in ["n 700", "n 200", "s 700", "s 200"] {
        assert_eq!(task.ok("flow_trim", "60000 - 5000").await, "[trimmed 0 1]");
        assert_keys!(task, format!("cursor t a/0.1={cursor}; stopping a/0.1=removed ; head a=1 1 0 0 d 0"));
    }
    assert_eq!(task.ok("flow_trim", "60000 - 5000").await, "[trimmed 1 0]");
    assert_rest!(task, "meta, tasks", "");
}

/// Fails the first of 600 nodes in a row: all others are skipped.
async fn skip(task: &mut Task, child: &str) {
    advance(task, &format!("{child} 0 1 f E")).await;
    for node in (64..600).step_by(64) {
        task.ok("flow_visit", &format!("{child} {node} 1")).await;
    }
}

#[tokio::test]
async fn a_root_with_a_half_removed_child_can_run_and_be_removed() {
    let mut task = with_child("finish", &long_line(600).named("e")).await;
    skip(&mut task, "a/1.1").await;
    task.write("shapes d#=1").await;
    task.write("failed a=5").await;
    assert_eq!(task.ok_at("failed", "flow_trim", "60000 - 5000").await, "[trimmed 0 1]");
    assert_keys!(task, "cursor t a/1.1=n 100");
    assert_eq!(task.ok("flow_retry", "a 1 2 1 'p 0 0' 2 'p 1 1'").await, "[again 2]");
    task.ok("flow_open", "a 2").await;
    assert!(task.start(&long_line(600).named("e"), "a/1.2").await.starts_with("[started a/1.2 0 1 "));
    nothing_changes(&mut task, &[("flow_advance", "a/1.1 599 1 c 7"), ("flow_enter", "a/1.1 0 1")]).await;
    skip(&mut task, "a/1.2").await;
    assert_keys!(task, "place a=failed");
    assert_eq!(trim_place(&mut task, "failed").await, [""; 0]);
}

#[tokio::test]
async fn an_unreadable_child_is_removed_whole_with_its_root() {
    let mut task = with_child("finish", &one()).await;
    task.write("instances a/1.1=what").await;
    advance(&mut task, "a 1 1 F E").await;
    assert_keys!(task, "place a=failed");
    trim_place(&mut task, "failed").await;
    assert_keys!(task, "no children, instances, running");
}
