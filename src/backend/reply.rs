//! Plain commands, and the reply of a script, word by word.

use redis::{Cmd, ErrorKind, FromRedisValue, Pipeline, Value};

use super::classify::classify;
use super::connection::Connection;
use crate::error::{Error, Result};

/// A plain command, or several at a time, called without a script. `name` is that of [`Error::Server`].
pub(super) trait PlainCall {
    async fn call<T: FromRedisValue>(&self, conn: &mut impl Connection, name: &'static str) -> Result<T>;
}

impl PlainCall for Cmd {
    async fn call<T: FromRedisValue>(&self, conn: &mut impl Connection, name: &'static str) -> Result<T> {
        self.query_async(conn).await.map_err(|e| classify(name, e))
    }
}

impl PlainCall for Pipeline {
    async fn call<T: FromRedisValue>(&self, conn: &mut impl Connection, name: &'static str) -> Result<T> {
        self.query_async(conn).await.map_err(|e| classify(name, e))
    }
}

/// The reply of a script: an array, or one text with spaces between the words.
pub(crate) struct Reply {
    name: &'static str,
    items: std::vec::IntoIter<Value>,
}

impl Reply {
    /// # Errors
    /// `Server` if a script replies with anything else.
    pub(super) fn of(name: &'static str, answer: Value) -> Result<Reply> {
        let items = match answer {
            Value::Array(items) => items,
            Value::BulkString(words) => {
                words.split(|byte| *byte == b' ').map(|word| Value::BulkString(word.to_vec())).collect()
            }
            other => return Err(unexpected(name, &format!("{other:?}"))),
        };
        Ok(Reply { name, items: items.into_iter() })
    }

    /// The next word of the reply.
    ///
    /// # Errors
    /// `Server` if the reply is shorter, or the word has another type.
    pub(crate) fn next<T: FromRedisValue>(&mut self) -> Result<T> {
        let value = self.items.next().unwrap_or(Value::Nil);
        redis::from_redis_value(value).map_err(|e| classify(self.name, e.into()))
    }

    /// The next word of the reply as a text that another program may have written.
    ///
    /// # Errors
    /// As [`next`](Reply::next).
    pub(crate) fn text(&mut self) -> Result<String> {
        self.next().map(|Text(text)| text)
    }

    /// The remaining words of the reply.
    ///
    /// # Errors
    /// `Server` if a word has another type.
    pub(crate) fn rest<T: FromRedisValue>(&mut self) -> Result<Vec<T>> {
        let name = self.name;
        self.items.by_ref().map(|value| redis::from_redis_value(value).map_err(|e| classify(name, e.into()))).collect()
    }

    /// The remaining words of the reply as texts that another program may have written.
    ///
    /// # Errors
    /// `Server` if a word is not text.
    pub(crate) fn texts(&mut self) -> Result<Vec<String>> {
        Ok(self.rest()?.into_iter().map(|Text(text)| text).collect())
    }

    /// The error for a word that the caller does not know. It names the script.
    pub(crate) fn unexpected(&self, what: &str) -> Error {
        unexpected(self.name, what)
    }
}

fn unexpected(name: &'static str, what: &str) -> Error {
    let detail = what.chars().take(200).collect::<String>();
    classify(name, (ErrorKind::UnexpectedReturnType, "unexpected reply of a script", detail).into())
}

/// Text that another program may have written. Bytes that are not UTF-8 are replaced.
pub(crate) struct Text(pub(crate) String);

impl FromRedisValue for Text {
    fn from_redis_value(value: Value) -> Result<Text, redis::ParsingError> {
        let bytes = Vec::<u8>::from_redis_value(value)?;
        let text = String::from_utf8(bytes).unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned());
        Ok(Text(text))
    }
}
