//! The signals that stop a process.

/// Completes when the process receives Ctrl-C or, on Unix, SIGTERM, which service managers and Kubernetes send.
/// It listens from the call on, polled or not; from then on neither ends the process by itself any more.
///
/// # Panics
/// Outside of a tokio runtime with its I/O driver.
///
/// # Cancel safety
/// Cancel safe.
pub fn shutdown_signal() -> impl Future<Output = ()> + Send + use<> {
    let mut signals = Signals::listen();
    async move { signals.next().await }
}

/// The signals that come from now on; none where the system gives none.
pub(super) struct Signals(Option<Streams>);

#[cfg(unix)]
type Streams = [tokio::signal::unix::Signal; 2];

#[cfg(windows)]
type Streams = tokio::signal::windows::CtrlC;

impl Signals {
    #[cfg(unix)]
    pub(super) fn listen() -> Signals {
        use tokio::signal::unix::{SignalKind, signal};
        let stream = |kind| signal(kind).ok();
        let streams = stream(SignalKind::interrupt()).zip(stream(SignalKind::terminate()));
        Signals(streams.map(|(interrupt, terminate)| [interrupt, terminate]))
    }

    #[cfg(windows)]
    pub(super) fn listen() -> Signals {
        Signals(tokio::signal::windows::ctrl_c().ok())
    }

    /// Waits for the next one. Cancel safe.
    pub(super) async fn next(&mut self) {
        match &mut self.0 {
            #[cfg(unix)]
            Some([interrupted, terminated]) => {
                tokio::select! {
                    _ = interrupted.recv() => {}
                    _ = terminated.recv() => {}
                }
            }
            #[cfg(windows)]
            Some(streams) => {
                streams.recv().await;
            }
            None => std::future::pending().await,
        }
    }
}
