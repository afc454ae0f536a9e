//! The text of each condition.

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::time::Duration;

    use crate::error::ServerErrorKind;
    use crate::inspect::diagnosis::*;
    use crate::runtime::death_proof::DeathProof;
    use crate::worker_id::WorkerId;

    const TIME: Duration = Duration::from_secs(125);

    fn worker() -> WorkerId {
        WorkerId::from_wire("w-1-0")
    }

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn holder(death: Option<DeathProof>) -> LostHolder {
        LostHolder {
            worker: worker(),
            is_known: true,
            host: "web".to_owned(),
            pid: Some(7),
            is_contained: false,
            death,
            has_stopped: false,
            seen_ago: TIME,
        }
    }

    /// Each text, and that the hint says something. Returns the codes.
    fn check(cases: Vec<(DiagnosisKind, &str)>) -> BTreeSet<String> {
        let count = cases.len();
        let codes: BTreeSet<String> = cases.iter().map(|(kind, _)| kind.code()).collect();
        for (kind, text) in cases {
            let found = Diagnosis::risk(Some("t"), kind);
            assert_eq!(found.to_string(), text, "{found:?}");
            assert!(found.hint().len() > 10 && found.hint().ends_with(|c: char| c != '.'), "{found:?}");
            let json = serde_json::to_value(&found).unwrap();
            assert_eq!(
                (&json["kind"], &json["what"], &json["severity"]),
                (&found.kind.code().into(), &text.into(), &"risk".into())
            );
        }
        assert_eq!(codes.len(), count, "{codes:?}");
        codes
    }

    #[test]
    fn conditions_of_servers_and_data_have_a_text() {
        use DataCondition as Data;
        use ServerCondition as Server;

        let text = || "why".to_owned();
        check(vec![
            (Server::ServerUnreachable { error: text() }.into(), "the server does not answer: why"),
            (Server::ServerIsReplica.into(), "the server is a replica, which takes no writes"),
            (Server::WritesRefused { answer: text() }.into(), "the server refuses writes: why"),
            (
                Server::PresenceUnknown { answer: text(), is_primary: true }.into(),
                "which workers live is unknown, since the server refuses writes: why",
            ),
            (Server::NoReplica.into(), "the server has no replica"),
            (Server::SilentReplicas { replicas: 2, silent: 1 }.into(), "1 of 2 replicas sent nothing for some seconds"),
            (
                Server::NoSpareReplica { wanted: 1, replicas: 1 }.into(),
                "writes need 1 replica (min-replicas-to-write), and the server has 1",
            ),
            (Server::EvictionPolicy { policy: "allkeys-lru".into() }.into(), "the maxmemory-policy is allkeys-lru"),
            (Server::KeysEvicted { keys: 2 }.into(), "the server has evicted 2 keys since it started"),
            (
                Server::NoAppendOnlyFile { has_snapshot: true, unsaved_writes: 3 }.into(),
                "the server writes no append-only file: a crash loses 3 writes since the last snapshot",
            ),
            (Server::SaveFailed.into(), "the last write to disk failed"),
            (Server::NoMemoryLimit.into(), "the server has no maxmemory"),
            (Server::MemoryFull { percent: 100 }.into(), "100 % of maxmemory is used: dispatches are refused"),
            (Server::ClockSkew { skew: TIME }.into(), "the clock differs from that of this machine by 2m 5s"),
            (
                Server::SlowRoundTrip { longest: TIME, interval: TIME }.into(),
                "a call takes up to 2m 5s, and the shortest stall interval is 2m 5s",
            ),
            (
                Server::ServerRestarted { place: "redis://h:1".into(), uptime: TIME }.into(),
                "the server redis://h:1 started 2m 5s ago without an append-only file",
            ),
            (
                Server::ClusterDown { node: "h:1".into() }.into(),
                "h:1 reports that the cluster is down: tasks and live workers are unknown",
            ),
            (
                Server::TaskListUnreachable { node: "h:1".into() }.into(),
                "the node with the list of tasks (h:1) does not answer: the tasks are unknown",
            ),
            (
                Server::WorkerListUnreachable { node: "h:1".into() }.into(),
                "the node with the list of workers (h:1) does not answer: which workers live is unknown",
            ),
            (Server::TasksMoving { tasks: names(&["a"]) }.into(), "slots are moving to another node: 1 task: a"),
            (
                Server::NodesUnreachable { tasks: names(&["a", "b"]), workers: 1 }.into(),
                "nodes of the cluster do not answer: 2 tasks: a, b; the presence of 1 live worker",
            ),
            (Data::TaskListLost.into(), "live workers are there, and no task is listed"),
            (Data::NoTasks.into(), "there is no task under this prefix"),
            (Data::TaskNotListed.into(), "live workers have it, and it is missing from the list of tasks"),
            (Data::InvalidTaskName { error: text() }.into(), "it is not a valid task name: why"),
            (Data::TaskUnreadable { error: text(), is_denied: false }.into(), "the task cannot be read: why"),
            (Data::ForeignKeys { keys: Vec::new() }.into(), "calls that need these keys fail: "),
            (
                Data::DataLost { tasks: names(&["t"]), ago: TIME }.into(),
                "the server lost its data 2m 5s ago: its jobs are gone",
            ),
            (
                Data::OptionsLost { ago: TIME }.into(),
                "its options and counters were lost 2m 5s ago, and its workers declared them again",
            ),
            (Data::JobsWithoutPlace { jobs: 1 }.into(), "1 job in no list or set: no worker will run them"),
            (
                Data::JobsWithoutPayload { jobs: 2, read: 5, waiting: 1, first: Some("a".into()) }.into(),
                "2 jobs without payload, 1 of them among the first 5 that wait, for example a: a claim removes them",
            ),
            (
                Data::PayloadsLost { jobs: 2, ago: TIME }.into(),
                "2 jobs had lost the payload and were removed, the last 2m 5s ago",
            ),
        ]);
    }

    #[test]
    fn conditions_of_waiting_and_failing_jobs_have_a_text() {
        use FailureCondition as Failure;
        use QueueCondition as Queue;

        let (declared_by, waiting) = (None, 2);
        check(vec![
            (
                Queue::NoWorker { waiting, due: 1, held: 0, declared_by: None }.into(),
                "2 jobs waiting (1 delayed and due), and no live worker has the task",
            ),
            (
                Queue::NoWorkerForDelayed { delayed: 1, next_due_in: Some(TIME), declared_by }.into(),
                "1 job delayed, the next due in 2m 5s, and no live worker has the task",
            ),
            (
                Queue::LastWorkerLost { worker: worker(), seen_ago: TIME }.into(),
                "no live worker has the task; the last one was seen 2m 5s ago and did not stop",
            ),
            (Queue::WorkersStopping { waiting }.into(), "2 jobs waiting, and all workers of the task are stopping"),
            (
                Queue::JobsNotClaimed { waiting, stuck: 1, partitions: 3, partition: 2, waited: TIME, idle: None }
                    .into(),
                "jobs wait in 1 of 3 partitions, the next one in partition 2 for 2m 5s; slots are free, and none was ever claimed",
            ),
            (
                Queue::Paused {
                    by: "ada".into(),
                    reason: "disk".into(),
                    waiting,
                    paused_partitions: 1,
                    partitions: 3,
                    ago: TIME,
                }
                .into(),
                "1 of 3 partitions are paused by ada 2m 5s ago (disk), 2 jobs waiting",
            ),
            (
                Queue::Backlog { waiting, waited: TIME }.into(),
                "2 jobs waiting, the next one for 2m 5s; all slots are taken, and jobs are claimed as slots become free",
            ),
            (
                Queue::SlotsTaken { slots: Some(2), has_timeout: false, idle: TIME, waited: TIME, oldest_run: None }
                    .into(),
                "all 2 slots are taken, none was claimed for 2m 5s, and the next job has waited 2m 5s",
            ),
            (Queue::SlotsFull { slots: 1, waiting }.into(), "the only slot is taken, 2 jobs waiting"),
            (
                Queue::SlotsHeldByLostRuns {
                    waiting,
                    slots: 3,
                    workers: vec![LostSlots { worker: worker(), slots: 2 }],
                }
                .into(),
                "2 jobs waiting and none is claimed: runs that lost their jobs hold 2 of 3 slots (w-1-0: 2)",
            ),
            (
                Failure::JobsFail {
                    failed_lately: 20,
                    completed_lately: 1,
                    in_a_row: 20,
                    are_final: true,
                    kept: 20,
                    has_workflows: false,
                    last_failed_ago: Some(TIME),
                }
                .into(),
                "20 jobs failed in the last 5 minutes, 1 completed; THE LAST 20 ALL FAILED",
            ),
            (
                Failure::JobsRetry {
                    delayed: 2,
                    read_delayed: 2,
                    delayed_retries: 1,
                    waiting: 0,
                    read_waiting: 0,
                    waiting_retries: 0,
                    code: "disk".into(),
                    message: "full".into(),
                    is_paused: false,
                    last_failed_ago: Some(TIME),
                    last_completed_ago: None,
                }
                .into(),
                "2 jobs delayed, 1 of the next 2 after a failed run, the first with disk: full; the last run failed 2m 5s ago, the last one \
                 completed never",
            ),
            (
                Failure::NewerProducer { jobs: 1 }.into(),
                "1 job delayed, since no worker can read the payload: a producer is newer than its workers",
            ),
            (
                Failure::JobsSnooze { delayed: 4, read: 4, snoozing: 3, most: 9, first: "a".into() }.into(),
                "4 jobs delayed; 3 of the next 4 snooze again and again, up to 9 times, and none completed in the last 5 minutes",
            ),
            (Failure::ProgramNotStarted { message: "why".into() }.into(), "a worker cannot start its program: why"),
            (
                Failure::RunsBreakOff { runs: 9, rounds: 3, has_completed: true, last_ago: TIME }.into(),
                "9 runs broke off since one completed, as workers stopped or died: 3 for each job that can run, the last 2m 5s ago",
            ),
            (
                Failure::HooksFail { hooks: 1, over: TIME, last_ago: TIME }.into(),
                "1 hook failed for good in 2m 5s, the last 2m 5s ago: their work is not done",
            ),
            (Failure::DelayedJobsNotRead { tasks: 2 }.into(), "the delayed jobs of 2 tasks were not read"),
        ]);
    }

    #[test]
    fn conditions_of_crashes_have_a_text() {
        use CrashCondition as Crash;

        let rescue = |by| Rescue { by, partly_by_person: false, within: TIME, asker: None };
        let held = Crash::HeldByLostWorker {
            jobs: 2,
            is_exact: true,
            holder: holder(None),
            rescue: rescue(Rescuer::NextWorker),
        };
        assert!(held.hint("t").contains("`heartline recover worker w-1-0`, if it is dead,"), "{}", held.hint("t"));
        assert!(held.hint("t").contains("; on web, `ps -o stat= -p 7` shows"), "{}", held.hint("t"));
        check(vec![
            (
                held.into(),
                "2 jobs held by w-1-0 on web, last seen 2m 5s ago: it is dead, frozen, or cut off from Redis",
            ),
            (
                Crash::HeldByMoreLostWorkers { jobs: 2, is_exact: false, workers: 4, dead: 1 }.into(),
                "at least 2 jobs held by 4 more workers that are not live, 1 of them proven dead",
            ),
            (
                Crash::HeldByMuteWorker { jobs: 1, worker: worker(), claimed_ago: TIME, seen_ago: TIME }.into(),
                "1 job held by w-1-0, which works and cannot update its presence: it claimed a job 2m 5s ago, and was seen 2m 5s ago",
            ),
            (
                Crash::HoldersNotRead { read: 1, held: 2, reported: 1 }.into(),
                "the holders of 1 of 2 held jobs were read",
            ),
            (
                Crash::SweepOverdue { ago: TIME, interval: TIME }.into(),
                "jobs are held, and no worker has swept them for 2m 5s",
            ),
            (Crash::JobsParked { jobs: 1 }.into(), "1 silent job parked for a person, as the options say"),
            (
                Crash::JobsWillFail { jobs: 1, first: None, by_person: false, has_live_workers: false }.into(),
                "1 job held by workers that are not live WILL FAIL when recovered",
            ),
            (
                Crash::PoisonSuspects {
                    jobs: names(&["a", "b"]),
                    others: 0,
                    top: None,
                    always_alone: false,
                    is_proven: false,
                    is_paused: false,
                    has_workers: false,
                }
                .into(),
                "2 jobs held when two or more workers died: a, b",
            ),
            (
                Crash::FailedSuspects { jobs: names(&["a"]) }.into(),
                "1 job failed after being held when two or more workers died: a",
            ),
            (
                Crash::JobsRecovered {
                    jobs: 2,
                    stalls: 3,
                    is_exact: true,
                    workers: vec![worker()],
                    failed: 1,
                    cancelled: 1,
                    last_ago: TIME,
                }
                .into(),
                "2 jobs recovered from w-1-0, 3 times in all, the last 2m 5s ago; 1 of them failed; 1 of them cancelled, as requested",
            ),
            (Crash::StallsNotRead { tasks: 1 }.into(), "the stalls of 1 task were not read"),
            (
                JobCondition::JobPlaceLost { outcome: "completed" }.into(),
                "it has completed, and its place is lost: it does not wait",
            ),
            (JobCondition::JobInNoList.into(), "it is in no list, so no worker finds it"),
            (
                JobCondition::JobMayBeInNoList { jobs: 2 }.into(),
                "2 jobs of its task in no list, and it may be one of them",
            ),
            (
                JobCondition::JobSilent { worker: worker() }.into(),
                "it got no heartbeat since the last snapshot, although w-1-0 updates its presence",
            ),
        ]);
    }

    #[test]
    fn conditions_of_workers_and_workflows_have_a_text() {
        use WorkerCondition as Worker;
        use WorkflowCondition as Workflow;

        let (of_task, answer, workflow) = (|| "t".to_owned(), || "why".to_owned(), || "w".to_owned());
        check(vec![
            (
                Worker::WorkerUnreadable { worker: worker(), error: answer(), is_denied: false }.into(),
                "the presence of the worker w-1-0 cannot be read: why",
            ),
            (
                Worker::WorkerDenied {
                    worker: worker(),
                    of_task: of_task(),
                    answer: answer(),
                    error: Some(ServerErrorKind::Auth),
                }
                .into(),
                "the server denies the worker w-1-0 calls of the task t: why",
            ),
            (
                Worker::WorkflowDenied { worker: worker(), answer: answer() }.into(),
                "the server denies the worker w-1-0 calls of a workflow: why",
            ),
            (
                Worker::SweepRefused { worker: worker(), of_task: of_task() }.into(),
                "the server refuses sweeps of the task t by the worker w-1-0",
            ),
            (
                Worker::WorkerSilent { holder: holder(Some(DeathProof::Gone)) }.into(),
                "the worker w-1-0 on web, which is dead (its process is gone), last seen 2m 5s ago",
            ),
            (
                Worker::RuntimeBlocked { worker: worker(), blocked: TIME }.into(),
                "handlers have blocked the runtime of w-1-0 for 2m 5s",
            ),
            (Worker::NoLiveWorker.into(), "no worker is live"),
            (Worker::MixedVersions { versions: names(&["1", "2"]) }.into(), "live workers have the versions 1, 2"),
            (
                Worker::MixedWireVersions { versions: vec![1, 2] }.into(),
                "live workers speak different versions of the wire format",
            ),
            (Worker::OptionsUnknown { tasks: names(&["a"]) }.into(), "the options of 1 task are unknown: a"),
            (
                Workflow::WorkflowListUnreadable { error: answer(), keys: Vec::new() }.into(),
                "the list of workflows cannot be read: why",
            ),
            (
                Workflow::WorkflowListLost { of_task: of_task() }.into(),
                "no workflow is listed, and the task t has jobs of some: the list is lost",
            ),
            (
                Workflow::WorkflowListUnknown { error: answer() }.into(),
                "no workflow is listed, and whether the list was lost is unknown: why",
            ),
            (
                Workflow::WorkflowUnreadable { workflow: workflow(), error: answer(), is_denied: true }.into(),
                "the workflow w cannot be read: why",
            ),
            (
                Workflow::WorkflowForeignKeys { workflow: workflow(), keys: Vec::new() }.into(),
                "the workflow w cannot advance: ",
            ),
            (
                Workflow::WorkflowMoving { workflow: workflow() }.into(),
                "the slot of the workflow w is moving to another node",
            ),
            (
                Workflow::WorkflowNotAdvanced { workflow: workflow(), running: 1, ago: Some(TIME) }.into(),
                "no worker has advanced the workflow w for 2m 5s, and 1 instance is running",
            ),
            (
                Workflow::OutcomesNotDelivered { workflow: workflow(), waited: TIME }.into(),
                "ended jobs could not be reported to the workflow w for 2m 5s",
            ),
            (
                Workflow::StepsOverdue { workflow: workflow(), steps: 2, tasks: names(&["a"]), waited: TIME }.into(),
                "2 steps of the workflow w could not be made, the oldest for 2m 5s",
            ),
            (
                Workflow::InstancesWithoutPlace { workflow: workflow(), instances: 2 }.into(),
                "the server lost the state of at least 2 instances of the workflow w",
            ),
            (
                Workflow::WorkflowCorrupt { workflow: workflow(), times: 1, last_ago: TIME }.into(),
                "data of the workflow w could not be read 1 time, the last 2m 5s ago",
            ),
            (
                Workflow::InstancesPaused { workflow: workflow(), instances: 1 }.into(),
                "1 instance is paused of the workflow w",
            ),
        ]);
    }
}
