//! The smallest whole program: declare a task, work it, dispatch a job, wait for its result.
//!
//! Run it with `cargo run -p heartline-examples --example hello`. It uses the Redis of `REDIS_URL`, or a private server.

use heartline::{App, Context, JobError, TaskOptions};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let (_server, url) = heartline::testing::redis_url().await?;
    // The prefix keeps this run apart from everything else on the same Redis. An application leaves it out.
    let app = App::builder().redis(url).prefix(format!("hello-{}", uuid::Uuid::now_v7())).build().await?;

    // A task is a name, options and a handler.
    let greet = app.task("greet", TaskOptions::new(), |ctx: Context, name: String| async move {
        println!("job {} runs on worker {}", ctx.id(), ctx.worker_id());
        Ok::<String, JobError>(format!("hello, {name}"))
    })?;

    // A worker runs the jobs. It is mostly a process of its own; see `producer_worker` for that.
    let worker = app.worker().spawn();

    // A dispatched job is in Redis before the await returns.
    let handle = greet.dispatch("world".to_owned()).await?;
    let greeting = handle.result().await?;
    println!("{greeting}");
    assert_eq!(greeting, "hello, world");

    println!("the worker stopped: {}", worker.stop().await?);
    Ok(())
}
