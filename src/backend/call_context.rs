//! Which nodes of a cluster a call waits for, so that an error can name the one that does not answer.

use std::fmt;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::task::coop::{Unconstrained, unconstrained};
use tokio::time::Sleep;

use crate::error::{Error, Result};
use crate::mutex::Mutex;

/// The nodes from which a call expects an answer, or expected one and got none.
type Asked = Arc<Mutex<Vec<String>>>;

tokio::task_local! {
    static ASKED: Asked;
}

/// Makes a call whose answer must come within `time`. If it is late, the error names the node that the call waited for
/// last.
pub(crate) async fn within<T>(time: Duration, late: fn() -> Error, call: impl Future<Output = Result<T>>) -> Result<T> {
    let asked = Asked::default();
    let (mut call, mut end) = (pin!(call), pin!(unconstrained(tokio::time::sleep(time))));
    let mut answer = None;
    poll_fn(|cx| {
        poll_within(&asked, end.as_mut(), cx, &mut |cx| call.as_mut().poll(cx).map(|made| answer = Some(made)))
    })
    .await;
    answer.unwrap_or_else(|| Err(late().by_node(asked.lock().pop())))
}

/// Returns when the call is made, or when its time is over. This part of [`within`] is compiled once for all calls.
fn poll_within(
    asked: &Asked,
    end: Pin<&mut Unconstrained<Sleep>>,
    cx: &mut Context<'_>,
    call: &mut dyn FnMut(&mut Context<'_>) -> Poll<()>,
) -> Poll<()> {
    match ASKED.sync_scope(Arc::clone(asked), || call(cx)) {
        Poll::Ready(()) => Poll::Ready(()),
        Poll::Pending => end.poll(cx),
    }
}

/// Makes a call that has its own time-out, and that may return [`timed_out`].
pub(crate) async fn noted<T>(call: impl Future<Output = T>) -> T {
    ASKED.scope(Asked::default(), call).await
}

/// The error for a late answer. It names the node that the surrounding call waited for last.
pub(crate) fn timed_out() -> Error {
    let last = |asked: &Asked| asked.lock().last().cloned();
    Error::timed_out().by_node(ASKED.try_with(last).ok().flatten())
}

/// Marks that a call waits for a node. If the call is dropped, the mark stays: that node did not answer.
pub(super) struct Awaited {
    asked: Option<Asked>,
    node: String,
}

impl Awaited {
    pub(super) fn on(node: impl fmt::Display) -> Awaited {
        let asked = ASKED.try_with(Arc::clone).ok();
        let node = if asked.is_some() { node.to_string() } else { String::new() };
        if let Some(asked) = &asked {
            asked.lock().push(node.clone());
        }
        Awaited { asked, node }
    }

    /// The node has answered.
    pub(super) fn over(self) {
        let Some(asked) = &self.asked else { return };
        let mut nodes = asked.lock();
        if let Some(at) = nodes.iter().position(|node| *node == self.node) {
            nodes.remove(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_error_names_the_node_that_the_call_still_waits_for() {
        let call = |node: &'static str, time: u64| async move {
            let answered = Awaited::on("b:2");
            answered.over();
            let waiting = Awaited::on(node);
            tokio::time::sleep(Duration::from_millis(time)).await;
            waiting.over();
            Ok(())
        };
        let hangs = within(Duration::from_millis(50), Error::late, call("a:1", 1000));
        let given_up = tokio::time::timeout(
            Duration::from_millis(1),
            within(Duration::from_secs(9), Error::late, call("c:3", 500)),
        );
        let well = within(Duration::from_millis(50), Error::late, call("d:4", 10));
        let (hangs, given_up, well) = tokio::join!(hangs, given_up, well);
        assert!(hangs.unwrap_err().chain().to_string().contains("a:1: no answer in time"));
        assert!(given_up.is_err() && well.is_ok());
        let none = within(Duration::from_millis(5), Error::late, async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            Ok(())
        });
        let text = none.await.unwrap_err().chain().to_string();
        assert!(text.ends_with("no answer in time") && !text.contains("a:1"), "{text}");
    }
}
