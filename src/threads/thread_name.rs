//! The name of a thread: the one that the application gave it, or else the system's, which may
//! change at any time.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use once_cell::race::OnceBox;

use crate::util::{PsLock, cut_at_character};

/// Size of the kernel's buffer for a name, in bytes, with the terminating zero.
const SYSTEM_BYTES: usize = 16;

/// The name of a thread.
#[derive(Debug, Default)]
pub(crate) struct ThreadName {
    /// The name with which the thread registered. Written once.
    given: OnceBox<String>,
    system: SystemName,
}

impl ThreadName {
    pub(crate) fn given(name: String) -> Self {
        Self {
            given: OnceBox::with_value(Box::new(name)),
            system: SystemName::default(),
        }
    }

    /// Creates the name of a thread that has not registered.
    pub(crate) fn of_system(name: &str) -> Self {
        let created = Self::default();
        created.system.set(name);
        created
    }

    /// Sets the name with which the thread registers. The first one stays.
    pub(crate) fn set_given(&self, name: String) {
        // A second name is dropped.
        let _ = self.given.set(Box::new(name));
    }

    /// Returns the name that the system reported last.
    pub(crate) fn system(&self) -> String {
        self.system.get()
    }

    /// Sets the name that the system reports. Returns false if that is the one it had.
    pub(crate) fn set_system(&self, name: &str, _proof: &PsLock) -> bool {
        let is_new = self.system.get() != cut(name);
        if is_new {
            self.system.set(name);
        }
        is_new
    }

    pub(crate) fn get(&self) -> String {
        match self.given.get() {
            Some(given) => given.clone(),
            None => self.system.get(),
        }
    }

    /// Returns the size of the name's memory, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.given.get().map_or(0, |given| given.capacity())
    }
}

/// A name of at most 15 bytes, padded with zeros, that other threads may read while it changes.
#[derive(Debug, Default)]
struct SystemName {
    /// Odd while the name changes.
    changes: AtomicU32,
    words: [AtomicU64; 2],
}

impl SystemName {
    /// Sets the name. Called by one thread at a time.
    fn set(&self, name: &str) {
        let mut bytes = [0; SYSTEM_BYTES];
        let name = cut(name);
        bytes[..name.len()].copy_from_slice(name.as_bytes());
        let changes = self.changes.load(Ordering::Relaxed);
        self.changes
            .store(changes.wrapping_add(1), Ordering::Relaxed);
        fence(Ordering::Release);
        for (word, bytes) in self.words.iter().zip(bytes.as_chunks().0) {
            word.store(u64::from_ne_bytes(*bytes), Ordering::Relaxed);
        }
        self.changes
            .store(changes.wrapping_add(2), Ordering::Release);
    }

    fn get(&self) -> String {
        loop {
            let before = self.changes.load(Ordering::Acquire);
            let words = self
                .words
                .each_ref()
                .map(|word| word.load(Ordering::Relaxed));
            fence(Ordering::Acquire);
            if before.is_multiple_of(2) && self.changes.load(Ordering::Relaxed) == before {
                let bytes = words.map(u64::to_ne_bytes);
                let bytes = bytes.as_flattened();
                let end = bytes
                    .iter()
                    .position(|&byte| byte == 0)
                    .unwrap_or(SYSTEM_BYTES);
                return String::from_utf8_lossy(&bytes[..end]).into_owned();
            }
            std::hint::spin_loop();
        }
    }
}

/// Returns the part of a name that fits.
fn cut(name: &str) -> &str {
    let end = name.find('\0').unwrap_or(name.len());
    cut_at_character(&name[..end], SYSTEM_BYTES - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_name_hides_the_systems() {
        let name = ThreadName::of_system("tokio");
        assert_eq!(name.get(), "tokio");
        let lock = PsLock::acquire();
        assert!(name.set_system("tokio-worker-1234567", &lock));
        assert!(!name.set_system("tokio-worker-12", &lock), "the same");
        assert_eq!(name.get(), "tokio-worker-12");
        name.set_given("accepts connections".to_owned());
        name.set_given("second".to_owned());
        name.set_system("third", &lock);
        assert_eq!(name.system(), "third");
        assert_eq!(name.get(), "accepts connections");
        assert_eq!(ThreadName::given("one".to_owned()).get(), "one");
    }

    #[test]
    fn system_name_is_never_a_mixture() {
        let name = ThreadName::of_system("aaaaaaaaaaaaaaa");
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..10_000 {
                    let lock = PsLock::acquire();
                    name.set_system("bbbbbbbbbbbbbbb", &lock);
                    name.set_system("aaaaaaaaaaaaaaa", &lock);
                }
            });
            for _ in 0..10_000 {
                let read = name.get();
                assert!(
                    read == "aaaaaaaaaaaaaaa" || read == "bbbbbbbbbbbbbbb",
                    "{read}"
                );
            }
        });
    }
}
