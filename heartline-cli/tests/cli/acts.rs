//! Actions on jobs and tasks.

use heartline::{JobState, JobValues};

use crate::run::{Bench, until};

#[tokio::test]
async fn dispatch_waits_for_a_job_and_prints_its_result() {
    let bench = Bench::new().await;
    let worker = bench.worker();
    assert_eq!(bench.run(&["jobs", "dispatch", "-t", "export", "\"x\"", "--id", "mine"]).await.ok(), "mine\n");
    assert_eq!(bench.run(&["jobs", "wait", "-t", "export", "mine"]).await.ok(), "completed\n");
    let ran =
        bench.run_with(&["jobs", "dispatch", "-t", "export", "-", "--wait", "--priority", "high"], "\"y\"\n").await;
    assert_eq!(ran.ok(), "2\n");
    let again = bench.run(&["jobs", "dispatch", "-t", "export", "\"other\"", "--id", "mine", "--json"]).await;
    assert_eq!(again.json()["existed"], true);
    let ran = bench.run(&["jobs", "dispatch", "-t", "exprt", "1"]).await;
    assert!(ran.status == 2 && ran.err.contains("dispatch to a new task exprt (there is a task export)"), "{ran:?}");
    let ran = bench.run(&["jobs", "dispatch", "-t", "export", "x"]).await;
    assert!(ran.status == 2 && ran.err.contains("quote a string as JSON"), "{ran:?}");
    let ran = bench.run(&["jobs", "dispatch", "-t", "export", "\"fail\"", "--wait"]).await;
    assert!(ran.status == 1 && ran.err.contains("disk"), "{ran:?}");
    bench.run(&["jobs", "dispatch", "-t", "export", "\"x\"", "--id", "later", "--delay", "1h"]).await.ok();
    let ran = bench.run(&["jobs", "wait", "-t", "export", "later", "--timeout", "100ms"]).await;
    assert_eq!(ran.status, 1, "{ran:?}");
    assert!(bench.run(&["jobs", "run-now", "-t", "export", "later"]).await.ok().starts_with("1 run now"));
    assert_eq!(bench.run(&["jobs", "wait", "-t", "export", "later"]).await.ok(), "completed\n");
    let _ = worker.stop().await.unwrap();
}

#[tokio::test]
async fn actions_report_what_they_did_or_why_not() {
    let bench = Bench::new().await;
    for id in ["a", "b", "c"] {
        bench.export.dispatch("fail".into()).id(id).await.unwrap();
    }
    bench.declared().await;
    let ran = bench.run(&["jobs", "cancel", "-t", "export", "a", "nobody", "--reason", "not needed"]).await.ok();
    assert_eq!(ran, "1 cancelled, 1 refused\n  nobody: there is no such job\n");
    let job = bench.app.inspector().job("export", "a", JobValues::None).await.unwrap().unwrap();
    assert_eq!(
        (job.state, job.error.unwrap().message.as_str()),
        (JobState::Cancelled, "not needed (cancelled by ada)")
    );
    assert!(bench.run(&["events", "-t", "export", "--job", "a"]).await.ok().contains("by=ada"));
    let worker = bench.worker();
    until("they failed", async || bench.export.counts().await.unwrap().failed == 2).await;
    let _ = worker.stop().await.unwrap();
    let ran = bench.run(&["jobs", "retry", "-t", "export", "--state", "waiting", "-y"]).await;
    assert!(
        ran.status == 2 && ran.err.contains("waiting jobs cannot be retried, only those that are failed or cancelled"),
        "{ran:?}"
    );
    // With a filter the command asks first, and there is no terminal here.
    let retry = ["jobs", "retry", "-t", "export", "--state", "failed", "--code", "disk"];
    let ran = bench.run(&retry).await;
    assert!(ran.status == 2 && ran.err.contains("run again about 2 failed jobs of export; pass --yes"), "{ran:?}");
    assert_eq!(bench.export.counts().await.unwrap().failed, 2);
    let ran = bench.run(&[&retry[..], &["--yes", "--json", "--by", "eve"]].concat()).await;
    assert_eq!((&ran.json()["done"], &ran.json()["is_complete"]), (&2.into(), &true.into()), "{ran:?}");
    // Ids may be the output of another command.
    let ran = bench.run_with(&["jobs", "remove", "-t", "export", "-", "--yes"], "b\n\n c \n").await.ok();
    assert_eq!(ran, "2 removed, 0 refused\n");
    let ran = bench.run(&["jobs", "remove", "-t", "export", "b", "--yes"]).await;
    assert_eq!(ran.status, 1, "it did nothing: {ran:?}");
}

