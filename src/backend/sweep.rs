//! Recovers the jobs of silent workers (`lua/sweep.lua`, `lua/shrink.lua`) and of dead ones (`lua/reconcile.lua`).

use std::time::Duration;

use super::connection::Connection;
use super::keys::TaskKeys;
use super::presence::close_calls;
use super::reply::Text;
use super::scripts;
use crate::error::Result;
use crate::stall::action::StallAction;
use crate::unix_time::to_ms;

#[derive(Clone, Debug)]
pub(crate) struct StalledJob {
    pub(crate) id: String,
    pub(crate) count: u64,
    pub(crate) action: String,
    pub(crate) worker: String,
    /// The fence under which the worker held it; 0 if no worker did.
    pub(crate) fence: u64,
}

impl StalledJob {
    /// Whether this ended a node of a workflow. A job with a hook ends later.
    pub(crate) fn ends_a_node(&self) -> bool {
        self.id.starts_with('~') && self.action.parse().is_ok_and(StallAction::is_terminal)
    }
}

/// The answer to a sweep.
#[derive(Debug)]
pub(crate) enum SweepReply {
    /// Candidates were resolved. With `snapshot`, none is left, and a new epoch began.
    Swept {
        epoch: u64,
        interval: Duration,
        cursor: String,
        snapshot: bool,
        left: u64,
        resolved: Vec<StalledJob>,
        /// How many were parked because their phase has a longer time limit.
        parked: u64,
    },
    /// Another epoch is in force.
    Moved { epoch: u64, interval: Duration },
    /// The caller has waited for less than the interval in force.
    Early { epoch: u64, interval: Duration },
    /// The server has lost the options of the task. Nothing was decided.
    Undeclared,
}

/// What a person decides about candidates, and which ones.
#[derive(Clone, Debug)]
pub(crate) struct Decision {
    pub(crate) verdict: Verdict,
    pub(crate) by: String,
    /// Empty for all candidates.
    pub(crate) ids: Vec<String>,
}

/// What happens to a candidate whose stall would be counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// What the options of its task say.
    Auto,
    /// It runs again, however often it has stalled.
    Recover,
    Fail,
    /// It stays parked, unless it was claimed ahead and has not begun: then it returns to its list.
    Requeue,
}

impl Verdict {
    fn as_str(self) -> &'static str {
        match self {
            Verdict::Auto => "auto",
            Verdict::Recover => "recover",
            Verdict::Fail => "fail",
            Verdict::Requeue => "requeue",
        }
    }
}

/// Resolves up to `limit` candidates of the epoch that the caller has watched for `waited`. Without an epoch, resolves
/// parked jobs among those that the decision names.
#[allow(clippy::too_many_arguments)]
pub(crate) async fn sweep(
    conn: &mut impl Connection,
    keys: &TaskKeys,
    worker: &str,
    ask: Duration,
    epoch: Option<u64>,
    waited: Duration,
    cursor: &str,
    limit: usize,
    decision: Option<&Decision>,
) -> Result<SweepReply> {
    let mut call = scripts::SWEEP.on(keys);
    // Rounded down, since a watch must never be reported as longer than it was.
    let epoch = epoch.map(|epoch| epoch.to_string()).unwrap_or_default();
    call.arg(worker).arg(to_ms(ask)).arg(epoch).arg(waited.as_millis() as u64).arg(cursor).arg(limit);
    match decision {
        None => call.arg(Verdict::Auto.as_str()).arg(""),
        Some(decision) => call.arg(decision.verdict.as_str()).arg(&decision.by).arg(&decision.ids),
    };
    let mut reply = call.call(conn).await?;
    let word: String = reply.next()?;
    if word == "undeclared" {
        return Ok(SweepReply::Undeclared);
    }
    let (epoch, interval) = (reply.next()?, Duration::from_millis(reply.next()?));
    match word.as_str() {
        "swept" => {
            let cursor = reply.next()?;
            let snapshot = reply.next::<u8>()? == 1;
            let left = reply.next()?;
            let words: Vec<Text> = reply.next()?;
            let resolved = stalled_jobs(&words);
            let parked = reply.next::<Option<u64>>()?.unwrap_or(0);
            Ok(SweepReply::Swept { epoch, interval, cursor, snapshot, left, resolved, parked })
        }
        "moved" => Ok(SweepReply::Moved { epoch, interval }),
        "early" => Ok(SweepReply::Early { epoch, interval }),
        other => Err(reply.unexpected(other)),
    }
}

/// The jobs of a reply, five words each.
pub(super) fn stalled_jobs(words: &[Text]) -> Vec<StalledJob> {
    let job = |c: &[Text]| StalledJob {
        id: c[0].0.clone(),
        count: c[1].0.parse().unwrap_or(0),
        action: c[2].0.clone(),
        worker: c[3].0.clone(),
        fence: c[4].0.parse().unwrap_or(0),
    };
    words.chunks_exact(5).map(job).collect()
}

/// Makes the server shrink the hash table of the candidates, so that finding the last few stays fast. Useful when less
/// than a thousandth of the running jobs is left, once for each `SHRINK_STEP`.
pub(crate) async fn shrink(conn: &mut impl Connection, keys: &TaskKeys) -> Result<()> {
    scripts::SHRINK.on(keys).call(conn).await.map(drop)
}

/// How many buckets of the locks one call visits.
const LOOK: usize = 500;

/// Why jobs are taken from their workers.
#[derive(Clone, Copy, Debug)]
pub(crate) enum TakeReason<'a> {
    /// Their processes are proven dead, or another worker has their exclusive name.
    Proof,
    /// Another worker took their exclusive name, and they did not stop when asked. No stall is counted.
    Replaced,
    /// The person of this name declared the workers dead.
    Person(&'a str),
}

/// Takes the jobs of a task from dead workers, call by call. Closes the workers' call sequences first: a delayed
/// duplicate must not claim jobs for a worker that will never see them.
#[derive(Debug, Default)]
pub(crate) struct TakeBack {
    is_closed: bool,
    /// The cursor in the locks.
    at: Option<String>,
    is_done: bool,
    /// What was decided so far.
    pub(crate) taken: Vec<StalledJob>,
}

impl TakeBack {
    pub(crate) fn is_done(&self) -> bool {
        self.is_done
    }

    /// Makes the next call. Returns whether the server has the options of the task; without them the call decides
    /// nothing. If a call fails, the next step repeats it.
    pub(crate) async fn step(
        &mut self,
        conn: &mut impl Connection,
        keys: &TaskKeys,
        worker: &str,
        reason: TakeReason<'_>,
        dead: &[String],
    ) -> Result<bool> {
        if !self.is_closed {
            close_calls(conn, keys, dead).await?;
            self.is_closed = true;
        }
        let mut call = scripts::RECONCILE.on(keys);
        call.arg(worker);
        match reason {
            TakeReason::Proof => call.arg("worker_restarted").arg(""),
            TakeReason::Replaced => call.arg("replaced").arg(""),
            TakeReason::Person(by) => call.arg("manual").arg(by),
        };
        let mut reply = call.arg(self.at.as_deref().unwrap_or("0")).arg(LOOK).arg(dead).call(conn).await?;
        if reply.next::<String>()? == "undeclared" {
            return Ok(false);
        }
        let cursor: String = reply.next()?;
        let has_more = reply.next::<u8>()? == 1;
        self.taken.extend(stalled_jobs(&reply.next::<Vec<Text>>()?));
        self.is_done = !has_more && cursor == "0";
        self.at = Some(cursor);
        Ok(true)
    }
}
