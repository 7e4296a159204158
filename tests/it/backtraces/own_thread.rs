//! A thread takes its own backtrace. It has the true call chain and the labels. After the first few
//! backtraces, none makes a system call.

use std::hint::black_box;

use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, fork};

use crate::common::isolated;
use gekkota::stack::{
    ProfilerBacktrace, StackFeatures, StackFrame, StackSample, profiler_capture_backtrace,
};
use gekkota::thread::profiler_current_thread_id;
use gekkota::{AutoProfilerLabel, gecko_profiler_category, register_thread, unregister_thread};

fn capture() -> ProfilerBacktrace {
    profiler_capture_backtrace().expect("a backtrace")
}

/// Returns the last part of the name of each function in a stack, innermost first, including
/// inlined functions.
fn functions(stack: &StackSample) -> Vec<String> {
    let last = |name: &str| name.rsplit("::").next().unwrap_or_default().to_owned();
    stack
        .names()
        .iter()
        .flatten()
        .map(|name| last(&name.name))
        .collect()
}

macro_rules! chain {
    ($($name:ident -> $next:ident,)+) => {
        $(
            #[inline(never)]
            fn $name(then: &dyn Fn() -> ProfilerBacktrace) -> ProfilerBacktrace {
                let backtrace = black_box($next(then));
                black_box(backtrace)
            }
        )+
    };
}

chain! { outer -> middle, middle -> inner, }

#[inline(never)]
fn inner(then: &dyn Fn() -> ProfilerBacktrace) -> ProfilerBacktrace {
    black_box(then())
}

#[inline(never)]
fn captures() -> ProfilerBacktrace {
    black_box(profiler_capture_backtrace().expect("a backtrace"))
}

/// Deep enough that the backtrace needs memory of another size class.
#[inline(never)]
fn recurse(depth: usize) -> ProfilerBacktrace {
    let padding = black_box([depth; 64]);
    let backtrace = if depth == 0 {
        captures()
    } else {
        recurse(depth - 1)
    };
    black_box(&padding);
    backtrace
}

fn in_a_thread<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> T {
    std::thread::Builder::new()
        .stack_size(16 << 20)
        .spawn(body)
        .expect("spawn")
        .join()
        .expect("the thread does not panic")
}

#[test]
fn backtrace_has_the_true_chain_on_registered_and_unregistered_threads() {
    isolated(|| {
        for registered in [false, true] {
            in_a_thread(move || {
                if registered {
                    register_thread("takes backtraces");
                }
                let before = gekkota::ProfilerTime::now();
                let backtrace = outer(&captures);
                let after = gekkota::ProfilerTime::now();
                assert_eq!(backtrace.thread(), profiler_current_thread_id());
                // Unwound later on another thread, when this thread's stack has changed.
                let stack = std::thread::spawn(move || backtrace.resolve())
                    .join()
                    .expect("thread");
                assert!(!stack.is_truncated(), "{stack}");
                assert!(stack.time() >= before && stack.time() <= after);
                let functions = functions(&stack);
                assert_eq!(
                    functions[0], "captures",
                    "inlined functions of the profiler are in the stack: {stack}"
                );
                let ours = ["captures", "inner", "middle", "outer"];
                let found: Vec<_> = functions
                    .iter()
                    .filter(|name| ours.contains(&name.as_str()))
                    .collect();
                assert_eq!(found, ours, "{stack}");
                let oldest = stack.names().last().expect("frames");
                assert!(
                    oldest.iter().any(|name| name.name.contains("clone")),
                    "{stack}"
                );
            });
        }
    });
}

#[test]
fn labels_follow_the_functions_that_pushed_them() {
    isolated(|| {
        #[inline(never)]
        fn pushes() -> ProfilerBacktrace {
            let _outer = AutoProfilerLabel::with_dynamic(
                "outer label",
                "of a thread",
                gecko_profiler_category!(Other),
            );
            black_box(outer(&captures))
        }
        in_a_thread(|| {
            register_thread("pushes labels");
            let backtrace = pushes();
            let stack = backtrace.resolve();
            let frames: Vec<String> = stack
                .frames()
                .iter()
                .zip(stack.names())
                .map(|(frame, names)| match frame {
                    StackFrame::Label { text, .. } => format!("[{text}]"),
                    _ => names.last().map_or(String::new(), |name| name.name.clone()),
                })
                .collect();
            let at = frames
                .iter()
                .position(|frame| frame == "[outer label of a thread]")
                .expect("the label");
            assert!(frames[at - 1].ends_with("::pushes"), "{frames:#?}");
            assert!(
                stack.to_string().contains(": [outer label of a thread]\n"),
                "{stack}"
            );

            let native = backtrace.resolve_with(StackFeatures::NATIVE);
            assert_eq!(native.frames().len(), stack.frames().len() - 1);
            let labels = backtrace.resolve_with(StackFeatures::LABELS);
            assert_eq!(
                labels.frames(),
                [StackFrame::Label {
                    text: "outer label of a thread".to_owned(),
                    is_sensitive: true
                }]
            );
            assert!(!labels.is_truncated());
            let with_leaf = backtrace.resolve_with(StackFeatures::LABELS | StackFeatures::LEAF);
            assert_eq!(with_leaf.frames().len(), 2);
            assert!(functions(&with_leaf)[0] == "captures", "{with_leaf}");
            unregister_thread();
            assert!(
                pushes()
                    .resolve_with(StackFeatures::LABELS)
                    .frames()
                    .is_empty()
            );
        });
    });
}

