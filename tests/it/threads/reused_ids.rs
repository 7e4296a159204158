//! A thread that gets the id of a registered thread whose end has not been noticed.
//!
//! Only with glibc, in which a thread can be joined that has ended by a system call of its own.

use std::ffi::c_void;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use crate::common::{Read, isolated, one_loop, wait_until};
use gekkota::{ProfilerSession, StartParams, register_thread};

fn current_thread_id() -> i32 {
    nix::unistd::gettid().as_raw()
}

/// Runs a registered thread that ends with the system call `exit`, so that its destructors do not
/// unregister it. Returns its id.
fn id_of_thread_that_ended_unnoticed(name: &'static str) -> i32 {
    extern "C" fn body(task: *mut c_void) -> *mut c_void {
        // SAFETY: the task outlives this thread, which is joined.
        let (name, id) = unsafe { &*task.cast::<(&str, AtomicI32)>() };
        register_thread(name);
        id.store(current_thread_id(), Ordering::Relaxed);
        // SAFETY: the call ends only this thread, and the kernel wakes the joining thread.
        unsafe { libc::syscall(libc::SYS_exit, 0) };
        std::ptr::null_mut()
    }
    let mut task = (name, AtomicI32::new(0));
    let mut thread = 0;
    let data = (&raw mut task).cast();
    // SAFETY: the task outlives the thread, which is joined.
    unsafe {
        assert_eq!(
            libc::pthread_create(&mut thread, std::ptr::null(), body, data),
            0
        );
        assert_eq!(libc::pthread_join(thread, std::ptr::null_mut()), 0);
    }
    task.1.into_inner()
}

/// Starts a thread with this id, which registers if it gets a name, and waits until the sender is
/// dropped. `None` if the system does not let this process choose an id, or if another process has it
/// meanwhile.
fn start_with_id(
    wanted: i32,
    name: Option<&'static str>,
) -> Option<(mpsc::Sender<()>, JoinHandle<()>)> {
    for _ in 0..100 {
        std::fs::write("/proc/sys/kernel/ns_last_pid", (wanted - 1).to_string()).ok()?;
        let (end, ends) = mpsc::channel::<()>();
        let (has_id, id) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            if current_thread_id() == wanted {
                name.map(register_thread);
            }
            has_id.send(current_thread_id()).expect("the test waits");
            // `recv` returns an error once the sender is dropped.
            assert!(ends.recv().is_err());
        });
        if id.recv().expect("the thread's id") == wanted {
            return Some((end, thread));
        }
        drop(end);
        thread.join().expect("the thread");
    }
    None
}

/// Ends a registered thread unnoticed, starts another one with its id, and returns how many samples a
/// session takes of each. `None` if the system does not let this process choose ids.
fn samples_of_ended_and_heir(heir: Option<&'static str>) -> Option<[usize; 2]> {
    gekkota::profiler_init();
    let gone = id_of_thread_that_ended_unnoticed("gone");
    // The kernel's record of a thread's start has a resolution of 10 ms.
    std::thread::sleep(Duration::from_millis(100));
    let Some((end, thread)) = start_with_id(gone, heir) else {
        println!("skipped: this process cannot choose the ids of its threads");
        return None;
    };
    register_thread("test");
    let session = ProfilerSession::start(StartParams::default()).expect("start");
    wait_until("this thread has samples", || {
        one_loop();
        Read::of_running().samples("test").len() > 20
    });
    let read = Read::of_running();
    drop(session);
    drop(end);
    thread.join().expect("the thread");
    Some(["gone", "heir"].map(|name| {
        let mut threads = read.threads().iter();
        let thread = threads.find(|thread| thread["name"] == name);
        thread.map_or(0, |thread| {
            let rows = &thread["samples"]["data"];
            rows.as_array().expect("rows").len()
        })
    }))
}

#[test]
fn registered_thread_with_the_id_of_an_ended_one_has_its_own_samples() {
    isolated(|| {
        let Some([gone, heir]) = samples_of_ended_and_heir(Some("heir")) else {
            return;
        };
        assert_eq!(gone, 0, "the thread had ended");
        assert!(heir > 0);
    });
}

#[test]
fn unregistered_thread_with_the_id_of_an_ended_one_has_no_samples() {
    isolated(|| {
        if let Some(samples) = samples_of_ended_and_heir(None) {
            assert_eq!(samples, [0, 0]);
        }
    });
}
