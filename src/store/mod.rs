//! The only holder of connections, keys and scripts. Each script has one function here, typed in and out.
//!
//! Dispatch and settle share one multiplexed connection; the keeper, the wake block, the cancel hints and each event
//! reader have their own; the pool serves everything else.

pub(crate) mod jobs;
pub(crate) mod keys;
pub(crate) mod locks;
pub(crate) mod scripts;
pub(crate) mod server;
pub(crate) mod streams;
pub(crate) mod workers;

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bb8_redis::{RedisConnectionManager, bb8};
use futures_util::{Stream, StreamExt};
use redis::AsyncConnectionConfig;
use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use tokio::sync::OnceCell;

pub(crate) use keys::{Key, TaskKeys};
pub(crate) use redis::aio::{ConnectionLike as Connection, MultiplexedConnection as OwnConnection};

use crate::error::{Error, classify, not_connected};

/// The version of keys, fields and scripts. A task that a newer version wrote is refused.
pub(crate) const WIRE_VERSION: u32 = 1;

/// How long a connection may take to come up.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a call on the shared connection waits for its answer before it is repeated.
pub(crate) const RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);

/// The connection of dispatch and settle, and how many there were before it.
#[derive(Debug, Default)]
struct Shared {
    conn: Option<ConnectionManager>,
    before: usize,
}

/// Connections to one server, and what was found out about it.
#[derive(Debug)]
pub(crate) struct Store {
    client: redis::Client,
    prefix: String,
    eviction: server::EvictionCheck,
    shared: Mutex<Shared>,
    pool: Mutex<Option<bb8::Pool<RedisConnectionManager>>>,
    checked: OnceCell<()>,
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
            shared: Mutex::default(),
            pool: Mutex::new(None),
            checked: OnceCell::new(),
        })
    }

    /// The keys of a task.
    pub(crate) fn task_keys(&self, task: &str) -> TaskKeys {
        TaskKeys::new(&self.prefix, task)
    }

    /// Connects and checks the server once; later calls cost nothing.
    pub(crate) async fn ready(&self) -> Result<(), Error> {
        self.checked
            .get_or_try_init(|| async {
                let mut conn = self.dedicated(Some(CONNECT_TIMEOUT)).await?;
                server::check(&mut conn, self.eviction).await?;
                for script in scripts::ALL {
                    script.load(&mut conn).await?;
                }
                Ok(())
            })
            .await
            .copied()
    }

    /// Makes a call on the connection of dispatch and settle, whose answer must come within `time`. The connection comes
    /// back by itself when it drops; a call that fails on it is repeated by its caller.
    pub(crate) async fn shared<T>(
        &self,
        time: Duration,
        call: impl AsyncFnOnce(&mut ConnectionManager) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let (mut conn, before) = self.shared_conn()?;
        let answer = tokio::time::timeout(time, call(&mut conn)).await.unwrap_or_else(|_| Err(Error::timed_out()));
        if answer.as_ref().is_err_and(|e| e.is_timeout() || e.is_demoted()) {
            // No answer in time: the other end may be gone without a word. Of calls that fail together the first one counts.
            let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
            if shared.before == before {
                *shared = Shared { conn: None, before: before + 1 };
            }
        }
        answer
    }

    fn shared_conn(&self) -> Result<(ConnectionManager, usize), Error> {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(conn) = &shared.conn {
            return Ok((conn.clone(), shared.before));
        }
        // Each call keeps its own time.
        let config = ConnectionManagerConfig::new()
            .set_connection_timeout(Some(CONNECT_TIMEOUT))
            .set_response_timeout(None)
            .set_min_delay(Duration::from_millis(20))
            .set_max_delay(Duration::from_millis(500))
            .set_number_of_retries(3);
        let manager = self.client.get_connection_manager_lazy(config).map_err(not_connected)?;
        Ok((shared.conn.insert(manager).clone(), shared.before))
    }

    /// A call on a connection of the pool failed. A demoted primary is left: new connections lead to the new one.
    pub(crate) fn pool_failed(&self, e: &Error) {
        if e.is_demoted() {
            self.pool.lock().unwrap_or_else(PoisonError::into_inner).take();
        }
    }

    /// A connection of the pool, for what is neither hot nor blocking.
    pub(crate) async fn pooled(&self) -> Result<bb8::PooledConnection<'static, RedisConnectionManager>, Error> {
        self.ready().await?;
        let pool = {
            let mut slot = self.pool.lock().unwrap_or_else(PoisonError::into_inner);
            match &*slot {
                Some(pool) => pool.clone(),
                None => {
                    let address = self.client.get_connection_info().clone();
                    let manager = RedisConnectionManager::new(address).map_err(not_connected)?;
                    let builder = bb8::Pool::builder().max_size(8).connection_timeout(CONNECT_TIMEOUT);
                    slot.insert(builder.build_unchecked(manager)).clone()
                }
            }
        };
        pool.get_owned().await.map_err(|e| match e {
            bb8::RunError::User(e) => not_connected(e),
            bb8::RunError::TimedOut => Error::timed_out(),
        })
    }

    /// A connection of the caller's own, which tells when it drops. `response` bounds each answer; `None` is for calls
    /// that block, or whose caller keeps the time.
    pub(crate) async fn dedicated(&self, response: Option<Duration>) -> Result<OwnConnection, Error> {
        let config =
            AsyncConnectionConfig::new().set_connection_timeout(Some(CONNECT_TIMEOUT)).set_response_timeout(response);
        self.client.get_multiplexed_async_connection_with_config(&config).await.map_err(not_connected)
    }

    /// The cancel hints of the tasks, each as its channel and the id of the job, on a connection of its own. The stream
    /// ends when the connection drops.
    pub(crate) async fn cancel_hints(
        &self,
        tasks: &[&TaskKeys],
    ) -> Result<impl Stream<Item = (String, String)> + Unpin + use<>, Error> {
        let classify = |e| classify("cancel hints", e);
        let mut pubsub = self.client.get_async_pubsub().await.map_err(classify)?;
        for keys in tasks {
            pubsub.subscribe(keys.cancel_channel()).await.map_err(classify)?;
        }
        Ok(pubsub.into_on_message().map(|message| {
            let id = String::from_utf8_lossy(message.get_payload_bytes()).into_owned();
            (message.get_channel_name().to_owned(), id)
        }))
    }
}
