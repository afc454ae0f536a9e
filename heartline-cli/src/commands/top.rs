//! `top`: tasks and workers full screen, updated every second.

use std::io::IsTerminal;
use std::time::Duration;

use heartline::inspect::describe::{Beat, beats, live_workers};
use heartline::inspect::text::{shown, span};
use heartline::{CrashDiagnoses, Diagnosis, FleetReport, TaskReport};
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Paragraph, Row, Table};
use ratatui::{DefaultTerminal, Frame};
use tokio::sync::mpsc;

use crate::failure::Failure;
use crate::session::Session;

/// How often the fleet is read.
const LOOK: Duration = Duration::from_secs(1);

/// An answer later than this marks the screen as out of date.
const LATE: Duration = Duration::from_secs(3);

/// The last stalls are read every tenth time.
const STALLS: u32 = 10;

/// The most diagnoses shown.
const SHOWN: usize = 6;

pub(super) async fn top(session: &Session) -> Result<(), Failure> {
    if !(std::io::stdout().is_terminal() && std::io::stdin().is_terminal()) {
        return Err(Failure::wrong("top needs a terminal; `heartline status` and `heartline tasks` do not"));
    }
    let first = session.inspector.fleet(None).await?;
    let (keys, mut pressed) = mpsc::channel(1);
    let mut terminal = ratatui::init();
    // The thread ends when the receiver is dropped, or with the process.
    std::thread::spawn(move || {
        while let Ok(read) = event::read() {
            if keys.blocking_send(read).is_err() {
                return;
            }
        }
    });
    let ended = show(session, &mut terminal, first, &mut pressed).await;
    ratatui::restore();
    ended
}

/// Draws until a key or a signal ends it, also while Redis does not answer.
async fn show(
    session: &Session,
    terminal: &mut DefaultTerminal,
    mut last: FleetReport,
    pressed: &mut mpsc::Receiver<Event>,
) -> Result<(), Failure> {
    let (mut before, mut problem) = (Vec::<TaskReport>::new(), String::new());
    let (mut crashes, mut looks) = (CrashDiagnoses::default(), 0);
    let mut stop = std::pin::pin!(heartline::shutdown_signal());
    loop {
        let is_due = looks % STALLS == 0;
        looks += 1;
        let mut looking = std::pin::pin!(async {
            tokio::time::sleep(LOOK).await;
            let seen = session.inspector.fleet(None).await?;
            if !is_due {
                return Ok((seen, None));
            }
            let recent = session.inspector.recent_stalls(&seen.tasks).await;
            let crashes = session.inspector.diagnose_crashes(&seen, &recent).await?;
            Ok((seen, Some(crashes)))
        });
        let mut late = std::pin::pin!(tokio::time::sleep(LOOK + LATE));
        let seen = loop {
            let diagnoses = last.diagnoses_with(&crashes);
            terminal.draw(|frame| draw(frame, &last, &before, &diagnoses, &problem))?;
            tokio::select! {
                () = &mut stop => return Ok(()),
                read = pressed.recv() => match read {
                    Some(read) if !ends(&read) => {}
                    _ => return Ok(()),
                },
                seen = &mut looking => break seen,
                () = &mut late, if problem.is_empty() => problem = format!("no answer from redis for over {}", span(LATE)),
            }
        };
        match seen {
            Ok((seen, newer)) => {
                before = std::mem::replace(&mut last, seen).tasks;
                crashes = newer.unwrap_or(crashes);
                problem.clear();
            }
            Err(
                Failure::Failed(what) | Failure::WrongType(what) | Failure::Unreachable(what) | Failure::Wrong(what),
            ) => {
                problem = what;
            }
            Err(e) => return Err(e),
        }
    }
}

/// Whether a key quits. In raw mode Ctrl-C is a key, too.
fn ends(read: &Event) -> bool {
    let Event::Key(key) = read else { return false };
    let is_interrupt = key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c');
    key.kind == KeyEventKind::Press && (is_interrupt || matches!(key.code, KeyCode::Char('q') | KeyCode::Esc))
}