#[tokio::test]
async fn purge_and_forget_need_a_confirmation() {
    let bench = Bench::new().await;
    bench.export.dispatch_many((0..450).map(|_| "x".to_owned())).await.unwrap();
    let ran = bench.run(&["task", "purge", "export", "--state", "waiting"]).await;
    assert!(ran.status == 2 && ran.err.contains("remove 450 waiting jobs of export for good; pass --yes"), "{ran:?}");
    let ran = bench.run(&["task", "forget", "export", "--yes"]).await;
    assert_eq!((ran.status, &*ran.err), (1, "error: export has 450 jobs; purge each state first\n"));
    assert_eq!(
        bench.run(&["task", "purge", "export", "--state", "waiting", "-y"]).await.ok(),
        "450 removed, 0 refused\n"
    );
    let ran = bench.run(&["task", "purge", "export", "--state", "running", "-y"]).await;
    assert!(ran.status == 2 && ran.err.contains("cancel them instead"), "{ran:?}");
    assert_eq!(bench.run(&["task", "forget", "export", "-y"]).await.ok(), "export is forgotten\n");
    assert_eq!(bench.run(&["tasks", "--json"]).await.json(), serde_json::json!([]));
    let ran = bench.run(&["health"]).await;
    assert!(ran.status == 1 && ran.out.contains("there is no task under this prefix"), "{ran:?}");
}

#[tokio::test]
async fn a_finalizing_job_of_an_undeclared_task_is_explained() {
    let bench = Bench::of_one_table().await;
    bench.export.dispatch("x".into()).id("a").await.unwrap();
    bench.run(&["jobs", "cancel", "-t", "export", "a"]).await.ok();
    let told = "; 1 finalizing: no worker has declared the task";
    let ran = bench.run(&["task", "purge", "export", "--state", "cancelled"]).await.ok();
    assert!(ran.contains("export has no cancelled jobs") && ran.contains(told), "{ran}");
    let ran = bench.run(&["task", "forget", "export", "-y"]).await;
    assert!(ran.status == 1 && ran.err.contains("export has 1 job; purge each state first"), "{ran:?}");
    assert!(ran.err.contains(told), "{ran:?}");
    let ran = bench.run(&["task", "purge", "export", "--state", "finalizing", "-y"]).await.ok();
    assert_eq!(ran, "1 removed, 0 refused\n");
}

