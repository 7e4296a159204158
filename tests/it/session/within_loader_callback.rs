//! The application may call the profiler in its own callback of `dl_iterate_phdr`, or in a library's
//! constructor. The thread then holds a lock of the loader, for which the sampler waits, or another
//! thread that calls the profiler.

use std::ffi::{c_int, c_void};
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::mpsc::{Sender, channel};

use crate::common::{LONGEST_WAIT, Read, isolated, wait_until};
use crate::unwinding::accuracy::c_code;
use gekkota::callback::profiler_callback_after_sampling;
use gekkota::profile::SnapshotOptions;
use gekkota::stack::{
    ProfilerBacktrace, StackFeatures, profiler_capture_backtrace,
    profiler_suspend_and_sample_thread,
};
use gekkota::thread::profiler_current_thread_id;
use gekkota::{
    ProfilerSession, StartParams, profiler_get_profile, profiler_stop, profiler_stream_json,
};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork, gettid};

/// Number of the system call `futex`, with which a thread waits for a lock.
const FUTEX: &str = "202 ";

/// Number of checks after which a stop gives up waiting for the sampler if it does not see that the
/// sampler waits for the loader.
const MAX_CHECKS: i64 = 300;

/// Calls `body` within a callback of `dl_iterate_phdr`.
pub(crate) fn within_loader_callback<F: FnMut()>(mut body: F) {
    unsafe extern "C" fn callback<F: FnMut()>(
        _: *mut libc::dl_phdr_info,
        _: usize,
        body: *mut c_void,
    ) -> c_int {
        // SAFETY: the data pointer that is passed below.
        unsafe { (*body.cast::<F>())() };
        1
    }
    // SAFETY: the callback has the loader's signature, and its data outlives the call.
    let answer = unsafe { libc::dl_iterate_phdr(Some(callback::<F>), (&raw mut body).cast()) };
    assert_eq!(answer, 1);
}

/// Runs `body` on a thread of its own. Fails if it does not return.
fn returns(body: impl FnOnce() + Send + 'static) {
    let (sender, receiver) = channel();
    let thread = std::thread::spawn(move || {
        body();
        sender.send(()).expect("the test waits");
    });
    if receiver.recv_timeout(LONGEST_WAIT).is_err() {
        eprintln!("the call did not return");
        // A normal exit would wait for the same lock.
        std::process::abort();
    }
    thread.join().expect("no panic");
}

/// Runs `body` within a callback of the loader, on a thread of its own. Fails if it does not return.
fn returns_within_loader_callback(body: fn()) {
    returns(move || within_loader_callback(body));
}

/// Waits until the sampler waits for a lock: the loader's, because it takes no other one for long.
/// Returns the sampler's folder in `/proc`.
pub(crate) fn wait_for_blocked_sampler() -> PathBuf {
    let mut blocked = None;
    wait_until("the sampler waits for the loader", || {
        let threads = std::fs::read_dir("/proc/self/task").expect("threads");
        let read = |folder: &std::path::Path, name| {
            std::fs::read_to_string(folder.join(name)).unwrap_or_default()
        };
        let mut folders = threads.map_while(Result::ok).map(|thread| thread.path());
        blocked = folders.find(|folder| {
            read(folder, "comm").trim() == "SamplerThread"
                && read(folder, "syscall").starts_with(FUTEX)
        });
        blocked.is_some()
    });
    blocked.expect("it was found")
}

fn starts_profiles_and_stops() {
    gekkota::profiler_start(StartParams::default()).expect("start");
    wait_for_blocked_sampler();
    let backtrace = profiler_capture_backtrace().expect("memory");
    assert!(
        !backtrace
            .resolve_with(StackFeatures::NATIVE)
            .frames()
            .is_empty()
    );
    assert!(profiler_get_profile().is_some());
    // Helper threads wait for the loader, or begin; the caller waits for none that does not begin.
    for _ in 0..3 {
        let options = SnapshotOptions::default()
            .symbolication_threads(8)
            .name_cache_bytes(0);
        profiler_stream_json(&mut Vec::new(), &options).expect("a profile");
    }
    // Stops the first session while its sampler is blocked.
    gekkota::profiler_start(StartParams::default()).expect("start again");
    wait_for_blocked_sampler();
    profiler_stop();
}

fn forks() {
    wait_for_blocked_sampler();
    fork_and_wait();
}

