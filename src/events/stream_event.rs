//! What a reader reads: events of jobs, and of workflows.

use super::decode::{self, Decoded};
use super::event::Event;
use super::workflow_event::{self, WorkflowEvent};
use crate::backend::keys::workflow_of;
use crate::backend::streams::Entry;
use crate::codec::Codecs;
use crate::stall::action::StalledEvent;

pub(super) enum StreamEvent {
    Job(Event),
    Workflow(WorkflowEvent),
}

impl StreamEvent {
    pub(super) fn job(self) -> Option<Event> {
        match self {
            StreamEvent::Job(event) => Some(event),
            StreamEvent::Workflow(_) => None,
        }
    }

    pub(super) fn stall(self) -> Option<StalledEvent> {
        match self {
            StreamEvent::Job(Event::Stalled(stalled)) => Some(stalled),
            _ => None,
        }
    }

    pub(super) fn workflow(self) -> Option<WorkflowEvent> {
        match self {
            StreamEvent::Workflow(event) => Some(event),
            StreamEvent::Job(_) => None,
        }
    }
}

/// Decodes an entry of the stream of a task or of a workflow.
///
/// # Errors
/// The name of a field whose words do not match `docs/wire-format.md`.
pub(super) fn read(name: &str, entry: &Entry, codecs: &Codecs) -> Result<Decoded<StreamEvent>, String> {
    let (events, unknown_fields) = match workflow_of(name) {
        Some(workflow) => {
            let Decoded { events, unknown_fields } = workflow_event::decode(workflow, entry)?;
            (events.into_iter().map(StreamEvent::Workflow).collect(), unknown_fields)
        }
        None => {
            let Decoded { events, unknown_fields } = decode::decode(name, entry, codecs)?;
            (events.into_iter().map(StreamEvent::Job).collect(), unknown_fields)
        }
    };
    Ok(Decoded { events, unknown_fields })
}
