//! The table of scripts, and how each is called. The header of a script names its keys in order, and the fragments that
//! it uses. Tests compare every header with what the server gets.

use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::time::Instant;

use redis::aio::ConnectionLike;
use redis::{Cmd, ErrorKind, Script, ServerErrorKind, Value};

use super::classify::classify;
use super::keys::{Key, TaskKeys};
use super::reply::{PlainCall, Reply};
use crate::error::Result;
use crate::latency::{LatencySummary, Timing};
use crate::limits::{BATCH, BRIEF, FEW, LARGE, NARROW_BYTES};

macro_rules! lib {
    ($name:expr) => {
        include_str!(concat!("../../lua/lib/", $name, ".lua"))
    };
}

macro_rules! fragments {
    ($($name:ident)*) => {
        /// The shared fragments of scripts, by name.
        static FRAGMENTS: &[(&str, &str)] = &[$((stringify!($name), lib!(stringify!($name)))),*];
    };
}

fragments! {
    around back_to_wait backoff begin book claim columns costs count counts crashed dropped early emit end_event enter
    events failing failure faults fields filled finish flow flow_dispatch flow_events flow_remove flow_reply
    flow_step full gone grace heads heads_of_lanes held hooks interval known lane_id lanes largest leave_lanes
    limits lock may named new_jobs nodes now object others own_settings page parked place plain pointer renew replay reported_outcomes
    resolve rest schedules shrink_first since slots spare states steps stored_outcomes terminal tick_jobs ticks
    tombstones totals types unique unlock wake words
}

/// The fragments whose functions take all keys of their script.
const TAKE_ALL_KEYS: &[&str] = &["book", "faults", "gone", "named", "resolve", "tick_jobs"];

/// A line of a script or fragment that is replaced by fragments, in a branch that plain calls skip: each function that a call defines
/// costs time.
const USES_HERE: &str = "-- Uses here ";

/// The fragment that wakes an idle worker. In a cluster another one replaces it, which costs one more command.
const BLOCKS: &str = lib!("wake");
const HEARD: &str = lib!("wake_heard");

macro_rules! scripts {
    ($($id:ident $name:literal $(on $first:ident)? $(of $base:literal)?,)*) => {
        $(pub(crate) static $id: ScriptDef = ScriptDef::new(
            $name,
            concat!(
                include_str!(concat!("../../lua/", $name, ".lua"))
                $(, include_str!(concat!("../../lua/", $base, ".lua")))?
            ),
            &[$(Key::$first)?],
        );)*

        /// Every script, for preloading and for tests.
        pub(crate) static ALL: &[&ScriptDef] = &[$(&$id),*];
    };
}

// After `on` comes the first key of a script that works on one of several keys; its header has a general name for that
// key. After `of` comes the script of which this one is a variant: its own file has only the header.
scripts! {
    DISPATCH "dispatch", DISPATCH_UNIQUE "dispatch_unique", SETTLE "settle", SETTLE_PLAIN "settle_plain",
    SETTLE_KEYED "settle_keyed" of "settle", NOTE "note",
    // Calls that workers make on behalf of others.
    EXTEND_LOCKS "extend_locks", SHRINK "shrink", SWEEP "sweep", RECONCILE "reconcile", EXPIRE "expire",
    TRIM "trim" on Completed, TRIM_UNIQUE "trim_unique", TRIM_LANES "trim_lanes",
    SERIES_ADD "series_add", CLOSE "close", DECLARE "declare", PARTITIONS "partitions", RIGHTS "rights",
    // Calls by which people and tools read.
    INSPECT "inspect", STATES "states", COUNTS "counts", OVERVIEW "overview", JOBS "jobs" on Delayed, LANES "lanes",
    LANE_READ "lane_read",
    HISTORY "history" on Events,
    // Calls by which people act.
    CANCEL "cancel", RETRY "retry", REMOVE "remove", RUN_NOW "run_now", PAUSE "pause", RESUME "resume", QUIET "quiet",
    LANE_PUT "lane_put", FORGET "forget",
    SCAN "scan" on Payload, LOOK "look", MEND "mend", AUDITED "audited",
    // Each of these has one key, which belongs to no task.
    ANNOUNCE "announce", ENLIST "enlist" on Workers, TAKE_NAME "take_name" on Workers, FLOW_TURN "flow_turn" on Workers,
    FLOW_START "flow_start", FLOW_STAGE "flow_stage", FLOW_UNSTAGE "flow_unstage", FLOW_ADVANCE "flow_advance",
    FLOW_VISIT "flow_visit", FLOW_ENTER "flow_enter", FLOW_CONTROL "flow_control", FLOW_OPEN "flow_open",
    FLOW_PAUSE "flow_pause", FLOW_RETRY "flow_retry", FLOW_LOOK "flow_look", FLOW_RESEND "flow_resend",
    FLOW_PUT_OFF "flow_put_off", FLOW_AUDIT "flow_audit", FLOW_PLACE "flow_place", FLOW_TRIM "flow_trim" on Completed,
    FLOW_STATE "flow_state", FLOW_LIST "flow_list" on Completed, FLOW_NODES "flow_nodes", ENDED "ended",
    // Schedules.
    SCHEDULE_PUT "schedule_put", SCHEDULE_LOOK "schedule_look", SCHEDULE_FIRE "schedule_fire",
    SCHEDULE_NAMES "schedule_names", SCHEDULE_READ "schedule_read", SCHEDULE_PAUSE "schedule_pause",
    SCHEDULE_RUN "schedule_run", SCHEDULE_REMOVE "schedule_remove",
}

