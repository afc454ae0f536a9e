//! Codecs: what an App does to the bytes of values on their way to Redis and back.

use std::borrow::Cow;
use std::fmt;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;

use serde_json::Value;

use crate::config_error::{Faults, shown};

/// The first byte of an encoded value. No JSON begins with it, and no result with a graph, which begins with byte 1.
const MARK: u8 = 2;

/// The longest name of a codec, in bytes.
const LONGEST_NAME: usize = 32;

/// What a codec returns if it fails.
type Fault = Box<dyn std::error::Error + Send + Sync>;

/// Transforms the bytes of values on their way to Redis and back: encrypts or compresses them, or writes another format. Set by
/// [`AppBuilder::codec`](crate::AppBuilder::codec).
///
/// ```
/// use heartline::PayloadCodec;
///
/// /// Not a cipher.
/// struct Rot13;
///
/// fn rot13(byte: &u8) -> u8 {
///     match byte {
///         b'a'..=b'z' => (byte - b'a' + 13) % 26 + b'a',
///         other => *other,
///     }
/// }
///
/// impl PayloadCodec for Rot13 {
///     fn name(&self) -> &str {
///         "rot13"
///     }
///
///     fn encode(&self, json: &[u8]) -> Result<Vec<u8>, Box<dyn std::error::Error + Send + Sync>> {
///         Ok(json.iter().map(rot13).collect())
///     }
///
///     fn decode(&self, encoded: &[u8]) -> Result<Vec<u8>, Box<dyn std::error::Error + Send + Sync>> {
///         self.encode(encoded)
///     }
/// }
/// ```
///
/// A value may be decoded long after it was encoded, by another process. So put what decoding needs, such as the id of a key, into the
/// encoded bytes. Both methods run in the process's own tasks and must not block. A panic counts as an error.
/// [The guide](crate::guide::production) lists the values that are encoded.
pub trait PayloadCodec: Send + Sync + 'static {
    /// Its name, which is stored with each value: 1 to 32 characters of `a-z`, `0-9`, `.`, `_` and `-`. A value is decoded by the codec of
    /// the same name, so a codec keeps its name for as long as its values exist.
    fn name(&self) -> &str;

    /// Encodes a value, which is JSON text.
    ///
    /// # Errors
    /// The call that stores the value fails: the dispatch, or the run of a handler.
    fn encode(&self, json: &[u8]) -> Result<Vec<u8>, Fault>;

    /// Decodes what [`encode`](PayloadCodec::encode) returned.
    ///
    /// # Errors
    /// The message is stored as the error of a job, so it must contain nothing of the value. A job whose payload cannot be decoded is
    /// postponed, see [`TaskOptions::undecodable_for`](crate::TaskOptions::undecodable_for).
    fn decode(&self, encoded: &[u8]) -> Result<Vec<u8>, Fault>;
}

/// Why a value could not be encoded or decoded by a [`PayloadCodec`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CodecError {
    /// This App has no codec of the name that is stored with the value.
    #[error("{}; this App has no such codec: add it with AppBuilder::codec or decode_only", encoded_by(name, *bytes))]
    Unknown {
        /// The name of the codec.
        name: String,
        /// The size of the stored value, bytes.
        bytes: usize,
    },
    /// The codec returned an error.
    #[error("the codec `{name}` failed")]
    Failed {
        /// The name of the codec.
        name: String,
        /// What it returned.
        source: Fault,
    },
}

impl CodecError {
    /// The error with its causes on one line, for the error of a job.
    pub(crate) fn with_causes(&self) -> String {
        let mut text = self.to_string();
        let mut next = std::error::Error::source(self);
        while let Some(cause) = next {
            text += &format!(": {cause}");
            next = cause.source();
        }
        text
    }
}

/// What people see in place of a value that cannot be decoded.
fn encoded_by(name: &str, bytes: usize) -> String {
    format!("encoded by `{name}`, {bytes} bytes")
}

