//! The guide, in the order of a first week. The same pages are in `docs/guide` of the repository.
//!
//! | for | page |
//! |---|---|
//! | a web process and a worker: tasks, dispatch, results, progress, cancel, errors, state, tests | [`first_service`] |
//! | how often and when a job runs again, limits of time | [`retries`] |
//! | jobs at set times | [`recurring`] |
//! | no second job with the same key: unique jobs, replace, debounce | [`unique`] |
//! | how many jobs run or start, over all workers and per key; keys in turn | [`limits`] |
//! | graphs of jobs that survive the death of any worker | [`workflows`] |
//! | guarantees, how dead workers are found, recovery, hooks, checkpoints | [`guarantees`] |
//! | every option and its default; Redis, shutdown, deploys, alerts, logs | [`production`] |
//! | Sentinel, Redis Cluster, partitions, capacity | [`engines`] |
//! | inspecting, retrying, pausing, repairing; probes; troubleshooting | [`operating`] |
//! | the command line and the web page | [`command_line`], [`web_page`] |
//! | tests of your handlers and flows | [`testing`] |
//! | measurements, compared with Redis and with other queues | [`performance`] |
//! | the terms and options of other queues | [`coming_from`] |
//! | webhooks, reports, jobs that dispatch jobs, tenants, code that blocks, `anyhow`, fan-out | [`recipes`] |

/// Pages that link to each other. On docs.rs, links lead to modules instead of files: the first definition of a link counts.
macro_rules! pages {
    ($($(#[$condition:meta])* $page:ident = $file:literal),* $(,)?) => {
        $(
            $(#[$condition])*
            #[doc = "[alerts]: crate::guide::production#alerts-worth-having"]
            #[doc = "[blocking]: crate::guide::recipes#code-that-blocks"]
            #[doc = "[board]: crate::guide::web_page"]
            #[doc = "[checkpoints]: crate::guide::guarantees#what-the-next-run-knows"]
            #[doc = "[coming_from]: crate::guide::coming_from"]
            #[doc = "[command_line]: crate::guide::command_line"]
            #[doc = "[deploys]: crate::guide::production#deploys"]
            #[doc = "[dispatching]: crate::guide::recipes#a-job-that-dispatches-jobs"]
            #[doc = "[encryption]: crate::guide::production#encryption"]
            #[doc = "[engines]: crate::guide::engines"]
            #[doc = "[fan_out]: crate::guide::recipes#fan-out"]
            #[doc = "[first_service]: crate::guide::first_service"]
            #[doc = "[guarantees]: crate::guide::guarantees"]
            #[doc = "[hooks]: crate::guide::guarantees#hooks-what-runs-when-a-job-has-ended"]
            #[doc = "[ids]: crate::guide::first_service#dispatching"]
            #[doc = "[layers]: crate::guide::first_service#code-around-each-run"]
            #[doc = "[limits]: crate::guide::limits"]
            #[doc = "[logs]: crate::guide::production#logs-and-metrics"]
            #[doc = "[metrics]: crate::guide::command_line#metrics"]
            #[doc = "[operating]: crate::guide::operating"]
            #[doc = "[partitions]: crate::guide::engines#partitions-one-task-over-several-primaries"]
            #[doc = "[performance]: crate::guide::performance"]
            #[doc = "[prefetch]: crate::guide::performance#short-jobs-at-a-low-concurrency"]
            #[doc = "[production]: crate::guide::production"]
            #[doc = "[progress]: crate::guide::first_service#progress"]
            #[doc = "[recipes]: crate::guide::recipes"]
            #[doc = "[recurring]: crate::guide::recurring"]
            #[doc = "[redis]: crate::guide::production#redis"]
            #[doc = "[rest]: crate::guide::limits#when-another-service-says-stop"]
            #[doc = "[restarts]: crate::guide::guarantees#restarts-and-exclusive-names"]
            #[doc = "[retries]: crate::guide::retries"]
            #[doc = "[shutdown]: crate::guide::production#shutdown"]
            #[doc = "[stop]: crate::guide::first_service#cancel-and-stop"]
            #[doc = "[testing]: crate::guide::testing"]
            #[doc = "[twice]: crate::guide::guarantees#execution-is-at-least-once"]
            #[doc = "[unique]: crate::guide::unique"]
            #[doc = "[weights]: crate::guide::limits#one-key-at-run-time"]
            #[doc = "[workflows]: crate::guide::workflows"]
            #[doc = ""]
            #[doc = include_str!(concat!("../docs/guide/", $file, ".md"))]
            pub mod $page {}
        )*
    };
}

pages! {
    #[cfg(feature = "schedules")]
    first_service = "first-service",
    retries = "retries",
    #[cfg(feature = "schedules")]
    recurring = "recurring",
    unique = "unique",
    limits = "limits",
    workflows = "workflows",
    guarantees = "guarantees",
    production = "production",
    engines = "engines",
    operating = "operating",
    command_line = "command-line",
    web_page = "board",
    #[cfg(feature = "testing")]
    testing = "testing",
    performance = "performance",
    coming_from = "coming-from",
    #[cfg(feature = "schedules")]
    recipes = "recipes",
}
