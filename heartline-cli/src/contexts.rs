//! Contexts: servers that people have given names to, in a file of their own.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

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
    #[serde(default)]
    production: bool,
}

/// Which server a command talks to.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) url: String,
    /// Who says so, for people.
    pub(crate) from: String,
    pub(crate) prefix: String,
    /// The context that it is, if it is one.
    pub(crate) context: Option<String>,
    pub(crate) is_production: bool,
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
        let contexts = Contexts::read()?;
        let name = match &global.context {
            Some(name) => Some(name),
            None if global.told_url().is_some() => None,
            None => contexts.default.as_ref(),
        };
        let named = name.map(|name| contexts.named(name)).transpose()?;
        let (url, from) = match (&global.redis, name.zip(named)) {
            (None, Some((name, named))) => (named.url(name)?, format!("that of the context {name}")),
            _ => match global.told_url() {
                Some((url, from)) => (url, format!("that of {from}")),
                None => {
                    ("redis://127.0.0.1:6379".to_owned(), "the default, as nobody says another: see --redis".to_owned())
                }
            },
        };
        let prefix = global.prefix.clone().or_else(|| named.and_then(|named| named.prefix.clone()));
        Ok(Place {
            url,
            from,
            prefix: prefix.unwrap_or_else(|| PREFIX.to_owned()),
            context: name.cloned(),
            is_production: named.is_some_and(|named| named.production),
        })
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
