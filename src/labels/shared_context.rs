//! The context of a thread in the form of OpenTelemetry's enhancement proposal 4947, for a reader
//! outside of the process.
//!
//! Each thread has one record, which lives as long as the thread (`thread_labels.rs`). The thread
//! clears the record's `valid`, changes the rest, and sets `valid` again. A reader looks only while
//! the thread is stopped, so compiler fences order the stores. The texts of labels are copied only
//! when the thread's labels change.
//!
//! A record has both ids or none, as the proposal demands, and no flags of the trace, which a
//! context does not know.

use std::cell::Cell;
use std::mem::offset_of;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU64, Ordering, compiler_fence};

use crate::labels::context_labels::{publish_context_keys, shared_label};
use crate::labels::thread_context::{ContextWords, MAX_CONTEXT_LABELS, MAX_CONTEXT_TEXT_BYTES};
use crate::platform::{KeptErrno, set_thread_record};
use crate::util::is_any_lock_held_on_current_thread;

/// Maximum length of the labels in a record, in bytes: a key's number, a length and a value each.
const MAX_ATTRIBUTE_BYTES: usize = MAX_CONTEXT_LABELS * (2 + MAX_CONTEXT_TEXT_BYTES);

/// The record of one thread, and what the thread knows of it.
#[derive(Debug)]
#[repr(C)]
pub(super) struct SharedContext {
    /// The id of the trace, its first byte first.
    trace: [AtomicU64; 2],
    /// The id of the span, its first byte first.
    span: AtomicU64,
    /// 1 if the record is a context, and 0 while it is being changed.
    valid: AtomicU8,
    trace_flags: u8,
    /// Length of the used part of `attributes`.
    attribute_bytes: AtomicU16,
    attributes: [Cell<u8>; MAX_ATTRIBUTE_BYTES],
    /// Whether the thread has tried to publish the record, which ends before this field.
    is_published: Cell<bool>,
    /// The words with the numbers of the labels in the record, inverted. So the zeroed memory of a
    /// new thread differs from any labels, because none has the number 0xffff_ffff.
    inverted_labels: Cell<[u64; 2]>,
}

const _: () = assert!(
    offset_of!(SharedContext, span) == 16
        && offset_of!(SharedContext, valid) == 24
        && offset_of!(SharedContext, trace_flags) == 25
        && offset_of!(SharedContext, attribute_bytes) == 26
        && offset_of!(SharedContext, attributes) == 28
        // The length that readers expect at most.
        && offset_of!(SharedContext, is_published) <= 640
        && MAX_CONTEXT_TEXT_BYTES <= u8::MAX as usize
);

impl SharedContext {
    pub(super) const fn new() -> Self {
        Self {
            trace: [const { AtomicU64::new(0) }; 2],
            span: AtomicU64::new(0),
            valid: AtomicU8::new(0),
            trace_flags: 0,
            attribute_bytes: AtomicU16::new(0),
            attributes: [const { Cell::new(0) }; MAX_ATTRIBUTE_BYTES],
            is_published: Cell::new(false),
            inverted_labels: Cell::new([0; 2]),
        }
    }

    /// Shows the context to readers, or that there is none. Called by the record's thread.
    #[inline(always)]
    pub(super) fn set(&self, context: ContextWords) {
        self.valid.store(0, Ordering::Relaxed);
        if !context.is_none() {
            compiler_fence(Ordering::SeqCst);
            let [high, low, span, first, second] = context.to_words();
            self.show(high, low, span, first, second);
        }
    }

