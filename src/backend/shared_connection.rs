//! A connection that many calls share.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt;

use super::address::{Address, Role};
use super::call_context;
use super::connection::OwnConnection;
use super::single_flight::SingleFlight;
use super::timeouts::Silence;
use crate::error::{Error, Result};
use crate::mutex::Mutex;

/// The shortest time between two connections that are dropped because of the server's refusals.
const BETWEEN_REFUSALS: Duration = Duration::from_secs(1);

/// A connection that is made when it is first needed. If it fails, it is dropped, and the next call makes another.
#[derive(Debug)]
pub(crate) struct SharedConnection {
    address: Arc<Address>,
    role: Role,
    state: Arc<Mutex<ConnectionState>>,
    connecting: SingleFlight<Up>,
}

#[derive(Clone, Debug)]
struct Up {
    conn: OwnConnection,
    /// Its number.
    before: usize,
    /// The primary epoch of its primary.
    primary_epoch: u64,
}

#[derive(Debug, Default)]
struct ConnectionState {
    conn: Option<OwnConnection>,
    /// The primary epoch of its primary.
    primary_epoch: u64,
    /// How many connections were made before it; also its number.
    before: usize,
    silence: Silence,
    /// When a connection was last dropped because of a refusal.
    refused: Option<Instant>,
}

impl ConnectionState {
    fn up(&self) -> Option<Up> {
        let (before, primary_epoch) = (self.before, self.primary_epoch);
        self.conn.clone().map(|conn| Up { conn, before, primary_epoch })
    }
}

impl SharedConnection {
    pub(super) fn new(address: Arc<Address>, role: Role) -> SharedConnection {
        SharedConnection { address, role, state: Arc::default(), connecting: SingleFlight::default() }
    }

    /// The open connection with its number; `None` if none is open.
    pub(super) fn if_up(&self) -> Option<(OwnConnection, usize)> {
        self.up().map(|up| (up.conn, up.before))
    }

    fn up(&self) -> Option<Up> {
        self.address.keep_watch();
        let up = self.state.lock().up()?;
        if up.primary_epoch == self.address.primary_epoch() {
            return Some(up);
        }
        self.leave(up.before);
        None
    }

    /// Drops the connection of this number. If several calls fail together, the first one counts.
    pub(super) fn leave(&self, before: usize) {
        let mut state = self.state.lock();
        if state.before == before {
            *state = ConnectionState { before: before + 1, refused: state.refused, ..ConnectionState::default() };
        }
    }

    /// Records that a call on the connection of this number failed. Returns whether the connection is dropped for it.
    /// In a cluster, connections to nodes are dropped one by one instead.
    pub(super) fn failed(&self, before: usize, e: &Error) -> bool {
        let ends = !self.address.is_cluster() && e.ends_connection() && (e.is_broken() || self.may_refuse());
        if ends {
            self.leave(before);
        }
        ends
    }

    /// Whether the connection may be dropped because of a refusal. The next connection may be refused for the same
    /// reason, so this is limited.
    fn may_refuse(&self) -> bool {
        let mut state = self.state.lock();
        let may = state.refused.is_none_or(|at| at.elapsed() > BETWEEN_REFUSALS);
        if may {
            state.refused = Some(Instant::now());
        }
        may
    }

    /// Makes a call. Its answer must come within `time`. If the connection fails, does not answer in time, or leads to
    /// a demoted primary, it is dropped, and the next call makes another.
    ///
    /// # Cancel safety
    /// The call may have been carried out when the future is dropped. The connection is dropped once abandoned calls
    /// have waited for a second in total without any answer. So callers with a shorter time-out do not keep a dead
    /// connection alive.
    pub(crate) async fn call<T>(
        &self,
        time: Duration,
        call: impl AsyncFnOnce(&mut OwnConnection) -> Result<T>,
    ) -> Result<T> {
        let Up { mut conn, before, primary_epoch } = match self.up() {
            Some(up) => up,
            None => self.connect().boxed().await?,
        };
        let mut under_way = UnderWay::begin(self, before);
        let answer =
            call_context::within(time, Error::late, self.address.steady_since(primary_epoch, call(&mut conn))).await;
        under_way.end(answer.as_ref().err());
        answer.map_err(|e| e.at(self.address.place()))
    }

    /// The same for a call that only reads or may be repeated. If a connection that was open turns out to be broken,
    /// repeats the call once: the server may have closed it long ago.
    pub(super) async fn call_again<T, F>(&self, time: Duration, call: impl Fn(OwnConnection) -> F) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        let mut was_up = self.if_up().is_some();
        loop {
            match self.call(time, async |conn| call(conn.clone()).await).await {
                Err(e) if was_up && e.is_broken() => was_up = false,
                answer => return answer,
            }
        }
    }

    async fn connect(&self) -> Result<Up> {
        let runtime = self.address.runtime().handle().ok_or(Error::Closed)?;
        let connect = || {
            let (address, role, state) = (Arc::clone(&self.address), self.role, Arc::clone(&self.state));
            async move {
                // An attempt that has just ended may have made a connection.
                let primary_epoch = address.primary_epoch();
                let up = state.lock().up();
                if let Some(up) = up.filter(|up| up.primary_epoch == primary_epoch) {
                    return Ok(up);
                }
                // Each call has its own time-out.
                let conn = address.connect(role, None).await?;
                let mut state = state.lock();
                // Drop a connection to the former primary.
                let before = state.before + usize::from(state.conn.is_some());
                *state = ConnectionState { before, refused: state.refused, ..ConnectionState::default() };
                (state.conn, state.primary_epoch) = (Some(conn.clone()), primary_epoch);
                Ok(Up { conn, before: state.before, primary_epoch })
            }
        };
        self.connecting.attempt(&runtime, connect).await
    }
}

/// A call that is under way. If it is dropped before its end, the caller gave up.
struct UnderWay<'a> {
    slot: &'a SharedConnection,
    before: usize,
    begun: Instant,
    ended: bool,
}

impl UnderWay<'_> {
    fn begin(slot: &SharedConnection, before: usize) -> UnderWay<'_> {
        UnderWay { slot, before, begun: Instant::now(), ended: false }
    }

    fn end(&mut self, failure: Option<&Error>) {
        self.ended = true;
        if let Some(e) = failure
            && self.slot.failed(self.before, e)
        {
            return;
        }
        let mut state = self.slot.state.lock();
        if state.before == self.before {
            state.silence.answered();
        }
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        let mut state = self.slot.state.lock();
        if state.before != self.before {
            return;
        }
        let is_dead = state.silence.given_up(self.begun);
        drop(state);
        if is_dead && !self.slot.address.is_cluster() {
            self.slot.leave(self.before);
        }
    }
}
