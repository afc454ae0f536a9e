use crate::scripts::call::Task;
use crate::scripts::flow::line;

#[tokio::test]
async fn an_instance_is_shown_in_each_state_from_start_to_end() {
    let mut task = Task::running_flow(&line()).await;
    assert_eq!(task.ok("flow_state", "a").await, "[state running 1 3 1 d - '' '' 0 0]");
    task.ok("flow_advance", "a 0 1 c 7").await;
    task.ok("flow_advance", "a 1 1 c 8").await;
    assert_eq!(task.ok("flow_state", "a").await, "[state running 1 1 1 d - '' '' 0 0]");
    task.ok("flow_advance", "a 2 1 c 9").await;
    assert_eq!(task.unchanged("flow_state", "a").await, "[state completed 1 0 0 d - '' 9 1 0]");
}

#[tokio::test]
async fn an_output_over_16_kib_is_not_copied_but_measured() {
    for (bytes, shown) in [(16 * 1024, "OUTPUT"), (16 * 1024 + 1, "16385"), (1024 * 1024, "1048576")] {
        let mut task = Task::running_flow(&line()).await;
        let output = "v".repeat(bytes);
        task.ok("flow_advance", "a 0 1 c 7").await;
        task.ok("flow_advance", "a 1 1 c 8").await;
        task.ok("flow_advance", &format!("a 2 1 c {output}")).await;
        let reply = task.ok("flow_state", "a").await.replace(&output, "OUTPUT");
        assert_eq!(reply, format!("[state completed 1 0 0 d - '' {shown} 1 0]"));
    }
}

#[tokio::test]
async fn an_incomplete_instance_shows_the_node_or_the_reason() {
    let mut task = Task::running_flow(&line()).await;
    task.ok("flow_advance", "a 0 1 f E").await;
    assert_eq!(task.ok("flow_state", "a").await, "[state failed 1 0 0 d 0 E '' 1 0]");
    task.put(&line(), "b").await;
    task.ok("flow_control", "b why").await;
    assert_eq!(task.ok("flow_state", "b").await, "[state running 1 3 1 d - '' '' 0 1]");
    task.ok("flow_advance", "b 0 1 x -").await;
    assert_eq!(task.ok("flow_state", "b").await, "[state cancelled 1 2 0 d - '' why 1 0]");
    task.put(&line(), "c").await;
    task.write("no running; paused c=5; instances c=12 3 3 1 d 1").await;
    assert_eq!(task.ok("flow_state", "c").await, "[state paused 12 3 1 d 1 '' '' 3 0]");
}

#[tokio::test]
async fn an_unreadable_instance_and_one_in_no_place_are_unknown() {
    let mut task = Task::running_flow(&line()).await;
    assert_eq!(task.ok("flow_state", "absent").await, "[unknown]");
    task.write("no running").await;
    assert_eq!(task.ok("flow_state", "a").await, "[state unknown 1 3 1 d - '' '' 0 0]");
    task.write("instances a=what").await;
    assert_eq!(task.ok("flow_state", "a").await, "[unknown]");
}
