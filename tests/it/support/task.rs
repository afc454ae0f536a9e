use super::journal::Journal;
use super::worker::TestWorker;
use super::{PATIENCE, Proxy, Tap, TestRedis, dump, eventually};
use heartline::{App, Context, JobError, JobHandle, JobState, StallOptions, TaskOptions, TaskRef};
use redis::aio::MultiplexedConnection;
use redis::{AsyncCommands, FromRedisValue};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

/// The name of the task of a test with its own prefix.
pub const TASK: &str = "work";

/// The shortest allowed interval.
pub const INTERVAL: Duration = Duration::from_secs(1);

/// The length of a fault that is defined by its length: longer than two intervals and a heartbeat.
pub const TWO_INTERVALS: Duration = Duration::from_millis(2_400);

/// The shortest interval, and no grace period for handlers at the end of a test. Without prefetch, so that each job is
/// claimed once: on a busy machine a worker hands back what it claimed ahead.
pub fn fast() -> TaskOptions {
    adaptive().prefetch(0)
}

/// The same with the default prefetch.
pub fn adaptive() -> TaskOptions {
    TaskOptions::new()
        .stall(StallOptions::new().interval(INTERVAL))
        .shutdown_grace(Duration::ZERO)
        .cancel_grace(Duration::from_millis(200))
}

/// The same for a task with its own stall settings.
pub fn fast_with(stall: StallOptions) -> TaskOptions {
    fast().stall(stall.interval(INTERVAL))
}

/// Options with an interval and four slots, without prefetch.
pub fn options(interval: Duration) -> TaskOptions {
    TaskOptions::new().concurrency(4).prefetch(0).stall(StallOptions::new().interval(interval))
}

/// An App. It is built again if a busy machine answers late.
pub async fn built(url: &str, prefix: &str) -> App {
    eventually("the App is built", PATIENCE, async || match App::builder().redis(url).prefix(prefix).build().await {
        Ok(app) => Some(app),
        Err(e) if e.is_retryable() => None,
        Err(e) => panic!("{url}: {e}"),
    })
    .await
}

/// Waits until this many jobs are claimed ahead, and this many run.
pub async fn counts(task: &TaskRef<String, u64>, claimed: u64, running: u64) {
    eventually(&format!("{claimed} claimed and {running} running"), PATIENCE, async || {
        let counts = task.counts().await.unwrap();
        counts.claimed == claimed && counts.running == running
    })
    .await;
}

/// A task with a unique name or prefix on one server, the workers that the test starts for it, and queries of its
/// state in Redis.
#[derive(Clone)]
pub struct TestTask {
    /// Keeps the shared server running.
    shared: Option<Arc<TestRedis>>,
    url: String,
    /// The server itself.
    direct: String,
    pub prefix: String,
    pub name: String,
    pub journal: Arc<Journal>,
}

impl TestTask {
    /// The address for Apps.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The task `work` on the shared server, under its own prefix.
    pub fn new() -> TestTask {
        TestTask::of(TestRedis::shared())
    }

    /// The same for a test with a proxy between its Apps and the server: see [`TestRedis::plain`].
    pub fn plain() -> TestTask {
        TestTask::of(TestRedis::plain())
    }

    fn of(redis: Arc<TestRedis>) -> TestTask {
        let (url, direct, prefix) = (redis.app_url(), redis.url(), redis.unique_prefix());
        TestTask { shared: Some(redis), url, direct, prefix, name: TASK.to_owned(), journal: Arc::default() }
    }

    /// A task with a unique name on this server, under the default prefix of an App.
    ///
    /// So it has neighbours of the same App, can be worked by processes that know only its name, and is found by that
    /// name in the shared log.
    pub fn on(redis: &TestRedis) -> TestTask {
        let (url, prefix) = (redis.url(), "heartline".to_owned());
        TestTask {
            shared: None,
            direct: url.clone(),
            url,
            prefix,
            name: redis.unique_prefix(),
            journal: Arc::default(),
        }
    }

    /// The shared server; panics if the task is on another.
    pub fn redis(&self) -> &TestRedis {
        self.shared.as_deref().expect("the task is on a server of the test's own")
    }

    /// A separate App, as in another process.
    pub async fn app(&self) -> App {
        self.app_at(&self.url).await
    }

    /// An App on the server, or at `url` in front of it.
    pub async fn app_at(&self, url: &str) -> App {
        built(url, &self.prefix).await
    }

    /// A producer without a worker.
    pub async fn producer(&self) -> (App, TaskRef<String, u64>) {
        let app = self.app().await;
        let jobs = app.task_ref(&self.name).unwrap();
        (app, jobs)
    }

    /// A worker whose handler is [`Journal::work`], after its start.
    pub async fn start_worker(&self, options: TaskOptions) -> TaskWorker {
        let worker = self.start_worker_at(&self.url, options).await;
        worker.working().await;
        worker
    }

