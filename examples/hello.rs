//! The smallest complete program: declares a task, starts a worker, dispatches a job and waits for its result.
//!
//! Run it with `cargo run -p heartline-examples --example hello`. It uses the Redis of `REDIS_URL`, or a private server.

use heartline::{App, Context, JobError, TaskOptions};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let (_server, url) = heartline::testing::redis_url().await?;
    // The prefix separates this run from other data on the same Redis. An application can leave it out.
    let app = App::builder().redis(url).prefix(format!("hello-{}", uuid::Uuid::now_v7())).build().await?;

    // A task is a name, options and a handler.
    let greet = app.task("greet", TaskOptions::new(), |ctx: Context, name: String| async move {
        println!("job {} runs on worker {}", ctx.id(), ctx.worker_id());
        Ok::<String, JobError>(format!("hello, {name}"))
    })?;

    // A worker runs the jobs, usually in a process of its own; see `producer_worker`.
    let worker = app.worker().spawn();

    // When this returns, the job is in Redis.
    let handle = greet.dispatch("world".to_owned()).await?;
    let greeting = handle.result().await?;
    println!("{greeting}");
    assert_eq!(greeting, "hello, world");

    println!("the worker stopped: {}", worker.stop().await?);
    Ok(())
}
