//! A paused task: none of its jobs is claimed, and everything else continues.

use std::time::{Duration, Instant};

use heartline::JobState;

use super::{counted, is_sound, obedient, observed};
use crate::integration::fixtures::alone;
use crate::support::task::{INTERVAL, TASK, fast, options};
use crate::support::worker::TestWorker;
use crate::support::{PATIENCE, TestRedis, eventually};

/// The poll interval of an idle worker.
const LOOK: Duration = Duration::from_secs(5);

#[tokio::test]
async fn a_paused_task_claims_nothing_and_records_running_jobs() {
    let (test, app, inspector) = observed().await;
    let worker = test.start_worker(fast().concurrency(10)).await;
    let task = app.task_ref::<String, u64>(TASK).unwrap();
    task.dispatch("first".into()).id("runs").await.unwrap();
    test.arrives("runs", "running").await;
    assert_eq!(inspector.pause(TASK, "why not").await.unwrap(), None);
    task.dispatch("second".into()).id("waits").await.unwrap();
    let due = Duration::from_millis(50);
    task.dispatch("second".into()).id("due").delay(due).await.unwrap();

    // Its heartbeats continue, and so do sweeps, for longer than it would take to find it stalled.
    test.epochs_pass(3).await;
    assert_eq!(test.places("runs").await, ["running"]);
    test.journal.open("first");
    test.arrives("runs", "completed").await;
    test.epochs_pass(2).await;
    assert_eq!(test.places("waits").await, ["wait"]);
    assert_eq!(test.places("due").await, ["delayed"], "what is due stays delayed");
    assert_eq!(test.journal.runs().len(), 1);
    assert_eq!(test.run::<u64>("XLEN", "stalls", &[]).await, 0);

    let begun = Instant::now();
    let paused_for = inspector.resume(TASK).await.unwrap().unwrap();
    assert!(paused_for >= 4 * INTERVAL, "{paused_for:?}");
    eventually("both run", PATIENCE, async || test.journal.runs().len() == 3).await;
    // At once, and not at the poll of an idle worker.
    assert!(begun.elapsed() < LOOK / 2, "{:?}", begun.elapsed());
    test.journal.open("second");
    counted(&inspector, JobState::Completed, 3).await;
    worker.stop().await;
    is_sound(&inspector).await;
}

#[tokio::test]
async fn a_second_pause_or_resume_changes_nothing_and_says_so() {
    let (_test, _app, inspector) = observed().await;
    assert_eq!(inspector.resume(TASK).await.unwrap(), None);
    assert_eq!(inspector.clone().by("ada").pause(TASK, "first").await.unwrap(), None);
    let kept = inspector.clone().by("bob").pause(TASK, "second").await.unwrap().unwrap();
    assert_eq!((kept.by.as_str(), kept.reason.as_str()), ("ada", "first"));
    assert_eq!(inspector.task(TASK).await.unwrap().paused, Some(kept));
    assert!(inspector.resume(TASK).await.unwrap().is_some());
    assert_eq!(inspector.task(TASK).await.unwrap().paused, None);
    assert_eq!(inspector.resume(TASK).await.unwrap(), None);
    // A reason is cut to 4 KiB, between two characters.
    inspector.pause(TASK, &"é".repeat(4000)).await.unwrap();
    assert_eq!(inspector.task(TASK).await.unwrap().paused.unwrap().reason, "é".repeat(2048));
}

#[tokio::test]
async fn idle_workers_of_a_paused_task_do_not_busy_loop() {
    let (redis, test) = alone();
    let app = test.app().await;
    let inspector = app.inspector();
    let workers = [test.start_worker(options(INTERVAL * 30)).await, test.start_worker(options(INTERVAL * 30)).await];
    let task = app.task_ref::<String, u64>(&test.name).unwrap();
    inspector.pause(&test.name, "").await.unwrap();
    for at in 0..20 {
        task.dispatch("gate".into()).delay(Duration::from_millis(at * 10)).await.unwrap();
        task.dispatch("gate".into()).await.unwrap();
    }
    // The server shows each call of a script by its hash.
    let shas = [test.sha("settle").await, test.sha("settle_plain").await];
    let monitor = Monitor::start(&redis).await;
    tokio::time::sleep(2 * LOOK).await;
    let settles = monitor.stop().await.into_iter().filter(|line| shas.iter().any(|sha| line.contains(sha))).count();
    // Two polls of each, and one more that had begun.
    assert!(settles <= workers.len() * 3, "{settles} settle calls in {:?}", 2 * LOOK);
    inspector.resume(&test.name).await.unwrap();
    eventually("they run", PATIENCE, async || test.journal.runs().len() == 8).await;
    test.journal.open("gate");
    for worker in workers {
        worker.stop().await;
    }
}

#[tokio::test]
async fn a_pause_of_one_task_does_not_affect_the_others() {
    let (test, app, inspector) = observed().await;
    let works = test.app().await;
    obedient(&test, &works, fast());
    works.task("other", fast(), |_, input: u32| async move { Ok::<_, heartline::JobError>(input) }).unwrap();
    let worker = TestWorker::start(works.worker());
    inspector.pause(TASK, "").await.unwrap();
    app.task_ref::<String, u64>(TASK).unwrap().dispatch("ok".into()).id("waits").await.unwrap();
    let other = app.task_ref::<u32, u32>("other").unwrap();
    for input in 0..20 {
        assert_eq!(other.dispatch(input).await.unwrap().result().await.unwrap(), input);
    }
    assert_eq!(test.places("waits").await, ["wait"]);
    inspector.resume(TASK).await.unwrap();
    test.arrives("waits", "completed").await;
    worker.stop().await;
}

/// The commands that a server receives, line by line as MONITOR shows them.
pub(super) struct Monitor {
    lines: tokio::task::JoinHandle<Vec<String>>,
    stop: tokio::sync::oneshot::Sender<()>,
}

impl Monitor {
    pub(super) async fn start(redis: &TestRedis) -> Monitor {
        use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
        let mut stream = BufReader::new(tokio::net::TcpStream::connect(redis.address()).await.unwrap());
        stream.write_all(b"MONITOR\r\n").await.unwrap();
        let mut first = String::new();
        stream.read_line(&mut first).await.unwrap();
        assert_eq!(first, "+OK\r\n");
        let (stop, mut stopped) = tokio::sync::oneshot::channel();
        let lines = tokio::spawn(async move {
            let mut lines = Vec::new();
            loop {
                let mut line = Vec::new();
                tokio::select! {
                    read = stream.read_until(b'\n', &mut line) => {
                        assert!(read.unwrap() > 0, "the server has closed the connection");
                        lines.push(String::from_utf8_lossy(&line).trim_end().to_owned());
                    }
                    _ = &mut stopped => return lines,
                }
            }
        });
        Monitor { lines, stop }
    }

    /// Everything so far.
    pub(super) async fn stop(self) -> Vec<String> {
        self.stop.send(()).unwrap();
        self.lines.await.unwrap()
    }
}
