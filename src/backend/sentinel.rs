//! Which server is the primary, according to the sentinels.
//!
//! Every process keeps one connection to each sentinel in its address. It asks all of them each second, and at once
//! when one of them reports a new primary (`+switch-master`). This matters because a primary that is demoted by a
//! manual failover still accepts writes for some seconds, and all of those are lost. Each new primary starts a new
//! *primary epoch*: all connections to the former one are dropped, and answers over them are discarded.

use std::sync::{Arc, Weak};
use std::time::Duration;

use redis::{AsyncConnectionConfig, Client, PushInfo, PushKind};
use tokio::runtime::Handle;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::app_runtime::AppRuntime;
use super::classify::{knows_no_primary, not_connected};
use super::connector::Plain;
use super::single_flight::SingleFlight;
use crate::error::{Error, Result};
use crate::join::join_all;
use crate::mutex::Mutex;

const ASK: Duration = Duration::from_secs(1);

/// How long a sentinel may take to answer, or to accept a connection.
const PATIENCE: Duration = Duration::from_secs(1);

/// How long the first query may take.
const FIRST_LOOK: Duration = Duration::from_secs(3);

/// The channel on which a sentinel announces a new primary.
const SWITCHED: &str = "+switch-master";

/// The sentinels of a primary, and what they report.
#[derive(Debug)]
pub(super) struct Sentinels {
    /// The name of the primary in the sentinels' configuration.
    service: String,
    nodes: Vec<Client>,
    known: Mutex<Option<Primary>>,
    primary_epoch: watch::Sender<u64>,
    looking: SingleFlight<Primary>,
    runtime: Arc<AppRuntime>,
    /// The task that listens to them on the runtime of the App.
    listener: Mutex<Option<JoinHandle<()>>>,
    /// Each keeper that listens on its own runtime holds a clone. Meanwhile the `listener` rests.
    keepers: Arc<()>,
}

/// The primary, as sentinels report it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Primary {
    pub(super) host: String,
    pub(super) port: u16,
    /// Grows with each failover.
    epoch: u64,
}

impl Primary {
    fn is_at(&self, other: &Primary) -> bool {
        (&self.host, self.port) == (&other.host, other.port)
    }
}

/// The last answer of a sentinel.
#[derive(Debug)]
enum SentinelWord {
    Primary(Primary),
    /// It knows no primary of this name.
    Unknown,
    Nothing(Error),
}

impl Sentinels {
    /// These sentinels. Does not connect.
    pub(super) fn new(service: String, nodes: Vec<Client>, runtime: Arc<AppRuntime>) -> Arc<Sentinels> {
        let primary_epoch = watch::Sender::new(0);
        Arc::new(Sentinels {
            service,
            nodes,
            known: Mutex::default(),
            primary_epoch,
            looking: SingleFlight::default(),
            runtime,
            listener: Mutex::default(),
            keepers: Arc::default(),
        })
    }

    /// Grows whenever the address gets another primary.
    pub(super) fn primary_epoch(&self) -> u64 {
        *self.primary_epoch.borrow()
    }

    /// Returns when this primary epoch is over.
    pub(super) async fn left(&self, primary_epoch: u64) {
        // Cannot fail: the sender lives in `self`.
        let _ = self.primary_epoch.subscribe().wait_for(|now| *now != primary_epoch).await;
    }

    /// The primary; asks the sentinels if it is not known yet.
    ///
    /// # Errors
    /// `Config` if a sentinel does not know a primary of this name and no other names one; `Connect` if none answers.
    pub(super) async fn primary(self: &Arc<Self>) -> Result<Primary> {
        self.keep_watch();
        let known = self.known.lock().clone();
        match known {
            Some(primary) => Ok(primary),
            None => {
                let look = || {
                    let sentinels = Arc::clone(self);
                    async move { sentinels.first_look().await }
                };
                self.looking.attempt(&Handle::current(), look).await
            }
        }
    }

    async fn first_look(&self) -> Result<Primary> {
        let (sender, _pushes) = unbounded_channel();
        let mut connections: Vec<SentinelConnection> =
            self.nodes.iter().map(|node| SentinelConnection::to(node, &sender)).collect();
        let asked = join_all(connections.iter_mut().map(|connection| connection.ask(&self.service)));
        let words = tokio::time::timeout(FIRST_LOOK, asked).await.map_err(|_| Error::timed_out())?;
        let is_unknown = words.iter().any(|word| matches!(word, SentinelWord::Unknown));
        if let Some(best) = best(&words) {
            // The listener may have been faster.
            return Ok(self.known.lock().get_or_insert(best).clone());
        }
        if is_unknown {
            return Err(super::url::bad(
                "must name a primary that its sentinels know",
                "correct sentinelServiceName: it is the name in `sentinel monitor NAME …`",
            ));
        }
        let failed =
            words.into_iter().find_map(|word| if let SentinelWord::Nothing(e) = word { Some(e) } else { None });
        Err(failed.unwrap_or_else(Error::timed_out))
    }

