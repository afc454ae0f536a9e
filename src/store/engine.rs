//! The connections to one server, and what was found out about it.

use std::collections::HashMap;
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures_util::future::{ready, try_join_all};
use futures_util::stream::FuturesUnordered;
use futures_util::{Stream, StreamExt};
use redis::{PushInfo, PushKind};
use tokio::sync::watch;
use tokio_stream::wrappers::UnboundedReceiverStream;

use super::address::{Access, Address, Role};
use super::app_runtime::AppRuntime;
use super::asked;
use super::connection::OwnConnection;
use super::fault::classify;
use super::hints::hint_of;
use super::keys::{Key, TaskKeys};
use super::patience::{CONNECT_TIMEOUT, LONGEST_RESPONSE};
use super::scripts;
use super::server;
use super::single_flight::SingleFlight;
use super::slot::Slot;
use super::tables::Tables;
use super::turns::Turns;
use crate::error::Error;
use crate::timings::Timings;

/// Connections to one server, and what was found out about it.
#[derive(Debug)]
pub(crate) struct Store {
    pub(super) address: Arc<Address>,
    pub(super) prefix: String,
    eviction: server::EvictionCheck,
    /// How long a dispatch or a cancel is repeated while the server cannot be reached.
    pub(crate) dispatch_timeout: Duration,
    pub(crate) timings: Timings,
    /// For dispatch and settle.
    hot: Slot,
    /// For what moves little, and is asked now and then.
    calm: Slot,
    /// For the values that many wait for.
    bulk: Slot,
    reads: Arc<Turns>,
    writes: Arc<Turns>,
    /// One more than the generation of the primary that was checked last; 0: none was.
    checked: AtomicU64,
    checking: SingleFlight<()>,
    /// The tasks that this process has put into the registry, and when.
    registered: Mutex<HashMap<String, Instant>>,
    /// The tables of the tasks that anybody here has asked about.
    tables: Mutex<HashMap<String, Arc<Tables>>>,
    /// Tells that one of them turned out to have other partitions than was known.
    layouts: Arc<watch::Sender<()>>,
}

/// With so many of them those are forgotten that nobody has.
const MANY_TABLES: usize = 1000;

/// How long the first look at a node of a cluster may take: less than a caller has for all of them.
const NODE_TIMEOUT: Duration = Duration::from_secs(4);

/// The same where another one is there: who wants that one does not wait for long.
const OTHER_NODES_TIMEOUT: Duration = Duration::from_secs(2);

