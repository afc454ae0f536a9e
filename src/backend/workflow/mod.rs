//! Workflows in Redis: writes, advances and reads their instances. All keys of a workflow are in one table.

pub(crate) mod advance;
pub(crate) mod control;
pub(crate) mod instances;
pub(crate) mod nodes;
pub(crate) mod outbox;
pub(crate) mod start;
pub(crate) mod upkeep;
