use crate::scripts::call::{Task, assert_all, assert_keys, assert_text, timeless};
use crate::scripts::schedules::{Firing, fire, ledger, refused, row};

/// A task with the schedule `a`, whose next tick is due at 15 ms.
async fn due() -> Task {
    let mut task = Task::new().await;
    row(&mut task, "a", 15).await;
    task
}

/// The same; the job of its tick at 15 ms waits, and the next tick is due at 25 ms.
async fn fired() -> Task {
    let mut task = due().await;
    assert_eq!(fire(&mut task, &[Firing::of("a", &[15])]).await, "done 1 -");
    task
}

#[tokio::test]
async fn a_due_tick_is_counted_and_becomes_a_job_in_one_step() {
    let mut task = fired().await;
    assert_all!(
        task,
        "dispatchedAt a@15=NOW; events {dispatched=a@15, scheduled=a 15 a@15 NOW, total=2, worker=}; \
         meta events=2, fence=4000000000000000, largest=1024, ticksFired=1; options a@15={}; payload a@15=7; \
         schedules a=25; schedules:input a=7; schedules:ledger a=25 1 1 0 0 0 0 15 a@15 NOW NOW - - -; \
         schedules:rule a=d - put 0 ada {}; schedules:ticks a=15f1; wait a@15; wake marker=0, spare=1"
    );
    assert_eq!(task.totals().await, ["1", ""]);
}

#[tokio::test]
async fn a_late_or_repeated_call_writes_nothing() {
    let mut task = fired().await;
    assert_eq!(refused(&mut task, &Firing::of("a", &[15])).await, "moved");
    assert_eq!(refused(&mut task, &Firing::of("a", &[5, 15])).await, "moved");
}

#[tokio::test]
async fn another_rule_and_an_unknown_name_are_refused() {
    let mut task = due().await;
    assert_eq!(refused(&mut task, &Firing { digest: "e", ..Firing::of("a", &[15]) }).await, "changed");
    assert_eq!(refused(&mut task, &Firing::of("b", &[15])).await, "unknown");
}

#[tokio::test]
async fn a_pause_that_the_caller_does_not_know_is_refused() {
    let mut task = due().await;
    let paused = Firing { ticks: Vec::new(), paused: 1, ..Firing::of("a", &[15]) };
    assert_eq!(refused(&mut task, &paused).await, "changed");
    task.write("schedules:paused a={}").await;
    assert_eq!(refused(&mut task, &Firing::of("a", &[15])).await, "changed");
    assert_eq!(fire(&mut task, &[paused]).await, "done 0 -");
    task.write("schedules:ledger a=25 1 1 0 0 1 0 15 j 5 0 15 5 -; schedules:pending a=0").await;
    assert_eq!(refused(&mut task, &Firing::pending("a", 15)).await, "changed");
}

#[tokio::test]
async fn a_pending_tick_waits_if_the_clock_went_back() {
    let mut task = Task::new().await;
    let later = task.now_ms().await as u64 + 60_000;
    row(&mut task, "a", 9_000_000_000_000).await;
    task.write(&format!("schedules:ledger a=9000000000000 1 1 0 0 0 0 15 j 5 0 {later} 5 -; schedules:pending a=1"))
        .await;
    assert_eq!(refused(&mut task, &Firing::pending("a", later)).await, "early");
    assert_text!(task.ok("schedule_look", "50").await, ends_with(" 9000000000000 0 [] [] []]"));
}

#[tokio::test]
async fn nothing_fires_before_its_time_by_the_servers_clock() {
    let mut task = due().await;
    let later = task.now_ms().await as u64 + 60_000;
    let ahead = Firing { through: later, next: Some(later + 10), ..Firing::of("a", &[15]) };
    assert_eq!(refused(&mut task, &ahead).await, "early", "the last tick of the call is not due");
    assert_eq!(refused(&mut task, &Firing { next: Some(15), ..Firing::of("a", &[15]) }).await, "early");
    row(&mut task, "a", later).await;
    assert_eq!(refused(&mut task, &Firing::of("a", &[later])).await, "early");
    assert_eq!(refused(&mut task, &Firing { through: 15, ..Firing::of("a", &[later]) }).await, "early");
}

