//! When a keeper looks for due ticks of a table. No worker is elected: for each table the workers have an order. The
//! first fires a tick when it is due, and the second looks a moment later. The others rely on their regular looks.

use std::time::Duration;

use crate::clock::Moment;
use crate::timings::Timings;

/// How long the second worker in order gives the first to fire a tick.
const SECOND: Duration = Duration::from_millis(20);

/// How long a worker fires ticks at once after it fired a late one. Others take a dead worker out of the order after 15
/// to 20 s.
const STANDS_IN: Duration = Duration::from_secs(30);

/// What a keeper knows about the ticks of one table.
#[derive(Debug)]
pub(super) struct Timetable {
    worker: String,
    table: String,
    /// How many live workers come first in the order.
    before: usize,
    /// Until then it fires ticks at once, whatever the order.
    first_until: Moment,
    /// The server's time in its last answer, ms, and when this machine got it.
    answered: (u64, Moment),
    /// When the next tick fires.
    next: Option<Moment>,
    looked: Moment,
    /// Whether a tick may wait for the end of a job.
    has_queues: bool,
}

impl Timetable {
    pub(super) fn new(worker: &str, table: &str, now: Moment) -> Timetable {
        Timetable {
            worker: worker.to_owned(),
            table: table.to_owned(),
            before: 0,
            first_until: now,
            answered: (0, now),
            next: None,
            looked: now,
            has_queues: false,
        }
    }

    /// The workers that fire ticks of the table.
    pub(super) fn set_keepers(&mut self, keepers: &[String]) {
        let place = |worker: &String| (weight(&self.table, worker), worker.clone());
        let own = place(&self.worker);
        self.before = keepers.iter().filter(|other| place(other) > own).count();
    }

    /// Whether this worker is the one that fires a tick when it is due.
    pub(super) fn is_first(&self, now: Moment) -> bool {
        self.before == 0 || now < self.first_until
    }

    /// This worker fired a late tick, so the first two in the order may be dead. It fires the next ones at once.
    pub(super) fn stand_in(&mut self, now: Moment) {
        self.first_until = now.after(STANDS_IN);
    }

    /// A schedule of the task lets a tick wait for the end of a job.
    pub(super) fn has_queue(&mut self) {
        self.has_queues = true;
    }

    /// The server answered at `now` that its time is `server_ms`, and that the next tick fires at `next_ms`.
    pub(super) fn answered(&mut self, now: Moment, server_ms: u64, next_ms: Option<u64>) {
        self.answered = (server_ms, now);
        self.next = next_ms.map(|next_ms| now.after(Duration::from_millis(next_ms.saturating_sub(server_ms))));
    }

    /// The same for the answer to a look.
    pub(super) fn looked(&mut self, now: Moment, server_ms: u64, next_ms: Option<u64>) {
        self.looked = now;
        self.answered(now, server_ms, next_ms);
    }

    /// The server's time, ms, by its last answer. Its clock is ahead of this by the time that the answer took.
    pub(super) fn server_ms(&self, now: Moment) -> u64 {
        let (server_ms, answered) = self.answered;
        server_ms.saturating_add(now.since(answered).as_millis() as u64)
    }

    /// When to look if no tick is due earlier.
    pub(super) fn regular_look_at(&self, timings: &Timings) -> Moment {
        self.looked.after(if self.has_queues { timings.schedule_pending } else { timings.schedule_look })
    }

    /// When to fire or to look next.
    pub(super) fn next_at(&self, timings: &Timings) -> Moment {
        let regular = self.regular_look_at(timings);
        let Some(next) = self.next else { return regular };
        match self.before {
            _ if self.is_first(next) => regular.min(next),
            1 => regular.min(next.after(SECOND)),
            _ => regular,
        }
    }
}

/// The place of a worker in the order for a table: the largest comes first. The same in every process.
fn weight(table: &str, worker: &str) -> u64 {
    // FNV-1a, and a multiplication that spreads the last bytes over all bits.
    let bytes = table.bytes().chain([0]).chain(worker.bytes());
    let hash =
        bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    let mixed = (hash ^ (hash >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ (mixed >> 29)
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: u64 = 1_700_000_000_000;

    fn timetables(workers: usize, table: &str, now: Moment) -> Vec<Timetable> {
        let names: Vec<String> = (0..workers).map(|n| format!("host-{n}-0000000{n}")).collect();
        let timetable = |name: &String| {
            let mut timetable = Timetable::new(name, table, now);
            timetable.set_keepers(&names);
            timetable
        };
        names.iter().map(timetable).collect()
    }

    #[test]
    fn one_worker_fires_a_tick_and_one_looks_a_moment_later() {
        let (now, timings) = (Moment::from_millis(1000), Timings::default());
        let mut first = vec![0; 5];
        for table in 1..=1000 {
            let mut timetables = timetables(5, &format!("{{task-{table}}}"), now);
            timetables.iter_mut().for_each(|timetable| timetable.looked(now, START, Some(START + 7)));
            let mut looks: Vec<_> = timetables.iter().map(|timetable| timetable.next_at(&timings).since(now)).collect();
            let at = looks.iter().position(|look| *look == Duration::from_millis(7)).unwrap();
            assert!(timetables[at].is_first(now));
            first[at] += 1;
            looks.sort_unstable();
            assert_eq!(looks[1], Duration::from_millis(7) + SECOND);
            assert_eq!(looks[2..], [timings.schedule_look; 3]);
        }
        assert!(first.iter().all(|tables| (100..300).contains(tables)), "{first:?}");
    }

    #[test]
    fn a_worker_that_fired_a_late_tick_fires_the_next_ones_at_once() {
        let (now, timings) = (Moment::from_millis(1000), Timings::default());
        let mut timetables = timetables(5, "{task}", now);
        let last = timetables.iter_mut().find(|timetable| timetable.before == 4).unwrap();
        last.stand_in(now);
        for (ms, wait) in [(29_000, 100), (31_000, 5_000)] {
            let later = now.after(Duration::from_millis(ms));
            last.looked(later, START + ms, Some(START + ms + 100));
            assert_eq!(last.next_at(&timings).since(later), Duration::from_millis(wait));
        }
    }

    #[test]
    fn a_worker_looks_regularly_also_between_ticks() {
        let (now, timings) = (Moment::from_millis(1000), Timings::default());
        let mut timetable = Timetable::new("a", "{task}", now);
        assert_eq!(timetable.next_at(&timings), now.after(timings.schedule_look));
        timetable.looked(now, START, Some(START + 3_600_000));
        assert_eq!(timetable.next_at(&timings), now.after(timings.schedule_look));
        timetable.has_queue();
        assert_eq!(timetable.next_at(&timings), now.after(timings.schedule_pending));
        // Alone, it fires at once. A firing does not count as a look.
        let later = now.after(Duration::from_millis(500));
        timetable.answered(later, START + 500, Some(START - 5));
        assert_eq!(timetable.next_at(&timings), later);
        assert_eq!(timetable.regular_look_at(&timings), now.after(timings.schedule_pending));
        assert_eq!(timetable.server_ms(later.after(Duration::from_millis(20))), START + 520);
    }
}
