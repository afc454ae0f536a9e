//! Unique keys: which jobs count as the same, for how long, and what a second dispatch does.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;
use uuid::Uuid;

use crate::config_error::{Faults, shown};
use crate::enum_str::names;
use crate::job::id::JobId;
use crate::limits::LONGEST;

/// Keys of more bytes are stored as a hash.
const KEY_BYTES: usize = 128;

/// Values that are nested deeper are compared as they are written.
const NESTED: usize = 100;

/// How many times its delay a debounced job may be postponed, unless [`Unique::at_most`] says how long.
const POSTPONED: u32 = 10;

/// A unique key of a job, for [`Dispatch::unique`](crate::Dispatch::unique): while a job that counts has the key, a dispatch with it writes
/// no second job.
///
/// ```no_run
/// # use std::time::Duration;
/// # use heartline::{TaskRef, Unique};
/// # async fn run(sync: TaskRef<u64, ()>, index: TaskRef<u64, ()>) -> heartline::Result<()> {
/// let job = sync.dispatch(7).unique(Unique::by("order-7")).await?;
/// println!("{} {:?}", job.id(), job.placed());
/// let debounced = Unique::by("customer-7").debounce(Duration::from_secs(5)).at_most(Duration::from_secs(60));
/// index.dispatch(7).unique(debounced).await?;
/// # Ok(())
/// # }
/// ```
///
/// A key belongs to one task. There is no lock: whether a key is taken depends on the state of its job. So no crash, cancel or removal
/// leaves a key that blocks, except for the time of [`within`](Unique::within).
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "pass it to Dispatch::unique"]
pub struct Unique {
    /// `None`: by the input.
    key: Option<String>,
    mode: UniqueMode,
    period: Duration,
    renewal: Option<Renewal>,
    at_most: Option<Duration>,
}

/// What a dispatch does to the job that waits under its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Renewal {
    Replace,
    Debounce(Duration),
}

impl Unique {
    /// Jobs with this key count as the same. Keys of over 128 bytes are stored as a hash. A key is the text itself, not a JSON pointer
    /// as in [`TaskOptions::key`](crate::TaskOptions::key). One that leads to a field of the input is refused.
    ///
    /// By default, the key is taken until its job has ended: completed, failed or cancelled. A job that waits for a retry, or whose hook
    /// runs, has not ended.
    pub fn by(key: impl Into<String>) -> Unique {
        Unique::new(Some(key.into()))
    }

    /// Jobs with the same input count as the same. The order of fields does not matter.
    pub fn by_input() -> Unique {
        Unique::new(None)
    }

    fn new(key: Option<String>) -> Unique {
        Unique { key, mode: UniqueMode::Done, period: Duration::ZERO, renewal: None, at_most: None }
    }

    /// The key is taken only until its job begins to run. It is taken again while the job waits for a retry. Not with
    /// [`replace`](Unique::replace) or [`debounce`](Unique::debounce).
    pub fn until_started(mut self) -> Unique {
        self.mode = UniqueMode::Started;
        self
    }

    /// The key is taken for this time after the dispatch, whatever happens to its job. More than 0, at most 10 years. Not with
    /// [`replace`](Unique::replace) or [`debounce`](Unique::debounce).
    pub fn within(mut self, period: Duration) -> Unique {
        (self.mode, self.period) = (UniqueMode::Period, period);
        self
    }

    /// The newest input wins: a job that waits under the key gets the input and the options of this dispatch. It keeps its place, delay
    /// and priority. A job that runs is left alone, and the new job waits next to it.
    ///
    /// So at most one job waits. If the worker of a running job dies, that job waits too, and runs again.
    pub fn replace(mut self) -> Unique {
        self.renewal = Some(Renewal::Replace);
        self
    }

    /// As [`replace`](Unique::replace), and each dispatch delays the job by this time from now, unless it is due already. More than 0.
    /// The dispatch then has no [`delay`](crate::Dispatch::delay).
    pub fn debounce(mut self, delay: Duration) -> Unique {
        self.renewal = Some(Renewal::Debounce(delay));
        self
    }

