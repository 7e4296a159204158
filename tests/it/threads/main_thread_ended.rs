//! The main thread has ended, and the process continues with its other threads.

use std::io::{Read as _, Write as _};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork};

use crate::common::{LONGEST_WAIT, Read, isolated, wait_until};
use crate::sampling::places::{Place, is_in};
use gekkota::marker::built_in::FlowMarker;
use gekkota::{FlowId, MarkerOptions, ProfilerSession, StartParams, gecko_profiler_category};

static WORKING: Place = Place::new("works on");
const THREAD: &str = "works on";

#[inline(never)]
fn works_without_main_thread() {
    WORKING.work();
}

/// Waits until the main thread has ended, and then profiles. Checks that functions have names and
/// markers their payloads.
fn profile_without_main_thread() -> Result<(), String> {
    let main = std::process::id();
    wait_until("the main thread has ended", || {
        let stat = std::fs::read_to_string(format!("/proc/self/task/{main}/stat"));
        stat.is_ok_and(|stat| stat.contains(") Z "))
    });
    let session =
        ProfilerSession::start(StartParams::default()).map_err(|error| error.to_string())?;
    let thread = std::thread::spawn(|| {
        gekkota::register_thread(THREAD);
        let flow = FlowId::from(7u64);
        let (category, options) = (gecko_profiler_category!(Other), MarkerOptions::default());
        gekkota::add_marker("flow", category, options, FlowMarker { flow });
        works_without_main_thread();
    });
    WORKING.release_after(THREAD, 20);
    thread.join().expect("thread");
    let read = Read::from_profile(&session.finish().expect("profile"));
    let markers = read.markers(THREAD);
    if !markers
        .iter()
        .any(|marker| marker.5["type"] == "FlowMarker")
    {
        return Err(format!("no payload: {markers:?}"));
    }
    let samples = read.samples(THREAD);
    if samples
        .iter()
        .any(|sample| is_in(sample, "works_without_main_thread"))
    {
        Ok(())
    } else {
        Err(format!("no names: {:?}", samples.last()))
    }
}

unsafe extern "C-unwind" {
    fn pthread_exit(value: *mut libc::c_void) -> !;
}

/// Runs in a child of `fork`, on its main thread.
type OnMainThread = fn();

/// Forks on a thread whose stack has no frame that stops `pthread_exit`, runs `body` in the child, and
/// ends the child's main thread. Returns the child.
fn child_without_main_thread(body: OnMainThread) -> Pid {
    extern "C-unwind" fn forks(body: *mut libc::c_void) -> *mut libc::c_void {
        // SAFETY: glibc lets the child of a program with threads call any function.
        let child = unsafe { libc::fork() };
        if child != 0 {
            return std::ptr::without_provenance_mut(child as usize);
        }
        // SAFETY: the pointer is that of a function, which `child_without_main_thread` passes.
        unsafe { std::mem::transmute::<*mut libc::c_void, OnMainThread>(body)() };
        // SAFETY: nothing on this stack is to be dropped.
        unsafe { pthread_exit(std::ptr::null_mut()) }
    }
    // SAFETY: the C library calls the function as C, and its forced unwinding may pass through it. The
    // ids are locals.
    let child = unsafe {
        let start = std::mem::transmute::<
            extern "C-unwind" fn(*mut libc::c_void) -> *mut libc::c_void,
            extern "C" fn(*mut libc::c_void) -> *mut libc::c_void,
        >(forks);
        let mut thread = std::mem::zeroed();
        let none = std::ptr::null();
        assert_eq!(
            libc::pthread_create(&mut thread, none, start, body as *mut libc::c_void),
            0
        );
        let mut child = std::ptr::null_mut();
        assert_eq!(libc::pthread_join(thread, &mut child), 0);
        child
    };
    Pid::from_raw(child.addr() as i32)
}

/// Returns how the child ends, and kills it if it does not.
fn end_of(child: Pid) -> WaitStatus {
    let end = Instant::now() + LONGEST_WAIT / 4;
    loop {
        let status = waitpid(child, Some(WaitPidFlag::WNOHANG)).expect("a child");
        if status != WaitStatus::StillAlive {
            return status;
        }
        if Instant::now() > end {
            kill(child, Signal::SIGKILL).expect("a child");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn start_session() {
    std::mem::forget(ProfilerSession::start(StartParams::default()).expect("start"));
}

#[test]
fn process_without_threads_of_its_own_ends() {
    isolated(|| {
        let child = child_without_main_thread(start_session);
        assert_eq!(
            end_of(child),
            WaitStatus::Exited(child, 0),
            "only the profiler is left"
        );

        let child = child_without_main_thread(|| {
            start_session();
            std::thread::spawn(|| {
                std::thread::sleep(Duration::from_millis(300));
                // SAFETY: ends the process.
                unsafe { libc::_exit(7) }
            });
        });
        assert_eq!(
            end_of(child),
            WaitStatus::Exited(child, 7),
            "a thread is left"
        );

        let child = child_without_main_thread(|| {
            start_session();
            std::thread::spawn(|| {
                loop {
                    std::thread::park();
                }
            });
        });
        kill(child, Signal::SIGTERM).expect("a child");
        let killed = WaitStatus::Signaled(child, Signal::SIGTERM, false);
        assert_eq!(
            end_of(child),
            killed,
            "a signal is for the thread that is left"
        );
    });
}

#[test]
fn functions_and_payloads_are_readable_after_the_main_thread_has_ended() {
    isolated(|| {
        let (mut answer, mut write) = std::io::pipe().expect("a pipe");
        // SAFETY: glibc lets the child of a program with threads call any function.
        let child = match unsafe { fork() }.expect("a child") {
            ForkResult::Parent { child } => child,
            ForkResult::Child => {
                std::thread::spawn(move || {
                    let found = std::panic::catch_unwind(profile_without_main_thread);
                    let found = found.unwrap_or_else(|_| Err("panicked".to_owned()));
                    let text = found.err().unwrap_or_default();
                    let is_written = write.write_all(text.as_bytes()).is_ok();
                    // SAFETY: ends the process.
                    unsafe { libc::_exit(i32::from(!is_written)) }
                });
                // SAFETY: ends this thread only, which is the main thread of the child.
                unsafe { libc::syscall(libc::SYS_exit, 0) };
                unreachable!("the thread has ended")
            }
        };
        drop(write);
        let mut text = String::new();
        answer.read_to_string(&mut text).expect("a text");
        let status = waitpid(child, None).expect("the child's status");
        assert_eq!((status, text.as_str()), (WaitStatus::Exited(child, 0), ""));
    });
}
