//! Limits of a whole task (`lua/lib/limits.lua`): what a claim takes, and who wakes a worker for what is left.

use crate::scripts::call::{Args, Task, assert_keys, timeless};
use crate::support::{plain_args, settle_args};

/// Both ways to settle: as a worker calls first, and with the whole script.
const BOTH: [&str; 2] = ["settle_plain", "settle"];

/// `w` runs a, and three jobs wait. At most two may run.
const TWO: &str = "meta ask=1000, interval=1000, largest=1024, keepCompleted=1, limits=2 0 0; replies w=1\n\n\n5\n1\na; \
     runs w: a=5; waits b c d";

/// Settles, and returns the claimed ids.
async fn settle(task: &mut Task, script: &str, short: &str) -> String {
    let args = settle_args(&short.words());
    if script == "settle_plain" {
        let said = task.ok(script, &plain_args(&args).unwrap()).await;
        let claimed = said.strip_prefix("[settled ").unwrap_or_else(|| panic!("{said}"));
        let (_, ids) = claimed.split_once(' ').unwrap();
        return ids.split(" [").next().unwrap().to_owned();
    }
    let said = task.ok(script, short).await;
    let (_, ids) = said.split_once(" 400000").unwrap_or_else(|| panic!("{said}"));
    ids.split_once(' ').unwrap().1.split(" [").next().unwrap().to_owned()
}

#[tokio::test]
async fn no_more_jobs_are_claimed_than_may_run() {
    for script in BOTH {
        let mut task = Task::with(TWO).await;
        assert_eq!(settle(&mut task, script, "2 w 1000 5 0 0").await, "b", "{script}");
        // Two jobs wait, but no worker may claim them.
        assert_keys!(task, "wait c d; no wake; meta.full=running");
        assert_eq!(settle(&mut task, script, "3 w 1000 5 0 0").await, "''", "{script}");
        assert_eq!(settle(&mut task, script, "4 w 1000 5 '1 42' 0 a 5").await, "c", "{script}");
        assert_keys!(task, "wait d; no wake; meta.full=running");
        // The caller takes none, so an idle worker is woken for the free slot.
        assert_eq!(settle(&mut task, script, "5 w 1000 0 '1 42' 0 b 4000000000000001").await, "''", "{script}");
        assert_keys!(task, "wait d; wake marker=0, spare=1");
        assert_eq!(task.seen("meta.full=").await, "no meta.full");
    }
}

#[tokio::test]
async fn both_ways_to_settle_leave_the_same() {
    for rows in ["meta full=running", "meta limits=1 0 0, full=running", "meta limits=9 0 0", "no wait", "meta limits="]
    {
        for call in ["2 w 1000 5 0 0", "2 w 1000 1 '1 42' 0 a 5", "2 w 1000 0 '1 42' 0 a 5"] {
            let (mut one, mut other) = (Task::with(TWO).await, Task::with(TWO).await);
            one.write(rows).await;
            other.write(rows).await;
            let ids = settle(&mut one, "settle_plain", call).await;
            assert_eq!(settle(&mut other, "settle", call).await, ids, "{rows} {call}");
            let left = [one.exact().await, other.exact().await].map(|keys| timeless(&format!("{keys:#?}")));
            assert_eq!(left[0], left[1].replace(&other.prefix, &one.prefix), "{rows} {call}");
        }
    }
}

#[tokio::test]
async fn no_job_is_claimed_ahead_of_its_slot() {
    let mut task = Task::with(TWO).await;
    task.write("meta limits=20 0 0").await;
    // Three jobs are wanted, of which one has a slot.
    let plain = plain_args(&settle_args(&["2", "w", "1000", "3 2 1", "0", "0"])).unwrap();
    assert_eq!(task.unchanged("settle_plain", &plain).await, "[full]");
    assert_eq!(settle(&mut task, "settle", "2 w 1000 '3 2 1' 0 0").await, "b");
    assert_keys!(task, "wait c d; no claimed, early; wake marker=0, spare=1");
}

