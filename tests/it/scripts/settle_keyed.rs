//! Jobs with keys: who puts them into lanes, what a claim takes, and who gives slots back.

use redis::AsyncCommands;

use crate::scripts::call::{Task, assert_keys};
use crate::support::plain_args;
use crate::support::settle_args;

/// At most one job of a key runs.
const ONE: &str = "meta ask=1000, interval=1000, largest=1024, keepCompleted=1, perKey=1 0 0";

/// Dispatches jobs, each named by its key and a number.
async fn dispatch(task: &mut Task, ids: &str) {
    let ids: Vec<&str> = ids.split(' ').collect();
    let mut args = vec!["1".to_owned(), "1".to_owned(), ids.len().to_string()];
    args.extend(ids.iter().flat_map(|id| [(*id).to_owned(), "{}".to_owned()]));
    let key = |id: &str| id.trim_end_matches(char::is_numeric).to_owned();
    args.extend(ids.iter().zip(1..).flat_map(|(id, at)| ["laneOf".to_owned(), at.to_string(), key(id)]));
    assert_eq!(task.ok("dispatch", &args).await, "dispatched");
}

/// Settles, and returns the claimed ids.
async fn settle(task: &mut Task, short: &str) -> String {
    let said = task.ok("settle_keyed", short).await;
    let (_, rest) = said.strip_prefix("[settled ").unwrap().split_once(" 400000").unwrap_or_else(|| panic!("{said}"));
    rest.split_once(' ').unwrap().1.split(" [").next().unwrap().to_owned()
}

/// The entries of `lanes` or `laneHeld`, as `key/id`.
async fn entries(task: &mut Task, name: &str) -> String {
    let key = task.key(name);
    let entries: Vec<String> = task.conn.zrange(key, 0, -1).await.unwrap();
    let shown = |entry: &String| {
        let words: Vec<&str> = entry.split('\0').collect();
        format!("{}/{}", words[0], words[words.len() - 1])
    };
    entries.iter().map(shown).collect::<Vec<_>>().join(" ")
}

/// The keys in `turns`, each with what it waits for.
async fn turns(task: &mut Task) -> String {
    let key = task.key("turns");
    let turns: Vec<(String, f64)> = task.conn.zrange_withscores(key, 0, -1).await.unwrap();
    let shown = |(key, score): &(String, f64)| match *score {
        6e15.. => format!("{key}: full"),
        4e15.. => format!("{key}: rests"),
        turn => format!("{key}: {}", turn / 1_000.0),
    };
    turns.iter().map(shown).collect::<Vec<_>>().join(", ")
}

#[tokio::test]
async fn a_full_key_lets_others_go_first_and_gets_its_turn_when_its_job_ends() {
    let mut task = Task::with(ONE).await;
    dispatch(&mut task, "a1 a2 b1").await;
    assert_keys!(task, "no wait; laneOf a1=a, a2=a, b1=b; wake marker=0, spare=1");
    assert_eq!(entries(&mut task, "lanes").await, "a/a1 a/a2 b/b1");
    assert_eq!(turns(&mut task).await, "a: 0, b: 0");
    assert_eq!(task.unchanged("settle", "1 w 1000 5 0 0").await, "[keyed]");
    assert_eq!(settle(&mut task, "1 w 1000 5 0 0").await, "a1 b1");
    let plain = plain_args(&settle_args(&["2", "w", "1000", "5", "0", "0"])).unwrap();
    assert_eq!(task.unchanged("settle_plain", &plain).await, "[full]");
    assert_eq!(entries(&mut task, "laneHeld").await, "a/a1 b/b1");
    // The lane of b is empty.
    assert_eq!((entries(&mut task, "lanes").await, turns(&mut task).await), ("a/a2".into(), "a: full".into()));
    // A dispatch to a full key wakes no worker.
    task.write("no wake").await;
    dispatch(&mut task, "a3").await;
    assert_keys!(task, "no wake");
    // The caller takes none, so an idle worker is woken.
    assert_eq!(settle(&mut task, "2 w 1000 0 '1 42' 0 a1 4000000000000001").await, "''");
    assert_keys!(task, "wake marker=0, spare=1; laneOf a2=a, a3=a, b1=b");
    assert_eq!((entries(&mut task, "laneHeld").await, turns(&mut task).await), ("b/b1".into(), "a: 1".into()));
    // The slot of a job that ends is free for the claim of the same call.
    assert_eq!(settle(&mut task, "3 w 1000 5 0 0").await, "a2");
    assert_eq!(settle(&mut task, "4 w 1000 5 '1 42' 0 a2 4000000000000003").await, "a3");
}

