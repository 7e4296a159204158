//! Loads a library, calls it and unloads it. Libraries of different sizes are mapped to the same
//! addresses in turn.

use std::ffi::{CStr, c_void};

use crate::crew::Context;
use crate::gate;
use crate::library;
use crate::peer;
use crate::random::Random;
use crate::tally;
use crate::work::{mix, mix_and_unwind, mix_deep};

type Work = extern "C" fn(u64, u64, u64) -> u64;

/// A loaded library, unloaded on drop.
pub struct Loaded<'a> {
    handle: *mut c_void,
    path: &'a CStr,
}

impl<'a> Loaded<'a> {
    pub fn open(path: &'a CStr) -> Self {
        // SAFETY: the path is a C string, and the library has only the compiler's initializers.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        assert!(!handle.is_null(), "{path:?} cannot be loaded");
        tally::LOADS.one();
        Self { handle, path }
    }

    pub fn work(&self) -> Work {
        // SAFETY: the handle belongs to a loaded library.
        let symbol = unsafe { libc::dlsym(self.handle, c"storm_library_work".as_ptr()) };
        assert!(!symbol.is_null(), "{:?} lacks its function", self.path);
        // SAFETY: the library defines the function with this signature.
        unsafe { std::mem::transmute::<*mut c_void, Work>(symbol) }
    }
}

impl Drop for Loaded<'_> {
    fn drop(&mut self) {
        // SAFETY: the handle is closed once, and no code of the library is on this thread's stack.
        let answer = unsafe { libc::dlclose(self.handle) };
        assert_eq!(answer, 0, "cannot unload {:?}", self.path);
    }
}

/// Returns whether the library is still loaded, perhaps by another thread.
fn is_loaded(path: &CStr) -> bool {
    // SAFETY: the path is a C string, and `RTLD_NOLOAD` loads nothing.
    let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD) };
    if handle.is_null() {
        return false;
    }
    // SAFETY: closes the handle that was just opened.
    unsafe { libc::dlclose(handle) };
    true
}

/// Calls the library, and compares its result with the storm's own.
#[inline(never)]
pub fn call(work: Work, kind: u64, seed: u64, rounds: u64) {
    let expected = match kind {
        0 => mix(seed, rounds),
        1 => mix_deep(seed, rounds, 30),
        _ => mix_and_unwind(seed, rounds, 12),
    };
    assert_eq!(
        work(kind, seed, rounds),
        expected,
        "the library returned a wrong result"
    );
}

pub fn load_worker(context: &mut Context) {
    let paths = library::in_rust();
    while context.goes_on() {
        peer::while_absent(|| load_and_call(&paths, &mut context.random));
    }
}

fn load_and_call(paths: &[&CStr], random: &mut Random) {
    let path = &paths[random.below(paths.len() as u64) as usize];
    let open = || gate::without_profiling_forks(|| Loaded::open(path));
    let loaded = gate::with_descriptors(open);
    let work = loaded.work();
    for _ in 0..random.below(200) {
        call(work, random.below(3), random.next(), random.below(20_000));
    }
    let close = || {
        drop(loaded);
        if !is_loaded(path) {
            tally::UNLOADS.one();
        }
    };
    gate::with_descriptors(|| gate::without_profiling_forks(close));
}
