use super::proxy::Proxy;
use super::resp::find;
use std::sync::{Arc, Mutex, PoisonError};

/// Copies of the requests that pass a proxy and contain a needle, in the order in which they came.
#[derive(Clone)]
pub struct Tap(Arc<Mutex<Vec<Vec<u8>>>>);

impl Tap {
    /// Copies from now on, until the proxy ends.
    pub fn on(proxy: &Proxy, needle: impl Into<Vec<u8>>) -> Self {
        Tap::on_each(proxy, vec![needle.into()])
    }

    /// The same for requests that contain one of the needles.
    pub fn on_each(proxy: &Proxy, needles: Vec<Vec<u8>>) -> Self {
        let copies = Arc::<Mutex<Vec<Vec<u8>>>>::default();
        let to = Arc::clone(&copies);
        // A cut that no request ever matches: it sees them all.
        let never = proxy.cut_next_reply_matching(move |request| {
            if needles.iter().any(|needle| find(request, needle).is_some()) {
                to.lock().unwrap_or_else(PoisonError::into_inner).push(request.to_vec());
            }
            false
        });
        drop(never);
        Self(copies)
    }

    /// All copies so far.
    pub fn requests(&self) -> Vec<Vec<u8>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
