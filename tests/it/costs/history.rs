//! Removed jobs leave nothing.

use crate::costs::meter::Meter;

/// Every key except for the streams, with its type and size.
async fn shape(meter: &mut Meter) -> Vec<String> {
    let mut shape = Vec::new();
    for key in meter.keys().await {
        let kind = meter.kind(&key).await;
        let command = match kind.as_str() {
            "hash" => "HLEN",
            "set" => "SCARD",
            "list" => "LLEN",
            "zset" => "ZCARD",
            "stream" => {
                shape.push(format!("{key} stream"));
                continue;
            }
            other => panic!("{key} is a {other}"),
        };
        shape.push(format!("{key} {kind} {}", meter.ask(&[command], &key, &[]).await));
    }
    shape
}

/// One round: jobs of every kind are added and removed in every way.
async fn round(meter: &mut Meter) {
    meter.dispatch(8).await;
    // Everything that a job can have of its own; it is due at once.
    let own = [("maxCount", "3"), ("options", "{}"), ("priority", "high"), ("dispatchedAt", "7"), ("delay", "0")];
    meter.dispatch_with(8, &own).await;
    meter.dispatch(1).await;
    let (id, channel) = (meter.last_id(), meter.task.key("cancel"));
    assert_eq!(meter.call("cancel", &["why", &channel, "", &id, ""]).await, "[told ended]");

    assert_eq!(meter.settle(0, None, 20).await, 16);
    meter.held.rotate_left(6);
    meter.settle_other(4, ["failed", "1", "handler_error", "{}"], 0).await;
    meter.settle_other(4, ["retry", "1", "0", "{}"], 0).await;
    meter.settle_other(4, ["requeue", "0", "", ""], 0).await;
    meter.beat(4).await;
    assert_eq!(meter.sweep().await, 0);
    assert_eq!(meter.sweep().await, 4);
    meter.held.clear();
    assert_eq!(meter.settle(0, None, 20).await, 12);
    meter.settle(12, Some("42"), 20).await;
}

#[tokio::test]
async fn jobs_that_are_not_kept_leave_nothing() {
    let mut meter = Meter::new("0").await;
    let (mut shapes, mut lengths) = (Vec::new(), Vec::new());
    for _ in 0..5 {
        round(&mut meter).await;
        shapes.push(shape(&mut meter).await);
        lengths.push([meter.ask(&["XLEN"], "events", &[]).await, meter.ask(&["XLEN"], "stalls", &[]).await]);
    }
    // One field per worker in `replies`; in `meta`: wire, the stamp and its owner, fence, 13 options, the largest
    // payload, the interval and who asked for it, ask and who asked, the epoch with 2 times, 8 counters, and when a
    // run last completed, failed and broke off.
    let left = ["events stream", "meta hash 36", "replies hash 1", "stalls stream"];
    for (at, shape) in shapes.iter().enumerate() {
        assert_eq!(shape, &left, "after round {}", at + 1);
    }
    // Three dispatches, a cancel, six settles and a sweep that resolved have one entry each.
    for (at, lengths) in lengths.iter().enumerate() {
        let rounds = at as u64 + 1;
        assert_eq!(*lengths, [11 * rounds, rounds], "after round {rounds}");
    }
}

#[tokio::test]
async fn the_streams_are_bounded() {
    let mut meter = Meter::new("0").await;
    for (stream, entries) in [("events", 10_500), ("stalls", 2_500)] {
        let mut pipe = redis::pipe();
        for total in 1..=entries {
            pipe.cmd("XADD")
                .arg(meter.task.key(stream))
                .arg("*")
                .arg("total")
                .arg(total)
                .arg("worker")
                .arg("")
                .ignore();
        }
        let () = pipe.query_async(&mut meter.task.conn).await.unwrap();
    }
    for _ in 0..20 {
        round(&mut meter).await;
        // Nodes of 100 entries are removed whole. Events are trimmed at each 100th.
        let lengths = [meter.ask(&["XLEN"], "events", &[]).await, meter.ask(&["XLEN"], "stalls", &[]).await];
        let most = if meter.task.field("meta", "events").await.parse::<u32>().unwrap() < 100 { 10_600 } else { 10_200 };
        assert!((10_000..most).contains(&lengths[0]) && (2_000..2_100).contains(&lengths[1]), "{lengths:?}");
    }
}
