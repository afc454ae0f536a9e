//! Bytes per job: what is written for it, which is the same on every server, and what the server needs for that.

use crate::costs::meter::{Meter, RAN, WORKER};
use crate::support::{PATIENCE, TestRedis, eventually};
use heartline::App;
use redis::Value;
use redis::aio::MultiplexedConnection;

/// An id as Heartline generates it.
const ID: usize = 22;
/// The payload of every job here.
const PAYLOAD: usize = 64;
/// A worker, a colon, a fence.
const TOKEN: usize = WORKER.len() + 1 + FENCE;
const FENCE: usize = 16;
/// Milliseconds.
const STAMP: usize = 13;
/// The id of a stream entry: milliseconds, and a number below 10.
const ENTRY: usize = 15;

/// A list of ids as words of an event or of a record.
const fn words(n: usize) -> usize {
    n * (ID + 1) - 1
}

/// The bytes of every key of the task, without the name of the key: fields, members and values.
async fn written(meter: &mut Meter) -> Vec<(String, usize)> {
    let mut written = Vec::new();
    for key in meter.keys().await {
        let cmd = match meter.kind(&key).await.as_str() {
            "hash" => redis::cmd("HGETALL").arg(meter.task.key(&key)).clone(),
            "set" => redis::cmd("SMEMBERS").arg(meter.task.key(&key)).clone(),
            "list" => redis::cmd("LRANGE").arg(meter.task.key(&key)).arg(0).arg(-1).clone(),
            "zset" => redis::cmd("ZRANGE").arg(meter.task.key(&key)).arg(0).arg(-1).clone(),
            "stream" => redis::cmd("XRANGE").arg(meter.task.key(&key)).arg("-").arg("+").clone(),
            other => panic!("{key} is a {other}"),
        };
        let value: Value = cmd.query_async(&mut meter.task.conn).await.unwrap();
        written.push((key, bytes(&value)));
    }
    written
}

fn bytes(value: &Value) -> usize {
    match value {
        Value::BulkString(bytes) => bytes.len(),
        Value::Array(items) => items.iter().map(bytes).sum(),
        other => panic!("{other:?}"),
    }
}

fn named(keys: &[(&str, usize)]) -> Vec<(String, usize)> {
    keys.iter().map(|(key, bytes)| (key.to_string(), *bytes)).collect()
}

#[tokio::test]
async fn a_job_is_written_once_and_its_id_once_in_each_of_its_places() {
    let n = 200;
    let mut meter = Meter::new("1").await;
    // Names of the options, their values, and wire 1.
    let options = "wire1maxCount1heartbeatautomaticeventModeonprioritynormal".len();
    let options = options + "keepCompleted1keepFailed1keepCancelled1".len() + "fence".len() + FENCE;
    let options = options + "maxAgeCompleted86400000maxAgeFailed2592000000maxAgeCancelled2592000000".len();
    let options = options + "maxCountCompleted100000maxCountFailedmaxCountCancelled".len() + "declaredAt".len() + STAMP;
    let options = options + "declaredBy".len() + WORKER.len();

    meter.dispatch(n).await;
    let dispatched = ENTRY + "total200worker".len() + "dispatched".len() + words(n);
    let waiting = [
        ("events", dispatched),
        ("meta", options + "in200events200largest1024".len()),
        ("payload", n * (ID + PAYLOAD)),
        ("wait", n * ID),
        ("wake", "markerspare".len()),
    ];
    assert_eq!(written(&mut meter).await, named(&waiting));

    meter.settle(0, None, n).await;
    let started = ENTRY + "total400worker".len() + WORKER.len() + "started".len() + words(n);
    // In addition to the fence and the ids: its number, and how many begin.
    let record = |rows: &str, ids: usize| WORKER.len() + rows.len() + "\n\n\n\n\n".len() + FENCE + ids;
    let asked = "interval1000ask1000".len() + "asker".len() + WORKER.len() + "askedBy".len() + WORKER.len();
    let meta = options + "in200events400largest1024".len() + asked;
    let running = [
        ("active", n * ID),
        ("events", dispatched + started),
        ("locks", n * (ID + TOKEN)),
        ("meta", meta),
        ("payload", n * (ID + PAYLOAD)),
        ("replies", record("1200", words(n))),
    ];
    assert_eq!(written(&mut meter).await, named(&running));

    meter.settle(n, Some("42"), 0).await;
    let completed = ENTRY + "total600worker".len() + WORKER.len() + "completed".len() + words(n);
    let completed = completed + "ran".len() + n * (RAN.len() + 1) - 1;
    let kept = [
        ("completed", n * ID),
        ("events", dispatched + started + completed),
        ("meta", meta + "out200".len() + "lastCompletedAt".len() + STAMP),
        ("payload", n * (ID + PAYLOAD)),
        ("replies", record("20", 0)),
        ("result", n * (ID + "42".len())),
    ];
    assert_eq!(written(&mut meter).await, named(&kept));
}

