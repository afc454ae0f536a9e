//! The slots of a worker across its tasks, and those of a task across its partitions.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How many jobs of a worker or of a partitioned task may run. Each job that has begun has a slot.
pub(crate) struct Permits {
    most: Option<usize>,
    free: Option<Arc<Semaphore>>,
}

impl Permits {
    pub(crate) fn new(most: Option<usize>) -> Permits {
        Permits { most, free: most.map(|jobs| Arc::new(Semaphore::new(jobs))) }
    }

    /// How many there are; `None` if unbounded.
    pub(crate) fn most(&self) -> Option<usize> {
        self.most
    }

    pub(crate) fn any_free(&self) -> bool {
        self.free.as_ref().is_none_or(|free| free.available_permits() > 0)
    }

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

    /// Returns slots. Tasks in the queue get them first.
    pub(crate) fn give_back(&self, count: usize) {
        if let Some(free) = &self.free {
            free.add_permits(count);
        }
    }
}

/// The slots that a job needs, one of each: those of its worker, and those that the partitions of its task share.
#[derive(Clone, Copy)]
pub(crate) struct TaskPermits<'a> {
    pub(crate) worker: &'a Permits,
    pub(crate) task: Option<&'a Permits>,
}

impl TaskPermits<'_> {
    pub(crate) fn are_unbounded(self) -> bool {
        self.worker.most.is_none() && self.task.is_none()
    }

    pub(crate) fn any_free(self) -> bool {
        self.worker.any_free() && self.task.is_none_or(Permits::any_free)
    }

    pub(crate) fn take(self, wanted: usize) -> usize {
        let of_task = self.task.map_or(wanted, |task| task.take(wanted));
        let taken = self.worker.take(of_task);
        if let Some(task) = self.task {
            task.give_back(of_task - taken);
        }
        taken
    }

    /// Waits for a slot, in the order of arrival; `None` if unbounded.
    pub(crate) fn queue(self) -> Option<impl Future<Output = ()> + Send + use<>> {
        if self.are_unbounded() {
            return None;
        }
        let of_task = self.task.and_then(|task| task.free.clone());
        let of_worker = self.worker.free.clone();
        Some(async move {
            // If this is dropped before it has both permits, it returns the first.
            let mut permits = Vec::with_capacity(2);
            for free in of_task.into_iter().chain(of_worker) {
                permits.extend(free.acquire_owned().await);
            }
            permits.into_iter().for_each(OwnedSemaphorePermit::forget);
        })
    }

    /// Returns slots. Tasks in the queue get them first.
    pub(crate) fn give_back(self, count: usize) {
        self.worker.give_back(count);
        if let Some(task) = self.task {
            task.give_back(count);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_job_takes_slots_of_both_task_and_worker_or_none() {
        let (worker, task) = (Permits::new(Some(2)), Permits::new(Some(3)));
        let both = TaskPermits { worker: &worker, task: Some(&task) };
        assert_eq!((both.take(3), worker.take(1), task.take(2)), (2, 0, 1));
        task.give_back(1);
        let place = both.queue().unwrap();
        let mut place = Box::pin(place);
        assert!(futures_util::poll!(&mut place).is_pending(), "the worker has no free slot");
        assert_eq!(task.take(1), 0, "the wait reserves a slot of the task");
        drop(place);
        assert_eq!(task.take(1), 1);
        task.give_back(1);
        let mut place = Box::pin(both.queue().unwrap());
        assert!(futures_util::poll!(&mut place).is_pending());
        both.give_back(1);
        assert!(futures_util::poll!(&mut place).is_ready());
        assert_eq!((worker.take(1), task.take(2)), (0, 1));
        assert!(TaskPermits { worker: &Permits::new(None), task: None }.are_unbounded());
    }
}
