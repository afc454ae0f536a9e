use super::PATIENCE;
use super::eventually::eventually;
use std::fmt::{Debug, Write};
use std::sync::mpsc;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::registry::{LookupSpan, SpanRef};

static CAPTURED: Mutex<Vec<String>> = Mutex::new(Vec::new());
/// Each entry is the parts of one warning.
static BREAKS_AT: Mutex<Vec<Vec<String>>> = Mutex::new(Vec::new());
/// Each entry is a moment of a span, and the parts of its text.
static BREAKS_AT_SPAN: Mutex<Vec<(At, Vec<String>)>> = Mutex::new(Vec::new());

/// The parts of one line, a sender that reports that it was logged, and a receiver that releases the thread.
type Hold = (Vec<String>, mpsc::Sender<()>, mpsc::Receiver<()>);

static HOLDS_AT: Mutex<Vec<Hold>> = Mutex::new(Vec::new());

/// A moment of a span at which a subscriber is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    New,
    Enter,
    Exit,
}

/// The warnings and errors that any thread of this process logged since the value was made.
///
/// Tests of one process run in parallel and see each other's warnings: search for the name of a task that only one
/// uses.
pub struct Warnings {
    start: usize,
}

impl Warnings {
    /// Starts to listen. The first call installs the subscriber of this process.
    pub fn capture() -> Self {
        static INSTALLED: OnceLock<()> = OnceLock::new();
        INSTALLED.get_or_init(|| {
            let subscriber = tracing_subscriber::registry().with(Capture);
            tracing::subscriber::set_global_default(subscriber).expect("another subscriber is installed");
        });
        Self { start: captured().len() }
    }

    /// One line per event: level, target, message and fields, then each span with its fields from the innermost out.
    pub fn all(&self) -> Vec<String> {
        let is_warning = |line: &String| line.starts_with("WARN") || line.starts_with("ERROR");
        self.lines().into_iter().filter(is_warning).collect()
    }

    /// The same with events at level INFO.
    pub fn lines(&self) -> Vec<String> {
        captured()[self.start..].to_vec()
    }

    /// The thread that logs the next event, of any level, with all `parts` panics, as under a broken subscriber.
    pub fn break_at(&self, parts: &[&str]) {
        let parts = parts.iter().map(|part| (*part).to_owned()).collect();
        BREAKS_AT.lock().unwrap_or_else(PoisonError::into_inner).push(parts);
    }

    /// Holds the thread that logs the next event, of any level, with all `parts`, like a log that is not read.
    /// Dropping the returned value releases it.
    pub fn hold_at(&self, parts: &[&str]) -> HeldLine {
        let parts = parts.iter().map(|part| (*part).to_owned()).collect();
        let ((tell, reached), (release, released)) = (mpsc::channel(), mpsc::channel());
        HOLDS_AT.lock().unwrap_or_else(PoisonError::into_inner).push((parts, tell, released));
        HeldLine { reached, _release: release }
    }

    /// The thread that makes, enters or leaves the next span with all `parts` in its name and fields panics at that.
    pub fn break_at_span(&self, at: At, parts: &[&str]) {
        let parts = parts.iter().map(|part| (*part).to_owned()).collect();
        BREAKS_AT_SPAN.lock().unwrap_or_else(PoisonError::into_inner).push((at, parts));
    }

    /// Waits for a line of [`Warnings::lines`] that contains all `parts`, and returns it; panics at the deadline.
    pub async fn wait_for(&self, parts: &[&str], deadline: Duration) -> String {
        let what = format!("a warning with {parts:?}");
        eventually(&what, deadline, async || {
            self.lines().into_iter().find(|line| parts.iter().all(|part| line.contains(part)))
        })
        .await
    }
}

/// A line of the log whose thread is held, from [`Warnings::hold_at`].
#[must_use]
pub struct HeldLine {
    reached: mpsc::Receiver<()>,
    _release: mpsc::Sender<()>,
}

impl HeldLine {
    /// Waits until a thread has arrived there; panics if none does.
    pub async fn reached(&self) {
        eventually("a thread logs the line", PATIENCE, async || self.reached.try_recv().is_ok()).await;
    }
}

fn captured() -> MutexGuard<'static, Vec<String>> {
    CAPTURED.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Capture;

/// The name of a span and its fields.
fn shown<'a, S: LookupSpan<'a>>(span: &SpanRef<'a, S>) -> String {
    let extensions = span.extensions();
    let fields = extensions.get::<Fields>().map_or("", |fields| fields.0.trim_start());
    format!("{}{{{fields}}}", span.name())
}

fn break_at_span<S: Subscriber + for<'a> LookupSpan<'a>>(at: At, id: &Id, context: &Context<'_, S>) {
    let mut all = BREAKS_AT_SPAN.lock().unwrap_or_else(PoisonError::into_inner);
    if all.iter().all(|(moment, _)| *moment != at) {
        return;
    }
    let Some(text) = context.span(id).map(|span| shown(&span)) else { return };
    let found = all.iter().position(|(moment, parts)| *moment == at && parts.iter().all(|part| text.contains(part)));
    let breaks_at = found.map(|found| all.swap_remove(found));
    drop(all);
    assert!(breaks_at.is_none(), "the subscriber breaks at {breaks_at:?}");
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Capture {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        if let Some(span) = context.span(id) {
            span.extensions_mut().insert(fields);
        }
        break_at_span(At::New, id, &context);
    }

    fn on_enter(&self, id: &Id, context: Context<'_, S>) {
        break_at_span(At::Enter, id, &context);
    }

    fn on_exit(&self, id: &Id, context: Context<'_, S>) {
        break_at_span(At::Exit, id, &context);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        if let Some(span) = context.span(id)
            && let Some(fields) = span.extensions_mut().get_mut::<Fields>()
        {
            values.record(fields);
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        // Levels compare by verbosity: a warning is more than an error.
        let is_kept = *event.metadata().level() <= Level::INFO;
        let is_empty = BREAKS_AT.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
            && HOLDS_AT.lock().unwrap_or_else(PoisonError::into_inner).is_empty();
        if !is_kept && is_empty {
            return;
        }
        let mut fields = Fields::default();
        event.record(&mut fields);
        let mut line = format!("{} {}:{}", event.metadata().level(), event.metadata().target(), fields.0);
        for span in context.event_scope(event).into_iter().flatten() {
            write!(line, " in {}", shown(&span)).unwrap();
        }
        let breaks_at = {
            let mut all = BREAKS_AT.lock().unwrap_or_else(PoisonError::into_inner);
            let at = all.iter().position(|parts| parts.iter().all(|part| line.contains(part.as_str())));
            at.map(|at| all.swap_remove(at))
        };
        let held = {
            let mut all = HOLDS_AT.lock().unwrap_or_else(PoisonError::into_inner);
            let at = all.iter().position(|(parts, ..)| parts.iter().all(|part| line.contains(part.as_str())));
            at.map(|at| all.swap_remove(at))
        };
        if is_kept {
            captured().push(line);
        }
        if let Some((_, tell, released)) = held {
            // The test may no longer wait.
            let _ = tell.send(());
            let _ = released.recv();
        }
        assert!(breaks_at.is_none(), "the subscriber breaks at {breaks_at:?}");
    }
}

/// Fields as text: ` message name=value name=value`.
#[derive(Default)]
struct Fields(String);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        match field.name() {
            "message" => write!(self.0, " {value:?}"),
            name => write!(self.0, " {name}={value:?}"),
        }
        .unwrap();
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        write!(self.0, " {}={value}", field.name()).unwrap();
    }
}
