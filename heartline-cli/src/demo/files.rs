//! Which files the demo counts, and the direct count that the jobs are compared with.

use std::env;
use std::fs;
use std::hash::{DefaultHasher, Hasher};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::failure::Failure;

/// Larger files are left out, so that the demo ends in less than a minute.
const LARGEST: u64 = 64 * 1024;

/// The fewest files that show anything.
const FEWEST: usize = 50;

/// What was counted in one file, or in many.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Counted {
    pub(super) files: u64,
    pub(super) bytes: u64,
    pub(super) lines: u64,
    pub(super) words: u64,
    /// The sum of the hash of each file.
    pub(super) hashes: u64,
}

impl Counted {
    pub(super) fn add(&mut self, other: &Counted) {
        self.files += other.files;
        self.bytes += other.bytes;
        self.lines += other.lines;
        self.words += other.words;
        self.hashes = self.hashes.wrapping_add(other.hashes);
    }
}

/// The directory and its files in order: the directory named, else the crate sources, this repository, or `/usr/share`.
pub(super) fn find(named: Option<PathBuf>, most: usize) -> Result<(PathBuf, Vec<String>), Failure> {
    let home = env::var_os("CARGO_HOME").map(PathBuf::from).or_else(|| Some(env::home_dir()?.join(".cargo")));
    let crates = home.map(|home| home.join("registry").join("src"));
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).parent().map(Path::to_owned);
    let candidates = match named {
        Some(named) => vec![named],
        None => crates.into_iter().chain(repository).chain([PathBuf::from("/usr/share")]).collect(),
    };
    for directory in &candidates {
        let mut paths = Vec::new();
        walk(directory, most, &mut paths);
        if paths.len() >= FEWEST.min(most) {
            return Ok((directory.clone(), paths));
        }
    }
    let looked: Vec<String> = candidates.iter().map(|directory| directory.display().to_string()).collect();
    let what = format!("fewer than {FEWEST} files of at most 64 KiB in {}; name a directory", looked.join(" or "));
    Err(Failure::wrong(what))
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
            let path = entry.path();
            found.extend(path.to_str().filter(|_| fs::File::open(&path).is_ok()).map(str::to_owned));
        }
    }
}

pub(super) fn count(content: &[u8]) -> Counted {
    // The keys of this hasher are the same in every process.
    let mut hasher = DefaultHasher::new();
    hasher.write(content);
    Counted {
        files: 1,
        bytes: content.len() as u64,
        lines: content.iter().filter(|&&byte| byte == b'\n').count() as u64,
        words: content.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()).count() as u64,
        hashes: hasher.finish(),
    }
}

/// The direct count, in this process.
pub(super) fn count_all(paths: &[String]) -> Result<Counted, Failure> {
    let mut total = Counted::default();
    for path in paths {
        total.add(&count(&fs::read(path)?));
    }
    Ok(total)
}
