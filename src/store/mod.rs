//! The only holder of connections, keys and scripts. Each script has one function here, typed in and out.
//!
//! Dispatch and settle share one multiplexed connection; the keeper, the wake block, the cancel hints and each event
//! reader have their own; the pool serves everything else.

pub(crate) mod jobs;
mod joint;
pub(crate) mod keys;
pub(crate) mod locks;
mod pool;
pub(crate) mod scripts;
pub(crate) mod server;
pub(crate) mod streams;
pub(crate) mod workers;

use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use bb8_redis::bb8;
use futures_util::Stream;
use futures_util::future::try_join_all;
use redis::AsyncConnectionConfig;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio_util::task::AbortOnDropHandle;

pub(crate) use joint::{SILENCE, Sign};
pub(crate) use keys::{Key, TaskKeys};
pub(crate) use redis::aio::{ConnectionLike as Connection, MultiplexedConnection as OwnConnection, PubSubSink};

use self::joint::Joint;
use self::pool::Manager;
use crate::error::{Error, classify, not_connected};

/// The version of keys, fields and scripts. A task that a newer version wrote is refused.
pub(crate) const WIRE_VERSION: u32 = 1;

/// How long a connection may take to come up.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a call waits for its answer before it is repeated, but for the time that its bytes take.
pub(crate) const RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);

/// No call is worth more: by then a connection that gives no answer is a dead one.
const LONGEST_RESPONSE: Duration = Duration::from_secs(24 * 3600);

/// Values of more bytes travel on a connection of their own, where nothing else waits behind them.
pub(crate) const LARGE: usize = 512 * 1024;

/// How many large values a client writes or reads at a time.
const LARGE_AT_ONCE: usize = 8;

/// The slowest line that a call is given time for, in bytes a second. A call that runs out of time is given twice as
/// much when it is repeated.
const LINE_BYTES_PER_SECOND: u64 = 256 * 1024;

/// How long so many bytes may be on their way.
pub(crate) fn transfer_time(bytes: usize) -> Duration {
    Duration::from_millis((bytes as u64).saturating_mul(1000) / LINE_BYTES_PER_SECOND)
}

/// How long a call that carries so many bytes waits for its answer.
pub(crate) fn response_time(bytes: usize) -> Duration {
    RESPONSE_TIMEOUT + transfer_time(bytes)
}

/// The connection of dispatch and settle, and how many there were before it.
#[derive(Debug, Default)]
struct Shared {
    conn: Option<OwnConnection>,
    before: usize,
}

/// Connections to one server, and what was found out about it.
#[derive(Debug)]
pub(crate) struct Store {
    client: redis::Client,
    prefix: String,
    eviction: server::EvictionCheck,
    shared: Arc<Mutex<Shared>>,
    connecting: Joint<(OwnConnection, usize)>,
    pool: Mutex<Option<bb8::Pool<Manager>>>,
    /// Turns of large values.
    large: Arc<Semaphore>,
    checked: OnceLock<()>,
    checking: Joint<()>,
}

impl Store {
    /// Takes the address; nothing is connected yet.
    ///
    /// # Errors
    /// `Config` when the URL is none.
    pub(crate) fn open(url: &str, prefix: &str, eviction: server::EvictionCheck) -> Result<Store, Error> {
        let client = server::client(url)?;
        Ok(Store {
            client,
            prefix: prefix.to_owned(),
            eviction,
            shared: Arc::default(),
            connecting: Joint::default(),
            pool: Mutex::new(None),
            large: Arc::new(Semaphore::new(LARGE_AT_ONCE)),
            checked: OnceLock::new(),
            checking: Joint::default(),
        })
    }

    /// The keys of a task.
    pub(crate) fn task_keys(&self, task: &str) -> TaskKeys {
        TaskKeys::new(&self.prefix, task)
    }

