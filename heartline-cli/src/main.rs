//! `heartline`: the command line of Heartline.
//!
//! A command goes one way: [`args`] reads it, [`session`] connects, one of [`commands`] asks the library's `Inspector` and hands what it
//! found to [`output`]. Nothing here reads Redis by itself.

/// A line on standard error. Where nobody reads that any more it is lost, and nothing else happens.
macro_rules! say {
    ($($told:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr(), $($told)*);
    }};
}

mod args;
mod ask;
mod commands;
mod contexts;
#[cfg(unix)]
mod demo;
mod failure;
mod fleet;
mod output;
mod serve;
mod session;

use std::process::ExitCode;

use clap::Parser;

use self::args::Args;
use self::failure::Failure;

fn main() -> ExitCode {
    let args = Args::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let ended = match runtime {
        Ok(runtime) => runtime.block_on(commands::run(args)),
        Err(e) => Err(Failure::from(e)),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            failure.tell();
            failure.code()
        }
    }
}
