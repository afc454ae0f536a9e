//! Worker processes that really die, freeze and wake: SIGKILL, SIGSTOP, SIGCONT, abort.
//!
//! A child is this very program, which runs only the test `a_worker_process_for_the_other_tests`. Its handlers push
//! what they report to a list on the test's server.

use crate::support::events::next;
use crate::support::puppet::Puppet;
use crate::support::task::{TASK, TestTask, adaptive, fast};
use crate::support::worker::TestWorker;
use crate::support::{PATIENCE, Proxy, Warnings, eventually, is_thorough};
use heartline::{
    App, CancelOutcome, Context, DeathProof, DiagnosisKind, Event, JobError, JobState, JobValues, Limit, Outcome,
    StallAction, StallOptions, StallReason, TaskRef, WorkerIdentity, WorkerState,
};
use redis::AsyncCommands;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

const ROLE: &str = "HEARTLINE_TEST_CHILD";

/// Not a test: the program of the children. It does nothing unless a test started it.
#[test]
fn a_worker_process_for_the_other_tests() {
    let Ok(role) = std::env::var(ROLE) else { return };
    // A child must not outlive the test that started it.
    std::thread::spawn(|| {
        let _ = std::io::stdin().read(&mut [0]);
        std::process::exit(0);
    });
    let words: Vec<&str> = role.split(' ').collect();
    let [what, url, log_url, prefix, interval_ms] = words[..] else { panic!("{role}") };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let warnings = Warnings::capture();
    runtime.block_on(async {
        let app = App::builder().redis(url).prefix(prefix).build().await.unwrap();
        if what == "produce" {
            let task: TaskRef<String, u32> = app.task_ref(TASK).unwrap();
            task.dispatch_many_with_ids(many()).await.unwrap();
            return;
        }
        let log = Log { client: redis::Client::open(log_url).unwrap(), key: format!("{prefix}:log") };
        let said = log.clone();
        tokio::spawn(warn(warnings, Log { key: format!("{prefix}:warnings"), ..log.clone() }));
        let interval = Duration::from_millis(interval_ms.parse().unwrap());
        let stall = StallOptions::new().interval(interval);
        let (slots, name) = what.split_once('@').unwrap_or((what, ""));
        let (slots, has_hook) = slots.strip_suffix('h').map_or((slots, false), |slots| (slots, true));
        let (slots, most) = slots.split_once('#').map_or((slots, None), |(slots, most)| (slots, Some(most)));
        let (slots, per_key) = slots.split_once('%').map_or((slots, None), |(slots, most)| (slots, Some(most)));
        let (slots, ahead) = slots.split_once('+').unwrap_or((slots, "0"));
        let options = match ahead {
            "adaptive" => adaptive().stall(stall),
            ahead => fast().stall(stall.max_count(1000)).prefetch(ahead.parse().unwrap()),
        };
        let mut options = options.concurrency(slots.parse().unwrap());
        if let Some(most) = most {
            options = options.max_running(most.parse().unwrap());
        }
        if let Some(most) = per_key {
            options = options.per_key(Limit::new().running(most.parse().unwrap()));
        }
        let hook_log = log.clone();
        let task = app.task(TASK, options, move |ctx, input: String| child(ctx, input, log.clone())).unwrap();
        if has_hook {
            task.on_complete(move |ctx, outcome| hook(ctx, outcome, hook_log.clone())).unwrap();
        }
        let identity = if name.is_empty() { WorkerIdentity::unique() } else { WorkerIdentity::exclusive(name) };
        let reason = app.worker().identity(identity).run().await.unwrap();
        said.say(format!("{} stopped: {reason}", std::process::id())).await;
    });
}

/// The jobs of the producer that is killed.
fn many() -> impl Iterator<Item = (String, String)> {
    (0..20_000).map(|at| (format!("job-{at}"), "quick".to_owned()))
}

#[derive(Clone)]
struct Log {
    client: redis::Client,
    key: String,
}

impl Log {
    async fn say(&self, text: String) {
        let mut conn = self
            .client
            .get_multiplexed_async_connection_with_config(&crate::support::TestRedis::patient())
            .await
            .unwrap();
        conn.rpush::<_, _, ()>(&self.key, text).await.unwrap();
    }
}

