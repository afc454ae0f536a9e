//! The connections over which a heartbeat reaches Redis.
//!
//! | connection | used when | counts for the witness |
//! |---|---|---|
//! | own | always first | yes |
//! | new | a tenth of the interval has passed without all answers (a sixth while answers come), or our own connection failed | restarts its watch |
//! | shared | then, once no answer has come for a tenth of the interval, if the connection of dispatch and settle is up | no |
//!
//! A heartbeat is given up a period later, but not while answers come: to repeat the calls would load a busy server more.

use std::sync::atomic::{AtomicU64, Ordering};

use super::heartbeat_batch::HeartbeatRound;
use super::task_monitor::TaskMonitor;
use super::{Keeper, NumberedConnection};
use crate::backend::call_context;
use crate::backend::engine::Store;
use crate::error::Error;
use crate::stall::cadence;

/// Over which connection a heartbeat was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Route {
    Own,
    New,
    Shared,
}

/// Sends the calls of a heartbeat over our own connection, and after a tenth of the interval over the others too.
/// Returns which connection brought the last answer.
pub(super) async fn over_any_route(
    keeper: &Keeper,
    watch: &TaskMonitor,
    round: &HeartbeatRound<'_>,
) -> Result<Route, Error> {
    let (period, interval) = (watch.task.beat_period(), watch.task.options.interval);
    // A slow link still works, so give it more time.
    let first_wait = cadence::first_wait(interval, watch.pass.lock().round_trip());
    let number = AtomicU64::new(0);
    // The connections of other tasks may be as dead as ours.
    let newest = keeper.newest_number();
    let own = async {
        let (conn, its_number) = keeper.connection(watch).await?;
        number.store(its_number, Ordering::SeqCst);
        let answer = keeper.steady(its_number, round.over(&conn)).await;
        answer.inspect(|()| watch.answered_over(&conn)).inspect_err(|e| keeper.failed(watch, its_number, e))
    };
    tokio::pin!(own);
    let mut failure = None;
    let mut first = tokio::time::timeout(first_wait, &mut own).await;
    if first.is_err() && round.is_answered_within(first_wait) {
        first = tokio::time::timeout(cadence::longest_first_wait(interval) - first_wait, &mut own).await;
    }
    match first {
        Ok(Ok(())) => return Ok(Route::Own),
        // A server that is not ready or refuses may be the wrong one; a new connection may lead to another.
        Ok(Err(e)) if e.ends_connection() || e.is_connection() => failure = Some(e),
        Ok(Err(e)) => return Err(e),
        Err(_) => {}
    }
    let new = over_new(keeper, watch, round, &number, newest);
    let shared = async {
        // A busy server must not get each call three times.
        while round.is_answered_within(first_wait) {
            tokio::time::sleep(first_wait).await;
        }
        over_shared(&keeper.worker.store, round).await
    };
    tokio::pin!(new, shared);
    let end = tokio::time::sleep(period);
    tokio::pin!(end);
    let (mut own_open, mut new_open, mut shared_open) = (failure.is_none(), true, true);
    loop {
        tokio::select! {
            biased;
            answer = &mut own, if own_open => match answer {
                Ok(()) => return Ok(Route::Own),
                Err(e) => (own_open, failure) = (false, Some(e)),
            },
            answer = &mut new, if new_open => match answer {
                Ok(connection) => {
                    watch.give_up(number.load(Ordering::SeqCst));
                    watch.answered_over(&connection.0);
                    *watch.connection.lock() = Some(connection);
                    return Ok(Route::New);
                }
                Err(e) => {
                    new_open = false;
                    failure.get_or_insert(e);
                }
            },
            answer = &mut shared, if shared_open => match answer {
                Ok(()) => {
                    watch.give_up(number.load(Ordering::SeqCst));
                    return Ok(Route::Shared);
                }
                Err(_) => shared_open = false,
            },
            () = &mut end, if own_open || new_open || shared_open => {
                if round.is_answered_within(first_wait) {
                    end.as_mut().reset(tokio::time::Instant::now() + first_wait);
                    continue;
                }
                watch.give_up(number.load(Ordering::SeqCst));
                return Err(failure.unwrap_or_else(call_context::timed_out));
            }
            else => return Err(failure.unwrap_or_else(call_context::timed_out)),
        }
    }
}

/// Sends the calls over a new connection and returns it. `own` is the number of our own connection, once it is up, and
/// `newest` that of the newest one when the heartbeat began.
async fn over_new(
    keeper: &Keeper,
    watch: &TaskMonitor,
    round: &HeartbeatRound<'_>,
    own: &AtomicU64,
    newest: u64,
) -> Result<NumberedConnection, Error> {
    let place = keeper.place_of(watch);
    let (mut conn, mut number) = keeper.connect(place, own.load(Ordering::SeqCst).max(newest)).await?;
    if number == own.load(Ordering::SeqCst) {
        // This is our own connection, made meanwhile. It may not answer.
        (conn, number) = keeper.connect(place, number).await?;
    }
    let answer = keeper.steady(number, round.over(&conn)).await;
    answer.inspect_err(|e| keeper.failed(watch, number, e))?;
    Ok((conn, number))
}

/// Sends the calls over the connection of dispatch and settle, if it is up.
async fn over_shared(store: &Store, round: &HeartbeatRound<'_>) -> Result<(), Error> {
    let primary_epoch = store.primary_epoch();
    let (conn, before) = store.shared_if_up().ok_or(Error::Closed)?;
    let answer = store.steady_since(primary_epoch, round.over(&conn)).await;
    answer.inspect_err(|e| store.shared_failed(before, e))
}
