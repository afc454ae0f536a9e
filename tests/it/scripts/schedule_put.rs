use crate::scripts::call::{Task, assert_all, assert_keys};
use crate::scripts::schedules::{Firing, New, fire, ledger, put, put_nothing, row};
use crate::support::PATIENCE;
use futures_util::StreamExt;

#[tokio::test]
async fn a_new_schedule_is_written_with_a_fresh_ledger() {
    let mut task = Task::new().await;
    let new = New::put(&mut task).await;
    assert_eq!(put(&mut task, &new).await, "[written 1 0]");
    assert_all!(
        task,
        "meta fence=4000000000000000, wire=1; schedules a=NOW; schedules:input a=7; \
         schedules:ledger a=NOW NOW 0 0 0 0 0 - - - - - - -; schedules:rule a=d - put 0 ada {}"
    );
    let code = New { next: None, ..New::code(&mut task, 9).await };
    assert_eq!(task.ok("schedule_put", &code.args("b")).await, "[written 1 0]");
    assert_keys!(task, "schedules a=NOW; schedules:named b=NOW");
    assert!(task.field("schedules:rule", "b").await.starts_with("d - code 9 w "));
}

#[tokio::test]
async fn the_reply_says_whether_a_worker_fires_ticks() {
    let mut task = Task::new().await;
    let now = task.now_ms().await;
    // The second time is later than now, as after the clock went back.
    for (ago, reply) in [(30_000.0, "[written 1 0]"), (-60_000.0, "[same 0]"), (1_000.0, "[same 1]")] {
        task.zadd("schedules:keepers", now - ago, "w").await;
        let new = New::put(&mut task).await;
        assert_eq!(put(&mut task, &new).await, reply);
    }
}

#[tokio::test]
async fn the_same_rule_and_input_change_nothing() {
    let mut task = Task::new().await;
    let new = New::code(&mut task, 9).await;
    put(&mut task, &new).await;
    assert_eq!(put_nothing(&mut task, &new).await, "[same 0]");
    assert_eq!(put_nothing(&mut task, &New { stamp: 8, ..new.clone() }).await, "[kept]");
    assert_eq!(put(&mut task, &New { stamp: 10, ..new.clone() }).await, "[same 0]");
    assert_keys!(task, "schedules:rule a=d - code 10 w {}");
    task.write("no schedules:input").await;
    assert_eq!(put(&mut task, &New { stamp: 10, ..new.clone() }).await, "[same 0]");
    assert_keys!(task, "schedules:input a=7");
    // At run time it is taken over, and no deploy replaces or removes it.
    let at_run_time = New::put(&mut task).await;
    assert_eq!(put(&mut task, &at_run_time).await, "[same 0]");
    assert_keys!(task, "schedules:rule a=d - put 0 ada {}; no schedules:named");
    assert_eq!(put_nothing(&mut task, &New { stamp: 11, ..new }).await, "[kept]");
}

#[tokio::test]
async fn code_replaces_neither_a_put_row_nor_a_later_start() {
    let mut task = Task::new().await;
    let new = New::put(&mut task).await;
    put(&mut task, &new).await;
    let code = New { digest: "e", ..New::code(&mut task, 9).await };
    assert_eq!(put_nothing(&mut task, &code).await, "[kept]");
    assert_eq!(put(&mut task, &New { digest: "f", ..new }).await, "[written 0 0]");
    let mut task = Task::new().await;
    put(&mut task, &New { stamp: 10, ..code.clone() }).await;
    assert_eq!(put_nothing(&mut task, &New { digest: "f", ..code.clone() }).await, "[kept]");
    assert_eq!(put(&mut task, &New { digest: "f", stamp: 11, ..code }).await, "[written 0 0]");
    assert_keys!(task, "schedules:rule a=f - code 11 w {}");
}