/// Makes the kernel kill the process at the next system call other than `exit_group`. Returns false
/// if the kernel refuses.
fn forbid_system_calls_but_exit() -> bool {
    let step = |code: u32, jt, k: u32| libc::sock_filter {
        code: code as u16,
        jt,
        jf: 0,
        k,
    };
    let mut steps = [
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0),
        step(
            libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
            1,
            libc::SYS_exit_group as u32,
        ),
        step(
            libc::BPF_RET | libc::BPF_K,
            0,
            libc::SECCOMP_RET_KILL_PROCESS,
        ),
        step(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog {
        len: steps.len() as u16,
        filter: steps.as_mut_ptr(),
    };
    // SAFETY: the kernel only reads the program, which outlives the calls.
    unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(
                libc::PR_SET_SECCOMP,
                libc::SECCOMP_MODE_FILTER,
                &raw const program,
            ) == 0
    }
}

/// Returns whether `body` returns in a child process that the kernel kills at its first system
/// call.
fn makes_no_system_call(prepare: fn(), body: fn()) -> bool {
    // SAFETY: the profiler's fork handlers allow the child to call the profiler.
    match unsafe { fork() }.expect("a child") {
        ForkResult::Child => {
            prepare();
            let allowed = forbid_system_calls_but_exit();
            if allowed {
                body();
            }
            // SAFETY: ends the process.
            unsafe { libc::_exit(if allowed { 0 } else { 3 }) }
        }
        ForkResult::Parent { child } => match waitpid(child, None).expect("the child's status") {
            WaitStatus::Exited(_, 0) => true,
            WaitStatus::Exited(_, status) => {
                panic!("the kernel has refused the filter, or the body has exited: {status}")
            }
            _ => false,
        },
    }
}

#[test]
fn backtraces_after_the_first_make_no_system_call() {
    isolated(|| {
        fn take_backtraces() {
            for depth in [0, 10, 100] {
                drop(black_box(recurse(depth)));
            }
        }
        fn read_the_clock() {
            black_box(gekkota::ProfilerTime::now());
        }
        fn read_the_id() {
            profiler_current_thread_id();
        }
        gekkota::profiler_init();
        assert!(
            !makes_no_system_call(|| (), read_the_id),
            "the check has missed a system call"
        );
        if makes_no_system_call(read_the_clock, read_the_clock) {
            assert!(
                makes_no_system_call(take_backtraces, || (0..100).for_each(|_| take_backtraces()))
            );
        } else {
            println!("not checked: reading the clock is a system call on this machine");
        }
    });
}

#[test]
fn deep_stack_is_whole_up_to_1_mib() {
    isolated(|| {
        in_a_thread(|| {
            let recursions = |stack: &StackSample| {
                let names = stack.names().iter().flatten();
                names
                    .filter(|name| name.name.ends_with("::recurse"))
                    .count()
            };
            // Each frame takes at least 512 bytes, and less than 1200.
            let whole = recurse(800).resolve();
            assert_eq!((recursions(&whole), whole.is_truncated()), (801, false));
            let cut = recurse(10_000).resolve();
            assert!(cut.is_truncated());
            assert!(
                (800..2100).contains(&recursions(&cut)),
                "{}",
                recursions(&cut)
            );
        });
    });
}

#[test]
fn backtraces_of_concurrent_threads_are_their_own() {
    isolated(|| {
        let takers: Vec<_> = (0..8)
            .map(|_| {
                std::thread::spawn(|| {
                    let kept: Vec<_> = (0..200).map(|_| outer(&capture)).collect();
                    let own = profiler_current_thread_id();
                    for backtrace in &kept {
                        let stack = backtrace.resolve();
                        assert!(stack.thread() == own && !stack.is_truncated());
                        assert_eq!(stack.frames().len(), kept[0].resolve().frames().len());
                    }
                    kept
                })
            })
            .collect();
        let kept: Vec<_> = takers
            .into_iter()
            .flat_map(|taker| taker.join().expect("thread"))
            .collect();
        assert_eq!(kept.len(), 1600);
        for backtrace in &kept {
            assert!(!backtrace.resolve().is_truncated());
        }
    });
}
