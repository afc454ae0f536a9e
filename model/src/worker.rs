//! A worker: its keeper with the witness, and the jobs that it holds.

use crate::{INTERVALS, JOBS};

/// The longest interval: no age matters above it.
pub(crate) const LONGEST: u8 = 6;
/// An epoch that no server can have again.
pub(crate) const PAST: u8 = u8::MAX;

/// Whether the process runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Process {
    Running,
    Frozen,
    Dead,
}

/// The epoch and the interval that the witness watches, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Note {
    pub(crate) epoch: u8,
    pub(crate) interval: u8,
    pub(crate) since: u8,
}

/// One worker process.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Worker {
    pub(crate) process: Process,
    /// Whether it can reach the server.
    pub(crate) is_cut_off: bool,
    /// Ticks until the next heartbeat is due. Negative: for how long it has been due.
    pub(crate) due: i8,
    /// For how long the heartbeat has been due while nothing kept it from the server.
    pub(crate) wait: u8,
    pub(crate) note: Option<Note>,
    /// Whether the last heartbeat was answered over the present connection.
    pub(crate) is_connected: bool,
    /// The fence of each job that it holds.
    pub(crate) held: [Option<u8>; JOBS],
    /// For how long nothing but the server kept its heartbeats from arriving.
    pub(crate) well_for: u8,
}

/// How often a worker sends heartbeats.
pub(crate) fn period(worker: usize) -> u8 {
    INTERVALS[worker] / 3
}

impl Worker {
    /// A worker that starts.
    pub(crate) fn new(worker: usize) -> Worker {
        Worker {
            process: Process::Running,
            is_cut_off: false,
            due: 0,
            wait: 0,
            note: None,
            is_connected: false,
            held: [None; JOBS],
            well_for: INTERVALS[worker],
        }
    }

    pub(crate) fn is_well(&self) -> bool {
        self.process == Process::Running && !self.is_cut_off
    }

    /// Time passes. `reaches` says whether the server can answer.
    pub(crate) fn tick(&mut self, worker: usize, server_answers: bool) {
        if self.process == Process::Dead {
            return;
        }
        let is_well = self.is_well();
        if self.due <= 0 && is_well && server_answers {
            self.wait = (self.wait + 1).min(period(worker));
        }
        self.due = (self.due - 1).max(-(period(worker) as i8) - 1);
        if let Some(note) = &mut self.note {
            note.since = (note.since + 1).min(LONGEST);
        }
        if is_well {
            self.well_for = (self.well_for + 1).min(INTERVALS[worker]);
        }
    }

    /// Whether a healthy worker must send its heartbeat now: it arrives within a period.
    pub(crate) fn must_beat(&self, worker: usize) -> bool {
        self.is_well() && self.due <= 0 && self.wait >= period(worker)
    }

    pub(crate) fn is_late(&self, worker: usize) -> bool {
        self.due < -(period(worker) as i8)
    }

    /// `Witness::answered_over` and `Witness::beat_answered`.
    pub(crate) fn beat_answered(&mut self, worker: usize, epoch: u8, interval: u8, with_witness: bool) {
        let is_broken = with_witness && !self.is_connected;
        let is_late = with_witness && self.is_late(worker);
        match &mut self.note {
            Some(note) if note.epoch == epoch && !is_late => {
                note.interval = interval;
                if is_broken {
                    note.since = 0;
                }
            }
            _ => self.note = Some(Note { epoch, interval, since: 0 }),
        }
        self.is_connected = true;
        self.wait = 0;
        self.due = (self.due + period(worker) as i8).max(0);
    }

    /// `Witness::may_sweep`. The epoch, and for how long it was watched.
    pub(crate) fn may_sweep(&mut self, worker: usize, with_witness: bool, needs: Option<u8>) -> Option<(u8, u8)> {
        let is_late = self.is_late(worker);
        let note = self.note.as_mut()?;
        if with_witness {
            if is_late {
                note.since = 0;
            }
            if self.due <= 0 || !self.is_connected {
                return None;
            }
        }
        (note.since >= needs.unwrap_or(note.interval)).then_some((note.epoch, note.since))
    }

    /// `Witness::sweep_answered`.
    pub(crate) fn sweep_answered(&mut self, epoch: u8, interval: u8) {
        match &mut self.note {
            Some(note) if note.epoch == epoch => note.interval = interval,
            _ => self.note = Some(Note { epoch, interval, since: 0 }),
        }
    }

    /// A worker whose last answered heartbeat is older than two periods claims nothing.
    pub(crate) fn may_claim(&self, worker: usize) -> bool {
        self.is_well() && self.note.is_some() && self.due > -(period(worker) as i8)
    }
}
