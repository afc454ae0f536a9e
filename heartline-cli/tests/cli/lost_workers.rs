//! What the commands show about lost workers and damaged data, and how they ask for confirmation. The tests of the library prove the
//! diagnoses themselves.

use std::time::{Duration, SystemTime};

use serde_json::json;

use crate::run::{Bench, until};

const LOST: &str = "web-7-4711-0f3a9c21";

pub fn ms_ago(ago: Duration) -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap() - ago;
    u64::try_from(since.as_millis()).unwrap()
}

/// A worker that holds these jobs of `export`, with the ages of its claims and of its presence.
async fn holds(bench: &Bench, ids: &[&str], claimed: Duration, seen: Duration) {
    let (mut conn, mut pipe) = (bench.redis().await, redis::pipe());
    let (seen, fence) = (ms_ago(seen), ms_ago(claimed) * 1000);
    for id in ids {
        pipe.lrem("cli:{export}:wait", 0, *id).ignore();
        pipe.hset("cli:{export}:locks", *id, format!("{LOST}:{fence}")).ignore();
        pipe.sadd("cli:{export}:active", *id).ignore();
    }
    pipe.zadd("cli:workers", LOST, seen).ignore();
    let facts = [
        ("host", "web-7"),
        ("pid", "4711"),
        ("tasks", "export"),
        ("held:export", "0"),
        ("slots:export", "2"),
        ("lastSeenAt", &seen.to_string()),
    ];
    pipe.hset_multiple(format!("cli:worker:{LOST}"), &facts).ignore();
    let () = pipe.query_async(&mut conn).await.unwrap();
}

#[tokio::test]
async fn diagnoses_are_printed_and_are_data_in_json() {
    let bench = Bench::of_one_table().await;
    let worker = bench.worker();
    until("it works", async || bench.run(&["workers", "--json"]).await.json()[0]["state"] == "live").await;
    let _ = worker.stop().await.unwrap();
    for id in ["a", "b", "c"] {
        bench.export.dispatch("hold".into()).id(id).await.unwrap();
    }
    holds(&bench, &["a", "b"], Duration::from_secs(90), Duration::from_secs(40)).await;

    let ran = bench.run(&["status"]).await;
    let url = bench.url();
    let first = format!("{} under the prefix cli\n", url.trim_end_matches('/'));
    assert!(ran.status == 1 && ran.out.starts_with(&first), "{url}: {}", ran.out);
    // Both programs take their time.
    let held = |seen| {
        format!(
            "! export: 2 jobs held by {LOST} on web-7, last seen {seen}s ago: it is dead, frozen, or cut off from Redis"
        )
    };
    let is_held = (40..55).any(|seen| ran.out.contains(&format!("{}\n    they wait for a person", held(seen))));
    assert!(is_held, "{}", ran.out);
    for command in ["status", "health", "doctor"] {
        let ran = bench.run(&[command, "--json"]).await;
        let json = ran.json();
        assert_eq!((ran.status, &json["healthy"]), (1, &json!(false)), "{ran:?}");
        let mut all = json["diagnoses"].as_array().unwrap().iter();
        let found = all.find(|found| found["kind"] == "lost_worker").unwrap_or_else(|| panic!("{ran:?}"));
        assert_eq!((&found["severity"], &found["task"]), (&json!("risk"), &json!("export")));
        let what = found["what"].as_str().unwrap();
        assert!(what.starts_with(&format!("2 jobs held by {LOST} on web-7, last seen ")), "{what}");
        assert_eq!((&found["facts"]["jobs"], &found["facts"]["holder"]["worker"]), (&json!(2), &json!(LOST)));
    }
    let outlook = bench.run(&["stalls", "outlook", "-t", "export"]).await.ok();
    assert!(outlook.contains(&format!("2 jobs are held by {LOST}, which was last seen 4")), "{outlook}");
    let silent = bench.run(&["recover", "silent", "-t", "export"]).await;
    assert!(silent.err.contains(&format!("2 jobs held by {LOST} on web-7, last seen ")), "{silent:?}");
    let table = bench.run(&["workers"]).await.ok();
    assert!(table.contains("silent") && table.contains("export 2/2  -        -"), "by the locks: {table}");
    assert!(bench.run(&["workers", LOST]).await.ok().contains(&format!("! export: 2 jobs held by {LOST} on web-7")));
    let shown = bench.run(&["jobs", "show", "-t", "export", "a"]).await.ok();
    assert!(shown.contains(&format!("! 1 job held by {LOST} on web-7, last seen")), "{shown}");
    let shown = bench.run(&["jobs", "show", "-t", "export", "a", "--json"]).await.json();
    assert_eq!(shown["diagnoses"][0]["kind"], "lost_worker");
    let ran = bench.run(&["jobs", "cancel", "-t", "export", "a"]).await;
    assert!(ran.status == 0 && ran.err.contains("a will be cancelled when it is recovered: 1 job held by"), "{ran:?}");

    let ran = bench.run(&["recover", "worker", LOST, "-y"]).await;
    assert!(ran.err.contains(&format!("The death of {LOST} was not proven.")), "{ran:?}");
    let ran = ran.ok();
    assert!(ran.contains("export: 2 jobs"), "{ran}");
    let ran = bench.run(&["status"]).await;
    assert!(!ran.out.contains("held by") && ran.out.contains("? export: 2 jobs recovered from "), "{ran:?}");
}

