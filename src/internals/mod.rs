//! For the tests and benches of this repository only: the scripts by name, the witness rule, and a way to break the keeper. It may
//! change with any version.

mod scripts;
mod witness;

pub use crate::keeper::hooks::break_keeper;
pub use crate::timings::Timings;
pub use scripts::{ScriptSource, scripts};
pub use witness::SimulatedWitness;