    /// How long after the first dispatch a [debounced](Unique::debounce) job may be postponed: at least its delay, at most 10 years.
    /// Defaults to 10 times its delay.
    pub fn at_most(mut self, time: Duration) -> Unique {
        self.at_most = Some(time);
        self
    }

    /// Checks all settings. `delay` is that of the dispatch.
    pub(crate) fn check(&self, delay: Option<Duration>, faults: &mut Faults) {
        if self.key.as_deref() == Some("") {
            faults.add("unique", "\"\"", "must not be empty", "name what is unique, such as \"order-7\"");
        }
        if self.mode == UniqueMode::Period {
            if self.period.is_zero() {
                let fix = "leave it out for a key that is taken until its job is done";
                faults.add("unique.within", "0ns", "must be more than 0", fix);
            }
            faults.at_most("unique.within", self.period, LONGEST);
        }
        if let Some(renewal) = self.renewal.filter(|_| self.mode != UniqueMode::Done) {
            let renewal = if renewal == Renewal::Replace { "replace" } else { "debounce" };
            let mode = if self.mode == UniqueMode::Started { "until_started" } else { "within" };
            let rule = "must have only one of the two: replace and debounce allow a new job next to a running one";
            faults.add("unique", format!("{renewal} with {mode}"), rule, format!("leave {mode} out"));
        }
        match (self.renewal, self.at_most) {
            (Some(Renewal::Debounce(wait)), at_most) => check_debounce(wait, at_most, delay, faults),
            (_, Some(at_most)) => {
                let fix = "call debounce too, or leave it out";
                faults.add("unique.at_most", format!("{at_most:?}"), "must be used with debounce", fix);
            }
            (_, None) => {}
        }
    }

    /// Refuses a key that leads to a field of the input (JSON): its writer takes it for a pointer.
    pub(crate) fn check_text(&self, json: &[u8], faults: &mut Faults) {
        let pointer = self.key.as_deref().filter(|key| key.starts_with('/'));
        let input = || serde_json::from_slice::<Value>(json).unwrap_or_default();
        if let Some(key) = pointer.filter(|pointer| input().pointer(pointer).is_some()) {
            let rule = "must be the text that is unique, not a pointer into the input";
            faults.add("unique", shown(key), rule, "pass the value itself, as in format!(\"order-{}\", input.order)");
        }
    }

    /// The delay of a debounced job.
    pub(crate) fn delay(&self) -> Option<Duration> {
        match self.renewal {
            Some(Renewal::Debounce(delay)) => Some(delay),
            _ => None,
        }
    }

    /// How long a debounced job may be postponed.
    pub(crate) fn longest_delay(&self) -> Option<Duration> {
        let longest = |delay: Duration| delay.saturating_mul(POSTPONED).min(LONGEST);
        self.delay().map(|delay| self.at_most.unwrap_or_else(|| longest(delay)))
    }

    /// The key of a job with this input (JSON), as it is stored. If inputs may be encoded, only the hash of one is stored.
    pub(crate) fn key_of(&self, json: &[u8], is_encoded: bool) -> String {
        match &self.key {
            Some(key) => stored_key(key),
            None if is_encoded => hashed_key(&sorted(json)),
            None => stored_key(&sorted(json)),
        }
    }

    /// What a dispatch with this stored key sends.
    pub(crate) fn to_send(&self, key: String, call: JobId) -> NewUnique {
        let mode = match self.renewal {
            Some(Renewal::Replace) => "replace",
            Some(Renewal::Debounce(_)) => "debounce",
            None => self.mode.as_str(),
        };
        NewUnique { key, mode, time: self.longest_delay().unwrap_or(self.period), call }
    }
}

