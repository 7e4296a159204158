//! A thread that gets the id of a registered one, whose end nobody has noticed.

use std::ffi::c_void;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;

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

/// Starts a registered thread with this id, which waits until the sender is dropped. `None` if the
/// system does not let this process choose an id, or if another process has it meanwhile.
fn start_with_id(wanted: i32, name: &'static str) -> Option<(mpsc::Sender<()>, JoinHandle<()>)> {
    for _ in 0..100 {
        std::fs::write("/proc/sys/kernel/ns_last_pid", (wanted - 1).to_string()).ok()?;
        let (end, ends) = mpsc::channel::<()>();
        let (has_id, id) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            if current_thread_id() == wanted {
                register_thread(name);
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

#[test]
fn samples_belong_to_the_thread_that_has_the_id_now() {
    isolated(|| {
        gekkota::profiler_init();
        let gone = id_of_thread_that_ended_unnoticed("gone");
        let Some((end, heir)) = start_with_id(gone, "heir") else {
            println!("skipped: this process cannot choose the ids of its threads");
            return;
        };
        let session = ProfilerSession::start(StartParams::default()).expect("start");
        wait_until("the second thread has samples", || {
            one_loop();
            Read::of_running().samples("heir").len() > 5
        });
        let read = Read::of_running();
        drop(session);
        let samples_of = |name: &str| {
            let mut threads = read.threads().iter();
            let thread = threads.find(|thread| thread["name"] == name);
            thread.map_or(0, |thread| {
                thread["samples"]["data"].as_array().expect("rows").len()
            })
        };
        assert!(samples_of("heir") > 5);
        assert_eq!(samples_of("gone"), 0, "the thread had ended");
        drop(end);
        heir.join().expect("the thread");
    });
}
