//! The guide: a page for each purpose. The same pages are in `docs/guide` of the repository.
//!
//! | for | page |
//! |---|---|
//! | what holds, how dead workers are found, what happens to their jobs, hooks, checkpoints | [`guarantees`] |
//! | graphs of jobs that go on whoever dies | [`workflows`] |
//! | every option and its default | [`options`] |
//! | Redis settings, shutdown, deploys, alerts, logs | [`production`] |
//! | Sentinel, Redis Cluster, partitions, capacity | [`engines`] |
//! | seeing and steering what runs, probes, repair | [`operating`] |
//! | the same at a terminal, and in a browser | [`command_line`], [`web_page`] |
//! | what to do, by what you see | [`troubleshooting`] |
//! | tests of your handlers and flows | [`testing`] |
//! | how fast it is, next to Redis and to other queues | [`performance`] |
//! | words and options of other queues | [`coming_from`] |

/// Pages that link to each other: here the modules take the place of the files.
macro_rules! pages {
    ($($page:ident = $file:literal),* $(,)?) => {
        $(
            #[doc = "[coming_from]: crate::guide::coming_from\n[guarantees]: crate::guide::guarantees\n[options]: crate::guide::options\n\n"]
            #[doc = include_str!(concat!("../docs/guide/", $file, ".md"))]
            pub mod $page {}
        )*
    };
}

pages! {
    guarantees = "guarantees",
    workflows = "workflows",
    options = "options",
    production = "production",
    engines = "engines",
    operating = "operating",
    command_line = "command-line",
    web_page = "board",
    troubleshooting = "troubleshooting",
    performance = "performance",
    coming_from = "coming-from",
}

#[cfg(feature = "testing")]
#[doc = include_str!("../docs/guide/testing.md")]
pub mod testing {}
