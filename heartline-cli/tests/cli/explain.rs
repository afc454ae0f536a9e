//! How the terminal and the board explain killed, frozen and disconnected workers, poison jobs and a pause.

use std::process::Stdio;
use std::time::Duration;

use heartline::{App, Context, JobError, JobState, JobValues, StallOptions, TaskOptions, TaskRef};
use serde_json::{Value, json};

use crate::metrics::Exporter;
use crate::run::{Bench, PATIENCE, patient, until};
use crate::work::{Script, lives, pids, scratch};

use support::child::Child;
use support::proxy::{Hold, Proxy};

/// The library's test helpers for connections that break and processes that die.
#[path = "../../../tests/it/support"]
#[allow(dead_code)]
mod support {
    pub mod child;
    pub mod eventually;
    pub mod proxy;
    pub mod resp;

    pub use crate::run::PATIENCE;
}

/// The first run sleeps until its worker is gone; the recovered one completes.
const ONCE: &str = r#"[ -n "$HEARTLINE_RECOVERY" ] || sleep 600; echo 2"#;

/// More heartbeats than a worker sends during a test.
const BEATS: usize = 100;

/// A proxy to the server whose connections can be broken.
async fn line_to(bench: &Bench) -> Proxy {
    let url = bench.url();
    let address = url.strip_prefix("redis://").unwrap().trim_end_matches('/');
    Proxy::start(address.parse().unwrap()).await
}

/// Waits until a worker holds the job, and returns its id.
async fn holder_of(bench: &Bench, id: &str) -> String {
    let mut holder = None;
    until("a worker holds it", async || {
        let job = bench.app.inspector().job("script", id, JobValues::None).await.unwrap();
        holder = job.and_then(|job| job.worker);
        holder.is_some()
    })
    .await;
    holder.unwrap().to_string()
}

/// Waits until the process has ended.
async fn ended(worker: &mut Script) {
    until("it has ended", async || worker.child.try_wait().unwrap().is_some()).await;
}

/// A new board, without cached reads.
fn board(bench: &Bench) -> Exporter {
    Exporter::of(&["board"], bench, None)
}

/// A page, which must exist.
fn page(board: &Exporter, path: &str) -> String {
    let (status, _, body) = board.get(path, "localhost", "");
    assert_eq!(status, 200, "{path}: {body}");
    body
}

/// Sends a form as a page of the board does.
fn post(board: &Exporter, path: &str, form: &str) -> (u16, String, String) {
    let fields = "Host: localhost\r\nSec-Fetch-Site: same-origin\r\nContent-Type: application/x-www-form-urlencoded";
    let length = form.len();
    board.ask(&format!(
        "POST {path} HTTP/1.1\r\n{fields}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{form}"
    ))
}

