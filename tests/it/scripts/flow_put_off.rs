use crate::scripts::call::{Task, assert_keys};
use crate::scripts::flow::line;

async fn postpone(task: &mut Task, entries: &[&str]) -> Vec<f64> {
    assert_eq!(task.ok("flow_put_off", entries).await, "[put]");
    let since = task.field("meta", if entries.is_empty() { "untold" } else { "putOff" }).await;
    since.split(' ').map(|ms| ms.parse().unwrap()).collect()
}

#[tokio::test]
async fn a_postponed_entry_returns_after_5_s_and_blocks_no_other() {
    let mut task = Task::running_flow(&line()).await;
    task.write("outbox x a/1=5, o b/1=6").await;
    let now = task.now_ms().await;
    postpone(&mut task, &["x a/1", "v gone/0/1"]).await;
    let score = task.score("outbox", "x a/1").await;
    assert!(score >= now - 5_000.0 && score < now - 4_000.0, "{score} at {now}");
    // A missing entry is not added.
    assert_keys!(task, "outbox o b/1=6, x a/1=NOW");
    assert_eq!(task.ok("flow_look", "10000 200").await, "[looked 0 1 o b/1]");
}

#[tokio::test]
async fn the_time_of_the_first_postponement_is_kept_for_a_minute() {
    let mut task = Task::running_flow(&line()).await;
    let now = task.now_ms().await;
    let first = postpone(&mut task, &["x a/1"]).await;
    assert!(first[0] >= now && first[1] == first[0], "{first:?}");
    let (earlier, recent) = (now - 100_000.0, now - 50_000.0);
    task.hset("meta", &[("putOff", &format!("{earlier} {recent}"))]).await;
    let again = postpone(&mut task, &["x a/1"]).await;
    assert!(again[0] == earlier && again[1] >= now, "{again:?}");
    for over in [&*format!("{earlier} {}", now - 70_000.0), "", "never", "9000000000000 9000000000000"] {
        task.hset("meta", &[("putOff", over)]).await;
        let restarted = postpone(&mut task, &["x a/1"]).await;
        assert!(restarted[0] >= now && restarted[0] < now + 60_000.0, "{over}: {restarted:?}");
        assert!(restarted[1] >= restarted[0], "{over}: {restarted:?}");
    }
}

#[tokio::test]
async fn unreported_jobs_are_recorded_until_a_report_succeeds() {
    let mut task = Task::running_flow(&line()).await;
    task.write("meta putOff=5 6").await;
    let now = task.now_ms().await;
    let first = postpone(&mut task, &[]).await;
    assert!(first[0] >= now && first[1] == first[0], "{first:?}");
    assert_eq!(postpone(&mut task, &[]).await[0], first[0]);
    assert_keys!(task, "meta.putOff=5 6");
    assert_eq!(task.ok("flow_advance", "a 0 1 c 7").await, "[advanced 0 a 1 1 t '' 0 here 7]");
    assert!(!task.held("meta").await.contains("untold"));
    assert_keys!(task, "meta.putOff=5 6");
}
