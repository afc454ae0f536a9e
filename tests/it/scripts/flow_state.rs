use crate::scripts::call::Task;
use crate::scripts::flow::{line, put, said};

#[tokio::test]
async fn an_instance_is_shown_in_each_state_from_start_to_end() {
    let mut task = Task::new().await;
    put(&mut task, &line(), "a").await;
    assert_eq!(task.ok("flow_state", &["a"]).await, "[state running 1 3 1 d - '' '' 0 0]");
    said(&mut task, "flow_advance", "a 0 1 c 7").await;
    said(&mut task, "flow_advance", "a 1 1 c 8").await;
    assert_eq!(task.ok("flow_state", &["a"]).await, "[state running 1 1 1 d - '' '' 0 0]");
    said(&mut task, "flow_advance", "a 2 1 c 9").await;
    let before = task.exact().await;
    assert_eq!(task.ok("flow_state", &["a"]).await, "[state completed 1 0 0 d - '' 9 1 0]");
    assert_eq!(task.exact().await, before);
}

#[tokio::test]
async fn an_output_over_16_kib_is_not_copied_but_measured() {
    for (bytes, shown) in [(16 * 1024, "OUTPUT"), (16 * 1024 + 1, "16385"), (1024 * 1024, "1048576")] {
        let mut task = Task::new().await;
        put(&mut task, &line(), "a").await;
        let output = "v".repeat(bytes);
        said(&mut task, "flow_advance", "a 0 1 c 7").await;
        said(&mut task, "flow_advance", "a 1 1 c 8").await;
        said(&mut task, "flow_advance", &format!("a 2 1 c {output}")).await;
        let reply = task.ok("flow_state", &["a"]).await.replace(&output, "OUTPUT");
        assert_eq!(reply, format!("[state completed 1 0 0 d - '' {shown} 1 0]"));
    }
}

#[tokio::test]
async fn an_incomplete_instance_shows_the_node_or_the_reason() {
    let mut task = Task::new().await;
    put(&mut task, &line(), "a").await;
    said(&mut task, "flow_advance", "a 0 1 f E").await;
    assert_eq!(task.ok("flow_state", &["a"]).await, "[state failed 1 0 0 d 0 E '' 1 0]");
    put(&mut task, &line(), "b").await;
    said(&mut task, "flow_control", "b why").await;
    assert_eq!(task.ok("flow_state", &["b"]).await, "[state running 1 3 1 d - '' '' 0 1]");
    said(&mut task, "flow_advance", "b 0 1 x -").await;
    assert_eq!(task.ok("flow_state", &["b"]).await, "[state cancelled 1 2 0 d - '' why 1 0]");
    put(&mut task, &line(), "c").await;
    task.del("running").await;
    task.zadd("paused", 5.0, "c").await;
    task.hset("instances", &[("c", "12 3 3 1 d 1")]).await;
    assert_eq!(task.ok("flow_state", &["c"]).await, "[state paused 12 3 1 d 1 '' '' 3 0]");
}

#[tokio::test]
async fn an_unreadable_one_is_unknown_and_one_in_no_place_is_shown_so() {
    let mut task = Task::new().await;
    put(&mut task, &line(), "a").await;
    assert_eq!(task.ok("flow_state", &["nobody"]).await, "[unknown]");
    task.del("running").await;
    assert_eq!(task.ok("flow_state", &["a"]).await, "[state unknown 1 3 1 d - '' '' 0 0]");
    task.hset("instances", &[("a", "what")]).await;
    assert_eq!(task.ok("flow_state", &["a"]).await, "[unknown]");
}
