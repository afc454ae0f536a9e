//! The channel from a reader to its subscriptions: who listens, and how many events each listener missed.

use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::{Notify, broadcast};
use tokio::task::AbortHandle;
use tokio::time::{Duration, Instant};

use super::position::Position;
use super::source::Source;
use super::stream_event::StreamEvent;
use crate::backend::keys::Key;
use crate::mutex::Mutex;

/// How long a reader stays without listeners. Otherwise, a caller that waits for one result after another would connect
/// for each of them.
const LINGER: Duration = Duration::from_millis(250);

/// An event and its number among all events of the channel, missed ones included. Without an event it only wakes
/// subscribers, so that one of them starts a reader.
#[derive(Clone)]
pub(super) struct Numbered<T> {
    pub(super) number: u64,
    pub(super) event: Option<T>,
}

/// Reads into a channel, under this reader number and from this time on, until it is dropped.
pub(super) type Read<T> = fn(Arc<Channel<T>>, u64, Instant) -> BoxFuture<'static, ()>;

/// One kind of events: its listeners and its reader.
pub(super) struct Channel<T> {
    pub(super) key: Key,
    pub(super) pick: fn(StreamEvent) -> Option<T>,
    pub(super) capacity: usize,
    pub(super) source: Arc<Source>,
    read: Read<T>,
    state: Mutex<ChannelState<T>>,
    left: Notify,
}

struct ChannelState<T> {
    /// `None` once the App is gone.
    sender: Option<broadcast::Sender<Numbered<T>>>,
    /// Events so far, missed ones included.
    number: u64,
    listeners: usize,
    /// From when on the next reader reads.
    since: Instant,
    /// The number of the running reader.
    reader: Option<u64>,
    readers: u64,
    abort: Option<AbortHandle>,
    /// How far the last reader had read, if its runtime ended before its subscribers did.
    positions: Vec<Position>,
}

impl<T: Clone + Send + 'static> Channel<T> {
    pub(super) fn new(
        key: Key,
        pick: fn(StreamEvent) -> Option<T>,
        capacity: usize,
        source: Arc<Source>,
        read: Read<T>,
    ) -> Arc<Channel<T>> {
        // The limits of the broadcast channel, which rounds up to a power of two.
        let capacity = capacity.clamp(1, usize::MAX / 4);
        let state = ChannelState {
            sender: Some(broadcast::Sender::new(capacity)),
            number: 0,
            listeners: 0,
            since: Instant::now(),
            reader: None,
            readers: 0,
            abort: None,
            positions: Vec::new(),
        };
        Arc::new(Channel { key, pick, capacity, source, read, state: Mutex::new(state), left: Notify::new() })
    }

    /// A receiver of later events, and the number of the last event before.
    pub(super) fn receive(&self) -> (broadcast::Receiver<Numbered<T>>, u64) {
        let state = self.state.lock();
        let receiver = match &state.sender {
            Some(sender) => sender.subscribe(),
            // A receiver without a sender reports that the channel is closed.
            None => broadcast::channel(1).1,
        };
        (receiver, state.number)
    }

    /// Keeps a reader running from now on; [`Listener::start`] starts it.
    pub(super) fn listen(self: &Arc<Self>) -> Listener<T> {
        let mut state = self.state.lock();
        if state.listeners == 0 {
            state.since = Instant::now();
        }
        state.listeners += 1;
        drop(state);
        Listener { channel: self.clone(), start: start::<T> }
    }

    pub(super) fn send_from(&self, reader: u64, event: T) {
        let mut state = self.state.lock();
        if state.reader != Some(reader) {
            return;
        }
        state.number += 1;
        let number = state.number;
        if let Some(sender) = &state.sender {
            // Having no receiver is not an error: a caller that waits for a result listens without one.
            let _ = sender.send(Numbered { number, event: Some(event) });
        }
    }

    /// The positions from which the next reader continues, if the last one stopped midway.
    pub(super) fn positions_to_resume(&self) -> Vec<Position> {
        std::mem::take(&mut self.state.lock().positions)
    }

    /// Records that a reader has stopped. If there are listeners, the next reader continues at these positions. Events
    /// that were read and not sent count as missed.
    pub(super) fn reader_stopped(&self, reader: u64, positions: Vec<Position>, unsent: u64) {
        let mut state = self.state.lock();
        if state.reader == Some(reader) && state.listeners > 0 {
            state.positions = positions;
            state.number = state.number.saturating_add(unsent);
        }
    }

    /// Counts events that this reader cannot deliver.
    pub(super) fn missed(&self, reader: u64, count: u64) {
        let mut state = self.state.lock();
        if state.reader == Some(reader) {
            state.number = state.number.saturating_add(count);
        }
    }

    /// How many events the slowest subscriber has not received yet.
    pub(super) fn queued(&self) -> usize {
        self.state.lock().sender.as_ref().map_or(0, broadcast::Sender::len)
    }

    /// Returns once there was no listener for a while.
    pub(super) async fn abandoned(&self, reader: u64) {
        loop {
            let left = self.left.notified();
            if self.state.lock().listeners > 0 {
                left.await;
                continue;
            }
            tokio::time::sleep(LINGER).await;
            let mut state = self.state.lock();
            if state.listeners == 0 {
                // Hold the lock, so that a listener that comes now starts the next reader.
                if state.reader == Some(reader) {
                    state.reader = None;
                }
                return;
            }
        }
    }
}