fn check_debounce(wait: Duration, at_most: Option<Duration>, delay: Option<Duration>, faults: &mut Faults) {
    if wait.is_zero() {
        let fix = "use replace for a job that is not delayed";
        faults.add("unique.debounce", "0ns", "must be more than 0", fix);
    }
    faults.at_most("unique.debounce", wait, LONGEST);
    if let Some(at_most) = at_most {
        if at_most < wait {
            let rule = format!("must be at least the delay of debounce, {wait:?}");
            faults.add("unique.at_most", format!("{at_most:?}"), rule, "raise it, or lower the delay");
        }
        faults.at_most("unique.at_most", at_most, LONGEST);
    }
    if let Some(delay) = delay {
        let rule = "must not be set for a debounced job";
        faults.add("delay", format!("{delay:?}"), rule, "leave it out: debounce sets the delay");
    }
}

/// The unique key of a new job, as its dispatch sends it.
#[derive(Clone, Debug)]
pub(crate) struct NewUnique {
    pub(crate) key: String,
    /// The mode, or what the dispatch does to a job that waits; a word of `lua/dispatch_unique.lua`.
    pub(crate) mode: &'static str,
    /// The period, or how long a debounced job may be postponed.
    pub(crate) time: Duration,
    /// The id of the call, by which a repeated one is known: that of the job, unless the caller chose it.
    pub(crate) call: JobId,
}

/// For how long a unique key is taken.
///
/// [`Display`](std::fmt::Display) and [`FromStr`](std::str::FromStr) use `done`, `started` and `period`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum UniqueMode {
    /// Until its job has ended.
    Done,
    /// Until its job begins.
    Started,
    /// For a period, whatever happens to its job.
    Period,
}

names!(UniqueMode, "mode", { Done = "done", Started = "started", Period = "period" });

/// What a dispatch did.
///
/// [`Display`](std::fmt::Display) and [`FromStr`](std::str::FromStr) use the lower-case name of the variant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Placed {
    /// It wrote a new job.
    New,
    /// It wrote nothing: a job with this id or unique key existed.
    Existed,
    /// The job that waited under its unique key got the new input. Or a worker had claimed that job and not begun it: then it is cancelled
    /// with the code `replaced`, and a new job is written.
    Replaced,
    /// The delayed job got the new input, and is due later if [`Unique::at_most`] allows it.
    Postponed,
}

names!(Placed, "placement", { New = "new", Existed = "existed", Replaced = "replaced", Postponed = "postponed" });

/// A key as it is stored: long ones as a hash, which begins with `~`.
pub(crate) fn stored_key(key: &str) -> String {
    if key.len() <= KEY_BYTES {
        return key.to_owned();
    }
    hashed_key(key)
}

fn hashed_key(key: &str) -> String {
    let digits = base62::encode_fmt(Uuid::new_v5(&Uuid::NAMESPACE_OID, key.as_bytes()).as_u128());
    format!("~{digits:0>22}")
}

/// The text of a JSON value with the fields of its objects sorted. Numbers stay as they are written, so that no two become the same.
fn sorted(json: &[u8]) -> String {
    let text = String::from_utf8_lossy(json);
    let mut sorted = String::with_capacity(text.len());
    write_sorted(text.trim(), 0, &mut sorted);
    sorted
}

