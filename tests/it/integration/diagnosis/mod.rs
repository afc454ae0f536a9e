//! The diagnoses of the Inspector: each condition is reported if it holds, and only then.

mod crashes;
mod data;
mod failures;
mod queue;
#[cfg(feature = "schedules")]
mod schedules;

use std::time::{Duration, SystemTime};

use heartline::{
    App, Context, Diagnosis, Inspector, JobError, JobValues, RetryPolicy, RunningWorker, StallOptions, TaskOptions,
    TaskRef,
};
use serde_json::Value;

use crate::support::task::{TASK, TestTask};
use crate::support::{PATIENCE, eventually};

/// A worker that exists only as a presence in Redis.
const LOST: &str = "web-7-4711-0f3a9c21";

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);

fn ms_ago(ago: Duration) -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap() - ago;
    u64::try_from(since.as_millis()).unwrap()
}

/// A task whose jobs fail (`fail`), fail and are retried in an hour (`again`), are held until a gate opens (`hold`), snooze after a failed
/// run (`snooze`), or complete.
struct Scene {
    test: TestTask,
    app: App,
    jobs: TaskRef<String, u64>,
    inspector: Inspector,
}

impl Scene {
    async fn new() -> Scene {
        Scene::of(TestTask::plain()).await
    }

    async fn of(test: TestTask) -> Scene {
        let app = test.app().await;
        let journal = test.journal.clone();
        let handler = move |ctx: Context, input: String| {
            let journal = journal.clone();
            async move {
                match input.as_str() {
                    "hold" => journal.work(ctx, "gate".to_owned()).await,
                    "fail" => Err(JobError::new("no space left".to_owned()).with_code("disk").fatal()),
                    "again" => Err(JobError::new("no space left".to_owned()).with_code("disk").retry_after(HOUR)),
                    "snooze" if ctx.attempt() == 1 => Err(JobError::new("a hiccup").retry_after(Duration::ZERO)),
                    "snooze" => Err(JobError::snooze(HOUR)),
                    _ => Ok(1),
                }
            }
        };
        let stall = StallOptions::new().interval(Duration::from_secs(1)).recover_running(false);
        let options = TaskOptions::new().stall(stall).retry(RetryPolicy::new().attempts(3));
        let jobs = app.task(TASK, options, handler).unwrap();
        Scene { inspector: app.inspector(), test, app, jobs }
    }

    /// With a worker.
    async fn working() -> (Scene, RunningWorker) {
        let scene = Scene::new().await;
        let worker = scene.worker();
        (scene, worker)
    }

    /// The lost worker is live and holds nothing.
    async fn watched(self) -> Scene {
        self.holds(&[], Duration::ZERO, Duration::ZERO).await;
        self
    }

    /// A task with waiting jobs of these ids.
    async fn waiting(ids: &[&str]) -> Scene {
        let scene = Scene::new().await;
        for id in ids {
            scene.jobs.dispatch("hold".into()).id(*id).await.unwrap();
        }
        scene
    }

    /// A listed task with one ended job.
    async fn idle() -> Scene {
        let scene = Scene::new().await;
        scene.test.declared().await;
        scene.jobs.dispatch("x".into()).await.unwrap().cancel("no").await.unwrap();
        scene
    }

    fn worker(&self) -> RunningWorker {
        self.app.worker().spawn()
    }

    /// The lost worker holds these jobs; it claimed them, and was last seen, this long ago. It has two slots.
    async fn holds(&self, ids: &[&str], claimed: Duration, seen: Duration) {
        self.holds_as(LOST, ids, claimed, seen).await;
    }

    async fn holds_as(&self, worker: &str, ids: &[&str], claimed: Duration, seen: Duration) {
        let (seen, fence) = (ms_ago(seen), ms_ago(claimed) * 1000);
        let (mut conn, mut pipe, key) = (self.test.conn().await, redis::pipe(), |suffix| self.test.key(suffix));
        for id in ids {
            pipe.lrem(key("wait"), 0, *id).ignore();
            pipe.hset(key("locks"), *id, format!("{worker}:{fence}")).ignore();
            pipe.sadd(key("active"), *id).ignore();
        }
        pipe.zadd(format!("{}:workers", self.test.prefix), worker, seen).ignore();
        let seen = seen.to_string();
        let facts = [
            ("host", "web-7"),
            ("pid", "4711"),
            ("tasks", TASK),
            ("held:work", "0"),
            ("slots:work", "2"),
            ("lastSeenAt", &seen),
        ];
        pipe.hset_multiple(self.presence(worker), &facts).ignore();
        let () = pipe.query_async(&mut conn).await.unwrap();
    }

    fn presence(&self, worker: &str) -> String {
        format!("{}:worker:{worker}", self.test.prefix)
    }

