//! One primary, two replicas and three sentinels, on private servers.

use std::fs;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use heartline::testing::RedisServer;

use crate::support::{PATIENCE, ask_port, eventually};

/// The name under which the sentinels watch the primary.
pub const SERVICE: &str = "main";

/// Turns into a sentinel that goes with whoever holds the other end of its standard input.
const LAUNCHER: &str =
    r#"exec 3<&0 </dev/null; { read -r _; kill -KILL "$$"; } <&3 2>/dev/null & exec 3<&-; exec "$@""#;

/// How long a primary may give no answer before it is taken for dead.
pub const DOWN_AFTER: Duration = Duration::from_secs(1);

pub struct Trio {
    pub servers: Vec<RedisServer>,
    pub sentinels: Vec<Sentinel>,
}

pub struct Sentinel {
    process: Child,
    pub port: u16,
    dir: PathBuf,
}

impl Sentinel {
    /// Started, and it watches the primary. Its port is one that a connection of another test may take in the moment between: then another one.
    pub fn start(primary: u16) -> Sentinel {
        (0..5).find_map(|_| Sentinel::launch(primary)).expect("a sentinel starts")
    }

    /// `None` where it ended at once.
    fn launch(primary: u16) -> Option<Sentinel> {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let dir = std::env::temp_dir().join(format!("heartline-sentinel-{}-{port}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let config = format!(
            "port {port}\nbind 127.0.0.1\ndir {dir}\nlogfile {dir}/log\nsentinel monitor {SERVICE} 127.0.0.1 {primary} 2\n\
             sentinel down-after-milliseconds {SERVICE} {}\nsentinel failover-timeout {SERVICE} 6000\n\
             sentinel parallel-syncs {SERVICE} 2\n",
            DOWN_AFTER.as_millis(),
            dir = dir.display()
        );
        let file = dir.join("sentinel.conf");
        fs::write(&file, config).unwrap();
        let program = std::env::var("HEARTLINE_REDIS_SERVER").unwrap_or_else(|_| "redis-server".to_owned());
        let mut command = Command::new("sh");
        command.args(["-c", LAUNCHER, "sentinel", &program]).arg(&file).arg("--sentinel");
        let process = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let mut sentinel = Sentinel { process, port, dir };
        let begun = Instant::now();
        while !fs::read_to_string(sentinel.dir.join("log")).is_ok_and(|log| log.contains("+monitor")) {
            if sentinel.process.try_wait().unwrap().is_some() {
                return None;
            }
            assert!(begun.elapsed() < PATIENCE, "a sentinel neither starts nor ends");
            std::thread::sleep(Duration::from_millis(10));
        }
        Some(sentinel)
    }

    /// Waits until it tells where the primary is.
    pub async fn knows(&self) {
        eventually("it tells of the primary", PATIENCE, async || {
            ask::<(String, u16)>(self.port, &["SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE]).await
        })
        .await;
    }

    pub fn signal(&self, name: &str) {
        let pid = self.process.id().to_string();
        assert!(Command::new("kill").args([name, &pid]).status().unwrap().success());
    }
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// What a server or a sentinel answers; `None` where it does not.
pub async fn ask<T: redis::FromRedisValue>(port: u16, words: &[&str]) -> Option<T> {
    ask_port(port, words, Duration::from_secs(1)).await
}

impl Trio {
    /// Started, and all of them know of each other.
    pub async fn start() -> Trio {
        let first = tokio::task::spawn_blocking(|| RedisServer::builder().start().unwrap()).await.unwrap();
        let port = first.port();
        let replica = move || {
            let follows = RedisServer::builder().arg("--replicaof").arg("127.0.0.1").arg(port.to_string());
            follows.arg("--repl-diskless-sync-delay").arg("0").start().unwrap()
        };
        let mut servers = vec![first];
        for _ in 0..2 {
            servers.push(tokio::task::spawn_blocking(replica).await.unwrap());
        }
        eventually("both replicas follow", PATIENCE, async || {
            let role: Option<redis::Value> = ask(port, &["INFO", "replication"]).await;
            let told: String = role.and_then(|role| redis::from_redis_value(role).ok()).unwrap_or_default();
            told.matches("state=online").count() == 2
        })
        .await;
        let sentinels: Vec<Sentinel> = (0..3).map(|_| Sentinel::start(port)).collect();
        let trio = Trio { servers, sentinels };
        for sentinel in &trio.sentinels {
            eventually("the sentinels know of all", PATIENCE, async || {
                let known =
                    ask::<std::collections::HashMap<String, String>>(sentinel.port, &["SENTINEL", "MASTER", SERVICE])
                        .await;
                known.is_some_and(|known| known["num-slaves"] == "2" && known["num-other-sentinels"] == "2")
            })
            .await;
        }
        trio
    }

    pub fn url(&self) -> String {
        let [first, others @ ..] = &self.sentinels[..] else { unreachable!() };
        let nodes: String = others.iter().map(|node| format!("&node=127.0.0.1:{}", node.port)).collect();
        format!("redis-sentinel://127.0.0.1:{}?sentinelServiceName={SERVICE}{nodes}", first.port)
    }

    /// The port of the primary, as most sentinels have it.
    pub async fn primary(&self) -> u16 {
        let mut told = Vec::new();
        for sentinel in &self.sentinels {
            let at: Option<(String, u16)> = ask(sentinel.port, &["SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE]).await;
            told.extend(at.map(|(_, port)| port));
        }
        told.sort_unstable();
        told.get(told.len() / 2).copied().unwrap_or(0)
    }

    /// Waits until another server than this is the primary, and says so itself.
    pub async fn another_than(&self, before: u16) -> u16 {
        eventually("another server is the primary", PATIENCE * 2, async || {
            let port = self.primary().await;
            let role: Option<Vec<redis::Value>> = ask(port, &["ROLE"]).await;
            let says: Option<String> = role.and_then(|role| redis::from_redis_value(role.into_iter().next()?).ok());
            (port != before && says.as_deref() == Some("master")).then_some(port)
        })
        .await
    }

    /// A failover in order, while all are well.
    pub async fn fail_over(&self) {
        let said: Option<String> = ask(self.sentinels[0].port, &["SENTINEL", "FAILOVER", SERVICE]).await;
        assert_eq!(said.as_deref(), Some("OK"));
    }
}
