//! Parses the addresses that people write.

use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo, RedisConnectionInfo};
use url::Url;

use crate::config_error::{ConfigError, ConfigErrors};
use crate::error::{Error, Result};

/// The default port of sentinels.
const PORT: u16 = 26379;

/// The parameter with the name by which sentinels know the primary.
const SERVICE: &str = "sentinelServiceName";

/// Which parameters the URL of a single server may have, over TCP and over a Unix socket.
const STRAIGHT: [&str; 2] = ["db", "protocol"];
const UNIX: [&str; 4] = ["db", "user", "pass", "protocol"];

/// `redis-sentinel://[user:password@]host[:26379][/db]?sentinelServiceName=name[&node=host:port]…[&sentinelUsername=…][&sentinelPassword=…]`.
#[derive(Debug)]
pub(super) struct SentinelUrl {
    /// How to reach the primary: user, password and database, with the address of the first sentinel.
    pub(super) primary: ConnectionInfo,
    /// User and password of the sentinels.
    pub(super) sentinels: RedisConnectionInfo,
    pub(super) nodes: Vec<ConnectionAddr>,
    pub(super) service: String,
    /// Without any secret.
    pub(super) place: String,
}

impl SentinelUrl {
    /// `None` for another scheme.
    ///
    /// # Errors
    /// `Config` if something is missing or unknown.
    pub(super) fn of(text: &str) -> Result<Option<SentinelUrl>> {
        let Some(straight) = straight(text, "-sentinel") else { return Ok(None) };
        let fix = "write redis-sentinel://[user:password@]host[:26379][/db]?sentinelServiceName=name&node=host:port";
        let url = read(text, &[SERVICE, "node", "sentinelUsername", SECRETS[1]], fix)?;
        let primary = info_of(&straight)?;
        let mut nodes = vec![at(&primary, &primary_host(&primary), url.port().unwrap_or(PORT))];
        let (mut service, mut sentinels) = (String::new(), RedisConnectionInfo::default());
        for (name, value) in url.query_pairs() {
            match &*name {
                SERVICE => service = value.into_owned(),
                "node" => {
                    let (host, port) = node_of(&value, PORT, fix)?;
                    nodes.push(at(&primary, &host, port));
                }
                "sentinelUsername" => sentinels = sentinels.set_username(value),
                _ => sentinels = sentinels.set_password(value),
            }
        }
        if service.is_empty() {
            return Err(bad("must have the name of the primary as sentinelServiceName", fix));
        }
        let sentinels = sentinels.set_skip_set_lib_name();
        let first = primary.clone().set_addr(nodes[0].clone());
        let place = place_of(&first).replacen("://", "-sentinel://", 1);
        Ok(Some(SentinelUrl { primary, sentinels, nodes, place: format!("{place}?{SERVICE}={service}"), service }))
    }
}

/// The default port of nodes.
const NODE_PORT: u16 = 6379;

/// `redis-cluster://[user:password@]host[:6379][?node=host:port]…`.
#[derive(Debug)]
pub(super) struct ClusterUrl {
    /// User and password, with the address of the first node.
    pub(super) info: ConnectionInfo,
    pub(super) nodes: Vec<(String, u16)>,
    /// Without any secret.
    pub(super) place: String,
}

impl ClusterUrl {
    /// `None` for another scheme.
    ///
    /// # Errors
    /// `Config` if something is missing or unknown.
    pub(super) fn of(text: &str) -> Result<Option<ClusterUrl>> {
        let Some(straight) = straight(text, "-cluster") else { return Ok(None) };
        let fix = "write redis-cluster://[user:password@]host[:6379]?node=host:port";
        let url = read(text, &["node"], fix)?;
        let info = info_of(&straight)?;
        if info.redis_settings().db() != 0 {
            return Err(bad("must not name a database: a cluster has only one", fix));
        }
        let mut nodes = vec![(primary_host(&info), url.port().unwrap_or(NODE_PORT))];
        for (_, value) in url.query_pairs() {
            nodes.push(node_of(&value, NODE_PORT, fix)?);
        }
        let place = place_of(&info).replacen("://", "-cluster://", 1);
        Ok(Some(ClusterUrl { info, nodes, place: place.trim_end_matches("/0").to_owned() }))
    }
}

