//! The connection of a call: a connection to one server, or to each needed node of a cluster.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use redis::{
    AsyncConnectionConfig, Cmd, ErrorKind, Pipeline, RedisError, RedisFuture, RedisResult, ServerErrorKind, Value,
};

use super::app_runtime::AppRuntime;
use super::call_context::Awaited;
use super::classify::Unanswered;
use super::cluster::Cluster;
use super::connector::{self, Plain};
use super::hash_slot::{key_of, slot_of};
use super::single_flight::SingleFlight;
use super::slot_map::ClusterNode;
use super::timeouts::Silence;
use crate::mutex::Mutex;

pub(crate) use redis::aio::ConnectionLike as Connection;

/// After this long without an answer, check whether the node is still the primary of its slots. Repeat the check after
/// each further time of this length.
const LATE: Duration = Duration::from_millis(500);

/// How long one node may take for a call that any node can answer.
const ANY_PATIENCE: Duration = Duration::from_secs(2);

/// How long a page read waits for a node before it returns without it. Shorter than every other time-out for one node.
const LOOK_PATIENCE: Duration = Duration::from_millis(1500);

/// A connection that many callers may share.
#[derive(Clone)]
pub(crate) enum OwnConnection {
    One(Plain),
    /// To the nodes of a cluster: each command goes to the node that has its key.
    Routed(Arc<NodeConnections>),
    /// To one node of a cluster.
    Pinned(Arc<NodeConnections>, Box<NodeConnection>),
}

/// Connections to nodes. Each is made when it is first needed.
#[derive(Clone)]
pub(crate) struct NodeConnections {
    cluster: Arc<Cluster>,
    config: AsyncConnectionConfig,
    opened: Arc<Mutex<HashMap<ClusterNode, Opened>>>,
    /// The runtime that opens them.
    runtime: Arc<AppRuntime>,
    /// Names a new connection at its server.
    name: Arc<dyn Fn(&Plain) + Send + Sync>,
    /// Whether they serve page reads, which do not wait for a node that does not answer.
    are_for_looks: bool,
}

/// A connection that is open or being opened, and the primary epoch of its node when it was first needed.
#[derive(Clone, Default)]
struct Opened {
    primary_epoch: Option<u64>,
    connection: Option<NodeConnection>,
    opening: Arc<SingleFlight<RedisResult<NodeConnection>>>,
}

#[derive(Clone)]
pub(crate) struct NodeConnection {
    conn: Plain,
    node: ClusterNode,
    /// The primary epoch of the node; `None` if it has no slots.
    primary_epoch: Option<u64>,
    silence: Arc<Mutex<Silence>>,
    number: u64,
}

impl fmt::Debug for OwnConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            OwnConnection::One(_) => "One",
            OwnConnection::Routed(_) => "Routed",
            OwnConnection::Pinned(..) => "Pinned",
        })
    }
}

impl OwnConnection {
    /// Connections to the nodes of a cluster. None is open yet; they are opened on the runtime of the caller.
    pub(super) fn routed(
        cluster: Arc<Cluster>,
        config: AsyncConnectionConfig,
        name: impl Fn(&Plain) + Send + Sync + 'static,
    ) -> OwnConnection {
        let (opened, name, runtime) = (Arc::default(), Arc::new(name), Arc::new(AppRuntime::of_caller()));
        OwnConnection::Routed(Arc::new(NodeConnections {
            cluster,
            config,
            opened,
            runtime,
            name,
            are_for_looks: false,
        }))
    }

    /// The same connections for page reads. A node that does not answer fails the call soon, and for some time each
    /// later call at once.
    pub(super) fn for_looks(&self) -> OwnConnection {
        match self {
            OwnConnection::Routed(connections) => OwnConnection::Routed(Arc::new(NodeConnections {
                are_for_looks: true,
                ..NodeConnections::clone(connections)
            })),
            own => own.clone(),
        }
    }

