//! Calls per tick of a real worker.

use heartline::{Overlap, Schedule};

use crate::integration::schedules::{SECOND, becomes, declared};
use crate::support::TestRedis;
use crate::support::call_log::{calls_of, log_calls};
use crate::support::task::TestTask;
use crate::support::worker::TestWorker;

const TICKS: u64 = 8;

#[tokio::test]
async fn ticks_that_a_worker_fires_in_a_row_need_no_look() {
    let redis = TestRedis::start();
    let (test, mut conn) = (TestTask::on(&redis), redis.conn().await);
    test.journal.open("go");
    log_calls(&mut conn).await;
    let (app, task) = declared(&test, "poll", Schedule::every(SECOND).overlap(Overlap::Allow)).await;
    let worker = TestWorker::start(app.worker());
    becomes(&task, "poll", "ticks fire", |info| info.fired >= TICKS).await;
    worker.stop().await;

    let looks = calls_of(&mut conn, &test.sha("schedule_look").await).await.len();
    let fires = calls_of(&mut conn, &test.sha("schedule_fire").await).await.len();
    // The worker looks when it starts, when its schedule was written, at the first tick, and every 5 s.
    assert!(fires >= TICKS as usize && looks < fires, "{looks} looks, {fires} firings");
}
