//! The signal handler allocates nothing: an allocation in it ends the process.
//!
//! In the handler every signal is blocked, which the host's own code here never does; so an allocation with everything
//! blocked, on a thread that is sampled, was made by the handler.
#![cfg(has_profiler)]

#[path = "it/common/mod.rs"]
mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::time::{Duration, Instant};

use common::Read;
use gekkota::script::AutoProfilerScriptFrame;
use gekkota::{AutoProfilerLabel, ProfilerSession, StartParams};

struct AbortsInTheHandler;

thread_local! {
    static IS_SAMPLED: Cell<bool> = const { Cell::new(false) };
}

fn in_the_handler() -> bool {
    if !IS_SAMPLED.get() {
        return false;
    }
    // SAFETY: the set is on this stack; nothing is changed.
    unsafe {
        let mut mask: libc::sigset_t = std::mem::zeroed();
        libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), &mut mask);
        libc::sigismember(&mask, libc::SIGUSR1) == 1
    }
}

fn check(what: &str) {
    if in_the_handler() {
        // SAFETY: writes constant bytes and ends the process.
        unsafe {
            libc::write(2, what.as_ptr().cast(), what.len());
            libc::abort();
        }
    }
}

// SAFETY: the system's allocator does the work.
unsafe impl GlobalAlloc for AbortsInTheHandler {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        check("allocated in the handler\n");
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        check("freed in the handler\n");
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: AbortsInTheHandler = AbortsInTheHandler;

fn with_all_signals_blocked(body: impl FnOnce() -> bool) -> bool {
    // SAFETY: both sets are on this stack.
    unsafe {
        let (mut all, mut before): (libc::sigset_t, libc::sigset_t) = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
        let answer = body();
        libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut());
        answer
    }
}

#[test]
fn nothing_is_allocated_in_the_handler() {
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
                    "the check sees a handler's mask"
                );
                let category = gekkota::gecko_profiler_category!(Other);
                let function =
                    gekkota::script::profiler_register_script_function("f", "a.script", 1, 1);
                let end = Instant::now() + Duration::from_secs(2);
                let mut kept = Vec::new();
                while Instant::now() < end {
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
    for thread in allocating {
        thread.join().expect("thread");
    }
    let read = Read::from_profile(&session.finish().expect("profile"));
    assert!(
        read.count("captured_samples") > 2000,
        "{}",
        read.count("captured_samples")
    );
}
