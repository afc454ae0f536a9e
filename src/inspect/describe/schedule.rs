//! The ticks of a schedule that follow, for the tools.

use std::iter::successors;
use std::time::SystemTime;

use crate::schedule::info::ScheduleInfo;
use crate::unix_time::{at_ms, ms_of};

/// A tick of a schedule that has not fired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NextTick {
    /// Its nominal time.
    pub due: SystemTime,
    /// When it fires: later by the jitter.
    pub at: SystemTime,
}

/// The ticks that follow, in order: the next one, which may be overdue, then those after `now`. None if the schedule cannot be read.
pub fn next_ticks(schedule: &ScheduleInfo, now: SystemTime) -> impl Iterator<Item = NextTick> + '_ {
    let rule = schedule.schedule.as_ref();
    let next = schedule.next.filter(|_| rule.is_some()).map(ms_of);
    let dues = successors(next, move |due_ms| rule?.next_after((*due_ms).max(ms_of(now))));
    dues.filter_map(move |due_ms| {
        let at = rule?.at(&schedule.name, due_ms);
        Some(NextTick { due: at_ms(due_ms), at: at_ms(at) })
    })
}
