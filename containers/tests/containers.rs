//! The main job on the Redis image that users run, started by testcontainers. Needs a Docker daemon.

#![allow(missing_docs, clippy::unwrap_used)]

use std::time::Duration;

use heartline::{App, Context, JobError, StallOptions, StopReason, TaskOptions};
use testcontainers::core::{IntoContainerPort, WaitFor};
use testcontainers::runners::AsyncRunner;
use testcontainers::{GenericImage, ImageExt};

#[tokio::test]
async fn a_job_of_a_dead_worker_runs_again_on_a_server_in_a_container() {
    let image = GenericImage::new("redis", "7")
        .with_exposed_port(6379.tcp())
        .with_wait_for(WaitFor::message_on_stdout("Ready to accept connections"))
        .with_startup_timeout(Duration::from_secs(60));
    let container = image.start().await.unwrap();
    let url = format!("redis://127.0.0.1:{}", container.get_host_port_ipv4(6379).await.unwrap());

    // The first worker's runtime ends without a shutdown while its handler holds the job.
    let options = || TaskOptions::new().stall(StallOptions::new().interval(Duration::from_secs(1)));
    let (held, is_held) = tokio::sync::oneshot::channel();
    let dead_url = url.clone();
    let dead = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let app = App::builder().redis(&dead_url).build().await.unwrap();
            let held = std::sync::Mutex::new(Some(held));
            let handler = move |_: Context, _: u64| {
                held.lock().unwrap().take().map(|held| held.send(()));
                std::future::pending::<Result<u64, JobError>>()
            };
            let task = app.task("double", options(), handler).unwrap();
            task.dispatch(21).id("job").await.unwrap();
            let worker = app.worker().spawn();
            is_held.await.unwrap();
            std::mem::forget(worker);
        });
        runtime.shutdown_background();
    });
    tokio::task::spawn_blocking(move || dead.join().unwrap()).await.unwrap();

    let app = App::builder().redis(&url).build().await.unwrap();
    let task = app.task("double", options(), |_: Context, n: u64| async move { Ok::<_, JobError>(2 * n) }).unwrap();
    let worker = app.worker().spawn();
    assert_eq!(task.handle("job").unwrap().result().await.unwrap(), 42);
    assert_eq!(worker.stop().await.unwrap(), StopReason::Shutdown);
}
