//! How workers learn of wake markers in a cluster. Each call that sets a marker or puts it back also publishes on a
//! channel with the marker's name. A subscriber then tries to take the marker; only one succeeds.

use std::sync::Arc;
use std::time::Duration;

use redis::{PushInfo, PushKind};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::address::Role;
use super::classify::classify;
use super::cluster::Cluster;
use super::connection::{Connection, OwnConnection};
use super::connector::Plain;
use super::engine::Store;
use super::hints::{hint_of, ping};
use super::keys::{Key, TaskKeys};
use super::reply::PlainCall;
use super::timeouts::CONNECT_TIMEOUT;
use crate::error::{Error, Result};
use crate::join::try_join_all;

pub(crate) use super::slot_map::ClusterNode;

/// How often to ping the node: it may have nothing to send for hours.
const PING: Duration = Duration::from_secs(2);

/// A connection to a node that is notified of its wake markers.
pub(crate) struct WakeSubscription {
    conn: Plain,
    pushes: UnboundedReceiver<PushInfo>,
    cluster: Arc<Cluster>,
    node: ClusterNode,
    primary_epoch: Option<u64>,
}

impl Store {
    /// The node that has the wake marker of the task, if it is known.
    pub(crate) fn node_of(&self, keys: &TaskKeys) -> Option<ClusterNode> {
        self.address.cluster()?.node_of_key(keys.get(Key::Wake))
    }

    /// Subscribes at a node to the wake markers of these tasks.
    ///
    /// # Errors
    /// As every call; also if the node no longer has one of them.
    pub(crate) async fn wake_subscription(&self, node: &ClusterNode, tasks: &[&TaskKeys]) -> Result<WakeSubscription> {
        let cluster = Arc::clone(self.address.cluster().ok_or(Error::Closed)?);
        let primary_epoch = cluster.primary_epoch_of_node(node);
        let (sender, pushes) = unbounded_channel();
        let listening = async {
            let conn = self.address.listen(Some(node), Role::Wake, sender).await?;
            // One call for each task, since their slots differ; all at once, since a round trip may take long.
            let subscribed = tasks.iter().map(|keys| {
                let mut conn = conn.clone();
                async move {
                    let mut subscribe = redis::cmd("SSUBSCRIBE");
                    subscribe.arg(keys.get(Key::Wake));
                    let answer = conn.req_packed_command(&subscribe).await.and_then(redis::Value::extract_error);
                    answer.map(drop).map_err(|e| classify("wake", e))
                }
            });
            try_join_all(subscribed).await?;
            Ok(conn)
        };
        let listening = tokio::time::timeout(CONNECT_TIMEOUT, listening).await;
        match listening.map_err(|_| Error::timed_out()).and_then(|conn| conn) {
            Ok(conn) => Ok(WakeSubscription { conn, pushes, cluster, node: node.clone(), primary_epoch }),
            Err(e) => {
                cluster.suspect(node);
                Err(e)
            }
        }
    }
}

impl WakeSubscription {
    /// Reports the name of each marker that is set. Returns if the node loses its role, does not answer, or gives up
    /// one of these slots.
    pub(crate) async fn listen(mut self, mut heard: impl FnMut(&str), mut answered: impl FnMut()) -> Error {
        let mut own = OwnConnection::One(self.conn);
        let pings = async {
            loop {
                tokio::time::sleep(PING).await;
                if let Err(e) = ping(&mut own).await {
                    return e;
                }
                answered();
            }
        };
        let pushes = async {
            while let Some(PushInfo { kind, data }) = self.pushes.recv().await {
                match kind {
                    PushKind::SMessage => {
                        if let Some((channel, _)) = hint_of(data) {
                            heard(&channel);
                        }
                    }
                    // No call asked for this: the slot has moved. The client may also have mistaken it for the answer
                    // to a call.
                    PushKind::SUnsubscribe | PushKind::Disconnection => break,
                    _ => {}
                }
            }
            Error::Closed
        };
        let e = tokio::select! {
            e = pings => e,
            e = pushes => e,
            () = self.cluster.over(self.primary_epoch) => Error::primary_changed(),
        };
        self.cluster.suspect(&self.node);
        e
    }
}

/// Takes the wake marker of the task, if it is there.
pub(crate) async fn take(conn: &mut impl Connection, keys: &TaskKeys) -> Result<bool> {
    let popped: Vec<String> = redis::cmd("ZPOPMIN").arg(keys.get(Key::Wake)).call(conn, "wake").await?;
    Ok(!popped.is_empty())
}

/// Puts the marker back and publishes that, so that a worker that can use it takes it.
pub(crate) async fn put_back(conn: &mut impl Connection, keys: &TaskKeys) -> Result<()> {
    let is_new: bool = redis::cmd("ZADD").arg(keys.get(Key::Wake)).arg(0).arg("marker").call(conn, "wake").await?;
    if is_new {
        redis::cmd("SPUBLISH").arg(keys.get(Key::Wake)).arg("w").call::<()>(conn, "wake").await?;
    }
    Ok(())
}