    /// Writes a field of the presence of the lost worker.
    async fn presents(&self, field: &str, value: &str) {
        let mut set = redis::cmd("HSET");
        set.arg(self.presence(LOST)).arg(field).arg(value);
        set.query_async::<()>(&mut self.test.conn().await).await.unwrap();
    }

    async fn meta(&self, field: &str, value: impl ToString) {
        self.test.run::<u64>("HSET", "meta", &[field, &value.to_string()]).await;
    }

    /// The job has waited this long.
    async fn waits(&self, id: &str, age: Duration) {
        self.test.run::<u64>("HSET", "enqueuedAt", &[id, &ms_ago(age).to_string()]).await;
    }

    /// The last claim was this long ago.
    async fn claimed(&self, ago: Duration) {
        self.meta("fence", ms_ago(ago) * 1000).await;
    }

    /// A death of this worker, which held these jobs.
    async fn died_with(&self, at: &str, worker: &str, ids: &[&str]) {
        let stalled: Vec<String> = ids.iter().map(|id| format!("{id} 1 recovered {worker}")).collect();
        let words = ["total", "9", "worker", "w-1-00000000", "reason", "silent", "stalled"];
        let stalled = stalled.join(" ");
        let args: Vec<&str> = [at].into_iter().chain(words).chain([&*stalled]).collect();
        self.test.run::<String>("XADD", "stalls", &args).await;
    }

    async fn diagnoses(&self) -> Vec<Diagnosis> {
        self.inspector.diagnose().await.unwrap()
    }

    /// The kinds of all diagnoses; `!` for a risk, `?` for a note.
    async fn kinds(&self) -> Vec<String> {
        self.diagnoses().await.iter().map(kind).collect()
    }

    /// The facts of the diagnosis of this kind.
    async fn facts(&self, kind: &str) -> Value {
        let found = self.diagnoses().await;
        let found = found.iter().find(|found| found.kind.code() == kind);
        facts(found.unwrap_or_else(|| panic!("no {kind}")))
    }

    /// Waits until this kind is reported.
    async fn until(&self, kind: &str) {
        eventually(kind, PATIENCE, async || self.kinds().await.iter().any(|found| found == kind)).await;
    }

    /// Waits until this kind is no longer reported.
    async fn until_not(&self, kind: &str) {
        eventually(kind, PATIENCE, async || self.kinds().await.iter().all(|found| found != kind)).await;
    }

    /// The kinds of the diagnoses of one job.
    async fn of_job(&self, id: &str) -> Vec<String> {
        let job = self.inspector.job(TASK, id, JobValues::None).await.unwrap().unwrap();
        self.inspector.diagnose_job(&job).await.unwrap().iter().map(kind).collect()
    }

    /// The same for the task.
    async fn of_task(&self) -> Vec<String> {
        let task = self.inspector.task(TASK).await.unwrap();
        self.inspector.diagnose_task(&task).await.unwrap().iter().map(kind).collect()
    }

    /// Waits until this many jobs are in a state.
    async fn counted(&self, what: &str, jobs: u64, of: fn(&heartline::TaskCounts) -> u64) {
        eventually(what, PATIENCE, async || of(&self.jobs.counts().await.unwrap()) >= jobs).await;
    }

    /// Jobs that failed a run, and will be retried in an hour.
    async fn retried(&self, jobs: u64) {
        let ids = (0..jobs).map(|at| (format!("retry-{at}"), "again".to_owned()));
        self.jobs.dispatch_many_with_ids(ids).await.unwrap();
        self.counted("all are retried later", jobs, |counts| counts.delayed).await;
    }

    async fn completes(&self, jobs: usize) {
        for _ in 0..jobs {
            self.jobs.dispatch("x".into()).await.unwrap().result().await.unwrap();
        }
    }

    async fn fails(&self, jobs: usize) {
        for _ in 0..jobs {
            self.jobs.dispatch("fail".into()).await.unwrap().result().await.unwrap_err();
        }
    }
}

fn kind(diagnosis: &Diagnosis) -> String {
    let (what, hint) = (diagnosis.to_string(), diagnosis.hint());
    assert!(what.len() > 10 && hint.len() > 10 && !hint.ends_with('.'), "{diagnosis:?}: {what}; {hint}");
    assert!(!what.contains("  ") && !hint.contains("  "), "{what}; {hint}");
    let json = serde_json::to_value(diagnosis).unwrap();
    assert_eq!(
        (&json["what"], &json["hint"], &json["kind"]),
        (&what.into(), &hint.into(), &diagnosis.kind.code().into())
    );
    format!("{}{}", if diagnosis.is_risk() { "!" } else { "?" }, diagnosis.kind.code())
}

fn facts(diagnosis: &Diagnosis) -> Value {
    serde_json::to_value(diagnosis).unwrap()["facts"].clone()
}
