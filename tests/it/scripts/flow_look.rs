use crate::scripts::call::Task;
use crate::scripts::flow::{UNREADABLE, graph, head, line, place, put, said, start, states};

#[tokio::test]
async fn a_step_is_listed_again_until_it_was_carried_out() {
    let mut task = Task::new().await;
    start(&mut task, &line(), "a").await;
    // The caller of the start is still working on it.
    assert_eq!(said(&mut task, "flow_look", "10000 200").await, "[looked 0 0]");
    for entry in ["s a/0/1", "v a/0/1", "x a/1", "what"] {
        task.zadd("outbox", 5.0, entry).await;
    }
    let before = task.exact().await;
    for _ in 0..2 {
        assert_eq!(
            said(&mut task, "flow_look", "10000 200").await,
            "[looked 0 3 v a/0/1 what x a/1 a 0 1 t '' 0 here in-0]"
        );
    }
    assert_eq!(task.exact().await, before);
}

#[tokio::test]
async fn entries_of_a_clock_that_went_back_are_found_too() {
    let mut task = Task::new().await;
    put(&mut task, &line(), "a").await;
    let soon = task.now_ms().await + 30_000.0;
    task.zadd("outbox", soon, "x soon/1").await;
    task.zadd("outbox", 9e15, "s a/0/1").await;
    assert_eq!(said(&mut task, "flow_look", "10000 200").await, "[looked 0 0 a 0 1 t '' 0 here in-0]");
}

#[tokio::test]
async fn an_outdated_send_is_removed() {
    let mut task = Task::new().await;
    for id in ["a", "stops", "ended", "unreadable"] {
        put(&mut task, &line(), id).await;
        task.zadd("outbox", 5.0, &format!("s {id}/0/1")).await;
    }
    task.hset("stopping", &[("stops", "failed ")]).await;
    task.hset("instances", &[("unreadable", "1 0 3")]).await;
    task.eval("return redis.call('ZREM', KEYS[1], 'ended')", &[task.key("running")], &[]).await.unwrap();
    for entry in ["s a/0/2", "s a/1/1", "s a/7/1", "s nobody/0/1"] {
        task.zadd("outbox", 5.0, entry).await;
    }
    let before = (task.held("instances").await, task.held("nodes").await, task.held("stopping").await);
    assert_eq!(said(&mut task, "flow_look", "10000 200").await, "[looked 0 0 a 0 1 t '' 0 here in-0]");
    assert_eq!(task.held("outbox").await, r#"zset ["s a/0/1": 5]"#);
    assert_eq!((task.held("instances").await, task.held("nodes").await, task.held("stopping").await), before);
}

#[tokio::test]
async fn a_call_lists_at_most_its_limit_and_reports_more() {
    let mut task = Task::new().await;
    let nodes: Vec<(&str, &str, &[usize])> = (0..300).map(|_| ("p 0 0", "- -", &[][..])).collect();
    start(&mut task, &graph("finish", "-", &nodes), "a").await;
    let reply = said(&mut task, "flow_look", "0 200").await;
    assert!(reply.starts_with("[looked 1 0 a "));
    assert_eq!(reply.matches(" here in-").count(), 200);
}

#[tokio::test]
async fn payloads_over_16_kib_are_not_copied_but_named() {
    let mut task = Task::new().await;
    let nodes: [(&str, &str, &[usize]); 3] = [("p 0 0", "- -", &[2]), ("p 0 0", "- -", &[]), ("o", "- 0", &[])];
    put(&mut task, &graph("finish", "-", &nodes), "a").await;
    let large = "x".repeat(9 * 1024);
    task.hset("input", &[("a/0", &large), ("a/1", &large)]).await;
    task.hset("value", &[("a/0", &large)]).await;
    for entry in ["s a/0/1", "s a/1/1", "s a/2/1"] {
        task.zadd("outbox", 5.0, entry).await;
    }
    let reply = said(&mut task, "flow_look", "10000 200").await;
    assert_eq!(
        reply.replace(&large, "LARGE"),
        "[looked 0 0 a 0 1 t '' 0 here LARGE a 1 1 t '' 0 input a/1 9216 a 2 1 t '' 0 value a/0 9216]"
    );
}

#[tokio::test]
async fn an_impossible_send_blocks_nothing_and_ends_its_instance() {
    for (key, field, value) in
        [("shapes", "d/0", ""), ("shapes", "d/0", "- -\n\n0"), ("shapes", "d/0", "- - \n\n0"), ("input", "a/0", "")]
    {
        for from in ["running", "paused"] {
            let mut task = Task::new().await;
            put(&mut task, &line(), "a").await;
            put(&mut task, &line(), "b").await;
            task.del("running").await;
            task.zadd(from, 5.0, "a").await;
            task.zadd("running", 5.0, "b").await;
            task.hset("nodes", &[("b/0", "c"), ("b/1", "o")]).await;
            task.hset(key, &[(field, value)]).await;
            task.zadd("outbox", 5.0, "s a/0/1").await;
            task.zadd("outbox", 6.0, "s b/1/1").await;
            let reply = said(&mut task, "flow_look", "10000 1").await;
            assert_eq!(reply, "[looked 1 0]", "{key} {value}");
            assert_eq!(task.field("stopping", "a").await, format!("failed {UNREADABLE}"));
            assert_eq!(task.held("outbox").await, r#"zset ["s b/1/1": 6, "x a/1": NOW]"#);
            assert_eq!(head(&mut task, "a").await, format!("1 {} 3 1 d -", u8::from(from == "paused")));
            let reply = said(&mut task, "flow_look", "10000 1").await;
            assert_eq!(reply, "[looked 1 0 b 1 1 t '' 0 here null]");
            // The open nodes are cancelled, and it ends.
            said(&mut task, "flow_advance", "a 0 1 x -").await;
            assert_eq!(place(&mut task, "a").await, "failed");
            assert_eq!(task.field("error", "a").await, UNREADABLE);
            assert_eq!(states(&mut task, "a", 3).await, "x, p 1 1, p 1 1");
        }
    }
}
