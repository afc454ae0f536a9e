//! The table of scripts: what each is joined from, which keys it takes, and how it is called.

use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::time::Instant;

use redis::aio::ConnectionLike;
use redis::{Cmd, ErrorKind, Script, ServerErrorKind, Value};

use super::fault::classify;
use super::keys::{Key, TaskKeys};
use crate::error::Error;
use crate::limits::{BATCH, BRIEF, FEW, LARGE};
use crate::spread::{Spread, Timing};

/// One Lua script and the keys that it takes, in the order of its header.
#[derive(Debug)]
pub(crate) struct ScriptDef {
    pub(crate) name: &'static str,
    pub(crate) keys: &'static [Key],
    /// What the script calls its first key, where that is one of several.
    first: Option<&'static str>,
    fragments: &'static str,
    body: &'static str,
    /// All of it, as the server gets it.
    source: OnceLock<String>,
    /// What a test or bench put in place of the source.
    replaced: OnceLock<String>,
    script: OnceLock<Script>,
    /// As it is for a cluster: see [`HEARD`].
    in_cluster: OnceLock<(String, Script)>,
    /// How long its calls took to be answered in this process.
    answered: Timing,
}

macro_rules! lib {
    ($name:literal) => {
        include_str!(concat!("../../lua/lib/", $name, ".lua"))
    };
}

macro_rules! script {
    ($id:ident, $name:literal, [$($lib:literal),*], [$($key:ident),* $(,)?]) => {
        script!($id, $name, None, [$($lib),*], [$($key),*]);
    };
    ($id:ident, $name:literal, $first:expr, [$($lib:literal),*], [$($key:ident),* $(,)?]) => {
        pub(crate) static $id: ScriptDef = ScriptDef {
            name: $name,
            keys: &[$(Key::$key),*],
            first: $first,
            fragments: concat!($(lib!($lib),)*),
            body: include_str!(concat!("../../lua/", $name, ".lua")),
            source: OnceLock::new(),
            replaced: OnceLock::new(),
            script: OnceLock::new(),
            in_cluster: OnceLock::new(),
            answered: Timing::new(),
        };
    };
}

script!(
    DISPATCH,
    "dispatch",
    ["now", "events", "wake", "types", "filled", "terminal", "place"],
    [
        Payload,
        Completed,
        Failed,
        Cancelled,
        Wait,
        Meta,
        Events,
        Wake,
        Options,
        MaxCount,
        Priority,
        DispatchedAt,
        ExpiresAt,
        Expires,
        WaitHigh,
        WaitLow,
        Delayed
    ]
);

script!(
    SETTLE,
    "settle",
    [
        "now",
        "events",
        "dropped",
        "wake",
        "interval",
        "types",
        "filled",
        "around",
        "terminal",
        "columns",
        "nodes",
        "finish",
        "finished",
        "failure",
        "since",
        "back_to_wait",
        "ghosts",
        "held",
        "count",
        "claim",
        "begin",
        "object",
        "finalize",
        "tally",
        "replay",
        "report",
        "hooks"
    ],
    [
        Calls,
        Meta,
        Active,
        Candidates,
        Locks,
        Cancelling,
        WaitHigh,
        Wait,
        WaitLow,
        Delayed,
        Completed,
        Failed,
        Cancelled,
        Events,
        Wake,
        Payload,
        Attempt,
        StalledCount,
        Options,
        DispatchedAt,
        Result,
        Error,
        MaxCount,
        Priority,
        Deferred,
        WaitingSince,
        Recovery,
        ExpiresAt,
        Expires,
        Ghosts,
        Claimed,
        Checkpoint,
        Progress,
        Outcome,
        Finalizing,
        Outbox
    ]
);

script!(
    FLOW_START,
    "flow_start",
    ["now", "events", "types", "book", "flow", "told"],
    [
        Head, Running, Paused, Completed, Failed, Cancelled, Nodes, Input, Value, Shapes, Stopping, Outbox, FlowTasks,
        Children, Deadlines, Staging, Meta, Events
    ]
);

script!(FLOW_STAGE, "flow_stage", ["now", "types", "book", "flow"], [Head, Nodes, Input, Shapes, Staging]);

script!(
    FLOW_UNSTAGE,
    "flow_unstage",
    ["now", "types", "book", "flow", "flow_remove"],
    [Staging, Nodes, Input, Value, Grow, Shapes, Cursor]
);

