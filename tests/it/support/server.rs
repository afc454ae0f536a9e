use super::sentinel::{SERVICE, Sentinel};
use super::{dump, turn};
use heartline::testing::RedisServer;
use redis::aio::MultiplexedConnection;
use std::collections::BTreeMap;
use std::env;
use std::net::SocketAddr;
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

/// A machine under full load answers late; the tests of time-outs make their own connections.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);

/// How many databases the shared server has.
const DATABASES: u64 = 32_768;

/// A private server of the tests, ended with its last user.
pub struct TestRedis {
    server: RedisServer,
    /// The address for Apps if it is not the server's own, and the processes that provide it.
    found: Option<(String, Option<Sentinel>)>,
    /// Whether it has [`DATABASES`].
    has_databases: bool,
}

/// The variable that names the engine by which Apps of tests reach the shared server: `cluster`, with it as the only
/// node, or `sentinel`, under one.
const ENGINE: &str = "HEARTLINE_TEST_ENGINE";

impl TestRedis {
    /// The server that all tests of this process share; each test uses its own [`unique_prefix`](Self::unique_prefix).
    ///
    /// It ends when no running test uses it, and restarts, empty, for the next one.
    pub fn shared() -> Arc<Self> {
        turn::with_server();
        static SHARED: Mutex<Weak<TestRedis>> = Mutex::new(Weak::new());
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        shared.upgrade().unwrap_or_else(|| {
            let server = Arc::new(Self::as_asked());
            *shared = Arc::downgrade(&server);
            server
        })
    }

    /// The same for tests with a proxy before their server, or that need more than a cluster offers: always a single
    /// server.
    pub fn plain() -> Arc<Self> {
        turn::with_server();
        static PLAIN: Mutex<Weak<TestRedis>> = Mutex::new(Weak::new());
        if env::var_os(ENGINE).is_none() {
            return Self::shared();
        }
        let mut plain = PLAIN.lock().unwrap_or_else(PoisonError::into_inner);
        plain.upgrade().unwrap_or_else(|| {
            let server = Arc::new(Self::start());
            *plain = Arc::downgrade(&server);
            server
        })
    }

    /// A server with the engine that [`ENGINE`] names.
    fn as_asked() -> Self {
        match env::var(ENGINE).as_deref() {
            Err(_) => {
                let databases = DATABASES.to_string();
                let server = RedisServer::builder().arg("--databases").arg(databases).start().unwrap();
                Self { has_databases: true, ..Self::from_process(server) }
            }
            Ok("cluster") => {
                let node = RedisServer::builder().arg("--cluster-enabled").arg("yes").start().unwrap();
                let url = format!("redis-cluster://127.0.0.1:{}", node.port());
                let mut conn = redis::Client::open(node.url()).unwrap().get_connection().unwrap();
                let slots: Vec<u32> = (0..16_384).collect();
                let () = redis::cmd("CLUSTER").arg("ADDSLOTS").arg(slots).query(&mut conn).unwrap();
                while !redis::cmd("CLUSTER").arg("INFO").query::<String>(&mut conn).unwrap().contains("state:ok") {
                    std::thread::sleep(Duration::from_millis(10));
                }
                Self { server: node, found: Some((url, None)), has_databases: false }
            }
            Ok("sentinel") => {
                let primary = RedisServer::start().unwrap();
                let sentinel = Sentinel::start(primary.port());
                let url = format!("redis-sentinel://127.0.0.1:{}?sentinelServiceName={SERVICE}", sentinel.port);
                Self { server: primary, found: Some((url, Some(sentinel))), has_databases: false }
            }
            Ok(other) => panic!("{ENGINE} must be cluster or sentinel, not {other}"),
        }
    }

    /// A server for one test. Panics if no server program is installed: a test that did not run must not pass.
    pub fn start() -> Self {
        turn::with_server();
        Self::from_process(RedisServer::start().unwrap())
    }

    /// A test that stops, freezes or configures its server builds it with [`RedisServer::builder`] and passes it in.
    pub fn from_process(server: RedisServer) -> Self {
        turn::with_server();
        Self { server, found: None, has_databases: false }
    }

    /// The process, to stop, kill, freeze and restart.
    pub fn process(&mut self) -> &mut RedisServer {
        &mut self.server
    }

    pub fn url(&self) -> String {
        format!("redis://{}/", self.address())
    }

    /// The address for Apps.
    pub fn app_url(&self) -> String {
        self.found.as_ref().map_or_else(|| self.url(), |(url, _)| url.clone())
    }

    pub fn address(&self) -> SocketAddr {
        ([127, 0, 0, 1], self.server.port()).into()
    }

    /// The address of a database of this server that no other test uses, so that reading all keys is quick; the only
    /// database if the server has just one.
    pub fn own_database(&self) -> String {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        if self.has_databases { format!("{}{}", self.url(), NEXT.fetch_add(1, Ordering::Relaxed)) } else { self.url() }
    }

    /// The time-out of test connections: the client's default of half a second may be too short on a busy machine.
    pub fn patient() -> redis::AsyncConnectionConfig {
        let time = Some(RESPONSE_TIMEOUT);
        redis::AsyncConnectionConfig::new().set_connection_timeout(time).set_response_timeout(time)
    }

    /// A new connection that is not shared.
    pub async fn conn(&self) -> MultiplexedConnection {
        TestRedis::conn_to(&self.url()).await
    }

    /// The same to another database, or as another user.
    pub async fn conn_to(url: &str) -> MultiplexedConnection {
        let client = redis::Client::open(url).unwrap();
        client.get_multiplexed_async_connection_with_config(&TestRedis::patient()).await.unwrap()
    }

    /// Every key that starts with `prefix` and its contents, in a form to compare and to read.
    pub async fn dump(&self, prefix: &str) -> BTreeMap<String, String> {
        dump(&mut self.conn().await, prefix).await
    }

    /// A unique name for key prefixes and task names. None is a prefix of another, so that keys and log lines are
    /// found by it.
    pub fn unique_prefix(&self) -> String {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        format!("t{}-{:05}", process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// The reply of the server at this port within this time; `None` if there is none.
pub async fn ask_port<T: redis::FromRedisValue>(port: u16, words: &[&str], within: Duration) -> Option<T> {
    let asked = async {
        let client = redis::Client::open(format!("redis://127.0.0.1:{port}")).ok()?;
        let mut conn = client.get_multiplexed_async_connection_with_config(&TestRedis::patient()).await.ok()?;
        redis::cmd(words[0]).arg(&words[1..]).query_async(&mut conn).await.ok()
    };
    tokio::time::timeout(within, asked).await.ok().flatten()
}

/// Whether the server can check a user's rights before a script writes: only since Redis 7.0.
pub async fn checks_rights(conn: &mut MultiplexedConnection) -> bool {
    let info: redis::InfoDict = redis::cmd("INFO").arg("server").query_async(conn).await.unwrap();
    let version: String = info.get("redis_version").unwrap();
    version.split('.').next().unwrap().parse::<u32>().unwrap() >= 7
}