/// How long the calls of this process took to be answered, for each script that it has called.
pub(crate) fn answered() -> BTreeMap<&'static str, LatencySummary> {
    let read = ALL.iter().map(|script| (script.name, script.answered.read()));
    read.filter(|(_, answered)| answered.count > 0).collect()
}

/// The limits that the scripts share with the crate.
fn bounds() -> String {
    format!("local LARGE, NARROW_BYTES, BATCH, BRIEF, FEW = {LARGE}, {NARROW_BYTES}, {BATCH}, {BRIEF}, {FEW}\n")
}

#[derive(Debug)]
pub(crate) struct ScriptDef {
    pub(crate) name: &'static str,
    /// The whole file, with its header.
    file: &'static str,
    /// The first key, if the header has a general name for it; else empty.
    first: &'static [Key],
    keys: OnceLock<Vec<Key>>,
    alone: OnceLock<(String, Script)>,
    in_cluster: OnceLock<(String, Script)>,
    /// How long its calls took to be answered in this process.
    answered: Timing,
}

impl ScriptDef {
    const fn new(name: &'static str, file: &'static str, first: &'static [Key]) -> ScriptDef {
        ScriptDef {
            name,
            file,
            first,
            keys: OnceLock::new(),
            alone: OnceLock::new(),
            in_cluster: OnceLock::new(),
            answered: Timing::new(),
        }
    }

    /// The text of the header after this word, line by line.
    fn header(&self, word: &'static str) -> impl Iterator<Item = &'static str> {
        self.file.lines().take_while(|line| line.starts_with("--")).filter_map(move |line| line.strip_prefix(word))
    }

    /// The keys as the header names them, by their numbers.
    fn named_keys(&self) -> impl Iterator<Item = &'static str> {
        let named = self.header("-- KEYS[").filter_map(|line| {
            let (number, rest) = line.split_once(']')?;
            Some((number.parse::<usize>().ok()?, rest.split_whitespace().next()?))
        });
        named.collect::<BTreeMap<_, _>>().into_values()
    }

