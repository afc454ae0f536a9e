//! For the tests and benches of this repository only: the scripts by name, the witness rule, the calls about tasks and schedules, and a
//! way to break the keeper. It may change with any version.

mod fuzz;
#[cfg(feature = "schedules")]
mod schedules;
mod scripts;
mod task_calls;
mod witness;

pub use crate::keeper::hooks::break_keeper;
pub use crate::timings::Timings;
#[cfg(feature = "schedules")]
pub use schedules::{SimulatedFired, SimulatedLook, SimulatedSchedules, SimulatedWriter};
pub use scripts::{ScriptSource, scripts};
pub use task_calls::TaskCalls;
pub use witness::SimulatedWitness;