/// The bytes that a server needs for a job, and the tolerance from run to run.
struct Needs {
    payload: f64,
    wait: f64,
    locks: f64,
    active: f64,
    /// The entries of dispatch alone, at 100,000 jobs.
    dispatched: f64,
    /// With `payload`, `wait` and `events`, at 100,000 jobs.
    used: f64,
}

// Debian's allocator gives memory in steps of 16. An id is 24 with its header and takes 32 as a field or member, the
// payload is 68 and takes 80, the token is 45 and takes 48. An entry counts as 24, its slot in the table is 8.2; a
// list takes 24.2 for an id. So `payload` is 32 + 80 + 24 + 8.2, `locks` is 32 + 48 + 24 + 8.2, `active` is 32 + 24 +
// 8.2. An event is 23 in an entry of 200, and entries of that size leave a part of their node empty. At 100,000 jobs a
// slot is 10.5, and the entry really takes 32: 32 + 80 + 32 + 10.5 for `payload`, 24.2 for `wait`, 28.1 for `events`.
// The events are bounded: those of the last 200,000 jobs remain of a million, which is 5.6 per job.
const REDIS_7_0: Needs =
    Needs { payload: 144.2, wait: 24.2, locks: 112.2, active: 64.2, dispatched: 28.1, used: 206.7 };
// Its own allocator has steps of 8: an id takes 24, and so does an entry.
const REDIS_6_2: Needs =
    Needs { payload: 136.2, wait: 24.1, locks: 104.2, active: 56.2, dispatched: 25.8, used: 188.5 };
// A field and its value are one piece, and tables have buckets.
const VALKEY_8_1: Needs =
    Needs { payload: 121.3, wait: 24.1, locks: 89.3, active: 43.9, dispatched: 23.6, used: 167.7 };
// Any other server: no more than this.
const OTHER: Needs = Needs { payload: 160.0, wait: 28.0, locks: 130.0, active: 75.0, dispatched: 32.0, used: 240.0 };

/// The figures of this server, and whether it is known.
async fn needs(conn: &mut MultiplexedConnection) -> (Needs, bool) {
    let server: String = redis::cmd("INFO").arg("server").query_async(conn).await.unwrap();
    let memory: String = redis::cmd("INFO").arg("memory").query_async(conn).await.unwrap();
    let has = |line: &str| server.lines().chain(memory.lines()).any(|other| other.starts_with(line));
    if has("valkey_version:") {
        if has("valkey_version:8.1.") && has("mem_allocator:libc") { (VALKEY_8_1, true) } else { (OTHER, false) }
    } else if has("redis_version:7.0.") && has("mem_allocator:jemalloc-5.3.") {
        (REDIS_7_0, true)
    } else if has("redis_version:6.2.") && has("mem_allocator:jemalloc-5.1.") {
        (REDIS_6_2, true)
    } else {
        (OTHER, false)
    }
}

