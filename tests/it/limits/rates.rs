//! Rates over eight processes, half of which die while jobs wait.

use std::collections::BTreeSet;
use std::time::Duration;

use heartline::{App, StalledEvent};

use crate::limits::children::{Plan, Site, Work, dies, takes};
use crate::limits::log::{Log, Run};
use crate::support::task::{TASK, TestTask};
use crate::support::{Child, PATIENCE, eventually, is_thorough, turn};

/// How many jobs may start within a window.
const STARTS: usize = 100;

const WINDOW: Duration = Duration::from_millis(2_500);

/// How much of the rate is used at least, in whole percent. A start counts until the end of its step, and a window has
/// 32: so 32 of 33 can be used. On a busy machine workers may look for jobs late, so a short run proves less.
fn least_used() -> f64 {
    if is_thorough() { 97.0 } else { 50.0 }
}

/// How many windows are measured. Processes die in all but the last.
fn windows() -> usize {
    if is_thorough() { 30 } else { 3 }
}

#[tokio::test]
async fn the_rate_of_a_key_holds_and_is_used_while_processes_die() {
    let rate = (STARTS as u32, WINDOW.as_millis() as u64);
    holds_and_is_used(Plan { slots: 5, key_rate: Some(rate), ..Plan::default() }).await;
}

#[tokio::test]
async fn the_rate_of_a_task_holds_and_is_used_while_processes_die() {
    let rate = (STARTS as u32, WINDOW.as_millis() as u64);
    holds_and_is_used(Plan { slots: 5, rate: Some(rate), ..Plan::default() }).await;
}

/// Checks that each window keeps the rate, and how much of it is used.
async fn holds_and_is_used(plan: Plan) {
    turn::with_cluster();
    let (test, log) = (TestTask::new(), Log::new().await);
    let site = Site { url: test.redis().url(), prefix: test.prefix.clone(), log: log.clone() };
    let app = test.app().await;
    let task = app.task_ref::<Work, u64>(TASK).unwrap();
    let mut workers: Vec<Child> = (0..8).map(|_| site.start(&plan)).collect();
    let live = async || app.inspector().task(TASK).await.is_ok_and(|task| task.live_workers == 8);
    eventually("all processes work", PATIENCE, live).await;
    // The job in the middle of a window ends its process.
    let is_last = |at: usize| at > (windows() - 1) * STARTS;
    let job = |at: usize| if at % STARTS == 50 && !is_last(at) { dies("acme") } else { takes(1, "acme") };
    task.dispatch_many((0..(windows() + 2) * STARTS).map(job)).await.unwrap();
    let mut dead = Vec::new();
    for window in 1..=windows() - 1 {
        // Some starts of the dead process may not have been reported. The others rest until the next window.
        starts_reach(&log, window * STARTS - dead.len() * plan.slots - plan.slots).await;
        let at = workers.iter_mut().position(Child::lives).unwrap();
        let killed = workers.remove(at);
        dead.push(killed.pid());
        site.kill(killed).await;
        dead.extend(workers.iter_mut().filter_map(|worker| (!worker.lives()).then_some(worker.pid())));
        workers.retain_mut(Child::lives);
        while is_thorough() && workers.len() < 8 {
            workers.push(site.start(&plan));
        }
    }
    starts_reach(&log, windows() * STARTS + 10).await;
    dead.extend(workers.iter_mut().filter_map(|worker| (!worker.lives()).then_some(worker.pid())));
    let runs = log.runs().await;
    no_window_has_more(&runs);
    let unreported = unreported(&test, &app, &runs, &dead).await;
    let used = used(&runs, unreported);
    assert!(used.round() >= least_used(), "{used:.2} % of the rate are used");
}

async fn starts_reach(log: &Log, count: usize) {
    eventually("jobs continue", PATIENCE, async || log.runs().await.len() >= count).await;
}

/// A window is half open, and begins anywhere. It is enough to look at those that begin with a start.
fn no_window_has_more(runs: &[Run]) {
    let fences: BTreeSet<u64> = runs.iter().map(|run| run.fence).collect();
    assert_eq!(fences.len(), runs.len(), "a fence is used once");
    for first in &fences {
        let within = fences.range(*first..first + WINDOW.as_micros() as u64).count();
        assert!(within <= STARTS, "{within} starts from {first} on");
    }
}

/// How many jobs a process had claimed when it died, and had not reported. They count for the rate.
async fn unreported(test: &TestTask, app: &App, runs: &[Run], dead: &[u32]) -> usize {
    assert!(dead.len() >= windows(), "{dead:?}");
    let is_of = |worker: &str, pid: &u32| worker.contains(&format!("-{pid}-"));
    eventually("all that the dead held is recovered", PATIENCE, async || {
        let tokens: Vec<String> = test.run("HVALS", "locks", &[]).await;
        !tokens.iter().any(|token| dead.iter().any(|pid| is_of(token, pid)))
    })
    .await;
    let is_run = |stall: &StalledEvent, run: &Run| {
        run.id == stall.id.as_str() && is_of(stall.worker.as_ref().unwrap().as_str(), &run.pid)
    };
    let (mut count, mut cursor) = (0, None);
    loop {
        let page = app.inspector().stalls(TASK, cursor.as_deref()).await.unwrap();
        count += page.stalls.iter().filter(|stall| !runs.iter().any(|run| is_run(&stall.stall, run))).count();
        cursor = page.next;
        if cursor.is_none() {
            return count;
        }
    }
}

/// From the first start of all until the first start of the last window. All starts of a window come at its beginning.
fn used(runs: &[Run], unreported: usize) -> f64 {
    let mut fences: Vec<u64> = runs.iter().map(|run| run.fence).collect();
    fences.sort_unstable();
    let window = WINDOW.as_micros() as u64;
    let last = (1..fences.len()).rev().find(|at| fences[*at] - fences[at - 1] > window / 2).unwrap();
    let windows = (fences[last] - fences[0]) as f64 / window as f64;
    let used = 100.0 * (last + unreported) as f64 / (STARTS as f64 * windows);
    println!("{last} starts, {unreported} unreported, {windows:.4} windows: {used:.2} % are used");
    used
}
