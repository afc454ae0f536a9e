//! OpenTelemetry for Heartline: one trace from the request that dispatched a job to every run of its handler, in any process.
//!
//! ```no_run
//! use heartline::{App, Context, JobError, TaskOptions};
//! use heartline_otel::{CallSpans, TraceDispatch, traced};
//!
//! async fn export(_ctx: Context, user: u64) -> Result<u64, JobError> {
//!     Ok(user) // spans that are made here are children of `process long-export`
//! }
//!
//! # async fn run(app: App) -> heartline::Result<()> {
//! let exports = app.task("long-export", TaskOptions::new(), traced(export))?;
//! exports.dispatch(7).traced().await?;
//! app.worker().observe(CallSpans::default()).run_until_signal().await?;
//! # Ok(())
//! # }
//! ```
//!
//! | span | kind | when | made by |
//! |---|---|---|---|
//! | `send <task>` | producer | a job is dispatched; its context travels with the job, as the headers `traceparent` and `tracestate` | [`TraceDispatch::traced`] |
//! | `start <workflow>` | producer | an instance of a workflow is started; its context travels with all its jobs | [`TraceStart::traced`] |
//! | `process <task>` | consumer | a run of the handler; child of `send` or `start`, with a link to it | [`traced`] |
//! | `receive <task>` | client | a call that claimed jobs | [`CallSpans`] |
//! | `settle <task>` | client | a call that reported outcomes | [`CallSpans`] |
//!
//! One call reports and claims jobs of many traces, so `receive` and `settle` have traces of their own. Each run of a job, after a failure
//! or a crash, is a span of its own in the same trace. Attributes follow OpenTelemetry's conventions for messaging (`messaging.system` is
//! `heartline`), with additional ones under `heartline.*`. They never contain a payload.
//!
//! Spans go to the global tracer provider; without one, no span is made. Hooks (`on_complete`) have no spans.
//!
//! This crate is separate since OpenTelemetry 0.x often makes breaking changes.

use std::collections::HashMap;
use std::fmt;
use std::future::{Future, IntoFuture};
use std::time::SystemTime;

use heartline::{
    CallInfo, Context as JobContext, Dispatch, Error, JobError, JobHandle, Observer, Start, WorkflowHandle,
};
use opentelemetry::propagation::{Extractor, TextMapPropagator};
use opentelemetry::trace::{FutureExt, Link, SpanContext, SpanKind, Status, TraceContextExt, Tracer};
use opentelemetry::{Context, KeyValue, global};
use opentelemetry_sdk::propagation::TraceContextPropagator;

/// The instrumentation scope of all spans.
const SCOPE: &str = "heartline";

/// The longest header value to send, in bytes; a longer `tracestate` is left out.
const HEADER: usize = 512;

/// The most bytes of an error message in a span.
const MESSAGE: usize = 1024;

/// A dispatch whose trace continues in the handler.
pub trait TraceDispatch<O> {
    /// Dispatches the job in a span `send <task>`, whose context travels with the job. The span is a child of the current one
    /// ([`Context::current`]): that of the future if it has one (`with_context`), else that of this call.
    ///
    /// If a job with this id already exists, it keeps the trace of its first dispatch.
    ///
    /// # Errors
    /// As the dispatch.
    ///
    /// # Cancel safety
    /// As the dispatch: if the future is dropped, the job may have been dispatched or not. The span ends then.
    fn traced(self) -> impl Future<Output = Result<JobHandle<O>, Error>> + Send;
}

impl<I: Send + 'static, O: Send + 'static> TraceDispatch<O> for Dispatch<I, O> {
    fn traced(self) -> impl Future<Output = Result<JobHandle<O>, Error>> + Send {
        let at_call = Context::current();
        async move {
            let context = sending("send", self.task(), at_call);
            let mut dispatch = self;
            for (name, value) in trace_headers(&context, dispatch.headers_left()) {
                dispatch = dispatch.header(name, value);
            }
            let sent = dispatch.with_context(context.clone()).await;
            let job = sent.as_ref().map(|job| (job.id().to_string(), job.existed()));
            end_sending(&context, job, "heartline.job.existed");
            sent
        }
    }
}

