//! Subscriptions: the stream of events that a user gets.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures_util::{FutureExt, Stream, StreamExt};
use tokio_stream::wrappers::BroadcastStream;

use super::channel::{Channel, Listener, Numbered};
use super::source::Followed;

/// Why [`Subscription::recv`] has no event to give.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecvError {
    /// So many events were missed, since this subscriber was too slow, or since the stream in Redis was trimmed before
    /// they were read. The next call goes on behind the gap.
    #[error("{0} events were missed")]
    Lagged(u64),
    /// The app is gone; nothing follows.
    #[error("the app is closed")]
    Closed,
}

/// A stream of events, from the moment of the call on that made it.
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
/// Take events with [`recv`](Subscription::recv), or use it as a [`Stream`] of `Result<T, RecvError>`, which ends
/// where `recv` would say [`RecvError::Closed`] (a stream never yields that).
///
/// Nothing that happened after the call to the tasks that the App knew then is missed in silence, an outage of Redis
/// included: what could not be delivered is counted and told as [`RecvError::Lagged`]. Events of the last few milliseconds before the call may be among the
/// first. Within a task events come in the order in which they happened; between tasks there is no order.
///
/// A subscription to one task ([`TaskRef::events`](crate::TaskRef::events)) shares the room for waiting events with those of
/// the App: what it missed may have been events of other tasks.
///
/// All subscribers of an App share one reader, with one connection. It runs on the tokio runtime on which the App was built.
#[must_use = "events are read only for a subscription that is kept"]
pub struct Subscription<T> {
    stream: BroadcastStream<Numbered<T>>,
    /// The number of the last event that was delivered or told as missed.
    last: u64,
    /// An event that waits behind the gap in front of it.
    pending: Option<T>,
    listener: Listener<T>,
    only: Option<Only<T>>,
}

/// The one task that a subscription is about.
struct Only<T> {
    task: Arc<Followed>,
    task_of: fn(&T) -> &str,
}

impl<T: Clone + Send + 'static> Channel<T> {
    /// A new subscription, from now on.
    pub(super) fn subscribe(self: &Arc<Self>) -> Subscription<T> {
        let listener = self.listen();
        let (receiver, last) = self.receive();
        listener.start();
        Subscription { stream: BroadcastStream::new(receiver), last, pending: None, listener, only: None }
    }
}

impl<T: Clone + Send + 'static> Subscription<T> {
    /// Leaves out what is not about the task, and follows it for as long as this lives.
    pub(crate) fn only(self, task: Arc<Followed>, task_of: fn(&T) -> &str) -> Subscription<T> {
        Subscription { only: Some(Only { task, task_of }), ..self }
    }

    /// The next event.
    ///
    /// # Errors
    /// - [`RecvError::Lagged`] if events were missed. The next call goes on behind the gap.
    /// - [`RecvError::Closed`] if the App is gone.
    ///
    /// # Cancel safety
    /// Cancel safe: an event is either returned or still there.
    pub async fn recv(&mut self) -> Result<T, RecvError> {
        self.next().await.unwrap_or(Err(RecvError::Closed))
    }

    /// The next event if there is one already, without waiting; `None` when there is none yet.
    ///
    /// # Errors
    /// As [`recv`](Subscription::recv).
    pub fn try_recv(&mut self) -> Result<Option<T>, RecvError> {
        // Unconstrained: a caller that drains in a loop must not be told "none" because its task has run for long.
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
                // The number of the next event tells how many, and counts those that never came this far.
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

// Nothing is pinned in place: the stream is behind a box and the event is moved out.
impl<T> Unpin for Subscription<T> {}

impl<T> fmt::Debug for Subscription<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscription").finish_non_exhaustive()
    }
}
