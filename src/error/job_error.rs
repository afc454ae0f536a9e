//! What a handler returns when it does not return a value.

use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

use super::chain::write_chain;
use crate::job::{MESSAGE_LIMIT, codes};
use crate::options::validate;
use crate::shown::{Shown, cut};

/// Why a handler failed.
///
/// Any error converts into it with `?`: `anyhow::Error`, boxed errors, text, and every
/// [`std::error::Error`] that is `Send + Sync`. So that this works it does not implement `Error` itself. Without
/// more it has the code `handler_error` and the job is retried as its [`RetryPolicy`](crate::options::RetryPolicy) says.
/// [`Display`](fmt::Display) shows the error with all its causes, outermost first.
///
/// The message is stored in Redis and seen by whoever reads the job: keep secrets out of it.
pub struct JobError {
    source: Box<dyn StdError + Send + Sync>,
    code: Option<String>,
    refused_code: Option<String>,
    fatal: bool,
    retry_after: Option<Duration>,
}

impl JobError {
    fn plain(source: Box<dyn StdError + Send + Sync>) -> JobError {
        JobError { source, code: None, refused_code: None, fatal: false, retry_after: None }
    }

    /// An error that another attempt cannot mend: the job fails now, whatever attempts are left.
    #[must_use]
    pub fn fatal(e: impl Into<Box<dyn StdError + Send + Sync>>) -> JobError {
        JobError { fatal: true, ..JobError::plain(e.into()) }
    }

    /// An error after which the next attempt should wait `delay`, in place of the task's backoff.
    ///
    /// The attempt counts as usual; with none left the job fails. A delay over 10 years counts as 10 years.
    #[must_use]
    pub fn retry_after(delay: Duration, e: impl Into<Box<dyn StdError + Send + Sync>>) -> JobError {
        JobError { retry_after: Some(delay.min(validate::LONGEST)), ..JobError::plain(e.into()) }
    }

    /// An error with a code of your own, for whoever reads [`Failure::code`](crate::Failure::code).
    ///
    /// A code has 1 to 64 characters of `a-z`, `0-9` and `_`, and is none of Heartline's own
    /// ([`codes`]). Any other becomes `handler_error`, and the message then names the code that was wanted.
    #[must_use]
    pub fn coded(code: impl Into<String>, e: impl Into<Box<dyn StdError + Send + Sync>>) -> JobError {
        let code = code.into();
        let usable = (1..=64).contains(&code.len())
            && code.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'_'))
            && !codes::is_reserved(&code);
        let (code, refused_code) =
            if usable { (Some(code), None) } else { (None, Some(code.chars().take(64).collect())) };
        JobError { code, refused_code, ..JobError::plain(e.into()) }
    }

    /// The failure code.
    pub(crate) fn code(&self) -> &str {
        self.code.as_deref().unwrap_or(codes::HANDLER_ERROR)
    }

    /// Whether no attempt may follow.
    pub(crate) fn is_fatal(&self) -> bool {
        self.fatal
    }

    /// The delay asked for in place of the backoff.
    pub(crate) fn retry_after_delay(&self) -> Option<Duration> {
        self.retry_after
    }

    /// The text of `Display`, cut to 4 KiB between two characters.
    pub(crate) fn message(&self) -> String {
        let mut bounded = Bounded { text: String::new(), limit: MESSAGE_LIMIT };
        // Either the text is full or an error's own Display gave up: what was written so far is the message.
        let _ = self.write_chain(&mut bounded);
        bounded.text
    }

    fn write_chain(&self, out: &mut dyn fmt::Write) -> fmt::Result {
        if let Some(code) = &self.refused_code {
            write!(out, "[code {code:?} is reserved or malformed] ")?;
        }
        write_chain(out, &*self.source)
    }
}

impl<E: Into<Box<dyn StdError + Send + Sync>>> From<E> for JobError {
    fn from(e: E) -> Self {
        JobError::plain(e.into())
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
        f.debug_struct("JobError")
            .field("code", &self.code())
            .field("fatal", &self.fatal)
            .field("retry_after", &self.retry_after)
            .field("source", &self.source)
            .finish()
    }
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
