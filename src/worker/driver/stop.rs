//! The steps of a shutdown.

use std::time::Duration;

use crate::backend::timeouts::RESPONSE_TIMEOUT;
use crate::clock::Moment;
use crate::options::resolved::Resolved;
use crate::stall::cadence::reporting_time;

pub(super) struct Stop {
    /// Handlers may continue until then.
    pub(super) grace: Moment,
    /// When jobs that still run are requeued. Their handlers were cancelled at the end of the grace.
    pub(super) cancel: Moment,
    /// When the shutdown ends. Jobs that were not reported by then are left.
    pub(super) end: Moment,
    /// When the shutdown ends if no job is held and only a claim waits for its answer. It is the end of the grace, or the usual
    /// timeout of a call if that is later.
    pub(super) idle_end: Moment,
    /// Whether the handlers were cancelled.
    pub(super) has_cancelled: bool,
}

impl Stop {
    pub(super) fn begin(options: &Resolved, now: Moment) -> Stop {
        let grace = now.after(options.shutdown_grace);
        let cancel = grace.after(options.cancel_grace);
        let end = cancel.after(reporting_time(options.interval));
        Stop { grace, cancel, end, idle_end: end.min(grace.max(now.after(RESPONSE_TIMEOUT))), has_cancelled: false }
    }

    pub(super) fn hurry(&mut self, now: Moment) {
        if self.grace > now {
            let (cancel, end) = (self.cancel.since(self.grace), self.end.since(self.grace));
            (self.grace, self.cancel, self.end) = (now, now.after(cancel), now.after(end));
            self.idle_end = self.idle_end.min(now.after(RESPONSE_TIMEOUT));
        }
    }

    pub(super) fn next_step(&self, now: Moment) -> Option<Duration> {
        [self.grace, self.cancel, self.end, self.idle_end]
            .into_iter()
            .filter(|at| *at > now)
            .map(|at| at.since(now))
            .min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::task::TaskOptions;

    #[test]
    fn a_hurried_stop_keeps_the_time_after_the_grace() {
        let options = TaskOptions::new().resolve(&TaskOptions::new()).unwrap();
        let at = |seconds: u64| Moment::from_millis(seconds * 1000);
        let mut stop = Stop::begin(&options, at(100));
        // 30 s, 5 s, and two thirds of an interval of 30 s.
        assert_eq!((stop.grace, stop.cancel, stop.end), (at(130), at(135), at(155)));
        assert_eq!(stop.next_step(at(100)), Some(Duration::from_secs(30)));
        // An idle worker waits no longer than its grace.
        assert_eq!(stop.idle_end, at(130));
        stop.hurry(at(110));
        assert_eq!(stop.idle_end, at(115));
        assert_eq!((stop.grace, stop.cancel, stop.end), (at(110), at(115), at(135)));
        stop.hurry(at(120));
        assert_eq!(stop.grace, at(110));
        assert_eq!((stop.next_step(at(115)), stop.next_step(at(135))), (Some(Duration::from_secs(20)), None));
    }
}