#[tokio::test]
async fn a_due_job_comes_to_its_list_while_the_limit_is_reached() {
    let mut task = Task::with(TWO).await;
    task.write("meta limits=1 0 0; delayed due=1; payload due={}").await;
    let plain = plain_args(&settle_args(&["2", "w", "1000", "5", "0", "0"])).unwrap();
    assert_eq!(task.unchanged("settle_plain", &plain).await, "[full]");
    // The caller need not look again: it is woken for the slot.
    let said = task.ok("settle", "2 w 1000 5 0 0").await;
    assert_eq!(said, "[settled '' '' 4000000000000001 '' [] [] '' 0]");
    assert_keys!(task, "wait b c d due; no delayed, wake; meta.full=running");
}

#[tokio::test]
async fn hooks_take_no_slot() {
    let mut task = Task::with(TWO).await;
    // Two hooks run, one waits, and one ends in this call.
    let now = task.now_ms().await;
    task.write("meta hook=1; runs w: h=6, i=7; payload j={}").await;
    task.write("outcome h=completed 0 0 1, i=completed 0 0 1, j=completed 0 0 1").await;
    task.zadd("finalizing", now + 60_000.0, "j").await;
    assert_eq!(settle(&mut task, "settle", "2 w 1000 '5 5 5 hooks' 0 0 h 6 hooked 0 - -").await, "b");
    assert_keys!(task, "wait c d; meta.full=running");
    // The hook of a completed job runs at once, in its worker, and its slot is free.
    assert_eq!(settle(&mut task, "settle", "3 w 1000 '5 5 5 hooks' '1 42' 0 a 5").await, "a c");
    assert_keys!(task, "wait d; meta.full=running");
}

#[tokio::test]
async fn a_new_job_wakes_no_worker_while_none_may_claim_it() {
    let mut task = Task::with(TWO).await;
    let now = task.now_ms().await;
    for (full, wakes) in [
        ("running".to_owned(), false),
        (format!("{} 90000", now + 60_000.0), false),
        (format!("{} 90000", now - 1.0), true),
        ("nonsense".to_owned(), true),
    ] {
        task.hset("meta", &[("full", &full)]).await;
        task.del("wake").await;
        task.ok("dispatch", &format!("1 1 1 new-{wakes}-{} 7", full.len())).await;
        let wake = if wakes { "wake marker=0, spare=1" } else { "no wake" };
        assert_eq!(task.seen(wake).await, wake, "{full}");
    }
}

#[tokio::test]
async fn every_script_that_lets_jobs_go_frees_their_slots() {
    // The sweep fails the last job that a dead worker held.
    let mut task = Task::with(TWO).await;
    task.write("meta maxCount=0, keepFailed=1, full=running; snapshot").await;
    let epoch = task.epoch().await;
    task.ok("sweep", &format!("other 1000 {epoch} 1000 0 10 auto -")).await;
    assert_keys!(task, "failed a=NOW; no locks; wake marker=0, spare=1");
    assert_eq!(task.seen("meta.full=").await, "no meta.full");
    // A repair removes the lock of a job that has ended.
    let mut task = Task::with(TWO).await;
    task.write("meta full=running; completed a=5").await;
    task.ok("mend", "me 9999999999999 a 0 two_places").await;
    assert_keys!(task, "no locks; wake marker=0, spare=1");
    assert_eq!(task.seen("meta.full=").await, "no meta.full");
}

#[tokio::test]
async fn other_limits_end_what_the_old_ones_said() {
    let mut task = Task::with(TWO).await;
    task.write("meta full=running").await;
    let declare = |limits: &str| ["1", "", "w", "limits", limits].map(str::to_owned);
    task.ok("declare", &declare("2 0 0")).await;
    assert_keys!(task, "meta.full=running");
    task.ok("declare", &declare("3 0 0")).await;
    assert_keys!(task, "meta.limits=3 0 0");
    assert_eq!(task.seen("meta.full=").await, "no meta.full");
    // The rest that a handler asked for is no limit of the options.
    for (full, limits, stays) in [("9000000000000 1000", "4 0 0", false), ("9000000000000 1000 handler", "5 0 0", true)]
    {
        task.hset("meta", &[("full", full)]).await;
        task.ok("declare", &declare(limits)).await;
        assert_eq!(task.seen("meta.full=").await.starts_with("meta.full=9000"), stays, "{full}");
    }
}

