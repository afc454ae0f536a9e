//! A task queue on Redis that does not lose jobs when a worker dies. It does not take jobs from a worker that is alive and can reach Redis.
//!
//! # High-level features
//!
//! - Another worker finds the jobs of a dead process and runs them again, or fails those that kill their workers.
//! - A worker that is alive keeps its jobs: in a Redis outage that all workers share, when a handler blocks the runtime, and in a deploy.
//! - Each job's outcome is recorded exactly once. A worker that lost a job cannot record a result for it.
//! - Handlers are plain async functions with typed input and output, retries, timeouts, delays, priorities and cancellation.
//! - Results, events, graceful shutdown and test helpers are included.
//!
//! Execution is at least once: after a stall, the first run may still be running. [`Context::fence`] helps to make side effects safe.
//!
//! # Compatibility
//!
//! Heartline needs Rust 1.88 or later, Tokio, and Redis 6.2 or later, or Valkey. To begin, read
//! [your first service](guide::first_service).
//!
//! # Example
//!
//! ```no_run
//! use heartline::{App, Context, JobError, StopReason, TaskDef};
//!
//! const GREET: TaskDef<String, String> = TaskDef::new("greet");
//!
//! async fn greet(_ctx: Context, name: String) -> Result<String, JobError> {
//!     Ok(format!("hello, {name}"))
//! }
//!
//! #[tokio::main]
//! async fn main() -> heartline::Result<StopReason> {
//!     let app = App::builder().redis("redis://127.0.0.1:6379").build().await?;
//!     app.register(GREET.handler(greet))?;
//!     GREET.dispatch(&app, "world".to_owned()).await?;
//!     // Works until Ctrl-C or SIGTERM.
//!     app.worker().run_until_signal().await
//! }
//! ```
//!
//! # Tasks and handlers
//!
//! A **task** is a name, options and an async handler. A handler takes a [`Context`] and one input that serde can deserialize. It returns a
//! value that serde can serialize, or an error. A [`TaskDef`] is a task as a constant that producers and workers share; a worker adds the
//! handler with [`App::register`]. In a small program, [`App::task`] declares a task with its handler in one call. [`TaskOptions`] sets
//! concurrency, retries, timeouts, heartbeats and retention; all wrong options are reported together.
//!
//! # Dispatching
//!
//! A **job** is one dispatched unit of a task. [`TaskDef::dispatch`] writes one job. A [`Dispatch`] can set options for its own job, and a
//! [`JobHandle`] waits for its result. A [`TaskRef`], from [`App::task_ref_for`], also dispatches many jobs at once and finds jobs again.
//!
//! # Workers
//!
//! [`App::worker`] makes a [`Worker`] for every task that has a handler. It claims jobs, runs them, and reports their outcomes.
//! [`Worker::run_until_signal`] runs until Ctrl-C or SIGTERM. Then it claims no more jobs, lets running ones end, and requeues those that
//! do not end in time. [`Worker::spawn`] runs the worker in the background.
//!
//! # Heartbeats and stalls
//!
//! A thread of the worker sends heartbeats, without help from handlers. If a worker is silent for a whole interval, which [`StallOptions`]
//! sets, its jobs are stalled, and another worker decides: run again, failed, or cancelled. A long handler calls [`Context::heartbeat`] to
//! learn when it should stop. [Stalls and guarantees](guide::guarantees) explains this.
//!
//! # Errors
//!
//! Calls return an [`Error`], which says what the caller can do. A handler returns a [`JobError`], or a type that converts to one:
//! `anyhow::Error`, a boxed error, text, or your own error type. See [retries](guide::retries).
//!
//! # Events and metrics
//!
//! [`App::events`] receives every event of jobs, from any process; [`App::on_stalled`] receives only stalls. For metrics use an
//! [`Observer`], which sees each run of its own worker once.
//!
//! # Operating
//!
//! [`App::inspector`] lists tasks, jobs and workers by name, and explains stalls. It retries, cancels, pauses and repairs, without handlers
//! or types. [`Worker::monitor`] answers probes. See [operating](guide::operating).
//!
//! # Logs
//!
//! Heartline logs with `tracing`, in a span `attempt` for each run and `hook` for each run of a hook. It never logs payloads. The page on
//! [production](guide::production) lists the log lines and useful alerts.
//!
//! # Where to look
//!
//! | for | see |
//! |---|---|
//! | connecting, declaring tasks | [`App`], [`AppBuilder`], [`TaskDef`] |
//! | options and their defaults | [`TaskOptions`], [`StallOptions`], [`RetryPolicy`], [`Retention`] |
//! | dispatching jobs | [`TaskRef`], [`Dispatch`], [`Unique`] |
//! | graphs of jobs | [`Graph`], [`Workflow`], [`WorkflowHandle`] |
//! | waiting for a result, cancelling | [`JobHandle`] |
//! | inside a handler | [`Context`], [`Interrupted`], [`JobError`] |
//! | a pool, a client or settings for handlers | [`AppBuilder::state`], [`Context::state`] |
//! | code around each run: tracing, tenants | [`AppBuilder::layer`] |
//! | running a worker | [`Worker`], [`RunningWorker`], [`shutdown_signal`], [`StopReason`] |
//! | metrics of runs | [`Observer`] |
//! | events and stalls | [`Event`], [`StalledEvent`], [`Subscription`] |
//! | states | [`JobState`], [`TaskRef::job`], [`TaskRef::counts`] |
//! | inspecting and managing jobs | [`Inspector`], [`JobFilter`], [`BulkAction`], [`Audit`] |
//! | probes | [`WorkerMonitor`] |
//! | errors | [`Error`] |
//!
//! The repository has an example for each topic in `examples/`: typed input, retries, long jobs, events, cancellation, schedules, shutdown.
//!
//! # Feature flags
//!
//! | feature | default | what it adds |
//! |---|---|---|
//! | `anyhow` | yes | a [`JobError`] keeps its code inside an `anyhow::Error`; [`TaskHandler::on_error`] and [`JobError::downcast_ref`] find the original error |
//! | `axum` | no | [`Error`], [`JobHandle`], [`WorkflowHandle`] and [`CancelOutcome`] are responses of axum |
//! | `metrics` | no | [`RunMetrics`] and [`WorkerMetrics`]: metrics of a worker in a registry of `prometheus-client` |
//! | `probes` | no | [`Worker::serve`]: `/live`, `/ready` and `/health` over HTTP, on a thread of its own |
//! | `private-server` | no | the module `private_server`: a Redis server or cluster that ends with your process, for demos |
//! | `schedules` | no | [`Schedule`]: recurring jobs, by a cron pattern or by a gap |
//! | `tls` | no | `rediss://`, by rustls with `ring`; `AppBuilder::tls_ca`, `AppBuilder::tls_client` |
//! | `testing` | no | the module `testing`: `Context::for_test`, `Worker::drain`, `TestApp`, a private Redis server; see the page on testing in the [`guide`] |

