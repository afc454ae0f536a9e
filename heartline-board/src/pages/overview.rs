//! The overview: all tasks with the last 24 hours of each, and what is wrong.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use askama::Template;
use axum::extract::State;
use axum::http::request::Parts;
use futures_util::future::{join, join_all};
use heartline::{Diagnosis, DiagnosisKind, FleetReport, Severity, TaskRates, TaskReport, WorkerState};

use crate::badge::{Badge, Meter, grouped};
use crate::frame::Frame;
use crate::pages::task::failed_codes;
use crate::plot::Sparkline;
use crate::state::{Board, PageResult, answer};
use crate::trouble::{Trouble, word};
use heartline::inspect::describe::CodeCount;
use heartline::inspect::text::{rate_of, span};

/// The most tasks with a sparkline.
const SPARKS: usize = 100;

/// The most troubles on the page.
const SHOWN: usize = 30;

/// The most troubles with the codes of failed jobs, and the most codes of one.
const CODED: usize = 10;
const CODES: usize = 3;

/// The size of the pictures, in their own units.
const WIDTH: f64 = 480.0;
const HEIGHT: f64 = 60.0;

#[derive(Template)]
#[template(path = "overview.html")]
struct OverviewPage {
    frame: Frame,
    risks: u64,
    notes: u64,
    troubles: Vec<Trouble>,
    /// The codes of failed jobs of the first troubles.
    codes: HashMap<String, Codes>,
    now: SystemTime,
    kpis: Vec<Kpi>,
    rows: Vec<Row>,
    bars: Vec<Bar>,
    stalls: u64,
    /// The most stalls in an hour.
    most: u64,
    is_read: bool,
}

/// The most frequent codes of the last failed jobs of a task.
struct Codes {
    counts: Arc<Vec<CodeCount>>,
    /// How many failed jobs were read.
    read: u64,
}

impl OverviewPage {
    /// The codes of the task that a trouble is about, if it is that jobs fail.
    fn codes_of(&self, trouble: &Trouble) -> Option<&Codes> {
        self.codes.get(trouble.fails.as_ref()?)
    }
}

/// The codes of the failed jobs of the first tasks whose jobs fail.
async fn codes(board: &Board, fleet: &FleetReport, troubles: &[Trouble]) -> HashMap<String, Codes> {
    let fail = troubles.iter().take(SHOWN).filter_map(|trouble| trouble.fails.as_ref()).take(CODED);
    let tasks = fail.filter_map(|name| fleet.tasks.iter().find(|task| task.task == *name));
    let reads = tasks.map(|task| async { (task.task.clone(), failed_codes(board, task).await) });
    let found = join_all(reads).await.into_iter().filter_map(|(task, counts)| Some((task, counts.ok()?)));
    let codes = |counts: Arc<Vec<CodeCount>>| Codes { read: counts.iter().map(|count| count.jobs).sum(), counts };
    found.map(|(task, counts)| (task, codes(counts))).collect()
}

/// A number of the whole fleet.
struct Kpi {
    name: &'static str,
    value: String,
    detail: String,
    /// The class of its tone; empty if it needs no look.
    tone: &'static str,
}

/// A task, and its rates since the last read.
struct Row {
    task: TaskReport,
    rates: Option<TaskRates>,
    /// Its last 24 hours; `None` if nothing is known of them.
    spark: Option<Sparkline>,
    /// How long 95 % of the runs of the last hour took at most.
    ran: Option<Duration>,
    badge: Badge,
    meter: Meter,
    /// Claimed and running jobs.
    held: u64,
    /// The severity of its most severe diagnosis.
    severity: Option<Severity>,
}

/// The number of stalls in an hour, as a bar.
struct Bar {
    x: f64,
    y: f64,
    height: f64,
    title: String,
}

pub(crate) async fn page(State(board): State<Arc<Board>>, head: Parts) -> PageResult {
    let (seen, earlier) = board.or_failed(board.look().await)?;
    let fleet = &seen.fleet;
    let log = board.stalls.log(&board.inspector, &fleet.tasks).await;
    let hours = log.hours(board.inspector.now().await);
    let diagnoses = board.or_failed(board.inspector.diagnose_fleet(fleet, &log.recent()).await)?;
    let mut rows = rows(fleet, earlier.as_deref(), &diagnoses);
    let reads =
        rows.iter().take(SPARKS).map(|row| join(board.sparkline(&row.task.task), board.run_time(&row.task.task)));
    let frame = board.frame(&head);
    let troubles = Trouble::all(&diagnoses, &frame);
    let (reads, codes) = join(join_all(reads), codes(&board, fleet, &troubles)).await;
    rows.iter_mut().zip(reads).for_each(|(row, (spark, ran))| (row.spark, row.ran) = (spark, ran));
    let risks = diagnoses.iter().filter(|diagnosis| diagnosis.is_risk()).count() as u64;
    Ok(answer(&OverviewPage {
        risks,
        notes: diagnoses.len() as u64 - risks,
        codes,
        now: fleet.as_of,
        troubles,
        frame,
        kpis: kpis(fleet, &rows),
        rows,
        bars: bars(hours),
        stalls: hours.iter().sum(),
        most: hours.iter().copied().max().unwrap_or(0),
        is_read: log.is_read(),
    }))
}