    /// Connects and checks the server once; later calls cost nothing.
    pub(crate) async fn ready(&self) -> Result<(), Error> {
        if self.checked.get().is_some() {
            return Ok(());
        }
        let check = || {
            let (client, eviction) = (self.client.clone(), self.eviction);
            async move {
                let mut conn = connect(&client, Some(CONNECT_TIMEOUT)).await?;
                server::check(&mut conn, eviction).await?;
                // All together: a round trip may take long.
                let loads = scripts::ALL.iter().map(|script| {
                    let mut conn = conn.clone();
                    async move { script.load(&mut conn).await }
                });
                try_join_all(loads).await.map(drop)
            }
        };
        self.checking.attempt(check).await?;
        self.checked.get_or_init(|| ());
        Ok(())
    }

    /// Makes a call on the connection of dispatch and settle, whose answer must come within `time`. A connection that
    /// failed, gave no answer in time, or leads to a demoted primary is left; the next call makes a new one, which is
    /// driven by the runtime of that caller.
    pub(crate) async fn shared<T>(
        &self,
        time: Duration,
        call: impl AsyncFnOnce(&mut OwnConnection) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let (mut conn, before) = match self.shared_if_up() {
            Some(shared) => shared,
            None => self.connect_shared().await?,
        };
        let answer = tokio::time::timeout(time, call(&mut conn)).await.unwrap_or_else(|_| Err(Error::late()));
        if answer.as_ref().is_err_and(Error::ends_connection) {
            self.leave_shared(before);
        }
        answer
    }

    /// The connection of dispatch and settle, with its number, if there is one.
    pub(crate) fn shared_if_up(&self) -> Option<(OwnConnection, usize)> {
        let shared = self.shared_slot();
        shared.conn.clone().map(|conn| (conn, shared.before))
    }

    /// The connection of this number is of no use any more. Of calls that fail together the first one counts.
    pub(crate) fn leave_shared(&self, before: usize) {
        let mut shared = self.shared_slot();
        if shared.before == before {
            *shared = Shared { conn: None, before: before + 1 };
        }
    }

