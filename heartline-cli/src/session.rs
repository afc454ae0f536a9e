//! The connection of one command.

use heartline::{App, Inspector};

use crate::args::Global;
use crate::ask::Consent;
use crate::contexts::Place;
use crate::failure::Failure;
use crate::output::Output;

/// What every command works with.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) inspector: Inspector,
    pub(crate) out: Output,
    /// Who acts.
    pub(crate) by: String,
    /// What was said about acts beforehand.
    pub(crate) consent: Consent,
    /// The name of the context, if it is one.
    pub(crate) context: Option<String>,
    /// Where that is, for people: the server without a password, and the prefix.
    pub(crate) place: String,
}

impl Session {
    /// Connects, as the global options say; one that lasts does so when it first asks, and again whenever it must.
    pub(crate) async fn open(global: &Global, lasts: bool) -> Result<Session, Failure> {
        let place = Place::of(global)?;
        let app = connect(&place, global, lasts).await?;
        let production = place.context.clone().filter(|_| place.is_production);
        let out = Output::of(global);
        match (&global.confirm, &production) {
            (Some(said), named) if named.as_ref() != Some(said) => {
                let is =
                    named.as_ref().map_or("no context of production".to_owned(), |name| format!("the context {name}"));
                return Err(Failure::wrong(format!("--confirm says {said}, and this is {is}; nothing was done")));
            }
            (None, Some(name)) => out.hint(format!("on {name}, which is production")),
            _ => {}
        }
        let (confirmed, unknown) = (global.confirm.clone(), place.unknown.clone());
        let consent = Consent { yes: global.yes, production, confirmed, unknown };
        let by = global.by();
        let told = format!("{} under the prefix {}", without_password(&place.url), place.prefix);
        Ok(Session { inspector: app.inspector().by(&by), by, out, consent, context: place.context, place: told })
    }
}

/// The App of one command.
pub(crate) async fn connect(place: &Place, global: &Global, lasts: bool) -> Result<App, Failure> {
    if global.tells_password() {
        say!("warning: others on this machine can read the password in --redis; set HEARTLINE_REDIS in its place");
    }
    let app = place.app(&place.prefix);
    let built = if lasts { app.lazy() } else { app }.build().await;
    built.map_err(|e| match Failure::from(e) {
        Failure::Failed(what) => Failure::Failed(format!("{what} (the address is {})", place.from)),
        Failure::Away(what) => Failure::Away(format!("{what} (the address is {})", place.from)),
        wrong => wrong,
    })
}

/// An address without who knocks there, and without what it asks for.
pub(crate) fn without_password(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return "an address of another kind".to_owned() };
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    // What is no part of an address may be one of a password.
    let is_odd = authority.contains(['?', '#']) || !authority.contains('@');
    if is_odd && rest.contains('@') {
        return format!("{scheme}://(not shown)");
    }
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let of = |part: &str| part.split(['?', '#']).next().unwrap_or_default().trim_end_matches('/').to_owned();
    format!("{scheme}://{}", heartline_board::text::shown(&format!("{}{}", of(host), of(path))))
}

#[cfg(test)]
mod tests {
    use super::without_password;

    #[test]
    fn an_address_is_told_without_its_password() {
        let told =
            ["redis://a:b@c@host:1/2?password=x", "redis://host/", "rediss://:s3cret@host:1"].map(without_password);
        assert_eq!(told, ["redis://host:1/2", "redis://host", "rediss://host:1"]);
        let told = ["redis://:pw@host:1/?x=a@b", "redis://host:1#a@b", "redis://:p?w@host", "unix:///run/redis.sock"];
        let told = told.map(without_password);
        assert_eq!(told, ["redis://host:1", "redis://(not shown)", "redis://(not shown)", "unix:///run/redis.sock"]);
        let told = without_password("redis-sentinel://:pw@a:1/2?sentinelServiceName=main&sentinelPassword=x");
        assert_eq!(told, "redis-sentinel://a:1/2");
    }
}
