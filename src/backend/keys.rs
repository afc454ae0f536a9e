//! The only place that builds a key. All keys of a table share a hash tag: `{task}`, or `{task:<partition>.<number>}`
//! for a later partition.

use super::hash_slot;

macro_rules! keys {
    ($($key:ident $kind:ident $suffix:literal),*; $($other:ident $other_kind:ident $other_suffix:literal),*) => {
        /// A key, named by its content.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Key { $($key,)* $($other),* }

        impl Key {
            /// Every key of a task, then the keys that only workflows have, in the order of the enum.
            pub(crate) const ALL: [Key; [$($suffix),*].len()] = [$(Key::$key),*];

            /// The last part of the key, as in `docs/wire-format.md` and the script headers.
            pub(crate) const fn suffix(self) -> &'static str {
                match self { $(Key::$key => $suffix,)* $(Key::$other => $other_suffix),* }
            }

            /// Its type in Redis, as `TYPE` returns it.
            pub(crate) const fn kind(self) -> &'static str {
                match self { $(Key::$key => stringify!($kind),)* $(Key::$other => stringify!($other_kind)),* }
            }

            /// The key with this suffix.
            pub(crate) fn named(suffix: &str) -> Option<Key> {
                match suffix { $($suffix => Some(Key::$key),)* $($other_suffix => Some(Key::$other),)* _ => None }
            }
        }
    };
}

// Keys of a task or a workflow, then keys of all workers and of one.
keys! {
    WaitHigh list "wait:high",
    Wait list "wait",
    WaitLow list "wait:low",
    Delayed zset "delayed",
    Active set "active",
    Candidates set "candidates",
    Locks hash "locks",
    Claimed hash "claimed",
    Early hash "early",
    Parked hash "parked",
    Cancelling hash "cancelling",
    Completed zset "completed",
    Failed zset "failed",
    Cancelled zset "cancelled",
    Payload hash "payload",
    Attempt hash "attempt",
    StalledCount hash "stalledCount",
    Result hash "result",
    Error hash "error",
    Options hash "options",
    MaxCount hash "maxCount",
    Priority hash "priority",
    DispatchedAt hash "dispatchedAt",
    Snoozes hash "snoozes",
    EnqueuedAt hash "enqueuedAt",
    Recovery hash "recovery",
    ExpiresAt hash "expiresAt",
    Checkpoint hash "checkpoint",
    Progress hash "progress",
    Outcome hash "outcome",
    Finalizing zset "finalizing",
    Expires zset "expires",
    Outbox zset "outbox",
    Tombstones hash "tombstones",
    Replies hash "replies",
    Meta hash "meta",
    Events stream "events",
    Stalls stream "stalls",
    Wake zset "wake",
    Schedules zset "schedules",
    ScheduleRule hash "schedules:rule",
    ScheduleInput hash "schedules:input",
    SchedulePaused hash "schedules:paused",
    ScheduleLedger hash "schedules:ledger",
    ScheduleTicks hash "schedules:ticks",
    SchedulePending zset "schedules:pending",
    ScheduleKeepers zset "schedules:keepers",
    ScheduleNamed zset "schedules:named",
    ScheduleGone zset "schedules:gone",
    ScheduleDiffer hash "schedules:differ",
    Unique hash "unique",
    UniqueOf hash "uniqueOf",
    Lanes zset "lanes",
    LaneOf hash "laneOf",
    Turns zset "turns",
    LaneHeld zset "laneHeld",
    LaneStarts hash "laneStarts",
    LaneOwn hash "laneOwn",
    Series hash "series",
    // Keys of workflows only.
    Instances hash "instances",
    Running zset "running",
    Paused zset "paused",
    Stopping hash "stopping",
    Nodes hash "nodes",
    Input hash "input",
    Value hash "value",
    Shapes hash "shapes",
    Cursor hash "cursor",
    FlowTasks zset "tasks",
    Output hash "output",
    Grow hash "grow",
    Children zset "children",
    Deadlines zset "deadlines",
    Staging hash "staging",
    FlowHeaders hash "headers";
    Workers zset "workers", Worker hash "worker"
}

/// The keys of one table, built once: that of a task or of one partition.
#[derive(Clone, Debug)]
pub(crate) struct TaskKeys {
    task: String,
    part: u32,
    parts: u32,
    keys: Vec<String>,
    cancel_channel: String,
    is_cluster: bool,
}