#[tokio::test]
async fn a_person_can_inspect_and_recover_jobs_of_a_dead_worker() {
    let bench = Bench::new().await;
    bench.export.dispatch("hold".into()).id("a").await.unwrap();
    bench.export.dispatch("hold".into()).id("b").await.unwrap();
    // This worker recovers jobs by itself; the next one does not, and its options apply.
    let args = ["work", "-t", "export", "--interval", "1s", "--concurrency", "2", "--exec", "sleep", "600"];
    let mut doomed = bench.command(&args).stderr(std::process::Stdio::null()).spawn().unwrap();
    until("it holds both", async || bench.export.counts().await.unwrap().running == 2).await;
    doomed.kill().unwrap();
    doomed.wait().unwrap();
    let worker = bench.worker();
    let silent = async || bench.run(&["recover", "silent", "-t", "export", "--json"]).await.json();
    until("both wait for a decision", async || {
        let jobs = silent().await;
        let jobs = jobs.as_array().unwrap();
        jobs.len() == 2 && jobs.iter().all(|job| job["is_parked"] == true)
    })
    .await;
    let table = bench.run(&["recover", "silent", "-t", "export"]).await.ok();
    assert_eq!(table.lines().filter(|line| line.ends_with("you")).count(), 2, "{table}");
    let ran = bench.run(&["health"]).await;
    assert!(ran.status == 1 && ran.out.contains("! export: 2 silent jobs parked for a person"), "{ran:?}");
    let told = bench.run(&["stalls", "outlook", "-t", "export"]).await.ok();
    assert!(told.contains("2 silent jobs are parked: they wait for a person"), "{told}");
    assert!(!told.contains("The next job may be resolved"), "{told}");
    let ran = bench.run(&["recover", "running", "-t", "export", "--all"]).await;
    assert!(ran.status == 2 && ran.err.contains("run again the 2 parked jobs of export; pass --yes"), "{ran:?}");
    bench.open();
    assert!(bench.run(&["recover", "running", "-t", "export", "a"]).await.ok().starts_with("1 run again"));
    let ran = bench.run(&["recover", "fail", "-t", "export", "b"]).await;
    assert!(ran.status == 2 && ran.err.contains("pass --yes"), "{ran:?}");
    assert!(bench.run(&["recover", "fail", "-t", "export", "b", "--yes"]).await.ok().starts_with("1 failed"));
    assert_eq!(bench.run(&["jobs", "wait", "-t", "export", "a"]).await.ok(), "completed\n");
    let told = bench.run(&["stalls", "explain", "-t", "export", "a"]).await.ok();
    assert!(told.contains("job a of the task export was held by") && told.contains("recovered by ada"), "{told}");
    let table = bench.run(&["stalls", "list", "-t", "export"]).await.ok();
    assert!(table.contains("recovered") && table.contains("manual") && table.contains(" ada "), "{table}");
    let every = bench.run(&["stalls", "list"]).await.ok();
    assert!(every.lines().count() == 3 && every.contains(" ada "), "every task is listed: {every}");
    assert_eq!(bench.run(&["stalls", "list", "--json"]).await.json()["stalls"].as_array().unwrap().len(), 2);
    for typo in [&["stalls", "explain", "-t", "export", "aa"][..], &["events", "-t", "export", "--job", "aa"]] {
        let ran = bench.run(typo).await;
        assert!(ran.status == 1 && ran.err.contains("there is no job aa of export"), "{ran:?}");
    }
    assert!(!bench.run(&["stalls", "outlook", "-t", "export"]).await.ok().is_empty());
    let _ = worker.stop().await.unwrap();
}

#[tokio::test]
async fn declaring_a_worker_dead_requeues_its_jobs_at_once() {
    let bench = Bench::new().await;
    bench.export.dispatch("hold".into()).id("a").await.unwrap();
    bench.export.dispatch("hold".into()).id("last").max_stalls(0).await.unwrap();
    let worker = bench.worker();
    until("its record shows that it holds them", async || bench.run(&["workers"]).await.ok().contains("export 2/10"))
        .await;
    let id = bench.run(&["workers", "--json"]).await.json()[0]["worker"].as_str().unwrap().to_owned();
    let ran = bench.run(&["recover", "worker", "absent-1-2", "-y"]).await;
    assert!(ran.status == 1 && ran.err.contains("there is no worker absent-1-2"), "{ran:?}");
    let ran = bench.run(&["recover", "worker", &id]).await;
    assert!(ran.status == 2 && ran.err.contains("its death is not proven; IT IS MOST LIKELY ALIVE"), "{ran:?}");
    assert!(ran.err.contains("a person must confirm this on a terminal, without --yes"), "{ran:?}");
    assert!(ran.err.contains("2 of export, which wait for a person, 1 of which will fail"), "{ran:?}");
    // A yes to everything is not a decision about this worker.
    let ran = bench.run(&["recover", "worker", &id, "-y"]).await;
    assert!(ran.status == 2 && ran.err.contains("to declare it dead, run this on a terminal without --yes"), "{ran:?}");
    let mut asked = bench.on_terminal(&format!("recover worker {id}"));
    asked.until("Continue? [y/N]").await;
    assert!(asked.shown().contains("if the worker is alive, it notices within 10s and stops"), "{}", asked.shown());
    asked.say("y\n");
    asked.until("last: failed, stall 1").await;
    assert!(asked.shown().contains("a: recovered, stall 1"), "{}", asked.shown());
    bench.open();
    drop(worker);
}

