//! The witness rule as a pure state machine: (observation, moment) → may this process sweep?
//!
//! A job is stalled only if one process watched it stay silent for a whole interval over a healthy connection. The
//! watch restarts after a dropped connection, a late answer, a late heartbeat of its own, or a changed epoch.

use std::time::Duration;

use serde::Serialize;

use crate::clock::Moment;
use crate::enum_str::names;

/// What made a worker restart its watch of a task. A process that may have missed a heartbeat recovers nothing.
///
/// [`Display`](std::fmt::Display) and [`FromStr`](std::str::FromStr) use the name of the variant in lower case with underscores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum DetectorReset {
    /// Redis or the system closed the connection.
    ConnectionLost,
    /// Redis did not answer in time.
    NoAnswer,
    /// An answer came, but late.
    LateAnswer,
    /// The worker's own process did not run, or its own heartbeat was late.
    StoodStill,
    /// Heartbeats got through only over another connection.
    OtherConnection,
    /// Redis refused a sweep.
    SweepRefused,
    /// Another server became the primary.
    PrimaryChanged,
}

names!(DetectorReset, "cause", {
    ConnectionLost = "connection_lost",
    NoAnswer = "no_answer",
    LateAnswer = "late_answer",
    StoodStill = "stood_still",
    OtherConnection = "other_connection",
    SweepRefused = "sweep_refused",
    PrimaryChanged = "primary_changed",
});

/// What a keeper observed of one task.
#[derive(Clone, Debug)]
pub(crate) struct Witness {
    /// The epoch, the interval in force, and since when both were watched without a gap.
    note: Option<Note>,
    /// When the next heartbeat of this keeper is due.
    next_beat: Moment,
    period: Duration,
    /// The last cause that broke the watch, and when.
    last_break: Option<(DetectorReset, Moment)>,
    /// How often each cause broke it.
    breaks: [u64; DetectorReset::ALL.len()],
    /// The connection over which the last heartbeat was answered.
    connection: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
struct Note {
    epoch: u64,
    interval: Duration,
    since: Moment,
}

impl Witness {
    /// `period` is how often this keeper sends heartbeats.
    pub(crate) fn new(period: Duration, now: Moment) -> Witness {
        Witness {
            note: None,
            next_beat: now,
            period,
            last_break: None,
            breaks: [0; DetectorReset::ALL.len()],
            connection: None,
        }
    }

    /// A heartbeat that was due at `due` was answered at `now`, with the epoch and interval in force.
    pub(crate) fn beat_answered(&mut self, due: Moment, now: Moment, epoch: u64, interval: Duration) {
        let late = now.since(due) > self.period;
        if late {
            self.breaks_by(DetectorReset::LateAnswer, now);
        }
        match &mut self.note {
            Some(note) if note.epoch == epoch && !late => note.interval = interval,
            _ => self.note = Some(Note { epoch, interval, since: now }),
        }
        self.next_beat = due.after(self.period).max(now);
    }

    /// A heartbeat was answered over this connection. A different one may lead to another server, or to a restarted one.
    pub(crate) fn answered_over(&mut self, now: Moment, connection: Option<u64>) {
        let before = std::mem::replace(&mut self.connection, connection);
        if connection.is_none() || before.is_some_and(|before| Some(before) != connection) {
            self.broken(now, DetectorReset::ConnectionLost);
        }
    }

    /// Whether the last heartbeat was answered over this connection, so that the watch was at its server.
    pub(crate) fn is_of(&self, connection: Option<u64>) -> bool {
        connection.is_some() && self.connection == connection
    }

    pub(crate) fn next_beat_at(&mut self, at: Moment) {
        self.next_beat = at;
    }

