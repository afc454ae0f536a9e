//! The Redis of the demo: a private server, a private cluster, or the server of `--redis`.

use std::fmt;
use std::io;
use std::time::SystemTime;

use heartline::inspect::text::chain;
use heartline::private_server::{RedisCluster, RedisServer, StartError};

use crate::args::Global;
use crate::failure::Failure;
use crate::target::Target;

/// A private server ends with its value.
pub(super) enum Servers {
    Given,
    Private { _server: RedisServer },
    Cluster(RedisCluster),
}

impl Servers {
    /// Starts what is needed. The target has the prefix.
    pub(super) async fn start(global: &Global, is_cluster: bool, prefix: &str) -> Result<(Servers, Target), Failure> {
        if is_cluster {
            say!("starting three primaries with a replica each …");
            let cluster = started(RedisCluster::start).await?;
            let target = Target::at(cluster.url(), prefix);
            return Ok((Servers::Cluster(cluster), target));
        }
        if global.redis.is_none() {
            let server = started(RedisServer::start).await?;
            let target = Target::at(server.url(), prefix);
            return Ok((Servers::Private { _server: server }, target));
        }
        if global.production {
            return Err(Failure::wrong("the demo does not run in production, since it fills the server"));
        }
        let mut target = Target::of(global)?;
        target.prefix = prefix.to_owned();
        Ok((Servers::Given, target))
    }

    /// Kills the primary of a task, if a replica can take its place. Returns its address and when it died.
    pub(super) fn kill_primary_of(&mut self, task: &str) -> Result<Option<(String, SystemTime)>, Failure> {
        let Servers::Cluster(cluster) = self else { return Ok(None) };
        let primary = cluster.primary_of(&format!("{{{task}}}"));
        let primary = primary.ok_or_else(|| Failure::Failed(format!("no primary holds the jobs of {task}")))?;
        let node = &mut cluster.nodes[primary];
        let address = format!("127.0.0.1:{}", node.port());
        node.kill();
        Ok(Some((address, SystemTime::now())))
    }
}

async fn started<T: Send + 'static>(start: fn() -> Result<T, StartError>) -> Result<T, Failure> {
    let started = tokio::task::spawn_blocking(start).await.map_err(io::Error::other)?;
    started.map_err(|e| Failure::Failed(chain(&e)))
}

impl fmt::Display for Servers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            // The address may contain a password.
            Servers::Given => "the Redis of --redis",
            Servers::Private { .. } => "a private Redis server",
            Servers::Cluster(_) => "a private cluster of three primaries with a replica each",
        })
    }
}
