//! Prints tables and lines for people, and JSON documents for programs.

use std::cell::RefCell;
use std::io::{self, IsTerminal, Write};

use comfy_table::{ColumnConstraint, ContentArrangement, Table, Width, presets};
use serde::Serialize;

use heartline::inspect::text::{placed, quoted, shown};

use crate::args::Global;
use crate::failure::Failure;

/// The longest word that a table never breaks. Most ids of jobs and workers are shorter.
const WORD: usize = 48;

tokio::task_local! {
    /// What the commands of this task have printed, instead of printing it.
    static CAPTURED: RefCell<String>;
}

/// Runs a command. Returns how it ended, and what it would have printed on standard output.
#[cfg(feature = "mcp")]
pub(crate) async fn captured<T>(command: impl Future<Output = T>) -> (T, String) {
    let run = async {
        let ended = command.await;
        (ended, CAPTURED.with(RefCell::take))
    };
    CAPTURED.scope(RefCell::default(), run).await
}

/// The output of a command.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Output {
    /// Whether `--json` is set.
    pub(crate) is_json: bool,
    /// The options for server and prefix, added to the commands that messages suggest.
    place: &'static str,
}

impl Output {
    pub(crate) fn of(global: &Global) -> Output {
        let redis = match &global.redis {
            Some(_) if global.shows_password() => Some("URL".to_owned()),
            redis => redis.as_deref().map(quoted),
        };
        // The next command reads the environment, too.
        let is_told = global.prefix.is_some() && std::env::var("HEARTLINE_PREFIX").ok() == global.prefix;
        let prefix = global.prefix.as_deref().filter(|_| !is_told).map(quoted);
        let options = [("--redis", redis), ("--prefix", prefix)];
        let given = options.into_iter().filter_map(|(name, value)| Some(format!("{name} {}", value?)));
        // Leaked once per process.
        Output { is_json: global.json, place: given.collect::<Vec<_>>().join(" ").leak() }
    }

    /// Prints one document on several lines.
    pub(crate) fn json(self, value: &impl Serialize) -> Result<(), Failure> {
        // A program that captures the output needs no lines.
        if CAPTURED.try_with(|_| ()).is_ok() {
            self.json_line(value)
        } else {
            self.verbatim(serde_json::to_string_pretty(value)?)
        }
    }

    /// The output for people. With `--json`, prints the document instead, and returns `None`.
    pub(crate) fn for_person(self, document: &impl Serialize) -> Result<Option<Output>, Failure> {
        if self.is_json { self.json(document).map(|()| None) } else { Ok(Some(self)) }
    }

    /// Prints one of many documents on one line.
    pub(crate) fn json_line(self, value: &impl Serialize) -> Result<(), Failure> {
        self.verbatim(serde_json::to_string(value)?)
    }

    /// Prints a line for people.
    pub(crate) fn line(self, line: impl AsRef<str>) -> Result<(), Failure> {
        self.verbatim(placed(line.as_ref(), self.place))
    }

    /// Prints a line unchanged: suggested commands in it are not completed.
    pub(crate) fn verbatim(self, line: impl AsRef<str>) -> Result<(), Failure> {
        let capture = |kept: &RefCell<String>| kept.borrow_mut().push_str(line.as_ref());
        if CAPTURED.try_with(capture).is_ok() {
            return Ok(());
        }
        let mut out = io::stdout().lock();
        writeln!(out, "{}", line.as_ref())?;
        Ok(out.flush()?)
    }

    /// Prints a line on standard error, unless `--json` is set.
    pub(crate) fn hint(self, line: impl AsRef<str>) {
        if !self.is_json {
            self.say(line);
        }
    }

    /// Prints a line on standard error.
    pub(crate) fn say(self, line: impl AsRef<str>) {
        say!("{}", placed(line.as_ref(), self.place));
    }

    /// Prints the error of a failure, unless the command has reported it.
    pub(crate) fn error(self, failure: &Failure) {
        if !failure.text().is_empty() {
            self.say(format!("error: {}", shown(failure.text())));
        }
    }

    /// Prints a table. On a terminal its lines wrap.
    pub(crate) fn table(self, columns: &[&str], rows: Vec<Vec<String>>) -> Result<(), Failure> {
        let mut table = Table::new();
        table.load_preset(presets::NOTHING).set_header(columns);
        if io::stdout().is_terminal() {
            table.set_content_arrangement(ContentArrangement::Dynamic);
        }
        // Never break a word, since a broken id cannot be copied, even if lines get wider than the terminal.
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

    /// Prints one fact per line with its name, and leaves out those that are `None`.
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
