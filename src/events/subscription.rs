//! Subscriptions: the stream of events that a user gets.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures_util::{FutureExt, Stream, StreamExt};
use tokio_stream::wrappers::BroadcastStream;

use super::channel::{Channel, Listener, Numbered};
use super::source::Followed;

/// Why [`Subscription::recv`] returned no event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecvError {
    /// This many events were missed, because this subscriber was too slow, or the stream in Redis was trimmed before
    /// they were read. The next call continues after the gap.
    #[error("{0} events were missed")]
    Lagged(u64),
    /// The App is gone; nothing follows.
    #[error("the app is closed")]
    Closed,
}

/// A stream of events that begins with the call that made it.
///
/// ```no_run
/// # use heartline::{App, RecvError};
/// # async fn run(app: App) {
/// let mut stalls = app.on_stalled();
/// loop {
///     match stalls.recv().await {
///         Ok(stall) => println!("{} {}: {}", stall.task, stall.id, stall.action),
///         Err(RecvError::Lagged(missed)) => println!("{missed} were missed"),
///         Err(_) => break,
///     }
/// }
/// # }
/// ```
///
/// Call [`recv`](Subscription::recv), or use it as a [`Stream`] of `Result<T, RecvError>`. The stream ends where `recv`
/// would return [`RecvError::Closed`], and never yields that error.
///
/// No later event is lost silently, not even in an outage of Redis, for tasks that the App knew at the call. Events that could not be
/// delivered are counted and reported as [`RecvError::Lagged`]. The first events may be from the last few milliseconds before the call.
/// Within a task, events come in the order in which they happened; between tasks there is no order.
///
/// A subscription to one task ([`TaskRef::events`](crate::TaskRef::events)) shares its buffer with the subscriptions of
/// the App: the missed events may have been events of other tasks.
///
/// All subscribers of an App share one reader with one connection. It runs on the tokio runtime on which the App was built.
#[must_use = "events are read only for a subscription that is kept"]
pub struct Subscription<T> {
    stream: BroadcastStream<Numbered<T>>,
    /// The number of the last event that was delivered or reported as missed.
    last: u64,
    /// An event that is returned after the gap before it has been reported.
    pending: Option<T>,
    listener: Listener<T>,
    only: Option<Only<T>>,
}

/// The one task of a subscription.
struct Only<T> {
    task: Arc<Followed>,
    task_of: fn(&T) -> &str,
}

impl<T: Clone + Send + 'static> Channel<T> {
    pub(super) fn subscribe(self: &Arc<Self>) -> Subscription<T> {
        let listener = self.listen();
        let (receiver, last) = self.receive();
        listener.start();
        Subscription { stream: BroadcastStream::new(receiver), last, pending: None, listener, only: None }
    }
}

impl<T: Clone + Send + 'static> Subscription<T> {
    /// Keeps only the events of the task, and follows it as long as this lives.
    pub(crate) fn only(self, task: Arc<Followed>, task_of: fn(&T) -> &str) -> Subscription<T> {
        Subscription { only: Some(Only { task, task_of }), ..self }
    }

    /// Waits for the next event.
    ///
    /// # Errors
    /// - [`RecvError::Lagged`] if events were missed. The next call continues after the gap.
    /// - [`RecvError::Closed`] if the App is gone.
    ///
    /// # Cancel safety
    /// Cancel safe: an event is either returned or still there.
    pub async fn recv(&mut self) -> Result<T, RecvError> {
        self.next().await.unwrap_or(Err(RecvError::Closed))
    }

    /// Calls a function with each event, one after the other, until the App is gone. Missed events are logged as a warning.
    ///
    /// The subscription begins with the call that made it, so no event is missed before the task is scheduled:
    ///
    /// ```no_run
    /// # use heartline::App;
    /// # async fn run(app: App) {
    /// tokio::spawn(app.on_stalled().each(|stall| async move {
    ///     println!("{} {}: {}", stall.task, stall.id, stall.action);
    /// }));
    /// # }
    /// ```
    ///
    /// # Cancel safety
    /// If the future is dropped, the call under way ends, and later events are not read.
    pub async fn each<F, Fut>(mut self, mut call: F)
    where
        F: FnMut(T) -> Fut,
        Fut: Future<Output = ()>,
    {
        loop {
            match self.recv().await {
                Ok(event) => call(event).await,
                Err(RecvError::Lagged(missed)) => tracing::warn!(missed, "a subscriber was too slow and missed events"),
                Err(RecvError::Closed) => return,
            }
        }
    }

    /// The next event, without waiting; `None` if there is none yet.
    ///
    /// # Errors
    /// As [`recv`](Subscription::recv).
    pub fn try_recv(&mut self) -> Result<Option<T>, RecvError> {
        // Unconstrained: a caller that drains in a loop must not get `None` because its tokio task has used up its budget.
        match tokio::task::unconstrained(self.recv()).now_or_never() {
            Some(Ok(event)) => Ok(Some(event)),
            Some(Err(e)) => Err(e),
            None => Ok(None),
        }
    }
}

impl<T: Clone + Send + 'static> Stream for Subscription<T> {
    type Item = Result<T, RecvError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Some(event) = self.pending.take() {
            return Poll::Ready(Some(Ok(event)));
        }
        loop {
            let polled = self.stream.poll_next_unpin(cx);
            if polled.is_pending() {
                self.listener.start();
            }
            match ready!(polled) {
                // The number of the next event shows how many were missed, including those that never reached this channel.
                Some(Err(_)) | Some(Ok(Numbered { event: None, .. })) => {}
                Some(Ok(Numbered { number, event: Some(event) })) => {
                    let missed = number.saturating_sub(self.last + 1);
                    self.last = number;
                    let wanted = self.only.as_ref().is_none_or(|only| (only.task_of)(&event) == only.task.name());
                    if missed > 0 {
                        self.pending = Some(event).filter(|_| wanted);
                        return Poll::Ready(Some(Err(RecvError::Lagged(missed))));
                    }
                    if wanted {
                        return Poll::Ready(Some(Ok(event)));
                    }
                }
                None => return Poll::Ready(None),
            }
        }
    }
}

// The stream is boxed and the event is moved out, so nothing here is pinned.
impl<T> Unpin for Subscription<T> {}

impl<T> fmt::Debug for Subscription<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscription").finish_non_exhaustive()
    }
}