    /// The connection dropped, or an answer did not arrive.
    pub(crate) fn broken(&mut self, now: Moment, cause: DetectorReset) {
        if let Some(note) = &mut self.note {
            note.since = now;
        }
        // Within a period the first cause is kept, since later ones follow from it. A changed primary replaces it,
        // since it caused the others.
        let first = self.last_break.filter(|(_, at)| now.since(*at) < self.period);
        let first = first.filter(|(first, _)| cause != DetectorReset::PrimaryChanged || *first == cause);
        match first {
            Some((first, _)) => self.last_break = Some((first, now)),
            None => self.breaks_by(cause, now),
        }
    }

    fn breaks_by(&mut self, cause: DetectorReset, now: Moment) {
        self.last_break = Some((cause, now));
        if let Some(at) = DetectorReset::ALL.iter().position(|known| *known == cause) {
            self.breaks[at] += 1;
        }
    }

    /// How often each cause broke the watch, in the order of [`DetectorReset::ALL`].
    pub(crate) fn breaks(&self) -> &[u64; DetectorReset::ALL.len()] {
        &self.breaks
    }

    /// The watched epoch, for how long it was watched, and the interval to watch.
    pub(crate) fn watched(&self, now: Moment) -> Option<(u64, Duration, Duration)> {
        self.note.map(|note| (note.epoch, now.since(note.since), note.interval))
    }

    /// The last cause that broke the watch, and how long ago.
    pub(crate) fn last_break(&self, now: Moment) -> Option<(DetectorReset, Duration)> {
        self.last_break.map(|(cause, at)| (cause, now.since(at)))
    }

    /// A sweep returned the epoch and interval in force.
    pub(crate) fn sweep_answered(&mut self, now: Moment, epoch: u64, interval: Duration) {
        match &mut self.note {
            Some(note) if note.epoch == epoch => note.interval = interval,
            _ => self.note = Some(Note { epoch, interval, since: now }),
        }
    }

    /// The epoch and how long it was watched, if that is at least the interval in force.
    pub(crate) fn may_sweep(&mut self, now: Moment) -> Option<(u64, Duration)> {
        if now.since(self.next_beat) > self.period {
            // Our own heartbeat is late: this process did not run, so the watch may have a gap.
            self.broken(now, DetectorReset::StoodStill);
        }
        if now >= self.next_beat {
            // Wait for the answer to the heartbeat that is due: every other worker gets the same time to send its own.
            return None;
        }
        let note = self.note?;
        let waited = now.since(note.since);
        (waited >= note.interval).then_some((note.epoch, waited))
    }

