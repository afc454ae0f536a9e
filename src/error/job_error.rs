//! What a handler returns when it does not return a value.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::cause::{Boxed, Cause, ErrorCarrier, Handled, Handling, causes, handled_by};
use super::chain::write_chain;
use crate::job::failure::{Failure, codes};
use crate::limits::{self, MESSAGE_LIMIT};
use crate::shown::{Shown, cut};

/// Why a handler failed, and what is to become of the job.
///
/// Any error converts into it with `?`: `anyhow::Error`, boxed errors, text, and every
/// [`std::error::Error`] that is `Send + Sync`. So that this works it does not implement `Error` itself. Without
/// more it has the code `handler_error` and the job is retried as its [`RetryPolicy`](crate::RetryPolicy) says.
/// [`Display`](fmt::Display) shows the error with all its causes, outermost first.
///
/// `?` and `bail!` take it in functions that return an `anyhow::Error`; [`boxed`](JobError::boxed) makes a boxed error of it. Code,
/// `fatal` and delays come through, also below a context. A [`Failure`](crate::Failure) that a handler returns keeps its code
/// if that is not one of Heartline's own.
///
/// The message is stored in Redis and seen by whoever reads the job: keep secrets out of it.
///
/// ```
/// use std::time::Duration;
/// use heartline::JobError;
///
/// async fn deliver(status: u16) -> Result<(), JobError> {
///     match status {
///         410 => Err(JobError::new("the customer is gone").with_code("gone").fatal()),
///         429 => Err(JobError::new("too many requests").with_code("busy").retry_after(Duration::from_secs(30))),
///         500.. => Err("the server of the customer failed")?,
///         _ => Ok(()),
///     }
/// }
/// ```
pub struct JobError(Handled);

/// What [`Context::data`](crate::Context::data) was asked for is not there.
///
/// As what a handler returns it is fatal, with the code `missing_data`: another run on this worker would miss it too.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the worker has no data of the type {type_name}; give it with AppBuilder::data")]
pub struct MissingData {
    pub(crate) type_name: &'static str,
}

/// What the outermost error that says anything of the job says of it.
fn handling_of(source: &Cause) -> Handling {
    #[cfg(feature = "anyhow")]
    if let Some(JobError(attached)) = source.attached::<JobError>() {
        // Its text names a code that was refused.
        return Handling { refused_code: None, ..attached.handling.clone() };
    }
    let handling = |e: &(dyn StdError + 'static)| {
        if e.is::<MissingData>() {
            return Some(Handling { code: Some(codes::MISSING_DATA.to_owned()), fatal: true, ..Handling::default() });
        }
        // How another job failed: a code of its handler is kept, one of Heartline's says nothing about this job.
        let code = e.downcast_ref::<Failure>().map(|failure| &failure.code).filter(|code| codes::is_own(code));
        let of_failure = code.map(|code| Handling { code: Some(code.clone()), ..Handling::default() });
        of_failure.or_else(|| handled_by(e).map(|handled| handled.handling.clone()))
    };
    causes(source.as_dyn()).find_map(handling).unwrap_or_default()
}

impl JobError {
    /// An error that counts as a failed attempt, with the code `handler_error`. Made of another error that a `JobError` was turned
    /// into, or of one that has such a cause, it has the code and all else that was said there.
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

    /// The error as a boxed one, for functions that return those: `Err(JobError::new("gone").fatal().boxed())?`. What it says of
    /// the job is kept.
    #[must_use]
    pub fn boxed(self) -> Box<dyn StdError + Send + Sync> {
        Box::new(ErrorCarrier(self.0))
    }

    /// The same with a code of your own, for whoever reads [`Failure::code`](crate::Failure::code).
    ///
    /// A code has 1 to 64 characters of `a-z`, `0-9` and `_`, and is none of Heartline's own
    /// ([`codes`]). Any other becomes `handler_error`, and the message then names the code that was wanted.
    #[must_use]
    pub fn with_code(self, code: impl Into<String>) -> JobError {
        let code = code.into();
        let (code, refused_code) =
            if codes::is_own(&code) { (Some(code), None) } else { (None, Some(code.chars().take(64).collect())) };
        self.with(|handling| Handling { code, refused_code, ..handling })
    }

