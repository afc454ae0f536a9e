//! What every page shows around its content: the environment, the navigation, and what the person may do.

use axum::http::request::Parts;
use axum::http::uri::PathAndQuery;
use heartline::inspect::text::placed;

use crate::options::{BoardOptions, Colour};
use crate::state::{ACTS, Board};
use crate::zone::Zone;

/// What every page shows around its content.
#[derive(Clone)]
pub(crate) struct Frame {
    pub(crate) name: String,
    pub(crate) colour: &'static str,
    pub(crate) base: String,
    /// The server and the prefix.
    pub(crate) place: String,
    /// The options for server and prefix, added to the commands that messages suggest.
    options: String,
    pub(crate) is_production: bool,
    pub(crate) is_read_only: bool,
    pub(crate) has_sessions: bool,
    /// The page of the navigation that this page belongs to, and whether it is that page itself.
    pub(crate) section: (&'static str, bool),
    /// The address of the page.
    pub(crate) url: String,
    /// The time zone of the person.
    pub(crate) zone: Zone,
    may: Vec<&'static str>,
}

impl Frame {
    /// The address of the overview. It has no trailing slash, since axum serves a nested router without one.
    pub(crate) fn home(&self) -> &str {
        if self.base.is_empty() { "/" } else { &self.base }
    }

    /// The value of `aria-current` for a page of the navigation; empty if this page does not belong to it.
    pub(crate) fn current(&self, page: &str) -> &'static str {
        match self.section {
            (section, _) if section != page => "",
            (_, true) => "page",
            (_, false) => "true",
        }
    }

    /// The line, with complete options in the commands that it suggests.
    pub(crate) fn placed(&self, line: &str) -> String {
        placed(line, &self.options)
    }

    /// Whether the person may use this action.
    pub(crate) fn may(&self, act: &str) -> bool {
        self.may.contains(&act)
    }

    /// Those actions that the person may use.
    pub(crate) fn offered<T>(&self, acts: Vec<(&'static str, T, bool)>) -> Vec<(&'static str, T, bool)> {
        acts.into_iter().filter(|(act, ..)| self.may(act)).collect()
    }
}

impl Board {
    pub(crate) fn frame(&self, head: &Parts) -> Frame {
        let BoardOptions { name, colour, base, is_production, is_read_only, token, .. } = &self.options;
        Frame {
            name: name.clone(),
            colour: colour.map_or("", Colour::as_str),
            base: base.clone(),
            place: format!("{} under the prefix {}", self.inspector.server_url(), self.inspector.prefix()),
            options: self.command_options(),
            is_production: *is_production,
            is_read_only: *is_read_only,
            has_sessions: token.is_some(),
            zone: Zone::of(&head.headers),
            section: section(head.uri.path()),
            url: self.url(head.uri.path_and_query().map_or("", PathAndQuery::as_str)),
            may: ACTS.into_iter().filter(|act| self.may(head, act)).collect(),
        }
    }
}

/// The page of the navigation to which a path belongs, and whether it is that page itself.
fn section(path: &str) -> (&'static str, bool) {
    match path {
        "/" | "" => ("overview", true),
        "/task" | "/jobs" | "/job" | "/dispatch" | "/lanes" | "/lane" | "/acts" => ("overview", false),
        "/workers" => ("workers", true),
        "/worker" => ("workers", false),
        "/running" => ("running", true),
        "/flows" => ("flows", true),
        "/flow" | "/instance" => ("flows", false),
        "/schedules" => ("schedules", true),
        "/schedule" => ("schedules", false),
        "/stalls" => ("stalls", true),
        "/audit" => ("audit", true),
        "/server" => ("server", true),
        _ => ("", false),
    }
}
