//! The main thread has ended, and the process goes on with its other threads.

use std::io::{Read as _, Write as _};

use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, fork};

use crate::common::{Read, isolated, wait_until};
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
