//! What a node of a Redis Cluster reports: which node has which slots, and the epoch of the cluster.

use std::collections::{BTreeSet, HashMap};
use std::fmt;

use redis::Value;

use super::hash_slot::SLOTS;
use crate::error::{Error, Result};

/// A node, under the address that other nodes give for it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ClusterNode {
    pub(super) host: String,
    pub(super) port: u16,
}

impl fmt::Display for ClusterNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            return write!(f, "[{}]:{}", self.host, self.port);
        }
        write!(f, "{}:{}", self.host, self.port)
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct SlotMap {
    /// The first and the last slot of each range, in order.
    pub(super) ranges: Vec<(u16, u16, ClusterNode)>,
    /// Slots that a node has since reported as moved.
    pub(super) moved: HashMap<u16, ClusterNode>,
    /// Every known node, replicas included.
    pub(super) nodes: BTreeSet<ClusterNode>,
    /// The ids of all nodes that the cluster has or had. No two clusters share one.
    pub(super) ids: BTreeSet<String>,
    pub(super) primary_epochs: HashMap<ClusterNode, u64>,
    /// The cluster's epoch, as the node that sent the map knew it.
    pub(super) epoch: u64,
    /// Whether that node takes part in the cluster. A node without contact to the majority says that it does not, and sends an old map.
    pub(super) is_part: bool,
}

impl SlotMap {
    pub(super) fn node_of(&self, slot: u16) -> Option<&ClusterNode> {
        let range = || self.ranges.iter().find(|(first, last, _)| (*first..=*last).contains(&slot));
        self.moved.get(&slot).or_else(|| range().map(|(.., node)| node))
    }

    pub(super) fn primaries(&self) -> BTreeSet<&ClusterNode> {
        self.ranges.iter().map(|(.., node)| node).collect()
    }

    /// Whether this map is that of another cluster: a healthy one that shares no node with the known one.
    pub(super) fn is_another_than(&self, known: &SlotMap) -> bool {
        self.is_part && !self.ids.is_empty() && self.ids.is_disjoint(&known.ids)
    }

    /// Gives each primary its primary epoch: the one that it had, or the next number.
    pub(super) fn number_epochs(&mut self, before: &SlotMap, next: &mut u64) {
        for node in self.primaries().into_iter().cloned().collect::<Vec<_>>() {
            let primary_epoch = before.primary_epochs.get(&node).copied().unwrap_or_else(|| {
                *next += 1;
                *next
            });
            self.primary_epochs.insert(node, primary_epoch);
        }
    }
}

/// What the nodes answered to one read of the map.
#[derive(Default)]
pub(super) struct MapAnswers {
    /// The maps that are at least as new as the known one.
    pub(super) newest: Vec<SlotMap>,
    /// The newest of the other maps.
    older: Option<SlotMap>,
    pub(super) failure: Option<Error>,
}

impl MapAnswers {
    /// Whether any node sent a map.
    pub(super) fn has_any(&self) -> bool {
        !self.newest.is_empty() || self.older.is_some()
    }

    /// Adds the answer of a node.
    pub(super) fn add(&mut self, answer: Result<SlotMap>, known: &SlotMap) {
        match answer {
            Ok(newer) if newer.epoch >= known.epoch && newer.is_part => self.newest.push(newer),
            // Either the node has not learned of a failover yet, or the cluster was created again.
            Ok(sent) => {
                if self.older.as_ref().is_none_or(|before| before.epoch < sent.epoch) {
                    self.older = Some(sent);
                }
            }
            // An error about authentication is more useful than the news that another node is unreachable.
            Err(e) => {
                if self.failure.as_ref().is_none_or(Error::is_retryable) {
                    self.failure = Some(e);
                }
            }
        }
    }

    /// The map to use. `is_gone` says that no node has sent a map as new as the known one for a long time.
    ///
    /// # Errors
    /// The failure of a node if no map counts; `Closed` if none failed.
    pub(super) fn chosen(self, known: &SlotMap, is_gone: bool) -> Result<SlotMap> {
        let MapAnswers { newest, older, failure } = self;
        let is_known = !known.ranges.is_empty();
        // If the cluster is down, no node takes part. Then use the newest map, unless it is older than the known one.
        let all_say_so = failure.is_none() || !is_known;
        let older =
            older.filter(|sent| all_say_so || sent.epoch >= known.epoch || is_gone && sent.is_another_than(known));
        if let Some(sent) = older.as_ref().filter(|sent| newest.is_empty() && is_known && sent.is_another_than(known)) {
            tracing::warn!(
                known = known.epoch,
                found = sent.epoch,
                "no node of the known cluster answers, and the address leads to another cluster; using that one until this process restarts"
            );
        }
        let chosen = newest.into_iter().max_by_key(|map| map.epoch).or(older);
        chosen.ok_or_else(|| failure.unwrap_or(Error::Closed))
    }
}

/// The epoch in the answer to `CLUSTER INFO`.
pub(super) fn epoch_of(info: &str) -> Option<u64> {
    info.lines().find_map(|line| line.strip_prefix("cluster_current_epoch:"))?.trim().parse().ok()
}

