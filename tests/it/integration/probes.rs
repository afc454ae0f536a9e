//! Probes over HTTP, as an orchestrator sends them.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use heartline::{App, Context, JobError};
use serde_json::Value;

use crate::integration::fixtures::shared;
use crate::support::task::{TASK, fast};
use crate::support::{PATIENCE, TestRedis, eventually};

/// The status and the body of a reply.
fn ask(address: SocketAddr, request: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(stream, "{request} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

#[tokio::test]
async fn probes_answer_before_during_and_after_the_run() {
    let (test, app) = shared().await;
    test.declare_at(&app, fast());
    let worker = app.worker();
    let probes = worker.monitor().serve(([127, 0, 0, 1], 0).into()).unwrap();
    let get = |path: &str| ask(probes.address(), &format!("GET {path}"));
    assert_eq!((get("/live"), get("/ready")), ((200, "live\n".to_owned()), (503, "not ready\n".to_owned())));
    let running = worker.spawn();
    eventually("it is ready", PATIENCE, async || get("/ready") == (200, "ready\n".to_owned())).await;
    let (status, body) = get("/health");
    let health: Value = serde_json::from_str(&body).unwrap();
    assert_eq!((status, &health["phase"], &health["live"]), (200, &"working".into(), &true.into()), "{health}");
    assert_eq!((get("/").0, ask(probes.address(), "POST /live").0), (404, 405));
    let _ = running.stop().await.unwrap();
    assert_eq!((get("/live").0, get("/ready").0), (200, 503));
    let address = probes.address();
    drop(probes);
    eventually("the port is closed", PATIENCE, async || TcpStream::connect(address).is_err()).await;
}

#[tokio::test]
async fn probes_answer_although_connections_are_kept_open() {
    let (test, app) = shared().await;
    test.declare_at(&app, fast());
    let probes = app.worker().monitor().serve(([127, 0, 0, 1], 0).into()).unwrap();
    let idle: Vec<TcpStream> = (0..200)
        .map(|at| {
            let mut stream = TcpStream::connect(probes.address()).unwrap();
            // Clients that send nothing, half a request, or a request without reading the reply.
            let said: &[u8] = [&b""[..], b"GET /live HTTP/1.1\r\n", b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"][at % 3];
            stream.write_all(said).unwrap();
            stream
        })
        .collect();
    for _ in 0..3 {
        assert_eq!(ask(probes.address(), "GET /live").0, 200);
    }
    drop(idle);
}

#[test]
fn probes_answer_while_handlers_block_the_runtime() {
    let redis = TestRedis::start();
    let url = redis.url();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (go, blocked) = mpsc::channel::<()>();
    let blocked = Arc::new(Mutex::new(blocked));
    let (worker, probes) = runtime.block_on(async {
        let app = App::builder().redis(url.as_str()).build().await.unwrap();
        let handler = move |_: Context, (): ()| {
            let blocked = Arc::clone(&blocked);
            async move {
                let _ = blocked.lock().unwrap().recv_timeout(PATIENCE);
                Ok::<_, JobError>(())
            }
        };
        let jobs = app.task(TASK, fast(), handler).unwrap();
        let worker = app.worker();
        let probes = worker.monitor().serve(([127, 0, 0, 1], 0).into()).unwrap();
        let running = worker.spawn();
        jobs.dispatch(()).await.unwrap();
        (running, probes)
    });
    let begun = Instant::now();
    while ask(probes.address(), "GET /live").0 != 503 {
        assert!(begun.elapsed() < PATIENCE, "it never gets a reply");
        std::thread::sleep(Duration::from_millis(20));
    }
    let (_, body) = ask(probes.address(), "GET /health");
    assert!(body.contains("handlers have blocked the runtime"), "{body}");
    go.send(()).unwrap();
    let _ = runtime.block_on(worker.stop()).unwrap();
}

#[cfg(feature = "metrics")]
#[tokio::test]
async fn metrics_are_served_next_to_the_probes() {
    use heartline::{RunMetrics, WorkerMetrics};
    use prometheus_client::registry::Registry;

    let (test, app) = shared().await;
    let task = test.declare_at(&app, fast());
    let mut registry = Registry::default();
    let worker = app.worker().observe(RunMetrics::register(&mut registry));
    WorkerMetrics::register(&mut registry, worker.monitor());
    let listen = ([127, 0, 0, 1], 0).into();
    let probes = worker.monitor().serve_with_metrics(listen, Arc::new(registry)).unwrap();
    let running = worker.spawn();
    test.journal.open("go");
    task.dispatch("go".into()).await.unwrap().result().await.unwrap();
    let ran = format!("heartline_runs_total{{task=\"{}\",outcome=\"completed\"}} 1\n", test.name);
    let get = |path: &str| ask(probes.address(), &format!("GET {path}"));
    eventually("the run is counted", PATIENCE, async || get("/metrics").1.contains(&ran)).await;
    assert!(get("/metrics").1.ends_with("# EOF\n") && get("/live").0 == 200);
    assert_eq!(ask(app.worker().monitor().serve(listen).unwrap().address(), "GET /metrics").0, 404);
    let _ = running.stop().await.unwrap();
}

#[tokio::test]
async fn a_worker_serves_probes_and_its_metrics_while_it_runs() {
    let (test, app) = shared().await;
    test.declare_at(&app, fast());
    // Another test may take a port that was free.
    let free = || std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let served = (0..20).find_map(|_| Some(free()).and_then(|at| Some((at, app.worker().serve(at).ok()?))));
    let (address, worker) = served.unwrap();
    assert!(app.worker().serve(address).unwrap_err().to_string().contains("cannot listen on 127.0.0.1:"));
    let running = worker.spawn();
    eventually("it is ready", PATIENCE, async || ask(address, "GET /ready").0 == 200).await;
    let (status, metrics) = ask(address, "GET /metrics");
    assert!(status == 200 && metrics.contains("heartline_slots{") && metrics.contains("# EOF"), "{metrics}");
    let _ = running.stop().await.unwrap();
    eventually("the server ends with the worker", PATIENCE, async || TcpStream::connect(address).is_err()).await;
}
