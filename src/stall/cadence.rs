//! How often what happens, and how long what is waited for: every fraction of the stall interval, each with its reason.
//!
//! All else follows from the first one: a job is stalled after an interval without a heartbeat, and heartbeats come three times
//! in it, so that two may be lost.

use std::time::Duration;

/// How often the keeper beats for the held jobs of a task: a threshold is three of its heartbeats.
pub(crate) fn beat_period(interval: Duration) -> Duration {
    interval / 3
}

/// A beat that takes longer than this is slow: a worker that needs half of each period for the jobs that it has is not to be
/// given more.
pub(crate) fn slow_beat(interval: Duration) -> Duration {
    beat_period(interval) / 2
}

/// A worker whose last answered beat is older than this claims nothing: it could not keep what it gets.
pub(crate) fn stale_beat(interval: Duration) -> Duration {
    beat_period(interval) * 2
}

/// How long a beat waits for its answers, before it goes over the other roads too: at least a tenth of the interval, and on a
/// line that is known to be long up to a sixth, which still leaves a third for a connection that has to come up.
pub(crate) fn first_road(interval: Duration, round_trip: Duration) -> Duration {
    (round_trip * 2).clamp(interval / 10, interval / 6)
}

/// The longest pause before a beat that failed is tried again: two more fit into the period.
pub(crate) fn longest_beat_pause(interval: Duration) -> Duration {
    interval / 6
}

/// How often jobs whose handlers ring may be named by themselves, between two beats for all.
pub(crate) fn extra_beat_pause(interval: Duration) -> Duration {
    beat_period(interval) / 5
}

/// In heartbeat mode `Manual`: a handler that was silent for longer than this rings with its next sign of life, since the beat
/// for all may be too late for it.
pub(crate) fn rings_after(interval: Duration) -> Duration {
    beat_period(interval)
}

/// A claim that has been under way for so long is beaten for, before its answer is there.
pub(crate) fn old_claim(interval: Duration) -> Duration {
    beat_period(interval) / 2
}

/// A claim that is repeated later than this asks for nothing new: the deadline of what it gets counts from its first send.
pub(crate) fn late_claim(interval: Duration) -> Duration {
    beat_period(interval)
}

/// How often the keeper looks at deadlines and at the user's runtime, which it does for the shortest interval of its tasks.
pub(crate) fn tick_pause(shortest: Duration) -> Duration {
    (shortest / 40).clamp(Duration::from_millis(10), Duration::from_millis(250))
}

/// A runtime, or a process, that stood still for longer than this is worth a line in the log.
pub(crate) fn standstill(shortest: Duration) -> Duration {
    beat_period(shortest).max(Duration::from_millis(300))
}

/// How long before its deadline a job is at risk.
pub(crate) fn risk_notice(interval: Duration) -> Duration {
    interval / 10
}

/// The same for a handler that has shown a sign of life which could not be delivered: it gets half of the time that is left.
pub(crate) fn untold_risk_notice(interval: Duration) -> Duration {
    interval / 20
}

/// The keeper looks far more often than this: after a longer gap in which a deadline passed, nobody here knows what became of the
/// job meanwhile.
pub(crate) fn asleep_after(interval: Duration) -> Duration {
    interval / 10
}

/// Beats of a task get through if the last one that was answered is younger than this, which is when the first jobs are at risk.
pub(crate) fn beats_answered_within(interval: Duration) -> Duration {
    interval / 10 * 9
}

/// How soon the sweep looks again when the watch was broken or a beat is due, should the answer to it not wake it up before.
pub(crate) fn sweep_look(interval: Duration) -> Duration {
    beat_period(interval) / 4
}

/// A worker that has sent no claim for longer than this, though jobs wait and nothing keeps it from them, claims no more: an idle
/// one looks for work far more often.
pub(crate) fn silent_claims(interval: Duration) -> Duration {
    interval * 2
}

/// Where runs that lost their jobs have held every slot for longer than this, a restart alone frees them: a handler that yields is
/// dropped after its cancel grace.
pub(crate) fn lost_slots(interval: Duration) -> Duration {
    interval * 2
}

/// How long a shutdown goes on to report, behind its graces: until the sweep of another worker could take the jobs.
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
    fn two_beats_may_be_lost() {
        for interval in INTERVALS {
            // One is sent right after the claim, two more have come before the deadline.
            assert!(beat_period(interval) * 3 <= interval);
            assert!(beat_period(interval) * 2 < interval - risk_notice(interval));
        }
    }

    #[test]
    fn a_beat_has_time_for_a_new_connection() {
        for interval in INTERVALS {
            let slow_line = first_road(interval, interval);
            assert!(slow_line + beat_period(interval) <= interval / 2);
            assert!(first_road(interval, Duration::ZERO) < slow_line);
            // It is told as slow before its period is over.
            assert!(slow_beat(interval) < beat_period(interval));
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
    fn the_keeper_looks_often_enough_to_tell_sleep_from_silence() {
        for interval in INTERVALS {
            let tick = tick_pause(interval);
            assert!(tick * 2 <= asleep_after(interval) && tick * 2 <= untold_risk_notice(interval));
            assert!(tick * 4 <= standstill(interval));
            assert!(untold_risk_notice(interval) < risk_notice(interval));
        }
    }

    #[test]
    fn a_sign_of_life_that_rings_is_told_in_time() {
        for interval in INTERVALS {
            // Rung at the latest moment, it waits for its turn and for one round over both roads.
            let told = rings_after(interval) + extra_beat_pause(interval) + first_road(interval, interval);
            assert!(told < interval - risk_notice(interval));
            assert!(longest_beat_pause(interval) * 2 <= beat_period(interval));
        }
    }

    #[test]
    fn a_shutdown_reports_for_as_long_as_nobody_takes_its_jobs() {
        for interval in INTERVALS {
            // The last beat before was a period ago at the most.
            assert!(reporting_time(interval) + beat_period(interval) <= interval);
            assert!(sweep_look(interval) < beat_period(interval));
        }
    }
}
