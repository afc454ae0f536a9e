//! The definition of a task: its name, types and options, and for workers its handler with the state that it needs.

use std::any::Any;
use std::error::Error as StdError;
use std::fmt;
use std::marker::PhantomData;
use std::panic::catch_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::job_error::{ErrorMap, JobError, error_map};
use crate::escape::{Escaped, cut};
use crate::job::failure::codes;
use crate::job::outcome::Outcome;
use crate::limits::{MESSAGE_LIMIT, RESULT_LIMIT};
use crate::options::task::TaskOptions;
use crate::runtime::context::Context;
use crate::runtime::handler::{Handler, Hook, RunError, shape_fault};
use crate::runtime::state::Need;
use crate::runtime::threads::Threads;

/// A task as a constant that producers and workers share: its name, the types of its input `I` and its result `O`, and its options.
///
/// ```no_run
/// # use std::time::Duration;
/// use heartline::{App, Context, JobError, RetryPolicy, TaskDef, TaskOptions};
///
/// // In a crate that both know.
/// const RESIZE: TaskDef<String, u64> = TaskDef::new("resize")
///     .options(TaskOptions::new().concurrency(4).retry(RetryPolicy::new().attempts(3)));
///
/// async fn resize(ctx: Context, path: String) -> Result<u64, JobError> {
///     # let _ = (ctx, path);
///     Ok(0)
/// }
///
/// # async fn run(app: App) -> heartline::Result<()> {
/// // In the worker.
/// app.register(RESIZE.handler(resize))?;
/// // In the producer.
/// RESIZE.dispatch(&app, "cat.png".to_owned()).await?;
/// # Ok(())
/// # }
/// ```
pub struct TaskDef<I, O> {
    name: &'static str,
    options: TaskOptions,
    types: PhantomData<fn(I) -> O>,
}

impl<I, O> TaskDef<I, O> {
    /// A task with only a name. The name is checked when the task is used.
    #[must_use]
    pub const fn new(name: &'static str) -> TaskDef<I, O> {
        TaskDef { name, options: TaskOptions::new(), types: PhantomData }
    }

    /// The same with options. A producer uses the payload limit, the priority, and whether there are events; workers use all options.
    #[must_use]
    pub const fn options(mut self, options: TaskOptions) -> TaskDef<I, O> {
        self.options = options;
        self
    }

    /// The name.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    pub(crate) fn own_options(&self) -> &TaskOptions {
        &self.options
    }

    /// The task with a handler, for [`App::register`](crate::App::register). See [`App::task`](crate::App::task) for what a handler is.
    pub fn handler<E, F, Fut>(&self, handler: F) -> TaskHandler<I, O>
    where
        I: DeserializeOwned + Send + 'static,
        O: Serialize + Send + 'static,
        E: Into<JobError>,
        F: Fn(Context, I) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<O, E>> + Send + 'static,
    {
        TaskHandler::new(self.name.into(), self.options.clone(), handler)
    }

    /// The task with a handler that blocks: a plain function, for image work, a database driver without async, or a program that is waited
    /// for. It runs on a blocking thread of the runtime, at most `concurrency` at a time in a worker.
    ///
    /// ```
    /// # use heartline::{Context, Interrupted, TaskDef};
    /// const THUMBNAIL: TaskDef<String, u64> = TaskDef::new("thumbnail");
    /// let handler = THUMBNAIL.blocking(|ctx: Context, path: String| {
    ///     for row in 0..1_000 {
    ///         // Says when to stop.
    ///         ctx.heartbeat()?;
    ///         # let _ = (row, &path);
    ///     }
    ///     Ok::<u64, Interrupted>(4_711)
    /// });
    /// ```
    ///
    /// A thread cannot be ended from outside. After a timeout, and when a grace is over, the outcome of the run is decided, and the
    /// function continues until it returns: [`Context::heartbeat`] then returns [`Interrupted::Ended`](crate::Interrupted::Ended). Until it
    /// has returned it counts, so a new run may wait for it, and its timeout includes that. Values of [`tokio::task_local!`] do not reach
    /// the function.
    pub fn blocking<E, F>(&self, handler: F) -> TaskHandler<I, O>
    where
        I: DeserializeOwned + Send + 'static,
        O: Serialize + Send + 'static,
        E: Into<JobError> + Send + 'static,
        F: Fn(Context, I) -> Result<O, E> + Send + Sync + 'static,
    {
        let (handler, threads) = (Arc::new(handler), Threads::default());
        let of_runs = threads.clone();
        let run = move |ctx: Context, input: I| {
            let handler = Arc::clone(&handler);
            of_runs.clone().run(move || handler(ctx, input))
        };
        TaskHandler { threads: Some(threads), ..self.handler(run) }
    }
}

impl<I, O> Clone for TaskDef<I, O> {
    fn clone(&self) -> Self {
        TaskDef { name: self.name, options: self.options.clone(), types: PhantomData }
    }
}

impl<I, O> fmt::Debug for TaskDef<I, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskDef").field("name", &self.name).field("options", &self.options).finish_non_exhaustive()
    }
}

