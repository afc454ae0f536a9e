//! Questions to a private server.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;

/// How long one question to a starting server may take.
pub(super) const PROBE_TIMEOUT: Duration = Duration::from_secs(2);

pub(super) enum Probe {
    NotYet,
    Ours,
    Foreign,
}

/// Asks the server on the port for its directory: another server may have taken the port just before ours.
pub(super) fn probe(port: u16, dir: &Path) -> Probe {
    // A server that is loading its data answers CONFIG but not PING.
    let Ok(reply) = ask(port, "PING\r\nCONFIG GET dir\r\n") else {
        return Probe::NotYet;
    };
    if reply.is_empty() || reply.starts_with("-LOADING") {
        Probe::NotYet
    // A server that requires a password has started. No other server here uses one.
    } else if reply.contains(&*dir.to_string_lossy()) || reply.starts_with("-NOAUTH") {
        Probe::Ours
    } else {
        Probe::Foreign
    }
}

/// Sends inline commands and returns all replies, including that of the final QUIT.
pub(super) fn ask(port: u16, commands: &str) -> io::Result<String> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let mut stream = TcpStream::connect_timeout(&address, PROBE_TIMEOUT)?;
    stream.set_read_timeout(Some(PROBE_TIMEOUT))?;
    stream.set_write_timeout(Some(PROBE_TIMEOUT))?;
    stream.write_all(commands.as_bytes())?;
    stream.write_all(b"QUIT\r\n")?;
    let mut reply = Vec::new();
    stream.take(64 * 1024).read_to_end(&mut reply)?;
    Ok(String::from_utf8_lossy(&reply).into_owned())
}
