//! The address of the server, and how connections to it are made.

use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures_util::future::BoxFuture;
use redis::{AsyncConnectionConfig, Client, PushInfo};
use tokio::sync::mpsc::UnboundedSender;

use super::app_runtime::AppRuntime;
use super::classify::not_connected;
use super::cluster::Cluster;
use super::connection::OwnConnection;
use super::connector::{self, Clients, Connector, Plain, is_tls};
use super::hash_slot::slot_of;
use super::reply::PlainCall;
use super::sentinel::{Primary, Sentinels};
use super::slot_map::ClusterNode;
use super::timeouts::{CONNECT_TIMEOUT, RESPONSE_TIMEOUT};
use super::url::{ClusterUrl, SentinelUrl, info_of, place_of};
use crate::error::{Error, Result};
use crate::mutex::Mutex;

pub(crate) use super::connector::ConnectOptions;

/// What a connection is for, as `CLIENT LIST` shows it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Role {
    /// Dispatch, and settle if a worker runs.
    Producer,
    Keeper,
    Wake,
    Hints,
    Events,
    /// Writes that wait for replicas: they block their connection.
    Replicated,
    /// Reads of jobs, and large values that are sent separately.
    Shared,
}

/// The address of the server and how to reach it. `Debug` shows only host, port and database: a URL may hold a password.
pub(crate) struct Address {
    topology: Topology,
    place: Arc<str>,
    is_tls: bool,
    access: ConnectOptions,
    owner: Arc<Mutex<Owner>>,
    runtime: Arc<AppRuntime>,
}

/// How the primary is found.
enum Topology {
    /// At the given address.
    Single(Box<Clients>),
    /// By asking the sentinels.
    Sentinels(Box<Guided>),
    /// In a cluster each node is the primary of some slots.
    Cluster(Arc<Cluster>),
}

struct Guided {
    sentinels: Arc<Sentinels>,
    ways: Connector,
    /// The primary that was used last.
    last: Mutex<Option<(Primary, Clients)>>,
}

/// The process whose connections these are.
#[derive(Debug)]
struct Owner {
    name: String,
    /// Whether it runs a worker. A process without a worker only dispatches.
    works: bool,
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Address").field(&self.place).finish()
    }
}

impl Address {
    /// Parses the address. Does not connect.
    ///
    /// # Errors
    /// `Config` if it is not a URL, or cannot be used with these settings.
    pub(super) fn open(url: &str, access: &ConnectOptions, name: &str) -> Result<Address> {
        let owner = Arc::new(Mutex::new(Owner { name: name.to_owned(), works: false }));
        let (access, runtime) = (access.clone(), Arc::new(AppRuntime::of_caller()));
        let connector = |info| Connector { access: access.clone(), info };
        let (topology, place, info) = if let Some(ClusterUrl { info, nodes, place }) = ClusterUrl::of(url)? {
            let ways = connector(info.clone());
            // Report wrong settings at once.
            ways.to(info.addr().clone())?;
            let nodes = nodes.into_iter().map(|(host, port)| ClusterNode { host, port }).collect();
            (Topology::Cluster(Cluster::new(nodes, ways)), place, info)
        } else if let Some(SentinelUrl { primary, sentinels, nodes, service, place }) = SentinelUrl::of(url)? {
            let of_sentinels = connector(primary.clone().set_redis_settings(sentinels));
            let nodes = nodes.into_iter().map(|node| Ok(of_sentinels.to(node)?.listener)).collect::<Result<_>>()?;
            let sentinels = Sentinels::new(service, nodes, Arc::clone(&runtime));
            let guided = Guided { sentinels, ways: connector(primary.clone()), last: Mutex::default() };
            (Topology::Sentinels(Box::new(guided)), place, primary)
        } else {
            let info = info_of(url)?;
            (Topology::Single(Box::new(connector(info.clone()).to(info.addr().clone())?)), place_of(&info), info)
        };
        Ok(Address { topology, place: place.into(), is_tls: is_tls(info.addr()), access, owner, runtime })
    }

    /// The runtime for shared work.
    pub(super) fn runtime(&self) -> &Arc<AppRuntime> {
        &self.runtime
    }

    /// The primary epoch: grows with each failover. Always 0 in a cluster, whose connections check this
    /// themselves.
    pub(super) fn primary_epoch(&self) -> u64 {
        match &self.topology {
            Topology::Single(_) | Topology::Cluster(_) => 0,
            Topology::Sentinels(guided) => guided.sentinels.primary_epoch(),
        }
    }