#[tokio::test]
async fn a_changed_rule_keeps_counts_and_the_pending_tick() {
    let mut task = Task::new().await;
    let new = New { digest: "e", ..New::put(&mut task).await };
    row(&mut task, "a", 9_000_000_000_000).await;
    task.write("schedules:ledger a=9000000000000 1 2 3 4 5 6 50 a@50 51 1 40 30 +; schedules:pending a=1").await;
    task.write("schedules:ticks a=50f1; schedules:paused a={}").await;
    assert_eq!(put(&mut task, &new).await, "[written 0 0]");
    assert_eq!(ledger(&mut task, "a").await, "NOW 1 2 3 4 5 6 50 a@50 51 1 40 30 +");
    assert_keys!(task, "schedules:pending a=1; schedules:ticks a=50f1; schedules:paused a={}; schedules a=NOW");
    // Without another tick it stays, and never fires again.
    assert_eq!(put(&mut task, &New { digest: "f", next: None, ..new }).await, "[written 0 0]");
    assert_keys!(task, "no schedules; schedules:rule a=f - put 0 ada {}");
}

#[tokio::test]
async fn a_due_tick_must_fire_under_its_old_rule() {
    let mut task = Task::new().await;
    row(&mut task, "a", 15).await;
    let new = New { digest: "e", ..New::put(&mut task).await };
    assert_eq!(put_nothing(&mut task, &new).await, "[due]");
    assert_eq!(put_nothing(&mut task, &New { digest: "d", zone: "2026a", ..new.clone() }).await, "[due]");
    let last = Firing { next: Some(new.basis + 90_000), ..Firing::of("a", &[15]) };
    assert_eq!(fire(&mut task, &[last]).await, "done 1 -");
    assert_eq!(put(&mut task, &new).await, "[written 0 0]");
    assert_eq!(ledger(&mut task, "a").await, "NOW 1 1 0 0 0 0 15 a@15 NOW NOW - - -");
}

#[tokio::test]
async fn a_due_tick_of_an_unreadable_rule_counts_as_missed() {
    for (rows, replaces) in [("schedules a=15", true), ("schedules:rule a=damaged", false)] {
        let mut task = Task::new().await;
        row(&mut task, "a", 15).await;
        task.write(rows).await;
        let new = New { digest: "e", replaces, ..New::put(&mut task).await };
        assert_eq!(put(&mut task, &new).await, "[written 0 0]", "{rows}");
        assert_eq!(ledger(&mut task, "a").await, "NOW 1 0 0 1 0 0 15 - - - - - +", "{rows}");
        assert_keys!(task, "schedules:ticks a=15m1; meta.ticksMissed=1");
    }
}

#[tokio::test]
async fn a_row_without_a_readable_ledger_begins_again() {
    let mut task = Task::new().await;
    row(&mut task, "a", 15).await;
    task.write("schedules:ledger a=15 many; schedules:paused a={}; schedules:pending a=1").await;
    let new = New::put(&mut task).await;
    assert_eq!(put(&mut task, &new).await, "[written 0 0]");
    assert_eq!(ledger(&mut task, "a").await, "NOW NOW 0 0 0 0 0 - - - - - - -");
    assert_keys!(task, "schedules:paused a={}; no schedules:pending");
}

#[tokio::test]
async fn newer_zone_data_moves_the_next_tick_and_older_is_kept_out() {
    let mut task = Task::new().await;
    row(&mut task, "a", 9_000_000_000_000).await;
    task.write("schedules:rule a=d 2026b put 0 ada {}").await;
    let new = New::put(&mut task).await;
    assert_eq!(put_nothing(&mut task, &New { zone: "2026a", ..new.clone() }).await, "[kept]");
    assert_eq!(put_nothing(&mut task, &New { zone: "2026b", ..new.clone() }).await, "[same 0]");
    assert_eq!(put(&mut task, &New { zone: "2026c", ..new }).await, "[written 0 0]");
    assert_keys!(task, "schedules:rule a=d 2026c put 0 ada {}; schedules a=NOW");
}

#[tokio::test]
async fn a_basis_that_does_not_fit_is_computed_again() {
    let mut task = Task::new().await;
    let new = New { digest: "e", ..New::put(&mut task).await };
    for basis in [new.basis - 90_000, new.basis + 90_000] {
        let next = Some(basis + 60_000);
        assert_eq!(put_nothing(&mut task, &New { basis, next, ..new.clone() }).await, "[again]");
    }
    assert_eq!(put_nothing(&mut task, &New { next: Some(new.basis), ..new.clone() }).await, "[again]");
    row(&mut task, "a", 9_000_000_000_000).await;
    let last = new.basis + 1_000;
    task.write(&format!("schedules:ledger a=9000000000000 1 1 0 0 0 0 {last} - - - - - -")).await;
    assert_eq!(put_nothing(&mut task, &new).await, "[again]", "a tick after the basis was counted");
    // The server's clock went back by an hour: the last tick counts, not the time.
    let last = new.basis + 3_600_000;
    task.write(&format!("schedules:ledger a=9000000000000 1 1 0 0 0 0 {last} - - - - - -")).await;
    assert_eq!(put(&mut task, &New { basis: last, next: Some(last + 1), ..new }).await, "[written 0 0]");
}

