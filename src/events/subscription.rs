//! Subscriptions, and the channel behind them: who listens, and how many events each listener missed.

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use futures_util::{FutureExt, Stream, StreamExt};
use tokio::runtime::Handle;
use tokio::sync::{Notify, broadcast};
use tokio::task::AbortHandle;
use tokio::time::{Duration, Instant, Sleep};
use tokio_stream::wrappers::BroadcastStream;

use super::Event;
use super::reader::{self, Followed, Position, Source};
use crate::store::{Key, SUPERVISION, Sign};

/// How long a reader stays when nobody listens any more: a caller that waits for one result after the other would
/// otherwise connect anew for each.
const LINGER: Duration = Duration::from_millis(250);

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
/// All subscribers of an app share one reader, which has a connection while somebody listens. It is started in the
/// Tokio runtime of the caller; a subscription that is made outside of a runtime starts it when it is first polled.
#[must_use = "events are read only for a subscription that is kept"]
pub struct Subscription<T> {
    stream: BroadcastStream<Numbered<T>>,
    /// The number of the last event that was delivered or told as missed.
    last: u64,
    /// An event that waits behind the gap in front of it.
    pending: Option<T>,
    listener: Listener<T>,
    only: Option<Only<T>>,
    look: Look,
}

/// When a subscriber looks after the reader next.
struct Look {
    at: Instant,
    /// The sign that it saw last.
    seen: Option<Instant>,
    timer: Option<Pin<Box<Sleep>>>,
}

/// The one task that a subscription is about.
struct Only<T> {
    task: Arc<Followed>,
    task_of: fn(&T) -> &str,
}

impl<T: Clone + Send + 'static> Subscription<T> {
    /// Leaves out what is not about the task, and follows it for as long as this lives.
    pub(crate) fn only(self, task: Arc<Followed>, task_of: fn(&T) -> &str) -> Subscription<T> {
        Subscription { only: Some(Only { task, task_of }), ..self }
    }

    /// The next event.
    ///
    /// # Errors
    /// [`RecvError::Lagged`] when events were missed, after which the next call goes on; [`RecvError::Closed`] when
    /// nothing follows.
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

