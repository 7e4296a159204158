//! The messages between a parent and its children: what both directions share.
//!
//! A message is a frame whose content is a JSON object, or a part of a profile's text as it is. The
//! parent sends orders (`orders.rs`), and a child sends reports (`reports.rs`). Each order has a number,
//! which the report about it repeats.

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
