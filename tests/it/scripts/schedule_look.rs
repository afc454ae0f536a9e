use crate::scripts::call::{Task, assert_keys, assert_text, timeless};
use crate::scripts::schedules::row;

/// What a look finds, without changing anything.
async fn look(task: &mut Task, most: &str) -> String {
    timeless(&task.unchanged("schedule_look", &[most]).await)
}

#[tokio::test]
async fn due_schedules_are_found_in_the_order_of_their_times() {
    let mut task = Task::new().await;
    assert_eq!(look(&mut task, "50").await, "[looked NOW - 0 [] [] []]");
    for (name, due) in [("late", 15), ("first", 5), ("later", 9_000_000_000_000), ("last", 25)] {
        row(&mut task, name, due).await;
    }
    task.write("schedules:ledger late=15 1 1 0 0 0 0 7 late@7 8 1 - - -; schedules:paused late={}").await;
    let (first, late) = ("[first d - {} 5 - 0 1 0]", "[late d - {} 15 7 1 1 0]");
    let all = format!("[looked NOW 9000000000000 0 [] [{first} {late} [last d - {{}} 25 - 0 1 0]] []]");
    assert_eq!(look(&mut task, "50").await, all);
    assert_eq!(look(&mut task, "2").await, format!("[looked NOW 9000000000000 1 [] [{first} {late}] []]"));
}

#[tokio::test]
async fn rows_that_cannot_be_read_do_not_hide_others() {
    let mut task = Task::new().await;
    for (number, name) in ["rule", "ledger", "input", "none", "never"].into_iter().enumerate() {
        row(&mut task, name, 5 + number as u64).await;
    }
    row(&mut task, "sound", 15).await;
    task.write("schedules:rule rule=damaged; schedules:ledger ledger=5 many, never=- 1 0 0 0 0 0 - - - - - - -").await;
    task.write("no schedules:input.input, schedules:rule.none").await;
    assert_eq!(timeless(&task.ok("schedule_look", "3").await), "[looked NOW NOW 1 [rule ledger input] [] []]");
    let found = timeless(&task.ok("schedule_look", "3").await);
    assert_eq!(found, "[looked NOW NOW 0 [none never] [[sound d - {} 15 - 0 1 0]] []]");
    let soon = task.now_ms().await + 30_000.0;
    for name in ["rule", "ledger", "input", "none", "never"] {
        assert!(task.score("schedules", name).await > soon, "{name}");
    }
}

#[tokio::test]
async fn due_schedules_that_the_caller_cannot_fire_are_skipped() {
    let mut task = Task::new().await;
    for (name, due) in [("newer", 5), ("sound", 15)] {
        row(&mut task, name, due).await;
    }
    for (skipped, rows) in [("1", "[sound d - {} 15 - 0 1 0]"), ("2", "")] {
        let found = timeless(&task.unchanged("schedule_look", &["1", skipped]).await);
        assert_eq!(found, format!("[looked NOW - 0 [] [{rows}] []]"));
    }
}

#[tokio::test]
async fn at_most_a_quarter_mebibyte_of_rules_is_returned() {
    let mut task = Task::new().await;
    let json = "x".repeat(200_000);
    for (name, due) in [("a", 5), ("b", 15), ("c", 25)] {
        row(&mut task, name, due).await;
        task.write(&format!("schedules:rule {name}=d - put 0 ada {json}")).await;
    }
    let found = task.ok("schedule_look", "50").await;
    assert_text!(found.replace(&json, "J"), contains(" 1 [] [[a d - J "), contains("[b d - J "), ends_with(" 0]] []]"));
}

/// A schedule whose tick at 25 ms waits for its job `j`.
async fn held(rows: &str) -> Task {
    let mut task = Task::new().await;
    row(&mut task, "a", 9_000_000_000_000).await;
    task.write("schedules:ledger a=9000000000000 1 1 0 0 0 0 25 j 16 1 25 15 -; schedules:pending a=1").await;
    task.write(rows).await;
    task
}

#[tokio::test]
async fn a_pending_tick_is_found_once_the_last_job_has_ended() {
    for (rows, is_found) in [
        ("waits j", false),
        ("runs w: j=1", false),
        ("payload j=1; completed j=1", true),
        ("payload j=1; failed j=1", true),
        ("payload j=1; cancelled j=1", true),
        ("waits other", true),
        ("waits other; schedules:paused a={}", false),
    ] {
        let mut task = held(rows).await;
        let rows_of = if is_found { "[a d - {} 25 15 0 1 1]" } else { "" };
        let expected = format!("[looked NOW 9000000000000 0 [] [{rows_of}] []]");
        assert_eq!(look(&mut task, "50").await, expected, "{rows}");
    }
}

#[tokio::test]
async fn due_ticks_come_before_pending_ones() {
    let mut task = held("waits other").await;
    row(&mut task, "b", 5).await;
    let due = "[b d - {} 5 - 0 1 0]";
    assert_eq!(look(&mut task, "1").await, format!("[looked NOW 9000000000000 1 [] [{due}] []]"));
    let both = format!("{due} [a d - {{}} 25 15 0 1 1]");
    assert_eq!(look(&mut task, "2").await, format!("[looked NOW 9000000000000 0 [] [{both}] []]"));
}

#[tokio::test]
async fn many_pending_ticks_are_looked_at_in_turn() {
    let mut task = held("waits other").await;
    let fields: Vec<(String, String)> =
        (0..200).map(|n| (format!("s{n}"), "9000000000000 1 1 0 0 0 0 25 j 16 1 25 15 -".to_owned())).collect();
    let fields: Vec<(&str, &str)> = fields.iter().map(|(name, line)| (name.as_str(), line.as_str())).collect();
    task.hset("schedules:ledger", &fields).await;
    for (name, _) in &fields {
        task.zadd("schedules:pending", 0.0, name).await;
    }
    task.write("payload j=1").await;
    assert_text!(timeless(&task.ok("schedule_look", "50").await), ends_with(" 0 [] [] []]"));
    assert_eq!(task.score("schedules:pending", "a").await, 1.0, "200 others were first");
    assert!(task.score("schedules:pending", "s0").await > 1.0);
    task.write("completed j=1; no schedules:pending.s1").await;
    assert_text!(timeless(&task.ok("schedule_look", "50").await), contains("[a d - {} 25 15 0 1 1]"));
}

#[tokio::test]
async fn an_entry_without_a_pending_tick_is_dropped() {
    let mut task = held("schedules:ledger a=9000000000000 1 1 0 0 0 0 25 j 16 1 - - -").await;
    task.write("schedules:pending gone=1").await;
    task.ok("schedule_look", "50").await;
    assert_keys!(task, "no schedules:pending");
}

#[tokio::test]
async fn a_replaced_job_is_named_until_a_cancel_is_under_way() {
    let rule = r#"schedules:rule a=d - put 0 ada {"overlap":"replace"}"#;
    for (rows, replaced) in [
        ("waits j", "j"),
        ("runs w: j=1", "j"),
        ("runs w: j=1; cancelling j=why", ""),
        ("waits j; schedules:paused a={}", ""),
        ("payload j=1; cancelled j=1", ""),
        ("waits other", ""),
        ("waits j; schedules:rule a=damaged", ""),
    ] {
        let mut task = held(&format!("{rule}; {rows}")).await;
        assert_text!(look(&mut task, "50").await, ends_with(&format!("] [{replaced}]]")));
    }
}
