use crate::scripts::call::{Task, assert_keys, assert_rest};
use crate::scripts::flow::line;

#[tokio::test]
async fn a_cancel_stops_a_running_instance_with_the_first_reason() {
    let mut task = Task::running_flow(&line()).await;
    assert_eq!(task.ok("flow_control", &["a", "too late\nfor it"]).await, "[stopping 1]");
    assert_rest!(
        task,
        "meta, shapes, input",
        "instances a=1 0 3 1 d -; nodes a/0=o, a/1=p 1 1, a/2=p 1 1; outbox x a/1=NOW; running a=NOW; \
         stopping a=cancelled too late\\nfor it"
    );
    // Also if the open nodes were cancelled and still run.
    for _ in 0..2 {
        assert_eq!(task.unchanged("flow_control", "a 'another reason'").await, "[stopping 1]");
    }
    task.ok("flow_advance", "a 0 1 c 7").await;
    assert_keys!(task, "error.a=too late\nfor it");
    assert_eq!(task.unchanged("flow_control", "a 'another reason'").await, "[ended cancelled 0]");
}

#[tokio::test]
async fn a_cancel_without_open_nodes_ends_the_instance_at_once() {
    // A running instance has a pending visit; a paused one opened nothing.
    for from in ["running", "paused"] {
        let mut task = Task::running_flow(&line()).await;
        task.write(&format!("nodes a/0=c, a/1=p 0 0; instances a=3 4 2 0 d -; no running; {from} a=5")).await;
        assert_eq!(task.ok("flow_control", "a why").await, "[ended cancelled 0]");
        assert_keys!(task, "place a=cancelled");
        let turn = if from == "running" { 5 } else { 6 };
        assert_keys!(task, format!("head a=3 {turn} 2 0 d -"));
        assert_keys!(task, "states a=c, p 0 0, p 1 1; error a=why; no outbox, stopping");
    }
}

#[tokio::test]
async fn a_paused_instance_with_open_nodes_runs_until_they_have_ended() {
    let mut task = Task::running_flow(&line()).await;
    task.write("no running; paused a=5").await;
    assert_eq!(task.ok("flow_control", "a why").await, "[stopping 1]");
    assert_keys!(task, "place a=running; head a=1 1 3 1 d -");
    task.ok("flow_enter", "a 0 1").await;
    assert_keys!(task, "place a=cancelled; head a=1 2 2 0 d -");
}

#[tokio::test]
async fn a_cancel_takes_precedence_over_a_failure() {
    let mut task = Task::running_flow(&line()).await;
    task.write("stopping a=failed ").await;
    assert_eq!(task.ok("flow_control", "a -").await, "[stopping 1]");
    assert_keys!(task, "stopping.a=cancelled ");
    task.ok("flow_advance", "a 0 1 x -").await;
    assert_keys!(task, "place a=cancelled; no error");
}

#[tokio::test]
async fn an_ended_instance_returns_its_place_a_missing_one_unknown() {
    let mut task = Task::new().await;
    for id in ["completed", "failed", "cancelled", "nowhere", "unreadable"] {
        task.put(&line(), id).await;
        task.write("no running").await;
    }
    for id in ["completed", "failed", "cancelled"] {
        task.zadd(id, 5.0, id).await;
    }
    task.write("instances unreadable=1 0; running unreadable=5").await;
    for id in ["completed", "failed", "cancelled"] {
        assert_eq!(task.unchanged("flow_control", &[id, "why"]).await, format!("[ended {id} 0]"));
    }
    for id in ["absent", "nowhere", "unreadable"] {
        assert_eq!(task.unchanged("flow_control", &[id, "why"]).await, "[unknown]");
    }
}
