use crate::scripts::call::Task;
use crate::scripts::flow::{line, put, said, take_out};

#[tokio::test]
async fn an_instance_in_no_place_is_paused_and_others_are_not_moved() {
    let mut task = Task::new().await;
    for id in ["runs", "lost", "over", "lost/1.1", "over/1.1"] {
        put(&mut task, &line(), id).await;
    }
    for id in ["lost", "over", "lost/1.1", "over/1.1"] {
        take_out(&mut task, "running", id).await;
    }
    task.zadd("failed", 5.0, "over").await;
    // A child that has ended is in no place.
    let ended = format!("{} 5 f", task.field("instances", "over/1.1").await);
    task.hset("instances", &[("over/1.1", &ended)]).await;
    let said_first = said(&mut task, "flow_place", "runs lost over lost/1.1 over/1.1 nobody").await;
    assert_eq!(said_first, "[placed 2]");
    assert_eq!(task.held("paused").await, r#"zset ["lost": NOW]"#);
    assert!(task.score("running", "lost/1.1").await > 0.0);
    assert_eq!(task.held("failed").await, r#"zset ["over": 5]"#);
    let before = task.exact().await;
    assert_eq!(said(&mut task, "flow_place", "runs lost over lost/1.1 over/1.1 nobody").await, "[placed 0]");
    assert_eq!(task.exact().await, before);
    // A person resumes it from there.
    assert_eq!(said(&mut task, "flow_pause", "lost 0 resume").await, "[resumed 1]");
}

#[tokio::test]
async fn stopping_instances_run_on_and_children_are_listed_again() {
    let mut task = Task::new().await;
    for id in ["stops", "removed", "over/1.1"] {
        put(&mut task, &line(), id).await;
        take_out(&mut task, "running", id).await;
    }
    task.hset("stopping", &[("stops", "cancelled by ada"), ("removed", "removed ")]).await;
    let ended = format!("{} 5 c", task.field("instances", "over/1.1").await);
    task.hset("instances", &[("over/1.1", &ended)]).await;
    assert_eq!(said(&mut task, "flow_place", "stops removed over/1.1").await, "[placed 2]");
    assert_eq!(task.held("paused").await, r#"zset ["removed": NOW]"#);
    assert_eq!(task.held("children").await, r#"zset ["over/1.1": 0]"#);
    // When the open nodes end, it ends as intended.
    said(&mut task, "flow_advance", "stops 0 1 c 7").await;
    assert!(task.score("cancelled", "stops").await > 0.0);
}

#[tokio::test]
async fn an_unreadable_line_is_paused_too_so_that_audits_find_it() {
    let mut task = Task::new().await;
    put(&mut task, &line(), "odd").await;
    take_out(&mut task, "running", "odd").await;
    task.hset("instances", &[("odd", "nonsense")]).await;
    assert_eq!(said(&mut task, "flow_place", "odd").await, "[placed 1]");
    assert_eq!(said(&mut task, "flow_audit", "0 200").await, "[taken 0]");
    assert!(task.score("failed", "odd").await > 0.0);
}
