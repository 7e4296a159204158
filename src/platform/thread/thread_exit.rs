//! Calls at the end of a thread, which need no destructor of a thread-local. The C library waits for
//! the loader when a thread-local gets its destructor, and these calls are asked for in the
//! application's allocator.
//!
//! **Contract** (cited below):
//! - *one type*: the values of a key are references to the type that the key was made for, which
//!   live as long as the process.

use std::ffi::c_void;
use std::marker::PhantomData;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

/// What is called when the thread ends.
pub(crate) trait AtThreadExit: Sync + 'static {
    /// Runs on the thread that ends, after the destructors of its thread-locals.
    fn at_thread_exit(&'static self);
}

/// A key under which each thread may leave one value.
#[derive(Debug)]
pub(crate) struct ThreadExitKey<T: 'static> {
    /// The system's key, plus one; 0 before it is made.
    key: AtomicU64,
    values: PhantomData<fn(&'static T)>,
}

impl<T: AtThreadExit> ThreadExitKey<T> {
    pub(crate) const fn new() -> Self {
        Self {
            key: AtomicU64::new(0),
            values: PhantomData,
        }
    }

    /// Creates the key, unless it exists. If the system has no more keys, no function is called at
    /// the end of a thread. The caller has pinned this library.
    pub(crate) fn prepare(&self) {
        if self.key.load(Ordering::Relaxed) != 0 {
            return;
        }
        let mut key = 0;
        // SAFETY: the key is written, and `run::<T>` has the type that the C library calls.
        let made = unsafe { libc::pthread_key_create(&mut key, Some(run::<T>)) };
        if made == 0 {
            // If another thread has just created a key, that key is used.
            let made = u64::from(key) + 1;
            let _ = (self.key).compare_exchange(0, made, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// Lets `value` be called when the calling thread ends. Returns false where that is impossible.
    pub(crate) fn call(&self, value: &'static T) -> bool {
        let Some(key) = self.key.load(Ordering::Relaxed).checked_sub(1) else {
            return false;
        };
        // SAFETY: the key exists; it is never deleted. *one type*: `value` is such a reference.
        unsafe {
            libc::pthread_setspecific(key as libc::pthread_key_t, ptr::from_ref(value).cast()) == 0
        }
    }
}

/// Called by the C library with the value that a thread has left.
unsafe extern "C" fn run<T: AtThreadExit>(value: *mut c_void) {
    // SAFETY: *one type*; the C library does not call this with null.
    let value: &'static T = unsafe { &*value.cast() };
    value.at_thread_exit();
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Counted(AtomicU64);

    impl AtThreadExit for Counted {
        fn at_thread_exit(&'static self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn value_is_called_once_for_each_thread_that_has_left_it() {
        static VALUE: Counted = Counted(AtomicU64::new(0));
        static KEY: ThreadExitKey<Counted> = ThreadExitKey::new();
        assert!(!KEY.call(&VALUE), "the key is not made yet");
        KEY.prepare();
        KEY.prepare();
        for _ in 0..3 {
            let thread = std::thread::spawn(|| KEY.call(&VALUE) && KEY.call(&VALUE));
            assert!(thread.join().expect("a thread"));
        }
        std::thread::spawn(|| ()).join().expect("a thread");
        assert_eq!(VALUE.0.load(Ordering::Relaxed), 3);
    }
}
