//! Commands per call: what a script and its fragments ask of the server. A call for hundreds of jobs asks for as much
//! as a call for one, unless their values may be large. The comment above each number explains it.

use crate::costs::meter::Meter;

// Every dispatch reads the settings and the stored payloads (HMGET 2), whether its jobs have completed (ZMSCORE), and
// whether there are failed or cancelled ones (EXISTS); it writes the ids (RPUSH), the payloads, and both totals (HSET
// 2), the event (XADD), and a wake-up (ZCARD, ZADD). A payload more than twice as large as any before, like the first
// one, raises the bound for what claims read at once; the bound and the wire version are written with the totals.
const DISPATCH: &str = "10: exists 1, hmget 2, hset 2, rpush 1, xadd 1, zadd 1, zcard 1, zmscore 1";
// Types of the three lists and four columns (LLEN 3, HLEN 4), when the first delayed job is due (ZRANGE), the time;
// then ZADD instead of RPUSH, and the wake-up only if the job is the next one due. The delays are in `options` (HSET).
const DISPATCH_DELAYED: &str =
    "18: exists 1, hlen 4, hmget 2, hset 3, llen 3, time 1, xadd 1, zadd 1, zmscore 1, zrange 1";
const DISPATCH_NEXT: &str =
    "20: exists 1, hlen 4, hmget 2, hset 3, llen 3, time 1, xadd 1, zadd 2, zcard 1, zmscore 1, zrange 1";
// The same checks, and one HSET for the priorities of all.
const DISPATCH_PRIORITY: &str =
    "20: exists 1, hlen 4, hmget 2, hset 3, llen 3, rpush 1, time 1, xadd 1, zadd 1, zcard 1, zmscore 1, zrange 1";

// Each column that any of the jobs has costs one HSET: here two, `maxCount` and `options`.
const DISPATCH_OPTIONS: &str =
    "21: exists 1, hlen 4, hmget 2, hset 4, llen 3, rpush 1, time 1, xadd 1, zadd 1, zcard 1, zmscore 1, zrange 1";

// Every settle reads its record (HGET), the settings (HMGET), the time, how many rare keys exist (EXISTS), the head of
// the list (LRANGE) and the type of `payload` (HLEN); it writes an SREM of no member, so that a server at maxmemory
// lets it pass, and its record (HSET).
const SETTLE_NOTHING: &str = "9: exists 1, hget 1, hlen 1, hmget 1, hset 1, lrange 1, srem 1, time 1, zrem 1";
// Claims: payloads and locks of the heads (HMGET 2) in place of HLEN, then LTRIM, SADD, the locks and the fence (HSET
// 2), XADD, and the wake-up for the remaining jobs (ZADD).
const SETTLE_CLAIM: &str =
    "16: exists 1, hget 1, hmget 3, hset 3, lrange 1, ltrim 1, sadd 1, srem 1, time 1, xadd 1, zadd 1, zcard 1";
// The first claim of a task also writes the interval (HSET).
const SETTLE_FIRST_CLAIM: &str =
    "17: exists 1, hget 1, hmget 3, hset 4, lrange 1, ltrim 1, sadd 1, srem 1, time 1, xadd 1, zadd 1, zcard 1";
// Reports: the tokens shown (HMGET), the removed locks and payloads (HDEL 2).
const SETTLE: &str =
    "19: exists 1, hdel 2, hget 1, hmget 4, hset 3, lrange 1, ltrim 1, sadd 1, srem 1, time 1, xadd 1, zadd 1, zcard 1";
// No job is left, and no other worker needs to look: the spare marker is removed (ZREM).
const SETTLE_LAST: &str =
    "18: exists 1, hdel 2, hget 1, hmget 4, hset 3, lrange 1, ltrim 1, sadd 1, srem 1, time 1, xadd 1, zrem 1";
// Reports, and finds nothing to claim: the count of events is written (HSET), but no lock.
const SETTLE_REPORT: &str =
    "14: exists 1, hdel 2, hget 1, hlen 1, hmget 2, hset 2, lrange 1, srem 1, time 1, xadd 1, zrem 1";
