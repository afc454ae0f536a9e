use std::env;

/// Set by `make check-all`: random histories, kills and races run in full.
const THOROUGH: &str = "HEARTLINE_THOROUGH";

/// How many rounds of the full number this run makes: all if it is thorough, else a fifth.
pub fn rounds(full: usize) -> usize {
    if is_thorough() { full } else { full.div_ceil(5) }
}

pub fn is_thorough() -> bool {
    env::var_os(THOROUGH).is_some()
}