/// The tasks, those with the most severe diagnoses first.
fn rows(fleet: &FleetReport, earlier: Option<&FleetReport>, diagnoses: &[Diagnosis]) -> Vec<Row> {
    let row = |task: &TaskReport| {
        let before = earlier.iter().flat_map(|fleet| &fleet.tasks).find(|earlier| earlier.task == task.task);
        let found = diagnoses.iter().find(|diagnosis| diagnosis.task.as_deref() == Some(&*task.task));
        let held = task.counts.claimed + task.counts.running;
        Row {
            rates: before.and_then(|before| task.rates_since(before)),
            badge: badge_of(found),
            meter: Meter::new(held, task.slots),
            held,
            spark: None,
            ran: None,
            severity: found.map(|found| found.severity),
            task: task.clone(),
        }
    };
    let mut rows: Vec<Row> = fleet.tasks.iter().map(row).collect();
    rows.sort_by_key(|row| Reverse(row.severity));
    rows
}

/// The badge of a task with this diagnosis, its most severe one.
pub(crate) fn badge_of(found: Option<&Diagnosis>) -> Badge {
    match found {
        None => Badge::new("green plain", "check", "healthy"),
        Some(found) if found.is_risk() => Badge::new("red", "crit", word(&found.kind)),
        Some(found) if found.is_pause() => Badge::new("amber", "pause", word(&found.kind)),
        Some(found) if matches!(found.kind, DiagnosisKind::JobsRecovered { .. }) => {
            Badge::new("", "info", word(&found.kind))
        }
        Some(found) => Badge::new("amber", "warn", word(&found.kind)),
    }
}

/// The numbers of the whole fleet. A task that cannot be read counts as nothing.
fn kpis(fleet: &FleetReport, rows: &[Row]) -> Vec<Kpi> {
    let sum = |of: fn(&TaskReport) -> u64| fleet.tasks.iter().map(of).sum::<u64>();
    let rate = |of: fn(&TaskRates) -> f64| match rows.iter().any(|row| row.rates.is_some()) {
        true => rate_of(rows.iter().filter_map(|row| row.rates.as_ref()).map(of).sum()),
        false => "–".to_owned(),
    };
    let oldest = fleet.tasks.iter().filter_map(|task| task.next_waiting_age).max();
    let workers = |is: fn(WorkerState) -> bool| fleet.workers.iter().filter(|worker| is(worker.state)).count() as u64;
    let (live, silent) = (workers(WorkerState::is_live), workers(|state| state == WorkerState::Silent));
    let quiet = workers(|state| state == WorkerState::Quiet);
    let failed = sum(|task| task.failed_lately);
    let kpi = |name, value: u64, detail: String, tone| Kpi { name, value: grouped(&value), detail, tone };
    vec![
        kpi(
            "Waiting",
            sum(|task| task.counts.waiting),
            oldest.map_or_else(String::new, |age| format!("oldest {}", span(age))),
            "",
        ),
        kpi("Held", sum(|task| task.counts.held_total()), format!("of {} slots", grouped(&sum(|task| task.slots))), ""),
        Kpi { name: "In a second", value: rate(|rates| rates.dispatched), detail: String::new(), tone: "" },
        Kpi { name: "Out a second", value: rate(|rates| rates.ended), detail: String::new(), tone: "" },
        kpi("Failed in 5 min", failed, String::new(), if failed > 0 { "bad" } else { "" }),
        kpi(
            "Workers",
            live,
            match (silent, quiet) {
                (0, 0) => "live".to_owned(),
                (0, quiet) => format!("{quiet} quiet"),
                (silent, _) => format!("{silent} silent"),
            },
            if silent > 0 { "bad" } else { "" },
        ),
    ]
}

fn bars(hours: [u64; 24]) -> Vec<Bar> {
    let most = hours.iter().copied().max().unwrap_or(0).max(1) as f64;
    let bar = |(at, count): (usize, u64)| {
        let height = if count == 0 { 1.0 } else { 3.0 + count as f64 / most * (HEIGHT - 3.0) };
        let ago = 23 - at;
        let when = if ago == 0 { "in the last hour".to_owned() } else { format!("{ago} to {} h ago", ago + 1) };
        Bar { x: at as f64 * WIDTH / 24.0, y: HEIGHT - height, height, title: format!("{count} stalls {when}") }
    };
    hours.into_iter().enumerate().map(bar).collect()
}