    /// The connection to the server that has this key, for calls that must stay on one server.
    pub(crate) async fn at(&self, key: &str) -> RedisResult<OwnConnection> {
        let OwnConnection::Routed(connections) = self else { return Ok(self.clone()) };
        let node = connections.node_of(slot_of(key.as_bytes()))?;
        connections.pinned(&node).boxed().await
    }

    /// The primaries of a cluster, each as `host:port`; one empty text for a single server.
    pub(crate) fn places(&self) -> Vec<String> {
        match self {
            OwnConnection::Routed(connections) => {
                connections.cluster.primaries().iter().map(ClusterNode::to_string).collect()
            }
            _ => vec![String::new()],
        }
    }

    /// The connection to one of [`places`](OwnConnection::places).
    pub(crate) async fn at_place(&self, place: &str) -> RedisResult<OwnConnection> {
        let OwnConnection::Routed(connections) = self else { return Ok(self.clone()) };
        let node = connections.cluster.primaries().into_iter().find(|node| node.to_string() == place);
        self.to_node(&node.ok_or_else(|| io::Error::from(io::ErrorKind::NotConnected))?).await
    }

    pub(super) async fn to_node(&self, node: &ClusterNode) -> RedisResult<OwnConnection> {
        match self {
            OwnConnection::Routed(connections) => connections.pinned(node).boxed().await,
            _ => Ok(self.clone()),
        }
    }

    /// Whether a call over this connection may use this key.
    pub(crate) fn has(&self, key: &str) -> bool {
        match self {
            OwnConnection::One(_) | OwnConnection::Routed(_) => true,
            OwnConnection::Pinned(connections, connection) => {
                connections.cluster.node_of(slot_of(key.as_bytes())).as_ref() == Some(&connection.node)
            }
        }
    }

    /// The number of the connection that serves this key; each new connection gets another one. `None` if none is open;
    /// 0 for a single server.
    pub(crate) fn number_for(&self, key: &str) -> Option<u64> {
        match self {
            OwnConnection::One(_) => Some(0),
            OwnConnection::Pinned(_, connection) => Some(connection.number),
            OwnConnection::Routed(connections) => {
                let node = connections.cluster.node_of_key(key)?;
                connections.opened.lock().get(&node)?.connection.as_ref().map(|connection| connection.number)
            }
        }
    }

    pub(super) fn open(&self) -> Vec<Plain> {
        match self {
            OwnConnection::One(conn) => vec![conn.clone()],
            OwnConnection::Pinned(_, connection) => vec![connection.conn.clone()],
            OwnConnection::Routed(connections) => connections
                .opened
                .lock()
                .values()
                .filter_map(|opened| Some(opened.connection.as_ref()?.conn.clone()))
                .collect(),
        }
    }

    /// Whether calls may use keys of several servers.
    pub(crate) fn is_routed(&self) -> bool {
        matches!(self, OwnConnection::Routed(_))
    }
}

impl Connection for OwnConnection {
    fn req_packed_command<'a>(&'a mut self, cmd: &'a Cmd) -> RedisFuture<'a, Value> {
        match self {
            OwnConnection::One(conn) => conn.req_packed_command(cmd),
            OwnConnection::Routed(connections) => Box::pin(connections.route(cmd)),
            OwnConnection::Pinned(connections, connection) => Box::pin(connections.ask_over(connection, cmd)),
        }
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        pipeline: &'a Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        match self {
            OwnConnection::One(conn) => conn.req_packed_commands(pipeline, offset, count),
            OwnConnection::Routed(connections) => Box::pin(connections.route_all(pipeline, offset, count)),
            OwnConnection::Pinned(connections, connection) => {
                Box::pin(connections.ask_all_over(connection, pipeline, offset, count))
            }
        }
    }

    fn get_db(&self) -> i64 {
        match self {
            OwnConnection::One(conn) => conn.get_db(),
            OwnConnection::Routed(_) | OwnConnection::Pinned(..) => 0,
        }
    }
}

/// Waits for a node's answer for as long as the node's primary epoch lasts.
async fn while_primary<T>(
    cluster: &Cluster,
    primary_epoch: Option<u64>,
    answer: impl Future<Output = RedisResult<T>>,
) -> RedisResult<T> {
    tokio::select! {
        biased;
        () = cluster.over(primary_epoch) => Err(deposed()),
        answer = answer => answer,
    }
}

