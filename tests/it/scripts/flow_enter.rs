use crate::scripts::call::{Task, assert_keys};
use crate::scripts::flow::{graph, line};

/// Two open nodes and one that waits for both.
async fn two_open() -> Task {
    let mut task = Task::running_flow(&graph("finish", "-", "p 0 0, - -, 2; p 0 0, - -, 2; p 2 2, - -")).await;
    task.write("outbox s a/0/1=5").await;
    task
}

#[tokio::test]
async fn an_open_node_may_begin_and_nothing_is_written() {
    let mut task = two_open().await;
    task.write("nodes a/1=o2").await;
    for _ in 0..2 {
        assert_eq!(task.unchanged("flow_enter", "a 0 1 a 1 1").await, "[entered go go 0]");
    }
    // A sent node continues while the others are held back.
    task.write("no running; paused a=5").await;
    assert_eq!(task.ok("flow_enter", "a 0 1").await, "[entered go 0]");
}

#[tokio::test]
async fn a_node_that_is_not_open_in_this_run_may_not_begin() {
    let mut task = two_open().await;
    task.put(&line(), "unreadable").await;
    task.put(&line(), "ended").await;
    task.write("instances unreadable=1 0 three 1 d -; no running.ended").await;
    for state in ["c", "f", "x", "s", "", "what"] {
        task.hset("nodes", &[("a/1", state)]).await;
        let words = "a 0 1 a 0 2 a 0 0 a 1 1 a 2 1 a 3 1 absent 0 1 unreadable 0 1 ended 0 1 a 0 1";
        let reply = task.unchanged("flow_enter", words).await;
        assert_eq!(reply, "[entered go stale stale stale stale stale stale stale stale go 0]", "{state}");
    }
}

#[tokio::test]
async fn a_node_of_a_stopping_instance_is_cancelled_and_may_end_it() {
    for (word, end, error) in [("failed ", "failed", ""), ("cancelled why", "cancelled", r#"hash {"a": "why"}"#)] {
        let mut task = two_open().await;
        task.write(&format!("stopping a={word}; outbox x a/1=5")).await;
        assert_eq!(task.ok("flow_enter", "a 0 1").await, "[entered stale 0]");
        assert_keys!(task, "states a=x, o, p 2 2; head a=1 0 2 1 d -; outbox x a/1=5");
        // The same again, and of another run.
        assert_eq!(task.unchanged("flow_enter", "a 0 1 a 1 2 a 2 1").await, "[entered stale stale stale 0]");
        assert_eq!(task.ok("flow_enter", "a 1 1 a 1 1").await, "[entered stale stale 0]");
        assert_keys!(task, format!("states a=x, x, p 2 2; head a=1 1 1 0 d -; place a={end}"));
        assert_eq!(task.held("error").await, error);
        assert_keys!(task, "no stopping, outbox");
        assert_eq!(task.unchanged("flow_enter", "a 0 1 a 1 1").await, "[entered stale stale 0]");
        assert_eq!(task.unchanged("flow_advance", "a 0 1 c 7 a 1 1 f E").await, "[advanced 0]");
    }
}

#[tokio::test]
async fn headers_come_once_per_instance_also_for_its_children() {
    let mut task = two_open().await;
    for id in ["a/2.1", "a/2.1/0.3", "b", "c", "stops"] {
        task.put(&line(), id).await;
    }
    task.write("headers a={A}, c={C}, stops={S}, gone={G}").await;
    task.write("stopping stops=failed ").await;
    let words = "gone 0 1 a 0 1 b 0 1 a/2.1 0 1 a 0 2 c 0 1 a/2.1/0.3 0 1 a 1 1";
    let reply = task.unchanged("flow_enter", words).await;
    assert_eq!(reply, "[entered stale go 1 go go 1 stale go 2 go 1 go 1 {A} {C} 0]");
    assert_eq!(task.unchanged("flow_enter", "b 0 1").await, "[entered go 0]");
    assert_eq!(task.ok("flow_enter", "stops 0 1 c 0 1").await, "[entered stale go 1 {C} 0]");
}

#[tokio::test]
async fn headers_over_16_kib_come_with_a_later_call() {
    let mut task = Task::new().await;
    let (large, half) = ("x".repeat(20_000), "y".repeat(8_192));
    for (id, headers) in [("large", &large), ("half", &half), ("other", &half), ("third", &half)] {
        task.put(&line(), id).await;
        task.hset("headers", &[(id, headers)]).await;
    }
    task.put(&line(), "none").await;
    let words = "large 0 1 half 0 1 none 0 1 large 0 1 half 0 1";
    let reply = task.unchanged("flow_enter", words).await;
    assert_eq!(reply, format!("[entered go 1 later go go 1 later {large} 0]"));
    let words = "half 0 1 other 0 1 third 0 1 large 0 1 other 0 1";
    let reply = task.unchanged("flow_enter", words).await;
    assert_eq!(reply, format!("[entered go 1 go 2 later later go 2 {half} {half} 0]"));
}

#[tokio::test]
async fn one_call_asks_for_200_nodes_of_many_instances() {
    let mut task = Task::new().await;
    let mut words = String::new();
    for number in 0..100 {
        task.put(&line(), &number.to_string()).await;
        if number % 2 == 1 {
            task.hset("stopping", &[(&number.to_string(), "failed ")]).await;
        }
        words += &format!("{number} 0 1 {number} 1 1 ");
    }
    assert_eq!(task.ok("flow_enter", &words).await, format!("[entered{} 0]", " go stale stale stale".repeat(50)));
    assert_eq!(task.held("failed").await.matches(": NOW").count(), 50);
    assert_eq!(task.held("running").await.matches(": 5").count(), 50);
}