/// A day: no start of a test leaves the window.
const DAY: u64 = 86_400_000_000;

#[tokio::test]
async fn a_rate_bounds_the_starts_of_every_window() {
    let mut task = Task::with(TWO).await;
    task.write(&format!("meta limits=0 3 {DAY}")).await;
    let plain = plain_args(&settle_args(&["2", "w", "1000", "2", "0", "0"])).unwrap();
    assert_eq!(task.unchanged("settle_plain", &plain).await, "[full]");
    assert_eq!(settle(&mut task, "settle", "2 w 1000 2 0 0").await, "b c");
    assert_keys!(task, "wait d; wake marker=0, spare=1");
    assert_eq!(task.seen("meta.full=").await, "no meta.full");
    task.write("no wake; waits e f").await;
    // The caller is told when the oldest start leaves the window: up to a step after a whole window.
    let said = task.ok("settle", "3 w 1000 2 0 0").await;
    let (_, rest) = said.split_once("d [{}] [] ").unwrap();
    let next: u64 = rest.split(' ').next().unwrap().parse().unwrap();
    assert!((DAY / 1000 - 1_000..=DAY / 1000 * 33 / 32).contains(&next), "{said}");
    assert_keys!(task, "wait e f; no wake");
    let starts = task.field("meta", "starts").await;
    let steps: Vec<&str> = starts.trim_end_matches('|').split(' ').collect();
    assert_eq!(steps[..], ["3", steps[1], "3", steps[1]], "one step: {starts}");
    // A run that ended has started all the same.
    assert_eq!(settle(&mut task, "settle", "4 w 1000 2 '1 42' 0 a 5").await, "''");
    // Starts that left the window do not count, those of its first moment do.
    let now = task.now_ms().await as u64 * 1000;
    let first = now - DAY + 60_000_000;
    task.hset("meta", &[("starts", &format!("2 {first} 1 {}|1 60000000 ", now - DAY))]).await;
    task.lose("meta.full").await;
    assert_eq!(settle(&mut task, "settle", "5 w 1000 9 0 0").await, "e f");
    let starts = task.field("meta", "starts").await;
    assert!(starts.starts_with("3 ") && starts.contains(&format!(" 2 {first}|1 ")), "{starts}");
}

#[tokio::test]
async fn the_steps_of_a_rate_leave_one_by_one() {
    let mut task = Task::with("waits a b c d").await;
    task.write(&format!("meta largest=1024, limits=0 7 {DAY}")).await;
    let now = task.now_ms().await as u64 * 1000;
    let [second, third] = [now - DAY + 60_000_000, now - DAY + 120_000_000];
    let steps = format!("9 {third} 1 {}|2 1 2 60000000 4 60000000 ", now - DAY - 1);
    task.hset("meta", &[("starts", &steps)]).await;
    assert_eq!(settle(&mut task, "settle", "1 w 1000 9 0 0").await, "a b");
    let starts = task.field("meta", "starts").await;
    assert!(starts.starts_with("7 ") && starts.contains(&format!(" 2 {second}|4 60000000 1 ")), "{starts}");
    // Once the second is over, four more may start.
    let full = task.field("meta", "full").await;
    assert_eq!(full.split(' ').next(), Some(&*(second + DAY).div_ceil(1000).to_string()), "{full}");
    // A text of another kind has no starts.
    task.hset("meta", &[("starts", "one two")]).await;
    task.lose("meta.full").await;
    assert_eq!(settle(&mut task, "settle", "2 w 1000 9 0 0").await, "c d");
    assert!(task.field("meta", "starts").await.starts_with("2 "));
}

#[tokio::test]
async fn a_worker_without_a_free_slot_lets_another_learn_when_the_rest_is_over() {
    let mut task = Task::with(TWO).await;
    task.write(&format!("meta limits=0 1 {DAY}")).await;
    assert_eq!(settle(&mut task, "settle", "2 w 1000 1 0 0").await, "b");
    assert_keys!(task, "wake marker=0, spare=1");
    // The other one learns it, and wakes no further one.
    task.write("no wake").await;
    let said = task.ok("settle", "1 other 1000 5 0 0").await;
    let (_, rest) = said.split_once("'' [] [] ").unwrap();
    assert!(rest.split(' ').next().unwrap().parse::<u64>().unwrap() > DAY / 1000 - 1_000, "{said}");
    assert_keys!(task, "wait c d; no wake");
}