fn fork_and_wait() {
    // SAFETY: the child only exits.
    match unsafe { fork() }.expect("fork") {
        ForkResult::Child => {
            // SAFETY: ends the process without running its destructors.
            unsafe { libc::_exit(0) }
        }
        ForkResult::Parent { child } => {
            assert_eq!(waitpid(child, None), Ok(WaitStatus::Exited(child, 0)));
        }
    }
}

/// Returns after a session has samples of the calling thread.
fn sample_in_a_session() {
    gekkota::register_thread("after the callback");
    let session = ProfilerSession::start(StartParams::default()).expect("start");
    wait_until("there are samples", || {
        Read::of_running().samples("after the callback").len() > 5
    });
    session.finish().expect("profile");
}

#[test]
fn sessions_within_a_loader_callback_start_and_stop() {
    isolated(|| {
        returns_within_loader_callback(starts_profiles_and_stops);
        sample_in_a_session();
    });
}

#[test]
fn fork_within_a_loader_callback_returns() {
    isolated(|| {
        let session = ProfilerSession::start(StartParams::default()).expect("start");
        returns_within_loader_callback(forks);
        drop(session);
        sample_in_a_session();
    });
}

/// Waits until `thread` waits for a mutex of the C library that the calling thread holds.
fn wait_for_blocked_by_caller(thread: Pid) {
    /// Position of the owner's id in glibc's `pthread_mutex_t`, in words of four bytes.
    const OWNER: usize = 2;
    let caller = gettid().as_raw();
    wait_until("the other thread waits for the loader", || {
        let path = format!("/proc/self/task/{thread}/syscall");
        let call = std::fs::read_to_string(path).unwrap_or_default();
        let mutex = call.strip_prefix(FUTEX).and_then(|rest| {
            let address = rest.split(' ').next()?.strip_prefix("0x")?;
            usize::from_str_radix(address, 16).ok()
        });
        mutex.is_some_and(|mutex| {
            let piece = libc::iovec {
                iov_base: (mutex + 4 * OWNER) as *mut c_void,
                iov_len: 4,
            };
            let mut owner = 0i32;
            let local = libc::iovec {
                iov_base: (&raw mut owner).cast(),
                iov_len: 4,
            };
            // A copy by the kernel: another lock's memory may end before.
            // SAFETY: the kernel writes four bytes to the local.
            let copied = unsafe { libc::process_vm_readv(libc::getpid(), &local, 1, &piece, 1, 0) };
            copied == 4 && owner == caller
        })
    });
}

/// A thread that calls the profiler when the test asks for it, and then waits for the loader.
struct Waiter {
    begin: Sender<()>,
    id: Pid,
    thread: std::thread::JoinHandle<()>,
}

impl Waiter {
    fn start(waits: impl FnOnce() + Send + 'static) -> Self {
        let (begin, begins) = channel();
        let (send_id, id) = channel();
        let thread = std::thread::spawn(move || {
            send_id.send(gettid()).expect("the test waits");
            begins.recv().expect("the test goes on");
            waits();
        });
        // A thread also waits for the loader while it begins.
        let id = id.recv().expect("an id");
        Self { begin, id, thread }
    }

    /// Returns once the thread waits for a lock that the calling thread holds.
    fn begin(&self) {
        self.begin.send(()).expect("the thread waits");
        wait_for_blocked_by_caller(self.id);
    }
}

/// Calls `waits` on one thread while another one is within a callback of the loader, and calls
/// `within` there once the first thread waits for the loader. Fails unless both return.
fn both_return(waits: impl FnOnce() + Send + 'static, within: impl Fn() + Send + 'static) {
    returns(move || {
        let waiter = Waiter::start(waits);
        within_loader_callback(|| {
            waiter.begin();
            within();
        });
        waiter.thread.join().expect("no panic");
    });
}

fn start() {
    gekkota::profiler_start(StartParams::default()).expect("start");
}

fn resolve(backtrace: &ProfilerBacktrace) {
    let stack = backtrace.resolve_with(StackFeatures::NATIVE);
    assert!(stack.frames().len() > 1, "{stack:?}");
}

fn capture_and_resolve() {
    resolve(&profiler_capture_backtrace().expect("memory"));
}

#[test]
fn start_within_a_loader_callback_returns_while_another_start_waits_for_the_loader() {
    isolated(|| {
        both_return(start, start);
        profiler_stop();
        sample_in_a_session();
    });
}

#[test]
fn first_backtrace_within_a_loader_callback_returns_while_another_waits_for_the_loader() {
    isolated(|| both_return(capture_and_resolve, capture_and_resolve));
}

