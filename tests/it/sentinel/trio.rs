//! One primary, two replicas and three sentinels, on private servers.

use std::time::Duration;

use heartline::testing::RedisServer;

use crate::support::sentinel::{SERVICE, Sentinel, ask};
use crate::support::{PATIENCE, ask_port, eventually, turn};

pub struct Trio {
    pub servers: Vec<RedisServer>,
    pub sentinels: Vec<Sentinel>,
}

impl Trio {
    /// Starts all of them; returns once they know each other.
    pub async fn start() -> Trio {
        turn::with_cluster();
        // By default, a server waits 5 s for further replicas that ask for a copy.
        let server = || RedisServer::builder().arg("--repl-diskless-sync-delay").arg("0");
        let first = tokio::task::spawn_blocking(move || server().start().unwrap()).await.unwrap();
        let port = first.port();
        let replica = move || server().arg("--replicaof").arg("127.0.0.1").arg(port.to_string()).start().unwrap();
        let mut servers = vec![first];
        for _ in 0..2 {
            servers.push(tokio::task::spawn_blocking(replica).await.unwrap());
        }
        eventually("both replicas are online", PATIENCE, async || {
            // A write since the copy makes a replica online. This one is stored nowhere.
            let _: Option<u64> = ask(port, &["PUBLISH", "probe", "x"]).await;
            let told: String = ask(port, &["INFO", "replication"]).await.unwrap_or_default();
            let replicas = told.lines().filter(|line| line.contains(",state=online,"));
            replicas.filter(|line| !line.contains(",offset=0,")).count() == 2
        })
        .await;
        let sentinels: Vec<Sentinel> = (0..3).map(|_| Sentinel::start(port)).collect();
        let trio = Trio { servers, sentinels };
        trio.say_how_often("200", "200").await;
        for sentinel in &trio.sentinels {
            eventually("the sentinels know each other", PATIENCE, async || {
                let known =
                    ask::<std::collections::HashMap<String, String>>(sentinel.port, &["SENTINEL", "MASTER", SERVICE])
                        .await;
                known.is_some_and(|known| known["num-slaves"] == "2" && known["num-other-sentinels"] == "2")
            })
            .await;
        }
        trio.say_how_often("10000", "2000").await;
        trio
    }

    /// How often the sentinels ask the servers, and each other, ms. Older versions have no such setting and are
    /// slower.
    async fn say_how_often(&self, asked: &str, told: &str) {
        for sentinel in &self.sentinels {
            let words = ["SENTINEL", "DEBUG", "INFO-PERIOD", asked, "PUBLISH-PERIOD", told];
            let _: Option<String> = ask(sentinel.port, &words).await;
        }
    }

    pub fn url(&self) -> String {
        let [first, others @ ..] = &self.sentinels[..] else { unreachable!() };
        let nodes: String = others.iter().map(|node| format!("&node=127.0.0.1:{}", node.port)).collect();
        format!("redis-sentinel://127.0.0.1:{}?sentinelServiceName={SERVICE}{nodes}", first.port)
    }

    /// The port of the primary, according to most sentinels.
    pub async fn primary(&self) -> u16 {
        let mut told = Vec::new();
        for sentinel in &self.sentinels {
            let at: Option<(String, u16)> = ask(sentinel.port, &["SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE]).await;
            told.extend(at.map(|(_, port)| port));
        }
        told.sort_unstable();
        told.get(told.len() / 2).copied().unwrap_or(0)
    }

    /// Waits until another server is the primary, and reports so itself.
    pub async fn another_than(&self, before: u16) -> u16 {
        eventually("another server is the primary", PATIENCE * 2, async || {
            let port = self.primary().await;
            let role: Option<Vec<redis::Value>> = ask(port, &["ROLE"]).await;
            let says: Option<String> = role.and_then(|role| redis::from_redis_value(role.into_iter().next()?).ok());
            (port != before && says.as_deref() == Some("master")).then_some(port)
        })
        .await
    }

    /// A planned failover, until another server is the primary. On a busy machine, the sentinels may abort one, and do not
    /// repeat it.
    pub async fn fails_over(&self, before: u16) {
        for _ in 0..10 {
            if self.primary().await != before {
                return;
            }
            let _: Option<String> = order(self.sentinels[0].port, &["SENTINEL", "FAILOVER", SERVICE]).await;
            if tokio::time::timeout(Duration::from_secs(12), self.another_than(before)).await.is_ok() {
                return;
            }
        }
        panic!("no other server became the primary in ten failovers");
    }

    /// A planned failover while all are healthy.
    pub async fn fail_over(&self) {
        let said = order(self.sentinels[0].port, &["SENTINEL", "FAILOVER", SERVICE]).await;
        assert_eq!(said.as_deref(), Some("OK"));
    }

    /// Changes a setting of all sentinels.
    pub async fn set(&self, name: &str, value: &str) {
        for sentinel in &self.sentinels {
            let said = order(sentinel.port, &["SENTINEL", "SET", SERVICE, name, value]).await;
            assert_eq!(said.as_deref(), Some("OK"), "{name}");
        }
    }
}

/// A sentinel writes its file before it answers an order, which may take seconds on a busy disk.
async fn order(port: u16, words: &[&str]) -> Option<String> {
    ask_port(port, words, PATIENCE).await
}