#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(feature = "testing")]
#[doc(hidden)]
#[path = "internals/mod.rs"]
pub mod _internals;
mod app;
mod backend;
mod backoff;
mod clock;
mod codec;
mod config_error;
mod crc16;
mod credentials;
mod enum_str;
mod error;
mod escape;
mod events;
pub mod guide;
pub mod inspect;
mod job;
mod join;
mod keeper;
mod latency;
mod limits;
mod log_buckets;
#[cfg(feature = "metrics")]
mod metrics;
mod mutex;
mod options;
mod plural;
#[cfg(feature = "private-server")]
pub mod private_server;
mod runtime;
#[cfg(feature = "schedules")]
mod schedule;
#[cfg(feature = "probes")]
mod serve;
mod stall;
mod task;
#[cfg(feature = "testing")]
pub mod testing;
mod timings;
mod unix_time;
mod worker;
mod worker_id;
mod workflow;

pub use app::App;
pub use app::builder::AppBuilder;
pub use codec::{CodecError, PayloadCodec};
pub use config_error::{ConfigError, ConfigErrors};
pub use credentials::Credentials;
pub use error::{Error, Interrupted, JobError, MissingState, NoteError, Result, ServerError, ServerErrorKind};
pub use events::event::{Event, RejectedOutcome};
pub use events::subscription::{RecvError, Subscription};
pub use events::workflow_event::{WorkflowEvent, WorkflowStep};
pub use inspect::Inspector;
pub use inspect::act_report::{BulkReport, JobSelection, RefusalReason, RefusedJob};
pub use inspect::acts::ForgetOutcome;
pub use inspect::audit::{Audit, AuditProgress};
pub use inspect::audit_report::{AuditReport, AuditedPart, Finding, Inconsistency};
pub use inspect::bulk_action::BulkAction;
pub use inspect::columns::ColumnReport;
pub use inspect::diagnosis::{
    Caution, CrashDiagnoses, Diagnosis, DiagnosisKind, FleetChecks, FleetReport, LostSlots, RecentStalls, Severity,
};
pub use inspect::filter::JobFilter;
pub use inspect::find::{FindReport, Match};
pub use inspect::history::{EventPage, PauseEvent, RejectedReport, TaskEvent};
pub use inspect::holders::{Holder, HolderReport};
pub use inspect::job::{JobOptions, JobReport, JobValues};
pub use inspect::lane::{Lane, LaneDetail, LaneHolder, LaneRate, LaneReport, LaneSettings, LaneState};
pub use inspect::lanes::Lanes;
pub use inspect::limits::LimitReached;
pub use inspect::lists::UnreachableLists;
pub use inspect::page::{JobCount, JobPage, JobRow};
pub use inspect::person_acts::PersonAct;
pub use inspect::poison::PoisonSuspect;
pub use inspect::recover::{RecoveredTask, RecoveryReport};
pub use inspect::repair::RepairReport;
#[cfg(feature = "schedules")]
pub use inspect::schedules::{ScheduleCounts, ScheduleList};
pub use inspect::series::{DurationQuantiles, SeriesCounts, SeriesPoint, SeriesSpan, TaskSeries};
pub use inspect::server::ServerReport;
pub use inspect::silent::{ResolvedJob, SilentJob, SilentPage, SilentSelection, SweepReport};
pub use inspect::stalls::{Detector, RecoveryStatus, StallPage, StallReport};
pub use inspect::tasks::{
    EffectiveOptions, KeyConflict, LaneCounts, PartitionReport, TaskAudit, TaskPause, TaskRates, TaskReport,
};
pub use inspect::unique::UniqueEntry;
pub use inspect::workers::{DetectorReport, WorkerDeath, WorkerQuiet, WorkerReport, WorkerState, WorkerTask};
pub use inspect::workflow_report::{
    InstancePage, InstancePause, InstanceReport, InstanceRetries, InstanceRow, NodeReport, RecoveredWorkflow,
    WorkflowReport,
};
pub use job::failure::{Failure, codes};
pub use job::id::JobId;
pub use job::instance::{NodeState, WorkflowState};
pub use job::outcome::{Outcome, StoredOutcome};
pub use job::progress::JobProgress;
pub use job::state::JobState;
pub use job::tick::Tick;
pub use latency::LatencySummary;
#[cfg(feature = "metrics")]
pub use metrics::{RunMetrics, WorkerMetrics};
pub use options::key::Limit;
pub use options::modes::{Durability, EventMode, Priority};
pub use options::rate::Rate;
pub use options::retention::{Retention, RetentionLimit};
pub use options::retry::{Jitter, RetryPolicy};
pub use options::stall::{Heartbeat, OnCrash, OnLockRisk, StallOptions};
pub use options::task::TaskOptions;
pub use options::unique::{Placed, Unique, UniqueMode};
pub use runtime::context::Context;
pub use runtime::death_proof::DeathProof;
pub use runtime::layer::{Next, RunFailure, RunValue};
pub use runtime::observer::{CallInfo, Observer, RunEnd, RunInfo, RunOutcome};
pub use runtime::stats::{TaskStats, WorkerStats};
pub use runtime::upstream::{NodeName, Upstream};
#[cfg(feature = "schedules")]
pub use schedule::info::{RecentTick, ScheduleInfo, SchedulePause};
#[cfg(feature = "schedules")]
pub use schedule::policy::{Missed, Overlap, ScheduleSource, TickOutcome};
#[cfg(feature = "schedules")]
pub use schedule::rule::{Preview, Schedule};
pub use stall::action::{StallAction, StallReason, StalledEvent};
pub use stall::recovery::Recovery;
pub use stall::witness::DetectorReset;
pub use task::cancel::Cancel;
pub use task::definition::{TaskDef, TaskHandler};
pub use task::dispatch::Dispatch;
pub use task::handle::{CancelOutcome, JobHandle};
pub use task::job::Job;
#[cfg(feature = "schedules")]
pub use task::schedules::{Placement, Schedules};
pub use task::status::JobStatus;
pub use task::task_ref::{TaskCounts, TaskRef};
pub use worker::builder::Worker;
pub use worker::identity::WorkerIdentity;
pub use worker::monitor::{WorkerHealth, WorkerMonitor, WorkerPhase};
#[cfg(feature = "probes")]
pub use worker::probes::ProbeServer;
pub use worker::running::RunningWorker;
pub use worker::signal::shutdown_signal;
pub use worker::stop::{StopReason, WorkerPart};
pub use worker_id::WorkerId;
pub use workflow::definition::{Start, Workflow, WorkflowDef};
pub use workflow::graph::{Graph, Node, NodeInputs, NodeTask};
pub use workflow::handle::{NodeStatus, WorkflowHandle, WorkflowStatus};
pub use workflow::options::{OnFailure, WorkflowOptions};

/// The examples of the README, compiled as doc tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
