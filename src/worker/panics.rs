//! Where a handler panicked. The panic payload does not contain the place; only the panic hook gets it.

use std::any::Any;
use std::cell::RefCell;
use std::panic::{self, AssertUnwindSafe, PanicHookInfo};
use std::sync::Once;

thread_local! {
    /// Text and place of the last panic of this thread.
    static LAST: RefCell<Option<(String, String)>> = const { RefCell::new(None) };
}

/// Installs a panic hook before the existing one, once per process. If the program later sets a hook that does not call
/// this one, only the places are lost.
pub(super) fn watch() {
    static WATCHED: Once = Once::new();
    if std::thread::panicking() {
        // A thread that panics cannot change the hook. The next worker does it.
        return;
    }
    WATCHED.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info: &PanicHookInfo<'_>| {
            if let (Some(text), Some(place)) = (text_of(info.payload()), info.location()) {
                // `try_with`, since the thread may be ending: a panic here would abort the process.
                let _ = LAST.try_with(|last| last.replace(Some((text.to_owned(), place.to_string()))));
            }
            before(info);
        }));
    });
}

/// The text of a panic.
fn text_of(payload: &(dyn Any + Send)) -> Option<&str> {
    payload.downcast_ref::<&str>().copied().or_else(|| payload.downcast_ref::<String>().map(String::as_str))
}

/// The place of the panic with this text, if it was the last one of this thread.
fn place_of(text: &str) -> Option<String> {
    let (last, place) = LAST.try_with(RefCell::take).ok()??;
    (last == text).then_some(place)
}

/// Runs user code that may panic.
pub(super) fn guarded<T>(code: impl FnOnce() -> T) -> Result<T, String> {
    std::panic::catch_unwind(AssertUnwindSafe(code)).map_err(message_of)
}

/// The stored message of a panic: its text and its place.
pub(super) fn message_of(panic: Box<dyn Any + Send>) -> String {
    let text = text_of(&*panic).unwrap_or("the handler panicked");
    let place = place_of(text).map(|place| format!(", at {place}")).unwrap_or_default();
    let text = text.chars().take(1000).chain(place.chars()).collect();
    // The panic payload may panic again when it is dropped. Then it is leaked.
    if let Err(again) = std::panic::catch_unwind(AssertUnwindSafe(|| drop(panic))) {
        std::mem::forget(again);
    }
    text
}