impl<T> Channel<T> {
    /// Ends the reader, and closes every subscription.
    pub(super) fn close(&self) {
        let mut state = self.state.lock();
        state.sender = None;
        let abort = state.abort.take();
        drop(state);
        if let Some(abort) = abort {
            abort.abort();
        }
    }
}

/// Starts the reader, unless it runs or there is no runtime for it.
fn start<T: Clone + Send + 'static>(channel: &Arc<Channel<T>>) {
    let (reader, runtime, since) = {
        let mut state = channel.state.lock();
        if state.reader.is_some() || state.sender.is_none() {
            return;
        }
        let Some(runtime) = channel.source.store.runtime().handle() else { return };
        state.readers += 1;
        state.reader = Some(state.readers);
        (state.readers, runtime, state.since)
    };
    let running = Running { channel: channel.clone(), reader };
    let run = async move {
        let channel = &running.channel;
        tokio::select! {
            () = channel.abandoned(reader) => {}
            () = (channel.read)(Arc::clone(channel), reader, since) => {}
        }
    };
    let task = runtime.spawn(run.boxed());
    let mut state = channel.state.lock();
    if state.sender.is_none() {
        task.abort();
    } else if state.reader == Some(reader) {
        state.abort = Some(task.abort_handle());
    }
}

/// Records the end of a reader, also if the runtime dropped it.
struct Running<T> {
    channel: Arc<Channel<T>>,
    reader: u64,
}

impl<T> Drop for Running<T> {
    fn drop(&mut self) {
        let mut state = self.channel.state.lock();
        if state.reader != Some(self.reader) {
            return;
        }
        state.reader = None;
        // Its runtime has ended. A listener starts the next one.
        let (number, wake) = (state.number, None);
        if let Some(sender) = &state.sender {
            // Sending fails if there is no subscriber.
            let _ = sender.send(Numbered { number, event: wake });
        }
        drop(state);
        if self.channel.key == Key::Events {
            self.channel.source.waiters.set_flowing(false);
            self.channel.source.waiters.wake_all();
        }
    }
}

/// Keeps a reader while it lives.
pub(super) struct Listener<T> {
    channel: Arc<Channel<T>>,
    start: fn(&Arc<Channel<T>>),
}

impl<T> Listener<T> {
    /// Starts the reader, unless it runs or there is no runtime for it.
    pub(super) fn start(&self) {
        (self.start)(&self.channel);
    }
}

impl<T> Drop for Listener<T> {
    fn drop(&mut self) {
        let mut state = self.channel.state.lock();
        state.listeners -= 1;
        let left = state.listeners == 0;
        if left {
            state.positions = Vec::new();
        }
        drop(state);
        if left {
            self.channel.left.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::event::Event;
    use crate::events::reader;
    use crate::events::reader::tests::unreachable_source;
    use crate::events::subscription::RecvError;
    use futures_util::StreamExt;

    fn channel(capacity: usize) -> Arc<Channel<Event>> {
        Channel::new(Key::Events, StreamEvent::job, capacity, unreachable_source(), reader::run)
    }

    impl Channel<Event> {
        fn reader(&self) -> u64 {
            self.state.lock().reader.unwrap_or_default()
        }

        fn send(&self, event: Event) {
            self.send_from(self.reader(), event);
        }
    }

    fn removed(id: u64) -> Event {
        let id = crate::job::id::JobId::from_wire(id.to_string());
        Event::Removed { task: "t".into(), id, at: std::time::SystemTime::UNIX_EPOCH, by: None, lost_payload: false }
    }

    #[tokio::test]
    async fn a_slow_subscriber_gets_the_number_of_events_it_missed() {
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
    async fn events_lost_by_stream_and_channel_are_counted_together() {
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
    async fn a_closed_channel_returns_the_rest_and_ends() {
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
        assert!(channel.state.lock().reader.is_none());
        assert_eq!(subscriber.try_recv(), Ok(None));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            assert_eq!(subscriber.try_recv(), Ok(None));
            assert!(channel.state.lock().reader.is_some());
        });
        drop(runtime);
        assert!(channel.state.lock().reader.is_none());
    }

    #[tokio::test]
    async fn the_reader_ends_with_its_last_listener_and_restarts() {
        let channel = channel(4);
        let (one, two) = (channel.subscribe(), channel.subscribe());
        let first = channel.state.lock().reader;
        assert!(first.is_some());
        drop(one);
        drop(two);
        while channel.state.lock().reader.is_some() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let _again = channel.subscribe();
        assert_ne!(channel.state.lock().reader, first);
    }
}
