//! The error that a handler returns.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::cause::{Boxed, Cause, ErrorCarrier, Handled, Handling, causes, handled_by};
use super::chain::write_chain;
use crate::escape::{Escaped, cut};
use crate::job::failure::{Failure, codes};
use crate::limits::{self, MESSAGE_LIMIT};

/// Why a handler failed, and what should happen to the job.
///
/// Any error converts into it with `?`: `anyhow::Error`, boxed errors, text, and every [`std::error::Error`] that is
/// `Send + Sync`. For this reason it does not implement `Error` itself. By default it has the code `handler_error`, and the
/// job is retried as its [`RetryPolicy`](crate::RetryPolicy) says. [`Display`](fmt::Display) shows the error with all its
/// causes, outermost first.
///
/// In functions that return an `anyhow::Error`, `?` and `bail!` accept it. [`boxed`](JobError::boxed) turns it into a boxed error.
/// Both keep code, `fatal` and delays, also below a context. If a handler returns a [`Failure`](crate::Failure), its code is
/// kept, unless it is one of Heartline's own.
///
/// The message is stored in Redis and visible to everyone who can read the job: keep secrets out of it.
///
/// ```
/// use std::time::Duration;
/// use heartline::JobError;
///
/// async fn deliver(status: u16) -> Result<(), JobError> {
///     match status {
///         410 => Err(JobError::new("the webhook no longer exists").with_code("gone").fatal()),
///         429 => Err(JobError::new("too many requests").with_code("busy").retry_after(Duration::from_secs(30))),
///         500.. => Err("the receiving server failed")?,
///         _ => Ok(()),
///     }
/// }
/// ```
pub struct JobError(Handled);

/// [`Context::state`](crate::Context::state) has no value of the requested type.
///
/// If a handler returns it, the job fails without a retry, with the code `missing_state`: another run on this worker would fail too.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the worker has no data of the type {type_name}; add it with AppBuilder::state")]
pub struct MissingState {
    pub(crate) type_name: &'static str,
}

/// The shortest time that a task rests: a job that comes back at once would ask the other service in a loop.
const LEAST_REST: Duration = Duration::from_millis(100);

/// The longest time that a task rests.
const LONGEST_REST: Duration = Duration::from_secs(86_400);

/// The handling of the outermost error that has one.
fn handling_of(source: &Cause) -> Handling {
    #[cfg(feature = "anyhow")]
    if let Some(JobError(attached)) = source.attached::<JobError>() {
        // Its text already names the rejected code.
        return Handling { refused_code: None, ..attached.handling.clone() };
    }
    let handling = |e: &(dyn StdError + 'static)| {
        if e.is::<MissingState>() {
            return Some(Handling { code: Some(codes::MISSING_STATE.to_owned()), fatal: true, ..Handling::default() });
        }
        // The failure of another job: keep a code of its handler, but not one of Heartline's, which says nothing about this job.
        let code = e.downcast_ref::<Failure>().map(|failure| &failure.code).filter(|code| codes::is_own(code));
        let of_failure = code.map(|code| Handling { code: Some(code.clone()), ..Handling::default() });
        of_failure.or_else(|| handled_by(e).map(|handled| handled.handling.clone()))
    };
    causes(source.as_dyn()).find_map(handling).unwrap_or_default()
}

