//! Workflows whose own keys and tasks are on different nodes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use heartline::{App, Context, Graph, JobError, Node, StallOptions, TaskDef, TaskOptions, WorkflowOptions};
use tokio::sync::Notify;

use crate::cluster::six::{Six, TASKS, ask};
use crate::support::worker::TestWorker;
use crate::support::{PATIENCE, eventually};

/// A job of one of the tasks, which are on all nodes.
fn node(graph: &Graph<()>, name: String, task: usize, input: u64) -> Node<u64> {
    const DEFS: [TaskDef<u64, u64>; 5] = [
        TaskDef::new(TASKS[0]),
        TaskDef::new(TASKS[1]),
        TaskDef::new(TASKS[2]),
        TaskDef::new(TASKS[3]),
        TaskDef::new(TASKS[4]),
    ];
    graph.node(name, &DEFS[task % TASKS.len()], input)
}

/// Returns the sum of its inputs and its payload.
async fn sum(ctx: Context, input: u64) -> Result<u64, JobError> {
    let inputs = ctx.upstreams::<u64>().await?;
    Ok(input + inputs.into_iter().filter_map(|(_, value)| value.ok()).sum::<u64>())
}

async fn app(url: &str) -> App {
    let app = App::builder().redis(url).build().await.unwrap();
    let stall = StallOptions::new().interval(Duration::from_secs(3)).max_count(100);
    for task in TASKS {
        app.task(task, TaskOptions::new().concurrency(8).stall(stall.clone()), sum).unwrap();
    }
    app
}

