//! Logs for the keeper, on a thread of its own: a subscriber is the user's code, and may block forever or panic.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use tracing::Dispatch;
use tracing::subscriber::NoSubscriber;

/// How many lines may wait. More are counted and dropped.
const ROOM: usize = 4096;

type LogLine = Box<dyn FnOnce() + Send>;

/// Accepts log lines and never waits.
#[derive(Clone, Debug)]
pub(crate) struct Log {
    lines: SyncSender<LogLine>,
    dropped: Arc<AtomicU64>,
}

impl Log {
    /// Starts the thread, which logs to the subscriber of the caller. It ends when the last clone is dropped and all
    /// lines are logged; no other thread waits for it.
    pub(super) fn start() -> std::io::Result<Log> {
        let (lines, waiting) = sync_channel(ROOM);
        let dropped = Arc::new(AtomicU64::new(0));
        let (subscriber, lost) = (tracing::dispatcher::get_default(Dispatch::clone), Arc::clone(&dropped));
        let run = move || {
            if subscriber.is::<NoSubscriber>() {
                // A subscriber that is installed later is global.
                say(&waiting, &lost);
            } else {
                tracing::dispatcher::with_default(&subscriber, || say(&waiting, &lost));
            }
        };
        std::thread::Builder::new().name("heartline-log".to_owned()).spawn(run)?;
        Ok(Log { lines, dropped })
    }

    /// Queues a line, which is evaluated on the log thread.
    pub(crate) fn line(&self, line: impl FnOnce() + Send + 'static) {
        if self.lines.try_send(Box::new(line)).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn say(waiting: &Receiver<LogLine>, dropped: &AtomicU64) {
    for line in waiting {
        // If the subscriber panics, only its line is lost.
        let _ = std::panic::catch_unwind(AssertUnwindSafe(line));
        let lines = dropped.swap(0, Ordering::Relaxed);
        if lines > 0 {
            let warn = || tracing::warn!(lines, "the subscriber was too slow: log lines of the keeper were dropped");
            let _ = std::panic::catch_unwind(AssertUnwindSafe(warn));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn a_line_that_blocks_or_panics_blocks_no_caller() {
        let log = Log::start().unwrap();
        let (go, blocked) = channel::<()>();
        log.line(move || blocked.recv().unwrap());
        (0..2 * ROOM).for_each(|_| log.line(|| {}));
        assert!(log.dropped.load(Ordering::Relaxed) >= ROOM as u64 - 1);
        go.send(()).unwrap();
        let (said, heard) = channel();
        // The thread continues, and logs the lines that waited first.
        while log.lines.try_send(Box::new(|| panic!("a subscriber that panics"))).is_err() {
            std::thread::yield_now();
        }
        while {
            let said = said.clone();
            log.lines.try_send(Box::new(move || said.send(()).unwrap())).is_err()
        } {
            std::thread::yield_now();
        }
        heard.recv().unwrap();
    }
}