/// The line of a table that contains this.
fn row<'a>(table: &'a str, what: &str) -> &'a str {
    table.lines().find(|line| line.contains(what)).unwrap_or_else(|| panic!("no {what}: {table}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_froze_is_seen_again_and_reports_too_late() {
    let bench = Bench::new().await;
    let line = line_to(&bench).await;
    let (begun, gate) = (scratch("freeze-begun"), scratch("freeze-gate"));
    let program = format!(
        "[ -n \"$HEARTLINE_RECOVERY\" ] && echo 2 && exit; echo $$ >> {}; until [ -e {} ]; do sleep 0.05; done; echo 1",
        begun.display(),
        gate.display()
    );
    let frozen = Script::start(&bench, &["--redis", &line.url()], &program);
    let job = frozen.jobs.dispatch(json!(null)).id("late").await.unwrap();
    let running = pids(&begun, 1).await;
    let holder = holder_of(&bench, "late").await;
    frozen.signal("-STOP");
    let heir = Script::start(&bench, &[], &program);
    assert_eq!(job.result_within(PATIENCE).await.unwrap(), json!(2));
    let heir_id = bench.run(&["stalls", "list", "-t", "script", "--json"]).await.json()["stalls"][0]["witness"].clone();
    let heir_id = heir_id.as_str().unwrap();

    let told = bench.run(&["stalls", "explain", "-t", "script", "late"]).await.ok();
    let held = format!("job late of the task script was held by {holder}");
    assert!(told.contains(&format!("{held}, which was last seen ")), "{told}");
    assert!(!told.contains("seen again"), "{told}");
    let watched = format!("; {heir_id} watched for ");
    assert!(told.contains("; it was silent since the snapshot ") && told.contains(&watched), "{told}");
    assert!(told.contains(" of an interval of 1.0s") && told.contains("; stall 1, max_count 1: recovered"), "{told}");
    let table = bench.run(&["stalls", "list", "-t", "script"]).await.ok();
    assert!(row(&table, &holder).contains("s before ") && !table.contains("again since"), "{table}");
    let ran = bench.run(&["stalls", "late", "-t", "script"]).await;
    assert!(ran.out.is_empty() && ran.err.contains("There are no late outcomes of script."), "{ran:?}");
    assert!(!page(&board(&bench), "/stalls?task=script").contains("Late outcomes"));

    // The program does not freeze with its worker, which must report the outcome before a heartbeat shows that the job is lost.
    std::fs::write(&gate, "").unwrap();
    until("the program has ended", async || !lives(&running[0])).await;
    let beat = sha_of(&bench, "extend_locks").await;
    let beats: Vec<Hold> = (0..BEATS).map(|_| line.hold_next_reply_to(beat.as_str())).collect();
    frozen.signal("-CONT");
    let late = async || bench.run(&["stalls", "late", "-t", "script", "--json"]).await.json();
    until("a late outcome is listed", async || late().await.as_array().is_some_and(|late| !late.is_empty())).await;
    drop(beats);
    let late = late().await;
    assert_eq!(
        (&late[0]["id"], &late[0]["worker"], &late[0]["outcome"]),
        (&json!("late"), &json!(holder), &json!("completed")),
        "{late}"
    );
    assert!(late[0]["late_by_ms"].as_u64() > Some(0) && late.as_array().unwrap().len() == 1, "{late}");
    let table = bench.run(&["stalls", "late", "-t", "script"]).await.ok();
    let cells: Vec<&str> = row(&table, &holder).split_whitespace().collect();
    let fence = late[0]["fence"].to_string();
    assert!(["late", "completed", &fence].iter().all(|cell| cells.contains(cell)), "{table}");
    assert!(cells.last().is_some_and(|late_by| late_by.ends_with('s')), "{table}");
    assert_eq!(job.result().await.unwrap(), json!(2), "the late outcome was not recorded");

    until("it was seen again", async || {
        bench.run(&["stalls", "explain", "-t", "script", "late"]).await.ok().contains("seen again")
    })
    .await;
    let told = bench.run(&["stalls", "explain", "-t", "script", "late"]).await.ok();
    let again = format!("{held}, which was seen again since; it was silent since the snapshot ");
    assert!(told.contains(&again) && !told.contains("last seen"), "{told}");
    let table = bench.run(&["stalls", "list", "-t", "script"]).await.ok();
    assert!(row(&table, &holder).contains(" again since "), "{table}");
    let board = board(&bench);
    let stalls = page(&board, "/stalls?task=script");
    assert!(stalls.contains(&again) && stalls.contains(&watched), "{stalls}");
    let (_, late) = stalls.split_once("Late outcomes").unwrap_or_else(|| panic!("{stalls}"));
    assert!(late.contains("id=late\">late</a>") && late.contains(&format!("completed by {holder}, ")), "{late}");
    assert!(late.contains("s late</td>"), "{late}");
    let job = page(&board, "/job?task=script&id=late");
    assert!(job.contains(&again) && job.contains(">task:outcome_rejected</span>"), "{job}");
    drop((frozen, heir));
    std::fs::remove_file(begun).and_then(|()| std::fs::remove_file(gate)).unwrap();
}

/// The SHA of a script on the server.
async fn sha_of(bench: &Bench, name: &str) -> String {
    let script = heartline::_internals::scripts().into_iter().find(|script| script.name == name).unwrap();
    let client = redis::Client::open(bench.url()).unwrap();
    let mut conn = client.get_multiplexed_async_connection_with_config(&patient()).await.unwrap();
    redis::cmd("SCRIPT").arg("LOAD").arg(script.source).query_async(&mut conn).await.unwrap()
}

#[tokio::test]
async fn a_killed_worker_is_explained_with_its_witness_and_its_job() {
    let bench = Bench::new().await;
    let mut victim = Script::start(&bench, &[], ONCE);
    let job = victim.jobs.dispatch(json!(null)).id("killed").await.unwrap();
    let dead = holder_of(&bench, "killed").await;
    victim.signal("-KILL");
    ended(&mut victim).await;
    let heir = Script::start(&bench, &[], ONCE);
    assert_eq!(job.result_within(PATIENCE).await.unwrap(), json!(2));
    let listed = bench.run(&["workers", "--json"]).await.json();
    let heir_id = listed.as_array().unwrap().iter().find(|worker| worker["pid"] == heir.child.id()).unwrap()["worker"]
        .as_str()
        .unwrap()
        .to_owned();

    let told = bench.run(&["stalls", "explain", "-t", "script", "killed"]).await.ok();
    let held = format!("job killed of the task script was held by {dead}, which was last seen ");
    let seen = format!(
        " before; {heir_id} found its process gone on the same host, or took its exclusive name while it was silent; "
    );
    let counted = "; stall 1, max_count 1: recovered";
    for part in [&held, &seen, counted] {
        assert!(told.contains(part), "{part}: {told}");
    }
    let table = bench.run(&["stalls", "list"]).await.ok();
    let row = row(&table, "killed");
    for part in ["script", "1 of 1", "recovered", "worker_restarted", &dead, "s before", &heir_id] {
        assert!(row.contains(part), "{part}: {table}");
    }
    let proof = format!("gone: its process is gone, reported by {heir_id}");
    let shown = bench.run(&["workers", &dead]).await.ok();
    assert!(shown.contains(&proof), "{shown}");
    let board = board(&bench);
    let every = page(&board, "/stalls");
    let why = format!("<td class=\"wide\">held by {dead}, stall 1: worker_restarted (");
    for part in ["<td class=\"c-end\">recovered</td>", &why] {
        assert!(every.contains(part), "{part}: {every}");
    }
    for path in ["/stalls?task=script", "/job?task=script&id=killed"] {
        let body = page(&board, path);
        for part in [&held, &seen, counted] {
            assert!(body.contains(part), "{part}: {body}");
        }
    }
    let worker = page(&board, &format!("/worker?worker={dead}"));
    assert!(worker.contains(&format!("<dd>{proof}</dd>")) && worker.contains("It holds no jobs."), "{worker}");
}

#[tokio::test]
async fn a_job_that_killed_two_workers_is_named_but_not_its_neighbour() {
    let bench = Bench::new().await;
    let script = r#"case $(cat) in '"poison"') until [ -e "$0" ]; do sleep 0.05; done; kill -9 $PPID; sleep 600 ;; *) [ -n "$HEARTLINE_RECOVERY" ] || sleep 600; echo 1 ;; esac"#;
    let gate = scratch("poison-gate");
    let script = script.replace("$0", &gate.display().to_string());
    let options = ["--concurrency", "2", "--max-count", "9"];
    let mut worker = Script::start(&bench, &options, &script);
    let neighbour = worker.jobs.dispatch(json!("x")).id("neighbour").await.unwrap();
    worker.jobs.dispatch(json!("poison")).id("poison").await.unwrap();
    let first = holder_of(&bench, "poison").await;
    holder_of(&bench, "neighbour").await;
    let ran = bench.run(&["stalls", "suspects", "-t", "script"]).await;
    assert!(
        ran.out.is_empty() && ran.err.contains("No job of script was held when two or more workers died."),
        "{ran:?}"
    );
    std::fs::write(&gate, "").unwrap();
    ended(&mut worker).await;
    std::fs::remove_file(&gate).unwrap();
    let mut worker = Script::start(&bench, &options, &script);
    assert_eq!(neighbour.result_within(PATIENCE).await.unwrap(), json!(1));
    let second = holder_of(&bench, "poison").await;
    assert_ne!(first, second);
    std::fs::write(&gate, "").unwrap();
    ended(&mut worker).await;
    // The job must not kill the third worker.
    bench.run(&["task", "pause", "script", "--reason", "it kills"]).await.ok();
    let third = Script::start(&bench, &options, &script);
    let state = async || bench.app.inspector().job("script", "poison", JobValues::None).await.unwrap().unwrap().state;
    until("it was recovered", async || state().await == JobState::Waiting).await;

    let suspects = bench.run(&["stalls", "suspects", "-t", "script", "--json"]).await.json();
    let named: Vec<&Value> = suspects.as_array().unwrap().iter().map(|suspect| &suspect["id"]).collect();
    assert_eq!(named, [&json!("poison")], "{suspects}");
    assert_eq!((&suspects[0]["deaths"], &suspects[0]["alone"]), (&json!(2), &json!(1)), "{suspects}");
    let ran = bench.run(&["stalls", "suspects", "-t", "script"]).await;
    let cells: Vec<&str> = row(&ran.out, "poison").split_whitespace().collect();
    assert!(cells.starts_with(&["poison", "2", "1", "2"]) && cells.ends_with(&["waiting"]), "{ran:?}");
    assert!(ran.err.contains("`heartline stalls explain -t script poison` explains each death."), "{ran:?}");
    let told = bench.run(&["stalls", "explain", "-t", "script", "poison"]).await.ok();
    assert!(told.lines().count() == 2 && told.contains(&first) && told.contains(&second), "{told}");
    let accused = "1 job held when two or more workers died: poison";
    let shown = bench.run(&["task", "show", "script"]).await.ok();
    assert!(shown.contains(&format!("? script: {accused}\n")), "{shown}");
    let board = board(&bench);
    for path in ["/stalls", "/stalls?task=script"] {
        let body = page(&board, path);
        let (_, table) = body.split_once("Held whenever workers died").unwrap_or_else(|| panic!("{body}"));
        let (table, _) = table.split_once("<h2>Stalls</h2>").unwrap();
        assert!(table.contains("id=poison\">poison</a>") && !table.contains("neighbour"), "{table}");
        assert!(
            table.contains("held at 2 deaths of workers, once alone") && table.contains("; now waiting"),
            "{table}"
        );
    }
    let task = page(&board, "/task?task=script");
    // The name of the job is a link.
    let accused = "1 job held when two or more workers died: <a href=\"/job?task=script&#38;id=poison\">poison</a>.";
    assert!(task.contains(accused), "{task}");
    assert!(page(&board, "/").contains(accused));
    drop(third);
    std::fs::remove_file(gate).unwrap();
}

/// Every view of the recovery shows it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_connection_is_shown_as_the_cause_of_a_broken_watch() {
    let bench = Bench::new().await;
    let line = line_to(&bench).await;
    let url = line.url();
    let args = ["--redis", &url, "work", "-t", "script", "--interval", "30s", "--exec", "sleep", "600"];
    let child = bench.command(&args).stderr(Stdio::null()).spawn().unwrap();
    let worker = Script { child, jobs: bench.app.task_ref("script").unwrap() };
    worker.jobs.dispatch(json!(null)).id("held").await.unwrap();
    let id = holder_of(&bench, "held").await;
    let outlook = async || bench.run(&["stalls", "outlook", "-t", "script"]).await.ok();
    until("its watch is shown", async || outlook().await.contains(&format!("{id} may "))).await;
    let before = outlook().await;
    assert!(!before.contains("broken"), "{before}");

    line.refuse().await;
    until("all are closed", async || line.open() == 0).await;
    line.accept().await;
    let broken = "; its watch broke ";
    until("its watch broke", async || outlook().await.contains(broken)).await;
    let cause = " ago: connection_lost";
    let is_told = |text: &str| {
        let line = text.lines().find(|line| line.contains(&format!("{id} may ")) && line.contains(broken));
        line.is_some_and(|line| line.contains(cause))
    };
    let told = outlook().await;
    assert!(is_told(&told), "{told}");
    let shown = bench.run(&["task", "show", "script"]).await.ok();
    let (_, recovery) = shown.split_once("\nrecovery:\n").unwrap();
    assert!(is_told(recovery), "{shown}");
    let table = bench.run(&["workers"]).await.ok();
    assert!(row(&table, &id).contains("  broken ") && row(&table, &id).contains(cause), "{table}");
    let board = board(&bench);
    let task = page(&board, "/task?task=script");
    let (_, detection) = task.split_once("<h2>Stall detection</h2>").unwrap();
    assert!(is_told(detection), "{task}");
    let body = page(&board, &format!("/worker?worker={id}"));
    assert!(body.contains("<dd>live</dd>") && body.contains("; broken ") && body.contains(cause), "{body}");
    // The worker is alive and still holds its job.
    assert_eq!(holder_of(&bench, "held").await, id);
    assert!(bench.run(&["stalls", "list", "-t", "script"]).await.err.contains("There are no stalls of script."));
}

