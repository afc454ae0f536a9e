//! Code of the App around each run of a handler.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use super::context::Context;
use super::handler::{Handler, RunError};
use crate::error::job_error::JobError;
use crate::escape::{Escaped, cut};

/// The most bytes of a header in the span of a run.
const LOGGED_HEADER: usize = 128;

/// A layer with its types erased.
pub(crate) type Layer = Arc<dyn Fn(Context, Next) -> LayerFuture + Send + Sync>;

type LayerFuture = Pin<Box<dyn Future<Output = Result<RunValue, RunFailure>> + Send>>;

/// What a layer runs: the next layer, or the handler. See [`AppBuilder::layer`](crate::AppBuilder::layer).
#[must_use = "the handler runs only if this does"]
pub struct Next {
    handler: Handler,
    payload: Vec<u8>,
}

impl Next {
    /// Runs the next layer, or the handler, with this context.
    ///
    /// # Errors
    /// Why the run did not return a value.
    pub async fn run(self, context: Context) -> Result<RunValue, RunFailure> {
        (self.handler)(context, self.payload).await.map(RunValue).map_err(RunFailure)
    }
}

impl fmt::Debug for Next {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Next").finish_non_exhaustive()
    }
}

/// The value that a handler returned, for the layers around it.
pub struct RunValue(Option<Vec<u8>>);

impl fmt::Debug for RunValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // It may contain anything.
        f.debug_struct("RunValue").finish_non_exhaustive()
    }
}

/// Why a run did not return a value, for the layers around it. A layer that fails by itself returns a [`JobError`] with `?`.
#[derive(Debug)]
pub struct RunFailure(RunError);

impl RunFailure {
    /// The error that the handler, or a layer, returned. `None` if the input or the value cannot be read or written as JSON.
    #[must_use]
    pub fn job_error(&self) -> Option<&JobError> {
        match &self.0 {
            RunError::Handler(e) => Some(e),
            RunError::Undecodable(..) | RunError::Codec(_) => None,
        }
    }
}

impl From<JobError> for RunFailure {
    fn from(e: JobError) -> RunFailure {
        RunFailure(RunError::Handler(e))
    }
}

impl fmt::Display for RunFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            RunError::Handler(e) => fmt::Display::fmt(e, f),
            RunError::Undecodable(_, what) | RunError::Codec(what) => f.write_str(what),
        }
    }
}

/// Erases the types of a layer.
pub(crate) fn folded_layer<F, Fut>(layer: F) -> Layer
where
    F: Fn(Context, Next) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<RunValue, RunFailure>> + Send + 'static,
{
    Arc::new(move |context, next| Box::pin(layer(context, next)))
}

/// A layer that puts these headers of the job into the span of the run, see [`AppBuilder::log_headers`](crate::AppBuilder::log_headers).
pub(crate) fn log_headers(names: Vec<String>) -> Layer {
    folded_layer(move |ctx: Context, next: Next| {
        let headers = names.iter().filter_map(|name| Some((name, ctx.header(name)?)));
        let shown: Vec<String> =
            headers.map(|(name, value)| format!("{name}={}", Escaped(cut(value, LOGGED_HEADER)))).collect();
        async move {
            if !shown.is_empty() {
                tracing::Span::current().record("headers", shown.join(" "));
            }
            next.run(ctx).await
        }
    })
}

/// The handler inside of the layers. The first layer is the outermost.
pub(crate) fn layered(handler: Handler, layers: &[Layer]) -> Handler {
    layers.iter().rev().cloned().fold(handler, |inner, layer| {
        Arc::new(move |context, payload| {
            let run = layer(context, Next { handler: Arc::clone(&inner), payload });
            Box::pin(async move { run.await.map(|value| value.0).map_err(|failure| failure.0) })
        })
    })
}
