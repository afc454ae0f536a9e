//! The URL of a server for a program that can use any.

use std::{env, io};

use super::server::RedisServer;
use super::start_error::{StartError, io_error};

/// The URL in `REDIS_URL` if that is set and not empty, else the URL of a new private server.
///
/// Keep the server for as long as the URL is used: dropping it ends the server. The private server starts on a thread that may block.
///
/// # Errors
/// As [`RedisServer::start`], if `REDIS_URL` is not set.
///
/// # Cancel safety
/// Cancel safe: if the server starts after the future was dropped, it is ended at once.
///
/// ```no_run
/// # async fn example() -> Result<(), heartline::private_server::StartError> {
/// let (_server, url) = heartline::private_server::redis_url().await?;
/// println!("using {url}");
/// # Ok(())
/// # }
/// ```
pub async fn redis_url() -> Result<(Option<RedisServer>, String), StartError> {
    if let Some(url) = env::var("REDIS_URL").ok().filter(|url| !url.is_empty()) {
        return Ok((None, url));
    }
    let server = tokio::task::spawn_blocking(RedisServer::start)
        .await
        .map_err(|error| io_error("wait")(io::Error::other(error)))??;
    let url = server.url();
    Ok((Some(server), url))
}
