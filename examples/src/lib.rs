//! The examples of Heartline, one program each: `cargo run -p heartline-examples --example hello`.
