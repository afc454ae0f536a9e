//! Contexts: servers that people have given names to, in a file of their own.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use heartline::{App, AppBuilder};
use serde::{Deserialize, Serialize};

use crate::args::Global;
use crate::failure::Failure;

/// The file, as people write it.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Contexts {
    /// The one that is taken where neither the options nor the environment say which server.
    #[serde(default)]
    default: Option<String>,
    #[serde(default)]
    context: BTreeMap<String, Named>,
}

/// A server that has a name.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Named {
    url: Option<String>,
    /// The variable that has the address.
    url_env: Option<String>,
    /// The program that prints it, with its arguments.
    url_command: Option<Vec<String>>,
    prefix: Option<String>,
    /// PEM files, by their paths from the directory of this file.
    tls_ca: Option<PathBuf>,
    tls_cert: Option<PathBuf>,
    tls_key: Option<PathBuf>,
    #[serde(default)]
    production: bool,
}

/// Which server a command talks to.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) url: String,
    pub(crate) tls: Tls,
    /// Who says so, for people.
    pub(crate) from: String,
    pub(crate) prefix: String,
    /// The context that it is, if it is one.
    pub(crate) context: Option<String>,
    pub(crate) is_production: bool,
    /// Whether the server is one of production, whatever the prefix.
    pub(crate) shares_production: bool,
    /// Why it is not known whether it is of production, if so.
    pub(crate) unknown: Option<String>,
}

/// By which certificates a server is known over TLS, and this process to it, as PEM.
#[derive(Debug, Default)]
pub(crate) struct Tls {
    pub(crate) ca: Option<Vec<u8>>,
    pub(crate) client: Option<(Vec<u8>, Vec<u8>)>,
}

/// What may be told of a context.
#[derive(Debug, Serialize)]
pub(crate) struct Listed {
    pub(crate) name: String,
    pub(crate) is_default: bool,
    pub(crate) is_production: bool,
    pub(crate) prefix: String,
    /// Where its address is from, which may have a password in it.
    pub(crate) url_from: String,
}

const PREFIX: &str = "heartline";

/// Where the server is when nobody says so.
const DEFAULT_URL: &str = "redis://127.0.0.1:6379";

impl Contexts {
    /// What the file says; nothing where there is none.
    ///
    /// # Errors
    /// Wrong use: others can read it, or it is not as it should be.
    pub(crate) fn read() -> Result<Contexts, Failure> {
        let Some(path) = path() else { return Ok(Contexts::default()) };
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Contexts::default()),
            Err(e) => return Err(Failure::wrong(format!("{} cannot be read: {e}", path.display()))),
        };
        is_own(&path)?;
        let contexts: Contexts =
            toml::from_str(&text).map_err(|e| Failure::wrong(format!("{}: {}", path.display(), e.message())))?;
        let missing = contexts.default.as_ref().filter(|name| !contexts.context.contains_key(*name));
        match missing {
            Some(name) => Err(Failure::wrong(format!("{}: there is no context {name}, the default", path.display()))),
            None => Ok(contexts),
        }
    }

    /// All of them.
    pub(crate) fn list(&self) -> Vec<Listed> {
        let listed = self.context.iter().map(|(name, named)| Listed {
            name: name.clone(),
            is_default: self.default.as_ref() == Some(name),
            is_production: named.production,
            prefix: named.prefix.clone().unwrap_or_else(|| PREFIX.to_owned()),
            url_from: match named {
                Named { url_env: Some(name), .. } => format!("the variable {name}"),
                Named { url_command: Some(argv), .. } => {
                    format!("the program {}", argv.first().map_or("", String::as_str))
                }
                _ => "the file".to_owned(),
            },
        });
        listed.collect()
    }

    /// The context of production that stands for this address and prefix, or any prefix. What a program would have to be asked for is not
    /// compared.
    fn production_at(&self, url: &str, prefix: Option<&str>) -> Option<&String> {
        let servers = servers_of(url);
        let is_there = |named: &Named| {
            let own = named.url.clone().or_else(|| std::env::var(named.url_env.as_ref()?).ok());
            prefix.is_none_or(|prefix| named.prefix.as_deref().unwrap_or(PREFIX) == prefix)
                && own.is_some_and(|own| !servers_of(&own).is_disjoint(&servers))
        };
        self.context.iter().find(|(_, named)| named.production && is_there(named)).map(|(name, _)| name)
    }

    /// The context of production of this prefix, or any, of which only a program, or a variable that is not set, tells where it leads: that may be
    /// this address.
    fn production_anywhere(&self, url: &str, prefix: Option<&str>) -> Option<&String> {
        let servers = servers_of(url);
        let leads_there = |named: &Named| named.url.as_ref().is_some_and(|own| !servers_of(own).is_disjoint(&servers));
        // Somebody has said that it is none.
        if self.context.values().any(|named| !named.production && leads_there(named)) {
            return None;
        }
        let is_unasked = |named: &Named| {
            let is_unset = |variable: &String| std::env::var_os(variable).is_none();
            named.url_command.is_some() || named.url_env.as_ref().is_some_and(is_unset)
        };
        let is_so = |named: &Named| {
            named.production
                && prefix.is_none_or(|prefix| named.prefix.as_deref().unwrap_or(PREFIX) == prefix)
                && is_unasked(named)
        };
        self.context.iter().find(|(_, named)| is_so(named)).map(|(name, _)| name)
    }

    fn named(&self, name: &str) -> Result<&Named, Failure> {
        self.context.get(name).ok_or_else(|| {
            let known: Vec<&str> = self.context.keys().map(String::as_str).collect();
            let known =
                if known.is_empty() { "there is none".to_owned() } else { format!("there are {}", known.join(", ")) };
            Failure::wrong(format!("there is no context {name}; {known}"))
        })
    }
}

