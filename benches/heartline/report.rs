//! Prints the results: one JSON object per line for programs, then a table for people.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use serde_json::json;

use crate::server::Counted;

/// The median of several runs, with their minimum and maximum.
#[derive(Clone, Copy, Debug)]
pub struct Stat {
    pub median: f64,
    pub min: f64,
    pub max: f64,
    pub runs: usize,
}

impl Stat {
    /// With an even number of runs, the median is the lower of the two middle values, so that it was measured.
    pub fn of(mut values: Vec<f64>) -> Stat {
        values.sort_by(f64::total_cmp);
        let runs = values.len();
        let at = |i: usize| values.get(i).copied().unwrap_or(f64::NAN);
        Stat { median: at(runs.saturating_sub(1) / 2), min: at(0), max: at(runs.saturating_sub(1)), runs }
    }

    pub fn median_of(values: Vec<f64>) -> f64 {
        Stat::of(values).median
    }
}

/// The sample that is greater than this percentage of all samples.
pub fn percentile(samples: &[f64], percent: usize) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get((sorted.len() * percent / 100).min(sorted.len().saturating_sub(1))).copied().unwrap_or(f64::NAN)
}

/// The costs of a job on the server: heading and JSON key. They hardly depend on the load of the machine.
const COSTS: [(&str, &str); 4] = [
    ("cmds/job", "commands_per_job"),
    ("cpu µs/job", "cpu_us_per_job"),
    ("script µs/job", "script_us_per_job"),
    ("jobs/call", "jobs_per_call"),
];
type Costs = [Vec<f64>; 4];

/// The runs of a row that measures jobs per second: ours, and those of the raw limit.
#[derive(Clone, Debug, Default)]
pub struct Runs {
    rates: Vec<f64>,
    raw_rates: Vec<f64>,
    costs: Costs,
    raw_costs: Costs,
}

impl Runs {
    pub fn own(&mut self, n: usize, took: Duration, counted: &Counted) {
        self.rates.push(n as f64 / took.as_secs_f64());
        add_costs(&mut self.costs, n, counted);
    }

    pub fn raw(&mut self, n: usize, took: Duration, counted: &Counted) {
        self.raw_rates.push(n as f64 / took.as_secs_f64());
        add_costs(&mut self.raw_costs, n, counted);
    }

    pub fn row(self, name: &str) -> Row {
        let costs = (self.costs.map(Stat::median_of), self.raw_costs.map(Stat::median_of));
        Row { costs: Some(costs), ..Row::new(name, self.rates, "jobs/s").raw(self.raw_rates) }
    }
}

fn add_costs(costs: &mut Costs, n: usize, counted: &Counted) {
    let n = n as f64;
    let values = [counted.commands() / n, counted.cpu_us() / n, counted.script_us() / n, n / counted.script_calls()];
    for (list, value) in costs.iter_mut().zip(values) {
        list.push(value);
    }
}

/// One line of the table.
#[derive(Clone, Debug)]
pub struct Row {
    pub bench: String,
    value: Stat,
    unit: &'static str,
    raw: Option<Stat>,
    /// In the order of `COSTS`: ours, and those of the raw limit.
    costs: Option<([f64; 4], [f64; 4])>,
    must: String,
    met: Option<bool>,
    note: String,
}

impl Row {
    pub fn new(bench: impl Into<String>, values: Vec<f64>, unit: &'static str) -> Row {
        let (must, note) = (String::new(), String::new());
        Row { bench: bench.into(), value: Stat::of(values), unit, raw: None, costs: None, must, met: None, note }
    }

    /// The raw limit, measured in the same run on the same server.
    pub fn raw(mut self, values: Vec<f64>) -> Row {
        self.raw = Some(Stat::of(values));
        self
    }

    /// The budget, and whether the median (and the ratio) meets it.
    pub fn must(mut self, must: impl Into<String>, met: impl Fn(f64, f64) -> bool) -> Row {
        self.must = must.into();
        self.met = Some(met(self.value.median, self.ratio().unwrap_or(f64::NAN)));
        self
    }

    /// Describes the raw limit, and adds remarks.
    pub fn note(mut self, note: impl Into<String>) -> Row {
        self.note = note.into();
        self
    }

    fn ratio(&self) -> Option<f64> {
        self.raw.filter(|raw| raw.median > 0.0).map(|raw| self.value.median / raw.median)
    }

