//! Formats the application's values, and keeps the buffers for the texts.
//!
//! Formatting a value runs code of the application. This code may log or open spans itself, perhaps
//! with the same value again, and it may panic.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::util::{TextBudget, cut_at_character};

/// Replaces the rest of a text if a value panics while it is formatted.
const PANICKED: &str = "(panicked)";
/// Maximum number of buffers that a thread keeps.
const MAX_KEPT: usize = 16;
/// Maximum capacity of a buffer that a thread keeps, in bytes; larger ones are freed.
const MAX_KEPT_BYTES: usize = 4096;
const FIRST_BYTES: usize = 128;

thread_local! {
    static IS_FORMATTING: Cell<bool> = const { Cell::new(false) };
    static KEPT_BUFFERS: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
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

/// Bytes in a reusable buffer. The thread that drops them keeps the buffer, even if another thread
/// created them.
#[derive(Debug, Default)]
pub(crate) struct PooledBytes(Vec<u8>);

impl PooledBytes {
    /// Creates an empty value without a buffer.
    pub(crate) const fn new() -> Self {
        Self(Vec::new())
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the bytes for appending. An empty value first takes a buffer that the thread has
    /// kept, or allocates one.
    #[inline]
    pub(crate) fn bytes_mut(&mut self) -> &mut Vec<u8> {
        if self.0.capacity() == 0 {
            // The list is unavailable while the thread exits. It is borrowed if the application's
            // allocator logs during an access to the list and so gets here.
            let kept = KEPT_BUFFERS.try_with(|kept| kept.try_borrow_mut().ok()?.pop());
            self.0 = kept
                .ok()
                .flatten()
                .unwrap_or_else(|| Vec::with_capacity(FIRST_BYTES));
        }
        &mut self.0
    }
}

impl Drop for PooledBytes {
    #[inline]
    fn drop(&mut self) {
        if !(1..=MAX_KEPT_BYTES).contains(&self.0.capacity()) {
            return;
        }
        let mut memory = std::mem::take(&mut self.0);
        memory.clear();
        let _ = KEPT_BUFFERS.try_with(|kept| {
            if let Ok(mut kept) = kept.try_borrow_mut()
                && kept.len() < MAX_KEPT
            {
                kept.push(memory);
            }
        });
    }
}

/// Serializes the bytes as one byte string.
#[cfg(feature = "serde")]
mod serde_impls {
    use serde::de::{Deserialize, Deserializer, Error, Visitor};
    use serde::ser::{Serialize, Serializer};

    use super::PooledBytes;

    impl Serialize for PooledBytes {
        #[inline]
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            serializer.serialize_bytes(&self.0)
        }
    }

    impl<'de> Deserialize<'de> for PooledBytes {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            deserializer.deserialize_bytes(Bytes)
        }
    }

    struct Bytes;

    impl Visitor<'_> for Bytes {
        type Value = PooledBytes;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("bytes")
        }

        fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<PooledBytes, E> {
            let mut pooled = PooledBytes::new();
            if !bytes.is_empty() {
                pooled.bytes_mut().extend_from_slice(bytes);
            }
            Ok(pooled)
        }
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

    #[test]
    fn buffer_is_reused_unless_it_is_large() {
        let mut first = PooledBytes::new();
        drop(PooledBytes::new());
        first.bytes_mut().extend_from_slice(b"abc");
        let address = first.bytes().as_ptr();
        drop(first);
        let mut second = PooledBytes::new();
        assert!(second.bytes_mut().is_empty());
        assert_eq!(second.bytes().as_ptr(), address);
        second.bytes_mut().reserve(MAX_KEPT_BYTES + 1);
        drop(second);
        assert_eq!(KEPT_BUFFERS.with(|kept| kept.borrow().len()), 0);
    }
}
