//! How connections to any server are made.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::{FutureExt, Stream, StreamExt, stream};
use redis::io::tcp::TcpSettings;
use redis::{
    AsyncConnectionConfig, BasicAuth, Client, ConnectionAddr, ConnectionInfo, ErrorKind, ProtocolVersion,
    RedisConnectionInfo, RedisError, RedisResult, StreamingCredentialsProvider,
};
use tokio::sync::watch;
use tokio_stream::wrappers::WatchStream;

use super::classify::{Unanswered, io_error, says_full};
use super::timeouts::CONNECT_TIMEOUT;
use super::url::bad;
use crate::backoff::Pauses;
#[cfg(feature = "tls")]
use crate::config_error::{ConfigError, ConfigErrors, Faults};
use crate::credentials::Credentials;
#[cfg(feature = "tls")]
use crate::error::Error;
use crate::error::Result;
use crate::mutex::Mutex;

/// A connection to one server, which many callers may share.
pub(crate) use redis::aio::MultiplexedConnection as Plain;

/// How this client authenticates, in addition to the URL.
#[derive(Clone, Default)]
pub(crate) struct ConnectOptions {
    /// Replace user and password of the URL.
    pub(crate) credentials: Option<watch::Receiver<Credentials>>,
    /// The CA for TLS, as PEM. Replaces the roots that the crate includes.
    #[cfg(feature = "tls")]
    pub(crate) ca: Option<Vec<u8>>,
    /// Certificate and key, as PEM.
    #[cfg(feature = "tls")]
    pub(crate) client: Option<(Vec<u8>, Vec<u8>)>,
    /// Servers that refused our password last time, by their addresses.
    refusals: Arc<Mutex<HashMap<String, Refusal>>>,
}

/// A server's refusal of our password.
struct Refusal {
    e: RedisError,
    shown: Option<Credentials>,
    at: Instant,
    pauses: Pauses,
    /// How long not to connect to it again.
    pause: Duration,
}

impl ConnectOptions {
    /// The settings of every connection to a data server.
    pub(super) fn config(&self) -> AsyncConnectionConfig {
        let config = AsyncConnectionConfig::new();
        match &self.credentials {
            Some(credentials) => config.set_credentials_provider(Rotating(credentials.clone())),
            None => config,
        }
    }

    /// The current user and password, if they can change.
    pub(super) fn current(&self) -> Option<Credentials> {
        self.credentials.as_ref().map(|credentials| credentials.borrow().clone())
    }

    /// The error of the server at this address, if it refused our current password a moment ago.
    fn refused(&self, place: &str) -> Option<RedisError> {
        let (shown, refusals) = (self.current(), self.refusals.lock());
        let refusal = refusals.get(place).filter(|refusal| refusal.shown == shown)?;
        (refusal.at.elapsed() < refusal.pause).then(|| refusal.e.clone())
    }

    /// Records whether the server accepted this password.
    fn said(&self, place: String, shown: Option<Credentials>, opened: &Result<Plain, RedisError>) {
        let mut refusals = self.refusals.lock();
        match opened {
            Err(e) if e.kind() == ErrorKind::AuthenticationFailed => {
                let before = refusals.remove(&place).filter(|before| before.shown == shown);
                let mut pauses = before.map_or_else(Pauses::until_answered, |before| before.pauses);
                let pause = pauses.next();
                refusals.insert(place, Refusal { e: e.clone(), shown, at: Instant::now(), pauses, pause });
            }
            _ => drop(refusals.remove(&place)),
        }
    }
}

/// Authenticates each new connection, and all open ones again when the password changes.
struct Rotating(watch::Receiver<Credentials>);

impl StreamingCredentialsProvider for Rotating {
    fn subscribe(&self) -> Pin<Box<dyn Stream<Item = RedisResult<BasicAuth>> + Send>> {
        let shown = |Credentials { username, password }| Ok(BasicAuth::new(username, password));
        // After the sender is dropped, the last password stays in use.
        WatchStream::new(self.0.clone()).map(shown).chain(stream::pending()).boxed()
    }
}

/// How connections to one server are made.
#[derive(Clone)]
pub(super) struct Clients {
    pub(super) client: Client,
    /// The same for connections that receive push messages, which need RESP3.
    pub(super) listener: Client,
}

pub(super) struct Connector {
    /// The settings from the URL, except for the address.
    pub(super) info: ConnectionInfo,
    pub(super) access: ConnectOptions,
}

impl Connector {
    /// How to reach a server whose address another server gave.
    pub(super) fn to_node(&self, host: &str, port: u16) -> Result<Clients> {
        let host = host.to_owned();
        self.to(match self.info.addr() {
            ConnectionAddr::TcpTls { insecure, tls_params, .. } => {
                ConnectionAddr::TcpTls { host, port, insecure: *insecure, tls_params: tls_params.clone() }
            }
            _ => ConnectionAddr::Tcp(host, port),
        })
    }

    pub(super) fn to(&self, addr: ConnectionAddr) -> Result<Clients> {
        let settings = self.info.redis_settings().clone().set_skip_set_lib_name();
        let info = self.info.clone().set_addr(addr).set_tcp_settings(TcpSettings::default().set_nodelay(true));
        let listener = settings.clone().set_protocol(ProtocolVersion::RESP3);
        let client = |settings| client_of(info.clone().set_redis_settings(settings), &self.access);
        Ok(Clients { client: client(settings)?, listener: client(listener)? })
    }
}

