//! `make bench-viewers`: what those who look cost Redis beside a load. A task does no-op jobs as fast as it can; ten pages of `heartline board`
//! are asked for once a second each, as open pages that change all the time are, and `heartline metrics` is scraped each 15 s. Both have a
//! Redis user of their own, by which their calls are found in the server's slow log, to which every call is written meanwhile.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use heartline::testing::RedisServer;
use heartline::{App, Context, JobError, Retention, TaskOptions};
use redis::aio::MultiplexedConnection;

/// For how long it is measured.
const WINDOW: Duration = Duration::from_secs(30);

/// The pages that are open, two of each.
const PAGES: [&str; 5] =
    ["/", "/task?task=export", "/jobs?task=export&state=waiting", "/jobs?task=mail&state=failed&code=disk", "/workers"];

/// How many failed jobs there are to look through.
const FAILED: usize = 20_000;

/// A program that serves, by the address that it tells.
struct Served(Child, String);

impl Served {
    fn start(command: &str, redis: &str) -> Served {
        let mut child = Command::new(env!("CARGO_BIN_EXE_heartline"))
            .args([command, "--listen", "127.0.0.1:0"])
            .env("HEARTLINE_REDIS", redis)
            .env("HEARTLINE_CONFIG", "/nowhere")
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let line = lines.find(|line| line.as_ref().unwrap().contains("http://")).unwrap().unwrap();
        let address = line.split("http://").nth(1).unwrap().split('/').next().unwrap().to_owned();
        std::thread::spawn(move || lines.for_each(drop));
        Served(child, address)
    }

    /// Asks for a page, which must be there.
    fn ask(address: &str, path: &str) {
        let mut stream = TcpStream::connect(address).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{path}: {answer}");
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::main]
async fn main() {
    let server = tokio::task::spawn_blocking(RedisServer::start).await.unwrap().unwrap();
    let mut admin = connect(&server.url()).await;
    call(&mut admin, "ACL SETUSER viewer on >0123456789abcdef ~* &* +@all").await;
    let app = App::builder().redis(server.url()).build().await.unwrap();
    let done = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&done);
    let work = move |_: Context, _: u64| {
        counted.fetch_add(1, Ordering::Relaxed);
        async { Ok::<_, JobError>(()) }
    };
    let options = TaskOptions::new().concurrency(200).prefetch(200).retention(Retention::remove_at_once());
    let export = app.task("export", options, work).unwrap();
    let fail = |_: Context, _: u64| async {
        Err::<(), _>(JobError::new("no space left".to_owned()).with_code("disk").fatal())
    };
    let mail = app.task("mail", TaskOptions::new().concurrency(200), fail).unwrap();
    for _ in 0..FAILED / 1000 {
        mail.dispatch_many(0..1000).await.unwrap();
    }
    let worker = app.worker().spawn();
    while mail.counts().await.unwrap().failed < FAILED as u64 {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let stop = Arc::new(AtomicBool::new(false));
    let (stopped, producer) = (Arc::clone(&stop), export.clone());
    let dispatching = tokio::spawn(async move {
        while !stopped.load(Ordering::Relaxed) {
            producer.dispatch_many(0..2000).await.unwrap();
            while producer.counts().await.unwrap().waiting > 20_000 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
    });
    let redis = server.url().replace("redis://", "redis://viewer:0123456789abcdef@");
    let (board, exporter) = (Served::start("board", &redis), Served::start("metrics", &redis));
    let (pages, scrapes) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let mut viewers = Vec::new();
    for path in PAGES.iter().chain(&PAGES) {
        viewers.push(viewer(&board.1, path, Duration::from_secs(1), &pages, &stop));
    }
    viewers.push(viewer(&exporter.1, "/metrics", Duration::from_secs(15), &scrapes, &stop));
    tokio::time::sleep(Duration::from_secs(3)).await;

    call(&mut admin, "CONFIG SET slowlog-max-len 100000").await;
    call(&mut admin, "SLOWLOG RESET").await;
    call(&mut admin, "CONFIG SET slowlog-log-slower-than 0").await;
    let (begun, before, asked) = (Instant::now(), done.load(Ordering::Relaxed), pages.load(Ordering::Relaxed));
    let (mut theirs, mut calls, mut all) = (0, 0, 0);
    while begun.elapsed() < WINDOW {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let clients: String = redis::cmd("CLIENT").arg("LIST").query_async(&mut admin).await.unwrap();
        let of_viewers = clients.lines().filter(|line| line.contains(" user=viewer "));
        let addresses: BTreeSet<&str> = of_viewers.filter_map(|line| word(line, "addr=")).collect();
        type Entry = (u64, u64, u64, Vec<redis::Value>, String, String);
        let entries: Vec<Entry> = redis::cmd("SLOWLOG").arg("GET").arg(-1).query_async(&mut admin).await.unwrap();
        call(&mut admin, "SLOWLOG RESET").await;
        assert!(entries.len() < 100_000, "the slow log was too short");
        all += entries.iter().map(|entry| entry.2).sum::<u64>();
        for entry in entries.iter().filter(|entry| addresses.contains(&*entry.4)) {
            (theirs, calls) = (theirs + entry.2, calls + 1);
        }
    }
    let took = begun.elapsed();
    let jobs = (done.load(Ordering::Relaxed) - before) as f64 / took.as_secs_f64();
    let asked = (pages.load(Ordering::Relaxed) - asked) as f64 / took.as_secs_f64();
    stop.store(true, Ordering::Relaxed);
    let share = |us: u64| us as f64 / 10_000.0 / took.as_secs_f64();
    println!(
        "{{\"jobs_a_second\": {jobs:.0}, \"pages_a_second\": {asked:.1}, \"scrapes\": {}, \"calls_of_viewers\": {calls}, \
         \"viewers_percent_of_a_core\": {:.2}, \"all_percent_of_a_core\": {:.1}}}",
        scrapes.load(Ordering::Relaxed),
        share(theirs),
        share(all),
    );
    for viewer in viewers {
        tokio::task::spawn_blocking(|| viewer.join().unwrap()).await.unwrap();
    }
    dispatching.await.unwrap();
    let _ = worker.stop().await;
}

/// Asks for a page again and again until it is stopped.
fn viewer(
    address: &str,
    path: &'static str,
    every: Duration,
    counted: &Arc<AtomicU64>,
    stop: &Arc<AtomicBool>,
) -> std::thread::JoinHandle<()> {
    let (address, counted, stop) = (address.to_owned(), Arc::clone(counted), Arc::clone(stop));
    std::thread::spawn(move || {
        while !stop.load(Ordering::Relaxed) {
            let begun = Instant::now();
            Served::ask(&address, path);
            counted.fetch_add(1, Ordering::Relaxed);
            while begun.elapsed() < every && !stop.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    })
}

fn word<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    line.split(' ').find_map(|word| word.strip_prefix(name))
}

async fn connect(url: &str) -> MultiplexedConnection {
    let config = redis::AsyncConnectionConfig::new().set_response_timeout(Some(Duration::from_secs(20)));
    redis::Client::open(url).unwrap().get_multiplexed_async_connection_with_config(&config).await.unwrap()
}

async fn call(conn: &mut MultiplexedConnection, words: &str) {
    let mut words = words.split(' ');
    let mut command = redis::cmd(words.next().unwrap());
    words.for_each(|word| {
        command.arg(word);
    });
    let _: redis::Value = command.query_async(conn).await.unwrap();
}
