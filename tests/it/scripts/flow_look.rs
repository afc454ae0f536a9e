use crate::scripts::call::{Task, assert_keys};
use crate::scripts::flow::{UNREADABLE, graph, line, loose};

#[tokio::test]
async fn a_step_is_listed_again_until_it_was_carried_out() {
    let mut task = Task::new().await;
    task.start(&line(), "a").await;
    // The caller of the start is still working on it.
    assert_eq!(task.ok("flow_look", "10000 200").await, "[looked 0 0]");
    for entry in ["s a/0/1", "v a/0/1", "x a/1", "what"] {
        task.zadd("outbox", 5.0, entry).await;
    }
    for _ in 0..2 {
        let reply = task.unchanged("flow_look", "10000 200").await;
        assert_eq!(reply, "[looked 0 3 v a/0/1 what x a/1 a 0 1 t '' 0 here in-0]");
    }
}

#[tokio::test]
async fn entries_of_a_clock_that_went_back_are_found_too() {
    let mut task = Task::running_flow(&line()).await;
    let soon = task.now_ms().await + 30_000.0;
    task.write(&format!("outbox x soon/1={soon}; outbox s a/0/1=9e15")).await;
    assert_eq!(task.ok("flow_look", "10000 200").await, "[looked 0 0 a 0 1 t '' 0 here in-0]");
}

#[tokio::test]
async fn an_outdated_send_is_removed() {
    let mut task = Task::new().await;
    for id in ["a", "stops", "ended", "unreadable"] {
        task.put(&line(), id).await;
        task.zadd("outbox", 5.0, &format!("s {id}/0/1")).await;
    }
    task.write("stopping stops=failed ; instances unreadable=1 0 3; no running.ended").await;
    for entry in ["s a/0/2", "s a/1/1", "s a/7/1", "s absent/0/1"] {
        task.zadd("outbox", 5.0, entry).await;
    }
    let before = (task.held("instances").await, task.held("nodes").await, task.held("stopping").await);
    assert_eq!(task.ok("flow_look", "10000 200").await, "[looked 0 0 a 0 1 t '' 0 here in-0]");
    assert_keys!(task, "outbox s a/0/1=5");
    assert_eq!((task.held("instances").await, task.held("nodes").await, task.held("stopping").await), before);
}

#[tokio::test]
async fn a_call_lists_at_most_its_limit_and_reports_more() {
    let mut task = Task::new().await;
    task.start(&loose(300), "a").await;
    let reply = task.ok("flow_look", "0 200").await;
    assert!(reply.starts_with("[looked 1 0 a "));
    assert_eq!(reply.matches(" here in-").count(), 200);
}

#[tokio::test]
async fn payloads_over_16_kib_are_not_copied_but_named() {
    let mut task = Task::running_flow(&graph("finish", "-", "p 0 0, - -, 2; p 0 0, - -; o, - 0")).await;
    let large = "x".repeat(9 * 1024);
    task.write(&format!("input a/0={large}, a/1={large}; value a/0={large}")).await;
    for entry in ["s a/0/1", "s a/1/1", "s a/2/1"] {
        task.zadd("outbox", 5.0, entry).await;
    }
    let reply = task.ok("flow_look", "10000 200").await;
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
            let mut task = Task::running_flow(&line()).await;
            task.put(&line(), "b").await;
            task.write(&format!("no running; {from} a=5; running b=5; nodes b/0=c, b/1=o")).await;
            task.write(&format!("{key} {field}={value}; outbox s a/0/1=5, s b/1/1=6")).await;
            assert_eq!(task.ok("flow_look", "10000 1").await, "[looked 1 0]", "{key} {value}");
            assert_keys!(task, format!("stopping.a=failed {UNREADABLE}; outbox s b/1/1=6, x a/1=NOW"));
            assert_eq!(task.head("a").await, format!("1 {} 3 1 d -", u8::from(from == "paused")));
            assert_eq!(task.ok("flow_look", "10000 1").await, "[looked 1 0 b 1 1 t '' 0 here null]");
            // The open nodes are cancelled, and it ends.
            task.ok("flow_advance", "a 0 1 x -").await;
            assert_keys!(task, format!("place a=failed; error.a={UNREADABLE}; states a=x, p 1 1, p 1 1"));
        }
    }
}
