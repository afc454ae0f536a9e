//! The signals that stop a process.

/// Completes when the process receives Ctrl-C or, on Unix, SIGTERM, which service managers and Kubernetes send. On Linux it also
/// completes at SIGHUP, when the terminal is closed, unless SIGHUP is ignored, as under `nohup`. It listens from the call on, even
/// if it is not polled. After the call none of these signals ends the process by itself.
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

/// Signals that arrive from now on; none if the system cannot deliver them.
pub(super) struct Signals(Option<Streams>);

#[cfg(unix)]
type Streams = (tokio::signal::unix::Signal, tokio::signal::unix::Signal, Option<tokio::signal::unix::Signal>);

#[cfg(windows)]
type Streams = tokio::signal::windows::CtrlC;

impl Signals {
    #[cfg(unix)]
    pub(super) fn listen() -> Signals {
        use tokio::signal::unix::{SignalKind, signal};
        let stream = |kind| signal(kind).ok();
        let hangup = if hears_hangup() { stream(SignalKind::hangup()) } else { None };
        let streams = stream(SignalKind::interrupt()).zip(stream(SignalKind::terminate()));
        Signals(streams.map(|(interrupt, terminate)| (interrupt, terminate, hangup)))
    }

    #[cfg(windows)]
    pub(super) fn listen() -> Signals {
        Signals(tokio::signal::windows::ctrl_c().ok())
    }

    /// Waits for the next signal. Cancel safe.
    pub(super) async fn next(&mut self) {
        match &mut self.0 {
            #[cfg(unix)]
            Some((interrupted, terminated, hung_up)) => {
                let hung_up = async {
                    match hung_up {
                        Some(hung_up) => hung_up.recv().await,
                        None => std::future::pending().await,
                    }
                };
                tokio::select! {
                    _ = interrupted.recv() => {}
                    _ = terminated.recv() => {}
                    _ = hung_up => {}
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

/// Whether SIGHUP, signal 1, would end the process. If SIGHUP is ignored, the process should outlive its terminal: to listen would
/// undo that. If this is unknown, do not listen.
#[cfg(unix)]
fn hears_hangup() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 1 == 0)
}
