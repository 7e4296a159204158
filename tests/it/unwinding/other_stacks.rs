//! A thread on another stack than its own, such as a coroutine's or a signal's, is sampled as far
//! as that stack is readable, and the profile marks the stack.

use std::cell::UnsafeCell;

use crate::common::{Read, Sample, isolated};
use crate::sampling::places::Place;
use gekkota::{ProfilerSession, StartParams};

const OTHER_STACK: &str = "(other stack)";
const LABELS: [&str; 3] = ["on its own stack", "in the coroutine", "in the handler"];

static OWN_STACK: Place = Place::new(LABELS[0]);
static COROUTINE: Place = Place::new(LABELS[1]);
static HANDLER: Place = Place::new(LABELS[2]);

#[inline(never)]
extern "C" fn works_in_coroutine() {
    COROUTINE.work();
    std::hint::black_box(1);
}

#[inline(never)]
extern "C" fn works_in_signal_handler(_: libc::c_int) {
    // The signal is raised outside of any push of a label, so the place may push its own.
    HANDLER.work();
    std::hint::black_box(2);
}

#[inline(never)]
fn works_on_own_stack() {
    OWN_STACK.work();
    std::hint::black_box(3);
}

struct Contexts(UnsafeCell<[libc::ucontext_t; 2]>);

/// Switches to a stack of `bytes` bytes between two inaccessible pages, and back.
fn run_coroutine(bytes: usize) {
    let guard = 4096;
    // SAFETY: the context runs on this thread, in a new mapping that lives until it returns.
    unsafe {
        let (protection, flags) = (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
        );
        let start = libc::mmap(
            std::ptr::null_mut(),
            bytes + 2 * guard,
            protection,
            flags,
            -1,
            0,
        );
        assert_ne!(start, libc::MAP_FAILED);
        assert_eq!(libc::mprotect(start, guard, libc::PROT_NONE), 0);
        assert_eq!(
            libc::mprotect(start.byte_add(guard + bytes), guard, libc::PROT_NONE),
            0
        );
        let contexts = Contexts(UnsafeCell::new(std::mem::zeroed()));
        let [home, away] = &mut *contexts.0.get();
        assert_eq!(libc::getcontext(away), 0);
        away.uc_stack.ss_sp = start.byte_add(guard);
        away.uc_stack.ss_size = bytes;
        away.uc_link = home;
        libc::makecontext(away, works_in_coroutine, 0);
        assert_eq!(libc::swapcontext(home, away), 0);
        libc::munmap(start, bytes + 2 * guard);
    }
}

fn run_signal_handler() {
    let mut stack = vec![0u8; 64 << 10];
    // SAFETY: the signal stack lives until the handler has returned, and the action is a local.
    unsafe {
        let on = libc::stack_t {
            ss_sp: stack.as_mut_ptr().cast(),
            ss_flags: 0,
            ss_size: stack.len(),
        };
        let mut before: libc::stack_t = std::mem::zeroed();
        assert_eq!(libc::sigaltstack(&on, &mut before), 0);
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = works_in_signal_handler as extern "C" fn(_) as usize;
        action.sa_flags = libc::SA_ONSTACK;
        assert_eq!(
            libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut()),
            0
        );
        assert_eq!(libc::raise(libc::SIGUSR1), 0);
        assert_eq!(libc::sigaltstack(&before, std::ptr::null_mut()), 0);
    }
}

fn in_function<'a>(samples: &'a [Sample], name: &'a str) -> impl Iterator<Item = &'a Sample> {
    samples
        .iter()
        .filter(move |sample| sample.stack.iter().any(|frame| frame.contains(name)))
}

const THREAD: &str = "changes stacks";
/// Number of samples to see of each visit.
const SAMPLES: usize = 40;

#[test]
fn other_stacks_are_read_as_far_as_they_are_readable() {
    isolated(|| {
        let session = ProfilerSession::start(StartParams::default()).expect("start");
        let thread = std::thread::spawn(|| {
            gekkota::register_thread(THREAD);
            works_on_own_stack();
            // One is larger than the maximum copy, one is smaller.
            run_coroutine(256 << 10);
            run_coroutine(16 << 10);
            run_signal_handler();
            works_on_own_stack();
        });
        for place in [&OWN_STACK, &COROUTINE, &COROUTINE, &HANDLER, &OWN_STACK] {
            place.release_after(THREAD, SAMPLES);
        }
        thread.join().expect("thread");
        let read = Read::from_profile(&session.finish().expect("profile"));
        let samples = read.samples(THREAD);

        let own: Vec<_> = in_function(&samples, "works_on_own_stack").collect();
        assert!(own.len() >= 2 * SAMPLES, "{} samples", own.len());
        assert!(own.iter().all(|sample| sample.stack[0] != OTHER_STACK));
        for (name, least) in [
            ("works_in_coroutine", 2 * SAMPLES),
            ("works_in_signal_handler", SAMPLES),
        ] {
            let other: Vec<_> = in_function(&samples, name).collect();
            println!(
                "{name}: {} samples, such as {:?}",
                other.len(),
                other.first().map(|sample| &sample.stack)
            );
            assert!(other.len() >= least, "{} samples of {name}", other.len());
            for sample in other {
                assert_eq!(sample.stack[0], OTHER_STACK);
                // The function that works is not cut off. The outer end of the stack is unknown.
                let mut native = sample
                    .stack
                    .iter()
                    .filter(|frame| !LABELS.contains(&frame.as_str()));
                assert!(
                    native
                        .position(|frame| frame.contains(name))
                        .is_some_and(|at| at <= 4),
                    "{:?}",
                    sample.stack
                );
            }
        }
        let labeled = in_function(&samples, LABELS[1]).count();
        assert!(
            labeled >= 2 * SAMPLES,
            "{labeled} samples with the coroutine's label"
        );
        assert!(read.count("samples_on_other_stacks") >= 3 * SAMPLES as u64);
    });
}