/// The error for a deposed primary: the same as for a closed connection.
fn deposed() -> RedisError {
    io::Error::new(io::ErrorKind::ConnectionAborted, "another server is the primary").into()
}

/// Where a node redirects a call.
enum Elsewhere {
    /// The slot has moved for good.
    Moved(u16, ClusterNode),
    /// Only this call: the slot is being moved.
    Ask(ClusterNode),
}

impl Elsewhere {
    fn of(answer: &RedisResult<Value>, asked: &ClusterNode) -> Option<Elsewhere> {
        let e = error_of(answer)?;
        let (address, slot) = e.redirect_node()?;
        let (host, port) = address.rsplit_once(':')?;
        let host = if host.is_empty() { &asked.host } else { host.trim_matches(['[', ']']) };
        let node = ClusterNode { host: host.to_owned(), port: port.parse().ok()? };
        Some(match e.kind() {
            ErrorKind::Server(ServerErrorKind::Ask) => Elsewhere::Ask(node),
            _ => Elsewhere::Moved(slot, node),
        })
    }
}

/// The error of a call, or of one of several calls that were made together.
fn error_of(answer: &RedisResult<Value>) -> Option<RedisError> {
    match answer {
        Ok(Value::ServerError(e)) => Some(e.clone().into()),
        Ok(_) => None,
        Err(e) => Some(e.clone()),
    }
}

/// Whether a node says that it, or the whole cluster, cannot serve the slot.
fn is_down(answer: &RedisResult<Value>) -> bool {
    let e = error_of(answer);
    e.is_some_and(|e| e.code().is_some_and(|code| ["CLUSTERDOWN", "MASTERDOWN", "READONLY"].contains(&code)))
}

impl NodeConnections {
    /// Drops connections to nodes whose primary epoch is over.
    fn leave_past(&self) {
        self.opened.lock().retain(|node, own| {
            own.primary_epoch.is_none() || self.cluster.primary_epoch_of_node(node) == own.primary_epoch
        });
    }

    fn node_of(&self, slot: u16) -> RedisResult<ClusterNode> {
        self.cluster.found(slot).ok_or_else(|| io::Error::from(io::ErrorKind::NotConnected).into())
    }

    async fn to(self: &Arc<Self>, node: &ClusterNode) -> RedisResult<NodeConnection> {
        let primary_epoch = self.cluster.primary_epoch_of_node(node);
        let opening = {
            let mut opened = self.opened.lock();
            let own = opened.entry(node.clone()).or_default();
            if own.primary_epoch != primary_epoch {
                // Answers over the former connection no longer count.
                *own = Opened { primary_epoch, ..Opened::default() };
            }
            match &own.connection {
                Some(connection) => return Ok(connection.clone()),
                None => Arc::clone(&own.opening),
            }
        };
        let open = || {
            let (connections, node) = (Arc::clone(self), node.clone());
            async move { Ok(connections.open(node, primary_epoch).await) }
        };
        let ended = || io::Error::from(io::ErrorKind::NotConnected).into();
        let runtime = self.runtime.handle().ok_or_else(ended)?;
        let opened = self.watched(
            node,
            while_primary(&self.cluster, primary_epoch, async {
                opening.attempt(&runtime, open).await.unwrap_or_else(|_| Err(ended()))
            }),
        );
        let connection = self.looked(node, opened).await.inspect_err(|_| self.cluster.suspect(node))?;
        self.leave_past();
        let mut opened = self.opened.lock();
        // Another connection may have been made meanwhile, for a later primary epoch.
        let own = opened.get_mut(node).filter(|own| Arc::ptr_eq(&own.opening, &opening));
        Ok(own.map(|own| own.connection.get_or_insert(connection.clone()).clone()).unwrap_or(connection))
    }

