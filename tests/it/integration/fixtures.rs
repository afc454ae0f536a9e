//! What most tests begin with.

use heartline::{App, TaskRef};

use crate::support::TestRedis;
use crate::support::task::TestTask;

/// A task on the shared server, and an App.
pub async fn shared() -> (TestTask, App) {
    let test = TestTask::new();
    let app = test.app().await;
    (test, app)
}

/// The same with a producer.
pub async fn producing() -> (TestTask, App, TaskRef<String, u64>) {
    let test = TestTask::new();
    let (app, jobs) = test.producer().await;
    (test, app, jobs)
}

/// A server that only this test uses, and a task on it.
pub fn alone() -> (TestRedis, TestTask) {
    let redis = TestRedis::start();
    let test = TestTask::on(&redis);
    (redis, test)
}