#[tokio::test]
async fn metrics_show_what_alerts_need() {
    let bench = Bench::of_one_table().await;
    for id in ["a", "b"] {
        bench.export.dispatch("hold".into()).id(id).await.unwrap();
    }
    bench.export.dispatch("x".into()).id("due").delay(Duration::from_millis(1)).await.unwrap();
    holds(&bench, &[], Duration::ZERO, Duration::ZERO).await;
    let mut conn = bench.redis().await;
    let mut pipe = redis::pipe();
    pipe.lrem("cli:{export}:wait", 0, "a")
        .ignore()
        .hset(format!("cli:worker:{LOST}"), "lost:export", "2 90000")
        .ignore();
    pipe.hset("cli:{export}:meta", "lostAt", ms_ago(Duration::from_secs(60))).ignore();
    let () = pipe.query_async(&mut conn).await.unwrap();
    for line in [
        "heartline_task_slots_lost{task=\"export\"} 2",
        "heartline_jobs_unplaced{task=\"export\"} 1",
        "heartline_jobs_due{task=\"export\"} 1",
        "heartline_data_lost_age_seconds{task=\"export\"}",
    ] {
        let metrics = bench.run(&["metrics", "--once"]).await.ok();
        assert!(metrics.contains(line), "{line}: {metrics}");
    }
}

#[tokio::test]
async fn failures_are_counted_by_code() {
    let bench = Bench::new().await;
    let worker = bench.worker();
    for input in ["fail", "x", "fail"] {
        let _ = bench.export.dispatch(input.into()).await.unwrap().result().await;
    }
    let ran = bench.run(&["status"]).await;
    assert!(
        ran.out.contains("2 failed (export 2)") && ran.out.contains("? export: 2 jobs failed in the last 5 minutes"),
        "{ran:?}"
    );
    let codes = bench.run(&["jobs", "codes", "-t", "export"]).await.ok();
    let row = codes.lines().nth(1).unwrap();
    assert!(row.starts_with("disk  2 ") && row.ends_with(r"no space \u{1b}[31m left"), "{codes}");
    let codes = bench.run(&["jobs", "codes", "-t", "export", "--json", "--younger", "1h"]).await.json();
    assert_eq!((&codes["looked"], &codes["codes"][0]["jobs"]), (&json!(2), &json!(2)), "{codes}");
    let _ = worker.stop().await.unwrap();
}

#[tokio::test]
async fn an_unreachable_server_is_reported_as_json_too() {
    let ran = crate::run::alone(&["status", "--json", "--redis", "redis://127.0.0.1:1"]);
    assert_eq!((ran.status, &ran.json()["healthy"]), (1, &json!(false)));
    assert!(ran.json()["error"].as_str().unwrap().contains("--redis"), "{ran:?}");
}

#[tokio::test]
async fn a_job_for_an_unknown_task_waits_and_says_so() {
    let bench = Bench::new().await;
    let ran = bench.run(&["jobs", "dispatch", "-t", "video", "1"]).await;
    assert!(ran.status == 0 && ran.err.contains("task video is new on "), "{ran:?}");
    assert!(bench.run(&["jobs", "dispatch", "-t", "video", "2"]).await.err.is_empty());
    let ran = bench.run(&["status"]).await;
    assert!(ran.out.contains("start a worker that has the task, or correct the name"), "{ran:?}");
}

