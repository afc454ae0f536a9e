//! A cache for reads that cost the server some milliseconds, such as those of a whole stream. Concurrent requests share one read, since open
//! pages ask every second.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use heartline::Error;
use tokio::time::Instant;

/// How long most results are used.
const FRESH: Duration = Duration::from_secs(10);

/// The most results kept.
const REMEMBERED: usize = 200;

/// Results of one kind, by task and job.
pub(crate) struct Scans<T> {
    all: Mutex<BTreeMap<Key, Scan<T>>>,
    fresh: Duration,
}

type Key = (String, String);

/// When a read ended, and its result.
type Look<T> = (Instant, Result<Arc<T>, Arc<Error>>);

struct Scan<T> {
    turn: Arc<tokio::sync::Mutex<()>>,
    last: Option<Look<T>>,
    asked: Instant,
}

impl<T> Default for Scans<T> {
    fn default() -> Self {
        Scans::lasting(FRESH)
    }
}

impl<T> Scans<T> {
    /// A cache whose results are used for `fresh`.
    pub(crate) fn lasting(fresh: Duration) -> Scans<T> {
        Scans { all: Mutex::default(), fresh }
    }

    /// Drops the results of a task that was changed; without a name, those of all tasks.
    pub(crate) fn forget(&self, task: &str) {
        self.all().retain(|(of, _), _| of != task && !task.is_empty());
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<Key, Scan<T>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The last result, if it is fresh and `fits`; else a new one, which concurrent callers share.
    pub(crate) async fn of(
        &self,
        key: (&str, &str),
        fits: impl Fn(&T) -> bool,
        look: impl Future<Output = Result<T, Error>>,
    ) -> Result<Arc<T>, Arc<Error>> {
        let (key, came) = ((key.0.to_owned(), key.1.to_owned()), Instant::now());
        let (turn, _held) = loop {
            let (turn, last) = self.turn(&key, came);
            let seen = last.and_then(|(at, seen)| seen.ok().filter(|seen| at.elapsed() < self.fresh && fits(seen)));
            if let Some(seen) = seen {
                return Ok(seen);
            }
            let held = Arc::clone(&turn).lock_owned().await;
            let all = self.all();
            // If it was forgotten meanwhile, share the read of those who came later.
            let Some(scan) = all.get(&key).filter(|scan| Arc::ptr_eq(&scan.turn, &turn)) else { continue };
            // Take the result of another caller, even an error: while a server is unreachable, the waiting callers must not each try again.
            let since = scan.last.as_ref().filter(|(at, _)| *at > came);
            if let Some((_, seen)) = since.filter(|(_, seen)| seen.as_ref().map_or(true, |seen| fits(seen))) {
                return seen.clone();
            }
            break (turn, held);
        };
        let seen = look.await.map(Arc::new).map_err(Arc::new);
        // A read that began before `forget` is not kept.
        if let Some(scan) = self.all().get_mut(&key).filter(|scan| Arc::ptr_eq(&scan.turn, &turn)) {
            scan.last = Some((Instant::now(), seen.clone()));
        }
        seen
    }

    fn turn(&self, key: &Key, now: Instant) -> (Arc<tokio::sync::Mutex<()>>, Option<Look<T>>) {
        let mut all = self.all();
        if all.len() >= REMEMBERED && !all.contains_key(key) {
            let oldest = all.iter().min_by_key(|(_, scan)| scan.asked).map(|(key, _)| key.clone());
            oldest.and_then(|oldest| all.remove(&oldest));
        }
        let scan = all.entry(key.clone()).or_insert_with(|| Scan { turn: Arc::default(), last: None, asked: now });
        scan.asked = now;
        (Arc::clone(&scan.turn), scan.last.clone())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test]
    async fn concurrent_callers_share_a_read_if_it_fits() {
        let (scans, looks) = (Scans::default(), AtomicUsize::new(0));
        let look = || async {
            tokio::task::yield_now().await;
            Ok(looks.fetch_add(1, Ordering::SeqCst))
        };
        let any = |_: &usize| true;
        let (one, two) = tokio::join!(scans.of(("a", ""), any, look()), scans.of(("a", ""), any, look()));
        assert_eq!((*one.unwrap(), *two.unwrap()), (0, 0));
        assert_eq!(*scans.of(("a", ""), any, look()).await.unwrap(), 0);
        assert_eq!(*scans.of(("b", ""), any, look()).await.unwrap(), 1);
        assert_eq!(*scans.of(("a", ""), |seen| *seen > 0, look()).await.unwrap(), 2);
        scans.forget("a");
        assert_eq!(*scans.of(("b", ""), any, look()).await.unwrap(), 1);
        assert_eq!(*scans.of(("a", ""), any, look()).await.unwrap(), 3);
        scans.forget("");
        assert_eq!(*scans.of(("b", ""), any, look()).await.unwrap(), 4);
    }

    #[tokio::test]
    async fn a_read_that_began_before_an_action_is_not_kept() {
        let scans = Scans::default();
        let any = |_: &u8| true;
        let look = async {
            scans.forget("a");
            Ok(1)
        };
        assert_eq!(*scans.of(("a", ""), any, look).await.unwrap(), 1);
        assert_eq!(*scans.of(("a", ""), any, async { Ok(2) }).await.unwrap(), 2);
        let look = async {
            scans.forget("a");
            // A caller after the action does not wait for the earlier read.
            Ok(*scans.of(("a", ""), any, async { Ok(4) }).await.unwrap() - 1)
        };
        scans.forget("a");
        assert_eq!(*scans.of(("a", ""), any, look).await.unwrap(), 3);
        assert_eq!(*scans.of(("a", ""), any, async { Ok(5) }).await.unwrap(), 4);
    }

    #[tokio::test(start_paused = true)]
    async fn old_and_failed_reads_are_repeated_and_few_are_kept() {
        let scans = Scans::default();
        let any = |_: &u8| true;
        assert!(scans.of(("a", ""), any, async { Err(Error::Closed) }).await.is_err());
        assert_eq!(*scans.of(("a", ""), any, async { Ok(1) }).await.unwrap(), 1);
        tokio::time::advance(FRESH).await;
        assert_eq!(*scans.of(("a", ""), any, async { Ok(2) }).await.unwrap(), 2);
        for at in 0..2 * REMEMBERED {
            tokio::time::advance(Duration::from_millis(1)).await;
            let _ = scans.of(("a", &at.to_string()), any, async { Ok(0) }).await;
        }
        assert_eq!(scans.all().len(), REMEMBERED);
    }
}
