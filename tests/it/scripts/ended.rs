use crate::scripts::call::{Task, assert_keys};

/// Jobs of the workflow `w`, one in each place, in the outbox since 1970.
async fn ended(jobs: &[(&str, &str)]) -> Task {
    let mut task = Task::new().await;
    for (at, (id, place)) in jobs.iter().enumerate() {
        task.hset("payload", &[(id, "{}")]).await;
        task.write(&format!("{place} {id}=5; outbox {id}={at}")).await;
    }
    task
}

#[tokio::test]
async fn ended_jobs_are_listed_with_their_outcome_until_removed() {
    let jobs =
        [("~w/a/0/1", "completed"), ("~w/a/1/1", "failed"), ("~w/a/2/1", "cancelled"), ("~w/a/3/1", "completed")];
    let mut task = ended(&jobs).await;
    task.write("result ~w/a/0/1=7, ~w/a/1/1=8; error ~w/a/0/1=OLD, ~w/a/1/1=E").await;
    for _ in 0..2 {
        let reply = task.unchanged("ended", "10000 200").await;
        assert_eq!(reply, "[ended 0 ~w/a/0/1 c 7 ~w/a/1/1 f E ~w/a/2/1 x '' ~w/a/3/1 c '']");
    }
}

#[tokio::test]
async fn recent_ends_are_not_listed_but_ends_far_in_the_future_are() {
    let mut task = ended(&[("~w/a/0/1", "completed"), ("~w/a/1/1", "completed"), ("~w/a/2/1", "completed")]).await;
    let now = task.now_ms().await;
    task.zadd("outbox", now, "~w/a/0/1").await;
    task.zadd("outbox", now + 30_000.0, "~w/a/1/1").await;
    task.write("outbox ~w/a/2/1=9e15").await;
    assert_eq!(task.ok("ended", "10000 200").await, "[ended 0 ~w/a/2/1 c '']");
    assert_eq!(task.ok("ended", "0 200").await, "[ended 0 ~w/a/0/1 c '' ~w/a/2/1 c '']");
}

#[tokio::test]
async fn an_entry_of_a_removed_or_rerun_job_is_removed() {
    let mut task = ended(&[("~w/a/0/1", "completed"), ("~w/a/1/1", "finalizing"), ("~w/a/2/1", "delayed")]).await;
    task.write("runs w: ~w/a/3/1=7").await;
    for id in ["~w/a/3/1", "~w/a/4/1"] {
        task.zadd("outbox", 1.0, id).await;
    }
    for _ in 0..2 {
        assert_eq!(task.ok("ended", "10000 200").await, "[ended 0 ~w/a/0/1 c '']");
        assert_keys!(task, "outbox ~w/a/0/1=0");
    }
}

#[tokio::test]
async fn a_call_lists_at_most_its_limit_and_512_kib() {
    let jobs: Vec<String> = (0..5).map(|node| format!("~w/a/{node}/1")).collect();
    let mut task = ended(&jobs.iter().map(|id| (id.as_str(), "completed")).collect::<Vec<_>>()).await;
    assert_eq!(task.ok("ended", "10000 2").await, "[ended 1 ~w/a/0/1 c '' ~w/a/1/1 c '']");
    assert_eq!(task.ok("ended", "10000 5").await.matches(" c ''").count(), 5);
    // Exactly 512 KiB; then a result that is one byte larger.
    let half = "h".repeat(256 * 1024);
    task.hset("result", &[(&jobs[0], &half), (&jobs[1], &half), (&jobs[2], "1")]).await;
    assert_eq!(task.ok("ended", "10000 200").await, "[ended 1 ~w/a/0/1 c 262144 ~w/a/1/1 c 262144]");
    // A larger one is listed alone.
    task.hset("result", &[(&jobs[0], &"l".repeat(1024 * 1024))]).await;
    assert_eq!(task.ok("ended", "10000 200").await, "[ended 1 ~w/a/0/1 c 1048576]");
}

#[tokio::test]
async fn values_over_16_kib_are_not_copied_but_measured() {
    let jobs =
        [("~w/a/0/1", "completed"), ("~w/a/1/1", "failed"), ("~w/a/2/1", "completed"), ("~w/a/3/1", "cancelled")];
    let mut task = ended(&jobs).await;
    let (large, most) = ("l".repeat(16 * 1024 + 1), "m".repeat(16 * 1024 - 1));
    task.write(&format!("result ~w/a/0/1={large}, ~w/a/2/1=77; error ~w/a/1/1={most}, ~w/a/3/1=E")).await;
    let reply = task.ok("ended", "10000 200").await.replace(&most, "MOST");
    assert_eq!(reply, "[ended 0 ~w/a/0/1 c 16385 ~w/a/1/1 f MOST ~w/a/2/1 c 2 ~w/a/3/1 x E]");
}
