//! Processes with another limit of each key start next to those with the old one.

use heartline::TaskRef;

use crate::limits::children::{Held, Plan, Site, Work, takes, waits};
use crate::limits::log::{Log, Run};
use crate::support::task::{TASK, TestTask};
use crate::support::{Child, PATIENCE, eventually};

const KEYS: [&str; 2] = ["a", "b"];

/// How many jobs of each key do not wait for the test.
const NEXT: usize = 10;

/// Old processes, and the jobs `<key>-0` and `<key>-1` that each key begins with.
struct Deploy {
    test: TestTask,
    log: Log,
    site: Site,
    task: TaskRef<Work, u64>,
    old: Child,
}

impl Deploy {
    /// Starts a process with the old limit. It holds as many of the first jobs of each key as that allows.
    async fn begin(limit: u32) -> Deploy {
        let (test, log) = (TestTask::new(), Log::new().await);
        let site = Site { url: test.redis().url(), prefix: test.prefix.clone(), log: log.clone() };
        let task = test.app().await.task_ref(TASK).unwrap();
        let old = site.start(&plan(limit));
        let deploy = Deploy { test, log, site, task, old };
        eventually("the old limit is declared", PATIENCE, async || deploy.declared().await.is_some()).await;
        for key in KEYS {
            for at in 0..2 {
                deploy.task.dispatch(waits(key)).id(format!("{key}-{at}")).await.unwrap();
            }
            let next = (2..2 + NEXT).map(|at| (format!("{key}-{at}"), takes(5, key)));
            deploy.task.dispatch_many_with_ids(next).await.unwrap();
        }
        let full = async || {
            let held = deploy.held().await;
            KEYS.iter().all(|key| held.of(key) == limit as usize)
        };
        eventually("both keys are full", PATIENCE, full).await;
        deploy
    }

    /// Starts a process with the new limit, and waits until it applies. Returns when it was declared, ms of the server.
    async fn declares(&self, limit: u32) -> (Child, u64) {
        let before = self.declared().await;
        let new = self.site.start(&plan(limit));
        let is_new = async || self.declared().await.filter(|at| Some(*at) != before);
        let at = eventually("the new limit is declared", PATIENCE, is_new).await;
        self.log.changes().await;
        (new, at)
    }

    async fn declared(&self) -> Option<u64> {
        self.test.column("meta", "declaredAt").await.map(|at| at.parse().unwrap())
    }

    async fn held(&self) -> Held {
        Held::read(&mut self.test.conn().await, self.test.key("").trim_end_matches(':')).await
    }

    /// Lets the last run of the job end, and waits until it has.
    async fn ends(&self, id: &str) {
        let run = self.log.runs_of(id).await.pop().unwrap();
        self.log.open(run.pid, id).await;
        self.task.handle(id).unwrap().result().await.unwrap();
    }

    /// Runs jobs of another key: each worker with a free slot has looked for jobs since.
    async fn others_run(&self) {
        for _ in 0..10 {
            self.task.dispatch(takes(1, "other")).await.unwrap().result().await.unwrap();
        }
    }

    /// Waits until all jobs have ended. Meanwhile no key has more slots than the limit.
    async fn all_end(&self, limit: usize) {
        let ended = async || {
            self.held().await.is_within(limit);
            self.task.counts().await.unwrap().pending_total() == 0
        };
        eventually("all jobs have ended", PATIENCE, ended).await;
        let most = self.log.most_at_a_time().await;
        assert!(most.values().all(|most| *most <= limit), "{most:?}");
        assert_eq!(self.task.counts().await.unwrap().failed, 0);
        assert_eq!(self.test.dump("laneHeld").await, None);
    }
}

fn plan(limit: u32) -> Plan {
    Plan { slots: 4, running: Some(limit), ..Plan::default() }
}

#[tokio::test]
async fn a_lower_limit_of_keys_applies_to_old_processes_too() {
    let deploy = Deploy::begin(2).await;
    let (_new, _) = deploy.declares(1).await;
    deploy.others_run().await;
    assert_eq!(deploy.held().await.of("a"), 2);
    // One of two ends: the key is still full.
    deploy.ends("a-0").await;
    deploy.others_run().await;
    let held = deploy.held().await;
    assert_eq!((held.of("a"), held.of("b")), (1, 2));
    assert_eq!(deploy.log.runs_of("a-2").await, []);
    deploy.ends("a-1").await;
    deploy.log.has_begun("a-2", 1).await;
    // The old process hands back what it holds. The new one starts those jobs one at a time.
    let old = deploy.old.pid();
    deploy.log.is_gone(old).await;
    deploy.old.signal("TERM");
    for _ in 0..2 {
        let is_again = |run: &Run| ["b-0", "b-1"].contains(&&*run.id) && run.pid != old && !run.has_ended;
        let again = async || deploy.log.runs().await.into_iter().find(is_again);
        let run = eventually("one of them runs again", PATIENCE, again).await;
        assert_eq!(deploy.held().await.of("b"), 1);
        deploy.ends(&run.id).await;
    }
    deploy.all_end(1).await;
}

#[tokio::test]
async fn a_higher_limit_of_keys_starts_waiting_jobs_soon() {
    let deploy = Deploy::begin(1).await;
    let (_new, declared_at) = deploy.declares(2).await;
    for id in ["a-1", "b-1"] {
        let run = deploy.log.has_begun(id, 1).await;
        let after = run.fence / 1_000 - declared_at;
        println!("{id} starts {after} ms after the declaration");
        assert!(after < 3_000, "{id} starts {after} ms after the declaration");
    }
    deploy.others_run().await;
    let held = deploy.held().await;
    assert_eq!((held.of("a"), held.of("b")), (2, 2));
    for id in ["a-0", "b-0"] {
        assert_eq!(deploy.log.runs_of(id).await.len(), 1);
        deploy.ends(id).await;
    }
    // The third runs next to the second.
    deploy.log.has_begun("a-2", 1).await;
    for id in ["a-1", "b-1"] {
        deploy.ends(id).await;
    }
    deploy.all_end(2).await;
}
