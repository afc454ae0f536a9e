//! Instances with a deadline, and instances whose jobs are delayed.

use crate::scripts::call::{Task, assert_keys, assert_rest, timeless, unchanged};
use crate::scripts::flow::{graph, line, loose};

const PASSED: &str = r#"{"code":"timeout","message":"its deadline passed"}"#;

/// A start of a row of nodes with a delay and a deadline, in ms.
async fn start(task: &mut Task, id: &str, delay: &str, deadline: &str) -> String {
    let mut args = line().start(id, true);
    (args[5], args[6]) = (delay.to_owned(), deadline.to_owned());
    task.ok("flow_start", &args).await
}

/// An instance `a` past its deadline.
async fn late() -> Task {
    let mut task = Task::running_flow(&line()).await;
    task.write("deadlines a=5").await;
    task
}

async fn look(task: &mut Task) -> String {
    task.ok("flow_look", "10000 200").await
}

#[tokio::test]
async fn a_deadline_and_a_delay_are_written_with_the_start() {
    let mut task = Task::new().await;
    assert_eq!(start(&mut task, "a", "60000", "90000").await, "[started a 0 1 t '' 60000 here in-0]");
    let now = task.now_ms().await;
    assert_eq!(unchanged!(task, start(&mut task, "a", "70000", "10000").await), "[existed]");
    assert_rest!(
        task,
        "meta, shapes, input, nodes, tasks",
        "deadlines a=NOW; instances a=1 0 3 1 d -; outbox s a/0/1=NOW; running a=NOW"
    );
    let began = task.score("running", "a").await;
    assert!(began <= now && began > now - 60_000.0);
    assert_eq!(task.score("deadlines", "a").await, began + 90_000.0);
    assert_eq!(task.head("a").await, format!("1 0 3 1 d - {}", began + 60_000.0));
    // The same in parts.
    let (parts, mut last) = line().parts("b", "n", 2, true);
    for part in &parts {
        task.ok("flow_stage", part).await;
    }
    (last[5], last[6]) = ("60000".to_owned(), "90000".to_owned());
    assert_eq!(task.ok("flow_start", &last).await, "[started]");
    let began = task.score("running", "b").await;
    assert_eq!(task.score("deadlines", "b").await, began + 90_000.0);
    assert_eq!(task.head("b").await, format!("1 0 3 0 d - {}", began + 60_000.0));
}

#[tokio::test]
async fn a_call_reports_that_more_deadlines_are_due() {
    let mut task = Task::new().await;
    for number in 0..5 {
        task.zadd("deadlines", 5.0, &format!("ended-{number}")).await;
    }
    task.put(&line(), "z").await;
    task.write("deadlines z=6; no outbox").await;
    // Deadlines of ended instances stay until they are due.
    for reply in ["[looked 1 0]", "[looked 1 0]", "[looked 1 1 x z/1]"] {
        assert_eq!(task.ok("flow_look", "10000 2").await, reply);
    }
    assert_keys!(task, "no deadlines");
    assert_eq!(task.ok("flow_look", "10000 2").await, "[looked 0 0]");
}