impl Place {
    /// The option, else the context that was named, else a variable, else the default context, else this machine.
    pub(crate) fn of(global: &Global) -> Result<Place, Failure> {
        let mut unknown = None;
        let contexts = match Contexts::read() {
            // Who says where the server is needs no names.
            Err(Failure::Wrong(what)) if global.redis.is_some() => {
                say!("warning: {what}; whether that server is of production is not known");
                unknown = Some(what);
                Contexts::default()
            }
            read => read?,
        };
        let prefix_of = |own: Option<&String>| global.prefix.as_ref().or(own).map_or(PREFIX, String::as_str).to_owned();
        let asked = global.context();
        let name = match (&asked, global.told_url()) {
            (Some(name), _) => Some(name),
            // A server of production is that under whatever name.
            (None, Some((url, _))) => contexts.production_at(&url, Some(&prefix_of(None))),
            (None, None) => {
                contexts.default.as_ref().or_else(|| contexts.production_at(DEFAULT_URL, Some(&prefix_of(None))))
            }
        };
        let named = name.map(|name| contexts.named(name)).transpose()?;
        let told = global.told_url().filter(|_| asked.is_none());
        let (url, from) = match (told, name.zip(named)) {
            (Some((url, from)), _) => (url, format!("that of {from}")),
            (None, Some((name, named))) => (named.url(name)?, format!("that of the context {name}")),
            (None, None) => (DEFAULT_URL.to_owned(), "the default, as nobody says another: see --redis".to_owned()),
        };
        // One that is named, too, may lead where another one says that production is.
        let prefix = prefix_of(named.and_then(|named| named.prefix.as_ref()));
        let is_production = named.is_some_and(|named| named.production);
        let same = if is_production { None } else { contexts.production_at(&url, Some(&prefix)) };
        let shares_production = contexts.production_at(&url, None).is_some();
        let (name, is_production) = same.map_or((name, is_production), |same| (Some(same), true));
        let anywhere = contexts.production_anywhere(&url, Some(&prefix)).filter(|_| name.is_none());
        let shares_production =
            shares_production || name.is_none() && contexts.production_anywhere(&url, None).is_some();
        let unknown = unknown.or_else(|| {
            let live = anywhere?;
            Some(format!(
                "where the context {live} leads is not asked: say --context {live} if this is that server, else write a context with this address that is not of production"
            ))
        });
        let tls = Tls::of(global, named, &url)?;
        Ok(Place { url, tls, from, prefix, context: name.cloned(), is_production, shares_production, unknown })
    }
}

