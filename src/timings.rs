//! Times for what is rarely needed. A test that waits for one can shorten it.

use std::time::Duration;

/// How often a process looks for what another one lost or left. `Default` is what every App has.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct Timings {
    /// How often a worker writes its tasks and workflows into their lists again, in case the server lost a list.
    pub relist: Duration,
    /// How often a worker looks for dead workers of its host.
    pub reconcile: Duration,
    /// After this time any worker takes a workflow step that another process left undone.
    pub workflow_grace: Duration,
    /// A worker that sends no claim for this time at least, although jobs wait, is not live.
    pub claim_silence: Duration,
    /// For this long a worker must see no sign of another one before it forgets it. The clock of the server may have jumped: then every
    /// worker looks long gone until its next sign.
    pub unseen: Duration,
}

impl Default for Timings {
    fn default() -> Timings {
        Timings {
            relist: Duration::from_secs(60),
            reconcile: Duration::from_secs(10),
            workflow_grace: Duration::from_secs(10),
            claim_silence: Duration::from_secs(30),
            unseen: Duration::from_secs(60),
        }
    }
}