#[tokio::test]
async fn older_zone_data_fires_only_what_is_late() {
    let mut task = due().await;
    let just_now = task.now_ms().await as u64;
    row(&mut task, "a", just_now).await;
    task.write("schedules:rule a=d 2026b put 0 ada {}").await;
    let older = Firing { zone: "2026a", ..Firing::of("a", &[just_now]) };
    assert_eq!(refused(&mut task, &older).await, "older");
    row(&mut task, "a", 15).await;
    task.write("schedules:rule a=d 2026b put 0 ada {}").await;
    assert_eq!(fire(&mut task, &[Firing { zone: "2026a", ..Firing::of("a", &[15]) }]).await, "done 1 -");
    assert_keys!(task, "schedules:rule a=d 2026a put 0 ada {}");
    assert_eq!(fire(&mut task, &[Firing { zone: "2026c", ..Firing::of("a", &[25]) }]).await, "done 0 -");
    assert_keys!(task, "schedules:rule a=d 2026c put 0 ada {}");
}

#[tokio::test]
async fn a_damaged_row_is_reported_and_stops_no_other() {
    for (damage, answer) in [
        ("schedules:rule a=d - other 0 ada {}", "unreadable"),
        ("schedules:ledger a=15 1 0 0 0 0 0", "unreadable"),
        ("schedules:ledger a=15 1 -1 0 0 0 0 - - - - - - -", "unreadable"),
        ("schedules:ledger a=15 - 0 0 0 0 0 - - - - - - -", "unreadable"),
        ("no schedules:input", "unreadable"),
        ("no schedules:rule", "unknown"),
    ] {
        let mut task = due().await;
        task.write(damage).await;
        row(&mut task, "b", 15).await;
        let firings = ["a", "b"].map(|name| Firing::of(name, &[15]));
        assert_eq!(fire(&mut task, &firings).await, format!("{answer} done 1 -"), "{damage}");
        assert_keys!(task, "wait b@15");
    }
}

