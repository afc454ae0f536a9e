//! When a keeper looks for due ticks of a task. No worker is elected: for each tick the workers have an order, and a
//! worker looks the later, the further down it is.

use std::time::Duration;

use crate::clock::Moment;
use crate::timings::Timings;

/// How long the second worker in order gives the first to fire a tick.
const SECOND: Duration = Duration::from_millis(20);

/// How long the others give both, at least, and how much longer at most.
const OTHERS: Duration = Duration::from_secs(2);
const SPREAD_MS: u64 = 3000;

/// What a keeper knows about the ticks of one table.
#[derive(Debug)]
pub(super) struct Timetable {
    worker: String,
    /// The workers that fire ticks of the task, as last read.
    keepers: Vec<String>,
    /// The next tick: when it fires, ms by the server's clock, and that time on this machine.
    next: Option<(u64, Moment)>,
    looked: Moment,
    /// Whether a tick may wait for the end of a job.
    has_queues: bool,
}

impl Timetable {
    pub(super) fn new(worker: &str, now: Moment) -> Timetable {
        Timetable { worker: worker.to_owned(), keepers: Vec::new(), next: None, looked: now, has_queues: false }
    }

    /// The workers that fire ticks of the task.
    pub(super) fn set_keepers(&mut self, keepers: Vec<String>) {
        self.keepers = keepers;
    }

    /// A schedule of the task lets a tick wait for the end of a job.
    pub(super) fn has_queue(&mut self) {
        self.has_queues = true;
    }

    /// The server answered at `now` that its time is `server_ms`, and that the next tick fires at `next_ms`.
    pub(super) fn answered(&mut self, now: Moment, server_ms: u64, next_ms: Option<u64>) {
        self.looked = now;
        let moment = |next_ms: u64| now.after(Duration::from_millis(next_ms.saturating_sub(server_ms)));
        self.next = next_ms.map(|next_ms| (next_ms, moment(next_ms)));
    }

    /// When to look next.
    pub(super) fn look_at(&self, timings: &Timings) -> Moment {
        let pause = if self.has_queues { timings.schedule_pending } else { timings.schedule_look };
        let regular = self.looked.after(pause);
        self.next.map_or(regular, |(at_ms, moment)| regular.min(moment.after(self.delay(at_ms))))
    }

    /// How long this worker lets others fire the tick of this time.
    fn delay(&self, at_ms: u64) -> Duration {
        let own = (weight(at_ms, &self.worker), &self.worker);
        let before = self.keepers.iter().filter(|other| (weight(at_ms, other), *other) > own).count();
        match before {
            0 => Duration::ZERO,
            1 => SECOND,
            _ => OTHERS + Duration::from_millis(own.0 % SPREAD_MS),
        }
    }
}

/// The place of a worker in the order for a tick: the largest comes first. The same in every process.
fn weight(at_ms: u64, worker: &str) -> u64 {
    // FNV-1a, and a multiplication that spreads the last bytes over all bits.
    let bytes = at_ms.to_be_bytes().into_iter().chain(worker.bytes());
    let hash =
        bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    let mixed = (hash ^ (hash >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ (mixed >> 29)
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: u64 = 1_700_000_000_000;

    fn tables(workers: usize, now: Moment) -> Vec<Timetable> {
        let names: Vec<String> = (0..workers).map(|n| format!("host-{n}-0000000{n}")).collect();
        let table = |name: &String| {
            let mut table = Timetable::new(name, now);
            table.set_keepers(names.clone());
            table
        };
        names.iter().map(table).collect()
    }

    #[test]
    fn one_worker_looks_at_a_tick_and_one_a_moment_later() {
        let (now, timings) = (Moment::from_millis(1000), Timings::default());
        let mut first = vec![0; 5];
        for tick in 1..=1000 {
            let mut tables = tables(5, now);
            tables.iter_mut().for_each(|table| table.answered(now, START, Some(START + tick)));
            let mut looks: Vec<_> = tables.iter().map(|table| table.look_at(&timings).since(now)).collect();
            first[looks.iter().position(|look| *look == Duration::from_millis(tick)).unwrap()] += 1;
            looks.sort_unstable();
            assert_eq!(looks[1], Duration::from_millis(tick) + SECOND);
            assert!(looks[2..].iter().all(|look| *look >= OTHERS && *look <= timings.schedule_look), "{looks:?}");
        }
        assert!(first.iter().all(|ticks| (100..300).contains(ticks)), "{first:?}");
    }

    #[test]
    fn a_worker_looks_regularly_without_a_tick() {
        let (now, timings) = (Moment::from_millis(1000), Timings::default());
        let mut table = Timetable::new("a", now);
        assert_eq!(table.look_at(&timings), now.after(timings.schedule_look));
        table.answered(now, START, Some(START + 3_600_000));
        assert_eq!(table.look_at(&timings), now.after(timings.schedule_look));
        table.has_queue();
        assert_eq!(table.look_at(&timings), now.after(timings.schedule_pending));
        // Alone, it fires at once.
        table.answered(now, START, Some(START - 5));
        assert_eq!(table.look_at(&timings), now);
    }
}
