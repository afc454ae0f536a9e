//! Commands that read.

use std::io::{BufRead, BufReader};
use std::time::Duration;

use heartline::JobState;

use crate::run::{Bench, until};

#[tokio::test]
async fn tasks_are_listed_as_a_table_and_as_json() {
    let bench = Bench::new().await;
    for input in ["x", "fail", "hold"] {
        bench.export.dispatch(input.into()).id(format!("{input}-1")).await.unwrap();
    }
    let worker = bench.worker();
    let counts = async || bench.export.counts().await.unwrap();
    until("one of each", async || {
        let c = counts().await;
        (c.completed, c.failed, c.running) == (1, 1, 1)
    })
    .await;
    let table = bench.run(&["tasks"]).await.ok();
    let columns: Vec<&str> = table.lines().next().unwrap().split_whitespace().collect();
    let cells: Vec<&str> = table.lines().nth(1).unwrap().split_whitespace().collect();
    let cell = |name| cells[columns.iter().position(|column| *column == name).unwrap()];
    assert_eq!((cell("TASK"), cell("WAITING"), cell("RUNNING")), ("export", "0", "1"), "{table}");
    assert_eq!((cell("COMPLETED"), cell("FAILED"), cell("WORKERS"), cell("SLOTS")), ("1", "1", "1", "1/10"), "{table}");
    let json = bench.run(&["tasks", "--json"]).await.json();
    assert_eq!((&json[0]["task"], &json[0]["counts"]["failed"]), (&"export".into(), &1.into()));
    assert!(json[0]["rates"]["dispatched"].is_number(), "{json}");

    let shown = bench.run(&["task", "show", "export"]).await.ok();
    for part in [
        "1 running, 0 finalizing, 1 completed, 1 failed",
        "1 live, 10 slots",
        "interval 1.0s",
        "silent running jobs wait for a person",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    until("it has told what it holds", async || bench.run(&["workers"]).await.ok().contains("export 1/10")).await;
    let workers = bench.run(&["workers"]).await.ok();
    assert!(workers.contains(" live ") && workers.contains("export 1/10"), "{workers}");
    let id = bench.run(&["workers", "--json"]).await.json()[0]["worker"].as_str().unwrap().to_owned();
    assert!(bench.run(&["workers", &id]).await.ok().contains("task export: 1 held of 10 slots"));
    bench.open();
    let _ = worker.stop().await.unwrap();
    assert!(!bench.run(&["workers"]).await.ok().contains(&id));
    assert!(bench.run(&["workers", "--all"]).await.ok().contains(&id));
}

#[tokio::test]
async fn a_failed_job_is_shown_with_its_control_characters_escaped() {
    let bench = Bench::new().await;
    let worker = bench.worker();
    for input in ["x", "fail"] {
        let job = bench.export.dispatch(input.into()).id(format!("{input}-1")).await.unwrap();
        let _ = job.result().await;
    }
    let list = |rest: &[&'static str]| [&["jobs", "list", "-t", "export", "--state", "failed"], rest].concat();
    let table = bench.run(&list(&["--code", "disk", "--text", "no space", "--younger", "1h"])).await.ok();
    assert!(table.contains("fail-1  failed") && table.contains(r"no space \u{1b}[31m left"), "{table}");
    assert!(!table.contains('\u{1b}'), "{table:?}");
    assert_eq!(bench.run(&list(&["--code", "other"])).await.ok().lines().count(), 1);
    assert_eq!(bench.run(&list(&["--older", "1h", "--json"])).await.json()["jobs"], serde_json::json!([]));
    assert_eq!(bench.run(&list(&["--count"])).await.ok(), "1\n");
    assert_eq!(bench.run(&list(&["--count", "--code", "disk"])).await.ok(), "1 of 1 read\n");

    let shown = bench.run(&["jobs", "show", "-t", "export", "fail-1"]).await.ok();
    for part in
        ["job          fail-1 of export", "state        failed", r"disk: no space \u{1b}[31m left", "task:started"]
    {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    assert!(!shown.contains("payload:\n") && !shown.contains('\u{1b}'), "{shown}");
    let shown = bench.run(&["jobs", "show", "-t", "export", "fail-1", "--values"]).await.ok();
    assert!(shown.contains("payload:\n\"fail\""), "{shown}");
    let job = bench.run(&["jobs", "show", "-t", "export", "fail-1", "--json"]).await.json();
    assert_eq!((&job["state"], &job["error"]["code"]), (&"failed".into(), &"disk".into()));
    let ran = bench.run(&["jobs", "show", "-t", "export", "other"]).await;
    assert_eq!(
        (ran.status, &*ran.err),
        (
            1,
            "error: there is no job other of export; `heartline events -t export --job other` shows whether there was one\n"
        )
    );
    assert_eq!(bench.run(&["jobs", "result", "-t", "export", "x-1"]).await.ok(), "2\n");
    let ran = bench.run(&["jobs", "result", "-t", "export", "fail-1"]).await;
    assert!(ran.status == 1 && ran.err.contains("disk"), "{ran:?}");
    let _ = worker.stop().await.unwrap();
}

#[tokio::test]
async fn a_list_continues_after_its_cursor() {
    let bench = Bench::new().await;
    bench.export.dispatch_many((0..5).map(|_| "x".to_owned())).await.unwrap();
    let (mut found, mut cursor) = (Vec::new(), None::<String>);
    loop {
        let mut args = vec!["jobs", "list", "-t", "export", "--state", "waiting", "--limit", "2", "--json"];
        if let Some(cursor) = &cursor {
            args.extend(["--cursor", cursor]);
        }
        let page = bench.run(&args).await.json();
        found.extend(page["jobs"].as_array().unwrap().iter().map(|job| job["id"].to_string()));
        match page["next"].as_str() {
            Some(next) => cursor = Some(next.to_owned()),
            None => break,
        }
    }
    found.sort();
    found.dedup();
    assert_eq!(found.len(), 5);
    let ran = bench.run(&["jobs", "list", "-t", "export", "--state", "waiting", "--limit", "2"]).await;
    assert!(ran.err.contains("2 shown") && ran.err.contains("--cursor '"), "{ran:?}");
}

#[tokio::test]
async fn events_are_followed_as_they_happen() {
    let bench = Bench::new().await;
    let worker = bench.worker();
    bench.export.dispatch("x".into()).id("before").await.unwrap().result().await.unwrap();
    let mut child = bench.start(&["events", "-t", "export", "--follow", "--json"]);
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let reading = tokio::task::spawn_blocking(move || {
        let mut seen = Vec::new();
        for line in lines.by_ref() {
            let event: serde_json::Value = serde_json::from_str(&line.unwrap()).unwrap();
            seen.push((event["event"].as_str().unwrap().to_owned(), event["id"].as_str().unwrap().to_owned()));
            if seen.last().unwrap().0 == "completed" {
                return seen;
            }
        }
        seen
    });
    // Until it follows there is no telling what it hears.
    let mut round = 0;
    until("it has heard of a job", async || {
        round += 1;
        bench.export.dispatch("x".into()).id(format!("after-{round}")).await.unwrap().result().await.unwrap();
        reading.is_finished()
    })
    .await;
    let seen = reading.await.unwrap();
    assert!(seen.iter().all(|(_, id)| id.starts_with("after-")), "{seen:?}");
    child.kill().unwrap();
    child.wait().unwrap();
    let all = bench.run(&["events", "-t", "export"]).await.ok();
    assert!(all.contains("task:completed     before ran_us="), "{all}");
    let own = bench.run(&["events", "-t", "export", "--job", "before"]).await.ok();
    assert!(own.lines().count() >= 3 && !own.contains("after-"), "{own}");
    let _ = worker.stop().await.unwrap();
}

#[tokio::test]
async fn following_events_survives_a_restart_of_the_server() {
    let mut bench = Bench::new().await;
    let worker = bench.worker();
    let mut child = bench.start(&["events", "-t", "export", "--follow", "--json"]);
    let (seen, heard) = std::sync::mpsc::channel::<String>();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let reading = std::thread::spawn(move || lines.map_while(Result::ok).try_for_each(|line| seen.send(line)));
    let export = bench.export.clone();
    let hears_of = async |name: &str| {
        let mut round = 0;
        until("it has printed an event of the job", async || {
            round += 1;
            let sent = export.dispatch("x".into()).id(format!("{name}-{round}")).await;
            // The dispatch fails until the server is back.
            if let Ok(job) = sent {
                let _ = job.result_within(Duration::from_secs(5)).await;
            }
            heard.try_iter().any(|line| line.contains(name))
        })
        .await;
    };
    hears_of("before").await;
    let server = bench.server();
    server.kill();
    server.restart().unwrap();
    hears_of("after").await;
    child.kill().unwrap();
    child.wait().unwrap();
    let _ = reading.join();
    let _ = worker.stop().await.unwrap();
}

#[tokio::test]
async fn status_and_health_say_what_is_wrong_and_what_to_do() {
    let bench = Bench::new().await;
    bench.export.dispatch("x".into()).await.unwrap();
    let ran = bench.run(&["health"]).await;
    assert_eq!(ran.status, 1);
    assert!(ran.out.contains("! export: 1 job waiting, and no live worker has the task"), "{}", ran.out);
    bench.run(&["task", "pause", "export", "--reason", "the disk is full"]).await.ok();
    let worker = bench.worker();
    until("the worker is seen", async || bench.run(&["workers", "--json"]).await.json()[0]["state"] == "live").await;
    let ran = bench.run(&["status"]).await;
    assert_eq!(ran.status, 1);
    assert!(
        ran.out.contains("paused by ada ") && ran.out.contains(" ago (the disk is full), 1 job waiting\n"),
        "{}",
        ran.out
    );
    assert!(ran.out.contains("`heartline task resume export`"), "{}", ran.out);
    let json = bench.run(&["status", "--json"]).await.json();
    assert_eq!((&json["healthy"], &json["waiting"]), (&false.into(), &1.into()));
    assert!(bench.run(&["task", "resume", "export"]).await.ok().starts_with("export is resumed; it was paused for "));
    until("it is done", async || bench.export.counts().await.unwrap().completed == 1).await;
    assert!(bench.run(&["status"]).await.ok().contains("Nothing is wrong."));
    assert_eq!(bench.run(&["health"]).await.ok(), "healthy\n");
    // Healthy jobs are silent for a third of each interval.
    bench.export.dispatch("hold".into()).await.unwrap();
    for _ in 0..40 {
        assert_eq!(bench.run(&["health"]).await.ok(), "healthy\n");
        tokio::time::sleep(std::time::Duration::from_millis(40)).await;
    }
    let ran = bench.run(&["task", "pause", "export", "--by", "ada", "--reason", "one"]).await.ok();
    assert!(ran.starts_with("export is paused"), "{ran}");
    let ran = bench.run(&["task", "pause", "export", "--by", "bob"]).await.ok();
    assert_eq!(ran, "export was already paused by ada (one); that pause remains\n");
    bench.open();
    let _ = worker.stop().await.unwrap();
}

#[tokio::test]
async fn the_doctor_describes_the_server() {
    let bench = Bench::new().await;
    let ran = bench.run(&["doctor"]).await;
    for part in [
        "note  the server has no replica",
        "note  the server writes no append-only file",
        ", maxmemory-policy noeviction, ",
    ] {
        assert!(ran.out.contains(part), "{part}: {ran:?}");
    }
    assert_eq!(ran.status, 0, "{ran:?}");
    let mut conn = bench.redis().await;
    let () = redis::cmd("CONFIG")
        .arg("SET")
        .arg("maxmemory-policy")
        .arg("allkeys-lru")
        .query_async(&mut conn)
        .await
        .unwrap();
    let ran = bench.run(&["doctor", "--json"]).await;
    assert_eq!((ran.status, &ran.json()["healthy"]), (1, &false.into()), "{ran:?}");
    let found = ran.json()["diagnoses"].as_array().cloned().unwrap();
    assert!(found.iter().any(|found| found["kind"] == "eviction" && found["severity"] == "risk"), "{ran:?}");
    assert_eq!(ran.json()["servers"][0]["eviction_policy"], "allkeys-lru");
}

#[tokio::test]
async fn an_audit_finds_damage_and_a_repair_fixes_it() {
    let bench = Bench::of_one_table().await;
    bench.export.dispatch("x".into()).id("lost").await.unwrap();
    let told = bench.run(&["audit"]).await.ok();
    assert!(
        told.contains("export: 1 job audited, 0 faults\n") && told.contains(" in Redis; largest columns: "),
        "{told}"
    );
    let told = bench.run(&["audit", "-t", "export", "--json"]).await.json();
    let columns = told[0]["columns"].as_array().unwrap();
    assert!(columns.iter().any(|column| column["column"] == "payload" && column["bytes"].as_u64() > Some(0)), "{told}");
    let mut conn = bench.redis().await;
    let () = redis::cmd("DEL").arg("cli:{export}:wait").query_async(&mut conn).await.unwrap();
    let ran = bench.run(&["audit", "-t", "export"]).await;
    assert!(ran.status == 1 && ran.out.contains("  1 x unplaced: it is in no list or set"), "{ran:?}");
    let ran = bench.run(&["repair", "-t", "export", "--dry-run"]).await.ok();
    let told = bench.run(&["repair", "-t", "export", "--dry-run", "--json"]).await.json();
    assert!(
        told["would_mend"].as_array().is_some_and(|faults| !faults.is_empty()) && told["mended"].is_null(),
        "{told}"
    );
    assert!(ran.starts_with("1 fault would be repaired\n  1 x unplaced: ") && ran.ends_with("\n    lost\n"), "{ran}");
    let ran = bench.run(&["repair", "-t", "export"]).await;
    assert!(ran.status == 2 && ran.err.contains("1 job RUNS AGAIN") && ran.err.contains("pass --yes"), "{ran:?}");
    assert!(bench.run(&["repair", "-t", "export", "--yes"]).await.ok().contains("1 repaired"));
    assert_eq!(bench.export.job("lost").await.unwrap().state, JobState::Waiting);
    bench.run(&["audit"]).await.ok();
}
