//! Listens for cancel hints. The next heartbeat reports a cancel whose hint was missed.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;

use super::Keeper;
use crate::backend::hints;
use crate::backoff::{DENIED_PAUSE, Pauses};
use crate::error::Error;
use crate::runtime::incidents::NO_TASK;

/// How often to ping the server: this connection may be idle for hours.
const PING: Duration = Duration::from_secs(2);

pub(super) async fn run(keeper: Arc<Keeper>) {
    let mut pauses = Pauses::until_answered();
    loop {
        let listening = listen(&keeper, || {
            pauses.reset();
            keeper.answered("hints", NO_TASK);
        });
        let Err(e) = keeper.worker.store.steady(listening).await;
        let pause = if e.is_lasting() { DENIED_PAUSE } else { pauses.next() };
        if e.is_refusal() {
            keeper.failed_at("hints", NO_TASK, &e);
        } else {
            keeper.log.line(move || tracing::debug!(error = %e.chain(), "the connection for cancel hints dropped"));
        }
        tokio::time::sleep(pause).await;
    }
}

/// Listens until the connection fails. Calls `answered` each time the server has answered.
async fn listen(keeper: &Keeper, mut answered: impl FnMut()) -> Result<std::convert::Infallible, Error> {
    let tasks: Vec<_> = keeper.watches.iter().map(|watch| &*watch.task.keys).collect();
    let (mut conn, mut hints) = keeper.worker.store.cancel_hints(&tasks).await?;
    // A hint may have been missed while no connection listened.
    keeper.watches.iter().for_each(|watch| watch.task.beat_now.notify_one());
    #[cfg(feature = "schedules")]
    keeper.watches.iter().for_each(|watch| watch.look_now.notify_one());
    let pings = async {
        loop {
            tokio::time::sleep(PING).await;
            if let Err(e) = hints::ping(&mut conn).await {
                return e;
            }
            answered();
        }
    };
    tokio::pin!(pings);
    loop {
        let (channel, id) = tokio::select! {
            hint = hints.next() => match hint {
                Some(hint) => hint,
                None => return Err(Error::Closed),
            },
            e = &mut pings => return Err(e),
        };
        if id == keeper.worker.id.as_str() {
            keeper.resumed.notify_one();
            keeper.named.notify_one();
        }
        for watch in keeper.watches.iter().filter(|watch| watch.task.keys.cancel_channel() == channel) {
            watch.task.held.ring(&id);
            #[cfg(feature = "schedules")]
            if id == super::schedules::HINT {
                watch.look_now.notify_one();
            }
        }
    }
}