#[tokio::test]
async fn a_rest_is_kept_whatever_happens_to_its_job() {
    for rows in ["cancelling a=why", "no locks.a"] {
        let mut task = Task::with(TWO).await;
        task.write(&format!("meta limits=; {rows}")).await;
        assert_eq!(settle(&mut task, "settle", "2 w 1000 5 0 0 a 5 requeue 0 60000 -").await, "''", "{rows}");
        assert!(task.field("meta", "full").await.ends_with(" 60000 handler"), "{rows}");
    }
}

#[tokio::test]
async fn a_clock_that_goes_back_delays_starts_for_one_window_at_most() {
    let mut task = Task::with(TWO).await;
    let hour = 3_600_000;
    task.write("meta limits=0 2 1000000").await;
    let now = task.now_ms().await as u64;
    // One step that has passed, and two later ones of which one is not the newest.
    let steps = format!("3 {} 1 {now}000|1 {hour}000 1 {hour}000 ", (now + 2 * hour) * 1000);
    task.hset("meta", &[("starts", &steps)]).await;
    task.hset("meta", &[("full", &format!("{} 1000", now + hour))]).await;
    assert_eq!(settle(&mut task, "settle", "2 w 1000 2 0 0").await, "''");
    let after = task.now_ms().await as u64;
    let starts = task.field("meta", "starts").await;
    let numbers = starts.split([' ', '|']).filter(|word| !word.is_empty()).map(|word| word.parse::<u64>().unwrap());
    let [used, over, _, first, older @ ..] = &numbers.collect::<Vec<_>>()[..] else { panic!("{starts}") };
    let gaps: u64 = older.chunks(2).map(|pair| pair[1]).sum();
    // No step ends after this one: each gap is at least 0, and they end at the newest.
    assert!(*used == 3 && over / 1000 <= after + 32 && first + gaps == *over, "{starts} {after}");
    let full = task.field("meta", "full").await;
    let until: u64 = full.split(' ').next().unwrap().parse().unwrap();
    assert!((now + 1000..=after + 1000).contains(&until), "{full} {now}");
}

#[tokio::test]
async fn a_handler_that_is_told_to_slow_down_lets_the_whole_task_rest() {
    let mut task = Task::with(TWO).await;
    task.write("meta limits=; runs w: z=6; meta brokenOffSinceCompleted=3").await;
    let before = task.now_ms().await;
    let said = task.ok("settle", "2 w 1000 5 0 0 a 5 requeue 0 60000 - z 6 requeue 0 30000 -").await;
    assert!(said.starts_with("[settled '' '' 4000000000000001 '' [] [] 60000 "), "{said}");
    // Both return to the front, no worker is woken, and neither counts as broken off.
    assert_keys!(task, "wait a z b c d; no wake, locks, attempt, snoozes; meta.brokenOffSinceCompleted=3");
    let full = task.field("meta", "full").await;
    let until: f64 = full.strip_suffix(" 60000 handler").unwrap().parse().unwrap();
    assert!((before + 60_000.0..=task.now_ms().await + 60_000.0).contains(&until), "{full}");
    // A shorter rest does not end it, nor does a call in between.
    task.write("runs w: y=7").await;
    assert_eq!(settle(&mut task, "settle", "3 w 1000 5 0 0 y 7 requeue 0 1000 -").await, "''");
    assert_eq!(task.field("meta", "full").await, full);
    let plain = plain_args(&settle_args(&["4", "w", "1000", "2", "0", "0"])).unwrap();
    assert_eq!(task.unchanged("settle_plain", &plain).await, "[full]");
    // When it is over, the next claim ends it.
    task.hset("meta", &[("full", &format!("{} 60000", before - 1.0))]).await;
    assert_eq!(settle(&mut task, "settle", "4 w 1000 2 0 0").await, "y a");
    assert_keys!(task, "wake marker=0, spare=1");
    assert_eq!(task.seen("meta.full=").await, "no meta.full");
}

