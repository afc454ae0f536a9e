//! The form of an action: what it is about, what was confirmed, and where to return.

use std::time::{Duration, SystemTime};

use heartline::inspect::text::many;
use heartline::{BulkAction, JobSelection, JobState};
use serde::Deserialize;
use serde::de::value::MapDeserializer;

use crate::pages::dispatch::INPUT;
use crate::pages::job;
use crate::pages::jobs::Asked;
use crate::pages::lane::{self, LaneForm};
use crate::pages::schedule;
use crate::state::{Board, encoded};

/// The most bytes of a name, and of any other text.
const NAME: usize = 512;
const TEXT: usize = 4096;

/// The form of an action. Without an id it is about all jobs that match the filter.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Wanted {
    pub(crate) act: String,
    pub(crate) id: String,
    pub(crate) worker: String,
    pub(crate) workflow: String,
    pub(crate) schedule: String,
    /// The key of jobs.
    pub(crate) key: String,
    /// The input of a new job.
    pub(crate) payload: String,
    /// The id of a new job, chosen when its form was shown: a form that is sent twice dispatches one job.
    pub(crate) new_id: String,
    pub(crate) reason: String,
    pub(crate) confirmed: String,
    /// When the job of the confirmation was dispatched, in ms since 1970.
    pub(crate) dispatched: String,
    /// When confirmation was asked, in ms since 1970. Jobs that match only later are left alone.
    pub(crate) as_of: String,
    /// Not empty if the action is about selected jobs only, also if none is selected.
    pub(crate) selected: String,
    /// The jobs that the person selected in a list.
    #[serde(skip)]
    pub(crate) picked: Vec<String>,
    #[serde(flatten)]
    pub(crate) lane: LaneForm,
    #[serde(flatten)]
    pub(crate) jobs: Asked,
}

/// The most jobs that a person can select: as many as a page lists.
const PICKED: usize = 200;

impl Wanted {
    /// The form with these fields. Each selected job is a field `pick`.
    pub(crate) fn of(fields: Vec<(String, String)>) -> Result<Wanted, String> {
        let (picks, fields): (Vec<_>, Vec<_>) = fields.into_iter().partition(|(name, _)| name == "pick");
        let fields = MapDeserializer::<_, serde::de::value::Error>::new(fields.into_iter());
        let mut wanted = Wanted::deserialize(fields).map_err(|e| e.to_string())?;
        wanted.picked = picks.into_iter().map(|(_, id)| id).collect();
        Ok(wanted)
    }

