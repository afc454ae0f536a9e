//! Programs that run jobs.

use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Stdio};
use std::time::Duration;

use heartline::{Error, JobState, TaskRef};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::run::{Bench, PATIENCE, until};

/// A worker that runs this shell script for each job of the task `script`.
pub struct Script {
    pub child: Child,
    pub jobs: TaskRef<Value, Value>,
}

impl Script {
    pub fn start(bench: &Bench, options: &[&str], script: &str) -> Script {
        let args =
            [&["work", "-t", "script", "--interval", "1s"], options, &["--exec", "sh", "-c", script, "the name"]]
                .concat();
        let own = bench.command(&args);
        // The environment of the tests may ignore SIGHUP.
        let mut command = std::process::Command::new("env");
        command.arg("--default-signal=HUP").arg(own.get_program()).args(own.get_args());
        for (name, value) in own.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        let child = command.stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        Script { child, jobs: bench.app.task_ref("script").unwrap() }
    }

    async fn result(&self, input: Value) -> Result<Value, Error> {
        self.jobs.dispatch(input).await.unwrap().result_within(PATIENCE).await
    }

    /// The code and the message with which a job fails.
    async fn failure(&self, input: Value) -> (String, String) {
        match self.result(input).await {
            Err(Error::JobFailed(failure)) => (failure.code.clone(), failure.message.clone()),
            other => panic!("{other:?}"),
        }
    }

    pub fn signal(&self, signal: &str) {
        let pid = self.child.id().to_string();
        assert!(std::process::Command::new("kill").args([signal, &pid]).status().unwrap().success());
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Whether a process with this pid runs and is not a zombie.
pub fn lives(pid: &str) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

/// The pids that a script wrote, once there are this many.
pub async fn pids(file: &std::path::Path, count: usize) -> Vec<String> {
    let read = || std::fs::read_to_string(file).unwrap_or_default();
    until("the script has begun", async || read().lines().count() >= count).await;
    read().lines().map(str::to_owned).collect()
}

pub fn scratch(name: &str) -> std::path::PathBuf {
    let file = std::env::temp_dir().join(format!("heartline-work-{name}-{}", std::process::id()));
    let _ = std::fs::remove_file(&file);
    file
}

#[tokio::test]
async fn a_program_gets_its_input_and_job_and_writes_the_result() {
    let bench = Bench::new().await;
    let script = r#"printf '{"input":%s,"job":"%s/%s","run":"%s of %s","name":"%s","more":"%s"}' "$(cat)" \
        "$HEARTLINE_TASK" "$HEARTLINE_JOB_ID" "$HEARTLINE_ATTEMPT" "$HEARTLINE_MAX_ATTEMPTS" "$0" "${HEARTLINE_RECOVERY:-none}""#;
    let worker = Script::start(&bench, &["--attempts", "3"], script);
    let job = worker.jobs.dispatch(json!({"rows": [1, "a b; rm -rf $HOME"]})).id("j-1").await.unwrap();
    let told = job.result_within(PATIENCE).await.unwrap();
    assert_eq!(told["input"], json!({"rows": [1, "a b; rm -rf $HOME"]}));
    let words = (&told["job"], &told["run"], &told["name"], &told["more"]);
    assert_eq!(words, (&json!("script/j-1"), &json!("1 of 3"), &json!("the name"), &json!("none")));
}

#[tokio::test]
async fn the_exit_of_a_program_is_the_outcome_of_the_job() {
    let bench = Bench::new().await;
    let script = r#"case $(cat) in
        '"text"') echo not json ;;
        '"fail"') echo first >&2; printf '%8000s' x >&2; echo ' the end' >&2; exit 3 ;;
        '"odd"') head -c 6000 /dev/zero | tr '\0' '\377' >&2; echo the real cause >&2; exit 1 ;;
        '"signal"') kill -9 $$ ;;
        '"large"') head -c 20000000 /dev/zero ;;
        '"behind"') sleep 60 & echo 7 ;;
        '"long"') echo 12345678901234567890123456789.50 ;;
        *) echo 1 ;;
    esac"#;
    let worker = Script::start(&bench, &[], script);
    assert_eq!(worker.result(json!(null)).await.unwrap(), json!(1));
    assert_eq!(worker.result(json!("text")).await.unwrap(), Value::Null, "it is for people");
    let (code, message) = worker.failure(json!("fail")).await;
    assert!(code == "exit_3" && message.starts_with("exit status 3: "), "{code}: {message}");
    assert!(message.ends_with(" the end") && !message.contains("first") && message.len() < 4200, "{message}");
    let (code, message) = worker.failure(json!("odd")).await;
    assert!(code == "exit_1" && message.starts_with("exit status 1: "), "{code}: {message}");
    assert!(message.ends_with("the real cause"), "{message}");
    let (code, message) = worker.failure(json!("signal")).await;
    assert_eq!((&*code, &*message), ("signal_9", "killed by signal 9"));
    assert_eq!(worker.failure(json!("large")).await.0, "output_too_large");
    assert_eq!(
        worker.result(json!("behind")).await.unwrap(),
        json!(7),
        "the worker does not wait for a child with the output open"
    );
    // Numbers of any length are printed as the script wrote them.
    let wait = ["jobs", "dispatch", "-t", "script", "\"long\"", "--wait"];
    assert_eq!(bench.run(&wait).await.ok(), "12345678901234567890123456789.50\n");
    // An input that the program does not read is not a failure.
    assert_eq!(worker.result(json!("x".repeat(500_000))).await.unwrap(), json!(1));
    for program in ["/no/such/program", "no-such-program"] {
        let ran = bench.run(&["work", "-t", "nobody", "--exec", program]).await;
        assert!(ran.status == 2 && ran.err.contains(&format!("cannot find the program {program}")), "{ran:?}");
    }
    let plain = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    let ran = bench.run(&["work", "-t", "nobody", "--exec", plain]).await;
    assert!(ran.status == 2 && ran.err.contains("is not executable; run `chmod +x`"), "{ran:?}");
}

