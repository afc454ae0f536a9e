use crate::scripts::call::{Task, assert_keys, assert_rest, unchanged};
use crate::scripts::flow::{fan, graph, line, loose};

/// An instance `a` of three nodes in a row that failed at its second one.
async fn failed() -> Task {
    let mut task = Task::running_flow(&line()).await;
    task.ok("flow_advance", "a 0 1 c 7").await;
    task.ok("flow_advance", "a 1 1 f E").await;
    assert_keys!(task, "head a=1 1 0 0 d 1");
    task
}

async fn retry(task: &mut Task, turn: &str, pairs: &[(&str, &str)]) -> String {
    let live = pairs.len().to_string();
    let mut args = vec!["a", turn, &live];
    args.extend(pairs.iter().flat_map(|(node, state)| [*node, *state]));
    task.ok("flow_retry", &args).await
}

/// The nodes of [`failed`] that did not complete.
const REST: [(&str, &str); 2] = [("1", "p 0 0"), ("2", "p 1 1")];

#[tokio::test]
async fn incomplete_nodes_run_in_a_new_run_and_completed_ones_stay() {
    let mut task = failed().await;
    task.write("error a=why, b=why").await;
    assert_eq!(retry(&mut task, "1", &REST).await, "[again 2]");
    assert_rest!(
        task,
        "meta, shapes",
        "error b=why; input a/0=in-0; instances a=2 2 2 0 d -; nodes a/0=c, a/1=p 0 0, a/2=p 1 1; outbox o a/2=NOW; \
         running a=NOW; value a/0=7"
    );
    assert_eq!(task.ok("flow_open", "a 2").await, "[opened 0 0 a 1 2 t '' 0 here 7]");
    task.ok("flow_advance", "a 1 2 c 8").await;
    task.ok("flow_advance", "a 2 2 c 9").await;
    assert_keys!(task, "place a=completed; head a=2 3 0 0 d -; output a=9; no outbox");
}