/// The URL of one server that this one contains, without parameters; `None` if its scheme has another ending.
fn straight(text: &str, ending: &str) -> Option<String> {
    let (scheme, rest) = text.split_once("://")?;
    let scheme = match scheme.strip_suffix(ending)? {
        "redis" | "valkey" => "redis",
        "rediss" | "valkeys" => "rediss",
        _ => return None,
    };
    Some(format!("{scheme}://{}", rest.split('?').next().unwrap_or_default()))
}

/// `host[:port]`.
fn node_of(text: &str, port: u16, fix: &str) -> Result<(String, u16)> {
    let node = Url::parse(&format!("redis-node://{text}")).ok();
    let node = node.and_then(|node| Some((node.host_str()?.trim_matches(['[', ']']).to_owned(), node.port())));
    let (host, own) =
        node.ok_or_else(|| bad("must name each node as host:port, one of IPv6 as [address]:port", fix))?;
    Ok((host, own.unwrap_or(port)))
}

pub(super) fn bad(rule: impl Into<String>, fix: &str) -> Error {
    let fault = ConfigError::new("redis", "(not shown: it may hold a password)", rule, fix);
    Error::Config(ConfigErrors::from(fault))
}

pub(super) fn info_of(text: &str) -> Result<ConnectionInfo> {
    let is_tls = text.starts_with("rediss:") || text.starts_with("valkeys:");
    if is_tls && !cfg!(feature = "tls") {
        let fix = "build heartline with features = [\"tls\"]";
        return Err(bad("must be a URL without TLS while the feature tls is off", fix));
    }
    if is_tls && text.ends_with("#insecure") {
        return Err(bad(
            "must not end in #insecure, which accepts any certificate",
            "pass the server's own CA to AppBuilder::tls_ca",
        ));
    }
    let fix = "write redis://[user:password@]host[:port][/db], the same with rediss:// for TLS, or unix:///path";
    let is_unix = text.split(':').next().is_some_and(|scheme| scheme.ends_with("unix"));
    let url = read(text, if is_unix { &UNIX } else { &STRAIGHT }, fix)?;
    let path = url.path().trim_matches('/').to_owned();
    let db = url.query_pairs().find(|(name, _)| name == "db").map(|(_, db)| db.into_owned());
    let unreadable = |rule: &str| bad(rule, &format!("{fix}; {ESCAPED}"));
    let info = url.into_connection_info().map_err(|_| unreadable("must be a Redis URL"))?;
    let Some(db) = db.filter(|_| !is_unix) else { return Ok(info) };
    if !path.is_empty() {
        return Err(unreadable("must name the database once, as /db or as ?db="));
    }
    let db = db.parse().map_err(|_| unreadable("must name the database by its number"))?;
    let settings = info.redis_settings().clone().set_db(db);
    Ok(info.set_redis_settings(settings))
}

/// What to do if a user name or a password may have been read as another part of the URL.
const ESCAPED: &str =
    "in a user name or password write % as %25, # as %23, ? as %3F, / as %2F, @ as %40, : as %3A and & as %26";

/// The parameters that hold a password.
const SECRETS: [&str; 2] = ["pass", "sentinelPassword"];

/// Parses a URL with these known parameters. Refuses every unknown part, which would have no effect.
fn read(text: &str, known: &[&str], fix: &str) -> Result<Url> {
    let refused = |rule: &str| bad(rule, &format!("{fix}; {ESCAPED}"));
    // Do not show the error of the parser, which may contain the text.
    let url = Url::parse(text).map_err(|_| refused("must be a URL"))?;
    if url.fragment().is_some() {
        return Err(refused("must have no #, nor anything after it"));
    }
    let mut may_be_secret = url.query().unwrap_or_default().contains('@');
    for (name, _) in url.query_pairs() {
        if known.contains(&&*name) {
            may_be_secret |= SECRETS.contains(&&*name);
            continue;
        }
        // If a password has an unescaped character, its rest is read as another part of the URL.
        let is_name = !may_be_secret && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
        let name = if is_name { format!("the parameter {name}") } else { "the parameter that it has".to_owned() };
        return Err(refused(&format!("must not have {name}; it takes {}", known.join(", "))));
    }
    Ok(url)
}

