//! The tables of a task: one, or one for each partition.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use tokio::sync::watch;

use super::keys::TaskKeys;
use crate::crc16::crc16;
use crate::limits::MOST_PARTITIONS;
use crate::mutex::Mutex;

/// The tables of a task, as far as this process knows: one, until it learns of partitions. All users of an App share
/// them.
#[derive(Debug)]
pub(crate) struct Tables {
    prefix: String,
    task: String,
    is_cluster: bool,
    parts: AtomicU32,
    known: Mutex<KnownTables>,
    /// The JSON pointer to the key in the input of each job, if the jobs have keys.
    pointer: Mutex<Option<Arc<str>>>,
    /// Signals that the number of partitions of any task has changed.
    layouts: Arc<watch::Sender<()>>,
}

#[derive(Debug)]
struct KnownTables {
    tables: Arc<[Arc<TaskKeys>]>,
    /// When their number was last read.
    asked: Option<Instant>,
}

impl Tables {
    pub(super) fn new(prefix: &str, task: &str, is_cluster: bool, layouts: Arc<watch::Sender<()>>) -> Tables {
        let tables: Arc<[_]> = Arc::new([Arc::new(TaskKeys::new(prefix, task, is_cluster))]);
        let known = Mutex::new(KnownTables { tables, asked: None });
        let (prefix, task, parts) = (prefix.to_owned(), task.to_owned(), AtomicU32::new(1));
        Tables { prefix, task, is_cluster, parts, known, pointer: Mutex::default(), layouts }
    }

    /// When their number was last read.
    pub(super) fn asked_at(&self) -> Option<Instant> {
        self.known.lock().asked
    }

    /// The known number of tables.
    pub(crate) fn parts(&self) -> u32 {
        self.parts.load(Ordering::Acquire)
    }

    /// The pointer to the key in the input of each job, as far as it is known.
    pub(crate) fn pointer(&self) -> Option<Arc<str>> {
        self.pointer.lock().clone()
    }

    /// Records the pointer to the keys.
    pub(crate) fn learn_pointer(&self, pointer: &str) {
        *self.pointer.lock() = Some(pointer.into());
    }

    pub(crate) fn all(&self) -> Arc<[Arc<TaskKeys>]> {
        Arc::clone(&self.known.lock().tables)
    }

    /// The first table. It has the options of the task, however many tables there are.
    pub(crate) fn first(&self) -> Arc<TaskKeys> {
        Arc::clone(&self.known.lock().tables[0])
    }

    /// The table of a job.
    pub(crate) fn of(&self, id: &str) -> Arc<TaskKeys> {
        let known = self.known.lock();
        Arc::clone(&known.tables[part_of(id, known.tables.len())])
    }

    /// Records how many there are.
    pub(crate) fn learn(&self, count: u32) {
        let count = count.clamp(1, MOST_PARTITIONS);
        let mut known = self.known.lock();
        known.asked = Some(Instant::now());
        if known.tables.len() == count as usize {
            return;
        }
        let keys = |part| Arc::new(TaskKeys::of_part(&self.prefix, &self.task, (part, count), self.is_cluster));
        known.tables = (0..count).map(keys).collect();
        self.parts.store(count, Ordering::Release);
        drop(known);
        self.layouts.send_replace(());
    }
}

/// The partition of a job, if there are `parts` partitions.
pub(crate) fn part_of(id: &str, parts: usize) -> usize {
    if parts <= 1 { 0 } else { usize::from(crc16(id.as_bytes())) % parts }
}
