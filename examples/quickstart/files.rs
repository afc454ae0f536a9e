//! Which files are indexed, and the direct count that the jobs are checked against.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use sha2::{Digest, Sha256};

use crate::tasks::Counted;

/// Larger files are left out: the demo is to be over in less than a minute.
const LARGEST: u64 = 64 * 1024;

/// The fewest files that show anything.
const FEWEST: usize = 50;

/// The directory to index, and its files in order: the one named; else the crate sources; else this repository.
pub fn find(named: Option<PathBuf>, most: usize) -> Result<(PathBuf, Vec<String>)> {
    let explicit = named.is_some();
    let home = env::var_os("CARGO_HOME").map(PathBuf::from).or_else(|| Some(env::home_dir()?.join(".cargo")));
    let crates = home.map(|home| home.join("registry").join("src"));
    for directory in
        named.into_iter().chain(crates).chain(Path::new(env!("CARGO_MANIFEST_DIR")).parent().map(Path::to_owned))
    {
        let mut paths = Vec::new();
        walk(&directory, most, &mut paths);
        if paths.len() >= FEWEST.min(most) {
            if paths.len() < 2000.min(most) {
                println!("there are fewer than 2,000 files; taking what is there");
            }
            return Ok((directory, paths));
        }
        if explicit {
            bail!("{} has fewer than {FEWEST} readable files of at most 64 KiB", directory.display());
        }
    }
    bail!("no directory with enough files was found; name one")
}

fn walk(directory: &Path, most: usize, found: &mut Vec<String>) {
    let Ok(entries) = fs::read_dir(directory) else { return };
    let mut entries: Vec<_> = entries.flatten().collect();
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        if found.len() >= most {
            return;
        }
        let Ok(kind) = entry.file_type() else { continue };
        let name = entry.file_name();
        if name == "target" || name.as_encoded_bytes().starts_with(b".") {
            continue;
        }
        if kind.is_dir() {
            walk(&entry.path(), most, found);
        } else if kind.is_file() && entry.metadata().is_ok_and(|meta| meta.len() <= LARGEST) {
            found.extend(entry.path().to_str().map(str::to_owned));
        }
    }
}

/// What one file counts for.
pub fn count(content: &[u8]) -> Counted {
    let digest = Sha256::digest(content);
    Counted {
        files: 1,
        bytes: content.len() as u64,
        lines: content.iter().filter(|&&byte| byte == b'\n').count() as u64,
        words: content.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()).count() as u64,
        digests: digest.iter().take(8).fold(0, |sum, &byte| sum << 8 | u64::from(byte)),
    }
}

/// The direct, single-process count.
pub fn count_all(paths: &[String]) -> Result<Counted> {
    let mut total = Counted::default();
    for path in paths {
        total.add(&count(&fs::read(path)?));
    }
    Ok(total)
}