#[tokio::test]
async fn exit_status_75_snoozes_the_job() {
    let bench = Bench::new().await;
    let file = scratch("snooze");
    let script = format!("if [ -e {0} ]; then echo 5; else touch {0}; exit 75; fi", file.display());
    let worker = Script::start(&bench, &["--snooze", "100ms"], &script);
    let job = worker.jobs.dispatch(json!(1)).await.unwrap();
    assert_eq!(job.result_within(PATIENCE).await.unwrap(), json!(5));
    let report =
        bench.app.inspector().job("script", job.id().as_str(), heartline::JobValues::None).await.unwrap().unwrap();
    assert_eq!((report.snoozed_count, report.failed_attempts), (1, 0));
    let _ = std::fs::remove_file(file);
}

#[tokio::test]
async fn a_cancel_and_a_timeout_end_a_program_and_its_children() {
    let bench = Bench::new().await;
    let file = scratch("cancel");
    let script = format!("trap '' TERM; sleep 600 & echo $! >> {0}; echo $$ >> {0}; wait; wait", file.display());
    let worker = Script::start(&bench, &[], &script);
    let job = worker.jobs.dispatch(json!(1)).await.unwrap();
    let running = pids(&file, 2).await;
    assert!(running.iter().all(|pid| lives(pid)));
    job.cancel("not needed").await.unwrap();
    until("all of it is gone", async || !running.iter().any(|pid| lives(pid))).await;
    until("it is cancelled", async || job.state().await.unwrap() == JobState::Cancelled).await;
    drop(worker);

    let _ = std::fs::remove_file(&file);
    let worker = Script::start(&bench, &["--timeout", "500ms"], &script);
    assert_eq!(worker.failure(json!(2)).await.0, "timeout");
    let running = pids(&file, 2).await;
    until("all of it is gone", async || !running.iter().any(|pid| lives(pid))).await;
    let _ = std::fs::remove_file(file);
}

#[tokio::test]
async fn a_program_ends_with_its_killed_worker_and_its_job_runs_again() {
    let bench = Bench::new().await;
    let file = scratch("orphan");
    let script = format!(
        "echo $$ >> {0}; [ -n \"$HEARTLINE_RECOVERY\" ] && echo \"\\\"$HEARTLINE_RECOVERY\\\"\" && exit 0; sleep 600",
        file.display()
    );
    let mut worker = Script::start(&bench, &[], &script);
    let job = worker.jobs.dispatch(json!(1)).await.unwrap();
    let running = pids(&file, 1).await;
    worker.signal("-KILL");
    worker.child.wait().unwrap();
    until("its program is gone", async || !lives(&running[0])).await;
    let _second = Script::start(&bench, &[], &script);
    assert_eq!(job.result_within(PATIENCE).await.unwrap(), json!("worker_restarted"));
    let _ = std::fs::remove_file(file);
}