#[tokio::test]
async fn a_retry_completes_a_cancelled_instance_whose_nodes_completed() {
    let mut task = Task::running_flow(&line()).await;
    for (node, value) in [("0", "7"), ("1", "8")] {
        task.ok("flow_advance", &format!("a {node} 1 c {value}")).await;
    }
    assert_eq!(task.ok("flow_control", "a 'too late'").await, "[stopping 1]");
    task.ok("flow_advance", "a 2 1 c 9").await;
    assert_eq!((task.place("a").await, task.held("output").await), ("cancelled".to_owned(), String::new()));
    assert_eq!(retry(&mut task, "1", &[]).await, "[again 2]");
    assert_eq!(unchanged!(task, retry(&mut task, "1", &[]).await), "[changed]");
    assert_eq!(task.ok("flow_open", "a 2").await, "[opened 0 0]");
    assert_eq!(
        (task.place("a").await, task.held("output").await),
        ("completed".to_owned(), r#"hash {"a": "9"}"#.to_owned())
    );
    assert_keys!(task, "head a=2 3 0 0 d -");
    assert_eq!((task.held("outbox").await, task.held("error").await), (String::new(), String::new()));
}

#[tokio::test]
async fn a_late_copy_starts_no_other_run() {
    let mut task = failed().await;
    retry(&mut task, "1", &REST).await;
    assert_eq!(unchanged!(task, retry(&mut task, "1", &REST).await), "[changed]");
    // Also after that run has failed as well.
    task.ok("flow_open", "a 2").await;
    task.ok("flow_advance", "a 1 2 f E").await;
    assert_keys!(task, "head a=2 3 0 0 d 1");
    for turn in ["1", "2", "4", "-"] {
        assert_eq!(unchanged!(task, retry(&mut task, turn, &REST).await), "[changed]");
    }
    assert_eq!(retry(&mut task, "3", &REST).await, "[again 3]");
}

#[tokio::test]
async fn only_failed_cancelled_or_paused_instances_are_retried() {
    for place in ["running", "completed", "nowhere"] {
        let mut task = failed().await;
        task.write(&format!("no failed; {place} a=5")).await;
        assert_eq!(unchanged!(task, retry(&mut task, "1", &REST).await), "[changed]", "{place}");
    }
    let mut task = failed().await;
    // This call names no node.
    assert_eq!(unchanged!(task, retry(&mut task, "1", &[]).await), "[changed]");
    assert_eq!(task.unchanged("flow_retry", "absent 1 1 1 'p 0 0'").await, "[unknown]");
    task.write("stopping a=failed ").await;
    assert_eq!(retry(&mut task, "1", &REST).await, "[changed]");
    task.write("instances a=1 1 0").await;
    assert_eq!(retry(&mut task, "1", &REST).await, "[unknown]");
}

#[tokio::test]
async fn an_instance_with_open_nodes_is_busy() {
    let mut task = Task::running_flow(&graph("pause", "-", "p 0 0, - -; p 0 0, - -, 2; p 1 1, - -")).await;
    task.ok("flow_advance", "a 0 1 f E").await;
    assert_keys!(task, "place a=paused");
    let pairs = [("0", "p 0 0"), ("1", "p 0 0"), ("2", "p 1 1")];
    assert_eq!(unchanged!(task, retry(&mut task, "1", &pairs).await), "[busy 1]");
    // The node completed after the caller had read it, so it must not run again.
    task.ok("flow_advance", "a 1 1 c 7").await;
    assert_eq!(unchanged!(task, retry(&mut task, "1", &pairs).await), "[moved]");
    assert_eq!(retry(&mut task, "1", &[("0", "p 0 0"), ("2", "p 0 0")]).await, "[again 2]");
    assert_keys!(task, "states a=p 0 0, c, p 0 0; head a=2 2 2 0 d -; value a/1=7");
}

#[tokio::test]
async fn an_instance_that_a_failure_paused_runs_with_its_held_nodes() {
    // The fourth waits for both ends; the third was ready and held back.
    let nodes = "p 0 0, - -, 3; p 0 0, - -, 2 3; p 1 1, - 1; p 2 2, - 0";
    let mut task = Task::running_flow(&graph("pause", "3", nodes)).await;
    task.ok("flow_advance", "a 0 1 f E").await;
    task.ok("flow_advance", "a 1 1 c 7").await;
    assert_keys!(task, "states a=f, c, p 0 0, s; head a=1 1 1 0 d 0");
    assert_eq!(retry(&mut task, "1", &[("0", "p 0 0"), ("2", "p 0 0"), ("3", "p 1 1")]).await, "[again 2]");
    assert_eq!(task.ok("flow_open", "a 2").await, "[opened 0 0 a 0 2 t '' 0 here in-0 a 2 2 t '' 0 here 7]");
    assert_keys!(task, "head a=2 2 3 2 d -");
    assert_eq!(task.ok("flow_advance", "a 0 2 c 8 a 2 2 c 9").await, "[advanced 0 a 3 2 t '' 0 here 8]");
    task.ok("flow_advance", "a 3 2 c 10").await;
    assert_keys!(task, "place a=completed; head a=2 3 0 0 d -; output a=10");
}

#[tokio::test]
async fn a_new_run_of_a_cancelled_one_removes_pending_entries() {
    let mut task = Task::running_flow(&line()).await;
    task.ok("flow_control", "a why").await;
    task.ok("flow_enter", "a 0 1").await;
    assert_keys!(task, "cancelled a=NOW");
    let pairs = [("0", "p 0 0"), ("1", "p 1 1"), ("2", "p 1 1")];
    // Entries and a cursor of pending work.
    for entry in ["s a/0/1", "v a/0/1", "o a/1"] {
        task.zadd("outbox", 5.0, entry).await;
    }
    task.write("cursor a/0/1=0 c, a/1=0").await;
    assert_eq!(retry(&mut task, "1", &pairs).await, "[again 2]");
    assert_keys!(task, "no cancelled, error");
    task.ok("flow_open", "a 2").await;
    let head_before = task.head("a").await;
    assert_eq!(head_before, "2 2 3 1 d -");
    assert_eq!(task.ok("flow_open", "a 1").await, "[opened 0 0]");
    assert_eq!(task.ok("flow_visit", "a 0 1").await, "[visited 0]");
    assert_eq!(task.ok("flow_enter", "a 0 1 a 0 2").await, "[entered stale go 0]");
    assert_eq!(task.ok("flow_advance", "a 0 1 c 7").await, "[advanced 0]");
    assert_eq!(task.ok("flow_look", "1000 200").await, "[looked 0 0]");
    assert_keys!(task, format!("head a={head_before}; states a=o, p 1 1, p 1 1; outbox s a/0/2=NOW; no cursor"));
}

#[tokio::test]
async fn five_hundred_nodes_run_again_in_one_call() {
    let mut task = Task::running_flow(&loose(500)).await;
    task.write("instances a=1 3 0 0 d 7; no running; failed a=5").await;
    for node in 0..500 {
        task.hset("nodes", &[(&format!("a/{node}"), ["f", "x", "s"][node % 3])]).await;
    }
    let numbers: Vec<String> = (0..500).map(|node| node.to_string()).collect();
    let pairs: Vec<(&str, &str)> = numbers.iter().map(|node| (node.as_str(), "p 0 0")).collect();
    assert_eq!(retry(&mut task, "3", &pairs).await, "[again 2]");
    assert_keys!(task, "head a=2 4 500 0 d -");
    while task.ok("flow_open", "a 2").await.starts_with("[opened 1 ") {}
    assert_keys!(task, "head a=2 4 500 500 d -");
}

/// A part of a retry of `a` with these nodes; the last part has the total.
async fn part(task: &mut Task, turn: &str, live: &str, nodes: std::ops::Range<usize>, state: &str) -> String {
    let numbers: Vec<String> = nodes.map(|node| node.to_string()).collect();
    let mut args = vec!["a", turn, live];
    args.extend(numbers.iter().flat_map(|node| [node.as_str(), state]));
    task.ok("flow_retry", &args).await
}

/// An instance `a` of this many nodes that failed, and each of its nodes.
async fn all_failed(count: usize) -> Task {
    let mut task = Task::running_flow(&loose(count)).await;
    task.write("instances a=1 3 0 0 d 7; no running; failed a=5; error a=why").await;
    for node in 0..count {
        task.hset("nodes", &[(&format!("a/{node}"), ["f", "x", "s"][node % 3])]).await;
    }
    task.write("value a/0=E, a/500=E; grow a/0={}, a/500={}").await;
    task
}

#[tokio::test]
async fn a_large_instance_runs_again_once_its_last_part_arrives() {
    let mut task = all_failed(1_200).await;
    for (from, left) in [(0, 1), (500, 0)] {
        assert_eq!(part(&mut task, "3", "-", from..from + 500, "p 0 0").await, "[part]");
        assert_eq!(task.ok("flow_state", "a").await.replace(" E ", " '' "), "[state failed 1 0 0 d 7 '' why 3 1]");
        assert_keys!(task, "head a=1 3 0 0 d 7");
        assert_eq!(task.held("value").await.matches('E').count(), left);
        assert_eq!(task.held("grow").await.matches("{}").count(), left);
        // The same again, and other actions on a failed instance.
        assert_eq!(unchanged!(task, part(&mut task, "3", "-", from..from + 500, "p 0 0").await), "[part]");
        assert_eq!(unchanged!(task, part(&mut task, "2", "-", 0..500, "p 0 0").await), "[changed]");
        assert_eq!(unchanged!(task, part(&mut task, "2", "1200", 1000..1200, "p 0 0").await), "[changed]");
        assert_eq!(task.unchanged("flow_pause", "a 3 resume").await, "[changed]");
        assert_eq!(task.unchanged("flow_open", "a 1").await, "[opened 0 0]");
        assert_eq!(task.unchanged("flow_open", "a 2").await, "[opened 0 0]");
        assert_eq!(task.unchanged("flow_advance", "a 0 1 c 7 a 1 2 c 7").await, "[advanced 0]");
        assert_eq!(task.unchanged("flow_enter", "a 0 1 a 1 2").await, "[entered stale stale 0]");
    }
    assert_eq!(part(&mut task, "3", "1200", 1000..1200, "p 0 0").await, "[again 2]");
    assert_keys!(task, "head a=2 4 1200 0 d -; place a=running; outbox o a/2=NOW; no error");
    for from in [0, 500] {
        assert_eq!(unchanged!(task, part(&mut task, "3", "-", from..from + 500, "p 0 0").await), "[changed]");
    }
    assert_eq!(unchanged!(task, part(&mut task, "3", "1200", 1000..1200, "p 0 0").await), "[changed]");
    while task.ok("flow_open", "a 2").await.starts_with("[opened 1 ") {}
    assert_keys!(task, "head a=2 4 1200 1200 d -");
}

#[tokio::test]
async fn one_of_two_concurrent_retries_in_parts_starts_the_run() {
    let mut task = all_failed(600).await;
    for _ in 0..2 {
        assert_eq!(part(&mut task, "3", "-", 0..500, "p 0 0").await, "[part]");
    }
    assert_eq!(part(&mut task, "3", "600", 500..600, "p 0 0").await, "[again 2]");
    task.ok("flow_open", "a 2").await;
    assert_eq!(unchanged!(task, part(&mut task, "3", "600", 500..600, "p 0 0").await), "[changed]");
    assert_eq!(unchanged!(task, part(&mut task, "3", "-", 0..500, "p 0 0").await), "[changed]");
}

#[tokio::test]
async fn a_part_with_a_completed_node_writes_nothing() {
    let mut task = all_failed(600).await;
    task.write("nodes a/7=c, a/599=c").await;
    assert_eq!(unchanged!(task, part(&mut task, "3", "-", 0..500, "p 0 0").await), "[moved]");
    assert_eq!(unchanged!(task, part(&mut task, "3", "600", 500..600, "p 0 0").await), "[moved]");
    assert_eq!(unchanged!(task, part(&mut task, "3", "-", 0..0, "p 0 0").await), "[changed]");
}

#[tokio::test]
async fn an_unstarted_new_run_can_be_retried_or_removed_whole() {
    let mut task = all_failed(600).await;
    part(&mut task, "3", "-", 0..500, "p 0 0").await;
    assert_eq!(part(&mut task, "3", "-", 0..300, "p 0 0").await, "[part]");
    assert_eq!(part(&mut task, "3", "600", 300..600, "p 0 0").await, "[again 2]");
    assert_keys!(task, "head a=2 4 600 0 d -");
    let mut task = all_failed(600).await;
    part(&mut task, "3", "-", 0..500, "p 0 0").await;
    task.write("shapes d#=1; no failed.a").await;
    assert_eq!(task.trim_whole("a").await, [""; 0]);
}

#[tokio::test]
async fn an_unstarted_new_run_is_in_the_outbox_with_its_deadline() {
    let mut task = all_failed(600).await;
    task.write("deadlines a=5").await;
    part(&mut task, "3", "-", 0..500, "p 0 0").await;
    task.write("outbox r a/1=5").await;
    // It is listed once, with the time at which it was begun.
    part(&mut task, "3", "-", 0..500, "p 0 0").await;
    assert_keys!(task, "outbox r a/1=5");
    assert_eq!(task.ok("flow_look", "0 200").await, "[looked 0 1 r a/1]");
    assert_keys!(task, "deadlines a=5");
    assert_eq!(part(&mut task, "3", "600", 500..600, "p 0 0").await, "[again 2]");
    assert_keys!(task, "outbox o a/2=NOW; no deadlines");
    // A cancel in between prevents the run.
    let mut task = all_failed(600).await;
    part(&mut task, "3", "-", 0..500, "p 0 0").await;
    assert_eq!(task.ok("flow_control", "a why").await, "[ended failed 0]");
    assert_keys!(task, "no outbox, stopping");
}

#[tokio::test]
async fn a_half_removed_instance_does_not_run_again() {
    let mut task = all_failed(1_200).await;
    part(&mut task, "3", "-", 0..500, "p 0 0").await;
    assert_eq!(task.ok_at("failed", "flow_trim", "60000 - 5000").await, "[trimmed 0 1]");
    assert_eq!(unchanged!(task, part(&mut task, "3", "-", 500..1000, "p 0 0").await), "[changed]");
    assert_eq!(unchanged!(task, part(&mut task, "3", "1200", 1000..1200, "p 0 0").await), "[changed]");
}

/// The number of live nodes of `a`, by its line and by their states.
async fn live(task: &mut Task, count: usize) -> (usize, usize) {
    let by_line = task.head("a").await.split(' ').nth(2).unwrap().parse().unwrap();
    let states = task.states("a", count).await;
    (by_line, states.split(", ").filter(|state| state.starts_with(['p', 'P', 'o', 'g'])).count())
}

#[tokio::test]
async fn an_instance_that_continues_between_parts_counts_each_node() {
    let nodes = "p 0 0, - -; p 0 0, - -, 2; p 1 1, - -";
    let mut task = Task::running_flow(&graph("pause", "-", nodes)).await;
    task.ok("flow_advance", "a 0 1 f E").await;
    task.ok("flow_advance", "a 1 1 c 7").await;
    assert_keys!(task, "head a=1 1 1 0 d 0");
    assert_eq!(part(&mut task, "1", "-", 0..1, "p 0 0").await, "[part]");
    assert_eq!(task.ok("flow_pause", "a 1 resume").await, "[changed]");
    assert_eq!(task.ok("flow_open", "a 1").await, "[opened 0 0]");
    assert_eq!(task.ok("flow_retry", "a 1 2 2 'p 1 1'").await, "[again 2]");
    assert_eq!(live(&mut task, 3).await, (2, 2));
    // A cancel between two parts counts.
    let mut task = Task::running_flow(&graph("pause", "-", nodes)).await;
    task.ok("flow_advance", "a 0 1 f E a 1 1 c 7").await;
    assert_eq!(part(&mut task, "1", "-", 0..1, "p 0 0").await, "[part]");
    assert_eq!(task.ok("flow_control", "a why").await, "[ended cancelled 0]");
    assert_eq!(task.ok("flow_retry", "a 1 2 2 'p 1 1'").await, "[changed]");
}

#[tokio::test]
async fn a_late_visit_of_the_run_before_changes_nothing() {
    let mut task = Task::new().await;
    let mut graph = fan(1_750);
    graph.policy = "pause";
    task.put(&graph, "a").await;
    assert_eq!(task.ok("flow_advance", "a 0 1 f E").await, "[advanced 1 v a/0/1]");
    assert_keys!(task, "place a=paused");
    assert_eq!(part(&mut task, "1", "-", 0..1, "p 0 0").await, "[part]");
    for from in [1, 501, 1001] {
        assert_eq!(part(&mut task, "1", "-", from..from + 500, "p 1 1").await, "[part]");
    }
    task.ok("flow_visit", "a 0 1").await;
    assert_eq!(part(&mut task, "1", "1751", 1501..1751, "p 1 1").await, "[again 2]");
    let (by_line, by_states) = live(&mut task, 1_751).await;
    assert_eq!(by_line, by_states);
}
