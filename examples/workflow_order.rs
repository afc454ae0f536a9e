//! Undoes the steps of an order if a later step fails, with a node that always runs.
//!
//! Run it with `cargo run -p heartline-examples --example workflow_order`. It uses the Redis of `REDIS_URL`, or a private server.

use heartline::{App, Context, Error, Graph, JobError, NodeName, TaskDef, WorkflowOptions};
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Order {
    number: u32,
    cents: u64,
}

const RESERVE: TaskDef<Order, String> = TaskDef::new("reserve");
const CHARGE: TaskDef<Order, String> = TaskDef::new("charge");
const SHIP: TaskDef<u32, String> = TaskDef::new("ship");
const UNDO: TaskDef<(), Vec<String>> = TaskDef::new("undo");

/// The names of the nodes, with the types of their results. The graph and the handlers share them.
const RESERVED: NodeName<String> = NodeName::new("reserve");
const CHARGED: NodeName<String> = NodeName::new("charge");
const SHIPPED: NodeName<String> = NodeName::new("ship");

fn order(order: Order) -> Graph<String> {
    let graph = Graph::new();
    let reserved = graph.node(RESERVED, &RESERVE, order.clone());
    let charged = graph.node(CHARGED, &CHARGE, order.clone()).after(&reserved);
    let shipped = graph.node(SHIPPED, &SHIP, order.number).after(&charged);
    // Runs after the other nodes have ended, with any outcome.
    graph.node("undo", &UNDO, ()).after(&[reserved, charged, shipped.clone()]).always();
    graph.output(&shipped)
}

async fn reserve(_: Context, order: Order) -> Result<String, JobError> {
    println!("reserve for order {}", order.number);
    Ok(format!("shelf-{}", order.number))
}

async fn charge(_: Context, order: Order) -> Result<String, JobError> {
    if order.cents > 10_000 {
        return Err(JobError::new("the card was declined").with_code("declined").fatal());
    }
    println!("charge {} cents for order {}", order.cents, order.number);
    Ok(format!("receipt-{}", order.number))
}

async fn ship(ctx: Context, number: u32) -> Result<String, JobError> {
    let receipt = ctx.upstream(CHARGED).await?;
    println!("ship order {number} with {receipt}");
    Ok(format!("parcel-{number}"))
}

/// Undoes the completed steps if the order was not shipped.
async fn undo(ctx: Context, (): ()) -> Result<Vec<String>, JobError> {
    let has = async |node| ctx.upstream::<String>(node).await.ok();
    if has("ship").await.is_some() {
        return Ok(Vec::new());
    }
    let done = [has("charge").await, has("reserve").await];
    let undone: Vec<String> = done.into_iter().flatten().collect();
    println!("undo {}", undone.join(", "));
    Ok(undone)
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let (_server, url) = heartline::testing::redis_url().await?;
    let app = App::builder().redis(url).prefix(format!("order-{}", uuid::Uuid::now_v7())).build().await?;
    app.register(RESERVE.handler(reserve))?;
    app.register(CHARGE.handler(charge))?;
    app.register(SHIP.handler(ship))?;
    app.register(UNDO.handler(undo))?;
    let worker = app.worker().spawn();

    let orders = app.workflow("orders", WorkflowOptions::new())?;
    let cheap = orders.start(order(Order { number: 1, cents: 4_200 })).id("order-1").await?;
    assert_eq!(cheap.result().await?, "parcel-1");
    let dear = orders.start(order(Order { number: 2, cents: 99_000 })).id("order-2").await?;
    match dear.result().await {
        Err(Error::WorkflowFailed { node, failure, .. }) => {
            println!("order 2 failed at {node}: {} ({})", failure.message, failure.code);
            assert_eq!((node.as_str(), failure.code.as_str()), ("charge", "declined"));
        }
        other => anyhow::bail!("{other:?}"),
    }
    // The result of the last node lists what it has undone.
    let undone = app.task_ref_for(&UNDO)?.handle("~orders/order-2/3/1")?.result().await?;
    assert_eq!(undone, ["shelf-2"]);
    println!("the worker stopped: {}", worker.stop().await?);
    Ok(())
}
