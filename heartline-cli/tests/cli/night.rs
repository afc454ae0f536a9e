//! What somebody is told at three in the morning: a worker died, froze, or hangs.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use heartline::{Context, JobError, RetryPolicy, TaskOptions};
use serde_json::json;

use crate::run::{Bench, until};

const NOBODY: &str = "web-7-4711-0f3a9c21";

pub fn ms_ago(ago: Duration) -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap() - ago;
    u64::try_from(since.as_millis()).unwrap()
}

/// Makes a worker known that holds these jobs of `export`, which it claimed so long ago, and was seen so long ago.
async fn holds(bench: &Bench, ids: &[&str], claimed: Duration, seen: Duration) {
    let (mut conn, mut pipe) = (bench.redis().await, redis::pipe());
    let (seen, fence) = (ms_ago(seen), ms_ago(claimed) * 1000);
    for id in ids {
        pipe.lrem("cli:{export}:wait", 0, *id).ignore();
        pipe.hset("cli:{export}:locks", *id, format!("{NOBODY}:{fence}")).ignore();
        pipe.sadd("cli:{export}:active", *id).ignore();
    }
    pipe.zadd("cli:workers", NOBODY, seen).ignore();
    let facts = [
        ("host", "web-7"),
        ("pid", "4711"),
        ("tasks", "export"),
        ("held:export", "0"),
        ("slots:export", "2"),
        ("lastSeenAt", &seen.to_string()),
    ];
    pipe.hset_multiple(format!("cli:worker:{NOBODY}"), &facts).ignore();
    let () = pipe.query_async(&mut conn).await.unwrap();
}

#[tokio::test]
async fn jobs_that_a_silent_worker_holds_are_named_with_who_and_what_to_do() {
    let bench = Bench::of_one_table().await;
    let worker = bench.worker();
    until("it works", async || bench.run(&["workers", "--json"]).await.json()[0]["state"] == "live").await;
    let _ = worker.stop().await.unwrap();
    for id in ["a", "b", "c"] {
        bench.export.dispatch("hold".into()).id(id).await.unwrap();
    }
    holds(&bench, &["a", "b"], Duration::from_secs(90), Duration::from_secs(40)).await;

    let ran = bench.run(&["status"]).await;
    assert_eq!(ran.status, 1);
    let url = bench.url();
    let first = format!("{} under the prefix cli\n", url.trim_end_matches('/'));
    assert!(ran.out.starts_with(&first), "{url}: {}", ran.out);
    assert!(ran.out.contains(" export: 1 job waiting, and no live worker works it"), "{}", ran.out);
    let held =
        format!("2 jobs held by {NOBODY} on web-7, last seen 40s ago: it is dead, frozen, or cut off from Redis");
    assert!(ran.out.contains(&format!("! export: {held}")), "{}", ran.out);
    let outlook = bench.run(&["stalls", "outlook", "-t", "export"]).await.ok();
    assert!(outlook.contains(&format!("2 jobs are held by {NOBODY}, which was last seen 40")), "{outlook}");
    let silent = bench.run(&["recover", "silent", "-t", "export"]).await;
    assert!(silent.err.contains(&held), "{silent:?}");
    let table = bench.run(&["workers"]).await.ok();
    assert!(
        table.contains("silent") && table.contains("export 2/2  -        -"),
        "what it holds, by the locks: {table}"
    );
    assert!(bench.run(&["workers", NOBODY]).await.ok().contains("! it still holds 2 jobs of export"));
    let shown = bench.run(&["jobs", "show", "-t", "export", "a"]).await.ok();
    assert!(shown.contains(&format!("! it is held by {NOBODY} on web-7, last seen")), "{shown}");
    // Its options leave it to a person.
    assert!(shown.contains("`heartline recover silent -t export`"), "{shown}");
    let ran = bench.run(&["jobs", "cancel", "-t", "export", "a"]).await;
    assert!(ran.status == 0 && ran.err.contains("a is cancelled when it is recovered: it is held by"), "{ran:?}");

    let ran = bench.run(&["recover", "worker", NOBODY, "-y"]).await.ok();
    assert!(ran.contains("export: 2 jobs"), "{ran}");
    let ran = bench.run(&["status"]).await;
    assert!(!ran.out.contains("held by"), "{ran:?}");
    assert!(ran.out.contains(&format!("? export: 2 jobs taken back from {NOBODY}, the last one ")), "{ran:?}");
}

#[tokio::test]
async fn slots_that_are_taken_for_long_while_jobs_wait_are_told_of() {
    let bench = Bench::of_one_table().await;
    for id in ["a", "b", "c"] {
        bench.export.dispatch("hold".into()).id(id).await.unwrap();
    }
    let mut conn = bench.redis().await;
    let mut waits = async |seconds| {
        let since = ms_ago(Duration::from_secs(seconds));
        let mut set = redis::cmd("HSET");
        set.arg("cli:{export}:waitingSince").arg("c").arg(since);
        set.query_async::<()>(&mut conn).await.unwrap();
    };
    waits(200).await;
    let mut fence = redis::cmd("HSET");
    fence.arg("cli:{export}:meta").arg("fence").arg(ms_ago(Duration::from_secs(480)) * 1000);
    fence.query_async::<()>(&mut bench.redis().await).await.unwrap();
    holds(&bench, &["a", "b"], Duration::from_secs(480), Duration::ZERO).await;
    let ran = bench.run(&["status"]).await;
    assert!(ran.status == 0 && ran.out.contains("Nothing is wrong.\n") && !ran.out.contains('?'), "{ran:?}");
    waits(500).await;
    let ran = bench.run(&["status"]).await;
    let told = "? export: all 2 slots are taken, for 8m none was begun, and the next job has waited 8m 20s";
    assert!(ran.status == 0 && ran.out.contains(told), "{ran:?}");
    assert!(ran.out.contains("its oldest run is 8m old") && ran.out.contains("its runs have no timeout"), "{ran:?}");
    assert!(!ran.out.contains("Nothing is wrong"), "{ran:?}");
    assert_eq!(bench.run(&["health"]).await.ok(), "healthy\n", "it is for a person to judge");
    // Nothing moves any more.
    waits(2000).await;
    holds(&bench, &["a", "b"], Duration::from_secs(1900), Duration::ZERO).await;
    assert!(bench.run(&["health"]).await.out.contains("! export: all 2 slots are taken, for 31m 40s"));
}

