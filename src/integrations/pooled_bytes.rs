//! Byte buffers for payloads, which each thread reuses.

use std::cell::RefCell;

/// Maximum number of buffers that a thread keeps.
const MAX_KEPT: usize = 16;
/// Maximum capacity of a buffer that a thread keeps, in bytes; larger ones are freed.
const MAX_KEPT_BYTES: usize = 4096;
const FIRST_BYTES: usize = 128;

thread_local! {
    static KEPT_BUFFERS: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
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