/// Pushes the worker's warnings to a list.
async fn warn(warnings: Warnings, log: Log) {
    let mut said = 0;
    loop {
        for line in warnings.all().into_iter().skip(said) {
            said += 1;
            log.say(format!("{} {line}", std::process::id())).await;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// What a child does with a job. Its value is the id of the process.
async fn child(ctx: Context, input: String, log: Log) -> Result<u32, JobError> {
    let me = std::process::id();
    match input.as_str() {
        "quick" => {}
        "short" => tokio::time::sleep(Duration::from_millis(20)).await,
        // Held by the first process that gets it.
        "hold once" if ctx.stalled_count() > 0 => {}
        "poison" => {
            log.say(format!("{} is poison", ctx.id())).await;
            std::process::abort();
        }
        "watch" if ctx.stalled_count() > 0 => {}
        "watch" => return watch(ctx, log).await,
        _ => std::future::pending().await,
    }
    Ok(me)
}

/// What a child does after a job has ended, by its id.
async fn hook(ctx: Context, outcome: Outcome<u32>, log: Log) -> Result<(), JobError> {
    log.say(format!("hook {} {} {}", ctx.id(), outcome.state(), ctx.stalled_count())).await;
    match ctx.id().as_str().split('-').next() {
        Some("held") if ctx.stalled_count() == 0 => std::future::pending().await,
        Some("killer") => std::process::abort(),
        _ => Ok(()),
    }
}

/// Checks its heartbeat in a tight loop until it is stopped, and reports the first result after a gap.
async fn watch(ctx: Context, log: Log) -> Result<u32, JobError> {
    log.say(format!("{} is watched", ctx.id())).await;
    let (at_risk, say) = (ctx.clone(), log.clone());
    tokio::spawn(async move {
        at_risk.lock_at_risk().await;
        say.say(format!("{} at risk", at_risk.id())).await;
    });
    let beats = ctx.clone();
    let heard = tokio::task::spawn_blocking(move || {
        let mut last = Instant::now();
        loop {
            std::thread::sleep(Duration::from_millis(1));
            let gap = last.elapsed();
            last = Instant::now();
            match beats.heartbeat() {
                // A heartbeat of a loaded machine may be late, but not by this much.
                Ok(()) if gap > Duration::from_millis(900) => return "told Ok after a freeze".to_owned(),
                Ok(()) => {}
                Err(told) => return format!("told {told:?}"),
            }
        }
    });
    log.say(format!("{} {}", ctx.id(), heard.await?)).await;
    Ok(std::process::id())
}

/// A child process, killed at the latest when the test ends.
struct Process(Child);

impl Process {
    fn spawn(test: &TestTask, url: &str, what: &str, interval_ms: u64) -> Process {
        let role = format!("{what} {url} {} {} {interval_ms}", test.redis().url(), test.prefix);
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["crash::a_worker_process_for_the_other_tests", "--exact", "--nocapture"])
            .env(ROLE, role)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        Process(child.unwrap())
    }

    /// A worker with this many slots, and an interval of one second.
    fn worker(test: &TestTask, slots: usize) -> Process {
        Process::spawn(test, &test.redis().url(), &slots.to_string(), 1000)
    }

    fn id(&self) -> u32 {
        self.0.id()
    }

    fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }

    fn signal(&self, name: &str) {
        let sent = Command::new("kill").arg(name).arg(self.id().to_string()).status().unwrap();
        assert!(sent.success());
    }

    fn is_dead(&mut self) -> bool {
        self.death().is_some()
    }

    fn death(&mut self) -> Option<ExitStatus> {
        self.0.try_wait().unwrap()
    }
}

/// How many of these processes aborted. On a busy machine, a worker may also end because Redis is late when it starts.
fn aborted(deaths: &[ExitStatus]) -> usize {
    deaths.iter().filter(|status| status.signal().is_some()).count()
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// All entries of the events of a task.
struct Events(redis::streams::StreamRangeReply);

impl Events {
    async fn read(test: &TestTask) -> Events {
        Events(test.conn().await.xrange_all(test.key("events")).await.unwrap())
    }

    /// The words of a field, of all entries.
    fn words(&self, field: &str) -> Vec<String> {
        let texts = self.0.ids.iter().filter_map(|entry| entry.get::<String>(field));
        texts
            .flat_map(|text| text.split(' ').filter(|word| !word.is_empty()).map(str::to_owned).collect::<Vec<_>>())
            .collect()
    }
}

async fn task(test: &TestTask) -> (App, TaskRef<String, u32>) {
    let app = test.app().await;
    let task = app.task_ref(TASK).unwrap();
    (app, task)
}

/// Dispatches jobs with these ids and waits until they run.
async fn running(task: &TaskRef<String, u32>, input: &str, ids: &[String], max_count: u32) {
    for id in ids {
        task.dispatch(input.into()).id(id).max_stalls(max_count).await.unwrap();
    }
    for id in ids {
        let handle = task.handle(id).unwrap();
        eventually("it runs", PATIENCE, async || handle.state().await.unwrap() == JobState::Running).await;
    }
}

fn ids(kind: &str, count: usize) -> Vec<String> {
    (0..count).map(|at| format!("{kind}-{at}")).collect()
}

/// The lines of the handlers that contain `part`, once there are this many.
async fn heard(test: &TestTask, part: &str, count: usize) -> Vec<String> {
    lines(test, "log", part, count).await
}

async fn lines(test: &TestTask, list: &str, part: &str, count: usize) -> Vec<String> {
    eventually(&format!("{count} times {part:?}"), PATIENCE, async || {
        let lines: Vec<String> = test.conn().await.lrange(format!("{}:{list}", test.prefix), 0, -1).await.unwrap();
        let lines: Vec<String> = lines.into_iter().filter(|line| line.contains(part)).collect();
        (lines.len() >= count).then_some(lines)
    })
    .await
}

#[tokio::test]
async fn jobs_of_a_killed_worker_run_again_and_those_of_others_stay() {
    let test = TestTask::new();
    let (app, task) = task(&test).await;
    let (of_dead, of_sibling) = (ids("dead", 3), ids("sibling", 3));
    let victim = Process::worker(&test, 3);
    running(&task, "hold once", &of_dead, 1).await;
    let sibling = Process::worker(&test, 6);
    running(&task, "hold", &of_sibling, 0).await;
    let mut stalls = app.on_stalled();
    let (dead_pid, sibling_pid) = (victim.id(), sibling.id());
    victim.kill();
    let killed_in = test.epoch().await;
    let mut found = BTreeSet::new();
    for _ in &of_dead {
        let stall = next(&mut stalls).await;
        assert_eq!((stall.action, stall.stalled_count), (StallAction::Recovered, 1));
        assert!(stall.worker.unwrap().as_str().contains(&format!("-{dead_pid}-")));
        found.insert(stall.id.to_string());
    }
    // The epoch may go on before this test reads it, so each stall says in which one it was decided. It has none if the
    // sibling was still looking for dead workers, as it does at its start: it proves this death without an epoch.
    let reports = app.inspector().stalls(&test.name, None).await.unwrap().stalls;
    assert_eq!(reports.len(), of_dead.len());
    for decided_in in reports.iter().filter_map(|report| report.epoch) {
        assert!(decided_in <= killed_in + 1, "killed in epoch {killed_in}, decided in {decided_in}");
    }
    assert_eq!(found, of_dead.iter().cloned().collect());
    for id in &of_dead {
        assert_eq!(task.handle(id).unwrap().result().await.unwrap(), sibling_pid);
        assert_eq!(test.places(id).await, ["completed"]);
    }
    test.epochs_pass(1).await;
    for id in &of_sibling {
        assert_eq!(test.places(id).await, ["running"]);
        assert_eq!(test.column("stalledCount", id).await, None);
    }
}

#[tokio::test]
async fn a_poison_job_fails_after_one_death_more_than_max_count() {
    let test = TestTask::new();
    let (app, task) = task(&test).await;
    let mut events = app.events();
    let mut process = Process::worker(&test, 10);
    let mut deaths = Vec::new();
    let innocents = ids("innocent", 3);
    running(&task, "hold", &innocents, 10).await;
    task.dispatch("poison".into()).id("poison").max_stalls(2).await.unwrap();
    let (mut starts, mut stalls) = (0, Vec::new());
    loop {
        if let Some(status) = process.death() {
            deaths.push(status);
            process = Process::worker(&test, 10);
        }
        let event = tokio::time::timeout(Duration::from_millis(50), events.recv()).await;
        match event.map(Result::unwrap) {
            Ok(Event::Started { id, .. }) if id.as_str() == "poison" => starts += 1,
            Ok(Event::Stalled(stall)) if stall.id.as_str() == "poison" => {
                stalls.push((stall.stalled_count, stall.action));
                if stall.is_terminal() {
                    break;
                }
            }
            _ => {}
        }
    }
    use StallAction::{Failed, Recovered};
    assert_eq!((aborted(&deaths), starts), (3, 3), "{deaths:?}");
    assert_eq!(stalls, [(1, Recovered), (2, Recovered), (3, Failed)]);
    let job = task.job("poison").await.unwrap();
    assert_eq!((job.state, job.failed_attempts, job.stalled_count), (JobState::Failed, 0, 3));
    assert_eq!(job.error.unwrap().code, "worker_crashed");
    let inspector = app.inspector();
    let report = inspector.job(TASK, "poison", JobValues::None).await.unwrap().unwrap();
    let [found] = &inspector.diagnose_job(&report).await.unwrap()[..] else { panic!("no warning of a retry") };
    assert!(matches!(&found.kind, DiagnosisKind::FailedSuspects { jobs } if *jobs == ["poison"]), "{found:?}");
    let all = inspector.diagnose().await.unwrap();
    let at = |is: fn(&DiagnosisKind) -> bool| all.iter().position(|found| is(&found.kind));
    let suspect = at(|kind| matches!(kind, DiagnosisKind::FailedSuspects { .. }));
    let recovered = at(|kind| matches!(kind, DiagnosisKind::JobsRecovered { .. }));
    assert!(suspect.is_some() && suspect < recovered, "{all:?}");
    assert_eq!(test.places("poison").await, ["failed"]);
    for id in &innocents {
        test.arrives(id, "running").await;
        assert_eq!(test.column("stalledCount", id).await.as_deref(), Some("3"));
    }
}

#[tokio::test]
async fn the_hook_of_a_killed_worker_runs_without_the_handler() {
    let test = TestTask::new();
    let (app, task) = task(&test).await;
    let mut events = app.events();
    let victim = Process::spawn(&test, &test.redis().url(), "3h", 1000);
    let held = ids("held", 3);
    for id in &held {
        task.dispatch("quick".into()).id(id).await.unwrap();
    }
    heard(&test, "hook held", 3).await;
    for id in &held {
        assert_eq!(task.handle(id).unwrap().state().await.unwrap(), JobState::Finalizing);
    }
    let dead_pid = victim.id();
    victim.kill();
    let _other = Process::spawn(&test, &test.redis().url(), "3h", 1000);
    for id in &held {
        assert_eq!(task.handle(id).unwrap().result().await.unwrap(), dead_pid, "the handler did not run again");
        assert_eq!(heard(&test, &format!("hook {id} completed"), 2).await.len(), 2);
        assert_eq!(test.column("stalledCount", id).await, None, "the handler did not stall");
    }
    let (mut starts, mut ended) = (0, 0);
    while ended < held.len() {
        match next(&mut events).await {
            Event::Started { .. } => starts += 1,
            Event::Stalled(stall) => assert_eq!((stall.action, stall.stalled_count), (StallAction::Requeued, 1)),
            event => ended += usize::from(event.is_terminal()),
        }
    }
    assert_eq!(starts, held.len());
}

#[tokio::test]
async fn a_hook_is_skipped_after_one_death_more_than_max_count() {
    let test = TestTask::new();
    let (app, task) = task(&test).await;
    let mut events = app.events();
    let mut process = Process::spawn(&test, &test.redis().url(), "5h", 1000);
    let handle = task.dispatch("quick".into()).id("killer").max_stalls(2).await.unwrap();
    let (mut deaths, mut told) = (Vec::new(), Vec::new());
    loop {
        if let Some(status) = process.death() {
            deaths.push(status);
            process = Process::spawn(&test, &test.redis().url(), "5h", 1000);
        }
        match tokio::time::timeout(Duration::from_millis(50), events.recv()).await.map(Result::unwrap) {
            Ok(Event::Stalled(stall)) => told.push(format!("{} {}", stall.stalled_count, stall.action)),
            Ok(Event::HookFailed { code, .. }) => told.push(code),
            Ok(Event::Completed { .. }) => break,
            _ => {}
        }
    }
    assert_eq!(told, ["1 requeued", "2 requeued", "3 completed", "worker_crashed"]);
    assert_eq!(aborted(&deaths), 3, "{deaths:?}");
    handle.result().await.unwrap();
    assert_eq!(test.places("killer").await, ["completed"]);
}

#[tokio::test]
async fn under_kills_every_hook_runs_and_no_handler_after_its_outcome() {
    let test = TestTask::new();
    let (app, task) = task(&test).await;
    let mut events = app.events();
    let spawn = || Process::spawn(&test, &test.redis().url(), "4+6h", 1000);
    let mut workers: Vec<Process> = (0..2).map(|_| spawn()).collect();
    let jobs = ids("job", 300);
    // Without events: they are more than a subscriber may lag.
    let (producer, sent) = (task.clone(), jobs.clone());
    let dispatches = tokio::spawn(async move {
        for id in &sent {
            producer.dispatch("short".into()).id(id).max_stalls(1000).await.unwrap();
        }
    });
    let (mut stored, mut ended, mut kills) = (BTreeMap::new(), BTreeSet::new(), 0);
    while ended.len() < jobs.len() {
        let event = next(&mut events).await;
        let id = event.id().to_string();
        match event {
            Event::Started { .. } => assert!(!stored.contains_key(&id), "the handler of {id} runs after its outcome"),
            Event::Finalizing { outcome, .. } => {
                assert_eq!(stored.insert(id, outcome), None, "an outcome is stored once");
                // At any moment of their work.
                if stored.len() % 25 == 0 && kills < 10 {
                    workers.remove(0).kill();
                    workers.push(spawn());
                    kills += 1;
                }
            }
            Event::Completed { .. } => assert!(ended.insert(id), "it ends once"),
            Event::Failed { .. } | Event::Cancelled { .. } | Event::HookFailed { .. } => panic!("{event:?}"),
            _ => {}
        }
    }
    dispatches.await.unwrap();
    assert_eq!((stored.len(), kills), (jobs.len(), 10));
    let said: BTreeSet<String> = heard(&test, "hook", jobs.len()).await.into_iter().collect();
    for id in &jobs {
        assert!(said.iter().any(|line| line.starts_with(&format!("hook {id} completed"))), "{id} had no hook");
    }
    assert_eq!(task.counts().await.unwrap().completed, jobs.len() as u64);
    assert_eq!((test.dump("outcome").await, test.dump("finalizing").await), (None, None));
}

#[tokio::test]
async fn a_cancelled_job_whose_worker_died_ends_cancelled() {
    let test = TestTask::new();
    let (app, task) = task(&test).await;
    let victim = Process::worker(&test, 1);
    running(&task, "hold", &["cancelled".to_owned()], 5).await;
    let _other = Process::worker(&test, 5);
    let mut events = app.events();
    victim.signal("-STOP");
    let handle = task.handle("cancelled").unwrap();
    assert_eq!(handle.cancel("no longer wanted").await.unwrap(), CancelOutcome::Requested);
    victim.kill();
    let stall = loop {
        match next(&mut events).await {
            Event::Stalled(stall) => break stall,
            Event::Dispatched { .. } | Event::Started { .. } => {}
            other => panic!("{other:?}"),
        }
    };
    assert_eq!((stall.action, stall.stalled_count, stall.is_terminal()), (StallAction::Cancelled, 1, true));
    let error = handle.result().await.unwrap_err();
    assert!(matches!(error, heartline::Error::JobCancelled { reason, .. } if reason == "no longer wanted"));
    test.epochs_pass(1).await;
    assert_eq!(test.places("cancelled").await, ["cancelled"]);
    assert_eq!(test.run::<u64>("EXISTS", "cancelling", &[]).await, 0);
    // Its event is that of every cancelled job; nothing follows.
    let told = events.try_recv().unwrap();
    assert!(matches!(&told, Some(Event::Cancelled { id, .. }) if id.as_str() == "cancelled"), "{told:?}");
    assert_eq!(events.try_recv().unwrap(), None);
}

#[tokio::test]
async fn a_zombie_learns_of_its_loss_and_its_results_are_refused() {
    let test = TestTask::new();
    let (app, task) = task(&test).await;
    let ids = ids("watched", 8);
    let zombie = Process::worker(&test, 8);
    running(&task, "watch", &ids, 1).await;
    let heir = Process::worker(&test, 8);
    let mut stalls = app.on_stalled();
    zombie.signal("-STOP");
    for _ in &ids {
        assert_eq!(next(&mut stalls).await.action, StallAction::Recovered);
    }
    for id in &ids {
        assert_eq!(task.handle(id).unwrap().result().await.unwrap(), heir.id());
    }
    let before = (test.column("result", &ids[0]).await, test.run::<u64>("XLEN", "events", &[]).await);
    zombie.signal("-CONT");
    for line in heard(&test, "told", ids.len()).await {
        assert!(line.ends_with("told Frozen") || line.ends_with("told Lost"), "{line}");
    }
    // Its handlers are not blamed for the freeze.
    let stood_still = lines(&test, "warnings", "frozen_ms", 1).await;
    assert!(stood_still.iter().all(|line| line.starts_with(&zombie.id().to_string())), "{stood_still:?}");
    for line in lines(&test, "warnings", "blocked_ms", 0).await {
        let ms = line.split("blocked_ms=").nth(1).and_then(|rest| rest.split(' ').next()?.parse::<u64>().ok());
        assert!(ms.unwrap() < 1000, "{line}");
    }
    // After two of its heartbeats, all its reports have arrived.
    test.epochs_pass(1).await;
    for id in &ids {
        assert_eq!(test.places(id).await, ["completed"]);
        assert_eq!(task.handle(id).unwrap().result().await.unwrap(), heir.id());
    }
    assert_eq!(test.column("result", &ids[0]).await, before.0);
    // An outcome that it reports before a heartbeat reports the loss is refused, with that event only.
    let events: Vec<(String, Vec<String>)> = test.run("XRANGE", "events", &["-", "+"]).await;
    for (_, fields) in &events[before.1 as usize..] {
        let names: Vec<&str> = fields.chunks(2).map(|field| field[0].as_str()).collect();
        assert_eq!(names, ["total", "worker", "outcome_rejected"], "{fields:?}");
    }
    // The zombie works like any other worker again.
    heir.kill();
    let job = task.dispatch("quick".into()).await.unwrap();
    assert_eq!(job.result().await.unwrap(), zombie.id());
}

#[tokio::test]
async fn a_zombie_that_wakes_leaves_a_job_that_runs_elsewhere_alone() {
    let test = TestTask::new();
    let (app, task) = task(&test).await;
    let zombie = Process::worker(&test, 1);
    running(&task, "hold", &["held".to_owned()], 3).await;
    let _heir = Process::worker(&test, 1);
    let mut stalls = app.on_stalled();
    zombie.signal("-STOP");
    assert_eq!(next(&mut stalls).await.action, StallAction::Recovered);
    test.arrives("held", "running").await;
    let token = test.column("locks", "held").await;
    let explained = async || app.inspector().stall_history(TASK, "held").await.unwrap().remove(0);
    let before = explained().await;
    assert!(before.holder_last_seen_at.is_some() && before.holder_seen_again_at.is_none(), "{before}");
    zombie.signal("-CONT");
    test.epochs_pass(2).await;
    eventually("it was seen again", PATIENCE, async || explained().await.holder_seen_again_at.is_some()).await;
    assert!(explained().await.to_string().contains(", which was seen again since; "), "{}", explained().await);
    assert_eq!(test.column("locks", "held").await, token);
    assert_eq!(test.run::<u64>("XLEN", "stalls", &[]).await, 1);
}

#[tokio::test]
async fn a_short_freeze_has_no_effect() {
    let test = TestTask::new();
    let (_app, task) = task(&test).await;
    let slow = Process::worker(&test, 1);
    running(&task, "hold", &["held".to_owned()], 0).await;
    let _other = Process::worker(&test, 1);
    // Far less than the interval, again and again.
    for _ in 0..10 {
        slow.signal("-STOP");
        slow.signal("-CONT");
    }
    test.epochs_pass(3).await;
    assert_eq!(test.places("held").await, ["running"]);
    assert_eq!(test.run::<u64>("XLEN", "stalls", &[]).await, 0);
}

#[tokio::test]
async fn a_process_frozen_during_an_outage_learns_of_its_loss() {
    let test = TestTask::new();
    let (app, task) = task(&test).await;
    let proxy = Proxy::start(test.redis().address()).await;
    let url = proxy.url();
    let zombie = Process::spawn(&test, &url, "1", 3000);
    running(&task, "watch", &["far".to_owned()], 1).await;
    let heir = Process::spawn(&test, &test.redis().url(), "1", 3000);
    let mut stalls = app.on_stalled();
    // A job that runs in Redis may still be on its way to the process.
    heard(&test, "is watched", 1).await;
    proxy.pause();
    // The risk signal comes before the deadline, and the freeze spans it: nothing runs while the deadline passes.
    heard(&test, "at risk", 1).await;
    zombie.signal("-STOP");
    assert_eq!(next(&mut stalls).await.action, StallAction::Recovered);
    zombie.signal("-CONT");
    assert_eq!(heard(&test, "told", 1).await, ["far told Frozen"]);
    assert_eq!(task.handle("far").unwrap().result().await.unwrap(), heir.id());
}

#[tokio::test]
async fn a_sweeper_killed_midway_loses_no_job() {
    const JOBS: usize = 20_000;
    let test = TestTask::new();
    let (_app, task) = task(&test).await;
    let jobs = (0..JOBS).map(|at| (format!("job-{at}"), "hold".to_owned()));
    task.dispatch_many_with_ids(jobs).await.unwrap();
    let mut dead = Puppet::of(&test).await;
    while !dead.claim(200).await.is_empty() {}
    let sweeper = Process::worker(&test, 1);
    eventually("it sweeps", PATIENCE, async || test.run::<u64>("XLEN", "stalls", &[]).await > 0).await;
    sweeper.kill();
    let resolved = test.stalls().await.into_iter().flatten().count();
    assert!((1..JOBS).contains(&resolved), "it was killed after {resolved} of {JOBS}");
    // The next sweeper resolves what it left, and its own job.
    let mut sweep = Puppet::of(&test).await;
    let mut epoch = test.epoch().await;
    let end = epoch + 3;
    let mut cursor = "0".to_owned();
    while epoch < end {
        let swept = sweep.sweep(epoch, &cursor, 200).await.unwrap();
        (epoch, cursor) = (swept.epoch, swept.cursor);
    }
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    test.stalls().await.into_iter().flatten().for_each(|(id, _)| *counts.entry(id).or_default() += 1);
    assert_eq!(counts.len(), JOBS);
    assert!(counts.values().filter(|count| **count == 2).count() <= 1, "only what the sweeper held stalls again");
    let waiting: Vec<String> = test.run("LRANGE", "wait", &["0", "-1"]).await;
    assert_eq!((waiting.len(), waiting.into_iter().collect::<BTreeSet<_>>().len()), (JOBS, JOBS));
    assert_eq!(task.counts().await.unwrap().running, 0);
}

#[tokio::test]
async fn workers_killed_at_any_moment_lose_and_repeat_nothing() {
    const JOBS: usize = 600;
    let test = TestTask::new();
    let (_app, task) = task(&test).await;
    let jobs = (0..JOBS).map(|at| (format!("job-{at}"), "short".to_owned()));
    task.dispatch_many_with_ids(jobs).await.unwrap();
    let mut workers: Vec<Process> = (0..3).map(|_| Process::worker(&test, 5)).collect();
    for round in 1..=6_usize {
        let enough = (JOBS / 8 * round) as u64;
        eventually("jobs continue", PATIENCE, async || task.counts().await.unwrap().completed >= enough).await;
        workers.remove(0).kill();
        workers.push(Process::worker(&test, 5));
    }
    eventually("all is done", PATIENCE, async || task.counts().await.unwrap().completed == JOBS as u64).await;
    let counts = task.counts().await.unwrap();
    assert_eq!((counts.waiting, counts.running, counts.failed, counts.delayed), (0, 0, 0, 0));
    let ended = Events::read(&test).await.words("completed");
    assert_eq!((ended.len(), ended.iter().collect::<BTreeSet<_>>().len()), (JOBS, JOBS));
    assert!(test.run::<u64>("XLEN", "stalls", &[]).await > 0, "the kills hit no running job");
}

#[tokio::test]
async fn claimed_jobs_of_a_killed_worker_are_requeued_uncounted() {
    let test = TestTask::new();
    let (app, task) = task(&test).await;
    let url = test.redis().url();
    let ids = ids("job", 5);
    for (at, id) in ids.iter().enumerate() {
        task.dispatch(if at == 0 { "hold once" } else { "quick" }.into()).id(id).max_stalls(1).await.unwrap();
    }
    let victim = Process::spawn(&test, &url, "1+4", FOR_EVER_MS);
    eventually("four are claimed", PATIENCE, async || {
        let counts = task.counts().await.unwrap();
        (counts.claimed, counts.running) == (4, 1)
    })
    .await;
    let mut stalls = app.on_stalled();
    victim.kill();
    let heir = Process::spawn(&test, &url, "1", FOR_EVER_MS);
    let mut found = BTreeMap::new();
    for _ in &ids {
        let stall = next(&mut stalls).await;
        assert_eq!(stall.reason, StallReason::WorkerRestarted);
        found.insert(stall.id.to_string(), (stall.action, stall.stalled_count));
    }
    assert_eq!(found[&ids[0]], (StallAction::Recovered, 1));
    assert!(ids[1..].iter().all(|id| found[id] == (StallAction::Requeued, 0)), "{found:?}");
    let inspector = app.inspector();
    for id in &ids[1..] {
        let job = inspector.job(TASK, id, JobValues::None).await.unwrap().unwrap();
        let recovery = job.recovery.unwrap();
        assert_eq!((job.stalled_count, job.failed_attempts), (0, 0));
        assert_eq!((recovery.reason, recovery.requeued_count), (StallReason::Requeued, 1));
    }
    assert_eq!(task.handle(&ids[0]).unwrap().result().await.unwrap(), heir.id());
    assert_eq!(test.dump("claimed").await, None);
}

#[tokio::test]
async fn killed_workers_that_claim_ahead_lose_nothing() {
    const JOBS: usize = 6_000;
    let test = TestTask::new();
    let (_app, task) = task(&test).await;
    let jobs = (0..JOBS).map(|at| (format!("job-{at}"), if at % 10 == 0 { "short" } else { "quick" }.to_owned()));
    let worker = || Process::spawn(&test, &test.redis().url(), "2+50", 1000);
    let mut workers = vec![worker(), worker()];
    task.dispatch_many_with_ids(jobs).await.unwrap();
    for round in 1..=6_usize {
        let enough = (JOBS / 8 * round) as u64;
        eventually("jobs continue", PATIENCE, async || task.counts().await.unwrap().completed >= enough).await;
        workers.remove(0).kill();
        workers.push(worker());
    }
    eventually("all is done", PATIENCE, async || task.counts().await.unwrap().completed == JOBS as u64).await;
    let counts = task.counts().await.unwrap();
    assert_eq!((counts.waiting, counts.claimed, counts.running, counts.failed, counts.delayed), (0, 0, 0, 0, 0));
    let events = Events::read(&test).await;
    let ended = events.words("completed");
    assert_eq!((ended.len(), ended.iter().collect::<BTreeSet<_>>().len()), (JOBS, JOBS));
    assert!(events.words("stalled").iter().any(|word| word == "requeued"), "the kills met nothing that was claimed");
    assert_eq!(test.dump("claimed").await, None);
}

/// Kills three worker processes in turn while they run 300 jobs `job-N`, checks what is held meanwhile, and waits until all jobs
/// have completed.
async fn kills_in_turn(test: &TestTask, task: &TaskRef<String, u32>, role: &str, check: impl Fn(&[usize])) {
    const JOBS: usize = 300;
    let worker = || Process::spawn(test, &test.redis().url(), role, 1000);
    let mut workers: Vec<Process> = (0..3).map(|_| worker()).collect();
    eventually("it is declared", PATIENCE, async || test.column("meta", "declaredAt").await.is_some()).await;
    let key = |at: usize| ["a", "b", "c"][at % 3];
    let jobs = (0..JOBS).map(|at| task.dispatch("short".to_owned()).id(format!("job-{at}")).key(key(at)));
    futures_util::future::try_join_all(jobs).await.unwrap();
    let kills = if is_thorough() { 200 } else { 8 };
    for round in 1..=kills {
        let enough = (JOBS * round / (kills + 1)) as u64;
        eventually("jobs continue", PATIENCE, async || {
            let held: Vec<String> = test.run("HKEYS", "locks", &[]).await;
            let held: Vec<usize> = held.iter().map(|id| id.trim_start_matches("job-").parse().unwrap()).collect();
            check(&held);
            task.counts().await.unwrap().completed >= enough
        })
        .await;
        workers.remove(0).kill();
        workers.push(worker());
    }
    eventually("all is done", PATIENCE, async || task.counts().await.unwrap().completed == JOBS as u64).await;
    assert_eq!(task.counts().await.unwrap().failed, 0);
    assert!(test.run::<u64>("XLEN", "stalls", &[]).await > 0, "the kills hit no running job");
}

#[tokio::test]
async fn a_limit_of_running_jobs_holds_over_kills_and_leaks_no_slot() {
    let test = TestTask::new();
    let (_app, task) = task(&test).await;
    kills_in_turn(&test, &task, "5#2", |held| assert!(held.len() <= 2, "{held:?}")).await;
}

#[tokio::test]
async fn the_slots_of_keys_survive_kills_of_their_holders() {
    let test = TestTask::new();
    let (_app, task) = task(&test).await;
    let check = |held: &[usize]| {
        let keys: BTreeSet<usize> = held.iter().map(|at| at % 3).collect();
        assert_eq!(keys.len(), held.len(), "two jobs of one key are held: {held:?}");
    };
    kills_in_turn(&test, &task, "5%1", check).await;
    assert_eq!(test.dump("laneHeld").await, None);
}

/// With the default of one stall: the others were claimed ahead, or began early, when the worker died.
#[tokio::test]
async fn poison_among_short_jobs_fails_alone_under_an_adaptive_prefetch() {
    const JOBS: usize = 6_000;
    let test = TestTask::new();
    let (_app, task) = task(&test).await;
    let is_poison = |at: usize| at % 1_000 == 500;
    let jobs = (0..JOBS).map(|at| (format!("job-{at}"), if is_poison(at) { "poison" } else { "quick" }.to_owned()));
    task.dispatch_many_with_ids(jobs).await.unwrap();
    let worker = || Process::spawn(&test, &test.redis().url(), "1+adaptive", 1000);
    let mut workers = [worker(), worker()];
    eventually("all have ended", PATIENCE, async || {
        workers.iter_mut().filter_map(|process| process.is_dead().then_some(process)).for_each(|dead| *dead = worker());
        let counts = task.counts().await.unwrap();
        counts.completed + counts.failed == JOBS as u64
    })
    .await;
    assert_eq!(task.counts().await.unwrap().failed, 6);
    for at in (0..JOBS).filter(|at| is_poison(*at)) {
        let id = format!("job-{at}");
        let job = task.job(&id).await.unwrap();
        assert_eq!((job.state, job.error.unwrap().code.as_str()), (JobState::Failed, "worker_crashed"), "{id}");
        let runs = heard(&test, &format!("{id} is poison"), 2).await.len();
        assert!((2..=3).contains(&runs), "{id} ran {runs} times");
    }
    let stalled = Events::read(&test).await.words("stalled");
    assert!(stalled.iter().any(|word| word == "requeued"), "no death met a job that had begun early");
    assert_eq!(test.dump("early").await, None);
}

#[tokio::test]
async fn a_producer_killed_during_a_dispatch_can_repeat_the_call() {
    let test = TestTask::new();
    let (_app, task) = task(&test).await;
    let producer = Process::spawn(&test, &test.redis().url(), "produce", 1000);
    eventually("some are there", PATIENCE, async || task.counts().await.unwrap().waiting > 0).await;
    producer.kill();
    let before = task.counts().await.unwrap().waiting;
    assert!((1..20_000).contains(&before), "it was killed after {before}");
    let handles = task.dispatch_many_with_ids(many()).await.unwrap();
    assert_eq!(handles.iter().filter(|handle| handle.existed() == Some(true)).count() as u64, before);
    let waiting: Vec<String> = test.run("LRANGE", "wait", &["0", "-1"]).await;
    assert_eq!((waiting.len(), waiting.into_iter().collect::<BTreeSet<_>>().len()), (20_000, 20_000));
    assert_eq!(test.run::<u64>("HLEN", "payload", &[]).await, 20_000);
}

#[tokio::test]
async fn a_worker_that_starts_later_finds_the_job_of_a_killed_process() {
    let test = TestTask::new();
    let (_app, task) = task(&test).await;
    let victim = Process::worker(&test, 1);
    running(&task, "hold once", &["left".to_owned()], 1).await;
    victim.kill();
    let app = test.app().await;
    let again = app
        .task(TASK, fast(), |ctx, _: String| async move { Ok::<_, heartline::JobError>(ctx.stalled_count()) })
        .unwrap();
    let worker = TestWorker::start(app.worker());
    assert_eq!(again.handle("left").unwrap().result().await.unwrap(), 1);
    worker.stop().await;
}

/// An interval that no test waits for.
const FOR_EVER_MS: u64 = 3_600_000;

#[tokio::test]
async fn a_starting_worker_recovers_only_jobs_of_dead_local_workers() {
    let test = TestTask::new();
    let (app, task) = task(&test).await;
    let url = test.redis().url();
    let (of_dead, of_sibling, of_frozen) = (ids("dead", 3), ids("sibling", 2), ids("frozen", 2));
    let victim = Process::spawn(&test, &url, "3", FOR_EVER_MS);
    running(&task, "hold once", &of_dead, 1).await;
    let _sibling = Process::spawn(&test, &url, "2", FOR_EVER_MS);
    running(&task, "hold", &of_sibling, 0).await;
    let frozen = Process::spawn(&test, &url, "2", FOR_EVER_MS);
    running(&task, "hold", &of_frozen, 0).await;
    frozen.signal("-STOP");
    let mut stalls = app.on_stalled();
    let victim_id = victim.id();
    victim.kill();
    let heir = Process::spawn(&test, &url, "5", FOR_EVER_MS);
    let mut found = BTreeSet::new();
    for _ in &of_dead {
        let stall = next(&mut stalls).await;
        let what = (stall.action, stall.stalled_count, stall.reason);
        assert_eq!(what, (StallAction::Recovered, 1, StallReason::WorkerRestarted));
        assert!(stall.worker.unwrap().as_str().contains(&format!("-{victim_id}-")));
        found.insert(stall.id.to_string());
    }
    assert_eq!(found, of_dead.iter().cloned().collect());
    for id in &of_dead {
        assert_eq!(task.handle(id).unwrap().result().await.unwrap(), heir.id());
    }
    for id in of_sibling.iter().chain(&of_frozen) {
        assert_eq!(test.places(id).await, ["running"]);
    }
    assert_eq!(test.run::<u64>("XLEN", "stalls", &[]).await, 1);
    // The Inspector shows it too.
    let inspector = app.inspector();
    let dead = async || {
        let workers = inspector.workers().await.unwrap();
        let death = workers.iter().find(|worker| worker.pid == Some(victim_id)).and_then(|worker| worker.death.clone());
        let deaths = workers.iter().filter(|worker| worker.death.is_some()).count();
        death.map(|death| (death, deaths))
    };
    let (death, deaths) = eventually("its death is noted", PATIENCE, dead).await;
    assert_eq!((death.proof, deaths), (DeathProof::Gone, 1));
    assert!(death.by.contains(&format!("-{}-", heir.id())), "{}", death.by);
    frozen.signal("-CONT");
}

#[tokio::test]
async fn an_unreaped_process_counts_as_dead() {
    let test = TestTask::new();
    let (app, task) = task(&test).await;
    let url = test.redis().url();
    let victim = Process::spawn(&test, &url, "1", FOR_EVER_MS);
    running(&task, "hold once", &["held".to_owned()], 1).await;
    let mut stalls = app.on_stalled();
    victim.signal("-KILL");
    let heir = Process::spawn(&test, &url, "1", FOR_EVER_MS);
    assert_eq!(next(&mut stalls).await.reason, StallReason::WorkerRestarted);
    assert_eq!(task.handle("held").unwrap().result().await.unwrap(), heir.id());
    drop(victim);
}

#[tokio::test]
async fn a_worker_counts_jobs_that_it_recovers_as_stalls() {
    let test = TestTask::new();
    let (app, task) = task(&test).await;
    let victim = Process::spawn(&test, &test.redis().url(), "2", FOR_EVER_MS);
    running(&task, "hold once", &ids("held", 2), 1).await;
    victim.kill();
    let interval = Duration::from_millis(FOR_EVER_MS);
    test.declare_at(&app, fast().stall(StallOptions::new().interval(interval)));
    let heir = app.worker();
    let monitor = heir.monitor();
    let heir = TestWorker::start(heir);
    let found = || Some(monitor.stats().tasks.first()?.stalls[&StallReason::WorkerRestarted][&StallAction::Recovered]);
    let counted = async || found() == Some(2);
    eventually("they are counted", PATIENCE, counted).await;
    test.journal.open("hold once");
    heir.stop().await;
}

#[tokio::test]
async fn a_worker_on_the_host_finds_a_dead_one_at_its_next_look() {
    let test = TestTask::new();
    let (app, task) = task(&test).await;
    let url = test.redis().url();
    let victim = Process::spawn(&test, &url, "1", FOR_EVER_MS);
    running(&task, "hold once", &["held".to_owned()], 1).await;
    let heir = Process::spawn(&test, &url, "1", FOR_EVER_MS);
    // It has already looked.
    heir_works(&task, &heir).await;
    let mut stalls = app.on_stalled();
    victim.kill();
    assert_eq!(next(&mut stalls).await.reason, StallReason::WorkerRestarted);
    assert_eq!(task.handle("held").unwrap().result().await.unwrap(), heir.id());
}

async fn heir_works(task: &TaskRef<String, u32>, heir: &Process) {
    assert_eq!(task.dispatch("quick".into()).await.unwrap().result().await.unwrap(), heir.id());
}

/// The decision takes effect at once. If the worker was alive, it is refused when it wakes, and stops.
#[tokio::test]
async fn a_person_recovers_a_frozen_workers_jobs_and_it_stops_later() {
    let test = TestTask::new();
    let (app, task) = task(&test).await;
    let url = test.redis().url();
    let mut frozen = Process::spawn(&test, &url, "2", FOR_EVER_MS);
    running(&task, "hold once", &["held".to_owned()], 1).await;
    let inspector = app.inspector().by("ada");
    let id = inspector.workers().await.unwrap()[0].worker.to_string();
    // A worker that was seen since the person looked keeps its jobs.
    let before = inspector.workers().await.unwrap()[0].last_seen_at;
    let lately = async || inspector.workers().await.unwrap()[0].last_seen_at > before;
    eventually("it was seen again", PATIENCE, lately).await;
    let report = inspector.recover_worker_unseen_since(&id, before).await.unwrap().unwrap();
    assert!(report.was_seen_since && report.tasks.is_empty(), "{report:?}");
    assert_eq!(test.places("held").await, ["running"]);
    frozen.signal("-STOP");
    let seen = inspector.workers().await.unwrap()[0].last_seen_at;
    let report = inspector.recover_worker_unseen_since(&id, seen).await.unwrap().unwrap();
    let resolved: Vec<(&str, StallAction)> =
        report.tasks.iter().flat_map(|task| &task.resolved).map(|job| (job.id.as_str(), job.action)).collect();
    assert_eq!((resolved, report.worker.death), (vec![("held", StallAction::Recovered)], None));
    assert_eq!(test.places("held").await, ["wait"]);
    let known = inspector.worker(&id).await.unwrap().unwrap();
    let death = known.death.unwrap();
    assert_eq!((death.proof, death.by.as_str(), known.state), (DeathProof::SaidSo, "ada", WorkerState::Gone));
    let heir = Process::spawn(&test, &url, "1", FOR_EVER_MS);
    assert_eq!(task.handle("held").unwrap().result().await.unwrap(), heir.id());
    frozen.signal("-CONT");
    // Its driver looks for work, and its call is refused.
    eventually("it stops", PATIENCE * 2, async || frozen.is_dead()).await;
    assert_eq!(test.places("held").await, ["completed"]);
    assert_eq!(inspector.recover_worker("nobody").await.unwrap(), None);
}

#[tokio::test]
async fn a_new_holder_of_a_name_gets_the_jobs_and_the_old_one_stops() {
    let test = TestTask::new();
    let (app, task) = task(&test).await;
    let url = test.redis().url();
    let mut holder = Process::spawn(&test, &url, "1@billing-0", FOR_EVER_MS);
    running(&task, "hold once", &["held".to_owned()], 1).await;
    let other = Process::spawn(&test, &url, "1@billing-1", FOR_EVER_MS);
    running(&task, "hold", &["other".to_owned()], 1).await;
    holder.signal("-STOP");
    let mut stalls = app.on_stalled();
    let heir = Process::spawn(&test, &url, "1@billing-0", FOR_EVER_MS);
    let stall = next(&mut stalls).await;
    assert_eq!((stall.id.as_str(), stall.reason), ("held", StallReason::WorkerRestarted));
    assert!(stall.worker.unwrap().as_str().contains(&format!("-{}-", holder.id())));
    assert_eq!(task.handle("held").unwrap().result().await.unwrap(), heir.id());
    holder.signal("-CONT");
    eventually("it stops", PATIENCE * 2, async || holder.is_dead()).await;
    let stopped = heard(&test, &format!("{} stopped", holder.id()), 1).await;
    assert!(stopped[0].contains("replaced: another worker has its name"), "{stopped:?}");
    // Another name is not affected, and the new holder works.
    assert_eq!(test.places("other").await, ["running"]);
    heir_works(&task, &heir).await;
    let workers = app.inspector().workers().await.unwrap();
    let of = |pid: u32| workers.iter().find(|worker| worker.pid == Some(pid)).unwrap();
    assert_eq!((of(heir.id()).name.as_deref(), of(other.id()).name.as_deref()), (Some("billing-0"), Some("billing-1")));
    assert!(!of(holder.id()).state.is_live());
    drop((heir, other));
}