/// Connects. After an authentication failure, waits before it connects to the server again, since each retry would fail
/// the same way.
pub(super) async fn open(
    client: &Client,
    access: &ConnectOptions,
    config: &AsyncConnectionConfig,
) -> Result<Plain, RedisError> {
    let place = client.get_connection_info().addr().to_string();
    if let Some(refusal) = access.refused(&place) {
        return Err(refusal);
    }
    let shown = access.current();
    let opened = open_authenticated(client, access, config).await;
    access.said(place, shown, &opened);
    opened
}

/// Connects, and distinguishes a wrong password from a server that accepts no more clients.
async fn open_authenticated(
    client: &Client,
    access: &ConnectOptions,
    config: &AsyncConnectionConfig,
) -> Result<Plain, RedisError> {
    let connect = || client.get_multiplexed_async_connection_with_config(config).boxed();
    match connect().await {
        Err(e) if e.kind() == ErrorKind::AuthenticationFailed => match refusal(client, access).await {
            // The server has checked the password.
            Some(refusal) if !says_full(&refusal) && !refusal.is_io_error() => Err(e),
            Some(refusal) => Err(refusal),
            None => connect().await.map_err(|e| match e.kind() {
                // The server accepted the password just now.
                ErrorKind::AuthenticationFailed => io::Error::from(io::ErrorKind::ConnectionReset).into(),
                _ => e,
            }),
        },
        conn => conn,
    }
}

/// Sends the password by hand. The client reports every error as a wrong password, also that of a server that accepts
/// no more clients, and drops its text. Returns `None` if the password is right.
async fn refusal(client: &Client, access: &ConnectOptions) -> Option<RedisError> {
    let settings = client.get_connection_info().redis_settings();
    let info = client.get_connection_info().clone().set_redis_settings(RedisConnectionInfo::default());
    let mut auth = redis::cmd("AUTH");
    match access.current() {
        Some(Credentials { username, password }) => auth.arg(username).arg(password),
        None => auth.arg(settings.username()).arg(settings.password()),
    };
    let asked = async {
        let config = AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
        let mut conn = Client::open(info)?.get_multiplexed_async_connection_with_config(&config).await?;
        auth.query_async::<redis::Value>(&mut conn).await
    };
    let late = || Err(io::Error::from(io::ErrorKind::TimedOut).into());
    tokio::time::timeout(CONNECT_TIMEOUT, asked).await.unwrap_or_else(|_| late()).err()
}

/// The same error, naming the server if the user's address names another one.
pub(super) fn of_node(e: RedisError, node: impl fmt::Display) -> RedisError {
    match io_error(&e) {
        Some(own) if own.raw_os_error().is_some() => io::Error::new(own.kind(), format!("{node}: {own}")).into(),
        _ if e.is_timeout() => Unanswered::by(node),
        _ => e,
    }
}

pub(super) fn is_tls(addr: &ConnectionAddr) -> bool {
    matches!(addr, ConnectionAddr::TcpTls { .. })
}

#[cfg(not(feature = "tls"))]
fn client_of(info: ConnectionInfo, _access: &ConnectOptions) -> Result<Client> {
    Client::open(info).map_err(|e| bad(format!("must be an address that can be used: {e}"), "correct the URL"))
}

#[cfg(feature = "tls")]
fn client_of(info: ConnectionInfo, access: &ConnectOptions) -> Result<Client> {
    use redis::{ClientTlsConfig, TlsCertificates};

    if !matches!(info.addr(), ConnectionAddr::TcpTls { .. }) {
        if access.ca.is_some() || access.client.is_some() {
            return Err(bad("must be a URL with TLS if a CA or a client certificate is set", "write rediss://"));
        }
        return Client::open(info).map_err(|e| bad(format!("must be an address that can be used: {e}"), "correct it"));
    }
    // rustls panics if the process has no default provider and several are compiled in.
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // Another thread may just have done the same.
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
    let mut faults = Faults::default();
    let mut check = |field: &str, pem: &[u8]| {
        // The client silently accepts a PEM without a certificate.
        if !pem.windows(27).any(|part| part == b"-----BEGIN CERTIFICATE-----") {
            let (value, rule) = (format!("{} bytes", pem.len()), "must be PEM with a certificate");
            faults.push(ConfigError::new(field, value, rule, "pass the text of a .pem or .crt file"));
        }
    };
    if let Some(ca) = &access.ca {
        check("tls_ca", ca);
    }
    if let Some((cert, _)) = &access.client {
        check("tls_client", cert);
    }
    faults.finish()?;
    let client_tls = access.client.clone().map(|(client_cert, client_key)| ClientTlsConfig { client_cert, client_key });
    let certificates = TlsCertificates { client_tls, root_cert: access.ca.clone() };
    Client::build_with_tls(info, certificates).map_err(|e| {
        let fault = ConfigError::new("tls", "(not shown)", format!("must be PEM that can be read: {e}"), "correct it");
        Error::Config(ConfigErrors::from(fault))
    })
}
