//! The source of a [`JobError`](super::JobError), and how its handling is kept in errors of other types.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Any error, as a handler may return it.
pub(super) type Boxed = Box<dyn StdError + Send + Sync>;

/// The longest chain of sources that is followed. A source may by mistake lead back to itself.
const CHAIN_LIMIT: usize = 64;

/// The error and its causes, outermost first.
pub(super) fn causes<'a>(e: &'a (dyn StdError + 'static)) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    std::iter::successors(Some(e), |e| (**e).source()).take(CHAIN_LIMIT + 1)
}

/// The original error.
pub(super) enum Cause {
    Boxed(Boxed),
    /// Not boxed: a boxed `anyhow::Error` cannot be downcast to its error and contexts.
    #[cfg(feature = "anyhow")]
    Anyhow(anyhow::Error),
}

impl Cause {
    #[cfg(feature = "anyhow")]
    pub(super) fn new<E: Into<Boxed> + 'static>(e: E) -> Cause {
        let mut e = Some(e);
        let any: &mut dyn std::any::Any = &mut e;
        if let Some(e) = any.downcast_mut::<Option<anyhow::Error>>().and_then(Option::take) {
            return Cause::Anyhow(e);
        }
        // `e` is still there: the code above takes only an `anyhow::Error`.
        e.map_or_else(|| Cause::Boxed("".into()), |e| Cause::Boxed(e.into()))
    }

    #[cfg(not(feature = "anyhow"))]
    pub(super) fn new<E: Into<Boxed> + 'static>(e: E) -> Cause {
        Cause::Boxed(e.into())
    }

    pub(super) fn as_dyn(&self) -> &(dyn StdError + 'static) {
        match self {
            Cause::Boxed(e) => &**e,
            #[cfg(feature = "anyhow")]
            Cause::Anyhow(e) => e.as_ref(),
        }
    }

    /// The first `T` among the error and its causes, outermost first.
    pub(super) fn find<T: StdError + Send + Sync + 'static>(&self) -> Option<&T> {
        #[cfg(feature = "anyhow")]
        if let Cause::Anyhow(e) = self
            && let Some(found) = e.downcast_ref()
        {
            return Some(found);
        }
        causes(self.as_dyn()).find_map(|e| e.downcast_ref().or_else(|| handled_by(e)?.source.find()))
    }

    /// The context of type `T` of an `anyhow::Error`. It may be a type that is not an error.
    #[cfg(feature = "anyhow")]
    pub(super) fn attached<T: fmt::Display + fmt::Debug + Send + Sync + 'static>(&self) -> Option<&T> {
        match self {
            Cause::Boxed(_) => None,
            Cause::Anyhow(e) => e.downcast_ref(),
        }
    }

    /// The error and handling that an [`ErrorCarrier`] holds, if the outermost error is one.
    pub(super) fn unpacked(self) -> Result<Handled, Cause> {
        match self {
            Cause::Boxed(e) => e.downcast::<ErrorCarrier>().map(|carrier| carrier.0).map_err(Cause::Boxed),
            #[cfg(feature = "anyhow")]
            Cause::Anyhow(e) if e.chain().next().is_some_and(|e| e.is::<ErrorCarrier>()) => {
                e.downcast::<ErrorCarrier>().map(|carrier| carrier.0).map_err(Cause::Anyhow)
            }
            // A downcast by value would lose its contexts.
            #[cfg(feature = "anyhow")]
            Cause::Anyhow(e) => Err(Cause::Anyhow(e)),
        }
    }
}

/// What should happen to the job, next to the error itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Handling {
    pub(super) code: Option<String>,
    pub(super) refused_code: Option<String>,
    pub(super) fatal: bool,
    pub(super) retry_after: Option<Duration>,
    pub(super) snooze: Option<Duration>,
    pub(super) rest: Option<Duration>,
}

/// An error with its handling. As a cause in a chain it shows the handling.
#[derive(Clone)]
pub(super) struct Handled {
    /// Shared, so that an error map can read it while it builds another error from it.
    pub(super) source: Arc<Cause>,
    pub(super) handling: Handling,
}

impl fmt::Display for Handled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Handling { code, refused_code, fatal, retry_after, snooze, rest } = &self.handling;
        let parts = [
            code.as_ref().map(|code| format!("code {code}")),
            refused_code.as_ref().map(|code| format!("code {code:?} is reserved or malformed")),
            fatal.then(|| "fatal".to_owned()),
            retry_after.map(|delay| format!("retry after {delay:?}")),
            snooze.map(|delay| format!("snooze for {delay:?}")),
            rest.map(|time| format!("no start for {time:?}")),
        ];
        f.write_str(&parts.into_iter().flatten().collect::<Vec<_>>().join(", "))
    }
}

impl fmt::Debug for Handled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handled").field("handling", &self.handling).field("source", &self.source.as_dyn()).finish()
    }
}

impl StdError for Handled {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_dyn().source()
    }
}

/// A `JobError` inside an error of another type. It displays the source of the `JobError`. Its cause is the handling: an error that is
/// boxed twice can only be found through its causes.
#[derive(Debug)]
pub(super) struct ErrorCarrier(pub(super) Handled);

impl fmt::Display for ErrorCarrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.source.as_dyn())
    }
}

impl StdError for ErrorCarrier {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        if self.0.handling == Handling::default() { self.0.source() } else { Some(&self.0) }
    }
}

/// The error and its handling, if this carries one.
pub(super) fn handled_by<'a>(e: &'a (dyn StdError + 'static)) -> Option<&'a Handled> {
    e.downcast_ref::<ErrorCarrier>().map(|carrier| &carrier.0).or_else(|| e.downcast_ref())
}
