//! Where a handler panicked: what a panic carries does not say it, only the hook is told.

use std::any::Any;
use std::cell::RefCell;
use std::panic::{self, AssertUnwindSafe, PanicHookInfo};
use std::sync::Once;

thread_local! {
    /// The text and the place of the last panic of this thread.
    static LAST: RefCell<Option<(String, String)>> = const { RefCell::new(None) };
}

/// Puts a hook in front of the one that is there, once in a process. A hook that the program sets later, and that does not call
/// this one, takes the places away and nothing else.
pub(super) fn watch() {
    static WATCHED: Once = Once::new();
    if std::thread::panicking() {
        // The hook cannot be changed now; the next worker does it.
        return;
    }
    WATCHED.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info: &PanicHookInfo<'_>| {
            if let (Some(text), Some(place)) = (text_of(info.payload()), info.location()) {
                // Not where the thread ends: a panic in here would be the end of the process.
                let _ = LAST.try_with(|last| last.replace(Some((text.to_owned(), place.to_string()))));
            }
            before(info);
        }));
    });
}

/// What a panic says.
fn text_of(payload: &(dyn Any + Send)) -> Option<&str> {
    payload.downcast_ref::<&str>().copied().or_else(|| payload.downcast_ref::<String>().map(String::as_str))
}

/// Where the panic with this text happened, if that was the last one of this thread.
fn place_of(text: &str) -> Option<String> {
    let (last, place) = LAST.try_with(RefCell::take).ok()??;
    (last == text).then_some(place)
}

/// Runs code of the user's that may panic.
pub(super) fn guarded<T>(code: impl FnOnce() -> T) -> Result<T, String> {
    std::panic::catch_unwind(AssertUnwindSafe(code)).map_err(message_of)
}

/// What is stored of a panic: what it says, and where it was.
pub(super) fn message_of(panic: Box<dyn Any + Send>) -> String {
    let text = text_of(&*panic).unwrap_or("the handler panicked");
    let place = place_of(text).map(|place| format!(", at {place}")).unwrap_or_default();
    let text = text.chars().take(1000).chain(place.chars()).collect();
    // What a panic carries may panic again when it is dropped; then it is leaked.
    if let Err(again) = std::panic::catch_unwind(AssertUnwindSafe(|| drop(panic))) {
        std::mem::forget(again);
    }
    text
}
