//! The events of workflows.

use crate::scripts::call::{Task, assert_keys};
use crate::scripts::flow::{graph, line};

#[tokio::test]
async fn the_call_that_writes_an_end_also_adds_its_event() {
    let mut task = Task::new().await;
    task.ok("flow_start", &line().start("a", true)).await;
    task.ok("flow_advance", "a 0 1 c 7").await;
    // A repeated end has one event.
    task.ok("flow_advance", "a 0 1 c 7").await;
    task.ok("flow_advance", "a 1 1 f E").await;
    assert_eq!(task.events().await, ["1: started a/1", "2: node c a/0/1", "5: node f a/1/1 s a/2/1, ended failed a/1"]);
    assert_eq!(task.ok("flow_retry", "a 1 2 1 p|0|0 2 p|1|1").await, "[again 2]");
    assert_eq!(task.ok("flow_retry", "a 1 2 1 p|0|0 2 p|1|1").await, "[changed]");
    assert_eq!(task.events().await[3..], ["6: started a/2"]);
}

#[tokio::test]
async fn pauses_cancels_and_deadlines_have_events() {
    let mut task = Task::running_flow(&line()).await;
    assert_eq!(task.ok("flow_pause", "a 0 pause").await, "[paused]");
    assert_eq!(task.ok("flow_pause", "a 0 pause").await, "[changed]");
    assert_eq!(task.ok("flow_pause", "a 1 resume").await, "[resumed 1]");
    assert_eq!(task.ok("flow_control", "a why").await, "[stopping 1]");
    assert_eq!(task.ok("flow_enter", "a 0 1").await, "[entered stale 0]");
    assert_eq!(task.events().await, ["1: paused a/1", "2: resumed a/1", "4: node x a/0/1, ended cancelled a/1"]);

    // No node of it is open.
    task.put(&graph("pause", "-", "p 0 0, - -, 1; p 1 1, - -"), "b").await;
    task.ok("flow_advance", "b 0 1 f E").await;
    assert_eq!(task.events().await[3..], ["7: node f b/0/1 s b/1/1, paused b/1"]);
    task.write("deadlines b=5").await;
    task.ok("flow_look", "10000 200").await;
    assert_eq!(task.events().await[4..], ["8: ended failed b/1"]);
}

#[tokio::test]
async fn an_unwritable_stream_does_not_stop_the_workflow() {
    let mut task = Task::running_flow(&line()).await;
    task.make_foreign("events").await;
    assert_eq!(task.ok("flow_advance", "a 0 1 c 7").await, "[advanced 0 a 1 1 t '' 0 here 7]");
    assert_keys!(task, "nodes a/0=c, a/1=o, a/2=p 1 1");
}
