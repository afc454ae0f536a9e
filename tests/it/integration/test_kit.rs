//! What the feature `testing` offers for users' tests.

use heartline::testing::TestApp;
use heartline::{Context, Error, Graph, Interrupted, JobError, RetryPolicy, TaskDef, TaskOptions, TaskRef};
use std::time::Duration;

async fn export(ctx: Context, pages: u32) -> Result<u32, JobError> {
    for _ in 0..pages {
        ctx.heartbeat()?;
    }
    Ok(pages * ctx.attempt())
}

#[tokio::test]
async fn a_handler_is_tested_without_redis() {
    let test = Context::for_test()
        .id("export-7")
        .unwrap()
        .task("export")
        .attempt(3)
        .stalled_count(2)
        .snoozed_count(4)
        .header("trace", "t-1")
        .state("a pool".to_owned());
    let ctx = test.context();
    assert_eq!((ctx.id().as_str(), ctx.task(), ctx.attempt(), ctx.max_attempts()), ("export-7", "export", 3, 3));
    assert_eq!((ctx.stalled_count(), ctx.snoozed_count(), ctx.header("trace")), (2, 4, Some("t-1")));
    assert_eq!(ctx.require_header("trace").unwrap(), "t-1");
    let missing = ctx.require_header("tenant").unwrap_err();
    assert!(missing.code() == "missing_header" && missing.is_fatal(), "{missing:?}");
    assert_eq!(missing.to_string(), "the job has no header \"tenant\"");
    assert_eq!(ctx.state::<String>().unwrap(), "a pool");
    let missing = JobError::from(ctx.state::<u8>().unwrap_err());
    assert!(missing.code() == "missing_state" && missing.is_fatal(), "{missing:?}");
    assert_eq!(export(ctx, 5).await.unwrap(), 15);
    assert!(Context::for_test().id("no id").is_err());
}

#[tokio::test]
async fn interruptions_of_a_run_can_be_simulated() {
    let stopped = |error: JobError| *error.downcast_ref::<Interrupted>().unwrap();
    let test = Context::for_test();
    let ctx = test.context();
    let waits = tokio::spawn({
        let ctx = test.context();
        async move { ctx.cancelled().await }
    });
    test.put_at_risk();
    ctx.lock_at_risk().await;
    assert!(ctx.is_at_risk() && ctx.heartbeat().is_ok() && !ctx.is_cancelled());
    test.shut_down();
    ctx.shutting_down().await;
    assert!(ctx.heartbeat().is_ok());
    test.end_grace();
    waits.await.unwrap();
    assert_eq!(stopped(export(test.context(), 1).await.unwrap_err()), Interrupted::Shutdown);
    test.cancel();
    assert_eq!(stopped(export(test.context(), 1).await.unwrap_err()), Interrupted::Cancelled);
    test.lose();
    assert_eq!(stopped(export(test.context(), 1).await.unwrap_err()), Interrupted::Lost);
}

#[tokio::test]
async fn a_drain_includes_delayed_and_newly_dispatched_jobs() {
    let app = TestApp::start_with(|builder| builder.prefix("own")).await.unwrap();
    let retry = RetryPolicy::new().attempts(3).fixed(Duration::from_secs(3600));
    let child: TaskRef<u32, u32> = app
        .task("child", TaskOptions::new().retry(retry), |ctx: Context, n: u32| async move {
            match (n, ctx.attempt()) {
                (1, 1 | 2) => Err("not yet"),
                (2, _) => Err("never"),
                _ => Ok(n),
            }
        })
        .unwrap();
    let children = child.clone();
    let parent: TaskRef<u32, ()> = app
        .task("parent", TaskOptions::new(), move |ctx: Context, n: u32| {
            let children = children.clone();
            async move {
                if ctx.snoozed_count() == 0 {
                    return Err(JobError::snooze(Duration::from_secs(3600)));
                }
                children.dispatch_many(0..n).await?;
                Ok(())
            }
        })
        .unwrap();
    let stubborn: TaskRef<(), ()> = app
        .task("stubborn", TaskOptions::new(), |_, (): ()| async { Err(JobError::snooze(Duration::from_secs(60))) })
        .unwrap();
    parent.dispatch(4).delay(Duration::from_secs(86_400)).await.unwrap();
    let never = stubborn.dispatch(()).id("never").await.unwrap();
    let drained = tokio::time::timeout(Duration::from_secs(20), app.worker().drain()).await.unwrap().unwrap();
    // The parent and three children; one child fails twice, another three times.
    assert_eq!((drained.completed, drained.failed, drained.retried), (4, 1, 4), "{drained:?}");
    // The parent once; the stubborn child when it was dispatched, when it was brought forward, and at the ends of
    // others.
    assert!((3..=2 + 6).contains(&drained.put_off), "{drained:?}");
    assert_eq!(drained.left, std::slice::from_ref(never.id()));
    let counts = child.counts().await.unwrap();
    assert_eq!((counts.completed, counts.failed, counts.waiting, counts.delayed), (3, 1, 0, 0));
}

