//! The plots of `make plots`: what was measured, beside the raw limit and what other queues reach. Both axes of each
//! are logarithmic. No font is needed to draw them: the text of an SVG is set by who shows it.

use std::collections::HashMap;
use std::path::Path;

use anyhow::{Result, anyhow};
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::peers::{self, Peer};
use crate::report::Row;
use crate::stall;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

const SIZE: (u32, u32) = (900, 540);
/// Around the plot: the title above, the names of the lines to the right, the origin of the peers' figures below.
const MARGINS: [u32; 4] = [64, 90, 96, 190];
const INK: RGBColor = RGBColor(31, 41, 55);
const PALE: RGBColor = RGBColor(107, 114, 128);
const GRID: RGBColor = RGBColor(229, 231, 235);
const OURS: RGBColor = RGBColor(29, 78, 216);
/// Pixels between the names of two lines.
const APART: i32 = 17;

const CONCURRENCY: [(&str, f64); 4] = [
    ("process_concurrency_1", 1.0),
    ("process_concurrency_10", 10.0),
    ("process_concurrency_100", 100.0),
    ("process_concurrency_1000", 1_000.0),
];

/// Values and raw limits by the names of rows.
pub type Figures = HashMap<String, (f64, Option<f64>)>;

/// The rows that the plots show.
pub fn needed() -> Vec<&'static str> {
    CONCURRENCY.iter().map(|(row, _)| *row).chain(stall::SWEEP).chain(stall::BEAT).chain(stall::COMPLETE).collect()
}

/// The figures of a run that has ended.
pub fn figures(rows: &[Row]) -> Figures {
    rows.iter().filter_map(|row| figure(&row.json())).collect()
}

/// The figures of what an earlier run printed.
pub fn figures_of(printed: &str) -> Figures {
    printed.lines().filter_map(|line| figure(&serde_json::from_str(line).ok()?)).collect()
}

fn figure(row: &serde_json::Value) -> Option<(String, (f64, Option<f64>))> {
    Some((row.get("bench")?.as_str()?.to_owned(), (row.get("value")?.as_f64()?, row.get("raw")?.as_f64())))
}