script!(
    FLOW_ADVANCE,
    "flow_advance",
    ["now", "events", "types", "book", "flow", "told"],
    [
        Head, Running, Paused, Completed, Failed, Cancelled, Nodes, Input, Value, Shapes, Stopping, Outbox, Cursor,
        Output, Error, Grow, Meta, Events
    ]
);

script!(
    FLOW_VISIT,
    "flow_visit",
    ["now", "events", "types", "book", "flow", "told"],
    [
        Head, Running, Paused, Completed, Failed, Cancelled, Nodes, Input, Value, Shapes, Stopping, Outbox, Cursor,
        Output, Error, Grow, Meta, Events
    ]
);

script!(
    FLOW_ENTER,
    "flow_enter",
    ["now", "events", "types", "book", "flow", "told"],
    [
        Head, Running, Paused, Completed, Failed, Cancelled, Nodes, Value, Shapes, Stopping, Outbox, Output, Error,
        Input, Cursor, Grow, Meta, Events
    ]
);

script!(
    FLOW_CONTROL,
    "flow_control",
    ["now", "events", "types", "book", "flow", "told"],
    [
        Head, Running, Paused, Completed, Failed, Cancelled, Nodes, Value, Shapes, Stopping, Outbox, Output, Error,
        Input, Cursor, Grow, Meta, Events
    ]
);

script!(
    FLOW_LOOK,
    "flow_look",
    ["now", "events", "types", "book", "flow", "told"],
    [
        Head, Running, Paused, Nodes, Input, Value, Shapes, Stopping, Outbox, Grow, Deadlines, Completed, Failed,
        Cancelled, Output, Error, Cursor, Meta, Events
    ]
);

script!(
    FLOW_STATE,
    "flow_state",
    ["book", "flow"],
    [Head, Running, Paused, Completed, Failed, Cancelled, Value, Shapes, Stopping, Output, Error]
);

script!(
    FLOW_PAUSE,
    "flow_pause",
    ["now", "events", "types", "book", "flow", "told"],
    [
        Head, Running, Paused, Completed, Failed, Cancelled, Nodes, Value, Shapes, Stopping, Outbox, Cursor, Output,
        Error, Meta, Events
    ]
);

script!(
    FLOW_OPEN,
    "flow_open",
    ["now", "events", "types", "book", "flow", "told"],
    [
        Head, Running, Paused, Completed, Failed, Cancelled, Nodes, Input, Value, Shapes, Stopping, Outbox, Cursor,
        Output, Error, Grow, Meta, Events
    ]
);

script!(
    FLOW_RETRY,
    "flow_retry",
    ["now", "events", "types", "book", "flow", "told"],
    [
        Head, Running, Paused, Failed, Cancelled, Nodes, Value, Shapes, Stopping, Outbox, Error, Grow, Meta, Events,
        Deadlines
    ]
);

script!(
    FLOW_PLACE,
    "flow_place",
    ["now", "types"],
    [Head, Running, Paused, Completed, Failed, Cancelled, Stopping, Children]
);

script!(FLOW_PUT_OFF, "flow_put_off", ["now", "types"], [Outbox, Meta]);

script!(
    FLOW_AUDIT,
    "flow_audit",
    ["now", "events", "types", "book", "flow", "told"],
    [Running, Paused, Head, Failed, Shapes, Stopping, Error, Meta, Events]
);

script!(
    FLOW_RESEND,
    "flow_resend",
    ["now", "types", "book", "flow"],
    [Head, Running, Paused, Nodes, Input, Value, Shapes, Stopping, Outbox, Grow]
);

script!(
    FLOW_TRIM,
    "flow_trim",
    Some("place"),
    ["now", "types", "book", "flow", "flow_remove"],
    [Completed, Head, Nodes, Input, Value, Output, Error, Stopping, Shapes, Grow, Cursor, Children, Deadlines]
);

script!(FLOW_LIST, "flow_list", Some("place"), ["page"], [Completed, Head, Stopping]);

script!(FLOW_NODES, "flow_nodes", ["book", "flow"], [Head, Shapes, Nodes]);

script!(ENDED, "ended", ["now"], [Outbox, Completed, Failed, Cancelled, Result, Error]);