impl Store {
    /// Takes the address, and the name that connections have until a worker runs; nothing is connected yet. What callers share runs on
    /// the runtime of this call.
    ///
    /// # Errors
    /// `Config` when the URL is none.
    pub(crate) fn open(
        url: &str,
        access: &Access,
        name: &str,
        prefix: &str,
        eviction: server::EvictionCheck,
        dispatch_timeout: Duration,
        timings: Timings,
    ) -> Result<Store, Error> {
        let address = Arc::new(Address::open(url, access, name)?);
        Ok(Store {
            prefix: prefix.to_owned(),
            eviction,
            dispatch_timeout,
            timings,
            hot: Slot::new(Arc::clone(&address), Role::Shared),
            calm: Slot::new(Arc::clone(&address), Role::Pool),
            bulk: Slot::new(Arc::clone(&address), Role::Pool),
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

    /// The runtime of what callers share.
    pub(crate) fn runtime(&self) -> &Arc<AppRuntime> {
        self.address.runtime()
    }

    /// The tables of a task.
    pub(crate) fn tables(&self, task: &str) -> Arc<Tables> {
        let mut known = self.tables.lock().unwrap_or_else(PoisonError::into_inner);
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

    /// Tells that a task turned out to have other partitions than was known.
    pub(crate) fn layouts(&self) -> watch::Receiver<()> {
        self.layouts.subscribe()
    }

    /// Connects and checks the server once, and each one that becomes a primary; other calls cost nothing.
    pub(crate) async fn ready(&self) -> Result<(), Error> {
        let changes = self.address.changes();
        let before = self.checked.load(Ordering::Acquire);
        if before == changes + 1 {
            return Ok(());
        }
        let check = || {
            let (address, eviction) = (Arc::clone(&self.address), self.eviction);
            async move {
                let checked = async {
                    let conn = address.connect(Role::Pool, Some(CONNECT_TIMEOUT)).await?;
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
                        let patience = if found { OTHER_NODES_TIMEOUT } else { NODE_TIMEOUT };
                        let next = tokio::time::timeout(patience.saturating_sub(begun.elapsed()), checks.next()).await;
                        let Ok(Some((node, checked))) = next else { break };
                        silent.retain(|silent| silent != node);
                        match checked {
                            Ok(()) => {
                                cluster.was_checked(node);
                                found = true;
                            }
                            // Of a cluster that is there a node may be away, or not be as it should: that concerns the tasks that are on it.
                            Err(e) if e.is_outage() => failure = Some(e),
                            Err(e) if before > 0 => {
                                tracing::warn!(error = %e.chain(), "a node that became a primary is not fit");
                            }
                            Err(e) => return Err(e),
                        }
                    }
                    silent.iter().for_each(|node| cluster.fell_silent(node));
                    let failure = failure.or_else(|| (!silent.is_empty()).then(Error::timed_out));
                    failure.filter(|_| !found).map_or(Ok(()), Err)
                };
                address.steady_since(address.generation(), checked).await
            }
        };
        let runtime = self.runtime().handle().ok_or(Error::Closed)?;
        self.checking.attempt(&runtime, check).await.map_err(|e| e.at_first().at(self.place()))?;
        // The first look at a cluster is itself a change.
        let changes = if before == 0 && changes == 0 { self.address.changes() } else { changes };
        self.checked.store(changes + 1, Ordering::Release);
        Ok(())
    }

    /// [`Store::ready`] for the time that a connection has.
    pub(crate) async fn ready_in_time(&self) -> Result<(), Error> {
        let ready = tokio::time::timeout(CONNECT_TIMEOUT, self.ready()).await;
        ready.unwrap_or_else(|_| Err(self.address.timed_out()))
    }

    /// Makes a call on the connection of dispatch and settle, whose answer must come within `time`.
    ///
    /// # Cancel safety
    /// The call may have been carried out when the future is dropped.
    pub(crate) async fn shared<T>(
        &self,
        time: Duration,
        call: impl AsyncFnOnce(&mut OwnConnection) -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.hot.call(time, call).await
    }

    /// A place for a connection of its own, for one whose calls must not hold up others.
    pub(crate) fn line(&self, role: Role) -> Slot {
        Slot::new(Arc::clone(&self.address), role)
    }

    /// The connection of dispatch and settle, with its number, if there is one.
    pub(crate) fn shared_if_up(&self) -> Option<(OwnConnection, usize)> {
        self.hot.if_up()
    }

    /// A call on the connection of dispatch and settle of this number failed, which may be the end of it.
    pub(crate) fn shared_failed(&self, before: usize, e: &Error) {
        self.hot.failed(before, e);
    }

    /// Makes a call that moves little, for somebody who asks about a job or a task; once more where the connection was
    /// there before and turns out to be broken.
    ///
    /// # Cancel safety
    /// The call may have been carried out when the future is dropped.
    pub(crate) async fn ask<T, F>(&self, time: Duration, call: impl Fn(OwnConnection) -> F) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Error>>,
    {
        self.ready().await?;
        self.calm.call_again(time, call).await
    }

    /// The same for somebody who looks, at many tasks it may be: a node of a cluster that says nothing fails the call soon, and for some
    /// time each later one at once.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn look<T, F>(&self, time: Duration, call: impl Fn(OwnConnection) -> F) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Error>>,
    {
        self.ready().await?;
        self.calm.call_again(time, |conn| call(conn.for_looks())).await
    }

    /// [`Store::ask`], and once only: its answer may be lost.
    ///
    /// # Cancel safety
    /// The call may have been carried out when the future is dropped.
    pub(crate) async fn ask_once<T, F>(&self, time: Duration, call: impl Fn(OwnConnection) -> F) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Error>>,
    {
        self.ready().await?;
        self.calm.call(time, async |conn| call(conn.clone()).await).await
    }

    /// Makes a call that reads values for many. One at a time: each moves as much as a line is to have at a time.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn read<T>(
        &self,
        time: Duration,
        call: impl AsyncFnOnce(&mut OwnConnection) -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.ready().await?;
        self.bulk.call(time, call).await
    }

    /// Turns for writing large values.
    pub(crate) fn write_turns(&self) -> &Arc<Turns> {
        &self.writes
    }

    /// Reads a large value on a connection of its own, in a turn, and in a task of its own: a future that is not polled must
    /// not keep others waiting.
    ///
    /// # Cancel safety
    /// The call is given up when the future is dropped.
    pub(crate) async fn read_apart<T, F>(
        &self,
        time: Duration,
        call: impl FnOnce(OwnConnection) -> F + Send + 'static,
    ) -> Result<T, Error>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Error>> + Send,
    {
        self.ready().await?;
        let (address, turns) = (Arc::clone(&self.address), Arc::clone(&self.reads));
        let read = async move {
            let turn = turns.take(LONGEST_RESPONSE).await.ok_or_else(Error::timed_out)?;
            turn.hold(async {
                let generation = address.generation();
                let read = async {
                    let conn = address.connect(Role::Pool, None).await?;
                    asked::within(time, Error::late, call(conn)).await
                };
                address.steady_since(generation, read).await
            })
            .await
        };
        self.runtime().run(read).await
    }

    /// Whether another server may become the primary.
    pub(crate) fn fails_over(&self) -> bool {
        self.address.fails_over()
    }

    /// Whether the keys of different tasks may be on different servers, so that no call is about two of them.
    pub(crate) fn is_cluster(&self) -> bool {
        self.address.is_cluster()
    }

    /// The node of a cluster that has this key, as far as is known.
    pub(super) fn place_of(&self, key: &str) -> Option<String> {
        self.address.cluster()?.node_of_key(key).map(|node| node.to_string())
    }

    /// Which primary the address leads to: grows whenever that is another one. Of a server that stands alone it is always 0, and of a
    /// cluster, where connections see to it themselves.
    pub(crate) fn generation(&self) -> u64 {
        self.address.generation()
    }

    /// Which primary has the keys of a task: another number for another one, and for one that became it anew. Of a server that stands
    /// alone it is always 0.
    pub(crate) fn reign_over(&self, keys: &TaskKeys) -> u64 {
        self.address.reign_over(keys.get(Key::Meta))
    }

    /// Watches who the primary is, for a keeper: handlers may block the runtime of the App. It does not end.
    pub(crate) async fn watch_primary(&self) {
        self.address.watch().await;
    }

    /// Sees to it that somebody asks who the primary is.
    pub(crate) fn keep_watch(&self) {
        self.address.keep_watch();
    }

    /// Does work on connections of the caller's own as long as the primary is the same: what another one answers behind that is no answer.
    ///
    /// # Errors
    /// Those of the work, and as of a connection that was closed.
    pub(crate) fn steady<'a, T: 'a>(
        &'a self,
        work: impl Future<Output = Result<T, Error>> + 'a,
    ) -> impl Future<Output = Result<T, Error>> + 'a {
        self.address.steady_since(self.address.generation(), work)
    }

    /// The same for work on what was connected in this generation.
    pub(crate) fn steady_since<'a, T: 'a>(
        &'a self,
        generation: u64,
        work: impl Future<Output = Result<T, Error>> + 'a,
    ) -> impl Future<Output = Result<T, Error>> + 'a {
        self.address.steady_since(generation, work)
    }

