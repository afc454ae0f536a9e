//! The rights of each role in docs/acl.md are exactly what a producer, a worker, a reader and an operator send.

use crate::integration::fixtures::alone;
use crate::support::task::{INTERVAL, MortalWorker, TestTask, fast_with};
use crate::support::worker::TestWorker;
use crate::support::{PATIENCE, TestRedis, eventually};
use heartline::{
    App, Context, Graph, Heartbeat, JobError, JobFilter, JobHandle, JobState, JobValues, Limit, Outcome, Placed,
    Priority, RetryPolicy, SilentSelection, StallOptions, TaskDef, TaskOptions, TaskRef, Unique, WorkerIdentity,
    WorkflowOptions, WorkflowState,
};
use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

const NODES: TaskDef<String, u64> = TaskDef::new("nodes");

const ROLES: [&str; 4] = ["producer", "worker", "reader", "operator"];

/// A command with which a read checks whether the server accepts writes. Users without the right get no result.
const TRIED: &str = "zrem";

/// The words of the rule of a role.
fn rule(role: &str) -> Vec<String> {
    let text = include_str!("../../../../docs/acl.md");
    let (_, rest) = text.split_once(&format!("ACL SETUSER {role} on >secret ")).unwrap();
    let (rule, _) = rest.split_once("```").unwrap();
    rule.split_whitespace().map(str::to_owned).collect()
}

/// The commands of a rule.
fn rights(role: &str) -> BTreeSet<String> {
    rule(role).iter().filter_map(|word| word.strip_prefix('+')).map(str::to_owned).collect()
}

/// A server, and what each role sends to it in turn.
struct Stage {
    redis: TestRedis,
    test: TestTask,
    has_users: bool,
}

impl Stage {
    async fn new(has_users: bool) -> Stage {
        let (redis, test) = alone();
        let stage = Stage { redis, test, has_users };
        if has_users {
            for role in ROLES {
                let mut acl = redis::cmd("ACL");
                acl.arg("SETUSER").arg(role).arg("reset").arg("on").arg(">secret").arg(rule(role));
                let () = acl.query_async(&mut stage.redis.conn().await).await.unwrap();
            }
        }
        stage
    }

    fn url(&self, role: &str) -> String {
        match self.has_users {
            true => self.redis.url().replace("redis://", &format!("redis://{role}:secret@")),
            false => self.redis.url(),
        }
    }

    /// An App of the role. The server has forgotten its scripts, so they are sent as text.
    async fn app(&self, role: &str) -> App {
        let app = App::builder().redis(self.url(role)).build().await.unwrap();
        redis::cmd("SCRIPT").arg("FLUSH").exec_async(&mut self.redis.conn().await).await.unwrap();
        app
    }

    /// The commands since the last call, as the server counts them. The next event is the 100,000th, at which streams
    /// are trimmed.
    async fn sent(&self) -> BTreeSet<String> {
        let mut conn = self.redis.conn().await;
        let stats: redis::InfoDict = redis::cmd("INFO").arg("commandstats").query_async(&mut conn).await.unwrap();
        let names: Vec<String> =
            stats.keys().filter_map(|key| Some(key.strip_prefix("cmdstat_")?.to_owned())).collect();
        let meta = format!("heartline:{{{}}}:meta", self.test.name);
        let full = [("events", "99999"), ("eventsMark", "0-1")];
        redis::cmd("HSET").arg(meta).arg(&full).exec_async(&mut conn).await.unwrap();
        redis::cmd("CONFIG").arg("RESETSTAT").exec_async(&mut conn).await.unwrap();
        // Commands of a new connection and of the test itself: the users of the roles show that the roles do not need
        // `client|setinfo`.
        let ours = ["hello", "auth", "client|setinfo", "config|get", "config|resetstat", "config", "script|flush"];
        names.into_iter().filter(|name| !ours.contains(&name.as_str())).collect()
    }

    /// A job that a worker held when it died.
    async fn orphan(&self, id: &str) -> JobHandle<u64> {
        let (app, jobs) = self.test.producer().await;
        let worker: MortalWorker = self.test.start_mortal_worker(&self.redis, patient()).await;
        let job = jobs.dispatch("never".into()).id(id).await.unwrap();
        eventually("it runs", PATIENCE, async || job.state().await.unwrap() == JobState::Running).await;
        worker.dies().await;
        drop(app);
        job
    }

