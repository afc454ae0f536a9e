//! `lua/sweep.lua`: resolves candidates and takes the snapshot.

use std::time::Duration;

use super::connection::Connection;
use super::keys::TaskKeys;
use super::reply::Text;
use super::scripts;
use crate::error::Error;
use crate::stall::action::StallAction;
use crate::times::to_ms;

/// A stalled job and what was decided about it.
#[derive(Clone, Debug)]
pub(crate) struct StalledJob {
    pub(crate) id: String,
    pub(crate) count: u64,
    pub(crate) action: String,
    pub(crate) worker: String,
    /// The fence under which the worker held it; 0 when nobody did.
    pub(crate) fence: u64,
}

impl StalledJob {
    /// Whether a workflow has a node less to wait for: its job ended with that. One that has a hook ends later.
    pub(crate) fn ends_a_node(&self) -> bool {
        self.id.starts_with('~') && self.action.parse().is_ok_and(StallAction::is_terminal)
    }
}

/// The answer to a sweep.
#[derive(Debug)]
pub(crate) enum SweepReply {
    /// Candidates were decided; when `snapshot` is set none is left, and a new epoch began.
    Swept {
        epoch: u64,
        interval: Duration,
        cursor: String,
        snapshot: bool,
        left: u64,
        resolved: Vec<StalledJob>,
        /// How many were set aside: their phase waits for longer.
        aside: u64,
    },
    /// Another epoch is in force.
    Moved { epoch: u64, interval: Duration },
    /// The interval in force is longer than what was waited.
    Early { epoch: u64, interval: Duration },
    /// The server has lost the options of the task, and decided nothing.
    Undeclared,
}

/// What a person decides about candidates, and which ones.
#[derive(Clone, Debug)]
pub(crate) struct Decision {
    pub(crate) verdict: Verdict,
    pub(crate) by: String,
    /// None for all.
    pub(crate) ids: Vec<String>,
}

/// What becomes of a candidate whose stall would be counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// What the options of its task say.
    Auto,
    /// It runs again, however often it stalled.
    Recover,
    /// It fails.
    Fail,
    /// It stays as it is; only what was claimed ahead and has not begun goes back to its list.
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

/// Resolves up to `limit` candidates of the epoch that the caller watched for `waited`; without an epoch those of the named jobs that
/// were set aside.
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
) -> Result<SweepReply, Error> {
    let mut call = scripts::SWEEP.on(keys);
    // Rounded down: to claim a wait that was not watched is the one thing that must not happen.
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
            let aside = reply.next::<Option<u64>>()?.unwrap_or(0);
            Ok(SweepReply::Swept { epoch, interval, cursor, snapshot, left, resolved, aside })
        }
        "moved" => Ok(SweepReply::Moved { epoch, interval }),
        "early" => Ok(SweepReply::Early { epoch, interval }),
        other => Err(reply.unexpected(other)),
    }
}

/// The jobs of an answer, five words each.
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