    /// A worker that can die silently: its process seems to be gone.
    pub async fn start_mortal_worker(&self, redis: &TestRedis, options: TaskOptions) -> MortalWorker {
        let line = Proxy::start(redis.address()).await;
        let worker = self.start_worker_at(&line.url(), options).await;
        worker.working().await;
        MortalWorker { worker, line }
    }

    /// Like [`TestTask::start_worker`], at `url`. It may still be starting.
    pub async fn start_worker_at(&self, url: &str, options: TaskOptions) -> TaskWorker {
        self.start_worker_with(url, options, |journal, ctx, gate| async move { journal.work(ctx, gate).await }).await
    }

    /// A worker with the test's own handler. It may still be starting.
    pub async fn start_worker_with<F, Fut>(&self, url: &str, options: TaskOptions, handler: F) -> TaskWorker
    where
        F: Fn(Arc<Journal>, Context, String) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<u64, JobError>> + Send + 'static,
    {
        let app = self.app_at(url).await;
        let journal = Arc::clone(&self.journal);
        let jobs = app
            .task(&self.name, options, move |ctx: Context, gate: String| handler(Arc::clone(&journal), ctx, gate))
            .unwrap();
        let worker = TestWorker::start(app.worker());
        TaskWorker { app, jobs, worker }
    }

    /// A task of an App with the handler of [`TestTask::start_worker`], without a worker yet.
    pub fn declare_at(&self, app: &App, options: TaskOptions) -> TaskRef<String, u64> {
        let journal = Arc::clone(&self.journal);
        let handler = move |ctx: Context, gate: String| {
            let journal = Arc::clone(&journal);
            async move { journal.work(ctx, gate).await }
        };
        app.task(&self.name, options, handler).unwrap()
    }

    pub fn key(&self, suffix: &str) -> String {
        format!("{}:{{{}}}:{suffix}", self.prefix, self.name)
    }

    /// A new connection for the test: one from before a fault may not survive it.
    pub async fn conn(&self) -> MultiplexedConnection {
        let config = redis::AsyncConnectionConfig::new()
            .set_response_timeout(Some(PATIENCE))
            .set_connection_timeout(Some(PATIENCE));
        let client = redis::Client::open(self.direct.as_str()).unwrap();
        client.get_multiplexed_async_connection_with_config(&config).await.unwrap()
    }

    /// Runs a command on one of its keys.
    pub async fn run<T: FromRedisValue>(&self, command: &str, suffix: &str, args: &[&str]) -> T {
        let mut cmd = redis::cmd(command);
        cmd.arg(self.key(suffix)).arg(args);
        cmd.query_async(&mut self.conn().await).await.unwrap()
    }

    /// Records that a worker has declared the options of the task, without a hook.
    pub async fn declared(&self) {
        self.run::<u64>("HSET", "meta", &["declaredAt", "1"]).await;
    }

    /// The contents of one of its keys, as text.
    pub async fn dump(&self, suffix: &str) -> Option<String> {
        let key = self.key(suffix);
        dump(&mut self.conn().await, &key).await.remove(&key)
    }

    /// A field of a column.
    pub async fn column(&self, name: &str, id: &str) -> Option<String> {
        self.conn().await.hget(self.key(name), id).await.unwrap()
    }

    async fn meta(&self, field: &str) -> u64 {
        self.column("meta", field).await.map_or(0, |value| value.parse().unwrap())
    }

    pub async fn interval_in_force(&self) -> Duration {
        Duration::from_millis(self.meta("interval").await)
    }

    pub async fn epoch(&self) -> u64 {
        self.meta("epoch").await
    }

    /// Waits until the epoch has moved `count` times: as many intervals were watched and swept.
    pub async fn epochs_pass(&self, count: u64) {
        let end = self.epoch().await + count;
        eventually("the epochs pass", PATIENCE * 2, async || self.epoch().await >= end).await;
    }

    /// Waits until the job is a candidate.
    pub async fn becomes_candidate(&self, id: &str) {
        eventually("the job is a candidate", PATIENCE, async || {
            self.run::<bool>("SISMEMBER", "candidates", &[id]).await
        })
        .await;
    }

    /// Every place of the keyspace that holds the job; unless the job never existed, more or fewer than one is a bug.
    pub async fn places(&self, id: &str) -> Vec<String> {
        let mut conn = self.conn().await;
        let mut places = Vec::new();
        for list in ["wait:high", "wait", "wait:low"] {
            let ids: Vec<String> = conn.lrange(self.key(list), 0, -1).await.unwrap();
            places.extend(ids.iter().filter(|other| *other == id).map(|_| list.to_owned()));
        }
        for zset in ["delayed", "completed", "failed", "cancelled"] {
            let score: Option<f64> = conn.zscore(self.key(zset), id).await.unwrap();
            places.extend(score.map(|_| zset.to_owned()));
        }
        if conn.hexists(self.key("locks"), id).await.unwrap() {
            places.push("running".to_owned());
        }
        places
    }

    /// Waits until the job is in this place, then checks that it is in no other.
    pub async fn arrives(&self, id: &str, place: &str) {
        let what = format!("{id} is in {place}");
        eventually(&what, PATIENCE, async || self.places(id).await.contains(&place.to_owned())).await;
        assert_eq!(self.places(id).await, [place], "{id}");
    }