impl<T> Subscription<T> {
    /// Sees to it that the reader is looked after once a second: its runtime may be one that nobody drives any more.
    fn look_after_reader(&mut self, cx: &mut Context<'_>) {
        if Handle::try_current().is_err() {
            return;
        }
        loop {
            // Made anew each time: the runtime may be another one than at the last poll.
            let timer = self.look.timer.insert(Box::pin(tokio::time::sleep_until(self.look.at)));
            if timer.poll_unpin(cx).is_pending() {
                return;
            }
            self.look.seen = self.listener.look(self.look.seen);
            self.look.at = Instant::now() + SUPERVISION;
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
                self.look_after_reader(cx);
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

/// An event and its place among all events of the channel, those that were missed included. Without an event it only wakes
/// subscribers, one of which is then to start a reader.
#[derive(Clone)]
struct Numbered<T> {
    number: u64,
    event: Option<T>,
}

/// One kind of events: its listeners and its reader.
pub(super) struct Channel<T> {
    pub(super) key: Key,
    pub(super) pick: fn(Event) -> Option<T>,
    pub(super) capacity: usize,
    pub(super) source: Arc<Source>,
    state: Mutex<State<T>>,
    left: Notify,
}

struct State<T> {
    /// None when the app is gone.
    sender: Option<broadcast::Sender<Numbered<T>>>,
    /// Events so far, those that were missed included.
    number: u64,
    listeners: usize,
    /// From when on the next reader is to read.
    since: Instant,
    /// The running reader, by a number of its own, and the sign that it gives.
    reader: Option<(u64, Arc<Sign>)>,
    readers: u64,
    abort: Option<AbortHandle>,
    /// How far a reader had come whose runtime ended before its subscribers did.
    positions: Vec<Position>,
    /// How far the running reader has come, and what it has in hand: for the next one, where its runtime stands still.
    come: (Vec<Position>, u64),
}

impl<T> State<T> {
    /// Leaves a reader whose runtime nobody drives any more. Should that go on, it finds itself aborted.
    fn leave_reader(&mut self) {
        self.reader = None;
        self.abort.take().iter().for_each(AbortHandle::abort);
    }

    fn is_read_by(&self, reader: u64) -> bool {
        self.reader.as_ref().is_some_and(|(number, _)| *number == reader)
    }
}

impl<T: Clone + Send + 'static> Channel<T> {
    pub(super) fn new(key: Key, pick: fn(Event) -> Option<T>, capacity: usize, source: Arc<Source>) -> Arc<Channel<T>> {
        // The bounds are those of the broadcast channel, which takes the next power of two.
        let capacity = capacity.clamp(1, usize::MAX / 4);
        let state = State {
            sender: Some(broadcast::Sender::new(capacity)),
            number: 0,
            listeners: 0,
            since: Instant::now(),
            reader: None,
            readers: 0,
            abort: None,
            positions: Vec::new(),
            come: (Vec::new(), 0),
        };
        Arc::new(Channel { key, pick, capacity, source, state: Mutex::new(state), left: Notify::new() })
    }

    /// A new subscription, from now on.
    pub(super) fn subscribe(self: &Arc<Self>) -> Subscription<T> {
        let listener = self.listen();
        let (receiver, last) = {
            let state = self.state();
            let receiver = match &state.sender {
                Some(sender) => sender.subscribe(),
                // A receiver without a sender is a closed one.
                None => broadcast::channel(1).1,
            };
            (receiver, state.number)
        };
        listener.start();
        Subscription {
            stream: BroadcastStream::new(receiver),
            last,
            pending: None,
            listener,
            only: None,
            look: Look { at: Instant::now() + SUPERVISION, seen: None, timer: None },
        }
    }

    /// Keeps a reader going, from now on, once the listener has started it.
    pub(super) fn listen(self: &Arc<Self>) -> Listener<T> {
        let mut state = self.state();
        if state.listeners == 0 {
            state.since = Instant::now();
            if state.reader.as_ref().is_some_and(|(_, sign)| sign.is_silent()) {
                state.leave_reader();
            }
        }
        state.listeners += 1;
        drop(state);
        Listener { channel: self.clone(), start: start::<T> }
    }

    /// Hands an event of this reader to whoever listens. Of one that was left the next one tells.
    pub(super) fn send_from(&self, reader: u64, event: T) {
        let state = self.state();
        if state.is_read_by(reader) {
            Self::hand_on(state, event);
        }
    }

    fn hand_on(mut state: MutexGuard<'_, State<T>>, event: T) {
        state.number += 1;
        let number = state.number;
        if let Some(sender) = &state.sender {
            // No receiver is no error: a caller that waits for a result listens without one.
            let _ = sender.send(Numbered { number, event: Some(event) });
        }
    }

    /// Where the next reader is to go on, if one stopped in the middle.
    pub(super) fn go_on(&self) -> Vec<Position> {
        std::mem::take(&mut self.state().positions)
    }

    /// The reader has come so far, with so many events in hand that it has not sent yet.
    pub(super) fn come_to(&self, reader: u64, positions: &[Position], unsent: u64) {
        let mut state = self.state();
        if state.is_read_by(reader) {
            state.come.0.clear();
            state.come.0.extend_from_slice(positions);
            state.come.1 = unsent;
        }
    }

    /// A reader has stopped. If that was not for want of listeners the next one goes on there; what this one has read and not
    /// sent is missed.
    pub(super) fn left_off(&self, reader: u64, positions: Vec<Position>, unsent: u64) {
        let mut state = self.state();
        if state.is_read_by(reader) && state.listeners > 0 {
            state.positions = positions;
            state.number = state.number.saturating_add(unsent);
            state.come.1 = 0;
        }
    }

    /// Counts events that nobody will get, says this reader.
    pub(super) fn missed(&self, reader: u64, count: u64) {
        let mut state = self.state();
        if state.is_read_by(reader) {
            state.number = state.number.saturating_add(count);
        }
    }

    /// How many events the slowest subscriber has before it.
    pub(super) fn queued(&self) -> usize {
        self.state().sender.as_ref().map_or(0, broadcast::Sender::len)
    }

    /// Returns when nobody has listened for a while.
    pub(super) async fn abandoned(&self, reader: u64) {
        loop {
            let left = self.left.notified();
            if self.state().listeners > 0 {
                left.await;
                continue;
            }
            tokio::time::sleep(LINGER).await;
            let mut state = self.state();
            if state.listeners == 0 {
                // In the same breath, so that a listener that comes now starts the next reader.
                if state.is_read_by(reader) {
                    state.reader = None;
                }
                return;
            }
        }
    }
}

impl<T> Channel<T> {
    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the reader and tells every subscriber that nothing follows.
    pub(super) fn close(&self) {
        let mut state = self.state();
        state.sender = None;
        let abort = state.abort.take();
        drop(state);
        if let Some(abort) = abort {
            abort.abort();
        }
    }
}

/// Starts the reader unless there is one, if a runtime is there to run it.
fn start<T: Clone + Send + 'static>(channel: &Arc<Channel<T>>) {
    let (reader, sign, since) = {
        let mut state = channel.state();
        if state.reader.is_some() || state.sender.is_none() {
            return;
        }
        let Ok(_runtime) = Handle::try_current() else {
            return;
        };
        let sign = Sign::new(SUPERVISION);
        state.readers += 1;
        state.reader = Some((state.readers, Arc::clone(&sign)));
        (state.readers, sign, state.since)
    };
    let running = Running { channel: channel.clone(), reader };
    let task = tokio::spawn(async move {
        let channel = &running.channel;
        let reads = async {
            tokio::select! {
                () = channel.abandoned(reader) => {}
                () = reader::run(channel, reader, since) => {}
            }
        };
        sign.given_by(reads).await;
    });
    let mut state = channel.state();
    if state.sender.is_none() {
        task.abort();
    } else if state.is_read_by(reader) {
        state.abort = Some(task.abort_handle());
    }
}

/// Tells the channel when its reader is gone, also when the runtime dropped it.
struct Running<T> {
    channel: Arc<Channel<T>>,
    reader: u64,
}

impl<T> Drop for Running<T> {
    fn drop(&mut self) {
        let mut state = self.channel.state();
        if state.is_read_by(self.reader) {
            state.reader = None;
            // Its runtime has ended. Subscribers on others start the next one.
            let (number, wake) = (state.number, None);
            if let Some(sender) = &state.sender {
                // No receiver is no error.
                let _ = sender.send(Numbered { number, event: wake });
            }
        }
    }
}

/// Somebody for whom a reader is kept.
pub(super) struct Listener<T> {
    channel: Arc<Channel<T>>,
    start: fn(&Arc<Channel<T>>),
}

impl<T> Listener<T> {
    /// Starts the reader unless it runs, or no runtime is there to run it.
    pub(super) fn start(&self) {
        (self.start)(&self.channel);
    }

