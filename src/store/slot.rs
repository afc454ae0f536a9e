//! A place for one connection that many calls share.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::joint::Joint;
use super::{OwnConnection, connect};
use crate::error::Error;

/// How long calls may go on without an answer to any of them before one that is given up counts against the connection.
const UNANSWERED: Duration = Duration::from_secs(1);

/// The shortest time between two connections that are left since the server says no on them.
const BETWEEN_REFUSALS: Duration = Duration::from_secs(1);

/// The connection, once it was needed. One that failed is left, and the next call makes another.
#[derive(Debug)]
pub(super) struct Slot {
    client: redis::Client,
    state: Arc<Mutex<State>>,
    connecting: Joint<(OwnConnection, usize)>,
}

#[derive(Debug, Default)]
struct State {
    conn: Option<OwnConnection>,
    /// How many connections there were before it.
    before: usize,
    /// Since when there are calls, one soon after the other, and none was answered.
    asked: Option<Instant>,
    /// When a call was last begun or given up.
    touched: Option<Instant>,
    /// When a connection was last left since the server said no.
    refused: Option<Instant>,
}

impl Slot {
    pub(super) fn new(client: redis::Client) -> Slot {
        Slot { client, state: Arc::default(), connecting: Joint::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The connection with its number, if there is one.
    pub(super) fn if_up(&self) -> Option<(OwnConnection, usize)> {
        let state = self.state();
        state.conn.clone().map(|conn| (conn, state.before))
    }

    /// The connection of this number is of no use any more. Of calls that fail together the first one counts.
    pub(super) fn leave(&self, before: usize) {
        let mut state = self.state();
        if state.before == before {
            *state = State { before: before + 1, refused: state.refused, ..State::default() };
        }
    }

    /// Makes a call, whose answer must come within `time`. A connection that failed, gave no answer in time, or leads to a
    /// demoted primary is left; the next one is driven by the runtime of the caller that makes it.
    ///
    /// # Cancel safety
    /// The call may have been carried out when the future is dropped. A connection on which nothing was answered for a second
    /// is left then: callers that are less patient than `time` must not keep a dead one.
    pub(super) async fn call<T>(
        &self,
        time: Duration,
        call: impl AsyncFnOnce(&mut OwnConnection) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let (mut conn, before) = match self.if_up() {
            Some(up) => up,
            None => self.connect().await?,
        };
        let mut under_way = UnderWay::begin(self, before);
        let answer = tokio::time::timeout(time, call(&mut conn)).await.unwrap_or_else(|_| Err(Error::late()));
        under_way.end(&answer);
        answer
    }

    /// The same for a call that only reads, or may be repeated: once more where the connection was there before and turns out
    /// to be broken. It may have been closed long ago.
    pub(super) async fn call_again<T, F>(&self, time: Duration, call: impl Fn(OwnConnection) -> F) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let was_up = self.if_up().is_some();
        match self.call(time, async |conn| call(conn.clone()).await).await {
            Err(e) if was_up && e.is_broken() => self.call(time, async |conn| call(conn.clone()).await).await,
            answer => answer,
        }
    }

    async fn connect(&self) -> Result<(OwnConnection, usize), Error> {
        let connect = || {
            let (client, state) = (self.client.clone(), Arc::clone(&self.state));
            async move {
                // Each call keeps its own time.
                let conn = connect(&client, None).await?;
                let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
                // An attempt that was left for dead may come late, when there is another connection.
                Ok((state.conn.get_or_insert(conn).clone(), state.before))
            }
        };
        self.connecting.attempt(connect).await
    }
}

/// A call that is under way. Dropped before its end, it was given up.
struct UnderWay<'a> {
    slot: &'a Slot,
    before: usize,
    ended: bool,
}

impl UnderWay<'_> {
    fn begin(slot: &Slot, before: usize) -> UnderWay<'_> {
        let mut state = slot.state();
        if state.before == before {
            let now = Instant::now();
            let touched = state.touched.replace(now);
            if touched.is_none_or(|at| now.duration_since(at) > UNANSWERED) {
                state.asked = None;
            }
            state.asked.get_or_insert(now);
        }
        UnderWay { slot, before, ended: false }
    }

    fn end<T>(&mut self, answer: &Result<T, Error>) {
        self.ended = true;
        if let Err(e) = answer
            && e.ends_connection()
            && (e.is_broken() || self.may_refuse())
        {
            return self.slot.leave(self.before);
        }
        let mut state = self.slot.state();
        if state.before == self.before {
            state.asked = None;
        }
    }

    /// Whether the connection may be left for what the server says on it, which another one may say too.
    fn may_refuse(&self) -> bool {
        let mut state = self.slot.state();
        let may = state.refused.is_none_or(|at| at.elapsed() > BETWEEN_REFUSALS);
        if may {
            state.refused = Some(Instant::now());
        }
        may
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        let mut state = self.slot.state();
        if state.before != self.before {
            return;
        }
        state.touched = Some(Instant::now());
        let is_dead = state.asked.is_some_and(|asked| asked.elapsed() > UNANSWERED);
        drop(state);
        if is_dead {
            self.slot.leave(self.before);
        }
    }
}