    /// Starts the task that listens to the sentinels, unless it runs or a keeper listens.
    ///
    /// The keeper must not start this task, which would then run on the keeper's thread.
    pub(super) fn keep_watch(self: &Arc<Self>) {
        if self.a_keeper_listens() {
            return;
        }
        let mut listener = self.listener.lock();
        if listener.as_ref().is_none_or(JoinHandle::is_finished) {
            *listener = self.runtime.spawn(listen(Arc::downgrade(self), self.nodes.clone(), false));
        }
    }

    fn a_keeper_listens(&self) -> bool {
        Arc::strong_count(&self.keepers) > 1
    }

    /// Listens to the sentinels for a keeper while this is polled: handlers may block the runtime of the App.
    pub(super) async fn watch(self: &Arc<Self>) {
        let _listens = Arc::clone(&self.keepers);
        listen(Arc::downgrade(self), self.nodes.clone(), true).await;
    }

    /// Applies what the sentinels report.
    fn hear(&self, words: &[SentinelWord]) {
        let mut known = self.known.lock();
        let Some(next) = heard(known.as_ref(), words) else { return };
        let is_another = known.as_ref().is_some_and(|known| !known.is_at(&next));
        *known = Some(next);
        drop(known);
        if is_another {
            self.primary_epoch.send_modify(|primary_epoch| *primary_epoch += 1);
        }
    }
}

/// Listens to these sentinels while their address is in use. Without `is_keeper` it rests while a keeper listens.
async fn listen(sentinels: Weak<Sentinels>, nodes: Vec<Client>, is_keeper: bool) {
    let none = || SentinelWord::Nothing(Error::Closed);
    let last = Mutex::new(nodes.iter().map(|_| none()).collect::<Vec<_>>());
    // Each in its own loop: a frozen sentinel must not delay the others.
    let listeners = nodes.iter().enumerate().map(|(at, node)| {
        let (sentinels, last) = (sentinels.clone(), &last);
        async move {
            let (sender, mut pushes) = unbounded_channel();
            let mut connection = SentinelConnection::to(node, &sender);
            while let Some(its) = sentinels.upgrade() {
                let rests = !is_keeper && its.a_keeper_listens();
                let service = its.service.clone();
                drop(its);
                let word = if rests {
                    connection.conn = None;
                    none()
                } else {
                    connection.ask(&service).await
                };
                let Some(its) = sentinels.upgrade() else { return };
                {
                    let mut last = last.lock();
                    last[at] = word;
                    its.hear(&last);
                }
                drop(its);
                switched_within(&mut pushes, ASK).await;
            }
        }
    });
    join_all(listeners).await;
}

/// The primary of the highest epoch.
fn best(words: &[SentinelWord]) -> Option<Primary> {
    let primaries =
        words.iter().filter_map(|word| if let SentinelWord::Primary(primary) = word { Some(primary) } else { None });
    primaries.max_by_key(|primary| primary.epoch).cloned()
}

/// The new primary to use, if its address or its epoch has changed. A sentinel that was cut off reports the former
/// primary, so an answer with an older epoch counts only if all agree.
fn heard(known: Option<&Primary>, words: &[SentinelWord]) -> Option<Primary> {
    let best = best(words)?;
    let Some(known) = known else { return Some(best) };
    let all_say_so = || words.iter().all(|word| matches!(word, SentinelWord::Primary(primary) if primary.is_at(&best)));
    let goes = match best.epoch.cmp(&known.epoch) {
        std::cmp::Ordering::Greater => true,
        _ if best == *known => false,
        // The sentinels were set up again by hand, so epochs begin from 0.
        _ => all_say_so(),
    };
    goes.then_some(best)
}

/// Waits until a sentinel announces a new primary, or the time is over.
async fn switched_within(pushes: &mut UnboundedReceiver<PushInfo>, time: Duration) {
    let switched = async {
        while let Some(push) = pushes.recv().await {
            if push.kind == PushKind::Message {
                return;
            }
        }
    };
    let _ = tokio::time::timeout(time, switched).await;
}

/// The connection to one sentinel. It is made again when it breaks.
struct SentinelConnection<'a> {
    node: &'a Client,
    pushes: &'a UnboundedSender<PushInfo>,
    conn: Option<Plain>,
}

