//! The sampler's lists of modules and threads may need more memory than there is. Then it makes them
//! later.
//!
//! While the sampler waits for the loader, in the middle of a tick, it has already found that there
//! is a little memory.

use std::fs::File;
use std::io::Read as _;
use std::path::PathBuf;
use std::sync::Barrier;
use std::time::Duration;

use super::{ONE_ARENA, end_limit, leave_memory};
use crate::common::{Read, isolated_with, wait_until};
use crate::session::within_loader_callback::{wait_for_blocked_sampler, within_loader_callback};
use crate::unwinding::accuracy::c_code;
use gekkota::{ProfilerSession, StartParams};

/// More memory than the sampler wants for a tick, and less than it needs for the lists, in bytes.
const LEFT_BYTES: u64 = 80 << 10;

/// Number of the system call `clock_nanosleep`, in which the sampler sleeps between two ticks.
const SLEEP: &[u8] = b"230 ";

/// Calls `prepare` in the middle of a tick, and lets the sampler end that tick with [`LEFT_BYTES`] of
/// memory.
fn tick_without_memory(prepare: impl FnOnce()) {
    let mut prepare = Some(prepare);
    let mut path = PathBuf::new();
    within_loader_callback(|| {
        path = wait_for_blocked_sampler().join("syscall");
        prepare.take().expect("called once")();
        leave_memory(LEFT_BYTES);
    });
    // Allocates nothing.
    let sleeps = || {
        let mut call = [0; SLEEP.len()];
        let read = File::open(&path).and_then(|mut file| file.read_exact(&mut call));
        read.is_ok() && call == *SLEEP
    };
    while !sleeps() {
        std::thread::sleep(Duration::from_millis(1));
    }
    end_limit();
}

#[test]
fn libraries_loaded_without_memory_for_their_list_are_listed_later() {
    const LIBRARIES: usize = 150;
    isolated_with(&[ONE_ARENA], || {
        let folder = c_code::Folder::new();
        let original = c_code::compile(&folder, "many", "int f(void) { return 1; }", &[]);
        let copies: Vec<PathBuf> = (0..LIBRARIES)
            .map(|number| {
                let copy = folder.path().join(format!("copy-{number}.so"));
                std::fs::copy(&original, &copy).expect("a copy");
                copy
            })
            .collect();
        let _session = ProfilerSession::start(StartParams::default()).expect("start");
        let mut libraries = Vec::new();
        tick_without_memory(|| {
            libraries.extend(copies.iter().map(|copy| c_code::Library::load(copy)));
        });
        wait_until("the libraries are listed", || {
            let read = Read::of_running();
            let listed = read.0["libs"].as_array().expect("modules").iter();
            let is_copy = |library: &&serde_json::Value| {
                library["name"]
                    .as_str()
                    .is_some_and(|name| name.starts_with("copy-"))
            };
            listed.filter(is_copy).count() == LIBRARIES
        });
    });
}

#[test]
fn threads_registered_without_memory_for_their_list_are_sampled_later() {
    const THREADS: usize = 500;
    isolated_with(&[ONE_ARENA], || {
        let _session = ProfilerSession::start(StartParams::default()).expect("start");
        let barrier = Barrier::new(THREADS + 1);
        let wait = || _ = barrier.wait();
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    wait();
                    gekkota::register_thread("waits");
                    wait();
                    wait();
                });
            }
            tick_without_memory(|| {
                wait();
                wait();
            });
            wait_until("the threads are sampled", || {
                let read = Read::of_running();
                let sampled = |thread: &&serde_json::Value| {
                    let samples = thread["samples"]["data"].as_array();
                    thread["name"] == "waits" && samples.is_some_and(|samples| !samples.is_empty())
                };
                read.threads().iter().filter(sampled).count() == THREADS
            });
            wait();
        });
    });
}
