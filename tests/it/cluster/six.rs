//! Three primaries with a replica each, on private servers.

use std::time::Duration;

use heartline::testing::{RedisCluster, RedisServer};
use redis::Value;

use crate::support::{PATIENCE, ask_port, eventually, turn};

/// Tasks on each of the nodes: `slots` of 5,460, 5,461 and 5,462.
pub const TASKS: [&str; 5] = ["export", "mail", "video", "crawl", "billing"];

pub struct Six {
    pub cluster: RedisCluster,
}

/// The reply of a node; `None` if there is none.
pub async fn ask<T: redis::FromRedisValue>(port: u16, words: &[&str]) -> Option<T> {
    ask_port(port, words, Duration::from_secs(5)).await
}

async fn is_ok(port: u16, words: &[&str]) {
    assert_eq!(ask::<String>(port, words).await.as_deref(), Some("OK"), "{words:?}");
}

impl Six {
    pub async fn start() -> Six {
        turn::with_cluster();
        let started = tokio::task::spawn_blocking(RedisCluster::start).await.unwrap();
        Six { cluster: started.unwrap() }
    }

    /// As by default in Redis: one dead primary closes the whole cluster until its replica is promoted.
    pub async fn with_full_coverage() -> Six {
        let six = Six::start().await;
        for port in six.ports() {
            is_ok(port, &["CONFIG", "SET", "cluster-require-full-coverage", "yes"]).await;
        }
        six
    }

    pub fn ports(&self) -> Vec<u16> {
        self.cluster.nodes.iter().map(RedisServer::port).collect()
    }

    /// The port of the primary that has the keys of a task, as a live node reports it.
    pub async fn primary_of(&self, task: &str, witness: u16) -> Option<u16> {
        let slot: i64 = ask(witness, &["CLUSTER", "KEYSLOT", &format!("{{{task}}}")]).await?;
        let rows: Vec<Vec<Value>> = ask(witness, &["CLUSTER", "SLOTS"]).await?;
        rows.into_iter().find_map(|row| match &row[..] {
            [Value::Int(first), Value::Int(last), Value::Array(node), ..] if (*first..=*last).contains(&slot) => {
                redis::from_redis_value_ref(&node[1]).ok()
            }
            _ => None,
        })
    }

    /// The primary that has the keys of a task: its place among the nodes, and its port. Its replica is three places
    /// further.
    pub async fn home_of(&self, task: &str) -> (usize, u16) {
        let ports = self.ports();
        let port = self.primary_of(task, ports[0]).await.unwrap();
        (ports.iter().position(|own| *own == port).unwrap(), port)
    }

    /// Freezes a primary and its replica, so that there is no failover.
    pub fn freeze_both(&self, at: usize) {
        for node in [at, at + 3] {
            self.cluster.nodes[node].freeze().unwrap();
        }
    }

    pub fn thaw_both(&self, at: usize) {
        for node in [at, at + 3] {
            self.cluster.nodes[node].thaw().unwrap();
        }
    }

    /// Waits until another node has the keys of the task, and reports so itself.
    pub async fn another_than(&self, before: u16, task: &str) -> u16 {
        let witness = self.ports().into_iter().find(|port| *port != before).unwrap();
        eventually("another node is the primary", PATIENCE * 2, async || {
            let port = self.primary_of(task, witness).await.filter(|port| *port != before)?;
            let role: Option<Vec<Value>> = ask(port, &["ROLE"]).await;
            let says: Option<String> = role.and_then(|role| redis::from_redis_value(role.into_iter().next()?).ok());
            (says.as_deref() == Some("master")).then_some(port)
        })
        .await
    }

    /// Adds a primary without slots, and waits until all nodes know each other. Returns its port.
    pub async fn grow(&mut self) -> u16 {
        let start = || {
            let bus = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            let settings = [
                ("--cluster-enabled", "yes"),
                ("--cluster-port", &bus.to_string()),
                ("--cluster-node-timeout", &RedisCluster::NODE_TIMEOUT.as_millis().to_string()),
                ("--cluster-require-full-coverage", "no"),
            ];
            let node = settings.iter().fold(RedisServer::builder(), |node, (name, value)| node.arg(*name).arg(*value));
            (node.start().unwrap(), bus)
        };
        let (node, bus) = tokio::task::spawn_blocking(start).await.unwrap();
        let (port, first) = (node.port(), self.ports()[0]);
        let meets = ["CLUSTER", "MEET", "127.0.0.1", &port.to_string(), &bus.to_string()];
        is_ok(first, &meets).await;
        self.cluster.nodes.push(node);
        for member in self.ports() {
            eventually("it knows all nodes", PATIENCE, async || {
                let nodes = ask::<String>(member, &["CLUSTER", "NODES"]).await.unwrap_or_default();
                let is_ok =
                    ask::<String>(member, &["CLUSTER", "INFO"]).await.unwrap_or_default().contains("cluster_state:ok");
                is_ok && nodes.matches(" connected").count() == self.cluster.nodes.len()
            })
            .await;
        }
        port
    }

