//! Reads inputs and outcomes of nodes that a script did not copy, since they might exceed the output buffer of the server.

use std::sync::Arc;

use futures_util::future::BoxFuture;

use super::WorkflowProgress;
use crate::backend::keys::TaskKeys;
use crate::backend::large_value::{self, Unread};
use crate::backend::narrow::unreadable;
use crate::backend::timeouts::response_time;
use crate::backend::values::{self, ValuePlace};
use crate::backend::workflow::advance::{Ended, NodeEnd};
use crate::backend::workflow::outbox::Found;
use crate::backend::workflow::start::ToSend;
use crate::error::Error;
use crate::job::failure::{StoredError, codes};
use crate::join::try_join_all;
use crate::limits::{LARGE, NARROW_BYTES};

impl WorkflowProgress {
    /// Reads small values in calls of at most 16 KiB, which every server can send.
    async fn small_values(&self, keys: &TaskKeys, places: &[&ValuePlace]) -> Result<Vec<Option<Vec<u8>>>, Error> {
        let (mut found, mut rest) = (Vec::with_capacity(places.len()), places);
        while !rest.is_empty() {
            let mut bytes = 0;
            let fits = |place: &&&ValuePlace| {
                bytes += place.bytes;
                bytes <= NARROW_BYTES
            };
            let (some, others) = rest.split_at(rest.iter().take_while(fits).count().max(1));
            let read = async |conn: &mut _| values::many(conn, keys, some.iter().copied()).await;
            found.extend(self.store.read(response_time(NARROW_BYTES), read).await?);
            rest = others;
        }
        Ok(found)
    }

    /// Reads a large value.
    pub(in crate::workflow) fn large_value<'a>(
        &'a self,
        keys: &'a TaskKeys,
        place: &'a ValuePlace,
    ) -> BoxFuture<'a, Result<Option<Vec<u8>>, Unread>> {
        Box::pin(async move {
            if place.bytes <= LARGE {
                let read = async |conn: &mut _| values::value(conn, keys, place.column, &place.field).await;
                match self.store.read(response_time(place.bytes), read).await {
                    // The server may be unable to send the value. A read on a separate connection shows whether it is.
                    Err(e) if e.is_broken() => {}
                    read => return read.map_err(Unread::Failed),
                }
            }
            large_value::read(&self.store, keys, place).await
        })
    }

    /// Reads the small inputs of nodes, and removes their places.
    pub(super) async fn read_inputs(&self, keys: &TaskKeys, nodes: &mut [ToSend]) -> Result<(), Error> {
        let places: Vec<&ValuePlace> = nodes.iter().filter_map(|node| node.place.as_ref()).collect();
        let read = self.small_values(keys, &places).await?;
        let unread = nodes.iter_mut().filter(|node| node.place.is_some());
        unread.zip(read).for_each(|(node, payload)| node.is_read(payload));
        Ok(())
    }

    /// Reads the values and failures of ended jobs of one table. Leaves out jobs that were removed meanwhile.
    pub(super) async fn with_outcomes(&self, table: &Arc<TaskKeys>, found: Vec<Found>) -> Result<Vec<Ended>, Error> {
        let small: Vec<&ValuePlace> =
            found.iter().filter_map(|(_, place)| place.as_ref()).filter(|place| place.is_small()).collect();
        let mut read = self.small_values(table, &small).await?.into_iter();
        let ended = found.into_iter().map(|(node, place)| {
            let mut ended = Ended { node, table: Some(Arc::clone(table)) };
            let said = place.as_ref().filter(|place| place.is_small()).and_then(|_| read.next());
            async move {
                match (place, said) {
                    (None, _) => Ok(Some(ended)),
                    (Some(place), None) => self.with_outcome(table, ended, &place).await,
                    (Some(_), Some(said)) => Ok(said.map(|said| {
                        ended.node.said = said;
                        ended
                    })),
                }
            }
        });
        Ok(try_join_all(ended).await?.into_iter().flatten().collect())
    }

    /// Reads the value or failure of an ended job. `None` if it does not exist. If the server cannot send it, the node fails.
    pub(super) async fn with_outcome(
        &self,
        table: &TaskKeys,
        mut ended: Ended,
        place: &ValuePlace,
    ) -> Result<Option<Ended>, Error> {
        match self.large_value(table, place).await {
            Ok(Some(said)) => ended.node.said = said,
            Ok(None) => return Ok(None),
            Err(Unread::Failed(e)) => return Err(e),
            Err(Unread::TooLarge(e)) => {
                let id = &ended.node.id;
                tracing::warn!(workflow = id.definition, instance = id.instance, node = id.node, bytes = place.bytes,
                    error = %e.chain(),
                    "redis closes the connection each time it sends the value of a node, so the node fails; the client-output-buffer-limit of redis may be too small");
                let (code, message) = (codes::RESULT_NOT_AVAILABLE.to_owned(), unreadable("value", place.bytes, &e));
                ended.node.said = StoredError { code, message }.to_json().into_bytes();
                ended.node.end = NodeEnd::Failed;
            }
        }
        Ok(Some(ended))
    }
}
