//! The definition of a workflow, and the start of an instance.

use std::fmt;
use std::future::IntoFuture;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::time::Instant;

use super::graph::Graph;
use super::handle::{WorkflowHandle, WorkflowShared};
use super::options::WorkflowOptions;
use super::progress::WorkflowProgress;
use super::shape::{GraphPlan, plan, records};
use super::starter::Starter;
use crate::backend::engine::Store;
use crate::backend::repeated::{CallDeadline, repeated};
use crate::backend::timeouts::response_time;
use crate::backend::workflow::start::{NewInstance, Started};
use crate::backend::workflow::upkeep;
use crate::config_error::{self, ConfigErrors, Faults};
use crate::error::Error;
use crate::events::hub::EventHub;
use crate::events::source::Followed;
use crate::events::subscription::Subscription;
use crate::events::workflow_event::WorkflowEvent;
use crate::job::id::JobId;
use crate::limits::LONGEST;
use crate::options::modes::Durability;
use crate::options::overrides::{Headers, header_bytes};
use crate::options::retention::{LimitMs, RetentionLimit};
use crate::options::validate::HEADERS_LIMIT;

/// How long ended instances are kept by default.
const MONTH: Duration = Duration::from_secs(30 * 86_400);

/// A workflow as a constant: its name, the type of its output, and its options.
///
/// ```no_run
/// use heartline::{App, Graph, TaskDef, WorkflowDef};
///
/// const FETCH: TaskDef<String, String> = TaskDef::new("fetch");
/// const PAGES: WorkflowDef<String> = WorkflowDef::new("pages");
///
/// # async fn run(app: App) -> heartline::Result<()> {
/// let graph = Graph::new();
/// let fetch = graph.node("fetch", &FETCH, "https://example.org".to_owned());
/// let instance = app.workflow_for(&PAGES)?.start(graph.output(&fetch)).await?;
/// # Ok(())
/// # }
/// ```
pub struct WorkflowDef<T> {
    name: &'static str,
    options: WorkflowOptions,
    answers: PhantomData<fn() -> T>,
}

impl<T> WorkflowDef<T> {
    /// A workflow with only a name, which is checked when the workflow is used.
    #[must_use]
    pub const fn new(name: &'static str) -> WorkflowDef<T> {
        WorkflowDef { name, options: WorkflowOptions::new(), answers: PhantomData }
    }

    /// The same with options. Defaults to [`WorkflowOptions::new`].
    #[must_use]
    pub const fn options(mut self, options: WorkflowOptions) -> WorkflowDef<T> {
        self.options = options;
        self
    }

    /// The name.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    pub(crate) fn own_options(&self) -> WorkflowOptions {
        self.options
    }
}

impl<T> fmt::Debug for WorkflowDef<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkflowDef").field("name", &self.name).field("options", &self.options).finish_non_exhaustive()
    }
}

/// The definition of a workflow. Its instances are graphs of jobs that survive the death of any worker. `T` is the type
/// of an instance's output.
///
/// Made by [`App::workflow`](crate::App::workflow). Cloning is cheap.
///
/// A node's handler starts once per run. It starts again only for its own retries, if its worker died or stopped, or if
/// a failover lost a write. The [guide](crate::guide::workflows) lists the guarantees.
///
/// ```no_run
/// # use heartline::{App, Graph, TaskDef, WorkflowOptions};
/// # const FETCH: TaskDef<String, String> = TaskDef::new("fetch");
/// # const COUNT: TaskDef<String, u64> = TaskDef::new("count");
/// # async fn run(app: App) -> heartline::Result<()> {
/// let counts = app.workflow::<u64>("counts", WorkflowOptions::new())?;
/// let graph = Graph::new();
/// let fetch = graph.node("fetch", &FETCH, "https://example.org".to_owned());
/// let count = fetch.then("count", &COUNT);
/// let instance = counts.start(graph.output(&count)).id("2026-11-21").await?;
/// println!("{} words", instance.result().await?);
/// # Ok(())
/// # }
/// ```
pub struct Workflow<T> {
    pub(super) shared: Arc<WorkflowShared>,
    events: Arc<EventHub>,
    /// While this exists, the reader of events follows the workflow.
    followed: Arc<Followed>,
    answers: PhantomData<fn() -> T>,
}

impl<T> Workflow<T> {
    /// # Errors
    /// `Config` when the name is not valid.
    pub(crate) fn new(
        name: &str,
        options: WorkflowOptions,
        store: Arc<Store>,
        progress: Arc<WorkflowProgress>,
        events: Arc<EventHub>,
    ) -> Result<Workflow<T>, ConfigErrors> {
        let mut faults = Faults::default();
        faults.gather(check_name(name));
        if let Some(limit) = options.retention {
            limit.check("retention", &mut faults);
        }
        faults.durability(options.durability);
        faults.finish()?;
        let followed = events.follow_workflow(&store.workflow_tables(name));
        let keys = store.workflow(name);
        let shared = Arc::new(WorkflowShared { keys, store, progress, options });
        Ok(Workflow { shared, events, followed, answers: PhantomData })
    }

