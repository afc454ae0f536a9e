//! Crawls a site: the job of each page expands its node into a graph of the pages that it links to.
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

/// Reads a page. If it has links, the node expands into a graph, which is written together with the outcome of this job.
/// If the worker dies before that, nothing has changed; if it dies later, other workers run the graph.
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
    // The result of the node if it was not expanded.
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
