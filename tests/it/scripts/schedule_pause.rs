use crate::scripts::call::{Task, assert_keys};
use crate::scripts::schedules::row;

const WHY: &str = r#"{"by":"ada","reason":"a bad deploy"}"#;

#[tokio::test]
async fn a_pause_says_when_by_whom_and_why_until_it_ends() {
    let mut task = Task::new().await;
    row(&mut task, "a", 15).await;
    assert_eq!(task.unchanged("schedule_pause", &["a", ""]).await, "[already]");
    assert_eq!(task.ok("schedule_pause", &["a", WHY]).await, "[paused]");
    let stored: serde_json::Value = serde_json::from_str(&task.field("schedules:paused", "a").await).unwrap();
    assert_eq!(stored["by"], "ada");
    assert_eq!(stored["reason"], "a bad deploy");
    let at = stored["at"].as_u64().unwrap() as f64;
    assert!((task.now_ms().await - at).abs() < 60_000.0, "{stored}");
    assert_eq!(task.unchanged("schedule_pause", &["a", WHY]).await, "[already]");
    assert_eq!(task.ok("schedule_pause", &["a", ""]).await, "[resumed]");
    assert_keys!(task, "no schedules:paused");
}

#[tokio::test]
async fn an_unknown_schedule_has_no_pause() {
    let mut task = Task::new().await;
    for why in [WHY, ""] {
        assert_eq!(task.unchanged("schedule_pause", &["a", why]).await, "[unknown]");
    }
    // The pause of a removed schedule is kept for its return.
    task.write("schedules:paused a={}").await;
    assert_eq!(task.unchanged("schedule_pause", &["a", ""]).await, "[unknown]");
}