script!(
    EXTEND_LOCKS,
    "extend_locks",
    ["held", "interval", "patience"],
    [Locks, Candidates, Active, Cancelling, Meta, Aside]
);

script!(
    SWEEP,
    "sweep",
    [
        "now",
        "failing",
        "events",
        "dropped",
        "wake",
        "types",
        "filled",
        "terminal",
        "columns",
        "nodes",
        "finish",
        "finished",
        "failure",
        "since",
        "back_to_wait",
        "count",
        "object",
        "backoff",
        "finalize",
        "patience",
        "aside",
        "may",
        "resolve"
    ],
    [
        Candidates,
        Active,
        Meta,
        Locks,
        Cancelling,
        WaitHigh,
        Wait,
        WaitLow,
        Completed,
        Failed,
        Cancelled,
        Events,
        Stalls,
        Wake,
        Payload,
        StalledCount,
        MaxCount,
        Priority,
        Error,
        Attempt,
        Result,
        Options,
        DispatchedAt,
        Deferred,
        WaitingSince,
        Recovery,
        ExpiresAt,
        Delayed,
        Claimed,
        Checkpoint,
        Progress,
        Outcome,
        Finalizing,
        Aside,
        Outbox
    ]
);

script!(
    RECONCILE,
    "reconcile",
    [
        "now",
        "failing",
        "events",
        "dropped",
        "wake",
        "types",
        "filled",
        "terminal",
        "columns",
        "nodes",
        "finish",
        "finished",
        "failure",
        "since",
        "back_to_wait",
        "count",
        "object",
        "backoff",
        "finalize",
        "patience",
        "aside",
        "may",
        "resolve"
    ],
    [
        Candidates,
        Active,
        Meta,
        Locks,
        Cancelling,
        WaitHigh,
        Wait,
        WaitLow,
        Completed,
        Failed,
        Cancelled,
        Events,
        Stalls,
        Wake,
        Payload,
        StalledCount,
        MaxCount,
        Priority,
        Error,
        Attempt,
        Result,
        Options,
        DispatchedAt,
        Deferred,
        WaitingSince,
        Recovery,
        ExpiresAt,
        Delayed,
        Claimed,
        Checkpoint,
        Progress,
        Outcome,
        Finalizing,
        Outbox
    ]
);

script!(
    CANCEL,
    "cancel",
    [
        "now", "events", "wake", "types", "may", "terminal", "columns", "nodes", "finish", "finished", "failure",
        "ghosts", "states", "named"
    ],
    [
        Payload,
        Locks,
        Delayed,
        Completed,
        Failed,
        Cancelled,
        WaitHigh,
        Wait,
        WaitLow,
        Cancelling,
        Meta,
        Events,
        Ghosts,
        Attempt,
        StalledCount,
        Result,
        Error,
        Options,
        MaxCount,
        Priority,
        DispatchedAt,
        Deferred,
        WaitingSince,
        Recovery,
        ExpiresAt,
        Checkpoint,
        Progress,
        Outcome,
        Finalizing,
        Wake,
        Claimed,
        Outbox
    ]
);

script!(
    EXPIRE,
    "expire",
    [
        "now", "may", "failing", "events", "wake", "types", "terminal", "columns", "nodes", "finish", "finished",
        "failure", "ghosts", "states"
    ],
    [
        Expires,
        ExpiresAt,
        Payload,
        Locks,
        Delayed,
        Completed,
        Failed,
        Cancelled,
        WaitHigh,
        Wait,
        WaitLow,
        Meta,
        Events,
        Ghosts,
        Attempt,
        StalledCount,
        Result,
        Error,
        Options,
        MaxCount,
        Priority,
        DispatchedAt,
        Deferred,
        WaitingSince,
        Recovery,
        Checkpoint,
        Progress,
        Outcome,
        Finalizing,
        Wake,
        Outbox
    ]
);

script!(
    TRIM,
    "trim",
    Some("place"),
    ["now", "events", "types", "columns", "may"],
    [
        Completed,
        Meta,
        Events,
        Payload,
        Attempt,
        StalledCount,
        Result,
        Error,
        Options,
        MaxCount,
        Priority,
        DispatchedAt,
        Deferred,
        WaitingSince,
        Recovery,
        ExpiresAt,
        Checkpoint,
        Progress,
        Outcome,
        Outbox
    ]
);

script!(DECLARE, "declare", ["now"], [Meta, Aside]);

