//! The scripts as the server gets them, for tests and benches that call them by hand.

use crate::store::scripts;

/// One Lua script.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ScriptSource {
    /// The name, as its file has it.
    pub name: &'static str,
    /// The whole text, shared fragments included.
    pub source: &'static str,
    /// What each key ends with, in the order of KEYS; before it stands `<prefix>:{<task>}:`.
    pub keys: Vec<&'static str>,
}

/// Every script of this version.
#[must_use]
pub fn scripts() -> Vec<ScriptSource> {
    scripts::ALL
        .iter()
        .map(|script| ScriptSource {
            name: script.name,
            source: script.source(),
            keys: script.keys.iter().map(|key| key.suffix()).collect(),
        })
        .collect()
}

/// Puts another text in place of a script, for this process and before its first use: a bench that leaves parts of a
/// script out says what they cost. Nothing that runs for real has a reason to call this.
///
/// # Errors
/// The text, when no script has the name, or when it was used or replaced before.
#[doc(hidden)]
pub fn replace_script(name: &str, source: String) -> Result<(), String> {
    match scripts::ALL.iter().find(|script| script.name == name) {
        Some(script) => script.replace(source),
        None => Err(source),
    }
}