#[tokio::test]
async fn a_removed_schedule_that_returns_keeps_counts_and_pause() {
    for (days, counts, pause) in [
        (1.0, "NOW 1 2 3 4 5 6 - a@50 51 1 - - -", "schedules:paused a={}"),
        (31.0, "NOW NOW 0 0 0 0 0 - - - - - - -", "no schedules:paused, schedules:ticks"),
    ] {
        let mut task = Task::new().await;
        let now = task.now_ms().await;
        task.zadd("schedules:gone", now - days * 86_400_000.0, "a").await;
        task.write("schedules:ledger a=- 1 2 3 4 5 6 50 a@50 51 1 - - -; schedules:paused a={}").await;
        task.write("schedules:ticks a=50f1").await;
        let new = New::put(&mut task).await;
        assert_eq!(put(&mut task, &new).await, "[written 1 0]");
        assert_eq!(ledger(&mut task, "a").await, counts);
        assert_keys!(task, format!("no schedules:gone; {pause}"));
    }
}

#[tokio::test]
async fn a_returning_schedule_keeps_its_pause_without_its_ledger() {
    for (days, pause) in [(1.0, "schedules:paused a={}"), (31.0, "no schedules:paused")] {
        let mut task = Task::new().await;
        let now = task.now_ms().await;
        task.zadd("schedules:gone", now - days * 86_400_000.0, "a").await;
        task.write("schedules:ledger a=many; schedules:paused a={}; schedules:ticks a=50f1").await;
        let new = New::put(&mut task).await;
        assert_eq!(put(&mut task, &new).await, "[written 1 0]");
        assert_eq!(ledger(&mut task, "a").await, "NOW NOW 0 0 0 0 0 - - - - - - -");
        assert_keys!(task, format!("no schedules:ticks; {pause}"));
    }
}

#[tokio::test]
async fn data_of_a_newer_wire_version_is_refused() {
    let mut task = Task::with("meta wire=2").await;
    let new = New::put(&mut task).await;
    assert_eq!(task.refused("schedule_put", &new.args("a")).await, "NEWERWIRE");
}

#[tokio::test]
async fn the_first_put_sets_the_number_of_partitions() {
    let mut task = Task::new().await;
    let new = New { parts: "3", ..New::put(&mut task).await };
    assert_eq!(put(&mut task, &new).await, "[written 1 0]");
    assert_keys!(task, "meta.wire=1; meta.partitions=3");
    for parts in ["1", "2"] {
        assert_eq!(put_nothing(&mut task, &New { digest: "e", parts, ..new.clone() }).await, "[partitions 3]");
    }
    assert_eq!(put(&mut task, &New { digest: "e", ..new.clone() }).await, "[written 0 0]");
    let mut task = Task::with("meta wire=1").await;
    assert_eq!(put_nothing(&mut task, &new).await, "[partitions 1]");
}

#[tokio::test]
async fn keepers_get_a_hint_only_if_a_schedule_was_written() {
    let mut task = Task::new().await;
    let (channel, mut args) = (task.key("cancel"), New::put(&mut task).await.args("a"));
    args[13] = channel.clone();
    let client = redis::Client::open(task.url()).unwrap();
    let mut hints = client.get_async_pubsub().await.unwrap();
    hints.subscribe(&channel).await.unwrap();
    let mut hints = hints.into_on_message();
    for reply in ["[written 1 0]", "[same 0]"] {
        assert_eq!(task.ok("schedule_put", &args).await, reply);
    }
    let () = redis::cmd("PUBLISH").arg(&channel).arg("last").query_async(&mut task.conn).await.unwrap();
    for expected in ["~schedule", "last"] {
        let hint = tokio::time::timeout(PATIENCE, hints.next()).await.unwrap().unwrap();
        assert_eq!(hint.get_payload_bytes(), expected.as_bytes());
    }
}