impl Tls {
    /// Of each the option, else what the context says, else a variable, which is for addresses with TLS alone.
    fn of(global: &Global, named: Option<&Named>, url: &str) -> Result<Tls, Failure> {
        let is_over_tls = url.starts_with("rediss") || url.starts_with("valkeys");
        let beside = path().and_then(|file| Some(file.parent()?.to_owned())).unwrap_or_default();
        let read = |option: &Option<PathBuf>, own: Option<&PathBuf>, variable: &str| {
            let set = || std::env::var_os(variable).filter(|path| is_over_tls && !path.is_empty()).map(PathBuf::from);
            let file = option.clone().or_else(|| own.map(|own| beside.join(own))).or_else(set);
            let read = file.map(|file| {
                std::fs::read(&file).map_err(|e| Failure::wrong(format!("{} cannot be read: {e}", file.display())))
            });
            read.transpose()
        };
        let of = |pick: fn(&Named) -> Option<&PathBuf>| named.and_then(pick);
        let ca = read(&global.tls_ca, of(|named| named.tls_ca.as_ref()), "HEARTLINE_TLS_CA")?;
        let cert = read(&global.tls_cert, of(|named| named.tls_cert.as_ref()), "HEARTLINE_TLS_CERT")?;
        let key = read(&global.tls_key, of(|named| named.tls_key.as_ref()), "HEARTLINE_TLS_KEY")?;
        match (cert, key) {
            (Some(cert), Some(key)) => Ok(Tls { ca, client: Some((cert, key)) }),
            (None, None) => Ok(Tls { ca, client: None }),
            _ => Err(Failure::wrong("a certificate needs its key: --tls-cert and --tls-key, both")),
        }
    }
}

impl Place {
    /// An App of this server under this prefix, still to be built.
    pub(crate) fn app(&self, prefix: &str) -> AppBuilder {
        // Who looks at a server whose policy could throw jobs away needs the more to look.
        let mut app = App::builder().redis(&self.url).prefix(prefix).accept_eviction();
        if let Some(ca) = &self.tls.ca {
            app = app.tls_ca(ca.clone());
        }
        if let Some((cert, key)) = &self.tls.client {
            app = app.tls_client(cert.clone(), key.clone());
        }
        app
    }
}

impl Named {
    fn url(&self, name: &str) -> Result<String, Failure> {
        match (&self.url, &self.url_env, &self.url_command) {
            (Some(url), None, None) => Ok(url.clone()),
            (None, Some(variable), None) => std::env::var(variable).map_err(|_| {
                Failure::wrong(format!("the context {name} wants the variable {variable}, which is not set"))
            }),
            (None, None, Some(argv)) => run(name, argv),
            _ => Err(Failure::wrong(format!("the context {name} needs one of url, url_env, url_command"))),
        }
    }
}

/// The servers of an address, each with the database, whoever knocks there; of a cluster and of sentinels all that are named.
fn servers_of(url: &str) -> BTreeSet<String> {
    // Whoever connects takes no notice of these.
    let url: String =
        url.trim_matches(|c: char| c <= ' ').chars().filter(|c| !matches!(c, '\t' | '\n' | '\r')).collect();
    let (scheme, rest) = url.split_once("://").unwrap_or(("", &url));
    if scheme.ends_with("unix") {
        let (path, query) = split(rest, &['?']);
        let path = std::fs::canonicalize(&path).unwrap_or_else(|_| PathBuf::from(path));
        let database = named(&query, "db=").next().and_then(|db| db.parse::<u64>().ok()).unwrap_or(0);
        return BTreeSet::from([format!("unix {} {database}", path.display())]);
    }
    // A password may have any of these in it, and what stands behind the host an `@`: both readings count.
    let of_host = |text: &str| text.rsplit_once('@').map_or(text.to_owned(), |(_, behind)| behind.to_owned());
    let (authority, _) = split(rest, &['/', '?', '#']);
    let short = rest.replacen(&authority, &of_host(&authority), 1);
    let mut found = servers_behind(scheme, &short);
    found.extend(servers_behind(scheme, &of_host(rest)));
    found
}