/// A task with its handler. Made by [`TaskDef::handler`], taken by [`App::register`](crate::App::register).
///
/// ```no_run
/// # use std::io;
/// # use heartline::{App, Context, JobError, TaskDef};
/// # const RESIZE: TaskDef<String, u64> = TaskDef::new("resize");
/// # struct Pool;
/// # async fn resize(_: Context, _: String) -> Result<u64, JobError> { Ok(0) }
/// # fn run(app: App) -> heartline::Result<()> {
/// let resizes = RESIZE.handler(resize).needs::<Pool>().on_error(|e: &io::Error, error| match e.kind() {
///     io::ErrorKind::NotFound => error.with_code("no_such_file").fatal(),
///     _ => error,
/// });
/// app.register(resizes)?;
/// # Ok(())
/// # }
/// ```
#[must_use = "a handler does nothing until it is registered"]
pub struct TaskHandler<I, O> {
    pub(crate) name: Arc<str>,
    pub(crate) options: TaskOptions,
    pub(crate) handler: Handler,
    pub(crate) hook: Option<Hook>,
    pub(crate) errors: Vec<ErrorMap>,
    pub(crate) needs: Vec<Need>,
    /// The threads of a blocking handler.
    pub(crate) threads: Option<Threads>,
    types: PhantomData<fn(I) -> O>,
}

impl<I, O> TaskHandler<I, O> {
    /// Erases the types of the handler: payload in, JSON out.
    pub(crate) fn new<E, F, Fut>(name: Arc<str>, options: TaskOptions, handler: F) -> TaskHandler<I, O>
    where
        I: DeserializeOwned + Send + 'static,
        O: Serialize + Send + 'static,
        E: Into<JobError>,
        F: Fn(Context, I) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<O, E>> + Send + 'static,
    {
        let (handler, looks) = (Arc::new(handler), Arc::new(AtomicUsize::new(0)));
        let folded: Handler = Arc::new(move |context, payload| {
            let (handler, looks) = (Arc::clone(&handler), Arc::clone(&looks));
            Box::pin(async move {
                let input: I = input_of(&context, payload, &looks)?;
                let codecs = context.codecs();
                let output = handler(context, input).await.map_err(|e| RunError::Handler(e.into()))?;
                let value = serde_json::to_vec(&output)
                    .map_err(|e| RunError::Codec(format!("the value cannot be written as JSON: {e}")))?;
                if is_no_number(&output) {
                    return Err(RunError::Codec("the value is NaN or infinite, which JSON cannot hold".to_owned()));
                }
                if value == b"null" {
                    return Ok(None);
                }
                let value = codecs
                    .encode(value)
                    .map_err(|e| RunError::Codec(format!("the value cannot be encoded: {}", e.with_causes())))?;
                if value.len() > RESULT_LIMIT {
                    let size = value.len();
                    return Err(RunError::Codec(format!("the value has {size} bytes, the limit is {RESULT_LIMIT}")));
                }
                Ok(Some(value))
            })
        });
        TaskHandler {
            name,
            options,
            handler: folded,
            hook: None,
            errors: Vec::new(),
            needs: Vec::new(),
            threads: None,
            types: PhantomData,
        }
    }

    /// Maps an error of type `T` to what it means for the job: its code, whether it is fatal, when to retry. The mapping also
    /// applies if a `T` is among the causes of the handler's error ([`JobError::downcast_ref`]). The first mapping that matches
    /// decides. Mappings of the task take precedence over those of [`AppBuilder::on_error`](crate::AppBuilder::on_error).
    pub fn on_error<T: StdError + Send + Sync + 'static>(
        mut self,
        say: impl Fn(&T, JobError) -> JobError + Send + Sync + 'static,
    ) -> Self {
        self.errors.push(error_map(say));
        self
    }

    /// Sets a hook that runs after the outcome of a job is known and before the job ends. If this is called again, the last hook
    /// counts. See [`TaskRef::on_complete`](crate::TaskRef::on_complete).
    pub fn on_complete<E, F, Fut>(mut self, hook: F) -> Self
    where
        O: DeserializeOwned + Send + 'static,
        E: Into<JobError>,
        F: Fn(Context, Outcome<O>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), E>> + Send + 'static,
    {
        self.hook = Some(folded_hook(hook));
        self
    }

    /// Makes a worker refuse to start if [`AppBuilder::state`](crate::AppBuilder::state) has no `T`. Without this, the jobs would
    /// fail one by one.
    pub fn needs<T: Send + Sync + 'static>(mut self) -> Self {
        self.needs.push(Need::of::<T>());
        self
    }
}