/// Reads the answer of `CLUSTER SLOTS`: ranges, each with its primary and its replicas.
pub(super) fn read(asked: &ClusterNode, reply: &Value) -> Option<SlotMap> {
    let Value::Array(rows) = reply else { return None };
    let mut map = SlotMap::default();
    for row in rows {
        let Value::Array(row) = row else { return None };
        let [Value::Int(first), Value::Int(last), primary, replicas @ ..] = &row[..] else { return None };
        let (first, last) = (u16::try_from(*first).ok()?, u16::try_from(*last).ok()?);
        if first > last || last >= SLOTS {
            return None;
        }
        // A primary whose address is unknown still has its slots, so other nodes are asked for them.
        if let Some(primary) = node_of(asked, primary) {
            map.nodes.insert(primary.clone());
            map.ranges.push((first, last, primary));
        }
        map.nodes.extend(replicas.iter().filter_map(|replica| node_of(asked, replica)));
        map.ids.extend(std::iter::once(primary).chain(replicas).filter_map(id_of));
    }
    map.ranges.sort();
    Some(map)
}

/// The id of a node in `CLUSTER SLOTS`.
fn id_of(reply: &Value) -> Option<String> {
    let Value::Array(parts) = reply else { return None };
    redis::from_redis_value_ref(parts.get(2)?).ok()
}

/// A node in `CLUSTER SLOTS`. Without a host it is the node that was asked; `?` means unknown.
fn node_of(asked: &ClusterNode, reply: &Value) -> Option<ClusterNode> {
    let Value::Array(parts) = reply else { return None };
    let [host, Value::Int(port), ..] = &parts[..] else { return None };
    let host: Option<String> = redis::from_redis_value_ref(host).ok()?;
    let host = host.filter(|host| !host.is_empty()).unwrap_or_else(|| asked.host.clone());
    (host != "?").then(|| Some(ClusterNode { host, port: u16::try_from(*port).ok()? }))?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(port: u16) -> ClusterNode {
        ClusterNode { host: "10.0.0.1".to_owned(), port }
    }

    /// First and last slot, then the nodes.
    type Row<'a> = (i64, i64, &'a [(&'a str, i64)]);

    fn reply_of(rows: &[Row]) -> Value {
        let named = |(host, port): &(&str, i64)| {
            Value::Array(vec![Value::BulkString(host.as_bytes().to_vec()), Value::Int(*port), Value::Nil])
        };
        let row = |(first, last, nodes): &Row| {
            let bounds = [Value::Int(*first), Value::Int(*last)];
            Value::Array(bounds.into_iter().chain(nodes.iter().map(named)).collect())
        };
        Value::Array(rows.iter().map(row).collect())
    }

    #[test]
    fn a_slot_map_uses_the_address_of_the_node_that_sent_it() {
        let rows: [Row; 3] =
            [(100, 200, &[("10.0.0.1", 2), ("10.0.0.1", 3)]), (0, 99, &[("", 1), ("?", 9)]), (201, 300, &[("?", 9)])];
        let map = read(&node(1), &reply_of(&rows)).unwrap();
        assert_eq!((map.node_of(0), map.node_of(150), map.node_of(250)), (Some(&node(1)), Some(&node(2)), None));
        assert_eq!(map.nodes, BTreeSet::from([node(1), node(2), node(3)]));
        assert!(read(&node(1), &Value::Okay).is_none() && read(&node(1), &reply_of(&[(5, 4, &[("a", 1)])])).is_none());
    }

    #[test]
    fn a_primary_epoch_ends_when_the_primary_loses_all_its_slots() {
        let mut primary_epochs = 0;
        let mut map = |rows: &[Row], before: &SlotMap| {
            let mut map = read(&node(1), &reply_of(rows)).unwrap();
            map.number_epochs(before, &mut primary_epochs);
            map
        };
        let primary_epochs = |map: &SlotMap| [1, 2, 3].map(|port| map.primary_epochs.get(&node(port)).copied());
        let first = map(&[(0, 99, &[("10.0.0.1", 1)]), (100, 199, &[("10.0.0.1", 2)])], &SlotMap::default());
        assert_eq!(primary_epochs(&first), [Some(1), Some(2), None]);
        let moved = map(&[(0, 49, &[("10.0.0.1", 1)]), (50, 199, &[("10.0.0.1", 2)])], &first);
        assert_eq!(primary_epochs(&moved), primary_epochs(&first));
        let failed_over = map(&[(0, 99, &[("10.0.0.1", 3)]), (100, 199, &[("10.0.0.1", 2)])], &moved);
        assert_eq!(primary_epochs(&failed_over), [None, Some(2), Some(3)]);
        // A server that becomes primary again gets a new primary epoch.
        let again = map(&[(0, 99, &[("10.0.0.1", 1)]), (100, 199, &[("10.0.0.1", 2)])], &failed_over);
        assert_eq!(primary_epochs(&again), [Some(4), Some(2), None]);
    }

    #[test]
    fn the_epoch_is_read_from_the_cluster_info() {
        let info = "cluster_state:ok\r\ncluster_current_epoch:7\r\ncluster_my_epoch:2\r\n";
        assert_eq!((epoch_of(info), epoch_of("cluster_state:ok")), (Some(7), None));
    }
}