    /// Waits until each of the jobs has begun a run.
    pub async fn started(&self, jobs: &[JobHandle<u64>]) {
        eventually("every job has started", PATIENCE, async || {
            jobs.iter().all(|job| !self.journal.runs_of(job.id()).is_empty())
        })
        .await;
    }

    /// How many jobs began with each call that let any begin.
    pub async fn begun_together(&self) -> Vec<usize> {
        let mut conn = self.conn().await;
        let reply: redis::streams::StreamRangeReply = conn.xrange_all(self.key("events")).await.unwrap();
        let started = reply.ids.iter().filter_map(|entry| entry.get::<String>("started"));
        started.map(|ids| ids.split(' ').count()).collect()
    }

    /// The ids of each entry of `stalls` with their actions, entry by entry.
    pub async fn stalls(&self) -> Vec<Vec<(String, String)>> {
        let mut conn = self.conn().await;
        let reply: redis::streams::StreamRangeReply = conn.xrange_all(self.key("stalls")).await.unwrap();
        let entries = reply.ids.iter().map(|entry| {
            let words: String = entry.get("stalled").unwrap();
            let words: Vec<&str> = words.split(' ').collect();
            words.chunks(4).map(|four| (four[0].to_owned(), four[2].to_owned())).collect()
        });
        entries.collect()
    }

    /// Checks that each of the jobs ran once, undisturbed, with its outcome recorded, and that nothing ever stalled.
    pub async fn each_ran_once(&self, jobs: &[JobHandle<u64>]) {
        let (_app, task) = self.producer().await;
        for job in jobs {
            let value = tokio::time::timeout(PATIENCE, job.result()).await.expect("the job does not end").unwrap();
            let runs = self.journal.runs_of(job.id());
            assert_eq!(runs.iter().map(|run| run.fence).collect::<Vec<_>>(), [value], "{runs:?}");
            let stored = task.job(job.id()).await.unwrap();
            assert_eq!((stored.state, stored.failed_attempts, stored.stalled_count), (JobState::Completed, 0, 0));
        }
        assert_eq!(self.journal.interruptions(), [""; 0]);
        assert_eq!(self.dump("stalls").await, None);
    }

    /// Checks that nothing is held or waits, and that `completed` jobs have ended.
    pub async fn nothing_is_left_but(&self, completed: usize) {
        let (_app, task) = self.producer().await;
        let counts = task.counts().await.unwrap();
        assert_eq!(counts.completed, completed as u64, "{counts:?}");
        assert_eq!(
            [counts.waiting, counts.delayed, counts.running, counts.finalizing, counts.failed, counts.cancelled],
            [0; 6],
            "{counts:?}"
        );
        let mut conn = self.conn().await;
        for set in ["active", "candidates", "cancelling"] {
            assert!(!conn.exists::<_, bool>(self.key(set)).await.unwrap(), "{set} is not empty");
        }
    }

    /// Copies of the settle calls that pass the proxy, of either script.
    pub async fn settles(&self, proxy: &Proxy) -> Tap {
        let shas = [self.sha("settle").await, self.sha("settle_plain").await];
        Tap::on_each(proxy, shas.map(String::into_bytes).to_vec())
    }

    /// The SHA1 of a script, as the server gives it.
    pub async fn sha(&self, script: &str) -> String {
        let source = heartline::_internals::scripts().into_iter().find(|source| source.name == script).unwrap();
        redis::cmd("SCRIPT").arg("LOAD").arg(source.source).query_async(&mut self.conn().await).await.unwrap()
    }
}

/// A worker process in small: a worker with an App of its own, which dispatches to the task too.
pub struct TaskWorker {
    pub app: App,
    pub jobs: TaskRef<String, u64>,
    worker: TestWorker,
}

impl TaskWorker {
    /// See [`TestWorker::stop`]. The test may still hold up its calls.
    pub async fn stop(self) {
        self.worker.stop_within(PATIENCE * 2).await;
    }
}

impl TaskWorker {
    /// Drops its future.
    pub fn abort(self) {
        self.worker.abort();
    }
}

impl Deref for TaskWorker {
    type Target = TestWorker;

    fn deref(&self) -> &TestWorker {
        &self.worker
    }
}

impl DerefMut for TaskWorker {
    fn deref_mut(&mut self) -> &mut TestWorker {
        &mut self.worker
    }
}

/// A worker with its own line to the server.
pub struct MortalWorker {
    worker: TaskWorker,
    line: Proxy,
}

impl MortalWorker {
    /// Drops its future; none of its further calls gets through.
    pub async fn dies(self) {
        self.line.refuse().await;
        self.worker.worker.abort();
    }

    /// See [`TaskWorker::stop`].
    pub async fn stop(self) {
        self.worker.stop().await;
    }
}

impl Deref for MortalWorker {
    type Target = TaskWorker;

    fn deref(&self) -> &TaskWorker {
        &self.worker
    }
}
