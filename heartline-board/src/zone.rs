//! The time zone of a person, from a cookie. Without one, times are in UTC.

use std::time::{Duration, SystemTime};

use axum::http::{HeaderMap, header};
use heartline::inspect::text::rfc3339;
use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};

/// The name of the cookie.
pub(crate) const COOKIE: &str = "heartline_zone";

/// A time on the same day is shown without its date.
const DAY: Duration = Duration::from_secs(20 * 3600);

/// The length of a time in a text.
const LENGTH: usize = "2026-11-30T00:53:20.000Z".len();

/// A time zone.
#[derive(Clone)]
pub(crate) struct Zone(TimeZone);

impl Zone {
    /// The zone of this name, such as `Europe/Berlin`.
    pub(crate) fn named(name: &str) -> Option<Zone> {
        TimeZone::get(name.trim()).ok().map(Zone)
    }

    /// The zone of the sender of a request.
    pub(crate) fn of(head: &HeaderMap) -> Zone {
        let cookies = head.get_all(header::COOKIE).iter().filter_map(|cookies| cookies.to_str().ok());
        let mut pairs = cookies.flat_map(|cookies| cookies.split(';')).filter_map(|pair| pair.trim().split_once('='));
        let name = pairs.find(|(name, _)| *name == COOKIE).map(|(_, zone)| zone);
        name.and_then(Zone::named).unwrap_or(Zone(TimeZone::UTC))
    }

    pub(crate) fn name(&self) -> &str {
        self.0.iana_name().unwrap_or("UTC")
    }

    /// The time of day, with the date if it is long ago or far ahead.
    pub(crate) fn short(&self, at: &SystemTime, now: &SystemTime) -> String {
        let far = now.duration_since(*at).unwrap_or_else(|e| e.duration());
        match self.at(*at) {
            Some(at) if far < DAY => at.strftime("%H:%M:%S").to_string(),
            Some(at) => at.strftime("%b %d %H:%M").to_string(),
            None => rfc3339(*at),
        }
    }

    /// The date and the time, and the same in UTC.
    pub(crate) fn full(&self, at: &SystemTime) -> String {
        let utc = rfc3339(*at);
        match self.at(*at) {
            Some(at) if self.0 != TimeZone::UTC => {
                format!("{} {} · {utc}", at.strftime("%Y-%m-%d %H:%M:%S"), self.name())
            }
            _ => utc,
        }
    }

    /// The date and the time.
    pub(crate) fn long(&self, at: &SystemTime) -> String {
        self.at(*at).map_or_else(|| rfc3339(*at), |at| at.strftime("%Y-%m-%d %H:%M:%S").to_string())
    }

    /// The parts of a text, with the times in it.
    pub(crate) fn parts<'a>(&self, text: &'a str) -> Vec<(&'a str, Option<SystemTime>)> {
        let (mut parts, mut done) = (Vec::new(), 0);
        for end in text.match_indices('Z').map(|(at, _)| at + 1) {
            let begin = end.saturating_sub(LENGTH).max(done);
            let time = text.get(begin..end).and_then(|time| time.parse::<Timestamp>().ok());
            if let Some(time) = time {
                parts.extend([(&text[done..begin], None), (&text[begin..end], Some(time.into()))]);
                done = end;
            }
        }
        parts.push((&text[done..], None));
        parts
    }

    fn at(&self, at: SystemTime) -> Option<Zoned> {
        Some(Timestamp::try_from(at).ok()?.to_zoned(self.0.clone()))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_time_is_local_and_its_title_has_utc() {
        let at = SystemTime::UNIX_EPOCH + Duration::from_secs(1_796_000_000);
        let head = HeaderMap::from_iter([(header::COOKIE, "a=b; heartline_zone=Europe/Berlin".parse().unwrap())]);
        let berlin = Zone::of(&head);
        assert_eq!(berlin.short(&at, &at), "01:53:20");
        assert_eq!(berlin.short(&at, &(at + Duration::from_secs(90_000))), "Nov 30 01:53");
        assert_eq!(berlin.full(&at), "2026-11-30 01:53:20 Europe/Berlin · 2026-11-30T00:53:20.000Z");
        assert_eq!(berlin.long(&at), "2026-11-30 01:53:20");
        let text = "ü, 2026-11-30T00:53:20.000Z (3s ago), Z (x";
        let time = ("2026-11-30T00:53:20.000Z", Some(at));
        assert_eq!(berlin.parts(text), [("ü, ", None), time, (" (3s ago), Z (x", None)]);
        let utc = Zone::of(&HeaderMap::new());
        assert_eq!(
            (utc.short(&at, &at), utc.full(&at)),
            ("00:53:20".to_owned(), "2026-11-30T00:53:20.000Z".to_owned())
        );
        assert!(Zone::named("Europe/Nowhere").is_none() && utc.name() == "UTC");
    }

    #[test]
    fn any_cookie_gives_a_zone() {
        let name = "[A-Za-z]{1,8}/[A-Za-z_+0-9.-]{0,12}|[./]{0,20}[a-z/]{0,12}|\\PC{0,20}";
        proptest!(|(name in name, seconds: i64)| {
            let Ok(cookie) = format!("a=b; {COOKIE}={name}").parse() else { return Ok(()) };
            let zone = Zone::of(&HeaderMap::from_iter([(header::COOKIE, cookie)]));
            let time = Duration::from_secs(seconds.unsigned_abs() / 2);
            let at = if seconds < 0 { SystemTime::UNIX_EPOCH.checked_sub(time) } else { SystemTime::UNIX_EPOCH.checked_add(time) };
            if let Some(at) = at {
                let _ = (zone.name(), zone.short(&at, &SystemTime::UNIX_EPOCH), zone.full(&at));
            }
        });
    }
}