/// The input in a payload. The log says once if an input has fields that `I` does not know.
fn input_of<I: DeserializeOwned>(context: &Context, payload: Vec<u8>, looks: &AtomicUsize) -> Result<I, RunError> {
    let codecs = context.codecs();
    let json = codecs
        .decode(&payload)
        .map_err(|e| RunError::Undecodable(e.code(), format!("the payload cannot be decoded: {}", e.with_causes())))?;
    let input = serde_json::from_slice(&json).map_err(|e| {
        let fault = shape_fault(&e);
        RunError::Undecodable(codes::CODEC, format!("the payload is not a valid input of this task: {fault}"))
    })?;
    let number = looks.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |number| number.checked_add(1));
    if json.len() <= LOOKED_AT && number.is_ok_and(|number| number < LOOKS || number % LOOKS_ONE_IN == 0) {
        let fields = ignored_fields::<I>(&json);
        if !fields.is_empty() && looks.swap(LOGGED, Ordering::Relaxed) != LOGGED {
            let fields = fields.join(" ");
            // A log subscriber is user code.
            let _ = catch_unwind(|| {
                let fields = Escaped(cut(&fields, MESSAGE_LIMIT));
                tracing::info!(%fields, "the input has fields that its type does not know");
            });
        }
    }
    Ok(input)
}

/// How many inputs of a task are compared with its type: the first ones, and one of a hundred after them, since a producer may be deployed later.
const LOOKS: usize = 10;
const LOOKS_ONE_IN: usize = 100;
/// The largest of them.
const LOOKED_AT: usize = 64 * 1024;
/// No input is compared any more: the log has said what one has.
const LOGGED: usize = usize::MAX;
/// How many names the log has at most.
const NAMES: usize = 10;

/// The names of fields of an input that its type does not read, `name.*` for fields inside the field `name`. The other names are left out:
/// they may be keys of a map, which are data.
fn ignored_fields<I: DeserializeOwned>(json: &[u8]) -> Vec<String> {
    use serde_ignored::Path;
    let mut fields = Vec::new();
    let mut add = |path: Path<'_>| {
        let is_inner = !matches!(path, Path::Map { parent: Path::Root, .. });
        let Some(name) = outermost(&path).map(|name| if is_inner { format!("{name}.*") } else { name }) else { return };
        if fields.len() < NAMES && !fields.contains(&name) {
            fields.push(name);
        }
    };
    let read = serde_ignored::deserialize::<_, _, I>(&mut serde_json::Deserializer::from_slice(json), &mut add);
    read.map_or_else(|_| Vec::new(), |_| fields)
}

/// The field of the input that contains the value at this path.
fn outermost(path: &serde_ignored::Path<'_>) -> Option<String> {
    use serde_ignored::Path::{Map, NewtypeStruct, NewtypeVariant, Root, Seq, Some as Within};
    match path {
        Map { parent: Root, key } => Some(key.clone()),
        Root => None,
        Map { parent, .. } | Seq { parent, .. } => outermost(parent),
        Within { parent } | NewtypeStruct { parent } | NewtypeVariant { parent } => outermost(parent),
    }
}

/// Whether the value is a float that JSON would write as `null`, which cannot be read back as a number.
fn is_no_number<O: 'static>(value: &O) -> bool {
    let value: &dyn Any = value;
    let is_f64 = value.downcast_ref::<f64>().is_some_and(|value| !value.is_finite());
    is_f64 || value.downcast_ref::<f32>().is_some_and(|value| !value.is_finite())
}

pub(crate) fn folded_hook<O, E, F, Fut>(hook: F) -> Hook
where
    O: DeserializeOwned + Send + 'static,
    E: Into<JobError>,
    F: Fn(Context, Outcome<O>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<(), E>> + Send + 'static,
{
    let hook = Arc::new(hook);
    Arc::new(move |context, outcome| {
        let hook = Arc::clone(&hook);
        Box::pin(async move {
            let outcome = match outcome {
                Outcome::Completed(value) => {
                    let codecs = context.codecs();
                    let json = codecs.decode(if value.is_empty() { b"null" } else { &value });
                    let json = json.map_err(|e| {
                        RunError::Undecodable(
                            e.code(),
                            format!("the hook cannot decode the value: {}", e.with_causes()),
                        )
                    })?;
                    Outcome::Completed(serde_json::from_slice(&json).map_err(|e| {
                        RunError::Codec(format!("the hook cannot decode the value: {}", shape_fault(&e)))
                    })?)
                }
                Outcome::Failed(failure) => Outcome::Failed(failure),
                Outcome::Cancelled { reason } => Outcome::Cancelled { reason },
            };
            hook(context, outcome).await.map(|()| None).map_err(|e| RunError::Handler(e.into()))
        })
    })
}

impl<I, O> fmt::Debug for TaskHandler<I, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskHandler").field("name", &self.name).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    #[test]
    fn fields_that_are_not_read_are_named_without_the_way_to_them() {
        #[derive(Deserialize)]
        #[allow(dead_code)]
        struct Export {
            #[serde(default)]
            rows: u32,
            #[serde(default)]
            by: std::collections::BTreeMap<String, Export>,
        }
        let told = |json: &str| ignored_fields::<Export>(json.as_bytes());
        assert_eq!(told(r#"{"rows": 1, "by": {"ada@example.org": {}}}"#), [""; 0]);
        let told_of_all =
            told(r#"{"row_count": 1, "by": {"ada@example.org": {"row_count": 2}, "bob": {"row_count": 3}}}"#);
        assert_eq!(told_of_all, ["row_count", "by.*"]);
        assert_eq!(told("[1"), [""; 0]);
    }
}