// Kept jobs are added to a set (ZADD) and keep their payload (no HDEL). Terminal sets are rare keys: how many exist
// (EXISTS), the size of that one (ZCARD), and the heads in it (ZMSCORE).
const SETTLE_KEPT: &str = "22: exists 2, hdel 1, hget 1, hmget 4, hset 3, lrange 1, ltrim 1, sadd 1, srem 1, time 1, \
    xadd 1, zadd 2, zcard 2, zmscore 1";
// So is a column of results: how many columns exist (EXISTS), and the size of that one (HLEN), after which no rare key
// is left to query. Results are one HSET.
const SETTLE_KEPT_RESULTS: &str = "25: exists 3, hdel 1, hget 1, hlen 1, hmget 4, hset 4, lrange 1, ltrim 1, sadd 1, \
    srem 1, time 1, xadd 1, zadd 2, zcard 2, zmscore 1";
// A delayed job that is not due is a rare key of neither kind: terminal sets and columns (EXISTS 2), candidates
// (SCARD), cancels, tombstones and early begins (HLEN 3); when the next job is due (ZRANGE), and the list before
// (LRANGE). Its delay is in a column: which ones are filled (HLEN 8), what the claimed jobs have, and the bytes of their
// options (HMGET 2), and the removed ones (EXISTS, HDEL).
const SETTLE_BESIDE_DELAYED: &str = "39: exists 4, hdel 3, hget 1, hlen 11, hmget 6, hset 3, lrange 2, ltrim 1, \
    sadd 1, scard 1, srem 1, time 1, xadd 1, zadd 1, zcard 1, zrange 1";
// With jobs that were silent since the snapshot, from which the reported ones are removed (SREM), it is the same
// except for the column.
const SETTLE_BESIDE_CANDIDATES: &str = "28: exists 3, hdel 2, hget 1, hlen 3, hmget 4, hset 3, lrange 2, ltrim 1, \
    sadd 1, scard 1, srem 2, time 1, xadd 1, zadd 1, zcard 1, zrange 1";

// Requeued jobs are added to the front of their lists (LPUSH), with the time (HSET); they may have been claimed ahead
// (HDEL). Before that, types of the three lists and of `locks`, `payload`, `claimed` and that column (LLEN 3, HLEN 4),
// and `active` (SCARD).
// Which of them had begun, so that their runs broke off (HMGET).
const SETTLE_REQUEUE: &str = "27: exists 2, hdel 2, hget 1, hlen 5, hmget 3, hset 3, llen 3, lpush 1, lrange 1, \
    scard 1, srem 1, time 1, xadd 1, zadd 1, zcard 1";
// That column is filled until they are claimed: terminal sets (EXISTS), which columns are filled (HLEN 5, EXISTS); the
// claimed jobs are removed from it (HDEL).
const SETTLE_CLAIM_AGAIN: &str =
    "23: exists 3, hdel 1, hget 1, hlen 5, hmget 3, hset 3, lrange 1, ltrim 1, sadd 1, srem 1, time 1, xadd 1, zrem 1";
// Errors, attempts, since when they are delayed, the total and the record (HSET 5), due times (ZADD), when the first
// is due (ZRANGE).
const SETTLE_RETRY: &str =
    "17: exists 1, hdel 1, hget 1, hlen 1, hmget 2, hset 5, lrange 1, srem 1, time 1, xadd 1, zadd 1, zrange 1";
// Due jobs (ZRANGEBYSCORE) move from `delayed` to their list (ZREM, RPUSH), with the time (HSET), which the claim
// removes (HDEL). The filled columns are found one by one (HLEN 6).
const SETTLE_DUE: &str = "44: exists 4, hdel 1, hget 1, hlen 11, hmget 4, hset 4, llen 3, lrange 3, ltrim 1, rpush 1, \
    sadd 1, scard 2, srem 1, time 1, xadd 1, zrange 2, zrangebyscore 1, zrem 2";
