//! What is wrong, as data: tools decide by the kind and its facts, and print the text.
//!
//! `kinds.rs` lists the kinds, each with its text and its hint. `fleet.rs` reads the data, `find_*.rs` find what is wrong in it, and
//! `diagnose.rs` puts the findings together.

mod diagnose;
mod finding;
mod fleet;
mod kinds;
mod lost_holder;
mod task_facts;
mod texts;

mod find_crashes;
mod find_data;
mod find_failures;
mod find_holders;
mod find_jobs;
mod find_retries;
#[cfg(feature = "schedules")]
mod find_schedules;
mod find_servers;
mod find_tasks;
mod find_workers;
mod find_workflows;

pub use find_crashes::{CrashDiagnoses, RecentStalls};
pub use finding::{Caution, Diagnosis, Severity};
pub use fleet::{FleetChecks, FleetReport};
pub use kinds::DiagnosisKind;
pub use lost_holder::{LostHolder, LostSlots, Rescuer};