impl JobError {
    /// An error that counts as a failed attempt, with the code `handler_error`. If `e` or one of its causes was a `JobError`, its
    /// code, `fatal` and delays are kept.
    #[must_use]
    pub fn new<E: Into<Box<dyn StdError + Send + Sync>> + 'static>(e: E) -> JobError {
        JobError(Cause::new(e).unpacked().unwrap_or_else(|source| {
            let handling = handling_of(&source);
            Handled { source: Arc::new(source), handling }
        }))
    }

    fn with(self, handling: impl FnOnce(Handling) -> Handling) -> JobError {
        JobError(Handled { handling: handling(self.0.handling), ..self.0 })
    }

    /// Turns it into a boxed error, for functions that return those: `Err(JobError::new("gone").fatal().boxed())?`. Code, `fatal`
    /// and delays are kept.
    #[must_use]
    pub fn boxed(self) -> Box<dyn StdError + Send + Sync> {
        Box::new(ErrorCarrier(self.0))
    }

    /// Sets the code, which becomes [`Failure::code`](crate::Failure::code).
    ///
    /// A code has 1 to 64 characters of `a-z`, `0-9` and `_`, and must not be one of Heartline's own ([`codes`]). Any other
    /// becomes `handler_error`, and the message then names the rejected code.
    #[must_use]
    pub fn with_code(self, code: impl Into<String>) -> JobError {
        let code = code.into();
        let (code, refused_code) =
            if codes::is_own(&code) { (Some(code), None) } else { (None, Some(code.chars().take(64).collect())) };
        self.with(|handling| Handling { code, refused_code, ..handling })
    }

    /// Another attempt cannot succeed: the job fails now, even if attempts are left.
    #[must_use]
    pub fn fatal(self) -> JobError {
        self.with(|handling| Handling { fatal: true, ..handling })
    }

    /// The next attempt waits for `delay` instead of the task's backoff.
    ///
    /// The attempt counts as usual. If it was the last one, the job fails. A delay over 10 years counts as 10 years.
    #[must_use]
    pub fn retry_after(self, delay: Duration) -> JobError {
        self.with(|handling| Handling { retry_after: Some(delay.min(limits::LONGEST)), ..handling })
    }

    /// Runs the job again after `delay` without counting a failure: it uses no attempt and stores no error. For work that cannot
    /// be done now, for example because of another service's rate limit.
    ///
    /// [`Context::snoozed_count`](crate::Context::snoozed_count) is the number of snoozes of the job. Only the handler limits it.
    /// A delay over 10 years counts as 10 years.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use heartline::{Context, JobError};
    /// async fn deliver(ctx: Context, url: String) -> Result<(), JobError> {
    ///     # async fn post(url: &str) -> u16 { 429 }
    ///     match post(&url).await {
    ///         429 if ctx.snoozed_count() < 100 => Err(JobError::snooze(Duration::from_secs(5))),
    ///         429 => Err("still too many requests")?,
    ///         _ => Ok(()),
    ///     }
    /// }
    /// ```
    #[must_use]
    pub fn snooze(delay: Duration) -> JobError {
        JobError::new("snoozed").with(|handling| Handling { snooze: Some(delay.min(limits::LONGEST)), ..handling })
    }

    /// The delay of [`JobError::snooze`], if that made this error. Code, `fatal` and `retry_after` then have no effect.
    #[must_use]
    pub fn snooze_delay(&self) -> Option<Duration> {
        self.0.handling.snooze
    }

    /// Lets the key of the job rest, or the whole task if the job has no key (of a task with several partitions, the job's partition): for
    /// this time no worker starts a job of it. The job itself returns to the front of its queue, with no failure and no snooze counted.
    /// For a service that answers 429: one answer stops all workers. See [limits](crate::guide::limits).
    ///
    /// Jobs that run already continue, and so do those that another worker has claimed ahead; with `max_running` or a rate there are none. Of
    /// several rests the one that ends last counts. In a hook it is a failure of the hook, which runs again after this time. A job that is
    /// rate limited each time never ends: count its runs, and fail. The time is at least 100 ms, and at most 24 h.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use heartline::{Context, JobError};
    /// async fn deliver(ctx: Context, url: String) -> Result<(), JobError> {
    ///     # async fn post(url: &str) -> (u16, u64) { (429, 30) }
    ///     match post(&url).await {
    ///         (429, after) => Err(JobError::rate_limited(Duration::from_secs(after))),
    ///         _ => Ok(()),
    ///     }
    /// }
    /// ```
    #[must_use]
    pub fn rate_limited(rest: Duration) -> JobError {
        JobError::new("rate limited")
            .with(|handling| Handling { rest: Some(rest.clamp(LEAST_REST, LONGEST_REST)), ..handling })
    }

    /// The time of [`JobError::rate_limited`], if that made this error. Code, `fatal` and the delays then have no effect.
    #[must_use]
    pub fn rest(&self) -> Option<Duration> {
        self.0.handling.rest
    }

    /// The failure code. Defaults to `handler_error`.
    #[must_use]
    pub fn code(&self) -> &str {
        self.0.handling.code.as_deref().unwrap_or(codes::HANDLER_ERROR)
    }

    /// The first `T` among the error and its causes, outermost first.
    ///
    /// In an `anyhow::Error`, the outermost error and the contexts are only found with the feature `anyhow`, which is on by default.
    #[must_use]
    pub fn downcast_ref<T: StdError + Send + Sync + 'static>(&self) -> Option<&T> {
        self.0.source.find()
    }

    /// Whether it is fatal: no attempt follows.
    #[must_use]
    pub fn is_fatal(&self) -> bool {
        self.0.handling.fatal
    }

    /// The delay that replaces the backoff.
    #[must_use]
    pub fn retry_after_delay(&self) -> Option<Duration> {
        self.0.handling.retry_after
    }

    /// The text of `Display`, cut to 4 KiB at a character boundary.
    pub(crate) fn message(&self) -> String {
        let mut bounded = Bounded { text: String::new(), limit: MESSAGE_LIMIT };
        // If the text is full or a `Display` fails, the message is what was written before.
        let _ = self.write_chain(&mut bounded);
        bounded.text
    }

    fn write_chain(&self, out: &mut dyn fmt::Write) -> fmt::Result {
        if let Some(code) = &self.0.handling.refused_code {
            write!(out, "[code {code:?} is reserved or malformed] ")?;
        }
        write_chain(out, self.0.source.as_dyn())
    }
}

