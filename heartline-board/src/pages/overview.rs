//! The overview: all tasks, what is wrong, and the last minutes and hours.

use std::cmp::Reverse;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use askama::Template;
use axum::extract::State;
use axum::http::request::Parts;
use heartline::{Diagnosis, DiagnosisKind, FleetReport, Severity, TaskRates, TaskReport, WorkerState};
use tokio::time::Instant;

use crate::badge::{Badge, Meter, grouped};
use crate::state::{Board, Frame, PageResult, answer};
use crate::trouble::{Trouble, word};
use heartline::inspect::text::{rate_of, span};

/// The most troubles on the page.
const SHOWN: usize = 30;

/// The curve breaks between two reads that are further apart, since the rate between them is unknown.
const GAP: Duration = Duration::from_secs(5);

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
    kpis: Vec<Kpi>,
    rows: Vec<Row>,
    curve: Option<Curve>,
    bars: Vec<Bar>,
    stalls: u64,
    /// The most stalls in an hour.
    most: u64,
    is_read: bool,
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
    badge: Badge,
    meter: Meter,
    /// Claimed and running jobs.
    held: u64,
    /// The severity of its most severe diagnosis.
    severity: Option<Severity>,
}

/// How many jobs ended per second, as lines. A new line begins after each gap.
struct Curve {
    lines: Vec<String>,
    most: u64,
    over: String,
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
    let rows = rows(fleet, earlier.fleet.as_deref(), &diagnoses);
    let frame = board.frame(&head);
    let risks = diagnoses.iter().filter(|diagnosis| diagnosis.is_risk()).count() as u64;
    Ok(answer(&OverviewPage {
        risks,
        notes: diagnoses.len() as u64 - risks,
        troubles: Trouble::all(&diagnoses, &frame),
        frame,
        kpis: kpis(fleet, &rows),
        rows,
        curve: curve(&earlier.ended),
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
    let (live, silent) = fleet.workers.iter().fold((0, 0), |(live, silent), worker| match worker.state {
        WorkerState::Silent => (live, silent + 1),
        state => (live + u64::from(state.is_live()), silent),
    });
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
            if silent > 0 { format!("{silent} silent") } else { "live".to_owned() },
            if silent > 0 { "bad" } else { "" },
        ),
    ]
}

/// The rate between reads, from the number of ended jobs at each; `None` before the third read.
fn curve(looks: &VecDeque<(Instant, u64)>) -> Option<Curve> {
    let pairs: Vec<_> = looks.iter().zip(looks.iter().skip(1)).collect();
    let (begin, end) = (pairs.first()?.1.0, pairs.last()?.1.0);
    if pairs.len() < 2 {
        return None;
    }
    let whole = end.duration_since(begin);
    let mut lines: Vec<Vec<(f64, f64)>> = vec![Vec::new()];
    for ((before, had_ended), (at, ended)) in pairs {
        let over = at.duration_since(*before);
        if over > GAP {
            lines.push(Vec::new());
        } else if let Some(line) = lines.last_mut() {
            let x = at.saturating_duration_since(begin).as_secs_f64() / whole.as_secs_f64().max(0.001) * WIDTH;
            line.push((x, ended.saturating_sub(*had_ended) as f64 / over.as_secs_f64().max(0.001)));
        }
    }
    let most = lines.iter().flatten().map(|(_, rate)| *rate).fold(1.0, f64::max);
    let point = |(x, rate): &(f64, f64)| format!("{x:.1},{:.1}", HEIGHT - rate / most * (HEIGHT - 4.0) - 2.0);
    let drawn = lines.iter().filter(|line| !line.is_empty());
    let lines = drawn.map(|line| line.iter().map(point).collect::<Vec<_>>().join(" ")).collect();
    Some(Curve { lines, most: most.round() as u64, over: span(whole) })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_curve_breaks_at_a_gap_between_reads() {
        let begun = Instant::now();
        let looks = [(0, 0), (1, 10), (2, 20), (60, 1000), (61, 1005), (62, 1015)];
        let looks = looks.map(|(second, ended)| (begun + Duration::from_secs(second), ended));
        let curve = curve(&VecDeque::from(looks)).unwrap();
        assert_eq!((curve.most, curve.over.as_str()), (10, "1m 1s"));
        assert_eq!(curve.lines, ["0.0,2.0 7.9,2.0", "472.1,30.0 480.0,2.0"]);
    }
}