    /// Grows whenever a server becomes a primary, or stops being one.
    pub(super) fn changes(&self) -> u64 {
        match &self.topology {
            Topology::Single(_) => 0,
            Topology::Sentinels(guided) => guided.sentinels.primary_epoch(),
            Topology::Cluster(cluster) => cluster.changes(),
        }
    }

    /// The epoch of the primary that has this key. A server that becomes primary again gets a new number.
    pub(super) fn primary_epoch_of(&self, key: &str) -> u64 {
        match &self.topology {
            Topology::Single(_) => 0,
            Topology::Sentinels(guided) => guided.sentinels.primary_epoch(),
            Topology::Cluster(cluster) => cluster.primary_epoch_of(slot_of(key.as_bytes())),
        }
    }

    pub(super) fn cluster(&self) -> Option<&Arc<Cluster>> {
        match &self.topology {
            Topology::Cluster(cluster) => Some(cluster),
            _ => None,
        }
    }

    pub(super) fn is_cluster(&self) -> bool {
        matches!(self.topology, Topology::Cluster(_))
    }

    /// Whether another server may become the primary.
    pub(crate) fn fails_over(&self) -> bool {
        !matches!(self.topology, Topology::Single(_))
    }

    /// Starts the task that watches for a new primary, unless it runs.
    pub(crate) fn keep_watch(&self) {
        match &self.topology {
            Topology::Single(_) => {}
            Topology::Sentinels(guided) => guided.sentinels.keep_watch(),
            Topology::Cluster(cluster) => cluster.keep_watch(),
        }
    }

    /// Watches for a new primary on the keeper's runtime, since handlers may block the runtime of the App. Never returns.
    pub(crate) async fn watch(&self) {
        if let Topology::Sentinels(guided) = &self.topology {
            guided.sentinels.watch().await;
        }
        std::future::pending().await
    }