#[tokio::test]
async fn a_server_that_refuses_writes_accuses_no_worker() {
    let bench = Bench::of_one_table().await;
    bench.declared().await;
    bench.export.dispatch("x".into()).await.unwrap().cancel("no").await.unwrap();
    assert_eq!(bench.run(&["health"]).await.ok(), "healthy\n");
    let mut conn = bench.redis().await;
    let mut needs = async |replicas: u8| {
        let mut set = redis::cmd("CONFIG");
        set.arg("SET").arg("min-replicas-to-write").arg(replicas);
        set.query_async::<()>(&mut conn).await.unwrap();
    };
    needs(1).await;
    let ran = bench.run(&["health"]).await;
    assert!(
        ran.status == 1 && ran.out.contains("! the server refuses writes: ") && ran.out.contains("NOREPLICAS"),
        "{ran:?}"
    );
    assert!(bench.run(&["doctor"]).await.out.contains("NOREPLICAS"));
    needs(0).await;
    assert_eq!(bench.run(&["health"]).await.ok(), "healthy\n");

    // No worker can update its presence: none is accused, and its jobs are not to be recovered.
    bench.export.dispatch("x".into()).id("a").await.unwrap();
    bench.export.dispatch("x".into()).id("b").await.unwrap();
    holds(&bench, &["a"], Duration::from_secs(90), Duration::from_secs(40)).await;
    let looks: [&[&str]; 8] = [
        &["status"],
        &["doctor"],
        &["task", "show", "export"],
        &["jobs", "show", "-t", "export", "a"],
        &["jobs", "show", "-t", "export", "b"],
        &["stalls", "outlook", "-t", "export"],
        &["recover", "silent", "-t", "export"],
        &["workers", LOST],
    ];
    let of_worker = "`heartline recover worker";
    assert!(bench.run(&["status"]).await.out.contains(of_worker));
    needs(1).await;
    for look in looks {
        let ran = bench.run(look).await;
        let told = format!("{}{}", ran.out, ran.err);
        assert!(told.contains("NOREPLICAS"), "{look:?}: {told}");
        for word in [of_worker, "it is dead, frozen", "WILL FAIL", "start a worker", "recover running"] {
            assert!(!told.contains(word), "{look:?} {word}: {told}");
        }
    }
    let metrics = bench.run(&["metrics", "--once"]).await.ok();
    assert!(metrics.contains("heartline_redis_servers_refusing_writes 1"), "{metrics}");
    let cancelled = bench.run(&["jobs", "cancel", "-t", "export", "b", "-y"]).await;
    assert!(cancelled.status == 1 && !cancelled.err.contains("200 more jobs"), "{cancelled:?}");
    let swept = bench.run(&["recover", "sweep", "-t", "export", "-y"]).await;
    assert!(swept.status == 1 && swept.err.contains("NOREPLICAS"), "{swept:?}");
    needs(0).await;
}