fn graph(at: u64) -> Graph<u64> {
    let graph = Graph::new();
    let first = node(&graph, "first".to_owned(), at as usize, at);
    let parts: Vec<Node<u64>> = (0..10).map(|n| node(&graph, format!("part-{n}"), n, 1).after(&first)).collect();
    let sum = node(&graph, "sum".to_owned(), 1, 0).after(&parts);
    graph.output(&sum)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workflows_run_across_nodes_and_survive_a_frozen_primary() {
    let six = Six::start().await;
    let app = app(&six.cluster.url()).await;
    let worker = TestWorker::start(app.worker());
    worker.working().await;
    let flow = app.workflow::<u64>("flow", WorkflowOptions::new()).unwrap();
    let handle = flow.start(graph(7)).await.unwrap();
    assert_eq!(tokio::time::timeout(PATIENCE, handle.result()).await.unwrap().unwrap(), 80);
    // Two of the three are frozen for less than it takes until others take their places.
    for stopped in [0, 1] {
        let mut handles = Vec::new();
        for at in 0..10 {
            handles.push(flow.start(graph(at)).id(format!("{stopped}-{at}")).await.unwrap());
        }
        six.cluster.nodes[stopped].freeze().unwrap();
        tokio::time::sleep(Duration::from_millis(600)).await;
        six.cluster.nodes[stopped].thaw().unwrap();
        for (at, handle) in (0..).zip(handles) {
            let answer = tokio::time::timeout(PATIENCE * 4, handle.result()).await.expect("it hangs");
            assert_eq!(answer.unwrap(), 10 * (at + 1), "{stopped}-{at}");
        }
    }
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_reads_its_inputs_over_a_long_failover() {
    const READS: TaskDef<u64, u64> = TaskDef::new("reads");
    let six = Six::start().await;
    let app = App::builder().redis(six.cluster.url()).dispatch_timeout(Duration::from_secs(1)).build().await.unwrap();
    let (begun, go) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (begins, goes) = (Arc::clone(&begun), Arc::clone(&go));
    let handler = move |ctx: Context, input: u64| {
        let (begins, goes) = (Arc::clone(&begins), Arc::clone(&goes));
        async move {
            if input > 0 {
                begins.notify_one();
                goes.notified().await;
            }
            sum(ctx, input).await.map(|sum| sum + 3)
        }
    };
    app.register(READS.handler(handler)).unwrap();
    let ports = six.ports();
    let primary = async |name: &str| six.primary_of(name, ports[0]).await.unwrap();
    let (of_jobs, lists) = (primary("reads").await, primary("heartline:workflows").await);
    let mut names = (0..).map(|at| format!("flow-{at}"));
    let (name, place) = loop {
        let name = names.next().unwrap();
        let place = primary(&format!("{name}:flow")).await;
        if place != of_jobs && place != lists {
            break (name, place);
        }
    };
    let flow = app.workflow::<u64>(&name, WorkflowOptions::new()).unwrap();
    let worker = TestWorker::start(app.worker());
    let graph = Graph::new();
    let first = graph.node("first", &READS, 0);
    let second = graph.node("second", &READS, 1).after(&first);
    let handle = flow.start(graph.output(&second)).await.unwrap();
    tokio::time::timeout(PATIENCE, begun.notified()).await.expect("it does not begin");
    let at = ports.iter().position(|port| *port == place).unwrap();
    six.cluster.nodes[at].freeze().unwrap();
    go.notify_one();
    // The replica is promoted after two seconds at the earliest.
    let has_ended = async || handle.status().await.is_ok_and(|status| status.state.is_ended());
    eventually("it has ended", PATIENCE * 2, has_ended).await;
    assert_eq!(handle.result().await.unwrap(), 7);
    six.cluster.nodes[at].thaw().unwrap();
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_of_a_task_that_is_away_block_no_others() {
    let six = Six::start().await;
    let app = app(&six.cluster.url()).await;
    let ports = six.ports();
    // A start writes to the list of workflows, so the node of that list stays.
    let list = six.primary_of("heartline:workflows", ports[0]).await;
    let mut primaries = Vec::new();
    for task in TASKS {
        primaries.push(six.primary_of(task, ports[0]).await);
    }
    let away = primaries.iter().position(|primary| *primary != list).unwrap();
    let gone = primaries[away].unwrap();
    let at = ports.iter().position(|port| *port == gone).unwrap();
    let elsewhere: Vec<usize> = (0..TASKS.len()).filter(|task| primaries[*task] != Some(gone)).collect();
    let mut names = (0..).map(|at| format!("flow-{at}"));
    let name = loop {
        let name = names.next().unwrap();
        if six.primary_of(&format!("{name}:flow"), ports[0]).await != Some(gone) {
            break name;
        }
    };
    let flow = app.workflow::<u64>(&name, WorkflowOptions::new()).unwrap();
    let line = |tasks: &[usize]| {
        let graph = Graph::new();
        let mut last = node(&graph, "0".to_owned(), tasks[0], 1);
        for (at, task) in tasks.iter().enumerate().skip(1) {
            last = node(&graph, at.to_string(), *task, 1).after(&last);
        }
        graph.output(&last)
    };
    let worker = TestWorker::start(app.worker());
    worker.working().await;
    // All processes have read the numbers of partitions.
    assert_eq!(flow.start(line(&[0, 1, 2, 3, 4])).await.unwrap().result().await.unwrap(), 5);
    six.freeze_both(at);
    // Their next nodes cannot be sent.
    let mut stand = Vec::new();
    for _ in 0..5 {
        stand.push(flow.start(line(&[elsewhere[0], away])).await.unwrap());
    }
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(8) {
        let goes_on = flow.start(line(&[elsewhere[0], elsewhere[1], elsewhere[0], elsewhere[1]])).await.unwrap();
        let answer = tokio::time::timeout(Duration::from_secs(5), goes_on.result()).await;
        assert_eq!(answer.expect("it waits for the node that is away").unwrap(), 4);
    }
    six.thaw_both(at);
    for handle in stand {
        assert_eq!(tokio::time::timeout(PATIENCE * 3, handle.result()).await.expect("it hangs").unwrap(), 2);
    }
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_node_keeps_no_worker_from_workflows_elsewhere() {
    let six = Six::start().await;
    let app = app(&six.cluster.url()).await;
    let ports = six.ports();
    let primary = async |name: &str| six.primary_of(name, ports[0]).await.unwrap();
    let list = primary("heartline:workflows").await;
    let mut places = Vec::new();
    for task in TASKS {
        places.push(primary(task).await);
    }
    let silent = places.iter().position(|port| *port != list).unwrap();
    let live = places.iter().position(|port| *port != places[silent]).unwrap();
    let mut names = Vec::new();
    for at in 0.. {
        let name = format!("flow-{at}");
        if primary(&format!("{name}:flow")).await != places[silent] {
            names.push(name);
        }
        if names.len() == 2 {
            break;
        }
    }
    let waits = |task: usize| {
        let graph = Graph::new();
        let waits = node(&graph, "waits".to_owned(), task, 1).delay(Duration::from_secs(3600));
        graph.output(&waits)
    };
    let (stuck, other) = (&names[0], &names[1]);
    let stuck = app.workflow::<u64>(stuck, WorkflowOptions::new()).unwrap();
    let other = app.workflow::<u64>(other, WorkflowOptions::new()).unwrap();
    let mut stand = Vec::new();
    for _ in 0..60 {
        stand.push(stuck.start(waits(silent)).deadline(Duration::from_secs(5)).await.unwrap());
    }
    let worker = TestWorker::start(app.worker());
    worker.working().await;
    // The first job of a workflow reads the wire versions of all workers, and one of them may be on the silent node
    // later.
    other.start(waits(live)).deadline(Duration::from_secs(1)).await.unwrap().result().await.unwrap_err();
    let at = ports.iter().position(|port| *port == places[silent]).unwrap();
    six.freeze_both(at);
    // Each instance that is stopped meanwhile cancels its job, without an answer.
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(45) {
        let stopped = other.start(waits(live)).deadline(Duration::from_secs(1)).await.unwrap();
        let ended = tokio::time::timeout(PATIENCE, stopped.result()).await;
        ended.expect("its deadline has no effect").unwrap_err();
    }
    six.thaw_both(at);
    for handle in stand {
        tokio::time::timeout(PATIENCE * 3, handle.result()).await.expect("it hangs").unwrap_err();
    }
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_partition_that_is_away_does_not_block_other_cancels() {
    const SPLIT: TaskDef<u64, u64> = TaskDef::new("split");
    let six = Six::start().await;
    let app = App::builder().redis(six.cluster.url()).build().await.unwrap();
    app.task("split", TaskOptions::new().partitions(3), sum).unwrap();
    let ports = six.ports();
    let primary = async |name: &str| six.primary_of(name, ports[0]).await.unwrap();
    // Each of the three partitions is on its own primary. The first is asked first.
    let gone = primary("split").await;
    let at = ports.iter().position(|port| *port == gone).unwrap();
    let mut names = (0..).map(|at| format!("flow-{at}"));
    let name = loop {
        let name = names.next().unwrap();
        if primary(&format!("{name}:flow")).await != gone {
            break name;
        }
    };
    let flow = app.workflow::<()>(&name, WorkflowOptions::new()).unwrap();
    let worker = TestWorker::start(app.worker());
    worker.working().await;
    let graph = Graph::new();
    for at in 0..30 {
        graph.node(format!("waits-{at}"), &SPLIT, at).delay(Duration::from_secs(3600));
    }
    let handle = flow.start(graph).await.unwrap();
    let delayed = eventually("all are sent", PATIENCE, async || {
        let mut delayed = Vec::new();
        for port in &ports[..3] {
            let keys: Vec<String> = ask(*port, &["KEYS", "heartline:{split*}:delayed"]).await?;
            delayed.push(ask::<u64>(*port, &["ZCARD", keys.first()?]).await?);
        }
        (delayed.iter().sum::<u64>() == 30).then_some(delayed)
    })
    .await;
    let there = delayed[at];
    six.freeze_both(at);
    let _ = handle.cancel("not wanted").await;
    eventually("all others are cancelled", PATIENCE, async || {
        let open = handle.status().await.unwrap().open;
        assert!(open >= there, "{open} of {there}");
        (open == there).then_some(())
    })
    .await;
    six.thaw_both(at);
    tokio::time::timeout(PATIENCE * 3, handle.result()).await.expect("it hangs").unwrap_err();
    worker.stop().await;
}

/// Waits until the replica of this primary has all its writes.
async fn is_followed(six: &Six, at: usize) {
    let offset = async |server: usize, field: &str| {
        let info: String = ask(six.ports()[server], &["INFO", "replication"]).await?;
        info.lines().find_map(|line| line.strip_prefix(field)?.trim().parse::<u64>().ok())
    };
    eventually("the replica has all writes", PATIENCE, async || {
        let (primary, replica) = (offset(at, "master_repl_offset:").await, offset(at + 3, "slave_repl_offset:").await);
        primary.is_some() && replica >= primary
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_workflow_ends_once_when_its_primary_dies() {
    let mut six = Six::start().await;
    let app = app(&six.cluster.url()).await;
    let flow = app.workflow::<u64>("flow", WorkflowOptions::new()).unwrap();
    let mut handles = Vec::new();
    for at in 0..40 {
        handles.push(flow.start(graph(at)).id(at.to_string()).await.unwrap());
    }
    let (at, primary) = six.home_of("flow:flow").await;
    is_followed(&six, at).await;
    let worker = TestWorker::start(app.worker());
    worker.working().await;
    eventually("some have ended, and others not", PATIENCE, async || {
        handles[0].status().await.is_ok_and(|status| status.unfinished == 0)
    })
    .await;
    six.cluster.nodes[at].kill();
    six.another_than(primary, "flow:flow").await;
    // An audit finds writes that the new primary lacks. Workers run one each minute, and any process can ask for one.
    for (at, handle) in (0..).zip(&handles) {
        eventually("it ends", PATIENCE * 4, async || {
            let _ = app.recover_stuck_workflows().await;
            handle.status().await.is_ok_and(|status| status.unfinished == 0)
        })
        .await;
        assert_eq!(handle.result().await.unwrap(), 10 * (at + 1), "{at}");
    }
    let flows = app.inspector().workflows().await.unwrap();
    assert!(flows.iter().all(|flow| flow.running == 0 && flow.steps == 0 && flow.failed == 0), "{flows:?}");
    worker.stop().await;
}