#[test]
fn stacks_within_a_loader_callback_return_while_another_waits_for_the_loader() {
    isolated(|| {
        let (send_id, id) = channel();
        let (end, ends) = channel::<()>();
        let target = std::thread::spawn(move || {
            gekkota::register_thread("sleeps");
            send_id
                .send(profiler_current_thread_id())
                .expect("the test waits");
            let _ = ends.recv();
        });
        let target_id = id.recv().expect("an id");
        let waiting = profiler_capture_backtrace().expect("memory");
        let own = profiler_capture_backtrace().expect("memory");
        both_return(
            move || resolve(&waiting),
            move || {
                resolve(&own);
                let (features, timeout) = (StackFeatures::NATIVE, LONGEST_WAIT);
                let stack = profiler_suspend_and_sample_thread(target_id, features, timeout);
                assert!(stack.expect("a stack").frames().len() > 1);
            },
        );
        drop(end);
        target.join().expect("no panic");
    });
}

#[test]
fn fork_within_a_loader_callback_returns_while_a_stack_waits_for_the_loader() {
    isolated(|| {
        // Installs the fork handlers.
        capture_and_resolve();
        both_return(capture_and_resolve, fork_and_wait);
    });
}

/// A library that calls the function at the address in a variable when it is loaded.
const SOURCE: &str = r#"
#include <stdlib.h>
__attribute__((constructor)) static void calls_the_test(void) {
    ((void (*)(void))strtoul(getenv("GEKKOTA_TEST_CONSTRUCTOR"), 0, 10))();
}
"#;

/// Loads a library whose constructor calls `body`, under the lock of `dlopen` and `dladdr`.
fn within_constructor(body: extern "C" fn()) {
    let folder = c_code::Folder::new();
    let path = c_code::compile(&folder, "constructed", SOURCE, &[]);
    let address = (body as usize).to_string();
    // SAFETY: no other thread uses the environment now.
    unsafe { std::env::set_var("GEKKOTA_TEST_CONSTRUCTOR", address) };
    let _library = c_code::Library::load(&path);
}

static WAITER: Mutex<Option<Waiter>> = Mutex::new(None);

extern "C" fn start_in_constructor() {
    if let Some(waiter) = &*WAITER.lock().expect("no panic") {
        waiter.begin();
    }
    start();
}

#[test]
fn start_in_a_constructor_returns_while_another_start_waits_for_the_loader() {
    isolated(|| {
        returns(|| {
            // Its start looks up the library that contains the profiler.
            *WAITER.lock().expect("no panic") = Some(Waiter::start(start));
            within_constructor(start_in_constructor);
            let waiter = WAITER.lock().expect("no panic").take().expect("a waiter");
            waiter.thread.join().expect("no panic");
            profiler_stop();
        });
        sample_in_a_session();
    });
}

extern "C" fn resolve_save_and_stop_in_constructor() {
    // The names and the saved file are the work of new threads, which the constructor waits for.
    capture_and_resolve();
    start();
    assert!(profiler_get_profile().is_some());
    let file = std::env::temp_dir().join(format!("gekkota-constructor-{}", std::process::id()));
    gekkota::profiler_save_profile_to_file(&file).expect("saved");
    std::fs::remove_file(file).expect("removed");
    assert!(profiler_callback_after_sampling(|_| ()));
    stop_without_many_checks();
}

/// Stops the session, whose sampler waits for a lock that the caller holds. Asserts that the stop
/// sees that. The caller sleeps before each check, and the kernel counts its sleeps.
fn stop_without_many_checks() {
    let sleeps = || {
        let usage = getrusage(UsageWho::RUSAGE_THREAD).expect("the thread's usage");
        usage.voluntary_context_switches()
    };
    let before = sleeps();
    profiler_stop();
    let slept = sleeps() - before;
    assert!(slept < MAX_CHECKS, "the stop slept {slept} times");
}

#[test]
fn profile_and_stop_in_a_constructor_return() {
    isolated(|| {
        returns(|| within_constructor(resolve_save_and_stop_in_constructor));
        sample_in_a_session();
    });
}

extern "C" fn control_and_shut_down_in_constructor() {
    let signals = gekkota::ControlSignals::default();
    gekkota::profiler_control_by_signals(signals).expect("control by signals");
    // Joins the control thread.
    gekkota::profiler_shutdown();
}

#[test]
fn shutdown_in_a_constructor_returns_after_control_by_signals_has_begun() {
    isolated(|| {
        returns(|| within_constructor(control_and_shut_down_in_constructor));
        sample_in_a_session();
    });
}