    /// A field that is too long, if any.
    pub(crate) fn too_long(&self) -> Option<&'static str> {
        let jobs = &self.jobs;
        if self.picked.len() > PICKED || self.picked.iter().any(|id| id.len() > NAME) {
            return Some("the selection");
        }
        let names = [
            ("the task", &jobs.task),
            ("the id", &self.id),
            ("the new id", &self.new_id),
            ("the worker", &self.worker),
            ("the action", &self.act),
            ("the workflow", &self.workflow),
            ("the schedule", &self.schedule),
            ("the key", &self.key),
        ];
        if self.payload.len() > INPUT {
            return Some("the input");
        }
        let texts = [
            ("the reason", &self.reason),
            ("the typed name", &self.confirmed),
            ("the code", &jobs.code),
            ("the text", &jobs.text),
        ];
        let texts = texts.into_iter().chain([("the state", &jobs.state), ("the age", &jobs.older)]);
        let texts = texts.chain(self.lane.fields());
        let fields = names.into_iter().map(|field| (field, NAME)).chain(texts.map(|field| (field, TEXT)));
        fields.filter(|((_, value), most)| value.len() > *most).map(|((name, _), _)| name).next()
    }

    /// Whether the action is about a worker.
    pub(crate) fn is_of_worker(&self) -> bool {
        matches!(self.act.as_str(), "recover_worker" | "quiet_worker" | "resume_worker")
    }

    /// Whether the action cancels jobs or an instance, for which there may be a reason.
    pub(crate) fn is_cancel(&self) -> bool {
        matches!(self.act.as_str(), "cancel" | "flow_cancel")
    }

    /// Whether the action is about an instance of a workflow.
    pub(crate) fn is_of_flow(&self) -> bool {
        self.act.starts_with("flow_")
    }

    /// Whether the action is about a schedule.
    pub(crate) fn is_of_schedule(&self) -> bool {
        self.act.starts_with("schedule_")
    }

    /// Whether the action is about a key.
    pub(crate) fn is_of_lane(&self) -> bool {
        self.act.starts_with("lane_")
    }

    /// What the action changes, for people.
    pub(crate) fn target(&self) -> String {
        let whole = match self.act.as_str() {
            _ if self.is_of_worker() => &self.worker,
            _ if self.is_of_flow() => &self.workflow,
            _ => &self.jobs.task,
        };
        if !self.picked.is_empty() {
            let what = if self.is_of_flow() { "instance" } else { "job" };
            return format!("{} of {whole}", many(self.picked.len() as u64, what));
        }
        let part = match self.act.as_str() {
            _ if self.is_of_schedule() => &self.schedule,
            _ if self.is_of_lane() => &self.key,
            _ => &self.id,
        };
        if part.is_empty() { whole.to_owned() } else { format!("{part} of {whole}") }
    }

    /// The name of the action in [`BoardOptions::allow`](crate::BoardOptions::allow).
    pub(crate) fn offer(&self) -> &str {
        match self.act.as_str() {
            "preview" => "audit",
            "dispatch_copy" => "dispatch",
            "flow_retry_failed" => "flow_retry",
            act => act,
        }
    }

    /// The page to return to.
    pub(crate) fn back(&self, board: &Board) -> String {
        let task = encoded(&self.jobs.task);
        match self.act.as_str() {
            "pause" | "resume" | "sweep" => board.url(&format!("/task?task={task}")),
            "dispatch" if self.id.is_empty() => board.url(&format!("/task?task={task}")),
            "audit" | "preview" | "repair" => board.url(&format!("/audit?task={task}")),
            "flow_retry_failed" => board.url(&format!("/flow?workflow={}&state=failed", encoded(&self.workflow))),
            _ if self.is_of_flow() => {
                board.url(&format!("/instance?workflow={}&id={}", encoded(&self.workflow), encoded(&self.id)))
            }
            _ if self.is_of_schedule() => schedule::url(board, &self.jobs.task, &self.schedule),
            _ if self.is_of_lane() => lane::url(board, &self.jobs.task, &self.key),
            _ if self.is_of_worker() => board.url(&format!("/worker?worker={}", encoded(&self.worker))),
            _ if self.id.is_empty() => self.jobs.url(board),
            _ => job::url(board, &self.jobs.task, &self.id),
        }
    }

    /// The fields of the confirmation form.
    pub(crate) fn fields(&self, as_of: SystemTime, dispatched: Option<SystemTime>) -> Vec<(&'static str, String)> {
        let Wanted { act, id, worker, workflow, schedule, key, payload, new_id, reason, jobs, .. } = self.clone();
        let Asked { task, state, code, text, older, .. } = jobs;
        let picks = self.picked.iter().map(|id| ("pick", id.clone()));
        let fields = vec![
            ("act", act),
            ("id", id),
            ("worker", worker),
            ("workflow", workflow),
            ("schedule", schedule),
            ("key", key),
            ("payload", payload),
            ("new_id", new_id),
            ("reason", reason),
            ("as_of", in_form(as_of)),
            ("dispatched", dispatched.map(in_form).unwrap_or_default()),
            ("task", task),
            ("state", state),
            ("code", code),
            ("text", text),
            ("older", older),
        ];
        fields.into_iter().chain(picks).collect()
    }

    /// One job, those that the person selected, or those that match the filter.
    pub(crate) fn selection(&self) -> Result<JobSelection, String> {
        match (&self.id, &self.picked) {
            (id, _) if !id.is_empty() => Ok(id.as_str().into()),
            (_, picked) if !picked.is_empty() => Ok(picked.clone().into()),
            _ if !self.selected.is_empty() => Err("Select at least one job. Nothing was done.".to_owned()),
            _ => Ok(self.jobs.filter()?.into()),
        }
    }

    /// When confirmation was asked.
    pub(crate) fn asked_at(&self) -> Option<SystemTime> {
        time_of(&self.as_of)
    }

    /// Whether it was confirmed for another audit than this one, whose findings the person has not seen.
    pub(crate) fn is_of_another(&self, audited: SystemTime) -> bool {
        self.asked_at().is_some() && self.as_of != in_form(audited)
    }

    /// Limits an act to jobs that matched when confirmation was asked, and one job to the state and dispatch that the person saw.
    pub(crate) fn bound(&self, mut act: BulkAction) -> BulkAction {
        if let Some(at) = self.asked_at() {
            act = act.before(at);
        }
        if let Some(state) = self.seen_state() {
            act = act.in_state(state);
        }
        if let Some(at) = time_of(&self.dispatched) {
            act = act.dispatched_at(at);
        }
        act
    }

    /// The state in which the person saw the job, or the selected jobs.
    pub(crate) fn seen_state(&self) -> Option<JobState> {
        let is_of_ids = !self.id.is_empty() || !self.picked.is_empty();
        self.jobs.state.parse().ok().filter(|_| is_of_ids)
    }
}

/// A time in a form field, in ms since 1970.
pub(crate) fn in_form(at: SystemTime) -> String {
    at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_millis().to_string()
}

/// Parses a time of a form field.
fn time_of(text: &str) -> Option<SystemTime> {
    let ms = text.parse().ok().filter(|ms| *ms > 0)?;
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(ms))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn any_form_is_read_or_refused() {
        let name = "act|id|new_id|worker|workflow|schedule|key|reason|confirmed|dispatched|as_of|selected|pick|task|state|older|limit|weight|[a-z]{1,4}";
        let value = "[0-9]{0,22}|[0-9]{1,20}[a-z]{1,3}|(flow|lane|schedule)_[a-z]{0,5}|failed|waiting|\\PC{0,20}";
        let fields = prop::collection::vec((name, value), 0..12);
        proptest!(|(fields in fields)| {
            let picks = fields.iter().filter(|(name, _)| name == "pick").count();
            let Ok(wanted) = Wanted::of(fields) else { return Ok(()) };
            prop_assert_eq!(wanted.picked.len(), picks);
            let _ = (wanted.too_long(), wanted.target(), wanted.offer(), wanted.selection(), wanted.seen_state());
            if let Some(at) = wanted.asked_at() {
                prop_assert_eq!(in_form(at), wanted.as_of.trim_start_matches('0'), "a time is written as it was read");
            }
        });
    }
}