// With tombstones after the heads: types (LLEN 3, HLEN 4, SCARD), the first entry of each list (LINDEX 3) and whether it
// is a tombstone (HEXISTS); whether the claimed heads are tombstones too (HMGET), which may also be delayed (ZMSCORE).
const SETTLE_BESIDE_TOMBSTONES: &str = "43: exists 3, hexists 1, hget 1, hlen 7, hmget 4, hset 3, lindex 3, llen 3, \
    lrange 2, ltrim 1, sadd 1, scard 2, srem 1, time 1, xadd 1, zadd 1, zcard 4, zmscore 3, zrange 1";
// Tombstones at the head of a list: how many follow each other (LRANGE, HMGET) and where their jobs are (ZMSCORE 3, HMGET
// 2, and HEXISTS of the first job that waits); they are removed from the list (LTRIM) and from the count (HMGET, HDEL,
// EXISTS, HGET, HSET). Nothing is left, and no worker is woken.
const SETTLE_BEHIND_TOMBSTONES: &str = "57: exists 4, hdel 1, hexists 2, hget 2, hlen 7, hmget 8, hset 4, lindex 3, \
    llen 3, lrange 4, ltrim 2, sadd 1, scard 2, srem 1, time 1, xadd 1, zcard 3, zmscore 6, zrange 1, zrem 1";

/// Claims if `n` payloads as large as the largest could be too much for one reply: the size of each (HSTRLEN).
fn claiming_large(n: usize) -> String {
    format!(
        "{}: exists 1, hget 1, hmget 3, hset 3, hstrlen {n}, lrange 1, ltrim 1, sadd 1, srem 1, time 1, xadd 1, zadd 1, \
         zcard 1",
        16 + n
    )
}

// A late or repeated call, or one of a closed call sequence, only reads the record (HGET).
const SETTLE_REPEATED: &str = "1: hget 1";
// If the options are lost: the record and the settings.
const SETTLE_UNDECLARED: &str = "2: hget 1, hmget 1";

/// For each job in the record: the locks (HMGET), the extras (EXISTS), the size of the payload (HSTRLEN) and the
/// payload itself (HGET).
fn settle_repeated(n: usize) -> String {
    format!("{}: exists 1, hget {}, hmget 1, hstrlen {n}", 3 + 2 * n, 1 + n)
}

// The settings and the locks (HMGET 2), the sizes of both sets, for their types too (SCARD 2), cancels (HLEN),
// an SREM of no member, and the moves from the candidates (SREM) to `active` (SADD).
const BEAT: &str = "8: hlen 1, hmget 2, sadd 1, scard 2, srem 2";

// The same without candidates: it compares the sizes of `locks` and `active` (HLEN) and moves nothing.
const BEAT_AGAIN: &str = "7: hlen 2, hmget 2, scard 2, srem 1";

// The settings (HMGET), the types of three lists, eleven columns and `active` (LLEN 3, HLEN 11, SCARD), whether there
// are terminal jobs (EXISTS), the candidates (SSCAN), the time, an SREM of no member, how many candidates are left
// (SCARD); then the snapshot: EXISTS, RENAME, HSET.
const SWEEP: &str =
    "31: exists 2, hlen 16, hmget 1, hset 1, llen 3, rename 1, scard 2, srem 1, sscan 1, time 1, zcard 2";
// Without a running job there is nothing to rename.
const SWEEP_NOTHING: &str = "30: exists 2, hlen 16, hmget 1, hset 1, llen 3, scard 2, srem 1, sscan 1, time 1, zcard 2";
// Another epoch, too early, or without options: the settings.
const SWEEP_TOO_EARLY: &str = "1: hmget 1";

