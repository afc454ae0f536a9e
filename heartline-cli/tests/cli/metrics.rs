//! The exporter, as Prometheus scrapes it.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Stdio};
use std::time::Duration;

use redis::AsyncCommands;

use crate::run::{Bench, until};

/// A running exporter.
pub struct Exporter {
    child: Child,
    address: String,
}

impl Exporter {
    fn start(bench: &Bench, token: Option<&str>) -> Exporter {
        Exporter::of(&["metrics"], bench, token)
    }

    /// The exporter of this command.
    pub fn of(command: &[&str], bench: &Bench, token: Option<&str>) -> Exporter {
        let mut command =
            bench.command(&[command, &["--listen", "127.0.0.1:0", "--host", "metrics.internal"]].concat());
        if let Some(token) = token {
            command.env("HEARTLINE_TOKEN", token);
        }
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stderr.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.split("http://").nth(1).unwrap().split('/').next().unwrap().to_owned();
        Exporter { child, address }
    }

    /// The status, the header and the body of a response.
    pub fn get(&self, path: &str, host: &str, more: &str) -> (u16, String, String) {
        let host = if host.is_empty() { String::new() } else { format!("Host: {host}\r\n") };
        self.ask(&format!("GET {path} HTTP/1.1\r\n{host}{more}Connection: close\r\n\r\n"))
    }

