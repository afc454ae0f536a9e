//! Every period and time limit that is a fraction of the stall interval, with its reason.
//!
//! All follow from one rule: a job is stalled after an interval without a heartbeat. A worker sends three heartbeats in
//! an interval, so two may be lost.

use std::time::Duration;

/// How often the keeper sends heartbeats for the held jobs of a task.
pub(crate) fn beat_period(interval: Duration) -> Duration {
    interval / 3
}

/// A heartbeat that takes longer than this is slow, and the worker claims fewer jobs.
pub(crate) fn slow_beat(interval: Duration) -> Duration {
    beat_period(interval) / 2
}

/// How many jobs a worker may hold until its next heartbeat, if the last one named `named` jobs and took this long. A
/// slow heartbeat leaves room for as many as fit into a period; one that took longer than its period leaves none.
pub(crate) fn most_held(interval: Duration, named: usize, took: Duration) -> usize {
    let period = beat_period(interval);
    if took <= slow_beat(interval) {
        usize::MAX
    } else if took > period {
        0
    } else {
        let most = (named as u128 * period.as_nanos()).div_ceil(took.as_nanos());
        most.try_into().unwrap_or(usize::MAX)
    }
}

/// A worker whose last answered heartbeat is older than this claims nothing, since it could not keep new jobs.
pub(crate) fn stale_beat(interval: Duration) -> Duration {
    beat_period(interval) * 2
}

/// How long a heartbeat waits for its answer before it also uses other connections. At least a tenth of the interval;
/// on a slow connection up to a sixth, which leaves a third of the interval to open another.
pub(crate) fn first_wait(interval: Duration, round_trip: Duration) -> Duration {
    (round_trip * 2).clamp(interval / 10, longest_first_wait(interval))
}

/// The longest such wait, also used while answers keep coming.
pub(crate) fn longest_first_wait(interval: Duration) -> Duration {
    interval / 6
}

/// The longest pause before a failed heartbeat is repeated: two repeats fit into the period.
pub(crate) fn longest_beat_pause(interval: Duration) -> Duration {
    interval / 6
}

/// The shortest pause between extra heartbeats, which handlers request between two regular ones.
pub(crate) fn extra_beat_pause(interval: Duration) -> Duration {
    beat_period(interval) / 5
}

/// In heartbeat mode `Manual`, if a handler was silent for longer than this, its next sign of life requests an extra
/// heartbeat. The next regular one may come too late for it.
pub(crate) fn rings_after(interval: Duration) -> Duration {
    beat_period(interval)
}

/// After this time without an answer to a claim, heartbeats also cover the jobs that it may have claimed.
pub(crate) fn old_claim(interval: Duration) -> Duration {
    beat_period(interval) / 2
}

/// A claim that is repeated after this time asks for no new jobs: the deadline of its jobs counts from the first send.
pub(crate) fn late_claim(interval: Duration) -> Duration {
    beat_period(interval)
}

/// How often the keeper checks deadlines and the user's runtime, by the shortest interval of its tasks.
pub(crate) fn tick_pause(shortest: Duration) -> Duration {
    (shortest / 40).clamp(Duration::from_millis(10), Duration::from_millis(250))
}

/// If a runtime or process did not run for longer than this, that is logged.
pub(crate) fn standstill(shortest: Duration) -> Duration {
    beat_period(shortest).max(Duration::from_millis(300))
}

/// How long before its deadline a job is at risk.
pub(crate) fn risk_notice(interval: Duration) -> Duration {
    interval / 10
}

/// The same for a handler whose sign of life could not be delivered: half of the time.
pub(crate) fn unsent_risk_notice(interval: Duration) -> Duration {
    interval / 20
}

/// If two checks of the keeper are further apart than this, the process may have been frozen. Then it does not know
/// the state of a job whose deadline passed in between.
pub(crate) fn asleep_after(interval: Duration) -> Duration {
    interval / 10
}

/// Heartbeats of a task count as answered if the last answered one is younger than this. At this age the first jobs are at risk.
pub(crate) fn beats_answered_within(interval: Duration) -> Duration {
    interval / 10 * 9
}

