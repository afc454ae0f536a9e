//! The App: connections, tasks, events and workers.

use std::collections::HashMap;
use std::error::Error as StdError;
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::watch;

use crate::backend::address::ConnectOptions;
use crate::backend::engine::Store;
use crate::backend::server::EvictionCheck;
use crate::codec::{Codecs, PayloadCodec};
use crate::config_error::{ConfigError, ConfigErrors, Faults};
use crate::credentials::Credentials;
use crate::error::Error;
use crate::error::job_error::{ErrorMap, JobError, error_map};
use crate::events::event::Event;
use crate::events::hub::EventHub;
use crate::events::subscription::Subscription;
use crate::inspect::Inspector;
use crate::inspect::workflow_report::RecoveredWorkflow;
use crate::mutex::Mutex;
use crate::options::resolved::Resolved;
use crate::options::retention::RetentionLimit;
use crate::options::task::TaskOptions;
use crate::options::validate;
use crate::runtime::context::Context;
use crate::runtime::handler::Handler;
use crate::runtime::layer::{Layer, Next, RunFailure, RunValue, folded_layer, layered};
use crate::runtime::state::{Data, Need};
use crate::runtime::task::Definition;
use crate::stall::action::StalledEvent;
use crate::task::definition::{TaskDef, TaskHandler};
use crate::task::dispatch::{Dispatch, NoTask};
use crate::task::shared::TaskShared;
use crate::task::task_ref::TaskRef;
use crate::timings::Timings;
use crate::worker::builder::Worker;
use crate::worker::identity::WorkerIdentity;
use crate::worker::monitor::WorkerMonitor;
use crate::worker_id::WorkerId;
use crate::workflow::definition::Workflow;
use crate::workflow::options::WorkflowOptions;
use crate::workflow::progress::WorkflowProgress;

/// The tasks on one Redis server, for producers and workers. Cheap to clone. Clones share everything.
///
/// The tokio runtime on which it was built must keep running while it is used, see [`AppBuilder::build`].
///
/// ```no_run
/// # use heartline::{App, Context, JobError, StopReason, TaskOptions};
/// # async fn run() -> heartline::Result<StopReason> {
/// let app = App::builder().redis("redis://127.0.0.1:6379").build().await?;
/// let greetings = app.task("greet", TaskOptions::new(), |_ctx: Context, name: String| async move {
///     Ok::<String, JobError>(format!("hello, {name}"))
/// })?;
/// greetings.dispatch("world".to_owned()).await?;
/// app.worker().run_until_signal().await
/// # }
/// ```
#[derive(Clone)]
pub struct App(Arc<Shared>);

struct Shared {
    store: Arc<Store>,
    defaults: TaskOptions,
    events: Arc<EventHub>,
    data: Arc<Data>,
    errors: Vec<ErrorMap>,
    layers: Vec<Layer>,
    tasks: Mutex<AppTasks>,
    /// Advances the workflows that this App starts.
    progress: Arc<WorkflowProgress>,
}

#[derive(Default)]
struct AppTasks {
    declared: HashMap<Arc<str>, DeclaredTask>,
    /// Tasks without a handler, while a reference to them is in use. Unused entries are removed when others are added.
    named: HashMap<Arc<str>, Weak<TaskShared>>,
    /// Tasks of constants that dispatch themselves. A program has few constants, so these stay in use.
    defined: HashMap<&'static str, Arc<TaskShared>>,
    tidy_at: usize,
}

struct DeclaredTask {
    shared: Arc<TaskShared>,
    handler: Handler,
    /// Error maps of the task, then of the App.
    errors: Arc<[ErrorMap]>,
    needs: Arc<[Need]>,
}

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
    codecs: Codecs,
}

