//! A task queue on Redis that does not lose jobs when a worker dies, and takes none from a live one.
//!
//! A **task** is a name, options and an async handler. A **job** is one dispatched unit of it. A worker claims jobs, beats for
//! them while they run, and settles their outcomes. When a worker falls silent, another one finds its jobs
//! **stalled** and decides: run again, failed, or cancelled. Execution is at least once; [`Context::fence`] helps to
//! make side effects safe.
//!
//! ```no_run
//! use heartline::{App, Context, JobError, TaskOptions};
//!
//! # async fn run() -> heartline::Result<heartline::StopReason> {
//! let app = App::builder().redis("redis://127.0.0.1:6379").build().await?;
//! let greet = app.task("greet", TaskOptions::new(), |_ctx: Context, name: String| async move {
//!     Ok::<String, JobError>(format!("hello, {name}"))
//! })?;
//! greet.dispatch("world".to_owned()).await?;
//! app.worker().run_until_signal().await
//! # }
//! ```
//!
//! # Where to look
//!
//! | for | see |
//! |---|---|
//! | connecting, declaring tasks | [`App`], [`AppBuilder`], [`TaskDef`] |
//! | options and their defaults | [`TaskOptions`], [`StallOptions`], [`RetryPolicy`], [`Retention`] |
//! | dispatching jobs | [`TaskRef`], [`Dispatch`] |
//! | waiting for a result, cancelling | [`JobHandle`] |
//! | what a handler can ask and tell | [`Context`], [`Interrupted`], [`JobError`] |
//! | running a worker | [`Worker`], [`RunningWorker`], [`shutdown_signal`], [`StopReason`] |
//! | metrics of runs | [`Observer`] |
//! | events and stalls | [`App::events`], [`App::on_stalled`], [`Event`], [`StalledEvent`] |
//! | states | [`JobState`], [`TaskRef::job`], [`TaskRef::counts`] |
//! | what can go wrong | [`Error`] |
//!
//! The [`guide`] explains how stalls are found, what is guaranteed and what is not, and how to run it in production.
//!
//! # Features
//!
//! | feature | default | what it adds |
//! |---|---|---|
//! | `anyhow` | no | [`TaskHandler::on_error`] and [`JobError::downcast_ref`] find what an `anyhow::Error` was made of |
//! | `tls` | no | `rediss://`, by rustls with `ring`; `AppBuilder::tls_ca`, `AppBuilder::tls_client` |
//! | `testing` | no | the module `testing`: `Context::for_test`, `Worker::drain`, `TestApp`, a private Redis server |
//!
//! # Tracing
//!
//! | level | span or event | fields |
//! |---|---|---|
//! | info | span `attempt`, one for each run of a handler | `task`, `job_id`, `attempt`, `worker_id` |
//! | info | `working`, `stopping`, `stopped` | `worker_id`, `tasks`, `prefix`, `server`; `worker_id`, `held`, `longest`; `worker_id`, `left` |
//! | warn | stopped, with jobs left to the sweep of another worker | `worker_id`, `left`, `ids` |
//! | info | redis answers again; redis is there, for a worker that waited to start | `worker_id`, `away_ms` |
//! | debug | `snoozed` | `task`, `job_id`, `next_in` |
//! | warn | a run failed and the job is retried | `task`, `job_id`, `attempt`, `max_attempts`, `code`, `error`, `next_in` |
//! | error | the job failed | `task`, `job_id`, `attempt`, `max_attempts`, `code`, `error` |
//! | warn | the payload is no input of this version of the handler; the job is put off | `task`, `job_id`, `code`, `error`, `next_in` |
//! | warn | redis gives no answer: told once, until it does | `worker_id`, `part`, `error` |
//! | warn | the worker waits for redis to start | `worker_id`, `error` |
//! | warn | the worker was dropped while it ran; its jobs are handed back | `worker_id`, `held` |
//! | warn | every slot is held by a handler that waits for the result of another job | `worker_id`, `slots` |
//! | info | an option of a task changed with a start | `task`, `option`, `old`, `new` |
//! | warn | `stalled` | `task`, `job_id`, `action`, `count`, `worker` |
//! | warn | `lost`: the lock of a job is gone, another worker may hold it | `task`, `job_id`, `fence` |
//! | warn | a beat was refused; a settle was refused for now | `task`, `error`, `pause` |
//! | warn | an outcome came too late: the job was taken in the meantime | `task`, `fence` |
//! | warn | the options of a task could not be declared again; the job's own options cannot be read | `task`, `error`; `job_id`, `error` |
//! | warn | the handler panicked while it was dropped | `job_id`, `panic` |
//! | warn | an event entry is damaged and was skipped | `task`, `entry`, `field` |
//! | warn | handlers block the runtime; it runs again | `blocked_ms` |
//! | warn | the process stood still | `stood_still_ms` |
//! | warn | presence could not be told, terminal jobs could not be trimmed, events cannot be read | `error` |
//! | warn | the server had lost the options of a task, which are declared again | `task` |
//! | warn | a large payload cannot be read; it is tried again | `task`, `job_id`, `bytes`, `error` |
//! | warn | log lines of the keeper were dropped: the subscriber was too slow | `lines` |
//! | warn | an event stream went back, after a failover | `task` |
//! | warn | heartbeats take so long that no more jobs are claimed | `task`, `took`, `period` |
//! | error | a settle or a sweep was refused: something foreign is stored under a key of the task, or a right is missing | `task`, `error` |
//! | error | a settle call was overtaken: two workers have one identity | `task`, `number` |
//! | error | the worker may not wait for work, or not listen for cancels: a right is missing, which the error names | `error` |
//! | error | redis does not take a large outcome; the job fails | `task`, `error` |
//! | error | a part of the worker ended by itself, which is a bug | `worker_id`, `part` |
//! | error | redis was told that this worker has stopped, and it must not go on | `task` |
//! | error | a waker that waited for news of a job panicked | `job_id` |
//! | error | the observer panicked | `task`, `job_id` |
//!
//! Payloads are never logged. What the keeper thread has to say is said on a thread of its own, so that a subscriber that
//! blocks cannot stop it.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod app;
mod clock;
mod error;
mod events;
mod faults;
pub mod guide;
mod job;
mod keeper;
mod limits;
mod names;
mod options;
mod pauses;
mod process;
mod shown;
mod stall;
mod store;
mod task;
#[cfg(feature = "testing")]
pub mod testing;
mod times;
mod worker;
mod worker_id;