fn write_sorted(json: &str, depth: usize, text: &mut String) {
    let (is_object, is_list) = (json.starts_with('{') && depth < NESTED, json.starts_with('[') && depth < NESTED);
    if is_object && let Ok(fields) = serde_json::from_str::<BTreeMap<String, &RawValue>>(json) {
        let mut before = '{';
        for (name, value) in fields {
            text.push(before);
            text.push_str(&Value::from(name).to_string());
            text.push(':');
            write_sorted(value.get(), depth + 1, text);
            before = ',';
        }
        text.push_str(if before == '{' { "{}" } else { "}" });
    } else if is_list && let Ok(values) = serde_json::from_str::<Vec<&RawValue>>(json) {
        let mut before = '[';
        for value in values {
            text.push(before);
            write_sorted(value.get(), depth + 1, text);
            before = ',';
        }
        text.push_str(if before == '[' { "[]" } else { "]" });
    } else {
        text.push_str(json);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn faults_of(unique: &Unique, delay: Option<Duration>) -> Vec<String> {
        let mut faults = Faults::default();
        unique.check(delay, &mut faults);
        faults.finish().map_or_else(|faults| faults.iter().map(|fault| fault.field.clone()).collect(), |()| Vec::new())
    }

    #[test]
    fn wrong_settings_are_refused_with_their_field() {
        let by = || Unique::by("a");
        for (unique, fields) in [
            (Unique::by(""), vec!["unique"]),
            (by().within(Duration::ZERO), vec!["unique.within"]),
            (by().within(Duration::MAX), vec!["unique.within"]),
            (by().replace().until_started(), vec!["unique"]),
            (by().within(SECOND).debounce(SECOND), vec!["unique"]),
            (by().debounce(Duration::ZERO), vec!["unique.debounce"]),
            (by().debounce(Duration::MAX), vec!["unique.debounce"]),
            (by().debounce(2 * SECOND).at_most(SECOND), vec!["unique.at_most"]),
            (by().debounce(SECOND).at_most(Duration::MAX), vec!["unique.at_most"]),
            (by().at_most(SECOND), vec!["unique.at_most"]),
        ] {
            assert_eq!(faults_of(&unique, None), fields, "{unique:?}");
        }
        assert_eq!(faults_of(&by().debounce(SECOND), Some(SECOND)), ["delay"]);
        for unique in [by(), Unique::by_input(), by().until_started(), by().within(SECOND), by().replace()] {
            assert!(faults_of(&unique, Some(SECOND)).is_empty(), "{unique:?}");
        }
        assert!(faults_of(&by().debounce(SECOND).at_most(SECOND), None).is_empty());
    }

    #[test]
    fn a_key_that_leads_to_a_field_of_the_input_is_refused() {
        let is_refused = |key: &str| {
            let mut faults = Faults::default();
            Unique::by(key).check_text(br#"{"order":{"id":7}}"#, &mut faults);
            faults.finish().is_err()
        };
        assert!(is_refused("/order/id") && is_refused("/order"));
        assert!(!is_refused("/usr/share/doc") && !is_refused("order") && !is_refused("/"));
    }

    #[test]
    fn a_debounced_job_is_postponed_for_ten_delays_at_most() {
        let sent = |unique: Unique| {
            let NewUnique { mode, time, .. } = unique.to_send("a".to_owned(), JobId::from_wire("call"));
            (mode, time)
        };
        assert_eq!(sent(Unique::by("a")), ("done", Duration::ZERO));
        assert_eq!(sent(Unique::by("a").within(SECOND)), ("period", SECOND));
        assert_eq!(sent(Unique::by("a").debounce(SECOND)), ("debounce", 10 * SECOND));
        assert_eq!(sent(Unique::by("a").debounce(SECOND).at_most(2 * SECOND)), ("debounce", 2 * SECOND));
        assert_eq!(sent(Unique::by("a").debounce(LONGEST)), ("debounce", LONGEST));
    }

    #[test]
    fn inputs_are_the_same_if_only_the_order_of_fields_differs() {
        let key = |json: &str| Unique::by_input().key_of(json.as_bytes(), false);
        assert_eq!(key(r#"{"b":[1,{"d":2,"c":"x"}],"a":null}"#), r#"{"a":null,"b":[1,{"c":"x","d":2}]}"#);
        assert_eq!(key(r#"{"a":1,"b":2}"#), key(r#"{ "b": 2, "a": 1 }"#));
        for (one, other) in [("[1,2]", "[2,1]"), ("18446744073709551617", "18446744073709551618"), ("1", "1.0")] {
            assert_ne!(key(one), key(other));
        }
        let deep = "[".repeat(5_000) + &"]".repeat(5_000);
        assert_eq!(key(&deep).len(), 23);
    }

    #[test]
    fn a_long_key_is_stored_as_a_hash() {
        let longest = "x".repeat(KEY_BYTES);
        assert_eq!(stored_key(&longest), longest);
        let (one, other) = (stored_key(&"x".repeat(129)), stored_key(&"x".repeat(130)));
        assert!(one.len() == 23 && one.starts_with('~') && one != other, "{one} {other}");
    }
}
