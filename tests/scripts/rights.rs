use crate::call::Task;

#[tokio::test]
async fn a_user_who_may_do_all_lacks_nothing_and_nothing_is_written() {
    let mut task = Task::new().await;
    let before = task.exact().await;
    assert_eq!(task.ok("rights", &[]).await, "[rights]");
    assert_eq!(task.exact().await, before);
}

/// Whether the server tells what a user may run: before Redis 7.0 none does.
async fn tells(task: &mut Task) -> bool {
    let info: redis::InfoDict = redis::cmd("INFO").arg("server").query_async(&mut task.conn).await.unwrap();
    let version: String = info.get("redis_version").unwrap();
    version.split('.').next().unwrap().parse::<u32>().unwrap() >= 7
}

#[tokio::test]
async fn what_would_be_refused_in_its_middle_is_refused_before_anything_is_written() {
    for (script, args, commands) in [
        (
            "sweep",
            &["v", "1000", "5", "1000", "0", "200", "auto", ""][..],
            &["lpush", "hincrby", "hdel", "zadd", "xadd"][..],
        ),
        ("trim", &["v", "Completed", "60000", "200"], &["hdel", "zrem", "xadd"]),
        ("expire", &["w", "200"], &["hdel", "zrem", "zadd", "hset", "xadd"]),
    ] {
        let mut task = Task::new().await;
        if !tells(&mut task).await {
            return;
        }
        let meta =
            [("epoch", "5"), ("interval", "1000"), ("ask", "1000"), ("maxCount", "1"), ("maxAgeCompleted", "1000")];
        task.hset("meta", &meta).await;
        task.running("w", &[("held", 7)]).await;
        task.snapshot().await;
        task.hset("payload", &[("old", "1")]).await;
        task.zadd("completed", 5.0, "old").await;
        task.waiting(&["late"]).await;
        task.hset("expiresAt", &[("late", "5")]).await;
        task.zadd("expires", 5.0, "late").await;
        let before = task.exact().await;
        for command in commands {
            task.lack(command).await;
            let refused = task.call(script, args).await.unwrap_err();
            assert!(crate::call::code_of(&refused) == "NOPERM", "{script} without {command}: {refused}");
            assert_eq!(task.exact().await, before, "{script} without {command}");
        }
        task.lack("shutdown").await;
        task.ok(script, args).await;
        assert_ne!(task.exact().await, before, "{script}");
    }
}