    /// The same, but another attempt cannot mend it: the job fails now, whatever attempts are left.
    #[must_use]
    pub fn fatal(self) -> JobError {
        self.with(|handling| Handling { fatal: true, ..handling })
    }

    /// The same, but the next attempt is to wait `delay`, in place of the task's backoff.
    ///
    /// The attempt counts as usual; with none left the job fails. A delay over 10 years counts as 10 years.
    #[must_use]
    pub fn retry_after(self, delay: Duration) -> JobError {
        self.with(|handling| Handling { retry_after: Some(delay.min(limits::LONGEST)), ..handling })
    }

    /// Says that the job is to run again after `delay`, and that this run is no failure: no attempt is used, and nothing is stored
    /// as an error. For what cannot be done now, such as a rate limit of somebody else's.
    ///
    /// How often a job was put off is [`Context::snoozed_count`](crate::Context::snoozed_count); nothing bounds it but what a
    /// handler makes of that. A delay over 10 years counts as 10 years.
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

    /// The delay of one that is no failure, made by [`JobError::snooze`]. Whatever else is said of it has no effect.
    #[must_use]
    pub fn snooze_delay(&self) -> Option<Duration> {
        self.0.handling.snooze
    }

    /// The failure code: the one it was given, or `handler_error`.
    #[must_use]
    pub fn code(&self) -> &str {
        self.0.handling.code.as_deref().unwrap_or(codes::HANDLER_ERROR)
    }

    /// The first `T` among the error and its causes, outermost first.
    ///
    /// What an `anyhow::Error` was made of is found with the feature `anyhow`, which is on by default; without it, only
    /// what that names as a cause.
    #[must_use]
    pub fn downcast_ref<T: StdError + Send + Sync + 'static>(&self) -> Option<&T> {
        self.0.source.find()
    }

    /// Whether it is fatal: no attempt may follow.
    #[must_use]
    pub fn is_fatal(&self) -> bool {
        self.0.handling.fatal
    }

    /// The delay asked for in place of the backoff.
    #[must_use]
    pub fn retry_after_delay(&self) -> Option<Duration> {
        self.0.handling.retry_after
    }

    /// The text of `Display`, cut to 4 KiB between two characters.
    pub(crate) fn message(&self) -> String {
        let mut bounded = Bounded { text: String::new(), limit: MESSAGE_LIMIT };
        // Either the text is full or an error's own Display gave up: what was written so far is the message.
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
    /// What the error says of the job is kept, with any context around it.
    fn from(e: JobError) -> anyhow::Error {
        anyhow::Error::new(ErrorCarrier(e.0))
    }
}

impl fmt::Display for JobError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        // An error whose own Display gives up has said what it has said.
        let _ = self.write_chain(&mut text);
        Shown(&text).fmt(f)
    }
}

impl fmt::Debug for JobError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Handling { fatal, retry_after, snooze, .. } = &self.0.handling;
        f.debug_struct("JobError")
            .field("code", &self.code())
            .field("fatal", fatal)
            .field("retry_after", retry_after)
            .field("snooze", snooze)
            .field("source", &self.0.source.as_dyn())
            .finish()
    }
}

/// What a user says of one type of error.
pub(crate) type ErrorMap = Arc<dyn Fn(JobError) -> Result<JobError, JobError> + Send + Sync>;

/// Makes the map of [`AppBuilder::on_error`](crate::AppBuilder::on_error): `Ok` when the type was found.
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

/// The error as the first of the maps that knows its type makes it.
pub(crate) fn mapped(error: JobError, maps: &[ErrorMap]) -> JobError {
    maps.iter().try_fold(error, |error, map| map(error).map_or_else(Ok, Err)).unwrap_or_else(|mapped| mapped)
}

/// Takes text until the limit is reached, then refuses, which ends the formatting.
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
        // Nothing may follow a cut, not even what would fit.
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
        assert_eq!(own().unwrap_err().message(), "the runtime was shut down before the call was through");
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
    fn a_display_that_gives_up_does_not_panic() {
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
    fn what_was_said_is_kept_in_another_error() {
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
            // What is said last counts.
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
