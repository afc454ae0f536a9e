//! Several calls at once.

use futures_util::future::{self, BoxFuture, FutureExt, JoinAll, TryJoinAll};

/// Makes all calls at once, and waits for every answer. The calls are boxed, so that this is compiled once for all
/// calls with the same kind of answer.
pub(crate) fn join_all<'a, T, C>(calls: impl IntoIterator<Item = C>) -> JoinAll<BoxFuture<'a, T>>
where
    C: Future<Output = T> + Send + 'a,
{
    let calls: Vec<_> = calls.into_iter().map(FutureExt::boxed).collect();
    future::join_all(calls)
}

/// [`join_all`], until the first error.
pub(crate) fn try_join_all<'a, T, E, C>(calls: impl IntoIterator<Item = C>) -> TryJoinAll<BoxFuture<'a, Result<T, E>>>
where
    C: Future<Output = Result<T, E>> + Send + 'a,
{
    let calls: Vec<_> = calls.into_iter().map(FutureExt::boxed).collect();
    future::try_join_all(calls)
}
