//! Draws the time series of a task. A line breaks where nothing was recorded.

use std::time::Duration;

use heartline::inspect::text::span;
use heartline::{DurationQuantiles, SeriesCounts, SeriesPoint, TaskSeries};

/// The size of a sparkline, in its own units.
const SPARK: (f64, f64) = (104.0, 22.0);

/// The size of a plot, in its own units. It is stretched to its place.
const PLOT: (f64, f64) = (600.0, 128.0);

/// The jobs that ended in the last 24 hours, without axes.
#[derive(Debug, PartialEq)]
pub(crate) struct Sparkline {
    /// SVG paths: the line, and the area below it.
    pub(crate) line: String,
    pub(crate) area: String,
    /// The steps with failed jobs: the left edge.
    pub(crate) failed: Vec<String>,
    /// What it shows, in words.
    pub(crate) label: String,
}

/// Some lines over time, with axes.
#[derive(Debug, PartialEq)]
pub(crate) struct Plot {
    pub(crate) title: &'static str,
    /// The newest values, in words.
    pub(crate) now: String,
    pub(crate) lines: Vec<Line>,
    /// The labels of the vertical axis, from the top.
    pub(crate) marks: [String; 3],
    /// The labels of the horizontal axis, from the left.
    pub(crate) times: Vec<String>,
}

#[derive(Debug, PartialEq)]
pub(crate) struct Line {
    /// Its name in the legend, and its class in the stylesheet.
    pub(crate) name: &'static str,
    pub(crate) class: &'static str,
    pub(crate) path: String,
}

/// The sparkline; `None` if nothing was recorded.
pub(crate) fn sparkline(series: &TaskSeries) -> Option<Sparkline> {
    let ended: Vec<Option<f64>> = series.points.iter().map(|point| a_minute(point, |counts| counts.ended)).collect();
    let most = ended.iter().flatten().copied().reduce(f64::max)?.max(1.0);
    let runs = runs(&ended, most, SPARK);
    let area = |run: &Vec<(f64, f64)>| {
        let (first, last) = (run.first().map_or(0.0, |point| point.0), run.last().map_or(0.0, |point| point.0));
        format!("{}L{last:.1} {bottom}L{first:.1} {bottom}Z", path(run), bottom = SPARK.1)
    };
    let counts = || series.points.iter().filter_map(|point| point.counts);
    let all = |of: fn(&SeriesCounts) -> u64| counts().map(|counts| of(&counts)).sum::<u64>();
    let has_failed = |point: &SeriesPoint| point.counts.is_some_and(|counts| counts.failed > 0);
    let failed = series.points.iter().enumerate().filter(|(_, point)| has_failed(point));
    Some(Sparkline {
        line: runs.iter().map(|run| path(run)).collect(),
        area: runs.iter().map(area).collect(),
        failed: failed.map(|(at, _)| format!("{:.1}", x_of(at, series.points.len(), SPARK.0))).collect(),
        label: format!(
            "last 24 hours: {} ended, {} failed, at most {most:.0} a minute",
            all(|counts| counts.ended),
            all(|counts| counts.failed)
        ),
    })
}

/// How many jobs ended and failed, how long jobs waited and how long runs took.
pub(crate) fn plots(series: &TaskSeries) -> [Plot; 3] {
    let ended = |point: &SeriesPoint| a_minute(point, |counts| counts.ended);
    let failed = |point: &SeriesPoint| a_minute(point, |counts| counts.failed);
    let count = |value: f64| format!("{value:.0}");
    let long = |seconds: f64| if seconds > 0.0 { span(Duration::from_secs_f64(seconds)) } else { "0".to_owned() };
    let throughput = Plot::new("Ended a minute", series, [("ended", "ok", &ended), ("failed", "bad", &failed)], count);
    let quantile = |of: fn(&SeriesPoint) -> Option<DurationQuantiles>, which: fn(&DurationQuantiles) -> Duration| {
        move |point: &SeriesPoint| of(point).map(|found| which(&found).as_secs_f64())
    };
    let latency = |title, of: fn(&SeriesPoint) -> Option<DurationQuantiles>| {
        let (p50, p95) = (quantile(of, |found| found.p50), quantile(of, |found| found.p95));
        Plot::new(title, series, [("median", "p50", &p50), ("95th percentile", "p95", &p95)], long)
    };
    [throughput, latency("Wait", |point| point.waited), latency("Run time", |point| point.ran)]
}

