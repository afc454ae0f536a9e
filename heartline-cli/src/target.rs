//! The Redis of a command: its URL, its certificates, and the prefix of the keys.

use std::path::PathBuf;

use heartline::inspect::text::shown;
use heartline::{App, AppBuilder, Error};

use crate::args::Global;
use crate::failure::Failure;

const DEFAULT_URL: &str = "redis://127.0.0.1:6379";
const DEFAULT_PREFIX: &str = "heartline";

/// A server and a key prefix.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) url: String,
    pub(crate) prefix: String,
    tls: Tls,
    /// Where the URL comes from, for error messages.
    source: String,
}

/// Certificates as PEM: the server's CA, and the client's certificate and key.
#[derive(Debug, Default)]
struct Tls {
    ca: Option<Vec<u8>>,
    client: Option<(Vec<u8>, Vec<u8>)>,
}

impl Target {
    /// Reads the options, then the environment; else the default.
    ///
    /// # Errors
    /// Wrong use: the URL has no scheme, or a certificate cannot be read, or has no key.
    pub(crate) fn of(global: &Global) -> Result<Target, Failure> {
        let (url, source) = match global.server() {
            Some((url, source)) => (url, format!("that of {source}")),
            None => (DEFAULT_URL.to_owned(), "the default; --redis names another".to_owned()),
        };
        if !url.contains(":/") {
            return Err(Failure::wrong(format!(
                "the address must be a Redis URL: add redis:// in front (the address is {source})"
            )));
        }
        let tls = Tls::of(global, &url)?;
        let prefix = global.prefix.clone().unwrap_or_else(|| DEFAULT_PREFIX.to_owned());
        Ok(Target { url, prefix, tls, source })
    }

    /// A server without a password and without TLS.
    pub(crate) fn at(url: String, prefix: &str) -> Target {
        Target { url, prefix: prefix.to_owned(), tls: Tls::default(), source: "that of the demo".to_owned() }
    }

    /// A builder of an App on this server.
    pub(crate) fn app(&self) -> AppBuilder {
        // A server whose eviction policy can delete jobs must be inspectable, too.
        let mut app = App::builder().redis(&self.url).prefix(&self.prefix).accept_eviction();
        if let Some(ca) = &self.tls.ca {
            app = app.tls_ca(ca.clone());
        }
        if let Some((cert, key)) = &self.tls.client {
            app = app.tls_client(cert.clone(), key.clone());
        }
        app
    }

    /// Connects. With `lasts` the App connects at its first call, and reconnects if the connection is lost.
    pub(crate) async fn connect(&self, global: &Global, lasts: bool) -> Result<App, Failure> {
        if global.shows_password() {
            say!("warning: other users of this machine can read the password in --redis; set HEARTLINE_URL instead");
        }
        let app = self.app();
        let built = if lasts { app.lazy() } else { app }.build().await;
        built.map_err(|e| {
            let is_of_address =
                matches!(&e, Error::Config(faults) if faults.iter().any(|fault| fault.field == "redis"));
            match Failure::from(e) {
                Failure::Failed(what) => Failure::Failed(format!("{what} (the address is {})", self.source)),
                Failure::Unreachable(what) => Failure::Unreachable(format!("{what} (the address is {})", self.source)),
                Failure::Wrong(what) if is_of_address => {
                    Failure::Wrong(format!("{what} (the address is {})", self.source))
                }
                other => other,
            }
        })
    }

    /// The server and the prefix to show, without a password.
    pub(crate) fn shown(&self) -> String {
        format!("{} under the prefix {}", without_password(&self.url), self.prefix)
    }
}

impl Tls {
    /// Each file comes from its option, else its variable. The variables apply only to URLs with TLS.
    fn of(global: &Global, url: &str) -> Result<Tls, Failure> {
        let is_over_tls = url.starts_with("rediss") || url.starts_with("valkeys");
        let read = |option: &Option<PathBuf>, variable: &str| {
            let set = || std::env::var_os(variable).filter(|path| is_over_tls && !path.is_empty()).map(PathBuf::from);
            let read = option.clone().or_else(set).map(|file| {
                std::fs::read(&file).map_err(|e| Failure::wrong(format!("{} cannot be read: {e}", file.display())))
            });
            read.transpose()
        };
        let ca = read(&global.tls_ca, "HEARTLINE_TLS_CA")?;
        let cert = read(&global.tls_cert, "HEARTLINE_TLS_CERT")?;
        let key = read(&global.tls_key, "HEARTLINE_TLS_KEY")?;
        match (cert, key) {
            (Some(cert), Some(key)) => Ok(Tls { ca, client: Some((cert, key)) }),
            (None, None) => Ok(Tls { ca, client: None }),
            _ => Err(Failure::wrong("a certificate needs its key: set both --tls-cert and --tls-key")),
        }
    }
}

/// A URL without user, password and query.
fn without_password(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return "an address of another kind".to_owned() };
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    // Odd characters may be part of a password.
    let is_odd = authority.contains(['?', '#']) || !authority.contains('@');
    if is_odd && rest.contains('@') {
        return format!("{scheme}://(not shown)");
    }
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let of = |part: &str| part.split(['?', '#']).next().unwrap_or_default().trim_end_matches('/').to_owned();
    format!("{scheme}://{}", shown(&format!("{}{}", of(host), of(path))))
}

#[cfg(test)]
mod tests {
    use super::without_password;

    #[test]
    fn an_address_is_shown_without_its_password() {
        let urls =
            ["redis://a:b@c@host:1/2?password=x", "redis://host/", "rediss://:s3cret@host:1"].map(without_password);
        assert_eq!(urls, ["redis://host:1/2", "redis://host", "rediss://host:1"]);
        let urls = ["redis://:pw@host:1/?x=a@b", "redis://host:1#a@b", "redis://:p?w@host", "unix:///run/redis.sock"];
        let urls = urls.map(without_password);
        assert_eq!(urls, ["redis://host:1", "redis://(not shown)", "redis://(not shown)", "unix:///run/redis.sock"]);
        let url = without_password("redis-sentinel://:pw@a:1/2?sentinelServiceName=main&sentinelPassword=x");
        assert_eq!(url, "redis-sentinel://a:1/2");
    }
}
