//! Each tick of a schedule is accounted for once, and each one that fired has a job that ended.

use super::{End, Evidence, Ticks};
use crate::chaos::report::Report;
use crate::chaos::spans::us_of;

pub fn account(evidence: &Evidence, report: &mut Report) {
    for ticks in &evidence.ticks {
        one(ticks, report);
    }
    match evidence.lost_schedule_us {
        Some(put_us) if evidence.may_be_lost(put_us) => report.at_risk += 1,
        Some(put_us) => {
            report.lost += 1;
            report.breach("a schedule is lost", "mail", format!("put at {put_us}"));
        }
        None => {}
    }
}

fn one(ticks: &Ticks, report: &mut Report) {
    let Ticks { info, ids, ends } = ticks;
    let counted = info.fired + info.overlapped + info.missed_ticks + info.paused_ticks;
    let passed = info.last.map_or(0, |last| us_of(last) / 1_000_000 - us_of(info.since) / 1_000_000);
    report.ticks += counted;
    if counted + u64::from(info.pending.is_some()) != passed {
        report.breach("ticks are not accounted for", &info.name, format!("{passed} passed: {info:?}"));
    }
    let created = ids.iter().filter(|id| ends[*id] != End::Missing).count() as u64;
    if created != info.fired {
        report.breach("a tick has no job", &info.name, format!("{created} jobs: {info:?}"));
    }
    for id in ids {
        if !matches!(ends[id], End::Completed(_) | End::Missing) {
            report.breach("the job of a tick did not end", id, format!("{:?}", ends[id]));
        }
    }
}