impl<E: Into<Boxed> + 'static> From<E> for JobError {
    fn from(e: E) -> Self {
        JobError::new(e)
    }
}

#[cfg(feature = "anyhow")]
impl From<JobError> for anyhow::Error {
    /// Code, `fatal` and delays are kept, also below a context.
    fn from(e: JobError) -> anyhow::Error {
        anyhow::Error::new(ErrorCarrier(e.0))
    }
}

impl fmt::Display for JobError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        // If a `Display` fails, show what was written before.
        let _ = self.write_chain(&mut text);
        Escaped(&text).fmt(f)
    }
}

impl fmt::Debug for JobError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Handling { fatal, retry_after, snooze, rest, .. } = &self.0.handling;
        f.debug_struct("JobError")
            .field("code", &self.code())
            .field("fatal", fatal)
            .field("retry_after", retry_after)
            .field("snooze", snooze)
            .field("rest", rest)
            .field("source", &self.0.source.as_dyn())
            .finish()
    }
}

/// How a user handles one type of error. `Err` returns the error unchanged, because it is of another type.
pub(crate) type ErrorMap = Arc<dyn Fn(JobError) -> Result<JobError, JobError> + Send + Sync>;

/// Builds the map of [`AppBuilder::on_error`](crate::AppBuilder::on_error).
pub(crate) fn error_map<T, F>(say: F) -> ErrorMap
where
    T: StdError + Send + Sync + 'static,
    F: Fn(&T, JobError) -> JobError + Send + Sync + 'static,
{
    Arc::new(move |error| {
        let source = Arc::clone(&error.0.source);
        match source.find::<T>() {
            Some(found) => Ok(say(found, error)),
            None => Err(error),
        }
    })
}

/// Applies the first map that knows the type of the error.
pub(crate) fn mapped(error: JobError, maps: &[ErrorMap]) -> JobError {
    maps.iter().try_fold(error, |error, map| map(error).map_or_else(Ok, Err)).unwrap_or_else(|mapped| mapped)
}

/// Accepts text up to the limit, then fails, which ends the formatting.
struct Bounded {
    text: String,
    limit: usize,
}

