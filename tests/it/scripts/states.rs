use crate::scripts::call::Task;

/// A job in every place, each named by its state.
async fn everywhere() -> Task {
    let mut task = Task::with("waits waiting; runs w: silent=6; snapshot; runs w: running=7, claimed=8").await;
    // The mark of the running job has an earlier fence.
    task.write("claimed claimed=8, running=6; payload delayed=1, completed=1, failed=1, cancelled=1").await;
    task.write("delayed delayed=9e12").await;
    for place in ["completed", "failed", "cancelled"] {
        task.zadd(place, 1.0, place).await;
    }
    task
}

#[tokio::test]
async fn each_state_is_returned_in_the_order_of_the_request() {
    let mut task = everywhere().await;
    let ids = "failed waiting absent running claimed silent completed delayed cancelled waiting";
    let reply = task.unchanged("states", ids).await;
    let states = "failed waiting unknown running claimed running completed delayed cancelled waiting";
    assert_eq!(reply, format!("[looked '' [{states}] [0 0 0 0 0 0 0 0 0 0]]"));
}

#[tokio::test]
async fn only_a_completed_job_has_the_size_of_its_result() {
    let mut task = everywhere().await;
    task.write("completed valued=2").await;
    let large = "x".repeat(3 << 20);
    task.hset("result", &[("valued", &large), ("failed", "1"), ("waiting", "1"), ("absent", "1")]).await;
    let reply = task.ok("states", "failed valued waiting completed absent").await;
    assert_eq!(reply, "[looked '' [failed completed waiting completed unknown] [0 3145728 0 0 0]]");
}

#[tokio::test]
async fn the_event_mode_is_returned_once_a_worker_has_declared_it() {
    let mut task = Task::new().await;
    for mode in ["on", "off"] {
        task.hset("meta", &[("eventMode", mode)]).await;
        assert_eq!(task.ok("states", "a").await, format!("[looked {mode} [unknown] [0]]"));
    }
}

#[tokio::test]
async fn an_id_without_payload_is_unknown_unless_it_has_ended() {
    let mut task = everywhere().await;
    task.write("no payload").await;
    let reply = task.ok("states", "waiting running delayed completed failed cancelled").await;
    assert_eq!(reply, "[looked '' [unknown unknown unknown completed failed cancelled] [0 0 0 0 0 0]]");
}

#[tokio::test]
async fn five_hundred_jobs_are_looked_at_in_one_call() {
    let mut task = Task::new().await;
    let ids = (0..500).map(|i| format!("job-{i:03}")).collect::<Vec<_>>();
    let ids = ids.iter().map(String::as_str).collect::<Vec<_>>();
    task.waiting(&ids).await;
    let reply = task.ok("states", &ids).await;
    assert_eq!(reply.matches("waiting").count(), 500);
}
