//! What a private server takes from its host: a program, a directory and a port.

use std::ffi::OsStr;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{self, Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;
use std::{env, fs, io, process};

use super::start_error::StartError;

/// The environment variable that names the server program.
pub const SERVER_VARIABLE: &str = "HEARTLINE_REDIS_SERVER";

/// How many ports are tried.
pub(super) const PORTS_TRIED: u32 = 20;

/// Systems assign higher ports to outgoing connections, so a stopped server does not lose its port. This is also true of the cluster bus,
/// 10,000 above.
const PORTS: std::ops::Range<u16> = 12_000..22_000;

/// From one port to the next. It has no common factor with the number of ports, so each has its turn, and it is large, so that the ports
/// of several processes mix.
const STRIDE: u64 = 3571;

pub(super) fn find_binary(chosen: Option<&Path>) -> Result<PathBuf, StartError> {
    let named = env::var_os(SERVER_VARIABLE).filter(|value| !value.is_empty()).map(PathBuf::from);
    match chosen.map(Path::to_path_buf).or(named) {
        Some(path) => {
            on_path(path.as_os_str()).ok_or_else(|| StartError::NotFound { wanted: path.display().to_string() })
        }
        None => ["redis-server", "valkey-server"]
            .into_iter()
            .find_map(|name| on_path(OsStr::new(name)))
            .ok_or_else(|| StartError::NotFound { wanted: "redis-server".to_owned() }),
    }
}

/// Finds a program like a shell does, but as an absolute path, since the server runs in another directory. Symbolic links are kept: a
/// linked program may act by its name, as Debian's does.
fn on_path(name: &OsStr) -> Option<PathBuf> {
    let path = Path::new(name);
    if path.components().count() > 1 {
        return path.is_file().then(|| path::absolute(path).ok()).flatten();
    }
    let found = env::split_paths(&env::var_os("PATH")?).map(|dir| dir.join(path)).find(|path| path.is_file())?;
    path::absolute(found).ok()
}

/// A number that is unique in this process and differs between processes.
fn unique() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let nanos = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().subsec_nanos();
    let count = NEXT.fetch_add(1, Ordering::Relaxed);
    // An odd multiplier keeps different inputs different, and spreads adjacent ones.
    (u64::from(process::id()) << 32 ^ u64::from(nanos) ^ count << 48).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

pub(super) fn make_dir() -> io::Result<PathBuf> {
    // Redis reports its directory without symbolic links, and `probe` compares the two.
    let base = fs::canonicalize(env::temp_dir())?;
    loop {
        let dir = base.join(format!("heartline-redis-{:016x}", unique()));
        match fs::create_dir(&dir) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            result => return result.map(|()| dir),
        }
    }
}

/// A port that no program uses. Ports are tried in turn, so that a stopped server keeps its own: clients that still know it must not reach
/// a server that starts later.
pub(super) fn free_port() -> Option<u16> {
    static FIRST: OnceLock<u64> = OnceLock::new();
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let first = FIRST.get_or_init(unique) >> 40;
    (0..PORTS_TRIED).find_map(|_| {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let offset = (first + number * STRIDE) % u64::from(PORTS.end - PORTS.start);
        let port = PORTS.start + u16::try_from(offset).ok()?;
        TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok().then_some(port)
    })
}
