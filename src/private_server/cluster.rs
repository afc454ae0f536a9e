//! A private Redis Cluster.

use std::thread;
use std::time::{Duration, Instant};

use super::host::free_port;
use super::probe::ask;
use super::server::{POLL, RedisServer};
use super::start_error::StartError;

/// How long the nodes may take to form a cluster.
const MEET_TIMEOUT: Duration = Duration::from_secs(60);

/// How long until nodes that have not met are asked to meet again.
const GREETING: Duration = Duration::from_secs(5);

/// The first and the last slot of each primary.
const SLOTS: [(u16, u16); 3] = [(0, 5460), (5461, 10_922), (10_923, 16_383)];

/// How often to choose a bus port for a node: another program may take it first.
const BUSES_TRIED: usize = 3;

/// A private Redis Cluster of three primaries with a replica each. Dropping it ends the servers.
///
/// Each node is a [`RedisServer`]. If a node does not answer for a second, the others consider it dead and promote its replica; the other
/// nodes keep running. Needs Redis 7.0 or later, or Valkey.
///
/// ```no_run
/// use heartline::private_server::RedisCluster;
///
/// # fn main() -> Result<(), heartline::private_server::StartError> {
/// let mut cluster = RedisCluster::start()?;
/// println!("{}", cluster.url());
/// cluster.nodes[0].kill();
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct RedisCluster {
    /// First the initial primaries in the order of their slots, then the replica of each, in the same order.
    pub nodes: Vec<RedisServer>,
}

impl RedisCluster {
    /// How long a node may be silent before the others consider it dead.
    pub const NODE_TIMEOUT: Duration = Duration::from_secs(1);

    /// Starts the nodes, and waits until each primary has its slots and each replica has synchronized. Blocks the calling thread for some
    /// seconds.
    ///
    /// # Errors
    /// As [`RedisServer::start`]; [`StartError::Apart`] if the nodes do not form a cluster.
    pub fn start() -> Result<RedisCluster, StartError> {
        let (cluster, bus) = RedisCluster::apart()?;
        cluster.meet(bus)?;
        cluster.share()?;
        Ok(cluster)
    }

    /// Starts nodes that do not know each other. Also returns the bus port of the first.
    fn apart() -> Result<(RedisCluster, u16), StartError> {
        let started = thread::scope(|scope| {
            let starts: Vec<_> = (0..2 * SLOTS.len()).map(|_| scope.spawn(start_node)).collect();
            let ended = |start: thread::ScopedJoinHandle<'_, _>| start.join().unwrap_or(Err(StartError::NoPort));
            starts.into_iter().map(ended).collect::<Result<Vec<_>, _>>()
        })?;
        let bus = started[0].1;
        Ok((RedisCluster { nodes: started.into_iter().map(|(server, _)| server).collect() }, bus))
    }

    /// The URL for clients: `redis-cluster://127.0.0.1:<port>?node=…`, with every node.
    #[must_use]
    pub fn url(&self) -> String {
        let places: Vec<String> = self.nodes.iter().map(|node| format!("127.0.0.1:{}", node.port())).collect();
        format!("redis-cluster://{}?node={}", places[0], places[1..].join("&node="))
    }

    /// The index of the primary that has this key, according to the first node that answers; `None` if no primary has it.
    #[must_use]
    pub fn primary_of(&self, key: &str) -> Option<usize> {
        self.nodes.iter().find_map(|node| {
            let slot: u16 = number(&ask(node.port(), &format!("CLUSTER KEYSLOT {key}\r\n")).ok()?)?;
            // <id> <host>:<port>@<bus> <flags> … <slot or range> …
            let lines = ask(node.port(), "CLUSTER NODES\r\n").ok()?;
            let has = |words: &[&str]| words.iter().skip(8).any(|range| holds(range, slot));
            let mut primaries = lines.lines().map(|line| line.split(' ').collect::<Vec<_>>());
            let primary = primaries.find(|words| words.len() > 8 && words[2].contains("master") && has(words))?;
            let port: u16 = primary[1].split('@').next()?.rsplit(':').next()?.parse().ok()?;
            self.nodes.iter().position(|node| node.port() == port)
        })
    }

    /// Waits until each node knows all the others.
    fn meet(&self, bus: u16) -> Result<(), StartError> {
        let meet = format!("CLUSTER MEET 127.0.0.1 {} {bus}", self.nodes[0].port());
        let deadline = Instant::now() + MEET_TIMEOUT;
        loop {
            for node in &self.nodes[1..] {
                until(node, &meet, |reply| reply.starts_with("+OK"))?;
            }
            // One line per node, with the state of its link.
            let knows_all = |reply: &str| reply.matches(" connected").count() == self.nodes.len();
            let know = |node| until_for(GREETING, node, "CLUSTER NODES", knows_all);
            match self.nodes.iter().try_for_each(|node| know(node).map(drop)) {
                // Both nodes forget a handshake that takes longer than the node timeout, and do not repeat it.
                Err(StartError::Apart { .. }) if Instant::now() < deadline => {}
                met => return met,
            }
        }
    }

