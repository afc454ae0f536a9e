//! A crawl: each page that is read lets its node go on as a graph of the pages that it links to.
//!
//! Run it with `cargo run -p heartline-examples --example workflow_crawl`. It uses the Redis of `REDIS_URL`, or a private server.

use std::collections::BTreeSet;

use heartline::{App, Context, Graph, JobError, Node, TaskDef, TaskOptions, WorkflowOptions};

const CRAWL: TaskDef<String, BTreeSet<String>> = TaskDef::new("crawl");
const MERGE: TaskDef<String, BTreeSet<String>> = TaskDef::new("merge");

/// The pages of a small site, and what each links to.
fn links(page: &str) -> &'static [&'static str] {
    match page {
        "/" => &["/docs", "/blog"],
        "/docs" => &["/docs/start", "/docs/workflows"],
        "/blog" => &["/blog/crashes"],
        "/docs/workflows" => &["/docs/workflows/grow"],
        _ => &[],
    }
}

/// Reads a page. Where it has links the node goes on as a graph, which is written with the end of this job: a worker that dies before has
/// grown nothing, and one that dies behind it leaves a graph that others start.
async fn crawl(ctx: Context, page: String) -> Result<BTreeSet<String>, JobError> {
    println!("{page}");
    let links = links(&page);
    if !links.is_empty() {
        let graph = Graph::new();
        let next = |(at, link): (usize, &&str)| graph.node(format!("link-{at}"), &CRAWL, (*link).to_owned());
        let found: Vec<Node<BTreeSet<String>>> = links.iter().enumerate().map(next).collect();
        let merged = graph.node("merge", &MERGE, page.clone()).after(&found);
        ctx.expand(graph.output(&merged))?;
    }
    // What the node answers where it has not grown.
    Ok(BTreeSet::from([page]))
}

async fn merge(ctx: Context, page: String) -> Result<BTreeSet<String>, JobError> {
    let mut all = BTreeSet::from([page]);
    for (_, found) in ctx.upstreams::<BTreeSet<String>>().await? {
        all.extend(found?);
    }
    Ok(all)
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let (_server, url) = heartline::testing::redis_url().await?;
    let app = App::builder().redis(url).prefix(format!("crawl-{}", uuid::Uuid::now_v7())).build().await?;
    app.register(CRAWL.options(TaskOptions::new().concurrency(4)).handler(crawl))?;
    app.register(MERGE.handler(merge))?;
    let worker = app.worker().spawn();

    let crawls = app.workflow("crawls", WorkflowOptions::new())?;
    let graph = Graph::new();
    let root = graph.node("root", &CRAWL, "/".to_owned());
    let found = crawls.start(graph.output(&root)).await?.result().await?;
    println!("{} pages", found.len());
    assert_eq!(found.len(), 7);
    println!("the worker stopped: {}", worker.stop().await?);
    Ok(())
}
