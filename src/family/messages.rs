//! The messages between a parent and its children: what both directions share, and the invitation by
//! which a child finds its parent.
//!
//! A message is a frame on a stream of bytes: a length, a kind, and so many bytes. These are a JSON
//! object, or a part of a profile's text as it is. The parent sends orders (`orders.rs`), and a child
//! sends reports (`reports.rs`). Each order has a number, which the report about it repeats.
//!
//! The bytes come from another process, so nothing about them is certain. A frame is refused by its
//! header, before its bytes arrive, and memory grows only by bytes that have arrived. Fields that a
//! later version adds are ignored.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use serde_json::Value;

/// The version of the messages. A parent and a child of different versions do not understand each
/// other.
pub(crate) const VERSION: u64 = 1;

/// Maximum length of a part of a profile's text, in bytes.
pub(crate) const MAX_DATA_BYTES: usize = 64 << 10;
/// Maximum length of a message with the settings of a session, in bytes.
pub(super) const MAX_SESSION_BYTES: usize = 256 << 10;
/// Maximum length of any message's content, in bytes.
#[cfg(any(test, fuzzing))]
pub(crate) const MAX_MESSAGE_CONTENT: usize = MAX_SESSION_BYTES;
/// Maximum length of any other message, in bytes.
pub(super) const MAX_MESSAGE_BYTES: usize = 16 << 10;
/// Maximum number of characters in a name or a reason.
const MAX_TEXT: usize = 400;
/// Progress that is complete.
pub(crate) const WHOLE: u32 = 1_000_000;

/// Returns the beginning of a text that may be too long for a message.
pub(super) fn shortened(text: &str) -> &str {
    text.char_indices()
        .nth(MAX_TEXT)
        .map_or(text, |(end, _)| &text[..end])
}

/// Size of a frame's header: the length of its content as four bytes, least significant first, and
/// its kind.
pub(crate) const HEADER_BYTES: usize = 5;

/// Returns the maximum length of a frame of this kind, or `None` if no frame has this kind.
type Limits = fn(kind: u8) -> Option<usize>;

/// A frame that has arrived whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Frame<'a> {
    pub(crate) kind: u8,
    pub(crate) content: &'a [u8],
}

/// The reason why a stream cannot be read any further.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FrameError {
    UnknownKind(u8),
    TooLong {
        kind: u8,
        bytes: usize,
        max_bytes: usize,
    },
}

/// Returns a frame with this content.
///
/// # Panics
/// If the content has 4 GiB or more.
pub(crate) fn frame(kind: u8, content: &[u8]) -> Vec<u8> {
    let length = u32::try_from(content.len()).expect("frames are short");
    let mut bytes = Vec::with_capacity(HEADER_BYTES + content.len());
    bytes.extend_from_slice(&length.to_le_bytes());
    bytes.push(kind);
    bytes.extend_from_slice(content);
    bytes
}

/// Finds the frames in a stream that arrives in parts.
#[derive(Debug)]
pub(crate) struct FrameDecoder {
    limits: Limits,
    bytes: Vec<u8>,
    /// Number of bytes of the frames that were returned.
    consumed: usize,
    error: Option<FrameError>,
}

impl FrameDecoder {
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            limits,
            bytes: Vec::new(),
            consumed: 0,
            error: None,
        }
    }

    /// Adds bytes that have arrived. The caller then takes all whole frames, so that no more than a
    /// part of one stays.
    pub(crate) fn push(&mut self, part: &[u8]) {
        self.bytes.drain(..self.consumed);
        self.consumed = 0;
        if self.error.is_none() {
            self.bytes.extend_from_slice(part);
        }
    }

    /// Returns the next frame that has arrived whole.
    ///
    /// # Errors
    /// A header that is not accepted. Every later call returns the same error.
    pub(crate) fn next_frame(&mut self) -> Result<Option<Frame<'_>>, FrameError> {
        if let Some(error) = self.error {
            return Err(error);
        }
        let Some((header, rest)) = self.bytes[self.consumed..].split_first_chunk() else {
            return Ok(None);
        };
        let [a, b, c, d, kind]: [u8; HEADER_BYTES] = *header;
        let bytes = u32::from_le_bytes([a, b, c, d]) as usize;
        let refusal = match (self.limits)(kind) {
            None => Some(FrameError::UnknownKind(kind)),
            Some(max_bytes) => (bytes > max_bytes).then_some(FrameError::TooLong {
                kind,
                bytes,
                max_bytes,
            }),
        };
        if let Some(refusal) = refusal {
            self.error = Some(refusal);
            self.bytes = Vec::new();
            self.consumed = 0;
            return Err(refusal);
        }
        if rest.len() < bytes {
            return Ok(None);
        }
        let begin = self.consumed + HEADER_BYTES;
        self.consumed = begin + bytes;
        Ok(Some(Frame {
            kind,
            content: &self.bytes[begin..self.consumed],
        }))
    }

    /// Returns how many bytes wait for the rest of their frame.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn waiting_bytes(&self) -> usize {
        self.bytes.len() - self.consumed
    }
}

/// Reads the JSON object that is the content of a message. A field that it lacks reads as `null`.
pub(super) fn fields_of(content: &[u8]) -> Option<Value> {
    let fields: Value = serde_json::from_slice(content).ok()?;
    fields.is_object().then_some(fields)
}

/// Reads a field that may be missing; the outer `None` is for one of another type.
pub(super) fn if_any<'a, T>(
    field: &'a Value,
    read: impl FnOnce(&'a Value) -> Option<T>,
) -> Option<Option<T>> {
    match field {
        Value::Null => Some(None),
        field => read(field).map(Some),
    }
}