    /// A job with a unique key that a worker had claimed ahead when it died.
    async fn ahead(&self) {
        let (_app, jobs) = self.test.producer().await;
        let job = jobs.dispatch("open".into()).id("ahead").delay(PATIENCE * 10);
        job.unique(Unique::by("ahead")).await.unwrap();
        self.test.run::<u64>("ZREM", "delayed", &["ahead"]).await;
        self.test.run::<u64>("HSET", "locks", &["ahead", "gone:5"]).await;
        self.test.run::<u64>("HSET", "claimed", &["ahead", "5"]).await;
        self.test.run::<u64>("SADD", "active", &["ahead"]).await;
    }
}

/// The name of a task with keys.
const LANES: &str = "lanes";

/// No job is recovered before a person acts.
fn patient() -> TaskOptions {
    fast_with(StallOptions::new().interval(INTERVAL))
}

async fn within<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, what).await.unwrap()
}

/// A producer dispatches, cancels, reads, waits and subscribes.
async fn produces(stage: &Stage) {
    let app = stage.app("producer").await;
    let jobs: TaskRef<String, u64> = app.task_ref(&stage.test.name).unwrap();
    let (mut events, mut stalls) = (app.events(), jobs.on_stalled());
    for (id, priority) in [("high", Priority::High), ("normal", Priority::Normal), ("low", Priority::Low)] {
        let job = jobs.dispatch("open".into()).id(id).priority(priority).header("k", "v");
        job.max_stalls(2).expires_after(PATIENCE * 10).await.unwrap();
    }
    assert_eq!(jobs.dispatch("open".into()).id("high").await.unwrap().existed(), Some(true));
    // It is at the head of its list, and the cancel removes that entry at once.
    jobs.handle("high").unwrap().cancel("no more").await.unwrap();
    jobs.dispatch_many(["open", "open"].map(str::to_owned)).await.unwrap();
    let large = jobs.dispatch("x".repeat(600_000)).id("large").await.unwrap();
    jobs.dispatch("fails".into()).id("fails").attempts(2).await.unwrap();
    jobs.dispatch("hangs".into()).id("hangs").timeout(Duration::from_millis(50)).attempts(1).await.unwrap();
    jobs.dispatch("snoozes".into()).id("snoozes").await.unwrap();
    jobs.dispatch("holds".into()).id("holds").await.unwrap();
    jobs.dispatch("open".into()).id("late").expires_after(Duration::from_millis(1)).await.unwrap();
    let later = jobs.dispatch("open".into()).id("later").delay(PATIENCE * 10).await.unwrap();
    jobs.dispatch("open".into()).id("soon").delay(Duration::from_millis(1)).await.unwrap();
    later.cancel("no more").await.unwrap();
    large.cancel("no more").await.unwrap();
    jobs.dispatch("x".repeat(600_001)).id("larger").await.unwrap();
    // A cancel without a reply, because the worker is dead.
    jobs.handle("orphan").unwrap().cancel("no more").await.unwrap();
    assert!(jobs.handle("normal").unwrap().result_within(Duration::from_secs(1)).await.is_err());
    assert_eq!(jobs.handle("normal").unwrap().state().await.unwrap(), JobState::Waiting);
    assert!(jobs.handle("normal").unwrap().progress().await.unwrap().is_none());
    assert!(jobs.counts().await.unwrap().waiting > 0);
    assert!(jobs.job("normal").await.unwrap().error.is_none());
    let unique = Unique::by("ahead").replace();
    let replaced = jobs.dispatch("open".into()).unique(unique).await.unwrap();
    assert_eq!(replaced.placed(), Some(Placed::Replaced));
    app.task_ref::<String, u64>(LANES).unwrap().dispatch("open".into()).id("keyed").key("k").await.unwrap();
    let flow = app.workflow::<u64>("flow", WorkflowOptions::new()).unwrap();
    let mut steps = flow.events();
    for (id, what) in [("one", "open"), ("late", "hangs"), ("cancelled", "open")] {
        let graph = Graph::new();
        let first = graph.node("first", &NODES, what.to_owned());
        let last = graph.node("last", &NODES, "sums".to_owned()).after(&first);
        let start = flow.start(graph.output(&last)).id(id);
        let handle = if id == "late" { start.deadline(Duration::from_secs(3)).await } else { start.await };
        assert_eq!(handle.unwrap().status().await.unwrap().unfinished, 2);
    }
    let cancelled = flow.handle("cancelled").unwrap();
    cancelled.pause("").await.unwrap();
    cancelled.resume().await.unwrap();
    cancelled.cancel("no more").await.unwrap();
    assert_eq!(cancelled.retry_failed().await.unwrap(), WorkflowState::Running);
    cancelled.cancel("no more").await.unwrap();
    let _ = within(steps.recv()).await;
    // It reports missed events: they were never written, see `sent`.
    let _ = within(events.recv()).await;
    assert!(stalls.try_recv().unwrap().is_none());
}

