use crate::scripts::call::{Task, assert_keys, unchanged};

async fn turn(task: &mut Task, pause: &str, limit: &str) -> String {
    task.ok_at("workflows", "flow_turn", &[pause, limit]).await
}

#[tokio::test]
async fn a_taken_workflow_is_due_again_after_the_interval() {
    let mut task = Task::with("workflows new=0, old=7").await;
    let now = task.now_ms().await;
    task.zadd("workflows", now - 1_000.0, "young").await;
    assert_eq!(turn(&mut task, "5000", "20").await, "[taken new old]");
    assert_keys!(task, "workflows young=NOW, new=NOW, old=NOW");
    assert_eq!(unchanged!(task, turn(&mut task, "5000", "20").await), "[taken]");
    assert_eq!(turn(&mut task, "0", "20").await, "[taken young new old]");
}

#[tokio::test]
async fn a_call_takes_at_most_its_limit_and_then_the_others() {
    let mut task = Task::new().await;
    for (at, name) in ["a", "b", "c"].into_iter().enumerate() {
        task.zadd("workflows", at as f64, name).await;
    }
    assert_eq!(turn(&mut task, "5000", "2").await, "[taken a b]");
    assert_eq!(turn(&mut task, "5000", "2").await, "[taken c]");
    assert_eq!(turn(&mut task, "5000", "2").await, "[taken]");
}

#[tokio::test]
async fn a_clock_that_went_back_delays_no_workflow_for_years() {
    let mut task = Task::new().await;
    let soon = task.now_ms().await + 30_000.0;
    task.write(&format!("workflows soon={soon}; workflows future=9e15")).await;
    assert_eq!(turn(&mut task, "5000", "20").await, "[taken future]");
    assert_eq!(turn(&mut task, "5000", "20").await, "[taken]");
}

#[tokio::test]
async fn without_workflows_nothing_is_written() {
    let mut task = Task::new().await;
    assert_eq!(turn(&mut task, "5000", "20").await, "[taken]");
    assert_keys!(task, "no workflows");
}