/// Reads a number of the system's, such as that of a process: a positive one.
pub(super) fn positive(field: &Value) -> Option<i32> {
    let number = i32::try_from(field.as_i64()?).ok();
    number.filter(|&number| number > 0)
}

/// Reads a text.
pub(super) fn text(field: &Value) -> Option<String> {
    field.as_str().map(str::to_owned)
}

/// The variable by which a child process finds its parent: the version of the messages, the parent, a
/// random word, and the socket.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Invitation {
    pub(crate) version: u64,
    pub(crate) process: i32,
    pub(crate) token: String,
    pub(crate) socket: PathBuf,
}

impl Invitation {
    /// Returns the value of the variable.
    pub(crate) fn to_value(&self) -> OsString {
        let mut value =
            OsString::from(format!("{}:{}:{}:", self.version, self.process, self.token));
        value.push(&self.socket);
        value
    }

    /// Reads the variable. Returns `None` for a value of another form.
    pub(crate) fn parse(value: &OsStr) -> Option<Self> {
        let mut parts = value.to_str()?.splitn(4, ':');
        let mut part = || parts.next();
        let (version, process) = (part()?.parse().ok()?, part()?.parse().ok()?);
        let (token, socket) = (part()?.to_owned(), PathBuf::from(part()?));
        let is_valid = !token.is_empty() && Path::is_absolute(&socket);
        is_valid.then_some(Self {
            version,
            process,
            token,
            socket,
        })
    }
}

/// Returns a random word, as a text.
pub(crate) fn token_of(random: [u8; 16]) -> String {
    random.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Compares two words in a time that does not depend on where they differ.
pub(crate) fn is_same_token(one: &str, other: &str) -> bool {
    let differing = one
        .bytes()
        .zip(other.bytes())
        .fold(0, |differing, (one, other)| {
            std::hint::black_box(differing | one ^ other)
        });
    one.len() == other.len() && differing == 0
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn limits(kind: u8) -> Option<usize> {
        [Some(4), Some(0)].get(usize::from(kind)).copied().flatten()
    }

    /// Returns what a decoder finds in these parts.
    fn decoded(parts: &[&[u8]]) -> (Vec<(u8, Vec<u8>)>, Option<FrameError>) {
        let mut decoder = FrameDecoder::new(limits);
        let mut frames = Vec::new();
        for part in parts {
            decoder.push(part);
            loop {
                match decoder.next_frame() {
                    Ok(Some(Frame { kind, content })) => frames.push((kind, content.to_vec())),
                    Ok(None) => break,
                    Err(error) => return (frames, Some(error)),
                }
            }
        }
        (frames, None)
    }

    #[test]
    fn frames_are_found_however_the_stream_is_cut() {
        let stream = [frame(0, b"abcd"), frame(1, b""), frame(0, b"x")].concat();
        let expected = vec![(0, b"abcd".to_vec()), (1, Vec::new()), (0, b"x".to_vec())];
        assert_eq!(decoded(&[&stream]), (expected.clone(), None));
        let bytes: Vec<&[u8]> = stream.chunks(1).collect();
        assert_eq!(decoded(&bytes), (expected.clone(), None));
        for cut in 0..stream.len() {
            let (one, other) = stream.split_at(cut);
            assert_eq!(decoded(&[one, other]), (expected.clone(), None), "{cut}");
            let (first, _) = decoded(&[one]);
            assert!(expected.starts_with(&first), "{cut}");
        }
    }

    #[test]
    fn header_that_is_not_accepted_ends_the_stream() {
        let long = FrameError::TooLong {
            kind: 0,
            bytes: 5,
            max_bytes: 4,
        };
        let stream = [frame(1, b""), frame(0, b"abcde"), frame(0, b"x")].concat();
        assert_eq!(decoded(&[&stream]), (vec![(1, Vec::new())], Some(long)));
        // The header is enough.
        let huge = [0xff, 0xff, 0xff, 0xff, 1];
        let (frames, error) = decoded(&[&huge]);
        assert!(frames.is_empty() && error.is_some());
        let unknown = decoded(&[&frame(2, b"")]);
        assert_eq!(unknown, (Vec::new(), Some(FrameError::UnknownKind(2))));
        let mut decoder = FrameDecoder::new(limits);
        decoder.push(&huge);
        for _ in 0..2 {
            assert!(decoder.next_frame().is_err());
            decoder.push(&frame(0, b"x"));
            assert_eq!(decoder.waiting_bytes(), 0);
        }
    }

    #[test]
    fn invitation_round_trips_through_the_variable() {
        let invitation = Invitation {
            version: 1,
            process: 12,
            token: token_of([0xa5; 16]),
            socket: PathBuf::from("/tmp/a:b/s"),
        };
        assert_eq!(invitation.token, "a5".repeat(16));
        let value = invitation.to_value();
        assert_eq!(Invitation::parse(&value), Some(invitation));
        for other in [
            "", "1", "1:2:x", "1:2::/s", "x:2:t:/s", "1:x:t:/s", "1:2:t:s",
        ] {
            assert_eq!(Invitation::parse(OsStr::new(other)), None, "{other}");
        }
    }

    #[test]
    fn tokens_are_the_same_only_if_every_byte_is() {
        let token = token_of([7; 16]);
        assert!(is_same_token(&token, &token));
        for other in ["", &token[1..], &token_of([8; 16])] {
            assert!(!is_same_token(&token, other) && !is_same_token(other, &token));
        }
        assert!(!is_same_token(&token, &(token.clone() + "0")));
    }
}