#[tokio::test]
async fn a_job_of_a_paused_task_shows_the_person_and_the_reason() {
    let bench = Bench::new().await;
    let worker = Script::start(&bench, &[], "echo 1");
    worker.jobs.dispatch(json!(null)).await.unwrap().result_within(PATIENCE).await.unwrap();
    bench.run(&["task", "pause", "script", "--by", "eve", "--reason", "the disk is full"]).await.ok();
    let job = worker.jobs.dispatch(json!(null)).id("waits").await.unwrap();
    until("a live worker has room for it", async || {
        let task = bench.app.inspector().task("script").await.unwrap();
        task.live_workers == 1 && task.slots == 1 && task.counts.waiting == 1
    })
    .await;

    let shown = bench.run(&["jobs", "show", "-t", "script", "waits"]).await.ok();
    assert!(
        shown.contains("! paused by eve ") && shown.contains(" ago (the disk is full), 1 job waiting\n"),
        "{shown}"
    );
    assert!(shown.contains("`heartline task resume script` lets its jobs start"), "{shown}");
    assert!(shown.contains("state          waiting") && !shown.contains("task:started"), "{shown}");
    let task = bench.run(&["task", "show", "script"]).await.ok();
    assert!(task.contains("! script: paused by eve "), "{task}");
    let paused = row(&task, "by eve since ");
    assert!(paused.starts_with("paused ") && paused.ends_with(": the disk is full"), "{task}");
    let board = board(&bench);
    let body = page(&board, "/job?task=script&id=waits");
    assert!(body.contains("Paused by eve ") && body.contains(" ago (the disk is full)"), "{body}");
    assert!(
        body.contains("<code>heartline task resume script</code> lets its jobs start") && !body.contains(">Worker</a>"),
        "{body}"
    );
    let body = page(&board, "/task?task=script");
    assert!(body.contains("Paused by eve since ") && body.contains(": the disk is full</p>"), "{body}");
    assert_eq!(job.state().await.unwrap(), JobState::Waiting);

    bench.run(&["task", "resume", "script"]).await.ok();
    assert_eq!(job.result_within(PATIENCE).await.unwrap(), json!(1));
    let shown = bench.run(&["jobs", "show", "-t", "script", "waits"]).await.ok();
    assert!(!shown.contains("paused by") && shown.contains("task:started"), "{shown}");
}

