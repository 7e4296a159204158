//! A thread that runs a coroutine on a small stack, or a handler of the application on its alternate
//! signal stack, is interrupted without overflowing that stack.

use std::hint::black_box;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::coroutine::call_on_stack;
use crate::common::{Read, isolated, wait_until, work};
use gekkota::thread::AutoSignalStack;
use gekkota::{ControlSignals, ProfilerSession, StartParams, profiler_control_by_signals};
use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous, mprotect};

const PAGE: usize = 4096;
/// Stack that the application's handler uses, in bytes. A stack of 8 KiB has no space for this use,
/// the kernel's frames of that handler and of the profiler's, and the profiler's own use.
const USED_BY_HANDLER: usize = 3 << 10;
static IS_OVER: AtomicBool = AtomicBool::new(false);

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
    // SAFETY: the memory is new and is never unmapped.
    unsafe {
        let memory = mmap_anonymous(None, length, access, MapFlags::MAP_PRIVATE).expect("memory");
        mprotect(memory, PAGE, ProtFlags::PROT_NONE).expect("a guard page");
        let stack = memory.byte_add(PAGE).as_ptr();
        call_on_stack(stack, PAGE, work_on_small_stack);
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

extern "C" fn handler_on_signal_stack(_: libc::c_int) {
    let used = black_box([0u8; USED_BY_HANDLER]);
    work_on_small_stack();
    black_box(used);
}

#[test]
fn handler_of_the_host_on_a_larger_signal_stack_is_interrupted() {
    isolated(|| {
        // SAFETY: the action is a local, and the handler has the signature that its flags require.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handler_on_signal_stack as extern "C" fn(_) as usize;
            action.sa_flags = libc::SA_ONSTACK;
            let before = std::ptr::null_mut();
            assert_eq!(libc::sigaction(libc::SIGUSR1, &action, before), 0);
        }
        let session = ProfilerSession::start(StartParams::default()).expect("start");
        let thread = std::thread::spawn(|| {
            let _signal_stack = AutoSignalStack::new(0).expect("a stack");
            gekkota::register_thread("handles");
            // SAFETY: accesses no memory.
            assert_eq!(unsafe { libc::raise(libc::SIGUSR1) }, 0);
        });
        wait_until("the handler is sampled", || {
            Read::of_running().count("samples_on_other_stacks") > 30
        });
        IS_OVER.store(true, Ordering::Relaxed);
        thread.join().expect("thread");
        session.finish().expect("profile");
    });
}

/// Sets the calling thread's signal stack, and returns the one before.
fn set_signal_stack(stack: &libc::stack_t) -> libc::stack_t {
    // SAFETY: the callers pass memory that outlives its use, or none; the out-pointer is to a local.
    unsafe {
        let mut before: libc::stack_t = std::mem::zeroed();
        assert_eq!(libc::sigaltstack(stack, &mut before), 0);
        before
    }
}

#[test]
fn control_handler_runs_on_the_signal_stack_unless_the_hosts_does_not() {
    fn flags_of(signal: libc::c_int) -> libc::c_int {
        // SAFETY: the out-pointer points to a local.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            assert_eq!(libc::sigaction(signal, std::ptr::null(), &mut action), 0);
            action.sa_flags
        }
    }
    isolated(|| {
        // SAFETY: the handler has the signature that its flags require.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handler_on_signal_stack as extern "C" fn(_) as usize;
            let before = std::ptr::null_mut();
            assert_eq!(libc::sigaction(libc::SIGUSR2, &action, before), 0);
        }
        profiler_control_by_signals(ControlSignals::default()).expect("control");
        let start = flags_of(libc::SIGUSR1) & (libc::SA_ONSTACK | libc::SA_RESTART);
        assert_eq!(start, libc::SA_ONSTACK | libc::SA_RESTART);
        assert_eq!(flags_of(libc::SIGUSR2) & libc::SA_ONSTACK, 0);
    });
}

#[test]
fn signal_stacks_that_threads_have_replaced_do_not_add_up() {
    const THREADS: usize = 200;
    fn mappings() -> usize {
        let maps = std::fs::read("/proc/self/maps").expect("maps");
        maps.iter().filter(|&&byte| byte == b'\n').count()
    }
    /// As a thread that was started from C does, which has no signal stack before it sets its own.
    fn register_and_set_own_stack() {
        let mut own = vec![0u8; 64 << 10];
        let none = libc::stack_t {
            ss_sp: std::ptr::null_mut(),
            ss_flags: libc::SS_DISABLE,
            ss_size: 0,
        };
        let of_std = set_signal_stack(&none);
        gekkota::register_thread("replaces its stack");
        let of_gekkota = set_signal_stack(&libc::stack_t {
            ss_sp: own.as_mut_ptr().cast(),
            ss_flags: 0,
            ss_size: own.len(),
        });
        assert_eq!(of_gekkota.ss_flags & libc::SS_DISABLE, 0);
        gekkota::unregister_thread();
        set_signal_stack(&of_std);
    }
    isolated(|| {
        let run = || std::thread::spawn(register_and_set_own_stack).join();
        run().expect("thread");
        let before = mappings();
        (0..THREADS).for_each(|_| run().expect("thread"));
        let added = mappings().saturating_sub(before);
        assert!(added < THREADS / 2, "{added} mappings more");
    });
}