/// The same producer, after workers have run: it reads the results.
async fn collects(stage: &Stage) {
    let app = stage.app("producer").await;
    let jobs: TaskRef<String, u64> = app.task_ref(&stage.test.name).unwrap();
    for id in ["normal", "large", "larger", "fails", "hangs", "late", "orphan"] {
        let _ = within(jobs.handle(id).unwrap().result()).await;
    }
    assert_eq!(within(jobs.handle("normal").unwrap().result()).await.unwrap(), 1);
    let flow = app.workflow::<u64>("flow", WorkflowOptions::new()).unwrap();
    assert_eq!(within(flow.handle("one").unwrap().result()).await.unwrap(), 1);
    let late = within(flow.handle("late").unwrap().result()).await.unwrap_err().to_string();
    assert!(late.contains("timeout"), "{late}");
}

/// A worker with every kind of run: it recovers jobs of a dead worker and of one whose name it takes.
async fn works(stage: &Stage) {
    let app = stage.app("worker").await;
    let stall = StallOptions::new().recover_claimed(false).heartbeat(Heartbeat::Manual);
    let retry = RetryPolicy::new().attempts(2).fixed(Duration::from_millis(1));
    let options = fast_with(stall).retry(retry).prefetch(2).concurrency(3).payload_limit(2 << 20);
    let task = app
        .task(&stage.test.name, options, |ctx: Context, what: String| async move {
            ctx.progress(&50, "half")?;
            ctx.checkpoint_now(&1).await?;
            assert_eq!(ctx.last_checkpoint::<u8>().await?, Some(1));
            match what.as_str() {
                "fails" => Err(JobError::new("no")),
                "hangs" => std::future::pending().await,
                "snoozes" if ctx.snoozed_count() == 0 => Err(JobError::snooze(Duration::from_millis(1))),
                // At least two heartbeats.
                "holds" => {
                    tokio::time::sleep(INTERVAL * 7 / 10).await;
                    Ok(2)
                }
                _ => Ok(1),
            }
        })
        .unwrap();
    task.on_complete(|_: Context, _: Outcome<u64>| async { Ok::<_, JobError>(()) }).unwrap();
    let nodes = |ctx: Context, what: String| async move {
        match what.as_str() {
            "hangs" => std::future::pending().await,
            "sums" => Ok(ctx.upstreams::<u64>().await?.into_iter().filter_map(|(_, value)| value.ok()).sum()),
            _ => Ok::<u64, JobError>(1),
        }
    };
    let nodes = app.task(NODES.name(), fast_with(StallOptions::new()), nodes).unwrap();
    let limited = fast_with(StallOptions::new()).per_key(Limit::new().running(1));
    let lanes = app.task(LANES, limited, |_: Context, _: String| async { Ok::<u64, JobError>(1) }).unwrap();
    let worker = TestWorker::start(app.worker().identity(WorkerIdentity::exclusive("day-0")));
    assert_eq!(within(lanes.handle("keyed").unwrap().result()).await.unwrap(), 1);
    // The dead worker is of this host: its job is recovered at once, or by the sweep.
    for id in ["normal", "larger", "fails", "hangs", "snoozes", "late", "holds", "orphan", "dead"] {
        let _ = within(task.handle(id).unwrap().result()).await;
    }
    for id in ["~flow/one/1/1", "~flow/late/0/1"] {
        let job = nodes.handle(id).unwrap();
        eventually("it has ended", PATIENCE, async || job.state().await.is_ok_and(|state| state.is_terminal())).await;
    }
    // Prefetched jobs are handed back, running ones end.
    worker.stop().await;
    // A crash: the next worker of the same name takes the jobs.
    let again = stage.app("worker").await;
    let options = fast_with(StallOptions::new()).prefetch(2).concurrency(3);
    again.task(&stage.test.name, options, |_: Context, _: String| async { Ok::<_, JobError>(1_u64) }).unwrap();
    let next = TestWorker::start(again.worker().identity(WorkerIdentity::exclusive("day-0")));
    // Longer than the intervals of heartbeats, sweeps, presence and retention.
    tokio::time::sleep(Duration::from_secs(6)).await;
    next.stop().await;
}

