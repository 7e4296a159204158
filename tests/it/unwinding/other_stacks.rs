//! A thread that runs on a stack that it was not born with, a coroutine's or a signal's, is sampled as far as that is
//! readable, and the profile says where it was.

use std::cell::UnsafeCell;
use std::time::Duration;

use crate::common::{Read, Sample, isolated, work_for_cpu};
use gekkota::{AutoProfilerLabel, ProfilerSession, StartParams};

const OTHER_STACK: &str = "(other stack)";

#[inline(never)]
extern "C" fn works_in_coroutine() {
    let _label =
        AutoProfilerLabel::new("in the coroutine", gekkota::gecko_profiler_category!(Other));
    work_for_cpu(Duration::from_millis(100));
    std::hint::black_box(1);
}

#[inline(never)]
extern "C" fn works_in_signal_handler(_: libc::c_int) {
    work_for_cpu(Duration::from_millis(100));
    std::hint::black_box(2);
}

#[inline(never)]
fn works_at_home() {
    work_for_cpu(Duration::from_millis(100));
    std::hint::black_box(3);
}

struct Contexts(UnsafeCell<[libc::ucontext_t; 2]>);

/// Switches to a stack of `bytes` bytes whose end is followed by a page that nobody may touch, and back.
fn run_coroutine(bytes: usize) {
    let guard = 4096;
    // SAFETY: a new mapping; its first and last pages are made unreadable, the context runs between them on this
    // thread, and everything lives until it has come back.
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
    // SAFETY: the stack lives until the handler has returned; the action is on this stack.
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

#[test]
fn stacks_of_other_kinds_are_read_as_far_as_they_go() {
    isolated(|| {
        let session = ProfilerSession::start(StartParams::default()).expect("start");
        std::thread::spawn(|| {
            gekkota::register_thread("wanders");
            works_at_home();
            // A large one, and one that is smaller than what is copied at most.
            run_coroutine(256 << 10);
            run_coroutine(16 << 10);
            run_signal_handler();
            works_at_home();
        })
        .join()
        .expect("thread");
        let read = Read::from_profile(&session.finish().expect("profile"));
        let samples = read.samples("wanders");

        let home: Vec<_> = in_function(&samples, "works_at_home").collect();
        assert!(home.len() > 60 && home.iter().all(|sample| sample.stack[0] != OTHER_STACK));
        for (name, least) in [("works_in_coroutine", 60), ("works_in_signal_handler", 30)] {
            let away: Vec<_> = in_function(&samples, name).collect();
            println!(
                "{name}: {} samples, such as {:?}",
                away.len(),
                away.first().map(|sample| &sample.stack)
            );
            assert!(away.len() > least, "{} samples of {name}", away.len());
            for sample in away {
                assert_eq!(sample.stack[0], OTHER_STACK);
                // Where it began nobody knows, and the function that works is not cut off.
                assert!(
                    sample
                        .stack
                        .iter()
                        .position(|frame| frame.contains(name))
                        .is_some_and(|at| at <= 4)
                );
            }
        }
        let labelled = in_function(&samples, "in the coroutine").count();
        assert!(
            labelled > 60,
            "{labelled} samples with the coroutine's label"
        );
        assert!(read.count("samples_on_other_stacks") > 90);
    });
}
