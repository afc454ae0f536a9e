//! The connections to one server or cluster, and what is known about it.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::ready;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, Stream, StreamExt};
use redis::{PushInfo, PushKind};
use tokio::sync::watch;
use tokio_stream::wrappers::UnboundedReceiverStream;

use super::address::{Address, ConnectOptions, Role};
use super::app_runtime::AppRuntime;
use super::call_context;
use super::classify::classify;
use super::connection::OwnConnection;
use super::hints::hint_of;
use super::keys::{Key, TaskKeys};
use super::scripts;
use super::server;
use super::shared_connection::SharedConnection;
use super::single_flight::SingleFlight;
use super::tables::Tables;
use super::timeouts::{CONNECT_TIMEOUT, LONGEST_RESPONSE, RESPONSE_TIMEOUT};
use super::turns::Turns;
use crate::codec::Codecs;
use crate::error::{Error, Result};
use crate::join::try_join_all;
use crate::mutex::Mutex;
use crate::timings::Timings;

/// The connections to one server or cluster, and what is known about it.
#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) address: Arc<Address>,
    pub(super) prefix: String,
    eviction: server::EvictionCheck,
    /// How long a dispatch or a cancel is repeated while the server cannot be reached.
    pub(crate) dispatch_timeout: Duration,
    pub(crate) timings: Timings,
    /// For the values of jobs.
    pub(crate) codecs: Arc<Codecs>,
    /// For dispatch and settle.
    hot: SharedConnection,
    /// For small and occasional calls.
    calm: SharedConnection,
    /// For reads of values on behalf of many callers.
    bulk: SharedConnection,
    reads: Arc<Turns>,
    writes: Arc<Turns>,
    /// One more than [`Address::changes`] at the last check; 0 before the first.
    checked: AtomicU64,
    checking: SingleFlight<()>,
    /// The tasks that this process has registered, and when.
    pub(super) registered: Mutex<HashMap<String, Instant>>,
    /// The tables of the tasks that this process has used.
    tables: Mutex<HashMap<String, Arc<Tables>>>,
    /// Signals that the number of partitions of a task turned out to be different.
    layouts: Arc<watch::Sender<()>>,
}

/// At this size, forget the tables that are not in use.
const MANY_TABLES: usize = 1000;

/// How long the first check of a cluster node may take: less than a caller has for all nodes.
const NODE_TIMEOUT: Duration = Duration::from_secs(4);

/// The same once another node has passed its check, so that callers of that node do not wait long.
const OTHER_NODES_TIMEOUT: Duration = Duration::from_secs(2);

impl Store {
    /// Opens the address. `name` is the client name of connections until a worker runs. Does not connect. Shared work
    /// runs on the runtime of this call.
    ///
    /// # Errors
    /// `Config` if the URL is invalid.
    pub(crate) fn open(
        url: &str,
        access: &ConnectOptions,
        name: &str,
        prefix: &str,
        eviction: server::EvictionCheck,
        dispatch_timeout: Duration,
        timings: Timings,
    ) -> Result<Store> {
        let address = Arc::new(Address::open(url, access, name)?);
        Ok(Store {
            prefix: prefix.to_owned(),
            eviction,
            dispatch_timeout,
            timings,
            codecs: Arc::default(),
            hot: SharedConnection::new(Arc::clone(&address), Role::Producer),
            calm: SharedConnection::new(Arc::clone(&address), Role::Shared),
            bulk: SharedConnection::new(Arc::clone(&address), Role::Shared),
            address,
            reads: Turns::new(),
            writes: Turns::new(),
            checked: AtomicU64::new(0),
            checking: SingleFlight::default(),
            registered: Mutex::default(),
            tables: Mutex::default(),
            layouts: Arc::new(watch::Sender::new(())),
        })
    }

    /// The same with the codecs of an App.
    pub(crate) fn with_codecs(self, codecs: Codecs) -> Store {
        Store { codecs: Arc::new(codecs), ..self }
    }

    pub(crate) fn runtime(&self) -> &Arc<AppRuntime> {
        self.address.runtime()
    }

