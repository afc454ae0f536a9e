//! Headers of an instance, as the jobs of its nodes see them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use heartline::{Context, Error, Graph, JobError, JobValues, Node, Workflow, WorkflowOptions};

use crate::support::puppet::Puppet;
use crate::support::worker::TestWorker;
use crate::support::{PATIENCE, Warnings, eventually};
use crate::workflows::world::{WORK, World, node, options};

/// The tenant that each run saw, by the id of its job and how often it had stalled.
type Seen = Arc<Mutex<BTreeMap<String, Option<String>>>>;

fn look(ctx: &Context, seen: &Seen) {
    let tenant = ctx.header("tenant").map(str::to_owned);
    seen.lock().unwrap().insert(format!("{} {}", ctx.id(), ctx.stalled_count()), tenant);
}

/// A worker whose handlers record what they see. `grow` returns a graph, `again` fails in the first run of its instance.
async fn worker(world: &World, seen: &Seen) -> TestWorker {
    let (app, seen) = (world.app().await, Arc::clone(seen));
    let handler = move |ctx: Context, what: String| {
        look(&ctx, &seen);
        async move {
            match &*what {
                "grow" => {
                    let graph = Graph::new();
                    let leaf = node(&graph, "leaf", "leaf");
                    ctx.expand(graph.output(&leaf))?;
                }
                "again" if ctx.id().as_str().ends_with("/1") => return Err(JobError::new("no luck")),
                _ => {}
            }
            Ok::<_, JobError>(7)
        }
    };
    app.task(WORK, options(), handler).unwrap();
    let worker = TestWorker::start(app.worker());
    worker.working().await;
    worker
}

/// A node of each kind, and one that fails in the first run.
fn each_kind() -> Graph<u64> {
    let graph = Graph::new();
    let inner = Graph::new();
    let leaf = node(&inner, "leaf", "leaf");
    node(&inner, "grow", "grow");
    let nodes: [Node<u64>; 2] = [graph.subgraph("child", inner.output(&leaf)), node(&graph, "grow", "grow")];
    let last = node(&graph, "last", "again").after(&nodes);
    graph.output(&last)
}

async fn started() -> (World, Workflow<u64>, Seen, TestWorker) {
    let world = World::new();
    let (flow, _) = world.producer(WorkflowOptions::new()).await;
    let seen = Seen::default();
    let worker = worker(&world, &seen).await;
    (world, flow, seen, worker)
}

#[tokio::test]
async fn nodes_subgraphs_returned_graphs_and_new_runs_see_the_headers() {
    let (world, flow, seen, worker) = started().await;
    // Instances with the same graph.
    let tenants = [("one", Some("acme")), ("two", Some("Ünicode \"\n")), ("none", None)];
    let mut handles = Vec::new();
    for (id, tenant) in tenants {
        let start = flow.start(each_kind()).id(id).header("tenant", "replaced");
        let start = match tenant {
            Some(tenant) => start.header("other", "x").header("tenant", tenant),
            None => flow.start(each_kind()).id(id),
        };
        handles.push(start.await.unwrap());
    }
    for handle in &handles {
        assert!(matches!(handle.result().await, Err(Error::WorkflowFailed { .. })));
        handle.retry_failed().await.unwrap();
        assert_eq!(handle.result().await.unwrap(), 7);
    }
    let mut expected = BTreeMap::new();
    for (id, tenant) in tenants {
        for job in ["/0.1/0/1", "/0.1/1/1", "/0.1/1.1/0/1", "/1/1", "/1.1/0/1", "/2/1", "/2/2"] {
            expected.insert(format!("~flow/{id}{job} 0"), tenant.map(str::to_owned));
        }
    }
    eventually("all nodes have run", PATIENCE, async || seen.lock().unwrap().len() == expected.len()).await;
    assert_eq!(*seen.lock().unwrap(), expected);
    worker.stop().await;
    // Tools show them with the job.
    let inspector = world.app().await.inspector();
    let job = async |id: &str| inspector.job(WORK, id, JobValues::None).await.unwrap().unwrap().options.headers;
    assert_eq!(job("~flow/one/1.1/0/1").await, [("other", "x"), ("tenant", "acme")].map(owned).into());
    assert_eq!(job("~flow/none/2/1").await, BTreeMap::new());
}

