//! Which ticks one call fires, and which it only counts.

use std::iter::successors;

use super::policy::Missed;
use super::rule::Schedule;
use crate::unix_time::to_ms;

/// The most ticks that one call fires for a schedule. The next call takes the others.
const MOST_FIRED: usize = 50;

/// The most ticks of a cron pattern that one call counts, since it finds them one by one.
const MOST_COUNTED: usize = 10_000;

/// How many more ticks are searched before the newest ones: the one before them, and some that are not to be fired yet.
const MORE: usize = 3;

/// A schedule whose next tick may be due.
#[derive(Debug)]
pub(crate) struct Row<'a> {
    pub(crate) name: &'a str,
    pub(crate) schedule: &'a Schedule,
    /// The next tick.
    pub(crate) due_ms: u64,
    /// The last tick that was counted.
    pub(crate) last_ms: Option<u64>,
    pub(crate) is_paused: bool,
}

/// What one call does: it accounts for all ticks from `due_ms` to `through_ms`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) due_ms: u64,
    pub(crate) through_ms: u64,
    /// The first tick after `through_ms`, and when to fire it. It may be due already.
    pub(crate) next: Option<(u64, u64)>,
    pub(crate) fire: Vec<PlannedTick>,
    pub(crate) missed: u64,
    pub(crate) paused: u64,
    /// Whether more ticks were missed, or came during the pause, than were counted.
    pub(crate) at_least: bool,
}

/// A tick that creates a job.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct PlannedTick {
    pub(crate) due_ms: u64,
    /// The tick before, also if it was missed.
    pub(crate) previous_ms: Option<u64>,
}

/// Ticks in a row.
#[derive(Debug, Default)]
struct TickRun {
    count: u64,
    /// Whether there are more than were counted.
    at_least: bool,
    /// The newest of them, oldest first.
    newest: Vec<u64>,
}

/// What to do about the ticks of a schedule that are to be fired by now; `None` if there is none.
///
/// A tick is missed if it should have been fired longer ago than the grace.
pub(crate) fn plan(row: &Row<'_>, now_ms: u64) -> Option<Plan> {
    if row.at(row.due_ms) > now_ms {
        return None;
    }
    if row.is_paused {
        let run = row.run_until(now_ms, 0);
        let through_ms = run.newest.last().copied().unwrap_or(row.due_ms);
        return Some(row.plan(through_ms, Vec::new(), (0, run.count), run.at_least));
    }
    let rule = row.schedule;
    let most_runs = match rule.missed {
        Missed::Once { .. } => 1,
        Missed::Skip => 0,
        Missed::All(most) => most as usize,
    };
    let last_missed_ms = now_ms.checked_sub(to_ms(rule.grace).saturating_add(1));
    let run = last_missed_ms.map(|last| row.run_until(last, most_runs)).unwrap_or_default();
    let is_too_old = match (rule.missed, run.newest.last()) {
        (Missed::Once { within }, Some(newest)) => now_ms - newest > to_ms(within),
        _ => false,
    };
    let mut ticks = run.newest;
    let runs = if is_too_old { 0 } else { most_runs.min(ticks.len()) };
    let first = ticks.len() - runs;
    // The ticks whose grace is not over.
    let mut next = ticks.last().map_or(Some(row.due_ms), |last| rule.next_after(*last));
    while let Some(due) = next.filter(|due| ticks.len() < first + MOST_FIRED && row.at(*due) <= now_ms) {
        ticks.push(due);
        next = rule.next_after(due);
    }
    let previous = |at: usize| if at == 0 { row.last_ms } else { ticks.get(at - 1).copied() };
    let fired = (first..).zip(ticks.iter().skip(first)).take(MOST_FIRED);
    let fire: Vec<_> = fired.map(|(at, due)| PlannedTick { due_ms: *due, previous_ms: previous(at) }).collect();
    let last = fire.last().map(|tick| tick.due_ms).or_else(|| ticks.last().copied());
    let missed = run.count - runs as u64;
    Some(row.plan(last.unwrap_or(row.due_ms), fire, (missed, 0), run.at_least))
}