#[tokio::test]
async fn keys_take_turns_and_a_new_one_does_not_wait() {
    let mut task = Task::with("meta largest=1024").await;
    dispatch(&mut task, "a1 a2 a3 a4 a5 a6 a7 a8 b1 b2").await;
    assert_eq!(settle(&mut task, "1 w 1000 2 0 0").await, "a1 b1");
    assert_eq!(settle(&mut task, "2 w 1000 1 0 0").await, "a2");
    assert_eq!(settle(&mut task, "3 w 1000 1 0 0").await, "b2");
    dispatch(&mut task, "c1 c2 c3").await;
    assert_eq!(settle(&mut task, "4 w 1000 1 0 0").await, "a3");
    assert_eq!(settle(&mut task, "5 w 1000 1 0 0").await, "c1");
    // What one cannot use goes to the others.
    assert_eq!(settle(&mut task, "6 w 1000 6 0 0").await, "a4 a5 a6 a7 c2 c3");
    assert_eq!(turns(&mut task).await.split(':').next(), Some("a"));
}

#[tokio::test]
async fn jobs_of_other_scripts_join_their_lanes_in_the_order_of_their_dispatch() {
    let mut task = Task::with("meta largest=1024").await;
    task.write("waits plain").await;
    dispatch(&mut task, "a1 a2 a3 a4").await;
    let reply = settle(&mut task, "1 w 1000 3 0 0").await;
    assert_eq!(reply, "plain a1 a2");
    // One is handed back, and one is retried: both come before a3.
    let fences = ["4000000000000002", "4000000000000003"];
    task.write("dispatchedAt a1=1, a2=2").await;
    let reports = format!("2 w 1000 0 0 0 a1 {} requeue 0 - - a2 {} retry 1 '0 e why 5' {{}}", fences[0], fences[1]);
    settle(&mut task, &reports).await;
    assert_keys!(task, "wait a1; wake marker=0, spare=1");
    assert_eq!(settle(&mut task, "3 w 1000 2 0 0").await, "a1 a2");
    assert_eq!(entries(&mut task, "lanes").await, "a/a3 a/a4");
}

#[tokio::test]
async fn a_swept_job_gives_its_slot_to_the_next_of_its_key() {
    for (max, first) in [("0", "a2"), ("1", "a1")] {
        let mut task = Task::with(ONE).await;
        dispatch(&mut task, "a1 a2").await;
        assert_eq!(settle(&mut task, "1 w 1000 5 0 0").await, "a1");
        task.write(&format!("no wake; meta epoch=1, maxCount={max}; dispatchedAt a1=1; candidates a1; no active"))
            .await;
        task.ok("sweep", "x 1000 1 5000 0 10").await;
        assert_eq!((entries(&mut task, "laneHeld").await, turns(&mut task).await), (String::new(), "a: 1".into()));
        assert_keys!(task, "wake marker=0, spare=1");
        assert_eq!(settle(&mut task, "1 x 1000 5 0 0").await, first);
    }
}