    /// The name of the definition.
    #[must_use]
    pub fn name(&self) -> &str {
        self.shared.keys.task()
    }

    /// Starts an instance with this graph when the value is awaited.
    pub fn start(&self, graph: Graph<T>) -> Start<T> {
        let (shared, durability) = (Arc::clone(&self.shared), self.shared.options.durability);
        Start { shared, graph, id: None, delay: Duration::ZERO, deadline: None, durability, headers: Headers::new() }
    }

    /// Subscribes to every event of its instances, from any process: start, end of a node, pause, resume, end. For the
    /// events of their jobs, see [`TaskRef::events`](crate::TaskRef::events).
    pub fn events(&self) -> Subscription<WorkflowEvent> {
        self.events.workflows().only(Arc::clone(&self.followed), |event| &event.workflow)
    }

    /// A handle to an instance that was started earlier, by any process. Does not ask Redis whether it exists.
    ///
    /// # Errors
    /// [`Error::Config`] if the id is not valid.
    pub fn handle(&self, id: impl AsRef<str>) -> Result<WorkflowHandle<T>, Error> {
        handle(&self.shared, id.as_ref())
    }
}

impl<T> Clone for Workflow<T> {
    fn clone(&self) -> Workflow<T> {
        let (shared, events, followed) =
            (Arc::clone(&self.shared), Arc::clone(&self.events), Arc::clone(&self.followed));
        Workflow { shared, events, followed, answers: PhantomData }
    }
}

impl<T> fmt::Debug for Workflow<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Workflow").field("name", &self.name()).finish_non_exhaustive()
    }
}

/// A handle to an instance by its id.
fn handle<T>(shared: &Arc<WorkflowShared>, id: &str) -> Result<WorkflowHandle<T>, Error> {
    Ok(WorkflowHandle::new(Arc::clone(shared), instance_id(id)?, None))
}

/// A handle to an instance by the name of its definition and its id.
///
/// # Errors
/// `Config` if the name or the id is not valid.
pub(crate) fn handle_of<T>(
    name: &str,
    id: &str,
    store: Arc<Store>,
    progress: Arc<WorkflowProgress>,
    by: Arc<str>,
) -> Result<WorkflowHandle<T>, Error> {
    check_name(name)?;
    let (keys, options) = (store.workflow(name), WorkflowOptions::new());
    Ok(handle(&Arc::new(WorkflowShared { keys, store, progress, options }), id)?.by(by))
}

/// Checks the name of a definition.
///
/// # Errors
/// If the name is not valid.
pub(crate) fn check_name(name: &str) -> Result<(), ConfigErrors> {
    let is_allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
    let rule = "must be 1 to 64 characters of A-Z, a-z, 0-9, '.', '_' and '-'";
    config_error::text("workflow", name, 64, is_allowed, rule, "use a name like \"nightly-report\"")
}

fn instance_id(id: &str) -> Result<String, ConfigErrors> {
    let is_allowed = |b: u8| b.is_ascii_graphic() && !matches!(b, b'{' | b'}' | b'/');
    let rule = "must be 1 to 64 bytes of printable ASCII without space, '{', '}' and '/'";
    config_error::text("id", id, 64, is_allowed, rule, "use an id like \"2026-11-21\", or a hash of the longer key")?;
    Ok(id.to_owned())
}

/// The stored form of headers; empty for none.
fn stored_headers(headers: &Headers) -> Result<String, Error> {
    if headers.is_empty() {
        return Ok(String::new());
    }
    serde_json::to_string(headers)
        .map_err(|source| Error::Codec { what: "the headers of the instance".to_owned(), source })
}

/// An instance that starts when this is awaited. The await returns its handle.
///
/// # Errors
/// - [`Error::Config`] if the graph has faults or the id is not valid; it lists all of them.
/// - [`Error::Codec`] and [`Error::TooLarge`] for an input that is not JSON, or is over 1 MiB. Nothing is written.
/// - [`Error::NotReplicated`] if fewer replicas have the instance than [`Durability::Replicated`] requires. It is
///   started anyway.
/// - What every call may return, see [`Error`]. A start is repeated for as long as a dispatch. After [`Error::Connect`] the instance
///   may have started.
///
/// # Cancel safety
/// If the future is dropped, the instance may have started or not. With an id of your own it is safe to repeat.
#[must_use = "an instance starts when this is awaited"]
pub struct Start<T> {
    shared: Arc<WorkflowShared>,
    graph: Graph<T>,
    id: Option<String>,
    delay: Duration,
    deadline: Option<Duration>,
    durability: Durability,
    headers: Headers,
}

