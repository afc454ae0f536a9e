use crate::scripts::call::Task;
use crate::scripts::flow::{graph, head, line, place, put, said, states};

/// Two open nodes and one that waits for both.
async fn two_open() -> Task {
    let mut task = Task::new().await;
    let nodes: [(&str, &str, &[usize]); 3] = [("p 0 0", "- -", &[2]), ("p 0 0", "- -", &[2]), ("p 2 2", "- -", &[])];
    put(&mut task, &graph("finish", "-", &nodes), "a").await;
    task.zadd("outbox", 5.0, "s a/0/1").await;
    task
}

#[tokio::test]
async fn an_open_node_may_begin_and_nothing_is_written() {
    let mut task = two_open().await;
    task.hset("nodes", &[("a/1", "o2")]).await;
    let before = task.exact().await;
    for _ in 0..2 {
        assert_eq!(said(&mut task, "flow_enter", "a 0 1 a 1 1").await, "[entered go go 0]");
    }
    assert_eq!(task.exact().await, before);
    // A sent node continues while the others are held back.
    task.del("running").await;
    task.zadd("paused", 5.0, "a").await;
    assert_eq!(said(&mut task, "flow_enter", "a 0 1").await, "[entered go 0]");
}

#[tokio::test]
async fn a_node_that_is_not_open_in_this_run_may_not_begin() {
    let mut task = two_open().await;
    put(&mut task, &line(), "unreadable").await;
    put(&mut task, &line(), "ended").await;
    task.hset("instances", &[("unreadable", "1 0 three 1 d -")]).await;
    task.eval("return redis.call('ZREM', KEYS[1], 'ended')", &[task.key("running")], &[]).await.unwrap();
    for state in ["c", "f", "x", "s", "", "what"] {
        task.hset("nodes", &[("a/1", state)]).await;
        let before = task.exact().await;
        let words = "a 0 1 a 0 2 a 0 0 a 1 1 a 2 1 a 3 1 nobody 0 1 unreadable 0 1 ended 0 1 a 0 1";
        let reply = said(&mut task, "flow_enter", words).await;
        assert_eq!(reply, "[entered go stale stale stale stale stale stale stale stale go 0]", "{state}");
        assert_eq!(task.exact().await, before);
    }
}

#[tokio::test]
async fn a_node_of_a_stopping_instance_is_cancelled_and_may_end_it() {
    for (word, end, error) in [("failed ", "failed", ""), ("cancelled why", "cancelled", r#"hash {"a": "why"}"#)] {
        let mut task = two_open().await;
        task.hset("stopping", &[("a", word)]).await;
        task.zadd("outbox", 5.0, "x a/1").await;
        assert_eq!(said(&mut task, "flow_enter", "a 0 1").await, "[entered stale 0]");
        assert_eq!(states(&mut task, "a", 3).await, "x, o, p 2 2");
        assert_eq!(head(&mut task, "a").await, "1 0 2 1 d -");
        assert_eq!(task.held("outbox").await, r#"zset ["x a/1": 5]"#);
        // The same again, and of another run.
        let before = task.exact().await;
        assert_eq!(said(&mut task, "flow_enter", "a 0 1 a 1 2 a 2 1").await, "[entered stale stale stale 0]");
        assert_eq!(task.exact().await, before);
        assert_eq!(said(&mut task, "flow_enter", "a 1 1 a 1 1").await, "[entered stale stale 0]");
        assert_eq!(states(&mut task, "a", 3).await, "x, x, p 2 2");
        assert_eq!(head(&mut task, "a").await, "1 1 1 0 d -");
        assert_eq!(place(&mut task, "a").await, end);
        assert_eq!(task.held("error").await, error);
        assert_eq!(task.held("stopping").await + &task.held("outbox").await, "");
        let before = task.exact().await;
        assert_eq!(said(&mut task, "flow_enter", "a 0 1 a 1 1").await, "[entered stale stale 0]");
        assert_eq!(said(&mut task, "flow_advance", "a 0 1 c 7 a 1 1 f E").await, "[advanced 0]");
        assert_eq!(task.exact().await, before);
    }
}

#[tokio::test]
async fn one_call_asks_for_200_nodes_of_many_instances() {
    let mut task = Task::new().await;
    let mut words = String::new();
    for number in 0..100 {
        put(&mut task, &line(), &number.to_string()).await;
        if number % 2 == 1 {
            task.hset("stopping", &[(&number.to_string(), "failed ")]).await;
        }
        words += &format!("{number} 0 1 {number} 1 1 ");
    }
    let reply = said(&mut task, "flow_enter", &words).await;
    assert_eq!(reply, format!("[entered{} 0]", " go stale stale stale".repeat(50)));
    assert_eq!(task.held("failed").await.matches(": NOW").count(), 50);
    assert_eq!(task.held("running").await.matches(": 5").count(), 50);
}