#[tokio::test]
async fn a_cancelled_job_leaves_an_entry_that_a_claim_removes() {
    let mut task = Task::with(ONE).await;
    dispatch(&mut task, "a1 a2").await;
    assert_eq!(task.ok("cancel", "why c - a1 -").await, "[told ended]");
    assert_keys!(task, "tombstones a1=1");
    assert!(task.ok("counts", "").await.starts_with("[counted 1 0 "));
    assert!(["''", "a2"].contains(&settle(&mut task, "1 w 1000 1 0 0").await.as_str()));
    settle(&mut task, "2 w 1000 1 0 0").await;
    assert_keys!(task, "no tombstones");
    assert_eq!(
        (entries(&mut task, "laneHeld").await, entries(&mut task, "lanes").await),
        ("a/a2".into(), String::new())
    );
}

#[tokio::test]
async fn a_rate_limited_job_lets_only_its_key_rest() {
    let mut task = Task::with("meta largest=1024").await;
    dispatch(&mut task, "a1 a2 b1 b2").await;
    assert_eq!(settle(&mut task, "1 w 1000 2 0 0").await, "a1 b1");
    task.write("dispatchedAt a1=1").await;
    let said = settle(&mut task, "2 w 1000 5 0 0 a1 4000000000000001 requeue 0 60000 -").await;
    assert_eq!((said.as_str(), turns(&mut task).await.as_str()), ("b2", "a: rests"));
    assert_eq!(settle(&mut task, "3 w 1000 5 0 0").await, "''");
    let key = task.key("turns");
    let () = task.conn.zadd(key, "a", 4e15).await.unwrap();
    assert_eq!(settle(&mut task, "4 w 1000 1 0 0").await, "a1");
    assert_eq!(task.seen("meta.full=").await, "no meta.full");
}

#[tokio::test]
async fn a_rate_counts_the_starts_of_each_key() {
    let mut task = Task::with("meta largest=1024, perKey=0 2 60000000").await;
    dispatch(&mut task, "a1 a2 a3 b1").await;
    assert_eq!(settle(&mut task, "1 w 1000 9 0 0").await, "a1 a2 b1");
    assert_eq!(turns(&mut task).await, "a: rests");
    dispatch(&mut task, "b2 b3").await;
    assert_eq!(settle(&mut task, "2 w 1000 9 0 0").await, "b2");
    assert_eq!(turns(&mut task).await, "a: rests, b: rests");
}

#[tokio::test]
async fn the_limit_of_the_task_holds_next_to_those_of_keys() {
    let mut task = Task::with("meta largest=1024, limits=2 0 0, perKey=1 0 0").await;
    dispatch(&mut task, "a1 b1 c1").await;
    assert_eq!(settle(&mut task, "1 w 1000 9 0 0").await, "a1 b1");
    assert_keys!(task, "meta.full=running");
    // Nothing is claimed ahead of its slot.
    assert_eq!(settle(&mut task, "2 w 1000 '3 2 1' '1 42' 0 a1 4000000000000001").await, "c1");
}

#[tokio::test]
async fn other_limits_end_the_wait_of_full_keys() {
    let mut task = Task::with(ONE).await;
    dispatch(&mut task, "a1 a2").await;
    assert_eq!(settle(&mut task, "1 w 1000 9 0 0").await, "a1");
    assert_eq!(settle(&mut task, "2 w 1000 9 0 0").await, "''");
    task.write("meta perKey=2 0 0, declaredAt=9000000000000").await;
    assert_eq!(settle(&mut task, "3 w 1000 9 0 0").await, "a2");
}

#[tokio::test]
async fn a_dispatch_without_keys_is_told_where_they_are() {
    let mut task = Task::with("meta key=/customer, priority=normal keyed").await;
    assert_eq!(task.unchanged("dispatch", "1 1 - a {}").await, "key /customer");
    let keys = task.script("dispatch").keys[..8].to_vec();
    assert_eq!(task.call_on("dispatch", &keys, "1 1 - a {}").await.unwrap(), "more");
    assert_eq!(task.unchanged("dispatch", "1 1 2 a {} b {} laneOf 1 k").await, "key /customer");
    assert_eq!(task.unchanged("dispatch_unique", "1 1 a a {} u done 0").await, "[key /customer]");
    assert_eq!(task.ok("dispatch_unique", "1 1 a a {} u done 0 laneOf 1 k").await, "[placed new a]");
    assert_eq!(task.ok("dispatch", "1 1 1 b {} laneOf 1 k delay 1 60000").await, "dispatched");
    assert_eq!(entries(&mut task, "lanes").await, "k/a");
    assert_keys!(task, "laneOf a=k, b=k; meta.keyed=1");
}

