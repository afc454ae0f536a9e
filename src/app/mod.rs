//! The App: connections, tasks, events and workers.

pub(crate) mod builder;

use std::collections::HashMap;
use std::fmt;
use std::panic::catch_unwind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::backend::engine::Store;
use crate::config_error::{ConfigError, ConfigErrors, Faults};
use crate::error::Error;
use crate::error::job_error::{ErrorMap, JobError, MissingState};
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
use crate::runtime::layer::{Layer, layered};
use crate::runtime::state::{Data, Need};
use crate::runtime::task::Definition;
use crate::stall::action::StalledEvent;
use crate::task::definition::{TaskDef, TaskHandler};
use crate::task::dispatch::{Dispatch, NoTask};
use crate::task::handle::JobHandle;
use crate::task::job::Job;
use crate::task::shared::TaskShared;
use crate::task::task_ref::TaskRef;
use crate::worker::builder::Worker;
use crate::worker::identity::WorkerIdentity;
use crate::worker::monitor::WorkerMonitor;
use crate::worker_id::WorkerId;
use crate::workflow::definition::{Workflow, WorkflowDef};
use crate::workflow::options::WorkflowOptions;
use crate::workflow::progress::WorkflowProgress;

/// The tasks on one Redis server, for producers and workers. Cheap to clone. Clones share everything.
///
/// The tokio runtime on which it was built must keep running while it is used, see [`AppBuilder::build`](crate::AppBuilder::build).
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

/// The App of a worker, as its handlers see it. A type of its own, since a user may pass another App to
/// [`AppBuilder::state`](crate::AppBuilder::state).
struct WorkerApp(App);

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
    /// Whether a worker has run, and whether stalls were subscribed to.
    worker_ran: Arc<AtomicBool>,
    subscribed_stalls: AtomicBool,
}

#[derive(Default)]
struct AppTasks {
    declared: HashMap<Arc<str>, DeclaredTask>,
    /// Tasks without a handler, while a reference to them is in use. Unused entries are removed when others are added.
    named: HashMap<Arc<str>, Weak<TaskShared>>,
    /// Tasks of constants that dispatch themselves. A program has few constants, so these stay in use.
    defined: HashMap<&'static str, Arc<TaskShared>>,
    tidy_at: usize,
    /// Whether a worker was made, which has the tasks that were declared before.
    has_worker: bool,
}

struct DeclaredTask {
    shared: Arc<TaskShared>,
    handler: Handler,
    /// Error maps of the task, then of the App.
    errors: Arc<[ErrorMap]>,
    needs: Arc<[Need]>,
}

impl App {
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
        let is_late = tasks.has_worker;
        tasks.declared.insert(Arc::clone(&task.name), declared);
        drop(tasks);
        if is_late {
            // A log subscriber is user code.
            let _ = catch_unwind(|| {
                tracing::warn!(task = %task.name, "the task was declared after App::worker, so that worker does not run its jobs");
            });
        }
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

    /// The workflow of a [`WorkflowDef`], with its options. See [`App::workflow`].
    ///
    /// # Errors
    /// As [`App::workflow`].
    pub fn workflow_for<T>(&self, workflow: &WorkflowDef<T>) -> Result<Workflow<T>, Error> {
        self.workflow(workflow.name(), workflow.own_options())
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

    #[cfg(feature = "testing")]
    pub(crate) fn prefix(&self) -> &str {
        self.0.store.prefix()
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
        let mut own = self.0.tasks.lock();
        own.has_worker = true;
        let mut tasks: Vec<Definition> = own.declared.values().map(definition).collect();
        drop(own);
        tasks.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        let (store, mut data) = (Arc::clone(&self.0.store), Data::clone(&self.0.data));
        data.insert(WorkerApp(self.clone()));
        let data = Arc::new(data);
        let (id, monitor) = (WorkerId::generate(), WorkerMonitor::default());
        let identity = WorkerIdentity::unique();
        let presence_retention = RetentionLimit::age(Duration::from_secs(7 * 86_400)).and_count(1000);
        Worker {
            store,
            data,
            tasks,
            cap: None,
            observers: Vec::new(),
            id,
            identity,
            presence_retention,
            monitor,
            ran: Arc::clone(&self.0.worker_ran),
            #[cfg(feature = "probes")]
            server: None,
        }
    }

    /// Reads and controls tasks, jobs and workers by name, without handlers: see [`Inspector`].
    pub fn inspector(&self) -> Inspector {
        Inspector::new(Arc::clone(&self.0.store), self.0.defaults.clone())
    }

    /// Subscribes to `task:stalled` of every task of this App: one event per stalled job with the decision about it, from any worker.
    /// The tasks are those of [`App::events`]. Subscribe before the worker runs: it may find stalled jobs at once.
    pub fn on_stalled(&self) -> Subscription<StalledEvent> {
        let is_first = !self.0.subscribed_stalls.swap(true, Ordering::Relaxed);
        if is_first && self.0.worker_ran.load(Ordering::Relaxed) {
            let prefix = self.0.store.prefix();
            tracing::info!(
                prefix,
                "stalls before this subscription are not delivered; subscribe before the worker runs"
            );
        }
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

impl<I, O> TaskDef<I, O> {
    /// The handle to a job of this task, see [`TaskRef::handle`].
    ///
    /// # Errors
    /// [`Error::Config`] if the id cannot be one, or the name or the options of the constant are not valid.
    pub fn handle(&self, app: &App, id: impl AsRef<str>) -> Result<JobHandle<O>, Error> {
        app.task_ref_for(self)?.handle(id)
    }

    /// A job of this task, see [`TaskRef::job`].
    ///
    /// # Errors
    /// Those of [`TaskRef::job`], and [`Error::Config`] if the name or the options of the constant are not valid.
    pub async fn job(&self, app: &App, id: impl AsRef<str>) -> Result<Job, Error> {
        app.task_ref_for(self)?.job(id).await
    }
}

impl Context {
    /// The App of the worker, to dispatch further jobs with.
    ///
    /// ```
    /// # use heartline::{Context, JobError, TaskDef};
    /// const MAIL: TaskDef<String, ()> = TaskDef::new("mail");
    ///
    /// async fn report(ctx: Context, _month: u32) -> Result<(), JobError> {
    ///     MAIL.dispatch(ctx.app()?, "the report is ready".to_owned()).await?;
    ///     Ok(())
    /// }
    /// ```
    ///
    /// Use it instead of an App that the handler captured. An App holds its handlers, so such an App is never dropped.
    ///
    /// # Errors
    /// [`MissingState`] in a test of a handler that was given no App by `TestContext::state`.
    pub fn app(&self) -> Result<&App, MissingState> {
        match self.state() {
            Ok(WorkerApp(app)) => Ok(app),
            Err(_) => self.state(),
        }
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
