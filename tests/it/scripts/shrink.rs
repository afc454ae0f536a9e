use crate::scripts::call::Task;

/// The size of a key in bytes, by the server.
async fn bytes_of(task: &mut Task, key: &str) -> usize {
    let key = task.key(key);
    redis::cmd("MEMORY").arg("USAGE").arg(key).query_async(&mut task.conn).await.unwrap()
}

/// This many running jobs were candidates, and all but two of them, `a` and `b`, sent a heartbeat.
async fn two_left_of(many: usize) -> Task {
    let mut task = Task::with("meta epoch=5, interval=1000, ask=1000, maxCount=1").await;
    let ids = (0..many).map(|i| format!("job-{i:05}")).collect::<Vec<_>>();
    let ids = ids.iter().map(String::as_str).collect::<Vec<_>>();
    task.sadd("active", &ids).await;
    task.write("runs w: a=7, b=8; snapshot").await;
    let (active, candidates) = (task.key("active"), task.key("candidates"));
    let source = "for _, id in ipairs(ARGV) do redis.call('SMOVE', KEYS[1], KEYS[2], id) end return 1";
    for some in ids.chunks(500) {
        task.eval(source, &[candidates.clone(), active.clone()], some).await.unwrap();
    }
    task
}

/// Sweeps until the snapshot is taken: both are decided by then, in one call if their table is small.
async fn sweeps_both(task: &mut Task) -> usize {
    let (mut cursor, mut calls, mut decided) = ("0".to_owned(), 0, String::new());
    loop {
        let reply = task.ok("sweep", &["v", "1000", "5", "1000", &cursor, "200"]).await;
        calls += 1;
        let (told, jobs) = reply.split_once(" [").unwrap();
        decided.push_str(jobs);
        let words: Vec<&str> = told.split(' ').collect();
        if words[4] == "1" {
            assert_eq!(words, ["[swept", "6", "1000", "0", "1", "0"], "without candidates the scan is over");
            break;
        }
        cursor = words[3].to_owned();
    }
    assert!(decided.contains("a 1 recovered w 7") && decided.contains("b 1 recovered w 8"), "{decided}");
    calls
}

#[tokio::test]
async fn the_table_of_a_few_remaining_candidates_is_shrunk_first() {
    let mut task = two_left_of(10_000).await;
    let (large, everything) = (bytes_of(&mut task, "candidates").await, task.exact().await);
    // One call for each 4,000 running jobs.
    for _ in 0..3 {
        assert_eq!(task.ok("shrink", "").await, "[shrunk]");
    }
    let small = bytes_of(&mut task, "candidates").await;
    // Valkey 9.1 shrinks its tables itself.
    assert!(small < 1_000 && (large > 16_000 || large == small), "{large} bytes became {small}");
    assert_eq!(task.exact().await, everything, "the candidates are unchanged");
    // Extra calls do no harm, nor does a sweep without any.
    assert_eq!(task.ok("shrink", "").await, "[shrunk]");
    assert_eq!(task.exact().await, everything);
    assert_eq!(sweeps_both(&mut task).await, 1);
    // A sweep over a large table still takes calls in proportion to its size.
    sweeps_both(&mut two_left_of(10_000).await).await;
}

#[tokio::test]
async fn nothing_is_written_if_nothing_can_be_gained() {
    // No candidates; one of a thousand; one of more than that.
    for (candidates, active, reply) in [(0, 2_000, "[enough]"), (1, 1_000, "[enough]"), (1, 1_001, "[shrunk]")] {
        let mut task = Task::new().await;
        let ids = (0..active).map(|i| format!("job-{i}")).collect::<Vec<_>>();
        task.sadd("active", &ids).await;
        if candidates > 0 {
            task.write("candidates a").await;
        }
        assert_eq!(task.unchanged("shrink", "").await, reply, "{candidates} of {active}");
    }
}

#[tokio::test]
async fn the_last_few_may_send_heartbeats_while_their_table_is_shrunk() {
    let mut task = two_left_of(10_000).await;
    assert_eq!(task.ok("shrink", "").await, "[shrunk]");
    task.ok("extend_locks", "w 1000 2 0 a b 7 8").await;
    assert_eq!(task.ok("shrink", "").await, "[enough]");
    assert_eq!(task.ok("sweep", "v 1000 5 1000 0 200").await, "[swept 6 1000 0 1 0 []]");
}
