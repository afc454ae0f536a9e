//! Redis over TLS, through a terminator with certificates of a test CA.

use crate::support::tls::{Ca, Pair, terminator_of};
use crate::support::{PATIENCE, TestRedis};
use heartline::testing::RedisServer;
use heartline::{App, AppBuilder, Context, Error, JobError, StopReason, TaskOptions};
use rcgen::{BasicConstraints, IsCa, date_time_ymd};

/// A TLS port in front of the server; requires a certificate signed by `clients`, if given. Returns its port.
async fn terminator(redis: &TestRedis, pair: &Pair, clients: Option<&Ca>) -> u16 {
    terminator_of(redis.address(), pair, clients, false).await
}

fn app(port: u16, prefix: &str) -> AppBuilder {
    App::builder().redis(format!("rediss://localhost:{port}/")).prefix(prefix)
}

/// Why the App cannot be built, in one line.
async fn refusal(builder: AppBuilder) -> (Error, String) {
    let error = tokio::time::timeout(PATIENCE, builder.build()).await.unwrap().unwrap_err();
    let mut text = error.to_string();
    if let Some(source) = std::error::Error::source(&error) {
        text = format!("{text}: {source}");
    }
    (error, text)
}

async fn works(builder: AppBuilder) {
    let app = builder.build().await.unwrap();
    let task =
        app.task("t", TaskOptions::new(), async |_: Context, text: String| Ok::<_, JobError>(text.len())).unwrap();
    let worker = app.worker().spawn();
    let handle = task.dispatch("x".repeat(700_000)).await.unwrap();
    let length = tokio::time::timeout(PATIENCE, handle.result()).await.unwrap().unwrap();
    assert_eq!(length, 700_000);
    assert_eq!(worker.stop().await.unwrap(), StopReason::Shutdown);
}

#[tokio::test]
async fn a_worker_and_a_producer_work_over_tls() {
    let (redis, ca) = (TestRedis::plain(), Ca::new());
    let port = terminator(&redis, &ca.sign("localhost", |_| {}), None).await;
    works(app(port, "tls-works").tls_ca(ca.pem())).await;
}

#[tokio::test]
async fn a_server_that_requires_a_client_certificate_gets_it() {
    let (redis, ca, clients) = (TestRedis::plain(), Ca::new(), Ca::new());
    let port = terminator(&redis, &ca.sign("localhost", |_| {}), Some(&clients)).await;
    let own = clients.sign("worker", |_| {});
    works(app(port, "tls-client").tls_ca(ca.pem()).tls_client(own.cert, own.key)).await;

    let (error, text) = refusal(app(port, "tls-client").tls_ca(ca.pem())).await;
    assert!(matches!(error, Error::Connect { .. }) && !error.is_retryable(), "{error:?}");
    assert!(text.contains("CertificateRequired") && text.contains(&format!("rediss://localhost:{port}/0")), "{text}");
}

#[tokio::test]
async fn an_invalid_certificate_is_an_error_that_is_not_retryable() {
    let (redis, ca) = (TestRedis::shared(), Ca::new());
    let expired = ca.sign("localhost", |params| {
        (params.not_before, params.not_after) = (date_time_ymd(2020, 1, 1), date_time_ymd(2021, 1, 1));
    });
    let of_ca = ca.sign("localhost", |params| params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained));
    let (good, other) = (ca.sign("localhost", |_| {}), ca.sign("elsewhere", |_| {}));
    for (pair, ca, why) in [
        (&good, Ca::new().pem(), "UnknownIssuer"),
        (&of_ca, ca.pem(), "one with CA:FALSE"),
        (&expired, ca.pem(), "Expired"),
        (&other, ca.pem(), "not valid for name"),
    ] {
        let port = terminator(&redis, pair, None).await;
        let (error, text) = refusal(app(port, "tls").tls_ca(ca)).await;
        assert!(matches!(error, Error::Connect { .. }) && !error.is_retryable(), "{error:?}");
        assert!(text.to_lowercase().contains(&why.to_lowercase()), "{why}: {text}");
    }
    // Without our CA: Mozilla's roots do not include it.
    let port = terminator(&redis, &good, None).await;
    let (error, text) = refusal(app(port, "tls")).await;
    assert!(!error.is_retryable() && text.contains("UnknownIssuer"), "{text}");
}