/// The codecs of an App.
#[derive(Clone, Default)]
pub(crate) struct Codecs {
    encoder: Option<Arc<dyn PayloadCodec>>,
    all: Vec<Arc<dyn PayloadCodec>>,
}

impl Codecs {
    /// Adds a codec that only decodes, or that encodes too, in place of an earlier one.
    pub(crate) fn add(&mut self, codec: Arc<dyn PayloadCodec>, encodes: bool) {
        if encodes {
            self.encoder = Some(Arc::clone(&codec));
        }
        self.all.push(codec);
    }

    pub(crate) fn check(&self, faults: &mut Faults) {
        let is_allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'.' | b'_' | b'-');
        for (at, codec) in self.all.iter().enumerate() {
            let name = codec.name();
            if name.is_empty() || name.len() > LONGEST_NAME || !name.bytes().all(is_allowed) {
                let rule = "must be 1 to 32 characters of a-z, 0-9, '.', '_' and '-'";
                faults.add("codec", shown(name), rule, "use a name like \"aes-gcm\"");
            }
            if self.all[..at].iter().any(|other| other.name() == name) {
                let fix = "let one codec handle all keys";
                faults.add("codec", shown(name), "must be added once", fix);
            }
        }
    }

    /// Whether values may be encoded, by this process or by others.
    pub(crate) fn is_any(&self) -> bool {
        !self.all.is_empty()
    }

    /// The name of the codec that encodes new values.
    #[cfg(any(test, feature = "schedules"))]
    pub(crate) fn encoder(&self) -> Option<&str> {
        self.encoder.as_deref().map(PayloadCodec::name)
    }

    /// The bytes to store for this JSON.
    ///
    /// # Errors
    /// `Failed` if the codec fails.
    pub(crate) fn encode(&self, json: Vec<u8>) -> Result<Vec<u8>, CodecError> {
        let Some(codec) = &self.encoder else { return Ok(json) };
        let name = codec.name();
        let encoded = guarded(|| codec.encode(&json));
        let encoded = encoded.map_err(|source| CodecError::Failed { name: name.to_owned(), source })?;
        let mut stored = Vec::with_capacity(2 + name.len() + encoded.len());
        stored.push(MARK);
        stored.extend_from_slice(name.as_bytes());
        stored.push(b' ');
        stored.extend_from_slice(&encoded);
        Ok(stored)
    }

    /// The JSON of a stored value. A value that is not encoded is returned unchanged.
    ///
    /// # Errors
    /// If the App has no codec of that name, or the codec fails.
    pub(crate) fn decode<'a>(&self, stored: &'a [u8]) -> Result<Cow<'a, [u8]>, CodecError> {
        let Some((name, encoded)) = parts(stored) else { return Ok(Cow::Borrowed(stored)) };
        let codec = self.all.iter().find(|codec| codec.name() == name);
        let unknown = || CodecError::Unknown { name: name.to_owned(), bytes: stored.len() };
        let codec = codec.ok_or_else(unknown)?;
        let json = guarded(|| codec.decode(encoded));
        json.map(Cow::Owned).map_err(|source| CodecError::Failed { name: name.to_owned(), source })
    }

    /// A stored value for people. Bytes that are not JSON become text, and so does what is known about a value that cannot be decoded.
    pub(crate) fn shown(&self, stored: &[u8]) -> Value {
        match self.decode(stored) {
            Ok(json) => serde_json::from_slice(&json).unwrap_or_else(|_| String::from_utf8_lossy(&json).into()),
            Err(CodecError::Unknown { name, bytes }) => encoded_by(&name, bytes).into(),
            Err(e @ CodecError::Failed { .. }) => format!("{} bytes; {}", stored.len(), e.with_causes()).into(),
        }
    }
}

impl fmt::Debug for Codecs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.all.iter().map(|codec| codec.name())).finish()
    }
}