#[tokio::test]
async fn programs_get_the_heartbeat_interval_in_milliseconds() {
    let bench = Bench::new().await;
    let worker = Script::start(&bench, &[], "sleep 600");
    worker.jobs.dispatch(json!(1)).await.unwrap();
    let beats = async || bench.run(&["workers", "--beats", "--json"]).await.json();
    // The first heartbeats may name no job yet.
    until("a heartbeat named the job", async || beats().await[0]["beat_took_ms"].is_u64()).await;
    let beats = beats().await;
    assert!(beats[0]["answered"].is_null(), "{beats}");
    assert!(beats[0]["deadline_at_ms"].as_u64() > beats[0]["last_beat_at_ms"].as_u64(), "{beats}");
    let table = bench.run(&["workers", "--beats"]).await.ok();
    assert!(table.contains("HELD") && table.contains("script"), "{table}");
}

#[tokio::test]
async fn a_stopped_worker_gives_programs_their_grace_and_requeues() {
    let bench = Bench::new().await;
    let file = scratch("grace");
    let script = format!("echo $$ >> {}; sleep $(cat); echo 1", file.display());
    // A closed terminal is not a crash.
    for signal in ["-TERM", "-HUP"] {
        let mut worker = Script::start(&bench, &["--concurrency", "2", "--grace", "2s"], &script);
        let short = worker.jobs.dispatch(json!(1)).await.unwrap();
        let long = worker.jobs.dispatch(json!(600)).await.unwrap();
        let running = pids(&file, 2).await;
        worker.signal(signal);
        assert!(worker.child.wait().unwrap().success());
        assert_eq!(short.result_within(Duration::from_secs(1)).await.unwrap(), json!(1));
        assert_eq!(long.state().await.unwrap(), JobState::Waiting);
        until("the long one is gone", async || !running.iter().any(|pid| lives(pid))).await;
        long.cancel("enough").await.unwrap();
        std::fs::remove_file(&file).unwrap();
    }
}

#[tokio::test]
async fn workers_that_end_sooner_than_their_jobs_are_reported() {
    let bench = Bench::of_one_table().await;
    let file = scratch("again");
    let script = format!("echo $$ >> {}; sleep $(cat)", file.display());
    let task = bench.app.task_ref::<Value, Value>("script").unwrap();
    let longs: Vec<_> = task.dispatch_many((0..2).map(|_| json!(600))).await.unwrap();
    let mut started = 0;
    let mut goes = async |times: usize, signal: &str| {
        for _ in 0..times {
            started += 2;
            let mut worker =
                Script::start(&bench, &["--grace", "0s", "--max-count", "50", "--concurrency", "2"], &script);
            let _ = pids(&file, started).await;
            worker.signal(signal);
            worker.child.wait().unwrap();
        }
    };
    goes(1, "-TERM").await;
    let ran = bench.run(&["status"]).await;
    assert!(!ran.out.contains("broke off"), "a deploy is nothing: {ran:?}");
    goes(2, "-TERM").await;
    let ran = bench.run(&["status"]).await;
    let told = "? script: 6 runs broke off and none completed, because workers stopped or died: 3 for each job ";
    assert!(ran.out.contains(told), "{ran:?}");
    // Stopped or killed makes no difference.
    goes(1, "-KILL").await;
    goes(1, "-TERM").await;
    let told = "! script: 10 runs broke off and none completed, because workers stopped or died: 5 for each job ";
    let url = bench.url();
    let args = ["--redis", &url, "--prefix", "cli", "health"];
    let ran = bench.run(&args).await;
    assert!(ran.status == 1 && ran.out.contains(told), "also between two workers: {ran:?}");
    // The suggested command uses the same server, so that it needs no environment.
    assert!(ran.out.contains(&format!("`heartline --redis {url} workers --all`")), "{ran:?}");
    let ran = bench.run(&["metrics", "--once"]).await;
    assert!(ran.out.contains("heartline_task_broken_off_again{task=\"script\"} 5"), "{ran:?}");
    for long in &longs {
        long.cancel("enough").await.unwrap();
    }
    // A cancelled job does not run again.
    task.dispatch(json!(600)).delay(Duration::from_secs(3600)).await.unwrap();
    let ran = bench.run(&["health"]).await;
    assert!(!ran.out.contains("broke off"), "{ran:?}");
    // A completed run ends the warning.
    let worker = Script::start(&bench, &[], &script);
    assert_eq!(worker.result(json!(0)).await.unwrap(), Value::Null);
    let ran = bench.run(&["health"]).await;
    assert!(ran.status == 0, "{ran:?}");
    std::fs::remove_file(&file).unwrap();
}