#[tokio::test]
async fn a_manual_sweep_recovers_jobs_if_no_worker_is_alive() {
    let bench = Bench::new().await;
    let mut victim = Script::start(&bench, &[], "sleep 600");
    victim.jobs.dispatch(json!(null)).id("left").await.unwrap();
    let dead = holder_of(&bench, "left").await;
    victim.signal("-KILL");
    ended(&mut victim).await;
    let ran = bench.run(&["recover", "sweep", "-t", "script"]).await;
    assert!(ran.status == 2 && ran.err.contains("resolve jobs of script that stay silent"), "{ran:?}");
    let ran = bench.run(&["recover", "sweep", "-t", "script", "-y"]).await;
    assert_eq!(ran.out, "1 silent job resolved\n  left: recovered, stall 1\n", "{ran:?}");
    assert_eq!(victim.jobs.job("left").await.unwrap().state, JobState::Waiting);
    let told = bench.run(&["stalls", "explain", "-t", "script", "left"]).await.ok();
    let held = format!("job left of the task script was held by {dead}, which was last seen ");
    let decided = "; stall 1, max_count 1: recovered by ada";
    let body = page(&board(&bench), "/stalls?task=script");
    for part in [&*held, " watched for ", " of an interval of 1.0s", decided] {
        assert!(told.contains(part) && body.contains(part), "{part}: {told} {body}");
    }
    let ran = bench.run(&["recover", "sweep", "-t", "script", "-y"]).await;
    assert_eq!((ran.status, &*ran.out), (0, "0 silent jobs resolved\n"), "{ran:?}");
}