/// How many ms the first node of the reply still waits.
fn wait_of(reply: &str) -> f64 {
    reply.split(" t '' ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap()
}

#[tokio::test]
async fn a_sender_receives_the_remaining_delay_of_a_node() {
    for (ahead, least, most) in [(600_000.0, 500_000.0, 600_000.0), (-600_000.0, 0.0, 0.0)] {
        let mut task = Task::running_flow(&line()).await;
        let due = task.now_ms().await + ahead;
        task.write(&format!("instances a=1 0 3 1 d - {due}; outbox s a/0/1=5")).await;
        let mut replies = vec![look(&mut task).await];
        task.write("no outbox").await;
        replies.push(task.ok("flow_resend", "a 0 1").await);
        replies.push(task.ok("flow_advance", "a 0 1 c 7").await);
        task.ok("flow_pause", "a 0 pause").await;
        task.ok("flow_advance", "a 1 1 c 7").await;
        task.ok("flow_pause", "a 1 resume").await;
        replies.push(task.ok("flow_open", "a 1").await);
        for reply in replies {
            assert!((least..=most).contains(&wait_of(&reply)), "{reply}");
        }
        // Every write of the line keeps the delay, also the end and a new run.
        assert_keys!(task, format!("head a=1 2 1 1 d - {due}"));
        task.ok("flow_advance", "a 2 1 f E").await;
        assert_keys!(task, format!("head a=1 3 0 0 d 2 {due}"));
        assert_eq!(task.ok("flow_retry", "a 3 1 2 'p 0 0'").await, "[again 2]");
        assert_keys!(task, format!("head a=2 4 1 0 d - {due}"));
        assert!((least..=most).contains(&wait_of(&task.ok("flow_open", "a 2").await)));
        assert_eq!(task.ok("flow_nodes", "a 0 3").await, "[nodes 2 3 c c o]");
        assert_eq!(timeless(&task.ok("flow_state", "a").await), "[state running 2 1 1 d - '' '' 4 0]");
    }
}

#[tokio::test]
async fn an_instance_past_its_deadline_ends_with_its_last_open_node() {
    let mut task = late().await;
    assert_eq!(look(&mut task).await, "[looked 0 1 x a/1]");
    let nodes = "nodes a/0=o, a/1=p 1 1, a/2=p 1 1; outbox x a/1=NOW; running a=5";
    let rows = format!("instances a=1 0 3 1 d -; {nodes}; stopping a=failed {PASSED}");
    assert_rest!(task, "meta, shapes, input", rows);
    assert_eq!(unchanged!(task, look(&mut task).await), "[looked 0 0]");
    assert_eq!(task.ok("flow_enter", "a 0 1").await, "[entered stale 0]");
    assert_eq!(task.ok("flow_state", "a").await, format!("[state failed 1 2 0 d - '' {PASSED} 1 0]"));
    assert_keys!(task, "no outbox, stopping");
    for (name, words) in [("flow_look", "0 200"), ("flow_advance", "a 0 1 c 7"), ("flow_enter", "a 0 1")] {
        task.unchanged(name, words).await;
    }
}

#[tokio::test]
async fn a_deadline_without_open_nodes_ends_even_a_paused_instance() {
    for (from, turn) in [("running", 1), ("paused", 2)] {
        let mut task = late().await;
        task.write(&format!("nodes a/0=c, a/1=p 0 0; instances a=1 0 2 0 d -; no running.a; {from} a=5")).await;
        assert_eq!(look(&mut task).await, "[looked 0 0]");
        assert_keys!(task, format!("place a=failed; head a=1 {turn} 2 0 d -; error.a={PASSED}"));
        assert_keys!(task, "no deadlines, outbox, stopping");
    }
    // With an open node it runs until that node has ended.
    let mut task = late().await;
    task.write("no running.a; paused a=5").await;
    assert_eq!(look(&mut task).await, "[looked 0 1 x a/1]");
    assert_keys!(task, "place a=running");
    task.ok("flow_advance", "a 0 1 c 7").await;
    assert_eq!(task.ok("flow_state", "a").await, format!("[state failed 1 2 0 d - '' {PASSED} 2 0]"));
}

#[tokio::test]
async fn an_outdated_deadline_is_removed_and_nothing_else_is_written() {
    let moved = ["completed", "failed", "cancelled", "nowhere"].map(|place| format!("no running.a; {place} a=5"));
    let changes = ["stopping a=cancelled why", "no instances.a", "instances a=what"];
    for change in moved.iter().map(String::as_str).chain(changes) {
        let mut task = late().await;
        task.write(change).await;
        let before = task.rest("deadlines").await;
        assert_eq!(look(&mut task).await, "[looked 0 0]", "{change}");
        assert_rest!(task, "", before, "{change}");
    }
}

#[tokio::test]
async fn a_deadline_in_the_future_is_left_alone() {
    let mut task = Task::new().await;
    start(&mut task, "a", "0", "60000").await;
    assert_eq!(unchanged!(task, look(&mut task).await), "[looked 0 0]");
}

#[tokio::test]
async fn a_look_sends_nothing_of_an_instance_past_its_deadline() {
    let mut task = late().await;
    task.put(&line(), "b").await;
    for entry in ["s a/0/1", "s b/0/1"] {
        task.zadd("outbox", 5.0, entry).await;
    }
    assert_eq!(look(&mut task).await, "[looked 0 1 x a/1 b 0 1 t '' 0 here in-0]");
    assert_keys!(task, "outbox s b/0/1=5, x a/1=NOW");
}

#[tokio::test]
async fn a_call_stops_at_most_its_limit_and_the_next_continues() {
    let mut task = Task::new().await;
    for number in 0..5 {
        task.put(&line(), &number.to_string()).await;
        task.zadd("deadlines", 5.0, &number.to_string()).await;
    }
    assert_eq!(task.ok("flow_look", "10000 2").await, "[looked 1 2 x 0/1 x 1/1]");
    assert_keys!(task, "deadlines 2=5, 3=5, 4=5");
    assert_eq!(task.ok("flow_look", "10000 200").await, "[looked 0 3 x 2/1 x 3/1 x 4/1]");
    assert_keys!(task, "no deadlines");
}

#[tokio::test]
async fn children_of_an_instance_past_its_deadline_fail_it() {
    let mut task = Task::running_flow(&graph("finish", "0", "p 0 0, g -")).await;
    task.write("deadlines a=5").await;
    let child = graph("finish", "0", "p 0 0, - -").named("e");
    task.start(&child, "a/0.1").await;
    assert_eq!(look(&mut task).await, "[looked 0 1 x a/1]");
    assert_eq!(task.ok("flow_control", "a/0.1 why").await, "[stopping 1]");
    assert_eq!(task.ok("flow_enter", "a/0.1 0 1").await, "[entered stale 0]");
    assert_eq!(task.ok("flow_state", "a").await, format!("[state failed 1 0 0 d - '' {PASSED} 1 0]"));
    assert_eq!(task.ok("flow_state", "a/0.1").await, "[state cancelled 1 0 0 e - '' why 1 0]");
}

#[tokio::test]
async fn a_new_run_has_no_deadline_and_a_deadline_passes_once() {
    let mut task = Task::new().await;
    start(&mut task, "a", "0", "60000").await;
    task.ok("flow_advance", "a 0 1 f E").await;
    task.ok("flow_retry", "a 1 3 0 'p 0 0' 1 'p 1 1' 2 'p 1 1'").await;
    assert_keys!(task, "no deadlines");
    task.ok("flow_open", "a 2").await;
    task.write("deadlines a=5").await;
    assert_eq!(look(&mut task).await, "[looked 0 1 x a/2]");
    task.ok("flow_enter", "a 0 2").await;
    assert_eq!(task.ok("flow_state", "a").await, format!("[state failed 2 2 0 d - '' {PASSED} 3 0]"));
    task.ok("flow_retry", "a 3 3 0 'p 0 0' 1 'p 1 1' 2 'p 1 1'").await;
    task.ok("flow_open", "a 3").await;
    assert_eq!(look(&mut task).await, "[looked 0 0]");
    assert_keys!(task, "states a=o, p 1 1, p 1 1");
}

#[tokio::test]
async fn a_deadline_is_removed_with_its_instance() {
    let mut task = Task::new().await;
    start(&mut task, "a", "60000", "9000000000").await;
    start(&mut task, "b", "0", "9000000000").await;
    let left = task.trim_whole("a").await;
    assert!(left.iter().all(|key| !key.contains("\"a")), "{left:?}");
    assert_keys!(task, "deadlines b=NOW");
}

#[tokio::test]
async fn two_hundred_deadlines_pass_in_one_call() {
    let mut task = Task::new().await;
    for number in 0..200 {
        task.put(&loose(1), &number.to_string()).await;
        task.zadd("deadlines", 5.0, &number.to_string()).await;
    }
    let reply = look(&mut task).await;
    assert!(reply.starts_with("[looked 1 200 x 0/1 x 1/1 "), "{}", &reply[..60]);
    assert_keys!(task, "no deadlines");
    assert_eq!(task.held("stopping").await.matches("its deadline passed").count(), 200);
}