impl<T> Start<T> {
    /// Sets your own id, unique within the definition: 1 to 64 bytes of printable ASCII without space, braces and `/`.
    /// However often the start is repeated, an instance with this id starts once. Defaults to a new id.
    pub fn id(mut self, id: impl Into<String>) -> Start<T> {
        self.id = Some(id.into());
        self
    }

    /// Delays its first jobs by this time, at most 10 years. The instance exists at once, and can be cancelled before its first job.
    pub fn delay(mut self, delay: Duration) -> Start<T> {
        self.delay = delay;
        self
    }

    /// Stops the instance if it has not ended this long after its start, 1 s to 10 years. Within 5 s of the deadline, workers cancel its
    /// open nodes, and the instance fails with the code `timeout`. A [new run](WorkflowHandle::retry_failed) has no deadline. Defaults to
    /// none.
    pub fn deadline(mut self, deadline: Duration) -> Start<T> {
        self.deadline = Some(deadline);
        self
    }

    /// When the instance counts as started. If a failover loses jobs of a started instance, workers dispatch them again. Defaults to
    /// the durability of the workflow ([`WorkflowOptions::durability`]).
    pub fn durability(mut self, durability: Durability) -> Start<T> {
        self.durability = durability;
        self
    }

    /// Adds a text that the handler of each node reads with [`Context::header`](crate::Context::header), such as a
    /// tenant or a trace id: also in subgraphs, in graphs that a handler returned, and in later runs. Name and value may be
    /// any text. All headers of an instance have at most 4 KiB, counting names and values. A header replaces an earlier one
    /// of the same name. Defaults to none.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Start<T> {
        self.headers.insert(name.into(), value.into());
        self
    }

    /// How many more bytes of header names and values fit, for callers that can leave headers out.
    #[must_use]
    pub fn headers_left(&self) -> usize {
        HEADERS_LIMIT.saturating_sub(header_bytes(&self.headers))
    }

    /// The name of the workflow.
    #[must_use]
    pub fn workflow(&self) -> &str {
        self.shared.keys.task()
    }

    async fn start(self) -> Result<WorkflowHandle<T>, Error> {
        let Start { shared, graph, id, delay, deadline, durability, headers } = self;
        let mut faults = Faults::default();
        let id = id.map_or_else(|| Ok(JobId::generate().to_string()), |id| instance_id(&id));
        let id = faults.gather(id);
        let planned = match plan(&graph, shared.options.on_failure, 0, &shared.store.codecs) {
            Err(Error::Config(found)) => faults.gather(Err(found)),
            planned => Some(planned?),
        };
        faults.durability(durability);
        faults.headers(header_bytes(&headers));
        faults.at_most("delay", delay, LONGEST);
        if let Some(deadline) = deadline {
            faults.at_most("deadline", deadline, LONGEST);
            if deadline < Duration::from_secs(1) {
                let fix = "use 1 s or more";
                faults.add("deadline", format!("{deadline:?}"), "must be at least 1 s", fix);
            }
        }
        faults.finish()?;
        // Cannot happen: without faults both are `Some`.
        let (Some(id), Some(GraphPlan { shape, inputs })) = (id, planned) else { return Err(Error::Closed) };
        let shape = records(&shape)?;
        drop(graph);
        let WorkflowShared { keys, store, progress, .. } = &*shared;
        store.ready_in_time().await?;
        let headers = stored_headers(&headers)?;
        let instance = NewInstance { id: &id, shape: &shape, inputs: &inputs, delay, deadline, headers: &headers };
        let call_deadline = CallDeadline::new(store.dispatch_timeout, Instant::now(), instance.bytes());
        // List the workflow first, so that recovery knows the instance from its first write.
        let limit = LimitMs::from(shared.options.retention.unwrap_or(RetentionLimit::age(MONTH)));
        let list = || {
            let list = async move |conn: &mut _| {
                upkeep::keep(conn, keys, limit).await?;
                store.list_workflows(conn, &[keys.task()]).await
            };
            store.shared(response_time(0), list)
        };
        repeated(call_deadline, list).await?;
        let starter = Starter { store, keys, instance: &instance, durability };
        let (started, copied) = starter.start(Some(call_deadline.and(durability.time()))).await?;
        let existed = match started {
            Started::Now(sends) => {
                progress.send(keys, sends).await;
                false
            }
            Started::InParts => {
                if let Err(e) = progress.open(keys, &id, 1).await {
                    tracing::debug!(workflow = keys.task(), id, error = %e.chain(), "not all nodes of a workflow could be opened; workers will retry");
                }
                false
            }
            _ => true,
        };
        copied.map(|()| WorkflowHandle::new(shared, id, Some(existed)))
    }
}

impl<T: 'static> IntoFuture for Start<T> {
    type Output = Result<WorkflowHandle<T>, Error>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.start())
    }
}

impl<T> fmt::Debug for Start<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Start").field("workflow", &self.workflow()).field("id", &self.id).finish_non_exhaustive()
    }
}