impl fmt::Write for Bounded {
    fn write_str(&mut self, s: &str) -> fmt::Result {
        let room = self.limit - self.text.len();
        if s.len() <= room {
            self.text.push_str(s);
            return Ok(());
        }
        self.text.push_str(cut(s, room));
        // Nothing may follow a cut, not even text that would fit.
        self.limit = self.text.len();
        Err(fmt::Error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{Error, Interrupted};
    use proptest::prelude::*;
    use std::io;

    #[derive(Debug, thiserror::Error)]
    #[error("{text}")]
    struct Link {
        text: &'static str,
        source: Option<Box<Link>>,
    }

    fn chain(texts: &[&'static str]) -> Link {
        let (text, rest) = texts.split_first().unwrap();
        let source = (!rest.is_empty()).then(|| Box::new(chain(rest)));
        Link { text, source }
    }

    #[test]
    fn everything_a_handler_returns_converts() {
        fn io() -> Result<(), JobError> {
            Err(io::Error::other("disk"))?;
            Ok(())
        }
        fn text() -> Result<(), JobError> {
            Err("text")?;
            Ok(())
        }
        fn any() -> Result<(), JobError> {
            Err(anyhow::anyhow!("inner").context("outer"))?;
            Ok(())
        }
        fn stop() -> Result<(), JobError> {
            Err(Interrupted::Lost)?;
            Ok(())
        }
        fn own() -> Result<(), JobError> {
            Err(Error::Closed)?;
            Ok(())
        }
        fn already() -> Result<(), JobError> {
            Err(JobError::new("x").fatal())?;
            Ok(())
        }
        assert_eq!(io().unwrap_err().message(), "disk");
        assert_eq!(text().unwrap_err().code(), "handler_error");
        assert_eq!(any().unwrap_err().to_string(), "outer: inner");
        assert_eq!(stop().unwrap_err().message(), "the lock of this job was lost");
        assert_eq!(own().unwrap_err().message(), "the tokio runtime shut down before the call finished");
        assert!(already().unwrap_err().is_fatal());
    }

    #[test]
    fn the_message_follows_the_chain_and_repeats_nothing() {
        assert_eq!(JobError::from(chain(&["a", "b", "c"])).message(), "a: b: c");
        assert_eq!(JobError::from(chain(&["a: b", "b", "c"])).message(), "a: b: c");
    }

    #[test]
    fn bad_codes_become_handler_error_and_stay_in_the_message() {
        let good = JobError::new("e").with_code("no_money");
        assert_eq!((good.code(), good.message().as_str()), ("no_money", "e"));
        let long = "x".repeat(65);
        for bad in ["", "Bad Code", "é", "worker_crashed", "timeout", "skipped", long.as_str()] {
            let error = JobError::new("e").with_code(bad);
            assert_eq!(error.code(), "handler_error");
            let head: String = bad.chars().take(64).collect();
            let wanted = format!("[code {head:?} is reserved or malformed] e");
            assert_eq!(error.message(), wanted);
        }
    }

    #[test]
    fn the_message_is_bounded_between_characters() {
        proptest!(|(head in 0usize..8, text in "[aé€😀]{1000,2500}")| {
            let text = format!("{}{text}", "x".repeat(head));
            let message = JobError::from(text.clone()).message();
            prop_assert!(message.len() <= MESSAGE_LIMIT);
            prop_assert!(message.len() + 3 >= MESSAGE_LIMIT.min(text.len()));
            prop_assert!(text.starts_with(&message));
        });
    }

    #[test]
    fn a_display_that_fails_does_not_panic() {
        #[derive(Debug)]
        struct Rude;
        impl fmt::Display for Rude {
            fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
                Err(fmt::Error)
            }
        }
        impl StdError for Rude {}
        assert_eq!(JobError::from(Rude).message(), "");
    }

    #[test]
    fn code_and_delay_are_kept_in_errors_of_other_types() {
        let minute = Duration::from_secs(60);
        let error = || JobError::new(chain(&["a", "b"])).with_code("Not One").retry_after(minute);
        let refused = "[code \"Not One\" is reserved or malformed] ";
        for (error, text) in [
            (JobError::from(error().boxed()), "a: b"),
            (JobError::from(anyhow::Error::from(error())), "a: b"),
            (JobError::from(anyhow::Error::from(error()).context("c")), "c: a: b"),
        ] {
            assert_eq!((error.message(), error.retry_after_delay()), (format!("{refused}{text}"), Some(minute)));
            assert_eq!(error.downcast_ref::<Link>().unwrap().text, "a");
            // The last call wins.
            assert_eq!(error.with_code("b").fatal().message(), text);
        }
        let shown = anyhow::Error::from(JobError::new("a").with_code("gone").fatal());
        assert_eq!(format!("{shown:#}"), "a: code gone, fatal");
    }

    #[test]
    fn flags_are_kept() {
        assert!(JobError::new("x").fatal().is_fatal());
        let error = JobError::new("x").retry_after(Duration::MAX);
        assert_eq!(error.retry_after_delay(), Some(crate::limits::LONGEST));
        assert!(!error.is_fatal());
        assert!(format!("{error:?}").contains("handler_error"));
    }
}
