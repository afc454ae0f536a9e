//! A key of a task: its limits, why its jobs wait, who holds others, and the actions on it.

use std::sync::Arc;

use askama::Template;
use axum::extract::{Query, State};
use axum::http::request::Parts;
use heartline::inspect::describe::{lane_limits, waits_because};
use heartline::inspect::text::span;
use heartline::{Error, Inspector, Lane, Limit, Rate};
use serde::Deserialize;

use crate::frame::Frame;
use crate::state::{Board, PageResult, answer, encoded};

#[derive(Deserialize)]
pub(crate) struct Asked {
    task: String,
    key: String,
}

#[derive(Template)]
#[template(path = "lane.html")]
struct LanePage {
    frame: Frame,
    task: String,
    key: String,
    facts: Vec<(&'static str, String)>,
    is_paused: bool,
    has_settings: bool,
    /// The values of the form: how many jobs may run, how many may start within which window, and the weight.
    form: LaneForm,
    /// The held jobs: id, worker, and for how long.
    holders: Vec<(String, String, String)>,
}

/// The settings of a key in a form. Empty: none.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct LaneForm {
    pub(crate) running: String,
    pub(crate) starts: String,
    pub(crate) window: String,
    pub(crate) weight: String,
}

impl LaneForm {
    fn of(lane: &Lane) -> LaneForm {
        let text = |number: Option<u64>| number.map_or_else(String::new, |number| number.to_string());
        LaneForm {
            running: text(lane.running),
            starts: text(lane.rate.map(|rate| rate.starts)),
            window: lane.rate.map_or_else(String::new, |rate| humantime::format_duration(rate.window).to_string()),
            weight: lane.weight.to_string(),
        }
    }

    fn limits(&self) -> [&str; 3] {
        [self.running.trim(), self.starts.trim(), self.window.trim()]
    }

    /// The fields of a form, with their names.
    pub(crate) fn fields(&self) -> [(&'static str, &String); 4] {
        let LaneForm { running, starts, window, weight } = self;
        [("running", running), ("starts", starts), ("window", window), ("weight", weight)]
    }

    /// The limits and the weight, or what is wrong.
    fn parse(&self) -> Result<(Limit, u32), String> {
        let number = |what: &str, text: &str| {
            text.trim().parse().map_err(|_| format!("{what} must be a whole number, not {text:?}"))
        };
        let mut limit = Limit::new();
        if !self.running.trim().is_empty() {
            limit = limit.running(number("The number of running jobs", &self.running)?);
        }
        if !self.starts.trim().is_empty() {
            let window = humantime::parse_duration(self.window.trim())
                .map_err(|e| format!("{:?} is not a time span such as 1m: {e}", self.window))?;
            limit = limit.rate(Rate::new(number("The number of starts", &self.starts)?, window));
        }
        let weight = if self.weight.trim().is_empty() { 1 } else { number("The weight", &self.weight)? };
        if !(1..=100).contains(&weight) {
            return Err(format!("The weight must be 1 to 100, not {weight}"));
        }
        Ok((limit, weight))
    }
}

/// The address of the page of a key.
pub(crate) fn url(board: &Board, task: &str, key: &str) -> String {
    board.url(&format!("/lane?task={}&key={}", encoded(task), encoded(key)))
}

pub(crate) async fn page(State(board): State<Arc<Board>>, head: Parts, Query(asked): Query<Asked>) -> PageResult {
    board.must_know(&asked.task).await?;
    let read = async { board.inspector.lanes(&asked.task)?.get(&asked.key).await };
    let found = board.or_failed(read.await)?;
    let (frame, now) = (board.frame(&head), board.inspector.now().await);
    let lane = &found.lane;
    let by = lane.own.as_ref().map(|own| own.by.clone());
    let facts = [
        Some(("Waiting", lane.waiting.to_string())),
        (lane.waiting > 0 || lane.limit.is_some()).then(|| ("Waits because", waits_because(&found, now))),
        Some(("Held", lane.held.to_string())),
        Some(("Limits", lane_limits(lane))).filter(|(_, limits)| !limits.is_empty()),
        by.map(|by| ("Settings of its own by", by)),
    ];
    let held = found.holders.iter().map(|held| {
        let long = span(now.duration_since(held.since).unwrap_or_default());
        (held.job.to_string(), held.worker.to_string(), long)
    });
    Ok(answer(&LanePage {
        frame,
        facts: facts.into_iter().flatten().collect(),
        is_paused: lane.own.as_ref().is_some_and(|own| own.is_paused),
        has_settings: lane.own.is_some(),
        form: LaneForm::of(lane),
        holders: held.collect(),
        task: asked.task,
        key: asked.key,
    }))
}

/// Runs an action on a key, and returns the result as text.
pub(crate) async fn act(
    inspector: &Inspector,
    act: &str,
    task: &str,
    key: &str,
    form: &LaneForm,
) -> Result<String, Error> {
    let lanes = inspector.lanes(task)?;
    Ok(match act {
        "lane_pause" => match lanes.pause(key).await? {
            true => format!("{key} is paused: none of its jobs starts; running jobs continue."),
            false => format!("{key} was already paused."),
        },
        "lane_resume" => match lanes.resume(key).await? {
            true => format!("{key} is resumed."),
            false => format!("{key} was not paused."),
        },
        "lane_reset" => {
            lanes.reset(key).await?;
            format!("{key} has no settings of its own any more.")
        }
        _ => match form.parse() {
            Ok((limit, weight)) => {
                // The form shows the limits of the task: those that were not changed are not written as the key's own.
                if LaneForm::of(&lanes.get(key).await?.lane).limits() != form.limits() {
                    lanes.set(key, limit).await?;
                }
                lanes.set_weight(key, weight).await?;
                let now = lane_limits(&lanes.get(key).await?.lane);
                format!("{key} has {}.", if now.is_empty() { "no limits" } else { &now })
            }
            Err(wrong) => format!("{wrong}. Nothing was done."),
        },
    })
}