/// A start of a workflow whose trace continues in the handlers of all its nodes.
pub trait TraceStart<T> {
    /// Starts the instance in a span `start <workflow>`, whose context travels with each of its jobs: also with those of subgraphs, and
    /// with those of later runs. The span is a child of the current one, as that of [`TraceDispatch::traced`].
    ///
    /// If an instance with this id already exists, it keeps the trace of its first start.
    ///
    /// # Errors
    /// As the start.
    ///
    /// # Cancel safety
    /// As the start: if the future is dropped, the instance may have started or not. The span ends then.
    fn traced(self) -> impl Future<Output = Result<WorkflowHandle<T>, Error>> + Send;
}

impl<T: Send + 'static> TraceStart<T> for Start<T> {
    fn traced(self) -> impl Future<Output = Result<WorkflowHandle<T>, Error>> + Send {
        let at_call = Context::current();
        async move {
            let context = sending("start", self.workflow(), at_call);
            let mut start = self;
            for (name, value) in trace_headers(&context, start.headers_left()) {
                start = start.header(name, value);
            }
            let started = start.into_future().with_context(context.clone()).await;
            let instance = started.as_ref().map(|instance| (instance.id().to_owned(), instance.existed()));
            end_sending(&context, instance, "heartline.instance.existed");
            started
        }
    }
}

/// Begins the span of a dispatch or a start, and returns its context.
fn sending(operation: &'static str, to: &str, at_call: Context) -> Context {
    // The future may have been given a context of its own.
    let at_poll = Context::current();
    let parent = if at_poll.has_active_span() { at_poll } else { at_call };
    let span = global::tracer(SCOPE)
        .span_builder(format!("{operation} {to}"))
        .with_kind(SpanKind::Producer)
        .with_attributes(attributes(to, operation, "send"));
    parent.with_span(span.start_with_context(&global::tracer(SCOPE), &parent))
}

/// The headers by which the trace continues, if they fit into this many bytes: a trace must not prevent a dispatch.
fn trace_headers(context: &Context, mut left: usize) -> Vec<(&'static str, String)> {
    let mut headers: HashMap<String, String> = HashMap::new();
    TraceContextPropagator::new().inject_context(context, &mut headers);
    let mut fitting = Vec::new();
    // `tracestate` is useless without `traceparent`.
    for name in ["traceparent", "tracestate"] {
        let Some(value) = headers.remove(name).filter(|value| (1..=HEADER).contains(&value.len())) else { break };
        let Some(rest) = left.checked_sub(name.len() + value.len()) else { break };
        left = rest;
        fitting.push((name, value));
    }
    fitting
}

/// Ends the span of a dispatch or a start. `sent` is the id that was written, and whether it existed.
fn end_sending(context: &Context, sent: Result<(String, Option<bool>), &Error>, existed: &'static str) {
    let span = context.span();
    match sent {
        Ok((id, was_there)) => {
            span.set_attribute(KeyValue::new("messaging.message.id", id));
            if was_there == Some(true) {
                span.set_attribute(KeyValue::new(existed, true));
            }
        }
        Err(e) => span.set_status(Status::error(brief(&e.to_string()))),
    }
    span.end();
}

/// Wraps a handler so that each run is a span `process <task>`: a child of the `send` span that dispatched the job, or of the `start` span
/// of its workflow instance, in any process. Spans of the handler are its children.
///
/// Errors of the handler are returned unchanged. The span of a dropped run has the status error, unless the process died.
pub fn traced<I, O, E, F, Fut>(
    handler: F,
) -> impl Fn(JobContext, I) -> std::pin::Pin<Box<dyn Future<Output = Result<O, JobError>> + Send>> + Send + Sync + 'static
where
    I: Send + 'static,
    O: Send + 'static,
    E: Into<JobError> + 'static,
    F: Fn(JobContext, I) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<O, E>> + Send + 'static,
{
    move |job, input| {
        let running = Running::begin(&job);
        let run = handler(job, input).with_context(running.context.clone());
        Box::pin(async move { running.end(run.await.map_err(Into::into)) })
    }
}

/// The trace headers of a job.
struct Headers<'a>(&'a JobContext);

