//! The sampler's lists of modules and threads may need more memory than there is. Then it makes them
//! later.
//!
//! While the sampler waits for the loader, in the middle of a tick, it has already found that there
//! is a little memory.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::time::{Duration, Instant};

use super::{ONE_ARENA, end_limit, leave_memory};
use crate::common::{
    LONGEST_WAIT, Read, isolated_with, registered_threads_only, samples_of, wait_until,
};
use crate::sampling::places::profile_ms;
use crate::session::within_loader_callback::{wait_for_blocked_sampler, within_loader_callback};
use crate::unwinding::accuracy::c_code;
use gekkota::{ProfilerSession, ProfilerTime, StartParams};

/// More memory than the sampler wants for a tick, and less than it needs for the lists, in bytes.
const LEFT_BYTES: u64 = 80 << 10;

/// Number of the system call `clock_nanosleep`, in which the sampler sleeps between two ticks.
const SLEEP: &[u8] = b"230 ";

/// Waits until the sampler, whose `syscall` file this is, sleeps. Allocates nothing.
fn wait_for_sleep(path: &Path) {
    let end = Instant::now() + LONGEST_WAIT;
    let sleeps = || {
        let mut call = [0; SLEEP.len()];
        let read = File::open(path).and_then(|mut file| file.read_exact(&mut call));
        read.is_ok() && call == *SLEEP
    };
    while !sleeps() {
        if Instant::now() > end {
            // A panic needs memory.
            end_limit();
            panic!("the sampler does not sleep");
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Calls `prepare` in the middle of a tick, and lets the sampler end that tick with [`LEFT_BYTES`]
/// of memory. Returns a time after that tick. The caller ends the limit; until then, all ticks have
/// as little memory.
fn tick_without_memory(prepare: impl FnOnce()) -> ProfilerTime {
    let mut prepare = Some(prepare);
    let mut path = PathBuf::new();
    within_loader_callback(|| {
        path = wait_for_blocked_sampler().join("syscall");
        prepare.take().expect("called once")();
        leave_memory(LEFT_BYTES);
    });
    wait_for_sleep(&path);
    let time = ProfilerTime::now();
    wait_for_sleep(&path);
    time
}

/// Number of the modules in the profile that this test has loaded.
fn copies_in(read: &Read) -> usize {
    let listed = read.0["libs"].as_array().expect("modules").iter();
    let names = listed.filter_map(|library| library["name"].as_str());
    names.filter(|name| name.starts_with("copy-")).count()
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
        let mut listed_without_memory = LIBRARIES;
        // The sampler waits for the loader before it makes a list, so it makes none here.
        within_loader_callback(|| {
            end_limit();
            listed_without_memory = copies_in(&Read::of_running());
        });
        assert_eq!(listed_without_memory, 0, "there was memory for the list");
        wait_until("the libraries are listed", || {
            copies_in(&Read::of_running()) == LIBRARIES
        });
    });
}

#[test]
fn threads_registered_without_memory_for_their_list_are_sampled_later() {
    const THREADS: usize = 500;
    isolated_with(&[ONE_ARENA], || {
        let _session = ProfilerSession::start(registered_threads_only()).expect("start");
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
            let without_memory = tick_without_memory(|| {
                wait();
                wait();
            });
            end_limit();
            let mut sampled_at = Vec::new();
            let mut end_ms = 0.0;
            wait_until("the threads are sampled", || {
                let read = Read::of_running();
                let waits = |thread: &&serde_json::Value| thread["name"] == "waits";
                let threads = read.threads().iter().filter(waits);
                let first = |thread| Some(samples_of(thread).first()?.time_ms);
                sampled_at = threads.filter_map(first).collect();
                end_ms = profile_ms(&read, without_memory);
                sampled_at.len() == THREADS
            });
            wait();
            let early = sampled_at.iter().filter(|&&time_ms| time_ms < end_ms);
            assert_eq!(early.count(), 0, "there was memory for the list");
        });
    });
}
