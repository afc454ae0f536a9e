//! Where the server is, and how a connection to it comes up.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::Either;
use redis::io::tcp::TcpSettings;
use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, ConnectionInfo, ErrorKind, ProtocolVersion, PushInfo,
    RedisConnectionInfo, RedisError,
};
use tokio::sync::mpsc::UnboundedSender;

use super::connection::OwnConnection;
use super::fault::{classify, not_connected, says_full};
use super::patience::{CONNECT_TIMEOUT, RESPONSE_TIMEOUT};
use super::sentinel::{Primary, Sentinels};
use super::url::{SentinelUrl, bad, info_of, place_of};
use crate::error::Error;
#[cfg(feature = "tls")]
use crate::faults::{ConfigError, ConfigErrors, Faults};

/// What a connection is for, as `CLIENT LIST` shows it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Role {
    /// Dispatch and, where a worker runs, settle.
    Shared,
    Keeper,
    Wake,
    Hints,
    Events,
    /// Questions about jobs, and values that travel apart.
    Pool,
}

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

/// The server and the way to it. Nothing of it is shown but host, port and database: a URL may hold a password.
pub(crate) struct Address {
    road: Road,
    place: Arc<str>,
    is_tls: bool,
    owner: Mutex<Owner>,
}

/// The way to the primary.
enum Road {
    /// It is where the address says.
    Straight(Box<Clients>),
    /// The sentinels say where.
    Sentinels(Box<Guided>),
}

/// The way that sentinels show.
struct Guided {
    sentinels: Arc<Sentinels>,
    ways: Ways,
    /// The one that was taken last.
    last: Mutex<Option<(Primary, Clients)>>,
}

/// How connections to one server are made.
#[derive(Clone)]
struct Clients {
    client: Client,
    /// The same for connections that listen, which take RESP3.
    listener: Client,
}

/// How connections to any server are made.
struct Ways {
    /// But for the place.
    info: ConnectionInfo,
    tls: Tls,
}

impl Ways {
    fn to(&self, addr: ConnectionAddr) -> Result<Clients, Error> {
        let settings = self.info.redis_settings().clone().set_skip_set_lib_name();
        let info = self.info.clone().set_addr(addr).set_tcp_settings(TcpSettings::default().set_nodelay(true));
        let listener = settings.clone().set_protocol(ProtocolVersion::RESP3);
        let client = |settings| client_of(info.clone().set_redis_settings(settings), &self.tls);
        Ok(Clients { client: client(settings)?, listener: client(listener)? })
    }
}

/// Whose connections these are.
struct Owner {
    name: String,
    /// Whether it is a worker, and not only a process that dispatches.
    works: bool,
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Address").field(&self.place).finish()
    }
}

impl Address {
    /// Takes the address; nothing is connected yet.
    ///
    /// # Errors
    /// `Config` when it is no URL, or cannot be used with these settings.
    pub(super) fn open(url: &str, tls: &Tls, name: &str) -> Result<Address, Error> {
        let owner = Mutex::new(Owner { name: name.to_owned(), works: false });
        let Some(asked) = SentinelUrl::of(url)? else {
            let info = info_of(url)?;
            let (place, is_tls) = (place_of(&info).into(), is_tls(info.addr()));
            let ways = Ways { tls: tls.clone(), info };
            return Ok(Address {
                road: Road::Straight(Box::new(ways.to(ways.info.addr().clone())?)),
                place,
                is_tls,
                owner,
            });
        };
        let SentinelUrl { primary, sentinels, nodes, service, place } = asked;
        let of_sentinels = Ways { tls: tls.clone(), info: primary.clone().set_redis_settings(sentinels) };
        let nodes = nodes.into_iter().map(|node| Ok(of_sentinels.to(node)?.listener)).collect::<Result<_, Error>>()?;
        let is_tls = is_tls(primary.addr());
        let ways = Ways { tls: tls.clone(), info: primary };
        let guided = Guided { sentinels: Sentinels::new(service, nodes), ways, last: Mutex::default() };
        Ok(Address { road: Road::Sentinels(Box::new(guided)), place: place.into(), is_tls, owner })
    }

