//! The guide: a page for each purpose. The same pages are in `docs/guide` of the repository.
//!
//! | for | page |
//! |---|---|
//! | guarantees, how dead workers are found, recovery, hooks, checkpoints | [`guarantees`] |
//! | graphs of jobs that survive the death of any worker | [`workflows`] |
//! | jobs at set times | [`recurring`] |
//! | no second job with the same key: unique jobs, replace, debounce | [`unique`] |
//! | how many jobs run or start, over all workers and per key; keys in turn | [`limits`] |
//! | every option and its default; Redis, shutdown, deploys, alerts, logs | [`production`] |
//! | Sentinel, Redis Cluster, partitions, capacity | [`engines`] |
//! | inspecting, retrying, pausing, repairing; probes; troubleshooting | [`operating`] |
//! | the command line and the web page | [`command_line`], [`web_page`] |
//! | tests of your handlers and flows | [`testing`] |
//! | measurements, compared with Redis and with other queues | [`performance`] |
//! | the terms and options of other queues | [`coming_from`] |

/// Pages that link to each other. On docs.rs, links lead to modules instead of files: the first definition of a link counts.
macro_rules! pages {
    ($($(#[$condition:meta])* $page:ident = $file:literal),* $(,)?) => {
        $(
            $(#[$condition])*
            #[doc = "[board]: crate::guide::web_page"]
            #[doc = "[coming_from]: crate::guide::coming_from"]
            #[doc = "[command_line]: crate::guide::command_line"]
            #[doc = "[engines]: crate::guide::engines"]
            #[doc = "[guarantees]: crate::guide::guarantees"]
            #[doc = "[hooks]: crate::guide::guarantees#hooks-what-runs-when-a-job-has-ended"]
            #[doc = "[limits]: crate::guide::limits"]
            #[doc = "[logs]: crate::guide::production#logs-and-metrics"]
            #[doc = "[metrics]: crate::guide::command_line#metrics"]
            #[doc = "[operating]: crate::guide::operating"]
            #[doc = "[partitions]: crate::guide::engines#partitions-one-task-over-several-primaries"]
            #[doc = "[performance]: crate::guide::performance"]
            #[doc = "[prefetch]: crate::guide::performance#short-jobs-at-a-low-concurrency"]
            #[doc = "[production]: crate::guide::production"]
            #[doc = "[recurring]: crate::guide::recurring"]
            #[doc = "[restarts]: crate::guide::guarantees#restarts-and-exclusive-names"]
            #[doc = "[testing]: crate::guide::testing"]
            #[doc = "[unique]: crate::guide::unique"]
            #[doc = "[workflows]: crate::guide::workflows"]
            #[doc = ""]
            #[doc = include_str!(concat!("../docs/guide/", $file, ".md"))]
            pub mod $page {}
        )*
    };
}

pages! {
    guarantees = "guarantees",
    workflows = "workflows",
    #[cfg(feature = "schedules")]
    recurring = "recurring",
    unique = "unique",
    limits = "limits",
    production = "production",
    engines = "engines",
    operating = "operating",
    command_line = "command-line",
    web_page = "board",
    performance = "performance",
    coming_from = "coming-from",
}

#[cfg(feature = "testing")]
#[doc = include_str!("../docs/guide/testing.md")]
pub mod testing {}
