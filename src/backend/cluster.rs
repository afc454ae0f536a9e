//! Which node of a Redis Cluster has which slots.
//!
//! The slot map is read when a node says that a slot moved, when a connection to a node fails, or when no node has the slot of a call. It
//! is also read when an answer is late: a frozen primary reports nothing. The node that caused the read is asked last, since a node that was frozen reports its old role. A map
//! with an older epoch than the known one counts only if no node has a newer map.
//!
//! Each primary has a *primary epoch*: a number that is never used again. The primary epoch of a primary ends when it loses all of its
//! slots. Its connections are closed, and answers that still come over them are discarded. A slot that moves between
//! living primaries changes only the map.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use redis::Value;
use tokio::runtime::Handle;
use tokio::sync::watch;

use super::classify::{classify, is_no_cluster, not_connected};
use super::connector::{self, Clients, ConnectOptions, Connector, Plain, is_tls};
use super::hash_slot::slot_of;
use super::single_flight::SingleFlight;
use super::slot_map::{ClusterNode, MapAnswers, SlotMap, epoch_of, read};
use crate::error::{Error, Result};
use crate::mutex::Mutex;

/// How long to wait for a node before also asking the next one.
const PATIENCE: Duration = Duration::from_millis(500);

/// How long all nodes together may take. A connection with TLS and a password needs several round trips.
const LONGEST: Duration = Duration::from_secs(4);

/// How many connections are kept for reading the map.
const KEPT_CONNECTIONS: usize = 2;

/// How often the map is read without a cause: a late answer does not show whether its node is frozen.
const WATCH: Duration = Duration::from_secs(1);

/// The shortest time between two reads of the map, and the longest while reads change nothing.
const BETWEEN: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(1));

/// How long page reads skip a node that did not answer one.
const SILENT: Duration = Duration::from_secs(5);

/// After this long without a map as new as the known one, accept an older one that shares no node id with it. Either
/// the cluster was created again, or the address leads to another cluster. A map of the same cluster is not accepted: a
/// deposed node that restarts alone reports a healthy cluster for a while.
const GONE: Duration = Duration::from_secs(30);

/// When the map was read last, and how long to wait until the next read.
#[derive(Debug)]
struct LastLook {
    at: Option<Instant>,
    /// When the last read that returned a map began.
    begun: Option<Instant>,
    pause: Duration,
}

impl LastLook {
    /// Whether another read may begin. If so, the pause counts from now. Never true before the first read, which [`Cluster::ready`] makes.
    fn is_due(&mut self, pause: impl FnOnce(Duration) -> Duration) -> bool {
        let is_due = self.at.is_some_and(|at| at.elapsed() >= pause(self.pause));
        if is_due {
            self.at = Some(Instant::now());
        }
        is_due
    }
}

pub(super) struct Cluster {
    /// The nodes in the address.
    seeds: Vec<ClusterNode>,
    ways: Connector,
    is_tls: bool,
    map: Mutex<Arc<SlotMap>>,
    /// How many primary epochs have begun.
    primary_epochs: AtomicU64,
    /// How often the set of primaries has changed.
    changes: watch::Sender<u64>,
    /// The primary epochs whose servers were checked.
    checked: Mutex<BTreeSet<u64>>,
    looked: Mutex<LastLook>,
    looking: SingleFlight<()>,
    turn: AtomicUsize,
    /// How many connections to nodes were made.
    connections_made: AtomicU64,
    /// The node with which the next read begins. It differs between processes, so that they do not all ask the same
    /// node, and moves on after each read that failed.
    from: AtomicUsize,
    /// The connections over which the map was read last.
    connections: Mutex<Vec<(ClusterNode, Plain)>>,
    /// Since when no node has sent a map as new as the known one.
    unheard: Mutex<Option<Instant>>,
    /// The nodes that did not answer a page read, and when.
    silent: Mutex<HashMap<ClusterNode, Instant>>,
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster").field("map", &self.map).finish_non_exhaustive()
    }
}

