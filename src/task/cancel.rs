//! A cancel that is requested when it is awaited.

use std::fmt;
use std::future::{Future, ready};
use std::pin::Pin;
use std::task::{Context, Poll};

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
    /// `None` once it is under way.
    call: Option<Box<dyn FnOnce(Durability) -> CancelCall<'a, R> + Send + 'a>>,
    under_way: Option<CancelCall<'a, R>>,
}

type CancelCall<'a, R> = Pin<Box<dyn Future<Output = Result<R, Error>> + Send + 'a>>;

impl<'a, R: Send + 'a> Cancel<'a, R> {
    /// A cancel by this call, which gets the durability: the given one, unless the caller sets another.
    pub(crate) fn new<F>(durability: Durability, call: impl FnOnce(Durability) -> F + Send + 'a) -> Cancel<'a, R>
    where
        F: Future<Output = Result<R, Error>> + Send + 'a,
    {
        let call = move |durability| -> CancelCall<'a, R> { Box::pin(call(durability)) };
        Cancel { durability, call: Some(Box::new(call)), under_way: None }
    }

    /// When the cancel counts as recorded. Defaults to the durability of the task, or of the workflow.
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }
}

impl<'a, R: Send + 'a> Future for Cancel<'a, R> {
    type Output = Result<R, Error>;

    /// # Panics
    /// If it is polled again after it has returned its value.
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(call) = self.call.take() {
            let mut faults = Faults::default();
            faults.durability(self.durability);
            self.under_way = Some(match faults.finish() {
                Ok(()) => call(self.durability),
                Err(e) => Box::pin(ready(Err(e.into()))),
            });
        }
        match &mut self.under_way {
            Some(under_way) => under_way.as_mut().poll(cx),
            // Cannot happen: it is set by the first poll.
            None => Poll::Pending,
        }
    }
}

impl<R> fmt::Debug for Cancel<'_, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cancel").field("durability", &self.durability).finish_non_exhaustive()
    }
}