impl TaskKeys {
    /// The keys of the first partition, on one server or in a cluster.
    pub(crate) fn new(prefix: &str, task: &str, is_cluster: bool) -> TaskKeys {
        TaskKeys::of_part(prefix, task, (0, 1), is_cluster)
    }

    /// The keys of partition `part` of `parts`.
    pub(crate) fn of_part(prefix: &str, task: &str, (part, parts): (u32, u32), is_cluster: bool) -> TaskKeys {
        let tag = if part == 0 { task.to_owned() } else { hash_slot::tag_of_part(task, part, parts) };
        TaskKeys::tagged(prefix, task, &tag, (part, parts), is_cluster)
    }

    fn tagged(prefix: &str, task: &str, tag: &str, (part, parts): (u32, u32), is_cluster: bool) -> TaskKeys {
        TaskKeys {
            is_cluster,
            task: task.to_owned(),
            part,
            parts,
            keys: Key::ALL.iter().map(|key| format!("{prefix}:{{{tag}}}:{}", key.suffix())).collect(),
            cancel_channel: format!("{prefix}:{{{tag}}}:cancel"),
        }
    }

    /// The keys of a workflow. They cannot clash: no task name contains `:`, and a partition's tag has a number after it.
    pub(crate) fn of_workflow(prefix: &str, name: &str, is_cluster: bool) -> TaskKeys {
        TaskKeys::tagged(prefix, name, &workflow_tag(name), (0, 1), is_cluster)
    }

    /// The partition of these keys, from 0.
    pub(crate) fn part(&self) -> u32 {
        self.part
    }

    pub(crate) fn parts(&self) -> u32 {
        self.parts
    }

    pub(crate) fn task(&self) -> &str {
        &self.task
    }

    /// Whether they are in a cluster, where workers subscribe to wake markers instead of blocking on them.
    pub(crate) fn is_cluster(&self) -> bool {
        self.is_cluster
    }

    pub(crate) fn get(&self, key: Key) -> &str {
        &self.keys[key as usize]
    }

    /// The channel on which keepers get hints that a job of the task is cancelled.
    pub(crate) fn cancel_channel(&self) -> &str {
        &self.cancel_channel
    }
}

/// The ZSET of all workers, by when they were last seen (ms).
pub(crate) fn workers(prefix: &str) -> String {
    format!("{prefix}:workers")
}

/// The ZSET of workers that have been silent for long, by when they were last seen (ms).
pub(crate) fn dead_workers(prefix: &str) -> String {
    format!("{prefix}:workers:dead")
}

/// The ZSET of all tasks, by the time of their last declaration or dispatch (ms).
pub(crate) fn tasks(prefix: &str) -> String {
    format!("{prefix}:tasks")
}

/// The part of the tag of a workflow's keys that follows the name.
const OF_WORKFLOW: &str = ":flow";

pub(super) fn workflow_tag(name: &str) -> String {
    format!("{name}{OF_WORKFLOW}")
}

/// The workflow of such a tag.
pub(crate) fn workflow_of(tag: &str) -> Option<&str> {
    tag.strip_suffix(OF_WORKFLOW)
}

/// The ZSET of all workflows that were started, by the time of their last upkeep (ms).
pub(crate) fn workflows(prefix: &str) -> String {
    format!("{prefix}:workflows")
}

/// The ZSET of the workers of one boot of one host, by when they were last seen (ms).
pub(crate) fn boot(prefix: &str, boot_id: &str) -> String {
    format!("{prefix}:boot:{boot_id}")
}

/// The ZSET of the workers that have or had an exclusive name.
pub(crate) fn name(prefix: &str, name: &str) -> String {
    format!("{prefix}:name:{name}")
}

/// The hash with a worker's presence.
pub(crate) fn worker(prefix: &str, id: &str) -> String {
    format!("{prefix}:worker:{id}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_of_a_task_has_its_hash_tag_and_is_unique() {
        let keys = TaskKeys::new("heartline", "long-export", false);
        let mut seen = std::collections::BTreeSet::new();
        for (index, key) in Key::ALL.into_iter().enumerate() {
            assert_eq!(key as usize, index);
            assert!(keys.get(key).starts_with("heartline:{long-export}:"));
            assert!(seen.insert(keys.get(key).to_owned()));
        }
    }
}
