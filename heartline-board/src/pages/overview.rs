//! The overview: what is wrong, all tasks, and the last minutes and hours.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use askama::Template;
use axum::extract::State;
use axum::http::request::Parts;
use heartline::{Diagnosis, JobState, TaskRates, TaskReport};
use tokio::time::Instant;

use crate::state::{Board, Frame, PageResult, answer};
use heartline::inspect::describe::STATES;
use heartline::inspect::text::span;

/// The curve breaks between two reads that are further apart, since the rate between them is unknown.
const GAP: Duration = Duration::from_secs(5);

/// The size of the pictures, in their own units.
const WIDTH: f64 = 480.0;
const HEIGHT: f64 = 60.0;

#[derive(Template)]
#[template(path = "overview.html")]
struct OverviewPage {
    frame: Frame,
    states: [JobState; 8],
    diagnoses: Vec<Diagnosis>,
    rows: Vec<Row>,
    curve: Option<Curve>,
    bars: Vec<Bar>,
    stalls: u64,
    is_read: bool,
}

/// A task, and its rates since the last read.
struct Row {
    task: TaskReport,
    rates: Option<TaskRates>,
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
    let row = |task: &TaskReport| {
        let earlier = earlier.fleet.iter().flat_map(|fleet| &fleet.tasks).find(|earlier| earlier.task == task.task);
        Row { rates: earlier.and_then(|earlier| task.rates_since(earlier)), task: task.clone() }
    };
    Ok(answer(&OverviewPage {
        frame: board.frame(&head),
        states: STATES,
        diagnoses,
        rows: fleet.tasks.iter().map(row).collect(),
        curve: curve(&earlier.ended),
        bars: bars(hours),
        stalls: hours.iter().sum(),
        is_read: log.is_read(),
    }))
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
