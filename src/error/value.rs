//! Values as they are stored: JSON, encoded if the App has a codec.

use serde::de::DeserializeOwned;

use super::Error;
use crate::codec::Codecs;

/// Reads a stored value. `what` names it in errors.
///
/// # Errors
/// `PayloadCodec` if it cannot be decoded, `Codec` if it is not JSON of a `T`.
pub(crate) fn read_value<T: DeserializeOwned>(
    stored: &[u8],
    codecs: &Codecs,
    what: impl Fn() -> String,
) -> Result<T, Error> {
    let json = codecs.decode(stored).map_err(|source| Error::PayloadCodec { what: what(), source })?;
    serde_json::from_slice(&json).map_err(|source| Error::Codec { what: what(), source })
}

/// The bytes to store for a value that was written as JSON. `what` names it in errors.
///
/// # Errors
/// `PayloadCodec` if it cannot be encoded.
pub(crate) fn encoded_value(json: Vec<u8>, codecs: &Codecs, what: impl Fn() -> String) -> Result<Vec<u8>, Error> {
    codecs.encode(json).map_err(|source| Error::PayloadCodec { what: what(), source })
}