#[tokio::test]
async fn a_worker_with_nohup_survives_its_terminal() {
    let bench = Bench::new().await;
    let mut command = std::process::Command::new("nohup");
    let own = bench.command(&["work", "-t", "script", "--exec", "cat"]);
    command.arg(own.get_program()).args(own.get_args());
    own.get_envs().for_each(|(name, value)| {
        command.env(name, value.unwrap_or_default());
    });
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let worker = Script { child, jobs: bench.app.task_ref("script").unwrap() };
    assert_eq!(worker.result(json!(1)).await.unwrap(), json!(1));
    worker.signal("-HUP");
    assert_eq!(worker.result(json!(2)).await.unwrap(), json!(2));
}

#[tokio::test]
async fn a_worker_whose_file_is_removed_keeps_working() {
    let bench = Bench::new().await;
    let file = scratch("removed");
    std::fs::copy(env!("CARGO_BIN_EXE_heartline"), &file).unwrap();
    let mut command = std::process::Command::new(&file);
    command.env("HEARTLINE_URL", bench.url()).env("HEARTLINE_PREFIX", "cli");
    command.args(["work", "-t", "script", "--exec", "cat"]).stderr(Stdio::null());
    let worker = Script { child: command.spawn().unwrap(), jobs: bench.app.task_ref("script").unwrap() };
    assert_eq!(worker.result(json!(1)).await.unwrap(), json!(1));
    std::fs::remove_file(&file).unwrap();
    assert_eq!(worker.result(json!(2)).await.unwrap(), json!(2));
}

#[tokio::test]
async fn jobs_wait_while_their_program_cannot_be_started() {
    let bench = Bench::new().await;
    let file = scratch("gone");
    std::fs::copy("/bin/cat", &file).unwrap();
    let program = file.display().to_string();
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_heartline"));
    command.env("HEARTLINE_URL", bench.url()).env("HEARTLINE_PREFIX", "cli");
    command.args(["work", "-t", "script", "--exec", &program]).stderr(Stdio::null());
    let worker = Script { child: command.spawn().unwrap(), jobs: bench.app.task_ref("script").unwrap() };
    assert_eq!(worker.result(json!(1)).await.unwrap(), json!(1));
    std::fs::remove_file(&file).unwrap();
    let job = worker.jobs.dispatch(json!(2)).await.unwrap();
    until("it is snoozed", async || worker.jobs.counts().await.unwrap().delayed == 1).await;
    std::fs::copy("/bin/cat", &file).unwrap();
    assert_eq!(job.result_within(PATIENCE).await.unwrap(), json!(2), "with its one attempt");
}

#[tokio::test]
async fn a_worker_that_can_start_no_program_ends_and_is_reported() {
    let bench = Bench::new().await;
    let file = scratch("shebang");
    std::fs::write(&file, "#!/no/such/interpreter\n").unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
    let program = file.display().to_string();
    let args = ["work", "-t", "script", "--timeout", "2s", "--concurrency", "2", "--exec", &program];
    let jobs: TaskRef<Value, Value> = bench.app.task_ref("script").unwrap();
    let job = jobs.dispatch(json!(1)).id("one").await.unwrap();
    let ran = bench.run(&args).await;
    assert!(ran.status == 1 && ran.err.contains("error: the program cannot be started"), "{ran:?}");
    let job = jobs.job(job.id()).await.unwrap();
    assert_eq!((job.state.is_terminal(), job.failed_attempts), (false, 0), "a failed start is not a failed run");
    let shown = bench.run(&["jobs", "show", "-t", "script", "one"]).await.ok();
    assert!(shown.contains("the program cannot be started"), "{shown}");
    until("it is reported", async || bench.run(&["health"]).await.out.contains("no live worker has the task")).await;
}