    /// A connection of the caller's own, which tells when it drops. `response` bounds each answer; `None` is for calls
    /// that block, or whose caller keeps the time.
    pub(crate) async fn dedicated(&self, role: Role, response: Option<Duration>) -> Result<OwnConnection, Error> {
        self.address.connect(role, response).await
    }

    pub(super) fn registered(&self) -> MutexGuard<'_, HashMap<String, Instant>> {
        self.registered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where the server is, without any secret.
    pub(crate) fn place(&self) -> &Arc<str> {
        self.address.place()
    }

    /// What every key begins with.
    pub(crate) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// From now on the connections have the name of this worker.
    pub(crate) fn works_as(&self, worker: &str) {
        self.address.works_as(worker);
        if let Some((conn, _)) = self.hot.if_up() {
            self.address.name(&conn, Role::Shared);
        }
    }

    /// The cancel hints of the tasks, each as its channel and the id of the job, on a connection of its own. The stream
    /// ends when the connection drops, and when the node of a cluster to which it leads, any of which hears what is published at another, is no
    /// primary any more; whether the other end is still there is found out by [`ping`](super::hints::ping).
    pub(crate) async fn cancel_hints(
        &self,
        tasks: &[&TaskKeys],
    ) -> Result<(OwnConnection, impl Stream<Item = (String, String)> + Unpin + use<>), Error> {
        let (sender, pushes) = tokio::sync::mpsc::unbounded_channel();
        let cluster = self.address.cluster().cloned();
        if let Some(cluster) = &cluster {
            cluster.ready().await?;
        }
        let node = cluster.as_ref().map(|cluster| cluster.any_node());
        let reign = cluster.as_ref().zip(node.as_ref()).and_then(|(cluster, node)| cluster.reign_of(node));
        let subscribed = async {
            let mut conn = match &node {
                Some(node) => self.address.listen_at(node, Role::Hints, sender).await?,
                None => self.address.listen(Role::Hints, sender).await?,
            };
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
                match cluster.zip(reign) {
                    Some((cluster, reign)) => cluster.over(reign).await,
                    None => std::future::pending().await,
                }
            }));
        Ok((OwnConnection::One(conn), hints))
    }
}

/// Checks a server, and gives it the scripts. All together: a round trip may take long.
async fn check(mut conn: OwnConnection, eviction: server::EvictionCheck, is_cluster: bool) -> Result<(), Error> {
    server::check(&mut conn, eviction, is_cluster).await?;
    let loads = scripts::ALL.iter().map(|script| {
        let mut conn = conn.clone();
        async move { script.load(&mut conn, is_cluster).await }
    });
    try_join_all(loads).await.map(drop)
}