/// Stalled jobs: locks, cancels, counts and limits (HMGET 4), and whether any was claimed ahead, began early or has a
/// stored outcome (HLEN 3); out of `active`, `locks`, `cancelling`, `claimed`, `early` (SREM, HDEL 4); priorities (EXISTS), LPUSH,
/// since when they wait and how they were recovered (HSET 2), the wake-up (ZADD), whether a limit was reached (HGET); two streams, each counted (HINCRBY
/// 2, XADD 2). Each job: its payload (HEXISTS) and its count (HINCRBY).
// How many runs broke off, and when (HINCRBY, HSET of `meta`).
fn sweep_of_stalled(n: usize) -> String {
    format!(
        "{}: exists 4, hdel 4, hexists {n}, hget 1, hincrby {}, hlen 20, hmget 5, hset 4, llen 3, lpush 1, scard 2, srem 2, sscan 1, \
         time 1, xadd 2, zadd 1, zcard 5",
        59 + 2 * n,
        3 + n
    )
}

// The sizes of both sets (SCARD 2); an SADD and an SREM of no member.
const SHRINK: &str = "4: sadd 1, scard 2, srem 1";
// Without a candidate: only the size of that set.
const SHRINK_ENOUGH: &str = "1: scard 1";

/// The settings (HMGET), the types of the set and of all columns (ZCARD, HLEN 16), the size if a count is declared
/// (ZCARD), whether a workflow must record any (ZCARD), the time, the oldest jobs (ZRANGEBYSCORE) and for each removed
/// one the sizes of its payload and its result (HSTRLEN 2); then ZREM, the payloads (HDEL), whether there is another
/// column (EXISTS), and the event, which is counted (HINCRBY, XADD).
fn trim(n: usize) -> String {
    format!(
        "{}: exists 1, hdel 1, hincrby 1, hlen 16, hmget 1, hstrlen {}, time 1, xadd 1, zcard 3, zrangebyscore 1, zrem 1",
        27 + 2 * n,
        2 * n
    )
}
// No job is old enough.
const TRIM_NOTHING: &str = "22: hlen 16, hmget 1, time 1, zcard 3, zrangebyscore 1";
// Without options: the settings.
const TRIM_UNDECLARED: &str = "1: hmget 1";

/// Four places (ZMSCORE 4), the locks (HMGET), whether any job was claimed ahead or has a stored outcome (HLEN 2), the
/// event mode (HGET); for each job that has not ended whether it has a payload (HEXISTS), for each completed one the
/// size of its result (HSTRLEN).
fn states(open: usize, completed: usize) -> String {
    let all = [("hexists", open), ("hget", 1), ("hlen", 2), ("hmget", 1), ("hstrlen", completed), ("zmscore", 4)];
    let all = all.iter().filter(|(_, count)| *count > 0).map(|(name, count)| format!("{name} {count}"));
    format!("{}: {}", 8 + open + completed, all.collect::<Vec<_>>().join(", "))
}

// Where the job is (ZMSCORE 4, HMGET, HLEN 2, HEXISTS), its small columns and the reason of a cancel (HGET 14),
// whether it is a candidate (SISMEMBER), and the sizes of its payload and its result (HSTRLEN 2).
const INSPECT: &str = "28: hexists 1, hget 16, hlen 2, hmget 1, hstrlen 3, sismember 1, zmscore 4";

