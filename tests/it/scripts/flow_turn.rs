use crate::scripts::call::Task;

async fn turn(task: &mut Task, pause: &str, limit: &str) -> String {
    task.call_on("flow_turn", &["workflows"], &[pause, limit]).await.unwrap()
}

#[tokio::test]
async fn a_taken_workflow_is_due_again_after_the_interval() {
    let mut task = Task::new().await;
    task.zadd("workflows", 0.0, "new").await;
    task.zadd("workflows", 7.0, "old").await;
    let now = task.now_ms().await;
    task.zadd("workflows", now - 1_000.0, "young").await;
    assert_eq!(turn(&mut task, "5000", "20").await, "[taken new old]");
    assert_eq!(task.held("workflows").await, r#"zset ["young": NOW, "new": NOW, "old": NOW]"#);
    let before = task.exact().await;
    assert_eq!(turn(&mut task, "5000", "20").await, "[taken]");
    assert_eq!(task.exact().await, before);
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
    task.zadd("workflows", soon, "soon").await;
    task.zadd("workflows", 9e15, "future").await;
    assert_eq!(turn(&mut task, "5000", "20").await, "[taken future]");
    assert_eq!(turn(&mut task, "5000", "20").await, "[taken]");
}

#[tokio::test]
async fn without_workflows_nothing_is_written() {
    let mut task = Task::new().await;
    assert_eq!(turn(&mut task, "5000", "20").await, "[taken]");
    assert_eq!(task.held("workflows").await, "");
}
