//! Text formatting without allocation.

use std::fmt;

/// Maximum length, in bytes.
const MAX_BYTES: usize = 512;

/// A text of at most 512 bytes. Longer texts are cut at a character boundary.
#[doc(hidden)]
pub struct ShortText {
    bytes: [u8; MAX_BYTES],
    length: usize,
    budget: TextBudget,
}

/// The remaining space for a text that arrives in pieces.
#[derive(Debug)]
pub(crate) struct TextBudget {
    left: usize,
    is_full: bool,
}

impl TextBudget {
    /// Creates a budget of `bytes`.
    pub(crate) const fn new(bytes: usize) -> Self {
        Self {
            left: bytes,
            is_full: false,
        }
    }

    /// Returns the part of `piece` that fits, cut at a character boundary. After a cut, no later
    /// piece fits.
    pub(crate) fn take<'t>(&mut self, piece: &'t str) -> &'t str {
        let taken = if self.is_full {
            ""
        } else {
            cut_at_character(piece, self.left)
        };
        self.left -= taken.len();
        self.is_full |= taken.len() < piece.len();
        taken
    }

    /// Returns an error once a piece was cut, so that formatting can end early.
    pub(crate) fn check_not_cut(&self) -> fmt::Result {
        if self.is_full {
            Err(fmt::Error)
        } else {
            Ok(())
        }
    }
}

impl ShortText {
    fn new() -> Self {
        Self {
            bytes: [0; MAX_BYTES],
            length: 0,
            budget: TextBudget::new(MAX_BYTES),
        }
    }

    /// Formats the arguments. The text ends at its maximum length, or where a value fails to
    /// format.
    pub fn format(arguments: fmt::Arguments<'_>) -> Self {
        let mut text = Self::new();
        let _ = fmt::write(&mut text, arguments);
        text
    }

    /// Converts a text from UTF-16, up to the maximum length. Each unpaired surrogate becomes
    /// U+FFFD.
    pub(crate) fn from_utf16(units: &[u16]) -> Self {
        let mut text = Self::new();
        for unit in char::decode_utf16(units.iter().copied()) {
            let character = unit.unwrap_or(char::REPLACEMENT_CHARACTER);
            if fmt::Write::write_char(&mut text, character).is_err() {
                break;
            }
        }
        text
    }

    /// Returns the text.
    pub fn as_str(&self) -> &str {
        // Never fails: only whole characters are written.
        std::str::from_utf8(&self.bytes[..self.length]).unwrap_or_default()
    }
}

impl fmt::Write for ShortText {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let taken = self.budget.take(text);
        self.bytes[self.length..][..taken.len()].copy_from_slice(taken.as_bytes());
        self.length += taken.len();
        self.budget.check_not_cut()
    }
}

/// Returns the longest prefix of `text` with at most `max_bytes`, cut at a character boundary.
pub(crate) fn cut_at_character(text: &str, max_bytes: usize) -> &str {
    // `str::floor_char_boundary` is newer than the minimum supported Rust version.
    let end = (0..=max_bytes.min(text.len()))
        .rev()
        .find(|&end| text.is_char_boundary(end));
    &text[..end.unwrap_or(0)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cut_at_character_never_splits_a_character() {
        for (max_bytes, cut) in [
            (0, ""),
            (1, "a"),
            (2, "a"),
            (3, "aé"),
            (4, "aé"),
            (6, "aé"),
            (7, "aé𝄞"),
        ] {
            assert_eq!(cut_at_character("aé𝄞", max_bytes), cut, "{max_bytes}");
        }
        assert_eq!(cut_at_character("aé𝄞", usize::MAX), "aé𝄞");
    }

    #[test]
    fn format_keeps_at_most_512_bytes() {
        assert_eq!(
            ShortText::format(format_args!("{} of {:?}", 3, "x")).as_str(),
            "3 of \"x\""
        );
        let long = "é".repeat(300);
        let text = ShortText::format(format_args!("a{long}b"));
        assert_eq!(text.as_str(), format!("a{}", "é".repeat(255)));
        assert_eq!(
            ShortText::format(format_args!("{}", "x".repeat(512)))
                .as_str()
                .len(),
            512
        );
    }

    #[test]
    fn from_utf16_replaces_unpaired_surrogates() {
        let units: Vec<u16> = "aé𝄞"
            .encode_utf16()
            .chain([0xd800, 0x62, 0xdc00, 0, 0xd834])
            .collect();
        assert_eq!(
            ShortText::from_utf16(&units).as_str(),
            "aé𝄞\u{fffd}b\u{fffd}\0\u{fffd}"
        );
        assert_eq!(ShortText::from_utf16(&[]).as_str(), "");
        // The last character would end at byte 513: 512 is not a multiple of 3.
        assert_eq!(
            ShortText::from_utf16(&[0x20ac; 1000]).as_str(),
            "€".repeat(170)
        );
    }
}
