//! A settle call. It is repeated under its number until it is answered.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use super::notes::write_notes;
use crate::backend::address::Role;
use crate::backend::connection::OwnConnection;
use crate::backend::narrow::Closings;
use crate::backend::replicated;
use crate::backend::report::{Disposition, Report};
use crate::backend::settle::{self, LARGE_SEQUENCE, PARTS, SettleCall, SettleReply, Settled, Want};
use crate::backend::timeouts::{doubled, response_time};
use crate::backoff::Pauses;
use crate::clock::{self, Moment};
use crate::error::Error;
use crate::job::failure::{StoredError, codes};
use crate::limits::BATCH_BYTES;
use crate::runtime::observer::{CallInfo, report_call};
use crate::runtime::shared::WorkerShared;
use crate::runtime::task::TaskRuntime;
use crate::stall::cadence;

/// The name in incidents for notes that are written before outcomes.
const NOTES: &str = "notes/outcomes";

/// How long Redis has to answer a small call after it closed a connection.
const ASKED_AFTER_CLOSE: Duration = Duration::from_secs(2);

pub(super) struct Call {
    task: Arc<TaskRuntime>,
    worker: Arc<WorkerShared>,
    pub(super) sequence: usize,
    pub(super) number: u64,
    pub(super) want: Want,
    /// What the last attempt asked for: `want`, or nothing if it was too late to claim.
    pub(super) asked: Want,
    pub(super) reports: Arc<Vec<Report>>,
    pub(super) sent: Moment,
    /// How long an attempt waits for its answer.
    timeout: Duration,
    pauses: Pauses,
    /// Whether the notes before the outcomes were late once.
    notes_late: bool,
    /// How often the connection closed during a large outcome or during the answer to a claim.
    closings: Closings,
    state: Arc<CallState>,
}

/// What a call under way shares with its driver.
#[derive(Debug, Default)]
pub(super) struct CallState {
    /// Whether it has returned its slots, because its cluster node is unreachable and others should not wait for it.
    pub(super) is_unreachable: AtomicBool,
    /// Whether the server has refused each of its attempts, so that it did nothing.
    pub(super) is_refused: AtomicBool,
}

/// The slots of a call: those for jobs that it may claim to begin, and those for jobs that it begins.
pub(super) fn slots_of(want: Want, reports: &[Report]) -> usize {
    want.begin + reports.iter().filter(|report| matches!(report.outcome, Disposition::Begin { .. })).count()
}

pub(super) struct Answered {
    pub(super) call: Call,
    /// How long the last attempt took.
    pub(super) round_trip: Duration,
    /// `None` if the call sequences of this worker are closed.
    pub(super) settled: Option<Settled>,
}

impl Call {
    /// The call with this number of its sequence.
    pub(super) fn new(
        task: Arc<TaskRuntime>,
        worker: Arc<WorkerShared>,
        (sequence, number): (usize, u64),
        want: Want,
        reports: Arc<Vec<Report>>,
        state: Arc<CallState>,
    ) -> Call {
        // Allow time for the reports to be sent, and for the answer to a claim to arrive.
        let timeout = response_time(reports.iter().map(Report::bytes).sum::<usize>() + BATCH_BYTES);
        let (sent, pauses) = (clock::now(), Pauses::until_answered());
        Call {
            task,
            worker,
            sequence,
            number,
            want,
            asked: want,
            reports,
            sent,
            timeout,
            pauses,
            notes_late: false,
            closings: Closings::default(),
            state,
        }
    }