script!(PARTITIONS, "partitions", [], [Meta, Payload]);

script!(
    RIGHTS,
    "rights",
    [],
    [
        WaitHigh,
        Wait,
        WaitLow,
        Active,
        Candidates,
        Delayed,
        Completed,
        Failed,
        Cancelled,
        Wake,
        Locks,
        Cancelling,
        Payload,
        Attempt,
        StalledCount,
        Result,
        Error,
        Options,
        MaxCount,
        Priority,
        DispatchedAt,
        Deferred,
        WaitingSince,
        Recovery,
        ExpiresAt,
        Expires,
        Ghosts,
        Calls,
        Meta,
        Events,
        Stalls,
        Claimed,
        Checkpoint,
        Progress,
        Outcome,
        Finalizing,
        Aside,
        Outbox
    ]
);

script!(NOTE, "note", ["now", "events", "held"], [Checkpoint, Progress, Locks, Meta, Events]);

script!(CLOSE, "close", [], [Calls]);

script!(SHRINK, "shrink", [], [Candidates, Active]);

script!(
    INSPECT,
    "inspect",
    ["states"],
    [
        Payload,
        Locks,
        Delayed,
        Completed,
        Failed,
        Cancelled,
        Attempt,
        StalledCount,
        Result,
        Error,
        Options,
        MaxCount,
        Priority,
        DispatchedAt,
        Deferred,
        WaitingSince,
        Recovery,
        ExpiresAt,
        Cancelling,
        Candidates,
        Claimed,
        Checkpoint,
        Progress,
        Outcome,
        Finalizing
    ]
);

script!(
    STATES,
    "states",
    ["states"],
    [Payload, Locks, Delayed, Completed, Failed, Cancelled, Result, Meta, Claimed, Outcome, Finalizing]
);

script!(
    COUNTS,
    "counts",
    ["counts"],
    [WaitHigh, Wait, WaitLow, Delayed, Locks, Completed, Failed, Cancelled, Meta, Claimed, Outcome, Finalizing]
);

script!(
    OVERVIEW,
    "overview",
    ["now", "counts", "states", "spare"],
    [
        WaitHigh,
        Wait,
        WaitLow,
        Locks,
        Delayed,
        Completed,
        Failed,
        Cancelled,
        Active,
        Candidates,
        Meta,
        Ghosts,
        WaitingSince,
        DispatchedAt,
        Payload,
        Claimed,
        Outcome,
        Finalizing,
        Aside
    ]
);

script!(
    JOBS,
    "jobs",
    Some("place"),
    ["states", "spare", "page"],
    [
        Delayed,
        WaitHigh,
        Wait,
        WaitLow,
        Locks,
        Ghosts,
        Attempt,
        StalledCount,
        Error,
        MaxCount,
        Priority,
        DispatchedAt,
        WaitingSince,
        Candidates,
        Payload,
        Delayed,
        Completed,
        Failed,
        Cancelled,
        Claimed,
        Outcome,
        Finalizing
    ]
);

script!(HISTORY, "history", Some("stream"), [], [Events]);

// What a person does.
script!(
    RETRY,
    "retry",
    ["now", "events", "wake", "types", "may", "since", "back_to_wait", "states", "named"],
    [
        Payload,
        Locks,
        Delayed,
        Completed,
        Failed,
        Cancelled,
        WaitHigh,
        Wait,
        WaitLow,
        Cancelling,
        Meta,
        Events,
        Wake,
        Attempt,
        StalledCount,
        Result,
        Error,
        Options,
        MaxCount,
        Priority,
        DispatchedAt,
        Deferred,
        WaitingSince,
        Recovery,
        ExpiresAt,
        Progress,
        Outcome,
        Finalizing
    ]
);

script!(
    REMOVE,
    "remove",
    ["events", "types", "may", "terminal", "columns", "ghosts", "states", "named"],
    [
        Payload,
        Locks,
        Delayed,
        Completed,
        Failed,
        Cancelled,
        WaitHigh,
        Wait,
        WaitLow,
        Meta,
        Events,
        Ghosts,
        Attempt,
        StalledCount,
        Result,
        Error,
        Options,
        MaxCount,
        Priority,
        DispatchedAt,
        Deferred,
        WaitingSince,
        Recovery,
        ExpiresAt,
        Checkpoint,
        Progress,
        Outcome,
        Finalizing
    ]
);