    /// Takes the slot of a task from its primary, and makes every node forget it.
    pub async fn without_slot_of(&self, task: &str, home: u16) {
        let slot = self.slot_of(task).await;
        is_ok(home, &["CLUSTER", "DELSLOTS", &slot]).await;
        for port in self.ports() {
            // A late message of the primary may name the slot once more.
            eventually("it knows no primary of the slot", PATIENCE, async || {
                let _: Option<String> = ask(port, &["CLUSTER", "DELSLOTS", &slot]).await;
                self.primary_of(task, port).await.is_none().then_some(())
            })
            .await;
        }
    }

    /// Gives the slot of a task to a primary, and waits until every node knows it.
    pub async fn with_slot_of(&self, task: &str, home: u16) {
        is_ok(home, &["CLUSTER", "ADDSLOTS", &self.slot_of(task).await]).await;
        for port in self.ports() {
            let knows = async || self.primary_of(task, port).await.filter(|known| *known == home);
            eventually("it knows who has the slot", PATIENCE, knows).await;
        }
    }

    async fn slot_of(&self, task: &str) -> String {
        let slot: i64 = ask(self.ports()[0], &["CLUSTER", "KEYSLOT", &format!("{{{task}}}")]).await.unwrap();
        slot.to_string()
    }

    /// Moves the slot of a task from one node to another as a whole, as Valkey can from 9.0 on, and waits for the end.
    pub async fn migrate_whole(&self, task: &str, from: u16, to: u16) {
        let (slot, target) = (self.slot_of(task).await, ask::<String>(to, &["CLUSTER", "MYID"]).await.unwrap());
        is_ok(from, &["CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", &slot, &slot, "NODE", &target]).await;
        eventually("the slot is on the other node", PATIENCE, async || {
            let said = ask::<Value>(from, &["CLUSTER", "GETSLOTMIGRATIONS"]).await;
            assert!(!format!("{said:?}").contains("\"failed\""), "{said:?}");
            self.primary_of(task, from).await == Some(to)
        })
        .await;
    }

    /// Moves the slot of a task from one node to another, key by key; `meanwhile` runs when half of it is moved.
    pub async fn migrate<F: Future<Output = ()>>(&self, task: &str, from: u16, to: u16, meanwhile: impl FnOnce() -> F) {
        let (slot, target) = (self.slot_of(task).await, to.to_string());
        let [from_id, to_id] = [ask::<String>(from, &["CLUSTER", "MYID"]).await, ask(to, &["CLUSTER", "MYID"]).await];
        let (from_id, to_id) = (from_id.unwrap(), to_id.unwrap());
        is_ok(to, &["CLUSTER", "SETSLOT", &slot, "IMPORTING", &from_id]).await;
        is_ok(from, &["CLUSTER", "SETSLOT", &slot, "MIGRATING", &to_id]).await;
        let mut meanwhile = Some(meanwhile);
        loop {
            let keys: Vec<String> = ask(from, &["CLUSTER", "GETKEYSINSLOT", &slot, "5"]).await.unwrap();
            if keys.is_empty() {
                break;
            }
            let mut words = vec!["MIGRATE", "127.0.0.1", &target, "", "0", "5000", "KEYS"];
            words.extend(keys.iter().map(String::as_str));
            is_ok(from, &words).await;
            // Calls that need keys of both sides wait; other slots do not.
            if let Some(meanwhile) = meanwhile.take() {
                meanwhile().await;
            }
        }
        for server in [to, from].into_iter().chain(self.ports()) {
            // Replicas do not take it.
            let _: Option<String> = ask(server, &["CLUSTER", "SETSLOT", &slot, "NODE", &to_id]).await;
        }
    }
}