/// The columns of a delayed job.
const fn delayed(ms: &str) -> [(&str, &str); 2] {
    [("delay", ms), ("options", r#"{"delay_ms":60000}"#)]
}

#[tokio::test]
async fn a_dispatch_of_200_jobs_costs_as_much_as_one_of_a_single_job() {
    for n in [1, 200] {
        let mut meter = Meter::new("1").await;
        for _ in 0..2 {
            meter.dispatch(n).await;
            assert_eq!(meter.cost, DISPATCH, "{n} jobs");
        }
        meter.task.hset("meta", &[("largest", "1")]).await;
        meter.dispatch(n).await;
        assert_eq!(meter.cost, DISPATCH, "{n} jobs");
        meter.dispatch_with(n, &delayed("60000")).await;
        assert_eq!(meter.cost, DISPATCH_NEXT, "{n} jobs");
        meter.dispatch_with(n, &delayed("90000")).await;
        assert_eq!(meter.cost, DISPATCH_DELAYED, "{n} jobs");
        meter.dispatch_with(n, &[("priority", "high")]).await;
        assert_eq!(meter.cost, DISPATCH_PRIORITY, "{n} jobs");
        meter.dispatch_with(n, &[("maxCount", "3"), ("options", r#"{"max_count":3}"#)]).await;
        assert_eq!(meter.cost, DISPATCH_OPTIONS, "{n} jobs");
    }
}

#[tokio::test]
async fn a_dispatch_looks_for_its_ids_among_the_kept_jobs() {
    for n in [1, 200] {
        let mut meter = Meter::new("1").await;
        meter.dispatch(n).await;
        meter.settle(0, None, n).await;
        meter.settle(n, None, 0).await;
        meter.dispatch(n).await;
        assert_eq!(meter.cost, DISPATCH, "{n} jobs");
    }
}

#[tokio::test]
async fn a_settle_of_200_jobs_costs_as_much_as_one_of_a_single_job() {
    for n in [1, 200] {
        for (keep, value, steady) in [
            ("0", None, SETTLE),
            // Jobs that are not kept cost nothing.
            ("0", Some("1"), SETTLE),
            ("1", None, SETTLE_KEPT),
            ("1", Some("1"), SETTLE_KEPT_RESULTS),
        ] {
            let mut meter = Meter::new(keep).await;
            for _ in 0..4 {
                meter.dispatch(n).await;
            }
            assert_eq!(meter.settle(0, None, n).await, n);
            // The first call that reports jobs finds none that were kept before.
            assert_eq!(meter.settle(n, value, n).await, n);
            assert_eq!(meter.settle(n, value, n).await, n);
            assert_eq!(meter.cost, steady, "{n} jobs, keep {keep}, value {value:?}");
        }
    }
}

#[tokio::test]
async fn a_settle_that_only_claims_or_only_reports_costs_less() {
    for n in [1, 200] {
        let mut meter = Meter::new("0").await;
        for _ in 0..4 {
            meter.dispatch(n).await;
        }
        assert_eq!(meter.settle(0, None, n).await, n);
        assert_eq!(meter.cost, SETTLE_FIRST_CLAIM, "{n} jobs");
        assert_eq!(meter.settle(0, None, n).await, n);
        assert_eq!(meter.cost, SETTLE_CLAIM, "{n} jobs");
        meter.settle(n, None, n).await;
        assert_eq!(meter.settle(n, None, n).await, n);
        assert_eq!(meter.cost, SETTLE_LAST, "{n} jobs");
        assert_eq!(meter.settle(n, None, n).await, 0);
        assert_eq!(meter.cost, SETTLE_REPORT, "{n} jobs");
    }
}

#[tokio::test]
async fn a_claim_checks_each_size_only_if_payloads_could_be_too_large() {
    // As many payloads as fit into the bound, or one too many.
    for (largest, n, cost) in [
        ("2621", 200, SETTLE_CLAIM.to_owned()),
        ("2622", 200, claiming_large(200)),
        ("524288", 1, SETTLE_CLAIM.to_owned()),
        ("524289", 1, claiming_large(1)),
        ("1048576", 50, claiming_large(50)),
    ] {
        let mut meter = Meter::new("0").await;
        for _ in 0..3 {
            meter.dispatch(n).await;
        }
        meter.settle(0, None, n).await;
        meter.task.hset("meta", &[("largest", largest)]).await;
        assert_eq!(meter.settle(0, None, n).await, n);
        assert_eq!(meter.cost, cost, "{n} jobs of at most {largest} bytes");
    }
}

#[tokio::test]
async fn without_declared_options_a_call_reads_only_the_settings() {
    let mut meter = Meter::new("0").await;
    meter.run(10).await;
    meter.task.lose_options().await;
    for (script, args, cost) in [
        ("settle", &["9", "w", "1000", "10", "0", "0"][..], SETTLE_UNDECLARED),
        ("sweep", &["w", "1000", "0", "1000", "0", "200", "auto", ""], SWEEP_TOO_EARLY),
        ("trim", &["w", "Completed", "60000", "200"], TRIM_UNDECLARED),
    ] {
        assert_eq!(meter.call(script, args).await, "[undeclared]");
        assert_eq!(meter.cost, cost, "{script}");
    }
}

#[tokio::test]
async fn a_trimmed_job_costs_two_commands_and_a_kept_one_none() {
    for n in [1, 200] {
        let mut meter = Meter::new("1").await;
        meter.run(n).await;
        meter.settle(n, None, 0).await;
        let args = ["w", "Completed", "0", "500"];
        assert_eq!(meter.call("trim", &args).await, "[trimmed 0 0]");
        assert_eq!(meter.cost, TRIM_NOTHING, "{n} jobs");
        meter.task.hset("meta", &[("maxAgeCompleted", "0")]).await;
        assert_eq!(meter.call("trim", &args).await, format!("[trimmed {n} 0]"));
        assert_eq!(meter.cost, trim(n), "{n} jobs");
    }
}

#[tokio::test]
async fn a_look_at_500_jobs_asks_for_one_thing_of_each() {
    for n in [1, 500] {
        let mut meter = Meter::new("1").await;
        meter.dispatch(n).await;
        let ids: Vec<String> = (1..=n).map(|job| format!("job{job:019}")).collect();
        let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
        meter.call("states", &ids).await;
        assert_eq!(meter.cost, states(n, 0), "{n} jobs wait");
        meter.call("inspect", &ids[..1]).await;
        assert_eq!(meter.cost, INSPECT);
        while meter.held.len() < n {
            meter.settle(0, None, 200).await;
        }
        meter.settle(n, Some("1"), 0).await;
        meter.call("states", &ids).await;
        assert_eq!(meter.cost, states(0, n), "{n} jobs have completed");
    }
}

#[tokio::test]
async fn a_step_of_shrinking_costs_the_same_for_any_number_of_jobs() {
    let mut meter = Meter::new("1").await;
    meter.call("shrink", &[]).await;
    assert_eq!(meter.cost, SHRINK_ENOUGH);
    meter.run(2_000).await;
    meter.task.sadd("candidates", &["one"]).await;
    assert_eq!(meter.call("shrink", &[]).await, "[shrunk]");
    assert_eq!(meter.cost, SHRINK);
}

#[tokio::test]
async fn a_settle_that_finds_nothing_costs_little() {
    let mut meter = Meter::new("0").await;
    for _ in 0..2 {
        assert_eq!(meter.settle(0, None, 50).await, 0);
        assert_eq!(meter.cost, SETTLE_NOTHING);
        meter.settle_again().await;
        assert_eq!(meter.cost, SETTLE_REPEATED);
    }
}

#[tokio::test]
async fn a_repeated_settle_is_answered_from_its_record() {
    for n in [1, 200] {
        let mut meter = Meter::new("0").await;
        meter.dispatch(2 * n).await;
        meter.settle(0, None, n).await;
        meter.settle(n, None, n).await;
        meter.settle_again().await;
        assert_eq!(meter.cost, settle_repeated(n), "{n} jobs");
    }
}

#[tokio::test]
async fn delayed_and_silent_jobs_do_not_raise_the_cost_of_a_settle() {
    for n in [1, 200] {
        let mut meter = Meter::new("0").await;
        meter.dispatch_with(n, &delayed("60000")).await;
        for _ in 0..3 {
            meter.dispatch(n).await;
        }
        meter.settle(0, None, n).await;
        assert_eq!(meter.settle(n, None, n).await, n);
        assert_eq!(meter.cost, SETTLE_BESIDE_DELAYED, "{n} jobs");

        let mut meter = Meter::new("0").await;
        meter.run(2 * n).await;
        meter.dispatch(2 * n).await;
        assert_eq!(meter.sweep().await, 0);
        assert_eq!(meter.settle(n, None, n).await, n);
        assert_eq!(meter.cost, SETTLE_BESIDE_CANDIDATES, "{n} jobs");
    }
}

#[tokio::test]
async fn a_settle_that_moves_jobs_writes_their_times_in_one_command() {
    for n in [1, 200] {
        let mut meter = Meter::new("0").await;
        meter.run(2 * n).await;
        meter.settle_other(n, ["requeue", "0", "", ""], 0).await;
        assert_eq!(meter.cost, SETTLE_REQUEUE, "{n} jobs");
        assert_eq!(meter.settle(0, None, n).await, n);
        assert_eq!(meter.cost, SETTLE_CLAIM_AGAIN, "{n} jobs");
        meter.settle_other(n, ["retry", "1", "0", "{}"], 0).await;
        assert_eq!(meter.cost, SETTLE_RETRY, "{n} jobs");
        assert_eq!(meter.settle(0, None, n).await, n);
        assert_eq!(meter.cost, SETTLE_DUE, "{n} jobs");
    }
}

#[tokio::test]
async fn more_tombstones_do_not_raise_the_cost_of_a_settle() {
    for n in [1, 50] {
        let mut meter = Meter::new("1").await;
        meter.dispatch(2).await;
        let channel = meter.task.key("cancel");
        let mut args = vec!["why".to_owned(), channel, String::new()];
        for _ in 0..n {
            meter.dispatch(1).await;
            args.extend([meter.last_id(), String::new()]);
        }
        meter.dispatch(1).await;
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let told = meter.call("cancel", &args).await;
        assert_eq!(told.matches("ended").count(), n);
        // The first claim also writes the interval.
        assert_eq!(meter.settle(0, None, 1).await, 1);
        assert_eq!(meter.settle(0, None, 1).await, 1);
        assert_eq!(meter.cost, SETTLE_BESIDE_TOMBSTONES, "{n} tombstones after the head");
        assert_eq!(meter.settle(0, None, 1).await, 1);
        assert_eq!(meter.cost, SETTLE_BEHIND_TOMBSTONES, "{n} tombstones at the head");
    }
}

#[tokio::test]
async fn a_settle_of_a_paused_task_costs_as_little_as_of_an_empty_one() {
    let mut meter = Meter::new("0").await;
    meter.dispatch(10).await;
    meter.call("pause", &["anna", "why"]).await;
    assert_eq!(meter.settle(0, None, 10).await, 0);
    assert_eq!(meter.cost, SETTLE_NOTHING);
}

#[tokio::test]
async fn a_heartbeat_of_500_jobs_costs_as_much_as_one_of_a_single_job() {
    for n in [1, 500] {
        let mut meter = Meter::new("1").await;
        meter.run(n).await;
        meter.beat(n).await;
        assert_eq!(meter.cost, BEAT_AGAIN, "{n} jobs in active");
        assert_eq!(meter.sweep().await, 0);
        meter.beat(n).await;
        assert_eq!(meter.cost, BEAT, "{n} jobs in candidates");
    }
}

#[tokio::test]
async fn a_sweep_without_stalled_jobs_costs_the_same_for_any_number() {
    let mut meter = Meter::new("1").await;
    assert_eq!(meter.sweep().await, 0);
    assert_eq!(meter.cost, SWEEP_NOTHING);
    for n in [10, 10_000] {
        let mut meter = Meter::new("1").await;
        meter.run(n).await;
        assert_eq!(meter.sweep().await, 0);
        assert_eq!(meter.cost, SWEEP, "{n} jobs");
    }
}

#[tokio::test]
async fn a_sweep_that_may_not_resolve_reads_only_the_settings() {
    let mut meter = Meter::new("1").await;
    meter.run(10).await;
    for (epoch, waited, reply) in [("7", "1000", "[moved 0 1000]"), ("0", "999", "[early 0 1000]")] {
        assert_eq!(meter.call("sweep", &["witness", "1000", epoch, waited, "0", "200", "auto", ""]).await, reply);
        assert_eq!(meter.cost, SWEEP_TOO_EARLY);
    }
}

#[tokio::test]
async fn a_stalled_job_costs_a_sweep_two_commands() {
    for n in [1, 40] {
        let mut meter = Meter::new("1").await;
        meter.run(n).await;
        assert_eq!(meter.sweep().await, 0);
        assert_eq!(meter.sweep().await, n);
        assert_eq!(meter.cost, sweep_of_stalled(n), "{n} jobs");
    }
}
