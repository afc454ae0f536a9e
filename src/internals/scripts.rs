//! The scripts as the server gets them, for tests and benches that call them directly.

use crate::backend::scripts;

/// One Lua script.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ScriptSource {
    /// The name of its file, without the extension.
    pub name: &'static str,
    /// The whole text, including shared fragments.
    pub source: &'static str,
    /// The suffix of each key, in the order of KEYS. The prefix is `<prefix>:{<task>}:`.
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
            keys: script.keys().iter().map(|key| key.suffix()).collect(),
        })
        .collect()
}
