//! Workloads of the traced children.

use std::cell::Cell;
use std::hint::black_box;
use std::io::Read;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use gekkota::script::{AutoProfilerScriptFrame, profiler_register_script_function};
use gekkota::{AutoProfilerLabel, ProfilerSession, StartParams};

use super::TIME_LIMIT;
use crate::common::coroutine::call_on_stack;
use crate::common::work;

/// Names of the threads, each of which has a different workload.
pub const LIVES: [&str; 5] = [
    "allocates",
    "goes_deep",
    "calls",
    "signal_stack",
    "other_stack",
];

static ENOUGH: AtomicBool = AtomicBool::new(false);

fn goes_on() -> bool {
    !ENOUGH.load(Ordering::Relaxed)
}

fn live(name: &'static str, mut round: impl FnMut() + Send + 'static) -> JoinHandle<()> {
    let body = move || {
        gekkota::register_thread(name);
        while goes_on() {
            round();
        }
    };
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(body)
        .expect("thread")
}

/// Profiles itself at 10 kHz while its threads work, until the tracer ends it.
pub fn be_profiled(deepest: u32) {
    limit_lifetime();
    let params = StartParams::default().interval(Duration::from_micros(100));
    let session = ProfilerSession::start(params).expect("start");
    let threads = [
        live("allocates", allocate),
        live("goes_deep", move || {
            black_box(recurse(deepest));
        }),
        live("calls", call),
        live("signal_stack", work_on_the_signal_stack),
        live("other_stack", work_on_another_stack),
    ];
    wait_until_enough();
    for thread in threads {
        thread.join().expect("thread");
    }
    session.finish().expect("profile");
}

/// Kills this process if it hangs: some time after [`TIME_LIMIT`].
pub fn limit_lifetime() {
    let seconds = TIME_LIMIT.as_secs() as u32 + 60;
    // SAFETY: `alarm` accesses no memory.
    unsafe { libc::alarm(seconds) };
}

/// Waits until the tracer closes standard input.
pub fn wait_until_enough() {
    std::io::stdin()
        .read_to_end(&mut Vec::new())
        .expect("input");
    ENOUGH.store(true, Ordering::Relaxed);
}

fn allocate() {
    let category = gekkota::gecko_profiler_category!(Other);
    let _label = AutoProfilerLabel::new("allocates", category);
    let function = profiler_register_script_function("allocate", "workload.script", 1, 1);
    let frame = AutoProfilerScriptFrame::new(function);
    for size in 1..200usize {
        frame.set_line(size as u32);
        let _inner = AutoProfilerScriptFrame::new(function);
        let text = format!("{size} bytes");
        let _label = AutoProfilerLabel::with_dynamic("one", &text, category);
        black_box(vec![1u8; size * 37]);
    }
    // Large enough for the allocator to make a system call.
    black_box(vec![1u8; 1 << 20]);
}

#[inline(never)]
fn recurse(depth: u32) -> u64 {
    let kept = [u64::from(depth); 16];
    let below = if depth == 0 {
        work(20_000)
    } else {
        recurse(depth - 1)
    };
    below + black_box(kept)[7]
}

fn call() {
    // SAFETY: neither call accesses memory.
    unsafe { black_box(libc::getppid() + libc::sched_yield()) };
    std::fs::write("/dev/null", [0; 100]).expect("the null device");
    work(5_000);
    std::thread::sleep(Duration::from_micros(50));
}

extern "C" fn on_the_signal_stack(_: libc::c_int) {
    work(100_000);
}

thread_local! {
    static SIGNAL_STACK: Cell<Option<&'static [u8]>> = const { Cell::new(None) };
}

fn work_on_the_signal_stack() {
    if SIGNAL_STACK.get().is_none() {
        let stack = Box::leak(vec![0u8; 256 << 10].into_boxed_slice());
        let place = libc::stack_t {
            ss_sp: stack.as_mut_ptr().cast(),
            ss_flags: 0,
            ss_size: stack.len(),
        };
        SIGNAL_STACK.set(Some(stack));
        // SAFETY: the stack is never freed, and the handler has the signature that its flags
        // require.
        unsafe {
            assert_eq!(libc::sigaltstack(&place, std::ptr::null_mut()), 0);
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = on_the_signal_stack as extern "C" fn(_) as usize;
            action.sa_flags = libc::SA_ONSTACK;
            assert_eq!(
                libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut()),
                0
            );
        }
    }
    // SAFETY: `raise` accesses no memory.
    assert_eq!(unsafe { libc::raise(libc::SIGUSR1) }, 0);
}

extern "C" fn on_another_stack() {
    let _label = AutoProfilerLabel::new("other stack", gekkota::gecko_profiler_category!(Other));
    work(200_000);
}

/// Runs a coroutine once, on its own stack, as coroutine libraries do.
fn work_on_another_stack() {
    let mut stack = vec![0u8; 128 << 10];
    // SAFETY: nothing else uses the vector.
    unsafe { call_on_stack(stack.as_mut_ptr().cast(), stack.len(), on_another_stack) };
    black_box(stack);
}

/// Installs a handler of the test for the profiler's signal, as the profiler does, and sends it
/// signals.
pub fn be_signaled(handler: extern "C" fn(libc::c_int), times: u32) {
    limit_lifetime();
    // SAFETY: the handler has the signature that its flags require, and the value is not
    // dereferenced.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as usize;
        action.sa_flags = libc::SA_RESTART;
        libc::sigfillset(&mut action.sa_mask);
        assert_eq!(
            libc::sigaction(libc::SIGURG, &action, std::ptr::null_mut()),
            0
        );
        for _ in 0..times {
            let value = libc::sigval {
                sival_ptr: std::ptr::null_mut(),
            };
            assert_eq!(
                libc::pthread_sigqueue(libc::pthread_self(), libc::SIGURG, value),
                0
            );
        }
    }
    wait_until_enough();
}
