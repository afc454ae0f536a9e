//! How connections to a server are made, whichever server it is.

use redis::io::tcp::TcpSettings;
use redis::{Client, ConnectionAddr, ConnectionInfo, ProtocolVersion};

use super::url::bad;
use crate::error::Error;
#[cfg(feature = "tls")]
use crate::faults::{ConfigError, ConfigErrors, Faults};

/// A connection to one server, which many may share.
pub(crate) use redis::aio::MultiplexedConnection as Plain;

/// What TLS goes by, as PEM.
#[derive(Clone, Default)]
pub(crate) struct Tls {
    /// Goes in place of the roots that the crate brings.
    #[cfg(feature = "tls")]
    pub(crate) ca: Option<Vec<u8>>,
    /// Certificate and key.
    #[cfg(feature = "tls")]
    pub(crate) client: Option<(Vec<u8>, Vec<u8>)>,
}

/// How connections to one server are made.
#[derive(Clone)]
pub(super) struct Clients {
    pub(super) client: Client,
    /// The same for connections that listen, which take RESP3.
    pub(super) listener: Client,
}

/// How connections to any server are made.
pub(super) struct Ways {
    /// But for the place.
    pub(super) info: ConnectionInfo,
    pub(super) tls: Tls,
}

impl Ways {
    /// The way to a server that another one has named.
    pub(super) fn to_node(&self, host: &str, port: u16) -> Result<Clients, Error> {
        let host = host.to_owned();
        self.to(match self.info.addr() {
            ConnectionAddr::TcpTls { insecure, tls_params, .. } => {
                ConnectionAddr::TcpTls { host, port, insecure: *insecure, tls_params: tls_params.clone() }
            }
            _ => ConnectionAddr::Tcp(host, port),
        })
    }

    pub(super) fn to(&self, addr: ConnectionAddr) -> Result<Clients, Error> {
        let settings = self.info.redis_settings().clone().set_skip_set_lib_name();
        let info = self.info.clone().set_addr(addr).set_tcp_settings(TcpSettings::default().set_nodelay(true));
        let listener = settings.clone().set_protocol(ProtocolVersion::RESP3);
        let client = |settings| client_of(info.clone().set_redis_settings(settings), &self.tls);
        Ok(Clients { client: client(settings)?, listener: client(listener)? })
    }
}

pub(super) fn is_tls(addr: &ConnectionAddr) -> bool {
    matches!(addr, ConnectionAddr::TcpTls { .. })
}

#[cfg(not(feature = "tls"))]
fn client_of(info: ConnectionInfo, _tls: &Tls) -> Result<Client, Error> {
    Client::open(info).map_err(|e| bad(format!("must be an address that can be used: {e}"), "correct the URL"))
}

#[cfg(feature = "tls")]
fn client_of(info: ConnectionInfo, tls: &Tls) -> Result<Client, Error> {
    use redis::{ClientTlsConfig, TlsCertificates};

    if !matches!(info.addr(), ConnectionAddr::TcpTls { .. }) {
        if tls.ca.is_some() || tls.client.is_some() {
            return Err(bad("must be a URL with TLS where there is a CA or a client certificate", "write rediss://"));
        }
        return Client::open(info).map_err(|e| bad(format!("must be an address that can be used: {e}"), "correct it"));
    }
    // rustls panics where none is the process's own, and several are compiled in.
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // Somebody else may just have done the same.
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
    let mut faults = Faults::default();
    let mut check = |field: &str, pem: &[u8]| {
        // The client takes a PEM without a certificate in silence.
        if !pem.windows(27).any(|part| part == b"-----BEGIN CERTIFICATE-----") {
            let value = format!("{} bytes", pem.len());
            faults.push(ConfigError::new(
                field,
                value,
                "must be PEM with a certificate",
                "give the text of a .pem or .crt",
            ));
        }
    };
    if let Some(ca) = &tls.ca {
        check("tls_ca", ca);
    }
    if let Some((cert, _)) = &tls.client {
        check("tls_client", cert);
    }
    faults.finish()?;
    let client_tls = tls.client.clone().map(|(client_cert, client_key)| ClientTlsConfig { client_cert, client_key });
    let certificates = TlsCertificates { client_tls, root_cert: tls.ca.clone() };
    Client::build_with_tls(info, certificates).map_err(|e| {
        let fault = ConfigError::new("tls", "(not shown)", format!("must be PEM that can be read: {e}"), "correct it");
        Error::Config(ConfigErrors::from(fault))
    })
}
