//! A cancel that is requested when it is awaited.

use std::fmt;
use std::future::{IntoFuture, ready};

use futures_util::future::{BoxFuture, FutureExt};

use crate::config_error::Faults;
use crate::error::Error;
use crate::options::modes::Durability;

/// A cancel of a job or of a workflow instance. It is requested when this is awaited. `R` is its result.
///
/// Made by [`JobHandle::cancel`](crate::JobHandle::cancel) and
/// [`WorkflowHandle::cancel`](crate::WorkflowHandle::cancel), which list the errors.
///
/// ```no_run
/// # use std::time::Duration;
/// # use heartline::{Durability, JobHandle};
/// # async fn run(job: JobHandle<()>) -> heartline::Result<()> {
/// let copy = Durability::Replicated { replicas: 1, within: Duration::from_millis(500) };
/// job.cancel("the order was withdrawn").durability(copy).await?;
/// # Ok(())
/// # }
/// ```
///
/// # Cancel safety
/// If the future is dropped, the cancel may have been recorded or not. It is safe to repeat.
#[must_use = "a cancel is requested when this is awaited"]
pub struct Cancel<'a, R> {
    durability: Durability,
    call: Box<dyn FnOnce(Durability) -> BoxFuture<'a, Result<R, Error>> + Send + 'a>,
}

impl<'a, R: Send + 'a> Cancel<'a, R> {
    /// A cancel by this call, which gets the durability: the given one, unless the caller sets another.
    pub(crate) fn new<F>(durability: Durability, call: impl FnOnce(Durability) -> F + Send + 'a) -> Cancel<'a, R>
    where
        F: Future<Output = Result<R, Error>> + Send + 'a,
    {
        Cancel { durability, call: Box::new(move |durability| call(durability).boxed()) }
    }

    /// When the cancel counts as recorded. Defaults to the durability of the task, or of the workflow.
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }
}

impl<'a, R: Send + 'a> IntoFuture for Cancel<'a, R> {
    type Output = Result<R, Error>;
    type IntoFuture = BoxFuture<'a, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        let mut faults = Faults::default();
        faults.durability(self.durability);
        match faults.finish() {
            Ok(()) => (self.call)(self.durability),
            Err(e) => Box::pin(ready(Err(e.into()))),
        }
    }
}

impl<R> fmt::Debug for Cancel<'_, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cancel").field("durability", &self.durability).finish_non_exhaustive()
    }
}
