//! The end of a run: no fault, no producer, and everything that was begun ends.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use futures_util::{StreamExt, stream};
use heartline::{App, Error, Event, TaskRef, Workflow, WorkflowOptions};

use crate::chaos::account::{End, Evidence, FlowEnd, Ticks};
use crate::chaos::load::{Acknowledged, FLOW, FlowAck};
use crate::chaos::outside::Line;
use crate::chaos::plan::Kind;
use crate::chaos::spans::{Span, now_us};
use crate::chaos::worker_process::{IN_CODE, SURE, TASKS, TICKS, Work, durability, each_second, tick};
use crate::integration::schedules::tick_ids;
use crate::support::{PATIENCE, eventually};

/// The schedule that is put at run time.
const AT_RUN_TIME: &str = "mail";

/// How long all jobs may take to end after the last fault.
const REST: Duration = Duration::from_secs(120);

/// How many results are read at a time.
const AT_A_TIME: usize = 40;

/// Puts the schedule of the run. Returns when that was acknowledged.
pub async fn put(app: &App) -> u64 {
    let task: TaskRef<Work, u64> = app.task_ref(TICKS).unwrap();
    let put = async || task.schedules().put(AT_RUN_TIME, each_second(), tick()).await.is_ok();
    eventually("the schedule is put", PATIENCE, put).await;
    now_us()
}

/// What the queue says at the end.
pub struct Found {
    acknowledged: Acknowledged,
    ends: BTreeMap<(String, String), End>,
    flows: Vec<(FlowAck, FlowEnd)>,
    ticks: Vec<Ticks>,
    lost_schedule_us: Option<u64>,
}

impl Found {
    pub fn evidence(
        self,
        events: Vec<Event>,
        missed_events: u64,
        lines: Vec<(u64, Line)>,
        spans: Vec<Span>,
    ) -> Evidence {
        let Found { acknowledged, ends, flows, ticks, lost_schedule_us } = self;
        Evidence { acknowledged, ends, flows, ticks, lost_schedule_us, events, missed_events, lines, spans }
    }
}

/// Waits until all jobs have ended, and reads how.
pub async fn rest(app: &App, kind: Kind, acknowledged: Acknowledged, put_us: u64) -> Found {
    let schedules = pause(app).await;
    let has_all = schedules.iter().any(|name| name == AT_RUN_TIME);
    let lost_schedule_us = (!has_all).then_some(put_us);
    let flow: Workflow<u64> = app.workflow(FLOW, WorkflowOptions::new()).unwrap();
    let until = Instant::now() + REST;
    let mut flows = Vec::new();
    for ack in &acknowledged.flows {
        let left = until.saturating_duration_since(Instant::now()).max(Duration::from_secs(1));
        let end = match flow.handle(&ack.id).unwrap().result_within(left).await {
            Ok(value) => FlowEnd::Completed(value),
            Err(Error::WorkflowNotFound { .. }) => FlowEnd::Missing,
            Err(e) => FlowEnd::Other(e.to_string()),
        };
        flows.push((ack.clone(), end));
    }
    for name in TASKS.iter().filter(|name| **name != SURE || durability(kind).is_some()) {
        let task: TaskRef<Work, u64> = app.task_ref(name).unwrap();
        while task.counts().await.is_ok_and(|counts| counts.pending_total() > 0) && Instant::now() < until {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
    let jobs = acknowledged.jobs.iter().map(|ack| (ack.task.to_owned(), ack.id.clone()));
    let ends = ends(app, jobs.collect()).await;
    let mut ticks = Vec::new();
    for info in schedules {
        let task: TaskRef<Work, u64> = app.task_ref(TICKS).unwrap();
        let info = task.schedules().get(&info).await.unwrap().unwrap();
        let ids = tick_ids(&info);
        let of_task = self::ends(app, ids.iter().map(|id| (TICKS.to_owned(), id.clone())).collect()).await;
        let ends = of_task.into_iter().map(|((_, id), end)| (id, end)).collect();
        ticks.push(Ticks { info, ids, ends });
    }
    Found { acknowledged, ends, flows, ticks, lost_schedule_us }
}

/// Pauses the schedules, and waits until each has passed a tick without a job. Returns their names.
async fn pause(app: &App) -> Vec<String> {
    let task: TaskRef<Work, u64> = app.task_ref(TICKS).unwrap();
    let mut names = Vec::new();
    for name in IN_CODE.into_iter().chain([AT_RUN_TIME]) {
        let paused = async || match task.schedules().pause(name, "the run ends").await {
            Ok(_) => Some(true),
            // A schedule that was put at run time may be lost with its server.
            Err(Error::Config(_)) if name == AT_RUN_TIME => Some(false),
            Err(_) => None,
        };
        if eventually("the schedule is paused", PATIENCE, paused).await {
            names.push(name.to_owned());
        }
    }
    for name in &names {
        eventually("a tick passes", PATIENCE, async || {
            let info = task.schedules().get(name).await.ok().flatten();
            info.is_some_and(|info| info.paused_ticks > 0)
        })
        .await;
    }
    names
}

async fn ends(app: &App, jobs: Vec<(String, String)>) -> BTreeMap<(String, String), End> {
    let read = jobs.into_iter().map(|(task, id)| async move {
        let jobs: TaskRef<Work, u64> = app.task_ref(&task).unwrap();
        let result = jobs.handle(&id).unwrap().result_within(Duration::from_secs(5)).await;
        let end = match result {
            Ok(fence) => End::Completed(fence),
            Err(Error::JobFailed(failure)) => End::Failed(failure.code),
            Err(Error::JobNotFound { .. }) => End::Missing,
            Err(e) => End::Other(e.to_string()),
        };
        ((task, id), end)
    });
    stream::iter(read).buffer_unordered(AT_A_TIME).collect().await
}
