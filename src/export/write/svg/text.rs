//! Texts of an SVG file: escaped, cut, and formatted for people.

use std::borrow::Cow;
use std::fmt::{self, Display, Write};

/// Width of a character in the file's font, and space around a box's name.
const CHARACTER_PX: f64 = 7.25;
const PADDING_PX: f64 = 4.0;
/// A shorter text would say nothing.
const MIN_CHARACTERS: usize = 3;

/// A text without the characters that XML reserves or forbids, and in one line.
pub(crate) struct Escaped<'a>(pub(crate) &'a str);

impl Display for Escaped<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for character in self.0.chars() {
            match character {
                '&' => out.write_str("&amp;")?,
                '<' => out.write_str("&lt;")?,
                '>' => out.write_str("&gt;")?,
                '"' => out.write_str("&quot;")?,
                '\'' => out.write_str("&#39;")?,
                '\n' | '\r' | '\t' => out.write_char(' ')?,
                '\u{fffe}' | '\u{ffff}' => out.write_char('\u{fffd}')?,
                character if character.is_control() => out.write_char('\u{fffd}')?,
                character => out.write_char(character)?,
            }
        }
        Ok(())
    }
}

pub(crate) fn width_px(text: &str) -> f64 {
    text.chars().count() as f64 * CHARACTER_PX
}

/// Returns the part of a name that fits in a box of this width.
pub(crate) fn cut_to_width(name: &str, width_px: f64) -> Cow<'_, str> {
    let space = ((width_px - PADDING_PX) / CHARACTER_PX).max(0.0) as usize;
    if space < MIN_CHARACTERS {
        return Cow::Borrowed("");
    }
    if name.chars().nth(space).is_none() {
        return Cow::Borrowed(name);
    }
    let part: String = name.chars().take(space - 1).collect();
    Cow::Owned(part + "…")
}

/// Formats a number with a comma between groups of three digits.
pub(crate) fn format_count(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats a part of a whole in percent.
pub(crate) fn format_share(part: u64, whole: u64) -> String {
    format!("{:.2} %", 100.0 * part as f64 / whole.max(1) as f64)
}

/// Formats a duration with at most three decimals, in its greatest unit.
pub(crate) fn format_duration(ns: u64) -> String {
    let (unit_ns, unit) = match ns {
        1_000_000_000.. => (1e9, "s"),
        1_000_000.. => (1e6, "ms"),
        1_000.. => (1e3, "µs"),
        _ => (1.0, "ns"),
    };
    let text = format!("{:.3}", ns as f64 / unit_ns);
    let text = text.trim_end_matches('0').trim_end_matches('.');
    format!("{text} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escaped_text_is_valid_xml_in_one_line() {
        let text = Escaped("<T as \"A\">::f&'a\n\u{1}\u{ffff}ü").to_string();
        let expected = "&lt;T as &quot;A&quot;&gt;::f&amp;&#39;a \u{fffd}\u{fffd}ü";
        assert_eq!(text, expected);
    }

    #[test]
    fn name_is_cut_to_whole_characters_that_fit() {
        let width = |characters: f64| PADDING_PX + CHARACTER_PX * characters;
        assert_eq!(cut_to_width("größer", width(6.0)), "größer");
        assert_eq!(cut_to_width("größer", width(5.5)), "größ…");
        assert_eq!(cut_to_width("größer", width(2.9)), "");
        assert_eq!(cut_to_width("größer", 0.0), "");
    }

    #[test]
    fn numbers_are_formatted_for_people() {
        let counts = [0, 999, 1000, 1_234_567].map(format_count);
        assert_eq!(counts, ["0", "999", "1,000", "1,234,567"]);
        assert_eq!(
            (format_share(1, 8), format_share(0, 0)),
            ("12.50 %".to_owned(), "0.00 %".to_owned())
        );
        let times = [5, 1_500, 1_000_000, 2_345_678_900].map(format_duration);
        assert_eq!(times, ["5 ns", "1.5 µs", "1 ms", "2.346 s"]);
    }
}
