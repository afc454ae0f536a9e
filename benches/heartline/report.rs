//! What was measured, as a table for people and a JSON object a line for machines.

use std::io::{IsTerminal, Write};

use serde_json::json;

/// The median of several runs, with the least and the greatest of them.
#[derive(Clone, Copy, Debug)]
pub struct Stat {
    pub median: f64,
    pub min: f64,
    pub max: f64,
    pub runs: usize,
}

impl Stat {
    /// Of an even number of runs the median is the lower middle one: a value that was measured.
    pub fn of(mut values: Vec<f64>) -> Stat {
        values.sort_by(f64::total_cmp);
        let runs = values.len();
        let at = |i: usize| values.get(i).copied().unwrap_or(f64::NAN);
        Stat { median: at(runs.saturating_sub(1) / 2), min: at(0), max: at(runs.saturating_sub(1)), runs }
    }
}

/// One line of the table.
#[derive(Clone, Debug)]
pub struct Row {
    pub bench: String,
    value: Stat,
    unit: &'static str,
    raw: Option<Stat>,
    must: String,
    met: Option<bool>,
    note: String,
}

impl Row {
    pub fn new(bench: impl Into<String>, values: Vec<f64>, unit: &'static str) -> Row {
        let (must, note) = (String::new(), String::new());
        Row { bench: bench.into(), value: Stat::of(values), unit, raw: None, must, met: None, note }
    }

    /// The limit, measured in the same run on the same server.
    pub fn raw(mut self, values: Vec<f64>) -> Row {
        self.raw = Some(Stat::of(values));
        self
    }

    /// The budget, and whether the median of the values (and the ratio) keeps it.
    pub fn must(mut self, must: impl Into<String>, met: impl Fn(f64, f64) -> bool) -> Row {
        self.must = must.into();
        self.met = Some(met(self.value.median, self.ratio().unwrap_or(f64::NAN)));
        self
    }

    /// What the raw limit is, and what else is worth a word.
    pub fn note(mut self, note: impl Into<String>) -> Row {
        self.note = note.into();
        self
    }

    fn ratio(&self) -> Option<f64> {
        self.raw.map(|raw| self.value.median / raw.median)
    }

    fn cells(&self) -> [String; 8] {
        let met = match self.met {
            Some(true) => "yes",
            Some(false) => "NO",
            None => "",
        };
        [
            self.bench.clone(),
            format!("{} {}", shown(self.value.median), self.unit),
            format!("{} – {}", shown(self.value.min), shown(self.value.max)),
            self.raw.map(|raw| shown(raw.median)).unwrap_or_default(),
            self.ratio().map(|ratio| format!("{ratio:.2}")).unwrap_or_default(),
            self.must.clone(),
            met.to_owned(),
            self.note.clone(),
        ]
    }

    fn json(&self) -> serde_json::Value {
        json!({
            "bench": self.bench,
            "value": rounded(self.value.median),
            "unit": self.unit,
            "raw": self.raw.map(|raw| rounded(raw.median)),
            "ratio": self.ratio().map(rounded),
            "min": rounded(self.value.min),
            "max": rounded(self.value.max),
            "runs": self.value.runs,
            "met": self.met,
        })
    }
}

/// Five significant digits.
fn rounded(value: f64) -> f64 {
    format!("{value:.4e}").parse().unwrap_or(value)
}

/// Four digits are enough to read: 123,456 / 12.3 / 0.0123.
fn shown(value: f64) -> String {
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

/// Prints the table, then a JSON object a row.
pub fn print(rows: &[Row]) -> std::io::Result<()> {
    let head = ["bench", "value (median)", "least – most", "raw", "ratio", "must", "met", "raw limit, notes"];
    let cells: Vec<[String; 8]> = std::iter::once(head.map(str::to_owned)).chain(rows.iter().map(Row::cells)).collect();
    let widths: Vec<usize> =
        (0..8).map(|c| cells.iter().map(|row| row[c].chars().count()).max().unwrap_or(0)).collect();
    let mut out = std::io::stdout().lock();
    for (i, row) in cells.iter().enumerate() {
        let mut line = String::new();
        for (c, cell) in row.iter().enumerate() {
            let gap = " ".repeat(widths[c].saturating_sub(cell.chars().count()));
            // Numbers to the right, words to the left.
            if (1..=4).contains(&c) {
                line.push_str(&format!("{gap}{cell}  "));
            } else {
                line.push_str(&format!("{cell}{gap}  "));
            }
        }
        writeln!(out, "{}", line.trim_end())?;
        if i == 0 {
            writeln!(out, "{}", "-".repeat(widths.iter().sum::<usize>() + 14))?;
        }
    }
    writeln!(out)?;
    for row in rows {
        writeln!(out, "{}", row.json())?;
    }
    out.flush()
}

/// One line on stderr that says what is being measured; it is overwritten on a terminal.
pub fn progress(text: &str) {
    let mut err = std::io::stderr().lock();
    // Progress that cannot be written is no reason to stop.
    let _ = if err.is_terminal() { write!(err, "\r\x1b[2K{text}") } else { writeln!(err, "{text}") };
    let _ = err.flush();
}

/// Takes the progress line away.
pub fn progress_done() {
    if std::io::stderr().is_terminal() {
        progress("");
    }
}
