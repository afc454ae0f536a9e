//! The clock of the server jumps: it decides only when a delayed job is due.

use std::path::PathBuf;
use std::time::Duration;

use heartline::JobState;
use heartline::testing::RedisServer;

use crate::support::task::{INTERVAL, TestTask, options};
use crate::support::{PATIENCE, TestRedis, eventually};

const HOUR: i64 = 3600;

fn library() -> PathBuf {
    let places = ["/usr/lib", "/usr/lib64", "/usr/local/lib", "/opt/homebrew/lib"].map(PathBuf::from);
    let triples = [format!("{}-linux-gnu", std::env::consts::ARCH), String::new()];
    let mut candidates = places
        .iter()
        .flat_map(|place| triples.iter().map(move |triple| place.join(triple).join("faketime/libfaketime.so.1")));
    candidates
        .find(|path| path.exists())
        .unwrap_or_else(|| panic!("libfaketime.so.1 not found: install it with `apt-get install libfaketime`"))
}

/// The offset of the server's time, read again at every use of its clock.
struct Offset(PathBuf);

impl Offset {
    fn new(name: &str) -> Offset {
        let offset = Offset(std::env::temp_dir().join(format!("heartline-{name}.offset")));
        offset.set(0);
        offset
    }

    fn set(&self, seconds: i64) {
        let next = self.0.with_extension("next");
        std::fs::write(&next, format!("{seconds:+}\n")).unwrap();
        std::fs::rename(next, &self.0).unwrap();
    }
}

impl Drop for Offset {
    fn drop(&mut self) {
        // A file left in the temporary directory does no harm.
        let _ = std::fs::remove_file(&self.0);
    }
}

#[tokio::test]
async fn a_clock_that_jumps_stalls_no_job_and_fences_still_grow() {
    let offset = Offset::new(&TestRedis::shared().unique_prefix());
    // A shared jemalloc asks for the time while it starts, and libfaketime for memory: libc's own malloc takes
    // precedence.
    let preload = format!("{}:libc.so.6", library().display());
    let server = RedisServer::builder()
        .env("LD_PRELOAD", preload)
        .env("FAKETIME_TIMESTAMP_FILE", &offset.0)
        .env("FAKETIME_NO_CACHE", "1")
        .env("DONT_FAKE_MONOTONIC", "1")
        .env("FAKETIME_DONT_FAKE_MONOTONIC", "1")
        .start()
        .unwrap();
    let mut redis = TestRedis::from_process(server);
    let test = TestTask::on(&redis);
    let (one, two) = (test.start_worker(options(INTERVAL)).await, test.start_worker(options(INTERVAL)).await);
    let hour = async || -> i64 {
        let (seconds, _): (i64, i64) = redis::cmd("TIME").query_async(&mut test.conn().await).await.unwrap();
        let ours = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs() as i64;
        (seconds - ours + HOUR / 2).div_euclid(HOUR)
    };
    assert_eq!(hour().await, 0);
    test.journal.open("go");
    let long = one.jobs.dispatch_many(["long".to_owned(), "long".to_owned()]).await.unwrap();
    test.started(&long).await;
    let (mut fence, mut ended) = (0, Vec::new());
    let in_an_hour = one.jobs.dispatch("go".to_owned()).delay(Duration::from_secs(HOUR as u64)).await.unwrap();

    for (round, target) in [1, -2, 3, 0].into_iter().enumerate() {
        // Due a second after the jump, by a clock that has changed by then.
        let soon = two.jobs.dispatch("go".to_owned()).delay(INTERVAL).await.unwrap();
        offset.set(target * HOUR);
        assert_eq!(hour().await, target);
        test.epochs_pass(2).await;
        let job = two.jobs.dispatch("go".to_owned()).await.unwrap();
        let drawn = tokio::time::timeout(PATIENCE, job.result()).await.unwrap().unwrap();
        assert!(drawn > fence, "jump {round}: {drawn} after {fence}");
        fence = drawn;
        ended.extend([job, soon]);
    }
    // The clock went back, so the delayed jobs are still there, and due by that clock.
    for job in ended.iter().chain([&in_an_hour]) {
        assert!(matches!(job.state().await.unwrap(), JobState::Delayed | JobState::Completed));
    }
    offset.set(5 * HOUR);
    eventually("every delayed job has run", PATIENCE, async || one.jobs.counts().await.unwrap().completed == 9).await;
    test.journal.open("long");
    ended.push(in_an_hour);
    ended.extend(long);
    test.each_ran_once(&ended).await;
    one.stop().await;
    two.stop().await;
    test.nothing_is_left_but(ended.len()).await;
    // A clean stop: a killed server leaves the shared memory of libfaketime.
    redis.process().stop();
}