impl Cluster {
    /// A cluster with these seed nodes. Does not connect.
    pub(super) fn new(seeds: Vec<ClusterNode>, ways: Connector) -> Arc<Cluster> {
        Arc::new(Cluster {
            seeds,
            is_tls: is_tls(ways.info.addr()),
            ways,
            map: Mutex::default(),
            primary_epochs: AtomicU64::new(0),
            changes: watch::Sender::new(0),
            checked: Mutex::default(),
            looked: Mutex::new(LastLook { at: None, begun: None, pause: BETWEEN.0 }),
            looking: SingleFlight::default(),
            turn: AtomicUsize::new(0),
            connections_made: AtomicU64::new(0),
            from: AtomicUsize::new(RandomState::new().build_hasher().finish() as usize),
            connections: Mutex::default(),
            unheard: Mutex::default(),
            silent: Mutex::default(),
        })
    }

    fn map(&self) -> Arc<SlotMap> {
        Arc::clone(&self.map.lock())
    }

    /// Grows whenever the set of primaries changes.
    pub(super) fn changes(&self) -> u64 {
        *self.changes.borrow()
    }

    /// The epoch of the primary that has the slot; 0 if it is unknown.
    pub(super) fn primary_epoch_of(&self, slot: u16) -> u64 {
        let map = self.map();
        map.node_of(slot).and_then(|node| map.primary_epochs.get(node)).copied().unwrap_or(0)
    }

    /// The primary epoch of a node; `None` if it is not a primary.
    pub(super) fn primary_epoch_of_node(&self, node: &ClusterNode) -> Option<u64> {
        self.map().primary_epochs.get(node).copied()
    }

    fn is_over(&self, primary_epoch: u64) -> bool {
        !self.map().primary_epochs.values().any(|own| *own == primary_epoch)
    }

    /// Returns when the primary epoch is over; never without one.
    pub(super) async fn over(&self, primary_epoch: Option<u64>) {
        let Some(primary_epoch) = primary_epoch else { return std::future::pending().await };
        // Cannot fail: the sender lives in `self`.
        let _ = self.changes.subscribe().wait_for(|_| self.is_over(primary_epoch)).await;
    }

    /// How this client authenticates.
    pub(super) fn access(&self) -> &ConnectOptions {
        &self.ways.access
    }

    /// How connections to a node are made.
    pub(super) fn clients(&self, node: &ClusterNode) -> Result<Clients> {
        self.ways.to_node(&node.host, node.port)
    }

    /// The node that has the slot, if it is known.
    pub(super) fn node_of(&self, slot: u16) -> Option<ClusterNode> {
        self.map().node_of(slot).cloned()
    }

    /// The node that has the slot, for a call. If none has it, reads the map: in a failover, a node may know that the old primary is a
    /// replica before it knows the new one.
    pub(super) fn found(self: &Arc<Self>, slot: u16) -> Option<ClusterNode> {
        let node = self.node_of(slot);
        if node.is_none() {
            self.search();
        }
        node
    }

    /// The node that has this key, if it is known.
    pub(super) fn node_of_key(&self, key: &str) -> Option<ClusterNode> {
        self.node_of(slot_of(key.as_bytes()))
    }

    /// A node to subscribe at. Each call returns the next one, so that an unreachable node is not chosen again at once.
    pub(super) fn any_node(&self) -> ClusterNode {
        let map = self.map();
        let primaries: Vec<&ClusterNode> = map.primaries().into_iter().collect();
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        primaries.get(turn % primaries.len().max(1)).map_or_else(|| self.seeds[0].clone(), |node| (*node).clone())
    }

    pub(super) fn primaries(&self) -> Vec<ClusterNode> {
        self.map().primaries().into_iter().cloned().collect()
    }

    /// The primaries that were not yet checked in this primary epoch.
    pub(super) fn unchecked(&self) -> Vec<ClusterNode> {
        let (map, checked) = (self.map(), self.checked.lock());
        let is_new = |node: &&ClusterNode| {
            map.primary_epochs.get(*node).is_some_and(|primary_epoch| !checked.contains(primary_epoch))
        };
        map.primaries().into_iter().filter(is_new).cloned().collect()
    }

