use crate::scripts::call::{Task, assert_keys, assert_rest, assert_text};
use crate::scripts::flow::{line, loose};

async fn sent() -> Task {
    Task::running_flow(&line()).await
}

#[tokio::test]
async fn an_open_node_is_sent_twice_more_and_then_reported_as_lost() {
    let mut task = sent().await;
    for time in 1..=2 {
        assert_eq!(task.ok("flow_resend", "a 0 1").await, "[resent 0 a 0 1 t '' 0 here in-0]");
        assert_rest!(
            task,
            "meta, shapes, input",
            format!(
                "instances a=1 0 3 1 d -; nodes a/0=o{time}, a/1=p 1 1, a/2=p 1 1; outbox s a/0/1=NOW; running a=5"
            )
        );
        // While it still waits to be sent it is not listed, nor twice in one call.
        assert_eq!(task.unchanged("flow_resend", "a 0 1 a 0 1").await, "[resent 0]");
        assert_eq!(task.ok("flow_enter", "a 0 1").await, "[entered go 0]");
        task.write("no outbox").await;
    }
    for _ in 0..2 {
        assert_eq!(task.unchanged("flow_resend", "a 0 1").await, "[resent 1 a/0/1]");
    }
    // Any outcome counts.
    task.ok("flow_advance", "a 0 1 f lost").await;
    assert_keys!(task, "states a=f, s, s; head a=1 1 0 0 d 0");
}

#[tokio::test]
async fn a_node_that_is_not_open_in_this_run_is_left_alone() {
    let mut task = sent().await;
    for id in ["ended", "unreadable", "again"] {
        task.put(&line(), id).await;
    }
    task.write("no running.ended; instances unreadable=1 0 3, again=2 1 3 1 d -").await;
    for state in ["c", "f", "x", "s", "p 0 0", "", "what", "out"] {
        task.hset("nodes", &[("a/1", state)]).await;
        let words = "a 1 1 a 2 1 a 9 1 a 0 2 a 0 0 ended 0 1 unreadable 0 1 again 0 1 absent 0 1";
        assert_eq!(task.unchanged("flow_resend", words).await, "[resent 0]", "{state}");
    }
    assert_eq!(task.ok("flow_resend", "").await, "[resent 0]");
}

#[tokio::test]
async fn sent_nodes_of_a_paused_instance_are_sent_again() {
    let mut task = sent().await;
    task.write("no running; paused a=5").await;
    assert_eq!(task.ok("flow_resend", "a 0 1").await, "[resent 0 a 0 1 t '' 0 here in-0]");
    assert_keys!(task, "place a=paused");
}

#[tokio::test]
async fn nodes_of_a_stopping_or_unreadable_instance_are_lost() {
    for (key, field, value) in [
        ("stopping", "a", "failed "),
        ("stopping", "a", "cancelled why"),
        ("shapes", "d/0", ""),
        ("shapes", "d/0", "- -\n\n0"),
        ("input", "a/0", ""),
    ] {
        let mut task = sent().await;
        task.put(&line(), "b").await;
        task.write(&format!("nodes b/0=c, b/1=o1; value b/0=7; {key} {field}={value}")).await;
        // The others are still sent.
        let reply = task.ok("flow_resend", "a 0 1 b 1 1").await;
        assert_eq!(reply, "[resent 1 a/0/1 b 1 1 t '' 0 here 7]", "{key} {value}");
        assert_keys!(task, "nodes.a/0=o; nodes.b/1=o2; outbox s b/1/1=NOW");
    }
}

#[tokio::test]
async fn two_hundred_nodes_are_sent_or_lost_in_one_call() {
    let mut task = Task::running_flow(&loose(200)).await;
    let words: String = (0..200).map(|node| format!("a {node} 1 ")).collect();
    assert_eq!(task.ok("flow_resend", &words).await.matches(" here in-").count(), 200);
    assert_eq!(task.held("nodes").await.matches(r#""o1""#).count(), 200);
    task.write("stopping a=failed ; no outbox").await;
    assert_text!(task.ok("flow_resend", &words).await, starts_with("[resent 200 a/0/1 a/1/1 "), ends_with(" a/199/1]"));
}

#[tokio::test]
async fn payloads_over_16_kib_are_not_copied_but_named() {
    let mut task = Task::running_flow(&loose(2)).await;
    let large = "x".repeat(9 * 1024);
    task.hset("input", &[("a/0", &large), ("a/1", &large)]).await;
    let reply = task.ok("flow_resend", "a 0 1 a 1 1").await.replace(&large, "LARGE");
    assert_eq!(reply, "[resent 0 a 0 1 t '' 0 here LARGE a 1 1 t '' 0 input a/1 9216]");
}
