//! `lua/rights.lua`: finds out what our user of the server may not do.

use super::connection::Connection;
use super::keys::TaskKeys;
use super::scripts;
use crate::error::Error;

/// How many keys are told of beside a command.
const NAMED: usize = 3;

/// Makes sure that our user of the server may run every command of the scripts that move jobs, as far as the server can tell.
///
/// # Errors
/// `Unsupported` with what is missing.
pub(crate) async fn check_rights(conn: &mut impl Connection, keys: &TaskKeys) -> Result<(), Error> {
    let mut reply = scripts::RIGHTS.on(keys).call(conn).await?;
    let _: String = reply.next()?;
    let missing: Vec<String> = reply.rest()?;
    if missing.is_empty() {
        return Ok(());
    }
    let what = format!("the user of the server may not run {}; grant it, or jobs would be lost", named(&missing));
    Err(Error::Unsupported { what })
}

/// The commands, each with the keys on which it is missing: where it is all of them, one grant mends all.
fn named(missing: &[String]) -> String {
    let mut rights: Vec<(&str, Vec<&str>)> = Vec::new();
    for right in missing.chunks_exact(2) {
        match rights.iter_mut().find(|(command, _)| *command == right[0]) {
            Some((_, keys)) => keys.push(&right[1]),
            None => rights.push((&right[0], vec![&right[1]])),
        }
    }
    let told = rights.into_iter().map(|(command, keys)| {
        let more = keys.len().saturating_sub(NAMED);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        format!("{command} on {}{more}", keys[..keys.len().min(NAMED)].join(", "))
    });
    told.collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_of_a_whole_task_is_told_in_a_few_words() {
        let missing = ["LPUSH", "a", "HSET", "b", "HSET", "c", "HSET", "d", "HSET", "e"].map(str::to_owned);
        assert_eq!(named(&missing), "LPUSH on a; HSET on b, c, d and 1 more");
    }
}
