//! What must be true of the server before anything is written to it.

use redis::InfoDict;

use super::connection::Connection;
use super::fault::classify;
use crate::error::Error;

/// The oldest server that has every command the scripts use (SMISMEMBER, ZMSCORE, XTRIM with MINID).
const OLDEST: (u32, u32) = (6, 2);

/// Whether a server whose eviction policy could throw jobs away is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EvictionCheck {
    Refuse,
    Accept,
}

/// Checks the server's version and its eviction policy.
///
/// # Errors
/// `Unsupported` with what is wrong; `Connect` when the server cannot be asked.
pub(crate) async fn check(conn: &mut impl Connection, eviction: EvictionCheck) -> Result<(), Error> {
    let ask = |section: &'static str| {
        let mut cmd = redis::cmd("INFO");
        cmd.arg(section);
        cmd
    };
    let server: InfoDict = ask("server").query_async(conn).await.map_err(|e| classify("info", e))?;
    let version = server.get::<String>("redis_version").unwrap_or_default();
    let mut parts = version.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
    let found = (parts.next().unwrap_or(0), parts.next().unwrap_or(0));
    if found < OLDEST {
        return Err(Error::Unsupported {
            what: format!("the server is Redis {version}; Heartline needs Redis 6.2 or later, or Valkey"),
        });
    }
    let memory: InfoDict = ask("memory").query_async(conn).await.map_err(|e| classify("info", e))?;
    let policy = memory.get::<String>("maxmemory_policy").unwrap_or_default();
    if policy.starts_with("allkeys-") && eviction == EvictionCheck::Refuse {
        return Err(Error::Unsupported {
            what: format!(
                "the server's maxmemory-policy is {policy}, which throws whole columns of jobs away; set it to \
                 noeviction, or accept the risk with AppBuilder::accept_eviction"
            ),
        });
    }
    Ok(())
}
