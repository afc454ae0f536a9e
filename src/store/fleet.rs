//! What the workers of a task speak.

use futures_util::future::try_join_all;

use super::engine::Store;
use super::patience::RESPONSE_TIMEOUT;
use super::streams::server_time_ms;
use crate::error::Error;
use crate::shown::Shown;

/// The most workers that are looked at, and named.
const MOST: usize = 5000;
const NAMED: usize = 5;

/// How many of them are asked about at the same time.
const TOGETHER: usize = 50;

impl Store {
    /// Which workers of the task live that speak an older version of the wire format than this.
    pub(crate) async fn older_workers(&self, task: &str, needed: u32) -> Result<Vec<String>, Error> {
        let now = self.shared(RESPONSE_TIMEOUT, async |conn| server_time_ms(conn).await).await?;
        let listed = async |conn: &mut _| self.workers(conn, now, [MOST, 0, 0]).await;
        let listed = self.shared(RESPONSE_TIMEOUT, listed).await?;
        let mut older = Vec::new();
        for some in listed.chunks(TOGETHER) {
            // Together: a round trip may take long.
            let looks = some.iter().map(|(worker, _)| {
                self.shared(RESPONSE_TIMEOUT, async move |conn: &mut _| self.presence(conn, worker).await)
            });
            for ((worker, _), said) in some.iter().zip(try_join_all(looks).await?) {
                let works = said.get("tasks").is_some_and(|names| names.split_whitespace().any(|name| name == task));
                // A version that does not say what it speaks speaks the first.
                let speaks = said.get("wire").and_then(|wire| wire.parse().ok()).unwrap_or(1);
                if works && !said.contains_key("stoppedAt") && !said.contains_key("deadAt") && speaks < needed {
                    older.push(worker.clone());
                }
            }
        }
        Ok(older)
    }
}

/// What is in the way of something that these workers do not speak.
pub(crate) fn named(older: &[String], needed: u32) -> String {
    let named: Vec<String> = older.iter().take(NAMED).map(|worker| Shown(worker).to_string()).collect();
    let (count, named) = (older.len(), named.join(", "));
    format!(
        "workers that speak version {needed} of the wire format, and {count} of its workers speak an older one ({named}): deploy \
         this version of the crate everywhere first"
    )
}