pub use app::{App, AppBuilder};
pub use error::{Error, Interrupted, JobError, MissingData, Result, ServerError};
pub use events::event::Event;
pub use events::subscription::{RecvError, Subscription};
pub use faults::{ConfigError, ConfigErrors};
pub use job::failure::{Failure, codes};
pub use job::id::JobId;
pub use job::state::JobState;
pub use options::modes::{EventMode, Priority};
pub use options::retention::{Retention, RetentionLimit};
pub use options::retry::{Jitter, RetryPolicy};
pub use options::stall::{Heartbeat, OnRisk, StallOptions};
pub use options::task::TaskOptions;
pub use process::context::Context;
pub use process::observer::{Observer, RunEnd, RunInfo, RunOutcome};
pub use stall::action::{StallAction, StallReason, StalledEvent};
pub use task::definition::{TaskDef, TaskHandler};
pub use task::dispatch::Dispatch;
pub use task::handle::{CancelOutcome, JobHandle};
pub use task::task_ref::{Job, TaskCounts, TaskRef};
pub use worker::builder::Worker;
pub use worker::running::RunningWorker;
pub use worker::signal::shutdown_signal;
pub use worker::stop::{StopReason, WorkerPart};
pub use worker_id::WorkerId;

/// The examples of the README, compiled as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