#[tokio::test]
async fn impossible_settings_are_refused_and_reveal_no_secret() {
    let pair = Ca::new().sign("localhost", |_| {});
    let plain = || App::builder().redis("redis://:secret@127.0.0.1/");
    for (builder, field) in [
        (app(1, "tls").tls_ca(""), "tls_ca"),
        (app(1, "tls").tls_ca(pair.key.clone()), "tls_ca"),
        (app(1, "tls").tls_client("", pair.key.clone()), "tls_client"),
        (app(1, "tls").tls_client(pair.cert.clone(), "secret"), "tls"),
        (plain().tls_ca(pair.cert.clone()), "redis"),
        (plain().tls_client(pair.cert.clone(), pair.key.clone()), "redis"),
        (App::builder().redis("rediss://:secret@localhost:1/#insecure"), "redis"),
    ] {
        let shown = format!("{builder:?}");
        let (error, text) = refusal(builder).await;
        let Error::Config(faults) = error else { panic!("{field}: {error:?}") };
        let fields: Vec<&str> = faults.iter().map(|fault| fault.field.as_str()).collect();
        assert_eq!(fields, [field], "{text}");
        assert!(!text.contains("secret") && !shown.contains("secret"), "{text} {shown}");
    }
}

#[tokio::test]
async fn the_error_suggests_tls_if_only_one_side_uses_it() {
    let (redis, ca) = (TestRedis::shared(), Ca::new());
    let (_, text) = refusal(app(redis.address().port(), "tls").tls_ca(ca.pem())).await;
    assert!(text.contains("does the port speak TLS?"), "{text}");
    let port = terminator(&redis, &ca.sign("localhost", |_| {}), None).await;
    let (_, text) = refusal(App::builder().redis(format!("redis://localhost:{port}/"))).await;
    assert!(text.contains("does the port speak TLS, or require") || text.contains("is not Redis"), "{text}");
}

/// Sends a command to a server that replies OK.
async fn tell(server: &RedisServer, words: &str) {
    let client = redis::Client::open(server.url()).unwrap();
    let mut conn = client.get_multiplexed_async_connection_with_config(&TestRedis::patient()).await.unwrap();
    let mut words = words.split(' ');
    let mut cmd = redis::cmd(words.next().unwrap());
    let () = cmd.arg(words.collect::<Vec<_>>()).query_async(&mut conn).await.unwrap();
}

#[tokio::test]
async fn nodes_of_a_cluster_are_reached_over_tls_by_announced_names() {
    let (ca, clients) = (Ca::new(), Ca::new());
    let node = RedisServer::builder().arg("--cluster-enabled").arg("yes").start().unwrap();
    let own = clients.sign("worker", |_| {});
    let port =
        terminator_of(([127, 0, 0, 1], node.port()).into(), &ca.sign("localhost", |_| {}), Some(&clients), false).await;
    // The first call uses the given address, everything else the address that the node announces.
    for words in [
        "CLUSTER ADDSLOTSRANGE 0 16383",
        &format!("CONFIG SET cluster-announce-port {port}"),
        "CONFIG SET cluster-announce-hostname localhost",
        "CONFIG SET cluster-preferred-endpoint-type hostname",
    ] {
        tell(&node, words).await;
    }
    let app = |port: u16, ca: String| App::builder().redis(format!("rediss-cluster://localhost:{port}")).tls_ca(ca);
    works(app(port, ca.pem()).tls_client(own.cert, own.key)).await;
    // Without a client certificate the server closes the connection, and its reason may arrive too late.
    let (error, _) = refusal(app(port, ca.pem())).await;
    assert!(matches!(error, Error::Connect { .. }), "{error:?}");
    let (error, text) = refusal(app(port, Ca::new().pem())).await;
    assert!(matches!(error, Error::Connect { .. }) && !error.is_retryable(), "{error:?}");
    assert!(text.contains("UnknownIssuer") && text.contains("rediss-cluster://localhost"), "{text}");
    let (_, text) = refusal(app(node.port(), ca.pem())).await;
    assert!(text.contains("does the port speak TLS?"), "{text}");
}
