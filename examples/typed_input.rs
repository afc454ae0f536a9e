//! Gives a task an input type and a result type. The compiler checks them at the dispatch, and serde in the worker.
//!
//! Run it with `cargo run -p heartline-examples --example typed_input`. It uses the Redis of `REDIS_URL`, or a private server.

use std::time::Duration;

use heartline::{App, Context, Error, JobError, TaskOptions, codes};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Order {
    customer: String,
    items: Vec<Item>,
}

#[derive(Serialize, Deserialize)]
struct Item {
    name: String,
    cents: u64,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Invoice {
    customer: String,
    total_cents: u64,
}

/// A handler can be a function as well as a closure.
async fn bill(_ctx: Context, order: Order) -> Result<Invoice, JobError> {
    if order.items.is_empty() {
        return Err(JobError::new("there is nothing to pay").with_code("empty_order"));
    }
    let total_cents = order.items.iter().map(|item| item.cents).sum();
    Ok(Invoice { customer: order.customer, total_cents })
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let (_server, url) = heartline::testing::redis_url().await?;
    let app = App::builder().redis(url).prefix(format!("typed-input-{}", uuid::Uuid::now_v7())).build().await?;
    // By default, a job with an undecodable input is tried again for a day, as newer workers may still be deployed.
    let bills = app.task("bill", TaskOptions::new().undecodable_for(Duration::ZERO), bill)?;
    let worker = app.worker().spawn();

    // Dispatches several jobs at once. The handles are in the order of the inputs.
    let item = |name: &str, cents| Item { name: name.to_owned(), cents };
    let orders = [
        Order { customer: "Ada".to_owned(), items: vec![item("tea", 450), item("cake", 380)] },
        Order { customer: "Bob".to_owned(), items: Vec::new() },
    ];
    let handles = bills.dispatch_many(orders).await?;

    let invoice: Invoice = handles[0].result().await?;
    println!("{} pays {} cents", invoice.customer, invoice.total_cents);
    assert_eq!(invoice, Invoice { customer: "Ada".to_owned(), total_cents: 830 });

    // A failure has a code for programs and a message for people.
    match handles[1].result().await {
        Err(Error::JobFailed(failure)) => {
            println!("{failure}");
            assert_eq!(failure.code, "empty_order");
        }
        other => anyhow::bail!("an empty order was billed: {other:?}"),
    }

    // Another program may use other types. Then its job fails; other jobs are not affected.
    let mistaken = app.task_ref::<u32, Invoice>("bill")?;
    match mistaken.dispatch(7).await?.result().await {
        Err(Error::JobFailed(failure)) => {
            println!("{failure}");
            assert_eq!(failure.code, codes::CODEC);
        }
        other => anyhow::bail!("a number was billed: {other:?}"),
    }

    println!("the worker stopped: {}", worker.stop().await?);
    Ok(())
}