    /// The fragments that it uses. A variant of a script replaces one of them: its header has a line for that.
    fn used_fragments(&self) -> impl Iterator<Item = &'static str> {
        let mut replaced = self.header("-- Replaces ").filter_map(|line| line.split_once(" by ")).collect::<Vec<_>>();
        let (old, new) = replaced.pop().unwrap_or_default();
        let used = self.header("-- Uses ").flat_map(str::split_whitespace);
        used.flat_map(move |name| if name == old { new } else { name }.split_whitespace())
    }

    /// The keys that it needs, in the order of the header.
    pub(crate) fn keys(&self) -> &[Key] {
        self.keys.get_or_init(|| {
            let others = self.named_keys().skip(self.first.len()).filter_map(Key::named);
            self.first.iter().copied().chain(others).collect()
        })
    }

    /// The text as a single server gets it.
    #[cfg(feature = "testing")]
    pub(crate) fn source(&self) -> &str {
        &self.text(false).0
    }

    /// The text as a server gets it, and its hash. In a cluster, [`HEARD`] replaces one fragment.
    fn text(&self, is_cluster: bool) -> &(String, Script) {
        let text = if is_cluster { &self.in_cluster } else { &self.alone };
        text.get_or_init(|| {
            let fragment = |name: &str| FRAGMENTS.iter().find(|(known, _)| *known == name).map(|(_, text)| *text);
            let fragments: String = self.used_fragments().filter_map(fragment).collect();
            let fragments = if is_cluster { fragments.replacen(BLOCKS, HEARD, 1) } else { fragments };
            let whole = format!("{}{fragments}{}{}", bounds(), self.names_of_keys(), self.file);
            let mut source = String::with_capacity(whole.len());
            for line in whole.split_inclusive('\n') {
                match line.trim_start().strip_prefix(USES_HERE) {
                    Some(names) => source.extend(names.split_whitespace().filter_map(fragment)),
                    None => source.push_str(line),
                }
            }
            let script = Script::new(&source);
            (source, script)
        })
    }

    /// The line that gives each key its name in Lua. It comes after the fragments, whose functions take keys as
    /// parameters: outer variables would make them slower. A script with a fragment that takes all keys also gets the
    /// table `keys`, with all of them by name.
    fn names_of_keys(&self) -> String {
        // A variant reads its own keys, which its header lists first, by their numbers: a script has at most 200 names.
        let own = self.header("-- KEYS[").take_while(|line| !line.starts_with("1]")).count();
        let mut names: Vec<String> = self.named_keys().map(lua_name).collect();
        names.truncate(names.len() - own);
        let line = format!("local {} = unpack(KEYS)\n", names.join(", "));
        if !self.used_fragments().any(|name| TAKE_ALL_KEYS.contains(&name)) {
            return line;
        }
        let fields: Vec<String> = names.iter().map(|name| format!("{name} = {name}")).collect();
        format!("{line}local keys = {{ {} }}\n", fields.join(", "))
    }

    /// Starts a call with the keys of the task. The arguments follow.
    pub(crate) fn on(&'static self, keys: &TaskKeys) -> Invocation {
        self.with_keys(keys, self.keys().iter().copied())
    }

    /// Starts a call that needs only the first `count` keys.
    pub(crate) fn on_first(&'static self, keys: &TaskKeys, count: usize) -> Invocation {
        self.with_keys(keys, self.keys().iter().copied().take(count))
    }

    /// Starts a call with `place` as the first key.
    pub(crate) fn on_place(&'static self, keys: &TaskKeys, place: Key) -> Invocation {
        self.with_keys(keys, std::iter::once(place).chain(self.keys().iter().skip(1).copied()))
    }

    /// Starts a call with one key, which belongs to no task.
    pub(crate) fn on_key(&'static self, key: &str) -> Invocation {
        let mut cmd = redis::cmd("EVALSHA");
        cmd.arg(self.text(false).1.get_hash()).arg(1).arg(key);
        Invocation { def: self, cmd, is_cluster: false }
    }

    /// Starts a call with the keys of a workflow, and then those of tasks on the same server.
    pub(super) fn on_tasks<'a>(
        &'static self,
        keys: &'a TaskKeys,
        tasks: impl Iterator<Item = &'a TaskKeys>,
        names: &'a [Key],
    ) -> Invocation {
        let of_tasks = tasks.flat_map(|task| names.iter().map(|name| task.get(*name)));
        let all: Vec<&str> = self.keys().iter().map(|name| keys.get(*name)).chain(of_tasks).collect();
        self.with(keys.is_cluster(), all.into_iter())
    }

    /// Starts a call with these keys. The script has names for the first ones.
    pub(super) fn with_keys(&'static self, keys: &TaskKeys, names: impl Iterator<Item = Key> + Clone) -> Invocation {
        self.with(keys.is_cluster(), names.map(|name| keys.get(name)))
    }

    fn with<'a>(&'static self, is_cluster: bool, keys: impl Iterator<Item = &'a str> + Clone) -> Invocation {
        let mut cmd = redis::cmd("EVALSHA");
        cmd.arg(self.text(is_cluster).1.get_hash()).arg(keys.clone().count());
        for key in keys {
            cmd.arg(key);
        }
        Invocation { def: self, cmd, is_cluster }
    }

    pub(crate) async fn load(&self, conn: &mut impl ConnectionLike, is_cluster: bool) -> Result<()> {
        redis::cmd("SCRIPT").arg("LOAD").arg(&self.text(is_cluster).0).call(conn, self.name).await
    }
}

/// The name of a key in the scripts: `wait:high` is `wait_high`, `maxCount` is `max_count`. `error` gets another name,
/// since Lua has a function `error`.
fn lua_name(key: &str) -> String {
    let mut name = String::with_capacity(key.len() + 1);
    for c in if key == "error" { "errors" } else { key }.chars() {
        match c {
            ':' => name.push('_'),
            c if c.is_ascii_uppercase() => name.extend(['_', c.to_ascii_lowercase()]),
            c => name.push(c),
        }
    }
    name
}

/// A call of a script, to which arguments are added.
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

    /// Adds each of these arguments.
    pub(crate) fn args<A: redis::ToRedisArgs>(&mut self, args: impl IntoIterator<Item = A>) -> &mut Self {
        for arg in args {
            self.cmd.arg(arg);
        }
        self
    }

    /// Makes the call. If the server has lost its script cache (restart, SCRIPT FLUSH), the repeat contains the text.
    /// After a separate load the server could lose the cache again.
    pub(crate) async fn call(&self, conn: &mut impl ConnectionLike) -> Result<Reply> {
        let begun = Instant::now();
        let answer = match conn.req_packed_command(&self.cmd).await.and_then(Value::extract_error) {
            Err(e) if e.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
                let mut eval = redis::cmd("EVAL");
                eval.arg(&self.def.text(self.is_cluster).0);
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
        Reply::of(self.def.name, answer.map_err(|e| classify(self.def.name, e))?)
    }

    /// Makes a call that has one kind of reply. Returns what follows its first word, which names that kind.
    pub(crate) async fn answer(&self, conn: &mut impl ConnectionLike) -> Result<Reply> {
        let mut reply = self.call(conn).await?;
        let _: String = reply.next()?;
        Ok(reply)
    }
}