    /// Writes the record. Not inlined, so that the caller keeps the words of its contexts in
    /// registers; these are as many arguments as registers take.
    #[inline(never)]
    fn show(&self, high: u64, low: u64, span: u64, first: u64, second: u64) {
        if self.inverted_labels.get() != [!first, !second] {
            self.set_labels([first, second]);
        }
        let has_ids = high | low != 0 && span != 0;
        let id = |word: u64| if has_ids { word.to_be() } else { 0 };
        self.trace[0].store(id(high), Ordering::Relaxed);
        self.trace[1].store(id(low), Ordering::Relaxed);
        self.span.store(id(span), Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        self.valid.store(1, Ordering::Relaxed);
    }

    /// Makes the thread publish the record again, in the child of a fork, where readers do not know
    /// the record.
    pub(super) fn publish_again(&self) {
        if self.is_published.replace(false) {
            // The numbers of the keys are those of the parent.
            set_thread_record(std::ptr::null());
        }
        self.inverted_labels.set([0; 2]);
    }

    /// Copies the labels into the record. The first call on a thread publishes the record.
    #[inline(never)]
    fn set_labels(&self, words: [u64; 2]) {
        if !self.is_published.get() && !self.publish() {
            return;
        }
        let mut free = self.attributes.iter();
        let numbers = words
            .iter()
            .flat_map(|word| [*word as u32, (word >> 32) as u32]);
        for label in numbers.filter_map(shared_label) {
            let value = label.value.as_bytes();
            let head = [label.key, value.len() as u8];
            // The bytes come first: `zip` asks its first iterator first, and so takes no cell after
            // the last byte.
            for (byte, cell) in head.iter().chain(value).zip(&mut free) {
                cell.set(*byte);
            }
        }
        let bytes = MAX_ATTRIBUTE_BYTES - free.len();
        self.attribute_bytes.store(bytes as u16, Ordering::Relaxed);
        self.inverted_labels.set(words.map(|word| !word));
    }

    /// Publishes the names of keys, unless the process has, and then this record. Returns false if
    /// there must be another attempt: the profiler runs the caller, or there is no memory.
    #[cold]
    fn publish(&self) -> bool {
        if is_any_lock_held_on_current_thread() {
            return false;
        }
        let _errno = KeptErrno::new();
        let record = match publish_context_keys() {
            Some(true) => std::ptr::from_ref(self).cast(),
            Some(false) => std::ptr::null(),
            None => return false,
        };
        set_thread_record(record);
        self.is_published.set(true);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::labels::add_context_label;

    /// Returns the bytes that a reader takes: the fixed part without the ids, and the labels.
    fn bytes_of(shared: &SharedContext) -> Vec<u8> {
        let count = shared.attribute_bytes.load(Ordering::Relaxed);
        shared.attributes[..count as usize]
            .iter()
            .map(Cell::get)
            .collect()
    }

    #[test]
    fn record_has_the_ids_in_network_order_and_all_labels() {
        let value = "v".repeat(MAX_CONTEXT_TEXT_BYTES);
        let labels = ["one", "two", "three", "four"]
            .iter()
            .fold([0; MAX_CONTEXT_LABELS], |labels, key| {
                add_context_label(labels, key, &value)
            });
        let context = ContextWords {
            trace: [0x0102_0304_0506_0708, 9],
            span: 7,
            labels,
        };
        let shared = SharedContext::new();
        // So that the record of the test is not published.
        shared.is_published.set(true);
        shared.set(context);
        assert_eq!(shared.valid.load(Ordering::Relaxed), 1);
        let first = shared.trace[0].load(Ordering::Relaxed).to_ne_bytes();
        assert_eq!(first, [1, 2, 3, 4, 5, 6, 7, 8]);
        let span = shared.span.load(Ordering::Relaxed).to_ne_bytes();
        assert_eq!(span, [0, 0, 0, 0, 0, 0, 0, 7]);
        let bytes = bytes_of(&shared);
        assert_eq!(bytes.len(), MAX_ATTRIBUTE_BYTES);
        for label in bytes.chunks(2 + value.len()) {
            assert_eq!(
                (label[1] as usize, &label[2..]),
                (value.len(), value.as_bytes())
            );
        }
        shared.set(ContextWords { span: 0, ..context });
        assert_eq!(
            shared.trace[0].load(Ordering::Relaxed),
            0,
            "not without a span"
        );
        shared.set(ContextWords {
            labels: [0; 4],
            ..context
        });
        assert!(bytes_of(&shared).is_empty());
        shared.set(ContextWords::NONE);
        assert_eq!(shared.valid.load(Ordering::Relaxed), 0);
    }
}
