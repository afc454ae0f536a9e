//! Rows of schedules as they are stored. A row that is damaged is reported as unreadable, with what can be read.

use serde::Deserialize;

use super::reply::{Reply, Text};
use crate::error::Result;
use crate::job::id::JobId;
use crate::job::state::JobState;
use crate::limits::{stored_number, stored_score};
use crate::schedule::policy::{ScheduleSource, TickOutcome};

/// A schedule as it is stored.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct StoredSchedule {
    pub(crate) name: String,
    pub(crate) digest: String,
    pub(crate) zone_data: String,
    pub(crate) source: ScheduleSource,
    pub(crate) stamp_ms: u64,
    pub(crate) by: String,
    pub(crate) json: String,
    pub(crate) input_bytes: usize,
    pub(crate) ledger: StoredLedger,
    pub(crate) pause: Option<StoredPause>,
    /// The state of its last job; `None` if there is none, or if it was removed.
    pub(crate) last_state: Option<JobState>,
    /// Its last ticks, newest first.
    pub(crate) ticks: Vec<StoredTick>,
    /// When a worker last reported that its code has another rule or input, ms, and which one.
    pub(crate) differing: Option<(u64, String)>,
    /// Whether all of this could be read. The JSON of the rule was not parsed.
    pub(crate) is_readable: bool,
}

/// The ticks of a schedule in numbers. Times are ms.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct StoredLedger {
    pub(crate) due_ms: Option<u64>,
    /// When the next tick is to be fired.
    pub(crate) at_ms: Option<u64>,
    pub(crate) since_ms: u64,
    pub(crate) fired: u64,
    pub(crate) overlapped: u64,
    pub(crate) missed: u64,
    pub(crate) paused: u64,
    pub(crate) by_hand: u64,
    /// The last tick that was accounted for.
    pub(crate) last_ms: Option<u64>,
    pub(crate) last_job: Option<JobId>,
    pub(crate) fired_at_ms: Option<u64>,
    pub(crate) late_ms: Option<u64>,
    pub(crate) pending_ms: Option<u64>,
    /// Whether `missed` is a lower bound.
    pub(crate) at_least: bool,
}

/// A pause that a person set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct StoredPause {
    #[serde(rename = "at")]
    pub(crate) at_ms: u64,
    pub(crate) by: String,
    pub(crate) reason: String,
}

/// A number of ticks in a row. The newest was at `due_ms`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StoredTick {
    pub(crate) due_ms: u64,
    pub(crate) kind: TickOutcome,
    pub(crate) count: u64,
}

/// Reads a row of `lua/schedule_read.lua`; `None` if there is no such schedule.
pub(super) fn stored_of(name: &str, row: Vec<Text>) -> Option<StoredSchedule> {
    let row: [Text; 8] = row.try_into().ok()?;
    let [rule, ledger, pause, ticks, differing, bytes, at, state] = row.map(|Text(text)| text);
    let (rule, ledger, input_bytes) = (rule_of(&rule), ledger_of(&ledger), bytes.parse().unwrap_or(0));
    let is_readable = rule.is_some() && ledger.is_some() && input_bytes > 0;
    let (digest, zone_data, source, stamp_ms, by, json) = rule.unwrap_or(("", "", ScheduleSource::RunTime, 0, "", ""));
    Some(StoredSchedule {
        name: name.to_owned(),
        digest: digest.to_owned(),
        zone_data: zone_data.to_owned(),
        source,
        stamp_ms,
        by: by.to_owned(),
        json: json.to_owned(),
        input_bytes,
        ledger: StoredLedger { at_ms: at_of(&at), ..ledger.unwrap_or_default() },
        pause: (!pause.is_empty()).then(|| serde_json::from_str(&pause).unwrap_or_default()),
        last_state: state.parse().ok(),
        ticks: ticks.split_whitespace().filter_map(tick_of).collect(),
        differing: differing.split_once(' ').and_then(|(at, worker)| Some((number(at)?, worker.to_owned()))),
        is_readable,
    })
}

/// Digest, zone data, source, stamp, by whom, and JSON.
type RuleWords<'a> = (&'a str, &'a str, ScheduleSource, u64, &'a str, &'a str);

fn rule_of(line: &str) -> Option<RuleWords<'_>> {
    let mut words = line.splitn(6, ' ');
    let (digest, zone_data) = (words.next()?, words.next()?);
    let source = match words.next()? {
        "code" => ScheduleSource::Code,
        "put" => ScheduleSource::RunTime,
        _ => return None,
    };
    Some((digest, zone_data, source, number(words.next()?)?, words.next()?, words.next()?))
}

/// As the function of this name in `lua/lib/schedules.lua`.
fn ledger_of(line: &str) -> Option<StoredLedger> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let words: [&str; 14] = words.try_into().ok()?;
    let text = |at: usize| Some(words[at]).filter(|word| *word != "-");
    // The outer option says whether the word can be read.
    let time = |at: usize| text(at).map_or(Some(None), |word| number(word).map(Some));
    time(12)?;
    Some(StoredLedger {
        due_ms: time(0)?,
        at_ms: None,
        since_ms: number(words[1])?,
        fired: number(words[2])?,
        overlapped: number(words[3])?,
        missed: number(words[4])?,
        paused: number(words[5])?,
        by_hand: number(words[6])?,
        last_ms: time(7)?,
        last_job: text(8).map(JobId::from_wire),
        fired_at_ms: time(9)?,
        late_ms: time(10)?,
        pending_ms: time(11)?,
        at_least: text(13).is_some(),
    })
}

