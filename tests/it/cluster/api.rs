//! What producers, workers and people do, with tasks on each node.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use heartline::{
    App, Context, Credentials, Error, JobError, JobState, StallAction, StallOptions, TaskOptions, TaskRef,
};
use redis::Value;
use tokio::sync::watch;

use crate::cluster::six::{Six, TASKS, ask};
use crate::support::worker::TestWorker;
use crate::support::{Child, PATIENCE, TestRedis, Warnings, eventually};

/// An App whose jobs double their input; jobs with the input 0 run until they are cancelled.
async fn app(url: &str) -> (App, Vec<TaskRef<u64, u64>>) {
    app_with(url, Duration::from_secs(2)).await
}

async fn app_with(url: &str, interval: Duration) -> (App, Vec<TaskRef<u64, u64>>) {
    let app = App::builder().redis(url).build().await.unwrap();
    let handler = |ctx: Context, input: u64| async move {
        if input == 0 {
            ctx.cancelled().await;
            ctx.heartbeat()?;
        }
        Ok::<_, JobError>(2 * input)
    };
    let options = TaskOptions::new().stall(StallOptions::new().interval(interval));
    let declare = |task: &&str| app.task(task, options.clone(), handler).unwrap();
    let tasks = TASKS.iter().map(declare).collect();
    (app, tasks)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_on_all_nodes_run_emit_events_are_cancelled_and_counted() {
    let six = Six::start().await;
    let mut nodes = BTreeSet::new();
    for task in TASKS {
        nodes.insert(six.primary_of(task, six.cluster.nodes[0].port()).await.unwrap());
    }
    assert_eq!(nodes.len(), 3, "a task on each node");
    let (app, tasks) = app(&six.cluster.url()).await;
    let mut events = app.events();
    let worker = TestWorker::start(app.worker());
    worker.working().await;
    for (at, task) in (1..).zip(&tasks) {
        let job = task.dispatch(at).await.unwrap();
        assert_eq!(tokio::time::timeout(PATIENCE, job.result()).await.unwrap().unwrap(), 2 * at);
    }
    // An idle worker wakes up at once, also for the last task of its list.
    for task in tasks.iter().rev() {
        let begun = Instant::now();
        task.dispatch(1).await.unwrap().result().await.unwrap();
        assert!(begun.elapsed() < Duration::from_secs(2), "it looks each 5 s: {:?}", begun.elapsed());
    }
    let mut completed = BTreeSet::new();
    while completed.len() < TASKS.len() {
        let event = tokio::time::timeout(PATIENCE, events.next()).await.unwrap().unwrap().unwrap();
        if event.name() == "task:completed" {
            completed.insert(event.task().to_owned());
        }
    }
    let job = tasks[1].dispatch(0).await.unwrap();
    eventually("it runs", PATIENCE, async || job.state().await.unwrap() == JobState::Running).await;
    job.cancel("enough").await.unwrap();
    let ended = tokio::time::timeout(PATIENCE, job.result()).await.unwrap();
    assert!(matches!(ended, Err(Error::JobCancelled { .. })), "{ended:?}");

    let inspector = app.inspector();
    let listed = inspector.tasks().await.unwrap();
    assert_eq!(listed.iter().map(|task| task.counts.completed).collect::<Vec<_>>(), [2; 5]);
    assert!(listed.iter().all(|task| task.live_workers == 1 && task.fault.is_none()), "{listed:?}");
    let workers = inspector.workers().await.unwrap();
    assert_eq!((workers.len(), workers[0].tasks.len()), (1, 5));
    for task in TASKS {
        assert_eq!(inspector.audit(task).await.unwrap().findings().count(), 0);
    }
    worker.stop().await;
}

/// How many connections subscribe to wake-ups at each node. None may block for them.
async fn listeners(six: &Six) -> Vec<usize> {
    let mut counts = Vec::new();
    for server in &six.cluster.nodes {
        let clients: String = ask(server.port(), &["CLIENT", "LIST"]).await.unwrap();
        assert!(!clients.contains("cmd=bzpopmin"), "{clients}");
        counts.push(clients.matches("name=heartline:wake:").count());
    }
    counts
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_workers_subscribe_once_per_node_and_one_takes_a_job() {
    let six = Six::start().await;
    let (app, tasks) = app(&six.cluster.url()).await;
    let workers = [TestWorker::start(app.worker()), TestWorker::start(app.worker())];
    eventually("both listen at each primary", PATIENCE, async || listeners(&six).await == [2, 2, 2, 0, 0, 0]).await;
    let node = six.primary_of(TASKS[0], six.ports()[0]).await.unwrap();
    let to = six.ports()[..3].iter().copied().find(|port| *port != node).unwrap();
    let hears = async || {
        let begun = Instant::now();
        for _ in 0..5 {
            tasks[0].dispatch(1).await.unwrap().result().await.unwrap();
        }
        assert!(begun.elapsed() < Duration::from_secs(5), "they look each 5 s: {:?}", begun.elapsed());
    };
    hears().await;
    // The slot moves: jobs there wake them too.
    six.migrate(TASKS[0], node, to, || async {}).await;
    hears().await;
    // All connections are cut.
    for port in six.ports() {
        ask::<Value>(port, &["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]).await.unwrap();
        ask::<Value>(port, &["CLIENT", "KILL", "TYPE", "pubsub", "SKIPME", "yes"]).await.unwrap();
    }
    let mut wanted = vec![0; 6];
    for task in TASKS {
        let port = six.primary_of(task, to).await.unwrap();
        wanted[six.ports().iter().position(|own| *own == port).unwrap()] = 2;
    }
    eventually("they listen again", PATIENCE, async || listeners(&six).await == wanted).await;
    hears().await;
    for worker in workers {
        worker.stop().await;
    }
    // No worker is left to take the job: its marker stays.
    tasks[0].dispatch(1).await.unwrap();
    let marker = format!("heartline:{{{}}}:wake", TASKS[0]);
    assert_eq!(ask::<u64>(to, &["ZCARD", &marker]).await, Some(1));
}

/// The program of a child.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_process() {
    if let Some(url) = Child::role() {
        let _ = app(&url).await.0.worker().run().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_of_a_silent_worker_are_recovered_on_every_node() {
    let six = Six::start().await;
    let frozen = Child::start(module_path!(), "a_worker_process", &six.cluster.url());
    let (app, tasks) = app(&six.cluster.url()).await;
    let mut jobs = Vec::new();
    for task in &tasks {
        jobs.push(task.dispatch(0).await.unwrap());
    }
    for job in &jobs {
        eventually("it runs", PATIENCE, async || job.state().await.unwrap() == JobState::Running).await;
    }
    let mut stalls = app.on_stalled();
    frozen.signal("STOP");
    let worker = TestWorker::start(app.worker());
    let mut recovered = BTreeSet::new();
    while recovered.len() < TASKS.len() {
        let stall = tokio::time::timeout(PATIENCE, stalls.recv()).await.unwrap().unwrap();
        assert_eq!((stall.action, stall.stalled_count), (StallAction::Recovered, 1), "{stall:?}");
        recovered.insert(stall.task);
    }
    for job in &jobs {
        job.cancel("enough").await.unwrap();
        let ended = tokio::time::timeout(PATIENCE, job.result()).await.unwrap();
        assert!(matches!(ended, Err(Error::JobCancelled { .. })), "{ended:?}");
    }
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_without_keys_are_sent_to_any_node_that_answers() {
    let mut six = Six::start().await;
    let (app, _) = app(&six.cluster.url()).await;
    let inspector = app.inspector();
    inspector.server_time().await.unwrap();
    // A primary is frozen and its replica dead; then another primary and its replica are dead.
    six.cluster.nodes[3].kill();
    six.cluster.nodes[0].freeze().unwrap();
    inspector.server_time().await.unwrap();
    six.cluster.nodes[0].thaw().unwrap();
    six.cluster.nodes[4].kill();
    six.cluster.nodes[1].kill();
    inspector.server_time().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_cannot_be_listed_claims_nothing() {
    let six = Six::start().await;
    let (app, tasks) = app(&six.cluster.url()).await;
    // The node that has the list of workers, and its replica.
    let at = six.cluster.primary_of("heartline:workers").unwrap();
    let elsewhere = TASKS.iter().position(|task| six.cluster.primary_of(&format!("{{{task}}}")) != Some(at)).unwrap();
    let job = tasks[elsewhere].dispatch(2).await.unwrap();
    let frozen = [&six.cluster.nodes[at], &six.cluster.nodes[at + 3]];
    frozen.iter().for_each(|node| node.freeze().unwrap());
    let warnings = Warnings::capture();
    let worker = app.worker().tasks([TASKS[elsewhere]]).unwrap();
    let id = worker.id().to_string();
    let worker = worker.spawn();
    warnings.wait_for(&["WARN", &id, "waits for redis"], PATIENCE).await;
    assert_eq!(job.state().await.unwrap(), JobState::Waiting, "jobs of an unlisted worker could never be recovered");
    frozen.iter().for_each(|node| node.thaw().unwrap());
    assert_eq!(tokio::time::timeout(PATIENCE, job.result()).await.unwrap().unwrap(), 4);
    let _ = worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_of_a_cluster_needs_some_more_commands() {
    let six = Six::start().await;
    let (_, rest) = include_str!("../../../docs/acl.md").split_once("ACL SETUSER jobs on >secret ").unwrap();
    let rule = rest.split_once("```").unwrap().0;
    let set = async |more: &str| {
        for server in &six.cluster.nodes {
            let words = ["ACL", "SETUSER", "jobs", "reset", "on", ">secret"].into_iter();
            let words: Vec<&str> = words.chain(rule.split_whitespace()).chain(more.split(' ')).collect();
            assert_eq!(ask::<String>(server.port(), &words).await.as_deref(), Some("OK"));
        }
    };
    let url = six.cluster.url().replace("://", "://jobs:secret@");
    set("-cluster").await;
    let e = App::builder().redis(&url).build().await.unwrap_err();
    assert!(!e.is_retryable() && e.to_string().contains("cluster"), "{e:?}");
    set("+cluster|slots +cluster|info +spublish +ssubscribe +zpopmin -bzpopmin").await;
    let (app, tasks) = app(&url).await;
    let worker = TestWorker::start(app.worker());
    for task in &tasks {
        assert_eq!(tokio::time::timeout(PATIENCE, task.dispatch(1).await.unwrap().result()).await.unwrap().unwrap(), 2);
    }
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_node_receives_a_password_that_changes() {
    let six = Six::start().await;
    let on_all = async |words: &[&str]| {
        for port in six.ports() {
            ask::<Value>(port, words).await.unwrap();
        }
    };
    on_all(&["ACL", "SETUSER", "app", "on", ">first", "~*", "&*", "+@all"]).await;
    let (rotated, credentials) = watch::channel(Credentials::new("app", "first"));
    let app = App::builder().redis(six.cluster.url()).credentials(credentials).build().await.unwrap();
    let tasks = TASKS.map(|task| app.task(task, TaskOptions::new(), async |_: Context, n: u64| Ok::<_, JobError>(n)));
    let worker = TestWorker::start(app.worker());
    for (task, password) in tasks.iter().flat_map(|task| [(task, "second"), (task, "third")]) {
        let job = task.as_ref().unwrap().dispatch(7).await.unwrap();
        assert_eq!(tokio::time::timeout(PATIENCE, job.result()).await.unwrap().unwrap(), 7);
        on_all(&["ACL", "SETUSER", "app", "resetpass", &format!(">{password}")]).await;
        rotated.send_replace(Credentials::new("app", password));
        on_all(&["CLIENT", "KILL", "USER", "app"]).await;
    }
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn addresses_report_what_they_lead_to() {
    let six = Six::start().await;
    let build = async |url: String| App::builder().redis(url).build().await.unwrap_err();
    let e = build(format!("redis://127.0.0.1:{}", six.cluster.nodes[0].port())).await;
    assert!(e.to_string().contains("redis-cluster://"), "{e}");
    let alone = heartline::testing::RedisServer::start().unwrap();
    let e = build(format!("redis-cluster://127.0.0.1:{}", alone.port())).await;
    assert!(matches!(e, Error::Unsupported { .. }) && e.to_string().contains("redis://127.0.0.1"), "{e}");
    let e = build("redis-cluster://127.0.0.1:1".to_owned()).await;
    assert!(matches!(e, Error::Connect { .. }) && e.to_string().contains("redis-cluster://127.0.0.1:1"), "{e}");
    // A listed node that is away is not a fault if another one answers.
    let url = format!("redis-cluster://127.0.0.1:1?node=127.0.0.1:{}", six.cluster.nodes[4].port());
    App::builder().redis(url).build().await.unwrap();
    assert!(ask::<String>(six.cluster.nodes[0].port(), &["PING"]).await.is_some());
}

/// The port of the node at which the worker subscribes to cancels, among those that answer.
async fn hears_cancels_at(six: &Six, except: Option<u16>) -> Option<u16> {
    for port in six.ports().into_iter().filter(|port| Some(*port) != except) {
        let clients: String = ask(port, &["CLIENT", "LIST"]).await?;
        if clients.contains("name=heartline:hints:") {
            return Some(port);
        }
    }
    None
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_subscription_to_cancels_moves_when_its_node_is_replaced() {
    let six = Six::start().await;
    // Without a hint, the cancel would arrive with a heartbeat, 20 s later.
    let (app, tasks) = app_with(&six.cluster.url(), Duration::from_secs(60)).await;
    let worker = TestWorker::start(app.worker());
    let frozen = eventually("it listens", PATIENCE, async || hears_cancels_at(&six, None).await).await;
    let at = six.ports().iter().position(|port| *port == frozen).unwrap();
    let (mut lost, mut kept) = (None, None);
    for (name, task) in TASKS.iter().zip(&tasks) {
        let place = if six.primary_of(name, frozen).await == Some(frozen) { &mut lost } else { &mut kept };
        *place = Some((*name, task));
    }
    let ((lost, _), (_, kept)) = (lost.unwrap(), kept.unwrap());
    let job = kept.dispatch(0).await.unwrap();
    eventually("it runs", PATIENCE, async || job.state().await.unwrap() == JobState::Running).await;
    six.cluster.nodes[at].freeze().unwrap();
    six.another_than(frozen, lost).await;
    // The connection itself counts as dead only after 5 s of silence.
    let elsewhere = async || hears_cancels_at(&six, Some(frozen)).await;
    eventually("it listens elsewhere", Duration::from_secs(2), elsewhere).await;
    let begun = Instant::now();
    job.cancel("enough").await.unwrap();
    let ended = tokio::time::timeout(PATIENCE, job.result()).await.unwrap();
    assert!(matches!(ended, Err(Error::JobCancelled { .. })), "{ended:?}");
    assert!(begun.elapsed() < Duration::from_secs(10), "it came with a heartbeat: {:?}", begun.elapsed());
    six.cluster.nodes[at].thaw().unwrap();
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_without_free_clients_is_not_a_wrong_password() {
    let six = Six::start().await;
    for port in six.ports() {
        let user = ["ACL", "SETUSER", "app", "on", ">secret", "~*", "&*", "+@all"];
        assert_eq!(ask::<String>(port, &user).await.as_deref(), Some("OK"));
    }
    let url = six.cluster.url().replace("redis-cluster://", "redis-cluster://app:secret@");
    let (app, tasks) = app(&url).await;
    tasks[0].dispatch(1).await.unwrap();
    let node = six.primary_of(TASKS[0], six.ports()[0]).await.unwrap();
    let client = redis::Client::open(format!("redis://127.0.0.1:{node}")).unwrap();
    let mut admin = client.get_multiplexed_async_connection_with_config(&TestRedis::patient()).await.unwrap();
    let mut tell = async |words: &str| {
        let mut words = words.split(' ');
        let mut cmd = redis::cmd(words.next().unwrap());
        cmd.arg(words.collect::<Vec<_>>()).query_async::<redis::Value>(&mut admin).await.unwrap();
    };
    tell("CONFIG SET maxclients 1").await;
    tell("CLIENT KILL USER app").await;
    let worker = app.worker().spawn();
    let mut done = std::pin::pin!(async { tasks[0].dispatch(2).await.unwrap().result().await.unwrap() });
    assert!(tokio::time::timeout(Duration::from_secs(2), &mut done).await.is_err(), "it waits");
    tell("CONFIG SET maxclients 1000").await;
    assert_eq!(tokio::time::timeout(PATIENCE, done).await.unwrap(), 4);
    let _ = worker.stop().await.unwrap();
}
