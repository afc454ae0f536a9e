//! What is wrong, as data: tools decide by the fields and print the text.
//!
//! The conditions are enums, each next to its text and its hint. `fleet.rs` reads what they are found in, `find_*.rs` find them, `diagnose.rs` puts them together.

mod crash;
mod data;
mod diagnose;
mod failure;
mod fleet;
mod jobs;
mod lost_holder;
mod queue;
mod server;
mod task_facts;
mod worker;
mod workflow;

mod find_crashes;
mod find_data;
mod find_failures;
mod find_holders;
mod find_jobs;
mod find_retries;
mod find_servers;
mod find_tasks;
mod find_workers;
mod find_workflows;
mod finding;

pub use crash::CrashCondition;
pub use data::DataCondition;
pub use failure::FailureCondition;
pub use find_crashes::{CrashDiagnoses, RecentStalls};
pub use finding::{Caution, Diagnosis, DiagnosisKind, Severity};
pub use fleet::{FleetChecks, FleetReport};
pub use jobs::JobCondition;
pub use lost_holder::{LostHolder, Rescue, Rescuer};
pub use queue::{LostSlots, QueueCondition};
pub use server::ServerCondition;
pub use worker::WorkerCondition;
pub use workflow::WorkflowCondition;

#[cfg(test)]
mod texts;
