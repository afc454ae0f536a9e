//! The tokio runtime on which an App was built. Work that the callers of the App share runs on it.

use std::future::Future;

use futures_util::FutureExt;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio_util::task::AbortOnDropHandle;

use crate::error::{Error, Result};
use crate::mutex::Mutex;

/// The runtime of shared connections and tasks. If it has ended, the runtime of the next caller replaces it.
#[derive(Debug, Default)]
pub(crate) struct AppRuntime(Mutex<Option<Chosen>>);

#[derive(Debug)]
struct Chosen {
    handle: Handle,
    /// A task that ends when the runtime ends.
    probe: AbortOnDropHandle<()>,
}

impl AppRuntime {
    /// The runtime of the caller. If there is none, the first later caller that has one sets it.
    pub(crate) fn of_caller() -> AppRuntime {
        let runtime = AppRuntime::default();
        runtime.handle();
        runtime
    }

    /// `None` if there is no runtime, and the caller has none either.
    pub(crate) fn handle(&self) -> Option<Handle> {
        let mut chosen = self.0.lock();
        if chosen.as_ref().is_none_or(|chosen| chosen.probe.is_finished()) {
            *chosen = Handle::try_current().ok().map(|handle| {
                let probe = AbortOnDropHandle::new(handle.spawn(std::future::pending()));
                Chosen { handle, probe }
            });
        }
        chosen.as_ref().map(|chosen| chosen.handle.clone())
    }

    /// Runs the work in a detached task. `None` if there is no runtime.
    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) -> Option<JoinHandle<()>> {
        self.handle().map(|handle| handle.spawn(work.boxed()))
    }

    /// Runs the work in its own task, so that it proceeds even if the caller does not poll this future. Dropping the
    /// future ends the task.
    ///
    /// # Errors
    /// Those of the work; `Closed` if the runtime has ended.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        let handle = self.handle().ok_or(Error::Closed)?;
        match AbortOnDropHandle::new(handle.spawn(work.boxed())).await {
            Ok(done) => done,
            Err(e) if e.is_panic() => std::panic::resume_unwind(e.into_panic()),
            Err(_) => Err(Error::Closed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::runtime::Builder;

    #[test]
    fn the_runtime_of_the_next_caller_replaces_an_ended_one() {
        let runtime = || Builder::new_current_thread().enable_all().build().unwrap();
        let (first, second) = (runtime(), runtime());
        let chosen = AppRuntime::of_caller();
        assert!(chosen.handle().is_none() && chosen.spawn(async {}).is_none());
        let id = |runtime: &tokio::runtime::Runtime| {
            let _in_it = runtime.enter();
            chosen.handle().unwrap().id()
        };
        let (of_first, of_second) = (first.handle().id(), second.handle().id());
        assert_eq!((id(&first), id(&second)), (of_first, of_first));
        drop(first);
        assert!(chosen.handle().is_none());
        assert_eq!(id(&second), of_second);
        assert_eq!(second.block_on(chosen.run(async { Ok(7) })).unwrap(), 7);
    }
}
