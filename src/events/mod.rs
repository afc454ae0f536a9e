//! Events of jobs and workflows: their content, how a stream entry is decoded, and the subscriptions to them.
//!
//! Every script call that changes something adds one entry to the event stream of its task. The [`hub`] of an App has a
//! [`reader`] of the streams of all its tasks, over one connection. The reader passes them on through a [`channel`].

pub(crate) mod channel;
pub(crate) mod decode;
pub(crate) mod event;
pub(crate) mod hub;
pub(crate) mod position;
pub(crate) mod reader;
pub(crate) mod result_poller;
pub(crate) mod result_waiter;
pub(crate) mod source;
pub(crate) mod stream_event;
pub(crate) mod subscription;
pub(crate) mod workflow_event;
