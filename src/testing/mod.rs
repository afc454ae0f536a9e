//! Support for tests, demos and benches: a private server, and the scripts by name.

pub(crate) mod hooks;
mod scripts;
mod server;
mod witness;

pub use hooks::break_keeper;
pub use scripts::{ScriptSource, replace_script, scripts};
pub use server::{RedisServer, RedisServerBuilder, SERVER_VARIABLE, StartError, redis_url};
pub use witness::Witness;
