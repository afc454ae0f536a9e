//! Completions for shells, and man pages.

use std::fs;
use std::io;
use std::path::Path;

use clap::CommandFactory;
use clap_complete::Shell;

use crate::args::Args;
use crate::failure::Failure;

pub(super) fn completions(shell: Shell) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Args::command(), "heartline", &mut script);
    io::Write::write_all(&mut io::stdout().lock(), &script)?;
    Ok(())
}

pub(super) fn man(directory: &Path) -> Result<(), Failure> {
    let of = |e: io::Error| Failure::Failed(format!("{}: {e}", directory.display()));
    fs::create_dir_all(directory).map_err(of)?;
    clap_mangen::generate_to(Args::command(), directory).map_err(of)
}
