//! Where the demo keeps its jobs: on the Redis of `REDIS_URL`, a private server, or a private cluster, of which a primary is killed.

use std::fmt;
use std::time::SystemTime;

use anyhow::{Context as _, Result};
use heartline::testing::{RedisCluster, RedisServer, redis_url};

pub enum Servers {
    Given,
    Private(#[expect(dead_code, reason = "it runs as long as it is kept")] RedisServer),
    Cluster(RedisCluster),
}

impl Servers {
    /// What there is, or was started, and its address.
    pub async fn start(is_cluster: bool) -> Result<(Servers, String)> {
        if is_cluster {
            println!("starting three primaries with a replica each …");
            let cluster = tokio::task::spawn_blocking(RedisCluster::start).await??;
            let url = cluster.url();
            return Ok((Servers::Cluster(cluster), url));
        }
        let (server, url) = redis_url().await?;
        Ok((server.map_or(Servers::Given, Servers::Private), url))
    }

    /// Kills the primary that has the jobs of a task, if there is another one to take its place. Returns where it was, and when it died.
    pub fn kill_primary_of(&mut self, task: &str) -> Result<Option<(String, SystemTime)>> {
        let Servers::Cluster(cluster) = self else { return Ok(None) };
        let at = cluster.primary_of(&format!("{{{task}}}")).context("no primary has the jobs")?;
        let node = &mut cluster.nodes[at];
        let place = format!("127.0.0.1:{}", node.port());
        node.kill();
        Ok(Some((place, SystemTime::now())))
    }
}

impl fmt::Display for Servers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            // The URL itself may hold a password.
            Servers::Given => "the Redis of REDIS_URL",
            Servers::Private(_) => "a private redis-server",
            Servers::Cluster(_) => "a private cluster of three primaries with a replica each",
        })
    }
}
