//! The keys of context labels, by the numbers that a reader outside of the process finds in a
//! thread's record (`shared_context.rs`), and the message that tells it their names.
//!
//! The message is of protobuf, as OpenTelemetry's enhancement proposals 4719 and 4947 have it: a
//! list of attributes, of which one is the list of names. It is encoded by hand, because it has
//! only texts and needs no more than their lengths.

use crate::labels::thread_context::MAX_CONTEXT_TEXT_BYTES;
use crate::platform::{MAX_PAYLOAD_BYTES, ProcessContext, current_process_id};
use crate::types::ProcessId;
use crate::util::{SMALL_TASK_BYTES, allocator_has};

/// Maximum number of keys: their numbers are one byte. Labels with further keys are not shared.
const MAX_KEYS: usize = 1 << 8;
/// The form of records and keys that the message announces.
const SCHEMA: &str = "tlsdesc_v1_dev";

/// Maximum length of a message, in bytes. The fields around a name take at most six bytes, and all
/// others less than 128.
const MAX_MESSAGE_BYTES: usize = MAX_KEYS * (MAX_CONTEXT_TEXT_BYTES + 6) + 128;
const _: () = assert!(MAX_MESSAGE_BYTES <= MAX_PAYLOAD_BYTES);
/// Memory to encode a message, in bytes: a list is copied into the field around it, and that into
/// the next one, and a vector that grows takes up to twice its length.
const ENCODING_BYTES: usize = SMALL_TASK_BYTES + 6 * MAX_MESSAGE_BYTES;

/// The keys, and whether readers know them.
#[derive(Debug)]
pub(super) struct ContextKeys {
    names: Vec<&'static str>,
    publication: Publication,
}

#[derive(Debug)]
enum Publication {
    NotTried,
    Published(ProcessContext),
    /// It failed in this process, and is not tried again there.
    Failed(ProcessId),
}

impl ContextKeys {
    pub(super) const fn new() -> Self {
        Self {
            names: Vec::new(),
            publication: Publication::NotTried,
        }
    }

    /// Forgets the publication of the parent, in the child of a fork. The mapping is not there.
    pub(super) fn forget_publication(&mut self) {
        self.publication = Publication::NotTried;
    }

    /// Publishes the names of the keys, unless this process has tried that. Returns whether they
    /// are published; `None` without memory to try it. The child of a fork does not have its
    /// parent's publication.
    pub(super) fn publish(&mut self) -> Option<bool> {
        let process = current_process_id();
        match &self.publication {
            Publication::Published(context) if context.is_of_this_process() => return Some(true),
            Publication::Failed(failed) if *failed == process => return Some(false),
            _ if !allocator_has(ENCODING_BYTES) => return None,
            _ => {}
        }
        match ProcessContext::publish(&self.message()) {
            Ok(context) => {
                self.publication = Publication::Published(context);
                Some(true)
            }
            Err(_) => {
                self.publication = Publication::Failed(process);
                Some(false)
            }
        }
    }

    /// Returns the number of a key; `None` for one beyond [`MAX_KEYS`], or without memory for a
    /// message. Publishes the name of a new key, if the others are published.
    pub(super) fn number_of(&mut self, key: &'static str) -> Option<u8> {
        if let Some(known) = self.names.iter().position(|name| *name == key) {
            return Some(known as u8);
        }
        let number = self.names.len();
        if number >= MAX_KEYS || !allocator_has(ENCODING_BYTES) {
            return None;
        }
        self.names.push(key);
        let message = self.message();
        if let Publication::Published(context) = &mut self.publication {
            // All keys fit into a message: see the assertion above.
            let _ = context.update(&message);
        }
        Some(number as u8)
    }

    fn message(&self) -> Vec<u8> {
        let names: Vec<u8> = self
            .names
            .iter()
            .flat_map(|name| field(1, &field(1, name.as_bytes())))
            .collect();
        let schema = field(1, SCHEMA.as_bytes());
        let attributes: [(&str, Vec<u8>); 2] = [
            ("threadlocal.schema_version", schema),
            ("threadlocal.attribute_key_map", field(5, &names)),
        ];
        let attributes = attributes
            .map(|(key, value)| field(2, &[field(1, key.as_bytes()), field(2, &value)].concat()));
        attributes.concat()
    }
}

/// Encodes a field with a content: its tag, the length of the content as a varint, the content.
fn field(number: u8, content: &[u8]) -> Vec<u8> {
    const WITH_LENGTH: u8 = 2;
    let mut field = vec![number << 3 | WITH_LENGTH];
    let mut rest = content.len();
    while rest >= 0x80 {
        field.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    field.push(rest as u8);
    field.extend_from_slice(content);
    field
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_stable_numbers_up_to_a_maximum() {
        let mut keys = ContextKeys::new();
        assert_eq!(keys.number_of("route"), Some(0));
        assert_eq!(keys.number_of("tenant"), Some(1));
        assert_eq!(keys.number_of("route"), Some(0));
        for number in 2..MAX_KEYS {
            let key = String::leak(format!("{number:>128}"));
            assert_eq!(keys.number_of(key), Some(number as u8));
        }
        assert_eq!(keys.number_of("one more"), None);
        assert_eq!(keys.number_of("tenant"), Some(1));
        assert!(keys.message().len() <= MAX_MESSAGE_BYTES);
    }

    #[test]
    fn message_names_the_schema_and_the_keys() {
        let mut keys = ContextKeys::new();
        keys.number_of("route");
        keys.number_of("a");
        let message = keys.message();
        let expected = [
            b"\x12\x2e\x0a\x1athreadlocal.schema_version\x12\x10\x0a\x0etlsdesc_v1_dev".as_slice(),
            b"\x12\x33\x0a\x1dthreadlocal.attribute_key_map\x12\x12\x2a\x10",
            b"\x0a\x07\x0a\x05route\x0a\x03\x0a\x01a",
        ];
        // The lengths of the second attribute: 2 + 29 + 2 + 2 + 9 + 5 bytes.
        let mut expected = expected.concat();
        expected[0x30 + 1] = 49;
        expected[0x30 + 2 + 2 + 29 + 1] = 16;
        expected[0x30 + 2 + 2 + 29 + 3] = 14;
        assert_eq!(message, expected);
    }
}
