//! The slots of a worker over all its tasks.

use std::sync::Arc;

use tokio::sync::Semaphore;

/// How many jobs a worker may run over all its tasks; each that has begun has a slot.
pub(crate) struct Slots {
    most: Option<usize>,
    free: Option<Arc<Semaphore>>,
}

impl Slots {
    pub(crate) fn new(most: Option<usize>) -> Slots {
        Slots { most, free: most.map(|jobs| Arc::new(Semaphore::new(jobs))) }
    }

    /// How many there are; `None` where there is no bound.
    pub(crate) fn most(&self) -> Option<usize> {
        self.most
    }

    /// Whether there is a free one.
    pub(crate) fn any_free(&self) -> bool {
        self.free.as_ref().is_none_or(|free| free.available_permits() > 0)
    }

    /// Takes up to `wanted` slots.
    pub(crate) fn take(&self, wanted: usize) -> usize {
        let Some(free) = &self.free else { return wanted };
        let mut count = wanted.min(free.available_permits());
        while count > 0 {
            match free.try_acquire_many(count as u32) {
                Ok(permits) => {
                    permits.forget();
                    return count;
                }
                Err(_) => count = count.saturating_sub(1).min(free.available_permits()),
            }
        }
        0
    }

    /// Waits for a slot, behind the tasks that came before; `None` where there is no bound.
    pub(crate) fn queue(&self) -> Option<impl Future<Output = ()> + Send + use<>> {
        let free = Arc::clone(self.free.as_ref()?);
        Some(async move {
            if let Ok(permit) = free.acquire_owned().await {
                permit.forget();
            }
        })
    }

    /// Gives slots back, to the tasks that wait for one first.
    pub(crate) fn give_back(&self, count: usize) {
        if let Some(free) = &self.free {
            free.add_permits(count);
        }
    }
}