/// The same, of what stands behind who knocks there.
fn servers_behind(scheme: &str, behind: &str) -> BTreeSet<String> {
    let (host, tail) = split(behind, &['/', '?', '#']);
    let (path, query) = split(&tail, &['?', '#']);
    let database: String = path.chars().filter(char::is_ascii_digit).collect();
    let database = database.parse::<u64>().unwrap_or(0);
    // The same sentinels may watch several.
    let service = named(&query, "sentinelServiceName=").next().map_or(String::new(), |name| format!(" {name}"));
    let port = if scheme.contains("sentinel") { 26379 } else { 6379 };
    let places = std::iter::once(&*host).chain(named(&query, "node="));
    places.map(|place| format!("{}/{database}{service}", place_of(place, port))).collect()
}

fn split(text: &str, at: &[char]) -> (String, String) {
    let (head, tail) = text.split_at(text.find(at).unwrap_or(text.len()));
    (head.to_owned(), tail.to_owned())
}

/// What a query says under a name, with its `=`.
fn named<'a>(query: &'a str, name: &'a str) -> impl Iterator<Item = &'a str> {
    query.trim_start_matches('?').split('&').filter_map(move |pair| pair.strip_prefix(name))
}

/// A host and its port, as others may write them too.
fn place_of(place: &str, default: u16) -> String {
    // An address in brackets has colons of its own.
    let (name, port) = match place.rsplit_once(':').filter(|(name, _)| !name.starts_with('[') || name.ends_with(']')) {
        Some((name, port)) => (name, port.parse().unwrap_or(default)),
        None => (place, default),
    };
    let name = name.trim_matches(['[', ']']).to_ascii_lowercase();
    let name = name.trim_end_matches('.');
    let address = name.parse::<IpAddr>().ok().or_else(|| short_v4(name).map(IpAddr::V4));
    // To connect to no address at all is to connect to this machine.
    let is_own = |address: IpAddr| address.to_canonical().is_loopback() || address.is_unspecified();
    let is_loopback = name == "localhost" || address.is_some_and(is_own);
    let name = if is_loopback { "loopback".to_owned() } else { address.map_or(name.to_owned(), |it| it.to_string()) };
    format!("{name}:{port}")
}

/// `127.1` or `0x7f.1`, as the resolver reads it: the last number fills what is missing.
fn short_v4(name: &str) -> Option<Ipv4Addr> {
    let number = |part: &str| match (part.strip_prefix("0x"), part.strip_prefix('0')) {
        (Some(hex), _) => u32::from_str_radix(hex, 16).ok(),
        (None, Some(octal)) if !octal.is_empty() => u32::from_str_radix(octal, 8).ok(),
        _ => part.parse().ok(),
    };
    let parts: Vec<u32> = name.split('.').map(number).collect::<Option<_>>()?;
    let (last, first) = parts.split_last().filter(|(_, first)| first.len() < 4)?;
    let mut bits = *last;
    for (at, part) in first.iter().enumerate() {
        bits |= u32::from(u8::try_from(*part).ok()?) << (24 - 8 * at);
    }
    Some(Ipv4Addr::from(bits))
}

/// What a program prints, without the end of its line. It may ask the person something.
fn run(name: &str, argv: &[String]) -> Result<String, Failure> {
    let Some((program, arguments)) = argv.split_first() else {
        return Err(Failure::wrong(format!("the url_command of the context {name} is empty")));
    };
    let ran = Command::new(program).args(arguments).stdin(Stdio::inherit()).stderr(Stdio::inherit()).output();
    let ran = ran.map_err(|e| Failure::Failed(format!("the url_command of the context {name}, {program}: {e}")))?;
    if !ran.status.success() {
        return Err(Failure::Failed(format!("the url_command of the context {name} failed: {}", ran.status)));
    }
    Ok(String::from_utf8_lossy(&ran.stdout).trim().to_owned())
}

