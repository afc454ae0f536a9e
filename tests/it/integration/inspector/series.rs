//! The time series of a task.

use std::time::Duration;

use heartline::_internals::Timings;
use heartline::{App, DurationQuantiles, SeriesPoint, SeriesSpan, TaskSeries};

use super::obedient;
use crate::support::task::{TASK, TestTask, fast};
use crate::support::worker::TestWorker;
use crate::support::{PATIENCE, eventually};

/// The jobs that ended and failed in all minutes.
fn all(series: &TaskSeries) -> (u64, u64) {
    let counts = || series.points.iter().filter_map(|point| point.counts);
    (counts().map(|counts| counts.ended).sum(), counts().map(|counts| counts.failed).sum())
}

#[tokio::test]
async fn a_series_has_the_jobs_and_durations_of_each_minute() {
    let test = TestTask::new();
    let timings = Timings { series: Duration::from_millis(100), ..Default::default() };
    let app = App::builder().redis(test.redis().app_url()).prefix(&test.prefix).timings(timings).build().await.unwrap();
    let task = obedient(&test, &app, fast());
    let inspector = app.inspector();
    // As if the worker of before had been there in each minute. This minute may be over before the first record.
    let now = inspector.now().await.duration_since(std::time::UNIX_EPOCH).unwrap().as_millis() as u64;
    for minute in [now / 60_000, now / 60_000 - 1] {
        let counters = format!("{} 0 0 0", minute * 60_000);
        test.run::<u64>("HSET", "series", &[&format!("m{}", minute % 1440), &counters]).await;
    }
    let worker = TestWorker::start(app.worker());
    let inputs = ["one".to_owned(), "two".to_owned(), "fail no good".to_owned()];
    task.dispatch_many(inputs).await.unwrap();
    eventually("the runs are in the series", PATIENCE, async || {
        let series = inspector.series(TASK, SeriesSpan::Hour).await.unwrap();
        let count = |of: fn(&SeriesPoint) -> Option<DurationQuantiles>| -> u64 {
            series.points.iter().filter_map(of).map(|found| found.count).sum()
        };
        (count(|point| point.waited), count(|point| point.ran), all(&series)) == (3, 3, (3, 1))
    })
    .await;
    worker.stop().await;
    for span in [SeriesSpan::Day, SeriesSpan::Month] {
        let series = inspector.series(TASK, span).await.unwrap();
        let ran: Vec<_> = series.points.iter().filter_map(|point| point.ran).collect();
        assert_eq!(ran.iter().map(|ran| ran.count).sum::<u64>(), 3, "{span:?}");
        assert!(ran.iter().all(|ran| ran.p50 <= ran.p95 && ran.p95 < Duration::from_secs(60)), "{ran:?}");
    }
    let sparkline = inspector.sparkline(TASK).await.unwrap();
    assert_eq!((sparkline.points.len(), sparkline.step), (96, Duration::from_secs(900)));
    let unknown = inspector.series("unknown", SeriesSpan::Hour).await.unwrap();
    assert!(unknown.points.len() == 60 && unknown.points.iter().all(|point| point.counts.is_none()));
}