    pub(crate) fn tables(&self, task: &str) -> Arc<Tables> {
        let mut known = self.tables.lock();
        if let Some(tables) = known.get(task) {
            return Arc::clone(tables);
        }
        if known.len() >= MANY_TABLES {
            known.retain(|_, tables| Arc::strong_count(tables) > 1);
        }
        let tables = Arc::new(Tables::new(&self.prefix, task, self.is_cluster(), Arc::clone(&self.layouts)));
        known.insert(task.to_owned(), Arc::clone(&tables));
        tables
    }

    /// Signals that the number of partitions of a task turned out to be different.
    pub(crate) fn layouts(&self) -> watch::Receiver<()> {
        self.layouts.subscribe()
    }

    /// Connects and checks the server once, and again each server that becomes a primary. Other calls cost nothing.
    pub(crate) async fn ready(&self) -> Result<()> {
        let changes = self.address.changes();
        let before = self.checked.load(Ordering::Acquire);
        if before == changes + 1 {
            return Ok(());
        }
        let check = || {
            let (address, eviction) = (Arc::clone(&self.address), self.eviction);
            async move {
                let checked = async {
                    let conn = address.connect(Role::Shared, Some(CONNECT_TIMEOUT)).await?;
                    let Some(cluster) = address.cluster() else { return check(conn, eviction, false).await };
                    let unchecked = cluster.unchecked();
                    let conn = &conn;
                    let checks = unchecked.iter().map(|node| async move {
                        let checked = async {
                            let conn = conn.to_node(node).await.map_err(|e| classify("connect", e))?;
                            check(conn, eviction, true).await
                        };
                        (node, checked.await)
                    });
                    let (begun, mut silent) = (Instant::now(), unchecked.clone());
                    let mut checks: FuturesUnordered<_> = checks.collect();
                    let (mut found, mut failure) = (before > 0 || unchecked.is_empty(), None);
                    loop {
                        let timeout = if found { OTHER_NODES_TIMEOUT } else { NODE_TIMEOUT };
                        let next = tokio::time::timeout(timeout.saturating_sub(begun.elapsed()), checks.next()).await;
                        let Ok(Some((node, checked))) = next else { break };
                        silent.retain(|silent| silent != node);
                        match checked {
                            Ok(()) => {
                                cluster.was_checked(node);
                                found = true;
                            }
                            // A single cluster node may be unreachable or unusable. That concerns only the tasks on it.
                            Err(e) if e.is_outage() => failure = Some(e),
                            Err(e) if before > 0 => {
                                tracing::warn!(error = %e.chain(), "a new primary failed its check; calls of its tasks may fail");
                            }
                            Err(e) => return Err(e),
                        }
                    }
                    silent.iter().for_each(|node| cluster.fell_silent(node));
                    let failure = failure.or_else(|| (!silent.is_empty()).then(Error::timed_out));
                    failure.filter(|_| !found).map_or(Ok(()), Err)
                };
                address.steady_since(address.primary_epoch(), checked).await
            }
        };
        let runtime = self.runtime().handle().ok_or(Error::Closed)?;
        self.checking.attempt(&runtime, check).boxed().await.map_err(|e| e.at_first().at(self.place()))?;
        // The first read of a cluster's slot map itself counts as a change.
        let changes = if before == 0 && changes == 0 { self.address.changes() } else { changes };
        self.checked.store(changes + 1, Ordering::Release);
        Ok(())
    }

    /// [`Store::ready`], bounded by the connect time-out.
    pub(crate) async fn ready_in_time(&self) -> Result<()> {
        let ready = tokio::time::timeout(CONNECT_TIMEOUT, self.ready()).await;
        ready.unwrap_or_else(|_| Err(self.address.timed_out()))
    }

    /// Makes a call on the connection of dispatch and settle. Its answer must come within `time`.
    ///
    /// # Cancel safety
    /// The call may have been carried out when the future is dropped.
    pub(crate) fn shared<T>(
        &self,
        time: Duration,
        call: impl AsyncFnOnce(&mut OwnConnection) -> Result<T>,
    ) -> impl Future<Output = Result<T>> {
        self.hot.call(time, call)
    }