/// Calls a codec. A panic is an error, since a part of the library that reads values for many callers must survive it.
fn guarded(call: impl FnOnce() -> Result<Vec<u8>, Fault>) -> Result<Vec<u8>, Fault> {
    panic::catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|_| Err("it panicked".into()))
}

/// The name of the codec and the encoded bytes, if the value is encoded.
fn parts(stored: &[u8]) -> Option<(&str, &[u8])> {
    let rest = stored.strip_prefix(&[MARK])?;
    let space = rest.iter().position(|byte| *byte == b' ')?;
    Some((std::str::from_utf8(&rest[..space]).ok()?, &rest[space + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Adds one to each byte. Fails on an empty value, and panics on the byte 0.
    struct Shift(&'static str);

    impl PayloadCodec for Shift {
        fn name(&self) -> &str {
            self.0
        }

        fn encode(&self, json: &[u8]) -> Result<Vec<u8>, Fault> {
            if json.is_empty() { Err("nothing to encode".into()) } else { Ok(json.iter().map(|b| b + 1).collect()) }
        }

        fn decode(&self, encoded: &[u8]) -> Result<Vec<u8>, Fault> {
            if encoded.is_empty() { Err("no bytes".into()) } else { Ok(encoded.iter().map(|b| b - 1).collect()) }
        }
    }

    fn codecs(encodes: &'static str, decodes: &[&'static str]) -> Codecs {
        let mut codecs = Codecs::default();
        codecs.add(Arc::new(Shift(encodes)), true);
        decodes.iter().for_each(|name| codecs.add(Arc::new(Shift(name)), false));
        codecs
    }

    #[test]
    fn a_value_is_decoded_by_the_codec_of_its_name() {
        let old = codecs("old", &[]).encode(b"17".to_vec()).unwrap();
        assert_eq!(old, b"\x02old 28");
        let both = codecs("new", &["old"]);
        assert_eq!((&*both.decode(&old).unwrap(), both.encoder()), (&b"17"[..], Some("new")));
        assert_eq!(both.encode(b"17".to_vec()).unwrap(), b"\x02new 28");
        assert!(matches!(codecs("new", &[]).decode(&old), Err(CodecError::Unknown { .. })));
    }

    #[test]
    fn values_that_are_not_encoded_pass_unchanged() {
        let none = Codecs::default();
        assert_eq!(none.encode(b"17".to_vec()).unwrap(), b"17");
        for plain in [&b"17"[..], b"\"\\u0002a b\"", b"", b"\x01", b"\x02a"] {
            assert_eq!(&*codecs("a", &[]).decode(plain).unwrap(), plain);
        }
    }

    #[test]
    fn people_see_what_is_known_about_an_encoded_value() {
        assert_eq!(codecs("a", &[]).shown(b"\x02a 28"), 17);
        assert_eq!(Codecs::default().shown(b"\x02a 28"), "encoded by `a`, 5 bytes");
        assert_eq!(codecs("a", &[]).shown(b"\x02a "), "3 bytes; the codec `a` failed: no bytes");
        assert_eq!(Codecs::default().shown(b"not json"), "not json");
    }

    #[test]
    fn a_panic_of_a_codec_is_an_error() {
        let e = codecs("a", &[]).decode(b"\x02a \x00").unwrap_err();
        assert_eq!(e.with_causes(), "the codec `a` failed: it panicked");
    }

    #[test]
    fn names_are_checked_and_unique() {
        let faults = |codecs: Codecs| {
            let mut faults = Faults::default();
            codecs.check(&mut faults);
            faults.finish().map_or_else(|faults| faults.iter().count(), |()| 0)
        };
        assert_eq!(faults(codecs("aes-gcm", &["zstd.3"])), 0);
        assert_eq!(faults(codecs("A", &[""])), 2);
        assert_eq!(faults(codecs("a", &["a"])), 1);
        assert_eq!(faults(codecs("a b", &[])), 1);
    }
}
