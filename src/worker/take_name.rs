//! Takes an exclusive name, and the jobs of the worker that had it.

use std::collections::HashMap;
use std::time::Duration;

use super::builder::Worker;
use crate::backend::sweep::{TakeBack, TakeReason};
use crate::backend::workers::SILENT_AFTER;
use crate::clock;
use crate::error::Error;
use crate::escape::Escaped;
use crate::options::validate;
use crate::runtime::death_proof::DeathProof;

/// A live worker gives a sign of life within this time after it was asked to stop. Its keeper answers a hint at once. If the hint is
/// lost, the sign is the presence, which it writes every 5 s.
const SIGN: Duration = Duration::from_secs(7);

/// A live worker reads the request within this time, even if the hint did not reach it.
const READS: Duration = Duration::from_secs(10);

/// The pause between reads of its presence: before it has given a sign of life, and afterwards.
const LOOK: [Duration; 2] = [Duration::from_millis(50), Duration::from_millis(250)];

/// The presence of a worker.
type Presence = HashMap<String, String>;

impl Worker {
    /// Fields in the presence of a worker with a name: the name, and how long a stop takes.
    pub(super) fn named_facts(&self, name: &str) -> [(String, String); 2] {
        let longest = self.max_shutdown_time().as_millis().to_string();
        [("name".to_owned(), name.to_owned()), ("longestShutdown".to_owned(), longest)]
    }

    /// Takes the name, and the jobs of the worker that had it, in our tasks and in those that its presence names. If that worker is
    /// alive, first asks it to stop and waits.
    pub(super) async fn take_name(&self, name: &str) -> Result<(), Error> {
        let own = self.id.as_str();
        let before = self.store.call(async |conn| self.store.take_name(conn, name, own).await).await?;
        for worker in &before {
            let said = self.presence_of(worker).await?;
            let Some(word) = self.outgoing(name, worker, &said).await? else { continue };
            let mut jobs = 0;
            for task in self.tasks_of(&said) {
                match self.take_jobs(task, worker, word).await {
                    Ok(taken) => jobs += taken,
                    Err(e) if e.is_retryable() => return Err(e),
                    // This worker may not have the task, so the error must not keep it from starting.
                    Err(e) => {
                        tracing::warn!(task, worker = %Escaped(worker), error = %e.chain(),
                            "jobs of the worker that had the name could not be taken; the sweep recovers them");
                    }
                }
            }
            let note =
                async |conn: &mut _| self.store.note_death(conn, worker, own, DeathProof::Replaced.as_str()).await;
            if let Err(e) = self.store.call(note).await {
                tracing::debug!(worker = %Escaped(worker), error = %e.chain(), "the end of a worker could not be recorded");
            }
            tracing::info!(worker_id = %self.id, name, worker = %Escaped(worker), jobs, "took over the name and the jobs of a worker");
        }
        if before.is_empty() {
            return Ok(());
        }
        self.store.call(async |conn| self.store.drop_names(conn, name, &before).await).await
    }

    async fn presence_of(&self, worker: &str) -> Result<Presence, Error> {
        self.store.call(async |conn| self.store.presence(conn, worker).await).await
    }

    /// The tasks in the worker's presence. Our own if it has no presence any more.
    fn tasks_of<'a>(&'a self, said: &'a Presence) -> Vec<&'a str> {
        let of_ours = || self.tasks.iter().map(|task| &*task.name).collect();
        let names: Vec<&str> = said.get("tasks").map_or_else(of_ours, |names| names.split_whitespace().collect());
        names.into_iter().filter(|name| validate::task_name(name).is_ok()).collect()
    }

    /// Asks the worker that had the name to stop, as a signal would. While it is alive, waits until its grace is over. Returns how to
    /// take its jobs. If it gives no sign of life, `Proof`, which counts a stall. If it is alive and still holds jobs after its grace,
    /// `Replaced`. `None` if it has stopped and holds nothing.
    async fn outgoing(&self, name: &str, worker: &str, said: &Presence) -> Result<Option<TakeReason<'static>>, Error> {
        if has_stopped(said) {
            return Ok(None);
        }
        let longest = said.get("longestShutdown").and_then(|ms| ms.parse().ok()).map(Duration::from_millis);
        let (Some(longest), Some(task)) = (longest, self.tasks_of(said).first().copied()) else {
            return Ok(Some(TakeReason::Proof));
        };
        // Compare with our own presence, which was written a moment ago by the same clock.
        let silent_ms = seen_ms(&self.presence_of(self.id.as_str()).await?).saturating_sub(seen_ms(said));
        if said.contains_key("deadAt") || Duration::from_millis(silent_ms) > SILENT_AFTER {
            return Ok(Some(TakeReason::Proof));
        }
        let tables = self.store.tables(task).all();
        let Some(keys) = tables.first() else { return Ok(Some(TakeReason::Proof)) };
        match self.store.call(async |conn| self.store.ask_to_stop(conn, worker, self.id.as_str(), keys).await).await {
            Err(e) if e.is_retryable() => return Err(e),
            // The request may have been written anyway, and the worker may read it.
            Err(e) => {
                tracing::debug!(worker = %Escaped(worker), error = %e.chain(), "a worker could not be asked to stop")
            }
            Ok(()) => {}
        }
        let (asked, mut last_seen, mut sign_at, mut lives) = (clock::now(), seen_ms(said), clock::now(), false);
        loop {
            tokio::time::sleep(LOOK[usize::from(lives)]).await;
            let (said, now) = (self.presence_of(worker).await?, clock::now());
            if has_stopped(&said) {
                return Ok(None);
            }
            if seen_ms(&said) > last_seen {
                if !std::mem::replace(&mut lives, true) {
                    tracing::info!(worker_id = %self.id, name, worker = %Escaped(worker), ?longest,
                        "waiting for the worker that has the name to stop");
                }
                (last_seen, sign_at) = (seen_ms(&said), now);
            }
            if now.since(sign_at) > if lives { SILENT_AFTER } else { SIGN } {
                return Ok(Some(TakeReason::Proof));
            }
            if now.since(asked) > longest.saturating_add(READS) {
                return Ok(Some(TakeReason::Replaced));
            }
        }
    }

    /// Takes the jobs of a task that the worker holds. Returns how many.
    async fn take_jobs(&self, task: &str, worker: &str, word: TakeReason<'_>) -> Result<usize, Error> {
        let (dead, mut taken) = ([worker.to_owned()], 0);
        for keys in self.store.tables(task).asked(&self.store).await?.iter() {
            let mut taking = TakeBack::default();
            while !taking.is_done() {
                if !self.store.call(async |conn| taking.step(conn, keys, self.id.as_str(), word, &dead).await).await? {
                    // The task is old: its options, which decide about its jobs, no longer exist.
                    break;
                }
            }
            taken += taking.taken.len();
        }
        Ok(taken)
    }
}

/// Whether the worker has stopped and left nothing to recover.
fn has_stopped(said: &Presence) -> bool {
    said.contains_key("stoppedAt") && said.get("phase").is_none_or(|phase| phase != "replaced")
}

/// When its presence was last written, ms by the server's clock.
fn seen_ms(said: &Presence) -> u64 {
    said.get("lastSeenAt").and_then(|at| at.parse().ok()).unwrap_or(0)
}