    /// The cells of the table. The costs follow the ratio.
    fn cells(&self) -> Vec<String> {
        let met = match self.met {
            Some(true) => "yes",
            Some(false) => "NO",
            None => "",
        };
        let mut cells = vec![
            self.bench.clone(),
            format!("{} {}", shown(self.value.median), self.unit),
            format!("{} – {}", shown(self.value.min), shown(self.value.max)),
            self.raw.map(|raw| shown(raw.median)).unwrap_or_default(),
            self.ratio().map(|ratio| format!("{ratio:.2}")).unwrap_or_default(),
        ];
        for i in 0..COSTS.len() {
            let cell = self.costs.map(|(own, raw)| format!("{} / {}", shown(own[i]), shown(raw[i])));
            cells.push(cell.unwrap_or_default());
        }
        cells.extend([self.must.clone(), met.to_owned(), self.note.clone()]);
        cells
    }

    /// The row for programs.
    pub fn json(&self) -> serde_json::Value {
        let mut json = json!({
            "bench": self.bench,
            "value": rounded(self.value.median),
            "unit": self.unit,
            "raw": self.raw.map(|raw| rounded(raw.median)),
            "ratio": self.ratio().map(rounded),
            "min": rounded(self.value.min),
            "max": rounded(self.value.max),
            "runs": self.value.runs,
            "met": self.met,
        });
        if let Some((own, raw)) = &self.costs {
            for (i, (_, key)) in COSTS.iter().enumerate() {
                json[*key] = rounded(own[i]).into();
                json[format!("raw_{key}")] = rounded(raw[i]).into();
            }
        }
        json
    }
}

/// Five significant digits.
pub fn rounded(value: f64) -> f64 {
    format!("{value:.4e}").parse().unwrap_or(value)
}

/// A number rounded for people: 123,456 / 123 / 12.3 / 0.012.
pub fn shown(value: f64) -> String {
    let size = value.abs();
    if size >= 1000.0 {
        let digits = format!("{size:.0}");
        let mut text = String::new();
        for (i, digit) in digits.chars().enumerate() {
            if i > 0 && (digits.len() - i) % 3 == 0 {
                text.push(',');
            }
            text.push(digit);
        }
        text
    } else if size >= 100.0 {
        format!("{value:.0}")
    } else if size >= 1.0 || size == 0.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.3}")
    }
}

/// Prints one JSON object per row.
pub fn print_json(rows: &[Row]) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    rows.iter().try_for_each(|row| writeln!(out, "{}", row.json()))?;
    out.flush()
}

/// Prints the table. Costs are written as ours / raw limit. Empty columns are omitted.
pub fn print_table(rows: &[Row]) -> std::io::Result<()> {
    let before = ["bench", "value (median)", "min – max", "raw", "ratio"];
    let after = ["must", "met", "raw limit, notes"];
    let head = before.into_iter().chain(COSTS.map(|(head, _)| head)).chain(after).map(str::to_owned).collect();
    let cells: Vec<Vec<String>> = std::iter::once(head).chain(rows.iter().map(Row::cells)).collect();
    let columns = (0..cells[0].len()).filter(|c| cells.iter().skip(1).any(|row| !row[*c].is_empty()));
    let width = |c: usize| cells.iter().map(|row| row[c].chars().count()).max().unwrap_or(0);
    let columns: Vec<(usize, usize)> = columns.map(|c| (c, width(c))).collect();
    let numbers = 1..5 + COSTS.len();
    let mut out = std::io::stdout().lock();
    for (i, row) in cells.iter().enumerate() {
        let mut line = String::new();
        for (c, width) in &columns {
            let cell = &row[*c];
            let gap = " ".repeat(width.saturating_sub(cell.chars().count()));
            // Numbers are aligned to the right, text to the left.
            if numbers.contains(c) {
                line.push_str(&format!("{gap}{cell}  "));
            } else {
                line.push_str(&format!("{cell}{gap}  "));
            }
        }
        writeln!(out, "{}", line.trim_end())?;
        if i == 0 {
            writeln!(out, "{}", "-".repeat(columns.iter().map(|(_, width)| width + 2).sum()))?;
        }
    }
    out.flush()
}

/// Shows on stderr what is being measured. On a terminal, the next line overwrites it.
pub fn progress(text: &str) {
    let mut err = std::io::stderr().lock();
    // A failed write of the progress is ignored.
    let _ = if err.is_terminal() { write!(err, "\r\x1b[2K{text}") } else { writeln!(err, "{text}") };
    let _ = err.flush();
}

/// Prints a line on stderr that is not overwritten.
pub fn say(text: &str) {
    if std::io::stderr().is_terminal() {
        progress("");
    }
    eprintln!("{text}");
}