    async fn open(&self, node: ClusterNode, primary_epoch: Option<u64>) -> RedisResult<NodeConnection> {
        let clients = self.cluster.clients(&node);
        let client = clients.map_err(|_| RedisError::from((ErrorKind::InvalidClientConfig, "node")))?.client;
        let conn = connector::open(&client, self.cluster.access(), &self.config).await;
        let conn = conn.map_err(|e| connector::of_node(e, &node))?;
        (self.name)(&conn);
        Ok(NodeConnection {
            conn,
            node,
            primary_epoch,
            silence: Arc::default(),
            number: self.cluster.connection_number(),
        })
    }

    async fn pinned(self: &Arc<Self>, node: &ClusterNode) -> RedisResult<OwnConnection> {
        let connection = Box::new(self.to(node).await?);
        Ok(OwnConnection::Pinned(Arc::clone(self), connection))
    }

    /// Drops the connection. The next call to the node makes another.
    fn leave(&self, connection: &NodeConnection) {
        let mut opened = self.opened.lock();
        let is_it =
            |own: &Opened| own.connection.as_ref().is_some_and(|own| Arc::ptr_eq(&own.silence, &connection.silence));
        if opened.get(&connection.node).is_some_and(is_it) {
            opened.remove(&connection.node);
        }
    }

    /// Reads the slot map whenever a node takes long: a frozen node reports nothing.
    async fn watched<T>(&self, node: &ClusterNode, answer: impl Future<Output = T>) -> T {
        tokio::pin!(answer);
        let waiting = Awaited::on(node);
        loop {
            match tokio::time::timeout(LATE, &mut answer).await {
                Ok(answer) => {
                    waiting.over();
                    return answer;
                }
                Err(_) => self.cluster.suspect(node),
            }
        }
    }

    /// Limits how long a page read waits for the answer of a node.
    async fn looked<T>(&self, node: &ClusterNode, answer: impl Future<Output = RedisResult<T>>) -> RedisResult<T> {
        if !self.are_for_looks {
            return answer.await;
        }
        let late = || Err(Unanswered::by(node));
        if self.cluster.is_silent(node) {
            return late();
        }
        match tokio::time::timeout(LOOK_PATIENCE, answer).await {
            Ok(answer) => answer,
            Err(_) => {
                self.cluster.fell_silent(node);
                late()
            }
        }
    }

    /// Waits for an answer of a node. A late answer counts only if the node is still a primary.
    async fn answered<T>(
        &self,
        connection: &NodeConnection,
        answer: impl Future<Output = RedisResult<T>>,
    ) -> RedisResult<T> {
        let mut under_way = AtNode { connections: self, connection, begun: Instant::now(), has_ended: false };
        let answer = self.watched(&connection.node, while_primary(&self.cluster, connection.primary_epoch, answer));
        let answered = self.looked(&connection.node, answer).await;
        under_way.has_ended = true;
        if answered.as_ref().is_err_and(RedisError::is_io_error) {
            self.leave(connection);
            self.cluster.suspect(&connection.node);
            return answered;
        }
        connection.silence.lock().answered();
        match connection.primary_epoch {
            Some(primary_epoch)
                if under_way.begun.elapsed() > LATE
                    && !self.cluster.confirms(&connection.node, primary_epoch).await =>
            {
                Err(deposed())
            }
            _ => answered,
        }
    }

    async fn ask(self: &Arc<Self>, node: &ClusterNode, cmd: &Cmd) -> RedisResult<Value> {
        let connection = self.to(node).await?;
        self.at(&connection, cmd).await
    }

    async fn at(&self, connection: &NodeConnection, cmd: &Cmd) -> RedisResult<Value> {
        let mut conn = connection.conn.clone();
        self.answered(connection, conn.req_packed_command(cmd)).await
    }

    /// Makes a call over this connection. If its slot is being moved, asks the node that has the key by now. If the
    /// slot has moved for good, returns the redirect as an error.
    async fn ask_over(self: &Arc<Self>, connection: &NodeConnection, cmd: &Cmd) -> RedisResult<Value> {
        let answer = self.at(connection, cmd).await;
        match Elsewhere::of(&answer, &connection.node) {
            Some(Elsewhere::Ask(to)) => self.ask_on_its_way(&to, cmd).await,
            Some(Elsewhere::Moved(slot, to)) => {
                self.cluster.moved(slot, to, &connection.node);
                answer
            }
            None => {
                if is_down(&answer) {
                    self.cluster.suspect(&connection.node);
                }
                answer
            }
        }
    }

