//! Whether Redis answers, told once when it stops and once when it is back.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::clock::{self, Moment};

/// Of a worker: each of its parts has connections of its own, and the outage lasts until the last of them is answered.
#[derive(Debug, Default)]
pub(crate) struct Outage {
    /// Whether there is one, for those who are answered all the time.
    lasts: AtomicBool,
    since: Mutex<Option<Since>>,
}

#[derive(Debug)]
struct Since {
    began: Moment,
    /// The parts that got no answer, by name and task.
    parts: BTreeSet<(&'static str, usize)>,
}

impl Outage {
    /// A part got no answer. Whether the outage begins with it.
    pub(crate) fn failed(&self, part: &'static str, task: usize) -> bool {
        let mut since = self.since.lock().unwrap_or_else(PoisonError::into_inner);
        let begins = since.is_none();
        since.get_or_insert_with(|| Since { began: clock::now(), parts: BTreeSet::new() }).parts.insert((part, task));
        self.lasts.store(true, Ordering::SeqCst);
        begins
    }

    /// Whether there is one, as far as its parts were asked.
    pub(crate) fn lasts(&self) -> bool {
        self.lasts.load(Ordering::SeqCst)
    }

    /// A part was answered. How long the outage lasted that ends with it.
    pub(crate) fn answered(&self, part: &'static str, task: usize) -> Option<Duration> {
        if !self.lasts() {
            return None;
        }
        let mut since = self.since.lock().unwrap_or_else(PoisonError::into_inner);
        let outage = since.as_mut()?;
        outage.parts.remove(&(part, task));
        if !outage.parts.is_empty() {
            return None;
        }
        self.lasts.store(false, Ordering::SeqCst);
        since.take().map(|outage| clock::now().since(outage.began))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_begins_with_the_first_part_and_ends_with_the_last() {
        let outage = Outage::default();
        assert!(outage.answered("beat", 0).is_none());
        assert!(outage.failed("beat", 0));
        assert!(!outage.failed("beat", 0) && !outage.failed("settle", 0));
        assert!(outage.answered("beat", 0).is_none() && outage.answered("beat", 1).is_none());
        assert!(outage.answered("settle", 0).is_some());
        assert!(outage.answered("settle", 0).is_none() && outage.failed("settle", 0));
    }
}
