//! A primary that is away: tasks on other nodes do not notice, and nothing spins.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use heartline::{
    App, Context, Error, JobError, JobFilter, JobState, RefusalReason, RefusedJob, StallOptions, TaskOptions, TaskRef,
};

use crate::cluster::six::{Six, TASKS, ask};
use crate::support::{Child, PATIENCE, TestRedis, eventually};

/// How long each kind of time is observed.
const WINDOW: Duration = Duration::from_secs(3);

/// How often a client dispatches, whether or not the call before was answered: each delayed call counts.
const PACE: Duration = Duration::from_millis(20);

async fn app(url: &str) -> (App, Vec<TaskRef<u64, u64>>) {
    let app = App::builder().redis(url).build().await.unwrap();
    let options = TaskOptions::new().concurrency(8).stall(StallOptions::new().interval(Duration::from_secs(3)));
    let declare = |task: &&str| {
        app.task(task, options.clone(), |_: Context, input: u64| async move { Ok::<_, JobError>(input) }).unwrap()
    };
    let tasks = TASKS.iter().map(declare).collect();
    (app, tasks)
}

/// Which of the nodes has the first of the tasks, and which of the tasks are on another.
async fn places(six: &Six) -> (usize, Vec<usize>) {
    let (place, port) = six.home_of(TASKS[0]).await;
    let mut elsewhere = Vec::new();
    for (at, task) in TASKS.iter().enumerate() {
        if six.home_of(task).await.1 != port {
            elsewhere.push(at);
        }
    }
    (place, elsewhere)
}

/// How long each call took, by when it began.
type Calls = Arc<Mutex<Vec<(Instant, Duration)>>>;

/// Calls at this pace until it is stopped, and records how long each took.
async fn calling<F: Future<Output = ()> + Send + 'static>(
    call: impl Fn() -> F,
    stopped: Arc<AtomicBool>,
    calls: Calls,
) {
    let mut pace = tokio::time::interval(PACE);
    let mut under_way = tokio::task::JoinSet::new();
    while !stopped.load(Ordering::SeqCst) {
        pace.tick().await;
        let (call, calls) = (call(), Arc::clone(&calls));
        under_way.spawn(async move {
            let begun = Instant::now();
            call.await;
            calls.lock().unwrap().push((begun, begun.elapsed()));
        });
    }
    while let Some(ended) = under_way.join_next().await {
        ended.unwrap();
    }
}