    /// Makes the call until it is answered.
    pub(super) async fn answered(mut self) -> Answered {
        let mut is_refused = true;
        loop {
            let mut connected = false;
            let noted = self.write_notes().await;
            // The deadline of claimed jobs counts from the first send, so a late repeat asks for no new jobs.
            let late = cadence::late_claim(self.task.options.interval);
            if !self.task.beats_are_fresh() || clock::now().since(self.sent) >= late {
                self.asked = Want::NONE;
            }
            let attempted = Instant::now();
            let answer = match noted {
                Ok(()) => self.attempt(&mut connected).await,
                Err(e) => Err(e),
            };
            let e = match answer {
                Ok(SettleReply::Settled(settled)) => {
                    let (took, reported, claimed) = (attempted.elapsed(), self.reports.len(), settled.claimed.len());
                    let tally = self.task.tally();
                    tally.settles.add(took);
                    tally.reported.add(reported);
                    tally.claimed.add(claimed);
                    let (task, worker) = (Arc::clone(&self.task.name), self.worker.id.clone());
                    let call = CallInfo { task, worker, reported, claimed, answered_at: SystemTime::now(), took };
                    report_call(&self.worker.observers, call);
                    self.worker.answered(PARTS[self.sequence], self.task.of());
                    return Answered { call: self, round_trip: attempted.elapsed(), settled: Some(settled) };
                }
                Ok(SettleReply::Closed) => {
                    if !self.worker.is_replaced() {
                        let worker_id = &self.worker.id;
                        tracing::error!(%worker_id, "this worker was declared dead or replaced; it stops");
                    }
                    self.worker.set_replaced();
                    return Answered { call: self, round_trip: Duration::ZERO, settled: None };
                }
                Ok(SettleReply::Stale) => {
                    self.renumber();
                    None
                }
                Ok(SettleReply::Undeclared) => {
                    self.task.declare_again(&self.worker.store, self.worker.id.as_str()).await.err()
                }
                Err(e) => Some(e),
            };
            if let Some(e) = e {
                is_refused &= e.is_refusal();
                self.state.is_refused.store(is_refused, Ordering::SeqCst);
                self.task.rights.heard(&e);
                self.learn(&e, connected);
                self.narrow_claims(&e).await;
                self.gives_slots_back();
                self.task.tally().repeated.add(1);
                let pause = self.pauses.next();
                self.log_failure(&e, connected, pause);
                tokio::time::sleep(pause).await;
            }
        }
    }

    /// Writes the notes of the jobs before their outcomes: after the outcome, the worker no longer holds the job. Returns an error only
    /// in an outage, in which outcomes fail too. If the server refuses notes, or is late with them twice, the outcomes do not wait.
    async fn write_notes(&mut self) -> Result<(), Error> {
        let Err(e) = write_notes(&self.task, &self.worker, &self.reports, self.timeout).await else {
            self.worker.answered(NOTES, self.task.of());
            return Ok(());
        };
        if e.is_outage() && !(e.is_late() && self.notes_late) {
            self.notes_late |= e.is_late();
            return Err(e);
        }
        self.worker.failed(NOTES, self.task.of(), &e);
        Ok(())
    }

    /// Makes one attempt. Sets `connected` if the server answered before a large outcome was sent.
    async fn attempt(&self, connected: &mut bool) -> Result<SettleReply, Error> {
        let Call { task, worker, number, asked, reports, .. } = self;
        task.may_write(&worker.store).await?;
        if self.want.jobs > 0 {
            task.claims_now();
        }
        let call = async |conn: &mut _| {
            let (ask, want) = (task.options.interval, Want { narrow: worker.narrow.is_on(), ..*asked });
            let (worker, sequence) = (worker.id.as_str(), self.sequence);
            let call = SettleCall { worker, sequence, number: *number, ask, want, reports };
            settle::settle(conn, &task.keys, call, &task.plain_first).await
        };
        let copies = task.options.durability.copies().filter(|_| task.options.settle_replicated && !reports.is_empty());
        let Some(copies) = copies else {
            return if self.sequence == LARGE_SEQUENCE {
                apart(worker, task, self.timeout, connected, call).await
            } else {
                worker.store.shared(self.timeout, call).await
            };
        };
        let copied = async |conn: &mut OwnConnection| {
            let mut conn = replicated::at_primary(conn, &task.keys).await?;
            let answer = call(&mut conn).await?;
            let acked = replicated::copied(&mut conn, &task.keys, copies).await?;
            task.copied(acked, copies.replicas, reports.len());
            Ok(answer)
        };
        let time = self.timeout + copies.within;
        if self.sequence == LARGE_SEQUENCE {
            apart(worker, task, time, connected, copied).await
        } else {
            // Both call sequences of a task use this connection in turn.
            let connection = task.replicated.get_or_init(|| worker.store.connection(Role::Replicated));
            connection.call(time + copies.within, copied).await
        }
    }