    /// Grows whenever another server is the primary.
    pub(super) fn generation(&self) -> u64 {
        match &self.road {
            Road::Straight(_) => 0,
            Road::Sentinels(guided) => guided.sentinels.generation(),
        }
    }

    /// Whether sentinels say who the primary is.
    pub(super) fn is_guided(&self) -> bool {
        matches!(self.road, Road::Sentinels(_))
    }

    /// Sees to it that somebody asks who the primary is.
    pub(super) fn keep_watch(&self) {
        if let Road::Sentinels(guided) = &self.road {
            guided.sentinels.keep_watch();
        }
    }

    /// Does the work as long as the server is the primary that was so in this generation: what answers later is no answer.
    ///
    /// # Errors
    /// Those of the work, and as of a connection that was closed.
    pub(super) fn steady_since<'a, T: 'a>(
        &'a self,
        generation: u64,
        work: impl Future<Output = Result<T, Error>> + 'a,
    ) -> impl Future<Output = Result<T, Error>> + 'a {
        // No async function: each would hold the work twice, and callers have little stack.
        let Road::Sentinels(guided) = &self.road else { return Either::Left(work) };
        let work = Box::pin(work);
        Either::Right(async move {
            tokio::select! {
                biased;
                () = guided.sentinels.left(generation) => Err(Error::primary_changed()),
                done = work => done,
            }
        })
    }

    /// How to reach the primary.
    async fn clients(&self) -> Result<Clients, Error> {
        let Guided { sentinels, ways, last } = match &self.road {
            Road::Straight(clients) => return Ok(Clients::clone(clients)),
            Road::Sentinels(guided) => &**guided,
        };
        let primary = sentinels.primary().await?;
        let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
        match &*last {
            Some((known, clients)) if *known == primary => Ok(clients.clone()),
            _ => {
                let (host, port) = (primary.host.clone(), primary.port);
                let addr = match ways.info.addr() {
                    ConnectionAddr::TcpTls { insecure, tls_params, .. } => {
                        ConnectionAddr::TcpTls { host, port, insecure: *insecure, tls_params: tls_params.clone() }
                    }
                    _ => ConnectionAddr::Tcp(host, port),
                };
                Ok(last.insert((primary, ways.to(addr)?)).1.clone())
            }
        }
    }

    /// `redis://host:port/db`.
    pub(crate) fn place(&self) -> &Arc<str> {
        &self.place
    }

    /// A connection that tells when it drops. `response` bounds each answer; `None` is for calls that block, or whose caller
    /// keeps the time.
    pub(super) async fn connect(&self, role: Role, response: Option<Duration>) -> Result<OwnConnection, Error> {
        let config = AsyncConnectionConfig::new().set_response_timeout(response);
        self.open_with(role, |clients| clients.client, config).await
    }

    /// A connection that hands on what it is sent, up to the news that it dropped.
    pub(super) async fn listen(&self, role: Role, to: UnboundedSender<PushInfo>) -> Result<OwnConnection, Error> {
        let config = AsyncConnectionConfig::new().set_response_timeout(None).set_push_sender(to);
        self.open_with(role, |clients| clients.listener, config).await
    }

    async fn open_with(
        &self,
        role: Role,
        pick: impl FnOnce(Clients) -> Client,
        config: AsyncConnectionConfig,
    ) -> Result<OwnConnection, Error> {
        let opened = async {
            let client = pick(self.clients().await.map_err(|e| e.at(&self.place))?);
            let mut conn = self.connect_to(&client, config).await?;
            if self.is_guided() {
                is_primary(&mut conn).await.map_err(|e| e.at(&self.place))?;
            }
            Ok(conn)
        };
        let conn = self.steady_since(self.generation(), opened).await?;
        self.name(&conn, role);
        Ok(conn)
    }

    async fn connect_to(&self, client: &Client, config: AsyncConnectionConfig) -> Result<OwnConnection, Error> {
        let config = config.set_connection_timeout(Some(CONNECT_TIMEOUT));
        let connect = || client.get_multiplexed_async_connection_with_config(&config);
        let conn = match connect().await {
            Err(e) if e.kind() == ErrorKind::AuthenticationFailed => match refusal(client).await {
                Some(refusal) => Err(if is_of_the_password(&refusal) { e } else { refusal }),
                None => connect().await.map_err(|e| match e.kind() {
                    // The password is right.
                    ErrorKind::AuthenticationFailed => std::io::Error::from(std::io::ErrorKind::ConnectionReset).into(),
                    _ => e,
                }),
            },
            conn => conn,
        };
        conn.map_err(|e| self.fault(e))
    }

    fn fault(&self, e: redis::RedisError) -> Error {
        not_connected(&e, self.is_tls).at(&self.place)
    }

    /// The server did not answer in the time that a connection has.
    pub(super) fn timed_out(&self) -> Error {
        self.fault(std::io::Error::from(std::io::ErrorKind::TimedOut).into())
    }

    /// Tells the server what the connection is for. Nobody waits for the answer: a name that is refused is none.
    pub(super) fn name(&self, conn: &OwnConnection, role: Role) {
        let owner = self.owner.lock().unwrap_or_else(PoisonError::into_inner);
        let role = match role {
            Role::Shared if owner.works => "driver",
            Role::Shared => "producer",
            Role::Keeper => "keeper",
            Role::Wake => "wake",
            Role::Hints => "hints",
            Role::Events => "events",
            Role::Pool => "pool",
        };
        let name = format!("heartline:{role}:{}", owner.name);
        drop(owner);
        let mut conn = conn.clone();
        tokio::spawn(async move {
            let mut cmd = redis::cmd("CLIENT");
            let named = cmd.arg("SETNAME").arg(name).query_async::<redis::Value>(&mut conn);
            let _ = tokio::time::timeout(RESPONSE_TIMEOUT, named).await;
        });
    }

    /// From now on connections have the name of this worker.
    pub(super) fn works_as(&self, worker: &str) {
        let owner = Owner { name: worker.to_owned(), works: true };
        *self.owner.lock().unwrap_or_else(PoisonError::into_inner) = owner;
    }
}