script!(
    RUN_NOW,
    "run_now",
    ["now", "events", "wake", "types", "may", "since", "back_to_wait", "states", "named"],
    [
        Payload,
        Locks,
        Delayed,
        Completed,
        Failed,
        Cancelled,
        WaitHigh,
        Wait,
        WaitLow,
        Meta,
        Events,
        Wake,
        Priority,
        WaitingSince,
        Outcome,
        Finalizing,
        DispatchedAt
    ]
);

script!(AUDITED, "audited", ["now"], [Meta]);

script!(PAUSE, "pause", ["now", "events"], [Meta, Events]);

script!(RESUME, "resume", ["now", "events", "wake"], [Meta, Events, Wake]);

script!(
    FORGET,
    "forget",
    [],
    [
        WaitHigh,
        Wait,
        WaitLow,
        Active,
        Candidates,
        Locks,
        Delayed,
        Completed,
        Failed,
        Cancelled,
        Cancelling,
        Payload,
        Attempt,
        StalledCount,
        Result,
        Error,
        Options,
        MaxCount,
        Priority,
        DispatchedAt,
        Deferred,
        WaitingSince,
        Recovery,
        ExpiresAt,
        Expires,
        Ghosts,
        Calls,
        Meta,
        Events,
        Stalls,
        Wake,
        Claimed,
        Checkpoint,
        Progress,
        Outcome,
        Finalizing,
        Aside
    ]
);

// The audit.
script!(SCAN, "scan", Some("place"), [], [Payload]);

script!(
    LOOK,
    "look",
    ["count", "object", "faults"],
    [
        Payload,
        Locks,
        Delayed,
        Completed,
        Failed,
        Cancelled,
        Active,
        Candidates,
        Cancelling,
        Ghosts,
        Attempt,
        StalledCount,
        Result,
        Error,
        Options,
        MaxCount,
        Priority,
        DispatchedAt,
        Deferred,
        WaitingSince,
        Recovery,
        ExpiresAt,
        Claimed,
        Checkpoint,
        Progress,
        Outcome,
        Finalizing,
        Meta
    ]
);

script!(
    MEND,
    "mend",
    [
        "now",
        "events",
        "dropped",
        "wake",
        "types",
        "may",
        "terminal",
        "columns",
        "nodes",
        "finish",
        "unlock",
        "since",
        "back_to_wait",
        "ghosts",
        "count",
        "object",
        "faults"
    ],
    [
        Payload,
        Locks,
        Delayed,
        Completed,
        Failed,
        Cancelled,
        WaitHigh,
        Wait,
        WaitLow,
        Active,
        Candidates,
        Cancelling,
        Ghosts,
        Meta,
        Events,
        Wake,
        Attempt,
        StalledCount,
        Result,
        Error,
        Options,
        MaxCount,
        Priority,
        DispatchedAt,
        Deferred,
        WaitingSince,
        Recovery,
        ExpiresAt,
        Claimed,
        Checkpoint,
        Progress,
        Outcome,
        Finalizing,
        Outbox
    ]
);

// Presence: one key each, which no task owns.
script!(ANNOUNCE, "announce", ["now"], [Worker]);

script!(ENLIST, "enlist", Some("seen"), ["now"], [Workers]);

script!(TAKE_NAME, "take_name", Some("name"), ["now"], [Workers]);

script!(FLOW_TURN, "flow_turn", Some("flows"), ["now"], [Workers]);

/// Every script, for preloading and for tests.
pub(crate) static ALL: [&ScriptDef; 54] = [
    &DISPATCH,
    &SETTLE,
    &EXTEND_LOCKS,
    &NOTE,
    &SHRINK,
    &SWEEP,
    &RECONCILE,
    &CANCEL,
    &TRIM,
    &EXPIRE,
    &RIGHTS,
    &DECLARE,
    &PARTITIONS,
    &CLOSE,
    &INSPECT,
    &STATES,
    &COUNTS,
    &OVERVIEW,
    &JOBS,
    &HISTORY,
    &RETRY,
    &REMOVE,
    &RUN_NOW,
    &AUDITED,
    &PAUSE,
    &RESUME,
    &FORGET,
    &SCAN,
    &LOOK,
    &MEND,
    &ANNOUNCE,
    &ENLIST,
    &TAKE_NAME,
    &ENDED,
    &FLOW_START,
    &FLOW_STAGE,
    &FLOW_UNSTAGE,
    &FLOW_ADVANCE,
    &FLOW_VISIT,
    &FLOW_ENTER,
    &FLOW_CONTROL,
    &FLOW_LOOK,
    &FLOW_STATE,
    &FLOW_LIST,
    &FLOW_NODES,
    &FLOW_PAUSE,
    &FLOW_OPEN,
    &FLOW_RETRY,
    &FLOW_PLACE,
    &FLOW_PUT_OFF,
    &FLOW_AUDIT,
    &FLOW_RESEND,
    &FLOW_TRIM,
    &FLOW_TURN,
];