/// How soon the sweep checks again after the watch broke, or while a heartbeat is due, unless an answer wakes it earlier.
pub(crate) fn sweep_look(interval: Duration) -> Duration {
    beat_period(interval) / 4
}

/// If a worker could claim waiting jobs and has sent no claim for longer than this, it is stuck. An idle worker looks
/// for work far more often.
pub(crate) fn silent_claims(interval: Duration) -> Duration {
    interval * 2
}

/// If runs that lost their jobs have held every slot for longer than this, only a restart frees the slots. A handler
/// that yields is dropped after its cancel grace.
pub(crate) fn lost_slots(interval: Duration) -> Duration {
    interval * 2
}

/// How long a shutdown still reports outcomes after its graces: until another worker's sweep could take the jobs.
pub(crate) fn reporting_time(interval: Duration) -> Duration {
    interval / 3 * 2
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From the shortest interval that options take to the longest.
    const INTERVALS: [Duration; 5] = [
        Duration::from_secs(1),
        Duration::from_secs(3),
        Duration::from_secs(30),
        Duration::from_secs(3600),
        Duration::from_secs(86_400),
    ];

    #[test]
    fn two_heartbeats_may_be_lost() {
        for interval in INTERVALS {
            // One is sent right after the claim, two more have come before the deadline.
            assert!(beat_period(interval) * 3 <= interval);
            assert!(beat_period(interval) * 2 < interval - risk_notice(interval));
        }
    }

    #[test]
    fn a_heartbeat_has_time_for_a_new_connection() {
        for interval in INTERVALS {
            let slow_link = first_wait(interval, interval);
            assert!(slow_link + beat_period(interval) <= interval / 2);
            assert!(first_wait(interval, Duration::ZERO) < slow_link);
            // A slow heartbeat is detected before its period is over.
            assert!(slow_beat(interval) < beat_period(interval));
        }
    }

    #[test]
    fn a_worker_claims_less_before_it_claims_nothing() {
        for interval in INTERVALS {
            let most = |named, percent| most_held(interval, named, beat_period(interval) * percent / 100);
            assert_eq!((most(0, 50), most(50_000, 50)), (usize::MAX, usize::MAX));
            // The next heartbeat takes about a period at most.
            for (percent, expected) in [(60, 100_000), (75, 80_000), (100, 60_000_usize)] {
                assert!(most(60_000, percent).abs_diff(expected) <= 1, "{percent} % of the period of {interval:?}");
            }
            // A slow link does not keep a worker at one job.
            assert_eq!([60, 99].map(|percent| most(1, percent)), [2, 2]);
            assert_eq!(most(50_000, 101), 0);
        }
    }

    #[test]
    fn a_worker_stops_claiming_before_its_jobs_are_at_risk() {
        for interval in INTERVALS {
            assert!(stale_beat(interval) < beats_answered_within(interval));
            assert!(beats_answered_within(interval) + risk_notice(interval) <= interval);
            assert!(late_claim(interval) + beat_period(interval) < interval - risk_notice(interval));
            assert!(old_claim(interval) < late_claim(interval));
        }
    }

    #[test]
    fn the_keeper_ticks_often_enough_to_tell_sleep_from_silence() {
        for interval in INTERVALS {
            let tick = tick_pause(interval);
            assert!(tick * 2 <= asleep_after(interval) && tick * 2 <= unsent_risk_notice(interval));
            assert!(tick * 4 <= standstill(interval));
            assert!(unsent_risk_notice(interval) < risk_notice(interval));
        }
    }

    #[test]
    fn an_urgent_heartbeat_of_a_handler_arrives_in_time() {
        for interval in INTERVALS {
            // Requested at the latest moment, it waits for its turn and for one attempt over both connections.
            let arrives = rings_after(interval) + extra_beat_pause(interval) + first_wait(interval, interval);
            assert!(arrives < interval - risk_notice(interval));
            assert!(longest_beat_pause(interval) * 2 <= beat_period(interval));
        }
    }

    #[test]
    fn a_shutdown_reports_until_its_jobs_may_be_taken() {
        for interval in INTERVALS {
            // The previous beat was at most one period ago.
            assert!(reporting_time(interval) + beat_period(interval) <= interval);
            assert!(sweep_look(interval) < beat_period(interval));
        }
    }
}