/// A person who reads, with any tool.
async fn looks(stage: &Stage, role: &str) {
    let app = stage.app(role).await;
    let (inspector, name) = (app.inspector(), &*stage.test.name);
    let mut events = app.events();
    inspector.tasks().await.unwrap();
    inspector.task(name).await.unwrap();
    inspector.task_names().await.unwrap();
    inspector.servers().await.unwrap();
    inspector.server_time().await.unwrap();
    inspector.columns(name).await.unwrap();
    inspector.lock_holders(name).await.unwrap();
    let lanes = inspector.lanes(name).unwrap();
    assert_eq!(lanes.list(None, 10).await.unwrap().lanes.len(), 1);
    assert_eq!(lanes.get("k").await.unwrap().lane.weight, 1);
    inspector.foreign_keys(name).await.unwrap();
    for worker in inspector.workers().await.unwrap() {
        inspector.worker(worker.worker.as_str()).await.unwrap();
    }
    for state in ["waiting", "delayed", "claimed", "running", "finalizing", "completed", "failed", "cancelled"] {
        let filter = JobFilter::new(state.parse().unwrap());
        inspector.jobs(name, &filter, None, 10).await.unwrap();
        inspector.jobs(name, &filter.clone().oldest_first(), None, 10).await.unwrap();
        inspector.count(name, &filter.clone().older_than(INTERVAL)).await.unwrap();
        inspector.count(name, &filter.code("x")).await.unwrap();
    }
    for id in ["normal", "larger", "fails", "late", "held", "nobody"] {
        inspector.job(name, id, JobValues::All).await.unwrap();
        inspector.job_events(name, id).await.unwrap();
        inspector.stall_history(name, id).await.unwrap();
    }
    inspector.events(name, None).await.unwrap();
    inspector.rejected_outcomes(name, 10).await.unwrap();
    inspector.stalls(name, None).await.unwrap();
    inspector.stalled_events(name, None).await.unwrap();
    inspector.suspects(name).await.unwrap();
    inspector.recovery_status(name).await.unwrap();
    inspector.silent_jobs(name, None).await.unwrap();
    inspector.result_json(name, "normal").await.unwrap();
    within(inspector.wait(name, "normal", PATIENCE)).await.unwrap();
    inspector.workflows().await.unwrap();
    for state in ["running", "paused", "completed", "failed", "cancelled"] {
        inspector.instances("flow", state.parse().unwrap(), true, None, 10).await.unwrap();
    }
    for id in ["one", "late", "cancelled"] {
        assert!(inspector.instance("flow", id, 0).await.unwrap().is_some());
    }
    let report = inspector.audit(name).await.unwrap();
    inspector.preview_repair(&report).await.unwrap();
    assert!(events.try_recv().unwrap().is_none());
}

/// A person who acts on jobs and tasks in every way.
async fn acts(stage: &Stage) {
    let app = stage.app("operator").await;
    let (inspector, name) = (app.inspector().by("anna"), &*stage.test.name);
    inspector.cancel(name, "held", "").await.unwrap();
    let report = inspector.audit(name).await.unwrap();
    inspector.note_audit(&report).await.unwrap();
    assert_eq!(inspector.repair(&report).await.unwrap().mended.len(), 2, "{report:?}");
    inspector.sweep_now(name).await.unwrap();
    inspector.recover_running(name, SilentSelection::all()).await.unwrap();
    inspector.fail_running(name, SilentSelection::all()).await.unwrap();
    inspector.requeue_claimed(name, SilentSelection::all()).await.unwrap();
    for worker in inspector.workers().await.unwrap() {
        inspector.recover_worker(worker.worker.as_str()).await.unwrap();
    }
    for id in ["waits", "delayed"] {
        let json = inspector.dispatch_json(name, "open").unwrap().id(id);
        if id == "waits" {
            json.await.unwrap()
        } else {
            json.delay(PATIENCE).await.unwrap()
        };
    }
    inspector.run_now(name, "delayed").await.unwrap();
    inspector.cancel(name, "waits", "").await.unwrap();
    inspector.retry(name, "waits").await.unwrap();
    inspector.pause(name, "").await.unwrap();
    inspector.resume(name).await.unwrap();
    inspector.recover_stuck_workflows().await.unwrap();
    let handle = inspector.workflow_handle("flow", "late").unwrap();
    assert_eq!(handle.retry_failed().await.unwrap(), WorkflowState::Running);
    handle.pause("").await.unwrap();
    handle.resume().await.unwrap();
    handle.cancel("").await.unwrap();
    for state in ["waiting", "delayed", "completed", "failed", "cancelled"] {
        inspector.purge(name, state.parse().unwrap()).await.unwrap();
    }
    assert_eq!(inspector.forget_task(name).await.unwrap(), heartline::ForgetOutcome::Forgotten);
}