    /// Leaves the reader if it has given no sign since `last`, which was seen a while ago, and starts another one, which goes
    /// on where it was; what it had in hand is missed. Returns the sign of now.
    pub(super) fn look(&self, last: Option<Instant>) -> Option<Instant> {
        let mut state = self.channel.state();
        let given = state.reader.as_ref().map(|(_, sign)| Instant::from(sign.given_at()));
        let is_silent = state.reader.as_ref().is_some_and(|(_, sign)| sign.is_silent());
        if is_silent && given == last {
            // Kept: the next one may be left before it has come any further.
            state.positions = state.come.0.clone();
            let unsent = std::mem::take(&mut state.come.1);
            state.leave_reader();
            state.number = state.number.saturating_add(unsent);
        }
        drop(state);
        self.start();
        given
    }
}

impl<T> Drop for Listener<T> {
    fn drop(&mut self) {
        let mut state = self.channel.state();
        state.listeners -= 1;
        let left = state.listeners == 0;
        if left {
            state.positions = Vec::new();
            state.come = (Vec::new(), 0);
        }
        drop(state);
        if left {
            // All: a reader that was left may stand first.
            self.channel.left.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::reader::tests::unreachable_source;

    fn channel(capacity: usize) -> Arc<Channel<Event>> {
        Channel::new(Key::Events, Some, capacity, unreachable_source())
    }

    impl Channel<Event> {
        fn reader(&self) -> u64 {
            self.state().reader.as_ref().map_or(0, |(number, _)| *number)
        }

        fn send(&self, event: Event) {
            self.send_from(self.reader(), event);
        }
    }

    fn removed(id: u64) -> Event {
        let id = crate::job::JobId::from_wire(id.to_string());
        Event::Removed { task: "t".into(), id, at: std::time::SystemTime::UNIX_EPOCH }
    }

    #[tokio::test]
    async fn a_slow_subscriber_is_told_how_many_it_missed() {
        let channel = channel(4);
        let mut slow = channel.subscribe();
        (1..=10).for_each(|id| channel.send(removed(id)));
        assert_eq!(slow.recv().await, Err(RecvError::Lagged(6)));
        for id in 7..=10 {
            assert_eq!(slow.recv().await, Ok(removed(id)));
        }
        assert_eq!(slow.try_recv(), Ok(None));
    }

    #[tokio::test]
    async fn events_that_the_stream_lost_are_counted_with_those_of_the_channel() {
        let channel = channel(2);
        channel.missed(channel.reader(), 100);
        let mut subscriber = channel.subscribe();
        channel.send(removed(1));
        channel.missed(channel.reader(), 5);
        channel.send(removed(2));
        assert_eq!(subscriber.recv().await, Ok(removed(1)));
        assert_eq!(subscriber.recv().await, Err(RecvError::Lagged(5)));
        assert_eq!(subscriber.recv().await, Ok(removed(2)));
        channel.missed(channel.reader(), 3);
        (3..=5).for_each(|id| channel.send(removed(id)));
        assert_eq!(subscriber.recv().await, Err(RecvError::Lagged(4)));
        assert_eq!(subscriber.try_recv(), Ok(Some(removed(4))));
    }

    #[tokio::test]
    async fn a_closed_channel_gives_what_is_left_and_ends() {
        let channel = channel(4);
        let mut subscriber = channel.subscribe();
        channel.send(removed(1));
        channel.close();
        assert_eq!(subscriber.recv().await, Ok(removed(1)));
        assert_eq!(subscriber.recv().await, Err(RecvError::Closed));
        assert_eq!(subscriber.try_recv(), Err(RecvError::Closed));
        assert_eq!(subscriber.next().await, None);
        assert_eq!(channel.subscribe().recv().await, Err(RecvError::Closed));
    }

    #[test]
    fn a_subscription_outside_of_a_runtime_waits_for_one() {
        let channel = channel(4);
        let mut subscriber = channel.subscribe();
        assert!(channel.state().reader.is_none());
        assert_eq!(subscriber.try_recv(), Ok(None));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            assert_eq!(subscriber.try_recv(), Ok(None));
            assert!(channel.state().reader.is_some());
        });
        drop(runtime);
        assert!(channel.state().reader.is_none());
    }

    #[tokio::test]
    async fn the_reader_goes_with_the_last_listener_and_comes_back_with_the_next() {
        let channel = channel(4);
        let (one, two) = (channel.subscribe(), channel.subscribe());
        let first = channel.state().reader.as_ref().map(|(number, _)| *number);
        assert!(first.is_some());
        drop(one);
        drop(two);
        while channel.state().reader.is_some() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let _again = channel.subscribe();
        assert_ne!(channel.state().reader.as_ref().map(|(number, _)| *number), first);
    }
}
