//! A text that is made without an allocation.

use std::fmt;

/// So long a text may be.
const MOST_BYTES: usize = 512;

/// A text of at most 512 bytes; of a longer one the beginning, cut at a character.
#[doc(hidden)]
pub struct ShortText {
    bytes: [u8; MOST_BYTES],
    length: usize,
    room: TextRoom,
}

/// Room for a text that comes in pieces.
#[derive(Debug)]
pub(crate) struct TextRoom {
    left: usize,
    is_full: bool,
}

impl TextRoom {
    pub(crate) const fn of(bytes: usize) -> Self {
        Self {
            left: bytes,
            is_full: false,
        }
    }

    /// As much of the next piece as there is room for, cut at a character. Nothing comes after what was cut.
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

    /// For whoever asks whether to go on.
    pub(crate) fn is_left(&self) -> fmt::Result {
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
            bytes: [0; MOST_BYTES],
            length: 0,
            room: TextRoom::of(MOST_BYTES),
        }
    }

    /// What is formatted, as far as it comes: a value that fails to say what it is ends it.
    pub fn format(arguments: fmt::Arguments<'_>) -> Self {
        let mut text = Self::new();
        let _ = fmt::write(&mut text, arguments);
        text
    }

    /// What is there of a text in UTF-16; each part that is none becomes U+FFFD.
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

    /// The text.
    pub fn as_str(&self) -> &str {
        // Whole characters are written alone.
        std::str::from_utf8(&self.bytes[..self.length]).unwrap_or_default()
    }
}

impl fmt::Write for ShortText {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let taken = self.room.take(text);
        self.bytes[self.length..][..taken.len()].copy_from_slice(taken.as_bytes());
        self.length += taken.len();
        self.room.is_left()
    }
}

/// As much of the beginning of a text as so many bytes hold, cut at a character.
pub(crate) fn cut_at_character(text: &str, most_bytes: usize) -> &str {
    // `str::floor_char_boundary` is younger than the compilers that build this.
    let end = (0..=most_bytes.min(text.len()))
        .rev()
        .find(|&end| text.is_char_boundary(end));
    &text[..end.unwrap_or(0)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_between_characters() {
        for (most, cut) in [
            (0, ""),
            (1, "a"),
            (2, "a"),
            (3, "aé"),
            (4, "aé"),
            (6, "aé"),
            (7, "aé𝄞"),
        ] {
            assert_eq!(cut_at_character("aé𝄞", most), cut, "{most}");
        }
        assert_eq!(cut_at_character("aé𝄞", usize::MAX), "aé𝄞");
    }

    #[test]
    fn what_is_formatted_is_there_up_to_its_most_bytes() {
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
    fn what_is_no_utf16_is_marked() {
        let units: Vec<u16> = "aé𝄞"
            .encode_utf16()
            .chain([0xd800, 0x62, 0xdc00, 0, 0xd834])
            .collect();
        assert_eq!(
            ShortText::from_utf16(&units).as_str(),
            "aé𝄞\u{fffd}b\u{fffd}\0\u{fffd}"
        );
        assert_eq!(ShortText::from_utf16(&[]).as_str(), "");
        // 512 is no multiple of 3.
        assert_eq!(
            ShortText::from_utf16(&[0x20ac; 1000]).as_str(),
            "€".repeat(170)
        );
    }
}
