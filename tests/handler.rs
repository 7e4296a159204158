//! The signal handler does not allocate: an allocation in it aborts the process.
//!
//! The handler runs with all signals blocked, and the test's own code never allocates like that. So
//! an allocation on a sampled thread, with all signals blocked, comes from the handler.
#![cfg(has_profiler)]

#[path = "it/common/mod.rs"]
mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use common::wait_until;
use gekkota::script::AutoProfilerScriptFrame;
use gekkota::{AutoProfilerLabel, ProfilerSession, StartParams};

struct AbortingAllocator;

thread_local! {
    static IS_SAMPLED: Cell<bool> = const { Cell::new(false) };
}

fn in_the_handler() -> bool {
    if !IS_SAMPLED.get() {
        return false;
    }
    // SAFETY: the kernel writes to a local, and changes no mask.
    unsafe {
        let mut mask: libc::sigset_t = std::mem::zeroed();
        libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), &mut mask);
        libc::sigismember(&mask, libc::SIGUSR1) == 1
    }
}

fn check(what: &str) {
    if in_the_handler() {
        // SAFETY: the kernel reads the bytes of `what`, and the process ends.
        unsafe {
            libc::write(2, what.as_ptr().cast(), what.len());
            libc::abort();
        }
    }
}

// SAFETY: every method delegates to the system's allocator.
unsafe impl GlobalAlloc for AbortingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        check("allocated in the handler\n");
        // SAFETY: the caller upholds the contract of this method.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        check("freed in the handler\n");
        // SAFETY: the caller upholds the contract of this method.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: AbortingAllocator = AbortingAllocator;

fn with_all_signals_blocked(body: impl FnOnce() -> bool) -> bool {
    // SAFETY: both sets are locals.
    unsafe {
        let (mut all, mut before): (libc::sigset_t, libc::sigset_t) = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
        let result = body();
        libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut());
        result
    }
}

#[test]
fn signal_handler_does_not_allocate() {
    /// Number of captures in which the handler must not allocate.
    const MIN_CAPTURES: u64 = 2000;
    static IS_DONE: AtomicBool = AtomicBool::new(false);
    let session =
        ProfilerSession::start(StartParams::default().interval(Duration::from_micros(100)))
            .expect("start");
    let allocating: Vec<_> = (0..4)
        .map(|_| {
            std::thread::spawn(|| {
                gekkota::register_thread("allocates");
                IS_SAMPLED.set(true);
                assert!(!in_the_handler());
                assert!(
                    with_all_signals_blocked(in_the_handler),
                    "the check detects the handler's mask"
                );
                let category = gekkota::gecko_profiler_category!(Other);
                let function =
                    gekkota::script::profiler_register_script_function("f", "a.script", 1, 1);
                let mut kept = Vec::new();
                while !IS_DONE.load(Ordering::Relaxed) {
                    let _label = AutoProfilerLabel::with_dynamic("label", "dynamic", category);
                    let frame = AutoProfilerScriptFrame::new(function);
                    frame.set_line(kept.len() as u32);
                    kept.push(vec![1u8; kept.len() % 4096]);
                    if kept.len() > 500 {
                        kept.clear();
                    }
                }
                IS_SAMPLED.set(false);
            })
        })
        .collect();
    // The handler runs much more often than this in a second, unless the machine is busy.
    let end = Instant::now() + Duration::from_secs(1);
    wait_until("the handler has run often enough", || {
        let counts = session.snapshot().expect("active").sampler_counts();
        let captures = counts.iter().find(|(name, _)| *name == "captured_samples");
        captures.expect("the count").1 > MIN_CAPTURES && Instant::now() > end
    });
    // RealtimeSanitizer's own handling of a thread's end takes a lock, on which a handler that interrupts
    // it waits for ever.
    drop(session);
    IS_DONE.store(true, Ordering::Relaxed);
    for thread in allocating {
        thread.join().expect("thread");
    }
}