    /// [`Store::shared`] for a small call.
    ///
    /// # Cancel safety
    /// The call may have been carried out when the future is dropped.
    pub(crate) fn call<T>(
        &self,
        call: impl AsyncFnOnce(&mut OwnConnection) -> Result<T>,
    ) -> impl Future<Output = Result<T>> {
        self.shared(RESPONSE_TIMEOUT, call)
    }

    /// A separate connection, for calls that must not delay others.
    pub(crate) fn connection(&self, role: Role) -> SharedConnection {
        SharedConnection::new(Arc::clone(&self.address), role)
    }

    /// The connection of dispatch and settle with its number, if it is open.
    pub(crate) fn shared_if_up(&self) -> Option<(OwnConnection, usize)> {
        self.hot.if_up()
    }

    /// Records that a call on this connection of dispatch and settle failed. That may drop the connection.
    pub(crate) fn shared_failed(&self, before: usize, e: &Error) {
        self.hot.failed(before, e);
    }

    /// Makes a small call about a job or a task. If a connection that was open turns out to be broken, repeats the call once.
    ///
    /// # Cancel safety
    /// The call may have been carried out when the future is dropped.
    pub(crate) async fn ask<T, F>(&self, time: Duration, call: impl Fn(OwnConnection) -> F) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        self.ready().await?;
        self.calm.call_again(time, call).await
    }

    /// [`Store::ask`] for a page of many tasks. A cluster node that does not answer fails the call soon, and for some
    /// time each later call at once.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn look<T, F>(&self, time: Duration, call: impl Fn(OwnConnection) -> F) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        self.ready().await?;
        self.calm.call_again(time, |conn| call(conn.for_looks())).await
    }

    /// [`Store::ask`] without the repeat: if the answer is lost, the call fails.
    ///
    /// # Cancel safety
    /// The call may have been carried out when the future is dropped.
    pub(crate) async fn ask_once<T, F>(&self, time: Duration, call: impl Fn(OwnConnection) -> F) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        self.ready().await?;
        self.calm.call(time, async |conn| call(conn.clone()).await).await
    }

    /// Makes a call that reads values for many callers. Make one at a time: each already transfers the most that a
    /// connection should carry at once.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn read<T>(
        &self,
        time: Duration,
        call: impl AsyncFnOnce(&mut OwnConnection) -> Result<T>,
    ) -> Result<T> {
        self.ready().await?;
        self.bulk.call(time, call).await
    }

    /// Permits to write large values.
    pub(crate) fn write_turns(&self) -> &Arc<Turns> {
        &self.writes
    }

    /// Reads a large value on a separate connection, under a permit. It runs in its own task: a future that is not
    /// polled must not block the permits.
    ///
    /// # Cancel safety
    /// Dropping the future abandons the call.
    pub(crate) async fn read_apart<T, F>(
        &self,
        time: Duration,
        call: impl FnOnce(OwnConnection) -> F + Send + 'static,
    ) -> Result<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T>> + Send,
    {
        self.ready().await?;
        let (address, turns) = (Arc::clone(&self.address), Arc::clone(&self.reads));
        let read = async move {
            let turn = turns.take(LONGEST_RESPONSE).await.ok_or_else(Error::timed_out)?;
            turn.hold(async {
                let primary_epoch = address.primary_epoch();
                let read = async {
                    let conn = address.connect(Role::Shared, None).await?;
                    call_context::within(time, Error::late, call(conn)).await
                };
                address.steady_since(primary_epoch, read).await
            })
            .await
        };
        self.runtime().run(read).await
    }

    /// Whether the keys of different tasks may be on different servers. Then no call may use two tasks.
    pub(crate) fn is_cluster(&self) -> bool {
        self.address.is_cluster()
    }

    /// The cluster node that has this key, if it is known.
    pub(super) fn place_of(&self, key: &str) -> Option<String> {
        self.address.cluster()?.node_of_key(key).map(|node| node.to_string())
    }

    /// The primary epoch: grows with each failover. Always 0 for a single server, and for a cluster, whose
    /// connections check this themselves.
    pub(crate) fn primary_epoch(&self) -> u64 {
        self.address.primary_epoch()
    }

    /// The epoch of the primary that has the keys of a task. A server that becomes primary again gets a new number.
    /// Always 0 for a single server.
    pub(crate) fn primary_epoch_of(&self, keys: &TaskKeys) -> u64 {
        self.address.primary_epoch_of(keys.get(Key::Meta))
    }

    /// Does work on the caller's own connections for as long as the primary stays the same. Answers after a change are discarded.
    ///
    /// # Errors
    /// Those of the work; if the primary changes, the same error as for a closed connection.
    pub(crate) fn steady<'a, T: 'a>(
        &'a self,
        work: impl Future<Output = Result<T>> + 'a,
    ) -> impl Future<Output = Result<T>> + 'a {
        self.address.steady_since(self.address.primary_epoch(), work)
    }

    /// The same for work on a connection that was made in this primary epoch.
    pub(crate) fn steady_since<'a, T: 'a>(
        &'a self,
        primary_epoch: u64,
        work: impl Future<Output = Result<T>> + 'a,
    ) -> impl Future<Output = Result<T>> + 'a {
        self.address.steady_since(primary_epoch, work)
    }

    /// A separate connection, which reports when it drops. `response` limits each answer. `None` is for calls that
    /// block, or whose caller has a time-out of its own.
    pub(crate) async fn dedicated(&self, role: Role, response: Option<Duration>) -> Result<OwnConnection> {
        self.address.connect(role, response).boxed().await
    }

    /// The server's URL without any secret.
    pub(crate) fn place(&self) -> &Arc<str> {
        self.address.place()
    }

    pub(crate) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// New connections get the name of this worker from now on.
    pub(crate) fn works_as(&self, worker: &str) {
        self.address.works_as(worker);
        if let Some((conn, _)) = self.hot.if_up() {
            self.address.name(&conn, Role::Producer);
        }
    }

    /// The cancel hints of the tasks, each as its channel and the job's id, on a separate connection. The stream ends
    /// when the connection drops, or when its cluster node is no longer a primary. Any node works: a cluster forwards
    /// what is published to all nodes. Use [`ping`](super::hints::ping) to check whether the server still answers.
    pub(crate) async fn cancel_hints(
        &self,
        tasks: &[&TaskKeys],
    ) -> Result<(OwnConnection, impl Stream<Item = (String, String)> + Unpin + use<>)> {
        let (sender, pushes) = tokio::sync::mpsc::unbounded_channel();
        let cluster = self.address.cluster().cloned();
        if let Some(cluster) = &cluster {
            cluster.ready().await?;
        }
        let node = cluster.as_ref().map(|cluster| cluster.any_node());
        let primary_epoch =
            cluster.as_ref().zip(node.as_ref()).and_then(|(cluster, node)| cluster.primary_epoch_of_node(node));
        let subscribed = async {
            let mut conn = self.address.listen(node.as_ref(), Role::Hints, sender).await?;
            // All in one call: a round trip may take long.
            let channels: Vec<&str> = tasks.iter().map(|keys| keys.cancel_channel()).collect();
            conn.subscribe(channels).await.map_err(|e| classify("cancel hints", e))?;
            Ok::<_, Error>(conn)
        };
        let subscribed = tokio::time::timeout(CONNECT_TIMEOUT, subscribed).await;
        let conn = subscribed.map_err(|_| Error::timed_out())??;
        let hints = UnboundedReceiverStream::new(pushes)
            .take_while(|push| ready(push.kind != PushKind::Disconnection))
            .filter_map(|PushInfo { kind, data }| ready(hint_of(data).filter(|_| kind == PushKind::Message)))
            .take_until(Box::pin(async move {
                match cluster {
                    Some(cluster) => cluster.over(primary_epoch).await,
                    None => std::future::pending().await,
                }
            }));
        Ok((OwnConnection::One(conn), hints))
    }
}

/// Checks a server and loads the scripts, all at once: a round trip may take long.
async fn check(mut conn: OwnConnection, eviction: server::EvictionCheck, is_cluster: bool) -> Result<()> {
    server::check(&mut conn, eviction, is_cluster).await?;
    let loads = scripts::ALL.iter().map(|script| {
        let mut conn = conn.clone();
        async move { script.load(&mut conn, is_cluster).await }
    });
    try_join_all(loads).await.map(drop)
}