/// A number of at most 15 digits.
fn number(word: &str) -> Option<u64> {
    stored_number(word).filter(|_| word.len() <= 15 && word.bytes().all(|byte| byte.is_ascii_digit()))
}

fn tick_of(word: &str) -> Option<StoredTick> {
    let (due, letter) = word.split_at(word.find(|c: char| !c.is_ascii_digit())?);
    let mut rest = letter.chars();
    let kind = match rest.next()? {
        'f' => TickOutcome::Fired,
        'o' => TickOutcome::Overlapped,
        'm' => TickOutcome::Missed,
        'p' => TickOutcome::Paused,
        'h' => TickOutcome::ByHand,
        _ => return None,
    };
    Some(StoredTick { due_ms: number(due)?, kind, count: number(rest.as_str())? })
}

/// A score as a time; `None` for any other text.
pub(super) fn at_of(score: &str) -> Option<u64> {
    score.parse().ok().map(stored_score)
}

/// A time as the scripts take it.
pub(super) fn or_dash(ms: Option<u64>) -> String {
    ms.map_or_else(|| "-".to_owned(), |ms| ms.to_string())
}

/// The next word of a reply: 1 or 0.
pub(super) fn flag(reply: &mut Reply) -> Result<bool> {
    Ok(reply.next::<u8>()? == 1)
}

pub(super) fn plain(texts: Vec<Text>) -> Vec<String> {
    texts.into_iter().map(|Text(text)| text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn row(words: [&str; 8]) -> Vec<Text> {
        words.map(|word| Text(word.to_owned())).into()
    }

    #[test]
    fn a_stored_row_is_read_with_all_its_words() {
        let ledger = "9000 1 2 3 4 5 6 8000 a@8000 8001 1 7000 6000 +";
        let pause = r#"{"at":5,"by":"ada","reason":"a bad deploy"}"#;
        let (rule, ticks) = ("d 2026a code 7 w {\"a\": 1}", "8000f1 7000m3 x 6000h2");
        let stored = stored_of("nightly", row([rule, ledger, pause, ticks, "90 v", "3", "9010", "running"])).unwrap();
        assert_eq!(stored.differing, Some((90, "v".to_owned())));
        assert_eq!((&*stored.digest, &*stored.zone_data, &*stored.by), ("d", "2026a", "w"));
        assert_eq!(stored.json, "{\"a\": 1}");
        assert_eq!((stored.source, stored.stamp_ms, stored.input_bytes), (ScheduleSource::Code, 7, 3));
        assert_eq!((stored.last_state, stored.is_readable), (Some(JobState::Running), true));
        let counts = &stored.ledger;
        assert_eq!((counts.fired, counts.overlapped, counts.missed, counts.paused, counts.by_hand), (2, 3, 4, 5, 6));
        assert_eq!((counts.due_ms, counts.at_ms, counts.last_ms), (Some(9000), Some(9010), Some(8000)));
        assert_eq!((counts.fired_at_ms, counts.late_ms, counts.pending_ms), (Some(8001), Some(1), Some(7000)));
        assert_eq!((counts.last_job.as_ref().unwrap().as_str(), counts.at_least), ("a@8000", true));
        let pause = stored.pause.unwrap();
        assert_eq!((pause.at_ms, &*pause.by, &*pause.reason), (5, "ada", "a bad deploy"));
        let ticks: Vec<_> = stored.ticks.iter().map(|tick| (tick.due_ms, tick.kind.as_str(), tick.count)).collect();
        assert_eq!(ticks, [(8000, "fired", 1), (7000, "missed", 3), (6000, "by_hand", 2)]);
    }

    #[test]
    fn a_damaged_row_is_reported_as_unreadable() {
        let (rule, ledger) = ("d - put 0 ada {}", "- 1 0 0 0 0 0 - - - - - - -");
        assert!(stored_of("a", row([rule, ledger, "", "", "", "1", "", ""])).unwrap().is_readable);
        for (rule, ledger, bytes) in [
            ("", ledger, "1"),
            ("d - other 0 ada {}", ledger, "1"),
            ("d - put soon ada {}", ledger, "1"),
            (rule, "", "1"),
            (rule, "- 1 0 0 0 0 0 - - - - - -", "1"),
            (rule, "- - 0 0 0 0 0 - - - - - - -", "1"),
            (rule, "- 1 0 0 -1 0 0 - - - - - - -", "1"),
            (rule, "1234567890123456 1 0 0 0 0 0 - - - - - - -", "1"),
            (rule, ledger, "0"),
        ] {
            let stored = stored_of("a", row([rule, ledger, "no JSON", "", "soon", bytes, "", ""])).unwrap();
            assert!(!stored.is_readable && stored.pause == Some(StoredPause::default()), "{rule}, {ledger}, {bytes}");
        }
        assert_eq!(stored_of("a", Vec::new()), None);
    }

    #[test]
    fn rows_are_read_whatever_they_are() {
        let word = "-|[0-9]{1,20}|code|put|[a-zé]{1,4}";
        let line = prop::collection::vec(word, 0..16).prop_map(|words| words.join(" "));
        proptest!(|(line in line, tick in "[0-9]{0,20}[fomphé]?[0-9]{0,20}", any in "\\PC{0,40}")| {
            for text in [&line, &any, &tick] {
                let _ = (rule_of(text), ledger_of(text), tick_of(text), at_of(text));
            }
        });
    }
}
