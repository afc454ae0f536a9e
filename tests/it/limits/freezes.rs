//! A process that is frozen while it has the only slots of keys, and wakes up after others have them.

use std::collections::BTreeSet;

use heartline::{App, TaskRef};
use redis::AsyncCommands;

use crate::limits::children::{Held, Plan, Site, Work, takes, waits};
use crate::limits::log::{Log, Run};
use crate::support::task::{TASK, TestTask};
use crate::support::{Child, PATIENCE, Proxy, eventually, is_thorough};

/// How many more jobs each key has.
const NEXT: usize = 10;

/// The jobs that the zombie holds.
const FIRST: [&str; 2] = ["fails-0", "again-0"];

/// The jobs `<key>-1` and so on.
async fn dispatch_next(task: &TaskRef<Work, u64>, key: &str) {
    let jobs = (1..=NEXT).map(|at| (format!("{key}-{at}"), takes(5, key)));
    task.dispatch_many_with_ids(jobs).await.unwrap();
}

/// The ids of all events of this name.
async fn ids_of(test: &TestTask, name: &str) -> Vec<String> {
    let entries: redis::streams::StreamRangeReply = test.conn().await.xrange_all(test.key("events")).await.unwrap();
    let texts = entries.ids.iter().filter_map(|entry| entry.get::<String>(name));
    texts.flat_map(|text| text.split(' ').map(str::to_owned).collect::<Vec<_>>()).collect()
}

/// The microseconds of the server.
async fn now(test: &TestTask) -> u64 {
    let (seconds, us): (u64, u64) = redis::cmd("TIME").query_async(&mut test.conn().await).await.unwrap();
    seconds * 1_000_000 + us
}

async fn held(test: &TestTask) -> Held {
    Held::read(&mut test.conn().await, test.key("").trim_end_matches(':')).await
}

/// What the zombie does with its outcomes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Zombie {
    /// Its handlers end when it wakes up: it drops their outcomes, or the server refuses them.
    WakesUp,
    /// They ended before it froze, without a line to the server, which then refuses their outcomes.
    HasEnded,
}

#[tokio::test]
async fn a_zombie_that_wakes_up_gives_back_no_slot_of_others() {
    for _ in 0..if is_thorough() { 10 } else { 1 } {
        loses_its_slots(Zombie::WakesUp).await;
    }
}

#[tokio::test]
async fn late_outcomes_of_a_zombie_give_back_no_slot_of_others() {
    for _ in 0..if is_thorough() { 10 } else { 1 } {
        loses_its_slots(Zombie::HasEnded).await;
    }
}

async fn loses_its_slots(what: Zombie) {
    let (test, log) = (TestTask::new(), Log::new().await);
    let site = Site { url: test.redis().url(), prefix: test.prefix.clone(), log: log.clone() };
    let line = Proxy::start(test.redis().address()).await;
    let plan = Plan { slots: 10, running: Some(1), ..Plan::default() };
    let app = test.app().await;
    let task: TaskRef<Work, u64> = app.task_ref(TASK).unwrap();
    let zombie = Site { url: line.url(), ..site.clone() }.start(&plan);
    eventually("it is declared", PATIENCE, async || test.column("meta", "declaredAt").await.is_some()).await;
    task.dispatch(waits("fails")).id("fails-0").max_stalls(0).await.unwrap();
    task.dispatch(waits("again")).id("again-0").await.unwrap();
    for id in FIRST {
        log.has_begun(id, 1).await;
    }
    let _others = [site.start(&plan), site.start(&plan)];
    for key in ["fails", "again"] {
        dispatch_next(&task, key).await;
    }

    let (silent_at, silent_in) = (now(&test).await, test.epoch().await);
    freezes(&test, &log, &zombie, &line, what).await;
    // The next job of one key starts elsewhere, and the same job of the other.
    let (next, again) = (log.has_begun("fails-1", 1).await, log.has_begun("again-0", 2).await);
    assert!(zombie.pid() != next.pid && zombie.pid() != again.pid);
    starts_within_the_bound(&app, &[&next, &again], silent_at, silent_in).await;
    all_end(&test, &task, NEXT).await;

    wakes_up(&test, &log, &zombie, &line, what).await;
    let held = held(&test).await;
    held.is_within(1);
    assert_eq!(held.slots, [("again".to_owned(), "again-0".to_owned())]);
    assert_eq!(log.runs_of("again-1").await, [], "the key is full");

    dispatch_next(&task, "third").await;
    log.open(again.pid, "again-0").await;
    all_end(&test, &task, 3 * NEXT + 1).await;
    let most = log.most_at_a_time().await;
    assert!(most.len() == 3 && most.values().all(|most| *most == 1), "{most:?}");
    each_ended_once(&test, &task, 3 * NEXT + 1).await;
    assert_eq!(test.dump("laneHeld").await, None);
}