impl Row<'_> {
    fn at(&self, due_ms: u64) -> u64 {
        self.schedule.at(self.name, due_ms)
    }

    fn plan(&self, through_ms: u64, fire: Vec<PlannedTick>, (missed, paused): (u64, u64), at_least: bool) -> Plan {
        let next = self.schedule.next_after(through_ms).map(|due| (due, self.at(due)));
        Plan { due_ms: self.due_ms, through_ms, next, fire, missed, paused, at_least }
    }

    /// The ticks from the next one on that were to be fired by then: how many, the newest `most`, and the one before.
    fn run_until(&self, end_ms: u64, most: usize) -> TickRun {
        match self.schedule.gap_ms() {
            Some(gap_ms) => self.equal_gaps_until(end_ms, gap_ms, most),
            None => self.pattern_until(end_ms, most),
        }
    }

    /// The same for equal gaps, without a search.
    fn equal_gaps_until(&self, end_ms: u64, gap_ms: u64, most: usize) -> TickRun {
        let last_ms = end_ms.min(self.schedule.end_ms().saturating_sub(1));
        let Some(time) = last_ms.checked_sub(self.due_ms) else { return TickRun::default() };
        let tick = |number: u64| self.due_ms + number * gap_ms;
        let mut count = time / gap_ms + 1;
        // Jitter is below the gap, so it may delay only the last of them beyond the end.
        if self.at(tick(count - 1)) > end_ms {
            count -= 1;
        }
        let newest = count.saturating_sub(most as u64 + 1)..count;
        TickRun { count, at_least: false, newest: newest.map(tick).collect() }
    }

    /// The same for a cron pattern.
    fn pattern_until(&self, end_ms: u64, most: usize) -> TickRun {
        let next = |due: &u64| self.schedule.next_after(*due);
        let is_due = |due: &u64| self.at(*due) <= end_ms;
        let mut ticks: Vec<u64> =
            successors(Some(self.due_ms), next).take_while(is_due).take(MOST_COUNTED + 1).collect();
        let at_least = ticks.len() > MOST_COUNTED;
        ticks.truncate(MOST_COUNTED);
        let count = ticks.len() as u64;
        if at_least && let Some(last) = ticks.last().copied() {
            let before = self.schedule.back(end_ms, most + MORE).map_or(last, |before| before.max(last));
            let newest = successors(self.schedule.next_after(before), next);
            ticks.extend(newest.take_while(is_due).take(MOST_COUNTED));
        }
        ticks.drain(..ticks.len().saturating_sub(most + 1));
        TickRun { count, at_least, newest: ticks }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const DAY_MS: u64 = 86_400_000;

    fn every(seconds: u64) -> Schedule {
        Schedule::every(Duration::from_secs(seconds))
    }

    fn row(schedule: &Schedule, due_ms: u64) -> Row<'_> {
        Row { name: "nightly", schedule, due_ms, last_ms: None, is_paused: false }
    }

    /// What fires, with the tick before each; the missed ticks; the last tick; the next one.
    type Outline = (Vec<(u64, Option<u64>)>, u64, u64, Option<u64>);

    fn outline(plan: &Plan) -> Outline {
        let fire = plan.fire.iter().map(|tick| (tick.due_ms, tick.previous_ms)).collect();
        (fire, plan.missed, plan.through_ms, plan.next.map(|(due, _)| due))
    }

    #[test]
    fn a_tick_within_its_grace_fires() {
        let schedule = every(10);
        let row = Row { last_ms: Some(9), ..row(&schedule, 20_000) };
        assert_eq!(plan(&row, 19_999), None);
        let on_time = plan(&row, 20_000).unwrap();
        assert_eq!(outline(&on_time), (vec![(20_000, Some(9))], 0, 20_000, Some(30_000)));
        let late = plan(&row, 35_000).unwrap();
        let fire = vec![(20_000, Some(9)), (30_000, Some(20_000))];
        assert_eq!(outline(&late), (fire, 0, 30_000, Some(40_000)));
        assert_eq!((late.due_ms, late.paused, late.at_least), (20_000, 0, false));
    }

    #[test]
    fn missed_ticks_run_once_not_at_all_or_up_to_a_number() {
        // Fifteen ticks are missed: those up to 900 s.
        let with = |missed| {
            let schedule = every(60).missed(missed);
            outline(&plan(&row(&schedule, 60_000), 1_000_000).unwrap())
        };
        let (last, next) = (960_000, Some(1_020_000));
        let in_grace = (960_000, Some(900_000));
        assert_eq!(with(Missed::ONCE), (vec![(900_000, Some(840_000)), in_grace], 14, last, next));
        let brief = Missed::Once { within: Duration::from_millis(99_999) };
        assert_eq!(with(brief), (vec![in_grace], 15, last, next));
        assert_eq!(with(Missed::Skip), (vec![in_grace], 15, last, next));
        let two = vec![(840_000, Some(780_000)), (900_000, Some(840_000)), in_grace];
        assert_eq!(with(Missed::All(2)), (two, 13, last, next));
        let (all, missed, ..) = with(Missed::All(1_000));
        assert_eq!((all.len(), all[0], missed), (16, (60_000, None), 0));
    }

    #[test]
    fn the_grace_decides_which_ticks_are_missed() {
        let schedule = every(60).grace(Duration::from_secs(240)).missed(Missed::Skip);
        let plan = plan(&row(&schedule, 60_000), 1_000_000).unwrap();
        assert_eq!((plan.missed, plan.fire.len()), (12, 4));
    }

    #[test]
    fn a_paused_schedule_only_counts_its_ticks() {
        for schedule in [every(60), Schedule::cron("* * * * *").unwrap()] {
            let row = Row { is_paused: true, ..row(&schedule, 60_000) };
            let plan = plan(&row, 1_000_000).unwrap();
            assert_eq!(outline(&plan), (vec![], 0, 960_000, Some(1_020_000)));
            assert_eq!((plan.paused, plan.at_least), (16, false));
        }
    }

    #[test]
    fn the_last_tick_has_no_next_one() {
        let schedule = every(60).until(crate::unix_time::at_ms(180_000));
        let plan = plan(&row(&schedule, 60_000), 10_000_000).unwrap();
        assert_eq!(outline(&plan), (vec![(120_000, Some(60_000))], 1, 120_000, None));
    }

    #[test]
    fn a_call_fires_50_ticks_and_the_next_ones_the_rest() {
        let schedule = every(1).missed(Missed::All(1_000));
        let (mut due, mut fired, mut calls) = (1_000, Vec::new(), 0);
        while let Some(plan) = plan(&row(&schedule, due), 200_000) {
            assert_eq!((plan.fire.len(), plan.missed), (50, 0));
            (due, calls) = (plan.through_ms + 1_000, calls + 1);
            assert_eq!(plan.next, Some((due, due)));
            fired.extend(plan.fire.iter().map(|tick| tick.due_ms));
        }
        assert_eq!(calls, 4);
        assert!(fired.into_iter().eq((1..=200).map(|second| second * 1_000)));
    }

    #[test]
    fn two_weeks_of_seconds_are_counted_without_a_search() {
        let schedule = every(1);
        let now = 14 * DAY_MS + 1_000;
        let plan = plan(&row(&schedule, 1_000), now).unwrap();
        assert_eq!((plan.missed, plan.at_least, plan.fire.len()), (1_209_539, false, 50));
        let newest = PlannedTick { due_ms: now - 61_000, previous_ms: Some(now - 62_000) };
        assert_eq!((&plan.fire[0], plan.through_ms), (&newest, now - 12_000));
    }

    #[test]
    fn cron_ticks_are_counted_up_to_ten_thousand() {
        let schedule = Schedule::cron("* * * * *").unwrap();
        // The ten-thousandth minute is just missed.
        let exact = plan(&row(&schedule, 60_000), 600_060_001).unwrap();
        assert_eq!((exact.missed, exact.at_least, exact.fire.len()), (9_999, false, 2));
        let now = 30 * DAY_MS;
        let more = plan(&row(&schedule, 60_000), now).unwrap();
        let fire = [120_000, 60_000, 0].map(|ago| (now - ago, Some(now - ago - 60_000)));
        assert_eq!(outline(&more), (fire.to_vec(), 9_999, now, Some(now + 60_000)));
        assert!(more.at_least);
    }

    #[test]
    fn the_newest_tick_is_found_long_after_the_counted_ones() {
        // Every second of the first day of a month.
        let month = Missed::Once { within: Duration::from_secs(30 * 86_400) };
        let schedule = Schedule::cron_with_seconds("* * * 1 * *").unwrap().missed(month);
        let plan = plan(&row(&schedule, 1_000), 19 * DAY_MS).unwrap();
        let fire = vec![(DAY_MS - 1_000, Some(DAY_MS - 2_000))];
        assert_eq!(outline(&plan), (fire, 9_999, DAY_MS - 1_000, Some(31 * DAY_MS)));
    }

    #[test]
    fn jitter_delays_a_tick_but_does_not_make_it_late() {
        let schedule = every(3_600).jitter(Duration::from_secs(1_800));
        let row = row(&schedule, 3_600_000);
        let at = schedule.at("nightly", 3_600_000);
        assert!(at > 3_660_000, "a jitter above the grace is needed: {at}");
        assert_eq!(plan(&row, at - 1), None);
        let planned = plan(&row, at).unwrap();
        assert_eq!((planned.fire.len(), planned.missed), (1, 0));
        assert_eq!(planned.next, Some((7_200_000, schedule.at("nightly", 7_200_000))));
    }

    #[test]
    fn equal_gaps_are_counted_as_a_search_would() {
        let schedule = every(60).jitter(Duration::from_secs(59));
        let row = row(&schedule, 60_000);
        for end in (0..2_000_000).step_by(7_001) {
            let all: Vec<u64> = (1..40).map(|n| n * 60_000).take_while(|due| row.at(*due) <= end).collect();
            let run = row.run_until(end, 2);
            assert_eq!((run.count, run.newest.as_slice()), (all.len() as u64, &all[all.len().saturating_sub(3)..]));
        }
    }
}