#[tokio::test]
async fn an_existing_id_is_reported_with_its_state_and_a_next_step() {
    let bench = Bench::new().await;
    let worker = bench.worker();
    bench.export.dispatch("x".into()).id("nightly").await.unwrap().result().await.unwrap();
    let ran = bench.run(&["jobs", "dispatch", "-t", "export", "\"y\"", "--id", "nightly"]).await;
    let told = "nightly already exists and keeps its old input: it is completed, ";
    assert!(ran.status == 0 && ran.err.contains(told), "{ran:?}");
    assert!(ran.err.contains("`heartline jobs remove -t export nightly` frees its id"), "{ran:?}");
    let ran = bench.run(&["jobs", "dispatch", "-t", "export", "\"y\"", "--id", "nightly", "--wait"]).await;
    assert!(ran.err.contains("Waiting for nightly, which already existed; "), "{ran:?}");
    let _ = bench.export.dispatch("fail".into()).id("bad").await.unwrap().result().await;
    let ran = bench.run(&["jobs", "dispatch", "-t", "export", "\"y\"", "--id", "bad"]).await;
    assert!(ran.err.contains("`heartline jobs retry -t export bad` runs it again"), "{ran:?}");
    let ran = bench.run(&["jobs", "retry", "-t", "export", "--state", "failed", "--code", "dsk", "-y"]).await;
    assert!(ran.err.contains("no such job has the code dsk; `heartline jobs codes -t export`"), "{ran:?}");
    let _ = worker.stop().await.unwrap();
}

#[tokio::test]
async fn a_wait_for_a_job_shows_what_delays_it() {
    let bench = Bench::new().await;
    let worker = bench.worker();
    bench.export.dispatch("x".into()).await.unwrap().result().await.unwrap();
    let slots = bench.app.inspector().task("export").await.unwrap().slots;
    bench.export.dispatch_many((0..slots).map(|_| "hold".to_owned())).await.unwrap();
    bench.export.dispatch("x".into()).id("behind").await.unwrap();
    let waits = bench.on_terminal("jobs result -t export behind");
    waits.until("slots are taken, 1 job waiting").await;
    waits.until("`heartline jobs list -t export -s running`").await;
    bench.open();
    waits.until("\n2").await;
    let _ = worker.stop().await.unwrap();
}

#[tokio::test]
async fn an_action_on_uncounted_jobs_asks_for_confirmation() {
    // Each of several partitions is scanned as far as a single one.
    let bench = Bench::of_one_table().await;
    bench.export.dispatch_many((0..10_300).map(|_| "x".to_owned())).await.unwrap();
    bench.declared().await;
    bench.app.inspector().cancel("export", heartline::JobFilter::new(JobState::Waiting), "no").await.unwrap();
    let ran = bench.run(&["jobs", "remove", "-t", "export", "--state", "cancelled", "--code", "nothing"]).await;
    assert!(ran.status == 2 && ran.err.contains("at least 0 cancelled jobs") && ran.err.contains("--yes"), "{ran:?}");
}

#[tokio::test]
async fn a_worker_is_made_quiet_and_claims_jobs_again() {
    let bench = Bench::new().await;
    let worker = bench.worker();
    let id = worker.id().to_string();
    until("it is listed", async || bench.run(&["workers"]).await.ok().contains(&id)).await;
    let said = bench.run(&["workers", "quiet", &id]).await.ok();
    assert_eq!(said, format!("{id} is quiet: it claims no more jobs, and finishes those that it runs\n"));
    assert!(bench.run(&["workers", "quiet", &id]).await.ok().contains("was quiet already, since"));
    assert!(bench.run(&["workers"]).await.ok().contains(" quiet "));
    assert!(bench.run(&["workers", &id]).await.ok().contains("quiet since"));
    let status = bench.run(&["status"]).await.ok();
    assert!(status.contains("0 live, 1 quiet, ") && status.contains(&format!("{id} claims no jobs: ")), "{status}");
    let json = bench.run(&["workers", "resume", &id, "--json"]).await.json();
    assert_eq!((&json["state"], &json["quiet"]), (&"live".into(), &serde_json::Value::Null));
    assert!(bench.run(&["workers", "resume", &id]).await.ok().ends_with(" was not quiet\n"));
    let unknown = bench.run(&["workers", "quiet", "nowhere-1-00000000"]).await;
    assert!(unknown.status != 0 && unknown.err.contains("must be a worker that has not stopped"), "{unknown:?}");
    let _ = worker.stop().await.unwrap();
}
