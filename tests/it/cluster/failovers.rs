//! Work continues without help after each kind of failover. Only writes that the servers themselves lost are lost.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use heartline::{App, Context, Error, JobError, TaskDef, TaskOptions};
use tokio::sync::Notify;

use crate::cluster::six::{Six, TASKS, ask};
use crate::support::blocked::Blocked;
use crate::support::load::Load;
use crate::support::worker::TestWorker;
use crate::support::{PATIENCE, eventually};

/// When work must continue after a failover, also on a busy machine. The benches measure how long it takes.
const RESUMES: Duration = Duration::from_secs(30);

/// Jobs of tasks on all nodes run.
async fn under_load(six: Six) -> (Six, Load) {
    let load = Load::start(&six.cluster.url(), &TASKS).await;
    load.goes_on(PATIENCE).await;
    (six, load)
}

async fn fails_over(six: &Six, before: u16) {
    six.another_than(before, TASKS[0]).await;
}

/// Only writes that had not reached the replica.
async fn little_is_lost(load: Load) {
    let lost = load.accounted().await;
    assert!(lost.over < Duration::from_secs(1), "{:?}", lost.over);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_continue_after_a_primary_is_killed() {
    is_killed(Six::start().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_continue_after_a_dead_primary_closed_the_whole_cluster() {
    is_killed(Six::with_full_coverage().await).await;
}

async fn is_killed(six: Six) {
    let (mut six, load) = under_load(six).await;
    let (at, before) = six.home_of(TASKS[0]).await;
    six.cluster.nodes[at].kill();
    fails_over(&six, before).await;
    load.goes_on(RESUMES).await;
    little_is_lost(load).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_on_every_node_continues_when_one_is_killed() {
    let mut six = Six::start().await;
    let load = Load::start_in(&six.cluster.url(), &TASKS[..1], 3).await;
    load.goes_on(PATIENCE).await;
    // One table on each node.
    for node in &six.cluster.nodes[..3] {
        let keys: Vec<String> = ask(node.port(), &["KEYS", "*:meta"]).await.unwrap();
        assert_eq!(keys.len(), 1, "{keys:?}");
    }
    let (at, before) = six.home_of(TASKS[0]).await;
    let app = App::builder().redis(six.cluster.url()).build().await.unwrap();
    let task = app.task_ref::<u64, u64>(TASKS[0]).unwrap();
    task.dispatch(1).id("beside-first").await.unwrap();
    six.cluster.nodes[at].kill();
    // Two thirds of the jobs are on the others, which continue meanwhile.
    let done = (0..30).map(|number| {
        let task = &task;
        async move {
            let job = task.dispatch(1).id(format!("beside-{number}")).await.ok()?;
            job.result_within(Duration::from_secs(2)).await.ok()
        }
    });
    let within = tokio::time::timeout(Duration::from_millis(1500), futures_util::future::join_all(done));
    let _ = within.await;
    let beside = load.runs().iter().filter(|run| run.id.starts_with("beside-")).count();
    assert!(beside >= 12, "{beside} ran");
    fails_over(&six, before).await;
    load.goes_on(RESUMES).await;
    little_is_lost(load).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replies_of_a_primary_after_its_failover_are_ignored() {
    is_frozen(Six::start().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn old_replies_are_ignored_if_the_freeze_closed_the_cluster() {
    is_frozen(Six::with_full_coverage().await).await;
}

async fn is_frozen(six: Six) {
    let (six, load) = under_load(six).await;
    let (at, before) = six.home_of(TASKS[0]).await;
    six.cluster.nodes[at].freeze().unwrap();
    fails_over(&six, before).await;
    load.goes_on(RESUMES).await;
    six.cluster.nodes[at].thaw().unwrap();
    load.goes_on(RESUMES).await;
    little_is_lost(load).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_follows_a_failover_while_handlers_block_its_runtime() {
    let mut six = Six::start().await;
    let blocked = Blocked::start(&six.cluster.url(), TASKS[0], Duration::from_secs(12)).await;
    let (at, before) = six.home_of(TASKS[0]).await;
    six.cluster.nodes[at].kill();
    six.another_than(before, TASKS[0]).await;
    blocked.end_after_their_only_run().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_in_order_loses_nothing() {
    let (six, load) = under_load(Six::start().await).await;
    let (at, before) = six.home_of(TASKS[0]).await;
    assert_eq!(ask::<String>(six.cluster.nodes[at + 3].port(), &["CLUSTER", "FAILOVER"]).await.as_deref(), Some("OK"));
    six.another_than(before, TASKS[0]).await;
    load.goes_on(RESUMES).await;
    assert_eq!(load.accounted().await.jobs, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_moves_to_another_node_key_by_key_under_load() {
    let (six, load) = under_load(Six::start().await).await;
    let (at, before) = six.home_of(TASKS[0]).await;
    let to = six.ports()[(at + 1) % 3];
    six.migrate(TASKS[0], before, to, || load.goes_on_without(TASKS[0], RESUMES)).await;
    load.goes_on(RESUMES).await;
    assert_eq!(load.accounted().await.jobs, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Valkey 9 or later: make check-engines runs it there"]
async fn a_slot_moves_to_another_node_as_a_whole_under_load() {
    let (six, load) = under_load(Six::start().await).await;
    let (at, before) = six.home_of(TASKS[0]).await;
    let to = six.ports()[(at + 1) % 3];
    for (from, to) in [(before, to), (to, before)] {
        six.migrate_whole(TASKS[0], from, to).await;
        load.goes_on(RESUMES).await;
    }
    assert_eq!(load.accounted().await.jobs, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_is_added_takes_over_slots_under_load() {
    let (mut six, load) = under_load(Six::start().await).await;
    let added = six.grow().await;
    load.goes_on(RESUMES).await;
    // One slot after the other, from each of the nodes that had slots.
    for task in [TASKS[0], TASKS[1], TASKS[2]] {
        let before = six.primary_of(task, six.cluster.nodes[0].port()).await.unwrap();
        six.migrate(task, before, added, || load.goes_on_without(task, RESUMES)).await;
        load.goes_on(RESUMES).await;
        assert_eq!(six.primary_of(task, six.cluster.nodes[0].port()).await, Some(added));
    }
    assert_eq!(load.accounted().await.jobs, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_job_written_to_a_deposed_primary_is_sent_again() {
    let six = Six::start().await;
    // How long a failover takes depends on the machine.
    let app = App::builder().redis(six.cluster.url()).dispatch_timeout(PATIENCE).build().await.unwrap();
    let task = app.task_ref::<String, u64>(TASKS[0]).unwrap();
    let large = || "x".repeat(600_000);
    task.dispatch(large()).id("before").await.unwrap();
    let (at, before) = six.home_of(TASKS[0]).await;
    let dispatching: Vec<_> = (0..12)
        .map(|number| {
            let (task, large) = (task.clone(), large());
            tokio::spawn(async move { task.dispatch(large).id(format!("large-{number}")).await.map(drop) })
        })
        .collect();
    six.cluster.nodes[at].freeze().unwrap();
    six.another_than(before, TASKS[0]).await;
    six.cluster.nodes[at].thaw().unwrap();
    for (number, dispatched) in dispatching.into_iter().enumerate() {
        dispatched.await.unwrap().unwrap();
        let job = task.handle(format!("large-{number}")).unwrap();
        let state = job.state().await;
        // Jobs acknowledged before the freeze may not have reached the replica.
        assert!(state.is_ok() || number < 2, "{number}: {state:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_job_finds_the_new_node_of_a_slot_that_had_none() {
    let six = Six::start().await;
    let timeout = Duration::from_secs(5);
    let app = App::builder().redis(six.cluster.url()).dispatch_timeout(timeout).build().await.unwrap();
    let task = app.task_ref::<String, u64>(TASKS[0]).unwrap();
    let (_, home) = six.home_of(TASKS[0]).await;
    // A large job has a connection of its own, so no other call reads the slot map meanwhile.
    let large = || task.dispatch("x".repeat(600_000));
    six.without_slot_of(TASKS[0], home).await;
    assert!(matches!(large().await.unwrap_err(), Error::Connect { .. }));
    six.with_slot_of(TASKS[0], home).await;
    large().await.unwrap();
}

/// Which of the first three nodes would have these ids as jobs of the task with three partitions.
async fn homes(six: &Six, ids: &[String]) -> BTreeMap<String, usize> {
    let app = App::builder().redis(six.cluster.url()).prefix("elsewhere").build().await.unwrap();
    let options = TaskOptions::new().partitions(3);
    let task = app.task_ref_for(&TaskDef::<u64, u64>::new(TASKS[0]).options(options)).unwrap();
    for id in ids {
        task.dispatch(1).id(id).await.unwrap();
    }
    let mut homes = BTreeMap::new();
    for (at, node) in six.cluster.nodes[..3].iter().enumerate() {
        for key in ask::<Vec<String>>(node.port(), &["KEYS", "elsewhere:*:payload"]).await.unwrap() {
            let ids: Vec<String> = ask(node.port(), &["HKEYS", &key]).await.unwrap();
            homes.extend(ids.into_iter().map(|id| (id, at)));
        }
    }
    homes
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_one_slot_partitions_run_while_another_node_is_away() {
    one_node_is_away(TaskOptions::new(), 1, Away::Frozen).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn partitions_run_with_prefetch_while_another_node_is_away() {
    one_node_is_away(TaskOptions::new().prefetch(6), 2, Away::Frozen).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn partitions_run_while_another_node_refuses_writes() {
    one_node_is_away(TaskOptions::new(), 1, Away::Refuses).await;
}

/// How a node fails.
#[derive(Clone, Copy, PartialEq)]
enum Away {
    Frozen,
    Refuses,
}

async fn one_node_is_away(options: TaskOptions, slots: usize, how: Away) {
    let mut six = Six::start().await;
    let ids: Vec<String> = (0..90).map(|number| format!("job-{number}")).collect();
    let homes = homes(&six, &ids).await;
    let (running, most, runs) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)), Arc::default());
    let app = App::builder().redis(six.cluster.url()).build().await.unwrap();
    let (counted, highest, noted) = (Arc::clone(&running), Arc::clone(&most), Arc::clone(&runs));
    let handler = move |ctx: Context, input: u64| {
        let (running, most) = (Arc::clone(&counted), Arc::clone(&highest));
        let runs: Arc<Mutex<Vec<String>>> = Arc::clone(&noted);
        async move {
            most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            runs.lock().unwrap().push(ctx.id().to_string());
            tokio::time::sleep(Duration::from_millis(5)).await;
            running.fetch_sub(1, Ordering::SeqCst);
            Ok::<_, JobError>(input)
        }
    };
    let task = app.task(TASKS[0], options.concurrency(slots).partitions(3), handler).unwrap();
    let worker = TestWorker::start(app.worker());
    worker.working().await;
    let dispatching: Vec<_> = ids[..45]
        .iter()
        .map(|id| {
            let (task, id) = (task.clone(), id.clone());
            tokio::spawn(async move { task.dispatch(1).id(id).await.is_ok() })
        })
        .collect();
    eventually("some have run", PATIENCE, async || runs.lock().unwrap().len() >= 5).await;
    let away = 0;
    let port = six.cluster.nodes[away].port();
    let refuses = async |replicas: &str| {
        ask::<String>(port, &["CONFIG", "SET", "min-replicas-to-write", replicas]).await.unwrap()
    };
    if how == Away::Refuses {
        refuses("5").await;
    } else {
        six.cluster.nodes[away + 3].kill();
        six.cluster.nodes[away].freeze().unwrap();
    }
    let others: Vec<&String> = ids[45..].iter().filter(|id| homes[*id] != away).collect();
    assert!(others.len() >= 10, "{}", others.len());
    for id in &others {
        task.dispatch(1).id(*id).await.unwrap();
    }
    let have_run = async || {
        let runs = runs.lock().unwrap();
        others.iter().all(|id| runs.contains(*id))
    };
    eventually("the other partitions continue", PATIENCE, have_run).await;
    if how == Away::Refuses {
        refuses("0").await;
    } else {
        six.cluster.nodes[away].thaw().unwrap();
    }
    let mut wanted: Vec<String> = others.into_iter().cloned().collect();
    for (id, dispatched) in ids.iter().zip(dispatching) {
        if dispatched.await.unwrap() {
            wanted.push(id.clone());
        }
    }
    let all = async || {
        let runs = runs.lock().unwrap();
        wanted.iter().all(|id| runs.contains(id))
    };
    eventually("all run", PATIENCE, all).await;
    let ended = async || (task.counts().await.is_ok_and(|counts| counts.pending_total() == 0)).then_some(());
    eventually("none is held", PATIENCE, ended).await;
    let mut told = runs.lock().unwrap().clone();
    told.sort();
    assert!(told.windows(2).all(|two| two[0] != two[1]), "{told:?}");
    assert!(most.load(Ordering::SeqCst) <= slots, "{most:?}");
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_outcome_is_recorded_after_a_slow_failover() {
    let mut six = Six::start().await;
    let app = App::builder().redis(six.cluster.url()).build().await.unwrap();
    let (gate, opened) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (waits, begins) = (Arc::clone(&gate), Arc::clone(&opened));
    let handler = move |_: Context, _: u64| {
        let (gate, begun) = (Arc::clone(&waits), Arc::clone(&begins));
        async move {
            begun.notify_one();
            gate.notified().await;
            Ok::<_, JobError>("x".repeat(700_000))
        }
    };
    let task = app.task(TASKS[0], TaskOptions::new(), handler).unwrap();
    let worker = TestWorker::start(app.worker());
    let job = task.dispatch(1).await.unwrap();
    opened.notified().await;
    let (at, _) = six.home_of(TASKS[0]).await;
    six.cluster.nodes[at + 3].freeze().unwrap();
    six.cluster.nodes[at].kill();
    gate.notify_one();
    // Longer than the limit for a server that closes the connection during a value again and again.
    tokio::time::sleep(Duration::from_secs(7)).await;
    six.cluster.nodes[at + 3].thaw().unwrap();
    let value = tokio::time::timeout(PATIENCE * 2, job.result()).await.unwrap().unwrap();
    assert_eq!(value.len(), 700_000);
    worker.stop().await;
}
