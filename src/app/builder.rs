//! Builds an App: settings, their checks, and the first connection.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tokio::sync::watch;

use super::{App, Shared};
use crate::backend::address::ConnectOptions;
use crate::backend::engine::Store;
use crate::backend::server::EvictionCheck;
use crate::codec::{Codecs, PayloadCodec};
use crate::config_error::Faults;
use crate::credentials::Credentials;
use crate::error::Error;
use crate::error::job_error::{ErrorMap, JobError, error_map};
use crate::events::hub::EventHub;
use crate::mutex::Mutex;
use crate::options::task::TaskOptions;
use crate::options::validate;
use crate::runtime::context::Context;
use crate::runtime::layer::{Layer, Next, RunFailure, RunValue, folded_layer, log_headers};
use crate::runtime::state::Data;
use crate::timings::Timings;
use crate::worker_id::WorkerId;
use crate::workflow::progress::WorkflowProgress;

/// The variables that [`AppBuilder::env`] reads, as the `heartline` command does.
pub(crate) const URL: &str = "HEARTLINE_URL";
pub(crate) const PREFIX: &str = "HEARTLINE_PREFIX";

/// Builds an [`App`]. Created by [`App::builder`].
///
/// ```no_run
/// # use std::time::Duration;
/// # use heartline::{App, RetryPolicy, TaskOptions};
/// # async fn run() -> heartline::Result<()> {
/// let app = App::builder()
///     .redis("redis://127.0.0.1:6379")
///     .prefix("billing")
///     .task_defaults(TaskOptions::new().retry(RetryPolicy::new().attempts(3)))
///     .dispatch_timeout(Duration::from_secs(1))
///     .build()
///     .await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[must_use = "a builder does nothing until it is built"]
pub struct AppBuilder {
    url: String,
    access: ConnectOptions,
    prefix: String,
    defaults: TaskOptions,
    lazy: bool,
    eviction: EvictionCheck,
    event_capacity: usize,
    dispatch_timeout: Duration,
    timings: Timings,
    data: Data,
    errors: Vec<ErrorMap>,
    layers: Vec<Layer>,
    logged_headers: Vec<String>,
    codecs: Codecs,
}

impl App {
    /// A builder with the defaults.
    pub fn builder() -> AppBuilder {
        AppBuilder {
            url: "redis://127.0.0.1:6379".to_owned(),
            access: ConnectOptions::default(),
            prefix: "heartline".to_owned(),
            defaults: TaskOptions::new(),
            lazy: false,
            eviction: EvictionCheck::Refuse,
            event_capacity: 1024,
            dispatch_timeout: Duration::from_secs(10),
            timings: Timings::default(),
            data: Data::default(),
            errors: Vec::new(),
            layers: Vec::new(),
            logged_headers: Vec::new(),
            codecs: Codecs::default(),
        }
    }
}

