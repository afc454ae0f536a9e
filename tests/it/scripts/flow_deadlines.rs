//! Instances with a deadline, and instances whose jobs are delayed.

use crate::scripts::call::{Task, timeless, without};
use crate::scripts::flow::{Node, graph, head, line, lose, place, put, said, states, take_out, trim_whole, with};

const PASSED: &str = r#"{"code":"timeout","message":"its deadline passed"}"#;

/// A start of a row of nodes with a delay and a deadline, in ms.
async fn start(task: &mut Task, id: &str, delay: &str, deadline: &str) -> String {
    let mut args = line().start(id, true);
    (args[5], args[6]) = (delay.to_owned(), deadline.to_owned());
    with(task, "flow_start", &args).await
}

/// An instance `a` past its deadline.
async fn late() -> Task {
    let mut task = Task::new().await;
    put(&mut task, &line(), "a").await;
    task.zadd("deadlines", 5.0, "a").await;
    task
}

async fn look(task: &mut Task) -> String {
    said(task, "flow_look", "10000 200").await
}

#[tokio::test]
async fn a_deadline_and_a_delay_are_written_with_the_start() {
    let mut task = Task::new().await;
    assert_eq!(start(&mut task, "a", "60000", "90000").await, "[started a 0 1 t '' 60000 here in-0]");
    let now = task.now_ms().await;
    let before = task.exact().await;
    assert_eq!(start(&mut task, "a", "70000", "10000").await, "[existed]");
    assert_eq!(task.exact().await, before);
    assert_eq!(
        without(task.keys().await, &["meta", "shapes", "input", "nodes", "tasks"]),
        [
            r#"deadlines zset ["a": NOW]"#,
            r#"instances hash {"a": "1 0 3 1 d -"}"#,
            r#"outbox zset ["s a/0/1": NOW]"#,
            r#"running zset ["a": NOW]"#,
        ]
    );
    let began = task.score("running", "a").await;
    assert!(began <= now && began > now - 60_000.0);
    assert_eq!(task.score("deadlines", "a").await, began + 90_000.0);
    assert_eq!(head(&mut task, "a").await, format!("1 0 3 1 d - {}", began + 60_000.0));
    // The same in parts.
    let (parts, mut last) = line().parts("b", "n", 2, true);
    for part in &parts {
        with(&mut task, "flow_stage", part).await;
    }
    (last[5], last[6]) = ("60000".to_owned(), "90000".to_owned());
    assert_eq!(with(&mut task, "flow_start", &last).await, "[started]");
    let began = task.score("running", "b").await;
    assert_eq!(task.score("deadlines", "b").await, began + 90_000.0);
    assert_eq!(head(&mut task, "b").await, format!("1 0 3 0 d - {}", began + 60_000.0));
}

#[tokio::test]
async fn a_call_reports_that_more_deadlines_are_due() {
    let mut task = Task::new().await;
    for number in 0..5 {
        task.zadd("deadlines", 5.0, &format!("ended-{number}")).await;
    }
    put(&mut task, &line(), "z").await;
    task.zadd("deadlines", 6.0, "z").await;
    task.del("outbox").await;
    // Deadlines of ended instances stay until they are due.
    for reply in ["[looked 1 0]", "[looked 1 0]", "[looked 1 1 x z/1]"] {
        assert_eq!(said(&mut task, "flow_look", "10000 2").await, reply);
    }
    assert_eq!(task.held("deadlines").await, "");
    assert_eq!(said(&mut task, "flow_look", "10000 2").await, "[looked 0 0]");
}

