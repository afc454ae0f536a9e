//! Checks of the helpers: a proxy that loses nothing proves nothing.

use super::{
    At, Child, Line, PATIENCE, Proxy, Tap, TestRedis, Warnings, ask_port, calls, dump, eventually, scripts_run, stat,
};
use heartline::testing::RedisServer;
use redis::aio::MultiplexedConnection;
use redis::{AsyncCommands, RedisResult};
use std::time::{Duration, Instant};

async fn through(proxy: &Proxy) -> RedisResult<MultiplexedConnection> {
    let config = redis::AsyncConnectionConfig::new().set_response_timeout(Some(PATIENCE));
    redis::Client::open(proxy.url())?.get_multiplexed_async_connection_with_config(&config).await
}

async fn over(line: &Line) -> MultiplexedConnection {
    let config = redis::AsyncConnectionConfig::new().set_response_timeout(Some(PATIENCE));
    let client = redis::Client::open(line.url()).unwrap();
    client.get_multiplexed_async_connection_with_config(&config).await.unwrap()
}

#[tokio::test]
async fn a_dump_shows_every_type_and_only_the_prefix() {
    let redis = TestRedis::shared();
    let mut conn = redis.conn().await;
    let prefix = redis.unique_prefix() + "[*]{t}:";
    let key = |name: &str| format!("{prefix}{name}");
    let _: () = redis::pipe()
        .set(key("string"), b"a\xff\"")
        .pset_ex(key("expiring"), "x", 60_000)
        .hset_multiple(key("hash"), &[("b", 2), ("a", 1)])
        .sadd(key("set"), &["z", "a", "m"])
        .zadd_multiple(key("zset"), &[(1_700_000_000_000_i64, "late"), (5, "soon")])
        .rpush(key("list"), &["second", "first"])
        .xadd(key("stream"), "1-1", &[("type", "a"), ("id", "7")])
        .xadd(key("stream"), "2-1", &[("type", "b")])
        .set(format!("other-{prefix}"), 1)
        .query_async(&mut conn)
        .await
        .unwrap();
    let shown = redis.dump(&prefix).await;
    let shown = shown.iter().map(|(key, value)| (key[prefix.len()..].to_owned(), value.as_str())).collect::<Vec<_>>();
    let expected = [
        ("expiring", r#"string "x" (expires)"#),
        ("hash", r#"hash {"a": "1", "b": "2"}"#),
        ("list", r#"list ["second", "first"]"#),
        ("set", r#"set {"a", "m", "z"}"#),
        ("stream", r#"stream [1-1 {"id": "7", "type": "a"}, 2-1 {"type": "b"}]"#),
        ("string", r#"string "a\xff\"""#),
        ("zset", r#"zset ["soon": 5, "late": 1700000000000]"#),
    ];
    assert_eq!(shown, expected.map(|(key, value)| (key.to_owned(), value)));
    let removed: u64 = conn.del(shown.iter().map(|(name, _)| key(name)).collect::<Vec<_>>()).await.unwrap();
    assert_eq!(removed, 7);
    assert!(dump(&mut conn, &prefix).await.is_empty());
}

#[tokio::test]
async fn a_lost_reply_belongs_to_an_executed_request() {
    let redis = TestRedis::shared();
    let proxy = Proxy::start(redis.address()).await;
    let mut conn = through(&proxy).await.unwrap();
    let key = redis.unique_prefix();
    let cut = proxy.cut_next_reply_to(key.as_str());
    let pong: String = conn.ping().await.unwrap();
    assert_eq!(pong, "PONG");
    let lost: RedisResult<i64> = conn.incr(&key, 1).await;
    assert!(lost.is_err(), "{lost:?}");
    cut.happened().await;
    let again: i64 = through(&proxy).await.unwrap().incr(&key, 1).await.unwrap();
    assert_eq!(again, 2);
    assert_eq!((proxy.connections(), proxy.discarded()), (2, 1));
}

#[tokio::test]
async fn a_cut_passes_the_replies_before_it() {
    let redis = TestRedis::shared();
    let proxy = Proxy::start(redis.address()).await;
    let conn = through(&proxy).await.unwrap();
    let key = redis.unique_prefix();
    let cut = proxy.cut_next_reply_matching(|request| request.windows(4).any(|part| part == b"LPOS"));
    let (mut first, mut second) = (conn.clone(), conn);
    let mut search = redis::cmd("LPOS");
    search.arg(&key).arg("a");
    let (pushed, position): (RedisResult<i64>, RedisResult<Option<i64>>) =
        tokio::join!(first.rpush(&key, "a"), search.query_async(&mut second));
    cut.happened().await;
    assert_eq!(pushed.unwrap(), 1);
    assert!(position.is_err());
}

#[tokio::test]
async fn a_held_reply_blocks_only_its_connection_until_it_is_released() {
    let redis = TestRedis::shared();
    let proxy = Proxy::start(redis.address()).await;
    let (mut held, mut other) = (through(&proxy).await.unwrap(), through(&proxy).await.unwrap());
    let key = redis.unique_prefix();
    let mut hold = proxy.hold_next_reply_to(key.as_str());
    let call = held.incr::<_, _, i64>(&key, 1);
    tokio::pin!(call);
    tokio::select! {
        answer = &mut call => panic!("{answer:?}"),
        () = hold.happened() => {}
    }
    assert_eq!(other.get::<_, i64>(&key).await.unwrap(), 1);
    drop(hold);
    assert_eq!(call.await.unwrap(), 1);
}

#[tokio::test]
async fn new_connections_lead_where_the_proxy_points() {
    let (one, two) = (TestRedis::shared(), TestRedis::start());
    let proxy = Proxy::start(one.address()).await;
    let mut before = through(&proxy).await.unwrap();
    proxy.lead_to(two.address());
    let mut after = through(&proxy).await.unwrap();
    let key = one.unique_prefix();
    assert_eq!(before.incr::<_, _, i64>(&key, 5).await.unwrap(), 5);
    assert_eq!(after.incr::<_, _, i64>(&key, 1).await.unwrap(), 1);
}

#[tokio::test]
async fn dropped_replies_are_gone_until_restored() {
    let redis = TestRedis::shared();
    let proxy = Proxy::start(redis.address()).await;
    let mut conn = through(&proxy).await.unwrap();
    let key = redis.unique_prefix();
    proxy.cut_replies();
    let counted = proxy.discarded();
    let call = tokio::spawn({
        let key = key.clone();
        async move { conn.incr::<_, _, i64>(key, 1).await }
    });
    proxy.until_discarded(counted + 1).await;
    proxy.drop_connections();
    assert!(call.await.unwrap().is_err());
    proxy.restore_replies();
    let value: i64 = through(&proxy).await.unwrap().get(&key).await.unwrap();
    assert_eq!(value, 1);
}

#[tokio::test]
async fn a_pause_holds_and_loses_nothing() {
    let redis = TestRedis::shared();
    let proxy = Proxy::start(redis.address()).await;
    let mut conn = through(&proxy).await.unwrap();
    let key = redis.unique_prefix();
    proxy.pause();
    let passed = proxy.requests();
    let call = conn.incr::<_, _, i64>(&key, 1);
    tokio::pin!(call);
    assert!(tokio::time::timeout(Duration::from_millis(50), &mut call).await.is_err());
    assert_eq!(proxy.requests(), passed);
    proxy.resume();
    assert_eq!(call.await.unwrap(), 1);
}

#[tokio::test]
async fn an_outage_refuses_and_ends() {
    let redis = TestRedis::shared();
    let proxy = Proxy::start(redis.address()).await;
    let mut conn = through(&proxy).await.unwrap();
    assert_eq!(proxy.open(), 1);
    for _ in 0..3 {
        proxy.refuse().await;
        eventually("the old connection is closed", PATIENCE, async || proxy.open() == 0).await;
        assert!(conn.ping::<String>().await.is_err());
        let refused = through(&proxy).await.unwrap_err();
        assert!(refused.is_connection_refusal(), "{refused:?}");
        proxy.accept().await;
        conn = through(&proxy).await.unwrap();
        conn.ping::<String>().await.unwrap();
    }
}

#[tokio::test]
async fn bytes_on_a_delayed_line_do_not_wait_for_each_other() {
    let redis = TestRedis::shared();
    let line = Line::start(redis.address()).await;
    let conn = over(&line).await;
    let (delay, calls) = (Duration::from_millis(100), 50);
    line.delay(delay);
    let start = Instant::now();
    let mut first = conn.clone();
    assert_eq!(first.ping::<String>().await.unwrap(), "PONG");
    assert!(start.elapsed() >= 2 * delay, "{:?}", start.elapsed());
    let start = Instant::now();
    let waiting: Vec<_> = (0..calls)
        .map(|_| {
            let mut conn = conn.clone();
            tokio::spawn(async move { conn.ping::<String>().await })
        })
        .collect();
    for answer in waiting {
        assert_eq!(answer.await.unwrap().unwrap(), "PONG");
    }
    let passed = start.elapsed();
    assert!(passed >= 2 * delay && passed < delay * calls, "{passed:?}");
    line.delay(Duration::ZERO);
    first.ping::<String>().await.unwrap();
}

#[tokio::test]
async fn a_slow_line_passes_its_rate_on_each_connection() {
    let redis = TestRedis::shared();
    let line = Line::start(redis.address()).await;
    let (mut one, mut two) = (over(&line).await, over(&line).await);
    let (key, value) = (redis.unique_prefix(), vec![b'x'; 128 << 10]);
    line.rate(Some(512 << 10));
    let (one_key, two_key) = (format!("{key}:1"), format!("{key}:2"));
    for wanted in [Some(()), None] {
        let start = Instant::now();
        let (first, second) =
            tokio::join!(one.set::<_, _, ()>(&one_key, &value), two.set::<_, _, ()>(&two_key, &value));
        first.unwrap();
        second.unwrap();
        let passed = start.elapsed();
        if wanted.is_some() {
            // A quarter of a second for each, at the same time.
            assert!(passed >= Duration::from_millis(230), "{passed:?}");
        }
        line.rate(None);
    }
    assert_eq!(one.strlen::<_, usize>(&two_key).await.unwrap(), value.len());
}

#[tokio::test]
async fn silenced_connections_stay_open_and_new_ones_work() {
    let redis = TestRedis::shared();
    let line = Line::start(redis.address()).await;
    let (mut old, mut spared, mut known) = (over(&line).await, over(&line).await, over(&line).await);
    let key = redis.unique_prefix();
    let name = format!("client-{key}");
    let () = redis::cmd("CLIENT").arg("SETNAME").arg(&name).query_async(&mut old).await.unwrap();
    let info: String = redis::cmd("CLIENT").arg("INFO").query_async(&mut known).await.unwrap();
    let address = info.split(' ').find_map(|word| word.strip_prefix("addr=")).unwrap().parse().unwrap();
    assert_eq!(line.connections(), 3);
    assert!(line.hush_number(0) && line.hush_client(address));
    assert!(!line.hush_number(0) && !line.hush_client(address), "they are silent already");
    let missed = tokio::time::timeout(Duration::from_millis(100), known.ping::<String>()).await;
    assert!(missed.is_err(), "{missed:?}");
    let call = tokio::spawn(async move { old.incr::<_, _, i64>(key, 1).await });
    assert_eq!(spared.ping::<String>().await.unwrap(), "PONG");
    line.hush();
    let missed = tokio::time::timeout(Duration::from_millis(100), spared.ping::<String>()).await;
    assert!(missed.is_err(), "{missed:?}");
    let mut new = over(&line).await;
    assert_eq!((new.ping::<String>().await.unwrap().as_str(), line.connections()), ("PONG", 4));
    assert!(!call.is_finished(), "no side noticed");
    // The server does not notice either that the client has left.
    call.abort();
    assert!(call.await.unwrap_err().is_cancelled());
    let list: String = redis::cmd("CLIENT").arg("LIST").query_async(&mut new).await.unwrap();
    assert!(list.contains(&format!("name={name} ")), "{list}");
}

#[tokio::test]
async fn a_line_reports_to_each_side_that_the_other_has_closed() {
    let redis = TestRedis::start();
    let line = Line::start(redis.address()).await;
    line.delay(Duration::from_millis(10));
    let (mut closed, mut killed, mut direct) = (over(&line).await, over(&line).await, redis.conn().await);
    let id: u64 = redis::cmd("CLIENT").arg("ID").query_async(&mut killed).await.unwrap();
    let () = redis::cmd("CLIENT").arg("KILL").arg("ID").arg(id).query_async(&mut direct).await.unwrap();
    eventually("the client notices", PATIENCE, async || killed.ping::<String>().await.is_err()).await;
    closed.ping::<String>().await.unwrap();
    drop(closed);
    eventually("the server notices", PATIENCE, async || {
        let list: String = redis::cmd("CLIENT").arg("LIST").query_async(&mut direct).await.unwrap();
        list.lines().count() == 1
    })
    .await;
}

#[tokio::test]
async fn a_rewritten_info_shows_another_version() {
    let redis = TestRedis::shared();
    let mut direct = redis.conn().await;
    let info: String = redis::cmd("INFO").arg("server").query_async(&mut direct).await.unwrap();
    let version = info.lines().find(|line| line.starts_with("redis_version:")).unwrap();
    let proxy = Proxy::start(redis.address()).await;
    proxy.rewrite(version, "redis_version:5.0.1");
    let mut conn = through(&proxy).await.unwrap();
    let rewritten: String = redis::cmd("INFO").arg("server").query_async(&mut conn).await.unwrap();
    assert_eq!(rewritten.replace("redis_version:5.0.1", version).lines().next(), info.lines().next());
    assert!(rewritten.contains("redis_version:5.0.1\r\n"), "{rewritten}");
}

#[tokio::test]
async fn a_private_server_can_be_killed_and_restarted() {
    let mut redis = TestRedis::from_process(RedisServer::start().unwrap());
    let before = redis.url();
    redis.process().kill();
    redis.process().restart().unwrap();
    assert_eq!(redis.url(), before);
    assert!(redis.dump("").await.is_empty());
}

#[tokio::test]
async fn eventually_returns_what_it_found_and_names_what_it_missed() {
    let mut looks = 0;
    let found = eventually("three looks", PATIENCE, async || {
        looks += 1;
        (looks == 3).then_some("found")
    });
    assert_eq!(found.await, "found");
    let missed = tokio::spawn(eventually("the impossible", Duration::ZERO, async || false)).await.unwrap_err();
    let text = missed.into_panic().downcast::<String>().unwrap();
    assert!(text.contains("the impossible") && text.contains("checks.rs"), "{text}");
}

#[tokio::test]
async fn warnings_of_any_thread_are_captured_with_their_spans() {
    let warnings = Warnings::capture();
    let name = TestRedis::shared().unique_prefix();
    let task = name.clone();
    std::thread::spawn(move || {
        let span = tracing::info_span!("sweep", %task, count = tracing::field::Empty);
        let _entered = span.enter();
        span.record("count", 3);
        tracing::info!("not a warning");
        tracing::warn!(attempt = 2, "redis is {}", "gone");
    })
    .join()
    .unwrap();
    let line = warnings.wait_for(&[&name, "redis is gone"], PATIENCE).await;
    assert!(line.starts_with("WARN ") && line.ends_with(&format!(" in sweep{{task={name} count=3}}")), "{line}");
    assert!(line.contains("attempt=2"), "{line}");
    assert!(!warnings.all().iter().any(|line| line.contains("not a warning")));
}

#[tokio::test]
async fn a_subscriber_that_breaks_panics_its_thread_once() {
    let warnings = Warnings::capture();
    let name = TestRedis::shared().unique_prefix();
    warnings.break_at(&[&name, "too much"]);
    let log = |what: &'static str| {
        let name = name.clone();
        std::thread::spawn(move || tracing::warn!(name, "{what}")).join().is_ok()
    };
    assert!(log("not yet"));
    assert!(!log("too much"));
    assert!(log("too much"));
}

#[tokio::test]
async fn a_subscriber_that_holds_a_line_releases_its_thread() {
    let warnings = Warnings::capture();
    let name = TestRedis::shared().unique_prefix();
    let held = warnings.hold_at(&[&name, "stay"]);
    let thread = std::thread::spawn({
        let name = name.clone();
        move || tracing::info!(name, "stay")
    });
    held.reached().await;
    assert!(!thread.is_finished());
    drop(held);
    eventually("it continues", PATIENCE, async || thread.is_finished()).await;
}

#[tokio::test]
async fn a_subscriber_breaks_at_that_moment_of_a_span_and_once() {
    let warnings = Warnings::capture();
    let name = TestRedis::shared().unique_prefix();
    let pass = || {
        let name = name.clone();
        let steps = std::thread::spawn(move || {
            let steps = std::cell::Cell::new(0);
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                let span = tracing::info_span!("run", name);
                steps.set(1);
                let entered = span.enter();
                steps.set(2);
                drop(entered);
                steps.set(3);
            }));
            steps.get()
        });
        steps.join().unwrap()
    };
    for (at, steps) in [(At::New, 0), (At::Enter, 1), (At::Exit, 2)] {
        warnings.break_at_span(at, &["run{", &name]);
        assert_eq!((pass(), pass()), (steps, 3), "{at:?}");
    }
}

#[tokio::test]
async fn a_tap_copies_requests_and_the_statistics_count_them() {
    let redis = TestRedis::start();
    let proxy = Proxy::start(redis.address()).await;
    let tap = Tap::on(&proxy, "copied");
    let (mut direct, mut conn) = (redis.conn().await, through(&proxy).await.unwrap());
    let connected = stat(&mut direct, "total_connections_received").await;
    for key in ["copied", "other", "copied"] {
        conn.incr::<_, _, i64>(key, 1).await.unwrap();
    }
    let script = "return redis.call('INCR', KEYS[1])";
    let number: i64 = redis::cmd("EVAL").arg(script).arg(1).arg("copied").query_async(&mut conn).await.unwrap();
    assert_eq!(number, 3);
    let copies = tap.requests();
    assert_eq!(copies.len(), 3);
    assert_eq!(copies[0], b"*3\r\n$6\r\nINCRBY\r\n$6\r\ncopied\r\n$1\r\n1\r\n");
    assert_eq!((scripts_run(&mut direct).await, calls(&mut direct, &["incr", "incrby"]).await), (1, 4));
    assert_eq!(stat(&mut direct, "total_connections_received").await, connected);
}

/// Not a test: the program of the child in the next one.
#[test]
fn a_child_that_writes_without_end() {
    let Some(role) = Child::role() else { return };
    while std::io::Write::write_all(&mut std::io::stderr(), role.as_bytes()).is_ok() {}
}

#[tokio::test]
async fn a_child_runs_this_program_and_accepts_signals() {
    let mut child = Child::start(module_path!(), "a_child_that_writes_without_end", "spam");
    child.drain();
    assert!(child.lives());
    child.signal("KILL");
    assert!(!child.exits().await.success() && !child.lives());
    assert_eq!(Child::role(), None);
}

#[tokio::test]
async fn a_port_answers_or_gives_none() {
    let redis = TestRedis::start();
    let port = redis.address().port();
    assert_eq!(ask_port::<String>(port, &["PING"], PATIENCE).await.as_deref(), Some("PONG"));
    assert_eq!(ask_port::<String>(port, &["NONSENSE"], PATIENCE).await, None);
}