    /// The same for a raw request.
    pub fn ask(&self, request: &str) -> (u16, String, String) {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), head.to_ascii_lowercase(), body.to_owned())
    }

    fn scrape(&self) -> BTreeMap<String, f64> {
        let (status, head, body) = self.get("/metrics", "localhost", "");
        assert_eq!(status, 200, "{body}");
        assert!(head.contains("content-type: application/openmetrics-text; version=1.0.0"), "{head}");
        samples(&body)
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The samples of an OpenMetrics text. Checks the format: each family is described before its samples, no sample is
/// repeated, and the last line ends the text.
fn samples(text: &str) -> BTreeMap<String, f64> {
    let mut lines: Vec<&str> = text.lines().filter(|line| !line.is_empty() && !is_length(line)).collect();
    assert_eq!(lines.pop(), Some("# EOF"), "{text}");
    let (mut found, mut family) = (BTreeMap::new(), String::new());
    for line in lines {
        if let Some(described) = line.strip_prefix("# ") {
            let mut words = described.split(' ');
            assert!(["HELP", "TYPE", "UNIT"].contains(&words.next().unwrap()), "{line}");
            family = words.next().unwrap().to_owned();
            continue;
        }
        let (name, value) = line.rsplit_once(' ').unwrap();
        assert!(name.starts_with(&family) && family.starts_with("heartline_"), "{family}: {line}");
        assert!(found.insert(name.to_owned(), value.parse().unwrap()).is_none(), "twice: {line}");
    }
    found
}

/// The samples of a file for a collector, which has neither units nor an end line.
fn of_file(text: &str) -> BTreeMap<String, f64> {
    assert!(!text.contains("# EOF") && !text.contains("# UNIT"), "{text}");
    samples(&format!("{text}# EOF\n"))
}

#[tokio::test]
#[ignore = "`make check-monitoring` runs it, which has promtool"]
async fn promtool_accepts_the_metrics_that_are_printed_once() {
    let bench = Bench::new().await;
    let worker = bench.worker();
    for input in ["x", "fail"] {
        let _ = bench.export.dispatch(input.into()).await.unwrap().result().await;
    }
    bench.run(&["audit", "-t", "export"]).await.ok();
    let printed = bench.run(&["metrics", "--once"]).await.ok();
    let _ = worker.stop().await.unwrap();
    let mut promtool = std::process::Command::new("promtool");
    promtool.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = promtool.spawn().unwrap();
    child.stdin.take().unwrap().write_all(printed.as_bytes()).unwrap();
    let ended = child.wait_with_output().unwrap();
    let told = String::from_utf8_lossy(&[ended.stdout, ended.stderr].concat()).into_owned();
    assert!(ended.status.success() && told.is_empty(), "{told}\n{printed}");
}

/// Whether a line is the length of a chunk of a response.
fn is_length(line: &str) -> bool {
    line.len() < 6 && line.bytes().all(|b| b.is_ascii_hexdigit())
}

#[tokio::test]
async fn the_fleet_is_exported_in_the_prometheus_format() {
    let bench = Bench::new().await;
    for input in ["x", "fail", "hold"] {
        bench.export.dispatch(input.into()).await.unwrap();
    }
    let worker = bench.worker();
    until("one of each", async || bench.export.counts().await.unwrap().failed == 1).await;
    until("one runs", async || bench.export.counts().await.unwrap().running == 1).await;
    let once = of_file(&bench.run(&["metrics", "--once"]).await.ok());
    let jobs = |state: &str| once[&format!("heartline_jobs{{task=\"export\",state=\"{state}\"}}")];
    assert_eq!((jobs("running"), jobs("failed"), jobs("completed"), jobs("waiting")), (1.0, 1.0, 1.0, 0.0), "{once:?}");
    assert_eq!(once["heartline_up"], 1.0);
    assert_eq!(once["heartline_workers{task=\"export\",state=\"live\"}"], 1.0);
    assert_eq!(once["heartline_task_paused{task=\"export\"}"], 0.0);
    assert_eq!(once["heartline_task_dispatched_total{task=\"export\"}"], 3.0);
    assert_eq!(once["heartline_task_ended_total{task=\"export\"}"], 2.0);
    assert_eq!(once["heartline_interval_seconds{task=\"export\"}"], 1.0);
    assert!(once["heartline_redis_memory_bytes"] > 0.0 && once["heartline_redis_round_trip_seconds"] > 0.0);
    bench.run(&["task", "pause", "export"]).await.ok();
    bench.export.dispatch("x".into()).await.unwrap();
    let exporter = Exporter::start(&bench, None);
    let seen = exporter.scrape();
    assert_eq!(seen["heartline_task_paused{task=\"export\"}"], 1.0);
    assert_eq!(seen["heartline_jobs{task=\"export\",state=\"waiting\"}"], 1.0);
    let (status, _, body) = exporter.get("/health", "localhost", "");
    assert_eq!((status, body.contains("1 risk;"), body.contains("export")), (503, true, false), "{body}");
    bench.open();
    let _ = worker.stop().await.unwrap();
}

#[tokio::test]
async fn ages_silence_and_faults_are_exported_as_they_are() {
    let bench = Bench::of_one_table().await;
    for id in ["a", "b", "c"] {
        bench.export.dispatch("x".into()).id(id).await.unwrap();
    }
    let mut conn = bench.redis().await;
    let (now, mut pipe) = (bench.export.counts().await.map(|_| std::time::SystemTime::now()).unwrap(), redis::pipe());
    let ms =
        |ago: u64| (now - Duration::from_secs(ago)).duration_since(std::time::UNIX_EPOCH).unwrap().as_millis() as u64;
    let task = |key: &str| format!("cli:{{export}}:{key}");
    pipe.hset(task("enqueuedAt"), "a", ms(500)).ignore();
    pipe.hset(task("meta"), "epochAt", ms(70)).ignore().hset(task("meta"), "interval", 30_000).ignore();
    pipe.lrem(task("wait"), 0, "c").ignore().hset(task("locks"), "c", "w:3").ignore();
    pipe.sadd(task("active"), "c").ignore().sadd(task("candidates"), "c").ignore();
    pipe.hset(task("payload"), "lost", "1").ignore();
    let () = pipe.query_async(&mut conn).await.unwrap();
    let ran = bench.run(&["audit", "-t", "export"]).await;
    assert!(ran.out.contains("unplaced"), "{ran:?}");
    let told = of_file(&bench.run(&["metrics", "--once"]).await.ok());
    let of = |name: &str| told[&format!("heartline_{name}{{task=\"export\"}}")];
    let about = |name: &str, secs: f64| assert!((secs..secs + 60.0).contains(&of(name)), "{name}: {}", of(name));
    about("oldest_waiting_seconds", 500.0);
    about("epoch_age_seconds", 70.0);
    about("audit_age_seconds", 0.0);
    assert_eq!((of("silent_jobs"), of("interval_seconds"), of("jobs_unplaced")), (1.0, 30.0, 1.0), "{told:?}");
    assert_eq!(told["heartline_audit_findings{task=\"export\",kind=\"unplaced\"}"], 1.0, "{told:?}");
    assert_eq!(told["heartline_workers_blocked"], 0.0);
    // The test server uses the clock of this machine.
    assert!(told["heartline_redis_clock_skew_seconds"] < 5.0, "{told:?}");
}

#[tokio::test]
async fn partitions_export_the_oldest_epoch_and_all_silent_jobs() {
    let bench = Bench::of_one_table().await;
    let spread = bench.app.task_ref::<String, ()>("spread").unwrap();
    let handler = |_: heartline::Context, _: String| async { Ok::<(), heartline::JobError>(()) };
    let _ = bench.app.task("spread", heartline::TaskOptions::new().partitions(3), handler).unwrap();
    let worker = bench.app.worker().spawn();
    until("it works", async || bench.run(&["workers", "--json"]).await.json()[0]["state"] == "live").await;
    let _ = worker.stop().await.unwrap();
    spread.dispatch("x".into()).await.unwrap();
    let mut conn = bench.redis().await;
    let keys: Vec<String> = redis::cmd("KEYS").arg("cli:{spread*}:meta").query_async(&mut conn).await.unwrap();
    assert_eq!(keys.len(), 3, "{keys:?}");
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis() as u64;
    for (at, key) in keys.iter().enumerate() {
        let since = now - if at == 0 { 400_000 } else { 1_000 };
        let _: u64 = redis::cmd("HSET").arg(key).arg("epochAt").arg(since).query_async(&mut conn).await.unwrap();
        let candidates = key.replace(":meta", ":candidates");
        let _: u64 =
            redis::cmd("SADD").arg(candidates).arg(format!("silent-{at}")).query_async(&mut conn).await.unwrap();
    }
    let told = of_file(&bench.run(&["metrics", "--once"]).await.ok());
    assert!(told["heartline_epoch_age_seconds{task=\"spread\"}"] >= 400.0, "{told:?}");
    assert_eq!(told["heartline_silent_jobs{task=\"spread\"}"], 3.0, "{told:?}");
    let shown = bench.run(&["task", "show", "spread"]).await.ok();
    assert!(shown.contains("stall detection of partition 2: epoch"), "{shown}");
}

#[tokio::test]
async fn schedules_export_their_ticks_and_how_late_the_next_is() {
    let bench = Bench::of_one_table().await;
    crate::schedules::put(&bench, "nightly").await;
    crate::schedules::is_listed(&bench).await;
    let once = async || of_file(&bench.run(&["metrics", "--once"]).await.ok());
    let told = once().await;
    let of = |name: &str| told[&format!("heartline_{name}{{task=\"export\"}}")];
    assert_eq!((of("schedules"), of("schedule_late_seconds")), (1.0, 0.0), "{told:?}");
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64();
    assert!(of("schedule_next_timestamp_seconds") > now, "{told:?}");
    for outcome in ["fired", "overlapped", "missed", "paused"] {
        let ticks = format!("heartline_schedule_ticks_total{{task=\"export\",outcome=\"{outcome}\"}}");
        assert_eq!(told[&ticks], 0.0, "{told:?}");
    }
    let mut conn = bench.redis().await;
    let long_ago = (now - 500.0) * 1000.0;
    let () = conn.zadd("cli:{export}:schedules", "nightly", long_ago).await.unwrap();
    let () = conn.hset("cli:{export}:meta", "ticksMissed", 3).await.unwrap();
    let told = once().await;
    assert!(told["heartline_schedule_late_seconds{task=\"export\"}"] >= 500.0, "{told:?}");
    assert_eq!(told["heartline_schedule_ticks_total{task=\"export\",outcome=\"missed\"}"], 3.0, "{told:?}");
}

/// The metrics while Redis is unreachable.
fn away() -> BTreeMap<String, f64> {
    BTreeMap::from([("heartline_up".to_owned(), 0.0), ("heartline_readable".to_owned(), 0.0)])
}

#[tokio::test]
async fn an_exporter_without_rights_does_not_report_redis_as_down() {
    let bench = Bench::new().await;
    let exporter = Exporter::start(&bench, None);
    assert_eq!((exporter.scrape()["heartline_up"], exporter.scrape()["heartline_readable"]), (1.0, 1.0));
    let told = BTreeMap::from([("heartline_up".to_owned(), 1.0), ("heartline_readable".to_owned(), 0.0)]);
    let () = bench.redis().await.set("cli:tasks", "foreign").await.unwrap();
    until("it cannot be read", async || exporter.scrape() == told).await;
    let once = bench.run(&["metrics", "--once"]).await;
    assert_eq!((once.status, of_file(&once.out)), (1, told.clone()));
    let () = bench.redis().await.del("cli:tasks").await.unwrap();
    until("it can be read", async || exporter.scrape()["heartline_readable"] == 1.0).await;
}

#[tokio::test]
async fn an_exporter_survives_its_redis_and_reports_it_as_down() {
    let mut bench = Bench::new().await;
    let exporter = Exporter::start(&bench, None);
    assert_eq!(exporter.scrape()["heartline_up"], 1.0);
    bench.server().kill();
    until("it is reported as missing", async || exporter.scrape() == away()).await;
    let once = bench.run(&["metrics", "--once"]).await;
    assert_eq!((once.status, of_file(&once.out)), (1, away()));
    let (status, _, body) = exporter.get("/health", "localhost", "");
    assert_eq!((status, body.contains("redis is unreachable")), (503, true), "{body}");
    bench.server().restart().unwrap();
    until("it is back", async || exporter.scrape()["heartline_up"] == 1.0).await;
}

#[tokio::test]
async fn a_redis_that_hangs_is_reported_before_the_scrape_times_out() {
    let mut bench = Bench::new().await;
    let exporter = Exporter::start(&bench, None);
    assert_eq!(exporter.scrape()["heartline_up"], 1.0);
    bench.server().freeze().unwrap();
    // A result is reused for a second.
    until("it is reported as missing", async || {
        let begun = std::time::Instant::now();
        let (status, _, body) = exporter.get("/metrics", "localhost", "X-Prometheus-Scrape-Timeout-Seconds: 1.5\r\n");
        assert!(status == 200 && begun.elapsed() < Duration::from_secs(4), "the wait for a silent server");
        body.contains("heartline_up 0")
    })
    .await;
    bench.server().thaw().unwrap();
    until("it is back", async || exporter.scrape()["heartline_up"] == 1.0).await;
}

#[tokio::test]
async fn an_invalid_name_forges_no_metric() {
    let bench = Bench::new().await;
    let mut conn = redis::Client::open(bench.url())
        .unwrap()
        .get_multiplexed_async_connection_with_config(&crate::run::patient())
        .await
        .unwrap();
    let forged = "evil\"} 1\nheartline_up 0\nx{a=\"";
    let () = redis::cmd("ZADD").arg("cli:tasks").arg(1).arg(forged).query_async(&mut conn).await.unwrap();
    let once = of_file(&bench.run(&["metrics", "--once"]).await.ok());
    assert_eq!(once["heartline_up"], 1.0);
    let label = r#"heartline_task_readable{task="evil\"} 1\nheartline_up 0\nx{a=\""}"#;
    assert_eq!(once[label], 0.0, "{once:?}");
}

#[tokio::test]
async fn only_authorized_requests_are_answered() {
    let bench = Bench::new().await;
    let exporter = Exporter::start(&bench, None);
    for (host, status) in [("127.0.0.1:9187", 200), ("metrics.internal", 200), ("evil.example", 421), ("", 400)] {
        let (got, head, body) = exporter.get("/metrics", host, "");
        assert!(got == status || host.is_empty() && [400, 421].contains(&got), "{host}: {got} {body}");
        assert!(host.is_empty() || head.contains("cache-control: no-store"), "{head}");
    }
    assert_eq!(exporter.get("/jobs", "localhost", "").0, 404);

    let token = "0123456789abcdef";
    let exporter = Exporter::start(&bench, Some(token));
    for (said, status) in
        [("", 401), ("Bearer 0123456789abcdeX", 401), ("0123456789abcdef", 401), ("Bearer 0123456789abcdef", 200)]
    {
        let more = if said.is_empty() { String::new() } else { format!("Authorization: {said}\r\n") };
        assert_eq!(exporter.get("/metrics", "localhost", &more).0, status, "{said}");
        // There is no task yet, so the fleet is not healthy.
        let status = if status == 200 { 503 } else { status };
        assert_eq!(exporter.get("/health", "localhost", &more).0, status, "{said}");
    }
    let ran = bench.run(&["metrics", "--listen", "0.0.0.0:0"]).await;
    assert!(ran.status == 2 && ran.err.contains("set HEARTLINE_TOKEN, or listen on 127.0.0.1"), "{ran:?}");
}

#[tokio::test]
async fn the_web_page_is_protected_like_the_metrics() {
    let bench = Bench::new().await;
    bench.export.dispatch("x".into()).await.unwrap();
    let board = Exporter::of(&["board"], &bench, None);
    let (status, head, body) = board.get("/", "localhost", "");
    assert!(
        status == 200 && body.contains("href=\"/task?task=export\"") && head.contains("content-security-policy"),
        "{body}"
    );
    assert_eq!(board.get("/", "evil.example", "").0, 421);
    let board = Exporter::of(&["board"], &bench, Some("0123456789abcdef"));
    assert_eq!(board.get("/", "localhost", "").0, 303);
    assert_eq!(board.get("/", "localhost", "Authorization: Bearer 0123456789abcdef\r\n").0, 200);
    let ran = bench.run(&["board", "--listen", "0.0.0.0:0"]).await;
    assert!(ran.status == 2 && ran.err.contains("set HEARTLINE_TOKEN, or listen on 127.0.0.1"), "{ran:?}");
}

#[tokio::test]
async fn slow_or_incomplete_requests_block_no_other_client() {
    let bench = Bench::new().await;
    let board = Exporter::of(&["board"], &bench, Some("0123456789abcdef"));
    let half = "POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\nabc";
    let mut open = Vec::new();
    for _ in 0..530 {
        let mut stream = TcpStream::connect(&board.address).unwrap();
        stream.write_all(half.as_bytes()).unwrap();
        open.push(stream);
    }
    assert_eq!(board.get("/login", "localhost", "").0, 200);
}
