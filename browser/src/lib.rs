//! Tests of the web board in a real browser. They are in `tests/board`.