/// One that was demoted, or is not promoted yet, is not the one to write to.
async fn is_primary(conn: &mut OwnConnection) -> Result<(), Error> {
    let asked = redis::cmd("ROLE").query_async::<Vec<redis::Value>>(conn).await.map_err(|e| classify("role", e))?;
    match asked.first().map(redis::from_redis_value_ref::<String>) {
        Some(Ok(role)) if role == "master" => Ok(()),
        _ => Err(Error::primary_changed()),
    }
}

fn is_tls(addr: &ConnectionAddr) -> bool {
    matches!(addr, ConnectionAddr::TcpTls { .. })
}

/// Shows the password by hand. To the client every answer to that is a wrong password, also one of a server that takes no more
/// clients, and the text of it is lost. `None`: the password is right.
async fn refusal(client: &Client) -> Option<RedisError> {
    let settings = client.get_connection_info().redis_settings();
    let info = client.get_connection_info().clone().set_redis_settings(RedisConnectionInfo::default());
    let mut auth = redis::cmd("AUTH");
    auth.arg(settings.username()).arg(settings.password());
    let asked = async {
        let config = AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
        let mut conn = Client::open(info)?.get_multiplexed_async_connection_with_config(&config).await?;
        auth.query_async::<redis::Value>(&mut conn).await
    };
    let late = || Err(std::io::Error::from(std::io::ErrorKind::TimedOut).into());
    tokio::time::timeout(CONNECT_TIMEOUT, asked).await.unwrap_or_else(|_| late()).err()
}

/// Whether the server has looked at the password.
fn is_of_the_password(refusal: &RedisError) -> bool {
    !says_full(refusal) && !refusal.is_io_error()
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
