//! Redis over TLS, behind a terminator with certificates of a CA of the test's own.

use crate::support::{PATIENCE, TestRedis};
use heartline::testing::RedisServer;
use heartline::{App, AppBuilder, Context, Error, JobError, StopReason, TaskOptions};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, date_time_ymd};
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};

struct Ca(CertifiedIssuer<'static, KeyPair>);

/// A certificate and its key, as PEM.
struct Pair {
    cert: String,
    key: String,
}

impl Ca {
    fn new() -> Ca {
        let mut params = CertificateParams::default();
        // Another one is not to be taken for this one by its name.
        let name = format!("test {}", fastrand::u64(..));
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Ca(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    fn pem(&self) -> String {
        self.0.pem()
    }

    fn sign(&self, host: &str, shape: impl FnOnce(&mut CertificateParams)) -> Pair {
        let mut params = CertificateParams::new([host.to_owned()]).unwrap();
        shape(&mut params);
        let key = KeyPair::generate().unwrap();
        Pair { cert: params.signed_by(&key, &self.0).unwrap().pem(), key: key.serialize_pem() }
    }
}

/// Takes TLS connections and passes them on to the server; asks for a certificate that `clients` has signed, if that is given.
/// Returns its port.
async fn terminator(redis: &TestRedis, pair: &Pair, clients: Option<&Ca>) -> u16 {
    terminator_of(redis.address(), pair, clients).await
}

async fn terminator_of(server: SocketAddr, pair: &Pair, clients: Option<&Ca>) -> u16 {
    let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions().unwrap();
    let builder = match clients {
        Some(ca) => {
            let mut roots = RootCertStore::empty();
            roots.add(CertificateDer::from_pem_slice(ca.pem().as_bytes()).unwrap()).unwrap();
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build().unwrap();
            builder.with_client_cert_verifier(verifier)
        }
        None => builder.with_no_client_auth(),
    };
    let cert = CertificateDer::from_pem_slice(pair.cert.as_bytes()).unwrap();
    let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(builder.with_single_cert(vec![cert], key).unwrap()));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                // Whatever goes wrong ends the connection, which is what the other side sees.
                if let (Ok(mut client), Ok(mut server)) =
                    (acceptor.accept(client).await, TcpStream::connect(server).await)
                {
                    let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
                }
            });
        }
    });
    port
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
    let (redis, ca) = (TestRedis::shared(), Ca::new());
    let port = terminator(&redis, &ca.sign("localhost", |_| {}), None).await;
    works(app(port, "tls-works").tls_ca(ca.pem())).await;
}

#[tokio::test]
async fn a_server_that_asks_for_a_certificate_gets_it() {
    let (redis, ca, clients) = (TestRedis::shared(), Ca::new(), Ca::new());
    let port = terminator(&redis, &ca.sign("localhost", |_| {}), Some(&clients)).await;
    let own = clients.sign("worker", |_| {});
    works(app(port, "tls-client").tls_ca(ca.pem()).tls_client(own.cert, own.key)).await;

    let (error, text) = refusal(app(port, "tls-client").tls_ca(ca.pem())).await;
    assert!(matches!(error, Error::Connect { .. }) && !error.is_retryable(), "{error:?}");
    assert!(text.contains("CertificateRequired") && text.contains(&format!("rediss://localhost:{port}/0")), "{text}");
}

#[tokio::test]
async fn a_certificate_that_does_not_hold_is_an_error_that_no_repetition_mends() {
    let (redis, ca) = (TestRedis::shared(), Ca::new());
    let expired = ca.sign("localhost", |params| {
        (params.not_before, params.not_after) = (date_time_ymd(2020, 1, 1), date_time_ymd(2021, 1, 1));
    });
    let (good, other) = (ca.sign("localhost", |_| {}), ca.sign("elsewhere", |_| {}));
    for (pair, ca, why) in [
        (&good, Ca::new().pem(), "UnknownIssuer"),
        (&expired, ca.pem(), "Expired"),
        (&other, ca.pem(), "not valid for name"),
    ] {
        let port = terminator(&redis, pair, None).await;
        let (error, text) = refusal(app(port, "tls").tls_ca(ca)).await;
        assert!(matches!(error, Error::Connect { .. }) && !error.is_retryable(), "{error:?}");
        assert!(text.to_lowercase().contains(&why.to_lowercase()), "{why}: {text}");
    }
    // No CA of ours: Mozilla's roots know nothing of it.
    let port = terminator(&redis, &good, None).await;
    let (error, text) = refusal(app(port, "tls")).await;
    assert!(!error.is_retryable() && text.contains("UnknownIssuer"), "{text}");
}

#[tokio::test]
async fn settings_that_cannot_be_meant_are_refused_and_show_nothing_secret() {
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
async fn where_one_side_speaks_no_tls_the_error_asks_whether_it_does() {
    let (redis, ca) = (TestRedis::shared(), Ca::new());
    let (_, text) = refusal(app(redis.address().port(), "tls").tls_ca(ca.pem())).await;
    assert!(text.contains("does the port speak TLS?"), "{text}");
    let port = terminator(&redis, &ca.sign("localhost", |_| {}), None).await;
    let (_, text) = refusal(App::builder().redis(format!("redis://localhost:{port}/"))).await;
    assert!(text.contains("does the port speak TLS?") || text.contains("is not Redis"), "{text}");
}

/// Says something to a server that answers with OK.
async fn tell(server: &RedisServer, words: &str) {
    let client = redis::Client::open(server.url()).unwrap();
    let mut conn = client.get_multiplexed_async_connection_with_config(&TestRedis::patient()).await.unwrap();
    let mut words = words.split(' ');
    let mut cmd = redis::cmd(words.next().unwrap());
    let () = cmd.arg(words.collect::<Vec<_>>()).query_async(&mut conn).await.unwrap();
}

#[tokio::test]
async fn nodes_of_a_cluster_are_reached_over_tls_by_the_names_that_they_announce() {
    let (ca, clients) = (Ca::new(), Ca::new());
    let node = RedisServer::builder().arg("--cluster-enabled").arg("yes").start().unwrap();
    let own = clients.sign("worker", |_| {});
    let port = terminator_of(([127, 0, 0, 1], node.port()).into(), &ca.sign("localhost", |_| {}), Some(&clients)).await;
    // The first look goes to the address that was given, everything else to what the node says.
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
    // Without a certificate of ours: the server closes the connection, and its reason may come too late.
    let (error, _) = refusal(app(port, ca.pem())).await;
    assert!(matches!(error, Error::Connect { .. }), "{error:?}");
    let (error, text) = refusal(app(port, Ca::new().pem())).await;
    assert!(matches!(error, Error::Connect { .. }) && !error.is_retryable(), "{error:?}");
    assert!(text.contains("UnknownIssuer") && text.contains("rediss-cluster://localhost"), "{text}");
    let (_, text) = refusal(app(node.port(), ca.pem())).await;
    assert!(text.contains("does the port speak TLS?"), "{text}");
}