/// The program of a worker that claims ahead. It does nothing unless another test started it.
#[tokio::test]
async fn a_worker_process_that_claims_ahead() {
    let Some(url) = Child::role() else { return };
    let app = App::builder().redis(url).prefix("cli").build().await.unwrap();
    let stall = StallOptions::new().interval(Duration::from_secs(1));
    let options = TaskOptions::new().concurrency(1).prefetch(2).stall(stall);
    app.task("ahead", options, |_: Context, _: u32| std::future::pending::<Result<u32, JobError>>()).unwrap();
    let _ = app.worker().run().await.unwrap();
}

#[tokio::test]
async fn a_person_can_requeue_claimed_jobs_but_not_running_ones() {
    let bench = Bench::new().await;
    let jobs: TaskRef<u32, u32> = bench.app.task_ref("ahead").unwrap();
    for id in ["one", "two", "three"] {
        jobs.dispatch(1).id(id).await.unwrap();
    }
    let mut worker = Child::start(module_path!(), "a_worker_process_that_claims_ahead", &bench.url());
    until("it runs one and has claimed two", async || {
        let counts = jobs.counts().await.unwrap();
        (counts.running, counts.claimed) == (1, 2)
    })
    .await;
    worker.signal("KILL");
    worker.exits().await;
    let claimed = ["recover", "claimed", "-t", "ahead"];
    let ran = bench.run(&[&claimed[..], &["--all"]].concat()).await;
    assert!(ran.status == 2 && ran.err.contains("requeue all jobs of ahead that stay silent"), "{ran:?}");
    let ran = bench.run(&[&claimed[..], &["one", "--yes"]].concat()).await;
    assert!(ran.status == 1 && ran.out.contains("0 requeued, 1 refused\n  one: it is running"), "{ran:?}");
    let ran = bench.run(&[&claimed[..], &["--all", "--yes"]].concat()).await;
    assert_eq!((ran.status, &*ran.out), (0, "2 requeued, 0 refused\n"), "{ran:?}");
    for (id, state) in [("one", JobState::Running), ("two", JobState::Waiting), ("three", JobState::Waiting)] {
        let job = jobs.job(id).await.unwrap();
        assert_eq!((job.state, job.stalled_count), (state, 0), "{id}");
    }
}