impl<'a> SentinelConnection<'a> {
    fn to(node: &'a Client, pushes: &'a UnboundedSender<PushInfo>) -> SentinelConnection<'a> {
        SentinelConnection { node, pushes, conn: None }
    }

    async fn ask(&mut self, service: &str) -> SentinelWord {
        match tokio::time::timeout(PATIENCE, self.asked(service)).await {
            Ok(Ok(word)) => word,
            failed => {
                self.conn = None;
                SentinelWord::Nothing(
                    failed.map_or_else(|_| Error::timed_out(), |answer| answer.err().unwrap_or(Error::Closed)),
                )
            }
        }
    }

    async fn asked(&mut self, service: &str) -> Result<SentinelWord> {
        let unreached = |e: redis::RedisError| not_connected(&e, false);
        let conn = match &mut self.conn {
            Some(conn) => conn,
            None => {
                let config = AsyncConnectionConfig::new()
                    .set_connection_timeout(None)
                    .set_response_timeout(None)
                    .set_push_sender(self.pushes.clone());
                let node = self.node.get_multiplexed_async_connection_with_config(&config);
                let mut conn = node.await.map_err(unreached)?;
                // If the server refuses that, the query each second is enough.
                let _ = conn.subscribe(SWITCHED).await;
                self.conn.insert(conn)
            }
        };
        let ask = |what: &str| {
            let mut cmd = redis::cmd("SENTINEL");
            cmd.arg(what).arg(service);
            cmd
        };
        // Read the epoch before the address. An address newer than its epoch is read again later; an older one would
        // stay in use.
        let epoch = epoch_of(ask("MASTER").query_async(conn).await).map_err(unreached)?;
        let at: Option<(String, u16)> = ask("GET-MASTER-ADDR-BY-NAME").query_async(conn).await.map_err(unreached)?;
        Ok(match (at, epoch) {
            (Some((host, port)), Some(epoch)) => SentinelWord::Primary(Primary { host, port, epoch }),
            _ => SentinelWord::Unknown,
        })
    }
}

/// The epoch of the last failover; `None` if the sentinel knows no primary of the name.
fn epoch_of(
    answer: redis::RedisResult<std::collections::HashMap<String, redis::Value>>,
) -> redis::RedisResult<Option<u64>> {
    match answer {
        Ok(reply) => Ok(reply.get("config-epoch").and_then(|epoch| redis::from_redis_value_ref(epoch).ok())),
        Err(e) if knows_no_primary(&e) => Ok(None),
        Err(e) => Err(e),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn primary(port: u16, epoch: u64) -> Primary {
        Primary { host: "h".to_owned(), port, epoch }
    }

    fn said(all: &[(u16, u64)]) -> Vec<SentinelWord> {
        all.iter().map(|(port, epoch)| SentinelWord::Primary(primary(*port, *epoch))).collect()
    }

    #[test]
    fn the_newest_message_counts_and_a_truncated_one_is_ignored() {
        let known = primary(1, 3);
        let next = |words: Vec<SentinelWord>| heard(Some(&known), &words).map(|primary| (primary.port, primary.epoch));
        assert_eq!(next(said(&[(1, 3), (1, 3), (1, 3)])), None);
        assert_eq!(next(said(&[(1, 3), (2, 4), (1, 3)])), Some((2, 4)), "one sentinel knows of the failover");
        let away = || SentinelWord::Nothing(Error::Closed);
        assert_eq!(next(said(&[(9, 2)]).into_iter().chain([away(), away()]).collect()), None, "all others are away");
        assert_eq!(next(said(&[(9, 2)]).into_iter().chain([SentinelWord::Unknown]).collect()), None);
        assert_eq!(next(said(&[(9, 2), (9, 2), (1, 3)])), None);
        assert_eq!(next(said(&[(9, 0), (9, 0), (9, 1)])), Some((9, 1)), "set up again");
        assert_eq!(next(said(&[(1, 4), (1, 3)])), Some((1, 4)), "the same, with a newer epoch");
        assert_eq!(next(vec![SentinelWord::Unknown, SentinelWord::Nothing(Error::Closed)]), None);
        assert_eq!(heard(None, &said(&[(1, 0), (2, 1)])), Some(primary(2, 1)));
    }

    #[tokio::test]
    async fn the_first_primary_and_the_same_one_again_are_not_changes() {
        let sentinels = Sentinels::new("main".to_owned(), Vec::new(), Arc::default());
        sentinels.hear(&said(&[(1, 0)]));
        sentinels.hear(&said(&[(1, 2)]));
        assert_eq!(sentinels.primary_epoch(), 0);
        let left = tokio::time::timeout(Duration::from_millis(1), sentinels.left(0)).await;
        assert!(left.is_err());
        sentinels.hear(&said(&[(2, 3)]));
        sentinels.left(0).await;
        assert_eq!((sentinels.primary_epoch(), sentinels.known.lock().clone()), (1, Some(primary(2, 3))));
    }
}