    /// When a sweep may be due, if nothing breaks the watch until then.
    pub(crate) fn sweep_at(&self) -> Option<Moment> {
        self.note.map(|note| note.since.after(note.interval))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn at(ms: u64) -> Moment {
        Moment::from_millis(ms)
    }

    /// A witness with interval 3 s and a heartbeat every second, which first saw epoch 7 at 1,000.
    fn watching() -> Witness {
        let mut witness = Witness::new(SECOND, at(1000));
        witness.beat_answered(at(1000), at(1000), 7, 3 * SECOND);
        witness
    }

    #[test]
    fn a_whole_interval_must_have_been_watched() {
        let mut witness = watching();
        witness.beat_answered(at(2000), at(2010), 7, 3 * SECOND);
        witness.beat_answered(at(3000), at(3010), 7, 3 * SECOND);
        assert_eq!(witness.may_sweep(at(3999)), None);
        assert_eq!(witness.sweep_at(), Some(at(4000)));
        // The witness waits for the heartbeat that is due.
        assert_eq!(witness.may_sweep(at(4000)), None);
        witness.beat_answered(at(4000), at(4005), 7, 3 * SECOND);
        assert_eq!(witness.may_sweep(at(4005)), Some((7, Duration::from_millis(3005))));
    }

    #[test]
    fn a_heartbeat_over_another_connection_restarts_the_watch() {
        let mut witness = watching();
        witness.answered_over(at(1000), Some(1));
        assert!(witness.is_of(Some(1)) && !witness.is_of(Some(2)) && !witness.is_of(None));
        for (ms, connection) in [(2000, Some(1)), (3000, Some(2)), (4000, Some(2)), (5000, Some(2))] {
            witness.answered_over(at(ms), connection);
            witness.beat_answered(at(ms), at(ms), 7, 3 * SECOND);
        }
        assert_eq!((witness.may_sweep(at(5999)), witness.is_of(Some(1))), (None, false));
        witness.answered_over(at(6000), Some(2));
        witness.beat_answered(at(6000), at(6000), 7, 3 * SECOND);
        assert_eq!(witness.may_sweep(at(6000)), Some((7, 3 * SECOND)));
        witness.answered_over(at(6500), None);
        assert_eq!((witness.may_sweep(at(6500)), witness.is_of(None)), (None, false));
    }

    #[test]
    fn a_changed_epoch_restarts_the_watch() {
        let mut witness = watching();
        witness.beat_answered(at(2000), at(2500), 8, 3 * SECOND);
        witness.beat_answered(at(3000), at(3000), 8, 3 * SECOND);
        witness.beat_answered(at(4000), at(4000), 8, 3 * SECOND);
        witness.beat_answered(at(5000), at(5000), 8, 3 * SECOND);
        assert_eq!(witness.may_sweep(at(5499)), None);
        assert_eq!(witness.may_sweep(at(5500)), Some((8, 3 * SECOND)));
    }

    #[test]
    fn a_late_answer_restarts_the_watch() {
        let mut witness = watching();
        witness.beat_answered(at(2000), at(3001), 7, 3 * SECOND);
        assert_eq!(witness.sweep_at(), Some(at(6001)));
    }

    #[test]
    fn a_dropped_connection_restarts_the_watch() {
        let mut witness = watching();
        witness.broken(at(3500), DetectorReset::ConnectionLost);
        witness.next_beat_at(at(3600));
        assert_eq!(witness.may_sweep(at(4000)), None);
        assert_eq!(witness.sweep_at(), Some(at(6500)));
    }

    #[test]
    fn what_broke_the_watch_is_kept_despite_its_consequences() {
        let mut witness = watching();
        assert_eq!(witness.last_break(at(3000)), None);
        witness.broken(at(3500), DetectorReset::ConnectionLost);
        witness.broken(at(3600), DetectorReset::OtherConnection);
        let ago = Duration::from_millis;
        assert_eq!(witness.last_break(at(4000)), Some((DetectorReset::ConnectionLost, ago(400))));
        witness.broken(at(9000), DetectorReset::NoAnswer);
        assert_eq!(witness.last_break(at(9000)), Some((DetectorReset::NoAnswer, ago(0))));
        assert_eq!(witness.watched(at(9500)), Some((7, ago(500), 3 * SECOND)));
        witness.broken(at(9600), DetectorReset::PrimaryChanged);
        assert_eq!(witness.last_break(at(9600)), Some((DetectorReset::PrimaryChanged, ago(0))));
    }

    #[test]
    fn a_process_that_was_frozen_does_not_trust_its_watch() {
        let mut witness = watching();
        // The next heartbeat was due at 2,000; nothing ran until 9,000.
        assert_eq!(witness.may_sweep(at(9000)), None);
        assert_eq!(witness.sweep_at(), Some(at(12_000)));
    }

    #[test]
    fn the_witness_waits_for_a_longer_interval_in_force() {
        let mut witness = watching();
        witness.beat_answered(at(2000), at(2000), 7, 5 * SECOND);
        witness.beat_answered(at(3000), at(3000), 7, 5 * SECOND);
        witness.beat_answered(at(4000), at(4000), 7, 5 * SECOND);
        assert_eq!(witness.may_sweep(at(4500)), None);
        witness.beat_answered(at(5000), at(5000), 7, 5 * SECOND);
        witness.beat_answered(at(6000), at(6000), 7, 5 * SECOND);
        assert_eq!(witness.may_sweep(at(6000)), Some((7, 5 * SECOND)));
    }
}
