//! Runs a graph of jobs with a fan-out, a quorum, and a node that always cleans up.
//!
//! Run it with `cargo run -p heartline-examples --example workflow`. It uses the Redis of `REDIS_URL`, or a private server.

use heartline::{App, Context, Graph, JobError, Node, TaskDef, TaskOptions, WorkflowOptions};

const FETCH: TaskDef<String, String> = TaskDef::new("fetch");
const RESIZE: TaskDef<u32, String> = TaskDef::new("resize");
const PUBLISH: TaskDef<(), Vec<String>> = TaskDef::new("publish");
const CLEAN: TaskDef<(), ()> = TaskDef::new("clean");

fn thumbnails(picture: &str) -> Graph<Vec<String>> {
    let graph = Graph::new();
    let fetch = graph.node("fetch", &FETCH, picture.to_owned());
    let sizes: Vec<Node<String>> =
        [64, 256, 1024, 0].map(|px| graph.node(format!("resize-{px}"), &RESIZE, px).after(&fetch).optional()).into();
    // One of the four sizes fails; three are enough.
    let publish = graph.node("publish", &PUBLISH, ()).after(&sizes).at_least(3);
    graph.node("clean", &CLEAN, ()).after(&sizes).always();
    graph.output(&publish)
}

async fn fetch(_: Context, picture: String) -> Result<String, JobError> {
    println!("fetch {picture}");
    Ok(picture)
}

async fn resize(ctx: Context, px: u32) -> Result<String, JobError> {
    let picture: String = ctx.upstream("fetch").await?;
    if px == 0 {
        return Err(JobError::new("no picture is that small").fatal());
    }
    println!("resize {picture} to {px}");
    Ok(format!("{px}-{picture}"))
}

async fn publish(ctx: Context, _: ()) -> Result<Vec<String>, JobError> {
    let sizes = ctx.upstreams::<String>().await?;
    Ok(sizes.into_iter().filter_map(|(_, path)| path.ok()).collect())
}

async fn clean(_: Context, _: ()) -> Result<(), JobError> {
    println!("clean up");
    Ok(())
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let (_server, url) = heartline::testing::redis_url().await?;
    let app = App::builder().redis(url).prefix(format!("workflow-{}", uuid::Uuid::now_v7())).build().await?;
    app.register(FETCH.handler(fetch))?;
    app.register(RESIZE.options(TaskOptions::new().concurrency(4)).handler(resize))?;
    app.register(PUBLISH.handler(publish))?;
    app.register(CLEAN.handler(clean))?;
    let worker = app.worker().spawn();

    let flows = app.workflow("thumbnails", WorkflowOptions::new())?;
    let instance = flows.start(thumbnails("cat.png")).id("cat").await?;
    let mut published = instance.result().await?;
    published.sort();
    println!("published {}", published.join(", "));
    assert_eq!(published, ["1024-cat.png", "256-cat.png", "64-cat.png"]);
    println!("the worker stopped: {}", worker.stop().await?);
    Ok(())
}
