//! Formats the application's values.
//!
//! Formatting a value runs code of the application. This code may log or open spans itself, perhaps
//! with the same value again, and it may panic.

use std::cell::Cell;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::util::{TextBudget, cut_at_character};

/// Replaces the rest of a text if a value panics while it is formatted.
const PANICKED: &str = "(panicked)";

thread_local! {
    static IS_FORMATTING: Cell<bool> = const { Cell::new(false) };
}

/// Returns whether the calling thread is formatting a value for a marker. Records, spans and events
/// that the value itself produces during that time are not recorded, because formatting them could
/// recurse without end.
#[inline]
pub(crate) fn is_formatting() -> bool {
    IS_FORMATTING.get()
}

/// Sets the thread's flag. Dropping this resets the flag, even when a panic unwinds.
struct FormattingGuard;

impl FormattingGuard {
    fn begin() -> Self {
        IS_FORMATTING.set(true);
        Self
    }
}

impl Drop for FormattingGuard {
    fn drop(&mut self) {
        IS_FORMATTING.set(false);
    }
}

/// Appends formatted text, truncated to `max_bytes` at a character boundary. If a value panics, the
/// text ends with [`PANICKED`].
///
/// The caller must have checked that [`is_formatting`] returns false.
#[inline]
pub(crate) fn append_text(out: &mut Vec<u8>, arguments: fmt::Arguments<'_>, max_bytes: usize) {
    match arguments.as_str() {
        Some(text) => append_str(out, text, max_bytes),
        None => append_formatted(out, arguments, max_bytes),
    }
}

/// Appends a text, truncated to `max_bytes` at a character boundary.
#[inline]
pub(crate) fn append_str(out: &mut Vec<u8>, text: &str, max_bytes: usize) {
    out.extend_from_slice(cut_at_character(text, max_bytes).as_bytes());
}

fn append_formatted(out: &mut Vec<u8>, arguments: fmt::Arguments<'_>, max_bytes: usize) {
    let mut text = CutText {
        out,
        space: TextBudget::new(max_bytes),
    };
    let _formatting = FormattingGuard::begin();
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| _ = fmt::write(&mut text, arguments))) {
        // Dropping the panic's payload would run code of the application again.
        std::mem::forget(panic);
        let _ = fmt::Write::write_str(&mut text, PANICKED);
    }
}

/// Appends formatted text, and ends the formatting when the space is used up.
struct CutText<'a> {
    out: &'a mut Vec<u8>,
    space: TextBudget,
}

impl fmt::Write for CutText<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.out.extend_from_slice(self.space.take(text).as_bytes());
        self.space.check_not_cut()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text_of(arguments: fmt::Arguments<'_>, max_bytes: usize) -> String {
        let mut out = b"<".to_vec();
        append_text(&mut out, arguments, max_bytes);
        assert!(!is_formatting());
        String::from_utf8(out).expect("whole characters")
    }

    #[test]
    fn text_is_truncated_at_a_character_boundary() {
        assert_eq!(text_of(format_args!("literal"), 4), "<lite");
        assert_eq!(text_of(format_args!("{}é{}", 1, 2), 9), "<1é2");
        assert_eq!(text_of(format_args!("{}é{}", 1, 2), 2), "<1");
    }

    #[test]
    fn panicking_value_ends_the_text_with_a_note() {
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