fn assert_needs(what: &str, bytes: f64, expected: f64, known: bool) {
    let fits = if known { (bytes - expected).abs() <= 0.6 } else { bytes <= expected };
    assert!(fits, "{what}: {bytes:.1} bytes a job, not {expected:.1}");
}

#[tokio::test]
async fn the_memory_of_a_waiting_and_of_a_running_job_is_unchanged() {
    // Just below a power of two, and long after the last growth of the tables: none of them is between two sizes.
    let n = 16_000;
    let mut meter = Meter::new("0").await;
    let (needs, known) = needs(&mut meter.task.conn).await;
    for _ in 0..n / 200 {
        meter.dispatch(200).await;
    }
    for (key, expected) in [("payload", needs.payload), ("wait", needs.wait)] {
        assert_needs(key, meter.memory(key).await / n as f64, expected, known);
    }
    for _ in 0..n / 200 {
        meter.settle(0, None, 200).await;
    }
    // Two heartbeats, and a look at each running job: they move each table to its final size.
    for _ in 0..2 * n / 500 {
        meter.beat(500).await;
        let ids: Vec<&str> = meter.held.iter().take(500).map(|(id, _)| &**id).collect();
        let active = meter.task.key("active");
        let _: Value = redis::cmd("SMISMEMBER").arg(active).arg(ids).query_async(&mut meter.task.conn).await.unwrap();
        meter.held.rotate_left(500);
    }
    for (key, expected) in [("payload", needs.payload), ("locks", needs.locks), ("active", needs.active)] {
        assert_needs(key, meter.memory(key).await / n as f64, expected, known);
    }
}

/// Bytes of data, and of the buffers of this connection alone.
async fn used_memory(conn: &mut MultiplexedConnection) -> f64 {
    let mut only = conn.clone();
    eventually("there is no other connection", PATIENCE, async || {
        let info: String = redis::cmd("INFO").arg("clients").query_async(&mut only).await.unwrap();
        info.contains("connected_clients:1\r\n")
    })
    .await;
    // The log of slow calls keeps their arguments, and a busy machine makes many calls slow.
    let _: () = redis::cmd("SLOWLOG").arg("RESET").query_async(conn).await.unwrap();
    let info: String = redis::cmd("INFO").arg("memory").query_async(conn).await.unwrap();
    info.lines().find_map(|line| line.strip_prefix("used_memory:")).unwrap().parse().unwrap()
}

#[tokio::test]
async fn the_memory_of_a_backlog_of_100_000_jobs_is_unchanged() {
    let n = 100_000;
    let redis = TestRedis::start();
    let mut conn = redis.conn().await;
    let (needs, known) = needs(&mut conn).await;
    let build = async || App::builder().redis(redis.url()).prefix("costs").build().await.unwrap();
    // From here on the scripts are in the cache.
    drop(build().await);
    let before = used_memory(&mut conn).await;
    let app = build().await;
    let task = app.task_ref::<String, ()>("backlog").unwrap();
    for _ in 0..10 {
        task.dispatch_many(vec!["x".repeat(PAYLOAD - 2); n / 10]).await.unwrap();
    }
    drop((task, app));
    let mut cmd = redis::cmd("MEMORY");
    let cmd = cmd.arg("USAGE").arg("costs:{backlog}:events").arg("SAMPLES").arg(0);
    let events: f64 = cmd.query_async(&mut conn).await.unwrap();
    assert_needs("events", events / n as f64, needs.dispatched, known);
    // This is the memory of the whole server. On a busy machine, buffers and the script interpreter hold up to 300 KiB
    // more, and tables take their final size later.
    let spread = if known { 3.0 } else { 0.0 };
    let what = format!("a job takes {:.1} bytes of used_memory", needs.used);
    eventually(&what, PATIENCE, async || {
        let used = (used_memory(&mut conn).await - before) / n as f64;
        (needs.used - used).abs() <= spread || used <= needs.used
    })
    .await;
}
