//! What a command prints: a table or lines for people, one JSON document for programs.

use std::io::{self, IsTerminal, Write};

use comfy_table::{ColumnConstraint, ContentArrangement, Table, Width, presets};
use serde::Serialize;

use heartline::inspect::text::{placed, quoted, shown};

use crate::args::Global;
use crate::failure::Failure;

/// A longer word is no id of a job or a worker as they mostly are, and may be cut.
const WORD: usize = 48;

/// Where a command prints to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Output {
    /// Whether a program reads it.
    pub(crate) is_json: bool,
    /// The options that say on which server and under which prefix this command looks: the commands that it names look there too.
    place: &'static str,
}

impl Output {
    /// As the options of the command say.
    pub(crate) fn of(global: &Global) -> Output {
        let redis = match &global.redis {
            Some(_) if global.tells_password() => Some("URL".to_owned()),
            redis => redis.as_deref().map(quoted),
        };
        // What the environment says it says to the next command, too.
        let is_told = global.prefix.is_some() && std::env::var("HEARTLINE_PREFIX").ok() == global.prefix;
        let prefix = global.prefix.as_deref().filter(|_| !is_told).map(quoted);
        let options = [("--redis", redis), ("--prefix", prefix)];
        let given = options.into_iter().filter_map(|(name, value)| Some(format!("{name} {}", value?)));
        // Once in a process.
        Output { is_json: global.json, place: given.collect::<Vec<_>>().join(" ").leak() }
    }

    /// One document, on as many lines as it takes.
    pub(crate) fn json(self, value: &impl Serialize) -> Result<(), Failure> {
        let mut out = io::stdout().lock();
        serde_json::to_writer_pretty(&mut out, value)?;
        writeln!(out)?;
        Ok(out.flush()?)
    }

    /// One of many documents, on a line of its own.
    pub(crate) fn json_line(self, value: &impl Serialize) -> Result<(), Failure> {
        let mut out = io::stdout().lock();
        serde_json::to_writer(&mut out, value)?;
        writeln!(out)?;
        Ok(out.flush()?)
    }

    /// A line for people.
    pub(crate) fn line(self, line: impl AsRef<str>) -> Result<(), Failure> {
        self.verbatim(placed(line.as_ref(), self.place))
    }

    /// A line with what others wrote, as they wrote it.
    pub(crate) fn verbatim(self, line: impl AsRef<str>) -> Result<(), Failure> {
        let mut out = io::stdout().lock();
        writeln!(out, "{}", line.as_ref())?;
        Ok(out.flush()?)
    }

    /// A line beside the result, for people alone.
    pub(crate) fn hint(self, line: impl AsRef<str>) {
        if !self.is_json {
            self.say(line);
        }
    }

    /// A line beside the result, whoever reads that.
    pub(crate) fn say(self, line: impl AsRef<str>) {
        say!("{}", placed(line.as_ref(), self.place));
    }

    /// The error line of a failure, unless the command has reported it itself.
    pub(crate) fn error(self, failure: &Failure) {
        if let Failure::Wrong(what) | Failure::Failed(what) | Failure::WrongType(what) | Failure::Away(what) = failure {
            self.say(format!("error: {}", shown(what)));
        }
    }

    /// Rows under the names of their columns. A terminal gets lines as wide as it is, anything else lines as wide as they are.
    pub(crate) fn table(self, columns: &[&str], rows: Vec<Vec<String>>) -> Result<(), Failure> {
        let mut table = Table::new();
        table.load_preset(presets::NOTHING).set_header(columns);
        if io::stdout().is_terminal() {
            table.set_content_arrangement(ContentArrangement::Dynamic);
        }
        // An id that is cut in two cannot be copied: no word is, also where lines are wider than the terminal then.
        let longest = |text: &str| text.split(' ').map(|word| word.chars().count()).max().unwrap_or(0);
        let mut widest: Vec<usize> = columns.iter().map(|name| longest(name)).collect();
        for row in &rows {
            for (width, cell) in widest.iter_mut().zip(row) {
                *width = longest(cell).min(WORD).max(*width);
            }
        }
        table.add_rows(rows);
        for (column, width) in table.column_iter_mut().zip(widest) {
            column.set_padding((0, 2));
            let least = u16::try_from(width + 2).unwrap_or(u16::MAX);
            column.set_constraint(ColumnConstraint::LowerBoundary(Width::Fixed(least)));
        }
        for line in table.lines() {
            self.line(line.trim_end())?;
        }
        Ok(())
    }

    /// Facts under each other, each with its name; those that are not known are left out.
    pub(crate) fn facts(self, facts: Vec<(&str, Option<String>)>) -> Result<(), Failure> {
        let widest = facts.iter().filter(|(_, fact)| fact.is_some()).map(|(name, _)| name.len()).max().unwrap_or(0);
        for (name, fact) in facts {
            if let Some(fact) = fact {
                self.line(format!("{name:widest$}  {fact}"))?;
            }
        }
        Ok(())
    }
}