    /// Returns the slots while a cluster node is unreachable or refuses the call, so that tasks on other nodes can use them. When the
    /// answer comes, its jobs begin as far as slots are free, and the others are requeued. A call with a large outcome has no slots.
    fn gives_slots_back(&self) {
        let slots = self.task.slots(&self.worker);
        let is_needed = self.worker.store.is_cluster() && !slots.are_unbounded() && self.sequence != LARGE_SEQUENCE;
        if is_needed && !self.state.is_unreachable.swap(true, Ordering::SeqCst) {
            slots.give_back(slots_of(self.want, &self.reports));
            self.task.poke.notify_one();
        }
    }

    /// Continues with a higher number. Only a second process with the same worker id can have used this one.
    fn renumber(&mut self) {
        let Call { task, sequence, number, .. } = self;
        tracing::error!(task = %task.name, number = *number, "another process reports under the id of this worker; repeating the call with a higher number");
        *number += 1_000;
        task.outbox.sent(*sequence, *number, &self.reports);
        if self.want.jobs > 0 {
            task.claims.renumbered(*sequence, *number);
        }
    }

    /// Gives the next attempt more time, or fails a job whose outcome is too large.
    fn learn(&mut self, e: &Error, connected: bool) {
        if e.is_late() {
            // Large values on a slow link need more time.
            self.timeout = doubled(self.timeout);
        } else if self.sequence == LARGE_SEQUENCE {
            // A server that finds a value too large closes the connection each time it receives the value. Its error arrives only
            // sometimes.
            let is_closed = connected && (e.is_too_large() || e.is_broken());
            if self.closings.failed(is_closed) || is_closed && e.is_too_large() {
                let task = &self.task.name;
                tracing::error!(%task, error = %e.chain(), "redis rejects a large outcome; the job fails");
                Arc::make_mut(&mut self.reports).iter_mut().for_each(too_large);
                self.task.outbox.sent(self.sequence, self.number, &self.reports);
            }
        }
    }

    /// Requests small answers to claims if the connection closes during each answer to this claim, although the server answers a
    /// small call each time. The output buffer of the server is then too small for the answer, and no later job would be claimed.
    async fn narrow_claims(&mut self, e: &Error) {
        let is_claim = self.sequence != LARGE_SEQUENCE && self.want.jobs > 0;
        if !is_claim || self.worker.narrow.is_on() {
            return;
        }
        let answers = async {
            let asked = self.worker.store.answering(Role::Shared, &self.task.keys);
            tokio::time::timeout(ASKED_AFTER_CLOSE, asked).await.is_ok_and(|conn| conn.is_ok())
        };
        let is_closed = e.is_dropped() && answers.await;
        if self.closings.failed(is_closed) && self.worker.narrow.begin() {
            tracing::warn!(task = %self.task.name, error = %e.chain(),
                "redis closes the connection during answers to claims, so payloads are now read one by one; the client-output-buffer-limit of redis may be too small");
        }
    }

    fn log_failure(&self, e: &Error, connected: bool, pause: Duration) {
        let (task, part) = (&self.task.name, PARTS[self.sequence]);
        // While a server works, a large value may still be late, or end in a closed connection.
        let is_unreachable = e.is_outage() && !(self.sequence == LARGE_SEQUENCE && connected);
        self.worker.log(self.worker.incidents.failed(part, self.task.of(), e, is_unreachable));
        tracing::debug!(%task, part, error = %e.chain(), ?pause, "settle failed; will retry");
    }
}

/// Makes a call on a separate connection. Sets `connected` if the server of the task answered before it was sent.
async fn apart<T>(
    worker: &WorkerShared,
    task: &TaskRuntime,
    time: Duration,
    connected: &mut bool,
    call: impl AsyncFnOnce(&mut OwnConnection) -> Result<T, Error>,
) -> Result<T, Error> {
    let made = async {
        let mut conn = worker.store.answering(Role::Shared, &task.keys).await?;
        *connected = true;
        tokio::time::timeout(time, call(&mut conn)).await.unwrap_or_else(|_| Err(Error::late()))
    };
    worker.store.steady(made).await
}

/// Replaces a value that the server will never accept with a failure.
fn too_large(report: &mut Report) {
    if let Disposition::Completed(Some(value)) = &report.outcome {
        let message = format!("the server rejects the value, which has {} bytes of JSON", value.len());
        let error = StoredError { code: codes::CODEC.to_owned(), message };
        report.outcome = Disposition::Failed { attempt: report.attempt, error };
    }
}
