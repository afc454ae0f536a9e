//! Sweeps over long lines of tasks with thousands of running jobs: the stalled ones are found in time.

use std::time::Duration;

use heartline::StallOptions;

use crate::faults::ground::far_away;
use crate::faults::waiting::start_waiting_worker;
use crate::support::task::{INTERVAL, options};
use crate::support::{PATIENCE, eventually};

const RUNNING: usize = 100_000;

/// How many jobs one call creates, so that each call blocks the server for a few milliseconds only.
const SLICE: usize = 5_000;

/// Creates a slice of running jobs of an absent worker. All of them become candidates, and then the live ones leave:
/// as in practice, the set of candidates was large, and few are left in it.
const HOLD: &str = "
for first = tonumber(ARGV[1]), tonumber(ARGV[2]), 500 do
  local ids, payloads, tokens = {}, {}, {}
  for i = first, math.min(first + 499, tonumber(ARGV[2])) do
    ids[#ids + 1] = 'job-' .. i
    for _, pairs in ipairs({ { payloads, '\"go\"' }, { tokens, 'elsewhere-4242-0a1b2c3d:' .. i } }) do
      table.insert(pairs[1], 'job-' .. i)
      table.insert(pairs[1], pairs[2])
    end
  end
  redis.call('HSET', KEYS[1], unpack(payloads))
  redis.call('HSET', KEYS[2], unpack(tokens))
  redis.call('SADD', KEYS[3], unpack(ids))
end";

/// Sends heartbeats for a slice.
const BEAT: &str = "
for first = tonumber(ARGV[1]), tonumber(ARGV[2]), 500 do
  local ids = {}
  for i = first, math.min(first + 499, tonumber(ARGV[2])) do
    if i >= tonumber(ARGV[3]) then ids[#ids + 1] = 'job-' .. i end
  end
  if #ids > 0 then
    redis.call('SREM', KEYS[3], unpack(ids))
    redis.call('SADD', KEYS[4], unpack(ids))
  end
end";

/// Many jobs run and have had a heartbeat since the last snapshot, except `dead` of them. The only sweeping worker has
/// a round trip of 100 ms.
async fn finds(dead: usize) {
    let (_redis, test, line) = far_away().await;
    // Stalled jobs fail at once, so that the worker has nothing else to do.
    let stall = StallOptions::new().interval(INTERVAL).max_count(0);
    let worker = start_waiting_worker(&test, &line.url(), options(INTERVAL).stall(stall)).await;
    worker.working().await;
    line.delay(Duration::from_millis(50));
    let mut conn = test.conn().await;
    for script in [HOLD, BEAT].map(redis::Script::new) {
        for first in (0..RUNNING).step_by(SLICE) {
            let mut call = script.prepare_invoke();
            for key in ["payload", "locks", "next-candidates", "next-active"] {
                call.key(test.key(key));
            }
            call.arg(first).arg(first + SLICE - 1).arg(dead);
            let () = call.invoke_async(&mut conn).await.unwrap();
        }
    }
    // Prepared under other names, because the live jobs need a heartbeat within an interval, however slow this is.
    let mut begin = redis::pipe();
    begin.atomic();
    for set in ["candidates", "active"] {
        begin.rename(test.key(&format!("next-{set}")), test.key(set)).ignore();
    }
    let () = begin.query_async(&mut conn).await.unwrap();

    // The next snapshot, after which the live jobs would need heartbeats again, comes when all stalled jobs are found.
    let found = eventually("all silent jobs are found", PATIENCE, async || {
        let mut look = redis::pipe();
        look.atomic().zcard(test.key("failed")).hlen(test.key("locks")).hget(test.key("meta"), "stalls");
        let (failed, held, stalls): (usize, usize, Option<usize>) = look.query_async(&mut conn).await.unwrap();
        stalls.filter(|stalls| *stalls >= dead).map(|stalls| (failed, held, stalls))
    });
    assert_eq!(found.await, (dead, RUNNING - dead, dead));
}

#[tokio::test]
async fn one_stalled_job_of_many_is_found_over_a_long_line() {
    finds(1).await;
}

#[tokio::test]
async fn a_thousand_stalled_jobs_are_found_over_a_long_line() {
    finds(1_000).await;
}