    async fn ask_all_over(
        &self,
        connection: &NodeConnection,
        pipeline: &Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisResult<Vec<Value>> {
        let mut conn = connection.conn.clone();
        self.answered(connection, conn.req_packed_commands(pipeline, offset, count)).await
    }

    /// Makes a call at the node to which its slot is being moved.
    async fn ask_on_its_way(self: &Arc<Self>, node: &ClusterNode, cmd: &Cmd) -> RedisResult<Value> {
        let mut asking = redis::pipe();
        asking.cmd("ASKING").ignore().add_command(cmd.clone());
        let mut answers = self.ask_all(node, &asking, 1, 1).await?;
        answers.pop().ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof).into())
    }

    /// Makes a call without a key at the first primary that answers.
    async fn ask_any(self: &Arc<Self>, cmd: &Cmd) -> RedisResult<Value> {
        let mut failure = io::Error::from(io::ErrorKind::NotConnected).into();
        for node in self.cluster.primaries() {
            match tokio::time::timeout(ANY_PATIENCE, self.ask(&node, cmd)).await {
                Ok(Err(e)) if e.is_io_error() => failure = e,
                Ok(answer) => return answer,
                Err(_) => failure = Unanswered::by(&node),
            }
        }
        Err(failure)
    }

    /// Makes a call at the node that has its key, and follows one redirect.
    async fn route(self: &Arc<Self>, cmd: &Cmd) -> RedisResult<Value> {
        let Some(key) = key_of(cmd) else { return self.ask_any(cmd).await };
        let node = self.node_of(slot_of(key))?;
        let answer = self.ask(&node, cmd).await;
        if is_down(&answer) {
            self.cluster.suspect(&node);
        }
        match Elsewhere::of(&answer, &node) {
            None => answer,
            Some(Elsewhere::Moved(slot, to)) => {
                self.cluster.moved(slot, to, &node);
                self.ask(&self.node_of(slot)?, cmd).await
            }
            Some(Elsewhere::Ask(node)) => self.ask_on_its_way(&node, cmd).await,
        }
    }

    async fn ask_all(
        self: &Arc<Self>,
        node: &ClusterNode,
        pipeline: &Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisResult<Vec<Value>> {
        let connection = self.to(node).await?;
        self.ask_all_over(&connection, pipeline, offset, count).await
    }

    /// Makes calls together, without a transaction; their keys are in one slot. Those that a node redirects are repeated one by one.
    async fn route_all(self: &Arc<Self>, pipeline: &Pipeline, offset: usize, count: usize) -> RedisResult<Vec<Value>> {
        let key = pipeline.cmd_iter().find_map(|cmd| key_of(cmd));
        let key = key.ok_or((ErrorKind::InvalidClientConfig, "calls that are sent together must have keys"))?;
        let node = self.node_of(slot_of(key))?;
        let mut answers = self.ask_all(&node, pipeline, offset, count).await?;
        for (cmd, answer) in pipeline.cmd_iter().zip(&mut answers) {
            let is_there = !matches!(answer, Value::ServerError(_));
            if !is_there && Elsewhere::of(&Ok(answer.clone()), &node).is_some() {
                *answer = self.route(cmd).await?;
            }
        }
        Ok(answers)
    }
}

/// A call to a node that is under way. If it is dropped before its end, the caller gave up.
struct AtNode<'a> {
    connections: &'a NodeConnections,
    connection: &'a NodeConnection,
    begun: Instant,
    has_ended: bool,
}

impl Drop for AtNode<'_> {
    fn drop(&mut self) {
        if !self.has_ended && self.connection.silence.lock().given_up(self.begun) {
            self.connections.leave(self.connection);
        }
    }
}
