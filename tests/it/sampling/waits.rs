//! A thread that waits has the category “Idle” at its leaf, with what it waits for.

use std::io::Read as _;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use serde_json::Value;

use crate::common::{isolated, one_loop, wait_until, work};
use gekkota::{ProfilerSession, StartParams};

/// Starts a thread that calls `wait` until the sender is dropped.
fn start_waiting(
    name: &str,
    mut wait: impl FnMut() + Send + 'static,
) -> (mpsc::Sender<()>, JoinHandle<()>) {
    let (ends, end) = mpsc::channel();
    let body = move || {
        while end.try_recv() == Err(mpsc::TryRecvError::Empty) {
            wait();
        }
    };
    let thread = Builder::new().name(name.to_owned()).spawn(body);
    (ends, thread.expect("a thread"))
}

/// Returns for each sample of a thread the category of its innermost frame: “Idle” with the
/// subcategory, or nothing.
fn leaves(profile: &Value, thread: &str) -> Vec<Option<String>> {
    let threads = profile["threads"].as_array().expect("threads");
    let thread = threads
        .iter()
        .find(|one| one["name"] == thread)
        .expect("the thread");
    let idle = &profile["meta"]["categories"][0];
    assert_eq!(idle["name"], "Idle");
    let leaf = |row: &Value| {
        let stack = &thread["stackTable"]["data"][row[0].as_u64().expect("a stack") as usize];
        let frame = &thread["frameTable"]["data"][stack[1].as_u64().expect("a frame") as usize];
        let subcategory = frame[7].as_u64().filter(|_| frame[6] == 0)?;
        let name = idle["subcategories"][subcategory as usize].as_str();
        Some(name.expect("a subcategory").to_owned())
    };
    let rows = thread["samples"]["data"].as_array().expect("samples");
    rows.iter().map(leaf).collect()
}

/// Returns in how many samples the busy thread ran. In the others, it waited for a processor.
fn count_running(profile: &Value) -> usize {
    let leaves = leaves(profile, "busy");
    leaves.iter().filter(|leaf| leaf.is_none()).count()
}

#[test]
fn waiting_threads_are_idle_by_what_they_wait_for() {
    isolated(|| {
        let session = ProfilerSession::start(StartParams::default()).expect("start");
        let lock = Arc::new(Mutex::new(()));
        let (to_lock, to_wait) = (
            Arc::clone(&lock),
            Arc::new((Mutex::new(()), Condvar::new())),
        );
        let waited = Arc::clone(&to_wait);
        let held = lock.lock().expect("free");
        let (mut reader, writer) = UnixStream::pair().expect("a pair");
        let waiting = [
            start_waiting("lock", move || drop(to_lock.lock())),
            start_waiting("work", move || {
                let guard = waited.0.lock().expect("free");
                drop(waited.1.wait(guard));
            }),
            start_waiting("parked", std::thread::park),
            start_waiting("timer", || std::thread::sleep(Duration::from_millis(50))),
            start_waiting("io", move || _ = reader.read(&mut [0])),
            start_waiting("busy", || _ = work(1000)),
        ];
        let profile_text = |symbolicate| {
            let options = gekkota::profile::SnapshotOptions::default().symbolicate(symbolicate);
            let mut text = Vec::new();
            gekkota::profiler_stream_json(&mut text, &options).expect("active");
            serde_json::from_slice::<Value>(&text).expect("JSON")
        };
        let names = ["lock", "work", "parked", "timer", "io", "busy"];
        wait_until("all threads have samples", || {
            one_loop();
            let profile = profile_text(gekkota::profile::Symbolicate::No);
            let threads = profile["threads"].as_array().expect("threads");
            names.iter().all(|name| {
                let mut threads = threads.iter();
                threads.any(|thread| thread["name"] == *name) && leaves(&profile, name).len() > 50
            }) && count_running(&profile) > 40
        });
        let profile = profile_text(gekkota::profile::Symbolicate::Full);
        let processed = {
            let path =
                std::env::temp_dir().join(format!("waits-{}.processed.json", std::process::id()));
            gekkota::profiler_save_profile_to_file(&path).expect("saved");
            let text = std::fs::read_to_string(&path).expect("a file");
            std::fs::remove_file(&path).expect("a file");
            text
        };
        drop(held);
        let (ends, threads): (Vec<_>, Vec<_>) = waiting.into_iter().unzip();
        drop((ends, writer));
        for thread in threads {
            wait_until("the thread has ended", || {
                to_wait.1.notify_all();
                thread.thread().unpark();
                thread.is_finished()
            });
            thread.join().expect("no panic");
        }
        drop(session);
        for (name, expected) in [
            ("lock", "Lock"),
            ("work", "Work"),
            ("parked", "Work"),
            ("timer", "Timer"),
            ("io", "I/O"),
        ] {
            let leaves = leaves(&profile, name);
            let count = leaves
                .iter()
                .filter(|leaf| leaf.as_deref() == Some(expected))
                .count();
            // The thread begins and loops now and then.
            assert!(
                count * 2 > leaves.len(),
                "{name}: {count} of {}: {leaves:?}",
                leaves.len()
            );
        }
        assert!(count_running(&profile) > 40);
        assert!(processed.contains("\"Lock\",\"I/O\",\"Timer\",\"Work\""));
    });
}