    /// Does the work while the primary of this epoch remains the primary. An answer that comes later is discarded.
    ///
    /// # Errors
    /// Those of the work; if the primary changes, the same error as for a closed connection.
    pub(super) fn steady_since<'a, T: 'a>(
        &'a self,
        primary_epoch: u64,
        work: impl Future<Output = Result<T>> + 'a,
    ) -> impl Future<Output = Result<T>> + 'a {
        // This is not an async function, which would store the work in its future: callers have small stacks.
        let (mut left, mut work) = (self.left(primary_epoch), Box::pin(work));
        poll_fn(move |cx| {
            if left.as_mut().is_some_and(|left| left.as_mut().poll(cx).is_ready()) {
                return Poll::Ready(Err(Error::primary_changed()));
            }
            work.as_mut().poll(cx)
        })
    }

    /// Waits for the end of this primary epoch, if another server may become the primary of all keys.
    fn left(&self, primary_epoch: u64) -> Option<BoxFuture<'_, ()>> {
        match &self.topology {
            Topology::Sentinels(guided) => Some(Box::pin(guided.sentinels.left(primary_epoch))),
            Topology::Single(_) | Topology::Cluster(_) => None,
        }
    }

    /// How to reach the primary; in a cluster, any node.
    async fn clients(&self) -> Result<Clients> {
        let Guided { sentinels, ways, last } = match &self.topology {
            Topology::Single(clients) => return Ok(Clients::clone(clients)),
            Topology::Sentinels(guided) => &**guided,
            Topology::Cluster(cluster) => {
                cluster.ready().await?;
                return cluster.clients(&cluster.any_node());
            }
        };
        let primary = sentinels.primary().await?;
        let mut last = last.lock();
        match &*last {
            Some((known, clients)) if *known == primary => Ok(clients.clone()),
            _ => {
                let clients = ways.to_node(&primary.host, primary.port)?;
                Ok(last.insert((primary, clients)).1.clone())
            }
        }
    }

    /// `redis://host:port/db`.
    pub(crate) fn place(&self) -> &Arc<str> {
        &self.place
    }

    /// A connection that reports when it drops. `response` limits each answer. `None` is for calls that block, or whose
    /// caller has a time-out of its own.
    pub(super) async fn connect(&self, role: Role, response: Option<Duration>) -> Result<OwnConnection> {
        let config = self.access.config().set_response_timeout(response);
        if let Topology::Cluster(cluster) = &self.topology {
            cluster.ready().await.map_err(|e| e.at(&self.place))?;
            let (owner, config) = (Arc::clone(&self.owner), config.set_connection_timeout(Some(CONNECT_TIMEOUT)));
            return Ok(OwnConnection::routed(Arc::clone(cluster), config, move |conn| name(conn, role, &owner)));
        }
        self.open_with(role, |clients| clients.client, config).await.map(OwnConnection::One)
    }

    /// A connection that forwards each push message to `to`, and finally the news that it dropped. In a cluster it leads
    /// to this node.
    pub(super) async fn listen(
        &self,
        node: Option<&ClusterNode>,
        role: Role,
        to: UnboundedSender<PushInfo>,
    ) -> Result<Plain> {
        let config = self.access.config().set_response_timeout(None).set_push_sender(to);
        let Some(node) = node else { return self.open_with(role, |clients| clients.listener, config).await };
        let cluster = self.cluster().ok_or(Error::Closed)?;
        let conn = self.connect_to(&cluster.clients(node)?.listener, config).await?;
        name(&conn, role, &self.owner);
        Ok(conn)
    }

    async fn open_with(
        &self,
        role: Role,
        pick: impl FnOnce(Clients) -> Client,
        config: AsyncConnectionConfig,
    ) -> Result<Plain> {
        let opened = async {
            let client = pick(self.clients().await.map_err(|e| e.at(&self.place))?);
            let mut conn = self.connect_to(&client, config).await?;
            if matches!(self.topology, Topology::Sentinels(_)) {
                is_primary(&mut conn).await.map_err(|e| e.at(&self.place))?;
            }
            Ok(conn)
        };
        let conn = self.steady_since(self.primary_epoch(), opened).await?;
        name(&conn, role, &self.owner);
        Ok(conn)
    }

    async fn connect_to(&self, client: &Client, config: AsyncConnectionConfig) -> Result<Plain> {
        let config = config.set_connection_timeout(Some(CONNECT_TIMEOUT));
        let named = |e| match &self.topology {
            Topology::Single(_) => e,
            _ => connector::of_node(e, client.get_connection_info().addr()),
        };
        connector::open(client, &self.access, &config).await.map_err(|e| self.fault(named(e)))
    }

    fn fault(&self, e: redis::RedisError) -> Error {
        not_connected(&e, self.is_tls).at(&self.place)
    }

    /// The error for a server that did not answer within the time-out of its connection.
    pub(super) fn timed_out(&self) -> Error {
        self.fault(std::io::Error::from(std::io::ErrorKind::TimedOut).into())
    }

    /// Sets the name that `CLIENT LIST` shows for the connection.
    pub(super) fn name(&self, conn: &OwnConnection, role: Role) {
        conn.open().iter().for_each(|conn| name(conn, role, &self.owner));
    }

    /// New connections get the name of this worker from now on.
    pub(super) fn works_as(&self, worker: &str) {
        let owner = Owner { name: worker.to_owned(), works: true };
        *self.owner.lock() = owner;
    }
}

/// Sets the client name without waiting for the answer. If the server refuses it, the connection has no name.
fn name(conn: &Plain, role: Role, owner: &Mutex<Owner>) {
    let owner = owner.lock();
    let role = match role {
        Role::Producer if owner.works => "driver",
        Role::Producer => "producer",
        Role::Keeper => "keeper",
        Role::Wake => "wake",
        Role::Hints => "hints",
        Role::Events => "events",
        Role::Replicated => "replicated",
        Role::Shared => "shared",
    };
    let name = format!("heartline:{role}:{}", owner.name);
    drop(owner);
    let mut conn = conn.clone();
    tokio::spawn(async move {
        let mut cmd = redis::cmd("CLIENT");
        let named = cmd.arg("SETNAME").arg(name).query_async::<redis::Value>(&mut conn);
        let _ = tokio::time::timeout(RESPONSE_TIMEOUT, named).await;
    });
}

/// Checks that the server is a primary. A demoted server, or one that is not promoted yet, must not be written to.
async fn is_primary(conn: &mut Plain) -> Result<()> {
    let asked = redis::cmd("ROLE").call::<Vec<redis::Value>>(conn, "role").await?;
    match asked.first().map(redis::from_redis_value_ref::<String>) {
        Some(Ok(role)) if role == "master" => Ok(()),
        _ => Err(Error::primary_changed()),
    }
}