fn draw(frame: &mut Frame<'_>, seen: &FleetReport, before: &[TaskReport], diagnoses: &[Diagnosis], problem: &str) {
    let mut lines: Vec<Line<'_>> = Vec::new();
    let known = || seen.checks.servers.iter().filter(|server| server.fault.is_none());
    let memory = known().map(|server| server.used_memory).sum::<u64>() as f64 / 1024.0 / 1024.0;
    let round_trip = known().map(|server| server.round_trip).max().unwrap_or_default().as_micros();
    let what = match &seen.checks.servers[..] {
        [server] => format!("{} {}", shown(&server.name), shown(&server.version)),
        servers => format!("{} of {} primaries", known().count(), servers.len()),
    };
    lines.push(Line::from(format!("heartline top: {what}, {memory:.1} MiB, {round_trip} µs round trip; q quits")));
    let bad = Style::new().fg(Color::Red);
    if !problem.is_empty() {
        lines.push(Line::styled(format!("out of date: {}", shown(problem)), bad));
    }
    for diagnosis in diagnoses.iter().take(SHOWN) {
        let task = diagnosis.task.as_deref().map_or_else(String::new, |task| format!("{task}: "));
        let (mark, style) = if diagnosis.is_risk() { ("!", bad) } else { ("?", Style::new()) };
        lines.push(Line::styled(shown(&format!("{mark} {task}{diagnosis}")), style));
    }
    if diagnoses.len() > SHOWN {
        lines.push(Line::from(format!("and {} more: `heartline status`", diagnoses.len() - SHOWN)));
    }
    let tasks = Constraint::Length(seen.tasks.len() as u16 + 2);
    let [head, tasks, workers] =
        Layout::vertical([Constraint::Length(lines.len() as u16 + 1), tasks, Constraint::Min(3)]).areas(frame.area());
    // One line is for the header, and one for the note if tasks are left out.
    let room = usize::from(tasks.height.saturating_sub(1));
    let shown_tasks = if seen.tasks.len() > room { room.saturating_sub(1) } else { seen.tasks.len() };
    frame.render_widget(Paragraph::new(lines), head);
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let names = ["TASK", "WAIT", "DELAY", "HELD", "SLOTS", "DONE", "FAILED", "OLDEST", "IN/S", "OUT/S", "WORKERS"];
    let widths = [22, 8, 8, 7, 7, 9, 8, 9, 8, 8, 8].map(Constraint::Length);
    let rows = seen.tasks[..shown_tasks].iter().map(|task| row(task, before));
    let more = seen.tasks.len() - shown_tasks;
    let rows = rows.chain((more > 0).then(|| Row::new([format!("and {more} more")])));
    frame.render_widget(Table::new(rows, widths).header(Row::new(names).style(bold)), tasks);
    let names = ["WORKER", "TASK", "HELD", "HEARTBEAT", "TOOK", "RECOVERED", ""];
    let widths = [32, 18, 9, 12, 8, 13, 14].map(Constraint::Length);
    let rows = beats(&seen.workers, seen.as_of).into_iter().map(|beat| {
        let style = if beat.is_at_risk { bad } else { Style::new() };
        let Beat { worker, task, held, slots, answered, took, deadline, verdict, .. } = beat;
        let cells =
            [shown(&worker), shown(&task), format!("{held}/{slots}"), answered, took, deadline, verdict.to_owned()];
        Row::new(cells).style(style)
    });
    frame.render_widget(Table::new(rows, widths).header(Row::new(names).style(bold)), workers);
}

fn row(task: &TaskReport, before: &[TaskReport]) -> Row<'static> {
    let counts = &task.counts;
    let rates = before.iter().find(|before| before.task == task.task).and_then(|before| task.rates_since(before));
    let rate = |rate: Option<f64>| rate.map_or_else(|| "-".to_owned(), |rate| format!("{rate:.0}"));
    let paused = if task.paused.is_some() { " (paused)" } else { "" };
    Row::new([
        format!("{}{paused}", shown(&task.task)),
        counts.waiting.to_string(),
        counts.delayed.to_string(),
        counts.held_total().to_string(),
        task.slots.to_string(),
        counts.completed.to_string(),
        counts.failed.to_string(),
        task.next_waiting_age.map_or_else(|| "-".to_owned(), span),
        rate(rates.map(|rates| rates.dispatched)),
        rate(rates.map(|rates| rates.ended)),
        live_workers(task),
    ])
}