impl AppBuilder {
    /// Takes the address of Redis from the variable `HEARTLINE_URL`, else from `REDIS_URL`, and the prefix from `HEARTLINE_PREFIX`, as the
    /// `heartline` command does. A variable that is empty or not set changes nothing.
    ///
    /// ```no_run
    /// # use heartline::App;
    /// # async fn run() -> heartline::Result<()> {
    /// let app = App::builder().prefix("billing").env().build().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn env(self) -> Self {
        self.with_variables(|name| std::env::var(name).ok())
    }

    fn with_variables(mut self, value: impl Fn(&str) -> Option<String>) -> Self {
        let set = |name: &str| value(name).filter(|value| !value.is_empty());
        if let Some(url) = set(URL).or_else(|| set("REDIS_URL")) {
            self.url = url;
        }
        if let Some(prefix) = set(PREFIX) {
            self.prefix = prefix;
        }
        self
    }

    /// The address of Redis: `redis://[user:password@]host[:port][/db]`, the same with `rediss://` for TLS (feature `tls`), or
    /// `unix:///path`. Defaults to `redis://127.0.0.1:6379`. The database may also be the parameter `db`. Unknown parameters and
    /// fragments (`#`) are errors. In a user name or password `%`, `#`, `?`, `/`, `@`, `:` and `&` must be percent-encoded (`#` as
    /// `%23`).
    ///
    /// Sentinel:
    /// `redis-sentinel://[user:password@]host[:26379][/db]?sentinelServiceName=name[&node=host:port]…[&sentinelUsername=…][&sentinelPassword=…]`,
    /// or `rediss-sentinel://`. Host and `node`s are sentinels. User and password before the `@` are for the
    /// Redis servers, not for the sentinels.
    ///
    /// Cluster: `redis-cluster://[user:password@]host[:6379][?node=host:port&…]`, or `rediss-cluster://`. Host and `node`s are some of the
    /// cluster's nodes. One of them must answer. A cluster needs Redis 7.0 or later, or Valkey. See [`crate::guide::engines`] for both.
    ///
    /// With TLS the server must present a certificate for its host, signed by one of Mozilla's roots or by the CA of `AppBuilder::tls_ca`.
    /// If the process has no crypto provider for rustls, Heartline installs `ring`. To use another one, install it first.
    pub fn redis(mut self, url: impl Into<String>) -> Self {
        self.url = url.into();
        self
    }

    /// The CA that signed the server's certificate, as PEM. It replaces Mozilla's roots. For `rediss://` only.
    #[cfg(feature = "tls")]
    pub fn tls_ca(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.access.ca = Some(pem.into());
        self
    }

    /// The client certificate and its key, as PEM, for a server that asks for one. For `rediss://` only.
    #[cfg(feature = "tls")]
    pub fn tls_client(mut self, cert: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> Self {
        self.access.client = Some((cert.into(), key.into()));
        self
    }

    /// A user and password that change while the process runs, for the servers. They replace those of the URL, except for sentinels.
    /// New connections use the channel's current value. When it changes, every open connection sends `AUTH` again. The server must
    /// accept the new password before the value is sent, and the old one until then. If the sender is dropped, the last value stays in
    /// use.
    ///
    /// ```no_run
    /// use heartline::{App, Credentials};
    /// use tokio::sync::watch;
    ///
    /// # async fn token() -> String { String::new() }
    /// # async fn example() -> heartline::Result<()> {
    /// let (rotated, credentials) = watch::channel(Credentials::new("app", token().await));
    /// tokio::spawn(async move {
    ///     loop {
    ///         tokio::time::sleep(std::time::Duration::from_secs(600)).await;
    ///         rotated.send_replace(Credentials::new("app", token().await));
    ///     }
    /// });
    /// let app = App::builder().redis("rediss://redis.internal").credentials(credentials).build().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn credentials(mut self, credentials: watch::Receiver<Credentials>) -> Self {
        self.access.credentials = Some(credentials);
        self
    }

    /// Options for every task of this App. A task's own options take precedence. Defaults to those of the crate, see [`TaskOptions`].
    ///
    /// Those about runs and limits, such as retry and time-out, count in the App of the worker; those about a dispatch, such as the
    /// payload limit, in that of the producer.
    pub fn task_defaults(mut self, options: TaskOptions) -> Self {
        self.defaults = options;
        self
    }

    /// The prefix of every key, which separates several systems on one Redis: 1 to 64 characters of `A-Z a-z 0-9 . _ :
    /// -`. Defaults to `heartline`.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Connects and checks the server at first use instead of in [`AppBuilder::build`]. A starting worker then waits until the server
    /// is reachable.
    pub fn lazy(mut self) -> Self {
        self.lazy = true;
        self
    }

    /// Accepts a server with an `allkeys-*` eviction policy, which deletes whole columns of jobs when memory is short.
    /// By default such a server is refused.
    pub fn accept_eviction(mut self) -> Self {
        self.eviction = EvictionCheck::Accept;
        self
    }

    /// How many events a subscription buffers for a slow reader before the reader misses some. At most 1,000,000. The buffer is
    /// allocated at once. 0 counts as 1. Defaults to 1,024.
    pub fn event_capacity(mut self, events: usize) -> Self {
        self.event_capacity = events.max(1);
        self
    }

    /// How long a dispatch or cancel is retried while Redis is unreachable, is a replica, or lacks required replicas. After that it
    /// fails with [`Error::Connect`] or [`Error::Refused`]. The last attempt may take a tenth longer, and large values get more time.
    /// 100 ms to 1 h. Defaults to 10 s. In web requests, use about 1 s.
    pub fn dispatch_timeout(mut self, timeout: Duration) -> Self {
        self.dispatch_timeout = timeout;
        self
    }

    /// A value that handlers share: a pool, a client, settings. Handlers read it with [`Context::state`]. There is one value per type. A
    /// later value of the same type replaces it.
    pub fn state<T: Send + Sync + 'static>(mut self, value: T) -> Self {
        self.data.insert(value);
        self
    }

    /// Code around each run of a handler: tracing, timing, the context of a tenant. It runs in the same task as the handler, so values of
    /// [`tokio::task_local!`] reach the handler. The layer that is added first is the outermost.
    ///
    /// ```
    /// # use heartline::{App, Context, Next};
    /// # use std::time::Instant;
    /// let app = App::builder().layer(|ctx: Context, next: Next| async move {
    ///     let (task, begun) = (ctx.task().to_owned(), Instant::now());
    ///     let ended = next.run(ctx).await;
    ///     println!("{task}: {} after {:?}", if ended.is_ok() { "ok" } else { "failed" }, begun.elapsed());
    ///     ended
    /// });
    /// ```
    ///
    /// A layer that does not call [`Next::run`] can fail the run with a [`JobError`]. A timeout and a cancellation end the layer together
    /// with the handler, and a panic of the handler passes through it. Hooks have no layers. To see each run without being part of it, use
    /// an [`Observer`](crate::Observer).
    pub fn layer<F, Fut>(mut self, layer: F) -> Self
    where
        F: Fn(Context, Next) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<RunValue, RunFailure>> + Send + 'static,
    {
        self.layers.push(folded_layer(layer));
        self
    }

    /// Puts these headers of a job into the field `headers` of the span of each run, as in `tenant=acme`. So they are in every line that a
    /// handler logs, and in those of Heartline about the end of the run. Runs of hooks do not have them. Each value is cut to 128 bytes.
    /// Further calls add names. Defaults to none.
    ///
    /// ```
    /// # use heartline::App;
    /// let app = App::builder().log_headers(["tenant"]);
    /// ```
    pub fn log_headers(mut self, names: impl IntoIterator<Item: Into<String>>) -> Self {
        self.logged_headers.extend(names.into_iter().map(Into::into));
        self
    }

    /// A codec for values: encrypts, compresses, or writes another format. It encodes the inputs of jobs, of nodes and of schedules,
    /// results, checkpoints and progress, and decodes them. Values that were written without a codec are read as before. Errors, headers,
    /// keys, ids and names are not encoded. Limits of size count the encoded bytes.
    ///
    /// The last codec encodes; each codec decodes what it encoded. Workers without the codec postpone the jobs whose payload it encoded,
    /// for [`TaskOptions::undecodable_for`]; after that a job fails with the code `codec_unknown` and keeps its payload, so it can be
    /// retried. See [the guide](crate::guide::production).
    pub fn codec(mut self, codec: impl PayloadCodec) -> Self {
        self.codecs.add(Arc::new(codec), true);
        self
    }

    /// A codec that decodes and does not encode: deploy it this way first, so that every process can read before one writes. Also for the
    /// codec that another one has replaced.
    pub fn decode_only(mut self, codec: impl PayloadCodec) -> Self {
        self.codecs.add(Arc::new(codec), false);
        self
    }

    /// Shortens internal times in tests.
    #[cfg(feature = "testing")]
    #[doc(hidden)]
    pub fn timings(mut self, timings: Timings) -> Self {
        self.timings = timings;
        self
    }

    /// Sets how an error of type `T` is handled in all tasks: its code, whether it is fatal, when to retry.
    ///
    /// [`TaskHandler::on_error`](crate::TaskHandler::on_error) of a task takes precedence.
    pub fn on_error<T: StdError + Send + Sync + 'static>(
        mut self,
        say: impl Fn(&T, JobError) -> JobError + Send + Sync + 'static,
    ) -> Self {
        self.errors.push(error_map(say));
        self
    }

    /// Checks the settings, connects within 5 s, and checks the server.
    ///
    /// The tokio runtime on which this is called must keep running while the App is used, as with sqlx or reqwest. It
    /// runs shared connections and tasks. If it ends, calls in progress may fail with [`Error::Closed`], and later calls
    /// connect again on the runtime of their caller. Heartbeats and sweeps have their own thread.
    ///
    /// # Errors
    /// - [`Error::Config`] if settings are not valid. It lists all faults.
    /// - [`Error::Connect`] if the server cannot be reached. It contains the address.
    /// - [`Error::Denied`] if the Redis user lacks a permission.
    /// - [`Error::Unsupported`] if the server is older than Redis 6.2, or its eviction policy could evict jobs.
    pub async fn build(self) -> Result<App, Error> {
        let mut faults = Faults::default();
        faults.gather(validate::prefix(&self.prefix));
        faults.gather(TaskOptions::new().resolve(&self.defaults));
        faults.gather(validate::event_capacity(self.event_capacity));
        faults.gather(validate::dispatch_timeout(self.dispatch_timeout));
        self.codecs.check(&mut faults);
        let store = match Store::open(
            &self.url,
            &self.access,
            WorkerId::generate().as_str(),
            &self.prefix,
            self.eviction,
            self.dispatch_timeout,
            self.timings,
        ) {
            Err(Error::Config(url)) => faults.gather(Err(url)),
            opened => Some(opened?),
        };
        faults.finish()?;
        let store = Arc::new(store.ok_or(Error::Closed)?.with_codecs(self.codecs));
        if !self.lazy {
            store.ready_in_time().await?;
        }
        let events = EventHub::new(Arc::clone(&store), self.event_capacity);
        let (defaults, data, errors, mut layers) = (self.defaults, Arc::new(self.data), self.errors, self.layers);
        if !self.logged_headers.is_empty() {
            // The outermost layer, so that it finds the span of the run.
            layers.insert(0, log_headers(self.logged_headers));
        }
        let progress = Arc::new(WorkflowProgress::new(Arc::clone(&store)));
        Ok(App(Arc::new(Shared {
            store,
            defaults,
            events,
            data,
            errors,
            layers,
            tasks: Mutex::default(),
            progress,
            worker_ran: Arc::default(),
            subscribed_stalls: AtomicBool::new(false),
        })))
    }
}

impl fmt::Debug for AppBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The URL may contain a password.
        f.debug_struct("AppBuilder")
            .field("prefix", &self.prefix)
            .field("defaults", &self.defaults)
            .field("lazy", &self.lazy)
            .field("event_capacity", &self.event_capacity)
            .field("dispatch_timeout", &self.dispatch_timeout)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_that_are_set_give_the_address_and_the_prefix() {
        let built = |set: &[(&str, &str)]| {
            let value = |name: &str| set.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
            let builder = App::builder().prefix("own").with_variables(value);
            [builder.url, builder.prefix]
        };
        assert_eq!(built(&[]), ["redis://127.0.0.1:6379", "own"]);
        assert_eq!(built(&[("REDIS_URL", "redis://a"), ("HEARTLINE_PREFIX", "p")]), ["redis://a", "p"]);
        assert_eq!(built(&[("REDIS_URL", "redis://a"), ("HEARTLINE_URL", "redis://b")]), ["redis://b", "own"]);
        assert_eq!(built(&[("HEARTLINE_URL", ""), ("HEARTLINE_PREFIX", "")]), ["redis://127.0.0.1:6379", "own"]);
    }
}
