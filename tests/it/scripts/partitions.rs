use crate::scripts::call::Task;

#[tokio::test]
async fn the_number_of_partitions_is_set_for_a_task_without_data() {
    let mut task = Task::new().await;
    task.lose_options().await;
    assert_eq!(task.ok("partitions", "1 4").await, "[partitions 4]");
    assert_eq!((&*task.field("meta", "partitions").await, &*task.field("meta", "wire").await), ("4", "1"));
    assert_eq!(task.unchanged("partitions", "1 2").await, "[partitions 4]");
    assert_eq!(task.refused("partitions", "0 4").await, "NEWERWIRE");
}

#[tokio::test]
async fn a_task_with_data_keeps_its_one_partition() {
    let mut task = Task::new().await;
    task.lose_options().await;
    assert_eq!(task.unchanged("partitions", "1 1").await, "[partitions 1]");
    let data = [("meta", "wire"), ("meta", "declaredAt"), ("meta", "in"), ("meta", "paused"), ("payload", "a")];
    for (key, field) in data {
        task.hset(key, &[(field, "1")]).await;
        assert_eq!(task.unchanged("partitions", "1 4").await, "[partitions 1]", "{field}");
        task.del(key).await;
        task.lose_options().await;
    }
}

#[tokio::test]
async fn a_dispatch_with_another_partition_number_writes_nothing() {
    let mut task = Task::new().await;
    assert_eq!(task.ok("dispatch", "1 4 - a 1").await, "dispatched");
    assert_eq!((&*task.field("meta", "partitions").await, &*task.field("meta", "wire").await), ("4", "1"));
    assert_eq!(task.unchanged("dispatch", "1 1 - b 1").await, "partitions 4");
    assert_eq!(task.unchanged("dispatch", "1 2 - a 1").await, "partitions 4");
    let mut plain = Task::new().await;
    plain.ok("dispatch", "1 1 - a 1").await;
    assert_eq!(plain.ok("dispatch", "1 4 - b 1").await, "partitions 1");
}

#[tokio::test]
async fn other_partitions_are_refused_unless_the_options_are_lost() {
    let mut task = Task::new().await;
    task.lose_options().await;
    task.ok("partitions", "1 4").await;
    assert!(task.ok("declare", "1 - w partitions 4").await.starts_with("[declared "));
    assert_eq!(task.refused("declare", "1 - w partitions 2").await, "OTHERPARTITIONS");
    assert_eq!(task.refused("declare", "1 - w maxCount 2").await, "OTHERPARTITIONS");
    task.write("no meta").await;
    // A producer that knows nothing of them was first.
    task.ok("dispatch", "1 1 - a 1").await;
    assert_eq!(task.ok("declare", "1 100 w partitions 4").await, "[declared 100 []]");
    assert_eq!((&*task.field("meta", "partitions").await, &*task.field("meta", "wire").await), ("4", "1"));
    task.write("no meta").await;
    task.ok("dispatch", "1 4 - b 1").await;
    assert_eq!(task.ok("declare", "1 200 w maxCount 2").await, "[declared 200 []]");
    let meta = task.held("meta").await;
    assert!(!meta.contains("partitions") && meta.contains(r#""wire": "1""#), "{meta}");
}