#[tokio::test]
async fn what_fails_is_counted_by_its_code() {
    let bench = Bench::new().await;
    let worker = bench.worker();
    for input in ["fail", "x", "fail"] {
        let _ = bench.export.dispatch(input.into()).await.unwrap().result().await;
    }
    let ran = bench.run(&["status"]).await;
    assert!(
        ran.out.contains("2 failed (export 2)") && ran.out.contains("? export: 2 jobs failed in the last 5"),
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
async fn failures_stay_told_until_a_job_completes() {
    let bench = Bench::of_one_table().await;
    let worker = bench.worker();
    let mut conn = bench.redis().await;
    let mut age = async |id: &str, seconds| {
        let mut add = redis::cmd("ZADD");
        add.arg("cli:{export}:failed").arg("XX").arg(ms_ago(Duration::from_secs(seconds))).arg(id);
        add.query_async::<()>(&mut conn).await.unwrap();
    };
    for id in ["first", "second"] {
        let _ = bench.export.dispatch("fail".into()).id(id).await.unwrap().result().await;
        age(id, 8 * 3600).await;
    }
    let ran = bench.run(&["status"]).await;
    assert!(ran.status == 0 && ran.out.contains("? export: the last 2 jobs failed, "), "{ran:?}");
    assert!(ran.out.contains(" ago, and none completed since"), "{ran:?}");
    bench.export.dispatch("x".into()).await.unwrap().result().await.unwrap();
    let ran = bench.run(&["status"]).await;
    assert!(ran.out.contains("Nothing is wrong."), "{ran:?}");
    let _ = worker.stop().await.unwrap();
}

#[tokio::test]
async fn twenty_failures_with_none_completed_among_them_are_an_outage() {
    let bench = Bench::of_one_table().await;
    let worker = bench.worker();
    bench.export.dispatch("x".into()).await.unwrap().result().await.unwrap();
    for at in 1..=20 {
        let _ = bench.export.dispatch("fail".into()).await.unwrap().result().await;
        if at == 19 {
            let ran = bench.run(&["status"]).await;
            assert!(ran.status == 0 && ran.out.contains("? export: 19 jobs failed"), "{ran:?}");
            assert!(ran.out.contains("1 completed; THE LAST 19 ALL FAILED"), "{ran:?}");
        }
    }
    let ran = bench.run(&["health"]).await;
    assert!(
        ran.status == 1 && ran.out.contains("! export: 20 jobs failed in the last 5 minutes, 1 completed"),
        "{ran:?}"
    );
    bench.export.dispatch("x".into()).await.unwrap().result().await.unwrap();
    assert_eq!(bench.run(&["health"]).await.ok(), "healthy\n");
    let _ = worker.stop().await.unwrap();
}

#[tokio::test]
async fn options_that_were_lost_alone_are_no_loss_of_jobs() {
    let bench = Bench::of_one_table().await;
    let worker = bench.worker();
    bench.export.dispatch("x".into()).await.unwrap().result().await.unwrap();
    bench.export.dispatch("hold".into()).await.unwrap();
    let mut conn = bench.redis().await;
    redis::cmd("DEL").arg("cli:{export}:meta").query_async::<()>(&mut conn).await.unwrap();
    until("the worker declares it again", async || {
        bench.app.inspector().task("export").await.unwrap().options.declared_by.is_some()
    })
    .await;
    let ran = bench.run(&["status"]).await;
    assert!(!ran.out.contains("lost its data"), "{ran:?}");
    bench.open();
    let _ = worker.stop().await.unwrap();
}

#[tokio::test]
async fn jobs_that_lost_their_payload_are_told_of() {
    let bench = Bench::of_one_table().await;
    bench.export.dispatch("x".into()).id("gone").await.unwrap();
    let mut conn = bench.redis().await;
    redis::cmd("HDEL").arg("cli:{export}:payload").arg("gone").query_async::<()>(&mut conn).await.unwrap();
    let worker = bench.worker();
    bench.export.dispatch("x".into()).await.unwrap().result().await.unwrap();
    let ran = bench.run(&["status"]).await;
    assert!(ran.out.contains("? export: 1 job had lost its payload and was removed, "), "{ran:?}");
    let _ = worker.stop().await.unwrap();
}

#[tokio::test]
async fn a_server_that_is_away_is_json_too() {
    let ran = crate::run::alone(&["status", "--json", "--redis", "redis://127.0.0.1:1"]);
    assert_eq!((ran.status, &ran.json()["healthy"]), (1, &json!(false)));
    assert!(ran.json()["error"].as_str().unwrap().contains("--redis"), "{ran:?}");
}

#[tokio::test]
async fn a_job_for_a_task_that_nobody_has_named_is_told_to_wait() {
    let bench = Bench::new().await;
    let ran = bench.run(&["jobs", "dispatch", "-t", "video", "1"]).await;
    assert!(ran.status == 0 && ran.err.contains("no task video was listed"), "{ran:?}");
    assert!(bench.run(&["jobs", "dispatch", "-t", "video", "2"]).await.err.is_empty());
    let ran = bench.run(&["status"]).await;
    assert!(ran.out.contains("no worker ever had this task"), "{ran:?}");
}

#[tokio::test]
async fn one_partition_that_stands_still_is_told_of_beside_others_that_go_on() {
    let bench = Bench::of_one_table().await;
    let handler = |_: Context, input: String| async move { Ok::<_, JobError>(input) };
    let spread = bench.app.task("spread", TaskOptions::new().partitions(3), handler).unwrap();
    for at in 0..20 {
        spread.dispatch("x".into()).id(format!("job-{at}")).await.unwrap();
    }
    holds(&bench, &[], Duration::ZERO, Duration::ZERO).await;
    let mut conn = bench.redis().await;
    let mut set = async |key: String, field: &str, value: String| {
        redis::cmd("HSET").arg(key).arg(field).arg(value).query_async::<()>(&mut conn).await.unwrap();
    };
    let presence = format!("cli:worker:{NOBODY}");
    set(presence.clone(), "tasks", "export spread".to_owned()).await;
    set(presence, "slots:spread", "5".to_owned()).await;
    let mut keys = bench.redis().await;
    let metas: Vec<String> = redis::cmd("KEYS").arg("cli:{spread:*}:meta").query_async(&mut keys).await.unwrap();
    let metas: Vec<String> = metas.into_iter().chain(["cli:{spread}:meta".to_owned()]).collect();
    assert_eq!(metas.len(), 3);
    for meta in &metas {
        let payload = meta.replace(":meta", ":payload");
        let ids: Vec<String> = redis::cmd("HKEYS").arg(payload).query_async(&mut keys).await.unwrap();
        for id in ids {
            let since = ms_ago(Duration::from_secs(200)).to_string();
            set(meta.replace(":meta", ":waitingSince"), &id, since).await;
        }
        set(meta.clone(), "fence", (ms_ago(Duration::from_secs(5)) * 1000).to_string()).await;
    }
    let about = |ran: &crate::run::Ran| ran.out.contains("although slots are free");
    let ran = bench.run(&["health"]).await;
    assert!(!about(&ran), "a backlog that moves: {ran:?}");
    set(metas[0].clone(), "fence", (ms_ago(Duration::from_secs(90)) * 1000).to_string()).await;
    let ran = bench.run(&["health"]).await;
    assert!(ran.status == 1 && about(&ran), "{ran:?}");
    assert!(ran.out.contains("! spread: jobs wait in 1 of its 3 partitions, the next one of number "), "{ran:?}");
}

#[tokio::test]
async fn jobs_that_wait_beside_free_slots_or_workers_that_stop_are_told_of() {
    let bench = Bench::of_one_table().await;
    bench.export.dispatch("hold".into()).id("c").await.unwrap();
    let mut conn = bench.redis().await;
    let mut set = async |key: &str, field: &str, value: String| {
        let mut set = redis::cmd("HSET");
        set.arg(format!("cli:{key}")).arg(field).arg(value);
        set.query_async::<()>(&mut conn).await.unwrap();
    };
    holds(&bench, &[], Duration::ZERO, Duration::ZERO).await;
    let claimed = |ago| (ms_ago(Duration::from_secs(ago)) * 1000).to_string();
    set("{export}:waitingSince", "c", ms_ago(Duration::from_secs(200)).to_string()).await;
    set("{export}:meta", "fence", claimed(5)).await;
    assert_eq!(bench.run(&["health"]).await.ok(), "healthy\n", "a backlog that moves");
    set("{export}:meta", "fence", claimed(90)).await;
    let told = "! export: 1 job waiting, the next one for 3m 20s; none was begun for 1m 30s, although slots are free";
    let ran = bench.run(&["health"]).await;
    assert!(ran.status == 1 && ran.out.contains(told), "{ran:?}");
    // All that the worker may hold are of other tasks.
    let presence = format!("worker:{NOBODY}");
    let mail = bench.app.task_ref::<String, u64>("mail").unwrap();
    mail.dispatch("x".into()).await.unwrap().cancel("no").await.unwrap();
    set(&presence, "tasks", "export mail".to_owned()).await;
    set(&presence, "held:mail", "2".to_owned()).await;
    set(&presence, "maxJobs", "2".to_owned()).await;
    assert_eq!(bench.run(&["health"]).await.ok(), "healthy\n");
    set("{export}:waitingSince", "c", ms_ago(Duration::from_secs(400)).to_string()).await;
    let ran = bench.run(&["status"]).await;
    assert!(ran.out.contains("? export: its workers hold all the jobs that they may, by their max_jobs"), "{ran:?}");
    set(&presence, "phase", "stopping".to_owned()).await;
    let ran = bench.run(&["health"]).await;
    assert!(ran.status == 1 && ran.out.contains("export: 1 job waiting, and its workers are all stopping"), "{ran:?}");
    let shown = bench.run(&["jobs", "show", "-t", "export", "c"]).await.out;
    assert!(shown.contains("the workers of its task are all stopping: they claim no more"), "{shown}");
    let checked = bench.run(&["doctor"]).await.out;
    assert!(checked.contains("1 worker is live, 1 of which are stopping"), "{checked}");
}

#[tokio::test]
async fn a_worker_whose_record_is_damaged_hides_no_other_and_is_named() {
    let bench = Bench::of_one_table().await;
    bench.export.dispatch("x".into()).await.unwrap().cancel("no").await.unwrap();
    holds(&bench, &[], Duration::ZERO, Duration::ZERO).await;
    let mut conn = bench.redis().await;
    let seen = ms_ago(Duration::ZERO);
    let () = redis::pipe()
        .zadd("cli:workers", "odd-1-00000000", seen)
        .set("cli:worker:odd-1-00000000", "x")
        .query_async(&mut conn)
        .await
        .unwrap();
    let listed = bench.run(&["workers", "--json"]).await.json();
    let fault =
        |id: &str| listed.as_array().unwrap().iter().find(|worker| worker["worker"] == id).unwrap()["fault"].clone();
    assert!(fault("odd-1-00000000").as_str().unwrap().contains("WRONGTYPE") && fault(NOBODY).is_null(), "{listed}");
    let ran = bench.run(&["health"]).await;
    assert!(ran.status == 1 && ran.out.contains("! the worker odd-1-00000000 cannot be read: "), "{ran:?}");
    assert!(bench.run(&["metrics", "--once"]).await.ok().contains("heartline_up 1"));
}

#[tokio::test]
async fn a_server_that_takes_no_writes_is_told_of() {
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
        ran.status == 1 && ran.out.contains("! it refuses to write: ") && ran.out.contains("NOREPLICAS"),
        "{ran:?}"
    );
    assert!(bench.run(&["doctor"]).await.out.contains("NOREPLICAS"));
    needs(0).await;
    assert_eq!(bench.run(&["health"]).await.ok(), "healthy\n");

    // Whoever cannot tell of itself is not accused, and nobody is to take its jobs.
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
        &["workers", NOBODY],
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
    assert!(cancelled.status == 1 && !cancelled.err.contains("200 jobs more"), "{cancelled:?}");
    let swept = bench.run(&["recover", "sweep", "-t", "export", "-y"]).await;
    assert!(swept.status == 1 && swept.err.contains("NOREPLICAS"), "{swept:?}");
    needs(0).await;
}

/// Tells of stalls at the death of a worker that held these jobs.
async fn died_with(bench: &Bench, worker: &str, ids: &[&str]) {
    died_with_at(bench, "*", worker, ids).await;
}

/// The same at this place of the stream.
async fn died_with_at(bench: &Bench, at: &str, worker: &str, ids: &[&str]) {
    let mut conn = bench.redis().await;
    let stalled: Vec<String> = ids.iter().map(|id| format!("{id} 1 recovered {worker}")).collect();
    let mut add = redis::cmd("XADD");
    add.arg("cli:{export}:stalls").arg(at).arg("total").arg(9).arg("worker").arg("w-1-00000000");
    add.arg("reason").arg("silent").arg("stalled").arg(stalled.join(" "));
    add.query_async::<()>(&mut conn).await.unwrap();
}

#[tokio::test]
async fn of_jobs_that_died_together_none_is_accused_alone_and_none_that_has_ended() {
    let bench = Bench::of_one_table().await;
    let odd = "z-$(touch$IFS/tmp/owned)";
    for id in ["a-good", odd] {
        bench.export.dispatch("hold".into()).id(id).await.unwrap();
    }
    for worker in ["w-2-00000000", "w-3-00000000"] {
        died_with(&bench, worker, &["a-good", odd]).await;
    }
    let status = bench.run(&["status"]).await.out;
    let note = "! export: 2 jobs held at the deaths of two workers or more: a-good, z-$(touch$IFS/tmp/owned)\n";
    assert!(status.contains(note) && status.contains("which of them cannot be told"), "{status}");
    assert!(!status.contains("jobs cancel"), "{status}");
    assert!(
        status.find("! export: 2 jobs held").unwrap() < status.find("! export: 2 jobs waiting").unwrap_or(usize::MAX),
        "{status}"
    );
    assert!(status.contains("before you start another worker"), "{status}");
    assert!(status.contains("    see to its suspects before; no worker ever had this task: start one"), "{status}");
    let taken = "? export: 2 jobs taken back from 2 workers, 4 times in all, the last one ";
    assert!(status.contains(taken) && status.contains("`heartline stalls list -t export` explains each"), "{status}");
    died_with(&bench, "w-4-00000000", &[odd]).await;
    let status = bench.run(&["status"]).await.out;
    let act = "`heartline jobs cancel -t export 'z-$(touch$IFS/tmp/owned)'` ends the most suspicious one";
    assert!(status.contains(act), "{status}");
    bench.declared().await;
    bench.run(&["jobs", "cancel", "-t", "export", odd]).await.ok();
    let listed = bench.run(&["stalls", "suspects", "-t", "export"]).await;
    assert!(listed.out.contains("cancelled") && listed.out.contains("waiting"), "{listed:?}");
    assert!(!listed.err.contains("jobs cancel"), "the other one was there at more of the same deaths: {listed:?}");
    assert!(!bench.run(&["status"]).await.out.contains("deaths"), "nobody is accused of what is explained");
    bench.run(&["jobs", "cancel", "-t", "export", "a-good"]).await.ok();
    let listed = bench.run(&["stalls", "suspects", "-t", "export"]).await;
    assert!(listed.err.contains("None of them may take a worker down now"), "{listed:?}");
    assert!(!bench.run(&["status"]).await.out.contains("deaths"), "what has ended is no trouble");
}

#[tokio::test]
async fn a_task_that_lost_its_last_worker_is_told_of_also_while_nothing_waits() {
    let bench = Bench::of_one_table().await;
    bench.declared().await;
    bench.export.dispatch("x".into()).await.unwrap().cancel("no").await.unwrap();
    holds(&bench, &[], Duration::ZERO, Duration::from_secs(180)).await;
    let ran = bench.run(&["status"]).await;
    let told = "? export: no live worker works it; the last one was seen 3m ago, and did not stop by itself";
    assert!(ran.status == 0 && ran.out.contains(told), "{ran:?}");
    let worker = bench.worker();
    until("it works", async || !bench.run(&["status"]).await.out.contains("no live worker")).await;
    let _ = worker.stop().await.unwrap();
}

#[tokio::test]
async fn a_foreign_column_that_no_look_at_the_task_reads_is_named_by_whatever_fails_of_it() {
    let bench = Bench::of_one_table().await;
    bench.export.dispatch("x".into()).id("a").await.unwrap();
    let mut conn = bench.redis().await;
    let mut set = redis::cmd("SET");
    set.arg("cli:{export}:progress").arg("x").query_async::<()>(&mut conn).await.unwrap();
    let foreign = "cli:{export}:progress is a string and should be a hash";
    for command in ["status", "health", "doctor"] {
        let ran = bench.run(&[command]).await;
        assert!(ran.status == 1 && ran.out.contains(foreign) && ran.out.contains("Do not stop workers"), "{ran:?}");
    }
    let ran = bench.run(&["jobs", "show", "-t", "export", "a"]).await;
    assert!(ran.status == 1 && ran.err.contains(foreign), "{ran:?}");
    let mut del = redis::cmd("DEL");
    del.arg("cli:{export}:progress").query_async::<()>(&mut conn).await.unwrap();
    bench.run(&["jobs", "show", "-t", "export", "a"]).await.ok();
}

#[tokio::test]
async fn who_died_with_a_job_that_has_ended_since_is_as_suspicious_as_that() {
    let bench = Bench::of_one_table().await;
    for id in ["a", "b"] {
        bench.export.dispatch("hold".into()).id(id).await.unwrap();
    }
    for worker in ["w-2-00000000", "w-3-00000000"] {
        died_with(&bench, worker, &["a", "b"]).await;
    }
    bench.declared().await;
    bench.export.handle("b").unwrap().cancel("it was this one").await.unwrap();
    for command in [&["status"][..], &["stalls", "suspects", "-t", "export"]] {
        let ran = bench.run(command).await;
        let out = format!("{}{}", ran.out, ran.err);
        assert!(!out.contains("jobs cancel") && out.contains("or one that has ended since"), "{ran:?}");
    }
}

#[tokio::test]
async fn a_suspect_is_told_of_while_nobody_is_left_whom_it_could_take_down() {
    let bench = Bench::of_one_table().await;
    bench.export.dispatch("hold".into()).id("a").await.unwrap();
    for (at, worker) in ["w-2-00000000", "w-3-00000000"].into_iter().enumerate() {
        let at = format!("{}-{at}", ms_ago(Duration::from_secs(3 * 3600)));
        died_with_at(&bench, &at, worker, &["a"]).await;
    }
    let ran = bench.run(&["status"]).await;
    assert!(ran.out.contains("1 job held at the deaths of two workers or more: a\n"), "{ran:?}");
    // One job alone may be innocent, where something else stops its workers.
    assert!(ran.out.contains("it was alone each time") && ran.out.contains("see what stops the workers"), "{ran:?}");
    holds(&bench, &[], Duration::ZERO, Duration::ZERO).await;
    assert!(
        !bench.run(&["status"]).await.out.contains("held at the deaths"),
        "a worker is there, and that was long ago"
    );
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn how_long_ago_something_was_is_told_by_the_clock_of_the_server() {
    let bench = Bench::of_one_table().await;
    bench.export.dispatch("hold".into()).id("a").await.unwrap();
    for worker in ["w-2-00000000", "w-3-00000000"] {
        died_with(&bench, worker, &["a"]).await;
    }
    for ahead in ["+3h", "-3h"] {
        let ran = bench.run_at(ahead, &["status"]).await;
        assert!(ran.out.contains("1 job held at the deaths of two workers or more: a\n"), "{ahead}: {ran:?}");
        let ran = bench.run_at(ahead, &["stalls", "list", "-t", "export"]).await;
        assert!(
            ran.out.contains("s ago") && !ran.out.contains("h ago") && !ran.out.contains("in 2h"),
            "{ahead}: {ran:?}"
        );
    }
}

#[tokio::test]
async fn the_job_that_took_the_last_worker_down_is_suspected_before_anybody_resolves_it() {
    let bench = Bench::of_one_table().await;
    for id in ["a", "b"] {
        bench.export.dispatch("hold".into()).id(id).await.unwrap();
    }
    died_with(&bench, "w-2-00000000", &["a"]).await;
    holds(&bench, &["a"], Duration::from_secs(60), Duration::from_secs(50)).await;
    let mut conn = bench.redis().await;
    let mut death = redis::cmd("HSET");
    death.arg(format!("cli:worker:{NOBODY}")).arg("deadAt").arg(ms_ago(Duration::from_secs(40)));
    death.arg("deadProof").arg("gone").arg("deadSays").arg("w-9-00000000");
    death.query_async::<()>(&mut conn).await.unwrap();
    let listed = bench.run(&["stalls", "suspects", "-t", "export", "--json"]).await.json();
    assert_eq!((&listed[0]["id"], &listed[0]["deaths"]), (&json!("a"), &json!(2)), "{listed}");
    for command in ["status", "health"] {
        let ran = bench.run(&[command]).await;
        assert!(
            ran.status == 1 && ran.out.starts_with("! export: 1 job held at the deaths") || command == "status",
            "{ran:?}"
        );
        assert!(ran.out.contains("1 job held at the deaths of two workers or more: a\n"), "{ran:?}");
    }
}

#[tokio::test]
async fn a_worker_that_is_gone_and_holds_jobs_is_listed_and_recovered_whatever_its_record_says() {
    let bench = Bench::of_one_table().await;
    let worker = bench.worker();
    until("it works", async || bench.run(&["workers", "--json"]).await.json()[0]["state"] == "live").await;
    let _ = worker.stop().await.unwrap();
    bench.export.dispatch("hold".into()).id("a").await.unwrap();
    holds(&bench, &["a"], Duration::from_secs(9000), Duration::from_secs(8000)).await;
    let listed = bench.run(&["workers"]).await.ok();
    assert!(listed.contains(NOBODY) && listed.contains("gone") && listed.contains("export 1/2"), "{listed}");
    let shown = bench.run(&["task", "show", "export"]).await.ok();
    assert!(shown.contains("1 held; none was looked at yet") && shown.contains("! export: 1 job held by"), "{shown}");
    // Something foreign under its key, and it is in no list any more.
    let mut conn = bench.redis().await;
    let key = format!("cli:worker:{NOBODY}");
    let mut pipe = redis::pipe();
    pipe.del(&key).ignore().set(&key, "x").ignore().zrem("cli:workers", NOBODY).ignore();
    let () = pipe.query_async(&mut conn).await.unwrap();
    assert!(bench.run(&["status"]).await.out.contains("1 job held by"), "it hides nothing");
    let ran = bench.run(&["--yes", "recover", "worker", NOBODY]).await.ok();
    assert!(ran.contains("export"), "{ran}");
    assert_eq!(bench.export.counts().await.unwrap().running, 0);
}

#[tokio::test]
async fn a_foreign_value_is_named_and_what_is_asked_for_without_a_state_is_counted() {
    let bench = Bench::of_one_table().await;
    bench.export.dispatch("x".into()).id("a").await.unwrap();
    let counted = bench.run(&["jobs", "list", "-t", "export"]).await.ok();
    assert!(counted.contains("waiting") && counted.contains("cancelled"), "{counted}");
    let listed = bench.run(&["jobs", "list", "-t", "export", "-s", "waiting"]).await;
    assert!(listed.err.contains("the next one first") || listed.out.contains("the next one first"), "{listed:?}");
    let () = redis::cmd("SET").arg("cli:{export}:failed").arg("x").query_async(&mut bench.redis().await).await.unwrap();
    let named = "cli:{export}:failed is a string and should be a zset";
    for args in [&["doctor"][..], &["status"], &["audit", "-t", "export"]] {
        let ran = bench.run(args).await;
        assert!(ran.status == 1 && format!("{}{}", ran.out, ran.err).contains(named), "{args:?}: {ran:?}");
    }
    for args in [&["tasks"][..], &["tasks", "--json"]] {
        assert_eq!(bench.run(args).await.status, 1, "{args:?}");
    }
}

#[tokio::test]
async fn a_watch_is_broken_until_a_whole_interval_has_passed() {
    let bench = Bench::of_one_table().await;
    bench.export.dispatch("x".into()).await.unwrap().cancel("no").await.unwrap();
    holds(&bench, &[], Duration::ZERO, Duration::ZERO).await;
    let mut conn = bench.redis().await;
    for (ago, told) in [(2000, "broken 2"), (20_000, "ok (no_answer 20")] {
        // The epoch has just begun each time: of that it says nothing.
        let watch = format!("3 100 5000 no_answer {ago}");
        let mut tell = redis::cmd("HSET");
        tell.arg(format!("cli:worker:{NOBODY}")).arg("watch:export").arg(watch);
        tell.query_async::<()>(&mut conn).await.unwrap();
        let listed = bench.run(&["workers"]).await.ok();
        assert!(listed.contains(told), "{listed}");
    }
}

#[tokio::test]
async fn what_is_foreign_across_tasks_is_named_and_hides_no_task() {
    let bench = Bench::new().await;
    bench.export.dispatch("x".into()).id("a").await.unwrap();
    let mut conn = bench.redis().await;
    let mut run = async |words: &[&str]| {
        let mut cmd = redis::cmd(words[0]);
        cmd.arg(&words[1..]).query_async::<()>(&mut conn).await.unwrap();
    };
    run(&["ZADD", "cli:tasks", "1", "x; touch y #"]).await;
    let ran = bench.run(&["status"]).await;
    assert!(ran.out.contains("it is no name of a task") && ran.out.contains("ZREM KEY 'x; touch y #'"), "{ran:?}");
    assert!(!ran.out.contains("-t x;"), "nobody is to run it: {ran:?}");
    let ran = bench.run(&["audit"]).await;
    assert!(
        ran.status == 1 && ran.out.contains("export: 1 job looked at") && ran.err.contains("is no name"),
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
async fn a_job_that_somebody_retries_while_the_question_stands_is_not_removed() {
    let bench = Bench::new().await;
    let worker = bench.worker();
    let _ = bench.export.dispatch("fail".into()).id("a").await.unwrap().result().await;
    let _ = worker.stop().await.unwrap();
    let mut asked = bench.on_terminal("jobs remove -t export a");
    asked.until("Go on? [y/N]").await;
    assert!(asked.shown().contains("remove 1 job of export for good (1 failed)"), "{}", asked.shown());
    bench.run(&["jobs", "retry", "-t", "export", "a"]).await.ok();
    asked.say("y\n");
    asked.until("1 refused").await;
    assert!(asked.shown().contains("it moved meanwhile"), "{}", asked.shown());
    assert_eq!(bench.export.counts().await.unwrap().waiting, 1);
}

#[tokio::test]
async fn a_worker_that_claims_jobs_and_cannot_tell_of_itself_is_not_given_up_by_a_script() {
    let bench = Bench::of_one_table().await;
    bench.export.dispatch("hold".into()).id("a").await.unwrap();
    holds(&bench, &["a"], Duration::from_secs(5), Duration::from_secs(90)).await;
    let ran = bench.run(&["--yes", "recover", "worker", NOBODY]).await;
    assert!(ran.status != 0 && ran.err.contains("MOST LIKELY ALIVE, since it claimed a job"), "{ran:?}");
    bench.export.dispatch("x".into()).id("b").await.unwrap();
    let mute = format!("1 job held by {NOBODY}, which works, and cannot tell of itself: it claimed a job ");
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
        for accusation in ["dead, frozen", "no live worker works it", "if it is dead"] {
            assert!(!shown.contains(accusation), "{look:?} {accusation} {ran:?}");
        }
    }
    assert_eq!(bench.export.counts().await.unwrap().running, 1);
}

#[tokio::test]
async fn jobs_that_fail_and_are_tried_again_while_none_completes_are_told_of() {
    let bench = Bench::new().await;
    let worker = bench.worker();
    let slowly = RetryPolicy::new().attempts(2).fixed(Duration::from_secs(3600));
    bench.export.dispatch("again".into()).id("a").retry(slowly).await.unwrap();
    bench.export.dispatch("x".into()).id("later").delay(Duration::from_secs(3600)).await.unwrap();
    until("it is tried again later", async || bench.export.counts().await.unwrap().delayed == 2).await;
    let status = bench.run(&["status"]).await;
    assert!(status.out.contains("2 delayed, "), "{status:?}");
    let told =
        "1 of the next 2 tried again after a failed run, the first with disk: no space left; the last run failed ";
    assert!(status.out.contains(told) && status.out.contains("the last one completed never"), "{status:?}");
    let _ = worker.stop().await.unwrap();
}

#[tokio::test]
async fn a_live_worker_whose_presence_cannot_be_read_is_not_taken_for_gone() {
    let bench = Bench::new().await;
    bench.export.dispatch("hold".into()).id("a").await.unwrap();
    let worker = bench.worker();
    until("it tells that it holds it", async || bench.run(&["workers"]).await.ok().contains("export 1/10")).await;
    let id = bench.run(&["workers", "--json"]).await.json()[0]["worker"].as_str().unwrap().to_owned();
    let mut conn = bench.redis().await;
    // Its next word is refused, and the list still has when it was seen.
    let () = redis::pipe()
        .del(format!("cli:worker:{id}"))
        .set(format!("cli:worker:{id}"), "x")
        .query_async(&mut conn)
        .await
        .unwrap();
    let ran = bench.run(&["recover", "worker", &id, "-y"]).await;
    assert!(
        ran.status == 2 && ran.err.contains("has a presence that cannot be read; IT IS MOST LIKELY ALIVE"),
        "{ran:?}"
    );
    let shown = bench.run(&["recover", "worker", &id]).await;
    assert!(shown.err.contains("1 of export") && !shown.err.contains("years"), "{shown:?}");
    assert_eq!(bench.export.job("a").await.unwrap().state, heartline::JobState::Running);
    bench.open();
    let _ = worker.stop().await.unwrap();
}

#[tokio::test]
async fn a_server_that_lost_its_data_is_told_of_and_so_is_why_a_job_waits() {
    let bench = Bench::new().await;
    bench.export.dispatch("x".into()).id("before").await.unwrap();
    let worker = bench.worker();
    until("it works", async || bench.export.counts().await.unwrap().completed == 1).await;
    assert_eq!(bench.run(&["health"]).await.status, 0);
    let mut conn = bench.redis().await;
    let () = redis::cmd("FLUSHALL").query_async(&mut conn).await.unwrap();
    until("it declares the task anew", async || bench.run(&["health"]).await.out.contains("the server lost its data"))
        .await;
    let told = bench.run(&["metrics", "--once"]).await.ok();
    assert!(told.contains("heartline_data_lost_age_seconds{task=\"export\"}"), "{told}");
    // Also where one that has just started is the first to declare the task again.
    let () = redis::cmd("FLUSHALL").query_async(&mut conn).await.unwrap();
    let second = bench.worker();
    until("the older one tells of itself", async || {
        bench.run(&["health"]).await.out.contains("the server lost its data")
    })
    .await;
    let _ = second.stop().await.unwrap();
    let _ = worker.stop().await.unwrap();

    bench.export.dispatch("x".into()).id("late").delay(Duration::from_millis(1)).await.unwrap();
    let shows = async |what: &str| {
        until(what, async || bench.run(&["jobs", "show", "-t", "export", "late"]).await.ok().contains(what)).await;
    };
    shows("! no live worker works its task").await;
    let told = bench.run(&["status"]).await.out;
    assert!(
        told.contains("? export: 1 job waiting (1 of them due, among the delayed), and no live worker works it"),
        "it has just stopped: {told}"
    );
    bench.run(&["task", "pause", "export", "--reason", "disk full"]).await.ok();
    shows("! its task is paused by ada (disk full)").await;
    let told = bench.run(&["status"]).await.out;
    assert!(told.contains("! export: it is paused by ada (disk full), and 1 job waiting"), "{told}");
    let told = bench.run(&["metrics", "--once"]).await.ok();
    assert!(told.contains("heartline_jobs_due{task=\"export\"} 1"), "{told}");
}

#[tokio::test]
async fn a_job_that_took_its_workers_down_is_asked_about_before_it_runs_again() {
    let bench = Bench::of_one_table().await;
    bench.export.dispatch("x".into()).id("bad").await.unwrap();
    let mut conn = bench.redis().await;
    let error = r#"{"code":"worker_crashed","message":"its workers died"}"#;
    let mut pipe = redis::pipe();
    pipe.lrem("cli:{export}:wait", 0, "bad").ignore().zadd("cli:{export}:failed", "bad", 1).ignore();
    pipe.hset("cli:{export}:error", "bad", error).ignore().hset("cli:{export}:stalledCount", "bad", 2).ignore();
    let () = pipe.query_async(&mut conn).await.unwrap();
    let ran = bench.run(&["jobs", "retry", "-t", "export", "bad"]).await;
    assert!(
        ran.status == 2 && ran.err.contains("run 1 job again that was held when workers died; pass --yes"),
        "{ran:?}"
    );
    assert_eq!(bench.export.counts().await.unwrap().failed, 1);
    let ran = bench.run(&["jobs", "retry", "-t", "export", "bad", "-y"]).await;
    assert!(ran.status == 0 && ran.err.contains("since 2 workers died, or hung, with it"), "{ran:?}");
}

#[tokio::test]
async fn jobs_that_are_in_no_place_are_told_of_at_once() {
    let bench = Bench::of_one_table().await;
    for id in ["a", "b", "c"] {
        bench.export.dispatch("hold".into()).id(id).await.unwrap();
    }
    let mut conn = bench.redis().await;
    redis::cmd("DEL").arg("cli:{export}:wait").query_async::<()>(&mut conn).await.unwrap();
    for command in ["status", "health", "doctor"] {
        let ran = bench.run(&[command]).await;
        let told = "export: 3 jobs in no place: nobody works them, and nobody is told how they ended";
        assert!(
            ran.status == 1 && ran.out.contains(told) && ran.out.contains("`heartline repair -t export`"),
            "{ran:?}"
        );
    }
    bench.run(&["repair", "-t", "export", "-y"]).await.ok();
    assert!(!bench.run(&["status"]).await.out.contains("in no place"));
}

#[tokio::test]
async fn options_that_were_lost_alone_take_a_pause_with_them_which_is_told() {
    let bench = Bench::of_one_table().await;
    let worker = bench.worker();
    bench.export.dispatch("x".into()).await.unwrap().result().await.unwrap();
    bench.run(&["task", "pause", "export"]).await.ok();
    let mut conn = bench.redis().await;
    redis::cmd("DEL").arg("cli:{export}:meta").query_async::<()>(&mut conn).await.unwrap();
    until("it is told", async || {
        let ran = bench.run(&["status"]).await;
        ran.out.contains("? export: its options and counters were lost ")
            && ran.out.contains("pause it again if it was")
    })
    .await;
    let _ = worker.stop().await.unwrap();
}

#[tokio::test]
async fn jobs_that_the_next_worker_would_let_fail_are_told_of_before_anybody_starts_one() {
    let bench = Bench::of_one_table().await;
    // Its options say how often a job may stall.
    let worker = bench.worker();
    until("it works", async || bench.run(&["workers", "--json"]).await.json()[0]["state"] == "live").await;
    let _ = worker.stop().await.unwrap();
    for id in ["a", "b"] {
        bench.export.dispatch("hold".into()).id(id).await.unwrap();
    }
    holds(&bench, &["a", "b"], Duration::from_secs(90), Duration::from_secs(40)).await;
    let status = bench.run(&["status"]).await.out;
    assert!(!status.contains("WILL FAIL"), "{status}");
    let mut conn = bench.redis().await;
    let mut stalled = redis::cmd("HSET");
    stalled.arg("cli:{export}:stalledCount").arg("a").arg(1);
    stalled.query_async::<()>(&mut conn).await.unwrap();
    let status = bench.run(&["status"]).await.out;
    let told = "? export: 1 job held by workers that are not live WILL FAIL by `recover worker`";
    let again = "; `heartline recover running -t export --all` lets them run again once they were silent";
    assert!(status.contains(told) && status.contains(again), "{status}");
    let mut sweeps = redis::cmd("HSET");
    sweeps.arg("cli:{export}:meta").arg("patience").arg("").query_async::<()>(&mut conn).await.unwrap();
    let status = bench.run(&["status"]).await.out;
    let told = "1 job held by workers that are not live WILL FAIL when taken back";
    assert!(
        status.contains(&format!("! export: {told}"))
            && status
                .contains("before a worker starts, `heartline recover running -t export --all` lets them run again"),
        "{status}"
    );
    assert!(bench.run(&["health"]).await.out.contains(told));
    for command in [
        ["stalls", "outlook", "-t", "export"],
        ["recover", "silent", "-t", "export"],
        ["recover", "sweep", "-t", "export"],
    ] {
        let ran = bench.run(&command).await;
        assert!(ran.err.contains(told), "{ran:?}");
    }
    let ran = bench.run(&["workers", NOBODY]).await;
    assert!(ran.err.contains(told) && ran.out.contains("lets those fail that stalled as often as they may"), "{ran:?}");
    let shown = bench.run(&["jobs", "show", "-t", "export", "a"]).await.ok();
    assert!(shown.contains("IT WILL FAIL") && shown.contains("`heartline recover running -t export a`"), "{shown}");
    assert!(!bench.run(&["jobs", "show", "-t", "export", "b"]).await.ok().contains("WILL FAIL"));
}

#[tokio::test]
async fn a_live_worker_may_let_them_fail_whatever_a_person_does() {
    let bench = Bench::of_one_table().await;
    bench.export.dispatch("hold".into()).id("a").await.unwrap();
    holds(&bench, &["a"], Duration::from_secs(90), Duration::from_secs(40)).await;
    let (mut conn, mut pipe) = (bench.redis().await, redis::pipe());
    pipe.hset("cli:{export}:stalledCount", "a", 1).ignore().hset("cli:{export}:meta", "maxCount", 1).ignore();
    // A worker that lives, and has not swept yet.
    let (live, now) = ("web-8-4711-0f3a9c21", ms_ago(Duration::ZERO));
    pipe.zadd("cli:workers", live, now).ignore();
    let facts = [("tasks", "export"), ("held:export", "0"), ("slots:export", "2"), ("lastSeenAt", &now.to_string())];
    pipe.hset_multiple(format!("cli:worker:{live}"), &facts).ignore();
    let () = pipe.query_async(&mut conn).await.unwrap();
    let status = bench.run(&["status"]).await.out;
    let told = "a live worker will take them back, about as soon as a person could";
    assert!(
        status.contains(told) && status.contains("`heartline jobs retry -t export ID` lets them run again"),
        "{status}"
    );
}

#[tokio::test]
async fn a_job_that_waits_in_no_list_and_one_without_payload_are_told_of() {
    let bench = Bench::of_one_table().await;
    for id in ["a", "b", "c"] {
        bench.export.dispatch("x".into()).id(id).await.unwrap();
    }
    let mut conn = bench.redis().await;
    redis::cmd("LREM").arg("cli:{export}:wait").arg(0).arg("a").query_async::<()>(&mut conn).await.unwrap();
    let shown = bench.run(&["jobs", "show", "-t", "export", "a"]).await.ok();
    assert!(shown.contains("in no list, and it may be this one"), "{shown}");
    let told = bench.run(&["metrics", "--once"]).await.ok();
    assert!(told.contains("heartline_jobs_nowhere{task=\"export\"} 1"), "{told}");
    redis::cmd("HDEL").arg("cli:{export}:payload").arg(&["a", "b"]).query_async::<()>(&mut conn).await.unwrap();
    let status = bench.run(&["status"]).await.out;
    assert!(
        status.contains("! export: 1 job without payload, 1 of the first 2 that wait among them, b for one")
            && !status.contains("in no place"),
        "{status}"
    );
}

#[tokio::test]
async fn a_clean_stop_behind_a_crash_is_no_loss_of_the_last_worker() {
    let bench = Bench::of_one_table().await;
    bench.export.dispatch("x".into()).await.unwrap().cancel("no").await.unwrap();
    holds(&bench, &[], Duration::ZERO, Duration::from_secs(180)).await;
    let worker = bench.worker();
    until("it works", async || !bench.run(&["status"]).await.out.contains("no live worker")).await;
    let _ = worker.stop().await.unwrap();
    let ran = bench.run(&["status"]).await;
    assert!(!ran.out.contains("no live worker"), "{ran:?}");
    assert!(bench.run(&["workers", "--all"]).await.ok().contains("gone: it said that it stopped"));
}

#[tokio::test]
async fn a_backlog_that_moves_is_no_job_that_hangs() {
    let bench = Bench::of_one_table().await;
    for id in ["a", "b", "c"] {
        bench.export.dispatch("hold".into()).id(id).await.unwrap();
    }
    let mut conn = bench.redis().await;
    let mut set = redis::cmd("HSET");
    set.arg("cli:{export}:waitingSince").arg("c").arg(ms_ago(Duration::from_secs(500)));
    set.query_async::<()>(&mut conn).await.unwrap();
    holds(&bench, &["a", "b"], Duration::from_secs(2), Duration::ZERO).await;
    let ran = bench.run(&["status"]).await;
    let told = "? export: 1 job waiting, the next one for 8m 20s, while all slots are taken and jobs are begun";
    assert!(
        ran.status == 0 && ran.out.contains(told) && ran.out.contains("more workers, or a larger concurrency"),
        "{ran:?}"
    );
    assert!(!ran.out.contains("jobs cancel"), "{ran:?}");
}

#[tokio::test]
async fn of_a_paused_task_and_of_a_cancelled_job_suspicion_says_so() {
    let bench = Bench::of_one_table().await;
    for id in ["a", "b"] {
        bench.export.dispatch("hold".into()).id(id).await.unwrap();
    }
    for worker in ["w-2-00000000", "w-3-00000000"] {
        died_with(&bench, worker, &["a", "b"]).await;
    }
    assert!(
        bench
            .run(&["health"])
            .await
            .out
            .contains("before you start another worker: not each of these deaths is proven")
    );
    bench.run(&["task", "pause", "export"]).await.ok();
    let status = bench.run(&["status"]).await.out;
    assert!(status.contains("it is paused, and none of them begins") && !status.contains("task pause"), "{status}");
    assert!(status.contains("`heartline task resume export` when that worker is the only one"), "{status}");
    let shown = bench.run(&["jobs", "show", "-t", "export", "a"]).await.ok();
    assert!(
        shown.contains("its task is paused")
            && shown.contains("see to its suspects before; that was ")
            && status.contains("see to its suspects before; that was "),
        "{shown} {status}"
    );
    bench.run(&["task", "resume", "export"]).await.ok();
    let shown = bench.run(&["jobs", "show", "-t", "export", "a"]).await.ok();
    assert!(shown.contains("see to its suspects before; "), "{shown}");
    // One that is held, and whose cancel is asked for, takes nobody down any more.
    holds(&bench, &["a", "b"], Duration::from_secs(60), Duration::from_secs(50)).await;
    for command in [["stalls", "outlook"], ["recover", "silent"]] {
        let ran = bench.run(&[command[0], command[1], "-t", "export"]).await;
        assert!(ran.err.contains("2 jobs held at the deaths of two workers or more: a, b"), "{ran:?}");
    }
    bench.run(&["jobs", "cancel", "-t", "export", "a", "b"]).await.ok();
    let status = bench.run(&["status"]).await.out;
    assert!(!status.contains("at the deaths"), "{status}");
}

#[tokio::test]
async fn a_worker_that_can_start_no_program_is_told_of_beside_jobs_that_complete() {
    let bench = Bench::of_one_table().await;
    let (started, noted) = (Arc::new(AtomicUsize::new(0)), "the program cannot be started: No such file or directory");
    let handler = move |ctx: Context, input: String| {
        let started = Arc::clone(&started);
        async move {
            if input == "x" {
                return Ok::<(), JobError>(());
            }
            ctx.progress("put off", noted)?;
            let long = if started.fetch_add(1, Ordering::SeqCst) < 3 { 0 } else { 3600 };
            Err(JobError::snooze(Duration::from_secs(long)))
        }
    };
    let script = bench.app.task("script", TaskOptions::new(), handler).unwrap();
    let worker = bench.app.worker().only(["script"]).unwrap().spawn();
    script.dispatch("x".into()).await.unwrap().result().await.unwrap();
    script.dispatch("gone".into()).id("gone").await.unwrap();
    until("it is told", async || {
        let ran = bench.run(&["health"]).await;
        let ran = (ran.status, bench.run(&["status"]).await.out);
        ran.0 == 0 && ran.1.contains(&format!("? script: a worker puts each job off that it gets: {noted}"))
    })
    .await;
    let _ = worker.stop().await.unwrap();
}

#[tokio::test]
async fn a_job_whose_cancel_was_asked_for_is_none_that_will_fail() {
    let bench = Bench::of_one_table().await;
    for id in ["a", "b"] {
        bench.export.dispatch("hold".into()).id(id).await.unwrap();
    }
    holds(&bench, &["a", "b"], Duration::from_secs(90), Duration::from_secs(40)).await;
    let (mut conn, mut pipe) = (bench.redis().await, redis::pipe());
    pipe.hset("cli:{export}:stalledCount", "a", 1).ignore().hset("cli:{export}:stalledCount", "b", 1).ignore();
    pipe.hset("cli:{export}:meta", "maxCount", 1).ignore();
    let () = pipe.query_async(&mut conn).await.unwrap();
    assert!(bench.run(&["status"]).await.out.contains("! export: 2 jobs held by workers that are not live WILL FAIL"));
    bench.run(&["jobs", "cancel", "-t", "export", "a"]).await.ok();
    assert!(bench.run(&["status"]).await.out.contains("! export: 1 job held by workers that are not live WILL FAIL"));
    let shown = bench.run(&["jobs", "show", "-t", "export", "a"]).await.ok();
    assert!(!shown.contains("WILL FAIL"), "{shown}");
    let told = bench.run(&["jobs", "show", "-t", "export", "b", "--json"]).await.json();
    assert!(told["trouble"]["what"].as_str().unwrap().contains("IT WILL FAIL"), "{told}");
}

#[tokio::test]
async fn an_outage_is_a_risk_while_its_jobs_are_still_tried_again() {
    let bench = Bench::new().await;
    let worker = bench.worker();
    let slowly = RetryPolicy::new().attempts(3).fixed(Duration::from_secs(3600));
    for at in 0..25 {
        bench.export.dispatch("again".into()).id(format!("job-{at}")).retry(slowly.clone()).await.unwrap();
    }
    bench.export.dispatch("x".into()).id("later").delay(Duration::from_secs(60)).await.unwrap();
    until("all are tried again later", async || bench.export.counts().await.unwrap().delayed == 26).await;
    for command in ["health", "status", "doctor"] {
        let ran = bench.run(&[command]).await;
        assert!(ran.status == 1 && ran.out.contains("26 jobs delayed, 25 of the next 26 tried again"), "{ran:?}");
    }
    let _ = worker.stop().await.unwrap();
}

#[tokio::test]
async fn payloads_of_jobs_that_have_ended_are_no_risk() {
    let bench = Bench::of_one_table().await;
    let worker = bench.worker();
    let _ = bench.export.dispatch("x".into()).id("done").await.unwrap().result().await.unwrap();
    bench.export.dispatch("x".into()).id("later").delay(Duration::from_secs(3600)).await.unwrap();
    let mut conn = bench.redis().await;
    redis::cmd("HDEL").arg("cli:{export}:payload").arg("done").query_async::<()>(&mut conn).await.unwrap();
    let ran = bench.run(&["status"]).await;
    let told = "? export: 1 job without payload, none of the first 1 that wait among them";
    assert!(ran.status == 0 && ran.out.contains(told), "{ran:?}");
    let _ = worker.stop().await.unwrap();
}

/// Makes it look as if a run of `export` had ended so this long ago: `lastCompletedAt` or `lastFailedAt`.
async fn ended_ago(bench: &Bench, field: &str, ago: Duration) {
    let mut conn = bench.redis().await;
    redis::cmd("HSET").arg("cli:{export}:meta").arg(field).arg(ms_ago(ago)).query_async::<()>(&mut conn).await.unwrap();
}

/// Jobs that all failed once, and are tried again in an hour.
async fn tried_again(bench: &Bench, count: u64) {
    let slowly = RetryPolicy::new().attempts(3).fixed(Duration::from_secs(3600));
    for at in 0..count {
        bench.export.dispatch("again".into()).id(format!("job-{at}")).retry(slowly.clone()).await.unwrap();
    }
    until("all are tried again later", async || bench.export.counts().await.unwrap().delayed >= count).await;
}

#[tokio::test]
async fn a_few_retries_behind_the_end_of_a_burst_are_no_outage() {
    let bench = Bench::of_one_table().await;
    let worker = bench.worker();
    tried_again(&bench, 22).await;
    let done: Vec<String> = (0..60).map(|at| format!("done-{at}")).collect();
    for job in bench.export.dispatch_many_with_ids(done.iter().map(|id| (id.clone(), "x".to_owned()))).await.unwrap() {
        let _ = job.result().await.unwrap();
    }
    let told = bench.run(&["status"]).await;
    assert!(told.status == 0 && told.out.contains("? export: 22 jobs delayed"), "{told:?}");
    // Long after it, when nothing but those runs.
    ended_ago(&bench, "lastCompletedAt", Duration::from_secs(3000)).await;
    let told = bench.run(&["status"]).await;
    assert!(told.status == 0 && told.out.contains("the last one completed 50m"), "{told:?}");
    let _ = worker.stop().await.unwrap();
}

#[tokio::test]
async fn a_batch_that_fails_on_and_on_behind_a_few_that_completed_is_an_outage() {
    let bench = Bench::of_one_table().await;
    let worker = bench.worker();
    for _ in 0..10 {
        let _ = bench.export.dispatch("x".into()).await.unwrap().result().await.unwrap();
    }
    tried_again(&bench, 25).await;
    let told = bench.run(&["health"]).await;
    assert!(told.status == 1 && told.out.contains("! export: 25 jobs delayed"), "{told:?}");
    let _ = worker.stop().await.unwrap();
}

#[tokio::test]
async fn a_job_for_later_among_those_that_fail_hides_no_outage() {
    let bench = Bench::of_one_table().await;
    let worker = bench.worker();
    for _ in 0..100 {
        let _ = bench.export.dispatch("x".into()).await.unwrap().result().await.unwrap();
    }
    bench.export.dispatch("x".into()).delay(Duration::from_secs(60)).await.unwrap();
    let slowly = RetryPolicy::new().attempts(3).fixed(Duration::from_secs(3600));
    for at in 0..150 {
        bench.export.dispatch("again".into()).id(format!("job-{at}")).retry(slowly.clone()).await.unwrap();
    }
    until("all are tried again later", async || bench.export.counts().await.unwrap().delayed == 151).await;
    let told = bench.run(&["health"]).await;
    assert!(told.status == 1 && told.out.contains("99 of the next 100 tried again"), "{told:?}");
    let _ = worker.stop().await.unwrap();
}

#[tokio::test]
async fn an_outage_does_not_end_when_what_completed_is_kept_no_more() {
    let bench = Bench::of_one_table().await;
    let worker = bench.worker();
    for at in 0..5 {
        let _ = bench.export.dispatch("x".into()).id(format!("done-{at}")).await.unwrap().result().await.unwrap();
    }
    tried_again(&bench, 25).await;
    // Retention took all but one.
    let mut conn = bench.redis().await;
    let gone: [String; 4] = std::array::from_fn(|at| format!("done-{at}"));
    let () = redis::cmd("ZREM").arg("cli:{export}:completed").arg(&gone).query_async(&mut conn).await.unwrap();
    let told = bench.run(&["health"]).await;
    assert!(told.status == 1 && told.out.contains("! export: 25 jobs delayed"), "{told:?}");
    let _ = worker.stop().await.unwrap();
}

#[tokio::test]
async fn an_outage_is_seen_where_hardly_a_failed_job_is_recent() {
    let bench = Bench::of_one_table().await;
    let worker = bench.worker();
    for at in 0..25 {
        let _ = bench.export.dispatch("fail".into()).id(format!("bad-{at}")).await.unwrap().result().await;
    }
    let (mut conn, mut pipe) = (bench.redis().await, redis::pipe());
    for at in 0..24 {
        pipe.zadd("cli:{export}:failed", format!("bad-{at}"), ms_ago(Duration::from_secs(3600))).ignore();
    }
    let () = pipe.query_async(&mut conn).await.unwrap();
    let told = bench.run(&["health"]).await;
    assert!(told.out.contains("! export: 1 job failed in the last 5 minutes; THE LAST 25 ALL FAILED"), "{told:?}");
    let _ = worker.stop().await.unwrap();
}

#[tokio::test]
async fn an_outage_is_seen_where_no_completed_job_is_kept_and_none_waits_for_its_next_try() {
    let bench = Bench::of_one_table().await;
    let worker = bench.worker();
    let _ = bench.export.dispatch("x".into()).id("done").await.unwrap().result().await.unwrap();
    tried_again(&bench, 25).await;
    bench.run(&["-y", "task", "purge", "export", "--state", "completed"]).await.ok();
    bench.run(&["-y", "task", "purge", "export", "--state", "delayed"]).await.ok();
    for at in 0..22 {
        let _ = bench.export.dispatch("fail".into()).id(format!("bad-{at}")).await.unwrap().result().await;
    }
    let told = bench.run(&["health"]).await;
    assert!(told.status == 1 && told.out.contains("! export: 22 jobs failed in the last 5 minutes"), "{told:?}");
    // Nobody can say that they are over until one completes, or what failed is cleared away.
    bench.run(&["-y", "task", "purge", "export", "--state", "failed"]).await.ok();
    assert_eq!(bench.run(&["health"]).await.status, 0);
    let _ = worker.stop().await.unwrap();
}

#[tokio::test]
async fn jobs_that_wait_for_slots_behind_long_runs_are_no_outage_for_a_few_that_fail() {
    let bench = Bench::of_one_table().await;
    let worker = bench.worker();
    tried_again(&bench, 5).await;
    for _ in 0..40 {
        bench.export.dispatch("hold".into()).await.unwrap();
    }
    until("all slots are taken", async || bench.export.counts().await.unwrap().running > 0).await;
    let ran = bench.run(&["health"]).await;
    assert_eq!(ran.status, 0, "{ran:?}");
    bench.open();
    let _ = worker.stop().await.unwrap();
}

#[tokio::test]
async fn jobs_that_put_themselves_off_are_not_told_to_fail_for_a_failure_of_long_ago() {
    let bench = Bench::of_one_table().await;
    let worker = bench.worker();
    let quickly = RetryPolicy::new().attempts(3).fixed(Duration::from_millis(1));
    for at in 0..25 {
        bench.export.dispatch("polls".into()).id(format!("job-{at}")).retry(quickly.clone()).await.unwrap();
    }
    let snoozed = async || {
        let jobs = (0..25).map(|at| bench.export.job(format!("job-{at}")));
        let jobs = futures_util::future::join_all(jobs).await;
        jobs.into_iter().all(|job| job.unwrap().snoozed_count > 0)
    };
    until("all put themselves off", snoozed).await;
    ended_ago(&bench, "lastFailedAt", Duration::from_secs(3600)).await;
    let ran = bench.run(&["status"]).await;
    assert!(ran.status == 0 && !ran.out.contains("tried again after a failed run"), "{ran:?}");
    let _ = worker.stop().await.unwrap();
}

#[tokio::test]
async fn an_outage_is_found_beside_many_tasks_with_a_job_for_tomorrow() {
    let bench = Bench::of_one_table().await;
    let worker = bench.worker();
    tried_again(&bench, 25).await;
    for at in 0..60 {
        let task = bench.app.task_ref::<String, ()>(&format!("cron-{at}")).unwrap();
        task.dispatch("x".into()).delay(Duration::from_secs(86_400)).await.unwrap();
    }
    let ran = bench.run(&["health"]).await;
    assert!(ran.status == 1 && ran.out.contains("! export: 25 jobs delayed"), "{ran:?}");
    let _ = worker.stop().await.unwrap();
}

#[tokio::test]
async fn an_outage_is_seen_where_all_that_failed_waits_again() {
    let bench = Bench::of_one_table().await;
    bench.export.dispatch_many_with_ids((0..25).map(|at| (format!("job-{at}"), "x".to_owned()))).await.unwrap();
    let (mut conn, mut pipe) = (bench.redis().await, redis::pipe());
    for at in 0..25 {
        pipe.hset("cli:{export}:attempt", format!("job-{at}"), 1).ignore();
    }
    pipe.hset("cli:{export}:meta", "failedSinceCompleted", 25).ignore();
    let () = pipe.query_async(&mut conn).await.unwrap();
    ended_ago(&bench, "lastFailedAt", Duration::ZERO).await;
    let told = bench.run(&["health"]).await;
    assert!(told.out.contains("! export: 25 waiting jobs, 25 of the last 25 back after a failed run"), "{told:?}");
}

#[tokio::test]
async fn inputs_that_no_worker_can_read_say_to_deploy_workers() {
    let bench = Bench::of_one_table().await;
    let worker = bench.worker();
    let other = bench.app.task_ref::<u64, u64>("export").unwrap();
    for at in 0..25 {
        other.dispatch(5).id(format!("job-{at}")).await.unwrap();
    }
    until("all are put off", async || bench.export.counts().await.unwrap().delayed == 25).await;
    let told = bench.run(&["health"]).await;
    let what = "! export: 25 jobs delayed, since no worker can read the payload: a producer is newer than its workers";
    assert!(told.status == 1 && told.out.contains(what) && told.out.contains("deploy the workers"), "{told:?}");
    assert!(!told.out.contains("ALL FAILED") && !told.out.contains("task pause"), "{told:?}");
    let told = bench.run(&["health", "--json"]).await.json();
    let diagnoses: Vec<&serde_json::Value> =
        told["troubles"].as_array().unwrap().iter().filter_map(|trouble| trouble.get("diagnosis")).collect();
    assert_eq!(diagnoses, [&serde_json::json!({ "kind": "newer_producer", "task": "export", "jobs": 25 })]);
    let _ = worker.stop().await.unwrap();
}

#[tokio::test]
async fn an_outage_stays_one_when_nothing_comes_any_more_and_whatever_is_kept() {
    let bench = Bench::of_one_table().await;
    let worker = bench.worker();
    // It has declared its options.
    let _ = bench.export.dispatch("x".into()).await.unwrap().result().await;
    let mut conn = bench.redis().await;
    let mut set = async |field: &str, value: &str| {
        let set = redis::cmd("HSET").arg("cli:{export}:meta").arg(field).arg(value).clone();
        set.query_async::<()>(&mut conn).await.unwrap();
    };
    set("keepCompleted", "0").await;
    set("keepFailed", "0").await;
    for at in 0..25 {
        let _ = bench.export.dispatch("fail".into()).id(format!("bad-{at}")).await.unwrap().result().await;
    }
    let told = bench.run(&["health"]).await;
    assert!(told.status == 1 && told.out.contains("! export: the last 25 jobs failed"), "{told:?}");
    let _ = bench.export.dispatch("x".into()).await.unwrap().result().await;
    assert_eq!(bench.run(&["health"]).await.ok(), "healthy\n");
    let _ = worker.stop().await.unwrap();
}

#[tokio::test]
async fn dead_jobs_that_are_tried_again_on_an_idle_task_are_no_outage() {
    let bench = Bench::of_one_table().await;
    let worker = bench.worker();
    tried_again(&bench, 25).await;
    for _ in 0..7 {
        let _ = bench.export.dispatch("x".into()).await.unwrap().result().await.unwrap();
    }
    // After a time in which nothing but those was tried.
    ended_ago(&bench, "lastCompletedAt", Duration::from_secs(600)).await;
    let told = bench.run(&["status"]).await;
    assert!(told.status == 0 && told.out.contains("? export: 25 jobs delayed"), "{told:?}");
    let _ = worker.stop().await.unwrap();
}

#[tokio::test]
async fn whoever_removes_what_failed_ends_its_alarm_and_is_told_what_else_he_may_do() {
    let bench = Bench::of_one_table().await;
    let worker = bench.worker();
    for at in 0..25 {
        bench.export.dispatch("fail".into()).id(format!("job-{at}")).await.unwrap();
    }
    until("all have failed", async || bench.export.counts().await.unwrap().failed == 25).await;
    let ran = bench.run(&["health"]).await;
    assert!(ran.status == 1, "{ran:?}");
    let told = ran.out.find("jobs retry -t export --state failed").zip(ran.out.find("throws them away"));
    assert!(told.is_some_and(|(retry, purge)| retry < purge), "what keeps the jobs is named first: {ran:?}");
    // An unrelated one that waits for tomorrow changes nothing.
    bench.export.dispatch("x".into()).id("later").delay(Duration::from_secs(3600)).await.unwrap();
    assert_eq!(bench.run(&["task", "purge", "export", "--state", "failed", "--yes"]).await.status, 0);
    assert_eq!(bench.run(&["health"]).await.status, 0);
    bench.export.dispatch("fail".into()).id("again").await.unwrap().result().await.unwrap_err();
    assert_eq!(bench.run(&["health"]).await.status, 0, "one more says nothing of those");
    // Not while others are tried again, which fail by now: nothing of theirs would count any more.
    tried_again(&bench, 25).await;
    assert_eq!(bench.run(&["health"]).await.status, 1);
    assert_eq!(bench.run(&["jobs", "remove", "-t", "export", "again", "--yes"]).await.status, 0);
    let ran = bench.run(&["health"]).await;
    assert!(ran.status == 1 && !ran.out.contains(" 0 runs failed"), "{ran:?}");
    let _ = worker.stop().await.unwrap();
}

#[tokio::test]
async fn a_worker_whose_calls_the_server_refuses_is_told_of() {
    let bench = Bench::of_one_table().await;
    bench.export.dispatch("hold".into()).id("c").await.unwrap();
    holds(&bench, &[], Duration::ZERO, Duration::ZERO).await;
    assert_eq!(bench.run(&["health"]).await.ok(), "healthy\n");
    let mut conn = bench.redis().await;
    let mut watch = redis::cmd("HSET");
    watch.arg(format!("cli:worker:{NOBODY}")).arg("watch:export").arg("1 5000 1000 sweep_refused 500");
    watch.query_async::<()>(&mut conn).await.unwrap();
    let ran = bench.run(&["health"]).await;
    let told = format!("! the server refuses what the worker {NOBODY} asks for export");
    assert!(ran.status == 1 && ran.out.contains(&told), "{ran:?}");
}

#[tokio::test]
async fn whether_a_worker_is_frozen_is_asked_where_its_process_has_that_number() {
    let bench = Bench::of_one_table().await;
    bench.export.dispatch("hold".into()).id("a").await.unwrap();
    holds(&bench, &["a"], Duration::from_secs(60), Duration::from_secs(50)).await;
    let mut conn = bench.redis().await;
    for (namespace, place) in [
        ("pid:[4026531836]", "; on web-7 `ps -o stat= -p 4711`"),
        ("pid:[4026532587]", "; inside its container on web-7 `ps"),
    ] {
        let mut set = redis::cmd("HSET");
        set.arg(format!("cli:worker:{NOBODY}")).arg("pidNamespace").arg(namespace);
        set.query_async::<()>(&mut conn).await.unwrap();
        let ran = bench.run(&["status"]).await;
        assert!(ran.out.contains(place), "{namespace}: {ran:?}");
    }
    // What waits for a person by its phase alone is no other job's advice.
    let mut set = redis::cmd("HSET");
    set.arg("cli:{export}:meta").arg("patience").arg("off 0 0");
    set.query_async::<()>(&mut conn).await.unwrap();
    let ran = bench.run(&["status"]).await;
    assert!(ran.out.contains("start one, which does") && ran.out.contains("leave to a person are in"), "{ran:?}");
}

#[tokio::test]
async fn a_cancelled_job_whose_place_is_lost_is_put_back_and_does_not_run_again() {
    let bench = Bench::of_one_table().await;
    for id in ["first", "cancelled"] {
        bench.export.dispatch("x".into()).id(id).await.unwrap();
    }
    // Its entry in the list stays, as that of one that has ended.
    bench.declared().await;
    bench.run(&["jobs", "cancel", "-t", "export", "cancelled"]).await.ok();
    let mut conn = bench.redis().await;
    redis::cmd("DEL").arg("cli:{export}:cancelled").query_async::<()>(&mut conn).await.unwrap();
    let shown = bench.run(&["jobs", "show", "-t", "export", "cancelled"]).await;
    let told = "it was cancelled, and its place is lost: it does not wait";
    assert!(format!("{}{}", shown.out, shown.err).contains(told), "{shown:?}");
    let audited = bench.run(&["audit", "-t", "export"]).await;
    assert!(audited.status == 1 && audited.out.contains("ended_nowhere"), "{audited:?}");
    bench.run(&["repair", "-t", "export", "-y"]).await.ok();
    assert_eq!(bench.run(&["audit", "-t", "export"]).await.status, 0);
    let worker = bench.worker();
    until("the first one has run", async || bench.export.counts().await.unwrap().completed == 1).await;
    let counts = bench.export.counts().await.unwrap();
    assert_eq!((counts.cancelled, counts.waiting), (1, 0));
    let _ = worker.stop().await.unwrap();
}

#[tokio::test]
async fn slots_that_lost_runs_hold_are_told_with_their_workers() {
    let bench = Bench::of_one_table().await;
    for id in ["a", "b", "c"] {
        bench.export.dispatch("hold".into()).id(id).await.unwrap();
    }
    holds(&bench, &[], Duration::ZERO, Duration::ZERO).await;
    let worker = bench.run(&["workers", "--json"]).await.json()[0]["worker"].as_str().unwrap().to_owned();
    let lost = async |runs: &str| {
        let mut set = redis::cmd("HSET");
        set.arg(format!("cli:worker:{worker}")).arg("lost:export").arg(runs);
        set.query_async::<()>(&mut bench.redis().await).await.unwrap();
    };
    lost("2 1000").await;
    assert_eq!(bench.run(&["health"]).await.ok(), "healthy\n", "they may end within their cancel grace");
    lost("2 90000").await;
    let told =
        format!("! export: 3 jobs wait and none is claimed: runs that lost their jobs hold 2 of 2 slots ({worker}: 2)");
    for command in ["status", "health"] {
        let ran = bench.run(&[command]).await;
        assert!(ran.status == 1 && ran.out.contains(&told), "{ran:?}");
    }
    let json = bench.run(&["health", "--json"]).await.json();
    assert_eq!(json["troubles"][0]["diagnosis"]["kind"], "slots_held_by_lost_runs");
    let metrics = bench.run(&["metrics", "--once"]).await.ok();
    assert!(metrics.contains("heartline_task_slots_lost{task=\"export\"} 2"), "{metrics}");
}
