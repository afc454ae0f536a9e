use crate::scripts::call::{Task, assert_keys, assert_rest, assert_text};

async fn task_of(jobs: &[(&str, &str, u64)]) -> Task {
    let mut task = Task::with("meta epoch=5, interval=60000, ask=60000, maxCount=1").await;
    for (worker, id, fence) in jobs {
        task.running(worker, &[(id, *fence)]).await;
    }
    task
}

const PROVEN: &str = "v worker_restarted - 0 500";

#[tokio::test]
async fn only_jobs_of_the_dead_workers_are_resolved_at_once() {
    let mut task = task_of(&[("web-1-1", "a", 7), ("web-1-10", "b", 8), ("web-1", "c", 9), ("gone", "d", 10)]).await;
    let reply = task.ok("reconcile", &format!("{PROVEN} web-1-1 gone")).await;
    assert!(reply.contains("a 1 recovered web-1-1 7") && reply.contains("d 1 recovered gone 10"), "{reply}");
    let mut waiting = task.list("wait").await;
    waiting.sort();
    assert_eq!(waiting, ["a", "d"]);
    assert_keys!(task, "locks b=web-1-10:8, c=web-1:9; active b c");
    assert_text!(task.held("recovery").await, contains(r#""a": "worker_restarted web-1-1 NOW""#));
    assert_keys!(task, "wake marker=0, spare=1");
    // The epoch does not change.
    assert_keys!(task, "meta.epoch=5");
    // A second call finds nothing.
    assert_eq!(task.unchanged("reconcile", &format!("{PROVEN} web-1-1 gone")).await, "[reconciled 0 0 []]");
}

#[tokio::test]
async fn a_proven_stall_is_reported_with_its_reason_and_no_watch() {
    let mut task = task_of(&[("w", "a", 7)]).await;
    task.write("snapshot").await;
    task.ok("reconcile", &format!("{PROVEN} w")).await;
    let entry = "{reason=worker_restarted, stalled=a 1 recovered w, total=1, worker=v}";
    assert_keys!(task, format!("stalls {entry}; events {entry}; no candidates"));
}

#[tokio::test]
async fn the_table_of_the_sweep_decides() {
    let mut task = task_of(&[("w", "spent", 7), ("w", "cancel", 8), ("w", "dropped", 9), ("w", "odd", 10)]).await;
    task.write("stalledCount spent=1, odd=x; cancelling cancel=why; no payload.dropped").await;
    let reply = task.ok("reconcile", &format!("{PROVEN} w")).await;
    for part in ["spent 2 failed w 7", "cancel 1 cancelled w 8", "dropped 0 dropped w 9", "odd 0 failed w 10"] {
        assert!(reply.contains(part), "{part}: {reply}");
    }
    assert!(task.held("error").await.contains("worker w is dead: stalled 2 times, max_count is 1"));
    assert_keys!(task, "no locks");
}

#[tokio::test]
async fn the_event_and_the_error_name_the_person() {
    let mut task = task_of(&[("w", "a", 7)]).await;
    task.write("stalledCount a=1").await;
    task.ok("reconcile", "- manual 'ada 100%d' 0 500 w").await;
    assert!(task.held("error").await.contains("worker w is dead, says ada 100%d: stalled 2 times"));
    assert_text!(task.held("stalls").await, contains(r#""by": "ada 100%d""#), contains(r#""reason": "manual""#));
}

#[tokio::test]
async fn a_call_decides_at_most_a_batch_and_returns_a_cursor() {
    let mut task = task_of(&[]).await;
    let ids: Vec<String> = (0..450).map(|at| format!("job-{at:03}")).collect();
    let jobs: Vec<(&str, u64)> = ids.iter().zip(1_u64..).map(|(id, fence)| (id.as_str(), fence)).collect();
    task.running("w", &jobs).await;
    let (mut cursor, mut calls, mut left) = ("0".to_owned(), 0, 450);
    loop {
        let reply = task.ok("reconcile", &["v", "worker_restarted", "", &cursor, "500", "w"]).await;
        calls += 1;
        assert!(calls < 20, "it does not end");
        let words: Vec<&str> = reply.trim_matches(['[', ']']).split(' ').collect();
        let now = task.eval("return redis.call('HLEN', KEYS[1])", &[task.key("locks")], &[]).await.unwrap();
        let now: usize = now.parse().unwrap();
        assert!(left - now <= 200, "{left} to {now}");
        left = now;
        if words[2] == "0" && words[1] == "0" {
            break;
        }
        cursor = words[1].to_owned();
    }
    assert_eq!((left, task.list("wait").await.len()), (0, 450));
}

#[tokio::test]
async fn a_pause_prevents_wakes_and_lost_options_prevent_decisions() {
    let mut task = task_of(&[("w", "a", 7)]).await;
    task.lose_options().await;
    assert_eq!(task.unchanged("reconcile", &format!("{PROVEN} w")).await, "[undeclared]");
    task.declared().await;
    task.write("meta paused=5").await;
    task.ok("reconcile", &format!("{PROVEN} w")).await;
    assert_keys!(task, "no wake; wait a");
}

#[tokio::test]
async fn a_crash_may_count_as_a_failed_run_here_too() {
    let mut task = task_of(&[("w", "a", 7)]).await;
    let policy = r#"{"attempts":3,"backoff":{"fixed":{"delay_ms":9000}},"jitter":"none"}"#;
    task.hset("meta", &[("onCrash", "retry"), ("retry", policy)]).await;
    assert_eq!(task.ok("reconcile", &format!("{PROVEN} w")).await, "[reconciled 0 0 [a 1 retrying w 7]]");
    assert_rest!(
        task,
        "meta, payload, events, stalls, error, delayed",
        "attempt a=1; enqueuedAt a=NOW; recovery a=worker_restarted w NOW; stalledCount a=1; wake marker=0, spare=1"
    );
}

#[tokio::test]
async fn nodes_that_end_with_their_worker_are_in_the_outbox() {
    for keep in ["1", "0"] {
        let mut task = task_of(&[("w", "~f/a/0/1", 7), ("w", "own", 8), ("w", "~f/a/1/1", 9)]).await;
        task.write(&format!("meta keepFailed={keep}; stalledCount ~f/a/0/1=1, own=1")).await;
        task.ok("reconcile", &format!("{PROVEN} w")).await;
        assert_keys!(task, "wait ~f/a/1/1; outbox ~f/a/0/1=NOW");
        let own = if keep == "1" { "own=NOW, " } else { "" };
        assert_keys!(task, format!("failed {own}~f/a/0/1=NOW"));
    }
}

#[tokio::test]
async fn a_worker_that_was_replaced_counts_no_stall() {
    let mut task = task_of(&[("w", "a", 7), ("w", "b", 8), ("w", "c", 9)]).await;
    task.write("meta maxCount=0, onCrash=fail; cancelling b=no more; stalledCount c=3").await;
    let reply = task.ok("reconcile", "v replaced - 0 500 w").await;
    for told in ["a 0 requeued w 7", "b 0 cancelled w 8", "c 3 requeued w 9"] {
        assert!(reply.contains(told), "{reply}");
    }
    assert_keys!(task, "wait a c; stalledCount c=3; recovery a=replaced w NOW, c=replaced w NOW");
}