/// The death of a worker that held these jobs.
async fn died_with(bench: &Bench, worker: &str, ids: &[&str]) {
    let mut conn = bench.redis().await;
    let stalled: Vec<String> = ids.iter().map(|id| format!("{id} 1 recovered {worker}")).collect();
    let mut add = redis::cmd("XADD");
    add.arg("cli:{export}:stalls").arg("*").arg("total").arg(9).arg("worker").arg("w-1-00000000");
    add.arg("reason").arg("silent").arg("stalled").arg(stalled.join(" "));
    add.query_async::<()>(&mut conn).await.unwrap();
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn times_are_relative_to_the_clock_of_the_server() {
    let bench = Bench::of_one_table().await;
    bench.export.dispatch("hold".into()).id("a").await.unwrap();
    for worker in ["w-2-00000000", "w-3-00000000"] {
        died_with(&bench, worker, &["a"]).await;
    }
    for ahead in ["+3h", "-3h"] {
        let ran = bench.run_at(ahead, &["status"]).await;
        assert!(ran.out.contains("1 job held when two or more workers died: a\n"), "{ahead}: {ran:?}");
        let ran = bench.run_at(ahead, &["stalls", "list", "-t", "export"]).await;
        assert!(
            ran.out.contains("s ago") && !ran.out.contains("h ago") && !ran.out.contains("in 2h"),
            "{ahead}: {ran:?}"
        );
    }
}

#[tokio::test]
async fn a_foreign_value_is_named_by_each_command_that_fails() {
    let bench = Bench::of_one_table().await;
    bench.export.dispatch("x".into()).id("a").await.unwrap();
    let counted = bench.run(&["jobs", "list", "-t", "export"]).await.ok();
    assert!(counted.contains("waiting") && counted.contains("cancelled"), "{counted}");
    let listed = bench.run(&["jobs", "list", "-t", "export", "-s", "waiting"]).await;
    assert!(listed.err.contains("the next one first") || listed.out.contains("the next one first"), "{listed:?}");
    let mut conn = bench.redis().await;
    let mut run = async |command: &str, key: &str, args: &[&str]| {
        redis::cmd(command).arg(key).arg(args).query_async::<()>(&mut conn).await.unwrap();
    };
    let show: &[&str] = &["jobs", "show", "-t", "export", "a"];
    for (column, kind, advice, fails) in [
        ("progress", "hash", "Do not stop workers", [&["status"][..], &["health"], &["doctor"], show]),
        ("failed", "zset", "", [&["doctor"][..], &["status"], &["health"], &["audit", "-t", "export"]]),
    ] {
        let key = format!("cli:{{export}}:{column}");
        run("SET", &key, &["x"]).await;
        let named = format!("{key} is a string and should be a {kind}");
        for args in fails {
            let ran = bench.run(args).await;
            let told = format!("{}{}", ran.out, ran.err);
            assert!(ran.status == 1 && told.contains(&named), "{args:?}: {ran:?}");
            assert!(args.len() > 1 || told.contains(advice), "{args:?}: {ran:?}");
        }
        if column == "failed" {
            for args in [&["tasks"][..], &["tasks", "--json"]] {
                assert_eq!(bench.run(args).await.status, 1, "{args:?}");
            }
        }
        run("DEL", &key, &[]).await;
        bench.run(show).await.ok();
    }
}

#[tokio::test]
async fn a_foreign_list_is_named_and_hides_no_task() {
    let bench = Bench::new().await;
    bench.export.dispatch("x".into()).id("a").await.unwrap();
    let mut conn = bench.redis().await;
    let mut run = async |words: &[&str]| {
        let mut cmd = redis::cmd(words[0]);
        cmd.arg(&words[1..]).query_async::<()>(&mut conn).await.unwrap();
    };
    run(&["ZADD", "cli:tasks", "1", "x; touch y #"]).await;
    let ran = bench.run(&["status"]).await;
    assert!(ran.out.contains("it is not a valid task name") && ran.out.contains("ZREM KEY 'x; touch y #'"), "{ran:?}");
    assert!(!ran.out.contains("-t x;"), "it must not look like a command: {ran:?}");
    let ran = bench.run(&["audit"]).await;
    assert!(
        ran.status == 1 && ran.out.contains("export: 1 job audited") && ran.err.contains("is not a valid task name"),
        "{ran:?}"
    );
    for list in ["tasks", "workers"] {
        run(&["DEL", &format!("cli:{list}")]).await;
        run(&["SET", &format!("cli:{list}"), "x"]).await;
        let ran = bench.run(&["status"]).await;
        let named = format!("cli:{list} is a string and should be a zset");
        assert!(ran.status == 1 && format!("{}{}", ran.out, ran.err).contains(&named), "{ran:?}");
        run(&["DEL", &format!("cli:{list}")]).await;
    }
}

#[tokio::test]
async fn a_watch_is_broken_until_a_whole_interval_has_passed() {
    let bench = Bench::of_one_table().await;
    bench.export.dispatch("x".into()).await.unwrap().cancel("no").await.unwrap();
    holds(&bench, &[], Duration::ZERO, Duration::ZERO).await;
    let mut conn = bench.redis().await;
    // The listing may come some seconds later.
    let told = |words: &str, seconds: std::ops::Range<u32>, unit: &str| -> Vec<String> {
        seconds.map(|second| format!("{words} {second}{unit}")).collect()
    };
    for (ago, told) in [(2000, told("broken", 2..5, ".")), (20_000, told("ok (no_answer", 20..50, "s ago)"))] {
        // The epoch has just begun each time, so no epoch is shown as late.
        let watch = format!("3 100 5000 no_answer {ago}");
        let mut tell = redis::cmd("HSET");
        tell.arg(format!("cli:worker:{LOST}")).arg("watch:export").arg(watch);
        tell.query_async::<()>(&mut conn).await.unwrap();
        let listed = bench.run(&["workers"]).await.ok();
        assert!(told.iter().any(|text| listed.contains(text)), "{listed}");
    }
}

#[tokio::test]
async fn a_job_that_moves_while_a_question_waits_is_kept() {
    let bench = Bench::new().await;
    let worker = bench.worker();
    let _ = bench.export.dispatch("fail".into()).id("a").await.unwrap().result().await;
    let _ = worker.stop().await.unwrap();
    let mut asked = bench.on_terminal("jobs remove -t export a");
    asked.until("Continue? [y/N]").await;
    assert!(asked.shown().contains("remove 1 job of export for good (1 failed)"), "{}", asked.shown());
    bench.run(&["jobs", "retry", "-t", "export", "a"]).await.ok();
    asked.say("y\n");
    asked.until("it changed meanwhile").await;
    assert!(asked.shown().contains("1 refused"), "{}", asked.shown());
    assert_eq!(bench.export.counts().await.unwrap().waiting, 1);
}

#[tokio::test]
async fn a_script_cannot_give_up_a_worker_that_claims_jobs() {
    let bench = Bench::of_one_table().await;
    bench.export.dispatch("hold".into()).id("a").await.unwrap();
    holds(&bench, &["a"], Duration::from_secs(5), Duration::from_secs(90)).await;
    let ran = bench.run(&["--yes", "recover", "worker", LOST]).await;
    assert!(ran.status != 0 && ran.err.contains("MOST LIKELY ALIVE: it claimed a job"), "{ran:?}");
    bench.export.dispatch("x".into()).id("b").await.unwrap();
    let mute = format!("1 job held by {LOST}, which runs but cannot update its presence: it claimed a job ");
    let looks: [&[&str]; 4] = [
        &["status"],
        &["task", "show", "export"],
        &["jobs", "show", "-t", "export", "a"],
        &["recover", "silent", "-t", "export"],
    ];
    for look in looks {
        let ran = bench.run(look).await;
        let shown = format!("{}{}", ran.out, ran.err);
        assert!(shown.contains(&mute), "{look:?} {ran:?}");
        for claim in ["dead, frozen", "no live worker has the task", "if it is dead"] {
            assert!(!shown.contains(claim), "{look:?} {claim} {ran:?}");
        }
    }
    assert_eq!(bench.export.counts().await.unwrap().running, 1);
}

#[tokio::test]
async fn a_live_worker_without_a_readable_presence_is_kept() {
    let bench = Bench::new().await;
    bench.export.dispatch("hold".into()).id("a").await.unwrap();
    let worker = bench.worker();
    until("it reports the job", async || bench.run(&["workers"]).await.ok().contains("export 1/10")).await;
    let id = bench.run(&["workers", "--json"]).await.json()[0]["worker"].as_str().unwrap().to_owned();
    let mut conn = bench.redis().await;
    // Its next presence is refused, and the list still has when it was seen.
    let () = redis::pipe()
        .del(format!("cli:worker:{id}"))
        .set(format!("cli:worker:{id}"), "x")
        .query_async(&mut conn)
        .await
        .unwrap();
    let ran = bench.run(&["recover", "worker", &id, "-y"]).await;
    assert!(ran.status == 2 && ran.err.contains("has an unreadable presence; IT IS MOST LIKELY ALIVE"), "{ran:?}");
    let shown = bench.run(&["recover", "worker", &id]).await;
    assert!(shown.err.contains("1 of export") && !shown.err.contains("years"), "{shown:?}");
    assert_eq!(bench.export.job("a").await.unwrap().state, heartline::JobState::Running);
    bench.open();
    let _ = worker.stop().await.unwrap();
}

#[tokio::test]
async fn a_retry_of_a_job_that_crashed_workers_asks_first() {
    let bench = Bench::of_one_table().await;
    bench.export.dispatch("x".into()).id("bad").await.unwrap();
    let mut conn = bench.redis().await;
    let error = r#"{"code":"worker_crashed","message":"its workers died"}"#;
    let mut pipe = redis::pipe();
    pipe.lrem("cli:{export}:wait", 0, "bad").ignore().zadd("cli:{export}:failed", "bad", 1).ignore();
    pipe.hset("cli:{export}:error", "bad", error).ignore().hset("cli:{export}:stalledCount", "bad", 2).ignore();
    let () = pipe.query_async(&mut conn).await.unwrap();
    let ran = bench.run(&["jobs", "retry", "-t", "export", "bad"]).await;
    assert!(ran.status == 2 && ran.err.contains("run again 1 job held when workers died; pass --yes"), "{ran:?}");
    assert_eq!(bench.export.counts().await.unwrap().failed, 1);
    let ran = bench.run(&["jobs", "retry", "-t", "export", "bad", "-y"]).await;
    assert!(ran.status == 0 && ran.err.contains("because 2 workers died or hung with it"), "{ran:?}");
}
