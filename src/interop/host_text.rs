//! What values of the host's say of themselves.
//!
//! To format one is to run code of the host's, which may log or open spans itself, of which it may format the same value again; and
//! which may panic.

use std::cell::Cell;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::base::{TextRoom, cut_at_character};

/// What stands for the rest of a text whose value has panicked.
const PANICKED: &str = "(panicked)";

thread_local! {
    static FORMATS: Cell<bool> = const { Cell::new(false) };
}

/// Whether the calling thread formats a value for a marker just now. What is said meanwhile is said by that value, and is no
/// marker: so nothing goes round for ever that did not before.
#[inline]
pub(super) fn is_formatting() -> bool {
    FORMATS.get()
}

/// Sets a thread's mark back, also when a panic comes by.
struct Formatting;

impl Formatting {
    fn begin() -> Self {
        FORMATS.set(true);
        Self
    }
}

impl Drop for Formatting {
    fn drop(&mut self) {
        FORMATS.set(false);
    }
}

/// Appends what is formatted, at most so many bytes of it, cut at a character. A value that panics ends it, and a word says so.
///
/// Whoever calls this has asked [`is_formatting`].
#[inline]
pub(super) fn append_text(out: &mut Vec<u8>, arguments: fmt::Arguments<'_>, most_bytes: usize) {
    match arguments.as_str() {
        Some(text) => append_str(out, text, most_bytes),
        None => append_formatted(out, arguments, most_bytes),
    }
}

/// Appends a text, at most so many bytes of it, cut at a character.
#[inline]
pub(super) fn append_str(out: &mut Vec<u8>, text: &str, most_bytes: usize) {
    out.extend_from_slice(cut_at_character(text, most_bytes).as_bytes());
}

fn append_formatted(out: &mut Vec<u8>, arguments: fmt::Arguments<'_>, most_bytes: usize) {
    let mut text = CutText {
        out,
        room: TextRoom::of(most_bytes),
    };
    let _formatting = Formatting::begin();
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| _ = fmt::write(&mut text, arguments))) {
        // To drop it is to run code of the host's again.
        std::mem::forget(panic);
        let _ = fmt::Write::write_str(&mut text, PANICKED);
    }
}

/// Ends what is formatted when there is no room left.
struct CutText<'a> {
    out: &'a mut Vec<u8>,
    room: TextRoom,
}

impl fmt::Write for CutText<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.out.extend_from_slice(self.room.take(text).as_bytes());
        self.room.is_left()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text_of(arguments: fmt::Arguments<'_>, most_bytes: usize) -> String {
        let mut out = b"<".to_vec();
        append_text(&mut out, arguments, most_bytes);
        assert!(!is_formatting());
        String::from_utf8(out).expect("whole characters")
    }

    #[test]
    fn a_text_is_cut_at_a_character() {
        assert_eq!(text_of(format_args!("literal"), 4), "<lite");
        assert_eq!(text_of(format_args!("{}é{}", 1, 2), 9), "<1é2");
        assert_eq!(text_of(format_args!("{}é{}", 1, 2), 2), "<1");
    }

    #[test]
    fn a_value_that_panics_ends_its_text_and_is_told_of() {
        struct Panics;
        impl fmt::Display for Panics {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                assert!(is_formatting());
                f.write_str("so far")?;
                panic!("on purpose")
            }
        }
        assert_eq!(
            text_of(format_args!("a {Panics} b"), 100),
            "<a so far(panicked)"
        );
        assert_eq!(text_of(format_args!("a {Panics} b"), 10), "<a so far(p");
    }
}
