use crate::scripts::call::{Task, assert_all, assert_keys, timeless};

/// Declares these options under the stamp of a start.
async fn started(task: &mut Task, options: &str) -> u64 {
    let reply = task.ok("declare", &format!("1 - w {options}")).await;
    assert!(reply.starts_with("[declared "), "{reply}");
    reply.split(' ').nth(1).unwrap().parse().unwrap()
}

#[tokio::test]
async fn the_options_are_written_with_wire_version_and_start_time() {
    let mut task = Task::new().await;
    let before = task.now_ms().await as u64;
    let stamp = started(&mut task, "maxCount 2 eventMode on").await;
    assert!((before..=task.now_ms().await as u64).contains(&stamp), "{stamp}");
    assert_eq!(task.field("meta", "declaredAt").await, stamp.to_string());
    assert_all!(task, "meta declaredAt=NOW, declaredBy=w, eventMode=on, fence=4000000000000000, maxCount=2, wire=1");
}

#[tokio::test]
async fn each_terminal_state_has_its_limits_and_an_empty_one_is_none() {
    let mut task = Task::new().await;
    let names = ["Completed", "Failed", "Cancelled"];
    let options = names.map(|name| format!("keep{name} 1 maxAge{name} 86400000 maxCount{name} -"));
    started(&mut task, &options.join(" ")).await;
    for name in names {
        assert_keys!(task, format!("meta.keep{name}=1; meta.maxAge{name}=86400000; meta.maxCount{name}="));
    }
}

#[tokio::test]
async fn a_change_reports_the_old_value_and_the_newest_start_wins() {
    let mut task = Task::new().await;
    let first = started(&mut task, "maxCount 2 eventMode on priority low").await;
    let reply = task.ok("declare", "1 - w maxCount 5 eventMode on priority high").await;
    assert_eq!(timeless(&reply), "[declared NOW [maxCount 2 5 priority low high]]");
    assert!(task.held("meta").await.contains(r#""maxCount": "5", "priority": "high""#));
    // The declaration of the older start arrives late.
    let reply = task.unchanged("declare", &format!("1 {first} w maxCount 2 priority low")).await;
    assert_eq!(timeless(&reply), "[kept NOW]");
}

#[tokio::test]
async fn a_later_start_with_the_same_options_changes_only_the_stamp() {
    let mut task = Task::new().await;
    let first = started(&mut task, "maxCount 2").await;
    let before = task.keys().await;
    // Both may fall into one millisecond.
    let second = started(&mut task, "maxCount 2").await;
    assert!(second > first, "{second} after {first}");
    assert_eq!(task.keys().await, before);
}

#[tokio::test]
async fn a_worker_restores_lost_options_under_its_own_stamp() {
    let mut task = Task::new().await;
    let options = "maxCount 2 eventMode on";
    let stamp = started(&mut task, options).await;
    let whole = task.field("meta", "declaredAt").await;
    task.write("no meta").await;
    let again = format!("1 {stamp} w {options}");
    assert_eq!(task.ok("declare", &again).await, format!("[declared {stamp} []]"));
    assert_eq!(task.field("meta", "declaredAt").await, whole);
    assert_keys!(task, "meta bornAt=NOW, declaredAt=NOW, declaredBy=w, eventMode=on, lostAt=NOW, maxCount=2, wire=1");
    // Other workers of the same start, or a copy of the call.
    assert_eq!(task.unchanged("declare", &again).await, format!("[kept {stamp}]"));
}

#[tokio::test]
async fn the_newest_start_restores_lost_options_in_either_order() {
    for order in [["100", "200"], ["200", "100"]] {
        let mut task = Task::new().await;
        task.lose_options().await;
        for stamp in order {
            task.ok("declare", &["1", stamp, "w", "maxCount", stamp]).await;
        }
        assert_keys!(task, "meta.maxCount=200; meta.declaredAt=200", "{order:?}");
    }
}

#[tokio::test]
async fn options_of_an_earlier_start_that_came_back_are_replaced() {
    let mut task = Task::with("meta declaredAt=100, maxCount=1").await;
    assert_eq!(task.ok("declare", "1 200 w maxCount 2").await, "[declared 200 [maxCount 1 2]]");
}

#[tokio::test]
async fn the_newest_start_wins_even_if_the_server_clock_went_back() {
    let mut task = Task::with("meta declaredAt=4000000000000, maxCount=1").await;
    assert_eq!(task.ok("declare", "1 - w maxCount 2").await, "[declared 4000000000001 [maxCount 1 2]]");
    assert_keys!(task, "meta.declaredAt=4000000000001");
    assert_eq!(task.ok("declare", "1 4000000000000 w maxCount 1").await, "[kept 4000000000001]");
}

#[tokio::test]
async fn a_newer_wire_version_is_refused() {
    let mut task = Task::with("meta wire=2").await;
    for stamp in ["", "100"] {
        assert_eq!(task.refused("declare", &["1", stamp, "w", "maxCount", "2"]).await, "NEWERWIRE");
    }
}