/// How long the calls of this process took to be answered, of each script that it has called.
pub(crate) fn answered() -> BTreeMap<&'static str, Spread> {
    let read = ALL.iter().map(|script| (script.name, script.answered.read()));
    read.filter(|(_, answered)| answered.count > 0).collect()
}

/// The fragment that wakes a worker, and the one that takes its place in a cluster: who stays on one server pays for nothing more.
const BLOCKS: &str = lib!("wake");
const HEARD: &str = lib!("wake_heard");

/// The bounds that the scripts share with us.
fn bounds() -> String {
    format!("local LARGE, BATCH, BRIEF, FEW = {LARGE}, {BATCH}, {BRIEF}, {FEW}\n")
}

impl ScriptDef {
    /// The text as the server gets it.
    pub(crate) fn source(&self) -> &str {
        let source = || format!("{}{}{}{}", bounds(), self.fragments, self.names_of_keys(), self.body);
        self.replaced.get().unwrap_or_else(|| self.source.get_or_init(source))
    }

    /// The line that gives each key its name. It stands behind the fragments, which are given what they need: what a function
    /// takes from around it costs time in every call of the script.
    fn names_of_keys(&self) -> String {
        let mut names: Vec<&str> = self.keys.iter().map(|key| key.lua_name()).collect();
        if let (Some(own), Some(first)) = (self.first, names.first_mut()) {
            *first = own;
        }
        format!("local {} = unpack(KEYS)\n", names.join(", "))
    }

    /// The text as a server gets it that stands alone, or a node of a cluster.
    fn source_in(&self, is_cluster: bool) -> &str {
        if is_cluster { &self.in_cluster().0 } else { self.source() }
    }

    fn in_cluster(&self) -> &(String, Script) {
        self.in_cluster.get_or_init(|| {
            let source = self.source().replacen(BLOCKS, HEARD, 1);
            let script = Script::new(&source);
            (source, script)
        })
    }

    fn script(&self) -> &Script {
        self.script.get_or_init(|| Script::new(self.source()))
    }

    /// Puts another text in place of the script's own, before its first use in this process.
    #[cfg(feature = "testing")]
    pub(crate) fn replace(&self, source: String) -> Result<(), String> {
        if self.script.get().is_some() || self.in_cluster.get().is_some() {
            return Err(source);
        }
        self.replaced.set(source)
    }

    /// Starts a call: the keys of the task are in place, the arguments follow.
    pub(crate) fn on(&'static self, keys: &TaskKeys) -> Invocation {
        self.with_keys(keys, self.keys.iter().copied())
    }

    /// Starts a call that needs only the first `count` keys of the table.
    pub(crate) fn on_first(&'static self, keys: &TaskKeys, count: usize) -> Invocation {
        self.with_keys(keys, self.keys.iter().copied().take(count))
    }

    /// Starts a call whose first key is another one than the table says (trim works on each terminal set).
    pub(crate) fn on_place(&'static self, keys: &TaskKeys, place: Key) -> Invocation {
        self.with_keys(keys, std::iter::once(place).chain(self.keys.iter().skip(1).copied()))
    }

    /// Starts a call on one key that is no task's.
    pub(crate) fn on_key(&'static self, key: &str) -> Invocation {
        let mut cmd = redis::cmd("EVALSHA");
        cmd.arg(self.script().get_hash()).arg(1).arg(key);
        Invocation { def: self, cmd, is_cluster: false }
    }