    pub(super) fn was_checked(&self, node: &ClusterNode) {
        self.checked.lock().extend(self.primary_epoch_of_node(node));
    }

    /// A number for a new connection to a node; never given twice.
    pub(super) fn connection_number(&self) -> u64 {
        self.connections_made.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Whether a node did not answer a moment ago.
    pub(super) fn is_silent(&self, node: &ClusterNode) -> bool {
        self.silent.lock().get(node).is_some_and(|since| since.elapsed() < SILENT)
    }

    /// Records that a node did not answer a page read in time.
    pub(super) fn fell_silent(&self, node: &ClusterNode) {
        let mut silent = self.silent.lock();
        silent.retain(|_, since| since.elapsed() < SILENT);
        silent.insert(node.clone(), Instant::now());
    }

    /// Reads the map unless it is known.
    ///
    /// # Errors
    /// `Connect` if no node sends one.
    pub(super) async fn ready(self: &Arc<Self>) -> Result<()> {
        if !self.map().ranges.is_empty() {
            return Ok(());
        }
        self.look(None).await
    }

    /// Records that a node reported the slot as moved.
    pub(super) fn moved(self: &Arc<Self>, slot: u16, to: ClusterNode, from: &ClusterNode) {
        let mut map = self.map.lock();
        let newer = Arc::make_mut(&mut map);
        newer.nodes.insert(to.clone());
        newer
            .primary_epochs
            .entry(to.clone())
            .or_insert_with(|| self.primary_epochs.fetch_add(1, Ordering::SeqCst) + 1);
        newer.moved.insert(slot, to);
        drop(map);
        self.suspect(from);
    }

    /// Asks the other nodes whether a node that answered late is still a primary. The late answer counts only if they confirm this
    /// after it came.
    pub(super) async fn confirms(self: &Arc<Self>, node: &ClusterNode, primary_epoch: u64) -> bool {
        let came = Instant::now();
        // A read that other callers share may have begun before the answer came.
        for _ in 0..2 {
            // Many calls may have waited: those that return within this time share the next read.
            let rest = self.looked.lock().at.map_or(Duration::ZERO, |at| BETWEEN.0.saturating_sub(at.elapsed()));
            tokio::time::sleep(rest).await;
            let is_new = || self.looked.lock().begun.is_some_and(|begun| begun >= came);
            if is_new() {
                break;
            }
            if self.look(Some(node)).await.is_err() {
                // No other node can be asked. What the node reports now is newer than its answer, so it decides.
                let Ok(own) = self.ask(node.clone(), false).await else { return false };
                return own.is_part && own.epoch >= self.map().epoch && own.primaries().contains(node);
            }
            if is_new() {
                break;
            }
        }
        !self.is_over(primary_epoch)
    }

    /// Reads the map from the other nodes after a problem with this one, unless that was just done.
    pub(super) fn suspect(self: &Arc<Self>, node: &ClusterNode) {
        self.look_if_due(Some(node), |pause| pause);
    }

    /// Starts to read the map from time to time.
    pub(super) fn keep_watch(self: &Arc<Self>) {
        self.look_if_due(None, |_| WATCH);
    }

    /// Starts to read the map, unless it was just read. Nothing else may do so: a call without a node reaches no server that reports a
    /// change.
    fn search(self: &Arc<Self>) {
        self.look_if_due(None, |pause| pause);
    }

    fn look_if_due(self: &Arc<Self>, except: Option<&ClusterNode>, pause: impl FnOnce(Duration) -> Duration) {
        let is_due = self.looked.lock().is_due(pause);
        if is_due {
            let (cluster, except) = (Arc::clone(self), except.cloned());
            tokio::spawn(async move { cluster.look(except.as_ref()).await }.boxed());
        }
    }

    /// Reads the map; one attempt at a time for all callers of a runtime.
    async fn look(self: &Arc<Self>, except: Option<&ClusterNode>) -> Result<()> {
        let look = || {
            let (cluster, except) = (Arc::clone(self), except.cloned());
            async move { cluster.look_now(except.as_ref()).await }
        };
        self.looking.attempt(&Handle::current(), look).await
    }

    async fn look_now(&self, except: Option<&ClusterNode>) -> Result<()> {
        let (map, begun) = (self.map(), Instant::now());
        let is_known = !map.ranges.is_empty();
        let mut nodes = self.in_turn(&map);
        // A stable sort: the node that caused the read comes last.
        nodes.sort_by_key(|node| Some(node) == except);
        // If no node caused this read, ask a second node too: the first may be cut off from the others and not know it
        // yet.
        let wanted = if is_known && except.is_none() { 2 } else { 1 };
        let mut nodes = nodes.into_iter().peekable();
        let (mut asking, mut answers, mut silent) = (FuturesUnordered::new(), MapAnswers::default(), Vec::new());
        loop {
            if let Some(node) = nodes.next() {
                silent.push((node.clone(), Instant::now()));
                asking.push(async { (node.clone(), self.ask(node, is_known).await) });
            }
            // Ask the next one when this one has failed or does not answer.
            let left = LONGEST.saturating_sub(begun.elapsed());
            let timeout = if nodes.peek().is_some() || answers.has_any() { PATIENCE.min(left) } else { left };
            let answer = tokio::time::timeout(timeout, asking.next()).await;
            let answer = answer.map(|answer| {
                let (node, sent) = answer?;
                silent.retain(|(silent, _)| *silent != node);
                Some(sent)
            });
            match answer {
                Ok(Some(sent)) => {
                    answers.add(sent, &map);
                    if answers.newest.len() >= wanted {
                        break;
                    }
                }
                Ok(None) => break,
                // One node has answered, and the second takes long.
                Err(_) if !answers.newest.is_empty() => break,
                Err(_) if nodes.peek().is_some() => {}
                Err(_) => {
                    answers.failure.get_or_insert_with(|| self.silence());
                    break;
                }
            }
        }
        // Do not reuse a connection on which nothing arrives.
        let is_silent =
            |node: &ClusterNode| silent.iter().any(|(silent, since)| silent == node && since.elapsed() >= PATIENCE);
        self.connections.lock().retain(|(node, _)| !is_silent(node));
        let is_gone = self.unheard_for(!answers.newest.is_empty(), begun) >= GONE;
        match answers.chosen(&map, is_gone) {
            Ok(sent) => {
                self.take(sent, begun);
                Ok(())
            }
            Err(e) => {
                // The next read begins with another node.
                self.from.fetch_add(1, Ordering::Relaxed);
                self.looked_at(false, None);
                Err(e)
            }
        }
    }

    /// For how long no node has sent a map as new as the known one.
    fn unheard_for(&self, is_heard: bool, begun: Instant) -> Duration {
        let mut unheard = self.unheard.lock();
        if is_heard {
            *unheard = None;
            return Duration::ZERO;
        }
        unheard.get_or_insert(begun).elapsed()
    }

    /// The nodes in the order in which they are asked: those that answered last, then the others in turn. The third of
    /// the others is a seed of the address, since the address may lead elsewhere by now. The seed is not among the
    /// first two, since it may be one of them under another name.
    fn in_turn(&self, map: &SlotMap) -> Vec<ClusterNode> {
        let mut nodes: Vec<ClusterNode> = self.connections.lock().iter().map(|(node, _)| node.clone()).collect();
        let turned = |mut nodes: Vec<ClusterNode>| {
            let from = self.from.load(Ordering::Relaxed) % nodes.len().max(1);
            nodes.rotate_left(from);
            nodes
        };
        let known: BTreeSet<&ClusterNode> = map.primaries().into_iter().chain(&map.nodes).collect();
        let mut known = turned(known.into_iter().cloned().collect()).into_iter();
        let mut seeds = turned(self.seeds.clone()).into_iter();
        nodes.extend(
            known.by_ref().take(2).collect::<Vec<_>>().into_iter().chain(seeds.next()).chain(known).chain(seeds),
        );
        let mut seen = BTreeSet::new();
        nodes.retain(|node| seen.insert(node.clone()));
        nodes
    }

    fn looked_at(&self, has_changed: bool, begun: Option<Instant>) {
        let mut looked = self.looked.lock();
        looked.pause = if has_changed { BETWEEN.0 } else { (looked.pause * 2).min(BETWEEN.1) };
        looked.at = Some(Instant::now());
        looked.begun = begun.or(looked.begun);
    }

    fn take(&self, mut newer: SlotMap, begun: Instant) {
        let mut map = self.map.lock();
        if self.looked.lock().begun.is_some_and(|last| last > begun) {
            // A read on another runtime began later and finished sooner.
            return;
        }
        let mut primary_epochs = self.primary_epochs.load(Ordering::SeqCst);
        newer.number_epochs(&map, &mut primary_epochs);
        if !newer.ids.is_disjoint(&map.ids) {
            newer.ids.extend(map.ids.iter().cloned());
        }
        self.primary_epochs.store(primary_epochs, Ordering::SeqCst);
        let (is_other, has_changed) = (map.primary_epochs != newer.primary_epochs, map.ranges != newer.ranges);
        *map = Arc::new(newer);
        drop(map);
        self.looked_at(has_changed, Some(begun));
        if is_other {
            self.changes.send_modify(|changes| *changes += 1);
        }
    }

    /// The error for nodes that did not answer.
    fn silence(&self) -> Error {
        not_connected(&io::Error::from(io::ErrorKind::TimedOut).into(), self.is_tls)
    }

    /// Reads the map from one node. With `is_kept`, its connection is kept for the next read.
    async fn ask(&self, node: ClusterNode, is_kept: bool) -> Result<SlotMap> {
        let own =
            self.connections.lock().iter().find(|(own, _)| *own == node).map(|(_, connection)| connection.clone());
        let asked = async {
            let mut connection = match own {
                Some(connection) => connection,
                None => {
                    let config = self.ways.access.config().set_connection_timeout(None).set_response_timeout(None);
                    let client = self.clients(&node)?.client;
                    let connection = connector::open(&client, &self.ways.access, &config).await;
                    connection.map_err(|e| not_connected(&connector::of_node(e, &node), self.is_tls))?
                }
            };
            let mut ask = redis::pipe();
            ask.cmd("CLUSTER").arg("SLOTS").cmd("CLUSTER").arg("INFO");
            let (reply, info): (Value, String) =
                ask.query_async(&mut connection).await.map_err(|e| not_a_cluster(&node, e))?;
            let mut map = read(&node, &reply).ok_or_else(Error::timed_out)?;
            map.epoch = epoch_of(&info).ok_or_else(Error::timed_out)?;
            map.is_part = info.contains("cluster_state:ok");
            if map.ranges.is_empty() {
                // The node has not met the others yet, or has forgotten them.
                return Err(Error::timed_out());
            }
            Ok((map, connection))
        };
        match tokio::time::timeout(LONGEST, asked).await.unwrap_or_else(|_| Err(self.silence())) {
            Ok((map, connection)) => {
                let mut connections = self.connections.lock();
                if is_kept && connections.len() < KEPT_CONNECTIONS && connections.iter().all(|(own, _)| *own != node) {
                    connections.push((node, connection));
                }
                Ok(map)
            }
            Err(e) => {
                self.connections.lock().retain(|(own, _)| *own != node);
                Err(e)
            }
        }
    }
}

/// The error of a server, with a clear text if the server has no cluster support.
fn not_a_cluster(node: &ClusterNode, e: redis::RedisError) -> Error {
    if is_no_cluster(&e) {
        let what = format!("{node} is not a cluster node: write redis://{node}");
        return Error::Unsupported { what };
    }
    classify("cluster slots", e)
}
