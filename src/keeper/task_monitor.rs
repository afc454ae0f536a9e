//! The keeper's view of one task.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use tokio::sync::Notify;

use super::sweep_progress::SweepProgress;
use crate::backend::classify::classify;
use crate::backend::connection::OwnConnection;
use crate::backend::keys::Key;
use crate::clock::{self, Moment};
use crate::error::Error;
use crate::mutex::Mutex;
use crate::runtime::task::TaskRuntime;
use crate::stall::witness::{DetectorReset, Witness};

/// The keeper's view of one task.
pub(crate) struct TaskMonitor {
    pub(crate) task: Arc<TaskRuntime>,
    pub(super) witness: Mutex<Witness>,
    /// Notified when the witness has new information.
    pub(crate) seen: Notify,
    pub(super) pass: Mutex<SweepProgress>,
    /// Notified when ticks may be due sooner than expected.
    #[cfg(feature = "schedules")]
    pub(super) look_now: Notify,
    /// When unique keys were last removed, and the cursor of the next call.
    pub(super) key_scan: Mutex<(Moment, u64)>,
    /// When what is left of lanes was last removed, and where the next pass continues: place and cursor.
    pub(super) lane_scan: Mutex<(Moment, usize, String)>,
    /// When the time series of the task was last recorded.
    pub(super) recorded: Mutex<Moment>,
    /// The connection for the calls of this task, and its number. It is kept for as long as it answers this task:
    /// another one may lead to another server, which restarts the watch.
    pub(super) connection: Mutex<Option<(OwnConnection, u64)>>,
    /// Connections up to this number did not answer this task in time. Other tasks, with other periods, may use them.
    given_up: AtomicU64,
}

impl TaskMonitor {
    pub(super) fn new(task: Arc<TaskRuntime>, now: Moment) -> TaskMonitor {
        TaskMonitor {
            witness: Mutex::new(Witness::new(task.beat_period(), now)),
            task,
            seen: Notify::new(),
            pass: Mutex::default(),
            #[cfg(feature = "schedules")]
            look_now: Notify::new(),
            key_scan: Mutex::new((now, 0)),
            lane_scan: Mutex::new((now, 0, String::new())),
            recorded: Mutex::new(now),
            connection: Mutex::default(),
            given_up: AtomicU64::new(0),
        }
    }

    pub(super) fn given_up(&self) -> u64 {
        self.given_up.load(std::sync::atomic::Ordering::SeqCst)
    }

    pub(super) fn give_up(&self, number: u64) {
        self.given_up.fetch_max(number, std::sync::atomic::Ordering::SeqCst);
        self.lost_connection(|own| own <= number, DetectorReset::NoAnswer);
        self.witness.lock().broken(clock::now(), DetectorReset::NoAnswer);
    }

    /// A heartbeat was answered over this connection.
    pub(super) fn answered_over(&self, conn: &OwnConnection) {
        let number = conn.number_for(self.task.keys.get(Key::Meta));
        self.witness.lock().answered_over(clock::now(), number);
    }

    /// The connection to the server that answered the last heartbeat, for calls that must reach the same server.
    ///
    /// # Errors
    /// As after a change of the primary, if calls go over another connection by now.
    pub(super) async fn watched_connection(&self, conn: &OwnConnection) -> Result<OwnConnection, Error> {
        let key = self.task.keys.get(Key::Meta);
        let connection = conn.at(key).await.map_err(|e| classify("sweep", e))?;
        if self.witness.lock().is_of(connection.number_for(key)) {
            Ok(connection)
        } else {
            Err(Error::primary_changed())
        }
    }

    /// Drops the connection if its number matches; the watch restarts over another one.
    pub(super) fn lost_connection(&self, which: impl Fn(u64) -> bool, cause: DetectorReset) {
        if self.connection.lock().take_if(|(_, number)| which(*number)).is_some() {
            self.witness.lock().broken(clock::now(), cause);
        }
    }
}
