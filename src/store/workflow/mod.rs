//! Workflows in Redis: what writes their instances, moves them on, and reads them. All keys of a workflow are in one table.

pub(crate) mod advance;
pub(crate) mod control;
pub(crate) mod instances;
pub(crate) mod nodes;
pub(crate) mod outbox;
pub(crate) mod start;
pub(crate) mod upkeep;