#[tokio::test]
async fn a_claim_that_is_cut_by_bytes_leaves_the_rest_in_its_lane() {
    let mut task = Task::new().await;
    dispatch(&mut task, "a1 a2").await;
    let meta = task.key("meta");
    let () = task.conn.hdel(meta, "largest").await.unwrap();
    let large = "x".repeat(400_000);
    task.hset("payload", &[("a1", &large), ("a2", &large)]).await;
    assert_eq!(settle(&mut task, "1 w 1000 2 0 0").await, "a1");
    assert_eq!(entries(&mut task, "lanes").await, "a/a2");
    assert_keys!(task, "wake marker=0, spare=1");
    assert_eq!(settle(&mut task, "2 w 1000 2 0 0").await, "a2");
}

#[tokio::test]
async fn cancelled_jobs_of_a_key_do_not_block_the_others() {
    let mut task = Task::with("meta largest=1024").await;
    let ids: Vec<String> = (0..450).map(|at| format!("a{at:03}")).collect();
    for some in ids.chunks(150) {
        dispatch(&mut task, &some.join(" ")).await;
        let named: Vec<String> = some.iter().flat_map(|id| [id.clone(), String::new()]).collect();
        task.ok("cancel", &[vec!["why".to_owned(), "c".to_owned(), String::new()], named].concat()).await;
    }
    dispatch(&mut task, "a900 b1 b2").await;
    let mut claims = Vec::new();
    for number in 1..=8 {
        claims.push(settle(&mut task, &format!("{number} w 1000 1 0 0")).await);
    }
    let first = claims.iter().position(|claimed| claimed == "b1").unwrap_or_else(|| panic!("{claims:?}"));
    assert!(first <= 2 && claims.contains(&"a900".to_owned()), "{claims:?}");
    assert_keys!(task, "no tombstones");
    assert_eq!(entries(&mut task, "lanes").await, "");
}

#[tokio::test]
async fn an_id_that_is_used_again_with_another_key_is_claimed_in_its_own_lane() {
    let mut task = Task::with(ONE).await;
    dispatch(&mut task, "a1 b1 a2").await;
    assert_eq!(settle(&mut task, "1 w 1000 2 0 0").await, "a1 b1");
    assert_eq!(task.ok("remove", "- a2 -").await, "[told removed]");
    assert_eq!(task.ok("dispatch", "1 1 1 a2 {} laneOf 1 b").await, "dispatched");
    assert_eq!(settle(&mut task, "2 w 1000 5 '1 42' 0 a1 4000000000000001").await, "''");
    assert_eq!(settle(&mut task, "3 w 1000 5 '1 42' 0 b1 4000000000000002").await, "a2");
    assert_eq!(
        (entries(&mut task, "laneHeld").await, entries(&mut task, "lanes").await),
        ("b/a2".into(), String::new())
    );
    assert_keys!(task, "no tombstones");
}

#[tokio::test]
async fn a_job_that_comes_back_to_the_place_of_its_tombstone_waits_once() {
    let mut task = Task::with(ONE).await;
    dispatch(&mut task, "a1 a2").await;
    assert_eq!(settle(&mut task, "1 w 1000 1 0 0").await, "a1");
    task.write("dispatchedAt a2=1").await;
    for number in [2, 4, 6] {
        task.ok("cancel", "why c - a2 -").await;
        task.ok("retry", "- 0 a2 -").await;
        assert_eq!(settle(&mut task, &format!("{number} w 1000 1 0 0")).await, "''");
        assert!(task.ok("counts", "").await.starts_with("[counted 1 0 "));
    }
    assert_eq!(settle(&mut task, "8 w 1000 1 '1 42' 0 a1 4000000000000001").await, "a2");
    settle(&mut task, "9 w 1000 1 '1 42' 0 a2 4000000000000002").await;
    settle(&mut task, "10 w 1000 1 0 0").await;
    assert_keys!(task, "no tombstones");
}