impl Extractor for Headers<'_> {
    fn get(&self, name: &str) -> Option<&str> {
        self.0.header(name)
    }

    fn keys(&self) -> Vec<&str> {
        ["traceparent", "tracestate"].into_iter().filter(|name| self.0.header(name).is_some()).collect()
    }
}

/// A run in progress, and its span.
struct Running {
    context: Context,
    is_over: bool,
}

impl Running {
    fn begin(job: &JobContext) -> Running {
        let parent = TraceContextPropagator::new().extract_with_context(&Context::new(), &Headers(job));
        let sent = Some(parent.span().span_context().clone()).filter(SpanContext::is_valid);
        let tracer = global::tracer(SCOPE);
        let mut attributes = attributes(job.task(), "process", "process");
        attributes.push(KeyValue::new("messaging.message.id", job.id().to_string()));
        attributes.push(KeyValue::new("messaging.client.id", job.worker_id().to_string()));
        attributes.push(KeyValue::new("heartline.attempt", i64::from(job.attempt())));
        attributes.push(KeyValue::new("heartline.stalled_count", i64::from(job.stalled_count())));
        if let Some(recovery) = job.recovery() {
            attributes.push(KeyValue::new("heartline.recovery", recovery.reason.to_string()));
        }
        let span = tracer.span_builder(format!("process {}", job.task())).with_kind(SpanKind::Consumer);
        let mut span = span.with_attributes(attributes);
        if let Some(sent) = sent {
            span = span.with_links(vec![Link::with_context(sent)]);
        }
        let span = span.start_with_context(&tracer, &parent);
        Running { context: parent.with_span(span), is_over: false }
    }

    fn end<O>(mut self, ended: Result<O, JobError>) -> Result<O, JobError> {
        self.is_over = true;
        if let Err(e) = &ended {
            let span = self.context.span();
            // A snoozed job has not failed.
            if e.snooze_delay().is_none() {
                span.set_attribute(KeyValue::new("error.type", e.code().to_owned()));
                span.set_status(Status::error(brief(&e.to_string())));
            }
        }
        ended
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let span = self.context.span();
        if !self.is_over {
            span.set_status(Status::error("the run was interrupted, or panicked"));
        }
        span.end();
    }
}

/// An [`Observer`] that makes spans for the calls of a worker: `receive <task>` for a call that claimed jobs, `settle <task>` for one that
/// reported outcomes.
#[derive(Clone, Copy, Default)]
pub struct CallSpans(());

impl Observer for CallSpans {
    fn called(&self, call: &CallInfo) {
        // One call may do both.
        for (operation, jobs) in [("settle", call.reported), ("receive", call.claimed)] {
            if jobs > 0 {
                let mut attributes = attributes(&call.task, operation, operation);
                attributes.push(KeyValue::new("messaging.batch.message_count", jobs as i64));
                attributes.push(KeyValue::new("messaging.client.id", call.worker.to_string()));
                let began = call.answered_at.checked_sub(call.took).unwrap_or(SystemTime::UNIX_EPOCH);
                let tracer = global::tracer(SCOPE);
                let span = tracer.span_builder(format!("{operation} {}", call.task)).with_kind(SpanKind::Client);
                let span = span.with_attributes(attributes).with_start_time(began);
                let span = span.start_with_context(&tracer, &Context::new());
                Context::new().with_span(span).span().end_with_timestamp(call.answered_at);
            }
        }
    }
}

impl fmt::Debug for CallSpans {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CallSpans")
    }
}

/// The attributes of every span.
fn attributes(task: &str, operation: &'static str, kind: &'static str) -> Vec<KeyValue> {
    vec![
        KeyValue::new("messaging.system", "heartline"),
        KeyValue::new("messaging.destination.name", task.to_owned()),
        KeyValue::new("messaging.operation.name", operation),
        KeyValue::new("messaging.operation.type", kind),
    ]
}

/// The beginning of a message, at most [`MESSAGE`] bytes.
fn brief(message: &str) -> String {
    let end = (0..=MESSAGE.min(message.len())).rev().find(|end| message.is_char_boundary(*end)).unwrap_or(0);
    message[..end].to_owned()
}