    /// Assigns slots and a replica to each primary.
    fn share(&self) -> Result<(), StartError> {
        let (primaries, replicas) = self.nodes.split_at(SLOTS.len());
        for (node, (first, last)) in primaries.iter().zip(SLOTS) {
            until(node, &format!("CLUSTER ADDSLOTSRANGE {first} {last}"), |reply| reply.starts_with("+OK"))?;
        }
        for (primary, replica) in primaries.iter().zip(replicas) {
            let told = until(primary, "CLUSTER MYID", |reply| reply.starts_with('$'))?;
            let id = told.lines().nth(1).unwrap_or_default();
            until(replica, &format!("CLUSTER REPLICATE {id}"), |reply| reply.starts_with("+OK"))?;
        }
        for (at, node) in self.nodes.iter().enumerate() {
            let sign = if at < SLOTS.len() { "state=online" } else { "master_link_status:up" };
            until(node, "INFO replication", |reply| reply.contains(sign))?;
            let is_whole = |reply: &str| reply.contains("cluster_state:ok") && reply.contains("cluster_size:3");
            until(node, "CLUSTER INFO", is_whole)?;
            until(node, "CLUSTER NODES", |reply| reply.matches("slave ").count() == replicas.len())?;
        }
        Ok(())
    }
}

/// An integer reply.
fn number(reply: &str) -> Option<u16> {
    reply.strip_prefix(':')?.lines().next()?.parse().ok()
}

/// Whether a range of `CLUSTER NODES`, such as `0-5460` or `7`, contains this slot.
fn holds(range: &str, slot: u16) -> bool {
    let (first, last) = range.split_once('-').unwrap_or((range, range));
    matches!((first.parse::<u16>(), last.parse::<u16>()), (Ok(first), Ok(last)) if (first..=last).contains(&slot))
}

/// Starts a node that knows no other, and returns the port of its bus.
fn start_node() -> Result<(RedisServer, u16), StartError> {
    let timeout = RedisCluster::NODE_TIMEOUT.as_millis().to_string();
    for _ in 0..BUSES_TRIED {
        // The usual bus port, 10,000 above, may be taken.
        let bus = free_port().ok_or(StartError::NoPort)?;
        let settings = [
            ("--cluster-enabled", "yes"),
            ("--cluster-port", &bus.to_string()),
            ("--cluster-node-timeout", &timeout),
            ("--cluster-require-full-coverage", "no"),
            ("--repl-diskless-sync-delay", "0"),
        ];
        let node = settings.into_iter().fold(RedisServer::builder(), |node, (name, value)| node.arg(name).arg(value));
        match node.start() {
            Err(StartError::NoPort) => {}
            started => return started.map(|server| (server, bus)),
        }
    }
    Err(StartError::NoPort)
}

/// Repeats a command to a node until the reply satisfies `is_so`. Returns the reply.
fn until(node: &RedisServer, command: &str, is_so: impl Fn(&str) -> bool) -> Result<String, StartError> {
    until_for(MEET_TIMEOUT, node, command, is_so)
}

/// Like [`until`], with a time limit.
fn until_for(
    timeout: Duration,
    node: &RedisServer,
    command: &str,
    is_so: impl Fn(&str) -> bool,
) -> Result<String, StartError> {
    let deadline = Instant::now() + timeout;
    loop {
        // A node that does not answer yet is asked again.
        let reply = ask(node.port(), &format!("{command}\r\n")).unwrap_or_default();
        if is_so(&reply) {
            return Ok(reply);
        }
        if Instant::now() >= deadline {
            let reply = reply.lines().next().unwrap_or("no answer").to_owned();
            return Err(StartError::Apart { command: command.to_owned(), reply });
        }
        thread::sleep(POLL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_share_the_slots_until_the_value_is_dropped() {
        let cluster = RedisCluster::start().unwrap();
        let ports: Vec<u16> = cluster.nodes.iter().map(RedisServer::port).collect();
        for (at, port) in ports.iter().enumerate() {
            let role = if at < 3 { "role:master" } else { "role:slave" };
            assert!(ask(*port, "INFO replication\r\n").unwrap().contains(role));
        }
        // The slot of "export" is 9,909.
        assert!(ask(ports[1], "SET {export} 1\r\n").unwrap().starts_with("+OK"));
        assert!(ask(ports[0], "GET {export}\r\n").unwrap().starts_with("-MOVED 9909 "));
        assert_eq!((cluster.primary_of("{export}"), cluster.primary_of("{mail}")), (Some(1), Some(0)));
        assert!(
            cluster.url().starts_with(&format!("redis-cluster://127.0.0.1:{}?node=127.0.0.1:{}", ports[0], ports[1]))
        );
        drop(cluster);
        assert!(ports.iter().all(|port| ask(*port, "PING\r\n").is_err()));
    }

    #[test]
    fn nodes_meet_although_the_first_handshakes_timed_out() {
        let (cluster, bus) = RedisCluster::apart().unwrap();
        cluster.nodes[0].freeze().unwrap();
        thread::scope(|scope| {
            let met = scope.spawn(|| cluster.meet(bus));
            thread::sleep(3 * RedisCluster::NODE_TIMEOUT);
            cluster.nodes[0].thaw().unwrap();
            met.join().unwrap().unwrap();
        });
        cluster.share().unwrap();
        assert!(ask(cluster.nodes[5].port(), "CLUSTER INFO\r\n").unwrap().contains("cluster_state:ok"));
    }
}