#[tokio::test]
async fn the_rest_of_a_key_that_ends_last_counts() {
    let mut task = Task::with("meta largest=1024").await;
    dispatch(&mut task, "a1 a2 a3").await;
    assert_eq!(settle(&mut task, "1 w 1000 2 0 0").await, "a1 a2");
    settle(&mut task, "2 w 1000 0 0 0 a1 4000000000000001 requeue 0 60000 -").await;
    settle(&mut task, "3 w 1000 0 0 0 a2 4000000000000002 requeue 0 1 -").await;
    tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    assert_eq!(settle(&mut task, "4 w 1000 5 0 0").await, "''");
    // A lost job that has no key any more lets nothing rest.
    settle(&mut task, "5 w 1000 0 0 0 gone 7 requeue 0 60000 -").await;
    assert_eq!(task.seen("meta.full=").await, "no meta.full");
}

#[tokio::test]
async fn another_worker_learns_when_a_key_has_rested_if_the_caller_is_full() {
    let mut task = Task::with("meta largest=1024, perKey=0 1 60000000").await;
    dispatch(&mut task, "a1 a2").await;
    task.write("no wake").await;
    assert_eq!(settle(&mut task, "1 w 1000 1 0 0").await, "a1");
    assert_keys!(task, "wake marker=0, spare=1");
    let key = task.key("wake");
    let () = task.conn.del(key).await.unwrap();
    assert_eq!(settle(&mut task, "1 x 1000 1 0 0").await, "''");
    assert_keys!(task, "no wake");
}

#[tokio::test]
async fn the_virtual_time_follows_the_jobs_that_are_served() {
    let mut task = Task::with("meta largest=1024").await;
    dispatch(&mut task, "a1 a2 a3 a4 a5").await;
    let turns_key = task.key("turns");
    // The scores of a task that has lost its virtual time.
    let () = task.conn.zadd(turns_key, "a", 500_000).await.unwrap();
    assert_eq!(settle(&mut task, "1 w 1000 1 0 0").await, "a1");
    dispatch(&mut task, "b1 b2 b3").await;
    assert_eq!(settle(&mut task, "2 w 1000 1 0 0").await, "b1");
    assert_eq!(settle(&mut task, "3 w 1000 1 0 0").await, "a2");
    // A key that is late catches up by one job.
    let mut task = Task::with("meta largest=1024, turn=100000").await;
    dispatch(&mut task, "b1 b2 a1 a2 a3 a4").await;
    let turns_key = task.key("turns");
    let () = task.conn.zadd(turns_key, "a", 0).await.unwrap();
    let mut order = Vec::new();
    for call in 1..=4 {
        order.push(settle(&mut task, &format!("{call} w 1000 1 0 0")).await);
    }
    assert_eq!(order.join(" "), "a1 a2 b1 a3");
}

#[tokio::test]
async fn a_job_with_a_tombstone_in_its_lane_takes_one_slot() {
    let mut task = Task::with("meta largest=1024, perKey=2 1000000 60000000").await;
    dispatch(&mut task, "a1 a2").await;
    task.write("dispatchedAt a1=1").await;
    task.ok("cancel", "why c - a1 -").await;
    task.ok("retry", "- 0 a1 -").await;
    assert_eq!(settle(&mut task, "1 w 1000 5 0 0").await, "a1");
    assert_eq!(turns(&mut task).await, "a: 1");
    assert!(task.field("laneStarts", "a").await.starts_with("1 "), "one start");
    assert_keys!(task, "wake marker=0, spare=1");
    assert_eq!(settle(&mut task, "2 w 1000 5 0 0").await, "a2");
}

