use crate::scripts::call::{Task, without};
use crate::scripts::flow::{Node, fan, graph, head, line, place, put, said, states, take_out, trim_whole};

/// An instance `a` of three nodes in a row that failed at its second one.
async fn failed() -> Task {
    let mut task = Task::new().await;
    put(&mut task, &line(), "a").await;
    said(&mut task, "flow_advance", "a 0 1 c 7").await;
    said(&mut task, "flow_advance", "a 1 1 f E").await;
    assert_eq!(head(&mut task, "a").await, "1 1 0 0 d 1");
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
    task.hset("error", &[("a", "why"), ("b", "why")]).await;
    assert_eq!(retry(&mut task, "1", &REST).await, "[again 2]");
    assert_eq!(
        without(task.keys().await, &["meta", "shapes"]),
        [
            r#"error hash {"b": "why"}"#,
            r#"input hash {"a/0": "in-0"}"#,
            r#"instances hash {"a": "2 2 2 0 d -"}"#,
            r#"nodes hash {"a/0": "c", "a/1": "p 0 0", "a/2": "p 1 1"}"#,
            r#"outbox zset ["o a/2": NOW]"#,
            r#"running zset ["a": NOW]"#,
            r#"value hash {"a/0": "7"}"#,
        ]
    );
    assert_eq!(said(&mut task, "flow_open", "a 2").await, "[opened 0 0 a 1 2 t '' 0 here 7]");
    said(&mut task, "flow_advance", "a 1 2 c 8").await;
    said(&mut task, "flow_advance", "a 2 2 c 9").await;
    assert_eq!(place(&mut task, "a").await, "completed");
    assert_eq!(head(&mut task, "a").await, "2 3 0 0 d -");
    assert_eq!(task.held("output").await, r#"hash {"a": "9"}"#);
    assert_eq!(task.held("outbox").await, "");
}

#[tokio::test]
async fn a_cancelled_instance_with_all_nodes_completed_completes() {
    let mut task = Task::new().await;
    put(&mut task, &line(), "a").await;
    for (node, value) in [("0", "7"), ("1", "8")] {
        said(&mut task, "flow_advance", &format!("a {node} 1 c {value}")).await;
    }
    assert_eq!(task.ok("flow_control", &["a", "too late"]).await, "[stopping 1]");
    said(&mut task, "flow_advance", "a 2 1 c 9").await;
    assert_eq!((place(&mut task, "a").await, task.held("output").await), ("cancelled".to_owned(), String::new()));
    assert_eq!(retry(&mut task, "1", &[]).await, "[again 2]");
    let before = task.exact().await;
    assert_eq!(retry(&mut task, "1", &[]).await, "[changed]");
    assert_eq!(task.exact().await, before);
    assert_eq!(said(&mut task, "flow_open", "a 2").await, "[opened 0 0]");
    assert_eq!(
        (place(&mut task, "a").await, task.held("output").await),
        ("completed".to_owned(), r#"hash {"a": "9"}"#.to_owned())
    );
    assert_eq!(head(&mut task, "a").await, "2 3 0 0 d -");
    assert_eq!((task.held("outbox").await, task.held("error").await), (String::new(), String::new()));
}

#[tokio::test]
async fn a_late_copy_starts_no_other_run() {
    let mut task = failed().await;
    retry(&mut task, "1", &REST).await;
    let before = task.exact().await;
    assert_eq!(retry(&mut task, "1", &REST).await, "[changed]");
    assert_eq!(task.exact().await, before);
    // Also after that run has failed as well.
    said(&mut task, "flow_open", "a 2").await;
    said(&mut task, "flow_advance", "a 1 2 f E").await;
    assert_eq!(head(&mut task, "a").await, "2 3 0 0 d 1");
    let before = task.exact().await;
    for turn in ["1", "2", "4", "-"] {
        assert_eq!(retry(&mut task, turn, &REST).await, "[changed]");
    }
    assert_eq!(task.exact().await, before);
    assert_eq!(retry(&mut task, "3", &REST).await, "[again 3]");
}

#[tokio::test]
async fn running_completed_stopping_and_unknown_ones_stay_unchanged() {
    for place in ["running", "completed", "nowhere"] {
        let mut task = failed().await;
        task.del("failed").await;
        task.zadd(place, 5.0, "a").await;
        let before = task.exact().await;
        assert_eq!(retry(&mut task, "1", &REST).await, "[changed]", "{place}");
        assert_eq!(task.exact().await, before, "{place}");
    }
    let mut task = failed().await;
    let before = task.exact().await;
    // The call names no node of it.
    assert_eq!(retry(&mut task, "1", &[]).await, "[changed]");
    assert_eq!(task.ok("flow_retry", &["nobody", "1", "1", "1", "p 0 0"]).await, "[unknown]");
    assert_eq!(task.exact().await, before);
    task.hset("stopping", &[("a", "failed ")]).await;
    assert_eq!(retry(&mut task, "1", &REST).await, "[changed]");
    task.hset("instances", &[("a", "1 1 0")]).await;
    assert_eq!(retry(&mut task, "1", &REST).await, "[unknown]");
}

#[tokio::test]
async fn an_instance_with_open_nodes_is_busy() {
    let nodes: [Node; 3] = [("p 0 0", "- -", &[]), ("p 0 0", "- -", &[2]), ("p 1 1", "- -", &[])];
    let mut task = Task::new().await;
    put(&mut task, &graph("pause", "-", &nodes), "a").await;
    said(&mut task, "flow_advance", "a 0 1 f E").await;
    assert_eq!(place(&mut task, "a").await, "paused");
    let pairs = [("0", "p 0 0"), ("1", "p 0 0"), ("2", "p 1 1")];
    let before = task.exact().await;
    assert_eq!(retry(&mut task, "1", &pairs).await, "[busy 1]");
    assert_eq!(task.exact().await, before);
    // It completed between the read of the caller and the call, so it must not run again.
    said(&mut task, "flow_advance", "a 1 1 c 7").await;
    let before = task.exact().await;
    assert_eq!(retry(&mut task, "1", &pairs).await, "[moved]");
    assert_eq!(task.exact().await, before);
    assert_eq!(retry(&mut task, "1", &[("0", "p 0 0"), ("2", "p 0 0")]).await, "[again 2]");
    assert_eq!(states(&mut task, "a", 3).await, "p 0 0, c, p 0 0");
    assert_eq!(head(&mut task, "a").await, "2 2 2 0 d -");
    assert_eq!(task.held("value").await, r#"hash {"a/1": "7"}"#);
}

#[tokio::test]
async fn an_instance_that_a_failure_paused_runs_with_its_held_nodes() {
    // The fourth waits for both ends; the third was ready and held back.
    let nodes: [Node; 4] =
        [("p 0 0", "- -", &[3]), ("p 0 0", "- -", &[2, 3]), ("p 1 1", "- 1", &[]), ("p 2 2", "- 0", &[])];
    let mut task = Task::new().await;
    put(&mut task, &graph("pause", "3", &nodes), "a").await;
    said(&mut task, "flow_advance", "a 0 1 f E").await;
    said(&mut task, "flow_advance", "a 1 1 c 7").await;
    assert_eq!(states(&mut task, "a", 4).await, "f, c, p 0 0, s");
    assert_eq!(head(&mut task, "a").await, "1 1 1 0 d 0");
    let reply = retry(&mut task, "1", &[("0", "p 0 0"), ("2", "p 0 0"), ("3", "p 1 1")]).await;
    assert_eq!(reply, "[again 2]");
    let reply = said(&mut task, "flow_open", "a 2").await;
    assert_eq!(reply, "[opened 0 0 a 0 2 t '' 0 here in-0 a 2 2 t '' 0 here 7]");
    assert_eq!(head(&mut task, "a").await, "2 2 3 2 d -");
    let reply = said(&mut task, "flow_advance", "a 0 2 c 8 a 2 2 c 9").await;
    assert_eq!(reply, "[advanced 0 a 3 2 t '' 0 here 8]");
    said(&mut task, "flow_advance", "a 3 2 c 10").await;
    assert_eq!(place(&mut task, "a").await, "completed");
    assert_eq!(head(&mut task, "a").await, "2 3 0 0 d -");
    assert_eq!(task.held("output").await, r#"hash {"a": "10"}"#);
}

#[tokio::test]
async fn a_new_run_of_a_cancelled_one_removes_pending_entries() {
    let mut task = Task::new().await;
    put(&mut task, &line(), "a").await;
    said(&mut task, "flow_control", "a why").await;
    said(&mut task, "flow_enter", "a 0 1").await;
    assert_eq!(task.held("cancelled").await, r#"zset ["a": NOW]"#);
    let pairs = [("0", "p 0 0"), ("1", "p 1 1"), ("2", "p 1 1")];
    // Entries and a cursor of pending work.
    for entry in ["s a/0/1", "v a/0/1", "o a/1"] {
        task.zadd("outbox", 5.0, entry).await;
    }
    task.hset("cursor", &[("a/0/1", "0 c"), ("a/1", "0")]).await;
    assert_eq!(retry(&mut task, "1", &pairs).await, "[again 2]");
    assert_eq!(task.held("cancelled").await + &task.held("error").await, "");
    said(&mut task, "flow_open", "a 2").await;
    let head_before = head(&mut task, "a").await;
    assert_eq!(head_before, "2 2 3 1 d -");
    assert_eq!(said(&mut task, "flow_open", "a 1").await, "[opened 0 0]");
    assert_eq!(said(&mut task, "flow_visit", "a 0 1").await, "[visited 0]");
    assert_eq!(said(&mut task, "flow_enter", "a 0 1 a 0 2").await, "[entered stale go 0]");
    assert_eq!(said(&mut task, "flow_advance", "a 0 1 c 7").await, "[advanced 0]");
    assert_eq!(said(&mut task, "flow_look", "1000 200").await, "[looked 0 0]");
    assert_eq!(head(&mut task, "a").await, head_before);
    assert_eq!(states(&mut task, "a", 3).await, "o, p 1 1, p 1 1");
    assert_eq!(task.held("outbox").await, r#"zset ["s a/0/2": NOW]"#);
    assert_eq!(task.held("cursor").await, "");
}

#[tokio::test]
async fn five_hundred_nodes_run_again_in_one_call() {
    let mut task = Task::new().await;
    let nodes: Vec<Node> = (0..500).map(|_| ("p 0 0", "- -", &[][..])).collect();
    put(&mut task, &graph("finish", "-", &nodes), "a").await;
    task.hset("instances", &[("a", "1 3 0 0 d 7")]).await;
    task.del("running").await;
    task.zadd("failed", 5.0, "a").await;
    for node in 0..500 {
        task.hset("nodes", &[(&format!("a/{node}"), ["f", "x", "s"][node % 3])]).await;
    }
    let numbers: Vec<String> = (0..500).map(|node| node.to_string()).collect();
    let pairs: Vec<(&str, &str)> = numbers.iter().map(|node| (node.as_str(), "p 0 0")).collect();
    assert_eq!(retry(&mut task, "3", &pairs).await, "[again 2]");
    assert_eq!(head(&mut task, "a").await, "2 4 500 0 d -");
    while said(&mut task, "flow_open", "a 2").await.starts_with("[opened 1 ") {}
    assert_eq!(head(&mut task, "a").await, "2 4 500 500 d -");
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
    let mut task = Task::new().await;
    let nodes: Vec<Node> = (0..count).map(|_| ("p 0 0", "- -", &[][..])).collect();
    put(&mut task, &graph("finish", "-", &nodes), "a").await;
    task.hset("instances", &[("a", "1 3 0 0 d 7")]).await;
    task.del("running").await;
    task.zadd("failed", 5.0, "a").await;
    task.hset("error", &[("a", "why")]).await;
    for node in 0..count {
        task.hset("nodes", &[(&format!("a/{node}"), ["f", "x", "s"][node % 3])]).await;
    }
    task.hset("value", &[("a/0", "E"), ("a/500", "E")]).await;
    task.hset("grow", &[("a/0", "{}"), ("a/500", "{}")]).await;
    task
}

#[tokio::test]
async fn a_large_instance_runs_again_once_its_last_part_arrives() {
    let mut task = all_failed(1_200).await;
    for (from, left) in [(0, 1), (500, 0)] {
        assert_eq!(part(&mut task, "3", "-", from..from + 500, "p 0 0").await, "[part]");
        assert_eq!(task.ok("flow_state", &["a"]).await.replace(" E ", " '' "), "[state failed 1 0 0 d 7 '' why 3 1]");
        assert_eq!(head(&mut task, "a").await, "1 3 0 0 d 7");
        assert_eq!(task.held("value").await.matches('E').count(), left);
        assert_eq!(task.held("grow").await.matches("{}").count(), left);
        // The same again, and other actions on a failed instance.
        let before = task.exact().await;
        assert_eq!(part(&mut task, "3", "-", from..from + 500, "p 0 0").await, "[part]");
        assert_eq!(part(&mut task, "2", "-", 0..500, "p 0 0").await, "[changed]");
        assert_eq!(part(&mut task, "2", "1200", 1000..1200, "p 0 0").await, "[changed]");
        assert_eq!(task.ok("flow_pause", &["a", "3", "resume"]).await, "[changed]");
        assert_eq!(said(&mut task, "flow_open", "a 1").await, "[opened 0 0]");
        assert_eq!(said(&mut task, "flow_open", "a 2").await, "[opened 0 0]");
        assert_eq!(said(&mut task, "flow_advance", "a 0 1 c 7 a 1 2 c 7").await, "[advanced 0]");
        assert_eq!(said(&mut task, "flow_enter", "a 0 1 a 1 2").await, "[entered stale stale 0]");
        assert_eq!(task.exact().await, before);
    }
    assert_eq!(part(&mut task, "3", "1200", 1000..1200, "p 0 0").await, "[again 2]");
    assert_eq!(head(&mut task, "a").await, "2 4 1200 0 d -");
    assert_eq!(place(&mut task, "a").await, "running");
    assert_eq!(task.held("outbox").await, r#"zset ["o a/2": NOW]"#);
    assert_eq!(task.held("error").await, "");
    let before = task.exact().await;
    for from in [0, 500] {
        assert_eq!(part(&mut task, "3", "-", from..from + 500, "p 0 0").await, "[changed]");
    }
    assert_eq!(part(&mut task, "3", "1200", 1000..1200, "p 0 0").await, "[changed]");
    assert_eq!(task.exact().await, before);
    while said(&mut task, "flow_open", "a 2").await.starts_with("[opened 1 ") {}
    assert_eq!(head(&mut task, "a").await, "2 4 1200 1200 d -");
}

#[tokio::test]
async fn one_of_two_concurrent_retries_in_parts_starts_the_run() {
    let mut task = all_failed(600).await;
    for _ in 0..2 {
        assert_eq!(part(&mut task, "3", "-", 0..500, "p 0 0").await, "[part]");
    }
    assert_eq!(part(&mut task, "3", "600", 500..600, "p 0 0").await, "[again 2]");
    said(&mut task, "flow_open", "a 2").await;
    let before = task.exact().await;
    assert_eq!(part(&mut task, "3", "600", 500..600, "p 0 0").await, "[changed]");
    assert_eq!(part(&mut task, "3", "-", 0..500, "p 0 0").await, "[changed]");
    assert_eq!(task.exact().await, before);
}

#[tokio::test]
async fn a_part_with_a_completed_node_writes_nothing() {
    let mut task = all_failed(600).await;
    task.hset("nodes", &[("a/7", "c"), ("a/599", "c")]).await;
    let before = task.exact().await;
    assert_eq!(part(&mut task, "3", "-", 0..500, "p 0 0").await, "[moved]");
    assert_eq!(part(&mut task, "3", "600", 500..600, "p 0 0").await, "[moved]");
    assert_eq!(part(&mut task, "3", "-", 0..0, "p 0 0").await, "[changed]");
    assert_eq!(task.exact().await, before);
}

#[tokio::test]
async fn an_unstarted_new_run_can_be_retried_or_removed_whole() {
    let mut task = all_failed(600).await;
    part(&mut task, "3", "-", 0..500, "p 0 0").await;
    assert_eq!(part(&mut task, "3", "-", 0..300, "p 0 0").await, "[part]");
    assert_eq!(part(&mut task, "3", "600", 300..600, "p 0 0").await, "[again 2]");
    assert_eq!(head(&mut task, "a").await, "2 4 600 0 d -");
    let mut task = all_failed(600).await;
    part(&mut task, "3", "-", 0..500, "p 0 0").await;
    task.hset("shapes", &[("d#", "1")]).await;
    take_out(&mut task, "failed", "a").await;
    assert_eq!(trim_whole(&mut task, "a").await, [""; 0]);
}

#[tokio::test]
async fn an_unstarted_new_run_is_in_the_outbox_with_its_deadline() {
    let mut task = all_failed(600).await;
    task.zadd("deadlines", 5.0, "a").await;
    part(&mut task, "3", "-", 0..500, "p 0 0").await;
    task.zadd("outbox", 5.0, "r a/1").await;
    // It is listed once, with the time at which it was begun.
    part(&mut task, "3", "-", 0..500, "p 0 0").await;
    assert_eq!(task.held("outbox").await, r#"zset ["r a/1": 5]"#);
    assert_eq!(said(&mut task, "flow_look", "0 200").await, "[looked 0 1 r a/1]");
    assert_eq!(task.held("deadlines").await, r#"zset ["a": 5]"#);
    assert_eq!(part(&mut task, "3", "600", 500..600, "p 0 0").await, "[again 2]");
    assert_eq!(task.held("outbox").await, r#"zset ["o a/2": NOW]"#);
    assert_eq!(task.held("deadlines").await, "");
    // A cancel in between prevents the run.
    let mut task = all_failed(600).await;
    part(&mut task, "3", "-", 0..500, "p 0 0").await;
    assert_eq!(task.ok("flow_control", &["a", "why"]).await, "[ended failed 0]");
    assert_eq!(task.held("outbox").await + &task.held("stopping").await, "");
}

#[tokio::test]
async fn a_half_removed_instance_does_not_run_again() {
    let mut task = all_failed(1_200).await;
    part(&mut task, "3", "-", 0..500, "p 0 0").await;
    let keys = [&["failed"], &task.script("flow_trim").keys[1..]].concat();
    assert_eq!(task.call_on("flow_trim", &keys, &["60000", "-", "5000"]).await.unwrap(), "[trimmed 0 1]");
    let before = task.exact().await;
    assert_eq!(part(&mut task, "3", "-", 500..1000, "p 0 0").await, "[changed]");
    assert_eq!(part(&mut task, "3", "1200", 1000..1200, "p 0 0").await, "[changed]");
    assert_eq!(task.exact().await, before);
}

/// The number of live nodes of `a`, by its line and by their states.
async fn live(task: &mut Task, count: usize) -> (usize, usize) {
    let by_line = head(task, "a").await.split(' ').nth(2).unwrap().parse().unwrap();
    let states = states(task, "a", count).await;
    (by_line, states.split(", ").filter(|state| state.starts_with(['p', 'P', 'o', 'g'])).count())
}

#[tokio::test]
async fn an_instance_that_continues_between_parts_counts_each_node() {
    let nodes: [Node; 3] = [("p 0 0", "- -", &[]), ("p 0 0", "- -", &[2]), ("p 1 1", "- -", &[])];
    let mut task = Task::new().await;
    put(&mut task, &graph("pause", "-", &nodes), "a").await;
    said(&mut task, "flow_advance", "a 0 1 f E").await;
    said(&mut task, "flow_advance", "a 1 1 c 7").await;
    assert_eq!(head(&mut task, "a").await, "1 1 1 0 d 0");
    assert_eq!(part(&mut task, "1", "-", 0..1, "p 0 0").await, "[part]");
    assert_eq!(task.ok("flow_pause", &["a", "1", "resume"]).await, "[changed]");
    assert_eq!(said(&mut task, "flow_open", "a 1").await, "[opened 0 0]");
    assert_eq!(task.ok("flow_retry", &["a", "1", "2", "2", "p 1 1"]).await, "[again 2]");
    assert_eq!(live(&mut task, 3).await, (2, 2));
    // A cancel between two parts counts.
    let mut task = Task::new().await;
    put(&mut task, &graph("pause", "-", &nodes), "a").await;
    said(&mut task, "flow_advance", "a 0 1 f E a 1 1 c 7").await;
    assert_eq!(part(&mut task, "1", "-", 0..1, "p 0 0").await, "[part]");
    assert_eq!(task.ok("flow_control", &["a", "why"]).await, "[ended cancelled 0]");
    assert_eq!(task.ok("flow_retry", &["a", "1", "2", "2", "p 1 1"]).await, "[changed]");
}

#[tokio::test]
async fn a_late_visit_of_the_run_before_changes_nothing() {
    let mut task = Task::new().await;
    let mut graph = fan(1_750);
    graph.policy = "pause";
    put(&mut task, &graph, "a").await;
    assert_eq!(said(&mut task, "flow_advance", "a 0 1 f E").await, "[advanced 1 v a/0/1]");
    assert_eq!(place(&mut task, "a").await, "paused");
    assert_eq!(part(&mut task, "1", "-", 0..1, "p 0 0").await, "[part]");
    for from in [1, 501, 1001] {
        assert_eq!(part(&mut task, "1", "-", from..from + 500, "p 1 1").await, "[part]");
    }
    said(&mut task, "flow_visit", "a 0 1").await;
    assert_eq!(part(&mut task, "1", "1751", 1501..1751, "p 1 1").await, "[again 2]");
    let (by_line, by_states) = live(&mut task, 1_751).await;
    assert_eq!(by_line, by_states);
}