#[tokio::test]
async fn oldest_first_reverses_a_list() {
    let bench = Bench::of_one_table().await;
    let worker = bench.worker();
    for id in ["a", "b", "c"] {
        bench.export.dispatch("x".into()).id(id).await.unwrap().result().await.unwrap();
    }
    let list = ["jobs", "list", "-t", "export", "--state", "completed"];
    let ids = async |more: &[&str]| {
        let page = bench.run(&[&list[..], more, &["--json"]].concat()).await.json();
        page["jobs"].as_array().unwrap().iter().map(|job| job["id"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(ids(&[]).await, ["c", "b", "a"]);
    assert_eq!(ids(&["--oldest-first"]).await, ["a", "b", "c"]);
    assert_eq!(ids(&["--oldest-first", "--limit", "1"]).await, ["a"]);
    let _ = worker.stop().await.unwrap();
}

#[tokio::test]
async fn options_make_a_board_read_only_and_hide_payloads() {
    let bench = Bench::new().await;
    bench.export.dispatch("a private concern".into()).id("a").await.unwrap();
    let act = |board: &Exporter| post(board, "/act", "act=pause&task=export");
    let is_paused = async || bench.app.inspector().task("export").await.unwrap().paused.is_some();
    let guarded = Exporter::of(
        &["board", "--read-only", "--no-payloads", "--name", "shop-eu", "--colour", "green"],
        &bench,
        None,
    );
    let task = page(&guarded, "/task?task=export");
    assert!(task.contains("<title>export · shop-eu</title>") && task.contains(">shop-eu</span>"), "{task}");
    assert!(task.contains(" class=\"band-green\">"), "{task}");
    assert!(task.contains("read only") && !task.contains("value=\"pause\""), "{task}");
    let job = page(&guarded, "/job?task=export&id=a&values=yes");
    assert!(!job.contains("concern") && !job.contains("Show payload") && !job.contains("method=\"post\""), "{job}");
    let (status, _, body) = act(&guarded);
    assert!(status == 403 && !is_paused().await, "{status}: {body}");

    let open = board(&bench);
    let task = page(&open, "/task?task=export");
    assert!(task.contains("<title>export · Heartline</title>") && task.contains("value=\"pause\""), "{task}");
    assert!(page(&open, "/job?task=export&id=a&values=yes").contains("concern"));
    assert!(act(&open).0 == 200 && is_paused().await);
}

#[tokio::test]
async fn the_cookie_of_a_board_with_https_is_secure() {
    let bench = Bench::new().await;
    let token = "0123456789abcdef";
    for (args, is_secure) in [(&["board", "--https"][..], true), (&["board"], false)] {
        let board = Exporter::of(args, &bench, Some(token));
        let (status, head, body) = post(&board, "/login", &format!("token={token}"));
        let cookie =
            head.lines().find(|line| line.starts_with("set-cookie: ")).unwrap_or_else(|| panic!("{head}{body}"));
        assert_eq!((status, cookie.contains("; secure")), (303, is_secure), "{cookie}");
    }
}