#[tokio::test]
async fn skip_counts_ticks_as_overlapped_until_the_job_ends() {
    let mut task = fired().await;
    assert_eq!(fire(&mut task, &[Firing::of("a", &[25])]).await, "done 0 -");
    assert_eq!(ledger(&mut task, "a").await, "35 1 1 1 0 0 0 25 a@15 NOW NOW - - -");
    assert_text!(task.held("events").await, contains(r#""overlapped": "a 25""#));
}

#[tokio::test]
async fn a_tick_fires_once_the_last_job_ended_or_is_gone() {
    for (rows, answer) in [
        ("waits j", "done 0 -"),
        ("runs w: j=1", "done 0 -"),
        ("payload j=1; delayed j=9e15", "done 0 -"),
        ("payload j=1; outcome j=completed 0 0 5; finalizing j=5", "done 0 -"),
        ("payload j=1; completed j=1", "done 1 -"),
        ("payload j=1; failed j=1", "done 1 -"),
        ("payload j=1; cancelled j=1", "done 1 -"),
        ("waits other", "done 1 -"),
    ] {
        let mut task = due().await;
        task.write(rows).await;
        task.write("schedules:ledger a=15 1 1 0 0 0 0 5 j 5 0 - - -").await;
        assert_eq!(fire(&mut task, &[Firing::of("a", &[15])]).await, answer, "{rows}");
    }
}

#[tokio::test]
async fn queue_keeps_the_newest_tick_until_the_job_ends() {
    let mut task = fired().await;
    assert_eq!(fire(&mut task, &[Firing::with("a", "queue", &[25])]).await, "done 0 -");
    assert_eq!(ledger(&mut task, "a").await, "35 1 1 0 0 0 0 25 a@15 NOW NOW 25 15 -");
    assert_eq!(fire(&mut task, &[Firing::with("a", "queue", &[35, 45])]).await, "done 0 -");
    assert_eq!(ledger(&mut task, "a").await, "55 1 1 2 0 0 0 45 a@15 NOW NOW 45 35 -");
    assert_keys!(task, "schedules:pending a=NOW; schedules:ticks a=35o1 25o1 15f1; wait a@15");
    assert_eq!(refused(&mut task, &Firing::pending("a", 45)).await, "early");
    task.write("completed a@15=1").await;
    assert_eq!(refused(&mut task, &Firing::pending("a", 35)).await, "moved");
    assert_eq!(fire(&mut task, &[Firing::pending("a", 45)]).await, "done 1 -");
    assert_eq!(ledger(&mut task, "a").await, "55 1 2 2 0 0 0 45 a@45 NOW NOW - - -");
    assert_keys!(task, "no schedules:pending; schedules:ticks a=45f1 35o1 25o1 15f1; wait a@15 a@45; schedules a=55");
    assert_eq!(refused(&mut task, &Firing::pending("a", 45)).await, "moved");
}

#[tokio::test]
async fn a_tick_that_fires_displaces_the_pending_one() {
    let mut task = fired().await;
    fire(&mut task, &[Firing::with("a", "queue", &[25])]).await;
    task.write("completed a@15=1").await;
    assert_eq!(fire(&mut task, &[Firing::with("a", "queue", &[35])]).await, "done 1 -");
    assert_eq!(ledger(&mut task, "a").await, "45 1 2 1 0 0 0 35 a@35 NOW NOW - - -");
    assert_keys!(task, "no schedules:pending");
}

#[tokio::test]
async fn a_pending_tick_and_a_due_one_fire_in_one_call() {
    let mut task = fired().await;
    fire(&mut task, &[Firing::with("a", "queue", &[25])]).await;
    task.write("completed a@15=1").await;
    let both = [Firing::pending("a", 25), Firing::with("a", "queue", &[35])];
    assert_eq!(fire(&mut task, &both).await, "done 1 - done 0 -");
    assert_eq!(ledger(&mut task, "a").await, "45 1 2 0 0 0 0 35 a@25 NOW NOW 35 25 -");
}

#[tokio::test]
async fn replace_names_the_job_that_the_caller_must_cancel() {
    let mut task = fired().await;
    assert_eq!(fire(&mut task, &[Firing::with("a", "replace", &[25])]).await, "done 0 a@15");
    assert_eq!(ledger(&mut task, "a").await, "35 1 1 0 0 0 0 25 a@15 NOW NOW 25 15 -");
    task.write("cancelled a@15=1").await;
    assert_eq!(fire(&mut task, &[Firing::pending("a", 25)]).await, "done 1 -");
}

#[tokio::test]
async fn several_ticks_fire_as_if_the_first_ran() {
    for (overlap, answer, counts, waits) in [
        ("skip", "done 1 -", "45 1 1 2 0 0 0 35 a@15 NOW NOW - - -", "a@15"),
        ("queue", "done 1 -", "45 1 1 1 0 0 0 35 a@15 NOW NOW 35 25 -", "a@15"),
        ("replace", "done 1 a@15", "45 1 1 1 0 0 0 35 a@15 NOW NOW 35 25 -", "a@15"),
        ("allow", "done 3 -", "45 1 3 0 0 0 0 35 a@35 NOW NOW - - -", "a@15 a@25 a@35"),
    ] {
        let mut task = due().await;
        assert_eq!(fire(&mut task, &[Firing::with("a", overlap, &[15, 25, 35])]).await, answer, "{overlap}");
        assert_eq!(ledger(&mut task, "a").await, counts, "{overlap}");
        assert_keys!(task, format!("wait {waits}"), "{overlap}");
    }
}

#[tokio::test]
async fn an_id_that_exists_counts_as_fired_and_makes_no_job() {
    for place in ["payload a@15=old", "payload a@15=old; completed a@15=1"] {
        let mut task = due().await;
        task.write(place).await;
        assert_eq!(fire(&mut task, &[Firing::of("a", &[15])]).await, "done 0 -");
        assert_keys!(task, "payload a@15=old; no wait, events; meta.ticksFired=1");
        assert_eq!(ledger(&mut task, "a").await, "25 1 1 0 0 0 0 15 a@15 NOW NOW - - -");
    }
}

#[tokio::test]
async fn missed_and_paused_ticks_are_counted_as_runs() {
    let mut task = due().await;
    let missed = Firing { due: 15, missed: 3, at_least: true, ..Firing::of("a", &[55]) };
    assert_eq!(fire(&mut task, &[missed]).await, "done 1 -");
    assert_eq!(ledger(&mut task, "a").await, "65 1 1 0 3 0 0 55 a@55 NOW NOW - - +");
    assert_keys!(task, "schedules:ticks a=55f1 45m3; meta.ticksMissed=3; meta.events=3");
    assert_text!(task.held("events").await, contains(r#""missed": "a 45 3""#));
    task.write("schedules:paused a={}").await;
    for tick in [65, 75] {
        let paused = Firing { ticks: Vec::new(), paused: 1, ..Firing::of("a", &[tick]) };
        assert_eq!(fire(&mut task, &[paused]).await, "done 0 -");
    }
    assert_eq!(ledger(&mut task, "a").await, "85 1 1 0 3 2 0 75 a@55 NOW NOW - - +");
    assert_keys!(task, "schedules:ticks a=75p2 55f1 45m3; meta.ticksPaused=2; meta.events=3");
    task.write("no schedules:paused").await;
    let last = Firing { ticks: Vec::new(), missed: 1, next: None, ..Firing::of("a", &[85]) };
    assert_eq!(fire(&mut task, &[last]).await, "done 0 -");
    assert_keys!(task, "no schedules; schedules:ticks a=85m1 75p2 55f1 45m3");
}

#[tokio::test]
async fn the_last_twenty_ticks_are_kept() {
    let mut task = due().await;
    let ticks: Vec<u64> = (0..25).map(|number| 15 + 10 * number).collect();
    fire(&mut task, &[Firing::with("a", "allow", &ticks)]).await;
    let kept: Vec<String> = ticks.iter().rev().take(20).map(|tick| format!("{tick}f1")).collect();
    assert_keys!(task, format!("schedules:ticks a={}", kept.join(" ")));
    task.write("schedules:ticks a=damaged 5x 1f1").await;
    fire(&mut task, &[Firing::with("a", "allow", &[265])]).await;
    assert_keys!(task, "schedules:ticks a=265f1 1f1");
}

#[tokio::test]
async fn jitter_does_not_count_as_late() {
    let mut task = due().await;
    let at = task.now_ms().await - 1_000.0;
    task.zadd("schedules", at, "a").await;
    fire(&mut task, &[Firing::of("a", &[15])]).await;
    let words: Vec<String> = task.field("schedules:ledger", "a").await.split(' ').map(str::to_owned).collect();
    let late: u64 = words[10].parse().unwrap();
    assert!((1_000..60_000).contains(&late), "{late}");
    // A call before the jitter is over is accepted, since the tick itself is due.
    let at = task.now_ms().await + 60_000.0;
    task.zadd("schedules", at, "a").await;
    assert_eq!(fire(&mut task, &[Firing::with("a", "allow", &[25])]).await, "done 1 -");
    assert_eq!(ledger(&mut task, "a").await, "35 1 2 0 0 0 0 25 a@25 NOW 0 - - -");
}

#[tokio::test]
async fn jobs_get_the_priority_and_the_pause_of_the_task() {
    let mut task = Task::with("meta priority=high, paused=5, eventMode=off").await;
    row(&mut task, "a", 15).await;
    fire(&mut task, &[Firing::of("a", &[15])]).await;
    assert_keys!(task, "wait:high a@15; priority a@15=high; no wait, wake, events");
}

#[tokio::test]
async fn the_reply_says_when_the_next_tick_is_and_if_others_are_due() {
    let mut task = due().await;
    let later = task.now_ms().await as u64 + 60_000;
    let next = Firing { next: Some(later), ..Firing::of("a", &[15]) };
    let reply = task.ok("schedule_fire", &next.args()).await;
    assert_eq!(timeless(&reply), "[fired NOW NOW 0 done 1 -]");
    assert_text!(reply, contains(&format!(" {later} 0 done")));
    row(&mut task, "b", 15).await;
    let reply = task.ok("schedule_fire", &Firing::of("a", &[15]).args()).await;
    assert_eq!(timeless(&reply), "[fired NOW NOW 1 moved]", "b is due");
}

#[tokio::test]
async fn more_ticks_than_one_call_may_fire_are_refused() {
    let mut task = due().await;
    let ticks: Vec<u64> = (0..201).map(|number| 15 + 10 * number).collect();
    assert_eq!(task.refused("schedule_fire", &Firing::with("a", "allow", &ticks).args()).await, "ERR");
    assert_eq!(fire(&mut task, &[Firing::with("a", "allow", &ticks[..200])]).await, "done 200 -");
}

#[tokio::test]
async fn five_hundred_due_schedules_fire_in_twenty_calls() {
    let mut task = Task::new().await;
    for number in 0..500 {
        row(&mut task, &format!("s{number}"), 15 + number).await;
    }
    for call in 0..20 {
        let look = task.ok("schedule_look", "25").await;
        let names = (25 * call..25 * (call + 1)).map(|number| (format!("s{number}"), 15 + number));
        let firings: Vec<Firing> = names
            .map(|(name, tick)| {
                assert!(look.contains(&format!("[{name} d ")), "{name}: {look}");
                Firing { next: None, ..Firing::of(&name, &[tick]) }
            })
            .collect();
        assert_eq!(fire(&mut task, &firings).await.matches("done 1 -").count(), 25);
    }
    assert_eq!(task.list("wait").await.len(), 500);
    assert_keys!(task, "no schedules; meta.ticksFired=500");
}
