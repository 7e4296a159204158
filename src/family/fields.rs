//! The fields of a message, as JSON. Those that a later version adds are ignored.

use std::fmt;

use serde_json::{Map, Value};

/// The reason why a message is not understood.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum MessageError {
    NotJson,
    Field {
        name: &'static str,
    },
    /// A text in a message without fields, or another content that its kind does not have.
    Content,
}

impl fmt::Display for MessageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotJson => f.write_str("got a message that is not a JSON object"),
            Self::Field { name } => write!(f, "got a message without a valid field \"{name}\""),
            Self::Content => f.write_str("got a message with content that its kind does not have"),
        }
    }
}

/// The fields of a message that was received.
pub(super) struct Fields(Map<String, Value>);

impl Fields {
    pub(super) fn parse(content: &[u8]) -> Result<Self, MessageError> {
        match serde_json::from_slice(content) {
            Ok(Value::Object(fields)) => Ok(Self(fields)),
            _ => Err(MessageError::NotJson),
        }
    }

    fn get<T>(
        &self,
        name: &'static str,
        read: impl FnOnce(&Value) -> Option<T>,
    ) -> Result<T, MessageError> {
        let value = self.0.get(name).and_then(read);
        value.ok_or(MessageError::Field { name })
    }

    pub(super) fn number(&self, name: &'static str) -> Result<u64, MessageError> {
        self.get(name, Value::as_u64)
    }

    pub(super) fn process(&self, name: &'static str) -> Result<i32, MessageError> {
        let number = self.get(name, Value::as_i64)?;
        let valid = i32::try_from(number).ok().filter(|&number| number > 0);
        valid.ok_or(MessageError::Field { name })
    }

    pub(super) fn flag(&self, name: &'static str) -> Result<bool, MessageError> {
        self.get(name, Value::as_bool)
    }

    pub(super) fn text(&self, name: &'static str) -> Result<String, MessageError> {
        self.get(name, |value| Some(value.as_str()?.to_owned()))
    }

    /// Reads a number that may be missing.
    pub(super) fn number_if_any(&self, name: &'static str) -> Result<Option<u64>, MessageError> {
        match self.0.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(_) => self.number(name).map(Some),
        }
    }

    /// Reads a text that may be missing.
    pub(super) fn text_if_any(&self, name: &'static str) -> Result<Option<String>, MessageError> {
        match self.0.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(_) => self.text(name).map(Some),
        }
    }

    pub(super) fn list<T>(
        &self,
        name: &'static str,
        item: impl Fn(&Value) -> Option<T>,
    ) -> Result<Vec<T>, MessageError> {
        self.get(name, |value| value.as_array()?.iter().map(item).collect())
    }
}