    fn shared_slot(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn connect_shared(&self) -> Result<(OwnConnection, usize), Error> {
        let connect = || {
            let (client, slot) = (self.client.clone(), Arc::clone(&self.shared));
            async move {
                // Each call keeps its own time.
                let conn = connect(&client, None).await?;
                let mut shared = slot.lock().unwrap_or_else(PoisonError::into_inner);
                // An attempt that was left for dead may come late, when there is another connection.
                Ok((shared.conn.get_or_insert(conn).clone(), shared.before))
            }
        };
        self.connecting.attempt(connect).await
    }

    /// Makes a call on a connection of the pool, for what is neither hot nor blocking nor large. It runs in a task of its
    /// own: a future that is not polled must not keep a connection from others.
    ///
    /// # Cancel safety
    /// The call is given up when the future is dropped.
    pub(crate) async fn pooled<T, F>(
        &self,
        time: Duration,
        call: impl FnOnce(OwnConnection) -> F + Send + 'static,
    ) -> Result<T, Error>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Error>> + Send,
    {
        self.ready().await?;
        let pool = {
            let mut slot = self.pool.lock().unwrap_or_else(PoisonError::into_inner);
            slot.get_or_insert_with(|| pool::new(self.client.clone())).clone()
        };
        let run = tokio::spawn(async move {
            let mut pooled = match pool.get().await {
                Ok(pooled) => pooled,
                Err(bb8::RunError::User(e)) => return (Err(e), false),
                Err(bb8::RunError::TimedOut) => return (Err(Error::timed_out()), true),
            };
            let answer = tokio::time::timeout(time, call(pooled.conn.clone())).await;
            let answer = answer.unwrap_or_else(|_| Err(Error::late()));
            pooled.broken = answer.as_ref().is_err_and(Error::ends_connection);
            (answer, false)
        });
        let (answer, is_stuck) = own_task(run).await.unwrap_or((Err(Error::Closed), false));
        // A pool of which a runtime went while it connected may never connect again; after a failover none of the old
        // connections leads to the new primary.
        if is_stuck || answer.as_ref().is_err_and(Error::is_demoted) {
            self.pool.lock().unwrap_or_else(PoisonError::into_inner).take();
        }
        answer
    }

    /// Makes a call that moves a large value, on a connection of its own. A few of these are under way at a time; each in a
    /// task of its own, since a future that is not polled must not keep others waiting.
    ///
    /// # Cancel safety
    /// The call is given up when the future is dropped.
    pub(crate) async fn apart<T, F>(
        &self,
        time: Duration,
        call: impl FnOnce(OwnConnection) -> F + Send + 'static,
    ) -> Result<T, Error>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Error>> + Send,
    {
        self.ready().await?;
        let (client, turns) = (self.client.clone(), Arc::clone(&self.large));
        let run = tokio::spawn(async move {
            // Nothing closes it.
            let _turn = turns.acquire().await;
            let conn = connect(&client, None).await?;
            tokio::time::timeout(time, call(conn)).await.unwrap_or_else(|_| Err(Error::late()))
        });
        own_task(run).await.unwrap_or(Err(Error::Closed))
    }

    /// A connection of the caller's own, which tells when it drops. `response` bounds each answer; `None` is for calls
    /// that block, or whose caller keeps the time.
    pub(crate) async fn dedicated(&self, response: Option<Duration>) -> Result<OwnConnection, Error> {
        connect(&self.client, response).await
    }

    /// The cancel hints of the tasks, each as its channel and the id of the job, on a connection of its own. The stream
    /// ends when the connection drops; whether the other end is still there is found out by [`ping`].
    pub(crate) async fn cancel_hints(
        &self,
        tasks: &[&TaskKeys],
    ) -> Result<(PubSubSink, impl Stream<Item = (String, String)> + Unpin + use<>), Error> {
        use futures_util::StreamExt;
        let classify = |e| classify("cancel hints", e);
        let subscribed = async {
            let mut pubsub = self.client.get_async_pubsub().await.map_err(classify)?;
            for keys in tasks {
                pubsub.subscribe(keys.cancel_channel()).await.map_err(classify)?;
            }
            Ok::<_, Error>(pubsub)
        };
        let subscribed = tokio::time::timeout(CONNECT_TIMEOUT, subscribed).await;
        let (sink, messages) = subscribed.map_err(|_| Error::timed_out())??.split();
        let hints = messages.map(|message| {
            let id = String::from_utf8_lossy(message.get_payload_bytes()).into_owned();
            (message.get_channel_name().to_owned(), id)
        });
        Ok((sink, hints))
    }
}

/// Asks the server behind a connection for hints whether it is there.
pub(crate) async fn ping(sink: &mut PubSubSink) -> Result<(), Error> {
    let answer = tokio::time::timeout(RESPONSE_TIMEOUT, sink.ping::<redis::Value>()).await;
    answer.map_err(|_| Error::timed_out())?.map(drop).map_err(|e| classify("cancel hints", e))
}

/// The outcome of a task that ends with whoever waits for it; `None` when its runtime is gone.
async fn own_task<T>(task: JoinHandle<T>) -> Option<T> {
    match AbortOnDropHandle::new(task).await {
        Ok(done) => Some(done),
        Err(e) if e.is_panic() => std::panic::resume_unwind(e.into_panic()),
        Err(_) => None,
    }
}

/// Twice the time, for a call that is made again after it was too long under way.
pub(crate) fn doubled(time: Duration) -> Duration {
    time.saturating_mul(2).min(LONGEST_RESPONSE)
}

async fn connect(client: &redis::Client, response: Option<Duration>) -> Result<OwnConnection, Error> {
    let config =
        AsyncConnectionConfig::new().set_connection_timeout(Some(CONNECT_TIMEOUT)).set_response_timeout(response);
    client.get_multiplexed_async_connection_with_config(&config).await.map_err(not_connected)
}