/// The file: that of HEARTLINE_CONFIG, else that of the person.
pub(crate) fn path() -> Option<PathBuf> {
    let of = |name: &str| std::env::var_os(name).filter(|path| !path.is_empty()).map(PathBuf::from);
    of("HEARTLINE_CONFIG").or_else(|| {
        let base = of("XDG_CONFIG_HOME").or_else(|| Some(of("HOME")?.join(".config")))?;
        Some(base.join("heartline").join("config.toml"))
    })
}

/// Refuses a file that others can read: it may have passwords in it.
#[cfg(unix)]
fn is_own(path: &Path) -> Result<(), Failure> {
    use std::os::unix::fs::PermissionsExt;
    let mode = std::fs::metadata(path)?.permissions().mode() & 0o777;
    if mode & 0o077 == 0 {
        return Ok(());
    }
    let path = path.display();
    Err(Failure::wrong(format!("others can read {path}, which has the mode {mode:03o}: `chmod 600 {path}`")))
}

#[cfg(not(unix))]
fn is_own(_: &Path) -> Result<(), Failure> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::servers_of;

    #[test]
    fn a_server_is_the_same_whoever_knocks_and_however_it_is_written() {
        let server_of = |url: &str| servers_of(url).into_iter().collect::<Vec<_>>().join(" ");
        let told =
            ["redis://:pw@Live.internal", "rediss://live.internal:6379/0", "redis://live.internal/"].map(server_of);
        assert_eq!(told, ["live.internal:6379/0"; 3]);
        let watched = |service: &str| servers_of(&format!("redis-sentinel://10.0.0.1?sentinelServiceName={service}"));
        assert!(watched("prod").is_disjoint(&watched("staging")) && watched("prod") == watched("prod"));
        let cluster = servers_of("redis-cluster://10.0.0.1:7000?node=10.0.0.2:7001");
        for same in [
            "redis-cluster://10.0.0.2:7001?node=10.0.0.1:7000",
            "redis-cluster://user:p@w?/d@10.0.0.1:7000?node=10.0.0.9:1",
        ] {
            assert!(!servers_of(same).is_disjoint(&cluster), "{same}");
        }
        for same in [
            "redis://10.0.0.1:7000/0?x=a@b",
            "redis://:p@10.0.0.1:7000#@b",
            "redis://10.0.\t0.1:7000",
            "redis://10.0.0.1:7000 ",
            "\u{1}redis://10.0.0.1:7000\u{1}",
        ] {
            assert!(!servers_of(same).is_disjoint(&cluster), "{same}");
        }
        assert!(servers_of("redis-cluster://u:p@10.0.0.3:7000?node=10.0.0.4:7001").is_disjoint(&cluster));
        assert_eq!(server_of("redis://localhost:7000/2"), "loopback:7000/2");
        let own = ["127.0.0.1", "127.1", "[::1]:6379", "localhost:06379/00", "127.0.0.1//", "LOCALHOST./0/"];
        assert!(own.iter().all(|place| server_of(&format!("redis://{place}")) == "loopback:6379/0"));
        for same in ["0", "0x7f.1", "0177.0.0.1", "0.0.0.0", "[::]"] {
            assert_eq!(server_of(&format!("redis://{same}:6379")), "loopback:6379/0", "{same}");
        }
        let (dir, name) = (std::env::temp_dir(), format!("heartline-context-{}", std::process::id()));
        std::fs::write(dir.join(&name), "").unwrap();
        let spelled = [format!("unix://{}/{name}", dir.display()), format!("redis+unix://{}/./{name}", dir.display())];
        let own = spelled.map(|socket| server_of(&socket));
        for more in ["?user=ann&pass=x", "?db=0"] {
            assert_eq!(server_of(&format!("unix://{}/{name}{more}", dir.display())), own[0], "{more}");
        }
        assert_ne!(server_of(&format!("unix://{}/{name}?db=1", dir.display())), own[0]);
        std::fs::remove_file(dir.join(&name)).unwrap();
        assert!(own.iter().all(|place| *place == own[0]), "{own:?}");
        assert_eq!(server_of("redis://[fe80::1]"), "fe80::1:6379/0");
        assert_ne!(server_of("redis://live.internal:6380"), server_of("redis://live.internal"));
    }
}