#[tokio::test]
async fn a_waiting_job_whose_key_was_lost_gets_that_of_its_lane() {
    let mut task = Task::with(ONE).await;
    dispatch(&mut task, "a1 a2").await;
    task.write("no laneOf").await;
    assert_eq!(settle(&mut task, "1 w 1000 5 0 0").await, "a1");
    assert_keys!(task, "laneOf a1=a");
    assert_eq!(settle(&mut task, "2 w 1000 5 '1 42' 0 a1 4000000000000001").await, "a2");
}

#[tokio::test]
async fn settings_of_a_key_come_before_those_of_the_task() {
    let mut task = Task::with(ONE).await;
    task.write("laneOwn b=2 0 0 1 0 ada, c=0 1 60000000 1 0 ada, d=- - - 1 7 ada").await;
    dispatch(&mut task, "a1 a2 b1 b2 b3 c1 c2 d1").await;
    assert_eq!(settle(&mut task, "1 w 1000 9 0 0").await, "a1 b1 b2 c1");
    assert_eq!(turns(&mut task).await, "c: rests, a: full, b: full, d: full");
    assert_eq!(entries(&mut task, "laneHeld").await, "a/a1 b/b1 b/b2 c/c1");
    // A paused key has its turn after its pause.
    task.ok("lane_put", "d resume '' ada").await;
    assert_eq!(settle(&mut task, "2 w 1000 9 0 0").await, "d1");
    task.ok("lane_put", "b limits '3 0 0' ada").await;
    task.ok("lane_put", "c limits '0 2 60000000' ada").await;
    assert_eq!(settle(&mut task, "3 w 1000 9 0 0").await, "b3 c2");
}

#[tokio::test]
async fn a_pause_of_a_key_ends_no_rest_and_frees_no_slot() {
    let mut task = Task::with(ONE).await;
    dispatch(&mut task, "a1 a2 a3").await;
    assert_eq!(settle(&mut task, "1 w 1000 9 0 0").await, "a1");
    task.ok("lane_put", "a pause '' ada").await;
    // Its last job ends: it is looked at, and stays.
    assert_eq!(settle(&mut task, "2 w 1000 9 '1 42' 0 a1 4000000000000001").await, "''");
    assert_eq!(turns(&mut task).await, "a: full");
    task.write("no wake").await;
    dispatch(&mut task, "a4").await;
    assert_keys!(task, "no wake");
    task.ok("lane_put", "a resume '' ada").await;
    assert_keys!(task, "wake marker=0, spare=1");
    assert_eq!(settle(&mut task, "3 w 1000 9 0 0").await, "a2");
}

#[tokio::test]
async fn a_key_starts_jobs_by_its_weight() {
    let mut task = Task::with("meta largest=1024").await;
    task.write("laneOwn b=- - - 3 0 ada").await;
    let ids = |key: &str| (1..=60).map(|at| format!("{key}{at}")).collect::<Vec<_>>().join(" ");
    for key in ["a", "b", "c"] {
        dispatch(&mut task, &ids(key)).await;
    }
    // In one call, and one by one.
    let shares = |claimed: &str| ["a", "b", "c"].map(|key| claimed.split(' ').filter(|id| id.starts_with(key)).count());
    assert_eq!(shares(&settle(&mut task, "1 w 1000 10 0 0").await), [2, 6, 2]);
    let mut claimed = Vec::new();
    for call in 2..52 {
        claimed.push(settle(&mut task, &format!("{call} w 1000 1 0 0")).await);
    }
    assert_eq!(shares(&claimed.join(" ")), [10, 30, 10]);
    // A new key begins at the virtual time, and gets its share from then on.
    dispatch(&mut task, &ids("d")).await;
    let mut claimed = Vec::new();
    for call in 52..70 {
        claimed.push(settle(&mut task, &format!("{call} w 1000 1 0 0")).await);
    }
    let of_new = claimed.iter().filter(|id| id.starts_with('d')).count();
    assert!((2..=4).contains(&of_new), "{claimed:?}");
}