struct Plot<'a> {
    file: &'a str,
    title: &'a str,
    x: (&'a str, fn(f64) -> String),
    y: (&'a str, fn(f64) -> String),
    rows: Vec<(&'static str, f64)>,
    raw: &'a str,
    peers: &'a [Peer],
}

/// A line of a plot and its name.
struct Line {
    name: String,
    color: RGBColor,
    width: u32,
    points: Vec<(f64, f64)>,
}

/// Writes the plots into the directory.
pub fn draw(dir: &Path, figures: &Figures) -> Result<()> {
    std::fs::create_dir_all(dir)?;
    let by_size = |rows: [&'static str; 4]| rows.into_iter().zip(stall::SIZES.map(|n| n as f64)).collect();
    let running = ("running jobs", count as fn(f64) -> String);
    let plots = [
        Plot {
            file: "throughput.svg",
            title: "No-op jobs through one worker process",
            x: ("concurrency", count),
            y: ("jobs/s", count),
            rows: CONCURRENCY.to_vec(),
            raw: "raw script, no checks",
            peers: &peers::PROCESS,
        },
        Plot {
            file: "sweep.svg",
            title: "A sweep for stalled jobs when there are none: longest call",
            x: running,
            y: ("server time a call", time),
            rows: by_size(stall::SWEEP),
            raw: "RENAME alone",
            peers: &peers::SWEEP,
        },
        Plot {
            file: "beat.svg",
            title: "Extending the lock of a running job, 500 a call",
            x: running,
            y: ("server time a job", time),
            rows: by_size(stall::BEAT),
            raw: "without checks",
            peers: &[],
        },
        Plot {
            file: "complete.svg",
            title: "Completing one job beside running ones",
            x: running,
            y: ("server time", time),
            rows: by_size(stall::COMPLETE),
            raw: "without checks",
            peers: &peers::COMPLETE,
        },
    ];
    for plot in &plots {
        let path = dir.join(plot.file);
        plot.draw(&path, figures).map_err(|e| anyhow!("drawing {}: {e:#}", path.display()))?;
    }
    Ok(())
}

impl Plot<'_> {
    fn lines(&self, figures: &Figures) -> Result<Vec<Line>> {
        let mut lines: Vec<Line> = Vec::new();
        for peer in self.peers {
            let color = RGBColor(peer.color.0, peer.color.1, peer.color.2);
            lines.push(Line { name: peer.name.to_owned(), color, width: 2, points: peer.points.to_vec() });
        }
        let (mut own, mut raw) = (Vec::new(), Vec::new());
        for (row, x) in &self.rows {
            let (value, limit) = figures.get(*row).ok_or_else(|| anyhow!("the row {row} was not measured"))?;
            own.push((*x, *value));
            raw.extend(limit.map(|limit| (*x, limit)));
        }
        lines.push(Line { name: self.raw.to_owned(), color: PALE, width: 2, points: raw });
        lines.push(Line { name: "Heartline".to_owned(), color: OURS, width: 4, points: own });
        // A server tells its time in whole µs: what took none has no place on these axes.
        for line in &mut lines {
            line.points.retain(|(_, y)| *y > 0.0);
        }
        lines.retain(|line| !line.points.is_empty());
        Ok(lines)
    }

    fn draw(&self, path: &Path, figures: &Figures) -> Result<()> {
        let lines = self.lines(figures)?;
        let root = SVGBackend::new(path, SIZE).into_drawing_area();
        // A ground of its own: the page around it may be dark.
        root.fill(&WHITE)?;
        let (width, height) = (SIZE.0 as i32, SIZE.1 as i32);
        let [top, left, bottom, right] = MARGINS.map(|margin| margin as i32);
        text(&root, self.title, (left, 24), 20, INK, HPos::Left)?;
        text(&root, self.y.0, (left, 50), 13, PALE, HPos::Left)?;
        text(&root, self.x.0, ((left + width - right) / 2, height - bottom + 36), 13, PALE, HPos::Center)?;
        if !self.peers.is_empty() {
            for (i, line) in peers::VERSIONS.iter().enumerate() {
                text(&root, line, (left, height - 34 + 16 * i as i32), 11, PALE, HPos::Left)?;
            }
        }
        let all = || lines.iter().flat_map(|line| line.points.iter());
        let (xs, ys) = (range(all().map(|(x, _)| *x), 1.0), range(all().map(|(_, y)| *y), 1.4));
        let chart = ChartBuilder::on(&root)
            .margin_top(top)
            .margin_left(left)
            .margin_bottom(bottom)
            .margin_right(right)
            .build_cartesian_2d((xs.0..xs.1).log_scale(), (ys.0..ys.1).log_scale())?;
        let at = |x: f64, y: f64| chart.backend_coord(&(x, y));
        for x in ticks(xs) {
            root.draw(&PathElement::new(vec![at(x, ys.0), at(x, ys.1)], GRID.stroke_width(1)))?;
            let (x_at, y_at) = at(x, ys.0);
            text(&root, &(self.x.1)(x), (x_at, y_at + 14), 13, INK, HPos::Center)?;
        }
        for y in ticks(ys) {
            root.draw(&PathElement::new(vec![at(xs.0, y), at(xs.1, y)], GRID.stroke_width(1)))?;
            let (x_at, y_at) = at(xs.0, y);
            text(&root, &(self.y.1)(y), (x_at - 8, y_at), 13, INK, HPos::Right)?;
        }
        let mut names = Vec::new();
        for line in &lines {
            let points: Vec<(i32, i32)> = line.points.iter().map(|(x, y)| at(*x, *y)).collect();
            names.extend(points.last().map(|(_, y)| (*y, line)));
            for point in &points {
                root.draw(&Circle::new(*point, 1 + line.width as i32, line.color.filled()))?;
            }
            root.draw(&PathElement::new(points, line.color.stroke_width(line.width)))?;
        }
        // Each name stands at the end of its line, below the name before it.
        names.sort_by_key(|(y, _)| *y);
        let mut next = i32::MIN;
        for (y, line) in names {
            let y = y.max(next);
            next = y + APART;
            text(&root, &line.name, (width - right + 10, y), 13, line.color, HPos::Left)?;
        }
        root.present()?;
        Ok(())
    }
}

fn text(area: &Area<'_>, text: &str, at: (i32, i32), size: i32, color: RGBColor, side: HPos) -> Result<()> {
    // The size of a font counts its line here, that of an SVG its letters.
    let style = ("sans-serif", f64::from(size) * 1.24).into_font().color(&color).pos(Pos::new(side, VPos::Center));
    area.draw(&Text::new(text.to_owned(), at, style))?;
    Ok(())
}

/// From the least to the greatest, with some room. Little differences shall not look great: it is a decade at least.
fn range(values: impl Iterator<Item = f64>, room: f64) -> (f64, f64) {
    let (least, most) = values.fold((f64::MAX, f64::MIN), |(least, most), value| (least.min(value), most.max(value)));
    if most / least < 30.0 {
        return (10_f64.powf(least.log10().floor()), 10_f64.powf(most.log10().ceil()));
    }
    (least / room, most * room)
}

/// Powers of ten; twice and five times as much, too, where these are few.
fn ticks((least, most): (f64, f64)) -> Vec<f64> {
    let steps: &[f64] = if most / least > 3_000.0 || most / least == 1_000.0 { &[1.0] } else { &[1.0, 2.0, 5.0] };
    let decades = least.log10().floor() as i32..=most.log10().ceil() as i32;
    let all = decades.flat_map(|decade| steps.iter().map(move |step| step * 10_f64.powi(decade)));
    all.filter(|tick| (least * 0.999..=most * 1.001).contains(tick)).collect()
}

fn count(value: f64) -> String {
    match value {
        v if v >= 1e6 => format!("{}M", v / 1e6),
        v if v >= 1e3 => format!("{}k", v / 1e3),
        v => v.to_string(),
    }
}

/// Of µs.
fn time(us: f64) -> String {
    match us {
        us if us >= 1e6 => format!("{} s", us / 1e6),
        us if us >= 1e3 => format!("{} ms", us / 1e3),
        us => format!("{} µs", (us * 10.0).round() / 10.0),
    }
}
