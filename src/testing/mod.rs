//! Support for tests, demos and benches: a private server, and the scripts by name.

mod scripts;
mod server;
mod witness;

pub use scripts::{ScriptSource, replace_script, scripts};
pub use server::{RedisServer, RedisServerBuilder, SERVER_VARIABLE, StartError, redis_url};
pub use witness::Witness;