    /// Starts a call on these keys of the table; the script knows the first ones.
    pub(super) fn with_keys(&'static self, keys: &TaskKeys, names: impl Iterator<Item = Key> + Clone) -> Invocation {
        let is_cluster = keys.is_cluster();
        let script = if is_cluster { &self.in_cluster().1 } else { self.script() };
        let mut cmd = redis::cmd("EVALSHA");
        cmd.arg(script.get_hash()).arg(names.clone().count());
        for name in names {
            cmd.arg(keys.get(name));
        }
        Invocation { def: self, cmd, is_cluster }
    }

    /// Puts the script into the server's cache.
    pub(crate) async fn load(&self, conn: &mut impl ConnectionLike, is_cluster: bool) -> Result<(), Error> {
        let mut cmd = redis::cmd("SCRIPT");
        cmd.arg("LOAD").arg(self.source_in(is_cluster));
        cmd.query_async::<()>(conn).await.map_err(|e| classify(self.name, e))
    }
}

/// A call of a script, being put together.
pub(crate) struct Invocation {
    def: &'static ScriptDef,
    cmd: Cmd,
    is_cluster: bool,
}

impl Invocation {
    pub(crate) fn arg(&mut self, arg: impl redis::ToRedisArgs) -> &mut Self {
        self.cmd.arg(arg);
        self
    }

    /// Makes the call; a server that lost its script cache (restart, SCRIPT FLUSH) is given the script again.
    pub(crate) async fn call(&self, conn: &mut impl ConnectionLike) -> Result<Reply, Error> {
        let begun = Instant::now();
        let answer = match conn.req_packed_command(&self.cmd).await.and_then(Value::extract_error) {
            Err(e) if e.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
                // By its text in the same call: between a load and another call the cache could be lost again.
                let mut eval = redis::cmd("EVAL");
                eval.arg(self.def.source_in(self.is_cluster));
                for arg in self.cmd.args_iter().skip(2) {
                    if let redis::Arg::Simple(arg) = arg {
                        eval.arg(arg);
                    }
                }
                conn.req_packed_command(&eval).await.and_then(Value::extract_error)
            }
            answer => answer,
        };
        if answer.is_ok() {
            self.def.answered.add(begun.elapsed());
        }
        match answer {
            Ok(Value::Array(items)) => Ok(Reply { name: self.def.name, items: items.into_iter() }),
            Ok(Value::BulkString(words)) => {
                let words = words.split(|byte| *byte == b' ').map(|word| Value::BulkString(word.to_vec()));
                Ok(Reply { name: self.def.name, items: words.collect::<Vec<_>>().into_iter() })
            }
            Ok(other) => Err(unexpected(self.def.name, &format!("{other:?}"))),
            Err(e) => Err(classify(self.def.name, e)),
        }
    }
}

fn unexpected(name: &'static str, what: &str) -> Error {
    let detail = what.chars().take(200).collect::<String>();
    classify(name, (ErrorKind::UnexpectedReturnType, "a script answered something unexpected", detail).into())
}

/// Text that somebody else may have written: what is no UTF-8 is read as well as it goes.
pub(crate) struct Text(pub(crate) String);

impl redis::FromRedisValue for Text {
    fn from_redis_value(value: Value) -> Result<Text, redis::ParsingError> {
        let bytes = Vec::<u8>::from_redis_value(value)?;
        let text = String::from_utf8(bytes).unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned());
        Ok(Text(text))
    }
}

/// The reply of a script, read word by word: an array, or one text with spaces between.
pub(crate) struct Reply {
    name: &'static str,
    items: std::vec::IntoIter<Value>,
}

impl Reply {
    /// The next word of the reply.
    ///
    /// # Errors
    /// `Server` when the reply is shorter, or holds something else.
    pub(crate) fn next<T: redis::FromRedisValue>(&mut self) -> Result<T, Error> {
        let value = self.items.next().unwrap_or(Value::Nil);
        redis::from_redis_value(value).map_err(|e| classify(self.name, e.into()))
    }

    /// All that is left of the reply.
    ///
    /// # Errors
    /// `Server` when it holds something else.
    pub(crate) fn rest<T: redis::FromRedisValue>(&mut self) -> Result<Vec<T>, Error> {
        let name = self.name;
        self.items.by_ref().map(|value| redis::from_redis_value(value).map_err(|e| classify(name, e.into()))).collect()
    }

    /// An error that names the script, for a word that the caller does not know.
    pub(crate) fn unexpected(&self, what: &str) -> Error {
        unexpected(self.name, what)
    }
}