/// How many ms the first node of the reply still waits.
fn wait_of(reply: &str) -> f64 {
    reply.split(" t '' ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap()
}

#[tokio::test]
async fn a_sender_receives_the_remaining_delay_of_a_node() {
    for (ahead, least, most) in [(600_000.0, 500_000.0, 600_000.0), (-600_000.0, 0.0, 0.0)] {
        let mut task = Task::new().await;
        put(&mut task, &line(), "a").await;
        let due = task.now_ms().await + ahead;
        task.hset("instances", &[("a", &format!("1 0 3 1 d - {due}"))]).await;
        task.zadd("outbox", 5.0, "s a/0/1").await;
        let mut replies = vec![look(&mut task).await];
        task.del("outbox").await;
        replies.push(said(&mut task, "flow_resend", "a 0 1").await);
        replies.push(said(&mut task, "flow_advance", "a 0 1 c 7").await);
        said(&mut task, "flow_pause", "a 0 pause").await;
        said(&mut task, "flow_advance", "a 1 1 c 7").await;
        said(&mut task, "flow_pause", "a 1 resume").await;
        replies.push(said(&mut task, "flow_open", "a 1").await);
        for reply in replies {
            assert!((least..=most).contains(&wait_of(&reply)), "{reply}");
        }
        // Every write of the line keeps the delay, also the end and a new run.
        assert_eq!(head(&mut task, "a").await, format!("1 2 1 1 d - {due}"));
        said(&mut task, "flow_advance", "a 2 1 f E").await;
        assert_eq!(head(&mut task, "a").await, format!("1 3 0 0 d 2 {due}"));
        assert_eq!(task.ok("flow_retry", &["a", "3", "1", "2", "p 0 0"]).await, "[again 2]");
        assert_eq!(head(&mut task, "a").await, format!("2 4 1 0 d - {due}"));
        assert!((least..=most).contains(&wait_of(&said(&mut task, "flow_open", "a 2").await)));
        assert_eq!(task.ok("flow_nodes", &["a", "0", "3"]).await, "[nodes 2 3 c c o]");
        assert_eq!(timeless(&task.ok("flow_state", &["a"]).await), "[state running 2 1 1 d - '' '' 4 0]");
    }
}

#[tokio::test]
async fn an_instance_past_its_deadline_ends_with_its_last_open_node() {
    let mut task = late().await;
    assert_eq!(look(&mut task).await, "[looked 0 1 x a/1]");
    assert_eq!(
        without(task.keys().await, &["meta", "shapes", "input"]),
        [
            r#"instances hash {"a": "1 0 3 1 d -"}"#.to_owned(),
            r#"nodes hash {"a/0": "o", "a/1": "p 1 1", "a/2": "p 1 1"}"#.to_owned(),
            r#"outbox zset ["x a/1": NOW]"#.to_owned(),
            r#"running zset ["a": 5]"#.to_owned(),
            format!(r#"stopping hash {{"a": {:?}}}"#, format!("failed {PASSED}")),
        ]
    );
    let before = task.exact().await;
    assert_eq!(look(&mut task).await, "[looked 0 0]");
    assert_eq!(task.exact().await, before);
    assert_eq!(said(&mut task, "flow_enter", "a 0 1").await, "[entered stale 0]");
    assert_eq!(task.ok("flow_state", &["a"]).await, format!("[state failed 1 2 0 d - '' {PASSED} 1 0]"));
    assert_eq!(task.held("outbox").await + &task.held("stopping").await, "");
    let before = task.exact().await;
    for (name, words) in [("flow_look", "0 200"), ("flow_advance", "a 0 1 c 7"), ("flow_enter", "a 0 1")] {
        said(&mut task, name, words).await;
        assert_eq!(task.exact().await, before, "{name}");
    }
}

#[tokio::test]
async fn a_deadline_without_open_nodes_ends_even_a_paused_instance() {
    for (from, turn) in [("running", 1), ("paused", 2)] {
        let mut task = late().await;
        task.hset("nodes", &[("a/0", "c"), ("a/1", "p 0 0")]).await;
        task.hset("instances", &[("a", "1 0 2 0 d -")]).await;
        take_out(&mut task, "running", "a").await;
        task.zadd(from, 5.0, "a").await;
        assert_eq!(look(&mut task).await, "[looked 0 0]");
        assert_eq!(place(&mut task, "a").await, "failed");
        assert_eq!(head(&mut task, "a").await, format!("1 {turn} 2 0 d -"));
        assert_eq!(task.field("error", "a").await, PASSED);
        assert_eq!(task.held("deadlines").await + &task.held("outbox").await + &task.held("stopping").await, "");
    }
    // With an open node it runs until that node has ended.
    let mut task = late().await;
    take_out(&mut task, "running", "a").await;
    task.zadd("paused", 5.0, "a").await;
    assert_eq!(look(&mut task).await, "[looked 0 1 x a/1]");
    assert_eq!(place(&mut task, "a").await, "running");
    said(&mut task, "flow_advance", "a 0 1 c 7").await;
    assert_eq!(task.ok("flow_state", &["a"]).await, format!("[state failed 1 2 0 d - '' {PASSED} 2 0]"));
}

#[tokio::test]
async fn an_outdated_deadline_is_removed_and_nothing_else_is_written() {
    for change in ["completed", "failed", "cancelled", "nowhere", "stopping", "gone", "unreadable"] {
        let mut task = late().await;
        match change {
            "stopping" => task.hset("stopping", &[("a", "cancelled why")]).await,
            "gone" => lose(&mut task, "instances", "a").await,
            "unreadable" => task.hset("instances", &[("a", "what")]).await,
            place => {
                take_out(&mut task, "running", "a").await;
                task.zadd(place, 5.0, "a").await;
            }
        }
        let before = without(task.keys().await, &["deadlines"]);
        assert_eq!(look(&mut task).await, "[looked 0 0]", "{change}");
        assert_eq!(task.keys().await, before, "{change}");
    }
}

#[tokio::test]
async fn a_deadline_in_the_future_is_left_alone() {
    let mut task = Task::new().await;
    start(&mut task, "a", "0", "60000").await;
    let before = task.exact().await;
    assert_eq!(look(&mut task).await, "[looked 0 0]");
    assert_eq!(task.exact().await, before);
}

#[tokio::test]
async fn the_same_look_removes_its_sends_and_others_continue() {
    let mut task = late().await;
    put(&mut task, &line(), "b").await;
    for entry in ["s a/0/1", "s b/0/1"] {
        task.zadd("outbox", 5.0, entry).await;
    }
    assert_eq!(look(&mut task).await, "[looked 0 1 x a/1 b 0 1 t '' 0 here in-0]");
    assert_eq!(task.held("outbox").await, r#"zset ["s b/0/1": 5, "x a/1": NOW]"#);
}

#[tokio::test]
async fn a_call_stops_at_most_its_limit_and_the_next_continues() {
    let mut task = Task::new().await;
    for number in 0..5 {
        put(&mut task, &line(), &number.to_string()).await;
        task.zadd("deadlines", 5.0, &number.to_string()).await;
    }
    assert_eq!(said(&mut task, "flow_look", "10000 2").await, "[looked 1 2 x 0/1 x 1/1]");
    assert_eq!(task.held("deadlines").await, r#"zset ["2": 5, "3": 5, "4": 5]"#);
    assert_eq!(said(&mut task, "flow_look", "10000 200").await, "[looked 0 3 x 2/1 x 3/1 x 4/1]");
    assert_eq!(task.held("deadlines").await, "");
}

#[tokio::test]
async fn children_of_an_instance_past_its_deadline_fail_it() {
    let mut task = Task::new().await;
    put(&mut task, &graph("finish", "0", &[("p 0 0", "g -", &[])]), "a").await;
    task.zadd("deadlines", 5.0, "a").await;
    let child = graph("finish", "0", &[("p 0 0", "- -", &[])]).named("e");
    crate::scripts::flow::start(&mut task, &child, "a/0.1").await;
    assert_eq!(look(&mut task).await, "[looked 0 1 x a/1]");
    assert_eq!(task.ok("flow_control", &["a/0.1", "why"]).await, "[stopping 1]");
    assert_eq!(said(&mut task, "flow_enter", "a/0.1 0 1").await, "[entered stale 0]");
    assert_eq!(task.ok("flow_state", &["a"]).await, format!("[state failed 1 0 0 d - '' {PASSED} 1 0]"));
    assert_eq!(task.ok("flow_state", &["a/0.1"]).await, "[state cancelled 1 0 0 e - '' why 1 0]");
}

#[tokio::test]
async fn a_new_run_has_no_deadline_and_a_deadline_passes_once() {
    let mut task = Task::new().await;
    start(&mut task, "a", "0", "60000").await;
    said(&mut task, "flow_advance", "a 0 1 f E").await;
    task.ok("flow_retry", &["a", "1", "3", "0", "p 0 0", "1", "p 1 1", "2", "p 1 1"]).await;
    assert_eq!(task.held("deadlines").await, "");
    said(&mut task, "flow_open", "a 2").await;
    task.zadd("deadlines", 5.0, "a").await;
    assert_eq!(look(&mut task).await, "[looked 0 1 x a/2]");
    said(&mut task, "flow_enter", "a 0 2").await;
    assert_eq!(task.ok("flow_state", &["a"]).await, format!("[state failed 2 2 0 d - '' {PASSED} 3 0]"));
    task.ok("flow_retry", &["a", "3", "3", "0", "p 0 0", "1", "p 1 1", "2", "p 1 1"]).await;
    said(&mut task, "flow_open", "a 3").await;
    assert_eq!(look(&mut task).await, "[looked 0 0]");
    assert_eq!(states(&mut task, "a", 3).await, "o, p 1 1, p 1 1");
}

#[tokio::test]
async fn a_deadline_is_removed_with_its_instance() {
    let mut task = Task::new().await;
    start(&mut task, "a", "60000", "9000000000").await;
    start(&mut task, "b", "0", "9000000000").await;
    let left = trim_whole(&mut task, "a").await;
    assert!(left.iter().all(|key| !key.contains("\"a")), "{left:?}");
    assert_eq!(task.held("deadlines").await, r#"zset ["b": NOW]"#);
}

#[tokio::test]
async fn two_hundred_deadlines_pass_in_one_call() {
    let mut task = Task::new().await;
    let nodes: [Node; 1] = [("p 0 0", "- -", &[])];
    for number in 0..200 {
        put(&mut task, &graph("finish", "-", &nodes), &number.to_string()).await;
        task.zadd("deadlines", 5.0, &number.to_string()).await;
    }
    let reply = look(&mut task).await;
    assert!(reply.starts_with("[looked 1 200 x 0/1 x 1/1 "), "{}", &reply[..60]);
    assert_eq!(task.held("deadlines").await, "");
    assert_eq!(task.held("stopping").await.matches("its deadline passed").count(), 200);
}