type Value<'a> = &'a dyn Fn(&SeriesPoint) -> Option<f64>;

impl Plot {
    fn new(
        title: &'static str,
        series: &TaskSeries,
        lines: [(&'static str, &'static str, Value<'_>); 2],
        label: impl Fn(f64) -> String,
    ) -> Plot {
        let values = lines.map(|(.., value)| series.points.iter().map(value).collect::<Vec<_>>());
        let most = values.iter().flatten().flatten().copied().fold(0.0, f64::max);
        let most = if most > 0.0 { most } else { 1.0 };
        let newest = lines.iter().zip(&values).filter_map(|((name, ..), values)| {
            let value = values.iter().rev().find_map(|value| *value)?;
            Some(format!("{} {name}", label(value)))
        });
        let lines = lines.iter().zip(&values).map(|((name, class, _), values)| Line {
            name,
            class,
            path: runs(values, most, PLOT).iter().map(|run| path(run)).collect(),
        });
        let whole = series.step * u32::try_from(series.points.len()).unwrap_or(u32::MAX);
        let ago = |quarter: u32| match quarter {
            0 => "now".to_owned(),
            _ => span(whole * quarter / 4),
        };
        Plot {
            title,
            now: newest.collect::<Vec<_>>().join(", "),
            lines: lines.collect(),
            marks: [label(most), label(most / 2.0), "0".to_owned()],
            times: (0..5).rev().map(ago).collect(),
        }
    }

    /// Whether it shows nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.lines.iter().all(|line| line.path.is_empty())
    }
}

fn a_minute(point: &SeriesPoint, of: fn(&SeriesCounts) -> u64) -> Option<f64> {
    let counts = point.counts?;
    Some(of(&counts) as f64 / counts.over.as_secs_f64().max(1.0) * 60.0)
}

fn x_of(at: usize, count: usize, width: f64) -> f64 {
    at as f64 / count.saturating_sub(1).max(1) as f64 * width
}

/// The points of each run of values without a gap.
fn runs(values: &[Option<f64>], most: f64, (width, height): (f64, f64)) -> Vec<Vec<(f64, f64)>> {
    let point = |at: usize, value: f64| (x_of(at, values.len(), width), height - value / most * (height - 2.0));
    let points: Vec<Option<(f64, f64)>> =
        values.iter().enumerate().map(|(at, value)| value.map(|value| point(at, value))).collect();
    points
        .split(Option::is_none)
        .filter(|run| !run.is_empty())
        .map(|run| run.iter().flatten().copied().collect())
        .collect()
}

/// The SVG path of a run. A single point is a short line.
fn path(run: &[(f64, f64)]) -> String {
    let mut path = String::new();
    for (at, (x, y)) in run.iter().enumerate() {
        path += &format!("{}{x:.1} {y:.1}", if at == 0 { "M" } else { "L" });
    }
    if run.len() == 1 { path + "h1" } else { path }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_breaks_at_gaps() {
        let values = [Some(10.0), Some(5.0), None, Some(0.0), None];
        let runs = runs(&values, 10.0, (100.0, 22.0));
        assert_eq!(runs, [vec![(0.0, 2.0), (25.0, 12.0)], vec![(75.0, 22.0)]]);
        assert_eq!(runs.iter().map(|run| path(run)).collect::<String>(), "M0.0 2.0L25.0 12.0M75.0 22.0h1");
    }
}