pub(super) fn place_of(info: &ConnectionInfo) -> String {
    let db = info.redis_settings().db();
    match info.addr() {
        ConnectionAddr::Tcp(host, port) => format!("redis://{}/{db}", place_at(host, *port)),
        ConnectionAddr::TcpTls { host, port, .. } => format!("rediss://{}/{db}", place_at(host, *port)),
        ConnectionAddr::Unix(path) => format!("unix://{}", path.display()),
        _ => "an address of another kind".to_owned(),
    }
}

/// A host and its port. An IPv6 address gets brackets.
fn place_at(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

fn primary_host(info: &ConnectionInfo) -> String {
    match info.addr() {
        ConnectionAddr::Tcp(host, _) | ConnectionAddr::TcpTls { host, .. } => host.clone(),
        _ => String::new(),
    }
}

/// The address of another host, with the settings of the given one.
fn at(like: &ConnectionInfo, host: &str, port: u16) -> ConnectionAddr {
    match like.addr() {
        ConnectionAddr::TcpTls { insecure, tls_params, .. } => {
            ConnectionAddr::TcpTls { host: host.to_owned(), port, insecure: *insecure, tls_params: tls_params.clone() }
        }
        _ => ConnectionAddr::Tcp(host.to_owned(), port),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(text: &str) -> SentinelUrl {
        SentinelUrl::of(text).unwrap().unwrap()
    }

    #[test]
    fn an_address_names_the_sentinels_and_the_primary_by_its_name() {
        let url = read(
            "redis-sentinel://ann:s%40d@one/3?sentinelServiceName=main&node=two:27000&node=[::1]&sentinelPassword=x%26y",
        );
        assert_eq!((&*url.service, &*url.place), ("main", "redis-sentinel://one:26379/3?sentinelServiceName=main"));
        let nodes: Vec<_> = url.nodes.iter().map(ToString::to_string).collect();
        assert_eq!(nodes, ["one:26379", "two:27000", "::1:26379"]);
        let settings = url.primary.redis_settings();
        assert_eq!((settings.username(), settings.password(), settings.db()), (Some("ann"), Some("s@d"), 3));
        assert_eq!((url.sentinels.username(), url.sentinels.password(), url.sentinels.db()), (None, Some("x&y"), 0));
        assert_eq!(read("valkey-sentinel://h:1?sentinelServiceName=m").nodes[0].to_string(), "h:1");
        assert!(SentinelUrl::of("redis://h").unwrap().is_none() && SentinelUrl::of("h").unwrap().is_none());
    }

    #[test]
    fn an_address_names_nodes_of_a_cluster() {
        let url = ClusterUrl::of("rediss-cluster://ann:s%40d@one?node=two:7000&node=[::1]").map(Option::unwrap);
        if cfg!(feature = "tls") {
            let url = url.unwrap();
            let nodes: Vec<String> = url.nodes.iter().map(|(host, port)| format!("{host} {port}")).collect();
            assert_eq!(
                (nodes, &*url.place),
                (vec!["one 6379".into(), "two 7000".into(), "::1 6379".into()], "rediss-cluster://one:6379")
            );
            assert_eq!(url.info.redis_settings().password(), Some("s@d"));
        }
        assert!(ClusterUrl::of("redis://h").unwrap().is_none());
        for text in ["redis-cluster://:s3cret@h/1", "redis-cluster://:s3cret@h?x=1", "redis-cluster://:s3cret@h?node="]
        {
            let e = ClusterUrl::of(text).unwrap_err();
            assert!(matches!(e, Error::Config(_)) && !e.to_string().contains("s3cret"), "{text}: {e}");
        }
    }

    #[test]
    fn a_missing_or_unknown_part_is_named_without_the_password() {
        for text in [
            "redis-sentinel://:s3cret@one",
            "redis-sentinel://:s3cret@one?sentinelServiceName=",
            "redis-sentinel://:s3cret@one?sentinelServiceName=m&nodes=two",
            "redis-sentinel://:s3cret@one?sentinelServiceName=m&node=",
            "redis-sentinel://:s3cret@one:many?sentinelServiceName=m",
            "redis-sentinel://:s3cret@one/x?sentinelServiceName=m",
        ] {
            let e = SentinelUrl::of(text).unwrap_err();
            assert!(matches!(e, Error::Config(_)) && !e.to_string().contains("s3cret"), "{text}: {e}");
        }
    }

    #[test]
    fn an_unknown_part_is_refused_by_its_name() {
        for (text, named) in [
            ("redis://h?password=x", "the parameter password;"),
            ("redis://h/3?ssl_cert_reqs=none&db=3", "the parameter ssl_cert_reqs;"),
            ("unix:///run/r.sock?path=x", "the parameter path;"),
            ("redis-sentinel://h?sentinelServiceName=m&db=3", "the parameter db;"),
            ("redis-cluster://h?db=3", "the parameter db;"),
            ("redis://h#3", "no #"),
            ("redis-sentinel://h?sentinelServiceName=m#3", "no #"),
            ("redis-cluster://h?node=i#3", "no #"),
            ("redis://h/1?db=3", "the database once"),
            ("redis://h?db=x", "by its number"),
        ] {
            let e = refusal(text);
            assert!(e.contains(named), "{text}: {e}");
        }
    }

    #[test]
    fn the_database_may_be_a_parameter() {
        for text in ["redis://h?db=3", "redis://h/?db=3&protocol=resp3", "unix:///run/r.sock?db=3&pass=x"] {
            assert_eq!(info_of(text).unwrap().redis_settings().db(), 3, "{text}");
        }
        assert_eq!(info_of("redis://h").unwrap().redis_settings().db(), 0);
    }

    #[test]
    fn an_unescaped_character_reveals_nothing_of_the_password() {
        for character in ["#", "?", "/", ":#", "?a=", "?db=1&"] {
            for scheme in ["redis", "redis-sentinel", "redis-cluster"] {
                // The first part of the password looks like a port.
                for user in ["ann:4711", ":4711", "ann:s3cret"] {
                    let text = format!("{scheme}://{user}{character}s3cret@h:6379");
                    let e = refusal(&text);
                    assert!(!e.contains("s3cret") && !e.contains("4711"), "{text}: {e}");
                    assert!(e.contains("# as %23"), "{text}: {e}");
                }
            }
        }
        for text in ["unix:///run/r.sock?pass=a&s3cret", "redis-sentinel://h?sentinelPassword=a&s3cret"] {
            let e = refusal(text);
            assert!(!e.contains("s3cret") && e.contains("& as %26"), "{text}: {e}");
        }
    }

    /// The text of the error for an address of any kind.
    fn refusal(text: &str) -> String {
        let refused = match (SentinelUrl::of(text), ClusterUrl::of(text)) {
            (Ok(None), Ok(None)) => info_of(text).map(drop),
            (sentinel, cluster) => sentinel.and(cluster).map(drop),
        };
        format!("{:?}", refused.expect_err(text))
    }

    #[test]
    fn any_address_is_read_or_named_as_wrong() {
        let scheme = "redis|rediss|redis-sentinel|rediss-sentinel|redis-cluster|redis\\+unix|unix|[a-z+-]{0,9}";
        let rest = "(ann:secret@)?[a-z\\[\\]:.%0-9]{0,20}(/[0-9-]{0,20})?(\\?(node|db|user|sentinelServiceName|[a-z]{1,4})=[a-z:\\[%0-9]{0,20}){0,2}";
        let shape = format!("({scheme}):(//)?({rest}|\\PC{{0,40}})");
        let text = proptest::string::string_regex(&shape).unwrap();
        proptest!(|(text in text)| {
            let places = [
                SentinelUrl::of(&text).map(|url| url.map(|url| url.place)),
                ClusterUrl::of(&text).map(|url| url.map(|url| url.place)),
                info_of(&text).map(|info| Some(place_of(&info))),
            ];
            for place in places {
                match place {
                    Ok(place) => prop_assert!(!place.is_some_and(|place| place.contains("secret@")), "{}", text),
                    Err(e) => prop_assert!(!e.to_string().is_empty() && !e.to_string().contains("secret@"), "{e}"),
                }
            }
        });
    }
}
