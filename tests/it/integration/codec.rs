//! Codecs: what is stored is encoded, and everything that has to read a value still can.

use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, SystemTime};

use heartline::{
    App, CodecError, Context, Error, Event, Graph, JobError, JobState, JobValues, Limit, NodeName, Outcome,
    PayloadCodec, RetryPolicy, Schedule, TaskDef, TaskOptions, TaskRef, Unique, WorkflowOptions, codes,
};
use redis::Value;
use redis::aio::MultiplexedConnection;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use crate::integration::fixtures::{alone, shared};
use crate::support::events::next;
use crate::support::task::{TASK, TestTask, fast};
use crate::support::worker::TestWorker;
use crate::support::{PATIENCE, eventually};

/// What must not be readable.
const SECRET: &str = "Geheimnis4711";

/// Hides each byte by a key and a number that differs from call to call. Knows these keys and uses the last one.
struct Cipher(&'static [u8]);

impl PayloadCodec for Cipher {
    fn name(&self) -> &str {
        "cipher"
    }

    fn encode(&self, json: &[u8]) -> Result<Vec<u8>, Box<dyn std::error::Error + Send + Sync>> {
        static CALLS: AtomicU8 = AtomicU8::new(0);
        let (key, number) = (*self.0.last().ok_or("no key to encode with")?, CALLS.fetch_add(1, Ordering::Relaxed) | 1);
        Ok([key, number].into_iter().chain(json.iter().map(|byte| byte ^ (key ^ number | 0x80))).collect())
    }

    fn decode(&self, encoded: &[u8]) -> Result<Vec<u8>, Box<dyn std::error::Error + Send + Sync>> {
        let [key, number, rest @ ..] = encoded else { return Err("too short".into()) };
        if !self.0.contains(key) {
            return Err(format!("there is no key {key}").into());
        }
        Ok(rest.iter().map(|byte| byte ^ (key ^ number | 0x80)).collect())
    }
}

async fn app_with(test: &TestTask, keys: &'static [u8]) -> App {
    App::builder().redis(test.url()).prefix(&test.prefix).codec(Cipher(keys)).build().await.unwrap()
}

fn echo(app: &App, options: TaskOptions) -> TaskRef<String, String> {
    app.task(TASK, options, |_, input: String| async move { Ok::<_, JobError>(input) }).unwrap()
}

/// Every text of a reply.
fn texts(value: Value, found: &mut Vec<Vec<u8>>) {
    match value {
        Value::BulkString(text) => found.push(text),
        Value::Array(values) => values.into_iter().for_each(|value| texts(value, found)),
        _ => {}
    }
}

/// The keys on the server in which the secret is readable, and how many keys there are.
async fn readable(conn: &mut MultiplexedConnection) -> (Vec<String>, usize) {
    let keys: Vec<String> = redis::cmd("KEYS").arg("*").query_async(conn).await.unwrap();
    let mut readable = Vec::new();
    for key in &keys {
        let kind: String = redis::cmd("TYPE").arg(key).query_async(conn).await.unwrap();
        let (command, range): (_, &[&str]) = match kind.as_str() {
            "hash" => ("HGETALL", &[]),
            "list" => ("LRANGE", &["0", "-1"]),
            "set" => ("SMEMBERS", &[]),
            "zset" => ("ZRANGE", &["0", "-1"]),
            "stream" => ("XRANGE", &["-", "+"]),
            _ => ("GET", &[]),
        };
        let mut found = vec![key.clone().into_bytes()];
        texts(redis::cmd(command).arg(key).arg(range).query_async(conn).await.unwrap(), &mut found);
        if found.iter().any(|text| text.windows(SECRET.len()).any(|part| part == SECRET.as_bytes())) {
            readable.push(key.clone());
        }
    }
    (readable, keys.len())
}

const PAGE: NodeName<String> = NodeName::new("page");
const NODE: TaskDef<String, String> = TaskDef::new("node");

/// Returns its input, after it was passed through a value of another node and through a graph of its own.
async fn node(ctx: Context, input: String) -> Result<String, JobError> {
    if ctx.id().as_str().contains("/parts/0/") && !ctx.id().as_str().contains('.') {
        let graph = Graph::new();
        graph.node("inner", &NODE, input.clone());
        ctx.expand(graph)?;
    } else if input == "upstream" {
        return Ok(ctx.upstream(PAGE).await?);
    }
    Ok(input)
}

/// A graph with a value as an input, a value that a handler reads, and a graph as a node.
fn graph() -> Graph<String> {
    let graph = Graph::new();
    let page = graph.node(PAGE, &NODE, SECRET.to_owned());
    let copy = page.then("copy", &NODE);
    let inner = Graph::new();
    let first = inner.node("first", &NODE, SECRET.to_owned());
    let inner = graph.subgraph("inner", inner.output(&first)).after(&copy);
    let last = graph.node("last", &NODE, "upstream".to_owned()).after(&page).after(&inner);
    graph.output(&last)
}

#[tokio::test]
async fn nothing_of_a_value_is_readable_on_the_server() {
    let (redis, test) = alone();
    let app = app_with(&test, &[1]).await;
    let work = |ctx: Context, input: String| async move {
        ctx.checkpoint_now(&input).await?;
        ctx.progress(&input, &input)?;
        let last = ctx.last_checkpoint::<String>().await?;
        if ctx.header("fails").is_some() { Err(JobError::new("no").fatal()) } else { Ok(last.unwrap_or_default()) }
    };
    let far = Schedule::every(Duration::from_secs(86_400));
    let task = app.task(TASK, fast(), work).unwrap().schedule("code", far.clone(), SECRET.to_owned()).unwrap();
    let task = task.on_complete(|_, outcome: Outcome<String>| async move {
        if let Outcome::Completed(value) = outcome {
            assert_eq!(value, SECRET);
        }
        Ok::<_, JobError>(())
    });
    let task = task.unwrap();
    app.register(NODE.handler(node)).unwrap();
    let mut events = task.events();
    let worker = TestWorker::start(app.worker());

    let job = task.dispatch(SECRET.to_owned()).unique(Unique::by_input()).await.unwrap();
    assert_eq!(job.result().await.unwrap(), SECRET);
    let failed = task.dispatch(SECRET.to_owned()).header("fails", "yes").await.unwrap();
    failed.result().await.unwrap_err();
    let _ = task.schedules().put("put", far, SECRET.to_owned()).await.unwrap();
    let ticked = task.schedules().run_now("put").await.unwrap();
    assert_eq!(ticked.result().await.unwrap(), SECRET);
    let flow = app.workflow::<String>("flow", WorkflowOptions::new()).unwrap();
    assert_eq!(flow.start(graph()).id("values").await.unwrap().result().await.unwrap(), SECRET);
    let parts = Graph::new();
    let first = parts.node("first", &NODE, SECRET.to_owned());
    let parts = parts.output(&first);
    assert_eq!(flow.start(parts).id("parts").await.unwrap().result().await.unwrap(), SECRET);

    assert_eq!(failed.progress().await.unwrap().unwrap().value, SECRET);
    let told = loop {
        if let Event::Progress { value, message, .. } = next(&mut events).await {
            break (value, message);
        }
    };
    assert_eq!(told, (SECRET.into(), SECRET.to_owned()));
    let seen = app.inspector().job(TASK, failed.id().as_str(), JobValues::All).await.unwrap().unwrap();
    assert_eq!([seen.payload, seen.checkpoint], [Some(SECRET.into()), Some(SECRET.into())]);
    // A value without a codec is found, so the others would be.
    let plain = test.app().await.task_ref::<String, ()>("plain").unwrap();
    let _ = plain.dispatch(SECRET.to_owned()).await.unwrap();
    let (readable, keys) = readable(&mut redis.conn().await).await;
    assert!(keys > 30, "only {keys} keys were looked at");
    assert_eq!(readable, ["heartline:{plain}:payload"]);
    worker.stop().await;
}

#[tokio::test]
async fn jobs_from_before_the_codec_run_and_are_read() {
    let (test, plain) = shared().await;
    let before = echo(&plain, fast()).dispatch("old".to_owned()).await.unwrap();
    let app = app_with(&test, &[1]).await;
    let task = echo(&app, fast());
    let worker = TestWorker::start(app.worker());
    assert_eq!(task.handle(before.id()).unwrap().result().await.unwrap(), "old");
    let reader = App::builder().redis(test.url()).prefix(&test.prefix).decode_only(Cipher(&[1])).build().await.unwrap();
    let reads = reader.task_ref::<String, String>(TASK).unwrap();
    assert_eq!(reads.handle(before.id()).unwrap().result().await.unwrap(), "old");
    let own = reads.dispatch("plain".to_owned()).await.unwrap();
    assert_eq!(test.column("payload", own.id().as_str()).await.unwrap(), "\"plain\"");
    assert_eq!(own.result().await.unwrap(), "plain");
    worker.stop().await;
}

#[tokio::test]
async fn a_worker_without_the_codec_leaves_the_job_to_another() {
    let (test, without) = shared().await;
    echo(&without, fast());
    let app = app_with(&test, &[1]).await;
    let job = app.task_ref::<String, String>(TASK).unwrap().dispatch(SECRET.to_owned()).await.unwrap();
    let worker = TestWorker::start(without.worker());
    eventually("the job is postponed", PATIENCE, async || job.state().await.unwrap() == JobState::Delayed).await;
    worker.stop().await;
    let seen = app.inspector().job(TASK, job.id().as_str(), JobValues::None).await.unwrap().unwrap();
    assert_eq!((seen.error.unwrap().code.as_str(), seen.failed_attempts), (codes::CODEC_UNKNOWN, 0));
    echo(&app, fast());
    let worker = TestWorker::start(app.worker());
    app.inspector().run_now(TASK, vec![job.id().clone()]).await.unwrap();
    assert_eq!(job.result().await.unwrap(), SECRET);
    worker.stop().await;
}

#[tokio::test]
async fn a_job_without_its_codec_fails_and_can_be_retried() {
    let (test, without) = shared().await;
    echo(&without, fast().undecodable_for(Duration::ZERO));
    let app = app_with(&test, &[1]).await;
    let job = app.task_ref::<String, String>(TASK).unwrap().dispatch(SECRET.to_owned()).await.unwrap();
    let worker = TestWorker::start(without.worker());
    let Error::JobFailed(failure) = job.result().await.unwrap_err() else { panic!("it did not fail") };
    assert_eq!(failure.code, codes::CODEC_UNKNOWN);
    assert!(failure.message.contains("encoded by `cipher`, "), "{failure}");
    assert!(failure.message.contains("AppBuilder::codec"), "{failure}");
    worker.stop().await;
    echo(&app, fast());
    let worker = TestWorker::start(app.worker());
    app.inspector().retry(TASK, vec![job.id().clone()]).await.unwrap();
    assert_eq!(job.result().await.unwrap(), SECRET);
    worker.stop().await;
}

#[tokio::test]
async fn a_value_is_read_with_any_known_key_and_no_other() {
    let (test, _) = shared().await;
    let (old, both, new) = (app_with(&test, &[1]).await, app_with(&test, &[1, 2]).await, app_with(&test, &[2]).await);
    echo(&both, fast());
    let worker = TestWorker::start(both.worker());
    let job = old.task_ref::<String, String>(TASK).unwrap().dispatch(SECRET.to_owned()).await.unwrap();
    assert_eq!(new.task_ref::<String, String>(TASK).unwrap().handle(job.id()).unwrap().result().await.unwrap(), SECRET);
    let Err(Error::PayloadCodec { source, .. }) = job.result().await else { panic!("the old key read it") };
    assert!(matches!(source, CodecError::Failed { .. }), "{source}");
    worker.stop().await;
    echo(&new, fast().undecodable_for(Duration::ZERO));
    let worker = TestWorker::start(new.worker());
    let job = old.task_ref::<String, String>(TASK).unwrap().dispatch(SECRET.to_owned()).await.unwrap();
    let Error::JobFailed(failure) = job.result().await.unwrap_err() else { panic!("it did not fail") };
    assert_eq!(failure.code, codes::CODEC);
    assert!(failure.message.ends_with("the codec `cipher` failed: there is no key 1"), "{failure}");
    worker.stop().await;
}

#[tokio::test]
async fn unique_inputs_and_keys_of_limits_are_found_as_before() {
    let (test, _) = shared().await;
    let app = app_with(&test, &[1]).await;
    let options = fast().key("/customer").per_key(Limit::new().running(1));
    let input = || serde_json::json!({ "customer": "acme", "note": SECRET });
    let run = |_: Context, input: serde_json::Value| async move { Ok::<_, JobError>(input) };
    let task = app.task(TASK, options, run).unwrap();
    let job = task.dispatch(input()).unique(Unique::by_input()).await.unwrap();
    assert_eq!(task.dispatch(input()).unique(Unique::by_input()).await.unwrap().id(), job.id());
    let seen = app.inspector().job(TASK, job.id().as_str(), JobValues::None).await.unwrap().unwrap();
    assert_eq!(seen.key.as_deref(), Some("acme"));
    assert_eq!(seen.unique_key.map(|key| (key.len(), key.starts_with('~'))), Some((23, true)));
    let worker = TestWorker::start(app.worker());
    assert_eq!(job.result().await.unwrap(), input());
    // The key of a job is kept until the job completes.
    worker.stop().await;
    // A producer that learns of the key from the server.
    let other = app_with(&test, &[1]).await;
    let later = other.task_ref::<serde_json::Value, ()>(TASK).unwrap().dispatch(input()).await.unwrap();
    let seen = app.inspector().job(TASK, later.id().as_str(), JobValues::None).await.unwrap().unwrap();
    assert_eq!(seen.key.as_deref(), Some("acme"));
}

#[tokio::test]
async fn tools_without_the_codec_name_it() {
    let (test, without) = shared().await;
    let app = app_with(&test, &[1]).await;
    let job = echo(&app, fast()).dispatch(SECRET.to_owned()).await.unwrap();
    let worker = TestWorker::start(app.worker());
    assert_eq!(job.result().await.unwrap(), SECRET);
    let (id, inspector) = (job.id().as_str(), without.inspector());
    let seen = inspector.job(TASK, id, JobValues::All).await.unwrap().unwrap();
    let said = format!("encoded by `cipher`, {} bytes", seen.payload_bytes);
    assert_eq!(seen.payload, Some(said.into()));
    let e = inspector.result_json(TASK, id).await.unwrap_err();
    assert!(format!("{e:?}").contains("encoded by `cipher`"), "{e:?}");
    assert_eq!(inspector.wait(TASK, id, PATIENCE).await.unwrap(), JobState::Completed);
    let seen = app.inspector().job(TASK, id, JobValues::All).await.unwrap().unwrap();
    assert_eq!(seen.result, Some(SECRET.into()));
    worker.stop().await;
}

#[tokio::test]
async fn limits_and_errors_are_those_of_the_encoded_bytes() {
    let (test, _) = shared().await;
    let app = app_with(&test, &[1]).await;
    let task = echo(&app, fast().payload_limit(1024));
    let e = task.dispatch("x".repeat(1020)).await.unwrap_err();
    assert!(matches!(e, Error::TooLarge { size: 1032, limit: 1024, .. }), "{e:?}");
    let broken = app_with(&test, &[]).await.task_ref::<String, String>(TASK).unwrap();
    let e = broken.dispatch("a".to_owned()).await.unwrap_err();
    assert!(matches!(e, Error::PayloadCodec { source: CodecError::Failed { .. }, .. }), "{e:?}");
    assert!(matches!(broken.dispatch_many(["a".to_owned()]).await, Err(Error::PayloadCodec { .. })));
    assert_eq!(task.counts().await.unwrap().pending_total(), 0);
    let named_twice = App::builder().codec(Cipher(&[1])).decode_only(Cipher(&[2])).build().await;
    assert!(matches!(named_twice, Err(Error::Config(_))));
}

/// A worker of an App with a schedule in code.
async fn scheduling(app: &App) -> TestWorker {
    let far = Schedule::every(Duration::from_secs(86_400));
    let _ = echo(app, fast()).schedule("daily", far, SECRET.to_owned()).unwrap();
    TestWorker::start(app.worker())
}

async fn stored_input(test: &TestTask) -> Option<Vec<u8>> {
    test.run("HGET", "schedules:input", &["daily"]).await
}

#[tokio::test]
async fn a_codec_encodes_the_schedules_that_were_written_without() {
    let (test, plain) = shared().await;
    let worker = scheduling(&plain).await;
    let was = eventually("the schedule is written", PATIENCE, async || stored_input(&test).await).await;
    assert_eq!(was, format!("\"{SECRET}\"").into_bytes());
    worker.stop().await;
    let app = app_with(&test, &[1]).await;
    let worker = scheduling(&app).await;
    let now = eventually("it is encoded", PATIENCE, async || stored_input(&test).await.filter(|now| *now != was)).await;
    assert!(now.starts_with(b"\x02cipher "));
    let job = app.task_ref::<String, String>(TASK).unwrap().schedules().run_now("daily").await.unwrap();
    assert_eq!(job.result().await.unwrap(), SECRET);
    worker.stop().await;
}

#[tokio::test]
async fn workers_agree_on_a_schedule_that_each_encodes_otherwise() {
    let (test, _) = shared().await;
    let (one, other) = (app_with(&test, &[1]).await, app_with(&test, &[1]).await);
    let first = scheduling(&one).await;
    let was = eventually("the schedule is written", PATIENCE, async || stored_input(&test).await).await;
    let second = scheduling(&other).await;
    let inspector = one.inspector();
    eventually("both have reported", PATIENCE, async || inspector.schedule_totals(TASK).await.unwrap().keepers == 2)
        .await;
    assert_eq!(inspector.schedule(TASK, "daily").await.unwrap().unwrap().differing, None);
    assert_eq!(stored_input(&test).await, Some(was));
    first.stop().await;
    second.stop().await;
}

/// A task whose hook sends its value, or never ends.
fn hooked(app: &App, tell: Option<UnboundedSender<String>>) -> TaskRef<String, String> {
    let options = fast().shutdown_grace(Duration::ZERO).cancel_grace(Duration::ZERO);
    let task = echo(app, options);
    let hook = move |_: Context, outcome: Outcome<String>| {
        let tell = tell.clone();
        async move {
            let (Some(tell), Outcome::Completed(value)) = (tell, outcome) else { return std::future::pending().await };
            tell.send(value)
        }
    };
    task.on_complete(hook).unwrap();
    task
}

#[tokio::test]
async fn a_hook_waits_for_a_worker_with_the_codec() {
    let (test, without) = shared().await;
    let (tell, mut told) = unbounded_channel();
    let stopped = app_with(&test, &[1]).await;
    let job = hooked(&stopped, None).dispatch(SECRET.to_owned()).await.unwrap();
    let state = async || job.state().await.unwrap();
    let worker = TestWorker::start(stopped.worker());
    let held =
        async || test.column("outcome", job.id().as_str()).await.is_some() && state().await == JobState::Finalizing;
    eventually("its hook runs", PATIENCE, held).await;
    worker.stop().await;
    hooked(&without, Some(tell.clone()));
    let worker = TestWorker::start(without.worker());
    let now_ms = app_with(&test, &[1]).await.inspector().now().await.duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let due = async || test.run::<Option<f64>>("ZSCORE", "finalizing", &[job.id().as_str()]).await;
    let waits = async || due().await.is_some_and(|due| due > now_ms.as_millis() as f64 + 5000.0);
    eventually("the hook waits for another worker", PATIENCE, waits).await;
    worker.stop().await;
    assert_eq!(state().await, JobState::Finalizing);
    test.run::<u64>("ZADD", "finalizing", &["1", job.id().as_str()]).await;
    let app = app_with(&test, &[1]).await;
    hooked(&app, Some(tell));
    let worker = TestWorker::start(app.worker());
    assert_eq!(told.recv().await.unwrap(), SECRET);
    assert_eq!(job.result().await.unwrap(), SECRET);
    worker.stop().await;
}

#[tokio::test]
async fn an_unreadable_checkpoint_postpones_the_job() {
    let (test, _) = shared().await;
    let hour = Duration::from_secs(3600);
    let work = move |ctx: Context, _: String| async move {
        match ctx.last_checkpoint::<u32>().await? {
            Some(at) => Ok(at.to_string()),
            None => {
                ctx.checkpoint_now(&41).await?;
                Err(JobError::new("later").retry_after(hour))
            }
        }
    };
    let worker_of = async |keys| {
        let app = app_with(&test, keys).await;
        app.task(TASK, fast().retry(RetryPolicy::new().attempts(2)), work).unwrap();
        TestWorker::start(app.worker())
    };
    // The payload is encoded with the key 1, and the checkpoint with the key 2.
    let app = app_with(&test, &[2, 1]).await;
    let job = app.task_ref::<String, String>(TASK).unwrap().dispatch(SECRET.to_owned()).await.unwrap();
    let inspector = app.inspector();
    let failed_with = async |said: &str| {
        let seen = inspector.job(TASK, job.id().as_str(), JobValues::None).await.unwrap().unwrap();
        let error = seen.error.map_or_else(String::new, |e| e.message);
        (seen.state == JobState::Delayed && error.contains(said)).then_some(seen.failed_attempts)
    };
    let worker = worker_of(&[1, 2]).await;
    eventually("the first run has failed", PATIENCE, async || failed_with("later").await.is_some()).await;
    worker.stop().await;
    let worker = worker_of(&[1]).await;
    inspector.run_now(TASK, vec![job.id().clone()]).await.unwrap();
    eventually("it is postponed", PATIENCE, async || failed_with("there is no key 2").await.is_some()).await;
    worker.stop().await;
    assert_eq!(failed_with("there is no key 2").await, Some(1), "it used no attempt");
    let worker = worker_of(&[1, 2]).await;
    inspector.run_now(TASK, vec![job.id().clone()]).await.unwrap();
    assert_eq!(job.result().await.unwrap(), "41");
    worker.stop().await;
}