#[tokio::test]
async fn a_job_counts_as_its_cost_against_the_rate_of_the_task() {
    let mut task = Task::with("waits a b c d; meta largest=1024").await;
    task.write(&format!("meta limits=0 5 {DAY}")).await;
    let costs = [("b", r#"{"delay_ms":5,"cost":3}"#), ("c", r#"{"cost":2}"#), ("d", r#"{"cost":2}"#)];
    task.hset("options", &costs).await;
    assert!(task.ok("settle", "1 w 1000 9 0 0").await.contains(" a b ["), "c would be the sixth start");
    assert_keys!(task, "wait c d");
    let starts = task.field("meta", "starts").await;
    assert!(starts.starts_with("4 "), "{starts}");
    // One start is left, and no worker is woken for it.
    assert!(!task.field("meta", "full").await.is_empty());
    task.write("no wake").await;
    assert!(task.ok("settle", "2 w 1000 9 0 0").await.contains(" '' [] "));
    assert_keys!(task, "wait c d; no wake");
    // The rest lasts until enough starts have left the window: here those of both steps.
    let now = task.now_ms().await as u64 * 1000;
    let steps = format!("4 {} 3 {}|1 8000000 ", now - DAY + 9_000_000, now - DAY + 1_000_000);
    task.hset("meta", &[("starts", &steps)]).await;
    task.hset("options", &[("c", r#"{"cost":3}"#)]).await;
    task.lose("meta.full").await;
    assert!(task.ok("settle", "3 w 1000 9 0 0").await.contains(" '' [] "));
    let full = task.field("meta", "full").await;
    let until: u64 = full.split(' ').next().unwrap().parse().unwrap();
    assert!((8_000..=9_000).contains(&(until - now / 1000)), "{full}");
    // A job that costs more than the rate starts when the whole rate is there.
    task.hset("options", &[("c", r#"{"cost":9}"#)]).await;
    task.lose("meta.full").await;
    task.lose("meta.starts").await;
    assert!(task.ok("settle", "4 w 1000 9 0 0").await.contains(" c ["));
    assert_keys!(task, "wait d");
}

#[tokio::test]
async fn a_claim_that_is_cut_by_bytes_lets_the_task_start_what_still_fits() {
    let large = "x".repeat(400_000);
    for keyed in [false, true] {
        let mut task = Task::with("meta largest=400000").await;
        task.write(&format!("meta limits=0 5 {DAY}, perKey=0 5 {DAY}")).await;
        let key = if keyed { " laneOf 1 k laneOf 2 k laneOf 3 k" } else { "" };
        let args = format!("1 1 3 a {large} b {large} c {{}}{key}");
        assert_eq!(task.ok("dispatch", &args).await, "dispatched");
        task.hset("options", &[("c", r#"{"cost":5}"#)]).await;
        let script = if keyed { "settle_keyed" } else { "settle" };
        let said = task.ok(script, "1 w 1000 9 0 0").await;
        assert!(said.contains(" a [") && !said.contains(" a b ["), "{}", &said[..60]);
        assert_eq!(task.seen("meta.full=").await, "no meta.full", "b still fits");
        let said = task.ok(script, "2 w 1000 9 0 0").await;
        assert!(said.contains(" b ["), "{}", &said[..60]);
    }
}

#[tokio::test]
async fn a_job_that_expires_leaves_its_starts_to_the_next_one() {
    for keyed in [false, true] {
        let mut task = Task::with("meta largest=1024").await;
        task.write(&format!("meta limits=0 100 {DAY}, perKey=0 100 {DAY}")).await;
        let key = if keyed { " laneOf 1 k laneOf 2 k" } else { "" };
        assert_eq!(task.ok("dispatch", &format!("1 1 2 old {{}} b {{}} expires 1 90000{key}")).await, "dispatched");
        task.hset("options", &[("old", r#"{"cost":85}"#), ("b", r#"{"cost":20}"#)]).await;
        task.write("expiresAt old=1").await;
        let script = if keyed { "settle_keyed" } else { "settle" };
        task.ok(script, "1 w 1000 9 0 0").await;
        assert_eq!(task.seen("meta.full=").await, "no meta.full", "{script}");
        let said = task.ok(script, "2 w 1000 9 0 0").await;
        assert!(said.contains(" b ["), "{said}");
    }
}
