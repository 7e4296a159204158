//! Bytes on their way into a marker, in memory that the thread keeps for those of the next one.

use std::cell::RefCell;

/// So many pieces of memory a thread keeps.
const MOST_KEPT: usize = 16;
/// Larger ones are given back.
const MOST_KEPT_BYTES: usize = 4096;
const FIRST_BYTES: usize = 128;

thread_local! {
    static KEPT: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// Bytes that are made on a thread, and may end on another, which then keeps their memory.
#[derive(Debug, Default)]
pub(super) struct PooledBytes(Vec<u8>);

impl PooledBytes {
    /// None, without memory.
    pub(super) const fn new() -> Self {
        Self(Vec::new())
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// For adding some. From the second time on that a thread needs memory, it is what it has kept.
    #[inline]
    pub(super) fn bytes_mut(&mut self) -> &mut Vec<u8> {
        if self.0.capacity() == 0 {
            // The thread may be about to end; or this is code of the host's allocator, called from below.
            let kept = KEPT.try_with(|kept| kept.try_borrow_mut().ok()?.pop());
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
        if !(1..=MOST_KEPT_BYTES).contains(&self.0.capacity()) {
            return;
        }
        let mut memory = std::mem::take(&mut self.0);
        memory.clear();
        let _ = KEPT.try_with(|kept| {
            if let Ok(mut kept) = kept.try_borrow_mut()
                && kept.len() < MOST_KEPT
            {
                kept.push(memory);
            }
        });
    }
}

/// As bytes, at once.
#[cfg(feature = "serde")]
mod coding {
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

    #[test]
    fn memory_is_kept_for_the_next_unless_it_is_large() {
        let mut first = PooledBytes::new();
        drop(PooledBytes::new());
        first.bytes_mut().extend_from_slice(b"abc");
        let place = first.bytes().as_ptr();
        drop(first);
        let mut second = PooledBytes::new();
        assert!(second.bytes_mut().is_empty());
        assert_eq!(second.bytes().as_ptr(), place);
        second.bytes_mut().reserve(MOST_KEPT_BYTES + 1);
        drop(second);
        assert_eq!(KEPT.with(|kept| kept.borrow().len()), 0);
    }
}