#[tokio::test]
async fn a_worker_that_cannot_start_programs_finishes_running_ones() {
    let bench = Bench::new().await;
    let (file, log) = (scratch("once"), scratch("once-log"));
    std::fs::write(&file, format!("#!/bin/sh\necho $$ >> {}; sleep 26; echo 9\n", log.display())).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
    let program = file.display().to_string();
    let child = bench
        .command(&["work", "-t", "script", "--concurrency", "2", "--exec", &program])
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut worker = Script { child, jobs: bench.app.task_ref("script").unwrap() };
    let long = worker.jobs.dispatch(json!(1)).await.unwrap();
    pids(&log, 1).await;
    std::fs::remove_file(&file).unwrap();
    let other = worker.jobs.dispatch(json!(2)).await.unwrap();
    assert_eq!(long.result_within(2 * PATIENCE).await.unwrap(), json!(9), "it was not stopped for the other one");
    // Now the worker is useless, and its exit status says so, whatever has ended since.
    let ended = tokio::task::spawn_blocking(move || worker.child.wait().unwrap()).await.unwrap();
    assert_eq!(ended.code(), Some(1));
    let other = bench.app.task_ref::<Value, Value>("script").unwrap().job(other.id()).await.unwrap();
    assert_eq!((other.state.is_terminal(), other.failed_attempts), (false, 0));
}

#[tokio::test]
async fn a_program_that_ends_well_when_asked_to_stop_succeeds() {
    let bench = Bench::new().await;
    let file = scratch("ends");
    let begins = format!("echo $$ >> {}", file.display());
    let script = format!("trap 'echo 7; exit 0' TERM; {begins}; while :; do sleep 0.1; done");
    let mut worker = Script::start(&bench, &["--grace", "0s"], &script);
    let job = worker.jobs.dispatch(json!(1)).await.unwrap();
    pids(&file, 1).await;
    worker.signal("-TERM");
    assert!(worker.child.wait().unwrap().success());
    assert_eq!(job.result_within(PATIENCE).await.unwrap(), json!(7), "there is no other worker");

    // Many programs end with 0 in any case: without a result the job is not done.
    let quiet = script.replace("echo 7; ", "");
    let mut worker = Script::start(&bench, &["--grace", "0s"], &quiet);
    let job = worker.jobs.dispatch(json!(2)).await.unwrap();
    pids(&file, 2).await;
    worker.signal("-TERM");
    assert!(worker.child.wait().unwrap().success());
    assert_eq!(job.state().await.unwrap(), JobState::Waiting);
}

#[tokio::test]
async fn values_pass_unchanged() {
    let bench = Bench::new().await;
    let worker = Script::start(&bench, &[], "cat");
    let payload = r#"{"order":12345678901234567890123,"b":2,"a":1.10,"deep":"#.to_owned()
        + &"[".repeat(100)
        + &"]".repeat(100)
        + "}";
    assert_eq!(bench.run(&["jobs", "dispatch", "-t", "script", &payload, "--id", "exact"]).await.ok(), "exact\n");
    let job: heartline::JobHandle<Box<RawValue>> =
        bench.app.task_ref::<Value, _>("script").unwrap().handle("exact").unwrap();
    assert_eq!(job.result_within(PATIENCE).await.unwrap().get(), payload);
    for wrong in ["1e400", r#""\ud800""#, &("[".repeat(300) + &"]".repeat(300))] {
        let ran = bench.run(&["jobs", "dispatch", "-t", "script", wrong]).await;
        assert!(ran.status == 2 && ran.err.contains("the payload is not JSON"), "{ran:?}");
    }
    drop(worker);
}

#[tokio::test]
async fn a_log_that_cannot_be_written_costs_no_job() {
    let bench = Bench::new().await;
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let args = ["work", "-t", "script", "--exec", "cat"];
    let child = bench.command(&args).stderr(full).spawn().unwrap();
    let mut worker = Script { child, jobs: bench.app.task_ref("script").unwrap() };
    assert_eq!(worker.result(json!(1)).await.unwrap(), json!(1));
    worker.signal("-TERM");
    assert!(worker.child.wait().unwrap().success());
}

#[tokio::test]
async fn a_similar_name_asks_for_confirmation() {
    let bench = Bench::new().await;
    bench.export.dispatch("x".into()).await.unwrap();
    for (task, warning) in [("exprt", "did you mean export?"), ("export", " processes export")] {
        let mut work = bench.command(&["work", "-t", task, "--exec", "true"]);
        let mut child = work.stderr(Stdio::piped()).spawn().unwrap();
        let lines = std::io::BufRead::lines(std::io::BufReader::new(child.stderr.take().unwrap()));
        let told = tokio::task::spawn_blocking(move || {
            lines.map_while(Result::ok).find(|line| line.contains("did you mean") || line.contains(" processes "))
        });
        let told = told.await.unwrap();
        let _ = child.kill().and_then(|()| child.wait());
        assert!(told.as_ref().is_some_and(|told| told.contains(warning)), "{told:?}");
    }
}
