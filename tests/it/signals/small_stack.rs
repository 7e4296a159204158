//! A thread that runs a coroutine on a small stack is interrupted without overflowing that stack.

use std::hint::black_box;
use std::mem::MaybeUninit;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::{Read, isolated, wait_until, work};
use gekkota::{ProfilerSession, StartParams};
use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous, mprotect};

const PAGE: usize = 4096;
static IS_OVER: AtomicBool = AtomicBool::new(false);

// SAFETY: the declarations match those of the C library.
unsafe extern "C" {
    fn getcontext(here: *mut libc::ucontext_t) -> libc::c_int;
    fn makecontext(
        context: *mut libc::ucontext_t,
        start: extern "C" fn(),
        arguments: libc::c_int,
        ...
    );
    fn swapcontext(here: *mut libc::ucontext_t, there: *const libc::ucontext_t) -> libc::c_int;
}

extern "C" fn work_on_small_stack() {
    while !IS_OVER.load(Ordering::Relaxed) {
        black_box(work(1000));
    }
}

/// Runs a coroutine on a stack of one page. Below it is a page that cannot be accessed, so an
/// overflow ends the process.
fn run_coroutine() {
    let length = NonZeroUsize::new(2 * PAGE).expect("not zero");
    let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
    let mut here = MaybeUninit::<libc::ucontext_t>::uninit();
    let mut there = MaybeUninit::<libc::ucontext_t>::uninit();
    // SAFETY: the memory is new and is never unmapped. `getcontext` initialises the context that
    // `makecontext` changes, and `swapcontext` the one to return to.
    unsafe {
        let memory = mmap_anonymous(None, length, access, MapFlags::MAP_PRIVATE).expect("memory");
        mprotect(memory, PAGE, ProtFlags::PROT_NONE).expect("a guard page");
        assert_eq!(getcontext(there.as_mut_ptr()), 0);
        let context = &mut *there.as_mut_ptr();
        context.uc_stack.ss_sp = memory.byte_add(PAGE).as_ptr();
        context.uc_stack.ss_size = PAGE;
        context.uc_link = here.as_mut_ptr();
        makecontext(there.as_mut_ptr(), work_on_small_stack, 0);
        assert_eq!(swapcontext(here.as_mut_ptr(), there.as_ptr()), 0);
    }
}

#[test]
fn coroutine_on_one_page_is_sampled() {
    isolated(|| {
        let session = ProfilerSession::start(StartParams::default()).expect("start");
        let thread = std::thread::spawn(|| {
            gekkota::register_thread("coroutine");
            run_coroutine();
        });
        wait_until("the coroutine is sampled", || {
            Read::of_running().count("samples_on_other_stacks") > 30
        });
        IS_OVER.store(true, Ordering::Relaxed);
        thread.join().expect("thread");
        session.finish().expect("profile");
    });
}
