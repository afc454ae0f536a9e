use crate::scripts::call::{Task, assert_keys};

#[tokio::test]
async fn keys_of_jobs_that_are_gone_are_removed() {
    let now = "9000000000000";
    let mut task = Task::with("waits kept other").await;
    task.write("uniqueOf gone=k1, moved=k2, kept=k3, lasts=k4, over=k5, young=k6, lost=k7, damaged=k8").await;
    task.write("unique k1=gone done 0 1, k2=other done 0 1, k3=kept done 0 1, k5=over period 1 1, k8=?").await;
    task.write(&format!("unique k4=lasts period {now} 1, k6=young done 0 {now}")).await;
    assert_eq!(task.ok("trim_unique", "0 500 60000").await, "[trimmed 0 8 5]");
    assert_keys!(task, "uniqueOf kept=k3, lasts=k4, young=k6");
    let left = format!("unique k2=other done 0 1, k3=kept done 0 1, k4=lasts period {now} 1, k6=young done 0 {now}");
    assert_keys!(task, left);
    assert_eq!(task.unchanged("trim_unique", "0 500 60000").await, "[trimmed 0 3 0]");
}

#[tokio::test]
async fn many_keys_are_removed_in_calls_of_bounded_size() {
    let mut task = Task::new().await;
    let (ids, entries): (Vec<_>, Vec<_>) =
        (0..2_000).map(|n| (format!("job-{n:04}"), format!("job-{n:04} done 0 1"))).unzip();
    let of: Vec<(&str, &str)> = ids.iter().map(|id| (id.as_str(), id.as_str())).collect();
    let unique: Vec<(&str, &str)> = ids.iter().zip(&entries).map(|(id, entry)| (id.as_str(), entry.as_str())).collect();
    task.hset("uniqueOf", &of).await;
    task.hset("unique", &unique).await;
    let (mut cursor, mut calls) = ("0".to_owned(), 0);
    loop {
        let reply = task.ok("trim_unique", &format!("{cursor} 500 0")).await;
        cursor = reply.split(' ').nth(1).unwrap().to_owned();
        calls += 1;
        if cursor == "0" {
            break;
        }
    }
    assert!((2..=20).contains(&calls), "{calls}");
    assert_keys!(task, "no unique, uniqueOf");
}