impl AppBuilder {
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
    /// [`TaskHandler::on_error`] of a task takes precedence.
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
        let (defaults, data, errors, layers) = (self.defaults, Arc::new(self.data), self.errors, self.layers);
        let progress = Arc::new(WorkflowProgress::new(Arc::clone(&store)));
        Ok(App(Arc::new(Shared { store, defaults, events, data, errors, layers, tasks: Mutex::default(), progress })))
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
            codecs: Codecs::default(),
        }
    }

    /// Declares a task with its options and its handler, and returns a reference to dispatch with.
    ///
    /// The handler is called with a [`Context`] and the input, once for each run. A returned error, a panic and a timeout each use one
    /// attempt. A value of more than 64 MiB fails the job with the code `codec`.
    ///
    /// The handler's error may be any type that converts into a [`JobError`]: `JobError` itself, `anyhow::Error`, a boxed error, text,
    /// or your own type that implements [`std::error::Error`].
    ///
    /// # When it does not compile
    ///
    /// "type annotations needed": the closure does not fix the type of its error. Write `Ok::<_, JobError>(value)`, or use an
    /// `async fn`.
    ///
    /// ```compile_fail,E0283
    /// # use heartline::{App, Context, TaskOptions};
    /// # fn declare(app: App) {
    /// let _ = app.task("t", TaskOptions::new(), |_: Context, n: u32| async move { Ok(n + 1) });
    /// # }
    /// ```
    ///
    /// "implementation of `Deserialize` is not general enough": the input is borrowed. Take a `String`, not a `&str`.
    ///
    /// "`?` couldn't convert the error" in a function that returns a boxed error: after a call that returns a [`JobError`], write
    /// `.map_err(JobError::boxed)?`.
    ///
    /// "the trait bound `MyError: Into<JobError>` is not satisfied", with the help that `MyError` is no `std::error::Error`: derive
    /// `thiserror::Error` for `MyError`, or map it with `.map_err(|e| JobError::new(e.to_string()))`.
    ///
    /// ```compile_fail,E0277
    /// # use heartline::{App, Context, TaskOptions};
    /// struct MyError; // no std::error::Error
    /// # fn declare(app: App) {
    /// let _ = app.task("t", TaskOptions::new(), |_: Context, n: u32| async move { Err::<u32, MyError>(MyError) });
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Config`] if the name or options are not valid, or the name already has a handler. It lists all faults.
    pub fn task<I, O, E, F, Fut>(&self, name: &str, options: TaskOptions, handler: F) -> Result<TaskRef<I, O>, Error>
    where
        I: DeserializeOwned + Send + 'static,
        O: Serialize + Send + 'static,
        E: Into<JobError>,
        F: Fn(Context, I) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<O, E>> + Send + 'static,
    {
        self.register(TaskHandler::new(name.into(), options, handler))
    }

    /// Declares the task of a [`TaskDef`] with its handler. See [`App::task`].
    ///
    /// # Errors
    /// As [`App::task`].
    pub fn register<I, O>(&self, task: TaskHandler<I, O>) -> Result<TaskRef<I, O>, Error> {
        let options = self.resolve(&task.name, &task.options)?;
        let mut tasks = self.0.tasks.lock();
        if tasks.declared.contains_key(&task.name) {
            return Err(Error::Config(ConfigErrors::from(ConfigError::new(
                "task",
                &*task.name,
                "must be declared once",
                "give one of the two tasks another name",
            ))));
        }
        if let Some(threads) = &task.threads {
            threads.limit(options.concurrency);
        }
        let shared = self.share(&task.name, options);
        if let Some(hook) = task.hook {
            let _ = shared.hook.set(Some(hook));
        }
        let mut errors = task.errors;
        errors.extend(self.0.errors.iter().cloned());
        let declared = DeclaredTask {
            shared: Arc::clone(&shared),
            handler: layered(task.handler, &self.0.layers),
            errors: errors.into(),
            needs: task.needs.into(),
        };
        tasks.declared.insert(task.name, declared);
        Ok(TaskRef::new(shared))
    }

    fn share(&self, name: &Arc<str>, options: Resolved) -> Arc<TaskShared> {
        TaskShared::new(Arc::clone(name), Arc::clone(&self.0.store), options, Arc::clone(&self.0.events))
    }

    /// A reference to a task whose handler may be in other processes, to dispatch and find jobs. If this App has declared the task with a
    /// handler, the reference has its options. Otherwise it has the defaults of the App.
    ///
    /// `I` may be any type whose JSON the handler can read: for a handler that takes a `String`, `task_ref::<&str, _>` works.
    ///
    /// Keep the reference if you dispatch often: references that exist at the same time batch their dispatches together.
    ///
    /// # Errors
    /// [`Error::Config`] if the name is not valid.
    pub fn task_ref<I, O>(&self, name: &str) -> Result<TaskRef<I, O>, Error> {
        let options = self.resolve(name, &TaskOptions::new())?;
        Ok(self.named(name, options, |_, _| true))
    }

    /// A reference to the task of a [`TaskDef`], with its options. See [`App::task_ref`].
    ///
    /// # Errors
    /// [`Error::Config`] if the name or options are not valid.
    pub fn task_ref_for<I, O>(&self, task: &TaskDef<I, O>) -> Result<TaskRef<I, O>, Error> {
        let options = self.resolve(task.name(), task.own_options())?;
        Ok(self.named(task.name(), options, |known, options| known.options == *options))
    }

    /// The task of a constant, which this App then keeps.
    fn defined<I, O>(&self, task: &TaskDef<I, O>) -> Result<Arc<TaskShared>, NoTask> {
        let found: TaskRef<I, O> = self.task_ref_for(task).map_err(|e| NoTask { name: task.name(), error: Some(e) })?;
        self.0.tasks.lock().defined.insert(task.name(), Arc::clone(&found.shared));
        Ok(found.shared)
    }

    /// The existing reference to the task if it fits, else a new one with these options.
    fn named<I, O>(
        &self,
        name: &str,
        options: Resolved,
        fits: impl Fn(&TaskShared, &Resolved) -> bool,
    ) -> TaskRef<I, O> {
        let mut tasks = self.0.tasks.lock();
        let known = tasks.declared.get(name).map(|declared| Arc::clone(&declared.shared));
        if let Some(shared) = known.or_else(|| tasks.named.get(name)?.upgrade()).filter(|known| fits(known, &options)) {
            return TaskRef::new(shared);
        }
        if tasks.named.len() >= tasks.tidy_at {
            tasks.named.retain(|_, task| task.strong_count() > 0);
            tasks.tidy_at = tasks.named.len() * 2 + 64;
        }
        let name: Arc<str> = name.into();
        let shared = self.share(&name, options);
        // Without a handler, no hook runs and no schedule is declared.
        let _ = shared.hook.set(None);
        #[cfg(feature = "schedules")]
        drop(shared.schedules.lock().close());
        tasks.named.insert(name, Arc::downgrade(&shared));
        TaskRef::new(shared)
    }

    /// Defines a workflow: graphs of jobs of any tasks, whose instances return a `T`.
    ///
    /// Every worker with the same prefix advances instances, regardless of its tasks.
    ///
    /// # Errors
    /// [`Error::Config`] if the name is not 1 to 64 characters of `A-Z`, `a-z`, `0-9`, `.`, `_` and `-`.
    pub fn workflow<T>(&self, name: &str, options: WorkflowOptions) -> Result<Workflow<T>, Error> {
        let (store, progress) = (Arc::clone(&self.0.store), Arc::clone(&self.0.progress));
        Ok(Workflow::new(name, options, store, progress, Arc::clone(&self.0.events))?)
    }

    /// Recovers every workflow of the prefix now, see [`Inspector::recover_stuck_workflows`].
    ///
    /// # Errors
    /// See there.
    ///
    /// # Cancel safety
    /// See there.
    pub async fn recover_stuck_workflows(&self) -> Result<Vec<RecoveredWorkflow>, Error> {
        self.inspector().recover_stuck_workflows().await
    }

    fn resolve(&self, name: &str, options: &TaskOptions) -> Result<Resolved, Error> {
        let mut faults = Faults::default();
        faults.gather(validate::task_name(name));
        let resolved = faults.gather(options.resolve(&self.0.defaults));
        faults.finish()?;
        // Without a fault, the options are resolved.
        resolved.ok_or(Error::Closed)
    }

    /// A worker for every task that has a handler in this App now. It runs no jobs of tasks that are declared later.
    pub fn worker(&self) -> Worker {
        let definition = |DeclaredTask { shared, handler, errors, needs }: &DeclaredTask| {
            let hook = shared.hook.get_or_init(|| None).clone();
            Definition {
                name: Arc::clone(&shared.name),
                keys: shared.tables.first(),
                options: Arc::new(Resolved { has_hook: hook.is_some(), ..shared.options.clone() }),
                handler: Arc::clone(handler),
                hook,
                errors: Arc::clone(errors),
                needs: Arc::clone(needs),
                #[cfg(feature = "schedules")]
                schedules: shared.schedules.lock().close(),
                shared: None,
            }
        };
        let mut tasks: Vec<Definition> = self.0.tasks.lock().declared.values().map(definition).collect();
        tasks.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        let (store, data) = (Arc::clone(&self.0.store), Arc::clone(&self.0.data));
        let (id, monitor) = (WorkerId::generate(), WorkerMonitor::default());
        let identity = WorkerIdentity::unique();
        let presence_retention = RetentionLimit::age(Duration::from_secs(7 * 86_400)).and_count(1000);
        Worker { store, data, tasks, cap: None, observers: Vec::new(), id, identity, presence_retention, monitor }
    }

    /// Reads and controls tasks, jobs and workers by name, without handlers: see [`Inspector`].
    pub fn inspector(&self) -> Inspector {
        Inspector::new(Arc::clone(&self.0.store), self.0.defaults.clone())
    }

    /// Subscribes to `task:stalled` of every task of this App: one event per stalled job with the decision about it, from any worker.
    /// The tasks are those of [`App::events`].
    pub fn on_stalled(&self) -> Subscription<StalledEvent> {
        self.0.events.stalled()
    }

    /// Subscribes to every event of every task of this App: those declared with [`App::task`], and those with a live
    /// [`TaskRef`] or handle. Each transition has one event. Later tasks are included from when they are added.
    pub fn events(&self) -> Subscription<Event> {
        self.0.events.all()
    }
}

impl<I: Serialize, O> TaskDef<I, O> {
    /// A job of this task, dispatched by an App when the value is awaited; before that, its settings can be changed. No handler and no
    /// [`TaskRef`] is needed.
    ///
    /// ```no_run
    /// # use heartline::{App, TaskDef};
    /// # const RESIZE: TaskDef<String, u64> = TaskDef::new("resize");
    /// # async fn run(app: App) -> heartline::Result<()> {
    /// let job = RESIZE.dispatch(&app, "cat.png".to_owned()).await?;
    /// println!("{} bytes", job.result().await?);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// If the name or the options of the constant are not valid, the await returns [`Error::Config`].
    pub fn dispatch(&self, app: &App, input: I) -> Dispatch<I, O> {
        Dispatch::new(app.defined(self), serde_json::to_vec(&input))
    }
}

impl fmt::Debug for App {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tasks = self.0.tasks.lock();
        let named = tasks.named.iter().filter(|(_, task)| task.strong_count() > 0).map(|(name, _)| name);
        let names: Vec<Arc<str>> = tasks.declared.keys().chain(named).cloned().collect();
        drop(tasks);
        f.debug_struct("App").field("tasks", &names).finish_non_exhaustive()
    }
}
