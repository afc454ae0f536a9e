use crate::scripts::call::{Task, assert_keys};
use crate::scripts::flow::line;

#[tokio::test]
async fn an_instance_in_no_place_is_paused_and_others_are_not_moved() {
    let mut task = Task::new().await;
    for id in ["runs", "lost", "over", "lost/1.1", "over/1.1"] {
        task.put(&line(), id).await;
    }
    for id in ["lost", "over", "lost/1.1", "over/1.1"] {
        task.lose(&format!("running.{id}")).await;
    }
    task.write("failed over=5").await;
    // A child that has ended is in no place.
    let ended = format!("{} 5 f", task.field("instances", "over/1.1").await);
    task.hset("instances", &[("over/1.1", &ended)]).await;
    assert_eq!(task.ok("flow_place", "runs lost over lost/1.1 over/1.1 absent").await, "[placed 2]");
    assert_keys!(task, "paused lost=NOW");
    assert!(task.score("running", "lost/1.1").await > 0.0);
    assert_keys!(task, "failed over=5");
    assert_eq!(task.unchanged("flow_place", "runs lost over lost/1.1 over/1.1 absent").await, "[placed 0]");
    // A person resumes it from there.
    assert_eq!(task.ok("flow_pause", "lost 0 resume").await, "[resumed 1]");
}

#[tokio::test]
async fn stopping_instances_run_on_and_children_are_listed_again() {
    let mut task = Task::new().await;
    for id in ["stops", "removed", "over/1.1"] {
        task.put(&line(), id).await;
        task.lose(&format!("running.{id}")).await;
    }
    task.write("stopping stops=cancelled by ada, removed=removed ").await;
    let ended = format!("{} 5 c", task.field("instances", "over/1.1").await);
    task.hset("instances", &[("over/1.1", &ended)]).await;
    assert_eq!(task.ok("flow_place", "stops removed over/1.1").await, "[placed 2]");
    assert_keys!(task, "paused removed=NOW; children over/1.1=0");
    // When the open nodes end, it ends as intended.
    task.ok("flow_advance", "stops 0 1 c 7").await;
    assert!(task.score("cancelled", "stops").await > 0.0);
}

#[tokio::test]
async fn an_unreadable_instance_is_paused_for_audits_to_find() {
    let mut task = Task::new().await;
    task.put(&line(), "odd").await;
    task.write("no running.odd; instances odd=nonsense").await;
    assert_eq!(task.ok("flow_place", "odd").await, "[placed 1]");
    assert_eq!(task.ok("flow_audit", "0 200").await, "[taken 0]");
    assert!(task.score("failed", "odd").await > 0.0);
}