/// The 99th percentile of the calls of this time.
fn percentile(calls: &Calls, from: Instant, to: Instant) -> Duration {
    let calls = calls.lock().unwrap();
    let mut took: Vec<Duration> =
        calls.iter().filter(|(begun, _)| (from..to).contains(begun)).map(|(_, took)| *took).collect();
    assert!(took.len() > 50, "{}", took.len());
    took.sort_unstable();
    took[took.len() * 99 / 100]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_to_other_nodes_do_not_wait_for_a_killed_primary() {
    let mut six = Six::start().await;
    let (at, _) = places(&six).await;
    goes(&mut six, |six| six.cluster.nodes[at].kill()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_to_other_nodes_do_not_wait_for_a_frozen_primary() {
    let mut six = Six::start().await;
    let (at, _) = places(&six).await;
    goes(&mut six, |six| six.cluster.nodes[at].freeze().unwrap()).await;
    six.cluster.nodes[at].thaw().unwrap();
}

/// Dispatches of one process to tasks on all nodes, while its worker runs them and one of the primaries fails.
async fn goes(six: &mut Six, go: impl FnOnce(&mut Six)) {
    let (at, elsewhere) = places(six).await;
    let before = six.ports()[at];
    let (app, tasks) = app(&six.cluster.url()).await;
    let worker = app.worker().spawn();
    let stop = Arc::new(AtomicBool::new(false));
    let calls: Vec<Calls> = tasks.iter().map(|_| Calls::default()).collect();
    let mut calls_go_on = Vec::new();
    for (task, calls) in tasks.iter().zip(&calls) {
        let task = task.clone();
        let dispatches = move || {
            let task = task.clone();
            async move { drop(task.dispatch(1).await.unwrap()) }
        };
        calls_go_on.push(tokio::spawn(calling(dispatches, Arc::clone(&stop), Arc::clone(calls))));
    }
    // How long such a call waits for the machine and the nodes alone: on a busy machine they lose contact and refuse
    // writes.
    let plain: Vec<Calls> = elsewhere.iter().map(|_| Calls::default()).collect();
    for (task, calls) in elsewhere.iter().zip(&plain) {
        let port = six.primary_of(TASKS[*task], before).await.unwrap();
        let client = redis::Client::open(format!("redis://127.0.0.1:{port}")).unwrap();
        let conn = client.get_multiplexed_async_connection_with_config(&TestRedis::patient()).await.unwrap();
        let key = format!("probe:{{{}}}", TASKS[*task]);
        let writes = move || {
            let (mut conn, key) = (conn.clone(), key.clone());
            async move {
                while redis::cmd("SET").arg(&key).arg(1).query_async::<()>(&mut conn).await.is_err() {
                    tokio::time::sleep(PACE).await;
                }
            }
        };
        calls_go_on.push(tokio::spawn(calling(writes, Arc::clone(&stop), Arc::clone(calls))));
    }
    for task in &tasks {
        let works = async || task.counts().await.unwrap().completed > 10;
        eventually("each task has a worker", PATIENCE, works).await;
    }
    let begun = Instant::now();
    tokio::time::sleep(WINDOW).await;
    let gone = Instant::now();
    go(six);
    six.another_than(before, TASKS[0]).await;
    // Including what follows the promotion.
    tokio::time::sleep_until((Instant::now() + Duration::from_secs(1)).max(gone + WINDOW).into()).await;
    let end = Instant::now();
    stop.store(true, Ordering::SeqCst);
    for calls in calls_go_on {
        calls.await.unwrap();
    }
    let own = percentile(&calls[0], gone, end);
    assert!(own > Duration::from_millis(500), "its own calls waited for the failover");
    for (task, plain) in elsewhere.into_iter().zip(&plain) {
        let (usual, then) = (percentile(&calls[task], begun, gone), percentile(&calls[task], gone, end));
        let plain = percentile(plain, gone, end);
        let told = format!("{}: {usual:?} before, {then:?} then, and {plain:?} for a plain write", TASKS[task]);
        println!("{told}");
        // A call that waits for the failed node takes half a second or more, and so do calls made meanwhile. On a busy
        // machine, calls of several steps wait at each of them.
        let most = usual.max(plain) * 4 + Duration::from_millis(400);
        assert!(then < most.max(own / 2), "{told}, and {own:?} for its own calls");
    }
    let _ = worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_action_reports_what_it_did_and_does_the_rest_later() {
    let six = Six::start().await;
    let app = App::builder().redis(six.cluster.url()).build().await.unwrap();
    let handler = |_: Context, input: u64| async move { Ok::<_, JobError>(input) };
    let task = app.task(TASKS[0], TaskOptions::new().partitions(3), handler).unwrap();
    // Its worker has declared every partition.
    let worker = app.worker().spawn();
    task.dispatch(90).await.unwrap().result().await.unwrap();
    let _ = worker.stop().await.unwrap();
    let handles = task.dispatch_many(0..90).await.unwrap();
    let ids: Vec<String> = handles.iter().map(|handle| handle.id().to_string()).collect();
    let (at, _) = six.home_of(TASKS[0]).await;
    // A node that has another partition, and its replica, so that there is no failover.
    let away = (at + 1) % 3;
    let inspector = app.inspector().by("night");
    let mut named = inspector.cancel(TASKS[0], ids, "enough");
    let mut listed = inspector.remove(TASKS[0], JobFilter::new(JobState::Cancelled));
    six.freeze_both(away);
    let refused = named.next_batch().await.unwrap_err();
    assert!(matches!(refused, Error::Connect { .. }), "{refused}");
    let done = named.report().done;
    assert!((30..90).contains(&done), "{done}");
    six.thaw_both(away);
    eventually("the rest is done", PATIENCE, async || named.next_batch().await.is_ok()).await;
    let report = named.report();
    // The frozen node may have carried out the call after the client gave up.
    let is_done = |refused: &RefusedJob| refused.why == RefusalReason::State(JobState::Cancelled);
    assert!(report.done + report.refused == 90 && report.refusals.iter().all(is_done), "{report:?}");
    assert!(report.done >= done && report.is_complete, "{report:?}");
    while listed.next_batch().await.unwrap().is_some() {}
    assert_eq!((listed.report().done, listed.report().refused), (90, 0), "{:?}", listed.report());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reports_show_the_other_nodes_while_one_is_frozen() {
    let six = Six::start().await;
    let (app, tasks) = app(&six.cluster.url()).await;
    for task in &tasks {
        task.dispatch(1).await.unwrap();
    }
    let worker = app.worker().spawn();
    let inspector = app.inspector();
    let is_worked = async || inspector.tasks().await.unwrap().iter().all(|task| task.live_workers == 1);
    eventually("each task has a worker", PATIENCE, is_worked).await;
    // It has `export` and the list of dead workers, but neither the list of tasks nor that of workers.
    let away = format!("127.0.0.1:{}", six.ports()[1]);
    six.freeze_both(1);
    let told = async |inspector: &heartline::Inspector, most: Duration| {
        let begun = Instant::now();
        let tasks = inspector.tasks().await.unwrap();
        let workers = inspector.workers().await.unwrap();
        let servers = inspector.servers().await.unwrap();
        let holders = inspector.lock_holders("export").await;
        let took = begun.elapsed();
        println!("a look took {took:?}");
        assert!(took < most, "{took:?}");
        assert!(tasks.iter().all(|task| task.is_unreachable == (task.task == "export")), "{tasks:?}");
        assert!(tasks.len() == TASKS.len() && workers.len() == 1 && holders.is_err(), "{workers:?}");
        assert!(servers.iter().all(|server| server.fault.is_some() == (server.place == away)), "{servers:?}");
        assert_eq!(inspector.unreachable_lists().await.unwrap(), heartline::UnreachableLists::default());
    };
    told(&inspector, Duration::from_secs(6)).await;
    // It is now known to be silent.
    told(&inspector, Duration::from_secs(2)).await;
    // A process that starts.
    let begun = Instant::now();
    let other = App::builder().redis(six.cluster.url()).build().await.unwrap();
    told(&other.inspector(), Duration::from_secs(6)).await;
    assert!(begun.elapsed() < Duration::from_secs(6), "{:?}", begun.elapsed());
    six.cluster.nodes[1].thaw().unwrap();
    let is_back = async || inspector.tasks().await.unwrap().iter().all(|task| !task.is_unreachable);
    eventually("it is shown again", PATIENCE, is_back).await;
    let _ = worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reports_omit_a_list_that_is_away_and_show_the_rest() {
    let mut six = Six::start().await;
    let (app, tasks) = app(&six.cluster.url()).await;
    let inspector = app.inspector();
    for task in &tasks {
        task.dispatch(1).await.unwrap();
    }
    let place = |six: &Six, at: usize| Some(format!("127.0.0.1:{}", six.ports()[at]));
    // The list of workers is on the first node, as `mail` is.
    six.freeze_both(0);
    let reports = inspector.tasks().await.unwrap();
    assert!(reports.len() == TASKS.len() && reports.iter().all(|task| !task.knows_workers), "{reports:?}");
    assert!(reports.iter().any(|task| task.is_unreachable) && reports.iter().any(|task| task.counts.waiting == 1));
    assert!(inspector.workers().await.is_err());
    let away = inspector.unreachable_lists().await.unwrap();
    assert_eq!((away.tasks, away.workers), (None, place(&six, 0)));
    let outlook = inspector.recovery_status("export").await.unwrap();
    assert!(outlook.reasons.iter().all(|reason| !reason.contains("no worker")), "{outlook:?}");
    six.cluster.nodes[0].thaw().unwrap();
    let is_back =
        async || inspector.tasks().await.unwrap().iter().all(|task| task.knows_workers && !task.is_unreachable);
    eventually("the list of workers is back", PATIENCE, is_back).await;
    // The list of tasks is on the third one.
    for server in [5, 2] {
        six.cluster.nodes[server].kill();
    }
    assert!(inspector.tasks().await.is_err());
    let away = inspector.unreachable_lists().await.unwrap();
    assert_eq!((away.tasks, away.workers), (place(&six, 2), None));
    let report = inspector.task("export").await.unwrap();
    assert!(report.counts.waiting == 1 && report.knows_workers, "{report:?}");
    let servers = inspector.servers().await.unwrap();
    assert_eq!(servers.iter().filter(|server| server.fault.is_some()).count(), 1, "{servers:?}");
    assert_eq!(away.says_down, None);
    // By default, Redis nodes then report that the cluster is down.
    for port in &six.ports()[..2] {
        let set = ["CONFIG", "SET", "cluster-require-full-coverage", "yes"];
        assert_eq!(ask::<String>(*port, &set).await.as_deref(), Some("OK"));
    }
    let is_down = async || inspector.unreachable_lists().await.is_ok_and(|away| away.says_down == place(&six, 0));
    eventually("the nodes report that the cluster is down", PATIENCE, is_down).await;
}

/// The program of a child.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_dispatches_and_works() {
    let Some(url) = Child::role() else { return };
    let (app, tasks) = app(&url).await;
    for task in tasks {
        tokio::spawn(async move {
            let mut pace = tokio::time::interval(PACE);
            loop {
                pace.tick().await;
                // A call that waits for too long is given up, and the next one waits.
                let _ = task.dispatch(1).await;
            }
        });
    }
    let _ = app.worker().run().await.unwrap();
}

/// The processor time that a process has used, in hundredths of a second.
#[cfg(target_os = "linux")]
fn processor_time(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let (_, rest) = stat.rsplit_once(')').unwrap();
    // The state is the third field; user and system time are the 14th and the 15th.
    rest.split_whitespace().skip(11).take(2).map(|ticks| ticks.parse::<u64>().unwrap()).sum()
}

/// How often the clients asked a node for the map of slots.
async fn maps_told(port: u16) -> u64 {
    let told: String = ask(port, &["INFO", "commandstats"]).await.unwrap();
    let line = told.lines().find_map(|line| line.strip_prefix("cmdstat_cluster|slots:calls="));
    line.map_or(0, |line| line.split(',').next().unwrap().parse().unwrap())
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_absent_primary_makes_a_process_no_busier_than_load_does() {
    let mut six = Six::start().await;
    let (at, _) = places(&six).await;
    let child = Child::start(module_path!(), "a_process_that_dispatches_and_works", &six.cluster.url());
    let ports = six.ports();
    let living: Vec<u16> =
        ports.iter().enumerate().filter(|(other, _)| other % 3 != at).map(|(_, port)| *port).collect();
    for task in TASKS {
        let port = six.primary_of(task, ports[0]).await.unwrap();
        let completed = format!("heartline:{{{task}}}:completed");
        let works = async || ask::<u64>(port, &["ZCARD", &completed]).await > Some(10);
        eventually("each task has a worker", PATIENCE, works).await;
    }
    // No failover.
    six.cluster.nodes[at + 3].kill();
    let looked_at = async |what: &str| {
        let (begun, used) = (Instant::now(), processor_time(child.pid()));
        let mut maps = Vec::new();
        for port in &living {
            maps.push((*port, maps_told(*port).await));
        }
        tokio::time::sleep(WINDOW).await;
        let (took, used) = (begun.elapsed().as_secs_f64(), (processor_time(child.pid()) - used) as f64);
        for (port, before) in maps {
            let more = (maps_told(port).await - before) as f64 / took;
            println!("{what}: {more} maps a second at {port}");
            assert!(more <= 10.0, "{what}: {more} maps a second");
        }
        println!("{what}: {} hundredths of a processor", used / took);
        used / took
    };
    let under_load = looked_at("under load").await;
    six.cluster.nodes[at].freeze().unwrap();
    let frozen = looked_at("one is frozen").await;
    six.cluster.nodes[at].kill();
    let dead = looked_at("one is dead").await;
    // A loop without a wait uses a whole processor. The rest depends on the load of the machine.
    let most = (under_load.max(50.0) * 1.5).min(90.0);
    assert!(frozen.max(dead) < most, "{under_load} under load, then {frozen} and {dead}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pause_holds_on_live_nodes_and_is_shown_as_partial() {
    let six = Six::start().await;
    let app = App::builder().redis(six.cluster.url()).build().await.unwrap();
    let handler = |_: Context, input: u64| async move { Ok::<_, JobError>(input) };
    let task = app.task(TASKS[0], TaskOptions::new().partitions(3), handler).unwrap();
    task.dispatch_many(0..30).await.unwrap();
    let (at, first) = six.home_of(TASKS[0]).await;
    // A node that has another partition, and its replica, so that there is no failover.
    let away = (at + 1) % 3;
    let inspector = app.inspector().by("night");
    six.freeze_both(away);
    let refused = inspector.pause(TASKS[0], "maintenance").await.unwrap_err();
    assert!(matches!(refused, Error::Connect { .. }), "{refused}");
    // The calls that it received while frozen are not carried out.
    let keys = format!("heartline:{{{}}}:meta", TASKS[0]);
    six.thaw_both(away);
    let report = async || inspector.task(TASKS[0]).await;
    eventually("it is shown again", PATIENCE, async || report().await.is_ok()).await;
    assert!(report().await.unwrap().paused.is_some_and(|pause| pause.partitions >= 2), "the live partitions");
    // One partition is resumed.
    assert_eq!(ask::<u64>(first, &["HDEL", &keys, "paused"]).await, Some(1));
    let pause = report().await.unwrap().paused.unwrap();
    assert!(pause.partitions < 3 && pause.by == "night", "{pause:?}");
    inspector.pause(TASKS[0], "maintenance").await.unwrap();
    assert_eq!(report().await.unwrap().paused.unwrap().partitions, 3);
    inspector.resume(TASKS[0]).await.unwrap();
    assert!(report().await.unwrap().paused.is_none());
}

/// A task whose first partition is on another node than the lists, and that node.
async fn task_away_from_the_lists(six: &Six) -> (&'static str, usize) {
    let lists = [six.home_of("heartline:workers").await.0, six.home_of("heartline:tasks").await.0];
    for task in TASKS {
        let (at, _) = six.home_of(task).await;
        if !lists.contains(&at) {
            return (task, at);
        }
    }
    panic!("each task is on a node of a list");
}

/// Starts workers until the presence of one is on that node or, without `is_there`, on another.
async fn worker_with_presence(six: &Six, app: &App, at: usize, is_there: bool) -> heartline::RunningWorker {
    for _ in 0..50 {
        let worker = app.worker().spawn();
        if (six.home_of(&format!("heartline:worker:{}", worker.id())).await.0 == at) == is_there {
            return worker;
        }
        let _ = worker.stop().await.unwrap();
    }
    panic!("none of 50 ids fits");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pause_holds_for_live_partitions_even_without_the_first() {
    let six = Six::start().await;
    let (name, at) = task_away_from_the_lists(&six).await;
    let app = App::builder().redis(six.cluster.url()).build().await.unwrap();
    let handler = |_: Context, input: u64| async move { Ok::<_, JobError>(input) };
    let task = app.task(name, TaskOptions::new().partitions(3), handler).unwrap();
    let worker = worker_with_presence(&six, &app, at, false).await;
    task.dispatch(1).await.unwrap().result().await.unwrap();
    let inspector = app.inspector();
    let knows = async || inspector.workers().await.unwrap().iter().any(|worker| worker.tasks.len() == 1);
    eventually("its presence is written", PATIENCE, knows).await;
    // An App that does not know the number of partitions yet.
    let other = App::builder().redis(six.cluster.url()).build().await.unwrap();
    six.freeze_both(at);
    let refused = other.inspector().by("night").pause(name, "maintenance").await.unwrap_err();
    assert!(matches!(refused, Error::Connect { .. }), "{refused}");
    six.thaw_both(at);
    eventually("it is shown again", PATIENCE, async || inspector.task(name).await.is_ok()).await;
    let pause = inspector.task(name).await.unwrap().paused.expect("the live partitions are paused");
    assert!(pause.by == "night" && pause.partitions >= 2, "{pause:?}");
    let _ = worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_is_kept_if_a_worker_with_lost_presence_may_have_it() {
    let six = Six::start().await;
    let (first, at) = task_away_from_the_lists(&six).await;
    let app = App::builder().redis(six.cluster.url()).build().await.unwrap();
    let handler = |_: Context, input: u64| async move { Ok::<_, JobError>(input) };
    let mut elsewhere = first;
    for task in TASKS {
        if six.home_of(task).await.0 != at {
            elsewhere = task;
        }
    }
    app.task(elsewhere, TaskOptions::new(), handler).unwrap();
    let worker = worker_with_presence(&six, &app, at, true).await;
    let inspector = app.inspector();
    let knows = async || inspector.workers().await.unwrap().iter().any(|worker| worker.tasks.len() == 1);
    eventually("its presence is written", PATIENCE, knows).await;
    six.freeze_both(at);
    let outcome =
        eventually("it is known that the node is away", PATIENCE, async || inspector.forget_task(elsewhere).await.ok())
            .await;
    assert_eq!(outcome, heartline::ForgetOutcome::Worked(vec![worker.id().clone()]));
    six.thaw_both(at);
    let _ = worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_error_names_the_silent_node_next_to_calls_given_up() {
    let six = Six::start().await;
    let app = App::builder().redis(six.cluster.url()).build().await.unwrap();
    let ((at, gone), (_, elsewhere)) = (six.home_of(TASKS[0]).await, places(&six).await);
    let silent = app.task_ref::<u64, u64>(TASKS[0]).unwrap().handle("x").unwrap();
    let answers = app.task_ref::<u64, u64>(TASKS[elsewhere[0]]).unwrap().handle("x").unwrap();
    let _ = (silent.state().await, answers.state().await);
    let given_up = tokio::spawn(async move {
        loop {
            let _ = tokio::time::timeout(Duration::from_micros(200), answers.state()).await;
        }
    });
    six.freeze_both(at);
    // The second call has no connection to it any more.
    for _ in 0..2 {
        let error = silent.state().await.unwrap_err();
        let why = std::error::Error::source(&error).map_or_else(String::new, ToString::to_string);
        assert!(why.contains(&format!(":{gone}: no answer in time")), "{error}: {why}");
    }
    given_up.abort();
    six.thaw_both(at);
}