#[tokio::test]
async fn weights_hold_among_many_keys() {
    let mut task = Task::with("meta largest=1024").await;
    let heavy = ["v", "w", "x", "y", "z"];
    task.write(&format!("laneOwn {}", heavy.map(|key| format!("{key}=- - - 4 0 ada")).join(", "))).await;
    let light: Vec<String> = (0..40).map(|at| format!("k{at}-")).collect();
    let keys: Vec<&str> = heavy.into_iter().chain(light.iter().map(String::as_str)).collect();
    for key in &keys {
        dispatch(&mut task, &(1..=60).map(|at| format!("{key}{at}")).collect::<Vec<_>>().join(" ")).await;
    }
    let mut claimed = Vec::new();
    for call in 1..=600 {
        claimed.push(settle(&mut task, &format!("{call} w 1000 1 0 0")).await);
    }
    // Each key of weight 1 has about ten of the 600 starts, each of weight 4 about forty.
    for key in keys {
        let starts = claimed.iter().filter(|id| id.trim_end_matches(char::is_numeric) == key).count();
        let range = if heavy.contains(&key) { 32..=44 } else { 8..=12 };
        assert!(range.contains(&starts), "{key}: {starts}");
    }
}

#[tokio::test]
async fn a_job_counts_as_its_cost_against_the_rate_of_its_key() {
    let mut task = Task::with("meta largest=1024, perKey=0 5 60000000").await;
    dispatch(&mut task, "a1 a2 a3 b1 b2").await;
    let costs = [("a1", r#"{"cost":3}"#), ("a2", r#"{"delay_ms":5,"cost":3}"#), ("b1", r#"{"cost":9}"#)];
    task.hset("options", &costs).await;
    // The second of a would be the sixth start, so the key rests. A cost is at most the rate.
    let said = task.ok("settle_keyed", "1 w 1000 9 0 0").await;
    assert!(said.contains(" a1 b1 ["), "{said}");
    assert_eq!(turns(&mut task).await, "a: rests, b: rests");
    assert_eq!(entries(&mut task, "lanes").await, "a/a2 a/a3 b/b2");
    for (key, starts) in [("a", "3"), ("b", "5")] {
        let steps = task.field("laneStarts", key).await;
        assert_eq!(steps.split(' ').next(), Some(starts), "{key}: {steps}");
    }
}

#[tokio::test]
async fn a_worker_that_may_claim_nothing_does_not_look_again_for_a_rest_that_is_over() {
    for stop in ["meta paused=1", "meta limits=1 0 0, full=running"] {
        let mut task = Task::with("meta largest=1024, perKey=0 1 10000").await;
        dispatch(&mut task, "a1 a2").await;
        let said = task.ok("settle_keyed", "1 w 1000 9 0 0").await;
        assert!(said.contains(" a1 ["), "{said}");
        task.write(stop).await;
        // The rest of the key is over.
        let turns_key = task.key("turns");
        let () = task.conn.zadd(turns_key, "a", 4e15 + 5.0).await.unwrap();
        let said = task.ok("settle_keyed", "2 w 1000 9 0 0").await;
        assert!(said.contains(" '' [] [] '' "), "{stop}: {said}");
    }
}

#[tokio::test]
async fn a_damaged_setting_of_a_key_is_that_of_the_task() {
    for own in ["1.5 0 0 1 0 x", "1 5 0 1 0 x", "0x5 0 0 1 0 x", "nan 0 0 1 0 x", "1 2", ""] {
        let mut task = Task::with(ONE).await;
        task.hset("laneOwn", &[("a", own)]).await;
        dispatch(&mut task, "a1 a2").await;
        assert_eq!(settle(&mut task, "1 w 1000 9 0 0").await, "a1", "{own}");
    }
}