fn owned((name, value): (&str, &str)) -> (String, String) {
    (name.to_owned(), value.to_owned())
}

#[tokio::test]
async fn a_graph_that_is_written_in_parts_has_headers_too() {
    let (_world, flow, seen, worker) = started().await;
    let graph = Graph::new();
    let large = || "x".repeat(300 * 1024);
    let nodes = [node(&graph, "one", &large()), node(&graph, "two", &large())];
    let handle = flow.start(graph.output(&nodes[0])).id("large").header("tenant", "acme").await.unwrap();
    handle.result().await.unwrap();
    eventually("both nodes have run", PATIENCE, async || seen.lock().unwrap().len() == 2).await;
    assert!(seen.lock().unwrap().values().all(|tenant| tenant.as_deref() == Some("acme")));
    worker.stop().await;
}

#[tokio::test]
async fn the_next_run_after_a_death_sees_the_headers() {
    let world = World::new();
    let (flow, _) = world.producer(WorkflowOptions::new()).await;
    let graph = Graph::new();
    let only = node(&graph, "only", "leaf");
    let handle = flow.start(graph.output(&only)).id("one").header("tenant", "acme").await.unwrap();
    let mut dead = Puppet::over(&world.redis, format!("{}:{{{WORK}}}:", world.prefix)).await;
    dead.claim_all(&["~flow/one/0/1"]).await;
    let seen = Seen::default();
    let worker = worker(&world, &seen).await;
    assert_eq!(handle.result().await.unwrap(), 7);
    let status = handle.status().await.unwrap();
    assert_eq!((status.result, status.failure.as_ref(), &*status.headers["tenant"]), (Some(7), None, "acme"));
    handle.clone().require_header("tenant", "acme").await.unwrap();
    for (name, value) in [("tenant", "globex"), ("customer", "acme")] {
        let refused = handle.clone().require_header(name, value).await;
        assert!(matches!(refused, Err(Error::WorkflowNotFound { .. })), "{name}");
    }
    let json = serde_json::to_string(&status).unwrap();
    assert!(json.contains("\"result\":7") && !json.contains("acme"), "{json}");
    assert_eq!(*seen.lock().unwrap(), [("~flow/one/0/1 1".to_owned(), Some("acme".to_owned()))].into());
    worker.stop().await;
}

#[tokio::test]
async fn headers_over_4_kib_are_refused_as_those_of_a_dispatch() {
    let (world, flow, tasks) = World::with_flow().await;
    let too_large = "v".repeat(4096);
    let refused = flow.start(each_kind()).id("one").header("k", &*too_large).await.unwrap_err();
    let of_dispatch = tasks.dispatch("leaf".to_owned()).header("k", &*too_large).await.unwrap_err();
    assert!(matches!(&refused, Error::Config(faults) if faults.len() == 1));
    assert_eq!(refused.to_string(), of_dispatch.to_string());
    assert!(matches!(flow.handle("one").unwrap().status().await, Err(Error::WorkflowNotFound { .. })));
    let fits = flow.start(each_kind()).id("one").header("k", &too_large[1..]);
    assert_eq!((fits.headers_left(), fits.workflow()), (0, "flow"));
    fits.await.unwrap();
    let headers = world.redis.dump(&world.prefix).await.remove(&world.flow_key("headers")).unwrap();
    assert!(headers.contains(&too_large[1..]));
}

#[tokio::test]
async fn unreadable_headers_stop_no_node() {
    let world = World::new();
    let (flow, _) = world.producer(WorkflowOptions::new()).await;
    let graph = Graph::new();
    let only = node(&graph, "only", "leaf");
    let handle = flow.start(graph.output(&only)).id("one").header("tenant", "acme").await.unwrap();
    let (key, mut conn) = (world.flow_key("headers"), world.redis.conn().await);
    let () = redis::cmd("HSET").arg(key).arg("one").arg("{\"tenant\":").query_async(&mut conn).await.unwrap();
    let (seen, warnings) = (Seen::default(), Warnings::capture());
    let worker = worker(&world, &seen).await;
    assert_eq!(handle.result().await.unwrap(), 7);
    assert_eq!(seen.lock().unwrap().get("~flow/one/0/1 0"), Some(&None));
    warnings.wait_for(&["WARN", "the headers of an instance cannot be read"], PATIENCE).await;
    worker.stop().await;
}