async fn freezes(test: &TestTask, log: &Log, zombie: &Child, line: &Proxy, what: Zombie) {
    if what == Zombie::HasEnded {
        line.pause();
        for id in FIRST {
            log.open(zombie.pid(), id).await;
        }
        handlers_end(log, zombie).await;
        // Meanwhile their outcomes reach its driver.
        test.epochs_pass(1).await;
    }
    zombie.signal("STOP");
    log.is_gone(zombie.pid()).await;
}

async fn wakes_up(test: &TestTask, log: &Log, zombie: &Child, line: &Proxy, what: Zombie) {
    line.resume();
    log.is_back(zombie.pid()).await;
    for id in FIRST {
        log.open(zombie.pid(), id).await;
    }
    zombie.signal("CONT");
    if what == Zombie::HasEnded {
        let refused = async || {
            let words = ids_of(test, "outcome_rejected").await;
            FIRST.iter().all(|id| words.iter().any(|word| word == id))
        };
        eventually("both outcomes are refused", PATIENCE, refused).await;
    }
    handlers_end(log, zombie).await;
    // After two of its heartbeats, all its reports have arrived.
    test.epochs_pass(1).await;
}

async fn handlers_end(log: &Log, process: &Child) {
    let ended = async || log.runs().await.iter().filter(|run| run.pid == process.pid()).all(|run| run.has_ended);
    eventually("its handlers have ended", PATIENCE, ended).await;
}

/// Waits until this many jobs have completed. Meanwhile no key has more than one slot.
async fn all_end(test: &TestTask, task: &TaskRef<Work, u64>, completed: usize) {
    let ended = async || {
        held(test).await.is_within(1);
        task.counts().await.unwrap().completed == completed as u64
    };
    eventually("the jobs have ended", PATIENCE, ended).await;
}

/// Both runs start when their epoch ends, by the clock of the server.
async fn starts_within_the_bound(app: &App, runs: &[&Run], silent_at: u64, silent_in: u64) {
    let reports = app.inspector().stalls(TASK, None).await.unwrap().stalls;
    let decided: Vec<u64> = reports.iter().map(|report| report.epoch.unwrap()).collect();
    assert!(decided.len() == 2 && decided.iter().all(|epoch| *epoch <= silent_in + 1), "{silent_in}: {decided:?}");
    for run in runs {
        println!("{} starts {} ms after the freeze", run.id, (run.fence - silent_at) / 1_000);
    }
}

async fn each_ended_once(test: &TestTask, task: &TaskRef<Work, u64>, completed: usize) {
    let ids = ids_of(test, "completed").await;
    assert_eq!((ids.len(), ids.iter().collect::<BTreeSet<_>>().len()), (completed, completed));
    assert_eq!(ids_of(test, "failed").await.iter().filter(|word| *word == "fails-0").count(), 1);
    let counts = task.counts().await.unwrap();
    assert_eq!((counts.completed, counts.failed, counts.pending_total()), (completed as u64, 1, 0), "{counts:?}");
}