#[tokio::test]
async fn a_drain_includes_a_snoozed_parent_and_its_slow_children() {
    let app = TestApp::start().await.unwrap();
    let children: TaskRef<u64, u64> = app
        .task("child", TaskOptions::new(), |_, ms: u64| async move {
            tokio::time::sleep(Duration::from_millis(ms)).await;
            Ok::<_, JobError>(ms)
        })
        .unwrap();
    let parent: TaskRef<Vec<u64>, u64> = app
        .task("parent", TaskOptions::new(), move |ctx: Context, times: Vec<u64>| {
            let children = children.clone();
            async move {
                let ids = (0..).map(|i| format!("{}.{i}", ctx.id()));
                let mut sum = 0;
                for child in children.dispatch_many_with_ids(ids.zip(times)).await? {
                    if !child.state().await?.is_terminal() {
                        return Err(JobError::snooze(Duration::from_secs(3600)));
                    }
                    sum += child.result().await?;
                }
                Ok(sum)
            }
        })
        .unwrap();
    let sum = parent.dispatch(vec![300, 10, 150]).await.unwrap();
    let drained = tokio::time::timeout(Duration::from_secs(20), app.worker().drain()).await.unwrap().unwrap();
    assert_eq!((drained.completed, drained.left.len()), (4, 0), "{drained:?}");
    assert_eq!(sum.result().await.unwrap(), 460);
}

#[tokio::test]
async fn a_node_handler_reads_test_inputs_and_reports_grown_nodes() {
    const NEXT: TaskDef<u64, u64> = TaskDef::new("next");
    async fn sum(ctx: Context, (): ()) -> Result<u64, JobError> {
        let first: u64 = ctx.upstream("first").await?;
        let all = ctx.upstreams::<u64>().await?;
        if let Some((name, Err(failure))) = all.into_iter().find(|(_, value)| value.is_err()) {
            return Err(JobError::new(format!("{name}: {}", failure.message)).with_code(failure.code));
        }
        let graph = Graph::new();
        graph.node("more", &NEXT, first);
        ctx.expand(graph)?;
        Ok(first + 1)
    }
    let test = Context::for_test().upstream("first", &4).unwrap().upstream("second", &5).unwrap();
    assert_eq!(sum(test.context(), ()).await.unwrap(), 5);
    assert_eq!(test.expanded(), Some(vec!["more".to_owned()]));
    assert!(
        test.context().upstream::<u64>("third").await.unwrap_err().to_string().contains("must be the name of a node")
    );
    assert!(matches!(test.context().upstream::<String>("first").await, Err(Error::Codec { .. })));
    let test = test.failed_upstream("third", "no_money", "the card was declined");
    let failed = sum(test.context(), ()).await.unwrap_err();
    assert_eq!((failed.code(), failed.to_string().as_str()), ("no_money", "third: the card was declined"));
    assert_eq!(test.expanded(), None);
    // A job that is not a node has no inputs and grows nothing.
    let plain = Context::for_test();
    assert!(
        plain
            .context()
            .upstream::<u64>("first")
            .await
            .unwrap_err()
            .to_string()
            .contains("must be a node of a workflow")
    );
    assert!(plain.context().expand(Graph::new()).is_err());
}
