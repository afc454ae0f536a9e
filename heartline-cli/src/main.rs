//! `heartline`: the command line of Heartline.
//!
//! [`args`] reads a command, [`session`] connects, one of [`commands`] asks the library's `Inspector` and passes the answer to [`output`].
//! Nothing here reads Redis by itself.

/// Prints a line on standard error. Unlike `eprintln!`, it does not panic if that is closed.
macro_rules! say {
    ($($text:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr(), $($text)*);
    }};
}

mod args;
mod ask;
mod commands;
#[cfg(unix)]
mod demo;
mod failure;
mod openmetrics;
mod output;
mod serve;
mod session;
mod target;
mod token;

use std::process::ExitCode;

use clap::Parser;

use self::args::{Args, Command};
use self::failure::Failure;
use self::output::Output;

fn main() -> ExitCode {
    let args = Args::parse();
    // First, before this process has threads or signal handlers.
    #[cfg(unix)]
    if let Command::Exec { parent, sign, argv } = &args.command {
        return commands::work::become_program(*parent, sign, argv);
    }
    let out = Output::of(&args.global);
    let tells_health = out.is_json && matches!(args.command, Command::Status | Command::Health);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let ended = match runtime {
        Ok(runtime) => runtime.block_on(commands::run(args)),
        Err(e) => Err(Failure::from(e)),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            // The JSON must also say that the check itself failed.
            if let (Failure::Failed(what) | Failure::WrongType(what) | Failure::Unreachable(what), true) =
                (&failure, tells_health)
            {
                let _ = out.json(&serde_json::json!({ "healthy": false, "error": what }));
            }
            out.error(&failure);
            failure.code()
        }
    }
}
