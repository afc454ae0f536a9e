use crate::scripts::call::{Task, assert_keys, assert_text};
use crate::scripts::schedules::{ledger, row};

const MINUTE: f64 = 60_000.0;

/// The schedules `old` and `kept` in code. The first was not named for a while.
async fn in_code() -> Task {
    let mut task = Task::new().await;
    for name in ["old", "kept"] {
        row(&mut task, name, 15).await;
        task.write(&format!("schedules:rule {name}=d - code 9 w {{}}")).await;
    }
    let now = task.now_ms().await;
    task.zadd("schedules:named", now - 11.0 * MINUTE, "old").await;
    task.zadd("schedules:named", now - 9.0 * MINUTE, "kept").await;
    task.zadd("schedules:keepers", now - 5_000.0, "w").await;
    task
}

#[tokio::test]
async fn a_worker_learns_which_others_fire() {
    let mut task = Task::new().await;
    let now = task.now_ms().await;
    // The last one was heard from before the clock went back.
    for (worker, ago) in [("live", 5_000.0), ("silent", 20_000.0), ("gone", 2.0 * MINUTE), ("ahead", -MINUTE)] {
        task.zadd("schedules:keepers", now - ago, worker).await;
    }
    assert_eq!(task.ok("schedule_names", "w 0").await, "[named [live w] [] [] 0]");
    assert_keys!(task, "schedules:keepers silent=NOW, live=NOW, w=NOW, ahead=NOW");
}

#[tokio::test]
async fn names_without_a_sound_row_are_missing() {
    let mut task = Task::new().await;
    for name in ["sound", "rule", "ledger", "input"] {
        row(&mut task, name, 15).await;
    }
    task.write("schedules:rule rule=damaged; schedules:ledger ledger=damaged; no schedules:input.input").await;
    let reply = task.ok("schedule_names", "w 1 sound d none d rule d ledger d input d").await;
    assert_eq!(reply, "[named [w] [] [none rule ledger input] 0]");
    assert_keys!(task, "schedules:named input=NOW, ledger=NOW, none=NOW, rule=NOW, sound=NOW");
}

#[tokio::test]
async fn a_worker_whose_code_differs_is_recorded() {
    let mut task = in_code().await;
    row(&mut task, "put", 15).await;
    task.ok("schedule_names", "w 0 old d kept e put e").await;
    assert_keys!(task, "schedules:differ kept=NOW w");
    task.ok("schedule_remove", "kept").await;
    assert_keys!(task, "no schedules:differ");
}

#[tokio::test]
async fn a_schedule_that_no_worker_names_is_removed_and_remembered() {
    let mut task = in_code().await;
    assert_eq!(task.ok("schedule_names", "w 0").await, "[named [w] [] [] 1]");
    assert_eq!(task.ok("schedule_names", "w 1 old d").await, "[named [w] [] [] 1]", "it is named again");
    let mut task = in_code().await;
    task.write("schedules:ledger old=15 1 2 3 4 5 6 5 j 6 1 5 - -; schedules:paused old={}; schedules:ticks old=5f1")
        .await;
    task.write("schedules:pending old=1").await;
    assert_eq!(task.ok("schedule_names", "w 1").await, "[named [w] [old] [] 1]");
    assert_keys!(
        task,
        "schedules kept=15; schedules:rule kept=d - code 9 w {}; schedules:input kept=7; schedules:named kept=NOW; \
         schedules:gone old=NOW; schedules:paused old={}; schedules:ticks old=5f1; no schedules:pending"
    );
    // The pending tick will not fire any more.
    assert_eq!(ledger(&mut task, "old").await, "- 1 2 4 4 5 6 5 j 6 1 - - -");
    assert_keys!(task, "meta.ticksOverlapped=1");
}

#[tokio::test]
async fn rows_that_were_put_are_never_pruned() {
    let mut task = in_code().await;
    task.write("schedules:rule old=d - put 0 ada {}").await;
    assert_eq!(task.ok("schedule_names", "w 1").await, "[named [w] [] [] 1]");
    assert_keys!(task, "schedules:named kept=NOW; schedules kept=15, old=15; no schedules:gone");
}

#[tokio::test]
async fn a_worker_that_was_not_heard_from_prunes_nothing() {
    let mut task = in_code().await;
    let now = task.now_ms().await;
    // The clock has jumped by an hour, so all schedules seem to be unnamed.
    task.zadd("schedules:keepers", now - 60.0 * MINUTE, "w").await;
    assert_eq!(task.ok("schedule_names", "w 1").await, "[named [w] [] [] 0]");
    assert_eq!(task.ok("schedule_names", "w 1").await, "[named [w] [old] [] 1]");
}

#[tokio::test]
async fn fifty_schedules_are_pruned_in_one_call() {
    let mut task = Task::new().await;
    task.ok("schedule_names", "w 0").await;
    for number in 0..60 {
        let name = format!("s{number}");
        row(&mut task, &name, 15).await;
        task.write(&format!("schedules:rule {name}=d - code 9 w {{}}; schedules:named {name}=1")).await;
    }
    assert_eq!(task.ok("schedule_names", "w 1").await.matches('s').count(), 50);
    assert_eq!(task.ok("schedule_names", "w 1").await.matches('s').count(), 10);
}

#[tokio::test]
async fn removed_schedules_are_forgotten_after_thirty_days() {
    let mut task = Task::new().await;
    task.ok("schedule_names", "w 0").await;
    let now = task.now_ms().await;
    for (name, days) in [("old", 31.0), ("new", 29.0)] {
        task.zadd("schedules:gone", now - days * 1_440.0 * MINUTE, name).await;
        task.write(&format!("schedules:ledger {name}=- 1 0 0 0 0 0 - - - - - - -; schedules:paused {name}={{}}")).await;
        task.write(&format!("schedules:ticks {name}=5f1")).await;
    }
    task.ok("schedule_names", "w 1").await;
    assert_keys!(
        task,
        "schedules:gone new=NOW; schedules:ledger new=- 1 0 0 0 0 0 - - - - - - -; schedules:paused new={}; \
         schedules:ticks new=5f1"
    );
}

#[tokio::test]
async fn five_hundred_names_are_reported_in_one_call() {
    let mut task = Task::new().await;
    let names = (0..500).flat_map(|number| [format!("s{number}"), "d".to_owned()]);
    let args: Vec<String> = ["w", "0"].into_iter().map(str::to_owned).chain(names).collect();
    assert_text!(task.ok("schedule_names", &args).await, contains("s499] 0]"));
}
