//! Support for tests, demos and benches: a private server, and the scripts by name.

mod app;
mod context;
mod drain;
mod scripts;
mod server;
mod witness;

pub use crate::keeper::hooks::break_keeper;
pub use app::{TestApp, TestAppError};
pub use context::TestContext;
pub use drain::Drained;
pub use scripts::{ScriptSource, replace_script, scripts};
pub use server::{RedisServer, RedisServerBuilder, SERVER_VARIABLE, StartError, redis_url};
pub use witness::SimulatedWitness;
