//! The only holder of connections, keys and scripts. Each script has one function here, typed in and out.
//!
//! Dispatch and settle share one multiplexed connection, whoever asks about jobs another, and the reading of values a third;
//! the keeper, the wake block, the cancel hints, each event reader and each large value have their own.

pub(crate) mod jobs;
mod joint;
pub(crate) mod keys;
pub(crate) mod locks;
pub(crate) mod scripts;
pub(crate) mod server;
mod slot;
pub(crate) mod streams;
mod turns;
pub(crate) mod workers;

use std::future::Future;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::Stream;
use futures_util::future::try_join_all;
use redis::AsyncConnectionConfig;
use tokio_util::task::AbortOnDropHandle;

pub(crate) use joint::{SILENCE, Sign};
pub(crate) use keys::{Key, TaskKeys};
pub(crate) use redis::aio::{ConnectionLike as Connection, MultiplexedConnection as OwnConnection, PubSubSink};

use self::joint::Joint;
use self::slot::Slot;
pub(crate) use self::turns::Turns;
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

/// Connections to one server, and what was found out about it.
#[derive(Debug)]
pub(crate) struct Store {
    client: redis::Client,
    prefix: String,
    eviction: server::EvictionCheck,
    /// How long a dispatch or a cancel is repeated while the server cannot be reached.
    pub(crate) dispatch_timeout: Duration,
    /// For dispatch and settle.
    hot: Slot,
    /// For what moves little, and is asked now and then.
    calm: Slot,
    /// For the values that many wait for.
    bulk: Slot,
    reads: Arc<Turns>,
    writes: Arc<Turns>,
    checked: OnceLock<()>,
    checking: Joint<()>,
}

impl Store {
    /// Takes the address; nothing is connected yet.
    ///
    /// # Errors
    /// `Config` when the URL is none.
    pub(crate) fn open(
        url: &str,
        prefix: &str,
        eviction: server::EvictionCheck,
        dispatch_timeout: Duration,
    ) -> Result<Store, Error> {
        let client = server::client(url)?;
        Ok(Store {
            prefix: prefix.to_owned(),
            eviction,
            dispatch_timeout,
            hot: Slot::new(client.clone()),
            calm: Slot::new(client.clone()),
            bulk: Slot::new(client.clone()),
            client,
            reads: Turns::new(),
            writes: Turns::new(),
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

    /// The connection of dispatch and settle, with its number, if there is one.
    pub(crate) fn shared_if_up(&self) -> Option<(OwnConnection, usize)> {
        self.hot.if_up()
    }

    /// The connection of dispatch and settle of this number is of no use any more.
    pub(crate) fn leave_shared(&self, before: usize) {
        self.hot.leave(before);
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
        let (client, turns) = (self.client.clone(), Arc::clone(&self.reads));
        own_task(async move {
            let turn = turns.take(LONGEST_RESPONSE).await.ok_or_else(Error::timed_out)?;
            turn.hold(async {
                let conn = connect(&client, None).await?;
                tokio::time::timeout(time, call(conn)).await.unwrap_or_else(|_| Err(Error::late()))
            })
            .await
        })
        .await
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
            // All in one call: a round trip may take long.
            let channels: Vec<&str> = tasks.iter().map(|keys| keys.cancel_channel()).collect();
            pubsub.subscribe(channels).await.map_err(classify)?;
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

/// Does the work in a task that ends with whoever waits for it.
///
/// # Errors
/// Those of the work; `Closed` when the runtime is gone.
pub(crate) async fn own_task<T: Send + 'static>(
    work: impl Future<Output = Result<T, Error>> + Send + 'static,
) -> Result<T, Error> {
    match AbortOnDropHandle::new(tokio::spawn(work)).await {
        Ok(done) => done,
        Err(e) if e.is_panic() => std::panic::resume_unwind(e.into_panic()),
        Err(_) => Err(Error::Closed),
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
