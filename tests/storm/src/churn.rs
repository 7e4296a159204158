//! Starts short threads, which are registered with the profiler in every way when they end, or not
//! at all.

use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use gekkota::ThreadGuard;

use crate::crew::Context;
use crate::peer;
use crate::random::Random;
use crate::settings;
use crate::tally;
use crate::work::mix;

/// Interval between killed threads in the first half of the storm. They are few, because a thread
/// that ends without its destructors leaks memory of the C library. In the second half, memory is
/// measured.
const KILL_EVERY: Duration = Duration::from_millis(500);
/// Smallest stack for which the profiler keeps a slot.
const KILLED_STACK_BYTES: usize = 64 << 10;

/// Prefix of the names of all threads that are started here.
pub const CHILD: &str = "brood";

#[inline(never)]
fn brood_body(kind: u64, seed: u64, rounds: u64) -> u64 {
    match kind {
        0 => {
            let _registered = ThreadGuard::register(CHILD);
            mix(seed, rounds)
        }
        1 => {
            std::mem::forget(ThreadGuard::register(CHILD));
            mix(seed, rounds)
        }
        2 => mix(seed, rounds),
        3 => {
            gekkota::register_thread(CHILD);
            gekkota::register_thread(CHILD);
            let value = mix(seed, rounds);
            gekkota::unregister_thread();
            value
        }
        _ => {
            gekkota::register_thread(CHILD);
            gekkota::unregister_thread();
            gekkota::unregister_thread();
            gekkota::register_thread(CHILD);
            mix(seed, rounds)
        }
    }
}

pub fn churn_worker(context: &mut Context) {
    let mut last_kill = Instant::now();
    while context.goes_on() {
        peer::while_absent(|| make_and_join(&mut context.random, &mut last_kill));
    }
}

/// Starts threads and joins them. Each of them begins and ends in `catch_unwind`.
fn make_and_join(random: &mut Random, last_kill: &mut Instant) {
    let children: Vec<_> = (0..4)
        .map(|_| {
            let (kind, seed, rounds) = (random.below(5), random.next(), random.below(200_000));
            let thread = std::thread::spawn(move || brood_body(kind, seed, rounds));
            (thread, seed, rounds)
        })
        .collect();
    for (thread, seed, rounds) in children {
        assert_eq!(
            thread.join().expect("the thread does not panic"),
            mix(seed, rounds),
            "a thread returned a wrong result"
        );
        tally::THREADS_BORN.one();
    }
    if last_kill.elapsed() > KILL_EVERY && !settings::is_second_half() {
        *last_kill = Instant::now();
        kill_one(random.next());
    }
}

/// Starts a registered thread that ends with the system call `exit`, so that its destructors do not
/// run.
fn kill_one(seed: u64) {
    struct Task {
        seed: u64,
        value: AtomicU64,
    }
    #[inline(never)]
    extern "C" fn killed_body(task: *mut c_void) -> *mut c_void {
        // SAFETY: the task outlives this thread, which is joined.
        let task = unsafe { &*task.cast::<Task>() };
        gekkota::register_thread(CHILD);
        task.value.store(mix(task.seed, 100_000), Ordering::Relaxed);
        // SAFETY: the call ends only this thread, and the kernel wakes the joining thread.
        unsafe { libc::syscall(libc::SYS_exit, 0) };
        std::ptr::null_mut()
    }
    let task = Task {
        seed,
        value: AtomicU64::new(0),
    };
    // SAFETY: attributes and task are locals, and outlive the thread, which is joined.
    unsafe {
        let mut attributes: libc::pthread_attr_t = std::mem::zeroed();
        assert_eq!(libc::pthread_attr_init(&mut attributes), 0);
        assert_eq!(
            libc::pthread_attr_setstacksize(&mut attributes, KILLED_STACK_BYTES),
            0
        );
        let mut thread = 0;
        let data = (&raw const task).cast_mut().cast();
        assert_eq!(
            libc::pthread_create(&mut thread, &attributes, killed_body, data),
            0
        );
        libc::pthread_attr_destroy(&mut attributes);
        assert_eq!(libc::pthread_join(thread, std::ptr::null_mut()), 0);
    }
    assert_eq!(
        task.value.load(Ordering::Relaxed),
        mix(seed, 100_000),
        "a killed thread returned a wrong result"
    );
    tally::THREADS_BORN.one();
    tally::THREADS_KILLED.one();
}