/// Runs each role in turn; returns what each of them sent.
async fn a_life(stage: &Stage) -> [BTreeSet<String>; 4] {
    stage.orphan("orphan").await;
    stage.orphan("dead").await;
    stage.ahead().await;
    stage.sent().await;
    produces(stage).await;
    let mut produced = stage.sent().await;
    works(stage).await;
    let worked = stage.sent().await;
    collects(stage).await;
    produced.extend(stage.sent().await);
    // For reads and actions: a job of a dead worker, a job that no sweep watches, and one that is watched and not
    // held.
    stage.orphan("held").await;
    let mut conn = stage.redis.conn().await;
    let active = format!("heartline:{{{}}}:active", stage.test.name);
    redis::cmd("SREM").arg(&active).arg("held").exec_async(&mut conn).await.unwrap();
    redis::cmd("SADD").arg(&active).arg("normal").exec_async(&mut conn).await.unwrap();
    // A key in turn.
    let turns = format!("heartline:{{{}}}:turns", stage.test.name);
    redis::cmd("ZADD").arg(&turns).arg(0).arg("k").exec_async(&mut conn).await.unwrap();
    stage.sent().await;
    looks(stage, "reader").await;
    let looked = stage.sent().await;
    looks(stage, "operator").await;
    acts(stage).await;
    let acted = stage.sent().await;
    [produced, worked, looked, acted]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_role_sends_exactly_what_its_rule_allows() {
    let stage = Stage::new(false).await;
    let sent = a_life(&stage).await;
    let mut wrong = Vec::new();
    for (role, mut sent) in ROLES.into_iter().zip(sent) {
        if role == "reader" {
            assert!(sent.remove(TRIED), "{sent:?}");
        }
        // Before Redis 7.0 a server does not count subcommands.
        let is_old = sent.contains("client");
        let counted = |right: String| if is_old { right.split('|').next().unwrap().to_owned() } else { right };
        let rights: BTreeSet<String> = rights(role).into_iter().map(counted).collect();
        let lacking: Vec<&String> = sent.difference(&rights).collect();
        let spare: Vec<&String> = rights.difference(&sent).collect();
        if !lacking.is_empty() || !spare.is_empty() {
            wrong.push(format!("{role} lacks {lacking:?} and does not need {spare:?}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_rights_of_each_role_suffice() {
    let stage = Stage::new(true).await;
    a_life(&stage).await;
    let mut conn = stage.redis.conn().await;
    let denied: Vec<HashMap<String, redis::Value>> = redis::cmd("ACL").arg("LOG").query_async(&mut conn).await.unwrap();
    let tells = |entry: &HashMap<String, redis::Value>, field: &str| format!("{:?}", entry[field]);
    for entry in &denied {
        let is_tried = tells(entry, "object").contains(TRIED) && tells(entry, "username").contains("reader");
        assert!(is_tried, "{entry:?}");
    }
}

#[test]
fn the_role_of_everything_has_exactly_the_rights_of_every_role() {
    let of_all: BTreeSet<String> = ROLES.into_iter().flat_map(rights).collect();
    assert_eq!(of_all, rights("jobs"));
    let keys = |role: &str| rule(role).into_iter().filter(|word| !word.starts_with('+')).collect::<Vec<_>>();
    assert!(ROLES.into_iter().all(|role| keys(role) == keys("jobs")), "{:?}", keys("jobs"));
}
